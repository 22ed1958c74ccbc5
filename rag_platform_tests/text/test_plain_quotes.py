from __future__ import annotations

import pytest

from rag_platform.text.plain_quotes import plain_code, strip_markup


@pytest.mark.parametrize(
    ("quote", "expected"),
    [
        ("See [pumps](../pumps.md#start) and [valves](valves.md).", "See pumps and valves."),
        (
            "Relax [](#Pump.start_timeout) with [](Pump.ip).",
            "Relax Pump.start_timeout with Pump.ip.",
        ),
        ("请[参考文档](#api)。", "请参考文档。"),
        ('See [pumps](/docs/pumps "All of them").', "See pumps."),
        ('See [pumps]({{< relref "pumps" >}}).', "See pumps."),
        (
            'Since {{< new-in "0.1" >}}{{% param "x" %}}, a {{< term text="pump" id="p" >}} is on.',
            "Since 0.1, a pump is on.",
        ),
        (":octicons-file-16: a.toml :material-check:{ .on } `:simple-a:`", "a.toml `:simple-a:`"),
        ("See {ref}`pumps <all-pumps>`, {py:func}`on` and `{a}`.", "See pumps, on and `{a}`."),
        (
            "See [[Pumps|all pumps]], [[Valves]] and ![[plan.png]] `[[x]]`.",
            "See all pumps, Valves and  `[[x]]`.",
        ),
        (
            "The ==hot tap== is `==red==` if a == b or c==d==e.",
            "The hot tap is `==red==` if a == b or c==d==e.",
        ),
        ("Use [`open()`][] or [then\nwait][w].", "Use `open()` or then\nwait."),
        ("[A](https://a.org){target=_blank}.", "[A](https://a.org)."),
        ("Drains.[^1] It hums.[^note]", "Drains. It hums."),
        ('An <abbr title="Object mapper">OM</abbr> is <b>new</b>.', "An OM is new."),
        (
            "<sub>Made by <em>us</em></sub> of H<sub>2</sub>O",
            "<sub>Made by us</sub> of H<sub>2</sub>O",
        ),
        (
            "<sup>The first detector</sup> of 5 m<sup>2</sup>",
            "The first detector of 5 m<sup>2</sup>",
        ),
        ("成员[82]可以上传[83]。先设置它。[84][85]", "成员可以上传。先设置它。"),
        (
            "It began in 1993.[3] It is free,[4] and (so) on. [5]",
            "It began in 1993. It is free, and (so) on. [5]",
        ),
        ("Mind the gap,\n> for it is\n>   wide.", "Mind the gap,\nfor it is\n  wide."),
        ('A <Mark color="red">card</Mark> is <Big>red</Big>.<Icon />', "A card is red."),
        ('默认<Mark color="red">红色</Mark>。', "默认红色。"),
        ("A&nbsp;pump &mdash;&emsp;5 &lt; 7 &amp; R&D;.", "A pump — 5 &lt; 7 &amp; R&D;."),
        ("Set <code>X-Pump</code>.", "Set X-Pump."),
        (
            "Table<table><thead><tr><th>a</th><th>b</th></tr></thead>"
            "<tbody><tr><td>1</td><td>2</td></tr></tbody></table>",
            "Table: a, b; 1, 2",
        ),
        # code is no markup, and neither is what only looks like it
        ("Write `[a](b.md)` and `x[^1]`.", "Write `[a](b.md)` and `x[^1]`."),
        ("Take rows[i][j], a < b > c, {x} and [1] of ![it](https://a.org/b.png).", "="),
        ("![tip](../tip.svg) Press ![menu](menu.svg) > **Open**.", "Press menu > **Open**."),
        (r"![\[Note\]](images/note.png) Open it.", "Open it."),
        ("![loop](loop.svg): again", "loop: again"),
        ("The statuses [1] of a pump [2].", "The statuses of a pump."),
        ("See [1] and rows [1] and [2]; take rows [0] to [9].", "="),
        ("A list of [Pump[]](#pump), or rows[] of (it).", "A list of Pump[], or rows[] of (it)."),
        ("- the [`wrapped\n  name`](a.md) of it", "- the `wrapped\n  name` of it"),
        (
            "Print argv[1] and f(x)[0], 图[1](a.png) in 中文[n].",
            "Print argv[1] and f(x)[0], 图1 in 中文[n].",
        ),
        ("Press <Enter>, a Vec<T>, `<br>` and `<Mark a=1>`.", "="),
        ("Type: `int`<br>\nOne <br />lid, a<br/>b.<br/>", "Type: `int`  \nOne lid, a b."),
    ],
)
def test_a_quote_has_no_marks_of_its_page(quote: str, expected: str) -> None:
    assert strip_markup(quote) == (quote if expected == "=" else expected)


def test_a_block_of_code_stands_at_the_edge_with_its_language() -> None:
    assert plain_code('    ```{ .sh .annotate hl_lines="1" }\n    ls\n      -l\n    ```') == (
        "```sh\nls\n  -l\n```"
    )
    assert plain_code("> ~~~\n> ls\n>\n> pwd\n> ~~~") == "~~~\nls\n\npwd\n~~~"
    colours = '```console\n$ up\n<span style="color: green;">INFO</span>: <u>a<b</u>\n```'
    assert plain_code(colours) == "```console\n$ up\nINFO: a<b\n```"
    assert plain_code("```html\n<span>a</span>\n```") == "```html\n<span>a</span>\n```"
    # what ends it is in another passage, or was forgotten
    assert plain_code("```sh\nls") == "```sh\nls\n```"
    assert plain_code("```\nls\n```") == "```\nls\n```"
    assert plain_code("  >>> 1 + 1\n  2") == "```pycon\n>>> 1 + 1\n2\n```"
    assert plain_code("    ls\n      -l") == "```\nls\n  -l\n```"


def test_a_code_directive_of_myst_is_a_fence_with_its_language() -> None:
    assert plain_code("```{code-block} python\nx = 1\n```") == "```python\nx = 1\n```"
