"""The commands of docs/lifecycle.md that back a data root up while it answers, and restore it in
another place.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rag_platform.answering.engine import answer
from rag_platform.evaluation.runs import open_library
from rag_platform.ir import QueryRequest
from rag_platform_tests.conftest import PORTS, Desk, seated

pytestmark = pytest.mark.integration

DOCS = Path(__file__).resolve().parent.parent / "docs" / "lifecycle.md"


def blocks() -> list[str]:
    text = DOCS.read_text(encoding="utf-8").split("## Backup, restore and upgrade\n")[1]
    return re.findall(r"^```sh\n(.*?)^```", text.split("\n## ")[0], re.M | re.S)


def run(commands: str) -> str:
    """What the commands print; `rag` is this program."""
    rag = f'rag() {{ "{sys.executable}" -m rag_platform.cli.main "$@"; }}\n'
    shell = ["bash", "-euo", "pipefail", "-c", rag + commands]
    ended = subprocess.run(shell, capture_output=True, encoding="utf-8")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def ask_until(stop: threading.Event, desk: Desk, found: list[bool]) -> None:
    with open_library(desk.settings, desk.store) as library:
        while not stop.is_set():
            found.append(answer(library, QueryRequest("Which port is the gateway on?")).answered)


def test_a_library_is_restored_elsewhere_from_a_backup_made_while_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, restore = blocks()
    with seated(tmp_path / "desk") as desk:
        desk.write(ports=PORTS, gone="# Gone\n\nThe zebra quota is 12.\n")
        assert desk.call("ingest", desk.docs, "--sync").exit_code == 0
        assert desk.call("docs", "delete", "gone", "--yes").exit_code == 0
        port = desk.docs / "ports.md"
        assert desk.call("ingest", port, "--namespace", "second").exit_code == 0
        stop, found = threading.Event(), list[bool]()
        asking = threading.Thread(target=ask_until, args=(stop, desk, found))
        asking.start()
        monkeypatch.setenv("BACKUP", str(tmp_path / "backup"))
        try:
            run(backup)
        finally:
            stop.set()
            asking.join()
        assert found and all(found)
        desk.store.home.rename(tmp_path / "lost")
        for name in ("RAG_HOME", "RAG_CONFIG"):
            monkeypatch.setenv(name, str(tmp_path / "new" / name))
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "new" / "RAG_HOME" / "dagster"))
        said = run(restore)
        proved = r"chunks? checked against the raw bytes, 0 could not be proved"
        assert len(re.findall(proved, said)) == 2
        assert "What is wrong" not in said and os.environ["RAG_HOME"] in said

        docs = desk.docs.rename(tmp_path / "new" / "docs")
        synced = desk.call("ingest", docs, "--sync", "--source", "docs", "--moved")
        assert synced.exit_code == 0, synced.said
        assert synced.data["markdown"].startswith("1 skipped, 1 ignored, "), synced.said
