"""Locks between processes: files held by `flock` that say who holds them and since when."""

from __future__ import annotations

import json
import os
import threading
import time
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rag_platform.errors import BusyError, StorageError, read_only
from rag_platform.storage.sqlite_files import REFUSED

# (lock, thread): how often it is held; the other threads and processes see the file
_held: dict[tuple[Path, int], int] = {}
# those that are held beside others, with the owner's name
_shared: dict[tuple[Path, int], str] = {}


@contextmanager
def hold_lock(
    path: Path, owner: str, what: str, *, shared: bool = False, wait: float
) -> Iterator[None]:
    """Hold the lock of a file, alone or `shared`; the thread that holds it may take it again, and
    it dies with its process.

    Raises BusyError after `wait` seconds: `what`, then who holds it and for how long. A thread that
    shares it cannot hold it alone, for two that did so would wait for each other: that raises
    BusyError at once. StorageError `read_only` where the file cannot be written.
    """
    require_posix()
    import fcntl

    key = (path, threading.get_ident())
    if key in _held:
        if key in _shared and not shared:
            raise BusyError(
                f"{what} by this thread itself, which shares the lock for {_shared[key]!r}: let go"
                " of it first",
                owner=_shared[key],
            )
        _held[key] += 1
        try:
            yield
        finally:
            _held[key] -= 1
        return
    with _open(path) as handle:
        until = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise _busy(handle, what) from None
                time.sleep(0.05)
        _held[key] = 1
        if shared:
            _shared[key] = owner
        try:
            if not shared:
                handle.truncate(0)
                handle.write(
                    json.dumps({"owner": owner, "pid": os.getpid(), "since": int(time.time())})
                )
                handle.flush()
            yield
        finally:
            del _held[key]
            _shared.pop(key, None)
            if not shared:
                handle.truncate(0)


def require_posix() -> None:
    """Raise StorageError where processes cannot lock files as this program does: on Windows."""
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


def _busy(handle: typing.TextIO, what: str) -> BusyError:
    handle.seek(0)
    try:
        held = json.loads(handle.read())
        age = max(0, int(time.time()) - held["since"])
        by = f"{held['owner']} (process {held['pid']}, for {age} s)"
    except (ValueError, KeyError, TypeError):  # between taking the lock and saying so, or by many
        held, by = {}, "another process"
    return BusyError(f"{what} by {by}; try again when it has ended", **held)
