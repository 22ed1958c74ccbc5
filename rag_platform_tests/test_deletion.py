"""Deletion as a user does it: commands, jobs, Dagster, and afterwards not one byte of the words on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rag_platform.assets.collecting import PartitionKeys

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
    return sorted(path.relative_to(folder).as_posix() for path in paths if any(needle in path.read_bytes() for needle in needles))


def test_from_the_command_to_the_last_byte(desk: Any) -> None:
    desk.write(gate=GATE, dock=DOCK)
    assert desk.call("ingest", desk.docs).exit_code == 0
    desk.write(gate=GATE.replace("05:30", "06:45"))
    assert desk.call("ingest", desk.docs).exit_code == 0
    places = {name.partition("/")[0] for name in quoting(desk.store.home)}
    assert {"raw", "facts", "versions", "releases", "logs", "dagster"} <= places  # the missing picture is named in warnings
    assert "ledger.sqlite" in places or "ledger.sqlite-wal" in places
    before = desk.call("gc", "--prove", "gate.md").data
    assert before["total"] > 20 and before["remaining"]["logs"] and before["remaining"]["partitions"] == 2

    soft = desk.call("docs", "delete", "gate.md")
    assert soft.exit_code == 0 and soft.data["mode"] == "soft" and soft.data["affected"]["versions"] == 2
    assert soft.envelope["trace_id"].startswith("trc_") and soft.data["job_id"].startswith("job_")
    assert "05:30" not in str(desk.call("query", "What opens at 05:30?", "--mode", "sparse").data["results"])  # its trace stays
    assert desk.call("docs", "show", soft.data["doc_id"]).error["code"] == "document_deleted"
    assert desk.call("gc", "--prove", "gate.md").data["remaining"]["raw"] == 2
    assert desk.call("docs", "delete", "gate.md").error["code"] == "already_deleted"

    hard = desk.call("docs", "delete", "gate.md", "--mode", "hard")
    assert hard.exit_code == 0 and hard.data["removed"]["releases"]["count"] == 3 and not hard.envelope["warnings"]
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
    desk.call("ingest", desk.docs)
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
    desk.call("ingest", desk.docs)
    with elsewhere(desk.store.writer("default", "ingest job_1")):
        busy = desk.call("gc")
    assert busy.exit_code == 1 and "ingest job_1" in busy.error["message"]
