"""Records the stages of a question that failed or were skipped, with their flags and warnings."""

from __future__ import annotations

from dataclasses import dataclass, field

from rag_platform.ir import Json
from rag_platform.observability import faults, tracing
from rag_platform.observability.tracing import Span


@dataclass(kw_only=True, slots=True)
class Fallbacks:
    """The failed stages, flags and warnings of a question."""

    failures: set[str] = field(default_factory=set)  # names of stages
    flags: Json = field(default_factory=dict)  # including `<stage>_failed`
    warnings: list[str] = field(default_factory=list)

    def attempt(
        self,
        stage: str,
        warning: str,
        *,
        span: Span | None = None,
        passing: tuple[type[Exception], ...] = (),
    ) -> faults.Attempt:
        """A context manager for the code of a stage. An error is recorded by `record_failure` and
        suppressed, unless it is one of `passing`.
        """
        return _Attempt(self, stage, warning, span, passing)

    def record_failure(
        self, stage: str, error: BaseException | str, warning: str, *, span: Span | None = None
    ) -> None:
        """Flag `<stage>_failed` and warn, with the error in place of `%s`. An unexpected exception
        is logged with its stack trace; an error given as text has been logged before.
        """
        if isinstance(error, BaseException):
            faults.report(error, f"stage.{stage}")
        if span is not None:
            span.fail(error)
        message = warning.replace(
            "%s", faults.describe(error) if isinstance(error, BaseException) else error, 1
        )
        self.failures.add(stage)
        self.flags[f"{stage}_failed"] = True
        if message not in self.warnings:
            self.warnings.append(message)
        tracing.event("query.fallback", {"flag": f"{stage}_failed", "message": message})

    def give_up(self, part: str, warning: str, running: int) -> None:
        """Record that a part was skipped because `running` questions run at once."""
        self.flags["load_shed"] = [*self.flags.get("load_shed", ()), part]
        self.warnings.append(f"{warning}, because {running} questions run at once")
        tracing.event("query.fallback", {"flag": "load_shed", "part": part})

    def include(self, other: Fallbacks) -> None:
        """Add the failures, flags and warnings of a part of the question."""
        shed = [*self.flags.get("load_shed", ()), *other.flags.get("load_shed", ())]
        self.failures |= other.failures
        self.flags.update(other.flags, **({"load_shed": shed} if shed else {}))
        self.warnings += other.warnings


class _Attempt(faults.Attempt):
    def __init__(
        self,
        on: Fallbacks,
        stage: str,
        warning: str,
        span: Span | None,
        passing: tuple[type[Exception], ...],
    ) -> None:
        super().__init__(stage, passing=passing)
        self._on, self._warning, self._span = on, warning, span

    def give_up(self, error: Exception) -> None:
        self._on.record_failure(self.stage, error, self._warning, span=self._span)
