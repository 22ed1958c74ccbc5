from __future__ import annotations

import pytest

from rag_platform.config_query import ContextConfig
from rag_platform.ir import Hit
from rag_platform.retrieval.evidence import select
from rag_platform.retrieval.reranking import boosted, renumbered
from rag_platform.retrieval.tokens import estimate_tokens


def hit(rank: int, text: str, score: float = 1.0) -> Hit:
    return Hit(rank, f"c{rank}", score, "hybrid", "d", "n.d@1", "s/d.md", "d.md", "D", "D", rank, text)


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("word", 1), ("words", 2), ("最大连接数", 5), ("端口 8080 ok", 4)])
def test_token_estimate_of_mixed_text(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_chunks_are_taken_whole_in_order_within_the_budget() -> None:
    hits = [hit(1, "a b c"), hit(2, "d e f g"), hit(3, "h i")]
    chosen = select(hits, ContextConfig(max_tokens=6, max_chunks=8), count=words)
    assert [h.chunk_id for h in chosen.hits] == ["c1", "c3"]
    assert (chosen.tokens, chosen.dropped, chosen.warnings) == (5, 1, ())


def test_equal_texts_count_once_and_blank_ones_never() -> None:
    hits = [hit(1, "same  text"), hit(2, " same text\n"), hit(3, "other"), hit(4, " ")]
    chosen = select(hits, ContextConfig(), count=words)
    assert [h.chunk_id for h in chosen.hits] == ["c1", "c3"]
    assert chosen.repeated == 2


def test_at_most_max_chunks() -> None:
    assert len(select([hit(n, f"t{n}") for n in range(1, 9)], ContextConfig(max_chunks=3), count=words).hits) == 3


def test_a_first_chunk_above_the_budget_is_cut_at_a_line_end_with_a_warning() -> None:
    chosen = select([hit(1, "one two\nthree four\nfive six"), hit(2, "x")], ContextConfig(max_tokens=5), count=words)
    assert [h.chunk_text for h in chosen.hits] == ["one two\nthree four", "x"]
    assert chosen.tokens == 5
    assert chosen.warnings == ("evidence 1 was cut from 6 to 5 tokens (context.max_tokens)",)


def test_one_long_line_is_cut_at_a_character() -> None:
    assert select([hit(1, "汉" * 10)], ContextConfig(max_tokens=4)).hits[0].chunk_text == "汉" * 4


def test_soft_preferences_reorder_but_drop_nothing() -> None:
    hits = [hit(1, "a", 1.0), hit(2, "b", 0.95), hit(3, "c", 0.0)]
    assert [h.chunk_id for h in boosted(hits, {"prefer_recent": {"c2", "c3"}})] == ["c2", "c1", "c3"]
    assert boosted(hits, {}) == hits
    assert boosted([], {"prefer_recent": {"c1"}}) == []
    assert [h.rank for h in renumbered(boosted(hits, {"prefer_recent": {"c2"}}))] == [1, 2, 3]
