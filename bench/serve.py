"""From process start to the first answered question over stdio, beside an empty server of the MCP
SDK, in one run.

    python bench/serve.py [--strategies default fast] [--repeats 5] [--documents FOLDER]

Every figure is the median of `repeats` fresh processes; empty and ours alternate. "embedder" is
loading the embedder and one question's vector in a fresh process, its imports included. Goal: ours
<= empty + embedder + 0.5 s. Peak memory is the server's VmHWM after the answer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from sizes import described

from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ledger.ledger import open_ledger
from rag_platform.releases.publishing import build_candidate, publish_candidate
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

REPOSITORY = Path(__file__).resolve().parent.parent
QUESTION = "What is the maximum throughput of the PX-40?"
ALLOWED_SECONDS = 0.5
EMPTY = """
from mcp.server import MCPServer
server = MCPServer("empty")
@server.tool()
def ping(query: str) -> str:
    return query
server.run("stdio")
"""
LOAD = """
import sys, time
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.registry import make_provider, with_cache_folder
from rag_platform.storage.store import Store
settings = load_settings()
embedding = load_strategy(settings, sys.argv[1]).embedding
folder = Store.of(settings).embeddings_path.parent
started = time.perf_counter()
options = with_cache_folder(embedding.provider, embedding.options, folder)
make_provider("embedder", embedding.provider, options).embed(["warm up"], query=True)
sys.stdout.write(str(time.perf_counter() - started))
"""


def first_answer(command: Sequence[str], tool: str) -> tuple[float, float, int]:
    """Seconds from process start to the first answer and for a second call, and the peak memory in
    MiB.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        send(process.stdin, {"id": 1, "method": "initialize", "params": hello})
        receive_answer(process.stdout, 1)
        send(process.stdin, {"method": "notifications/initialized"})
        call = {"name": tool, "arguments": {"query": QUESTION}}
        send(process.stdin, {"id": 2, "method": "tools/call", "params": call})
        receive_answer(process.stdout, 2)
        first = time.perf_counter() - started
        again = time.perf_counter()
        send(process.stdin, {"id": 3, "method": "tools/call", "params": call})
        receive_answer(process.stdout, 3)
        second = time.perf_counter() - again
        return first, second, peak_memory(process.pid)
    finally:
        process.stdin.close()
        process.wait(timeout=30)


def send(target: IO[str], message: dict[str, Any]) -> None:
    """Write one JSON-RPC message."""
    target.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    target.flush()


def receive_answer(source: IO[str], request_id: int) -> None:
    """Read up to the answer of a request. Raises RuntimeError when it is an error or never
    comes.
    """
    for line in source:
        message = json.loads(line)
        if message.get("id") == request_id:
            if "error" in message or message["result"].get("isError"):
                raise RuntimeError(f"the server answered with an error: {line[:500]}")
            return
    raise RuntimeError("the server closed its output without an answer")


def peak_memory(pid: int) -> int:
    """Peak resident memory of a process in MiB, 0 where the system does not tell."""
    return _status_mib(pid, "VmHWM")


def _status_mib(pid: int, field: str) -> int:
    path = Path(f"/proc/{pid}/status")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith(field)), 0)


def private_memory(pid: int) -> int:
    """Resident memory of a process that no file backs, in MiB, 0 where the system does not tell."""
    return _status_mib(pid, "RssAnon")


def publish(documents: Path, strategy_name: str) -> str:
    """Build the default namespace of RAG_HOME from a folder; returns what it holds, in one line."""
    settings = load_settings()
    store = Store(settings.home)
    ledger = open_ledger(store)
    workspace = Workspace(
        settings=settings,
        strategy=load_strategy(settings, strategy_name),
        store=store,
        ledger=ledger,
    )
    received = receive([documents], settings.default_namespace, workspace, ReceiveOptions())
    if not received.to_process:
        raise SystemExit(f"no document to ingest in {documents}; name a folder with --documents")
    ingest_versions([ledger.version(item) for item in received.to_process], workspace)
    manifest, _ = build_candidate(settings.default_namespace, workspace)
    publish_candidate(settings.default_namespace, manifest.release_id, workspace)
    ledger.close()
    return described(store, settings.default_namespace, workspace.strategy)


def load_seconds(strategy: str) -> float:
    """Seconds that loading the embedder and one vector take in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, strategy], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def measure(strategy: str, documents: Path, repeats: int) -> None:
    """Print the figures of one strategy."""
    with tempfile.TemporaryDirectory(prefix="rag-bench-") as home:
        os.environ |= {
            "RAG_HOME": home,
            "RAG_STRATEGY": strategy,
            "RAG_CONFIG": str(REPOSITORY / "rag_platform" / "defaults"),
        }
        built = publish(documents, strategy)
        serve = [sys.executable, "-c", "from rag_platform.cli.main import main; main()", "serve"]
        empty = [sys.executable, "-c", EMPTY]
        first_answer(serve, "library_query")  # what the file cache lacks is read once, for both
        first_answer(empty, "ping")
        pairs = []
        for _ in range(repeats):
            pairs.append(
                (
                    first_answer(empty, "ping"),
                    first_answer(serve, "library_query"),
                    load_seconds(strategy),
                )
            )
        bare, ours, load = (
            statistics.median(pair[0][0] for pair in pairs),
            statistics.median(pair[1][0] for pair in pairs),
            statistics.median(pair[2] for pair in pairs),
        )
        limit = bare + load + ALLOWED_SECONDS
        print(
            f"\n"
            f"strategy {strategy}, documents of {documents.name}; load average"
            f" {os.getloadavg()[0]:.1f}\n"
            f"  {built}"
        )
        print(
            f"  empty server        {bare:6.2f} s  "
            f" {statistics.median(pair[0][2] for pair in pairs)} MiB"
        )
        print(f"  embedder            {load:6.2f} s")
        print(
            f"  ours                {ours:6.2f} s  "
            f" {statistics.median(pair[1][2] for pair in pairs)} MiB, second question"
            f" {1000 * statistics.median(pair[1][1] for pair in pairs):.0f} ms"
        )
        verdict = "kept" if ours <= limit else "MISSED"
        print(
            f"  allowed             {limit:6.2f} s   {verdict}, ours - empty - embedder"
            f" {ours - bare - load:+.2f} s"
        )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategies", nargs="*", default=["default", "fast"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--documents", type=Path, default=REPOSITORY / "rag_platform" / "samples")
    options = parser.parse_args()
    for strategy in options.strategies:
        measure(strategy, options.documents, options.repeats)


if __name__ == "__main__":
    main()
