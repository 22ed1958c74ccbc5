"""The caller of a request, and what they may see and do.

A request over HTTP acts for the caller of its token. The command line and a stdio server act for
the user who started them, who may do everything.
"""

from __future__ import annotations

import contextvars
import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SCOPES = ("read", "write", "admin")  # each includes those before it


@dataclass(frozen=True, slots=True)
class Caller:
    """What a caller may do, and in which namespaces (None: all)."""

    token_id: str = ""
    scope: str = SCOPES[-1]
    namespaces: frozenset[str] | None = None

    @property
    def name(self) -> str:
        """What records of who did something hold: the token's id or the user's name; the user's
        number where it has no name, as in a container that runs as any user.
        """
        try:
            return self.token_id or getpass.getuser()
        except (KeyError, OSError):  # OSError from Python 3.13 on
            return str(os.getuid())

    def may(self, scope: str) -> bool:
        """True if the caller's scope includes this one."""
        return SCOPES.index(scope) <= SCOPES.index(self.scope)

    def may_see(self, namespace: str) -> bool:
        """True if the caller may know about a namespace."""
        return self.namespaces is None or namespace in self.namespaces

    def default_namespace(self, configured: str) -> str:
        """The configured one if the caller may see it, else the first of theirs."""
        if self.namespaces is None or configured in self.namespaces:
            return configured
        return min(self.namespaces)


OWNER = Caller()  # the user of the data root's machine
NOBODY = Caller(scope=SCOPES[0], namespaces=frozenset())  # has not shown a token yet
_current: contextvars.ContextVar[Caller] = contextvars.ContextVar("rag_caller", default=OWNER)


def current() -> Caller:
    """The caller of the current thread or task."""
    return _current.get()


@contextmanager
def acting_for(caller: Caller) -> Iterator[None]:
    """Set the current caller for the block, including work passed on to other threads."""
    token = _current.set(caller)
    try:
        yield
    finally:
        _current.reset(token)
