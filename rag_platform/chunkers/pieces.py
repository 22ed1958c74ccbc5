"""Splits text into the units that chunkers combine: sentences, list items, table rows, fences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from rag_platform.chunkers.recursive import SEPARATORS, best_spans
from rag_platform.chunkers.sizes import INK, Ruler
from rag_platform.text.cut_points import Boundaries, boundaries
from rag_platform.text.markdown_blocks import BULLET
from rag_platform.text.sentences import sentence_ends

# The end of a paragraph, or the start of a list item, heading, table row or quote.
LINE_START = re.compile(rf"\n[ \t]*\n\s*|\n(?=[ \t>]*(?:{BULLET}|#{{1,6}}[ \t]|\||>))")


@dataclass(frozen=True, slots=True)
class Piece:
    """text[start:end]; `whole` for a fence or table row."""

    start: int
    end: int
    whole: bool


def pieces(text: str, ruler: Ruler) -> list[Piece]:
    """The pieces of a text in order, none blank; each fits, except fences and table rows."""
    cuts = boundaries(text, SEPARATORS, ruler.fits, ruler.keeps)
    edges = {edge for run in cuts.guarded for edge in (run.start, run.end)}
    places = {match.end() for match in LINE_START.finditer(text)} | set(sentence_ends(text)) | edges
    legal = [place for place in sorted(places) if 0 < place < len(text) and cuts.legal(place)]
    found: list[Piece] = []
    for start, end in zip([0, *legal], [*legal, len(text)], strict=True):
        if INK.search(text, start, end) is not None:
            found += _fitting(cuts, ruler, start, end)
    return found


def _fitting(cuts: Boundaries, ruler: Ruler, start: int, end: int) -> Iterator[Piece]:
    """The piece, or its parts if it is too long."""
    if ruler.fits(start, end):
        yield Piece(start, end, cuts.holds_run(start, end))
        return
    spans = best_spans(start, end, ruler, cuts, 0)
    edges = [start, *(begin for begin, _ in spans[1:]), end]
    for begin, stop in pairwise(edges):
        yield Piece(begin, stop, cuts.holds_run(begin, stop) or cuts.inside_opened(begin))
