"""The server over HTTP: real processes on free ports, the SDK's client, and raw sockets where a
client misbehaves.
"""

from __future__ import annotations

import base64
import gzip
import importlib
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from PIL import Image

from rag_platform.config.folders import SHIPPED
from rag_platform.config.settings import Settings, load_settings, with_http
from rag_platform.errors import ConfigError
from rag_platform.ledger.ledger import open_ledger
from rag_platform.server.app import build_server
from rag_platform.server.http_app import build_app
from rag_platform.storage.store import Store
from rag_platform.web.guards import Rate
from rag_platform.web.tokens import Tokens
from rag_platform_tests.conftest import REPOSITORY, Shelf, write_config
from rag_platform_tests.server.announcements import Listener

pytestmark = pytest.mark.integration
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "7"},
    },
}
SCHEMA = SHIPPED / "schemas" / "trace_line.v1.json"
ACCEPT = {"Accept": "application/json, text/event-stream"}


class Running:
    """A server process and where it listens."""

    def __init__(self, process: subprocess.Popen[str], url: str, home: Path) -> None:
        self.process, self.url, self.home = process, url, home
        self.port = int(re.findall(r":(\d+)/", url)[0])
        self.root = url.removesuffix("/mcp")

    def post(self, body: Any = HELLO, **headers: str) -> httpx.Response:
        """The answer to one message, sent as it is."""
        named = {key.replace("_", "-"): text for key, text in headers.items()}
        return httpx.post(self.url, json=body, headers={**ACCEPT, **named}, timeout=20)

    def log(self, kind: str) -> list[Any]:
        """The lines of the log of one kind."""
        lines = [
            json.loads(line)
            for path in (self.home / "logs").glob(f"*-{self.process.pid}.jsonl")
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        return [line for line in lines if line["line"] == kind]


@contextmanager
def serving(shelf: Shelf, **environment: str) -> Iterator[Running]:
    """A server over the shelf until the end of the block."""
    command = [sys.executable, "-m", "rag_platform.cli.main", "serve", "--http", "--port", "0"]
    given = {
        **os.environ,
        "RAG_HOME": str(shelf.settings.home),
        "RAG_CONFIG": str(shelf.settings.strategies_dir.parent),
        **{f"RAG_SERVER__HTTP__{key.upper()}": text for key, text in environment.items()},
    }
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=given)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("Listening on "), line + process.stderr.read()
        yield Running(process, line.split()[-1], shelf.settings.home)
    finally:
        process.send_signal(signal.SIGTERM)
        process.stderr.close()
        assert process.wait(timeout=120) == 0


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """A shelf with the libraries `ports` and `hr`."""

    root = tmp_path_factory.mktemp("http")
    texts = {
        "ports": "# Ports\n\nThe gateway listens on port 8080.\n",
        "hr": "# Leave\n\nSick leave needs a doctor's note.\n",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_CONFIG", str(write_config(root / "config")))
        patch.setenv("RAG_HOME", str(root / "home"))
        for name in ("RAG_STRATEGY", "RAG_NAMESPACE"):
            patch.delenv(name, raising=False)
        settings = load_settings()
        ledger = open_ledger(Store.of(settings))
        shelf = Shelf(settings, Store(settings.home), ledger)
        for namespace, text in texts.items():
            path = root / f"{namespace}.md"
            path.write_text(text, encoding="utf-8")
            shelf.ingest(path, namespace=namespace)
        yield shelf
        ledger.close()


@pytest.fixture(scope="module")
def open_server(held: Shelf) -> Iterator[Running]:
    """A server on this machine that asks for no token."""
    held.store.tokens_path.unlink(missing_ok=True)
    with serving(held, request_seconds="1", max_body_bytes="20000") as running:
        yield running


def converse(
    url: str,
    conversation: Callable[[Client], Awaitable[Any]],
    *,
    token: str = "",
    mode: str = "auto",
    **options: Any,
) -> Any:
    """What a conversation over HTTP came to; mode `legacy` shakes hands and keeps a session."""

    async def run() -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(headers=headers, timeout=20) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport, mode=mode, **options) as client:
                return await conversation(client)

    return anyio.run(run)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_question_over_http_is_traced_with_its_client(open_server: Running, mode: str) -> None:
    async def conversation(client: Client) -> Any:
        names = [tool.name for tool in (await client.list_tools()).tools]
        query = next(name for name in names if name.endswith("query"))
        arguments = {"query": "Which port?", "collections": "ports"}
        asked = (await client.call_tool(query, arguments)).structured_content
        read = await client.read_resource(asked["data"]["results"][0]["uri"])
        assert "8080" in read.contents[0].text
        return query, asked

    query, asked = converse(open_server.url, conversation, mode=mode)
    assert "8080" in asked["data"]["answer_markdown"]
    (ended,) = [
        line for line in open_server.log("trace.end") if line["trace_id"] == asked["trace_id"]
    ]
    client = ended["client"]
    assert ended["links"]["request_id"] and (client["door"], client["tool"]) == ("http", query)
    assert client["name"] and client["version"] and client["client_level"] == "L1"
    formatted = [
        line["attrs"]["client_level"]
        for line in open_server.log("span.end")
        if line["trace_id"] == asked["trace_id"] and line["name"] == "stage.format_response"
    ]
    assert formatted == ["L1"]
    levels = {
        line["client"]["client_level"] for line in open_server.log("trace.end") if "client" in line
    }
    assert "L2" in levels  # a resource was read


@pytest.mark.parametrize(("named", "code"), [("job_none", -32602), ("job_other", -32020)])
def test_a_task_is_the_one_that_the_header_names(
    open_server: Running, named: str, code: int
) -> None:
    version = "2026-07-28"
    meta = {
        "protocolVersion": version,
        "clientInfo": HELLO["params"]["clientInfo"],
        "clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    named_meta = {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}
    params = {"taskId": "job_none", "_meta": named_meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": params}
    headers = {"MCP_Protocol_Version": version, "Mcp_Method": "tasks/get", "Mcp_Name": named}
    assert open_server.post(body, **headers).json()["error"]["code"] == code


def test_health_needs_nothing_and_tells_nothing(open_server: Running) -> None:
    answer = httpx.get(f"{open_server.root}/health", headers={"Host": "10.0.0.7"})
    assert answer.status_code == 200 and set(answer.json()) == {"status", "ready"}
    assert "server" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        ({"Host": "evil.example"}, 421, "unknown_host"),
        ({"Host": "127.0.0.1.evil.example"}, 421, "unknown_host"),
        ({"Origin": "https://evil.example"}, 403, "unknown_origin"),
        ({"Origin": "null"}, 403, "unknown_origin"),
        ({"Origin": "http://localhost.evil.example"}, 403, "unknown_origin"),
        ({"Origin": "http://[bad"}, 403, "unknown_origin"),
        ({"Origin": "http://localhost@evil.example"}, 403, "unknown_origin"),
        ({"Origin": "http://localhost/evil"}, 403, "unknown_origin"),
        ({"Origin": "http://[::1].evil.example"}, 403, "unknown_origin"),
        ({"Origin": "http://localhost:80@evil.example"}, 403, "unknown_origin"),
        ({"Content_Encoding": "gzip"}, 415, "compressed_body"),
        ({"Content_Encoding": "br, gzip"}, 415, "compressed_body"),
        ({"Authorization": "Bearer stale"}, 401, "invalid_token"),
    ],
)
def test_what_is_foreign_is_refused(
    open_server: Running, headers: dict[str, str], status: int, error: str
) -> None:
    answer = open_server.post(**headers)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert answer.json()["error_description"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:99", "[::1]:80"])
def test_this_machine_goes_by_several_names(open_server: Running, host: str) -> None:
    assert open_server.post(Host=host, Origin=f"http://{host}").status_code == 200


def test_a_bomb_is_not_unpacked(open_server: Running) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    headers = {**ACCEPT, "Content-Encoding": "gzip", "Content-Type": "application/json"}
    answer = httpx.post(open_server.url, content=bomb, headers=headers)
    assert answer.status_code == 415


def test_a_body_too_large_is_refused_declared_or_not(open_server: Running) -> None:
    big = {**HELLO, "padding": "x" * 30_000}
    assert open_server.post(big).status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 1000

    headers = {**ACCEPT, "Content-Type": "application/json"}
    answer = httpx.post(open_server.url, content=pieces(), headers=headers)
    assert answer.status_code == 413


def test_a_client_that_dawdles_is_hung_up_on(open_server: Running) -> None:
    """Over its body after the deadline; over its headers without an answer."""
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"
    with socket.create_connection(("127.0.0.1", open_server.port), timeout=60) as slow:
        slow.sendall(head + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
        answer = b"".join(iter(lambda: slow.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408 ") and b"slow_body" in answer
    with socket.create_connection(("127.0.0.1", open_server.port), timeout=60) as slow:
        slow.sendall(head)
        assert slow.recv(4096) == b""


def test_the_access_log_has_no_words_of_questions(open_server: Running) -> None:
    async def ask(client: Client) -> Any:
        query = next(t.name for t in (await client.list_tools()).tools if t.name.endswith("query"))
        return await client.call_tool(query, {"query": "zebracrossing", "collections": "hr"})

    converse(open_server.url, ask)
    lines = [line for line in open_server.log("access") if line.get("mcp_method") == "tools/call"]
    last = lines[-1]
    assert (last["method"], last["path"], last["status"]) == ("POST", "/mcp", 200)
    assert last["tool"].endswith("query") and last["address"] == "127.0.0.1"
    assert last["bytes"] > 100 and last["duration_ms"] > 0
    assert "zebracrossing" not in json.dumps(open_server.log("access"))
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for line in (*lines, *open_server.log("trace.end")):
        Draft202012Validator(schema).validate(line)


def test_hostile_arguments_come_to_results_or_clear_errors(
    open_server: Running, held: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few of the calls of bench/hostile_calls.py, over both transports."""
    monkeypatch.syspath_prepend(REPOSITORY / "bench")
    calls = importlib.import_module("hostile_calls")
    for version in calls.VERSIONS:
        with calls.posting(open_server.url, version) as exchange:
            found = calls.call_all(exchange, version, 15, random.Random(version))
        assert not [verdict for verdict in found if verdict.startswith("FAILED")], found
    monkeypatch.setenv("RAG_HOME", str(held.settings.home))
    monkeypatch.setenv("RAG_CONFIG", str(held.settings.strategies_dir.parent))
    with calls.over_stdio() as exchange:
        found = calls.call_all(exchange, calls.VERSIONS[0], 15, random.Random(1))
    assert not [verdict for verdict in found if verdict.startswith("FAILED")], found


@pytest.mark.filterwarnings("ignore:resources.subscribe is removed")  # for clients of before
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_pictures_and_publications_reach_a_client(
    held: Shelf, open_server: Running, tmp_path: Path, mode: str
) -> None:
    Image.new("RGB", (200, 200), (90, 30, 30)).save(tmp_path / "lamp.png")
    page = tmp_path / f"{mode}.md"
    listener = Listener()

    def publish(hours: int) -> None:
        text = f"# Lamp\n\nThe {mode} lamp burns for {hours} hours.\n\n![lamp](lamp.png)\n"
        page.write_text(text, encoding="utf-8")
        held.ingest(page, namespace="lamps")

    async def conversation(client: Client) -> None:
        asked = {"query": f"{mode} lamp", "collections": "lamps", "detail": "full"}
        found = await client.call_tool("library_query", asked)
        row = found.structured_content["data"]["results"][0]
        (picture,) = (await client.read_resource(row["asset_uris"][0])).contents
        assert picture.mime_type == "image/png"
        assert base64.b64decode(picture.blob).startswith(b"\x89PNG")
        uri = f"doc://{row['doc_id']}"
        with anyio.fail_after(60):
            await listener.hear(client, mode, uri, lambda: publish(50), seconds=60)

    publish(40)
    converse(open_server.url, conversation, mode=mode, message_handler=listener)


# --- tokens ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(held: Shelf, open_server: Running) -> Iterator[tuple[Running, dict[str, str]]]:
    """A server that asks for tokens, and tokens by name: `all`, `hr`, `expired`, `other`."""
    tokens = Tokens(held.store)
    secrets = {
        "all": tokens.create("all")[1],
        "hr": tokens.create("hr", namespaces=["hr"])[1],
        "expired": tokens.create("expired", days=1e-9)[1],
        "other": tokens.create("other")[1],
    }
    with serving(held, requests_per_minute="40", log_arguments="true") as running:
        yield running, secrets


def test_a_token_that_is_missing_wrong_or_expired(
    guarded: tuple[Running, dict[str, str]],
) -> None:
    running, secrets = guarded
    missing = running.post()
    assert missing.status_code == 401 and missing.headers["www-authenticate"].startswith("Bearer ")
    for secret in ("rag_wrong", secrets["expired"], secrets["all"] + "x"):
        answer = running.post(Authorization=f"Bearer {secret}")
        assert answer.status_code == 401
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    assert running.post(Authorization=f"Basic {secrets['all']}").status_code == 401
    assert running.post(Authorization=f"bearer {secrets['all']}").status_code == 200
    assert httpx.get(f"{running.root}/health").status_code == 200
    assert httpx.get(f"{running.root}/elsewhere").status_code == 401


def test_tokens_are_kept_as_hashes_for_their_owner_alone(
    held: Shelf, guarded: tuple[Running, dict[str, str]]
) -> None:
    running, secrets = guarded
    kept = held.store.tokens_path.read_text(encoding="utf-8")
    assert held.store.tokens_path.stat().st_mode & 0o777 == 0o600
    running.post(Authorization=f"Bearer {secrets['all']}")
    logged = json.dumps(running.log("access"))
    assert not [secret for secret in secrets.values() if secret in kept or secret in logged]
    assert "tok_" in logged


def test_a_token_of_one_library_sees_no_other(guarded: tuple[Running, dict[str, str]]) -> None:
    running, secrets = guarded

    async def conversation(client: Client) -> None:
        tools = {
            tool.name.partition("library")[2][1:]: tool.name
            for tool in (await client.list_tools()).tools
        }

        async def call(name: str, **arguments: Any) -> Any:
            return (await client.call_tool(tools[name], arguments)).structured_content

        refused = await call("query", query="Which port?", collections="ports")
        assert refused["error"]["code"] == "unknown_namespace"
        assert refused["error"]["message"].endswith("known: hr")
        both = await call("query", query="Which port?", collections=["hr", "ports"])
        assert both["error"]["code"] == "unknown_namespace"
        listed = await call("list_documents", collections="ports")
        assert listed["error"]["code"] == "unknown_namespace"
        told = await call("status")
        assert [row["namespace"] for row in told["data"]["namespaces"]] == ["hr"]
        assert "ports" not in json.dumps(told["data"]["namespaces"])
        found = await call("query", query="doctor's note", collections="hr")
        assert [it["source_uri"] for it in found["data"]["documents"].values()] == ["files/hr.md"]

    converse(running.url, conversation, token=secrets["hr"])

    async def cite(client: Client) -> str:
        query = next(t.name for t in (await client.list_tools()).tools if t.name.endswith("query"))
        asked = await client.call_tool(query, {"query": "Which port?", "collections": "ports"})
        return str(asked.structured_content["data"]["results"][0]["uri"])

    uri = converse(running.url, cite, token=secrets["all"])

    async def read(client: Client) -> None:
        with pytest.raises(Exception, match="unknown_chunk"):
            await client.read_resource(uri)

    converse(running.url, read, token=secrets["hr"])


def test_a_session_belongs_to_the_token_that_opened_it(
    guarded: tuple[Running, dict[str, str]],
) -> None:
    running, secrets = guarded
    opened = running.post(Authorization=f"Bearer {secrets['all']}")
    session = opened.headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    own = {"Mcp_Session_Id": session, "MCP_Protocol_Version": "2025-11-25"}
    assert running.post(ping, Authorization=f"Bearer {secrets['all']}", **own).status_code == 200
    assert running.post(ping, Authorization=f"Bearer {secrets['hr']}", **own).status_code == 404


def test_a_revoked_token_is_refused_at_once_and_a_hasty_one_told_to_wait(
    held: Shelf, guarded: tuple[Running, dict[str, str]]
) -> None:
    running, secrets = guarded
    headers = {"Authorization": f"Bearer {secrets['other']}"}
    with httpx.Client(headers={**ACCEPT, **headers}, timeout=60) as client:
        answers = (client.get(f"{running.root}/none") for _ in range(400))
        assert [answer.status_code for answer in itertools.islice(answers, 40)] == [404] * 40
        # a slow machine lets a few more through, as time passes
        refused = next(answer for answer in answers if answer.status_code != 404)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
    Tokens(held.store).revoke("other")
    assert running.post(**headers).status_code == 401


def test_a_rate_fills_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rate = Rate(60)
    assert [rate.wait_seconds("a") for _ in range(61)] == [0.0] * 60 + [1.0]
    assert rate.wait_seconds("b") == 0.0
    now[0] += 2.0
    assert [rate.wait_seconds("a") for _ in range(3)] == [0.0, 0.0, 1.0]


# --- starting and stopping ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{"host": "0.0.0.0"}, {"public_url": "https://rag.example.com"}]
)
def test_others_are_let_in_by_tokens_alone(settings: Settings, changes: dict[str, str]) -> None:
    reached = with_http(settings, changes)
    with pytest.raises(ConfigError, match="rag token create"):
        build_app(build_server(reached), reached)
    Tokens(Store(settings.home)).create("me")
    build_app(build_server(reached), reached)


def test_a_server_that_is_told_to_stop_ends_what_runs(held: Shelf) -> None:
    """An open stream does not hold it up, and the port is free again."""
    with serving(held) as running:
        secret = Tokens(held.store).create("stopping")[1]
        headers = {**ACCEPT, "Authorization": f"Bearer {secret}"}
        opened = running.post(**headers)
        stream = {**headers, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
        with httpx.stream("GET", running.url, headers=stream, timeout=20) as events:
            assert events.status_code == 200
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(timeout=120) == 0
        with socket.create_server(("127.0.0.1", running.port)):
            pass


def test_a_server_that_cannot_listen_ends_with_an_error(desk: Any) -> None:
    desk.write(guide="# Limits\n\nThe largest upload is 50 MB.\n")
    desk.publish()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "rag_platform.cli.main", "serve", "--http", "--port", port]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1 and ended.stderr.startswith("error [cannot_listen]: "), ended
