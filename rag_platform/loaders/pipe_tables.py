"""Pipe tables, as every loader writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence


def escape_cell(cell: str) -> str:
    """A cell's text with its pipes escaped."""
    return cell.replace("|", "\\|")


def format_row(cells: Sequence[str]) -> str:
    """One row; the cells stand on one line already."""
    return "| " + " | ".join(map(escape_cell, cells)) + " |"


def format_rule(columns: int) -> str:
    """The line under the header."""
    return "|" + " --- |" * columns


def parse_row(line: str) -> list[str]:
    """The cells of a row as `row` wrote it."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
