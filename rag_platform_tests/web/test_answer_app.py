"""The view of an answer in a client that shows MCP Apps: what it is offered, and a walk in a page
that speaks the protocol of hosts.

With RAG_APP_HOST, a script whose `openApp` is made of the official host library, the walk goes
through that.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pymupdf
import pytest
from mcp import Client
from mcp.client.extension import advertise
from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID

from rag_platform.server.app import build_server

VIEW = "ui://library/answer.html"
HOST = """
window.openApp = (html, csp, tool, input, result, locale, theme) => {
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-scripts";
  frame.csp = csp;
  frame.style.width = "100%";
  document.body.append(frame);
  const send = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
  addEventListener("message", async ({ source, data }) => {
    if (source !== frame.contentWindow) return;
    const { id, method, params } = data;
    if (method === "ui/initialize") {
      window.appInfo = params.appInfo;
      send({ id, result: {
        protocolVersion: params.protocolVersion, hostInfo: { name: "page", version: "1" },
        hostCapabilities: { serverTools: {} }, hostContext: { theme, locale, toolInfo: { tool } },
      } });
    } else if (method === "ui/notifications/initialized") {
      send({ method: "ui/notifications/tool-input", params: { arguments: input } });
      send({ method: "ui/notifications/tool-result", params: result });
    } else if (method === "ui/notifications/size-changed") {
      frame.style.height = `${params.height}px`;
    } else if (method === "tools/call") {
      send({ id, result: await window.callTool(params.name, params.arguments) });
    }
  });
  frame.srcdoc = html;
};
"""
# what a host puts around an app that names no domains
CSP = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
HOSTILE = "<img src=x onerror=document.title='broken'><svg onload=document.title='broken'></svg>"


def talk(shelf: Any, conversation: Callable[[Client], Awaitable[Any]], *, apps: bool = True) -> Any:
    """What a conversation came to with a client that shows apps, or does not."""
    extensions = [advertise(EXTENSION_ID, {"mimeTypes": [APP_MIME_TYPE]})] if apps else []

    async def run() -> Any:
        server = build_server(shelf.settings, shelf.library())
        async with Client(server, extensions=extensions) as client:
            return await conversation(client)

    return anyio.run(run)


async def offer(client: Client) -> tuple[dict[str, Any], list[str]]:
    tools = {tool.name: (tool.meta or {}).get("ui") for tool in (await client.list_tools()).tools}
    resources = [str(it.uri) for it in (await client.list_resources()).resources]
    return tools, [uri for uri in resources if uri.startswith("ui:")]


async def read_view(client: Client) -> Any:
    return (await client.read_resource(VIEW)).contents[0]


def test_the_view_is_offered_to_clients_that_show_apps(read_only_shelf: Any) -> None:
    tools, views = talk(read_only_shelf, offer)
    assert tools.pop("library_query") == {"resourceUri": VIEW}
    assert tools.pop("library_show_source") == {"visibility": ["app"]}
    assert (set(tools.values()), views) == ({None}, [VIEW])
    tools, views = talk(read_only_shelf, offer, apps=False)
    assert (set(tools.values()), views) == ({None}, [])
    assert "library_query" in tools and "library_show_source" not in tools


def test_the_view_loads_nothing_and_runs_its_own_script_alone(read_only_shelf: Any) -> None:
    view = talk(read_only_shelf, read_view)
    assert view.mime_type == APP_MIME_TYPE
    hashes = {
        name: base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        for name in ("script", "style")
        if (found := re.search(f"<{name}>(.*?)</{name}>", view.text, re.DOTALL))
    }
    policy = (
        f"default-src 'none'; script-src 'sha256-{hashes['script']}';"
        f" style-src 'sha256-{hashes['style']}'; img-src data:"
    )
    assert f'content="{policy}"' in view.text, "put these hashes into answer_app.html"
    addresses = set(re.findall(r"https?://[^\"']+", view.text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not fetched


@pytest.mark.e2e
def test_a_walk_through_the_view(shelf: Any, tmp_path: Path, chromium: Any) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 100), "Belts")
        page.insert_text((72, 140), "The belt module carries parcels of at most 35 kg.")
        document.save(docs / "belts.pdf")
    text = f"# Parcels 𝄞\n\n𝄞 The belt module stops for {HOSTILE} parcels above 35 kg.\n"
    (docs / "rules.md").write_text(text, encoding="utf-8")
    shelf.ingest(docs)
    asked = {"query": "At most how many kg does the belt module carry?"}

    async def ask(client: Client) -> Any:
        answered = await client.call_tool("library_query", asked)
        tools = (await client.list_tools()).tools
        (tool,) = (it for it in tools if it.name == "library_query")
        return [plain(it) for it in (answered, tool)]

    def plain(found: Any) -> Any:
        return json.loads(found.model_dump_json(by_alias=True, exclude_none=True))

    def call_tool(name: str, arguments: dict[str, Any]) -> Any:
        with ThreadPoolExecutor(1) as other:  # playwright has the loop of this thread
            call = other.submit(talk, shelf, lambda client: client.call_tool(name, arguments))
            return plain(call.result())

    with ThreadPoolExecutor(1) as other:
        answered, tool = other.submit(talk, shelf, ask).result()
        html = other.submit(talk, shelf, read_view).result().text
    rows = answered["structuredContent"]["data"]["results"]
    assert {row["doc_id"].split("-")[0] for row in rows} == {"belts", "rules"}

    window = chromium.new_page(viewport={"width": 720, "height": 900})
    problems: list[str] = []
    requests: list[str] = []
    window.on("console", lambda said: said.type == "debug" or problems.append(said.text))
    window.on("pageerror", lambda error: problems.append(str(error)))
    window.on("request", lambda sent: requests.append(sent.url))
    window.expose_function("callTool", call_tool)
    host = os.environ.get("RAG_APP_HOST")
    window.add_script_tag(content=Path(host).read_text(encoding="utf-8") if host else HOST)
    window.evaluate(
        "(given) => openApp(...given)", [html, CSP, tool, asked, answered, "zh-CN", "light"]
    )
    view = window.frame_locator("iframe")
    view.locator("main > p", has_text="35 kg").first.wait_for()
    assert view.locator("h2").first.inner_text() == "来源"
    view.get_by_role("button", name="[1]", exact=True).first.click()
    assert view.locator("blockquote mark").first.inner_text()
    for button in view.get_by_role("button", name="docs").all():
        if button.get_attribute("aria-expanded") == "false":
            button.click()
    assert any(HOSTILE in text for text in view.locator("blockquote").all_inner_texts())
    view.get_by_role("button", name="显示页面").click()
    figure = view.locator("figure")
    figure.wait_for()
    assert figure.locator("img").evaluate(
        "(image) => image.decode().then(() => image.naturalWidth)"
    )
    cited = figure.locator(".cited").first.bounding_box()
    around = figure.bounding_box()
    assert cited and around
    if kept := os.environ.get("RAG_APP_PICTURE"):
        window.screenshot(path=kept, full_page=True)
    assert 135 < (cited["y"] + cited["height"] - around["y"]) * 842 / around["height"] < 150
    assert view.locator("img").count() == 1 and view.locator("script").count() == 1
    assert "broken" not in window.title()
    assert [url for url in requests if not url.startswith(("data:", "about:"))] == []
    assert problems == []
