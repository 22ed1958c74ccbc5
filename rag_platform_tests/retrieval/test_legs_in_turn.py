"""Questions that crowd the processors: both legs in one thread, with the results of two."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import QueryRequest
from rag_platform.processes import limits
from rag_platform.retrieval.library import Library

GUIDE = [
    ("Limits", "The maximum upload size is 50 MB."),
    ("Errors", "Error PPR-9087 means that the licence server cannot be reached."),
]
QUESTION = "What is the maximum upload size?"


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One question is as many as this process has processors for."""
    monkeypatch.setattr(limits.searches, "places", 1)


def threads_of(library: Library, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The thread in which each leg searches, filled by the next question."""
    seen: dict[str, int] = {}
    with library.lease("default") as lease:
        indexes: dict[str, Any] = {"dense": lease.release.dense, "sparse": lease.release.lexical}
    for leg, index in indexes.items():

        def search(*args: Any, leg: str = leg, search: Any = index.search, **options: Any) -> Any:
            seen[leg] = threading.get_ident()
            return search(*args, **options)

        monkeypatch.setattr(index, "search", search)
    return seen


def test_a_crowded_process_finds_the_same_with_one_thread(
    publish: Any, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish({"guide": GUIDE})
    seen = threads_of(library, monkeypatch)
    monkeypatch.setattr(limits.searches, "places", 2)
    alone = answer(library, QueryRequest(QUESTION))
    monkeypatch.setattr(limits.searches, "places", 1)
    among_others = answer(library, QueryRequest(f"{QUESTION} "))  # not remembered
    assert seen["dense"] == seen["sparse"]
    assert (among_others.hits, among_others.answer_markdown, among_others.flags) == (
        alone.hits,
        alone.answer_markdown,
        alone.flags,
    )


@pytest.mark.usefixtures("crowded")
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


@pytest.mark.usefixtures("crowded")
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


def test_calls_in_turn_share_a_thread_and_a_cancelled_one_is_not_made() -> None:
    begin, made = threading.Event(), []

    def first() -> int:
        assert begin.wait(10)
        made.append("first")
        return threading.get_ident()

    def second() -> int:
        made.append("second")
        return threading.get_ident()

    def third() -> int:
        raise ValueError("no")

    one, two, three, four = limits.start_in_turn([first, second, third, second])
    assert two.cancel()
    begin.set()
    assert one.result(10) == four.result(10) != threading.get_ident()
    assert isinstance(three.exception(10), ValueError)
    assert made == ["first", "second"]


def test_a_crowd_is_more_threads_than_places() -> None:
    two = limits.Turns(2)
    assert [two.is_crowded(threads) for threads in (1, 2, 3)] == [False, False, True]
