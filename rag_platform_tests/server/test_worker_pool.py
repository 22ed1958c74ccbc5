"""rag_platform.server.worker_pool: many questions at once are answered in several processes, with
the same answers and none lost.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rag_platform.api.status import status
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import CancelledError, InputError, NotFoundError
from rag_platform.ir import QueryRequest
from rag_platform.observability import trace_reader
from rag_platform.processes import limits
from rag_platform.processes.worker import Child
from rag_platform.retrieval.library import Library
from rag_platform.server.worker_pool import Answer, QueryPool

GUIDE = (
    "# Limits\n"
    "\n"
    "The pro tier allows 600 requests per minute.\n"
    "\n"
    "# Ports\n"
    "\n"
    "The service listens on port 8080.\n"
)
WAIT_SECONDS = 180.0


@pytest.fixture
def library(shelf: Any, tmp_path: Path) -> Iterator[Library]:
    (tmp_path / "guide.md").write_text(GUIDE, encoding="utf-8")
    shelf.ingest(tmp_path / "guide.md")
    opened = shelf.library()
    yield opened
    opened.close()


@pytest.fixture
def shared(library: Library) -> Iterator[Callable[..., QueryPool]]:
    made: list[QueryPool] = []

    def make(**options: Any) -> QueryPool:
        made.append(QueryPool(library, **{"processes": 2, **options}))
        return made[-1]

    yield make
    for questions in made:
        questions.close()


def ask_many(questions: QueryPool, count: int, label: str = "") -> list[Answer]:
    """The answers to so many different questions, eight at a time."""
    requests = [
        QueryRequest(f"Which port does the service listen on? {label}{number}")
        for number in range(count)
    ]
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda request: questions.respond(request, "full"), requests))


def until(condition: Callable[[], bool]) -> None:
    """Wait for it. Raises AssertionError after WAIT_SECONDS."""
    ends = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def others(questions: QueryPool) -> list[Child]:
    """The processes beside this one."""
    return [slot.child for slot in questions._slots if slot.child is not None]


def crowd(questions: QueryPool, processes: int = 2) -> None:
    """Ask until so many processes answer; nobody asks while one of them starts."""
    ends = time.monotonic() + WAIT_SECONDS
    while questions.processes < processes:
        assert time.monotonic() < ends
        ask_many(questions, 24, f"{time.monotonic()} ")
        until(lambda: not questions._starting)


def test_one_question_after_the_other_starts_no_process(shared: Any) -> None:
    questions = shared()
    for number in range(40):
        questions.respond(QueryRequest(f"port {number}"), "brief")
    assert questions.processes == 1 and not questions._starting


def test_questions_that_meet_are_answered_alike_in_two_processes(
    shared: Any, library: Library
) -> None:
    questions = shared()
    alone, _, _ = questions.respond(
        QueryRequest("Which port does the service listen on? 0"), "full"
    )
    crowd(questions)
    answers = ask_many(questions, 40)
    pids = {
        trace_reader.show(library.store.logs_dir, trace_id)["runtime"]["pid"]
        for _, trace_id, _ in answers
    }
    assert pids & {child.process.pid for child in others(questions)} and pids <= {
        os.getpid(),
        *(c.process.pid for c in others(questions)),
    }
    assert (
        {data["answer_markdown"].splitlines()[-1] for data, _, _ in answers}
        == {alone["answer_markdown"].splitlines()[-1]}
        == {"The service listens on port 8080. [1]"}
    )
    assert [part["chunk_id"] for part in answers[0][0]["results"]] == [
        part["chunk_id"] for part in alone["results"]
    ]
    assert library.load.running == 0
    looked = status(library, questions.cache_figures())["caches"]["retrievals"]
    assert looked["misses"] > library.cache_figures()["retrievals"]["misses"]


def test_a_server_with_as_many_processes_as_may_answer_only_hands_on(
    shared: Any, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    # however slow the machine is
    monkeypatch.setattr("rag_platform.server.worker_pool._SLOT_WAIT_SECONDS", WAIT_SECONDS)
    questions = shared()
    crowd(questions, 3)
    answers = ask_many(questions, 40)
    pids = {
        trace_reader.show(library.store.logs_dir, trace_id)["runtime"]["pid"]
        for _, trace_id, _ in answers
    }
    assert pids == {child.process.pid for child in others(questions)} and len(pids) == 2
    later = [questions.respond(QueryRequest(f"port {number}"), "brief") for number in range(20)]
    assert len(later) == 20 and questions.processes == 3


def test_what_a_process_raises_is_raised_here(shared: Any) -> None:
    questions = shared()
    crowd(questions)

    def code(number: int) -> str:
        with pytest.raises(InputError) as raised:
            questions.respond(QueryRequest(f"port {number}", filters={"colour": "red"}), "full")
        assert raised.value.details["trace_id"].startswith("trc_")
        return raised.value.code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(code, range(16))) == {"unknown_filter"}
    with pytest.raises(NotFoundError, match="unknown library 'nowhere'"):
        questions.respond(QueryRequest("port", "nowhere"), "full")


def test_a_process_that_dies_loses_no_question(shared: Any, library: Library) -> None:
    questions = shared()
    crowd(questions)
    child = others(questions)[0]
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(ask_many, questions, 80)
        time.sleep(0.05)
        os.kill(child.process.pid, signal.SIGKILL)
        assert {data["answer_markdown"].splitlines()[-1] for data, _, _ in answers.result()} == {
            "The service listens on port 8080. [1]"
        }
    until(lambda: child not in others(questions))
    assert library.load.running == 0
    crowd(questions)  # and another one is started when it is needed


def test_a_process_that_hangs_is_ended_and_its_questions_answered(
    shared: Any, config_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_platform.server.worker_pool._GRACE_SECONDS", 0.5)
    with (config_folder / "strategies" / "tiny.yaml").open("a", encoding="utf-8") as strategy:
        strategy.write("retrieval: {query_seconds: 2}\n")
    questions = shared()
    crowd(questions)
    child = others(questions)[0]
    os.kill(child.process.pid, signal.SIGSTOP)
    assert len(ask_many(questions, 24)) == 24
    until(lambda: child not in others(questions))


def test_a_process_without_questions_ends(shared: Any) -> None:
    questions = shared(idle_seconds=0.3)
    crowd(questions)
    process = others(questions)[0].process
    until(lambda: questions.processes == 1)
    assert process.wait(WAIT_SECONDS) is not None
    assert len(ask_many(questions, 8)) == 8


def test_a_new_release_answers_in_all_processes_at_once(
    shared: Any, shelf: Any, tmp_path: Path
) -> None:
    questions = shared()
    crowd(questions)
    (tmp_path / "guide.md").write_text(GUIDE.replace("8080", "9090"), encoding="utf-8")
    release_id = shelf.ingest(tmp_path / "guide.md")
    answers = ask_many(questions, 24)
    assert {data["release_id"] for data, _, _ in answers} == {release_id}
    assert {data["answer_markdown"].splitlines()[-1] for data, _, _ in answers} == {
        "The service listens on port 9090. [1]"
    }


def test_a_caller_who_left_is_not_answered(shared: Any, library: Library) -> None:
    questions = shared()
    crowd(questions)
    with limits.cancellable() as left:
        left.set()
        with pytest.raises(CancelledError):
            questions.respond(QueryRequest("port"), "full")
    assert library.load.running == 0


def test_only_questions_that_compute_here_are_shared(library: Library, config_folder: Path) -> None:
    tiny = load_strategy(library.settings, "tiny")
    assert library.models.computes_here(tiny)
    parts = {
        "written": {"answerer": {"provider": "llm"}},
        "rewritten": {"query": {"rewrite": {"enabled": True}}},
        "elsewhere": {"embedding": {"provider": "openai", "options": {"model": "m"}}},
        "large": {"embedding": {"provider": "sentence_transformers", "options": {"model": "m"}}},
        "judged": {"reranker": {"provider": "cross_encoder", "options": {"model": "m"}}},
    }
    here = {
        name: library.models.computes_here(type(tiny).model_validate(tiny.model_dump() | part))
        for name, part in parts.items()
    }
    assert here == dict.fromkeys(parts, False)


def test_a_server_of_one_process_stays_one(shared: Any) -> None:
    questions = shared(processes=1)
    ask_many(questions, 60)
    assert questions.processes == 1 and not questions._starting
