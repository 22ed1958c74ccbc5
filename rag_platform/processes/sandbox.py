"""A pool of reusable child processes that read untrusted files under time and memory limits.

The children are shared by all documents and threads of this process. One that failed, hung or grew
too large is replaced. Each child serves one engine, so that two engines' libraries are never loaded
into the same process.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from rag_platform.errors import DocumentError
from rag_platform.observability import faults
from rag_platform.processes.child import BadMessage, ChildProcess, JsonLines

# allowed for importing an engine or loading models on a busy machine
START_SECONDS = 60.0
_UNHEALTHY = ("timeout", "parser_failed", "out_of_memory")


class ChildLost(Exception):
    """A child died, hung or broke the protocol; the message says which."""

    def __init__(self, message: str, *, hung: bool = False) -> None:
        super().__init__(message)
        self.hung = hung


class SandboxChild(ChildProcess):
    """A child of one engine, and the thread that reads its messages."""

    def __init__(self, module: str, engine: str) -> None:
        super().__init__(
            ["-m", module, engine],
            JsonLines(),
            env={
                "MALLOC_ARENA_MAX": "2",
                # deterministic output even of parsers that iterate over sets
                "PYTHONHASHSEED": "0",
                "PYTHONWARNINGS": "ignore",
            },
            stderr=subprocess.DEVNULL,
        )
        self.engine = engine
        self.worn = False
        self.ready: set[str] = set()  # what it has loaded: `start` (the engine), `layout`
        self._messages: queue.Queue[dict[str, Any] | ChildLost] = queue.Queue()
        threading.Thread(target=self._read, name="parsing-child", daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                message = self.receive()
                if not isinstance(message, dict):
                    raise BadMessage(repr(message)[:80])
                self._messages.put(message)
        except BadMessage:
            self._messages.put(ChildLost("the parsing process wrote nonsense"))
        except (EOFError, OSError, ValueError):
            self._messages.put(ChildLost(""))

    def ask(
        self,
        task: dict[str, Any],
        patience: Callable[[], float],
        needs: Collection[str] = ("start",),
    ) -> Iterator[dict[str, Any]]:
        """Send a task and yield its messages up to the last one.

        `patience` is called for each message and returns the seconds to wait for it; START_SECONDS
        are added while something in `needs` is not loaded. Raises ChildLost.
        """
        try:
            self.send(task)
        except (OSError, ValueError) as error:
            raise self._lost() from error
        while True:
            loaded = self.ready.issuperset(needs)
            message = self._next(patience, 0.0 if loaded else START_SECONDS)
            if "ready" in message:
                self.ready.add(str(message["ready"]))
            elif "fault" in message:
                faults.record(message["fault"])
            else:
                yield message
                if "worn" in message:
                    self.worn = bool(message["worn"])
                    return

    def _next(self, patience: Callable[[], float], extra: float) -> dict[str, Any]:
        allowed = patience() + extra
        until = time.monotonic() + allowed
        while True:
            patience()  # raises when the read was stopped or the file's time is used up
            try:
                message = self._messages.get(timeout=max(0.01, min(0.5, until - time.monotonic())))
                break
            except queue.Empty:
                if time.monotonic() >= until:
                    self.close()
                    raise ChildLost(f"no answer within {allowed:g} seconds", hung=True) from None
        if not isinstance(message, ChildLost):
            return message
        raise message if message.args[0] else self._lost()

    def _lost(self) -> ChildLost:
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.close()
            return ChildLost("the parsing process closed its pipes")
        return ChildLost(
            f"the parsing process was ended by signal {-code}"
            if code < 0
            else f"the parsing process ended with code {code}"
        )


class SandboxPool:
    """A pool of at most `size` children that run `module`."""

    def __init__(self, module: str, size: int) -> None:
        self.size = size
        self.free: list[SandboxChild] = []
        self.all: set[SandboxChild] = set()
        self._module = module
        self._pid = os.getpid()
        self._places = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def child(self, engine: str) -> Iterator[SandboxChild]:
        """A child of that engine for one task. It returns to the pool if it is still healthy
        afterwards, and is killed otherwise.
        """
        with self._places:
            child = self._take(engine)
            healthy = False
            try:
                yield child
                healthy = True
            except DocumentError as error:
                healthy = error.code not in _UNHEALTHY
                raise
            finally:
                with self._lock:
                    if healthy and not child.worn and child.is_alive():
                        self.free.append(child)
                    else:
                        self._end(child)

    def _take(self, engine: str) -> SandboxChild:
        with self._lock:
            for child in reversed(self.free):
                if child.engine == engine:
                    self.free.remove(child)
                    if child.is_alive():
                        return child
                    self._end(child)
            child = SandboxChild(self._module, engine)
            self.all.add(child)
            return child

    def _end(self, child: SandboxChild) -> None:
        self.all.discard(child)
        child.close()

    def end_waiting(self) -> None:
        """Kill the idle children to free their memory; the next task starts a new one."""
        with self._lock:
            for child in self.free:
                self._end(child)
            self.free = []

    def close(self) -> None:
        """Kill all children, busy ones too; in a forked process only forget them."""
        with self._lock:
            ending, self.all, self.free = list(self.all), set(), []
        if os.getpid() == self._pid:
            for child in ending:
                child.close()
