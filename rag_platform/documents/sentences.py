"""The smallest units that chunkers put together: sentences, list items, table rows, fences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from rag_platform.documents.boundaries import Boundaries, boundaries
from rag_platform.documents.chunk_sizes import INK, Ruler
from rag_platform.documents.chunkers_recursive import SEPARATORS, best_spans

CLOSERS = "”’」』）】》)\"'\\]*_"
SENTENCE_END = re.compile(rf"[。！？；…]+[{CLOSERS}]*|[.!?]+[{CLOSERS}]*(?=\s)")
ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|cf|vs|ca|approx|Dr|Mr|Mrs|Ms|Prof|St|Inc|Ltd|Co|Corp|Nos?|Figs?|Eqs?|Secs?|Vol|pp?|[A-Z])|\n[ \t]*\d{1,3})\.$"
)
# A paragraph ends, or a line that begins something of its own: an item, a heading, a row, a quote.
LINE_START = re.compile(
    r"\n[ \t]*\n\s*|\n(?=[ \t>]*(?:[-*+•][ \t]|\d{1,9}[.)、]|[(（]?[一二三四五六七八九十]{1,3}[)）、]|#{1,6}[ \t]|\||>))"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """text[start:end], cut from its neighbours at legal places; `whole` for a fence or a table row."""

    start: int
    end: int
    whole: bool


def sentence_ends(text: str) -> Iterator[int]:
    """The offsets behind the sentences of Chinese and of languages with Latin stops; abbreviations, initials and ordinals end none."""
    for match in SENTENCE_END.finditer(text):
        place = match.end()
        if match.group()[0] != "." or not (
            text[place + 1 : place + 2].islower() or ABBREVIATION.search("\n" * (place < 9) + text[max(0, place - 9) : place])
        ):
            yield place


def units(text: str, ruler: Ruler) -> list[Unit]:
    """Units in order that hold all of the text that is not white space; each fits, but for fences and table rows."""
    cuts = boundaries(text, SEPARATORS, ruler.fits, ruler.keeps)
    edges = {edge for run in cuts.guarded for edge in (run.start, run.end)}
    places = {match.end() for match in LINE_START.finditer(text)} | set(sentence_ends(text)) | edges
    legal = [place for place in sorted(places) if 0 < place < len(text) and cuts.legal(place)]
    found: list[Unit] = []
    for start, end in zip([0, *legal], [*legal, len(text)], strict=True):
        if INK.search(text, start, end) is not None:
            found += _fitting(cuts, ruler, start, end)
    return found


def _fitting(cuts: Boundaries, ruler: Ruler, start: int, end: int) -> Iterator[Unit]:
    """The unit, or its parts where it is too long."""
    if ruler.fits(start, end):
        yield Unit(start, end, cuts.holds_run(start, end))
        return
    spans = best_spans(start, end, ruler, cuts, 0)
    edges = [start, *(begin for begin, _ in spans[1:]), end]
    for begin, stop in pairwise(edges):
        yield Unit(begin, stop, cuts.holds_run(begin, stop) or cuts.inside_opened(begin))
