"""Run a call beside the caller, within the caller's trace, and stop waiting for it when its time is up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TypeVar

from rag_platform.errors import ProviderError
from rag_platform.observability import tracing

R = TypeVar("R")


def start(function: Callable[[], R]) -> Future[R]:
    """The future of a call in a thread of its own.

    A daemon thread for each call, not a pool: a provider that hangs then holds up neither later queries nor the end of the process.
    """
    future: Future[R] = Future()
    bound = tracing.carry(function)

    def run() -> None:
        try:
            future.set_result(bound())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="rag-stage", daemon=True).start()
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
