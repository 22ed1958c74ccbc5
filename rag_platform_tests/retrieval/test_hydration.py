from __future__ import annotations

import itertools
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rag_platform.ir import Hit
from rag_platform.retrieval.hydration import (
    adds_nothing,
    diversify,
    find_preferred,
    likeness,
    says_no_less,
    select_shown,
)

RULES: dict[str, Any] = {"dedupe": True, "max_per_document": 0}
SENTENCE = "the gateway refuses every upload above the limit and tells the client why"


def hit(n: int, text: str, score: float = 0.0, *, doc: str = "d", namespace: str = "") -> Hit:
    return Hit(
        n,
        f"c{n}",
        score or 1 / n,
        "hybrid",
        doc,
        "v",
        "s/d.md",
        "d.md",
        "",
        "",
        n,
        text,
        namespace=namespace,
    )


def ids(hits: list[Hit]) -> list[str]:
    return [found.chunk_id for found in hits]


def test_equal_texts_and_the_surplus_of_a_document_are_left_out() -> None:
    hits = [hit(1, "a"), hit(2, " a "), hit(3, "b"), hit(4, "c", doc="e"), hit(5, ""), hit(6, "")]
    # pictures without text are not equal
    assert ids(select_shown(hits, 9, **RULES)) == ["c1", "c3", "c4", "c5", "c6"]
    assert ids(select_shown(hits, 9, dedupe=False, max_per_document=2)) == ["c1", "c2", "c4"]
    assert ids(select_shown(hits, 2, **RULES)) == ["c1", "c3"]
    long = "one two three four five six seven eight nine"
    hits = [hit(1, f"{long} ten"), hit(2, f"{long} eleven"), hit(3, f"{long}  eleven\n")]
    assert ids(select_shown(hits, 9, **RULES)) == ["c1", "c2"]


def test_a_table_of_contents_comes_after_all_else() -> None:
    entries = "\n".join(f"1.{n} Pumps . . . . . . . . {n}" for n in range(1, 6))
    hits = [hit(1, entries), hit(2, "a"), hit(3, "b")]
    assert ids(select_shown(hits, 9, **RULES)) == ["c2", "c3", "c1"]
    assert ids(select_shown(hits, 9, dedupe=True, max_per_document=1)) == ["c2"]
    assert ids(select_shown(hits[:1], 9, **RULES)) == ["c1"]


def test_documents_of_two_namespaces_are_two() -> None:
    hits = [hit(1, "a", namespace="x"), hit(2, "b", namespace="y"), hit(3, "c", namespace="x")]
    assert ids(select_shown(hits, 9, dedupe=True, max_per_document=1)) == ["c1", "c2"]


def test_nearly_equal_texts_are_one_above_the_threshold() -> None:
    hits = [
        hit(1, f"{SENTENCE} 5 times"),
        hit(2, f"{SENTENCE}: 5 times!"),
        hit(3, f"{SENTENCE} 6 times"),
        hit(4, "else"),
    ]
    assert ids(select_shown(hits, 9, **RULES)) == ["c1", "c2", "c3", "c4"]
    assert ids(select_shown(hits, 9, **RULES, dedupe_threshold=0.9)) == ["c1", "c3", "c4"]
    assert ids(select_shown(hits, 9, dedupe=False, max_per_document=0, dedupe_threshold=0.9)) == [
        "c1",
        "c2",
        "c3",
        "c4",
    ]


def test_novelty_may_come_before_relevance_and_top_k_counts_afterwards() -> None:
    hits = [
        hit(1, SENTENCE, 1.0),
        hit(2, f"{SENTENCE} now", 0.9),
        hit(3, "an owl sits there", 0.5),
        hit(4, "rain falls", 0.4),
    ]
    assert ids(select_shown(hits, 2, **RULES, mmr_lambda=0.5)) == ["c1", "c3"]
    assert ids(select_shown(hits, 2, **RULES, mmr_lambda=1.0)) == ["c1", "c2"]
    assert select_shown([], 2, **RULES, mmr_lambda=0.5) == []


def test_what_adds_nothing() -> None:
    assert adds_nothing("a b c", "x a b c y", 1.0)
    assert not adds_nothing("x a b c y", "a b c", 0.9)
    assert not adds_nothing("连接数不是一百", "连接数是一百。连接数是一百", 0.5)
    assert adds_nothing("连接数是一百", "最大的连接数是一百", 0.9)
    assert not adds_nothing("call foo_bar now please", "call foo_baz now please call", 0.3)
    assert not adds_nothing("", "", 0.5)
    assert not adds_nothing("port 80 is open", "the port 8080 is open now", 0.5)
    assert adds_nothing("a b c d e f g h i x", "a b c d e f g h i y", 0.8)  # 8 of 9 pairs
    assert not adds_nothing("a b c d e f g h i x", "a b c d e f g h i y", 0.9)


@given(
    st.lists(st.sampled_from("abc不1"), max_size=9),
    st.lists(st.sampled_from("abc不1"), max_size=9),
    st.floats(0, 1),
)
def test_what_is_told_early_is_what_the_pairs_tell(
    new: list[str], known: list[str], threshold: float
) -> None:
    later, earlier = " ".join(new), " ".join(known)
    pairs = set(itertools.pairwise(new)) or {(word, "") for word in new}
    shared = pairs & (set(itertools.pairwise(known)) or {(word, "") for word in known})
    enough = bool(pairs) and len(shared) >= threshold * len(pairs)
    assert adds_nothing(later, earlier, threshold) == (enough and says_no_less(later, earlier))


def test_likeness_is_the_share_of_common_pairs() -> None:
    assert likeness("a b c", "a b d") == 1 / 3
    assert likeness("", "a") == 0.0


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0, 1))
def test_every_position_comes_once_the_best_first(relevance: list[float], weight: float) -> None:
    order = list(diversify(relevance, lambda i, j: 0.5, weight))
    assert sorted(order) == list(range(len(relevance)))
    assert order == list(diversify(relevance, lambda i, j: 0.5, weight))


@given(
    st.lists(st.text(alphabet="ab 1不", max_size=12), max_size=10),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(1, 5),
)
def test_what_is_shown_was_given_and_no_text_twice(
    texts: list[str], threshold: float, weight: float, top_k: int
) -> None:
    hits = [hit(n, text) for n, text in enumerate(texts, 1)]
    found = select_shown(hits, top_k, **RULES, dedupe_threshold=threshold, mmr_lambda=weight)
    assert len(found) <= top_k
    assert len(set(ids(found))) == len(found)
    assert set(ids(found)) <= set(ids(hits))
    said = [" ".join(h.chunk_text.split()) for h in found if h.chunk_text.strip()]
    assert len(set(said)) == len(said)


def test_recent_is_what_says_so_itself(shelf: Any, tmp_path: Path) -> None:
    """The older text is received last."""
    for name, date in (("new", "2026-03-01"), ("old", "2019-03-01")):
        text = f"---\ndate: {date}\n---\n\n# Rules\n\nThe gate rule.\n"
        (tmp_path / f"{name}.md").write_text(text, encoding="utf-8")
        shelf.ingest(tmp_path / f"{name}.md")
    with closing(shelf.library()) as library, library.lease("default") as lease:
        catalog = lease.release.catalog
        rows = catalog.hit_rows(catalog.chunk_ids())
    [recent] = find_preferred(["prefer_recent"], rows).values()
    assert {rows[chunk_id].filename for chunk_id in recent} == {"new.md"}
