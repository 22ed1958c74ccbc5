"""The state that the stages of one question share: request, library, leased releases, fallbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from rag_platform.errors import CancelledError
from rag_platform.ir import QueryRequest
from rag_platform.observability import tracing
from rag_platform.query.analysis import choose_frame_language
from rag_platform.retrieval.fallbacks import Fallbacks
from rag_platform.retrieval.library import Lease, Library
from rag_platform.retrieval.search_context import Artifacts

OnText = Callable[[str], None]


class Leases:
    """The releases that a question has leased; all are returned when it ends."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._opened = ExitStack()
        self._closed = False
        self._lock = threading.Lock()

    def open(self, namespace: str, release_id: str | None = None) -> Lease:
        """Lease a release, without an id the published one. Raises CancelledError in a thread that
        outlives the question.
        """
        with ExitStack() as opening:
            lease = opening.enter_context(self._library.lease(namespace, release_id))
            with self._lock:
                if self._closed:
                    raise CancelledError(f"the query ended before library {namespace!r} was open")
                self._opened.push(opening.pop_all())
            return lease

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._opened.close()


@dataclass
class Question(Fallbacks):
    """A question while it passes through the stages."""

    library: Library
    namespaces: tuple[str, ...]
    request: QueryRequest
    trace: tracing.Trace
    leases: Leases
    shed: tuple[str, ...]  # stages skipped under load, as `limits.shed` names them
    on_text: OnText | None
    cancelled: threading.Event | None
    artifacts: Artifacts | None = None

    @cached_property
    def language(self) -> str:
        """The language of what is said around the answer."""
        return choose_frame_language(self.request.text, self.request.language)

    @property
    def is_single(self) -> bool:
        return len(self.namespaces) == 1
