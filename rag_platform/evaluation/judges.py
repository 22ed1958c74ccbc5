"""Judges: a language model, which returns a reason and a score as JSON, and rules that compare the
words, numbers and identifiers of texts.

The rules are deterministic and free, but do not understand: an added `not` changes little, a
paraphrase much. Across languages only numbers and identifiers are comparable, so relevancy and
correctness are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from rag_platform.answering.citations import strip_marks
from rag_platform.answering.groundedness import Support, is_quoted, says_something, support_by
from rag_platform.config import prompts
from rag_platform.config.settings import fingerprint
from rag_platform.errors import ProviderError
from rag_platform.evaluation.measuring import Score
from rag_platform.ir import Json
from rag_platform.protocols import LLM
from rag_platform.providers.model_calls import TRANSPORT
from rag_platform.providers.model_replies import (
    bad_reply,
    is_number,
    object_schema,
    parse_object,
    quote_text,
)
from rag_platform.registry import make_provider, provider_version, takes
from rag_platform.storage.answer_cache import AnswerCache
from rag_platform.text.passages import units
from rag_platform.text.scripts import is_wide
from rag_platform.text.term_overlap import coverage
from rag_platform.traits import Traits

_PROMPTS = {
    "faithfulness": ("contexts", "answer"),
    "relevancy": ("query", "answer"),
    "correctness": ("query", "expected", "answer"),
}
_SCHEMA = object_schema(
    reason={"type": "string"}, score={"type": "number", "minimum": 0, "maximum": 1}
)
_TRIES = 2  # if the reply is not a score
# Errors that concern a single answer; any other would fail for all, and is raised.
PER_ANSWER_ERRORS = {"bad_output", "content_filtered", "too_large", "empty_reply", "broken_reply"}
_MAX_SCORES = 1_000_000  # some 150 bytes each


@dataclass(frozen=True)
class LlmJudge:
    """Scores by a language model at temperature 0, unless its options name another: `llm` is
    {provider, options}.

    If the reply is not a score, the model is asked once more; then the answer is not judged.
    `cache` is a file of scores by the hash of the request; it holds no text, so deletions need not
    touch it. An endpoint that cannot be reached, or refuses the key or the model, raises the
    provider's error.
    """

    llm: Mapping[str, Any] = field(default_factory=lambda: {"provider": "none"})
    cache: str = ""  # empty: every answer is sent again

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(uses_llm=True)

    def profile(self) -> Json:
        """The model, how it is asked, the wording of the prompts and the temperature."""
        provider = self.llm["provider"]
        options = {key: value for key, value in self.options.items() if key not in TRANSPORT}
        return {
            "judge_provider_id": f"judge.llm@{self.VERSION}",
            "judge_model": str(options.pop("model", "")),
            "judge_prompt_id": {name: item.profile_id for name, item in self._prompts.items()},
            "temperature": options.pop("temperature", None),
            "llm": f"llm.{provider}@{provider_version('llm', provider)}",
            "llm_options": options,
        }

    def score_faithfulness(self, answer: str, contexts: Sequence[str]) -> Score:
        """0 to 1; not judged if the model twice gave no score."""
        listed = ",\n".join(map(quote_text, contexts))
        return self._score("faithfulness", answer=quote_text(answer), contexts=f"[\n{listed}\n]")

    def score_answer_relevancy(self, answer: str, query: str) -> Score:
        """0 to 1; not judged if the model twice gave no score."""
        return self._score("relevancy", answer=quote_text(answer), query=quote_text(query))

    def score_answer_correctness(self, answer: str, expected: str, query: str) -> Score:
        """0 to 1; not judged if the model twice gave no score."""
        return self._score(
            "correctness",
            answer=quote_text(answer),
            expected=quote_text(expected),
            query=quote_text(query),
        )

    @property
    def options(self) -> Json:
        """The model's options, with temperature 0 as the default."""
        options = dict(self.llm.get("options") or {})
        if takes("llm", self.llm["provider"], "temperature"):
            options.setdefault("temperature", 0.0)
        return options

    @cached_property
    def _prompts(self) -> dict[str, prompts.Prompt]:
        return {name: prompts.load(f"judge/{name}", fields) for name, fields in _PROMPTS.items()}

    @cached_property
    def model(self) -> LLM:
        model: LLM = make_provider("llm", self.llm["provider"], self.options)
        return model

    @cached_property
    def _profile_id(self) -> str:
        return fingerprint(self.profile())

    @cached_property
    def _scores(self) -> AnswerCache:
        return AnswerCache(Path(self.cache), "scores", {"score": "REAL"}, most=_MAX_SCORES)

    def _score(self, name: str, **texts: str) -> Score:
        key = fingerprint(self._profile_id, name, texts, length=64)
        if self.cache and (known := self._scores.get([key])):
            return Score(known[key], "scored before")
        found = self._ask(self._prompts[name], texts)
        if self.cache and found.score is not None:
            self._scores.put(key, found.score)
        return found

    def _ask(self, prompt: prompts.Prompt, texts: dict[str, str]) -> Score:
        reason = ""
        for _ in range(_TRIES):
            try:
                completion = self.model.generate(
                    prompt.messages((), **texts), mode="offline", json_schema=_SCHEMA
                )
                return _read(parse_object(completion.text))
            except ProviderError as error:
                if error.code not in PER_ANSWER_ERRORS:
                    raise
                reason = f"{error.code}: {error.message}"
                if error.code != "bad_output":
                    break
        return Score(None, reason, failed=True)


def _read(reply: Json) -> Score:
    score = reply.get("score")
    if not is_number(score) or not 0 <= score <= 1:
        raise bad_reply(f"the score {score!r}; it must be a number from 0 to 1")
    return Score(float(score), str(reply.get("reason") or ""))


# --- rules ----------------------------------------------------------------------------------------


_LANGUAGES = "the texts are in different languages"


@dataclass(frozen=True)
class RulesJudge:
    """Faithfulness is the mean agreement of the answer's sentences with the passages, by the same
    check as for live answers; relevancy the weighted share of the question's words in the answer;
    correctness the mean share of each expected sentence's words in the answer, 0 for a sentence of
    which a number or identifier is missing.
    """

    VERSION: ClassVar[str] = "2"

    def profile(self) -> Json:
        """The provider and its version."""
        return {"judge_provider_id": f"judge.rules@{self.VERSION}"}

    def score_faithfulness(self, answer: str, contexts: Sequence[str]) -> Score:
        """0 to 1; not judged if no sentence of the answer can be checked."""
        body = "\n".join(contexts)
        found = [
            (1.0, "")
            if any(is_quoted(sentence, text) for text in contexts)
            else (overlap.agreement, "" if overlap.enough else f"{sentence!r}: {overlap.reason}")
            for sentence, overlap in _compare(answer, body)
        ]
        return _mean(found) if found else Score(None, "nothing in the answer could be checked")

    def score_answer_relevancy(self, answer: str, query: str) -> Score:
        """0 to 1; not judged across languages."""
        if is_wide(answer) != is_wide(query):
            return Score(None, _LANGUAGES)
        share = coverage(query, [strip_marks(answer)])
        return Score(share, f"{share:.0%} of the question's words stand in the answer")

    def score_answer_correctness(self, answer: str, expected: str, query: str) -> Score:
        """0 to 1; not judged across languages."""
        if is_wide(answer) != is_wide(expected):
            return Score(None, _LANGUAGES)
        body = strip_marks(answer)
        # an expected answer may be one word
        found = [item for _, item in _compare(expected, body)] or [support_by(expected, body)]
        return _mean(
            [
                (it.share if it.exact else 0.0, "" if it.exact and it.share == 1 else it.reason)
                for it in found
            ]
        )


def _compare(text: str, body: str) -> Iterator[tuple[str, Support]]:
    """The checkable sentences of a text, each with its support in the body."""
    for unit in units(text):
        sentence = strip_marks(text[unit.start : unit.end]).strip()
        if says_something(sentence):
            yield sentence, support_by(sentence, body)


def _mean(found: Sequence[tuple[float, str]]) -> Score:
    return Score(
        fmean(value for value, _ in found), "; ".join(reason for _, reason in found if reason)
    )
