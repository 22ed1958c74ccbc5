"""Standard input and output as a transport that answers what it cannot read.

The SDK drops a line that is no message, and its client waits for good. Models that cut an emoji in
two, for one, make lines that strict parsers refuse.
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
    """The streams of `stdio_server`, in whose first one there are messages only."""
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        send, receive = create_context_streams[SessionMessage | Exception](0)

        async def pass_on() -> None:
            async with send:
                async for item in read:
                    message = read_again(item) if isinstance(item, Exception) else item
                    if isinstance(message, JSONRPCError):
                        await write.send(SessionMessage(message))
                    else:
                        await send.send(message)

        tasks.start_soon(pass_on)
        yield receive, write
        tasks.cancel_scope.cancel()


def read_again(error: Exception) -> SessionMessage | JSONRPCError:
    """The message of a line that could not be read, without halves of surrogate pairs; else the
    error that answers it, under its id where it has one.
    """
    found: Any = None
    with suppress(ValueError, RecursionError):
        found = _value_of(error)
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


def _value_of(error: Exception) -> Any:
    """The JSON value that was no message. Raises ValueError or RecursionError where it is none."""
    if not isinstance(error, ValidationError):
        raise ValueError("not what a parser raises")
    for part in error.errors():
        if part["type"] == "json_invalid":
            return json.loads(part["input"])
        if isinstance(part["input"], dict) and "id" in part["input"]:
            return part["input"]  # of the whole message, where a field is missing
    raise ValueError("no object")
