"""What the stages of one search share: where they look, what was asked, how long they have, and
what went wrong so far.
"""

from __future__ import annotations

from dataclasses import dataclass

from rag_platform.config.settings import Strategy
from rag_platform.ir import QueryRequest
from rag_platform.observability import tracing
from rag_platform.processes.limits import Deadline
from rag_platform.retrieval.fallbacks import Fallbacks
from rag_platform.retrieval.library import Lease, Library


@dataclass
class Search(Fallbacks):
    """What every stage of the search of one namespace sees."""

    library: Library
    lease: Lease
    strategy: Strategy
    request: QueryRequest
    trace: tracing.Trace
    deadline: Deadline
    without: tuple[str, ...] = ()  # what `limits.parts_to_skip` gives up for the load

    def record(self, name: str, value: object) -> None:
        """Record a fact of this namespace's search in the trace, under its name where several are
        asked.
        """
        self.trace.set(
            **{
                (
                    name if len(self.request.namespaces) < 2 else f"{name}.{self.lease.namespace}"
                ): value
            }
        )

    def failed(
        self,
        stage: str,
        error: BaseException | str,
        warning: str,
        *,
        span: tracing.Span | None = None,
    ) -> None:
        """As `Fallbacks.failed`: a stage failed and the query goes on without it. Raises
        CancelledError when nobody waits for it.
        """
        self.deadline.check()
        super().failed(stage, error, warning, span=span)

    def give_up(self, part: str, warning: str) -> None:
        """Record that something was left out because too many questions run."""
        self.flags["load_shed"] = [*self.flags.get("load_shed", ()), part]
        self.warnings.append(
            f"{warning}, because {self.library.load.running} questions run at once"
        )
        tracing.event("query.fallback", {"flag": "load_shed", "part": part})
