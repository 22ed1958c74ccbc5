"""How the ledger stores records as rows, and the records that only the ledger uses: sources, jobs,
releases, tombstones, servers and drafts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from rag_platform.ir import Json
from rag_platform.ledger.backends import Backend
from rag_platform.storage.records import columns, from_row

RecordT = TypeVar("RecordT")
AMONG = "IN (SELECT value FROM json_each(?))"  # the parameter is a JSON list


def now() -> str:
    """The current UTC time, e.g. `2026-11-21T22:40:00Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Database:
    """A ledger's database: reads, and writes of one transaction each."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.name = backend.name
        self._db: Callable[[], Any] = backend.db
        self._write: Callable[[], AbstractContextManager[Any]] = backend.write

    @property
    def read_only(self) -> bool:
        return self.backend.read_only

    def close(self) -> None:
        """Close the connection; with SQLite, this thread's."""
        self.backend.close()

    def _value(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """The first column of the first row of a statement."""
        return self._db().execute(sql, parameters).fetchone()[0]

    def _upsert(self, table: str, record: Any, keys: Sequence[str]) -> None:
        with self._write() as db:
            put(db, table, record, keys)

    def _update(self, table: str, changes: Mapping[str, Any], where: Mapping[str, Any]) -> None:
        with self._write() as db:
            update(db, table, changes, where)

    def _find(self, record: type[RecordT], table: str, where: Mapping[str, Any]) -> RecordT | None:
        """The record with these columns, None without one."""
        return next(iter(self._select(record, table, where, "rowid")), None)

    def _select(
        self,
        record: type[RecordT],
        table: str,
        where: Mapping[str, Any],
        order: str,
        condition: str = "TRUE",
        values: Sequence[Any] = (),
    ) -> list[RecordT]:
        clause, filters = _match({k: value for k, value in where.items() if value is not None})
        sql = f"SELECT {columns(record)} FROM {table} WHERE {condition} AND {clause}"
        rows = self._db().execute(f"{sql} ORDER BY {order}", (*values, *filters))
        return [from_row(record, row) for row in rows]


def put(db: Any, table: str, record: Any, keys: Sequence[str], keep: Sequence[str] = ()) -> None:
    """Insert a record, or update the row with equal keys except its `keep` columns."""
    values = {f.name: to_column(getattr(record, f.name)) for f in dataclasses.fields(record)}
    updates = ", ".join(
        f"{name} = excluded.{name}" for name in values if name not in keys and name not in keep
    )
    db.execute(
        f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))}) "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {updates}",
        tuple(values.values()),
    )


def update(db: Any, table: str, changes: Mapping[str, Any], where: Mapping[str, Any]) -> int:
    """Set columns of the rows that `where` matches. Returns the number of these rows."""
    clause, filters = _match(where)
    assignments = ", ".join(f"{name} = ?" for name in changes)
    values = (*map(to_column, changes.values()), *filters)
    return int(db.execute(f"UPDATE {table} SET {assignments} WHERE {clause}", values).rowcount)


def delete(db: Any, table: str, where: Mapping[str, Any]) -> None:
    """Delete the rows that `where` matches."""
    clause, filters = _match(where)
    db.execute(f"DELETE FROM {table} WHERE {clause}", filters)


def _match(where: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """(SQL condition that each column has this value, or one of a list of texts; parameters)."""
    conditions = [
        f"{name} {AMONG if isinstance(value, list) else '= ?'}" for name, value in where.items()
    ]
    return " AND ".join(conditions) or "TRUE", [*map(to_column, where.values())]


def to_column(value: Any) -> Any:
    """A field's value as stored in a column: JSON text unless it is a scalar."""
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, tuple, list)) else value
    )


@dataclass(frozen=True, slots=True)
class Source:
    """A named root from which documents come."""

    namespace: str
    name: str
    kind: str  # folder | files | inline | urls
    root: str  # absolute path of a folder, empty otherwise
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    created_at: str = ""
    on_gone: str = "retire"  # retire | keep: what happens to a document whose file is gone


OPEN_STATES = ("queued", "running", "cancelling")  # of a job that has not ended


def range_of(job_id: str) -> str:
    """The id of the job that a range is a part of; "" for a job that is no range."""
    return job_id.partition(".")[0] if "." in job_id else ""


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of writing work, run in a process of its own."""

    job_id: str  # of a range: that of its job, a dot and a number
    # ingest | rebuild | edit | live | delete | gc | draft | evaluate | range, a part of an ingest
    # or rebuild; of Dagster's own runs: ingest | release | sync | evaluate
    kind: str
    namespace: str
    state: str = "queued"  # queued | running | cancelling | done | partly | failed | cancelled
    args: Json = field(default_factory=dict)
    progress: Json = field(default_factory=dict)
    result: Json = field(default_factory=dict)
    reason: str = ""
    pid: int = 0
    trace_id: str = ""
    created_at: str = ""
    started_at: str = ""
    ended_at: str = ""
    # host, boot_id and pid_namespace in which `pid` is valid, and when the process started;
    # `launcher` and `run_id` of runs that Dagster starts
    process: Json = field(default_factory=dict)
    heartbeat_at: str = ""  # time of the last heartbeat


@dataclass(frozen=True, slots=True)
class JobItem:
    """One document of a job."""

    source_uri: str
    doc_id: str
    version_id: str
    decision: str  # new | new_version | continue | skip | dead | ignored | refused
    state: str = "queued"  # queued | done | failed | dead | skipped | cancelled
    code: str = ""
    reason: str = ""
    job_id: str = ""
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Release:
    """The ledger's row about a release; the release itself is a directory with a manifest."""

    namespace: str
    release_id: str
    parent: str | None
    state: str  # candidate | published | rejected | retired | dropped (its files are gone)
    strategy: str
    strategy_config_id: str
    created_at: str
    published_at: str = ""
    counts: Json = field(default_factory=dict)
    reason: str = ""
    pinned: bool = False  # kept whatever retention says
    # the ledger's sequence when it was made; None where that was not recorded
    sequence: int | None = None
    # of the manifest when first published; empty before, and where that was not recorded
    manifest_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A deletion of a document or of one version. Every release built before it hides the deleted
    data for good. After `lifted_at`, later releases may hold the document again.
    """

    sequence: int
    namespace: str
    doc_id: str
    version_id: str | None
    mode: str  # soft | hard
    created_at: str
    lifted_at: str = ""

    @property
    def target(self) -> str:
        """The id of the deleted version, or of the document if all of it was deleted."""
        return self.version_id or self.doc_id


@dataclass(frozen=True, slots=True)
class Server:
    """A data root that reads what the machines of this ledger publish."""

    server_id: str
    host: str
    releases: Json = field(default_factory=dict)  # namespace to the release that is read there
    registered_at: str = ""
    seen_at: str = ""  # time of the last heartbeat


@dataclass(frozen=True, slots=True)
class Draft:
    """Edits of a document's chunks by hand; publishing them makes an edition of the version."""

    namespace: str
    doc_id: str
    version_id: str  # whose chunks the operations name
    operations: tuple[Json, ...] = ()  # in the order they were made
    # operations whose chunks the newest version no longer has, with the reason
    conflicts: tuple[Json, ...] = ()
    state: str = "open"  # open | published
    created_at: str = ""
    updated_at: str = ""
