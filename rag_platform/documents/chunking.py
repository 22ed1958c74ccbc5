"""Sections to chunks: contiguous spans of the normalised text within a size, each with its way back to the source."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rag_platform.config import Strategy
from rag_platform.documents.boundaries import Boundaries, boundaries, estimated_tokens, is_grapheme_boundary, token_sums
from rag_platform.documents.cleaning import Normalised, fingerprint_text
from rag_platform.documents.places import Places, attached_images, media_chunks
from rag_platform.errors import ConfigError
from rag_platform.ir import Chunk, Facts, MediaLink, Section, Version
from rag_platform.protocols import Chunker

TOO_SHORT = 20
ROW_FACTOR = 8  # a table row is kept whole up to so many times the chunk size
INK = re.compile(r"\S")
Span = tuple[int, int]


@dataclass(frozen=True)
class Recursive:
    """Cuts at the best separator in the second half of the allowed size: before a heading, then the separators in order.

    `chunk_size` counts characters or estimated tokens; no chunk costs more than `max_tokens`, so that an embedder of 512 reads all of it.
    A chunk is longer only where a table row is: rows are never cut, nor are fences that fit. The next chunk repeats up to `chunk_overlap`
    of the text before it, from the start of a paragraph, line, sentence or word; nothing is repeated before a heading or out of code.
    """

    chunk_size: int = 800
    chunk_overlap: int = 120
    separators: Sequence[str] = ("\n\n", "\n", " ", "")
    length_function: Literal["characters", "tokens"] = "characters"
    max_tokens: int = 460

    NAME: ClassVar[str] = "recursive"
    VERSION: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if self.length_function not in ("characters", "tokens"):
            raise ConfigError(f"length_function is {self.length_function!r}; it must be characters or tokens")
        if self.chunk_size < 20 or self.max_tokens < 20 or not 0 <= self.chunk_overlap <= self.chunk_size // 2:
            raise ConfigError(
                f"chunk_size {self.chunk_size} and max_tokens {self.max_tokens} must be 20 or more, chunk_overlap {self.chunk_overlap} at "
                "most half of chunk_size"
            )

    def spans(self, text: str) -> list[Span]:
        """Half-open spans in order, trimmed, none blank."""
        if not text.strip():
            return []
        ruler = _Ruler(text, self)
        cuts = boundaries(text, self.separators, ruler.fits, ROW_FACTOR * self.chunk_size)
        found: list[Span] = []
        start, previous = 0, 0
        while start < len(text):
            start = _inked(text, start)
            end, clean = self._end(text, ruler, cuts, start, previous)
            if end <= previous and start < previous:
                start = previous  # nothing new fits behind the overlap
                continue
            if (span := trimmed(text, start, end)) and (not found or span[1] > found[-1][1]):
                found.append(span)
            if INK.search(text, end) is None:
                break
            previous = end
            start = end if clean else self._overlap(ruler, cuts, end, start)
        return found

    def _end(self, text: str, ruler: _Ruler, cuts: Boundaries, start: int, floor: int) -> tuple[int, bool]:
        """(end of the chunk that starts at `start`, whether the next must start there)."""
        high = ruler.reach(start)
        if high >= len(text):
            return len(text), True
        middle = start + max(1, (high - start) // 2)
        rest = len(text) - start
        # Two chunks are left: cut near the middle, rather than leave a crumb.
        aim = (start + rest // 2 + self.chunk_overlap // 2) if rest <= 2 * (high - start) - self.chunk_overlap else high
        for low, top in ((max(middle, floor + 1), high), (max(start, floor) + 1, middle)):
            low = min(low, max(start + (high - start) // 3, floor + 1)) if aim < high else low
            for rank in range(len(cuts.patterns)):
                if found := cuts.cuts(rank, low, top):
                    return min(found, key=lambda place: abs(place - aim)), rank == 0
        return self._forced(text, cuts, start, high), False

    def _forced(self, text: str, cuts: Boundaries, start: int, high: int) -> int:
        """Where nothing separates: the end of a row that is too long, else the last place that splits no character."""
        run = cuts.inside(high)
        if run is not None:
            return run.start if run.start > start else run.end  # where the overlap ends, the caller starts again without it
        end = high
        while end > start and not is_grapheme_boundary(text, end):
            end -= 1
        return end if end > start else high  # a cluster longer than a chunk is no writing; the size is kept

    def _overlap(self, ruler: _Ruler, cuts: Boundaries, end: int, start: int) -> int:
        """Where the next chunk starts: at most `chunk_overlap` before `end`, where a separator ends outside code and tables."""
        low = max(ruler.back(end, self.chunk_overlap), start + 1)
        if self.chunk_overlap == 0 or low >= end:
            return end
        for rank in range(1, len(cuts.patterns)):
            for place in cuts.cuts(rank, low, end - 1):
                if not cuts.inside_opened(place) and not cuts.beside_row(place):
                    return place
        return end


def _inked(text: str, start: int) -> int:
    """The first place from `start` that is not white space; a base character stays with its marks."""
    found = INK.search(text, start)
    if found is None:
        return start
    return found.start() if is_grapheme_boundary(text, found.start()) else max(start, found.start() - 1)


class _Ruler:
    """Measures spans of one text by a chunker's sizes."""

    def __init__(self, text: str, sizes: Recursive) -> None:
        self.sums = token_sums(text)
        self.tokens = sizes.length_function == "tokens"
        self.characters = len(text) if self.tokens else sizes.chunk_size
        self.budget = 100 * (min(sizes.chunk_size, sizes.max_tokens) if self.tokens else sizes.max_tokens)

    def fits(self, start: int, end: int) -> bool:
        """True when the span is within the size."""
        return end - start <= self.characters and int(self.sums[end] - self.sums[start]) <= self.budget

    def reach(self, start: int) -> int:
        """The furthest end of a span from `start` that fits; at least one character."""
        by_tokens = int(np.searchsorted(self.sums, self.sums[start] + self.budget, side="right")) - 1
        return max(start + 1, min(start + self.characters, by_tokens))

    def back(self, end: int, overlap: int) -> int:
        """The first start of a span up to `end` that is no longer than the overlap."""
        if not self.tokens:
            return max(0, end - overlap)
        return int(np.searchsorted(self.sums, self.sums[end] - 100 * overlap, side="left"))


@dataclass(frozen=True)
class WholeSection:
    """One chunk per section; a section above `max_chars` or `max_tokens` is cut as Recursive does."""

    max_chars: int = 2000
    chunk_overlap: int = 120
    max_tokens: int = 460

    NAME: ClassVar[str] = "whole_section"
    VERSION: ClassVar[str] = "1"

    def spans(self, text: str) -> list[Span]:
        """One span, or several where the section is too long."""
        overlap = min(self.chunk_overlap, self.max_chars // 2)
        return Recursive(chunk_size=self.max_chars, chunk_overlap=overlap, max_tokens=self.max_tokens).spans(text)


def trimmed(text: str, start: int, end: int) -> Span | None:
    """The span without white space around it, clusters kept whole; None when nothing is left."""
    while start < end and text[start].isspace() and is_grapheme_boundary(text, start + 1):
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None


# --- chunks -----------------------------------------------------------------------------------------------------------------


def cut(
    version: Version,
    facts: Facts,
    normalised: Normalised,
    sections: Sequence[Section],
    chunker: Chunker,
    strategy: Strategy,
    links: Sequence[MediaLink],
) -> list[Chunk]:
    """The chunks of a version in order, with pages, lines, bytes and images; pages without text add chunks of their picture."""
    places = Places(facts)
    fingerprint = _counted(strategy)
    chunks: list[Chunk] = []
    for section in sections:
        body = normalised.text[section.norm_start : section.norm_end]
        for start, end in chunker.spans(body):
            text = body[start:end]
            print_, chunk_id = fingerprint(section.section_id, text)
            norm = section.norm_start + start, section.norm_start + end
            fact = normalised.span_to_facts(*norm)
            chunks.append(
                Chunk(
                    chunk_id=chunk_id,
                    section_id=section.section_id,
                    doc_id=version.doc_id,
                    version_id=version.version_id,
                    chunk_index=len(chunks),
                    chunk_text=text,
                    chunk_fingerprint=print_,
                    norm_start=norm[0],
                    norm_end=norm[1],
                    fact_start=fact[0],
                    fact_end=fact[1],
                    section_path=section.section_path,
                    title=section.title,
                    h1_title=section.h1_title,
                    h2_title=section.h2_title,
                    token_count=estimated_tokens(text),
                    text_len=len(text),
                    too_short=len(text) < TOO_SHORT,
                    lang=language(text),
                    **places.of(*fact),
                )
            )
    bare = set(facts.summary.pages_without_text)
    chunks = attached_images(chunks, [link for link in links if link.page not in bare], facts.blocks)
    return [*chunks, *media_chunks(version, facts, chunks, sections, links)]


def chunk_hash(chunks: Sequence[Chunk]) -> str:
    """sha256 over ids in order: another one, with an equal section_hash, means that lengths drifted."""
    return hashlib.sha256("\n".join(chunk.chunk_id for chunk in chunks).encode()).hexdigest()


def _counted(strategy: Strategy) -> Callable[[str, str], tuple[str, str]]:
    """A function from section and text to (fingerprint, chunk_id), which counts equal texts of a section."""
    seen: dict[tuple[str, str], int] = {}

    def identify(section_id: str, text: str) -> tuple[str, str]:
        mark = fingerprint_text(text, strategy.cleaning)
        nth = seen.get((section_id, mark), 0)
        seen[section_id, mark] = nth + 1
        return mark, "chk_" + hashlib.sha256(f"{section_id}\x1f{mark}\x1f{nth}".encode()).hexdigest()[:20]

    return identify


HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
KANA_HANGUL = re.compile("[\u3041-\u30ff\u1100-\u11ff\uac00-\ud7a3]")
WORD = re.compile("[A-Za-z]+")
LATIN = re.compile("[A-Za-z]")
LETTER = re.compile(r"[^\W\d_]")


def language(text: str) -> str:
    """`zh`, `en` or `other`: Han characters against Latin words, each worth about a word; other scripts win above a quarter."""
    han, words = len(HAN.findall(text)), len(WORD.findall(text))
    letters = len(LETTER.findall(text))
    if not letters:
        return "other"
    kana = len(KANA_HANGUL.findall(text))
    latin = len(LATIN.findall(text))
    if kana > 0.1 * (han + kana) and kana >= words:
        return "other"
    if letters - han - latin - kana > 0.25 * letters:
        return "other"
    return "zh" if han >= words and han else "en"
