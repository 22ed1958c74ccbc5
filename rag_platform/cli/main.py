"""The command line: each command translates its arguments, calls one function, and prints what it
returns.

With `--json` a command prints the envelope of the public contract and nothing else. Exit codes: 0
done, 1 nothing done, 2 wrong usage, 3 done but some documents failed.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import os
import sys
from collections import UserDict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import click

from rag_platform.cli.language import HELP_LINE, LogLines, localise, say
from rag_platform.errors import InputError, RagError, says_disk_full
from rag_platform.text.encoding import encodable

# the interpreter's last search for garbage takes 0.1 s, a fifth of `rag status`
atexit.register(gc.freeze)

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
# heading in the help to its commands, each with the `module:function` to import
_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Ask": {
        "query": "reading:query",
        "docs": "documents:docs",
        "verify": "reading:verify",
        "trace": "traces:trace",
        "expect": "evaluating.runs:expect",
    },
    "Fill": {
        "demo": "writing:demo",
        "ingest": "writing:ingest",
        "preview": "reading:preview",
        "rebuild": "writing:rebuild",
        "drafts": "drafts:drafts",
        "sources": "reading:sources",
    },
    "Operate": {
        "status": "reading:status",
        "doctor": "maintenance:doctor",
        "init": "maintenance:init",
        "jobs": "maintenance:jobs",
        "releases": "releases:releases",
        "namespaces": "releases:namespaces",
        "ledger": "maintenance:ledger",
        "servers": "maintenance:servers",
        "gc": "maintenance:gc",
    },
    "Measure": {
        "eval": "evaluating.runs:evaluation",
        "bisect": "evaluating.runs:bisect_releases",
        "prompts": "evaluating.prompts:prompts",
    },
    "Connect": {
        "dagster": "serving:dagster",
        "mcp": "connecting:mcp",
        "serve": "serving:serve",
        "token": "connecting:token",
        "ui": "serving:ui",
    },
}


class Commands(UserDict[str, Any]):
    """Commands by name, each imported at first access from its `module:function` in this
    package.
    """

    def __getitem__(self, name: str) -> click.Command:
        found = self.data[name]
        if isinstance(found, str):
            module, _, function = found.partition(":")
            found = getattr(importlib.import_module(f"rag_platform.cli.{module}"), function)
            self.data[name] = found
        return cast(click.Command, found)


class Program(click.Group):
    """The group of all commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command in the language of the command line; None for an unknown name."""
        found = super().get_command(ctx, cmd_name)
        return found and localise(found)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands under their headings."""
        for title, places in _COMMANDS.items():
            commands = [(name, self.get_command(ctx, name)) for name in places]
            rows = [
                (name, command.get_short_help_str(limit=HELP_LINE))
                for name, command in commands
                if command is not None
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> Any:
        """Run a command and exit with its code; all errors are printed in one format."""
        given = list(sys.argv[1:] if args is None else args)
        try:
            self._run(given, *rest, **named)
        except OSError as error:
            _give_up_printing(error)

    def _run(self, given: list[str], *rest: Any, **named: Any) -> None:
        try:
            _require_utf8(given)
            if logging.lastResort is not None:  # it prints what no handler writes to a log
                logging.lastResort.setFormatter(LogLines())
            shown = localise(self)
            code = click.Group.main(shown, given, *rest, **{**named, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            if "--json" in given:
                _fail(InputError("name a command; --help lists them", code="usage"), given)
            click.echo(error.format_message(), err=True)
            sys.exit(2)
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
            if "--json" in given:
                _fail(RagError("interrupted", code="interrupted"), given)
            click.echo(say("interrupted"), err=True)
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


def _require_utf8(given: Sequence[str]) -> None:
    """Raise InputError for an argument that is not UTF-8, which no database accepts, unless it is
    an existing path, which the commands handle themselves.
    """
    for word in given:
        if encodable(word) != word and not os.path.lexists(word):
            shown = os.fsencode(word).decode("utf-8", "backslashreplace")
            raise InputError(
                f"the argument {shown} is not UTF-8; set the terminal to UTF-8 and type it again,"
                " or name a file that is there",
                code="usage",
            )


def _give_up_printing(error: OSError) -> None:
    """If stdout cannot be written, as its disk is full, say so on stderr and exit; raise any other
    error. Errors with a file name are not about stdout.
    """
    if error.filename is not None or not says_disk_full(error):
        raise error
    # the interpreter would flush the remaining output again at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    full = RagError(
        f"what this command prints could not be written to standard output ({error.strerror}); what"
        " it did is done. Send its output elsewhere",
        code="not_printed",
    )
    _fail(full, [])


def _fail(error: RagError, given: Sequence[str]) -> None:
    from rag_platform.api import envelopes  # imported late: only needed after a failure
    from rag_platform.cli.output import print_envelope

    envelope = envelopes.failure(error, local=True)
    print_envelope(envelope, "--json" in given)
    sys.exit(envelopes.exit_code(envelope))


@click.group(
    cls=Program,
    commands=Commands({name: at for places in _COMMANDS.values() for name, at in places.items()}),
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
