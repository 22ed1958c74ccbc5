"""The search of one namespace, from the question to at most top_k hits:

    query_norm -> filter -> spelling -> retrieve_dense || retrieve_sparse
    (-> both again in mentioned documents) -> fusion -> filter -> rerank

Each stage is a span; each failure falls back and is reported. Search phrasings pass through the
same stages from the first filter on, and the hits of all are joined. A result is cached under
everything it depends on, unless a stage failed or was skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

from rag_platform.config.settings import Strategy, canonical_json, fingerprint
from rag_platform.errors import InputError, ProviderError
from rag_platform.ir import Candidate, Hit, QueryIR
from rag_platform.observability import faults, tracing
from rag_platform.processes import limits
from rag_platform.protocols import LexicalReader
from rag_platform.query import analysis, filters, translation
from rag_platform.query.constants import MAX_RULED_CHARS
from rag_platform.query.filters import FilterPlan
from rag_platform.query.translation import Translated
from rag_platform.registry import traits
from rag_platform.releases.release_store import Unreadable
from rag_platform.retrieval import document_mentions, fusion, ranking, retrievers, spelling
from rag_platform.retrieval.constants import (
    JOINED_HITS,
    LEADING_HITS,
    MAX_OVERFETCH,
    MAX_TOP_K,
    OWN_WORDS_REACH,
    TRACED_CANDIDATES,
)
from rag_platform.retrieval.document_mentions import Mentions
from rag_platform.retrieval.fallbacks import Fallbacks
from rag_platform.retrieval.filter_hints import explain_filter
from rag_platform.retrieval.library import Lease
from rag_platform.retrieval.product_versions import find_asked_versions, without_version
from rag_platform.retrieval.retrievers import RETRIEVERS, Access, Retrieved
from rag_platform.retrieval.search_context import SearchContext
from rag_platform.retrieval.signals import SearchSignals, measure_signals
from rag_platform.text.scripts import HAN_RUN, has_han
from rag_platform.text.wording import pluralise

# fields by which a caller names documents
_BY_DOCUMENT = frozenset({"doc_id", "version_id", "source_uri", "filename", "doc_title"})
# the default mode for the encoding of a release with one index
_DEFAULT_MODES = {"sparse_only": "sparse", "dense_only": "dense"}

log = logging.getLogger(__name__)


class Ranking(NamedTuple):
    """The hits, best first, and how they were found."""

    hits: tuple[Hit, ...]
    mode: str  # the effective one: dense | sparse | hybrid | none
    retrievers: int  # retrievers that ran
    matched_count: int | None
    signals: tuple[SearchSignals, ...] = ()  # of the question, then of its search phrasings


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search of one namespace."""

    lease: Lease
    strategy: Strategy
    query: QueryIR
    plan: FilterPlan
    top_k: int
    key: Hashable  # of the retrieval cache; None for a search that must not be cached
    fallbacks: Fallbacks
    hits: tuple[Hit, ...]
    mode: str
    retrievers: int
    matched_count: int | None
    signals: tuple[SearchSignals, ...] = ()


def search(s: SearchContext) -> Found:
    """Search the context's namespace. Raises as `engine.answer` for invalid arguments, releases and
    filters of the caller.
    """
    query, plan, mode, top_k = _prepare(s)
    if s.request.context_chunks:
        # without a search only the words can show whether the chunks contain the answer
        words = measure_signals(None, query, Retrieved())
        ranked = Ranking(tuple(ranking.read_given(s)), "none", 1, None, (words,))
        return Found(s.lease, s.strategy, query, plan, top_k, None, s, *ranked)
    inner = s.fork()
    key = _cache_key(inner, query, mode, top_k)
    cached: tuple[Ranking, Fallbacks, str] | None = s.library.retrievals.get(key)
    s.trace.set(cache_hit=cached is not None)
    if cached is None:
        query, plan, ranked = _search_phrasings(inner, query, plan, mode, top_k)
        ranking.tell_editions(inner, ranked.hits)
        s.include(inner)
        if s.failures or not s.flags.keys().isdisjoint(("load_shed", "filter_relaxed")):
            key = None
        else:
            fallbacks = Fallbacks(flags=inner.flags, warnings=inner.warnings)
            s.library.retrievals.put(key, (ranked, fallbacks, s.trace.trace_id))
    else:
        ranked, fallbacks, searching = cached
        s.trace.merge("searched_in", {s.lease.namespace: searching})
        s.include(fallbacks)
    return Found(s.lease, s.strategy, query, plan, top_k, key, s, *ranked)


def _search_phrasings(
    s: SearchContext, query: QueryIR, plan: FilterPlan, mode: str, top_k: int
) -> tuple[QueryIR, FilterPlan, Ranking]:
    """The hits of the question, joined with those of its search phrasings; without phrasings, of
    the parts of a question that asks for several things.
    """
    texts = query.rewrites or analysis.find_parts(query.normalised)
    query = _translate(s, query)
    if not texts:
        return _search(s, query, plan, mode, top_k)
    depth = max(top_k, JOINED_HITS)
    others: list[Ranking] = []
    with s.attempt("rewrite", "the search phrasings could not be read (%s)"):
        phrasings = [analysis.reword(query, text, s.strategy.query) for text in texts]
        if not query.rewrites:  # which are in the words of the texts
            phrasings = [_translate(s, part) for part in phrasings]
        _embed_all(s, [query, *phrasings])
        for number, phrasing in enumerate(phrasings, 1):
            others.append(_search_phrasing(s, phrasing, number, (plan, mode, depth)))
    # last, because the trace shows what was set last
    query, plan, ranked = _search(s, query, plan, mode, depth)
    hits = list(ranked.hits)
    with s.attempt("rewrite", "what the search phrasings found could not be joined in (%s)"):
        lists = [hits, *(other.hits for other in others)]
        hits = fusion.join_phrasings(lists, LEADING_HITS if query.rewrites else 1)
        listed = [{"chunk_id": hit.chunk_id, "found_by": list(hit.found_by)} for hit in hits]
        tracing.event("retrieval.joined", {"ranked": listed[:TRACED_CANDIDATES]})
    signals = ranked.signals
    if query.rewrites:
        signals += tuple(item for other in others for item in other.signals)
    else:  # the parts have no numbers that the caller knows
        hits = [replace(hit, found_by=()) for hit in hits]
    first = tuple(ranking.select_first(s, hits, top_k))
    return query, plan, ranked._replace(hits=first, signals=signals)


def _search_phrasing(
    s: SearchContext, phrasing: QueryIR, number: int, rest: tuple[FilterPlan, str, int]
) -> Ranking:
    """The hits of one search phrasing; none where it fails. Its own warnings are dropped, since the
    search of the question repeats them. A reranker that calls a model reranks the question's only.
    """
    plan, mode, depth = rest
    quick = traits("reranker", s.strategy.reranker.provider).quick
    context = replace(s.fork(), request=replace(s.request, rerank=s.request.rerank and quick))
    with (
        tracing.span("search.phrasing", number=number, text=phrasing.normalised[:200]) as span,
        s.attempt("rewrite", "a search phrasing could not be searched (%s)", span=span),
    ):
        found = _search(context, phrasing, plan, mode, depth)[2]
        span.set(hits=len(found.hits))
        return found
    return Ranking((), "none", 0, None)


def _search(
    s: SearchContext, query: QueryIR, plan: FilterPlan, mode: str, top_k: int
) -> tuple[QueryIR, FilterPlan, Ranking]:
    access, matched_count = _filter_before(s, plan)
    if matched_count == 0 and query.inferred:
        query, plan, access, matched_count = _relax(s, query, plan, access)
    if s.request.filters and (matched_count == 0 or plan.missing_included):
        _explain_filter(s, matched_count or 0)
    query = spelling.rewrite_dates(s, spelling.correct(s, query))
    # a further page continues in the pool of the first one and ends with it
    pool_k = max(s.strategy.retrieval.pool_k, top_k - s.request.skip)
    # run by the dense retriever, while the slower sparse one searches
    find_mentions = cache(partial(_find_mentions, s, query, mode))
    found = _retrieve(s, query, mode, access, pool_k, lambda: find_mentions()[1])
    mentions, nameless = find_mentions()
    searched = replace(found)  # feedback changes `found`
    if mentions is not None:
        found = _search_mentioned(s, nameless, access, replace(found, mentions=mentions), pool_k)
    if found.sparse and set(query.normalised.split()) <= set(query.identifiers):
        # an embedder sees little in DEB_HOST_MULTIARCH alone: lists of numbers are near to it
        found = replace(found, dense=[])
    if query.translated and len(found.ran) == 2:
        with s.attempt("translation", "the vectors of what was found could not be read (%s)"):
            found = retrievers.score_translated(s, nameless, found)
    fused = _apply_feedback(s, query, access, found, _fuse(s, found))
    candidates = ranking.filter_after(s, plan, fused)
    if (
        plan.drop
        and fused
        and not candidates
        and query.inferred
        and "filter_relaxed" not in s.flags
    ):
        relaxed, relaxed_plan, *_ = _relax(s, query, plan, access)
        if relaxed is not query:
            return _search(s, relaxed, relaxed_plan, mode, top_k)
    if plan.drop and (matched_count is None or not candidates):
        # counts the candidates only; counting all matching chunks would be another scan
        matched_count = len(candidates)
    signals: tuple[SearchSignals, ...] = ()
    with s.attempt("signals", "the confidence of the search could not be measured (%s)"):
        counted = _keep(searched, candidates) if plan.drop else searched
        # of a question whose language the library has, its own words tell
        held = s.lease.holds_language(query.language)
        asked = replace(query, translated="") if held else query
        signals = (measure_signals(s.lease.release.lexical, asked, counted),)
    hits = ranking.rank(s, query, plan, candidates, found, top_k)
    ranked = Ranking(tuple(hits), found.mode, len(found.ran), matched_count, signals)
    return query, plan, ranked


def _cache_key(s: SearchContext, query: QueryIR, mode: str, top_k: int) -> Hashable:
    """Everything that the hits depend on: release, strategy, hidden documents, the prepared
    question, and the options of the request.
    """
    request = s.request
    return (
        s.lease.namespace,
        s.lease.release_id,
        s.library.config_id(s.strategy),
        s.hidden_names,
        mode,
        top_k,
        request.skip,
        query.query_profile_id,
        query.rewrite_profile_id,
        query.original,
        query.dense_text,
        query.sparse_query,
        query.expansions,
        query.phrases,
        query.rewrites,
        query.preferences,
        canonical_json(query.filters),
        canonical_json(query.inferred),
        request.score_threshold,
        request.max_per_document,
        request.rerank,
        s.library.models.prompts_of("reranker", s.strategy.reranker),
    )


# --- the question and its filters ---------------------------------------------------------------


def _prepare(s: SearchContext) -> tuple[QueryIR, FilterPlan, str, int]:
    """(prepared question, plan of the filters, mode, top_k), before anything is searched."""
    request = s.request
    with tracing.span("stage.query_norm", provider_type="query", provider_id="plain") as span:
        query = _read_question(s, span)
        mode = (
            request.mode
            or _DEFAULT_MODES.get(s.lease.release.manifest.encoding)
            or s.strategy.retrieval.mode
        )
        if mode not in RETRIEVERS:
            raise InputError(
                f"mode {mode!r} is unknown; use one of {', '.join(RETRIEVERS)}", code="invalid_mode"
            )
        top_k = s.strategy.retrieval.top_k if request.top_k is None else request.top_k
        if isinstance(top_k, bool) or not isinstance(top_k, int) or not 1 <= top_k <= MAX_TOP_K:
            raise InputError(
                f"top_k = {top_k!r} must be a number from 1 to {MAX_TOP_K}", code="invalid_top_k"
            )
        given = analysis.check_searches(request.searches)
        rewrites = not given and s.library.models.rewrites(s.strategy)
        query = _rewrite(s, query, span) if rewrites else replace(query, rewrites=given)
        plan, query = _leave_other_versions(s, *_plan_filters(s, query))
        s.library.check_versions(s.lease, plan.versions)
        s.warnings += query.warnings
        span.provider["profile_id"] = query.query_profile_id
        span.set(
            query_hash=query.query_hash,
            rewritten_query_hash=_hash_rewritten(query),
            language=query.language,
            intent=query.intent,
            mode=mode,
            top_k=top_k,
            rewrite_used=rewrites and "rewrite" not in s.failures,
            rewrite_profile_id=query.rewrite_profile_id,
            queries=1 + len(query.rewrites),
            searches=list(query.rewrites),
        )
        folded = analysis.fold(analysis.clean(query.original))
        tracing.event(
            "query.normalized", {"query_norm": folded[:200], "query_hash": query.query_hash}
        )
        return query, plan, mode, top_k


def _translate(s: SearchContext, query: QueryIR) -> QueryIR:
    """A Chinese question with its words in English too, where the library has English texts and its
    Chinese ones hold few of the question's words; and the other way round.
    """
    lexical = s.lease.release.lexical
    other = {"zh": "en", "en": "zh"}.get(query.language)
    if (
        not s.strategy.query.translate
        or other is None
        or len(query.sparse_query) > MAX_RULED_CHARS
        or lexical is None
        or isinstance(lexical, Unreadable)  # the sparse retriever reports it
        or not s.lease.holds_language(other)
    ):
        return query
    with s.attempt("translation", "the words of the question could not be translated (%s)"):
        held = s.lease.holds_language(query.language)
        if held and _is_answered_in_own_words(lexical, query):
            return query
        words = translation.translate(query.sparse_query, lexical.doc_freq)
        found = [word.options[0][0] for word in words if word.options]
        if not found or (not held and _holds_most(lexical, words)):
            return query
        if has_han(query.sparse_query):
            found.append(HAN_RUN.sub(" ", query.sparse_query))
        return replace(
            query,
            expansions=(*query.expansions, *(it for word in words for it in word.options)),
            translated=" ".join(found),
            untranslated=" ".join(word.text for word in words if not word.options),
        )
    return query


def _is_answered_in_own_words(lexical: LexicalReader, query: QueryIR) -> bool:
    """True where a text has so many of the question's words that it is probably the answer."""
    best = lexical.search(query.sparse_query, 1)
    most = lexical.full_match_score(query.sparse_query)
    return bool(best) and best[0].score >= OWN_WORDS_REACH * most


def _holds_most(lexical: LexicalReader, words: Sequence[Translated]) -> bool:
    """True where the library has most of a Chinese question's words, as in notes beside code, which
    count as English.
    """
    own = [bool(lexical.doc_freq(word.text)) for word in words if has_han(word.text)]
    return sum(own) * 2 > len(words)


def _hash_rewritten(query: QueryIR) -> str:
    """The hash of the search phrasings; empty without any."""
    return fingerprint(*query.rewrites) if query.rewrites else ""


def _read_question(s: SearchContext, span: tracing.Span) -> QueryIR:
    """The question prepared by the strategy, or plainly when that fails, as by an unreadable file
    of synonyms. Raises InputError for an invalid question.
    """
    request, sizes = s.request, s.library.settings.limits
    warning = "the question could not be prepared as configured (%s); it is asked as it is"
    with s.attempt("query_norm", warning, span=span, passing=(InputError,)):
        return analysis.prepare(
            request.text,
            sizes,
            request.filters,
            config=s.strategy.query,
            infer=request.infer,
        )
    s.flags["fallback_mode"] = "query_plain"
    return analysis.without_rules(request.text, sizes, request.filters)


def _rewrite(s: SearchContext, query: QueryIR, span: tracing.Span) -> QueryIR:
    """The question rewritten by a language model, or unchanged when that fails."""
    from rag_platform.query import rewriting

    config = s.strategy.query
    with s.attempt(
        "rewrite", "the question could not be rewritten (%s); it is asked as it is", span=span
    ):
        if limits.MODEL in s.without:
            s.give_up("rewrite", "the question was not rewritten", s.library.load.running)
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
            (s.deadline.left() / 2, "half of what retrieval.query_seconds leaves, for the search"),
        )
        rewrite = partial(rewriting.rewrite, query, llm, config, infer=s.request.infer)
        return limits.run_within(
            seconds, "the rewriting of the question", rewrite, s.deadline, setting=setting
        )
    s.flags["fallback_mode"] = "query_plain"
    return analysis.undo(query)


def _plan_filters(s: SearchContext, query: QueryIR) -> tuple[FilterPlan, QueryIR]:
    """The plan of the caller's and the inferred filters, without the latter where they cannot be
    planned. Raises InputError for an invalid filter of the caller.
    """
    if query.inferred:
        with s.attempt("filter", "filters inferred from the question were left out (%s)"):
            return filters.plan(query.filters), query
        query = replace(query, filters=dict(s.request.filters), inferred={})
    if query.filters:
        return filters.plan(query.filters), query
    with s.attempt("filter", "the plan of the filters failed (%s); none was asked for"):
        return filters.plan({}), query
    return FilterPlan(), query


def _leave_other_versions(
    s: SearchContext, plan: FilterPlan, query: QueryIR
) -> tuple[FilterPlan, QueryIR]:
    """The plan and the question without the documents of other versions than the one that the
    question names. Unchanged where the caller names documents or passages.
    """
    config = s.strategy.query.inference
    infers = config.enabled if s.request.infer is None else s.request.infer
    if (
        not infers
        or "product_version" not in config.fields
        or s.request.context_chunks
        or not _BY_DOCUMENT.isdisjoint(plan.fields + plan.post_fields)
        or not find_asked_versions(query.original)
    ):
        return plan, query
    with s.attempt("filter", "the version in the question could not be looked up (%s)"):
        versions = s.lease.product_versions()
        version, others = versions.find_others(query.original, s.hidden_names)
        missing, product, there = versions.find_missing(query.original)
        mentions = _find_mentions(s, query, "hybrid")[0] if missing else None
        if missing and not (mentions and mentions.section):  # as of 1.7 in the change log of 1.8
            sentence = (
                f"no document is of version {missing} of `{product}`, only of {', '.join(there)}"
            )
            query = replace(query, warnings=(*query.warnings, sentence))
        if others:
            sentence = (
                f"searched for version {version} only,"
                f" {pluralise(len(others), 'document')} of other versions left out"
            )
            query = replace(
                query,
                inferred={**query.inferred, "product_version": version},
                normalised=without_version(query.normalised, version),
                dense_text=without_version(query.dense_text, version),
                sparse_query=without_version(query.sparse_query, version),
                warnings=(*query.warnings, f"{sentence}; {analysis.WITHOUT_FILTERS}"),
            )
            return filters.without_documents(plan, others), query
    return plan, query


def _relax(
    s: SearchContext, query: QueryIR, plan: FilterPlan, access: Access
) -> tuple[QueryIR, FilterPlan, Access, int | None]:
    """(question, plan, access, matched chunks) for a question whose inferred filters match nothing:
    without these filters where `relax_once` is configured, else unchanged.
    """
    config = s.strategy.query.inference
    if int(query.query_hash[:8], 16) < config.sample_rate * 0x1_0000_0000:
        log.info(
            "the filters %s, told from a question, match nothing in library %s",
            query.inferred,
            s.lease.namespace,
        )
    if not config.relax_once:
        return query, plan, access, 0
    with s.attempt(
        "filter", "the question could not be asked again without its inferred filters (%s)"
    ) as attempt:
        relaxed = analysis.relax(query, s.strategy.query)
        relaxed_plan = filters.plan(relaxed.filters)
    if attempt.error is not None:
        return query, plan, access, 0
    s.flags["filter_relaxed"] = True
    s.warnings.append(
        f"nothing matches {canonical_json(query.inferred)}, inferred from the question; asked"
        " again without it"
    )
    return relaxed, relaxed_plan, *_filter_before(s, relaxed_plan)


def _filter_before(s: SearchContext, plan: FilterPlan) -> tuple[Access, int | None]:
    """(what may be searched, the number of matching chunks or None without a filter)."""
    release = s.lease.release
    with tracing.span(
        "stage.filter",
        provider_type="filter",
        provider_id=filters.RULES,
        profile_id=plan.filter_profile_id,
    ) as span:
        hidden = s.library.hidden_chunks(s.lease, s.hidden_names)
        allowed: frozenset[str] | None = None
        if plan.where:
            # the same object each time, by which index readers cache their row sets
            allowed = _match(s, plan)
            allowed = allowed - hidden if hidden else allowed
            if plan.missing_included and allowed:
                s.warnings.append(
                    f"chunks without {', '.join(plan.missing_included)} match as well; add"
                    ' "$missing": "exclude" to a condition to leave them out'
                )
        elif len(hidden) > MAX_OVERFETCH:
            allowed, hidden = frozenset(release.catalog.chunk_ids()) - hidden, frozenset()
        matched = len(allowed) if allowed is not None and plan.where else None
        facts = {"filter_execution_plan": plan.execution, "matched_count": matched}
        span.set(phase="pre", hidden=len(hidden), **facts)
        if plan.applied:
            tracing.event("filter.applied", {"filters": plan.applied, **facts})
        everything = matched is not None and matched + len(hidden) >= int(
            release.manifest.counts["chunks"]
        )
        return Access(None if everything else allowed, hidden), matched


def _explain_filter(s: SearchContext, matched_count: int) -> None:
    """Warn of a filter that matches no passage, or only passages without its fields."""
    with s.attempt("filter", "it could not be checked which conditions of the filter are met (%s)"):
        unmet = explain_filter(
            s.lease.release.catalog,
            s.request.filters,
            s.hidden_names,
            lambda plan: bool(_match(s, plan)),
        )
        s.warnings += unmet
        if not (unmet or matched_count):
            s.warnings.append("no passage meets all conditions of the filter together")


def _match(s: SearchContext, plan: FilterPlan) -> frozenset[str]:
    """The chunks that match a filter. Raises InputError for a number that is too large, and
    ProviderError `filter_failed`, because an unfiltered answer would be wrong.
    """
    try:
        return s.library.matching_chunks(s.lease, plan.where, plan.params)
    except OverflowError as error:
        raise InputError(
            f"a number in the filter on {', '.join(plan.fields)} is too large",
            code="invalid_filter",
        ) from error
    except Exception as error:
        faults.report(error, "stage.filter")
        s.trace.set(flags={"filter_failed": True})
        raise ProviderError(
            f"the filter on {', '.join(plan.fields)} could not be run ({faults.describe(error)});"
            " nothing was searched, because an unfiltered answer would be a wrong one",
            code="filter_failed",
        ) from error


# --- candidates ---------------------------------------------------------------------------------


def _retrieve(
    s: SearchContext,
    query: QueryIR,
    mode: str,
    access: Access,
    pool_k: int,
    nameless: Callable[[], QueryIR],
) -> Retrieved:
    """The candidates of both retrievers, without dense ones below the score threshold; `nameless`
    returns the question for the dense retriever.
    """
    config = s.strategy.retrieval
    if limits.POOL in s.without:
        pool_k = max(s.request.top_k or config.top_k, pool_k // 2)
        warning = f"only {pool_k} candidates of each retriever were looked at"
        s.give_up("pool", warning, s.library.load.running)

    found = retrievers.retrieve(s, query, mode, access, pool_k, nameless)
    s.deadline.check()
    return _drop_distant(found, config.score_threshold)


def _drop_distant(found: Retrieved, threshold: float | None) -> Retrieved:
    """`found` without the dense candidates below the threshold, which maps a cosine to 0 to 1."""
    if threshold is None:
        return found
    near = [candidate for candidate in found.dense if (candidate.score + 1) / 2 >= threshold]
    return replace(found, dense=near)


def _keep(found: Retrieved, kept: Sequence[Candidate]) -> Retrieved:
    """`found` without the candidates that are not kept."""
    names = {candidate.chunk_id for candidate in kept}
    dense, sparse = (
        [candidate for candidate in candidates if candidate.chunk_id in names]
        for candidates in (found.dense, found.sparse)
    )
    return replace(found, dense=dense, sparse=sparse)


def _embed_all(s: SearchContext, questions: Sequence[QueryIR]) -> None:
    """Embed all questions in one call and cache the vectors for the retrievers. If the call fails,
    each retriever embeds its own question and reports the error.
    """
    if s.lease.release.dense is None:
        return
    texts = [question.dense_text for question in questions]
    with faults.Attempt("model.embed") as attempt:
        limits.run_within(
            s.strategy.retrieval.stage_seconds,
            "model.embed",
            lambda: s.library.models.query_vectors(s.strategy.embedding, texts),
            s.deadline,
        )
    if attempt.error is not None:
        log.info("the questions could not be embedded in one call: %s", attempt.error)


def _find_mentions(s: SearchContext, query: QueryIR, mode: str) -> tuple[Mentions | None, QueryIR]:
    """(the documents that the question names or None, the question without their names). Only a
    hybrid search prefers them; a single retriever's order is left unchanged.
    """
    release = s.lease.release
    if (
        not s.strategy.retrieval.named_documents
        or mode != "hybrid"
        or release.dense is None
        or release.lexical is None
        or isinstance(release.lexical, Unreadable)  # the sparse retriever reports it
    ):
        return None, query
    with s.attempt("naming", "the documents named in the question could not be identified (%s)"):
        if (mentions := s.lease.names().find_mentions(query.original)) is not None:
            nameless = document_mentions.without_names(query.dense_text, mentions.words)
            return mentions, replace(query, dense_text=nameless)
    return None, query


def _search_mentioned(
    s: SearchContext, query: QueryIR, access: Access, found: Retrieved, pool_k: int
) -> Retrieved:
    """`found`, with the best candidates of the documents that the question names."""
    assert found.mentions is not None
    documents, words = dict(found.mentions.documents), list(found.mentions.words)
    with tracing.span(
        "stage.naming", provider_type="retriever", provider_id="names", documents=len(documents)
    ) as span:
        tracing.event("retrieval.named", {"documents": documents, "words": words})
        if s.without:  # under load mentioned documents are preferred, but not searched again
            return found
        with s.attempt(
            "naming",
            "the documents named in the question could not be searched separately (%s)",
            span=span,
        ):
            found = retrievers.search_within(s, query, access, found, pool_k)
    return _drop_distant(found, s.strategy.retrieval.score_threshold)


def _fuse(s: SearchContext, found: Retrieved, phase: str = "search") -> list[Candidate]:
    """All candidates in one order, that of the retriever where only one ran. `phase` names the
    fusion in the trace: search or feedback.
    """
    config, both = s.strategy.fusion, len(found.ran) == 2
    with tracing.span(
        "stage.fusion",
        provider_type="fusion",
        provider_id=config.provider,
        **s.span_profile("fusion"),
    ) as span:
        # the order used where fusion fails or one retriever ran: sparse where it is fully trusted
        retriever = (
            "sparse" if found.sparse and (found.trust >= 1.0 or not found.dense) else "dense"
        )
        fused = found.sparse if retriever == "sparse" else found.dense
        with s.attempt(
            "fusion",
            f"the two rankings could not be fused (%s); that of the {retriever} retriever stands",
            span=span,
        ):
            built = s.library.models.provider("fusion", config)
            ranked = (
                built.instance.fuse(found.dense, found.sparse, trust=found.trust, whole=found.whole)
                if both
                else fused
            )
            if found.mentions is not None:
                ranked = document_mentions.prefer_mentioned(
                    ranked, found.mentions.chunks, s.strategy.retrieval.named_documents
                )
            fused = ranked
        span.set(
            fusion_id=config.provider,
            phase=phase,
            fusion_applied=both,
            trust_in_words=found.trust,
            k_out=len(fused),
        )
        listed = retrievers.list_candidates(fused)
        tracing.event("fusion.ranked", {"phase": phase, "ranked": listed})
    if s.artifacts is not None:
        s.artifacts.dense, s.artifacts.sparse = found.dense, found.sparse
        s.artifacts.fused = fused
    for retriever, candidates in (("dense", found.dense), ("sparse", found.sparse)):
        s.trace.count_distinct(f"candidates_{retriever}", (item.chunk_id for item in candidates))
    if both:
        s.record("dense_topk_overlap_sparse", retrievers.measure_overlap(found.dense, found.sparse))
    return list(fused)


def _apply_feedback(
    s: SearchContext, query: QueryIR, access: Access, found: Retrieved, fused: list[Candidate]
) -> list[Candidate]:
    """Fuse again, with dense candidates for the question's vector moved towards its best hits;
    `fused` unchanged where feedback is off.

    Only applied where the sparse retriever is fully trusted, since across languages the best hits
    are too often wrong.
    """
    config = s.strategy.retrieval
    if (
        not config.feedback_hits
        or len(found.ran) < 2
        or not found.dense
        or found.trust < 1.0
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
        again = retrievers.search_with_feedback(s, query, access, found, fused)
        found.dense = again or found.dense
    return fused if attempt.error is not None else _fuse(s, found, "feedback")
