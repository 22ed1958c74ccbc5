"""Commands about drafts: a document's chunks edited by hand, looked at, and published with a
release.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import click

from rag_platform.api import envelopes
from rag_platform.cli.output import Context, answers, awaited, namespace_option
from rag_platform.errors import InputError, RagError
from rag_platform.ir import Json
from rag_platform.ledger.schema import Job


@click.group()
def drafts() -> None:
    """Chunks of a document edited by hand; readers see them once they are published."""


def _drafts(context: Context, namespace: str | None) -> Any:
    from rag_platform.drafts.lifecycle import Drafts

    name = context.namespace(namespace)
    return Drafts(name, context.root.workspace(name, context.root.bound_strategy(name)))


def _shown(opened: Any, *, with_chunks: bool = False) -> Json:
    from rag_platform.drafts.reports import show_data

    data = show_data(opened, with_chunks=with_chunks)
    warnings = (
        [f"{len(data['conflicts'])} edits conflict with {data['live_version']}"]
        if data["conflicts"] and not with_chunks
        else []
    )
    return envelopes.envelope(data, "", warnings)


def _added(context: Context, namespace: str | None, doc_id: str, **operation: Any) -> Json:
    """The envelope of a draft after one more operation."""
    return _shown(_drafts(context, namespace).add(doc_id, operation))


# --- looking ------------------------------------------------------------------------------------


@drafts.command("list")
@namespace_option
@answers()
def drafts_list(context: Context, namespace: str | None) -> Json:
    """Drafts of a namespace, with their state and conflicts."""
    from rag_platform.drafts.reports import list_data

    return envelopes.envelope(list_data(_drafts(context, namespace)), "")


@drafts.command("show")
@click.argument("doc_id", metavar="DOC")
@namespace_option
@answers()
def drafts_show(context: Context, doc_id: str, namespace: str | None) -> Json:
    """Operations, conflicts and chunks of a draft; for a document without one its chunks."""
    return _shown(_drafts(context, namespace).open(doc_id), with_chunks=True)


@drafts.command("preview")
@click.argument("doc_id", metavar="DOC")
@namespace_option
@answers()
def drafts_preview(context: Context, doc_id: str, namespace: str | None) -> Json:
    """What publishing a draft would change: chunks, vectors to compute, conflicts."""
    from rag_platform.drafts.reports import preview_data

    data = preview_data(_drafts(context, namespace).open(doc_id))
    return envelopes.envelope(data, "", data.pop("warnings"))


# --- editing ------------------------------------------------------------------------------------


@drafts.command("edit")
@click.argument("doc_id", metavar="DOC")
@click.argument("chunk_id", metavar="CHUNK")
@click.option(
    "--text", required=True, help="What the chunk says instead; `-` reads standard input."
)
@namespace_option
@answers()
def drafts_edit(
    context: Context, doc_id: str, chunk_id: str, text: str, namespace: str | None
) -> Json:
    """Give a chunk another text."""
    said = (
        sys.stdin.buffer.read().decode("utf-8", "surrogateescape").rstrip("\n")
        if text == "-"
        else text
    )
    return _added(context, namespace, doc_id, op="edit_text", chunk_id=chunk_id, text=said)


@drafts.command("split")
@click.argument("doc_id", metavar="DOC")
@click.argument("chunk_id", metavar="CHUNK")
@click.argument("offset", type=int)
@namespace_option
@answers()
def drafts_split(
    context: Context, doc_id: str, chunk_id: str, offset: int, namespace: str | None
) -> Json:
    """Make two chunks of one, the second beginning at a character."""
    return _added(context, namespace, doc_id, op="split_at", chunk_id=chunk_id, offset=offset)


@drafts.command("merge")
@click.argument("doc_id", metavar="DOC")
@click.argument("chunk_id", metavar="CHUNK")
@namespace_option
@answers()
def drafts_merge(context: Context, doc_id: str, chunk_id: str, namespace: str | None) -> Json:
    """Make one chunk of a chunk and the next one."""
    return _added(context, namespace, doc_id, op="merge_with_next", chunk_id=chunk_id)


@drafts.command("move")
@click.argument("doc_id", metavar="DOC")
@click.argument("chunk_id", metavar="CHUNK")
@click.option("--before", metavar="CHUNK", help="The chunk to stand before.")
@click.option("--after", metavar="CHUNK", help="The chunk to stand behind.")
@namespace_option
@answers()
def drafts_move(
    context: Context,
    doc_id: str,
    chunk_id: str,
    before: str | None,
    after: str | None,
    namespace: str | None,
) -> Json:
    """Put a chunk elsewhere in the order of its document; a parent takes its children along."""
    if bool(before) == bool(after):
        raise InputError("give one of --before CHUNK and --after CHUNK", code="usage")
    return _added(
        context,
        namespace,
        doc_id,
        op="move_before" if before else "move_after",
        chunk_id=chunk_id,
        target=before or after,
    )


@drafts.command("reparent")
@click.argument("doc_id", metavar="DOC")
@click.argument("chunk_id", metavar="CHUNK")
@click.argument("parent_id", metavar="PARENT")
@namespace_option
@answers()
def drafts_reparent(
    context: Context, doc_id: str, chunk_id: str, parent_id: str, namespace: str | None
) -> Json:
    """Give a child another parent chunk."""
    return _added(context, namespace, doc_id, op="reparent", chunk_id=chunk_id, parent_id=parent_id)


@drafts.command("disable")
@click.argument("doc_id", metavar="DOC")
@click.argument("chunk_id", metavar="CHUNK")
@namespace_option
@answers()
def drafts_disable(context: Context, doc_id: str, chunk_id: str, namespace: str | None) -> Json:
    """Leave a chunk out of releases; the draft keeps it."""
    return _added(context, namespace, doc_id, op="disable", chunk_id=chunk_id)


@drafts.command("enable")
@click.argument("doc_id", metavar="DOC")
@click.argument("chunk_id", metavar="CHUNK")
@namespace_option
@answers()
def drafts_enable(context: Context, doc_id: str, chunk_id: str, namespace: str | None) -> Json:
    """Take a disabled chunk in again."""
    return _added(context, namespace, doc_id, op="enable", chunk_id=chunk_id)


@drafts.command("undo")
@click.argument("doc_id", metavar="DOC")
@namespace_option
@answers()
def drafts_undo(context: Context, doc_id: str, namespace: str | None) -> Json:
    """Take the last operation back."""
    opened, _ = _drafts(context, namespace).undo(doc_id)
    return _shown(opened)


@drafts.command("discard")
@click.argument("doc_id", metavar="DOC")
@namespace_option
@answers()
def drafts_discard(context: Context, doc_id: str, namespace: str | None) -> Json:
    """Forget what is not published of a draft, and its conflicts."""
    return _shown(_drafts(context, namespace).discard(doc_id))


@drafts.command("rebase")
@click.argument("doc_id", metavar="DOC")
@namespace_option
@answers()
def drafts_rebase(context: Context, doc_id: str, namespace: str | None) -> Json:
    """Make a draft one over the live version; edits that it does not take become conflicts."""
    return _shown(_drafts(context, namespace).rebase(doc_id))


# --- publishing ---------------------------------------------------------------------------------


@drafts.command("publish")
@click.argument("doc_id", metavar="DOC")
@click.option(
    "--drop-conflicts",
    is_flag=True,
    help="Leave out the edits that do not apply to the live version.",
)
@namespace_option
@answers(own_trace=True)
def drafts_publish(
    context: Context, doc_id: str, drop_conflicts: bool, namespace: str | None
) -> Json:
    """Publish a release in which the document reads as its draft does."""
    began = time.perf_counter()
    job, process = _drafts(context, namespace).start_publish(doc_id, drop_conflicts=drop_conflicts)
    return _ended(context, job, process, began)


@drafts.command("revert")
@click.argument("doc_id", metavar="DOC")
@namespace_option
@answers(own_trace=True)
def drafts_revert(context: Context, doc_id: str, namespace: str | None) -> Json:
    """Publish a release in which the document reads as it was cut."""
    began = time.perf_counter()
    job, process = _drafts(context, namespace).start_revert(doc_id)
    return _ended(context, job, process, began)


def _ended(context: Context, job: Job, process: subprocess.Popen[bytes], began: float) -> Json:
    """The envelope of a publication, when its job has ended."""
    from rag_platform.drafts.reports import published_data

    job = awaited(context, job, process)
    data = published_data(job, context.root, time.perf_counter() - began)
    if job.state != "done":
        return envelopes.failure(
            RagError(job.reason, code="draft_failed", **data), job.trace_id, local=True
        )
    return envelopes.envelope(data, job.trace_id, data["warnings"])
