"""A judge with a fixed score, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_platform.evaluation.measuring import Score
from rag_platform.ir import Json


@dataclass(frozen=True)
class FakeJudge:
    """Gives every answer the same score."""

    score: float = 1.0

    VERSION: ClassVar[str] = "1"

    def profile(self) -> Json:
        """The provider and its score."""
        return {"judge_provider_id": f"judge.fake@{self.VERSION}", "score": self.score}

    def score_faithfulness(self, answer: str, contexts: Sequence[str]) -> Score:
        """The fixed score."""
        return Score(self.score, "fixed")

    def score_answer_relevancy(self, answer: str, query: str) -> Score:
        """The fixed score."""
        return Score(self.score, "fixed")

    def score_answer_correctness(self, answer: str, expected: str, query: str) -> Score:
        """The fixed score."""
        return Score(self.score, "fixed")
