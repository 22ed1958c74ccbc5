"""For whom a call is made: its scope, and how capable its client is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp import Client

from rag_platform import access
from rag_platform.access import OWNER, Caller
from rag_platform.server.app import build_server
from rag_platform.server.callers import client_level, readable


@pytest.mark.parametrize(
    ("version", "method", "extensions", "level"),
    [
        ("2024-11-05", "tools/call", None, "L0"),
        ("2025-03-26", "resources/read", None, "L0"),
        ("2025-06-18", "tools/call", None, "L1"),
        ("2025-11-25", "resources/read", None, "L2"),
        ("2026-07-28", "tools/call", {"io.modelcontextprotocol/ui": {}}, "L2"),
        ("2026-07-28", "tools/call", {"other": {}}, "L1"),
    ],
)
def test_levels_of_clients(version: str, method: str, extensions: Any, level: str) -> None:
    declared = SimpleNamespace(extensions=extensions)
    session = SimpleNamespace(client_capabilities=declared)
    context: Any = SimpleNamespace(protocol_version=version, method=method, session=session)
    assert client_level(context) == level


def test_a_scope_includes_those_before_it() -> None:
    reader = Caller(scope="read", namespaces=frozenset({"hr"}))
    assert [reader.may(scope) for scope in access.SCOPES] == [True, False, False]
    assert [OWNER.may(scope) for scope in access.SCOPES] == [True, True, True]
    assert reader.may_see("hr") and not reader.may_see("ports") and OWNER.may_see("ports")
    with access.acting_for(reader):
        assert access.current() is reader
    assert access.current() is OWNER


def test_tools_beyond_a_scope_are_neither_listed_nor_run(
    read_only_shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rag_platform.server.app.scope_of",
        lambda tool: "write" if tool.definition.name.endswith("status") else "read",
    )
    server = build_server(read_only_shelf.settings, read_only_shelf.library())

    async def run() -> None:
        names = [tool.name for tool in await server.list_tools()]
        status = next(name for name in names if name.endswith("status"))
        assert (await server.call_tool(status, {})).structured_content["ok"]
        with access.acting_for(Caller("tok_1", "read")):
            assert status not in [tool.name for tool in await server.list_tools()]
            refused = await server.call_tool(status, {})
            assert refused.is_error
            error = refused.structured_content["error"]
            assert error["code"] == "insufficient_scope" and "--scope write" in error["message"]
        async with Client(server) as client:
            assert status in [tool.name for tool in (await client.list_tools()).tools]

    anyio.run(run)


def test_halves_of_surrogate_pairs_are_dropped_from_arguments() -> None:
    plain = {"name": "query", "arguments": {"query": "port 😀", "top_k": 3}}
    assert readable(plain) is plain
    assert readable({"name": "q\ud83d", "arguments": {"\udc00": ["a\ud800b"]}}) == {
        "name": "q",
        "arguments": {"": ["ab"]},
    }
    assert readable({"n": 10**30}) == {"n": 10**30}
