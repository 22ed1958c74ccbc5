"""Rows go from one thread to another, and neither waits for one that failed."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from rag_platform.indexes.lexical import Feed


def test_all_rows_arrive_in_their_order() -> None:
    found: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        feed = Feed[int](pool, found.extend)
        for start in range(0, 100, 10):
            feed.put(range(start, start + 10))
        feed.end()
        feed.end()  # once is enough
        feed.result()
    assert found == list(range(100))


def test_nothing_is_taken_where_nothing_came() -> None:
    with ThreadPoolExecutor(1) as pool:
        feed = Feed[int](pool, lambda rows: pytest.fail("nobody asked"))
        feed.end()
        feed.result()


def test_a_failure_ends_the_feeding_and_is_told() -> None:
    def refuse(rows: Iterable[int]) -> None:
        next(iter(rows))
        raise ValueError("the disk is full")

    with ThreadPoolExecutor(1) as pool:
        feed = Feed[int](pool, refuse)
        for _ in range(20):  # more than wait between the two
            feed.put([1, 2])
        feed.end()
        with pytest.raises(ValueError, match="disk is full"):
            feed.result()
