"""Run a call beside the caller, within the caller's trace, and stop waiting for it when its time is up."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TypeVar

from rag_platform.errors import ProviderError
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

    def run() -> None:
        try:
            future.set_result(bound())
        except BaseException as error:
            future.set_exception(error)

    _workers.submit(run)
    return future


def wait(future: Future[R], seconds: float, stage: str) -> R:
    """The result of the call, or its exception raised. Raises ProviderError `deadline` after `seconds`; the call runs on unheard."""
    try:
        return future.result(timeout=seconds)
    except FutureTimeout as error:
        if future.done():  # the call itself raised a TimeoutError
            raise
        raise ProviderError(f"{stage} took longer than {seconds:g} s (retrieval.stage_seconds)", code="deadline", stage=stage) from error


def within(seconds: float, stage: str, function: Callable[[], R]) -> R:
    """The result of `function`, waited for at most `seconds`."""
    return wait(start(function), seconds, stage)
