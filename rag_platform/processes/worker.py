"""Child processes that run our own code and answer requests one by one, and a pool of them for many
small tasks.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from rag_platform.ir import Json
from rag_platform.observability import faults
from rag_platform.processes.child import ChildProcess, Pickle, take_pipes
from rag_platform.processes.processors import usable_processors

TaskT = TypeVar("TaskT")
AnswerT = TypeVar("AnswerT")
_MOST_WORKERS = 8
_FEW_TASKS = 8
_log = logging.getLogger(__name__)


class ChildDied(Exception):
    """The child ended before it answered; the message says how."""


@dataclass(frozen=True, slots=True)
class _WithFaults:
    """An answer together with unexpected errors in the child, which writes no log itself."""

    answer: object
    faults: list[Json]


class Child(ChildProcess):
    """A child that runs the `main` function of a module, which must call `serve`."""

    def __init__(self, module: str, first: object) -> None:
        super().__init__(["-c", f"from {module} import main; main()"], Pickle())
        self._sending = threading.Lock()
        self._read = threading.Event()  # set once the answer to the last request was read
        self._read.set()
        self._send(first)

    def _send(self, message: object) -> None:
        # a dead child is noticed when its answer is read
        with contextlib.suppress(OSError, ValueError):
            self.send(message)

    def ask(self, message: object) -> Any:
        """Send a request and return its answer; an answer that is an exception is raised. Raises
        ChildDied.

        Several threads may ask, so that the next request is already in the pipe when the child
        answers; each thread reads its answer in turn.
        """
        read = threading.Event()
        with self._sending:
            self._send(message)
            before, self._read = self._read, read
        before.wait()
        try:
            answer = self.receive()
        except (EOFError, OSError, ValueError) as error:
            self.close()
            raise ChildDied(f"died with exit status {self.process.returncode}") from error
        finally:
            read.set()
        if isinstance(answer, _WithFaults):
            for fault in answer.faults:
                faults.record(fault)
            answer = answer.answer
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Workers:
    """A pool of child processes, one for each core, that call our own functions; each starts with
    its first task.

    Functions must be defined at a module's top level. If a child dies, its task is done in this
    process.
    """

    def __init__(self, count: int = 0) -> None:
        self.count = min(count or usable_processors(), _MOST_WORKERS)
        self._children: list[Child | None] = [None] * self.count
        self._lock = threading.Lock()
        self._closed = False
        self._slots: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in [*range(self.count)] * 2:  # two tasks each, the second waiting in the pipe
            self._slots.put(slot)
        self._threads = ThreadPoolExecutor(2 * self.count, thread_name_prefix="worker")

    def submit(self, function: Callable[[TaskT], AnswerT], task: TaskT) -> Future[AnswerT]:
        """The future result of one task."""
        return self._threads.submit(self._ask, function, task)

    def map(
        self, function: Callable[[TaskT], AnswerT], tasks: Sequence[TaskT]
    ) -> Iterator[AnswerT]:
        """The results in the order of the tasks. With one core or few tasks they are computed in
        this process, because starting children would take longer.
        """
        if self.count == 1 or len(tasks) < _FEW_TASKS:
            yield from map(function, tasks)
            return
        waiting: deque[Future[AnswerT]] = deque()
        for task in tasks:
            waiting.append(self.submit(function, task))
            if len(waiting) > 2 * self.count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _ask(self, function: Callable[[TaskT], AnswerT], task: TaskT) -> AnswerT:
        slot = self._slots.get()
        try:
            answer: AnswerT = self._child(slot).ask((function, task))
            return answer
        except ChildDied as error:
            if self._closed:
                raise
            _log.warning("a working process %s; its task is done in this one", error)
            return function(task)
        finally:
            self._slots.put(slot)

    def _child(self, slot: int) -> Child:
        with self._lock:
            if self._closed:
                raise ChildDied("was ended")
            child = self._children[slot]
            if child is None or not child.is_alive():
                child = self._children[slot] = Child(__name__, None)
            return child

    def close(self) -> None:
        """Kill the children, abandoning their tasks."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            for child in self._children:
                if child is not None:
                    child.close()
        self._threads.shutdown()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def split_into_tasks(items: Sequence[TaskT], size: int = 32) -> list[Sequence[TaskT]]:
    """The items in slices of `size`, each a task for `Workers`."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def main() -> None:
    """In the child: call the functions sent by `Workers`."""
    serve(lambda first: lambda message: message[0](message[1]))


def serve(start: Callable[[Any], Callable[[Any], object]]) -> None:
    """In the child: answer requests until the parent closes the pipe or is gone.

    `start` gets the first message, which is not answered, and returns the function that answers the
    others. An exception of that function is sent as the answer.
    """
    questions, answers = take_pipes()
    codec = Pickle()
    with contextlib.suppress(EOFError, BrokenPipeError):
        answer = start(codec.read(questions))
        while True:
            message = codec.read(questions)
            with faults.collect() as found:
                with faults.Attempt(start.__module__) as attempt:
                    answered = answer(message)
                if attempt.error is not None:
                    answered = attempt.error
            codec.write(_WithFaults(answered, found) if found else answered, answers)
