"""Opens what a server reads, and loads beside it what its first question needs."""

from __future__ import annotations

import gc
import sys
import threading

from rag_platform.config.settings import Settings, require_usable
from rag_platform.errors import ConfigError
from rag_platform.ledger.hiding import LedgerView
from rag_platform.ledger.ledger import bound_namespaces
from rag_platform.observability import otlp
from rag_platform.observability.logs import setup_logging
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.preload import import_embedder, warm
from rag_platform.storage.store import Store

# After this time a thread that computes passes the interpreter on. The default, 5 ms and five times
# for an answer, keeps the other processes waiting for their next question (2 cores, 8 clients: 1.5
# times the answers of one client; with 1 ms 1.8 times).
SWITCH_SECONDS = 0.001


def set_up_process(settings: Settings) -> None:
    """Prepare threads, logs and traces of a process that serves."""
    sys.setswitchinterval(SWITCH_SECONDS)
    setup_logging(Store.of(settings).logs_dir)
    otlp.setup(settings.observability.otlp)


def open_library(settings: Settings, *, preloaded: threading.Event | None = None) -> Library:
    """The library of a data root. With an event it is preloaded as well, beside the checks of the
    strategies and what the caller does next. Raises ConfigError for a strategy that cannot be used.
    """
    store = Store.of(settings)
    library = Library(settings, store, LedgerView(store))
    if preloaded is not None:
        import_embedder(library)
        preload(library, preloaded)
    try:
        require_usable(settings, bound_namespaces(store).values())
    except ConfigError:
        if preloaded is not None:
            preloaded.wait()  # a process that ends while native code loads is aborted
        raise
    return library


def preload(library: Library, ready: threading.Event) -> None:
    """Load in a thread what the first question needs; then it is `ready`."""

    def load() -> None:
        try:
            warm(library)
        finally:
            gc.enable()
        ready.set()

    threading.Thread(target=load, name="rag-preload", daemon=True).start()
