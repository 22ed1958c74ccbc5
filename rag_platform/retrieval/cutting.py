"""The longest beginning of a text that fits, ended where a reader would end it; table rows and code fences are not cut."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

from rag_platform.text.graphemes import is_grapheme_boundary
from rag_platform.text.markdown_blocks import HEADING, Guarded, structure
from rag_platform.text.sentences import sentence_ends

Fits = Callable[[str], bool]
_BLANK = re.compile(r"\s+")


def beginning(text: str, fits: Fits) -> str:
    """The longest verbatim beginning that fits, empty when there is none.

    It ends at a line end, else at a sentence end, else between words, else between characters: at the first of these that keeps half of
    what would fit. A table is cut behind a row, so its header stays. A fence is kept whole or left out; one that nothing but headings
    precedes is cut at a line end, for else nothing would be left. A row that does not fit is left out.
    """
    if fits(text):
        return text
    runs = structure(text)
    most = bisect_right(range(1, len(text)), 0, key=lambda end: 0 if fits(text[:end]) else 1)
    best = 0
    for ends in (_line_ends(text), _sentence_ends(text), _word_ends(text), range(1, len(text))):
        falling = (end for end in sorted(set(ends), reverse=True) if best < end <= most)
        best = next((end for end in falling if _may_end(text, end, runs) and fits(text[:end])), best)
        # where a row or a fence comes next, no finer cut gets nearer to it
        if best * 2 >= most or _inside(runs, most):
            break
    return text[:best].rstrip() or _opened(text, runs, fits)


def _may_end(text: str, end: int, runs: list[Guarded]) -> bool:
    """True when a cut tears no run and no character, and leaves no heading, or a part of one, behind."""
    last_line = text.rfind("\n", 0, len(text[:end].rstrip())) + 1
    return not _inside(runs, end) and is_grapheme_boundary(text, end) and HEADING.match(text, last_line) is None


def _inside(runs: list[Guarded], position: int) -> bool:
    at = bisect_right(runs, position, key=lambda run: run.start) - 1
    return at >= 0 and runs[at].start < position < runs[at].end


def _headings_only(text: str) -> bool:
    return all(not line.strip() or HEADING.match(line) for line in text.splitlines())


def _opened(text: str, runs: list[Guarded], fits: Fits) -> str:
    """The beginning of a fence that starts the text, cut at a line end; at least one line of code."""
    first = runs[0] if runs else None
    if first is None or first.kind != "fence" or not _headings_only(text[: first.start]):
        return ""
    ends = [end for end in _line_ends(text) if first.start < end < first.end]
    return next((text[:end].rstrip() for end in reversed(ends[1:]) if fits(text[:end])), "")


def _line_ends(text: str) -> Iterator[int]:
    at = text.find("\n")
    while at >= 0:
        yield at + 1
        at = text.find("\n", at + 1)


def _sentence_ends(text: str) -> Iterator[int]:
    yield from _line_ends(text)
    yield from sentence_ends(text)


def _word_ends(text: str) -> Iterator[int]:
    yield from (match.start() for match in _BLANK.finditer(text) if match.start())
