"""Chunkers that cut at the best separator within a size: `recursive`; `whole_section`, which falls
back to it; `parent_child`, which indexes small chunks and shows the large ones around them; and
`token`, which cuts windows of a fixed number of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from rag_platform.chunkers.sizes import (
    INK,
    Ruler,
    Span,
    require_sizes,
    skip_space,
    token_counter,
    trim,
)
from rag_platform.errors import ConfigError
from rag_platform.text.cut_points import (
    NAME_RANKS,
    Boundaries,
    blank_ends,
    boundaries,
    clause_ends,
    is_grapheme_boundary,
    leaves_introduction,
)
from rag_platform.text.markdown_blocks import HEADING, only_headings

PARENT = {"chunk_size": 2000, "chunk_overlap": 0}
CHILD = {"chunk_size": 400, "chunk_overlap": 60}


@dataclass(frozen=True)
class ParentChild:
    """Parents of 2,000 characters without overlap, and their children of 400, by default.

    `parent` and `child` take the options of Recursive. Only children are indexed, and a single
    child has no parent. `max_tokens` limits only children, because parents are not embedded.
    """

    parent: Mapping[str, Any] = field(default_factory=dict)
    child: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int = 460
    embedder: str = ""
    embedder_options: Mapping[str, Any] = field(default_factory=dict)

    VERSION: ClassVar[str] = "12"

    def __post_init__(self) -> None:
        parent, child = self._levels()
        if parent.chunk_size <= child.chunk_size:
            raise ConfigError(
                f"parent.chunk_size {parent.chunk_size} must be above child.chunk_size"
                f" {child.chunk_size}"
            )

    @staticmethod
    def needs_embedder(options: Mapping[str, Any]) -> bool:
        """True when parents or children are measured in tokens."""
        return any(
            options.get(level, {}).get("length_function") == "tokens"
            for level in ("parent", "child")
        )

    def _levels(self) -> tuple[Recursive, Recursive]:
        counted = {"embedder": self.embedder, "embedder_options": self.embedder_options}
        try:
            parent = {**PARENT, **counted, **self.parent}
            return (
                Recursive(**{"max_tokens": 2 * int(parent["chunk_size"]), **parent}),
                Recursive(**{**CHILD, **counted, "max_tokens": self.max_tokens, **self.child}),
            )
        except TypeError as error:
            raise ConfigError(
                f"parent and child take the options of the chunker `recursive`: {error}"
            ) from error

    def families(self, text: str) -> list[tuple[Span | None, list[Span]]]:
        """(parent, its children) in order; the parent of a single child is None."""
        parent, child = self._levels()
        found: list[tuple[Span | None, list[Span]]] = []
        for start, end in parent.spans(text):
            children = child.spans_within(text, start, end)
            found.append((None if children == [(start, end)] else (start, end), children))
        return found

    def spans(self, text: str) -> list[Span]:
        """The children in order."""
        return [span for _, children in self.families(text) for span in children]


SEPARATORS = ("\n\n", "\n", " ", "")
_CONTEXT = 16  # characters that patterns need to recognise the start of a sentence
# where to split a very long word, such as a URL
SOFT = re.compile(r"[/?&=#.,;:_+|\-–—，、]+(?=\w)")


@dataclass(frozen=True)
class Recursive:
    """Cuts at the best separator in the second half of the allowed size, preferably before a
    heading or a line of bold words; after a sentence that introduces the next only if that half has
    no other sentence end.

    `chunk_size` is in characters, or in tokens by the embedder's tokenizer or an estimate. No chunk
    has more than `max_tokens`, except for fences and table rows, which are kept whole up to 6,400
    characters. The next chunk repeats up to `chunk_overlap` of the text before it, starting at a
    paragraph, line or sentence, or at a word if the sentence is too long. Nothing is repeated
    before these, and no code.
    """

    chunk_size: int = 800
    chunk_overlap: int = 120
    separators: Sequence[str] = SEPARATORS
    length_function: Literal["characters", "tokens"] = "characters"
    max_tokens: int = 460
    embedder: str = ""  # whose tokenizer counts; empty for the strategy's own
    embedder_options: Mapping[str, Any] = field(default_factory=dict)

    VERSION: ClassVar[str] = "12"

    def __post_init__(self) -> None:
        if self.length_function not in ("characters", "tokens"):
            raise ConfigError(
                f"length_function is {self.length_function!r}; it must be characters or tokens"
            )
        require_sizes(self.chunk_size, self.chunk_overlap, self.max_tokens)

    @staticmethod
    def needs_embedder(options: Mapping[str, Any]) -> bool:
        """True when these options make the chunks depend on an embedder."""
        return options.get("length_function") == "tokens"

    def spans(self, text: str) -> list[Span]:
        return self.spans_within(text, 0, len(text)) if text.strip() else []

    def spans_within(self, text: str, start: int, end: int) -> list[Span]:
        """The spans of text[start:end], aware of fences and tables that begin before it."""
        in_tokens = self.length_function == "tokens"
        counts = token_counter(self.embedder, self.embedder_options) if in_tokens else None
        ruler = Ruler(text, self.chunk_size, self.max_tokens, in_tokens=in_tokens, counts=counts)
        cuts = boundaries(text, self.separators, ruler.fits)
        return ruler.cut_exactly(lambda: best_spans(start, end, ruler, cuts, self.chunk_overlap))


def best_spans(start: int, stop: int, ruler: Ruler, cuts: Boundaries, overlap: int) -> list[Span]:
    """Spans of cuts.text[start:stop] in order, each cut at the best separator."""
    text = cuts.text
    found: list[Span] = []
    previous = start
    while start < stop:
        start = skip_space(text, start)
        end, clean = _end(ruler, cuts, start, stop, previous, overlap)
        if end <= previous and start < previous:
            start = previous
            continue
        if (span := trim(text, start, end)) and (not found or span[1] > found[-1][1]):
            found.append(span)
        if INK.search(text, end, stop) is None:
            break
        previous = end
        start = end if clean else _overlap(ruler, cuts, end, start, overlap)
    return found


def _end(
    ruler: Ruler, cuts: Boundaries, start: int, stop: int, floor: int, overlap: int
) -> tuple[int, bool]:
    """(end of the chunk that starts at `start`, whether the next must start there)."""
    high = ruler.furthest_end(start)
    if high >= stop:
        return stop, True
    middle = start + max(1, (high - start) // 2)
    rest = stop - start
    # two chunks are left: cut near the middle, so that the last one is not tiny
    aim = (start + rest // 2 + overlap // 2) if rest <= 2 * (high - start) - overlap else high
    high_half, low_half = (max(middle, floor + 1), high), (max(start, floor) + 1, middle)
    if aim < high:
        high_half = min(high_half[0], max(start + (high - start) // 3, floor + 1)), high
    for places, before_heading in _choices(cuts, high_half, low_half):
        if places:
            return min(places, key=lambda place: abs(place - aim)), before_heading
    if start < floor:
        return floor, False  # no good cut after the overlap: more fits without it
    return min(stop, find_forced_end(cuts, start, high)), False


def _choices(cuts: Boundaries, high_half: Span, low_half: Span) -> Iterator[tuple[list[int], bool]]:
    """(offsets to cut at, whether they are before headings or bold lines), best first."""
    for rank in range(NAME_RANKS):
        yield cuts.cuts(rank, *high_half), True
    for rank in cuts.sentence_ranks:
        places = cuts.cuts(rank, *high_half)
        yield [place for place in places if not leaves_introduction(cuts.text, place)], False
    for rank in range(NAME_RANKS, len(cuts.separators)):
        yield cuts.cuts(rank, *high_half), False
    for rank, ends in enumerate(cuts.separators):
        if ends is not blank_ends:
            yield cuts.cuts(rank, *low_half), rank < NAME_RANKS
    yield cuts.words(*high_half), False  # before spaces in the low half, which are rare in Chinese
    for rank, ends in enumerate(cuts.separators):
        if ends is blank_ends:
            yield cuts.cuts(rank, *low_half), False
    yield cuts.words(*low_half), False


def find_forced_end(cuts: Boundaries, start: int, high: int) -> int:
    """Where to cut without a separator: at the end of a long fence or row, before a link, or
    anywhere. A fence or row stays with the heading before it.
    """
    run = cuts.inside(high)
    if run is not None:
        alone = run.start <= start or only_headings(cuts.text, start, run.start)
        # if the run starts where the overlap ends, the caller retries without overlap
        return run.end if alone else run.start
    last = cuts.text.rfind("\n#", start, high) + 1
    if last > start and HEADING.match(cuts.text, last) and only_headings(cuts.text, start, last):
        # headings that do not fit together with their text: the last one stays with the text
        return last
    unit = cuts.inside_unit(high)
    if unit is not None and unit[0] > start:
        return unit[0]
    for match in reversed(list(SOFT.finditer(cuts.text, start + (high - start) // 2, high))):
        if cuts.legal(match.end()):
            return match.end()
    end = high
    while end > start and not is_grapheme_boundary(cuts.text, end):
        end -= 1
    # a grapheme longer than a chunk is not text; keep to the size
    return end if end > start else high


def _overlap(ruler: Ruler, cuts: Boundaries, end: int, start: int, overlap: int) -> int:
    """Where the next chunk starts: at most `overlap` before `end`, outside code and tables, at the
    start of a sentence, or of a word if `end` is inside a sentence that starts too early.
    """
    low = max(ruler.back(end, overlap), start + 1)
    if overlap == 0 or low >= end:
        return end
    sentences = list(cuts.sentence_ranks)
    words = [rank for rank, ends in enumerate(cuts.separators) if ends is blank_ends]
    # patterns only see this window
    near = max(start, end - _CONTEXT), min(len(cuts.text), end + _CONTEXT)
    within = not any(end in cuts.cuts(rank, *near) for rank in sentences)
    for rank in [*sentences, *(words if within else ())]:
        for place in cuts.cuts(rank, low, end - 1):
            if not cuts.inside_opened(place) and not cuts.beside_row(place):
                return place
    return end


@dataclass(frozen=True)
class WholeSection:
    """One chunk per section; a longer section is cut as by Recursive."""

    max_chars: int = 2000
    chunk_overlap: int = 120
    max_tokens: int = 460

    VERSION: ClassVar[str] = "12"

    def spans(self, text: str) -> list[Span]:
        """One span, or several if the section is too long."""
        overlap = min(self.chunk_overlap, self.max_chars // 2)
        return Recursive(
            chunk_size=self.max_chars, chunk_overlap=overlap, max_tokens=self.max_tokens
        ).spans(text)


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

    VERSION: ClassVar[str] = "7"

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
        places = cuts.words(low, high)
    return places[-1] if places else None


def _word_cuts(cuts: Boundaries, low: int, high: int) -> list[int]:
    """Legal cuts after white space, and after sentences in scripts without spaces."""
    if low > high:
        return []
    ranks = [rank for rank, ends in enumerate(cuts.separators) if ends is not clause_ends]
    return sorted({place for rank in ranks for place in cuts.cuts(rank, low, high)})
