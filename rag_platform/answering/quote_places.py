"""Where in its passage a quote stands: a passage of several short sections, or of many lines, has
the place of its beginning.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from rag_platform.answering.quotable import read_layout
from rag_platform.ir import Citation
from rag_platform.text.passages import LABEL_LEVEL

JOINT = " / "  # between the headings of a section's path
# `sheet=Q1;rows=3-9;head=1`, `body/tbl[2]/tr[3-9]`
_ROWS = re.compile(r"((?:sheet=[^;]*;)?rows=|[^ ]*/tr\[)(\d+)-(\d+)((?:;head=[\d-]+)?|\])")
_PAGE = re.compile(r"page=(\d+);char=(\d+)")  # where in a passage a page begins
_LINE = re.compile(r"[^\n]+")
_RULE = re.compile(r"\|(?: ?:?-{3,}:? ?\|)+$")


def narrow(citation: Citation) -> Citation:
    """The citation with the section, the pages, the lines and the rows of its spans, where these
    say more than those of its passage.
    """
    if not citation.spans or citation.edited_from:
        return citation
    section, lines, locator = _find_section(citation), _find_lines(citation), citation.locator
    pages = _find_pages(citation)
    if rows := _find_rows(citation):
        locator = rows.locator
        # a record of a CSV file is a line, unless a cell holds several
        if citation.line_range and citation.line_range[1] - citation.line_range[0] == rows.apart:
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
    """The path of the headings that all spans stand under; that of the passage where there is none.

    >>> text = "## Setup\\n\\nRun it.\\n\\n## Ports\\n\\nIt listens on 8443."
    >>> shown = Citation(1, "", "", "", "", "Guide / Setup", text, 1.0, spans=((28, 47),))
    >>> _find_section(shown)
    'Guide / Ports'
    """
    whole = citation.section_path.startswith("__")  # of no heading
    own = [] if whole else citation.section_path.split(JOINT)
    quoted = [
        unit
        for unit in read_layout(citation.text).units
        if any(start < unit.end and unit.start < end for start, end in citation.spans)
    ]
    paths = [find_path(own, unit.headings) for unit in quoted]
    shared = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    return JOINT.join(names[0] for names in shared) or citation.section_path


def find_path(own: Sequence[str], headings: Sequence[tuple[int, str]]) -> list[str]:
    """The headings above a unit, outermost first, in a passage or section with the path `own`, of
    which `headings` are those that it has above the unit, with their levels.

    What the passage has of a section of its own was too short to be a passage; it stands beside
    the section of the passage, or in it where that is a level above.
    """
    above = [(level, words) for level, words in headings if level < LABEL_LEVEL]
    if not above:
        return list(own)
    from rag_platform.loaders.markdown import heading_title  # not for an answer of one section

    level, names = above[0][0], [heading_title(words) for _, words in above]
    if names[0] in own:
        return [*own[: own.index(names[0])], *names]
    if own and level == 1:  # no other title joins a section: a comment in code
        return list(own)
    # a path of one heading may be that of a document without a title, whose sections are beside it
    return names if (len(own), level) == (1, 2) else [*own[: level - 1], *names]


def _find_pages(citation: Citation) -> tuple[int, int] | None:
    """The pages that the spans stand on; those of the passage where it does not say where they
    begin.

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
    """The lines of the file that the spans stand on; those of the passage where its text has not
    just as many.
    """
    if citation.line_range is None:
        return None
    first, last = citation.line_range
    text = citation.text
    if last - first != text.count("\n"):
        return citation.line_range
    start, end = min(s for s, _ in citation.spans), max(e for _, e in citation.spans)
    return first + text.count("\n", 0, start), first + text.count("\n", 0, max(start, end - 1))


class _Rows(NamedTuple):
    """Rows of a passage: the first and the last, from 0, of `apart` + 1, and their locator."""

    first: int
    last: int
    apart: int
    locator: str


def _find_rows(citation: Citation) -> _Rows | None:
    """The rows of a table that the spans stand in; None where the passage is not one table with a
    line for each row of its locator.

    >>> text = "| a | b |\\n| --- | --- |\\n| 1 | 2 |\\n| 3 | 4 |"
    >>> shown = Citation(1, "", "", "", "", "", text, 1.0, locator="rows=8-9", spans=((34, 43),))
    >>> _find_rows(shown)
    _Rows(first=1, last=1, apart=1, locator='rows=9')
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
