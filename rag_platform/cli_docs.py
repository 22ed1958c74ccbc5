"""Commands about documents: lists, one document, its versions."""

from __future__ import annotations

import click

from rag_platform.cli_context import Context, answers, namespace_option, pairs
from rag_platform.ir import Json
from rag_platform.retrieval import responses


@click.group()
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
    data = list_documents(context.library, context.namespace(namespace), group_by=grouped, filter=pairs(filters, "--filter"), limit=limit,
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
