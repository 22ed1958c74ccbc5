"""Reads and changes drafts of a document's chunks, for the web pages; publishing starts a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from rag_platform.api.cursors import make_cursor, read_offset
from rag_platform.api.writing import job_data, open_root, watch
from rag_platform.config.settings import Settings
from rag_platform.contract.schema import JobData
from rag_platform.contract.upkeep_shapes import DraftData, DraftPreview, DraftsData

if TYPE_CHECKING:
    from subprocess import Popen

    from rag_platform.drafts.lifecycle import Drafts, Opened
    from rag_platform.ledger.schema import Job


@contextmanager
def _drafts(settings: Settings, namespace: str) -> Iterator[Drafts]:
    from rag_platform.drafts.lifecycle import Drafts

    with open_root(settings) as root:
        yield Drafts(namespace, root.workspace(namespace, root.bound_strategy(namespace)))


def list_drafts(settings: Settings, namespace: str) -> DraftsData:
    from rag_platform.drafts.reports import list_data

    with open_root(settings) as root:
        if namespace not in root.ledger.namespaces():
            return {"markdown": "", "drafts": []}
    with _drafts(settings, namespace) as drafts:
        return cast(DraftsData, list_data(drafts))


def show_draft(
    settings: Settings,
    namespace: str,
    doc_id: str,
    *,
    limit: int = 50,
    cursor: str | None = None,
    chunk_id: str = "",
) -> DraftData:
    """The draft of a document (an empty one if there is none) with a page of its chunks, which
    begins at `chunk_id` if that is given. Raises NotFoundError, ReleaseError `stale_versions`.
    """
    from rag_platform.drafts.reports import show_data

    with _drafts(settings, namespace) as drafts:
        draft = drafts.open(doc_id)
        pieces = draft.edited.pieces
        begin = read_offset(cursor)
        if chunk_id:
            names = (piece.chunk.chunk_id for piece in pieces)
            begin = next((n for n, name in enumerate(names) if name == chunk_id), 0)
        end = begin + limit
        page = pieces[begin:end]
        data = show_data(replace(draft, edited=replace(draft.edited, pieces=page)))
        following = make_cursor(end) if end < len(pieces) else None
        places = {"cursor": make_cursor(begin), "next_cursor": following}
        return cast(DraftData, {**data, **places, "total": len(pieces)})


def preview_draft(settings: Settings, namespace: str, doc_id: str) -> DraftPreview:
    """The changes that publishing the draft would make."""
    from rag_platform.drafts.reports import preview_data

    with _drafts(settings, namespace) as drafts:
        return cast(DraftPreview, preview_data(drafts.open(doc_id)))


def change_draft(
    settings: Settings, namespace: str, change: Callable[[Drafts], Opened]
) -> DraftData:
    """The draft after a change, without its chunks. Raises InputError."""
    from rag_platform.drafts.reports import show_data

    with _drafts(settings, namespace) as drafts:
        return cast(DraftData, show_data(change(drafts), with_chunks=False))


def start_job(
    settings: Settings, namespace: str, start: Callable[[Drafts], tuple[Job, Popen[bytes]]]
) -> JobData:
    """The job that `start` launches. Raises InputError, with conflicts in its details."""
    with _drafts(settings, namespace) as drafts:
        job, process = start(drafts)
        watch(job, process, settings)
        return job_data(job.job_id, drafts.workspace)
