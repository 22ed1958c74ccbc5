"""Native locators of chunks."""

from __future__ import annotations

import pytest

from rag_platform.chunkers.chunks import slice_fields
from rag_platform.chunkers.source_locations import Places, merge_locators
from rag_platform.contract.markdown_views import find_printed_pages
from rag_platform.ir import Block, Edit, Facts, ParseSummary
from rag_platform.normalisation.edits import apply_edits


@pytest.mark.parametrize(
    ("locators", "merged"),
    [
        ([], ""),
        (["sheet=Q1;rows=3-9;head=1", "sheet=Q1;rows=10-20;head=1"], "sheet=Q1;rows=3-20"),
        (["sheet=Q1", "sheet=Q1;rows=4"], "sheet=Q1;rows=4"),
        (["sheet=Q1"], "sheet=Q1"),
        (
            ["sheet=Q1", "sheet=Q1;rows=4", "sheet=Q2", "sheet=Q2;rows=1-2"],
            "sheet=Q1;rows=4, sheet=Q2;rows=1-2",
        ),
        ([f"sheet=S{n};rows=1" for n in range(6)], "sheet=S0;rows=1 to sheet=S5;rows=1"),
        (["rows=2-3;head=1", "rows=4;head=1"], "rows=2-4"),
        (["body/tbl[2]/tr[3]", "body/tbl[2]/tr[4]", "body/tbl[2]/tr[9]"], "body/tbl[2]/tr[3-9]"),
        (["body/p[3]", "body/p[5-7]"], "body/p[3-7]"),
        (["body/p[3]", "body/tbl[1]/tr[1]", "body/tbl[1]/tr[2]"], "body/p[3] to body/tbl[1]/tr[2]"),
        (["footnotes/2"], "footnotes/2"),
        (["xpath=/html/body/p[1]", "xpath=/html/body/p[4]"], "xpath=/html/body/p[1-4]"),
    ],
)
def test_the_locators_of_a_chunk_become_one(locators, merged):
    assert merge_locators(locators) == merged


def test_lines_and_rows_of_a_file_that_was_rewritten_come_from_its_blocks():
    text = "| a |\n| --- |\n| 1 |\n\n| a |\n| --- |\n| 2 |\n"
    blocks = (
        Block(0, "table", 0, 20, line_start=2, line_end=4, locator="rows=2;head=1"),
        Block(1, "table", 22, 42, line_start=5, line_end=5, locator="rows=3;head=1"),
    )
    summary = ParseSummary("csv", "1", "csv", "1", "tables", "", len(text))
    places = Places(Facts(text, blocks, (), summary), apply_edits(text, ()))
    assert places.of(0, 42) | {"page_start": None} == {
        "page_start": None,
        "page_end": None,
        "line_start": 2,
        "line_end": 5,
        "byte_start": None,
        "byte_end": None,
        "locator": "rows=2-3",
    }
    assert places.of(22, 42)["line_start"] == 5 and places.of(22, 42)["locator"] == "rows=3"


def test_a_chunk_of_other_lines_says_where_those_of_the_file_begin() -> None:
    text = "1\nGood morning.\n\n2\nIt opens\nat nine.\n"
    edits = [Edit(0, 2, "", "r"), Edit(15, 19, " ", "r"), Edit(27, 28, " ", "r")]
    normalised = apply_edits(text, edits)
    assert normalised.text == "Good morning. It opens at nine.\n"
    blocks = (Block(0, "paragraph", 0, 36, byte_start=0, byte_end=36),)
    summary = ParseSummary("text", "1", "python", "1", "p", "", len(text))
    places = Places(Facts(text, blocks, (), summary), normalised)
    found = places.of(2, 36)
    assert (found["line_start"], found["line_end"], found["locator"]) == (
        2,
        6,
        "lines=4:13,5:14,6:23",
    )
    assert places.of(2, 15)["locator"] == ""


def test_lines_are_counted_from_where_the_text_of_the_chunk_begins() -> None:
    """Inside what is written before its first word."""
    text = "a\n# b\nc = 1\n"
    edits = [Edit(1, 4, "\n\n## `c`\n\n", "r"), Edit(5, 6, "\n\n", "r")]
    normalised = apply_edits(text, edits)
    assert normalised.text == "a\n\n## `c`\n\nb\n\nc = 1\n"
    blocks = (Block(0, "paragraph", 0, 11, byte_start=0, byte_end=11),)
    summary = ParseSummary("text", "1", "python", "1", "p", "", len(text))
    found = slice_fields(normalised, Places(Facts(text, blocks, (), summary), normalised), 3, 19)
    assert found["chunk_text"].index("c = 1") == 11
    assert (found["line_start"], found["locator"]) == (1, "lines=2:0,3:11")


def test_a_chunk_over_pages_says_where_in_its_text_they_begin() -> None:
    text = "One two.\n\n7\n\nManual\n\nThree four.\n\nFive."
    spans = ((0, 8, 7), (10, 11, 7), (13, 19, 8), (21, 32, 8), (34, 39, 9))
    blocks = tuple(
        Block(number, "paragraph", start, end, page=page)
        for number, (start, end, page) in enumerate(spans)
    )
    summary = ParseSummary("pdf", "1", "pymupdf", "1", "layout", "", len(text))
    without_margins = apply_edits(text, [Edit(8, 19, "", "header")])
    assert without_margins.text == "One two.\n\nThree four.\n\nFive."
    places = Places(Facts(text, blocks, (), summary), without_margins)
    assert places.of(0, 39)["locator"] == "page=8;char=8, page=9;char=23"
    assert places.of(4, 32)["locator"] == "page=8;char=4"
    assert places.of(21, 32)["locator"] == ""


def test_a_chunk_on_pages_says_which_numbers_are_printed_on_them() -> None:
    blocks = tuple(
        Block(at, "paragraph", start, start + 4, page=at + 1) for at, start in enumerate((0, 6, 12))
    )
    text = "One.\n\nTwo.\n\nTen."
    labels = ("i; i", "2", "A-1")
    summary = ParseSummary("pdf", "1", "e", "1", "fast", "", len(text), page_labels=labels)
    places = Places(Facts(text, blocks, (), summary), apply_edits(text, []))
    assert places.of(0, 4)["locator"] == "page=1;char=0;printed=i%3B i"
    assert places.of(7, 10)["locator"] == ""
    assert places.of(7, 16)["locator"] == "page=3;char=5;printed=A-1"
    whole = places.of(1, 16)["locator"]
    assert whole == "page=1;char=0;printed=i%3B i, page=2;char=5, page=3;char=11;printed=A-1"
    assert find_printed_pages([1, 3], whole) == ["i; i", "A-1"]
    assert find_printed_pages([2, 2], whole) == ["2", "2"]
