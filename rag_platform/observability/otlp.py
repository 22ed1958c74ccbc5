"""Exports traces to an OTLP collector, if one is configured.

Our ids have OpenTelemetry's lengths. Each trace gets a root span whose id is the end of the
trace_id; model calls become client spans, other events stay events. Names and values follow the
semantic conventions for generative AI, and `openinference.span.kind` those of Phoenix. The text of
questions and documents is left out unless `content` is set.
"""

from __future__ import annotations

import atexit
import importlib
import json
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from rag_platform.config.services import OtlpSettings
from rag_platform.errors import ConfigError
from rag_platform.ir import Json
from rag_platform.observability import tracing
from rag_platform.observability.logs import redaction
from rag_platform.observability.redaction import TEXT_KEYS

log = logging.getLogger(__name__)

_TRACES_PATH = "/v1/traces"
_SECONDS = 5.0  # timeout of an export, also at the end of the process
_RANKED = 50  # listed documents of a retrieval
# span to its operation in the conventions, and its kind in Phoenix
_OPERATIONS = {
    "stage.retrieve_dense": ("retrieval", "RETRIEVER"),
    "stage.retrieve_sparse": ("retrieval", "RETRIEVER"),
    "stage.fusion": ("retrieval", "RETRIEVER"),
    "stage.rerank": ("retrieval", "RERANKER"),
    "model.embed": ("embeddings", "EMBEDDING"),
    "stage.embedding": ("embeddings", "EMBEDDING"),
}
_LISTS = ("candidates", "ranked", "after")  # payload fields with documents


def setup(settings: OtlpSettings) -> None:
    """Export the traces of this process from now on, if a collector is configured; a second call
    does nothing. Raises ConfigError if the extra is missing or the endpoint is invalid.
    """
    if settings.endpoint and not tracing.is_exported():
        tracing.export_to(SpanExport(settings, _processor(settings)).take)


def headers_of(settings: OtlpSettings) -> dict[str, str]:
    """The headers from the configured variable, `key=value,key=value`. Raises ConfigError if it is
    not set.
    """
    if not settings.headers_env:
        return {}
    from opentelemetry.util.re import parse_env_headers

    given = os.environ.get(settings.headers_env, "")
    found = parse_env_headers(given, liberal=True)
    if not found:
        raise ConfigError(
            f"observability.otlp.headers_env names {settings.headers_env}, which holds no"
            " `key=value`; set it, or clear headers_env"
        )
    return dict(found)


def _processor(settings: OtlpSettings) -> Any:
    endpoint, options = settings.endpoint, {}
    if settings.protocol == "http" and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            f"observability.otlp.endpoint is {endpoint!r}; it must begin with http:// or https://"
        )
    try:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        module = f"opentelemetry.exporter.otlp.proto.{settings.protocol}.trace_exporter"
        make_exporter: Any = importlib.import_module(module).OTLPSpanExporter
    except ImportError as error:
        raise ConfigError(
            f"observability.otlp.endpoint is set, but a package is missing ({error}): pip install"
            " 'rag-platform[otlp]', or clear the endpoint"
        ) from error
    if settings.protocol == "grpc":
        options["insecure"] = not endpoint.startswith("https:")
    else:
        endpoint = endpoint.rstrip("/").removesuffix(_TRACES_PATH) + _TRACES_PATH
    headers = headers_of(settings) or None
    exporter = make_exporter(endpoint=endpoint, headers=headers, timeout=_SECONDS, **options)
    processor = BatchSpanProcessor(exporter, export_timeout_millis=1000 * _SECONDS)
    atexit.register(processor.shutdown)
    return processor


class SpanExport:
    """Converts trace lines to OpenTelemetry spans, and passes them to a processor."""

    def __init__(self, settings: OtlpSettings, processor: Any) -> None:
        self._settings, self._processor = settings, processor
        self._lock = threading.Lock()
        # events are buffered until their span ends
        self._events: dict[tuple[str, str | None], list[Json]] = defaultdict(list)

    def take(self, header: Mapping[str, Any], line: Mapping[str, Any]) -> None:
        """Process one line of a trace."""
        if not self._is_sampled(header["trace_id"]):
            return
        record: Json = orjson.loads(redaction().line(line))
        if not self._settings.content:
            record = without_content(record)
        key = (record["trace_id"], record.get("span_id"))
        if record["line"] == "event":
            if record["kind"] == "model.call":
                self._send(header, record, _call_fields(record, header))
            with self._lock:
                self._events[key].append(record)
            return
        with self._lock:
            events = self._events.pop(key, [])
        if record["line"] == "span.end":
            self._send(header, record, _span_fields(record, events, header), events)
        elif record["line"] == "trace.end":
            self._send(header, record, _root_fields(record), events)

    def _is_sampled(self, trace_id: str) -> bool:
        """Deterministic by trace_id, so that all processes of a trace agree."""
        return int(trace_id[4:12], 16) < self._settings.sample_rate * 0x1_0000_0000

    def _send(
        self,
        header: Mapping[str, Any],
        record: Json,
        fields: Json,
        events: list[Json] | None = None,
    ) -> None:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import Link, SpanKind
        from opentelemetry.trace.status import Status, StatusCode

        trace_id = record["trace_id"]
        own = [
            Event(
                event["kind"],
                attributes=_flat(event.get("payload") or {}),
                timestamp=_at(header, event["ts_ms"]),
            )
            for event in events or ()
        ]
        error = record.get("error") or (record.get("payload") or {}).get("error")
        status = Status(StatusCode.ERROR, error["code"]) if error else Status(StatusCode.OK)
        attributes = {**fields["attributes"], **({"error.type": error["code"]} if error else {})}
        parent = fields["parent"]
        other = header["links"].get("parent_trace_id") if parent is None else None
        self._processor.on_end(
            ReadableSpan(
                name=fields["name"],
                context=_context(trace_id, fields["span_id"]),
                parent=None if parent is None else _context(trace_id, parent),
                resource=_resource(header),
                attributes=attributes,
                events=own,
                links=[Link(_context(other, _root_id(other)))] if other else [],
                kind=SpanKind.CLIENT if record["line"] == "event" else SpanKind.INTERNAL,
                status=status,
                start_time=fields["start"],
                end_time=fields["end"],
                instrumentation_scope=_scope(header),
            )
        )


def without_content(value: Any) -> Any:
    """The JSON value without the keys that contain free text."""
    if isinstance(value, dict):
        return {
            key: without_content(item)
            for key, item in value.items()
            # of an error the code is exported, of failures their codes, ids and number
            if key not in TEXT_KEYS
            or key == "failed"
            or (key == "error" and isinstance(item, dict))
        }
    return [without_content(item) for item in value] if isinstance(value, list) else value


# --- names and values ---------------------------------------------------------------------------


def _root_fields(record: Json) -> Json:
    aggregates, client = record["aggregates"], record.get("client") or {}
    attributes = {
        "openinference.span.kind": "TOOL" if record["trace_type"] == "tool" else "CHAIN",
        "rag.trace_type": record["trace_type"],
        "rag.namespace": record["namespace"],
        "rag.strategy_config_id": record["strategy_config_id"],
        **{f"rag.{key}": value for key, value in record["links"].items() if value},
        **{f"rag.client.{key}": value for key, value in client.items() if value},
        **_flat(record.get("attrs") or {}, "rag."),
        **_flat(aggregates["counters"], "rag.counters."),
    }
    request = (record.get("attrs") or {}).get("request") or {}
    if text := request.get("text"):
        attributes["input.value"] = text
    started = datetime.fromisoformat(record["started_at"])
    return {
        "name": f"rag.{record['trace_type']}",
        "span_id": _root_id(record["trace_id"]),
        "parent": None,
        "attributes": attributes,
        "start": _nanoseconds(started),
        "end": _nanoseconds(started + timedelta(milliseconds=aggregates["latency_ms"])),
    }


def _span_fields(record: Json, events: list[Json], header: Mapping[str, Any]) -> Json:
    operation, kind = _OPERATIONS.get(record["name"], (None, "CHAIN"))
    attributes: Json = {
        "openinference.span.kind": kind,
        **{f"rag.{key}": value for key, value in record["provider"].items() if value},
        **_flat(record.get("attrs") or {}, "rag."),
    }
    if operation is not None:
        attributes["gen_ai.operation.name"] = operation
    if operation == "retrieval":
        attributes |= _retrieval_fields(events, header, kind)
    return {
        "name": record["name"],
        "span_id": record["span_id"],
        "parent": record["parent_span_id"] or _root_id(record["trace_id"]),
        "attributes": attributes,
        "start": _at(header, record["start_ms"]),
        "end": _at(header, record["end_ms"]),
    }


def _retrieval_fields(events: list[Json], header: Mapping[str, Any], kind: str) -> Json:
    found = [
        item
        for event in events
        for name in _LISTS
        for item in (event.get("payload") or {}).get(name) or ()
        if isinstance(item, dict) and "chunk_id" in item
    ][:_RANKED]
    documents = [{"id": item["chunk_id"], "score": item.get("score")} for item in found]
    prefix = "retrieval.documents" if kind == "RETRIEVER" else "reranker.output_documents"
    attributes: Json = {
        "gen_ai.data_source.id": header["namespace"],
        "gen_ai.retrieval.documents": json.dumps(documents),
    }
    for number, item in enumerate(documents):
        attributes[f"{prefix}.{number}.document.id"] = item["id"]
        if item["score"] is not None:
            attributes[f"{prefix}.{number}.document.score"] = item["score"]
    return attributes


def _call_fields(record: Json, header: Mapping[str, Any]) -> Json:
    """A model call, which is an event in our traces and a span in OpenTelemetry."""
    call = record["payload"]
    operation = call.get("operation") or "chat"
    usage, cost = call.get("usage") or {}, call.get("cost")
    values = {
        "openinference.span.kind": "EMBEDDING" if operation == "embeddings" else "LLM",
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": call["provider"],
        "gen_ai.request.model": call["model"],
        "gen_ai.response.model": call.get("model_version") or None,
        "gen_ai.usage.input_tokens": usage.get("input_tokens"),
        "gen_ai.usage.output_tokens": usage.get("output_tokens"),
        "llm.model_name": call["model"],
        "llm.token_count.prompt": usage.get("input_tokens"),
        "llm.token_count.completion": usage.get("output_tokens"),
        "rag.cost": cost,
        "rag.mode": call.get("mode"),
        "rag.retries": call.get("retries"),
        "rag.prompt_profile_id": call.get("prompt_profile_id"),
    }
    return {
        "name": f"{operation} {call['model']}",
        # has the length of a span id, and is as unique
        "span_id": record["event_id"],
        "parent": record["span_id"] or _root_id(record["trace_id"]),
        "attributes": {key: value for key, value in values.items() if value is not None},
        "start": _at(header, record["ts_ms"] - call.get("duration_ms", 0.0)),
        "end": _at(header, record["ts_ms"]),
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Json:
    """OpenTelemetry attributes: values other than scalars and lists of texts become JSON."""
    made: Json = {}
    for key, value in values.items():
        if isinstance(value, (str, int, float, bool)) or (
            isinstance(value, list) and value and all(isinstance(item, str) for item in value)
        ):
            made[prefix + key] = value
        elif value not in (None, [], {}):
            made[prefix + key] = json.dumps(value, ensure_ascii=False)
    return made


def _root_id(trace_id: str) -> str:
    return f"spn_{trace_id[-16:]}"


def _context(trace_id: str, span_id: str) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    numbers = (int(trace_id.partition("_")[2], 16), int(span_id.partition("_")[2], 16))
    return SpanContext(*numbers, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _resource(header: Mapping[str, Any]) -> Any:
    from opentelemetry.sdk.resources import Resource

    build, runtime = header["build"], header["runtime"]
    return Resource(
        {
            "service.name": "rag-platform",
            "service.version": build["app_version"],
            "service.instance.id": f"{runtime['host']}-{runtime['pid']}",
            "host.name": runtime["host"],
            "process.pid": runtime["pid"],
            "deployment.environment.name": str(runtime.get("env", "")),
            "vcs.ref.head.revision": build["git_sha"],
        }
    )


def _scope(header: Mapping[str, Any]) -> Any:
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    return InstrumentationScope("rag_platform", header["build"]["app_version"])


def _at(header: Mapping[str, Any], milliseconds: float) -> int:
    """A time offset of the trace as Unix time in nanoseconds."""
    started = datetime.fromisoformat(header["started_at"])
    return _nanoseconds(started + timedelta(milliseconds=milliseconds))


def _nanoseconds(time: datetime) -> int:
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since // timedelta(microseconds=1)) * 1000
