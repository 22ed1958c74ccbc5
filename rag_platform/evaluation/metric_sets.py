"""Metrics by case, under flat names such as `retrieval.hit_rate@5`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rag_platform.errors import InputError
from rag_platform.evaluation.cases import EvalCase
from rag_platform.evaluation.labels import Labels
from rag_platform.evaluation.metrics import per_query
from rag_platform.evaluation.quotes import fold, holds
from rag_platform.ir import QueryResult

_RANKED = {"hit_rate": "HitRate", "recall": "Recall", "mrr": "MRR", "ndcg": "nDCG"}


@dataclass(frozen=True, slots=True)
class Judged:
    """One case with what the engine made of it."""

    case: EvalCase
    labels: Labels
    result: QueryResult
    in_scope: frozenset[str] | None = None  # chunk ids of the case's doc_scope


CaseMetrics = dict[str, dict[str, float]]  # case_id: metric: value
MetricSet = Callable[[Sequence[Judged], Sequence[int]], CaseMetrics]


def measure_retrieval(items: Sequence[Judged], k_values: Sequence[int]) -> CaseMetrics:
    """Hit rate, recall, MRR and nDCG at each k, of cases with labels; a question without hits
    counts 0. `retrieval.coverage` is the share of hits within the case's `doc_scope`.
    """
    ranked = [item for item in items if any(item.labels.grades.values())]
    runs = {item.case.case_id: item.labels.rank(item.result.hits) for item in ranked}
    grades = {item.case.case_id: item.labels.grades for item in ranked}
    names = {
        f"{measure}@{k}": f"retrieval.{name}@{k}"
        for name, measure in _RANKED.items()
        for k in k_values
    }
    found: CaseMetrics = {item.case.case_id: {} for item in items}
    if ranked:
        for measure, values in per_query(runs, grades, list(names)).items():
            for case_id, value in values.items():
                found[case_id][names[measure]] = value
    for item in items:
        if item.in_scope is not None and item.result.hits:
            inside = sum(hit.chunk_id in item.in_scope for hit in item.result.hits)
            found[item.case.case_id]["retrieval.coverage"] = inside / len(item.result.hits)
    return found


def measure_answers(items: Sequence[Judged], k_values: Sequence[int]) -> CaseMetrics:
    """What can be said of answers without a judge: whether the library refused rightly, and
    whether the answer holds the expected texts.
    """
    return {item.case.case_id: _measure_answer(item) for item in items}


def _measure_answer(item: Judged) -> dict[str, float]:
    case, result = item.case, item.result
    found: dict[str, float] = {}
    if case.should_refuse is not None:
        found["refusal.right"] = float(result.answered != case.should_refuse)
    elif case.is_ranked or case.expected_answer:
        found["refusal.right"] = float(result.answered)  # there is an answer
    if case.expected_text and not case.should_refuse:
        answer = fold(result.answer_markdown) if result.answered else ""
        held = [holds(answer, expected.text) for expected in case.expected_text]
        found["answer.evidence"] = float(any(held) if case.match == "any" else all(held))
    return found


METRIC_SETS: Mapping[str, tuple[str, MetricSet]] = {  # name: version and function
    "retrieval": ("1", measure_retrieval),
    "answers": ("1", measure_answers),
}


def compute(items: Sequence[Judged], k_values: Sequence[int], names: Sequence[str]) -> CaseMetrics:
    """The metrics of the named sets together. Raises InputError for an unknown set, and where two
    sets give one name.
    """
    merged: CaseMetrics = {item.case.case_id: {} for item in items}
    for name in names:
        if name not in METRIC_SETS:
            raise InputError(
                f"unknown metric set {name!r}; known: {', '.join(METRIC_SETS)}",
                code="unknown_metric",
            )
        for case_id, values in METRIC_SETS[name][1](items, k_values).items():
            if clash := merged[case_id].keys() & values.keys():
                raise InputError(
                    f"two metric sets measure {sorted(clash)[0]!r}; name one of them",
                    code="metric_conflict",
                )
            merged[case_id] |= values
    return merged
