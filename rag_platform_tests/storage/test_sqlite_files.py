"""A data root that cannot be written answers, lists, verifies, serves and is diagnosed; what would
write says so.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from rag_platform.errors import IntegrityError, StorageError
from rag_platform.ledger.ledger import open_ledger
from rag_platform.ledger.schema import Source
from rag_platform.storage.sqlite_files import ReadOnlyFile, connect
from rag_platform.storage.store import Store
from rag_platform_tests.conftest import PORTS, Answer, Desk, seated

pytestmark = pytest.mark.e2e

# root may write everywhere unless it gives that up
UNPRIVILEGED = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk with one document published, whose data root is written no more."""
    if UNPRIVILEGED and shutil.which("setpriv") is None:
        pytest.skip("this is root, and without setpriv it cannot give up writing everywhere")
    with seated(tmp_path_factory.mktemp("sealed") / "desk") as desk:
        desk.write(ports=PORTS)
        # a process of its own: it closes the ledger
        assert desk.rag("ingest", desk.docs).exit_code == 0
        assert not (desk.store.home / "ledger.sqlite-wal").exists()
        seal(desk.store.home, "a-w")
        yield desk
        seal(desk.store.home, "u+w")


def seal(home: Path, mode: str) -> None:
    subprocess.run(["chmod", "-R", mode, str(home)], check=True)


QUESTION = "Which port does the gateway listen on?"
READING = (
    "docs list",
    "docs show ports.md",
    "docs history ports.md",
    "verify --all",
    "status",
    "releases list",
    "jobs list",
    "trace list",
    "sources list",
    "rebuild --plan",
    "gc --prove ports.md",
    "gc --plan",
)
WRITING = (
    "ingest docs",
    "docs delete ports.md --yes",
    "gc",
    "docs edit ports.md --title T",
    "expect add q --file ports.md",
    "eval run --dataset golden",
)


@pytest.fixture(scope="module")
def answers(sealed: Desk) -> dict[str, Answer]:
    """What commands answered in a process that cannot write the data root."""
    asked = [["query", QUESTION], ["doctor"], *(each.split() for each in (*READING, *WRITING))]
    found = sealed.ask_all(asked, *UNPRIVILEGED)
    # of logs and traces, once a process
    assert sum(answer.said.count("of this process are not kept") for answer in found.values()) == 1
    return found


def test_questions_are_answered_by_both_legs(answers: dict[str, Answer]) -> None:
    answer = answers[f"query {QUESTION}"]
    assert "8080" in answer.data["answer_markdown"] and answer.data["effective_mode"] == "hybrid"
    assert answer.envelope["warnings"] == []


@pytest.mark.parametrize("args", READING)
def test_what_reads(answers: dict[str, Answer], args: str) -> None:
    assert answers[args].exit_code == 0, answers[args]
    assert "Traceback" not in answers[args].said


def test_doctor_says_what_is_the_matter(answers: dict[str, Answer]) -> None:
    (found,) = [f for f in answers["doctor"].data["findings"] if f["subject"] == "data root"]
    assert found["level"] == "warning" and "cannot be written by this process" in found["message"]


@pytest.mark.parametrize("args", WRITING)
def test_what_writes_says_so(answers: dict[str, Answer], args: str) -> None:
    assert (answers[args].exit_code, answers[args].error["code"]) == (1, "read_only")


def test_a_data_root_in_a_folder_that_is_closed_to_this_user_is_said(
    sealed: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (closed := tmp_path / "closed").mkdir(mode=0)
    monkeypatch.setenv("RAG_HOME", str(closed / "data"))
    answer = sealed.ask_all([["ingest", str(sealed.docs)]], *UNPRIVILEGED)[f"ingest {sealed.docs}"]
    closed.chmod(0o700)
    assert answer.error["code"] == "read_only" and "Traceback" not in answer.said


def test_it_is_served(sealed: Desk) -> None:
    async def ask() -> Any:
        command = [*UNPRIVILEGED, sys.executable, "-m", "rag_platform.cli.main", "serve"]
        parameters = StdioServerParameters(
            command=command[0], args=command[1:], env=dict(os.environ), cwd=sealed.folder
        )
        with open(os.devnull, "w", encoding="utf-8") as quiet:
            async with Client(stdio_client(parameters, errlog=quiet)) as client:
                return await client.call_tool("library_query", {"query": QUESTION})

    found = anyio.run(ask)
    assert not found.is_error and "8080" in str(found.content)


# --- the ledger while somebody else writes it ---------------------------------------------------


def source(name: str) -> Source:
    return Source("default", name, "folder", "/docs")


def names(file: ReadOnlyFile) -> list[str]:
    return [row[0] for row in file.db().execute("SELECT name FROM sources ORDER BY name")]


def test_what_is_not_yet_in_the_file_is_read_too(tmp_path: Path) -> None:
    ledger = open_ledger(Store(tmp_path))
    ledger.put_source(source("one"))
    # as a backup, or a machine that went down, leaves it: a log, and no shared memory
    left = tmp_path / "left"
    left.mkdir()
    for end in ("", "-wal"):
        shutil.copy(tmp_path / f"ledger.sqlite{end}", left / f"ledger.sqlite{end}")
    assert names(ReadOnlyFile(left / "ledger.sqlite")) == ["one"]
    assert sorted(path.name for path in left.iterdir()) == ["ledger.sqlite", "ledger.sqlite-wal"]
    reader = ReadOnlyFile(tmp_path / "ledger.sqlite")
    assert names(reader) == ["one"]
    ledger.put_source(source("two"))
    assert names(reader) == ["one", "two"]
    ledger.close()  # the log goes into the file
    assert names(reader) == ["one", "two"]
    reader.close()


def test_a_file_that_was_closed_well_is_read_until_it_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = open_ledger(Store(tmp_path))
    ledger.put_source(source("one"))
    ledger.close()
    reader = ReadOnlyFile(path)
    assert names(reader) == ["one"] and [item.name for item in tmp_path.iterdir()] == [
        "ledger.sqlite"
    ]
    with sqlite3.connect(path) as db:
        db.execute("UPDATE sources SET name = 'changed'")
    db.close()
    assert names(reader) == ["changed"]
    reader.close()


def test_nothing_is_written_through_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = open_ledger(Store(tmp_path))
    written.put_source(source("none"))
    written.close()
    monkeypatch.setattr("rag_platform.ledger.backends.has_room", lambda path: False)
    ledger = open_ledger(Store(tmp_path))
    with pytest.raises(StorageError, match="cannot be written by this process"):
        ledger.put_source(source("one"))
    assert [item.name for item in ledger.sources()] == ["none"]


def test_a_file_that_another_is_making_is_waited_for(tmp_path: Path) -> None:
    """SQLite refuses WAL mode at once where another process writes the new file."""
    path = tmp_path / "new.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE first (value)")
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        connect(path, timeout=0.2)
    late = threading.Timer(0.3, other.execute, ["COMMIT"])
    late.start()
    db = connect(path, timeout=60)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("SELECT count(*) FROM first").fetchone() == (0,)
    late.join()
    db.close()
    other.close()


def test_what_is_no_database_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"no database at all, " * 400)
    told = f"{path} is damaged (file is not a database); put it back from a backup"
    for opened in (
        lambda: connect(path, timeout=1, remedy=", or delete the cache"),
        lambda: ReadOnlyFile(path).db(),
    ):
        with pytest.raises(IntegrityError) as refused:
            opened()
        assert refused.value.code == "damaged_file"
        assert refused.value.message.removesuffix(", or delete the cache") == told
