"""Signature blocks: the fields of several parties side by side, with the same labels in every
column. They are read column by column.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, groupby

from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.lines import visual_lines
from rag_platform.loaders.pdf.printed.runs import Run
from rag_platform.text.scripts import letters
from rag_platform.text.sentences import field_label

_COLUMN_GAP = 1.5  # ems between two columns
_MAX_ROWS_APART = 3  # from one row of equal labels to the next


def find_parallel_fields(runs: Sequence[Run]) -> list[list[list[Run]]]:
    """The columns, from the left, of each group of rows of which at least two repeat a label in
    every column, one of them with a colon; [] on a page written from right to left.
    """
    if bidi.is_rtl(runs):
        return []
    rows = [
        [piece for run in line for piece in _split_at_gaps(run)]
        for line in visual_lines([run for run in runs if run.horizontal])
    ]
    found: list[list[list[Run]]] = []
    start = end = 0  # end: of the group before
    while start < len(rows):
        lefts = _repeated_lefts(rows[start])
        repeats = _find_repeats(rows, start, lefts)
        start += 1
        if len(repeats) < 2 or not any(field_label(rows[at][0].text) for at in repeats):
            continue
        first, last = repeats[0], repeats[-1]
        while first > end and _fills_columns(rows[first - 1], lefts):
            first -= 1
        while last + 1 < len(rows) and _fills_columns(rows[last + 1], lefts):
            last += 1
        columns: list[list[Run]] = [[] for _ in lefts]
        for run in chain(*rows[first : last + 1]):
            columns[_column_of(run, lefts)].append(run)
        found.append(columns)
        start = end = last + 1
    return found


def _split_at_gaps(run: Run) -> Iterator[Run]:
    """The run, cut where typed spaces leave a wide gap."""
    start = 0
    for blank, group in groupby(range(len(run.chars)), lambda at: run.chars[at].text.isspace()):
        places = list(group)
        if not blank or not start < places[0] < places[-1] + 1 < len(run.chars):
            continue
        if run.chars[places[-1] + 1].x0 - run.chars[places[0] - 1].x1 > _COLUMN_GAP * run.size:
            yield run._replace(chars=run.chars[start : places[0]])
            start = places[-1] + 1
    yield run._replace(chars=run.chars[start:]) if start else run


def _label(run: Run) -> str:
    text = run.text.strip()
    return field_label(text) or (text if letters(text) else "")


def _repeated_lefts(row: Sequence[Run]) -> list[float]:
    """The left edge of each occurrence of a row's first label; [] if it is not repeated."""
    first, *others = map(_label, row)
    return [run.box[0] for run in row if _label(run) == first] if first in others and first else []


def _find_repeats(rows: Sequence[Sequence[Run]], at: int, lefts: Sequence[float]) -> list[int]:
    """The indexes, from `at` on, of rows close together that repeat a label in every column."""
    found = [at] if lefts else []
    for row in range(at + 1, len(rows)):
        if not found or row - found[-1] > _MAX_ROWS_APART or not _fits(rows[row], lefts):
            break
        label = _label(rows[row][0])
        columns = [_column_of(run, lefts) for run in rows[row] if _label(run) == label]
        if label and columns == list(range(len(lefts))):
            found.append(row)
    return found


def _column_of(run: Run, lefts: Sequence[float]) -> int:
    return bisect_right(lefts, run.box[0] + _COLUMN_GAP * run.size) - 1


def _fits(row: Sequence[Run], lefts: Sequence[float]) -> bool:
    """True if no piece of a row reaches from one column into the next."""
    return all(
        (column := _column_of(run, lefts)) >= 0
        and (column + 1 == len(lefts) or run.box[2] + run.size / 2 < lefts[column + 1])
        for run in row
    )


def _fills_columns(row: Sequence[Run], lefts: Sequence[float]) -> bool:
    """True for a row with text in several columns."""
    return _fits(row, lefts) and len({_column_of(run, lefts) for run in row}) > 1
