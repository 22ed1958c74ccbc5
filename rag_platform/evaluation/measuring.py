"""Interfaces of metric sets and judges, and the merged metrics of several sets. Metrics have flat
names such as `retrieval.hit_rate@5`.
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
    """One case with the engine's result."""

    case: EvalCase
    labels: Labels
    result: QueryResult
    context: tuple[Hit, ...] = ()  # the passages that the answerer was given
    in_scope: frozenset[str] | None = None  # hits within the case's doc_scope; None without one
    proved: frozenset[str] = frozenset()  # cited chunks that the stored bytes prove
    failed: bool = False  # the question ended with an error

    @property
    def is_stale(self) -> bool:
        """True if the release has nothing that the case expects, so that no answer can be
        judged.
        """
        return bool(self.labels.stale) and not any(self.labels.grades.values())


@dataclass(frozen=True, slots=True)
class Score:
    """A judge's score from 0 to 1, or None if it could not judge, with the reason."""

    score: float | None
    reason: str = ""


class Judge(Protocol):
    """Scores what needs an opinion; registry kind `judge`."""

    VERSION: ClassVar[str]

    def profile(self) -> Json:
        """Everything that the scores depend on: `judge_provider_id`, `judge_model`,
        `judge_prompt_id` (by metric), `temperature` and others.
        """
        ...

    def score_faithfulness(self, answer: str, contexts: Sequence[str]) -> Score:
        """How far the passages support the answer."""
        ...

    def score_answer_relevancy(self, answer: str, query: str) -> Score:
        """How far the answer addresses the question, whether right or wrong."""
        ...

    def score_answer_correctness(self, answer: str, expected: str, query: str) -> Score:
        """How far the answer agrees with the expected one."""
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
    """The metrics of all sets, merged. Raises InputError if two sets use one name."""
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
