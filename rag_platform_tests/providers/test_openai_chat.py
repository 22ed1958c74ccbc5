"""Chat completions over real HTTP: what is sent, what is tried again, what every failure is
called.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

import pytest

from rag_platform.errors import ConfigError, ProviderError
from rag_platform.protocols import Message, Picture
from rag_platform.providers.openai_chat import OpenAIChat
from rag_platform.registry import make_provider
from rag_platform_tests.chat_server import Reply, chat_server, refused, said, streamed

ASK = (Message("system", "Be short."), Message("user", "What is it?"))
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sesame")


def model(url: str, **options: object) -> OpenAIChat:
    made = make_provider(
        "llm",
        "openai",
        {"model": "seeing", "base_url": url, "api_key_env": "TEST_KEY", "backoff_ms": 1, **options},
    )
    assert isinstance(made, OpenAIChat)
    return made


def test_a_completion_carries_text_version_usage_and_cost() -> None:
    with chat_server(lambda body, number: said("A lamp.")) as server:
        found = model(server.url, price_input=2.0, price_output=10.0).generate(ASK, max_tokens=7)
    assert (found.text, found.provider, found.model, found.model_version) == (
        "A lamp.",
        "openai",
        "seeing",
        "seeing-1.5",
    )
    assert found.usage == {"input_tokens": 10, "output_tokens": 5}
    assert found.cost == pytest.approx((10 * 2 + 5 * 10) / 1e6)
    assert (found.retries, found.mode) == (0, "online")
    assert server.requests[0] == {
        "model": "seeing",
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "What is it?"},
        ],
        "temperature": 0.0,
        "max_tokens": 7,
    }
    assert server.headers[0]["authorization"] == "Bearer sesame"


def test_pictures_travel_as_data_urls_behind_the_text() -> None:
    with chat_server(lambda body, number: said("ok")) as server:
        model(server.url).generate([Message("user", "Look.", (Picture(b"\x00\x01", "image/png"),))])
    assert server.requests[0]["messages"][0]["content"] == [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAE="}},
    ]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_tried_again(status: int) -> None:
    with chat_server(
        lambda body, number: (
            refused(status, "later", **{"Retry-After": "0"}) if number < 2 else said("done")
        )
    ) as server:
        found = model(server.url).generate(ASK, mode="offline")
    assert (found.text, found.retries, len(server.requests)) == ("done", 2, 3)


def test_online_waits_for_one_more_try_only() -> None:
    with chat_server(lambda body, number: refused(500, "broken")) as server:
        with pytest.raises(ProviderError) as caught:
            model(server.url).generate(ASK)
        assert len(server.requests) == 2
    assert (caught.value.code, caught.value.retryable, caught.value.details["retries"]) == (
        "server_error",
        True,
        1,
    )


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "bad_request"),
        (401, "unauthorized"),
        (403, "forbidden"),
        (404, "model_not_found"),
        (413, "too_large"),
    ],
)
def test_what_cannot_pass_is_not_tried_again(status: int, code: str) -> None:
    with chat_server(lambda body, number: refused(status, "no")) as server:
        with pytest.raises(ProviderError) as caught:
            model(server.url).generate(ASK, mode="offline")
        assert len(server.requests) == 1
    assert (caught.value.code, caught.value.retryable) == (code, False)


def test_a_rate_limit_that_stays_is_named() -> None:
    with (
        chat_server(lambda body, number: refused(429, "slow down")) as server,
        pytest.raises(ProviderError) as caught,
    ):
        model(server.url, retries=3).generate(ASK, mode="offline")
    assert (caught.value.code, caught.value.retryable, len(server.requests)) == (
        "rate_limited",
        True,
        4,
    )
    assert "after 4 attempts" in caught.value.message


def test_a_slow_endpoint_times_out() -> None:
    def slow(body: object, number: int) -> tuple[int, object, dict[str, str]]:
        time.sleep(0.5)
        return said("late")

    with chat_server(slow) as server, pytest.raises(ProviderError) as caught:
        model(server.url, timeout_ms=100, retries=0).generate(ASK)
    assert (caught.value.code, caught.value.retryable) == ("timeout", True)


def test_nobody_there() -> None:
    with pytest.raises(ProviderError) as caught:
        model("http://127.0.0.1:9/v1", retries=1).generate(ASK)
    assert (caught.value.code, caught.value.retryable) == ("connection_failed", True)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ((200, "{ not json", {}), "broken_reply"),
        ((200, {"id": "1", "choices": []}, {}), "broken_reply"),
        ((200, {"hello": "world"}, {}), "broken_reply"),
        (said(""), "empty_reply"),
        (said("x", finish_reason="content_filter"), "content_filtered"),
    ],
)
def test_broken_replies_have_names(reply: tuple[int, object, dict[str, str]], code: str) -> None:
    with chat_server(lambda body, number: reply) as server, pytest.raises(ProviderError) as caught:
        model(server.url).generate(ASK, mode="offline")
    assert (caught.value.code, caught.value.retryable) == (code, False)


@pytest.mark.parametrize("status", [400, 500])  # llama-cpp-python's server answers 500
def test_an_endpoint_that_refuses_schemas_is_asked_in_another_way_and_remembered(
    status: int,
) -> None:
    def answer(body: dict[str, object], number: int) -> tuple[int, object, dict[str, str]]:
        wanted = body.get("response_format")
        return (
            refused(status, f"response_format {wanted} is not supported")
            if wanted
            else said('{"a": "b"}')
        )

    with chat_server(answer) as server:
        asked = model(server.url)
        assert asked.generate(ASK, json_schema=SCHEMA).text == '{"a": "b"}'
        asked.generate(ASK, json_schema=SCHEMA)
    kinds = [body.get("response_format", {}).get("type") for body in server.requests]
    assert kinds == ["json_schema", "json_object", None, None]
    assert server.requests[0]["response_format"]["json_schema"]["schema"] == SCHEMA


def test_models_that_know_other_parameters_get_them() -> None:
    def answer(body: dict[str, object], number: int) -> tuple[int, object, dict[str, str]]:
        if "max_tokens" in body:
            return refused(
                400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            )
        if "temperature" in body:
            return refused(400, "Unsupported value: 'temperature' does not support 0.")
        return said("ok")

    with chat_server(answer) as server:
        model(server.url, max_tokens=9).generate(ASK)
    assert {key: value for key, value in server.requests[-1].items() if key != "messages"} == {
        "model": "seeing",
        "max_completion_tokens": 9,
    }


def test_azure_is_asked_by_deployment_and_version() -> None:
    with chat_server(lambda body, number: said("ok")) as server:
        azure = OpenAIChat(
            endpoint=server.url.removesuffix("/v1"),
            deployment_name="eyes",
            api_version="2024-10-21",
            api_key_env="TEST_KEY",
        )
        assert azure.generate(ASK).model == "eyes"
    assert server.paths == ["/openai/deployments/eyes/chat/completions?api-version=2024-10-21"]
    assert server.headers[0]["api-key"] == "sesame"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(ProviderError, match="TEST_KEY") as caught:
        model("http://127.0.0.1:9/v1").generate(ASK)
    assert caught.value.code == "missing_key"
    with pytest.raises(ProviderError, match="has no model"):
        OpenAIChat().generate(ASK)
    with pytest.raises(ConfigError, match="deployment_name and api_version"):
        OpenAIChat(endpoint="https://x.openai.azure.com")
    with pytest.raises(ConfigError, match="json_format is 'xml': input should be 'schema'"):
        make_provider("llm", "openai", {"json_format": "xml"})
    with pytest.raises(ProviderError) as nothing:
        make_provider("llm", "none").generate(ASK)
    assert nothing.value.code == "no_model"


def test_an_endpoint_without_keys_needs_none() -> None:
    with chat_server(lambda body, number: said("ok")) as server:
        assert (
            OpenAIChat(model="llama", base_url=server.url, api_key_env="").generate(ASK).text
            == "ok"
        )


# --- streams ------------------------------------------------------------------------------------


def test_a_stream_is_handed_over_part_by_part_with_its_usage() -> None:
    parts: list[str] = []
    with chat_server(lambda body, number: streamed(["A ", "lamp", "。"])) as server:
        found = model(server.url, price_input=2.0, price_output=10.0).generate(
            ASK, on_text=parts.append
        )
    assert parts == ["A ", "lamp", "。"]
    assert (found.text, found.model_version, found.finish) == ("A lamp。", "seeing-1.5", "stop")
    assert (found.usage, found.cost) == (
        {"input_tokens": 10, "output_tokens": 5},
        pytest.approx((10 * 2 + 5 * 10) / 1e6),
    )
    assert (server.requests[0]["stream"], server.requests[0]["stream_options"]) == (
        True,
        {"include_usage": True},
    )


def test_usage_that_a_stream_does_not_count_is_estimated_and_says_so() -> None:
    def answer(body: dict[str, object], number: int) -> Reply:
        return (
            refused(400, "unknown field stream_options")
            if "stream_options" in body
            else streamed(["eight ch", "灯"], usage=False)
        )

    with chat_server(answer) as server:
        found = model(server.url).generate((Message("user", "abcd"),), on_text=lambda part: None)
    assert found.usage == {"input_tokens": 2, "output_tokens": 4, "estimated": True}
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [429, 500])
def test_a_stream_that_was_refused_is_asked_for_again(status: int) -> None:
    with chat_server(
        lambda body, number: streamed(["ok"]) if number else refused(status, "later")
    ) as server:
        assert model(server.url).generate(ASK, on_text=lambda part: None).retries == 1


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (streamed(["A lamp"], broken='data: {"choices": [{]}\n\n'), "broken_reply"),
        (
            streamed(
                ["A lamp"],
                broken='data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n',
            ),
            "server_error",
        ),
        (streamed(["A lamp"], finish=None), "connection_failed"),
        (
            (
                *streamed(["A lamp"], finish=None)[:2],
                {"Content-Type": "text/event-stream", "cut": "50"},
            ),
            "connection_failed",
        ),
    ],
)
def test_a_stream_that_breaks_raises_with_what_came_and_is_not_asked_again(
    reply: Reply, code: str
) -> None:
    parts: list[str] = []
    with chat_server(lambda body, number: reply) as server:
        with pytest.raises(ProviderError) as caught:
            model(server.url).generate(ASK, mode="offline", on_text=parts.append)
        assert len(server.requests) == 1
    assert (parts, caught.value.code, caught.value.details["text"]) == (["A lamp"], code, "A lamp")


def test_whoever_listens_can_stop_the_stream() -> None:
    def stop(part: str) -> None:
        raise ValueError(f"enough after {part}")

    with chat_server(lambda body, number: streamed(["A ", "lamp"])) as server:
        with pytest.raises(ValueError, match="enough after A "):
            model(server.url).generate(ASK, mode="offline", on_text=stop)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (streamed([]), "empty_reply"),
        (streamed(["no"], finish="content_filter"), "content_filtered"),
        ((200, "", {}), "empty_reply"),
    ],
)
def test_streams_without_an_answer_have_names(reply: Reply, code: str) -> None:
    with chat_server(lambda body, number: reply) as server, pytest.raises(ProviderError) as caught:
        model(server.url).generate(ASK, on_text=lambda part: None)
    assert caught.value.code == code


def test_a_model_that_is_no_longer_used_leaves_no_open_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client, too, closes its sockets when collected, but may be collected after them."""
    seen: list[Any] = []
    with chat_server(lambda body, number: refused(400, "no")) as server:
        kept: list[Any] = [OpenAIChat("wise", server.url, api_key_env="")]
        with pytest.raises(ProviderError) as refusal:
            kept[0].generate([Message("user", "Hi")])
        for _ in range(30):
            kept = [kept]  # so that a collection finds the socket by the error first
        kept = [refusal.value, kept]
        del refusal
        kept.append(kept)
        gc.collect()
        monkeypatch.setattr(sys, "unraisablehook", seen.append)
        del kept
        gc.collect()
    assert seen == []
