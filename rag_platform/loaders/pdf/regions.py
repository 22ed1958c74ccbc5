"""Which region of a PDF page owns each character, and the check of blocks against the page.

A page is divided into regions: rectangles with a label. Every visible character belongs to exactly
one region, the smallest that contains its centre, and a region's text is made of the characters it
owns. So no text is lost or repeated, and every stored block can be verified by applying the same
rule to the stored rectangles.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

from rag_platform.ir import Block, Box
from rag_platform.loaders.pdf.printed.lines import line_text, visual_lines
from rag_platform.loaders.pdf.printed.runs import (
    Char,
    Run,
    area,
    bounding_box,
    contains,
    round_out,
    usual_size,
)
from rag_platform.text.scripts import letters

MAX_HEADER_ROWS = 6  # of a table
MIN_ROWS = 3  # of cells in text that form a table
LEADER = re.compile(r"(?:\. ?){4}\s*\d+(?:, ?\d+)*\s*$")  # between an entry and its pages
# points; in 3,765 text blocks of 150 PDFs the largest excess on two sides is 27. On one side it may
# be larger: a line of a paragraph can belong to a block that lies within it
_MAX_EXCESS = 36.0
_MAX_MARGIN = 5.0  # points; each of 7,084 blocks of 215 PDFs touches its text on some side
_WATERMARK_SIZE = 2.0  # font size of a watermark to that of most letters, at least
_MAX_WATERMARKS = 200
_MIN_LINE_NUMBERS = 5  # fewer may rise by the same step in one column by chance
LONG_LINE_EMS = 15  # shorter lines are cells, addresses and verse
_COLUMN_SLACK = 3.0  # points between the right edges of numbers in one column


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of a page with the layout model's label, and the structure of a table."""

    bbox: Box
    label: str
    grid: tuple[tuple[float, ...], tuple[float, ...]] | None = None  # inner borders: xs, ys
    rules: tuple[tuple[float, float, float], ...] = ()  # drawn vertical lines: x, top, bottom
    lines: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())  # drawn through all of it: xs, ys


def owner_order(boxes: Sequence[Box]) -> list[int]:
    """Positions of the rectangles in the order in which they claim characters."""
    return sorted(range(len(boxes)), key=lambda i: (area(boxes[i]), i))


def owner_of(
    char: Char, boxes: Sequence[Box], order: Sequence[int], level: float | None = None
) -> int:
    """The position of the rectangle that owns a character, -1 if none contains its centre.

    With the `level` of its line, the height of the centre is tried only after that level:
    otherwise the tall letters of a word could belong to the upper and the low ones to the lower of
    two overlapping rectangles.
    """
    x, middle = (char.x0 + char.x1) / 2, (char.y0 + char.y1) / 2
    for y in (middle,) if level is None else (level, middle):
        for i in order:
            x0, y0, x1, y1 = boxes[i]
            if x0 <= x <= x1 and y0 <= y <= y1:
                return i
    return -1


def _level_of(run: Run) -> float | None:
    """The median y of the letters' centres; None for a run that is not horizontal."""
    middles = sorted((char.y0 + char.y1) / 2 for char in run.chars if not char.text.isspace())
    return middles[len(middles) // 2] if run.horizontal else None


def near_boxes(box: Box, boxes: Sequence[Box], order: Iterable[int]) -> list[int]:
    """The positions, in `order`, of the boxes that touch or overlap `box`."""
    x0, y0, x1, y1 = box
    return [
        i
        for i in order
        if boxes[i][0] <= x1 and boxes[i][2] >= x0 and boxes[i][1] <= y1 and boxes[i][3] >= y0
    ]


def find_watermarks(runs: Sequence[Run]) -> list[Run]:
    """The lines printed across other text: slanted or in far larger letters, with the centre of a
    letter of another line in their rectangle. [] if there are many candidates, as on a map.
    """
    usual = usual_size((run.size, len(run.chars)) for run in runs)
    large = [run for run in runs if run.slanted or run.size > _WATERMARK_SIZE * usual]
    if not 0 < len(large) <= _MAX_WATERMARKS:
        return []
    large_ids = set(map(id, large))
    others = [run for run in runs if id(run) not in large_ids]
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
    """The line numbers in a margin or between columns of prose: numbers that rise by one step in a
    column of their own, beside long lines of which, unlike rows of a table, most begin in lower
    case.
    """
    columns: dict[int, list[Run]] = {}
    for run in runs:
        if run.horizontal and run.text.strip().isdecimal():
            columns.setdefault(round(run.box[2] / _COLUMN_SLACK), []).append(run)
    for column in columns.values():
        numbers = sorted(column, key=lambda run: run.box[1])
        steps = {int(other.text) - int(one.text) for one, other in pairwise(numbers)}
        if len(numbers) < _MIN_LINE_NUMBERS or len(steps) > 1 or min(steps) < 1:
            continue
        number_ids = set(map(id, numbers))
        x0, y0, x1, y1 = bounding_box(numbers)
        beside = [
            run for run in runs if id(run) not in number_ids and y0 < run.box[3] and run.box[1] < y1
        ]
        continuing = sum(
            run.text.lstrip()[:1].islower()
            and run.box[2] - run.box[0] > LONG_LINE_EMS * run.size
            and not run.mono
            for run in beside
        )
        if 2 * continuing > len(beside) and all(x1 < r.box[0] or r.box[2] < x0 for r in beside):
            return numbers
    return []


def assign_runs(runs: Sequence[Run], boxes: Sequence[Box]) -> tuple[list[list[Run]], list[Run]]:
    """(the runs that each rectangle owns, those that none owns), in content order; a run is cut
    where the owner changes.

    The rectangle of a watermark owns the watermark alone.
    """
    order = owner_order(boxes)
    pieces: list[list[Run]] = [[] for _ in boxes]
    orphans: list[Run] = []
    positions = {box: position for position, box in enumerate(boxes)}
    watermarks = {
        id(run): positions[box]
        for run in find_watermarks(runs)
        if (box := round_out(run.box)) in positions
    }
    order = [position for position in order if position not in watermarks.values()]
    for run in runs:
        if id(run) in watermarks:
            pieces[watermarks[id(run)]].append(run)
            continue
        near = near_boxes(run.box, boxes, order)
        if near and contains(boxes[near[0]], run.box):
            pieces[near[0]].append(run)  # the rectangle contains the whole line
            continue
        level = _level_of(run)
        owners: list[int] = []
        for char in run.chars:
            after_owned = owners and char.text.isspace()
            owners.append(owners[-1] if after_owned else owner_of(char, boxes, near, level))
        for owner, group in groupby(zip(owners, run.chars, strict=True), key=itemgetter(0)):
            piece = run._replace(chars=tuple(char for _, char in group))
            (orphans if owner < 0 else pieces[owner]).append(piece)
    return [[run for run in group if run.text.strip()] for group in pieces], [
        run for run in orphans if run.text.strip()
    ]


def region_letters(runs: Sequence[Run]) -> str:
    """The letters and digits of runs in reading order."""
    return letters("\n".join(line_text(line) for line in visual_lines(runs)))


def matches_print(kind: str, text: str, printed: str) -> bool:
    """True if a block's text has the `printed` letters: in order, but in tables and code in any.

    A header cell equal to its left neighbour may be a repetition of that cell.
    """
    written = letters(text)
    if written == printed or kind not in ("table", "code"):
        return written == printed
    surplus = Counter(written)
    surplus.subtract(printed)
    if kind == "table" and any(surplus.values()):
        for line in text.split("\n")[: MAX_HEADER_ROWS + 1]:
            for left, cell in pairwise(re.split(r"(?<!\\)\|", line)):
                repeated = Counter(letters(cell)) if cell == left else Counter[str]()
                if all(surplus[char] >= count for char, count in repeated.items()):
                    surplus.subtract(repeated)
    return not any(surplus.values())


def is_stretched(kind: str, box: Box, runs: Sequence[Run]) -> bool:
    """True if a rectangle exceeds its text by _MAX_EXCESS on two sides or _MAX_MARGIN on all; never
    for pictures and formulas, whose rectangles are not those of text.
    """
    x0, y0, x1, y1 = bounding_box(runs)
    excess = sorted((x0 - box[0], y0 - box[1], box[2] - x1, box[3] - y1))
    return kind not in ("picture", "formula") and (
        excess[-2] > _MAX_EXCESS or excess[0] > _MAX_MARGIN
    )


def find_mismatched(
    page: int, runs: Sequence[Run], facts_text: str, blocks: Sequence[Block]
) -> dict[int, str]:
    """Ordinal to reason for each block of a page whose text is not what its rectangle prints, or
    whose rectangle is stretched.

    Tables and code are compared as multisets of letters and digits, all else in reading order.
    """
    failures: dict[int, str] = {}
    pieces, _ = assign_runs(runs, [block.bbox for block in blocks if block.bbox])
    for block, owned in zip(blocks, pieces, strict=True):
        text, printed = facts_text[block.start : block.end], region_letters(owned)
        if not matches_print(block.kind, text, printed):
            failures[block.ordinal] = (
                f"page {page} prints {printed[:60]!r} in the rectangle, the facts say"
                f" {letters(text)[:60]!r}"
            )
        elif owned and block.bbox and is_stretched(block.kind, block.bbox, owned):
            failures[block.ordinal] = (
                f"page {page}: the rectangle reaches beyond the text that is printed in it"
            )
    return failures
