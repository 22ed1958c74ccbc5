"""For whom a call is made: its scope, and how capable its client is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rag_platform import access
from rag_platform.access import OWNER, Caller
from rag_platform.server.contents import client_level, drop_lone_surrogates


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


def test_halves_of_surrogate_pairs_are_dropped_from_arguments() -> None:
    plain = {"name": "query", "arguments": {"query": "port 😀", "top_k": 3}}
    assert drop_lone_surrogates(plain) is plain
    assert drop_lone_surrogates({"name": "q\ud83d", "arguments": {"\udc00": ["a\ud800b"]}}) == {
        "name": "q",
        "arguments": {"": ["ab"]},
    }
    assert drop_lone_surrogates({"n": 10**30}) == {"n": 10**30}
