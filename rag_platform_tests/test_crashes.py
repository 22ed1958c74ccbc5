"""Killed at a bad moment: what was published goes on answering, and the next ingest of the same
folder completes the work.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rag_platform.ledger.schema import now
from rag_platform.processes.jobs import JOB_TAG

pytestmark = pytest.mark.e2e

GATE = "# Gate\n\nThe north gate opens at 05:30.\n"
DOCK = "# Dock\n\nThe south dock holds 12 trucks.\n"


def wait_for(
    condition: Callable[[], Any], process: Any, every: float = 0.001, seconds: float = 180
) -> Any:
    """What the condition gave when it first held; asked again and again as long as the process
    lives.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(every)
    raise AssertionError(f"did not happen within {seconds} s")


def running_job(desk: Any) -> Any:
    """The newest job when its process has told its id, else None."""
    with desk.ledger() as ledger:
        newest = next(iter(ledger.jobs("default", 1)), None)
        return newest if newest and newest.state == "running" and newest.pid else None


def unfinished_releases(desk: Any) -> list[Path]:
    return list(desk.store.releases_dir("default").glob(".building-*"))


def answer(desk: Any, question: str) -> str:
    return str(desk.call("query", question, "--mode", "sparse").data["answer_markdown"])


def open_runs(job_id: str) -> list[str]:
    """Statuses of the job's Dagster runs that are not final."""
    with dg.DagsterInstance.get() as instance:
        runs = instance.get_runs(dg.RunsFilter(tags={JOB_TAG: job_id}))
        return [run.status.value for run in runs if not run.is_finished]


def test_killed_while_the_release_is_built(desk: Any) -> None:
    desk.write(gate=GATE)
    first = desk.publish()
    desk.write(dock=DOCK)
    process = desk.start("ingest", desk.docs)
    job = wait_for(lambda: running_job(desk), process, every=0.05)
    wait_for(lambda: unfinished_releases(desk), process)
    os.killpg(job.pid, signal.SIGKILL)
    said, _ = process.communicate(timeout=180)
    assert process.returncode == 1 and '"ingest_failed"' in said and "was killed before" in said

    assert desk.store.current_path("default").read_text(encoding="utf-8").strip() == first
    assert "05:30" in answer(desk, "When does the north gate open?") and "12 trucks" not in answer(
        desk, "How many trucks?"
    )
    assert unfinished_releases(desk) and open_runs(job.job_id) == ["STARTED"]

    # no file changed: the release is behind, and that is noticed
    repaired = desk.call("ingest", desk.docs)
    assert repaired.exit_code == 0
    assert (repaired.data["skipped"], repaired.data["embeddings_computed"]) == (2, 0)
    assert repaired.data["release_id"] != first and "12 trucks" in answer(desk, "How many trucks?")
    assert not unfinished_releases(desk) and not open_runs(job.job_id)
    assert desk.call("verify", "--all").data["failed"] == 0
    assert desk.call("ingest", desk.docs).data["release_id"] == repaired.data["release_id"]


def test_power_cut_during_ingestion(desk: Any) -> None:
    """Program and job die together while documents are read; the next run takes up what is there
    and finishes.
    """
    for number in range(40):
        desk.write(
            **{f"rack{number}": f"# Rack {number}\n\nRack {number} carries {number * 100} kg.\n"}
        )
    process = desk.start("ingest", desk.docs)
    job = wait_for(lambda: running_job(desk), process, every=0.05)
    chunks = (desk.store.home / "versions").glob
    wait_for(lambda: len(list(chunks("default/*/*/chunks/*.parquet"))) >= 3, process)
    process.kill()
    os.killpg(job.pid, signal.SIGKILL)
    process.communicate(timeout=180)
    # a busy machine takes a moment to bury a process and its locks
    with desk.store.writer("default", "this test", wait=30):
        pass
    with desk.ledger() as ledger:
        assert ledger.job(job.job_id).state == "running"  # nobody was left to say otherwise
        assert len(ledger.live("default")) < 40
    assert desk.call("query", "rack").error["code"] in ("no_release", "unknown_namespace")

    finished = desk.call("ingest", desk.docs)
    assert finished.exit_code == 0 and finished.data["failed"] == 0
    assert finished.data["continued"] + finished.data["skipped"] == 40
    assert "3900 kg" in answer(desk, "What does rack 39 carry?")
    assert desk.call("verify", "--all").data["checked"] == 40
    with desk.ledger() as ledger:
        assert ledger.job(job.job_id).state == "failed" and "gone" in ledger.job(job.job_id).reason
    assert not open_runs(job.job_id)


def test_an_ingest_with_nothing_to_do_ends_the_run_of_one_that_was_killed_once_published(
    desk: Any,
) -> None:
    desk.write(gate=GATE)
    release_id = desk.call("ingest", desk.docs).data["release_id"]
    with desk.ledger() as ledger, dg.DagsterInstance.get() as instance:
        (job,) = ledger.jobs("default")
        run = dg.DagsterRun(
            "release", status=dg.DagsterRunStatus.STARTED, tags={JOB_TAG: job.job_id}
        )
        instance.add_run(run)
        reason = "the job's process was killed before it finished"
        ledger.update_job(job.job_id, state="failed", reason=reason, ended_at=now())
        assert open_runs(job.job_id) == ["STARTED"]
        for _ in range(2):  # the second has nothing to clear up
            repaired = desk.call("ingest", desk.docs)
            assert repaired.exit_code == 0 and repaired.data["release_id"] == release_id
            assert not open_runs(job.job_id)
        second, first = ledger.jobs("default")[:2]
    assert (first.pid, second.pid) == (os.getpid(), 0)


def test_killed_between_the_candidate_and_its_publication(desk: Any) -> None:
    """Two steps of one Dagster run: the candidate is built and recorded, then the process is
    gone.
    """
    desk.write(gate=GATE)
    first = desk.publish()
    desk.write(dock=DOCK)
    process = desk.start("ingest", desk.docs)
    job = wait_for(lambda: running_job(desk), process, every=0.05)
    with desk.ledger() as ledger:
        candidate = wait_for(
            lambda: next(
                (row for row in ledger.releases("default") if row.release_id != first), None
            ),
            process,
        )
        os.killpg(job.pid, signal.SIGKILL)
        process.communicate(timeout=180)
        live = desk.store.current_path("default").read_text(encoding="utf-8").strip()
        # the pointer may have moved between the look and the kill
        assert live in (first, candidate.release_id)

        repaired = desk.call("ingest", desk.docs).data
        states = {row.release_id: row.state for row in ledger.releases("default")}
    assert "12 trucks" in answer(desk, "How many trucks?") and repaired["embeddings_computed"] == 0
    assert [release_id for release_id, state in states.items() if state == "published"] == [
        repaired["release_id"]
    ]
    if live == first:
        assert (
            repaired["release_id"] != candidate.release_id
            and states[candidate.release_id] == "dropped"
        )
        assert not desk.store.release_dir("default", candidate.release_id).exists()
