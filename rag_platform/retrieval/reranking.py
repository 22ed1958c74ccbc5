"""The final order of the hits. A reranker only returns scores; which hits it reads, how ties are
broken and which scores are shown is decided here.
"""

from __future__ import annotations

import dataclasses
import math
import time
from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

from rag_platform.config.query import RerankConfig
from rag_platform.errors import ProviderError
from rag_platform.ir import Hit, Json, QueryIR
from rag_platform.protocols import Reranker
from rag_platform.registry import traits_of
from rag_platform.retrieval.fusion import min_max, z_score
from rag_platform.traits import Traits


@dataclass(frozen=True)
class NoReranking:
    """No reranking: the order of the fusion, and `rerank_applied=false` in the span."""

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(applies=False, quick=True)

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        """The present scores of the hits."""
        return [hit.score for hit in hits]


def apply_reranker(
    reranker: Reranker,
    config: RerankConfig,
    query: QueryIR,
    hits: Sequence[Hit],
    *,
    rerank_k: int = 0,
) -> list[Hit]:
    """The hits in the reranker's order, ranks from 1, at most `rerank_k` of them (0: all).

    It scores the first `config.top_n` hits, `config.batch_size` at a time if it is pointwise; the
    others follow in their order with the lowest of these scores. Ties keep the former order, then
    chunk_id. Scores are shown unchanged (`config.score_mode` is `raw`), mapped by
    `config.normalize`, or as 1 / rank; hits below `config.score_threshold` are dropped. Raises what
    the reranker raises, ProviderError `bad_output` unless it returns one finite number for each
    hit, and `deadline` when `config.timeout_ms` has passed before its last batch.
    """
    if not traits_of(reranker).applies or not hits:
        return renumber(hits[:rerank_k] if rerank_k else hits)
    read, rest = list(hits[: config.top_n]), hits[config.top_n :]
    scores = _scores(reranker, config, query, read)
    order = sorted(
        range(len(read)), key=lambda i: (-round(scores[i], 12), read[i].rank, read[i].chunk_id)
    )
    visible = _map_scores(scores, config)
    shown = [visible[i] for i in order]
    ordered = [*(read[i] for i in order), *rest]
    if config.score_mode == "rank":
        shown = [1 / rank for rank in range(1, len(ordered) + 1)]
    else:
        shown += [shown[-1]] * len(rest)
    found = [
        _place(hit, rank, score)
        for rank, (hit, score) in enumerate(zip(ordered, shown, strict=True), 1)
    ]
    if (threshold := config.score_threshold) is not None:
        found = [hit for hit in found if hit.score >= threshold]
    return renumber(found[:rerank_k] if rerank_k else found)


def _scores(
    reranker: Reranker, config: RerankConfig, query: QueryIR, hits: Sequence[Hit]
) -> list[float]:
    step = config.batch_size if traits_of(reranker).pointwise else len(hits)
    scores: list[float] = []
    ends = time.monotonic() + config.timeout_ms / 1000
    for start in range(0, len(hits), step):
        # the caller has stopped waiting
        if start and time.monotonic() > ends:
            raise ProviderError(
                f"reranking took longer than {config.timeout_ms} ms (reranker.timeout_ms)",
                code="deadline",
                scored=start,
            )
        part = hits[start : start + step]
        output = list(reranker.score(query, part))
        invalid = [
            score
            for score in output
            if not isinstance(score, (int, float)) or not math.isfinite(score)
        ]
        if invalid or len(output) != len(part):
            what = (
                f"the score {invalid[0]!r}"
                if invalid
                else f"{len(output)} scores for {len(part)} hits"
            )
            raise ProviderError(
                f"the reranker {type(reranker).__name__} gave {what}; every hit needs one finite"
                " number",
                code="bad_output",
            )
        scores += map(float, output)
    return scores


def _map_scores(scores: Sequence[float], config: RerankConfig) -> list[float]:
    """The scores that are shown; every mapping is monotonic."""
    return (
        list(scores) if config.score_mode != "normalize" else NORMALIZERS[config.normalize](scores)
    )


def sigmoid(scores: Sequence[float]) -> list[float]:
    """1 / (1 + exp(-s)) of each, 0 to 1."""
    return [
        1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))
        for score in scores
    ]


def softmax(scores: Sequence[float]) -> list[float]:
    """exp(s) over the sum of all exp(s): shares that add up to 1."""
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    return [weight / math.fsum(weights) for weight in weights]


NORMALIZERS = {"min_max": min_max, "sigmoid": sigmoid, "softmax": softmax, "zscore": z_score}


def movement(before: Sequence[str], after: Sequence[str]) -> Json:
    """How far the order changed, over the ids in both lists: `moved` (how many), `max_up`,
    `max_down` (places), `kendall_tau` (Kendall, Biometrika 1938; 1 for fewer than two ids).
    """
    kept = set(after)
    old = {
        chunk_id: place for place, chunk_id in enumerate(item for item in before if item in kept)
    }
    places = [old[chunk_id] for chunk_id in after if chunk_id in old]
    shifts = [place - now for now, place in enumerate(places)]  # above 0: it rose
    pairs = len(places) * (len(places) - 1) // 2
    seen: list[int] = []
    swapped = 0
    for place in places:
        swapped += len(seen) - bisect_left(seen, place)
        insort(seen, place)
    return {
        "moved": sum(shift != 0 for shift in shifts),
        "max_up": max(shifts, default=0),
        "max_down": -min(shifts, default=0),
        "kendall_tau": round(1 - 2 * swapped / pairs, 4) if pairs else 1.0,
    }


def boost(
    hits: Sequence[Hit], signals: Mapping[str, Collection[str]], weight: float = 0.1
) -> list[Hit]:
    """The hits reordered by soft preferences; scores are unchanged.

    `signals` maps a preference to the chunk ids that satisfy it; each adds `weight` times the score
    range. Ties keep the former order.
    """
    if not hits or not signals:
        return list(hits)
    base = min_max([hit.score for hit in hits])
    final = [
        score + weight * sum(hit.chunk_id in ids for ids in signals.values())
        for score, hit in zip(base, hits, strict=True)
    ]
    order = sorted(range(len(hits)), key=lambda i: (-round(final[i], 12), i))
    return renumber([hits[i] for i in order])


def renumber(hits: Sequence[Hit]) -> list[Hit]:
    """The hits with ranks 1, 2, 3, ... in their present order."""
    return [
        hit if hit.rank == rank else _place(hit, rank, hit.score)
        for rank, hit in enumerate(hits, 1)
    ]


_AFTER_SCORE = attrgetter(*[field.name for field in dataclasses.fields(Hit)][3:])


def _place(hit: Hit, rank: int, score: float) -> Hit:
    """The hit with another rank and score, three times as fast as `dataclasses.replace`."""
    return Hit(rank, hit.chunk_id, score, *_AFTER_SCORE(hit))
