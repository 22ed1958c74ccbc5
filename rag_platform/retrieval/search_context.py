"""The state that the stages of a search share: releases, question, deadline and failures."""

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
    """What the stages of a question to one namespace made, best first, for whoever asks for it.
    Those of a search that is remembered stay empty.
    """

    dense: Sequence[Candidate] = ()
    sparse: Sequence[Candidate] = ()
    fused: Sequence[Candidate] = ()
    reranked: Sequence[Hit] = ()  # before repeated ones are left out; empty without a reranker
    context: Sequence[Hit] = ()  # the evidence that the answerer was given
    latency_ms: dict[str, float] = field(default_factory=dict)  # by stage


@dataclass
class SearchContext(Fallbacks):
    """What every stage of the search of one namespace reads, and where it reports."""

    library: Library
    lease: Lease
    strategy: Strategy
    request: QueryRequest
    trace: tracing.Trace
    deadline: Deadline
    without: tuple[str, ...] = ()  # what is given up for the load: `limits.RERANK`, `POOL`, `MODEL`
    artifacts: Artifacts | None = None

    @cached_property
    def hidden_names(self) -> frozenset[str]:
        """The doc_ids and version_ids that tombstones hide, asked of the ledger once a search."""
        return self.library.hidden_names(self.lease)

    def fork(self) -> SearchContext:
        """The same search with nothing gone wrong: for a part whose report is read apart."""
        return replace(self, failures=set(), flags={}, warnings=[])

    def record(self, name: str, value: object) -> None:
        """Record a fact of this namespace in the trace, under its name where several are asked."""
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
        """As `Fallbacks.record_failure`. Raises CancelledError when nobody waits for the answer."""
        self.deadline.check()
        super().record_failure(stage, error, warning, span=span)
