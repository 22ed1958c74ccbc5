"""Which way the vectors are asked, and one retriever standing in for the other."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.config.query import RetrievalConfig
from rag_platform.ir import QueryRequest
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.retrievers import prefers_approximate

GUIDE = [
    ("Limits", "The maximum upload size is 50 MB."),
    ("Errors", "Error PPR-9087 means that the licence server cannot be reached."),
]
QUESTION = "What is the maximum upload size?"


@pytest.mark.parametrize(
    ("rows", "recall", "config", "approximate"),
    [
        (100_000, 1.0, {}, False),  # 2.88 ms
        (1_000_000, 0.98, {}, True),  # 28.8 ms
        (1_000_000, 0.94, {}, False),  # misses too much
        (1_000_000, 0.94, {"ann_recall": 0.9}, True),
        (1_000_000, None, {}, False),  # nobody measured it
        (1_000, None, {"exact_scan_rows": 999}, True),  # the setting decides
        (1_000_000, 1.0, {"exact_scan_rows": 1_000_000}, False),
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
