"""The files of the trace store below `traces/`: parts, which are folders of immutable Parquet
files, and the manifest that lists the valid parts.

    traces/manifest.json                  the parts, and how far each log has been read
    traces/<part>/traces.parquet  spans.parquet  events.parquet  model_calls.parquet

A part is written under a temporary name, read back and renamed before the manifest lists it; parts
that the manifest does not list are ignored.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rag_platform.errors import IntegrityError, SchemaVersionError
from rag_platform.ir import Json
from rag_platform.observability.trace_store.rows import (
    COLUMNS,
    LINE_TABLES,
    arrow_schema,
    time_column,
)
from rag_platform.storage.locks import hold_lock
from rag_platform.storage.store import flush_directory, flush_file, read_json, write_json

SCHEMA_VERSION = 1
# Rows of a row group. Lines are read back a few at a time; each read decompresses a whole group.
_GROUP_ROWS = 20_000
# Merged parts stay this long for readers that began before.
_READING_SECONDS = 60.0
_LOCK_SECONDS = 30.0  # for erasing and gc; a reader does not wait


@dataclass(frozen=True, slots=True)
class Part:
    """One folder of Parquet files, one for each table."""

    name: str
    rows: Mapping[str, int]
    bytes: int
    first: str  # times of the oldest and newest line
    last: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of the store: `marks` has the number of bytes of each log that are in it, `open`
    the traces whose last line is missing, by id: trace_type, started_at, pid.
    """

    parts: tuple[Part, ...] = ()
    marks: Mapping[str, int] = field(default_factory=dict)
    open: Mapping[str, Json] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The size of all parts."""
        return sum(part.bytes for part in self.parts)


def traces_dir(logs_dir: Path) -> Path:
    """The folder of the trace store for a folder of logs."""
    return logs_dir.parent / "traces"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a trace store; an empty one if there is no file. Raises SchemaVersionError
    for another schema version.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        return Manifest()
    anew = "remove the folder: traces that are still in logs/ are compacted anew"
    value = read_json(path, anew)
    if value.get("schema_version") != SCHEMA_VERSION:
        raise SchemaVersionError(
            f"{path} has schema {value.get('schema_version')}; this program reads"
            f" {SCHEMA_VERSION}. Use the program that wrote it, or {anew}"
        )
    parts = tuple(Part(**part) for part in value["parts"])
    return Manifest(parts, value["marks"], value["open"])


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of a trace store."""
    write_json(folder / "manifest.json", {"schema_version": SCHEMA_VERSION, **asdict(manifest)})


def remove_unnamed(folder: Path, manifest: Manifest, seconds: float = _READING_SECONDS) -> None:
    """Remove the parts that the manifest does not list and leftovers of crashes; by default only
    those that no reader can still be using.
    """
    named = {part.name for part in manifest.parts}
    before = time.time() - seconds
    for path in folder.iterdir():
        if path.is_dir() and path.name not in named and path.stat().st_mtime <= before:
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def changing(folder: Path, owner: str, *, wait: float = _LOCK_SECONDS) -> Iterator[None]:
    """Holds the store's write lock. Raises BusyError, StorageError `read_only`."""
    with hold_lock(folder / ".lock", owner, "the traces are being compacted", wait=wait):
        yield


# --- one part -----------------------------------------------------------------------------------


class PartWriter:
    """A part being written: tables are appended to its files; `finish` gives it its final name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = f"{datetime.now():%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        self._path = folder / f".{self._name}"
        self._writers: dict[str, Any] = {}
        self._rows = dict.fromkeys(COLUMNS, 0)
        self._times: list[datetime] = []

    def add(self, tables: Mapping[str, Any]) -> None:
        """Append the rows of Arrow tables, by name."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        if not self._writers:
            self._path.mkdir(parents=True)
            self._writers = {
                name: pq.ParquetWriter(
                    self._path / f"{name}.parquet",
                    arrow_schema(name),
                    compression="zstd",
                    # not for ids and lines, whose values are nearly all different
                    use_dictionary=_find_repeated(name),
                    store_schema=False,
                )
                for name in COLUMNS
            }
        for name, table in tables.items():
            self._writers[name].write_table(
                table.cast(arrow_schema(name)), row_group_size=_GROUP_ROWS
            )
            self._rows[name] += table.num_rows
            times = table.column(time_column(name))
            if table.num_rows:
                bounds = pc.min_max(times).as_py()
                self._times += [bounds["min"], bounds["max"]]

    def finish(self) -> Part | None:
        """The part, verified and renamed; None without rows. Raises IntegrityError."""
        if not self._writers:
            return None
        for writer in self._writers.values():
            writer.close()
        if not self._times:
            self.discard()
            return None
        for name, count in self._rows.items():
            _verify(self._path / f"{name}.parquet", name, count)
        os.replace(self._path, self._folder / self._name)
        flush_directory(self._folder)
        files = (self._folder / self._name).iterdir()
        return Part(
            self._name,
            self._rows,
            sum(path.stat().st_size for path in files),
            min(self._times).isoformat(),
            max(self._times).isoformat(),
        )

    def discard(self) -> None:
        """Remove what was written."""
        for writer in self._writers.values():
            writer.close()
        shutil.rmtree(self._path, ignore_errors=True)


@contextmanager
def new_part(folder: Path) -> Iterator[PartWriter]:
    """Yields a part to write; if the block raises, its files are removed."""
    writer = PartWriter(folder)
    try:
        yield writer
    except BaseException:
        writer.discard()
        raise


def read_lines(folder: Path, part: Part, table: str) -> Iterator[bytes]:
    """The lines of a part, as they were written."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder / part.name / f"{table}.parquet") as file:
        for batch in file.iter_batches(batch_size=_GROUP_ROWS, columns=["line"]):
            for line in batch.column(0).to_pylist():
                yield line.encode()


def part_tables(folder: Path, part: Part) -> Iterator[dict[str, Any]]:
    """The rows of a part as Arrow tables, a few at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in COLUMNS:
        with pq.ParquetFile(folder / part.name / f"{name}.parquet") as file:
            for batch in file.iter_batches(batch_size=_GROUP_ROWS):
                yield {name: pa.Table.from_batches([batch])}


def replace_parts(manifest: Manifest, old: list[Part], new: Part | None) -> Manifest:
    """The manifest with one part in place of others."""
    kept = tuple(part for part in manifest.parts if part not in old)
    return replace(manifest, parts=kept if new is None else (*kept, new))


def _find_repeated(name: str) -> list[str]:
    unique = {"trace_id", "span_id", "parent_span_id", "event_id", "line", "question", "stages"}
    return [
        column for column, kind in COLUMNS[name].items() if kind == "text" and column not in unique
    ]


def _verify(path: Path, name: str, count: int) -> None:
    """Read a file back and flush it. Raises IntegrityError if it is damaged or lacks rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            # reading a column decompresses and checks all its pages
            column = "line" if name in LINE_TABLES else "trace_id"
            read = sum(batch.num_rows for batch in file.iter_batches(columns=[column]))
    except (OSError, pa.ArrowInvalid) as error:
        raise IntegrityError(f"{path} cannot be read back: {error}") from error
    if read != count:
        raise IntegrityError(f"{path} holds {read} rows; {count} were written")
    flush_file(path)
