"""A child process that answers over its pipes, one question after the other: spawned, never forked,
so that engines cannot hang.

The child is a fresh interpreter that talks pickles. `multiprocessing` is not used because its
children import the parent's main module again, which costs seconds under an orchestrator and fails
for a script read from standard input.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from rag_platform.ir import Json
from rag_platform.observability import faults

TaskT = TypeVar("TaskT")
AnswerT = TypeVar("AnswerT")
_MOST_WORKERS = 8
_FEW_TASKS = 8
_log = logging.getLogger(__name__)


class ChildDied(Exception):
    """The child ended before it had answered; the message says how."""


@dataclass(frozen=True, slots=True)
class _Told:
    """An answer with the unexpected errors that the child, which has no log of its own, met on the
    way.
    """

    answer: object
    faults: list[Json]


class Child:
    """A running child process: the `main` of a module, which calls `serve`."""

    def __init__(self, module: str, first: object) -> None:
        paths = [os.path.abspath(entry) for entry in sys.path if entry]
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"from {module} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._sending = threading.Lock()
        self._read = threading.Event()  # the answer to the last question
        self._read.set()
        self._send(first)

    def _send(self, message: object) -> None:
        assert self.process.stdin is not None
        # a child that is dead is noticed when its answer is read
        with contextlib.suppress(OSError, ValueError):
            pickle.dump(message, self.process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            self.process.stdin.flush()

    def ask(self, message: object) -> Any:
        """Its answer; an exception that it answered with is raised. Raises ChildDied.

        Several threads may ask: the child then has its next question at once, and each thread reads
        its answer in turn.
        """
        assert self.process.stdout is not None
        read = threading.Event()
        with self._sending:
            self._send(message)
            before, self._read = self._read, read
        before.wait()
        try:
            answer = pickle.load(self.process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            self.close()
            raise ChildDied(f"died with exit status {self.process.returncode}") from error
        finally:
            read.set()
        if isinstance(answer, _Told):
            for fault in answer.faults:
                faults.record(fault)
            answer = answer.answer
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """End the child at once; whatever it was doing is lost."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                # what was still buffered for the dead child cannot be flushed
                with contextlib.suppress(OSError):
                    pipe.close()


class Workers:
    """Child processes that call functions of ours, one for each core; each starts with its first
    task, and `close` ends all of them.

    A function is named to the children by its module, so it must be one of a module's top level.
    Where a child dies over a task, or there is one core alone, the task is done in this process.
    """

    def __init__(self, count: int = 0) -> None:
        self.count = min(count or os.cpu_count() or 1, _MOST_WORKERS)
        self._children: list[Child | None] = [None] * self.count
        self._lock = threading.Lock()
        self._closed = False
        self._slots: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in [*range(self.count)] * 2:  # two tasks each: the next one waits in the pipe
            self._slots.put(slot)
        self._threads = ThreadPoolExecutor(2 * self.count, thread_name_prefix="worker")

    def submit(self, function: Callable[[TaskT], AnswerT], task: TaskT) -> Future[AnswerT]:
        """The answer of one task, once a child has it; it raises what the function raised."""
        return self._threads.submit(self._ask, function, task)

    def map(
        self, function: Callable[[TaskT], AnswerT], tasks: Sequence[TaskT]
    ) -> Iterator[AnswerT]:
        """The answers in the order of the tasks; few tasks are done in this process, sooner than a
        child would start.
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
            if child is None or child.process.poll() is not None:
                child = self._children[slot] = Child(__name__, None)
            return child

    def close(self) -> None:
        """End the children at once; whatever they were doing is lost."""
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


def shared_out(items: Sequence[TaskT], size: int = 32) -> list[Sequence[TaskT]]:
    """The items in shares of `size`, each a task for `Workers`."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def main() -> None:
    """Call the functions that are asked for."""
    serve(lambda first: lambda message: message[0](message[1]))


def serve(start: Callable[[Any], Callable[[Any], object]]) -> None:
    """In the child: answer until the parent closes the pipe or is gone.

    `start` makes of the first message, which is not answered, the function that answers the others;
    what it raises is the answer, too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an engine prints must not mix with the answers
    try:
        answer = start(pickle.load(source))
        while True:
            message = pickle.load(source)
            with faults.collect() as found:
                with faults.Attempt(start.__module__) as attempt:
                    answered = answer(message)
                if attempt.error is not None:
                    answered = attempt.error
            pickle.dump(
                _Told(answered, found) if found else answered,
                target,
                protocol=pickle.HIGHEST_PROTOCOL,
            )
            target.flush()
    except (EOFError, BrokenPipeError):
        return
