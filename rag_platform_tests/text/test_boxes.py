from __future__ import annotations

import time

import pytest

from rag_platform.text.boxes import find_boxes
from rag_platform.text.passages import sentence_spans, units


def named(text: str) -> list[tuple[str, list[str], str]]:
    """(quote, titles of the tabs around it, title or kind of its admonition) of each unit."""
    return [
        (text[unit.start : unit.end], [words for _, words in unit.headings], unit.box)
        for unit in units(text)
    ]


@pytest.mark.parametrize(
    "box",
    [
        ":::warning\nIt is hot.\n:::",
        "::::warning\n:::raw\nIt is hot.\n:::\n::::",
        "!!! warning\n\n    It is hot.",
        "??? warning inline end\n    It is hot.",
        "/// warning\nIt is hot.\n///",
        "> [!WARNING]\n> It is hot.",
        "> [!warning]-\n> It is hot.",
        "```{warning}\n:class: wide\n\nIt is hot.\n```",
        ":::{warning}\n:class: wide\nIt is hot.\n:::",
        "<Warning>\n  It is hot.\n</Warning>",
        '<Callout type="warning">\n\nIt is hot.\n\n</Callout>',
        "{{% warning %}}\nIt is hot.\n{{% /warning %}}",
        '{{< callout type="warning" >}}\nIt is hot.\n{{< /callout >}}',
        '{% hint style="warning" %}\nIt is hot.\n{% endhint %}',
    ],
)
def test_an_admonition_has_its_kind_up_to_its_end(box: str) -> None:
    assert named(f"Go.\n\n{box}\n\nOn.") == [
        ("Go.", [], ""),
        ("It is hot.", [], "Warning"),
        ("On.", [], ""),
    ]


@pytest.mark.parametrize(
    "box",
    [
        ":::warning[Mind]\nIt is hot.\n:::",
        "::: warning Mind\nIt is hot.\n:::",
        '!!! warning "Mind"\n    It is hot.',
        "/// warning | Mind\nIt is hot.\n///",
        "> [!WARNING] Mind\n> It is hot.",
        "```{warning} Mind\nIt is hot.\n```",
        '<Admonition type="warning" title="Mind">\n\nIt is hot.\n\n</Admonition>',
        '{{% alert title="Mind" color="warning" %}}\nIt is hot.\n{{% /alert %}}',
    ],
)
def test_the_title_of_an_admonition_stands_for_its_kind(box: str) -> None:
    assert named(f"{box}\n\nOn.") == [("It is hot.", [], "Mind"), ("On.", [], "")]


def test_a_box_of_another_kind_has_only_its_title() -> None:
    text = "> [!new] Since 2.0\n> It hums.\n\n/// html | div.wide\nOn.\n///\n\n> [!tip] It is hot."
    assert named(text) == [
        ("It hums.", ["Since 2.0"], ""),
        ("On.", [], ""),
        ("[!tip] It is hot.", [], ""),
    ]


@pytest.mark.parametrize(
    "tabs",
    [
        '=== "npm"\n\n    Add a.\n\n=== "pnpm"\n\n    Add b.\n',
        "//// tab | npm\nAdd a.\n////\n\n//// tab | pnpm\nAdd b.\n////",
        "<Tabs items={['npm', 'pnpm']}>\n  <Tab>\n  Add a.\n  </Tab>\n"
        "  <Tab>\n  Add b.\n  </Tab>\n</Tabs>",
        '<Tabs>\n<TabItem value="npm">\n\nAdd a.\n\n</TabItem>\n'
        '<TabItem value="p" label="pnpm" default>\n\nAdd b.\n\n</TabItem>\n</Tabs>',
        '{% tabs %}\n{% tab title="npm" %}\nAdd a.\n{% endtab %}\n'
        '{% tab title="pnpm" %}\nAdd b.\n{% endtab %}\n{% endtabs %}',
        '{{< tabs >}}{{< tab "npm" >}}\nAdd a.\n{{< /tab >}}\n'
        '{{< tab "pnpm" >}}\nAdd b.\n{{< /tab >}}{{< /tabs >}}',
        "::::{tab-set}\n:::{tab-item} npm\nAdd a.\n:::\n:::{tab-item} pnpm\nAdd b.\n:::\n::::",
        '<Step title="npm">\nAdd a.\n</Step>\n\n<Step title="pnpm">\nAdd b.\n</Step>',
    ],
)
def test_a_tab_has_its_title_up_to_its_end(tabs: str) -> None:
    assert named(f"{tabs}\n\nOn.") == [
        ("Add a.", ["npm"], ""),
        ("Add b.", ["pnpm"], ""),
        ("On.", [], ""),
    ]


def test_a_box_goes_on_with_the_text_above_it() -> None:
    text = "## Pump\n\nIt hums.\n\n!!! tip\n    It is hot."
    assert [unit.context for unit in units(text)] == ["Pump", "Pump"]


@pytest.mark.parametrize(
    "group", [("::: code-group", "[npm]", ":::"), ("<CodeGroup>", "npm", "</CodeGroup>")]
)
def test_code_blocks_of_a_group_are_tabs(group: tuple[str, str, str]) -> None:
    opening, title, end = group
    code = f"```sh {title}\nadd a\n```"
    assert named(f"{opening}\n\n{code}\n\n{end}\n\n```sh b\nadd\n```") == [
        (code, ["npm"], ""),
        ("```sh b\nadd\n```", [], ""),
    ]


def test_code_that_components_and_shortcodes_show_is_quoted() -> None:
    text = (
        '## Add\n\n<Snippet text="npm add ai" dark />\n\n<Snippet\n  text={`bun add ai`}\n/>\n\n'
        '{{< highlight sh "linenos=table" >}}\n# all\npump on\n{{< /highlight >}}\n\nOn.'
    )
    assert [(unit.kind, text[unit.start : unit.end]) for unit in units(text)] == [
        ("code", "npm add ai"),
        ("code", "bun add ai"),
        ("code", "# all\npump on"),
        ("sentence", "On."),
    ]


def test_no_box_is_in_code_or_without_a_name() -> None:
    text = "```md\n!!! note\n    A.\n:::tip\n```\n`<Note>`\n::: a.b.Pump\n\n{{< tip >}}\n\nB.\n"
    assert find_boxes(text) == []


def test_many_marks_take_linear_time() -> None:
    began = time.process_time()
    for mark in (
        "<A x={{",
        '{{< a text="',
        "```{note}\n",
        '=== "a"\n',
        "<Tab>\n",
        "> [!a]\n",
        "[[",
    ):
        find_boxes(mark * 40_000)
        list(sentence_spans(mark * 40_000, 0, 80_000))
    assert time.process_time() - began < 5
