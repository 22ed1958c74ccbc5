"""Pages of ingestion: uploads, folders and URLs, previews, jobs and their progress."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from rag_platform.api.upkeep import jobs, uploads
from rag_platform.contract.upkeep_shapes import JobDetail
from rag_platform.errors import InputError, RagError
from rag_platform.processes.jobs import FINAL_STATES
from rag_platform.web.dependencies import MayWrite, PageNamespace, SiteOf
from rag_platform.web.failures import describe
from rag_platform.web.first_page import split_list
from rag_platform.web.rendering import is_fragment, link, render, render_text
from rag_platform.web.routes.documents import Cursor
from rag_platform.web.routes.jobs import JobId, UploadId, follow_job, preview_upload, take_files
from rag_platform.web.site import Site

router = APIRouter()
_Text = Annotated[str, Form(max_length=4000)]
_EVERY_SECONDS = 0.7


@router.get("/ingestion")
def show(
    request: Request, site: SiteOf, namespace: PageNamespace, cursor: Cursor = None
) -> Response:
    """The forms for ingestion, and the jobs."""
    return _show(request, site, namespace, cursor=cursor)


def _show(
    request: Request,
    site: Site,
    namespace: str,
    status: int = 200,
    cursor: str | None = None,
    **values: Any,
) -> Response:
    data = jobs.list_jobs(site.settings, namespace, cursor=cursor)
    shown = "browsing/ingestion.html"
    return render(request, shown, status, namespace=namespace, data=data, **values)


@router.post("/ingestion/upload", dependencies=[MayWrite])
async def upload(request: Request, site: SiteOf) -> Response:
    """Store uploaded files, and redirect to their page."""
    named: dict[str, str] = {}

    def read(form: FormData) -> None:
        named.update({key: str(form.get(key, "")) for key in ("namespace", "tags")})

    data = await take_files(request, site, read)
    address = link(f"/ingestion/uploads/{data['upload_id']}", **named)
    return RedirectResponse(address, 303)


@router.get("/ingestion/uploads/{upload_id}", dependencies=[MayWrite])
def show_upload(
    request: Request,
    site: SiteOf,
    namespace: PageNamespace,
    upload_id: UploadId,
    tags: Annotated[str, Query(max_length=4000)] = "",
) -> Response:
    """The files that wait, each with its preview."""
    data = uploads.show_upload(site.settings, upload_id)
    return render(request, "browsing/upload.html", namespace=namespace, data=data, tags=tags)


@router.get("/ingestion/uploads/{upload_id}/preview", dependencies=[MayWrite])
async def show_preview(
    request: Request,
    site: SiteOf,
    namespace: PageNamespace,
    upload_id: UploadId,
    name: Annotated[str, Query(max_length=300)],
) -> Response:
    """What ingesting a file would give."""
    data = await preview_upload(request, site, namespace, upload_id, name)
    shown = "browsing/preview.html"
    if is_fragment(request):
        return render(request, shown, namespace=namespace, data=data)
    return render(request, "browsing/part.html", namespace=namespace, part=shown, data=data)


@router.post("/ingestion/uploads/{upload_id}", dependencies=[MayWrite])
def ingest_upload(
    site: SiteOf,
    upload_id: UploadId,
    namespace: Annotated[str, Form(max_length=63)],
    tags: _Text = "",
    action: _Text = "ingest",
) -> Response:
    """Ingest the files that wait, or delete them."""
    site.library.require_visible(namespace)
    if action == "drop":
        uploads.drop_upload(site.settings, upload_id)
        return RedirectResponse(link("/ingestion", namespace=namespace), 303)
    job = uploads.ingest_upload(site.settings, namespace, upload_id, split_list(tags))
    return RedirectResponse(f"/ingestion/jobs/{job['job_id']}", 303)


@router.post("/ingestion/place", dependencies=[MayWrite])
def ingest_place(
    request: Request,
    site: SiteOf,
    place: _Text,
    namespace: Annotated[str, Form(max_length=63)],
    tags: _Text = "",
    action: _Text = "ingest",
) -> Response:
    """Ingest a path of the server's machine or a URL, or preview a file; on an error, show the page
    with the reason and the filled form.
    """
    site.library.require_visible(namespace)
    try:
        return _take_place(request, site, place, namespace, tags, action)
    except RagError as error:
        status, part = describe(request, error)
        typed = {"place": place, "tags": tags}
        return _show(request, site, namespace, status, error=part, typed=typed)


def _take_place(
    request: Request, site: Site, place: str, namespace: str, tags: str, action: str
) -> Response:
    given = place.strip()
    is_url = given.lower().startswith(("http://", "https://"))
    if action == "preview":
        if is_url:
            raise InputError(
                "an address is not fetched for a look; ingest it, or save the page and drop it",
                code="no_preview",
            )
        data = uploads.preview_path(site.settings, namespace, given)
        return render(
            request,
            "browsing/part.html",
            namespace=namespace,
            part="browsing/preview.html",
            data=data,
        )
    job = uploads.ingest_place(
        site.settings,
        namespace,
        path=None if is_url else given,
        url=given if is_url else None,
        tags=split_list(tags),
    )
    return RedirectResponse(f"/ingestion/jobs/{job['job_id']}", 303)


# --- jobs ---------------------------------------------------------------------------------------


@router.get("/ingestion/jobs/{job_id}")
def show_job(request: Request, site: SiteOf, job_id: JobId, cursor: Cursor = None) -> Response:
    """A job with its progress and its documents."""
    data = jobs.show_job(site.settings, job_id, cursor=cursor)
    over = data["state"] in FINAL_STATES
    return render(request, "browsing/job.html", namespace=data["namespace"], data=data, over=over)


@router.get("/ingestion/jobs/{job_id}/events")
async def stream_job(request: Request, site: SiteOf, job_id: JobId) -> Response:
    """The progress of a job as server-sent fragments of its page."""

    def shown(job: JobDetail) -> str:
        over = job["state"] in FINAL_STATES
        return render_text(request, "browsing/progress.html", data=job, over=over)

    return await follow_job(site, job_id, shown, _EVERY_SECONDS)


@router.post("/ingestion/jobs/{job_id}/cancel", dependencies=[MayWrite])
def cancel_job(site: SiteOf, job_id: JobId) -> Response:
    jobs.cancel_job(site.settings, job_id)
    return RedirectResponse(f"/ingestion/jobs/{job_id}", 303)


@router.post("/ingestion/jobs/{job_id}/retry", dependencies=[MayWrite])
def retry_job(site: SiteOf, job_id: JobId, source_uri: _Text = "") -> Response:
    """Retry the unfinished documents of a job, or one of them."""
    job = jobs.retry_job(site.settings, job_id, source_uri or None)
    return RedirectResponse(f"/ingestion/jobs/{job['job_id']}", 303)
