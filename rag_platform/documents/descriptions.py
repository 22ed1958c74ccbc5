"""Has a language model write title, summary and tags of chunks. Answers are cached by their
question and never become part of chunk_text.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from rag_platform.config import prompts
from rag_platform.config.ingestion import DESCRIBE_FIELDS, DescribeConfig
from rag_platform.config.settings import fingerprint
from rag_platform.errors import RagError
from rag_platform.ir import Chunk, Json, format_section
from rag_platform.observability import tracing
from rag_platform.protocols import LLM, Message
from rag_platform.providers.model_calls import TRANSPORT
from rag_platform.providers.model_replies import bad_reply, escape_tags, object_schema, parse_object
from rag_platform.registry import make_provider, provider_version
from rag_platform.storage.answer_cache import AnswerCache

MAX_CHARS = 8000  # of a passage; only very long table rows exceed it
MAX_TOKENS = 500
MAX_TITLE, MAX_SUMMARY, MAX_TAG, MAX_TAGS = 160, 1200, 60, 10
GIVE_UP = 3  # consecutive failures after which no more calls are made for a document

SCHEMA = object_schema(
    title={"type": "string"},
    summary={"type": "string"},
    tags={"type": "array", "items": {"type": "string"}},
)
# Failures caused by one text, after which the next one may well succeed.
_TEXT_FAULTS = {"content_filtered", "too_large"}


@dataclass(frozen=True, slots=True)
class Description:
    """A model's description of one chunk."""

    title: str = ""
    summary: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Descriptions:
    """The descriptions of a document's chunks, and the failures."""

    found: dict[str, Description] = field(default_factory=dict)  # by chunk_id
    failed: dict[str, str] = field(default_factory=dict)  # chunk_id to reason
    reused: int = 0
    calls: int = 0
    cost: float | None = None

    @property
    def counts(self) -> Json:
        """The figures of the stage."""
        return {
            "described": len(self.found),
            "described_reused": self.reused,
            "describe_calls": self.calls,
            "describe_failed": len(self.failed),
            "describe_cost": self.cost,
        }

    @property
    def warnings(self) -> list[str]:
        """One sentence if some chunks have no description, else empty."""
        if not self.failed:
            return []
        reason = next(iter(self.failed.values()))
        return [
            f"{len(self.failed)} of {len(self.failed) + len(self.found)} chunks have no title,"
            f" summary and tags; the first: {reason}"
        ]


def describe(chunks: Sequence[Chunk], config: DescribeConfig, cache: Path) -> Descriptions:
    """Describe all chunks with text except parents; empty if no model is configured.

    Cached answers are reused; other questions are asked in parallel, in offline mode. A failure
    affects only its chunk, but after GIVE_UP consecutive failures that the text did not cause, no
    more questions are asked. Raises ConfigError when the model cannot be built or the prompt not
    loaded.
    """
    if config.provider == "none":
        return Descriptions()
    questions = make_questions(chunks, config)
    texts, keys = questions.texts, questions.keys
    with closing(_open(cache)) as known:
        answered = {key: parse_answer(text) for key, text in known.get(keys.values()).items()}
        wanted = {key: texts[chunk_id] for chunk_id, key in keys.items() if key not in answered}
        run = _Run(make_provider("llm", config.provider, config.options), questions, known)
        if wanted:
            with ThreadPoolExecutor(config.parallel, thread_name_prefix="describe") as pool:
                answers = {
                    key: pool.submit(tracing.carry(run.ask), key, text)
                    for key, text in wanted.items()
                }
            answered |= {
                key: description
                for key, answer in answers.items()
                if (description := answer.result()) is not None
            }
    found = {chunk_id: answered[key] for chunk_id, key in keys.items() if key in answered}
    failed = {chunk_id: run.failed[key] for chunk_id, key in keys.items() if key in run.failed}
    return Descriptions(
        found, failed, len(found) - sum(keys[i] in wanted for i in found), run.calls, run.cost
    )


@dataclass(frozen=True, slots=True)
class Questions:
    """The user messages about chunks, and the cache keys of the answers, both by chunk_id."""

    prompt: prompts.Prompt
    texts: dict[str, str]
    keys: dict[str, str]


def make_questions(chunks: Sequence[Chunk], config: DescribeConfig) -> Questions:
    """The questions about chunks with text, except parents. Raises ConfigError for a bad prompt."""
    prompt = prompts.load("describe/chunk", DESCRIBE_FIELDS)
    options = {key: value for key, value in config.options.items() if key not in TRANSPORT}
    profile = fingerprint(
        config.provider,
        provider_version("llm", config.provider),
        options,
        prompt.profile_id,
        SCHEMA,
    )
    passages = [
        chunk for chunk in chunks if chunk.chunk_text.strip() and chunk.chunk_type != "parent"
    ]
    texts = {
        it.chunk_id: prompt.user(
            section_path=escape_tags(format_section(it.section_path), "passage") or "(none)",
            text=escape_tags(it.chunk_text[:MAX_CHARS], "passage"),
        )
        for it in passages
    }
    keys = {chunk_id: fingerprint(profile, text, length=64) for chunk_id, text in texts.items()}
    return Questions(prompt, texts, keys)


def parse_answer(text: str) -> Description:
    """The description in a model's reply, its fields truncated. Raises ProviderError."""
    value = parse_object(text)
    title, summary, tags = value.get("title"), value.get("summary"), value.get("tags")
    if not isinstance(title, str) or not isinstance(summary, str):
        raise bad_reply(f"JSON without the texts title and summary: {text[:120]!r}")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise bad_reply(f"JSON without a list of tags: {text[:120]!r}")
    lines = (" ".join(tag.split())[:MAX_TAG].lower() for tag in tags)
    return Description(
        " ".join(title.split())[:MAX_TITLE],
        " ".join(summary.split())[:MAX_SUMMARY],
        tuple(dict.fromkeys(line for line in lines if line))[:MAX_TAGS],
    )


class _Run:
    """The model calls for one document, made by several threads."""

    def __init__(self, model: LLM, questions: Questions, cache: AnswerCache) -> None:
        self.model, self.prompt, self.cache = model, questions.prompt, cache
        self.failed: dict[str, str] = {}
        self.calls = 0
        self.cost: float | None = None
        self._consecutive_failures = 0
        self._lock = threading.Lock()

    def ask(self, key: str, text: str) -> Description | None:
        """The description; None after a failure, whose reason is in `failed`."""
        with self._lock:
            if self._consecutive_failures >= GIVE_UP:
                self.failed[key] = "not asked, for the model failed three times in a row"
                return None
            self.calls += 1
        try:
            messages = [
                Message("system", self.prompt.system, prompt=self.prompt.profile_id),
                Message("user", text),
            ]
            answer = self.model.generate(
                messages, mode="offline", max_tokens=MAX_TOKENS, json_schema=SCHEMA
            )
            found = parse_answer(answer.text)
        except RagError as error:
            with self._lock:
                self.failed[key] = error.message
                self._consecutive_failures += error.code not in _TEXT_FAULTS
            return None
        self.cache.put(key, answer.text, answer.model)
        with self._lock:
            self._consecutive_failures = 0
            if answer.cost is not None:
                self.cost = (self.cost or 0.0) + answer.cost
        return found


def list_answers(path: Path) -> dict[str, int]:
    """Cache key to size in bytes of all answers; empty if there is no cache."""
    if not path.is_file():
        return {}
    with closing(_open(path)) as cache:
        return cache.sizes()


def forget(path: Path, keys: Sequence[str]) -> None:
    """Delete answers and overwrite them on disk."""
    if keys:
        with closing(_open(path)) as cache:
            cache.remove(keys)


def _open(path: Path) -> AnswerCache:
    """The cache of parsed answers, by the fingerprint of their question."""
    return AnswerCache(path, "descriptions", {"answer": "TEXT", "model": "TEXT"})
