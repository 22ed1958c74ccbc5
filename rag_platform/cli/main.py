"""The command line: each command translates its arguments, calls one function, and prints what it
returns.

With `--json` a command prints the envelope of the public contract and nothing else. Exit codes: 0
done, 1 nothing done, 2 wrong usage, 3 done but some documents failed.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import click

from rag_platform.api import envelopes
from rag_platform.cli import (
    documents,
    drafts,
    ledger,
    maintenance,
    mcp,
    reading,
    releases,
    start,
    tokens,
    traces,
    writing,
)
from rag_platform.cli.evaluating import prompts, questions, runs, strategies
from rag_platform.cli.language import say
from rag_platform.cli.output import Context, answers, print_error
from rag_platform.cli.program import EXAMPLES, Program
from rag_platform.cli.serving import allow_options, allowing
from rag_platform.config.settings import load_settings, with_http
from rag_platform.errors import RagError
from rag_platform.ir import Json
from rag_platform.storage.records import to_json


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="rag-platform", prog_name="rag")
@click.pass_context
def main(context: click.Context) -> None:
    """Documents in, cited answers out."""
    if context.invoked_subcommand is None:
        click.echo(f"{say('Documents in, cited answers out.')}\n\n{say(EXAMPLES)}")
        click.echo(say("`rag --help` lists every command."))


for command in (
    start.demo,
    start.init,
    writing.ingest,
    writing.rebuild,
    maintenance.jobs,
    releases.releases,
    releases.namespaces,
    documents.docs,
    reading.sources,
    maintenance.gc,
    ledger.ledger,
    drafts.drafts,
    reading.preview,
    reading.query,
    reading.verify,
    reading.status,
    traces.trace,
    mcp.mcp,
    tokens.token,
    runs.evaluation,
    runs.expect,
    runs.bisect_releases,
    prompts.prompts,
):
    main.add_command(command)
traces.trace.add_command(runs.replay_trace)
for command in (
    strategies.promote,
    strategies.canaries,
    strategies.drift,
    questions.sample,
    questions.synthesize,
    questions.gaps,
):
    runs.evaluation.add_command(command)


@main.command()
@click.option("--http", "over_http", is_flag=True, help="Answer over HTTP instead, at /mcp.")
@click.option("--host", help="Where to listen; by default this machine alone.")
@click.option("--port", type=click.IntRange(0, 65535), help="By default 8765; 0: any free one.")
@allow_options
def serve(
    over_http: bool,
    host: str | None,
    port: int | None,
    allow: str | None,
    roots: tuple[Path, ...],
) -> None:
    """Answer over MCP: on standard input and output, or over HTTP."""
    if not over_http and (host is not None or port is not None):
        raise click.UsageError("--host and --port go with --http")
    try:
        gc.disable()  # until the first question is prepared: a fifth of the start went into it
        settings = allowing(load_settings(), allow, roots)
        if not over_http:
            from rag_platform.server.app import serve_stdio

            if sys.stdin.isatty():
                click.echo(
                    say("Waiting for an MCP client on standard input (Ctrl-C ends)."), err=True
                )
            serve_stdio(settings)
            return
        from rag_platform.server.http_app import serve_http

        given = {"host": host, "port": port}
        serve_http(with_http(settings, {k: v for k, v in given.items() if v is not None}))
    except RagError as error:
        print_error(error.code, error.message)
        sys.exit(envelopes.NOTHING_DONE)


@main.command()
@click.option("--host", help="Where to listen; by default this machine alone.")
@click.option("--port", type=click.IntRange(0, 65535), help="By default 8766; 0: any free one.")
@click.option("--open", "open_browser", is_flag=True, help="Show the pages in your browser.")
def ui(host: str | None, port: int | None, open_browser: bool) -> None:
    """Show the pages: ask, browse, ingest, traces and evaluation, in a browser."""
    try:
        settings = load_settings()
        from rag_platform.web.serving import UI_PORT, serve_pages

        given = {"host": host, "port": UI_PORT if port is None else port}
        settings = with_http(settings, {k: v for k, v in given.items() if v is not None})
        serve_pages(settings, on_ready=click.launch if open_browser else None)
    except RagError as error:
        print_error(error.code, error.message)
        sys.exit(envelopes.NOTHING_DONE)


@main.command()
@answers(own_trace=True)
def doctor(context: Context) -> Json:
    """Check packages, weights, data root and config."""
    from rag_platform.cli.doctor import examine

    findings = [to_json(finding) for finding in examine(context.settings)]
    config = context.settings.model_dump(mode="json", exclude={"home", "strategies_dir"})
    places = context.places()
    lines = [f"{f['level']:<8} {f['subject']}: {f['message']}" for f in findings]
    lines += ["", *(f"{name}: {place}" for name, place in places.items())]
    data = {
        "markdown": "\n".join([*lines, "effective config:", json.dumps(config, indent=1)]),
        "findings": findings,
        "places": places,
        "config": config,
    }
    if any(f["level"] == "error" for f in findings):
        error = RagError(str(data["markdown"]), code="unhealthy")
        return {**envelopes.failure(error), "data": data}
    return envelopes.envelope(data)


if __name__ == "__main__":
    main()
