"""The query path: one function that reads as the pipeline, the same for server, command line, pages and evaluation.

    query_norm -> filter -> retrieve_dense || retrieve_sparse -> fusion -> filter -> rerank -> context_build -> generate -> format_response

Each is a span `stage.<name>`. A failing stage falls back as in seed 000 §3.2.8; what happened stands in `flags`, `warnings` and the
trace. Only a wrong argument, a missing release and a hard filter that cannot run stop a query.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from rag_platform.config import Strategy
from rag_platform.errors import InputError, ProviderError, RagError
from rag_platform.indexes.catalog import FILTERABLE, ChunkRow
from rag_platform.ir import Candidate, Citation, Hit, Json, QueryIR, QueryRequest, QueryResult
from rag_platform.observability import tracing
from rag_platform.retrieval import citing, deadlines, evidence, filters, legs, queries
from rag_platform.retrieval.answering import confidence
from rag_platform.retrieval.filters import FilterPlan
from rag_platform.retrieval.hits import joined, limited, preferred, with_picture_texts
from rag_platform.retrieval.legs import Access, Retrieved
from rag_platform.retrieval.library import Lease, Library
from rag_platform.retrieval.reranking import boosted, renumbered

MODES = ("dense", "sparse", "hybrid")
MAX_TOP_K = 100
_ENCODED = {"sparse_only": "sparse", "dense_only": "dense"}  # what a release with one index is asked by default
# So many hidden chunks are searched and dropped again; above it the search is restricted to the others, which costs more.
MAX_OVERFETCH = 500


def answer(library: Library, request: QueryRequest, *, request_id: str | None = None) -> QueryResult:
    """The hits, the answer with its citations, and how they came about.

    Raises InputError (`empty_query`, `query_too_long`, `unknown_filter`, `invalid_filter`, `invalid_mode`, `invalid_top_k`,
    `version_not_live`, `embedder_mismatch`), NotFoundError (`unknown_namespace`, `no_release`, `unknown_strategy`), ReleaseError, and
    ProviderError `filter_failed`; each carries the `trace_id` in its details.
    """
    with tracing.trace("query", logs_dir=library.store.logs_dir, namespace=request.namespace, request_id=request_id) as trace:
        try:
            with library.lease(request.namespace, request.release_id) as lease:
                strategy = library.query_strategy(lease, request.strategy)
                trace.header["strategy_config_id"] = library.config_id(strategy)
                trace.set(release_id=lease.release_id, request=dataclasses.asdict(request))
                return _answer(_Query(library, lease, strategy, request, trace))
        except RagError as error:
            error.details.setdefault("trace_id", trace.trace_id)
            raise


@dataclass
class _Query:
    """What every stage sees; `flags` and `warnings` grow as stages fall back."""

    library: Library
    lease: Lease
    strategy: Strategy
    request: QueryRequest
    trace: tracing.Trace
    flags: Json = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def fall_back(self, flag: str, warning: str) -> None:
        """Record that a stage failed and the query went on without it."""
        self.flags[flag] = True
        self.warnings.append(warning)
        tracing.event("query.fallback", {"flag": flag, "message": warning})


def _answer(q: _Query) -> QueryResult:
    query, plan, mode, top_k = _query_norm(q)
    access, matched_count = _pre_filter(q, plan)
    found = legs.retrieve(q.library, q.lease, q.strategy, query, mode, access, max(q.strategy.retrieval.pool_k, top_k))
    q.flags.update(found.flags)
    q.warnings += found.warnings
    fused = _fusion(q, found)
    candidates = _post_filter(q, plan, fused)
    hits = _rerank(q, query, plan, candidates, found, top_k)
    context = _context_build(q, hits) if q.request.answer else []
    text, citations = _generate(q, query, hits, context, found) if q.request.answer else ("", ())
    return _format_response(q, query, plan, found, hits, context, text, citations, matched_count)


# --- stages --------------------------------------------------------------------------------------------------------------


def _query_norm(q: _Query) -> tuple[QueryIR, FilterPlan, str, int]:
    """The prepared question, the filter's plan, mode and top_k; nothing has been searched yet."""
    with tracing.span("stage.query_norm", provider_type="query", provider_id="plain", profile_id=queries.QUERY_PROFILE) as span:
        query = queries.prepare(q.request.text, q.library.settings.limits, q.request.filters)
        mode = q.request.mode or _ENCODED.get(q.lease.release.manifest.encoding) or q.strategy.retrieval.mode
        if mode not in MODES:
            raise InputError(f"mode {mode!r} is unknown; use one of {', '.join(MODES)}", code="invalid_mode")
        top_k = q.strategy.retrieval.top_k if q.request.top_k is None else q.request.top_k
        if isinstance(top_k, bool) or not isinstance(top_k, int) or not 1 <= top_k <= MAX_TOP_K:
            raise InputError(f"top_k = {top_k!r} must be a number from 1 to {MAX_TOP_K}", code="invalid_top_k")
        plan = filters.plan(q.request.filters, FILTERABLE)
        q.library.check_versions(q.lease, plan.versions)
        span.set(query_hash=query.query_hash, language=query.language, intent=query.intent, rewrite_used=False, mode=mode, top_k=top_k)
        tracing.event("query.normalized", {"query_norm": query.normalized_query[:200], "query_hash": query.query_hash})
        return query, plan, mode, top_k


def _pre_filter(q: _Query, plan: FilterPlan) -> tuple[Access, int | None]:
    """What may be searched, and how many chunks that is when a filter was given."""
    catalog = q.lease.release.catalog
    with tracing.span("stage.filter", provider_type="filter", provider_id=filters.RULES, profile_id=plan.filter_profile_id) as span:
        hidden = q.library.hidden_chunks(q.lease)
        allowed: frozenset[str] | None = None
        if plan.where:
            try:
                allowed = q.library.matching_chunks(q.lease, plan.where, plan.params) - hidden
            except Exception as error:
                q.trace.set(flags={"filter_failed": True})
                raise ProviderError(f"the filter on {', '.join(plan.fields)} could not be run ({error}); nothing was searched, because an "
                                    "unfiltered answer would be a wrong one", code="filter_failed") from error  # fmt: skip
            if plan.missing_included:
                q.warnings.append(f"chunks without {', '.join(plan.missing_included)} match as well; add \"$missing\": \"exclude\" to a "
                                  "condition to leave them out")  # fmt: skip
        elif len(hidden) > MAX_OVERFETCH:
            allowed, hidden = frozenset(catalog.chunk_ids()) - hidden, frozenset()
        matched = len(allowed) if allowed is not None and plan.where else None
        span.set(phase="pre", filter_execution_plan=plan.execution, matched_count=matched, hidden=len(hidden))
        if plan.applied:
            tracing.event("filter.applied", {"filters": plan.applied, "filter_execution_plan": plan.execution, "matched_count": matched})
        everything = matched is not None and matched + len(hidden) >= sum(q.lease.release.manifest.versions.values())
        return Access(None if everything else allowed, hidden), matched


def _fusion(q: _Query, found: Retrieved) -> list[Candidate]:
    """One order of all candidates; that of the only leg when one ran."""
    built = q.library.provider("fusion", q.strategy.fusion)
    both = len(found.ran) == 2
    with tracing.span("stage.fusion", **built.span) as span:
        fused: list[Candidate] = built.instance.fuse(found.dense, found.sparse) if both else [*found.dense, *found.sparse]
        span.set(fusion_id=q.strategy.fusion.provider, fusion_applied=both, k_out=len(fused))
        tracing.event("fusion.ranked", {"ranked": legs.listed(fused)})
    q.trace.count(candidates_dense=len(found.dense), candidates_sparse=len(found.sparse))
    if both:
        q.trace.set(dense_topk_overlap_sparse=legs.overlap(found.dense, found.sparse))
    return fused


def _post_filter(q: _Query, plan: FilterPlan, fused: list[Candidate]) -> list[Candidate]:
    """The candidates but for those that have an inferred field and do not match it; all of them when that cannot be told."""
    with tracing.span("stage.filter", provider_type="filter", provider_id=filters.RULES, profile_id=plan.filter_profile_id) as span:
        kept, effective = fused, plan.execution
        if plan.drop and fused:
            try:
                where, params = filters.to_drop([candidate.chunk_id for candidate in fused], plan)
                dropped = set(q.lease.release.catalog.chunk_ids(where, params))
                kept = [candidate for candidate in fused if candidate.chunk_id not in dropped]
            except Exception as error:
                span.fail(error)
                effective = {**effective, "post": []}
                q.fall_back("filter_failed", f"the filter on {', '.join(plan.post_fields)} failed and was left out ({error})")
        if (threshold := q.request.score_threshold) is not None:
            kept = [candidate for candidate in kept if candidate.score >= threshold]
        counts = [len(fused), len(kept)]
        span.set(phase="post", candidate_count_before_after_filter=counts, filter_execution_plan_effective=effective)
        q.trace.set(candidate_count_before_after_filter=counts)
        if plan.applied:
            q.flags["filter_execution_plan_effective"] = effective
        return kept


def _rerank(q: _Query, query: QueryIR, plan: FilterPlan, candidates: list[Candidate], found: Retrieved, top_k: int) -> list[Hit]:
    """At most top_k hits, counted after reranking, preferences, de-duplication and the limit per document."""
    built = q.library.provider("reranker", q.strategy.reranker)
    applies = bool(getattr(built.instance, "APPLIES", True))
    former = "fusion" if len(found.ran) == 2 else f"{found.mode}-only"
    with tracing.span("stage.rerank", **built.span) as span:
        source = former
        hits, rows = _joined(q, candidates, len(candidates) if applies or plan.soft else top_k, top_k)
        before = [hit.chunk_id for hit in hits]
        if applies and hits:
            try:
                ranked: list[Hit] = deadlines.within(q.strategy.retrieval.stage_seconds, "stage.rerank",
                                                     lambda: built.instance.rerank(query.normalized_query, hits))  # fmt: skip
                if sorted(hit.chunk_id for hit in ranked) != sorted(before):
                    raise ProviderError("the reranker returned other hits than it was given", code="bad_output")
                hits, source = list(ranked), "rerank"
            except Exception as error:
                span.fail(error)
                q.fall_back("rerank_failed", f"reranking failed, the order of {former} stands ({error})")
        hits = renumbered(_limited(q, boosted(hits, preferred(plan.soft, rows)), top_k))
        q.flags.update(rerank_applied=source == "rerank", effective_rank_source=source)
        span.set(reranker_id=q.strategy.reranker.provider, rerank_applied=source == "rerank", effective_rank_source=source, k_out=len(hits))
        tracing.event("rerank.ranked", {"before": before[:top_k], "after": [hit.chunk_id for hit in hits]})
        return with_picture_texts(hits, q.lease.release.catalog)


def _joined(q: _Query, candidates: list[Candidate], step: int, top_k: int) -> tuple[list[Hit], dict[str, ChunkRow]]:
    """Hits in the order of the candidates, `step` of them at a time until top_k remain; joining the whole pool would cost more."""
    rows: dict[str, ChunkRow] = {}
    hits: list[Hit] = []
    for start in range(0, len(candidates), max(step, 1)):
        rows.update(q.lease.release.catalog.rows(candidate.chunk_id for candidate in candidates[start : start + step]))
        hits = joined(candidates[: start + step], rows)
        if len(_limited(q, hits, top_k)) == top_k:
            break
    return hits, rows


def _limited(q: _Query, hits: list[Hit], top_k: int) -> list[Hit]:
    config, asked = q.strategy.retrieval, q.request.max_per_document
    return limited(hits, top_k, dedupe=config.dedupe, max_per_document=config.max_per_document if asked is None else asked)


def _context_build(q: _Query, hits: list[Hit]) -> list[Hit]:
    """The evidence within the token budget."""
    config = q.strategy.context
    with tracing.span("stage.context_build", provider_type="context", provider_id="budget", max_tokens=config.max_tokens) as span:
        chosen = evidence.select(hits, config)
        q.warnings += chosen.warnings
        span.set(context_k=len(chosen.hits), final_context_tokens=chosen.tokens, repeated=chosen.repeated, dropped=chosen.dropped)
        places = [f"{hit.source_uri}#{hit.section_path}" for hit in chosen.hits]
        tracing.event("context.final", {"chunk_ids": [hit.chunk_id for hit in chosen.hits], "citations": places})
        q.trace.count(selected_chunks=len(chosen.hits))
        q.trace.set(final_context_tokens=chosen.tokens)
        return list(chosen.hits)


def _generate(q: _Query, query: QueryIR, hits: list[Hit], context: list[Hit], found: Retrieved) -> tuple[str, tuple[Citation, ...]]:
    """Markdown and its citations: the answerer's, or plain words and the closest passages where it has nothing or fails."""
    built = q.library.provider("answerer", q.strategy.answerer)
    with tracing.span("stage.generate", **built.span) as span:
        kind = "unreachable" if found.mode == "none" else "no_answer" if context or hits else "nothing"
        text = ""
        citations: tuple[Citation, ...] = ()
        if context:
            try:
                written = deadlines.within(q.strategy.retrieval.stage_seconds, "stage.generate",
                                           lambda: built.instance.answer(query.original_query, context))  # fmt: skip
                text, citations = citing.cited(written, context)
            except Exception as error:
                span.fail(error)
                kind = "failed"
                q.fall_back("generation_failed", f"the answer could not be written ({error}); the passages found are listed instead")
                q.flags["fallback_mode"] = "structured_response"
        answered = bool(text.strip())
        q.flags["answered"] = answered
        if not answered:
            text, citations = citing.passages(kind, query.language, context or hits, q.flags.get("error", {}).get("message", ""))
        span.set(llm_provider_id=q.strategy.answerer.provider, model_id=q.strategy.answerer.options.get("model", ""), answered=answered)
        tracing.event("generation.summary", {"output_chars": len(text), "citations_used": len(citations), "fallback_used": not answered})
        return text, citations


def _format_response(
    q: _Query, query: QueryIR, plan: FilterPlan, found: Retrieved, hits: list[Hit], context: list[Hit], text: str,
    citations: tuple[Citation, ...], matched_count: int | None,
) -> QueryResult:  # fmt: skip
    """The result, and in the trace everything a replay needs."""
    with tracing.span("stage.format_response", provider_type="response", provider_id="query_result") as span:
        sure = confidence(query.original_query, text if q.flags.get("answered") else "", context, hits, legs=len(found.ran))
        shown = {name: q.trace.stage_ms(f"stage.{stage}") for name, stage in _LATENCIES.items()}
        q.trace.count(citations_count=len(citations), assets_referenced=len({asset for hit in hits for asset in hit.asset_ids}))
        q.trace.set(effective_mode=found.mode, query_hash=query.query_hash, flags=q.flags, warnings=q.warnings,
                    ranked_chunk_ids=[hit.chunk_id for hit in hits], **shown)  # fmt: skip
        span.set(hits=len(hits), citations=len(citations), confidence=sure)
        tracing.event("response.envelope", {"ok": "error" not in q.flags, "warnings": q.warnings})
        return QueryResult(
            answer_markdown=text, citations=citations, hits=tuple(hits), confidence=sure, effective_mode=found.mode,
            applied_filters=plan.applied or {}, matched_count=matched_count, release_id=q.lease.release_id, trace_id=q.trace.trace_id,
            warnings=tuple(q.warnings), flags=q.flags,
        )  # fmt: skip


_LATENCIES = {
    "dense_latency_ms": "retrieve_dense",
    "sparse_latency_ms": "retrieve_sparse",
    "fusion_latency_ms": "fusion",
    "rerank_latency_ms": "rerank",
}
