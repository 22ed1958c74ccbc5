"""A caller of one library learns nothing of another one, by any tool, resource, list, completion or
subscription; and a caller of a lower scope changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceTemplateReference

from rag_platform import access
from rag_platform.access import Caller
from rag_platform.config.settings import load_settings
from rag_platform.ledger.ledger import open_ledger
from rag_platform.server.app import LibraryServer, build_server
from rag_platform.server.resources import may_subscribe
from rag_platform.storage.store import Store
from rag_platform_tests.conftest import PICTURE, Shelf, write_config

# words of the foreign library: its text, file, tag, title and job
SECRETS = ("Zephyrine", "vaultplan", "topsecret", "Moonshot", "vaultjob")
FOREIGN = """---
title: Moonshot
tags: [topsecret]
---

# Moonshot

The code name of the launch is Zephyrine.

![sketch](sketch.png)
"""
OWN = "# Leave\n\nThe code name of the canteen is Basil.\n"


class Place(NamedTuple):
    """A server over the libraries `vault` and `hr`, and what names things of `vault`."""

    server: LibraryServer
    library: Any
    named: dict[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("isolation")
    (root / "docs").mkdir()
    (root / "docs" / "vaultplan.md").write_text(FOREIGN, encoding="utf-8")
    (root / "docs" / "sketch.png").write_bytes(PICTURE)
    (root / "leave.md").write_text(OWN, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_CONFIG", str(write_config(root / "config")))
        patch.setenv("RAG_HOME", str(root / "home"))
        patch.setenv("RAG_SERVER__ALLOW", "[ingest, delete, expect]")
        for name in ("RAG_STRATEGY", "RAG_NAMESPACE"):
            patch.delenv(name, raising=False)
        settings = load_settings()
        ledger = open_ledger(Store.of(settings))
        shelf = Shelf(settings, Store(settings.home), ledger)
        shelf.ingest(root / "docs" / "vaultplan.md", namespace="vault", tags=("topsecret",))
        shelf.ingest(root / "leave.md", namespace="hr")
        library = shelf.library()
        with library.lease("vault") as lease:
            (document,) = lease.release.catalog.documents()
            (chunk_id,) = lease.release.catalog.chunk_ids("1 = 1", ())
            (link,) = lease.release.catalog.media(document.doc_id)
            release_id = lease.release_id
        named = {
            "doc_id": document.doc_id,
            "version_id": document.live_version,
            "chunk_id": chunk_id,
            "asset_ids": [link.asset_id],
            "sources": [chunk_id],
            "release": release_id,
            "job_id": ledger.add_job("ingest", "vault", {"name": "vaultjob"}).job_id,
            "query": "What is the code name of the launch?",
            "answer": "The launch has a code name [1].",
            "question": "What is the code name?",
            "case_id": "case_1",
            "confirm": "00000000",
        }
        ledger.add_job("gc", "", {"name": "vaultjob"})
        yield Place(build_server(settings, library), library, named)
        library.close()
        ledger.close()


READER = Caller("tok_1", "read", frozenset({"hr"}))
ADMIN = Caller("tok_2", "admin", frozenset({"hr"}))


def call(place: Place, caller: Caller, name: str, **arguments: Any) -> Any:
    """The result of a call for the caller."""

    async def run() -> Any:
        with access.acting_for(caller):
            return await place.server.call_tool(name, arguments)

    return anyio.run(run)


def tools(place: Place, caller: Caller) -> dict[str, Any]:
    """Input schemas of the tools that the caller has."""

    async def run() -> Any:
        with access.acting_for(caller):
            return {tool.name: tool.input_schema for tool in await place.server.list_tools()}

    return anyio.run(run)


def test_no_tool_tells_of_another_library(place: Place) -> None:
    """Every tool is called with the ids of the other library, with and without naming that."""
    asked = 0
    for name, schema in tools(place, ADMIN).items():
        properties = schema["properties"]
        given = {key: place.named[key] for key in properties if key in place.named}
        required = {key: given[key] for key in schema.get("required", [])}
        where = {"collection": "vault", "collections": ["vault"]}
        there = {key: where[key] for key in properties if key in where}
        for arguments in (required, {**required, **there}, given, {**given, **there}):
            told = call(place, ADMIN, name, **arguments)
            text = json.dumps([block.model_dump(mode="json") for block in told.content])
            text += json.dumps(told.structured_content)
            for value in given.values():  # what the caller said itself
                text = text.replace(json.dumps(value).strip('[]"'), "")
            assert not [word for word in SECRETS if word in text], (name, arguments, text)
            asked += 1
    assert asked > 40
    owners = call(place, access.OWNER, "library_query", query="code name of the launch")
    assert "Zephyrine" in owners.content[0].text


def test_jobs_of_others_are_as_if_they_were_not_there(place: Place) -> None:
    own = call(place, ADMIN, "library_get_job").structured_content["data"]["jobs"]
    everything = call(place, access.OWNER, "library_get_job").structured_content["data"]["jobs"]
    beginner = Caller("tok_4", "read", frozenset({"unpublished"}))
    assert call(place, beginner, "library_get_job").structured_content["data"]["jobs"] == []
    assert own == [] and {job["namespace"] for job in everything} == {"vault", ""}
    for job in everything:
        for tool in ("library_get_job", "library_cancel_job"):
            told = call(place, ADMIN, tool, job_id=job["job_id"]).structured_content["error"]
            missing = call(place, ADMIN, tool, job_id="job_x").structured_content["error"]
            assert told["message"].replace(job["job_id"], "job_x") == missing["message"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ingest", {"content": "x", "filename": "x.md", "collection": "vault"}),
        ("ingest", {"content": "x", "filename": "x.md", "collection": "unseen"}),
        ("delete_document", {"doc_id": "vaultplan-files", "collection": "vault"}),
        ("expect", {"action": "add", "question": "x", "refuse": True, "collection": "vault"}),
        ("query", {"query": "x", "collections": ["hr", "vault"]}),
    ],
)
def test_nothing_is_written_into_another_library(
    place: Place, tool: str, arguments: dict[str, Any]
) -> None:
    error = call(place, ADMIN, f"library_{tool}", **arguments).structured_content["error"]
    assert error["code"] == "unknown_namespace" and "known: hr" in error["message"]


def test_a_call_without_a_name_means_the_own_library(place: Place) -> None:
    assert ADMIN.default_namespace("vault") == "hr" and ADMIN.default_namespace("hr") == "hr"
    found = call(place, READER, "library_query", query="What is the code name of the canteen?")
    assert "Basil" in found.content[0].text
    listed = call(place, READER, "library_list_collections").structured_content["data"]
    assert listed["default"] == ["hr"]
    assert [it["namespace"] for it in listed["collections"]] == ["hr"]
    status = call(place, READER, "library_status").structured_content["data"]
    assert status["default_namespace"] == "hr"


def test_a_lower_scope_changes_nothing(place: Place) -> None:
    writes = {"library_ingest", "library_cancel_job", "library_expect"}
    everything = set(tools(place, ADMIN))
    assert everything - set(tools(place, READER)) == writes | {"library_delete_document"}
    writer = Caller("tok_3", "write")
    assert everything - set(tools(place, writer)) == {"library_delete_document"}
    for caller, names in ((READER, writes), (writer, {"library_delete_document"})):
        for name in names:
            error = call(place, caller, name).structured_content["error"]
            assert error["code"] == "insufficient_scope"
    settings = place.library.settings
    own = settings.model_copy(update={"server": settings.server.model_copy(update={"allow": ()})})
    read_only = place._replace(server=build_server(own, type(place.library).open(own)))
    for name in writes:  # nor is the reader told what the server allows
        error = call(read_only, READER, name).structured_content["error"]
        assert error["code"] == "insufficient_scope"


@pytest.fixture
def restricted(place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What a conversation for a reader of `hr` came to."""
    monkeypatch.setattr(access, "OWNER", READER)  # whom calls without a token are made for

    def talk(conversation: Callable[[Client], Any]) -> Any:
        async def run() -> Any:
            async with Client(build_server(place.library.settings)) as client:
                return await conversation(client)

        return anyio.run(run)

    return talk


def test_resources_and_completions_are_the_own_ones(
    place: Place, restricted: Callable[..., Any]
) -> None:
    named = place.named

    async def conversation(client: Client) -> None:
        listed = await client.list_resources()
        assert [resource.title for resource in listed.resources] == ["Leave"]
        for uri in (
            f"doc://{named['doc_id']}",
            f"chunk://{named['chunk_id']}",
            f"asset://{named['asset_ids'][0]}",
        ):
            with pytest.raises(MCPError, match="unknown_"):
                await client.read_resource(uri)
        template = ResourceTemplateReference(type="ref/resource", uri="doc://{doc_id}")
        for name, begun in (
            ("doc_id", ""),
            ("tag", ""),
            ("collection", ""),
            ("chunk_id", named["chunk_id"][:8]),
        ):
            found = await client.complete(ref=template, argument={"name": name, "value": begun})
            shown = json.dumps(found.completion.values)
            assert not [word for word in (*SECRETS, "vault", named["chunk_id"]) if word in shown]

    restricted(conversation)


def test_changes_of_others_are_not_heard_of(place: Place) -> None:
    foreign = f"doc://{place.named['doc_id']}"
    with place.library.lease("hr") as lease:
        (document,) = lease.release.catalog.documents()
    with access.acting_for(READER):
        assert may_subscribe(place.library, f"doc://{document.doc_id}")
        assert not may_subscribe(place.library, foreign)
        assert not may_subscribe(place.library, f"chunk://{place.named['chunk_id']}")
    assert may_subscribe(place.library, foreign)


def test_what_this_checks_would_be_noticed(place: Place) -> None:
    """The sweep finds the words where the guard is off."""
    everyone = Caller("tok_9", "admin", frozenset({"hr", "vault"}))
    told = call(place, everyone, "library_get_chunk", chunk_id=place.named["chunk_id"])
    assert "Zephyrine" in told.content[0].text
