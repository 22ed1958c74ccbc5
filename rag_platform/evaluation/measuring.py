"""Metrics by case, under flat names such as `retrieval.hit_rate@5`: what a metric set is given, and
several sets together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rag_platform.errors import InputError
from rag_platform.evaluation.cases import EvalCase
from rag_platform.evaluation.labels import Labels
from rag_platform.ir import Hit, Json, QueryResult

CaseMetrics = dict[str, dict[str, float]]  # case_id: metric: value


@dataclass(frozen=True, slots=True)
class AskedCase:
    """One case with what the engine made of it."""

    case: EvalCase
    labels: Labels
    result: QueryResult
    context: tuple[Hit, ...] = ()  # the evidence that the answerer was given
    in_scope: frozenset[str] | None = None  # hits within the case's doc_scope; None without one
    proved: frozenset[str] = frozenset()  # cited chunks that stand in the stored bytes
    failed: bool = False  # the question ended with an error

    @property
    def is_stale(self) -> bool:
        """True where the release holds nothing of what should be found: no answer tells then
        whether the library is good.
        """
        return bool(self.labels.stale) and not any(self.labels.grades.values())


@dataclass(frozen=True, slots=True)
class Score:
    """What a judge says of one thing: 0 to 1, None where it could not be judged, and why."""

    score: float | None
    reason: str = ""


class Judge(Protocol):
    """Scores what needs an opinion; registry kind `judge`."""

    VERSION: ClassVar[str]

    def profile(self) -> Json:
        """`judge_provider_id`, `judge_model`, `judge_prompt_id` (by metric), `temperature` and what
        else its scores depend on.
        """
        ...

    def score_faithfulness(self, answer: str, contexts: Sequence[str]) -> Score:
        """How far the answer says only what the passages say."""
        ...

    def score_answer_relevancy(self, answer: str, query: str) -> Score:
        """How far the answer is one to the question, be it right or wrong."""
        ...

    def score_answer_correctness(self, answer: str, expected: str, query: str) -> Score:
        """How far the answer says what the expected one says."""
        ...


class MetricSet(Protocol):
    """Measures cases; registry kind `metric_set`. One that reads `AskedCase.proved` has
    `needs_proof = True`.
    """

    VERSION: ClassVar[str]

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        """The metrics of each case under flat names; what cannot be measured is absent."""
        ...


def compute(
    items: Sequence[AskedCase],
    k_values: Sequence[int],
    metric_sets: Mapping[str, MetricSet],
    judge: Judge | None = None,
) -> CaseMetrics:
    """The metrics of all sets together. Raises InputError where two sets give one name."""
    merged: CaseMetrics = {item.case.case_id: {} for item in items}
    for name, metric_set in metric_sets.items():
        for case_id, values in metric_set.compute(items, k_values, judge).items():
            if clash := merged[case_id].keys() & values.keys():
                raise InputError(
                    f"metric set {name!r} measures {sorted(clash)[0]!r}, as one before it does;"
                    " name one of them",
                    code="metric_conflict",
                )
            merged[case_id] |= values
    return merged
