"""The one way in which a stage of a question fails: what broke is told, flagged, logged, and the question goes on without it."""

from __future__ import annotations

from typing import Protocol

from rag_platform.ir import Json
from rag_platform.observability import faults, tracing
from rag_platform.observability.tracing import Span


class Failing(Protocol):
    """What tells how a question went."""

    flags: Json
    warnings: list[str]


def failed(on: Failing, stage: str, error: BaseException | str, warning: str, *, span: Span | None = None) -> None:
    """Flag `<stage>_failed` and warn; an error that nobody foresaw is logged with its stack trace and counted (`faults.seen`).

    Of the warning `%s` becomes what is said of the error, which is a text where another part has told it already.
    """
    if isinstance(error, BaseException):
        faults.seen(error, f"stage.{stage}")
    if span is not None:
        span.fail(error)
    message = warning.replace("%s", faults.told(error) if isinstance(error, BaseException) else error, 1)
    on.flags[f"{stage}_failed"] = True
    on.warnings.append(message)
    tracing.event("query.fallback", {"flag": f"{stage}_failed", "message": message})
