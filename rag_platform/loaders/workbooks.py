"""The sheets of an XLSX workbook as rows of texts, read with openpyxl row by row."""

from __future__ import annotations

import contextlib
import datetime
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from rag_platform.errors import DocumentError
from rag_platform.ir import Json
from rag_platform.loaders.damage import damage
from rag_platform.loaders.number_formats import general, shown_number, shown_partial_date
from rag_platform.loaders.sheet_tables import Row
from rag_platform.loaders.sheets import too_many_cells
from rag_platform.observability import faults

MAX_ROWS, MAX_COLUMNS = 1_048_576, 16_384  # the format's own
Place = tuple[int, int]  # row and column, from 1


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet: its rows in order, merged cells spelled out."""

    name: str
    hidden: bool
    rows: tuple[Row, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Workbook:
    """The sheets of a file and what it says of itself."""

    sheets: tuple[Sheet, ...]
    title: str
    metadata: Json
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Extras:
    """What stands beside the values of a sheet."""

    merges: list[tuple[int, int, int, int]] = field(default_factory=list)  # first row, first column, last row, last column
    links: dict[Place, str] = field(default_factory=dict)
    formulas: dict[Place, str] = field(default_factory=dict)  # those without a stored value


def engine_version() -> str:
    """The version of openpyxl."""
    import openpyxl

    return str(openpyxl.__version__)


def sheet_of(locator: str) -> str:
    """The name of the sheet in a locator."""
    return unquote(locator.removeprefix("sheet=").split(";")[0])


def read_workbook(path: Path, max_cells: int) -> Workbook:
    """Every worksheet of the file, hidden ones too. Raises DocumentError: `broken_file`, `too_large`."""
    import openpyxl

    cells = 0
    sheets: list[Sheet] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openpyxl warns of features it drops; those that hold text are named below
        try:
            with open(path, "rb") as opened, contextlib.closing(openpyxl.load_workbook(opened, read_only=True, data_only=True)) as book:
                for sheet in book.worksheets:
                    extras = _extras(book, sheet)
                    rows = _rows(sheet, extras, cells, max_cells)
                    cells += sum(len(row.cells) for row in rows)
                    said = f"{len(extras.formulas)} formulas have no stored value and are shown as formulas; open and save it in Excel"
                    told = (said,) if extras.formulas else ()
                    sheets.append(Sheet(sheet.title, sheet.sheet_state != "visible", rows, told))
                metadata = _metadata(book.properties)
        except DocumentError:
            raise
        except MemoryError:
            raise
        except Exception as error:  # openpyxl raises whatever its parsers raise on a damaged file
            faults.seen_ours(error, "stage.loader")
            raise DocumentError(
                f"the workbook cannot be read: {damage(error)}; open and save it in Excel or LibreOffice",
                code="broken_file",
            ) from error
    return Workbook(tuple(sheets), str(metadata.pop("title", "")), metadata, tuple(_unread(path)))


def _metadata(properties: Any) -> Json:
    found = {
        "title": properties.title,
        "author": properties.creator,
        "subject": properties.subject,
        "keywords": properties.keywords,
        "description": properties.description,
        "created": properties.created,
        "modified": properties.modified,
    }
    return {
        key: value.isoformat() if isinstance(value, datetime.datetime) else " ".join(str(value).split())
        for key, value in found.items()
        if value and str(value).strip() and not (key == "author" and value == "openpyxl")
    }


def _unread(path: Path) -> Iterator[str]:
    """A warning for each kind of part that holds content and is not read."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    for pattern, said in (
        (r"xl/charts/chart\d*\.xml", "charts"),
        (r"xl/media/.+", "pictures"),
        (r"xl/(threadedC|c)omments/?.*\.xml", "files of cell comments"),
        (r"xl/pivotTables/pivotTable\d*\.xml", "pivot tables' definitions"),
    ):
        if count := sum(re.fullmatch(pattern, name) is not None for name in names):
            yield f"{count} {said} were not read"


# --- beside the values -------------------------------------------------------------------------------------------------------


def _extras(book: Any, sheet: Any) -> _Extras:
    """Merged ranges, links and formulas without a value: the row reader of openpyxl leaves these out."""
    from lxml import etree

    found = _Extras()
    links: list[tuple[str, str]] = []
    with sheet._get_source() as source:
        parser = etree.iterparse(source, tag=("{*}row", "{*}mergeCell", "{*}hyperlink"), resolve_entities=False, no_network=True)
        for _, element in parser:
            name = etree.QName(element).localname
            if name == "row":
                for formula in element.iter("{*}f"):
                    cell = formula.getparent()
                    value = cell.find("{*}v")
                    if (value is None or value.text is None) and (place := _place(cell.get("r", ""))):
                        found.formulas[place] = f"={formula.text or ''}"
                element.clear()
                while element.getprevious() is not None:
                    del element.getparent()[0]
            elif name == "mergeCell" and (area := _area(element.get("ref", ""))):
                found.merges.append(area)
            elif name == "hyperlink":
                for key, value in element.attrib.items():
                    if etree.QName(key).localname == "id" and element.get("ref"):
                        links.append((element.get("ref"), value))
    if links:
        targets = _targets(book, sheet._worksheet_path)
        for ref, relation in links:
            area = _area(ref)
            if area and relation in targets:
                found.links[area[:2]] = targets[relation]
    return found


def _targets(book: Any, part: str) -> dict[str, str]:
    """Relationship id to external target of a sheet."""
    from lxml import etree

    folder, _, name = part.lstrip("/").rpartition("/")
    try:
        data = book._archive.read(f"{folder}/_rels/{name}.rels")
    except KeyError:
        return {}
    root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    return {str(item.get("Id")): str(item.get("Target")) for item in root if item.get("TargetMode") == "External"}


def _place(ref: str) -> Place | None:
    match = re.fullmatch(r"\$?([A-Z]{1,3})\$?(\d{1,7})", ref)
    if match is None:
        return None
    column = 0
    for letter in match[1]:
        column = column * 26 + ord(letter) - 64
    return int(match[2]), column


def _area(ref: str) -> tuple[int, int, int, int] | None:
    first, _, last = ref.partition(":")
    start, end = _place(first), _place(last or first)
    return (*start, *end) if start and end else None


# --- values --------------------------------------------------------------------------------------------------------------------


def _rows(sheet: Any, extras: _Extras, count: int, max_cells: int) -> tuple[Row, ...]:
    """The rows that hold something, and blank ones between them; `count` cells were read before."""
    sheet.reset_dimensions()  # files lie about them, and openpyxl would leave the rest out
    texts: dict[int, list[str]] = {}
    width = 0
    for number, cells in enumerate(sheet.iter_rows(), 1):
        if number > MAX_ROWS:
            raise DocumentError(f"rows beyond {MAX_ROWS}, which the format does not have; export the workbook again", code="broken_file")
        row = [_text(cell, extras, number, column) for column, cell in enumerate(cells[:MAX_COLUMNS], 1)]
        while row and not row[-1]:
            row.pop()
        if not row:
            continue
        texts[number] = row
        count += len(row)
        width = max(width, len(row))
        if count > max_cells:
            raise too_many_cells(count, max_cells)
    _spell_out(texts, extras.merges, width, count, max_cells)
    return tuple(Row(number, tuple(texts.get(number, ()))) for number in _with_gaps(sorted(texts)))


def _with_gaps(numbers: Iterable[int]) -> Iterator[int]:
    """The numbers, and one between two that are no neighbours: a blank row ends a region, however many there are."""
    last: int | None = None
    for number in numbers:
        if last is not None and number > last + 1:
            yield last + 1
        yield number
        last = number


def _spell_out(texts: dict[int, list[str]], merges: Iterable[tuple[int, int, int, int]], width: int, count: int, max_cells: int) -> None:
    """Repeat the text of each merged area in its cells, within the used part of the sheet."""
    last_row = max(texts, default=0)
    for first, left, last, right in merges:
        source = texts.get(first, [])
        text = source[left - 1] if left <= len(source) else ""
        if not text:
            continue
        for number in range(first, min(last, last_row) + 1):
            row = texts.setdefault(number, [])
            stop = min(right, width)
            count += stop - left + 1  # also those that are there: many areas over the same cells cost time
            if count > max_cells:
                raise too_many_cells(count, max_cells)
            row.extend([""] * (stop - len(row)))
            for column in range(left, stop + 1):
                row[column - 1] = row[column - 1] or text


def _text(cell: Any, extras: _Extras, number: int, column: int) -> str:
    value = cell.value
    if value is None:
        return extras.formulas.get((number, column), "")
    text = shown(value, cell.number_format or "General")
    target = extras.links.get((number, column))
    return f"[{text}]({target})" if target and text and target.rstrip("/") not in (text, f"mailto:{text}") and " " not in target else text


def shown(value: Any, number_format: str) -> str:
    """The text of a cell's value: numbers as their format shows them, dates in ISO form where the format shows year, month and day."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case datetime.datetime():
            if value.time() == datetime.time() and not re.search(r"[hs]", number_format, re.IGNORECASE):
                return shown_partial_date(value, number_format) or value.date().isoformat()
            return value.isoformat(" ", "seconds" if value.second or value.microsecond else "minutes")
        case datetime.date():
            return shown_partial_date(value, number_format) or value.isoformat()
        case datetime.time():
            return value.isoformat("seconds" if value.second or value.microsecond else "minutes")
        case datetime.timedelta():
            seconds = round(value.total_seconds())
            return f"{'-' if seconds < 0 else ''}{abs(seconds) // 3600}:{abs(seconds) // 60 % 60:02}:{abs(seconds) % 60:02}"
        case int() | float():
            if value != value or abs(value) == float("inf"):
                return str(value)
            written = None if number_format == "General" else shown_number(value, number_format)
            return written or (str(value) if isinstance(value, int) else general(value))
        case _:
            return str(value)
