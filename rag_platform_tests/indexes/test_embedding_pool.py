"""Pools that are begun before there is anything to embed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from rag_platform.config.ingestion import EmbeddingConfig
from rag_platform.indexes.embedding import embed_texts
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.indexes.embedding_pool import begin_pool, close_begun, take_pool
from rag_platform.ir import EmbedderInfo
from rag_platform.protocols import Vectors

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Journalling:
    """An embedder that writes down what it is asked; it cannot load where `broken`."""

    VERSION: ClassVar[str] = "1"

    journal: str = ""
    broken: bool = False

    def info(self) -> EmbedderInfo:
        return EmbedderInfo("journalling", "1", 2)

    def prepare(self) -> None:
        self._write("prepared")

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        self._write("|".join(texts))
        if self.broken:
            raise ValueError("no weights")
        return np.array([(1.0, 0.0)] * len(texts), dtype=np.float32)

    def _write(self, line: str) -> None:
        with open(self.journal, "a", encoding="utf-8") as journal:
            journal.write(f"{line}\n")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def config(journal: Path, **options: bool) -> EmbeddingConfig:
    return EmbeddingConfig(
        provider=f"{__name__}:Journalling", options={"journal": str(journal), **options}
    )


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[EmbeddingCache]:
    opened = EmbeddingCache(tmp_path / "cache" / "embeddings.sqlite")
    yield opened
    opened.close()


def test_a_pool_that_was_begun_is_taken_once_and_embeds_at_once(
    journal: Path, cache: EmbeddingCache
) -> None:
    embedding, folder = config(journal), cache.path.parent
    begin_pool(embedding, folder).of(embedding).begin(prepare=True)
    with take_pool(embedding, folder) as pool, take_pool(embedding, folder) as another:
        assert (pool.size, another.size) == (1, 0)
        report = embed_texts({"h": "a text"}, embedding, cache, text_norm_profile="p", pool=pool)
    assert (report.processes, dict(report.failed)) == (1, {})
    assert journal.read_text(encoding="utf-8").split() == ["prepared", ".", "a", "text"]


def test_what_cannot_load_says_so_to_whoever_embeds_with_it(
    journal: Path, cache: EmbeddingCache
) -> None:
    embedding, folder = config(journal, broken=True), cache.path.parent
    begin_pool(embedding, folder).of(embedding).begin(prepare=False)
    with take_pool(embedding, folder) as pool:
        report = embed_texts({"h": "a text"}, embedding, cache, text_norm_profile="p", pool=pool)
    assert "ValueError: no weights" in report.failed["h"]


def test_a_joined_embedder_has_a_pool_for_each_part(journal: Path, tmp_path: Path) -> None:
    part = config(journal)
    joined = EmbeddingConfig(
        provider="joined",
        options={"parts": [{"provider": part.provider, "options": part.options}] * 2},
    )
    pool = begin_pool(joined, tmp_path)
    assert pool.of(part) is pool.of(part) is not pool
    assert pool.of(joined) is pool
    pool.of(part).begin(prepare=False)
    close_begun()
    assert pool.closed and pool.of(part).closed
    assert take_pool(joined, tmp_path) is not pool
