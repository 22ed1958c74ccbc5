from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.errors import ConfigError, ProviderError
from rag_platform.retrieval.scoring import METRICS, direction, similarity


@pytest.mark.parametrize(
    ("value", "metric", "expected"),
    [
        (0.0, "cosine_distance", 1.0), (1.0, "cosine_distance", 0.5), (2.0, "cosine_distance", 0.0), (2.1, "cosine_distance", 0.0),
        (1.0, "cosine_similarity", 1.0), (0.0, "cosine_similarity", 0.5), (-1.0, "cosine_similarity", 0.0),
        (1.0000001, "cosine_similarity", 1.0), (0.0, "l2", 1.0), (1.0, "l2", math.exp(-1)), (-1e-9, "l2", 1.0),
        (0.3, "inner_product", 0.3), (7.0, "inner_product", 1.0), (-7.0, "inner_product", 0.0),
    ],
)  # fmt: skip
def test_every_metric_is_mapped_to_0_and_1(value: float, metric: str, expected: float) -> None:
    assert similarity(value, metric) == pytest.approx(expected)


def test_alpha_is_the_decay_of_l2() -> None:
    assert similarity(2.0, "l2", alpha=0.5) == pytest.approx(math.exp(-1))


def test_what_cannot_be_mapped_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown metric 'dot'; known: cosine_distance"):
        similarity(1.0, "dot")
    with pytest.raises(ConfigError, match="alpha = 0"):
        similarity(1.0, "l2", alpha=0)
    with pytest.raises(ProviderError, match="nan"):
        similarity(math.nan, "l2")


@given(value=st.floats(-1e6, 1e6), other=st.floats(-1e6, 1e6), metric=st.sampled_from(METRICS), alpha=st.floats(1e-3, 1e3))
def test_scores_lie_between_0_and_1_and_keep_the_order(value: float, other: float, metric: str, alpha: float) -> None:
    low, high = sorted((value, other))
    first, second = (similarity(each, metric, alpha) for each in (low, high))
    assert 0.0 <= min(first, second) <= max(first, second) <= 1.0
    assert first >= second if metric in ("cosine_distance", "l2") else first <= second


def test_a_search_by_itself_tells_distances_from_similarities() -> None:
    assert direction(1e-7, [0.2, 1.4]) == "distance"
    assert direction(0.9999, [0.7, -0.2]) == "similarity"
    assert direction(25.0, [3.0]) == "similarity"
    for own, others in ((0.5, [0.5]), (0.4, [0.1, 0.9]), (1.0, []), (math.nan, [1.0]), (0.0, [0.0])):
        with pytest.raises(ProviderError, match="neither a distance nor a similarity"):
            direction(own, others)
