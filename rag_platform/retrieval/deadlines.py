"""Run a call beside the caller, within the caller's trace, and stop waiting for it when its time is up or nobody wants it any more."""

from __future__ import annotations

import contextvars
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from rag_platform.errors import CancelledError, ProviderError
from rag_platform.observability import tracing

R = TypeVar("R")
_KEPT = 16  # idle threads


class _Workers:
    """Daemon threads that are kept for the next call; a new one starts only when all of them are busy.

    Not a ThreadPoolExecutor: a provider that hangs would there hold up the end of the process, and later queries once the pool is full
    of such calls. Not a thread for each call: starting one costs more than the call of a fast index.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._pid = os.getpid()

    def submit(self, call: Callable[[], None]) -> None:
        with self._lock:
            if self._pid != os.getpid():  # threads do not survive a fork
                self._calls, self._idle, self._pid = queue.SimpleQueue(), 0, os.getpid()
            if self._idle > 0:
                self._idle -= 1
            else:
                threading.Thread(target=self._work, args=(self._calls,), name="rag-stage", daemon=True).start()
            self._calls.put(call)

    def _work(self, calls: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            calls.get()()
            with self._lock:
                if calls is not self._calls or self._idle >= _KEPT:
                    return
                self._idle += 1


_workers = _Workers()


def start(function: Callable[[], R]) -> Future[R]:
    """The future of a call in another thread, within the caller's trace."""
    future: Future[R] = Future()
    bound = tracing.carry(function)

    _workers.submit(lambda: _fulfil(future, bound))
    return future


def start_in_turn(functions: Sequence[Callable[[], R]]) -> list[Future[R]]:
    """The futures of calls that one other thread makes, each after the one before it; one that is cancelled in time is not made."""
    futures: list[Future[R]] = [Future() for _ in functions]
    bound = [tracing.carry(function) for function in functions]

    def run() -> None:
        for future, call in zip(futures, bound, strict=True):
            if future.set_running_or_notify_cancel():
                _fulfil(future, call)

    _workers.submit(run)
    return futures


def _fulfil(future: Future[R], call: Callable[[], R]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 (raised again by the thread that waits)
        future.set_exception(error)


# --- how long ------------------------------------------------------------------------------------------------------------

_POLL = 0.02  # seconds between two looks at whether the caller still waits
_caller: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("rag_cancelled", default=None)


@contextmanager
def cancellable() -> Iterator[threading.Event]:
    """An event that is set when the block is left, however: work begun inside it, in other threads too, then knows that nobody waits."""
    event = threading.Event()
    token = _caller.set(event)
    try:
        yield event
    finally:
        event.set()
        _caller.reset(token)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment at which a query must have ended, and the event by which its caller takes it back."""

    at: float  # of time.monotonic()
    cancelled: threading.Event | None = None

    @classmethod
    def after(cls, seconds: float, cancelled: threading.Event | None = None) -> Deadline:
        """The deadline that many seconds from now, cancelled by the event or, without one, by that of `cancellable`."""
        return cls(time.monotonic() + seconds, cancelled or _caller.get())

    def left(self, most: float | None = None) -> float:
        """The seconds that are left, at least 0 and at most `most`."""
        left = max(0.0, self.at - time.monotonic())
        return left if most is None else min(most, left)

    def check(self, stage: str = "the query") -> None:
        """Raises CancelledError when nobody waits any more."""
        if self.cancelled is not None and self.cancelled.is_set():
            raise CancelledError(f"{stage} was cancelled by its caller", code="cancelled")


def wait(
    future: Future[R], seconds: float, stage: str, deadline: Deadline | None = None, *, setting: str = "retrieval.stage_seconds"
) -> R:  # fmt: skip
    """The result of the call, or its exception raised.

    Raises ProviderError `deadline` after `seconds`, which `setting` of the strategy allows, or at the deadline of the query, and
    CancelledError when its caller takes it back; the call runs on unheard.
    """
    asked = deadline.left(seconds) if deadline is not None else seconds
    ends = time.monotonic() + asked
    polls = deadline is not None and deadline.cancelled is not None
    while True:
        left = max(0.0, ends - time.monotonic())
        try:
            return future.result(timeout=min(_POLL, left) if polls else left)
        except FutureTimeout as error:
            if future.done():
                if future.exception() is error:  # the call itself raised a TimeoutError
                    raise
                continue
            if deadline is not None:
                deadline.check(stage)
            if time.monotonic() >= ends:
                told = setting if asked == seconds else "retrieval.query_seconds left no more"
                raise ProviderError(f"{stage} took longer than {asked:.3g} s ({told})", code="deadline", stage=stage) from error


def within(
    seconds: float, stage: str, function: Callable[[], R], deadline: Deadline | None = None, *, quick: bool = False,
    setting: str = "retrieval.stage_seconds",
) -> R:  # fmt: skip
    """The result of `function`, waited for at most `seconds` and no longer than the deadline of the query; errors are those of `wait`.

    A `quick` one computes for some milliseconds whatever it is given: the caller runs it itself, for handing it on costs one of them.
    """
    if deadline is not None:
        deadline.check(stage)
        if not deadline.left():
            raise ProviderError(f"{stage} was not begun, for the time of the query is up (retrieval.query_seconds)", code="deadline",
                                stage=stage)  # fmt: skip
    return function() if quick else wait(start(function), seconds, stage, deadline, setting=setting)
