"""Whose process a job is, here or on another machine, and whether it lives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rag_platform.config.settings import JobPolicy
from rag_platform.processes import jobs, launchers
from rag_platform_tests.at_work import SLEEP, working


def elsewhere_job(ledger: Any, *, state: str = "running", silent_for: float = 0.0) -> str:
    """The id of a job that a process of another machine does, or did until some seconds ago; its
    number is nobody's here.
    """
    job = ledger.add_job("ingest", "default", {})
    last = datetime.now(UTC) - timedelta(seconds=silent_for)
    place = {"host": "other", "boot_id": "0b0b", "pid_namespace": "pid:[1]", "started": "1"}
    ledger.update_job(
        job.job_id,
        state=state,
        pid=2**22 - 1,
        process=place,
        heartbeat_at=last.isoformat(timespec="seconds"),
    )
    return str(job.job_id)


def test_a_job_of_another_machine_is_judged_by_its_last_sign_of_life(ledger: Any) -> None:
    lives, silent = elsewhere_job(ledger, silent_for=100), elsewhere_job(ledger, silent_for=130)
    assert jobs.end_orphans(ledger) == [silent]
    assert ledger.job(lives).state == "running" and "is gone" in ledger.job(silent).reason
    assert jobs.end_orphans(ledger, JobPolicy(silent_seconds=90)) == [lives]


def test_a_job_of_another_machine_is_told_to_stop_and_not_ended_from_here(ledger: Any) -> None:
    job_id = elsewhere_job(ledger)
    assert jobs.cancel(job_id, ledger).state == ledger.job(job_id).state == "cancelling"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_job_of_another_user_is_left_at_work(ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    with working(SLEEP, job.job_id) as (process, _):
        ledger.update_job(job.job_id, state="running", **launchers.of_process(process.pid))
        job = ledger.job(job.job_id)
        child = os.fork()
        if not child:
            os.setuid(65534)
            stays = jobs.at_work(job) and not launchers.launcher_of(job).stop(job, 1)
            os._exit(0 if stays else 1)
        assert os.waitpid(child, 0)[1] == 0 and process.poll() is None


def test_a_number_that_is_given_again_is_no_living_job(ledger: Any) -> None:
    """The same number, and even the same words in its command: only the time of its start tells."""
    job = ledger.add_job("ingest", "default", {})
    with working(SLEEP, job.job_id) as (process, _):
        columns = launchers.of_process(process.pid)
        ledger.update_job(job.job_id, state="running", **columns)
        assert jobs.end_orphans(ledger) == []
        earlier = {**columns["process"], "started": str(int(columns["process"]["started"]) - 1)}
        ledger.update_job(job.job_id, process=earlier)
        assert jobs.end_orphans(ledger) == [job.job_id]


BEATING = """
import signal, sys, time
from rag_platform.processes import jobs
from rag_platform.ledger.ledger import open_url
signal.signal(signal.SIGTERM, signal.default_int_handler)
ledger = open_url(sys.argv[2])
with jobs.keep_heartbeat(sys.argv[1], ledger, every=0.02):
    print(flush=True)
    time.sleep(60)
"""


@pytest.mark.integration
def test_a_job_shows_that_it_lives_and_hears_that_it_was_cancelled(store: Any, ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    ledger.update_job(job.job_id, state="running", heartbeat_at="2026-01-01T00:00:00Z")
    code = [sys.executable, "-c", BEATING, job.job_id, store.ledger_url]
    with subprocess.Popen(code, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 180
        while ledger.job(job.job_id).heartbeat_at < "2026-01-02":
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.02)
        ledger.update_job(job.job_id, state="cancelling")
        assert process.wait(180) != 0
    assert ledger.job(job.job_id).state == "cancelling"  # its own last words are the job's business


@pytest.mark.e2e
def test_another_container_over_the_same_volume_leaves_a_running_job_alone(desk: Any) -> None:
    """A pid name space of its own, as a second container has: the job's number is nobody's
    there.
    """
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this system gives no pid name space")
    with desk.ledger() as ledger:
        job = ledger.add_job("ingest", "default", {})
        with working(SLEEP, job.job_id) as (process, _):
            ledger.update_job(job.job_id, state="running", **launchers.of_process(process.pid))
            listed = [
                *apart,
                sys.executable,
                "-m",
                "rag_platform.cli.main",
                "jobs",
                "list",
                "--json",
            ]
            told = subprocess.run(
                listed, capture_output=True, text=True, check=True, cwd=desk.folder
            )
            assert [row["state"] for row in json.loads(told.stdout)["data"]["jobs"]] == ["running"]
            assert ledger.job(job.job_id).state == "running"
        # here it is known to be dead
        assert [row["state"] for row in desk.call("jobs", "list").data["jobs"]] == ["failed"]
