"""The top of the command line: help in groups, one form for every error, `--json` for wrong usage
too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from rag_platform.cli.language import HELP_LINE, localise, say
from rag_platform.errors import InputError, RagError

EXAMPLES = """Start
  rag demo                                  three answers from the shipped samples
  rag ingest ~/notes                        take your own files in
  rag query how do I rotate the keys        ask; the answer cites its sources
Trust
  rag verify --all                          prove every quote against the raw bytes
  rag trace list                            what happened, and why
Change
  rag ingest ~/notes --sync                 after files changed
  rag releases rollback                     undo the last release
Connect
  rag ui                                    ask and look around in a browser
  rag serve                                 answer your assistant over MCP
"""
_GROUPS: Mapping[str, Sequence[str]] = {
    "Ask": ("query", "docs", "verify", "trace", "expect"),
    "Fill": ("demo", "ingest", "preview", "rebuild", "drafts", "sources"),
    "Operate": (
        "status",
        "doctor",
        "init",
        "jobs",
        "releases",
        "namespaces",
        "ledger",
        "servers",
        "gc",
    ),
    "Measure": ("eval", "bisect", "prompts"),
}


class Program(click.Group):
    """The group of all commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command in the language of the command line; None where there is none."""
        found = super().get_command(ctx, cmd_name)
        return found and localise(found)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under the headings that a reader looks for them by."""
        placed = {name for names in _GROUPS.values() for name in names}
        rest = [name for name in self.list_commands(ctx) if name not in placed]
        for title, names in {**_GROUPS, "Connect": rest}.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [
                (name, command.get_short_help_str(limit=HELP_LINE))
                for name, command in commands
                if command is not None
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> Any:
        """Run a command and exit with its code; whatever is wrong is printed in the one form."""
        given = list(sys.argv[1:] if args is None else args)
        try:
            shown = localise(self)
            code = click.Group.main(shown, given, *rest, **{**named, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            if "--json" in given:
                _fail(InputError("name a command; --help lists them", code="usage"), given)
            click.echo(error.format_message(), err=True)
            sys.exit(_exit_codes().USAGE)
        except click.UsageError as error:
            if error.ctx is not None and "--json" not in given:
                click.echo(error.ctx.get_usage(), err=True)
                click.echo(say("Try `{path} --help`.", path=error.ctx.command_path), err=True)
            _fail(InputError(error.format_message(), code="usage"), given)
        except click.ClickException as error:
            _fail(RagError(error.format_message(), code="failed"), given)
        except RagError as error:
            _fail(error, given)
        except click.Abort:
            click.echo(say("interrupted"), err=True)
            sys.exit(_exit_codes().NOTHING_DONE)
        sys.exit(code if isinstance(code, int) else 0)


def _exit_codes() -> Any:
    from rag_platform.api import envelopes  # not to be paid for by a command that succeeds

    return envelopes


def _fail(error: RagError, given: Sequence[str]) -> None:
    from rag_platform.api import envelopes
    from rag_platform.cli.output import print_envelope

    envelope = envelopes.failure(error, local=True)
    print_envelope(envelope, "--json" in given)
    sys.exit(envelopes.exit_code(envelope))
