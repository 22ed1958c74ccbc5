"""The tables of the ledger and their migrations, in SQLite's dialect for both databases."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator
from contextlib import closing

SCHEMA_VERSION = 5

META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)"
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

# The changes of each schema version. A new ledger applies all of them too, so that there is one way
# to the current tables.
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
    # `touched`: the sequence of the newest change of each document or one of its versions, counted
    # by triggers of the backends; a release records the sequence at which it was made
    4: (
        """
CREATE TABLE touched (
    namespace TEXT NOT NULL, doc_id TEXT NOT NULL, sequence INTEGER NOT NULL,
    PRIMARY KEY (namespace, doc_id));
CREATE INDEX touched_by_sequence ON touched (namespace, sequence);
CREATE TABLE servers (
    server_id TEXT PRIMARY KEY, host TEXT NOT NULL, releases TEXT NOT NULL,
    registered_at TEXT NOT NULL, seen_at TEXT NOT NULL);
CREATE TABLE acknowledgements (
    sequence INTEGER NOT NULL, server_id TEXT NOT NULL, created_at TEXT NOT NULL,
    PRIMARY KEY (sequence, server_id));
ALTER TABLE releases ADD COLUMN sequence INTEGER
"""
    ),
    5: "ALTER TABLE releases ADD COLUMN manifest_sha256 TEXT NOT NULL DEFAULT ''",
}


def statements(found: int) -> Iterator[str]:
    """The statements that migrate schema `found` to the current one; 0 is an empty database."""
    for version in range(found + 1, SCHEMA_VERSION + 1):
        yield from filter(str.strip, _CHANGES.get(version, _SCHEMA).split(";"))


# what the triggers execute for a changed row of documents or versions
TOUCH = """
INSERT INTO touched (namespace, doc_id, sequence)
SELECT {row}.namespace, {row}.doc_id, COALESCE(MAX(t.sequence), 0) + 1
FROM touched t WHERE t.namespace = {row}.namespace
ON CONFLICT (namespace, doc_id) DO UPDATE SET sequence = excluded.sequence"""
TOUCHING = ("documents", "versions")


@functools.cache
def tables() -> dict[str, tuple[str, ...]]:
    """Table to its columns."""
    with closing(sqlite3.connect(":memory:")) as db:
        for statement in statements(0):
            db.execute(statement)
        names = db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            " ORDER BY rowid"
        )
        return {
            name: tuple(row[1] for row in db.execute(f"PRAGMA table_info({name})"))
            for (name,) in names.fetchall()
        }
