from __future__ import annotations

import threading

import pytest

from rag_platform.errors import ProviderError
from rag_platform.processes import limits


def test_a_result_in_time_comes_back() -> None:
    assert limits.run_within(5, "stage.x", lambda: 7) == 7


def test_an_exception_comes_back_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        limits.run_within(5, "stage.x", lambda: 1 // 0)
    with pytest.raises(TimeoutError):  # one of the provider's own, not ours
        limits.run_within(5, "stage.x", lambda: (_ for _ in ()).throw(TimeoutError("socket")))


def test_after_the_deadline_the_caller_goes_on_and_so_do_later_calls() -> None:
    release = threading.Event()
    for _ in range(3):
        with pytest.raises(ProviderError, match=r"stage\.x took longer than 0\.01 s") as raised:
            limits.run_within(0.01, "stage.x", release.wait)
        assert raised.value.code == "deadline"
    with pytest.raises(ProviderError, match=r"longer than 0\.01 s \(reranker\.timeout_ms\)"):
        limits.run_within(0.01, "stage.x", release.wait, setting="reranker.timeout_ms")
    assert limits.run_within(5, "stage.x", lambda: "alive") == "alive"
    release.set()


def test_calls_run_side_by_side_in_threads_that_are_used_again() -> None:
    meeting = threading.Barrier(2)
    futures = [limits.start(lambda: meeting.wait(60)) for _ in range(2)]
    assert sorted(limits.wait(future, 60, "stage.x") for future in futures) == [0, 1]
    names = {limits.run_within(5, "stage.x", threading.get_ident) for _ in range(50)}
    assert len(names) < 20


def test_a_call_that_nobody_waits_for_does_not_begin_when_its_turn_comes() -> None:
    turn, ended, begun = threading.Lock(), threading.Event(), []

    def compute() -> None:
        try:
            with turn:
                limits.check_awaited("embedding")
                begun.append(1)
        finally:
            ended.set()

    with turn, pytest.raises(ProviderError, match=r"longer than 0\.01 s"):
        limits.run_within(0.01, "stage.x", compute)
    assert ended.wait(60) and not begun
    limits.run_within(60, "stage.x", compute)
    compute()  # outside of `start` there is nobody to give up
    assert begun == [1, 1]
