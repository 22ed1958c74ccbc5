"""Traces, spans and events: OpenTelemetry spans, and one JSON line for each span.end, event and trace.end (seed 000 §3.5.2-3.5.4).

    with tracing.trace("query", logs_dir=store.logs_dir, strategy_config_id=scfg, namespace="default") as t:
        with tracing.span("stage.fusion", provider_type="fusion", provider_id="min_max") as s:
            s.set(k_out=3)
            tracing.event("fusion.ranked", {"ranked": [...]})

Ids: `trc_` + the 32 hex digits of the OpenTelemetry trace id, `spn_` + the 16 of the span id, `evt_` + 16 random ones.
Outside a trace all calls do nothing. The current trace follows `contextvars`: it is seen in the same thread and in asyncio tasks;
hand `carry(fn)` instead of `fn` to a thread pool. Nothing is registered globally and nothing leaves the machine, unless a span
processor is given to `export_to`. Failing to write never fails the work.
"""

from __future__ import annotations

import contextvars
import os
import platform
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from rag_platform.observability import logs

P = ParamSpec("P")
R = TypeVar("R")

EVENT_KINDS = frozenset(
    {
        "ingest.dedup_decision", "ingest.parse_summary", "ingest.assets_manifest", "ingest.section_stats", "ingest.chunk_stats",
        "ocr.generated", "caption.generated", "ingest.embedding_batch", "ingest.upsert_result", "ingest.document_failed",
        "ingest.low_quality", "query.normalized", "retrieval.plan", "retrieval.named", "retrieval.candidates", "fusion.ranked",
        "filter.applied", "rerank.ranked", "context.final", "generation.prompt", "generation.summary", "response.envelope",
        "query.fallback", "summary.written", "summary.fallback",
        "release.built", "release.checked", "release.published", "release.rolled_back", "release.opened",
        "document.deleted", "garbage.collected", "eval.case", "eval.metrics", "gate.verdict", "job.state", "model.call",
        "stage.summary", "stage.error",
    }
)  # fmt: skip
UNKNOWN_EVENT = "event.unknown"
_MAX_ERRORS = 50
_MAX_MESSAGE = 500
_GATHERED = frozenset({"query", "tool"})  # traces whose lines are written together, which costs a third of writing each
_GATHERED_SECONDS = 0.5  # but for one that takes longer

# Ids tell records apart and keep no secret: asking the system for each of the twenty of a question took 0.7 ms of a virtual machine.
_ids = random.Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.seed)

_current: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("rag_trace", default=None)
_current_span: contextvars.ContextVar[Span | None] = contextvars.ContextVar("rag_span", default=None)


class Trace:
    """The running trace; what `trace()` yields."""

    def __init__(self, trace_type: str, logs_dir: Path | None, header: dict[str, Any], otel_span: Any) -> None:
        self.trace_type = trace_type
        self.logs_dir = logs_dir
        self.header = header
        self.trace_id: str = header["trace_id"]
        self.started = time.perf_counter()
        self._otel_span = otel_span
        self._lock = threading.Lock()
        self._stage_ms: dict[str, float] = {}
        self._counters: dict[str, float] = {}
        self._errors: list[dict[str, str]] = []
        self._error_count = 0
        self._attrs: dict[str, Any] = {}
        self._eval: dict[str, Any] = {}
        self._lines: list[dict[str, Any]] | None = [] if trace_type in _GATHERED else None

    def set(self, **attrs: Any) -> None:
        """Record facts about the whole run, such as the release or replay keys."""
        with self._lock:
            self._attrs.update(attrs)

    def count(self, **counters: float) -> None:
        """Add to the counters of the aggregates."""
        with self._lock:
            for name, value in counters.items():
                self._counters[name] = self._counters.get(name, 0) + value

    def evaluate(self, **fields: Any) -> None:
        """Fill the `eval` part: eval_run_id, case_id, dataset_id, metric_set_id, judge_profile_id, metrics."""
        with self._lock:
            self._eval.update(fields)

    def stage_ms(self, name: str) -> float | None:
        """Milliseconds spent in the ended spans of that name, None where there was none."""
        with self._lock:
            return self._stage_ms.get(name)

    def elapsed_ms(self) -> float:
        """Milliseconds since the trace began."""
        return round((time.perf_counter() - self.started) * 1000, 3)

    def _add_span(self, name: str, duration_ms: float, error: dict[str, str] | None) -> None:
        with self._lock:
            self._stage_ms[name] = round(self._stage_ms.get(name, 0.0) + duration_ms, 3)
            if error is not None:
                self._error_count += 1
                if len(self._errors) < _MAX_ERRORS:
                    self._errors.append({"stage": name, **error})

    def _write(self, line: str, fields: Mapping[str, Any]) -> None:
        if self.logs_dir is None:
            return
        value = {"schema_version": logs.LOG_SCHEMA_VERSION, "line": line, "trace_id": self.trace_id, "trace_type": self.trace_type,
                 "ts": _now(), **fields}  # fmt: skip
        with self._lock:
            if self._lines is not None:
                self._lines.append(value)
                if line != "trace.end" and time.perf_counter() - self.started < _GATHERED_SECONDS:
                    return
                values, self._lines = self._lines, None  # what a leg that nobody waits for any more writes later is written at once
            else:
                values = [value]
        logs.append(self.logs_dir, *values)

    def _end(self, error: dict[str, str] | None) -> None:
        with self._lock:
            aggregates = {"latency_ms": self.elapsed_ms(), "stage_latency_ms": self._stage_ms, "counters": self._counters,
                          "errors": self._errors, "error_count": self._error_count}  # fmt: skip
            fields = {**self.header, "status": "error" if error else "ok", "ended_at": _now(), "attrs": self._attrs,
                      "aggregates": aggregates, "eval": self._eval}  # fmt: skip
        if error:
            fields["error"] = error
        self._write("trace.end", fields)


class Span:
    """A running stage; what `span()` yields."""

    def __init__(self, name: str, trace_: Trace | None, otel_span: Any, parent: Span | None, provider: dict[str, str]) -> None:
        self.name = name
        self.span_id = f"spn_{otel_span.get_span_context().span_id:016x}" if otel_span is not None else ""
        self.parent_span_id = parent.span_id if parent is not None else None
        self.provider = provider
        self.attrs: dict[str, Any] = {}
        self.error: dict[str, str] | None = None
        self._trace = trace_
        self._otel_span = otel_span
        self._start_ms = trace_.elapsed_ms() if trace_ is not None else 0.0

    def set(self, **attrs: Any) -> None:
        """Record facts about this stage; a later value wins."""
        self.attrs.update(attrs)

    def fail(self, error: BaseException | str, code: str = "") -> None:
        """Mark the stage as failed although the work goes on, as a fallback does."""
        if self.error is not None:
            return
        self.error = error_fields(error) if isinstance(error, BaseException) else {"code": code or "error", "message": error[:_MAX_MESSAGE]}
        event("stage.error", {"stage": self.name, **self._subject(), **self.error})

    def _subject(self) -> dict[str, Any]:
        """The version that the stage is about, so that what an error quotes can be found when its document is deleted."""
        return {key: value for key, value in self.attrs.items() if key == "version_id"}

    def _end(self) -> None:
        if self._trace is None:
            return
        end_ms = self._trace.elapsed_ms()
        duration = round(end_ms - self._start_ms, 3)
        status = "error" if self.error else "ok"
        fields = {"span_id": self.span_id, "parent_span_id": self.parent_span_id, "name": self.name, "status": status,
                  "start_ms": self._start_ms, "end_ms": end_ms, "duration_ms": duration, "provider": self.provider,
                  "attrs": self.attrs}  # fmt: skip
        if self.error:
            fields["error"] = self.error
        self._trace._add_span(self.name, duration, {**self._subject(), **self.error} if self.error else None)
        self._trace._write("span.end", fields)
        self._end_otel()

    def _end_otel(self) -> None:
        if not isinstance(self._otel_span, _PlainSpan):  # nobody else reads the attributes
            for key, value in {**self.provider, **self.attrs}.items():
                self._otel_span.set_attribute(key, value if isinstance(value, (str, bool, int, float)) else str(value))
            if self.error:
                from opentelemetry.trace import Status, StatusCode

                self._otel_span.set_status(Status(StatusCode.ERROR, f"{self.error['code']}: {self.error['message']}"))
        self._otel_span.end()


# --- the three verbs -----------------------------------------------------------------------------------------------------


@contextmanager
def trace(
    trace_type: str,
    *,
    logs_dir: Path | None,
    strategy_config_id: str = "",
    namespace: str = "",
    job_id: str | None = None,
    request_id: str | None = None,
) -> Iterator[Trace]:
    """A new trace, current inside the block; a trace already running becomes its `links.parent_trace_id`.

    An exception that leaves the block makes the status `error` and is raised on. `logs_dir=None` writes nothing.
    """
    outer = _current.get()
    otel_span = _started(f"trace.{trace_type}", None)
    header = {
        "trace_id": f"trc_{otel_span.get_span_context().trace_id:032x}",
        "trace_type": trace_type,
        "started_at": _now(),
        "strategy_config_id": strategy_config_id,
        "namespace": namespace,
        "build": _build(),
        "runtime": {**logs.log_config().fields, "host": platform.node(), "pid": os.getpid()},
        "links": {"parent_trace_id": outer.trace_id if outer else None, "job_id": job_id, "request_id": request_id},
    }
    running = Trace(trace_type, logs_dir, header, otel_span)
    trace_token, span_token = _current.set(running), _current_span.set(None)
    error: dict[str, str] | None = None
    try:
        yield running
    except BaseException as raised:
        error = error_fields(raised)
        raise
    finally:
        _current_span.reset(span_token)
        _current.reset(trace_token)
        running._end(error)
        otel_span.end()


@contextmanager
def span(
    name: str, *, provider_type: str = "", provider_id: str = "", provider_version: str = "", profile_id: str = "", **attrs: Any
) -> Iterator[Span]:
    """A stage of the current trace, nested in the current span; its line is written when the block ends.

    An exception that leaves the block makes its status `error`, leaves a `stage.error` event and is raised on.
    """
    running = _current.get()
    provider = {"provider_type": provider_type, "provider_id": provider_id, "provider_version": provider_version,
                "profile_id": profile_id}  # fmt: skip
    if running is None:
        yield Span(name, None, None, None, provider)
        return
    parent = _current_span.get()
    otel_span = _started(name, parent._otel_span if parent else running._otel_span)
    current = Span(name, running, otel_span, parent, provider)
    current.attrs.update(attrs)
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
    """Write one event of the current trace and span; a kind outside EVENT_KINDS becomes `event.unknown`."""
    running = _current.get()
    if running is None:
        return
    data = dict(payload or {})
    if kind not in EVENT_KINDS:
        data, kind = {"original_kind": kind, **data}, UNKNOWN_EVENT
    current = _current_span.get()
    running._write("event", {"event_id": f"evt_{_ids.getrandbits(64):016x}", "ts_ms": running.elapsed_ms(),
                             "span_id": current.span_id if current else None, "kind": kind, "payload": data})  # fmt: skip


def count(**counters: float) -> None:
    """Add to the counters of the current trace."""
    if (running := _current.get()) is not None:
        running.count(**counters)


def current_trace_id() -> str:
    """The id of the current trace, empty outside one."""
    running = _current.get()
    return running.trace_id if running else ""


def current_span_id() -> str:
    """The id of the current span, empty outside one."""
    current = _current_span.get()
    return current.span_id if current else ""


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """`function` bound to the current trace and span, for one call in another thread."""
    context = contextvars.copy_context()

    def bound(*args: P.args, **kwargs: P.kwargs) -> R:
        return context.run(function, *args, **kwargs)

    return bound


def error_fields(error: BaseException) -> dict[str, str]:
    """Code and message of an exception: a RagError's own code, else the class name."""
    code = getattr(error, "code", None)
    return {"code": code if isinstance(code, str) and code else type(error).__name__, "message": str(error)[:_MAX_MESSAGE]}


# --- OpenTelemetry -------------------------------------------------------------------------------------------------------


_exporting = False


def export_to(processor: Any) -> None:
    """Hand every later span with its attributes to an OpenTelemetry span processor as well, e.g. one that exports by OTLP."""
    global _exporting
    _provider().add_span_processor(processor)
    _exporting = True


class _PlainSpan:
    """The ids of a span that nothing outside will read; importing the SDK takes a tenth of a second, which the first query would pay."""

    __slots__ = ("span_id", "trace_id")

    def __init__(self, trace_id: int) -> None:
        self.trace_id = trace_id
        self.span_id = _ids.getrandbits(64) or 1

    def get_span_context(self) -> _PlainSpan:
        return self

    def end(self) -> None:
        pass


def _started(name: str, parent: Any) -> Any:
    """A span of OpenTelemetry when somebody reads them, else one that only has ids."""
    if _exporting:
        return _tracer().start_span(name, context=_context_of(parent))
    return _PlainSpan(_ids.getrandbits(128) or 1 if parent is None else parent.get_span_context().trace_id)


@cache
def _provider() -> Any:
    """Our own TracerProvider, made when spans are first exported."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    class SystemIds(RandomIdGenerator):
        """Ids of our own generator: that of the `random` module may be seeded by the work being traced."""

        def generate_span_id(self) -> int:
            return _ids.getrandbits(64) or 1

        def generate_trace_id(self) -> int:
            return _ids.getrandbits(128) or 1

    resource = Resource({"service.name": "rag_platform", "service.version": _build()["app_version"]})
    return TracerProvider(sampler=ALWAYS_ON, resource=resource, id_generator=SystemIds(), span_limits=SpanLimits(max_events=0),
                          shutdown_on_exit=False)  # fmt: skip


@cache
def _tracer() -> Any:
    return _provider().get_tracer("rag_platform")


def _context_of(otel_span: Any) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    if isinstance(otel_span, _PlainSpan):  # begun before anything was exported
        known = SpanContext(otel_span.trace_id, otel_span.span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        otel_span = NonRecordingSpan(known)
    return Context() if otel_span is None else set_span_in_context(otel_span, Context())


@cache
def _build() -> dict[str, str]:
    from importlib import metadata

    try:
        version = metadata.version("rag-platform")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return {"app_version": version, "git_sha": os.environ.get("RAG_GIT_SHA") or _git_sha(Path(__file__).resolve().parents[2])}


def _git_sha(root: Path) -> str:
    """The commit of a checkout, read without starting git; empty for an installed package."""
    try:
        head = (root / ".git" / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head[:12]
        loose = root / ".git" / head[5:]
        return loose.read_text(encoding="utf-8").strip()[:12] if loose.is_file() else ""
    except OSError:
        return ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
