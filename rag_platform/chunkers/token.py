"""The chunker `token`: windows of a fixed number of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from rag_platform.chunkers.recursive import find_forced_end
from rag_platform.chunkers.sizes import (
    INK,
    Ruler,
    Span,
    require_sizes,
    skip_space,
    token_counter,
    trim,
)
from rag_platform.text.cut_points import Boundaries, boundaries, clause_ends


@dataclass(frozen=True)
class Token:
    """Windows of `chunk_size` tokens that overlap by `chunk_overlap`, cut after the last word that
    fits.

    Tokens are counted by the tokenizer of the embedder (by default the strategy's), else estimated.
    Fences and table rows stay whole up to 6,400 characters; a longer fence is cut at a line end.
    """

    chunk_size: int = 256
    chunk_overlap: int = 32
    max_tokens: int = 460
    embedder: str = ""
    embedder_options: Mapping[str, Any] = field(default_factory=dict)

    VERSION: ClassVar[str] = "5"

    def __post_init__(self) -> None:
        require_sizes(self.chunk_size, self.chunk_overlap, self.max_tokens)

    @staticmethod
    def needs_embedder(options: Mapping[str, Any]) -> Literal[True]:
        """True: its tokenizer decides where to cut."""
        return True

    def spans(self, text: str) -> list[Span]:
        if not text.strip():
            return []
        ruler = Ruler(
            text,
            self.chunk_size,
            self.max_tokens,
            in_tokens=True,
            counts=token_counter(self.embedder, self.embedder_options),
        )
        cuts = boundaries(text, ("\n", " "), ruler.fits)
        return ruler.cut_exactly(lambda: _windows(ruler, cuts, self.chunk_overlap))


def _windows(ruler: Ruler, cuts: Boundaries, overlap: int) -> list[Span]:
    text = cuts.text
    found: list[Span] = []
    start = previous = 0
    while True:
        start = skip_space(text, start)
        end = _last_cut(cuts, max(start, previous) + 1, ruler.furthest_end(start))
        if end is None and start < previous:
            start = previous  # no good cut after the overlap: more fits without it
            continue
        if end is None:
            end = find_forced_end(cuts, start, min(ruler.furthest_end(start), len(text)))
        if (span := trim(text, start, end)) and (not found or span[1] > found[-1][1]):
            found.append(span)
        if INK.search(text, end) is None:
            return found
        previous = end
        low = max(ruler.back(end, overlap), start + 1)
        places = (it for it in _word_cuts(cuts, low, end - 1) if not cuts.inside_opened(it))
        start = next((place for place in places if not cuts.beside_row(place)), end)


def _last_cut(cuts: Boundaries, low: int, high: int) -> int | None:
    """The last word end in [low, high]; the end of the text if `high` reaches it."""
    if high >= len(cuts.text):
        return len(cuts.text)
    places = _word_cuts(cuts, low, high)
    if not places and low <= high:
        places = sorted({*cuts.words(low, high), *cuts.edges(low, high)})
    return places[-1] if places else None


def _word_cuts(cuts: Boundaries, low: int, high: int) -> list[int]:
    """Legal cuts after white space, and after sentences in scripts without spaces."""
    if low > high:
        return []
    ranks = [rank for rank, ends in enumerate(cuts.separators) if ends is not clause_ends]
    return sorted({place for rank in ranks for place in cuts.cuts(rank, low, high)})
