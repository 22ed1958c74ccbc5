"""Metrics of the packages RAGAS and DeepEval, with their own prompts and the language model of the
judge `llm`.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from rag_platform.errors import InputError, ProviderError
from rag_platform.evaluation.judges import PER_ANSWER_ERRORS, LlmJudge
from rag_platform.evaluation.measuring import AskedCase, CaseMetrics, Judge
from rag_platform.protocols import LLM, Message
from rag_platform.providers.model_replies import bad_reply, parse_object
from rag_platform.traits import Traits

_TRIES = 2  # if the reply does not match the schema
# set before its import: no telemetry, no update check, no .env files, no written files
_QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "1",
    "DEEPEVAL_DISABLE_DOTENV": "1",
    "DEEPEVAL_UPDATE_WARNING_OPT_IN": "0",
    "DEEPEVAL_FILE_SYSTEM": "READ_ONLY",
    "ERROR_REPORTING": "0",
}


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """A model whose replies are parsed into pydantic classes."""

    name: str
    llm: LLM

    @classmethod
    def of(cls, judge: Judge | None, metric_set: str) -> JudgeModel:
        """The model of a judge. Raises InputError `no_judge` for a judge without one."""
        if not isinstance(judge, LlmJudge):
            raise InputError(
                f"the metric set {metric_set!r} asks a language model; run it with --judge llm",
                code="no_judge",
            )
        return cls(str(judge.options.get("model", judge.llm["provider"])), judge.model)

    def ask(self, prompt: str, form: Any = None) -> Any:
        """The reply as an instance of the pydantic class `form`, without one as text. Raises
        ProviderError, `bad_output` if no reply matches the schema.
        """
        schema = form.model_json_schema() if form is not None else None
        for _ in range(_TRIES):
            completion = self.llm.generate(
                [Message("user", prompt)], mode="offline", json_schema=schema
            )
            if form is None:
                return completion.text
            try:
                return form.model_validate(parse_object(completion.text))
            except ValueError:  # pydantic's error is one
                continue
        raise bad_reply(f"what is no {form.__name__}")


def measure(scores: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """The scores by name, without those that the package does not give; NaN if the call failed for
    a single answer, or if the package made nothing of the replies. Raises the model's other errors.
    """
    found: dict[str, float] = {}
    for name, score in scores.items():
        try:
            value = score()
        except ProviderError as error:
            if error.code not in PER_ANSWER_ERRORS:
                raise
            found[name] = math.nan
            continue
        if value is not None:
            found[name] = float(value)
    return found


def contexts_of(item: AskedCase) -> list[str]:
    """The texts that the answerer was given, else those of the hits."""
    return [hit.readable for hit in item.context or item.result.hits]


# --- RAGAS --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RagasMetrics:
    """`ragas.faithfulness` of every answer and `ragas.answer_accuracy` if an answer is expected.
    Telemetry is off.
    """

    VERSION: ClassVar[str] = "3"
    traits: ClassVar[Traits] = Traits(remote=True, uses_llm=True)

    def __post_init__(self) -> None:
        os.environ["RAGAS_DO_NOT_TRACK"] = "true"  # before its import
        import ragas.metrics.collections  # noqa: F401 (an ImportError here names the extra)

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        model = JudgeModel.of(judge, "ragas")
        return {item.case.case_id: _score_ragas(item, model) for item in items}


def _score_ragas(item: AskedCase, model: JudgeModel) -> dict[str, float]:
    if not item.result.answered:
        return {}
    from ragas.metrics.collections import AnswerAccuracy, Faithfulness

    llm = _wrap_for_ragas(model)
    texts = {"user_input": item.case.query, "response": item.result.answer_markdown}

    def score(kind: Any, **given: Any) -> Any:
        return asyncio.run(kind(llm=llm).ascore(**texts, **given)).value

    scores = {
        "ragas.faithfulness": partial(score, Faithfulness, retrieved_contexts=contexts_of(item))
    }
    if (expected := item.case.expected_answer) and not item.is_stale:
        scores["ragas.answer_accuracy"] = partial(score, AnswerAccuracy, reference=expected)
    return measure(scores)


def _wrap_for_ragas(model: JudgeModel) -> Any:
    from ragas.llms.base import InstructorBaseRagasLLM

    class Wrapped(InstructorBaseRagasLLM):  # type: ignore[misc]
        def generate(self, prompt: str, response_model: Any) -> Any:
            return model.ask(prompt, response_model)

        async def agenerate(self, prompt: str, response_model: Any) -> Any:
            return model.ask(prompt, response_model)

    return Wrapped()


# --- DeepEval -----------------------------------------------------------------------------------


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
            return {item.case.case_id: _score_deepeval(item, model) for item in items}


def _score_deepeval(item: AskedCase, model: JudgeModel) -> dict[str, float]:
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
        metric = kind(model=_wrap_for_deepeval(model), async_mode=False, include_reason=False)
        return metric.measure(case, _show_indicator=False)

    return measure({name: partial(score, kind) for name, kind in metrics.items()})


def _wrap_for_deepeval(model: JudgeModel) -> Any:
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
