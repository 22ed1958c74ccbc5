"""CSV and XLSX: rows grouped under their header as Markdown tables, so that any chunk stands alone."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts
from rag_platform.loaders import archives
from rag_platform.loaders.decoding import Decoded, decode, looks_like_text
from rag_platform.loaders.sheet_tables import Row, Size, disproved, groups, written
from rag_platform.loaders.text import facts_of, suffix_of
from rag_platform.traits import Traits

MAX_CELLS = 2_000_000
GROUP_CHARS = 720  # a group with its sheet's name fits the shipped chunk size of 800
GROUP_TOKENS = 400
MAX_FIELD_CHARS = 200_000  # a cell of a spreadsheet holds 32,767
DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class CsvLoader:
    """Reads delimiter-separated text; locators are `rows=3-9`, counted in records, and lines of the file.

    `charset` is the encoding that a server declared.
    """

    charset: str = ""
    max_cells: int = MAX_CELLS
    group_chars: int = GROUP_CHARS
    group_tokens: int = GROUP_TOKENS

    NAME: ClassVar[str] = "csv"
    VERSION: ClassVar[str] = "2"
    traits: ClassVar[Traits] = Traits()

    def claims(self, filename: str, head: bytes) -> bool:
        """True for text with the suffix .csv, .tsv or .tab."""
        return suffix_of(filename) in (".csv", ".tsv", ".tab") and looks_like_text(head)

    def load(self, path: Path, filename: str) -> Facts:
        """The facts of a file of records. Raises DocumentError: `empty_file`, `binary_content`, `too_large`."""
        decoded = decode(path.read_bytes(), self.charset)
        delimiter, rows, warnings = read_csv(decoded.text, self.max_cells)
        text, blocks = written([("", list(groups(rows, Size(self.group_chars, self.group_tokens), lettered=False)))])
        if not blocks:
            raise DocumentError("no record of the file holds anything; nothing to index", code="empty_file")
        metadata: dict[str, object] = {"delimiter": delimiter, "records": sum(not row.blank for row in rows)}
        told = Decoded(text, decoded.encoding, decoded.bom_len, decoded.lossy, decoded.warnings)
        return facts_of(
            self.NAME,
            self.VERSION,
            "csv",
            "1",
            told,
            blocks,
            (),
            PurePosixPath(filename).stem,
            metadata,
            warnings=warnings,
            profile="tables",
        )

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block whose records do not say what its lines say."""
        _, rows, _ = read_csv(decode(path.read_bytes(), self.charset).text, self.max_cells)
        numbered = {row.number: row for row in rows}
        return {block.ordinal: reason for block in blocks if (reason := disproved(text, block, numbered))}


def read_csv(text: str, max_cells: int) -> tuple[str, list[Row], list[str]]:
    """(delimiter, records, warnings). A line `sep=;` at the top names the delimiter and is no record. Raises DocumentError `too_large`."""
    named = re.match(r"sep=(.)(?:\r\n?|\n|\Z)", text)
    delimiter = named[1] if named else sniff_delimiter(text)
    broken: list[int] = []
    rows = list(_records(text, delimiter, max_cells, broken))
    warnings = []
    if broken:
        more = f", and {len(broken) - 1} more such lines" if len(broken) > 1 else ""
        warnings.append(f"a quote in line {broken[0]} is never closed{more}; quotes there were read as text")
    return delimiter, rows[1:] if named else rows, warnings


def _records(text: str, delimiter: str, max_cells: int, broken: list[int]) -> Iterator[Row]:
    """The records; a line whose quote is never closed is a record of its own, its number added to `broken`."""
    former = csv.field_size_limit(MAX_FIELD_CHARS)
    lines = list(io.StringIO(text, newline=""))
    start = count = 0
    numbers = itertools.count(1)
    try:
        while start < len(lines):
            reader = csv.reader((lines[number] for number in range(start, len(lines))), delimiter=delimiter)
            first = start
            while True:
                try:
                    cells = next(reader, None)
                except csv.Error:  # a field beyond all measure
                    cells, last = [], len(lines)
                else:
                    last = start + reader.line_num
                if cells is None:
                    return
                if (last > first + 1 or last == len(lines)) and not _closed(lines[first:last], delimiter):
                    cells, last = _unquoted(lines[first], delimiter, first + 1), first + 1
                    broken.append(last)
                count += len(cells)
                if count > max_cells:
                    raise too_many_cells(count, max_cells)
                yield Row(next(numbers), tuple(cells), first + 1, last)
                first = last
                if broken and broken[-1] == last:
                    break
            start = first
    finally:
        csv.field_size_limit(former)


def _unquoted(line: str, delimiter: str, number: int) -> list[str]:
    """The cells of a line, quotes read as text. Raises DocumentError `too_large` for a cell beyond all measure."""
    try:
        return next(csv.reader([line], delimiter=delimiter, quoting=csv.QUOTE_NONE))
    except csv.Error as error:
        said = f"a cell in line {number} has more than {MAX_FIELD_CHARS} characters; is the file what its name says?"
        raise DocumentError(said, code="too_large") from error


def _closed(lines: Sequence[str], delimiter: str) -> bool:
    """True where the quotes of a record over several lines end before a delimiter or its end; on one line where they end at all."""
    try:
        list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error as error:
        return len(lines) == 1 and "end of data" not in str(error)
    return True


def too_many_cells(count: int, most: int) -> DocumentError:
    """The refusal of a sheet that is too large to be read as a document."""
    return DocumentError(
        f"more than {count - 1} cells, above limits.max_cells = {most}; split the file, or raise the limit in settings.yaml",
        code="too_large",
    )


def sniff_delimiter(text: str) -> str:
    """The delimiter that cuts the most of the first records into the same number of cells; a comma where none cuts."""
    sample = text[:65_536]
    if len(text) > len(sample):
        sample = sample[: max(sample.rfind("\n"), sample.rfind("\r")) + 1] or sample
    scores: list[tuple[float, int, str]] = []
    for rank, delimiter in enumerate(DELIMITERS):
        if delimiter not in sample:
            continue
        try:
            widths = Counter(
                len(cells) for _, cells in zip(range(200), csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter), strict=False)
            )
        except csv.Error:
            continue
        widths.pop(0, None)
        width, often = max(widths.items(), key=lambda item: (item[0] > 1, item[1], item[0]), default=(1, 0))
        if width > 1:
            scores.append((often / sum(widths.values()), -rank, delimiter))
    return max(scores)[2] if scores else ","


@dataclass(frozen=True)
class XlsxLoader:
    """Reads the visible sheets of a workbook; locators are `sheet=Q1;rows=3-9`. Formulas give the value they had when it was saved."""

    max_cells: int = MAX_CELLS
    group_chars: int = GROUP_CHARS
    group_tokens: int = GROUP_TOKENS
    hidden_sheets: bool = False
    max_archive_ratio: float = archives.MAX_RATIO
    max_unpacked_bytes: int = archives.MAX_UNPACKED_BYTES

    NAME: ClassVar[str] = "xlsx"
    VERSION: ClassVar[str] = "2"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def claims(self, filename: str, head: bytes) -> bool:
        """True for a ZIP container called .xlsx, .xlsm, .xltx or .xltm."""
        return head.startswith(b"PK\x03\x04") and suffix_of(filename) in (".xlsx", ".xlsm", ".xltx", ".xltm")

    def load(self, path: Path, filename: str) -> Facts:
        """The facts of a workbook. Raises DocumentError: `broken_file`, `encrypted`, `archive_bomb`, `too_large`, `empty_file`."""
        from rag_platform.loaders.workbooks import engine_version, read_workbook

        archives.require_office(path, ".xlsx", max_ratio=self.max_archive_ratio, max_unpacked_bytes=self.max_unpacked_bytes)
        book = read_workbook(path, self.max_cells)
        size = Size(self.group_chars, self.group_tokens)
        shown = [sheet for sheet in book.sheets if self.hidden_sheets or not sheet.hidden]
        pieces = [(sheet.name, found) for sheet in shown if (found := list(groups(sheet.rows, size)))]
        if not pieces:
            raise DocumentError("no visible sheet holds a cell; nothing to index", code="empty_file")
        text, blocks = written(pieces)
        hidden = [sheet.name for sheet in book.sheets if sheet.hidden]
        warnings = [f"sheet {sheet.name!r}: {warning}" for sheet in shown for warning in sheet.warnings] + list(book.warnings)
        if hidden and not self.hidden_sheets:
            warnings.append(f"hidden sheets were not read: {', '.join(hidden)}; set the loader's option hidden_sheets to read them")
        metadata: dict[str, object] = {**book.metadata, "sheets": [name for name, _ in pieces], "hidden_sheets": hidden}
        title = book.title or PurePosixPath(filename).stem
        return facts_of(
            self.NAME, self.VERSION, "openpyxl", engine_version(), Decoded(text, ""), blocks, (), title, metadata,
            warnings=warnings, profile="tables",
        )  # fmt: skip

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block whose cells do not say what its lines say."""
        from rag_platform.loaders.workbooks import read_workbook, sheet_of

        archives.require_office(path, ".xlsx", max_ratio=self.max_archive_ratio, max_unpacked_bytes=self.max_unpacked_bytes)
        sheets = {sheet.name: {row.number: row for row in sheet.rows} for sheet in read_workbook(path, self.max_cells).sheets}
        bad: dict[int, str] = {}
        for block in blocks:
            name = sheet_of(block.locator)
            if name not in sheets:
                bad[block.ordinal] = f"no sheet {name!r}"
            elif block.kind == "heading":
                if text[block.start : block.end] != f"# {' '.join(name.split())}":
                    bad[block.ordinal] = f"the heading is not the name of sheet {name!r}"
            elif reason := disproved(text, block, sheets[name]):
                bad[block.ordinal] = reason
        return bad
