"""The shapes for the maintenance pages: versions, chunks, drafts, jobs, releases, and the overview
of a library.
"""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from rag_platform.contract.schema import ChunkPart, JobProgress, JobStatus, SectionPart
from rag_platform.contract.traces import CacheFigures, KindFigures, ModelFigures, SourceImage


class VersionRow(TypedDict):
    """A version of a document; `drift` is the difference of its build from the previous one."""

    version_id: str
    received_at: str
    completed_at: str
    status: str  # received | ready | failed | dead | purged
    live: bool
    pinned: bool
    wanted: bool  # the version last seen in the source
    deleted_at: str
    size: int
    chunks: int | None
    edition: str
    revision: int
    releases: list[str]
    attempts: int
    code: str
    reason: str
    drift: dict[str, Any] | None


class DocumentDetail(TypedDict):
    """A document from the ledger, its versions newest first, and the outline of its published
    version; `unread` says why there is none.
    """

    namespace: str
    doc_id: str
    source: str
    source_uri: str
    filename: str
    title: str
    tags: list[str]
    categories: list[str]
    metadata: dict[str, Any]
    status: str  # active | pending | failed | retired | deleted
    problem: str  # why its newest version failed
    pinned: bool
    live_version: str | None
    wanted_version: str | None
    created_at: str
    updated_at: str
    versions: list[VersionRow]
    release_id: str
    sections: list[SectionPart]
    chunks: int
    unread: str


class VersionDiff(TypedDict):
    """The differences of two versions of a document; `sections` and `chunks` each have `added`,
    `removed`, `changed` and the number `unchanged`.
    """

    markdown: str
    doc_id: str
    source_uri: str
    before: str
    after: str
    profiles: dict[str, str]
    sections: dict[str, Any]
    chunks: dict[str, Any]


class ChunksData(TypedDict):
    """Published chunks of a document in reading order; `total` is of all pages."""

    namespace: str
    doc_id: str
    version_id: str
    release_id: str
    chunks: list[ChunkPart]
    total: int
    next_cursor: str | None


class ChunkDetail(TypedDict):
    """A published chunk with its place and its texts for the retrievers."""

    namespace: str
    release_id: str
    doc_id: str
    doc_title: str
    version_id: str
    source_uri: str
    content_type: str
    status: str  # ready | failed_embed | no_text
    chunk: ChunkPart
    token_count: int
    text_len: int
    lang: str
    chunk_type: str
    parent_id: str
    before: str  # chunk_id of the previous chunk of the document, empty at the beginning
    after: str
    dense_text: str
    sparse_text: str
    keyphrases: list[str]
    quality_score: float | None
    view_title: str
    view_summary: str
    view_tags: list[str]
    images: list[SourceImage]


class DraftRow(TypedDict):
    """A draft in a list."""

    doc_id: str
    state: str  # open | published | unreleased (readers do not see it)
    operations: int
    conflicts: int
    version_id: str
    outdated: bool  # based on another version than the live one
    updated_at: str


class DraftsData(TypedDict):
    """The drafts of a namespace."""

    markdown: str
    drafts: list[DraftRow]


class DraftConflict(TypedDict):
    """An operation that does not apply to the live version."""

    operation: dict[str, Any]
    code: str
    reason: str


class DraftChunk(TypedDict):
    """A chunk of a draft."""

    chunk_id: str
    section_path: str
    text: str
    edited: bool
    edited_from: list[str]
    disabled: bool
    parent: bool
    parent_id: str


class DraftData(TypedDict):
    """A draft of a document's chunks; `state` is none if nothing was edited yet."""

    markdown: str
    doc_id: str
    version_id: str
    live_version: str
    state: str  # none | open | published | unreleased
    operations: list[dict[str, Any]]
    conflicts: list[DraftConflict]
    chunks: list[DraftChunk]
    total: NotRequired[int]  # chunks of all pages
    cursor: NotRequired[str]  # of this page
    next_cursor: NotRequired[str | None]


class DraftPreview(TypedDict):
    """What publishing a draft would change."""

    markdown: str
    doc_id: str
    version_id: str
    operations: int
    conflicts: int
    changed: list[str]
    gone: list[str]
    moved: list[str]
    disabled: list[str]
    chunks: int
    chunks_added: int
    chunks_removed: int
    embeddings_to_compute: int
    warnings: list[str]


class JobRow(JobProgress):
    """A job in a list; `counts` are its documents by state."""

    message: str
    started_at: str
    ended_at: str
    trace_id: str
    retry_of: str
    run_url: str  # in the Dagster UI; empty if its address is not configured
    counts: dict[str, int]


class StageProgress(TypedDict):
    """The progress of a stage of a job."""

    name: str
    done: int
    total: int
    growing: bool  # `total` may still increase
    rate_per_s: float | None
    seconds_left: float | None


class JobItemRow(TypedDict):
    """A document of a job."""

    source_uri: str
    doc_id: str
    version_id: str
    decision: str
    state: str  # queued | unprocessed | done | failed | skipped | ignored | kept | cancelled
    code: str
    reason: str
    attempts: int


class JobDetail(JobRow):
    """A job with its stages, its result, and a page of its documents, failed ones first."""

    stages: list[StageProgress]
    result: dict[str, Any]
    items: list[JobItemRow]
    next_cursor: str | None


class JobPage(TypedDict):
    """Jobs, newest first."""

    jobs: list[JobRow]
    next_cursor: str | None


class UploadedFile(TypedDict):
    """An uploaded file that is not ingested yet."""

    name: str
    size: int


class RefusedFile(TypedDict):
    """A file that an upload left out."""

    name: str
    code: str
    reason: str


class UploadData(TypedDict):
    """Uploaded files that are not ingested yet, with the id of their upload."""

    upload_id: str
    files: list[UploadedFile]
    refused: list[RefusedFile]


class PreviewData(TypedDict):
    """The result that ingesting a file would have."""

    markdown: str
    filename: str
    mime: str
    loader: str
    strategy: str
    title: str
    pages: int
    text_chars: int
    sections: list[str]  # paths
    chunks: list[dict[str, Any]]
    chunks_total: int
    images: int
    edits: dict[str, int]
    quality: dict[str, Any]
    warnings: list[str]
    seconds: dict[str, float]


class ReleaseRow(TypedDict):
    """A release with its state, size, difference from its parent, and checks."""

    release_id: str
    parent: str | None
    state: str  # candidate | published | rejected | retired | dropped | lost
    strategy: str
    strategy_config_id: str
    created_at: str
    published_at: str
    reason: str
    pinned: bool
    documents: int
    chunks: int
    bytes: int
    bytes_alone: int
    delta: dict[str, Any]
    kept: bool  # its files exist
    checks: list[dict[str, Any]]  # name, passed, overruled, details


class ReleasesData(TypedDict):
    """The releases of a namespace, newest first; `keep` is the number that retention keeps."""

    namespace: str
    keep: int
    can_roll_back: bool
    can_go_forward: bool
    releases: list[ReleaseRow]


class ReleaseDiffData(TypedDict):
    """The differences of two releases: documents, chunks, and hits of the latest questions."""

    markdown: str
    namespace: str
    before: str
    after: str
    documents: list[dict[str, Any]]
    unchanged: int
    hidden: int
    chunks: dict[str, int]
    queries: list[dict[str, Any]]
    wordless: int


class DeletionProof(TypedDict):
    """The data of a document that remains in each store."""

    markdown: str
    doc_id: str
    remaining: dict[str, int]
    total: int
    shared: dict[str, int]
    not_looked_into: list[str]


class ComponentPart(TypedDict):
    """The provider of a module."""

    module: str
    provider_id: str
    version: str
    profile_id: str
    options: dict[str, Any]


class TotalPart(TypedDict):
    """A total, and the number added in the last 24 hours."""

    name: str  # documents | chunks | images
    total: int
    last_24h: int


class OverviewData(TypedDict):
    """One library. `health`, `caches` and `model_calls` are statistics of the traces of the last
    `days`, `process_caches` of this process; `troubled` are other libraries with problems.
    """

    namespace: str
    namespaces: list[str]
    release_id: str
    published_at: str
    strategy: str
    strategy_config_id: str
    components: list[ComponentPart]
    totals: list[TotalPart]
    pending: int
    failed: int
    days: int
    health: list[KindFigures]
    last_24h: dict[str, int]
    failed_24h: dict[str, int]
    caches: list[CacheFigures]
    process_caches: dict[str, Any]
    model_calls: list[ModelFigures]
    problems: list[str]
    troubled: list[str]
    jobs: list[JobStatus]
    app_version: str
    uptime_seconds: float


class DiskPart(TypedDict):
    """One part of the data root and its size."""

    name: str
    bytes: int


class DiskData(TypedDict):
    """Disk use, the largest part first; `free` is the space left on the file system."""

    total: int
    free: int
    parts: list[DiskPart]
