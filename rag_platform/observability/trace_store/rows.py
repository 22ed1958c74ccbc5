"""The tables of the trace store, and the conversion of log lines into their rows.

Each row of `traces`, `spans` and `events` keeps its line as written, so nothing without a column is
lost. `model_calls` repeats figures of events. Times are UTC without a zone. `trace_key` is the end
of the trace id as a number, by which joins take half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from rag_platform.ir import Json
from rag_platform.observability.logs import LOG_SCHEMA_VERSION

_TEXT, _FLOAT, _INT, _BOOL, _TIME, _TEXTS = "text", "float", "int", "bool", "time", "texts"
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "traces": {
        "trace_key": _INT,
        **dict.fromkeys("trace_id trace_type status".split(), _TEXT),
        "started_at": _TIME,
        "ended_at": _TIME,
        "latency_ms": _FLOAT,
        "namespace": _TEXT,
        "namespaces": _TEXTS,  # all namespaces of a question to several
        **dict.fromkeys(
            "strategy_config_id release_id job_id request_id parent_trace_id door client"
            " client_version client_level tool token_id question query_hash state".split(),
            _TEXT,
        ),
        "answered": _BOOL,
        "confidence": _FLOAT,
        "top_score": _FLOAT,
        "cache_hit": _INT,
        "cache_miss": _INT,
        "error_code": _TEXT,
        "error_message": _TEXT,
        "error_count": _INT,
        "pid": _INT,
        "asked_release_id": _TEXT,  # the release that the caller named; users' questions name none
        "stages": _TEXT,  # JSON: milliseconds by stage
        "counters": _TEXT,  # JSON
        "line": _TEXT,
    },
    "spans": {
        "trace_key": _INT,
        **dict.fromkeys("trace_id trace_type span_id parent_span_id name status".split(), _TEXT),
        "ts": _TIME,
        "start_ms": _FLOAT,
        "end_ms": _FLOAT,
        "duration_ms": _FLOAT,
        **dict.fromkeys(
            "provider_type provider_id provider_version profile_id error_code line".split(), _TEXT
        ),
        "cache_hit": _INT,
        "cache_miss": _INT,
    },
    # also evaluations of traces, and the program's log lines that name one
    "events": {
        "trace_key": _INT,
        **dict.fromkeys("trace_id trace_type event_id span_id kind".split(), _TEXT),
        "ts": _TIME,
        "ts_ms": _FLOAT,
        "line": _TEXT,
    },
    "model_calls": {
        "trace_key": _INT,
        **dict.fromkeys(
            "trace_id trace_type span_id provider model model_version mode prompt_profile_id"
            " error_code".split(),
            _TEXT,
        ),
        "ts": _TIME,
        "input_tokens": _INT,
        "output_tokens": _INT,
        "cost": _FLOAT,
        "retries": _INT,
        "duration_ms": _FLOAT,
    },
}
LINE_TABLES = ("traces", "spans", "events")
Values = dict[str, Any]


class Rows:
    """The rows of all tables, parsed from log lines."""

    def __init__(self) -> None:
        self.values: dict[str, list[Values]] = {name: [] for name in COLUMNS}
        self.started: dict[str, Json] = {}  # traces with a line other than their last

    def __len__(self) -> int:
        return sum(len(self.values[name]) for name in LINE_TABLES)

    def add(self, line: bytes, pid: int) -> bool:
        """Add a line of a process's log; False for a line of a later schema version.

        Incomplete lines and lines without a trace make no row.
        """
        try:
            record = orjson.loads(line)
        except ValueError:
            return True
        if not isinstance(record, dict):
            return True
        if record.get("schema_version", LOG_SCHEMA_VERSION) > LOG_SCHEMA_VERSION:
            return False
        table, make = _MAKERS.get(str(record.get("line")), ("", None))
        if make is None or not record.get("trace_id"):
            return True
        values = {
            "trace_key": int(record["trace_id"][-15:], 16),  # 60 bits, for a signed number
            "trace_id": record["trace_id"],
            "trace_type": record.get("trace_type", ""),
            **make(record),
            "line": line.decode("utf-8", "replace").rstrip(),
        }
        self.values[table].append(values)
        if values.get("kind") == "model.call":
            self.values["model_calls"].append(_model_call(record, values))
        if record["line"] in ("span.end", "event"):
            start = {"trace_type": values["trace_type"], "started_at": record["ts"], "pid": pid}
            self.started.setdefault(record["trace_id"], start)
        return True

    def open_traces(self) -> dict[str, Json]:
        """The traces without their last line among these lines, by id."""
        ended = {values["trace_id"] for values in self.values["traces"]}
        return {key: value for key, value in self.started.items() if key not in ended}

    def tables(self, names: Collection[str] = ()) -> dict[str, Any]:
        """The rows as Arrow tables: those in `names`, or all."""
        return {
            name: make_table(name, values)
            for name, values in self.values.items()
            if not names or name in names
        }


def make_table(name: str, values: Iterable[Values]) -> Any:
    """Rows of one table as an Arrow table."""
    import pyarrow as pa

    rows = list(values)
    arrays = []
    for column, kind in COLUMNS[name].items():
        cells = [row.get(column) for row in rows]
        if kind == _TIME:
            # parsing all strings at once is fast; the zone is UTC and can then be dropped
            zoned = pa.array(cells, pa.string()).cast(pa.timestamp("ms", "UTC"))
            arrays.append(zoned.cast(pa.timestamp("ms")))
        else:
            arrays.append(pa.array(cells, _arrow(kind)))
    return pa.table(arrays, schema=arrow_schema(name))


def arrow_schema(name: str) -> Any:
    """The Arrow schema of a table."""
    import pyarrow as pa

    return pa.schema([(column, _arrow(kind)) for column, kind in COLUMNS[name].items()])


def time_column(name: str) -> str:
    """The name of a table's time column."""
    return "started_at" if "started_at" in COLUMNS[name] else "ts"


def naive_utc(time: datetime) -> datetime:
    """A time in UTC without its zone, as in the tables."""
    return time.astimezone(UTC).replace(tzinfo=None)


def _arrow(kind: str) -> Any:
    import pyarrow as pa

    return {
        _TEXT: pa.string(),
        _FLOAT: pa.float64(),
        _INT: pa.int64(),
        _BOOL: pa.bool_(),
        _TIME: pa.timestamp("ms"),
        _TEXTS: pa.list_(pa.string()),
    }[kind]


# --- one line -----------------------------------------------------------------------------------


def trace_facts(record: Json) -> Values:
    """The descriptive columns of a trace, from its last line or envelope."""
    attrs, links = record.get("attrs") or {}, record.get("links") or {}
    client, flags = record.get("client") or {}, attrs.get("flags") or {}
    return {
        "trace_id": record["trace_id"],
        "release_id": attrs.get("release_id"),
        "job_id": links.get("job_id"),
        "request_id": links.get("request_id"),
        "parent_trace_id": links.get("parent_trace_id"),
        "door": client.get("door"),
        "client": client.get("name"),
        "client_version": client.get("version"),
        "client_level": client.get("client_level"),
        "tool": client.get("tool"),
        "question": (attrs.get("request") or {}).get("text"),
        "state": flags.get("state"),
        "answered": flags.get("answered"),
        "confidence": attrs.get("confidence"),
    }


def _trace(record: Json) -> Values:
    attrs, aggregates = record.get("attrs") or {}, record.get("aggregates") or {}
    request, error = attrs.get("request") or {}, record.get("error") or {}
    counters = aggregates.get("counters") or {}
    hit, miss = _cache({**attrs, **counters})
    namespace = record.get("namespace") or ""
    return {
        **trace_facts(record),
        "status": record.get("status", ""),
        "started_at": _time(record.get("started_at") or record["ts"]),
        "ended_at": _time(record.get("ended_at") or record["ts"]),
        "latency_ms": aggregates.get("latency_ms"),
        "namespace": namespace,
        "namespaces": sorted({namespace, *(request.get("namespaces") or ())}),
        "strategy_config_id": record.get("strategy_config_id", ""),
        "token_id": (record.get("client") or {}).get("token_id"),
        "query_hash": attrs.get("query_hash"),
        "top_score": attrs.get("top_score"),
        "cache_hit": hit,
        "cache_miss": miss,
        "error_code": error.get("code"),
        "error_message": error.get("message"),
        "error_count": aggregates.get("error_count", 0),
        "asked_release_id": request.get("release_id"),
        "pid": (record.get("runtime") or {}).get("pid"),
        "stages": orjson.dumps(aggregates.get("stage_latency_ms") or {}).decode(),
        "counters": orjson.dumps(counters).decode(),
    }


def _cache(figures: Json) -> tuple[int | None, int | None]:
    """(hits, misses) of a cache; None if no cache was used."""
    found, missed = figures.get("cache_hit"), figures.get("cache_miss")
    if isinstance(found, bool):
        return int(found), int(not found)
    if found is None and missed is None:
        return None, None
    return int(found or 0), int(missed or 0)


def _span(record: Json) -> Values:
    provider, (hit, miss) = record.get("provider") or {}, _cache(record.get("attrs") or {})
    return {
        **_pick(record, "span_id", "parent_span_id", "start_ms", "end_ms", "duration_ms"),
        "name": record.get("name", ""),
        "status": record.get("status", ""),
        "ts": _time(record["ts"]),
        **_pick(provider, "provider_type", "provider_id", "provider_version", "profile_id"),
        "error_code": (record.get("error") or {}).get("code"),
        "cache_hit": hit,
        "cache_miss": miss,
    }


def _event(record: Json) -> Values:
    return {
        **_pick(record, "event_id", "span_id", "ts_ms"),
        "kind": record.get("kind") or record["line"],
        "ts": _time(record["ts"]),
    }


def _model_call(record: Json, event: Values) -> Values:
    call = record.get("payload") or {}
    return {
        **_pick(event, "trace_key", "trace_id", "trace_type", "span_id", "ts"),
        **_pick(call, "provider", "model", "model_version", "mode", "prompt_profile_id"),
        **_pick(call, "cost", "retries", "duration_ms"),
        **_pick(call.get("usage") or {}, "input_tokens", "output_tokens"),
        "error_code": (call.get("error") or {}).get("code"),
    }


def _pick(values: Json, *keys: str) -> Values:
    return {key: values.get(key) for key in keys}


def _time(text: str) -> str:
    """A time with any offset, in the only format that Arrow parses."""
    if text.endswith("Z"):
        return text
    return datetime.fromisoformat(text).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# the table and the columns besides those of the trace, by the kind of line
_MAKERS: Mapping[str, tuple[str, Callable[[Json], Values]]] = {
    "trace.end": ("traces", _trace),
    "span.end": ("spans", _span),
    "event": ("events", _event),
    "trace.eval": ("events", _event),
    "log": ("events", _event),
}
