"""A cache of model answers in an SQLite file, by the fingerprint of the question."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rag_platform.storage.sqlite_files import connect_versioned, transaction

SCHEMA_VERSION = 1


class AnswerCache:
    """Rows of one table by key; safe for threads and processes.

    `columns` maps the columns after the key to their SQL types. With `most`, the oldest rows beyond
    that number are deleted.
    """

    def __init__(
        self, path: Path, table: str, columns: dict[str, str], *, most: int | None = None
    ) -> None:
        self._path, self._table, self._most = path, table, most
        self._first = next(iter(columns))
        self._places = ", ".join("?" * (len(columns) + 1))
        self._lock = threading.Lock()
        types = ", ".join(f"{name} {kind} NOT NULL" for name, kind in columns.items())
        self._db, _ = connect_versioned(
            path,
            SCHEMA_VERSION,
            f"CREATE TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY, {types})",
            remedy=", or delete the cache",
        )

    def get(self, keys: Iterable[str]) -> dict[str, Any]:
        """Key to the value of the first column, for the keys that have a row."""
        sql = (
            f"SELECT key, {self._first} FROM {self._table}"
            " WHERE key IN (SELECT value FROM json_each(?))"
        )
        with self._lock:
            return dict(self._db.execute(sql, (json.dumps(list(keys)),)).fetchall())

    def put(self, key: str, *values: Any) -> None:
        """Write one row and commit it."""
        with self._lock, transaction(self._db, self._path):
            self._db.execute(
                f"INSERT OR REPLACE INTO {self._table} VALUES ({self._places})", (key, *values)
            )
            if self._most is not None:
                self._db.execute(
                    f"DELETE FROM {self._table} WHERE rowid <="
                    f" (SELECT max(rowid) FROM {self._table}) - ?",
                    (self._most,),
                )

    def sizes(self) -> dict[str, int]:
        """Key to the length of the first column, for all rows."""
        sql = f"SELECT key, length({self._first}) FROM {self._table}"
        with self._lock:
            return dict(self._db.execute(sql).fetchall())

    def remove(self, keys: Sequence[str]) -> None:
        """Delete rows and overwrite them on disk."""
        with self._lock:
            self._db.execute("PRAGMA secure_delete=ON")
            with transaction(self._db, self._path):
                self._db.execute(
                    f"DELETE FROM {self._table} WHERE key IN (SELECT value FROM json_each(?))",
                    (json.dumps(keys),),
                )
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file; later calls raise sqlite3.ProgrammingError."""
        with self._lock:  # closing a connection that another thread uses crashes the process
            self._db.close()
