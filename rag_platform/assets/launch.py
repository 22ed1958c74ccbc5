"""Carries out a job of the ledger as Dagster runs, which the UI shows like any other, in the job's
own process (`assets.job_process`) or in that of a run of the Dagster job `work`.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dagster as dg

from rag_platform.assets.collecting import run_collection
from rag_platform.assets.dagster_private import place_runs
from rag_platform.assets.instance import prepare
from rag_platform.assets.partitions import (
    NAMESPACE_TAG,
    PARTITION_TAG,
    RANGE_END,
    RANGE_START,
    contiguous,
    document_versions,
    namespaces,
)
from rag_platform.assets.release import find_rejection
from rag_platform.assets.runs import (
    DEFINITIONS,
    WORK_JOB,
    end_orphans,
    explain_rejection,
    is_built_anyway,
    job_definition,
)
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.drafts.lifecycle import no_longer_live
from rag_platform.errors import FULL_DISK, BusyError, RagError, StorageError, disk_full
from rag_platform.evaluation import run_requests
from rag_platform.evaluation.strategies import restore_strategy
from rag_platform.ir import Json
from rag_platform.ledger.schema import Job, JobItem, now, range_of
from rag_platform.observability import faults, otlp
from rag_platform.processes import jobs, launchers
from rag_platform.releases.garbage_collection import find_unreleased
from rag_platform.releases.publishing import find_equal, is_behind_ledger, settle
from rag_platform.releases.release_store import current
from rag_platform.releases.revising import go_live
from rag_platform.workspace import DataRoot

_INTERRUPTS = (KeyboardInterrupt, dg.DagsterExecutionInterruptedError)
_TOLD_TO_END = "the job's process was told to end"


@dataclass(frozen=True)
class Work:
    """A running job with its resources; it holds the namespace's write lock, shared between the
    ranges of one job.
    """

    job: Job
    root: DataRoot
    instance: dg.DagsterInstance
    progress: jobs.Progress  # records (stage, done, total, message)

    @property
    def namespace(self) -> str:
        return self.job.namespace


Outcome = tuple[str, str]  # state and reason of a job that ran to its end


# --- a job from its start to its end ------------------------------------------------------------


def run_job(job_id: str, launcher: Json | None = None) -> int:
    """Carry out a job and record its state, reason and result in the ledger; `launcher` is recorded
    at its start if an external launcher began it.

    Returns an exit code: 0 done, 3 some documents failed, 1 failed or cancelled,
    jobs.DISK_FULL_EXIT if not even the ledger could be written.
    """
    settings = load_settings()
    try:
        otlp.setup(settings.observability.otlp)
        root = DataRoot.open(settings)
        ledger = root.ledger
        process = launchers.of_process(os.getpid())
        process["process"] |= launcher or {}
        job = ledger.job(job_id)
        begun: Json = {"started_at": job.started_at or now()}
        if not (job.args.get("ranges") or range_of(job_id)):
            begun = {"started_at": now(), "progress": {}, "result": {}}
        if not ledger.update_job(
            job_id, only_from=("queued",), state="running", **begun, **process
        ):
            _say(f"job {job_id} is {ledger.job(job_id).state}, not queued: it is not run")
            return 1
        with jobs.keep_heartbeat(job_id, ledger):
            state, reason = _carry_out(ledger.job(job_id), root)
        if state != "done":
            restore_strategy(root, ledger.job(job_id))
        if state == "cancelled":
            jobs.record_cancelled(job_id, ledger)
        else:
            ledger.update_job(job_id, state=state, reason=reason, ended_at=now())
        _say(f"{state}: {reason}" if reason else state)
    except Exception as error:
        if (full := disk_full(error, settings.home)) is None:
            raise
        _say(full.message)
        return jobs.DISK_FULL_EXIT
    return {"done": 0, "partly": 3}.get(state, 1)


@contextmanager
def _take_turn(job: Job, root: DataRoot) -> Iterator[None]:
    """Hold the write lock of the job's library, after the other jobs that are at work there. Raises
    BusyError if anything else holds it for `jobs.lock_seconds`.
    """
    owner, shared = f"{job.kind} {job.job_id}", job.kind == "range"
    wait = root.settings.jobs.lock_seconds
    with ExitStack() as held:
        has_company = _has_company(job, root)
        while True:
            try:
                held.enter_context(
                    root.store.writer(job.namespace, owner, shared=shared, wait=wait)
                )
                break
            except BusyError as error:
                # a job lets go of the lock before it is recorded as over
                had_company, has_company = has_company, _has_company(job, root)
                if not (had_company or has_company):
                    raise
                jobs.Progress(root.ledger, job.job_id)("waiting", 0, 0, error.message)
        yield


def _has_company(job: Job, root: DataRoot) -> bool:
    """True while another job is at work in the same library."""
    silent, own = root.settings.jobs.silent_seconds, (job.job_id, range_of(job.job_id))
    return any(
        other.namespace in (job.namespace, "")
        and other.job_id not in own
        and jobs.at_work(other, silent)
        for other in root.ledger.open_jobs()
    )


def _carry_out(job: Job, root: DataRoot) -> Outcome:
    """Run the job's work; every exception becomes a state and a reason."""
    settings, store, ledger = root.settings, root.store, root.ledger
    try:
        prepare(store)
        with (
            dg.DagsterInstance.get() as instance,
            # a job for the whole data root takes the lock of each namespace itself
            _take_turn(job, root) if job.namespace else nullcontext(),
        ):
            place_runs(instance, DEFINITIONS)
            end_orphans(instance, ledger, settings.jobs)
            if job.kind != "range":
                settle(job.namespace, root)
            try:
                return KINDS[job.kind](Work(job, root, instance, jobs.Progress(ledger, job.job_id)))
            except _INTERRUPTS:
                _cancel_runs(instance, job.job_id)
                raise
    except _INTERRUPTS:
        if ledger.job(job.job_id).state == "cancelling":
            return "cancelled", ""
        return (
            "failed",
            f"{_TOLD_TO_END}; `rag jobs retry {job.job_id}` does the rest",
        )
    except (BusyError, StorageError) as error:
        return "failed", jobs.add_retry(error, job.job_id)
    except RagError as error:
        return "failed", error.message
    except Exception as error:  # noqa: BLE001 (whatever ended the job is recorded in the ledger)
        faults.report(error, f"job.{job.kind}", logs_dir=store.logs_dir)
        traceback.print_exc()
        full = disk_full(error, store.home)
        return "failed", (
            jobs.add_retry(full, job.job_id) if full else f"{type(error).__name__}: {error}"
        )


def _say(text: str) -> None:
    """Print to the job's log or a terminal; errors are ignored, as the disk may be full."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _cancel_runs(instance: dg.DagsterInstance, job_id: str) -> None:
    """Mark the job's unsuccessful runs as cancelled; Dagster reports a signal that it did not send
    as a failure.
    """
    for run in instance.get_runs(dg.RunsFilter(tags={jobs.JOB_TAG: job_id})):
        if run.status != dg.DagsterRunStatus.SUCCESS and run.job_name != WORK_JOB:
            instance.report_run_canceled(run, "the job of this run was cancelled")


# --- what jobs do -------------------------------------------------------------------------------


def ingest(work: Work) -> Outcome:
    """Process the job's versions, then release the live ones."""
    run_documents(work)
    reason = release(work)  # gives up what it cannot prove
    return ("failed", reason) if reason else jobs.judge(work.job, work.root.ledger)


def run_range(work: Work) -> Outcome:
    """Process the versions of a range; the job that it belongs to makes the release."""
    run_documents(work)
    return jobs.judge(work.job, work.root.ledger)


def _list_failed(work: Work) -> list[JobItem]:
    return work.root.ledger.failed_job_items(work.job.job_id)


def run_documents(work: Work) -> None:
    """Run the ingest job over the job's versions, unless its ranges did. Documents that a broken
    run did not reach have failed as well.
    """
    # a lost range does not get here: its job has failed
    wanted = [] if work.job.args.get("ranges") else list(work.job.args["version_ids"])
    name = document_versions.name or ""
    work.instance.add_dynamic_partitions(name, wanted)
    broken = ""
    for first, last in contiguous(work.instance.get_dynamic_partitions(name), set(wanted)):
        result = _execute(work, "ingest", {RANGE_START: first, RANGE_END: last})
        broken = broken if result.success else _last_error(result)
    if broken:
        reason = f"the ingest run broke before this document was done: {broken}"
        work.root.ledger.settle_job_items(work.job.job_id, "failed", "run_failed", reason[:2000])


def release(work: Work) -> str:
    """Build and publish the namespace's release if it is due and differs from the published one.
    Returns why publishing failed, else an empty text.
    """
    job, root, namespace = work.job, work.root, work.namespace
    settings, store, ledger = root.settings, root.store, root.ledger
    # a namespace whose first documents all failed has nothing to publish
    if current(store, namespace) is None and not ledger.live(namespace):
        return ""
    has_changes = job.args.get("due", True) or any(
        state == "done" for state, *_ in ledger.job_item_counts(job.job_id)
    )
    due = job.args.get("release", True) and has_changes
    # a job that changed nothing must not undo a rollback
    if not (due or is_behind_ledger(namespace, root)):
        _record_release(work, "nothing changed")
        return ""
    strategy = load_strategy(settings, ledger.namespaces().get(namespace))
    same = None if is_built_anyway(job) else find_equal(namespace, strategy, root)
    if same:
        _record_release(work, "nothing changed")
        work.progress("release", 1, 1, f"nothing changed: release {same} holds what is live")
        # else Dagster would show as failed what was put back as it was
        return run_release(work) if _failed_last(work) else ""
    rejected = find_rejection(work.instance, namespace, root.workspace(namespace))
    if rejected and not is_built_anyway(job):
        _record_release(work, "rejected before")
        return (
            f"{explain_rejection(namespace, rejected.release_id, rejected.reason)}\nthat was at"
            f" {rejected.created_at[:19]}Z, and nothing has changed since, so it was not asked"
            f" again; `rag rebuild --full --namespace {namespace}` asks again"
        )
    work.progress("release", 0, 1, "building the release")
    reason = run_release(work)
    if not reason:
        _record_release(work, "published")
        work.progress("release", 1, 1, "published")
    return reason


def _record_release(work: Work, outcome: str) -> None:
    """Add the outcome of its release to the job's result."""
    job_id, ledger = work.job.job_id, work.root.ledger
    ledger.update_job(job_id, result={**ledger.job(job_id).result, "release": outcome})


def _failed_last(work: Work) -> bool:
    """True if the newest release run of the job's namespace failed."""
    tags = {PARTITION_TAG: work.namespace}
    newest = work.instance.get_runs(dg.RunsFilter(job_name="release", tags=tags), limit=1)
    return any(run.is_failure for run in newest)


def run_release(work: Work) -> str:
    """Run the release job of the job's namespace. Returns why nothing was published, else an empty
    text.
    """
    namespace, ledger = work.namespace, work.root.ledger
    work.instance.add_dynamic_partitions(namespaces.name or "", [namespace])
    known = {row.release_id for row in ledger.releases(namespace)}
    result = _execute(work, "release", {}, partition_key=namespace)
    if result.success:
        return ""
    newest = next(iter(ledger.releases(namespace)), None)
    if newest and newest.state == "rejected" and newest.release_id not in known:
        return explain_rejection(namespace, newest.release_id, newest.reason)
    return f"the release run failed; the previous release stays published. {_last_error(result)}"


def publish(work: Work) -> Outcome:
    """Release the live versions; of itself the job of a retried release run of Dagster's own."""
    reason = release(work)
    return ("failed", reason) if reason else ("done", "")


def live(work: Work) -> Outcome:
    """Rebuild the version that is to be live if it is stale, pin it or unpin its document, then
    release.
    """
    run_documents(work)
    failed = _list_failed(work)
    why = f"[{failed[0].code}] {failed[0].reason}" if failed else ""
    if failed and work.job.args["live"]:
        return "failed", f"nothing was pinned: {failed[0].version_id} failed: {why}"
    go_live(work.job, work.root.ledger)
    if reason := release(work):
        return "failed", reason
    return ("partly", f"what its source holds failed: {why}") if failed else ("done", "")


def draft(work: Work) -> Outcome:
    """Make the edition of a draft's version, then release it."""
    if gone := no_longer_live(work.job, work.root.ledger):
        return "failed", gone
    run_documents(work)
    if failed := _list_failed(work):
        return "failed", f"nothing was published: [{failed[0].code}] {failed[0].reason}"
    return publish(work)


def delete(work: Work) -> Outcome:
    """Make a release without the deleted documents, then purge them if the deletion is hard."""
    if reason := release(work):
        return "failed", f"{reason}; what was deleted is hidden from every reader all the same"
    work.root.ledger.settle_job_items(work.job.job_id, "done", "", "")
    return gc(work) if work.job.args["mode"] == "hard" else ("done", "")


def gc(work: Work) -> Outcome:
    """Collect all garbage, after the deletions that were stopped, or that of one deletion."""
    if work.job.kind == "gc":
        for job in _list_stopped_deletions(work.root):
            items = [
                replace(item, state="queued") for item in work.root.ledger.job_items(job.job_id)
            ]
            args = {**job.args, "retry_of": job.job_id}
            again = work.root.ledger.add_job("delete", job.namespace, args, items)
            run_job(again.job_id, {**work.job.process, "within": launchers.find_mark(work.job)})
            ended = work.root.ledger.job(again.job_id)
            told = ended.state == "cancelled" or ended.reason.startswith(_TOLD_TO_END)
            if told or _is_cancelled(work):
                raise KeyboardInterrupt  # it is for this job too
    found = run_collection(work.job, work.root, work.instance, work.progress)
    return "done", "; ".join(found.left)


def _list_stopped_deletions(root: DataRoot) -> Iterator[Job]:
    """The newest job of each hard deletion that is still in the published release."""
    for record in find_unreleased(root):
        for job in root.ledger.jobs(record.namespace, limit=10_000):
            if job.kind == "delete" and job.args["sequence"] == record.sequence:
                if job.state in jobs.FINAL_STATES:
                    yield job
                break


def evaluate(work: Work) -> Outcome:
    """Evaluate a dataset; no release waits for it."""
    advance = partial(work.progress, "questions")
    run_requests.run_job(work.job, work.root, advance)
    return "done", ""


KINDS: dict[str, Callable[[Work], Outcome]] = {
    "ingest": ingest,
    "rebuild": ingest,
    "range": run_range,
    "edit": ingest,
    "live": live,
    "draft": draft,
    "delete": delete,
    "gc": gc,
    "release": publish,
    run_requests.JOB_KIND: evaluate,
}


# --- one Dagster run ----------------------------------------------------------------------------


def _execute(
    work: Work, job_name: str, tags: dict[str, str], partition_key: str | None = None
) -> dg.ExecuteInProcessResult:
    """Run a Dagster job. Raises KeyboardInterrupt if it was interrupted or cancelled, StorageError
    if the disk is full.
    """
    quiet = {"loggers": {"console": {"config": {"log_level": "INFO"}}}}
    tags = {**tags, jobs.JOB_TAG: work.job.job_id}
    # the enclosing run of `work` has the tag, and would count twice against `ranges_at_once`
    if "launcher" not in work.job.process:
        tags[NAMESPACE_TAG] = work.namespace
    result = job_definition(job_name).execute_in_process(
        instance=work.instance,
        tags=tags,
        partition_key=partition_key,
        run_config=quiet,
        raise_on_error=False,
    )
    failures = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    if any(
        failure.error_source and failure.error_source.name == "INTERRUPT" for failure in failures
    ) or _is_cancelled(work):
        raise KeyboardInterrupt
    for link in (link for failure in failures for link in _links(failure.error)):
        message = link.message.strip().removeprefix("rag_platform.errors.StorageError: ")
        if message.startswith(FULL_DISK):  # our own error, which may have more detail
            raise StorageError(message, code="disk_full")
        if full := disk_full(Exception(message), work.root.store.home):
            raise full
    return result


def _is_cancelled(work: Work) -> bool:
    """True if the job was cancelled: between steps Dagster may swallow the signal."""
    return work.root.ledger.job(work.job.job_id).state == "cancelling"


def _links(error: Any) -> Iterator[Any]:
    """A serialized error (message, cls_name, cause) and its causes, outermost first."""
    while error is not None:
        yield error
        error = error.cause


def _last_error(result: dg.ExecuteInProcessResult) -> str:
    """The message of the error that ended a run, without the stack: the first RagError, else the
    innermost error.
    """
    for event in result.all_events:
        if event.is_step_failure and (links := list(_links(event.step_failure_data.error))):
            error = next(
                (link for link in links if link.message.startswith("rag_platform.errors.")),
                links[-1],
            )
            return (
                str(error.message).strip().removeprefix(f"rag_platform.errors.{error.cls_name}: ")
            )
    return "Its log is in the Dagster UI and in logs/jobs"
