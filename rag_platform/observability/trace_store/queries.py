"""What is asked of the traces: a page of them, newest first, and figures over many."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rag_platform.ir import Json
from rag_platform.observability.trace_store.tables import Tables, open_tables

# Of a summary, in this order; what has no last line yet has the first three.
_COLUMNS = (
    "trace_id trace_type started_at status ended_at latency_ms namespace namespaces"
    " strategy_config_id release_id job_id request_id parent_trace_id door client client_version"
    " client_level tool question state answered confidence error_code error_message error_count"
    " stages counters"
).split()
_OPEN = ("running", "unfinished")
_RELATED = 1000  # of one relation at most
_PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Which traces are meant; what is left out does not limit them."""

    kinds: Sequence[str] = ()  # query, ingestion, tool, command, evaluation
    namespace: str | None = None
    statuses: Sequence[str] = ()  # ok, error, running, unfinished
    since: datetime | None = None
    until: datetime | None = None
    strategy_config_id: str | None = None
    client: str | None = None  # its name, or its door: cli, mcp, web
    words: str | None = None  # each stands in the question
    min_latency_ms: float | None = None
    max_latency_ms: float | None = None
    min_confidence: float | None = None
    max_confidence: float | None = None
    job_id: str | None = None
    # questions of users alone: those of evaluations name the release they ask
    published: bool = False
    # of which the asker may see some; None: all. A trace of several needs all of them
    visible: frozenset[str] | None = None


def list_traces(
    logs_dir: Path,
    where: TraceFilter = TraceFilter(),
    *,
    limit: int = 20,
    after: tuple[datetime, str] | None = None,
) -> tuple[list[Json], tuple[str, ...]]:
    """(at most `limit` summaries, newest first, that come `after` a (started_at, trace_id), what
    could not be read).

    A trace without its last line is `running` while its process lives, else `unfinished`. An absent
    folder has no traces.
    """
    with open_tables(logs_dir, where.since) as tables:
        condition, values = conditions(where)
        if after is not None:
            condition += " AND (started_at, trace_id) < (?, ?)"
            values += [_naive(after[0]), after[1]]
        order = "ORDER BY started_at DESC, trace_id DESC LIMIT ?"
        found = tables.select(
            f"SELECT {', '.join(_COLUMNS)} FROM traces WHERE {condition} {order}",
            [*values, limit],
        )
        begun = _list_open(tables, where, after)
    rows = [_summary(row) for row in (*found, *begun)]
    rows.sort(key=lambda row: (row["started_at"], row["trace_id"]), reverse=True)
    return rows[:limit], tables.warnings


def list_related(logs_dir: Path, envelope: Json, visible: frozenset[str] | None) -> Json:
    """Summaries of the traces that a trace belongs to: `parent`, `children`, `job` (the others of
    its job), oldest first.
    """
    links, own = envelope.get("links") or {}, envelope["trace_id"]
    condition, values = conditions(TraceFilter(visible=visible))
    with open_tables(logs_dir) as tables:

        def find(other: str, value: str | None) -> list[Json]:
            if not value:
                return []
            rows = tables.select(
                f"SELECT {', '.join(_COLUMNS)} FROM traces WHERE {condition} AND {other} = ?"
                " AND trace_id <> ? ORDER BY started_at, trace_id LIMIT ?",
                [*values, value, own, _RELATED],
            )
            return [_summary(row) for row in rows]

        return {
            "parent": next(iter(find("trace_id", links.get("parent_trace_id"))), None),
            "children": find("parent_trace_id", own),
            "job": find("job_id", links.get("job_id")),
        }


def _list_open(
    tables: Tables, where: TraceFilter, after: tuple[datetime, str] | None
) -> list[Json]:
    """The traces without a last line that the filter lets through; nothing but their type, time and
    process is known.
    """
    if where.visible is not None or not _only_open_facts(where):
        return []
    found = []
    for row in tables.select("SELECT * FROM open_traces"):
        row["status"] = open_status(row.pop("pid"))
        started = row["started_at"]
        if (
            (not where.kinds or row["trace_type"] in where.kinds)
            and (not where.statuses or row["status"] in where.statuses)
            and (where.since is None or started >= _naive(where.since))
            and (where.until is None or started < _naive(where.until))
            and (after is None or (started, row["trace_id"]) < (_naive(after[0]), after[1]))
        ):
            found.append(row)
    return found


def _only_open_facts(where: TraceFilter) -> bool:
    """True where the filter asks for nothing that only a last line tells."""
    return (
        not any(
            value is not None
            for value in (
                where.namespace,
                where.strategy_config_id,
                where.client,
                where.words,
                where.min_latency_ms,
                where.max_latency_ms,
                where.min_confidence,
                where.max_confidence,
                where.job_id,
            )
        )
        and not where.published
    )


def conditions(where: TraceFilter) -> tuple[str, list[Any]]:
    """A filter as an SQL condition on `traces`, with its values."""
    parts: list[str] = ["true"]
    values: list[Any] = []

    def add(condition: str, *given: Any) -> None:
        parts.append(condition)
        values.extend(given)

    for condition, value in (
        ("started_at >= ?", where.since and _naive(where.since)),
        ("started_at < ?", where.until and _naive(where.until)),
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
    """A row for callers: times as text, what is JSON as such."""
    made = {name: row.get(name) for name in _COLUMNS}
    for name in ("started_at", "ended_at"):
        made[name] = time_text(row[name]) if row.get(name) is not None else None
    made["stages"] = json.loads(made["stages"] or "{}")
    made["counters"] = json.loads(made["counters"] or "{}")
    code, message = made.pop("error_code"), made.pop("error_message")
    made["error"] = {"code": code, "message": message} if code else None
    made["namespace"], made["namespaces"] = made["namespace"] or "", made["namespaces"] or []
    return made


# --- figures over many traces -------------------------------------------------------------------


def measure(logs_dir: Path, where: TraceFilter) -> Json:
    """Figures over the traces that are meant: `kinds` (how many, failed, latency), `stages`,
    `caches`, `model_calls`.
    """
    percentiles = ", ".join(
        f"quantile_cont({{0}}, {share}) AS {name}" for name, share in _PERCENTILES.items()
    )
    with open_tables(logs_dir) as tables:
        choose(tables, where)
        kinds = tables.select(
            "SELECT trace_type, count(*) AS count, count(*) FILTER (status = 'error') AS failed,"
            f" avg(latency_ms) AS mean_ms, {percentiles.format('latency_ms')}"
            " FROM chosen GROUP BY ALL ORDER BY trace_type"
        )
        stages = tables.select(
            "SELECT trace_type, name AS stage, count(*) AS count,"
            " count(*) FILTER (status = 'error') AS failed, avg(duration_ms) AS mean_ms,"
            f" sum(duration_ms) AS total_ms, {percentiles.format('duration_ms')}"
            f" FROM spans{_joined(where)} GROUP BY ALL ORDER BY trace_type, total_ms DESC"
        )
        caches = tables.select(
            "SELECT name AS cache, sum(cache_hit)::BIGINT AS hits, sum(cache_miss)::BIGINT AS"
            f" misses FROM (SELECT name, cache_hit, cache_miss FROM spans{_joined(where)}"
            " UNION ALL SELECT 'retrieval', cache_hit, cache_miss FROM chosen"
            " WHERE trace_type = 'query') WHERE cache_hit IS NOT NULL GROUP BY ALL ORDER BY cache"
        )
        calls = tables.select(
            "SELECT provider, model, count(*) AS calls,"
            " count(*) FILTER (error_code IS NOT NULL) AS failed,"
            " sum(retries)::BIGINT AS retries, sum(input_tokens)::BIGINT AS input_tokens,"
            " sum(output_tokens)::BIGINT AS output_tokens, sum(cost) AS cost,"
            f" {percentiles.format('duration_ms')} FROM model_calls{_joined(where)}"
            " GROUP BY ALL ORDER BY provider, model"
        )
        day, warnings = _last_day(tables, where), list(tables.warnings)
    for row in (*kinds, *stages):
        row["failed_share"] = row["failed"] / row["count"]
    for row in caches:
        row["hit_rate"] = row["hits"] / max(row["hits"] + row["misses"], 1)
    return {
        "kinds": [_round(row) for row in kinds],
        "stages": [_round(row) for row in stages],
        "caches": [_round(row) for row in caches],
        "model_calls": [_round(row) for row in calls],
        "last_24h": day,
        "warnings": warnings,
    }


def choose(tables: Tables, where: TraceFilter) -> None:
    """Make `chosen`, a table of the traces that are meant."""
    condition, values = conditions(where)
    tables.connection.execute(
        "CREATE TEMP TABLE chosen AS SELECT trace_id, trace_type, status, latency_ms, cache_hit,"
        f" cache_miss FROM traces WHERE {condition}",
        values,
    )


def _last_day(tables: Tables, where: TraceFilter) -> Json:
    """Traces by type, how many failed, and the sums of the counters of ingestion."""
    since = datetime.now(UTC) - timedelta(hours=24)
    condition, values = conditions(replace(where, since=since, until=None))
    kinds = tables.select(
        "SELECT trace_type, count(*) AS count, count(*) FILTER (status = 'error') AS failed"
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


def _joined(where: TraceFilter) -> str:
    """The condition that keeps the rows of the traces meant."""
    if where == TraceFilter():
        return ""
    limits = " SEMI JOIN chosen USING (trace_id)"
    if where.since is not None:  # blocks of earlier rows are skipped
        limits += f" WHERE ts >= TIMESTAMP '{_naive(where.since).isoformat()}'"
    return limits


def _round(row: Mapping[str, Any]) -> Json:
    return {
        name: round(value, 6 if name == "cost" else 4 if name.endswith(("rate", "share")) else 3)
        if isinstance(value, float)
        else value
        for name, value in row.items()
    }


def open_status(pid: int) -> str:
    """The status of a trace without its last line, by the process that writes it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "unfinished"
    except OSError:  # another user's process, or no such call here: it may be alive
        return "running"
    return "running"


def time_text(time: datetime) -> str:
    """A time of the tables as traces write it."""
    return f"{time.isoformat(timespec='milliseconds')}Z"


def _naive(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(tzinfo=None)
