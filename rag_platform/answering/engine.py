"""The query pipeline, shared by server, command line, web pages and evaluation:

    search of each namespace (query_norm -> filter -> retrieve -> fusion -> filter -> rerank) ->
        merge -> context_build -> generate -> format_response

Each stage is a span `stage.<name>`. A stage that fails falls back, and reports it in `flags`,
`warnings` and the trace. Only an invalid argument, a missing release, a filter of the caller that
cannot run and a cancelled request fail the whole question. `retrieval.query_seconds` is the
deadline of all stages together.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from math import inf

import numpy as np

from rag_platform.answering import composition, context_builder, states
from rag_platform.answering.composition import Answer
from rag_platform.answering.constants import LOAD_SECONDS, MAX_FILTER_NESTING
from rag_platform.answering.question_context import Leases, OnText, Question
from rag_platform.config.settings import Strategy, canonical_json, fingerprint
from rag_platform.errors import CancelledError, InputError, ProviderError, RagError
from rag_platform.ir import Hit, Json, QueryRequest, QueryResult
from rag_platform.observability import faults, tracing
from rag_platform.processes import limits
from rag_platform.processes.limits import Budget, Deadline
from rag_platform.protocols import Vectors
from rag_platform.query.analysis import subject_of
from rag_platform.registry import traits
from rag_platform.retrieval import fusion
from rag_platform.retrieval.hydration import select_shown
from rag_platform.retrieval.library import Lease, Library
from rag_platform.retrieval.namespace_search import Found, search
from rag_platform.retrieval.search_context import Artifacts, SearchContext
from rag_platform.text.stop_words import is_only_function_words

# Errors that fail the whole question, because every other namespace would fail the same way.
_FATAL_CODES = frozenset(
    "empty_query query_too_long invalid_query unknown_filter invalid_filter invalid_mode"
    " invalid_top_k invalid_searches unknown_namespace unknown_strategy cancelled".split()
)
_NAMED_UNREAD = 3  # documents that could not be read, named beside what does not answer
_REQUEST_FIELDS = tuple(field.name for field in dataclasses.fields(QueryRequest))
_LATENCIES = {
    "dense_latency_ms": "stage.retrieve_dense",
    "sparse_latency_ms": "stage.retrieve_sparse",
    "fusion_latency_ms": "stage.fusion",
    "rerank_latency_ms": "stage.rerank",
}


def answer(
    library: Library,
    request: QueryRequest,
    *,
    request_id: str | None = None,
    on_text: OnText | None = None,
    cancelled: threading.Event | None = None,
    artifacts: Artifacts | None = None,
) -> QueryResult:
    """Run the pipeline: the hits, the answer with its citations, and how they were found.

    `on_text` receives the parts of a generated answer as they arrive, before its citations are
    checked. Setting `cancelled` ends the question early. `artifacts` collects the intermediate
    results of a question to a single namespace. Raises InputError (`empty_query`,
    `query_too_long`, `unknown_filter`, `invalid_filter`, `invalid_mode`, `invalid_top_k`,
    `invalid_searches`, `version_not_live`, `embedder_mismatch`, `release_of_several`),
    NotFoundError (`unknown_namespace`, `no_release`, `unknown_strategy`), ReleaseError,
    ProviderError (`filter_failed`, `overloaded`), and CancelledError; each has the `trace_id` in
    its details.
    """
    names = tuple(dict.fromkeys(request.namespaces)) or (request.namespace,)
    with tracing.trace(
        "query", logs_dir=library.store.logs_dir, namespace=names[0], request_id=request_id
    ) as trace:
        leases = Leases(library)
        try:
            _require_shallow(request.filters)
            if len(names) > 1 and (request.release_id or request.context_chunks):
                raise InputError(
                    f"a release and its chunks belong to one library; name it ({', '.join(names)})",
                    code="release_of_several",
                )
            with library.load.question() as shed:
                return _answer(
                    Question(
                        library,
                        names,
                        request,
                        trace,
                        leases,
                        shed,
                        on_text,
                        cancelled,
                        artifacts if len(names) == 1 else None,
                    )
                )
        except RagError as error:
            error.details.setdefault("trace_id", trace.trace_id)
            raise
        finally:
            leases.close()


def _require_shallow(filters: object) -> None:
    """Raises InputError for filters nested more deeply than traces and caches can serialise."""
    if _is_deep(filters, MAX_FILTER_NESTING):
        raise InputError(
            f"the filter is nested more than {MAX_FILTER_NESTING} levels deep; write it flatter",
            code="invalid_filter",
        )


def _is_deep(value: object, levels: int) -> bool:
    """True when a value is nested at least `levels` deep."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deep(item, levels - 1) for item in inner)


def _answer(q: Question) -> QueryResult:
    lease = q.leases.open(q.namespaces[0], q.request.release_id) if q.is_single else None
    strategy = _strategy(q, lease)
    _load_models(q, lease, strategy)
    seconds = min(strategy.retrieval.query_seconds, (q.request.timeout_ms or inf) / 1000)
    deadline = Deadline.after(seconds, q.cancelled)
    with limits.charge_to(Budget(deadline)) as budget:
        if lease is None:
            found = _search_all(q, deadline)
        else:
            found = [_search(q, lease, strategy, deadline)]
            q.include(found[0].fallbacks)
        hits = _merge(q, found)
        assessed = _assess(q, found, hits)
        signals = assessed.signals
        if q.request.answer:
            context = _build_context(q, found, hits)
            answer = _generate(q, found, hits, context, deadline, assessed)
            signals = dataclasses.replace(signals, quotes_near=answer.quotes_near)
            _warn_of_failed_updates(q, answer)
            _warn_of_unread_documents(q, found, answer)
        else:
            probability = assessed.probability
            phrased = bool(found[0].query.rewrites)
            state = states.decide_unanswered(probability, phrased=phrased)
            answer = Answer(confidence=probability, state=state)
        return _format_response(q, found, hits, answer, budget, dataclasses.asdict(signals))


def _strategy(q: Question, lease: Lease | None) -> Strategy:
    """The strategy that sets the time limit: that of a single namespace; for several, the requested
    or the default one.
    """
    if lease is not None:
        return q.library.query_strategy(lease, q.request.strategy)
    return q.library.strategy(q.request.strategy or q.library.settings.default_strategy)


def _load_models(q: Question, lease: Lease | None, strategy: Strategy) -> None:
    """Describe the question in its trace, and load the models that it needs before its deadline
    starts. A failure is reported by the stage that uses the model.
    """
    searches = not q.request.context_chunks
    opened = [(lease, strategy)] if lease is not None else list(_open_namespaces(q))
    for lease, strategy in opened:
        _describe(q, lease, strategy)
        dense = (
            searches
            and lease.release.dense is not None
            and (q.request.mode or strategy.retrieval.mode) != "sparse"
        )
        unloaded = q.library.models.find_unloaded(
            strategy, dense=dense, rerank=q.request.rerank and searches, answer=q.request.answer
        )
        for kind, built in unloaded.items():
            with faults.Attempt("model.load", passing=(CancelledError,)):
                limits.run_within(
                    LOAD_SECONDS,
                    f"loading the {kind}",
                    partial(q.library.models.load, built),
                    Deadline.after(LOAD_SECONDS, q.cancelled),
                    setting="the limit of loading",
                )


def _open_namespaces(q: Question) -> Iterator[tuple[Lease, Strategy]]:
    """The namespaces that can be opened, with their strategies; `_search_all` reports the rest."""
    for namespace in q.namespaces:
        with suppress(RagError):
            lease = q.leases.open(namespace)
            yield lease, q.library.query_strategy(lease, q.request.strategy)


# --- stages -------------------------------------------------------------------------------------


def _describe(q: Question, lease: Lease, strategy: Strategy) -> None:
    """Record the strategy, release and request in the trace, those of the first library only."""
    if q.trace.header["strategy_config_id"]:
        return
    q.trace.describe(q.library.config_id(strategy), q.library.providers(lease, strategy))
    q.trace.set(
        release_id=lease.release_id,
        request={name: getattr(q.request, name) for name in _REQUEST_FIELDS},
    )


def _search(q: Question, lease: Lease, strategy: Strategy, deadline: Deadline) -> Found:
    return search(
        SearchContext(q.library, lease, strategy, q.request, q.trace, deadline, q.shed, q.artifacts)
    )


def _search_all(q: Question, deadline: Deadline) -> list[Found]:
    """The results of several namespaces, searched concurrently, in the order of the request. A
    namespace that cannot be searched becomes a warning.

    Raises InputError for an invalid request, and the first error when every namespace failed.
    """

    def search_namespace(namespace: str) -> Found:
        with tracing.span("namespace.search", namespace=namespace):
            lease = q.leases.open(namespace)
            return _search(q, lease, q.library.query_strategy(lease, q.request.strategy), deadline)

    running = {name: limits.start(partial(search_namespace, name)) for name in q.namespaces}
    found: dict[str, Found] = {}
    errors: dict[str, Exception] = {}
    for name, future in running.items():
        with faults.Attempt("namespace.search") as attempt:
            stage = f"the search of library {name}"
            found[name] = limits.wait(future, deadline.left(), stage, deadline)
        if attempt.error is not None:
            if getattr(attempt.error, "code", "") in _FATAL_CODES:
                raise attempt.error
            errors[name] = attempt.error
    searched = {name: item for name, item in found.items() if "error" not in item.fallbacks.flags}
    if searched:  # otherwise the answer itself states that nothing could be searched
        for name, item in found.items():
            if (error := item.fallbacks.flags.get("error")) is not None:
                errors[name] = ProviderError(error["message"], code=error["code"])
        found = searched
    _report_namespaces(q, found, errors)
    return list(found.values())


def _report_namespaces(q: Question, found: dict[str, Found], errors: dict[str, Exception]) -> None:
    """Add the flags and warnings of the namespaces to the question's. Raises the first error when
    none was searched.
    """
    codes = {name: tracing.error_fields(error)["code"] for name, error in errors.items()}
    if not found:
        first = next(iter(errors.values()))
        if isinstance(first, RagError):
            first.details["namespaces"] = codes
        raise first
    for name in q.namespaces:
        if name in found:
            q.warnings += [f"{name}: {warning}" for warning in found[name].fallbacks.warnings]
            continue
        q.warnings.append(
            f"{name}: could not be asked ({faults.describe(errors[name])}); the others answered"
        )
        fields = tracing.error_fields(errors[name])
        tracing.event("query.fallback", {"namespace": name, **fields})
    for item in reversed(found.values()):  # the first namespace wins where flags conflict
        q.flags.update(item.fallbacks.flags)
    q.flags["namespaces"] = {name: item.fallbacks.flags for name, item in found.items()}
    if codes:
        q.flags["namespaces_failed"] = codes


def _merge(q: Question, found: list[Found]) -> list[Hit]:
    """The at most top_k best hits of all namespaces; a single namespace's hits are unchanged."""
    first = found[0]
    if len(found) == 1:
        return list(first.hits)
    with tracing.span("stage.merge", provider_type="merge", provider_id="by_namespace") as span:
        lists = [item.hits for item in found]
        config, per_document = first.strategy.retrieval, q.request.max_per_document
        merged = [hit for turn in zip_longest(*lists) for hit in turn if hit is not None]
        hits = merged[: first.top_k]
        warning = (
            "the hits of the libraries could not be weighed against each other (%s); they take"
            " turns"
        )
        with q.attempt("merge", warning, span=span):
            questions = (subject_of(first.query), *first.query.rewrites)
            merged = fusion.merge_namespaces(questions, lists)
            hits = select_shown(
                merged,
                first.top_k,
                dedupe=config.dedupe,
                dedupe_threshold=config.dedupe_threshold,
                mmr_lambda=config.mmr_lambda,
                max_per_document=config.max_per_document if per_document is None else per_document,
            )
        span.set(
            k_in=len(merged), k_out=len(hits), namespaces=[item.lease.namespace for item in found]
        )
        return [dataclasses.replace(hit, rank=rank) for rank, hit in enumerate(hits, 1)]


def _assess(q: Question, found: list[Found], hits: list[Hit]) -> states.Assessment:
    """Measured on the namespace of the first hit; 0 without hits, and for `what is it?`, which has
    no word to look for.
    """
    first = hits[0].namespace if hits else ""
    item = next((item for item in found if item.lease.namespace == first), found[0])
    own = [hit for hit in hits if hit.namespace == first]
    if _reads_pictures(q, found):
        own = [dataclasses.replace(hit, chunk_text=hit.readable) for hit in own]
    phrased, signals, question_only = len(item.signals) > 1, states.Signals(), None
    with q.attempt("signals", "the confidence of the answer could not be measured (%s)"):
        signals = states.read_signals(q.request.text, item.signals, own)
        if phrased:
            question_only = states.read_signals(q.request.text, item.signals[:1], own)
    probability = 0.0
    if hits and (phrased or not is_only_function_words(item.query.normalised)):
        probability = states.probability(signals, phrased=phrased, question_only=question_only)
    return states.Assessment(signals, probability)


def _reads_pictures(q: Question, found: list[Found]) -> bool:
    """True where a language model answers, also from what was read in pictures, which is no
    quote.
    """
    reads = traits("answerer", found[0].strategy.answerer.provider).uses_llm
    return reads and limits.MODEL not in q.shed


def _build_context(q: Question, found: list[Found], hits: list[Hit]) -> list[Hit]:
    """The passages that the answerer reads, within the token budget."""
    config = found[0].strategy.context
    with tracing.span(
        "stage.context_build",
        provider_type="context",
        provider_id="budget",
        profile_id=f"context-{fingerprint(config.model_dump(mode='json'), length=12)}",
        max_tokens=config.max_tokens,
    ) as span:
        chosen = None
        pictures = _reads_pictures(q, found)
        # parents and neighbours may be unreadable
        with q.attempt("context", "the context was made of the hits alone (%s)", span=span):
            catalogs = {item.lease.namespace: item.lease.release.catalog for item in found}
            if not q.request.context_chunks:
                lookup = _make_vector_lookup(found)
                chosen = context_builder.select(hits, config, catalogs, lookup, pictures=pictures)
        chosen = chosen or context_builder.select_plainly(hits, config, pictures=pictures)
        q.warnings += chosen.warnings
        span.set(
            context_k=len(chosen.hits),
            final_context_tokens=chosen.tokens,
            repeated=chosen.repeated,
            dropped=chosen.dropped,
        )
        places = [f"{hit.source_uri}#{hit.section_path}" for hit in chosen.hits]
        tracing.event(
            "context.final",
            {"chunk_ids": [hit.chunk_id for hit in chosen.hits], "citations": places},
        )
        q.trace.count(selected_chunks=len(chosen.hits))
        q.trace.set(final_context_tokens=chosen.tokens)
        if q.artifacts is not None:
            q.artifacts.context = chosen.hits
        return list(chosen.hits)


def _make_vector_lookup(found: list[Found]) -> Callable[[Sequence[Hit]], Vectors] | None:
    """A function that returns the stored vectors of hits as rows, zeros for a hit without one; None
    unless a single namespace with a dense index was searched.
    """
    dense = found[0].lease.release.dense
    if len(found) > 1 or dense is None or found[0].mode not in ("dense", "hybrid"):
        return None

    def look_up(hits: Sequence[Hit]) -> Vectors:
        embedded = dense.keep_embedded(hit.chunk_id for hit in hits)
        rows = dict(zip(embedded, dense.vectors_of(embedded), strict=True))
        return np.stack([rows.get(hit.chunk_id, np.zeros(dense.dim, np.float32)) for hit in hits])

    return look_up


def _generate(
    q: Question,
    found: list[Found],
    hits: list[Hit],
    context: list[Hit],
    deadline: Deadline,
    assessed: states.Assessment,
) -> Answer:
    """The answer to the question, from the response cache or composed."""
    config = found[0].strategy.answerer
    with tracing.span(
        "stage.generate",
        provider_type="answerer",
        provider_id=config.provider,
        **q.library.span_profile(found[0].lease, found[0].strategy, "generator"),
    ) as span:
        key = _response_key(q, found)
        cached: Answer | None = q.library.responses.get(key) if key is not None else None
        if cached is not None and q.on_text is not None:
            q.on_text(cached.text)
        answer = cached or composition.compose(q, found, hits, context, deadline, span, assessed)
        q.flags.update(answered=answer.answered, state=answer.state)
        q.warnings += answer.warnings
        # under load quotes are not compared by meaning
        if key is not None and cached is None and not answer.degraded and not q.shed:
            q.library.responses.put(key, answer)
        if answer.unsupported:
            q.flags["unsupported"] = list(answer.unsupported)
        span.set(
            cache_hit=cached is not None,
            llm_provider_id=answer.llm_provider_id or "llm.none",
            model_id=answer.model_id,
            usage=answer.usage,
            prompt_profile_id=answer.prompt_profile_id,
            answered=answer.answered,
            state=answer.state,
            confidence=answer.confidence,
        )
        tracing.event(
            "generation.summary",
            {
                "output_chars": len(answer.text),
                "citations_used": len(answer.citations),
                "fallback_used": answer.degraded or not answer.answered,
            },
        )
        return answer


def _warn_of_failed_updates(q: Question, answer: Answer) -> None:
    """Warn of each cited document whose newest version could not be read."""
    if q.library.ledger is None:
        return
    cited: dict[str, set[str]] = {}
    for citation in answer.citations:
        cited.setdefault(citation.namespace, set()).add(citation.doc_id)
    with q.attempt("failed_updates", "whether a cited file is newer could not be looked up (%s)"):
        for namespace, doc_ids in cited.items():
            failed = q.library.ledger.failed_updates(namespace, doc_ids)
            q.warnings += [
                f"{source_uri}: the newest version could not be read, and the one before is cited:"
                f" {reason}"
                for source_uri, reason in failed.items()
            ]


def _warn_of_unread_documents(q: Question, found: list[Found], answer: Answer) -> None:
    """Beside passages that do not answer, warn of documents that could not be read."""
    is_of_today = not (q.request.release_id or q.request.context_chunks)
    if q.library.ledger is None or answer.state == "answered" or not is_of_today:
        return
    with q.attempt("unread_documents", "whether documents could not be read is unknown (%s)"):
        for namespace in (item.lease.namespace for item in found):
            count, names = q.library.ledger.list_unread(namespace, _NAMED_UNREAD)
            if count:
                rest = [f"and {count - len(names)} more"] if count > len(names) else []
                listed = ", ".join([*names, *rest])
                q.warnings.append(f"could not be read and may say more: {listed}")


def _response_key(q: Question, found: list[Found]) -> Hashable | None:
    """The cache key: everything the answer depends on (searches, answerer, prompts, model). None
    for an answer that must not be cached.
    """
    if not q.library.responses or any(item.key is None for item in found):
        return None
    strategy = found[0].strategy
    parts = [
        strategy.answerer.model_dump(mode="json"),
        strategy.llm.model_dump(mode="json"),
        strategy.context.model_dump(mode="json"),
    ]
    return (
        *(item.key for item in found),
        canonical_json(parts),
        q.language,
        q.library.models.prompts_of("answerer", strategy.answerer),
    )


def _format_response(
    q: Question,
    found: list[Found],
    hits: list[Hit],
    answer: Answer,
    budget: Budget,
    signals: Json,
) -> QueryResult:
    """Build the result, and record in the trace everything that a replay needs."""
    first = found[0]
    with tracing.span(
        "stage.format_response", provider_type="response", provider_id="query_result"
    ) as span:
        if (client := tracing.current_client()) is not None:
            span.set(client_level=client.client_level)
        modes = {item.mode for item in found} - {"none"}
        mode = modes.pop() if len(modes) == 1 else "mixed" if modes else "none"
        counts = [item.matched_count for item in found if item.matched_count is not None]
        releases = {item.lease.namespace: item.lease.release_id for item in found}
        usage = budget.usage()
        assets = {asset for hit in hits for asset in hit.asset_ids}
        q.trace.count(citations_count=len(answer.citations), assets_referenced=len(assets))
        q.trace.set(
            effective_mode=mode,
            query_hash=first.query.query_hash,
            flags=q.flags,
            warnings=q.warnings,
            usage=usage,
            signals=signals,
            ranked_chunk_ids=[hit.chunk_id for hit in hits],
            language=first.query.language,
            confidence=answer.confidence,
            top_score=hits[0].score if hits else None,
            **{name: q.trace.stage_ms(stage) for name, stage in _LATENCIES.items()},
        )
        if not q.is_single:
            q.trace.set(releases=releases)
        span.set(hits=len(hits), citations=len(answer.citations), confidence=answer.confidence)
        if q.artifacts is not None:
            q.artifacts.latency_ms = {**q.trace.figures().stage_ms, "total": q.trace.elapsed_ms()}
        tracing.event("response.envelope", {"ok": "error" not in q.flags, "warnings": q.warnings})
        return QueryResult(
            answer_markdown=answer.text,
            citations=answer.citations,
            hits=tuple(hits),
            confidence=answer.confidence,
            effective_mode=mode,
            applied_filters=first.plan.applied or {},
            matched_count=sum(counts) if counts else None,
            release_id=first.lease.release_id,
            trace_id=q.trace.trace_id,
            warnings=tuple(q.warnings),
            flags=q.flags,
            answered=answer.answered,
            state=answer.state,
            releases=releases,
            usage=usage,
            searches=first.query.rewrites,
            top_k=first.top_k,
            signals=signals,
            language=q.language,
        )
