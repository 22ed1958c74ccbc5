"""Pages of the traces that match a filter, newest first, the traces related to one, exports to
Parquet or JSON lines, and figures: percentiles of stages, failures, caches, and what models cost.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from rag_platform.errors import InputError, NotFoundError
from rag_platform.ir import Json
from rag_platform.observability.trace_store.rows import COLUMNS, naive, time_column
from rag_platform.observability.trace_store.tables import Tables, open_tables, quote
from rag_platform.storage.store import atomic_path

# Columns of a summary, in this order; an unfinished trace has only the first three.
_COLUMNS = (
    "trace_id trace_type started_at status ended_at latency_ms namespace namespaces"
    " strategy_config_id release_id job_id request_id parent_trace_id door client client_version"
    " client_level tool question state answered confidence error_code error_message error_count"
    " stages counters"
).split()
_RELATED = 1000  # traces at most
FORMATS = {"parquet": "FORMAT parquet, COMPRESSION zstd", "jsonl": "FORMAT json"}  # of exports
# the column with the fields of a line that have no column of their own
_REST = {"traces": "attrs", "spans": "attrs", "events": "payload"}
_PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
_FAILED = "count(*) FILTER (status = 'error') AS failed"
_SUMS = ("retries", "input_tokens", "output_tokens")
TraceType = Literal["query", "ingestion", "tool", "command", "evaluation"]
Status = Literal["ok", "error", "running", "unfinished"]


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Conditions on traces; an empty field is no condition."""

    kinds: Sequence[str] = ()  # each a TraceType
    namespace: str | None = None
    statuses: Sequence[str] = ()  # each a Status
    since: datetime | None = None
    until: datetime | None = None
    strategy_config_id: str | None = None
    client: str | None = None  # its name, or its door: cli, mcp, web
    words: str | None = None  # all must occur in the question
    min_latency_ms: float | None = None
    max_latency_ms: float | None = None
    min_confidence: float | None = None
    max_confidence: float | None = None
    job_id: str | None = None
    # only users' questions; those of evaluations name a release
    published: bool = False
    # the namespaces that the caller may see; None: all. All of a trace's must be among them
    visible: frozenset[str] | None = None


def list_traces(
    logs_dir: Path,
    where: TraceFilter = TraceFilter(),
    *,
    limit: int = 20,
    after: tuple[datetime, str] | None = None,
) -> tuple[list[Json], tuple[str, ...]]:
    """(at most `limit` summaries, newest first, that follow `after`, a (started_at, trace_id);
    warnings about unreadable lines).

    A trace without its last line is `running` while its process lives, else `unfinished`. An absent
    folder has no traces.
    """
    with open_tables(logs_dir, where.since) as tables:
        condition, values = conditions(where)
        if after is not None:
            condition += " AND (started_at, trace_id) < (?, ?)"
            values += [naive(after[0]), after[1]]
        order = "ORDER BY started_at DESC, trace_id DESC LIMIT ?"
        found = tables.select(
            f"SELECT {', '.join(_COLUMNS)} FROM traces WHERE {condition} {order}", [*values, limit]
        )
        begun = _list_open(tables, where, after)
    rows = [_summary(row) for row in (*found, *begun)]
    rows.sort(key=lambda row: (row["started_at"], row["trace_id"]), reverse=True)
    return rows[:limit], tables.warnings


def list_related(logs_dir: Path, envelope: Json, visible: frozenset[str] | None) -> Json:
    """Summaries of related traces, oldest first: `parent`, `children`, and `job`, the others of its
    job.
    """
    links, own = envelope.get("links") or {}, envelope["trace_id"]
    parent, job = links.get("parent_trace_id"), links.get("job_id")
    condition, values = conditions(TraceFilter(visible=visible))
    with open_tables(logs_dir, names=["traces"]) as tables:
        rows = tables.select(
            f"SELECT {', '.join(_COLUMNS)} FROM traces WHERE {condition}"
            " AND (trace_id = ? OR parent_trace_id = ? OR job_id = ?) AND trace_id <> ?"
            " ORDER BY started_at, trace_id LIMIT ?",
            [*values, parent, own, job, own, _RELATED],
        )
    found = [_summary(row) for row in rows]
    return {
        "parent": next((row for row in found if row["trace_id"] == parent), None),
        "children": [row for row in found if row["parent_trace_id"] == own],
        "job": [row for row in found if job and row["job_id"] == job],
    }


def _list_open(
    tables: Tables, where: TraceFilter, after: tuple[datetime, str] | None
) -> list[Json]:
    """The unfinished traces that match the filter; only their type, time and process are known."""
    others = replace(where, kinds=(), statuses=(), since=None, until=None)
    if others != TraceFilter():
        return []
    found = []
    for row in tables.select("SELECT * FROM open_traces"):
        row["status"] = open_status(row.pop("pid"))
        started = row["started_at"]
        if (
            (not where.kinds or row["trace_type"] in where.kinds)
            and (not where.statuses or row["status"] in where.statuses)
            and (where.since is None or started >= naive(where.since))
            and (where.until is None or started < naive(where.until))
            and (after is None or (started, row["trace_id"]) < (naive(after[0]), after[1]))
        ):
            found.append(row)
    return found


def conditions(where: TraceFilter) -> tuple[str, list[Any]]:
    """A filter as an SQL condition on `traces`, with its values."""
    parts: list[str] = ["true"]
    values: list[Any] = []

    def add(condition: str, *given: Any) -> None:
        parts.append(condition)
        values.extend(given)

    for condition, value in (
        ("started_at >= ?", where.since and naive(where.since)),
        ("started_at < ?", where.until and naive(where.until)),
        ("list_contains(namespaces, ?)", where.namespace),
        ("strategy_config_id = ?", where.strategy_config_id),
        ("job_id = ?", where.job_id),
        ("latency_ms >= ?", where.min_latency_ms),
        ("latency_ms <= ?", where.max_latency_ms),
        ("confidence >= ?", where.min_confidence),
        ("confidence <= ?", where.max_confidence),
    ):
        if value is not None:
            add(condition, value)
    if where.client is not None:
        add("? IN (lower(client), lower(door))", where.client.lower())
    for word in (where.words or "").split():
        add("contains(lower(question), ?)", word.lower())
    if where.kinds:
        add("list_contains(?, trace_type)", list(where.kinds))
    if where.statuses:
        add("list_contains(?, status)", list(where.statuses))
    if where.published:
        add("asked_release_id IS NULL")
    if where.visible is not None:
        add("list_has_all(?::VARCHAR[], namespaces)", sorted(where.visible))
    return " AND ".join(parts), values


def _summary(row: Json) -> Json:
    """A row for callers, with times as text and JSON columns parsed."""
    made = {name: row.get(name) for name in _COLUMNS}
    for name in ("started_at", "ended_at"):
        if (time := row.get(name)) is not None:
            made[name] = f"{time.isoformat(timespec='milliseconds')}Z"
    made["stages"] = json.loads(made["stages"] or "{}")
    made["counters"] = json.loads(made["counters"] or "{}")
    code, message = made.pop("error_code"), made.pop("error_message")
    made["error"] = {"code": code, "message": message} if code else None
    made["namespace"], made["namespaces"] = made["namespace"] or "", made["namespaces"] or []
    return made


def choose(tables: Tables, where: TraceFilter) -> None:
    """Create `chosen`, a table of the selected traces."""
    condition, values = conditions(where)
    tables.connection.execute(
        "CREATE TEMP TABLE chosen AS SELECT trace_key, trace_type, status, latency_ms, cache_hit,"
        f" cache_miss FROM traces WHERE {condition}",
        values,
    )


def open_status(pid: int) -> str:
    """The status of an unfinished trace, by whether its process is alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "unfinished"
    except OSError:  # another user's process, or no such call here: it may be alive
        return "running"
    return "running"


def export(logs_dir: Path, where: TraceFilter, target: Path, form: str) -> dict[str, int]:
    """Export the selected ended traces, with their spans, events and model calls, into a folder.
    Returns the number of rows by file; `attrs` and `payload` are JSON. Raises NotFoundError when no
    trace is selected, InputError when a file of that name exists.
    """
    counts: dict[str, int] = {}
    with open_tables(logs_dir, where.since) as tables:
        choose(tables, where)
        if not tables.select("SELECT 1 FROM chosen LIMIT 1"):
            raise NotFoundError(
                "no trace that ended is as the filters say; `rag trace list` shows those there are",
                code="no_traces",
            )
        for name in COLUMNS:
            path = target / f"{name}.{form}"
            if path.exists():
                raise InputError(
                    f"{path} is there already; name another folder, or remove it",
                    code="file_exists",
                )
            rest = _REST.get(name)
            columns = "*" if rest is None else f"* EXCLUDE (line), line->'$.{rest}' AS {rest}"
            with atomic_path(path) as temporary:
                ((count,),) = tables.connection.execute(
                    f"COPY (SELECT {columns} FROM {name} SEMI JOIN chosen USING (trace_key)"
                    f" ORDER BY {time_column(name)}) TO {quote(temporary)} ({FORMATS[form]})"
                ).fetchall()
            counts[path.name] = count
    return counts


# --- figures ------------------------------------------------------------------------------------


def measure(logs_dir: Path, where: TraceFilter) -> Json:
    """Figures over the selected traces: `kinds` (count, failures, latency), `stages`, `caches`,
    `model_calls`, `last_24h`; and `warnings` about files that could not be read.
    """
    with open_tables(logs_dir) as tables:
        choose(tables, where)
        kinds = tables.select(
            f"SELECT trace_type, count(*) AS count, {_FAILED}, avg(latency_ms) AS mean_ms,"
            f" {_quantiles('latency_ms')}, sum(cache_hit)::BIGINT AS hits,"
            " sum(cache_miss)::BIGINT AS misses FROM chosen GROUP BY ALL ORDER BY trace_type"
        )
        stages = tables.select(
            f"SELECT trace_type, name AS stage, count(*) AS count, {_FAILED},"
            f" avg(duration_ms) AS mean_ms, sum(duration_ms) AS total_ms,"
            f" {_quantiles('duration_ms')}, sum(cache_hit)::BIGINT AS hits,"
            f" sum(cache_miss)::BIGINT AS misses FROM spans{_write_condition(where)}"
            " GROUP BY ALL ORDER BY trace_type, total_ms DESC"
        )
        sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in _SUMS)
        calls = tables.select(
            "SELECT provider, model, count(*) AS calls, count(error_code) AS failed,"
            f" {sums}, sum(cost) AS cost, {_quantiles('duration_ms')}"
            f" FROM model_calls{_write_condition(where)} GROUP BY ALL ORDER BY provider, model"
        )
        day, warnings = _last_day(tables, where), list(tables.warnings)
    caches = _caches(kinds, stages)
    return {
        "kinds": [_add_failed_share(row) for row in kinds],
        "stages": [_add_failed_share(row) for row in stages],
        "caches": caches,
        "model_calls": [_name_quantiles(row) for row in calls],
        "last_24h": day,
        "warnings": warnings,
    }


def _quantiles(column: str) -> str:
    return f"quantile_cont({column}, {list(_PERCENTILES.values())}) AS quantiles"


def _write_condition(where: TraceFilter) -> str:
    """The SQL that limits a table to these traces; its time condition skips older row groups."""
    if where == TraceFilter():
        return ""
    meant = " SEMI JOIN chosen USING (trace_key)"
    if where.since is not None:
        meant += f" WHERE ts >= TIMESTAMP '{naive(where.since).isoformat()}'"
    return meant


def _caches(kinds: Sequence[Json], stages: Sequence[Json]) -> list[Json]:
    """Hits and misses by stage; `retrieval` has those of whole questions."""
    found: dict[str, list[int]] = {}
    asked = [("retrieval", row) for row in kinds if row["trace_type"] == "query"]
    for name, row in (*asked, *((row["stage"], row) for row in stages)):
        if row["hits"] is not None:
            known = found.setdefault(name, [0, 0])
            known[0] += row["hits"]
            known[1] += row["misses"]
    return [
        {
            "cache": name,
            "hits": hits,
            "misses": misses,
            "hit_rate": round(hits / max(hits + misses, 1), 4),
        }
        for name, (hits, misses) in sorted(found.items())
    ]


def _last_day(tables: Tables, where: TraceFilter) -> Json:
    """Numbers of traces and of failed ones by type, and the sums of the ingestion counters."""
    since = datetime.now(UTC) - timedelta(hours=24)
    condition, values = conditions(replace(where, since=since, until=None))
    kinds = tables.select(
        f"SELECT trace_type, count(*) AS count, {_FAILED}"
        f" FROM traces WHERE {condition} GROUP BY ALL ORDER BY trace_type",
        values,
    )
    counters: Counter[str] = Counter()
    for row in tables.select(
        f"SELECT counters FROM traces WHERE {condition} AND trace_type = 'ingestion'", values
    ):
        counters.update(json.loads(row["counters"]))
    return {
        "counts": {row["trace_type"]: row["count"] for row in kinds},
        "failed": {row["trace_type"]: row["failed"] for row in kinds},
        "counters": dict(counters),
    }


def _add_failed_share(row: Mapping[str, Any]) -> Json:
    """A row with `failed_share` and named quantiles, without its cache figures."""
    kept = {name: value for name, value in row.items() if name not in ("hits", "misses")}
    return {**_name_quantiles(kept), "failed_share": round(row["failed"] / row["count"], 4)}


def _name_quantiles(row: Mapping[str, Any]) -> Json:
    """A row with its quantiles by name and rounded numbers."""
    quantiles = row["quantiles"] or [None] * len(_PERCENTILES)
    named = {name: row[name] for name in row if name != "quantiles"}
    named |= dict(zip(_PERCENTILES, quantiles, strict=True))
    return {
        name: round(value, 6 if name == "cost" else 3) if isinstance(value, float) else value
        for name, value in named.items()
    }
