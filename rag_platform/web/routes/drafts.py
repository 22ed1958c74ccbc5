"""Drafts, in which chunks are edited by hand, and their publication."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from fastapi import APIRouter, Form, Query
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from rag_platform.api.cursors import make_cursor, read_offset
from rag_platform.api.envelopes import failure
from rag_platform.api.writing import job_data, open_root, watch
from rag_platform.contract.schema import JobData
from rag_platform.contract.upkeep_shapes import DraftData, DraftPreview, DraftsData
from rag_platform.errors import RagError
from rag_platform.web.dependencies import ApiView, MayWrite, PageView, PathView, View
from rag_platform.web.rendering import link
from rag_platform.web.routes.documents import Cursor, DocId

if TYPE_CHECKING:
    from rag_platform.drafts.lifecycle import Drafts, Opened
    from rag_platform.processes.jobs import Started

api = APIRouter(tags=["drafts"], prefix="/drafts")
pages = APIRouter()
_MAX_TEXT = 200_000


class Operation(BaseModel, extra="forbid"):
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


@contextmanager
def _open_drafts(view: View) -> Iterator[Drafts]:
    from rag_platform.drafts.lifecycle import Drafts

    with open_root(view.settings) as root:
        strategy = root.bound_strategy(view.namespace)
        yield Drafts(view.namespace, root.workspace(view.namespace, strategy))


@api.get("")
def list_drafts(view: ApiView) -> DraftsData:
    """The drafts of a library."""
    from rag_platform.drafts.reports import list_data

    with open_root(view.settings) as root:
        if view.namespace not in root.ledger.namespaces():
            return {"markdown": "", "drafts": []}
    with _open_drafts(view) as drafts:
        return cast(DraftsData, list_data(drafts))


@api.get("/{doc_id}")
def get_draft(
    view: ApiView,
    doc_id: DocId,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    cursor: Cursor = None,
    chunk_id: Annotated[str, Query(max_length=100)] = "",
) -> DraftData:
    """A document's draft with a page of its chunks."""
    from rag_platform.drafts.reports import show_data

    with _open_drafts(view) as drafts:
        draft = drafts.open(doc_id)
        pieces = draft.edited.pieces
        begin = read_offset(cursor)
        if chunk_id:  # the page begins with it
            names = (piece.chunk.chunk_id for piece in pieces)
            begin = next((n for n, name in enumerate(names) if name == chunk_id), 0)
        end = begin + limit
        page = pieces[begin:end]
        data = show_data(replace(draft, edited=replace(draft.edited, pieces=page)))
        following = make_cursor(end) if end < len(pieces) else None
        places = {"cursor": make_cursor(begin), "next_cursor": following}
        return cast(DraftData, {**data, **places, "total": len(pieces)})


@api.get("/{doc_id}/preview")
def preview_draft(view: ApiView, doc_id: DocId) -> DraftPreview:
    """What publishing a draft would change."""
    from rag_platform.drafts.reports import preview_data

    with _open_drafts(view) as drafts:
        return cast(DraftPreview, preview_data(drafts.open(doc_id)))


@api.post("/{doc_id}/operations", dependencies=[MayWrite])
def add_operation(view: ApiView, doc_id: DocId, operation: Operation) -> DraftData:
    """Add an operation to a draft; the first one begins it."""
    return _change(view, lambda it: it.add(doc_id, operation.data()))


@api.post("/{doc_id}/undo", dependencies=[MayWrite])
def undo(view: ApiView, doc_id: DocId) -> DraftData:
    """Undo the last operation."""
    return _change(view, lambda it: it.undo(doc_id)[0])


@api.post("/{doc_id}/discard", dependencies=[MayWrite])
def discard(view: ApiView, doc_id: DocId) -> DraftData:
    """Discard the unpublished edits of a draft, and its conflicts."""
    return _change(view, lambda it: it.discard(doc_id))


@api.post("/{doc_id}/rebase", dependencies=[MayWrite])
def rebase(view: ApiView, doc_id: DocId) -> DraftData:
    """Base a draft on the live version; edits that do not apply to it become conflicts."""
    return _change(view, lambda it: it.rebase(doc_id))


def _change(view: View, change: Callable[[Drafts], Opened]) -> DraftData:
    """The draft after a change, without its chunks."""
    from rag_platform.drafts.reports import show_data

    with _open_drafts(view) as drafts:
        return cast(DraftData, show_data(change(drafts), with_chunks=False))


@api.post("/{doc_id}/publish", dependencies=[MayWrite])
def publish(
    view: ApiView, doc_id: DocId, drop_conflicts: Annotated[bool, Query()] = False
) -> JobData:
    """Start a job that publishes a draft."""
    return _start(view, lambda it: it.start_publish(doc_id, drop_conflicts=drop_conflicts))


@api.post("/{doc_id}/revert", dependencies=[MayWrite])
def revert(view: ApiView, doc_id: DocId) -> JobData:
    """Start a job that publishes a document's chunks without any edits."""
    return _start(view, lambda it: it.start_revert(doc_id))


def _start(view: View, start: Callable[[Drafts], Started]) -> JobData:
    with _open_drafts(view) as drafts:
        started = start(drafts)
        watch(started, view.settings)
        return job_data(started.job.job_id, drafts.workspace)


# --- pages --------------------------------------------------------------------------------------


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


@pages.get("/drafts")
def show_drafts(view: PageView) -> Response:
    """The drafts of a library."""
    return view.render("browsing/drafts.html", data=list_drafts(view))


@pages.get("/drafts/{namespace}/{doc_id}")
def show_draft(
    view: PathView,
    doc_id: DocId,
    cursor: Cursor = None,
    chunk_id: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """A document's chunks with the edits that are possible for each."""
    return _show(view, doc_id, cursor=cursor, chunk_id=chunk_id)


def _show(
    view: View,
    doc_id: str,
    status: int = 200,
    *,
    cursor: str | None = None,
    chunk_id: str = "",
    **values: Any,
) -> Response:
    data = get_draft(view, doc_id, _CHUNKS, cursor, chunk_id)
    values |= {"doc_id": doc_id, "data": data, "chunk_id": chunk_id}
    return view.render("browsing/draft.html", status, **values)


@pages.get("/drafts/{namespace}/{doc_id}/preview")
def show_preview(view: PathView, doc_id: DocId) -> Response:
    """What publishing a draft would change."""
    data = preview_draft(view, doc_id)
    return view.render("browsing/draft_preview.html", doc_id=doc_id, data=data)


@pages.post("/drafts/{namespace}/{doc_id}/operations", dependencies=[MayWrite])
def add_edit(view: PathView, doc_id: DocId, edit: Annotated[EditForm, Form()]) -> Response:
    """Add an edit; on an error, show the page with the reason and the typed text."""
    try:
        _change(view, lambda it: it.add(doc_id, edit.operation()))
    except RagError as error:
        values = {"error": failure(error)["error"], "typed": edit.text}
        return _show(view, doc_id, 400, chunk_id=edit.chunk_id, **values)
    return RedirectResponse(link(f"/drafts/{view.namespace}/{doc_id}", cursor=edit.cursor), 303)


@pages.post("/drafts/{namespace}/{doc_id}/{change}", dependencies=[MayWrite])
def change_draft(
    view: PathView,
    doc_id: DocId,
    change: Literal["undo", "discard", "rebase", "publish", "revert"],
    drop_conflicts: Annotated[bool, Form()] = False,
) -> Response:
    """Undo, discard, rebase, publish or revert; on an error, show the page with the reason."""
    edits = {"undo": undo, "discard": discard, "rebase": rebase}
    try:
        if change in edits:
            edits[change](view, doc_id)
            return RedirectResponse(f"/drafts/{view.namespace}/{doc_id}", 303)
        publishes = change == "publish"
        job = publish(view, doc_id, drop_conflicts) if publishes else revert(view, doc_id)
    except RagError as error:
        return _show(view, doc_id, 400, error=failure(error)["error"])
    return RedirectResponse(f"/ingestion/jobs/{job['job_id']}", 303)
