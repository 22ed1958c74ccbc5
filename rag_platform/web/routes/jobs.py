"""Ingestion: uploads, folders and URLs, previews, and jobs with their progress."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any, cast
from urllib.parse import quote, unquote

import anyio
import orjson
from fastapi import APIRouter, Depends, Form, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response, StreamingResponse

from rag_platform import access
from rag_platform.api import uploads, writing
from rag_platform.api.cursors import make_cursor, read_cursor, read_offset
from rag_platform.api.envelopes import fill_shape, without_paths
from rag_platform.api.writing import job_data, job_progress, open_root, require_job, watch
from rag_platform.config.settings import Settings
from rag_platform.contract.schema import JobData
from rag_platform.contract.upkeep_shapes import (
    JobDetail,
    JobItemRow,
    JobPage,
    JobRow,
    PreviewData,
    UploadData,
)
from rag_platform.errors import InputError, RagError
from rag_platform.ledger.schema import Job
from rag_platform.processes import jobs
from rag_platform.processes.jobs import FINAL_STATES
from rag_platform.web.dependencies import FormView, LibraryOf, MayWrite, PageView, SettingsOf, View
from rag_platform.web.failures import describe
from rag_platform.web.first_page import split_list
from rag_platform.web.rendering import link, render, render_text
from rag_platform.web.routes.documents import Cursor, Limit
from rag_platform.web.waiting import KEEP_ALIVE_SECONDS, event_stream, sse, work_for
from rag_platform.workspace import DataRoot

api = APIRouter(tags=["jobs"])
pages = APIRouter()
JobId = Annotated[str, Path(max_length=60)]
UploadId = Annotated[str, Path(max_length=60)]
_POLL_SECONDS = 0.4


def _view_to_write(
    request: Request,
    library: LibraryOf,
    namespace: Annotated[str | None, Query(max_length=63)] = None,
) -> View:
    default = access.current().default_namespace(library.settings.default_namespace)
    name = namespace or default
    library.require_visible(name)
    return View(request, library, name)


# the view of the library to write to, which need not exist yet; raises NotFoundError
WriteView = Annotated[View, Depends(_view_to_write)]


class Place(BaseModel, extra="forbid"):
    """What is ingested: a path on the server's machine, or a URL."""

    path: str | None = Field(default=None, max_length=4000)
    url: str | None = Field(default=None, max_length=4000)
    tags: list[Annotated[str, Field(max_length=200)]] = Field(default=[], max_length=50)


class Tags(BaseModel, extra="forbid"):
    """Tags for the ingested documents."""

    tags: list[Annotated[str, Field(max_length=200)]] = Field(default=[], max_length=50)


# --- ingestion ----------------------------------------------------------------------------------


@api.post("/ingest", dependencies=[MayWrite])
def ingest(view: WriteView, place: Place) -> JobData:
    """Start a job that ingests a file or folder of the server's machine, or a URL."""
    return uploads.ingest_place(
        view.settings, view.namespace, path=place.path, url=place.url, tags=place.tags
    )


_PERCENT = re.compile("%(?:22|0[AD])")  # all that browsers encode in names of files of a form
_FILES = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {"type": "array", "items": {"type": "string", "format": "binary"}}
                    },
                }
            }
        },
    }
}


@api.post("/uploads", dependencies=[MayWrite], openapi_extra=_FILES)
async def upload(request: Request, settings: SettingsOf) -> UploadData:
    """Upload files; they wait until they are ingested."""
    return await take_files(request, settings)


async def take_files(
    request: Request, settings: Settings, more: Callable[[FormData], None] = lambda form: None
) -> UploadData:
    """Store the files of a form under a new id; `more` reads its other fields. Raises InputError
    for a body of unknown length or above the limit, before it is read.
    """
    http = settings.server.http
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > http.max_upload_bytes:
        raise InputError(
            f"the upload has {length or 'an unknown number of'} bytes; its Content-Length is at"
            f" most {http.max_upload_bytes} (server.http.max_upload_bytes)",
            code="too_large",
        )
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise InputError("files come as multipart/form-data, field `files`", code="no_files")
    async with request.form(max_files=http.max_upload_files) as form:
        more(form)
        files = [
            (_PERCENT.sub(lambda code: unquote(code[0]), part.filename), part.file)
            for part in form.getlist("files")
            if isinstance(part, UploadFile) and part.filename
        ]
        return await anyio.to_thread.run_sync(uploads.keep_upload, settings, files)


@api.get("/uploads/{upload_id}", dependencies=[MayWrite])
def get_upload(settings: SettingsOf, upload_id: UploadId) -> UploadData:
    """The files that wait under an id."""
    return uploads.show_upload(settings, upload_id)


@api.delete("/uploads/{upload_id}", dependencies=[MayWrite], status_code=204)
def drop_upload(settings: SettingsOf, upload_id: UploadId) -> Response:
    """Delete the files that wait under an id."""
    uploads.drop_upload(settings, upload_id)
    return Response(status_code=204)


@api.get("/uploads/{upload_id}/preview", dependencies=[MayWrite])
async def preview_upload(
    view: WriteView, upload_id: UploadId, name: Annotated[str, Query(max_length=300)]
) -> PreviewData:
    """What ingesting one of the files would give."""
    return await work_for(
        view.request,
        lambda gone: uploads.preview_upload(
            view.settings, view.namespace, upload_id, name, cancelled=gone
        ),
    )


@api.post("/uploads/{upload_id}/ingest", dependencies=[MayWrite])
def ingest_upload(view: WriteView, upload_id: UploadId, given: Tags) -> JobData:
    """Start a job that ingests the files."""
    return uploads.ingest_upload(view.settings, view.namespace, upload_id, given.tags)


# --- jobs ---------------------------------------------------------------------------------------


@api.get("/jobs")
def list_jobs(
    view: WriteView,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Cursor = None,
) -> JobPage:
    """One page of the jobs of a library, newest first."""
    before = read_cursor(cursor, (str,))[0] if cursor else ""
    with open_root(view.settings) as root:
        jobs.end_orphans(root.ledger, view.settings.jobs)
        found = root.ledger.jobs(view.namespace, limit + 1, before=before)
        page = found[:limit]
        return {
            "jobs": [
                _row(jobs.as_it_stands(job, root.ledger, view.settings.jobs), root) for job in page
            ],
            "next_cursor": make_cursor(page[-1].job_id) if len(found) > limit else None,
        }


@api.get("/jobs/{job_id}")
def get_job(
    settings: SettingsOf, job_id: JobId, limit: Limit = 50, cursor: Cursor = None
) -> JobDetail:
    """A job with a page of its documents, those that failed first."""
    begin = read_offset(cursor)
    with open_root(settings) as root:
        jobs.end_orphans(root.ledger, settings.jobs)
        job = require_job(root, job_id)
        row = _row(job, root)
        items = root.ledger.job_item_page(job_id, begin, limit)
        end = begin + len(items)
        stages = job.progress.get("stages", {})
        return {
            **row,
            "stages": [
                {
                    "name": name,
                    "done": int(stage["done"]),
                    "total": int(stage["total"]),
                    "growing": jobs.is_growing(name, stages),
                    "rate_per_s": jobs.rate(stage),
                    "seconds_left": jobs.seconds_left_of(name, stages),
                }
                for name, stage in stages.items()
            ],
            "result": cast(dict[str, object], without_paths(job.result)),
            "items": [
                cast(JobItemRow, without_paths(fill_shape(JobItemRow, item)))
                for item in jobs.displayed_items(items, job)
            ],
            "next_cursor": make_cursor(end) if end < sum(row["counts"].values()) else None,
        }


@api.post("/jobs/{job_id}/cancel", dependencies=[MayWrite])
def cancel_job(settings: SettingsOf, job_id: JobId) -> JobData:
    """Stop a job; documents that it has finished stay ingested."""
    return writing.cancel_job(settings, job_id)


class Retry(BaseModel, extra="forbid"):
    """The document of a job to retry; none: all unfinished ones."""

    source_uri: str | None = Field(default=None, max_length=4000)


@api.post("/jobs/{job_id}/retry", dependencies=[MayWrite])
def retry_job(settings: SettingsOf, job_id: JobId, retry: Retry) -> JobData:
    """Start a job that retries the unfinished documents of another one."""
    from rag_platform.ingestion.job_start import start_retry

    with open_root(settings) as root:
        require_job(root, job_id)
        started = start_retry(job_id, root, source_uri=retry.source_uri)
        watch(started, settings)
        return job_data(started.job.job_id, root)


def _row(job: Job, root: DataRoot) -> JobRow:
    summary = jobs.summary(job)
    counts: Counter[str] = Counter()
    for state, decision, count in root.ledger.job_item_counts(job.job_id):
        counts[jobs.state_of_item(state, decision, job)] += count
    return fill_shape(
        JobRow,
        {**summary, **job_progress(job)},
        message=str(without_paths(job.progress.get("message", ""))),
        run_url=_run_url(job, summary["run_id"], root.settings.server.dagster_url),
        counts=dict(counts),
    )


def _run_url(job: Job, run_id: str, dagster_url: str) -> str:
    """The Dagster UI's address of the job's run, or of the runs that it launched; empty if no
    address is configured.
    """
    if not dagster_url:
        return ""
    base = dagster_url.rstrip("/")
    if run_id:
        return f"{base}/runs/{quote(run_id, safe='')}"
    return f"{base}/runs?q%5B0%5D={quote(f'tag:{jobs.JOB_TAG}={job.job_id}', safe='')}"


@api.get(
    "/jobs/{job_id}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream_job(settings: SettingsOf, job_id: JobId) -> StreamingResponse:
    """A job's progress as server-sent events: `progress` with its row at each change,
    then `end`.
    """

    def shown(row: JobRow) -> str:
        return orjson.dumps(row).decode()

    return await follow_job(settings, job_id, shown)


async def follow_job(
    settings: Settings, job_id: str, shown: Callable[[JobDetail], str], every: float = _POLL_SECONDS
) -> StreamingResponse:
    """Stream the job as rendered by `shown` at each change until it has ended. Raises
    NotFoundError.
    """
    first = await anyio.to_thread.run_sync(get_job, settings, job_id)

    async def events() -> AsyncIterator[str]:
        job, last, silent = first, "", 0.0
        while True:
            now = shown(job)
            if now != last or job["state"] in FINAL_STATES:
                yield sse("end" if job["state"] in FINAL_STATES else "progress", now)
                last, silent = now, 0.0
            elif silent >= KEEP_ALIVE_SECONDS:
                yield ": still at work\n\n"
                silent = 0.0
            if job["state"] in FINAL_STATES:
                return
            await anyio.sleep(every)
            silent += every
            job = await anyio.to_thread.run_sync(get_job, settings, job_id)

    return event_stream(events())


# --- pages --------------------------------------------------------------------------------------


_Text = Annotated[str, Form(max_length=4000)]
_EVERY_SECONDS = 0.7


@pages.get("/ingestion")
def show(view: PageView, cursor: Cursor = None) -> Response:
    """The forms for ingestion, and the jobs."""
    return _show(view, cursor=cursor)


def _show(view: View, status: int = 200, cursor: str | None = None, **values: Any) -> Response:
    data = list_jobs(view, cursor=cursor)
    waiting = uploads.list_uploads(view.settings) if access.current().may("write") else []
    return view.render("browsing/ingestion.html", status, data=data, waiting=waiting, **values)


@pages.post("/ingestion/upload", dependencies=[MayWrite])
async def upload_form(request: Request, library: LibraryOf) -> Response:
    """Store uploaded files, and redirect to their page; on an error, show the form again with the
    reason.
    """
    named: dict[str, str] = {}

    def read(form: FormData) -> None:
        named.update({key: str(form.get(key, "")) for key in ("namespace", "tags")})

    try:
        data = await take_files(request, library.settings, read)
    except (RagError, HTTPException) as error:
        status, part = describe(request, error)
        view = _view_to_write(request, library, named.get("namespace"))
        shown = partial(_show, view, status, error=part, typed=named)
        return await anyio.to_thread.run_sync(shown)
    address = link(f"/ingestion/uploads/{data['upload_id']}", **named)
    return RedirectResponse(address, 303)


@pages.get("/ingestion/uploads/{upload_id}", dependencies=[MayWrite])
def show_upload(
    view: PageView, upload_id: UploadId, tags: Annotated[str, Query(max_length=4000)] = ""
) -> Response:
    """The files that wait, each with its preview."""
    data = get_upload(view.settings, upload_id)
    return view.render("browsing/upload.html", data=data, tags=tags)


@pages.get("/ingestion/uploads/{upload_id}/preview", dependencies=[MayWrite])
async def show_preview(
    view: PageView, upload_id: UploadId, name: Annotated[str, Query(max_length=300)]
) -> Response:
    """What ingesting a file would give."""
    data = await preview_upload(view, upload_id, name)
    return view.render_part("browsing/preview.html", "browsing/part.html", data=data)


@pages.post("/ingestion/uploads/{upload_id}", dependencies=[MayWrite])
def finish_upload(
    view: FormView, upload_id: UploadId, tags: _Text = "", action: _Text = "ingest"
) -> Response:
    """Ingest the files that wait, or delete them."""
    if action == "drop":
        uploads.drop_upload(view.settings, upload_id)
        return RedirectResponse(link("/ingestion", namespace=view.namespace), 303)
    job = uploads.ingest_upload(view.settings, view.namespace, upload_id, split_list(tags))
    return RedirectResponse(f"/ingestion/jobs/{job['job_id']}", 303)


@pages.post("/ingestion/place", dependencies=[MayWrite])
def ingest_place(
    view: FormView, place: _Text, tags: _Text = "", action: _Text = "ingest"
) -> Response:
    """Ingest a path of the server's machine or a URL, or preview a file; on an error, show the page
    with the reason and the filled form.
    """
    try:
        return _take_place(view, place, tags, action)
    except RagError as error:
        status, part = describe(view.request, error)
        return _show(view, status, error=part, typed={"place": place, "tags": tags})


def _take_place(view: View, place: str, tags: str, action: str) -> Response:
    from rag_platform.intake.fetching import is_url

    given = place.strip()
    path, url = (None, given) if is_url(given) else (given, None)
    if action == "preview":
        if path is None:
            raise InputError(
                "an address is not fetched for a look; ingest it, or save the page and drop it",
                code="no_preview",
            )
        data = uploads.preview_path(view.settings, view.namespace, path)
        return view.render("browsing/part.html", part="browsing/preview.html", data=data)
    job = uploads.ingest_place(
        view.settings, view.namespace, path=path, url=url, tags=split_list(tags)
    )
    return RedirectResponse(f"/ingestion/jobs/{job['job_id']}", 303)


@pages.get("/ingestion/jobs/{job_id}")
def show_job(
    request: Request, settings: SettingsOf, job_id: JobId, cursor: Cursor = None
) -> Response:
    """A job with its progress and its documents."""
    data = get_job(settings, job_id, cursor=cursor)
    over = data["state"] in FINAL_STATES
    return render(request, "browsing/job.html", namespace=data["namespace"], data=data, over=over)


@pages.get("/ingestion/jobs/{job_id}/events")
async def stream_progress(request: Request, settings: SettingsOf, job_id: JobId) -> Response:
    """The progress of a job as server-sent fragments of its page."""

    def shown(job: JobDetail) -> str:
        over = job["state"] in FINAL_STATES
        return render_text(request, "browsing/progress.html", data=job, over=over)

    return await follow_job(settings, job_id, shown, _EVERY_SECONDS)


@pages.post("/ingestion/jobs/{job_id}/cancel", dependencies=[MayWrite])
def cancel_shown_job(settings: SettingsOf, job_id: JobId) -> Response:
    cancel_job(settings, job_id)
    return RedirectResponse(f"/ingestion/jobs/{job_id}", 303)


@pages.post("/ingestion/jobs/{job_id}/retry", dependencies=[MayWrite])
def retry_shown_job(settings: SettingsOf, job_id: JobId, source_uri: _Text = "") -> Response:
    """Retry the unfinished documents of a job, or one of them."""
    job = retry_job(settings, job_id, Retry(source_uri=source_uri or None))
    return RedirectResponse(f"/ingestion/jobs/{job['job_id']}", 303)
