"""The dense and the sparse retriever, run concurrently; where one fails, the other answers alone.
The time limit applies to the embedder, the word index and the approximate index, not to a scan of
the vectors.

Vectors are scanned exactly. The approximate index is used only where a scan is slow
(`indexes.dense.needs_ann`) and its measured recall suffices, and never with a filter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from rag_platform.config.query import RetrievalConfig
from rag_platform.errors import ProviderError
from rag_platform.indexes.dense import needs_ann
from rag_platform.ir import Candidate, EmbedderPart, Hit, Json, QueryIR
from rag_platform.observability import faults, tracing
from rag_platform.processes import limits
from rag_platform.protocols import LexicalReader, Vectors
from rag_platform.query.analysis import expected_words
from rag_platform.registry import traits
from rag_platform.retrieval.constants import (
    FULL_TRUST,
    MOST_FOREIGN_TRUST,
    NO_FOREIGN_TRUST,
    TRACED_CANDIDATES,
    TURN_SHARE,
    WEIGHED_HITS,
)
from rag_platform.retrieval.document_mentions import Mentions, unite
from rag_platform.retrieval.library import Lease
from rag_platform.retrieval.search_context import SearchContext
from rag_platform.text.terms import find_symbols

RETRIEVERS = {"dense": ("dense",), "sparse": ("sparse",), "hybrid": ("dense", "sparse")}
_OTHER = {"dense": "sparse", "sparse": "dense"}
_Outcome = list[Candidate] | Exception
_Calls = Mapping[str, Callable[[], list[Candidate]]]


@dataclass(frozen=True, slots=True)
class Access:
    """The chunks that may be searched: `allowed` (None: all) without `hidden`, which are dropped
    from the results.
    """

    allowed: frozenset[str] | None = None
    hidden: frozenset[str] = frozenset()

    def select_visible(self, found: Sequence[Candidate], k: int) -> list[Candidate]:
        """The first k that are not hidden."""
        return [candidate for candidate in found if candidate.chunk_id not in self.hidden][:k]

    def within(self, chunk_ids: frozenset[str]) -> Access:
        """The same access, restricted to these chunks."""
        return replace(
            self, allowed=chunk_ids if self.allowed is None else chunk_ids & self.allowed
        )


@dataclass(slots=True)
class Retrieved:
    """The candidates of the retrievers that ran."""

    dense: list[Candidate] = field(default_factory=list)
    sparse: list[Candidate] = field(default_factory=list)
    ran: tuple[str, ...] = ()
    mode: str = "none"  # the effective one: dense | sparse | hybrid | none
    trust: float = 1.0  # in the sparse retriever, 0 to 1
    whole: bool = False  # `sparse` has every text with a word of the question
    mentions: Mentions | None = None  # the documents that the question names


@dataclass(frozen=True, slots=True)
class _Search:
    """One search of the indexes."""

    s: SearchContext
    query: QueryIR
    access: Access
    k: int
    approximate: bool
    ends: float  # time limit, as time.monotonic()
    dense_query: Callable[[], QueryIR]  # the question for the dense retriever

    def run(self, name: str) -> list[Candidate]:
        """The candidates of the retriever `name`. Raises what the index or embedder raises."""
        lease, strategy = self.s.lease, self.s.strategy
        release = lease.release
        dense = name == "dense"
        kind, config = (
            ("dense_index", strategy.dense) if dense else ("lexical_index", strategy.lexical)
        )
        with tracing.span(
            f"stage.retrieve_{name}",
            provider_type=kind,
            provider_id=config.provider,
            **self.s.span_profile("vector_index" if dense else "sparse_index"),
            top_k=self.k,
        ) as span:
            if (release.dense if dense else release.lexical) is None:
                raise ProviderError(
                    f"release {lease.release_id} holds no {'dense' if dense else 'lexical'} index;"
                    " rebuild with encoding: hybrid",
                    code="no_index",
                )
            search = self._search_dense if dense else self._search_sparse
            found = [] if self.access.allowed == frozenset() else search(span)
            kept = self.access.select_visible(found, self.k)
            span.set(candidates=len(kept))
            listed = list_candidates(kept)
            tracing.event("retrieval.candidates", {"source": name, "candidates": listed})
            return kept

    def _search_dense(self, span: tracing.Span) -> list[Candidate]:
        lease, embedding = self.s.lease, self.s.strategy.embedding
        index, info = lease.release.dense, lease.release.manifest.embedder
        assert index is not None  # checked by `run`
        with tracing.span(
            "model.embed",
            provider_type="embedder",
            provider_id=embedding.provider,
            **self.s.span_profile("embedder"),
        ) as model:
            vector, cached = limits.run_within(
                self.ends - time.monotonic(),
                "stage.retrieve_dense",
                lambda: embed_question(self.s, self.dense_query()),
                self.s.deadline,
                quick=traits("embedder", embedding.provider).quick,
            )
            model.set(cache_hit=cached)
        found, path = index.search(
            vector,
            self.k + len(self.access.hidden),
            chunk_ids=self.access.allowed,
            approximate=self.approximate,
        )
        span.set(
            vector_index_id=self.s.strategy.dense.provider,
            embedder_id=info.embedder_id if info else "",
            access_path=path,
        )
        return found

    def _search_sparse(self, span: tracing.Span) -> list[Candidate]:
        release = self.s.lease.release
        assert release.lexical is not None  # checked by `run`
        span.set(
            fts_profile_id=release.manifest.index_profile,
            access_path="all" if self.access.allowed is None else "ids",
        )
        if self.query.translated:
            span.set(words=self.query.translated)
        found: list[Candidate] = release.lexical.search(
            self.query.sparse_query,
            self.k + len(self.access.hidden),
            expansions=self.query.expansions,
            phrases=self.query.phrases,
            chunk_ids=self.access.allowed,
        )
        return found


def embed_question(s: SearchContext, query: QueryIR) -> tuple[Vectors, bool]:
    """(unit vector, whether it was cached). For a question in a language that no text is in, the
    parts of a joined embedder are weighted by `foreign_weights`: the best part within a language
    need not be the best across languages. If only texts of another language may have the answer,
    they are weighted by `mixed_weights`, for a part may prefer any text in that of the question.
    """
    vector, cached = s.library.query_vector(s.strategy.embedding, query.dense_text)
    info, config = s.lease.release.manifest.embedder, s.strategy.retrieval
    if info is None or query.language == "und":
        return vector, cached
    if not s.lease.holds_language(query.language):
        weights = config.foreign_weights
    else:
        weights = config.mixed_weights if query.translated else ()
    return (weigh_parts(vector, info.parts, weights) if weights else vector), cached


def weigh_parts(
    vector: Vectors, parts: Sequence[EmbedderPart], weights: Sequence[float]
) -> Vectors:
    """The joined vector with other weights of its parts, of length 1. In the cosine with a stored
    vector each part counts by the square of its weight.
    """
    import numpy as np  # slow to import; commands without a question do not need it

    # the stored and the given vector both have their parts multiplied by `part.weight`
    factors = [(weight / part.weight) ** 2 for weight, part in zip(weights, parts, strict=True)]
    weighed = vector * np.repeat(np.array(factors, np.float32), [part.dim for part in parts])
    unit: Vectors = weighed / np.linalg.norm(weighed)
    return unit


def retrieve(
    s: SearchContext,
    query: QueryIR,
    mode: str,
    access: Access,
    pool_k: int,
    dense_query: Callable[[], QueryIR] | None = None,
) -> Retrieved:
    """The candidates of the retrievers of `mode`, at most `pool_k` each, without hidden ones.
    `dense_query` returns the question for the dense retriever, if that is another.

    If a retriever fails, or the release has no index for it, the other one answers alone: flags
    `dense_failed` or `sparse_failed`, `retrieval_mode_effective`, and a warning. If none is left,
    the result is empty and `flags["error"]` has the reason.
    """
    lease, config = s.lease, s.strategy.retrieval
    approximate = False
    with s.attempt("plan", "the access path could not be planned (%s); all vectors are scanned"):
        approximate = choose_approximate(s, access)
    ends = time.monotonic() + config.stage_seconds
    search = _Search(s, query, access, pool_k, approximate, ends, dense_query or (lambda: query))
    has = {"dense": lease.release.dense is not None, "sparse": lease.release.lexical is not None}
    wanted = list(RETRIEVERS[mode])
    if mode == "hybrid" and not all(has.values()):
        # a strategy may build one index only, so this is no failure
        wanted = [name for name in wanted if has[name]]
        missing = "dense" if has["sparse"] else "lexical"
        s.warnings.append(
            f"release {lease.release_id} holds no {missing} index; asked the {wanted[0]} retriever"
            " alone"
        )
    outcomes: dict[str, _Outcome] = {}
    # a scan takes some milliseconds, so switching threads would add a noticeable part
    in_this_thread = "" if approximate else "dense"
    # waiting for a remote embedder must not block a slot for searches
    remote = traits("embedder", s.strategy.embedding.provider).remote
    turn = s.deadline.left(TURN_SHARE * config.stage_seconds)
    with nullcontext(False) if remote else limits.searches.take(turn):
        while wanted:
            calls = {name: partial(search.run, name) for name in wanted}
            outcomes |= _run_concurrently(s, calls, ends, in_this_thread)
            wanted = [
                other
                for name, outcome in outcomes.items()
                if isinstance(outcome, Exception)
                and (other := _OTHER[name]) not in outcomes
                and has[other]
            ]
    result = _gather(outcomes)
    result.whole = len(result.sparse) < pool_k
    _report(s, mode, result, outcomes)
    if result.mode == "hybrid":
        with s.attempt(
            "trust",
            "the sparse weight could not be measured (%s); both retrievers count alike",
        ):
            foreign = is_foreign(lease, query)
            result.trust = measure_trust(
                lease.release.lexical, query, result.sparse, foreign=foreign
            )
    return result


def prefers_approximate(rows: int, dim: int, recall: float | None, config: RetrievalConfig) -> bool:
    """True where a scan of the vectors would be slow and the approximate index has enough recall; a
    configured `exact_scan_rows` decides alone.
    """
    suffices = recall is not None and recall >= config.ann_recall
    return needs_ann(rows, dim, config) and (config.exact_scan_rows is not None or suffices)


def choose_approximate(s: SearchContext, access: Access) -> bool:
    """Whether to use the approximate index, never with a filter. Traces the plan."""
    release = s.lease.release
    counts, embedder = release.manifest.counts, release.manifest.embedder
    approximate = (
        access.allowed is None
        and release.dense is not None
        and release.dense.has_ann
        and prefers_approximate(
            int(counts.get("dense", 0)),
            embedder.dim if embedder else 0,
            counts.get("ann_recall"),
            s.strategy.retrieval,
        )
    )
    tracing.event(
        "retrieval.plan",
        {
            "dense": "ann" if approximate else "exact",
            "sparse": "all" if access.allowed is None else "ids",
            "allowed": None if access.allowed is None else len(access.allowed),
        },
    )
    return approximate


def search_with_feedback(
    s: SearchContext, query: QueryIR, access: Access, found: Retrieved, fused: Sequence[Candidate]
) -> list[Candidate]:
    """As many dense candidates as before, for the question's vector moved towards its best hits:
    q + weight * their mean vector, normalised to length 1.

    Pseudo-relevance feedback in the vector space (Rocchio 1971; for dense retrievers Li et al.,
    TOIS 2023), without a call of a model. With `feedback_scope: pool` only the fused candidates are
    scored again; else the best of mentioned documents are added. Empty when none of the best hits
    has a vector.
    """
    import numpy as np  # slow to import; commands without a question do not need it

    config, index = s.strategy.retrieval, s.lease.release.dense
    assert index is not None  # both retrievers have run
    ids = [candidate.chunk_id for candidate in fused]
    nearest = index.first_vectors(ids, config.feedback_hits)
    if not len(nearest):
        return []
    vector, _ = embed_question(s, query)
    moved = vector + config.feedback_weight * nearest.mean(axis=0)
    moved /= np.linalg.norm(moved)
    if config.feedback_scope == "pool":
        # a list, because the index caches the rows of a frozenset, which should be a filter's
        return index.search(moved, len(ids), chunk_ids=ids)[0]
    k = len(found.dense)

    def search(access: Access, approximate: bool = False) -> list[Candidate]:
        candidates, _ = index.search(
            moved, k + len(access.hidden), chunk_ids=access.allowed, approximate=approximate
        )
        return access.select_visible(candidates, k)

    everywhere = search(access, choose_approximate(s, access))
    if found.mentions is None:
        return everywhere
    return unite(everywhere, search(access.within(found.mentions.meant)))


def search_within(
    s: SearchContext, query: QueryIR, access: Access, found: Retrieved, k: int
) -> Retrieved:
    """`found`, with the k best candidates of each retriever within the mentioned documents, which
    other documents may have crowded out.
    """
    if found.mentions is None or len(found.ran) < 2:
        return found
    inside = s.fork()
    more = retrieve(inside, query, "hybrid", access.within(found.mentions.meant), k)
    for warning in inside.warnings:
        s.record_failure("naming", warning, "inside the documents that the question names, %s")
    return replace(
        found, dense=unite(found.dense, more.dense), sparse=unite(found.sparse, more.sparse)
    )


def score_translated(s: SearchContext, query: QueryIR, found: Retrieved) -> Retrieved:
    """`found`, with dense scores for what only the translated words found: across languages, the
    lowest of the dense scores says too little of a text that is not among the nearest.
    """
    index = s.lease.release.dense
    assert index is not None  # both retrievers have run
    known = {candidate.chunk_id for candidate in found.dense}
    others = [it.chunk_id for it in found.sparse if it.chunk_id not in known]
    if not others:
        return found
    vector, _ = embed_question(s, query)
    scored, _ = index.search(vector, len(others), chunk_ids=others)
    return replace(found, dense=unite(found.dense, scored))


def measure_trust(
    index: LexicalReader | None,
    query: QueryIR,
    sparse: Sequence[Candidate],
    *,
    foreign: bool = False,
) -> float:
    """How far to trust the sparse retriever, 0 to 1, by r: the mean score of its three best hits
    over the score of a text with all of the question's words.

    The trust is r / FULL_TRUST, at most 1; nineteen in twenty questions of six monolingual sets
    exceed FULL_TRUST by far. A `foreign` question, in a language that no text is in, shares only
    names with the texts: its trust begins at NO_FOREIGN_TRUST and ends at one half, and its
    function words count in r although they are not searched for, since the texts surely lack them.
    Of XQuAD's English questions three in four stay below r = .14 on the Chinese paragraphs, nine in
    ten below .2. Where its words were translated, it is one half.
    """
    if index is None or not sparse:
        return 0.0
    if query.translated:
        return MOST_FOREIGN_TRUST
    best = [candidate.score for candidate in sparse[:WEIGHED_HITS]]
    most = index.full_match_score(expected_words(query) if foreign else query.sparse_query)
    r = sum(best) / len(best) / most if most > 0 else 0.0
    if foreign:
        share = min(1.0, max(0.0, (r - NO_FOREIGN_TRUST) / FULL_TRUST))
        return round(MOST_FOREIGN_TRUST * share, 4)
    return round(min(1.0, r / FULL_TRUST), 4)


def is_foreign(lease: Lease, query: QueryIR) -> bool:
    """True for a question in a language that no text is in. A question without function words may
    consist of names, and one with an identifier or a symbol matches it in any language: both are
    False.
    """
    return (
        query.sparse_query != query.normalised
        and not query.identifiers
        and not find_symbols(query.original)
        and query.language != "und"
        and not lease.holds_language(query.language)
    )


def _run_concurrently(
    s: SearchContext, calls: _Calls, ends: float, in_this_thread: str
) -> dict[str, _Outcome]:
    """The candidates or the error of each retriever; only `in_this_thread` runs in this thread."""
    # sparse first: it takes longer, and soon releases the interpreter's lock
    waiting = [name for name in reversed(list(calls)) if name != in_this_thread]
    futures = {name: limits.start(calls[name]) for name in waiting}
    outcomes: dict[str, _Outcome] = {}
    for name, call in calls.items():  # dense first
        stage = f"stage.retrieve_{name}"
        with faults.Attempt(stage) as attempt:
            outcomes[name] = (
                limits.wait(futures[name], max(0.0, ends - time.monotonic()), stage, s.deadline)
                if name in futures
                else call()
            )
        if attempt.error is not None:
            outcomes[name] = attempt.error
    return outcomes


def _gather(outcomes: Mapping[str, _Outcome]) -> Retrieved:
    found = {name: item for name, item in outcomes.items() if not isinstance(item, Exception)}
    mode = "hybrid" if len(found) == 2 else next(iter(found), "none")
    return Retrieved(
        found.get("dense", []), found.get("sparse", []), ran=tuple(sorted(found)), mode=mode
    )


def _report(
    s: SearchContext, mode: str, result: Retrieved, outcomes: Mapping[str, _Outcome]
) -> None:
    """Record failures in the flags, the warnings and the trace."""
    errors = {name: item for name, item in outcomes.items() if isinstance(item, Exception)}
    fallback = f"; answered by the {result.mode} retriever alone" if result.mode != "none" else ""
    for name, error in errors.items():
        s.record_failure(name, error, f"the {name} retriever failed (%s){fallback}")
    s.flags["retrieval_mode_effective"] = result.mode
    if result.mode == "none":
        fields = [tracing.error_fields(error) for error in errors.values()]
        s.flags["error"] = {
            "code": "provider_error",
            "message": "; ".join(item["message"] for item in fields),
            "causes": [item["code"] for item in fields],
        }
    if errors:
        tracing.event(
            "query.fallback",
            {"mode": mode, "retrieval_mode_effective": result.mode, "failed": sorted(errors)},
        )


def list_candidates(
    candidates: Sequence[Candidate] | Sequence[Hit], most: int = TRACED_CANDIDATES
) -> list[Json]:
    """The first candidates in the form of trace events."""
    return [
        {"chunk_id": c.chunk_id, "score": round(c.score, 6), "source": c.source}
        for c in candidates[:most]
    ]


def measure_overlap(dense: Sequence[Candidate], sparse: Sequence[Candidate], k: int = 10) -> float:
    """`dense_topk_overlap_sparse`: the share of the first k of one retriever that are among the
    first k of the other; 0 without candidates.
    """
    left, right = ({candidate.chunk_id for candidate in found[:k]} for found in (dense, sparse))
    return round(len(left & right) / max(1, min(k, max(len(left), len(right)))), 4)
