"""What the stages of one question share: the request, the library, the releases it reads, and what
went wrong so far.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from rag_platform.errors import CancelledError
from rag_platform.ir import QueryRequest
from rag_platform.observability import tracing
from rag_platform.retrieval.fallbacks import Fallbacks
from rag_platform.retrieval.library import Lease, Library
from rag_platform.retrieval.search_context import Artifacts

OnText = Callable[[str], None]


class Leases:
    """The releases that a question reads, released together at its end."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._opened = ExitStack()
        self._closed = False
        self._lock = threading.Lock()

    def open(self, namespace: str, release_id: str | None = None) -> Lease:
        """The opened release, the published one without an id. Raises CancelledError in a thread
        that comes after the end of the question.
        """
        with ExitStack() as opening:
            lease = opening.enter_context(self._library.lease(namespace, release_id))
            with self._lock:
                if self._closed:
                    raise CancelledError(f"the query ended before library {namespace!r} was open")
                self._opened.push(opening.pop_all())
            return lease

    def close(self) -> None:
        """Release all of them."""
        with self._lock:
            self._closed = True
        self._opened.close()


@dataclass
class Question(Fallbacks):
    """A question on its way through the stages."""

    library: Library
    namespaces: tuple[str, ...]
    request: QueryRequest
    trace: tracing.Trace
    leases: Leases
    shed: tuple[str, ...]  # what it goes without under load, as `limits.shed` names it
    on_text: OnText | None
    cancelled: threading.Event | None
    artifacts: Artifacts | None = None

    @property
    def is_single(self) -> bool:
        """True where one namespace is asked."""
        return len(self.namespaces) == 1
