"""Commands that ingest, rebuild or try the samples: each launches a job and prints its result."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from rag_platform.api import envelopes
from rag_platform.cli.language import say_filled
from rag_platform.cli.output import (
    Context,
    answers,
    finish_job,
    parse_pairs,
    strategy_option,
    wait_option,
)
from rag_platform.cli.progress import format_duration
from rag_platform.config.folders import DEMO, SAMPLES
from rag_platform.errors import InputError
from rag_platform.ir import Json
from rag_platform.text.wording import pluralise

_LONG_SECONDS = 15.0
# of the demo: in Chinese, about a table in a PDF, an exact identifier
_QUESTIONS = (
    "主机失去心跳多久后备机接管？",
    "What is the maximum throughput of the PX-40?",
    "PPR-9087",
)


@click.command()
@click.argument("inputs", nargs=-1, type=click.Path(), metavar="[FILE|FOLDER|URL|-]...")
@click.option(
    "--source", metavar="NAME", help="Name of the source; by default that of the folder, or `urls`."
)
@click.option(
    "--moved",
    is_flag=True,
    help="The folder is the one that its source had in another place: its documents stay the same.",
)
@click.option(
    "--name",
    "filename",
    metavar="FILE",
    default="stdin.md",
    help="File name of what is read from standard input (`-`).",
)
@click.option("--tag", "tags", multiple=True, help="Tag for the documents; repeatable.")
@click.option(
    "--meta",
    "metadata",
    multiple=True,
    metavar="K=V",
    help="Metadata for the documents; repeatable.",
)
@strategy_option("Ingestion strategy, for a library's first ingest.")
@click.option(
    "--policy",
    type=click.Choice(["skip", "new_version"]),
    default="skip",
    help="What to do with a file that has not changed.",
)
@click.option(
    "--sync",
    is_flag=True,
    help=("Retire documents whose file or page is gone; without inputs, sync all known sources."),
)
@click.option(
    "--yes",
    "retire_all",
    is_flag=True,
    help="Let the sync retire documents even if most or all of a source's are gone.",
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
    help="Only files of the folder that match, also in later syncs; repeatable, '' for all again.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="Skip files and folders that match, also in later syncs; repeatable, '' for none again.",
)
@wait_option
@answers(namespace=True, own_trace=True)
def ingest(
    context: Context,
    inputs: tuple[str, ...],
    filename: str,
    metadata: tuple[str, ...],
    strategy: str | None,
    wait: float,
    **options: Any,
) -> Json:
    """Ingest files, folders and URLs, and publish a release."""
    from rag_platform.ingestion.job_start import start_ingest
    from rag_platform.intake.discovery import Content, inputs_to_sync, require_there
    from rag_platform.intake.fetching import is_url
    from rag_platform.intake.receiving import ReceiveOptions, check_namespace
    from rag_platform.retrieval.namespaces import choose_to_ingest

    started_at = time.perf_counter()
    receiving = ReceiveOptions(metadata=parse_pairs(metadata, "--meta"), **options)
    paths = [item for item in inputs if item != "-" and not is_url(item)]
    # the folder of a source that is gone is refused with what brings it back
    chosen = context.given_namespace
    known = [chosen] if chosen else context.ledger.namespaces()
    roots = {source.root for name in known for source in context.ledger.sources(name)}
    require_there([path for path in paths if os.path.abspath(path) not in roots])
    if inputs and not context.given_namespace:
        given_paths = map(Path, paths)
        context.given_namespace = choose_to_ingest(context.library, given_paths, receiving)
    name = context.namespace
    check_namespace(name)
    workspace = context.root.workspace(name, strategy)
    if not inputs and not receiving.sync:
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
    ] or inputs_to_sync(context.ledger, name, receiving.source)
    started = start_ingest(given, name, workspace, receiving, wait=wait)
    _announce(context, workspace.strategy.name, started)
    envelope = finish_job(context, started, started_at)
    if envelope["ok"] and envelope["data"]["release_id"]:
        envelope["data"]["markdown"] += f"\n\nNext: rag query YOUR QUESTION --namespace {name}"
    return envelope


@click.command()
@strategy_option("Move the library to this strategy.")
@click.option("--plan", "only_plan", is_flag=True, help="Show what would be done, and do nothing.")
@click.option(
    "--full",
    is_flag=True,
    help="Build the whole release, even where the difference to its parent would do.",
)
@wait_option
@answers(namespace=True, own_trace=True)
def rebuild(
    context: Context, strategy: str | None, only_plan: bool, full: bool, wait: float
) -> Json:
    """Rebuild what a change of config made stale. A release follows; until then the published one
    answers.
    """
    from rag_platform.ingestion.job_start import start_rebuild
    from rag_platform.ingestion.rebuild_plan import plan

    started_at = time.perf_counter()
    name = context.namespace
    workspace = context.root.workspace(name, strategy)
    planned = plan(name, workspace, full=full)
    if only_plan or planned.empty:
        return planned.data()
    started = start_rebuild(name, workspace, full=full, wait=wait)
    if planned.seconds >= _LONG_SECONDS and not context.json_output:
        click.echo(
            f"{pluralise(len(planned.version_ids), 'document')},"
            f" {'at least ' if planned.uncut else ''}"
            f"{pluralise(planned.embeddings, 'embedding')}, release:"
            f" {planned.release}; about {format_duration(planned.seconds)}",
            err=True,
        )
    return finish_job(context, started, started_at)


@click.command()
@answers(own_trace=True)
def demo(context: Context) -> Json:
    """Ingest the shipped samples into the library `demo` and ask them three questions."""
    from rag_platform.answering.engine import answer
    from rag_platform.api.query_data import fit_query
    from rag_platform.ingestion.job_start import start_ingest
    from rag_platform.intake.receiving import ReceiveOptions
    from rag_platform.ir import QueryRequest

    started_at = time.perf_counter()
    workspace = context.root.workspace(DEMO)
    started = start_ingest([SAMPLES], DEMO, workspace, ReceiveOptions(moved=True))
    ingested = finish_job(context, started, started_at)
    if not ingested["ok"]:
        return ingested
    parts, asked = [str(ingested["data"]["markdown"])], []
    for question in _QUESTIONS:
        data, _ = fit_query(
            answer(context.library, QueryRequest(question, DEMO)),
            detail="brief",
            max_tokens=context.settings.server.result_tokens,
        )
        parts.append(f'$ rag query "{question}" --namespace {DEMO}\n\n{data["markdown"]}')
        asked.append(data)
    parts.append(
        "Next: `rag ingest FOLDER` takes in your own documents; then ask with `rag query YOUR"
        " QUESTION`, or in a browser with `rag ui`"
    )
    return envelopes.envelope(
        {"markdown": "\n\n".join(parts), "ingest": ingested["data"], "questions": asked},
        str(ingested["trace_id"]),
    )


# --- progress -----------------------------------------------------------------------------------


def _announce(context: Context, strategy: str, started: Any) -> None:
    """Print how many documents an earlier config or program built, and before long work its
    estimated time, also for the other strategies.
    """
    from rag_platform.ingestion.rebuild_plan import estimate_embedding

    if context.json_output or started.process is None:
        return
    args = started.job.args
    if renewed := args.get("renewed"):
        click.echo(
            say_filled(
                "also builds anew what an earlier config or program built:"
                f" {pluralise(renewed, 'document')}"
            ),
            err=True,
        )
    expected = estimate_embedding(args["version_ids"], context.root)
    if expected.get(strategy, 0.0) >= _LONG_SECONDS:
        others = ", ".join(
            f"{name!r} about {format_duration(seconds)}"
            for name, seconds in expected.items()
            if name != strategy
        )
        click.echo(
            say_filled(
                f"embedding with strategy {strategy!r} takes about"
                f" {format_duration(expected[strategy])} here ({others})"
            ),
            err=True,
        )
