"""Reranking by a language model that grades passages: all of them in one call, or one a call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rag_platform.config import prompts
from rag_platform.errors import ProviderError
from rag_platform.ir import Hit, Json, QueryIR
from rag_platform.observability import tracing
from rag_platform.protocols import LLM
from rag_platform.providers.model_replies import bad_reply, load_prompt, parse_object, quote_text
from rag_platform.providers.model_texts import passage
from rag_platform.registry import build
from rag_platform.traits import Traits

_FIELDS = {"listwise": ("query", "passages"), "pointwise": ("query", "passage")}
_TOP = 10.0
_ONE: Json = {"grade": {"type": "number", "minimum": 0, "maximum": _TOP}}


@dataclass(frozen=True)
class LlmReranker:
    """Grades from 0 to 10 by a language model: `llm` is {provider, options}; who has the model
    already gives it as `model`.

    `judges` says whether one call grades the whole list or each passage has a call of its own,
    `parallel` of them at once. At most `max_hits` hits are read, the others get a grade below all
    that can be given. Passages are sent as JSON strings, so that no text in them can end the list
    or add to it.
    """

    llm: Mapping[str, Any] = field(default_factory=dict)
    model: LLM | None = None
    judges: str = "listwise"  # listwise | pointwise
    # a prompt file with the same placeholders; empty: rerank/listwise or rerank/pointwise
    prompt: str = ""
    max_hits: int = 20
    max_chars: int = 2_000  # of a passage
    parallel: int = 4

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(uses_llm=True)

    _built: dict[str, LLM] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.judges not in _FIELDS:
            raise ValueError(f"judges must be one of {', '.join(_FIELDS)}, not {self.judges!r}")
        if not 1 <= self.max_hits <= 20:
            raise ValueError(
                f"max_hits = {self.max_hits} must be 1 to 20: longer lists cost more than their"
                " order gains"
            )
        for name in ("max_chars", "parallel"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        """The grades; -1 for hits beyond `max_hits`. Raises ProviderError `no_model`, `bad_output`,
        or what the model raises.
        """
        if not hits:
            return []
        prompt = load_prompt(
            self.prompt or f"rerank/{self.judges}", _FIELDS[self.judges], query.query_hash
        )
        model = self._find_model()
        texts = [passage(hit, self.max_chars) for hit in hits[: self.max_hits]]
        asked = quote_text(query.original.strip()[: self.max_chars])
        grades = (self._all if self.judges == "listwise" else self._each)(
            model, prompt, asked, texts
        )
        return [*grades, *[-1.0] * (len(hits) - len(texts))]

    def _find_model(self) -> LLM:
        if self.model is not None:
            return self.model
        if not self.llm:
            raise ProviderError(
                "the reranker 'llm' has no language model; name one in its option `llm`, as"
                " {provider: openai, options: {model: ...}}, or in the strategy's `llm`",
                code="no_model",
            )
        if "llm" not in self._built:
            self._built["llm"] = build("llm", self.llm["provider"], self.llm.get("options"))
        return self._built["llm"]

    def _all(
        self, model: LLM, prompt: prompts.Prompt, asked: str, texts: Sequence[str]
    ) -> list[float]:
        listed = (
            "[\n"
            + ",\n".join(
                f'{{"id": {n}, "text": {quote_text(text)}}}' for n, text in enumerate(texts, 1)
            )
            + "\n]"
        )
        reply = parse_object(
            model.generate(
                prompt.messages(query=asked, passages=listed), json_schema=_LIST_SCHEMA
            ).text
        )
        given = reply.get("grades")
        grades: dict[int, float] = {}
        for item in given if isinstance(given, list) else []:
            number = item.get("id") if isinstance(item, dict) else None
            if (
                not isinstance(number, int)
                or isinstance(number, bool)
                or not 1 <= number <= len(texts)
                or number in grades
            ):
                raise bad_reply(f"the id {number!r}, of {len(texts)} passages")
            grades[number] = _grade(item)
        if len(grades) != len(texts):
            raise bad_reply(f"{len(grades)} grades for {len(texts)} passages")
        return [grades[n] for n in range(1, len(texts) + 1)]

    def _each(
        self, model: LLM, prompt: prompts.Prompt, asked: str, texts: Sequence[str]
    ) -> list[float]:
        def grade(text: str) -> float:
            messages = prompt.messages(query=asked, passage=quote_text(text))
            return _grade(parse_object(model.generate(messages, json_schema=_ONE_SCHEMA).text))

        with ThreadPoolExecutor(self.parallel) as pool:
            futures = [pool.submit(tracing.carry(grade), text) for text in texts]
            try:
                return [future.result() for future in futures]
            except BaseException:
                # one failed grade makes the others useless
                pool.shutdown(wait=False, cancel_futures=True)
                raise


_ONE_SCHEMA: Json = {
    "type": "object",
    "properties": _ONE,
    "required": ["grade"],
    "additionalProperties": False,
}
_ITEM: Json = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, **_ONE},
    "required": ["id", "grade"],
    "additionalProperties": False,
}
_LIST_SCHEMA: Json = {
    "type": "object",
    "properties": {"grades": {"type": "array", "items": _ITEM}},
    "required": ["grades"],
    "additionalProperties": False,
}


def _grade(item: Json) -> float:
    grade = item.get("grade")
    if (
        isinstance(grade, bool)
        or not isinstance(grade, (int, float))
        or not math.isfinite(grade)
        or not 0 <= grade <= _TOP
    ):
        raise bad_reply(f"the grade {grade!r}; it must be a number from 0 to {_TOP:g}")
    return float(grade)
