"""What a server answers requests with: tools, resources, prompts, and the library they read.

Importing this module takes longer than the rest of the server's start.
"""

from __future__ import annotations

import gc
import sys
import threading
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult

from rag_platform.api.documents import hidden_by_ledger
from rag_platform.config.settings import Settings, require_usable
from rag_platform.ledger.ledger import bound_strategies
from rag_platform.observability import otlp
from rag_platform.observability.logs import setup_logging
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.preload import warm
from rag_platform.server.callers import act_for_caller, refuse_scope
from rag_platform.server.library_tools.progress import progress_of
from rag_platform.server.prompts import add_prompts
from rag_platform.server.publications import Listeners, Publications
from rag_platform.server.resources import ResourceRequests, add_resources
from rag_platform.server.tools import tools
from rag_platform.server.worker_pool import SharedQuestions
from rag_platform.storage.store import Store

if TYPE_CHECKING:
    from rag_platform.server.app import LibraryServer

# After this time a thread that computes passes the interpreter on. The default, 5 ms and five times
# for an answer, keeps the other processes waiting for their next question (2 cores, 8 clients: 1.5
# times the answers of one client; with 1 ms 1.8 times).
SWITCH_SECONDS = 0.001


def set_up_process(settings: Settings) -> None:
    """Prepare threads, logs and traces of a process that serves."""
    sys.setswitchinterval(SWITCH_SECONDS)
    setup_logging(Store.of(settings).logs_dir)
    otlp.setup(settings.observability.otlp)


class Contents:
    """The tools of a server by name, its resources and prompts, which are registered with it, and
    who hears of publications. Raises ConfigError for a strategy that cannot be used.
    """

    act_for_caller = staticmethod(act_for_caller)

    def __init__(
        self, server: LibraryServer, settings: Settings, library: Library | None = None
    ) -> None:
        store = Store.of(settings)
        require_usable(settings, bound_strategies(store))
        self.library = library or Library(settings, store, hidden_by_ledger(store))
        self._questions = SharedQuestions(self.library, settings.server.processes)
        bound = tools(self.library, settings.server, self._questions)
        self.tools = {tool.definition.name: tool for tool in bound}
        listeners = Listeners()
        self.requests = ResourceRequests(self.library, listeners, server.list_resources)
        self.publications = Publications(self.library, server.bus, listeners)
        self.ready = threading.Event()  # set once the first question has to wait for nothing
        add_resources(server, self.library)
        add_prompts(server, self.library, settings.server)

    def preload(self) -> None:
        """Load in a thread what the first question needs."""

        def load() -> None:
            try:
                warm(self.library)
            finally:
                gc.enable()
            self.ready.set()

        threading.Thread(target=load, name="rag-preload", daemon=True).start()

    async def call(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None
    ) -> CallToolResult:
        """The envelope of a call of one of the tools."""
        tool = self.tools[name]
        if (refused := refuse_scope(name, tool.scope)) is not None:
            return refused
        if context is None:
            return await tool.run(arguments, None)
        return await tool.run(arguments, str(context.request_id), progress_of(context))

    def close(self) -> None:
        """End the processes and close the releases."""
        self._questions.close()
        self.library.close()
