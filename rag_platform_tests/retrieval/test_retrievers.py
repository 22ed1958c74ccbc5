"""Which way the vectors are asked, and one retriever standing in for the other."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rag_platform.answering.engine import answer
from rag_platform.config.query import RetrievalConfig
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import ConfigError
from rag_platform.ir import EmbedderPart, QueryRequest
from rag_platform.observability import tracing
from rag_platform.processes.limits import Deadline
from rag_platform.providers.joined import join_vectors
from rag_platform.query import analysis
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.retrievers import embed_question, prefers_approximate, weigh_parts
from rag_platform.retrieval.search_context import Artifacts, SearchContext

GUIDE = [
    ("Limits", "The maximum upload size is 50 MB."),
    ("Errors", "Error PPR-9087 means that the licence server cannot be reached."),
]
QUESTION = "What is the maximum upload size?"


@pytest.mark.parametrize(
    ("rows", "recall", "config", "approximate"),
    [
        (100_000, 1.0, {}, False),  # 2.88 ms
        (2_000_000, 0.98, {}, True),  # 57.6 ms
        (2_000_000, 0.94, {}, False),  # misses too much
        (2_000_000, 0.94, {"ann_recall": 0.9}, True),
        (2_000_000, None, {}, False),  # nobody measured it
        (1_000, None, {"exact_scan_rows": 999}, True),  # the setting decides
        (2_000_000, 1.0, {"exact_scan_rows": 2_000_000}, False),
    ],
)
def test_the_approximate_index_is_asked_where_a_scan_is_slow_and_its_recall_is_known(
    rows: int, recall: float | None, config: dict[str, float | int], approximate: bool
) -> None:
    assert prefers_approximate(rows, 384, recall, RetrievalConfig(**config)) is approximate


def test_words_that_hang_do_not_take_the_vectors_with_them(
    publish: Any, vary: Any, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish({"guide": GUIDE})
    name = vary("hasty", "retrieval: {stage_seconds: 1.0}\n")
    over = threading.Event()
    with library.lease("default") as lease:
        monkeypatch.setattr(lease.release.lexical, "search", lambda *_, **__: over.wait(20) or [])
    try:
        result = answer(library, QueryRequest(QUESTION, strategy=name))
    finally:
        over.set()
    assert result.flags["sparse_failed"] is True and "dense_failed" not in result.flags
    assert result.effective_mode == "dense" and result.hits[0].chunk_id == "guide-0"


def test_vectors_that_fail_leave_the_words(
    publish: Any, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish({"guide": GUIDE})

    def broken(*_: Any, **__: Any) -> Any:
        raise OSError("the disk is gone")

    with library.lease("default") as lease:
        monkeypatch.setattr(lease.release.dense, "search", broken)
    result = answer(library, QueryRequest(QUESTION))
    assert result.flags["dense_failed"] is True and result.effective_mode == "sparse"
    assert result.hits[0].chunk_id == "guide-0"


def test_the_parts_of_a_joined_vector_are_weighed_anew() -> None:
    # parts of 2 and 1 numbers, stored with weights 3 and 1: similarities count 9 to 1
    parts = (EmbedderPart("a", "1", 2, 3.0), EmbedderPart("b", "1", 1, 1.0))
    stored = join_vectors([np.array([[0.0, 1.0]]), np.array([[1.0]])], [3.0, 1.0])[0]
    other = join_vectors([np.array([[1.0, 0.0]]), np.array([[-1.0]])], [3.0, 1.0])[0]
    asked = join_vectors([np.array([[1.0, 0.0]]), np.array([[1.0]])], [3.0, 1.0])[0]
    assert asked @ other > asked @ stored  # (9 - 1) against 1
    even = weigh_parts(asked, parts, (1.0, 2.0))
    assert np.linalg.norm(even) == pytest.approx(1.0)
    assert even @ other < even @ stored  # (1 - 4) against 4
    same = weigh_parts(asked, parts, (3.0, 1.0))
    assert same == pytest.approx(asked)


def test_only_a_question_in_a_language_of_no_text_is_weighed_anew(
    shelf: Any, config_folder: Path, tmp_path: Path
) -> None:
    parts = [{"provider": "hashing"}, {"provider": "hashing", "options": {"dim": 64}}]
    text = (config_folder / "strategies" / "tiny.yaml").read_text(encoding="utf-8")
    config = yaml.safe_load(text)
    config["embedding"] = {"provider": "joined", "options": {"parts": parts}}
    config["retrieval"] = {"foreign_weights": [1.0, 3.0], "mixed_weights": [1.0, 2.0]}
    place = config_folder / "strategies" / "both.yaml"
    place.write_text(yaml.safe_dump(config), encoding="utf-8")
    (tmp_path / "a.md").write_text("# A\n\nThe lock gate is open.\n", encoding="utf-8")
    shelf.ingest(tmp_path / "a.md", strategy="both")
    library = shelf.library()
    with library.lease("default") as lease:
        context = SearchContext(
            library,
            lease,
            library.query_strategy(lease),
            QueryRequest("x"),
            tracing.Trace("query", None, {"trace_id": ""}),
            Deadline.after(60.0),
        )
        for question, translated, weighed in (
            ("Is the lock gate open?", "", False),
            ("Is the lock gate open?", "闸门", True),  # its answer may be in Chinese
            ("闸门是开着的吗？", "", True),
        ):
            query = analysis.prepare(question, library.settings.limits)
            query = replace(query, translated=translated)
            plain, _ = library.query_vector(context.strategy.embedding, query.dense_text)
            vector, _ = embed_question(context, query)
            assert (np.abs(vector - plain).max() > 0.01) == weighed
    for name in ("foreign_weights", "mixed_weights"):
        config["retrieval"] = {name: [1.0]}
        place.write_text(yaml.safe_dump(config), encoding="utf-8")
        with pytest.raises(ConfigError, match=rf"{name} is \[1.0\] and the embedder has 2"):
            load_strategy(shelf.settings, "both")


SERVERS = [
    ("Logs", "The cache server merges its logs every night."),
    ("Backups", "Backups are encrypted and stay for thirty days."),
    ("Screens", "A browser shows the dashboard of every branch."),
]


def test_the_words_of_a_chinese_question_are_searched_for_in_english(
    publish: Any, vary: Any, library: Library
) -> None:
    publish({"servers": SERVERS})
    question = QueryRequest("缓存服务器的日志怎么合并？", mode="sparse")
    assert [hit.chunk_id for hit in answer(library, question).hits] == ["servers-0"]
    plain = vary("plain", "query: {translate: false}\n")
    assert not answer(library, replace(question, strategy=plain)).hits
    # a phrasing of the caller, in the language of the texts, is searched for as it is
    phrased = answer(library, replace(question, searches=("dashboard",)))
    assert {hit.chunk_id for hit in phrased.hits} == {"servers-0", "servers-2"}


def test_english_words_are_searched_for_in_chinese(shelf: Any, tmp_path: Path) -> None:
    (tmp_path / "logs.md").write_text("# 日志\n\n缓存服务器每晚合并日志。\n", encoding="utf-8")
    (tmp_path / "shop.md").write_text("# 商店\n\n商店早上九点开门。\n", encoding="utf-8")
    shelf.ingest(tmp_path / "logs.md", tmp_path / "shop.md")
    question = QueryRequest("When does the cache server merge its logs?", mode="sparse")
    assert [hit.filename for hit in answer(shelf.library(), question).hits] == ["logs.md"]


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("缓存服务器怎么合并日志？", "logs.md"),  # no Chinese text has these words
        ("商店几点开门？", "shop.md"),  # a Chinese one has: `shop` and `open` are not searched for
    ],
)
def test_a_library_in_two_languages_is_asked_in_both_if_one_lacks_the_words(
    question: str, first: str, shelf: Any, tmp_path: Path
) -> None:
    logs = "# Logs\n\nThe cache server merges its logs when the shop opens the door.\n"
    (tmp_path / "logs.md").write_text(logs, encoding="utf-8")
    (tmp_path / "shop.md").write_text("# 商店\n\n商店早上九点开门。\n", encoding="utf-8")
    shelf.ingest(tmp_path / "logs.md", tmp_path / "shop.md")
    found = answer(shelf.library(), QueryRequest(question, mode="sparse")).hits
    assert [hit.filename for hit in found] == [first]


def test_what_only_translated_words_find_gets_a_dense_score(
    publish: Any, vary: Any, library: Library
) -> None:
    publish({"servers": SERVERS})
    nearest, both = Artifacts(), Artifacts()
    for words, artifacts in (("false", nearest), ("true", both)):
        lines = f"retrieval: {{pool_k: 1}}\nquery: {{translate: {words}}}\n"
        question = QueryRequest("浏览器", top_k=1, strategy=vary(f"one-{words}", lines))
        answer(library, question, artifacts=artifacts)
    assert [it.chunk_id for it in both.sparse] == ["servers-2"]
    [first] = nearest.dense
    assert first.chunk_id != "servers-2"
    assert [it.chunk_id for it in both.dense] == [first.chunk_id, "servers-2"]
