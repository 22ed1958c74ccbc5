from __future__ import annotations

import dataclasses

import pytest

from rag_platform.config.query import RerankConfig
from rag_platform.config.settings import Limits
from rag_platform.ir import Hit, QueryIR
from rag_platform.query.analysis import prepare
from rag_platform.registry import make_provider
from rag_platform.retrieval.lexical_reranker import Features, select_terms
from rag_platform.retrieval.reranking import apply_reranker

ONLY_WORDS = {"fused": 0.0, "headings": 0.0, "phrases": 0.0, "identifiers": 0.0}


def hit(n: int, text: str, score: float = 0.5, *, title: str = "", section: str = "") -> Hit:
    return Hit(n, f"c{n}", score, "hybrid", "d", "v", "s/d.md", "d.md", title, section, n, text)


def asked(text: str, **fields: object) -> QueryIR:
    return dataclasses.replace(
        prepare(text, Limits()), **{"identifiers": (), "phrases": (), **fields}
    )  # type: ignore[arg-type]


def order(query: QueryIR, hits: list[Hit], **weights: float) -> list[str]:
    return [
        found.chunk_id
        for found in apply_reranker(
            Features(**weights), RerankConfig(provider="features"), query, hits
        )
    ]


def test_words_of_a_question() -> None:
    assert select_terms("how does the gateway handle retries and timeouts") == [
        "gateway",
        "handl",
        "retr",
        "timeout",
    ]
    assert select_terms("连接池的最大连接数是多少") == ["连接", "接池", "最大", "大连", "接数"]
    assert select_terms("the of and") == []


def test_one_identifier_of_another_digit_is_another_thing() -> None:
    query = asked("What does PPR-9087 mean?", identifiers=("PPR-9087",))
    hits = [
        hit(1, "Error PPR-9088 means that the licence has expired.", 1.0),
        hit(2, "Error PPR-90871 means that nothing is wrong.", 0.9),
        hit(3, "Error PPR-9087-A is historical.", 0.8),
        hit(4, "错误PPR-9087表示许可证服务器无法访问。", 0.1),
    ]
    assert order(query, hits)[0] == "c4"


@pytest.mark.parametrize(
    ("identifier", "text", "says"),
    [
        ("foo_bar", "call foo_bar()", 1.0),
        ("foo_bar", "call foo_bar_baz()", 0.5),
        ("PPR-9087", "PPR-9087。", 1.0),
        ("PPR-9087", "error of the printer", 0.5),
        ("PPR-9087", "PPR-9088", 0.0),
        ("SKU_4711-A", "SKU_4711-B", 0.0),
        ("v1.20.3", "since v1.20.31", 0.0),
        # what texts write in other ways, too
        ("v1.2", "since v1.2.", 1.0),
        ("v1.2", "since v1.2.3", 0.9),
        ("v1.2", "rev1.2", 0.9),
        ("config.py", "see config.py, please", 1.0),
        ("config.py", "see src/config.py", 0.9),
        ("C++", "in C++ and C", 1.0),
        ("EMNLP2022", "EMNLP 2022", 0.9),
        ("15.4", "15.5", 0.9),
    ],
)
def test_an_identifier_stands_for_itself(identifier: str, text: str, says: float) -> None:
    scores = Features(fused=0, sentence=0, headings=0, phrases=0).score(
        asked("x", identifiers=(identifier,)), [hit(1, text)]
    )
    assert scores == [says]


def test_a_phrase_counts_where_it_stands_as_a_whole() -> None:
    query = asked('who wrote "the origin of species"', phrases=("the origin of species",))
    hits = [
        hit(1, "Species and their origin: the theory of it.", 1.0),
        hit(2, "He wrote The Origin\nof Species in 1859.", 0.6),
    ]
    assert order(query, hits)[0] == "c2"


def test_the_best_sentence_counts_not_the_sum_of_all() -> None:
    query = asked("maximum upload size")
    spread = hit(1, "The maximum is shown. Every upload counts. A size is a number.")
    together = hit(2, "Read on. The maximum upload size is 50 MB. Then stop.")
    assert order(query, [spread, together], **ONLY_WORDS) == ["c2", "c1"]


def test_headings_count() -> None:
    query = asked("日志保存多久")
    hits = [hit(1, "保存三十天。", section="备份"), hit(2, "保存三十天。", section="日志")]
    assert order(query, hits) == ["c2", "c1"]
    named = [hit(1, "日志保存三十天。"), hit(2, "**日志**\n\n保存三十天。")]
    only_headings = dict.fromkeys(ONLY_WORDS | {"sentence": 0.0}, 0.0)
    assert order(query, named, **only_headings | {"headings": 1.0}) == ["c2", "c1"]


def test_the_title_that_asks_the_question_comes_first() -> None:
    other = hit(1, "**How do I close a jar?**\n\nTo open a jar is not to close it.", 0.9)
    own = hit(2, "**How do I shake it?**\n\nSo.\n\nQ: How can I open jars?\n\nA: Twist.", 0.1)
    assert order(asked("How do I open a jar?"), [other, own])[0] == own.chunk_id
    assert order(asked("How do I open a red jar?"), [other, own])[0] == other.chunk_id


def test_a_rare_word_weighs_more_than_one_that_all_hits_hold() -> None:
    query = asked("gateway certificate")
    hits = [
        hit(1, "The gateway is up."),
        hit(2, "The gateway is down."),
        hit(3, "The certificate is new."),
        hit(4, "The gateway runs."),
    ]
    assert order(query, hits)[0] == "c3"


def test_without_words_the_fused_order_stands() -> None:
    hits = [hit(1, "a", 0.9), hit(2, "b", 0.5), hit(3, "c", 0.1)]
    assert order(asked("the of"), hits) == ["c1", "c2", "c3"]
    assert Features().score(asked("the of"), hits) == [1.0, 0.5, 0.0]
    assert Features().score(asked("x"), []) == []


def test_scores_lie_between_0_and_1() -> None:
    query = asked(
        "error PPR-9087 of the gateway", identifiers=("PPR-9087",), phrases=("of the gateway",)
    )
    scores = Features().score(
        query,
        [
            hit(1, "Error PPR-9087 of the gateway.", 3.0, title="Error PPR-9087 gateway"),
            hit(2, "PPR-9088", -2.0),
        ],
    )
    assert scores[0] == pytest.approx(1.0)
    assert scores[1] < 0.1


def test_hostile_questions_cost_little() -> None:
    hits = [hit(n, "a b c. " * 500) for n in range(1, 31)]
    for text in ("a" * 3000, "(" * 2000 + ".*", "漢" * 3000, " ".join(f"w{n}" for n in range(700))):
        assert len(Features().score(asked(text, identifiers=("(.*+",)), hits)) == 30


def test_weights_are_checked() -> None:
    with pytest.raises(Exception, match="negative"):
        make_provider("reranker", "features", {"fused": -1.0})
