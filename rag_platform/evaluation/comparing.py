"""Compares two runs of one dataset (differences of means, flipped cases), and follows a metric over
many runs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rag_platform.api.envelopes import fill_shape
from rag_platform.contract.evaluation_shapes import FlipPart, TrendPart
from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.metrics import Interval, bootstrap, cutoff_of, sort_metrics
from rag_platform.evaluation.results import CaseResult, EvalRun, ResultStore

_FLIPPING = ("refusal.right", "answer.evidence")  # and the hit rate at the k nearest to this:
_FLIPPING_K = 3
_FLIP_AT = 0.5  # a case flips when its metric crosses this value


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
    worse: tuple[FlipPart, ...]
    better: tuple[FlipPart, ...]
    stale: tuple[str, ...]  # ids of the cases of which a label is stale in one of the runs only

    @property
    def differing_judges(self) -> tuple[str, ...]:
        """The profiles of the runs' judges if they differ, else empty."""
        found = self.before.judge_profile_id, self.after.judge_profile_id
        return found if all(found) and found[0] != found[1] else ()


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
    changed: list[FlipPart] = []
    stale: list[str] = []
    for one, other in _pairs(store.cases(before.run_id), store.cases(after.run_id)):
        for metric in one.metrics.keys() & other.metrics.keys():
            difference = other.metrics[metric] - one.metrics[metric]
            values.setdefault(metric, array("d")).append(difference)
            totals[metric] = totals.get(metric, 0.0) + one.metrics[metric]
        changed += _flips(one, other)
        if one.stale != other.stale:
            stale.append(one.case_id)
    changed.sort(key=lambda flip: (flip["metric"], flip["case_id"]))
    differences = {name: bootstrap(values[name]) for name in sort_metrics(values)}
    earlier = {name: totals[name] / len(values[name]) for name in differences}
    return Comparison(
        before,
        after,
        differences,
        {name: (earlier[name], earlier[name] + item.value) for name, item in differences.items()},
        {name: len(values[name]) for name in differences},
        tuple(flip for flip in changed if flip["after"] < flip["before"]),
        tuple(flip for flip in changed if flip["after"] > flip["before"]),
        tuple(stale),
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


def measured_metrics(runs: Iterable[EvalRun]) -> list[str]:
    """The names of the metrics that some run measured, sorted."""
    return sorted({name for run in runs for name in run.aggregates})


def require_measured(runs: Iterable[EvalRun], metric: str) -> None:
    """Raise NotFoundError `unknown_metric` with the measured ones unless a run measured it."""
    known = measured_metrics(runs)
    if metric not in known:
        raise NotFoundError(
            f"no run measured {metric[:80]!r}; measured: {', '.join(known) or 'nothing yet'}",
            code="unknown_metric",
        )


def eval_trends(runs: Sequence[EvalRun], metric: str, *, days: float) -> list[TrendPart]:
    """A metric over those of the runs (newest first) that are of the last days, oldest first, each
    with the change since the previous run of the same cases, namespace, strategy and mode, if that
    measured as many.
    """
    since = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds")
    found: list[TrendPart] = []
    last: dict[tuple[str, ...], Mapping[str, float]] = {}
    for run in reversed(runs):
        if run.status != "done" or metric not in run.aggregates or run.started_at < since:
            continue
        item = run.aggregates[metric]
        key = (run.dataset_fingerprint, run.namespace, run.strategy, run.mode)
        previous = last.get(key, {})
        alike = previous.get("cases") == item["cases"]
        found.append(
            fill_shape(
                TrendPart,
                run,
                **{name: item[name] for name in ("value", "low", "high")},
                cases=int(item["cases"]),
                change=item["value"] - previous["value"] if alike else None,
            )
        )
        last[key] = item
    return found


def _flips(one: CaseResult, other: CaseResult) -> list[FlipPart]:
    """Where one of two results of a case is right and the other wrong."""
    found: list[FlipPart] = []
    rates = {name for name in one.metrics if name.startswith("retrieval.hit_rate@")}
    nearest = min(rates, key=lambda name: (abs(cutoff_of(name) - _FLIPPING_K), name), default="")
    for metric in (nearest, *_FLIPPING):
        if metric in one.metrics and metric in other.metrics:
            before, after = one.metrics[metric], other.metrics[metric]
            if (before >= _FLIP_AT) != (after >= _FLIP_AT):
                found.append(
                    {
                        "case_id": one.case_id,
                        "query": one.query,
                        "metric": metric,
                        "before": before,
                        "after": after,
                        "trace_before": one.trace_id,
                        "trace_after": other.trace_id,
                    }
                )
    return found
