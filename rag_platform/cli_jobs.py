"""Commands about jobs: what was done, what failed and why, trying again."""

from __future__ import annotations

import click

from rag_platform.cli_context import Context, answers, namespace_option
from rag_platform.ir import Json
from rag_platform.retrieval import responses
from rag_platform.store import to_json


@click.group()
def jobs() -> None:
    """Ingests, rebuilds, deletions and other writing work."""


@jobs.command("list")
@namespace_option
@click.option("--limit", type=click.IntRange(1, 1000), default=20)
@answers()
def jobs_list(context: Context, namespace: str | None, limit: int) -> Json:
    """Jobs of a namespace, newest first."""
    rows = [to_json(row) for row in context.ledger.jobs(context.namespace(namespace), limit)]
    lines = [f"{r['job_id']}  {r['kind']:<8} {r['state']:<10} {r['created_at']}  {r['reason']}" for r in rows]
    return responses.envelope({"markdown": "\n".join(lines) or "no jobs", "jobs": rows}, "")
