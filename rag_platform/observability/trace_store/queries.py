"""Pages of the traces that match a filter, newest first, the traces related to one, exports to
Parquet or JSON lines, and figures: percentiles of stages, failures, caches, and what models cost.
"""

from __future__ import annotations

import functools
import json
import operator
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from rag_platform.errors import InputError, NotFoundError
from rag_platform.ir import Json
from rag_platform.observability.trace_store.rows import COLUMNS, naive_utc, time_column
from rag_platform.observability.trace_store.tables import (
    Tables,
    as_time,
    is_one_of,
    is_within_times,
    open_tables,
)
from rag_platform.storage.store import atomic_path

if TYPE_CHECKING:
    from pyarrow import Table
    from pyarrow.compute import Expression

# Columns of a summary, in this order; an unfinished trace has only the first three.
_COLUMNS = (
    "trace_id trace_type started_at status ended_at latency_ms namespace namespaces"
    " strategy_config_id release_id job_id request_id parent_trace_id door client client_version"
    " client_level tool question state answered confidence error_code error_message error_count"
    " stages counters"
).split()
_RELATED = 1000  # traces at most
# the column with the fields of a line that have no column of their own
_REST = {"traces": "attrs", "spans": "attrs", "events": "payload"}
_PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
_COUNTED = ["trace_key", "trace_type", "status", "cache_hit", "cache_miss"]
# figures by name: column, and Arrow's function on it
_FIGURES = {
    "count": ("trace_key", "count"),
    "failed": ("failed", "sum"),
    "mean_ms": ("duration_ms", "mean"),
    "hits": ("cache_hit", "sum"),
    "misses": ("cache_miss", "sum"),
}
_CALL_KEYS = ["trace_key", "provider", "model", "error_code"]
_CALL_SUMS = ["retries", "input_tokens", "output_tokens", "cost"]
_CALL_FIGURES = {
    "calls": ("trace_key", "count"),
    "failed": ("error_code", "count"),
    **{name: (name, "sum") for name in _CALL_SUMS},
}
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
    import pyarrow.compute as pc

    tables = open_tables(logs_dir, where.since)
    condition = None
    if after is not None:
        started, trace_id = pc.field("started_at"), pc.field("trace_id")
        time, last = as_time(after[0]), after[1]
        condition = (started < time) | ((started == time) & (trace_id < last))
    chosen = _choose(tables, where, ["started_at", "trace_id"], condition)
    order = [("started_at", "descending"), ("trace_id", "descending")]
    chosen = chosen.take(pc.select_k_unstable(chosen, limit, order))
    rows = [*_summarise(tables, chosen), *map(_summary, _list_open(tables, where, after))]
    rows.sort(key=lambda row: (row["started_at"], row["trace_id"]), reverse=True)
    return rows[:limit], tables.warnings


def list_related(logs_dir: Path, envelope: Json, visible: frozenset[str] | None) -> Json:
    """Summaries of related traces, oldest first: `parent`, `children`, and `job`, the others of its
    job.
    """
    import pyarrow.compute as pc

    links, own = envelope.get("links") or {}, envelope["trace_id"]
    parent, job = links.get("parent_trace_id"), links.get("job_id")
    trace_id = pc.field("trace_id")
    related = pc.field("parent_trace_id") == own
    for column, value in ((trace_id, parent), (pc.field("job_id"), job)):
        related = related if value is None else related | (column == value)
    tables = open_tables(logs_dir, names=["traces"])
    where = TraceFilter(visible=visible)
    chosen = _choose(tables, where, ["started_at", "trace_id"], related & (trace_id != own))
    oldest = [("started_at", "ascending"), ("trace_id", "ascending")]
    found = _summarise(tables, chosen.take(pc.select_k_unstable(chosen, _RELATED, oldest)))
    found.sort(key=lambda row: (row["started_at"], row["trace_id"]))
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
    for row in tables.open_traces():
        row["status"] = open_status(row.pop("pid"))
        started = row["started_at"]
        if (
            (not where.kinds or row["trace_type"] in where.kinds)
            and (not where.statuses or row["status"] in where.statuses)
            and (where.since is None or started >= naive_utc(where.since))
            and (where.until is None or started < naive_utc(where.until))
            and (after is None or (started, row["trace_id"]) < (naive_utc(after[0]), after[1]))
        ):
            found.append(row)
    return found


def _choose(
    tables: Tables, where: TraceFilter, columns: Sequence[str], condition: Expression | None = None
) -> Table:
    """The columns of the traces that match the filter and the condition."""
    expressions = [*_conditions(where), *([] if condition is None else [condition])]
    met = functools.reduce(operator.and_, expressions) if expressions else None
    if where.namespace is None and where.visible is None:
        return tables.read("traces", columns, met)
    found = tables.read("traces", [*columns, "namespaces"], met)
    matching = _match_namespaces(found["namespaces"].combine_chunks(), where)
    return found.select(columns).filter(matching)


def _match_namespaces(namespaces: Any, where: TraceFilter) -> Any:
    """For each list of namespaces whether the filter's is in it, and whether the caller may see
    all of them.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    names, rows = pc.list_flatten(namespaces), pc.list_parent_indices(namespaces).to_numpy()
    matching = namespaces.is_valid().to_numpy(zero_copy_only=False)
    if where.namespace is not None:
        named = np.zeros(len(namespaces), bool)
        named[rows[pc.equal(names, where.namespace).to_numpy(zero_copy_only=False)]] = True
        matching &= named
    if where.visible is not None:
        seen = pc.is_in(names, pa.array(sorted(where.visible), pa.string()))
        matching[rows[~seen.to_numpy(zero_copy_only=False)]] = False
    return pa.array(matching)


def _conditions(where: TraceFilter) -> list[Expression]:
    """The conditions of a filter, without those on the namespaces of a trace."""
    import pyarrow.compute as pc

    field = pc.field
    found = [
        compare(field(column), value)
        for column, compare, value in (
            ("started_at", operator.ge, where.since and as_time(where.since)),
            ("started_at", operator.lt, where.until and as_time(where.until)),
            ("strategy_config_id", operator.eq, where.strategy_config_id),
            ("job_id", operator.eq, where.job_id),
            ("latency_ms", operator.ge, where.min_latency_ms),
            ("latency_ms", operator.le, where.max_latency_ms),
            ("confidence", operator.ge, where.min_confidence),
            ("confidence", operator.le, where.max_confidence),
        )
        if value is not None
    ]
    if where.client is not None:
        name = where.client.lower()
        client, door = pc.utf8_lower(field("client")), pc.utf8_lower(field("door"))
        found.append((client == name) | (door == name))
    for word in (where.words or "").split():
        found.append(pc.match_substring(pc.utf8_lower(field("question")), word.lower()))
    if where.kinds:
        found.append(is_one_of("trace_type", where.kinds))
    if where.statuses:
        found.append(is_one_of("status", where.statuses))
    if where.published:
        found.append(field("asked_release_id").is_null())
    return found


def _summarise(tables: Tables, chosen: Table) -> list[Json]:
    """Summaries of the traces whose `started_at` and `trace_id` are given, in no order."""
    if not chosen.num_rows:
        return []
    known = is_one_of("trace_id", chosen["trace_id"].to_pylist())
    condition = known & is_within_times("started_at", chosen["started_at"])
    return [_summary(row) for row in tables.read("traces", _COLUMNS, condition).to_pylist()]


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
    tables = open_tables(logs_dir, where.since)
    keys = _choose(tables, where, ["trace_key"])["trace_key"]
    if not len(keys):
        raise NotFoundError(
            "no trace that ended is as the filters say; `rag trace list` shows those there are",
            code="no_traces",
        )
    counts: dict[str, int] = {}
    for name, columns in COLUMNS.items():
        path = target / f"{name}.{form}"
        if path.exists():
            raise InputError(
                f"{path} is there already; name another folder, or remove it", code="file_exists"
            )
        table = tables.read(name, list(columns), _of_traces(keys)).sort_by(time_column(name))
        if (rest := _REST.get(name)) is not None:
            table = table.drop_columns("line").append_column(rest, _parse_rest(table["line"], rest))
        with atomic_path(path) as temporary:
            _WRITERS[form](table, temporary)
        counts[path.name] = table.num_rows
    return counts


def _parse_rest(lines: Any, rest: str) -> Any:
    """The field of each line as JSON."""
    import pyarrow as pa

    values = (orjson.loads(line).get(rest) for line in lines.to_pylist())
    return pa.array(
        [None if value is None else orjson.dumps(value).decode() for value in values], pa.string()
    )


def _write_parquet(table: Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path, compression="zstd")


def _write_jsonl(table: Table, path: Path) -> None:
    rest, options = set(_REST.values()), orjson.OPT_APPEND_NEWLINE | orjson.OPT_NAIVE_UTC
    with path.open("wb") as file:
        for batch in table.to_batches():
            for row in batch.to_pylist():
                for name in rest & row.keys():
                    row[name] = None if row[name] is None else orjson.Fragment(row[name])
                file.write(orjson.dumps(row, option=options | orjson.OPT_UTC_Z))


_WRITERS: Mapping[str, Callable[[Table, Path], None]] = {
    "parquet": _write_parquet,
    "jsonl": _write_jsonl,
}


# --- figures ------------------------------------------------------------------------------------


def measure(logs_dir: Path, where: TraceFilter) -> Json:
    """Figures over the selected traces: `kinds` (count, failures, latency), `stages`, `caches`,
    `model_calls`, `last_24h`; and `warnings` about files that could not be read.
    """
    tables = open_tables(logs_dir)
    chosen = _choose(tables, where, ["latency_ms", *_COUNTED])
    chosen = chosen.rename_columns({"latency_ms": "duration_ms"})
    meant = None if where == TraceFilter() else _of_traces(chosen["trace_key"], where.since)
    spans = tables.read("spans", ["name", "duration_ms", *_COUNTED], meant)
    calls = tables.read("model_calls", ["duration_ms", *_CALL_KEYS, *_CALL_SUMS], meant)
    kinds = _aggregate(_mark_failed(chosen), ["trace_type"], _FIGURES)
    figures = {**_FIGURES, "total_ms": ("duration_ms", "sum")}
    stages = _aggregate(_mark_failed(spans), ["trace_type", "name"], figures)
    for row in stages:
        row["stage"] = row.pop("name")
    stages.sort(key=lambda row: (row["trace_type"], -row["total_ms"]))
    return {
        "kinds": [_add_failed_share(row) for row in kinds],
        "stages": [_add_failed_share(row) for row in stages],
        "caches": _caches(kinds, stages),
        "model_calls": _aggregate(calls, ["provider", "model"], _CALL_FIGURES),
        "last_24h": _last_day(tables, where),
        "warnings": list(tables.warnings),
    }


def _of_traces(keys: Any, since: datetime | None = None) -> Expression:
    """The condition on a table that its rows are of these traces; with the time of the first, which
    skips older row groups.
    """
    import pyarrow.compute as pc

    met = pc.field("trace_key").isin(keys.combine_chunks())
    return met if since is None else met & (pc.field("ts") >= as_time(since))


def _mark_failed(table: Table) -> Table:
    import pyarrow.compute as pc

    return table.append_column("failed", pc.equal(table["status"], "error"))


def _aggregate(
    table: Table, keys: Sequence[str], figures: Mapping[str, tuple[str, str]]
) -> list[Json]:
    """For each combination of keys, in their order, a row with them, the figures, each a column and
    Arrow's function on it, and the percentiles of `duration_ms`.
    """
    import pyarrow.compute as pc

    found = table.group_by(keys).aggregate([*figures.values(), ("duration_ms", "list")])
    durations = found["duration_ms_list"]
    rows = []
    for row, values in zip(
        found.drop_columns("duration_ms_list").to_pylist(), durations, strict=True
    ):
        made = {key: row[key] for key in keys}
        made |= {name: row["_".join(figure)] for name, figure in figures.items()}
        percentiles = pc.quantile(values.values, list(_PERCENTILES.values())).to_pylist()
        made |= dict(zip(_PERCENTILES, percentiles, strict=True))
        for name, value in made.items():
            if isinstance(value, float):
                made[name] = round(value, 6 if name == "cost" else 3)
        rows.append(made)
    # unknown keys last
    return sorted(rows, key=lambda row: [(row[key] is None, row[key]) for key in keys])


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
    columns = ["trace_type", "status", "counters"]
    counts: Counter[str] = Counter()
    failed: dict[str, int] = {}
    counters: Counter[str] = Counter()
    for row in _choose(tables, replace(where, since=since, until=None), columns).to_pylist():
        kind = row["trace_type"]
        counts[kind] += 1
        failed[kind] = failed.get(kind, 0) + (row["status"] == "error")
        if kind == "ingestion":
            counters.update(json.loads(row["counters"]))
    return {"counts": dict(counts), "failed": failed, "counters": dict(counters)}


def _add_failed_share(row: Mapping[str, Any]) -> Json:
    """A row with `failed_share`, without its cache figures."""
    kept = {name: value for name, value in row.items() if name not in ("hits", "misses")}
    return {**kept, "failed_share": round(row["failed"] / row["count"], 4)}
