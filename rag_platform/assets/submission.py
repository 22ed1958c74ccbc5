"""The Dagster job `work`, which carries out a job of the ledger in a run started by a run launcher,
and `python -m rag_platform.assets.submission JOB_ID`, which submits it to the instance.
"""

import sys

import dagster as dg

from rag_platform.assets.dagster_private import submit
from rag_platform.assets.instance import prepare
from rag_platform.assets.partitions import NAMESPACE_TAG, document_versions
from rag_platform.assets.resources import Platform
from rag_platform.assets.runs import DEFINITIONS, WORK_JOB, WRITER_TAG, job_definition
from rag_platform.config.settings import load_settings
from rag_platform.errors import RagError
from rag_platform.ledger.schema import Job, range_of
from rag_platform.processes import jobs
from rag_platform.processes.launchers import SUBMITTED
from rag_platform.workspace import DataRoot


class WorkConfig(dg.Config):
    """The job of the ledger that a run of `work` carries out."""

    job_id: str


@dg.op
def carry_out(context: dg.OpExecutionContext, platform: Platform, config: WorkConfig) -> None:
    """Carry out a job of the ledger; after the last range of a job also that job, which
    releases.
    """
    # imported late: it loads everything that jobs need
    from rag_platform.assets.launch import run_job

    ledger, process = platform.root.ledger, {**SUBMITTED, "run_id": context.run_id}
    job_id: str = config.job_id
    run_job(job_id, process)
    if parent := range_of(job_id):
        jobs.fan_in(ledger.job(parent), ledger)
        if ledger.job(parent).state == "queued":
            context.instance.add_run_tags(context.run_id, {jobs.JOB_TAG: parent})
            job_id = parent
            run_job(job_id, process)
    ended = ledger.job(job_id)
    context.log.info(f"job {job_id} is {ended.state}. {ended.reason}")
    if ended.state in ("failed", "cancelled"):
        raise dg.Failure(ended.reason, allow_retries=False)


@dg.job(name=WORK_JOB, description="Carries out one job of the ledger: `jobs.launcher: dagster`.")
def work_job() -> None:
    carry_out()


def submit_job(job_id: str) -> None:
    """Submit a queued job to Dagster, or each of its ranges."""
    root = DataRoot.open(load_settings())
    prepare(root.store)
    job = root.ledger.job(job_id)
    with dg.DagsterInstance.get() as instance, jobs.keep_heartbeat(job_id, root.ledger):
        # all at once, so that each range is contiguous
        instance.add_dynamic_partitions(
            document_versions.name or "", job.args.get("version_ids", [])
        )
        for one in root.ledger.ranges(job_id) or [job]:
            run = _submit(one, instance)
            process = {**SUBMITTED, "run_id": run.run_id}
            root.ledger.update_job(one.job_id, only_from=("queued",), process=process)


def _submit(job: Job, instance: dg.DagsterInstance) -> dg.DagsterRun:
    tags = {jobs.JOB_TAG: job.job_id}
    if job.namespace:
        tags[NAMESPACE_TAG] = job.namespace
        if job.kind != "range":
            tags[WRITER_TAG] = job.namespace
    config = {"ops": {carry_out.name: {"config": {"job_id": job.job_id}}}}
    return submit(instance, job_definition(WORK_JOB), DEFINITIONS, run_config=config, tags=tags)


if __name__ == "__main__":
    try:
        submit_job(sys.argv[1])
    except RagError as error:
        sys.exit(error.message)
