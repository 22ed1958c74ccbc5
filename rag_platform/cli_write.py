"""Commands that write: they receive, launch a job, show its progress and print what it came to."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from rag_platform.cli_context import Context, answers, namespace_option, pairs, progress_bar
from rag_platform.config import load_strategy
from rag_platform.errors import InputError, RagError
from rag_platform.ir import Job, Json
from rag_platform.retrieval import responses
from rag_platform.store import to_json

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
    from rag_platform.documents.receiving import Content, ReceiveOptions, check_namespace, synced_inputs
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


@click.group()
def releases() -> None:
    """Published and earlier releases."""


@releases.command("list")
@namespace_option
@answers()
def releases_list(context: Context, namespace: str | None) -> Json:
    """Releases of a namespace, newest first."""
    rows = [to_json(row) for row in context.ledger.releases(context.namespace(namespace))]
    lines = [
        f"{r['release_id']}  {r['state']:<10} {r['counts'].get('documents', 0)} documents, {r['counts'].get('chunks', 0)} chunks"
        for r in rows
    ]
    return responses.envelope({"markdown": "\n".join(lines) or "no releases", "releases": rows}, "")


@releases.command("show")
@click.argument("release_id", required=False)
@namespace_option
@answers()
def releases_show(context: Context, release_id: str | None, namespace: str | None) -> Json:
    """The manifest of a release; the published one if none is named."""
    from rag_platform.indexes.manifest import read_manifest
    from rag_platform.indexes.release import require_current

    name = context.namespace(namespace)
    wanted = release_id or require_current(context.store, name)
    manifest = to_json(read_manifest(context.store.release_dir(name, wanted)))
    return responses.envelope({"markdown": json.dumps(manifest, ensure_ascii=False, indent=1), "manifest": manifest}, "")


@releases.command("rollback")
@click.argument("release_id", required=False)
@namespace_option
@answers()
def releases_rollback(context: Context, release_id: str | None, namespace: str | None) -> Json:
    """Publish another kept release: the one before the current if none is named; naming the newest goes forward again."""
    from rag_platform.indexes.updating import roll_back

    row = roll_back(context.namespace(namespace), release_id, store=context.store, ledger=context.ledger)
    return responses.envelope({"markdown": f"{row.release_id} is published", "release": to_json(row)}, "")


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
