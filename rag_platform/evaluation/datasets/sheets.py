"""Datasets in spreadsheets (CSV, TSV, XLSX): a header of field names, and one case per row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.errors import DocumentError
from rag_platform.evaluation.cases import LISTS, MAPPINGS, Dataset, invalid_dataset, parse_case
from rag_platform.evaluation.datasets.files import require_cases
from rag_platform.loaders.decoding import decode
from rag_platform.loaders.office.sheet_tables import Row
from rag_platform.loaders.office.sheets import MAX_CELLS, XlsxLoader, read_csv, read_workbook

_FIELDS = {  # aliases in headers
    "id": "case_id",
    "question": "query",
    "answer": "expected_answer",
    "file": "expected_files",
    "text": "expected_text",
    "问题": "query",
    "答案": "expected_answer",
    "文件": "expected_files",
    "原文": "expected_text",
    "标签": "tags",
    "应拒答": "should_refuse",
}
_FLAGS = {"true": True, "yes": True, "1": True, "是": True}
_FLAGS |= {"false": False, "no": False, "0": False, "否": False}


@dataclass(frozen=True)
class Spreadsheet:
    """One case per row; empty cells are ignored, and a case without `case_id` is named by its
    position. Lists are separated by semicolons; each expected text has a cell of its own, so its
    column may be repeated. Objects are written as JSON.
    """

    VERSION: ClassVar[str] = "1"

    def load(self, source: Path) -> Dataset:
        """The dataset of a file, of a workbook its first visible sheet. Raises InputError
        `invalid_dataset` with line and column.
        """
        try:
            rows = _read_xlsx(source) if source.suffix.lower() == ".xlsx" else _read_csv(source)
        except DocumentError as error:
            raise invalid_dataset(source.name, error.message) from error
        filled = ((where, row) for where, row in rows if not row.blank)
        where, head = next(filled, ("", Row(0, ())))
        names = [_FIELDS.get(key, key) for key in (cell.strip().lower() for cell in head.cells)]
        if "query" not in names:
            shown = ", ".join(head.cells)
            raise invalid_dataset(
                where or source.name, f"no column is called `query`: {shown or 'nothing'}"
            )
        cases = [
            parse_case(
                {"case_id": f"{source.stem}-{number}", **_read_row(names, row, where)}, where
            )
            for number, (where, row) in enumerate(filled, 1)
        ]
        return Dataset(
            dataset_id=source.stem, version=self.VERSION, cases=require_cases(cases, source.name)
        )


def _read_csv(source: Path) -> Iterator[tuple[str, Row]]:
    decoded = decode(source.read_bytes())
    if decoded.lossy:
        raise invalid_dataset(source.name, f"{decoded.warnings[0]}; save it as UTF-8")
    _, rows, problems = read_csv(decoded.text, MAX_CELLS)
    if problems:
        raise invalid_dataset(source.name, problems[0].partition(";")[0])
    return ((f"{source.name}, line {row.first_line}", row) for row in rows)


def _read_xlsx(source: Path) -> Iterator[tuple[str, Row]]:
    XlsxLoader().require(source, ".xlsx")
    sheets = (sheet for sheet in read_workbook(source, MAX_CELLS).sheets if not sheet.hidden)
    rows: Iterable[Row] = next((sheet.rows for sheet in sheets if sheet.rows), ())
    return ((f"{source.name}, row {row.number}", row) for row in rows)


def _read_row(names: list[str], row: Row, where: str) -> dict[str, Any]:
    """The case of a row as input for `parse_case`."""
    found: dict[str, Any] = {}
    for number, cell in enumerate(map(str.strip, row.cells)):
        if not cell:
            continue
        if number >= len(names) or not names[number]:
            raise invalid_dataset(
                where, f"{cell[:80]!r} in column {number + 1} has no header above it"
            )
        name = names[number]
        value = _read_cell(name, cell, f"{where}, column {number + 1} ({name})")
        if isinstance(value, list):
            value = found.get(name, []) + value
        elif name in found:
            raise invalid_dataset(where, f"{name} is given twice")
        found[name] = value
    return found


def _read_cell(name: str, cell: str, where: str) -> Any:
    if name == "should_refuse":
        if cell.lower() not in _FLAGS:
            raise invalid_dataset(where, f"true or false is wanted, not {cell!r}")
        return _FLAGS[cell.lower()]
    if name in MAPPINGS:
        try:
            return json.loads(cell)
        except ValueError as error:
            raise invalid_dataset(where, f"{cell[:80]!r} is not JSON: {error}") from error
    if name == "expected_text":
        return [cell]
    if name in LISTS:
        return [part.strip() for part in cell.replace("；", ";").split(";") if part.strip()]
    return cell
