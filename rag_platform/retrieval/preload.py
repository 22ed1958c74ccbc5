"""Loads what the first question needs."""

from __future__ import annotations

import gc
import logging
import time

from rag_platform.config.ingestion import EmbeddingConfig
from rag_platform.config.settings import Strategy
from rag_platform.errors import RagError
from rag_platform.observability import faults
from rag_platform.releases.release_store import manifest_of
from rag_platform.retrieval.constants import PATIENCE_SECONDS, QUIET_SECONDS
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import choose_namespaces

log = logging.getLogger(__name__)


def import_embedder(library: Library) -> None:
    """Build the embedder that `warm` loads first, in parallel with the imports of other threads.
    Errors are left to `warm`.
    """
    with faults.Attempt("warming", logs_dir=library.store.logs_dir):
        if (embedding := _embedding(library, _choose(library))) is not None:
            library.models.provider("embedder", embedding)


def warm(library: Library, namespace: str = "", *, at_once: bool = False) -> None:
    """Open the release of a namespace, by default that of a question without one, and load
    everything that its first query needs.

    Word models are loaded once no question has run for a while, or `at_once`. Errors are logged and
    left to the first query, which reports them.
    """
    namespace = _choose(library, namespace)
    with faults.Attempt("warming", logs_dir=library.store.logs_dir) as attempt:
        # first, since it takes longest and releases the interpreter's lock
        if (embedding := _embedding(library, namespace)) is not None:
            library.query_vector(embedding, "warm up")
        with library.lease(namespace) as lease:
            if lease.release.lexical is not None:
                lease.release.lexical.search("warm up", 1)
            if lease.release.dense is not None:
                lease.release.dense.prepare()
            strategy, chinese = library.query_strategy(lease), lease.holds_language("zh")
            library.config_id(strategy)
            library.providers(lease, strategy)  # imports them
        # these objects stay; scanning them for garbage took 0.1 s of every hundredth question (2
        # cores, busy)
        gc.freeze()
        gc.enable()
        if not at_once:
            _wait_for_idleness(library)
        from rag_platform.query import analysis  # late, so as not to delay the embedder

        analysis.warm_up(library.settings.limits, strategy.query, chinese=chinese)
        with library.lease(namespace) as lease:
            if lease.release.lexical is not None:
                lease.names().find_mentions("预热" if chinese else "warm up")
        gc.freeze()
    if isinstance(attempt.error, RagError):
        log.info("nothing preloaded from library %s: %s", namespace, attempt.error)
    elif attempt.error is not None:
        log.warning(
            "preloading library %s failed (%s); its first question loads what it needs",
            namespace,
            faults.describe(attempt.error),
        )


def _choose(library: Library, namespace: str = "") -> str:
    """The namespace to warm, a published one if there is any."""
    published = library.namespaces()
    namespace = namespace or choose_namespaces(library)[0]
    return published[0] if published and namespace not in published else namespace


def _embedding(library: Library, namespace: str) -> EmbeddingConfig | None:
    """The embedding of the published release, None where it has no vectors."""
    manifest = manifest_of(library.store, namespace, library.current(namespace), ())
    strategy = Strategy.model_validate(manifest.strategy_config)
    return strategy.embedding if strategy.builds_dense else None


def _wait_for_idleness(library: Library) -> None:
    """Wait until no question has run for a while, as loading would slow it down on few cores."""
    began = quiet = time.monotonic()
    while (now := time.monotonic()) < min(quiet + QUIET_SECONDS, began + PATIENCE_SECONDS):
        time.sleep(0.05)
        quiet = now if library.load.running else quiet
