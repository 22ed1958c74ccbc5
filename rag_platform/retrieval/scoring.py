"""Scores of vector engines on one scale from 0 to 1, whatever measure they return (seed 004, retrieval.scoring)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from rag_platform.errors import ConfigError, ProviderError

Metric = Literal["cosine_distance", "cosine_similarity", "l2", "inner_product"]
METRICS: tuple[Metric, ...] = get_args(Metric)


def similarity(value: float, metric: str, alpha: float = 1.0) -> float:
    """The score in 0..1, higher is nearer, of what an engine returned.

    cosine_distance d in 0..2: 1 - d / 2. cosine_similarity s in -1..1: (s + 1) / 2. l2 d >= 0: exp(-alpha * d), alpha the decay.
    inner_product: cut off at 0 and 1, as its range depends on the vectors. Values that rounding put outside are cut off likewise.
    Raises ConfigError for an unknown metric or an alpha that is not above 0, ProviderError for a value that is no number.

    >>> similarity(0.2, "cosine_distance"), similarity(0.8, "cosine_similarity")
    (0.9, 0.9)
    """
    if metric not in METRICS:
        raise ConfigError(f"unknown metric {metric!r}; known: {', '.join(METRICS)}")
    if not alpha > 0:
        raise ConfigError(f"alpha = {alpha} must be above 0")
    if not math.isfinite(value):
        raise ProviderError(f"the engine returned {value} as {metric}; the index may be damaged, rebuild it with `rag rebuild`",
                            code="bad_score")  # fmt: skip
    mapped = {
        "cosine_distance": 1.0 - value / 2.0,
        "cosine_similarity": (value + 1.0) / 2.0,
        "l2": math.exp(-alpha * max(value, 0.0)),
        "inner_product": value,
    }[metric]
    return min(1.0, max(0.0, mapped))


def direction(own: float, others: Sequence[float]) -> Literal["distance", "similarity"]:
    """What an engine returns, told by a search for a stored vector by itself: `own` is what it gave that vector, `others` the rest.

    A distance to oneself is 0 and smaller than to any other; a similarity to oneself is above 0 and larger. Raises ProviderError where the
    values say neither, as for an engine that does not find a vector by itself, or without others to compare with.

    >>> direction(0.0, [0.4, 1.1]), direction(1.0, [0.6, -0.1])
    ('distance', 'similarity')
    """
    if others and all(math.isfinite(value) for value in (own, *others)):
        if abs(own) < 1e-3 and own < min(others):
            return "distance"
        if own > 0 and own > max(others):
            return "similarity"
    raise ProviderError(f"a vector searched by itself got {own}, the others {list(others)[:5]}: neither a distance nor a similarity",
                        code="bad_score")  # fmt: skip
