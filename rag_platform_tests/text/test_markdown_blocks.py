from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.answering.citations import remove_foreign_markup
from rag_platform.text.markdown_blocks import ITEM, code_spans, heading_text, open_fence, structure


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("## Title ##", "Title"),
        ("  # Title", "Title"),
        ("# What is C#", "What is C#"),
        ("# C# #", "C#"),
        ("# ", ""),
        ("###", "###"),
        ("#tag", "#tag"),
        ("plain #", "plain #"),
    ],
)
def test_heading_text(line: str, text: str) -> None:
    assert heading_text(line) == text


@pytest.mark.parametrize(
    "line",
    [
        "- a",
        "  * a",
        "• a",
        "1. a",
        "12) a",
        "3、a",
        "一、 a",
        "（二）a",
        "(三) a",
        "1.　a",
        "2．甲",
        "（3）甲",
        "④甲",
    ],
)
def test_a_line_that_begins_an_item(line: str) -> None:
    assert ITEM.match(line)


@pytest.mark.parametrize("line", ["-a", "3.5 mm", "- ", "12", "a - b", "**bold**"])
def test_a_line_that_begins_none(line: str) -> None:
    assert not ITEM.match(line)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", []),
        ("a `b` c ``d`e`` f", ["`b`", "``d`e``"]),
        ("a\n```\nx `y` z\n```\n`w`", ["```\nx `y` z\n```\n", "`w`"]),
        ("> ~~~\n> x\n> ~~~\nend", ["> ~~~\n> x\n> ~~~\n"]),
        ("```\nopen", ["```\nopen"]),
        ("no ``` fence within a line", []),
        # tildes below a line of reStructuredText make it a heading
        ("Pumps\n~~~~~\nThey turn.\n\nSafety valves\n~~~~~~~~~~~~~\nThey open.", []),
        ("They turn on\n~~~~~\npump()\n~~~~~\nend", ["~~~~~\npump()\n~~~~~\n"]),
        ("End.\n\n~~~~~~\npump()\n~~~~~~\nend", ["~~~~~~\npump()\n~~~~~~\n"]),
    ],
)
def test_code(text: str, code: list[str]) -> None:
    assert [text[start:end] for start, end in code_spans(text)] == code


def test_the_fence_that_a_text_leaves_open() -> None:
    assert open_fence("They turn.\n\n~~~\npump()") == "~~~"
    assert open_fence("Pumps\n~~~~~\n\nThey turn.") == ""


def test_no_link_hides_behind_a_mark_that_opens_no_fence() -> None:
    text = "See ``` [here](http://evil.example)"
    assert remove_foreign_markup(text, "")[0] == "See ``` here"


@given(st.text(alphabet="a`~\n -|>#1.", max_size=60))
def test_runs_and_code_are_apart_and_in_order(text: str) -> None:
    for spans in ([(run.start, run.end) for run in structure(text)], code_spans(text)):
        done = 0
        for start, end in spans:
            assert done <= start < end <= len(text)
            done = end
