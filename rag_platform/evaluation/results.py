"""Evaluation results in `evaluations.sqlite` under the data root: one row per run and per case.

The key of a case result covers everything that it depends on, so a later run can reuse it, and a
killed run can resume.
"""

from __future__ import annotations

import json
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rag_platform.errors import NotFoundError
from rag_platform.evaluation.metrics import mean_interval, percentiles, sort_metrics
from rag_platform.ir import Json
from rag_platform.processes.launchers import alive, is_here, seconds_between
from rag_platform.storage.evaluation_files import DATABASE
from rag_platform.storage.records import columns, from_row, getter
from rag_platform.storage.sqlite_files import connect_versioned, select_in, transaction

SCHEMA_VERSION = 1
_LONGEST_SECONDS = 24 * 3600.0  # of a run whose process cannot be looked at from here
_SCHEMA = """
CREATE TABLE IF NOT EXISTS eval_runs (
    run_id TEXT PRIMARY KEY, started_at TEXT NOT NULL, ended_at TEXT NOT NULL,
    status TEXT NOT NULL, dataset_id TEXT NOT NULL, dataset_version TEXT NOT NULL,
    dataset_fingerprint TEXT NOT NULL, namespace TEXT NOT NULL, release_id TEXT NOT NULL,
    strategy TEXT NOT NULL, strategy_config_id TEXT NOT NULL, eval_profile_id TEXT NOT NULL,
    metric_set_ids TEXT NOT NULL, judge_profile_id TEXT NOT NULL, mode TEXT NOT NULL,
    cases INTEGER NOT NULL, reused INTEGER NOT NULL, failed INTEGER NOT NULL,
    aggregates TEXT NOT NULL, figures TEXT NOT NULL, providers TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS eval_runs_by_time ON eval_runs (started_at);
CREATE TABLE IF NOT EXISTS eval_case_results (
    run_id TEXT NOT NULL, case_id TEXT NOT NULL, position INTEGER NOT NULL, key TEXT NOT NULL,
    query TEXT NOT NULL, tags TEXT NOT NULL, metrics TEXT NOT NULL, stale TEXT NOT NULL,
    error TEXT NOT NULL, trace_id TEXT NOT NULL, artifacts TEXT NOT NULL,
    PRIMARY KEY (run_id, case_id));
CREATE INDEX IF NOT EXISTS eval_case_results_by_key ON eval_case_results (key);
CREATE INDEX IF NOT EXISTS eval_case_results_in_order ON eval_case_results (run_id, position);
"""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case. `metrics` by flat name, without those that could not be measured."""

    case_id: str
    position: int  # of the case in the dataset
    key: str  # fingerprint of everything that the result depends on
    query: str
    tags: tuple[str, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    stale: tuple[Json, ...] = ()  # labels that nothing satisfies any more, with the reason
    error: str = ""  # code and message if the question failed
    trace_id: str = ""
    artifacts: Json = field(default_factory=dict)  # ids and figures, no document text

    @property
    def failed_stages(self) -> list[str]:
        """The parts of the search that failed, `dense`, so that the question was asked without."""
        flags = self.artifacts.get("flags", ())
        return [flag.removesuffix("_failed") for flag in flags if flag.endswith("_failed")]


@dataclass(frozen=True, slots=True)
class EvalRun:
    """One run over a dataset."""

    run_id: str
    started_at: str
    ended_at: str  # empty while it runs
    status: str  # running | done | failed | cancelled | rejected (by the gate, with its candidate)
    dataset_id: str
    dataset_version: str
    dataset_fingerprint: str
    namespace: str
    release_id: str
    strategy: str
    strategy_config_id: str
    eval_profile_id: str
    metric_set_ids: tuple[str, ...]
    judge_profile_id: str  # empty without a judge
    mode: str
    cases: int = 0
    reused: int = 0  # case results taken from earlier runs
    failed: int = 0  # cases whose question failed
    # name: {value, low, high, cases} over the cases that have the metric
    aggregates: dict[str, dict[str, float]] = field(default_factory=dict)
    # seconds, latency percentiles, counts of labels; while it runs, its process
    figures: Json = field(default_factory=dict)
    providers: Json = field(default_factory=dict)  # kind: {id, version}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """Filter and order of a run's case results."""

    missed: bool = False  # the question failed, or a metric is below one half
    words: str = ""  # part of the question, or the case_id
    tag: str = ""
    sort: str = ""  # a metric, worst first; `latency_ms`, slowest first; empty: the dataset's order


_MISSED = "(error <> '' OR EXISTS (SELECT 1 FROM json_each(metrics) AS m WHERE m.value < 0.5))"


def _order(sort: str) -> tuple[str, list[str]]:
    """The ORDER BY expression and its parameters."""
    if not sort:
        return "position", []
    if sort == "latency_ms":
        return "json_extract(artifacts, '$.latency_ms.total') DESC, position", []
    value = "(SELECT m.value FROM json_each(metrics) AS m WHERE m.key = ?)"
    return f"{value} IS NULL, {value}, position", [sort, sort]


def _escape(words: str) -> str:
    """The words with the wildcards of LIKE escaped."""
    return words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


class ResultStore:
    """Runs and case results of one data root; thread-safe. Without a `home` they are in memory and
    not kept. With `create` false, a missing database is not created but read as empty.
    """

    def __init__(self, home: Path | None, *, create: bool = True) -> None:
        self._path = Path(":memory:")
        if home is not None and (create or (home / DATABASE).is_file()):
            self._path = home / DATABASE
        self._lock = threading.Lock()
        self._db, _ = connect_versioned(self._path, SCHEMA_VERSION, _SCHEMA)

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()

    def put_run(self, run: EvalRun) -> None:
        """Insert or replace a run."""
        self._write("eval_runs", EvalRun, [run])

    def mark_rejected(self, namespace: str, release_id: str) -> None:
        """Mark the runs of a candidate that the gate rejected: trends leave them out."""
        where = "namespace = ? AND release_id = ? AND status = 'done'"
        with self._lock, transaction(self._db, self._path):
            self._db.execute(
                f"UPDATE eval_runs SET status = 'rejected' WHERE {where}", (namespace, release_id)
            )

    def put_cases(self, run_id: str, results: Iterable[CaseResult]) -> None:
        """Write case results of a run, in one transaction."""
        self._write("eval_case_results", CaseResult, results, run_id=run_id)

    def run(self, run_id: str) -> EvalRun:
        """A run by its id or a unique prefix of it. Raises NotFoundError `unknown_run`."""
        where = "substr(run_id, 1, length(?)) = ? ORDER BY started_at DESC"
        found = self._runs(where, (run_id, run_id))
        exact = [run for run in found if run.run_id == run_id] or found
        if len(exact) != 1:
            named = f"begins with {run_id[:80]!r}; see `rag eval list`"
            many = "more than one run" if exact else "no run"
            raise NotFoundError(f"{many} {named}", code="unknown_run")
        return exact[0]

    def runs(
        self,
        *,
        dataset_id: str = "",
        namespace: str = "",
        limit: int = 50,
        before: str = "",
        strategy: str = "",
    ) -> list[EvalRun]:
        """At most `limit` runs that started before `before`, newest first."""
        where, values = ["started_at < ?"], [before or "9999"]
        for name, value in (
            ("dataset_id", dataset_id),
            ("namespace", namespace),
            ("strategy", strategy),
        ):
            if value:
                where.append(f"{name} = ?")
                values.append(value)
        order = "ORDER BY started_at DESC, run_id LIMIT ?"
        return self._runs(f"{' AND '.join(where)} {order}", (*values, limit))

    def cases(self, run_id: str) -> Iterator[CaseResult]:
        """The case results of a run in the dataset's order, read in batches."""
        position = -1
        where = "run_id = ? AND position > ? ORDER BY position LIMIT 500"
        while found := self._cases(where, (run_id, position)):
            yield from found
            position = found[-1].position

    def case(self, run_id: str, case_id: str) -> CaseResult:
        """One case result. Raises NotFoundError `unknown_case`."""
        found = self._cases("run_id = ? AND case_id = ?", (run_id, case_id))
        if not found:
            raise NotFoundError(f"run {run_id} has no case {case_id[:80]!r}", code="unknown_case")
        return found[0]

    def find_cases(
        self, run_id: str, wanted: CaseFilter, *, limit: int, skip: int = 0
    ) -> tuple[list[CaseResult], int]:
        """(at most `limit` matching case results after the first `skip`, number of all matches)."""
        where, values = ["run_id = ?"], [run_id]
        if wanted.missed:
            where.append(_MISSED)
        if wanted.words:
            where.append("(query LIKE ? ESCAPE '\\' OR case_id = ?)")
            values += [f"%{_escape(wanted.words)}%", wanted.words]
        if wanted.tag:
            where.append("EXISTS (SELECT 1 FROM json_each(tags) AS tag WHERE tag.value = ?)")
            values.append(wanted.tag)
        order, ordered_by = _order(wanted.sort)
        condition = " AND ".join(where)
        ((count,),) = self._read(
            f"SELECT COUNT(*) FROM eval_case_results WHERE {condition}", values
        )
        found = self._cases(
            f"{condition} ORDER BY {order} LIMIT ? OFFSET ?", (*values, *ordered_by, limit, skip)
        )
        return found, count

    def find_known(self, keys: Iterable[str]) -> dict[str, CaseResult]:
        """key to earlier result, without failed ones, those of which a stage failed, and those that
        lack a judge's score.
        """
        results = select_in(self._cases, "key IN (?) AND error = ''", keys)
        return {
            result.key: result
            for result in results
            if not (result.failed_stages or result.artifacts.get("unjudged"))
        }

    def _write(self, table: str, kind: Any, records: Iterable[Any], **more: str) -> None:
        rows = [[*more.values(), *map(_to_stored, getter(kind)(record))] for record in records]
        if not rows:
            return
        names = ", ".join([*more, columns(kind)])
        marks = ", ".join("?" * len(rows[0]))
        with self._lock, transaction(self._db, self._path):
            self._db.executemany(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", rows)

    def _runs(self, where: str, values: Iterable[Any]) -> list[EvalRun]:
        rows = self._read(f"SELECT {columns(EvalRun)} FROM eval_runs WHERE {where}", values)
        return [_as_it_stands(from_row(EvalRun, row)) for row in rows]

    def _cases(self, where: str, values: Iterable[Any]) -> list[CaseResult]:
        sql = f"SELECT {columns(CaseResult)} FROM eval_case_results WHERE {where}"
        return [from_row(CaseResult, row) for row in self._read(sql, values)]

    def _read(self, sql: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(sql, tuple(values)).fetchall()


def _as_it_stands(run: EvalRun) -> EvalRun:
    """The run as killed if its process is gone, which therefore recorded no end."""
    process = run.figures.get("process")
    if run.status != "running":
        return run
    if process and is_here(process):
        at_work = alive(process["pid"], "", process["started"])
    else:  # of another machine or container, or of an older program
        at_work = bool(process) and seconds_between(run.started_at) < _LONGEST_SECONDS
    return run if at_work else replace(run, status="killed")


def _to_stored(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (tuple, dict)) else value


# --- figures of a run ---------------------------------------------------------------------------


def summarise(results: Iterable[CaseResult]) -> tuple[dict[str, dict[str, float]], Json, int]:
    """(metric to mean and 95 % interval over the cases that have it; figures: stale labels,
    latencies, usage, means by tag, language and file type; number of failed cases). Memory: one
    number per metric and case.
    """
    values: dict[str, array[float]] = {}
    groups: dict[str, dict[str, dict[str, list[float]]]] = {}
    latencies = array("d")
    usage: Counter[str] = Counter()
    failed = stale = unlabelled = unjudged = 0
    for result in results:
        if (total_ms := result.artifacts.get("latency_ms", {}).get("total")) is not None:
            latencies.append(total_ms)
        usage.update({name: n for name, n in result.artifacts.get("usage", {}).items() if n})
        failed += bool(result.error)
        stale += len(result.stale)
        unlabelled += not result.metrics
        unjudged += result.artifacts.get("unjudged", 0)
        for name, value in result.metrics.items():
            values.setdefault(name, array("d")).append(value)
            for kind, members in result.artifacts.get("groups", {}).items():
                for member in members:
                    means = groups.setdefault(kind, {}).setdefault(member, {})
                    total = means.setdefault(name, [0.0, 0])
                    total[0] += value
                    total[1] += 1
    aggregates = {}
    for name in sort_metrics(values):
        interval = asdict(mean_interval(values[name]))
        aggregates[name] = {**interval, "cases": float(len(values[name]))}
    means_by_group = {
        kind: {
            member: {
                name: {"value": total / count, "cases": count}
                for name, (total, count) in sorted(means.items())
            }
            for member, means in sorted(members.items())
        }
        for kind, members in groups.items()
    }
    figures = {
        "stale_labels": stale,
        "unmeasured": unlabelled,
        "unjudged": unjudged,
        "latency_ms": percentiles(latencies),
        "usage": dict(usage),
        "groups": means_by_group,
    }
    return aggregates, figures, failed
