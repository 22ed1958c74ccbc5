"""A bug planted in each stage of a question in turn: the answer falls back, the flag names the
stage, the log has the stack trace.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.api.status import status
from rag_platform.cli.doctor import examine
from rag_platform.config.settings import Settings
from rag_platform.errors import ProviderError
from rag_platform.ir import QueryRequest
from rag_platform.observability import trace_reader
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform_tests.chat_server import chat_server, said

GUIDE = [
    ("Limits", "The maximum upload size is 50 MB."),
    ("Errors", "Error PPR-9087 means that the licence server cannot be reached."),
]
QUESTION = "What is the maximum upload size?"

REWRITING = (
    "query: {rewrite: {enabled: true}}\n"
    "llm: {provider: openai, options: {model: m, base_url:"
    " 'http://127.0.0.1:9/', api_key_env: ''}}\n"
)
SOFT = {"filters": {"image_caption": {"$contains": "upload", "$soft": True}}}
FOREIGN = {"text": "upload 文件的 maximum size 限制是多少？"}
# stage, where the bug is planted, what the strategy says for it, what is asked
STAGES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("rewrite", "rag_platform.query.rewriting:rewrite", REWRITING, {}),
    ("plan", "rag_platform.retrieval.retrievers:choose_approximate", "", {}),
    ("dense", "rag_platform.indexes.dense:DenseVectors.search", "", {}),
    ("sparse", "rag_platform.providers.tantivy:TantivyReader.search", "", {}),
    ("trust", "rag_platform.providers.tantivy:TantivyReader.full_match_score", "", {}),
    ("naming", "rag_platform.retrieval.document_mentions:DocumentNames.find_mentions", "", {}),
    ("spelling", "rag_platform.retrieval.spelling:find_corrections", "", {}),
    ("translation", "rag_platform.query.translation:translate", "", FOREIGN),
    ("translation", "rag_platform.retrieval.retrievers:score_translated", "", FOREIGN),
    ("fusion", "rag_platform.retrieval.fusion:MinMax.fuse", "", {}),
    (
        "feedback",
        "rag_platform.retrieval.retrievers:search_with_feedback",
        "retrieval: {feedback_hits: 2}\n",
        {},
    ),
    (
        "filter",
        "rag_platform.query.filters:select_dropped",
        "",
        {"filters": {"image_caption": {"$contains": "upload"}}},
    ),
    (
        "rerank",
        "rag_platform.retrieval.lexical_reranker:Features.score",
        "reranker: {provider: features}\n",
        {},
    ),
    ("context", "rag_platform.answering.context_builder:select", "", {}),
    ("generation", "rag_platform.answering.extractive:Extractive.answer", "", {}),
    ("query_norm", "rag_platform.query.analysis:find_identifiers", "", {}),
    ("trust", "rag_platform.retrieval.retrievers:is_foreign", "", {}),
    ("filter", "rag_platform.query.filters:plan", "", {}),
    ("filter", "rag_platform.query.filters:select_favoured", "", SOFT),
    ("filter", "rag_platform.retrieval.reranking:boost", "", SOFT),
    (
        "rerank",
        "rag_platform.retrieval.provider_cache:Models.reranker",
        "reranker: {provider: features}\n",
        {},
    ),
    (
        "rerank",
        "rag_platform.retrieval.ranking:confidence",
        "reranker: {provider: features, only_below_confidence: 0.5}\n",
        {},
    ),
    ("dedupe", "rag_platform.retrieval.ranking:select_shown", "", {}),
    ("hydration", "rag_platform.retrieval.ranking:with_picture_texts", "", {}),
    ("context", "rag_platform.answering.context_builder:_order", "", {}),
    ("generation", "rag_platform.answering.citations:check_answer", "", {}),
    ("generation", "rag_platform.answering.states:decide", "", {}),
    ("signals", "rag_platform.answering.states:read_signals", "", {}),
    ("signals", "rag_platform.retrieval.namespace_search:measure_signals", "", {}),
    ("generation", "rag_platform.retrieval.provider_cache:Models.answerer", "", {}),
]


def plant(patch: pytest.MonkeyPatch, place: str) -> None:
    """Let that function raise AttributeError, as a bug of ours or of a library would."""
    module, _, name = place.partition(":")
    owner: Any = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    getattr(owner, last)  # what is planted must be there

    def broken(*_: Any, **__: Any) -> Any:
        raise AttributeError(f"planted in {last}")

    patch.setattr(owner, last, broken)


def logged(store: Store) -> list[dict[str, Any]]:
    """The program's log."""
    lines = [
        json.loads(line)
        for path in store.logs_dir.glob("20*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return [line for line in lines if line["line"] == "log"]


@pytest.mark.parametrize(
    ("stage", "place", "lines", "asked"),
    STAGES,
    ids=[f"{stage}-{place.split(':')[1]}" for stage, place, *_ in STAGES],
)
def test_a_bug_in_a_stage_is_seen_and_the_question_answered(
    stage: str,
    place: str,
    lines: str,
    asked: dict[str, Any],
    publish: Any,
    vary: Any,
    library: Library,
    store: Store,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish({"guide": GUIDE})
    plant(monkeypatch, place)
    result = answer(
        library, QueryRequest(**{"text": QUESTION, "strategy": vary("varied", lines), **asked})
    )
    assert {name for name in result.flags if name.endswith("_failed")} == {f"{stage}_failed"}
    assert result.hits[0].chunk_id == "guide-0" and "50 MB" in result.answer_markdown
    assert any(
        "internal error: AttributeError: planted" in warning for warning in result.warnings
    ), result.warnings
    (line,) = logged(store)
    assert line["level"] == "ERROR" and line["trace_id"] == result.trace_id
    assert (
        "Traceback (most recent call last)" in line["exception"]
        and "in broken" in line["exception"]
    )
    assert "in broken" in trace_reader.show(store.logs_dir, result.trace_id)["logs"][0]["exception"]
    data = status(library)
    assert (
        data["unexpected_errors"]["count"] == 1
        and data["unexpected_errors"]["latest"]["trace_id"] == result.trace_id
    )
    assert "1 unexpected error since" in data["markdown"] and result.trace_id in data["markdown"]
    (finding,) = [found for found in examine(settings) if found.subject == "errors"]
    assert finding.level == "warning" and "the latest AttributeError in " in finding.message


@pytest.mark.parametrize(
    ("stage", "place"),
    [
        ("naming", "rag_platform.retrieval.document_mentions:without_names"),
        ("naming", "rag_platform.retrieval.retrievers:search_within"),
        ("fusion", "rag_platform.retrieval.document_mentions:prefer_mentioned"),
    ],
)
def test_a_bug_in_the_search_of_named_documents_is_seen_and_the_question_answered(
    stage: str,
    place: str,
    publish: Any,
    vary: Any,
    library: Library,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tax = ("Tax", "The effective tax rate of the company rose by one point.")
    reports = {
        name: [(str(n), f"{name} sold {n} planes.") for n in range(4)] + [tax]
        for name in ("acme", "zenith")
    }
    publish(reports, strategy=vary("naming", "retrieval: {named_documents: 1.0}\n"))
    plant(monkeypatch, place)
    result = answer(library, QueryRequest("the effective tax rate of acme"))
    assert {name for name in result.flags if name.endswith("_failed")} == {f"{stage}_failed"}
    assert "rose by one point" in result.answer_markdown
    assert "in broken" in logged(store)[0]["exception"]


@pytest.mark.parametrize("name", ["query.analysis:reword", "retrieval.fusion:join_phrasings"])
def test_a_bug_in_the_further_questions_leaves_the_first(
    name: str,
    publish: Any,
    vary: Any,
    library: Library,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish({"guide": GUIDE})
    plant(monkeypatch, f"rag_platform.{name}")
    reply = {
        "question": QUESTION,
        "keywords": [],
        "intent": "search",
        "filters": [],
        "queries": ["largest file that is taken"],
    }
    with chat_server(lambda body, number: said(json.dumps(reply))) as server:
        llm = (
            f"{{provider: openai, options: {{model: m, base_url: '{server.url}', api_key_env:"
            " ''}}"
        )
        lines = (
            f"query: {{rewrite: {{enabled: true, queries: 2, timeout_ms: 20000}}}}\nllm: {llm}\n"
        )
        result = answer(library, QueryRequest(QUESTION, strategy=vary("varied", lines)))
    assert {name for name in result.flags if name.endswith("_failed")} == {"rewrite_failed"}
    assert result.hits[0].chunk_id == "guide-0" and "50 MB" in result.answer_markdown
    assert "in broken" in logged(store)[0]["exception"]


def test_without_the_texts_of_what_was_found_the_answer_says_why(
    publish: Any, library: Library, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish({"guide": GUIDE})
    plant(monkeypatch, "rag_platform.indexes.catalog:CatalogReader.hit_rows")
    result = answer(library, QueryRequest(QUESTION))
    assert (result.hits, result.answered, result.flags["hydration_failed"]) == ((), False, True)
    assert "internal error: AttributeError: planted in hit_rows" in result.answer_markdown
    assert result.flags["error"]["causes"] == ["AttributeError"]
    assert "in broken" in logged(store)[0]["exception"]


def test_namespaces_take_turns_where_their_hits_cannot_be_weighed(
    publish: Any, library: Library, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish({"guide": GUIDE}, namespace="one")
    publish({"notes": [("Upload", "Uploads are kept for 30 days.")]}, namespace="two")
    plant(monkeypatch, "rag_platform.retrieval.fusion:merge_namespaces")
    result = answer(library, QueryRequest(QUESTION, namespaces=("one", "two")))
    assert result.flags["merge_failed"] is True
    assert [hit.namespace for hit in result.hits[:2]] == ["one", "two"] and [
        hit.rank for hit in result.hits
    ] == [1, 2, 3]
    assert "in broken" in logged(store)[0]["exception"]


def test_a_bug_in_a_hard_filter_still_searches_nothing(
    publish: Any, library: Library, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish({"guide": GUIDE})
    plant(monkeypatch, "rag_platform.indexes.catalog:CatalogReader.select_ids")
    with pytest.raises(ProviderError, match="nothing was searched"):
        answer(library, QueryRequest(QUESTION, filters={"doc_id": "guide"}))
    assert "in broken" in logged(store)[0]["exception"]


def test_a_bug_before_every_stage_ends_the_question_and_is_seen(
    publish: Any, library: Library, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish({"guide": GUIDE})
    plant(monkeypatch, "rag_platform.answering.engine:_format_response")
    with pytest.raises(AttributeError):
        answer(library, QueryRequest(QUESTION))
    assert status(library)["unexpected_errors"]["count"] == 1
    assert "in broken" in logged(store)[0]["exception"]


def test_what_was_foreseen_is_not_counted(
    publish: Any, vary: Any, library: Library, store: Store
) -> None:
    publish({"guide": GUIDE})
    result = answer(
        library,
        QueryRequest(QUESTION, strategy=vary("rewriting", "query: {rewrite: {enabled: true}}\n")),
    )
    assert result.flags["rewrite_failed"] is True
    assert logged(store) == [] and "unexpected_errors" not in status(library)
