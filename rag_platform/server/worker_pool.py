"""Answers questions in several processes under load.

Because of the GIL, one process gives eight clients no more answers than one client. While questions
keep colliding, further processes are started, up to one per core; each answers one question at a
time, and ends after being idle for a while. At the maximum number of processes, the server itself
only dispatches, as the others would wait for its interpreter otherwise (2 cores, 8 clients: 1.7 to
1.8 times the answers of one client, 1.6 times with the server answering too).

Questions that wait for a remote model, or for a large local one, are answered in the server: they
leave its processor idle, or would load that model again.
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

MAX_PROCESSES = 4  # unless the settings say more
IDLE_SECONDS = 60.0
# A process is started after this many questions collided with another within this many seconds.
_COLLISIONS, _COLLISION_SECONDS = 16, 10.0
_PAUSE_SECONDS = 60.0  # after a process failed to start
_START_SECONDS = 120.0
# A question waits no longer for a slot: the others may be loading something.
_SLOT_WAIT_SECONDS = 1.0
_GRACE_SECONDS = 5.0

Answer = tuple[Any, str, list[str]]  # data, trace_id of the work or empty, warnings


@dataclass(eq=False)
class _Slot:
    """A process that answers questions: the server itself (`child` is None) or a child."""

    child: Child | None = None
    questions: int = 0  # in progress or queued
    active: float = field(default_factory=time.monotonic)  # when it last got or answered one
    caches: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Task:
    """A question for a child process."""

    request: QueryRequest
    detail: str
    running: int  # questions of the whole server, including this one
    request_id: str | None
    client: tracing.Client | None
    caller: access.Caller


class QueryPool:
    """Answers a server's questions; thread-safe."""

    def __init__(
        self, library: Library, processes: int = 0, *, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._library = library
        self._max_processes = processes or min(usable_processors(), MAX_PROCESSES)
        self._idle_seconds = idle_seconds
        self._changed = threading.Condition()
        self._slots = [_Slot()]  # the server itself first
        self._collisions: deque[float] = deque(maxlen=_COLLISIONS)
        self._starting = False
        self._no_start_before = 0.0
        self._closed = False
        self._longest = 0.0  # the largest time limit of a question so far, in seconds

    @property
    def processes(self) -> int:
        """The current number of processes, including the server."""
        return len(self._slots)

    def cache_figures(self) -> list[Json]:
        """`Library.cache_figures` of each child process after its last question."""
        return [slot.caches for slot in self._slots if slot.caches]

    def respond(self, request: QueryRequest, detail: str) -> Answer:
        """Answer a question in a free slot. Raises what the function `respond` raises."""
        if self._max_processes == 1 or not self._computes_here(request):
            return respond(self._library, request, detail)
        self._count_collision(request)
        load = self._library.load
        with self._acquire_slot() as slot:
            if slot is not None and slot.child is not None:
                try:
                    with load.add_running(1):
                        task = _Task(
                            request,
                            detail,
                            load.running,
                            tracing.current_request_id(),
                            tracing.current_client(),
                            access.current(),
                        )
                        made, slot.caches = slot.child.ask(task)
                    answered: Answer = made
                    return answered
                except ChildDied as error:
                    log.info("a query process %s; the server answers its question", error)
            return respond(self._library, request, detail)

    def close(self) -> None:
        """Kill the child processes."""
        with self._changed:
            self._closed = True
            children = [slot.child for slot in self._slots if slot.child is not None]
        for child in children:
            child.process.kill()

    # --- slots ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _acquire_slot(self) -> Iterator[_Slot | None]:
        """The least busy slot, reserved during the block; None if there is only the server, which
        takes any number of questions, or if no slot became free in time.
        """
        deadline = Deadline.after(_SLOT_WAIT_SECONDS)
        with self._changed, self._library.load.add_running(1):  # a waiting question counts as load
            self._changed.wait_for(
                lambda: len(self._slots) == 1 or self._find_free_slot() is not None, deadline.left()
            )
            deadline.check()
            if (slot := self._find_free_slot()) is not None:
                slot.questions += 1
                slot.active = time.monotonic()
        try:
            yield slot
        finally:
            if slot is not None:
                with self._changed:
                    slot.questions -= 1
                    slot.active = time.monotonic()
                    self._changed.notify()

    def _find_free_slot(self) -> _Slot | None:
        """The free slot with the fewest questions; None if there is none, or only the server."""
        server, *others = self._slots
        # a second, queued question keeps a process busy while the server reads the first answer
        free = [slot for slot in others if slot.questions < 2]
        if 0 < len(others) < self._max_processes and not server.questions:
            free.insert(0, server)
        return min(free, key=lambda slot: slot.questions, default=None)

    # --- processes -------------------------------------------------------------------------------

    def _computes_here(self, request: QueryRequest) -> bool:
        """True for a question that needs this machine's processor."""
        library = self._library
        try:
            for namespace in request.namespaces or (request.namespace,):
                with library.lease(namespace, request.release_id) as lease:
                    strategy = library.query_strategy(lease, request.strategy)
                if not library.models.computes_here(strategy):
                    return False
                self._longest = max(self._longest, strategy.retrieval.query_seconds)
        except (RagError, OSError):  # reported when the question is answered
            return False
        return True

    def _count_collision(self, request: QueryRequest) -> None:
        """Start a process if questions keep colliding."""
        now = time.monotonic()
        with self._changed:
            alone = len(self._slots) == 1
            if not (self._library.load.running if alone else self._find_free_slot() is None):
                return
            self._collisions.append(now)
            often = (
                len(self._collisions) == _COLLISIONS
                and now - self._collisions[0] < _COLLISION_SECONDS
            )
            may_start = not self._starting and not self._closed and now >= self._no_start_before
            if not often or not may_start or len(self._slots) > self._max_processes:
                return
            self._collisions.clear()
            self._starting = True
        namespace = (request.namespaces or (request.namespace,))[0]
        threading.Thread(
            target=self._run_process, args=(namespace,), name="rag-query-process", daemon=True
        ).start()

    def _run_process(self, namespace: str) -> None:
        """Start a process, add a slot for it once it is ready, and remove that when it ends."""
        child = Child("rag_platform.server.worker_pool", (self._library.settings, namespace))
        with faults.Attempt("server.process") as attempt:
            limits.run_within(_START_SECONDS, "starting a query process", lambda: child.ask(None))
        slot = _Slot(child)
        with self._changed:
            self._starting = False
            if attempt.error is None and not self._closed:
                self._slots.append(slot)
                self._changed.notify_all()
            else:
                self._no_start_before = time.monotonic() + _PAUSE_SECONDS
        if attempt.error is not None:
            log.warning(
                "no further query process could be started (%s); the server answers alone",
                attempt.error,
            )
        elif slot in self._slots:
            while not self._remove_if_over(slot, child):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(timeout=min(_GRACE_SECONDS, self._idle_seconds))
        child.process.kill()
        if not slot.questions:
            child.close()  # else the thread that waits for its answer closes it

    def _remove_if_over(self, slot: _Slot, child: Child) -> bool:
        """True, after removing its slot, if a process has ended, is idle or hangs."""
        with self._changed:
            quiet = time.monotonic() - slot.active
            hangs = slot.questions > 0 and quiet > self._longest + _GRACE_SECONDS
            idle = not slot.questions and quiet > self._idle_seconds
            over = hangs or idle or child.process.poll() is not None
            if over:
                self._slots.remove(slot)
                self._changed.notify_all()
        if hangs:
            log.warning("a query process did not answer in time and was ended")
        return over


def respond(library: Library, request: QueryRequest, detail: str) -> Answer:
    """Answer a question within the server's result budget. Raises what `engine.answer` raises."""
    result = redact_paths(answer(library, request))
    if request.skip:
        result = replace(result, hits=result.hits[request.skip :])
    budget = library.settings.server.query_tokens
    data, warnings = fit_query(result, detail, budget, linked=True)
    wanted = result.top_k - request.skip
    data["exhausted"] = len(data["results"]) == len(result.hits) < wanted
    return data, result.trace_id, warnings


def main() -> None:
    """Answer questions from the server, as a child process."""
    serve(_prepare)


def _prepare(start: tuple[Settings, str]) -> Callable[[_Task | None], object]:
    """A function from tasks to (answer, cache figures); the task None opens the namespace and
    returns when it is ready.
    """
    settings, namespace = start
    setup_logging(Store.of(settings).logs_dir)
    otlp.setup(settings.observability.otlp)
    library = Library.open(settings)

    def run(task: _Task | None) -> object:
        if task is None:
            warm(library, namespace, at_once=True)
            return True
        with (
            library.load.add_running(task.running - 1),
            tracing.for_request(task.request_id),
            tracing.for_client(task.client),
            access.acting_for(task.caller),
        ):
            return respond(library, task.request, task.detail), library.cache_figures()

    return run
