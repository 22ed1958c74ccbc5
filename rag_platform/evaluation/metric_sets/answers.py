"""What can be said of answers without a judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_platform.evaluation.measuring import AskedCase, CaseMetrics, Judge
from rag_platform.evaluation.quotes import fold, holds


@dataclass(frozen=True)
class Answers:
    """Whether the library refused rightly, and whether the answer holds the expected texts, those
    that the release no longer holds apart.
    """

    VERSION: ClassVar[str] = "4"

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        """As `MetricSet.compute`."""
        return {item.case.case_id: _measure(item) for item in items}


def _measure(item: AskedCase) -> dict[str, float]:
    case, result = item.case, item.result
    found: dict[str, float] = {}
    if case.should_refuse:
        # a question that failed was not refused
        return {"refusal.right": float(not (result.answered or item.failed))}
    if item.is_stale:
        return found
    if case.is_ranked or case.expected_answer or case.should_refuse is not None:
        found["refusal.right"] = float(result.answered)  # there is an answer
    gone = {label.label for label in item.labels.stale}
    texts = [
        expected.text
        for number, expected in enumerate(case.expected_text, 1)
        if f"text {number}" not in gone
    ]
    if texts:
        answer = fold(result.answer_markdown) if result.answered else ""
        held = [holds(answer, text) for text in texts]
        found["answer.evidence"] = float(any(held) if case.match == "any" else all(held))
    return found
