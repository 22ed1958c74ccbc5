"""Pages of documents: lists, one document with its versions and chunks, one chunk, deletion."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Form, Path, Query, Request
from pydantic import Field, model_validator
from starlette.responses import RedirectResponse, Response

from rag_platform.api.documents import STATUSES, document_states, list_dropped
from rag_platform.api.documents import get_document as read_document
from rag_platform.api.upkeep import documents, releases
from rag_platform.web.dependencies import MayAdminister, PageNamespace, PathNamespace, SiteOf
from rag_platform.web.first_page import split_list
from rag_platform.web.rendering import is_fragment, link, render
from rag_platform.web.routes.documents import Cursor, Deletion, DocId, VersionId, Wanted, delete

router = APIRouter()
_PREVIEW_CHARS = 20_000
_CHUNKS = 20
# shown as a code block: as Markdown it would render as a heading
_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)


class Filters(Wanted):
    """Filters as the form sends them: empty fields are ignored, lists are separated by commas."""

    limit: int = Field(default=50, ge=1, le=200)

    @model_validator(mode="before")
    @classmethod
    def _tidy(cls, given: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in given.items():
            if isinstance(value, list):
                found[name] = [part for item in value for part in split_list(str(item))]
            elif value != "":
                found[name] = value
        return found

    def address(self, namespace: str, **changes: Any) -> str:
        """The URL of this list with some filters changed."""
        given = self.model_dump(exclude_defaults=True) | {"namespace": namespace} | changes
        return link("/browser", **{key: value for key, value in given.items() if value})


@router.get("/browser")
def browse(
    request: Request, site: SiteOf, namespace: PageNamespace, wanted: Annotated[Filters, Query()]
) -> Response:
    """Documents by source, tag, status and time."""
    states = document_states(site.library, namespace, 0)
    return render(
        request,
        "browsing/browser.html",
        namespace=namespace,
        wanted=wanted,
        data=wanted.read(site, namespace),
        counts={status: states.counts.get(status, 0) for status in STATUSES},
        problems=states.failed,
    )


@router.get("/documents/{namespace}/{doc_id}")
def show_document(
    request: Request,
    site: SiteOf,
    namespace: PathNamespace,
    doc_id: DocId,
    section_id: Annotated[str, Query(max_length=100)] = "",
    cursor: Cursor = None,
) -> Response:
    """A document with its versions, outline and chunks."""
    data = documents.describe_document(site.library, namespace, doc_id)
    chunks = None
    if not data["unread"]:
        chunks = documents.list_chunks(
            site.library, namespace, doc_id, section_id=section_id, limit=_CHUNKS, cursor=cursor
        )
    return render(
        request,
        "browsing/document.html",
        namespace=namespace,
        data=data,
        page=chunks,
        section_id=section_id,
    )


@router.get("/documents/{namespace}/{doc_id}/text")
def show_text(
    request: Request,
    site: SiteOf,
    namespace: PathNamespace,
    doc_id: DocId,
    version_id: VersionId = None,
) -> Response:
    """The beginning of a document's text."""
    data = read_document(
        site.library, namespace, doc_id, version_id=version_id, max_chars=_PREVIEW_CHARS
    )
    text = _FRONT_MATTER.sub(r"```yaml\n\1\n```\n", data["document"]["md_text"])
    return _part(request, "text", namespace, data=data["document"], text=text)


@router.get("/documents/{namespace}/{doc_id}/dropped")
def show_dropped(
    request: Request, site: SiteOf, namespace: PathNamespace, doc_id: DocId
) -> Response:
    return _part(request, "dropped", namespace, data=list_dropped(site.library, namespace, doc_id))


@router.get("/documents/{namespace}/{doc_id}/diff")
def show_difference(
    request: Request,
    site: SiteOf,
    namespace: PathNamespace,
    doc_id: DocId,
    before: VersionId = None,
    after: VersionId = None,
) -> Response:
    data = documents.compare_versions(site.settings, namespace, doc_id, before, after)
    return _part(request, "version_diff", namespace, data=data)


@router.get("/documents/{namespace}/{doc_id}/proof", dependencies=[MayAdminister])
def show_proof(request: Request, site: SiteOf, namespace: PathNamespace, doc_id: DocId) -> Response:
    """What is still stored of a document."""
    data = releases.prove_deletion(site.settings, namespace, doc_id)
    return _part(request, "proof", namespace, data=data)


def _part(request: Request, name: str, namespace: str, **values: Any) -> Response:
    """A fragment for htmx, else a page of its own."""
    shown = f"browsing/{name}.html"
    if is_fragment(request):
        return render(request, shown, namespace=namespace, **values)
    return render(request, "browsing/part.html", namespace=namespace, part=shown, **values)


@router.get("/chunks/{namespace}/{chunk_id}")
def show_chunk(
    request: Request,
    site: SiteOf,
    namespace: PathNamespace,
    chunk_id: Annotated[str, Path(max_length=100)],
) -> Response:
    """A chunk with its place and its retrieval texts."""
    data = documents.describe_chunk(site.library, namespace, chunk_id)
    return render(request, "browsing/chunk.html", namespace=namespace, data=data)


@router.get("/documents/{namespace}/{doc_id}/delete", dependencies=[MayAdminister])
def plan_deletion(
    request: Request,
    site: SiteOf,
    namespace: PathNamespace,
    doc_id: DocId,
    asked: Annotated[Deletion, Query()],
) -> Response:
    asked.confirm = None
    plan = delete(site, namespace, doc_id, asked)
    return render(
        request, "browsing/delete.html", namespace=namespace, plan=plan, asked=asked, doc_id=doc_id
    )


@router.post("/documents/{namespace}/{doc_id}/delete", dependencies=[MayAdminister])
def delete_document(
    site: SiteOf,
    namespace: PathNamespace,
    doc_id: DocId,
    confirm: Annotated[str, Form(max_length=20)],
    mode: Annotated[str, Form(max_length=10)] = "soft",
    version_id: Annotated[str, Form(max_length=400)] = "",
) -> Response:
    """Start the confirmed deletion."""
    asked = Deletion.model_validate(
        {"confirm": confirm, "mode": mode, "version_id": version_id or None}
    )
    data = delete(site, namespace, doc_id, asked)
    return RedirectResponse(f"/ingestion/jobs/{data['job']['job_id']}", 303)
