"""rag_platform.processes.worker: a child answers in order, its exceptions are raised, its death is
noticed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rag_platform.errors import InputError
from rag_platform.processes.worker import Child, ChildDied, Workers, serve


def main() -> None:
    """Answers numbers; runs in the child."""
    serve(_adding)


def _adding(first: int) -> Callable[[object], object]:
    def answer(message: object) -> object:
        if message == "pid":
            os.write(1, b"what an engine prints\n")
            return os.getpid()
        if message == "die":
            os._exit(3)
        if not isinstance(message, int):
            raise InputError(f"{message!r} is no number", code="no_number", given=message)
        time.sleep(0.01)
        return first + message

    return answer


@pytest.fixture
def child() -> Iterator[Child]:
    running = Child(__name__, 1000)
    yield running
    running.close()


def test_a_child_answers_in_another_process(child: Child) -> None:
    assert child.ask(1) == 1001 and child.ask(2) == 1002
    assert child.ask("pid") == child.process.pid != os.getpid()


def test_a_file_of_the_current_folder_stands_for_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a script of the user')")
    monkeypatch.chdir(tmp_path)
    child = Child(__name__, 1000)
    try:
        assert child.ask(1) == 1001
    finally:
        child.close()


def test_what_the_child_raises_is_raised_here_and_it_goes_on(child: Child) -> None:
    with pytest.raises(InputError, match="'x' is no number") as raised:
        child.ask("x")
    assert (raised.value.code, raised.value.details) == ("no_number", {"given": "x"})
    assert child.ask(3) == 1003


def test_threads_that_ask_at_once_each_get_their_own_answer(child: Child) -> None:
    got: dict[int, object] = {}
    threads = [
        threading.Thread(target=lambda n=n: got.update({n: child.ask(n)})) for n in range(20)
    ]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {n: 1000 + n for n in range(20)}


def test_a_child_that_dies_is_noticed_by_all_who_wait(child: Child) -> None:
    died: list[str] = []

    def ask(message: object) -> None:
        try:
            child.ask(message)
        except ChildDied as error:
            died.append(str(error))

    threads = [threading.Thread(target=ask, args=(message,)) for message in ("die", 1, 2)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join(60)
    assert died == ["died with exit status 3"] * 3
    with pytest.raises(ChildDied):
        child.ask(1)


def _twice(number: int) -> tuple[int, int]:
    if number < 0:
        raise InputError(f"{number} is negative")
    return 2 * number, os.getpid()


def _dies_elsewhere(parent: int) -> int:
    if os.getpid() != parent:
        os._exit(9)
    return os.getpid()


def test_workers_answer_in_order_from_children_or_here() -> None:
    with Workers(2) as workers:
        many = list(workers.map(_twice, range(40)))
        assert [answer for answer, _ in many] == list(range(0, 80, 2))
        assert os.getpid() not in {pid for _, pid in many} and len({pid for _, pid in many}) == 2
        assert list(workers.map(_twice, [3, 4])) == [(6, os.getpid()), (8, os.getpid())]
        with pytest.raises(InputError, match="-1 is negative"):
            list(workers.map(_twice, [*range(20), -1, *range(20)]))
        assert workers.submit(_twice, 5).result()[0] == 10
    with Workers(1) as alone:
        assert {pid for _, pid in alone.map(_twice, range(40))} == {os.getpid()}


def test_the_task_over_which_a_worker_dies_is_done_here() -> None:
    with Workers(2) as workers:
        assert list(workers.map(_dies_elsewhere, [os.getpid()] * 10)) == [os.getpid()] * 10
        assert workers.submit(_twice, 1).result()[0] == 2
