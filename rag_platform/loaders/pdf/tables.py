"""Tables of a PDF page: characters into the cells of a grid, header cells over several columns
spelled out, pipe tables.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise
from statistics import fmean, median

from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.lines import flow_lines, line_text, visual_lines
from rag_platform.loaders.pdf.printed.runs import Char, Run, union
from rag_platform.loaders.pdf.regions import MAX_HEADER_ROWS, Region
from rag_platform.text import pipe_tables

_FIGURE = re.compile(r"[\s$€£¥%()\[\]<>≤≥±+\-–—−*.,:/\d]+")
_YEAR = re.compile(r"(?:1[5-9]|20)\d\d(?:\s*[-–/]\s*(?:\d\d|\d{4}))?")
_WORD_GAP = 0.8  # em; letters that stand further apart are two words
MIN_LINES = 2  # between rows; a single one parts a header from the rest
_EVEN = 0.15  # em, by which the steps from line to line of a cell may differ
_MOSTLY = 0.25  # of the rows of a table, from which their first cells may go on
_CELL_GAP = 0.2  # em; the same where a border stands between them
_NEAR = 3.0  # points; in tight tables the model sets a border up to 2.5 off the line drawn for it


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    left: float
    right: float
    top: float
    bottom: float


_Row = dict[int, _Cell]


def table_text(runs: Sequence[Run], region: Region, words: frozenset[str]) -> str:
    """The pipe table of a region with a grid, "" for fewer than two rows or columns.

    A header cell over several columns is repeated for each. In leftward text the first column is
    the rightmost.
    """
    columns, rows = region.grid or ((), ())
    if sum(not run.horizontal for run in runs) > len(runs) / 2 and not bidi.is_vertical(runs):
        return ""  # the page lies on its side: a grid of it would cut words
    seen = [bidi.order_as_seen(run) for run in runs]

    def fill(borders: Sequence[float], rows: Sequence[float]) -> list[_Row]:
        pieces = [piece for run in seen for piece in _pieces(run, borders, region.rules)]
        apart = _find_gaps(pieces, borders) or _split_rows(pieces, borders, rows)
        return _grid(pieces, borders, apart, words)

    borders = _align(columns, region)
    found = fill(_split_columns(seen, borders, rows), rows)
    if _is_ruled(found, *region.lines):
        found = fill(*region.lines)
    found = _join_columns(found)
    grid = _join_headers([_mirror(row) for row in found] if bidi.is_leftwards(runs) else found)
    width = len({column for row in grid for column in row})
    if len(grid) < 2 or width < 2:
        return ""
    header, *body = _spell_out(grid)
    return "\n".join(
        [
            pipe_tables.format_row(header),
            pipe_tables.format_rule(len(header)),
            *map(pipe_tables.format_row, body),
        ]
    )


# --- characters into cells ----------------------------------------------------------------------


def _grid(
    pieces: Sequence[Run], columns: Sequence[float], rows: Sequence[float], words: frozenset[str]
) -> list[_Row]:
    """The rows that hold text, each from column to cell."""
    cells: dict[tuple[int, int], list[Run]] = {}
    for piece in pieces:
        x0, y0, x1, y1 = piece.box
        place = bisect_right(rows, (y0 + y1) / 2), bisect_right(columns, (x0 + x1) / 2)
        cells.setdefault(place, []).append(piece)
    grid: dict[int, _Row] = {}
    for (row, column), held in sorted(cells.items(), key=lambda item: item[0]):
        box = union([piece.box for piece in held])
        text = flow_lines([line_text(line) for line in visual_lines(held)], words)
        grid.setdefault(row, {})[column] = _Cell(text, box[0], box[2], box[1], box[3])
    return list(grid.values())


def _find_gaps(pieces: Sequence[Run], columns: Sequence[float]) -> list[float]:
    """The borders of rows that stand further apart than the lines of cells, [] without any."""
    lines = visual_lines(pieces)
    if len(lines) < 2 + MIN_LINES:
        return []
    # glyphs without a tail are most
    bases = [median(char.y1 for run in line for char in run.chars) for line in lines]
    steps = [below - above for above, below in pairwise(bases)]
    size = median(run.size for run in pieces)
    near, wide = min(steps) + _EVEN * size, min(steps) + 2 * _EVEN * size
    # lines that overlap are cells centred beside others
    if not size <= min(steps) < 2 * size or any(near < step < wide for step in steps):
        return []
    filled = [{bisect_right(columns, (r.box[0] + r.box[2]) / 2) for r in line} for line in lines]
    starts = [0, *(at for at, step in enumerate(steps, 1) if step > near), len(lines)]
    _, *rows = [filled[start:end] for start, end in pairwise(starts)]
    more = [(row[0], cells) for row in rows for cells in row[1:]]
    goes_on = {column for _, cells in more for column in cells}
    opens = Counter(column for row in rows for column in row[0] - goes_on)
    alone = [cells for _, cells in more if cells == {0}]
    if (
        not all(cells < first for first, cells in more)
        or 2 * max(opens.values(), default=0) <= len(rows)
        or 0 < len(alone) < _MOSTLY * len(rows)  # headings above the rows below them
    ):
        return []
    return [(bases[at - 1] + bases[at] - size) / 2 for at in starts[1:-1]]


def _split_rows(
    pieces: Sequence[Run], columns: Sequence[float], rows: Sequence[float]
) -> list[float]:
    """The borders, with one more above each line of a row that is an entry of its own."""
    borders = list(rows)
    held: dict[int, list[Run]] = {}
    for piece in pieces:
        held.setdefault(bisect_right(rows, (piece.box[1] + piece.box[3]) / 2), []).append(piece)
    for row in held.values():
        entry: dict[int, str] = {}  # its first line
        reached = 0.0
        for line in visual_lines(row):
            cells = {
                bisect_right(columns, (run.box[0] + run.box[2]) / 2): run.text.strip()
                for run in line
            }
            top = min(run.box[1] for run in line)
            # a line that overlaps the one above is a cell centred beside two lines of another
            if reached <= top and _is_entry(entry, cells):
                borders.append(top)
                entry = cells
            entry = entry or cells
            reached = max(run.box[3] for run in line)
    return sorted(borders)


def _is_entry(above: dict[int, str], line: dict[int, str]) -> bool:
    """True for a line with a label and a figure below others of the same row: in all of its cells,
    or in two of a sum, which has no first cell. What stands below a figure in brackets belongs to
    it, as do the further ones of several.
    """
    shared = sorted(above.keys() & line.keys())
    return (
        len(shared) > 1
        and shared[0] == min(line)
        and (
            len(shared) == len(above) > 2 if 0 in shared else any(map(str.isalpha, line[shared[0]]))
        )
        and any(
            _is_figure(above[column]) and _is_figure(line[column]) and line[column][0] not in "([<"
            for column in shared[1:]
        )
    )


def _is_figure(text: str) -> bool:
    """True for one figure that goes on in no other line."""
    whole = _FIGURE.fullmatch(text) is not None and " " not in text
    return whole and any(map(str.isdigit, text)) and text[-1] not in ",-–/"


def _is_ruled(grid: Sequence[_Row], columns: Sequence[float], rows: Sequence[float]) -> bool:
    """True where the drawn lines part all rows and columns of a table: no two rows that fill the
    same cells stand between two of them, but for a header in two lines.
    """
    if not columns or not MIN_LINES <= len(rows) < len(grid):
        return False
    filled: dict[int, list[set[int]]] = {}
    for row in grid:
        middle = sum(cell.top + cell.bottom for cell in row.values()) / (2 * len(row))
        filled.setdefault(bisect_right(rows, middle), []).append(set(row))
    header = filled.get(0, [])
    first = min((column for cells in header for column in cells), default=0)
    if sum(first in cells for cells in header) == 1:
        filled[0] = []
    return all(
        len(one & other) < 2 for held in filled.values() for one, other in combinations(held, 2)
    )


def _join_columns(grid: list[_Row]) -> list[_Row]:
    """The rows; two columns of which each row fills one, and the first line only heads one, are
    one, whose header is centred over cells at the left.
    """
    columns = sorted({column for row in grid for column in row})
    for one, other in pairwise(columns):
        if (one in grid[0]) != (other in grid[0]) and not any(
            one in row and other in row for row in grid
        ):
            for row in grid:
                if other in row:
                    row[one] = row.pop(other)
            return _join_columns([dict(sorted(row.items())) for row in grid])
    return grid


def _mirror(row: _Row) -> _Row:
    """The row as it would stand if it were written from left to right."""
    cells = sorted(row.items(), reverse=True)
    return {
        -column: _Cell(cell.text, -cell.right, -cell.left, cell.top, cell.bottom)
        for column, cell in cells
    }


def _align(columns: Sequence[float], region: Region) -> list[float]:
    """The lines drawn through the whole table where each border has one, else the borders, each
    moved between the lines drawn near it.
    """
    whole = region.lines[0]
    if whole and all(_near(border, whole) for border in columns):
        return list(whole)
    drawn = {x for x, _, _ in region.rules}
    return [fmean(_near(border, drawn) or [border]) for border in columns]


def _near(border: float, lines: Iterable[float]) -> list[float]:
    return [x for x in lines if abs(x - border) <= _NEAR]


def _pieces(
    run: Run, columns: Sequence[float], rules: Sequence[tuple[float, float, float]]
) -> list[Run]:
    """A run cut where column borders lie between its phrases.

    A phrase is words no more than a space apart, but not two figures or two words that a line is
    drawn between; it stands on one side of a border even where it crosses it, and so does a column
    of Chinese.
    """
    if bidi.is_vertical([run]):
        return [run]
    space = (0.65 if run.mono else 0.45) * run.size
    middle = (run.box[1] + run.box[3]) / 2
    ruled = sorted(x for x, top, bottom in rules if top <= middle <= bottom)
    phrases: list[list[Char]] = []
    figure = False
    for spaced in _spaced(run):
        for at, word in enumerate(_words(spaced, run.size, columns, ruled)):
            before, figure = figure, bool(_FIGURE.fullmatch("".join(char.text for char in word)))
            last = phrases[-1][-1] if phrases else word[0]
            if (
                phrases
                and not at
                and not (before and figure)
                and abs(word[0].x0 - last.x1) < space
                and not (_parted(last, word[0], columns) and _parted(last, word[0], ruled))
            ):
                phrases[-1] += [last._replace(text=" "), *word]
            else:
                phrases.append(word)
    pieces: list[tuple[int, list[Char]]] = []
    for phrase in phrases:
        column = bisect_right(
            columns, (min(char.x0 for char in phrase) + max(char.x1 for char in phrase)) / 2
        )
        if pieces and pieces[-1][0] == column:
            pieces[-1][1].extend((pieces[-1][1][-1]._replace(text=" "), *phrase))
        else:
            pieces.append((column, phrase))
    return [run._replace(chars=tuple(chars)) for _, chars in pieces]


def _spaced(run: Run) -> list[list[Char]]:
    """The characters between spaces."""
    groups = groupby(run.chars, lambda char: char.text.isspace())
    return [list(group) for blank, group in groups if not blank]


def _words(
    chars: Sequence[Char], size: float, borders: Sequence[float] = (), ruled: Sequence[float] = ()
) -> list[list[Char]]:
    """Characters without a space, cut at wide gaps, and at borders that stand in a gap or have a
    line drawn: no space is written between cells, nor between the words of Chinese.
    """
    words = [[chars[0]]]
    for last, char in pairwise(chars):
        gap = abs(char.x0 - last.x1) / size
        if gap > _WORD_GAP or (
            _parted(last, char, borders) and (gap > _CELL_GAP or _parted(last, char, ruled))
        ):
            words.append([char])
        else:
            words[-1].append(char)
    return words


def _parted(one: Char, other: Char, borders: Sequence[float]) -> bool:
    """Whether a border stands between a character and the next."""
    return bisect_right(borders, one.x1) < bisect_right(borders, other.x0)


def _split_columns(
    runs: Sequence[Run], columns: Sequence[float], rows: Sequence[float]
) -> list[float]:
    """The borders, with one more in each gap that most rows of a column share."""
    # (column, row) to words: left, right, has a letter or digit
    lines: dict[tuple[int, int], list[tuple[float, float, bool]]] = {}
    for run in runs:
        for word in (word for spaced in _spaced(run) for word in _words(spaced, run.size)):
            left, right = min(char.x0 for char in word), max(char.x1 for char in word)
            row = bisect_right(rows, (word[0].y0 + word[0].y1) / 2)
            said = any(char.text.isalnum() for char in word)
            lines.setdefault((bisect_right(columns, (left + right) / 2), row), []).append(
                (left, right, said)
            )
    size = sorted(run.size for run in runs)[len(runs) // 2] if runs else 0.0
    borders = list(columns)
    for column in range(len(columns) + 1):
        held = [sorted(found) for (at, _), found in lines.items() if at == column]
        borders += _gaps(held, 0.9 * size)
    return sorted(borders)


def _gaps(lines: Sequence[Sequence[tuple[float, float, bool]]], least: float) -> list[float]:
    """Gaps between words, `least` wide, that 3 lines and half of all share and few words cross."""
    found: list[tuple[float, float]] = []
    # in half points: a long table of many words must not cost the square of its words
    tried: set[int] = set()
    for line in lines:
        for (_, left, _), (right, _, _) in pairwise(line):
            for place in (
                ((left + right) / 2, right - least / 4, left + least / 4)
                if right - left >= least
                else ()
            ):
                if round(2 * place) in tried:
                    continue
                tried.add(round(2 * place))
                split = [gap for other in lines if (gap := _gap_at(other, place))]
                crossed = sum(any(a < place < b for a, b, said in other if said) for other in lines)
                low = max((a for a, _ in split), default=0.0)
                high = min((b for _, b in split), default=0.0)
                enough = (
                    len(split) >= max(3, 0.5 * len(lines))
                    and crossed <= max(1, 0.1 * len(lines))
                    and high - low >= least / 4
                )
                if enough and not any(a < high and low < b for a, b in found):
                    found.append((low, high))
    return [(low + high) / 2 for low, high in found]


def _gap_at(line: Sequence[tuple[float, float, bool]], place: float) -> tuple[float, float] | None:
    """The white space of a line around a place, when something is said on both sides of it."""
    before = [right for _, right, said in line if right <= place and said]
    after = [left for left, _, said in line if left >= place and said]
    if not before or not after or any(left < place < right for left, right, _ in line):
        return None
    return max(before), min(after)


# --- header cells over several columns ----------------------------------------------------------


def _spell_out(grid: Sequence[_Row]) -> list[list[str]]:
    """The rows as texts; a header cell is repeated over the columns that it heads."""
    columns = sorted({column for row in grid for column in row})
    rows = [[row[column].text if column in row else "" for column in columns] for row in grid]
    extent: dict[int, tuple[float, float]] = {}
    for place, column in enumerate(columns):
        held = [row[column] for row in grid[_header_rows(rows) :] if column in row] or [
            row[column] for row in grid if column in row
        ]
        extent[place] = (min(cell.left for cell in held), max(cell.right for cell in held))
    for number in range(_header_rows(rows)):
        cells, below = (
            {place: row[column] for place, column in enumerate(columns) if column in row}
            for row in grid[number : number + 2]
        )
        for place, (first, last) in _spans(cells, below, extent).items():
            rows[number][first : last + 1] = [cells[place].text] * (last + 1 - first)
    return rows


def _join_headers(grid: list[_Row]) -> list[_Row]:
    """The rows; header lines that the grid took for rows are one row again.

    Every cell of the upper line stands close above one of the lower line, and none has a neighbour
    without a line above it: that may be a header over both.
    """
    columns = sorted({column for row in grid for column in row})
    count = _header_rows(
        [[row[column].text if column in row else "" for column in columns] for row in grid]
    )
    joined: list[_Row] = []
    for number, row in enumerate(grid):
        if joined and number < count and _continues(joined[-1], row):
            above = joined.pop()
            row = {
                column: (
                    above[column]
                    if column not in row
                    else (
                        row[column] if column not in above else _stack(above[column], row[column])
                    )
                )
                for column in sorted({*above, *row})
            }
        joined.append(row)
    return joined


def _continues(above: _Row, row: _Row) -> bool:
    shared = above.keys() & row.keys()
    if max(shared, default=0) == min(row) or not above.keys() <= row.keys():
        return False
    for column in shared:
        one, other = above[column], row[column]
        beside = next((c for c in sorted(row) if c > column), column)
        aligned = (
            abs(one.left + one.right - other.left - other.right) < 4
            or abs(one.left - other.left) < 2
        )
        if not aligned or beside not in above or not _close(one, other):
            return False
    return True


def _close(above: _Cell, below: _Cell) -> bool:
    """True for cells as close as lines of a paragraph."""
    return below.top - above.bottom < 0.45 * (below.bottom - below.top)


def _stack(above: _Cell, below: _Cell) -> _Cell:
    return _Cell(
        flow_lines([above.text, below.text]),
        min(above.left, below.left),
        max(above.right, below.right),
        above.top,
        below.bottom,
    )


def _header_rows(rows: Sequence[Sequence[str]]) -> int:
    """How many rows stand above the first figure behind the first column, or 0."""
    for number, row in enumerate(rows[: MAX_HEADER_ROWS + 1]):
        if any(
            _FIGURE.fullmatch(text) and any(map(str.isdigit, text)) and not _YEAR.fullmatch(text)
            for text in row[1:]
            if text
        ):
            return number
    return 0


def _spans(
    cells: _Row, below: _Row, extent: dict[int, tuple[float, float]]
) -> dict[int, tuple[int, int]]:
    """Place of a header cell to the (first, last) place below that it is centred over."""
    spans: dict[int, tuple[int, int]] = {}
    places = sorted(cells)
    for before, place, after in zip(
        [-1, *places], places, [*places[1:], len(extent)], strict=False
    ):
        cell = cells[place]
        middle, best = (cell.left + cell.right) / 2, (float("inf"), 0, 0)
        for first in range(max(before + 1, 1), place + 1):
            for last in range(max(place, first + 1), after):
                if first not in below or last not in below:
                    continue
                left, right = extent[first][0], extent[last][1]
                off = abs(middle - (left + right) / 2) / (right - left)
                if off < 0.12:
                    best = min(best, (off, first, last))
        alone = abs(middle - sum(extent[place]) / 2) / max(1.0, extent[place][1] - extent[place][0])
        if best[2] and (
            best[0] < alone
            or (best[0] == alone and not (place in below and _close(cell, below[place])))
        ):
            spans[place] = (best[1], best[2])
    return _disjoint(spans)


def _disjoint(spans: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """The spans that no neighbour claims a part of."""
    ordered = sorted(spans.items())
    clashing = {
        place
        for (one, a), (other, b) in pairwise(ordered)
        if a[1] >= b[0]
        for place in (one, other)
    }
    return {place: span for place, span in ordered if place not in clashing}
