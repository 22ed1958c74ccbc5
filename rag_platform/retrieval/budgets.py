"""What a question may take and what it took: its share of a busy process, calls of outside providers at once, usage and cost of models.

What is given up first when many questions run at once is fixed (seed 003 line 142): reranking, then half of the pool, then the language
model that writes the answer, at last the question itself.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rag_platform.config import LoadSettings
from rag_platform.errors import ProviderError, RagError
from rag_platform.ir import Json
from rag_platform.observability import tracing
from rag_platform.protocols import LLM, Completion, Message
from rag_platform.retrieval.deadlines import Deadline

RERANK, POOL, MODEL = "rerank", "pool", "model"


# --- usage ---------------------------------------------------------------------------------------------------------------


@dataclass
class Budget:
    """One question's deadline, and what its model calls came to."""

    deadline: Deadline
    _calls: int = 0
    _completed: int = 0
    _sums: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, call: Callable[[], Completion]) -> Completion:
        """What a call of a language model returns, counted with what it took, also when it fails. Raises what the call raises."""
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
        """`calls`, of these `failed` where some did or were not waited for, `input_tokens`, `output_tokens` and, where prices are
        configured, `cost`; empty without a call."""
        with self._lock:
            if not self._calls:
                return {}
            lost = self._calls - self._completed
            tokens = {name: int(self._sums.get(name, 0)) for name in ("input_tokens", "output_tokens")}
            cost = {"cost": round(self._sums["cost"], 9)} if "cost" in self._sums else {}
            return {"calls": self._calls, **({"failed": lost} if lost else {}), **tokens, **cost}


_budget: contextvars.ContextVar[Budget | None] = contextvars.ContextVar("rag_budget", default=None)


@contextmanager
def spending(budget: Budget) -> Iterator[Budget]:
    """The budget of all that runs inside the block, in threads of `deadlines.start` too."""
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        _budget.reset(token)


# --- calls at once -------------------------------------------------------------------------------------------------------


class Gate:
    """Lets so many calls of one provider run at once; the others wait, no longer than their question may take."""

    def __init__(self, name: str, calls: int) -> None:
        self._name = name
        self._calls = calls
        self._free = threading.BoundedSemaphore(calls)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Holds one of the places. Raises ProviderError `provider_busy` when none was free in time."""
        budget = _budget.get()
        seconds = budget.deadline.left() if budget is not None else None
        if not self._free.acquire(blocking=False) and not self._free.acquire(timeout=seconds):
            raise ProviderError(f"{self._name} has {self._calls} calls running and none ended in {seconds:.3g} s (load.provider_calls)",
                                code="provider_busy", retryable=True)  # fmt: skip
        try:
            yield
        finally:
            self._free.release()


@dataclass(frozen=True)
class Metered:
    """A language model behind its gate, whose calls are added to the budget of the question."""

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
        """What the model answers; raises what it raises, and ProviderError `provider_busy`."""
        budget = _budget.get()
        more: dict[str, Any] = {} if on_text is None else {"on_text": on_text}

        def call() -> Completion:
            tracing.count(model_calls=1)
            return self.model.generate(messages, mode=mode, max_tokens=max_tokens, json_schema=json_schema, **more)

        with self.gate.entered():
            if budget is not None:
                budget.deadline.check("the call of a language model")
            completion = call() if budget is None else budget.ask(call)
        tracing.count(model_retries=completion.retries)
        return completion


# --- load ----------------------------------------------------------------------------------------------------------------


class Load:
    """Counts the questions that run: in this process, and beside it in the others of the same server."""

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self._running = 0
        self._lock = threading.Lock()

    @contextmanager
    def beside(self, questions: int) -> Iterator[None]:
        """Counts questions that wait for their turn or run in another process."""
        with self._lock:
            self._running += questions
        try:
            yield
        finally:
            with self._lock:
                self._running -= questions

    @property
    def running(self) -> int:
        """How many questions run now."""
        return self._running

    @contextmanager
    def question(self) -> Iterator[tuple[str, ...]]:
        """What this question goes without, for the load it meets. Raises ProviderError `overloaded` when it is not taken at all."""
        with self._lock:
            self._running += 1
            running = self._running
        try:
            if running >= self._settings.refuse_at:
                raise ProviderError(f"{running} questions run at once, the limit is {self._settings.refuse_at - 1} (load.refuse_at); "
                                    "ask again in a moment", code="overloaded", retryable=True)  # fmt: skip
            yield shed(running, self._settings)
        finally:
            with self._lock:
                self._running -= 1


def shed(running: int, settings: LoadSettings) -> tuple[str, ...]:
    """What is given up with so many questions running: `rerank`, `pool`, `model`, each only after those before it."""
    order = ((RERANK, settings.skip_rerank_at), (POOL, settings.smaller_pool_at), (MODEL, settings.extractive_at))
    reached = max((n for n, (_, at) in enumerate(order, 1) if running >= at), default=0)
    return tuple(name for name, _ in order[:reached])
