"""A child process that answers over its pipes, one question after the other: spawned, never forked, so that engines cannot hang.

The child is a fresh interpreter that talks pickles. `multiprocessing` is not used because its children import the parent's main module
again, which costs seconds under an orchestrator and fails for a script read from standard input.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rag_platform.ir import Json
from rag_platform.observability import faults


class ChildDied(Exception):
    """The child ended before it had answered; the message says how."""


@dataclass(frozen=True, slots=True)
class _Told:
    """An answer with the unexpected errors that the child, which has no log of its own, met on the way."""

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
        with contextlib.suppress(OSError, ValueError):  # a child that is dead is noticed when its answer is read
            pickle.dump(message, self.process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            self.process.stdin.flush()

    def ask(self, message: object) -> Any:
        """Its answer; an exception that it answered with is raised. Raises ChildDied.

        Several threads may ask: the child then has its next question at once, and each thread reads its answer in turn.
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


def serve(start: Callable[[Any], Callable[[Any], object]]) -> None:
    """In the child: answer until the parent closes the pipe or is gone.

    `start` makes of the first message, which is not answered, the function that answers the others; what it raises is the answer, too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an engine prints must not mix with the answers
    try:
        answer = start(pickle.load(source))
        while True:
            message = pickle.load(source)
            with faults.collected() as found:
                try:
                    answered = answer(message)
                except Exception as error:
                    faults.seen(error, getattr(start, "__module__", "child"))
                    answered = error
            pickle.dump(_Told(answered, found) if found else answered, target, protocol=pickle.HIGHEST_PROTOCOL)
            target.flush()
    except (EOFError, BrokenPipeError):
        return
