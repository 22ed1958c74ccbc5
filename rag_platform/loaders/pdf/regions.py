"""Which region of a PDF page owns each of its characters, and the proof that a block says them.

A page is cut into regions (rectangles with a kind). Every visible character belongs to exactly one
region: the smallest one that holds its centre. A region's text is written from the characters it
owns, so nothing is lost, nothing stands twice, and the same rule run again on the stored rectangles
proves every block.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rag_platform.ir import Block, Box
from rag_platform.loaders.pdf.printed.lines import line_text, visual_lines
from rag_platform.loaders.pdf.printed.runs import (
    Char,
    Run,
    area,
    contains,
    round_out,
    union,
    usual_size,
)
from rag_platform.text.scripts import letters

MAX_HEADER_ROWS = 6  # of a table
# points; of 3,765 text blocks of 150 PDFs the largest such excess is 27. On one side it may
# be more: a line of a paragraph can belong to a block that lies in it
_STRETCH = 36.0
_LOOSE = 5.0  # points; every one of 7,084 blocks of 215 PDFs touches its text on some side
_ACROSS = 2.0  # of the size of most letters, above which a line may be printed across others
_MOST_ACROSS = 200
_LEAST_NUMBERS = 5  # of lines; fewer that rise by the same step stand in one column by chance
LONG_LINE_EMS = 15  # shorter lines are cells, addresses and verse
_ONE_COLUMN = 3.0  # points between the right edges of numbers in one column


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of a page and its class; `grid` has the inner borders of a table, `rules` the
    vertical lines drawn in it: x, top, bottom, `lines` those drawn through the whole of it.
    """

    bbox: Box
    label: str
    grid: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    rules: tuple[tuple[float, float, float], ...] = ()
    lines: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())


def owner_order(boxes: Sequence[Box]) -> list[int]:
    """Positions of the rectangles in the order in which they claim characters."""
    return sorted(range(len(boxes)), key=lambda i: (area(boxes[i]), i))


def owner_of(
    char: Char, boxes: Sequence[Box], order: Sequence[int], level: float | None = None
) -> int:
    """The position of the rectangle that owns a character, -1 when none holds its centre.

    Where one does at the `level` of its line, that one owns it: where rectangles overlap, the tall
    letters of a word would else belong to the upper and the low ones to the lower of them.
    """
    x, middle = (char.x0 + char.x1) / 2, (char.y0 + char.y1) / 2
    for y in (middle,) if level is None else (level, middle):
        for i in order:
            x0, y0, x1, y1 = boxes[i]
            if x0 <= x <= x1 and y0 <= y <= y1:
                return i
    return -1


def _level_of(run: Run) -> float | None:
    """The height at which most letters of a level line stand, None for turned text."""
    middles = sorted((char.y0 + char.y1) / 2 for char in run.chars if not char.text.isspace())
    return middles[len(middles) // 2] if run.horizontal else None


def near_boxes(box: Box, boxes: Sequence[Box], order: Iterable[int]) -> list[int]:
    """The places, in `order`, of the boxes that touch or overlap one."""
    x0, y0, x1, y1 = box
    return [
        i
        for i in order
        if boxes[i][0] <= x1 and boxes[i][2] >= x0 and boxes[i][1] <= y1 and boxes[i][3] >= y0
    ]


def find_across(runs: Sequence[Run]) -> list[Run]:
    """The lines printed across others, as a watermark is: slanted or in far larger letters, with
    the middle of a letter of another line in their rectangle. None on a page of many, as a map is.
    """
    usual = usual_size((run.size, len(run.chars)) for run in runs)
    large = [run for run in runs if run.slanted or run.size > _ACROSS * usual]
    if not 0 < len(large) <= _MOST_ACROSS:
        return []
    found = {id(run) for run in large}
    others = [run for run in runs if id(run) not in found]
    boxes = [run.box for run in others]
    return [
        run
        for run in large
        if any(
            owner_of(char, [run.box], [0]) == 0 and not char.text.isspace()
            for near in near_boxes(run.box, boxes, range(len(boxes)))
            for char in others[near].chars
        )
    ]


def find_line_numbers(runs: Sequence[Run]) -> list[Run]:
    """The numbers of lines in a margin or between columns of prose: they rise by the same step in
    one column that holds nothing else, beside long lines half of which go on in lower case, as the
    rows of a table do not.
    """
    columns: dict[int, list[Run]] = {}
    for run in runs:
        if run.horizontal and run.text.strip().isdecimal():
            columns.setdefault(round(run.box[2] / _ONE_COLUMN), []).append(run)
    for column in columns.values():
        numbers = sorted(column, key=lambda run: run.box[1])
        steps = {int(other.text) - int(one.text) for one, other in pairwise(numbers)}
        if len(numbers) < _LEAST_NUMBERS or len(steps) > 1 or min(steps) < 1:
            continue
        own = set(map(id, numbers))
        x0, y0, x1, y1 = union([run.box for run in numbers])
        beside = [run for run in runs if id(run) not in own and y0 < run.box[3] and run.box[1] < y1]
        going_on = sum(
            run.text.lstrip()[:1].islower()
            and run.box[2] - run.box[0] > LONG_LINE_EMS * run.size
            and not run.mono
            for run in beside
        )
        if 2 * going_on > len(beside) and all(x1 < r.box[0] or r.box[2] < x0 for r in beside):
            return numbers
    return []


def assign_runs(runs: Sequence[Run], boxes: Sequence[Box]) -> tuple[list[list[Run]], list[Run]]:
    """(the pieces of lines that each rectangle owns, those that none owns), in content order.

    The rectangle of a line that stands across others owns that line alone.
    """
    order = owner_order(boxes)
    pieces: list[list[Run]] = [[] for _ in boxes]
    orphans: list[Run] = []
    places = {box: place for place, box in enumerate(boxes)}
    across = {
        id(run): places[box] for run in find_across(runs) if (box := round_out(run.box)) in places
    }
    order = [place for place in order if place not in across.values()]
    for run in runs:
        if id(run) in across:
            pieces[across[id(run)]].append(run)
            continue
        near = near_boxes(run.box, boxes, order)
        if near and contains(boxes[near[0]], run.box):
            pieces[near[0]].append(run)  # it holds the whole line: no need to ask each character
            continue
        current: int | None = None
        piece: list[Char] = []
        level = _level_of(run)
        for char in run.chars:
            owner = (
                current
                if char.text.isspace() and current is not None
                else owner_of(char, boxes, near, level)
            )
            if owner != current:
                if current is not None and piece:
                    (orphans if current < 0 else pieces[current]).append(
                        run._replace(chars=tuple(piece))
                    )
                current, piece = owner, []
            piece.append(char)
        if piece and current is not None:
            (orphans if current < 0 else pieces[current]).append(run._replace(chars=tuple(piece)))
    return [[run for run in group if _visible(run)] for group in pieces], [
        run for run in orphans if _visible(run)
    ]


def _visible(run: Run) -> bool:
    return any(not char.text.isspace() for char in run.chars)


def region_letters(runs: Sequence[Run]) -> str:
    """Letters and digits of a region in reading order, as the page prints them."""
    return letters("\n".join(line_text(line) for line in visual_lines(runs)))


def proves(kind: str, text: str, printed: str) -> bool:
    """True when a block says the printed letters in order; in tables and code in any order.

    A header cell equal to the one to its left may be that cell, repeated over another column.
    """
    said = letters(text)
    if said == printed or kind not in ("table", "code"):
        return said == printed
    surplus = Counter(said)
    surplus.subtract(printed)
    if kind == "table" and any(surplus.values()):
        for line in text.split("\n")[: MAX_HEADER_ROWS + 1]:
            for left, cell in pairwise(re.split(r"(?<!\\)\|", line)):
                repeated = Counter(letters(cell)) if cell == left else Counter[str]()
                if all(surplus[char] >= count for char, count in repeated.items()):
                    surplus.subtract(repeated)
    return not any(surplus.values())


def is_stretched(kind: str, box: Box, runs: Sequence[Run]) -> bool:
    """True for a rectangle larger than its text by more than _STRETCH on two sides, or _LOOSE on
    all; that of a picture or a formula is not that of its text.
    """
    x0, y0, x1, y1 = union([run.box for run in runs])
    beyond = sorted((x0 - box[0], y0 - box[1], box[2] - x1, box[3] - y1))
    return kind not in ("picture", "formula") and (beyond[-2] > _STRETCH or beyond[0] > _LOOSE)


def find_unproved(
    page: int, runs: Sequence[Run], facts_text: str, blocks: Sequence[Block]
) -> dict[int, str]:
    """Ordinal to reason for each block of a page that its rectangle does not print.

    Tables and code are compared as multisets of letters and digits, all else in reading order. A
    rectangle that reaches far beyond its text on two sides, or beyond it on all, is not that of its
    text.
    """
    failures: dict[int, str] = {}
    pieces, _ = assign_runs(runs, [block.bbox for block in blocks if block.bbox])
    for block, found in zip(blocks, pieces, strict=True):
        said, printed = letters(facts_text[block.start : block.end]), region_letters(found)
        if not proves(block.kind, facts_text[block.start : block.end], printed):
            failures[block.ordinal] = (
                f"page {page} prints {printed[:60]!r} in the rectangle, the facts say {said[:60]!r}"
            )
        elif found and block.bbox and is_stretched(block.kind, block.bbox, found):
            failures[block.ordinal] = (
                f"page {page}: the rectangle reaches beyond the text that is printed in it"
            )
    return failures
