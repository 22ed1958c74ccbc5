"""Starts the process of a job, tells whether it is alive, and stops it. The launcher `child` starts
a child process of the caller; `dagster` leaves it to the run launcher of the Dagster instance.

A job names its launcher in `process`, so that the launcher that started it is also the one that
judges it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from rag_platform.config.folders import environment
from rag_platform.config.settings import Settings
from rag_platform.ir import Json
from rag_platform.ledger.ledger import open_ledger
from rag_platform.ledger.schema import Job, now
from rag_platform.processes.identity import alive, identity, is_here, is_same
from rag_platform.storage.store import Store

# a queued job without a process after so long lost the one that was to start it
LAUNCH_SECONDS = 60.0
RANGED_KINDS = ("ingest", "rebuild")  # jobs of many versions, which need no order
SUBMITTED = {"launcher": "dagster"}  # `process` of a job that waits for Dagster to start it


class ChildLauncher:
    """A child process of its own, leader of a process group; it outlives the caller."""

    def start(self, job: Job, settings: Settings, store: Store) -> subprocess.Popen[bytes]:
        """The process of a queued job, begun."""
        process = _start("rag_platform.assets.job_process", job, settings, store)
        with closing(open_ledger(store)) as ledger:
            # it may be cancelled from now on
            ledger.update_job(job.job_id, only_from=("queued",), **of_process(process.pid))
        return process

    def alive(self, job: Job, silent: float) -> bool:
        """True while the process of a job is alive or about to be started, as far as this machine
        can tell: by the process itself where it runs here; elsewhere it counts as gone after
        `silent` seconds without a heartbeat.
        """
        if not job.pid:
            return job.state == "queued" and seconds_between(job.created_at) < LAUNCH_SECONDS
        if not is_here(job.process):
            return seconds_between(job.heartbeat_at) < silent
        # what Dagster's own processes are called is its own business
        mark = "python" if job.args.get("run_id") else job.job_id
        return alive(job.pid, mark, job.process.get("started", ""))

    def stop(self, job: Job, seconds: float) -> bool:
        """True once the process of a job and its children are ended; the process has `seconds` to
        end its run properly, the children are not told first, or a document would be blamed for the
        death of its reader. False on another machine, where it will end at one of its heartbeats.
        """
        if job.pid and not is_here(job.process):
            return False
        started = job.process.get("started", "")
        if job.pid not in (0, os.getpid()) and alive(job.pid, job.job_id, started):
            with suppress(ProcessLookupError):
                os.kill(job.pid, signal.SIGTERM)
            _wait_until_gone(job, seconds)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(job.pid, signal.SIGKILL)
            _wait_until_gone(job, 5.0)
        return True


class DagsterLauncher:
    """A run of the Dagster job `work`, submitted to the instance. A job of many versions is cut
    into ranges, a run each; the last one of them releases.

    Nobody asks Dagster whether a run lives: of a Celery worker that was killed it says that it
    runs. The job's own heartbeat tells.
    """

    def start(self, job: Job, settings: Settings, store: Store) -> subprocess.Popen[bytes]:
        """The process that submits a queued job, cut into ranges."""
        with closing(open_ledger(store)) as ledger:
            ledger.update_job(job.job_id, only_from=("queued",), process=SUBMITTED)
            if job.kind in RANGED_KINDS:
                ledger.cut_job(job, settings.jobs.range_size)
        return _start("rag_platform.assets.submission", job, settings, store)

    def alive(self, job: Job, silent: float) -> bool:
        """By its heartbeat, and on this machine also by its process; in Dagster's queue it lives
        as long as Dagster holds it there.
        """
        if not job.pid:
            since = seconds_between(job.heartbeat_at or job.created_at)
            return job.state == "queued" and ("run_id" in job.process or since < LAUNCH_SECONDS)
        if is_here(job.process) and not is_same(job.pid, job.process.get("started", "")):
            return False
        return seconds_between(job.heartbeat_at) < silent

    def stop(self, job: Job, seconds: float) -> bool:
        """Leave the process to notice at its next heartbeat: it belongs to somebody else (a Celery
        worker) and must not be killed.
        """
        return not job.pid


Launcher = ChildLauncher | DagsterLauncher
LAUNCHERS: dict[str, Launcher] = {"child": ChildLauncher(), "dagster": DagsterLauncher()}


def launcher_of(job: Job) -> Launcher:
    """The launcher that started a job."""
    return LAUNCHERS[job.process.get("launcher", "child")]


def log_path(store: Store, job_id: str) -> Path:
    """What the process printed that a launcher started here."""
    return store.logs_dir / "jobs" / f"{job_id}.log"


def of_process(pid: int) -> Json:
    """The columns of a job that name its process, which lives now."""
    return {"pid": pid, "process": identity(pid), "heartbeat_at": now()}


def seconds_between(since: str, until: str = "") -> float:
    """Seconds from one time of the ledger to another one, or to now."""
    end = datetime.fromisoformat(until) if until else datetime.now(UTC)
    return (end - datetime.fromisoformat(since)).total_seconds()


def _start(module: str, job: Job, settings: Settings, store: Store) -> subprocess.Popen[bytes]:
    path = log_path(store, job.job_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, job.job_id],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment(settings.home)},
            start_new_session=True,
        )


def _wait_until_gone(job: Job, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and alive(job.pid, job.job_id):
        time.sleep(0.05)
