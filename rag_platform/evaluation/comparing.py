"""Compares two runs of one dataset (differences of means, flipped cases), and follows a metric over
many runs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.metrics import Interval, bootstrap, sort_metrics
from rag_platform.evaluation.results import CaseResult, EvalRun, ResultStore

_FLIPPING = ("retrieval.hit_rate@3", "refusal.right", "answer.evidence")
_FLIP_AT = 0.5  # a case flips when its metric crosses this value
_MAX_RUNS = 10_000


@dataclass(frozen=True, slots=True)
class Flip:
    """A case that one run has right and the other wrong."""

    case_id: str
    query: str
    metric: str
    before: float
    after: float
    trace_before: str
    trace_after: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """`differences` by metric: the later run minus the earlier, over the cases that both measured;
    `worse` and `better` are the flipped cases.
    """

    before: EvalRun
    after: EvalRun
    differences: dict[str, Interval]
    means: dict[str, tuple[float, float]]  # of the earlier and the later run, over the same cases
    paired: dict[str, int]  # cases behind each difference
    worse: tuple[Flip, ...]
    better: tuple[Flip, ...]


def compare_runs(before: EvalRun, after: EvalRun, store: ResultStore) -> Comparison:
    """Compare two runs. Raises InputError `other_dataset` for runs of different datasets."""
    if before.dataset_fingerprint != after.dataset_fingerprint:
        raise InputError(
            f"{before.run_id} asked {before.dataset_id} {before.dataset_fingerprint},"
            f" {after.run_id} asked {after.dataset_id} {after.dataset_fingerprint}; only runs of"
            " the same cases can be compared",
            code="other_dataset",
        )
    values: dict[str, array[float]] = {}
    totals: dict[str, float] = {}  # of the earlier run
    changed: list[Flip] = []
    for one, other in _pairs(store.cases(before.run_id), store.cases(after.run_id)):
        for metric in one.metrics.keys() & other.metrics.keys():
            difference = other.metrics[metric] - one.metrics[metric]
            values.setdefault(metric, array("d")).append(difference)
            totals[metric] = totals.get(metric, 0.0) + one.metrics[metric]
        changed += _flips(one, other)
    changed.sort(key=lambda flip: (flip.metric, flip.case_id))
    differences = {name: bootstrap(values[name]) for name in sort_metrics(values)}
    earlier = {name: totals[name] / len(values[name]) for name in differences}
    return Comparison(
        before,
        after,
        differences,
        {name: (earlier[name], earlier[name] + item.value) for name, item in differences.items()},
        {name: len(values[name]) for name in differences},
        tuple(flip for flip in changed if flip.after < flip.before),
        tuple(flip for flip in changed if flip.after > flip.before),
    )


def _pairs(
    before: Iterator[CaseResult], after: Iterator[CaseResult]
) -> Iterator[tuple[CaseResult, CaseResult]]:
    """Merge two runs of one dataset, both in its order, into pairs of results of the same case."""
    one, other = next(before, None), next(after, None)
    while one is not None and other is not None:
        if one.position == other.position:
            yield one, other
        behind = min(one.position, other.position)
        if one.position == behind:
            one = next(before, None)
        if other.position == behind:
            other = next(after, None)


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """A metric in one run; `change` is the difference to the previous run of the same dataset,
    strategy and mode, None for the first.
    """

    run_id: str
    started_at: str
    dataset_id: str
    strategy: str
    release_id: str
    value: float
    low: float
    high: float
    cases: int
    change: float | None


def eval_trends(
    store: ResultStore, metric: str, *, days: float, dataset_id: str = "", namespace: str = ""
) -> list[TrendPoint]:
    """A metric over the runs of the last days, oldest first; a dataset whose cases changed starts
    without a previous run. Raises NotFoundError `unknown_metric` with the measured ones.
    """
    since = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds")
    runs = store.runs(dataset_id=dataset_id, namespace=namespace, limit=_MAX_RUNS, since=since)
    found: list[TrendPoint] = []
    last: dict[tuple[str, ...], float] = {}
    for run in reversed(runs):
        if run.status != "done" or metric not in run.aggregates:
            continue
        item = run.aggregates[metric]
        key = (run.dataset_fingerprint, run.namespace, run.strategy, run.mode)
        found.append(
            TrendPoint(
                run.run_id,
                run.started_at,
                run.dataset_id,
                run.strategy,
                run.release_id,
                item["value"],
                item["low"],
                item["high"],
                int(item["cases"]),
                item["value"] - last[key] if key in last else None,
            )
        )
        last[key] = item["value"]
    known = sorted({name for run in runs for name in run.aggregates})
    if known and metric not in known:
        raise NotFoundError(
            f"no run of the last {days:g} days measured {metric!r}; measured: {', '.join(known)}",
            code="unknown_metric",
        )
    return found


def _flips(one: CaseResult, other: CaseResult) -> list[Flip]:
    found = []
    for metric in _FLIPPING:
        if metric in one.metrics and metric in other.metrics:
            before, after = one.metrics[metric], other.metrics[metric]
            if (before >= _FLIP_AT) != (after >= _FLIP_AT):
                found.append(
                    Flip(
                        one.case_id, one.query, metric, before, after, one.trace_id, other.trace_id
                    )
                )
    return found
