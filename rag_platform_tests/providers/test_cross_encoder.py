"""A cross-encoder of sentence-transformers as a reranker, on tiny weights of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag_platform.config.query import RerankConfig
from rag_platform.errors import ConfigError
from rag_platform.protocols import Reranker
from rag_platform.registry import make_provider
from rag_platform.retrieval.reranking import apply_reranker
from rag_platform_tests.conftest import needs
from rag_platform_tests.providers.rerank_hits import hits_of, question, tiny_cross_encoder

pytestmark = needs("sentence_transformers", "models")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_cross_encoder(tmp_path_factory.mktemp("models") / "tiny-cross")


def reranker(folder: Path | str, **options: Any) -> Reranker:
    built: Reranker = make_provider("reranker", "cross_encoder", {"model": str(folder), **options})
    return built


def test_scores_are_the_logits_of_the_package(model: Path) -> None:
    import torch
    from sentence_transformers import CrossEncoder

    bare = CrossEncoder(
        str(model), device="cpu", local_files_only=True, activation_fn=torch.nn.Identity()
    )
    texts = ["The limit is 50 MB.", "上传限制", "x" * 500]
    expected = bare.predict(
        [(question().dense_text, f"Guide > Limits\n{text}") for text in texts],
        show_progress_bar=False,
    )
    assert reranker(model).score(question(), hits_of(*texts)) == pytest.approx(
        [float(score) for score in expected], abs=1e-5
    )


def test_batches_change_nothing(model: Path) -> None:
    hits = hits_of(*(f"text number {n} " * n for n in range(1, 8)))
    config = RerankConfig(provider="cross_encoder", timeout_ms=60_000)
    whole = apply_reranker(reranker(model), config, question(), hits)
    small = apply_reranker(
        reranker(model, batch_size=2), config.model_copy(update={"batch_size": 3}), question(), hits
    )
    assert [hit.chunk_id for hit in whole] == [hit.chunk_id for hit in small]
    assert [hit.score for hit in whole] == pytest.approx([hit.score for hit in small], abs=1e-5)


def test_blank_broken_and_huge_texts(model: Path) -> None:
    scores = reranker(model).score(question(), hits_of("", "\0 \ud800", "word " * 100_000))
    assert len(scores) == 3
    assert reranker(model).score(question(), []) == []


def test_a_window_of_ones_own(model: Path) -> None:
    short = reranker(model, max_tokens=32).score(question("a"), hits_of("b c d e f g " * 20))
    assert short != pytest.approx(
        reranker(model).score(question("a"), hits_of("b c d e f g " * 20)), abs=1e-6
    )


def test_a_model_that_is_not_there_is_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no model folder") as caught:
        reranker(tmp_path / "none").score(question(), hits_of("a"))
    assert caught.value.code == "model_not_found"
    with pytest.raises(ConfigError, match="hf download no-such/model") as caught:
        reranker("no-such/model").score(question(), hits_of("a"))
    assert caught.value.code == "model_unusable"


def test_a_classifier_of_three_labels_is_no_reranker(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 3 outputs"):
        reranker(tiny_cross_encoder(tmp_path / "three", labels=3)).score(question(), hits_of("a"))
