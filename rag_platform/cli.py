"""The command line: each command translates its arguments, calls one function, and prints what it returned.

With `--json` a command prints the envelope of the public contract and nothing else. Exit codes: 0 done, 1 nothing done, 2 usage, 3 done but
some documents failed.
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
from pathlib import Path
from typing import Any

import click

from rag_platform.config import Settings, load_settings, load_strategy
from rag_platform.errors import InputError, RagError
from rag_platform.ir import Job, Json
from rag_platform.ledger import Ledger
from rag_platform.observability import tracing
from rag_platform.retrieval import responses
from rag_platform.store import Store, to_json


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
    def library(self) -> Any:
        """The read side."""
        from rag_platform.retrieval.library import Library
        from rag_platform.retrieval.reading import hidden_by_ledger

        return Library(self.settings, self.store, hidden=hidden_by_ledger(self.store))

    def namespace(self, given: str | None) -> str:
        """The namespace asked for, or the default one."""
        return given or self.settings.default_namespace


Command = Callable[..., Json]
_LONG_SECONDS = 15.0
_SHOWN_WARNINGS = 8


def answers(own_trace: bool = False) -> Callable[[Command], Callable[..., None]]:
    """A command whose function returns an envelope: trace it, unless it does so itself, print the envelope, exit with its code."""

    def decorate(function: Command) -> Callable[..., None]:
        @click.option("--json", "json_output", is_flag=True, help="Print the machine-readable envelope and nothing else.")
        @wraps(function)
        def command(*args: Any, json_output: bool = False, **kwargs: Any) -> None:
            envelope = _enveloped(function, Context(json_output), own_trace, args, kwargs)
            _show(envelope, json_output)
            sys.exit(responses.exit_code(envelope))

        return command

    return decorate


def _enveloped(function: Command, context: Context, own_trace: bool, args: Any, kwargs: Any) -> Json:
    trace_id = ""
    try:
        if own_trace:
            return function(context, *args, **kwargs)
        with tracing.trace("command", logs_dir=context.store.logs_dir) as trace, tracing.span(f"command.{function.__name__}"):
            trace_id = trace.trace_id
            return {**function(context, *args, **kwargs), "trace_id": trace_id}
    except RagError as error:
        return responses.failure(error, str(error.details.pop("trace_id", "")) or trace_id, local=True)
    except Exception as error:  # a program that reads the envelope finds one, a person the stack trace on stderr
        traceback.print_exc()
        return responses.failure(error, trace_id, local=True)


def _show(envelope: Json, json_output: bool) -> None:
    if json_output:
        click.echo(json.dumps(envelope, ensure_ascii=False, indent=1))
        return
    if not envelope["ok"]:
        click.echo(f"error [{envelope['error']['code']}]: {envelope['error']['message']}", err=True)
        return
    click.echo(envelope["data"]["markdown"])
    warnings = envelope.get("warnings") or []
    for warning in warnings[:_SHOWN_WARNINGS]:
        click.echo(f"warning: {warning}", err=True)
    if len(warnings) > _SHOWN_WARNINGS:
        click.echo(f"warning: and {len(warnings) - _SHOWN_WARNINGS} more; --json lists them all", err=True)


def _pairs(values: tuple[str, ...], option: str) -> dict[str, Any]:
    """`k=v` options as a mapping; a key given twice becomes a list, JSON values are read as such."""
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
        found[key] = value if key not in found else [*(earlier if isinstance(earlier, list) else [earlier]), value]
    return found


namespace_option = click.option("--namespace", metavar="NAME", help="The library; the default one of settings.yaml if not given.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rag-platform")
def main() -> None:
    """Documents in, cited answers out."""


# --- writing -----------------------------------------------------------------------------------------------------------


@main.command()
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
    options = ReceiveOptions(source, tags, _pairs(metadata, "--meta"), policy, sync, include, exclude)
    if not inputs and not sync:
        raise InputError("name files, folders or URLs, `-` for standard input, or --sync for what is known already", code="usage")
    given = [
        Content(filename, sys.stdin.buffer.read()) if item == "-" else item.strip() if is_url(item) else Path(item) for item in inputs
    ] or synced_inputs(context.ledger, name, source)
    started = start_ingest(
        given, name, settings=context.settings, strategy=chosen, store=context.store, ledger=context.ledger, options=options
    )
    return _finished(context, started, chosen.name, started_at)


@main.command()
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
        with _bar(context.json_output) as advance:
            job = jobs.wait(job.job_id, started.process, context.ledger, context.store, lambda now: advance(*_progress(now)))
    data = ingest_data(job, store=context.store, ledger=context.ledger, seconds=time.perf_counter() - started_at)
    if job.state == "failed":
        return responses.failure(RagError(job.reason, code=f"{job.kind}_failed", **data), job.trace_id, local=True)
    return responses.envelope(data, job.trace_id, data["warnings"])


@main.group()
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


# --- reading -----------------------------------------------------------------------------------------------------------


@main.command()
@click.argument("text")
@namespace_option
@click.option("--top-k", type=click.IntRange(1, 100), help="How many results.")
@click.option("--mode", type=click.Choice(["dense", "sparse", "hybrid"]), help="Which legs are asked.")
@click.option("--filter", "filters", multiple=True, metavar="K=V", help="Only chunks whose field has the value; repeatable.")
@click.option("--release", "release_id", metavar="ID", help="Ask a retained release instead of the published one.")
@click.option("--full", is_flag=True, help="Show the results too, not only the answer.")
@answers(own_trace=True)
def query(context: Context, text: str, namespace: str | None, top_k: int | None, mode: str | None, filters: tuple[str, ...],
          release_id: str | None, full: bool) -> Json:  # fmt: skip
    """Ask a question; the answer names its sources."""
    from rag_platform.ir import QueryRequest
    from rag_platform.retrieval.engine import answer

    request = QueryRequest(text, context.namespace(namespace), top_k, mode, _pairs(filters, "--filter"), release_id)
    result = answer(context.library, request)
    detail = "full" if full or context.json_output else "brief"
    data, warnings = responses.fit_query(result, detail=detail, max_tokens=context.settings.server.result_tokens)
    return responses.envelope(data, result.trace_id, warnings)


@main.group()
def docs() -> None:
    """Documents of a namespace."""


@docs.command("list")
@namespace_option
@click.option("--group-by", type=click.Choice(["tags", "source", "none"]), default="none")
@click.option("--filter", "filters", multiple=True, metavar="K=V", help="tags, source or status.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100)
@click.option("--cursor", help="Go on where the last page ended.")
@click.option("--all", "include_deleted", is_flag=True, help="Retired and deleted ones too.")
@answers()
def docs_list(context: Context, namespace: str | None, group_by: str, filters: tuple[str, ...], limit: int, cursor: str | None,
              include_deleted: bool) -> Json:  # fmt: skip
    """Documents, grouped if asked."""
    from rag_platform.retrieval.reading import list_documents

    grouped = None if group_by == "none" else group_by
    data = list_documents(context.library, context.namespace(namespace), group_by=grouped, filter=_pairs(filters, "--filter"), limit=limit,
                          cursor=cursor, include_deleted=include_deleted)  # fmt: skip
    return responses.envelope(data, "")


@docs.command("show")
@click.argument("doc_id")
@namespace_option
@click.option("--version", "version_id", help="A version_id; the live one if not given.")
@click.option("--format", "form", type=click.Choice(["md", "sections", "chunks", "outline"]), default="outline")
@click.option("--max-chars", type=click.IntRange(1), help="Cut the text after so many characters.")
@answers()
def docs_show(context: Context, doc_id: str, namespace: str | None, version_id: str | None, form: str, max_chars: int | None) -> Json:
    """One document: its outline, sections, chunks or whole text."""
    from rag_platform.retrieval.reading import get_document

    data = get_document(context.library, context.namespace(namespace), doc_id, version_id=version_id, format=form, max_chars=max_chars)
    return responses.envelope(data, "", data.pop("warnings", ()))


@main.group()
def sources() -> None:
    """Where documents come from."""


@sources.command("list")
@namespace_option
@answers()
def sources_list(context: Context, namespace: str | None) -> Json:
    """Sources with their documents counted."""
    name = context.namespace(namespace)
    rows = [
        {"name": s.name, "kind": s.kind, "include": list(s.include), "exclude": list(s.exclude),
         "documents": len(context.ledger.documents(name, source=s.name, status="active"))}
        for s in context.ledger.sources(name)
    ]  # fmt: skip
    lines = [f"{row['name']}  {row['kind']}, {row['documents']} documents" for row in rows]
    return responses.envelope({"markdown": "\n".join(lines) or f"no sources in namespace {name!r}", "sources": rows}, "")


@main.command()
@click.argument("chunk_id", required=False)
@click.option("--all", "everything", is_flag=True, help="Every chunk of the published release.")
@namespace_option
@answers()
def verify(context: Context, chunk_id: str | None, everything: bool, namespace: str | None) -> Json:
    """Prove quotes against the raw bytes."""
    from rag_platform.indexes.verifying import verify_release

    if everything == bool(chunk_id):
        raise InputError("name a CHUNK_ID, or give --all", code="usage")
    with _bar(context.json_output) as advance:
        result = verify_release(
            context.store,
            context.namespace(namespace),
            chunk_id=chunk_id,
            on_progress=lambda done, total: advance("verifying", done, total),
        )
    data = result.data()
    if result.failures:
        return {**responses.failure(RagError(data["markdown"], code="unproved_chunks"), ""), "data": data}
    return responses.envelope(data, "")


@main.group()
def trace() -> None:
    """What happened in a query or an ingest run."""


@trace.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=20)
@click.option("--type", "trace_type", type=click.Choice(["query", "ingestion"]))
@answers()
def trace_list(context: Context, limit: int, trace_type: str | None) -> Json:
    """Traces, newest first."""
    from rag_platform.observability.traces import list_traces

    rows = list_traces(context.store.logs_dir, limit, trace_type)
    lines = [f"{r['trace_id']}  {r['started_at']}  {r['trace_type']:<9} {r['status']:<6} {r.get('latency_ms') or 0:.0f} ms" for r in rows]
    return responses.envelope({"markdown": "\n".join(lines) or "no traces", "traces": rows}, "")


@trace.command("show")
@click.argument("trace_id")
@answers(own_trace=True)
def trace_show(context: Context, trace_id: str) -> Json:
    """One trace as a waterfall; the id may be cut short."""
    from rag_platform.observability.traces import show, waterfall

    envelope = show(context.store.logs_dir, trace_id)
    return responses.envelope({"markdown": waterfall(envelope), "trace": envelope}, str(envelope["trace_id"]))


@main.command()
def serve() -> None:
    """Answer over MCP on standard input and output."""
    from rag_platform.server.app import serve_stdio

    serve_stdio(load_settings())


@main.command()
@answers(own_trace=True)
def doctor(context: Context) -> Json:
    """Check the installation, the weights, the data root and the config."""
    from rag_platform.doctor import examine

    findings = [to_json(finding) for finding in examine(context.settings)]
    config = context.settings.model_dump(mode="json", exclude={"home", "strategies_dir"})
    lines = [f"{f['level']:<8} {f['subject']}: {f['message']}" for f in findings]
    data = {"markdown": "\n".join([*lines, "", "effective config:", json.dumps(config, indent=1)]), "findings": findings, "config": config}
    if any(f["level"] == "error" for f in findings):
        return {**responses.failure(RagError(str(data["markdown"]), code="unhealthy"), ""), "data": data}
    return responses.envelope(data, "")


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


Advance = Callable[[str, int, int], None]


@contextmanager
def _bar(quiet: bool) -> Iterator[Advance]:
    """A progress bar on stderr, called with (stage, done, total); each stage has its own rate and time left. Nothing off a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
               TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, Any] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = (progress.add_task(stage, total=None, rate=""), time.perf_counter())
            task, began = tasks[stage]
            rate = f"{done / max(time.perf_counter() - began, 1e-3):.1f}/s" if done else ""
            progress.update(task, completed=done, total=total or None, rate=rate)

        yield advance


if __name__ == "__main__":
    main()
