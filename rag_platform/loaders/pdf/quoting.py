"""Where quoted text is printed on a page of a PDF: the rectangles of its characters, line by line.

A block owns the characters in its rectangle by the same rule as when it was read. The letters of
its text are those on the page in the same order, so a span of the text maps to a run of characters.
Only the cells of a table may be printed in another order; there the words of the text are aligned
with those of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

from rag_platform.ir import Block, Box
from rag_platform.loaders.pdf.printed.lines import visual_lines
from rag_platform.loaders.pdf.printed.runs import Char, Run, group_while, union
from rag_platform.loaders.pdf.regions import assign_runs
from rag_platform.text.scripts import letters

_WORD = re.compile(r"[^\s|]+")
_WORD_GAP = 0.15  # ems; a wider gap between two runs separates words
_BOX_GAP = 1.5  # ems; a wider gap in a line separates rectangles
Span = tuple[int, int]  # [start, end) in the text of the facts


@dataclass(frozen=True, slots=True)
class PageQuote:
    """The size of a page in points and, for each requested span, its rectangles."""

    width: float
    height: float
    boxes: tuple[tuple[Box, ...], ...]


def rotate(quote: PageQuote, degrees: int) -> PageQuote:
    """The rectangles on an unrotated page as on the page rotated clockwise by `degrees`."""
    width, height = quote.width, quote.height

    def rotated(box: Box) -> Box:
        x0, y0, x1, y1 = box
        if degrees == 90:
            return height - y1, x0, height - y0, x1
        if degrees == 180:
            return width - x1, height - y1, width - x0, height - y0
        return y0, width - x1, y1, width - x0

    if degrees not in (90, 180, 270):
        return quote
    boxes = tuple(tuple(map(rotated, found)) for found in quote.boxes)
    size = (width, height) if degrees == 180 else (height, width)
    return PageQuote(*size, boxes)


class _Letter(NamedTuple):
    """A printed letter and the place of its character: (line, character of that line)."""

    text: str
    line: int
    at: int


def quote_boxes(
    runs: Sequence[Run], text: str, blocks: Sequence[Block], spans: Sequence[Span]
) -> tuple[tuple[Box, ...], ...]:
    """The rectangles of each span of `text` on a page; pass all blocks of that page."""
    placed = [block for block in blocks if block.bbox is not None]
    pieces, _ = assign_runs(runs, [block.bbox for block in placed if block.bbox])
    found: list[list[Box]] = [[] for _ in spans]
    for block, owned in zip(placed, pieces, strict=True):
        inside = [(max(start, block.start), min(end, block.end)) for start, end in spans]
        if not owned or all(start >= end for start, end in inside):
            continue
        printed = _Printed(owned)
        for boxes, (start, end) in zip(found, inside, strict=True):
            if start < end:
                whole = text[block.start : block.end]
                boxes += printed.boxes(whole, start - block.start, end - block.start)
    return tuple(map(tuple, found))


class _Printed:
    """The printed lines of a block."""

    def __init__(self, owned: Sequence[Run]) -> None:
        lines = visual_lines(owned)
        self._chars = [[(char, run) for run in line for char in run.chars] for line in lines]
        self._letters = [
            _Letter(letter, number, at)
            for number, line in enumerate(self._chars)
            for at, (char, _) in enumerate(line)
            for letter in letters(char.text)
        ]

    def boxes(self, text: str, start: int, end: int) -> list[Box]:
        """The rectangles of text[start:end], where `text` is the whole text of the block."""
        chosen = self._find(text, start, end)
        return [
            box
            for number, line in enumerate(self._chars)
            if (places := chosen.get(number))
            for box in _line_boxes(line, places)
        ]

    def _find(self, text: str, start: int, end: int) -> dict[int, set[int]]:
        """Line to the indexes of the span's characters in it."""
        before, quoted = len(letters(text[:start])), len(letters(text[start:end]))
        block_letters = letters(text)
        if quoted == len(block_letters):
            span_letters: Iterable[_Letter] = self._letters
        elif block_letters == "".join(letter.text for letter in self._letters):
            span_letters = self._letters[before : before + quoted]
        else:
            span_letters = self._align_words(text, start, end)
        chosen: dict[int, set[int]] = {}
        for letter in span_letters:
            chosen.setdefault(letter.line, set()).add(letter.at)
        return chosen

    def _align_words(self, text: str, start: int, end: int) -> Iterator[_Letter]:
        """The letters of the span's words, which are in another order on the page."""
        printed = list(self._printed_words())
        words = list(_split_words(text))
        free = set(range(len(printed)))
        place: dict[int, int] = {}  # word of the text to word of the page
        matcher = SequenceMatcher(
            None, [word for word, _ in words], [word for word, _ in printed], autojunk=False
        )
        for match in matcher.get_matching_blocks():
            for step in range(match.size):
                place[match.a + step] = match.b + step
                free.discard(match.b + step)
        for number, (word, _) in enumerate(words):
            if number not in place:
                near = place.get(number - 1, -1) + 1
                same = [other for other in free if printed[other][0] == word]
                if same:
                    place[number] = min(same, key=lambda other: (abs(other - near), other))
                    free.discard(place[number])
        for number, (_, at) in enumerate(words):
            if number in place and start <= at < end:
                yield from printed[place[number]][1]

    def _printed_words(self) -> Iterator[tuple[str, list[_Letter]]]:
        """(word, its letters) of each sequence of letters without a space."""
        for word in group_while(
            self._letters, lambda word, letter: not self._are_separate(word[-1], letter)
        ):
            yield "".join(letter.text for letter in word), word

    def _are_separate(self, left: _Letter, right: _Letter) -> bool:
        """True if two consecutive letters belong to different words."""
        if left.line != right.line:
            return True
        line = self._chars[left.line]
        if any(line[at][0].text.isspace() for at in range(left.at + 1, right.at)):
            return True
        (before, run), (after, other) = line[left.at], line[right.at]
        return run is not other and abs(after.x0 - before.x1) > _WORD_GAP * run.size


def _split_words(text: str) -> Iterator[tuple[str, int]]:
    """(letters, offset) of each word of a text, which may be a pipe table."""
    for match in _WORD.finditer(text):
        if word := letters(match[0]):
            yield word, match.start()


def _line_boxes(line: Sequence[tuple[Char, Run]], places: set[int]) -> Iterator[Box]:
    """The rectangles around the chosen characters of a line, one per sequence without a wide gap or
    another letter in between.
    """

    def belongs(group: list[int], at: int) -> bool:
        last, run = line[group[-1]]
        between = "".join(char.text for char, _ in line[group[-1] + 1 : at])
        return not letters(between) and line[at][0].x0 - last.x1 <= _BOX_GAP * run.size

    for group in group_while(sorted(places), belongs):
        yield _union(line, group)


def _union(line: Sequence[tuple[Char, Run]], places: Sequence[int]) -> Box:
    """The rectangle around characters, of the height of their runs."""
    x0, y0, x1, y1 = union([line[at][0][1:] for at in places])
    runs = [line[at][1] for at in places]
    if all(run.horizontal for run in runs):
        y0, y1 = min(y0, *(run.box[1] for run in runs)), max(y1, *(run.box[3] for run in runs))
    return x0, y0, x1, y1
