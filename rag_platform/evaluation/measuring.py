"""Interfaces of metric sets, judges and evaluators, and the merged metrics of several sets. Metrics
have flat names such as `retrieval.hit_rate@5`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

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
    failed: bool = False  # the model gave no score, and may give one when it is asked again


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
        """The metrics of each case under flat names; what cannot be measured is absent, and NaN
        what a model failed to score.
        """
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


# --- evaluators: named choices of metric sets and a judge ----------------------------------------

Mode = Literal["retrieval_only", "generation_only", "end_to_end"]
MODES: tuple[Mode, ...] = ("retrieval_only", "generation_only", "end_to_end")
CHEAP_METRIC_SETS = ("retrieval", "answers")  # without proofs and judges
_SETS: Mapping[Mode, tuple[str, ...]] = {
    "retrieval_only": ("retrieval",),
    "generation_only": ("answers", "citations"),
    "end_to_end": (*CHEAP_METRIC_SETS, "citations"),
}


class Evaluator(Protocol):
    """Chooses the metric sets of a run; registry kind `evaluator`."""

    VERSION: ClassVar[str]

    @property
    def judge(self) -> str | None:
        """The judge that its metric sets use; None if they need none."""
        ...

    def metric_sets(self, mode: Mode) -> tuple[str, ...]:
        """The metric sets of a run in this mode. Raises InputError for an unsuitable mode."""
        ...


@dataclass(frozen=True)
class Basic:
    """Everything that can be measured without a judge."""

    VERSION: ClassVar[str] = "1"
    judge: ClassVar[None] = None

    def metric_sets(self, mode: Mode) -> tuple[str, ...]:
        return _SETS[mode]


@dataclass(frozen=True)
class Judged:
    """What `basic` measures, and a judge's scores of the answers."""

    VERSION: ClassVar[str] = "1"
    SETS: ClassVar[tuple[str, ...]] = ("judged",)
    judge: str = "rules"

    def metric_sets(self, mode: Mode) -> tuple[str, ...]:
        """Those of `basic`, then those that use the judge."""
        if mode == "retrieval_only":
            raise InputError(
                "a judge scores answers, and `retrieval_only` makes none; take --mode end_to_end",
                code="invalid_mode",
            )
        return (*_SETS[mode], *self.SETS)


@dataclass(frozen=True)
class Ragas(Judged):
    """What `basic` measures, and the scores of the package ragas."""

    SETS: ClassVar[tuple[str, ...]] = ("ragas",)
    judge: str = "llm"


@dataclass(frozen=True)
class DeepEval(Judged):
    """What `basic` measures, and the scores of the package deepeval."""

    SETS: ClassVar[tuple[str, ...]] = ("deepeval",)
    judge: str = "llm"
