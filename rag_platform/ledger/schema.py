"""The tables of the ledger, how an older ledger becomes one of today, how records become rows, and
the records that no stage reads: where documents come from, what was done, published and deleted.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from rag_platform.errors import SchemaVersionError, read_only
from rag_platform.ir import Json
from rag_platform.storage.records import from_row
from rag_platform.storage.sqlite_files import ReadOnlyFile, transaction, writable

SCHEMA_VERSION = 3
RecordT = TypeVar("RecordT")
OtherT = TypeVar("OtherT")

_SCHEMA = """
CREATE TABLE namespaces (
    namespace TEXT PRIMARY KEY, strategy TEXT NOT NULL, strategy_config_id TEXT NOT NULL,
    created_at TEXT NOT NULL);
CREATE TABLE sources (
    namespace TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, root TEXT NOT NULL,
    include TEXT NOT NULL, exclude TEXT NOT NULL, created_at TEXT NOT NULL, PRIMARY KEY (namespace,
    name));
CREATE TABLE documents (
    namespace TEXT NOT NULL, doc_id TEXT NOT NULL, source TEXT NOT NULL, source_uri TEXT NOT NULL,
    filename TEXT NOT NULL, title TEXT NOT NULL, tags TEXT NOT NULL, categories TEXT NOT NULL,
    metadata TEXT NOT NULL, live_version TEXT, pinned INTEGER NOT NULL, status TEXT NOT NULL,
    origin TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    PRIMARY KEY (namespace, doc_id));
CREATE UNIQUE INDEX documents_by_uri ON documents (namespace, source_uri);
CREATE TABLE versions (
    version_id TEXT PRIMARY KEY, namespace TEXT NOT NULL, doc_id TEXT NOT NULL,
    source_uri TEXT NOT NULL, filename TEXT NOT NULL, file_sha256 TEXT NOT NULL,
    size INTEGER NOT NULL, mime TEXT NOT NULL, loader TEXT NOT NULL, strategy TEXT NOT NULL,
    revision INTEGER NOT NULL, status TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL,
    received_at TEXT NOT NULL, completed_at TEXT NOT NULL, counts TEXT NOT NULL);
CREATE INDEX versions_by_doc ON versions (namespace, doc_id);
CREATE TABLE jobs (
    job_id TEXT PRIMARY KEY, kind TEXT NOT NULL, namespace TEXT NOT NULL, state TEXT NOT NULL,
    args TEXT NOT NULL, progress TEXT NOT NULL, result TEXT NOT NULL, reason TEXT NOT NULL,
    pid INTEGER NOT NULL, trace_id TEXT NOT NULL, created_at TEXT NOT NULL,
    started_at TEXT NOT NULL, ended_at TEXT NOT NULL);
CREATE TABLE job_items (
    job_id TEXT NOT NULL, source_uri TEXT NOT NULL, doc_id TEXT NOT NULL, version_id TEXT NOT NULL,
    decision TEXT NOT NULL, state TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (job_id, source_uri));
CREATE INDEX job_items_by_version ON job_items (job_id, version_id);
CREATE TABLE releases (
    namespace TEXT NOT NULL, release_id TEXT NOT NULL, parent TEXT, state TEXT NOT NULL,
    strategy TEXT NOT NULL, strategy_config_id TEXT NOT NULL, created_at TEXT NOT NULL,
    published_at TEXT NOT NULL, counts TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (namespace,
    release_id));
CREATE TABLE deletions (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT NOT NULL, doc_id TEXT NOT NULL,
        version_id TEXT, mode TEXT NOT NULL, created_at TEXT NOT NULL, lifted_at TEXT NOT NULL)
"""

# What each version of the schema changed; a new ledger goes through all of them, so that there is
# one way to today's tables.
_CHANGES = {
    2: (
        """
ALTER TABLE sources ADD COLUMN on_gone TEXT NOT NULL DEFAULT 'retire';
ALTER TABLE documents ADD COLUMN wanted_version TEXT;
UPDATE documents SET wanted_version = COALESCE((SELECT v.version_id FROM versions v
    WHERE v.namespace = documents.namespace
    AND v.doc_id = documents.doc_id ORDER BY v.received_at DESC, v.rowid DESC LIMIT 1),
    live_version) WHERE status = 'active';
ALTER TABLE versions ADD COLUMN edition TEXT NOT NULL DEFAULT '';
ALTER TABLE versions ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job_items ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE releases ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
CREATE TABLE drafts (
    namespace TEXT NOT NULL, doc_id TEXT NOT NULL, version_id TEXT NOT NULL,
    operations TEXT NOT NULL, conflicts TEXT NOT NULL, state TEXT NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, PRIMARY KEY (namespace, doc_id));
CREATE TABLE editions (
    edition TEXT NOT NULL, version_id TEXT NOT NULL, operations TEXT NOT NULL,
        created_at TEXT NOT NULL, PRIMARY KEY (version_id, edition))
"""
    ),
    3: (
        """
ALTER TABLE jobs ADD COLUMN process TEXT NOT NULL DEFAULT '{}';
ALTER TABLE jobs ADD COLUMN heartbeat_at TEXT NOT NULL DEFAULT ''
"""
    ),
}


def now() -> str:
    """The current UTC time, e.g. `2026-11-21T22:40:00Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Database:
    """One SQLite file in WAL mode: one connection a thread, every write one transaction."""

    def __init__(self, path: Path) -> None:
        """Open the ledger and bring an older one up to date; one that cannot be written is opened
        for reading, one that is not there reads as empty and is made by the first write.

        Raises SchemaVersionError when a newer program wrote it, or an older one where it cannot be
        brought up to date.
        """
        self.path = path
        self._local = threading.local()
        self.read_only = path.is_file() and not writable(path)
        if self.read_only:
            self._require_today()
            return
        if path.parent.is_dir() and not writable(path):
            raise read_only(path.parent)
        self._there = False
        if path.is_file():
            self._bring_up_to_date()

    def _bring_up_to_date(self) -> None:
        path, self._there = self.path, True
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._write() as db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)"
            )
            row = db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
            found = int(row[0]) if row else 0
            if found > SCHEMA_VERSION:
                raise SchemaVersionError(
                    f"{path} has ledger schema {found}, this program knows {SCHEMA_VERSION}: use"
                    " the one that wrote it"
                )
            for version in range(found + 1, SCHEMA_VERSION + 1):
                for statement in filter(str.strip, _CHANGES.get(version, _SCHEMA).split(";")):
                    db.execute(statement)
            if found < SCHEMA_VERSION:
                db.execute(
                    "INSERT OR REPLACE INTO meta VALUES ('schema_version', ?)",
                    (str(SCHEMA_VERSION),),
                )

    def _require_today(self) -> None:
        row = self._db().execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        if (found := int(row[0]) if row else 0) != SCHEMA_VERSION:
            remedy = (
                "use the one that wrote it"
                if found > SCHEMA_VERSION
                else "run `rag status` once where it can be written"
            )
            raise SchemaVersionError(
                f"{self.path} has ledger schema {found}, this program reads {SCHEMA_VERSION}:"
                f" {remedy}"
            )

    def close(self) -> None:
        """Close this thread's connection."""
        if (file := getattr(self._local, "file", None)) is not None:
            file.close()
        db = getattr(self._local, "db", None)
        if db is not None:
            db.close()
            self._local.db = None

    def _db(self) -> sqlite3.Connection:
        if self.read_only:
            if not hasattr(self._local, "file"):
                self._local.file = ReadOnlyFile(self.path)
            file: ReadOnlyFile = self._local.file
            return file.db()
        if not self._there:
            if not self.path.is_file():
                return self._empty()
            self._bring_up_to_date()
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            # what is overwritten is overwritten on disk, whatever SQLite was built with
            db.execute("PRAGMA secure_delete = ON")
            self._local.db = db
        return db

    def _empty(self) -> sqlite3.Connection:
        if (db := getattr(self._local, "empty", None)) is None:
            db = self._local.empty = sqlite3.connect(":memory:", isolation_level=None)
            for version in range(1, SCHEMA_VERSION + 1):
                db.executescript(_CHANGES.get(version, _SCHEMA))
        return cast(sqlite3.Connection, db)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        if self.read_only:
            raise read_only(self.path.parent)
        if not self._there:
            self._bring_up_to_date()
        db = self._db()
        with transaction(db, self.path):
            yield db

    def _upsert(self, table: str, record: Any, keys: Sequence[str]) -> None:
        with self._write() as db:
            put(db, table, record, keys)

    def _select(
        self,
        record: type[RecordT],
        table: str,
        where: dict[str, Any],
        order: str,
        condition: str = "1",
        values: Sequence[Any] = (),
    ) -> list[RecordT]:
        given = {key: value for key, value in where.items() if value is not None}
        clause = " AND ".join([condition, *(f"{key} = ?" for key in given)])
        rows = self._db().execute(
            f"SELECT {columns(record)} FROM {table} WHERE {clause} ORDER BY {order}",
            (*values, *given.values()),
        )
        return [from_row(record, row) for row in rows]


def columns(record: type[Any], alias: str = "") -> str:
    """The columns of a record in field order, for a SELECT."""
    return ", ".join(
        f"{alias}.{field.name}" if alias else field.name for field in dataclasses.fields(record)
    )


def select_unless(
    db: sqlite3.Connection,
    one: type[RecordT],
    other: type[OtherT],
    sql: str,
    values: Sequence[Any],
    known: Mapping[str, str],
) -> tuple[list[tuple[RecordT, OtherT]], dict[str, str]]:
    """(the pairs of records whose rows are not `known`, the fingerprint of all rows by key).

    The SELECT gives a key and the columns of both records as one JSON array: rows are compared as
    they are stored, for making records of those that nobody changed would take most of the time.
    """
    width = len(dataclasses.fields(cast(Any, one)))
    found: list[tuple[RecordT, OtherT]] = []
    marks: dict[str, str] = {}
    for key, stored_row in db.execute(sql, values):
        mark = marks[key] = hashlib.sha256(stored_row.encode()).hexdigest()[:16]
        if known.get(key) != mark:
            row = json.loads(stored_row)
            found.append((from_row(one, row), from_row(other, row[width:])))
    return found, marks


def put(
    db: sqlite3.Connection, table: str, record: Any, keys: Sequence[str], keep: Sequence[str] = ()
) -> None:
    """Insert a record, or update the row of equal keys except its `keep` columns."""
    values = {f.name: to_column(getattr(record, f.name)) for f in dataclasses.fields(record)}
    updates = ", ".join(
        f"{name} = excluded.{name}" for name in values if name not in keys and name not in keep
    )
    db.execute(
        f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))}) "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {updates}",
        tuple(values.values()),
    )


def to_column(value: Any) -> Any:
    """A field's value as a column holds it: JSON text for what is no scalar."""
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
    on_gone: str = "retire"  # retire | keep: what becomes of a document whose file is gone


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of writing work, run in a child process."""

    job_id: str
    # ingest | rebuild | edit | live | delete | gc | draft | evaluate; of Dagster's own runs: ingest
    # | release | sync | evaluate
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
    # host, boot_id and pid_namespace in which `pid` counts, and when it started
    process: Json = field(default_factory=dict)
    heartbeat_at: str = ""  # when the process said last that it lives


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


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A deletion of a document or of one version; every release built before it hides what it
    names, for good.

    `lifted_at` says since when the document may be in later releases again.
    """

    sequence: int
    namespace: str
    doc_id: str
    version_id: str | None
    mode: str  # soft | hard
    created_at: str
    lifted_at: str = ""


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
