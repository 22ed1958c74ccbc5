"""Ingests, deletes and follows jobs on behalf of an assistant, within what the settings allow; the
work runs in child processes.
"""

from __future__ import annotations

import logging
import threading
import time
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rag_platform import access
from rag_platform.api.envelopes import fill_shape, without_paths
from rag_platform.config.settings import Settings, fingerprint
from rag_platform.contract.schema import DeletionData, JobData, JobProgress
from rag_platform.errors import InputError, unknown_job
from rag_platform.ledger.schema import Job
from rag_platform.observability import faults
from rag_platform.processes import jobs
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot

if TYPE_CHECKING:
    from rag_platform.intake.discovery import Input
    from rag_platform.intake.receiving import ReceiveOptions

FINAL_STATES = jobs.FINAL_STATES
MAX_WAIT_SECONDS = 600.0
_POLL_SECONDS = 0.2
_MAX_LISTED = 20  # documents, and failures, shown of a job
_ITEM_FIELDS = ("source_uri", "doc_id", "version_id", "decision", "state")
_INVISIBLE = ("Cc", "Cf", "Cs")  # Unicode categories
_MAX_NAME_BYTES = 200  # file systems take 255; a suffix that makes names unique may be added

log = logging.getLogger(__name__)

OnProgress = Callable[[float, float, str], None]  # done, total, message


@contextmanager
def open_root(settings: Settings) -> Iterator[DataRoot]:
    """The data root; its ledger is closed on exit."""
    root = DataRoot.open(settings)
    try:
        yield root
    finally:
        root.ledger.close()


# --- ingest -------------------------------------------------------------------------------------


def allowed_path(given: str, roots: Sequence[Path], home: Path) -> Path:
    """The resolved path of a file or folder inside one of the roots; hidden ones and those of the
    data root are refused.

    Raises InputError `path_not_allowed`, with the same text for a path outside and a missing one.
    """
    if not roots:
        raise InputError(
            "no folder is open to assistants: the user names some with `rag serve --root FOLDER` or"
            " server.ingest_roots; content and url need none",
            code="path_not_allowed",
        )
    allowed = [root.expanduser().resolve() for root in roots]
    for root in allowed:
        try:
            # a relative path is relative to a root, and may begin with the root's own name
            path = (root / Path(given).expanduser()).resolve()
            if not path.exists():
                path = (root.parent / given).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            continue
        inside = path.is_relative_to(root) and not path.is_relative_to(home)
        if inside and not any(part.startswith(".") for part in path.relative_to(root).parts):
            return path
    raise InputError(
        f"{Path(given).name[:80]!r} is not there, or in no folder that is open to assistants"
        f" ({', '.join(root.name for root in allowed)}); name a file or folder below one of these",
        code="path_not_allowed",
    )


def ingest(
    settings: Settings,
    given: Sequence[Input],
    namespace: str,
    options: ReceiveOptions,
    wait: float = 0.0,
) -> JobData:
    """Start a job that ingests files, folders, URLs or contents; while another job is running, its
    end is awaited for at most `wait` seconds. Raises what `start_ingest` raises.
    """
    from rag_platform.ingestion.job_start import start_ingest
    from rag_platform.intake.receiving import check_namespace

    check_namespace(namespace)
    with open_root(settings) as root:
        started = start_ingest(given, namespace, root.workspace(namespace), options, wait=wait)
        watch(started, settings)
        return job_data(started.job.job_id, root)


def owned_path(given: str, home: Path) -> Path:
    """The resolved path of a file or folder named by the owner of the data root; any path is
    allowed that does not overlap the data root. Raises InputError `missing_path`,
    `path_not_allowed`.
    """
    from rag_platform.intake.discovery import why_missing

    try:
        path = Path(given).expanduser().resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        code, reason = why_missing(given)
        raise InputError(reason, code=code) from error
    if path.is_relative_to(home.resolve()) or home.resolve().is_relative_to(path):
        raise InputError(
            f"{path.name!r} holds the data root, or is part of it; name the folder of your files",
            code="path_not_allowed",
        )
    return path


def parse_input(
    path: str | None, url: str | None, content: str | None, filename: str | None, settings: Settings
) -> Input:
    """The input of a call, which must give exactly one of path, url and content. Raises InputError,
    also for a path that is not allowed and for content without a file name.
    """
    from rag_platform.intake.discovery import Content
    from rag_platform.intake.fetching import is_url

    given = [name for name, value in (("path", path), ("url", url), ("content", content)) if value]
    if len(given) != 1:
        raise InputError(
            f"give one of path, url and content, not {' and '.join(given) or 'none'}",
            code="one_input",
        )
    if path:
        return allowed_path(path, settings.server.ingest_roots, settings.home)
    if url:
        if not is_url(url):
            raise InputError(f"{url[:80]!r} is no http:// or https:// address", code="bad_url")
        return url.strip()
    return Content(file_name(filename or ""), (content or "").encode())


def file_name(given: str, *, needs_suffix: bool = True) -> str:
    """The last part of a file name given by a client, without invisible characters (control
    characters, marks of writing direction). Raises InputError `bad_filename` for a name that is
    empty, too long or without a suffix that it needs.
    """
    visible = "".join(char for char in given if unicodedata.category(char) not in _INVISIBLE)
    name = Path(visible.replace("\\", "/")).name
    part = Path(name).suffix if needs_suffix else name.strip(". ")
    if not part or len(name.encode()) > _MAX_NAME_BYTES:
        raise InputError(
            f"filename {given[:80]!r}: content needs one with a suffix, e.g. notes.md, of at most"
            f" {_MAX_NAME_BYTES} bytes",
            code="bad_filename",
        )
    return name


# --- delete -------------------------------------------------------------------------------------


def delete(
    settings: Settings,
    namespace: str,
    doc_id: str,
    version_id: str | None = None,
    *,
    mode: str = "soft",
    confirm: str | None = None,
    on_hidden: Callable[[str, str], object] = lambda namespace, source_uri: None,
) -> DeletionData:
    """The plan of a deletion with the code that confirms it; called with that code as `confirm`,
    start the deletion.

    The code is valid for this plan only: any change of the document requires a new one. `on_hidden`
    is called with namespace and source_uri as by `start_delete`. Raises InputError
    `wrong_confirmation`, and what `plan_delete` raises.
    """
    from rag_platform.releases.deletion import plan_delete, start_delete

    with open_root(settings) as root:
        plan = plan_delete(namespace, doc_id, root, version_id, mode=mode)
        planned = plan.data()
        code = fingerprint(namespace, planned, length=8)
        planned["confirm"] = code
        data = cast(DeletionData, planned)
        if confirm is None:
            data["markdown"] += (
                f"\nNothing is deleted yet. Show this to the user; if they agree, call again with"
                f" confirm `{code}`."
            )
            return data
        if confirm != code:
            raise InputError(
                f"confirm {confirm[:20]!r} does not belong to this deletion as it is now; call"
                " without confirm, and show the user what would go",
                code="wrong_confirmation",
            )
        started = start_delete(plan, root, partial(on_hidden, namespace))
        for it in (*started.old_names, started):
            watch(it, settings)
        data["job"] = job_data(started.job.job_id, root)
        hidden = f"{started.document.source_uri} is hidden from every reader."
        data["markdown"] = f"{hidden}\n{data['job']['markdown']}"
        return data


# --- jobs ---------------------------------------------------------------------------------------


def get_job(
    settings: Settings, job_id: str, *, wait: float = 0.0, on_progress: OnProgress | None = None
) -> JobData:
    """A job once it has ended, or its state after `wait` seconds. Raises what `require_job`
    raises.
    """
    until = time.monotonic() + min(wait, MAX_WAIT_SECONDS)
    with open_root(settings) as root:
        jobs.end_orphans(root.ledger, settings.jobs)
        while True:
            job = require_job(root, job_id)
            if on_progress is not None:
                done, total = job.progress.get("done", 0), job.progress.get("total", 0)
                on_progress(done, total, str(job.progress.get("stage", job.state)))
            if job.state in jobs.FINAL_STATES or time.monotonic() >= until:
                return job_data(job_id, root)
            time.sleep(_POLL_SECONDS)


def list_jobs(
    settings: Settings, namespaces: Collection[str] | None = None, limit: int = 10
) -> list[JobData]:
    """The newest jobs of the namespaces (None: all)."""
    with open_root(settings) as root:
        jobs.end_orphans(root.ledger, settings.jobs)
        names = (None,) if namespaces is None else namespaces
        found = [job for name in names for job in root.ledger.jobs(name, limit)]
        newest = sorted(found, key=lambda job: job.created_at, reverse=True)[:limit]
        return [job_data(job.job_id, root) for job in newest]


def cancel_job(settings: Settings, job_id: str) -> JobData:
    """Stop a job; documents that it has finished stay ingested. Raises what `require_job` raises,
    and NotFoundError `nothing_to_cancel`.
    """
    with open_root(settings) as root:
        require_job(root, job_id)
        jobs.cancel(job_id, root.ledger, settings.jobs)
        return job_data(job_id, root)


def require_job(root: DataRoot, job_id: str) -> Job:
    """A job that the caller may see, as it stands; one for the whole data root only if they may see
    all. Raises the same NotFoundError for a hidden as for a missing one.
    """
    job = jobs.as_it_stands(root.ledger.job(job_id), root.ledger, root.settings.jobs)
    if not access.current().may_see(job.namespace):
        raise unknown_job(job_id)
    return job


def watch(started: jobs.Started, settings: Settings) -> None:
    """Start a thread that waits for a job's process and records the end."""
    if started.process is None:
        return
    job_id = started.job.job_id

    def follow() -> None:
        with (
            faults.Attempt("job.watch", logs_dir=Store.of(settings).logs_dir) as attempt,
            open_root(settings) as root,
        ):
            jobs.wait(started, root.ledger, root.store, policy=settings.jobs)
        if attempt.error is not None:
            what = faults.describe(attempt.error)
            log.error("nothing records the end of job %s: %s", job_id, what)

    threading.Thread(target=follow, name=f"watch {job_id}", daemon=True).start()


def job_data(job_id: str, root: DataRoot) -> JobData:
    """A job as clients see it, without absolute paths and process ids."""
    job = jobs.as_it_stands(root.ledger.job(job_id), root.ledger, root.settings.jobs)
    items = jobs.displayed_items(root.ledger.job_items(job_id), job)
    failed = [item for item in items if item.state == "failed"]
    changed = [item for item in items if item.decision != "skip"]
    data = cast(
        JobData,
        {
            "markdown": "",
            **job_progress(job),
            "documents": [
                {name: getattr(item, name) for name in _ITEM_FIELDS}
                for item in (changed or items)[:_MAX_LISTED]
            ],
            "count": len(items),
            "skipped": len(items) - len(changed),
            "failed": len(failed),
            "failures": [
                {"source_uri": item.source_uri, "code": item.code, "reason": item.reason}
                for item in failed[:_MAX_LISTED]
            ],
        },
    )
    data["markdown"] = _markdown(data)
    return data


def job_progress(job: Job) -> JobProgress:
    """The fields of a job that lists and details share, without absolute paths."""
    summary = jobs.summary(job)
    return fill_shape(
        JobProgress,
        summary,
        reason=without_paths(job.reason),
        stage=str(job.progress.get("stage", "")),
        done=int(job.progress.get("done", 0)),
        total=int(job.progress.get("total", 0)),
        seconds=round(summary["seconds"], 1),
        created_at=job.created_at,
    )


def _markdown(data: JobData) -> str:
    running = data["state"] not in jobs.FINAL_STATES
    library = f" of {data['namespace']}" if data["namespace"] else ""  # evaluations have none
    line = f"**{data['job_id']}** ({data['kind']}{library}): {data['state']}"
    if running and data["stage"]:
        line += f", {data['stage']} {data['done']} of {data['total']}"
    if data["seconds_left"] is not None:
        line += f", about {data['seconds_left']:.0f} s left"
    lines = [f"{line}."]
    if data["reason"]:
        lines.append(f"[{data['code']}] {data['reason']}" if data["code"] else data["reason"])
    for it in data["documents"]:
        if it["state"] != "failed":  # failures are listed below, with their reasons
            name = f"`{it['doc_id']}`" if it["doc_id"] else f"({it['decision']})"
            lines.append(f"- {it['state']}: {it['source_uri']} {name}")
    if (more := data["count"] - len(data["documents"])) > 0:
        skipped = data["skipped"] if data["skipped"] < data["count"] else 0
        lines.append(f"- and {more} more" + (f", {skipped} of them unchanged" if skipped else ""))
    lines += [
        f"- failed: {it['source_uri']}: [{it['code']}] {it['reason']}" for it in data["failures"]
    ]
    return "\n".join(lines)
