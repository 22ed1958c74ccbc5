"""Resources as a client meets them: what results mention can be read, lists are paged, ids are
completed, and publications are announced.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference
from PIL import Image

from rag_platform.observability import faults
from rag_platform.server import resources
from rag_platform.server.app import build_server
from rag_platform_tests.server.announcements import Listener


def talk(shelf: Any, conversation: Callable[[Client], Awaitable[Any]], **options: Any) -> Any:
    """What a conversation with a server over the shelf came to."""

    async def run() -> Any:
        async with Client(build_server(shelf.settings, shelf.library()), **options) as client:
            return await conversation(client)

    return anyio.run(run)


@pytest.fixture
def lamps(shelf: Any, tmp_path: Path) -> Any:
    """A shelf with five notes, each with a picture of its own."""
    for number in range(5):
        picture = f"{number}.png"
        Image.new("RGB", (200, 200), (40 * number, 30, 30)).save(tmp_path / picture)
        text = f"# Lamp {number}\n\nIt burns for {number + 40} hours.\n\n![lamp]({picture})\n"
        (tmp_path / f"lamp{number}.md").write_text(text, encoding="utf-8")
    shelf.ingest(*sorted(tmp_path.glob("*.md")), tags=("lamps", "house"))
    return shelf


def test_every_uri_of_a_result_can_be_read(lamps: Any) -> None:
    async def conversation(client: Client) -> int:
        read = 0
        for question in ("How long does lamp 3 burn?", "lamp", "灯"):
            for detail in ("full", "brief"):
                arguments = {"query": question, "detail": detail}
                result = await client.call_tool("library_query", arguments)
                rows = result.structured_content["data"]["results"]
                links = [str(block.uri) for block in result.content if block.type != "text"]
                uris = {row["uri"] for row in rows}
                uris |= {uri for row in rows for uri in row.get("asset_uris", ())}
                uris |= {f"doc://{row['doc_id']}" for row in rows}
                assert set(links) <= uris and all(
                    row["uri"] in result.content[0].text for row in rows
                )
                for uri in uris:
                    [content] = (await client.read_resource(uri)).contents
                    picture = uri.startswith("asset://")
                    assert content.mime_type == ("image/png" if picture else "text/markdown")
                    read += 1
        return read

    assert talk(lamps, conversation) >= 30


@pytest.mark.parametrize(
    "uri",
    [
        "doc://no",
        "chunk://chk_no",
        "asset://no",
        "asset://../../ledger.sqlite",
        "file:///etc/passwd",
    ],
)
def test_what_is_not_published_cannot_be_read(lamps: Any, uri: str) -> None:
    async def conversation(client: Client) -> None:
        with pytest.raises(MCPError):
            await client.read_resource(uri)

    talk(lamps, conversation)
    assert faults.summary(lamps.store.logs_dir) == {}  # the error is the client's


def test_documents_are_listed_page_by_page(lamps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "PAGE", 2)

    async def conversation(client: Client) -> list[str]:
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await client.list_resources(cursor=cursor)
            found += [item.name for item in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                return found

    names = talk(lamps, conversation)
    assert sorted(names) == [f"files/lamp{number}.md" for number in range(5)]
    deleted = lamps.ledger.documents("default")[0]
    lamps.ledger.delete("default", deleted.doc_id, None, "soft")
    assert len(talk(lamps, conversation)) == 4


def test_ids_tags_and_libraries_are_completed(lamps: Any) -> None:
    document = ResourceTemplateReference(type="ref/resource", uri="doc://{doc_id}")
    chunk = ResourceTemplateReference(type="ref/resource", uri="chunk://{chunk_id}")
    prompt = PromptReference(type="ref/prompt", name="explore_collection")

    async def conversation(client: Client) -> None:
        async def values(ref: Any, name: str, value: str) -> list[str]:
            argument = {"name": name, "value": value}
            return list((await client.complete(ref, argument)).completion.values)

        assert len(await values(document, "doc_id", "lamp")) == 5
        assert len(await values(document, "doc_id", "lamp3")) == 1
        assert await values(prompt, "tag", "h") == ["house"]
        assert await values(prompt, "collection", "") == ["default"]
        assert await values(chunk, "chunk_id", "chk") == []
        found = await client.call_tool("library_query", {"query": "lamp 3"})
        chunk_id = found.structured_content["data"]["results"][0]["uri"][8:]
        assert await values(chunk, "chunk_id", chunk_id[:12]) == [chunk_id]
        assert await values(document, "nothing", "x") == []

    talk(lamps, conversation)


def test_prompts_say_what_to_do(shelf: Any, tmp_path: Path) -> None:
    path = tmp_path / "gate.md"
    path.write_text("# Gate\n\nIt is planned.\n", encoding="utf-8")
    rejected = shelf.store.release_dir("default", shelf.ingest(path)) / "manifest.json"
    checks = rejected.read_text(encoding="utf-8").replace('"passed": true', '"passed": false', 1)
    rejected.write_text(checks, encoding="utf-8")
    path.write_text("# Gate\n\nIt closes at 22:15.\n", encoding="utf-8")
    first = shelf.ingest(path)
    path.write_text("# Gate\n\nIt closes at 23:45.\n", encoding="utf-8")
    shelf.ingest(path)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()

    async def conversation(client: Client) -> None:
        async def text(name: str, **arguments: str) -> str:
            return str((await client.get_prompt(name, arguments)).messages[0].content.text)

        changes = await text("what_changed", since=first)
        assert "changed files/gate.md" in changes and "library default" in changes
        assert "changed files/gate.md" in await text("what_changed", since=today)
        assert "cannot be told" in await text("what_changed", since="the other day")
        all_along = await text("what_changed", since="1999")
        assert f"since 1999. Release {first} is the oldest that is kept" in all_along
        assert "changed files/gate.md" in all_along
        overview = await text("explore_collection", collection="default", tag="house")
        asked = 'with {"collections": ["default"], "filter": {"tags": "house"}}'
        assert f"library_list_documents {asked}" in overview and "tagged house" in overview
        with pytest.raises(MCPError, match=r"Missing required arguments: .'since'"):
            await text("what_changed")
        with pytest.raises(MCPError, match="Unknown prompt: nothing"):
            await text("nothing")
        for name, more in (("explore_collection", {}), ("what_changed", {"since": today})):
            unknown = await text(name, collection="nope", **more)
            assert unknown.startswith("Tell the user") and "known: default" in unknown

    talk(shelf, conversation)


@pytest.mark.filterwarnings("ignore:resources.subscribe is removed")  # for clients of before
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_publication_is_announced(
    shelf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(resources, "POLL_SECONDS", 0.05)
    path = tmp_path / "gate.md"
    path.write_text("# Gate\n\nIt closes at 22:15.\n", encoding="utf-8")
    shelf.ingest(path)
    listener = Listener()

    async def conversation(client: Client) -> None:
        listed = await client.list_resources()
        uri = str(listed.resources[0].uri)
        assert client.server_capabilities.resources.list_changed
        path.write_text("# Gate\n\nIt closes at 23:45.\n", encoding="utf-8")
        await listener.hear(client, mode, uri, lambda: shelf.ingest(path), seconds=10)

    talk(shelf, conversation, message_handler=listener, mode=mode)
