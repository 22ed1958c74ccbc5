"""Opens SQLite files that may be read-only, on a full disk, or used by many threads.

Engines that write next to the files they read get a temporary folder instead. A release may be
removed while questions to it are still being answered; open files stay readable, so one connection
is always kept.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rag_platform.errors import (
    IntegrityError,
    SchemaVersionError,
    damaged_file,
    is_full,
    says_disk_full,
)

REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)  # errors of writing where it is not allowed
_BUSY_SECONDS = 30.0  # how long to wait for other writers of a database
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_COPIES = 5  # attempts to copy a database that is being written
RowT = TypeVar("RowT")
Stamp = tuple[tuple[int, int, int], ...]


def writable(path: Path) -> bool:
    """True when this process can change a file and its folder, or a folder."""
    folder = path if path.is_dir() else path.parent
    return os.access(folder, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


def has_room(path: Path) -> bool:
    """True when this process can write to a database: it is writable, and the disk is not full."""
    return writable(path) and not is_full(path if path.is_dir() else path.parent)


def mirror_folder(directory: Path, owner: object, copies: Callable[[Path], bool]) -> Path:
    """A temporary mirror of `directory`, removed together with `owner`: copies of the files for
    which `copies` is true, symlinks to the others.
    """
    folder = Path(tempfile.mkdtemp(prefix="rag-read-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    for path in sorted(directory.rglob("*")):
        target = folder / path.relative_to(directory)
        if path.is_dir():
            target.mkdir()
        elif copies(path):
            shutil.copyfile(path, target)
        elif path.suffix != ".lock":
            target.symlink_to(path.resolve())
    return folder


def connect(path: Path, *, timeout: float, remedy: str = "") -> sqlite3.Connection:
    """A connection to a cache database, to be shared by threads under a lock: in WAL mode if it can
    be written, else read-only.

    If the database does not exist and cannot be created, it is an empty one in memory. Raises
    IntegrityError `damaged_file` with the `remedy` for a file that is not a database.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in REFUSED and not says_disk_full(error):
            raise
    if not has_room(path):
        return (
            ReadOnlyFile(path).db()
            if path.is_file()
            else sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        )
    return connect_shared(path, timeout=timeout, remedy=remedy)


def connect_shared(
    path: Path,
    *,
    timeout: float = _BUSY_SECONDS,
    check_same_thread: bool = False,
    remedy: str = "",
) -> sqlite3.Connection:
    """A connection in WAL mode to a database that other processes write, too. Raises sqlite3.Error,
    including OperationalError if others lock it for longer than `timeout`, and IntegrityError
    `damaged_file` with the `remedy` for a file that is not a database.

    SQLite applies the timeout only to transactions: if several processes create a file at the same
    time, it refuses WAL mode at once, so this is retried.
    """
    db = sqlite3.connect(
        path, timeout=timeout, isolation_level=None, check_same_thread=check_same_thread
    )
    ends = time.monotonic() + timeout
    try:
        while True:
            try:
                with _naming_damage(path, remedy):
                    db.execute("PRAGMA journal_mode = WAL")
                return db
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= ends:
                    raise
            time.sleep(0.01)
    except BaseException:
        db.close()
        raise


@contextmanager
def _naming_damage(path: Path, remedy: str = "") -> Iterator[None]:
    """Turn SQLite's errors about a damaged file into IntegrityError `damaged_file`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) not in _DAMAGED:
            raise
        raise damaged_file(path, error, f"put it back from a backup{remedy}") from error


@contextmanager
def transaction(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Commit what the block writes to the database at `path`, or nothing if it raises."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        sys.audit("rag_platform.commit", str(path))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk may have ended it already
            db.execute("ROLLBACK")
        raise


def shrink(db: sqlite3.Connection, path: Path) -> bool:
    """Rewrite a database without deleted data, and empty its WAL. False while others read it."""
    sys.audit("rag_platform.commit", str(path))
    db.execute("VACUUM")
    return not db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def connect_versioned(
    path: Path, version: int, schema: str, *, remedy: str = ""
) -> tuple[sqlite3.Connection, bool]:
    """(a connection as of `connect`, whether it is read-only); `schema` creates missing tables.
    Raises SchemaVersionError with the `remedy` for a file of another version.
    """
    db = connect(path, timeout=60, remedy=remedy)
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found not in (0, version):
        db.close()
        raise SchemaVersionError(
            f"{path} has schema {found}, this program reads {version}; upgrade{remedy}"
        )
    if found == version and not has_room(path):
        return db, True
    db.executescript(schema)
    db.execute(f"PRAGMA user_version={version}")
    return db, False


class ReadOnlyFile:
    """A connection to a WAL database that this process cannot write, reopened when the file
    changes.

    Other processes may write it meanwhile. If their shared-memory file is accessible, SQLite's own
    locking works. Otherwise a database with a non-empty WAL is copied together with it and the copy
    is read; a database without one is opened as immutable.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._stamp: Stamp = ()

    def db(self) -> sqlite3.Connection:
        """The connection. Raises sqlite3.OperationalError if the file cannot be read,
        IntegrityError `damaged_file` if it is not a database.
        """
        stamp = self._read_stamp()
        if self._db is None or stamp != self._stamp:
            self.close()
            with _naming_damage(self._path):
                self._db, self._stamp = self._reopen(), stamp
        return self._db

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _with_suffix(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _read_stamp(self) -> Stamp:
        """Inode, size and time of the database and its WAL, which change when it is written. Of the
        shared memory, which readers change too, only the inode counts.
        """

        def read(suffix: str) -> tuple[int, int, int]:
            try:
                stat = self._with_suffix(suffix).stat()
            except FileNotFoundError:
                return 0, 0, 0
            return stat.st_ino, *((0, 0) if suffix == "-shm" else (stat.st_size, stat.st_mtime_ns))

        return tuple(map(read, ("", "-wal", "-shm")))

    def _reopen(self) -> sqlite3.Connection:
        uri = self._path.resolve().as_uri()
        wal = self._with_suffix("-wal")
        if self._with_suffix("-shm").exists():
            try:
                return _connect_readable(f"{uri}?mode=ro")
            # the shared memory was left by a writer on another machine, or of another user
            except sqlite3.OperationalError:
                pass
        if not wal.exists() or not wal.stat().st_size:
            return _connect_readable(f"{uri}?immutable=1")
        return self._open_copy()

    def _open_copy(self) -> sqlite3.Connection:
        for left in reversed(range(_COPIES)):
            folder = Path(tempfile.mkdtemp(prefix="rag-read-"))
            try:
                before = self._read_stamp()
                for suffix in ("", "-wal"):
                    shutil.copyfile(self._with_suffix(suffix), folder / f"copy{suffix}")
                if before == self._read_stamp() or not left:
                    # the open file stays readable after it is deleted below
                    return _connect_readable((folder / "copy").as_uri())
            finally:
                shutil.rmtree(folder)
        raise AssertionError("the last copy is read whatever came of it")


def _connect_readable(uri: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


_MAPPED_BYTES = 2**31 - 2**16  # the most that SQLite maps; the rest is read without mapping
_IN_CLAUSE = 500  # values of one condition
_MOST_CONNECTIONS = 8  # per file; statements take a millisecond


class Rows(list[Any]):
    """The rows of a statement, with the methods of a cursor."""

    def fetchall(self) -> list[Any]:
        return self

    def fetchone(self) -> Any:
        return self[0] if self else None


def select_in(
    select: Callable[[str, Sequence[Any]], Iterable[RowT]], sql: str, values: Iterable[Any]
) -> Iterator[RowT]:
    """The rows of a statement with an `IN (?)` that stands for many values; they are passed on in
    batches, because SQLite limits the parameters of a statement.
    """
    wanted = list(values)
    for start in range(0, len(wanted), _IN_CLAUSE):
        batch = wanted[start : start + _IN_CLAUSE]
        yield from select(sql.replace("(?)", f"({','.join('?' * len(batch))})"), batch)


class LastingFile:
    """A database file that never changes, read through a pool of connections. `prepare` is called
    for each new connection and may raise; `damaged` makes the error for a file that cannot be read,
    by default SQLite's own.

    SQLite crashes the process if one thread closes a connection that another one reads from.
    Therefore complete results are read, and busy connections are closed only afterwards.
    """

    def __init__(
        self,
        path: Path,
        prepare: Callable[[sqlite3.Connection], None],
        damaged: Callable[[sqlite3.DatabaseError], IntegrityError] | None = None,
    ) -> None:
        self._path = path
        self._damaged = damaged
        # immutable: no locks are needed, nor a writable folder for them
        self._uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._prepare = prepare
        self._changed = threading.Condition()
        # last in, first out, because a recently used connection has its pages mapped
        self._free = [self._connect()]
        self._opened = 1
        self._most = _MOST_CONNECTIONS
        self._closed = False

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        """The rows of a statement. Raises the error of `damaged`, but SQLite's own on a full disk,
        and ProgrammingError after `close`.
        """
        db = self._take()
        try:
            return Rows(db.execute(sql, parameters))
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.DatabaseError as error:
            if self._damaged is None or says_disk_full(error):  # by temporary files
                raise
            raise self._damaged(error) from error
        finally:
            with self._changed:
                if self._closed:
                    db.close()
                else:
                    self._free.append(db)
                    self._changed.notify()

    def close(self) -> None:
        """Close all connections, busy ones as soon as their statement ends."""
        with self._changed:
            self._closed = True
            while self._free:
                self._free.pop().close()
            self._changed.notify_all()

    def _take(self) -> sqlite3.Connection:
        """A free or new connection; waits for one when the maximum is reached."""
        with self._changed:
            while not self._closed:
                if self._free:
                    return self._free.pop()
                if self._opened < self._most:
                    try:
                        made = self._connect()
                    except sqlite3.OperationalError:
                        if self._path.exists():
                            raise
                        self._most = self._opened  # the file was removed; use the open connections
                    else:
                        self._opened += 1
                        return made
                else:
                    self._changed.wait()
        raise sqlite3.ProgrammingError(f"{self._path.name} was closed")

    def _connect(self) -> sqlite3.Connection:
        # check_same_thread: close() may run in another thread than the queries
        db = sqlite3.connect(self._uri, uri=True, check_same_thread=False, isolation_level=None)
        try:
            self._prepare(db)
            # after `prepare`, so that it applies to attached files as well; mapped pages need not
            # be copied into each connection's cache
            db.execute(f"PRAGMA mmap_size={_MAPPED_BYTES}")
        except BaseException:
            db.close()
            raise
        return db
