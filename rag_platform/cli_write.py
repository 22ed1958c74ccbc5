"""Commands that write: they receive, launch a job, show its progress and print what it came to."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from rag_platform.cli_context import Context, answers, namespace_option, pairs, progress_bar
from rag_platform.config import load_strategy
from rag_platform.errors import InputError, RagError
from rag_platform.ir import Json
from rag_platform.ledger_rows import Job
from rag_platform.retrieval import responses

_LONG_SECONDS = 15.0


@click.command()
@click.argument("inputs", nargs=-1, metavar="[FILE|FOLDER|URL|-]...")
@namespace_option
@click.option("--source", metavar="NAME", help="Name of the source; a folder's own name, or `urls`, if not given.")
@click.option("--name", "filename", metavar="FILE", default="stdin.md", help="File name of what comes on standard input (`-`).")
@click.option("--tag", "tags", multiple=True, help="Tag for the documents; repeatable.")
@click.option("--meta", "metadata", multiple=True, metavar="K=V", help="Metadata for the documents; repeatable.")
@click.option("--strategy", metavar="NAME", help="Ingestion strategy, at a namespace's first ingest.")
@click.option("--policy", type=click.Choice(["skip", "new_version"]), default="skip", help="What to do with bytes that are live already.")
@click.option("--sync", is_flag=True, help="Retire documents whose file or page is gone; without inputs, sync known folders and URLs.")
@click.option("--include", multiple=True, metavar="GLOB", help="Only files of the folder that match; repeatable.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Not the files of the folder that match; repeatable.")
@answers(own_trace=True)
def ingest(context: Context, inputs: tuple[str, ...], namespace: str | None, source: str | None, filename: str, tags: tuple[str, ...],
           metadata: tuple[str, ...], strategy: str | None, policy: str, sync: bool, include: tuple[str, ...],
           exclude: tuple[str, ...]) -> Json:  # fmt: skip
    """Take files, folders and URLs in, and publish a release that holds them."""
    from rag_platform.documents.downloading import is_url
    from rag_platform.documents.finding import Content, synced_inputs
    from rag_platform.documents.receiving import ReceiveOptions, check_namespace
    from rag_platform.indexes.updating import start_ingest

    started_at = time.perf_counter()
    name = context.namespace(namespace)
    check_namespace(name)
    chosen = load_strategy(context.settings, strategy or context.ledger.namespaces().get(name))
    options = ReceiveOptions(source, tags, pairs(metadata, "--meta"), policy, sync, include, exclude)
    if not inputs and not sync:
        raise InputError("name files, folders or URLs, `-` for standard input, or --sync for what is known already", code="usage")
    given = [
        Content(filename, sys.stdin.buffer.read()) if item == "-" else item.strip() if is_url(item) else Path(item) for item in inputs
    ] or synced_inputs(context.ledger, name, source)
    started = start_ingest(
        given, name, settings=context.settings, strategy=chosen, store=context.store, ledger=context.ledger, options=options
    )
    return _finished(context, started, chosen.name, started_at)


@click.command()
@namespace_option
@click.option("--strategy", metavar="NAME", help="Move the namespace to this strategy.")
@answers(own_trace=True)
def rebuild(context: Context, namespace: str | None, strategy: str | None) -> Json:
    """Rebuild what a change of config left stale, and the release; the published one serves meanwhile."""
    from rag_platform.indexes.updating import start_rebuild

    started_at = time.perf_counter()
    name = context.namespace(namespace)
    chosen = load_strategy(context.settings, strategy or context.ledger.namespaces().get(name))
    started = start_rebuild(name, settings=context.settings, strategy=chosen, store=context.store, ledger=context.ledger)
    return _finished(context, started, chosen.name, started_at)


def _finished(context: Context, started: Any, strategy: str, started_at: float) -> Json:
    """The envelope of a job of writing work, when it has ended."""
    from rag_platform import jobs
    from rag_platform.indexes.updating import ingest_data

    job = started.job
    if started.process is not None:
        _announce(context, strategy, job.args["version_ids"])
        with progress_bar(context.json_output) as advance:
            job = jobs.wait(job.job_id, started.process, context.ledger, context.store, lambda now: advance(*_progress(now)))
    data = ingest_data(job, store=context.store, ledger=context.ledger, seconds=time.perf_counter() - started_at)
    if job.state == "failed":
        return responses.failure(RagError(job.reason, code=f"{job.kind}_failed", **data), job.trace_id, local=True)
    return responses.envelope(data, job.trace_id, data["warnings"])


# --- progress ----------------------------------------------------------------------------------------------------------


def _announce(context: Context, strategy: str, version_ids: list[str]) -> None:
    """Before long work, what it will take, and what the other strategies would."""
    from rag_platform.indexes.updating import expected_seconds

    if context.json_output:
        return
    expected = expected_seconds(version_ids, settings=context.settings, store=context.store, ledger=context.ledger)
    if expected.get(strategy, 0.0) >= _LONG_SECONDS:
        others = ", ".join(f"{name!r} about {_duration(seconds)}" for name, seconds in expected.items() if name != strategy)
        click.echo(f"embedding with strategy {strategy!r} takes about {_duration(expected[strategy])} here ({others})", err=True)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _progress(job: Job) -> tuple[str, int, int]:
    progress = job.progress
    return str(progress.get("stage", "starting")), int(progress.get("done", 0)), int(progress.get("total", 0))
