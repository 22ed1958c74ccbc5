"""The MCP server: reads the published releases of one data root, on standard input and output.

Starting it loads the protocol and nothing else; indexes and the embedder are loaded in a thread
meanwhile, so that the first question finds them ready. stdout belongs to the protocol: the SDK
points file descriptor 1 at stderr while it serves, logs go to stderr and `logs/`.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import anyio.to_thread
from mcp.server import MCPServer, NotificationOptions
from mcp.server.apps import client_supports_apps
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from mcp_types import (
    CallToolResult,
    CompleteRequestParams,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)
from mcp_types import Tool as Definition
from pydantic import AnyUrl

from rag_platform import access
from rag_platform.api.documents import hidden_by_ledger
from rag_platform.config.settings import Settings, require_usable
from rag_platform.ledger.ledger import bound_strategies
from rag_platform.observability import otlp, tracing
from rag_platform.observability.logs import setup_logging
from rag_platform.releases.following import following
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.preload import warm
from rag_platform.server.callers import act_for_caller, refuse_scope
from rag_platform.server.library_tools.progress import progress_of
from rag_platform.server.library_tools.showing import answer_view
from rag_platform.server.prompts import add_prompts
from rag_platform.server.publications import Listeners, Publications
from rag_platform.server.resources import ResourceRequests, add_resources, read_picture
from rag_platform.server.stdio import readable_stdio
from rag_platform.server.tools import LibraryTool, tool_name, tools
from rag_platform.server.worker_pool import SharedQuestions
from rag_platform.storage.store import Store

# After this time a thread that computes passes the interpreter on. The default, 5 ms and five times
# for an answer, keeps the other processes waiting for their next question (2 cores, 8 clients: 1.5
# times the answers of one client; with 1 ms 1.8 times).
SWITCH_SECONDS = 0.001

INSTRUCTIONS = """The user's own document library. For questions about the user's documents, \
projects, manuals or notes call {query} first and answer from its passages, citing them as [n]; \
their chunk:// links lead to the exact source. {list} shows what is there, {read} reads a \
document."""


class LibraryServer(MCPServer[Any]):
    """An MCP server with the library's tools, whose calls all answer with an envelope."""

    def __init__(self, name: str, library_tools: list[LibraryTool], **options: Any) -> None:
        middleware = [act_for_caller, self._answer_then_load]
        super().__init__(name, middleware=middleware, extensions=[answer_view()], **options)
        self._lowlevel_server.add_request_handler(
            "tools/list", PaginatedRequestParams, self._list_tools_for
        )
        self._to_load: list[Library] = []
        self._library_tools = {tool.definition.name: tool for tool in library_tools}
        self._ready = threading.Event()
        self.bus = self._subscriptions  # of clients that listen, as the protocol has it now
        self.listeners = Listeners()  # the others

    def preload_later(self, library: Library) -> None:
        """Load what the first question needs once the first message is answered: clients wait for
        that one, and the interpreter does one thing at a time.
        """
        self._to_load.append(library)

    async def _answer_then_load(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        try:
            return await call_next(ctx)
        finally:
            if self._to_load:
                self.preload(self._to_load.pop())

    def preload(self, library: Library) -> None:
        """Load in a thread what the first question needs."""

        def load() -> None:
            try:
                warm(library)
            finally:
                gc.enable()
            self._ready.set()

        threading.Thread(target=load, name="rag-preload", daemon=True).start()

    def is_ready(self) -> bool:
        """True once the first question has to wait for nothing."""
        return self._ready.is_set()

    async def run_stdio_async(self) -> None:
        """Answer on standard input and output until the client closes them."""
        async with readable_stdio() as (read, write):
            server = self._lowlevel_server
            await server.run(read, write, server.create_initialization_options())

    def answer_resources(self, library: Library) -> None:
        """Answer what the SDK leaves out: pages of resources, and subscriptions of clients before
        2026-07-28, which are told that the server announces changes.
        """
        self.library = library
        requests = ResourceRequests(library, self.listeners, self.list_resources)
        low = self._lowlevel_server
        low.add_request_handler("resources/list", PaginatedRequestParams, requests.list)
        low.add_request_handler("resources/subscribe", SubscribeRequestParams, requests.subscribe)
        low.add_request_handler(
            "resources/unsubscribe", UnsubscribeRequestParams, requests.unsubscribe
        )
        if (listening := low.get_request_handler("subscriptions/listen")) is not None:
            listen = partial(requests.listen, listening.handler)
            low.add_request_handler(
                "subscriptions/listen", SubscriptionsListenRequestParams, listen
            )
        low.add_request_handler("completion/complete", CompleteRequestParams, requests.complete)
        low.create_initialization_options = partial(  # type: ignore[method-assign]
            low.create_initialization_options, NotificationOptions(resources_changed=True)
        )

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """What a resource holds; a picture has the type of its bytes, which no template knows."""
        scheme, _, name = str(uri).partition("://")
        if scheme != "asset":
            return await super().read_resource(uri, context)
        found = await anyio.to_thread.run_sync(read_picture, self.library, name)
        return [ReadResourceContents(content=found.content, mime_type=found.mime)]

    async def list_tools(self, shows_apps: bool = False) -> list[Definition]:
        """The tools that the caller may use, as clients see them."""
        own = [tool for tool in self._library_tools.values() if access.current().may(tool.scope)]
        listed = filter(None, (tool.listed(shows_apps) for tool in own))
        return [*listed, *await super().list_tools()]

    async def _list_tools_for(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=await self.list_tools(client_supports_apps(context)))

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """The envelope of a call. Raises ToolError for a tool that does not exist."""
        tool = self._library_tools.get(name)
        if tool is None:
            return await super().call_tool(name, arguments, context)
        if (refused := refuse_scope(name, tool.scope)) is not None:
            return refused
        if context is None:
            return await tool.run(arguments, None)
        return await tool.run(arguments, str(context.request_id), progress_of(context))


def build_server(
    settings: Settings,
    library: Library | None = None,
    *,
    preload: Literal["", "at_once", "later"] = "",
) -> LibraryServer:
    """The server over a data root; with `preload`, the default namespace is opened beside it once
    it runs, or once it has answered the first message.
    """
    store = Store.of(settings)
    require_usable(settings, bound_strategies(store))
    library = library or Library(settings, store, hidden_by_ledger(store))
    questions = SharedQuestions(library, settings.server.processes)

    @asynccontextmanager
    async def lifespan(server: LibraryServer) -> AsyncIterator[None]:
        if preload == "at_once":
            server.preload(library)
        elif preload == "later":
            server.preload_later(library)
        try:
            with following(settings):
                async with Publications(library, server).announced():
                    yield None
        finally:
            questions.close()
            library.close()

    query, list_documents, get_document = (
        tool_name(settings.server, name) for name in ("query", "list_documents", "get_document")
    )
    server = LibraryServer(
        settings.server.name,
        tools(library, settings.server, questions),
        title="Document library",
        instructions=INSTRUCTIONS.format(query=query, list=list_documents, read=get_document),
        version=tracing.build_info()["app_version"],
        lifespan=lifespan,
        log_level="WARNING",
    )
    add_resources(server, library)
    server.answer_resources(library)
    add_prompts(server, library, settings.server)
    return server


def serve_stdio(settings: Settings) -> None:
    """Answer on standard input and output until the client closes them."""
    sys.setswitchinterval(SWITCH_SECONDS)
    setup_logging(Store.of(settings).logs_dir)
    otlp.setup(settings.observability.otlp)
    build_server(settings, preload="later").run("stdio")
