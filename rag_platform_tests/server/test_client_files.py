"""The files of MCP clients: an entry is put in and nothing else is touched, and what stands there
is started as the client would.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rag_platform.cli.connecting import CLIENTS
from rag_platform.cli.main import main
from rag_platform.errors import InputError, NotFoundError
from rag_platform.server.client_files import Launch, client_files
from rag_platform.server.probing import probe
from rag_platform_tests.conftest import REPOSITORY

LAUNCH = Launch("/opt/rag", ("serve", "--allow", "ingest"), {"RAG_HOME": '/tmp/"home" 书'})
ZED = """// Zed settings
{
  "theme": "One", // nice, { and "quotes"
  "url": "http://x.example/", /* a
  block */
  "context_servers": {
    // mine
    "other": {"command": "x", "args": [1, 2,],},
  },
}
"""
CODEX = """model = "o5"  # mine

[mcp_servers.other]
command = "x"

[mcp_servers.rag]
command = "old"

[mcp_servers.rag.env]
OLD = "1"

[profiles.fast]
effort = "low"
"""


def files(tmp_path: Path) -> Any:
    return client_files(tmp_path / "user", tmp_path / "project")


def test_every_client_of_the_command_has_a_file(tmp_path: Path) -> None:
    assert tuple(files(tmp_path)) == CLIENTS


@pytest.mark.parametrize("client", CLIENTS[:-1])
def test_an_entry_is_written_once_and_read_back(tmp_path: Path, client: str) -> None:
    file = files(tmp_path)[client]
    with pytest.raises(NotFoundError, match=f"--client {client} --write"):
        file.read("rag")
    _, after = file.merge("rag", LAUNCH)
    file.write(after)
    assert file.read("rag") == LAUNCH
    assert file.merge("rag", LAUNCH) == (after, after)
    other = Launch("/opt/rag", ("serve",), {"RAG_HOME": "/elsewhere"})
    file.write(file.merge("rag", other)[1])
    file.write(file.merge("second", LAUNCH)[1])
    assert (file.read("rag"), file.read("second")) == (other, LAUNCH)


def test_comments_and_other_entries_stay(tmp_path: Path) -> None:
    file = files(tmp_path)["zed"]
    file.write(ZED)
    after = file.merge("rag", LAUNCH)[1]
    added = [line for line in after.splitlines() if line not in ZED.splitlines()]
    assert set(ZED.splitlines()) <= set(after.splitlines()) and '    "rag": {' in added
    file.write(after)
    assert file.read("other").args == ("1", "2") and file.read("rag") == LAUNCH


def test_tables_of_others_stay(tmp_path: Path) -> None:
    file = files(tmp_path)["codex"]
    file.write(CODEX)
    after = file.merge("rag", LAUNCH)[1]
    found, known = tomllib.loads(after), tomllib.loads(CODEX)
    assert found["mcp_servers"]["rag"]["env"] == dict(LAUNCH.env) and "# mine" in after
    assert found["mcp_servers"]["other"] == known["mcp_servers"]["other"]
    assert (found["model"], found["profiles"]) == (known["model"], known["profiles"])


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("cursor", '{"mcpServers": {'),
        ("cursor", "[]"),
        ("cursor", '{"mcpServers": []}'),
        ("codex", "model = "),
        ("codex", 'text = """\n[mcp_servers.rag]\nin a string\n"""\n'),
    ],
)
def test_a_file_that_cannot_be_read_is_left_as_it_is(
    tmp_path: Path, client: str, text: str
) -> None:
    file = files(tmp_path)[client]
    file.write(text)
    with pytest.raises(InputError, match="left as it is"):
        file.merge("rag", LAUNCH)
    assert file.path.read_text(encoding="utf-8") == text


def test_the_command_shows_then_writes(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: desk.folder / "user")
    asked = ("mcp", "install", "--client", "cursor", "--allow", "ingest")
    file = desk.folder / "user" / ".cursor" / "mcp.json"
    shown = desk.call(*asked)
    assert shown.data["changed"] and not shown.data["written"] and not file.exists()
    assert desk.call(*asked, "--write").data["written"]
    entry = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["rag"]
    assert entry["args"][-3:] == ["serve", "--allow", "ingest"]
    assert entry["env"]["RAG_HOME"] == str(desk.store.home)
    assert not desk.call(*asked, "--write").data["changed"]
    assert desk.call(*asked, "--allow", "delete,expect", "--write").data["changed"]
    entry = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["rag"]
    assert entry["args"][-2:] == ["--allow", "ingest,delete,expect"]
    refused = CliRunner().invoke(main, ["mcp", "install", "--allow", "everything"])
    assert refused.exit_code == 2 and "known: ingest, delete, expect" in refused.output


@pytest.mark.e2e
def test_the_server_is_started_as_the_client_would(desk: Any) -> None:
    env = {
        "RAG_HOME": str(desk.store.home),
        "RAG_CONFIG": str(desk.folder / "config"),
        "RAG_LEDGER": desk.store.database,
        "PYTHONPATH": str(REPOSITORY),
    }
    launch = Launch(sys.executable, ("-m", "rag_platform.cli.main", "serve"), env)
    empty = probe(launch, desk.folder)
    assert "library_query" in empty.tools and "nothing is published" in empty.problems[0]
    desk.write(ports="# Ports\n\nThe gateway listens on port 8080.\n")
    desk.publish()
    found = probe(launch, desk.folder)
    assert found.problems == [] and found.collections[0]["documents"] == 1
    assert "1 document" in found.markdown("rag serve")
    wrong = probe(Launch(sys.executable, ("-c", "raise SystemExit('no config')"), {}), desk.folder)
    assert "no config" in wrong.problems[0]
    assert "is not there" in probe(Launch("/no/rag", (), {}), desk.folder).problems[0]
