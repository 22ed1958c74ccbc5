"""Moves the lines of the logs into the trace store, and keeps the store small.

Each log is read from its mark on; the marks advance when the manifest lists the part with the
lines. An incomplete last line is left for the next run. Small parts are merged, old ones dropped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path

from rag_platform.config.services import TraceRetention
from rag_platform.ir import Json
from rag_platform.observability.trace_store.parts import (
    Manifest,
    Part,
    changing,
    new_part,
    part_tables,
    read_manifest,
    remove_unnamed,
    replace_parts,
    traces_dir,
    write_manifest,
)
from rag_platform.observability.trace_store.rows import Rows, naive_utc, time_column

LOG_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})-(\d+)\.jsonl")
_BATCH_LINES = 100_000  # most lines of a new part
_READ_BYTES = 4 << 20
# As in log-structured merge trees, this many parts of similar size are merged; parts larger than
# _LARGEST_PART are not.
_MERGED_PARTS = 8
_SMALLEST_TIER = 256 * 1024
_LARGEST_PART = 48 << 20
_OPEN_TRACES = 1000  # most unfinished traces to remember; those of killed processes never end


@dataclass(frozen=True, slots=True)
class LogFile:
    """One process's log of one day."""

    path: Path
    day: str
    pid: int

    @property
    def size(self) -> int:
        """Its size in bytes; 0 if it was removed."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0


def log_files(logs_dir: Path) -> list[LogFile]:
    """The logs with traces, oldest day first."""
    if not logs_dir.is_dir():
        return []
    named = ((path, LOG_NAME.fullmatch(path.name)) for path in logs_dir.iterdir())
    files = [LogFile(path, match[1], int(match[2])) for path, match in named if match]
    return sorted(files, key=lambda file: (file.day, file.path.name))


def mark_of(file: LogFile, marks: Mapping[str, int]) -> int:
    """How far a log has been read, in bytes; 0 if it was truncated since."""
    mark = marks.get(file.path.name, 0)
    return mark if mark <= file.size else 0


def whole_lines(file: LogFile, marks: Mapping[str, int]) -> Iterator[tuple[bytes, int]]:
    """(line, offset of its end) of each complete line that has not been read yet."""
    mark = mark_of(file, marks)
    if not file.size > mark:
        return
    with open(file.path, "rb") as source:
        source.seek(mark)
        rest = b""
        while data := source.read(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                mark += len(line) + 1
                yield line, mark


def compact(logs_dir: Path, *, wait: float = 30.0) -> int:
    """Move the new lines of the logs into the store; returns the number of rows.

    Raises BusyError if another process still does so after `wait` seconds; StorageError
    `read_only`.
    """
    folder = traces_dir(logs_dir)
    taken = 0
    with changing(folder, "compacting", wait=wait):
        manifest = read_manifest(folder)
        while True:
            rows, marks = Rows(), dict(manifest.marks)
            more = _read_batch(logs_dir, rows, marks)
            if len(rows) or marks != manifest.marks:
                manifest = _store(folder, manifest, rows, marks)
                taken += len(rows)
            if not more:
                break
        known = {file.path.name for file in log_files(logs_dir)}
        if gone := manifest.marks.keys() - known:
            marks = {name: mark for name, mark in manifest.marks.items() if name not in gone}
            write_manifest(folder, replace(manifest, marks=marks))
        while group := _to_merge(manifest):
            manifest = _merge(folder, manifest, group)
        remove_unnamed(folder, manifest)
    return taken


def _read_batch(logs_dir: Path, rows: Rows, marks: dict[str, int]) -> bool:
    """Read the lines of one part and advance the marks; True if there are more."""
    for file in log_files(logs_dir):
        name = file.path.name
        for line, end in whole_lines(file, marks):
            if not rows.add(line, file.pid):
                break  # a line of a later program version, which will continue here
            marks[name] = end
            if len(rows) >= _BATCH_LINES:
                return True
    return False


def _store(folder: Path, manifest: Manifest, rows: Rows, marks: dict[str, int]) -> Manifest:
    with new_part(folder) as writer:
        if len(rows):
            writer.add(rows.tables())
        part = writer.finish()
    changed = replace_parts(manifest, [], part)
    changed = replace(changed, marks=marks, open=_find_open(folder, manifest, rows))
    write_manifest(folder, changed)
    return changed


def _find_open(folder: Path, manifest: Manifest, rows: Rows) -> dict[str, Json]:
    """The traces whose last line is in no part yet."""
    ended = {values["trace_id"] for values in rows.values["traces"]}
    found = {
        trace_id: value
        for trace_id, value in {**rows.open_traces(), **manifest.open}.items()
        if trace_id not in ended
    }
    new = found.keys() - manifest.open.keys()
    found = {key: found[key] for key in found.keys() - _find_ended(folder, manifest, new)}
    newest = sorted(found, key=lambda key: str(found[key]["started_at"]))[-_OPEN_TRACES:]
    return {key: found[key] for key in newest}


def _find_ended(folder: Path, manifest: Manifest, trace_ids: set[str]) -> set[str]:
    """The given traces whose last line is in a part; abandoned calls may write lines after it."""
    import pyarrow.parquet as pq

    found: set[str] = set()
    for part in manifest.parts if trace_ids else ():
        ids = pq.read_table(folder / part.name / "traces.parquet", columns=["trace_id"])
        found |= trace_ids.intersection(ids.column(0).to_pylist())
    return found


# --- few parts ----------------------------------------------------------------------------------


def _tier(part: Part) -> int:
    tier, size = 0, _SMALLEST_TIER
    while part.bytes > size:
        tier, size = tier + 1, size * _MERGED_PARTS
    return tier


def _to_merge(manifest: Manifest) -> list[Part]:
    small = sorted((p for p in manifest.parts if p.bytes <= _LARGEST_PART), key=_tier)
    for _, members in groupby(small, key=_tier):
        group = sorted(members, key=lambda part: part.first)
        if len(group) >= _MERGED_PARTS:
            return group
    return []


def _merge(folder: Path, manifest: Manifest, group: list[Part]) -> Manifest:
    with new_part(folder) as writer:
        for part in group:
            for tables in part_tables(folder, part):
                writer.add(tables)
        merged = writer.finish()
    changed = replace_parts(manifest, group, merged)
    write_manifest(folder, changed)
    return changed


# --- retention ----------------------------------------------------------------------------------


def drop_old(logs_dir: Path, keep: TraceRetention, now: datetime | None = None) -> Json:
    """Apply the retention limits: remove old rows, the oldest parts, and old logs that are wholly
    in the store. Returns how much was removed: `rows`, `bytes`, `logs`.

    Raises BusyError, StorageError `read_only`.
    """
    folder = traces_dir(logs_dir)
    today = naive_utc(now or datetime.now(UTC))
    oldest = today - timedelta(days=keep.keep_days)
    with changing(folder, "dropping old traces"):
        before = manifest = read_manifest(folder)
        for part in manifest.parts:
            if datetime.fromisoformat(part.first) < oldest:
                manifest = replace_parts(manifest, [part], _drop_rows(folder, part, oldest))
        for part in sorted(manifest.parts, key=lambda part: part.last):
            if manifest.bytes > keep.max_bytes:
                manifest = replace_parts(manifest, [part], None)
        since = f"{oldest.isoformat()}Z"
        still = {key: it for key, it in manifest.open.items() if str(it["started_at"]) >= since}
        manifest = replace(manifest, open=still)
        logs = _drop_logs(logs_dir, manifest, f"{today - timedelta(days=keep.log_days):%Y-%m-%d}")
        if manifest != before:
            write_manifest(folder, manifest)
        remove_unnamed(folder, manifest)
    rows = [sum(sum(part.rows.values()) for part in it.parts) for it in (before, manifest)]
    return {"rows": rows[0] - rows[1], "bytes": before.bytes - manifest.bytes, "logs": logs}


def _drop_rows(folder: Path, part: Part, oldest: datetime) -> Part | None:
    """A copy of the part without the rows before `oldest`; None if none is left."""
    import pyarrow.compute as pc

    if datetime.fromisoformat(part.last) < oldest:
        return None
    with new_part(folder) as writer:
        for tables in part_tables(folder, part):
            for name, table in tables.items():
                times = pc.field(time_column(name))
                writer.add({name: table.filter(times >= pc.scalar(oldest))})
        return writer.finish()


def _drop_logs(logs_dir: Path, manifest: Manifest, before_day: str) -> int:
    dropped = 0
    for file in log_files(logs_dir):
        unread = next(whole_lines(file, manifest.marks), None)
        if file.day < before_day and unread is None:
            os.unlink(file.path)
            dropped += 1
    return dropped
