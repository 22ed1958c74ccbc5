"""Every command once, in one process that carries out their jobs too: `every_command.py OUT` writes
to OUT their exit codes, and which commands there are beside them. The current folder holds
`docs/ports.md` and `cases.yaml`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from rag_platform.cli.main import main
from rag_platform.processes import jobs
from rag_platform.web.guards import HEALTH_PATH

UI_PORT, DAGSTER_PORT = 8799, 8798


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> set[str]:
    """The names of all commands below one, words joined by blanks."""
    if not isinstance(command, click.Group):
        return {" ".join(path)}
    return set[str]().union(
        *(leaves(below, (*path, name)) for name, below in command.commands.items())
    )


KNOWN = leaves(main)
codes: dict[str, int] = {}


def rag(*words: str) -> Any:
    """The `data` of a command that is called in this process, with its trace_id."""
    name = words[0] if words[0] in KNOWN else " ".join(words[:2])
    found = CliRunner().invoke(main, [*words, "--json"])
    codes[name] = found.exit_code
    envelope = json.loads(found.stdout) if found.stdout.startswith("{") else {}
    return {"trace_id": envelope.get("trace_id"), **(envelope.get("data") or {})}


def each(group: str, *commands: str) -> None:
    """The commands of a group, each with its arguments after blanks."""
    for command in commands:
        rag(group, *command.split())


def ask_library() -> None:
    """What reads, and what is kept of questions."""
    asked = rag("query", "Which port does the gateway listen on?")
    trace = asked["trace_id"]
    each("trace", "list", f"show {trace}", "stats", f"replay {trace}", "export traces")
    rag("expect", "add", "Which port?", "--file", "ports.md")
    case = rag("expect", "list")["expectations"][0]["case_id"]
    each("expect", "run", f"remove {case}")
    rag("eval", "import", "cases.yaml")
    first, second = (
        rag("eval", "run", "--dataset", "cases", "--no-reuse")["run"]["run_id"] for _ in range(2)
    )
    each("eval", "list", f"show {first}", f"cases {first}", f"compare {first} {second}")
    each("eval", "trends retrieval.mrr@10", f"export {first} run.jsonl", "datasets", "canaries")
    each("eval", "drift", "gaps", "sample", "synthesize --size 2", "promote tiny")
    rag("bisect", "Which port?", "--expect", "ports.md")
    name = "retrieval/answer"
    each("prompts", "list", f"diff {name}@1 {name}@1", f"split {name}@1 --share 0.5")
    each("prompts", f"verdict {name}", f"try {name}@1 port", f"activate {name}@1")
    each("prompts", f"rollback {name}")
    each("sources", "list")
    each("namespaces", "list")
    each("mcp", "install --client vscode", "doctor --client vscode")
    rag("preview", "docs/ports.md")
    for command in ("status", "doctor", "init config"):
        rag(*command.split())
    rag("verify", "--all")


def change_library(doc: str, chunk: str) -> None:
    """What writes. Of the jobs, an ingestion and a hard deletion do all that there is to do; others
    are refused.
    """
    each("docs", f"show {doc}", f"summary {doc}", f"history {doc}", f"diff {doc}")
    each("docs", f"edit {doc} --title Ports", f"live {doc} --unpin")
    rag("drafts", "edit", doc, chunk, "--text", "The gateway listens on port 9090.")
    each("drafts", f"disable {doc} {chunk}", f"enable {doc} {chunk}", f"undo {doc}")
    each("drafts", f"split {doc} {chunk} 20", f"merge {doc} {chunk}", f"move {doc} {chunk}")
    each("drafts", f"reparent {doc} {chunk} {chunk}", "list", f"show {doc}", f"preview {doc}")
    each("drafts", f"rebase {doc}", f"discard {doc}", f"publish {doc}", f"revert {doc}")
    release = rag("releases", "list")["releases"][0]["release_id"]
    each("releases", f"show {release}", "diff", f"pin {release}", f"unpin {release}", "rollback")
    each("releases", "forward", f"publish {release} --override x", "pull", "push")
    each("releases", "export library.tar", "import library.tar")
    job = rag("jobs", "list")["jobs"][0]["job_id"]
    each("jobs", f"show {job}", f"retry {job}", f"cancel {job}")
    each("token", "create mine", "list", "revoke mine")
    rag("rebuild", "--plan")
    each("docs", f"delete {doc} --mode hard --yes")
    rag("gc", "--prove")
    rag("ledger", "copy", "data/ledger.sqlite", "copied.sqlite")
    each("servers", "list", "remove x")


def show_pages(name: str, port: int, path: str) -> None:
    """A command that shows pages, until it answers; it ends with 0 when it is told to."""
    command = [sys.executable, "-m", "rag_platform.cli.main", name, "--port", str(port)]
    pages = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1800):
            with contextlib.suppress(OSError):
                address = f"http://127.0.0.1:{port}{path}"
                codes[name] = urllib.request.urlopen(address).status - 200
                return
            time.sleep(0.1)
    finally:
        pages.terminate()
        codes[name] = codes.get(name, 1) or pages.wait()


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from rag_platform_tests.jobs_here import run_here

    jobs.launch = run_here
    rag("ingest", "docs")
    document = rag("docs", "list")["groups"][0]["documents"][0]["doc_id"]
    hits = rag("query", "Which port does the gateway listen on?")["results"]
    ask_library()
    change_library(document, hits[0]["chunk_id"])
    show_pages("ui", UI_PORT, HEALTH_PATH)
    show_pages("dagster", DAGSTER_PORT, "/server_info")
    found = {"codes": codes, "others": sorted(KNOWN - codes.keys())}
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")
