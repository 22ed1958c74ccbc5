"""The official inspector's command line against the server, over standard input and output and over
HTTP, in both eras of the protocol: it lists everything (tools strictly), reads a resource of each
kind, gets every prompt and calls every tool.

    python tools/inspector.py [--folder .conformance]

Node and the inspector are installed into the folder; where that is not possible the reason is
printed and nothing is checked. Over standard input and output each step is a process of its own,
so all of it takes some five minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from node_programs import FOLDER, RAG, free_port, install, samples, serving

INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
ERAS = ("legacy", "modern")
WAIT_MS = "120000"  # for a server that starts on a busy machine
STEP_SECONDS = 300
SERVE = ["serve", "--allow", "ingest,delete,expect"]
Inspect = Callable[..., Any]  # (method, options; the error that is expected) -> the result


class Failed(Exception):
    """A step that did not end as it should; the message says how."""


def inspecting(node: Path, program: Path, era: str, url: str) -> Inspect:
    """Asks the server at an address, or one that is started for each step where there is none."""
    environment = {name: os.environ[name] for name in ("RAG_HOME", "RAG_CONFIG", "PYTHONPATH")}
    started = [item for pair in environment.items() for item in ("-e", "=".join(pair))]
    where = ["--server-url", url, "--transport", "http"] if url else started
    target = [] if url else ["--", sys.executable, *RAG, *SERVE]

    def inspect(method: str, *options: str, refusal: str = "") -> Any:
        # what stands behind the target belongs to it: `--cli` there opens the inspector's pages
        how = ["--cli", "-q", "--format", "json", "--protocol-era", era, *where]
        asked = [*how, "--connect-timeout", WAIT_MS, "--method", method, *options, *target]
        try:
            ended = subprocess.run(
                [node, program, *asked], capture_output=True, text=True, timeout=STEP_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{method} {' '.join(options)}: no end in {STEP_SECONDS} s") from None
        answer = json.loads(ended.stdout) if ended.stdout.strip() else {}
        told = ended.stdout or ended.stderr
        expected = refusal and f'"{refusal}"' in told
        if "result" not in answer or (ended.returncode and not expected):
            raise Failed(f"{method} {' '.join(options)}: exit {ended.returncode}: {told[:500]}")
        return answer["result"]

    return inspect


def check(inspect: Inspect) -> int:
    """Every step over one transport in one era; returns how many. Raises Failed."""
    steps = 0

    def ask(method: str, *options: str, refusal: str = "") -> Any:
        nonlocal steps
        steps += 1
        return inspect(method, *options, refusal=refusal)

    def call(name: str, refusal: str = "", **arguments: Any) -> Any:
        options = ("--tool-name", f"library_{name}", "--tool-args-json", json.dumps(arguments))
        found = ask("tools/call", *options, refusal=refusal)
        called.add(f"library_{name}")
        return found["structuredContent"]["data"]

    called: set[str] = set()
    tools = {tool["name"] for tool in ask("tools/list", "--strict")["tools"]}
    listed = ask("resources/list")["resources"]
    templates = ask("resources/templates/list")["resourceTemplates"]
    prompts = ask("prompts/list")["prompts"]

    call("list_collections")
    call("list_documents", limit=2)
    found = call("query", query="What is the maximum throughput of the PX-40?")
    chunk, doc_id = found["results"][0]["uri"], found["results"][0]["doc_id"]
    call("get_chunk", chunk_id=chunk, after=1)
    call("get_document", doc_id=doc_id, format="outline")
    call("summarize_document", doc_id=doc_id)
    call("verify", answer=found["answer_markdown"], sources=[chunk])
    call("status")
    shown = call("query", query="parcel, lane and chute")
    picture = next((uri for it in shown["results"] for uri in it.get("asset_uris", ())), "")
    if not picture:
        raise Failed("no result has a picture")
    call("query_assets", asset_ids=[picture])
    job = call("ingest", content="# Inspected", filename="inspected.md", wait=60)
    call("get_job", job_id=job["job_id"], wait=60)
    call("cancel_job", "nothing_to_cancel", job_id=job["job_id"])  # it has ended
    call("expect", action="list")
    groups = call("list_documents", limit=50)["groups"]
    rows = [row for group in groups for row in group["documents"]]
    added = next(row for row in rows if row["doc_id"].startswith("inspected"))
    plan = call("delete_document", doc_id=added["doc_id"])
    call("delete_document", doc_id=added["doc_id"], confirm=plan["confirm"], wait=60)
    if left := tools - called:
        raise Failed(f"no step calls {', '.join(sorted(left))}")

    uris = {"doc": f"doc://{doc_id}", "chunk": chunk, "asset": picture, "ui": listed[0]["uri"]}
    if missing := {it["uriTemplate"].partition(":")[0] for it in templates} - uris.keys():
        raise Failed(f"no step reads {', '.join(sorted(missing))}")
    for uri in uris.values():
        ask("resources/read", "--uri", uri)
    values = {"question": "How fast is it?", "since": "2026-01-01"}
    for prompt in prompts:
        given = [
            f"{argument['name']}={values[argument['name']]}"
            for argument in prompt["arguments"]
            if argument.get("required")
        ]
        options = ["--prompt-args", *given] if given else []
        ask("prompts/get", "--prompt-name", prompt["name"], *options)
    return steps


def main() -> None:
    """Run everything; the exit code is 1 where something fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=FOLDER)
    folder = parser.parse_args().folder.resolve()
    try:
        node, program = install(folder, INSPECTOR, "clients/launcher/build/index.js")
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: Node and the inspector cannot be installed here ({error})")
        return
    failed = False
    with samples():
        port = free_port()
        with serving([*RAG, *SERVE, "--http", "--port", str(port)], port) as url:
            for name, address in (("HTTP", url), ("standard input and output", "")):
                for era in ERAS:
                    try:
                        steps = check(inspecting(node, program, era, address))
                        print(f"{name}, {era}: {steps} steps pass", flush=True)
                    except Failed as error:
                        failed = True
                        print(f"{name}, {era}: {error}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
