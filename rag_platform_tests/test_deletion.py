"""Deletion as a user does it: commands, jobs, Dagster, and afterwards not one byte of the words on
disk.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rag_platform.answering.engine import answer
from rag_platform.assets import launch
from rag_platform.assets.collecting import PartitionKeys
from rag_platform.errors import IntegrityError
from rag_platform.ir import QueryRequest
from rag_platform.ledger.hiding import LedgerView
from rag_platform.retrieval.library import Library

pytestmark = pytest.mark.e2e

SECRET = "Zwiebelturm"
GATE = f"""---
title: {SECRET} guide
tags: [{SECRET}-tag]
---

# {SECRET}

The {SECRET} opens at 05:30.

![{SECRET}]({SECRET}.png)
"""
DOCK = "# Dock\n\nThe south dock holds 12 trucks.\n"


def quoting(folder: Path) -> list[str]:
    """Files below the folder in which the secret stands, in letters as they are or lower case."""
    needles = (SECRET.encode(), SECRET.lower().encode())
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(
        path.relative_to(folder).as_posix()
        for path in paths
        if any(needle in path.read_bytes() for needle in needles)
    )


@pytest.mark.usefixtures("ledger_file")
def test_from_the_command_to_the_last_byte(desk: Any) -> None:
    desk.write(gate=GATE, dock=DOCK)
    assert desk.call("ingest", desk.docs).exit_code == 0
    desk.write(gate=GATE.replace("05:30", "06:45"))
    assert desk.call("ingest", desk.docs).exit_code == 0
    places = {name.partition("/")[0] for name in quoting(desk.store.home)}
    # the missing picture is named in warnings
    assert {"raw", "facts", "versions", "releases", "logs", "dagster"} <= places
    assert "ledger.sqlite" in places or "ledger.sqlite-wal" in places
    before = desk.call("gc", "--prove", "gate.md").data
    assert (
        before["total"] > 20
        and before["remaining"]["logs"]
        and before["remaining"]["partitions"] == 1  # of the live version
    )

    soft = desk.call("docs", "delete", "gate.md", "--yes")
    assert (
        soft.exit_code == 0
        and soft.data["mode"] == "soft"
        and soft.data["affected"]["versions"] == 2
    )
    assert soft.envelope["trace_id"].startswith("trc_") and soft.data["job_id"].startswith("job_")
    # its trace stays
    assert "05:30" not in str(
        desk.call("query", "What opens at 05:30?", "--mode", "sparse").data["results"]
    )
    assert desk.call("docs", "show", soft.data["doc_id"]).error["code"] == "document_deleted"
    assert desk.call("gc", "--prove", "gate.md").data["remaining"]["raw"] == 2
    assert desk.call("docs", "delete", "gate.md", "--yes").error["code"] == "already_deleted"

    hard = desk.call("docs", "delete", "gate.md", "--mode", "hard", "--yes")
    assert (
        hard.exit_code == 0
        and hard.data["removed"]["releases"]["count"] == 3
        and not hard.envelope["warnings"]
    )
    proof = desk.call("gc", "--prove", "gate.md").data
    assert (proof["total"], proof["shared"], proof["not_looked_into"]) == (0, {}, [])
    assert quoting(desk.store.home) == []
    assert desk.call("verify", "--all").data["failed"] == 0
    with dg.DagsterInstance.get() as instance:
        assert len(PartitionKeys(instance).keys()) == 1
    assert desk.call("gc", "--plan").data["removed"] == {}

    back = desk.call("ingest", desk.docs / "gate.md").data  # the same file, named by hand
    assert back["documents"][0]["doc_id"] == hard.data["doc_id"]
    assert SECRET in desk.call("query", SECRET, "--mode", "sparse").data["answer_markdown"]


def test_gc_is_a_job(desk: Any) -> None:
    desk.write(gate=GATE, dock=DOCK)
    desk.publish()
    (desk.store.home / "media" / ("ab" * 32)).mkdir(parents=True)
    planned = desk.call("gc", "--plan").data
    assert planned["removed"] == {"media": {"count": 1, "bytes": 0}}
    done = desk.call("gc")
    assert done.exit_code == 0 and done.data["removed"] == planned["removed"]
    with desk.ledger() as ledger:
        job = ledger.job(done.data["job_id"])
    assert (job.kind, job.state, job.namespace) == ("gc", "done", "")


def test_gc_says_who_is_in_the_way(desk: Any, elsewhere: Any) -> None:
    desk.write(dock=DOCK)
    desk.publish()
    with elsewhere(desk.store.writer("default", "ingest job_1")):
        busy = desk.call("gc")
    assert busy.exit_code == 1 and "ingest job_1" in busy.error["message"]


def test_an_unfinished_purge_is_named_with_the_command_that_finishes_it(
    desk: Any, elsewhere: Any
) -> None:
    desk.write(dock=DOCK, gate=GATE)
    desk.publish()
    with elsewhere(desk.store.writer("default", "publish by hand")):
        assert desk.call("docs", "delete", "gate.md", "--mode", "hard", "--yes").exit_code == 1
    left = desk.call("gc", "--prove", "gate.md")
    assert (left.exit_code, left.error["code"]) == (1, "not_purged")
    command = f"rag docs delete {left.data['doc_id']} --mode hard --namespace default"
    assert left.data["markdown"].endswith(f"\n`{command}` purges it.")
    unfinished = f"default: a hard deletion is not finished: `{command}` goes on with it"
    assert unfinished in desk.call("status").data["problems"]
    assert desk.call(*command.split()[1:], "--yes").exit_code == 0
    assert desk.call("gc", "--prove", "gate.md").exit_code == 0
    assert unfinished not in desk.call("status").data["problems"]


def test_it_says_what_it_drops_and_asks(desk: Any) -> None:
    desk.write(dock=DOCK)
    first = desk.publish()
    desk.write(gate=GATE)
    second = desk.publish()
    asked = desk.call("docs", "delete", "gate.md", "--mode", "hard")
    assert (asked.exit_code, asked.error["code"]) == (2, "needs_yes")
    plan = asked.error["details"]["plan"]
    assert (plan["drops"], plan["rollback"], plan["affected"]["chunks"]) == ([second], [first], 1)
    assert f"Releases that are dropped, for they hold it: {second}." in asked.error["message"]
    assert f"Rolling back is possible to {first}." in asked.error["message"]
    soft = desk.call("docs", "delete", "gate.md").error["message"]
    assert "(soft)" in soft and "every release stay" in soft
    with desk.ledger() as ledger:
        assert not ledger.jobs() and not ledger.tombstones("default")

    command = ["docs", "delete", "gate.md", "--mode", "hard"]
    for reply, code in (("n\n", 1), ("y\n", 0)):
        ended = on_a_terminal(desk, command, reply)
        assert ended[0] == code and second in ended[1] and "Delete it? [y/N]" in ended[1]
        assert bool(ledger_stones(desk)) == (reply == "y\n")
    assert releases_left(desk) >= {first} and second not in releases_left(desk)


def on_a_terminal(desk: Any, command: list[str], reply: str) -> tuple[int, str]:
    """(exit code, what was shown) of `rag COMMAND` for somebody who types a reply."""
    terminal, other_end = pty.openpty()
    asked = [sys.executable, "-m", "rag_platform.cli.main", *command]
    child = subprocess.Popen(
        asked, stdin=other_end, stdout=other_end, stderr=other_end, cwd=desk.folder
    )
    os.close(other_end)
    said = b""
    with suppress(OSError):  # the end of a terminal
        while data := os.read(terminal, 65536):
            said += data
            if reply and b"[y/N]" in said:
                os.write(terminal, reply.encode())
                reply = ""
    os.close(terminal)
    return child.wait(180), said.decode()


def ledger_stones(desk: Any) -> list[Any]:
    with desk.ledger() as ledger:
        return list(ledger.tombstones("default"))


def releases_left(desk: Any) -> set[str]:
    return {path.parent.name for path in desk.store.releases_dir("default").glob("*/manifest.json")}


def test_being_told_that_it_was_deleted_leaves_no_word_of_it(desk: Any) -> None:
    desk.write(gate=GATE, dock=DOCK)
    desk.publish()
    assert SECRET in str(desk.call("query", f"When does the {SECRET} open?").data["results"])
    (desk.store.home / "ledger.sqlite.before-2.bak").write_bytes(SECRET.encode())
    doc_id = desk.call("docs", "delete", "gate.md", "--mode", "hard", "--yes").data["doc_id"]
    assert quoting(desk.store.home) == []
    for _ in range(3):
        assert desk.call("docs", "show", doc_id).error["code"] == "document_deleted"
        assert desk.call("drafts", "show", doc_id).error["code"] == "not_live"
        assert desk.call("docs", "delete", doc_id, "--yes").error["code"] == "already_deleted"
    assert desk.call("gc", "--prove", doc_id).data["total"] == 0
    # a question of its own names it in its filter, and in the note that nothing has it
    assert desk.call("query", "Does it open?", "--filter", f"doc_id={doc_id}").exit_code == 0
    assert desk.call("gc", "--prove", doc_id).data["remaining"]["logs"] == 2
    assert desk.call("gc").exit_code == 0 and desk.call("gc", "--prove", doc_id).data["total"] == 0
    (desk.store.home / "notes.txt").write_text(f"about {doc_id}", encoding="utf-8")
    (desk.store.logs_dir / "old.zip").write_bytes(b"PK\x03\x04...")
    proof = desk.call("gc", "--prove", doc_id).data
    assert proof["remaining"]["other_files"] == 1 and proof["not_looked_into"] == [
        "logs/old.zip is packed"
    ]


def test_a_question_with_the_bare_file_name_goes_from_the_logs(desk: Any) -> None:
    (desk.docs / "Zwiebelturm.md").write_text("# Tower\n\nIt opens at 05:30.\n", encoding="utf-8")
    desk.write(dock=DOCK, gate="# Gate\n\nIt opens at 06:30.\n")
    desk.publish()
    for doc in (f"{SECRET}.md", "gate.md"):
        assert desk.call("docs", "delete", doc, "--mode", "hard", "--yes").exit_code == 0
    other = desk.docs.parent / "more"
    other.mkdir()
    (other / "gate.md").write_text("# Other gate\n\nIt is green.\n", encoding="utf-8")
    desk.call("ingest", other)
    for name in (f"{SECRET}.md", f"{SECRET.upper()}.MD", "gate.md", f"My{SECRET}.md"):
        assert desk.call("query", f"What does {name} say of 12 trucks?").exit_code == 0
    found = desk.store.logs_dir
    before = b"".join(path.read_bytes() for path in found.glob("*.jsonl"))
    assert before.lower().count(b" zwiebelturm.md ") >= 4
    assert desk.call("gc").exit_code == 0
    after = b"".join(path.read_bytes() for path in found.glob("*.jsonl")).lower()
    assert b" zwiebelturm.md " not in after
    # another document has this name now, and this one is longer
    assert b" gate.md " in after and b" myzwiebelturm.md " in after


@pytest.mark.usefixtures("ledger_file")
def test_a_ledger_older_than_the_release_is_told_of(desk: Any) -> None:
    desk.write(gate=GATE, dock=DOCK)
    desk.publish()
    older = desk.store.ledger_path.read_bytes()
    desk.write(rack="# Rack\n\nThe rack carries 900 kg.\n")
    latest = desk.publish()

    def put_back(ledger: bytes) -> None:
        for path in desk.store.home.glob("ledger.sqlite*"):
            path.unlink()
        desk.store.ledger_path.write_bytes(ledger)

    put_back(older)
    problem = f"default: the ledger does not know release {latest}, which is read"
    assert [it[: len(problem)] for it in desk.call("status").data["problems"]] == [problem]
    assert desk.call("docs", "delete", "gate.md", "--yes").exit_code == 0
    put_back(older)
    assert desk.call("query", "dock").error["code"] == "no_ledger"
    assert "no question can be answered" in desk.call("status").data["problems"][0]
    assert desk.call("doctor").error["message"] == "to be mended: releases of default"


@pytest.mark.usefixtures("ledger_file")
def test_without_its_ledger_a_data_root_shows_nothing(desk: Any) -> None:
    desk.write(gate=GATE, dock=DOCK)
    desk.publish()
    library = Library(desk.settings, desk.store, LedgerView(desk.store))
    assert answer(library, QueryRequest("dock", mode="sparse")).hits
    desk.call("docs", "delete", "gate.md", "--yes")
    desk.call("releases", "rollback")  # to the release that holds it
    kept = {path: path.read_bytes() for path in desk.store.home.glob("ledger.sqlite*")}
    for path in kept:
        path.unlink()
    with pytest.raises(IntegrityError, match=r"ledger\.sqlite is gone"):
        answer(library, QueryRequest("When does it open?", mode="sparse"))
    for command in (
        "query gate",
        "docs list",
        "docs show docs-gate",
        "docs history gate.md",
        "verify --all",
        "jobs list",
        "sources list",
    ):
        refused = desk.call(*command.split())
        assert (refused.exit_code, refused.error["code"]) == (1, "no_ledger"), command
    assert "is gone" in desk.call("status").data["namespaces"][0]["problem"]
    assert not desk.store.ledger_path.exists()
    for path, data in kept.items():
        path.write_bytes(data)
    found = answer(library, QueryRequest("gate opens", mode="sparse")).hits
    assert "gate.md" not in {hit.filename for hit in found}
    library.close()


@pytest.fixture
def stopped(desk: Any, elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a hard deletion of gate.md answered that stopped before its release."""
    desk.write(gate=GATE, dock=DOCK)
    desk.publish()
    monkeypatch.setenv("RAG_JOBS__LOCK_SECONDS", "0.1")
    with elsewhere(desk.store.writer("default", "somebody else")):
        return desk.call("docs", "delete", "gate.md", "--mode", "hard", "--yes")


def test_gc_finishes_a_hard_deletion_that_stopped_before_its_release(
    desk: Any, stopped: Any
) -> None:
    assert (stopped.exit_code, stopped.error["code"]) == (1, "delete_failed")
    assert desk.call("gc", "--prove", "gate.md").error["code"] == "not_purged"

    done = desk.call("gc")
    assert (done.exit_code, done.data["left"]) == (0, [])
    assert desk.call("gc", "--prove", "gate.md").data["total"] == 0
    assert quoting(desk.store.home) == []
    with desk.ledger() as ledger:
        states = [(job.kind, job.state) for job in ledger.jobs()]
    assert states == [("delete", "done"), ("gc", "done"), ("delete", "failed")]
    assert desk.call("gc").exit_code == 0  # and starts no other
    with desk.ledger() as ledger:
        assert [job.kind for job in ledger.jobs(limit=2)] == ["gc", "delete"]


@pytest.mark.usefixtures("stopped")
def test_a_gc_that_is_cancelled_within_a_stopped_deletion_ends(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def release(_work: object) -> str:
        with desk.ledger() as ledger:
            found = {job.kind: job for job in ledger.open_jobs()}
            assert found["delete"].process["within"] == found["gc"].job_id
            ledger.update_job(found["gc"].job_id, state="cancelling")
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "release", release)
    assert desk.call("gc").exit_code == 1
    with desk.ledger() as ledger:
        states = [(job.kind, job.state) for job in ledger.jobs(limit=2)]
    assert states == [("delete", "failed"), ("gc", "cancelled")]
