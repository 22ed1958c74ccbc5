"""The language model of the judge `llm` for metric sets of other packages with their own
prompts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rag_platform.errors import InputError, ProviderError
from rag_platform.evaluation.judges.llm import PER_ANSWER_ERRORS, LlmJudge
from rag_platform.evaluation.measuring import AskedCase, Judge
from rag_platform.protocols import LLM, Message
from rag_platform.providers.model_replies import bad_reply, parse_object

_TRIES = 2  # if the reply does not match the schema


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
    """The scores by name, without NaN and those whose call failed for a single answer. Raises the
    model's other errors.
    """
    found: dict[str, float] = {}
    for name, score in scores.items():
        try:
            value = score()
        except ProviderError as error:
            if error.code not in PER_ANSWER_ERRORS:
                raise
            continue
        if value is not None and not math.isnan(value):
            found[name] = float(value)
    return found


def contexts_of(item: AskedCase) -> list[str]:
    """The texts that the answerer was given, else those of the hits."""
    return [hit.chunk_text for hit in item.context or item.result.hits]
