"""The two legs of the search: planned access, both at once, each within its deadline, one falling
back on the other.

How the indexes are asked: the cheapest way that finds what it should, by what each way costs.

The costs were measured by `bench/query.py --costs` over 104,000 chunks of 384 numbers (one thread
of a 2-core server, milliseconds of its processor): a scan of all rows 7 to 10 and narrowed by
bounds 3.0, of 10,000 rows 2.2; a Chroma query 2.2; a tantivy search 4.9 however many hits are
fetched, and 0.0045 for each of them; the same search restricted to 10, 100 and 1,000 ids 2.3, 9.0
and 16, because a set of ids is compiled anew for every segment. They only have to be right beside
each other: another machine scales them all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from rag_platform.config.query import RetrievalConfig
from rag_platform.config.settings import Strategy
from rag_platform.errors import ProviderError
from rag_platform.indexes.dense import SCAN_MS, SLOW_SCAN_MS
from rag_platform.ir import Candidate, Json, QueryIR
from rag_platform.observability import faults, tracing
from rag_platform.observability.tracing import Span
from rag_platform.processes import limits
from rag_platform.processes.limits import Deadline
from rag_platform.protocols import LexicalReader
from rag_platform.registry import provider_version, traits
from rag_platform.retrieval.document_mentions import Named, united
from rag_platform.retrieval.fallbacks import Fallbacks
from rag_platform.retrieval.library import Lease, Library

LEGS = {"dense": ("dense",), "sparse": ("sparse",), "hybrid": ("dense", "sparse")}
_FALLBACK = {"dense": "sparse", "sparse": "dense"}
FULL_TRUST = 0.15
NO_FOREIGN_TRUST, MOST_FOREIGN_TRUST = 0.15, 0.5
# candidates of a leg that its event lists: rerankers read fewer; fifty made half of a trace
_TRACED = 30


@dataclass(frozen=True, slots=True)
class Access:
    """What may be searched: `allowed` is None for everything; `hidden` is dropped after the
    search.
    """

    allowed: frozenset[str] | None = None
    hidden: frozenset[str] = frozenset()

    def shown(self, found: Sequence[Candidate], k: int) -> list[Candidate]:
        """The first k that are not hidden."""
        return [candidate for candidate in found if candidate.chunk_id not in self.hidden][:k]


@dataclass(slots=True)
class Retrieved(Fallbacks):
    """The candidates of the legs that ran, and what went wrong on the way."""

    dense: list[Candidate] = field(default_factory=list)
    sparse: list[Candidate] = field(default_factory=list)
    ran: tuple[str, ...] = ()
    mode: str = "none"  # dense | sparse | hybrid | none: what was effective
    trust: float = 1.0  # in the sparse leg, 0 to 1
    named: Named | None = None  # the documents that the question names, whose chunks are preferred


def retrieve(
    library: Library,
    lease: Lease,
    strategy: Strategy,
    query: QueryIR,
    mode: str,
    access: Access,
    pool_k: int,
    *,
    deadline: Deadline | None = None,
) -> Retrieved:
    """Candidates of the legs that `mode` asks for, at most `pool_k` each, hidden chunks left out.

    A leg that fails or that the release does not have falls back on the other one: flags
    `dense_failed`, `sparse_failed`, `retrieval_mode_effective`, and a warning. When none is left
    the result is empty and `flags["error"]` says why.
    """
    run: dict[str, Callable[[Span], list[Candidate]]] = {
        "dense": lambda span: _dense(library, lease, strategy, query, access, plan, pool_k, span),
        "sparse": lambda span: _sparse(lease, query, access, plan, pool_k, span),
    }
    result = Retrieved()
    plan = AccessPlan(
        "exact", "all" if access.allowed is None else "ids", pool_k + len(access.hidden), {}
    )
    with result.attempt(
        "plan",
        "the cheapest way to ask the indexes could not be told (%s); they are asked the plain way",
    ):
        plan = _planned(lease, strategy, access, pool_k)
    has = {"dense": lease.release.dense is not None, "sparse": lease.release.lexical is not None}
    errors: dict[str, BaseException] = {}
    wanted = list(LEGS[mode])
    if mode == "hybrid" and not all(has.values()):
        # an encoding without one index is a decision of the strategy, not a failure
        wanted = [leg for leg in wanted if has[leg]]
        missing = "dense" if has["sparse"] else "lexical"
        result.warnings.append(
            f"release {lease.release_id} holds no {missing} index; asked the {wanted[0]} leg alone"
        )
    done: list[str] = []
    ends = time.monotonic() + strategy.retrieval.stage_seconds
    # a search would hold its place and its thread for nothing while an embedder on another machine
    # works
    remote = traits("embedder", strategy.embedding.provider).remote
    with nullcontext(False) if remote else _turn(strategy, deadline):
        while wanted:
            calls = {
                leg: _leg(leg, lease, strategy, run[leg], has[leg], access, pool_k)
                for leg in wanted
            }
            if (
                len(calls) == 2
                and not remote
                and limits.searches.is_crowded(2 * library.load.running)
            ):
                _in_turn(calls, ends, deadline, result, errors, done)
            else:
                # the words take longer, and soon leave the lock
                futures = {leg: limits.start(calls[leg]) for leg in reversed(calls)}
                for leg in calls:
                    _collect(
                        leg,
                        futures[leg],
                        max(0.0, ends - time.monotonic()),
                        deadline,
                        result,
                        errors,
                        done,
                    )
            wanted = [
                _FALLBACK[leg]
                for leg in errors
                if _FALLBACK[leg] not in (*done, *errors) and has[_FALLBACK[leg]]
            ]
    result.ran = tuple(sorted(done))
    result.mode = "hybrid" if len(done) == 2 else done[0] if done else "none"
    if len(done) == 2:
        with result.attempt(
            "trust",
            "how far the words may be believed could not be told (%s); both legs count alike",
        ):
            result.trust = trust_in_words(
                lease.release.lexical, query, result.sparse, foreign=_is_foreign(lease, query)
            )
    _report(mode, result, errors)
    return result


def _turn(strategy: Strategy, deadline: Deadline | None) -> AbstractContextManager[bool]:
    """A place among the searches that run at once."""
    seconds = strategy.retrieval.stage_seconds / 4  # the rest is for the search itself
    return limits.searches.take(seconds if deadline is None else deadline.left(seconds))


def asked_again(
    library: Library,
    lease: Lease,
    strategy: Strategy,
    query: QueryIR,
    fused: Sequence[Candidate],
    access: Access,
    k: int,
    named: Named | None = None,
) -> list[Candidate]:
    """The dense leg's k candidates for the question moved towards its best hits: q + weight * their
    mean vector, of length 1.

    Pseudo-relevance feedback in the vector space (Rocchio 1971; for dense retrievers Li et al.,
    TOIS 2023): no model is called. With `feedback_scope: pool` only what was found is scored again,
    else the k best of named documents are among the candidates, too. Empty when none of the best
    hits has a vector.
    """
    import numpy as np  # not to be paid for by a command that asks nothing

    config, index = strategy.retrieval, lease.release.dense
    assert index is not None  # the caller's legs both ran
    known = index.held(candidate.chunk_id for candidate in fused)
    if not known:
        return []
    vector, _ = library.query_vector(strategy.embedding, query.dense_query_text)
    moved = vector + config.feedback_weight * index.vectors_of(known[: config.feedback_hits]).mean(
        axis=0
    )
    moved /= np.linalg.norm(moved)
    if config.feedback_scope == "pool":
        # no set, whose rows would be kept in place of a filter's
        return index.search(moved, len(known), chunk_ids=known)[0]
    plan = _planned(lease, strategy, access, k)
    found, _ = index.search(
        moved, k + len(access.hidden), chunk_ids=access.allowed, approximate=plan.dense == "ann"
    )
    kept = access.shown(found, k)
    if named is None:
        return kept
    inside, _ = index.search(
        moved, k + len(access.hidden), chunk_ids=_inside(named, access).allowed
    )
    return united(kept, access.shown(inside, k))


def asked_inside(
    library: Library,
    lease: Lease,
    strategy: Strategy,
    query: QueryIR,
    found: Retrieved,
    named: Named,
    access: Access,
    k: int,
    *,
    deadline: Deadline | None = None,
) -> tuple[Retrieved, list[str]]:
    """(what was found, and the k best of each leg within the documents that the question names,
    which others may have crowded out; what failed there).
    """
    if len(found.ran) < 2:
        return replace(found, named=named), []
    more = retrieve(
        library, lease, strategy, query, "hybrid", _inside(named, access), k, deadline=deadline
    )
    return (
        replace(
            found,
            dense=united(found.dense, more.dense),
            sparse=united(found.sparse, more.sparse),
            named=named,
        ),
        more.warnings,
    )


def _inside(named: Named, access: Access) -> Access:
    return Access(
        named.chunk_ids if access.allowed is None else named.chunk_ids & access.allowed,
        access.hidden,
    )


def trust_in_words(
    index: LexicalReader | None,
    query: QueryIR,
    sparse: Sequence[Candidate],
    *,
    foreign: bool = False,
) -> float:
    """How far the word leg may be believed, 0 to 1, by r: what its three best hits score of what a
    text with the question's words could.

    It grows with r up to 1 from FULL_TRUST on, which nineteen in twenty questions of six sets in
    one language reach by far. For a sentence in a language that no text is in it begins at
    NO_FOREIGN_TRUST and ends at half of it: what such questions share with texts are names. There
    function words count in r though they are not looked for, because they are what the texts lack
    most surely: of XQuAD's English questions three in four stay below .14 on the Chinese paragraphs
    and nine in ten below .2.
    """
    if index is None or not sparse:
        return 0.0
    best = [candidate.score for candidate in sparse[:3]]
    reach = index.reach((foreign and query.asked_words) or query.sparse_query_expr)
    r = sum(best) / len(best) / reach if reach > 0 else 0.0
    if foreign:
        return round(
            MOST_FOREIGN_TRUST * min(1.0, max(0.0, (r - NO_FOREIGN_TRUST) / FULL_TRUST)), 4
        )
    return round(min(1.0, r / FULL_TRUST), 4)


def _is_foreign(lease: Lease, query: QueryIR) -> bool:
    """True for a sentence in a language that the texts are not in: what they share are names, which
    say little of what is asked of them.

    A question without function words may be names alone, in any language; one with an identifier
    means what holds it.
    """
    is_sentence = bool(query.asked_text) and query.sparse_query_expr != query.asked_text
    return (
        is_sentence
        and not query.identifiers
        and query.language != "und"
        and not lease.holds(query.language)
    )


def _leg(
    leg: str,
    lease: Lease,
    strategy: Strategy,
    run: Callable[[Span], list[Candidate]],
    available: bool,
    access: Access,
    pool_k: int,
) -> Callable[[], list[Candidate]]:
    kind, config = (
        ("dense_index", strategy.dense) if leg == "dense" else ("lexical_index", strategy.lexical)
    )
    profile = lease.release.manifest.index_profile

    def traced() -> list[Candidate]:
        with tracing.span(
            f"stage.retrieve_{leg}",
            provider_type=kind,
            provider_id=config.provider,
            provider_version=provider_version(kind, config.provider),
            profile_id=profile,
            top_k=pool_k,
        ) as span:
            if not available:
                name = "dense" if leg == "dense" else "lexical"
                raise ProviderError(
                    f"release {lease.release_id} holds no {name} index; rebuild with encoding:"
                    " hybrid",
                    code="no_index",
                )
            found = [] if access.allowed is not None and not access.allowed else run(span)
            kept = access.shown(found, pool_k)
            span.set(candidates=len(kept))
            tracing.event("retrieval.candidates", {"source": leg, "candidates": listed(kept)})
            return kept

    return traced


def _dense(
    library: Library,
    lease: Lease,
    strategy: Strategy,
    query: QueryIR,
    access: Access,
    plan: AccessPlan,
    pool_k: int,
    span: Span,
) -> list[Candidate]:
    index = lease.release.dense
    assert index is not None  # _leg asked
    info = lease.release.manifest.embedder
    with tracing.span(
        "model.embed",
        provider_type="embedder",
        provider_id=strategy.embedding.provider,
        provider_version=provider_version("embedder", strategy.embedding.provider),
    ) as model:
        vector, remembered = library.query_vector(strategy.embedding, query.dense_query_text)
        model.set(cache_hit=remembered)
    found, path = index.search(
        vector,
        pool_k + len(access.hidden),
        chunk_ids=access.allowed,
        approximate=plan.dense == "ann",
    )
    span.set(
        vector_index_id=strategy.dense.provider,
        embedder_id=info.embedder_id if info else "",
        access_path=path,
    )
    return found


def _sparse(
    lease: Lease, query: QueryIR, access: Access, plan: AccessPlan, pool_k: int, span: Span
) -> list[Candidate]:
    index = lease.release.lexical
    assert index is not None  # _leg asked
    span.set(fts_profile_id=lease.release.manifest.index_profile, access_path=plan.sparse)

    def search(k: int, chunk_ids: frozenset[str] | None = None) -> list[Candidate]:
        found: list[Candidate] = index.search(
            query.sparse_query_expr,
            k,
            expansions=query.expansions,
            phrases=query.phrases,
            chunk_ids=chunk_ids,
        )
        return found

    wanted = pool_k + len(access.hidden)
    if plan.sparse != "hits" or access.allowed is None:
        return search(wanted, access.allowed)
    return _tested(search, access.allowed, wanted, plan.fetched)


def _tested(
    search: Callable[[int], list[Candidate]], allowed: frozenset[str], wanted: int, fetched: int
) -> list[Candidate]:
    """The best `wanted` of the allowed; more hits are fetched while too few of them are."""
    fetched = max(fetched, wanted, 1)
    while True:
        hits = search(fetched)
        kept = [hit for hit in hits if hit.chunk_id in allowed]
        if len(kept) >= wanted or len(hits) < fetched:
            return kept[:wanted]
        fetched *= 4


def _planned(lease: Lease, strategy: Strategy, access: Access, pool_k: int) -> AccessPlan:
    """How the legs are asked, left in the trace."""
    manifest = lease.release.manifest
    allowed = None if access.allowed is None else len(access.allowed)
    plan = plan_access(
        rows=int(manifest.counts.get("dense", 0)),
        dim=manifest.embedder.dim if manifest.embedder else 0,
        chunks=int(manifest.counts.get("lexical", 0)),
        allowed=allowed,
        k=pool_k + len(access.hidden),
        recall=manifest.counts.get("ann_recall"),
        config=strategy.retrieval,
        has_ann=lease.release.dense is not None and lease.release.dense.has_ann,
    )
    tracing.event(
        "retrieval.plan",
        {
            "dense": plan.dense,
            "sparse": plan.sparse,
            "allowed": allowed,
            "estimated_ms": plan.estimates,
        },
    )
    return plan


def _in_turn(
    calls: dict[str, Callable[[], list[Candidate]]],
    ends: float,
    deadline: Deadline | None,
    result: Retrieved,
    errors: dict[str, BaseException],
    done: list[str],
) -> None:
    """Both legs in one thread: with other questions on the other processors two threads would only
    wait for each other.

    The leg of the words goes first and has half of the time; when it hangs, the other one gets a
    thread of its own for the rest.
    """
    words, vectors = limits.start_in_turn([calls["sparse"], calls["dense"]])
    failed: dict[str, BaseException] = {}
    _collect("sparse", words, max(0.0, ends - time.monotonic()) / 2, deadline, result, failed, done)
    if not words.done() and vectors.cancel():
        vectors = limits.start(calls["dense"])
    _collect("dense", vectors, max(0.0, ends - time.monotonic()), deadline, result, failed, done)
    errors.update((leg, failed[leg]) for leg in sorted(failed))


def _collect(
    leg: str,
    future: Future[list[Candidate]],
    seconds: float,
    deadline: Deadline | None,
    result: Retrieved,
    errors: dict[str, BaseException],
    done: list[str],
) -> None:
    # what it could not give the other leg may
    with faults.Attempt(f"stage.retrieve_{leg}") as attempt:
        setattr(result, leg, limits.wait(future, seconds, f"stage.retrieve_{leg}", deadline))
        done.append(leg)
    if attempt.error is not None:
        errors[leg] = attempt.error


def _report(mode: str, result: Retrieved, errors: dict[str, BaseException]) -> None:
    for leg, error in errors.items():
        instead = f"; answered by the {result.mode} leg alone" if result.mode != "none" else ""
        result.failed(leg, error, f"the {leg} leg failed (%s){instead}")
    result.flags["retrieval_mode_effective"] = result.mode
    if result.mode == "none":
        fields = [tracing.error_fields(error) for error in errors.values()]
        message = "; ".join(item["message"] for item in fields)
        result.flags["error"] = {
            "code": "provider_error",
            "message": message,
            "causes": [item["code"] for item in fields],
        }
    if errors:
        tracing.event(
            "query.fallback",
            {"mode": mode, "retrieval_mode_effective": result.mode, "failed": sorted(errors)},
        )


def listed(candidates: Sequence[Candidate]) -> list[Json]:
    """Candidates as events show them."""
    return [
        {"chunk_id": c.chunk_id, "score": round(c.score, 6), "source": c.source}
        for c in candidates[:_TRACED]
    ]


def overlap(dense: Sequence[Candidate], sparse: Sequence[Candidate], k: int = 10) -> float:
    """`dense_topk_overlap_sparse`: the share of the first k of one leg that the first k of the
    other hold too; 0 without candidates.
    """
    left, right = ({candidate.chunk_id for candidate in leg[:k]} for leg in (dense, sparse))
    return round(len(left & right) / max(1, min(k, max(len(left), len(right)))), 4)


ANN_MS = 2.2
WORDS_MS = 4.7e-5  # for each chunk of the index
HIT_MS = 4.5e-3  # for each hit that is fetched and tested
SET_MS = 0.35  # times the square root of the ids in a set
_SPARE = 1.3  # so many times more hits are fetched than a filter should need


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """How each leg is asked, and what the ways were thought to cost."""

    dense: str  # exact | ann
    # all | ids (the set is part of the search) | hits (more hits are fetched, and tested)
    sparse: str
    fetched: int  # hits that the word index is asked for
    estimates: Json  # way to milliseconds


def plan_access(
    *,
    rows: int,
    dim: int,
    chunks: int,
    allowed: int | None,
    k: int,
    recall: float | None,
    config: RetrievalConfig,
    has_ann: bool = True,
) -> AccessPlan:
    """The plan for `k` candidates of `rows` vectors and `chunks` chunks of words, of which a filter
    leaves `allowed` (None: no filter).

    The vectors are scanned exactly wherever a filter is, and up to SLOW_SCAN_MS; above that the
    approximate index is asked if its measured `recall` reaches `config.ann_recall`.
    `config.exact_scan_rows`, where given, decides instead of the costs. A release without an
    approximate index (`indexes.dense.needs_ann`) is scanned.
    """
    scanned = rows if allowed is None else min(rows, allowed)
    estimates = {"exact": scanned * dim * SCAN_MS, "ann": ANN_MS}
    if config.exact_scan_rows is not None:
        approximate = rows > config.exact_scan_rows
    else:
        good = recall is not None and recall >= config.ann_recall
        approximate = (
            good and estimates["exact"] > SLOW_SCAN_MS and estimates["ann"] < estimates["exact"]
        )
    dense = "ann" if approximate and has_ann and allowed is None else "exact"
    if allowed is None:
        return AccessPlan(dense, "all", k, _rounded(estimates))
    fetched = min(chunks, math.ceil(_SPARE * k * chunks / max(1, allowed)) + k)
    estimates |= {
        "ids": chunks * WORDS_MS + SET_MS * math.sqrt(allowed),
        "hits": chunks * WORDS_MS + HIT_MS * fetched,
    }
    by_ids = estimates["ids"] <= estimates["hits"]
    return AccessPlan(
        dense, "ids" if by_ids else "hits", k if by_ids else fetched, _rounded(estimates)
    )


def _rounded(estimates: Json) -> Json:
    return {way: round(milliseconds, 2) for way, milliseconds in estimates.items()}
