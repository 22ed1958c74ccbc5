"""Links Dagster runs and jobs of the ledger: every run that writes has a job, so that killed runs
are detected and ended.
"""

import importlib
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from rag_platform.assets.dagster_private import explain_backfill
from rag_platform.assets.partitions import NAMESPACE_TAG
from rag_platform.config.settings import JobPolicy
from rag_platform.errors import BusyError, NotFoundError, RagError, StorageError
from rag_platform.ir import Json
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Job, JobItem, now
from rag_platform.observability import tracing
from rag_platform.processes import jobs, launchers
from rag_platform.releases.manifest import NOT_JUDGED, QUALITY_GATE
from rag_platform.workspace import Workspace

WORK_JOB = "work"  # the Dagster job that carries out a job of the ledger
# of a run that failed for what passes: a model that is away, a full disk, a lock; it says which
PASSING_TAG = "rag/passing"
WRITER_TAG = "rag/writer"  # namespace whose write lock a run of it takes
# The module that workspace.yaml names, so that a job runs exactly what the UI shows.
DEFINITIONS = "rag_platform.definitions"
_UNFINISHED = [
    # left by a job that was killed between creating its run and starting it
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_OPEN_BACKFILLS = ("REQUESTED", "CANCELING", "FAILING")
_MAX_BACKFILLS = 100  # the newest
# set by Dagster: the id of the backfill that launched the run
_BACKFILL_TAG = "dagster/backfill"
_MAX_DOCUMENTS = 50  # of a job, in the error of its backfill
# an open backfill whose runs have not changed for so long does not hold back releases
BACKFILL_SECONDS = 600.0


def job_definition(name: str) -> dg.JobDefinition:
    """A Dagster job of ours, as the UI shows it."""
    definitions: dg.Definitions = importlib.import_module(DEFINITIONS).defs
    return definitions.resolve_job_def(name)


@dataclass
class JobRecord:
    """The job of a run, and the state to record when this step succeeds. With `continues`, a later
    step ends the job.
    """

    job: Job
    state: str = "done"
    reason: str = ""
    continues: bool = False
    trace_id: str = ""


@contextmanager
def run_of_job(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    workspace: Workspace,
    kind: str,
    namespace: str,
    args: Json | None = None,
    items: Sequence[JobItem] = (),
) -> Iterator[JobRecord]:
    """As `record_job`, holding the namespace's write lock (shared between ranges) and
    with a trace.
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
        if not record.job.trace_id:  # now, so that a stopped job has one too
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
) -> Iterator[JobRecord]:
    """The job that started this run. A run from the UI, a sensor or a schedule gets a job of its
    own that ends with it and is named in a tag, by which `end_orphans` detects a lost process.
    """
    run_id = context.run.run_id
    # an earlier step may have given it the tag
    run = context.instance.get_run_by_id(run_id) or context.run
    job = _job(ledger, run.tags.get(jobs.JOB_TAG, ""))
    # a job with a process of its own is ended by that
    if job is not None and "run_id" not in job.args and job.state in jobs.OPEN_STATES:
        yield JobRecord(job)
        return
    # a re-executed run has the tags of the first
    own = job is not None and job.args.get("run_id") == run_id
    if job is None or not own or job.namespace != namespace or job.state in jobs.FINAL_STATES:
        job = ledger.add_job(kind, namespace, {**(args or {}), "run_id": run_id}, items)
        ledger.update_job(
            job.job_id, state="running", started_at=now(), **launchers.of_process(os.getpid())
        )
        context.instance.add_run_tags(run_id, {jobs.JOB_TAG: job.job_id})
    record = JobRecord(job)

    def end(state: str, reason: str) -> None:
        ledger.update_job(
            job.job_id, only_from=jobs.OPEN_STATES, state=state, reason=reason, ended_at=now()
        )

    try:
        with jobs.keep_heartbeat(job.job_id, ledger):
            raise_if_cancelled(context)
            yield record
    except RagError as error:
        passes = isinstance(error, (BusyError, StorageError))
        reason = jobs.add_retry(error, job.job_id) if passes else error.message
        end("failed", reason)
        if passes:
            context.instance.add_run_tags(run_id, {PASSING_TAG: error.code})
        # the run's page shows the message of a Failure, but the stack of other exceptions
        raise dg.Failure(f"[{error.code}] {reason}") from error
    except dg.Failure as error:
        end("failed", error.description or str(error))
        raise
    except Exception as error:
        end("failed", f"{type(error).__name__}: {error}")
        raise
    # Dagster's interrupt, and GeneratorExit
    except BaseException:
        ledger.update_job(job.job_id, only_from=jobs.OPEN_STATES, state="cancelling")
        jobs.record_cancelled(job.job_id, ledger)
        raise
    if not record.continues:
        end(record.state, record.reason)


def tag_library(
    context: dg.OpExecutionContext | dg.AssetExecutionContext, names: Collection[str]
) -> None:
    """Tag a run from the UI that works for one library with it."""
    if len(names) == 1 and not context.run.tags.keys() & {NAMESPACE_TAG, jobs.JOB_TAG}:
        context.instance.add_run_tags(context.run.run_id, {NAMESPACE_TAG: next(iter(names))})


def raise_if_cancelled(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> None:
    """Raise Dagster's interrupt if the run is to be cancelled: the one that its signal raises is
    lost if Python just then collects an object.
    """
    run = context.instance.get_run_by_id(context.run.run_id)
    if run is not None and run.status == dg.DagsterRunStatus.CANCELING:
        raise dg.DagsterExecutionInterruptedError


def end_orphans(instance: dg.DagsterInstance, ledger: Ledger, policy: JobPolicy) -> None:
    """End jobs whose process is gone, and close the Dagster runs of ended jobs, which would
    otherwise occupy the daemon's only slot.
    """
    jobs.end_orphans(ledger, policy)
    _settle_queue(instance, ledger)
    for found in instance.get_run_records(dg.RunsFilter(statuses=_UNFINISHED)):
        run, job = found.dagster_run, _job(ledger, found.dagster_run.tags.get(jobs.JOB_TAG, ""))
        created = found.create_timestamp.timestamp()
        if job is None or _is_of_earlier_run(job, created):
            # if it was launched but has not started: when it was dequeued
            began = found.start_time or found.update_timestamp.timestamp()
            if datetime.now(UTC).timestamp() - began > launchers.LAUNCH_SECONDS:
                instance.report_run_failed(
                    run,
                    "the process of this run did not begin its work within"
                    f" {launchers.LAUNCH_SECONDS:.0f} s",
                )
        elif job.state in jobs.FINAL_STATES and not _is_still_working(job, run, policy):
            if job.state == "cancelled" or run.status == dg.DagsterRunStatus.CANCELING:
                instance.report_run_canceled(run, "the job of this run was cancelled")
            else:
                instance.report_run_failed(run, "the process of this run is gone")


def _settle_queue(instance: dg.DagsterInstance, ledger: Ledger) -> None:
    """Remove ended jobs from Dagster's queue, and end queued jobs whose run finished before it
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
    """True if the job ended before the run was created: a re-executed run has the tag of the first,
    until it gets a job of its own.
    """
    return bool(job.ended_at) and datetime.fromisoformat(job.ended_at).timestamp() + 1 < created


def _is_still_working(job: Job, run: dg.DagsterRun, policy: JobPolicy) -> bool:
    """True while the process of a run is alive although the job has ended: it may be between the
    jobs of two namespaces, or about to release after the last range.
    """
    if run.job_name == WORK_JOB and jobs.GONE not in job.reason:
        begun = bool(job.pid)
        return begun and launchers.seconds_between(job.ended_at) < launchers.LAUNCH_SECONDS
    return job.args.get("run_id") == run.run_id and jobs.at_work(job, policy.silent_seconds)


def find_busy(instance: dg.DagsterInstance, ledger: Ledger, names: Sequence[str]) -> set[str]:
    """The namespaces with running or queued work; all of them for an active backfill and for a run
    whose namespace is unknown.
    """
    found = {
        job.namespace
        for state in jobs.OPEN_STATES
        for job in ledger.jobs(state=state, limit=10_000)
    }
    backfills = instance.get_backfills(limit=_MAX_BACKFILLS)
    if any(
        _is_active(backfill.backfill_id, backfill.backfill_timestamp, instance)
        for backfill in backfills
        if backfill.status.value in _OPEN_BACKFILLS
    ):
        return set(names)
    for run in instance.get_runs(
        dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED, *_UNFINISHED])
    ):
        concerned = namespace_of_run(run, ledger)
        if concerned is None:
            return set(names)
        found.add(concerned)
    return found & set(names)


def explain_backfills(instance: dg.DagsterInstance, ledger: Ledger) -> None:
    """Give recently failed backfills an error that lists the unprocessed documents with reasons;
    Dagster itself only counts partitions without a materialisation as failed. If all runs are green
    and only unreadable documents are left, the backfill has completed, like an ingest.
    """
    for backfill in instance.get_backfills(limit=_MAX_BACKFILLS):
        ended = backfill.backfill_end_timestamp or 0.0
        recent = datetime.now(UTC).timestamp() - ended < BACKFILL_SECONDS
        if backfill.status.value != "COMPLETED_FAILED" or backfill.error or not recent:
            continue
        runs = instance.get_runs(dg.RunsFilter(tags={_BACKFILL_TAG: backfill.backfill_id}))
        run_ids = {run.run_id for run in runs}
        bad = [
            job
            for job in ledger.jobs(limit=10_000)
            if job.args.get("run_id") in run_ids and job.state != "done"
        ]
        green = all(run.status == dg.DagsterRunStatus.SUCCESS for run in runs)
        unreadable = [
            item.version_id for job in bad if green for item in ledger.failed_job_items(job.job_id)
        ]
        if bad:
            reports = [_describe(job, ledger) for job in bad]
            explain_backfill(instance, backfill, "\n\n".join(reports), unreadable)


def _describe(job: Job, ledger: Ledger) -> str:
    """The reason of an unsuccessful job, and its failed documents with their partitions."""
    failed = [
        f"- {item.source_uri}: [{item.code}] {item.reason} (partition {item.version_id})"
        for item in ledger.failed_job_items(job.job_id)[:_MAX_DOCUMENTS]
    ]
    return "\n".join([f"job {job.job_id} is {job.state}: {job.reason}", *failed])


def _is_active(backfill_id: str, launched: float, instance: dg.DagsterInstance) -> bool:
    """True if an open backfill was launched, or one of its runs changed, within BACKFILL_SECONDS;
    Dagster may keep a backfill open for ever.
    """
    newest = instance.get_run_records(dg.RunsFilter(tags={_BACKFILL_TAG: backfill_id}), limit=1)
    changed_at = max([launched, *(record.update_timestamp.timestamp() for record in newest)])
    return datetime.now(UTC).timestamp() - changed_at < BACKFILL_SECONDS


def namespace_of_run(run: dg.DagsterRun, ledger: Ledger) -> str | None:
    """The namespace that a run works for; empty if it works through other jobs; None if unknown."""
    if run.job_name == "sync":
        return ""
    job = _job(ledger, run.tags.get(jobs.JOB_TAG, ""))
    # such a run may work on several namespaces in turn
    own = job is not None and job.args.get("run_id") == run.run_id
    return job.namespace if job is not None and not own else run.tags.get(NAMESPACE_TAG)


def is_built_anyway(job: Job) -> bool:
    """True if the job's release is built even if nothing changed: for a full build, and for a
    deletion, whose documents must leave the files.
    """
    return bool(job.args.get("full")) or job.kind == "delete"


def explain_rejection(namespace: str, release_id: str, failed: str) -> str:
    """Why a candidate was not published and, if only its quality gate failed, what to do."""
    reason = f"release {release_id} was not published: {failed}"
    if failed.startswith(f"{QUALITY_GATE}: {NOT_JUDGED}"):
        reason += (
            "\nthis says nothing about the documents: once what failed works again, the sensor"
            " `release_when_quiet` of Dagster and the next ingest ask again"
            f"\nto publish unjudged: `rag releases publish {release_id} --namespace {namespace}"
            " --override REASON`"
        )
    elif failed.startswith(f"{QUALITY_GATE}: "):  # it alone can be overridden
        reason += (
            "\nmend the documents, drop an expectation that no longer holds (`rag expect remove"
            f" CASE --namespace {namespace}`), or publish all the same (`rag releases publish"
            f" {release_id} --namespace {namespace} --override REASON`); until then nothing newer"
            " is read"
        )
    return reason


def was_killed(run: dg.DagsterRun, ledger: Ledger) -> bool:
    """True if a run ended because its process disappeared, or never began its work."""
    job = _job(ledger, run.tags.get(jobs.JOB_TAG, ""))
    return job is None or jobs.GONE in job.reason


def _job(ledger: Ledger, job_id: str) -> Job | None:
    try:
        return ledger.job(job_id)
    except NotFoundError:
        return None
