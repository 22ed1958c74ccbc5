"""A line over the limit is cut between clauses or words, by every chunker: never inside a heading,
a link, code, a URL, a word.
"""

from __future__ import annotations

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from rag_platform.chunkers.recursive import Recursive
from rag_platform.protocols import Chunker
from rag_platform.registry import PROVIDERS, make_provider
from rag_platform.text.cut_points import inline_units
from rag_platform_tests.documents.test_cutting import CHUNKERS

# (text, whether it is one unit): units are known by construction, not by a pattern; each fits the
# smallest chunk with a heading before it.
PARTS = [
    ("\n\n# 第一章 总则\n\n", True),
    ("\n\n### State of it\n\n", True),
    ("\n\n## Q and A\n\n", True),
    ("[two words](a/b.md)", True),
    ("![图 一](<p q.png>)", True),
    ("[f(x) y](u/w_(v))", True),
    ("`a; b, c`", True),
    ("``x ` y. z``", True),
    ("https://a.io/b?c=d.e,f", True),
    ("<https://a.io/x>", True),
    ("<br class='x y'>", True),
    ("word", True),
    ("longer-word's", True),
    ("管理办法", False),
    ("为了规范公司的工作", False),
    ("，", False),
    ("。", False),
    ("、", False),
    ("👩‍💻", True),
    ("e\u0301tude", True),
    ("각", True),
    ("क्षि", True),
    ("🇨🇳", True),
]
JOINTS = st.sampled_from([" ", " ", ", ", "; ", "，", " 的工作", "，并按照规定办理"])
LINES = st.lists(st.tuples(st.sampled_from(PARTS), JOINTS), min_size=1, max_size=60)
LINK, HEADING = ("[two words](a/b.md)", True), ("\n\n# 第一章 总则\n\n", True)
# fits only without what windows share
BEHIND_OVERLAP = [(part, " ") for part in (LINK, HEADING, ("，", False), HEADING, HEADING, LINK)]


@given(parts=LINES)
@example(parts=BEHIND_OVERLAP)
@pytest.mark.parametrize("name", sorted(PROVIDERS["chunker"]))
def test_no_unit_is_cut_and_no_heading_left_behind(
    name: str, parts: list[tuple[tuple[str, bool], str]]
) -> None:
    text, units = "", []
    for (part, whole), joint in parts:
        if whole:
            start = len(text) + len(part) - len(part.lstrip())
            units.append((start, len(text) + len(part.rstrip())))
        text += part if part.endswith("\n") else part + joint
    clusters = [match.span() for match in regex.finditer(r"\X", text)]
    for start, end in make_provider("chunker", name, CHUNKERS[name][0]).spans(text):
        for low, high in [*units, *clusters]:
            assert not low < start < high and not low < end < high, (
                text[low:high],
                text[start:end],
            )
        # only before another heading, or where the text ends
        if text[start:end].rpartition("\n")[2].startswith("#"):
            assert text[end:].lstrip()[:1] in ("#", ""), text[start:end]


CLAUSES = (
    "为了规范公司的管理工作，提高各个部门的办事效率，保障全体员工的合法权益，"
    "根据国家有关法律法规的规定，结合本公司的实际情况，"
)
BARE = (
    "为了规范公司的管理工作提高各个部门的办事效率保障全体员工的合法权益根据国家有关法律法规的规定"
    "结合本公司的实际情况"
)


def pieces(chunker: Chunker, text: str) -> list[str]:
    return [text[start:end] for start, end in chunker.spans(text)]


@pytest.mark.parametrize("filler", range(790, 812))
def test_a_heading_behind_a_long_line_keeps_its_level(filler: int) -> None:
    text = f"# Guide\n\n{'a,' * (filler // 2)}\n### State\n\n{'more words ' * 60}"
    found = pieces(Recursive(chunk_size=800, chunk_overlap=0, max_tokens=9999), text)
    assert found[0].startswith("# Guide\n\na,a,a,")
    assert "### State\n\nmore words" in found[-1]


def test_a_paragraph_of_one_long_line_ends_a_chunk() -> None:
    first, second = "one sentence. " * 32 + "end.", "second paragraph " * 20
    assert pieces(Recursive(chunk_size=500, chunk_overlap=0), f"# T\n\n{first}\n\n{second}") == [
        f"# T\n\n{first}",
        second.strip(),
    ]


def test_chinese_is_cut_behind_clauses_and_a_heading_stays_with_its_text() -> None:
    found = pieces(Recursive(chunk_size=60, chunk_overlap=0), f"# 第一章 总则\n\n{CLAUSES * 3}")
    assert found[0].startswith("# 第一章 总则\n\n为了规范公司的管理工作，")
    assert all(piece.endswith("，") for piece in found)


def test_chinese_without_marks_is_cut_between_words() -> None:
    assert pieces(Recursive(chunk_size=40, chunk_overlap=0), f"# 第一章 总则\n\n{BARE * 2}") == [
        "# 第一章 总则\n\n为了规范公司的管理工作提高各个部门的办事效率保障全体员工的",
        "合法权益根据国家有关法律法规的规定结合本公司的实际情况为了规范公司的管理工作提高",
        "各个部门的办事效率保障全体员工的合法权益",
        "根据国家有关法律法规的规定结合本公司的实际情况",
    ]


def test_a_heading_stays_with_the_code_and_the_question_below_it() -> None:
    code = "```\n" + "value = 1\n" * 20 + "```"
    assert pieces(Recursive(chunk_size=60, chunk_overlap=0), f"words\n\n## Example\n\n{code}") == [
        "words",
        f"## Example\n\n{code}",
    ]
    assert pieces(make_provider("chunker", "qa"), "# FAQ\n\nQ: Why?\nA: So.\n") == [
        "# FAQ\n\nQ: Why?\nA: So."
    ]
    assert pieces(
        Recursive(chunk_size=50, chunk_overlap=0),
        "## What is it all about?\n\nIt is about words. And more.",
    )[0].endswith("about words.")


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("# A b\ntext `x y` z", ["# A b", "`x y`"]),
        ('see [a b](c "t u") and ![d e](<f g>).', ['[a b](c "t u")', "![d e](<f g>)"]),
        ("[![alt x](i.png)](u) or [a [b] c](u)", ["[![alt x](i.png)](u)", "[a [b] c](u)"]),
        (
            "go to https://x.io/a?b=1，然后 <a href='b c'>d",
            ["https://x.io/a?b=1", "<a href='b c'>"],
        ),
        ("2 < 3 and a [b] (c) ` d", []),
    ],
)
def test_units_of_a_line(text: str, units: list[str]) -> None:
    assert [text[start:end] for start, end in inline_units(text, lambda start, end: True)] == units


def test_a_unit_that_no_chunk_can_hold_is_cut_where_it_harms_least() -> None:
    url = "https://example.org/" + "/".join(f"part{i:02}" for i in range(20))
    found = pieces(Recursive(chunk_size=60, chunk_overlap=0), f"See {url} for more.")
    assert found[0] == "See" and "".join(found[1:]) == f"{url} for more."
    assert all(piece.endswith("/") for piece in found[1:-1])
    link = f"[{'text of the link ' * 8}](https://example.org/a/b)"
    found = pieces(Recursive(chunk_size=60, chunk_overlap=0), f"See {link} for more.")
    assert any("](https://example.org/a/b)" in piece for piece in found)


def test_units_of_odd_text_take_time_that_grows_with_it() -> None:
    for odd in ("[", "[a](", "`", "``a`", "<a ", "# [", "![[a]", "https://", "](", '[a]( "b'):
        inline_units(odd * 20_000, lambda start, end: end - start < 800)
