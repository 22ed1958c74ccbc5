"""The state that the stages of a search share: lease, request, deadline, fallbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from rag_platform.config.settings import Strategy
from rag_platform.ir import Candidate, Hit, QueryRequest
from rag_platform.observability import tracing
from rag_platform.processes.limits import Deadline
from rag_platform.retrieval.fallbacks import Fallbacks
from rag_platform.retrieval.library import Lease, Library


@dataclass(slots=True)
class Artifacts:
    """The intermediate results of a question to one namespace, best first; empty for a search that
    was answered from the cache.
    """

    dense: Sequence[Candidate] = ()
    sparse: Sequence[Candidate] = ()
    fused: Sequence[Candidate] = ()
    reranked: Sequence[Hit] = ()  # before deduplication; empty without a reranker
    context: Sequence[Hit] = ()  # the evidence of the answerer
    latency_ms: dict[str, float] = field(default_factory=dict)  # by stage


@dataclass
class SearchContext(Fallbacks):
    """The input of every stage of a search, and where it records fallbacks."""

    library: Library
    lease: Lease
    strategy: Strategy
    request: QueryRequest
    trace: tracing.Trace
    deadline: Deadline
    without: tuple[str, ...] = ()  # skipped under load: `limits.RERANK`, `POOL`, `MODEL`
    artifacts: Artifacts | None = None
    # chunk_id of a hit to the doc_ids of the other editions that were left out for it
    left_out: dict[str, set[str]] = field(default_factory=dict)

    @cached_property
    def hidden_names(self) -> frozenset[str]:
        """The doc_ids and version_ids that tombstones hide, read from the ledger once a search."""
        return self.library.hidden_names(self.lease)

    def span_profile(self, module: str) -> dict[str, str]:
        """`Library.span_profile` of a module of this search."""
        return self.library.span_profile(self.lease, self.strategy, module)

    def fork(self) -> SearchContext:
        """The same context with empty fallbacks, for a part that is reported separately."""
        return replace(self, failures=set(), flags={}, warnings=[])

    def record(self, name: str, value: object) -> None:
        """Set a field of the trace, suffixed with the namespace where several are searched."""
        several = len(self.request.namespaces) > 1
        self.trace.set(**{f"{name}.{self.lease.namespace}" if several else name: value})

    def record_failure(
        self,
        stage: str,
        error: BaseException | str,
        warning: str,
        *,
        span: tracing.Span | None = None,
    ) -> None:
        """As `Fallbacks.record_failure`; raises CancelledError when the question was cancelled."""
        self.deadline.check()
        super().record_failure(stage, error, warning, span=span)
