"""Documents, their versions and chunks, and deletion."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Form, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from rag_platform.api import documents as listing
from rag_platform.api import writing
from rag_platform.api.envelopes import without_paths
from rag_platform.api.upkeep import documents
from rag_platform.api.writing import open_root
from rag_platform.contract.schema import DeletionData, DocumentData, DocumentsData, DroppedData
from rag_platform.contract.upkeep_shapes import (
    ChunkDetail,
    ChunksData,
    DeletionProof,
    DocumentDetail,
    VersionDiff,
)
from rag_platform.errors import InputError
from rag_platform.evaluation.expectations import drop_for_document
from rag_platform.web.dependencies import Chosen, MayAdminister, Shown, ShownInPath, View
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
_UNCHECKED_PARTITIONS = "Dagster's partitions and events: `rag gc --prove` looks into them"


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
def list_documents(view: Chosen, where: Annotated[DocumentFilter, Query()]) -> DocumentsData:
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
def get_document(view: Chosen, doc_id: DocId) -> DocumentDetail:
    """A document with its versions and the outline of the published one."""
    return documents.describe_document(view.library, view.namespace, doc_id)


@api.get("/documents/{doc_id}/text")
def get_text(
    view: Chosen,
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
    view: Chosen,
    doc_id: DocId,
    section_id: Name = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ChunksData:
    """One page of a document's chunks, or of those of a section."""
    return documents.list_chunks(
        view.library, view.namespace, doc_id, section_id=section_id, limit=limit, cursor=cursor
    )


@api.get("/documents/{doc_id}/dropped")
def list_dropped(view: Chosen, doc_id: DocId, version_id: VersionId = None) -> DroppedData:
    """The text of a document that is in no chunk, with its place and reason."""
    return listing.list_dropped(view.library, view.namespace, doc_id, version_id=version_id)


@api.get("/documents/{doc_id}/diff")
def compare_versions(
    view: Chosen,
    doc_id: DocId,
    before: VersionId = None,
    after: VersionId = None,
) -> VersionDiff:
    """The differences between two versions, by default the live one and its predecessor."""
    return documents.compare_versions(view.settings, view.namespace, doc_id, before, after)


@api.get("/documents/{doc_id}/proof", dependencies=[MayAdminister])
def get_deletion_proof(view: Chosen, doc_id: DocId) -> DeletionProof:
    """What is still stored of a document, deleted or not."""
    from rag_platform.releases.proofs.deletion_proof import prove

    with open_root(view.settings) as root:
        found = prove(view.namespace, doc_id, root, partitions=_UNCHECKED_PARTITIONS)
    return cast(DeletionProof, without_paths(found.data()))


@api.get("/chunks/{chunk_id}/texts")
def get_chunk_texts(view: Chosen, chunk_id: Annotated[str, Path(max_length=100)]) -> ChunkDetail:
    """A chunk with its place and its retrieval texts."""
    return documents.describe_chunk(view.library, view.namespace, chunk_id)


class Deletion(BaseModel):
    """What to delete, and the code of the plan that was shown."""

    version_id: str | None = Field(default=None, max_length=400)
    mode: Literal["soft", "hard"] = "soft"
    confirm: str | None = Field(default=None, max_length=20)


@api.post("/documents/{doc_id}/delete", dependencies=[MayAdminister])
def delete_document(view: Chosen, doc_id: DocId, asked: Deletion) -> DeletionData:
    """The plan of a deletion with a code; called again with that code, the deletion."""
    if asked.confirm == "":
        raise InputError("confirm is empty; leave it out to see the plan", code="no_confirmation")
    return writing.delete(
        view.settings,
        view.namespace,
        doc_id,
        asked.version_id,
        mode=asked.mode,
        confirm=asked.confirm,
        on_done=partial(drop_for_document, view.library.store),
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
def browse(view: Shown, where: Annotated[FilterForm, Query()]) -> Response:
    """Documents by source, tag, status and time."""
    states = listing.document_states(view.library, view.namespace, 0)
    return view.render(
        "browsing/browser.html",
        where=where,
        data=list_documents(view, where),
        counts={status: states.counts.get(status, 0) for status in listing.STATUSES},
        problems=states.failed,
    )


@pages.get("/documents/{namespace}/{doc_id}")
def show_document(
    view: ShownInPath,
    doc_id: DocId,
    section_id: Annotated[str, Query(max_length=100)] = "",
    cursor: Cursor = None,
) -> Response:
    """A document with its versions, outline and chunks."""
    data = get_document(view, doc_id)
    chunks = None if data["unread"] else list_chunks(view, doc_id, section_id, _CHUNKS, cursor)
    return view.render("browsing/document.html", data=data, page=chunks, section_id=section_id)


@pages.get("/documents/{namespace}/{doc_id}/text")
def show_text(view: ShownInPath, doc_id: DocId, version_id: VersionId = None) -> Response:
    """The beginning of a document's text."""
    data = get_text(view, doc_id, version_id, _PREVIEW_CHARS)
    text = _FRONT_MATTER.sub(r"```yaml\n\1\n```\n", data["document"]["md_text"])
    return _part(view, "text", data=data["document"], text=text)


@pages.get("/documents/{namespace}/{doc_id}/dropped")
def show_dropped(view: ShownInPath, doc_id: DocId) -> Response:
    return _part(view, "dropped", data=list_dropped(view, doc_id))


@pages.get("/documents/{namespace}/{doc_id}/diff")
def show_difference(
    view: ShownInPath, doc_id: DocId, before: VersionId = None, after: VersionId = None
) -> Response:
    return _part(view, "version_diff", data=compare_versions(view, doc_id, before, after))


@pages.get("/documents/{namespace}/{doc_id}/proof", dependencies=[MayAdminister])
def show_proof(view: ShownInPath, doc_id: DocId) -> Response:
    """What is still stored of a document."""
    return _part(view, "proof", data=get_deletion_proof(view, doc_id))


def _part(view: View, name: str, **values: Any) -> Response:
    return view.render_part(f"browsing/{name}.html", "browsing/part.html", **values)


@pages.get("/chunks/{namespace}/{chunk_id}")
def show_chunk(view: ShownInPath, chunk_id: Annotated[str, Path(max_length=100)]) -> Response:
    """A chunk with its place and its retrieval texts."""
    return view.render("browsing/chunk.html", data=get_chunk_texts(view, chunk_id))


@pages.get("/documents/{namespace}/{doc_id}/delete", dependencies=[MayAdminister])
def plan_deletion(
    view: ShownInPath, doc_id: DocId, asked: Annotated[Deletion, Query()]
) -> Response:
    asked.confirm = None
    plan = delete_document(view, doc_id, asked)
    return view.render("browsing/delete.html", plan=plan, asked=asked, doc_id=doc_id)


@pages.post("/documents/{namespace}/{doc_id}/delete", dependencies=[MayAdminister])
def confirm_deletion(
    view: ShownInPath,
    doc_id: DocId,
    confirm: Annotated[str, Form(max_length=20)],
    mode: Annotated[str, Form(max_length=10)] = "soft",
    version_id: Annotated[str, Form(max_length=400)] = "",
) -> Response:
    """Start the confirmed deletion."""
    asked = Deletion.model_validate(
        {"confirm": confirm, "mode": mode, "version_id": version_id or None}
    )
    data = delete_document(view, doc_id, asked)
    return RedirectResponse(f"/ingestion/jobs/{data['job']['job_id']}", 303)
