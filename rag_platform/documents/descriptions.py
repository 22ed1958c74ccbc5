"""Title, summary and tags of chunks, written by a language model once and kept by what was asked;
never part of chunk_text.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from rag_platform.config import prompts
from rag_platform.config.ingestion import DESCRIBE_FIELDS, DescribeConfig
from rag_platform.config.settings import fingerprint
from rag_platform.errors import ProviderError, RagError
from rag_platform.ir import Chunk, Json
from rag_platform.observability import tracing
from rag_platform.protocols import LLM, Message
from rag_platform.providers.model_calls import TRANSPORT
from rag_platform.providers.model_replies import strip_fence
from rag_platform.registry import build, provider_version
from rag_platform.storage.answer_cache import AnswerCache

MAX_CHARS = 8000  # of a passage; only a very long table row is longer
MAX_TOKENS = 500
MAX_TITLE, MAX_SUMMARY, MAX_TAG, MAX_TAGS = 160, 1200, 60, 10
GIVE_UP = 3  # failures in a row after which nothing more is asked for this document

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "summary": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["title", "summary", "tags"],
    "additionalProperties": False,
}
# Failures that say nothing about the next text.
_OF_ONE_TEXT = {"content_filtered", "too_large"}


@dataclass(frozen=True, slots=True)
class Description:
    """What a model said about one chunk."""

    title: str = ""
    summary: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Descriptions:
    """Descriptions by chunk_id; `failed` says why a chunk has none."""

    found: dict[str, Description] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    reused: int = 0
    asked: int = 0
    cost: float | None = None

    @property
    def counts(self) -> Json:
        """The figures of the stage."""
        return {
            "described": len(self.found),
            "described_reused": self.reused,
            "describe_calls": self.asked,
            "describe_failed": len(self.failed),
            "describe_cost": self.cost,
        }

    @property
    def warnings(self) -> list[str]:
        """One sentence when chunks have no description."""
        if not self.failed:
            return []
        reason = next(iter(self.failed.values()))
        return [
            f"{len(self.failed)} of {len(self.failed) + len(self.found)} chunks have no title,"
            f" summary and tags; the first: {reason}"
        ]


def describe(chunks: Sequence[Chunk], config: DescribeConfig, cache: Path) -> Descriptions:
    """The descriptions of every chunk with text but parents; none without a model.

    Answers to equal questions come from `cache`; the others are asked in parallel, offline. A
    failure costs its chunk alone; after three in a row that are no fault of the text nothing more
    is asked. Raises ConfigError when the model cannot be built or the prompt does not load.
    """
    if config.provider == "none":
        return Descriptions()
    questions = make_questions(chunks, config)
    texts, keys = questions.texts, questions.keys
    with closing(_open(cache)) as known:
        held = {key: parse_answer(text) for key, text in known.get(keys.values()).items()}
        wanted = {key: texts[chunk_id] for chunk_id, key in keys.items() if key not in held}
        run = _Run(build("llm", config.provider, config.options), questions, known)
        if wanted:
            with ThreadPoolExecutor(config.parallel, thread_name_prefix="describe") as pool:
                answers = {
                    key: pool.submit(tracing.carry(run.ask), key, text)
                    for key, text in wanted.items()
                }
            held |= {
                key: said
                for key, answer in answers.items()
                if (said := answer.result()) is not None
            }
    found = {chunk_id: held[key] for chunk_id, key in keys.items() if key in held}
    failed = {chunk_id: run.failed[key] for chunk_id, key in keys.items() if key in run.failed}
    return Descriptions(
        found, failed, len(found) - sum(keys[i] in wanted for i in found), run.asked, run.cost
    )


@dataclass(frozen=True, slots=True)
class Questions:
    """What a model is asked about chunks and the keys of its answers, by chunk_id."""

    prompt: prompts.Prompt
    texts: dict[str, str]
    keys: dict[str, str]


def make_questions(chunks: Sequence[Chunk], config: DescribeConfig) -> Questions:
    """The questions about chunks with text but parents. Raises ConfigError for a bad prompt."""
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
        chunk.chunk_id: prompt.user(section_path=_path(chunk), text=chunk.chunk_text[:MAX_CHARS])
        for chunk in passages
    }
    return Questions(
        prompt,
        texts,
        {chunk_id: fingerprint(profile, text, length=64) for chunk_id, text in texts.items()},
    )


def parse_answer(text: str) -> Description:
    """The description in a model's answer, cut to its limits. Raises `broken_reply`."""
    try:
        value = json.loads(strip_fence(text))
    except ValueError as error:
        raise ProviderError(
            f"the model did not answer with JSON: {text[:120]!r}", code="broken_reply"
        ) from error
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("title"), str)
        or not isinstance(value.get("summary"), str)
    ):
        raise ProviderError(
            f"the model's JSON lacks the texts title and summary: {text[:120]!r}",
            code="broken_reply",
        )
    tags = value.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ProviderError(
            f"the model's JSON has no list of tags: {text[:120]!r}", code="broken_reply"
        )
    lines = (" ".join(tag.split())[:MAX_TAG].lower() for tag in tags)
    return Description(
        " ".join(value["title"].split())[:MAX_TITLE],
        " ".join(value["summary"].split())[:MAX_SUMMARY],
        tuple(dict.fromkeys(line for line in lines if line))[:MAX_TAGS],
    )


def _path(chunk: Chunk) -> str:
    return "(none)" if chunk.section_path.startswith("__") else chunk.section_path


class _Run:
    """The calls for one document, from several threads."""

    def __init__(self, model: LLM, questions: Questions, cache: AnswerCache) -> None:
        self.model, self.prompt, self.cache = model, questions.prompt, cache
        self.failed: dict[str, str] = {}
        self.asked = 0
        self.cost: float | None = None
        self._in_a_row = 0
        self._lock = threading.Lock()

    def ask(self, key: str, text: str) -> Description | None:
        """The description; None when there is none, with the reason in `failed`."""
        with self._lock:
            if self._in_a_row >= GIVE_UP:
                self.failed[key] = "not asked, for the model failed three times in a row"
                return None
            self.asked += 1
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
                self._in_a_row += error.code not in _OF_ONE_TEXT
            return None
        self.cache.put(key, answer.text, answer.model)
        with self._lock:
            self._in_a_row = 0
            if answer.cost is not None:
                self.cost = (self.cost or 0.0) + answer.cost
        return found


def list_answers(path: Path) -> dict[str, int]:
    """Key to size in bytes of every kept answer; nothing where no model was ever asked."""
    if not path.is_file():
        return {}
    with closing(_open(path)) as cache:
        return cache.sizes()


def forget(path: Path, keys: Sequence[str]) -> None:
    """Drop answers, overwritten on disk."""
    if keys:
        with closing(_open(path)) as cache:
            cache.remove(keys)


def _open(path: Path) -> AnswerCache:
    """The checked answers by the fingerprint of their question."""
    return AnswerCache(path, "descriptions", {"answer": "TEXT", "model": "TEXT"})
