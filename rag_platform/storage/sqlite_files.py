"""Reading files where they cannot be written, and SQLite files from any number of threads.

Engines that write beside what they read get a temporary folder instead. A release is removed while
questions to it are still answered: what is open stays readable, so one connection is always kept.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rag_platform.errors import SchemaVersionError, damaged_file, is_full, says_disk_full

REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)  # what writing comes to where it is not allowed
_BUSY_SECONDS = 30.0  # a database that others write is waited for so long
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_COPIES = 5  # a database that is written just now is copied so often before that is given up
Stamp = tuple[tuple[int, int, int], ...]


def writable(path: Path) -> bool:
    """True where a file, or a folder, can be changed by this process; so can files beside it."""
    folder = path if path.is_dir() else path.parent
    return os.access(folder, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


def has_room(path: Path) -> bool:
    """True where this process can change a database: it may, and the disk is not full."""
    return writable(path) and not is_full(path if path.is_dir() else path.parent)


def stand_in(directory: Path, owner: object, copies: Callable[[Path], bool]) -> Path:
    """A temporary folder that goes when `owner` goes: copies of those files of `directory` that
    `copies` names, links to the others.
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
    """A connection to a database of a cache that threads take turns with: in WAL mode where it can
    be written, else, and on a full disk, for reading only.

    One that is not there and cannot be made is empty and goes with the process. Raises
    IntegrityError `damaged_file` for what is no database; `remedy` ends its text.
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
    """A connection in WAL mode to a database that other processes write too. Raises sqlite3.Error,
    OperationalError when others hold it for longer than `timeout`, and IntegrityError
    `damaged_file` for what is no database; `remedy` ends its text.

    SQLite itself keeps to the timeout in transactions alone: where several processes begin with a
    new file together, it refuses WAL mode at once.
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
    """Raises IntegrityError `damaged_file` where SQLite says that the file is no whole database."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) not in _DAMAGED:
            raise
        raise damaged_file(path, error, f"put it back from a backup{remedy}") from error


@contextmanager
def transaction(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Commits what the block writes to the database at `path`, or nothing of it when it raises."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        sys.audit("rag_platform.commit", str(path))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk may have ended it already
            db.execute("ROLLBACK")
        raise


def connect_versioned(
    path: Path, version: int, schema: str, *, remedy: str = ""
) -> tuple[sqlite3.Connection, bool]:
    """A connection as of `connect`, its tables made by `schema` where they are missing, and whether
    it only reads. Raises SchemaVersionError for a file of another version; `remedy` ends its text.
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
    """A connection to an SQLite database in WAL mode that this process cannot write, opened again
    when the file changed.

    Somebody else may write it meanwhile, where it can be written: with the shared memory of that
    writer at hand SQLite's own locks hold; without, a log that is not yet in the file is read in a
    copy of both, and a file without a log is read as it is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._stamp: Stamp = ()

    def db(self) -> sqlite3.Connection:
        """The connection. Raises sqlite3.OperationalError when the file cannot be read, and
        IntegrityError `damaged_file` for what is no database.
        """
        stamp = self._read_stamp()
        if self._db is None or stamp != self._stamp:
            self.close()
            with _naming_damage(self._path):
                self._db, self._stamp = self._reopen(), stamp
        return self._db

    def close(self) -> None:
        """Close the connection."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _beside(self, end: str) -> Path:
        return self._path.with_name(self._path.name + end)

    def _read_stamp(self) -> Stamp:
        """What tells that the database was written: inode, size and time of the file and of its
        log.
        """
        found = []
        for path in (self._path, self._beside("-wal"), self._beside("-shm")):
            try:
                stat = path.stat()
                # the shared memory changes with every reader; only whether it is there matters
                found.append(
                    (stat.st_ino, stat.st_size, stat.st_mtime_ns)
                    if path.name[-4:] != "-shm"
                    else (stat.st_ino, 0, 0)
                )
            except FileNotFoundError:
                found.append((0, 0, 0))
        return tuple(found)

    def _reopen(self) -> sqlite3.Connection:
        uri = self._path.resolve().as_uri()
        log = self._beside("-wal")
        if self._beside("-shm").exists():
            try:
                return _require_readable(
                    sqlite3.connect(
                        f"{uri}?mode=ro",
                        uri=True,
                        timeout=_BUSY_SECONDS,
                        isolation_level=None,
                        check_same_thread=False,
                    )
                )
            # left by a writer of another machine, or of another user
            except sqlite3.OperationalError:
                pass
        if not log.exists() or not log.stat().st_size:
            return _require_readable(
                sqlite3.connect(
                    f"{uri}?immutable=1", uri=True, isolation_level=None, check_same_thread=False
                )
            )
        return self._open_copy()

    def _open_copy(self) -> sqlite3.Connection:
        for left in reversed(range(_COPIES)):
            folder = Path(tempfile.mkdtemp(prefix="rag-read-"))
            try:
                before = self._read_stamp()
                for end in ("", "-wal"):
                    shutil.copyfile(self._beside(end), folder / f"copy{end}")
                if before == self._read_stamp() or not left:
                    # an open file stays readable when its name goes, and nothing is left of it when
                    # this process ends
                    return _require_readable(
                        sqlite3.connect(
                            folder / "copy", isolation_level=None, check_same_thread=False
                        )
                    )
            finally:
                shutil.rmtree(folder)
        raise AssertionError("the last copy is read whatever came of it")


def _require_readable(db: sqlite3.Connection) -> sqlite3.Connection:
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


_MAPPED_BYTES = 2**31 - 2**16  # the most that SQLite maps; what lies behind it is read as usual
_MOST_CONNECTIONS = 8  # to a file; statements take a millisecond


class Rows(list[Any]):
    """The rows of a statement, taken as from a cursor."""

    def fetchall(self) -> list[Any]:
        """Every row."""
        return self

    def fetchone(self) -> Any:
        """The first row, None without any."""
        return self[0] if self else None


class LastingFile:
    """A file that never changes, read through as many connections as statements run at a time;
    `prepare` may refuse each.

    SQLite crashes the process when one thread closes what another one reads, so whole results are
    read, and a connection that is read by is closed afterwards.
    """

    def __init__(self, path: Path, prepare: Callable[[sqlite3.Connection], None]) -> None:
        self._path = path
        # no locks are needed, nor a place to write them
        self._uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._prepare = prepare
        self._changed = threading.Condition()
        # the last one is taken first: what it has mapped need not be mapped again by another
        self._free = [self._connect()]
        self._opened = 1
        self._most = _MOST_CONNECTIONS
        self._closed = False

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Rows:
        """The rows of a statement. Raises SQLite's errors, ProgrammingError once it is closed."""
        db = self._take()
        try:
            return Rows(db.execute(sql, parameters))
        finally:
            with self._changed:
                if self._closed:
                    db.close()
                else:
                    self._free.append(db)
                    self._changed.notify()

    def close(self) -> None:
        """Close every connection, those that are read by as soon as that ends."""
        with self._changed:
            self._closed = True
            while self._free:
                self._free.pop().close()
            self._changed.notify_all()

    def _take(self) -> sqlite3.Connection:
        """A connection that nobody reads by; waits where there may be no more of them."""
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
                        self._most = self._opened  # the file is gone; those that are open read it
                    else:
                        self._opened += 1
                        return made
                else:
                    self._changed.wait()
        raise sqlite3.ProgrammingError(f"{self._path.name} was closed")

    def _connect(self) -> sqlite3.Connection:
        # Autocommit and shared closing: close() may run in another thread than the queries did.
        db = sqlite3.connect(self._uri, uri=True, check_same_thread=False, isolation_level=None)
        try:
            self._prepare(db)
            # pages are read where they lie, not copied into a cache of each connection; also of
            # files that were attached
            db.execute(f"PRAGMA mmap_size={_MAPPED_BYTES}")
        except BaseException:
            db.close()
            raise
        return db
