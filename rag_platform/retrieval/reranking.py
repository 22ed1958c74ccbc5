"""The last order of the hits: a reranker's, or the fusion's where none is configured, with soft preferences on top."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_platform.ir import Hit
from rag_platform.retrieval.fusion import min_max


@dataclass(frozen=True)
class NoReranking:
    """Off is not absent: the order of the fusion, and `rerank_applied=false` in its span."""

    VERSION: ClassVar[str] = "1"
    APPLIES: ClassVar[bool] = False

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The hits as they came."""
        return list(hits)


def boosted(hits: Sequence[Hit], signals: Mapping[str, Collection[str]], weight: float = 0.1) -> list[Hit]:
    """The hits reordered by soft preferences; none is dropped and no score is changed.

    `signals` maps a preference to the chunk ids that have it; each adds `weight` of the score range, and a chunk without
    the field gets no boost (seed 000 §3.2.5.2.1). Ties keep the former order.
    """
    if not hits or not signals:
        return list(hits)
    base = min_max([hit.score for hit in hits])
    final = [score + weight * sum(hit.chunk_id in ids for ids in signals.values()) for score, hit in zip(base, hits, strict=True)]
    order = sorted(range(len(hits)), key=lambda i: (-round(final[i], 12), i))
    return renumbered([hits[i] for i in order])


def renumbered(hits: Sequence[Hit]) -> list[Hit]:
    """The hits with ranks 1, 2, 3, ... in their present order."""
    return [hit if hit.rank == rank else dataclasses.replace(hit, rank=rank) for rank, hit in enumerate(hits, 1)]
