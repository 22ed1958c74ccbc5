"""Tables whose parts the engine found in blocks of their own: the header and rows apart from the
others are joined to the rows of figures whose columns they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from typing import NamedTuple

from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.lines import opens_item, visual_lines
from rag_platform.loaders.pdf.printed.runs import (
    Run,
    bounding_box,
    contains,
    group_while,
)
from rag_platform.loaders.pdf.regions import LONG_LINE_EMS, MAX_HEADER_ROWS
from rag_platform.loaders.pdf.tables import FIGURE, YEAR, are_aligned

Piece = tuple[str, list[Run]]  # label and characters of a region

_PHRASE_GAP = 0.8  # ems between the phrases of a line, at least
_LINE_GAP = 2.5  # ems between the parts of a table, at most
_HEADER_GAP = 1.2  # ems between the lines of a header, at most
_SIZES = (0.7, 1.12)  # of letters above and below the figures, to that of the figures
_INDENT = 4.0  # ems by which labels are indented, at most
_MARK = 4  # letters of a mark in the place of a figure, at most
_OVERHANG = 3.0  # ems by which the header of a column is wider than its figures, at most


class _Phrase(NamedTuple):
    text: str
    left: float
    right: float


class _Columns(NamedTuple):
    """The left edges of the labels and of the values, which may be signs, and the columns of
    figures.
    """

    labels: float
    values: float
    figures: list[tuple[float, float]]
    size: float


def join_table_parts(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces, with the header and rows of a table joined that stand in several of them, and
    without prose at the ends of a table.
    """
    result = [part for piece in pieces for part in _detach_prose(*piece)]
    tables = [group for label, group in result if label == "text" and _find_columns(group)]
    for table in tables:
        for up in (False, True):
            if columns := _find_columns(table):
                lines = _walk(_near_lines(table, result, columns), table, columns, up=up)
                _extend(table, lines, result, tables)
    return [piece for piece in result if piece[1]]


def _detach_prose(label: str, group: list[Run]) -> list[Piece]:
    """The piece, with paragraphs above and below the rows of its table in pieces of their own."""
    columns = _find_columns(group) if label == "text" else None
    if columns is None:
        return [(label, group)]
    lines = [(line, _read_phrases(line)) for line in _group_lines(group)]
    rows = [at for at, (_, line) in enumerate(lines) if _is_row(line, columns)]
    prose = [at for at, (_, line) in enumerate(lines) if _is_prose(line, columns)]
    start = max((at + 1 for at in prose if at < rows[0]), default=0)
    end = min((at for at in prose if at > rows[-1]), default=len(lines))
    parts = [lines[:start], lines[start:end], lines[end:]]
    return [(label, [run for line, _ in part for run in line]) for part in parts if part]


def _is_prose(line: Sequence[_Phrase], columns: _Columns) -> bool:
    """True for words that run from the labels into the figures."""
    (_, left, right), *others = line
    return not others and left < columns.values < right - LONG_LINE_EMS / 2 * columns.size


def _extend(
    table: list[Run], lines: list[list[Run]], pieces: list[Piece], tables: Sequence[list[Run]]
) -> None:
    """Move the lines from their pieces to the table, but none of another table unless all of that,
    if most of the whole has cells and no other text is within it.
    """
    ids = set(map(id, chain(table, *lines)))
    torn = {id(run) for group in tables if not ids.issuperset(map(id, group)) for run in group}
    lines = list(takewhile(lambda line: torn.isdisjoint(map(id, line)), lines))
    joined = [*table, *chain(*lines)]
    box, ids = bounding_box(joined), set(map(id, joined))
    others = [run for _, group in pieces for run in group if id(run) not in ids]
    if (
        lines
        and not any(contains(box, run.box) for run in others)
        and are_aligned(visual_lines(joined))
    ):
        for _, group in pieces:
            group[:] = joined if group is table else [run for run in group if id(run) not in ids]


def _near_lines(table: list[Run], pieces: Sequence[Piece], columns: _Columns) -> list[list[Run]]:
    """The lines of the other pieces that are set as large as the table and not beside it."""
    right = columns.figures[-1][1]
    return _group_lines(
        run
        for _, group in pieces
        if group is not table
        for run in group
        if run.horizontal and run.box[0] < right and run.box[2] > columns.labels
    )


def _group_lines(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs by line, from the top."""

    def overlaps(line: list[Run], run: Run) -> bool:
        (_, top, _, bottom), (_, upper, _, lower) = line[0].box, run.box
        return min(bottom, lower) - max(top, upper) > 0.5 * min(bottom - top, lower - upper)

    return group_while(sorted(runs, key=lambda run: run.box[1] + run.box[3]), overlaps)


def _read_phrases(line: Sequence[Run]) -> list[_Phrase]:
    """The phrases of a line from left to right."""
    words = sorted((word for run in line for word in run.words()), key=lambda word: word.box[0])
    phrases: list[_Phrase] = []
    for word in words:
        left, _, right, _ = word.box
        last = phrases[-1] if phrases else None
        if last and left - last.right < _PHRASE_GAP * word.size:
            phrases[-1] = _Phrase(f"{last.text} {word.text}", last.left, right)
        else:
            phrases.append(_Phrase(word.text, left, right))
    return phrases


def _find_columns(group: Sequence[Run]) -> _Columns | None:
    """The columns of lines of which most are labels with figures; None for other text."""
    if any(run.mono or not run.horizontal or bidi.has_rtl(run.text) for run in group):
        return None
    lines = [_read_phrases(line) for line in _group_lines(group)]
    rows = [
        line
        for line in lines
        if len(line) > 1 and not FIGURE.fullmatch(line[0].text) and all(map(_is_value, line[1:]))
    ]
    spans = sorted((p.left, p.right) for row in rows for p in row[1:] if _has_digit(p))
    if len(rows) < max(2, len(lines) / 2) or not spans:
        return None
    columns = group_while(spans, lambda column, one: one[0] < max(right for _, right in column))
    figures = [(column[0][0], max(right for _, right in column)) for column in columns]
    labels = min(row[0].left for row in rows)
    values = min(phrase.left for row in rows for phrase in row[1:])
    found = _Columns(labels, values, figures, max(run.size for run in group))
    return found if any(_is_row(line, found) for line in lines) else None


def _is_value(phrase: _Phrase) -> bool:
    """True for figures, and for marks such as `‡` or `n/a` in their place."""
    return len(phrase.text) <= _MARK or FIGURE.fullmatch(phrase.text) is not None


def _has_digit(phrase: _Phrase) -> bool:
    return any(map(str.isdigit, phrase.text))


def _is_label(phrase: _Phrase, columns: _Columns) -> bool:
    """True for a phrase in the column of labels."""
    return _begins_row(phrase, columns) and phrase.right < columns.figures[0][0]


def _begins_row(phrase: _Phrase, columns: _Columns) -> bool:
    return columns.labels - _INDENT * columns.size < phrase.left < columns.values


def _is_row(line: Sequence[_Phrase], columns: _Columns) -> bool:
    """True for figures in the columns, behind a label if any: without one, not only years."""
    labelled = _begins_row(line[0], columns)
    values = line[1:] if labelled else line
    return (
        all(map(_is_value, values))
        and any(_has_digit(value) for value in values)
        and all(
            any(left < value.right and value.left < right for left, right in columns.figures)
            for value in values
            if _has_digit(value)
        )
        and (labelled or not all(YEAR.fullmatch(value.text) for value in values))
    )


def _is_header(line: Sequence[_Phrase], columns: _Columns) -> bool:
    """True for names of columns of figures, beside one of the labels if any; not for a title in the
    middle of the whole table.
    """
    last = columns.figures[-1][1]
    names = [phrase for phrase in line if not _is_label(phrase, columns)]
    reach = _OVERHANG * columns.size
    middle = abs(line[0].left + line[-1].right - columns.labels - last) / 2
    return (
        bool(names)
        and all(
            phrase.left > max(columns.values - reach, columns.labels + columns.size)
            and phrase.right < last + reach
            for phrase in names
        )
        and (len(line) > 1 or middle > columns.size)
    )


def _walk(
    lines: Sequence[list[Run]], table: Sequence[Run], columns: _Columns, *, up: bool
) -> list[list[Run]]:
    """The lines above or below a table's rows that belong to it, each with the labels between."""
    taken: list[list[Run]] = []
    labels: list[list[Run]] = []  # lines of nothing but labels since
    headers = 0
    rows = [line for line in _group_lines(table) if _is_row(_read_phrases(line), columns)]
    edge = bounding_box(rows[0] if up else table)
    for line in reversed(lines) if up else lines:
        box = bounding_box(line)
        gap = edge[1] - box[3] if up else box[1] - edge[3]
        if gap < -columns.size / 2:
            continue  # beside the table or on its other side
        phrases = _read_phrases(line)
        if gap > (_HEADER_GAP if headers else _LINE_GAP) * columns.size or any(
            not _SIZES[0] < run.size / columns.size < _SIZES[1] for run in line
        ):
            break
        edge = box
        if not headers and _is_row(phrases, columns):
            pass
        elif up and headers < MAX_HEADER_ROWS and _is_header(phrases, columns):
            headers += 1
        elif (
            not headers
            and len(phrases) == 1
            and _is_label(phrases[0], columns)
            and not opens_item(phrases[0].text)
        ):
            labels.append(line)
            continue
        else:
            break
        taken.append([*chain(*labels), *line])
        labels = []
    return taken
