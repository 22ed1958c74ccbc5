"""Traces, spans and events, written as one JSON line for each span.end, event and trace.end, and a
trace.eval for the evaluation of a trace.

    with tracing.trace("query", logs_dir=store.logs_dir, namespace="default"):
        with tracing.span("stage.fusion", provider_type="fusion", provider_id="min_max") as span:
            span.set(k_out=3)
            tracing.event("fusion.ranked", {"ranked": [...]})

Ids are random: `trc_` and 32 hex digits, `spn_` and `evt_` and 16, the lengths of OpenTelemetry.
The current trace is a context variable, which asyncio tasks inherit; a thread pool needs
`carry(function)`. Outside a trace all calls do nothing. Nothing leaves the machine, and failing to
write never fails the work.
"""

from __future__ import annotations

import contextvars
import copy
import os
import platform
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from rag_platform.observability import context, faults, logs
from rag_platform.observability.build import build_info

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

EVENT_KINDS = frozenset(
    """
    ingest.dedup_decision ingest.parse_summary ingest.assets_manifest ingest.section_stats
    ingest.chunk_stats ocr.generated caption.generated ingest.embedding_batch
    ingest.upsert_result ingest.document_failed ingest.low_quality query.normalized query.corrected
    retrieval.plan retrieval.named retrieval.candidates retrieval.joined fusion.ranked
    filter.applied rerank.ranked context.final generation.prompt generation.summary
    response.envelope query.fallback summary.written summary.fallback release.published
    release.rolled_back release.opened gate.verdict judge.score document.deleted
    garbage.collected model.call stage.error
    """.split()
)
UNKNOWN_EVENT = "event.unknown"
_MAX_ERRORS = 50
_MAX_MESSAGE = 500
# Types of traces whose lines are buffered and written together, at a third of the cost, unless they
# take longer than so many seconds.
_BUFFERED = frozenset({"query", "tool"})
_BUFFERED_SECONDS = 0.5

# Ids need not be secret: drawing the twenty of a question from the OS took 0.7 ms.
_ids = random.Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.seed)

_current: contextvars.ContextVar[Trace | None] = context.trace
_request: contextvars.ContextVar[str | None] = contextvars.ContextVar("rag_request", default=None)
_client: contextvars.ContextVar[Client | None] = contextvars.ContextVar("rag_client", default=None)
_watcher: contextvars.ContextVar[Callable[[str], None] | None] = contextvars.ContextVar(
    "rag_watcher", default=None
)
_current_span: contextvars.ContextVar[Span | None] = context.span


@dataclass(frozen=True, slots=True)
class Client:
    """The client program of a request; `client_level`: L0 reads text, L1 structured content too, L2
    also resources.
    """

    door: str  # cli, stdio, http or web
    name: str = ""
    version: str = ""
    client_level: str = ""
    tool: str = ""
    token_id: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A running trace for another process of this machine to join."""

    trace_type: str
    logs_dir: Path | None
    header: dict[str, Any]
    started: float  # perf_counter, which the processes share
    parent_span_id: str


@dataclass(slots=True)
class Figures:
    """The sums of spans and counters of a trace."""

    stage_ms: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    errors: list[dict[str, str]] = field(default_factory=list)
    error_count: int = 0

    def add(self, other: Figures) -> None:
        for name, spent in other.stage_ms.items():
            self.stage_ms[name] = round(self.stage_ms.get(name, 0.0) + spent, 3)
        for name, value in other.counters.items():
            self.counters[name] = self.counters.get(name, 0) + value
        self.errors += other.errors[: max(0, _MAX_ERRORS - len(self.errors))]
        self.error_count += other.error_count


class Trace:
    """The running trace; what `trace()` yields."""

    def __init__(self, trace_type: str, logs_dir: Path | None, header: dict[str, Any]) -> None:
        self.trace_type = trace_type
        self.logs_dir = logs_dir
        self.header = header
        self.trace_id: str = header["trace_id"]
        self.started = time.perf_counter()
        self._lock = threading.Lock()
        self._figures = Figures()
        self._attrs: dict[str, Any] = {}
        self._counted: dict[str, set[str]] = {}
        self._lines: list[dict[str, Any]] | None = [] if trace_type in _BUFFERED else None

    def set(self, **attrs: Any) -> None:
        """Record attributes of the whole trace, such as the release or replay keys."""
        with self._lock:
            self._attrs.update(attrs)

    def describe(self, strategy_config_id: str, providers: Mapping[str, Mapping[str, str]]) -> None:
        """Record the strategy and its providers."""
        described = complete_providers(strategy_config_id, providers)
        self.header |= {"strategy_config_id": strategy_config_id, "providers": described}

    def merge(self, name: str, values: Mapping[str, Any]) -> None:
        """Add entries to an attribute that is a mapping."""
        with self._lock:
            self._attrs[name] = {**self._attrs.get(name, {}), **values}

    def count(self, **counters: float) -> None:
        """Add to the counters of the aggregates."""
        self.add(Figures(counters=counters))

    def count_distinct(self, name: str, items: Iterable[str]) -> None:
        """Add the number of items that the counter has not counted yet."""
        with self._lock:
            seen = self._counted.setdefault(name, set())
            before = len(seen)
            seen.update(items)
            self._figures.add(Figures(counters={name: len(seen) - before}))

    def stage_ms(self, name: str) -> float | None:
        """Milliseconds spent in the ended spans of that name; None if there were none."""
        with self._lock:
            return self._figures.stage_ms.get(name)

    def elapsed_ms(self) -> float:
        """Milliseconds since the trace began."""
        return round((time.perf_counter() - self.started) * 1000, 3)

    def figures(self) -> Figures:
        """A copy of the sums so far."""
        with self._lock:
            return copy.deepcopy(self._figures)

    def add(self, figures: Figures) -> None:
        """Add the sums of a span, or of another process that joined this trace."""
        with self._lock:
            self._figures.add(figures)

    def _write(self, line: str, fields: Mapping[str, Any]) -> None:
        if self.logs_dir is None:
            return
        value = {
            "schema_version": logs.LOG_SCHEMA_VERSION,
            "line": line,
            "trace_id": self.trace_id,
            "trace_type": self.trace_type,
            "ts": now(),
            **fields,
        }
        if _sinks:
            _hand_over(self.header, value)
        with self._lock:
            if self._lines is not None:
                self._lines.append(value)
                if line != "trace.end" and time.perf_counter() - self.started < _BUFFERED_SECONDS:
                    return
                # later lines, e.g. of abandoned calls, are written at once
                values, self._lines = self._lines, None
            else:
                values = [value]
        logs.append(self.logs_dir, *values)

    def _end(self, error: dict[str, str] | None) -> None:
        with self._lock:
            aggregates = {
                "latency_ms": self.elapsed_ms(),
                "stage_latency_ms": self._figures.stage_ms,
                "counters": self._figures.counters,
                "errors": self._figures.errors,
                "error_count": self._figures.error_count,
            }
            fields = {
                **self.header,
                "status": "error" if error else "ok",
                "ended_at": now(),
                "attrs": self._attrs,
                "aggregates": aggregates,
            }
        if error:
            fields["error"] = error
        self._write("trace.end", fields)


class Span:
    """A running stage; what `span()` yields."""

    def __init__(
        self, name: str, trace_: Trace | None, parent: Span | None, provider: dict[str, str]
    ) -> None:
        self.name = name
        self.span_id = f"spn_{_ids.getrandbits(64) or 1:016x}" if trace_ is not None else ""
        self.parent_span_id = parent.span_id if parent is not None else None
        self.provider = provider
        self.attrs: dict[str, Any] = {}
        self.error: dict[str, str] | None = None
        self._trace = trace_
        self._start_ms = trace_.elapsed_ms() if trace_ is not None else 0.0

    def set(self, **attrs: Any) -> None:
        """Record attributes of this stage; a later value wins."""
        self.attrs.update(attrs)

    def ext(self, provider_id: str, **attrs: Any) -> None:
        """Record attributes specific to a provider, under its own prefix."""
        self.attrs.update({f"ext.{provider_id}.{key}": value for key, value in attrs.items()})

    def fail(self, error: BaseException | str, code: str = "") -> None:
        """Mark the stage as failed, although the work goes on with a fallback."""
        fields = {"code": code or "error", "message": str(error)[:_MAX_MESSAGE]}
        if isinstance(error, BaseException):
            faults.report(error, self.name)
            fields = error_fields(error)
        if self.error is not None:
            return
        self.error = fields
        event("stage.error", {"stage": self.name, **self._subject(), **self.error})

    def _subject(self) -> dict[str, Any]:
        """The version that the stage works on, by which erasing a document finds errors that quote
        it.
        """
        return {key: value for key, value in self.attrs.items() if key == "version_id"}

    def _end(self) -> None:
        if self._trace is None:
            return
        end_ms = self._trace.elapsed_ms()
        duration = round(end_ms - self._start_ms, 3)
        # without a version and profile of its own, a stage has the program's and the strategy's
        if kind := self.provider["provider_type"]:
            own = self.provider["provider_id"]
            self.provider["provider_id"] = own if own.startswith(f"{kind}.") else f"{kind}.{own}"
            self.provider["provider_version"] = (
                self.provider["provider_version"] or build_info()["app_version"]
            )
            self.provider["profile_id"] = (
                self.provider["profile_id"] or self._trace.header["strategy_config_id"]
            )
        fields = {
            "span_id": self.span_id,
            "parent_span_id": self.parent_span_id,
            "name": self.name,
            "status": "error" if self.error else "ok",
            "start_ms": self._start_ms,
            "end_ms": end_ms,
            "duration_ms": duration,
            "provider": self.provider,
            "attrs": self.attrs,
        }
        if self.error:
            fields["error"] = self.error
        errors = [{"stage": self.name, **self._subject(), **self.error}] if self.error else []
        self._trace.add(Figures({self.name: duration}, {}, errors, len(errors)))
        self._trace._write("span.end", fields)


# --- elsewhere ----------------------------------------------------------------------------------

Sink = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
_sinks: list[Sink] = []


def complete_providers(
    strategy_config_id: str, providers: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """The providers with the program's version and the strategy's id where they have no version or
    profile of their own.
    """
    rest = {"version": build_info()["app_version"], "profile_id": strategy_config_id}
    return {
        module: {key: text or rest.get(key, "") for key, text in found.items()}
        for module, found in providers.items()
    }


def export_to(sink: Sink) -> None:
    """Also pass each trace line of this process, with the trace's header, to a function; its
    exceptions are reported and do not fail the work.
    """
    _sinks.append(sink)


def is_exported() -> bool:
    """True if this process exports its traces."""
    return bool(_sinks)


def _hand_over(header: Mapping[str, Any], line: Mapping[str, Any]) -> None:
    for sink in _sinks:
        try:
            sink(header, line)
        except Exception as error:  # noqa: BLE001 (an exporter must not stop the work)
            faults.report(error, "trace.export")


# --- in use -------------------------------------------------------------------------------------


def for_request(request_id: str | None) -> AbstractContextManager[str | None]:
    """Traces that begin in the block, or in calls carried from it, record this client request."""
    return context.set_variable(_request, request_id)


def current_request_id() -> str | None:
    """The id of the current client request, if known."""
    return _request.get()


def for_client(client: Client | None) -> AbstractContextManager[Client | None]:
    """Traces that begin in the block, or in calls carried from it, record this client."""
    return context.set_variable(_client, client)


def current_client() -> Client | None:
    """The current client, if known."""
    return _client.get()


def watching(
    on_stage: Callable[[str], None],
) -> AbstractContextManager[Callable[[str], None] | None]:
    """Call a function with the name of each stage that begins in the block, in that
    stage's thread.
    """
    return context.set_variable(_watcher, on_stage)


@contextmanager
def trace(
    trace_type: str,
    *,
    logs_dir: Path | None,
    namespace: str = "",
    job_id: str | None = None,
    request_id: str | None = None,
    parent_trace_id: str | None = None,
) -> Iterator[Trace]:
    """A new trace, current inside the block; its parent is `parent_trace_id`, else the trace
    already running. An exception sets the status `error` and propagates. `logs_dir=None` writes
    nothing.
    """
    outer = _current.get()
    header = {
        "trace_id": f"trc_{_ids.getrandbits(128) or 1:032x}",
        "trace_type": trace_type,
        "started_at": now(),
        "strategy_config_id": "",
        "namespace": namespace,
        "build": build_info(),
        "runtime": {**logs.log_config().fields, "host": platform.node(), "pid": os.getpid()},
        "links": {
            "parent_trace_id": parent_trace_id or (outer.trace_id if outer else None),
            "job_id": job_id,
            "request_id": request_id or _request.get(),
        },
    }
    if (client := _client.get()) is not None:
        header["client"] = asdict(client)
    running = Trace(trace_type, logs_dir, header)
    trace_token, span_token = _current.set(running), _current_span.set(None)
    error: dict[str, str] | None = None
    try:
        yield running
    except BaseException as raised:
        faults.report(raised, f"trace.{trace_type}")
        error = error_fields(raised)
        raise
    finally:
        _current_span.reset(span_token)
        _current.reset(trace_token)
        running._end(error)


@contextmanager
def span(
    name: str,
    *,
    provider_type: str = "",
    provider_id: str = "",
    provider_version: str = "",
    profile_id: str = "",
    **attrs: Any,
) -> Iterator[Span]:
    """A stage of the current trace, nested in the current span; its line is written at the end of
    the block. An exception sets the status `error`, writes a `stage.error` event and propagates.
    """
    running = _current.get()
    provider = {
        "provider_type": provider_type,
        "provider_id": provider_id,
        "provider_version": provider_version,
        "profile_id": profile_id,
    }
    if running is None:
        yield Span(name, None, None, provider)
        return
    parent = _current_span.get()
    current = Span(name, running, parent, provider)
    current.attrs.update(attrs)
    if (watcher := _watcher.get()) is not None:
        watcher(name)
    token = _current_span.set(current)
    try:
        yield current
    except BaseException as raised:
        current.fail(raised)
        raise
    finally:
        _current_span.reset(token)
        current._end()


def event(kind: str, payload: Mapping[str, Any] | None = None) -> None:
    """Write one event of the current trace and span; a kind outside EVENT_KINDS becomes
    `event.unknown`.
    """
    running = _current.get()
    if running is None:
        return
    data = dict(payload or {})
    if kind not in EVENT_KINDS:
        data, kind = {"original_kind": kind, **data}, UNKNOWN_EVENT
    current = _current_span.get()
    running._write(
        "event",
        {
            "event_id": f"evt_{_ids.getrandbits(64):016x}",
            "ts_ms": running.elapsed_ms(),
            "span_id": current.span_id if current else None,
            "kind": kind,
            "payload": data,
        },
    )


def evaluate(logs_dir: Path, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Record the evaluation of finished questions, by trace id; `trace_reader.show` returns it as
    `eval`.
    """
    logs.append(
        logs_dir,
        *(
            {
                "schema_version": logs.LOG_SCHEMA_VERSION,
                "line": "trace.eval",
                "trace_id": trace_id,
                "trace_type": "query",
                "ts": now(),
                "eval": values,
            }
            for trace_id, values in found.items()
        ),
    )


def describe(**attrs: Any) -> None:
    """Record attributes of the current span."""
    if (current := _current_span.get()) is not None:
        current.set(**attrs)


def ext(provider_id: str, **attrs: Any) -> None:
    """Record attributes specific to a provider, of the current span."""
    if (current := _current_span.get()) is not None:
        current.ext(provider_id, **attrs)


def count(**counters: float) -> None:
    """Add to the counters of the current trace."""
    if (running := _current.get()) is not None:
        running.count(**counters)


def link() -> Link | None:
    """The current trace for another process to join; None outside one."""
    running = _current.get()
    if running is None:
        return None
    return Link(
        running.trace_type,
        running.logs_dir,
        running.header,
        running.started,
        context.current_span_id(),
    )


@contextmanager
def join(link: Link | None) -> Iterator[Trace | None]:
    """Make the trace of another process current inside the block. That process ends the trace,
    after passing the `figures` of the yielded trace to `add`.
    """
    if link is None:
        yield None
        return
    running = Trace(link.trace_type, link.logs_dir, link.header)
    running.started = link.started
    parent = Span("", None, None, {})
    parent.span_id = link.parent_span_id
    inside = parent if link.parent_span_id else None
    with context.set_variable(_current, running), context.set_variable(_current_span, inside):
        yield running


def add(figures: Figures | None) -> None:
    """Add the sums of another process to the current trace."""
    if figures is not None and (running := _current.get()) is not None:
        running.add(figures)


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """`function` bound to the current context, for one call in another thread."""
    copied = contextvars.copy_context()

    def bound(*args: P.args, **kwargs: P.kwargs) -> R:
        return copied.run(function, *args, **kwargs)

    return bound


def map_in_threads(function: Callable[[T], R], items: Iterable[T], threads: int) -> list[R]:
    """The results of a function for each item, so many calls at a time, in the current context. The
    first error in the order of the items is raised, and ends the calls that have not begun.
    """
    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(carry(function), item) for item in items]
        try:
            return [future.result() for future in running]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def error_fields(error: BaseException) -> dict[str, str]:
    """Code and message of an exception: a RagError's own code, else the class name."""
    code = getattr(error, "code", None)
    return {
        "code": code if isinstance(code, str) and code else type(error).__name__,
        "message": str(error)[:_MAX_MESSAGE],
    }


def now() -> str:
    """The current UTC time to the millisecond, e.g. `2026-11-21T22:40:00.125Z`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
