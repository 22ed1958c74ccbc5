"""Metrics of answers that need no judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_platform.evaluation.measuring import AskedCase, CaseMetrics, Judge
from rag_platform.evaluation.quotes import contains_quote, fold


@dataclass(frozen=True)
class Answers:
    """`refusal.right`: whether the library rightly answered or refused; `answer.evidence`: whether
    the answer contains the expected texts, without those that the release no longer has.
    """

    VERSION: ClassVar[str] = "4"

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        return {item.case.case_id: _measure(item) for item in items}


def _measure(item: AskedCase) -> dict[str, float]:
    case, result = item.case, item.result
    found: dict[str, float] = {}
    if case.should_refuse:
        # a failed question is not a refusal
        return {"refusal.right": float(not (result.answered or item.failed))}
    if item.is_stale:
        return found
    if case.is_ranked or case.expected_answer or case.should_refuse is not None:
        found["refusal.right"] = float(result.answered)
    gone = {label.label for label in item.labels.stale}
    texts = [
        expected.text
        for number, expected in enumerate(case.expected_text, 1)
        if f"text {number}" not in gone
    ]
    if texts:
        answer = fold(result.answer_markdown) if result.answered else ""
        found_texts = [contains_quote(answer, text) for text in texts]
        found["answer.evidence"] = float(
            any(found_texts) if case.match == "any" else all(found_texts)
        )
    return found
