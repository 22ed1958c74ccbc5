"""Warm child processes that read files for this one: at most one at work for each core, each ended once it failed, hung or grew.

The children live as long as this process and are shared by its documents and threads. A child speaks for one engine, so that a file is
never read in a process that holds another engine's library.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from rag_platform.errors import DocumentError
from rag_platform.observability import faults

START_SECONDS = 60.0  # allowed for importing the engine and for loading the models, on a busy machine
_UNHEALTHY = ("timeout", "parser_failed", "out_of_memory")


class ChildLost(Exception):
    """A child died, hung or broke the protocol; the message says which."""

    def __init__(self, message: str, *, hung: bool = False) -> None:
        super().__init__(message)
        self.hung = hung


class Child:
    """One child process and the thread that reads its messages."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rag_platform.documents.loading_child", engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "MALLOC_ARENA_MAX": "2",
                "PYTHONHASHSEED": "0",  # equal input gives equal output, also where a parser walks through a set
                "PYTHONPATH": os.pathsep.join(item for item in sys.path if item),
                "PYTHONWARNINGS": "ignore",
            },
        )
        self.messages: queue.Queue[str] = queue.Queue()
        self.worn = False
        self.ready: set[str] = set()  # start, layout: what it has loaded
        threading.Thread(target=self._read, name="parsing-child", daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self.process.stdout:
                self.messages.put(line.decode("utf-8", "replace"))
        self.messages.put("")

    def ask(self, task: dict[str, Any], patience: Callable[[], float]) -> Iterator[dict[str, Any]]:
        """Each message up to the last one of the task; `patience` is asked before each how long it may take."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(task).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise ChildLost("the parsing process had ended") from error
        needed = {"start", "layout"} if task.get("profile") == "layout" and not task["raw"] else {"start"}
        while True:
            message = self._next(patience, 0.0 if needed <= self.ready else START_SECONDS)
            if "ready" in message:
                self.ready.add(str(message["ready"]))
                continue
            if "fault" in message:
                faults.record(message["fault"])
                continue
            if "worn" in message:
                self.worn = bool(message["worn"])
                yield message
                return
            yield message

    def _next(self, patience: Callable[[], float], extra: float) -> dict[str, Any]:
        allowed = patience() + extra
        until = time.monotonic() + allowed
        while True:
            patience()  # notices a stop and the end of the file's time
            try:
                line = self.messages.get(timeout=max(0.01, min(0.5, until - time.monotonic())))
                break
            except queue.Empty:
                if time.monotonic() >= until:
                    self.close()
                    raise ChildLost(f"no answer within {allowed:g} seconds", hung=True) from None
        if not line:
            self.process.wait()
            raise ChildLost(_ending(self.process.returncode))
        try:
            message = json.loads(line)
        except ValueError as error:
            raise ChildLost("the parsing process wrote nonsense") from error
        return cast(dict[str, Any], message)

    def alive(self) -> bool:
        """True while it can take a task."""
        return self.process.poll() is None

    def close(self) -> None:
        """End the process now and collect it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.close()


def _ending(code: int) -> str:
    if code < 0:
        return f"the parsing process was ended by signal {-code}"
    return f"the parsing process ended with code {code}"


class Pool:
    """Children that wait for work. A process that was forked off starts with none."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pid = os.getpid()
        self.free: list[Child] = []
        self.all: set[Child] = set()
        self.places = threading.BoundedSemaphore(size)
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def child(self, engine: str) -> Iterator[Child]:
        """A child of that engine for one task; it goes back to wait when the task ended well, and is ended otherwise."""
        with self.places:
            child = self._take(engine)
            healthy = False
            try:
                yield child
                healthy = True
            except DocumentError as error:
                healthy = error.code not in _UNHEALTHY
                raise
            finally:
                with self.lock:
                    if healthy and not child.worn and child.alive():
                        self.free.append(child)
                    else:
                        self._end(child)

    def _take(self, engine: str) -> Child:
        with self.lock:
            for child in reversed(self.free):
                if child.engine == engine:
                    self.free.remove(child)
                    if child.alive():
                        return child
                    self._end(child)
            child = Child(engine)
            self.all.add(child)
            return child

    def _end(self, child: Child) -> None:
        self.all.discard(child)
        child.close()

    def end_waiting(self) -> None:
        """End the children that wait, to have their memory for something else; the next task starts a new one."""
        with self.lock:
            for child in self.free:
                self._end(child)
            self.free = []

    def close(self) -> None:
        """End all children, busy ones too, in the process that started them."""
        with self.lock:
            ending, self.all, self.free = list(self.all), set(), []
        if os.getpid() == self.pid:
            for child in ending:
                child.close()


def pool() -> Pool:
    """The pool of this process."""
    return _pool


def _fresh_pool() -> Pool:
    return Pool(max(1, min(4, os.cpu_count() or 1)))


def _after_fork() -> None:
    global _pool
    _pool = _fresh_pool()


_pool = _fresh_pool()
atexit.register(lambda: _pool.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
