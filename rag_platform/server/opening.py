"""Opens the library of a server, and preloads what its first question needs."""

from __future__ import annotations

import gc
import sys
import threading

from rag_platform.config.settings import Settings
from rag_platform.config.strategies import require_usable
from rag_platform.errors import ConfigError
from rag_platform.ledger.ledger import bound_namespaces
from rag_platform.observability import otlp
from rag_platform.observability.logs import setup_logging
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.preload import import_embedder, warm
from rag_platform.storage.store import Store

# The interpreter's switch interval. With the default of 5 ms, of which an answer takes five, the
# other processes wait for their next question (2 cores, 8 clients: 1.5 times the answers of one
# client; with 1 ms 1.8 times).
SWITCH_SECONDS = 0.001


def set_up_process(settings: Settings) -> None:
    """Set up threads, logs and traces of a server process."""
    sys.setswitchinterval(SWITCH_SECONDS)
    setup_logging(Store.of(settings).logs_dir)
    otlp.setup(settings.observability.otlp)


def open_library(settings: Settings, *, preloaded: threading.Event | None = None) -> Library:
    """The library of a data root. With an event it is also preloaded in a thread, which sets the
    event when done. Raises ConfigError for a strategy that cannot be used, with the
    options of ingestion if clients may ingest.
    """
    library = Library.open(settings)
    if preloaded is not None:
        import_embedder(library)
        preload(library, preloaded)
    try:
        ingests = "ingest" in settings.server.allow
        require_usable(settings, bound_namespaces(library.store).values(), ingestion=ingests)
    except ConfigError:
        if preloaded is not None:
            preloaded.wait()  # a process that ends while native code loads is aborted
        raise
    return library


def preload(library: Library, ready: threading.Event) -> None:
    """Load what the first question needs in a thread, which then sets `ready`."""

    def load() -> None:
        try:
            warm(library)
        finally:
            gc.enable()
        ready.set()

    threading.Thread(target=load, name="rag-preload", daemon=True).start()
