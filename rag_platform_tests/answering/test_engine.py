from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rag_platform.answering.engine import answer
from rag_platform.answering.extractive import Extractive
from rag_platform.config.settings import Settings, load_settings
from rag_platform.errors import InputError, NotFoundError, ProviderError
from rag_platform.ir import Hit, QueryIR, QueryRequest
from rag_platform.observability import trace_reader
from rag_platform.protocols import Vectors, Written
from rag_platform.providers.hashing import Hashing
from rag_platform.providers.tantivy import Tantivy
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform_tests.chat_server import chat_server, said
from rag_platform_tests.published import Hiding

HERE = __name__
GUIDE = [
    ("Limits", "The maximum upload size is 50 MB."),
    ("Errors", "Error PPR-9087 means that the licence server cannot be reached."),
]
STAGES = [
    "stage.query_norm",
    "stage.filter",
    "stage.retrieve_dense",
    "stage.retrieve_sparse",
    "stage.fusion",
    "stage.filter",
    "stage.rerank",
    "stage.context_build",
    "stage.generate",
    "stage.format_response",
]


# --- providers that fail; a dotted path in a strategy finds them --------------------------------


@dataclass(frozen=True)
class FailingForQuestions(Hashing):
    """Embeds documents as `hashing` does, and no question."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        if query:
            raise ProviderError("the model server is down", code="unreachable", retryable=True)
        return super().embed(texts)


@dataclass(frozen=True)
class UnreadableWords(Tantivy):
    """A word index that can be written but not asked."""

    def open(self, directory: Path) -> Any:
        return UnreadableReader()


class UnreadableReader:
    """Fails as a vendor's library does, with no error of ours."""

    def search(self, query: str, k: int, **restrictions: Any) -> list[Any]:
        raise OSError("input/output error")


@dataclass(frozen=True)
class Reversing:
    """Turns the order around."""

    VERSION: ClassVar[str] = "1"

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        return [float(rank) for rank, _ in enumerate(hits)]


@dataclass(frozen=True)
class SlowReranker(Reversing):
    """Outlives every deadline of these tests."""

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        threading.Event().wait(5)
        return [0.0] * len(hits)


@dataclass(frozen=True)
class Forgetful(Reversing):
    """Loses a hit."""

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        return [1.0] * (len(hits) - 1)


@dataclass(frozen=True)
class BrokenAnswerer(Extractive):
    """Fails for every question."""

    def answer(self, query: QueryIR, evidence: Sequence[Hit], **options: Any) -> Written:
        raise ProviderError("quota exceeded", code="rate_limited")


# --- the way of a good query --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "chunk_id", "says"),
    [
        (
            "What is the maximum upload size?",
            "guide-0",
            "The maximum upload size is 50 MB. Larger files are refused with code 413. [1]",
        ),
        (
            "最大连接数是多少？",
            "handbook-0",
            "连接池的最大连接数是 100。超过上限的请求会排队等待。 [1]",
        ),
        (
            "ppr-9087",
            "guide-2",
            "Error PPR-9087 means that the licence server cannot be reached. [1]",
        ),
    ],
)
def test_the_answer_quotes_the_right_chunk(
    guide: Any, library: Library, question: str, chunk_id: str, says: str
) -> None:
    result = answer(library, QueryRequest(question))
    assert result.hits[0].chunk_id == chunk_id
    assert result.answer_markdown == says
    assert [(c.id, c.chunk_id) for c in result.citations] == [(1, chunk_id)]
    assert result.citations[0].text in {text for pairs in guide.values() for _, text in pairs}
    assert (
        result.effective_mode,
        result.release_id,
        result.matched_count,
        result.applied_filters,
    ) == ("hybrid", "r1", None, {})
    assert result.warnings == ()
    assert 0.5 < result.confidence <= 1.0


def test_the_trace_has_every_stage_and_what_a_replay_needs(
    guide: Any, library: Library, store: Store
) -> None:
    result = answer(library, QueryRequest("What is the maximum upload size?"), request_id="req_1")
    trace = trace_reader.show(store.logs_dir, result.trace_id)
    assert [item["name"] for item in trace["spans"] if item["name"].startswith("stage.")] in (
        STAGES,
        [*STAGES[:2], *STAGES[3:1:-1], *STAGES[4:]],
    )
    assert (
        trace["trace_type"],
        trace["status"],
        trace["namespace"],
        trace["links"]["request_id"],
    ) == ("query", "ok", "default", "req_1")
    assert trace["strategy_config_id"].startswith("scfg_")
    attrs = trace["attrs"]
    assert attrs["ranked_chunk_ids"] == [hit.chunk_id for hit in result.hits]
    assert attrs["request"]["text"] == "What is the maximum upload size?"
    assert set(attrs) >= {
        "release_id",
        "query_hash",
        "effective_mode",
        "final_context_tokens",
        "candidate_count_before_after_filter",
    }
    figures = (
        "dense_latency_ms",
        "sparse_latency_ms",
        "fusion_latency_ms",
        "rerank_latency_ms",
        "dense_topk_overlap_sparse",
    )
    for name in figures:
        assert attrs[name] is not None, name
    kinds = [item["kind"] for item in trace["events"]]
    assert kinds.count("retrieval.candidates") == 2
    assert {
        "query.normalized",
        "fusion.ranked",
        "rerank.ranked",
        "context.final",
        "generation.summary",
        "response.envelope",
    } <= set(kinds)
    assert trace["aggregates"]["counters"]["citations_count"] == 1
    rerank = next(item for item in trace["spans"] if item["name"] == "stage.rerank")
    assert rerank["attrs"]["rerank_applied"] is False
    assert rerank["provider"]["provider_id"] == "reranker.none"


@pytest.mark.parametrize("mode", ["dense", "sparse", "hybrid"])
def test_each_mode_runs_its_legs(guide: Any, library: Library, store: Store, mode: str) -> None:
    result = answer(library, QueryRequest("maximum upload size", mode=mode))
    assert result.effective_mode == mode
    assert {hit.source for hit in result.hits} <= (
        {mode} if mode != "hybrid" else {"dense", "sparse", "hybrid"}
    )
    names = {item["name"] for item in trace_reader.show(store.logs_dir, result.trace_id)["spans"]}
    assert ("stage.retrieve_dense" in names, "stage.retrieve_sparse" in names) == (
        mode != "sparse",
        mode != "dense",
    )


def test_top_k_counts_what_is_shown(publish: Any, library: Library) -> None:
    same = ("Same", "The pump needs oil.")
    publish(
        {
            "a": [same],
            "b": [same],
            "c": [("Other", "The pump is red and needs oil.")],
            "d": [("More", "A pump.")],
        }
    )
    shown = answer(library, QueryRequest("pump oil", top_k=3)).hits
    assert len(shown) == 3
    assert len({hit.chunk_text for hit in shown}) == 3
    assert [hit.rank for hit in shown] == [1, 2, 3]
    assert len(answer(library, QueryRequest("pump oil", top_k=1)).hits) == 1


def test_max_per_document(guide: Any, library: Library) -> None:
    hits = answer(library, QueryRequest("maximum upload error retry", max_per_document=1)).hits
    assert sorted(hit.doc_id for hit in hits) == ["guide", "handbook"]


def test_a_score_threshold_drops_the_rest(guide: Any, library: Library) -> None:
    hits = answer(library, QueryRequest("maximum upload size", score_threshold=0.9)).hits
    assert [hit.chunk_id for hit in hits] == ["guide-0"]
    every = answer(library, QueryRequest("maximum upload size")).hits
    for least in every:  # the others keep the scores that they are shown with
        kept = answer(library, QueryRequest("maximum upload size", score_threshold=least.score))
        assert kept.hits == tuple(hit for hit in every if hit.score >= least.score)


def test_without_an_answer_only_hits_come_back(guide: Any, library: Library, store: Store) -> None:
    result = answer(library, QueryRequest("maximum upload size", answer=False))
    assert (result.answer_markdown, result.citations) == ("", ())
    assert result.hits[0].chunk_id == "guide-0"
    assert "stage.generate" not in {
        item["name"] for item in trace_reader.show(store.logs_dir, result.trace_id)["spans"]
    }


def test_an_unanswerable_question_is_said_plainly_in_its_language(
    guide: Any, library: Library
) -> None:
    result = answer(library, QueryRequest("Who painted the Mona Lisa?"))
    assert result.answer_markdown.startswith("The library seems to hold nothing on this")
    assert result.flags["answered"] is False
    assert result.confidence <= 0.2
    assert answer(
        library, QueryRequest("蒙娜丽莎在哪里", mode="sparse")
    ).answer_markdown.startswith(("没有段落", "知识库中没有"))


def test_keywords_are_answered_in_the_readers_language_and_sentences_in_their_own(
    guide: Any, store: Store
) -> None:
    remembering = Library(load_settings({"caches": {"responses": 4}}), store)

    def say(text: str, reader: str) -> str:
        result = answer(remembering, QueryRequest(text, mode="sparse", language=reader))
        return result.answer_markdown.partition("\n")[0]

    english, chinese = (
        "This may not be the answer. What comes closest:",
        "这可能不是答案。最接近的原文如下：",
    )
    keywords, sentence = "upload fees competitors Peru", "What are the upload fees in Peru?"
    # in turns, because what was composed for one reader is cached
    assert [say(keywords, reader) for reader in ("", "zh", "en", "zh")] == [
        english,
        chinese,
        english,
        chinese,
    ]
    assert [say(sentence, reader) for reader in ("zh", "en")] == [english, english]
    assert say("zzqx vvkw", "zh") == "知识库中没有与该问题匹配的内容。"
    assert say("秘鲁竞争对手的上传费用", "en").startswith("没有段落")
    assert remembering.cache_figures()["responses"]["hits"] >= 1
    remembering.close()


# --- filters ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["dense", "sparse", "hybrid"])
def test_a_filter_restricts_both_legs(guide: Any, library: Library, mode: str) -> None:
    result = answer(
        library, QueryRequest("maximum upload size 连接", mode=mode, filters={"doc_id": "handbook"})
    )
    assert {hit.doc_id for hit in result.hits} <= {"handbook"}
    assert (result.matched_count, result.applied_filters) == (2, {"doc_id": "handbook"})


def test_a_filter_that_matches_nothing_gives_nothing(guide: Any, library: Library) -> None:
    result = answer(library, QueryRequest("maximum upload size", filters={"doc_id": "nobody"}))
    assert (result.hits, result.matched_count, result.citations) == ((), 0, ())
    assert result.answer_markdown.startswith("No passage that matches the filters")
    assert "no passage has doc_id = nobody (there is: guide, handbook)" in result.warnings
    assert result.flags["retrieval_mode_effective"] == "hybrid"


def test_kept_chunks_without_the_field_are_reported(guide: Any, library: Library) -> None:
    result = answer(library, QueryRequest("maximum upload size", filters={"tags": "x"}))
    assert result.matched_count == 5
    assert any("without tags" in warning for warning in result.warnings)
    assert "no passage has tags = x" in result.warnings


def test_a_version_that_is_not_live_names_the_live_one(publish: Any, library: Library) -> None:
    publish({"guide": [("A", "old text of the guide")]}, release_id="r1")
    old = next(iter(answer(library, QueryRequest("guide")).hits)).version_id
    publish({"guide": [("A", "new text of the guide")]}, release_id="r2")
    with pytest.raises(InputError) as raised:
        answer(library, QueryRequest("guide", filters={"version_id": old}))
    live = answer(library, QueryRequest("guide")).hits[0].version_id
    assert raised.value.code == "version_not_live"
    assert (
        f"is {live!r}; leave version_id out to ask what is live, or ask release r1, which holds it,"
        " with" in raised.value.message
    )
    assert raised.value.details["releases"] == ["r1"]
    assert (
        answer(library, QueryRequest("guide", filters={"version_id": old}, release_id="r1"))
        .hits[0]
        .version_id
        == old
    )


def test_soft_preferences_reorder_and_drop_nothing(publish: Any, library: Library) -> None:
    publish(
        {"a": [("S", "pump oil")], "b": ([("S", "pump oil and water")], {"tags": ("official",)})}
    )
    plain = answer(library, QueryRequest("pump oil", mode="sparse"))
    preferring = answer(
        library, QueryRequest("pump oil", mode="sparse", filters={"prefer_official": True})
    )
    assert {hit.chunk_id for hit in plain.hits} == {hit.chunk_id for hit in preferring.hits}
    assert preferring.flags["filter_execution_plan_effective"]["rerank"] == ["prefer_official"]


def test_a_hard_filter_that_cannot_run_stops_the_query(
    guide: Any, library: Library, store: Store
) -> None:
    with closing(sqlite3.connect(store.release_dir("default", "r1") / "catalog.sqlite")) as damaged:
        damaged.execute("DROP TABLE versions")
    with pytest.raises(ProviderError, match="nothing was searched") as raised:
        answer(library, QueryRequest("upload", filters={"doc_id": "guide"}))
    assert raised.value.code == "filter_failed"


def test_filters_told_from_the_words_are_applied_and_can_be_switched_off(
    guide: Any, library: Library
) -> None:
    told = answer(library, QueryRequest("PDF only: maximum upload size"))
    assert (told.hits, told.matched_count, told.applied_filters) == (
        (),
        0,
        {"content_type": "application/pdf"},
    )
    assert (
        answer(library, QueryRequest("PDF only: maximum upload size", infer=False)).hits[0].chunk_id
        == "guide-0"
    )


def test_a_told_filter_that_matches_nothing_is_relaxed_once_where_configured(
    guide: Any, vary: Any, library: Library
) -> None:
    name = vary("lenient", "query: {inference: {relax_once: true}}\n")
    result = answer(library, QueryRequest("PDF only: maximum upload size", strategy=name))
    assert (result.hits[0].chunk_id, result.flags["filter_relaxed"], result.applied_filters) == (
        "guide-0",
        True,
        {},
    )
    assert any("asked again without it" in warning for warning in result.warnings)


# --- further questions, thresholds, reranking when unsure ---------------------------------------


def test_further_questions_are_searched_beside_the_asked_one(
    guide: Any, vary: Any, library: Library, store: Store
) -> None:
    reply = {
        "question": "licence server error",
        "keywords": [],
        "intent": "search",
        "filters": [],
        "queries": ["PPR-9087"],
    }
    with chat_server(lambda body, number: said(json.dumps(reply))) as server:
        model = (
            f"llm: {{provider: openai, options: {{model: m, base_url: '{server.url}', api_key_env:"
            " '', retries: 0}}\n"
        )
        model += (
            "retrieval: {stage_seconds: 120, query_seconds: 300}\n"
            "query: {rewrite: {enabled: true, queries: 2, timeout_ms: 120000}}\n"
        )
        result = answer(library, QueryRequest("licence server error", strategy=vary("many", model)))
    assert "rewrite_failed" not in result.flags, result.warnings
    assert result.hits[0].chunk_id == "guide-2"
    trace = trace_reader.show(store.logs_dir, result.trace_id)
    names = [item["name"] for item in trace["spans"]]
    assert (
        names.count("stage.retrieve_dense") == 2
        and names.count("stage.retrieve_sparse") == 2
        and names.count("search.phrasing") == 1
    )
    assert result.usage == {"calls": 1, "input_tokens": 10, "output_tokens": 5}
    assert result.searches == ("PPR-9087",)


def test_search_phrasings_find_what_the_question_has_no_word_for(
    guide: Any, library: Library, store: Store
) -> None:
    text = "mein Programm startet nicht"
    plain = answer(library, QueryRequest(text, mode="sparse"))
    assert plain.hits == () and plain.searches == ()
    result = answer(
        library, QueryRequest(text, mode="sparse", searches=("maximum upload size", "PPR-9087"))
    )
    found = {hit.chunk_id: hit.found_by for hit in result.hits}
    assert found["guide-0"] == (1,) and found["guide-2"] == (2,)
    assert result.searches == ("maximum upload size", "PPR-9087")
    trace = trace_reader.show(store.logs_dir, result.trace_id)
    assert trace["attrs"]["request"]["searches"] == ["maximum upload size", "PPR-9087"]
    again = answer(library, QueryRequest(text, mode="sparse", searches=("PPR-9087",)))
    assert [hit.chunk_id for hit in again.hits] == ["guide-2"]  # not what was remembered


def test_a_result_is_an_answer_the_closest_passages_or_nothing(
    guide: Any, library: Library
) -> None:
    states = {
        text: answer(library, QueryRequest(text, mode="sparse")).state
        for text in ("maximum upload size", "upload fees of competitors in Peru", "zzqx vvkw")
    }
    assert list(states.values()) == ["answered", "closest", "nothing_found"]
    nothing = answer(library, QueryRequest("The upload, what is that?", mode="sparse"))
    assert nothing.state != "nothing_found"
    nothing = answer(library, QueryRequest("What is that?", mode="sparse"))  # in the second text
    assert (nothing.state, nothing.confidence) == ("nothing_found", 0.0) and nothing.hits
    words = QueryRequest("What is that?", mode="sparse", searches=("maximum upload size",))
    assert answer(library, words).state == "answered"
    closest = answer(library, QueryRequest("upload fees of competitors in Peru", mode="sparse"))
    assert not closest.answered and closest.hits and closest.flags["state"] == "closest"
    assert "This may not be the answer." in closest.answer_markdown
    searched = answer(library, QueryRequest("maximum upload size", answer=False))
    assert (searched.state, searched.answer_markdown) == ("closest", "")


def test_a_question_that_is_a_heading_is_answered(publish: Any, library: Library) -> None:
    publish(
        {
            "faq": [
                ("忘记密码怎么办？", "在登录页输入注册手机号，按短信验证码重置。"),
                ("支持哪些支付方式？", "支持微信支付、支付宝、银联卡。"),
            ]
        }
    )
    found = answer(library, QueryRequest("忘记密码怎么办"))
    assert found.state == "answered" and "短信验证码" in found.answer_markdown


@pytest.mark.parametrize(
    ("searches", "rule"),
    [
        (("a", "b", "c", "d", "e"), "5 were given; give at most 4"),
        (("x" * 401,), "number 1 has 401 characters, the limit is 400"),
        (("upload", 3), "number 2 must be text, not int"),
        ("upload", "a list of texts, not str"),
    ],
)
def test_phrasings_that_are_none_are_refused_with_the_rule(
    guide: Any, library: Library, searches: Any, rule: str
) -> None:
    with pytest.raises(InputError, match=rule) as caught:
        answer(library, QueryRequest("maximum upload size", searches=searches))
    assert caught.value.code == "invalid_searches"


def test_the_threshold_is_of_the_dense_legs_mapped_score(
    guide: Any, vary: Any, library: Library
) -> None:
    """(cosine + 1) / 2: what has nothing in common with the question scores about .5."""
    some = answer(
        library,
        QueryRequest(
            "maximum upload size",
            mode="dense",
            strategy=vary("some", "retrieval: {score_threshold: 0.6}\n"),
        ),
    )
    assert [hit.chunk_id for hit in some.hits] == ["guide-0"]
    none = answer(
        library,
        QueryRequest(
            "maximum upload size",
            mode="dense",
            strategy=vary("none", "retrieval: {score_threshold: 1.0}\n"),
        ),
    )
    assert none.hits == ()
    both = answer(
        library,
        QueryRequest(
            "maximum upload size", strategy=vary("words", "retrieval: {score_threshold: 1.0}\n")
        ),
    )
    assert both.hits[0].chunk_id == "guide-0" and {hit.source for hit in both.hits} == {"sparse"}


def test_a_sure_order_is_not_reranked_where_so_configured(
    guide: Any, vary: Any, library: Library
) -> None:
    reranker = f"provider: '{HERE}:Reversing'"
    never = vary("never", f"reranker: {{{reranker}, only_below_confidence: 0.0}}\n")
    always = vary("always", f"reranker: {{{reranker}, only_below_confidence: 1.0}}\n")
    question = "maximum upload size"
    assert answer(library, QueryRequest(question, strategy=never)).flags["rerank_applied"] is False
    assert (
        answer(library, QueryRequest("licence keys of pumps", strategy=always)).flags[
            "rerank_applied"
        ]
        is True
    )
    off = answer(library, QueryRequest("licence keys of pumps", strategy=always, rerank=False))
    assert (
        off.flags["rerank_applied"],
        off.flags["effective_rank_source"],
        "rerank_failed" in off.flags,
    ) == (False, "fusion", False)


# --- wrong arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (QueryRequest(" "), "empty_query"),
        (QueryRequest("x" * 5000), "query_too_long"),
        (QueryRequest("x", mode="fuzzy"), "invalid_mode"),
        (QueryRequest("x", top_k=0), "invalid_top_k"),
        (QueryRequest("x", top_k=101), "invalid_top_k"),
        (QueryRequest("x", filters={"autor": 1}), "unknown_filter"),
        (QueryRequest("x", namespace="nowhere"), "unknown_namespace"),
        (QueryRequest("x", strategy="nowhere"), "unknown_strategy"),
        (QueryRequest("x", release_id="r99"), "unknown_release"),
    ],
)
def test_a_wrong_argument_is_an_error_with_its_trace(
    guide: Any, library: Library, store: Store, request_: QueryRequest, code: str
) -> None:
    with pytest.raises(InputError) as raised:
        answer(library, request_)
    assert raised.value.code == code
    trace = trace_reader.show(store.logs_dir, raised.value.details["trace_id"])
    assert (trace["status"], trace["error"]["code"]) == ("error", code)


def test_a_namespace_without_a_release_says_so(library: Library, store: Store) -> None:
    store.releases_dir("fresh").mkdir(parents=True)
    with pytest.raises(NotFoundError) as raised:
        answer(library, QueryRequest("x", namespace="fresh"))
    assert raised.value.code == "no_release"


# --- fallbacks ----------------------------------------------------------------------------------


def test_a_quote_about_its_neighbour_is_closest_and_says_so(publish: Any, library: Library) -> None:
    text = (
        "Sandbox tokens expire after 12 hours. Production tokens are issued by the security team."
    )
    publish({"tokens": [("Tokens", text)]})
    asked = {
        name: QueryRequest(f"When do {name} tokens expire?") for name in ("sandbox", "production")
    }
    right, beside = (answer(library, asked[name]) for name in ("sandbox", "production"))
    assert (right.state, right.warnings) == ("answered", ())
    assert beside.state == "closest" and beside.answer_markdown.startswith("This may not be")
    assert beside.warnings == (
        "the answer speaks of “Sandbox tokens”, the question of “production tokens”",
    )


def test_where_nothing_is_quoted_no_quote_is_doubted(publish: Any, library: Library) -> None:
    publish({"pump": [("Pump manual", "Call us before the first start.")]})
    found = answer(library, QueryRequest("How heavy is the pump of this manual?", mode="sparse"))
    assert found.answer_markdown.startswith("No passage clearly answers this question.")
    assert found.warnings == ()


def test_a_row_without_the_column_that_was_asked_for_is_closest(
    publish: Any, library: Library
) -> None:
    head = "| Article | Unit price | Minimum order | Stock |\n|---|---|---|---|\n"
    publish({"prices": [("Prices", f"{head}| NT-3001 | 84.50 | 1 | 5 |")]})
    found = answer(library, QueryRequest("What is the weight of article NT-3001?"))
    assert found.warnings == ("what was found does not speak of “weight”",)
    assert found.state == "closest" and "84.50" in found.answer_markdown
    assert not answer(library, QueryRequest("What is the stock of article NT-3001?")).warnings


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_a_failing_dense_leg_falls_back_to_sparse(
    publish: Any, vary: Any, library: Library, store: Store, mode: str
) -> None:
    publish({"guide": GUIDE}, strategy=vary("deaf", hashing=f"{HERE}:FailingForQuestions"))
    result = answer(library, QueryRequest("What is the maximum upload size?", mode=mode))
    assert result.hits[0].chunk_id == "guide-0"
    assert {hit.source for hit in result.hits} == {"sparse"}
    assert result.effective_mode == "sparse"
    assert (result.flags["dense_failed"], result.flags["retrieval_mode_effective"]) == (
        True,
        "sparse",
    )
    assert any("model server is down" in warning for warning in result.warnings)
    trace = trace_reader.show(store.logs_dir, result.trace_id)
    failed = next(item for item in trace["spans"] if item["name"] == "stage.retrieve_dense")
    assert failed["error"]["code"] == "unreachable"
    assert trace["attrs"]["flags"]["dense_failed"] is True
    assert "query.fallback" in {item["kind"] for item in trace["events"]}


def test_a_failing_sparse_leg_falls_back_to_dense(
    publish: Any, vary: Any, library: Library
) -> None:
    publish(
        {"guide": GUIDE},
        strategy=vary("wordless", f"lexical: {{provider: '{HERE}:UnreadableWords'}}\n"),
    )
    for mode in ("sparse", "hybrid"):
        result = answer(library, QueryRequest("maximum upload size", mode=mode))
        assert (result.effective_mode, result.flags["sparse_failed"]) == ("dense", True)
        assert result.hits


def test_a_dense_only_release_whose_embedder_fails_is_empty_with_an_error(
    publish: Any, vary: Any, library: Library
) -> None:
    publish(
        {"guide": GUIDE},
        strategy=vary("lonely", hashing=f"{HERE}:FailingForQuestions", hybrid="dense_only"),
    )
    result = answer(library, QueryRequest("upload size"))
    assert (result.hits, result.effective_mode, result.confidence) == ((), "none", 0.0)
    assert result.flags["error"]["code"] == "provider_error"
    assert "could not be searched" in result.answer_markdown


def test_both_legs_failing_is_empty_with_both_reasons(
    publish: Any, vary: Any, library: Library
) -> None:
    lines = f"lexical: {{provider: '{HERE}:UnreadableWords'}}\n"
    publish({"guide": GUIDE}, strategy=vary("silent", lines, hashing=f"{HERE}:FailingForQuestions"))
    result = answer(library, QueryRequest("upload size"))
    assert (result.hits, result.flags["dense_failed"], result.flags["sparse_failed"]) == (
        (),
        True,
        True,
    )
    assert result.flags["error"]["causes"] == ["unreachable", "OSError"]


def test_an_encoding_without_vectors_answers_sparse_without_being_a_failure(
    publish: Any, vary: Any, library: Library
) -> None:
    publish({"guide": [("A", "upload size")]}, strategy=vary("words", hybrid="sparse_only"))
    result = answer(library, QueryRequest("upload size"))
    assert result.effective_mode == "sparse"
    assert "dense_failed" not in result.flags
    assert result.warnings == ()
    assert answer(library, QueryRequest("upload size", mode="hybrid")).warnings == (
        "release r1 holds no dense index; asked the sparse retriever alone",
    )
    asked = answer(library, QueryRequest("upload size", mode="dense"))
    assert (asked.effective_mode, asked.flags["dense_failed"]) == ("sparse", True)


@pytest.mark.parametrize(
    ("reranker", "says"),
    [("SlowReranker", "longer than 0.2 s"), ("Forgetful", "gave 4 scores for 5 hits")],
)
def test_a_failing_reranker_leaves_the_order_of_the_fusion(
    guide: Any, vary: Any, library: Library, reranker: str, says: str
) -> None:
    plain = answer(library, QueryRequest("maximum upload size"))
    name = vary(
        "ranked",
        f"reranker: {{provider: '{HERE}:{reranker}'}}\nretrieval: {{stage_seconds: 0.2}}\n",
    )
    result = answer(library, QueryRequest("maximum upload size", strategy=name))
    assert [hit.chunk_id for hit in result.hits] == [hit.chunk_id for hit in plain.hits]
    assert (result.flags["rerank_failed"], result.flags["effective_rank_source"]) == (
        True,
        "fusion",
    )
    assert any(says in warning for warning in result.warnings)


def test_a_reranker_decides_the_order(guide: Any, vary: Any, library: Library) -> None:
    plain = answer(library, QueryRequest("maximum upload size"))
    result = answer(
        library,
        QueryRequest(
            "maximum upload size",
            strategy=vary("turned", f"reranker: {{provider: '{HERE}:Reversing'}}\n"),
        ),
    )
    assert [hit.chunk_id for hit in result.hits] == [hit.chunk_id for hit in reversed(plain.hits)]
    assert result.flags["rerank_applied"] is True


def test_a_failing_answerer_is_replaced_by_quotes(guide: Any, vary: Any, library: Library) -> None:
    name = vary("mute", f"answerer: {{provider: '{HERE}:BrokenAnswerer'}}\n")
    result = answer(library, QueryRequest("maximum upload size", strategy=name))
    assert (result.flags["generation_failed"], result.flags["fallback_mode"]) == (
        True,
        "structured_response",
    )
    assert "The maximum upload size is 50 MB." in result.answer_markdown
    assert result.citations[0].chunk_id == "guide-0"
    assert any("quota exceeded" in warning for warning in result.warnings)


# --- the library --------------------------------------------------------------------------------


def test_a_new_release_is_seen_by_the_next_query(publish: Any, library: Library) -> None:
    publish({"a": [("S", "pump oil")]}, release_id="r1")
    with library.lease("default") as old:
        assert answer(library, QueryRequest("pump")).release_id == "r1"
        publish({"b": [("S", "pump water")]}, release_id="r2")
        second = answer(library, QueryRequest("pump"))
        assert (second.release_id, second.hits[0].doc_id) == ("r2", "b")
        assert old.retired
        assert old.release.catalog.rows(["a-0"])  # still open for the query in flight
    assert library.namespaces() == ["default"]


def test_hidden_documents_are_never_shown(guide: Any, settings: Settings, store: Store) -> None:
    hidden: set[str] = set()
    library = Library(settings, store, Hiding(hidden))
    assert answer(library, QueryRequest("maximum upload size")).hits[0].doc_id == "guide"
    hidden.add("guide")
    result = answer(library, QueryRequest("maximum upload size", filters={"lang": "en"}))
    assert {hit.doc_id for hit in result.hits} <= {"handbook"}
    assert result.matched_count == 2
    assert {hit.doc_id for hit in answer(library, QueryRequest("maximum upload size")).hits} == {
        "handbook"
    }
    hidden.clear()
    assert answer(library, QueryRequest("maximum upload size")).hits[0].doc_id == "guide"
    library.close()


def test_many_threads_ask_while_releases_change(
    publish: Any, library: Library, store: Store
) -> None:
    publish({"a": [("S", "pump oil")]}, release_id="r0")
    problems: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                result = answer(library, QueryRequest("pump"))
            except Exception as error:
                problems.append(repr(error))
                return
            if len(result.hits) != 1 or result.warnings:
                problems.append(f"{result}")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 6):
        publish({"a": [("S", f"pump oil {number}")]}, release_id=f"r{number}")
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert answer(library, QueryRequest("pump")).release_id == "r5"


def test_a_strategy_of_another_space_is_refused(guide: Any, library: Library, vary: Any) -> None:
    name = vary("other", hashing="usem3")
    with pytest.raises(InputError, match="hashing") as raised:
        answer(library, QueryRequest("x", strategy=name))
    assert raised.value.code == "embedder_mismatch"


def test_a_release_outlives_its_strategy_file(
    guide: Any, library: Library, config_folder: Path
) -> None:
    shutil.move(
        config_folder / "strategies" / "tiny.yaml", config_folder / "strategies" / "renamed.yaml"
    )
    assert answer(library, QueryRequest("maximum upload size")).hits[0].chunk_id == "guide-0"


@pytest.mark.parametrize(
    "filters", [{"page_start": {"$gt": 10**40}}, {"$and": [{"page_start": {"$lt": -(10**40)}}]}]
)
def test_a_number_beyond_all_bounds_is_the_callers_mistake(
    guide: Any, library: Library, filters: dict[str, Any]
) -> None:
    with pytest.raises(InputError) as raised:
        answer(library, QueryRequest("x", filters=filters))
    assert raised.value.code == "invalid_filter"


def test_a_filter_without_a_floor_is_refused_and_traced(
    guide: Any, library: Library, store: Store
) -> None:
    deep: dict[str, Any] = {"lang": "en"}
    for _ in range(5000):
        deep = {"$and": [deep]}
    with pytest.raises(InputError, match="nested") as raised:
        answer(library, QueryRequest("x", filters=deep))
    assert (
        trace_reader.show(store.logs_dir, raised.value.details["trace_id"])["error"]["code"]
        == "invalid_filter"
    )


@pytest.mark.parametrize("namespace", ["9" * 500, "../default", "..", "", "Default", "a/b", "\x00"])
def test_what_cannot_be_a_namespace_is_unknown(
    guide: Any, library: Library, namespace: str
) -> None:
    with pytest.raises(NotFoundError, match="known: default") as raised:
        answer(library, QueryRequest("x", namespace=namespace))
    assert raised.value.code == "unknown_namespace"


@pytest.mark.parametrize("release_id", ["9" * 500, "../r1", "..", "../../default/r1"])
def test_what_cannot_be_a_release_is_unknown(guide: Any, library: Library, release_id: str) -> None:
    with pytest.raises(NotFoundError, match="rag releases list") as raised:
        answer(library, QueryRequest("x", release_id=release_id))
    assert raised.value.code == "unknown_release"
