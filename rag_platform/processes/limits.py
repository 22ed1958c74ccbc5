"""Limits of a question: deadlines, concurrent searches and provider calls, model costs, and what is
skipped under load.

As many searches run at once as there are processors, in order of arrival. More concurrency lowers
throughput, because threads compete for the interpreter lock and the processor's caches: with eight
clients a 2-core server answered 66 hybrid questions a second concurrently and 87 in turns, and with
the word index alone 133 and 215.

Under load, reranking is skipped first, then half of the candidate pool, then the language model
that writes the answer; at last questions are refused.
"""

from __future__ import annotations

import contextvars
import math
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rag_platform.config.settings import LoadSettings
from rag_platform.errors import CancelledError, ProviderError, RagError
from rag_platform.ir import Json
from rag_platform.observability import tracing
from rag_platform.observability.context import set_variable
from rag_platform.processes.processors import usable_processors
from rag_platform.protocols import LLM, Completion, Message

R = TypeVar("R")
_MAX_IDLE = 16  # threads kept for later calls


class _Workers:
    """Reusable daemon threads; a new one starts only when all are busy.

    With a ThreadPoolExecutor, a hanging provider would block the exit of the process, and later
    queries once such calls fill the pool. Starting a thread for each call would cost more than a
    call of a fast index.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._pid = os.getpid()

    def submit(self, call: Callable[[], None]) -> None:
        with self._lock:
            if self._pid != os.getpid():  # threads do not survive a fork
                self._calls, self._idle, self._pid = queue.SimpleQueue(), 0, os.getpid()
            if self._idle > 0:
                self._idle -= 1
            else:
                threading.Thread(
                    target=self._work, args=(self._calls,), name="rag-stage", daemon=True
                ).start()
            self._calls.put(call)

    def _work(self, calls: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            calls.get()()
            with self._lock:
                if calls is not self._calls or self._idle >= _MAX_IDLE:
                    return
                self._idle += 1


_workers = _Workers()
_call: contextvars.ContextVar[Future[Any] | None] = contextvars.ContextVar("rag_call", default=None)


def start(function: Callable[[], R]) -> Future[R]:
    """Run the function in another thread, within the caller's trace; its future."""
    future: Future[R] = Future()
    with set_variable(_call, future):
        call = tracing.carry(function)

    def fulfil() -> None:
        with suppress(InvalidStateError):  # nobody waits for it any more
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 (raised again by the thread that waits)
                future.set_exception(error)

    _workers.submit(fulfil)
    return future


def check_awaited(stage: str) -> None:
    """Raise CancelledError in a call of `start` that nobody waits for any more: when its turn has
    come, before it begins what cannot be stopped.
    """
    call = _call.get()
    if call is not None and call.cancelled():
        raise CancelledError(f"{stage} was not begun: its time had passed", code="cancelled")


# --- deadlines ----------------------------------------------------------------------------------

_POLL = 0.02  # seconds between checks whether the caller still waits
_caller: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar(
    "rag_cancelled", default=None
)


@contextmanager
def cancellable() -> Iterator[threading.Event]:
    """An event that is set when the block is left. It tells work that was started inside the block,
    also in other threads, that nobody waits for it any more.
    """
    event = threading.Event()
    with set_variable(_caller, event):
        try:
            yield event
        finally:
            event.set()


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time by which a query must have ended, and the event that cancels it."""

    at: float  # of time.monotonic()
    cancelled: threading.Event | None = None

    @classmethod
    def after(cls, seconds: float, cancelled: threading.Event | None = None) -> Deadline:
        """The deadline in that many seconds; without an event it uses that of `cancellable`."""
        return cls(time.monotonic() + seconds, cancelled or _caller.get())

    def left(self, most: float | None = None) -> float:
        """The remaining seconds, at least 0 and at most `most`."""
        left = max(0.0, self.at - time.monotonic())
        return left if most is None else min(most, left)

    def check(self, stage: str = "the query") -> None:
        """Raise CancelledError if the query was cancelled."""
        if self.cancelled is not None and self.cancelled.is_set():
            raise CancelledError(f"{stage} was cancelled by its caller", code="cancelled")


def wait(
    future: Future[R],
    seconds: float,
    stage: str,
    deadline: Deadline | None = None,
    *,
    setting: str = "retrieval.stage_seconds",
) -> R:
    """The result of the call; its exception is raised.

    Raises ProviderError `deadline` after `seconds`, the value of the strategy's `setting`, or at
    the query's deadline, and CancelledError when the query is cancelled. The call itself keeps
    running up to its next `check_awaited`.
    """
    allowed = deadline.left(seconds) if deadline is not None else seconds
    ends = time.monotonic() + allowed
    polls = deadline is not None and deadline.cancelled is not None
    try:
        while True:
            left = max(0.0, ends - time.monotonic())
            try:
                return future.result(timeout=min(_POLL, left) if polls else left)
            except FutureTimeout as error:
                if future.done():
                    if future.exception() is error:  # the call itself raised a TimeoutError
                        raise
                    continue
                if deadline is not None:
                    deadline.check(stage)
                if time.monotonic() >= ends:
                    limit = (
                        setting if allowed == seconds else "retrieval.query_seconds left no more"
                    )
                    raise ProviderError(
                        f"{stage} took longer than {allowed:.3g} s ({limit})",
                        code="deadline",
                        stage=stage,
                    ) from error
    finally:
        future.cancel()  # of a call that has ended this changes nothing


def run_within(
    seconds: float,
    stage: str,
    function: Callable[[], R],
    deadline: Deadline | None = None,
    *,
    quick: bool = False,
    setting: str = "retrieval.stage_seconds",
) -> R:
    """The result of `function` within `seconds` and the query's deadline. Raises like `wait`.

    A `quick` function, which takes a few milliseconds, runs in the caller's thread, because a
    hand-over to another thread costs a millisecond.
    """
    if deadline is not None:
        deadline.check(stage)
        if not deadline.left():
            raise ProviderError(
                f"{stage} was not begun, for the time of the query is up (retrieval.query_seconds)",
                code="deadline",
                stage=stage,
            )
    return function() if quick else wait(start(function), seconds, stage, deadline, setting=setting)


class Turns:
    """A semaphore that is fair: places are granted in order of arrival."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def take(self, seconds: float) -> Iterator[bool]:
        """Hold a place during the block. Yields False if none was free within `seconds`; the block
        then runs without one.
        """
        acquired = self._acquire(seconds)
        try:
            yield acquired
        finally:
            if acquired:
                self._release()

    def _acquire(self, seconds: float) -> bool:
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        if turn.acquire(timeout=max(0.0, seconds)):
            return True
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return False
        return True  # a place was granted at the last moment

    def _release(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


searches = Turns(usable_processors())


RERANK, POOL, MODEL = "rerank", "pool", "model"


# --- usage --------------------------------------------------------------------------------------


@dataclass
class Budget:
    """A question's deadline, and the usage of its model calls."""

    deadline: Deadline
    _calls: int = 0
    _completed: int = 0
    _sums: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, call: Callable[[], Completion]) -> Completion:
        """Make a call of a language model and count its usage, also if it fails. Raises what the
        call raises.
        """
        with self._lock:
            self._calls += 1
        try:
            completion = call()
        except RagError as error:
            self._add(error.details.get("usage") or {}, error.details.get("cost"))
            raise
        self._add(completion.usage, completion.cost)
        with self._lock:
            self._completed += 1
        return completion

    def _add(self, usage: Json, cost: float | None) -> None:
        with self._lock:
            for name in ("input_tokens", "output_tokens"):
                self._sums[name] = self._sums.get(name, 0) + (usage.get(name) or 0)
            if cost is not None:
                self._sums["cost"] = self._sums.get("cost", 0.0) + cost

    def usage(self) -> Json:
        """`calls`, `failed` (calls that failed or were abandoned, if any), `input_tokens`,
        `output_tokens`, and `cost` if prices are configured; empty without calls.
        """
        with self._lock:
            if not self._calls:
                return {}
            lost = self._calls - self._completed
            tokens = {
                name: int(self._sums.get(name, 0)) for name in ("input_tokens", "output_tokens")
            }
            cost = {"cost": round(self._sums["cost"], 9)} if "cost" in self._sums else {}
            return {"calls": self._calls, **({"failed": lost} if lost else {}), **tokens, **cost}


_budget: contextvars.ContextVar[Budget | None] = contextvars.ContextVar("rag_budget", default=None)


@contextmanager
def charge_to(budget: Budget) -> Iterator[Budget]:
    """Charge everything inside the block to the budget, also in threads of `start`."""
    with set_variable(_budget, budget):
        yield budget


def question_ends() -> float:
    """The deadline of the current question in time.monotonic(); infinity outside a question."""
    budget = _budget.get()
    return math.inf if budget is None else budget.deadline.at


# --- concurrent calls ---------------------------------------------------------------------------


class Gate:
    """Limits the concurrent calls of one provider; others wait until their question's deadline."""

    def __init__(self, name: str, calls: int) -> None:
        self._name = name
        self._calls = calls
        self._turns = Turns(calls)

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Hold a place during the block. Raises ProviderError `provider_busy` if none was free in
        time.
        """
        budget = _budget.get()
        seconds = budget.deadline.left() if budget is not None else threading.TIMEOUT_MAX
        with self._turns.take(seconds) as taken:
            if not taken:
                raise ProviderError(
                    f"{self._name} has {self._calls} calls running and none ended in"
                    f" {seconds:.3g} s (load.provider_calls)",
                    code="provider_busy",
                    retryable=True,
                )
            yield


@dataclass(frozen=True)
class Metered:
    """A language model behind its gate, whose usage is added to the question's budget."""

    model: LLM
    gate: Gate

    def generate(
        self,
        messages: Sequence[Message],
        *,
        mode: str = "online",
        max_tokens: int | None = None,
        json_schema: Json | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """The model's answer. Raises what the model raises, and ProviderError `provider_busy`."""
        budget = _budget.get()
        more: dict[str, Any] = {} if on_text is None else {"on_text": on_text}

        def call() -> Completion:
            tracing.count(model_calls=1)
            return self.model.generate(
                messages, mode=mode, max_tokens=max_tokens, json_schema=json_schema, **more
            )

        with self.gate.enter():
            if budget is not None:
                budget.deadline.check("the call of a language model")
            completion = call() if budget is None else budget.ask(call)
        tracing.count(model_retries=completion.retries)
        return completion


# --- load ---------------------------------------------------------------------------------------


class Load:
    """Counts the running questions of this process and of the other processes of its server."""

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self._running = 0
        self._lock = threading.Lock()

    @contextmanager
    def add_running(self, questions: int) -> Iterator[int]:
        """Count additional questions, queued or running in other processes, during the block, and
        yield how many there are with them.
        """
        with self._lock:
            self._running += questions
            running = self._running
        try:
            yield running
        finally:
            with self._lock:
                self._running -= questions

    @property
    def running(self) -> int:
        """The number of running questions."""
        return self._running

    @contextmanager
    def question(self) -> Iterator[tuple[str, ...]]:
        """Count a question during the block, and yield the parts that it must skip under the
        current load. Raises ProviderError `overloaded` if it is refused.
        """
        with self.add_running(1) as running:
            if running >= self._settings.refuse_at:
                raise ProviderError(
                    f"{running} questions run at once, the limit is {self._settings.refuse_at - 1}"
                    " (load.refuse_at); ask again in a moment",
                    code="overloaded",
                    retryable=True,
                )
            yield parts_to_skip(running, self._settings)


def parts_to_skip(running: int, settings: LoadSettings) -> tuple[str, ...]:
    """The parts to skip with that many running questions: a prefix of `rerank`, `pool`, `model`."""
    order = (RERANK, POOL, MODEL)
    limits = (settings.skip_rerank_at, settings.smaller_pool_at, settings.extractive_at)
    return order[: max((n for n, at in enumerate(limits, 1) if running >= at), default=0)]
