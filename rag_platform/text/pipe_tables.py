"""Writes and reads Markdown pipe tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rag_platform.ir import Chunk
from rag_platform.text.markdown_blocks import DELIMITER, cells


def escape_cell(cell: str) -> str:
    """A cell's text with its pipes escaped."""
    return cell.replace("|", "\\|")


def format_row(texts: Sequence[str]) -> str:
    """One row; the texts of its cells must not have line breaks."""
    return "| " + " | ".join(map(escape_cell, texts)) + " |"


def format_rule(columns: int) -> str:
    """The separator line below the header."""
    return "|" + " --- |" * columns


def format_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table of a report; None is an empty cell."""
    texts = (["" if cell is None else str(cell) for cell in row] for row in rows)
    return [format_row(head), f"|{'---|' * len(head)}", *map(format_row, texts)]


def parse_row(line: str) -> list[str]:
    """The cells of a row written by `format_row`."""
    return [cell.replace("\\|", "|") for cell in cells(line)]


def table_heads(chunks: Iterable[Chunk]) -> dict[str, str]:
    """Chunk id to the header row of the table within which the chunk begins."""
    found: dict[str, str] = {}
    head = section_id = ""
    for chunk in chunks:
        lines = chunk.chunk_text.split("\n")
        begins = "|" in lines[0] and not any(map(DELIMITER.fullmatch, lines[:2]))
        head = head if begins and chunk.section_id == section_id else ""
        if head:
            found[chunk.chunk_id] = head
        head, section_id = _open_head(lines, head), chunk.section_id
    return found


def _open_head(lines: Sequence[str], before: str) -> str:
    """The header row of the table in which the lines end, empty without one; `before` if all lines
    are rows.
    """
    for index in range(len(lines) - 1, -1, -1):
        if "|" not in lines[index]:
            return ""
        if index and DELIMITER.fullmatch(lines[index]):
            return lines[index - 1]
    return before
