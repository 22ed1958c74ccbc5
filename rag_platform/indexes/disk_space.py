"""Whether there is room on disk for a release, before it is begun."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rag_platform.errors import StorageError
from rag_platform.ir import EmbedderInfo, Version
from rag_platform.store import directory_bytes

RESERVE = 32 * 1024 * 1024  # what the ledger, logs and Dagster write meanwhile
_UNPACKED = 4  # stage outputs are compressed; as rows, index entries and stored terms they take so many times their size
_VECTORS = 2.5  # the matrix, and the approximate index with the same numbers and its graph


def needed_bytes(stage_files: Sequence[Path], versions: Sequence[Version], embedder: EmbedderInfo | None, taken_over: Path | None) -> int:
    """A rough upper figure of what a release will write: its new versions' rows and vectors, and copies of what cannot be linked."""
    rows = _UNPACKED * sum(path.stat().st_size for path in stage_files if path.is_file())
    chunks = sum(int(version.counts.get("chunks", 0)) for version in versions)
    vectors = int(_VECTORS * 4 * embedder.dim * chunks) if embedder else 0
    copied = [] if taken_over is None else [taken_over / "catalog.sqlite", *taken_over.glob("dense/ann/*.sqlite3")]
    words = 0 if taken_over is None else directory_bytes([taken_over / "lexical"])  # at worst all of it is written anew
    return rows + vectors + sum(path.stat().st_size for path in copied if path.is_file()) + words + RESERVE


def require(home: Path, needed: int) -> None:
    """Raises StorageError `disk_full` when less than `needed` bytes are free under the data root."""
    free = shutil.disk_usage(home).free
    if free < needed:
        raise StorageError(
            f"the disk is full: {free / 1e6:.1f} MB are free under {home}, and the next release needs {needed / 1e6:.1f} MB: it may take "
            f"{(needed - RESERVE) / 1e6:.1f} MB, and {RESERVE / 1e6:.1f} MB are kept free for the ledger, logs and Dagster; what is "
            "published stays as it is. Free some space (`rag gc` removes what nothing needs), then do it again",
            code="disk_full", needed=needed, free=free,
        )  # fmt: skip
