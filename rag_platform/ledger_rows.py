"""Rows of the ledger that no stage reads: where documents come from, what was done, published and deleted."""

from __future__ import annotations

from dataclasses import dataclass, field

from rag_platform.ir import Json


@dataclass(frozen=True, slots=True)
class Source:
    """A named root from which documents come."""

    namespace: str
    name: str
    kind: str  # folder | files | inline | urls
    root: str  # absolute path of a folder, empty otherwise
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    created_at: str = ""
    on_gone: str = "retire"  # retire | keep: what becomes of a document whose file is gone


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of writing work, run in a child process."""

    job_id: str
    kind: str  # ingest | rebuild | edit | live | delete | gc | draft; of Dagster's own runs: ingest | release | sync
    namespace: str
    state: str = "queued"  # queued | running | cancelling | done | partly | failed | cancelled
    args: Json = field(default_factory=dict)
    progress: Json = field(default_factory=dict)
    result: Json = field(default_factory=dict)
    reason: str = ""
    pid: int = 0
    trace_id: str = ""
    created_at: str = ""
    started_at: str = ""
    ended_at: str = ""
    process: Json = field(default_factory=dict)  # host, boot_id and pid_namespace in which `pid` counts, and when it started
    heartbeat_at: str = ""  # when the process said last that it lives


@dataclass(frozen=True, slots=True)
class JobItem:
    """One document of a job."""

    source_uri: str
    doc_id: str
    version_id: str
    decision: str  # new | new_version | continue | skip | dead | ignored | refused
    state: str = "queued"  # queued | done | failed | dead | skipped | cancelled
    code: str = ""
    reason: str = ""
    job_id: str = ""
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Release:
    """The ledger's row about a release; the release itself is a directory with a manifest."""

    namespace: str
    release_id: str
    parent: str | None
    state: str  # candidate | published | rejected | retired | dropped (its files are gone)
    strategy: str
    strategy_config_id: str
    created_at: str
    published_at: str = ""
    counts: Json = field(default_factory=dict)
    reason: str = ""
    pinned: bool = False  # kept whatever retention says


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A deletion of a document or of one version; every release built before it hides what it names, for good.

    `lifted_at` says since when the document may be in later releases again.
    """

    sequence: int
    namespace: str
    doc_id: str
    version_id: str | None
    mode: str  # soft | hard
    created_at: str
    lifted_at: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """Edits of a document's chunks by hand; a document has one, and publishing it makes an edition of the version."""

    namespace: str
    doc_id: str
    version_id: str  # whose chunks the operations name
    operations: tuple[Json, ...] = ()  # in the order they were made
    conflicts: tuple[Json, ...] = ()  # operations whose chunks the newest version no longer has, with the reason
    state: str = "open"  # open | published
    created_at: str = ""
    updated_at: str = ""
