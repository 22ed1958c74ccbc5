"""CSV and XLSX (by openpyxl): rows grouped under their header as Markdown tables, so that a chunk
can be understood on its own.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import itertools
import logging
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, ClassVar
from urllib.parse import unquote

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts, Json
from rag_platform.loaders.archives import ZipLoader, reject_damaged
from rag_platform.loaders.decoding import decode, looks_like_text
from rag_platform.loaders.languages import suffix_of
from rag_platform.loaders.office.number_formats import (
    format_general,
    format_number,
    format_partial_date,
)
from rag_platform.loaders.office.ooxml import A, Package, copy_parts, open_plain
from rag_platform.loaders.office.sheet_tables import (
    Group,
    Row,
    Size,
    find_problem,
    group_rows,
    one_line,
    sheet_parts,
    too_many_cells,
)
from rag_platform.loaders.parts import Engine, join_parts, joined_facts
from rag_platform.traits import Traits

log = logging.getLogger(__name__)

MAX_CELLS = 2_000_000
GROUP_CHARS = 720  # a group with its sheet's name fits the shipped chunk size of 800
GROUP_TOKENS = 400
MAX_FIELD_CHARS = 200_000  # a cell of a spreadsheet holds 32,767
DELIMITERS = ",;\t|"
_PROPERTIES = "title author subject keywords description created modified".split()


@dataclass(frozen=True)
class CsvLoader:
    """Reads delimiter-separated text; locators are records, `rows=3-9`, and lines of the file.

    `charset` is the encoding that a server declared.
    """

    charset: str = ""
    max_cells: int = MAX_CELLS
    group_chars: int = GROUP_CHARS
    group_tokens: int = GROUP_TOKENS

    NAME: ClassVar[str] = "csv"
    VERSION: ClassVar[str] = "5"
    traits: ClassVar[Traits] = Traits()

    def claims(self, filename: str, head: bytes) -> bool:
        """True for text with the suffix .csv, .tsv or .tab."""
        return suffix_of(filename) in (".csv", ".tsv", ".tab") and looks_like_text(head)

    def load(self, path: Path, filename: str) -> Facts:
        """Raises `empty_file`, `binary_content`, `too_large`."""
        decoded = decode(path.read_bytes(), self.charset)
        delimiter, rows, warnings = read_csv(decoded.text, self.max_cells)
        size = Size(self.group_chars, self.group_tokens, self.max_cells)
        joined = join_parts(
            sheet_parts([("", group_rows(rows, size, lettered=False))]),
            "all records of the file are empty; nothing to index",
        )
        metadata: dict[str, object] = {
            "delimiter": delimiter,
            "records": sum(not row.blank for row in rows),
        }
        title, engine = PurePosixPath(filename).stem, Engine("csv", "1", "tables")
        return joined_facts(self, engine, joined, title, metadata, warnings, decoded)

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block whose lines differ from its records."""
        _, rows, _ = read_csv(decode(path.read_bytes(), self.charset).text, self.max_cells)
        numbered = {row.number: row for row in rows}
        return {
            block.ordinal: reason
            for block in blocks
            if (reason := find_problem(text, block, numbered))
        }


def read_csv(text: str, max_cells: int) -> tuple[str, list[Row], list[str]]:
    """(delimiter, records, warnings); a first line `sep=;` names the delimiter."""
    named = re.match(r"sep=(.)(?:\r\n?|\n|\Z)", text)
    delimiter = named[1] if named else sniff_delimiter(text)
    broken: list[int] = []
    rows = list(_read_records(text, delimiter, max_cells, broken))
    warnings = []
    if broken:
        more = f", and {len(broken) - 1} more such lines" if len(broken) > 1 else ""
        warnings.append(
            f"a quote in line {broken[0]} is never closed{more}; quotes there were read as text"
        )
    return delimiter, rows[1:] if named else rows, warnings


def _read_records(text: str, delimiter: str, max_cells: int, broken: list[int]) -> Iterator[Row]:
    """The records; a line with an unclosed quote is one of them, and is added to `broken`."""
    former = csv.field_size_limit(MAX_FIELD_CHARS)
    lines = list(io.StringIO(text, newline=""))
    start = count = 0
    numbers = itertools.count(1)
    try:
        while start < len(lines):
            rest = (lines[number] for number in range(start, len(lines)))
            reader = csv.reader(rest, delimiter=delimiter)
            unclosed = False
            first = start
            while first < len(lines) and not unclosed:
                try:
                    cells, last = next(reader), start + reader.line_num
                except csv.Error:  # a field above the limit
                    cells, last = [], len(lines)
                unclosed = (last > first + 1 or last == len(lines)) and not _is_closed(
                    lines[first:last], delimiter
                )
                if unclosed:
                    cells, last = _read_unquoted(lines[first], delimiter, first + 1), first + 1
                    broken.append(last)
                count += len(cells)
                if count > max_cells:
                    raise too_many_cells(count, max_cells)
                yield Row(next(numbers), tuple(cells), first + 1, last)
                first = last
            start = first
    finally:
        csv.field_size_limit(former)


def _read_unquoted(line: str, delimiter: str, number: int) -> list[str]:
    """The cells of a line, with quotes read as text. Raises `too_large` for a cell too long."""
    try:
        return next(csv.reader([line], delimiter=delimiter, quoting=csv.QUOTE_NONE))
    except csv.Error as error:
        message = (
            f"a cell in line {number} has more than {MAX_FIELD_CHARS} characters; check that the"
            " file is a table"
        )
        raise DocumentError(message, code="too_large") from error


def _is_closed(lines: Sequence[str], delimiter: str) -> bool:
    """True if each quoted field of a record ends before a delimiter or the end of the record."""
    try:
        list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error as error:
        return len(lines) == 1 and "end of data" not in str(error)
    return True


def sniff_delimiter(text: str) -> str:
    """The delimiter that splits most of the first 200 records into equally many cells, else a
    comma.
    """
    sample = text[:65_536]
    if len(text) > len(sample):
        sample = sample[: max(sample.rfind("\n"), sample.rfind("\r")) + 1] or sample
    scores: list[tuple[float, int, str]] = []
    for rank, delimiter in enumerate(DELIMITERS):
        if delimiter not in sample:
            continue
        try:
            records = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter)
            widths = Counter(map(len, itertools.islice(records, 200)))
        except csv.Error:
            continue
        widths.pop(0, None)
        width, often = max(
            widths.items(), key=lambda item: (item[0] > 1, item[1], item[0]), default=(1, 0)
        )
        if width > 1:
            scores.append((often / sum(widths.values()), -rank, delimiter))
    return max(scores)[2] if scores else ","


@dataclass(frozen=True)
class XlsxLoader(ZipLoader):
    """Reads the visible sheets of a workbook; formulas as the values stored with them.

    Locators are `sheet=Q1;rows=3-9`.
    """

    max_cells: int = MAX_CELLS
    group_chars: int = GROUP_CHARS
    group_tokens: int = GROUP_TOKENS
    hidden_sheets: bool = False

    SUFFIXES: ClassVar[tuple[str, ...]] = (".xlsx", ".xlsm", ".xltx", ".xltm")
    NAME: ClassVar[str] = "xlsx"
    VERSION: ClassVar[str] = "8"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def load(self, path: Path, filename: str) -> Facts:
        """Raises `broken_file`, `encrypted`, `archive_bomb`, `too_large`, `empty_file`."""
        import openpyxl

        self.require(path, ".xlsx")
        book = read_workbook(path, self.max_cells)
        size = Size(self.group_chars, self.group_tokens, self.max_cells)
        shown = [sheet for sheet in book.sheets if self.hidden_sheets or not sheet.hidden]
        pieces = [
            (sheet.name, found)
            for sheet in shown
            if (found := [*group_rows(sheet.rows, size), *sheet.notes])
        ]
        joined = join_parts(sheet_parts(pieces), "no visible sheet has a cell; nothing to index")
        hidden = [sheet.name for sheet in book.sheets if sheet.hidden]
        warnings = [
            f"sheet {sheet.name!r}: {warning}" for sheet in shown for warning in sheet.warnings
        ] + list(book.warnings)
        if hidden and not self.hidden_sheets:
            warnings.append(
                f"hidden sheets were not read: {', '.join(hidden)}; set the loader's option"
                " hidden_sheets to read them"
            )
        metadata: dict[str, object] = {
            **book.metadata,
            "sheets": [name for name, _ in pieces],
            "hidden_sheets": hidden,
        }
        title = book.title or PurePosixPath(filename).stem
        engine = Engine("openpyxl", openpyxl.__version__, "tables")
        return joined_facts(self, engine, joined, title, metadata, warnings)

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block whose lines differ from its cells."""
        self.require(path, ".xlsx")
        read = read_workbook(path, self.max_cells).sheets
        sheets = {sheet.name: {row.number: row for row in sheet.rows} for sheet in read}
        notes = {(note.locator(sheet.name), note.text) for sheet in read for note in sheet.notes}
        bad: dict[int, str] = {}
        for block in blocks:
            name = unquote(block.locator.removeprefix("sheet=").split(";")[0])
            if name not in sheets:
                bad[block.ordinal] = f"no sheet {name!r}"
            elif block.kind == "heading":
                if text[block.start : block.end] != f"# {' '.join(name.split())}":
                    bad[block.ordinal] = f"the heading is not the name of sheet {name!r}"
            elif ";note=" in block.locator:
                if (block.locator, text[block.start : block.end]) not in notes:
                    bad[block.ordinal] = f"the file has different text at {block.locator}"
            elif reason := find_problem(text, block, sheets[name]):
                bad[block.ordinal] = reason
        return bad


_ESCAPED = re.compile(r"_x(00[01][0-9A-Fa-f])_")
MAX_ROWS, MAX_COLUMNS = 1_048_576, 16_384  # limits of the format
Place = tuple[int, int]  # row and column, from 1


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet: its rows in order, with the text of a merged area in each of its cells; and its
    comments and text boxes as notes.
    """

    name: str
    hidden: bool
    rows: tuple[Row, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class Workbook:
    """The sheets and the properties of a file."""

    sheets: tuple[Sheet, ...]
    title: str
    metadata: Json
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Extras:
    """What a sheet has besides values; rows and columns count from 1."""

    # merged areas: first row, first column, last row, last column
    merges: list[tuple[int, int, int, int]] = field(default_factory=list)
    links: dict[Place, str] = field(default_factory=dict)
    formulas: dict[Place, str] = field(default_factory=dict)  # those without a stored value
    hidden: set[str] = field(default_factory=set)  # "rows", "columns"


def read_workbook(path: Path, max_cells: int) -> Workbook:
    """Every worksheet of the file, also hidden ones. Raises `broken_file`, `too_large`."""
    cells = 0
    sheets: list[Sheet] = []
    with (
        reject_damaged("the workbook cannot be read", "open and save it in Excel or LibreOffice"),
        # openpyxl warns about features that it drops; those with text are reported below
        warnings.catch_warnings(action="ignore"),
        Package(path) as package,
        open_plain(path) as opened,
        contextlib.closing(_open_book(opened, package)) as book,
    ):
        for sheet in book.worksheets:
            extras = _read_extras(sheet, package)
            rows = _read_rows(sheet, extras, cells, max_cells)
            cells += sum(len(row.cells) for row in rows)
            problems = []
            if extras.formulas:
                problems.append(
                    "formulas without a stored value, which are shown as formulas:"
                    f" {len(extras.formulas)}; open and save the file in Excel"
                )
            if extras.hidden:
                problems.append(f"hidden {' and '.join(sorted(extras.hidden))} were read too")
            notes = tuple(_find_notes(package, sheet._worksheet_path.lstrip("/"), rows))
            hidden = sheet.sheet_state != "visible"
            sheets.append(Sheet(sheet.title, hidden, rows, tuple(problems), notes))
        metadata = package.properties(_PROPERTIES)
        unread = tuple(_find_unread(package))
    return Workbook(tuple(sheets), str(metadata.pop("title", "")), metadata, unread)


def _open_book(opened: BinaryIO, package: Package) -> Any:
    """The workbook. Its styles are reduced to number formats if openpyxl rejects one of them, or if
    Hancom wrapped some in alternatives, which openpyxl would miscount.
    """
    import openpyxl

    name = package.related_part(package.related_part("", "officeDocument"), "styles")
    styles = package.root(name)
    try:
        if styles is None or next(styles.iter("{*}AlternateContent"), None) is None:
            return openpyxl.load_workbook(opened, read_only=True, data_only=True)
    except (TypeError, ValueError) as error:
        if styles is None:
            raise
        log.info("read without styles", exc_info=error)
    plain = _reduce_styles(styles)
    with zipfile.ZipFile(opened) as archive:
        copy = copy_parts(archive, lambda part, data: plain if part == name else data)
    return openpyxl.load_workbook(copy, read_only=True, data_only=True)


def _reduce_styles(root: Any) -> bytes:
    """The cell styles, reduced to their number formats."""
    from lxml import etree

    kept = etree.Element(root.tag)
    kept.extend(root.findall("{*}numFmts"))
    styles = etree.SubElement(kept, root.tag.replace("styleSheet", "cellXfs"))
    for item in root.iterfind("{*}cellXfs/*"):  # Hancom wraps some in alternatives
        if (style := next(item.iter("{*}xf"), None)) is not None:
            etree.SubElement(styles, style.tag, numFmtId=style.get("numFmtId", "0"))
    return bytes(etree.tostring(kept))


def _find_unread(package: Package) -> Iterator[str]:
    """A warning for each kind of part with content that is not read."""
    names = package.archive.namelist()
    for pattern, name in (
        (r"xl/charts/chart\d*\.xml", "charts"),
        (r"xl/media/.+", "pictures"),
        (r"xl/pivotTables/pivotTable\d*\.xml", "definitions of pivot tables"),
    ):
        if count := sum(re.fullmatch(pattern, part) is not None for part in names):
            yield f"{name} that were not read: {count}"


# --- comments, text boxes, links, merged cells --------------------------------------------------


def _find_notes(package: Package, part: str, rows: Sequence[Row]) -> Iterator[Group]:
    """The comments and text boxes of a sheet in the order of their cells."""
    roots: dict[str, list[Any]] = {"comments": [], "threadedComment": [], "drawing": []}
    for relation in package.relations(part).values():
        if relation.kind in roots and (root := package.root(relation.target)) is not None:
            roots[relation.kind].append(root)
    found = [*_read_comments(roots, rows), *_read_text_boxes(roots["drawing"])]
    for (number, column), words in sorted(found, key=lambda item: item[0]):
        yield Group("paragraph", words, (number, number), column=column)


def _read_comments(
    roots: Mapping[str, Sequence[Any]], rows: Sequence[Row]
) -> Iterator[tuple[Place, str]]:
    cells = {row.number: row.cells for row in rows}
    threads = [item for root in roots["threadedComment"] for item in root]
    threaded = {item.get("ref") for item in threads}  # also stored as comments for older Excel
    plain = [item for root in roots["comments"] for item in root.iter("{*}comment")]
    for item in [item for item in plain if item.get("ref") not in threaded] + threads:
        ref = item.get("ref", "")
        words = " ".join("".join(item.itertext()).split())
        if words and (area := _parse_area(ref)):
            place = area[:2]
            row = cells.get(place[0], ())
            label = next(filter(None, row), "")
            cell = ", ".join(dict.fromkeys(filter(None, (label, *row[place[1] - 1 : place[1]]))))
            yield place, f"{ref} ({one_line(cell)}): {words}" if cell else f"{ref}: {words}"


def _read_text_boxes(drawings: Sequence[Any]) -> Iterator[tuple[Place, str]]:
    for anchor in (item for root in drawings for item in root.iterfind("{*}*[{*}from]")):
        lines = ("".join(line.itertext(f"{A}t")) for line in anchor.iter(f"{A}p"))
        if words := " ".join(" ".join(lines).split()):
            start = (anchor.findtext(f"{{*}}from/{{*}}{name}") for name in ("row", "col"))
            row, column = map(int, start)
            yield (row + 1, column + 1), words


def _read_extras(sheet: Any, package: Package) -> _Extras:
    """Merged areas, links, hidden rows and the like, which openpyxl's reader of rows omits."""
    from lxml import etree

    found = _Extras()
    links: list[tuple[str, str]] = []
    with sheet._get_source() as source:
        parser = etree.iterparse(
            source,
            tag=("{*}col", "{*}row", "{*}mergeCell", "{*}hyperlink"),
            resolve_entities=False,
            no_network=True,
        )
        for _, element in parser:
            name = etree.QName(element).localname
            if name in ("col", "row") and element.get("hidden") in ("1", "true"):
                found.hidden.add("columns" if name == "col" else "rows")
            if name == "row":
                found.formulas.update(_find_unevaluated(element))
                element.clear()
                while element.getprevious() is not None:
                    del element.getparent()[0]
            elif name == "mergeCell" and (area := _parse_area(element.get("ref", ""))):
                found.merges.append(area)
            elif name == "hyperlink":
                ids = [value for key, value in element.attrib.items() if key.endswith("}id")]
                links += [(element.get("ref", ""), relation) for relation in ids]
    relations = package.relations(sheet._worksheet_path.lstrip("/")) if links else {}
    for ref, name in links:
        target = relations.get(name)
        if (area := _parse_area(ref)) and target is not None and target.external:
            found.links[area[:2]] = target.target
    return found


def _find_unevaluated(row: Any) -> Iterator[tuple[Place, str]]:
    """(place, formula) of each formula of a row that has no stored value."""
    for formula in row.iter("{*}f"):
        cell = formula.getparent()
        value = cell.find("{*}v")
        if (value is None or value.text is None) and (area := _parse_area(cell.get("r", ""))):
            yield area[:2], f"={formula.text or ''}"


def _parse_area(ref: str) -> tuple[int, int, int, int] | None:
    """(first row, first column, last row, last column) of a reference; None for no such area."""
    from openpyxl.utils import range_boundaries

    try:
        left, top, right, bottom = range_boundaries(ref)
    except ValueError:
        return None
    return (top, left, bottom, right) if None not in (left, top, right, bottom) else None


# --- values -------------------------------------------------------------------------------------


def _read_rows(sheet: Any, extras: _Extras, count: int, max_cells: int) -> tuple[Row, ...]:
    """The rows with text, and one blank row for each gap between them; `count` is the number of
    cells already read from other sheets.
    """
    sheet.reset_dimensions()  # stored ones may be too small, and openpyxl would stop there
    texts: dict[int, list[str]] = {}
    width = 0
    for number, cells in enumerate(sheet.iter_rows(), 1):
        if number > MAX_ROWS:
            raise DocumentError(
                f"rows beyond {MAX_ROWS}, which the format does not have; export the workbook"
                " again",
                code="broken_file",
            )
        row = [
            _read_cell(cell, extras, number, column)
            for column, cell in enumerate(cells[:MAX_COLUMNS], 1)
        ]
        while row and not row[-1]:
            row.pop()
        if not row:
            continue
        texts[number] = row
        count += len(row)
        width = max(width, len(row))
        if count > max_cells:
            raise too_many_cells(count, max_cells)
    _fill_merged(texts, extras.merges, width, count, max_cells)
    return tuple(Row(number, tuple(texts.get(number, ()))) for number in _add_gaps(sorted(texts)))


def _add_gaps(numbers: Iterable[int]) -> Iterator[int]:
    """The numbers, with one more in each gap: a single blank row is enough to end a region."""
    last: int | None = None
    for number in numbers:
        if last is not None and number > last + 1:
            yield last + 1
        yield number
        last = number


def _fill_merged(
    texts: dict[int, list[str]],
    merges: Iterable[tuple[int, int, int, int]],
    width: int,
    count: int,
    max_cells: int,
) -> None:
    """Repeat the text of each merged area in all its cells within the used part of the sheet."""
    last_row = max(texts, default=0)
    for first, left, last, right in merges:
        source = texts.get(first, [])
        text = source[left - 1] if left <= len(source) else ""
        if not text:
            continue
        for number in range(first, min(last, last_row) + 1):
            row = texts.setdefault(number, [])
            stop = min(right, width)
            # cells with text count as well: many areas over the same cells cost time
            count += stop - left + 1
            if count > max_cells:
                raise too_many_cells(count, max_cells)
            row.extend([""] * (stop - len(row)))
            for column in range(left, stop + 1):
                row[column - 1] = row[column - 1] or text


def _read_cell(cell: Any, extras: _Extras, number: int, column: int) -> str:
    value = cell.value
    if value is None:
        return extras.formulas.get((number, column), "")
    text = format_value(value, cell.number_format or "General")
    target = extras.links.get((number, column))
    if not target or not text or " " in target:
        return text
    own_address = target.rstrip("/") in (text, f"mailto:{text}")
    return text if own_address else f"[{text}]({target})"


def format_value(value: Any, number_format: str) -> str:
    """The text of a cell's value: numbers as formatted, full dates in ISO form."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case datetime.datetime():
            if value.time() == datetime.time() and not re.search(
                r"[hs]", number_format, re.IGNORECASE
            ):
                return format_partial_date(value, number_format) or value.date().isoformat()
            return value.isoformat(
                " ", "seconds" if value.second or value.microsecond else "minutes"
            )
        case datetime.date():
            return format_partial_date(value, number_format) or value.isoformat()
        case datetime.time():
            text = value.isoformat("seconds" if value.second or value.microsecond else "minutes")
            if not re.search("am/pm", number_format, re.IGNORECASE):
                return text
            return f"{value.hour % 12 or 12}{text[2:]} {'AM' if value.hour < 12 else 'PM'}"
        case datetime.timedelta():
            seconds = round(value.total_seconds())
            minutes, rest = divmod(abs(seconds), 60)
            shown = f":{rest:02}" if rest or re.search("s", number_format, re.IGNORECASE) else ""
            return f"{'-' if seconds < 0 else ''}{minutes // 60}:{minutes % 60:02}{shown}"
        case int() | float():
            if value != value or abs(value) == float("inf"):
                return str(value)
            written = None if number_format == "General" else format_number(value, number_format)
            return written or (str(value) if isinstance(value, int) else format_general(value))
        case _:
            return _ESCAPED.sub(_control_character, str(value))


def _control_character(found: re.Match[str]) -> str:
    """The character behind an escape such as `_x000D_`: a line break or tab, else nothing."""
    char = chr(int(found[1], 16))
    return char if char in "\t\n\v\f\r" else ""
