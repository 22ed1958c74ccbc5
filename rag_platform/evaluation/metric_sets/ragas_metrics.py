"""RAGAS as a metric set, with the language model of the judge `llm`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from rag_platform.evaluation.measuring import AskedCase, CaseMetrics, Judge
from rag_platform.evaluation.metric_sets.judge_model import JudgeModel, contexts_of, measure
from rag_platform.traits import Traits


@dataclass(frozen=True)
class RagasMetrics:
    """`ragas.faithfulness` of every answer and `ragas.answer_accuracy` if an answer is expected.
    Telemetry is off.
    """

    VERSION: ClassVar[str] = "2"
    traits: ClassVar[Traits] = Traits(remote=True, uses_llm=True)

    def __post_init__(self) -> None:
        os.environ["RAGAS_DO_NOT_TRACK"] = "true"  # before its import
        import ragas.metrics.collections  # noqa: F401 (an ImportError here names the extra)

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        model = JudgeModel.of(judge, "ragas")
        return {item.case.case_id: _score(item, model) for item in items}


def _score(item: AskedCase, model: JudgeModel) -> dict[str, float]:
    if not item.result.answered:
        return {}
    from ragas.metrics.collections import AnswerAccuracy, Faithfulness

    llm = _wrap(model)
    texts = {"user_input": item.case.query, "response": item.result.answer_markdown}

    def score(kind: Any, **given: Any) -> Any:
        return asyncio.run(kind(llm=llm).ascore(**texts, **given)).value

    scores = {
        "ragas.faithfulness": partial(score, Faithfulness, retrieved_contexts=contexts_of(item))
    }
    if (expected := item.case.expected_answer) and not item.is_stale:
        scores["ragas.answer_accuracy"] = partial(score, AnswerAccuracy, reference=expected)
    return measure(scores)


def _wrap(model: JudgeModel) -> Any:
    from ragas.llms.base import InstructorBaseRagasLLM

    class Wrapped(InstructorBaseRagasLLM):  # type: ignore[misc]
        def generate(self, prompt: str, response_model: Any) -> Any:
            return model.ask(prompt, response_model)

        async def agenerate(self, prompt: str, response_model: Any) -> Any:
            return model.ask(prompt, response_model)

    return Wrapped()
