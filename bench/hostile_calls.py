"""Tool calls with hostile arguments made from the tools' own schemas, over both transports and
three versions of the protocol: each must come to a result or to a clear error.

    python bench/hostile_calls.py [--count 2000] [--seed 7]

A small library of the samples is served by `rag serve` and by `rag serve --http`, and every tool
that they list is called: arguments left out, of wrong types, at and beyond their bounds, and with
the strings and filters of bench/hostile.py. An error of the server (`internal_error`), a stack
trace, a path of this machine, an answer that is no message of the protocol, and a server that no
longer answers count as failures, are printed, and make the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from hostile import STRINGS, bad_filter, noise

VERSIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
MODERN = VERSIONS[-1]
PATIENCE_SECONDS = 120.0  # of a busy machine
SERVE = [sys.executable, "-m", "rag_platform.cli.main", "serve"]
CLIENT = {"name": "hostile", "version": "1"}
_LEAKS = re.compile(r"Traceback|site-packages|internal_error|/home/|/tmp/|/dev/shm/")
Call = tuple[str, dict[str, Any]]
Exchange = Callable[[dict[str, Any]], Any]  # the answer to a message, parsed; None to a notice


# --- arguments ------------------------------------------------------------------------------------


def hostile_calls(tools: Sequence[dict[str, Any]], rng: random.Random) -> Iterator[Call]:
    """(tool, arguments) without end."""
    while True:
        tool = rng.choice(tools)
        schema = tool["inputSchema"]
        required = schema.get("required", [])
        arguments = {
            name: value_of(part, rng)
            for name, part in schema.get("properties", {}).items()
            if rng.random() < (0.95 if name in required else 0.4)
        }
        if rng.random() < 0.1:
            arguments[rng.choice(STRINGS)] = wrong_value(rng)
        yield tool["name"], arguments


def value_of(schema: dict[str, Any], rng: random.Random) -> Any:
    """A value that the schema allows, one just beyond it, or one of another type."""
    if rng.random() < 0.25:
        return wrong_value(rng)
    if "anyOf" in schema:
        return value_of(rng.choice(schema["anyOf"]), rng)
    if "enum" in schema:
        return rng.choice([*schema["enum"], rng.choice(STRINGS)])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        low, high = schema.get("minimum", -1), schema.get("maximum", 2**31)
        return rng.choice([low, high, low - 1, high + 1, 0, 3, 10**30, 1.5])
    if kind == "array":
        most = schema.get("maxItems", 5) + 1
        return [value_of(schema.get("items", {}), rng) for _ in range(rng.randint(0, most))]
    if kind == "boolean":
        return rng.choice([True, False, "true", 1])
    if kind == "object":
        return bad_filter(rng.choice(STRINGS), rng)
    return text(rng)


def text(rng: random.Random) -> str:
    """A string that is odd, long or plain."""
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(STRINGS)
    return noise(rng, rng.randint(0, 300)) if kind < 0.75 else "Pegasus PX-40"


def wrong_value(rng: random.Random) -> Any:
    """A value of any type."""
    word = rng.choice(STRINGS)
    return rng.choice(
        [None, True, 0, -1, 1.5, 10**400, [], {}, word, [word], {word: word}, [[[1]]]]
    )


# --- transports -----------------------------------------------------------------------------------


@contextmanager
def over_stdio() -> Iterator[Exchange]:
    """Messages to `rag serve`; every line that it writes has to be a message of the protocol."""
    with subprocess.Popen(
        SERVE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        source, target = process.stdout, process.stdin

        def exchange(message: dict[str, Any]) -> Any:
            target.write(json.dumps(message).encode() + b"\n")
            target.flush()
            while "id" in message:
                patience = threading.Timer(PATIENCE_SECONDS, process.kill)
                patience.start()
                line = source.readline()
                patience.cancel()
                if not line:
                    raise RuntimeError(f"no answer to {str(message)[:300]!a}")
                answer = json.loads(line)
                if answer["jsonrpc"] == "2.0" and answer.get("id", message["id"]) in (
                    message["id"],
                    None,
                ):
                    return answer
            return None

        try:
            yield exchange
        finally:
            target.close()


@contextmanager
def over_http(version: str) -> Iterator[Exchange]:
    """Messages to `rag serve --http`."""
    command = [*SERVE, "--http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            with posting(process.stderr.readline().split()[-1], version) as exchange:
                yield exchange
        finally:
            process.terminate()


@contextmanager
def posting(url: str, version: str) -> Iterator[Exchange]:
    """Messages to a server over HTTP, in a session where the version has sessions."""
    headers = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    with httpx.Client(headers=headers, timeout=PATIENCE_SECONDS) as client:

        def exchange(message: dict[str, Any]) -> Any:
            named = {"MCP-Protocol-Version": version}
            if version == MODERN:
                named["Mcp-Method"] = message["method"]
                if "name" in message.get("params", {}):
                    named["Mcp-Name"] = message["params"]["name"]
            answer = client.post(url, content=json.dumps(message), headers=named)
            if session := answer.headers.get("mcp-session-id"):
                client.headers["mcp-session-id"] = session
            body = answer.text
            if "event-stream" in answer.headers.get("content-type", ""):
                body = next(x[6:] for x in body.splitlines() if x.startswith('data: {"'))
            return json.loads(body) if body else None

        yield exchange


def open_conversation(exchange: Exchange, version: str) -> Callable[[str, dict[str, Any]], Any]:
    """A function that sends a request of the version, after its handshake where it has one."""
    numbers = iter(range(1, 10**9))
    meta: dict[str, Any] = {}
    if version == MODERN:
        prefix = "io.modelcontextprotocol"
        meta = {
            f"{prefix}/protocolVersion": version,
            f"{prefix}/clientInfo": CLIENT,
            f"{prefix}/clientCapabilities": {},
        }

    def request(method: str, params: dict[str, Any]) -> Any:
        whole = {**params, "_meta": meta} if meta else params
        message = {"jsonrpc": "2.0", "id": next(numbers), "method": method, "params": whole}
        return exchange(message)

    if version != MODERN:
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
        assert request("initialize", hello)["result"]["protocolVersion"] == version
        exchange({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return request


# --- verdicts -------------------------------------------------------------------------------------


def judge(answer: Any) -> str:
    """`answered`, `refused: CODE`, or `FAILED: ` and why."""
    shown = json.dumps(answer)
    if found := _LEAKS.search(shown):
        return f"FAILED: {found[0]} in {shown[:300]}"
    if "error" in answer:
        error = answer["error"]
        known = -32700 <= error["code"] <= -32600 and error["code"] != -32603 and error["message"]
        return f"refused: {error['code']}" if known else f"FAILED: {shown[:300]}"
    envelope = answer["result"].get("structuredContent")
    if not answer["result"].get("isError"):
        return "answered" if envelope and envelope["ok"] else f"FAILED: {shown[:300]}"
    if not envelope:
        return "refused: text" if answer["result"]["content"] else f"FAILED: {shown[:300]}"
    error = envelope["error"]
    clear = bool(error["message"]) and error["details"].get("kind") in ("usage", "not_found")
    return f"refused: {error['code']}" if clear else f"FAILED: {shown[:300]}"


def call_all(exchange: Exchange, version: str, count: int, rng: random.Random) -> Counter[str]:
    """What `count` calls came to; the server must answer a plain one afterwards."""
    request = open_conversation(exchange, version)
    tools = request("tools/list", {})["result"]["tools"]
    verdicts: Counter[str] = Counter()
    calls = hostile_calls(tools, rng)
    for _ in range(count):
        name, arguments = next(calls)
        try:
            verdict = judge(request("tools/call", {"name": name, "arguments": arguments}))
        except RecursionError:  # of this side, which cannot write such a message
            verdict = "not sent: nested too deeply"
        verdicts[verdict] += 1
        if verdict.startswith("FAILED"):
            print(f"{version} {name} {str(arguments)[:300]!a}\n  {verdict}")
    status = next(tool["name"] for tool in tools if tool["name"].endswith("status"))
    last = judge(request("tools/call", {"name": status, "arguments": {}}))
    if last != "answered":
        verdicts[f"FAILED: no answer afterwards: {last}"] += 1
    return verdicts


def main() -> None:
    """Serve, call, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    repository = Path(__file__).resolve().parent.parent
    failures = 0
    with tempfile.TemporaryDirectory(prefix="rag-bench-") as home:
        os.environ |= {
            "RAG_HOME": home,
            "RAG_CONFIG": str(repository / "rag_platform" / "defaults"),
        }
        ingest = [
            *SERVE[:-1],
            "ingest",
            str(repository / "rag_platform" / "samples"),
            "--strategy",
            "fast",
        ]
        subprocess.run(ingest, check=True, stdout=subprocess.DEVNULL)
        each = -(-options.count // (2 * len(VERSIONS)))
        for number, version in enumerate(VERSIONS):
            for name, opening in (("stdio", over_stdio()), ("http", over_http(version))):
                with opening as exchange:
                    rng = random.Random(f"{options.seed} {number} {name}")
                    verdicts = call_all(exchange, version, each, rng)
                failures += sum(n for key, n in verdicts.items() if key.startswith("FAILED"))
                rest = ", ".join(f"{key} {n}" for key, n in verdicts.most_common())
                print(f"{version} {name:<5} {each} calls: {rest}")
    print(f"{failures} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
