"""Documents, their versions and chunks, and deletion."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Form, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from rag_platform import ir
from rag_platform.api import documents as listing
from rag_platform.api import writing
from rag_platform.api.cursors import make_cursor, read_cursor
from rag_platform.api.document_views import chunk_part, section_part, shown_text
from rag_platform.api.envelopes import fill_shape, without_paths
from rag_platform.api.writing import open_root
from rag_platform.config.strategies import load_strategy
from rag_platform.contract.schema import (
    DeletionData,
    DocumentData,
    DocumentsData,
    DroppedData,
)
from rag_platform.contract.traces import SourceImage
from rag_platform.contract.upkeep_shapes import (
    ChunkDetail,
    ChunksData,
    DeletionProof,
    DocumentDetail,
    VersionDiff,
)
from rag_platform.documents.metadata import with_file_metadata
from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.expectations import drop_for_document
from rag_platform.retrieval.hydration import list_media_texts
from rag_platform.retrieval.library import Lease, Library
from rag_platform.storage.store import Store, read_records
from rag_platform.web.dependencies import ApiView, MayAdminister, PageView, PathView, View
from rag_platform.web.first_page import FormFields
from rag_platform.web.rendering import link

api = APIRouter(tags=["documents"])
pages = APIRouter()
DocId = Annotated[str, Path(max_length=300, description="As lists of documents give it.")]
VersionId = Annotated[str | None, Query(max_length=400, description="Default: the live one.")]
Cursor = Annotated[
    str | None, Query(max_length=4000, description="next_cursor of the page before.")
]
Limit = Annotated[int, Query(ge=1, le=200)]
Name = Annotated[str, Query(max_length=300)]


class DocumentFilter(BaseModel):
    """Which documents are listed, and how."""

    group_by: Literal["tags", "categories", "source"] | None = None
    tags: list[Annotated[str, Field(max_length=200)]] = Field(default=[], max_length=50)
    categories: list[Annotated[str, Field(max_length=200)]] = Field(default=[], max_length=50)
    source: list[Annotated[str, Field(max_length=300)]] = Field(default=[], max_length=50)
    status: list[Literal["active", "pending", "failed", "retired", "deleted"]] = Field(
        default=[], max_length=5
    )
    words: str = Field(default="", max_length=300, description="In title, name or source_uri.")
    since: str = Field(default="", max_length=30, description="Changed on this day or later.")
    until: str = Field(default="", max_length=30, description="Changed on this day or earlier.")
    gone: bool = Field(default=False, description="Retired and deleted ones too.")
    limit: int = Field(default=50, ge=1, le=200)
    cursor: str | None = Field(default=None, max_length=4000)


@api.get("/documents")
def list_documents(view: ApiView, where: Annotated[DocumentFilter, Query()]) -> DocumentsData:
    """One page of the documents of a library, by source_uri or in groups."""
    given = where.model_dump(include=set(listing.FILTER_KEYS))
    return listing.list_documents(
        view.library,
        view.namespace,
        group_by=where.group_by,
        filter={key: value for key, value in given.items() if value},
        limit=where.limit,
        cursor=where.cursor,
        include_deleted=where.gone,
    )


@api.get("/documents/{doc_id}")
def get_document(view: ApiView, doc_id: DocId) -> DocumentDetail:
    """A document with its versions and the outline of the published one."""
    from rag_platform.releases.version_history import history

    with listing.open_with_published(view.library, view.namespace) as (ledger, published):
        document = ledger.document(view.namespace, doc_id)
        row = ledger.document_row(view.namespace, doc_id, published)
        recorded = history(document, store=view.library.store, ledger=ledger)
        live = ledger.version(document.live_version) if document.live_version else None
    shown = with_file_metadata(document, live) if live else document
    data = fill_shape(
        DocumentDetail,
        shown,
        status=row.status if row else "",
        problem=without_paths(row.problem) if row else "",
        versions=without_paths(recorded["versions"]),
        release_id="",
        sections=[],
        chunks=0,
        unread="",
    )
    try:
        with view.library.lease(view.namespace) as lease:
            version_id, catalog = _find_version(view.library, lease, doc_id), lease.release.catalog
            counts = catalog.section_counts(version_id)
            data["release_id"] = lease.release_id
            data["sections"] = [section_part(it, counts) for it in catalog.sections(doc_id)]
            data["chunks"] = catalog.chunk_counts([version_id])[version_id]
    except NotFoundError as error:
        data["unread"] = error.message
    return data


def _find_version(library: Library, lease: Lease, doc_id: str) -> str:
    """The version_id of a document in a release. Raises NotFoundError."""
    document = lease.release.catalog.document(doc_id)
    version_id = document.live_version if document else None
    if version_id is None or library.hidden_names(lease) & {doc_id, version_id}:
        raise NotFoundError(
            f"release {lease.release_id} shows no document {doc_id[:80]!r}: it failed, waits for a"
            " release, or was deleted",
            code="not_published",
        )
    return version_id


@api.get("/documents/{doc_id}/text")
def get_text(
    view: ApiView,
    doc_id: DocId,
    version_id: VersionId = None,
    max_chars: Annotated[int, Query(ge=1, le=200_000)] = 20_000,
    cursor: Cursor = None,
) -> DocumentData:
    """The text of a document as Markdown, cut after `max_chars` characters."""
    return listing.get_document(
        view.library,
        view.namespace,
        doc_id,
        version_id=version_id,
        max_chars=max_chars,
        selection=listing.Selection(cursor),
    )


@api.get("/documents/{doc_id}/chunks")
def list_chunks(
    view: ApiView,
    doc_id: DocId,
    section_id: Name = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ChunksData:
    """One page of a document's chunks, or of those of a section."""
    with view.library.lease(view.namespace) as lease:
        version_id, catalog = _find_version(view.library, lease, doc_id), lease.release.catalog
        begin = 0
        if cursor is not None:
            cursor_version, begin = read_cursor(cursor, (str, int))
            if cursor_version != version_id or not 0 <= begin < 2**31:
                raise InputError(
                    f"the cursor belongs to version {cursor_version[:80]}; begin again without it",
                    code="bad_cursor",
                )
        if section_id:
            total = catalog.section_counts(version_id).get(section_id, 0)
        else:
            total = catalog.chunk_counts([version_id])[version_id]
        chunks = catalog.chunk_page(version_id, section_id, begin, limit)
        end = begin + len(chunks)
        return {
            "namespace": view.namespace,
            "doc_id": doc_id,
            "version_id": version_id,
            "release_id": lease.release_id,
            "chunks": [chunk_part(chunk, shown_text(chunk, catalog)) for chunk in chunks],
            "total": total,
            "next_cursor": make_cursor(version_id, end) if end < total else None,
        }


@api.get("/documents/{doc_id}/dropped")
def list_dropped(view: ApiView, doc_id: DocId, version_id: VersionId = None) -> DroppedData:
    """The text of a document that is in no chunk, with its place and reason."""
    return listing.list_dropped(view.library, view.namespace, doc_id, version_id=version_id)


@api.get("/documents/{doc_id}/diff")
def compare_versions(
    view: ApiView,
    doc_id: DocId,
    before: VersionId = None,
    after: VersionId = None,
) -> VersionDiff:
    """The differences between two versions, by default the live one and its predecessor."""
    from rag_platform.releases.version_history import difference

    with open_root(view.settings) as root:
        document = root.ledger.document(view.namespace, doc_id)
        strategy = load_strategy(view.settings, root.bound_strategy(view.namespace))
        found = difference(
            document, before, after, strategy=strategy, store=root.store, ledger=root.ledger
        )
    return cast(VersionDiff, found)


@api.get("/documents/{doc_id}/proof", dependencies=[MayAdminister])
def get_deletion_proof(view: ApiView, doc_id: DocId) -> DeletionProof:
    """What is still stored of a document, deleted or not."""
    from rag_platform.releases.proofs.deletion_proof import prove

    command = f"`rag gc --prove {doc_id} --namespace {view.namespace}`"
    with open_root(view.settings) as root:
        partitions = f"Dagster's partitions and events: {command} looks into them"
        found = prove(view.namespace, doc_id, root, partitions=partitions)
    return cast(DeletionProof, without_paths(found.data()))


@api.get("/chunks/{chunk_id}/texts")
def get_chunk_texts(view: ApiView, chunk_id: Annotated[str, Path(max_length=100)]) -> ChunkDetail:
    """A chunk with its place and its retrieval texts."""
    with view.library.lease(view.namespace) as lease:
        catalog = lease.release.catalog
        row = catalog.rows([chunk_id]).get(chunk_id)
        if row is None or chunk_id in view.library.hidden_chunks(lease):
            raise NotFoundError(
                f"no chunk {chunk_id[:80]!r} in release {lease.release_id} of {view.namespace!r};"
                " its document may have changed since",
                code="unknown_chunk",
            )
        chunk = row.chunk
        version = catalog.version(chunk.version_id)
        texts = _read_view(lease, view.library.store, version, chunk_id) if version else None
        texts = texts or ir.View(chunk_id, "", "", "")
        around = [it.chunk_id for it in catalog.neighbours(chunk_id, 1, 1)]
        place = around.index(chunk_id)
        return fill_shape(
            ChunkDetail,
            chunk,
            namespace=view.namespace,
            release_id=lease.release_id,
            doc_title=row.doc_title,
            source_uri=row.source_uri,
            content_type=row.content_type,
            status=row.status,
            chunk=chunk_part(chunk, chunk.chunk_text),
            before=around[place - 1] if place else "",
            after=around[place + 1] if place + 1 < len(around) else "",
            dense_text=texts.dense_text,
            sparse_text=texts.sparse_text,
            keyphrases=list(texts.keyphrases),
            quality_score=texts.quality_score,
            view_title=texts.title,
            view_summary=texts.summary,
            view_tags=list(texts.tags),
            images=[fill_shape(SourceImage, text) for text in list_media_texts(chunk, catalog)],
        )


def _read_view(lease: Lease, store: Store, version: ir.Version, chunk_id: str) -> ir.View | None:
    """The chunk's texts for the retrievers; None if their file was garbage collected."""
    manifest = lease.release.manifest
    path = store.version_path(version, "views", manifest.profiles["views"], version.edition)
    if not path.is_file():
        return None
    return next((it for it in read_records(path, ir.View) if it.chunk_id == chunk_id), None)


class Deletion(BaseModel, extra="forbid"):
    """What to delete, and the code of the plan that was shown."""

    version_id: str | None = Field(default=None, max_length=400)
    mode: Literal["soft", "hard"] = "soft"
    confirm: str | None = Field(default=None, max_length=20)


@api.post("/documents/{doc_id}/delete", dependencies=[MayAdminister])
def delete_document(view: ApiView, doc_id: DocId, deletion: Deletion) -> DeletionData:
    """The plan of a deletion with a code; called again with that code, the deletion."""
    if deletion.confirm == "":
        raise InputError("confirm is empty; leave it out to see the plan", code="no_confirmation")
    return writing.delete(
        view.settings,
        view.namespace,
        doc_id,
        deletion.version_id,
        mode=deletion.mode,
        confirm=deletion.confirm,
        on_hidden=partial(drop_for_document, view.library.store),
    )


# --- pages --------------------------------------------------------------------------------------


_PREVIEW_CHARS = 20_000
_CHUNKS = 20
# shown as a code block: as Markdown it would render as a heading
_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)


class FilterForm(FormFields, DocumentFilter):
    """A filter as the form sends it."""

    def address(self, namespace: str, **changes: Any) -> str:
        """The URL of this list with some filters changed."""
        given = self.model_dump(exclude_defaults=True) | {"namespace": namespace} | changes
        return link("/browser", **{key: value for key, value in given.items() if value})


@pages.get("/browser")
def browse(view: PageView, where: Annotated[FilterForm, Query()]) -> Response:
    """Documents by source, tag, status and time."""
    with listing.open_with_published(view.library, view.namespace) as (ledger, published):
        counts = ledger.count_documents(view.namespace, published)
        failed, _ = ledger.document_problems(view.namespace, published, 0)
    return view.render(
        "browsing/browser.html",
        where=where,
        data=list_documents(view, where),
        counts={status: counts.get(status, 0) for status in listing.STATUSES},
        problems=failed,
    )


@pages.get("/documents/{namespace}/{doc_id}")
def show_document(
    view: PathView,
    doc_id: DocId,
    section_id: Annotated[str, Query(max_length=100)] = "",
    cursor: Cursor = None,
) -> Response:
    """A document with its versions, outline and chunks."""
    data = get_document(view, doc_id)
    chunks = None if data["unread"] else list_chunks(view, doc_id, section_id, _CHUNKS, cursor)
    return view.render("browsing/document.html", data=data, page=chunks, section_id=section_id)


@pages.get("/documents/{namespace}/{doc_id}/text")
def show_text(view: PathView, doc_id: DocId, version_id: VersionId = None) -> Response:
    """The beginning of a document's text."""
    data = get_text(view, doc_id, version_id, _PREVIEW_CHARS)
    text = _FRONT_MATTER.sub(r"```yaml\n\1\n```\n", data["document"]["md_text"])
    return _part(view, "text", data=data["document"], text=text)


@pages.get("/documents/{namespace}/{doc_id}/dropped")
def show_dropped(view: PathView, doc_id: DocId) -> Response:
    return _part(view, "dropped", data=list_dropped(view, doc_id))


@pages.get("/documents/{namespace}/{doc_id}/diff")
def show_difference(
    view: PathView, doc_id: DocId, before: VersionId = None, after: VersionId = None
) -> Response:
    return _part(view, "version_diff", data=compare_versions(view, doc_id, before, after))


@pages.get("/documents/{namespace}/{doc_id}/proof", dependencies=[MayAdminister])
def show_proof(view: PathView, doc_id: DocId) -> Response:
    """What is still stored of a document."""
    return _part(view, "proof", data=get_deletion_proof(view, doc_id))


def _part(view: View, name: str, **values: Any) -> Response:
    return view.render_part(f"browsing/{name}.html", "browsing/part.html", **values)


@pages.get("/chunks/{namespace}/{chunk_id}")
def show_chunk(view: PathView, chunk_id: Annotated[str, Path(max_length=100)]) -> Response:
    """A chunk with its place and its retrieval texts."""
    return view.render("browsing/chunk.html", data=get_chunk_texts(view, chunk_id))


@pages.get("/documents/{namespace}/{doc_id}/delete", dependencies=[MayAdminister])
def plan_deletion(
    view: PathView, doc_id: DocId, deletion: Annotated[Deletion, Query()]
) -> Response:
    deletion.confirm = None
    plan = delete_document(view, doc_id, deletion)
    with listing.open_with_published(view.library, view.namespace) as (ledger, _):
        document = ledger.document(view.namespace, doc_id)
    return view.render("browsing/delete.html", plan=plan, deletion=deletion, document=document)


@pages.post("/documents/{namespace}/{doc_id}/delete", dependencies=[MayAdminister])
def confirm_deletion(
    view: PathView,
    doc_id: DocId,
    confirm: Annotated[str, Form(max_length=20)],
    mode: Annotated[str, Form(max_length=10)] = "soft",
    version_id: Annotated[str, Form(max_length=400)] = "",
) -> Response:
    """Start the confirmed deletion."""
    deletion = Deletion.model_validate(
        {"confirm": confirm, "mode": mode, "version_id": version_id or None}
    )
    data = delete_document(view, doc_id, deletion)
    return RedirectResponse(f"/ingestion/jobs/{data['job']['job_id']}", 303)
