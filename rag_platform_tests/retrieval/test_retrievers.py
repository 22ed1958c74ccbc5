"""Which way the vectors are asked."""

from __future__ import annotations

import pytest

from rag_platform.config.query import RetrievalConfig
from rag_platform.retrieval.retrievers import prefers_approximate


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
