"""How long to wait before what failed is tried again."""

from __future__ import annotations

import random

LONGEST_SECONDS = 30.0


def pause(
    tries: int, first: float, *, asked: float | None = None, longest: float = LONGEST_SECONDS
) -> float:
    """Seconds to wait before another try after the first one and `tries` more have failed, at most
    `longest`.

    What the endpoint asks for counts; else `first` seconds, twice as many from try to try, and up
    to a quarter more or less, so that many who failed together do not come back together.
    """
    return min(longest, first * 2**tries * random.uniform(0.75, 1.25) if asked is None else asked)


def retry_after(header: str) -> float | None:
    """The seconds that a Retry-After header asks for; None where it is absent, a date or nothing
    that can be read.
    """
    return float(header) if header.replace(".", "", 1).isdecimal() else None
