"""A data root whose ledger is a PostgreSQL database: everything as with a file, and nothing shown
without it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.errors import LedgerError
from rag_platform.ir import QueryRequest
from rag_platform.ledger.hiding import LedgerView
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform_tests.postgres_server import PostgresServer

GATE, DOCK = "# Gate\n\nThe gate opens at 05:30.\n", "# Dock\n\nThe dock holds 12 trucks.\n"


@pytest.fixture
def desk(desk: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A desk with its ledger in a database."""
    monkeypatch.setenv("RAG_LEDGER", postgres.new_url())
    yield desk
    assert not (desk.store.home / "ledger.sqlite").exists()
    written = [path for path in desk.store.home.rglob("*") if path.is_file()]
    assert not [path for path in written if b"Zwiebel" in path.read_bytes()]  # the password


def found(library: Library, question: str) -> set[str]:
    """The files that answer a question."""
    return {hit.filename for hit in answer(library, QueryRequest(question, mode="sparse")).hits}


@pytest.mark.e2e
def test_a_library_lives_on_a_shared_ledger(desk: Any) -> None:
    desk.write(gate=GATE, dock=DOCK)
    assert desk.call("ingest", desk.docs, "--strategy", "tiny").exit_code == 0
    library = Library(desk.settings, desk.store, LedgerView(desk.store))
    assert found(library, "When does the gate open?") == {"gate.md"}
    assert desk.call("docs", "delete", "gate.md", "--mode", "hard", "--yes").exit_code == 0
    assert found(library, "When does the gate open?") == set()
    proof = desk.call("gc", "--prove", "gate.md")
    assert proof.exit_code == 0 and proof.data["total"] == 0
    assert desk.call("gc").exit_code == 0
    assert desk.call("releases", "list").data["releases"][0]["state"] == "published"
    jobs = desk.call("jobs", "list", "--all").data["jobs"]
    assert [(job["kind"], job["state"]) for job in jobs] == [
        ("gc", "done"),
        ("delete", "done"),
        ("ingest", "done"),
    ]
    assert desk.call("verify", "--all").exit_code == 0
    status = desk.call("status")
    assert status.data["ledger"].startswith("postgresql://rag@127.0.0.1:")
    library.close()


@pytest.mark.integration
def test_without_its_database_a_data_root_shows_nothing(
    desk: Any, postgres: PostgresServer
) -> None:
    desk.write(gate=GATE, dock=DOCK)
    desk.publish()
    library = Library(desk.settings, desk.store, LedgerView(desk.store))
    assert found(library, "How many trucks?") == {"dock.md"}
    postgres.stop()
    try:
        for _ in range(2):  # neither the first question, which finds the connection broken
            with pytest.raises(LedgerError, match="cannot be reached"):
                answer(library, QueryRequest("How many trucks?", mode="sparse"))
        for command in (
            "query gate",
            "docs list",
            "docs show gate.md",
            "jobs list",
            "verify --all",
        ):
            refused = desk.call(*command.split())
            assert (refused.exit_code, refused.error["code"]) == (1, "ledger_unreachable"), command
            assert "Zwiebel" not in refused.said
    finally:
        postgres.start()
    assert found(library, "How many trucks?") == {"dock.md"}
    library.close()


@pytest.mark.integration
def test_a_deletion_hides_on_another_machine_with_a_copy(desk: Any, tmp_path: Path) -> None:
    desk.write(gate=GATE, dock=DOCK)
    desk.publish()
    copy = shutil.copytree(desk.store.home, tmp_path / "elsewhere")
    settings = desk.settings.model_copy(update={"home": copy})
    library = Library(settings, Store.of(settings), LedgerView(Store.of(settings)))
    assert found(library, "When does the gate open?") == {"gate.md"}
    assert desk.call("docs", "delete", "gate.md", "--yes").exit_code == 0
    assert found(library, "When does the gate open?") == set()
    library.close()


@pytest.mark.integration
def test_the_ledger_of_another_data_root_shows_nothing(
    desk: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write(dock=DOCK)
    desk.publish()
    monkeypatch.setenv("RAG_LEDGER", postgres.new_url())
    refused = desk.call("query", "trucks")
    assert (refused.exit_code, refused.error["code"]) == (1, "no_ledger")
