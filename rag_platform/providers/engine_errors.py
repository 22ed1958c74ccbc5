"""Turns errors of engines, including panics of those in Rust, into ProviderError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rag_platform.errors import REBUILD, ProviderError, RagError
from rag_platform.observability import faults


@contextmanager
def engine_errors(
    failed: str,
    remedy: str = REBUILD,
    *,
    code: str | None = None,
    kinds: tuple[type[Exception], ...] = (Exception,),
    stage: str = "",
) -> Iterator[None]:
    """Turns panics and errors of the `kinds` in the block into ProviderError, whose message
    consists of `failed`, the engine's message and the remedy. With a `stage` the engine's error is
    logged with its stack trace.

    A panic in Rust is a BaseException whose class cannot be imported, as each extension has its own
    `PanicException`.
    """
    try:
        yield
    except RagError:
        raise
    except BaseException as error:
        if not isinstance(error, kinds) and type(error).__name__ != "PanicException":
            raise
        if stage:
            faults.report(error, stage)
        raise ProviderError(
            f"{failed}: {str(error) or type(error).__name__}; {remedy}", code=code
        ) from error
