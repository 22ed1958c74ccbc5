"""Reranking by a language model that grades passages: all of them in one call, or one a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from rag_platform.config import prompts
from rag_platform.errors import ProviderError
from rag_platform.ir import Hit, Json, QueryIR
from rag_platform.observability import tracing
from rag_platform.protocols import LLM
from rag_platform.providers.model_replies import (
    bad_reply,
    is_number,
    load_prompt,
    object_schema,
    parse_object,
    quote_text,
)
from rag_platform.providers.model_texts import passage
from rag_platform.registry import require_at_least
from rag_platform.traits import Traits

_PLACEHOLDERS = {"listwise": ("query", "passages"), "pointwise": ("query", "passage")}
_MAX_GRADE = 10.0
_GRADE: Json = {"grade": {"type": "number", "minimum": 0, "maximum": _MAX_GRADE}}


@dataclass(frozen=True)
class LlmReranker:
    """Grades from 0 to 10 by a language model: `model`, which the caller makes of the option `llm`,
    {provider, options}, or of the strategy's own.

    `judges: listwise` grades the whole list in one call, `pointwise` each passage in a call of its
    own, `parallel` of them at once. Hits beyond `max_hits` are not read and rank below all others.
    Passages are sent as JSON strings, so that no text in them can end the list or add to it.
    """

    llm: Mapping[str, Any] = field(default_factory=dict)
    model: LLM | None = None
    judges: Literal["listwise", "pointwise"] = "listwise"
    # a prompt file with the same placeholders; empty: rerank/listwise or rerank/pointwise
    prompt: str = ""
    max_hits: int = 20
    max_chars: int = 2_000  # of a passage
    parallel: int = 4

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(uses_llm=True)

    def __post_init__(self) -> None:
        if not 1 <= self.max_hits <= 20:
            raise ValueError(
                f"max_hits = {self.max_hits} must be 1 to 20: longer lists cost more than their"
                " order gains"
            )
        require_at_least(self, max_chars=1, parallel=1)

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        """The grades; -1 for hits beyond `max_hits`. Raises ProviderError `no_model`, `bad_output`,
        or what the model raises.
        """
        if not hits:
            return []
        if self.model is None:
            raise ProviderError(
                "the reranker 'llm' has no language model; name one in its option `llm`, as"
                " {provider: openai, options: {model: ...}}, or in the strategy's `llm`",
                code="no_model",
            )
        prompt = load_prompt(
            self.prompt or f"rerank/{self.judges}", _PLACEHOLDERS[self.judges], query.query_hash
        )
        texts = [passage(hit, self.max_chars) for hit in hits[: self.max_hits]]
        question = quote_text(query.original.strip()[: self.max_chars])
        grade = self._grade_list if self.judges == "listwise" else self._grade_each
        return [*grade(self.model, prompt, question, texts), *[-1.0] * (len(hits) - len(texts))]

    def _grade_list(
        self, model: LLM, prompt: prompts.Prompt, question: str, texts: Sequence[str]
    ) -> list[float]:
        passages = ",\n".join(
            f'{{"id": {n}, "text": {quote_text(text)}}}' for n, text in enumerate(texts, 1)
        )
        messages = prompt.messages(query=question, passages=f"[\n{passages}\n]")
        reply = parse_object(model.generate(messages, json_schema=_LIST_SCHEMA).text)
        items = reply.get("grades")
        numbers = range(1, len(texts) + 1)
        grades: dict[int, float] = {}
        for item in items if isinstance(items, list) else []:
            number = item.get("id") if isinstance(item, dict) else None
            if type(number) is not int or number not in numbers or number in grades:
                raise bad_reply(f"the id {number!r}, of {len(texts)} passages")
            grades[number] = _read_grade(item)
        if len(grades) != len(texts):
            raise bad_reply(f"{len(grades)} grades for {len(texts)} passages")
        return [grades[number] for number in numbers]

    def _grade_each(
        self, model: LLM, prompt: prompts.Prompt, question: str, texts: Sequence[str]
    ) -> list[float]:
        def grade(text: str) -> float:
            messages = prompt.messages(query=question, passage=quote_text(text))
            reply = model.generate(messages, json_schema=object_schema(**_GRADE))
            return _read_grade(parse_object(reply.text))

        return tracing.map_in_threads(grade, texts, self.parallel)


_ITEM = object_schema(id={"type": "integer"}, **_GRADE)
_LIST_SCHEMA = object_schema(grades={"type": "array", "items": _ITEM})


def _read_grade(item: Json) -> float:
    grade = item.get("grade")
    if not is_number(grade) or not 0 <= grade <= _MAX_GRADE:
        raise bad_reply(f"the grade {grade!r}; it must be a number from 0 to {_MAX_GRADE:g}")
    return float(grade)
