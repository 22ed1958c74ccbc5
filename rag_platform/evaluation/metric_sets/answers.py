"""What can be said of answers without a judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_platform.evaluation.measuring import AskedCase, CaseMetrics, Judge
from rag_platform.evaluation.quotes import fold, holds


@dataclass(frozen=True)
class Answers:
    """Whether the library refused rightly, and whether the answer holds the expected texts."""

    VERSION: ClassVar[str] = "2"

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        """As `MetricSet.compute`."""
        return {item.case.case_id: _measure(item) for item in items}


def _measure(item: AskedCase) -> dict[str, float]:
    case, result = item.case, item.result
    found: dict[str, float] = {}
    if case.should_refuse is not None:
        # a question that failed was not refused
        right = result.answered != case.should_refuse and not item.failed
        found["refusal.right"] = float(right)
    elif case.is_ranked or case.expected_answer:
        found["refusal.right"] = float(result.answered)  # there is an answer
    if case.expected_text and not case.should_refuse:
        answer = fold(result.answer_markdown) if result.answered else ""
        held = [holds(answer, expected.text) for expected in case.expected_text]
        found["answer.evidence"] = float(any(held) if case.match == "any" else all(held))
    return found
