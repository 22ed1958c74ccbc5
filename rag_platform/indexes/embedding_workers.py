"""Child processes that embed: spawned, never forked, so that engines with threads cannot hang and a crash costs one batch.

The child is a fresh interpreter that talks pickles over its pipes. `multiprocessing` is not used because its children import the
parent's main module again, which costs seconds under an orchestrator and fails for a script read from standard input.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from rag_platform.config import canonical_json
from rag_platform.errors import ProviderError, RagError
from rag_platform.protocols import Vectors
from rag_platform.registry import build


class EmbeddingWorker:
    """One child process with its embedder; started at the first batch, started again after it died."""

    def __init__(self, provider: str, options: Mapping[str, Any]) -> None:
        self._provider = provider
        self._options = dict(options)
        self._process: subprocess.Popen[bytes] | None = None
        self.loaded = False  # it has answered, so the next call is computing alone

    def embed(self, texts: Sequence[str], seconds: float) -> Vectors:
        """Vectors of the texts. Raises what the embedder raised; ProviderError `embedder_died` when the child died or was late."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            pickle.dump(list(texts), process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            late = not timer.is_alive()
            self.close()
            reason = f"took more than {seconds:.0f} s" if late else f"died with exit status {process.returncode}"
            raise ProviderError(f"the embedder {self._provider!r} {reason} on {len(texts)} texts", code="embedder_died") from error
        finally:
            timer.cancel()
        if isinstance(answer, BaseException):
            raise answer
        vectors: Vectors = answer
        self.loaded = True
        return vectors

    def close(self) -> None:
        """End the child at once; whatever it was doing is lost."""
        self.loaded = False
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    # What was still buffered for the dead child cannot be flushed.
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            paths = [os.path.abspath(entry) for entry in sys.path if entry]
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from rag_platform.indexes.embedding_workers import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
            assert self._process.stdin is not None
            # A child that is already dead is noticed, and reported, at the first batch.
            with contextlib.suppress(OSError):
                pickle.dump((self._provider, self._options), self._process.stdin)
                self._process.stdin.flush()
        return self._process


class EmbeddingPool:
    """Child processes that runs share; each call borrows one, so that runs which overlap keep all of them busy."""

    def __init__(self, provider: str, options: Mapping[str, Any]) -> None:
        self._provider = provider
        self._options = dict(options)
        self._workers: list[EmbeddingWorker] = []
        self._idle: queue.SimpleQueue[EmbeddingWorker] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._parts: dict[str, EmbeddingPool] = {}
        self.closed = False

    def part(self, provider: str, options: Mapping[str, Any]) -> EmbeddingPool:
        """The pool of one part of a joined embedder, which closes with this one."""
        with self._lock:
            return self._parts.setdefault(canonical_json([provider, options]), EmbeddingPool(provider, options))

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self._workers)

    def grow(self, count: int) -> None:
        """Have at least `count` processes; each starts with its first batch."""
        with self._lock:
            while len(self._workers) < count:
                self._workers.append(EmbeddingWorker(self._provider, self._options))
                self._idle.put(self._workers[-1])

    @contextlib.contextmanager
    def worker(self) -> Iterator[EmbeddingWorker]:
        """A process that nobody else uses meanwhile; waits for one."""
        borrowed = self._idle.get()
        try:
            yield borrowed
        finally:
            self._idle.put(borrowed)

    def close(self) -> None:
        """End every process at once; runs under way come to nothing."""
        self.closed = True
        with self._lock:
            for worker in self._workers:
                worker.close()
            for part in self._parts.values():
                part.close()

    def __enter__(self) -> EmbeddingPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main() -> None:
    """Serve batches until the parent closes the pipe or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an engine prints must not mix with the answers
    _serve(source, target)


def _serve(source: BinaryIO, target: BinaryIO) -> None:
    embedder: Any = None
    try:
        provider, options = pickle.load(source)
        while True:
            texts = pickle.load(source)
            try:
                embedder = embedder or build("embedder", provider, options)
                answer: object = embedder.embed(texts)
            except RagError as error:
                answer = error
            except Exception as error:
                answer = ProviderError(f"the embedder {provider!r} failed: {type(error).__name__}: {error}")
            pickle.dump(answer, target, protocol=pickle.HIGHEST_PROTOCOL)
            target.flush()
    except (EOFError, BrokenPipeError):
        return
