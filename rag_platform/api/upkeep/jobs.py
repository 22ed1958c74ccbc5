"""Lists, shows and retries jobs, for the web pages."""

from __future__ import annotations

from typing import cast
from urllib.parse import quote

from rag_platform.api.cursors import make_cursor, read_cursor, read_offset
from rag_platform.api.envelopes import fill_shape, without_paths
from rag_platform.api.writing import job_data, job_progress, open_root, require_job, watch
from rag_platform.config.settings import Settings
from rag_platform.contract.schema import JobData
from rag_platform.contract.upkeep_shapes import JobDetail, JobItemRow, JobPage, JobRow
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Job
from rag_platform.processes import jobs


def list_jobs(
    settings: Settings, namespace: str, *, limit: int = 20, cursor: str | None = None
) -> JobPage:
    """One page of the jobs of a namespace, newest first. Raises InputError."""
    before = read_cursor(cursor, (str,))[0] if cursor else ""
    with open_root(settings) as root:
        jobs.end_orphans(root.ledger, settings.jobs)
        found = root.ledger.jobs(namespace, limit + 1, before=before)
        page = found[:limit]
        return {
            "jobs": [
                _row(jobs.as_it_stands(job, root.ledger, settings.jobs), root.ledger, settings)
                for job in page
            ],
            "next_cursor": make_cursor(page[-1].job_id) if len(found) > limit else None,
        }


def show_job(
    settings: Settings, job_id: str, *, limit: int = 50, cursor: str | None = None
) -> JobDetail:
    """A job with a page of its documents. Raises NotFoundError, InputError."""
    begin = read_offset(cursor)
    with open_root(settings) as root:
        jobs.end_orphans(root.ledger, settings.jobs)
        job = require_job(root, job_id)
        row = _row(job, root.ledger, settings)
        items = root.ledger.job_item_page(job_id, begin, limit)
        end = begin + len(items)
        stages = job.progress.get("stages", {})
        return {
            **row,
            "stages": [
                {
                    "name": name,
                    "done": int(stage["done"]),
                    "total": int(stage["total"]),
                    "growing": jobs.is_growing(name, stages),
                    "rate_per_s": jobs.rate(stage),
                    "seconds_left": jobs.seconds_left_of(name, stages),
                }
                for name, stage in stages.items()
            ],
            "result": cast(dict[str, object], without_paths(job.result)),
            "items": [
                cast(JobItemRow, without_paths(fill_shape(JobItemRow, item)))
                for item in jobs.displayed_items(items, job)
            ],
            "next_cursor": make_cursor(end) if end < sum(row["counts"].values()) else None,
        }


def retry_job(settings: Settings, job_id: str, source_uri: str | None = None) -> JobData:
    """Start a job that repeats the unfinished documents of another, or only `source_uri`. Raises
    NotFoundError `nothing_to_retry`, BusyError.
    """
    from rag_platform.ingestion.job_start import start_retry

    with open_root(settings) as root:
        require_job(root, job_id)
        started = start_retry(job_id, root, source_uri=source_uri)
        watch(started.job, started.process, settings)
        return job_data(started.job.job_id, root)


def _row(job: Job, ledger: Ledger, settings: Settings) -> JobRow:
    summary = jobs.summary(job)
    return fill_shape(
        JobRow,
        {**summary, **job_progress(job)},
        message=str(without_paths(job.progress.get("message", ""))),
        run_url=_run_url(job, summary["run_id"], settings.server.dagster_url),
        counts={
            jobs.state_of_item(state, job): count
            for state, count in ledger.job_item_counts(job.job_id).items()
        },
    )


def _run_url(job: Job, run_id: str, dagster_url: str) -> str:
    """The Dagster UI's address of the job's run, or of the runs that it launched; empty if no
    address is configured.
    """
    if not dagster_url:
        return ""
    base = dagster_url.rstrip("/")
    if run_id:
        return f"{base}/runs/{quote(run_id, safe='')}"
    return f"{base}/runs?q%5B0%5D={quote(f'tag:{jobs.JOB_TAG}={job.job_id}', safe='')}"
