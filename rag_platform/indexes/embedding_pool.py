"""Child processes that embed, and pools of them that several runs share.

A pool can be started before there is anything to embed, so that models load while the process of a
job is still busy with other things.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rag_platform.config.ingestion import EmbeddingConfig
from rag_platform.config.settings import canonical_json
from rag_platform.errors import ProviderError, RagError, says_disk_full
from rag_platform.ledger import traffic
from rag_platform.observability import faults
from rag_platform.processes.worker import Child, ChildDied, serve
from rag_platform.protocols import Vectors
from rag_platform.registry import build, provider_class, with_cache_folder

_LOAD_SECONDS = 120.0  # the longest that a model may take to load ahead
_PREPARE = None  # asks a child for its embedder's preparation of long work


class EmbeddingWorker:
    """A child process with its embedder. It starts with the first batch, and again after it died
    or lost its GPU.
    """

    def __init__(self, provider: str, options: Mapping[str, Any]) -> None:
        self._provider = provider
        self._options = dict(options)
        self._child: Child | None = None
        self.loaded = False  # it has answered, so the next call is computing alone

    def load(self, *, prepare: bool) -> None:
        """Have the embedder in memory; with `prepare` it looks for its best way first. Raises what
        `embed` raises.
        """
        if prepare:
            self._ask(_PREPARE, _LOAD_SECONDS)
        self.embed(["."], _LOAD_SECONDS)

    def embed(self, texts: Sequence[str], seconds: float) -> Vectors:
        """Vectors of the texts. Raises what the embedder raised; ProviderError `embedder_died`."""
        vectors: Vectors = self._ask(list(texts), seconds)
        self.loaded = True
        return vectors

    def start(self) -> Child:
        """The child, started if there is none."""
        if self._child is None:
            self._child = Child(__name__, (self._provider, self._options, traffic.get_used()))
        return self._child

    def close(self) -> None:
        """End the child at once; whatever it was doing is lost."""
        self.loaded = False
        if self._child is not None:
            child, self._child = self._child, None
            child.close()

    def _ask(self, texts: list[str] | None, seconds: float) -> Any:
        child = self.start()
        timer = threading.Timer(seconds, child.process.kill)
        timer.start()
        try:
            return child.ask(texts)
        except ChildDied as error:
            late = not timer.is_alive()
            self.close()
            reason = f"took more than {seconds:.0f} s" if late else str(error)
            raise ProviderError(
                f"the embedder {self._provider!r} {reason} on {len(texts or ())} texts",
                code="embedder_died",
            ) from error
        except ProviderError as error:
            if error.code == "device_lost":
                self.close()
            raise
        finally:
            timer.cancel()


class EmbeddingPool:
    """Child processes that runs share; each call borrows one."""

    def __init__(
        self, provider: str, options: Mapping[str, Any], folder: Path | None = None
    ) -> None:
        self._named = provider, options
        self._folder = folder  # where embedders may keep what every process needs
        self._workers: list[EmbeddingWorker] = []
        self._idle: queue.SimpleQueue[EmbeddingWorker] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._parts: dict[str, EmbeddingPool] = {}
        self._loading: threading.Thread | None = None
        self.closed = False

    def of(self, part: EmbeddingConfig) -> EmbeddingPool:
        """The pool of one part of a joined embedder, which closes with this one; of an embedder
        that has no parts this one itself.
        """
        named = part.provider, part.options
        if named == self._named:
            return self
        with self._lock:
            return self._parts.setdefault(
                canonical_json(named), EmbeddingPool(*named, self._folder)
            )

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self._workers)

    def begin(self, *, prepare: bool) -> None:
        """Start one process, which loads its embedder now and is idle afterwards."""
        worker = self._new_worker()
        worker.start()
        self._workers.append(worker)

        def load() -> None:
            # whoever embeds with it first learns what is wrong
            with contextlib.suppress(Exception):
                worker.load(prepare=prepare)
            self._idle.put(worker)

        self._loading = threading.Thread(target=load, daemon=True)
        self._loading.start()

    def wait(self) -> None:
        """Return when what was begun is loaded: other processes find what it left in the folder."""
        if self._loading is not None:
            self._loading.join()

    def grow(self, count: int) -> None:
        """Provide at least `count` processes; each starts with its first batch."""
        with self._lock:
            while len(self._workers) < count:
                self._workers.append(self._new_worker())
                self._idle.put(self._workers[-1])

    def _new_worker(self) -> EmbeddingWorker:
        provider, options = self._named
        return EmbeddingWorker(provider, with_cache_folder(provider, options, self._folder))

    @contextlib.contextmanager
    def worker(self) -> Iterator[EmbeddingWorker]:
        """A process for the length of the block, used by nobody else; waits until one is free."""
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


# --- pools that were begun ahead ----------------------------------------------------------------

_begun: dict[str, EmbeddingPool] = {}


def begin_pool(embedding: EmbeddingConfig, folder: Path) -> EmbeddingPool:
    """Start a pool; the next `take_pool` for the same embedder gets it."""
    pool = EmbeddingPool(embedding.provider, embedding.options, folder)
    return _begun.setdefault(_key(embedding, folder), pool)


def take_pool(embedding: EmbeddingConfig, folder: Path) -> EmbeddingPool:
    """The pool that was started for the embedder, else a new one. The caller closes it."""
    pool = _begun.pop(_key(embedding, folder), None)
    return pool or EmbeddingPool(embedding.provider, embedding.options, folder)


def close_begun() -> None:
    """Close the pools that nobody took."""
    while _begun:
        _begun.popitem()[1].close()


def _key(embedding: EmbeddingConfig, folder: Path) -> str:
    return canonical_json([embedding.provider, embedding.options, str(folder)])


# --- how an embedder is built -------------------------------------------------------------------


def parts(embedding: EmbeddingConfig) -> list[EmbeddingConfig]:
    """The config of each embedder that is really called: the parts of a joined one, else itself."""
    parts_of = getattr(provider_class("embedder", embedding.provider), "parts_of", None)
    if parts_of is None:
        return [embedding]
    return [
        embedding.model_copy(update={"provider": name, "options": options})
        for name, options in parts_of(embedding.options)
    ]


# --- in the child -------------------------------------------------------------------------------


def main() -> None:
    """Embed batches of texts."""
    serve(_embedding)


def _embedding(
    given: tuple[str, Mapping[str, Any], traffic.Used | None],
) -> Callable[[list[str] | None], Any]:
    """The function that embeds; its embedder is loaded at the first batch."""
    provider, options, limits = given
    if limits is not None:
        traffic.use(*limits)
    built = functools.cache(lambda: build("embedder", provider, options))

    def answer(texts: list[str] | None) -> Any:
        if texts is _PREPARE:
            return getattr(built(), "prepare", lambda: None)()
        return built().embed(texts)

    return lambda texts: guard(provider, lambda: answer(texts))


def guard(provider: str, embed: Callable[[], Any]) -> Any:
    """What the embedder returns; an error that it does not foresee becomes ProviderError, but for
    that of a full disk.
    """
    try:
        return embed()
    except RagError:
        raise
    except Exception as error:
        if says_disk_full(error):
            raise
        faults.report(error, "model.embed")
        raise ProviderError(
            f"the embedder {provider!r} failed: {type(error).__name__}: {error}"
        ) from error
