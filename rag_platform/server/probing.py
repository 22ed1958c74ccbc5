"""Starts a server as a client would, and reports what it finds."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from rag_platform.errors import innermost
from rag_platform.server.client_files import Launch
from rag_platform.text.wording import pluralise

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what Claude Desktop and others accept
_SECONDS = 120.0
# variables that clients pass on from their own environment
_INHERITED = ("HOME", "PATH", "LANG", "TMPDIR", "APPDATA", "LOCALAPPDATA", "SYSTEMROOT", "TEMP")


@dataclass
class Probe:
    """The result of starting a server: figures, and problems."""

    seconds: float = 0.0  # from the start of the process to the answer to `initialize`
    server: str = ""
    tools: list[str] = field(default_factory=list)
    collections: list[Any] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def markdown(self, command: str) -> str:
        lines = [f"started: {command}"]
        if self.server:
            lines += [
                f"ok       {self.server} answered after {self.seconds:.1f} s",
                f"ok       {pluralise(len(self.tools), 'tool')}: {', '.join(self.tools)}",
            ]
        lines += [
            f"ok       library {row['namespace']}: {pluralise(row['documents'], 'document')}"
            for row in self.collections
        ]
        return "\n".join([*lines, *(f"error    {problem}" for problem in self.problems)])


def probe(launch: Launch, folder: Path) -> Probe:
    """Start the server in `folder` with the environment of its entry, list its tools and libraries,
    and stop it; everything wrong with the server becomes a problem.
    """
    found = Probe()
    if shutil.which(launch.command) is None:
        found.problems.append(
            f"the program {launch.command} is not there; run `rag mcp install` again"
        )
        return found
    with tempfile.TemporaryFile(mode="w+", encoding="utf-8") as log:
        try:
            anyio.run(_query_server, launch, folder, found, log)
        except Exception as error:  # noqa: BLE001 (any failure of the server is a finding)
            inner = innermost(error)
            described = f"{type(inner).__name__}: {inner}".strip(": ")
            log.seek(0)
            last_lines = [line for line in log.read().splitlines() if line.strip()][-5:]
            found.problems.append(
                f"the server did not answer ({described}); it printed last:"
                + "".join(f"\n           {line[:300]}" for line in last_lines or ["nothing"])
            )
    if bad := [name for name in found.tools if not TOOL_NAME.fullmatch(name)]:
        found.problems.append(
            f"{len(bad)} tool names have other characters than letters, digits, _ and -, which"
            f" Claude Desktop and others refuse: {bad[0]}; unset"
            " RAG_SERVER__UNDERSCORE_TOOL_NAMES"
        )
    return found


async def _query_server(launch: Launch, folder: Path, found: Probe, log: Any) -> None:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    parameters = StdioServerParameters(
        command=launch.command, args=list(launch.args), env={**env, **launch.env}, cwd=str(folder)
    )
    began = time.monotonic()
    with anyio.fail_after(_SECONDS):
        async with Client(stdio_client(parameters, errlog=log)) as client:
            found.seconds = time.monotonic() - began
            info = client.server_info
            found.server = f"{info.name} {info.version}" if info else "the server"
            found.tools = [tool.name for tool in (await client.list_tools()).tools]
            name = next((it for it in found.tools if it.endswith("list_collections")), "")
            if not name:
                found.problems.append("it is no rag server: it has no tool list_collections")
                return
            listed = (await client.call_tool(name, {})).structured_content or {}
            found.collections = (listed.get("data") or {}).get("collections", [])
            if not found.collections:
                home = launch.env.get("RAG_HOME", "its default data root")
                found.problems.append(f"nothing is published in {home}: `rag ingest PATH` first")
            found.problems += [
                f"library {row['namespace']}: {row['problem']}"
                for row in found.collections
                if row["problem"]
            ]
