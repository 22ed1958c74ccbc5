"""The tools that change the library; each starts, shows or cancels a job in a child process."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from rag_platform import access
from rag_platform.api import writing
from rag_platform.api.envelopes import fill_shape
from rag_platform.config.settings import tool_name
from rag_platform.contract.schema import JobData, JobHead, JobsData
from rag_platform.retrieval.namespaces import choose_to_ingest
from rag_platform.server.library_tools.definition import (
    Absent,
    Answer,
    Arguments,
    Call,
    Collection,
    Texts,
    ToolSpec,
)

INGEST = """Add a file or folder (path in an allowed folder), a web page (url) or a text (content \
with filename) to the library. Returns a job; searchable when done."""

GET_JOB = """Show how far a job is and what failed; without job_id the newest jobs."""

CANCEL_JOB = """Stop a job; what it has done stays."""

DELETE_DOCUMENT = """Delete a document or one version. The first call only shows what would go and \
returns `confirm`: ask the user, then call again with it. hard purges the data for good."""

Wait = Annotated[float, Field(ge=0, le=writing.MAX_WAIT_SECONDS, description="Seconds to wait.")]


class IngestArguments(Arguments):
    path: str | Absent = Field(None, description="File or folder.")
    url: str | Absent = Field(None, description="http(s) address.")
    content: Annotated[str, Field(max_length=5_000_000)] | Absent = Field(
        None, description="The text."
    )
    filename: str | Absent = Field(None, description="notes.md")
    tags: Texts | Absent = Field(None, description="Of its documents.")
    metadata: dict[str, Any] | Absent = Field(None, description="Of its documents.")
    collection: str | Absent = Field(None, description="The library, made if new.")
    wait: Wait = 0.0


class GetJobArguments(Arguments):
    job_id: str | Absent = Field(None, description="As ingest gave it.")
    wait: Wait = 0.0


class CancelJobArguments(Arguments):
    job_id: str = Field(description="Of the job to stop.")


class DeleteDocumentArguments(Arguments):
    doc_id: str = Field(description="As results give it.")
    version_id: str | Absent = Field(None, description="Only this version.")
    mode: Literal["soft", "hard"] = Field("soft", description="soft can be undone.")
    confirm: str | Absent = Field(None, description="From the first call.")
    collection: Collection = None
    wait: Wait = 0.0


def ingest(call: Call, arguments: IngestArguments) -> Answer:
    from rag_platform.intake.receiving import ReceiveOptions

    given = writing.parse_input(
        arguments.path, arguments.url, arguments.content, arguments.filename, call.settings
    )
    options = ReceiveOptions(tags=tuple(arguments.tags or ()), metadata=arguments.metadata or {})
    namespace = arguments.collection or choose_to_ingest(call.library, [given], options)
    call.library.require_visible(namespace)
    until = time.monotonic() + arguments.wait
    job = writing.ingest(call.settings, [given], namespace, options, arguments.wait)
    return _wait_for(call, job, max(0.0, until - time.monotonic()))


def _wait_for(call: Call, job: JobData, wait: float) -> Answer:
    """The job once it has ended, or after `wait` seconds; progress is reported meanwhile."""
    if wait and job["state"] not in writing.FINAL_STATES:
        job = writing.get_job(call.settings, job["job_id"], wait=wait, on_progress=call.on_progress)
    return _show(call, job)


def _show(call: Call, job: JobData) -> Answer:
    """The job and what an assistant can do: follow an open one, or ingest again where its reason
    advises a terminal command.
    """
    if job["state"] not in writing.FINAL_STATES:
        tool = tool_name(call.settings.server, "get_job")
        job["markdown"] += f"\nAsk `{tool}` for its progress."
    if "`rag jobs retry" in job["reason"]:
        job["markdown"] += "\n`rag` is run in a terminal by the user"
        allowed = "ingest" in call.settings.server.allow
        job["markdown"] += "; ingesting the same again does the rest too." if allowed else "."
    return Answer(job)


def get_job(call: Call, arguments: GetJobArguments) -> Answer:
    """One job, or the newest ones; `wait` then applies to the newest open one."""
    if arguments.job_id is None:
        visible = access.current().namespaces
        found = writing.list_jobs(call.settings, visible)
        open_ids = (job["job_id"] for job in found if job["state"] not in writing.FINAL_STATES)
        if arguments.wait and (job_id := next(open_ids, None)):
            writing.get_job(
                call.settings, job_id, wait=arguments.wait, on_progress=call.on_progress
            )
            found = writing.list_jobs(call.settings, visible)
        rows = [fill_shape(JobHead, job) for job in found]
        lines = [
            " ".join([job["markdown"].splitlines()[0], *job["reason"].splitlines()[:1]])
            for job in found
        ]
        data: JobsData = {"markdown": "\n".join(lines) or "No jobs.", "jobs": rows}
        return Answer(data, structure={"jobs": rows})
    job = writing.get_job(
        call.settings, arguments.job_id, wait=arguments.wait, on_progress=call.on_progress
    )
    return _show(call, job)


def cancel_job(call: Call, arguments: CancelJobArguments) -> Answer:
    return _show(call, writing.cancel_job(call.settings, arguments.job_id))


def delete_document(call: Call, arguments: DeleteDocumentArguments) -> Answer:
    """The plan of a deletion, or with `confirm` the deletion."""
    from rag_platform.evaluation.expectations import drop_for_document

    namespace = call.namespace(arguments.collection)
    call.library.require_visible(namespace)
    data = writing.delete(
        call.settings,
        namespace,
        arguments.doc_id,
        arguments.version_id,
        mode=arguments.mode,
        confirm=arguments.confirm,
        on_hidden=partial(drop_for_document, call.library.store),  # they may quote the document
    )
    if "job" in data:
        hidden = data["markdown"].partition("\n")[0]
        job = _wait_for(call, data["job"], arguments.wait).data
        data["job"], data["markdown"] = job, f"{hidden}\n{job['markdown']}"
        shown = {key: value for key, value in job.items() if key != "markdown"}
        return Answer(data, structure={**data, "job": shown})
    return Answer(data)


TOOLS = (
    ToolSpec(
        "ingest",
        "Add to the library",
        INGEST,
        IngestArguments,
        ingest,
        scope="write",
        allowed_by="ingest",
        open_world=True,
    ),
    ToolSpec("get_job", "Show a job", GET_JOB, GetJobArguments, get_job),
    ToolSpec(
        "cancel_job",
        "Stop a job",
        CANCEL_JOB,
        CancelJobArguments,
        cancel_job,
        scope="write",
        allowed_by="ingest",
        destructive=True,
    ),
    ToolSpec(
        "delete_document",
        "Delete a document",
        DELETE_DOCUMENT,
        DeleteDocumentArguments,
        delete_document,
        scope="admin",
        allowed_by="delete",
        destructive=True,
    ),
)
