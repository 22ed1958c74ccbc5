"""Searches take turns in the order in which they came."""

from __future__ import annotations

import threading
import time

from rag_platform.processes.limits import Turns


def test_places_are_given_in_order_of_arrival_and_never_more_than_there_are() -> None:
    turns, running, most, order = Turns(1), 0, 0, []
    lock = threading.Lock()

    def work(number: int) -> None:
        nonlocal running, most
        with turns.take(60) as held:
            assert held
            with lock:
                running += 1
                most = max(most, running)
                order.append(number)
            time.sleep(0.01)
            with lock:
                running -= 1

    with turns.take(60):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
        for arrived, thread in enumerate(threads, 1):
            thread.start()
            while len(turns._waiting) < arrived:  # so that they arrive one after the other
                time.sleep(0.001)
    for thread in threads:
        thread.join(60)
    assert (most, order) == (1, [0, 1, 2, 3, 4])


def test_who_waited_long_enough_goes_without_a_place_and_leaves_none_behind() -> None:
    turns = Turns(1)
    with turns.take(60):
        started = time.monotonic()
        with turns.take(0.05) as held:
            assert not held and time.monotonic() - started >= 0.05
    with turns.take(0) as held:
        assert held
