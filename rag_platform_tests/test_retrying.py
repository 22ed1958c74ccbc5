"""Waits grow from try to try with a quarter of chance, and an endpoint that asks for one is
believed within reason.
"""

from __future__ import annotations

import math
import random

import pytest

from rag_platform import retrying
from rag_platform.retrying import pause, retry_after


@pytest.mark.parametrize(
    ("chance", "waits"), [(0.0, [0.375, 0.75, 1.5]), (1.0, [0.625, 1.25, 2.5])]
)
def test_waits_double_and_spread(
    monkeypatch: pytest.MonkeyPatch, chance: float, waits: list[float]
) -> None:
    monkeypatch.setattr(retrying.random, "uniform", lambda low, high: low + (high - low) * chance)
    assert [pause(tries, 0.5) for tries in range(3)] == waits


def test_two_that_failed_together_do_not_come_back_together() -> None:
    random.seed(1)
    assert len({pause(0, 0.5) for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("asked", "longest", "waits"),
    [(7.5, 30.0, 7.5), (0.0, 30.0, 0.0), (3600.0, 30.0, 30.0), (3600.0, math.inf, 3600.0)],
)
def test_what_is_asked_for_counts_up_to_the_longest(
    asked: float, longest: float, waits: float
) -> None:
    assert pause(5, 0.5, asked=asked, longest=longest) == waits


def test_no_wait_is_longer_than_the_longest() -> None:
    assert pause(20, 0.5) == 30.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        ("0.5", 0.5),
        ("", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("-3", None),
        ("1.2.3", None),
        ("²", None),
    ],
)
def test_a_header_asks_in_seconds(header: str, seconds: float | None) -> None:
    assert retry_after(header) == seconds
