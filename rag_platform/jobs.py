"""Jobs: writing work in a child process, its state in the ledger, so that it is found again after a restart.

`launch` starts `python -m rag_platform.assets.launch JOB_ID`; nothing here knows what that does. States: queued, running, then one of
done, partly (some documents failed), failed, cancelled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rag_platform.config import Settings, config_dir
from rag_platform.ledger import Ledger
from rag_platform.ledger_rows import Job
from rag_platform.ledger_tables import now
from rag_platform.store import Store

FINAL_STATES = ("done", "partly", "failed", "cancelled")
_POLL_SECONDS = 0.1


def log_path(store: Store, job_id: str) -> Path:
    """What the job's process printed."""
    return store.logs_dir / "jobs" / f"{job_id}.log"


def launch(job: Job, settings: Settings, store: Store) -> subprocess.Popen[bytes]:
    """The started child process of a queued job; it outlives the caller."""
    path = log_path(store, job.job_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "RAG_HOME": str(settings.home),
        "RAG_CONFIG": str(config_dir().resolve()),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    with open(path, "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rag_platform.assets.launch", job.job_id],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def wait(
    job_id: str, process: subprocess.Popen[bytes], ledger: Ledger, store: Store, on_progress: Callable[[Job], None] | None = None
) -> Job:
    """The job in its final state. A process that died without one is recorded as failed with the end of its log."""
    while True:
        ended = process.poll() is not None
        job = ledger.job(job_id)
        if on_progress is not None:
            on_progress(job)
        if job.state in FINAL_STATES and ended:
            return job
        if ended:
            ledger.update_job(job_id, state="failed", reason=_last_words(store, job_id, process.returncode), ended_at=now())
            return ledger.job(job_id)
        time.sleep(_POLL_SECONDS)


def end_orphans(ledger: Ledger) -> list[str]:
    """Ids of the jobs that were running in a process that is gone, now recorded as failed; after a crash nobody else says so."""
    lost = [job.job_id for job in ledger.jobs(state="running") if not _alive(job.pid)]
    for job_id in lost:
        reason = "the job's process is gone (killed, or the machine went down); ingest again to finish the work"
        ledger.update_job(job_id, state="failed", reason=reason, ended_at=now())
    return lost


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    status = Path(f"/proc/{pid}/stat")  # a dead process that nobody waited for still answers signals
    try:
        return not status.is_file() or status.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _last_words(store: Store, job_id: str, code: int) -> str:
    path = log_path(store, job_id)
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.is_file() else []
    said = next((line for line in reversed(lines) if line.strip()), "nothing")
    return f"the job's process ended with code {code} before it finished; last line of its log ({path.name}): {said[:500]}"
