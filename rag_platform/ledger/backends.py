"""The databases that a ledger can lie in: an SQLite file or PostgreSQL, behind the same few
methods. Every write is a transaction; writes come one after the other.

Both run the same statements, written for SQLite, and have the same schema. Everything that
PostgreSQL calls by another name is translated here and nowhere else.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from rag_platform.errors import BusyError, LedgerError, SchemaVersionError, read_only
from rag_platform.ledger.tables import (
    META,
    SCHEMA_VERSION,
    TOUCH,
    TOUCHING,
    statements,
    tables,
)
from rag_platform.storage.postgres import PostgresConnection, mask_url
from rag_platform.storage.sqlite_files import ReadOnlyFile, connect_shared, has_room, transaction

_VERSION = "SELECT value FROM meta WHERE key = 'schema_version'"
_RECORD_VERSION = (
    "INSERT INTO meta (key, value) VALUES ('schema_version', ?) ON CONFLICT (key) DO UPDATE SET"
    " value = excluded.value"
)
_TRIGGERS = [
    f"CREATE TRIGGER IF NOT EXISTS {table}_{event.lower()} AFTER {event} ON {table} BEGIN"
    f" {TOUCH.format(row=row)}; END"
    for table in TOUCHING
    for event, row in (("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old"))
]


def _refuse(name: str, found: int) -> SchemaVersionError:
    return SchemaVersionError(
        f"{name} has ledger schema {found}, this program knows {SCHEMA_VERSION}: use the one that"
        " wrote it"
    )


class SqliteBackend:
    """One SQLite file in WAL mode: one connection a thread. As long as the disk is full, what a
    thread opens is only read.
    """

    is_published = "is_published({version})"  # the condition that a {version} is published

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)  # as people may see it
        self._local = threading.local()
        self._there = False
        if self.read_only:
            self._require_today()
            return
        if path.parent.is_dir() and not has_room(path):
            raise read_only(path.parent)
        if path.is_file():
            self._bring_up_to_date()

    @property
    def read_only(self) -> bool:
        """True where this thread cannot write the file, now or at all."""
        writes = getattr(self._local, "db", None) is not None
        return not writes and self.path.is_file() and not has_room(self.path)

    def db(self) -> sqlite3.Connection:
        """This thread's connection; that of an empty ledger where there is no file."""
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
            db = connect_shared(self.path, check_same_thread=True)
            db.execute("PRAGMA synchronous = NORMAL")
            # what is overwritten is overwritten on disk, whatever SQLite was built with
            db.execute("PRAGMA secure_delete = ON")
            self._local.db = db
        return db

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that keeps other writers out; makes the file if there is none."""
        if self.read_only:
            raise read_only(self.path.parent)
        if not self._there:
            self._bring_up_to_date()
        db = self.db()
        with transaction(db, self.path):
            yield db

    def bind_published(self, published: Collection[str]) -> Mapping[str, Any]:
        """Make `is_published` mean these version_ids; the parameters that it needs."""
        self.db().create_function("is_published", 1, published.__contains__, deterministic=True)
        return {}

    def compact(self) -> bool:
        """Write the file anew without overwritten data, and empty the log beside it; False while
        other processes read.
        """
        db = self.db()
        sys.audit("rag_platform.commit", str(self.path))
        db.execute("VACUUM")
        return not db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]

    def count_on(self) -> None:
        """Number new deletions after the highest number that was copied, as SQLite does itself."""

    def mark(self) -> str:
        """A text that changes with every write: sizes and times of the file and its log."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        stats = [path.stat() for path in files if path.is_file()]
        return " ".join(f"{stat.st_size}@{stat.st_mtime_ns}" for stat in stats if stat.st_size)

    def close(self) -> None:
        """Close this thread's connection."""
        if (file := getattr(self._local, "file", None)) is not None:
            file.close()
        db = getattr(self._local, "db", None)
        if db is not None:
            db.close()
            self._local.db = None

    def _bring_up_to_date(self) -> None:
        path, self._there = self.path, True
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.write() as db:
            db.execute(META)
            row = db.execute(_VERSION).fetchone()
            found = int(row[0]) if row else 0
            if found > SCHEMA_VERSION:
                raise _refuse(self.name, found)
            for statement in statements(found):
                db.execute(statement)
            if found < SCHEMA_VERSION:
                for trigger in _TRIGGERS:
                    db.execute(trigger)
                db.execute(_RECORD_VERSION, (str(SCHEMA_VERSION),))

    def _require_today(self) -> None:
        row = self.db().execute(_VERSION).fetchone()
        found = int(row[0]) if row else 0
        if found > SCHEMA_VERSION:
            raise _refuse(self.name, found)
        if found < SCHEMA_VERSION:
            raise SchemaVersionError(
                f"{self.path} has ledger schema {found}, this program reads {SCHEMA_VERSION}: run"
                " `rag status` once where it can be written"
            )

    def _empty(self) -> sqlite3.Connection:
        if (db := getattr(self._local, "empty", None)) is None:
            db = sqlite3.connect(":memory:", isolation_level=None)
            for statement in statements(0):
                db.execute(statement)
            self._local.empty = db
        made: sqlite3.Connection = db
        return made


# SQLite's functions that the statements call
_FUNCTIONS = (
    "CREATE OR REPLACE FUNCTION instr(text, text) RETURNS integer LANGUAGE sql IMMUTABLE AS"
    " 'SELECT strpos($1, $2)'",
    "CREATE OR REPLACE FUNCTION json_extract(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS"
    " 'SELECT $1::json #>> string_to_array(substr($2, 3), ''.'')'",
    "CREATE OR REPLACE FUNCTION json_each(text) RETURNS TABLE (value text) LANGUAGE sql IMMUTABLE"
    " AS 'SELECT json_array_elements_text($1::json)'",
)
_TOUCH_FUNCTION = (
    "CREATE OR REPLACE FUNCTION touch_document() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    f" IF TG_OP = 'DELETE' THEN {TOUCH.format(row='OLD')};"
    f" ELSE {TOUCH.format(row='NEW')}; END IF; RETURN NULL; END $$"
)
# names are sorted by their code points, as SQLite does
_TYPES = {"TEXT": 'TEXT COLLATE "C"', "INTEGER": "BIGINT"}
_COUNTER = "BIGINT GENERATED BY DEFAULT AS IDENTITY"
# The row that every writer changes first and so waits for: writes come one after the other, as
# with SQLite. Numbers that others rely on (a deletion's) are therefore visible in their order.
_BEGIN = "UPDATE meta SET value = (value::bigint + 1)::text WHERE key = 'writes'"


def to_postgres(statement: str) -> str:
    """A statement of the schema in PostgreSQL's types; every table counts its rows by `rowid`."""
    counted = statement.replace("INTEGER PRIMARY KEY AUTOINCREMENT", f"{_COUNTER} PRIMARY KEY")
    typed = re.sub(r"\b(TEXT|INTEGER)\b", lambda found: _TYPES[found[0]], counted)
    if typed.lstrip().startswith("CREATE TABLE"):
        typed = f"{typed.rstrip().removesuffix(')')}, rowid {_COUNTER})"
    return typed


class PostgresBackend:
    """One schema of a PostgreSQL database: one connection that threads take turns with."""

    is_published = "{version} IN (SELECT value FROM json_each(:published))"
    read_only = False

    def __init__(self, url: str) -> None:
        self.name = mask_url(url)
        self._db = PostgresConnection(url)
        try:
            if self._read_version() != SCHEMA_VERSION:
                self._bring_up_to_date()
        except BaseException:
            self._db.close()
            raise

    def db(self) -> PostgresConnection:
        """The connection."""
        return self._db

    def write(self) -> AbstractContextManager[PostgresConnection]:
        """A transaction that waits for the writer before it."""
        return self._db.transaction(_BEGIN)

    def bind_published(self, published: Collection[str]) -> Mapping[str, Any]:
        """The list that the condition searches."""
        return {"published": json.dumps(list(published))}

    def compact(self) -> bool:
        """Write the tables anew. The server's log and backups are its own."""
        try:
            for table in tables():
                self._db.execute(f"VACUUM (FULL, ANALYZE) {table}")
        except BusyError:
            return False
        return True

    def count_on(self) -> None:
        """Move the counter."""
        self._db.execute(
            "SELECT setval(pg_get_serial_sequence('deletions', 'sequence'), max(sequence)) FROM"
            " deletions"
        )

    def mark(self) -> str:
        """How many writes there were."""
        sql = "SELECT value FROM meta WHERE key = 'writes'"
        return str(self._db.execute(sql).fetchone()[0])

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def _read_version(self) -> int:
        if self._db.execute("SELECT to_regclass('meta')").fetchone()[0] is None:
            return 0
        row = self._db.execute(_VERSION).fetchone()
        found = int(row[0]) if row else 0
        if found > SCHEMA_VERSION:
            raise _refuse(self.name, found)
        return found

    def _bring_up_to_date(self) -> None:
        alone = "SELECT pg_advisory_xact_lock(hashtextextended('rag ' || current_schema(), 0))"
        with self._db.transaction(alone) as db:
            if db.execute("SELECT current_schema()").fetchone()[0] is None:
                raise LedgerError(
                    f"{self.name}: the schema that its search_path names does not exist; create it",
                    code="no_schema",
                )
            found = self._read_version()
            for function in _FUNCTIONS:
                db.execute(function)
            if not found:
                db.execute(to_postgres(META))
                db.execute("INSERT INTO meta (key, value) VALUES ('writes', '0')")
            for statement in statements(found):
                db.execute(to_postgres(statement))
            db.execute(_TOUCH_FUNCTION)
            for table in TOUCHING:
                db.execute(
                    f"CREATE OR REPLACE TRIGGER touch AFTER INSERT OR UPDATE OR DELETE ON {table}"
                    " FOR EACH ROW EXECUTE FUNCTION touch_document()"
                )
            db.execute(_RECORD_VERSION, (str(SCHEMA_VERSION),))


Backend = SqliteBackend | PostgresBackend
