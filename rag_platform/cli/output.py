"""What every command shares: settings and stores built when first needed, the envelope it prints,
its exit code, the progress bar.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any

import click

from rag_platform.api import envelopes
from rag_platform.config.settings import Settings, load_settings
from rag_platform.errors import InputError, RagError, disk_full
from rag_platform.ir import Json
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Job
from rag_platform.observability import faults, tracing
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot


@dataclass
class Context:
    """What commands share, built when first needed."""

    json_output: bool = False

    @cached_property
    def settings(self) -> Settings:
        """The effective settings."""
        return load_settings()

    @cached_property
    def store(self) -> Store:
        """The data root."""
        return Store(self.settings.home)

    @cached_property
    def ledger(self) -> Ledger:
        """The system of record."""
        return Ledger(self.store.ledger_path)

    @cached_property
    def root(self) -> DataRoot:
        """Settings, store and ledger, for what writes."""
        return DataRoot(settings=self.settings, store=self.store, ledger=self.ledger)

    @cached_property
    def library(self) -> Any:
        """The read side."""
        from rag_platform.api.documents import hidden_by_ledger
        from rag_platform.retrieval.library import Library

        return Library(self.settings, self.store, hidden=hidden_by_ledger(self.store))

    def namespace(self, given: str | None) -> str:
        """The namespace asked for, or the default one."""
        return given or self.settings.default_namespace


Command = Callable[..., Json]
_SHOWN_WARNINGS = 8


def answers(own_trace: bool = False) -> Callable[[Command], Callable[..., None]]:
    """A command whose function returns an envelope: trace it, unless it does so itself, print the
    envelope, exit with its code.
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
            envelope = _enveloped(function, Context(json_output), own_trace, args, kwargs)
            _show(envelope, json_output)
            sys.exit(envelopes.exit_code(envelope))

        return command

    return decorate


def _enveloped(
    function: Command, context: Context, own_trace: bool, args: Any, kwargs: Any
) -> Json:
    trace_id = ""
    try:
        if own_trace:
            return function(context, *args, **kwargs)
        with (
            tracing.trace("command", logs_dir=context.store.logs_dir) as trace,
            tracing.span(f"command.{function.__name__}"),
        ):
            trace_id = trace.trace_id
            return {**function(context, *args, **kwargs), "trace_id": trace_id}
    except RagError as error:
        return envelopes.failure(
            error, str(error.details.pop("trace_id", "")) or trace_id, local=True
        )
    except Exception as error:  # noqa: BLE001 (a program that reads the envelope finds one, a person the stack trace on stderr)
        if full := disk_full(error, context.store.home):
            return envelopes.failure(full, trace_id, local=True)
        faults.seen(error, f"command.{function.__name__}", logs_dir=context.store.logs_dir)
        traceback.print_exc()
        return envelopes.failure(error, trace_id, local=True)


def _show(envelope: Json, json_output: bool) -> None:
    if json_output:
        click.echo(json.dumps(envelope, ensure_ascii=False, indent=1))
        return
    if not envelope["ok"]:
        click.echo(f"error [{envelope['error']['code']}]: {envelope['error']['message']}", err=True)
        return
    click.echo(envelope["data"]["markdown"])
    # what a command says in its text already is not said again
    warnings = [
        warning
        for warning in envelope.get("warnings") or []
        if warning not in envelope["data"]["markdown"]
    ]
    for warning in warnings[:_SHOWN_WARNINGS]:
        click.echo(f"warning: {warning}", err=True)
    if len(warnings) > _SHOWN_WARNINGS:
        click.echo(
            f"warning: and {len(warnings) - _SHOWN_WARNINGS} more; --json lists them all", err=True
        )


def pairs(values: tuple[str, ...], option: str) -> dict[str, Any]:
    """`k=v` options as a mapping; a key given twice becomes a list, JSON values are read as
    such.
    """
    found: dict[str, Any] = {}
    for item in values:
        key, sign, text = item.partition("=")
        if not sign or not key:
            raise InputError(f"{option} takes key=value, not {item!r}", code="usage")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        earlier = found.get(key)
        found[key] = (
            value
            if key not in found
            else [*(earlier if isinstance(earlier, list) else [earlier]), value]
        )
    return found


namespace_option = click.option(
    "--namespace",
    metavar="NAME",
    help="The library; the default one of settings.yaml if not given.",
)
wait_option = click.option(
    "--wait",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="How long to wait while another job writes the namespace.",
)


# --- progress -----------------------------------------------------------------------------------


Advance = Callable[[str, int, int], None]


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Advance]:
    """A progress bar on stderr, called with (stage, done, total); each stage has its own rate and
    time left. Nothing off a terminal.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, Any] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = (progress.add_task(stage, total=None, rate=""), time.perf_counter())
            task, began = tasks[stage]
            rate = f"{done / max(time.perf_counter() - began, 1e-3):.1f}/s" if done else ""
            progress.update(task, completed=done, total=total or None, rate=rate)

        yield advance


def awaited(context: Context, job: Job, process: Any) -> Job:
    """A launched job in its final state, its progress shown until then; `process` is None for one
    that had nothing to do.

    Whoever interrupts the waiting is told that the job goes on.
    """
    from rag_platform.processes import jobs

    if process is None:
        return job

    def show(now: Job) -> None:
        stages = now.progress.get("stages", {})
        for stage, figures in stages.items():
            known = not (stage == "embeddings" and jobs.texts_to_come(stages))
            advance(stage, int(figures["done"]), int(figures["total"]) if known else 0)

    try:
        with progress_bar(context.json_output) as advance:
            return jobs.wait(job.job_id, process, context.ledger, context.store, show)
    except KeyboardInterrupt:
        told = (
            f"job {job.job_id} goes on; `rag jobs show {job.job_id}` tells how far it is, `rag jobs"
            f" cancel {job.job_id}` ends it"
        )
        raise RagError(told, code="interrupted", job_id=job.job_id) from None


def finished(context: Context, started: Any, started_at: float) -> Json:
    """The envelope of a job of writing work, when it has ended."""
    from rag_platform.ingestion.job_start import DOCUMENT_JOBS, ingest_data
    from rag_platform.processes import jobs

    job = awaited(context, started.job, started.process)
    if job.kind in DOCUMENT_JOBS:
        data = ingest_data(job, context.root, time.perf_counter() - started_at)
    else:
        data = jobs.report(job, context.ledger.job_items(job.job_id), context.store)
    if job.state in ("failed", "cancelled"):
        return envelopes.failure(
            RagError(job.reason, code=f"{job.kind}_{job.state}", **data), job.trace_id, local=True
        )
    return envelopes.envelope(data, job.trace_id, data.get("warnings", ()))
