from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.errors import ConfigError
from rag_platform.ir import Candidate
from rag_platform.registry import make_provider
from rag_platform.retrieval.fusion import MinMax, ReciprocalRank, ZScore, min_max, z_score


def retriever(source: str, **scores: float) -> list[Candidate]:
    return [Candidate(chunk_id, score, source) for chunk_id, score in scores.items()]


DENSE = retriever("dense", a=0.9, b=0.8, c=0.5)
SPARSE = retriever("sparse", b=10.0, d=6.0, e=2.0)


def test_reciprocal_rank_adds_one_over_k_plus_rank() -> None:
    fused = ReciprocalRank(k=60).fuse(DENSE, SPARSE)
    assert [(c.chunk_id, c.source) for c in fused] == [
        ("b", "hybrid"),
        ("a", "dense"),
        ("d", "sparse"),
        ("c", "dense"),
        ("e", "sparse"),
    ]
    assert [c.score for c in fused] == pytest.approx(
        [1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63, 1 / 63]
    )


def test_reciprocal_rank_may_weigh_the_legs() -> None:
    fused = ReciprocalRank(k=60, weights=(0.5, 2.0)).fuse(DENSE, SPARSE)
    assert [c.chunk_id for c in fused] == ["b", "d", "e", "a", "c"]
    assert fused[0].score == pytest.approx(0.5 / 62 + 2.0 / 61)
    for weights in ([1.0], [1.0, -1.0], [0.0, 0.0]):
        with pytest.raises(ConfigError, match="weights"):
            make_provider("fusion", "rrf", {"weights": weights})


def test_min_max_weighs_scaled_scores_and_gives_the_missing_the_minimum() -> None:
    # dense scaled: a 1, b .75, c 0; sparse scaled: b 1, d .5, e 0
    fused = MinMax(alpha=0.5).fuse(DENSE, SPARSE)
    assert [(c.chunk_id, c.score) for c in fused] == [
        ("b", 0.875),
        ("a", 0.5),
        ("d", 0.25),
        ("c", 0.0),
        ("e", 0.0),
    ]
    assert [c.chunk_id for c in MinMax(alpha=1.0).fuse(DENSE, SPARSE)][:2] == ["a", "b"]
    assert [c.chunk_id for c in MinMax(alpha=0.0).fuse(DENSE, SPARSE)][:2] == ["b", "d"]


def test_z_score_weighs_standard_scores_and_breaks_a_tie_by_former_rank() -> None:
    # dense z: 1.2247, 0, -1.2247; sparse z: 1, -1; the missing get -1.2247 and -1
    fused = ZScore(alpha=0.5).fuse(
        retriever("dense", a=3.0, b=2.0, c=1.0), retriever("sparse", b=4.0, d=0.0)
    )
    assert [c.chunk_id for c in fused] == ["b", "a", "d", "c"]
    assert [c.score for c in fused] == pytest.approx(
        [0.5, 0.112372, -1.112372, -1.112372], abs=1e-6
    )


def test_scaling_of_equal_scores() -> None:
    assert min_max([2.0, 2.0]) == [1.0, 1.0]
    assert z_score([2.0, 2.0]) == [0.0, 0.0]
    assert min_max([1.0, 3.0, 2.0]) == [0.0, 1.0, 0.5]


def test_what_the_whole_list_of_words_does_not_hold_scores_zero() -> None:
    """Of ten texts one is nearest by far; the only one with the words is none of them."""
    dense = retriever("dense", a=0.9, **{f"d{number}": 0.5 for number in range(9)})
    sparse = retriever("sparse", x=9.0)
    standard = {c.chunk_id: c.score for c in ZScore().fuse(dense, sparse, whole=True)}
    # of 0.9 among nine 0.5 the standard score is 3, of 9 among ten 0 it is the root of 10
    assert standard["a"] == pytest.approx(0.5 * 3 - 0.5 / 10**0.5)
    assert standard["x"] == pytest.approx(0.5 * -1 / 3 + 0.5 * 10**0.5)
    assert [c.chunk_id for c in ZScore().fuse(dense, sparse, whole=True)][:2] == ["x", "a"]
    assert next(c.chunk_id for c in ZScore().fuse(dense, sparse)) == "a"
    scaled = {
        c.chunk_id: c.score for c in MinMax().fuse(dense, retriever("sparse", x=9, a=3), whole=True)
    }
    assert (scaled["x"], scaled["a"]) == pytest.approx((0.5, 0.5 + 0.5 / 3))


def test_the_only_hit_of_a_leg_counts() -> None:
    # dense scaled a 1, b .75, c 0; only d holds the word: it gets 1, the others 0
    alone = retriever("sparse", d=7.0)
    assert [(c.chunk_id, c.score) for c in MinMax(alpha=0.5).fuse(DENSE, alone)] == [
        ("a", 0.5),
        ("d", 0.5),
        ("b", 0.375),
        ("c", 0.0),
    ]
    # dense z: a 1.2247, 0, -1.2247; d gets 0 and -1.2247 * .2, a -1 * .8 and 1.2247 * .2
    dense = retriever("dense", a=3.0, b=2.0, c=1.0)
    first, second = ZScore(alpha=0.2).fuse(dense, alone)[:2]
    assert [first.chunk_id, second.chunk_id] == ["d", "a"]
    assert [first.score, second.score] == pytest.approx([-0.244949, -0.555051], abs=1e-6)


@pytest.mark.parametrize("fusion", [ReciprocalRank(), MinMax(), ZScore()])
def test_an_empty_leg_leaves_the_other_in_its_order(fusion: MinMax) -> None:
    assert [(c.chunk_id, c.source) for c in fusion.fuse([], SPARSE)] == [
        ("b", "sparse"),
        ("d", "sparse"),
        ("e", "sparse"),
    ]
    assert [c.chunk_id for c in fusion.fuse(DENSE, [])] == ["a", "b", "c"]
    assert fusion.fuse([], []) == []


scores = st.dictionaries(
    st.sampled_from("abcdefgh"), st.floats(-1e3, 1e3, allow_nan=False), max_size=8
)


@given(
    dense=scores,
    sparse=scores,
    fusion=st.sampled_from([ReciprocalRank(), MinMax(0.3), ZScore(0.7)]),
)
def test_every_candidate_comes_once_in_falling_order(
    dense: dict[str, float], sparse: dict[str, float], fusion: MinMax
) -> None:
    retrievers = [
        sorted(retriever(name, **found), key=lambda c: -c.score)
        for name, found in (("dense", dense), ("sparse", sparse))
    ]
    fused = fusion.fuse(retrievers[0], retrievers[1])
    assert sorted(c.chunk_id for c in fused) == sorted({*dense, *sparse})
    assert [c.score for c in fused] == sorted((c.score for c in fused), reverse=True)
    assert all(
        (c.source == "hybrid") == (c.chunk_id in dense and c.chunk_id in sparse) for c in fused
    )


def test_a_weight_outside_its_range_is_refused_when_built() -> None:
    with pytest.raises(ConfigError, match=r"alpha = 1\.5"):
        make_provider("fusion", "min_max", {"alpha": 1.5})
    assert make_provider("fusion", "z_score", {"alpha": 0.2}) == ZScore(0.2)


@pytest.mark.parametrize("fusion", [ReciprocalRank(), MinMax(alpha=0.3), ZScore(alpha=0.3)])
def test_a_leg_of_words_that_is_not_trusted_changes_no_order(
    fusion: ReciprocalRank | MinMax | ZScore,
) -> None:
    assert [c.chunk_id for c in fusion.fuse(DENSE, SPARSE, trust=0.0)][:2] == ["a", "b"]
    assert fusion.fuse(DENSE, SPARSE, trust=1.0) == fusion.fuse(DENSE, SPARSE)


def test_trust_multiplies_the_weight_of_the_sparse_leg() -> None:
    # weight of words .5 * .5 = .25: a .75, b .75 * .75 + .25, d .25 * .5
    fused = MinMax(alpha=0.5).fuse(DENSE, SPARSE, trust=0.5)
    assert [(c.chunk_id, c.score) for c in fused] == [
        ("b", 0.8125),
        ("a", 0.75),
        ("d", 0.125),
        ("c", 0.0),
        ("e", 0.0),
    ]
