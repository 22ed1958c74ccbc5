from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import LoadSettings, Settings, load_settings
from rag_platform.errors import CancelledError, ProviderError
from rag_platform.ir import QueryRequest
from rag_platform.observability import trace_reader
from rag_platform.processes import limits as budgets
from rag_platform.processes import limits as deadlines
from rag_platform.processes.limits import Budget, Deadline, Gate, Load, parts_to_skip
from rag_platform.protocols import Completion, Message
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform_tests.chat_server import ChatServer, chat_server, said, streamed

GUIDE = [
    ("Limits", "The maximum upload size is 50 MB."),
    ("Errors", "Error PPR-9087 means that the licence server cannot be reached."),
]
QUESTION = "What is the maximum upload size?"


def model(server: ChatServer, **options: Any) -> str:
    """The line of a strategy that names the served model."""
    more = "".join(f", {name}: {value}" for name, value in options.items())
    return (
        f"llm: {{provider: openai, options: {{model: m, base_url: '{server.url}', api_key_env: '',"
        f" retries: 0{more}}}}}\n"
    )


@pytest.fixture
def hanging() -> Iterator[ChatServer]:
    """A model that answers when the test is over: whoever waits for its answer never comes to an
    end of his own.
    """
    over = threading.Event()

    def reply(body: dict[str, Any], number: int) -> Any:
        over.wait(120)
        return said("late")

    with chat_server(reply) as server:
        yield server
        over.set()


# --- deadlines ----------------------------------------------------------------------------------


def test_a_stage_gets_what_is_left() -> None:
    assert 0 < Deadline.after(3600).left() <= 3600
    assert Deadline.after(3600).left(0.01) == 0.01
    deadline = Deadline.after(0.1)
    with pytest.raises(ProviderError, match=r"query_seconds") as raised:
        deadlines.run_within(3600, "stage.x", threading.Event().wait, deadline)
    assert raised.value.code == "deadline"
    with pytest.raises(ProviderError, match="was not begun"):
        deadlines.run_within(10, "stage.x", lambda: 1, deadline)


def test_who_no_longer_waits_is_not_waited_for() -> None:
    cancelled = threading.Event()
    deadline = Deadline.after(3600, cancelled)
    assert deadlines.run_within(3600, "stage.x", lambda: 7, deadline) == 7

    def never_ends() -> None:
        cancelled.set()
        threading.Event().wait()

    with pytest.raises(CancelledError):
        deadlines.run_within(3600, "stage.x", never_ends, deadline)


def test_leaving_the_block_cancels_what_was_begun_in_it() -> None:
    with deadlines.cancellable():
        deadline = Deadline.after(20)
        deadline.check()
    with pytest.raises(CancelledError):
        deadline.check()
    Deadline.after(20).check()


# --- calls at once ------------------------------------------------------------------------------


def test_the_calls_of_a_provider_are_limited() -> None:
    gate, most, running, lock = Gate("the model", 2), [0], [0], threading.Lock()

    def call() -> None:
        with gate.enter():
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            time.sleep(0.02)
            with lock:
                running[0] -= 1

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [2]


def test_a_call_waits_for_a_place_no_longer_than_its_question_may() -> None:
    gate = Gate("the model", 1)
    budget = Budget(Deadline.after(0.05))
    with (
        gate.enter(),
        budgets.charge_to(budget),
        pytest.raises(ProviderError, match="1 calls running") as raised,
        gate.enter(),
    ):
        pass
    assert (raised.value.code, raised.value.retryable) == ("provider_busy", True)
    with gate.enter():
        pass


class Counting:
    """A model that says how much it took."""

    def generate(self, messages: Sequence[Message], **options: Any) -> Completion:
        return Completion(
            "yes", "test", "m", usage={"input_tokens": 7, "output_tokens": 3}, cost=0.25
        )


def test_usage_of_calls_in_other_threads_is_added_up() -> None:
    metered = budgets.Metered(Counting(), Gate("the model", 4))
    with budgets.charge_to(Budget(Deadline.after(5))) as budget:
        assert budget.usage() == {}
        started = [deadlines.start(lambda: metered.generate([])) for _ in range(3)]
        for future in started:
            deadlines.wait(future, 5, "stage.x")
    assert budget.usage() == {"calls": 3, "input_tokens": 21, "output_tokens": 9, "cost": 0.75}


def test_a_section_without_a_model_of_its_own_takes_the_strategys(
    library: Library, tiny: Any
) -> None:
    assert library.models.llm(None, tiny) is None
    named = ProviderConfig(provider="openai", options={"model": "a"})
    with_one = tiny.model_copy(update={"llm": named})
    assert library.models.llm(None, with_one).model.model == "a"  # type: ignore[union-attr]
    other = library.models.llm(ProviderConfig(provider="openai", options={"model": "b"}), with_one)
    assert other.model.model == "b"  # type: ignore[union-attr]
    assert library.models.llm(None, with_one).gate is library.models.llm(named, tiny).gate  # type: ignore[union-attr]


# --- the query's own deadline -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "flag"),
    [
        ("answerer: {provider: llm}\nquery: {rewrite: {enabled: false}}\n", "generation_failed"),
        ("query: {rewrite: {enabled: true}}\n", "rewrite_failed"),
        (
            "reranker: {provider: llm, timeout_ms: 60000}\nquery: {rewrite: {enabled: false}}\n",
            "rerank_failed",
        ),
    ],
    ids=["answer", "rewrite", "rerank"],
)
def test_no_query_outlives_its_deadline(
    publish: Any, vary: Any, library: Library, hanging: ChatServer, lines: str, flag: str
) -> None:
    publish({"guide": GUIDE})
    answer(library, QueryRequest(QUESTION))  # loads what a first query loads
    name = vary("slow", lines + model(hanging) + "retrieval: {query_seconds: 0.6}\n")
    # while the model has still not answered
    result = answer(library, QueryRequest(QUESTION, strategy=name))
    assert result.flags[flag] is True
    assert result.hits or flag == "rewrite_failed"
    assert "50 MB" in result.answer_markdown or flag == "rewrite_failed"


def test_a_cancelled_query_ends_early_with_its_trace(
    publish: Any, vary: Any, library: Library, store: Store, hanging: ChatServer
) -> None:
    publish({"guide": GUIDE})
    name = vary(
        "slow",
        "answerer: {provider: llm}\nquery: {rewrite: {enabled: false}}\n"
        + model(hanging)
        + "retrieval: {query_seconds: 100}\n",
    )
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    with pytest.raises(CancelledError) as raised:  # while the model has still not answered
        answer(library, QueryRequest(QUESTION, strategy=name), cancelled=cancelled)
    assert (
        trace_reader.show(store.logs_dir, raised.value.details["trace_id"])["error"]["code"]
        == "cancelled"
    )
    assert library.load.running == 0


def test_a_cancelled_stream_stops(publish: Any, vary: Any, library: Library) -> None:
    publish({"guide": GUIDE})
    cancelled = threading.Event()
    heard: list[str] = []

    def listen(part: str) -> None:
        heard.append(part)
        cancelled.set()

    with chat_server(
        lambda body, number: streamed([f"Sentence {n} is here. [1] " for n in range(20)])
    ) as server:
        name = vary(
            "told",
            "answerer: {provider: llm}\nquery: {rewrite: {enabled: false}}\n" + model(server),
        )
        with pytest.raises(CancelledError):
            answer(
                library, QueryRequest(QUESTION, strategy=name), on_text=listen, cancelled=cancelled
            )
    assert 1 <= len(heard) <= 2


def test_the_answer_is_heard_as_it_comes(publish: Any, vary: Any, library: Library) -> None:
    publish({"guide": GUIDE})
    heard: list[str] = []
    with chat_server(
        lambda body, number: streamed(["The maximum upload size ", "is 50 MB. [1]"])
    ) as server:
        name = vary(
            "told",
            "answerer: {provider: llm}\nquery: {rewrite: {enabled: false}}\n" + model(server),
        )
        result = answer(library, QueryRequest(QUESTION, strategy=name), on_text=heard.append)
    assert (
        "".join(heard).strip()
        == result.answer_markdown.strip()
        == "The maximum upload size is 50 MB. [1]"
    )
    assert (result.usage["calls"], result.answered) == (1, True)


# --- load ---------------------------------------------------------------------------------------


def test_what_is_given_up_comes_in_a_fixed_order() -> None:
    limits = LoadSettings(skip_rerank_at=2, smaller_pool_at=3, extractive_at=4)
    assert [parts_to_skip(running, limits) for running in (1, 2, 3, 4)] == [
        (),
        ("rerank",),
        ("rerank", "pool"),
        ("rerank", "pool", "model"),
    ]
    assert parts_to_skip(4, LoadSettings(skip_rerank_at=9, smaller_pool_at=8, extractive_at=4)) == (
        "rerank",
        "pool",
        "model",
    )


def test_questions_beyond_the_limit_are_refused() -> None:
    load = Load(LoadSettings(refuse_at=2))
    with load.question():
        with pytest.raises(ProviderError, match="ask again") as raised, load.question():
            pass
        assert load.running == 1
    assert (raised.value.code, load.running) == ("overloaded", 0)


@pytest.mark.parametrize(
    ("load", "parts"),
    [
        ({"skip_rerank_at": 1}, ["rerank"]),
        ({"smaller_pool_at": 1}, ["pool", "rerank"]),
        ({"extractive_at": 1}, ["pool", "rerank", "model"]),
    ],
)
def test_a_busy_library_answers_with_less_and_says_so(
    publish: Any,
    vary: Any,
    settings: Settings,
    store: Store,
    load: dict[str, int],
    parts: list[str],
) -> None:
    publish({"guide": GUIDE})
    with chat_server(lambda body, number: said("The maximum upload size is 50 MB. [1]")) as server:
        name = vary(
            "full",
            "answerer: {provider: llm}\nreranker: {provider: features}\n"
            "query: {rewrite: {enabled: false}}\n" + model(server),
        )
        library = Library(load_settings({"load": load}), store)
        result = answer(library, QueryRequest(QUESTION, strategy=name))
        library.close()
        asked = len(server.requests)
    assert result.flags["load_shed"] == parts
    assert asked == (0 if "model" in parts else 1)
    assert "50 MB" in result.answer_markdown
    assert sum("questions run at once" in warning for warning in result.warnings) == len(parts)
    shown = trace_reader.show(store.logs_dir, result.trace_id)["attrs"]
    assert shown["flags"]["load_shed"] == parts


def test_an_overloaded_library_refuses(publish: Any, settings: Settings, store: Store) -> None:
    publish({"guide": GUIDE})
    library = Library(load_settings({"load": {"refuse_at": 1}}), store)
    with pytest.raises(ProviderError) as raised:
        answer(library, QueryRequest(QUESTION))
    library.close()
    assert raised.value.code == "overloaded"
    assert trace_reader.show(store.logs_dir, raised.value.details["trace_id"])["status"] == "error"


def test_a_question_that_takes_too_long_to_read_ends_in_time(
    publish: Any, vary: Any, store: Store, settings: Settings
) -> None:
    """400,000 characters where nobody limits them: every stage would take seconds."""
    publish({"guide": GUIDE})
    library = Library(load_settings({"limits": {"max_query_chars": 1_000_000}}), store)
    answer(library, QueryRequest(QUESTION))
    name = vary("quick", "retrieval: {query_seconds: 0.2}\n")
    result = answer(library, QueryRequest("½ a-" * 100_000, strategy=name))
    library.close()
    assert not result.answered
    assert result.flags["error"]["causes"] == ["deadline", "deadline"]
