from __future__ import annotations

import math
import random

import pytest
from ir_measures import RR, Qrel, R, ScoredDoc, Success, iter_calc, nDCG

from rag_platform.evaluation.metrics import (
    bootstrap,
    mean,
    mean_interval,
    measure_ranking,
)

QRELS = {"q1": {"a": 1, "b": 0}, "q2": {"c": 1, "d": 1}, "q3": {"a": 1}}


def test_a_question_without_results_counts_nothing_instead_of_being_left_out() -> None:
    one, two, none = (
        measure_ranking(ranking, QRELS[name], (1, 2, 10))
        for name, ranking in (("q1", ["b", "a"]), ("q2", ["c", "x", "d", "c"]), ("q3", []))
    )
    ideal = 1 + 1 / math.log2(3)
    assert one["ndcg@10"] == pytest.approx(1 / math.log2(3))
    assert two["ndcg@10"] == pytest.approx((1 + 1 / math.log2(4)) / ideal)
    assert (one["mrr@10"], two["mrr@10"]) == (0.5, 1.0)
    assert (one["recall@2"], two["recall@2"]) == (1.0, 0.5)
    assert (one["hit_rate@1"], two["hit_rate@1"]) == (0.0, 1.0)
    assert set(none.values()) == {0.0} and none.keys() == one.keys() and mean({}) == 0.0


def test_values_are_those_of_trec_eval() -> None:
    """By ir-measures (MacAvaney et al., ECIR 2022), which runs trec_eval."""
    chance = random.Random(7)
    ids = [f"d{n}" for n in range(30)]
    qrels = {
        f"q{n}": {item: chance.choice((-1, 0, 0, 1, 1, 2, 3)) for item in chance.sample(ids, 12)}
        for n in range(200)
    }
    run = {query: chance.sample(ids, chance.randrange(30)) for query in list(qrels)[:190]}
    theirs = {"hit_rate": Success, "recall": R, "mrr": RR, "ndcg": nDCG}
    ours = {q: measure_ranking(run.get(q, ()), qrels[q], (1, 3, 10, 50)) for q in qrels}
    judged = [Qrel(q, item, grade) for q, grades in qrels.items() for item, grade in grades.items()]
    ranked = [
        ScoredDoc(q, item, -float(place))
        for q, found in run.items()
        for place, item in enumerate(found)
    ]
    for name, measure in theirs.items():
        for k in (1, 3, 10, 50):
            expected = {m.query_id: m.value for m in iter_calc([measure @ k], judged, ranked)}
            found = {query: values[f"{name}@{k}"] for query, values in ours.items()}
            assert found == pytest.approx(expected), f"{name}@{k}"


def test_intervals_hold_the_mean_and_narrow_with_certainty() -> None:
    sure = bootstrap([0.5] * 20)
    assert (sure.value, sure.low, sure.high) == (0.5, 0.5, 0.5)
    values = {str(n): float(n % 2) for n in range(100)}
    found = bootstrap(values.values())
    assert found.value == 0.5 and 0.38 < found.low < 0.45 < 0.55 < found.high < 0.62
    assert bootstrap([]).value == 0.0


def test_an_interval_of_a_share_leaves_room_for_what_was_not_seen() -> None:
    """Newcombe (1998) has 81 of 263 as .2553 to .3662; n of n begins at n / (n + z^2)."""
    known = mean_interval([1.0] * 81 + [0.0] * 182)
    assert (round(known.low, 4), round(known.high, 4)) == (0.2553, 0.3662)
    whole, none = mean_interval([1.0] * 5), mean_interval([0.0] * 5)
    assert (round(whole.low, 4), whole.high) == (0.5655, 1.0)
    assert (none.low, none.high) == pytest.approx((0.0, 0.4345), abs=5e-5)
    graded = [0.5, 1.0, 0.0, 0.25]
    assert mean_interval(graded) == bootstrap(graded)
