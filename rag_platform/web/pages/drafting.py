"""Pages that edit the chunks of a document by hand, and publish them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from rag_platform.api.envelopes import failure
from rag_platform.api.upkeep import drafts
from rag_platform.errors import RagError
from rag_platform.web.dependencies import MayWrite, PageNamespace, PathNamespace, SiteOf
from rag_platform.web.rendering import link, render
from rag_platform.web.routes.documents import Cursor, DocId
from rag_platform.web.site import Site

router = APIRouter()
_CHUNKS = 20


class EditForm(BaseModel):
    """An edit as the form sends it, with the cursor of its page."""

    op: str = Field(max_length=40)
    chunk_id: str = Field(max_length=100)
    text: str = Field(default="", max_length=200_000)
    offset: str = Field(default="", max_length=9)
    target: str = Field(default="", max_length=100)
    cursor: str = Field(default="", max_length=100)

    def operation(self) -> dict[str, Any]:
        """The operation as stored in drafts."""
        found: dict[str, Any] = {"op": self.op, "chunk_id": self.chunk_id}
        if self.op == "edit_text":
            found["text"] = self.text
        if self.op == "split_at":
            found["offset"] = int(self.offset) if self.offset.isdecimal() else -1
        if self.op in ("move_before", "move_after"):
            found["target"] = self.target
        return found


@router.get("/drafts")
def list_drafts(request: Request, site: SiteOf, namespace: PageNamespace) -> Response:
    """The drafts of a library."""
    data = drafts.list_drafts(site.settings, namespace)
    return render(request, "browsing/drafts.html", namespace=namespace, data=data)


@router.get("/drafts/{namespace}/{doc_id}")
def show_draft(
    request: Request,
    site: SiteOf,
    namespace: PathNamespace,
    doc_id: DocId,
    cursor: Cursor = None,
    chunk_id: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """A document's chunks with the edits that are possible for each."""
    return _show(request, site, namespace, doc_id, cursor=cursor, chunk_id=chunk_id)


def _show(
    request: Request,
    site: Site,
    namespace: str,
    doc_id: str,
    status: int = 200,
    *,
    cursor: str | None = None,
    chunk_id: str = "",
    **values: Any,
) -> Response:
    data = drafts.show_draft(
        site.settings, namespace, doc_id, limit=_CHUNKS, cursor=cursor, chunk_id=chunk_id
    )
    return render(
        request,
        "browsing/draft.html",
        status,
        namespace=namespace,
        doc_id=doc_id,
        data=data,
        chunk_id=chunk_id,
        **values,
    )


@router.get("/drafts/{namespace}/{doc_id}/preview")
def preview_draft(
    request: Request, site: SiteOf, namespace: PathNamespace, doc_id: DocId
) -> Response:
    """What publishing a draft would change."""
    data = drafts.preview_draft(site.settings, namespace, doc_id)
    return render(
        request, "browsing/draft_preview.html", namespace=namespace, doc_id=doc_id, data=data
    )


@router.post("/drafts/{namespace}/{doc_id}/operations", dependencies=[MayWrite])
def add_operation(
    request: Request,
    site: SiteOf,
    namespace: PathNamespace,
    doc_id: DocId,
    edit: Annotated[EditForm, Form()],
) -> Response:
    """Add an edit; on an error, show the page with the reason and the typed text."""
    try:
        drafts.add_operation(site.settings, namespace, doc_id, edit.operation())
    except RagError as error:
        return _show(
            request,
            site,
            namespace,
            doc_id,
            400,
            chunk_id=edit.chunk_id,
            error=failure(error)["error"],
            typed=edit.text,
        )
    return RedirectResponse(link(f"/drafts/{namespace}/{doc_id}", cursor=edit.cursor), 303)


_CHANGES = {"undo": drafts.undo, "discard": drafts.discard, "rebase": drafts.rebase}


@router.post("/drafts/{namespace}/{doc_id}/{change}", dependencies=[MayWrite])
def change_draft(
    request: Request,
    site: SiteOf,
    namespace: PathNamespace,
    doc_id: DocId,
    change: str,
    drop_conflicts: Annotated[bool, Form()] = False,
) -> Response:
    """Undo, discard, rebase, publish or revert; on an error, show the page with the reason."""
    try:
        if change in _CHANGES:
            _CHANGES[change](site.settings, namespace, doc_id)
            return RedirectResponse(f"/drafts/{namespace}/{doc_id}", 303)
        if change == "publish":
            job = drafts.publish(site.settings, namespace, doc_id, drop_conflicts=drop_conflicts)
        else:
            job = drafts.revert(site.settings, namespace, doc_id)
    except RagError as error:
        return _show(request, site, namespace, doc_id, 400, error=failure(error)["error"])
    return RedirectResponse(f"/ingestion/jobs/{job['job_id']}", 303)
