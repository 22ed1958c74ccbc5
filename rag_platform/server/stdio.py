"""A stdio transport that answers invalid lines with an error.

The SDK drops a line that is not a valid message, and its client waits forever. Such lines occur,
for example when a model cuts an emoji in two, which strict JSON parsers refuse.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from rag_platform.text.encoding import encodable_json


@asynccontextmanager
async def readable_stdio() -> AsyncIterator[tuple[Any, Any]]:
    """The streams of `stdio_server`; the first one yields only valid messages."""
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        send, receive = create_context_streams[SessionMessage | Exception](0)

        async def pass_on() -> None:
            async with send:
                async for item in read:
                    message = reparse(item) if isinstance(item, Exception) else item
                    if isinstance(message, JSONRPCError):
                        await write.send(SessionMessage(message))
                    else:
                        await send.send(message)

        tasks.start_soon(pass_on)
        yield receive, write
        tasks.cancel_scope.cancel()


def reparse(error: Exception) -> SessionMessage | JSONRPCError:
    """The message of a rejected line after removing lone surrogates; if it is still invalid the
    error to answer with, under the message's id if it has one.
    """
    found: Any = None
    with suppress(ValueError, RecursionError):
        found = _parse_rejected(error)
        message = jsonrpc_message_adapter.validate_python(encodable_json(found), by_name=False)
        return SessionMessage(message)
    number = found.get("id") if isinstance(found, dict) else None
    return JSONRPCError(
        jsonrpc="2.0",
        id=number if isinstance(number, (int, str)) else None,
        error=ErrorData(
            code=PARSE_ERROR,
            message="the line is no message of the protocol: JSON that is invalid, nested too"
            " deeply, or without the fields of a JSON-RPC message",
        ),
    )


def _parse_rejected(error: Exception) -> Any:
    """The JSON value of a rejected line. Raises ValueError or RecursionError if it is not JSON."""
    if not isinstance(error, ValidationError):
        raise ValueError("not what a parser raises")
    for part in error.errors():
        if part["type"] == "json_invalid":
            return json.loads(part["input"])
        if isinstance(part["input"], dict) and "id" in part["input"]:
            return part["input"]  # of the whole message, where a field is missing
    raise ValueError("no object")
