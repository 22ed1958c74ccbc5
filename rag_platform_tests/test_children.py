"""rag_platform.children: a child answers in order, its exceptions are raised, its death is noticed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from rag_platform.children import Child, ChildDied, serve
from rag_platform.errors import InputError


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


def test_what_the_child_raises_is_raised_here_and_it_goes_on(child: Child) -> None:
    with pytest.raises(InputError, match="'x' is no number") as raised:
        child.ask("x")
    assert (raised.value.code, raised.value.details) == ("no_number", {"given": "x"})
    assert child.ask(3) == 1003


def test_threads_that_ask_at_once_each_get_their_own_answer(child: Child) -> None:
    got: dict[int, object] = {}
    threads = [threading.Thread(target=lambda n=n: got.update({n: child.ask(n)})) for n in range(20)]  # type: ignore[misc]
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
        thread.join(10)
    assert died == ["died with exit status 3"] * 3
    with pytest.raises(ChildDied):
        child.ask(1)
