"""The databases that can hold a ledger, an SQLite file or PostgreSQL, behind the same few methods.
Every write is a transaction; writes are serialised.

Both run the same statements, written for SQLite, on the same schema. Differences of PostgreSQL are
translated here and nowhere else.
"""

from __future__ import annotations

import json
import re
import sqlite3
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
from rag_platform.storage.sqlite_files import (
    ReadOnlyFile,
    connect_shared,
    has_room,
    shrink,
    transaction,
)

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


def _read_version(db: Any, name: str) -> int:
    """The schema version of a ledger, 0 without one. Raises SchemaVersionError for a newer one."""
    row = db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    found = int(row[0]) if row else 0
    if found > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"{name} has ledger schema {found}, this program knows {SCHEMA_VERSION}: use the one"
            " that wrote it"
        )
    return found


class SqliteBackend:
    """One SQLite file in WAL mode, with one connection a thread. Threads that open it while the
    disk is full can only read.
    """

    is_published = "is_published({version})"  # the SQL condition that {version} is published

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)  # for messages
        self._local = threading.local()
        self._is_migrated = False
        if self.read_only:
            self._require_current_schema()
            return
        if path.parent.is_dir() and not has_room(path):
            raise read_only(path.parent)
        if path.is_file():
            self._migrate()

    @property
    def read_only(self) -> bool:
        """True when this thread cannot write the file, now or at all."""
        is_writing = getattr(self._local, "db", None) is not None
        return not is_writing and self.path.is_file() and not has_room(self.path)

    def db(self) -> sqlite3.Connection:
        """This thread's connection; to an empty ledger where there is no file."""
        if self.read_only:
            if not hasattr(self._local, "file"):
                self._local.file = ReadOnlyFile(self.path)
            file: ReadOnlyFile = self._local.file
            return file.db()
        if not self._is_migrated:
            if not self.path.is_file():
                return self._empty()
            self._migrate()
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = connect_shared(self.path, check_same_thread=True)
            db.execute("PRAGMA synchronous = NORMAL")
            # overwrite deleted data on disk, whatever SQLite's build default is
            db.execute("PRAGMA secure_delete = ON")
            self._local.db = db
        return db

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that excludes other writers; creates the file if there is none."""
        if self.read_only:
            raise read_only(self.path.parent)
        if not self._is_migrated:
            self._migrate()
        db = self.db()
        with transaction(db, self.path):
            yield db

    def bind_published(self, published: Collection[str]) -> Mapping[str, Any]:
        """Make `is_published` mean these version_ids. Returns parameters for the condition."""
        self.db().create_function("is_published", 1, published.__contains__, deterministic=True)
        return {}

    def compact(self) -> bool:
        """Rewrite the file without deleted data, and empty its WAL. False while others read."""
        return shrink(self.db(), self.path)

    def advance_sequence(self) -> None:
        """Do nothing: SQLite itself numbers new deletions after the copied ones."""

    def mark(self) -> str:
        """A string that changes with every write: sizes and times of the file and its WAL."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        stats = [path.stat() for path in files if path.is_file()]
        return " ".join(f"{stat.st_size}@{stat.st_mtime_ns}" for stat in stats if stat.st_size)

    def close(self) -> None:
        if (file := getattr(self._local, "file", None)) is not None:
            file.close()
        db = getattr(self._local, "db", None)
        if db is not None:
            db.close()
            self._local.db = None

    def _migrate(self) -> None:
        path, self._is_migrated = self.path, True
        path.parent.mkdir(0o700, parents=True, exist_ok=True)  # the data root
        with self.write() as db:
            db.execute(META)
            found = _read_version(db, self.name)
            for statement in statements(found):
                db.execute(statement)
            if found < SCHEMA_VERSION:
                for trigger in _TRIGGERS:
                    db.execute(trigger)
                db.execute(_RECORD_VERSION, (str(SCHEMA_VERSION),))

    def _require_current_schema(self) -> None:
        if (found := _read_version(self.db(), self.name)) < SCHEMA_VERSION:
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
        empty: sqlite3.Connection = db
        return empty


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
# text sorts by code point, as in SQLite
_TYPES = {"TEXT": 'TEXT COLLATE "C"', "INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION"}
_COUNTER = "BIGINT GENERATED BY DEFAULT AS IDENTITY"
# Every writer updates this row first, which serialises writes as in SQLite. Sequence numbers that
# readers rely on (those of deletions) therefore become visible in order.
_BEGIN = "UPDATE meta SET value = (value::bigint + 1)::text WHERE key = 'writes'"


def to_postgres(statement: str) -> str:
    """A statement of the schema in PostgreSQL's types; every table gets a `rowid` column."""
    counted = statement.replace("INTEGER PRIMARY KEY AUTOINCREMENT", f"{_COUNTER} PRIMARY KEY")
    typed = re.sub(r"\b(TEXT|INTEGER|REAL)\b", lambda found: _TYPES[found[0]], counted)
    if typed.lstrip().startswith("CREATE TABLE"):
        typed = f"{typed.rstrip().removesuffix(')')}, rowid {_COUNTER})"
    return typed


class PostgresBackend:
    """One schema of a PostgreSQL database, with one connection that threads share in turn."""

    is_published = "{version} IN (SELECT value FROM json_each(:published))"
    read_only = False

    def __init__(self, url: str) -> None:
        self.name = mask_url(url)
        self._db = PostgresConnection(url)
        try:
            if self._read_version() != SCHEMA_VERSION:
                self._migrate()
        except BaseException:
            self._db.close()
            raise

    def db(self) -> PostgresConnection:
        return self._db

    def write(self) -> AbstractContextManager[PostgresConnection]:
        """A transaction that waits for the previous writer."""
        return self._db.transaction(_BEGIN)

    def bind_published(self, published: Collection[str]) -> Mapping[str, Any]:
        return {"published": json.dumps(list(published))}

    def compact(self) -> bool:
        """Rewrite the tables; server log and backups are not affected. False while blocked."""
        try:
            for table in tables():
                self._db.execute(f"VACUUM (FULL, ANALYZE) {table}")
        except BusyError:
            return False
        return True

    def advance_sequence(self) -> None:
        """Number new deletions after the copied ones."""
        self._db.execute(
            "SELECT setval(pg_get_serial_sequence('deletions', 'sequence'), max(sequence)) FROM"
            " deletions"
        )

    def mark(self) -> str:
        """The number of writes."""
        sql = "SELECT value FROM meta WHERE key = 'writes'"
        return str(self._db.execute(sql).fetchone()[0])

    def close(self) -> None:
        self._db.close()

    def _read_version(self) -> int:
        if self._db.execute("SELECT to_regclass('meta')").fetchone()[0] is None:
            return 0
        return _read_version(self._db, self.name)

    def _migrate(self) -> None:
        lock = "SELECT pg_advisory_xact_lock(hashtextextended('rag ' || current_schema(), 0))"
        with self._db.transaction(lock) as db:
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
