"""The messages API over real HTTP: what is sent, what is streamed, what every failure is called."""

from __future__ import annotations

import time

import pytest

from rag_platform.errors import ProviderError
from rag_platform.protocols import Message, Picture
from rag_platform.providers.anthropic import Anthropic
from rag_platform.registry import make_provider
from rag_platform_tests.chat_server import Reply, chat_server, message, message_streamed
from rag_platform_tests.conftest import needs

pytestmark = needs("anthropic", "anthropic")

ASK = (Message("system", "Be short."), Message("user", "What is it?"))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sesame")


def model(url: str, **options: object) -> Anthropic:
    options = {
        "model": "wise",
        "base_url": url.removesuffix("/v1"),
        "api_key_env": "TEST_KEY",
        "backoff_ms": 1,
        **options,
    }
    made = make_provider("llm", "anthropic", options)
    assert isinstance(made, Anthropic)
    return made


def refused(status: int, kind: str, **headers: str) -> Reply:
    return status, {"type": "error", "error": {"type": kind, "message": "no"}}, headers


def test_a_completion_carries_text_version_usage_and_cost() -> None:
    with chat_server(lambda body, number: message("A lamp.")) as server:
        found = model(server.url, price_input=2.0, price_output=10.0).generate(ASK, max_tokens=7)
    assert (found.text, found.provider, found.model, found.model_version) == (
        "A lamp.",
        "anthropic",
        "wise",
        "wise-2",
    )
    assert (found.usage, found.finish) == ({"input_tokens": 10, "output_tokens": 5}, "stop")
    assert found.cost == pytest.approx((10 * 2 + 5 * 10) / 1e6)
    assert server.requests[0] == {
        "model": "wise",
        "max_tokens": 7,
        "system": "Be short.",
        "temperature": 0.0,
        "stream": False,
        "messages": [{"role": "user", "content": "What is it?"}],
    }
    assert server.paths == ["/v1/messages"]
    assert "sesame" in (
        server.headers[0].get("x-api-key", "") + server.headers[0].get("authorization", "")
    )


def test_pictures_and_a_schema() -> None:
    with chat_server(lambda body, number: message('```json\n{"a": 1}\n```')) as server:
        found = model(server.url).generate(
            [Message("user", "Look.", (Picture(b"\x00\x01", "image/png"),))],
            json_schema={"type": "object"},
        )
    assert found.text == '{"a": 1}'
    assert server.requests[0]["system"].endswith('{"type": "object"}')
    assert server.requests[0]["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAE="}},
        {"type": "text", "text": "Look."},
    ]


def test_a_stream_is_handed_over_part_by_part_with_its_usage() -> None:
    parts: list[str] = []
    with chat_server(
        lambda body, number: message_streamed(["A ", "lamp", "。"], stop_reason="max_tokens")
    ) as server:
        found = model(server.url).generate(ASK, on_text=parts.append)
    assert (parts, found.text, found.finish) == (["A ", "lamp", "。"], "A lamp。", "length")
    assert (found.model_version, found.usage) == (
        "wise-2",
        {"input_tokens": 10, "output_tokens": 5},
    )


@pytest.mark.parametrize(
    ("status", "kind"), [(429, "rate_limit_error"), (500, "api_error"), (529, "overloaded_error")]
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_may_pass_is_tried_again(status: int, kind: str, stream: bool) -> None:
    def answer(body: dict[str, object], number: int) -> Reply:
        return (
            refused(status, kind)
            if number < 2
            else message_streamed(["done"])
            if stream
            else message("done")
        )

    with chat_server(answer) as server:
        found = model(server.url).generate(
            ASK, mode="offline", on_text=(lambda part: None) if stream else None
        )
    assert (found.text, found.retries, len(server.requests)) == ("done", 2, 3)


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
    with chat_server(lambda body, number: refused(status, "x")) as server:
        with pytest.raises(ProviderError) as caught:
            model(server.url).generate(ASK, mode="offline")
        assert len(server.requests) == 1
    assert (caught.value.code, caught.value.retryable) == (code, False)


def test_a_model_that_takes_no_temperature_is_asked_without() -> None:
    def answer(body: dict[str, object], number: int) -> Reply:
        if "temperature" in body:
            return (
                400,
                {
                    "type": "error",
                    "error": {
                        "type": "invalid_request_error",
                        "message": "temperature is not supported",
                    },
                },
                {},
            )
        return message("ok")

    with chat_server(answer) as server:
        asked = model(server.url)
        assert [asked.generate(ASK).text, asked.generate(ASK).text] == ["ok", "ok"]
    assert ["temperature" in body for body in server.requests] == [True, False, False]


@pytest.mark.parametrize("stream", [False, True])
def test_a_slow_endpoint_times_out(stream: bool) -> None:
    def slow(body: object, number: int) -> Reply:
        time.sleep(0.5)
        return message("late")

    with chat_server(slow) as server, pytest.raises(ProviderError) as caught:
        model(server.url, timeout_ms=100, retries=0).generate(
            ASK, on_text=(lambda part: None) if stream else None
        )
    assert (caught.value.code, caught.value.retryable) == ("timeout", True)


OVERLOADED = (
    "event: error\n"
    'data: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}\n'
    "\n"
)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (message_streamed(["A lamp"], broken=OVERLOADED), "server_error"),
        (
            message_streamed(["A lamp"], broken="event: message_delta\ndata: {no json\n\n"),
            "broken_reply",
        ),
        (message_streamed(["A lamp"], ends=False), "connection_failed"),
        (
            (
                *message_streamed(["A lamp"], ends=False)[:2],
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


def test_a_stream_that_breaks_before_it_speaks_is_asked_for_again() -> None:
    with chat_server(
        lambda body, number: (
            message_streamed(["ok"]) if number else message_streamed([], broken=OVERLOADED)
        )
    ) as server:
        assert model(server.url).generate(ASK, on_text=lambda part: None).retries == 1


def test_whoever_listens_can_stop_the_stream() -> None:
    def stop(part: str) -> None:
        raise TimeoutError("enough")

    with chat_server(lambda body, number: message_streamed(["A ", "lamp"])) as server:
        with pytest.raises(TimeoutError, match="enough"):
            model(server.url).generate(ASK, mode="offline", on_text=stop)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ((200, "{ not json", {}), "broken_reply"),
        ((200, {"hello": "world"}, {}), "broken_reply"),
        (message(""), "empty_reply"),
        (message("I would rather not", stop_reason="refusal"), "content_filtered"),
    ],
)
def test_broken_replies_have_names(reply: Reply, code: str) -> None:
    with chat_server(lambda body, number: reply) as server, pytest.raises(ProviderError) as caught:
        model(server.url).generate(ASK, mode="offline")
    assert (caught.value.code, caught.value.retryable) == (code, False)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(ProviderError, match="TEST_KEY") as caught:
        model("http://127.0.0.1:9").generate(ASK)
    assert caught.value.code == "missing_key"
    with pytest.raises(ProviderError, match="has no model"):
        Anthropic().generate(ASK)
