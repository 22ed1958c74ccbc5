"""Child processes that embed, so that a crash costs one batch and all processors work."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rag_platform.children import Child, ChildDied, serve
from rag_platform.config import canonical_json
from rag_platform.errors import ProviderError, RagError
from rag_platform.observability import faults
from rag_platform.protocols import Vectors
from rag_platform.registry import build


class EmbeddingWorker:
    """One child process with its embedder; started at the first batch, started again after it died."""

    def __init__(self, provider: str, options: Mapping[str, Any]) -> None:
        self._provider = provider
        self._options = dict(options)
        self._child: Child | None = None
        self.loaded = False  # it has answered, so the next call is computing alone

    def embed(self, texts: Sequence[str], seconds: float) -> Vectors:
        """Vectors of the texts. Raises what the embedder raised; ProviderError `embedder_died` when the child died or was late."""
        child = self._started()
        timer = threading.Timer(seconds, child.process.kill)
        timer.start()
        try:
            vectors: Vectors = child.ask(list(texts))
        except ChildDied as error:
            late = not timer.is_alive()
            self.close()
            reason = f"took more than {seconds:.0f} s" if late else str(error)
            raise ProviderError(f"the embedder {self._provider!r} {reason} on {len(texts)} texts", code="embedder_died") from error
        finally:
            timer.cancel()
        self.loaded = True
        return vectors

    def close(self) -> None:
        """End the child at once; whatever it was doing is lost."""
        self.loaded = False
        if self._child is not None:
            child, self._child = self._child, None
            child.close()

    def _started(self) -> Child:
        if self._child is None:
            self._child = Child(__name__, (self._provider, self._options))
        return self._child


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
    """Embed batches of texts."""
    serve(_embedding)


def _embedding(named: tuple[str, Mapping[str, Any]]) -> Callable[[list[str]], Vectors]:
    """The function that embeds; its embedder is loaded at the first batch."""
    provider, options = named
    built = functools.cache(lambda: build("embedder", provider, options))

    return lambda texts: guarded(provider, lambda: built().embed(texts))


def guarded(provider: str, embed: Callable[[], Vectors]) -> Vectors:
    """What the embedder returns; an error that it does not foresee becomes ProviderError, so that it costs only the texts at fault."""
    try:
        return embed()
    except RagError:
        raise
    except Exception as error:
        faults.seen(error, "model.embed")
        raise ProviderError(f"the embedder {provider!r} failed: {type(error).__name__}: {error}") from error
