"""Writes the vectors of a release as one base, however few changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from rag_platform.indexes import dense_files
from rag_platform.protocols import Vectors


def write_matrix(
    directory: Path, *, dim: int, removed: Collection[str], ids: Sequence[str], vectors: Vectors
) -> None:
    """Make one base of the rows in `directory` without the removed ones, and of new rows."""
    held = (directory / dense_files.BASE).is_file()
    parts = dense_files.read_parts(directory) if held else dense_files.empty(dim)
    dense_files.write_base(directory, parts, removed, ids, vectors)
