"""Where a piece of work changes files, and what becomes of it when it is killed there, or the disk
is full from there on.

A point is a site and an occurrence of it: the kind of change (`open`, `os.rename`, `sql`, ...) and
the innermost lines of the package that made it, e.g. `os.rename store.py:258 <
documents/versions.py:318`. Python's audit events tell of every file that is made, renamed, linked
or removed below the watched folder; statements of SQLite outside a transaction are seen by tracing
the connection; what native code is about to make durable is told by the package itself (audit event
`rag_platform.commit`).

Work runs in forked children, so that a kill costs no start: the parent imports everything, opens
nothing and has one thread.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import select
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import rag_platform
from rag_platform.text.segmentation import chinese_dictionary

PACKAGE = str(Path(rag_platform.__file__).parent) + os.sep
# Modules through which everything writes: the site of what they do is told with the line that
# called them.
_CARRIERS = (
    "store.py",
    "ledger.py",
    "ledger_tables.py",
    "locks.py",
    "observability/logs.py",
    "indexes/embedding_cache.py",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_STATEMENTS = ("INSERT", "UPDATE", "DELETE", "REPLACE", "CREATE", "DROP", "ALTER", "VACUUM")
_PRAGMAS = ("USER_VERSION=", "JOURNAL_MODE", "WAL_CHECKPOINT")  # that change a file
COMMIT = "rag_platform.commit"
# Position of the path in an event's arguments, and of the descriptor of the folder it is relative
# to.
_EVENTS: dict[str, tuple[int, int | None]] = {
    "open": (0, None),
    "os.rename": (1, 3),
    "os.link": (1, 3),
    "os.symlink": (1, 2),
    "os.mkdir": (0, 2),
    "os.remove": (0, 1),
    "os.rmdir": (0, 1),
    "os.truncate": (0, None),
    COMMIT: (0, None),
}
_ALLOCATING = ("open", "os.mkdir", "os.link", "os.symlink", COMMIT)  # what a full disk refuses


@dataclass(frozen=True, order=True)
class Point:
    """One change of a file: the `nth` of its site, the first being 1."""

    site: str
    nth: int

    @property
    def kind(self) -> str:
        """The kind of change."""
        return self.site.split(" ")[0]

    def __str__(self) -> str:
        return f"{self.site} #{self.nth}"


class Watch:
    """Sees every change below a folder; kills the process at `kill`, or has everything that needs
    space fail from `full` on.
    """

    def __init__(
        self, folder: Path, *, kill: Point | int | None = None, full: Point | None = None
    ) -> None:
        self.folder = str(folder.resolve()) + os.sep
        self.kill, self.full = kill, full  # an int kills at that change, whatever it is
        self.seen: list[Point] = []
        self.refusing = False
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def install(self) -> Watch:
        """Watch from now on; a hook cannot be taken back, so only a child that ends soon should."""
        connect = sqlite3.connect

        def traced(database: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
            made: sqlite3.Connection = connect(database, *arguments, **options)
            if os.path.abspath(os.fsdecode(database).removeprefix("file:")).startswith(self.folder):
                made.set_trace_callback(lambda statement: self._statement(made, statement))
            return made

        sqlite3.connect = traced  # no event of SQLite tells of statements
        sys.addaudithook(self._event)
        return self

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS and (path := self._changed(event, arguments)):
            self._point(event, path)

    def _changed(self, event: str, arguments: tuple[Any, ...]) -> str:
        """The path that is about to change, empty when nothing below the folder does."""
        if event == "open":
            mode, flags = arguments[1], arguments[2]
            if isinstance(arguments[0], int) or not (
                set(mode or "") & set("wax+") or flags & _WRITING
            ):
                return ""
        position, base = _EVENTS[event]
        given = arguments[position]
        path = (
            os.readlink(f"/proc/self/fd/{given}") if isinstance(given, int) else os.fsdecode(given)
        )
        if base is not None and len(arguments) > base and arguments[base] not in (-1, None):
            path = os.path.join(os.readlink(f"/proc/self/fd/{arguments[base]}"), path)
        path = os.path.abspath(path)
        exists = os.path.lexists(path)
        idle = (event == "os.mkdir" and exists) or (
            event in ("os.remove", "os.rmdir") and not exists
        )
        return path if path.startswith(self.folder) and not idle else ""

    def _statement(self, handle: sqlite3.Connection, statement: str) -> None:
        first, rest = (*statement.upper().split(None, 1), "", "")[:2]
        changes = first in _STATEMENTS or (first == "PRAGMA" and rest.startswith(_PRAGMAS))
        if changes and not handle.in_transaction:
            self._point("sql", "")

    def _point(self, event: str, path: str) -> None:
        site = f"{event} {_place(sys._getframe(2))}"
        with self._lock:
            self._counts[site] += 1
            point = Point(site, self._counts[site])
            self.seen.append(point)
            if self.kill in (point, len(self.seen)):
                os.kill(os.getpid(), signal.SIGKILL)
            self.refusing = self.refusing or point == self.full
        if self.refusing and event in _ALLOCATING:
            if event == COMMIT and path.endswith(".sqlite"):
                raise sqlite3.OperationalError("database or disk is full")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def _place(frame: FrameType | None) -> str:
    """The innermost line of the package, and the one that called it when it only carries out what
    others want.
    """
    found: list[str] = []
    while frame is not None and len(found) < 2:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            module = name.removeprefix(PACKAGE)
            carrier = module in _CARRIERS
            if not found or not carrier:
                found.append(f"{module}:{frame.f_lineno}")
            if not carrier:
                break
        frame = frame.f_back
    return " < ".join(found) or "outside"


# --- children -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a child ended: the signal that killed it or 0, what it returned, and what it raised."""

    signal: int
    value: Any = None
    error: str = ""  # the stack
    raised: str = ""  # class, code and message


def forked(function: Callable[[], Any], seconds: float = 120.0) -> Ended:
    """What `function` returns (as JSON) or raises in a forked child; one that takes longer is
    killed and said to have hung.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _end_child(write, function)
    os.close(write)
    parts, until = [], time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and select.select([read], [], [], left)[0]:
        part = os.read(read, 1 << 16)
        if not part:
            break
        parts.append(part)
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(read)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        hung = time.monotonic() >= until
        return Ended(os.WTERMSIG(status), error=f"hung for {seconds:g} s" if hung else "")
    return Ended(0, **json.loads(b"".join(parts)))


def _end_child(write: int, function: Callable[[], Any]) -> None:
    """Run the function, tell what came of it and end the process without its parent's clean-up."""
    try:
        said: dict[str, Any] = {"value": function()}
    except BaseException as error:
        said = {
            "error": traceback.format_exc(),
            "raised": f"{type(error).__name__} [{getattr(error, 'code', '')}]: {error}",
        }
    data = json.dumps(said).encode()
    while data:
        data = data[os.write(write, data) :]
    os._exit(0)


def preload(modules: Sequence[str]) -> None:
    """Import and load what the work needs, before it is forked off again and again."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    chinese_dictionary()
    threads = [
        Path(f"/proc/self/task/{task}/comm").read_text(encoding="utf-8").strip()
        for task in os.listdir("/proc/self/task")
    ]
    # jemalloc knows forks
    assert set(threads[1:]) <= {"jemalloc_bg_thd"}, (
        f"a module started threads, forks would be unsound: {threads}"
    )
    gc.freeze()  # each child would look through all of it for garbage


def side_by_side(
    function: Callable[[int, Any], Any], items: Sequence[Any], workers: int
) -> Iterable[Any]:
    """What `function(worker, item)` returns (as JSON) for each item, in any order, from so many
    forked workers.
    """
    reads = {}
    for worker in range(workers):
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            with os.fdopen(write, "w", encoding="utf-8") as target:
                for item in items[worker::workers]:
                    try:
                        said = function(worker, item)
                    except BaseException:
                        said = {"broken": traceback.format_exc()}
                    target.write(json.dumps(said) + "\n")
                    target.flush()
            os._exit(0)
        os.close(write)
        reads[read] = b""
    while reads:
        for read in select.select(list(reads), [], [])[0]:
            part = os.read(read, 1 << 16)
            *lines, reads[read] = (reads[read] + part).split(b"\n")
            yield from map(json.loads, lines)
            if not part:
                os.close(read)
                del reads[read]
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
