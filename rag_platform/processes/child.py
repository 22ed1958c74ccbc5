"""Child processes that exchange messages with their parent over pipes. They are spawned, never
forked, because engines could hang after a fork.

`multiprocessing` is not used, because its children import the parent's main module again, which
costs seconds under an orchestrator and fails for a script read from standard input.
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
    """The other side sent something that is not a message."""


class Pickle:
    """Pickled Python objects; for children that run only our own code."""

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
    """One JSON object per line; for children that read untrusted files. Unlike a pickle, a message
    from a compromised child cannot run code in its parent.
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
    """A Python interpreter in a child process, and the messages to and from it."""

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
            # without -P, files in the current folder would shadow modules
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
        """The child's next message. Raises EOFError, OSError or ValueError if there is none."""
        assert self.process.stdout is not None
        return self._codec.read(self.process.stdout)

    def is_alive(self) -> bool:
        """True while the process runs."""
        return self.process.poll() is None

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                # what is still buffered for the dead process cannot be flushed
                with contextlib.suppress(OSError, ValueError):
                    pipe.close()


def take_pipes(*, quiet: bool = False) -> tuple[IO[bytes], IO[bytes]]:
    """In a child: the pipes for (requests, answers).

    What engines print goes to standard error, or with `quiet` nowhere. SIGINT is ignored: Ctrl+C
    reaches the whole process group, and the parent decides what to do.
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
