"""Questions that a language model answers, through the whole engine and over both protocols: text,
citations, traces, usage, memory.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.config.settings import load_settings
from rag_platform.ir import QueryRequest, QueryResult
from rag_platform.observability import trace_reader
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform_tests.chat_server import (
    ChatServer,
    Reply,
    chat_server,
    message,
    message_streamed,
    refused,
    said,
    streamed,
)
from rag_platform_tests.conftest import needs

GUIDE = [
    ("Limits", "The maximum upload size is 50 MB."),
    ("Errors", "Error PPR-9087 means that the licence server cannot be reached."),
]
QUESTION = "What is the maximum upload size?"
TRUE = "The maximum upload size is 50 MB. [1]"
Protocol = tuple[str, Callable[[str], Reply], Callable[[list[str]], Reply]]
OPENAI: Protocol = ("openai", said, streamed)
PROTOCOLS: list[Any] = [
    pytest.param(OPENAI, id="openai"),
    pytest.param(
        ("anthropic", message, message_streamed),
        id="anthropic",
        marks=needs("anthropic", "anthropic"),
    ),
]


def endpoint(server: ChatServer, provider: str = "openai") -> str:
    url = server.url if provider == "openai" else server.url.removesuffix("/v1")
    options = (
        f"model: m, base_url: '{url}', api_key_env: '', retries: 0, price_input: 1.0,"
        " price_output: 2.0"
    )
    return f"llm: {{provider: {provider}, options: {{{options}}}}}\n"


@pytest.fixture
def ask(
    publish: Any, vary: Any, library: Library, store: Store
) -> Callable[..., tuple[QueryResult, dict[str, Any]]]:
    """Asks the question of a library whose strategy names the served model; gives the result and
    its trace.
    """
    publish({"guide": GUIDE})

    def asked(
        server: ChatServer,
        provider: str = "openai",
        lines: str = "answerer: {provider: llm}\nquery: {rewrite: {enabled: false}}\n",
        **more: Any,
    ) -> tuple[QueryResult, dict[str, Any]]:
        name = vary("told", lines + endpoint(server, provider))
        result = answer(library, QueryRequest(QUESTION, strategy=name), **more)
        return result, trace_reader.show(store.logs_dir, result.trace_id)

    return asked


def span(trace: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in trace["spans"] if item["name"] == name)


def events(trace: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in trace["events"] if event["kind"] == kind]


# --- text and citations -------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_model_answers_with_citations_and_leaves_its_record(ask: Any, protocol: Protocol) -> None:
    with chat_server(lambda body, number: protocol[1](TRUE)) as server:
        result, trace = ask(server, protocol[0])
    assert (result.answer_markdown, result.answered, [c.chunk_id for c in result.citations]) == (
        TRUE,
        True,
        ["guide-0"],
    )
    assert result.usage == {"calls": 1, "input_tokens": 10, "output_tokens": 5, "cost": 0.00002}
    (called,), profile = (
        events(trace, "model.call"),
        events(trace, "generation.prompt")[0]["prompt_profile_id"],
    )
    assert (called["provider"], called["model"], called["prompt_profile_id"], called["mode"]) == (
        protocol[0],
        "m",
        profile,
        "online",
    )
    attrs = span(trace, "stage.generate")["attrs"]
    assert (attrs["model_id"], attrs["prompt_profile_id"], attrs["answered"]) == (
        "m",
        profile,
        True,
    )
    assert events(trace, "generation.summary")[0]["fallback_used"] is False


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_mark_without_a_passage_is_taken_out(ask: Any, protocol: Protocol) -> None:
    with chat_server(lambda body, number: protocol[1](f"{TRUE} It is blue. [9]")) as server:
        result, _ = ask(server, protocol[0])
    assert result.answer_markdown == "The maximum upload size is 50 MB. [1] It is blue."
    assert [c.chunk_id for c in result.citations] == ["guide-0"] and any(
        "[9]" in warning for warning in result.warnings
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stream_is_heard_and_then_checked(ask: Any, protocol: Protocol) -> None:
    heard: list[str] = []
    with chat_server(
        lambda body, number: protocol[2](
            ["The maximum upload ", "size is 50 MB. [1]", " It is blue. [9]"]
        )
    ) as server:
        result, _ = ask(server, protocol[0], on_text=heard.append)
    assert (
        "".join(heard).strip()
        == result.answer_markdown
        == "The maximum upload size is 50 MB. [1] It is blue."
    )
    assert server.requests[0]["stream"] is True


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_finds_nothing_is_believed_also_behind_its_thoughts(
    ask: Any, protocol: Protocol, stream: bool
) -> None:
    heard: list[str] = []
    parts = ["<think>They only speak of ", "limits [1].</think>\n\n", "NOT_IN", "_PASSAGES"]
    with chat_server(
        lambda body, number: protocol[2](parts) if stream else protocol[1]("".join(parts))
    ) as server:
        result, _ = ask(server, protocol[0], on_text=heard.append if stream else None)
    assert (result.answered, heard, "generation_failed" in result.flags) == (False, [], False)
    assert "PASSAGES" not in result.answer_markdown and "think" not in result.answer_markdown


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_are_neither_shown_nor_heard(ask: Any, stream: bool) -> None:
    heard: list[str] = []
    parts = [
        "<think>The user wants ",
        "a number. It is 70 MB [2].</th",
        "ink>\n\n",
        "The maximum upload size ",
        "is 50 MB. [1]",
    ]
    with chat_server(
        lambda body, number: streamed(parts) if stream else said("".join(parts))
    ) as server:
        result, _ = ask(server, on_text=heard.append if stream else None)
    assert (result.answer_markdown, result.warnings) == (TRUE, ())
    assert "".join(heard) == (TRUE if stream else "")


def test_replies_in_json_may_come_behind_thoughts(ask: Any) -> None:
    """The rewritten question and the grades of the reranker are strict JSON."""
    question = {
        "question": QUESTION,
        "keywords": [],
        "intent": "search",
        "filters": [],
        "queries": [],
    }

    def reply(body: dict[str, Any], number: int) -> Reply:
        user = body["messages"][-1]["content"]
        grades = {"grades": [{"id": 1, "grade": 2}, {"id": 2, "grade": 9}]}
        return said(f"<think>Hm.</think>\n{json.dumps(grades if 'PPR-9087' in user else question)}")

    with chat_server(reply) as server:
        result, trace = ask(
            server,
            lines=(
                "query: {rewrite: {enabled: true}}\nreranker: {provider: llm, timeout_ms: 20000}\n"
            ),
        )
    assert not [name for name in result.flags if name.endswith("_failed")]
    assert [hit.score for hit in result.hits] == [9.0, 2.0] and span(trace, "stage.query_norm")[
        "attrs"
    ]["rewrite_used"] is True
    assert [
        call["prompt_profile_id"].rpartition("-")[0] for call in events(trace, "model.call")
    ] == ["query.rewrite", "rerank.listwise"]


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_call_that_failed_is_counted_and_recorded(ask: Any, protocol: Protocol) -> None:
    with chat_server(lambda body, number: refused(500, "boom")) as server:
        result, trace = ask(server, protocol[0])
    assert result.flags["generation_failed"] and "50 MB" in result.answer_markdown
    assert result.usage == {"calls": 1, "failed": 1, "input_tokens": 0, "output_tokens": 0}
    (called,) = events(trace, "model.call")
    assert (called["error"]["code"], called["prompt_profile_id"].partition("-")[0]) == (
        "server_error",
        "retrieval.answer",
    )
    assert (trace["aggregates"]["counters"]["model_calls"], trace["attrs"]["usage"]["failed"]) == (
        1,
        1,
    )
    assert events(trace, "generation.summary")[0]["fallback_used"] is True


def test_an_empty_answer_was_paid_for(ask: Any) -> None:
    with chat_server(lambda body, number: said("<think>I never come to an end")) as server:
        result, _ = ask(server)
    assert result.usage == {
        "calls": 1,
        "failed": 1,
        "input_tokens": 10,
        "output_tokens": 5,
        "cost": 0.00002,
    }
    assert "nothing but thoughts" in result.warnings[0] and "50 MB" in result.answer_markdown


def test_a_call_that_nobody_waited_for_is_counted(ask: Any) -> None:
    over = threading.Event()
    with chat_server(lambda body, number: (over.wait(20), said("late"))[1]) as server:
        result, _ = ask(
            server,
            lines="answerer: {provider: llm, timeout_ms: 1500}\n"
            "query: {rewrite: {enabled: false}}\n",
        )
        over.set()
    assert (result.usage["calls"], result.usage["failed"], result.flags["generation_failed"]) == (
        1,
        1,
        True,
    )


# --- memory -------------------------------------------------------------------------------------


def prompt_file(config_folder: Path, name: str, system: str, user: str) -> None:
    path = config_folder / "prompts" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"system: '{system}'\nuser_template: '{user}'\n", encoding="utf-8")


def test_another_wording_of_a_prompt_in_any_folder_is_asked_anew(
    publish: Any, vary: Any, store: Store, config_folder: Path
) -> None:
    publish({"guide": GUIDE})
    prompt_file(config_folder, "ours/house", "Answer politely.", "{context} {query}")
    library = Library(load_settings({"caches": {"responses": 4}}), store)
    with chat_server(lambda body, number: said(TRUE)) as server:
        name = vary(
            "told",
            "answerer: {provider: llm, prompt: ours/house}\nquery: {rewrite: {enabled: false}}\n"
            + endpoint(server),
        )
        asked = lambda: answer(library, QueryRequest(QUESTION, strategy=name))  # noqa: E731
        first, again = asked(), asked()
        assert len(server.requests) == 1
        prompt_file(config_folder, "ours/house", "Answer curtly.", "{context} {query}")
        asked()
        assert [body["messages"][0]["content"] for body in server.requests] == [
            "Answer politely.",
            "Answer curtly.",
        ]
    library.close()
    shown = [
        span(trace_reader.show(store.logs_dir, item.trace_id), "stage.generate")["attrs"]
        for item in (first, again)
    ]
    assert [attrs["cache_hit"] for attrs in shown] == [False, True]
    assert len({attrs["prompt_profile_id"] for attrs in shown}) == 1 and {
        attrs["model_id"] for attrs in shown
    } == {"m"}


def test_another_wording_of_the_rerankers_prompt_is_searched_anew(
    publish: Any, vary: Any, library: Library, config_folder: Path
) -> None:
    publish({"guide": GUIDE})
    prompt_file(config_folder, "rerank/listwise", "Grade well.", "{query} {passages}")
    grades = json.dumps({"grades": [{"id": 1, "grade": 2}, {"id": 2, "grade": 9}]})
    with chat_server(lambda body, number: said(grades)) as server:
        lines = "query: {rewrite: {enabled: false}}\nreranker: {provider: llm, timeout_ms: 20000}\n"
        name = vary("graded", lines + endpoint(server))
        asked = lambda: answer(library, QueryRequest(QUESTION, strategy=name))  # noqa: E731
        asked()
        asked()
        assert len(server.requests) == 1
        prompt_file(config_folder, "rerank/listwise", "Grade badly.", "{query} {passages}")
        assert not asked().flags.get("rerank_failed")
    assert [body["messages"][0]["content"] for body in server.requests] == [
        "Grade well.",
        "Grade badly.",
    ]


def test_what_a_remembered_answer_does_not_prove_is_flagged_again(
    publish: Any, vary: Any, store: Store
) -> None:
    publish({"guide": GUIDE})
    library = Library(load_settings({"caches": {"responses": 4}}), store)
    with chat_server(lambda body, number: said(f"{TRUE} It was 70 MB before. [1]")) as server:
        name = vary(
            "told",
            "answerer: {provider: llm}\nquery: {rewrite: {enabled: false}}\n" + endpoint(server),
        )
        first, again = (answer(library, QueryRequest(QUESTION, strategy=name)) for _ in range(2))
    library.close()
    assert len(server.requests) == 1 and "70" in first.flags["unsupported"][0]["reason"]
    assert first.flags["unsupported"] == again.flags["unsupported"]
