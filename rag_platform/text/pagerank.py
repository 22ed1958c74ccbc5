"""PageRank, by which words and sentences are ranked in the graphs of their texts (TextRank)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DAMPING = 0.85  # Brin and Page 1998


def pagerank(
    moves: NDArray[np.floating], jump: NDArray[np.floating], *, rounds: int, tolerance: float = 0.0
) -> NDArray[np.float64]:
    """The rank [n] of each node: (1 - DAMPING) * jump + DAMPING * moves @ rank, from `jump` on.

    `moves[i, j]` is the share of node j's rank that goes to node i. Ends after so many rounds, or
    once no rank changes by as much as the tolerance.
    """
    rank = np.asarray(jump, dtype=np.float64)
    damped, rest = DAMPING * moves, (1.0 - DAMPING) * rank
    for _ in range(rounds):
        last, rank = rank, rest + damped @ rank
        if np.abs(rank - last).max() < tolerance:
            break
    return rank
