"""Commands that edit the chunks of a document by hand in a draft, and publish it with a release."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from rag_platform.api import envelopes
from rag_platform.cli.output import Context, answers, complete_documents, job_envelope, wait_for_job
from rag_platform.errors import InputError
from rag_platform.ir import Json
from rag_platform.text.wording import pluralise


@click.group()
def drafts() -> None:
    """Edit the chunks of a document by hand. Readers see the edits once they are published."""


def _command(
    name: str, *arguments: Callable[..., Any], own_trace: bool = False
) -> Callable[[Callable[..., Json]], click.Command]:
    """Decorate a command of the group; all but `list` take a document."""
    document = (
        []
        if name == "list"
        else [click.argument("doc_id", metavar="DOC", shell_complete=complete_documents)]
    )

    def decorate(function: Callable[..., Json]) -> click.Command:
        command: Callable[..., Any] = answers(namespace=True, own_trace=own_trace)(function)
        for add in reversed((*document, *arguments)):
            command = add(command)
        return drafts.command(name)(command)

    return decorate


_chunk = click.argument("chunk_id", metavar="CHUNK")


def _drafts(context: Context) -> Any:
    from rag_platform.drafts.lifecycle import Drafts

    name = context.namespace
    return Drafts(name, context.root.workspace(name, context.root.bound_strategy(name)))


def _show(opened: Any, *, with_chunks: bool = False) -> Json:
    """The envelope of a draft."""
    from rag_platform.drafts.reports import show_data

    data = show_data(opened, with_chunks=with_chunks)
    warnings = (
        [f"{pluralise(len(data['conflicts']), 'conflict')} with {data['live_version']}"]
        if data["conflicts"] and not with_chunks
        else []
    )
    return envelopes.envelope(data, "", warnings)


def _add(context: Context, doc_id: str, **operation: Any) -> Json:
    """Add an operation to a draft, and show it."""
    return _show(_drafts(context).add(doc_id, operation))


# --- looking ------------------------------------------------------------------------------------


@_command("list")
def drafts_list(context: Context) -> Json:
    """Drafts of a library, with their state and conflicts."""
    from rag_platform.drafts.reports import list_data

    return list_data(_drafts(context))


@_command("show")
def drafts_show(context: Context, doc_id: str) -> Json:
    """Operations, conflicts and chunks of a draft, or the chunks of a document without one."""
    return _show(_drafts(context).open(doc_id), with_chunks=True)


@_command("preview")
def drafts_preview(context: Context, doc_id: str) -> Json:
    """What publishing a draft would change: chunks, vectors to compute, conflicts."""
    from rag_platform.drafts.reports import preview_data

    data = preview_data(_drafts(context).open(doc_id))
    return envelopes.envelope(data, "", data.pop("warnings"))


# --- editing ------------------------------------------------------------------------------------


@_command(
    "edit",
    _chunk,
    click.option("--text", required=True, help="The new text; `-` reads standard input."),
)
def drafts_edit(context: Context, doc_id: str, chunk_id: str, text: str) -> Json:
    """Replace the text of a chunk."""
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").rstrip("\n")
    return _add(context, doc_id, op="edit_text", chunk_id=chunk_id, text=text)


@_command("split", _chunk, click.argument("offset", type=int))
def drafts_split(context: Context, doc_id: str, chunk_id: str, offset: int) -> Json:
    """Split a chunk in two, the second beginning at the character OFFSET."""
    return _add(context, doc_id, op="split_at", chunk_id=chunk_id, offset=offset)


@_command("merge", _chunk)
def drafts_merge(context: Context, doc_id: str, chunk_id: str) -> Json:
    """Merge a chunk with the next one."""
    return _add(context, doc_id, op="merge_with_next", chunk_id=chunk_id)


@_command(
    "move",
    _chunk,
    click.option("--before", metavar="CHUNK", help="Move it before this chunk."),
    click.option("--after", metavar="CHUNK", help="Move it behind this chunk."),
)
def drafts_move(
    context: Context, doc_id: str, chunk_id: str, before: str | None, after: str | None
) -> Json:
    """Move a chunk within its document; a parent takes its children along."""
    if bool(before) == bool(after):
        raise InputError("give one of --before CHUNK and --after CHUNK", code="usage")
    operation = "move_before" if before else "move_after"
    return _add(context, doc_id, op=operation, chunk_id=chunk_id, target=before or after)


@_command("reparent", _chunk, click.argument("parent_id", metavar="PARENT"))
def drafts_reparent(context: Context, doc_id: str, chunk_id: str, parent_id: str) -> Json:
    """Give a child chunk another parent."""
    return _add(context, doc_id, op="reparent", chunk_id=chunk_id, parent_id=parent_id)


@_command("disable", _chunk)
def drafts_disable(context: Context, doc_id: str, chunk_id: str) -> Json:
    """Leave a chunk out of releases; the draft keeps it."""
    return _add(context, doc_id, op="disable", chunk_id=chunk_id)


@_command("enable", _chunk)
def drafts_enable(context: Context, doc_id: str, chunk_id: str) -> Json:
    """Include a disabled chunk again."""
    return _add(context, doc_id, op="enable", chunk_id=chunk_id)


@_command("undo")
def drafts_undo(context: Context, doc_id: str) -> Json:
    """Undo the last operation."""
    opened, _ = _drafts(context).undo(doc_id)
    return _show(opened)


@_command("discard")
def drafts_discard(context: Context, doc_id: str) -> Json:
    """Discard what is not published of a draft, and its conflicts."""
    return _show(_drafts(context).discard(doc_id))


@_command("rebase")
def drafts_rebase(context: Context, doc_id: str) -> Json:
    """Base a draft on the live version; edits that do not apply to it become conflicts."""
    return _show(_drafts(context).rebase(doc_id))


# --- publishing ---------------------------------------------------------------------------------


@_command(
    "publish",
    click.option(
        "--drop-conflicts",
        is_flag=True,
        help="Leave out the edits that do not apply to the live version.",
    ),
    own_trace=True,
)
def drafts_publish(context: Context, doc_id: str, drop_conflicts: bool) -> Json:
    """Publish a release with the document as its draft has it."""
    began = time.perf_counter()
    started = _drafts(context).start_publish(doc_id, drop_conflicts=drop_conflicts)
    return _finish(context, started, began)


@_command("revert", own_trace=True)
def drafts_revert(context: Context, doc_id: str) -> Json:
    """Publish a release with the document as it was chunked."""
    began = time.perf_counter()
    return _finish(context, _drafts(context).start_revert(doc_id), began)


def _finish(context: Context, started: Any, began: float) -> Json:
    """Wait for the job of a publication, and return its envelope."""
    from rag_platform.drafts.reports import published_data

    job = wait_for_job(context, started)
    data = published_data(job, context.root, time.perf_counter() - began)
    return job_envelope(job, data, "draft_failed", data["warnings"])
