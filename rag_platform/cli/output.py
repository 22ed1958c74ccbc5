"""Shared by all commands: settings and stores, completion of names, the printed envelope, exit
codes, waiting for jobs.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

import click

from rag_platform.api import envelopes
from rag_platform.cli.language import say, say_filled, say_lines
from rag_platform.cli.progress import progress_bar, show_job
from rag_platform.config.folders import SHIPPED, config_dir
from rag_platform.config.gates import find_gate_problems
from rag_platform.config.settings import Settings, find_unknown_variables, load_settings
from rag_platform.config.strategies import strategy_names
from rag_platform.errors import InputError, RagError, disk_full, read_only
from rag_platform.ir import Json
from rag_platform.ledger.ledger import Ledger, open_ledger
from rag_platform.ledger.schema import Job
from rag_platform.messages import LANGUAGES, translate_filled
from rag_platform.observability import faults, otlp, tracing
from rag_platform.observability.build import build_info
from rag_platform.storage.locks import require_posix
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot

if TYPE_CHECKING:  # loads the launchers
    from rag_platform.processes.jobs import Started


@dataclass
class Context:
    """The settings and stores of a command, opened when first needed."""

    json_output: bool = False
    given_namespace: str | None = None  # the value of `--namespace`
    render: Callable[[Json], None] | None = None  # prints the data on a terminal
    opened: ExitStack = field(default_factory=ExitStack)  # closed when the command ends

    @cached_property
    def settings(self) -> Settings:
        """The effective settings. Raises ConfigError."""
        settings = load_settings()
        otlp.setup(settings.observability.otlp)
        return settings

    @cached_property
    def store(self) -> Store:
        return Store.of(self.settings)

    @cached_property
    def ledger(self) -> Ledger:
        return self.opened.enter_context(closing(open_ledger(self.store)))

    @cached_property
    def root(self) -> DataRoot:
        """Settings, store and ledger as one object, for writing."""
        return DataRoot(settings=self.settings, store=self.store, ledger=self.ledger)

    @cached_property
    def library(self) -> Any:
        from rag_platform.ledger.hiding import LedgerView
        from rag_platform.retrieval.library import Library

        ledger = LedgerView(self.store, self.opened)
        return self.opened.enter_context(closing(Library(self.settings, self.store, ledger)))

    def places(self) -> dict[str, str]:
        """The locations of data, ledger and config."""
        own = config_dir().resolve()
        return {
            "home": str(self.settings.home),
            "ledger": self.store.ledger_name,
            "config": str(own) if own.is_dir() else f"{SHIPPED} (shipped; `rag init` copies it)",
        }

    @property
    def namespace(self) -> str:
        """The library of `--namespace`, else the default one."""
        from rag_platform.retrieval.namespaces import choose_namespace

        return self.given_namespace or choose_namespace(self.library)

    def known_namespace(self) -> str:
        """As `namespace`, but a given library must exist. Raises NotFoundError."""
        from rag_platform.retrieval.namespaces import require_existing

        if self.given_namespace:
            require_existing(self.library, self.given_namespace)
        return self.namespace

    def listed_namespaces(self) -> list[str]:
        """The library of `--namespace`, else the configured one, else every one. Raises
        NotFoundError.
        """
        from rag_platform.retrieval.namespaces import known_namespaces

        if self.given_namespace or "default_namespace" in self.settings.model_fields_set:
            return [self.known_namespace()]
        return known_namespaces(self.library) or [self.namespace]

    def name_others(self) -> str:
        """A line on the libraries that a command left out, since none was given; "" for none."""
        if self.given_namespace:
            return ""
        own = self.namespace
        if not (others := [name for name in self.library.namespaces() if name != own]):
            return ""
        return f"Of library {own!r} alone; `--namespace` names another: {', '.join(others)}."


# --- completion of names in a shell ---------------------------------------------------------------


def _offer(names: Callable[[Context], Iterator[str]]) -> Callable[..., list[str]]:
    """A completion function by `names`, which are read on demand; empty if that fails."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        context = Context(given_namespace=ctx.params.get("namespace"))
        try:
            return [name for name in names(context) if name.startswith(incomplete)]
        except RagError:
            return []

    return complete


def _libraries(context: Context) -> Iterator[str]:
    yield from context.library.namespaces()


def _strategies(context: Context) -> Iterator[str]:
    yield from strategy_names(context.settings)


def _documents(context: Context) -> Iterator[str]:
    if context.store.has_ledger():
        for document in context.ledger.documents(context.namespace, status="active"):
            yield document.doc_id


def strategy_option(text: str) -> Callable[[Any], Any]:
    """The option that names a strategy, with its help."""
    return click.option("--strategy", metavar="NAME", shell_complete=_offer(_strategies), help=text)


complete_libraries = _offer(_libraries)
complete_documents = _offer(_documents)


# --- the answer of a command ----------------------------------------------------------------------

ENVELOPE_VERSION = 1  # of the output of `--json`; raised when a field changes its meaning
Command = Callable[..., Mapping[str, Any]]
_SHOWN_WARNINGS = 8
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed
_FILE_NAMES = ("source_uri", "filename")
_namespace_option = click.option(
    "--namespace",
    metavar="NAME",
    shell_complete=complete_libraries,
    help="The library; by default that of settings.yaml, or the only one.",
)


def answers(
    *, namespace: bool = False, own_trace: bool = False, reports: bool = True
) -> Callable[[Command], Callable[..., None]]:
    """Decorate a function that returns data or an envelope: the command gets the option `--json`,
    is traced (unless the function opens its `own_trace`), prints the envelope and exits with its
    code. With `namespace` it also gets the option `--namespace`, whose value is in the context.
    With `reports` the Markdown consists of the program's messages, which are translated; texts of
    documents are not.
    """

    def decorate(function: Command) -> Callable[..., None]:
        @click.option(
            "--json",
            "json_output",
            is_flag=True,
            help="Print the machine-readable envelope and nothing else.",
        )
        @wraps(function)
        def command(*args: Any, json_output: bool = False, **kwargs: Any) -> None:
            context = Context(json_output, kwargs.pop("namespace", None) if namespace else None)
            with context.opened:
                envelope = _run(function, context, own_trace, args, kwargs)
            unknown = find_unknown_variables().values()
            envelope = {**envelope, "warnings": [*envelope.get("warnings", ()), *unknown]}
            if not (envelope["ok"] or json_output):  # whose other warnings are not printed
                for warning in unknown:
                    click.echo(f"{say('warning')}{say(': ')}{_say_warning(warning)}", err=True)
            print_envelope(envelope, json_output, context.render, reports=reports)
            sys.exit(envelopes.exit_code(envelope))

        return _namespace_option(command) if namespace else command

    return decorate


def _run(function: Command, context: Context, own_trace: bool, args: Any, kwargs: Any) -> Json:
    trace_id = ""
    client = tracing.Client(
        "cli",
        name="rag",
        version=build_info()["app_version"],
        client_level="L1" if context.json_output else "L0",
        tool=function.__name__,
    )
    try:
        require_posix()
        with tracing.for_client(client):
            if own_trace:
                return _in_envelope(function(context, *args, **kwargs))
            with (
                tracing.trace("command", logs_dir=context.store.logs_dir) as trace,
                tracing.span(f"command.{function.__name__}"),
            ):
                trace_id = trace.trace_id
                return {**_in_envelope(function(context, *args, **kwargs)), "trace_id": trace_id}
    except RagError as error:
        return envelopes.failure(
            error, str(error.details.pop("trace_id", "")) or trace_id, local=True
        )
    except Exception as error:  # noqa: BLE001 (becomes an envelope, with the stack trace on stderr)
        home = context.store.home
        if full := disk_full(error, home):
            return envelopes.failure(full, trace_id, local=True)
        if isinstance(error, PermissionError) and not os.access(home, os.W_OK):
            return envelopes.failure(read_only(home), trace_id, local=True)
        faults.report(error, f"command.{function.__name__}", logs_dir=context.store.logs_dir)
        traceback.print_exc()
        return envelopes.failure(error, trace_id, local=True)


def _in_envelope(found: Mapping[str, Any]) -> Json:
    """The envelope of what a command found, with a warning about unusable gates unless it has
    that.
    """
    envelope = dict(found) if "ok" in found else envelopes.envelope(found)
    warnings = envelope.get("warnings") or []
    if added := [problem for problem in find_gate_problems() if problem not in warnings]:
        envelope["warnings"] = [*warnings, *added]
    return envelope


def fail_if(failed: bool, data: Json, *, code: str) -> Json:
    """The data, or if `failed` the envelope of an error with the data's Markdown as its message."""
    if not failed:
        return data
    return envelopes.failure(RagError(data["markdown"], code=code), data=data)


def print_envelope(
    envelope: Json,
    json_output: bool,
    render: Callable[[Json], None] | None = None,
    *,
    reports: bool = False,
) -> None:
    """Print an envelope as JSON, or its Markdown to stdout and errors and warnings to stderr. On a
    terminal `render`, if given, prints the data instead of the Markdown. With `reports` the
    Markdown is translated. The Markdown of a failed command is printed unless the error message
    repeats it.
    """
    if json_output:
        versioned = {"schema_version": ENVELOPE_VERSION, **envelope}
        click.echo(json.dumps(versioned, ensure_ascii=False, indent=1))
        return
    envelope = make_visible(envelope)
    if not envelope["ok"]:
        message, report = envelope["error"]["message"], (envelope["data"] or {}).get("markdown")
        if report is not None and report not in message:
            click.echo(say_lines(report))
        print_error(envelope["error"]["code"], message)
        return
    markdown = envelope["data"]["markdown"]
    # an answer already contains its warnings as notes, in the language of its frame
    warnings = [
        text
        for text in envelope.get("warnings") or []
        if not any(translate_filled(text, language) in markdown for language in LANGUAGES)
    ]
    shown = [_say_warning(warning) for warning in warnings[:_SHOWN_WARNINGS]]
    if more := len(warnings) - len(shown):
        shown.append(say("and {more} more; --json lists them all", more=more))
    for warning in shown:
        click.echo(f"{say('warning')}{say(': ')}{warning}", err=True)
    if render is not None and sys.stdout.isatty():
        render(envelope["data"])
    else:  # after the warnings, as it ends with what to do next
        click.echo(say_lines(markdown) if reports else markdown)


def make_visible(data: Any) -> Any:
    """The data with control characters escaped, such as `\\x1b`, which a terminal would interpret;
    also line breaks, but only in file names.
    """
    with_breaks = {name for name in _file_names(data) if "\n" in name}

    def show(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: show(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [show(item) for item in value]
        if not isinstance(value, str):
            return value
        for name in with_breaks:
            value = value.replace(name, name.replace("\n", r"\x0a"))
        return _CONTROL.sub(lambda char: f"\\x{ord(char[0]):02x}", value)

    return show(data)


def _file_names(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        yield from (str(data[key]) for key in _FILE_NAMES if data.get(key))
    if isinstance(data, dict | list | tuple):
        for item in data.values() if isinstance(data, dict) else data:
            yield from _file_names(item)


def _say_warning(warning: str) -> str:
    """A warning in the reader's language; a document's warning begins with its name."""
    if (shown := say_filled(warning)) == warning:
        name, colon, rest = warning.partition(": ")
        return f"{name}{colon}{say_filled(rest)}"
    return shown


def print_error(code: str, message: str) -> None:
    """Print an error to stderr in the language of the command line."""
    shown = say_lines(make_visible(message))
    click.echo(f"{say('error')} [{code}]{say(': ')}{shown}", err=True)


def parse_pairs(values: tuple[str, ...], option: str) -> dict[str, Any]:
    """`k=v` options as a mapping; a repeated key becomes a list, JSON values are parsed. Raises
    InputError for one without `=`.
    """
    found: dict[str, Any] = {}
    for item in values:
        key, sign, text = item.partition("=")
        if not sign or not key:
            raise InputError(f"{option} takes key=value, not {item!r}", code="usage")
        value: Any = text
        with suppress(ValueError):
            value = json.loads(text)
        if key in found:
            earlier = found[key]
            value = [*(earlier if isinstance(earlier, list) else [earlier]), value]
        found[key] = value
    return found


wait_option = click.option(
    "--wait",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="How long to wait for another job that writes the library.",
)


# --- jobs --------------------------------------------------------------------------------------


def wait_for_job(context: Context, started: Started) -> Job:
    """Wait for a started job, showing its progress, and return it in its final state. Raises
    RagError `interrupted` on Ctrl-C; the job goes on.
    """
    from rag_platform.processes import jobs

    if started.process is None:  # nothing to do, so nothing to show
        return started.job
    job_id = started.job.job_id
    try:
        with progress_bar(context.json_output) as advance:
            return jobs.wait(
                started,
                context.ledger,
                context.store,
                lambda now: show_job(now, advance),
                context.settings.jobs,
            )
    except KeyboardInterrupt:
        raise RagError(
            f"job {job_id} goes on; `rag jobs show {job_id}` tells how far it is, `rag jobs cancel"
            f" {job_id}` ends it",
            code="interrupted",
            job_id=job_id,
        ) from None


def job_envelope(job: Job, data: Json, code: str, warnings: Sequence[str] | None = None) -> Json:
    """The envelope of an ended job with warnings, by default its reason; of a failed or cancelled
    job that of an error with its own code, else `code`.
    """
    from rag_platform.processes import jobs

    if job.state in ("failed", "cancelled"):
        error = RagError(job.reason, code=jobs.code_of(job) or code, **data)
        return envelopes.failure(error, job.trace_id, local=True)
    if warnings is None:
        warnings = [job.reason] if job.reason else []
    return envelopes.envelope(data, job.trace_id, warnings)


def finish_job(context: Context, started: Started, started_at: float) -> Json:
    """Wait for the job of an ingest, rebuild or retry, and return its envelope: that of an error
    if it achieved nothing.
    """
    from rag_platform.ingestion.job_start import DOCUMENT_JOBS, ingest_data
    from rag_platform.processes import jobs

    job = wait_for_job(context, started)
    if job.kind in DOCUMENT_JOBS:
        data = ingest_data(job, context.root, time.perf_counter() - started_at)
    else:
        data = jobs.report(job, context.ledger.job_items(job.job_id), context.store)
    warnings = [*data.get("warnings", ()), *find_gate_problems(context.ledger.namespaces)]
    envelope = job_envelope(job, data, f"{job.kind}_{job.state}", warnings)
    if not envelope["ok"] or envelopes.exit_code(envelope) != envelopes.NOTHING_DONE:
        return envelope
    codes = [item["code"] for item in data["failures"]]
    error = RagError("nothing was ingested", code=codes[0] if codes else "nothing_ingested")
    failed = envelopes.failure(error, job.trace_id, local=True, data=data)
    return {**failed, "warnings": envelope["warnings"]}
