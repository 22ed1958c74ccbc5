"""Datasets from a data root: users' questions from its traces, pinned expectations, and questions
that a language model writes about passages of its releases, each with its evidence.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.config import prompts
from rag_platform.config.settings import Settings, fingerprint
from rag_platform.errors import InputError, ProviderError
from rag_platform.evaluation.cases import Dataset, EvalCase, ExpectedText
from rag_platform.evaluation.expectations import read_expectations
from rag_platform.evaluation.judges import PER_ANSWER_ERRORS
from rag_platform.evaluation.labels import find_quote, fold, open_catalog
from rag_platform.evaluation.monitoring.canaries import Canaries
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.ir import Chunk, Json
from rag_platform.observability.trace_reader import list_outcomes
from rag_platform.protocols import LLM
from rag_platform.providers.model_replies import object_schema, parse_object, quote_text
from rag_platform.registry import make_provider, require_at_least
from rag_platform.releases.release_store import require_current
from rag_platform.storage.store import Store
from rag_platform.text.language import language
from rag_platform.traits import Traits

_MIN_CHARS = 40  # shorter passages say too little to ask about
_TRIES = 3  # passages tried per requested question, at most
_SCHEMA = object_schema(question={"type": "string"}, evidence={"type": "string"})


@dataclass(frozen=True)
class SampledTraces:
    """A sample of `size` questions that users asked a namespace, stratified by language and
    outcome; deterministic for a seed. The cases have no expectations yet.
    """

    namespace: str = "default"
    size: int = 50
    seed: int = 7

    VERSION: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        require_at_least(self, size=1)

    def load(self, source: Path) -> Dataset:
        """The sample of a data root. Raises InputError `no_questions` if there are none."""
        asked = list_outcomes(
            Store(source).logs_dir, self.namespace, since=datetime.min.replace(tzinfo=UTC)
        )
        if not asked:
            raise InputError(
                f"no question to {self.namespace!r} stands in the traces", code="no_questions"
            )
        strata: dict[str, list[Json]] = defaultdict(list)
        for item in sorted(asked, key=lambda item: str(item["text"])):
            strata[" ".join(_tags(item))].append(item)
        generator = random.Random(self.seed)
        for members in strata.values():
            generator.shuffle(members)
        # ordered by relative position, any prefix holds the strata in proportion
        order = sorted(
            ((place + 0.5) / len(members), name, item["trace_id"], item)
            for name, members in strata.items()
            for place, item in enumerate(members)
        )
        cases = sorted(
            (_case(item) for *_, item in order[: self.size]), key=lambda case: case.case_id
        )
        return Dataset(
            dataset_id=f"traces-{self.namespace}", version=self.VERSION, cases=tuple(cases)
        )


def _tags(item: Json) -> tuple[str, ...]:
    return language(str(item["text"])), "answered" if item["answered"] else "refused"


def _case(item: Json) -> EvalCase:
    return EvalCase(
        case_id=f"asked_{fingerprint(item['text'], item['filters'], length=8)}",
        query=str(item["text"]),
        tags=_tags(item),
        doc_scope=item["filters"] or {},
        notes=f"trace {item['trace_id']}",
    )


@dataclass(frozen=True)
class Expectations:
    """The cases that users pinned for a namespace with `rag expect`."""

    namespace: str = "default"

    VERSION: ClassVar[str] = "1"

    def load(self, source: Path) -> Dataset:
        """Raises InputError `no_expectations`."""
        dataset = read_expectations(Store(source), self.namespace)
        if not dataset.cases:
            raise InputError(
                f'nothing is expected of {self.namespace!r} yet; rag expect add "QUESTION" --file'
                f" FILE --namespace {self.namespace}",
                code="no_expectations",
            )
        return dataset


# --- questions about passages ---------------------------------------------------------------------


@dataclass(frozen=True)
class Synthetic:
    """The dataset provider `synthetic`: its source is the folder of a release, `llm` is
    {provider, options}. The seed determines the passages, which are spread over the documents.

    A question is used only if its evidence is in the passage word for word.
    """

    llm: Mapping[str, Any] = field(default_factory=lambda: {"provider": "none"})
    size: int = 50
    seed: int = 7

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(uses_llm=True)

    def __post_init__(self) -> None:
        require_at_least(self, size=1)

    def load(self, source: Path) -> Dataset:
        """At most `size` cases. Raises InputError `invalid_dataset` for a folder that is not a
        release, `no_questions` if no reply is usable, and the model's errors.
        """
        prompt = prompts.load("evaluation/question", ("document", "section", "passage"))
        model: LLM = make_provider("llm", self.llm["provider"], self.llm.get("options"))
        cases: dict[str, EvalCase] = {}
        with open_catalog(source) as catalog:
            passages = self._passages(catalog)
            for chunk, document in passages[: self.size * _TRIES]:
                if len(cases) == self.size:
                    break
                if (case := _ask(model, prompt, chunk, document)) is not None:
                    cases[case.case_id] = case
        if not cases:
            raise InputError(
                f"none of the model's replies to {min(len(passages), self.size * _TRIES)} passages"
                " held a question with evidence copied from the passage",
                code="no_questions",
            )
        return Dataset(
            dataset_id="synthetic",
            version=self.VERSION,
            cases=tuple(sorted(cases.values(), key=lambda case: case.case_id)),
        )

    def _passages(self, catalog: CatalogReader) -> list[tuple[Chunk, str]]:
        """Chunks with their documents' source_uri: one of every document, then a second
        one, etc.
        """
        turns: list[tuple[int, bytes, Chunk, str]] = []
        for version in catalog.versions().values():
            chunks = [
                chunk
                for chunk in catalog.chunks_of_version(version.version_id)
                if len(chunk.chunk_text) >= _MIN_CHARS
            ]
            for turn, chunk in enumerate(sorted(chunks, key=self._order)):
                turns.append((turn, self._order(chunk), chunk, version.source_uri))
        return [(chunk, document) for _, _, chunk, document in sorted(turns, key=lambda t: t[:2])]

    def _order(self, chunk: Chunk) -> bytes:
        return hashlib.sha256(f"{self.seed}:{chunk.chunk_id}".encode()).digest()


def synthesize_cases(
    settings: Settings, store: Store, namespace: str, *, size: int, seed: int
) -> Dataset:
    """Cases made from the published release: by the language model of `judge`, without one as
    canaries. Raises NotFoundError if nothing is published, and what `load` raises.
    """
    release = store.release_dir(namespace, require_current(store, namespace))
    if settings.judge.provider == "none":
        return Canaries(documents=size, per_document=1).load(release)
    return Synthetic(settings.judge.model_dump(), size, seed).load(release)


def _ask(model: LLM, prompt: prompts.Prompt, chunk: Chunk, document: str) -> EvalCase | None:
    """The case of a passage; None if the reply has no question that the passage answers."""
    messages = prompt.messages(
        document=document, section=chunk.section_path, passage=quote_text(chunk.chunk_text)
    )
    try:
        reply = parse_object(model.generate(messages, mode="offline", json_schema=_SCHEMA).text)
    except ProviderError as error:
        if error.code not in PER_ANSWER_ERRORS:
            raise
        return None
    question, evidence = (str(reply.get(key) or "").strip() for key in ("question", "evidence"))
    expected = ExpectedText(text=evidence, file=document)
    held = evidence and find_quote([(chunk, fold(chunk.chunk_text))], expected)
    if not question or not held:
        return None
    return EvalCase(
        case_id=f"synthetic_{fingerprint(document, question, length=12)}",
        query=question,
        tags=("synthetic", language(question)),
        expected_text=(expected,),
    )
