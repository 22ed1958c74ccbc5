"""Which way the indexes are asked."""

from __future__ import annotations

import pytest

from rag_platform.config.query import RetrievalConfig
from rag_platform.ir import Candidate
from rag_platform.retrieval.retrievers import AccessPlan, _tested, plan_access


def planned(
    rows: int, *, allowed: int | None = None, recall: float | None = None, **config: float | int
) -> AccessPlan:
    return plan_access(
        rows=rows,
        dim=384,
        chunks=rows,
        allowed=allowed,
        k=50,
        recall=recall,
        config=RetrievalConfig(**config),
    )


@pytest.mark.parametrize(
    ("rows", "recall", "config", "way"),
    [
        (100_000, 1.0, {}, "exact"),  # 3.84 ms
        (1_000_000, 0.98, {}, "ann"),  # 38.4 ms
        (1_000_000, 0.94, {}, "exact"),  # misses too much
        (1_000_000, 0.94, {"ann_recall": 0.9}, "ann"),
        (1_000_000, None, {}, "exact"),  # nobody measured it
        (1_000, None, {"exact_scan_rows": 999}, "ann"),  # the setting decides
        (1_000_000, 1.0, {"exact_scan_rows": 1_000_000}, "exact"),
    ],
)
def test_the_approximate_index_is_asked_where_a_scan_is_slow_and_its_recall_is_known(
    rows: int, recall: float | None, config: dict[str, float | int], way: str
) -> None:
    assert (
        planned(rows, recall=recall, **config).dense,
        planned(rows, recall=recall, **config).sparse,
    ) == (way, "all")


@pytest.mark.parametrize(
    ("allowed", "sparse", "fetched"),
    [
        # 1.3 * 50 * 100,000 / 10,000 + 50 hits cost 1.75 ms, a set of 10,000 ids 50
        (10_000, "hits", 700),
        (500, "ids", 50),  # 13,050 hits cost 32.6 ms, a set of 500 ids 11.2
        (0, "ids", 50),
    ],
)
def test_a_filter_is_part_of_the_search_where_few_are_left_and_tested_on_hits_where_many_are(
    allowed: int, sparse: str, fetched: int
) -> None:
    found = planned(100_000, allowed=allowed, recall=1.0)
    assert (found.dense, found.sparse, found.fetched) == ("exact", sparse, fetched)


def test_estimates_are_shown() -> None:
    assert planned(100_000).estimates == {"exact": 2.88, "ann": 2.2}
    assert planned(100_000, allowed=10_000).estimates == {
        "exact": 0.29,
        "ann": 2.2,
        "ids": 39.7,
        "hits": 7.85,
    }


def test_more_hits_are_fetched_while_too_few_of_them_are_allowed() -> None:
    everything = [
        Candidate(f"c{number:03}", 1.0 - number / 1000, "sparse") for number in range(300)
    ]
    asked: list[int] = []

    def search(k: int) -> list[Candidate]:
        asked.append(k)
        return everything[:k]

    allowed = frozenset(f"c{number:03}" for number in range(0, 300, 100))
    assert [hit.chunk_id for hit in _tested(search, allowed, 2, 50)] == ["c000", "c100"]
    assert asked == [50, 200]
    # no more of them match
    assert [hit.chunk_id for hit in _tested(search, allowed, 9, 400)] == ["c000", "c100", "c200"]
