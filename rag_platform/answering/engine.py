"""The query path: one function that reads as the pipeline, the same for server, command line, pages
and evaluation.

    search of each namespace (query_norm -> filter -> retrieve -> fusion -> filter -> rerank) ->
        merge -> context_build -> generate -> format_response

Each is a span `stage.<name>`. A failing stage falls back; what happened
stands in `flags`, `warnings` and the trace. Only a wrong argument, a missing release, a hard filter
that cannot run and a caller who no longer waits stop a query. All of it has one deadline
(`retrieval.query_seconds`); each stage may take its own time and never more than is left.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

import numpy as np

from rag_platform.answering import citations as citing
from rag_platform.answering import context_builder, extractive
from rag_platform.answering.context_builder import Evidence
from rag_platform.config.query import ContextConfig
from rag_platform.config.settings import Strategy, canonical_json
from rag_platform.errors import CancelledError, InputError, ProviderError, RagError
from rag_platform.ir import Citation, Hit, Json, QueryRequest, QueryResult
from rag_platform.observability import faults, tracing
from rag_platform.processes import limits
from rag_platform.processes.limits import Budget, Deadline
from rag_platform.protocols import Answerer, Vectors
from rag_platform.registry import traits_of
from rag_platform.retrieval import confidence, fusion
from rag_platform.retrieval.constants import MAX_TOP_K
from rag_platform.retrieval.fallbacks import Fallbacks
from rag_platform.retrieval.hydration import select_shown
from rag_platform.retrieval.library import Lease, Library
from rag_platform.retrieval.namespace_search import Found, search
from rag_platform.retrieval.search_context import SearchContext
from rag_platform.text.tokens import estimate_tokens

__all__ = ["MAX_TOP_K", "answer"]

# Mistakes of the caller that no namespace can answer; every other error of one namespace leaves the
# others.
_CALLERS = frozenset(
    {
        "empty_query",
        "query_too_long",
        "invalid_query",
        "unknown_filter",
        "invalid_filter",
        "invalid_mode",
        "invalid_top_k",
        "unknown_namespace",
        "unknown_strategy",
        "cancelled",
    }
)
_REQUEST = tuple(field.name for field in dataclasses.fields(QueryRequest))
_MAX_DEPTH = 40
LOAD_SECONDS = 120.0  # for each model of a question that nothing has loaded yet
UNSURE = 0.2  # the most confidence that a refusal has
OnText = Callable[[str], None]


def answer(
    library: Library,
    request: QueryRequest,
    *,
    request_id: str | None = None,
    on_text: OnText | None = None,
    cancelled: threading.Event | None = None,
) -> QueryResult:
    """The hits, the answer with its citations, and how they came about.

    `on_text` is given the parts of a generated answer as they come, before its citations are
    checked; `cancelled`, once set, ends the query early. Raises InputError (`empty_query`,
    `query_too_long`, `unknown_filter`, `invalid_filter`, `invalid_mode`, `invalid_top_k`,
    `version_not_live`, `embedder_mismatch`, `release_of_several`), NotFoundError
    (`unknown_namespace`, `no_release`, `unknown_strategy`), ReleaseError, ProviderError
    (`filter_failed`, `overloaded`), and CancelledError; each carries the `trace_id` in its details.
    """
    names = tuple(dict.fromkeys(request.namespaces)) or (request.namespace,)
    with tracing.trace(
        "query", logs_dir=library.store.logs_dir, namespace=names[0], request_id=request_id
    ) as trace:
        leases = _Leases(library)
        try:
            _require_shallow(request.filters)
            if len(names) > 1 and request.release_id:
                raise InputError(
                    f"a release belongs to one namespace; {len(names)} were named",
                    code="release_of_several",
                )
            with library.load.question() as without:
                return _answer(
                    _Query(library, names, request, trace, leases, without, on_text, cancelled)
                )
        except RagError as error:
            error.details.setdefault("trace_id", trace.trace_id)
            raise
        finally:
            leases.close()


def _require_shallow(filters: object) -> None:
    """Raises InputError for filters nested more deeply than anybody means; traces and caches write
    them out.
    """
    level: list[object] = [filters]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (
                outer.values()
                if isinstance(outer, dict)
                else outer
                if isinstance(outer, list)
                else ()
            )
        ]
        if not level:
            return
    raise InputError(
        f"the filter is nested more than {_MAX_DEPTH} levels deep; write it flatter",
        code="invalid_filter",
    )


class _Leases:
    """The releases that a query reads, let go together at its end, also by a thread that comes
    after it.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._held: list[AbstractContextManager[Lease]] = []
        self._closed = False
        self._lock = threading.Lock()

    def open(self, namespace: str, release_id: str | None) -> Lease:
        """The opened release."""
        lent = self._library.lease(namespace, release_id)
        lease = lent.__enter__()
        with self._lock:
            late = self._closed
            if not late:
                self._held.append(lent)
        if late:
            lent.__exit__(None, None, None)
            raise CancelledError(f"the query ended before namespace {namespace!r} was open")
        return lease

    def close(self) -> None:
        """Let go of all of them."""
        with self._lock:
            held, self._held, self._closed = self._held, [], True
        for lent in held:
            lent.__exit__(None, None, None)


@dataclass
class _Query(Fallbacks):
    """What the stages of a question see."""

    library: Library
    names: tuple[str, ...]
    request: QueryRequest
    trace: tracing.Trace
    leases: _Leases
    without: tuple[str, ...]
    on_text: OnText | None
    cancelled: threading.Event | None


@dataclass(frozen=True, slots=True)
class _Answer:
    """The text, its citations, how far to trust it, and whether it answers; `degraded` when
    something was given up on the way.
    """

    text: str = ""
    citations: tuple[Citation, ...] = ()
    confidence: float = 0.0
    answered: bool = False
    warnings: tuple[str, ...] = ()
    unsupported: tuple[Json, ...] = ()  # sentence and reason of what the evidence does not bear out
    prompt_profile_id: str = ""
    model_id: str = ""
    degraded: bool = False


def _answer(q: _Query) -> QueryResult:
    first = q.leases.open(q.names[0], q.request.release_id) if len(q.names) == 1 else None
    strategy = _strategy(q, first)
    _load(q, first, strategy)
    with limits.spending(
        Budget(Deadline.after(strategy.retrieval.query_seconds, q.cancelled))
    ) as budget:
        found = (
            [_search(q, first, strategy, budget.deadline)]
            if first is not None
            else _search_all(q, budget.deadline)
        )
        hits = _merge(q, found)
        context = _context_build(q, found, hits) if q.request.answer else []
        written = (
            _generate(q, found, hits, context, budget.deadline)
            if q.request.answer
            else _unwritten(found, hits)
        )
        return _format_response(q, found, hits, written, budget)


def _strategy(q: _Query, lease: Lease | None) -> Strategy:
    """The strategy of the one namespace; of several the one that was asked for or the default one,
    whose time limit holds for all.
    """
    if lease is not None:
        return q.library.query_strategy(lease, q.request.strategy)
    return q.library.strategy(q.request.strategy or q.library.settings.default_strategy)


def _load(q: _Query, first: Lease | None, strategy: Strategy) -> None:
    """Load what the question will call, before its time begins to count; what cannot be loaded is
    told by the stage that calls it.
    """
    asked = [(first, strategy)] if first is not None else list(_asked(q))
    for lease, its in asked:
        dense = (
            lease.release.dense is not None and (q.request.mode or its.retrieval.mode) != "sparse"
        )
        for kind, built in q.library.models.find_unloaded(
            its, dense=dense, rerank=q.request.rerank, answer=q.request.answer
        ).items():
            with faults.Attempt("model.load", passing=(CancelledError,)):
                limits.within(
                    LOAD_SECONDS,
                    f"loading the {kind}",
                    partial(q.library.models.load, built),
                    Deadline.after(LOAD_SECONDS, q.cancelled),
                    setting="the limit of loading",
                )


def _asked(q: _Query) -> Iterator[tuple[Lease, Strategy]]:
    """The namespaces that can be asked and their strategies; the search tells of the others."""
    for namespace in q.names:
        try:
            lease = q.leases.open(namespace, None)
            yield lease, q.library.query_strategy(lease, q.request.strategy)
        except RagError:
            continue


# --- stages -------------------------------------------------------------------------------------


def _search(q: _Query, lease: Lease, strategy: Strategy, deadline: Deadline) -> Found:
    """What one namespace holds for the question; what it says goes into the query's flags and
    warnings.
    """
    config_id = q.library.config_id(strategy)
    if not q.trace.header["strategy_config_id"]:
        q.trace.header["strategy_config_id"] = config_id
        q.trace.set(
            release_id=lease.release_id,
            request={name: getattr(q.request, name) for name in _REQUEST},
        )
    found = search(
        SearchContext(q.library, lease, strategy, q.request, q.trace, deadline, q.without)
    )
    if len(q.names) == 1:
        q.include(found.fallbacks)
    return found


def _search_all(q: _Query, deadline: Deadline) -> list[Found]:
    """What each namespace that can be asked holds, all asked at once, in the order they were named;
    the others are warnings.

    Raises the caller's own mistakes, and the first error when no namespace answers.
    """

    def one(namespace: str) -> Found:
        with tracing.span("namespace.search", namespace=namespace):
            lease = q.leases.open(namespace, None)
            return _search(q, lease, q.library.query_strategy(lease, q.request.strategy), deadline)

    started = {namespace: limits.start(partial(one, namespace)) for namespace in q.names}
    found: list[Found] = []
    errors: dict[str, Exception] = {}
    for namespace, future in started.items():
        with faults.Attempt("namespace.search") as attempt:
            found.append(
                limits.wait(
                    future, deadline.left(), f"the search of namespace {namespace}", deadline
                )
            )
        if (error := attempt.error) is not None:
            if getattr(error, "code", "") in _CALLERS:
                raise error
            errors[namespace] = error
    # else none could be searched, and the answer says so
    if any("error" not in item.fallbacks.flags for item in found):
        for item in found:
            if (told := item.fallbacks.flags.get("error")) is not None:
                errors[item.lease.namespace] = ProviderError(told["message"], code=told["code"])
        found = [item for item in found if "error" not in item.fallbacks.flags]
    failed = {namespace: tracing.error_fields(error)["code"] for namespace, error in errors.items()}
    if not found:
        first = next(iter(errors.values()))
        if isinstance(first, RagError):
            first.details["namespaces"] = failed
        raise first
    by_name = {item.lease.namespace: item for item in found}
    for namespace in q.names:
        if namespace in errors:
            q.warnings.append(
                f"{namespace}: could not be asked ({faults.told(errors[namespace])}); the others"
                " answered"
            )
            tracing.event(
                "query.fallback",
                {"namespace": namespace, **tracing.error_fields(errors[namespace])},
            )
        else:
            q.warnings += [
                f"{namespace}: {warning}" for warning in by_name[namespace].fallbacks.warnings
            ]
    # of the first one where they differ
    q.flags.update(
        {name: value for item in reversed(found) for name, value in item.fallbacks.flags.items()}
    )
    q.flags["namespaces"] = {item.lease.namespace: item.fallbacks.flags for item in found}
    if failed:
        q.flags["namespaces_failed"] = failed
    return found


def _merge(q: _Query, found: list[Found]) -> list[Hit]:
    """The hits of all namespaces, at most top_k of them; those of the only one as they are."""
    if len(found) == 1:
        return list(found[0].hits)
    with tracing.span("stage.merge", provider_type="merge", provider_id="by_namespace") as span:
        every = [item.hits for item in found]
        config, asked = found[0].strategy.retrieval, q.request.max_per_document
        merged = [hit for turn in zip_longest(*every) for hit in turn if hit is not None]
        hits = merged[: found[0].top_k]
        warning = (
            "the hits of the namespaces could not be weighed against each other (%s); they take"
            " turns"
        )
        with q.attempt("merge", warning, span=span):
            merged = fusion.merge_namespaces(confidence.question_text(found[0].query), every)
            hits = select_shown(
                merged,
                found[0].top_k,
                dedupe=config.dedupe,
                dedupe_threshold=config.dedupe_threshold,
                mmr_lambda=config.mmr_lambda,
                max_per_document=config.max_per_document if asked is None else asked,
            )
        span.set(
            k_in=len(merged), k_out=len(hits), namespaces=[item.lease.namespace for item in found]
        )
        return [dataclasses.replace(hit, rank=rank) for rank, hit in enumerate(hits, 1)]


def _context_build(q: _Query, found: list[Found], hits: list[Hit]) -> list[Hit]:
    """The evidence within the token budget."""
    config = found[0].strategy.context
    with tracing.span(
        "stage.context_build",
        provider_type="context",
        provider_id="budget",
        max_tokens=config.max_tokens,
    ) as span:
        chosen = None
        # parents and neighbours may be unreadable
        with q.attempt("context", "the context was made of the hits alone (%s)", span=span):
            catalogs = {item.lease.namespace: item.lease.release.catalog for item in found}
            chosen = context_builder.select(hits, config, catalogs, _vectors(found))
        chosen = chosen or _plain_context(hits, config)
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
        return list(chosen.hits)


def _plain_context(hits: Sequence[Hit], config: ContextConfig) -> Evidence:
    """The hits themselves, chosen without parents, neighbours and a tokenizer; the first ones as
    they are when even that fails.
    """
    with faults.Attempt("stage.context"):
        return context_builder.select(
            hits, config.model_copy(update={"mode": "chunk", "tokenizer": "estimate"})
        )
    chosen: list[Hit] = []
    tokens = 0
    for hit in hits[: config.max_chunks]:
        tokens += estimate_tokens(hit.chunk_text)
        if chosen and tokens > config.max_tokens:
            break
        chosen.append(hit)
    return Evidence(tuple(chosen), tokens)


def _vectors(found: list[Found]) -> Callable[[Sequence[Hit]], Vectors] | None:
    """The stored vectors of hits, 0 for a hit without one; None where the dense index was not asked
    or there are several of them.
    """
    dense = found[0].lease.release.dense
    if len(found) > 1 or dense is None or found[0].mode not in ("dense", "hybrid"):
        return None

    def vectors(hits: Sequence[Hit]) -> Vectors:
        held = dense.held(hit.chunk_id for hit in hits)
        rows = dict(zip(held, dense.vectors_of(held), strict=True))
        return np.stack([rows.get(hit.chunk_id, np.zeros(dense.dim, np.float32)) for hit in hits])

    return vectors


def _generate(
    q: _Query, found: list[Found], hits: list[Hit], context: list[Hit], deadline: Deadline
) -> _Answer:
    """The answerer's text with checked citations, or plain words and the closest passages where it
    has nothing, is unsure or fails.
    """
    first = found[0]
    config = first.strategy.answerer
    with tracing.span(
        "stage.generate", provider_type="answerer", provider_id=config.provider
    ) as span:
        key = _response_key(q, found)
        known: _Answer | None = q.library.responses.get(key) if key is not None else None
        if known is not None and q.on_text is not None:
            q.on_text(known.text)
        written = known or _written(
            q, first, sum(item.legs for item in found), hits, context, deadline, span
        )
        span.set(cache_hit=known is not None)
        q.flags["answered"] = written.answered
        q.warnings += written.warnings
        if key is not None and known is None and not written.degraded:
            q.library.responses.put(key, written)
        if written.unsupported:
            q.flags["unsupported"] = list(written.unsupported)
        span.set(
            model_id=written.model_id,
            prompt_profile_id=written.prompt_profile_id,
            answered=written.answered,
            confidence=written.confidence,
        )
        tracing.event(
            "generation.summary",
            {
                "output_chars": len(written.text),
                "citations_used": len(written.citations),
                "fallback_used": written.degraded or not written.answered,
            },
        )
        return written


def _response_key(q: _Query, found: list[Found]) -> Hashable | None:
    """All that the answer depends on: the searches, the answerer, its prompts and model; None when
    answers are not remembered.
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
        q.library.models.prompts_of("answerer", strategy.answerer),
    )


def _written(
    q: _Query,
    first: Found,
    legs: int,
    hits: list[Hit],
    context: list[Hit],
    deadline: Deadline,
    span: tracing.Span,
) -> _Answer:
    """The answerer's answer, else what can be quoted without it, else the closest passages."""
    config = first.strategy.answerer
    compose = _Composing(first, legs, hits, context)
    degraded, made = False, _Answer()
    heard = _Heard(q.on_text, deadline)
    with q.attempt(
        "generation",
        "the answer could not be written (%s); what was found is quoted instead",
        span=span,
    ) as attempt:
        if context:
            built = q.library.models.answerer(first.strategy)
            span.provider.update(built.span)
            if limits.MODEL in q.without and built.traits.uses_llm:
                q.give_up(limits.MODEL, "the answer only quotes", q.library.load.running)
                degraded = True
            else:
                on_text = heard if q.on_text is not None else None
                made = limits.within(
                    config.timeout_ms / 1000,
                    "stage.generate",
                    lambda: compose(built.instance, on_text),
                    deadline,
                    quick=built.traits.quick,
                    setting="answerer.timeout_ms",
                )
    heard.ended = True
    if attempt.error is not None:
        deadline.check()
        q.flags["fallback_mode"] = "structured_response"
        degraded = True
    if degraded:
        with faults.Attempt("stage.generation"):  # else what was found is listed
            made = limits.within(
                config.timeout_ms / 1000,
                "quoting",
                lambda: compose(extractive.Extractive()),
                deadline,
                quick=True,
            )
    if made.answered:
        return dataclasses.replace(made, degraded=degraded)
    unreachable = "error" in q.flags
    kind = (
        "unreachable"
        if unreachable
        else "failed"
        if degraded
        else "no_answer"
        if context or hits
        else "nothing"
    )
    reason = q.flags["error"]["message"] if unreachable else ""
    with q.attempt(
        "generation", "the nearest passages could not be listed (%s); the hits hold them", span=span
    ):
        text, citations = citing.passages(kind, first.query.language, context or hits, reason)
        return dataclasses.replace(made, text=text, citations=citations, degraded=degraded)
    q.flags["fallback_mode"] = "structured_response"
    return dataclasses.replace(made, text="", citations=(), degraded=True)


@dataclass(frozen=True, slots=True)
class _Composing:
    """Makes an answer of the evidence: written, checked against it, and weighed by what then stands
    in it.
    """

    first: Found
    legs: int
    hits: list[Hit]
    context: list[Hit]

    def __call__(self, answerer: Answerer, on_text: OnText | None = None) -> _Answer:
        query, config = self.first.query, self.first.strategy.answerer
        written = answerer.answer(query, self.context, on_text=on_text)
        cited = citing.checked(written.text, self.context)
        shown = [self.context[number - 1] for number in cited.numbers]
        sure = confidence.confidence(
            query, shown, self.context, self.hits, legs=self.legs, borne_out=cited.agreement
        )
        model_id = written.completion.model if written.completion is not None else ""
        if not written.text.strip() or confidence.refuses(sure, config):
            told = written.warnings
            # it was paid for, and may have been heard
            if written.text.strip() and traits_of(answerer).uses_llm:
                reason = (
                    f"its confidence of {sure} is below answerer.min_confidence"
                    f" ({config.min_confidence})"
                    if shown
                    else "it cites nothing"
                )
                told = (
                    *told,
                    *cited.warnings,
                    f"the model wrote an answer that was withheld: {reason}",
                )
            return _Answer(
                "", (), min(sure, UNSURE), False, told, (), written.prompt_profile_id, model_id
            )
        unsupported = [
            {"sentence": item.sentence, "reason": item.reason}
            for item in cited.unsupported
            if config.flag_unsupported
        ]
        return _Answer(
            cited.text,
            cited.citations,
            sure,
            True,
            (*written.warnings, *cited.warnings),
            tuple(unsupported),
            written.prompt_profile_id,
            model_id,
        )


@dataclass
class _Heard:
    """Hands the parts of an answer on; once the query went on without them it stops whoever still
    writes.
    """

    on_text: OnText | None
    deadline: Deadline
    ended: bool = False

    def __call__(self, part: str) -> None:
        if self.ended:
            raise CancelledError("the answer is no longer waited for")
        self.deadline.check("the answer")
        if self.on_text is not None:
            self.on_text(part)


def _unwritten(found: list[Found], hits: list[Hit]) -> _Answer:
    sure = confidence.confidence(
        found[0].query, [], [], hits, legs=sum(item.legs for item in found)
    )
    return _Answer(confidence=sure)


def _format_response(
    q: _Query, found: list[Found], hits: list[Hit], written: _Answer, budget: Budget
) -> QueryResult:
    """The result, and in the trace everything a replay needs."""
    first = found[0]
    with tracing.span(
        "stage.format_response", provider_type="response", provider_id="query_result"
    ) as span:
        shown = {name: q.trace.stage_ms(f"stage.{stage}") for name, stage in _LATENCIES.items()}
        modes = {item.mode for item in found} - {"none"}
        mode = modes.pop() if len(modes) == 1 else "mixed" if modes else "none"
        counts = [item.matched_count for item in found if item.matched_count is not None]
        releases = {item.lease.namespace: item.lease.release_id for item in found}
        usage = budget.usage()
        assets = {asset for hit in hits for asset in hit.asset_ids}
        q.trace.count(citations_count=len(written.citations), assets_referenced=len(assets))
        q.trace.set(
            effective_mode=mode,
            query_hash=first.query.query_hash,
            flags=q.flags,
            warnings=q.warnings,
            usage=usage,
            ranked_chunk_ids=[hit.chunk_id for hit in hits],
            **shown,
        )
        if len(q.names) > 1:
            q.trace.set(releases=releases)
        span.set(hits=len(hits), citations=len(written.citations), confidence=written.confidence)
        tracing.event("response.envelope", {"ok": "error" not in q.flags, "warnings": q.warnings})
        return QueryResult(
            answer_markdown=written.text,
            citations=written.citations,
            hits=tuple(hits),
            confidence=written.confidence,
            effective_mode=mode,
            applied_filters=first.plan.applied or {},
            matched_count=sum(counts) if counts else None,
            release_id=first.lease.release_id,
            trace_id=q.trace.trace_id,
            warnings=tuple(q.warnings),
            flags=q.flags,
            answered=written.answered,
            releases=releases,
            usage=usage,
        )


_LATENCIES = {
    "dense_latency_ms": "retrieve_dense",
    "sparse_latency_ms": "retrieve_sparse",
    "fusion_latency_ms": "fusion",
    "rerank_latency_ms": "rerank",
}
