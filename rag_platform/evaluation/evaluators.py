"""Evaluators: named choices of metric sets and a judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from rag_platform.errors import InputError

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
