"""The system of record: sources, documents, versions, jobs, releases and deletions, in one SQLite file (WAL).

Every public method is one transaction. Times are UTC, ISO 8601 with seconds. Opening a ledger of a newer schema raises SchemaVersionError.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from rag_platform.errors import InputError, NotFoundError, SchemaVersionError
from rag_platform.ir import Document, Job, JobItem, Json, Release, Source, Tombstone, Version

SCHEMA_VERSION = 1
RecordT = TypeVar("RecordT")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS namespaces (
    namespace TEXT PRIMARY KEY, strategy TEXT NOT NULL, strategy_config_id TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sources (
    namespace TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, root TEXT NOT NULL,
    include TEXT NOT NULL, exclude TEXT NOT NULL, created_at TEXT NOT NULL, PRIMARY KEY (namespace, name));
CREATE TABLE IF NOT EXISTS documents (
    namespace TEXT NOT NULL, doc_id TEXT NOT NULL, source TEXT NOT NULL, source_uri TEXT NOT NULL, filename TEXT NOT NULL,
    title TEXT NOT NULL, tags TEXT NOT NULL, categories TEXT NOT NULL, metadata TEXT NOT NULL, live_version TEXT,
    pinned INTEGER NOT NULL, status TEXT NOT NULL, origin TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    PRIMARY KEY (namespace, doc_id));
CREATE UNIQUE INDEX IF NOT EXISTS documents_by_uri ON documents (namespace, source_uri);
CREATE TABLE IF NOT EXISTS versions (
    version_id TEXT PRIMARY KEY, namespace TEXT NOT NULL, doc_id TEXT NOT NULL, source_uri TEXT NOT NULL, filename TEXT NOT NULL,
    file_sha256 TEXT NOT NULL, size INTEGER NOT NULL, mime TEXT NOT NULL, loader TEXT NOT NULL, strategy TEXT NOT NULL,
    revision INTEGER NOT NULL, status TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL,
    received_at TEXT NOT NULL, completed_at TEXT NOT NULL, counts TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS versions_by_doc ON versions (namespace, doc_id);
CREATE TABLE IF NOT EXISTS jobs (
    job_id TEXT PRIMARY KEY, kind TEXT NOT NULL, namespace TEXT NOT NULL, state TEXT NOT NULL, args TEXT NOT NULL, progress TEXT NOT NULL,
    result TEXT NOT NULL, reason TEXT NOT NULL, pid INTEGER NOT NULL, trace_id TEXT NOT NULL,
    created_at TEXT NOT NULL, started_at TEXT NOT NULL, ended_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS job_items (
    job_id TEXT NOT NULL, source_uri TEXT NOT NULL, doc_id TEXT NOT NULL, version_id TEXT NOT NULL, decision TEXT NOT NULL,
    state TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (job_id, source_uri));
CREATE INDEX IF NOT EXISTS job_items_by_version ON job_items (job_id, version_id);
CREATE TABLE IF NOT EXISTS releases (
    namespace TEXT NOT NULL, release_id TEXT NOT NULL, parent TEXT, state TEXT NOT NULL, strategy TEXT NOT NULL,
    strategy_config_id TEXT NOT NULL, created_at TEXT NOT NULL, published_at TEXT NOT NULL, counts TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (namespace, release_id));
CREATE TABLE IF NOT EXISTS deletions (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT NOT NULL, doc_id TEXT NOT NULL, version_id TEXT,
    mode TEXT NOT NULL, created_at TEXT NOT NULL, lifted_at TEXT NOT NULL);
"""

_LIFT = (
    "UPDATE deletions SET lifted_at = ? WHERE namespace = ? AND doc_id = ? AND lifted_at = '' AND (version_id IS NULL OR version_id = ?)"
)
_RETIRE = """
UPDATE documents SET status = 'retired', live_version = NULL, updated_at = ? WHERE namespace = ? AND doc_id = ? AND pinned = 0
"""

_GO_LIVE = """
UPDATE documents SET live_version = :version_id, title = :title, status = 'active', updated_at = :now
WHERE pinned = 0 AND (namespace, doc_id) = (SELECT namespace, doc_id FROM versions WHERE version_id = :version_id)
    AND (:status = 'received' OR live_version = :version_id OR (:status = 'failed' AND status != 'retired'
        AND :received_at >= COALESCE((SELECT received_at FROM versions WHERE version_id = documents.live_version), '')))
"""


def now() -> str:
    """The current UTC time, e.g. `2026-11-21T22:40:00Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Ledger:
    """The ledger database; one connection a thread, safe to share."""

    def __init__(self, path: Path) -> None:
        """Open or create the ledger. Raises SchemaVersionError when a newer program wrote it."""
        self.path = path
        self._local = threading.local()
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._write() as db:
            db.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
            row = db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
            if row is not None and int(row[0]) != SCHEMA_VERSION:
                raise SchemaVersionError(
                    f"{path} has ledger schema {row[0]}, this program knows {SCHEMA_VERSION}; use the version that wrote it"
                )
            if row is None:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    db.execute(statement)
                db.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))

    # --- namespaces and sources --------------------------------------------------------------------------------------

    def namespaces(self) -> dict[str, str]:
        """Namespace to the name of its ingestion strategy."""
        return dict(self._db().execute("SELECT namespace, strategy FROM namespaces ORDER BY namespace").fetchall())

    def bind_strategy(self, namespace: str, strategy: str, config_id: str) -> None:
        """Record the namespace's ingestion strategy at its first ingest. Raises InputError when it has another one."""
        with self._write() as db:
            row = db.execute("SELECT strategy FROM namespaces WHERE namespace = ?", (namespace,)).fetchone()
            if row is None:
                db.execute("INSERT INTO namespaces VALUES (?, ?, ?, ?)", (namespace, strategy, config_id, now()))
            elif row[0] != strategy:
                raise InputError(f"namespace {namespace!r} is ingested with strategy {row[0]!r}, not {strategy!r}; "
                                 f"use --strategy {row[0]}, another --namespace, or move it with `rag rebuild --strategy {strategy}`",
                                 code="strategy_mismatch", namespace=namespace, strategy=row[0])  # fmt: skip

    def rebind_strategy(self, namespace: str, strategy: str, config_id: str) -> None:
        """Give a namespace another ingestion strategy; its versions are stale until they are rebuilt."""
        with self._write() as db:
            db.execute("UPDATE namespaces SET strategy = ?, strategy_config_id = ? WHERE namespace = ?", (strategy, config_id, namespace))

    def sources(self, namespace: str | None = None) -> list[Source]:
        """Sources by name."""
        return self._select(Source, "sources", {"namespace": namespace}, "namespace, name")

    def put_source(self, source: Source) -> None:
        """Add a source, or update the globs of a known one."""
        self._upsert("sources", dataclasses.replace(source, created_at=source.created_at or now()), ("namespace", "name"))

    # --- documents and versions --------------------------------------------------------------------------------------

    def documents(self, namespace: str, *, status: str | None = None, source: str | None = None) -> list[Document]:
        """Documents by source_uri."""
        return self._select(Document, "documents", {"namespace": namespace, "status": status, "source": source}, "source_uri")

    def document(self, namespace: str, doc_id: str) -> Document:
        """One document. Raises NotFoundError."""
        found = self._select(Document, "documents", {"namespace": namespace, "doc_id": doc_id}, "doc_id")
        if not found:
            raise NotFoundError(f"no document {doc_id!r} in namespace {namespace!r}; `rag docs list --namespace {namespace}` shows them")
        return found[0]

    def versions(self, namespace: str, doc_id: str | None = None) -> list[Version]:
        """Versions, oldest first."""
        return self._select(Version, "versions", {"namespace": namespace, "doc_id": doc_id}, "received_at, rowid")

    def version(self, version_id: str) -> Version:
        """One version. Raises NotFoundError."""
        found = self._select(Version, "versions", {"version_id": version_id}, "version_id")
        if not found:
            raise NotFoundError(f"no version {version_id!r} in the ledger")
        return found[0]

    def receive(self, pairs: Iterable[tuple[Document, Version]]) -> None:
        """Record received versions; a document's live version stays what it was until `complete`."""
        with self._write() as db:
            for document, version in pairs:
                _put(db, "documents", document, ("namespace", "doc_id"), keep=("live_version", "created_at", "pinned"))
                _put(db, "versions", version, ("version_id",), keep=("received_at",))
                db.execute(_LIFT, (now(), version.namespace, version.doc_id, version.version_id))

    def complete(self, version_id: str, *, title: str, counts: Json) -> None:
        """Mark a version ready, and make it its document's live one if it was received for that, unless the document is pinned.

        A version that is run again later (a backfill, a retry after a newer one went live) brings nothing old back.
        """
        with self._write() as db:
            was = db.execute("SELECT status, received_at FROM versions WHERE version_id = ?", (version_id,)).fetchone()
            db.execute("UPDATE versions SET status = 'ready', code = '', reason = '', completed_at = ?, counts = ? WHERE version_id = ?",
                       (now(), json.dumps(counts, ensure_ascii=False), version_id))  # fmt: skip
            db.execute(_GO_LIVE, {"version_id": version_id, "title": title, "now": now(), "status": was[0], "received_at": was[1]})

    def fail(self, version_id: str, code: str, reason: str) -> None:
        """Mark a version failed; the document's live version is untouched."""
        with self._write() as db:
            db.execute("UPDATE versions SET status = 'failed', code = ?, reason = ?, completed_at = ? WHERE version_id = ?",
                       (code, reason, now(), version_id))  # fmt: skip

    def retire(self, namespace: str, doc_ids: Sequence[str]) -> None:
        """Documents that are gone from their source: no live version, out of the next release."""
        with self._write() as db:
            db.executemany(_RETIRE, [(now(), namespace, doc_id) for doc_id in doc_ids])

    def live(self, namespace: str) -> list[tuple[Document, Version]]:
        """Active documents with their live version, by doc_id; what the next release holds."""
        documents = {d.live_version: d for d in self.documents(namespace, status="active") if d.live_version}
        versions = {v.version_id: v for v in self.versions(namespace) if v.version_id in documents}
        return sorted(((documents[key], version) for key, version in versions.items()), key=lambda pair: pair[0].doc_id)

    # --- deletions ---------------------------------------------------------------------------------------------------

    def tombstones(self, namespace: str) -> list[Tombstone]:
        """Deletions in force, oldest first; every reader hides what they name."""
        return [t for t in self._select(Tombstone, "deletions", {"namespace": namespace}, "sequence") if not t.lifted_at]

    # --- jobs --------------------------------------------------------------------------------------------------------

    def add_job(self, kind: str, namespace: str, args: Json, items: Sequence[JobItem] = ()) -> Job:
        """A new job in state `queued`."""
        job = Job(job_id="job_" + uuid.uuid4().hex[:16], kind=kind, namespace=namespace, args=args, created_at=now())
        with self._write() as db:
            _put(db, "jobs", job, ("job_id",))
            for item in items:
                _put(db, "job_items", dataclasses.replace(item, job_id=job.job_id), ("job_id", "source_uri"))
        return job

    def job(self, job_id: str) -> Job:
        """One job. Raises NotFoundError."""
        found = self._select(Job, "jobs", {"job_id": job_id}, "job_id")
        if not found:
            raise NotFoundError(f"no job {job_id!r}")
        return found[0]

    def jobs(self, namespace: str | None = None, limit: int = 50, *, state: str | None = None) -> list[Job]:
        """Jobs, newest first."""
        return self._select(Job, "jobs", {"namespace": namespace, "state": state}, "created_at DESC, rowid DESC")[:limit]

    def job_items(self, job_id: str) -> list[JobItem]:
        """The documents of a job with their states."""
        return self._select(JobItem, "job_items", {"job_id": job_id}, "source_uri")

    def update_job(self, job_id: str, **changes: Any) -> None:
        """Set columns of a job: state, progress, result, reason, pid, trace_id, started_at, ended_at."""
        values = {key: json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value for key, value in changes.items()}
        with self._write() as db:
            assignments = ", ".join(f"{key} = ?" for key in values)
            db.execute(f"UPDATE jobs SET {assignments} WHERE job_id = ?", (*values.values(), job_id))

    def update_job_item(self, job_id: str, version_id: str, state: str, code: str = "", reason: str = "") -> None:
        """Set the state of one document of a job."""
        with self._write() as db:
            db.execute("UPDATE job_items SET state = ?, code = ?, reason = ? WHERE job_id = ? AND version_id = ?",
                       (state, code, reason, job_id, version_id))  # fmt: skip

    # --- releases ----------------------------------------------------------------------------------------------------

    def put_release(self, release: Release) -> None:
        """Add or replace a release row."""
        self._upsert("releases", release, ("namespace", "release_id"))

    def releases(self, namespace: str) -> list[Release]:
        """Releases, newest first."""
        return self._select(Release, "releases", {"namespace": namespace}, "created_at DESC, rowid DESC")

    # --- plumbing ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close this thread's connection."""
        db = getattr(self._local, "db", None)
        if db is not None:
            db.close()
            self._local.db = None

    def _db(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            self._local.db = db
        return db

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        db = self._db()
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _upsert(self, table: str, record: Any, keys: Sequence[str]) -> None:
        with self._write() as db:
            _put(db, table, record, keys)

    def _select(self, record: type[RecordT], table: str, where: dict[str, Any], order: str) -> list[RecordT]:
        given = {key: value for key, value in where.items() if value is not None}
        names = [f.name for f in dataclasses.fields(cast(Any, record))]
        clause = " AND ".join(f"{key} = ?" for key in given) or "1"
        rows = self._db().execute(f"SELECT {', '.join(names)} FROM {table} WHERE {clause} ORDER BY {order}", tuple(given.values()))
        return [_record(record, names, row) for row in rows]


def _put(db: sqlite3.Connection, table: str, record: Any, keys: Sequence[str], keep: Sequence[str] = ()) -> None:
    """Insert a record, or update the row of equal keys except its `keep` columns."""
    values = {f.name: _stored(getattr(record, f.name)) for f in dataclasses.fields(record)}
    updates = ", ".join(f"{name} = excluded.{name}" for name in values if name not in keys and name not in keep)
    db.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))}) "
               f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {updates}", tuple(values.values()))  # fmt: skip


def _stored(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, tuple, list)) else value


def _record(record: type[RecordT], names: Sequence[str], row: Sequence[Any]) -> RecordT:
    values = {}
    for field, value in zip(dataclasses.fields(cast(Any, record)), row, strict=True):
        kind = str(field.type)
        if kind.startswith("tuple"):
            value = () if value == "[]" else tuple(json.loads(value))  # most are empty, and a library has thousands
        elif kind == "Json":
            value = {} if value == "{}" else json.loads(value)
        elif kind == "bool":
            value = bool(value)
        values[field.name] = value
    return record(**values)
