"""The MCP server: reads the published releases of one data root, on standard input and output.

Starting it loads the protocol and nothing else; indexes and the embedder are loaded beside it in a thread, so that the first question
finds them ready. stdout belongs to the protocol: the SDK points file descriptor 1 at stderr while it serves, logs go to stderr and `logs/`.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import MCPServer

from rag_platform.config import Settings
from rag_platform.errors import RagError
from rag_platform.observability.logs import setup_logging
from rag_platform.retrieval import queries
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.reading import hidden_by_ledger
from rag_platform.retrieval.status import app_version
from rag_platform.server.resources import add_resources
from rag_platform.server.tools import tools
from rag_platform.store import Store

log = logging.getLogger(__name__)

_QUIET_SECONDS, _PATIENCE_SECONDS = 0.5, 10.0

INSTRUCTIONS = """The user's own document library. For questions about the user's documents, projects, manuals or notes call {query} first \
and answer from its passages, citing them as [n]; a citation's doc_id and chunk_id lead to the exact source. {list} shows what is there, \
{read} reads a document."""


def build_server(settings: Settings, library: Library | None = None, *, preload: bool = False) -> MCPServer[Any]:
    """The server over a data root; with `preload`, the default namespace is opened beside it once it runs."""
    store = Store(settings.home)
    library = library or Library(settings, store, hidden_by_ledger(store))
    registered = tools(library, settings.server)
    names = {item.name.replace("library_", "library.").removeprefix("library."): item.name for item in registered}

    @asynccontextmanager
    async def lifespan(server: MCPServer[Any]) -> AsyncIterator[None]:
        if preload:
            threading.Thread(target=warm, args=(library,), name="rag-preload", daemon=True).start()
        try:
            yield None
        finally:
            library.close()

    server: MCPServer[Any] = MCPServer(
        settings.server.name,
        title="Document library",
        instructions=INSTRUCTIONS.format(query=names["query"], list=names["list_documents"], read=names["get_document"]),
        version=app_version(),
        tools=list(registered),
        lifespan=lifespan,
        log_level="WARNING",
    )
    add_resources(server, library, names["query"])
    return server


def warm(library: Library) -> None:
    """Open the default namespace's release, or else the first one's, and load what its first query needs.

    What is missing is told by that query, not here.
    """
    namespace, published = library.settings.default_namespace, library.namespaces()
    if namespace not in published and published:
        namespace = published[0]
    try:
        with library.lease(namespace) as lease:
            if lease.release.lexical is not None:
                lease.release.lexical.search("warm up", 1)
            if lease.release.dense is not None:
                lease.release.dense.prepare()
                library.query_vector(lease.strategy.embedding, "warm up")
            strategy, chinese = library.query_strategy(lease), lease.holds("zh")
        # What is loaded now stays; looking through it for garbage took 0.1 s of every hundredth question (2 cores, busy).
        gc.freeze()
        _wait_for_idleness(library)
        queries.warm(library.settings.limits, strategy.query, chinese=chinese)
        with library.lease(namespace) as lease:
            if lease.release.lexical is not None:
                lease.names().named("预热" if chinese else "warm up")
        gc.freeze()
    except RagError as error:
        log.info("nothing preloaded from namespace %s: %s", namespace, error.message)
    except Exception:
        log.exception("preloading namespace %s failed", namespace)


def _wait_for_idleness(library: Library) -> None:
    """Until no question has run for a while: on few cores one asked at once would wait for words that it may not need."""
    began = quiet = time.monotonic()
    while (now := time.monotonic()) < min(quiet + _QUIET_SECONDS, began + _PATIENCE_SECONDS):
        time.sleep(0.05)
        quiet = now if library.load.running else quiet


def serve_stdio(settings: Settings) -> None:
    """Answer on standard input and output until the client closes them."""
    setup_logging(Store(settings.home).logs_dir)
    build_server(settings, preload=True).run("stdio")
