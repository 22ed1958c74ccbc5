"""Datasets from a data root: users' questions from its traces, and pinned expectations."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from rag_platform.config.settings import fingerprint
from rag_platform.errors import InputError
from rag_platform.evaluation.cases import Dataset, EvalCase
from rag_platform.evaluation.expectations import read_expectations
from rag_platform.ir import Json
from rag_platform.observability.trace_reader import list_outcomes
from rag_platform.registry import require_at_least
from rag_platform.storage.store import Store
from rag_platform.text.language import language


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
                " FILE",
                code="no_expectations",
            )
        return dataset
