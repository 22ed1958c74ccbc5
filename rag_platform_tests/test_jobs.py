"""Jobs as anybody finds them again: states, reasons, and the ends that nobody reported."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from rag_platform import jobs
from rag_platform.ledger_rows import Job

GATE = "# Gate\n\nThe gate opens at 05:30.\n"


def process(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code])


def test_a_job_that_ends_in_a_final_state_is_returned_as_it_is(store: Any, ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    ledger.update_job(job.job_id, state="partly", reason="1 documents failed")
    seen: list[Job] = []
    ended = jobs.wait(job.job_id, process("pass"), ledger, store, seen.append)
    assert (ended.state, ended.reason) == ("partly", "1 documents failed") and seen


def test_a_process_that_dies_leaves_its_last_words(store: Any, ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    path = jobs.log_path(store, job.job_id)
    path.parent.mkdir(parents=True)
    path.write_text("starting\nMemoryError: no memory left\n\n", encoding="utf-8")
    ended = jobs.wait(job.job_id, process("raise SystemExit(7)"), ledger, store)
    assert ended.state == "failed" and ended.ended_at
    assert "code 7" in ended.reason and "MemoryError: no memory left" in ended.reason and path.name in ended.reason


def test_running_jobs_of_dead_processes_are_ended(ledger: Any) -> None:
    gone = process("pass")
    gone.wait()
    zombie = process("pass")
    dead, undead, mine, queued, done = (ledger.add_job("ingest", "default", {}).job_id for _ in range(5))
    ledger.update_job(dead, state="running", pid=gone.pid)
    ledger.update_job(undead, state="running", pid=zombie.pid)
    ledger.update_job(mine, state="running", pid=os.getpid())
    ledger.update_job(done, state="done", pid=gone.pid)
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # ended, not waited for
    assert sorted(jobs.end_orphans(ledger)) == sorted([dead, undead])
    states = {job.job_id: job.state for job in ledger.jobs("default")}
    assert states == {dead: "failed", undead: "failed", mine: "running", queued: "queued", done: "done"}
    assert "ingest again" in ledger.job(dead).reason and jobs.end_orphans(ledger) == []
    zombie.wait()


@pytest.mark.integration
def test_a_job_tells_its_documents_and_its_figures(desk: Any) -> None:
    desk.write(gate=GATE)
    (desk.docs / "empty.md").write_bytes(b"")
    told = desk.call("ingest", desk.docs).data
    with desk.ledger() as ledger:
        (job,) = ledger.jobs("default")
        assert (job.job_id, job.kind, job.state, job.reason) == (told["job_id"], "ingest", "partly", "1 documents failed")
        assert job.pid == os.getpid() and job.started_at <= job.ended_at and job.trace_id.startswith("trc_")
        assert (job.result["documents"], job.result["chunks"]) == (1, 1)
        items = {item.source_uri: (item.decision, item.state, item.code) for item in ledger.job_items(job.job_id)}
        assert items == {"docs/gate.md": ("new", "done", ""), "docs/empty.md": ("new", "failed", "empty_file")}


@pytest.mark.integration
def test_a_release_that_fails_fails_its_job_with_the_reason(desk: Any, elsewhere: Any) -> None:
    """Another writer holds the namespace: nothing is written, the job says who it is, and the next ingest does the work."""
    desk.write(gate=GATE)
    with elsewhere(desk.store.writer("default", "run 4711")):
        held = desk.call("ingest", desk.docs)
    assert (held.exit_code, held.error["code"]) == (1, "ingest_failed")
    assert "being written by run 4711" in held.error["message"]
    assert desk.call("query", "gate").error["code"] == "no_release"
    again = desk.call("ingest", desk.docs)
    assert again.exit_code == 0 and again.data["embeddings_computed"] == 1
    assert "05:30" in desk.call("query", "When does the gate open?", "--mode", "sparse").data["answer_markdown"]
