"""Answers questions in several processes when many come at once.

The interpreter lets one thread of a process compute at a time, so eight clients of one process get
no more answers than one client does. Where questions keep meeting each other, further processes
are started, up to one for each core; each answers one question at a time, and ends when it has had
none for a while. As soon as there are as many as may answer, the server only hands questions on:
the others would wait for its interpreter otherwise (2 cores, 8 clients: 1.7 to 1.8 times the
answers of one client, 1.6 times with the server answering too).

Questions that wait for a model elsewhere, or for a large one here, are answered in the server: they
leave its processor free, or would load that model once more.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from rag_platform import access
from rag_platform.answering.engine import answer
from rag_platform.api.query_data import fit_query, redact_paths
from rag_platform.config.settings import Settings
from rag_platform.errors import RagError
from rag_platform.ir import Json, QueryRequest
from rag_platform.ledger.hiding import LedgerView
from rag_platform.observability import faults, otlp, tracing
from rag_platform.observability.logs import setup_logging
from rag_platform.processes import limits
from rag_platform.processes.limits import Deadline
from rag_platform.processes.processors import usable_processors
from rag_platform.processes.worker import Child, ChildDied, serve
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.preload import warm
from rag_platform.storage.store import Store

log = logging.getLogger(__name__)

MAX_PROCESSES = 4  # that answer, unless the settings say more
IDLE_SECONDS = 60.0
# A process is started when this many questions met another one within this many seconds.
_MET, _MET_SECONDS = 16, 10.0
_PAUSE_SECONDS = 60.0  # after a process could not be started
_START_SECONDS = 120.0
# A question waits no longer for a place: what occupies them may be loading something.
_PATIENCE_SECONDS = 1.0
_GRACE_SECONDS = 5.0

Answer = tuple[Any, str, list[str]]  # data, trace_id of the work or empty, warnings


@dataclass(eq=False)
class _Place:
    """Where questions are answered: in the server (`child` is None) or in a process of its own."""

    child: Child | None = None
    questions: int = 0  # that it has now
    active: float = field(default_factory=time.monotonic)  # when it got or answered one
    caches: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Task:
    """A question for another process."""

    request: QueryRequest
    detail: str
    running: int  # questions of the whole server, this one included
    request_id: str | None
    client: tracing.Client | None
    caller: access.Caller


class SharedQuestions:
    """Answers a server's questions; safe for any number of threads."""

    def __init__(
        self, library: Library, processes: int = 0, *, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._library = library
        self._most = processes or min(usable_processors(), MAX_PROCESSES)
        self._idle_seconds = idle_seconds
        self._changed = threading.Condition()
        self._places = [_Place()]  # the server itself first
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
        """`Library.cache_figures` of each other process after its last question."""
        return [place.caches for place in self._places if place.caches]

    def respond(self, request: QueryRequest, detail: str) -> Answer:
        """The answer, from where a place is free. Raises what `respond` does."""
        if self._most == 1 or not self._computes_here(request):
            return respond(self._library, request, detail)
        self._count_meeting(request)
        load = self._library.load
        with self._take_place() as place:
            if place is not None and place.child is not None:
                try:
                    with load.beside(1):
                        task = _Task(
                            request,
                            detail,
                            load.running,
                            tracing.current_request_id(),
                            tracing.current_client(),
                            access.current(),
                        )
                        made, place.caches = place.child.ask(task)
                    answered: Answer = made
                    return answered
                except ChildDied as error:
                    log.info("a query process %s; the server answers its question", error)
            return respond(self._library, request, detail)

    def close(self) -> None:
        """End the other processes at once."""
        with self._changed:
            self._closed = True
            children = [place.child for place in self._places if place.child is not None]
        for child in children:
            child.process.kill()

    # --- places ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _take_place(self) -> Iterator[_Place | None]:
        """The least busy place for the length of the block; None where the server is alone, for it
        answers all at once, and where no place came free in time.
        """
        deadline = Deadline.after(_PATIENCE_SECONDS)
        with self._changed, self._library.load.beside(1):  # a waiting question counts as load
            self._changed.wait_for(
                lambda: len(self._places) == 1 or self._free_place() is not None, deadline.left()
            )
            deadline.check()
            if (place := self._free_place()) is not None:
                place.questions += 1
                place.active = time.monotonic()
        try:
            yield place
        finally:
            if place is not None:
                with self._changed:
                    place.questions -= 1
                    place.active = time.monotonic()
                    self._changed.notify()

    def _free_place(self) -> _Place | None:
        """The place with the fewest questions that has room for one more; None where the server is
        alone.
        """
        server, *others = self._places
        # a second question keeps a process busy while the server reads the answer to the first
        free = [place for place in others if place.questions < 2]
        if 0 < len(others) < self._most and not server.questions:
            free.insert(0, server)
        return min(free, key=lambda place: place.questions, default=None)

    # --- processes -------------------------------------------------------------------------------

    def _computes_here(self, request: QueryRequest) -> bool:
        """True for a question that takes this machine's processor some milliseconds."""
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

    def _count_meeting(self, request: QueryRequest) -> None:
        """Start a process where questions keep meeting each other."""
        now = time.monotonic()
        with self._changed:
            alone = len(self._places) == 1
            if not (self._library.load.running if alone else self._free_place() is None):
                return
            self._met.append(now)
            often = len(self._met) == _MET and now - self._met[0] < _MET_SECONDS
            may_start = not self._starting and not self._closed and now >= self._not_before
            if not often or not may_start or len(self._places) > self._most:
                return
            self._met.clear()
            self._starting = True
        namespace = (request.namespaces or (request.namespace,))[0]
        threading.Thread(
            target=self._run_process, args=(namespace,), name="rag-query-process", daemon=True
        ).start()

    def _run_process(self, namespace: str) -> None:
        """Start a process, give it a place once it is ready, and take that away at its end."""
        child = Child("rag_platform.server.worker_pool", (self._library.settings, namespace))
        with faults.Attempt("server.process") as attempt:
            limits.within(_START_SECONDS, "starting a query process", lambda: child.ask(None))
        place = _Place(child)
        with self._changed:
            self._starting = False
            if attempt.error is None and not self._closed:
                self._places.append(place)
                self._changed.notify_all()
            else:
                self._not_before = time.monotonic() + _PAUSE_SECONDS
        if attempt.error is not None:
            log.warning(
                "no further query process could be started (%s); the server answers alone",
                attempt.error,
            )
        elif place in self._places:
            while not self._is_over(place, child):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(timeout=min(_GRACE_SECONDS, self._idle_seconds))
        child.process.kill()
        if not place.questions:
            child.close()  # else the thread that waits for its answer does

    def _is_over(self, place: _Place, child: Child) -> bool:
        """True once a process has ended, has nothing to do or does not answer; its place is then
        taken away.
        """
        with self._changed:
            quiet = time.monotonic() - place.active
            hangs = place.questions > 0 and quiet > self._longest + _GRACE_SECONDS
            idle = not place.questions and quiet > self._idle_seconds
            over = hangs or idle or child.process.poll() is not None
            if over:
                self._places.remove(place)
                self._changed.notify_all()
        if hangs:
            log.warning("a query process did not answer in time and was ended")
        return over


def respond(library: Library, request: QueryRequest, detail: str) -> Answer:
    """The answer to a question within the server's result budget. Raises what `engine.answer`
    raises.
    """
    result = redact_paths(answer(library, request))
    if request.skip:
        result = replace(result, hits=result.hits[request.skip :])
    budget = library.settings.server.query_tokens
    data, warnings = fit_query(result, detail, budget, linked=True)
    wanted = result.top_k - request.skip
    data["exhausted"] = len(data["results"]) == len(result.hits) < wanted
    return data, result.trace_id, warnings


def main() -> None:
    """Answer the questions that the server hands on."""
    serve(_prepare)


def _prepare(start: tuple[Settings, str]) -> Callable[[_Task | None], object]:
    """The function that answers tasks with (answer, cache figures); None asks whether it is ready,
    and opens the namespace.
    """
    settings, namespace = start
    store = Store.of(settings)
    setup_logging(store.logs_dir)
    otlp.setup(settings.observability.otlp)
    library = Library(settings, store, LedgerView(store))

    def run(task: _Task | None) -> object:
        if task is None:
            warm(library, namespace, at_once=True)
            return True
        with (
            library.load.beside(task.running - 1),
            tracing.for_request(task.request_id),
            tracing.for_client(task.client),
            access.acting_for(task.caller),
        ):
            return respond(library, task.request, task.detail), library.cache_figures()

    return run
