"""The rerank endpoint of Cohere and Jina, spoken with over a real connection."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from rag_platform.errors import ConfigError, ProviderError
from rag_platform.protocols import Reranker
from rag_platform.registry import make_provider
from rag_platform_tests.chat_server import Reply, chat_server
from rag_platform_tests.providers.rerank_hits import hits_of, question


def reranker(url: str, **options: Any) -> Reranker:
    quick = {
        "url": f"{url}/rerank",
        "model": "m-1",
        "api_key_env": "",
        "backoff_ms": 1,
        "timeout_ms": 5000,
    }
    built: Reranker = make_provider("reranker", "http", {**quick, **options})
    return built


def results(*scores: Any, **more: Any) -> Reply:
    """A reply with the best document first, as such endpoints give it."""
    listed = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
    return 200, {"results": sorted(listed, key=lambda item: -item["relevance_score"]), **more}, {}


def test_scores_come_back_in_the_order_of_the_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RERANK_API_KEY", "secret")
    with chat_server(lambda body, number: results(0.1, 0.9, 0.5)) as server:
        scores = reranker(server.url, api_key_env="RERANK_API_KEY", max_chars=20).score(
            question(), hits_of("a", "b \ud800", "limits: c" * 9)
        )
    assert scores == [0.1, 0.9, 0.5]
    assert server.paths == ["/v1/rerank"]
    assert server.headers[0]["authorization"] == "Bearer secret"
    # a heading is not said twice
    documents = ["Guide > Limits\na", "Guide > Limits\nb ", "Guide\nlimits: climit"]
    assert server.requests == [
        {"model": "m-1", "query": "What is the upload limit?", "documents": documents, "top_n": 3}
    ]


def test_nothing_is_asked_about_nothing() -> None:
    assert reranker("http://127.0.0.1:9/v1").score(question(), []) == []


@pytest.mark.parametrize(
    ("status", "code"), [(429, "rate_limited"), (500, "server_error"), (503, "server_error")]
)
def test_what_may_pass_is_tried_again(status: int, code: str) -> None:
    with chat_server(
        lambda body, number: (status, {}, {}) if number == 0 else results(1.0)
    ) as server:
        assert reranker(server.url).score(question(), hits_of("a")) == [1.0]
        assert len(server.requests) == 2
    with chat_server(lambda body, number: (status, {"message": "no"}, {})) as server:
        with pytest.raises(ProviderError, match="after 3 attempts") as caught:
            reranker(server.url, retries=2).score(question(), hits_of("a"))
        assert (caught.value.code, caught.value.retryable, len(server.requests)) == (code, True, 3)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "bad_request"),
        (401, "unauthorized"),
        (404, "model_not_found"),
        (413, "too_large"),
        (422, "bad_request"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(status: int, code: str) -> None:
    with chat_server(lambda body, number: (status, {"message": "no"}, {})) as server:
        with pytest.raises(ProviderError) as caught:
            reranker(server.url, retries=5).score(question(), hits_of("a"))
        assert (caught.value.code, caught.value.retryable, len(server.requests)) == (code, False, 1)


def test_the_time_bounds_all_tries_together() -> None:
    over = threading.Event()

    def hanging(body: dict[str, Any], number: int) -> Reply:
        over.wait(60)
        return results(1.0)

    with chat_server(hanging) as server, pytest.raises(ProviderError) as caught:
        reranker(server.url, timeout_ms=60, retries=9).score(question(), hits_of("a"))
    over.set()
    assert (caught.value.code, caught.value.retryable, len(server.requests)) == ("timeout", True, 1)


def test_no_wait_longer_than_the_time_that_is_left() -> None:
    with chat_server(lambda body, number: (429, {}, {"retry-after": "60"})) as server:
        with pytest.raises(ProviderError) as caught:
            reranker(server.url, retries=3).score(question(), hits_of("a"))
        assert (caught.value.code, len(server.requests)) == ("rate_limited", 1)


def test_nobody_there() -> None:
    with pytest.raises(ProviderError) as caught:
        reranker("http://127.0.0.1:9/v1").score(question(), hits_of("a"))
    assert (caught.value.code, caught.value.retryable) == ("connection_failed", True)


ONE = {"index": 0, "relevance_score": 1.0}
BAD_REPLIES: list[Any] = [
    "no json at all",
    [],
    {},
    {"results": {"0": 1.0}},
    {"results": [ONE]},
    {"results": [ONE, ONE]},
    {"results": [ONE, {"index": 2, "relevance_score": 1.0}]},
    {"results": [ONE, {"index": True, "relevance_score": 1.0}]},
    {"results": [ONE, {"index": 1, "relevance_score": "high"}]},
    {"results": [ONE, {"index": 1, "relevance_score": math.nan}]},
    {"results": [ONE, {"index": 1}]},
    {"results": [ONE, 7]},
]


@pytest.mark.parametrize("reply", BAD_REPLIES, ids=str)
def test_a_reply_that_does_not_score_every_document_once_is_refused(reply: Any) -> None:
    with chat_server(lambda body, number: (200, reply, {})) as server:
        with pytest.raises(ProviderError) as caught:
            reranker(server.url).score(question(), hits_of("a", "b"))
        assert (caught.value.code, len(server.requests)) == ("bad_output", 1)


def test_a_missing_key_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ProviderError, match="NO_SUCH_KEY") as caught:
        reranker("http://127.0.0.1:9/v1", api_key_env="NO_SUCH_KEY").score(question(), hits_of("a"))
    assert caught.value.code == "missing_key"


@pytest.mark.parametrize(
    "options", [{}, {"url": "localhost:80"}, {"url": "http://x", "timeout_ms": 0}]
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        make_provider("reranker", "http", options)
