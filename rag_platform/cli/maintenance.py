"""Commands about config, jobs, garbage collection, the doctor, the ledger database, servers."""

from __future__ import annotations

import json
import logging
import time
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rag_platform.api import envelopes
from rag_platform.cli.output import (
    Context,
    answers,
    fail_if,
    finish_job,
    job_envelope,
    wait_for_job,
    wait_option,
)
from rag_platform.config.folders import SHIPPED, config_dir
from rag_platform.errors import InputError, RagError
from rag_platform.ir import Json
from rag_platform.messages import terminal_language, translate
from rag_platform.processes import jobs as work
from rag_platform.storage.records import to_json

if TYPE_CHECKING:
    from rag_platform.assets.collecting import PartitionKeys


@click.group()
def jobs() -> None:
    """Ingests, rebuilds, deletions and other writing work."""


@jobs.command("list")
@click.option("--all", "everywhere", is_flag=True, help="Jobs of all libraries.")
@click.option(
    "--state",
    type=click.Choice([*work.OPEN_STATES, *work.FINAL_STATES, "dead"]),
    help="Only jobs in this state; dead: jobs that gave up on a document.",
)
@click.option("--limit", type=click.IntRange(1, 1000), default=20)
@answers(namespace=True)
def jobs_list(context: Context, everywhere: bool, state: str | None, limit: int) -> Json:
    """Jobs, newest first."""
    # jobs for the whole data root have an empty namespace
    own = [] if everywhere else context.listed_namespaces()
    names = [*own, ""] if len(own) == 1 else [None]
    work.end_orphans(context.ledger, context.settings.jobs)
    found = [
        work.as_it_stands(job, context.ledger, context.settings.jobs)
        for each in names
        for job in context.ledger.jobs(
            each, limit, state=state if state != "dead" else None, dead=state == "dead"
        )
    ]
    rows = [
        work.summary(job)
        for job in sorted(found, key=lambda job: job.created_at, reverse=True)[:limit]
    ]
    language = "en" if context.json_output else terminal_language()
    lines = [
        f"{row['job_id']}  {row['kind']:<8} {translate(row['state'], language):<10}"
        f" {row['created_at']}  {row['namespace']}" + (f"\n  {detail}" if detail else "")
        for row in rows
        for detail in [_format_progress(row) or row["reason"]]
    ]
    lines = lines or [f"no {'such ' if state else ''}jobs"]
    if names[0] is not None:
        lines.append(
            f"Of library {names[0]!r} alone; `rag jobs list --all` lists those of every library."
        )
    return {
        "markdown": "\n".join(lines),
        "namespace": names[0],
        "jobs": rows,
    }


def _format_progress(row: Json) -> str:
    """The progress of a running job; empty for others."""
    progress = row["progress"]
    if row["state"] != "running" or not progress:
        return ""
    growing = work.is_growing(progress["stage"], progress.get("stages", {}))
    total = f"{progress['total']}{' known so far' if growing else ''}"
    left = "" if row["seconds_left"] is None else f", about {row['seconds_left']:.0f} s left"
    return f"{progress['stage']} {progress['done']} of {total}{left}"


@jobs.command("show")
@click.argument("job_id", metavar="JOB")
@answers()
def jobs_show(context: Context, job_id: str) -> Json:
    """One job: its progress, its documents and why some failed, its figures, trace and log."""
    work.end_orphans(context.ledger, context.settings.jobs)
    job = work.as_it_stands(context.ledger.job(job_id), context.ledger, context.settings.jobs)
    return work.report(job, context.ledger.job_items(job_id), context.store)


@jobs.command("cancel")
@click.argument("job_id", metavar="JOB")
@answers()
def jobs_cancel(context: Context, job_id: str) -> Json:
    """Cancel a job; what it has done and the published release stay."""
    job = work.cancel(job_id, context.ledger, context.settings.jobs)
    data = work.report(job, context.ledger.job_items(job_id), context.store)
    if job.state == "cancelling":  # it runs on another machine or in a container
        data["markdown"] += (
            f"\nIt was told to stop and does so within {2 * work.HEARTBEAT_SECONDS:.0f} s."
        )
    elif job.state != "cancelled":
        return envelopes.failure(
            RagError(
                f"job {job_id} ended before it could be cancelled: {job.state}",
                code="ended_first",
                **data,
            ),
            "",
            local=True,
        )
    return data


@jobs.command("retry")
@click.argument("job_id", metavar="[JOB]", required=False)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="All documents of the library that failed or were given up.",
)
@wait_option
@answers(namespace=True, own_trace=True)
def jobs_retry(context: Context, job_id: str | None, everything: bool, wait: float) -> Json:
    """Retry what a job left undone: its documents that failed, were given up, cancelled or never
    begun. Files that fail again as they are, are left out; --all takes them too.
    """
    from rag_platform.ingestion.job_start import start_retry, start_retry_all

    started_at = time.perf_counter()
    if bool(job_id) == everything:
        raise InputError("name one job, or give --all for every document that failed", code="usage")
    started = (
        start_retry(job_id, context.root, wait=wait)
        if job_id
        else start_retry_all(context.namespace, context.root, wait=wait)
    )
    return finish_job(context, started, started_at)


_log = logging.getLogger(__name__)


@click.command()
@click.option("--plan", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option(
    "--prove",
    "doc",
    metavar="DOC",
    help="Count what each store still has of a document, and remove nothing.",
)
@click.option("--version", metavar="VERSION", help="With --prove: of this version only.")
@answers(namespace=True, own_trace=True)
def gc(context: Context, plan: bool, doc: str | None, version: str | None) -> Json:
    """Remove unneeded data. That is what no document, release or draft of any library needs."""
    from rag_platform.releases.garbage_collection import collect, start_gc
    from rag_platform.releases.proofs.deletion_proof import prove

    if version and not doc:
        raise InputError("--version goes with --prove DOC", code="usage")
    if doc:
        with ExitStack() as opened:
            proof = prove(
                context.namespace,
                doc,
                context.root,
                version,
                partitions=_open_partitions(context, opened),
            )
            return fail_if(proof.hard and proof.total > 0, proof.data(), code="not_purged")
    if context.given_namespace:
        context.known_namespace()
    if plan:
        from rag_platform.assets.collecting import partition_keys  # which imports Dagster

        read_only = context.ledger.read_only
        # opening Dagster's storage writes to it
        can_open = context.store.home.is_dir() and not read_only
        uncounted = ["partitions of Dagster are not counted where nothing can be written"]
        with partition_keys(context.store) if can_open else nullcontext() as keys:
            planned = collect(context.root, partitions=keys, plan=True).data()
        return envelopes.envelope(planned, warnings=uncounted if read_only else ())
    job = wait_for_job(context, start_gc(context.root))
    return job_envelope(job, {**job.result, "job_id": job.job_id}, "gc_failed")


def _open_partitions(context: Context, opened: ExitStack) -> PartitionKeys | str:
    """Dagster's records of document versions, or why they cannot be opened."""
    from rag_platform.assets.collecting import partition_keys

    if context.ledger.read_only:
        return "Dagster's storage, which is opened by writing it"
    if not context.store.home.is_dir():
        return "Dagster's storage, which is not there yet"
    try:
        return opened.enter_context(partition_keys(context.store))
    except Exception as error:  # noqa: BLE001 (errors depend on the storage driver; the proof reports them)
        _log.warning("Dagster's storage cannot be opened", exc_info=True)
        message = str(error).splitlines()[0][:200]
        return f"Dagster's storage cannot be opened ({type(error).__name__}: {message})"


@click.command()
@answers(own_trace=True)
def doctor(context: Context) -> Json:
    """Check packages, weights, data root and config."""
    from rag_platform.cli.doctor import examine, find_differences
    from rag_platform.config.settings import Settings

    findings = [to_json(finding) for finding in examine(context.settings)]
    config = context.settings.model_dump(mode="json", exclude={"home", "strategies_dir"})
    places = context.places()
    lines = [f"{f['level']:<8} {f['subject']}: {f['message']}" for f in findings]
    lines += ["", *(f"{name}: {place}" for name, place in places.items()), ""]
    shipped = Settings(home=context.settings.home).model_dump(mode="json")
    if changed := find_differences(config, shipped):
        lines += ["settings that differ from the shipped ones:", json.dumps(changed, indent=1)]
    else:
        lines += ["Every setting is the shipped one."]
    lines += ["`rag doctor --json` lists all settings, `rag mcp doctor` tries the server."]
    data = {"markdown": "\n".join(lines), "findings": findings, "places": places, "config": config}
    if wrong := [f["subject"] for f in findings if f["level"] == "error"]:
        error = RagError(f"to be mended: {', '.join(wrong)}", code="unhealthy")
        return envelopes.failure(error, local=True, data=data)
    return data


# what `rag init` writes unless told to write all
_EDITED = ("settings.yaml", "gates.yaml", "strategies/*.yaml")


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--all", "everything", is_flag=True, help="Prompts, datasets and logging too.")
@answers(own_trace=True)
def init(context: Context, folder: Path | None, everything: bool) -> Json:
    """Write a config to edit: settings, gates and strategies. What is there already stays.

    FOLDER is by default RAG_CONFIG, else the user's config folder of the platform. A file that you
    delete there counts as the shipped one again.
    """
    target = (folder or config_dir()).expanduser().resolve()
    wanted = ("**/*.yaml",) if everything else _EDITED
    written, kept = [], []
    for source in sorted(path for pattern in wanted for path in SHIPPED.glob(pattern)):
        name = source.relative_to(SHIPPED).as_posix()
        path = target / name
        if path.exists():
            kept.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read_bytes())
        written.append(name)
    lines = [f"{target}", *(f"- wrote {name}" for name in written)]
    lines += [f"- kept {name}, which was there" for name in kept]
    if target != config_dir().resolve():
        lines.append(f"To use it: export RAG_CONFIG={target}")
    return {"markdown": "\n".join(lines), "folder": str(target), "written": written, "kept": kept}


# --- ledger and servers ---------------------------------------------------------------------------


@click.group()
def ledger() -> None:
    """The ledger: a file of the data root, or a PostgreSQL database."""


@ledger.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@answers()
def ledger_copy(context: Context, source: str, target: str) -> Json:
    """Copy the ledger FROM one database TO another, empty one, and compare every table.

    Each is a file, or postgresql://USER@HOST:PORT/DATABASE. Leave the password to PGPASSWORD or
    ~/.pgpass: others see what stands on a command line.
    """
    from rag_platform.ledger.copying import copy_ledger
    from rag_platform.ledger.ledger import open_url

    with closing(open_url(_url(source))) as old, closing(open_url(_url(target))) as new:
        copied = copy_ledger(old, new)
        names = {"from": old.name, "to": new.name}
    lines = [f"{part.table:<12} {part.rows:>8} rows  {part.sha256[:12]}" for part in copied]
    lines += [
        "",
        f"{names['to']} holds all of {names['from']}, compared row by row.",
        "A backup needs no more. To move there, name it as `ledger` in settings.yaml (RAG_LEDGER)"
        " of every process, then move the old one away, so that none goes on reading it.",
    ]
    return {"markdown": "\n".join(lines), "tables": [to_json(part) for part in copied], **names}


def _url(place: str) -> str:
    """The URL of a database; a path becomes that of an SQLite file."""
    return place if "://" in place else f"sqlite:///{Path(place).absolute()}"


@click.group()
def servers() -> None:
    """The machines that read what others publish."""


@servers.command("list")
@answers()
def servers_list(context: Context) -> Json:
    """Show every registered server: which releases it reads, when it was last seen, and how many
    hard deletions it has not carried out.
    """
    from rag_platform.api.status import servers_data
    from rag_platform.contract.markdown_views import server_line

    rows = servers_data(context.settings, context.ledger)
    lines = [server_line(row) for row in rows]
    return {"markdown": "\n".join(lines) or "no server is registered", "servers": rows}


@servers.command("remove")
@click.argument("server")
@answers()
def servers_remove(context: Context, server: str) -> Json:
    """Forget a SERVER whose data root is gone: no deletion waits for it any more.

    One that runs registers again by itself.
    """
    found = context.ledger.remove_server(server)
    return {
        "markdown": f"{found.server_id} is forgotten; what its disk holds of deleted documents"
        " is nobody's any more",
        "server": found.server_id,
    }
