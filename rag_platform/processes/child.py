"""A child process that exchanges messages with its parent over pipes. It is spawned, never forked,
so that engines cannot hang.

The child is a fresh interpreter. `multiprocessing` is not used because its children import the
parent's main module again, which costs seconds under an orchestrator and fails for a script read
from standard input.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any


class BadMessage(ValueError):
    """The other side sent something that is no message."""


class Pickle:
    """Any Python object; for children that run only our own code."""

    def write(self, message: Any, pipe: IO[bytes]) -> None:
        """Write one message to a pipe."""
        pickle.dump(message, pipe, protocol=pickle.HIGHEST_PROTOCOL)
        pipe.flush()

    def read(self, pipe: IO[bytes]) -> Any:
        """The next message. Raises EOFError when the other side is gone, BadMessage."""
        try:
            return pickle.load(pipe)
        except pickle.UnpicklingError as error:
            raise BadMessage(str(error)) from error


class JsonLines:
    """One JSON object a line; for children that read untrusted files. A file that takes over such a
    process cannot make its parent run code.
    """

    def write(self, message: Any, pipe: IO[bytes]) -> None:
        """Write one message to a pipe."""
        pipe.write(json.dumps(message).encode("ascii") + b"\n")
        pipe.flush()

    def read(self, pipe: IO[bytes]) -> Any:
        """The next message. Raises EOFError when the other side is gone, BadMessage."""
        if not (line := pipe.readline()):
            raise EOFError
        try:
            return json.loads(line)
        except ValueError as error:
            raise BadMessage(str(error)) from error


class ChildProcess:
    """A running interpreter, and the messages to and from it."""

    def __init__(
        self,
        arguments: Sequence[str],
        codec: Pickle | JsonLines,
        *,
        env: Mapping[str, str] | None = None,
        stderr: int | None = None,
    ) -> None:
        paths = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)
        self.process = subprocess.Popen(
            # without -P a file of the current folder stands for a module of the same name
            [sys.executable, "-P", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **(env or {}), "PYTHONPATH": paths},
        )
        self._codec = codec

    def send(self, message: Any) -> None:
        """Send a message. Raises OSError or ValueError when the child is dead."""
        assert self.process.stdin is not None
        self._codec.write(message, self.process.stdin)

    def receive(self) -> Any:
        """The child's next message. Raises EOFError, OSError or ValueError when there is none."""
        assert self.process.stdout is not None
        return self._codec.read(self.process.stdout)

    def is_alive(self) -> bool:
        """True while the process runs."""
        return self.process.poll() is None

    def close(self) -> None:
        """End the process at once; whatever it was doing is lost."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                # what is still buffered for the dead process cannot be flushed
                with contextlib.suppress(OSError, ValueError):
                    pipe.close()


def take_pipes(*, quiet: bool = False) -> tuple[IO[bytes], IO[bytes]]:
    """In a child: the pipes to read questions from and to write answers to.

    What engines print goes to standard error or, with `quiet`, nowhere. Interrupts are ignored:
    Ctrl+C reaches the whole group, and the parent decides what it means.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    if quiet:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
    else:
        os.dup2(2, 1)
    return sys.stdin.buffer, answers
