"""Reads a finished SQLite file from any number of threads, also after another process has removed the file.

A release is removed while questions to it are still answered. What is open stays readable then, but a thread that comes later cannot
open the file any more; it reads through a connection that is kept for this.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_MAPPED_BYTES = 2**31 - 2**16  # the most that SQLite maps; what lies behind it is read as usual


class Rows(list[Any]):
    """The rows of a statement, taken as from a cursor."""

    def fetchall(self) -> list[Any]:
        """Every row."""
        return self

    def fetchone(self) -> Any:
        """The first row, None without any."""
        return self[0] if self else None


class Connection:
    """A connection that is never closed while it is read; threads that share it take turns.

    SQLite crashes the process when one thread closes what another one reads, so whole results are read under the lock.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._lock = threading.Lock()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        """The rows of a statement."""
        with self._lock:
            return Rows(self._db.execute(sql, parameters))

    def close(self) -> None:
        """Close the connection after the statement that runs."""
        with self._lock:
            self._db.close()


class LastingFile:
    """The connections to a file that never changes, one a thread; `prepare` is given each new one and may refuse it."""

    def __init__(self, path: Path, prepare: Callable[[sqlite3.Connection], None]) -> None:
        self._path = path
        self._uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"  # no locks are needed, nor a place to write them
        self._prepare = prepare
        self._local = threading.local()
        self._open: list[tuple[threading.Thread, Connection]] = []
        self._closed = False
        self._lock = threading.Lock()
        self._kept = self._connected()

    def db(self) -> Connection:
        """The connection of this thread; the kept one when the file is gone. Raises what SQLite and `prepare` raise."""
        held: Connection | None = getattr(self._local, "db", None)
        return self._opened() if held is None else held

    def close(self) -> None:
        """Close every thread's connection; none can be asked for afterwards."""
        with self._lock:
            self._closed = True
            while self._open:
                self._open.pop()[1].close()
        self._kept.close()

    def _opened(self) -> Connection:
        try:
            made = self._connected()
        except sqlite3.OperationalError:
            if self._path.exists():
                raise
            return self._kept
        with self._lock:
            if self._closed:
                made.close()
            ended = [held for held in self._open if not held[0].is_alive()]
            self._open = [held for held in self._open if held not in ended] + [(threading.current_thread(), made)]
        for _, db in ended:  # nobody else would close them before the last reader of the file goes
            db.close()
        self._local.db = made
        return made

    def _connected(self) -> Connection:
        # Autocommit and shared closing: close() may run in another thread than the queries did.
        db = sqlite3.connect(self._uri, uri=True, check_same_thread=False, isolation_level=None)
        try:
            db.execute(f"PRAGMA mmap_size={_MAPPED_BYTES}")  # pages are read where they lie, not copied into a cache of each connection
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return Connection(db)
