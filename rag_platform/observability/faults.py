"""Unexpected exceptions: each is logged once with its stack trace, counted, and shown by `rag
status` and `rag doctor`.

Unexpected are exceptions other than those of `rag_platform.errors` and OSError: bugs of ours or of
a library. Code that swallows an exception calls `report` first; spans and traces do so when an
exception leaves them. The stack trace goes to the program's log, linked to its trace;
`logs/faults.jsonl` has a short line for each, without text that could be from a document.
"""

from __future__ import annotations

import json
import logging
import os
import re
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rag_platform.errors import RagError, says_disk_full
from rag_platform.ir import Json
from rag_platform.observability import context, logs

FILE_NAME = "faults.jsonl"
_MAX_BYTES = 1 << 20  # of that file, so that repeated failures do not fill the disk
_MAX_MESSAGE = 200
_MARK = "_rag_platform_seen"
_PLACE = re.compile(r'^  File ".*", line \d+', re.MULTILINE)
_recent: deque[Any] = deque(maxlen=100)

_log = logging.getLogger(__name__)
_version: ContextVar[str] = ContextVar("rag_version", default="")
_collecting: ContextVar[list[Json] | None] = ContextVar("rag_faults", default=None)


def is_expected(error: BaseException) -> bool:
    """True for RagErrors, OSErrors and exceptions that end the program."""
    return isinstance(error, (RagError, OSError)) or not isinstance(error, Exception)


def is_ours(error: BaseException) -> bool:
    """True for an exception raised in this package, not in a library."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(__file__).parents[1] in Path(frames[-1].filename).parents


def describe(error: BaseException) -> str:
    """The description of an exception for a warning."""
    if is_expected(error):
        return str(error)
    return (
        f"internal error: {type(error).__name__}: {str(error)[:_MAX_MESSAGE]}; its stack trace is"
        " in the log"
    )


def about(version_id: str) -> AbstractContextManager[str]:
    """Log faults in the block with this document version, by which erasing the document
    finds them.
    """
    return context.set_variable(_version, version_id)


def report(error: BaseException, stage: str, *, logs_dir: Path | None = None) -> None:
    """Log and count an exception, unless it is expected or was reported before. `logs_dir` is used
    outside a trace, in a process without a log of its own.
    """
    if is_expected(error) or _is_of_full_disk(error) or getattr(error, _MARK, False):
        return
    # an exception without attributes may be reported again
    with suppress(AttributeError):
        setattr(error, _MARK, True)
    fault: Json = {
        "ts": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "stage": stage,
        "type": type(error).__name__,
        "message": f"unexpected {type(error).__name__} in {stage}: {str(error)[:_MAX_MESSAGE]}",
        "exception": _stack(error),
    }
    record(fault, logs_dir)


def _is_of_full_disk(error: BaseException) -> bool:
    """True for a library's error that reports a full disk, itself or by its `__cause__`; with such
    an error only as `__context__`, it may be a fault.
    """
    link: BaseException | None = error
    while link is not None:
        if says_disk_full(link):
            return True
        link = link.__cause__
    return False


def report_own(error: BaseException, stage: str) -> None:
    """As `report`, but only for unexpected exceptions of this package, as libraries raise anything
    on broken files.
    """
    if is_ours(error) and not is_expected(error):
        report(error, stage)


class Attempt:
    """A context manager that reports an exception of its block, stores it in `error` and suppresses
    it, except the types `passing` and those that end the program.
    """

    def __init__(
        self, stage: str, *, passing: tuple[type[Exception], ...] = (), logs_dir: Path | None = None
    ) -> None:
        self.stage = stage
        self.error: Exception | None = None
        self._passing, self._logs_dir = passing, logs_dir

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return False
        self.error = error
        self.give_up(error)
        return True

    def give_up(self, error: Exception) -> None:
        """Report the exception of the block."""
        report(error, self.stage, logs_dir=self._logs_dir)


def record(fault: Json, logs_dir: Path | None = None) -> None:
    """Write a fault of this or a child process, once per trace; to stderr if there is no log."""
    fault = {
        "trace_id": context.current_trace_id(),
        "span_id": context.current_span_id(),
        "version_id": _version.get(),
        **fault,
    }
    place = (fault["trace_id"], fault["type"], _PLACE.findall(fault["exception"])[-1:])
    if fault["trace_id"] and _recent.count(place):
        return  # e.g. a batch that is halved repeatedly to isolate a bad text
    _recent.append(place)
    logs_dir, collecting = _find_logs_dir() or logs_dir, _collecting.get()
    if logs_dir is None and collecting is not None:
        # without empty values, which the parent may know
        collecting.append({key: value for key, value in fault.items() if value})
        return
    line = {
        "schema_version": logs.LOG_SCHEMA_VERSION,
        "line": "log",
        "level": "ERROR",
        "logger": __name__,
        **fault,
    }
    if logs_dir is None or not logs.append(logs_dir, line):
        _log.error("%s\n%s", fault["message"], fault["exception"])
        return
    _count(logs_dir, {key: fault[key] for key in ("ts", "stage", "type", "trace_id")})


@contextmanager
def collect() -> Iterator[list[Json]]:
    """Collect the faults of the block in a process without a log, for its parent to `record`."""
    found: list[Json] = []
    with context.set_variable(_collecting, found):
        yield found


def summary(logs_dir: Path) -> Json:
    """`count` of unexpected errors, `since` when, and the `latest` one (ts, stage, type, trace_id);
    empty if there are none.
    """
    path = logs_dir / FILE_NAME
    found = []
    for line in path.read_bytes().split(b"\n") if path.is_file() else []:
        with suppress(ValueError):  # empty, or torn by a full disk
            found.append(json.loads(line))
    if not found:
        return {}
    return {"count": len(found), "since": found[0]["ts"], "latest": found[-1]}


def sentence(found: Mapping[str, Any]) -> str:
    """The summary as a sentence, with where to find details."""
    latest, log = found["latest"], f"logs/{str(found['latest']['ts'])[:10]}-*.jsonl"
    where = f"`rag trace show {latest['trace_id']}` or {log}" if latest["trace_id"] else log
    return (
        f"{found['count']} unexpected error{'s' if found['count'] > 1 else ''} since"
        f" {found['since']}, the latest {latest['type']} in {latest['stage']} at {latest['ts']};"
        f" stack trace: {where}. Removing logs/{FILE_NAME} counts anew"
    )


def _stack(error: BaseException) -> str:
    """The stack trace with causes and shortened messages, as exceptions may quote their input."""
    trace = traceback.TracebackException.from_exception(error, max_group_depth=3)
    link: Any = trace
    for _ in range(20):
        if link is None:
            break
        link._str = str(link._str)[:_MAX_MESSAGE]
        link = link.__cause__ or link.__context__
    return "".join(trace.format())


def _find_logs_dir() -> Path | None:
    """The log folder of the current trace, else of the process."""
    if (logs_dir := context.current_logs_dir()) is not None:
        return logs_dir
    handlers = logging.getLogger("rag_platform").handlers
    return next(
        (handler.logs_dir for handler in handlers if isinstance(handler, logs.JsonlHandler)), None
    )


def _count(logs_dir: Path, line: Json) -> None:
    opener = partial(os.open, mode=0o640)
    with suppress(OSError), open(logs_dir / FILE_NAME, "ab", opener=opener) as lines:
        if lines.tell() <= _MAX_BYTES:
            lines.write(json.dumps(line).encode() + b"\n")
