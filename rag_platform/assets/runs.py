"""Dagster runs and their jobs in the ledger: every run that writes has one, so that a killed run is
found and ended.
"""

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from rag_platform.assets.dagster_private import explain_backfill
from rag_platform.assets.partitions import NAMESPACE_TAG
from rag_platform.config.settings import JobPolicy
from rag_platform.errors import BusyError, NotFoundError, RagError
from rag_platform.ir import Json
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Job, JobItem, now
from rag_platform.observability import tracing
from rag_platform.processes import jobs, launchers
from rag_platform.workspace import Workspace

WORK_JOB = "work"  # the Dagster job that carries out a job of the ledger
WRITER_TAG = "rag/writer"  # of a run of it that takes a namespace's write lock: the namespace
# The module that workspace.yaml names: a job runs exactly what the UI shows.
DEFINITIONS = "rag_platform.definitions"
_UNDER_WAY = [
    # a job killed between the making of its run and its start leaves one
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_BACKFILLING = ("REQUESTED", "CANCELING", "FAILING")
_BACKFILLS_LOOKED_AT = 100  # the newest
# Dagster's own, with the id of the backfill that launched the run
_BACKFILL_TAG = "dagster/backfill"
_DOCUMENTS_TOLD = 50  # of a job, in the error of its backfill
# an open backfill of whose runs nothing was heard for so long holds no release back any more
BACKFILL_SECONDS = 600.0


def job_definition(name: str) -> dg.JobDefinition:
    """A Dagster job of ours, as the UI shows it."""
    definitions: dg.Definitions = importlib.import_module(DEFINITIONS).defs
    return definitions.resolve_job_def(name)


@dataclass
class Record:
    """The job of a run, and the result to record when this step ends well. With `goes_on`, another
    step ends the job.
    """

    job: Job
    state: str = "done"
    reason: str = ""
    goes_on: bool = False
    trace_id: str = ""


@contextmanager
def run_of_job(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    workspace: Workspace,
    kind: str,
    namespace: str,
    args: Json | None = None,
    items: Sequence[JobItem] = (),
) -> Iterator[Record]:
    """As `record_job`, with the namespace's write lock held, of a range shared with other ranges,
    and a trace for the work.
    """
    settings, store = workspace.settings, workspace.store
    with (
        record_job(context, workspace.ledger, kind, namespace, args, items) as record,
        store.writer(
            namespace,
            f"{kind} run {context.run.run_id}",
            shared=record.job.kind == "range",
            wait=settings.jobs.lock_seconds,
        ),
        tracing.trace(
            "ingestion",
            logs_dir=store.logs_dir,
            namespace=namespace,
            job_id=record.job.job_id,
            parent_trace_id=record.job.trace_id or None,
        ) as trace,
    ):
        workspace.describe(trace)
        record.trace_id = trace.trace_id
        if not record.job.trace_id:  # at once, so that a job which is stopped has one too
            workspace.ledger.update_job(record.job.job_id, trace_id=trace.trace_id)
        yield record


@contextmanager
def record_job(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    ledger: Ledger,
    kind: str,
    namespace: str,
    args: Json | None = None,
    items: Sequence[JobItem] = (),
) -> Iterator[Record]:
    """The job that started this run; for a run from the UI, a sensor or a schedule one that begins
    and ends with it, and is named by a tag, so that `end_orphans` notices when its process is gone.
    """
    run_id = context.run.run_id
    # an earlier step may have given it the tag
    run = context.instance.get_run_by_id(run_id) or context.run
    job = _job(ledger, run.tags.get(jobs.JOB_TAG, ""))
    # it ends when its own process says so
    if job is not None and "run_id" not in job.args and job.state in jobs.OPEN_STATES:
        yield Record(job)
        return
    # a run that is executed again has the tags of the first
    own = job is not None and job.args.get("run_id") == run_id
    if job is None or not own or job.namespace != namespace or job.state in jobs.FINAL_STATES:
        job = ledger.add_job(kind, namespace, {**(args or {}), "run_id": run_id}, items)
        ledger.update_job(
            job.job_id, state="running", started_at=now(), **launchers.of_process(os.getpid())
        )
        context.instance.add_run_tags(run_id, {jobs.JOB_TAG: job.job_id})
    record = Record(job)

    def end(state: str, reason: str) -> None:
        ledger.update_job(
            job.job_id, only_from=jobs.OPEN_STATES, state=state, reason=reason, ended_at=now()
        )

    try:
        with jobs.keep_heartbeat(job.job_id, ledger):
            yield record
    except RagError as error:
        later = f"; `rag jobs retry {job.job_id}` does the work then"
        reason = f"{error.message}{later if isinstance(error, BusyError) else ''}"
        end("failed", reason)
        # the run's page begins with what a Failure says, with anything else in a stack
        raise dg.Failure(f"[{error.code}] {reason}") from error
    except dg.Failure as error:
        end("failed", error.description or str(error))
        raise
    except Exception as error:
        end("failed", f"{type(error).__name__}: {error}")
        raise
    # Dagster's own interrupt, and the end of a generator that nobody reads on
    except BaseException:
        ledger.update_job(job.job_id, only_from=jobs.OPEN_STATES, state="cancelling")
        jobs.record_cancelled(job.job_id, ledger)
        raise
    if not record.goes_on:
        end(record.state, record.reason)


def end_orphans(instance: dg.DagsterInstance, ledger: Ledger, policy: JobPolicy) -> None:
    """End jobs whose process is gone, and close the Dagster runs of what has ended: one left open
    would hold the daemon's only slot.
    """
    jobs.end_orphans(ledger, policy)
    _settle_queue(instance, ledger)
    for found in instance.get_run_records(dg.RunsFilter(statuses=_UNDER_WAY)):
        run, job = found.dagster_run, _job(ledger, found.dagster_run.tags.get(jobs.JOB_TAG, ""))
        created = found.create_timestamp.timestamp()
        if job is None or _is_of_earlier_run(job, created):
            # of one that was launched and has not started, when it was taken from the queue
            began = found.start_time or found.update_timestamp.timestamp()
            if datetime.now(UTC).timestamp() - began > launchers.LAUNCH_SECONDS:
                instance.report_run_failed(
                    run,
                    "the process of this run did not begin its work within"
                    f" {launchers.LAUNCH_SECONDS:.0f} s",
                )
        elif job.state in jobs.FINAL_STATES and not _goes_on(job, run, policy):
            if job.state == "cancelled" or run.status == dg.DagsterRunStatus.CANCELING:
                instance.report_run_canceled(run, "the job of this run was cancelled")
            else:
                instance.report_run_failed(run, "the process of this run is gone")


def _settle_queue(instance: dg.DagsterInstance, ledger: Ledger) -> None:
    """Take jobs that have ended out of Dagster's queue, and end those whose run is over before it
    began their work.
    """
    queued = dg.RunsFilter(job_name=WORK_JOB, statuses=[dg.DagsterRunStatus.QUEUED])
    for run in instance.get_runs(queued):
        job = _job(ledger, run.tags.get(jobs.JOB_TAG, ""))
        if job is None or job.state in jobs.FINAL_STATES:
            instance.report_run_canceled(run, "the job of this run has ended")
    waiting = {
        run_id: job.job_id
        for job in ledger.open_jobs()
        if job.state == "queued" and (run_id := job.process.get("run_id"))
    }
    for run in instance.get_runs(dg.RunsFilter(run_ids=list(waiting))) if waiting else ():
        if run.is_finished:
            job_id = waiting[run.run_id]
            reason = (
                f"Dagster run {run.run_id} ({run.status.value}) did not begin the job's work;"
                f" `rag jobs retry {job_id}` does it"
            )
            ledger.update_job(
                job_id, only_from=("queued",), state="failed", reason=reason, ended_at=now()
            )


def _is_of_earlier_run(job: Job, created: float) -> bool:
    """True for a job that ended before the run was created: the run has the tag of the one that it
    repeats, and no job of its own yet.
    """
    return bool(job.ended_at) and datetime.fromisoformat(job.ended_at).timestamp() + 1 < created


def _goes_on(job: Job, run: dg.DagsterRun, policy: JobPolicy) -> bool:
    """True while the process of a run is alive although its job has ended: it may be between the
    jobs of two namespaces, or about to release after the last range.
    """
    if run.job_name == WORK_JOB and jobs.GONE not in job.reason:
        begun = bool(job.pid)
        return begun and launchers.seconds_between(job.ended_at) < launchers.LAUNCH_SECONDS
    return job.args.get("run_id") == run.run_id and jobs.at_work(job, policy.silent_seconds)


def busy(instance: dg.DagsterInstance, ledger: Ledger, names: Sequence[str]) -> set[str]:
    """The namespaces for which something is running or queued. A run or backfill from the UI may
    concern any namespace.
    """
    found = {
        job.namespace
        for state in jobs.OPEN_STATES
        for job in ledger.jobs(state=state, limit=10_000)
    }
    backfills = instance.get_backfills(limit=_BACKFILLS_LOOKED_AT)
    if any(
        _moves(backfill.backfill_id, backfill.backfill_timestamp, instance)
        for backfill in backfills
        if backfill.status.value in _BACKFILLING
    ):
        return set(names)
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED, *_UNDER_WAY])):
        concerned = concerns(run, ledger)
        if concerned is None:
            return set(names)
        found.add(concerned)
    return found & set(names)


def explain_backfills(instance: dg.DagsterInstance, ledger: Ledger) -> None:
    """Say of the backfills that failed a short while ago which documents were not processed, and
    why: Dagster counts a partition that nothing was made for as failed, without a word.
    """
    for backfill in instance.get_backfills(limit=_BACKFILLS_LOOKED_AT):
        ended = backfill.backfill_end_timestamp or 0.0
        recent = datetime.now(UTC).timestamp() - ended < BACKFILL_SECONDS
        if backfill.status.value != "COMPLETED_FAILED" or backfill.error or not recent:
            continue
        runs = instance.get_runs(dg.RunsFilter(tags={_BACKFILL_TAG: backfill.backfill_id}))
        run_ids = {run.run_id for run in runs}
        told = [
            _describe(job, ledger)
            for job in ledger.jobs(limit=10_000)
            if job.args.get("run_id") in run_ids and job.state != "done"
        ]
        if told:
            explain_backfill(instance, backfill, "\n\n".join(told))


def _describe(job: Job, ledger: Ledger) -> str:
    """The reason of a job that did not end well, and its failed documents with their partitions."""
    failed = [
        f"- {item.source_uri}: [{item.code}] {item.reason} (partition {item.version_id})"
        for item in ledger.failed_job_items(job.job_id)[:_DOCUMENTS_TOLD]
    ]
    return "\n".join([f"job {job.job_id} is {job.state}: {job.reason}", *failed])


def _moves(backfill_id: str, launched: float, instance: dg.DagsterInstance) -> bool:
    """True for an open backfill that was launched, or had a run that changed, a short while ago;
    Dagster may keep one open for ever.
    """
    newest = instance.get_run_records(dg.RunsFilter(tags={_BACKFILL_TAG: backfill_id}), limit=1)
    changed_at = max([launched, *(record.update_timestamp.timestamp() for record in newest)])
    return datetime.now(UTC).timestamp() - changed_at < BACKFILL_SECONDS


def concerns(run: dg.DagsterRun, ledger: Ledger) -> str | None:
    """The namespace that a run works for; empty when it leaves the work to jobs of its own; None
    when it may be any.
    """
    if run.job_name == "sync":
        return ""
    job = _job(ledger, run.tags.get(jobs.JOB_TAG, ""))
    # it may have more namespaces before it
    own = job is not None and job.args.get("run_id") == run.run_id
    return job.namespace if job is not None and not own else run.tags.get(NAMESPACE_TAG)


def is_built_anyway(job: Job) -> bool:
    """True for a job whose release is built even if nothing changed: a full one, or one without
    deleted documents in its files.
    """
    return bool(job.args.get("full")) or job.kind == "delete"


def was_killed(run: dg.DagsterRun, ledger: Ledger) -> bool:
    """True for a run that ended because its process disappeared, or that never began its work."""
    job = _job(ledger, run.tags.get(jobs.JOB_TAG, ""))
    return job is None or jobs.GONE in job.reason


def _job(ledger: Ledger, job_id: str) -> Job | None:
    try:
        return ledger.job(job_id)
    except NotFoundError:
        return None
