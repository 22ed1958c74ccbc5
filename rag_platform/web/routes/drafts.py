"""`/api`: drafts, in which chunks are edited by hand, and their publication."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from rag_platform.api.upkeep import drafts
from rag_platform.contract.schema import JobData
from rag_platform.contract.upkeep_shapes import DraftData, DraftPreview, DraftsData
from rag_platform.web.dependencies import MayWrite, NamespaceOf, SiteOf
from rag_platform.web.routes.documents import Cursor, DocId

router = APIRouter(tags=["drafts"], prefix="/drafts")
_MAX_TEXT = 200_000


class Operation(BaseModel):
    """One edit; which fields it needs depends on `op`."""

    op: Literal[
        "edit_text",
        "split_at",
        "merge_with_next",
        "move_before",
        "move_after",
        "reparent",
        "enable",
        "disable",
    ]
    chunk_id: str = Field(max_length=100)
    text: str | None = Field(default=None, max_length=_MAX_TEXT, description="edit_text")
    offset: int | None = Field(default=None, ge=0, le=10**9, description="split_at")
    target: str | None = Field(default=None, max_length=100, description="move_before, move_after")
    parent_id: str | None = Field(default=None, max_length=100, description="reparent")

    def data(self) -> dict[str, Any]:
        """The operation as stored in drafts."""
        return self.model_dump(exclude_none=True)


@router.get("")
def list_drafts(site: SiteOf, namespace: NamespaceOf) -> DraftsData:
    """The drafts of a library."""
    return drafts.list_drafts(site.settings, namespace)


@router.get("/{doc_id}")
def get_draft(
    site: SiteOf,
    namespace: NamespaceOf,
    doc_id: DocId,
    limit: Annotated[int, Query(ge=1, le=drafts.MAX_CHUNKS)] = 50,
    cursor: Cursor = None,
    chunk_id: Annotated[str, Query(max_length=100)] = "",
) -> DraftData:
    """A document's draft with a page of its chunks."""
    return drafts.show_draft(
        site.settings, namespace, doc_id, limit=limit, cursor=cursor, chunk_id=chunk_id
    )


@router.get("/{doc_id}/preview")
def preview_draft(site: SiteOf, namespace: NamespaceOf, doc_id: DocId) -> DraftPreview:
    """What publishing a draft would change."""
    return drafts.preview_draft(site.settings, namespace, doc_id)


@router.post("/{doc_id}/operations", dependencies=[MayWrite])
def add_operation(
    site: SiteOf, namespace: NamespaceOf, doc_id: DocId, operation: Operation
) -> DraftData:
    """Add an operation to a draft; the first one begins it."""
    return drafts.add_operation(site.settings, namespace, doc_id, operation.data())


@router.post("/{doc_id}/undo", dependencies=[MayWrite])
def undo(site: SiteOf, namespace: NamespaceOf, doc_id: DocId) -> DraftData:
    """Undo the last operation."""
    return drafts.undo(site.settings, namespace, doc_id)


@router.post("/{doc_id}/discard", dependencies=[MayWrite])
def discard(site: SiteOf, namespace: NamespaceOf, doc_id: DocId) -> DraftData:
    """Discard the unpublished edits of a draft, and its conflicts."""
    return drafts.discard(site.settings, namespace, doc_id)


@router.post("/{doc_id}/rebase", dependencies=[MayWrite])
def rebase(site: SiteOf, namespace: NamespaceOf, doc_id: DocId) -> DraftData:
    """Base a draft on the live version; edits that do not apply to it become conflicts."""
    return drafts.rebase(site.settings, namespace, doc_id)


@router.post("/{doc_id}/publish", dependencies=[MayWrite])
def publish(
    site: SiteOf,
    namespace: NamespaceOf,
    doc_id: DocId,
    drop_conflicts: Annotated[bool, Query()] = False,
) -> JobData:
    """Start a job that publishes a draft."""
    return drafts.publish(site.settings, namespace, doc_id, drop_conflicts=drop_conflicts)


@router.post("/{doc_id}/revert", dependencies=[MayWrite])
def revert(site: SiteOf, namespace: NamespaceOf, doc_id: DocId) -> JobData:
    """Start a job that publishes a document's chunks without any edits."""
    return drafts.revert(site.settings, namespace, doc_id)
