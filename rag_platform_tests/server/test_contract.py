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
import pytest
from mcp import Client
from pydantic import TypeAdapter

from rag_platform.config.settings import Change, ServerSettings, Settings
from rag_platform.contract import schema
from rag_platform.server.app import build_server
from rag_platform.server.contents import SPECS
from rag_platform.server.library_tools.definition import tidy
from rag_platform.text.tokens import counter

SNAPSHOT = Path(__file__).with_name("contract.json")


DATA: dict[str, Any] = {
    "library_query": schema.AnswerData,
    "library_get_document": schema.DocumentData,
    "library_get_chunk": schema.ChunkData,
    "library_summarize_document": schema.SummaryData,
    "library_list_documents": schema.BriefDocumentsData,
    "library_list_collections": schema.CollectionsData,
    "library_query_assets": schema.AssetsData,
    "library_status": schema.StatusData,
    "library_verify": schema.ProofData,
    "library_expect": schema.ExpectationsData,
    "library_ingest": schema.JobData,
    "library_get_job": schema.JobData,
    "library_cancel_job": schema.JobData,
    "library_delete_document": schema.DeletionData,
}


def output_schema(data: Any) -> Any:
    """The JSON schema of the structured content of a tool: its data without the text before it."""
    found = tidy(TypeAdapter(data).json_schema(mode="serialization"))
    found["properties"].pop("markdown", None)
    found["required"] = [name for name in found["required"] if name != "markdown"]
    return found


def contract(home: Path) -> dict[str, Any]:
    """Everything a client can list."""

    async def run() -> dict[str, Any]:
        server = ServerSettings(allow=("ingest", "delete", "expect"))
        async with Client(build_server(Settings(home=home, server=server))) as client:
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
        for item in listed:
            item["data"] = output_schema(DATA[item["name"]])
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
        assert len(tool["description"]) < 700, name
        assert tool["inputSchema"]["additionalProperties"] is False
        for argument, field in tool["inputSchema"]["properties"].items():
            assert field["description"], (name, argument)


def test_what_a_tool_changes_is_annotated_and_allowed(tmp_path: Path) -> None:
    tools = contract(tmp_path)["tools"]
    hints = {name: tool["annotations"] for name, tool in tools.items()}
    changing = {name for name, hint in hints.items() if not hint["readOnlyHint"]}
    assert changing == {f"library_{spec.name}" for spec in SPECS if spec.scope != "read"}
    assert changing == {f"library_{spec.name}" for spec in SPECS if spec.allowed_by}
    assert {name for name in changing if hints[name]["destructiveHint"]} == {
        "library_delete_document",
        "library_cancel_job",
    }
    assert {name for name in changing if hints[name]["openWorldHint"]} == {"library_ingest"}
    assert {spec.name: spec.scope for spec in SPECS if spec.scope != "read"} == {
        "ingest": "write",
        "cancel_job": "write",
        "expect": "write",
        "delete_document": "admin",
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the tokenizer
def test_listing_the_tools_costs_a_client_little(tmp_path: Path) -> None:
    """An assistant carries the whole list in every conversation."""

    async def listed(*allow: Change) -> str:
        settings = Settings(home=tmp_path, server=ServerSettings(allow=allow))
        async with Client(build_server(settings)) as client:
            found = await client.list_tools()
        return found.model_dump_json(by_alias=True, exclude_none=True)

    count = counter("o200k_base")
    assert count(anyio.run(listed)) <= 2400
    assert count(anyio.run(listed, "ingest", "delete", "expect")) <= 3000


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
