"""The contents of a server: tools, resources, prompts, and the library that they read.

This module is imported after the handshake, as that takes longer than the rest of the start.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.from_thread
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult

from rag_platform.config.settings import ServerSettings
from rag_platform.releases.following import following
from rag_platform.retrieval.library import Library
from rag_platform.server.callers import act_for_caller, refuse_scope
from rag_platform.server.library_tools import proving, querying, reading, showing, writing
from rag_platform.server.library_tools.definition import Call, LibraryTool, OnProgress, ToolSpec
from rag_platform.server.prompts import add_prompts
from rag_platform.server.publications import Listeners, Publications
from rag_platform.server.resources import ResourceRequests, add_resources
from rag_platform.server.worker_pool import QueryPool

if TYPE_CHECKING:
    from rag_platform.server.app import LibraryServer

SPECS: tuple[ToolSpec, ...] = (
    *querying.TOOLS,
    *reading.TOOLS,
    *proving.TOOLS,
    *writing.TOOLS,
    *showing.TOOLS,
)


def tools(library: Library, settings: ServerSettings, questions: QueryPool) -> list[LibraryTool]:
    """The tools that the settings allow."""
    service = Call(library, questions)
    return [
        spec.bind(service, settings)
        for spec in SPECS
        if not spec.allowed_by or spec.allowed_by in settings.allow
    ]


def progress_of(context: Context[Any, Any]) -> OnProgress:
    """A callback that sends each new state of the work to the client of a call.

    The protocol requires a growing number, but counts restart with each stage: the number sent is
    that of states, and the message has the stage's progress.
    """
    states: list[tuple[float, float, str]] = []

    def report(done: float, total: float, message: str) -> None:
        state = (done, total, message)
        if states and states[-1] == state:
            return
        states.append(state)
        text = f"{message}: {done:.0f} of {total:.0f}" if total else message
        with suppress(Exception):  # the client is gone; the work goes on
            anyio.from_thread.run(partial(context.report_progress, float(len(states)), None, text))

    return report


class Contents:
    """The tools of a server by name, its resources and prompts (registered with the server), and
    the notifications about publications.
    """

    act_for_caller = staticmethod(act_for_caller)

    def __init__(self, server: LibraryServer, settings: ServerSettings, library: Library) -> None:
        self.library = library
        self._questions = QueryPool(library, settings.processes)
        self.tools = {it.definition.name: it for it in tools(library, settings, self._questions)}
        listeners = Listeners()
        self.requests = ResourceRequests(library, listeners, server.list_resources)
        self._publications = Publications(library, server.bus, listeners)
        add_resources(server, library)
        add_prompts(server, library, settings)

    async def call(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None
    ) -> CallToolResult:
        """Call a tool for the current caller."""
        tool = self.tools[name]
        if (refused := refuse_scope(name, tool.spec.scope)) is not None:
            return refused
        if context is None:
            return await tool.run(arguments, None)
        return await tool.run(arguments, str(context.request_id), progress_of(context))

    async def announce(self) -> None:
        """Follow other machines' publications, and notify clients of every publication."""
        with following(self.library.settings):
            await self._publications.announce()

    def close(self) -> None:
        """Kill the child processes and close the releases."""
        self._questions.close()
        self.library.close()
