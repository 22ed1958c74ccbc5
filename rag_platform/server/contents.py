"""The contents of a server: tools, resources, prompts, and the library that they read.

This module is imported after the handshake, as that takes longer than the rest of the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import anyio.from_thread
import orjson
from mcp.server import MCPServer
from mcp.server.apps import EXTENSION_ID
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import CallToolResult
from mcp_types.version import is_version_at_least

from rag_platform import access
from rag_platform.api.envelopes import failure
from rag_platform.config.settings import ServerSettings, tool_name
from rag_platform.errors import NotFoundError, RagError, did_you_mean
from rag_platform.observability import tracing
from rag_platform.releases.servers import following
from rag_platform.retrieval.library import Library
from rag_platform.server.library_tools import proving, querying, reading, writing
from rag_platform.server.library_tools.definition import (
    Call,
    LibraryTool,
    OnProgress,
    ToolSpec,
    error_result,
    trace_failure,
)
from rag_platform.server.prompts import add_prompts
from rag_platform.server.resources import Listeners, Publications, ResourceRequests, add_resources
from rag_platform.server.worker_pool import QueryPool
from rag_platform.text.encoding import encodable_json
from rag_platform.text.wording import shorten
from rag_platform.web.guards import add_log_fields

_STRUCTURED_SINCE = "2025-06-18"  # the first protocol with structured content in results
_MAX_NAME = 80  # characters of names in traces

SPECS: tuple[ToolSpec, ...] = (
    *querying.TOOLS,
    *reading.TOOLS,
    *proving.TOOLS,
    *writing.TOOLS,
    *reading.VIEW_TOOLS,
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


async def act_for_caller(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Handle a message as the caller whose token it carries; traces record the client."""
    scope = ctx.request.scope if ctx.request is not None else {}
    caller = scope.get("caller", access.OWNER)
    params = drop_lone_surrogates(ctx.params or {})
    is_tool_call = ctx.method == "tools/call"
    tool = str(params.get("name", ""))[:_MAX_NAME] if is_tool_call else ""
    info = ctx.session.client_params
    client = tracing.Client(
        door="stdio" if ctx.request is None else "http",
        name=info.client_info.name[:_MAX_NAME] if info else "",
        version=info.client_info.version[:_MAX_NAME] if info else "",
        client_level=client_level(ctx),
        tool=tool,
        token_id=caller.token_id,
    )
    arguments = params.get("arguments") if is_tool_call else None
    add_log_fields(scope, mcp_method=ctx.method, tool=tool, client=client.name, arguments=arguments)
    with access.acting_for(caller), tracing.for_client(client):
        return await call_next(replace(ctx, params=params) if ctx.params else ctx)


def drop_lone_surrogates(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters without lone surrogates, which JSON over HTTP can contain."""
    try:
        orjson.dumps(params)
    except TypeError:  # also for a number above 64 bits, which is kept
        with suppress(ValueError, RecursionError):
            changed: Mapping[str, Any] = encodable_json(params)
            return changed
    return params


def client_level(context: ServerRequestContext[Any, Any]) -> str:
    """L0: protocol without structured content; L2: client that reads resources or shows apps; else
    L1.
    """
    if not is_version_at_least(context.protocol_version, _STRUCTURED_SINCE):
        return "L0"
    declared = context.session.client_capabilities
    shows = declared is not None and EXTENSION_ID in (declared.extensions or {})
    return "L2" if shows or context.method.startswith("resources/") else "L1"


def refuse(name: str, specs: Mapping[str, ToolSpec], allow: Sequence[str]) -> RagError | None:
    """The error of a tool that does not exist, or that the caller's token or the server does not
    allow; else None.

    The token comes before the server: who lacks the scope is not told what the server allows.
    """
    caller = access.current()
    if (spec := specs.get(name)) is None:
        return NotFoundError(
            f"no tool {shorten(name, _MAX_NAME)!r}: `tools/list` names the tools"
            f"{did_you_mean(name, specs)}",
            code="unknown_tool",
        )
    if not caller.may(spec.scope):
        return RagError(
            f"{name} needs a token with the scope {spec.scope}, this one has {caller.scope}: ask"
            f" the user for another (`rag token create NAME --scope {spec.scope}`)",
            code="insufficient_scope",
            scope=spec.scope,
        )
    if spec.allowed_by and spec.allowed_by not in allow:
        option = f"--allow {','.join([*allow, spec.allowed_by])}"
        option += " --root FOLDER" if spec.allowed_by == "ingest" else ""
        return RagError(
            f"{name} is not allowed on this server: ask the user to start it with `rag serve"
            f" {option}`, or where a client starts it to run `rag mcp install --client CLIENT"
            f" {option} --write`",
            code="tool_not_allowed",
            allow=spec.allowed_by,
        )
    return None


class Contents:
    """The tools of a server by name, its resources and prompts (registered with the server), and
    the notifications about publications.
    """

    act_for_caller = staticmethod(act_for_caller)

    def __init__(
        self,
        server: MCPServer[Any],
        bus: SubscriptionBus,
        settings: ServerSettings,
        library: Library,
    ) -> None:
        self.library = library
        self._questions = QueryPool(library, settings.processes)
        self.tools = {it.definition.name: it for it in tools(library, settings, self._questions)}
        self._specs = {tool_name(settings, spec.name): spec for spec in SPECS}
        listeners = Listeners()
        self.requests = ResourceRequests(library, listeners, server.list_resources)
        self._publications = Publications(library, bus, listeners)
        add_resources(server, library)
        add_prompts(server, library, settings)

    async def call(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None
    ) -> CallToolResult:
        """Call a tool for the current caller."""
        request_id = str(context.request_id) if context else None
        if (refused := refuse(name, self._specs, self.library.settings.server.allow)) is not None:
            known = name if name in self._specs else "unknown"
            with tracing.for_request(request_id):
                trace_id = trace_failure(known, refused, self.library.store.logs_dir)
            return error_result(failure(refused, trace_id))
        on_progress = progress_of(context) if context else None
        return await self.tools[name].run(arguments, request_id, on_progress)

    async def announce(self) -> None:
        """Follow other machines' publications, and notify clients of every publication."""
        with following(self.library.settings):
            await self._publications.announce()

    def close(self) -> None:
        """Kill the child processes and close the releases."""
        self._questions.close()
        self.library.close()
