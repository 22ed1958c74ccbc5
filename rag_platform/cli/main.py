"""The command line: each command translates its arguments, calls one function, and prints what it
returns.

With `--json` a command prints the envelope of the public contract and nothing else. Exit codes: 0
done, 1 nothing done, 2 wrong usage, 3 done but some documents failed.
"""

from __future__ import annotations

import json

import click

from rag_platform.api import envelopes
from rag_platform.cli import (
    documents,
    drafts,
    evaluation,
    evaluation_assets,
    gaps,
    maintenance,
    reading,
    releases,
    start,
    writing,
)
from rag_platform.cli.output import Context, answers
from rag_platform.cli.program import EXAMPLES, Program
from rag_platform.config.settings import load_settings
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
        click.echo(f"Documents in, cited answers out.\n\n{EXAMPLES}")
        click.echo("`rag --help` lists every command.")


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
    drafts.drafts,
    reading.preview,
    reading.query,
    reading.verify,
    reading.status,
    reading.trace,
    evaluation.evaluation,
    evaluation.expect,
    evaluation.bisect_releases,
):
    main.add_command(command)
reading.trace.add_command(evaluation.replay_trace)
for command in (
    evaluation_assets.promote,
    evaluation_assets.canaries,
    evaluation_assets.drift,
    gaps.sample,
    gaps.gaps,
):
    evaluation.evaluation.add_command(command)


@main.command()
def serve() -> None:
    """Answer over MCP on standard input and output."""
    from rag_platform.server.app import serve_stdio

    serve_stdio(load_settings())


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
