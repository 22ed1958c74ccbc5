from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.text.markdown_blocks import cells
from rag_platform.text.passages import is_contents, sentence_spans, units

GUIDE = """# Limits

Uploads are limited to 50 MB, e.g. for PDF. The server (v1.2.3) refuses
larger files. See Fig. 3! 最大连接数是 100。超过后会排队。

Settings are:

- `max_upload`: the size
  in MB
- timeout: 30 s

| Name | Default |
|------|---------|
| retries | 3 |

```python
x = 1
```
---
> quoted text
"""


def quotes(text: str) -> list[tuple[str, str]]:
    return [(unit.kind, text[unit.start : unit.end]) for unit in units(text)]


def test_a_chunk_is_cut_into_what_an_answer_may_quote() -> None:
    assert quotes(GUIDE) == [
        ("sentence", "Uploads are limited to 50 MB, e.g. for PDF."),
        ("sentence", "The server (v1.2.3) refuses\nlarger files."),
        ("sentence", "See Fig. 3!"),
        ("sentence", "最大连接数是 100。"),
        ("sentence", "超过后会排队。"),
        ("sentence", "Settings are:"),
        ("item", "`max_upload`: the size\n  in MB"),
        ("item", "timeout: 30 s"),
        ("row", "| retries | 3 |"),
        ("code", "```python\nx = 1\n```"),
        ("sentence", "quoted text"),
    ]


def test_units_know_their_headings_and_header() -> None:
    found = units(GUIDE)
    row = next(unit for unit in found if unit.kind == "row")
    assert row.header is not None
    assert GUIDE[slice(*row.header)] == "| Name | Default |"
    assert row.context == "Limits Settings are: Name Default"
    assert next(unit for unit in found if unit.kind == "item").context == "Limits Settings are:"


def test_rows_of_a_table_that_was_cut_have_no_header() -> None:
    assert [(unit.kind, unit.header) for unit in units("| a | 1 |\n| b | 2 |")] == [
        ("row", None),
        ("row", None),
    ]


def test_long_code_is_cut_at_blank_lines() -> None:
    blocks = ["\n".join(f"{name}{n} = {n}" for n in range(9)) for name in "abcd"]
    text = "Begin:\n\n```python\n" + "\n\n".join(blocks) + "\n```\nEnd."
    assert quotes(text) == [
        ("sentence", "Begin:"),
        ("code", "\n\n".join(blocks[:2])),
        ("code", "\n\n".join(blocks[2:])),
        ("sentence", "End."),
    ]
    pieces = [unit for unit in units(text) if unit.kind == "code"]
    assert [text[slice(*unit.fence)] for unit in pieces if unit.fence] == ["```python"] * 2


def test_bold_text_of_several_sentences_leaves_no_mark_alone() -> None:
    assert quotes("**One is here. Two is there.** Three **is** said.") == [
        ("sentence", "One is here."),
        ("sentence", "Two is there."),
        ("sentence", "Three **is** said."),
    ]
    assert quotes("检查文件。**lint** 会报错。**先看。再改。**然后**上传**。") == [
        ("sentence", "检查文件。"),
        ("sentence", "**lint** 会报错。"),
        ("sentence", "先看。"),
        ("sentence", "再改。"),
        ("sentence", "然后**上传**。"),
    ]
    assert quotes("**kwargs are passed on.") == [("sentence", "**kwargs are passed on.")]


def test_a_mark_of_italic_text_is_left_out_without_its_counterpart() -> None:
    assert quotes("*It drips. Why does it?* It does 2 * 3. *No.*") == [
        ("sentence", "It drips."),
        ("sentence", "Why does it?"),
        ("sentence", "It does 2 * 3."),
        ("sentence", "*No.*"),
    ]


OBJECTS = """<Properties
  content={[
    {
      name: 'size',
      description:
        'How large it is. Default: 2.',
      properties: [
        {
          name: 'unit',
          isOptional: true,
        },
      ],
    },
    {
      title: 'Pumps',
      href: '/pumps',
    },
  ]}
/>
"""
SIZE = """      name: 'size',
      description:
        'How large it is. Default: 2.',"""
UNIT = "          name: 'unit',\n          isOptional: true,"


@pytest.mark.parametrize("start", [0, OBJECTS.index("    {"), OBJECTS.index("'How")])
def test_the_objects_of_a_component_are_quoted_one_by_one(start: int) -> None:
    """A chunk may begin or end within the component."""
    found = [("code", SIZE), ("code", UNIT), ("sentence", "It pumps.")]
    if start > OBJECTS.index("description"):
        found = found[1:]
    assert quotes(f"{OBJECTS[start:]}\nIt pumps.") == found
    assert quotes(OBJECTS[start : OBJECTS.index("        },")]) == found[:-1]


def test_a_component_holds_what_is_no_object_too() -> None:
    lid = "    {\n      name: 'lid',\n      icon: <Lid />\n    },\n"
    seat = "    {\n      name: 'seat',\n      size: 2,\n    },\n"
    assert quotes(f"<Table\n  rows={{[\n{lid}{seat}  ]}}\n/>") == [
        ("code", "      name: 'lid',\n      icon: <Lid />"),
        ("code", "      name: 'seat',\n      size: 2,"),
    ]


CONTENTS = """## Contents

1 Introduction . . . . . . . . . . . . . . 7
1.1 Imports . . . . . . . . . . . . . . . . 7
1.2 Export to text files . . . . . . . . . 8
| 2 | Spreadsheet-like data . . . . . | . . . . . . . 12 |
"""
# two columns, with the dots of an entry in two cells
COLUMNS = """| 2.1 | Imports . . . . | . . . 4 |  | 3.1 | Pumps. . . . | . . . 11 |
| 2.2 | Exports . . . | . . . . 4 |  | 3.2 | Valves . . . | . . . 12 |
"""
INDEX = "### R\n\nread.csv. . . . . . 5, 27 read.fwf . . . . . 11 scan. . . . . . 9 sep. . . . . 4"
ACCOUNT = """| | 2024 |
|---|---|
| Revenue . . . . . . . . . | 512 |
| Cost of sales . . . . . . | 301 |
| Other income. . . . . . . | 12 |
| Taxes . . . . . . . . . . | 40 |
| Profit. . . . . . . . . . | 183 |
"""
LINKS = "- [Errors](#errors)\n  - [Codes](#codes)\n\n**[Names](page.html#names)**\n1. [`f`](#f)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CONTENTS, True),
        (COLUMNS, True),
        (INDEX, True),
        (ACCOUNT, False),
        (LINKS, True),
        (f"# Guide\n\n{LINKS}", True),
        (f"{LINKS}- [Pages](pages.html)", False),
        ("Wait..... 4\n" * 3, False),
        ("", False),
    ],
)
def test_contents_and_an_index_are_told_from_an_account(text: str, expected: bool) -> None:
    assert is_contents(text) is expected
    assert (units(text) == []) is (expected or not text)


@pytest.mark.parametrize(
    "badge",
    [
        "[![License](https://img.shields.io/badge/license-MIT-green)](../LICENSE)",
        "[![Project](https://example.org/v0.json){ loading=lazy .off-glb }](https://example.org)",
        "![logo](logo.png) [![CI](ci.svg)](https://example.org/ci)",
        "[![Version][npm-image]][npm-url] ![logo][logo]\n\n[npm-image]: https://example.org/v.svg",
        r"![\[Note\]](images/note.png)",
        "&nbsp;",
    ],
)
def test_badges_are_not_quoted(badge: str) -> None:
    assert quotes(f"{badge}\n\nIt is free.") == [("sentence", "It is free.")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two? Three!", ["One.", "Two?", "Three!"]),
        ("Version 1.2 is out. 3.5 is not.", ["Version 1.2 is out.", "3.5 is not."]),
        ("Ask Dr. Smith, i.e. John.", ["Ask Dr. Smith, i.e. John."]),
        ("他说：“好。”然后走了。", ["他说：“好。”", "然后走了。"]),
        ("Wait... What?! Yes.", ["Wait...", "What?!", "Yes."]),
        (
            "It says “No.” (Nobody knows.) 3.5 mm. or so",
            ["It says “No.”", "(Nobody knows.)", "3.5 mm. or so"],
        ),
        ("no end", ["no end"]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert [text[s:e] for s, e in sentence_spans(text, 0, len(text))] == expected


def test_the_mark_of_a_footnote_belongs_to_the_sentence_before_it() -> None:
    assert quotes("它会检查错误。[75]\n\n当然要替换文件名。[76][77]然后重试。") == [
        ("sentence", "它会检查错误。[75]"),
        ("sentence", "当然要替换文件名。[76][77]"),
        ("sentence", "然后重试。"),
    ]


def test_the_mark_of_a_note_is_no_sentence() -> None:
    text = "> [!NOTE]\n> Only lower case works here. Upper case fails.\n\n> [!TIP]\n> Use tabs."
    assert [text[unit.start : unit.end] for unit in units(text)] == [
        "Only lower case works here.",
        "Upper case fails.",
        "Use tabs.",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Call `println! now` and `a? b` here. Then rest.", ["`a? b` here.", "Then rest."]),
        ("Read [Is it? Yes. No](x.md) first.", ["first."]),
        (
            "Timeout\n: How long.\nLimit\n: How many.",
            ["Timeout\n: How long.", "Limit\n: How many."],
        ),
        ("Wow!!! That is all.", ["Wow!!!", "That is all."]),
        ("import tax rises from here.", ["import tax rises from here."]),
        ("<style>\na. b\n</style>\nText.", ["Text."]),
    ],
)
def test_code_links_and_scripts_end_no_sentence(text: str, expected: list[str]) -> None:
    found = [text[unit.start : unit.end] for unit in units(text)]
    assert len(found) == len(expected)
    assert all(quote.endswith(end) for quote, end in zip(found, expected, strict=True))


def test_cells_of_a_row() -> None:
    assert cells("| a | b \\| c |  |") == ["a", "b \\| c", ""]


@given(st.text(alphabet="ab。.!?|-#`>*1 \n最", max_size=60))
def test_units_are_ordered_slices_that_never_overlap(text: str) -> None:
    end = 0
    for unit in units(text):
        assert end <= unit.start < unit.end <= len(text)
        assert text[unit.start : unit.end].strip()
        end = unit.end


@pytest.mark.parametrize(
    "text",
    [
        "::: warning Careful\nNever change it here. It breaks.\n:::",
        "::::: tip\n::: warning\nNever change it here. It breaks.\n:::\n:::::",
        '!!! note "Careful"\n    Never change it here. It breaks.',
        '??? note "Careful"\n    Never change it here. It breaks.',
        '=== "Python"\n    Never change it here. It breaks.',
        "/// warning | Careful\n\nNever change it here. It breaks.\n\n///",
        "> [!WARNING] Careful\n> Never change it here. It breaks.",
        "Warning\n\nNever change it here. It breaks.",
        "**重要：**\n\nNever change it here. It breaks.",
    ],
)
def test_the_marks_of_a_box_are_no_part_of_its_sentences(text: str) -> None:
    assert quotes(text) == [
        ("sentence", "Never change it here."),
        ("sentence", "It breaks."),
    ]


def test_an_empty_line_of_a_quoted_block_is_no_part_of_a_sentence() -> None:
    text = "> Open a shell and enter:\n>\n> ```sh\n> run --now\n> ```\n>\n> Check it.\n>\n"
    assert quotes(text) == [
        ("sentence", "Open a shell and enter:"),
        ("code", "> ```sh\n> run --now\n> ```"),
        ("sentence", "Check it."),
    ]


def test_comments_imports_and_includes_are_no_units() -> None:
    text = (
        "<!-- old:\nThe limit was 5 MB. -->\nThe limit is 50 MB.\n\n"
        "import Tabs from '@theme/Tabs';\nexport const limit = 7\n\n"
        "{* ../src/limit.py hl[3] *}\n{% include 'limit.md' %}\n{/* a limit */}\n[[toc]]\n"
        '--8<-- "limit.md"\n\n<<< @/limit.js\n\n```py\n{!> limit.py !}\n```\n'
        "\n``` mermaid\ngraph TD\nLimit --> Upload\n```\n"
    )
    assert quotes(text) == [("sentence", "The limit is 50 MB.")]


def test_components_of_mdx_are_no_units_but_their_words_are() -> None:
    text = (
        "export const Mark = ({children}) => (\n  <span\n    style={{a: 1}}>\n    {children}\n"
        "  </span>\n);\n\n"
        "<Tabs\n  values={[\n    {label: 'npm'},\n  ]}>\n<TabItem value=\"npm\">\n\n"
        "Run npm.\n\n</TabItem>\n</Tabs>\n\n{/* Not\nsaid. */}\n"
        '<Card\n  title="A"\n  onClick={() =>\n    go()}\n>\n  It opens a card.\n</Card>\n\n'
        "export default settings with this command.\n\n<b and c\nare smaller."
    )
    assert quotes(text) == [
        ("sentence", "Run npm."),
        ("sentence", "It opens a card."),
        ("sentence", "export default settings with this command."),
        ("sentence", "<b and c\nare smaller."),
    ]


def test_nothing_inside_of_code_a_link_or_a_tag_ends_a_sentence() -> None:
    text = (
        "Call `println! x` or `a ? b : c` first. Then see [What? Why? How](https://x.io/a) for"
        ' more. An <abbr title="Not fixed. It moves.">address</abbr> is needed.'
    )
    assert quotes(text) == [
        ("sentence", "Call `println! x` or `a ? b : c` first."),
        ("sentence", "Then see [What? Why? How](https://x.io/a) for more."),
        ("sentence", 'An <abbr title="Not fixed. It moves.">address</abbr> is needed.'),
    ]


def test_a_definition_is_one_unit_and_an_underlined_line_a_heading() -> None:
    text = (
        "Limits\n------\n\nworker\n:   A process. It answers questions.\n\n"
        "queue\n: Where they wait."
    )
    assert quotes(text) == [
        ("sentence", "worker\n:   A process. It answers questions."),
        ("sentence", "queue\n: Where they wait."),
    ]
    assert {unit.context for unit in units(text)} == {"Limits"}


def test_a_session_in_python_is_code() -> None:
    text = "It adds:\n\n    >>> 1 + 1\n    2\n\n> It is quoted."
    assert quotes(text) == [
        ("sentence", "It adds:"),
        ("code", "    >>> 1 + 1\n    2"),
        ("sentence", "It is quoted."),
    ]


def test_what_only_its_indentation_marks_is_one_block_of_code() -> None:
    text = "Start it.\n\n    pump --on\n\n    pump --off\n\nThen wait."
    found = [(unit.kind, text[unit.start : unit.end].strip()) for unit in units(text)]
    assert [kind for kind, _ in found] == ["sentence", "code", "sentence"]
    assert [line.strip() for line in found[1][1].splitlines()] == ["pump --on", "", "pump --off"]


@pytest.mark.parametrize(
    "text",
    [
        '!!! note "Mind"\n\n    The valve is hot.\n\nGo on.',
        "- Open the valve.\n\n    It is hot.\n\n    It stays hot.",
        "Old books say:\n\n    The valve is hot.",
        "valve\n:   A part of pumps.\n\n    It is hot.",
    ],
)
def test_indented_text_of_boxes_lists_and_quotations_is_no_code(text: str) -> None:
    assert "code" not in {unit.kind for unit in units(text)}


def test_any_sign_may_underline_a_heading() -> None:
    text = "Pumps\n~~~~~\n\nThey turn.\n\nEnd."
    read = units(text)
    assert [text[unit.start : unit.end] for unit in read] == ["They turn.", "End."]
    assert read[0].headings == ((3, "Pumps"),)


def test_a_heading_of_html_names_what_follows() -> None:
    text = (
        '<h1 align="center">\n  <b>Zod</b>\n</h1>\n<p>It checks.</p>\n\n<h2>Backers</h2>\n\nThanks.'
        '\n\n<h3><img src="a.svg"></h3>\n\n<h4><a href="b">EN</a> | <a href="c">DE</a></h4>\n\nEnd.'
        "\n\n    <h2>code</h2>"
    )
    read = units(text)
    assert [(text[unit.start : unit.end], unit.headings) for unit in read] == [
        ("<p>It checks.</p>", ((1, "Zod"),)),
        ("Thanks.", ((1, "Zod"), (2, "Backers"))),
        ("End.", ((1, "Zod"), (2, "Backers"))),
        ("    <h2>code</h2>", ((1, "Zod"), (2, "Backers"))),
    ]


def test_a_line_of_bold_words_names_what_follows() -> None:
    text = "**A pump hums**\n\nClose the valve.\n\n**Never open it.**\n\n**Wide:**\n\nTurn it."
    read = units(text)
    assert [text[unit.start : unit.end] for unit in read] == [
        "Close the valve.",
        "**Never open it.**",
        "Turn it.",
    ]
    assert [unit.context for unit in read] == ["A pump hums", "A pump hums", "Wide"]
    warned = units("**不支持低版本浏览器，请自行添加 polyfill**\n\n**为什么，怎么办？**\n\n升级。")
    assert [unit.context for unit in warned] == ["", "为什么，怎么办？"]
    options = units(
        "**-u**\n\n**--user**\n\nNames you.\n\n**--all**\n\nTakes all.\n\n**Notes**\n\nNo."
    )
    assert [unit.context for unit in options] == ["-u, --user", "--all", "Notes"]


@pytest.mark.parametrize(
    "line",
    [
        "**Does it leak?**",
        "<details><summary>Does it leak?</summary><br/>",
        "<details>\n<summary>Does it leak?</summary>",
    ],
)
def test_a_question_alone_names_what_follows(line: str) -> None:
    text = f"{line}\n\nNo.\n\n</details>"
    assert [(text[unit.start : unit.end], unit.context) for unit in units(text)] == [
        ("No.", "Does it leak?")
    ]


def test_the_options_of_a_command_are_units_of_their_own() -> None:
    options = (
        "    -r, --rate RATE  Most bytes,\n                     e.g. 50K\n"
        "    -v       Talk\n    --to=X   End\n"
    )
    expected = [
        ("code", "    -r, --rate RATE  Most bytes,\n                     e.g. 50K"),
        ("code", "    -v       Talk"),
        ("code", "    --to=X   End"),
    ]
    assert quotes(f"## Options\n{options}") == expected
    # where a passage begins within them, and in a fence
    assert quotes(options.lstrip())[1:] == expected[1:]
    fenced = quotes(f"```\nUsage: pump\n\nOptions:\n{options}```")
    assert fenced[0] == ("code", "Usage: pump")
    assert fenced[1][1].startswith("Options:\n    -r, --rate RATE")
    assert fenced[2:] == expected[1:]
    # the lines of one command are none
    command = "```sh\npump \\\n  --rate 5 \\\n  --to x \\\n  -v\n```"
    assert quotes(command) == [("code", command)]


def test_code_may_begin_right_below_a_heading() -> None:
    assert quotes("## Usage\n    pump --on") == [("code", "    pump --on")]


@pytest.mark.parametrize("mark", ["`", "'", "*", "+"])
def test_every_underline_of_restructured_text_makes_a_heading(mark: str) -> None:
    text = f"Pumps\n{mark * 5}\n\nThey turn.\n\nIt hums."
    assert quotes(text) == [("sentence", "They turn."), ("sentence", "It hums.")]
    assert {unit.context for unit in units(text)} == {"Pumps"}


def test_the_title_of_a_folded_box_names_what_follows() -> None:
    text = "<details>\n<summary><code>X-Pump</code></summary>\n\nIt turns.\n\n</details>"
    assert quotes(text) == [("sentence", "It turns.")]
    assert units(text)[0].context == "<code>X-Pump</code>"


def test_a_target_of_links_below_its_name_is_no_text() -> None:
    assert quotes("It turns.\n\n[`pump()`]:\n  https://a.org/pump\n[b]: https://b.org") == [
        ("sentence", "It turns.")
    ]


@pytest.mark.parametrize("line", ["<br>\n", "<a\n", "<!-- a -->\n", "a b\n"])
def test_time_grows_with_the_lines(line: str) -> None:
    def measure(lines: int) -> float:
        started = time.process_time()
        units(line * lines)
        return time.process_time() - started

    measure(100)
    assert min(measure(16_000) for _ in range(3)) < 16 * min(measure(2_000) for _ in range(3)) + 0.2


def test_what_only_its_chinese_number_marks_is_a_heading() -> None:
    text = (
        "第二章　休假\n\n第九条　年假如下：\n\n（一）满一年的，5天；\n\n（二）满十年的，10天。\n\n"
        "第十条　病假须有证明。工资照发八成。\n\n"
        "　　一、登录\n　　用工号登录。\n　　二、联系\n　　1.电话：8026；\n　　2.邮箱：a@b。"
    )
    assert [
        (unit.kind, text[unit.start : unit.end], [name for _, name in unit.headings])
        for unit in units(text)
    ] == [
        ("sentence", "第九条　年假如下：", ["第二章　休假", "第九条"]),
        ("item", "满一年的，5天；", ["第二章　休假", "第九条"]),
        ("item", "满十年的，10天。", ["第二章　休假", "第九条"]),
        ("sentence", "第十条　病假须有证明。", ["第二章　休假", "第十条"]),
        ("sentence", "工资照发八成。", ["第二章　休假", "第十条"]),
        ("sentence", "用工号登录。", ["第二章　休假", "一、登录"]),
        ("item", "电话：8026；", ["第二章　休假", "二、联系"]),
        ("item", "邮箱：a@b。", ["第二章　休假", "二、联系"]),
    ]


@pytest.mark.parametrize("text", ["一、苹果\n二、香蕉", "一、本合同一式两份。\n\n其他", "第一章"])
def test_numbered_items_sentences_and_the_last_line_are_no_headings(text: str) -> None:
    assert all(not unit.headings for unit in units(text)) and units(text)


def test_numbered_clauses_and_questions_are_apart() -> None:
    text = (
        "1.1 范围：全体。\n\n1.2 期限：一年。\n\n"
        "问：何时发车？\n答：八点。\n问：几号停运？\n答：不停。"
    )
    assert [(text[unit.start : unit.end], unit.headings[-1][1]) for unit in units(text)] == [
        ("1.1 范围：全体。", "1.1 范围"),
        ("1.2 期限：一年。", "1.2 期限"),
        ("答：八点。", "问：何时发车？"),
        ("答：不停。", "问：几号停运？"),
    ]


def test_marked_questions_are_labels_of_any_length() -> None:
    long = f"**Q:** Why {'so ' * 30}late?"
    text = f"{long}\n\n**A:** Snow.\n\nQ: say when\nA: Soon.\n\nQ: a part number\n\nQ4: rose."
    assert [(text[unit.start : unit.end], unit.headings[-1][1]) for unit in units(text)] == [
        ("**A:** Snow.", long),
        ("A: Soon.", "Q: say when"),
        ("Q: a part number", "Q: say when"),
        ("Q4: rose.", "Q: say when"),
    ]
    assert units("Q: " * 30_000 + "\n" * 30_000)


def test_a_mark_in_a_quotation_is_no_text() -> None:
    text = "> **Note**\n>\n> Run it."
    assert [text[unit.start : unit.end].strip() for unit in units(text)] == ["Run it."]


@pytest.mark.parametrize(
    "text",
    [
        "### 1.2.3\n\n### Fixed\n\na\n\n### Added\n\nb\n\n### 1.2.2\n\nc\n\n### Notes\n\nd",
        "## 1.2.3\n# Fixed\n\na\n# Added\n\nb\n## 1.2.2\n\nc\n\n## Notes\n\nd",
    ],
)
def test_headings_right_below_a_release_are_parts_of_it(text: str) -> None:
    found = {text[it.start : it.end]: [words for _, words in it.headings] for it in units(text)}
    assert found == {
        "a": ["1.2.3", "Fixed"],
        "b": ["1.2.3", "Added"],
        "c": ["1.2.2"],
        "d": ["Notes"],
    }
