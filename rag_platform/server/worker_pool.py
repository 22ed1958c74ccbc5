"""Answers questions in several processes when many come at once.

The interpreter lets one thread of a process compute at a time, so that eight clients of one process
finish no more questions than one client does. Where questions keep meeting each other, further
processes are started beside the server, up to one for each core; each answers one question at a
time and ends when it has had none for a while. Who asks now and then never pays for one. Once there
are as many as may answer, the server only hands questions on: while it answers one itself, the
others wait for the interpreter on their way through it (2 cores, 8 clients: 1.6 times the answers
of one client with the server answering too, 1.7 to 1.8 without).

Questions that wait for a model elsewhere, or for a large one here, are answered in the server
itself: they leave its processor free, or would load that model once more.


What a question's tool answers, in the server itself or in one of the processes that it shares its
questions with.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Any

from rag_platform.answering.engine import answer
from rag_platform.api.documents import hidden_by_ledger
from rag_platform.api.envelopes import fit_query, public
from rag_platform.config.settings import Settings
from rag_platform.errors import RagError
from rag_platform.ir import Json, QueryRequest
from rag_platform.observability import faults, tracing
from rag_platform.observability.logs import setup_logging
from rag_platform.processes.limits import Deadline
from rag_platform.processes.worker import Child, ChildDied, serve
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.preload import warm
from rag_platform.storage.store import Store

log = logging.getLogger(__name__)

MOST = 4  # processes that answer, unless the settings say more
IDLE_SECONDS = 60.0
# so many questions that found another one running, within so many seconds
_MET, _MET_SECONDS = 16, 10.0
_PAUSE_SECONDS = 60.0  # after a process could not be started
_START_SECONDS = 120.0
# then a question no longer waits for a place: what holds them may be loading something
_PATIENCE_SECONDS = 1.0
_GRACE_SECONDS = 5.0


@dataclass(eq=False)
class _Place:
    """Where questions are answered one after the other: in the server itself (`child` is None) or
    in a process of its own.
    """

    child: Child | None = None
    questions: int = 0  # that it has now
    # when it last was given a question or answered one
    active: float = field(default_factory=time.monotonic)
    caches: Json = field(default_factory=dict)


class SharedQuestions:
    """Answers a server's questions; safe for any number of threads."""

    def __init__(
        self, library: Library, processes: int = 0, *, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._library = library
        self._most = processes or min(os.cpu_count() or 1, MOST)
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._places = [_Place()]  # the server itself first
        self._waiting: deque[Future[_Place | None]] = deque()
        self._met: deque[float] = deque(maxlen=_MET)
        self._starting = False
        self._not_before = 0.0
        self._closed = False
        self._longest = 0.0  # seconds that a question may take

    @property
    def processes(self) -> int:
        """How many processes there are now, the server included."""
        return len(self._places)

    def cache_figures(self) -> list[Json]:
        """What `Library.cache_figures` was in each other process after its last question."""
        return [place.caches for place in self._places if place.caches]

    def respond(self, request: QueryRequest, detail: str) -> Answer:
        """The answer, from where a place is free; the server's own where another process failed.
        Raises what `responding.respond` does.
        """
        if self._most > 1 and self._computes_here(request):
            self._notice(request)
            if len(self._places) > 1:
                return self._shared(request, detail)
        return respond(self._library, request, detail)

    def close(self) -> None:
        """End the other processes at once."""
        with self._lock:
            self._closed = True
            children = [place.child for place in self._places if place.child is not None]
        for child in children:
            child.process.kill()

    # --- places ----------------------------------------------------------------------------------

    def _shared(self, request: QueryRequest, detail: str) -> Answer:
        deadline = Deadline.after(_PATIENCE_SECONDS)
        load = self._library.load
        with self._place(deadline) as place:
            deadline.check()
            if place is not None and place.child is not None:
                try:
                    with load.beside(1):
                        responded: Responded = place.child.ask(
                            Asked(request, detail, load.running, tracing.current_request_id())
                        )
                    place.caches = responded.caches
                    return responded.answer
                except ChildDied as error:
                    log.info("a query process %s; its question is answered by the server", error)
            return respond(self._library, request, detail)

    @contextlib.contextmanager
    def _place(self, deadline: Deadline) -> Iterator[_Place | None]:
        """A place for the length of the block, in order of arrival; None where none came free in
        time or none is needed any more.
        """
        with self._library.load.beside(1):  # who waits counts as load
            place = self._taken(deadline)
        try:
            yield place
        finally:
            if place is not None:
                self._give_back(place)

    def _taken(self, deadline: Deadline) -> _Place | None:
        turn: Future[_Place | None] = Future()
        with self._lock:
            self._waiting.append(turn)
            self._hand_out()
        try:
            return turn.result(timeout=deadline.left())
        except FutureTimeout:
            with self._lock:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                    return None
            return turn.result()  # it came at the last moment

    def _give_back(self, place: _Place) -> None:
        with self._lock:
            place.questions -= 1
            place.active = time.monotonic()
            self._hand_out()

    def _hand_out(self) -> None:
        """Give who waits the places that have room, in order of arrival; none where the server is
        alone, for it answers all at once.
        """
        while self._waiting:
            place = None
            if len(self._places) > 1:
                place = min(
                    filter(self._has_room, self._places),
                    key=lambda place: place.questions,
                    default=None,
                )
                if place is None:
                    return
                place.questions += 1
                place.active = time.monotonic()
            self._waiting.popleft().set_result(place)

    def _has_room(self, place: _Place) -> bool:
        if place.child is None:
            return not place.questions and len(self._places) <= self._most
        # it would idle while the server reads one answer and sends the next question
        return place.questions < 2

    # --- processes -------------------------------------------------------------------------------

    def _computes_here(self, request: QueryRequest) -> bool:
        """True for a question that some milliseconds of this machine's processor answer."""
        library = self._library
        try:
            for namespace in request.namespaces or (request.namespace,):
                with library.lease(namespace, request.release_id) as lease:
                    strategy = library.query_strategy(lease, request.strategy)
                if not library.models.computes_here(strategy):
                    return False
                self._longest = max(self._longest, strategy.retrieval.query_seconds)
        except (RagError, OSError):  # the answer says why
            return False
        return True

    def _notice(self, request: QueryRequest) -> None:
        """Start a process where questions keep meeting each other."""
        now = time.monotonic()
        with self._lock:
            crowded = (
                self._library.load.running > 0
                if len(self._places) == 1
                else not any(map(self._has_room, self._places))
            )
            if not crowded:
                return
            self._met.append(now)
            full = len(self._met) == _MET and now - self._met[0] < _MET_SECONDS
            if (
                not full
                or self._starting
                or self._closed
                or len(self._places) > self._most
                or now < self._not_before
            ):
                return
            self._met.clear()
            self._starting = True
        namespace = (request.namespaces or (request.namespace,))[0]
        threading.Thread(
            target=self._start, args=(namespace,), name="rag-query-process", daemon=True
        ).start()

    def _start(self, namespace: str) -> None:
        """Start a process, wait until it is ready, and then for its end."""
        child = Child("rag_platform.server.worker_pool", Start(self._library.settings, namespace))
        place = _Place(child)
        impatient = threading.Timer(_START_SECONDS, child.process.kill)
        impatient.daemon = True
        impatient.start()
        with faults.Attempt("server.process") as attempt:
            child.ask(None)
        impatient.cancel()
        if attempt.error is not None:
            log.warning(
                "no further query process could be started (%s); the server answers alone",
                attempt.error,
            )
            child.close()
            with self._lock:
                self._starting, self._not_before = False, time.monotonic() + _PAUSE_SECONDS
            return
        with self._lock:
            self._starting, place.active = False, time.monotonic()
            self._places.append(place)
            self._hand_out()
            closed = self._closed
        if closed:
            child.process.kill()
        self._watch(place, child)

    def _watch(self, place: _Place, child: Child) -> None:
        """Wait for its end; end it where it is not needed any more or does not answer; take its
        place away.
        """
        needed = True
        while needed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(timeout=min(_GRACE_SECONDS, self._idle_seconds))
                needed = False
            with self._lock:
                quiet = time.monotonic() - place.active
                if place.questions and quiet > self._longest + _GRACE_SECONDS:
                    log.warning("a query process did not answer in time and was ended")
                    needed = False
                elif not place.questions and quiet > self._idle_seconds:
                    needed = False
                if not needed:
                    self._places.remove(place)
                    self._hand_out()
        child.process.kill()
        if not place.questions:
            child.close()  # else who waits for its answer does


Answer = tuple[Any, str, list[str]]  # data, trace_id of the work or empty, warnings


@dataclass(frozen=True, slots=True)
class Start:
    """What a process is told first: which library, and the namespace to open at once."""

    settings: Settings
    namespace: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question for another process; `running` counts the questions of the whole server, this one
    included.
    """

    request: QueryRequest
    detail: str
    running: int
    request_id: str | None = None  # of the client's call


@dataclass(frozen=True, slots=True)
class Responded:
    """Its answer, and what the caches of that process came to."""

    answer: Answer
    caches: Json


def respond(library: Library, request: QueryRequest, detail: str) -> Answer:
    """The answer to a question within the server's result budget. Raises what `engine.answer`
    raises.
    """
    result = public(answer(library, request))
    data, warnings = fit_query(result, detail, library.settings.server.result_tokens)
    return data, result.trace_id, warnings


def main() -> None:
    """Answer the questions that the server hands on."""
    serve(_responding)


def _responding(start: Start) -> Callable[[Asked | None], object]:
    """The function that answers; None asks whether it is ready."""
    store = Store(start.settings.home)
    setup_logging(store.logs_dir)
    library = Library(start.settings, store, hidden_by_ledger(store))

    def responding(asked: Asked | None) -> object:
        if asked is None:
            warm(library, start.namespace, at_once=True)
            return True
        with library.load.beside(asked.running - 1), tracing.requested(asked.request_id):
            return Responded(respond(library, asked.request, asked.detail), library.cache_figures())

    return responding
