"""Who asks, and what of the library they may see and do.

A request over HTTP acts for the caller whose token it carries. The command line, and a server on
standard input and output, act for whoever started them, who may do everything.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SCOPES = ("read", "write", "admin")  # each includes those before it


@dataclass(frozen=True, slots=True)
class Caller:
    """What a caller may do, and in which namespaces; None: in every one."""

    token_id: str = ""
    scope: str = SCOPES[-1]
    namespaces: frozenset[str] | None = None

    def may(self, scope: str) -> bool:
        """True where the caller's scope includes that one."""
        return SCOPES.index(scope) <= SCOPES.index(self.scope)

    def may_see(self, namespace: str) -> bool:
        """True for a namespace that exists as far as the caller is concerned."""
        return self.namespaces is None or namespace in self.namespaces

    def default_namespace(self, configured: str) -> str:
        """The configured one where the caller may see it, else the first of theirs."""
        if self.namespaces is None or configured in self.namespaces:
            return configured
        return min(self.namespaces)


OWNER = Caller()  # whoever can read the data root anyway
_current: contextvars.ContextVar[Caller] = contextvars.ContextVar("rag_caller", default=OWNER)


def current() -> Caller:
    """The caller for whom this thread or task works."""
    return _current.get()


@contextmanager
def acting_for(caller: Caller) -> Iterator[None]:
    """Work for the caller until the end of the block, also in calls carried to other threads."""
    token = _current.set(caller)
    try:
        yield
    finally:
        _current.reset(token)
