"""From candidates to hits: the filters after fusion, the reranker, preferences, and the selection
of the hits that are shown. Every failure falls back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from rag_platform.errors import NotFoundError
from rag_platform.indexes.catalog import HitRow
from rag_platform.ir import Candidate, Hit, Json, QueryIR
from rag_platform.observability import faults, tracing
from rag_platform.processes import limits
from rag_platform.query import filters
from rag_platform.query.analysis import subject_of
from rag_platform.query.filters import FilterPlan
from rag_platform.retrieval import reranking
from rag_platform.retrieval.editions import (
    Asked,
    Edition,
    find_foreign,
    find_named_edition,
    has_editions,
    is_to_come,
    list_others,
    name_document,
    read_edition,
    select_editions,
)
from rag_platform.retrieval.hydration import (
    find_preferred,
    join_rows,
    select_shown,
    with_picture_texts,
)
from rag_platform.retrieval.product_versions import (
    asks_for_older,
    has_versions,
    is_of_other,
    keep_newest,
)
from rag_platform.retrieval.provider_cache import Built
from rag_platform.retrieval.retrievers import Retrieved
from rag_platform.retrieval.search_context import SearchContext
from rag_platform.retrieval.signals import with_headings
from rag_platform.text.passages import is_contents
from rag_platform.text.scripts import is_wide
from rag_platform.text.term_overlap import coverage, names_coverage


def read_given(s: SearchContext) -> list[Hit]:
    """The chunks of `context_chunks`, from which the request wants the answer, in its order. Raises
    NotFoundError `unknown_chunk` for one that is not in the release, or hidden.
    """
    wanted = s.request.context_chunks
    rows = s.lease.release.catalog.hit_rows(wanted)
    hidden = s.library.hidden_chunks(s.lease)
    for chunk_id in wanted:
        if chunk_id not in rows or chunk_id in hidden:
            raise NotFoundError(
                f"no chunk {chunk_id!r} in release {s.lease.release_id}; `rag query` prints chunk"
                " ids",
                code="unknown_chunk",
            )
    candidates = [Candidate(chunk_id, 1.0, "given") for chunk_id in wanted]
    hits = join_rows(candidates, rows, s.lease.namespace)
    return with_picture_texts(hits, s.lease.release.catalog)


def filter_after(s: SearchContext, plan: FilterPlan, fused: list[Candidate]) -> list[Candidate]:
    """The candidates that the filters on sparsely filled fields do not drop; all of them when these
    filters fail.
    """
    with tracing.span(
        "stage.filter",
        provider_type="filter",
        provider_id=filters.RULES,
        profile_id=plan.filter_profile_id,
    ) as span:
        kept, effective = fused, plan.execution
        if plan.drop and fused:
            with s.attempt(
                "filter",
                f"the filter on {', '.join(plan.post_fields)} failed and was left out (%s)",
                span=span,
            ) as attempt:
                where, params = filters.select_dropped(
                    [candidate.chunk_id for candidate in fused], plan
                )
                dropped = set(s.lease.release.catalog.chunk_ids(where, params))
                kept = [candidate for candidate in fused if candidate.chunk_id not in dropped]
            if attempt.error is not None:
                effective = {**effective, "post": []}
        counts = [len(fused), len(kept)]
        span.set(
            phase="post",
            candidate_count_before_after_filter=counts,
            filter_execution_plan_effective=effective,
        )
        s.record("candidate_count_before_after_filter", counts)
        if plan.applied:
            s.flags["filter_execution_plan_effective"] = effective
        return kept


def rank(
    s: SearchContext,
    query: QueryIR,
    plan: FilterPlan,
    candidates: list[Candidate],
    found: Retrieved,
    top_k: int,
) -> list[Hit]:
    """At most top_k hits after reranking, preferences, deduplication and the limit per document.

    Empty, with `flags["error"]`, where the texts of the candidates cannot be read.
    """
    config, former = s.strategy.reranker, "fusion" if len(found.ran) == 2 else f"{found.mode}-only"
    with tracing.span(
        "stage.rerank",
        provider_type="reranker",
        provider_id=config.provider,
        **s.span_profile("reranker"),
    ) as span:
        built: Built | None = None
        # a package may be missing, or its language model not configured
        with s.attempt(
            "rerank", f"the reranker cannot be used, the order of {former} stands (%s)", span=span
        ):
            built = s.library.models.reranker(s.strategy)
        applies = built is not None and built.traits.applies and s.request.rerank
        has_preferences = bool(plan.soft or plan.favours)
        needs_all = has_preferences or s.strategy.retrieval.mmr_lambda < 1
        step = len(candidates) if needs_all else max(config.top_n, top_k) if applies else top_k
        hits, rows = _read_hits(s, candidates, step, top_k, span)
        before, source = hits, former
        if built is not None and applies and hits:
            with s.attempt(
                "rerank", f"reranking failed, the order of {former} stands (%s)", span=span
            ):
                if _is_unsure(s, query, hits):
                    hits, source = _rerank(s, built, query, hits), "rerank"
                    if s.artifacts is not None:
                        s.artifacts.reranked = hits
                    span.set(movement=reranking.movement(_ids(before), _ids(hits)))
        if has_preferences:
            with s.attempt("filter", "the preferences failed and were left out (%s)", span=span):
                hits = reranking.boost(
                    hits, _find_favoured(s, plan, rows), config.preference_weight
                )
        if (threshold := s.request.score_threshold) is not None:
            hits = [hit for hit in hits if hit.score >= threshold]
        foreign = find_foreign(s.request.text, hits)
        hits = [hits[n] for n in sorted(range(len(hits)), key=foreign.__contains__)]
        hits = reranking.renumber(_select_shown(s, hits, top_k, span))
        s.flags.update(rerank_applied=source == "rerank", effective_rank_source=source)
        span.set(
            reranker_id=config.provider,
            rerank_applied=source == "rerank",
            effective_rank_source=source,
            k_out=len(hits),
            mmr_lambda=s.strategy.retrieval.mmr_lambda,
        )
        tracing.event(
            "rerank.ranked", {"before": _list_hits(before[:top_k]), "after": _list_hits(hits)}
        )
        with s.attempt("hydration", "what was read in pictures is not shown (%s)", span=span):
            return with_picture_texts(hits, s.lease.release.catalog)
        return hits


def _ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.chunk_id for hit in hits]


def _list_hits(hits: Sequence[Hit]) -> list[Json]:
    """The hits in the form of trace events."""
    return [{"chunk_id": hit.chunk_id, "score": round(hit.score, 6)} for hit in hits]


def select_first(s: SearchContext, hits: list[Hit], top_k: int) -> list[Hit]:
    """At most top_k of the joined hits of several phrasings, without repeated texts and within the
    limit per document; ranks from 1.
    """
    with tracing.span("stage.join", provider_type="fusion", provider_id="rrf") as span:
        shown = reranking.renumber(_select_shown(s, hits, top_k, span))
        span.set(k_in=len(hits), k_out=len(shown))
        return shown


def _rerank(s: SearchContext, built: Built, query: QueryIR, hits: list[Hit]) -> list[Hit]:
    """The hits in the reranker's order, within its timeout."""
    instance, config, limit = (
        built.instance,
        s.strategy.reranker,
        s.library.models.limit_calls("reranker", built, s.strategy.reranker),
    )

    def rerank() -> list[Hit]:
        with limit:
            return reranking.apply_reranker(
                instance, config, query, hits, rerank_k=s.strategy.retrieval.rerank_k
            )

    seconds, setting = min(
        (s.strategy.retrieval.stage_seconds, "retrieval.stage_seconds"),
        (config.timeout_ms / 1000, "reranker.timeout_ms"),
    )
    return limits.run_within(
        seconds, "stage.rerank", rerank, s.deadline, quick=built.traits.quick, setting=setting
    )


def _is_unsure(s: SearchContext, query: QueryIR, hits: Sequence[Hit]) -> bool:
    """True where the hits are worth reranking: not under load, nor where confidence reaches
    `reranker.only_below_confidence`.
    """
    if limits.RERANK in s.without:
        s.give_up("rerank", "the hits were not reranked", s.library.load.running)
        return False
    least = s.strategy.reranker.only_below_confidence
    return least is None or confidence(query, hits) < least


def confidence(query: QueryIR, hits: Sequence[Hit]) -> float:
    """How far a ranking can be trusted before reranking, 0 to 1: the share of the question's words
    in the first hit with its headings; across languages that of its identifiers and names, or one
    half without any. 0 without hits. It orders rankings, but is no probability.
    """
    if not hits:
        return 0.0
    question, first = subject_of(query), with_headings(hits[0])
    measure = coverage if is_wide(question) == is_wide(hits[0].chunk_text) else names_coverage
    return round(measure(question, [first]), 3)


def _find_favoured(
    s: SearchContext, plan: FilterPlan, rows: dict[str, HitRow]
) -> dict[str, set[str]]:
    """Preference to the chunk ids that satisfy it; one that fails is left out."""
    signals = find_preferred(plan.soft, rows)
    for name, where, params in filters.select_favoured(list(rows), plan):
        with s.attempt("filter", f"the preference {name} failed and was left out (%s)"):
            signals[name] = set(s.lease.release.catalog.chunk_ids(where, params))
    return signals


def _read_hits(
    s: SearchContext, candidates: list[Candidate], step: int, top_k: int, span: tracing.Span
) -> tuple[list[Hit], dict[str, HitRow]]:
    """(hits in the order of the candidates, their rows), read `step` at a time until top_k hits can
    be shown, since reading the whole pool costs more. Empty where the catalog cannot be read.
    """
    rows: dict[str, HitRow] = {}
    hits: list[Hit] = []
    with s.attempt(
        "hydration", "the texts of what was found could not be read (%s)", span=span
    ) as attempt:
        read = 0
        while read < len(candidates):
            end = read + max(step, 1)
            rows.update(
                s.lease.release.catalog.hit_rows(
                    [candidate.chunk_id for candidate in candidates[read:end]]
                )
            )
            hits, read = join_rows(candidates[:end], rows, s.lease.namespace), end
            if read >= len(candidates):
                break
            if s.strategy.retrieval.dedupe and has_editions(hits[:top_k]):
                step = len(candidates)  # any may be the better edition
                continue
            shown = _select_shown(s, hits, top_k, span)
            # tables of contents are put last and newer versions first, so other hits may follow
            if (
                len(shown) == top_k
                and not is_contents(shown[-1].chunk_text)
                and not (_prefers_newest(s, shown) and has_versions(shown))
            ):
                break
    if attempt.error is not None and not hits:
        code = tracing.error_fields(attempt.error)["code"]
        s.flags["error"] = {
            "code": "provider_error",
            "message": faults.describe(attempt.error),
            "causes": [code],
        }
    return hits, rows


def _prefers_newest(s: SearchContext, hits: Sequence[Hit]) -> bool:
    return s.strategy.retrieval.dedupe and not asks_for_older(s.request.text, hits)


def _read_editions(s: SearchContext, doc_ids: Collection[str]) -> dict[str, Edition]:
    """doc_id to the edition of each document."""
    catalog = s.lease.release.catalog
    heads = catalog.heads(doc_ids)
    return {
        it.doc_id: read_edition(it.source_uri, it.title, heads.get(it.doc_id, ""), it.metadata)
        for it in catalog.documents_of(doc_ids)
    }


def tell_editions(s: SearchContext, hits: Sequence[Hit]) -> None:
    """Warn where other editions of what the first hit is from say otherwise, or where the edition
    is missing that the question names.
    """
    for hit in hits[:1]:
        if others := s.left_out.get(hit.chunk_id):
            s.warnings.append(
                f"`{hit.source_uri}` is taken for the newest version in force; other ones with"
                f" another text that were left out: {len(others)}"
            )
            with s.attempt("filter", "the dates of other versions could not be looked up (%s)"):
                dates = (it.date for it in _read_editions(s, others).values())
                for date in sorted(filter(is_to_come, dates))[:1]:
                    s.warnings.append(
                        f"another version of `{hit.source_uri}` has a date after today: {date}"
                    )
        wanted = name_document(hit.source_uri, hit.doc_title)
        asked = find_named_edition(s.request.text, " ".join(wanted))
        if (
            asked is not None
            and s.lease.release.lexical is not None
            and not is_of_other(s.request.text, asked.written, [hit])
        ):
            with s.attempt("filter", "the version in the question could not be looked up (%s)"):
                _tell_missing(s, asked, hit, wanted)


def _tell_missing(s: SearchContext, asked: Asked, hit: Hit, wanted: tuple[str, str]) -> None:
    if any(map(asked.fits, _read_editions(s, [hit.doc_id]).values())):
        return  # without a look at the names of all documents
    alike = set(s.lease.names().find_all_named(wanted[0])) - s.hidden_names
    documents = s.lease.release.catalog.documents_of(alike)
    found = [it.doc_id for it in documents if name_document(it.source_uri, it.title) == wanted]
    if there := list_others(asked, _read_editions(s, found).values()):
        s.warnings.append(
            f"no document is of version {asked} of `{wanted[0]}`, only of {', '.join(there)}"
        )


def _select_shown(s: SearchContext, hits: list[Hit], top_k: int, span: tracing.Span) -> list[Hit]:
    """The hits that are shown; the first top_k where it fails."""
    config, requested = s.strategy.retrieval, s.request.max_per_document
    with s.attempt("dedupe", "duplicate hits could not be found (%s); all are shown", span=span):
        if config.dedupe:
            hits, left = select_editions(s.request.text, hits, partial(_read_editions, s))
            for chunk_id, doc_ids in left.items():
                s.left_out.setdefault(chunk_id, set()).update(doc_ids)
        if _prefers_newest(s, hits):
            hits = keep_newest(s.request.text, hits)
        return select_shown(
            hits,
            top_k,
            dedupe=config.dedupe,
            max_per_document=config.max_per_document if requested is None else requested,
            dedupe_threshold=config.dedupe_threshold,
            mmr_lambda=config.mmr_lambda,
        )
    return hits[:top_k]
