"""Drafts of a namespace: based on the live version of a document, changed one operation at a time,
published by a job.

A document has one draft. Publishing makes an edition of the live version and releases it; the draft
stays, and further edits continue it. Edits made for an older version that do not apply to the live
one are conflicts.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rag_platform.config.profiles import edition_name, stage_profiles
from rag_platform.documents.lookup import find_document
from rag_platform.documents.versions import VersionBuild
from rag_platform.drafts.editions import (
    all_operations,
    base_of,
    conflicts_of,
    draft_of,
    published_operations,
)
from rag_platform.drafts.operations import Base, Edited, apply, extend
from rag_platform.errors import InputError, NotFoundError, ReleaseError
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Draft, Job, JobItem
from rag_platform.processes import jobs
from rag_platform.releases import release_store as releases
from rag_platform.releases.manifest import read_manifest
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Opened:
    """A draft applied to the live version of its document. `edited.problems` are its conflicts,
    `published` the operations published now, `work` gives access to the version's outputs.
    """

    document: Document
    version: Version
    draft: Draft
    work: VersionBuild
    base: Base
    edited: Edited
    published: tuple[Json, ...]
    stored: bool

    @property
    def outdated(self) -> bool:
        """True when the draft was made for another version than the live one."""
        return self.draft.version_id != self.version.version_id

    @property
    def changes(self) -> bool:
        """True when publishing would change the published operations."""
        return self.edited.operations != self.published


@dataclass(frozen=True)
class Drafts:
    """The drafts of one namespace; `workspace` has the strategy that the namespace is bound to."""

    namespace: str
    workspace: Workspace

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return self.workspace.ledger

    @property
    def store(self) -> Store:
        """The store."""
        return self.workspace.store

    def open(self, doc_id: str) -> Opened:
        """The draft of a document, or a new one that is not stored; `doc_id` may be abbreviated as
        in `find_document`.

        Raises NotFoundError, InputError `ambiguous`, ReleaseError `stale_versions`.
        """
        document = find_document(self.ledger, self.namespace, doc_id)
        doc_id = document.doc_id
        if document.live_version is None:
            raise NotFoundError(
                f"document {doc_id} has no live version ({document.status}); ingest it first",
                code="not_live",
            )
        version = self.ledger.version(document.live_version)
        strategy = self.workspace.strategy
        work = VersionBuild(version, strategy, self.workspace.settings, self.store)
        if (
            version.counts.get("profile") != stage_profiles(strategy)["embeddings"]
            or not work.path("chunks").is_file()
        ):
            raise ReleaseError(
                f"{version.version_id} was built under another config; run `rag rebuild` first",
                code="stale_versions",
            )
        published = published_operations(self.ledger, document)
        stored = draft_of(self.ledger, self.namespace, doc_id)
        draft = stored or Draft(self.namespace, doc_id, version.version_id, published)
        base = base_of(work)
        return Opened(
            document,
            version,
            draft,
            work,
            base,
            apply(base, all_operations(draft)),
            published,
            stored is not None,
        )

    def add(self, doc_id: str, operation: Json) -> Opened:
        """Add an operation to the draft. Raises InputError if it cannot be applied, or if the draft
        was made for an older version.
        """
        with self.store.drafting(self.namespace):
            opened = self._open_current(doc_id)
            return self._keep(replace(opened, edited=extend(opened.base, opened.edited, operation)))

    def undo(self, doc_id: str) -> tuple[Opened, Json]:
        """Remove the last operation: (the draft, that operation). Raises NotFoundError if there is
        none, InputError `outdated_draft`.
        """
        with self.store.drafting(self.namespace):
            opened = self._open_current(doc_id)
            operations = all_operations(opened.draft)
            if not operations:
                raise NotFoundError(
                    f"the draft of {doc_id} has no operation to undo", code="nothing_to_undo"
                )
            return (
                self._keep(replace(opened, edited=apply(opened.base, operations[:-1]))),
                operations[-1],
            )

    def discard(self, doc_id: str) -> Opened:
        """Reset the draft to the published operations, without conflicts. Raises InputError without
        a draft.
        """
        with self.store.drafting(self.namespace):
            opened = self._open_stored(doc_id)
            return self._keep(replace(opened, edited=apply(opened.base, opened.published)))

    def rebase(self, doc_id: str, *, drop_conflicts: bool = False) -> Opened:
        """Base the draft on the live version; operations that do not apply become conflicts or are
        dropped. Raises InputError without a draft.
        """
        with self.store.drafting(self.namespace):
            opened = self._open_stored(doc_id)
            edited = replace(opened.edited, problems=()) if drop_conflicts else opened.edited
            return self._keep(replace(opened, edited=edited))

    def start_publish(
        self, doc_id: str, *, drop_conflicts: bool = False
    ) -> tuple[Job, subprocess.Popen[bytes]]:
        """Launch the job that makes the draft an edition of the live version and releases it.

        Raises InputError `conflicts`, listing them in the details, unless `drop_conflicts` is set;
        NotFoundError `nothing_to_publish`.
        """
        opened = self._open_stored(doc_id)
        if opened.edited.problems and not drop_conflicts:
            listed = "; ".join(
                f"{p.operation['op']} {p.operation['chunk_id']}: {p.reason}"
                for p in opened.edited.problems[:5]
            )
            raise InputError(
                f"{len(opened.edited.problems)} edits of {doc_id} do not apply to"
                f" {opened.version.version_id} ({listed}). Make them anew in another way, or leave"
                " them out with --drop-conflicts",
                code="conflicts",
                conflicts=list(conflicts_of(opened.edited.problems)),
            )
        opened = self.rebase(doc_id, drop_conflicts=drop_conflicts)
        operations = opened.edited.operations
        if not opened.changes and self._edition_in_release(opened.version) == edition_name(
            operations, opened.work.profiles["chunks"]
        ):
            raise NotFoundError(
                f"the draft of {doc_id} is published as it is; edit it first",
                code="nothing_to_publish",
            )
        return self._launch(opened, operations)

    def start_revert(self, doc_id: str) -> tuple[Job, subprocess.Popen[bytes]]:
        """Launch the job that publishes the document's chunks as they were cut. Raises
        NotFoundError `nothing_to_revert` if no edit is published.
        """
        opened = self.open(doc_id)
        if not opened.published and not self._edition_in_release(opened.version):
            raise NotFoundError(
                f"no edit of {doc_id} is published; `rag drafts discard {doc_id}` forgets a draft",
                code="nothing_to_revert",
            )
        return self._launch(opened, ())

    def _open_current(self, doc_id: str) -> Opened:
        opened = self.open(doc_id)
        if opened.outdated:
            raise InputError(
                f"the draft of {doc_id} was made over {opened.draft.version_id}, live is"
                f" {opened.version.version_id}; run `rag drafts rebase {doc_id}` first",
                code="outdated_draft",
            )
        return opened

    def _open_stored(self, doc_id: str) -> Opened:
        opened = self.open(doc_id)
        if not opened.stored:
            raise InputError(
                f"document {doc_id} has no draft; `rag drafts edit {doc_id} CHUNK --text TEXT`"
                " begins one",
                code="no_draft",
            )
        return opened

    def _keep(self, opened: Opened) -> Opened:
        """Store the draft, in state `published` if it equals the published operations; an empty one
        is deleted.
        """
        edited = opened.edited
        if not edited.operations and not edited.problems and not opened.published:
            self.ledger.drop_draft(self.namespace, opened.document.doc_id)
            return replace(opened, stored=False)
        state = "open" if edited.problems or opened.changes else "published"
        draft = replace(
            opened.draft,
            version_id=opened.version.version_id,
            operations=edited.operations,
            conflicts=conflicts_of(edited.problems),
            state=state,
        )
        self.ledger.put_draft(draft)
        return replace(opened, draft=draft, stored=True)

    def _edition_in_release(self, version: Version) -> str | None:
        """The version's edition in the published release, None if the release lacks the version."""
        if not (published := releases.current(self.store, self.namespace)):
            return None
        manifest = read_manifest(self.store.release_dir(self.namespace, published))
        return manifest.contents.get(version.version_id)

    def _launch(
        self, opened: Opened, operations: Sequence[Json]
    ) -> tuple[Job, subprocess.Popen[bytes]]:
        version = opened.version
        args = {
            "version_ids": [version.version_id],
            "drafted": {version.version_id: list(operations)},
            "release": True,
        }
        job = self.ledger.add_job(
            "draft",
            self.namespace,
            args,
            [JobItem(version.source_uri, version.doc_id, version.version_id, "continue")],
        )
        return job, jobs.launch(job, self.workspace.settings, self.store)


def no_longer_live(job: Job, ledger: Ledger) -> str:
    """Why the draft of a queued job cannot be published any more, or an empty string."""
    for version_id in job.args["version_ids"]:
        version = ledger.version(version_id)
        live = ledger.document(version.namespace, version.doc_id).live_version
        if live != version_id:
            return (
                f"{version_id} is no longer live ({live or 'nothing'} is); look at `rag drafts show"
                f" {version.doc_id}` and publish again"
            )
    return ""
