"""Nothing leaves the machine: the program at work where every attempt to reach another one is
counted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rag_platform.telemetry import SWITCHES
from rag_platform_tests import every_command
from rag_platform_tests.conftest import PORTS

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLES = REPOSITORY / "rag_platform" / "samples"

# Inside the name space: the loopback up, every name asked for noted, the commands run one after the
# other, then both counters told.
INSIDE = """
import fcntl, json, re, socket, struct, subprocess, sys, threading

def counted():
    names, values = (line.split()[1:] for line in open("/proc/net/snmp") if line.startswith("Ip:"))
    return int(dict(zip(names, values))["OutNoRoutes"])

def named(packet):
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode("ascii", "replace"))
        at += 1 + packet[at]
    return ".".join(labels)

def listen(server, asked):
    while True:
        asked.append(named(server.recvfrom(4096)[0]))

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
    fcntl.ioctl(device, 0x8914, struct.pack("16sh", b"lo", 1 | 64))  # SIOCSIFFLAGS: up, running
server, asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
server.bind(("127.0.0.1", 53))
threading.Thread(target=listen, args=(server, asked), daemon=True).start()
ended = [(done.returncode, done.stderr[-2000:]) for command in json.loads(sys.argv[1])
         for done in [subprocess.run(command, capture_output=True, text=True)]]
found = {"ended": ended, "asked": list(asked), "no_route": counted()}
planted = "import socket, sys; s = socket.socket(); s.settimeout(1); \
print(s.connect_ex(('192.0.2.1', 443)))"
subprocess.run([sys.executable, "-c", planted + "; socket.getaddrinfo('planted.test', 443)"], \
capture_output=True, timeout=60)
json.dump({**found, "asked_after": list(asked), "no_route_after": counted()}, sys.stdout)
"""

SERVE = """
import anyio, os, sys
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

async def session():
    server = StdioServerParameters(command=sys.executable, args=["-m", "rag_platform.cli.main", \
"serve"], env=dict(os.environ))
    with open(os.devnull, "w") as log:
        async with Client(stdio_client(server, errlog=log)) as client:
            found = await client.call_tool("library_query", {"query": "What is the maximum \
throughput of the PX-40?"})
            assert found.structured_content["data"]["results"][0]["cited"]

anyio.run(session)
"""


def cut_off(tmp_path: Path, *commands: list[str], **environment: str) -> dict[str, Any]:
    """What the commands tried to reach, run in a network of their own with a home of their own;
    skips where there are no name spaces.
    """
    if shutil.which("unshare") is None:
        pytest.skip("no program `unshare` makes name spaces here")
    home = tmp_path / "user"
    home.mkdir()
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", encoding="ascii")
    kept = ("PATH", "PYTHONPATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
    clean = {name: os.environ[name] for name in kept if name in os.environ}
    script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
    ended = subprocess.run(
        [
            "unshare",
            "-rnm",
            "sh",
            "-c",
            script,
            str(resolver),
            sys.executable,
            "-c",
            INSIDE,
            json.dumps(commands),
        ],
        capture_output=True,
        text=True,
        env={**clean, "HOME": str(home), **environment},
        cwd=tmp_path,
        timeout=500,
        check=False,
    )
    if "unshare" in ended.stderr or "mount" in ended.stderr:
        pytest.skip(f"no name space of its own can be had here: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert "planted.test" in found["asked_after"] and found["no_route_after"] > found["no_route"], (
        "the counters do not count"
    )
    found["left"] = sorted(
        path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()
    )
    return found


@pytest.mark.e2e
def test_no_command_at_all_asks_for_another_machine(tmp_path: Path, config_folder: Path) -> None:
    """Of every command that there is; a new one that nobody listed here is named."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "ports.md").write_text(PORTS, encoding="utf-8")
    (tmp_path / "cases.yaml").write_text(
        "- {case_id: a, query: Which port, expected_files: [ports.md]}\n", encoding="utf-8"
    )
    out = tmp_path / "codes.json"
    found = cut_off(
        tmp_path,
        [sys.executable, str(Path(every_command.__file__)), str(out)],
        RAG_HOME=str(tmp_path / "data"),
        RAG_CONFIG=str(config_folder),
    )
    assert found["ended"][0][0] == 0, found["ended"]
    assert (found["asked"], found["no_route"]) == ([], 0)
    told = json.loads(out.read_text(encoding="utf-8"))
    assert told["others"] == ["demo", "serve"]  # the test below has them
    assert {name for name, code in told["codes"].items() if code} == REFUSED, told


# what finds nothing to do in so small a library, or has no language model or object store to ask
REFUSED = {
    *("docs diff", "docs live", "drafts disable", "drafts enable", "drafts merge", "drafts move"),
    *("drafts publish", "drafts reparent", "drafts revert", "eval promote", "gc", "jobs cancel"),
    *(
        "jobs retry",
        "mcp doctor",
        "prompts activate",
        "prompts rollback",
        "prompts split",
        "prompts try",
    ),
    "prompts verdict",
    *("releases import", "releases pull", "releases push", "servers remove"),
}


@pytest.mark.e2e
def test_no_command_asks_for_another_machine(tmp_path: Path) -> None:
    rag = [sys.executable, "-m", "rag_platform.cli.main"]
    found = cut_off(
        tmp_path,
        [*rag, "demo"],  # which reads a PDF file and asks three questions
        [sys.executable, "-c", SERVE],
        RAG_HOME=str(tmp_path / "data"),
        RAG_CONFIG=str(REPOSITORY / "rag_platform" / "defaults"),
    )
    assert [code for code, _ in found["ended"]] == [0, 0], found["ended"]
    assert (found["asked"], found["no_route"]) == ([], 0)
    assert not [
        path
        for path in found["left"]
        if "Microsoft" in path or "telemetry" in path.lower() or "deviceid" in path
    ], found["left"]


DOORS = (
    "rag_platform.cli.main rag_platform.server.app rag_platform.definitions"
    " rag_platform.assets.job_process rag_platform.assets.launch rag_platform.assets.instance"
    " rag_platform.intake.loader_child rag_platform.indexes.embedding_pool"
    " rag_platform.server.worker_pool rag_platform.loaders.pdf.mupdf"
).split()


@pytest.mark.integration
@pytest.mark.parametrize("modules", [["rag_platform"], DOORS], ids=["package", "doors"])
def test_every_door_switches_it_off_whatever_the_environment_says(modules: list[str]) -> None:
    """The package alone does it, before any module of it is loaded, and no door undoes it."""
    code = textwrap.dedent(f"""
        import gc, json, os, sys
        gc.disable()  # a third of the time of so many imports
        import {", ".join(modules)}
        json.dump({{name: os.environ.get(name) for name in {sorted(SWITCHES)!r}}}, sys.stdout)
        gc.freeze()
    """)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in SWITCHES},
        "ORT_DISABLE_TELEMETRY": "0",
    }
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    ).stdout
    assert json.loads(said) == SWITCHES
