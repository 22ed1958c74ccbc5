"""The one way in which a stage of a question fails: what broke is told, flagged, logged, and the
question goes on without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rag_platform.ir import Json
from rag_platform.observability import faults, tracing
from rag_platform.observability.tracing import Span


@dataclass(kw_only=True, slots=True)
class Fallbacks:
    """How a question went: the stages that failed, and what is shown of it."""

    failures: set[str] = field(default_factory=set)  # stages
    flags: Json = field(default_factory=dict)  # `<stage>_failed` among them
    warnings: list[str] = field(default_factory=list)

    def attempt(
        self,
        stage: str,
        warning: str,
        *,
        span: Span | None = None,
        passing: tuple[type[Exception], ...] = (),
    ) -> faults.Attempt:
        """A block of that stage: where it fails, `failed` is told and the question goes on; errors
        that are `passing` leave it.
        """
        return _Attempt(self, stage, warning, span, passing)

    def failed(
        self, stage: str, error: BaseException | str, warning: str, *, span: Span | None = None
    ) -> None:
        """Flag `<stage>_failed` and warn; an error that nobody foresaw is logged with its stack
        trace and counted (`faults.report`).

        Of the warning `%s` becomes what is said of the error, which is a text where another part
        has told it already.
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

    def include(self, other: Fallbacks) -> None:
        """Take over how a part of the question went."""
        self.failures |= other.failures
        self.flags.update(other.flags)
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
        self._on.failed(self.stage, error, self._warning, span=self._span)
