from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.config.query import RerankConfig
from rag_platform.config.settings import Limits
from rag_platform.errors import ProviderError
from rag_platform.ir import Hit, QueryIR
from rag_platform.query.analysis import prepare
from rag_platform.retrieval.provider_cache import fill_timeout
from rag_platform.retrieval.reranking import (
    NoReranking,
    apply_reranker,
    boost,
    movement,
    renumber,
)
from rag_platform.traits import Traits

QUERY = prepare("question", Limits())


@dataclass(frozen=True)
class Given:
    """Gives each hit the number that its text holds; keeps how it was asked."""

    traits: ClassVar[Traits] = Traits(pointwise=True)
    calls: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        self.calls.append(len(hits))
        time.sleep(self.seconds)
        return [float(hit.chunk_text) for hit in hits]


@dataclass(frozen=True)
class Listwise(Given):
    """Reads all hits at once."""

    traits: ClassVar[Traits] = Traits(pointwise=False)


@dataclass(frozen=True)
class Fixed:
    """Gives what it was told to give."""

    scores: list[Any]

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        return self.scores


def hits_of(*numbers: float) -> list[Hit]:
    return [
        Hit(
            rank,
            f"c{rank}",
            1 - rank / 100,
            "hybrid",
            "d",
            "v",
            "s/d.md",
            "d.md",
            "",
            "",
            rank,
            str(number),
        )
        for rank, number in enumerate(numbers, 1)
    ]


def shown(hits: Sequence[Hit]) -> list[tuple[str, float]]:
    return [(hit.chunk_id, round(hit.score, 4)) for hit in hits]


def config(**values: Any) -> RerankConfig:
    return RerankConfig.model_validate({"provider": "features", **values})


def test_off_keeps_order_and_scores() -> None:
    hits = hits_of(1, 2)
    assert apply_reranker(NoReranking(), config(), QUERY, hits) == hits
    assert apply_reranker(NoReranking(), config(), QUERY, hits, rerank_k=1) == hits[:1]
    assert NoReranking().score(QUERY, hits) == [0.99, 0.98]


def test_the_first_top_n_are_read_and_the_others_follow_with_the_lowest_score() -> None:
    found = apply_reranker(Given(), config(top_n=3), QUERY, hits_of(1, 3, 2, 99, 98))
    assert shown(found) == [("c2", 3.0), ("c3", 2.0), ("c1", 1.0), ("c4", 1.0), ("c5", 1.0)]
    assert [hit.rank for hit in found] == [1, 2, 3, 4, 5]


def test_at_most_rerank_k_go_on() -> None:
    assert shown(apply_reranker(Given(), config(), QUERY, hits_of(1, 3, 2), rerank_k=2)) == [
        ("c2", 3.0),
        ("c3", 2.0),
    ]


@pytest.mark.parametrize(
    ("values", "scores"),
    [
        ({"score_mode": "raw"}, [3.0, 1.0, -1.0]),
        ({"score_mode": "rank"}, [1.0, 0.5, 0.3333]),
        ({"score_mode": "normalize"}, [1.0, 0.5, 0.0]),
        ({"score_mode": "normalize", "normalize": "sigmoid"}, [0.9526, 0.7311, 0.2689]),
        ({"score_mode": "normalize", "normalize": "softmax"}, [0.8668, 0.1173, 0.0159]),
        ({"score_mode": "normalize", "normalize": "zscore"}, [1.2247, 0.0, -1.2247]),
    ],
)
def test_how_scores_are_shown(values: dict[str, Any], scores: list[float]) -> None:
    assert shown(apply_reranker(Given(), config(**values), QUERY, hits_of(-1, 3, 1))) == list(
        zip(["c2", "c3", "c1"], scores, strict=True)
    )


def test_hits_below_the_threshold_are_dropped_after_normalisation() -> None:
    normalised = config(score_mode="normalize", score_threshold=0.5)
    assert [
        hit.chunk_id for hit in apply_reranker(Given(), normalised, QUERY, hits_of(0, 10, 5))
    ] == [
        "c2",
        "c3",
    ]
    assert apply_reranker(Given(), config(score_threshold=99.0), QUERY, hits_of(1, 2)) == []


def test_equal_scores_keep_the_former_order() -> None:
    assert [
        hit.chunk_id for hit in apply_reranker(Given(), config(), QUERY, hits_of(1, 2, 2, 1))
    ] == [
        "c2",
        "c3",
        "c1",
        "c4",
    ]


def test_who_judges_one_by_one_is_asked_in_batches() -> None:
    one_by_one, at_once = Given(), Listwise()
    for reranker in (one_by_one, at_once):
        apply_reranker(reranker, config(batch_size=2), QUERY, hits_of(*range(5)))
    assert (one_by_one.calls, at_once.calls) == ([2, 2, 1], [5])


def test_no_batch_is_begun_when_the_time_is_over() -> None:
    slow = Given(seconds=0.03)
    with pytest.raises(ProviderError, match="longer than 10 ms") as caught:
        apply_reranker(slow, config(batch_size=1, timeout_ms=10), QUERY, hits_of(1, 2, 3))
    assert (caught.value.code, slow.calls) == ("deadline", [1])


@pytest.mark.parametrize(
    "scores", [[1.0], [1.0, 2.0, 3.0], [1.0, math.nan], [math.inf, 1.0], [None, 1.0], ["2", 1.0]]
)
def test_a_score_for_every_hit_or_an_error(scores: list[Any]) -> None:
    with pytest.raises(ProviderError, match="one finite number") as caught:
        apply_reranker(Fixed(scores), config(), QUERY, hits_of(1, 2))
    assert caught.value.code == "bad_output"


@pytest.mark.parametrize(
    ("after", "figures"),
    [
        ("abcd", {"moved": 0, "max_up": 0, "max_down": 0, "kendall_tau": 1.0}),
        ("dcba", {"moved": 4, "max_up": 3, "max_down": 3, "kendall_tau": -1.0}),
        ("bacd", {"moved": 2, "max_up": 1, "max_down": 1, "kendall_tau": 0.6667}),
        ("dab", {"moved": 3, "max_up": 2, "max_down": 1, "kendall_tau": -0.3333}),  # c was dropped
        ("", {"moved": 0, "max_up": 0, "max_down": 0, "kendall_tau": 1.0}),
    ],
)
def test_movement(after: str, figures: dict[str, float]) -> None:
    assert movement("abcd", after) == figures


@given(st.permutations(range(12)))
def test_tau_counts_the_pairs_that_changed_sides(order: list[int]) -> None:
    ids = [str(n) for n in range(12)]
    swapped = sum(order[i] > order[j] for i in range(12) for j in range(i + 1, 12))
    assert movement(ids, [str(n) for n in order])["kendall_tau"] == round(1 - swapped / 33, 4)


def test_the_deadline_reaches_a_provider_that_waits_itself() -> None:
    http = RerankConfig(provider="http", timeout_ms=300, options={"url": "http://localhost/rerank"})
    assert fill_timeout(http).options == {"url": "http://localhost/rerank", "timeout_ms": 300}
    own = http.model_copy(update={"options": {"url": "http://localhost/rerank", "timeout_ms": 50}})
    assert fill_timeout(own) is own
    assert fill_timeout(RerankConfig()) == RerankConfig()


def test_soft_preferences_reorder_but_drop_nothing() -> None:
    hits = [hit_with(1, 1.0), hit_with(2, 0.95), hit_with(3, 0.0)]
    assert [h.chunk_id for h in boost(hits, {"prefer_recent": {"c2", "c3"}})] == [
        "c2",
        "c1",
        "c3",
    ]
    assert boost(hits, {}) == hits
    assert boost([], {"prefer_recent": {"c1"}}) == []
    assert [h.rank for h in renumber(boost(hits, {"prefer_recent": {"c2"}}))] == [1, 2, 3]


def hit_with(n: int, score: float) -> Hit:
    return Hit(n, f"c{n}", score, "hybrid", "d", "v", "s/d.md", "d.md", "", "", n, "text")
