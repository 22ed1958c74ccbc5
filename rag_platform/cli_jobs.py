"""Commands about jobs: what was done, what failed and why, how far a job is, ending it, trying again."""

from __future__ import annotations

import time
from typing import Any

import click

from rag_platform import jobs as work
from rag_platform.cli_context import Context, answers, finished, namespace_option, wait_option
from rag_platform.errors import InputError, RagError
from rag_platform.ir import Json
from rag_platform.retrieval import responses


@click.group()
def jobs() -> None:
    """Ingests, rebuilds, deletions and other writing work."""


@jobs.command("list")
@namespace_option
@click.option("--all", "everywhere", is_flag=True, help="Jobs of every namespace, not of the one alone.")
@click.option("--state", type=click.Choice([*work.OPEN_STATES, *work.FINAL_STATES, "dead"]),
              help="Only jobs in this state; dead: jobs that gave a document up.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 1000), default=20)
@answers()
def jobs_list(context: Context, namespace: str | None, everywhere: bool, state: str | None, limit: int) -> Json:
    """Jobs, newest first."""
    work.end_orphans(context.ledger, context.settings.jobs.silent_seconds)
    # jobs over the whole data root have no namespace
    names = [None] if everywhere else [context.namespace(namespace), ""]
    found = [
        job for name in names for job in context.ledger.jobs(name, limit, state=state if state != "dead" else None, dead=state == "dead")
    ]
    rows = [work.summary(job) for job in sorted(found, key=lambda job: job.created_at, reverse=True)[:limit]]
    lines = [
        f"{row['job_id']}  {row['kind']:<8} {row['state']:<10} {row['created_at']}  {row['namespace']}  {_going(row)}{row['reason']}"
        for row in rows
    ]
    lines = lines or [f"no {'such ' if state else ''}jobs"]
    if not everywhere:
        where = context.namespace(namespace)
        lines.append(f"Of namespace {where!r} alone; `rag jobs list --all` lists those of every namespace.")
    return responses.envelope({"markdown": "\n".join(lines), "namespace": None if everywhere else names[0], "jobs": rows}, "")


def _going(row: Json) -> str:
    """How far a job is that runs."""
    progress = row["progress"]
    if row["state"] != "running" or not progress:
        return ""
    left = "" if row["seconds_left"] is None else f", about {row['seconds_left']:.0f} s left"
    return f"{progress['stage']} {progress['done']} of {progress['total']}{left} "


@jobs.command("show")
@click.argument("job_id", metavar="JOB")
@answers()
def jobs_show(context: Context, job_id: str) -> Json:
    """One job: how far it is, its documents and why some failed, its figures, trace and log."""
    work.end_orphans(context.ledger, context.settings.jobs.silent_seconds)
    return responses.envelope(work.report(context.ledger.job(job_id), context.ledger.job_items(job_id), context.store), "")


@jobs.command("cancel")
@click.argument("job_id", metavar="JOB")
@answers()
def jobs_cancel(context: Context, job_id: str) -> Json:
    """End a job: what it has done stays, the rest is cancelled, the published release stays."""
    job = work.cancel(job_id, context.ledger, silent=context.settings.jobs.silent_seconds)
    data = work.report(job, context.ledger.job_items(job_id), context.store)
    if job.state == "cancelling":  # of another machine or container
        data["markdown"] += f"\nIt was told to stop and does so within {2 * work.HEARTBEAT_SECONDS:.0f} s."
    elif job.state != "cancelled":
        return responses.failure(RagError(f"job {job_id} ended before it could be cancelled: {job.state}", code="ended_first", **data), "",
                                 local=True)  # fmt: skip
    return responses.envelope(data, "")


@jobs.command("retry")
@click.argument("job_id", metavar="[JOB]", required=False)
@namespace_option
@click.option("--all", "everything", is_flag=True, help="Every document of the namespace that failed or was given up.")
@wait_option
@answers(own_trace=True)
def jobs_retry(context: Context, job_id: str | None, namespace: str | None, everything: bool, wait: float) -> Json:
    """Do again what a job left undone: its failed, given up, cancelled and unprocessed documents alone."""
    from rag_platform.indexes.starting import start_retry, start_retry_all

    started_at = time.perf_counter()
    if bool(job_id) == everything:
        raise InputError("name one job, or give --all for every document that failed", code="usage")
    parts: dict[str, Any] = {"settings": context.settings, "store": context.store, "ledger": context.ledger, "wait": wait}
    started = start_retry(job_id, **parts) if job_id else start_retry_all(context.namespace(namespace), **parts)
    return finished(context, started, started_at)
