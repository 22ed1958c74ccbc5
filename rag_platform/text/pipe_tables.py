"""Pipe tables of Markdown, as loaders and reports write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def escape_cell(cell: str) -> str:
    """A cell's text with its pipes escaped."""
    return cell.replace("|", "\\|")


def format_row(cells: Sequence[str]) -> str:
    """One row; the cells stand on one line already."""
    return "| " + " | ".join(map(escape_cell, cells)) + " |"


def format_rule(columns: int) -> str:
    """The line under the header."""
    return "|" + " --- |" * columns


def format_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table of a report; None is an empty cell."""
    cells = (["" if cell is None else str(cell) for cell in row] for row in rows)
    return [format_row(head), f"|{'---|' * len(head)}", *map(format_row, cells)]


def parse_row(line: str) -> list[str]:
    """The cells of a row as `format_row` wrote it."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
