"""Rows of cells to Markdown: blank rows separate regions, and each region is split into groups of
rows under the region's header.

A group fits one chunk, and repeats the header so that a quote shows the names of its columns.
Locators give the data rows and the header rows, `sheet=Q1;rows=3-9;head=1`; without `head` the
columns are named by their letters. For tables side by side they also give the columns:
`sheet=Q1;columns=D-E;rows=3-9;head=1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise

from rag_platform.errors import DocumentError
from rag_platform.ir import Block
from rag_platform.loaders.parts import Part
from rag_platform.loaders.text import escape_locator, format_range
from rag_platform.text import markdown_blocks
from rag_platform.text.scripts import letters

NUMBER = re.compile(
    r"[-+(]?\s*[$€£¥]?\s*-?\d[\d.,' \u00a0]*(?:[eE][-+]?\d+)?\s*[%$€£¥元]?\)?|"
    r"[-+(]?\s*(?:[A-Z]{3}\s)?-?\d[\d,'"
    r" \u00a0]*[.,]\d+(?:\s[A-Z]{3})?\)?|\d{4}-\d\d-\d\d.*|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}"
)
YEAR = re.compile(r"(?:19|20)\d\d")
MAX_HEAD_CHARS = 120
# times the cells of a file: the cells of its tables with those of short rows filled
_MAX_PADDING = 10
_MAX_SIDE_TABLES = 50  # each is cut out of every row; chosen by hand
_LOCATOR = re.compile(
    r"(?:sheet=[^;]*;)?(?:columns=(?P<left>[A-Z]+)-(?P<right>[A-Z]+);)?rows=(?P<first>\d+)(?:-(?P<last>\d+))?"
    r"(?:;head=(?P<top>\d+)(?:-(?P<bottom>\d+))?)?"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a sheet; `number` counts from 1, the lines are those of a text file."""

    number: int
    cells: tuple[str, ...]
    first_line: int | None = None
    last_line: int | None = None

    @property
    def blank(self) -> bool:
        """True if all cells are blank."""
        return not any(cell.strip() for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Head:
    """The header of a region; without rows if the columns are named by letters."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    names: tuple[str, ...]
    numeric: tuple[bool, ...] = ()  # for each column: are its cells numbers?


@dataclass(frozen=True, slots=True)
class Size:
    """The size limit of a group of rows with its header, that of a chunk, and of a sheet."""

    chars: int
    tokens: int
    cells: int  # of a sheet, those added to short rows included


@dataclass(frozen=True, slots=True)
class Group:
    """A block of the facts, made of consecutive rows."""

    kind: str  # table | paragraph
    text: str
    rows: tuple[int, int]
    head: tuple[int, ...] = ()
    lines: tuple[int, int] | None = None
    column: int = 0  # of the cell of a note, from 1
    span: tuple[int, int] | None = None  # columns, from 0, of one of several tables side by side

    def locator(self, sheet: str) -> str:
        """`sheet=Q1;rows=3-9;head=1`, for a CSV file without the sheet; for a note
        `sheet=Q1;rows=3;note=2`.
        """
        parts = [f"sheet={escape_locator(sheet)}"] if sheet else []
        if self.span:
            parts.append("columns=" + "-".join(map(column_letters, self.span)))
        parts.append(f"rows={format_range(*self.rows)}")
        if self.head:
            parts.append(f"head={format_range(self.head[0], self.head[-1])}")
        if self.column:
            parts.append(f"note={self.column}")
        return ";".join(parts)


def column_letters(index: int) -> str:
    """The spreadsheet's name of a column: 0 is A, 26 is AA."""
    from openpyxl.utils import get_column_letter

    return str(get_column_letter(index + 1))


def too_many_cells(count: int, most: int) -> DocumentError:
    """The error for a sheet with too many cells."""
    return DocumentError(
        f"more than {count - 1} cells, above limits.max_cells = {most}; split the file, or raise"
        " the limit in settings.yaml",
        code="too_large",
    )


# --- rows to groups -----------------------------------------------------------------------------


def group_rows(rows: Sequence[Row], size: Size, *, lettered: bool = True) -> Iterator[Group]:
    """The rows as tables and lines; each filled cell is in exactly one data line or in a header.

    Columns without a header are named by their letters if `lettered`, else not at all.
    """
    previous: Head | None = None
    given = written = 0
    for blank, part in groupby(rows, key=lambda row: row.blank):
        if blank:
            continue
        region = list(part)
        columns = _used_columns(region)
        given += sum(len(row.cells) for row in region)
        written += len(region) * len(columns)
        # a few long rows and many short ones make a small file a very long text
        if written > max(size.cells, _MAX_PADDING * given):
            raise too_many_cells(written, size.cells)
        titles = _count_titles(region, columns)
        yield from _group_lines(region[:titles], size)
        region = region[titles:]
        if len(spans := _find_side_tables(region)) > 1:
            for span in spans:
                own = [_keep_columns(row, span) for row in region]
                for group in group_rows(own, size, lettered=lettered):
                    yield replace(group, span=group.span or span)
            previous = None
            continue
        if not region:
            continue
        if len(columns) == 1:
            yield from _group_lines(region, size)
            continue
        head = _find_head(region, columns, previous, lettered)
        body = [row for row in region if row.number not in head.rows]
        yield from _group_table(body, head, size)
        previous = head


def _used_columns(rows: Sequence[Row]) -> tuple[int, ...]:
    return tuple(
        sorted({index for row in rows for index, cell in enumerate(row.cells) if cell.strip()})
    )


def _find_side_tables(region: Sequence[Row]) -> list[tuple[int, int]]:
    """The (first, last) columns of tables side by side with empty columns between them; [] if they
    may be one table.

    Each table must have a row of names. Its first column must have the same name as that of the
    first table, or a different text in each row; otherwise they may be columns of the same rows.
    """
    used = enumerate(_used_columns(region))
    runs = [
        [column for _, column in run]
        for _, run in groupby(used, key=lambda item: item[1] - item[0])
    ]
    if len(runs) > _MAX_SIDE_TABLES or any(len(run) == 1 for run in runs):
        return []
    spans: list[tuple[int, int]] = []
    first_names = set[str]()
    for span in runs:
        own = (_keep_columns(row, (span[0], span[-1])) for row in region)
        rows = [row for row in own if not row.blank]
        names, *body = rows[_count_titles(rows, span) :] or rows[:1]
        heads = [_cell(names, column) for column in span]
        keys = [_cell(row, span[0]) for row in body]
        is_named = all(heads) and _are_names(heads) and not any(name[-1] in ":：" for name in heads)
        if not (is_named and body):
            return []
        first_names.add(heads[0])
        is_keyed = len(set(keys)) == len(keys) and all(keys) and not _are_numeric(keys)
        if spans and len(first_names) > 1 and not is_keyed:
            return []
        spans.append((span[0], span[-1]))
    return spans


def _keep_columns(row: Row, span: tuple[int, int]) -> Row:
    """The row with the cells outside of the columns blank."""
    first, last = span
    return replace(row, cells=("",) * first + row.cells[first : last + 1])


def _count_titles(region: Sequence[Row], columns: Sequence[int]) -> int:
    """The number of rows at the top with only one text: titles and remarks above the table."""
    if len(columns) < 2:
        return 0
    for index, row in enumerate(region):
        texts = {cell.strip() for cell in row.cells if cell.strip()}
        if len(texts) > 1 or any(NUMBER.fullmatch(text) for text in texts):
            return index
    return len(region)


def _group_lines(rows: Sequence[Row], size: Size) -> Iterator[Group]:
    """Rows as plain lines, each distinct text of a row once."""
    found: list[tuple[Row, str]] = []
    for row in rows:
        texts = dict.fromkeys(cell.strip() for cell in row.cells if cell.strip())
        found.append((row, " ".join(one_line(text) for text in texts)))
    for part in _split_to_size(found, 0, 0.0, size):
        yield _join("paragraph", [text for _, text in part], [row for row, _ in part], ())


def _find_head(
    region: Sequence[Row], columns: tuple[int, ...], previous: Head | None, lettered: bool
) -> Head:
    """The header of a region, or that of the previous region if this one continues its table."""
    first = [_cell(region[0], index) for index in columns]
    numeric = tuple(_are_numeric([_cell(row, index) for row in region[1:50]]) for index in columns)
    if not _are_names(first):
        if previous is not None and set(columns) <= set(previous.columns):
            return previous
        names = tuple(column_letters(i) if lettered else "" for i in columns)
        return Head((), columns, names, numeric)
    if previous is not None and previous.columns == columns and not any(previous.numeric):
        return previous  # in a table of words a row after a blank one looks like a second header
    if (
        len(region) > 2
        and _has_merged_name(first)
        and _are_names(second := [_cell(region[1], index) for index in columns], distinct=False)
    ):
        names = tuple(
            upper if upper == lower or not lower else f"{upper} / {lower}".removeprefix(" / ")
            for upper, lower in zip(first, second, strict=True)
        )
        return Head((region[0].number, region[1].number), columns, names, numeric)
    return Head((region[0].number,), columns, tuple(first), numeric)


def _are_names(cells: Sequence[str], distinct: bool = True) -> bool:
    """True for column names: short words or years in most columns. With `distinct` only adjacent
    columns may have the same name.
    """
    filled = [cell for cell in cells if cell]
    if len(filled) < max(2, (len(cells) + 1) // 2) or any(
        len(cell) > MAX_HEAD_CHARS for cell in filled
    ):
        return False
    if any(NUMBER.fullmatch(cell) and not YEAR.fullmatch(cell) for cell in filled) or all(
        YEAR.fullmatch(cell) for cell in filled
    ):
        return False
    runs = [name for name, _ in groupby(filled)]
    return not distinct or len(set(runs)) == len(runs)


def _has_merged_name(cells: Sequence[str]) -> bool:
    """True if two adjacent columns have the same name, as from a merged cell."""
    return any(left == right != "" for left, right in pairwise(cells))


def _are_numeric(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell]
    return bool(filled) and sum(NUMBER.fullmatch(cell) is not None for cell in filled) * 2 > len(
        filled
    )


def _group_table(body: Sequence[Row], head: Head, size: Size) -> Iterator[Group]:
    names, rule = _format_line(head.names), markdown_blocks.format_rule(len(head.names))
    lines = [(row, _format_line([_cell(row, index) for index in head.columns])) for row in body]
    if not lines:
        yield Group("table", f"{names}\n{rule}", (head.rows[0], head.rows[-1]), head.rows)
    for part in _split_to_size(
        lines, len(names) + len(rule) + 2, estimate_tokens(names) + estimate_tokens(rule), size
    ):
        yield _join(
            "table", [names, rule, *(line for _, line in part)], [row for row, _ in part], head.rows
        )


def _split_to_size(
    lines: Sequence[tuple[Row, str]], chars: int, tokens: float, size: Size
) -> Iterator[list[tuple[Row, str]]]:
    """The lines in groups up to the size, with a header of `chars` and `tokens`; a group is never
    shorter than its header.
    """
    part: list[tuple[Row, str]] = []
    used_chars, used_tokens = chars, tokens
    for row, line in lines:
        cost = estimate_tokens(line)
        full = used_chars + len(line) + 1 > size.chars or used_tokens + cost > size.tokens
        if part and full and used_chars >= 2 * chars:
            yield part
            part, used_chars, used_tokens = [], chars, tokens
        part.append((row, line))
        used_chars += len(line) + 1
        used_tokens += cost
    if part:
        yield part


def _join(kind: str, lines: Sequence[str], rows: Sequence[Row], head: tuple[int, ...]) -> Group:
    first, last = rows[0], rows[-1]
    group = Group(kind, "\n".join(lines), (first.number, last.number), head)
    if first.first_line is None or last.last_line is None:
        return group
    return replace(group, lines=(first.first_line, last.last_line))


def _cell(row: Row, index: int) -> str:
    return row.cells[index].strip() if index < len(row.cells) else ""


def one_line(text: str) -> str:
    """The text without line ends."""
    return re.sub(r"\s*[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+\s*", " ", text.strip())


def _format_line(cells: Sequence[str]) -> str:
    return markdown_blocks.format_row([one_line(cell) for cell in cells])


def estimate_tokens(line: str) -> float:
    """The estimated tokens of a line: 0.4 per Latin letter, 0.1 per space, 0.85 per other
    character.
    """
    letters_ = len(re.findall(r"[A-Za-z]", line))
    blanks = line.count(" ")
    return 0.4 * letters_ + 0.1 * blanks + 0.85 * (len(line) - letters_ - blanks)


# --- groups to facts ----------------------------------------------------------------------------


def sheet_parts(sheets: Iterable[tuple[str, Iterable[Group]]]) -> Iterator[Part]:
    """The groups of named sheets, each sheet under a heading `# name`.

    All headings are of level 1, so that a short sheet never becomes a subsection of another.
    """
    for name, pieces in sheets:
        title = " ".join(name.split())
        if name:
            yield Part("heading", f"# {title}", f"sheet={escape_locator(name)}", 1, title)
        for group in pieces:
            yield Part(group.kind, group.text, group.locator(name), lines=group.lines)


# --- proof --------------------------------------------------------------------------------------


def find_problem(text: str, block: Block, rows: Mapping[int, Row]) -> str:
    """How a block differs from the rows of the file, or ""."""
    match = _LOCATOR.fullmatch(block.locator)
    if match is None:
        return f"the locator {block.locator!r} has no rows"
    first, top = int(match["first"]), int(match["top"] or 1)
    last, bottom = int(match["last"] or first), int(match["bottom"] or match["top"] or 0)
    if match["left"]:
        from openpyxl.utils import column_index_from_string

        left, right = map(column_index_from_string, match.group("left", "right"))
        needed = chain(range(top, bottom + 1), range(first, last + 1))
        rows = {n: _keep_columns(rows[n], (left - 1, right - 1)) for n in needed if n in rows}
    located = [
        rows[number]
        for number in range(first, last + 1)
        if number in rows and not rows[number].blank
    ]
    lines = text[block.start : block.end].split("\n")
    head = [rows[number] for number in range(top, bottom + 1) if number in rows]
    if block.kind == "table":
        names = markdown_blocks.parse_row(lines[0])
        if head and not _names_match(names, head):
            return f"the header is not that of rows {format_range(top, bottom)}"
        if not head and any(
            not re.fullmatch("[A-Z]{1,3}" if block.locator.startswith("sheet=") else "", name)
            for name in names
        ):
            return "the header is not in the file"
        numbers = {row.number for row in head}
        lines, located = lines[2:], [row for row in located if row.number not in numbers]
    if len(lines) != len(located):
        return f"{len(lines)} lines for the {len(located)} rows {first}-{last}"
    for line, row in zip(lines, located, strict=True):
        cells = (
            row.cells
            if block.kind == "table"
            else tuple(dict.fromkeys(cell.strip() for cell in row.cells))
        )
        if letters(line) != letters("".join(cells)):
            return f"row {row.number} has different text than the line {line[:60]!r}"
    return ""


def _names_match(names: Sequence[str], head: Sequence[Row]) -> bool:
    """True if each name consists of the header cells of one column, top to bottom."""
    columns = [
        {letters("".join(parts)), letters(parts[0]), letters(parts[-1])}
        for index in range(max(len(row.cells) for row in head))
        if any(parts := [_cell(row, index) for row in head])
    ]
    wanted = [letters(name) for name in names if name]
    remaining = iter(columns)
    return all(any(name in column for column in remaining) for name in wanted)
