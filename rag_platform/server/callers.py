"""Determines the caller (by token) and the client of a protocol message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
from mcp.server.apps import EXTENSION_ID
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import CallToolResult, TextContent
from mcp_types.version import is_version_at_least

from rag_platform import access
from rag_platform.api.envelopes import failure
from rag_platform.errors import RagError
from rag_platform.observability import tracing
from rag_platform.text.encoding import encodable_json
from rag_platform.web.guards import add_log_fields

_STRUCTURED_SINCE = "2025-06-18"  # the first protocol with structured content in results
_MAX_NAME = 80


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


def refuse_scope(name: str, scope: str) -> CallToolResult | None:
    """The error result if the caller's token does not allow a tool; else None."""
    own_scope = access.current().scope
    if access.current().may(scope):
        return None
    error = RagError(
        f"{name} needs a token with the scope {scope}, this one has {own_scope}: ask the user for"
        f" another (`rag token create NAME --scope {scope}`)",
        code="insufficient_scope",
        scope=scope,
    )
    answered = failure(error)
    text = json.dumps(answered, ensure_ascii=False)
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=answered, is_error=True
    )
