"""Locks between processes that record their holder: files locked with `flock`, or advisory locks of
the ledger's PostgreSQL database.
"""

from __future__ import annotations

import json
import os
import threading
import time
import typing
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rag_platform.errors import BusyError, StorageError, read_only, says_disk_full
from rag_platform.storage.postgres import AdvisoryLock
from rag_platform.storage.sqlite_files import REFUSED


@dataclass(frozen=True)
class SharedLock:
    """The name of a database lock, shared by all machines that use the database."""

    url: str = field(repr=False)
    name: str


# (lock, thread id) of the locks held by this process, to their owner if shared, else ""
_held: dict[tuple[Path | SharedLock, int], str] = {}


@contextmanager
def hold_lock(
    place: Path | SharedLock, owner: str, what: str, *, shared: bool = False, wait: float
) -> Iterator[None]:
    """Hold a lock during the block, exclusively or `shared`. It is reentrant for a thread, and
    released when its process ends; a database lock also when its connection ends.

    Raises BusyError after `wait` seconds; the message starts with `what`, followed by the holder.
    A thread with a shared lock cannot also take it exclusively, because two such threads would wait
    for each other: this raises BusyError at once.
    """
    key = (place, threading.get_ident())
    if key in _held:
        if (sharer := _held[key]) and not shared:
            raise BusyError(
                f"{what} by this thread itself, which shares the lock for {sharer!r}: let go of it"
                " first",
                owner=sharer,
            )
        yield
        return
    taken = (
        _take_file(place, owner, what, shared=shared, wait=wait)
        if isinstance(place, Path)
        else _take_shared(place, owner, what, shared=shared, wait=wait)
    )
    with taken:
        _held[key] = owner if shared else ""
        try:
            yield
        finally:
            del _held[key]


@contextmanager
def _take_file(path: Path, owner: str, what: str, *, shared: bool, wait: float) -> Iterator[None]:
    require_posix()
    import fcntl

    with _open(path) as handle:
        until = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise _busy(_read_holder(handle), what) from None
                time.sleep(0.05)
        try:
            if not shared:
                handle.truncate(0)
                held = {"owner": owner, "pid": os.getpid(), "since": int(time.time())}
                _write_holder(handle.fileno(), json.dumps(held))
            yield
        finally:
            if not shared:
                handle.truncate(0)


@contextmanager
def _take_shared(
    place: SharedLock, owner: str, what: str, *, shared: bool, wait: float
) -> Iterator[None]:
    with closing(AdvisoryLock(place.url, place.name, owner)) as lock:
        if not lock.take(shared=shared, wait=wait):
            raise _busy(lock.holder(), what)
        yield


def require_posix() -> None:
    """Raise StorageError on Windows, which has no flock."""
    if os.name != "posix":
        raise StorageError(
            "this program runs on Linux and macOS: Windows has no flock, no process groups and no"
            " flushing of folders; use WSL2 or the container image",
            code="unsupported_platform",
        )


def _open(path: Path) -> typing.TextIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "a+", encoding="utf-8")
    except OSError as error:
        if error.errno in REFUSED:
            raise read_only(path.parent) from error
        raise


def _write_holder(descriptor: int, held: str) -> None:
    """Record the holder in the lock file; on a full disk the lock is held without a record."""
    try:
        os.write(descriptor, held.encode())
    except OSError as error:
        if not says_disk_full(error):
            raise


def _read_holder(handle: typing.TextIO) -> dict[str, typing.Any]:
    """The recorded holder; empty right after the lock was taken, or for a shared lock."""
    handle.seek(0)
    try:
        held = json.loads(handle.read())
        return held if isinstance(held, dict) else {}
    except ValueError:
        return {}


def _busy(held: dict[str, typing.Any], what: str) -> BusyError:
    by = "another process"
    if {"owner", "pid", "since"} <= held.keys():
        host = f" on {held['host']}" if "host" in held else ""
        age = max(0, int(time.time()) - held["since"])
        by = f"{held['owner']} (process {held['pid']}{host}, for {age} s)"
    return BusyError(f"{what} by {by}; try again when it has ended", **held)
