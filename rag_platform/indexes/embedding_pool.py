"""Pools of child processes that embed, shared by several runs.

A pool can be started before there is anything to embed, so that models load while the job is busy
with other stages.
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
from rag_platform.registry import make_provider, provider_class, with_cache_folder
from rag_platform.text.wording import pluralise

_LOAD_SECONDS = 120.0  # maximum time for loading a model in advance
_PREPARE = None  # message that makes a child call its embedder's `prepare`


class EmbeddingWorker:
    """A child process with an embedder. It is started for the first batch, and again after it died
    or lost its GPU.
    """

    def __init__(self, provider: str, options: Mapping[str, Any]) -> None:
        self._provider = provider
        self._options = dict(options)
        self._child: Child | None = None
        self.loaded = False  # has answered once, so that calls no longer include loading

    def load(self, *, prepare: bool) -> None:
        """Load the embedder; with `prepare` it tunes itself first. Raises what `embed` raises."""
        if prepare:
            self._ask(_PREPARE, _LOAD_SECONDS)
        self.embed(["."], _LOAD_SECONDS)

    def embed(self, texts: Sequence[str], seconds: float) -> Vectors:
        """Vectors of the texts. Raises what the embedder raises; ProviderError `embedder_died`."""
        vectors: Vectors = self._ask(list(texts), seconds)
        self.loaded = True
        return vectors

    def start(self) -> Child:
        if self._child is None:
            self._child = Child(__name__, (self._provider, self._options, traffic.get_used()))
        return self._child

    def close(self) -> None:
        """Kill the child; a call in progress fails."""
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
                f"the embedder {self._provider!r} {reason} on"
                f" {pluralise(len(texts or ()), 'text')}",
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
        self._folder = folder  # for files that embedders share between processes
        self._workers: list[EmbeddingWorker] = []
        self._idle: queue.SimpleQueue[EmbeddingWorker] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._parts: dict[str, EmbeddingPool] = {}
        self._loading: threading.Thread | None = None
        self.closed = False

    def of(self, part: EmbeddingConfig) -> EmbeddingPool:
        """The pool of one part of a joined embedder, closed with this one, or this pool itself."""
        named = part.provider, part.options
        if named == self._named:
            return self
        with self._lock:
            return self._parts.setdefault(
                canonical_json(named), EmbeddingPool(*named, self._folder)
            )

    @property
    def size(self) -> int:
        return len(self._workers)

    def begin(self, *, prepare: bool) -> None:
        """Start one process, which loads its embedder and is idle afterwards."""
        worker = self._new_worker()
        worker.start()
        self._workers.append(worker)

        def load() -> None:
            # the first call to `embed` raises the error again
            with contextlib.suppress(Exception):
                worker.load(prepare=prepare)
            self._idle.put(worker)

        self._loading = threading.Thread(target=load, daemon=True)
        self._loading.start()

    def wait(self) -> None:
        """Wait until the process of `begin` is loaded: others then find its files in the folder."""
        if self._loading is not None:
            self._loading.join()

    def grow(self, count: int) -> None:
        """Provide at least `count` processes; each is started for its first batch."""
        with self._lock:
            while len(self._workers) < count:
                self._workers.append(self._new_worker())
                self._idle.put(self._workers[-1])

    def _new_worker(self) -> EmbeddingWorker:
        provider, options = self._named
        return EmbeddingWorker(provider, with_cache_folder(provider, options, self._folder))

    @contextlib.contextmanager
    def worker(self) -> Iterator[EmbeddingWorker]:
        """A process for exclusive use in the block; waits until one is free."""
        borrowed = self._idle.get()
        try:
            yield borrowed
        finally:
            self._idle.put(borrowed)

    def close(self) -> None:
        """Kill every process; runs in progress fail."""
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


# --- pools started in advance -------------------------------------------------------------------

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
    """Close the started pools that were not taken."""
    while _begun:
        _begun.popitem()[1].close()


def _key(embedding: EmbeddingConfig, folder: Path) -> str:
    return canonical_json([embedding.provider, embedding.options, str(folder)])


def parts(embedding: EmbeddingConfig) -> list[EmbeddingConfig]:
    """The configs of the parts of a joined embedder; of any other, its own."""
    parts_of = getattr(provider_class("embedder", embedding.provider), "parts_of", None)
    if parts_of is None:
        return [embedding]
    return [
        embedding.model_copy(update={"provider": name, "options": options})
        for name, options in parts_of(embedding.options)
    ]


# --- in the child -------------------------------------------------------------------------------


def main() -> None:
    serve(_embedding)


def _embedding(
    given: tuple[str, Mapping[str, Any], traffic.Used | None],
) -> Callable[[list[str] | None], Any]:
    """The function that embeds texts or prepares; it builds the embedder when first called."""
    provider, options, limits = given
    if limits is not None:
        traffic.use(*limits)
    built = functools.cache(lambda: make_provider("embedder", provider, options))

    def answer(texts: list[str] | None) -> Any:
        if texts is _PREPARE:
            return getattr(built(), "prepare", lambda: None)()
        return built().embed(texts)

    return lambda texts: guard(provider, lambda: answer(texts))


def guard(provider: str, embed: Callable[[], Any]) -> Any:
    """The result of `embed`; unexpected errors become ProviderErrors, unless the disk is full."""
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
