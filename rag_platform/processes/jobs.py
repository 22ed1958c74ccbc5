"""Jobs: writing work in processes of their own. Their state is kept in the ledger, so that they are
found again after a restart.

`launch` has a launcher start the process; this module does not know what the process does. States:
queued, running, cancelling, then one of done, partly (some documents failed), failed, cancelled.

A job that is cut into ranges counts as running while they run, and has no process meanwhile. When
the last range has ended, `fan_in` queues the job for its release.
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
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rag_platform.config.settings import JobPolicy, Settings
from rag_platform.errors import (
    FULL_DISK,
    NEEDS_ANOTHER_FILE,
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
from rag_platform.text.plurals import pluralise

FINAL_STATES = ("done", "partly", "failed", "cancelled")
JOB_TAG = "rag/job_id"  # of Dagster runs: the job that started the run, or tells of it
DISK_FULL_EXIT = os.EX_IOERR  # of a job's process that could not even write why it ended
HEARTBEAT_SECONDS = 15.0  # how often a job's process says that it lives
GONE = "is gone (killed, or the machine went down)"
_CUT_OFF = "ended with code"  # a process that its own launcher waited for
STOP_SECONDS = 10.0  # a job that is told to stop has so long to end its run properly
_POLL_SECONDS = 0.1
_SWEEP_SECONDS = 5.0  # how often who waits for a job looks whether it lives
_PROGRESS_SECONDS = 0.2
_SUM_SECONDS = 2.0  # between two sums over the ranges of a job
_POLICY = JobPolicy()  # where the caller has no settings
_MEND = (
    "mend or replace the file or address, or change the setting that its reason names, then ingest"
    " it again"
)


def launch(job: Job, settings: Settings, store: Store) -> subprocess.Popen[bytes]:
    """The started process of a queued job, or with Dagster as the launcher the one that submits
    it; both outlive the caller.
    """
    return LAUNCHERS[settings.jobs.launcher].start(job, settings, store)


def wait(
    job_id: str,
    process: subprocess.Popen[bytes],
    ledger: Ledger,
    store: Store,
    on_progress: Callable[[Job], None] | None = None,
    policy: JobPolicy = _POLICY,
) -> Job:
    """The job in its final state. A process that died without one is recorded as failed with the
    end of its log; one that has handed the job over is not waited for.
    """
    swept = time.monotonic()
    while True:
        code = process.poll()
        job = ledger.job(job_id)
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
    """The job, recorded as failed since its process ended without saying so; on a full disk that
    cannot be recorded either.
    """
    if job.state == "cancelling":
        return record_cancelled(job.job_id, ledger)
    reason = (
        again(full_disk(store.home), job.job_id)
        if code == DISK_FULL_EXIT
        else _last_words(store, job.job_id, code)
    )
    try:
        ledger.update_job(
            job.job_id, only_from=OPEN_STATES, state="failed", reason=reason, ended_at=now()
        )
    except Exception as error:
        if (full := disk_full(error, store.home)) is None:
            raise
        return replace(job, state="failed", reason=again(full, job.job_id))
    return ledger.job(job.job_id)


def again(error: RagError, job_id: str) -> str:
    """The reason of a job that a full disk or another writer ended."""
    return f"{error.message}; `rag jobs retry {job_id}` does the work then"


def code_of(job: Job) -> str:
    """`disk_full` for a job that a full disk ended, else empty."""
    return "disk_full" if job.reason.startswith(FULL_DISK) else ""


def _last_words(store: Store, job_id: str, code: int) -> str:
    path = log_path(store, job_id)
    log = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    last = (log.strip().splitlines() or ["nothing"])[-1]
    return (
        f"the job's process {_CUT_OFF} {code} before it finished; last line of its log"
        f" ({path.name}): {last[:500]}; `rag jobs retry {job_id}` does the rest"
    )


def describe_remedy(code: str, job_id: str) -> str:
    """What helps a document that failed with this code in the job."""
    return _MEND if code in NEEDS_ANOTHER_FILE else f"`rag jobs retry {job_id}` tries it again"


def describe_failures(failed: Sequence[JobItem], job_id: str) -> str:
    """The reason of a job of which documents failed: how many, and what helps; no retry reads a
    broken file.
    """
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


# --- jobs that nobody works on any more ---------------------------------------------------------


@contextmanager
def keep_heartbeat(job_id: str, ledger: Ledger, every: float = HEARTBEAT_SECONDS) -> Iterator[None]:
    """Record a heartbeat of the job in the ledger `every` so many seconds while the block runs.

    When somebody cancelled the job from another machine or container, this process is sent SIGTERM,
    if it does not die of that.
    """
    over = threading.Event()

    def beat() -> None:
        cancelled = 0
        while not over.wait(every):
            with suppress(Exception):  # a full disk or a busy ledger: the next beat does it
                ledger.update_job(job_id, only_from=OPEN_STATES, heartbeat_at=now())
                cancelled += ledger.job(job_id).state == "cancelling"
                # whoever cancels from here sends the signal, and kills after STOP_SECONDS
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
    """End the jobs whose process is gone or was never started, and return their ids.

    A job of another machine, container or boot is over after `policy.silent_seconds` without a
    heartbeat; one that waits in a queue, after `policy.start_seconds` without a heartbeat of any.
    """
    if ledger.read_only:  # left to whoever can write
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
            what = "was never started" if job.state == "queued" and not job.pid else GONE
            reason = f"the job's process {what}; {_rest(job)}"
        if job.state == "cancelling":
            record_cancelled(job.job_id, ledger)
        elif not ledger.update_job(
            job.job_id, only_from=(job.state,), state="failed", reason=reason, ended_at=now()
        ):
            continue  # it has just ended by itself, or begun
        lost.append(job.job_id)
    return lost


def _find_forgotten(found: Sequence[Job], ledger: Ledger, seconds: float) -> set[str]:
    """Ids of the jobs that have waited in Dagster's hands in vain: for so many seconds no job at
    all showed a sign of life.
    """
    waiting = {
        job.job_id
        for job in found
        if _waits_in_queue(job) and seconds_between(job.created_at) > seconds
    }
    last = ledger.last_heartbeat() if waiting else ""
    return set() if last and seconds_between(last) <= seconds else waiting


def _waits_in_queue(job: Job) -> bool:
    """True for a job that was handed to Dagster and has not begun; its queue may have lost it."""
    return job.state == "queued" and not job.pid and "run_id" in job.process


def left_runs_open(namespace: str, ledger: Ledger) -> bool:
    """True where the newest job of a namespace that had a process was killed: its Dagster run may
    still be called running, which only a process with Dagster can end.
    """
    for job in ledger.jobs(namespace):
        if job.pid:
            return job.state == "failed" and (GONE in job.reason or _CUT_OFF in job.reason)
    return False


def at_work(job: Job, silent: float = _POLICY.silent_seconds) -> bool:
    """True while the process of a job is alive, or about to be started, as far as this machine can
    tell.
    """
    return launcher_of(job).alive(job, silent)


def _is_being_submitted(job: Job, ledger: Ledger) -> bool:
    """True for a range that is still to be submitted, while the process that submits the ranges of
    its job is alive.
    """
    if not (parent := range_of(job.job_id)) or job.state != "queued" or job.pid:
        return False
    return seconds_between(ledger.job(parent).heartbeat_at) < LAUNCH_SECONDS


def _rest(job: Job) -> str:
    """What does the rest of a job that was stopped."""
    if job.kind in ("sync", "evaluate"):  # which a retry refuses
        return "start it again where it was started"
    return f"`rag jobs retry {job.job_id}` does the rest"


def _run_id(job: Job) -> str:
    """The Dagster run that a job records; empty for a job with a process of its own."""
    return str(job.args.get("run_id", ""))


# --- ranges -------------------------------------------------------------------------------------


def waits_for_ranges(job: Job) -> bool:
    """True for a job whose documents are processed by its ranges."""
    return bool(job.args.get("ranges")) and not job.pid and job.state in ("running", "cancelling")


def fan_in(job: Job, ledger: Ledger) -> bool:
    """Queue a job for its release once all its ranges have ended, with their figures and documents,
    or end it when one of them was lost; True if that ended the job. Any process that notices may
    call it: it takes effect once.
    """
    if ledger.has_open_ranges(job.job_id):
        return False
    ranges = ledger.ranges(job.job_id)
    lost = [one for one in ranges if one.state not in ("done", "partly")]
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
    """True for an open job of which nothing is carried out: what is left of it waits in a queue,
    which may have lost it.
    """
    left = [job]
    if waits_for_ranges(job):
        left = [one for one in ledger.ranges(job.job_id) if one.state in OPEN_STATES]
    return bool(left) and all(_waits_in_queue(one) for one in left)


# --- cancelling ---------------------------------------------------------------------------------


def cancel(
    job_id: str, ledger: Ledger, policy: JobPolicy = _POLICY, *, seconds: float = STOP_SECONDS
) -> Job:
    """Stop a job: documents that are done stay done, queued ones are cancelled, the published
    release stays.

    Its process has `seconds` to end its run properly, then it and its children are killed; the next
    job clears away what was half built. A job of another machine or container ends at one of its
    next heartbeats. Raises NotFoundError `nothing_to_cancel` for a job that has ended.
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
        for one in ledger.ranges(job_id):
            if ledger.update_job(one.job_id, only_from=OPEN_STATES, state="cancelling"):
                _stop(one.job_id, ledger, seconds)
        fan_in(job, ledger)
        return ledger.job(job_id)
    return _stop(job_id, ledger, seconds)


def _stop(job_id: str, ledger: Ledger, seconds: float) -> Job:
    """Record a cancelling job as cancelled when its process is gone."""
    job = ledger.job(job_id)
    return record_cancelled(job_id, ledger) if launcher_of(job).stop(job, seconds) else job


def record_cancelled(job_id: str, ledger: Ledger) -> Job:
    """Record a stopped job as cancelled, unless it has ended by itself."""
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
    """Records how far a job is, at most five times a second, and always the begin and the end of a
    stage. Threads may share it.

    `progress` of the job then holds stage, done, total, message, since and at (when the stage began
    and when it was last recorded) and `stages`: the same figures of every stage so far.
    """

    def __init__(self, ledger: Ledger, job_id: str) -> None:
        self._ledger, self._job_id = ledger, job_id
        self._stages: dict[str, Json] = {}
        self._lock = threading.Lock()
        self._written = self._summed = 0.0

    def __call__(self, stage: str, done: int, total: int, message: str = "") -> None:
        """Say that `done` of `total` are done in a stage."""
        with self._lock:
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            known = self._stages.get(stage)
            if known is None:  # others may have recorded earlier stages
                self._stages = {
                    **self._ledger.job(self._job_id).progress.get("stages", {}),
                    **self._stages,
                }
            # fewer than before: it began anew
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
    """Record the progress of a job as the sum of the progress of its ranges."""
    figures: dict[str, list[Json]] = {}
    for progress in ledger.range_progress(job_id):
        for name, of_one in progress.get("stages", {}).items():
            figures.setdefault(name, []).append(of_one)
    stages = {
        name: {
            "done": sum(one["done"] for one in of_all),
            "total": sum(one["total"] for one in of_all),
            "since": min(one["since"] for one in of_all),
            "at": max(one["at"] for one in of_all),
        }
        for name, of_all in figures.items()
    }
    progress = {"stage": stage, **stages[stage], "message": "", "stages": stages}
    ledger.update_job(job_id, only_from=("running",), progress=progress)


def rate(stage: Json) -> float | None:
    """How many units a stage does in a second; None before the first."""
    if not stage.get("done") or "since" not in stage:
        return None
    seconds = seconds_between(stage["since"], stage["at"])
    return float(stage["done"]) / seconds if seconds > 0 else None


def pace(each: float) -> str:
    """A rate in words, per second, minute or hour, so that a slow one does not read as 0.

    >>> pace(12.34), pace(0.04)
    ('12.3 a second', '2.4 a minute')
    """
    for unit, seconds in (("second", 1), ("minute", 60)):
        if each * seconds >= 0.95:
            return f"{each * seconds:.1f} a {unit}"
    return f"{each * 3600:.1f} an hour"


def seconds_left(job: Job) -> float | None:
    """About how many seconds a running job still needs before its release: its stages run side by
    side, so the slowest counts.

    Documents that are still to be read are assumed to have as many texts to embed as those that
    were. None where it cannot be told, as before the second document is read: what is loaded for
    the first one takes longer than many documents.
    """
    if job.state != "running":
        return None
    stages = {
        name: (stage["done"], stage["total"], rate(stage))
        for name, stage in job.progress.get("stages", {}).items()
        if name != "pages"  # which say nothing of the embedding that follows
    }
    read, documents, _ = stages.get("documents", (0, 0, None))
    if read < min(2, documents):
        return None
    if read and (texts := stages.get("embeddings")):
        stages["embeddings"] = (texts[0], texts[1] * max(1.0, documents / read), texts[2])
    left = [(total - done) / each for done, total, each in stages.values() if done < total and each]
    return max(left) if left else None


def seconds_left_of(name: str, stages: Json) -> float | None:
    """About how many seconds one stage still needs; None when that is not known."""
    stage = stages[name]
    if is_growing(name, stages) or stage["done"] >= stage["total"] or not (each := rate(stage)):
        return None
    return float((stage["total"] - stage["done"]) / each)


# --- reports ------------------------------------------------------------------------------------


def summary(job: Job) -> Json:
    """A job for programs, without its documents: the row in the ledger, `code`, `rate_per_s`,
    `seconds_left`, `seconds`, `retry_of`, `run_id`. Arguments are left out, because they hold paths
    of this machine.
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


def state_of_item(state: str, job: Job) -> str:
    """The state of a job's document as it is told: nothing waits in a job that has ended."""
    return "unprocessed" if state == "queued" and job.state in FINAL_STATES else state


def items_as_told(items: Iterable[JobItem], job: Job) -> list[JobItem]:
    """A job's documents with their states as they are told."""
    return [replace(item, state=state_of_item(item.state, job)) for item in items]


def report(job: Job, items: Sequence[JobItem], store: Store) -> Json:
    """All about a job: its summary, `items` (its documents with their states), `counts` of those,
    the number of its `ranges`, `log`, and `markdown` to read.
    """
    data = summary(job)
    items = items_as_told(items, job)
    data["items"] = [
        {key: value for key, value in to_json(item).items() if key != "job_id"} for item in items
    ]
    data["ranges"] = job.args.get("ranges", 0)
    data["counts"] = dict(sorted(Counter(item.state for item in items).items()))
    log = log_path(store, job.job_id)  # of a process of its own; Dagster keeps those of its runs
    data["log"] = log.relative_to(store.home).as_posix() if log.is_file() else ""
    return {"markdown": _markdown(data), **data}


def _markdown(data: Json) -> str:
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
    log = data["log"] or ("that of its Dagster run" if data["run_id"] else "none")
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
        f"{value} {key.replace('_', ' ')}"
        for key, value in data["result"].items()
        if isinstance(value, (int, float))
    ]
    if figures:
        lines.append(f"Result: {', '.join(figures)}.")
    lines += [
        f"- {item['state']}: {item['source_uri']}: [{item['code']}] {item['reason']}"
        for item in data["items"]
        if item["state"] in ("failed", "dead")
    ]
    return "\n".join(lines)


def is_growing(name: str, stages: Json) -> bool:
    """True while documents are still read, so that nobody knows yet how many texts there are to
    embed, or how many pages to read where there are several documents.
    """
    documents = stages.get("documents", {"done": 0, "total": 0})
    known = {"embeddings": 0, "pages": 1}.get(name)  # documents that add nothing to the total
    return known is not None and bool(max(documents["done"], known) < documents["total"])


def _stage_line(name: str, stage: dict[str, Any], growing: bool) -> str:
    each = rate(stage)
    return f"- {name}: {stage['done']} of {stage['total']}{' known so far' if growing else ''}" + (
        f", {pace(each)}" if each else ""
    )
