"""The traces as DuckDB tables: the compacted ones, and newer lines of the logs.

    with open_tables(store.logs_dir) as tables:
        rows = tables.select("SELECT trace_id FROM traces WHERE latency_ms > ?", [500])

There are `traces`, `spans`, `events`, `model_calls`, and `open_traces`: those without a last line.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from rag_platform.errors import BusyError, StorageError
from rag_platform.ir import Json
from rag_platform.observability.trace_store import compaction
from rag_platform.observability.trace_store.parts import Manifest, Part, read_manifest, traces_dir
from rag_platform.observability.trace_store.rows import LINE_TABLES, Rows, make_table, naive

# Bytes of new lines from which readers compact first; parsing this much takes about 50 ms.
_COMPACT_FROM = 1 << 20
_ATTEMPTS = 3  # a part may be merged into another between reading the manifest and opening it
_THREADS = 2

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Tables:
    """An open connection with the tables as views, and `warnings` about unreadable lines."""

    connection: Any
    warnings: tuple[str, ...] = ()

    def select(self, query: str, values: Sequence[Any] = ()) -> list[Json]:
        """The rows of a query as mappings."""
        cursor = self.connection.execute(query, list(values))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@contextmanager
def open_tables(
    logs_dir: Path, since: datetime | None = None, names: Collection[str] = ()
) -> Iterator[Tables]:
    """The tables for a folder of logs, all or those in `names`; with `since`, older rows may be
    missing.

    Compacts first if the logs have many new lines and the store is writable. Raises
    SchemaVersionError.
    """
    _catch_up(logs_dir)

    def connect(manifest: Manifest) -> Tables:
        rows, warnings = _read_tail(logs_dir, manifest)
        return Tables(_connect(traces_dir(logs_dir), manifest, rows, since, names), warnings)

    tables = _read_parts(logs_dir, connect)
    with closing(tables.connection):
        yield tables


def find_lines(
    logs_dir: Path,
    needle: bytes,
    condition: str,
    values: Sequence[Any] = (),
    tables: Sequence[str] = LINE_TABLES,
) -> Iterator[tuple[bytes | str, int | None]]:
    """(line, id of the process that wrote it): first the compacted lines that meet an SQL condition
    in one of the tables, with None for the process, then new lines of the logs that contain the
    `needle`.
    """

    def read(manifest: Manifest) -> tuple[Manifest, list[str]]:
        where = (condition, values)
        return manifest, _compacted_lines(traces_dir(logs_dir), manifest, tables, where)

    manifest, lines = _read_parts(logs_dir, read)
    yield from zip(lines, itertools.repeat(None))
    for file in compaction.log_files(logs_dir):
        for line, _ in compaction.whole_lines(file, manifest.marks):
            if needle in line:
                yield line, file.pid


def _read_parts(logs_dir: Path, read: Callable[[Manifest], R]) -> R:
    """The result of `read` for the current parts; repeated if a part disappears meanwhile."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(FileNotFoundError):
            return read(read_manifest(traces_dir(logs_dir)))
    return read(read_manifest(traces_dir(logs_dir)))


def _compacted_lines(
    folder: Path, manifest: Manifest, tables: Sequence[str], where: tuple[str, Sequence[Any]]
) -> list[str]:
    if not manifest.parts:
        return []
    condition, values = where
    _require_present(folder, manifest.parts)
    query = " UNION ALL ".join(
        f"SELECT line FROM {_read_files(folder, manifest.parts, name)} WHERE {condition}"
        for name in tables
    )
    with closing(_database(os.getpid()).cursor()) as connection:
        found = connection.execute(query, [*values] * len(tables)).fetchall()
    return [line for (line,) in found]


def _read_files(folder: Path, parts: Sequence[Part], name: str) -> str:
    """The SQL that reads a table of the parts."""
    files = ", ".join(quote(folder / part.name / f"{name}.parquet") for part in parts)
    return f"read_parquet([{files}], union_by_name = true)"


def _catch_up(logs_dir: Path) -> None:
    folder = traces_dir(logs_dir)
    marks = read_manifest(folder).marks
    ahead = sum(
        file.size - compaction.mark_of(file, marks) for file in compaction.log_files(logs_dir)
    )
    if ahead > _COMPACT_FROM:
        # if another process compacts, or nobody can, the logs are read instead
        with suppress(BusyError, StorageError, OSError):
            compaction.compact(logs_dir, wait=0)


def _read_tail(logs_dir: Path, manifest: Manifest) -> tuple[Rows, tuple[str, ...]]:
    """The rows of the lines that are in no part yet."""
    rows, warnings = Rows(), []
    for file in compaction.log_files(logs_dir):
        for line, _ in compaction.whole_lines(file, manifest.marks):
            if not rows.add(line, file.pid):
                warnings.append(
                    f"logs/{file.path.name} has lines of a later program: they are left out;"
                    " upgrade to read them"
                )
                break
    return rows, tuple(warnings)


@functools.lru_cache(maxsize=1)
def _database(pid: int) -> Any:
    """The process's empty database, which takes 30 ms to create; each reader has its own connection
    with its own views.
    """
    import duckdb

    # nothing is downloaded
    offline = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    return duckdb.connect(":memory:", config={"threads": _THREADS, **offline})


def _connect(
    folder: Path, manifest: Manifest, rows: Rows, since: datetime | None, names: Collection[str]
) -> Any:
    parts = [p for p in manifest.parts if since is None or p.last >= naive(since).isoformat()]
    _require_present(folder, parts)
    connection = _database(os.getpid()).cursor()
    for name, table in rows.tables(names).items():
        connection.register(f"new_{name}", table)
        sources = [f"SELECT * FROM new_{name}"]
        if parts:
            sources.append(f"SELECT * FROM {_read_files(folder, parts, name)}")
        connection.execute(f"CREATE TEMP VIEW {name} AS {' UNION ALL BY NAME '.join(sources)}")
    if names:
        return connection
    begun = [
        {"trace_id": trace_id, **value}
        for trace_id, value in {**rows.open_traces(), **manifest.open}.items()
    ]
    columns = ("trace_id", "trace_type", "started_at", "pid")
    connection.register("begun", make_table("traces", begun).select(columns))
    connection.execute(
        "CREATE TEMP VIEW open_traces AS SELECT * FROM begun ANTI JOIN traces USING (trace_id)"
    )
    return connection


def _require_present(folder: Path, parts: Sequence[Part]) -> None:
    """Raise FileNotFoundError for a part that was merged since the manifest was read."""
    for part in parts:
        os.stat(folder / part.name)


def quote(path: Path) -> str:
    """A path as an SQL string."""
    return "'" + str(path).replace("'", "''") + "'"
