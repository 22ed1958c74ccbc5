"""How the indexes are asked: the cheapest way that finds what it should, by what each way costs.

The costs were measured by `bench/query.py --costs` over 104,000 chunks of 384 numbers (one thread of a 2-core server, milliseconds of its
processor): a scan of all rows 7 to 10 and narrowed by bounds 3.0, of 10,000 rows 2.2; a Chroma query 2.2; a tantivy search 4.9 however many
hits are fetched, and 0.0045 for each of them; the same search restricted to 10, 100 and 1,000 ids 2.3, 9.0 and 16, because a set of ids is
compiled anew for every segment. They only have to be right beside each other: another machine scales them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rag_platform.config_query import RetrievalConfig
from rag_platform.indexes.dense import SCAN_MS, SLOW_SCAN_MS
from rag_platform.ir import Json

ANN_MS = 2.2
WORDS_MS = 4.7e-5  # for each chunk of the index
HIT_MS = 4.5e-3  # for each hit that is fetched and tested
SET_MS = 0.35  # times the square root of the ids in a set
_SPARE = 1.3  # so many times more hits are fetched than a filter should need


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """How each leg is asked, and what the ways were thought to cost."""

    dense: str  # exact | ann
    sparse: str  # all | ids (the set is part of the search) | hits (more hits are fetched, and tested)
    fetched: int  # hits that the word index is asked for
    estimates: Json  # way to milliseconds


def plan(
    *, rows: int, dim: int, chunks: int, allowed: int | None, k: int, recall: float | None, config: RetrievalConfig, has_ann: bool = True
) -> AccessPlan:  # fmt: skip
    """The plan for `k` candidates of `rows` vectors and `chunks` chunks of words, of which a filter leaves `allowed` (None: no filter).

    The vectors are scanned exactly wherever a filter is, and up to SLOW_SCAN_MS; above that the approximate index is asked if its measured
    `recall` reaches `config.ann_recall`. `config.exact_scan_rows`, where given, decides instead of the costs. A release without an
    approximate index (`indexes.dense.needs_ann`) is scanned.
    """
    scanned = rows if allowed is None else min(rows, allowed)
    estimates = {"exact": scanned * dim * SCAN_MS, "ann": ANN_MS}
    if config.exact_scan_rows is not None:
        approximate = rows > config.exact_scan_rows
    else:
        good = recall is not None and recall >= config.ann_recall
        approximate = good and estimates["exact"] > SLOW_SCAN_MS and estimates["ann"] < estimates["exact"]
    dense = "ann" if approximate and has_ann and allowed is None else "exact"
    if allowed is None:
        return AccessPlan(dense, "all", k, _rounded(estimates))
    fetched = min(chunks, math.ceil(_SPARE * k * chunks / max(1, allowed)) + k)
    estimates |= {"ids": chunks * WORDS_MS + SET_MS * math.sqrt(allowed), "hits": chunks * WORDS_MS + HIT_MS * fetched}
    by_ids = estimates["ids"] <= estimates["hits"]
    return AccessPlan(dense, "ids" if by_ids else "hits", k if by_ids else fetched, _rounded(estimates))


def _rounded(estimates: Json) -> Json:
    return {way: round(milliseconds, 2) for way, milliseconds in estimates.items()}
