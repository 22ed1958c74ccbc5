"""Commands that write: they receive, launch a job, show its progress and print what it came to."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from rag_platform.api import envelopes
from rag_platform.cli.output import Context, answers, finished, namespace_option, pairs, wait_option
from rag_platform.errors import InputError
from rag_platform.ir import Json

_LONG_SECONDS = 15.0


@click.command()
@click.argument("inputs", nargs=-1, metavar="[FILE|FOLDER|URL|-]...")
@namespace_option
@click.option(
    "--source",
    metavar="NAME",
    help="Name of the source; a folder's own name, or `urls`, if not given.",
)
@click.option(
    "--name",
    "filename",
    metavar="FILE",
    default="stdin.md",
    help="File name of what comes on standard input (`-`).",
)
@click.option("--tag", "tags", multiple=True, help="Tag for the documents; repeatable.")
@click.option(
    "--meta",
    "metadata",
    multiple=True,
    metavar="K=V",
    help="Metadata for the documents; repeatable.",
)
@click.option(
    "--strategy", metavar="NAME", help="Ingestion strategy, at a namespace's first ingest."
)
@click.option(
    "--policy",
    type=click.Choice(["skip", "new_version"]),
    default="skip",
    help="What to do with bytes that are live already.",
)
@click.option(
    "--sync",
    is_flag=True,
    help=(
        "Retire documents whose file or page is gone; without inputs, sync known folders and URLs."
    ),
)
@click.option(
    "--on-gone",
    type=click.Choice(["retire", "keep"]),
    help="What syncs of this source do with documents whose file is gone.",
)
@click.option(
    "--include",
    multiple=True,
    metavar="GLOB",
    help="Only files of the folder that match; repeatable.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="Not the files of the folder that match; repeatable.",
)
@wait_option
@answers(own_trace=True)
def ingest(
    context: Context,
    inputs: tuple[str, ...],
    namespace: str | None,
    source: str | None,
    filename: str,
    tags: tuple[str, ...],
    metadata: tuple[str, ...],
    strategy: str | None,
    policy: str,
    sync: bool,
    on_gone: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    wait: float,
) -> Json:
    """Take files, folders and URLs in, and publish a release that holds them."""
    from rag_platform.ingestion.job_start import start_ingest
    from rag_platform.intake.discovery import Content, inputs_to_sync
    from rag_platform.intake.downloading import is_url
    from rag_platform.intake.receiving import ReceiveOptions, check_namespace

    started_at = time.perf_counter()
    name = context.namespace(namespace)
    check_namespace(name)
    workspace = context.root.workspace(name, strategy)
    options = ReceiveOptions(
        source, tags, pairs(metadata, "--meta"), policy, sync, include, exclude, on_gone
    )
    if not inputs and not sync:
        raise InputError(
            "name files, folders or URLs, `-` for standard input, or --sync for what is known"
            " already",
            code="usage",
        )
    given = [
        (
            Content(filename, sys.stdin.buffer.read())
            if item == "-"
            else item.strip()
            if is_url(item)
            else Path(item)
        )
        for item in inputs
    ] or inputs_to_sync(context.ledger, name, source)
    started = start_ingest(given, name, workspace, options, wait=wait)
    _announce(context, workspace.strategy.name, started)
    return finished(context, started, started_at)


@click.command()
@namespace_option
@click.option("--strategy", metavar="NAME", help="Move the namespace to this strategy.")
@click.option("--plan", "only_plan", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--full",
    is_flag=True,
    help="Build the release whole, also where its parent and the difference would do.",
)
@wait_option
@answers(own_trace=True)
def rebuild(
    context: Context,
    namespace: str | None,
    strategy: str | None,
    only_plan: bool,
    full: bool,
    wait: float,
) -> Json:
    """Rebuild what a change of config left stale, and the release; the published one serves
    meanwhile.
    """
    from rag_platform.ingestion.job_start import start_rebuild
    from rag_platform.ingestion.rebuild_plan import plan

    started_at = time.perf_counter()
    name = context.namespace(namespace)
    workspace = context.root.workspace(name, strategy)
    planned = plan(name, workspace, full=full)
    if only_plan or planned.empty:
        return envelopes.envelope(planned.data(), "")
    started = start_rebuild(name, workspace, full=full, wait=wait)
    if planned.seconds >= _LONG_SECONDS and not context.json_output:
        told = (
            f"{len(planned.version_ids)} documents,"
            f" {'at least ' if planned.uncut else ''}{planned.embeddings} embeddings"
        )
        click.echo(
            f"{told}, release: {planned.release}; about {_duration(planned.seconds)}", err=True
        )
    return finished(context, started, started_at)


# --- progress -----------------------------------------------------------------------------------


def _announce(context: Context, strategy: str, started: Any) -> None:
    """Before long work, what it will take, and what the other strategies would."""
    from rag_platform.ingestion.rebuild_plan import estimate_embedding

    if context.json_output or started.process is None:
        return
    expected = estimate_embedding(started.job.args["version_ids"], context.root)
    if expected.get(strategy, 0.0) >= _LONG_SECONDS:
        others = ", ".join(
            f"{name!r} about {_duration(seconds)}"
            for name, seconds in expected.items()
            if name != strategy
        )
        click.echo(
            f"embedding with strategy {strategy!r} takes about {_duration(expected[strategy])} here"
            f" ({others})",
            err=True,
        )


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )
