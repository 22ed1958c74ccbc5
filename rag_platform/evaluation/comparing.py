"""Two runs of one dataset beside each other: differences of means, and the cases that flipped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rag_platform.errors import InputError
from rag_platform.evaluation.metrics import Interval, paired_bootstrap
from rag_platform.evaluation.results import CaseResult, EvalRun, ResultStore

_FLIP = 0.5  # a metric crosses it where a case was right and is wrong, or the other way


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
    `worse` and `better` are its flips by the metrics asked for.
    """

    before: EvalRun
    after: EvalRun
    differences: dict[str, Interval]
    paired: dict[str, int]  # cases behind each difference
    worse: tuple[Flip, ...]
    better: tuple[Flip, ...]


def compare_runs(
    before: EvalRun,
    after: EvalRun,
    store: ResultStore,
    *,
    flips: Iterable[str] = ("retrieval.hit_rate@3", "refusal.right", "answer.evidence"),
) -> Comparison:
    """The comparison. Raises InputError `other_dataset` for runs of two datasets."""
    if before.dataset_fingerprint != after.dataset_fingerprint:
        raise InputError(
            f"{before.run_id} asked {before.dataset_id} {before.dataset_fingerprint},"
            f" {after.run_id} asked {after.dataset_id} {after.dataset_fingerprint}; only runs of"
            " the same cases can be compared",
            code="other_dataset",
        )
    old = {result.case_id: result for result in store.cases(before.run_id)}
    new = {result.case_id: result for result in store.cases(after.run_id)}
    values: dict[str, tuple[dict[str, float], dict[str, float]]] = {}
    changed: list[Flip] = []
    for case_id in old.keys() & new.keys():
        one, other = old[case_id], new[case_id]
        for metric in one.metrics.keys() & other.metrics.keys():
            sides = values.setdefault(metric, ({}, {}))
            sides[0][case_id], sides[1][case_id] = one.metrics[metric], other.metrics[metric]
        changed += _flips(one, other, flips)
    changed.sort(key=lambda flip: (flip.metric, flip.case_id))
    return Comparison(
        before,
        after,
        {name: paired_bootstrap(values[name][1], values[name][0]) for name in sorted(values)},
        {name: len(values[name][0]) for name in sorted(values)},
        tuple(flip for flip in changed if flip.after < flip.before),
        tuple(flip for flip in changed if flip.after > flip.before),
    )


def _flips(one: CaseResult, other: CaseResult, metrics: Iterable[str]) -> list[Flip]:
    found = []
    for metric in metrics:
        if metric in one.metrics and metric in other.metrics:
            before, after = one.metrics[metric], other.metrics[metric]
            if (before >= _FLIP) != (after >= _FLIP):
                found.append(
                    Flip(
                        one.case_id,
                        one.query,
                        metric,
                        before,
                        after,
                        one.trace_id,
                        other.trace_id,
                    )
                )
    return found
