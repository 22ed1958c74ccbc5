"""The MCP server beside an empty one of the same SDK and beside other RAG servers, on the same
files in one run.

    python bench/mcp_server.py [--chunks 10000] [--strategy fast] [--repeats 5]
    [--clients 1 5 20 50] [--seconds 8] [--peers FOLDER] [--keep FOLDER]

- Over stdio: seconds from process start to the answer to `initialize` and to the first cited
  answer, p50 and p95 of later questions, peak resident memory, and what of it at the end is no
  mapped file's. Medians of fresh processes; all servers alternate. Goals: initialize <= empty +
  0.2 s, first answer <= empty + the embedder's load + 0.5 s, memory <= 300 MiB.
- Over HTTP: P50, P95 and P99 of clients that ask without a pause, beside the empty server; by tool,
  pictures by variant and size, by stage of the questions (from their traces), and the shares of
  errors, time-outs and fallbacks (answers by less than both retrievers). Memory of the server's
  whole process tree.

With the library kept all of it takes about four minutes, the other servers one more; building the
library of 10,000 chunks takes two. The program is compiled first, as an installation is.

FOLDER of the peers has virtual environments named after packages: `agents-docs` (BM25 over Markdown
on disk) and `grounded-rag-mcp` (BM25 and hashed vectors in memory, read anew by each process, for
it keeps none on disk). The name is not `mcp.py`, which would hide the SDK from every script here.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from corpus import question, write_corpus
from PIL import Image
from serve import load_seconds, peak_memory, private_memory, publish, receive_answer, send

from rag_platform.config.folders import SHIPPED
from rag_platform.config.settings import fingerprint, load_settings
from rag_platform.config.strategies import load_strategy

VERSION = "2025-11-25"
MODERN = "2026-07-28"
WARM = 40  # questions behind the first one over stdio
PICTURES = ((320, 240), (1600, 1200), (4000, 3000))  # width, height
INITIALIZE_SECONDS, ANSWER_SECONDS, MEMORY_MIB = 0.2, 0.5, 300
EMPTY = """
import sys
from mcp.server import MCPServer
server = MCPServer("empty")
@server.tool()
def ping(query: str) -> str:
    return query
if sys.argv[1:]:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run("stdio")
"""
RAG = [sys.executable, "-c", "from rag_platform.cli.main import main; main()"]


@dataclass(frozen=True)
class Server:
    """A server as it is started, and how it is asked."""

    name: str
    command: Sequence[str]
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    before: tuple[str, dict[str, Any]] | None = None  # a call that fills it


META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
Call = tuple[str, dict[str, Any]]


def message_of(call: Call) -> dict[str, Any]:
    """Headers and body of a tool call over HTTP, as `httpx` takes them."""
    name, arguments = call
    params = {"name": name, "arguments": arguments, "_meta": META}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return {"headers": headers, "json": body}


def message_in(answer: httpx.Response) -> dict[str, Any]:
    """The answer to a call, which comes as a stream of events where it takes long."""
    lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
    message: dict[str, Any] = json.loads(lines[-1].removeprefix("data: ") if lines else answer.text)
    return message


def answer_of(url: str, call: Call) -> dict[str, Any]:
    """The data of one call."""
    answer = message_in(httpx.post(url, timeout=30, **message_of(call)))
    data: dict[str, Any] = answer["result"]["structuredContent"]["data"]
    return data


def p(values: Sequence[float], share: float) -> float:
    """The percentile of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# --- over stdio -----------------------------------------------------------------------------------


Talk = tuple[float, float, list[float], int, int]


def talk(server: Server, texts: Sequence[str]) -> Talk:
    """(seconds to initialize, to the first answer, of each later one, peak memory in MiB, and what
    of the memory at the end is no mapped file's).
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        server.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    source, target = process.stdout, process.stdin
    numbers = iter(range(1, 10_000))

    def request(method: str, params: dict[str, Any]) -> None:
        number = next(numbers)
        send(target, {"id": number, "method": method, "params": params})
        receive_answer(source, number)

    try:
        client = {"name": "bench", "version": "1"}
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": client}
        request("initialize", hello)
        initialized = time.perf_counter() - started
        send(target, {"method": "notifications/initialized"})
        if server.before is not None:
            name, arguments = server.before
            request("tools/call", {"name": name, "arguments": arguments})
        spent = []
        for text in texts:
            began = time.perf_counter()
            arguments = {**server.arguments, "query": text}
            request("tools/call", {"name": server.tool, "arguments": arguments})
            spent.append(time.perf_counter() - began)
            if len(spent) == 1:
                first = time.perf_counter() - started
        memory = peak_memory(process.pid), private_memory(process.pid)
        return initialized, first, spent[1:], *memory
    finally:
        target.close()
        process.wait(timeout=60)


def measure_stdio(
    servers: Sequence[Server], texts: Sequence[str], repeats: int, load: float
) -> None:
    """Print a line for each server, and whether ours keeps its goals."""
    found: dict[str, list[Talk]] = defaultdict(list)
    for _ in range(repeats + 1):  # the first round reads what the file cache lacks
        for server in servers:
            found[server.name].append(talk(server, texts))
    print(f"\n{'over stdio':<18} initialize  first answer   p50 ms   p95 ms   peak MiB   private")
    middle: dict[str, tuple[float, float, int]] = {}
    for name, runs in found.items():
        runs = runs[1:]
        warm = [seconds * 1000 for run in runs for seconds in run[2]]
        init, first = (statistics.median(run[part] for run in runs) for part in (0, 1))
        memory, private = (int(statistics.median(run[part] for run in runs)) for part in (3, 4))
        middle[name] = init, first, memory
        print(
            f"{name:<18} {init:8.2f} s  {first:10.2f} s {p(warm, 0.5):8.1f} {p(warm, 0.95):8.1f}"
            f" {memory:10} {private:9}"
        )
    empty, ours = middle["empty"], middle["ours"]
    for goal, value, limit, unit in (
        ("initialize", ours[0], empty[0] + INITIALIZE_SECONDS, "s"),
        ("first answer", ours[1], empty[1] + load + ANSWER_SECONDS, "s"),
        ("memory", ours[2], MEMORY_MIB, "MiB"),
    ):
        verdict = "kept" if value <= limit else "MISSED"
        print(f"  {goal:<13} {value:8.2f} {unit} of {limit:.2f} allowed: {verdict}")
    print(f"  the embedder's load {load:.2f} s")


# --- over HTTP ------------------------------------------------------------------------------------


@contextmanager
def listening(command: Sequence[str], port: int) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """(address, process) of a server until the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        for _ in range(600):
            try:
                httpx.get(url, timeout=2)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url, process
    finally:
        process.terminate()
        process.wait(timeout=30)


Asked = tuple[str, float, str]  # tool, milliseconds, "", "less" or why it failed


async def ask_all(url: str, calls: Sequence[Call], clients: int, seconds: float) -> list[Asked]:
    """What so many clients got that ask one after the other for so long."""
    until = time.perf_counter() + seconds
    asked: list[Asked] = []

    async def one(number: int) -> None:
        rng = random.Random(number)
        async with httpx.AsyncClient(timeout=30) as http:
            while time.perf_counter() < until:
                call = rng.choice(calls)
                began = time.perf_counter()
                try:
                    answer = await http.post(url, **message_of(call))
                    outcome = judge(answer)
                except httpx.TimeoutException:
                    outcome = "time-out"
                except httpx.TransportError as error:
                    outcome = type(error).__name__
                asked.append((call[0], (time.perf_counter() - began) * 1000, outcome))

    await asyncio.gather(*(one(number) for number in range(clients)))
    return asked


def judge(answer: httpx.Response) -> str:
    """Empty for an answer, `less` for one by less than was asked, else what went wrong."""
    if answer.status_code != 200:
        return f"HTTP {answer.status_code}"
    result = message_in(answer).get("result", {})
    if result.get("isError", True):
        return "error"
    warnings = (result.get("structuredContent") or {}).get("warnings") or []
    return "less" if any("failed" in text or "load" in text for text in warnings) else ""


def tree_memory(pid: int) -> int:
    """MiB of a process and its children, shared pages counted once."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
    total = 0
    for each in (str(pid), *children.split()):
        rollup = Path(f"/proc/{each}/smaps_rollup")
        lines = rollup.read_text(encoding="utf-8").splitlines() if rollup.is_file() else []
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total // 1024


def print_row(label: str, asked: Sequence[Asked], seconds: float) -> None:
    """One line of figures."""
    spent = [ms for _, ms, _ in asked]
    bad = [why for *_, why in asked if why not in ("", "less")]
    late = bad.count("time-out")
    less = sum(why == "less" for *_, why in asked)
    print(
        f"{label:<28} {len(asked) / seconds:8.1f} {p(spent, 0.5):8.1f} {p(spent, 0.95):8.1f}"
        f" {p(spent, 0.99):8.1f} {len(bad) - late:7} {late:9} {less / len(asked):8.1%}"
    )


HEAD = f"{'':<28} a second   p50 ms   p95 ms   p99 ms  errors time-outs fallback"


def measure_http(texts: Sequence[str], clients: Sequence[int], seconds: float, port: int) -> None:
    """Print the figures of both servers by number of clients, and of ours by tool and stage."""
    with listening([sys.executable, "-c", EMPTY, str(port)], port) as (url, _):
        pings = [("ping", {"query": text}) for text in texts]
        asyncio.run(ask_all(url, pings, 2, 1))
        empty = {count: asyncio.run(ask_all(url, pings, count, seconds / 2)) for count in clients}
    serve = [*RAG, "serve", "--http", "--port", str(port + 1)]
    with listening(serve, port + 1) as (url, process):
        queries = [("library_query", {"query": text}) for text in texts]
        asyncio.run(ask_all(url, queries, 2, 5))
        print(f"\n{'over HTTP, questions':<28}{HEAD[28:]}")
        for count in clients:
            print_row(f"empty, {count} clients", empty[count], seconds / 2)
            asked = asyncio.run(ask_all(url, queries, count, seconds))
            memory = tree_memory(process.pid)
            print_row(f"ours, {count} clients", asked, seconds)
        print(
            f"  memory of the process tree {memory} MiB, peak of the server"
            f" {peak_memory(process.pid)} MiB"
        )
        logs = load_settings().home / "logs"
        print_stages(logs, process.pid)
        print(f"\n{'over HTTP, by tool':<28}{HEAD[28:]}")
        for name, arguments in other_calls(url):
            asked = asyncio.run(ask_all(url, [(name, arguments)], 5, seconds / 3))
            print_row(f"{name.removeprefix('library_')}, 5 clients", asked, seconds / 3)


def other_calls(url: str) -> list[Call]:
    """Calls of the other tools that read, of ids that a question gives."""
    result = answer_of(url, ("library_query", {"query": "router parcel"}))["results"][0]
    chunk, doc_id = result["uri"].removeprefix("chunk://"), result["doc_id"]
    return [
        ("library_get_chunk", {"chunk_id": chunk}),
        ("library_get_document", {"doc_id": doc_id}),
        ("library_summarize_document", {"doc_id": doc_id}),
        ("library_list_documents", {"limit": 20}),
        ("library_list_collections", {}),
        ("library_verify", {"sources": [chunk]}),
        ("library_status", {}),
    ]


def measure_pictures(folder: Path, strategy: str, seconds: float, port: int) -> None:
    """Print the figures of `query_assets` by variant and size, of a library of its own."""
    os.environ["RAG_HOME"] = str(folder / "pictures")
    if not (folder / "pictures").is_dir():
        publish_pictures(folder / "pictures_docs", strategy)
    with listening([*RAG, "serve", "--http", "--port", str(port)], port) as (url, _):
        print(f"\n{'query_assets, 5 clients':<28}{HEAD[28:]}")
        [group] = answer_of(url, ("library_list_documents", {"limit": 20}))["groups"]
        for document in group["documents"]:
            call = ("library_get_document", {"doc_id": document["doc_id"]})
            [asset] = re.findall(r"asset://(\w+)", json.dumps(answer_of(url, call)))[:1]
            for variant in ("thumb", "raw"):
                asked = {"asset_ids": [asset], "variant": variant, "max_bytes": 5_000_000}
                [shown] = answer_of(url, ("library_query_assets", asked))["assets"]
                spent = asyncio.run(ask_all(url, [("library_query_assets", asked)], 5, seconds / 3))
                size = f"{shown['width']} px, {shown['bytes'] / 1000:.0f} kB"
                print_row(f"{variant} of {size}", spent, seconds / 3)


def publish_pictures(documents: Path, strategy: str) -> None:
    """Publish a library of one document for each size of a picture."""
    documents.mkdir(parents=True, exist_ok=True)
    rng = random.Random(5)
    for width, height in PICTURES:
        image = Image.frombytes("L", (width // 8, height // 8), rng.randbytes(width * height // 64))
        image.resize((width, height)).convert("RGB").save(documents / f"p{width}.jpg", quality=85)
        text = f"# Picture {width}\n\nOf the belt.\n\n![belt](p{width}.jpg)\n"
        (documents / f"p{width}.md").write_text(text, encoding="utf-8")
    publish(documents, strategy)


def print_stages(logs: Path, pid: int) -> None:
    """Milliseconds of each stage of the questions that the server itself answered."""
    stages: dict[str, list[float]] = defaultdict(list)
    for path in logs.glob(f"*-{pid}.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if '"line":"trace.end"' in line and '"trace_type":"query"' in line:
                for name, spent in json.loads(line)["aggregates"]["stage_latency_ms"].items():
                    stages[name].append(spent)
    print(f"\n{'by stage':<28}   p50 ms   p95 ms   p99 ms")
    for name, spent in sorted(stages.items(), key=lambda item: -p(item[1], 0.5)):
        if name.startswith("stage."):
            print(f"{name:<28} {p(spent, 0.5):8.1f} {p(spent, 0.95):8.1f} {p(spent, 0.99):8.1f}")


def peers_of(folder: Path | None, documents: Path) -> list[Server]:
    """The other servers that are installed in the folder."""
    found: list[Server] = []
    if folder is None:
        return found
    if (docs := folder / "agents-docs" / "bin" / "agents-docs").is_file():
        os.environ["AGENTS_DOCS_PATH"] = str(documents.parent / "agents-docs")
        subprocess.run([docs, "ingest", "bench", documents], check=True, stdout=subprocess.DEVNULL)
        found.append(
            Server("agents-docs", [str(docs), "serve"], "search_docs", {"category": "bench"})
        )
    if (rag := folder / "grounded-rag-mcp" / "bin" / "grounded-rag-mcp").is_file():
        fill = ("ingest_documents", {"paths": [str(documents)]})
        found.append(Server("grounded-rag-mcp", [str(rag)], "search", {}, fill))
    return found


def profile(strategy: str, chunks: int, built: str) -> str:
    """What the figures depend on, as an id: machine, programs, strategy and library."""
    cpu = platform.processor() or platform.machine()
    parts = (cpu, os.cpu_count(), platform.python_version(), strategy, chunks, built)
    return f"perf_{fingerprint(*parts, length=12)}"


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--strategy", default="fast")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 5, 20, 50])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--port", type=int, default=8950)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--keep", type=Path, help="build there, or ask what was built there")
    options = parser.parse_args()
    compileall.compile_dir(SHIPPED.parent, quiet=1)
    with tempfile.TemporaryDirectory(prefix="rag-bench-") as temporary:
        folder = options.keep or Path(temporary)
        documents = folder / "docs"
        os.environ |= {
            "RAG_HOME": str(folder / "home"),
            "RAG_STRATEGY": options.strategy,
            "RAG_CONFIG": str(SHIPPED),
        }
        described = folder / "built.txt"
        if not described.is_file():
            settings = load_settings()
            write_corpus(documents, options.chunks, load_strategy(settings), settings)
            described.write_text(publish(documents, options.strategy), encoding="utf-8")
        built = described.read_text(encoding="utf-8")
        print(f"{built}; load average {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores")
        print(f"perf_profile_id {profile(options.strategy, options.chunks, built)}")
        rng = random.Random(3)
        texts = [question(rng) for _ in range(1 + WARM)]
        servers = [
            Server("empty", [sys.executable, "-c", EMPTY], "ping"),
            Server("ours", [*RAG, "serve"], "library_query"),
            *peers_of(options.peers, documents),
        ]
        load = statistics.median(load_seconds(options.strategy) for _ in range(3))
        measure_stdio(servers, texts, options.repeats, load)
        measure_http(texts, options.clients, options.seconds, options.port)
        measure_pictures(folder, options.strategy, options.seconds, options.port + 2)


if __name__ == "__main__":
    main()
