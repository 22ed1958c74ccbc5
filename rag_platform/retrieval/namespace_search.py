"""A question to one namespace: from its words to at most top_k hits, each stage a span, each
failure a fallback that is told.

    query_norm -> filter -> retrieve_dense || retrieve_sparse (-> both again in named documents) ->
    fusion -> filter -> rerank

What was found is remembered under all that it depends on; a search in which something failed or was
given up is not.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rag_platform.config.settings import Strategy, canonical_json
from rag_platform.errors import InputError, ProviderError
from rag_platform.indexes.catalog import FILTERABLE
from rag_platform.ir import Candidate, Hit, Json, QueryIR
from rag_platform.observability import faults, tracing
from rag_platform.processes import limits
from rag_platform.query import analysis, filters
from rag_platform.query.filters import FilterPlan
from rag_platform.releases.release_store import Unreadable
from rag_platform.retrieval import document_mentions, fusion, ranking, retrievers
from rag_platform.retrieval.document_mentions import Named
from rag_platform.retrieval.library import Lease
from rag_platform.retrieval.retrievers import Access, Retrieved
from rag_platform.retrieval.search_context import Search

MODES = ("dense", "sparse", "hybrid")
MAX_TOP_K = 100
# what a release with one index is asked by default
_ENCODED = {"sparse_only": "sparse", "dense_only": "dense"}
# So many hidden chunks are searched and dropped again; above it the search is restricted to the
# others, which costs more.
MAX_OVERFETCH = 500

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What a namespace holds for a question, best first."""

    lease: Lease
    strategy: Strategy
    query: QueryIR
    plan: FilterPlan
    top_k: int
    hits: tuple[Hit, ...]
    mode: str  # dense | sparse | hybrid | none: what was effective
    legs: int  # that ran
    matched_count: int | None
    key: Hashable  # of the retrieval cache; None for a search that must not be remembered
    flags: Json
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Remembered:
    hits: tuple[Hit, ...]
    mode: str
    legs: int
    matched_count: int | None
    flags: Json
    warnings: tuple[str, ...]


def search(s: Search) -> Found:
    """The hits of the search's namespace. Raises what `engine.answer` says of a wrong argument, a
    release and a hard filter.
    """
    query, plan, mode, top_k = _query_norm(s)
    told = len(s.warnings), dict(s.flags)
    key = _key(s, query, mode, top_k)
    known: _Remembered | None = s.library.retrievals.get(key)
    if known is None:
        query, plan, known = _searched(s, query, plan, mode, top_k)
        if s.failures or not s.flags.keys().isdisjoint(("load_shed", "filter_relaxed")):
            key = None
        else:
            flags = {name: value for name, value in s.flags.items() if name not in told[1]}
            s.library.retrievals.put(
                key, replace(known, flags=flags, warnings=tuple(s.warnings[told[0] :]))
            )
    else:
        s.trace.set(cache_hit=True)
        s.flags.update(known.flags)
        s.warnings += known.warnings
    return Found(
        s.lease,
        s.strategy,
        query,
        plan,
        top_k,
        known.hits,
        known.mode,
        known.legs,
        known.matched_count,
        key,
        s.flags,
        tuple(s.warnings),
    )


def _searched(
    s: Search, query: QueryIR, plan: FilterPlan, mode: str, top_k: int
) -> tuple[QueryIR, FilterPlan, _Remembered]:
    access, matched_count = _pre_filter(s, plan)
    if matched_count == 0 and query.inferred:
        query, plan, access, matched_count = _missed(s, query, plan, access)
    pool_k = max(s.strategy.retrieval.pool_k, top_k)
    named, asked = _named(s, query, mode)
    found = _retrieve(s, asked, mode, access, pool_k)
    if named is not None:
        found = _in_named(s, asked, named, access, found, pool_k)
    fused = _fed_back(s, query, access, found, _fusion(s, found))
    candidates = ranking.post_filtered(s, plan, fused)
    if (
        plan.drop
        and fused
        and not candidates
        and query.inferred
        and "filter_relaxed" not in s.flags
    ):
        relaxed, its_plan, *_ = _missed(s, query, plan, access)
        if relaxed is not query:
            return _searched(s, relaxed, its_plan, mode, top_k)
    if plan.drop and (matched_count is None or not candidates):
        # of those that were found: how many of all chunks match is not looked up
        matched_count = len(candidates)
    hits = ranking.ordered(s, query, plan, candidates, found, top_k)
    return query, plan, _Remembered(tuple(hits), found.mode, len(found.ran), matched_count, {}, ())


def _key(s: Search, query: QueryIR, mode: str, top_k: int) -> Hashable:
    """All that the hits depend on: release, strategy, what is hidden, the question as the legs read
    it, and what was asked of it.
    """
    asked = s.request
    return (
        s.lease.namespace,
        s.lease.release_id,
        s.library.config_id(s.strategy),
        s.library.hidden_names(s.lease),
        mode,
        top_k,
        query.query_profile_id,
        query.rewrite_profile_id,
        query.dense_query_text,
        query.sparse_query_expr,
        query.original_query,
        query.expansions,
        query.phrases,
        query.rewrites,
        query.preferences,
        canonical_json(query.filters),
        canonical_json(query.inferred),
        asked.score_threshold,
        asked.max_per_document,
        asked.rerank,
        s.library.models.prompts_of("reranker", s.strategy.reranker),
    )


# --- stages -------------------------------------------------------------------------------------


def _query_norm(s: Search) -> tuple[QueryIR, FilterPlan, str, int]:
    """The prepared question, the filter's plan, mode and top_k; nothing has been searched yet."""
    asked, config = s.request, s.strategy.query
    with tracing.span("stage.query_norm", provider_type="query", provider_id="plain") as span:
        query = _prepared(s, span)
        mode = (
            asked.mode
            or _ENCODED.get(s.lease.release.manifest.encoding)
            or s.strategy.retrieval.mode
        )
        if mode not in MODES:
            raise InputError(
                f"mode {mode!r} is unknown; use one of {', '.join(MODES)}", code="invalid_mode"
            )
        top_k = s.strategy.retrieval.top_k if asked.top_k is None else asked.top_k
        if isinstance(top_k, bool) or not isinstance(top_k, int) or not 1 <= top_k <= MAX_TOP_K:
            raise InputError(
                f"top_k = {top_k!r} must be a number from 1 to {MAX_TOP_K}", code="invalid_top_k"
            )
        if config.rewrite.enabled:
            query = _rewritten(s, query, span)
        plan, query = _planned(s, query)
        s.library.check_versions(s.lease, plan.versions)
        s.warnings += query.warnings
        span.provider["profile_id"] = query.query_profile_id
        rewritten = config.rewrite.enabled and "rewrite" not in s.failures
        span.set(
            query_hash=query.query_hash,
            language=query.language,
            intent=query.intent,
            mode=mode,
            top_k=top_k,
            rewrite_used=rewritten,
            rewrite_profile_id=query.rewrite_profile_id,
            queries=1 + len(query.rewrites),
        )
        tracing.event(
            "query.normalized",
            {"query_norm": query.normalized_query[:200], "query_hash": query.query_hash},
        )
        return query, plan, mode, top_k


def _prepared(s: Search, span: tracing.Span) -> QueryIR:
    """The question as the strategy wants it prepared, or plain when its words cannot be read.
    Raises InputError for one that is none.
    """
    asked, sizes = s.request, s.library.settings.limits
    # a file of synonyms that cannot be read must not take the library down
    warning = "the question could not be prepared as configured (%s); it is asked as it is"
    with s.attempt("query_norm", warning, span=span, passing=(InputError,)):
        return analysis.prepare(
            asked.text,
            sizes,
            asked.filters,
            config=s.strategy.query,
            keyphrases=s.strategy.views.keyphrases,
            infer=asked.infer,
        )
    s.flags["fallback_mode"] = "query_plain"
    return analysis.unprepared(asked.text, sizes, asked.filters)


def _rewritten(s: Search, query: QueryIR, span: tracing.Span) -> QueryIR:
    """The question as a language model reads it, or as it was asked when that fails."""
    from rag_platform.query import rewriting

    config = s.strategy.query
    with s.attempt(
        "rewrite", "the question could not be rewritten (%s); it is asked as it is", span=span
    ):
        if limits.MODEL in s.without:
            s.give_up("rewrite", "the question was not rewritten")
            return query
        llm = s.library.models.llm(config.rewrite.llm, s.strategy)
        if llm is None:
            raise ProviderError(
                "no language model is configured; set query.rewrite.llm or llm in the strategy",
                code="no_model",
            )
        seconds, setting = min(
            (s.strategy.retrieval.stage_seconds, "retrieval.stage_seconds"),
            (config.rewrite.timeout_ms / 1000, "query.rewrite.timeout_ms"),
        )
        rewritten = partial(rewriting.rewritten, query, llm, config, infer=s.request.infer)
        return limits.within(
            seconds, "the rewriting of the question", rewritten, s.deadline, setting=setting
        )
    s.flags["fallback_mode"] = "query_plain"
    return analysis.plain(query)


def _planned(s: Search, query: QueryIR) -> tuple[FilterPlan, QueryIR]:
    """The plan of the caller's filters and the inferred ones; without the latter where they cannot
    be planned.
    """
    if query.inferred:
        with s.attempt("filter", "filters told from the words of the question were left out (%s)"):
            return filters.plan(query.filters, FILTERABLE), query
        query = replace(query, filters=dict(s.request.filters), inferred={})
    if query.filters:
        return filters.plan(query.filters, FILTERABLE), query  # the caller's own mistake is raised
    with s.attempt("filter", "the plan of the filters failed (%s); none was asked for"):
        return filters.plan({}, FILTERABLE), query
    return FilterPlan(), query


def _missed(
    s: Search, query: QueryIR, plan: FilterPlan, access: Access
) -> tuple[QueryIR, FilterPlan, Access, int | None]:
    """What to do when the filters told from the question's words match nothing: nothing, or, where
    configured, ask once without them.
    """
    config = s.strategy.query.inference
    if int(query.query_hash[:8], 16) < config.sample_rate * 0x1_0000_0000:
        log.info(
            "the filters %s, told from a question, match nothing in namespace %s",
            query.inferred,
            s.lease.namespace,
        )
    if not config.relax_once:
        return query, plan, access, 0
    with s.attempt(
        "filter", "the question could not be asked again without what was told from it (%s)"
    ) as attempt:
        relaxed = analysis.relaxed(query, s.strategy.query)
        its_plan = filters.plan(relaxed.filters, FILTERABLE)
    if attempt.error is not None:
        return query, plan, access, 0
    s.flags["filter_relaxed"] = True
    s.warnings.append(
        f"nothing matches {canonical_json(query.inferred)}, told from the question; asked again"
        " without it"
    )
    return relaxed, its_plan, *_pre_filter(s, its_plan)


def _pre_filter(s: Search, plan: FilterPlan) -> tuple[Access, int | None]:
    """What may be searched, and how many chunks that is when a filter was given."""
    catalog = s.lease.release.catalog
    with tracing.span(
        "stage.filter",
        provider_type="filter",
        provider_id=filters.RULES,
        profile_id=plan.filter_profile_id,
    ) as span:
        hidden = s.library.hidden_chunks(s.lease)
        allowed: frozenset[str] | None = None
        if plan.where:
            try:
                # the same object each time: readers know it again
                allowed = s.library.matching_chunks(s.lease, plan.where, plan.params)
                allowed = allowed - hidden if hidden else allowed
            except OverflowError as error:
                raise InputError(
                    f"a number in the filter on {', '.join(plan.fields)} is too large",
                    code="invalid_filter",
                ) from error
            except Exception as error:
                faults.report(error, "stage.filter")
                s.trace.set(flags={"filter_failed": True})
                raise ProviderError(
                    f"the filter on {', '.join(plan.fields)} could not be run"
                    f" ({faults.describe(error)}); nothing was searched, because an unfiltered"
                    " answer would be a wrong one",
                    code="filter_failed",
                ) from error
            if plan.missing_included:
                s.warnings.append(
                    f"chunks without {', '.join(plan.missing_included)} match as well; add"
                    ' "$missing": "exclude" to a condition to leave them out'
                )
        elif len(hidden) > MAX_OVERFETCH:
            allowed, hidden = frozenset(catalog.chunk_ids()) - hidden, frozenset()
        matched = len(allowed) if allowed is not None and plan.where else None
        span.set(
            phase="pre",
            filter_execution_plan=plan.execution,
            matched_count=matched,
            hidden=len(hidden),
        )
        if plan.applied:
            tracing.event(
                "filter.applied",
                {
                    "filters": plan.applied,
                    "filter_execution_plan": plan.execution,
                    "matched_count": matched,
                },
            )
        everything = matched is not None and matched + len(hidden) >= sum(
            s.lease.release.manifest.versions.values()
        )
        return Access(None if everything else allowed, hidden), matched


def _retrieve(s: Search, query: QueryIR, mode: str, access: Access, pool_k: int) -> Retrieved:
    """The candidates of both legs; those of the further questions merged in, those below the score
    threshold left out.
    """
    config = s.strategy.retrieval
    if limits.POOL in s.without:
        pool_k = max(s.request.top_k or config.top_k, pool_k // 2)
        s.give_up("pool", f"only {pool_k} candidates of each leg were looked at")
    least = config.score_threshold

    def one(question: QueryIR) -> Retrieved:
        found = retrievers.retrieve(
            s.library, s.lease, s.strategy, question, mode, access, pool_k, deadline=s.deadline
        )
        return _above(found, least)

    asked: list[QueryIR] = []
    with s.attempt("rewrite", "the further questions could not be asked (%s)"):
        asked = [analysis.further(query, text, s.strategy.query) for text in query.rewrites]
    if asked:
        _embedded_at_once(s, [query, *asked])
    others = [limits.start(lambda question=question: one(question)) for question in asked]  # type: ignore[misc]
    found = one(query)
    further = []
    for future in others:
        with s.attempt("rewrite", "a further question could not be asked (%s)"):
            further.append(
                limits.wait(future, config.stage_seconds, "a further question", s.deadline)
            )
    if further:
        with s.attempt("rewrite", "what further questions found could not be merged in (%s)"):
            dense = fusion.by_rank([found.dense, *(other.dense for other in further)])[:pool_k]
            sparse = fusion.by_rank([found.sparse, *(other.sparse for other in further)])[:pool_k]
            found.dense, found.sparse = dense, sparse
    s.deadline.check()
    s.include(found)
    return found


def _above(found: Retrieved, least: float | None) -> Retrieved:
    """The same without the dense candidates below the threshold."""
    if least is not None:
        # cosine similarity is -1 to 1
        found.dense = [candidate for candidate in found.dense if (candidate.score + 1) / 2 >= least]
    return found


def _embedded_at_once(s: Search, asked: Sequence[QueryIR]) -> None:
    """The vectors of all questions in one call, where the legs find them; they tell when that is
    not possible.
    """
    if s.lease.release.dense is None:
        return
    texts = [question.dense_query_text for question in asked]
    with faults.Attempt("model.embed") as attempt:
        limits.within(
            s.strategy.retrieval.stage_seconds,
            "model.embed",
            lambda: s.library.models.query_vectors(s.strategy.embedding, texts),
            s.deadline,
        )
    if attempt.error is not None:
        log.info("the questions could not be embedded in one call: %s", attempt.error)


def _fusion(s: Search, found: Retrieved) -> list[Candidate]:
    """One order of all candidates; that of the only leg when one ran."""
    config, both = s.strategy.fusion, len(found.ran) == 2
    with tracing.span("stage.fusion", provider_type="fusion", provider_id=config.provider) as span:
        leg = _better_leg(found)
        fused: list[Candidate] = list(getattr(found, leg))
        with s.attempt(
            "fusion",
            f"the order of both legs could not be made (%s); that of the {leg} leg stands",
            span=span,
        ):
            built = s.library.models.provider("fusion", config)
            span.provider.update(built.span)
            ranked = (
                built.instance.fuse(found.dense, found.sparse, trust=found.trust) if both else fused
            )
            if found.named is not None:
                ranked = document_mentions.preferred(
                    ranked, found.named.chunks, s.strategy.retrieval.named_documents
                )
            fused = ranked
        span.set(
            fusion_id=s.strategy.fusion.provider,
            fusion_applied=both,
            trust_in_words=found.trust,
            k_out=len(fused),
        )
        tracing.event("fusion.ranked", {"ranked": retrievers.listed(fused)})
    s.trace.count(candidates_dense=len(found.dense), candidates_sparse=len(found.sparse))
    if both:
        s.record("dense_topk_overlap_sparse", retrievers.overlap(found.dense, found.sparse))
    return fused


def _better_leg(found: Retrieved) -> str:
    """The leg whose order stands alone: the words where the texts surely hold those of the
    question, else the vectors.
    """
    return "sparse" if found.sparse and (found.trust >= 1.0 or not found.dense) else "dense"


def _named(s: Search, query: QueryIR, mode: str) -> tuple[Named | None, QueryIR]:
    """The documents that the question names, where both legs are asked, and the question without
    their names: one leg alone is shown as it is.
    """
    release = s.lease.release
    if (
        not s.strategy.retrieval.named_documents
        or mode != "hybrid"
        or release.dense is None
        or release.lexical is None
    ):
        return None, query
    if isinstance(release.lexical, Unreadable):  # the word leg tells it
        return None, query
    with s.attempt("naming", "the documents that the question names could not be told (%s)"):
        if (named := s.lease.names().named(query.original_query)) is not None:
            return named, replace(
                query,
                dense_query_text=document_mentions.without_names(
                    query.dense_query_text, named.words
                ),
            )
    return None, query


def _in_named(
    s: Search, query: QueryIR, named: Named, access: Access, found: Retrieved, pool_k: int
) -> Retrieved:
    """What was found, with the best of the documents that the question names."""
    with tracing.span(
        "stage.naming",
        provider_type="retriever",
        provider_id="names",
        documents=len(named.documents),
    ) as span:
        tracing.event(
            "retrieval.named", {"documents": dict(named.documents), "words": list(named.words)}
        )
        if s.without:  # under load what was found is put in order, and no more is looked for
            return replace(found, named=named)
        with s.attempt(
            "naming",
            "the documents that the question names could not be searched by themselves (%s)",
            span=span,
        ):
            found, failed = retrievers.asked_inside(
                s.library,
                s.lease,
                s.strategy,
                query,
                found,
                named,
                access,
                pool_k,
                deadline=s.deadline,
            )
            for error in failed:
                s.failed("naming", error, "inside the documents that the question names, %s")
    return _above(found, s.strategy.retrieval.score_threshold)


def _fed_back(
    s: Search, query: QueryIR, access: Access, found: Retrieved, fused: list[Candidate]
) -> list[Candidate]:
    """The fusion once more, with the vectors of its best hits beside the question's; as it is where
    that is off or says nothing.

    Only a question whose words the texts hold is trusted to have found the right ones: across
    languages it would lose.
    """
    config = s.strategy.retrieval
    if (
        not config.feedback_hits
        or len(found.ran) < 2
        or found.trust < 1.0
        or query.rewrites
        or s.without
        or not fused
    ):
        return fused
    with (
        tracing.span(
            "stage.feedback",
            provider_type="retriever",
            provider_id="rocchio",
            hits=config.feedback_hits,
            scope=config.feedback_scope,
        ) as span,
        s.attempt(
            "feedback", "the vectors of the best hits could not be used (%s)", span=span
        ) as attempt,
    ):
        again = retrievers.asked_again(
            s.library, s.lease, s.strategy, query, fused, access, len(found.dense), found.named
        )
        found.dense = again or found.dense
    return fused if attempt.error is not None else _fusion(s, found)
