"""The command line: each command translates its arguments, calls one function, and prints what it
returns.

With `--json` a command prints the envelope of the public contract and nothing else. Exit codes: 0
done, 1 nothing done, 2 wrong usage, 3 done but some documents failed.
"""

from __future__ import annotations

import click

from rag_platform.cli.commands import Commands
from rag_platform.cli.language import say
from rag_platform.cli.program import EXAMPLES, Program

_PLACES = {
    "demo": "start:demo",
    "init": "start:init",
    "ingest": "writing:ingest",
    "rebuild": "writing:rebuild",
    "jobs": "maintenance:jobs",
    "releases": "releases:releases",
    "namespaces": "releases:namespaces",
    "docs": "documents:docs",
    "sources": "reading:sources",
    "gc": "maintenance:gc",
    "ledger": "cluster:ledger",
    "servers": "cluster:servers",
    "drafts": "drafts:drafts",
    "preview": "reading:preview",
    "query": "reading:query",
    "verify": "reading:verify",
    "status": "reading:status",
    "doctor": "maintenance:doctor",
    "trace": "traces:trace",
    "mcp": "mcp:mcp",
    "token": "tokens:token",
    "serve": "serving:serve",
    "ui": "serving:ui",
    "dagster": "serving:dagster",
    "eval": "evaluating.group:evaluation",
    "expect": "evaluating.runs:expect",
    "bisect": "evaluating.runs:bisect_releases",
    "prompts": "evaluating.prompts:prompts",
}


@click.group(
    cls=Program,
    commands=Commands(_PLACES),
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


if __name__ == "__main__":
    main()
