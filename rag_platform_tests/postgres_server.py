"""A real PostgreSQL server in a temporary folder, for tests: no root, no network beyond this
machine, nothing left behind.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

PASSWORD = "Zwiebel%2Fturm"  # percent-encoded, as in a URL
_NAMES = count()


@cache
def why_none() -> str:
    """Why no server can be started here; empty where one can."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed (extra `postgres`)"
    if _folder() is None:
        return "no PostgreSQL server is installed"
    if os.getuid() == 0 and not _user():
        return "PostgreSQL refuses root, and there is no user `postgres` to run it"
    return ""


@cache
def _folder() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    path = found[-1] if found else shutil.which("initdb")
    return Path(path).parent if path else None


@cache
def _user() -> dict[str, Any]:
    """As whom the server runs: PostgreSQL refuses root."""
    if os.getuid():
        return {}
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        return {}
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


class PostgresServer:
    """One server; `kill` and `start` make it go and come back as a crash does."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rag-pg-"))
        if _user():
            os.chown(self.folder, _user()["user"], _user()["group"])
        password = self.folder / "password"
        password.write_text("Zwiebel/turm\n")
        password.chmod(0o644)
        self._run(
            "initdb", "-D", "data", "-U", "rag", "-A", "scram-sha-256", "--pwfile=password",
            "--no-sync", "--locale=C.UTF-8", "-E", "UTF8",
        )  # fmt: skip
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        folder = _folder()
        assert folder is not None
        subprocess.run(
            [folder / program, *arguments],
            cwd=self.folder, check=True, capture_output=True, **_user(),
        )  # fmt: skip

    def start(self) -> None:
        """Start it, and wait until it answers."""
        import psycopg

        folder = _folder()
        assert folder is not None
        settings = {"fsync": "off", "listen_addresses": "127.0.0.1", "max_connections": "60"}
        self.process = subprocess.Popen(
            [
                folder / "postgres", "-D", "data", "-p", str(self.port), "-k", "",
                *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
            ],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **_user(),
        )  # fmt: skip
        until = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.base).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < until and self.process.poll() is None
                time.sleep(0.05)

    def stop(self) -> None:
        """End it at once, as a crash would: the next start recovers."""
        assert self.process is not None
        self.process.send_signal(3)  # SIGQUIT: immediate shutdown, children included
        self.process.wait(30)

    def close(self) -> None:
        """End it and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder)

    @property
    def base(self) -> str:
        """The URL of its database."""
        return f"postgresql://rag:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def new_url(self) -> str:
        """The URL of a new, empty schema."""
        import psycopg

        name = f"ledger{next(_NAMES)}"
        with psycopg.connect(self.base, autocommit=True) as db:
            db.execute(f"CREATE SCHEMA {name}")
        return f"{self.base}?options=-csearch_path%3D{name}"
