"""The MCP server: reads the published releases of one data root, on standard input and output.

Starting it loads the protocol and nothing else; indexes and the embedder are loaded beside it in a thread, so that the first question
finds them ready. stdout belongs to the protocol: the SDK points file descriptor 1 at stderr while it serves, logs go to stderr and `logs/`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import MCPServer

from rag_platform.config import Settings
from rag_platform.observability.logs import setup_logging
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.reading import hidden_by_ledger
from rag_platform.retrieval.status import app_version
from rag_platform.retrieval.warming import warm
from rag_platform.server.resources import add_resources
from rag_platform.server.sharing import SharedQuestions
from rag_platform.server.tools import tools
from rag_platform.store import Store

# A thread that computes lets go of the interpreter after so long. By default after 5 ms, five times on the way of an answer: meanwhile the
# processes that questions are shared with waited for their next one (2 cores, 8 clients: 1.5 times the answers of one client, so 1.8).
SWITCH_SECONDS = 0.001

INSTRUCTIONS = """The user's own document library. For questions about the user's documents, projects, manuals or notes call {query} first \
and answer from its passages, citing them as [n]; a citation's doc_id and chunk_id lead to the exact source. {list} shows what is there, \
{read} reads a document."""


def build_server(settings: Settings, library: Library | None = None, *, preload: bool = False) -> MCPServer[Any]:
    """The server over a data root; with `preload`, the default namespace is opened beside it once it runs."""
    store = Store(settings.home)
    library = library or Library(settings, store, hidden_by_ledger(store))
    questions = SharedQuestions(library, settings.server.processes)
    registered = tools(library, settings.server, questions)
    names = {item.name.replace("library_", "library.").removeprefix("library."): item.name for item in registered}

    @asynccontextmanager
    async def lifespan(server: MCPServer[Any]) -> AsyncIterator[None]:
        if preload:
            threading.Thread(target=warm, args=(library,), name="rag-preload", daemon=True).start()
        try:
            yield None
        finally:
            questions.close()
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


def serve_stdio(settings: Settings) -> None:
    """Answer on standard input and output until the client closes them."""
    sys.setswitchinterval(SWITCH_SECONDS)
    setup_logging(Store(settings.home).logs_dir)
    build_server(settings, preload=True).run("stdio")
