"""What both protocols of language models share: thoughts are left out, and every call leaves a
record, also one that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rag_platform.config import prompts
from rag_platform.errors import ProviderError
from rag_platform.observability import trace_reader, tracing
from rag_platform.protocols import LLM, Message
from rag_platform.registry import make_provider
from rag_platform_tests.chat_server import (
    Reply,
    chat_server,
    message,
    message_streamed,
    refused,
    said,
    streamed,
)
from rag_platform_tests.conftest import needs
from rag_platform_tests.embeddings_server import embedded, embeddings_server
from rag_platform_tests.providers.rerank_hits import hits_of, question

ASK = (
    Message("system", "Be short.", prompt="test.short-1"),
    Message("user", "What is it?", prompt="test.short-1"),
)
Protocol = tuple[str, Callable[[str], Reply], Callable[[list[str]], Reply]]
PROTOCOLS: list[Any] = [
    pytest.param(("openai", said, streamed), id="openai"),
    pytest.param(
        ("anthropic", message, message_streamed),
        id="anthropic",
        marks=needs("anthropic", "anthropic"),
    ),
]


def model(protocol: Protocol, url: str, **options: Any) -> LLM:
    base = url if protocol[0] == "openai" else url.removesuffix("/v1")
    priced = {"price_input": 2.0, "price_output": 10.0}
    made: LLM = make_provider(
        "llm",
        protocol[0],
        {
            "model": "wise",
            "base_url": base,
            "api_key_env": "",
            "backoff_ms": 1,
            **priced,
            **options,
        },
    )
    return made


def calls_of(logs: Path, trace_id: str) -> list[dict[str, Any]]:
    return [
        event["payload"]
        for event in trace_reader.show(logs, trace_id)["events"]
        if event["kind"] == "model.call"
    ]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_thoughts_are_no_part_of_the_text(protocol: Protocol) -> None:
    with chat_server(
        lambda body, number: protocol[1]("<think>It shines.</think>\n\nA lamp.")
    ) as server:
        assert model(protocol, server.url).generate(ASK).text == "A lamp."
    with chat_server(
        lambda body, number: protocol[1]('<think>JSON.</think>\n```json\n{"a": 1}\n```')
    ) as server:
        found = model(protocol, server.url).generate(ASK, json_schema={"type": "object"}).text
    assert found.strip("`json\n ") == '{"a": 1}' and found[0] in "`{"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nobody_hears_the_thoughts_of_a_stream(protocol: Protocol) -> None:
    parts: list[str] = []
    with chat_server(
        lambda body, number: protocol[2](
            ["<thi", "nk>It ", "shines.</th", "ink>\n\n", "A ", "lamp."]
        )
    ) as server:
        found = model(protocol, server.url).generate(ASK, on_text=parts.append)
    assert (parts, found.text) == (["A ", "lamp."], "A lamp.")
    assert found.usage == {"input_tokens": 10, "output_tokens": 5}  # thoughts are paid for


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("stream", [False, True])
def test_nothing_but_thoughts_is_no_answer_and_says_what_to_do(
    protocol: Protocol, stream: bool
) -> None:
    parts: list[str] = []
    thought = "<think>First I look at"
    with (
        chat_server(
            lambda body, number: protocol[2]([thought]) if stream else protocol[1](thought)
        ) as server,
        pytest.raises(
            ProviderError, match="nothing but thoughts; give it more `max_tokens`"
        ) as caught,
    ):
        model(protocol, server.url).generate(ASK, on_text=parts.append if stream else None)
    assert (caught.value.code, parts) == ("empty_reply", [])
    assert (caught.value.details["usage"], caught.value.details["cost"]) == (
        {"input_tokens": 10, "output_tokens": 5},
        70 / 1e6,
    )


def test_a_stream_that_breaks_while_it_thinks_is_asked_for_again() -> None:
    overloaded = 'data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n'
    parts: list[str] = []
    with chat_server(
        lambda body, number: (
            streamed(["A lamp."]) if number else streamed(["<think>It"], broken=overloaded)
        )
    ) as server:
        found = model(("openai", said, streamed), server.url).generate(ASK, on_text=parts.append)
    assert (found.text, found.retries, parts) == ("A lamp.", 1, ["A lamp."])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_call_is_recorded_with_its_prompt(protocol: Protocol, tmp_path: Path) -> None:
    with (
        chat_server(lambda body, number: protocol[1]("A lamp.")) as server,
        tracing.trace("query", logs_dir=tmp_path) as trace,
    ):
        found = model(protocol, server.url).generate(ASK, mode="offline")
    (call,) = calls_of(tmp_path, trace.trace_id)
    assert call.pop("duration_ms") >= 0
    assert call == {
        "provider": protocol[0],
        "model": "wise",
        "model_version": found.model_version,
        "prompt_profile_id": "test.short-1",
        "mode": "offline",
        "usage": {"input_tokens": 10, "output_tokens": 5},
        "cost": 70 / 1e6,
        "retries": 0,
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("status", "code", "retries"),
    [(401, "unauthorized", 0), (500, "server_error", 1)],
    ids=["for good", "after another try"],
)
def test_a_call_that_fails_is_recorded_with_its_error(
    protocol: Protocol, status: int, code: str, retries: int, tmp_path: Path
) -> None:
    with (
        chat_server(lambda body, number: refused(status, "no")) as server,
        tracing.trace("query", logs_dir=tmp_path) as trace,
        pytest.raises(ProviderError),
    ):
        model(protocol, server.url).generate(ASK)
    (call,) = calls_of(tmp_path, trace.trace_id)
    assert (call["error"]["code"], call["retries"], call["prompt_profile_id"], call["usage"]) == (
        code,
        retries,
        "test.short-1",
        {},
    )


@pytest.mark.parametrize(
    ("reply", "code", "usage"),
    [
        (said(""), "empty_reply", {"input_tokens": 10, "output_tokens": 5}),
        (
            said("no", finish_reason="content_filter"),
            "content_filtered",
            {"input_tokens": 10, "output_tokens": 5},
        ),
        ((200, "garbage", {}), "broken_reply", {}),
        # of 9 and 11 characters with a line end, and of 8, a quarter each
        (
            streamed(["A lamp i"], finish=None),
            "connection_failed",
            {"input_tokens": 8, "output_tokens": 3, "estimated": True},
        ),
    ],
)
def test_what_a_failed_call_took_is_recorded_as_far_as_it_is_known(
    reply: Reply, code: str, usage: dict[str, Any], tmp_path: Path
) -> None:
    on_text = (
        (lambda part: None) if isinstance(reply[1], str) and reply[1].startswith("data") else None
    )
    with (
        chat_server(lambda body, number: reply) as server,
        tracing.trace("query", logs_dir=tmp_path) as trace,
        pytest.raises(ProviderError) as caught,
    ):
        model(("openai", said, streamed), server.url).generate(ASK, on_text=on_text)
    (call,) = calls_of(tmp_path, trace.trace_id)
    assert (call["error"]["code"], call["usage"], caught.value.details["usage"]) == (
        code,
        usage,
        usage,
    )


def test_failed_calls_of_embedders_and_rerankers_are_recorded_too(tmp_path: Path) -> None:
    def answer(body: dict[str, Any], number: int) -> Reply:
        return refused(500, "no") if number else embedded(body)

    with embeddings_server(answer) as server, tracing.trace("query", logs_dir=tmp_path) as trace:
        embedder = make_provider(
            "embedder",
            "openai",
            {"model": "m", "dim": 256, "base_url": server.url, "api_key_env": "", "retries": 0},
        )
        embedder.embed(["a"])
        with pytest.raises(ProviderError):
            embedder.embed(["b", "c"])
    assert [
        (call["texts"], call.get("error", {}).get("code"))
        for call in calls_of(tmp_path, trace.trace_id)
    ] == [
        (1, None),
        (2, "server_error"),
    ]
    with (
        chat_server(lambda body, number: refused(429, "slow down")) as server,
        tracing.trace("query", logs_dir=tmp_path) as trace,
        pytest.raises(ProviderError),
    ):
        make_provider(
            "reranker", "http", {"url": f"{server.url}/rerank", "api_key_env": "", "retries": 0}
        ).score(question(), hits_of("a"))
    (call,) = calls_of(tmp_path, trace.trace_id)
    assert (call["provider"], call["error"]["code"]) == ("http", "rate_limited")


def test_the_messages_of_a_prompt_name_it() -> None:
    prompt = prompts.load("retrieval/answer", ("query", "context"))
    system, user = prompt.messages(query="Why?", context="[1] Because.")
    assert (system.role, system.text, user.role, user.pictures) == (
        "system",
        prompt.system,
        "user",
        (),
    )
    assert user.text == prompt.user(query="Why?", context="[1] Because.")
    assert {system.prompt, user.prompt} == {prompt.profile_id}
