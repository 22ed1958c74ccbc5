"""Tables of a PDF page as pipe tables: characters are assigned to the cells of a grid, and header
cells over several columns are repeated for each.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from statistics import median

from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.lines import flow_lines, is_cjk, line_text, visual_lines
from rag_platform.loaders.pdf.printed.runs import Char, Run, bounding_box, group_while
from rag_platform.loaders.pdf.regions import LEADER, MAX_HEADER_ROWS, MIN_ROWS, Region
from rag_platform.text import markdown_blocks

FIGURE = re.compile(r"[\s$€£¥%()\[\]<>≤≥±+\-–—−*.,:/\d]+")
_SIGN = re.compile(r"\(?[A-Z]{0,3}[$€£¥￥]")  # of a currency
YEAR = re.compile(r"(?:1[5-9]|20)\d\d(?:\s*[-–/]\s*(?:\d\d|\d{4}))?")
_WORD_GAP = 0.8  # em; a wider gap separates two words
_CELL_GAP = 0.2  # em; the same where a column border lies in the gap
_WORD_SPACE = 0.3  # em
_MIN_DRAWN_ROWS = 2  # lines between rows; a single one only separates the header
_ROW_GAP = 1.0  # em between the cells of a row in text, at least
_STRETCH = 1.5  # by which that gap exceeds a space in a line of words
_MIN_PROSE_EMS = 15  # width of a column of prose
_RELATIONS = frozenset("=<>≤≥≈≃∼≡∈→⇒")
_EQUATION_NUMBER = re.compile(r"\([A-Z]?(?:\d{1,3}[.–-]){0,3}\d{1,3}[a-z]?\)")


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    left: float
    right: float
    top: float
    bottom: float


_Row = dict[int, _Cell]


def aligned_text(printed: Sequence[Sequence[Run]], region: Region, words: frozenset[str]) -> str:
    """The pipe table of text set in rows of aligned cells, such as a reference card; "" for other
    text. Its header is empty unless the first row names each column of figures below it.
    """
    if not are_aligned(printed):
        return ""
    boxes = [bounding_box(line) for line in printed]
    borders = tuple((above[3] + below[1]) / 2 for above, below in pairwise(boxes))
    runs = [run for line in printed for run in line]
    grid = _grid(runs, replace(region, grid=((), borders)), words)
    if len(grid) < 2 or _is_prose(grid, runs[0].size):
        return ""
    rows = _repeat_headers(_join_headers(grid, words))
    return _pipe_table(rows if _is_headed(rows) else [[""] * len(rows[0]), *_texts(grid)])


def are_aligned(printed: Sequence[Sequence[Run]]) -> bool:
    """True if most of several lines have cells."""
    return sum(map(_has_cells, printed)) >= max(MIN_ROWS, 2 / 3 * len(printed))


def table_text(runs: Sequence[Run], region: Region, words: frozenset[str]) -> str:
    """The pipe table of a region with a grid; "" for fewer than two rows or columns.

    A header cell over several columns is repeated for each. In text written from right to left the
    first column is the rightmost.
    """
    return _pipe_table(_repeat_headers(_grid(runs, region, words)))


def _pipe_table(rows: Sequence[Sequence[str]]) -> str:
    """The rows, of which the first is the header; "" for fewer than two rows or columns."""
    if len(rows) < 2 or len(rows[0]) < 2:
        return ""
    header, *body = rows
    return "\n".join(
        [
            markdown_blocks.format_row(header),
            markdown_blocks.format_rule(len(header)),
            *map(markdown_blocks.format_row, body),
        ]
    )


def _grid(runs: Sequence[Run], region: Region, words: frozenset[str]) -> list[_Row]:
    """The rows of a region with a grid."""
    columns, rows = region.grid or ((), ())
    if sum(not run.horizontal for run in runs) > len(runs) / 2 and not bidi.is_vertical(runs):
        return []  # the page is rotated: its grid would cut words
    seen = _attach_signs([bidi.order_visually(run) for run in runs])

    def fill(borders: Sequence[float], rows: Sequence[float]) -> list[_Row]:
        pieces = [piece for run in seen for piece in _cut_run(run, borders, region.rules)]
        return _fill_grid(pieces, borders, _split_rows(pieces, borders, rows), words)

    grid = fill(_split_columns(seen, columns, rows), rows)
    if _is_fully_ruled(grid, *region.lines):
        grid = fill(*region.lines)
    grid = _join_columns(grid)
    return [_mirror(row) for row in grid] if bidi.is_rtl(runs) else grid


def _attach_signs(runs: Sequence[Run]) -> list[Run]:
    """The runs, with each currency sign apart from its amount, such as one at the left edge of a
    cell, moved beside the amount, unless the signs follow their amounts.
    """
    found: list[Run] = []
    if not _precede_amounts(runs):
        return list(runs)
    for run in runs:
        words = run.words()
        signs = {
            at
            for at, word in enumerate(words)
            if _SIGN.fullmatch(word.text) and (word is words[-1] or _is_amount(words[at + 1]))
        }
        opened = bool(found and _SIGN.fullmatch(found[-1].text))  # by a sign in a run of its own
        if not signs and not opened:
            found.append(run)
            continue
        for start, end in pairwise(sorted({0, *signs, *(at + 1 for at in signs), len(words)})):
            part = words[start:end]
            if opened and _is_amount(part[0]) and _are_beside(found[-1], part[0]):
                sign = found.pop()
                step = part[0].box[0] - sign.box[2] - _CELL_GAP * run.size
                moved = [char._replace(x0=char.x0 + step, x1=char.x1 + step) for char in sign.chars]
                part.insert(0, sign._replace(chars=tuple(moved)))
            found.append(run._replace(chars=_spaced(part)))
            opened = start in signs
    return found


def _precede_amounts(runs: Sequence[Run]) -> bool:
    """True if no more currency signs stand only behind an amount (`120 €`) than only before one."""
    if not any(_SIGN.search(run.text) for run in runs):
        return False
    words = [word for run in runs for word in run.words()]
    balance = 0
    for at, sign in enumerate(words):
        if _SIGN.fullmatch(sign.text):
            opens = any(
                _is_amount(word) and _are_beside(sign, word) for word in words[at + 1 : at + 2]
            )
            ends = at > 0 and _is_amount(words[at - 1]) and _are_beside(words[at - 1], sign)
            balance += opens - ends
    return balance >= 0


def _is_amount(word: Run) -> bool:
    return FIGURE.fullmatch(word.text) is not None and not _SIGN.fullmatch(word.text)


def _are_beside(one: Run, other: Run) -> bool:
    """True for runs on one line, the other right of the one."""
    (_, top, right, bottom), (left, upper, _, lower) = one.box, other.box
    return right <= left and top < lower and upper < bottom


def _spaced(words: Sequence[Run]) -> tuple[Char, ...]:
    """The characters of words with a space between them."""
    first, *others = [word.chars for word in words]
    return (*first, *(char for word in others for char in (word[0]._replace(text=" "), *word)))


def _has_cells(line: Sequence[Run]) -> bool:
    """True for a line with a gap between cells: no entry of a table of contents, no equation with
    its number, and no justified line, whose words are all far apart.
    """
    gap = max((right.box[0] - left.box[2] for left, right in pairwise(line)), default=0.0)
    if gap <= _ROW_GAP * line[0].size:
        return False
    text = line_text(line)
    parts = [word for run in line for word in run.words()]
    if LEADER.search(text) or (
        _EQUATION_NUMBER.fullmatch(parts[-1].text) and _RELATIONS & set(text)
    ):
        return False
    letters = sum(word.text.isalpha() and len(word.text) > 1 for word in parts)
    space = min(right.box[0] - left.box[2] for left, right in pairwise(parts))
    return letters <= max(4, len(parts) / 2) or gap > _STRETCH * space


def _is_prose(grid: Sequence[_Row], size: float) -> bool:
    """True if a column holds lines of a paragraph, such as one beside another or a note: most fill
    its width, and the next one goes on.
    """
    for column in {column for row in grid for column in row}:
        cells = [row[column] for row in grid if column in row]
        left, right = median(cell.left for cell in cells), median(cell.right for cell in cells)
        full = sum(max(abs(cell.left - left), abs(cell.right - right)) < size / 2 for cell in cells)
        goes_on = sum(below.text[:1].islower() for _, below in pairwise(cells))
        if (
            right - left > _MIN_PROSE_EMS * size
            and full >= max(2, 2 / 3 * (len(cells) - 1))
            and goes_on >= (len(cells) - 1) / 2
        ):
            return True
    return False


# --- characters into cells ----------------------------------------------------------------------


def _find_row(piece: Run, rows: Sequence[float]) -> int:
    return bisect_right(rows, (piece.box[1] + piece.box[3]) / 2)


def _find_column(piece: Run, columns: Sequence[float]) -> int:
    return bisect_right(columns, (piece.box[0] + piece.box[2]) / 2)


def _fill_grid(
    pieces: Sequence[Run], columns: Sequence[float], rows: Sequence[float], words: frozenset[str]
) -> list[_Row]:
    """The rows with text, each a map from column to cell."""
    cells: dict[tuple[int, int], list[Run]] = {}
    for piece in pieces:
        place = _find_row(piece, rows), _find_column(piece, columns)
        cells.setdefault(place, []).append(piece)
    grid: dict[int, _Row] = {}
    for (row, column), parts in sorted(cells.items(), key=lambda item: item[0]):
        box = bounding_box(parts)
        text = flow_lines([line_text(line) for line in visual_lines(parts)], words)
        grid.setdefault(row, {})[column] = _Cell(text, box[0], box[2], box[1], box[3])
    return list(grid.values())


def _split_rows(
    pieces: Sequence[Run], columns: Sequence[float], rows: Sequence[float]
) -> list[float]:
    """The row borders, with one more above each line of a row that is an entry of its own, and
    without those within a cell below the first row.
    """
    borders = set(rows)
    rights: dict[int, float] = {}
    by_row: dict[int, list[Run]] = {}
    for piece in pieces:
        by_row.setdefault(_find_row(piece, rows), []).append(piece)
        column = _find_column(piece, columns)
        rights[column] = max(rights.get(column, 0.0), piece.box[2])
    above: dict[int, Run] = {}  # the line above, by columns
    before = 0  # and its row
    for number, row in sorted(by_row.items()):
        entry: dict[int, str] = {}  # its first line
        reached = 0.0
        printed = visual_lines(row)
        lines = [{_find_column(run, columns): run for run in line} for line in printed]
        alike = all(line.keys() == lines[0].keys() for line in lines)
        if before > min(by_row) and alike and _goes_on(above, lines[0], rights):
            borders.difference_update(rows[before:number])
        for runs, line in zip(printed, lines, strict=True):
            cells = {column: run.text.strip() for column, run in line.items()}
            top = min(run.box[1] for run in runs)
            # a line that overlaps the one above is a cell centred beside a cell of two lines
            if reached <= top and _is_entry(entry, cells):
                borders.add(top)
                entry = cells
            entry = entry or cells
            reached = max(run.box[3] for run in runs)
        above, before = lines[-1], number
    return sorted(borders)


def _is_entry(above: dict[int, str], line: dict[int, str]) -> bool:
    """True for a line that has a label and a figure below the label and figure of its row's first
    line: either it fills the same cells, or it is a sum and leaves out the first cell. A figure in
    brackets belongs to the figure above it.
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


def _goes_on(above: dict[int, Run], below: dict[int, Run], rights: dict[int, float]) -> bool:
    """True if a line of one cell continues the cell above it, which is too full for its first word.

    Not in the first column, whose cells may have rows of their own.
    """
    column, run = next(iter(below.items()))
    if len(below) > 1 or column not in above or column == min(rights) or bidi.has_rtl(run.text):
        return False
    full = above[column]
    return (
        abs(full.box[0] - run.box[0]) < 2
        and run.box[1] - full.box[3] < run.box[3] - run.box[1]
        and not _is_figure(run.text.strip())
        and not _has_room(full, run, rights[column])
    )


def _has_room(above: Run, below: Run, right: float) -> bool:
    """True if the first word of a line fits behind the line above it."""
    word = re.split(r"\s", below.text.strip())[0]
    size = next((at for at, char in enumerate(word) if is_cjk(char)), len(word)) or 1
    widths = [char.x1 - char.x0 for char in below.chars if not char.text.isspace()]
    return (
        above.box[2] + _WORD_SPACE * above.size + sum(widths) / max(1, len(widths)) * size < right
    )


def _is_figure(text: str) -> bool:
    """True for a single, complete figure."""
    whole = FIGURE.fullmatch(text) is not None and " " not in text
    return whole and any(map(str.isdigit, text)) and text[-1] not in ",-–/"


def _is_fully_ruled(grid: Sequence[_Row], columns: Sequence[float], rows: Sequence[float]) -> bool:
    """True if drawn lines separate all rows and columns of a table: no two rows between the same
    lines fill the same two cells, except in a header of two lines.
    """
    if not columns or not _MIN_DRAWN_ROWS <= len(rows) < len(grid):
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
        len(one & other) < 2 for band in filled.values() for one, other in combinations(band, 2)
    )


def _join_columns(grid: list[_Row]) -> list[_Row]:
    """The rows, with two adjacent columns merged if no row fills both and the first row fills just
    one: a header centred over cells set flush left.
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
    """The row mirrored, as if it were written from left to right."""
    cells = sorted(row.items(), reverse=True)
    return {
        -column: _Cell(cell.text, -cell.right, -cell.left, cell.top, cell.bottom)
        for column, cell in cells
    }


def _cut_run(
    run: Run, columns: Sequence[float], rules: Sequence[tuple[float, float, float]]
) -> list[Run]:
    """The run, cut where column borders lie between its phrases.

    A phrase is words a space apart, with no drawn line between them and no two figures in a row. It
    is assigned to one side of a border even if it crosses it, and so is vertical Chinese text.
    """
    if bidi.is_vertical([run]):
        return [run]
    space = (0.65 if run.mono else 0.45) * run.size
    middle = (run.box[1] + run.box[3]) / 2
    ruled = sorted(x for x, top, bottom in rules if top <= middle <= bottom)
    phrases: list[list[Char]] = []
    figure = False
    for spaced in run.words():
        for at, word in enumerate(_words(spaced, columns, ruled)):
            before, figure = figure, bool(FIGURE.fullmatch("".join(char.text for char in word)))
            last = phrases[-1][-1] if phrases else word[0]
            if (
                phrases
                and not at
                and not (before and figure)
                and abs(word[0].x0 - last.x1) < space
                and not (_crosses(last, word[0], columns) and _crosses(last, word[0], ruled))
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


def _words(
    run: Run, borders: Sequence[float] = (), ruled: Sequence[float] = ()
) -> list[list[Char]]:
    """The characters of a run without spaces, cut at wide gaps and at borders with a gap or a drawn
    line: the file has no spaces between cells, nor between Chinese words.
    """

    def belongs(word: list[Char], char: Char) -> bool:
        gap = abs(char.x0 - word[-1].x1) / run.size
        return gap <= _WORD_GAP and not (
            _crosses(word[-1], char, borders)
            and (gap > _CELL_GAP or _crosses(word[-1], char, ruled))
        )

    return group_while(run.chars, belongs)


def _crosses(one: Char, other: Char, borders: Sequence[float]) -> bool:
    """True if a border lies between a character and the next."""
    return bisect_right(borders, one.x1) < bisect_right(borders, other.x0)


def _split_columns(
    runs: Sequence[Run], columns: Sequence[float], rows: Sequence[float]
) -> list[float]:
    """The column borders, with one more in each gap that most rows of a column share."""
    # (column, row) to words: left, right, solid: with a letter or digit
    lines: dict[tuple[int, int], list[tuple[float, float, bool]]] = {}
    for run in runs:
        signed = len(run.chars) > 1 and _SIGN.match(run.text)
        for word in (word for part in run.words() for word in _words(part)):
            left, right = min(char.x0 for char in word), max(char.x1 for char in word)
            row = bisect_right(rows, (word[0].y0 + word[0].y1) / 2)
            solid = any(char.text.isalnum() for char in word) or bool(
                signed and word[0] is run.chars[0]  # the sign of an amount
            )
            lines.setdefault((bisect_right(columns, (left + right) / 2), row), []).append(
                (left, right, solid)
            )
    size = sorted(run.size for run in runs)[len(runs) // 2] if runs else 0.0
    borders = list(columns)
    for column in range(len(columns) + 1):
        column_lines = [sorted(words) for (at, _), words in lines.items() if at == column]
        borders += _find_column_gaps(column_lines, 0.9 * size)
    return sorted(borders)


def _find_column_gaps(
    lines: Sequence[Sequence[tuple[float, float, bool]]], least: float
) -> list[float]:
    """The middles of gaps between words, `least` points wide, that at least 3 lines and half of all
    lines share and few words cross, those that fewest cross and the widest first, with words
    between them.
    """
    edges = [_edges(line) for line in lines]
    gaps: list[tuple[int, float, float, float]] = []
    # in half points, so that the cost of a long table is not quadratic in its words
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
                split = [gap for other in edges if (gap := _gap_at(other, place))]
                crossed = sum(_count_crossing(other[:2], place) > 0 for other in edges)
                low = max((a for a, _ in split), default=0.0)
                high = min((b for _, b in split), default=0.0)
                enough = (
                    len(split) >= max(3, 0.5 * len(lines))
                    and crossed <= max(1, 0.1 * len(lines))
                    and high - low >= least / 4
                )
                if enough:
                    gaps.append((crossed, low - high, low, high))
    phrases = [phrase for line in lines for phrase in _phrases(line, least)]
    found: list[tuple[float, float]] = []
    for *_, low, high in sorted(gaps):
        if any(a < high and low < b for a, b in found):
            continue
        borders = sorted((a + b) / 2 for a, b in (*found, (low, high)))
        at = borders.index((low + high) / 2)
        if all(
            any(start < left and right < end for left, right in phrases)
            for start, end in pairwise(borders[max(0, at - 1) : at + 2])
        ):
            found.append((low, high))
    return [(low + high) / 2 for low, high in found]


def _phrases(line: Sequence[tuple[float, float, bool]], space: float) -> list[tuple[float, float]]:
    """The edges of the phrases of a line, such as the header `July 29, 2023`."""
    groups = group_while(line, lambda phrase, word: word[0] < phrase[-1][1] + space)
    return [
        (phrase[0][0], phrase[-1][1]) for phrase in groups if any(solid for *_, solid in phrase)
    ]


_Edges = tuple[list[float], list[float], list[float], list[float]]


def _edges(line: Sequence[tuple[float, float, bool]]) -> _Edges:
    """The left and the right edges, in order, of the solid words of a line, and of all."""
    solid = [word for word in line if word[2]]
    lefts, rights, all_lefts, all_rights = (
        sorted(word[side] for word in words) for words in (solid, line) for side in (0, 1)
    )
    return lefts, rights, all_lefts, all_rights


def _count_crossing(edges: Sequence[list[float]], place: float) -> int:
    """The number of words on both sides of an x, from their left and right edges in order."""
    return bisect_left(edges[0], place) - bisect_right(edges[1], place)


def _gap_at(edges: _Edges, place: float) -> tuple[float, float] | None:
    """The white space of a line around an x, or None without a word on both sides of it."""
    lefts, rights, *every = edges
    before, after = bisect_right(rights, place), bisect_left(lefts, place)
    if not before or after == len(lefts) or _count_crossing(every, place) > 0:
        return None
    return rights[before - 1], lefts[after]


# --- header cells over several columns ----------------------------------------------------------


def _texts(grid: Sequence[_Row]) -> list[list[str]]:
    columns = sorted({column for row in grid for column in row})
    return [[row[column].text if column in row else "" for column in columns] for row in grid]


def _is_headed(rows: Sequence[Sequence[str]]) -> bool:
    """True if the rows above the first figures name all columns, one of which has nothing but
    figures, and the labels at most once.
    """
    count = _header_rows(rows)
    header = [row for row in rows[:count] if any(row[1:])]
    return (
        all(any(column) for column in list(zip(*header, strict=True))[1:])
        and sum(row[0] != "" for row in header) < 2
        and any(
            sum(any(map(str.isdigit, cell)) for cell in cells) > 1
            and all(FIGURE.fullmatch(cell) for cell in cells if cell)
            for cells in list(zip(*rows[count:], strict=True))[1:]
        )
        and bool(header)
    )


def _join_headers(grid: Sequence[_Row], words: frozenset[str]) -> list[_Row]:
    """The rows, with header rows joined that are lines of the same names: both name all columns
    behind the labels, and one of them the labels at most.
    """
    result = list(grid)
    texts = _texts(grid)
    alone = [row == text for row, text in zip(_repeat_headers(grid), texts, strict=True)]
    for number in range(_header_rows(texts) - 1, 0, -1):
        above, row = result[number - 1 : number + 1]
        (label, *names), (other, *others) = texts[number - 1 : number + 1]
        if all((*alone[number - 1 : number + 1], *names, *others)) and not (label and other):
            joined = {
                column: replace(cell, text=flow_lines([cell.text, row[column].text], words))
                for column, cell in above.items()
                if column in row
            }
            result[number - 1 : number + 1] = [dict(sorted((above | row | joined).items()))]
    return result


def _repeat_headers(grid: Sequence[_Row]) -> list[list[str]]:
    """The rows as texts, each header cell repeated for the columns below it."""
    columns = sorted({column for row in grid for column in row})
    rows = _texts(grid)
    extent: dict[int, tuple[float, float]] = {}
    for place, column in enumerate(columns):
        column_cells = [row[column] for row in grid[_header_rows(rows) :] if column in row] or [
            row[column] for row in grid if column in row
        ]
        extent[place] = (
            min(cell.left for cell in column_cells),
            max(cell.right for cell in column_cells),
        )
    for number in range(_header_rows(rows)):
        cells, below = (
            {place: row[column] for place, column in enumerate(columns) if column in row}
            for row in grid[number : number + 2]
        )
        for place, (first, last) in _find_spans(cells, below, extent).items():
            rows[number][first : last + 1] = [cells[place].text] * (last + 1 - first)
    return rows


def _are_close(above: _Cell, below: _Cell) -> bool:
    """True for cells as close as lines of a paragraph."""
    return below.top - above.bottom < 0.45 * (below.bottom - below.top)


def _header_rows(rows: Sequence[Sequence[str]]) -> int:
    """The number of rows above the first figure outside the first column; 0 without one."""
    for number, row in enumerate(rows[: MAX_HEADER_ROWS + 1]):
        if any(
            FIGURE.fullmatch(text) and any(map(str.isdigit, text)) and not YEAR.fullmatch(text)
            for text in row[1:]
            if text
        ):
            return number
    return 0


def _find_spans(
    cells: _Row, below: _Row, extent: dict[int, tuple[float, float]]
) -> dict[int, tuple[int, int]]:
    """For each header cell over several columns, the (first, last) column it is centred over."""
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
            or (best[0] == alone and not (place in below and _are_close(cell, below[place])))
        ):
            spans[place] = (best[1], best[2])
    return _drop_overlapping(spans)


def _drop_overlapping(spans: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """The spans that overlap no neighbouring span."""
    ordered = sorted(spans.items())
    clashing = {
        place
        for (one, a), (other, b) in pairwise(ordered)
        if a[1] >= b[0]
        for place in (one, other)
    }
    return {place: span for place, span in ordered if place not in clashing}
