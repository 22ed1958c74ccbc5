from __future__ import annotations

import pytest

from rag_platform.answering.quotable import (
    complete_list,
    extend,
    format_label,
    is_adjacent,
    label_units,
    read_layout,
    render_rows,
    render_units,
)


def parts(text: str) -> list[tuple[str, str]]:
    return [(part.kind, text[part.start : part.end]) for part in read_layout(text).parts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":::warning\nNever mutate props here. It breaks.\n:::\n", 2),
        ('!!! note "Mind"\n    Only lower case works.\n', 1),
        ("/// tip | Hint\n\nUse tabs.\n\n///\n", 1),
        ("> [!NOTE]\n> Only lower case works here. Upper case fails.\n", 2),
        ("<!-- Old words.\nMore of them. -->\nIt is new.", 1),
        ("import Tabs from '@theme/Tabs';\n\nIt is new.", 1),
        ("{* ../src/app.py hl[3] *}\n\n::: app.upload\n\nIt is new.", 1),
        ("See also:\n\n- [Pipes](pipes.md)\n- [Valves](valves.md)\n", 0),
        ("[Home](a.md) | [Pipes](b.md)\n\nIt is new.", 1),
        ("English | [简体中文](README_cn.md)\n\nIt is new.", 1),
        ("[简体中文](a.md) | 繁體中文 | [English](b.md) | [日本語](c.md)\n\nIt is new.", 1),
        ("Settings are:", 0),  # what they are is in another chunk
    ],
)
def test_marks_and_comments_are_no_parts(text: str, expected: int) -> None:
    found = parts(text)
    assert len(found) == expected
    assert not any(mark in quote for _, quote in found for mark in (":::", "<!--", "import", "]("))


def test_an_introduction_comes_with_what_it_introduces() -> None:
    code = "Run this command:\n\n```sh\nls -l\n```"
    assert parts(code) == [("code", code)]
    steps = "To reset:\n\n1. Stop it.\n2. Start it."
    assert parts(steps) == [("list", steps), ("item", "Stop it."), ("item", "Start it.")]
    sentence = "Mind this:\n\nThe tank must be empty."
    assert parts(sentence) == [("sentence", sentence)]
    # a sentence goes on in code without a colon as well, but not one that has ended
    cited = "To cite it, use\n\n```\n@Manual{it}\n```"
    assert parts(cited) == [("code", cited)]
    assert [kind for kind, _ in parts(cited.replace("use", "do (so)."))] == ["sentence", "code"]
    # one with a full stop may announce code or a list
    shown = "Remove them as follows.\n\n```sh\nls -l\n```"
    assert parts(shown) == [("code", shown)]
    below = "可以用下面几种方法。\n\n- 清空\n- 重启"
    assert parts(below)[0] == ("list", below)
    assert ("sentence", "可以用下面几种方法。") in parts(below)
    assert parts("18岁以下免费。\n\n- 清空\n- 重启")[0] == ("sentence", "18岁以下免费。")
    # one that names code says something without it
    said = "Turn it off by setting `light` to `False`:"
    assert parts(said + "\n\n{* a.py *}") == [("sentence", said)]
    # not across a heading, nor where the code between was left out
    assert parts("Run this:\n\n# Next\n\nDone.") == [("sentence", "Done.")]
    assert parts("Run this:\n\n{* a.py *}\n\nDone.") == [("sentence", "Done.")]


def test_a_list_right_below_a_heading_is_a_part_about_that() -> None:
    items = "- Pumps are faster.\n- Valves close."
    text = f"## 1.3.0\n\n{items}\n\n## 1.2.0\n\n- Tanks are blue."
    found = read_layout(text).parts
    # also of one item, below a version
    assert [part.kind for part in found] == ["list", "item", "item", "list", "item"]
    assert parts("## Tanks\n\n- They are blue.") == [("item", "They are blue.")]
    assert text[found[0].start : found[0].end] == items.removeprefix("- ")
    assert text[slice(*found[0].topic)] == "1.3.0"
    # neither behind a sentence nor where it only links
    assert {kind for kind, _ in parts(f"## 1.3.0\n\nIt is out.\n\n{items}")} == {"sentence", "item"}
    assert parts("## More\n\n- [Pipes](pipes.md)\n- [Valves](valves.md)\n") == []


def test_a_long_list_is_quoted_by_item() -> None:
    text = "Settings are:\n\n" + "\n".join(f"- setting number {n} does a thing" for n in range(30))
    assert {kind for kind, _ in parts(text)} == {"item"}


@pytest.mark.parametrize(
    ("text", "number", "quote"),
    [
        ("Pipes freeze. To prevent this, keep the heater on.", 1, "Pipes freeze. To prevent this"),
        ("阀门在中午打开。因此水位会下降。", 1, "阀门在中午打开。因此"),
        ("Turn it on:\n\n```sh\npump\n```\n\nNow it hums.", 1, "Turn it on:"),
        ("Pipes freeze.\n\nKeep the heater on.", 1, "Keep"),
        ("Pipes freeze.\n\n# Other\n\nThis is another thing.", 1, "This"),
    ],
)
def test_a_sentence_that_refers_back_comes_with_the_one_before_it(
    text: str, number: int, quote: str
) -> None:
    run = extend(text, read_layout(text).parts[number])
    assert render_units(text, run, "[1]").startswith(quote)


LONG = f"The valve {'slowly, ' * 12} opens."


@pytest.mark.parametrize(
    ("text", "number", "quote"),
    [
        # with the sentence before it in its paragraph, and those after it
        ("It drains. Use valve 7.\n\nClose it.", 1, "It drains. Use valve 7.\n\nClose it."),
        ("Valve 6 is deprecated.\n\nUse valve 7.", 0, "Valve 6 is deprecated.\n\nUse valve 7."),
        ("阀门 6 已弃用。\n\n请改用阀门 7。", 0, "阀门 6 已弃用。\n\n请改用阀门 7。"),
        # not with an introduction of what is left out
        ("Use valve 7. Set `level`:\n\n{* a.py *}", 0, "Use valve 7."),
        ("Set `level`:\n{* a.py *}\nUse valve 7.", 1, "Use valve 7."),
        # not with one of another paragraph before it, of another section, nor a long one's
        ("Valve 6 leaks.\n\nUse valve 7.", 1, "Use valve 7."),
        ("Use valve 7.\n\n# Pumps\n\nThey hum.", 0, "Use valve 7."),
        (f"{LONG} Use valve 7.", 0, LONG),
        (f"Use valve 7.\n\n{LONG * 6}", 0, "Use valve 7."),
        # not a labelled line, which says all, but for a question
        ("Terms: 30 days net\n\nContact: Ms Roe", 0, "Terms: 30 days net"),
        ("联系人：张三\n\n电话：010-88886666\n\n邮编：100080", 1, "电话：010-88886666"),
        ("Ask: who calls?\n\nMs Roe does.", 0, "Ask: who calls?\n\nMs Roe does."),
        (
            "Note: it leaks. Use valve 7.\n\nThen wait.",
            0,
            "Note: it leaks. Use valve 7.\n\nThen wait.",
        ),
    ],
)
def test_a_short_sentence_comes_with_those_around_it(text: str, number: int, quote: str) -> None:
    run = extend(text, read_layout(text).parts[number])
    assert render_units(text, run, "[1]") == f"{quote} [1]"


def test_units_that_follow_each_other_are_one_quote() -> None:
    text = "One is here. Two is there.\n\nThree is gone.\n\n# Four\n\nFive is back."
    one, two, three, five = read_layout(text).parts
    assert is_adjacent(text, one, {0}, two, range(1, 2))
    assert not is_adjacent(text, one, {0}, three, range(2, 3))
    assert not is_adjacent(text, three, {2}, five, range(3, 4))
    assert render_units(text, {0, 1}, "[7]") == "One is here. Two is there. [7]"


def test_what_stands_between_units_is_left_out() -> None:
    text = "Run this:\n\n<div>\n\n```sh\nls\n```\n\n</div>\n"
    (part,) = read_layout(text).parts
    assert render_units(text, extend(text, part), "[1]") == "Run this:\n\n```sh\nls\n```\n\n[1]"


def test_pieces_of_a_long_block_of_code_stand_in_a_fence() -> None:
    blocks = ["\n".join(f"{name}{n} = {n}" for n in range(12)) for name in "abcd"]
    text = "Begin:\n\n~~~~python\n" + "\n\n".join(blocks) + "\n~~~~\n"
    first, second = read_layout(text).parts
    assert render_units(text, range(first.first, first.last + 1), "[1]") == (
        f"Begin:\n\n~~~~python\n{blocks[0]}\n\n{blocks[1]}\n~~~~\n\n[1]"
    )
    assert is_adjacent(text, first, {0, 1}, second, range(2, 3))


def shown(text: str, *numbers: int, section: str = "") -> str:
    """The quote of some parts of a chunk, as they are extended."""
    read = read_layout(text).parts
    known = {unit for number in numbers for unit in extend(text, read[number])}
    return render_units(text, known, "[1]", label_units(text, known, [section] if section else []))


def test_an_item_comes_with_what_introduces_it() -> None:
    items = "".join(f"* part {n} does {'more ' * 20}\n" for n in range(8))
    assert shown(f"The pump has:\n\n{items}* a valve\n* a lid", 8) == (
        "The pump has:\n\n- a valve\n- …\n\n[1]"  # not all that it has
    )
    # the rest of a list is left out only where the whole is long
    text = "It has:\n\n- a valve\n- a lid\n- a seat"
    assert complete_list(text, {0, 2}) == {0, 1, 2, 3}
    assert complete_list(text, {1, 2}) == {1, 2}  # without its introduction nothing is missing
    assert complete_list(f"The pump has:\n\n{items}", {0, 1, 2, 3, 4, 5}) == {0, 1, 2, 3, 4, 5}
    # the chunk begins with it, so it may be another one's neighbour
    assert shown("- lid\n  - seat", 1, section="Pumps") == "Pumps:\n\n- seat\n\n[1]"
    nested = "Parts:\n\n1. Case\n   - lid\n2. Valve\n   - seat"
    assert shown(nested, 2) == "1. Case\n   - lid\n\n[1]"
    # steps make no sense alone
    assert shown(nested, 1) == "Parts:\n\n1. Case\n   - lid\n2. Valve\n   - seat\n\n[1]"


def test_a_nested_list_is_quoted_whole() -> None:
    text = "Parts:\n\n- Case\n  - lid\n    - hinge\n  - wall\n- Valve\n  - seat"
    assert shown(text, 2) == "- Case\n  - lid\n    - hinge\n  - wall\n\n[1]"
    assert shown(text, 4) == "- Case\n  - lid\n    - hinge\n  - wall\n\n[1]"
    assert shown(text, 3) == "- lid\n  - hinge\n\n[1]"
    # but one that is too long by item
    walls = "".join(f"  - wall {n} {'thick ' * 20}\n" for n in range(6))
    assert shown(f"Parts:\n\n- Case\n  - lid\n{walls}- Valve", 1) == "- Case\n  - lid\n\n[1]"
    # and an item that introduces such a list with it
    kinds = "There are pumps.\n\n- Kinds are:\n  - small\n  - large\n- Colours are many."
    assert parts(kinds)[1] == ("list", "Kinds are:\n  - small\n  - large")
    assert shown(kinds, 1) == "- Kinds are:\n  - small\n  - large\n\n[1]"


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("- Fix the lid.", "Pumps:\n\n- Fix the lid.\n\n[1]"),
        ("### Parts { #parts }\n\n- lid", "Pumps, Parts:\n\n- lid\n\n[1]"),
        # a section that was too short to be a chunk
        ("## 1.2 of May?\n\n### New\n\n- lid", "1.2 of May, New:\n\n- lid\n\n[1]"),
        ("## 水泵\n\n```sh\nls\n```", "水泵：\n\n```sh\nls\n```\n\n[1]"),
        ("Valves\n------\n\n- lid", "Valves:\n\n- lid\n\n[1]"),
        ("### 펌프 설치\n\n- lid", "Pumps, 펌프 설치:\n\n- lid\n\n[1]"),
        # the full stop of a number would end a sentence that has no mark
        ("### 5.2.1. 水泵\n\n- lid", "Pumps，5.2.1 水泵：\n\n- lid\n\n[1]"),
        # a sentence stands by itself, but not one of a version
        ("## Valves\n\nThe lid is new.", "The lid is new. [1]"),
        ("## 1.2.3\n\nThe lid is new.", "1.2.3:\n\nThe lid is new. [1]"),
        ("## 1.2.3 (May)\n\nThe lid is new.", "1.2.3 (May):\n\nThe lid is new. [1]"),
        # nor is the number of a section one
        ("## 1.2.3 Valves\n\nThe lid is new.", "The lid is new. [1]"),
        ("## 1.2 水泵\n\n### 1.2.3 阀\n\nThe lid is new.", "The lid is new. [1]"),
        # an answer comes under its question, unless that is one word
        ("### Is it new?\n\nThe lid is.", "Pumps, Is it new:\n\nThe lid is. [1]"),
        ("### 盖子是新的吗？\n\n是。", "Pumps，盖子是新的吗：\n\n是。 [1]"),
        ("### Why?\n\nThe lid is new.", "The lid is new. [1]"),
    ],
)
def test_items_and_code_come_under_the_name_of_their_section(text: str, quote: str) -> None:
    assert shown(text, 0, section="Pumps") == quote


@pytest.mark.parametrize(
    ("left_out", "named"),
    [
        ("---", " …"),
        ("{* ../../src/a.py hl[3] *}", " → `src/a.py`"),
        ("```js\n{!> ../../src/a.js!}\n```", " → `src/a.js`"),
        ('--8<-- "src/a.py"', " → `src/a.py`"),
        ("<<< @/src/a.js{2,3}", " → `src/a.js`"),
        (':::code language="sh" source="~/src/a.sh" range="1-2":::', " → `src/a.sh`"),
        ('{{% code_sample file="src/a.yaml" %}}', " → `src/a.yaml`"),
        ('{% include "a/b.md" %}', " → `a/b.md`"),
    ],
)
def test_an_introduction_of_what_is_left_out_says_so(left_out: str, named: str) -> None:
    text = f"Set `level` to 3:\n\n{left_out}"
    assert shown(text, 0) == f"Set `level` to 3:{named} [1]"
    assert shown(f"{text}\n\nIt drains then.", 0, 1) == (
        f"Set `level` to 3:{named}\n\nIt drains then. [1]"
    )


def test_the_kind_of_an_admonition_and_the_title_of_a_tab_are_above_their_sentences() -> None:
    text = 'It drains.\n\n!!! warning\n    It is hot.\n\n=== "Linux"\n    Call it.\n'
    assert shown(text, 0, 1) == "It drains.\n\nWarning:\n\nIt is hot. [1]"
    assert label_units(text, [2], ["Pumps"]) == "Linux:"
    # asked for in English or Chinese
    assert [part.asked for part in read_layout(text).parts] == ["", "Warning\n警告", "Linux"]


def test_a_short_sentence_is_not_extended_into_a_box() -> None:
    text = "It drains.\n\n> [!TIP]\n> It is hot.\n>\n> Wear gloves.\n\nIt stops."
    first, hot, _, _ = read_layout(text).parts
    assert list(extend(text, first)) == [0]
    assert list(extend(text, hot)) == [0, 1, 2, 3]  # "It" refers to what is above the box


def test_a_sentence_comes_with_the_code_that_it_explains() -> None:
    code = "```sh\npump --stop\n```"
    said = (
        "Stops all of the pumps at once, and empties each of their tanks into the river below it."
    )
    assert shown(f"{code}\n\n{said}", 1) == f"{code}\n\n{said} [1]"
    # code not with the introduction of what is left out
    assert shown(f"{code}\n\nIt prints:\n\n{{* a.txt *}}", 0) == f"{code}\n\n[1]"
    # not with code that has an introduction of its own
    assert shown(f"Call it.\n\n{code}\n\n{said}", 2) == f"{said} [1]"


def test_a_row_with_a_link_and_few_blanks_is_a_part() -> None:
    row = "|[语义解析](a.md) |parse_time|给定文本，解析其时间语义 |"
    assert parts(f"|功能|函数|描述|\n|--|--|--|\n{row}") == [("row", row)]


def test_rows_without_their_header_stand_under_an_empty_one() -> None:
    text = "| [lid](a.md) | 3 |\n| seat | 4 |"
    assert render_rows(text, {0, 1}, "[1]") == (
        "|  |  |\n| --- | --- |\n| lid | 3 |\n| seat | 4 |\n\n[1]"
    )


def test_a_sentence_that_only_points_elsewhere_is_no_part_of_a_quote() -> None:
    text = "Lids are closed by hand. See Closing lids.\n\nIt is usual that a lid has a valve, too."
    assert shown(text, 2).startswith("It is usual")
    assert shown(text.replace("See Closing lids.", "They have hinges."), 2).startswith("Lids")
    assert shown("盖子用手关闭。参见第 9.6.2 节。\n\n它有一个阀。", 2).startswith("它")


def test_a_link_alone_below_a_heading_is_a_part() -> None:
    assert parts("It turns.\n\n## License\n\n[MIT](LICENSE)\n\n## Links\n\n[a](b)\n\n[c](d)") == [
        ("sentence", "It turns."),
        ("sentence", "[MIT](LICENSE)"),
    ]


def test_a_paragraph_of_one_sentence_comes_with_the_code_that_shows_it() -> None:
    text = "Wrap the loop.\n\n```py\nfor i in bar(x): ...\n```\n\nIt draws."
    assert shown(text, 0) == "Wrap the loop.\n\n```py\nfor i in bar(x): ...\n```\n\n[1]"
    # not with long code, and not where it ends a longer paragraph
    assert shown(text.replace("...", "x" * 600), 0) == "Wrap the loop. [1]"
    assert shown(f"It is {'very ' * 25}old. {text}", 1).endswith("Wrap the loop. [1]")


def test_pieces_of_code_in_a_quoted_block_are_without_its_marks() -> None:
    lines = "\n".join(f"> a = {n}" for n in range(20))
    text = f"> ```\n{lines}\n>\n{lines}\n> ```"
    assert ">" not in render_units(text, [1], "[1]")


def test_chinese_marks_are_introduced_nested_and_written_as_a_list() -> None:
    text = (
        "第六条　迟到按下列规定处理：\n\n（一）扣款：\n\n"
        "1. 十分钟以内，不扣；\n2. 以上，扣五十元；\n\n（二）旷工，除名。"
    )
    layout = read_layout(text)
    whole = next(part for part in layout.parts if part.kind == "list")
    assert render_units(text, range(whole.first, whole.last + 1), "[1]") == (
        "第六条　迟到按下列规定处理：\n\n- （一）扣款：\n\n   1. 十分钟以内，不扣；\n"
        "   2. 以上，扣五十元；\n\n- （二）旷工，除名。\n\n[1]"
    )
    nested = next(
        part
        for part in layout.parts
        if "十分钟" in text[part.start : part.end] and part.kind == "item"
    )
    assert list(extend(text, nested)) == [1, 2, 3]


def test_a_clause_is_not_lengthened_by_the_next_one() -> None:
    text = "第十二条　陪产假15天。\n\n第十三条　丧假3天。\n\n问：几点发车？\n\n答：八点。"
    parts = read_layout(text).parts
    assert [list(extend(text, part)) for part in parts] == [[0], [1], [2]]
    assert label_units(text, [2], "") == "几点发车："
    emphasised = "## <b>Q：几点<i>发车</i>？</b>\n\n- 早上八点。\n- 晚上六点。"
    assert label_units(emphasised, [0, 1], "") == "几点发车："


def test_a_heading_that_each_release_has_is_named_with_its_release() -> None:
    item = "- The valve no longer drips."
    assert label_units(item, [0], ["Notes", "1.2.0 (2026-01-26)", "Fixed"]) == (
        "1.2.0 (2026-01-26), Fixed:"
    )
    assert label_units(item, [0], ["Notes", "1.2 Pumps", "Valves"]) == "Valves:"


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (
            ["升级", "软件包很旧。看看内核！为什么会这样？"],
            "升级，软件包很旧，看看内核，为什么会这样：",
        ),
        (["2. My screen is black. What now?"], "2 My screen is black, What now:"),
        (["See [the guide. Part two](guide.md)"], "See the guide, Part two:"),
    ],
)
def test_a_heading_of_several_sentences_is_one_label(names: list[str], label: str) -> None:
    """Each sentence would otherwise be a claim of the answer, and get a mark of its own."""
    assert format_label(names) == label


@pytest.mark.parametrize(
    "formality",
    [
        "*inherited from the* `Can.open()` *method of* `Can`",
        "🔬 This is a nightly-only experimental API. (`jar_open` [#7](https://e.org/7))",
        "Bases: `open.Can`",
        "在 3.5 版本加入.",
        "Parameters:\n\n- **by** – the tool",
    ],
)
def test_what_tools_write_before_the_text_explains_nothing(formality: str) -> None:
    text = f"**`Jar.open(by=None)`**\n\n{formality}\n\nTakes off the lid."
    asked = [text[it.start : it.end] for it in read_layout(text).parts if it.asked]
    assert asked == ["Takes off the lid."]


def test_the_fields_of_a_setting_come_with_what_explains_it() -> None:
    said = (
        "The litres that a pump moves in one hour before the valve at its end shuts and stops it."
    )
    fields = "Default: `16`\n\nAdded in version 2.1.\n\nScope: pumps"
    assert shown(f"### `max_litres`\n\n{fields}\n\n{said}", 3) == (
        f"`max_litres`:\n\n{fields}\n\n{said} [1]"
    )
    items = "- Default: 16\n- Type: Number"
    assert shown(f"### `max_litres`\n\n{items}\n\n{said}", 3).endswith(f"{items}\n\n{said} [1]")
    # what explains it, not what is said further below, nor of a topic
    more = (
        "The value is also shown on the panel of each pump, in red digits that are two inches tall."
    )
    assert shown(f"### `max_litres`\n\nDefault: 16\n\n{said}\n\n{more}", 2) == (
        f"`max_litres`:\n\n{more} [1]"
    )
    assert shown(f"### Litres\n\nDefault: 16\n\n{said}", 1) == f"{said} [1]"
