"""Reads traces: envelopes rebuilt from their lines, users' questions, and a waterfall as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import orjson

from rag_platform.errors import InputError, NotFoundError
from rag_platform.ir import Json
from rag_platform.observability.redaction import ERASED
from rag_platform.observability.trace_store.parts import read_manifest, traces_dir
from rag_platform.observability.trace_store.queries import open_status
from rag_platform.observability.trace_store.tables import as_time, find_lines

_ID = re.compile(r"(?:trc_)?([0-9a-f]{1,32})")
_ENVELOPE_KEYS = tuple(
    "trace_id trace_type status started_at ended_at strategy_config_id namespace build runtime"
    " links client providers attrs aggregates error".split()
)
_ENVELOPE_FIELDS = frozenset(("schema_version", "line", "trace_id", "trace_type"))
_BAR = 32
ENVELOPE_VERSION = 1  # of defaults/schemas/trace_envelope.v1.json


def list_questions(logs_dir: Path, namespace: str, limit: int) -> tuple[list[Json], int]:
    """(requests of at most `limit` different questions to published releases of a namespace, newest
    first; number of traces without the question's text).

    Questions with different filters or modes count as different.
    """
    found: dict[str, Json] = {}
    wordless = 0
    for record in read_questions(logs_dir, namespace):
        request = record.get("attrs", {}).get("request") or {}
        if not request.get("text") or request["text"].startswith(ERASED):
            wordless += 1
            continue
        words = " ".join(request["text"].split()).lower()
        key = json.dumps([words, request.get("filters"), request.get("mode")], sort_keys=True)
        if key not in found or found[key]["asked_at"] < record["started_at"]:
            found[key] = {"asked_at": record["started_at"], **request}
    newest = sorted(found.values(), key=lambda item: str(item["asked_at"]), reverse=True)
    return newest[: max(limit, 0)], wordless


def read_questions(
    logs_dir: Path, namespace: str | None, *, since: datetime | None = None
) -> Iterator[Json]:
    """The last lines of the traces of questions to the published releases of a namespace (None: of
    any namespace).

    With `since`, only those of traces that began on its day or later. A question that names its
    release is an evaluation's and is left out.
    """
    import pyarrow.compute as pc

    first = datetime.min.replace(tzinfo=UTC) if since is None else since.astimezone(UTC)
    first = first.replace(hour=0, minute=0, second=0, microsecond=0)
    condition = (pc.field("trace_type") == "query") & (pc.field("started_at") >= as_time(first))
    for line, _ in find_lines(logs_dir, b'"line":"trace.end"', condition, ["traces"]):
        record = _parse(line)
        if (
            record is not None
            and record.get("trace_type") == "query"
            and namespace in (None, record.get("namespace"))
            and str(record["started_at"]) >= f"{first:%Y-%m-%d}"
            and (record.get("attrs", {}).get("request") or {}).get("release_id") is None
        ):
            yield record


def list_outcomes(logs_dir: Path, namespace: str, *, since: datetime) -> list[Json]:
    """The outcomes of users' questions since `since`, newest first: trace_id, asked_at, text,
    filters, answered, confidence, and how many times it was asked. Equal questions (text and
    filters) are one.

    Questions that failed, asked for hits alone, or whose words were erased are left out; one that
    failed early has no request.
    """
    found: dict[str, Json] = {}
    records = read_questions(logs_dir, namespace, since=since)
    for record in sorted(records, key=lambda item: str(item["started_at"]), reverse=True):
        attrs = record["attrs"]
        request, flags = attrs.get("request") or {}, attrs.get("flags") or {}
        text = str(request.get("text") or "")
        if "answered" not in flags or not text or text.startswith(ERASED):
            continue
        filters = request.get("filters") or {}
        key = json.dumps([" ".join(text.split()).lower(), filters], sort_keys=True)
        outcome = found.setdefault(
            key,
            {
                "trace_id": record["trace_id"],
                "asked_at": record["started_at"],
                "text": text,
                "filters": filters,
                "answered": bool(flags["answered"]),
                "confidence": float(attrs.get("confidence") or 0.0),
                "times": 0,
            },
        )
        outcome["times"] += 1
    return list(found.values())


def show(logs_dir: Path, trace_id: str) -> Json:
    """The envelope of a trace: header, spans by start, events by time, aggregates, and its program
    log.

    The first digits of the id suffice, with or without `trc_`. Raises NotFoundError when nothing
    matches, InputError when it is no id or several traces match.
    """
    import pyarrow.compute as pc

    wanted = _ID.fullmatch(trace_id.strip().lower())
    if wanted is None:
        raise InputError(
            f"{trace_id!r} is no trace id; it looks like trc_ and 32 hex digits, of which the first"
            " few suffice"
        )
    records: dict[str, list[Json]] = {}
    pids: dict[str, int] = {}
    prefix = f"trc_{wanted[1]}"
    needle = f'"trace_id":"{prefix}'.encode()
    for line, pid in find_lines(logs_dir, needle, pc.starts_with(pc.field("trace_id"), prefix)):
        record = _parse(line)
        if record is not None and str(record.get("trace_id", "")).startswith(prefix):
            records.setdefault(record["trace_id"], []).append(record)
            if pid is not None:
                pids[record["trace_id"]] = pid
    if not records:
        raise unknown_trace(trace_id)
    if len(records) > 1:
        raise InputError(
            f"{trace_id!r} matches {len(records)} traces: {', '.join(sorted(records)[:5])}; give"
            " more digits",
            code="ambiguous_trace",
        )
    ((full_id, lines),) = records.items()
    known = read_manifest(traces_dir(logs_dir)).open.get(full_id, {})
    return _envelope(full_id, lines, pids.get(full_id) or known.get("pid", 0))


def unknown_trace(trace_id: str) -> NotFoundError:
    """The error for an unknown trace id."""
    return NotFoundError(
        f"no trace {trace_id[:80]!r}; `rag trace list` shows the known ones", code="unknown_trace"
    )


def waterfall(envelope: Json) -> str:
    """The envelope as text: for each span a line with its bar, time, provider and error, followed
    by its events.
    """
    total = (
        envelope["aggregates"].get("latency_ms")
        or max((item["end_ms"] for item in envelope["spans"]), default=0)
        or 1
    )
    shown = {"namespace": envelope.get("namespace"), "strategy": envelope.get("strategy_config_id")}
    facts = [f"{key}={value or '-'}" for key, value in shown.items()]
    attrs = envelope.get("attrs", {})
    replayed = ("release_id", "effective_mode", "query_hash")
    lines = [
        (
            f"{envelope['trace_id']}  {envelope['trace_type']}  {envelope['status']}  {total:.1f}"
            f" ms  {envelope.get('started_at') or ''}"
        ),
        "  ".join([*facts, *(f"{key}={attrs[key]}" for key in replayed if attrs.get(key))]),
    ]
    if question := (attrs.get("request") or {}).get("text"):
        lines.append(f"question {question}")
    if client := envelope.get("client"):
        lines.append("client " + "  ".join(f"{key}={text}" for key, text in client.items() if text))
    width = max((len(item["name"]) + 2 * item["depth"] for item in envelope["spans"]), default=0)
    event_lines: dict[str | None, list[str]] = {}
    for event in envelope["events"]:
        line = f"· {event['kind']}  {_facts(event['payload'])}"
        event_lines.setdefault(event["span_id"], []).append(line)
    for item in envelope["spans"]:
        start, end = (round(item[key] / total * _BAR) for key in ("start_ms", "end_ms"))
        bar = " " * min(start, _BAR - 1) + "█" * max(1, end - start)
        provider = item["provider"].get("provider_id", "")
        error = (
            f"  {item['error']['code']}: {item['error']['message']}" if item.get("error") else ""
        )
        name = "  " * item["depth"] + item["name"]
        lines.append(
            f"{name:<{width}} |{bar:<{_BAR}.{_BAR}}| {item['duration_ms']:>9.1f} ms "
            f" {provider}{error}".rstrip()
        )
        lines += [f"{'':<{width}}   {line}" for line in event_lines.get(item["span_id"], ())]
    lines += event_lines.get(None, ())
    if counters := envelope["aggregates"].get("counters"):
        lines.append(
            "counters: " + ", ".join(f"{key}={value:g}" for key, value in sorted(counters.items()))
        )
    return "\n".join(lines)


def _parse(line: bytes | str) -> Json | None:
    """The object in a line; None if a full disk or a power cut left the line incomplete."""
    try:
        record = orjson.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _envelope(trace_id: str, lines: Sequence[Json], pid: int) -> Json:
    spans = [_part(item) for item in lines if item["line"] == "span.end"]
    events = [_part(item) for item in lines if item["line"] == "event"]
    ends = [item for item in lines if item["line"] == "trace.end"]
    if ends:
        envelope: Json = {key: ends[-1][key] for key in _ENVELOPE_KEYS if key in ends[-1]}
    else:
        envelope = {
            "trace_id": trace_id,
            "trace_type": next((item["trace_type"] for item in lines if "trace_type" in item), ""),
            "status": open_status(pid),
            "started_at": min(item["ts"] for item in lines),
            "ended_at": None,
            "strategy_config_id": "",
            "namespace": "",
            "build": {},
            "runtime": {"pid": pid},
            "links": {},
            "attrs": {},
            "aggregates": _aggregates(spans),
        }
    envelope = {"schema_version": ENVELOPE_VERSION, **envelope}
    envelope["spans"] = _as_tree(spans)
    envelope["events"] = sorted(events, key=lambda item: item["ts_ms"])
    if evaluated := [item["eval"] for item in lines if item["line"] == "trace.eval"]:
        envelope["eval"] = evaluated[-1]
    envelope["logs"] = [_part(item) for item in lines if item["line"] == "log"]
    return envelope


def _part(record: Json) -> Json:
    """A span, event or log line without the fields of the envelope; a truncated line keeps its
    preview.
    """
    part = {key: value for key, value in record.items() if key not in _ENVELOPE_FIELDS}
    if record["line"] == "span.end":
        part.setdefault("attrs", {"truncated": record.get("preview", "")})
    elif record["line"] == "event":
        part.setdefault("payload", {"truncated": record.get("preview", "")})
    return part


def _aggregates(spans: Sequence[Json]) -> Json:
    stages: dict[str, float] = {}
    for item in spans:
        stages[item["name"]] = round(stages.get(item["name"], 0.0) + item["duration_ms"], 3)
    errors = [{"stage": item["name"], **item["error"]} for item in spans if item.get("error")]
    return {
        "latency_ms": max((item["end_ms"] for item in spans), default=0.0),
        "stage_latency_ms": stages,
        "counters": {},
        "errors": errors,
        "error_count": len(errors),
    }


def _as_tree(spans: Sequence[Json]) -> list[Json]:
    """The spans with their `depth`, each followed by those within it, by start."""
    below: dict[str | None, list[Json]] = {}
    known = {item["span_id"] for item in spans}
    for item in sorted(spans, key=lambda item: (item["start_ms"], -item["end_ms"])):
        parent = item["parent_span_id"]
        below.setdefault(parent if parent in known else None, []).append(item)
    ordered: list[Json] = []
    waiting = [(item, 0) for item in reversed(below.get(None, []))]
    while waiting:
        item, depth = waiting.pop()
        ordered.append({**item, "depth": depth})
        waiting += [(inner, depth + 1) for inner in reversed(below.get(item["span_id"], []))]
    return ordered


def _facts(payload: Json) -> str:
    """The fields of an event's payload in words: lists as their lengths."""
    return "  ".join(
        f"{len(value)} {name}"
        if isinstance(value, list)
        else f"{name}={json.dumps(value, ensure_ascii=False)}"
        for name, value in payload.items()
        if value is not None
    )
