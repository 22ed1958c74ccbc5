"""Jobs: work that writes to a library, in separate processes. Their state is kept in the ledger, so
it survives restarts.

`launch` has a launcher start the process; this module does not know what the process does. States:
queued, running, cancelling, then one of done, partly (some documents failed), failed, cancelled.

A job that is split into ranges is `running` while they run, without a process of its own. When the
last range has ended, `fan_in` queues the job for its release.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rag_platform.config.settings import JobPolicy, Settings
from rag_platform.errors import (
    FULL_DISK,
    NEEDS_ANOTHER_FILE,
    SYNC_STOPPED,
    NotFoundError,
    RagError,
    disk_full,
    full_disk,
)
from rag_platform.ir import Json
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import OPEN_STATES as OPEN_STATES
from rag_platform.ledger.schema import Job, JobItem, now, range_of
from rag_platform.processes.launchers import (
    LAUNCH_SECONDS,
    LAUNCHERS,
    SUBMITTED,
    launcher_of,
    log_path,
    seconds_between,
)
from rag_platform.storage.records import to_json
from rag_platform.storage.store import Store
from rag_platform.text.wording import pluralise

FINAL_STATES = ("done", "partly", "failed", "cancelled")
JOB_TAG = "rag/job_id"  # tag of Dagster runs: the job that started the run, or that records it
DISK_FULL_EXIT = os.EX_IOERR  # exit code of a job's process that could not record its failure
HEARTBEAT_SECONDS = 15.0
GONE = "is gone (killed, or the machine went down)"
# parts of the reason of a job whose launcher saw its process end
_CUT_OFF, _KILLED = "ended with code", "was killed"
STOP_SECONDS = 10.0  # time for a cancelled job to end its run properly
_POLL_SECONDS = 0.1
_SWEEP_SECONDS = 5.0  # between checks for dead jobs while waiting for one
_PROGRESS_SECONDS = 0.2
_SUM_SECONDS = 2.0  # between two sums over the ranges of a job
_POLICY = JobPolicy()  # for callers without settings
_MEND = (
    "mend or replace the file or address, or change the setting that its reason names, then ingest"
    " it again"
)


@dataclass(frozen=True, slots=True)
class Started:
    """A recorded job, and its process; None when there was nothing to do."""

    job: Job
    process: subprocess.Popen[bytes] | None


def launch(job: Job, settings: Settings, store: Store) -> Started:
    """Start the process of a queued job, or with the Dagster launcher the process that submits it.
    Both outlive the caller.
    """
    return Started(job, LAUNCHERS[settings.jobs.launcher].start(job, settings, store))


def wait(
    started: Started,
    ledger: Ledger,
    store: Store,
    on_progress: Callable[[Job], None] | None = None,
    policy: JobPolicy = _POLICY,
) -> Job:
    """Wait until the job reaches a final state. If its process dies before, the job is recorded as
    failed with the end of the log; a process that has only submitted the job may end earlier.
    """
    process, swept = started.process, time.monotonic()
    if process is None:
        return started.job
    while True:
        code = process.poll()
        job = ledger.job(started.job.job_id)
        if on_progress is not None:
            on_progress(job)
        elsewhere = job.process.get("launcher") is not None
        if job.state in FINAL_STATES and (elsewhere or code is not None):
            return job
        unsubmitted = job.state == "queued" and job.process == SUBMITTED
        if code is not None and (not elsewhere or (code and unsubmitted)):
            return _record_lost(job, code, ledger, store)
        if elsewhere and time.monotonic() - swept > _SWEEP_SECONDS:
            end_orphans(ledger, policy)
            swept = time.monotonic()
        time.sleep(_POLL_SECONDS)


def _record_lost(job: Job, code: int, ledger: Ledger, store: Store) -> Job:
    """Record a job as failed whose process ended without a final state. On a full disk the ledger
    cannot be written, and only the returned job is changed.
    """
    if job.state == "cancelling":
        return record_cancelled(job.job_id, ledger)
    reason = (
        add_retry(full_disk(store.home), job.job_id)
        if code == DISK_FULL_EXIT
        else _describe_exit(store, job, code)
    )
    try:
        ledger.update_job(
            job.job_id, only_from=OPEN_STATES, state="failed", reason=reason, ended_at=now()
        )
    except Exception as error:
        if (full := disk_full(error, store.home)) is None:
            raise
        return replace(job, state="failed", reason=add_retry(full, job.job_id))
    return ledger.job(job.job_id)


def add_retry(error: RagError, job_id: str) -> str:
    """The reason recorded for a job that a full disk or another writer stopped."""
    return f"{error.message}; `rag jobs retry {job_id}` does the work then"


def code_of(job: Job) -> str:
    """`disk_full` for a job that a full disk stopped, else empty."""
    return "disk_full" if job.reason.startswith(FULL_DISK) else ""


def _describe_exit(store: Store, job: Job, code: int) -> str:
    path = log_path(store, job.job_id)
    if code == -signal.SIGKILL:  # its log ends anywhere, and says nothing of it
        return (
            f"the job's process {_KILLED} before it finished, by a person or because the machine"
            f" ran out of memory; its log is {path.relative_to(store.home).as_posix()};"
            f" {_rest(job)}"
        )
    log = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    last = (log.strip().splitlines() or ["nothing"])[-1]
    return (
        f"the job's process {_CUT_OFF} {code} before it finished; last line of its log"
        f" ({path.name}): {last[:500]}; {_rest(job)}"
    )


def describe_remedy(code: str, job_id: str) -> str:
    """The remedy for a document that failed in the job with this code."""
    return _MEND if code in NEEDS_ANOTHER_FILE else f"`rag jobs retry {job_id}` tries it again"


def describe_failures(failed: Sequence[JobItem], job_id: str) -> str:
    """The reason of a job with failed documents: their number and the remedies. A retry is
    suggested only for those that it may help. Sources that a sync left as they were come first.
    """
    if stopped := [item for item in failed if item.code in SYNC_STOPPED]:
        rest = [item for item in failed if item not in stopped]
        reasons = [f"{item.source_uri}: [{item.code}] {item.reason}" for item in stopped]
        return "; ".join([*reasons, *([describe_failures(rest, job_id)] if rest else [])])
    lasting = sum(item.code in NEEDS_ANOTHER_FILE for item in failed)
    count, retry = (
        f"{pluralise(len(failed), 'document')} failed",
        f"`rag jobs retry {job_id}` tries",
    )
    if not lasting:
        return f"{count}; {retry} them again"
    if lasting == len(failed):
        return f"{count}, and trying again changes nothing: {_MEND}"
    return f"{count}; {retry} {len(failed) - lasting} of them again; of the others {_MEND}"


def judge(job: Job, ledger: Ledger) -> tuple[str, str]:
    """(state, reason) of a job that went through its documents: `partly` if any failed, except as
    an earlier sync told.
    """
    failed = ledger.failed_job_items(job.job_id)
    if not failed:
        return "done", ""
    if len(find_told_before(job, failed, ledger)) == len(failed):
        return "done", f"{pluralise(len(failed), 'document')} failed as before"
    return "partly", describe_failures(failed, job.job_id)


def find_told_before(job: Job, failed: Sequence[JobItem], ledger: Ledger) -> set[str]:
    """The source_uris of a sync's failures that an earlier one told, and that stay the same until
    somebody does something about them; `failed` are all its failures.
    """
    told = ledger.find_told(job) if job.args.get("sync") else set()
    return {
        item.source_uri
        for item in failed
        if item.source_uri in told
        and (item.state == "dead" or item.code in {*NEEDS_ANOTHER_FILE, "unreadable"})
    }


# --- orphaned jobs ------------------------------------------------------------------------------


@contextmanager
def keep_heartbeat(job_id: str, ledger: Ledger, every: float = HEARTBEAT_SECONDS) -> Iterator[None]:
    """Record a heartbeat of the job in the ledger every `every` seconds while the block runs.

    If the job is cancelled from another machine or container, this process gets SIGTERM, provided
    that it has a handler for it.
    """
    over = threading.Event()

    def beat() -> None:
        cancelled = 0
        while not over.wait(every):
            with suppress(Exception):  # a full disk or busy ledger: the next beat tries again
                ledger.update_job(job_id, only_from=OPEN_STATES, heartbeat_at=now())
                cancelled += ledger.job(job_id).state == "cancelling"
                # not at the first beat: a canceller on this machine signals by itself
                if cancelled == 2 and callable(signal.getsignal(signal.SIGTERM)):
                    os.kill(os.getpid(), signal.SIGTERM)
        ledger.close()  # this thread's connection

    thread = threading.Thread(target=beat, name=f"heartbeat of {job_id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def end_orphans(ledger: Ledger, policy: JobPolicy = _POLICY) -> list[str]:
    """Mark jobs as failed whose process is gone or was never started, and return their ids.

    A job of another machine, container or boot counts as dead after `policy.silent_seconds` without
    a heartbeat; a queued one, after `policy.start_seconds` in which no job had a heartbeat.
    """
    if ledger.read_only:  # left to processes that can write
        return []
    lost = []
    found = ledger.open_jobs()
    forgotten = _find_forgotten(found, ledger, policy.start_seconds)
    for job in found:
        if waits_for_ranges(job):
            lost += [job.job_id] * fan_in(job, ledger)
            continue
        if job.job_id in forgotten:
            reason = (
                f"nothing began this job, and no other one went on, for {policy.start_seconds:.0f}"
                " s: its queue lost it, or no worker runs; `rag jobs retry"
                f" {job.job_id}` does the rest"
            )
        elif at_work(job, policy.silent_seconds) or _is_being_submitted(job, ledger):
            continue
        else:
            reason = _describe_loss(job)
        if job.state == "cancelling":
            record_cancelled(job.job_id, ledger)
        elif not ledger.update_job(
            job.job_id, only_from=(job.state,), state="failed", reason=reason, ended_at=now()
        ):
            continue  # it has just ended or begun
        lost.append(job.job_id)
    return lost


def _find_forgotten(found: Sequence[Job], ledger: Ledger, seconds: float) -> set[str]:
    """Ids of jobs that Dagster seems to have lost: they have been queued for more than `seconds`,
    and no job at all had a heartbeat in that time.
    """
    waiting = {
        job.job_id
        for job in found
        if _waits_in_queue(job) and seconds_between(job.created_at) > seconds
    }
    last = ledger.last_heartbeat() if waiting else ""
    return set() if last and seconds_between(last) <= seconds else waiting


def _waits_in_queue(job: Job) -> bool:
    """True for a job submitted to Dagster that has not begun; its queue may have lost it."""
    return job.state == "queued" and not job.pid and "run_id" in job.process


def left_runs_open(namespace: str, ledger: Ledger) -> bool:
    """True when the last job of a namespace that had a process was killed. Its Dagster run may
    still be marked as running, which only a process with Dagster can change.
    """
    for job in ledger.jobs(namespace):
        if job.pid:
            return job.state == "failed" and any(
                words in job.reason for words in (GONE, _CUT_OFF, _KILLED)
            )
    return False


def as_it_stands(job: Job, ledger: Ledger, policy: JobPolicy) -> Job:
    """The job as readers are shown it: failed when its process is gone, although that could not be
    recorded because the disk is full or the data root is read-only.
    """
    if job.state not in OPEN_STATES or not job.pid or at_work(job, policy.silent_seconds):
        return job
    job = ledger.job(job.job_id)  # it may have recorded its end since it was read
    if job.state in FINAL_STATES:
        return job
    reason = _describe_loss(job)
    if ledger.read_only:
        reason = (
            "the job's process is gone, and nothing can be written (a full disk, or a read-only"
            f" data root: `rag doctor` says which); {_rest(job)}"
        )
    return replace(job, state="failed", reason=reason, ended_at=job.heartbeat_at)


def _describe_loss(job: Job) -> str:
    what = "was never started" if job.state == "queued" and not job.pid else GONE
    return f"the job's process {what}; {_rest(job)}"


def at_work(job: Job, silent: float = _POLICY.silent_seconds) -> bool:
    """True while a job's process is alive or about to start, as far as this machine can tell."""
    return launcher_of(job).alive(job, silent)


def _is_being_submitted(job: Job, ledger: Ledger) -> bool:
    """True for a range not submitted yet while the process that submits it is alive."""
    if not (parent := range_of(job.job_id)) or job.state != "queued" or job.pid:
        return False
    return seconds_between(ledger.job(parent).heartbeat_at) < LAUNCH_SECONDS


def _rest(job: Job) -> str:
    """How to do the rest of a stopped job."""
    if job.kind in ("sync", "evaluate"):  # these cannot be retried
        return "start it again where it was started"
    return f"`rag jobs retry {job.job_id}` does the rest"


def _run_id(job: Job) -> str:
    """The Dagster run that a job records; empty for a job with its own process."""
    return str(job.args.get("run_id", ""))


# --- ranges -------------------------------------------------------------------------------------


def waits_for_ranges(job: Job) -> bool:
    """True for a job whose ranges are still being processed."""
    return bool(job.args.get("ranges")) and not job.pid and job.state in ("running", "cancelling")


def fan_in(job: Job, ledger: Ledger) -> bool:
    """Once all ranges of a job have ended, merge their figures and documents into it and queue it
    for its release, or end it if a range was lost. True if that ended the job. Any process may call
    this; it takes effect once.
    """
    if ledger.has_open_ranges(job.job_id):
        return False
    ranges = ledger.ranges(job.job_id)
    lost = [part for part in ranges if part.state not in ("done", "partly")]
    if job.state == "cancelling":
        ledger.merge_ranges(job, ranges)
        return record_cancelled(job.job_id, ledger).state == "cancelled"
    if lost:
        reason = (
            f"{len(lost)} of {pluralise(len(ranges), 'range')} did not end well, first"
            f" {lost[0].job_id}: {lost[0].reason}; `rag jobs retry {job.job_id}` does the rest"
        )
        return ledger.merge_ranges(job, ranges, state="failed", reason=reason, ended_at=now())
    ledger.merge_ranges(job, ranges, state="queued", process=SUBMITTED, heartbeat_at=now())
    return False


def has_not_begun(job: Job, ledger: Ledger) -> bool:
    """True for an open job of which nothing is running: all open parts of it wait in a queue, which
    may have lost them.
    """
    left = [job]
    if waits_for_ranges(job):
        left = [part for part in ledger.ranges(job.job_id) if part.state in OPEN_STATES]
    return bool(left) and all(map(_waits_in_queue, left))


# --- cancelling ---------------------------------------------------------------------------------


def cancel(
    job_id: str, ledger: Ledger, policy: JobPolicy = _POLICY, *, seconds: float = STOP_SECONDS
) -> Job:
    """Stop a job. Finished documents and the published release stay, queued documents are
    cancelled.

    The process has `seconds` to end its run properly, then it and its children are killed; the next
    job cleans up. A job on another machine or container stops at one of its next heartbeats. Raises
    NotFoundError `nothing_to_cancel` for a job that has ended, RagError `dagster_run` for a Dagster
    run.
    """
    end_orphans(ledger, policy)
    if run_id := _run_id(ledger.job(job_id)):
        raise RagError(
            f"job {job_id} is Dagster run {run_id}: terminate that in the Dagster UI",
            code="dagster_run",
        )
    if not ledger.update_job(job_id, only_from=OPEN_STATES, state="cancelling"):
        state = ledger.job(job_id).state
        raise NotFoundError(
            f"job {job_id} has ended already ({state}): there is nothing to cancel",
            code="nothing_to_cancel",
        )
    job = ledger.job(job_id)
    if waits_for_ranges(job):
        for part in ledger.ranges(job_id):
            if ledger.update_job(part.job_id, only_from=OPEN_STATES, state="cancelling"):
                _stop(part.job_id, ledger, seconds)
        fan_in(job, ledger)
        return ledger.job(job_id)
    return _stop(job_id, ledger, seconds)


def _stop(job_id: str, ledger: Ledger, seconds: float) -> Job:
    """Stop the process of a cancelling job, and record the job as cancelled once it is gone."""
    job = ledger.job(job_id)
    return record_cancelled(job_id, ledger) if launcher_of(job).stop(job, seconds) else job


def record_cancelled(job_id: str, ledger: Ledger) -> Job:
    """Record a stopped job as cancelled, unless it has ended otherwise."""
    reason = f"cancelled; {_rest(ledger.job(job_id))}"
    if ledger.update_job(
        job_id, only_from=("cancelling",), state="cancelled", reason=reason, ended_at=now()
    ):
        ledger.settle_job_items(
            job_id, "cancelled", "cancelled", "the job was cancelled before this document was done"
        )
    return ledger.job(job_id)


# --- progress -----------------------------------------------------------------------------------


class Progress:
    """Records a job's progress at most five times a second, and always the start and end of a
    stage. Thread-safe.

    The job's `progress` holds stage, done, total, message, since and at (the times when the stage
    began and was last recorded), and `stages`: the same figures of each stage so far.
    """

    def __init__(self, ledger: Ledger, job_id: str) -> None:
        self._ledger, self._job_id = ledger, job_id
        self._stages: dict[str, Json] = {}
        self._lock = threading.Lock()
        self._written = self._summed = 0.0

    def __call__(self, stage: str, done: int, total: int, message: str = "") -> None:
        """Report that `done` of `total` units of a stage are done."""
        with self._lock:
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            known = self._stages.get(stage)
            if known is None:  # others may have recorded earlier stages
                self._stages = {
                    **self._ledger.job(self._job_id).progress.get("stages", {}),
                    **self._stages,
                }
            # fewer than before: the stage was restarted
            began = known["since"] if known and known["done"] <= done else at
            self._stages[stage] = {"done": done, "total": total, "since": began, "at": at}
            if known and done < total and time.monotonic() - self._written < _PROGRESS_SECONDS:
                return
            progress = {
                "stage": stage,
                **self._stages[stage],
                "message": message,
                "stages": self._stages,
            }
            self._ledger.update_job(self._job_id, progress=progress)
            self._written = time.monotonic()
            parent = range_of(self._job_id)
            if parent and (done == total or self._written - self._summed > _SUM_SECONDS):
                sum_progress(parent, stage, self._ledger)
                self._summed = time.monotonic()


def sum_progress(job_id: str, stage: str, ledger: Ledger) -> None:
    """Record the progress of a job as the sum of its ranges' progress."""
    by_stage: dict[str, list[Json]] = {}
    for progress in ledger.range_progress(job_id):
        for name, figures in progress.get("stages", {}).items():
            by_stage.setdefault(name, []).append(figures)
    stages = {
        name: {
            "done": sum(part["done"] for part in parts),
            "total": sum(part["total"] for part in parts),
            "since": min(part["since"] for part in parts),
            "at": max(part["at"] for part in parts),
        }
        for name, parts in by_stage.items()
    }
    progress = {"stage": stage, **stages[stage], "message": "", "stages": stages}
    ledger.update_job(job_id, only_from=("running",), progress=progress)


def rate(stage: Json) -> float | None:
    """A stage's units per second; None before the first unit."""
    if not stage.get("done") or "since" not in stage:
        return None
    seconds = seconds_between(stage["since"], stage["at"])
    return float(stage["done"]) / seconds if seconds > 0 else None


def pace(each: float) -> str:
    """A rate per second, minute or hour as text, in the unit where it does not round to 0.

    >>> pace(12.34), pace(0.04)
    ('12.3 a second', '2.4 a minute')
    """
    for unit, seconds in (("second", 1), ("minute", 60)):
        if each * seconds >= 0.95:
            return f"{each * seconds:.1f} a {unit}"
    return f"{each * 3600:.1f} an hour"


def seconds_left(job: Job) -> float | None:
    """The estimated seconds that a running job still needs before its release. The stages run in
    parallel, so the slowest one counts.

    Documents not read yet are assumed to have as many texts to embed as the others. None if there
    is no estimate, as before the second document is read, because the first one includes start-up
    work that takes longer than many documents.
    """
    if job.state != "running":
        return None
    stages = {
        name: (stage["done"], stage["total"], rate(stage))
        for name, stage in job.progress.get("stages", {}).items()
        if name != "pages"  # they say nothing about the embedding that follows
    }
    read, documents, _ = stages.get("documents", (0, 0, None))
    if read < min(2, documents):
        return None
    if read and (texts := stages.get("embeddings")):
        stages["embeddings"] = (texts[0], texts[1] * max(1.0, documents / read), texts[2])
    left = [(total - done) / each for done, total, each in stages.values() if done < total and each]
    return max(left) if left else None


def seconds_left_of(name: str, stages: Json) -> float | None:
    """The estimated seconds that one stage still needs; None if there is no estimate."""
    stage = stages[name]
    if is_growing(name, stages) or stage["done"] >= stage["total"] or not (each := rate(stage)):
        return None
    return float((stage["total"] - stage["done"]) / each)


# --- reports ------------------------------------------------------------------------------------


def summary(job: Job) -> Json:
    """A job as JSON values without its documents: the ledger's row, `code`, `rate_per_s`,
    `seconds_left`, `seconds`, `retry_of` and `run_id`. Its arguments are left out, because they
    contain paths of this machine.
    """
    row: Json = {key: value for key, value in to_json(job).items() if key != "args"}
    each, left = rate(job.progress), seconds_left(job)
    return {
        **row,
        "code": code_of(job),
        "rate_per_s": None if each is None else round(each, 3),
        "seconds_left": None if left is None else round(left, 1),
        "seconds": seconds_between(job.started_at, job.ended_at) if job.started_at else 0.0,
        "retry_of": job.args.get("retry_of", ""),
        "run_id": _run_id(job),
    }


def state_of_item(state: str, decision: str, job: Job) -> str:
    """The displayed state of a job's document: one still queued when the job ended is
    `unprocessed`, a failed one `failed` whether or not it will be tried again, and a skipped one
    may be `ignored` or `kept`.
    """
    if state == "queued" and job.state in FINAL_STATES:
        return "unprocessed"
    if state == "skipped" and decision in ("ignored", "kept"):
        return decision
    return "failed" if state == "dead" else state


def displayed_items(items: Iterable[JobItem], job: Job) -> list[JobItem]:
    """A job's documents with their displayed states."""
    return [replace(item, state=state_of_item(item.state, item.decision, job)) for item in items]


def report(job: Job, items: Sequence[JobItem], store: Store) -> Json:
    """A job's full report: its summary, `items` (its documents with their displayed states),
    `counts` of those by state, the number of `ranges`, the path of the `log`, and a readable
    version under `markdown`.
    """
    data = summary(job)
    items = displayed_items(items, job)
    data["items"] = [
        {key: value for key, value in to_json(item).items() if key != "job_id"} for item in items
    ]
    data["ranges"] = job.args.get("ranges", 0)
    data["counts"] = dict(sorted(Counter(item.state for item in items).items()))
    log = log_path(store, job.job_id)  # only of own processes; Dagster keeps the logs of its runs
    data["log"] = log.relative_to(store.home).as_posix() if log.is_file() else ""
    return {"markdown": _markdown(data, log), **data}


def _markdown(data: Json, log_file: Path) -> str:
    title = (
        f"**{data['job_id']}**: {data['kind']} of library {data['namespace']!r}, {data['state']}"
    )
    title += f"; a retry of {data['retry_of']}" if data["retry_of"] else ""
    title += f"; Dagster run {data['run_id']}" if data["run_id"] else ""
    lines = [f"{title}."]
    if data["reason"]:
        lines.append(f"Reason: {data['reason']}")
    began = (
        f"started {data['started_at']}" if data["started_at"] else f"queued {data['created_at']}"
    )
    ended = f", ended {data['ended_at']}" if data["ended_at"] else ""
    host = data["process"].get("host", "")
    process = f"; process {data['pid']}{f' on {host}' if host else ''}" if data["pid"] else ""
    log = str(log_file) if data["log"] else "that of its Dagster run" if data["run_id"] else "none"
    lines.append(
        f"{began}{ended}, {data['seconds']:.0f} s{process}; trace {data['trace_id'] or 'none'}; log"
        f" {log}"
    )
    if run_id := data["process"].get("run_id"):
        lines.append(f"Started by Dagster run {run_id}.")
    if count := data["ranges"]:
        lines.append(f"In {count} ranges, from {data['job_id']}.1 on.")
    stages = data["progress"].get("stages", {})
    lines += [_stage_line(name, s, is_growing(name, stages)) for name, s in stages.items()]
    if data["seconds_left"] is not None:
        message = data["progress"].get("message", "")
        lines.append(f"About {data['seconds_left']:.0f} s left before the release; now: {message}")
    if data["counts"]:
        counts = ", ".join(f"{count} {state}" for state, count in data["counts"].items())
        lines.append(f"Documents: {counts}.")
    figures = [
        " ".join([pluralise(value, noun.removesuffix("s")), *rest])
        for key, value in data["result"].items()
        if isinstance(value, (int, float))
        for noun, *rest in [key.split("_")]
    ]
    if figures:
        lines.append(f"Result: {', '.join(figures)}.")
    lines += [
        f"- {item['state']}: {item['source_uri']}: [{item['code']}] {item['reason']}"
        for item in data["items"]
        if item["state"] == "failed"
    ]
    return "\n".join(lines)


def is_growing(name: str, stages: Json) -> bool:
    """True while the total of a stage may still grow: that of texts to embed until all documents
    are read, and that of pages too if there are several documents.
    """
    documents = stages.get("documents", {"done": 0, "total": 0})
    known = {"embeddings": 0, "pages": 1}.get(name)  # with so many documents the total is final
    return known is not None and bool(max(documents["done"], known) < documents["total"])


def _stage_line(name: str, stage: dict[str, Any], growing: bool) -> str:
    each = rate(stage)
    return f"- {name}: {stage['done']} of {stage['total']}{' known so far' if growing else ''}" + (
        f", {pace(each)}" if each else ""
    )
