"""A real S3 server for tests: moto's, in memory, started from wherever it is installed; and s3rver,
which ignores the conditions of a write.

Neither is a package of this project's environment: moto wants an older python-dateutil than
chromadb's kubernetes. `pipx install 'moto[server]'`, `npm install -g s3rver`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from functools import cache
from itertools import count
from pathlib import Path

import httpx

_NAMES = count()
KEYS = {
    "AWS_ACCESS_KEY_ID": "S3RVER",
    "AWS_SECRET_ACCESS_KEY": "S3RVER",
    "AWS_REGION": "us-east-1",
}


@cache
def find_program(name: str, variable: str) -> str:
    """The path of a server's program: what the variable says, beside this Python, or on the PATH;
    empty where there is none.
    """
    beside = Path(sys.executable).with_name(name)
    found = os.environ.get(variable) or (beside if beside.is_file() else shutil.which(name))
    return str(found or "")


def why_none(name: str = "moto_server", variable: str = "RAG_TEST_MOTO") -> str:
    """Why no server can be started here; empty where one can."""
    if importlib.util.find_spec("obstore") is None:
        return "obstore is not installed (extra `s3`)"
    if not find_program(name, variable):
        return f"there is no {name} on the PATH, and {variable} names none"
    return ""


class S3Server:
    """One server on this machine; `kill` and `start` make it go and come back, empty."""

    def __init__(self, *command: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.command = command
        self.start()

    @classmethod
    def moto(cls) -> S3Server:
        """The server that heeds conditions."""
        return cls(find_program("moto_server", "RAG_TEST_MOTO"), "-H", "127.0.0.1", "-p")

    @classmethod
    def careless(cls, folder: Path) -> S3Server:
        """The server that does not."""
        program = find_program("s3rver", "RAG_TEST_S3RVER")
        return cls(program, "-d", str(folder), "-a", "127.0.0.1", "-p")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen(
            [*self.command, str(self.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 60
        while True:
            try:
                httpx.get(self.url)
                return
            except httpx.TransportError:
                assert time.monotonic() < until and self.process.poll() is None
                time.sleep(0.05)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def variables(self) -> dict[str, str]:
        """The environment under which a program uses a new, empty bucket."""
        name = f"library{next(_NAMES)}"
        httpx.put(f"{self.url}/{name}").raise_for_status()
        return {
            **KEYS,
            "AWS_ENDPOINT_URL": self.url,
            "RAG_BLOBS__PROVIDER": "s3",
            "RAG_BLOBS__BUCKET": name,
        }
