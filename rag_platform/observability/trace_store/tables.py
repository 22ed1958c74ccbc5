"""The tables of the trace store as Arrow tables: the compacted ones, and newer lines of the logs.

tables = open_tables(store.logs_dir)
slow = tables.read("traces", ["trace_id"], pc.field("latency_ms") > 500)
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rag_platform.errors import BusyError, StorageError
from rag_platform.ir import Json
from rag_platform.observability.trace_store import compaction
from rag_platform.observability.trace_store.parts import Manifest, Part, read_manifest, traces_dir
from rag_platform.observability.trace_store.rows import (
    LINE_TABLES,
    Rows,
    arrow_schema,
    make_table,
    naive_utc,
    time_column,
)

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, Table
    from pyarrow.compute import Expression

# Bytes of new lines from which readers compact first; parsing this much takes about 50 ms.
_COMPACT_FROM = 1 << 20
_ATTEMPTS = 3  # a part may be merged into another between reading the manifest and opening it

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables at one moment: the `parts` in a folder, the `new` rows of the logs by table, the
    traces that `began`, of which some may have ended, and `warnings` about unreadable lines.
    """

    folder: Path
    parts: Sequence[Part]
    new: Mapping[str, Table]
    began: Mapping[str, Json]
    warnings: tuple[str, ...] = ()

    def read(self, name: str, columns: Sequence[str], condition: Expression | None = None) -> Table:
        """The rows of a table that meet the condition, in no order."""
        import pyarrow as pa

        new = self.new[name] if condition is None else self.new[name].filter(condition)
        old = _read_parts(self.folder, self.parts, name, columns, condition)
        return pa.concat_tables([old, new.select(list(columns))])

    def open_traces(self) -> list[Json]:
        """The traces without a last line: trace_id, trace_type, started_at, pid."""
        ended = self.read("traces", ["trace_id"], is_one_of("trace_id", self.began))
        ended_ids = set(ended["trace_id"].to_pylist())
        left = [
            {"trace_id": trace_id, **values}
            for trace_id, values in self.began.items()
            if trace_id not in ended_ids
        ]
        columns = ["trace_id", "trace_type", "started_at", "pid"]
        rows: list[Json] = make_table("traces", left).select(columns).to_pylist()
        return rows


def as_time(time: datetime) -> Any:
    """A time to compare columns with, in their unit, without which no row group is skipped."""
    import pyarrow as pa

    return pa.scalar(naive_utc(time), pa.timestamp("ms"))


def is_within_times(column: str, times: ChunkedArray) -> Expression:
    """The condition that a time lies between the first and the last of these; row groups without
    such times are skipped.
    """
    import pyarrow.compute as pc

    bounds = pc.min_max(times)
    return (pc.field(column) >= bounds["min"]) & (pc.field(column) <= bounds["max"])


def is_one_of(column: str, values: Iterable[str]) -> Expression:
    """The condition that a column of texts has one of the values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.field(column).isin(pa.array(values, pa.string()))


def open_tables(
    logs_dir: Path, since: datetime | None = None, names: Collection[str] = ()
) -> Tables:
    """The tables for a folder of logs, all or those in `names`; with `since`, older rows may be
    missing.

    Compacts first if the logs have many new lines and the store is writable. Raises
    SchemaVersionError.
    """
    _catch_up(logs_dir)

    def take(manifest: Manifest) -> Tables:
        rows, warnings = _read_tail(logs_dir, manifest)
        parts = [
            part
            for part in manifest.parts
            if since is None or part.last >= naive_utc(since).isoformat()
        ]
        _require_present(traces_dir(logs_dir), parts)
        began = {**rows.open_traces(), **manifest.open}
        return Tables(traces_dir(logs_dir), parts, rows.tables(names), began, warnings)

    return _with_parts(logs_dir, take)


def find_lines(
    logs_dir: Path, needle: bytes, condition: Expression, tables: Sequence[str] = LINE_TABLES
) -> Iterator[tuple[bytes | str, int | None]]:
    """(line, id of the process that wrote it): first the compacted lines that meet a condition in
    one of the tables, with None for the process, then new lines of the logs that contain the
    `needle`.
    """

    def read(manifest: Manifest) -> tuple[Manifest, list[str]]:
        folder = traces_dir(logs_dir)
        _require_present(folder, manifest.parts)
        return manifest, [
            line
            for name in tables
            for line in _read_parts(folder, manifest.parts, name, ["line"], condition)[
                "line"
            ].to_pylist()
        ]

    manifest, lines = _with_parts(logs_dir, read)
    yield from zip(lines, itertools.repeat(None))
    for file in compaction.log_files(logs_dir):
        for line, _ in compaction.whole_lines(file, manifest.marks):
            if needle in line:
                yield line, file.pid


def _with_parts(logs_dir: Path, read: Callable[[Manifest], R]) -> R:
    """The result of `read` for the current parts; repeated if a part disappears meanwhile."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(FileNotFoundError):
            return read(read_manifest(traces_dir(logs_dir)))
    return read(read_manifest(traces_dir(logs_dir)))


def _read_parts(
    folder: Path,
    parts: Sequence[Part],
    name: str,
    columns: Sequence[str],
    condition: Expression | None,
) -> Table:
    """The rows of a table of the parts that meet the condition. Lines, which are long, are read
    only for the time in which there are such rows.
    """
    import pyarrow.dataset as ds

    files = [str(folder / part.name / f"{name}.parquet") for part in parts]
    table = ds.dataset(files, schema=arrow_schema(name), format="parquet")
    if condition is not None and "line" in columns:
        time = time_column(name)
        condition &= is_within_times(time, table.to_table([time], filter=condition)[time])
    return table.to_table(list(columns), filter=condition)


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


def _require_present(folder: Path, parts: Sequence[Part]) -> None:
    """Raise FileNotFoundError for a part that was merged since the manifest was read."""
    for part in parts:
        os.stat(folder / part.name)
