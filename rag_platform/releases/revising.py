"""Edits that a person makes to a document: its live version, title, tags, categories and metadata.

Each is a job in the ledger, because it needs a new release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rag_platform.config.profiles import stage_profiles
from rag_platform.documents.lookup import find_version
from rag_platform.documents.outputs import Outputs
from rag_platform.errors import InputError
from rag_platform.ir import Document, Json
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Job, JobItem, now
from rag_platform.processes import jobs
from rag_platform.processes.jobs import Started
from rag_platform.releases.release_store import current_or_empty, list_newer
from rag_platform.releases.version_history import require_kept
from rag_platform.workspace import DataRoot, Workspace


@dataclass(frozen=True, slots=True)
class Edits:
    """What to change in a document; a `title` of "" restores the title found in its file."""

    title: str | None = None
    tags: tuple[str, ...] = ()
    untag: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    uncategory: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    unmeta: tuple[str, ...] = ()


# --- which version is live ----------------------------------------------------------------------


def start_live(document: Document, version: str | None, workspace: Workspace) -> Started:
    """Launch the job that pins a version as the live one, whatever its source holds, or without a
    version unpins the document, so that it follows its source again.

    A version whose outputs belong to another config is built first; nothing changes until then.
    Raises NotFoundError for an unknown, deleted or collected version, InputError `not_pinned` when
    nothing is pinned.
    """
    ledger = workspace.ledger
    versions = ledger.versions(document.namespace, document.doc_id)
    if version is None:
        if not document.pinned:
            raise InputError(
                f"{document.doc_id} is not pinned: it follows its source", code="not_pinned"
            )
        wanted = document.wanted_version
        target = next(
            (v for v in versions if v.version_id == wanted and v.status != "purged"), None
        )
    else:
        target = find_version(document, versions, version)
        require_kept(target, document, ledger)
    profile = stage_profiles(workspace.strategy)["embeddings"]
    build = [target] if target is not None and not target.is_complete(profile) else []
    version_ids = [incomplete.version_id for incomplete in build]
    ledger.revive(version_ids)
    items = [
        JobItem(document.source_uri, document.doc_id, version_id, "continue")
        for version_id in version_ids
    ]
    args = {
        "version_ids": version_ids,
        "release": True,
        "doc_id": document.doc_id,
        "live": target.version_id if target is not None and version is not None else "",
    }
    return _start_job("live", document.namespace, args, items, workspace)


def go_live(job: Job, ledger: Ledger) -> None:
    """Finish a `live` job after its version was built: pin the version, or unpin the document."""
    if version_id := job.args["live"]:
        ledger.pin(job.namespace, job.args["doc_id"], version_id)
    else:
        ledger.unpin(job.namespace, job.args["doc_id"])


# --- what a document carries --------------------------------------------------------------------


def start_edit(document: Document, edits: Edits, workspace: Workspace) -> Started | None:
    """Launch the job whose release shows the edited document; None when nothing would change. A
    title given by a user is kept as metadata `title`, so newer versions keep it. Raises InputError
    `not_there` for removing a tag that the document does not have.
    """
    edited = _apply_edits(document, edits)
    if edited.metadata.get("title") != document.metadata.get("title"):
        edited = replace(
            edited,
            title=str(edited.metadata.get("title") or _find_title(document, workspace)),
        )
    if edited == document:
        return None
    workspace.ledger.put_document(edited)
    args = {
        "version_ids": [],
        "release": document.live_version is not None,
        "doc_id": document.doc_id,
    }
    return _start_job("edit", document.namespace, args, [], workspace)


def _apply_edits(document: Document, edits: Edits) -> Document:
    metadata = {**document.metadata, **edits.metadata}
    if edits.title is not None:
        metadata["title"] = edits.title.strip()
    unmeta = {*edits.unmeta, *([] if metadata.get("title", "-") else ["title"])}
    for what, to_remove, present in (
        ("tag", edits.untag, document.tags),
        ("category", edits.uncategory, document.categories),
        ("metadata", edits.unmeta, tuple(document.metadata)),
    ):
        if unknown := [name for name in to_remove if name not in present]:
            listed = ", ".join(present) or "none"
            raise InputError(
                f"{document.doc_id} was given no {what} {unknown[0]!r} (it has {listed}; what its"
                " file says is not edited)",
                code="not_there",
            )
    return replace(
        document,
        tags=tuple(sorted({*document.tags, *edits.tags} - {*edits.untag})),
        categories=tuple(sorted({*document.categories, *edits.categories} - {*edits.uncategory})),
        metadata={key: value for key, value in metadata.items() if key not in unmeta},
    )


def _find_title(document: Document, workspace: Workspace) -> str:
    """The title found in the live version; the file name when nothing was built."""
    if document.live_version is None:
        return document.filename
    store, version = workspace.store, workspace.ledger.version(document.live_version)
    outputs = Outputs(version, store, stage_profiles(workspace.strategy))
    return outputs.title if outputs.summary_path.is_file() else document.filename


# --- jobs ---------------------------------------------------------------------------------------


def _start_job(
    kind: str, namespace: str, args: Json, items: Sequence[JobItem], root: DataRoot
) -> Started:
    ledger = root.ledger
    published = current_or_empty(root.store, namespace)
    if args["release"] and list_newer(namespace, published, root.store, ledger):
        args = {**args, "ends_rollback_to": published}
    job = ledger.add_job(kind, namespace, args, items)
    if not args["release"]:
        ledger.update_job(job.job_id, state="done", started_at=now(), ended_at=now())
        return Started(ledger.job(job.job_id), None)
    return jobs.launch(job, root.settings, root.store)


def live_data(job: Job, document: Document, release_id: str | None) -> Json:
    """The payload of a finished `live` job."""
    live, wanted = document.live_version, document.wanted_version
    if document.pinned:
        text = f"{document.doc_id} is pinned to {live}"
        text += "." if wanted in (None, live) else f"; its source holds {wanted}."
    else:
        text = f"{document.doc_id} follows its source; {live or 'nothing of it'} is live."
    text += f" Release {release_id} of library {document.namespace!r} is published."
    return {
        "markdown": "\n".join([text, *_ended_rollback(job)]),
        "job_id": job.job_id,
        "doc_id": document.doc_id,
        "live_version": live,
        "wanted_version": wanted,
        "pinned": document.pinned,
        "release_id": release_id,
    }


def _ended_rollback(job: Job) -> list[str]:
    """A warning where the job's release holds again what a rollback had taken back."""
    if not (release_id := job.args.get("ends_rollback_to")):
        return []
    return [
        f"Warning: this ended the rollback to {release_id}: what came after it is published again;"
        f" `rag releases rollback {release_id} --namespace {job.namespace}` takes it back."
    ]


def edit_data(document: Document, job: Job | None) -> Json:
    """The payload of an edit; `job` is None when nothing changed."""
    values = {
        "title": document.title,
        "tags": list(document.tags),
        "categories": list(document.categories),
        "metadata": document.metadata,
    }
    lines = [f"{document.doc_id}:" if job else f"{document.doc_id} is so already:"]
    for name, value in values.items():
        if isinstance(value, dict):
            value = [f"{key}={item}" for key, item in value.items()]
        if value:
            lines.append(f"- {name}: {', '.join(value) if isinstance(value, list) else value}")
    lines += _ended_rollback(job) if job else []
    return {
        "markdown": "\n".join(lines),
        "doc_id": document.doc_id,
        "changed": job is not None,
        "job_id": job.job_id if job else None,
        **values,
    }
