"""Launchers: start a job's process, check whether it is alive, and stop it. The launcher `child`
starts a child process of the caller; `dagster` submits a run to the Dagster instance.

A job records its launcher in `process`, so the launcher that started it also handles it later.
"""

from __future__ import annotations

import functools
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from rag_platform.config.folders import environment
from rag_platform.config.settings import Settings
from rag_platform.ir import Json
from rag_platform.ledger.ledger import open_ledger
from rag_platform.ledger.schema import Job, now
from rag_platform.storage.store import Store

# a job queued longer than this without a process lost the process that was to start it
LAUNCH_SECONDS = 60.0
RANGED_KINDS = ("ingest", "rebuild")  # jobs whose versions may be processed in any order
SUBMITTED = {"launcher": "dagster"}  # `process` of a job that Dagster has not started yet


class ChildLauncher:
    """Runs a job in a child process that leads its own process group and outlives the caller."""

    def start(self, job: Job, settings: Settings, store: Store) -> subprocess.Popen[bytes]:
        """Start the process of a queued job."""
        process = _start("rag_platform.assets.job_process", job, settings, store)
        with closing(open_ledger(store)) as ledger:
            # it may be cancelled from now on
            ledger.update_job(job.job_id, only_from=("queued",), **of_process(process.pid))
        return process

    def alive(self, job: Job, silent: float) -> bool:
        """True while a job's process is alive or about to start. A process of this machine is
        checked itself; another one counts as gone after `silent` seconds without a heartbeat.
        """
        if not job.pid:
            return job.state == "queued" and seconds_between(job.created_at) < LAUNCH_SECONDS
        if not is_here(job.process):
            return seconds_between(job.heartbeat_at) < silent
        return alive(job.pid, find_mark(job), job.process.get("started", ""))

    def stop(self, job: Job, seconds: float) -> bool:
        """Stop a job's process within `seconds`, then kill it and its children; True once they are
        gone. The children get no signal before that, or a document would be recorded as failed
        because its reader died. False on another machine and for another user's process, which
        stop themselves at a heartbeat.
        """
        if job.pid and not is_here(job.process):
            return False
        started = job.process.get("started", "")
        if job.pid not in (0, os.getpid()) and alive(job.pid, _mark_of(job), started):
            try:
                with suppress(ProcessLookupError):
                    os.kill(job.pid, signal.SIGTERM)
            except PermissionError:
                return False
            _wait_until_gone(job, seconds)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(job.pid, signal.SIGKILL)
            _wait_until_gone(job, 5.0)
        return True


class DagsterLauncher:
    """Submits a job to the instance as a run of the Dagster job `work`. A job with many versions is
    cut into ranges with one run each; the last one publishes the release.

    Liveness is judged by the job's heartbeat, because Dagster reports the run of a killed Celery
    worker as running.
    """

    def start(self, job: Job, settings: Settings, store: Store) -> subprocess.Popen[bytes]:
        """Cut a queued job into ranges, and start the process that submits them."""
        with closing(open_ledger(store)) as ledger:
            ledger.update_job(job.job_id, only_from=("queued",), process=SUBMITTED)
            if job.kind in RANGED_KINDS:
                ledger.split_job(job, settings.jobs.range_size)
        return _start("rag_platform.assets.submission", job, settings, store)

    def alive(self, job: Job, silent: float) -> bool:
        """True while the job has a recent heartbeat, and on this machine also its process; always
        true while it is in Dagster's queue.
        """
        if not job.pid:
            since = seconds_between(job.heartbeat_at or job.created_at)
            return job.state == "queued" and ("run_id" in job.process or since < LAUNCH_SECONDS)
        if is_here(job.process) and not is_same(job.pid, job.process.get("started", "")):
            return False
        return seconds_between(job.heartbeat_at) < silent

    def stop(self, job: Job, seconds: float) -> bool:
        """True if the job has no process. A process stops itself at its next heartbeat; it must not
        be killed, because it belongs to a Celery worker or the like.
        """
        return not job.pid


Launcher = ChildLauncher | DagsterLauncher
LAUNCHERS: dict[str, Launcher] = {"child": ChildLauncher(), "dagster": DagsterLauncher()}


def launcher_of(job: Job) -> Launcher:
    """The launcher that started a job."""
    return LAUNCHERS[job.process.get("launcher", "child")]


def log_path(store: Store, job_id: str) -> Path:
    """The output of a process that a launcher started on this machine."""
    return store.logs_dir / "jobs" / f"{job_id}.log"


def of_process(pid: int) -> Json:
    """The job columns for a process that is alive now."""
    return {"pid": pid, "process": identity(pid), "heartbeat_at": now()}


def seconds_between(since: str, until: str = "") -> float:
    """Seconds from one ISO time to another, or to now."""
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


def find_mark(job: Job) -> str:
    """`_mark_of` a job's process, and a weaker mark of a process of Dagster's own, whose command
    line does not contain the job_id.
    """
    return "python" if job.args.get("run_id") else _mark_of(job)


def _mark_of(job: Job) -> str:
    """What the command line of a job's process contains: its id, or what that of the job contains
    that carries it out with its own work.
    """
    return str(job.process.get("within", job.job_id))


def _wait_until_gone(job: Job, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and alive(job.pid, _mark_of(job)):
        time.sleep(0.05)


# --- the identity of a process ------------------------------------------------------------------
# A process id is valid only on its machine, since its last boot and in its pid namespace (each
# container has its own), so all three are recorded.


@functools.cache
def here() -> Json:
    """The scope of this process's process ids: `host`, `boot_id`, `pid_namespace`. The last two are
    empty if the system does not provide them.
    """
    return {
        "host": platform.node(),
        "boot_id": _read(Path("/proc/sys/kernel/random/boot_id").read_text),
        "pid_namespace": _read(Path("/proc/self/ns/pid").readlink),
    }


def identity(pid: int) -> Json:
    """`here` plus the kernel's start time of a process on this machine, empty if unknown."""
    return {**here(), "started": _start_time(pid)}


def is_here(process: Json) -> bool:
    """True when a recorded process id is valid in this scope, or its scope is unknown."""
    return all(process.get(key, value) == value for key, value in here().items())


def alive(pid: int, mark: str, started: str = "") -> bool:
    """True while a local process has the id, the start time, and `mark` in its command line; the id
    alone may have been reused.
    """
    if pid == os.getpid():
        return is_same(pid, started)
    with suppress(PermissionError):  # another user's: its command line can be read
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return mark in _command(pid, mark) and is_same(pid, started)


def is_same(pid: int, started: str) -> bool:
    """False only when the process with the id is known to be gone or another one."""
    return not started or started == _start_time(pid)


def _command(pid: int, unknown: str) -> str:
    """The command line of a process, empty for a zombie; `unknown` if it cannot be determined."""
    if Path("/proc/self/stat").is_file():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
            state = _stat(pid)[0]
        except (OSError, IndexError):
            return ""
        # a process has no command line for a moment after its start
        return command or ("" if state in "ZX" else unknown)
    try:
        ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(ps, capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return unknown


def _start_time(pid: int) -> str:
    """Empty for a process that is gone or a zombie."""
    try:
        fields = _stat(pid)
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; earlier ones may contain spaces."""
    return (
        Path(f"/proc/{pid}/stat")
        .read_text(encoding="utf-8", errors="replace")
        .rpartition(")")[2]
        .split()
    )


def _read(read: Callable[[], object]) -> str:
    try:
        return str(read()).strip()
    except OSError:
        return ""
