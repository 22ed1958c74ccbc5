"""Figures over many traces: percentiles of stages, failures, caches, and what models cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rag_platform.ir import Json
from rag_platform.observability.trace_store.queries import TraceFilter, choose, conditions
from rag_platform.observability.trace_store.rows import naive
from rag_platform.observability.trace_store.tables import Tables, open_tables

_PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
_FAILED = "count(*) FILTER (status = 'error') AS failed"
_SUMS = ("retries", "input_tokens", "output_tokens")


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
