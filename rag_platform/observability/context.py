"""The current trace and span of a thread or task, for logs and faults."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

# a tracing.Trace
trace: contextvars.ContextVar[Any] = contextvars.ContextVar("rag_trace", default=None)
# a tracing.Span
span: contextvars.ContextVar[Any] = contextvars.ContextVar("rag_span", default=None)


@contextmanager
def set_variable(variable: contextvars.ContextVar[T], value: T) -> Iterator[T]:
    """Set the variable in the block, and in calls carried from it."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def current_trace_id() -> str:
    """The id of the current trace; empty outside one."""
    running = trace.get()
    return str(running.trace_id) if running else ""


def current_logs_dir() -> Path | None:
    """The folder to which the current trace is written; None outside one or if it is not
    written.
    """
    running = trace.get()
    return running.logs_dir if running is not None else None


def current_span_id() -> str:
    """The id of the current span; empty outside one."""
    current = span.get()
    return str(current.span_id) if current else ""
