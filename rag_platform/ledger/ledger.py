"""The system of record: sources, documents, versions, jobs, releases and deletions, in an SQLite
file or a PostgreSQL database.

Every public method is one transaction. Times are UTC, ISO 8601 with seconds. Opening a ledger of a
newer schema raises SchemaVersionError; an older one is migrated.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rag_platform.errors import (
    InputError,
    IntegrityError,
    NotFoundError,
    ReleaseError,
    unknown_job,
)
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger.backends import PostgresBackend, SqliteBackend
from rag_platform.ledger.document_list import DocumentList
from rag_platform.ledger.schema import (
    AMONG,
    OPEN_STATES,
    Draft,
    Job,
    JobItem,
    Release,
    Source,
    Tombstone,
    delete,
    now,
    put,
    to_column,
    update,
)
from rag_platform.ledger.servers import Servers
from rag_platform.observability.redaction import ERASED
from rag_platform.storage.postgres import bad_url, is_postgres
from rag_platform.storage.records import columns, from_row
from rag_platform.storage.store import Store

_IS_BOUND = f"""
SELECT EXISTS (SELECT 1 FROM releases WHERE namespace = :namespace AND published_at != '')
    OR EXISTS (SELECT 1 FROM jobs WHERE namespace = :namespace AND state IN {OPEN_STATES})
"""
_BIND = """
INSERT INTO namespaces (namespace, strategy, strategy_config_id, created_at) VALUES (?, ?, ?, ?)
ON CONFLICT (namespace) DO UPDATE
SET strategy = excluded.strategy, strategy_config_id = excluded.strategy_config_id
WHERE namespaces.strategy != excluded.strategy
"""
_LIFT = (
    "UPDATE deletions SET lifted_at = ? WHERE namespace = ? AND doc_id = ? AND lifted_at = '' AND"
    " (version_id IS NULL OR version_id = ?)"
)
_RECENT_JOBS = 50  # in which a failure that was told is looked for
_CHANGED_DOCUMENTS = "SELECT doc_id FROM touched WHERE namespace = ? AND sequence > ?"
# back to another version that is ready and not deleted, else to none
_WITHDRAW = """
UPDATE documents SET updated_at = :now,
    title = COALESCE(NULLIF(json_extract(metadata, '$.title'), ''), :title, title),
    live_version = (SELECT v.version_id FROM versions v WHERE v.version_id = :back_to
        AND v.status = 'ready' AND NOT EXISTS (SELECT 1 FROM deletions x
            WHERE x.namespace = documents.namespace AND x.doc_id = documents.doc_id
            AND x.lifted_at = '' AND (x.version_id IS NULL OR x.version_id = :back_to)))
WHERE live_version = :version_id AND pinned = 0
"""
_RETIRE = """
UPDATE documents SET wanted_version = NULL, updated_at = :now,
    status = CASE WHEN pinned = 1 THEN status ELSE 'retired' END,
    live_version = CASE WHEN pinned = 1 THEN live_version END
WHERE namespace = :namespace AND doc_id = :doc_id
"""
_GO_LIVE = """
UPDATE documents SET live_version = :version_id, status = 'active', updated_at = :now,
    title = COALESCE(NULLIF(json_extract(metadata, '$.title'), ''), :title)
WHERE (COALESCE(live_version, '') != :version_id OR status != 'active'
    OR title != COALESCE(NULLIF(json_extract(metadata, '$.title'), ''), :title))
    AND pinned = 0 AND status != 'deleted' AND (namespace, doc_id) = (SELECT namespace, doc_id
    FROM versions WHERE version_id = :version_id)
    AND :version_id IN (wanted_version, live_version)
"""
_LIVE = """
SELECT {}, {}
FROM documents d JOIN versions v ON v.version_id = d.live_version
WHERE d.namespace = ? AND d.status = 'active' AND v.namespace = d.namespace AND {}
ORDER BY d.doc_id
"""
_COUNT_STALE = """
SELECT COUNT(*) FROM documents d JOIN versions v ON v.version_id = d.live_version
WHERE d.namespace = ? AND d.status = 'active' AND v.namespace = d.namespace
AND COALESCE(json_extract(v.counts, '$.profile'), '') != ?
"""
_PIN = """
UPDATE documents SET live_version = :version_id, pinned = 1, status = 'active', updated_at = :now
WHERE namespace = :namespace AND doc_id = :doc_id
    AND EXISTS (SELECT 1 FROM versions v WHERE v.version_id = :version_id
        AND v.doc_id = documents.doc_id AND v.status = 'ready')
    AND NOT EXISTS (SELECT 1 FROM deletions x WHERE x.namespace = documents.namespace
        AND x.doc_id = documents.doc_id
        AND x.lifted_at = '' AND (x.version_id IS NULL OR x.version_id = :version_id))
"""
_UNPIN = """
UPDATE documents SET pinned = 0, updated_at = :now,
    status = CASE WHEN wanted_version IS NULL THEN 'retired' ELSE status END,
    live_version = CASE WHEN wanted_version IS NULL THEN NULL
        WHEN EXISTS (SELECT 1 FROM versions v WHERE v.version_id = wanted_version
            AND v.status = 'ready') THEN wanted_version
        ELSE live_version END
WHERE namespace = :namespace AND doc_id = :doc_id AND pinned = 1
"""


MAX_WARNINGS = 500  # in a job's result
_RANGES = "job_id > ? AND job_id < ?"


def new_job_id() -> str:
    """A fresh job id, for work that precedes recording the job."""
    return "job_" + uuid.uuid4().hex[:16]


class Ledger(DocumentList, Servers):
    """The ledger database, safe to share between threads. Open it with `open_ledger`."""

    # --- namespaces and sources ------------------------------------------------------------------

    def namespaces(self) -> dict[str, str]:
        """Namespace to the name of its ingestion strategy."""
        sql = "SELECT namespace, strategy FROM namespaces ORDER BY namespace"
        return dict(self._db().execute(sql).fetchall())

    def bind_strategy(self, namespace: str, strategy: str, config_id: str) -> None:
        """Record the namespace's ingestion strategy at its first ingest. Raises InputError when it
        has another one, except while nothing is published or in progress: a cancelled first ingest
        binds nothing.
        """
        with self._write() as db:
            known = self.namespaces().get(namespace, strategy)
            if known != strategy and self._value(_IS_BOUND, {"namespace": namespace}):
                raise InputError(
                    f"library {namespace!r} is ingested with strategy {known!r}, not {strategy!r};"
                    f" use --strategy {known}, another --namespace, or move it with `rag rebuild"
                    f" --strategy {strategy} --namespace {namespace}`",
                    code="strategy_mismatch",
                    namespace=namespace,
                    strategy=known,
                )
            db.execute(_BIND, (namespace, strategy, config_id, now()))

    def rebind_strategy(self, namespace: str, strategy: str, config_id: str) -> None:
        """Give a namespace another strategy; its versions are stale until rebuilt."""
        changes = {"strategy": strategy, "strategy_config_id": config_id}
        self._update("namespaces", changes, {"namespace": namespace})

    def sources(self, namespace: str | None = None) -> list[Source]:
        """Sources by name."""
        return self._select(Source, "sources", {"namespace": namespace}, "namespace, name")

    def put_source(self, source: Source) -> None:
        """Add a source, or update the globs of a known one."""
        dated = dataclasses.replace(source, created_at=source.created_at or now())
        self._upsert("sources", dated, ("namespace", "name"))

    # --- documents and versions ------------------------------------------------------------------

    def documents(
        self, namespace: str, *, status: str | None = None, source: str | None = None
    ) -> list[Document]:
        """Documents by source_uri."""
        where = {"namespace": namespace, "status": status, "source": source}
        return self._select(Document, "documents", where, "source_uri")

    def has_unique_filename(self, document: Document) -> bool:
        """True when no other document of any library, unless deleted, has the same file name."""
        sql = (
            "SELECT NOT EXISTS (SELECT 1 FROM documents WHERE filename = ? AND status != 'deleted'"
            " AND (namespace, doc_id) != (?, ?))"
        )
        values = (document.filename, document.namespace, document.doc_id)
        return bool(self._value(sql, values))

    def document(self, namespace: str, doc_id: str) -> Document:
        """One document. Raises NotFoundError."""
        found = self._find(Document, "documents", {"namespace": namespace, "doc_id": doc_id})
        if found is None:
            raise NotFoundError(
                f"no document {doc_id!r} in library {namespace!r}; `rag docs list --namespace"
                f" {namespace}` shows them"
            )
        return found

    def versions(self, namespace: str, doc_id: str | None = None) -> list[Version]:
        """Versions, oldest first."""
        where = {"namespace": namespace, "doc_id": doc_id}
        return self._select(Version, "versions", where, "received_at, rowid")

    def version(self, version_id: str) -> Version:
        """One version. Raises NotFoundError."""
        found = self._find(Version, "versions", {"version_id": version_id})
        if found is None:
            raise NotFoundError(f"no version {version_id!r} in the ledger")
        return found

    def receive(self, pairs: Iterable[tuple[Document, Version]]) -> None:
        """Record received versions as the current content of their sources. A document's live
        version changes only in `complete`.

        Deletions of received documents and versions are lifted: later releases may hold them again,
        while releases built before the deletion still hide them.
        """
        with self._write() as db:
            for document, version in pairs:
                wanted = dataclasses.replace(document, wanted_version=version.version_id)
                kept = ("live_version", "created_at", "pinned")
                put(db, "documents", wanted, ("namespace", "doc_id"), kept)
                kept = ("received_at", "attempts", "edition")
                put(db, "versions", version, ("version_id",), kept)
                db.execute(_LIFT, (now(), version.namespace, version.doc_id, version.version_id))

    def complete(self, version_id: str, *, title: str, counts: Json) -> None:
        """Mark a version ready. It goes live when it is the one that its source held last, unless
        the document is pinned or deleted. An older version that is processed again (a backfill, a
        late retry) does not.
        """
        column = to_column(counts)
        with self._write() as db:
            # unchanged results leave the row alone, so the next release need not look at it
            db.execute(
                "UPDATE versions SET status = 'ready', code = '', reason = '', attempts = 0,"
                " completed_at = ?, counts = ? WHERE version_id = ? AND (status != 'ready' OR"
                " counts != ? OR attempts != 0)",
                (now(), column, version_id, column),
            )
            db.execute(_GO_LIVE, {"version_id": version_id, "title": title, "now": now()})

    def fail(
        self, version_id: str, code: str, reason: str, *, max_attempts: int = 0, profile: str = ""
    ) -> None:
        """Mark a version failed, or dead at its `max_attempts`th failure under a profile (0:
        never). The live version is not affected.
        """
        with self._write() as db:
            self._mark_failed(db, version_id, code, reason, max_attempts, profile)

    def withdraw(
        self,
        version_id: str,
        code: str,
        reason: str,
        *,
        profile: str,
        back_to: str | None,
        title: str | None,
    ) -> bool:
        """Give up a live version that cannot be published, also in the running jobs that it belongs
        to. The version `back_to` with its `title` goes live again, unless it was deleted. False,
        and no change, where the version is pinned or no longer live.
        """
        values = {"version_id": version_id, "now": now(), "back_to": back_to, "title": title}
        with self._write() as db:
            if not db.execute(_WITHDRAW, values).rowcount:
                return False
            self._mark_failed(db, version_id, code, reason, 1, profile)
            running = [job.job_id for job in self.open_jobs()]
            changes = {"state": "dead", "code": code, "reason": reason, "attempts": 1}
            update(db, "job_items", changes, {"version_id": version_id, "job_id": running})
        return True

    def _mark_failed(
        self, db: Any, version_id: str, code: str, reason: str, max_attempts: int, profile: str
    ) -> None:
        known = self.version(version_id)
        same = known.counts.get("failed_profile", profile) == profile
        attempts = known.attempts + 1 if same else 1
        changes = {
            "status": "dead" if 1 <= max_attempts <= attempts else "failed",
            "attempts": attempts,
            "code": code,
            "reason": reason,
            "completed_at": now(),
            "counts": {**known.counts, "failed_profile": profile},
        }
        update(db, "versions", changes, {"version_id": version_id})

    def revive(self, version_ids: Sequence[str]) -> None:
        """Clear the failures of dead and failed versions, so that they are tried again."""
        where = {"version_id": list(version_ids), "status": ["dead", "failed"]}
        self._update("versions", {"status": "received", "attempts": 0}, where)

    def retire(self, namespace: str, doc_ids: Sequence[str]) -> None:
        """Drop documents that are gone from their source; pinned ones only once unpinned."""
        where = {"now": now(), "namespace": namespace}
        with self._write() as db:
            db.executemany(_RETIRE, [{**where, "doc_id": doc_id} for doc_id in doc_ids])

    def pin(self, namespace: str, doc_id: str, version_id: str) -> None:
        """Make a ready version live, whatever its source holds, until `unpin`. Raises NotFoundError
        for one that is not ready or was deleted.
        """
        where = {"namespace": namespace, "doc_id": doc_id, "version_id": version_id}
        with self._write() as db:
            if not db.execute(_PIN, {**where, "now": now()}).rowcount:
                raise NotFoundError(
                    f"version {version_id!r} of {doc_id!r} cannot be pinned: it is not ready, or it"
                    " was deleted",
                    code="version_not_ready",
                )

    def unpin(self, namespace: str, doc_id: str) -> None:
        """Let a pinned document follow its source again: the version that the source held last goes
        live if it is ready, none if the file is gone.
        """
        with self._write() as db:
            db.execute(_UNPIN, {"now": now(), "namespace": namespace, "doc_id": doc_id})

    def put_document(self, document: Document) -> None:
        """Store what users may edit of a known document: title, tags, categories, metadata."""
        edited = ("title", "tags", "categories", "metadata")
        changes = {name: getattr(document, name) for name in edited} | {"updated_at": now()}
        where = {"namespace": document.namespace, "doc_id": document.doc_id}
        self._update("documents", changes, where)

    def live(
        self, namespace: str, doc_ids: Iterable[str] | None = None
    ) -> list[tuple[Document, Version]]:
        """Active documents with their live version, by doc_id: all, or those of `doc_ids`."""
        row, values = (columns(Document, "d"), columns(Version, "v")), [namespace]
        condition = "TRUE"
        if doc_ids is not None:
            condition = f"d.doc_id {AMONG}"
            values.append(json.dumps(sorted(doc_ids)))
        rows = self._db().execute(_LIVE.format(*row, condition), values)
        width = len(dataclasses.fields(Document))
        return [(from_row(Document, row), from_row(Version, row[width:])) for row in rows]

    def count_stale(self, namespace: str, profile: str) -> int:
        """The number of live versions with another profile."""
        return int(self._value(_COUNT_STALE, (namespace, profile)))

    def find_wanted(self, namespace: str, *statuses: str) -> list[Version]:
        """The versions of these statuses that active documents should show but do not."""
        rows = self._db().execute(
            f"SELECT {columns(Version, 'v')} FROM documents d JOIN versions v ON v.version_id ="
            " d.wanted_version WHERE d.namespace = ? AND d.status = 'active' AND d.wanted_version"
            f" != COALESCE(d.live_version, '') AND v.status {AMONG} ORDER BY d.source_uri",
            (namespace, json.dumps(statuses)),
        )
        return [from_row(Version, row) for row in rows]

    def sequence(self, namespace: str) -> int:
        """The sequence of the newest change of a document or one of its versions."""
        sql = "SELECT COALESCE(MAX(sequence), 0) FROM touched WHERE namespace = ?"
        return int(self._value(sql, (namespace,)))

    def find_changed_documents(self, namespace: str, since: int) -> set[str]:
        """The doc_ids with changes, also of their versions, after the sequence `since`."""
        return {row[0] for row in self._db().execute(_CHANGED_DOCUMENTS, (namespace, since))}

    def changed_documents(self, namespace: str, since: int) -> list[Document]:
        """The documents of `find_changed_documents`, by doc_id."""
        condition, values = f"doc_id IN ({_CHANGED_DOCUMENTS})", (namespace, since)
        return self._select(
            Document, "documents", {"namespace": namespace}, "doc_id", condition, values
        )

    # --- deletions -------------------------------------------------------------------------------

    def delete(
        self,
        namespace: str,
        doc_id: str,
        version_id: str | None,
        mode: str,
        *,
        created_at: str = "",
    ) -> Tombstone:
        """The new tombstone of a document, or of one version; every reader hides it from now on.
        `created_at` is given for a deletion made elsewhere.
        """
        deleted_at = created_at or now()
        with self._write() as db:
            inserted = db.execute(
                "INSERT INTO deletions (namespace, doc_id, version_id, mode, created_at, lifted_at)"
                " VALUES (?, ?, ?, ?, ?, '') RETURNING sequence",
                (namespace, doc_id, version_id, mode, deleted_at),
            )
            sequence = int(inserted.fetchone()[0])
            owner = {"namespace": namespace, "doc_id": doc_id}
            hidden = {"live_version": None, "pinned": 0, "updated_at": deleted_at}
            if version_id is None:
                changes = {**hidden, "status": "deleted", "wanted_version": None}
                update(db, "documents", changes, owner)
            else:
                changes = {**hidden, "status": "retired"}
                update(db, "documents", changes, {**owner, "live_version": version_id})
                where = {**owner, "wanted_version": version_id}
                update(db, "documents", {"wanted_version": None}, where)
        return Tombstone(sequence, namespace, doc_id, version_id, mode, deleted_at)

    def tombstones(
        self, namespace: str, doc_id: str | None = None, *, since: int | None = None
    ) -> list[Tombstone]:
        """The tombstones in force, of all documents or of one, oldest first. With `since` instead
        those after that sequence, lifted ones included: a release of that time must hide all of
        them.
        """
        where = {"namespace": namespace, "doc_id": doc_id}
        condition = "lifted_at = ''" if since is None else f"sequence > {since:d}"
        return self._select(Tombstone, "deletions", where, "sequence", condition)

    def deletion_sequence(self, namespace: str) -> int:
        """The sequence of the newest deletion, 0 without one."""
        sql = "SELECT COALESCE(MAX(sequence), 0) FROM deletions WHERE namespace = ?"
        return int(self._value(sql, (namespace,)))

    def find_purged(self, version_ids: Iterable[str]) -> set[str]:
        """The version_ids, of these, whose data was removed."""
        sql = f"SELECT version_id FROM versions WHERE status = 'purged' AND version_id {AMONG}"
        return {row[0] for row in self._db().execute(sql, (json.dumps(list(version_ids)),))}

    def purge(self, version_ids: Sequence[str]) -> None:
        """Record that the data of versions is about to be removed; their rows stay as history."""
        self._update("versions", {"status": "purged"}, {"version_id": list(version_ids)})

    def scrub(
        self, namespace: str, doc_id: str, version_ids: Sequence[str], *, whole: bool
    ) -> None:
        """Erase every text of these versions, and with `whole` of their document: titles, tags,
        metadata, counts, reasons, edits. Ids, hashes and file names stay. `compact` of the backend
        afterwards also removes the text from the database file.
        """
        owner, ids = {"namespace": namespace, "doc_id": doc_id}, {"version_id": list(version_ids)}
        with self._write() as db:
            texts = {"counts": {}, "code": "", "reason": "", "edition": ""}
            update(db, "versions", texts, ids)
            update(db, "job_items", {"reason": ""}, ids)
            delete(db, "editions", ids)
            delete(db, "drafts", ids)
            db.execute(
                "UPDATE documents SET title = '' WHERE namespace = :namespace AND doc_id = :doc_id"
                " AND live_version IS NULL",
                owner,
            )
            if whole:
                texts = {"tags": [], "categories": [], "metadata": {}, "origin": ""}
                update(db, "documents", texts, owner)
                update(db, "job_items", {"reason": ""}, {"doc_id": doc_id})
                delete(db, "drafts", owner)
            for job_id, changes in _scrubbed_jobs(db, namespace, doc_id, version_ids, whole=whole):
                update(db, "jobs", changes, {"job_id": job_id})

    def count_words(
        self, namespace: str, doc_id: str, version_ids: Sequence[str], *, whole: bool
    ) -> dict[str, int]:
        """Table to the number of rows with text that `scrub` would erase."""
        of_versions, owner = f"version_id {AMONG}", "namespace = ? AND doc_id = ?"
        ids, all_rows = json.dumps(list(version_ids)), "TRUE" if whole else "FALSE"
        conditions = {
            "versions": (
                f"{of_versions} AND (counts != '{{}}' OR reason != '' OR edition != '')",
                (ids,),
            ),
            "editions": (of_versions, (ids,)),
            "drafts": (f"{of_versions} OR ({all_rows} AND {owner})", (ids, namespace, doc_id)),
            "job_items": (
                f"reason != '' AND ({of_versions} OR ({all_rows} AND doc_id = ?))",
                (ids, doc_id),
            ),
            "documents": (
                (
                    f"{all_rows} AND {owner} AND (title != '' OR tags != '[]' OR categories !="
                    " '[]' OR metadata != '{}' OR origin != '')"
                ),
                (namespace, doc_id),
            ),
        }
        counts = {
            table: int(self._value(f"SELECT count(*) FROM {table} WHERE {where}", parameters))
            for table, (where, parameters) in conditions.items()
        }
        jobs = _scrubbed_jobs(self._db(), namespace, doc_id, version_ids, whole=whole)
        return {**counts, "jobs": len(jobs)}

    # --- drafts ----------------------------------------------------------------------------------

    def drafts(self, namespace: str, doc_id: str | None = None) -> list[Draft]:
        return self._select(Draft, "drafts", {"namespace": namespace, "doc_id": doc_id}, "doc_id")

    def put_draft(self, draft: Draft) -> None:
        created_at = draft.created_at or now()
        dated = dataclasses.replace(draft, created_at=created_at, updated_at=now())
        self._upsert("drafts", dated, ("namespace", "doc_id"))

    def drop_draft(self, namespace: str, doc_id: str) -> None:
        with self._write() as db:
            delete(db, "drafts", {"namespace": namespace, "doc_id": doc_id})

    def put_edition(self, version_id: str, edition: str, operations: Sequence[Json]) -> None:
        """Show a version in the edition that these operations make, or with "" unedited."""
        with self._write() as db:
            if edition:
                db.execute(
                    "INSERT INTO editions (edition, version_id, operations, created_at) VALUES"
                    " (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (edition, version_id, to_column(list(operations)), now()),
                )
            update(db, "versions", {"edition": edition}, {"version_id": version_id})

    def operations(self, version_id: str, edition: str) -> tuple[Json, ...]:
        """The operations that make an edition of a version. Raises NotFoundError."""
        sql = "SELECT operations FROM editions WHERE version_id = ? AND edition = ?"
        row = self._db().execute(sql, (version_id, edition)).fetchone()
        if row is None:
            raise NotFoundError(f"version {version_id!r} has no edition {edition!r}")
        return tuple(json.loads(row[0]))

    # --- jobs ------------------------------------------------------------------------------------

    def add_job(
        self,
        kind: str,
        namespace: str,
        args: Json,
        items: Sequence[JobItem] = (),
        job_id: str | None = None,
    ) -> Job:
        """A new job in state `queued`, under a fresh id or one from `new_job_id`."""
        job = Job(
            job_id=job_id or new_job_id(),
            kind=kind,
            namespace=namespace,
            args=args,
            created_at=now(),
        )
        with self._write() as db:
            _put_job(db, job, items)
        return job

    def job(self, job_id: str) -> Job:
        """One job. Raises NotFoundError."""
        found = self._find(Job, "jobs", {"job_id": job_id})
        if found is None:
            raise unknown_job(job_id)
        return found

    def jobs(
        self,
        namespace: str | None = None,
        limit: int = 50,
        *,
        state: str | None = None,
        dead: bool = False,
        before: str = "",
    ) -> list[Job]:
        """At most `limit` jobs, newest first, without ranges. With `dead`, only jobs that gave up a
        document; with `before`, only jobs that were added before that one.
        """
        condition = "kind != 'range'"
        if dead:
            condition += " AND job_id IN (SELECT job_id FROM job_items WHERE state = 'dead')"
        if before:
            condition += " AND rowid < (SELECT rowid FROM jobs WHERE job_id = ?)"
        newest = f"rowid DESC LIMIT {limit:d}"
        where = {"namespace": namespace, "state": state}
        return self._select(Job, "jobs", where, newest, condition, (before,) if before else ())

    def open_jobs(self) -> list[Job]:
        """The jobs that have not ended, ranges among them, newest first."""
        newest = "created_at DESC, rowid DESC"
        return self._select(Job, "jobs", {}, newest, f"state IN {OPEN_STATES}")

    def last_heartbeat(self) -> str:
        """The time of the newest heartbeat of any job, "" without one."""
        return str(self._value("SELECT max(heartbeat_at) FROM jobs") or "")

    def split_job(self, job: Job, size: int) -> None:
        """Split a queued job into ranges of at most `size` versions, which are jobs themselves, and
        record it as running. A job of at most `size` versions stays whole.
        """
        version_ids = job.args["version_ids"]
        if len(version_ids) <= size:
            return
        items = {item.version_id: item for item in self.job_items(job.job_id)}
        forced = set(job.args.get("forced", ()))
        chunks = [version_ids[at : at + size] for at in range(0, len(version_ids), size)]
        changes = {
            "args": {**job.args, "ranges": len(chunks)},
            "state": "running",
            "started_at": now(),
            "heartbeat_at": now(),
        }
        with self._write() as db:
            if not update(db, "jobs", changes, {"job_id": job.job_id, "state": "queued"}):
                return
            for number, chunk in enumerate(chunks, 1):
                args = {"version_ids": chunk, "forced": [v for v in chunk if v in forced]}
                total = {"done": 0, "total": len(chunk), "since": now(), "at": now()}
                part = dataclasses.replace(
                    job,
                    job_id=f"{job.job_id}.{number}",
                    kind="range",
                    args=args,
                    progress={"stages": {"documents": total}},
                    created_at=now(),
                )
                _put_job(db, part, [items[version_id] for version_id in chunk])

    def ranges(self, job_id: str) -> list[Job]:
        return self._select(Job, "jobs", {}, "created_at, rowid", _RANGES, _range_bounds(job_id))

    def has_open_ranges(self, job_id: str) -> bool:
        sql = f"SELECT EXISTS (SELECT 1 FROM jobs WHERE {_RANGES} AND state IN {OPEN_STATES})"
        return bool(self._value(sql, _range_bounds(job_id)))

    def range_progress(self, job_id: str) -> list[Json]:
        found = self._db().execute(
            f"SELECT progress FROM jobs WHERE {_RANGES}", _range_bounds(job_id)
        )
        return [json.loads(row[0]) for row in found.fetchall()]

    def merge_ranges(self, job: Job, ranges: Sequence[Job], **changes: Any) -> bool:
        """Give a job its ranges' results and items, and set columns. False if another did."""
        result: Json = {}
        for part in ranges:
            for key, value in part.result.items():
                merged = result[key] + value if key in result else value
                result[key] = merged[:MAX_WARNINGS] if isinstance(merged, list) else merged
        unmerged = {"job_id": job.job_id, "state": job.state, "pid": 0}
        with self._write() as db:
            if not update(db, "jobs", {**changes, "result": result}, unmerged):
                return False
            for part in ranges:
                db.execute(
                    "UPDATE job_items SET state = r.state, code = r.code, reason = r.reason,"
                    " attempts = r.attempts FROM job_items r WHERE r.job_id = ?"
                    " AND job_items.job_id = ? AND r.source_uri = job_items.source_uri",
                    (part.job_id, job.job_id),
                )
        return True

    def job_items(self, job_id: str) -> list[JobItem]:
        return self._select(JobItem, "job_items", {"job_id": job_id}, "source_uri")

    def failed_job_items(self, job_id: str) -> list[JobItem]:
        """The documents of a job that failed or were given up."""
        where = {"job_id": job_id, "state": ["failed", "dead"]}
        return self._select(JobItem, "job_items", where, "source_uri")

    def find_told(self, job: Job) -> set[str]:
        """The source_uris of a job's failures that an earlier sync told, with the same code about
        the same bytes, and no job between them met otherwise. Other jobs may have told nobody.
        """
        left = {item.source_uri: item for item in self.failed_job_items(job.job_id)}
        told = set()
        for earlier in self.jobs(job.namespace, _RECENT_JOBS, before=job.job_id):
            where = {"job_id": earlier.job_id, "source_uri": list(left)}
            for item in self._select(JobItem, "job_items", where, "source_uri") if left else ():
                failed = left[item.source_uri]
                is_same = (item.version_id, item.code) == (failed.version_id, failed.code)
                if is_same and earlier.args.get("sync"):
                    told.add(item.source_uri)
                if not is_same or item.source_uri in told:
                    del left[item.source_uri]
        return told

    def job_item_page(self, job_id: str, begin: int, limit: int) -> list[JobItem]:
        """At most `limit` documents of a job from position `begin` on, failed ones first."""
        order = f"state NOT IN ('failed', 'dead'), source_uri LIMIT {limit:d} OFFSET {begin:d}"
        return self._select(JobItem, "job_items", {"job_id": job_id}, order)

    def job_item_counts(self, job_id: str) -> list[tuple[str, str, int]]:
        """(state, decision, number of items) of a job."""
        sql = (
            "SELECT state, decision, count(*) FROM job_items WHERE job_id = ?"
            " GROUP BY state, decision ORDER BY state, decision"
        )
        return list(self._db().execute(sql, (job_id,)).fetchall())

    def update_job(self, job_id: str, *, only_from: Sequence[str] = (), **changes: Any) -> bool:
        """Set columns of a job. False, and no change, in a state that is not in `only_from`."""
        states = {"state": list(only_from)} if only_from else {}
        with self._write() as db:
            return bool(update(db, "jobs", changes, {"job_id": job_id, **states}))

    def update_job_item(
        self, job_id: str, version_id: str, state: str, code: str = "", reason: str = ""
    ) -> None:
        """Set the state of one document of a job; a failure counts as an attempt."""
        with self._write() as db:
            db.execute(
                "UPDATE job_items SET state = ?, reason = CASE WHEN code = '' AND ? = '' THEN"
                " reason ELSE ? END, code = ?, attempts = attempts + ? WHERE job_id = ? AND"
                " version_id = ?",
                (state, reason, reason, code, state in ("failed", "dead"), job_id, version_id),
            )

    def settle_job_items(self, job_id: str, state: str, code: str, reason: str) -> None:
        """Set the final state of those documents of a job that are still queued."""
        changes = {"state": state, "code": code, "reason": reason}
        self._update("job_items", changes, {"job_id": job_id, "state": "queued"})

    # --- releases --------------------------------------------------------------------------------

    def put_release(self, release: Release) -> None:
        self._upsert("releases", release, ("namespace", "release_id"))

    def read_published(self, namespace: str) -> frozenset[str]:
        """The id of the release recorded as published; empty before the first publication. Several
        only after a crash of an earlier program.
        """
        sql = "SELECT release_id FROM releases WHERE namespace = ? AND state = 'published'"
        return frozenset(row[0] for row in self._db().execute(sql, (namespace,)).fetchall())

    @contextmanager
    def publication(
        self,
        namespace: str,
        release_id: str,
        *,
        instead_of: frozenset[str],
        manifest_sha256: str,
    ) -> Iterator[None]:
        """Record a release as published, in one transaction with the block. Its manifest's hash is
        recorded only the first time, since nothing may change the manifest later.

        Raises ReleaseError `outdated_candidate` when the recorded release is not `instead_of` any
        more, whatever lock the caller holds, and NotFoundError `unknown_release`.
        """
        with self._write() as db:
            if (found := self.read_published(namespace)) != instead_of:
                raise ReleaseError(
                    f"release {release_id} is not published: {', '.join(sorted(found)) or 'none'}"
                    f" was published meanwhile instead of {', '.join(instead_of) or 'none'}; build"
                    f" another with `rag rebuild --namespace {namespace}`",
                    code="outdated_candidate",
                )
            replaced = {"namespace": namespace, "state": "published"}
            update(db, "releases", {"state": "retired"}, replaced)
            changes = {"state": "published", "published_at": now()}
            _set_release(db, namespace, release_id, changes)
            first = {"namespace": namespace, "release_id": release_id, "manifest_sha256": ""}
            update(db, "releases", {"manifest_sha256": manifest_sha256}, first)
            yield

    def update_release(self, namespace: str, release_id: str, **changes: Any) -> None:
        """Set columns of a release: state, published_at, pinned. Raises NotFoundError."""
        with self._write() as db:
            _set_release(db, namespace, release_id, changes)

    def knows_releases(self) -> bool:
        return bool(self._value("SELECT EXISTS (SELECT 1 FROM releases)"))

    def releases(self, namespace: str) -> list[Release]:
        """Releases, newest first."""
        return self._select(
            Release, "releases", {"namespace": namespace}, "created_at DESC, rowid DESC"
        )

    def release(self, namespace: str, release_id: str) -> Release | None:
        """One release, None for an unknown one."""
        where = {"namespace": namespace, "release_id": release_id}
        return self._find(Release, "releases", where)

    def release_sequence(self, namespace: str, release_id: str) -> int | None:
        """The ledger's sequence when the release was made; None where that was not recorded."""
        row = self.release(namespace, release_id)
        return None if row is None else row.sequence


def _range_bounds(job_id: str) -> tuple[str, str]:
    """(below, above) the ids of a job's ranges; `/` is the character after `.`."""
    return f"{job_id}.", f"{job_id}/"


def _put_job(db: Any, job: Job, items: Iterable[JobItem]) -> None:
    put(db, "jobs", job, ("job_id",))
    for item in items:
        own = dataclasses.replace(item, job_id=job.job_id)
        put(db, "job_items", own, ("job_id", "source_uri"))


def _set_release(db: Any, namespace: str, release_id: str, changes: Mapping[str, Any]) -> None:
    if not update(db, "releases", changes, {"namespace": namespace, "release_id": release_id}):
        raise NotFoundError(
            f"no release {release_id!r} of library {namespace!r} in the ledger; `rag releases list"
            f" --namespace {namespace}` shows them",
            code="unknown_release",
        )


def open_ledger(store: Store) -> Ledger:
    """The ledger of a data root. A missing file reads as empty and is created by the first write; a
    file that cannot be written is opened read-only.

    Raises IntegrityError `no_ledger` where releases are published and their ledger is gone: the
    file, or every release in the database. Raises as `open_url`.
    """
    require(store)
    ledger = open_url(store.ledger_url)
    if store.database and not ledger.knows_releases() and store.has_releases():
        name = ledger.name
        ledger.close()
        raise IntegrityError(
            f"the ledger at {name} knows no release, and {store.home} holds published ones: nobody"
            " knows which documents were deleted, so nothing is shown. Name the ledger of this data"
            " root in settings.yaml (RAG_LEDGER), or copy the one it had with `rag ledger copy`",
            code="no_ledger",
        )
    return ledger


def require(store: Store) -> None:
    """Raise IntegrityError `no_ledger` when releases are published but the ledger file is gone."""
    if not store.has_ledger() and store.has_releases():
        raise IntegrityError(
            f"{store.ledger_path} is gone, and nobody else knows which documents were deleted:"
            " nothing is shown of the releases beside it. Name the database that it was copied to"
            " in settings.yaml (RAG_LEDGER), put it back from a backup, or move the folder"
            " releases/ away and ingest the documents anew",
            code="no_ledger",
        )


def open_url(url: str) -> Ledger:
    """The ledger at `sqlite:///PATH` or `postgresql://...`.

    Raises SchemaVersionError for a ledger of a newer program, or of an older one where it cannot be
    migrated; LedgerError `ledger_unreachable`; ConfigError `bad_ledger`.
    """
    if is_postgres(url):
        return Ledger(PostgresBackend(url))
    scheme, _, path = url.partition(":///")
    if scheme != "sqlite" or not path:
        raise bad_url(url)
    return Ledger(SqliteBackend(Path(path)))


def bound_namespaces(store: Store) -> dict[str, str]:
    """Namespace to the strategy it is bound to; empty without a ledger."""
    if not store.has_ledger():
        return {}
    with closing(open_ledger(store)) as ledger:
        return ledger.namespaces()


def _scrubbed_jobs(
    db: Any, namespace: str, doc_id: str, version_ids: Sequence[str], *, whole: bool
) -> list[tuple[str, Json]]:
    """(job_id, {column: new value}) of the jobs that quote versions, or with `whole` their
    document: in the operations of a draft, options for loading a file, warnings, progress and the
    reason for the end.
    """
    row = db.execute(
        "SELECT source_uri FROM documents WHERE namespace = ? AND doc_id = ?", (namespace, doc_id)
    ).fetchone()
    uri = row[0] if row else doc_id
    names = (uri, *version_ids)
    spellings = sorted({*names, *(json.dumps(name, ensure_ascii=False)[1:-1] for name in names)})
    quoting = "instr(args || ' ' || result || ' ' || progress || ' ' || reason, ?) > 0"
    sql = (
        "SELECT job_id, args, result, progress, reason FROM jobs WHERE namespace = ? AND"
        f" ({' OR '.join([quoting] * len(spellings))})"
    )
    found = []
    for job_id, *texts, reason in db.execute(sql, (namespace, *spellings)).fetchall():
        args, result, progress = map(json.loads, texts)
        scrubbed = {
            "args": _scrubbed_args(args, uri, version_ids, whole=whole),
            "result": result,
            "progress": progress,
            "reason": ERASED if any(name in reason for name in names) else reason,
        }
        if "warnings" in result:
            kept = [line for line in result["warnings"] if not line.startswith(f"{uri}: ")]
            scrubbed["result"] = {**result, "warnings": kept}
        if str(progress.get("message", "")).startswith(f"{uri}: "):
            scrubbed["progress"] = {**progress, "message": ""}
        current = {"args": args, "result": result, "progress": progress, "reason": reason}
        changed = {name: value for name, value in scrubbed.items() if value != current[name]}
        if changed:
            found.append((job_id, changed))
    return found


def _scrubbed_args(args: Json, uri: str, version_ids: Sequence[str], *, whole: bool) -> Json:
    """A job's arguments without those for the versions, or with `whole` for the document."""
    scrubbed = dict(args)
    if "drafted" in args:
        scrubbed["drafted"] = {
            version_id: operations
            for version_id, operations in args["drafted"].items()
            if version_id not in version_ids
        }
    if whole and uri in args.get("places", {}):
        scrubbed["places"] = {name: path for name, path in args["places"].items() if name != uri}
        scrubbed["options"] = args.get("options") if scrubbed["places"] else {}
    return scrubbed
