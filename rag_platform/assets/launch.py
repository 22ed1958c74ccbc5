"""`python -m rag_platform.assets.launch JOB_ID`: runs one job of the ledger as Dagster runs, which show in the UI like any other."""

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from rag_platform import jobs
from rag_platform.assets.instance import prepare
from rag_platform.assets.partitions import JOB_TAG, RANGE_END, RANGE_START, contiguous, document_versions, namespaces
from rag_platform.config import Settings, load_settings
from rag_platform.errors import RagError
from rag_platform.indexes.release import current
from rag_platform.indexes.updating import unfinished
from rag_platform.ledger import Ledger
from rag_platform.ledger_rows import Job
from rag_platform.ledger_tables import now
from rag_platform.store import Store

# The module that workspace.yaml names: a job runs exactly what the UI shows.
_DEFINITIONS = "rag_platform.definitions"


def run_ingest(job: Job, instance: dg.DagsterInstance) -> bool:
    """Run the ingest job over the job's versions; False when a document failed."""
    wanted = list(job.args["version_ids"])
    if not wanted:
        return True
    instance.add_dynamic_partitions(document_versions.name or "", wanted)
    ordered = instance.get_dynamic_partitions(document_versions.name or "")
    outcomes = [
        _execute("ingest", instance, {RANGE_START: first, RANGE_END: last, JOB_TAG: job.job_id}).success
        for first, last in contiguous(ordered, set(wanted))
    ]
    return all(outcomes)


def run_release(job: Job, instance: dg.DagsterInstance, ledger: Ledger) -> str:
    """Run the release job of the job's namespace; why nothing was published, empty when something was."""
    instance.add_dynamic_partitions(namespaces.name or "", [job.namespace])
    known = {row.release_id for row in ledger.releases(job.namespace)}
    result = _execute("release", instance, {JOB_TAG: job.job_id}, partition_key=job.namespace)
    if result.success:
        return ""
    newest = next(iter(ledger.releases(job.namespace)), None)
    if newest and newest.state == "rejected" and newest.release_id not in known:
        return f"release {newest.release_id} was not published: {newest.reason}"
    return f"the release run failed; the previous release stays published. {_last_error(result)}"


def _last_error(result: dg.ExecuteInProcessResult) -> str:
    """The message of the error that ended a run, without the stack."""
    for event in result.all_events:
        error = event.step_failure_data.error if event.is_step_failure else None
        while error is not None and error.cause is not None:
            error = error.cause
        if error is not None:
            return error.message.strip().removeprefix(f"rag_platform.errors.{error.cls_name}: ")
    return "Its log is in the Dagster UI and in logs/jobs"


def _execute(
    job_name: str, instance: dg.DagsterInstance, tags: dict[str, str], partition_key: str | None = None
) -> dg.ExecuteInProcessResult:
    definitions: dg.Definitions = importlib.import_module(_DEFINITIONS).defs
    definition = definitions.resolve_job_def(job_name)
    quiet = {"loggers": {"console": {"config": {"log_level": "INFO"}}}}
    return definition.execute_in_process(instance=instance, tags=tags, partition_key=partition_key, run_config=quiet, raise_on_error=False)


def end_orphans(instance: dg.DagsterInstance, ledger: Ledger) -> None:
    """Record the Dagster runs of dead jobs as failed: one left open would hold the daemon's only slot for good."""
    jobs.end_orphans(ledger)
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTING])):
        job_id = run.tags.get(JOB_TAG)
        if job_id and ledger.job(job_id).state in jobs.FINAL_STATES:
            instance.report_run_failed(run, "the process of this run is gone")


def run_job(job_id: str) -> int:
    """Exit code of a job: 0 done, 3 some documents failed, 1 failed. The ledger holds its state and result."""
    settings = load_settings()
    store = Store(settings.home)
    ledger = Ledger(store.ledger_path)
    job = ledger.job(job_id)
    ledger.update_job(job_id, state="running", pid=os.getpid(), started_at=now())
    prepare(store)
    try:
        with (
            dg.DagsterInstance.get() as instance,
            store.writer(job.namespace, f"{job.kind} {job_id}", wait=settings.jobs.lock_seconds),
        ):
            end_orphans(instance, ledger)
            state, reason = KINDS[job.kind](Work(job, settings, store, ledger, instance))
    except RagError as error:
        state, reason = "failed", error.message
    except Exception as error:  # the job's last words belong into the ledger, whatever it was
        traceback.print_exc()
        state, reason = "failed", f"{type(error).__name__}: {error}"
    ledger.update_job(job_id, state=state, reason=reason, ended_at=now())
    return {"done": 0, "partly": 3}.get(state, 1)


@dataclass(frozen=True)
class Work:
    """A job under way and what it works with; the namespace's write lock is held."""

    job: Job
    settings: Settings
    store: Store
    ledger: Ledger
    instance: dg.DagsterInstance

    def progress(self, stage: str, done: int, total: int, message: str = "") -> None:
        """Tell the ledger how far the job is."""
        self.ledger.update_job(self.job.job_id, progress={"stage": stage, "done": done, "total": total, "message": message})


Outcome = tuple[str, str]  # state and reason of a job that ran to its end


def ingest(work: Work) -> Outcome:
    """Process the job's versions, then release what is live."""
    job, ledger = work.job, work.ledger
    _run_documents(job, work.instance, ledger)
    failed = [item for item in ledger.job_items(job.job_id) if item.state == "failed"]
    if reason := release(work):
        return "failed", reason
    return ("partly", f"{len(failed)} documents failed") if failed else ("done", "")


def release(work: Work) -> str:
    """Build and publish the namespace's release where it is due; why nothing was published, empty when all is well."""
    job = work.job
    # a namespace whose first documents all failed has nothing to publish
    anything = current(work.store, job.namespace) is not None or bool(work.ledger.live(job.namespace))
    if not anything or not (job.args.get("release", True) or unfinished(job.namespace, work.settings, work.store, work.ledger)):
        return ""
    work.progress("release", 0, 1, "building the release")
    return run_release(job, work.instance, work.ledger)


KINDS: dict[str, Callable[[Work], Outcome]] = {"ingest": ingest, "rebuild": ingest}


def _run_documents(job: Job, instance: dg.DagsterInstance, ledger: Ledger) -> None:
    """The ingest runs; a document left neither done nor failed (its run broke) is recorded as failed with that reason."""
    if run_ingest(job, instance):
        return
    for item in ledger.job_items(job.job_id):
        if item.state == "queued":
            ledger.update_job_item(
                job.job_id, item.version_id, "failed", "run_failed", "the ingest run broke before this document was done"
            )


if __name__ == "__main__":
    sys.exit(run_job(sys.argv[1]))
