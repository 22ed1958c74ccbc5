"""Strategies with another word index, or with embedders beside each other, from files to
answers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rag_platform.answering.engine import answer
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ir import QueryRequest
from rag_platform.registry import PROVIDERS
from rag_platform_tests.conftest import TINY, Shelf


def add_strategy(config_folder: Path, name: str, **sections: object) -> None:
    text = yaml.safe_dump({**yaml.safe_load(TINY), **sections}, allow_unicode=True)
    (config_folder / "strategies" / f"{name}.yaml").write_text(text, encoding="utf-8")


def first(shelf: Shelf, question: str, mode: str = "sparse", namespace: str = "default") -> str:
    library = shelf.library()
    try:
        return (
            answer(
                library,
                QueryRequest(question, namespace=namespace, top_k=1, mode=mode, answer=False),
            )
            .hits[0]
            .filename
        )
    finally:
        library.close()


@pytest.mark.parametrize("provider", sorted(PROVIDERS["lexical_index"]))
def test_every_word_index_serves_a_library_through_an_edit(
    shelf: Shelf, config_folder: Path, tmp_path: Path, provider: str
) -> None:
    add_strategy(
        config_folder, "words", lexical={"provider": provider, "options": {"dictionary": ["T恤"]}}
    )
    folder = tmp_path / "documents"
    folder.mkdir()
    texts = {
        "a.md": "# A\n\nThe lock gate PPR-9087 is open.\n",
        "b.md": "# B\n\nA gate lock, a lock, a gate, PPR-9086.\n",
        "c.md": "# C\n\n买了T恤。\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    before = shelf.ingest(folder, strategy="words")
    assert [
        first(shelf, question) for question in ('"lock gate"', '"gate lock"', "PPR-9086", "T恤")
    ] == ["a.md", "b.md", "b.md", "c.md"]
    (folder / "a.md").write_text("# A\n\nThe gate lock PPR-9085 is open.\n", encoding="utf-8")
    (folder / "d.md").write_text("# D\n\nThe lock gate PPR-9087 is shut.\n", encoding="utf-8")
    assert shelf.ingest(folder, strategy="words") != before
    questions = ('"lock gate"', "PPR-9087", "PPR-9085", "T恤")
    assert [first(shelf, question) for question in questions] == ["d.md", "d.md", "a.md", "c.md"]
    assert first(shelf, "PPR-9087 shut", "hybrid") == "d.md"


def test_joined_embedders_share_the_vectors_that_their_parts_made_elsewhere(
    shelf: Shelf, config_folder: Path, tmp_path: Path
) -> None:
    parts = [
        {"provider": "hashing", "weight": 2.0},
        {"provider": "hashing", "options": {"dim": 64}},
    ]
    add_strategy(
        config_folder, "both", embedding={"provider": "joined", "options": {"parts": parts}}
    )
    (tmp_path / "a.md").write_text("# A\n\nThe lock gate is open.\n", encoding="utf-8")

    def held() -> dict[str, int]:
        with EmbeddingCache(shelf.store.embeddings_path) as cache:
            spaces = [space[0] for space, _, _ in cache.entries()]
        return {space: spaces.count(space) for space in spaces}

    shelf.ingest(tmp_path / "a.md")
    assert held() == {"hashing-256": 1}
    (tmp_path / "b.md").write_text("# B\n\nSomething else altogether.\n", encoding="utf-8")
    shelf.ingest(tmp_path / "a.md", tmp_path / "b.md", namespace="both", strategy="both")
    assert held() == {"hashing-256": 2, "hashing-64": 2}  # the text of a.md was known to one part
    assert first(shelf, "the lock gate", "dense", namespace="both") == "a.md"
