"""The request and the result of an ingestion, its callbacks, and the state of one version in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rag_platform.config.profiles import stage_profiles
from rag_platform.documents.versions import VersionBuild
from rag_platform.drafts.lifecycle import Edition
from rag_platform.errors import RagError
from rag_platform.ir import Json, StageOutcome, Version
from rag_platform.workspace import Workspace


@dataclass(frozen=True)
class Hooks:
    """Callbacks of an ingestion; only `on_progress` may be called from other threads."""

    on_outcome: Callable[[Version, StageOutcome], None] = lambda version, outcome: None
    # (version, stage, error) for a version that failed for good
    on_failure: Callable[[Version, str, RagError], None] = lambda version, stage, error: None
    # versions whose outcomes have all been reported, before the ledger marks them ready
    on_embedded: Callable[[Sequence[Version]], None] = lambda versions: None
    # (stage, done, total, message)
    on_progress: Callable[[str, int, int, str], None] = lambda stage, done, total, message: None


@dataclass(frozen=True)
class Request:
    """The arguments of `ingest_versions`."""

    versions: Sequence[Version]
    workspace: Workspace
    forced: Collection[str]
    drafted: Mapping[str, Sequence[Json]]
    stages: Sequence[str]
    hooks: Hooks
    decisions: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def profiles(self) -> dict[str, str]:
        """Stage to profile."""
        return stage_profiles(self.workspace.strategy)

    @cached_property
    def _documents_with_drafts(self) -> set[str]:
        namespaces = {version.namespace for version in self.versions}
        return {d.doc_id for name in namespaces for d in self.workspace.ledger.drafts(name)}

    def is_edited(self, version: Version) -> bool:
        """True for a version with an edition, or of a document that has a draft."""
        return bool(
            version.edition
            or version.version_id in self.drafted
            or version.doc_id in self._documents_with_drafts
        )


@dataclass
class IngestionTotals:
    """The result of an ingestion; `failures` holds (source_uri, code, reason) tuples."""

    documents: int = 0
    chunks: int = 0
    embeddings_computed: int = 0
    embeddings_reused: int = 0
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def warn(self, version: Version, warnings: Sequence[str]) -> None:
        """Add the warnings about a version."""
        self.warnings += [f"{version.source_uri}: {warning}" for warning in warnings]


@dataclass(eq=False)
class VersionRun:
    """One version during its ingestion."""

    work: VersionBuild
    replaced: Version | None  # another version that was live when the build began
    edition: Edition | None = None
    drift: Json = field(default_factory=dict)  # figures of `measure_drift` for the ledger

    @property
    def version(self) -> Version:
        """The version."""
        return self.work.version
