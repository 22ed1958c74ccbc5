"""The public contract as clients see it: names, schemas and annotations equal the reviewed snapshot
`contract.json`.

A change that is meant: run this file as a program (`make golden` does), which rewrites the snapshot
and prints what changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from rag_platform.config.settings import Settings
from rag_platform.server.app import build_server

SNAPSHOT = Path(__file__).with_name("contract.json")


def contract(home: Path) -> dict[str, Any]:
    """Everything a client can list."""

    async def run() -> dict[str, Any]:
        async with Client(build_server(Settings(home=home))) as client:
            listed = [
                item.model_dump(mode="json", by_alias=True, exclude_none=True)
                for item in (await client.list_tools()).tools
            ]
            templates = [
                item.model_dump(mode="json", by_alias=True, exclude_none=True)
                for item in (await client.list_resource_templates()).resource_templates
            ]
            prompts = [
                item.model_dump(mode="json", by_alias=True, exclude_none=True)
                for item in (await client.list_prompts()).prompts
            ]
        return {
            "tools": {item.pop("name"): item for item in listed},
            "resource_templates": templates,
            "prompts": prompts,
        }

    return anyio.run(run)


def test_contract_equals_its_snapshot(tmp_path: Path) -> None:
    assert contract(tmp_path) == json.loads(SNAPSHOT.read_text(encoding="utf-8")), (
        "run `make golden` if the change is meant, and review it"
    )


def test_tools_are_described_for_assistants(tmp_path: Path) -> None:
    for name, tool in contract(tmp_path)["tools"].items():
        assert len(tool["description"]) < 700 and tool["annotations"]["readOnlyHint"], name
        assert tool["inputSchema"]["additionalProperties"] is False
        for argument, schema in tool["inputSchema"]["properties"].items():
            assert schema["description"], (name, argument)


def test_listing_the_tools_costs_a_client_little(tmp_path: Path) -> None:
    """An assistant carries names, descriptions and input schemas in every conversation."""
    shown = {
        name: [tool["description"], tool["inputSchema"]]
        for name, tool in contract(tmp_path)["tools"].items()
    }
    assert len(json.dumps(shown)) < 9000


if __name__ == "__main__":
    before = (
        json.loads(SNAPSHOT.read_text(encoding="utf-8")) if SNAPSHOT.is_file() else {"tools": {}}
    )
    after = contract(Path("unused"))
    SNAPSHOT.write_text(
        json.dumps(after, ensure_ascii=False, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )
    for tool_name in sorted({*before["tools"], *after["tools"]}):
        if before["tools"].get(tool_name) != after["tools"].get(tool_name):
            sys.stderr.write(f"changed: {tool_name}\n")
