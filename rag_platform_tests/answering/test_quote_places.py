"""The section and the lines of what an answer quotes, inside the passage that it cites."""

import dataclasses

import pytest

from rag_platform.answering.quote_places import narrow
from rag_platform.ir import Citation

TEXT = """# Agent

## Setup

Run the script first.

## Ports

The agent listens on port 8443.

### Metrics

Metrics are on port 9100.

```sh
# restart
systemctl restart agent
```"""


def cite(
    quotes: tuple[str, ...],
    *,
    text: str = TEXT,
    section: str = "Agent / Setup",
    lines: tuple[int, int] | None = (11, 28),
    edited: tuple[str, ...] = (),
) -> tuple[str, tuple[int, int] | None]:
    spans = tuple((text.index(quote), text.index(quote) + len(quote)) for quote in quotes)
    found = narrow(
        Citation(
            1,
            "chk_1",
            "d",
            "n.d@1",
            "agent.md",
            section,
            text,
            0.9,
            line_range=lines,
            edited_from=edited,
            spans=spans,
        )
    )
    assert (found.section_path, found.line_range, found.text) == (section, lines, text)
    return found.quote_section, found.quote_lines


@pytest.mark.parametrize(
    ("quotes", "place"),
    [
        (("Run the script first.",), ("", (15, 15))),
        (("The agent listens on port 8443.",), ("Agent / Ports", (19, 19))),
        (("Metrics are on port 9100.",), ("Agent / Ports / Metrics", (23, 23))),
        # a comment in code is no heading
        (("systemctl restart agent\n```",), ("Agent / Ports / Metrics", (27, 28))),
        # what two quotes have in common
        (("port 8443", "port 9100"), ("Agent / Ports", (19, 23))),
        (("Run the script first.", "port 9100"), ("Agent", (15, 23))),
        ((), ("", None)),
    ],
)
def test_a_quote_is_placed_under_its_own_heading(
    quotes: tuple[str, ...], place: tuple[str, tuple[int, int] | None]
) -> None:
    assert cite(quotes) == place


@pytest.mark.parametrize(
    ("text", "section", "place"),
    [
        # the passage begins in the middle of its section
        ("It ends here.\n\n## Next\n\nAsk.", "Guide / First", "Guide / Next"),
        ("It ends here.\n\n### Inner\n\nAsk.", "Guide / First", "Guide / First / Inner"),
        ("It ends here.\n\n### Inner\n\nAsk.", "First", "First / Inner"),
        # beside or in it: both may be, so only the heading itself is named
        ("It ends here.\n\n## Next\n\nAsk.", "First", "Next"),
        # no title joins a section
        ("It ends here.\n\n# make all\n\nAsk.", "Guide / First", ""),
        ("## What is `it`? { #it }\n\nAsk.", "Guide / What is it?", ""),
        ("Intro.\n\n**Note**\n\nAsk.", "Guide / First", ""),
        ("## Next\n\nAsk.", "__preamble__", "Next"),
        ("Next\n----\n\nAsk.", "Guide / First", "Guide / Next"),
    ],
)
def test_the_path_goes_on_from_that_of_the_passage(text: str, section: str, place: str) -> None:
    assert cite(("Ask.",), text=text, section=section, lines=None) == (place, None)


def test_lines_are_told_only_where_the_text_has_those_of_the_file() -> None:
    # the file has two lines more: a comment, which the text leaves out
    assert cite(("port 9100",), lines=(11, 30)) == ("Agent / Ports / Metrics", None)


def test_a_passage_of_one_line_has_no_narrower_place() -> None:
    assert cite(("port",), text="On port 1.", lines=(4, 4)) == ("", None)


def test_what_was_edited_by_hand_stands_nowhere_in_the_file() -> None:
    assert cite(("port 9100",), edited=("chk_0",)) == ("", None)


def row_of(quote: str, *, text: str, locator: str, lines: tuple[int, int] | None = None):
    """(locator, lines) of a quote in a passage of a table."""
    start = text.index(quote)
    cited = Citation(1, "chk_1", "d", "n.d@1", "a.csv", "Sheet", text, 0.9, line_range=lines)
    found = narrow(
        dataclasses.replace(cited, locator=locator, spans=((start, start + len(quote)),))
    )
    return found.quote_locator, found.quote_lines


SHEET = """| code | weight |
| --- | ---: |
| Q1 | 4 kg |
| Q2 | 7 kg |
| Q3 | 9 kg |"""


def test_a_row_of_a_sheet_is_named() -> None:
    assert row_of("| Q2 | 7 kg |", text=SHEET, locator="sheet=S;rows=8-10") == (
        "sheet=S;rows=9",
        None,
    )
    # the header is a row of the range
    assert row_of("| Q1 | 4 kg |", text=SHEET, locator="rows=1-4", lines=(1, 4)) == (
        "rows=2",
        (2, 2),
    )
    assert row_of("| Q1 | 4 kg |\n| Q2", text=SHEET, locator="body/tbl[1]/tr[3-5]") == (
        "body/tbl[1]/tr[3-4]",
        None,
    )
    # a record over two lines
    assert row_of("| Q3 | 9 kg |", text=SHEET, locator="rows=8-10", lines=(8, 11)) == (
        "rows=10",
        None,
    )


@pytest.mark.parametrize(
    ("text", "locator"),
    [
        (SHEET, "rows=8-20"),  # rows were left out
        (SHEET, "body/p[3] to body/tbl[1]/tr[2-4]"),
        (f"Parcels\n\n{SHEET}", "rows=8-10"),
        (SHEET, "rows=8"),
    ],
)
def test_the_place_of_the_passage_stays_where_its_rows_cannot_be_told(
    text: str, locator: str
) -> None:
    assert row_of("| Q2 | 7 kg |", text=text, locator=locator) == ("", None)
