"""Delays before retries."""

from __future__ import annotations

import random

LONGEST_SECONDS = 30.0


def pause(
    tries: int, first: float, *, asked: float | None = None, longest: float = LONGEST_SECONDS
) -> float:
    """Seconds to wait before the next try, at most `longest`: the delay that the endpoint `asked`
    for, else `first` doubled for each of the `tries` so far, with a jitter of a quarter.
    """
    return min(longest, first * 2**tries * random.uniform(0.75, 1.25) if asked is None else asked)


def retry_after(header: str) -> float | None:
    """The seconds of a Retry-After header; None if it is absent, a date or invalid."""
    return float(header) if header.replace(".", "", 1).isdecimal() else None
