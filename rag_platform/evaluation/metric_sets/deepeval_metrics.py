"""DeepEval as a metric set, with the language model of the judge `llm`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from rag_platform.evaluation.measuring import AskedCase, CaseMetrics, Judge
from rag_platform.evaluation.metric_sets.judge_model import JudgeModel, contexts_of, measure
from rag_platform.traits import Traits

# set before its import: no telemetry, no update check, no .env files, no written files
_QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "1",
    "DEEPEVAL_DISABLE_DOTENV": "1",
    "DEEPEVAL_UPDATE_WARNING_OPT_IN": "0",
    "DEEPEVAL_FILE_SYSTEM": "READ_ONLY",
    "ERROR_REPORTING": "0",
}


@dataclass(frozen=True)
class DeepEvalMetrics:
    """`deepeval.faithfulness` and `deepeval.answer_relevancy` of every answer. Telemetry is off."""

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(remote=True, uses_llm=True)

    def __post_init__(self) -> None:
        os.environ.update(_QUIET)
        with redirect_stdout(sys.stderr):  # it prints
            import deepeval.metrics  # noqa: F401 (an ImportError here names the extra)

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        model = JudgeModel.of(judge, "deepeval")
        with redirect_stdout(sys.stderr):
            return {item.case.case_id: _score(item, model) for item in items}


def _score(item: AskedCase, model: JudgeModel) -> dict[str, float]:
    if not item.result.answered:
        return {}
    from deepeval.metrics import AnswerRelevancyMetric, FaithfulnessMetric
    from deepeval.test_case import LLMTestCase

    case = LLMTestCase(
        input=item.case.query,
        actual_output=item.result.answer_markdown,
        retrieval_context=contexts_of(item),
    )
    metrics = {
        "deepeval.faithfulness": FaithfulnessMetric,
        "deepeval.answer_relevancy": AnswerRelevancyMetric,
    }

    def score(kind: Any) -> Any:
        metric = kind(model=_wrap(model), async_mode=False, include_reason=False)
        return metric.measure(case, _show_indicator=False)

    return measure({name: partial(score, kind) for name, kind in metrics.items()})


def _wrap(model: JudgeModel) -> Any:
    from deepeval.models import DeepEvalBaseLLM

    class Wrapped(DeepEvalBaseLLM):  # type: ignore[misc]
        def load_model(self) -> Any:
            return self

        def generate(self, prompt: str, schema: Any = None) -> Any:
            return model.ask(prompt, schema)

        async def a_generate(self, prompt: str, schema: Any = None) -> Any:
            return model.ask(prompt, schema)

        def get_model_name(self) -> str:
            return model.name

    return Wrapped(model.name)
