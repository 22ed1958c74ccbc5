"""Commands about documents: lists, one document, its versions, what it carries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from rag_platform.api import envelopes
from rag_platform.cli.language import say, say_lines
from rag_platform.cli.output import (
    Context,
    answers,
    complete_documents,
    job_envelope,
    make_visible,
    parse_pairs,
    wait_for_job,
)
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import InputError, NotFoundError, RagError
from rag_platform.ir import Document, Json
from rag_platform.messages import terminal_language
from rag_platform.text.wording import pluralise

if TYPE_CHECKING:
    from rag_platform.evaluation.cases import EvalCase

_document_argument = click.argument("doc", metavar="DOC", shell_complete=complete_documents)
_version_option = click.option(
    "--version", "version_id", help="A version_id that the published or a kept release holds."
)


@click.group()
def docs() -> None:
    """Documents of a library."""


@docs.command("list")
@click.option("--group-by", type=click.Choice(["tags", "source", "none"]), default="none")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="K=V",
    help="tags, categories, source, status, words, since or until; repeatable.",
)
@click.option("--limit", type=click.IntRange(1, 1000), default=100)
@click.option("--cursor", help="Continue where the last page ended.")
@click.option(
    "--all", "include_deleted", is_flag=True, help="Include retired and deleted documents."
)
@answers(namespace=True, reports=False)
def docs_list(
    context: Context,
    group_by: str,
    filters: tuple[str, ...],
    limit: int,
    cursor: str | None,
    include_deleted: bool,
) -> Mapping[str, Any]:
    """Documents of a library."""
    from rag_platform.api.documents import list_documents
    from rag_platform.contract.markdown_views import documents_markdown

    grouped, name = None if group_by == "none" else group_by, context.namespace
    wanted = parse_pairs(filters, "--filter")
    data = list_documents(
        context.library,
        name,
        group_by=grouped,
        filter=wanted,
        limit=limit,
        cursor=cursor,
        include_deleted=include_deleted,
    )
    if not context.json_output:
        shown = documents_markdown(data, terminal_language(), filtered=bool(wanted))
        data["markdown"] = f"{shown}\n\n{context.name_others()}".rstrip()
    return data


@docs.command("show")
@_document_argument
@_version_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "sections", "chunks", "outline"]),
    default="outline",
)
@click.option(
    "--max-chars", type=click.IntRange(1), help="Cut the text after this many characters."
)
@click.option(
    "--dropped",
    is_flag=True,
    help=(
        "Show the text that is in no chunk, with its place and reason: repeated headers, hidden"
        " text, noise."
    ),
)
@answers(namespace=True, reports=False)
def docs_show(
    context: Context,
    doc: str,
    version_id: str | None,
    form: str,
    max_chars: int | None,
    dropped: bool,
) -> Mapping[str, Any]:
    """One document: its outline, sections, chunks or whole text, or what was dropped of it."""
    from rag_platform.api.documents import get_document, list_dropped
    from rag_platform.contract.markdown_views import dropped_markdown, part_markdown

    name, doc_id = context.namespace, _doc_id(context, doc)
    if dropped:
        found = list_dropped(context.library, name, doc_id, version_id=version_id)
        if not context.json_output:
            found["markdown"] = dropped_markdown(found, terminal_language())
        return found
    data = get_document(
        context.library, name, doc_id, version_id=version_id, format=form, max_chars=max_chars
    )
    if not context.json_output and form != "md":
        data["markdown"] = part_markdown(data["document"], terminal_language())
    return envelopes.envelope(data, "", data.pop("warnings", ()))


@docs.command("summary")
@_document_argument
@_version_option
@click.option(
    "--style",
    type=click.Choice(["short", "bullet", "detailed"]),
    default="short",
    help="Length and form.",
)
@answers(namespace=True, reports=False)
def docs_summary(context: Context, doc: str, version_id: str | None, style: str) -> Json:
    """Summarise a document; without a language model in its own sentences."""
    from rag_platform.api.summaries import summarize_document

    name = context.namespace
    data = summarize_document(
        context.library, name, _doc_id(context, doc), version_id=version_id, style=style
    )
    return envelopes.envelope(data, "", data.pop("warnings", ()))


@docs.command("history")
@_document_argument
@answers(namespace=True)
def docs_history(context: Context, doc: str) -> Json:
    """Every version of a document: when it came, its state, how its chunks drifted, and the
    releases that contain it.
    """
    from rag_platform.releases.version_history import history

    document = _find_document(context, doc)
    return history(document, store=context.store, ledger=context.ledger)


@docs.command("diff")
@_document_argument
@click.argument("before", metavar="[V1]", required=False)
@click.argument("after", metavar="[V2]", required=False)
@answers(namespace=True)
def docs_diff(context: Context, doc: str, before: str | None, after: str | None) -> Json:
    """Sections and chunks added, removed and changed between two versions, by default the live one
    and the one before.
    """
    from rag_platform.releases.version_history import difference

    document = _find_document(context, doc)
    bound = context.ledger.namespaces().get(document.namespace)
    strategy = load_strategy(context.settings, bound)
    return difference(
        document, before, after, strategy=strategy, store=context.store, ledger=context.ledger
    )


@docs.command("live")
@_document_argument
@click.argument("version", metavar="[VERSION]", required=False)
@click.option("--unpin", is_flag=True, help="Let the document follow its source again.")
@answers(namespace=True, own_trace=True)
def docs_live(context: Context, doc: str, version: str | None, unpin: bool) -> Json:
    """Make a version live, and keep it whatever the source has until --unpin; a release follows."""
    from rag_platform.releases.release_store import current
    from rag_platform.releases.revising import live_data, start_live

    if unpin == bool(version):
        raise InputError("name the VERSION to pin, or give --unpin", code="usage")
    document = _find_document(context, doc)
    started = start_live(document, version, context.root.workspace(document.namespace))
    job = wait_for_job(context, started)
    changed = context.ledger.document(document.namespace, document.doc_id)
    data = live_data(job, changed, current(context.store, document.namespace))
    return job_envelope(job, data, "live_failed")


@docs.command("edit")
@_document_argument
@click.option(
    "--title",
    help="A title that stays when the file changes; an empty one restores the file's own.",
)
@click.option("--tag", "tags", multiple=True, help="Add a tag; repeatable.")
@click.option("--untag", multiple=True, help="Remove a tag; repeatable.")
@click.option("--category", "categories", multiple=True, help="Add a category; repeatable.")
@click.option("--uncategory", multiple=True, help="Remove a category; repeatable.")
@click.option("--meta", "metadata", multiple=True, metavar="K=V", help="Set metadata; repeatable.")
@click.option("--unmeta", multiple=True, metavar="K", help="Remove metadata; repeatable.")
@answers(namespace=True, own_trace=True)
def docs_edit(context: Context, doc: str, metadata: tuple[str, ...], **changes: Any) -> Json:
    """Change the title, tags, categories and metadata of a document; a release follows."""
    from rag_platform.releases.revising import Edits, edit_data, start_edit

    edits = Edits(metadata=parse_pairs(metadata, "--meta"), **changes)
    if edits == Edits():
        raise InputError(
            "name what to change: --title, --tag, --untag, --category, --uncategory, --meta,"
            " --unmeta",
            code="usage",
        )
    document = _find_document(context, doc)
    started = start_edit(document, edits, context.root.workspace(document.namespace))
    job = wait_for_job(context, started) if started else None
    data = edit_data(context.ledger.document(document.namespace, document.doc_id), job)
    if job is None:
        return data
    return job_envelope(job, data, "edit_failed")


@docs.command("delete")
@_document_argument
@click.option("--version", metavar="VERSION", help="Only this version, not the whole document.")
@click.option(
    "--mode",
    type=click.Choice(["soft", "hard"]),
    default="soft",
    help="soft keeps the data until retention ends, hard purges it.",
)
@click.option(
    "--force", is_flag=True, help="With --mode hard: drop pinned releases that contain it, too."
)
@click.option(
    "--yes", is_flag=True, help="Do not ask; required without a terminal and with --json."
)
@answers(namespace=True, own_trace=True)
def docs_delete(
    context: Context, doc: str, version: str | None, mode: str, force: bool, yes: bool
) -> Json:
    """Hide a document or a version from every reader at once, and publish a release without it,
    after showing what goes and asking.
    """
    from rag_platform.evaluation.expectations import drop_for_document
    from rag_platform.releases.deletion import delete_data, plan_delete, start_delete
    from rag_platform.releases.servers import wait_for_servers

    named = (context.namespace, doc, context.root, version)
    plan = plan_delete(*named, mode=mode, force=force)
    if not yes:
        needed = f"`rag docs delete {doc} --namespace {context.namespace}` needs --yes"
        _confirm(plan.data(), needed, ask=not context.json_output)
        plan = plan_delete(*named, mode=mode, force=force)  # as it is after the question
    dropped: list[EvalCase] = []
    started = start_delete(
        plan,
        context.root,
        lambda uri: dropped.extend(drop_for_document(context.store, context.namespace, uri)),
    )
    every = (*started.old_names, started)
    ended = [wait_for_job(context, it) for it in every]
    job = next((it for it in ended if it.state != "done"), ended[-1])
    waiting = (
        wait_for_servers(started.tombstone.sequence, context.settings, context.ledger)
        if mode == "hard" and job.state == "done"
        else []
    )
    data = delete_data(job, store=context.store, waiting=waiting)
    if started.old_names and job.state == "done":
        names = ", ".join(old.document.source_uri for old in started.old_names)
        data["markdown"] += f"\nDeleted with it: {names}."
    if dropped:
        data["expectations_dropped"] = [case.case_id for case in dropped]
        data["markdown"] += f"\n{pluralise(len(dropped), 'expectation')} of it dropped."
    return job_envelope(job, data, "delete_failed")


def _confirm(planned: Json, needs: str, *, ask: bool) -> None:
    """Show what will be deleted and ask for confirmation. Raises InputError `needs_yes` without a
    terminal to ask on, RagError `not_confirmed` if the user declines.
    """
    if not (ask and sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError(
            f"{planned['markdown']}\nNothing was done: {needs}, for there is nobody to ask",
            code="needs_yes",
            plan=planned,
        )
    click.echo(say_lines(make_visible(planned)["markdown"]), err=True)
    if not click.confirm(say("Delete it?"), err=True):
        raise RagError("nothing was deleted", code="not_confirmed")


def _doc_id(context: Context, doc: str) -> str:
    """The doc_id of a document by any of its names; a name that the ledger does not know is
    returned unchanged, and looked up in the release.
    """
    if context.store.has_ledger():
        with suppress(NotFoundError):
            return _find_document(context, doc).doc_id
    return doc


def _find_document(context: Context, doc: str) -> Document:
    from rag_platform.documents.lookup import find_document

    return find_document(context.ledger, context.namespace, doc)
