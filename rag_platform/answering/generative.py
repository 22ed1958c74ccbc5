"""Answers written by a language model from numbered passages; `citations.check_answer` checks what
it writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rag_platform.answering.citations import clean_part
from rag_platform.answering.context_builder import render_passages
from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import Hit, QueryIR
from rag_platform.observability import tracing
from rag_platform.protocols import LLM, Completion, Message, Written
from rag_platform.providers.model_replies import load_prompt
from rag_platform.text.sentences import STOPS
from rag_platform.traits import Traits

SENTINEL = "NOT_IN_PASSAGES"  # what the prompt asks for where the passages have no answer
_OVERFLOW = re.compile(
    r"context[ _](?:length|window|size)|maximum context|too (?:long|many tokens|large)|exceed\w*"
    r" .{0,40}(?:tokens|context)",
    re.I,
)
_BOUNDARY = re.compile(rf"\n|[{STOPS}]|[.!?](?=\s)")


@dataclass(frozen=True)
class Generative:
    """Asks the strategy's language model with the prompt file `prompt`; if the model refuses the
    prompt as too long, again with half of the passages.
    """

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(uses_llm=True)

    llm: LLM | None = field(default=None, repr=False)
    prompt: str = "retrieval/answer"
    max_tokens: int = 1000
    format: str = "xml"  # of the passages: xml, markdown or plain

    def answer(
        self,
        query: QueryIR,
        evidence: Sequence[Hit],
        *,
        on_text: Callable[[str], None] | None = None,
    ) -> Written:
        """What the model wrote, with marks that cite the evidence; empty where it says that the
        passages do not answer the question.

        `on_text` receives whole sentences, without links that are in no passage; the returned text
        is authoritative. Raises what the model raises, `too_large` only when a single passage does
        not fit.
        """
        if self.llm is None:
            raise ConfigError(
                "the answerer `llm` has no language model; set answerer.llm or llm in the strategy",
                code="no_model",
            )
        if not evidence:
            return Written("")
        prompt = load_prompt(self.prompt, ("query", "context"), query.query_hash)
        warnings: list[str] = []
        shown = list(evidence)
        while True:
            messages = prompt.messages(
                query=query.original, context=render_passages(shown, self.format)
            )
            tracing.event(
                "generation.prompt",
                {"prompt_profile_id": prompt.profile_id, "passages": len(shown)},
            )
            try:
                completion = self._completion(self.llm, messages, shown, on_text)
                break
            except ProviderError as error:
                if len(shown) < 2 or not _overflows(error):
                    raise
                shown = shown[: len(shown) // 2]
                warnings = [
                    f"the passages were too long for the model, it read the first {len(shown)} of"
                    f" {len(evidence)}"
                ]
        text = completion.text.strip()
        if text.startswith(SENTINEL):
            text = ""
        if completion.finish == "length":
            warnings.append(
                "the answer was cut where the model reached its limit of tokens"
                " (answerer.options.max_tokens)"
            )
        return Written(
            text.replace(SENTINEL, "").strip(), completion, tuple(warnings), prompt.profile_id
        )

    def _completion(
        self,
        llm: LLM,
        messages: Sequence[Message],
        shown: Sequence[Hit],
        on_text: Callable[[str], None] | None,
    ) -> Completion:
        if on_text is None:
            return llm.generate(messages, max_tokens=self.max_tokens)
        relay = _Relay(shown, on_text)
        completion = llm.generate(messages, max_tokens=self.max_tokens, on_text=relay.add)
        relay.finish()
        return completion


def _overflows(error: ProviderError) -> bool:
    """True when the model refused a prompt as too long before it wrote anything."""
    if error.details.get("text"):
        return False
    return error.code == "too_large" or (
        error.code == "bad_request" and bool(_OVERFLOW.search(error.message))
    )


class _Relay:
    """Passes a stream on in whole sentences, so that no partial link or sentinel is shown."""

    def __init__(self, evidence: Sequence[Hit], on_text: Callable[[str], None]) -> None:
        self._evidence, self._on_text = evidence, on_text
        self._buffer = ""
        self._started = self._silent = False

    def add(self, part: str) -> None:
        """Take the next part of the stream."""
        self._buffer += part
        begun = self._buffer.lstrip()
        if not self._started and (
            self._silent or SENTINEL.startswith(begun) or begun.startswith(SENTINEL)
        ):
            self._silent = self._silent or begun.startswith(SENTINEL)
            return
        ends = [match.end() for match in _BOUNDARY.finditer(self._buffer)]
        end = next((end for end in reversed(ends) if _is_whole(self._buffer[:end])), 0)
        if end:
            self._emit(self._buffer[:end])
            self._buffer = self._buffer[end:]

    def finish(self) -> None:
        """Pass on what is left."""
        if self._buffer and not self._silent:
            self._emit(self._buffer)
        self._buffer = ""

    def _emit(self, text: str) -> None:
        self._started = True
        if shown := clean_part(text.replace(SENTINEL, ""), self._evidence):
            self._on_text(shown)


def _is_whole(text: str) -> bool:
    """False when a link, tag or code block is still open at the end of the text."""
    return (
        all(text.count(left) == text.count(right) for left, right in ("[]", "()", "<>"))
        and text.count("`") % 2 == 0
    )
