"""Narrows the location of a citation (section, pages, lines, rows) from its whole passage to the
quoted spans.
"""

from __future__ import annotations

import dataclasses
import re
from itertools import takewhile
from typing import NamedTuple

from rag_platform.answering.quotable import find_path, read_layout
from rag_platform.ir import JOINT, Citation, split_path

# `sheet=Q1;rows=3-9;head=1`, `body/tbl[2]/tr[3-9]`
_ROWS = re.compile(
    r"((?:sheet=[^;]*;)?(?:columns=[^;]*;)?rows=|[^ ]*/tr\[)(\d+)-(\d+)((?:;head=[\d-]+)?|\])"
)
_PAGE = re.compile(r"page=(\d+);char=(\d+)")  # the position in a passage at which a page begins
# the position in a passage at which a line of the file begins, in `lines=14:53,17:98`
_FILE_LINE = re.compile(r"(?<=[=,])(\d+):(\d+)")
_LINE = re.compile(r"[^\n]+")
_RULE = re.compile(r"\|(?: ?:?-{3,}:? ?\|)+$")


def narrow(citation: Citation) -> Citation:
    """The citation with the section, pages, lines and rows of its spans, where these differ from
    those of its passage.
    """
    if not citation.spans or citation.edited_from:
        return citation
    section, lines, locator = _find_section(citation), _find_lines(citation), citation.locator
    pages = _find_pages(citation)
    if rows := _find_rows(citation):
        locator = rows.locator
        # rows are lines, as in most CSV files
        if citation.line_range and citation.line_range[1] - citation.line_range[0] == rows.extent:
            first = citation.line_range[0]
            lines = first + rows.first, first + rows.last
    return dataclasses.replace(
        citation,
        quote_section="" if section == citation.section_path else section,
        quote_pages=None if pages == citation.page_range else pages,
        quote_lines=None if lines == citation.line_range else lines,
        quote_locator="" if locator == citation.locator else locator,
    )


def _find_section(citation: Citation) -> str:
    """The section path that all spans have in common; that of the passage where there is none.

    >>> text = "## Setup\\n\\nRun it.\\n\\n## Ports\\n\\nIt listens on 8443."
    >>> shown = Citation(1, "", "", "", "", "Guide / Setup", text, 1.0, spans=((28, 47),))
    >>> _find_section(shown)
    'Guide / Ports'
    """
    own = split_path(citation.section_path)
    quoted = [
        unit
        for unit in read_layout(citation.text).units
        if any(start < unit.end and unit.start < end for start, end in citation.spans)
    ]
    paths = [find_path(own, unit.headings) for unit in quoted]
    shared = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    return JOINT.join(names[0] for names in shared) or citation.section_path


def _find_pages(citation: Citation) -> tuple[int, int] | None:
    """The pages of the spans; those of the passage where the starts of its pages are not known.

    >>> text, place = "One two. Three four.", "page=8;char=9"
    >>> shown = Citation(1, "", "", "", "", "", text, 1.0, (7, 8), locator=place, spans=((9, 20),))
    >>> _find_pages(shown)
    (8, 8)
    """
    begins = [(int(page), int(char)) for page, char in _PAGE.findall(citation.locator)]
    if citation.page_range is None or not begins:
        return citation.page_range
    first = last = citation.page_range[0]
    start, end = min(s for s, _ in citation.spans), max(e for _, e in citation.spans)
    for page, char in begins:
        first, last = page if char <= start else first, page if char < end else last
    return first, last


def _find_lines(citation: Citation) -> tuple[int, int] | None:
    """The lines of the spans in the file; those of the passage where its text has other lines and
    its locator does not tell where those of the file begin.

    >>> text, place = "Good morning. It opens at nine.", "lines=7:14"
    >>> shown = Citation(1, "", "", "", "", "", text, 1.0, locator=place, spans=((14, 31),))
    >>> _find_lines(dataclasses.replace(shown, line_range=(3, 7)))
    (7, 7)
    """
    if citation.line_range is None:
        return None
    first, last = citation.line_range
    text = citation.text
    start, end = min(s for s, _ in citation.spans), max(e for _, e in citation.spans)
    if citation.locator.startswith("lines="):
        found = [(int(line), int(char)) for line, char in _FILE_LINE.findall(citation.locator)]
        return (
            max((line for line, char in found if char <= start), default=first),
            max((line for line, char in found if char < end), default=first),
        )
    if last - first != text.count("\n"):
        return citation.line_range
    return first + text.count("\n", 0, start), first + text.count("\n", 0, max(start, end - 1))


class _Rows(NamedTuple):
    """Quoted rows of a passage of `extent` + 1 rows, counted from 0, and their locator."""

    first: int
    last: int
    extent: int
    locator: str


def _find_rows(citation: Citation) -> _Rows | None:
    """The table rows of the spans; None where the passage is not one table with a line for each row
    of its locator.

    >>> text = "| a | b |\\n| --- | --- |\\n| 1 | 2 |\\n| 3 | 4 |"
    >>> shown = Citation(1, "", "", "", "", "", text, 1.0, locator="rows=8-9", spans=((34, 43),))
    >>> _find_rows(shown)
    _Rows(first=1, last=1, extent=1, locator='rows=9')
    """
    found = _ROWS.fullmatch(citation.locator)
    if found is None:
        return None
    before, first, last, after = found[1], int(found[2]), int(found[3]), found[4]
    lines = [(line.start(), line.end()) for line in _LINE.finditer(citation.text)]
    rules = [at for at, (start, end) in enumerate(lines) if _RULE.match(citation.text[start:end])]
    if rules != [1]:
        return None
    rows = lines[2:] if len(lines) - 2 == last - first + 1 else [lines[0], *lines[2:]]
    quoted = [
        at
        for at, (start, end) in enumerate(rows)
        if any(start < stop and begin < end for begin, stop in citation.spans)
    ]
    if len(rows) != last - first + 1 or not quoted:
        return None
    ends = [str(first + at) for at in dict.fromkeys((quoted[0], quoted[-1]))]
    return _Rows(quoted[0], quoted[-1], last - first, f"{before}{'-'.join(ends)}{after}")
