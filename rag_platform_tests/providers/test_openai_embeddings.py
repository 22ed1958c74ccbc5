"""Embeddings over real HTTP: what is sent, what comes back in which order, what every failure is
called.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_platform.config.ingestion import EmbeddingConfig
from rag_platform.errors import ConfigError, ProviderError
from rag_platform.indexes import embedding
from rag_platform.indexes.embedding import embed_texts
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.observability import tracing
from rag_platform.providers.hashing import Hashing
from rag_platform.providers.openai_embeddings import OpenAIEmbeddings
from rag_platform.registry import make_provider
from rag_platform_tests.chat_server import refused
from rag_platform_tests.embeddings_server import embedded, embeddings_server


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sesame")


def options(url: str, **more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "dim": 256,
        "base_url": url,
        "api_key_env": "TEST_KEY",
        "backoff_ms": 1,
        **more,
    }


def model(url: str, **more: Any) -> OpenAIEmbeddings:
    made = make_provider("embedder", "openai", options(url, **more))
    assert isinstance(made, OpenAIEmbeddings)
    return made


def test_texts_go_in_batches_and_vectors_come_back_in_their_order() -> None:
    with embeddings_server() as server:
        rows = model(server.url, batch_size=2, passage_prefix="passage: ").embed(
            ["one", "two", "three"]
        )
        question = model(server.url, query_prefix="query: ", send_dim=True).embed(
            ["why"], query=True
        )
    assert [body["input"] for body in server.requests] == [
        ["passage: one", "passage: two"],
        ["passage: three"],
        ["query: why"],
    ]
    assert np.allclose(
        rows, Hashing().embed(["passage: one", "passage: two", "passage: three"]), atol=1e-6
    )
    assert np.allclose(question, Hashing().embed(["query: why"]), atol=1e-6)
    assert server.requests[0] | {"input": 0} == {
        "model": "m",
        "input": 0,
        "encoding_format": "float",
    }
    assert server.requests[2]["dimensions"] == 256
    assert (
        server.paths[0].endswith("/embeddings")
        and server.headers[0]["authorization"] == "Bearer sesame"
    )


def test_a_text_beyond_the_window_is_cut_before_it_is_sent() -> None:
    with embeddings_server() as server:
        made = model(server.url, max_tokens=30)
        made.embed(["x" * 1000, "年" * 1000, "short"])
        assert [len(text) for text in server.requests[0]["input"]] == [60, 20, 5]
        assert made.info().max_tokens == 30


def test_a_reply_of_another_width_names_both() -> None:
    said = r"16 numbers.*`dim` says 256.*dim: 16"
    with (
        embeddings_server(lambda body, number: embedded(body, 16)) as server,
        pytest.raises(ConfigError, match=said) as caught,
    ):
        model(server.url).embed(["a"])
    assert caught.value.code == "wrong_dimension"


@pytest.mark.parametrize(
    ("vectors", "code"),
    [
        ([[0.0] * 4, [1.0] * 4], "no_vector"),
        ([[1.0] * 4, [float("nan")] * 4], "no_vector"),
        ([[1.0] * 4], "broken_reply"),
        (["words", [1.0] * 4], "broken_reply"),
        (None, "broken_reply"),
    ],
)
def test_what_is_no_vector_is_refused(vectors: Any, code: str) -> None:
    data = (
        None
        if vectors is None
        else [
            {"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(vectors)
        ]
    )
    reply = {"object": "list", "model": "m", "data": data}
    with (
        embeddings_server(lambda body, number: (200, reply, {})) as server,
        pytest.raises(ProviderError) as caught,
    ):
        model(server.url, dim=4).embed(["a", "b"])
    assert (caught.value.code, caught.value.retryable) == (code, False)


def test_a_reply_that_is_no_json_is_broken() -> None:
    with (
        embeddings_server(lambda body, number: (200, "<html>", {})) as server,
        pytest.raises(ProviderError) as caught,
    ):
        model(server.url).embed(["a"])
    assert caught.value.code == "broken_reply"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_question_is_asked_again_where_that_may_help(status: int) -> None:
    def answer(body: dict[str, Any], number: int) -> Any:
        return embedded(body) if number == 2 else refused(status, "later", **{"Retry-After": "0"})

    with embeddings_server(answer) as server:
        assert model(server.url, retries=2).embed(["a"], query=True).shape == (1, 256)
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "code"), [(401, "unauthorized"), (403, "forbidden"), (404, "model_not_found")]
)
def test_what_is_no_fault_of_a_text_ends_everything(status: int, code: str) -> None:
    with (
        embeddings_server(lambda body, number: refused(status, "no")) as server,
        pytest.raises(ConfigError) as caught,
    ):
        model(server.url).embed(["a", "b"], query=True)
    assert caught.value.code == code and len(server.requests) == 1


def test_refusals_timeouts_and_dead_endpoints_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        embeddings_server(lambda body, number: refused(400, "bad input")) as server,
        pytest.raises(ProviderError) as caught,
    ):
        model(server.url).embed(["a"], query=True)
    assert (caught.value.code, caught.value.retryable, len(server.requests)) == (
        "bad_request",
        False,
        1,
    )
    with (
        embeddings_server(lambda body, number: (time.sleep(0.5), embedded(body))[1]) as server,
        pytest.raises(ProviderError) as caught,
    ):
        model(server.url, timeout_ms=50, retries=0).embed(["a"], query=True)
    assert (caught.value.code, caught.value.retryable) == ("timeout", True)
    with pytest.raises(ProviderError) as caught:
        model(server.url).embed(["a"])
    assert (caught.value.code, caught.value.retryable) == ("connection_failed", True)
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(
        ConfigError, match="embedder 'openai' needs a key in the environment variable TEST_KEY"
    ):
        model(server.url).embed(["a"])


def test_the_fingerprint_tells_what_decides_a_vector_and_not_where_it_is_made() -> None:
    assert model("http://a").info() == model("http://b").info()
    assert model("http://a").info().embedder_id == "openai:m"
    assert (
        len(
            {
                model("http://a", **more).info().version
                for more in ({}, {"dim": 8}, {"query_prefix": "q"}, {"max_tokens": 9})
            }
        )
        == 4
    )
    with pytest.raises(ConfigError, match="`dim`"):
        make_provider("embedder", "openai", {"model": "m"}).info()
    with pytest.raises(ConfigError, match="api_version"):
        make_provider("embedder", "openai", {"endpoint": "https://x", "dim": 8})


def test_an_azure_deployment_is_asked_by_its_path() -> None:
    with embeddings_server() as server:
        place = {
            "base_url": "",
            "model": "",
            "endpoint": server.url.removesuffix("/v1"),
            "deployment_name": "dep",
            "api_version": "2024-02-01",
        }
        model(server.url, **place).embed(["a"])
    assert server.paths == ["/openai/deployments/dep/embeddings?api-version=2024-02-01"]
    assert server.headers[0]["api-key"] == "sesame"


def test_passages_are_tried_again_counted_and_priced_by_who_embeds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the endpoint's own wait is shorter, and counts
    monkeypatch.setattr(embedding, "BACK_OFF_SECONDS", 5.0)

    def answer(body: dict[str, Any], number: int) -> Any:
        if number == 0:
            return refused(429, "slow down", **{"Retry-After": "0.01"})
        return refused(400, "too odd") if "odd" in body["input"] else embedded(body)

    with embeddings_server(answer) as server, EmbeddingCache(tmp_path / "cache.sqlite") as cache:
        config = EmbeddingConfig(provider="openai", options=options(server.url, price_input=2.0))
        report = embed_texts(
            {"h1": "fine", "h2": "odd", "h3": "more"},
            config,
            cache,
            text_norm_profile="p",
            processes=1,
        )
        assert cache.hits(["h1", "h2", "h3"], model(server.url).info(), "p") == {"h1", "h3"}
    figures = report.figures()
    # halved twice
    assert (
        figures["embed_calls"],
        figures["embed_failures"],
        figures["retries"],
        figures["rate_limited"],
        figures["batch_size"],
    ) == (6, 1, 1, 1, 3)
    assert (figures["error_type"], figures["estimated_tokens"], figures["estimated_cost"]) == (
        "bad_request 1",
        5,
        5 * 2.0 / 1e6,
    )
    assert list(report.failed) == ["h2"] and "too odd" in report.failed["h2"]


def calls_of(logs_dir: Path) -> list[dict[str, Any]]:
    """What was logged of the calls of models."""
    lines = [
        json.loads(line)
        for path in logs_dir.glob("20*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return [line["payload"] for line in lines if line.get("kind") == "model.call"]


@pytest.mark.parametrize(("batch_size", "requests"), [(64, [3]), (2, [2, 1])])
def test_a_request_holds_as_many_texts_as_it_may(
    tmp_path: Path, batch_size: int, requests: list[int]
) -> None:
    with embeddings_server() as server, EmbeddingCache(tmp_path / "cache.sqlite") as cache:
        config = EmbeddingConfig(
            provider="openai",
            options=options(server.url),
            batch_size=batch_size,
            price_per_million_tokens=2.0,
        )
        with tracing.trace("ingestion", logs_dir=tmp_path / "logs"):
            embed_texts(
                {"h1": "one", "h2": "two", "h3": "six"},
                config,
                cache,
                text_norm_profile="p",
                processes=1,
            )
        assert [len(request["input"]) for request in server.requests] == requests
    made = calls_of(tmp_path / "logs")
    assert [(call["mode"], call["texts"]) for call in made] == [
        ("offline", count) for count in requests
    ]
    assert all(call["cost"] == call["usage"]["input_tokens"] * 2.0 / 1e6 > 0 for call in made)


def test_a_question_is_a_call_that_somebody_waits_for(tmp_path: Path) -> None:
    with embeddings_server() as server, tracing.trace("query", logs_dir=tmp_path):
        model(server.url).embed(["a"], query=True)
    (call,) = calls_of(tmp_path)
    assert (call["mode"], call["cost"]) == ("online", None)
