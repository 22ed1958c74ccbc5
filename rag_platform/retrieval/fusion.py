"""Fusion of ranked lists: of two retrievers, of search phrasings, of namespaces.

A candidate keeps the label of its origin: `dense`, `sparse`, or `hybrid` where both retrievers
found it. Equal scores are ordered by the candidate's best rank, then by chunk_id. A candidate that
only one retriever found gets the lowest score of the other, the tightest known upper bound (the
minimum of the pool, Lee, "Analyses of Multiple Evidence Combination", SIGIR 1997). Where the sparse
list is `whole`, it has every text with a word of the question, so all other texts score 0 and the
one text with a rare word stands out. A retriever without candidates adds nothing. `trust`, 0 to 1
(`retrievers.measure_trust`), multiplies the weight of the sparse retriever, because scaling makes
the best of each list equal, even where no text has a word of the question.

Scores of two namespaces are not comparable, but the rank of a hit in its list is, and how much of
the question the namespace covers. The lists are interleaved by rank, each weighted by the square of
the share of the question's words in its first hit. With the right namespace named last of three or
four, MRR@10 keeps 91 to 99 % of its value for that namespace alone (XQuAD English and Chinese,
Cranfield, RGB Chinese, on which the weight was chosen); taking turns keeps about a quarter.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar

from rag_platform.ir import Candidate, Hit
from rag_platform.retrieval.constants import (
    BELOW_EQUALS,
    JOINED_HITS,
    MIN_NAMESPACE_SHARE,
    RANK_CONSTANT,
)
from rag_platform.text.term_overlap import coverage


@dataclass(frozen=True)
class ReciprocalRank:
    """Reciprocal rank fusion: score = sum over the retrievers of weight / (k + rank), ranks from 1
    (Cormack et al., SIGIR 2009).

    `weights` are those of the dense and of the sparse retriever; the published fusion has equal
    ones. Unlike in the other fusions, a retriever adds nothing for a candidate that it did not
    return.
    """

    VERSION: ClassVar[str] = "1"
    k: float = RANK_CONSTANT
    weights: Sequence[float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        """Raises ValueError for a k or weights that would divide by zero or reverse the order."""
        if self.k < 0:
            raise ValueError(f"k = {self.k} must not be negative; 60 is usual")
        if (
            len(self.weights) != 2
            or min(self.weights) < 0
            or max(self.weights) <= 0
            or not math.isfinite(sum(self.weights))
        ):
            raise ValueError(
                f"weights = {list(self.weights)} must be those of the dense and the sparse"
                " retriever, not negative, one above 0"
            )

    def fuse(
        self,
        dense: Sequence[Candidate],
        sparse: Sequence[Candidate],
        *,
        trust: float = 1.0,
        whole: bool = False,
    ) -> list[Candidate]:
        """Every candidate once, best first; scores from 0 to the sum of the weights / (k + 1)."""
        dense_weight, sparse_weight = self.weights
        scores: defaultdict[str, float] = defaultdict(float)
        for weight, candidates in ((dense_weight, dense), (sparse_weight * trust, sparse)):
            for rank, candidate in enumerate(candidates, 1):
                scores[candidate.chunk_id] += weight / (self.k + rank)
        return _order(dense, sparse, scores)


@dataclass(frozen=True)
class _ConvexCombination:
    """alpha * dense + (1 - alpha) * sparse, of scores scaled within each retriever."""

    VERSION: ClassVar[str] = "2"
    alpha: float = 0.5  # weight of the dense retriever

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(
                f"alpha = {self.alpha} must lie between 0 (sparse alone) and 1 (dense alone)"
            )

    def fuse(
        self,
        dense: Sequence[Candidate],
        sparse: Sequence[Candidate],
        *,
        trust: float = 1.0,
        whole: bool = False,
    ) -> list[Candidate]:
        """Every candidate once, best first; scores on the scale of `_scale`."""
        sparse_weight = (1.0 - self.alpha) * trust
        sums = dict.fromkeys([candidate.chunk_id for candidate in (*dense, *sparse)], 0.0)
        for weight, found, is_whole in (
            (1.0 - sparse_weight, dense, False),
            (sparse_weight, sparse, whole),
        ):
            if found:
                others = [0.0] * (len(sums) - len(found)) if is_whole else []
                scaled = self._scale([*(candidate.score for candidate in found), *others])
                scores = {c.chunk_id: score for c, score in zip(found, scaled, strict=False)}
                low = min(scaled)
                if low == max(scaled):  # rank what the retriever did not find below what it found
                    low -= BELOW_EQUALS
                for chunk_id in sums:
                    sums[chunk_id] += weight * scores.get(chunk_id, low)
        return _order(dense, sparse, sums)

    def _scale(self, scores: Sequence[float]) -> list[float]:
        raise NotImplementedError


@dataclass(frozen=True)
class MinMax(_ConvexCombination):
    """Convex combination of min-max scores, (s - min) / (max - min). Bruch et al., "An Analysis of
    Fusion Functions for Hybrid Retrieval", TOIS 2023.
    """

    def _scale(self, scores: Sequence[float]) -> list[float]:
        return min_max(scores)


@dataclass(frozen=True)
class ZScore(_ConvexCombination):
    """Convex combination of standard scores, (s - mean) / deviation. Montague & Aslam, "Relevance
    Score Normalization for Metasearch", CIKM 2001 (ZMUV).
    """

    def _scale(self, scores: Sequence[float]) -> list[float]:
        return z_score(scores)


def min_max(scores: Sequence[float]) -> list[float]:
    """(s - min) / (max - min); all 1 where the scores are equal."""
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]


def z_score(scores: Sequence[float]) -> list[float]:
    """(s - mean) / population deviation; all 0 where the scores are equal."""
    if min(scores) == max(scores):
        return [0.0] * len(scores)
    mean = fmean(scores)
    # statistics.pstdev is exact and slow
    deviation = math.sqrt(math.fsum([(score - mean) ** 2 for score in scores]) / len(scores))
    return [(score - mean) / deviation if deviation > 0 else 0.0 for score in scores]


def _order(
    dense: Sequence[Candidate], sparse: Sequence[Candidate], scores: Mapping[str, float]
) -> list[Candidate]:
    best_rank: dict[str, int] = {}
    origin: dict[str, str] = {}
    for candidates in (dense, sparse):
        for rank, candidate in enumerate(candidates, 1):
            chunk_id = candidate.chunk_id
            if chunk_id in origin:
                best_rank[chunk_id], origin[chunk_id] = min(rank, best_rank[chunk_id]), "hybrid"
            else:
                best_rank[chunk_id], origin[chunk_id] = rank, candidate.source
    # rounded, so that rounding errors do not decide ties
    ordered = sorted(
        [(-round(scores[chunk_id], 12), rank, chunk_id) for chunk_id, rank in best_rank.items()]
    )
    return [Candidate(chunk_id, -negative, origin[chunk_id]) for negative, _, chunk_id in ordered]


def join_phrasings(lists: Sequence[Sequence[Hit]], leading: int = 1) -> list[Hit]:
    """The hits of the question, `lists[0]`, and of its search phrasings in one order, ranks from 1,
    each with the numbers of its lists in `found_by`.

    A hit's score is the sum of 1 / (60 + rank) over the lists that have it among their first
    JOINED_HITS (Cormack et al., SIGIR 2009); ties are ordered by the best rank, then chunk_id. The
    hit with the best score and the first hit of each phrasing come first, so that every part of a
    question is represented. Where these are fewer than `leading`, the phrasings add their next hits
    in turns.
    """
    scores: dict[str, float] = {}
    best: dict[str, tuple[int, Hit]] = {}
    found_by: dict[str, list[int]] = {}
    for number, hits in enumerate(lists):
        for rank, hit in enumerate(hits, 1):
            score = 1 / (RANK_CONSTANT + rank) if rank <= JOINED_HITS else 0.0
            scores[hit.chunk_id] = scores.get(hit.chunk_id, 0.0) + score
            if score:
                found_by.setdefault(hit.chunk_id, []).append(number)
            if hit.chunk_id not in best or rank < best[hit.chunk_id][0]:
                best[hit.chunk_id] = (rank, hit)
    order = sorted(
        scores, key=lambda chunk_id: (-round(scores[chunk_id], 12), best[chunk_id][0], chunk_id)
    )
    leaders = {*order[:1], *(hits[0].chunk_id for hits in lists[1:] if hits)}
    for hit in itertools.chain.from_iterable(itertools.zip_longest(*lists[1:])):
        if len(leaders) >= leading:
            break
        if hit is not None:
            leaders.add(hit.chunk_id)
    order.sort(key=lambda chunk_id: chunk_id not in leaders)  # stable
    return [
        replace(
            best[chunk_id][1],
            rank=rank,
            score=round(scores[chunk_id], 6),
            found_by=tuple(found_by.get(chunk_id, ())),
        )
        for rank, chunk_id in enumerate(order, 1)
    ]


def merge_namespaces(questions: Sequence[str], lists: Sequence[Sequence[Hit]]) -> list[Hit]:
    """All hits of the namespaces in one order, ranks from 1, with score = weight of the namespace /
    rank in the namespace. `questions` are the question and its search phrasings.
    """
    placed: list[tuple[float, int, Hit]] = []
    for number, hits in enumerate(lists):
        weight = weigh_namespace(questions, hits)
        placed += [(round(weight / rank, 6), number, hit) for rank, hit in enumerate(hits, 1)]
    placed.sort(key=lambda item: (-item[0], item[1]))  # stable: keeps the order in a namespace
    return [replace(hit, rank=rank, score=score) for rank, (score, _, hit) in enumerate(placed, 1)]


def weigh_namespace(questions: Sequence[str], hits: Sequence[Hit]) -> float:
    """The weight of a namespace, 0.01 to 1: the square of the best coverage of one of the questions
    by its first hit. A phrasing counts because it may be in the language of the texts.
    """
    texts = [
        f"{hit.doc_title}\n{hit.section_path}\n{hit.chunk_text}\n{hit.picture_text}"
        for hit in hits[:1]
    ]
    return max(MIN_NAMESPACE_SHARE, *(coverage(it, texts) for it in questions)) ** 2
