"""Drafts of a namespace: based on the live version of a document, changed one operation at a time,
published by a job.

A document has one draft. Publishing makes an edition of the live version (the chunks and views
after the operations, stored next to the version's own) and releases it; the draft stays, and
further edits continue it. When a version is rebuilt or replaced, the operations of the published
draft are applied to its chunks. Operations whose chunks are gone become conflicts of the draft.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rag_platform.chunkers.chunks import beyond_window
from rag_platform.chunkers.source_locations import Places
from rag_platform.config.profiles import edition_name
from rag_platform.documents import descriptions
from rag_platform.documents.lookup import find_document
from rag_platform.documents.versions import VersionBuild, views_of
from rag_platform.drafts.operations import Base, Edited, Problem, apply, extend
from rag_platform.errors import InputError, NotFoundError, ReleaseError
from rag_platform.ir import Chunk, Document, Json, Version, View
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Draft, Job, JobItem
from rag_platform.processes import jobs
from rag_platform.releases import release_store as releases
from rag_platform.storage.store import read_records
from rag_platform.text.wording import pluralise
from rag_platform.workspace import DataRoot, Workspace


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
    released: bool  # the published release has the version in its current edition

    @property
    def state(self) -> str:
        """`none` if nothing was edited, else the draft's state as readers see it."""
        return _state_for_readers(self.draft, self.released) if self.stored else "none"

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

    def open(self, doc_id: str) -> Opened:
        """The draft of a document, or a new one that is not stored; `doc_id` may be abbreviated as
        in `find_document`.

        Raises NotFoundError, InputError `ambiguous`, ReleaseError `stale_versions`.
        """
        document = find_document(self.workspace.ledger, self.namespace, doc_id)
        doc_id = document.doc_id
        if document.live_version is None:
            raise NotFoundError(
                f"document {doc_id} has no live version ({document.status}); ingest it first",
                code="not_live",
            )
        version = self.workspace.ledger.version(document.live_version)
        strategy = self.workspace.strategy
        work = VersionBuild(version, strategy, self.workspace.settings, self.workspace.store)
        if version.profile != work.profiles["embeddings"] or not work.path("chunks").is_file():
            raise ReleaseError(
                f"{version.version_id} was built under another config; run `rag rebuild"
                f" --namespace {self.namespace}` first",
                code="stale_versions",
            )
        published = published_operations(self.workspace.ledger, document)
        stored = draft_of(self.workspace.ledger, self.namespace, doc_id)
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
            self._find_released(version) == version.edition,
        )

    def add(self, doc_id: str, operation: Json) -> Opened:
        """Add an operation to the draft. Raises InputError if it cannot be applied, or if the draft
        was made for an older version.
        """
        with self.workspace.store.drafting(self.namespace):
            opened = self._open_current(doc_id)
            return self._keep(replace(opened, edited=extend(opened.base, opened.edited, operation)))

    def undo(self, doc_id: str) -> tuple[Opened, Json]:
        """Remove the last operation: (the draft, that operation). Raises NotFoundError if there is
        none, InputError `outdated_draft`.
        """
        with self.workspace.store.drafting(self.namespace):
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
        with self.workspace.store.drafting(self.namespace):
            opened = self._open_stored(doc_id)
            return self._keep(replace(opened, edited=apply(opened.base, opened.published)))

    def rebase(self, doc_id: str, *, drop_conflicts: bool = False) -> Opened:
        """Base the draft on the live version; operations that do not apply become conflicts or are
        dropped. Raises InputError without a draft.
        """
        with self.workspace.store.drafting(self.namespace):
            opened = self._open_stored(doc_id)
            edited = replace(opened.edited, problems=()) if drop_conflicts else opened.edited
            return self._keep(replace(opened, edited=edited))

    def start_publish(self, doc_id: str, *, drop_conflicts: bool = False) -> jobs.Started:
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
                f" {opened.version.version_id} ({listed}). Make them anew in another way, or"
                f" leave them out: `rag drafts publish {doc_id} --namespace {self.namespace}"
                " --drop-conflicts`",
                code="conflicts",
                conflicts=list(conflicts_of(opened.edited.problems)),
            )
        opened = self.rebase(doc_id, drop_conflicts=drop_conflicts)
        operations = opened.edited.operations
        edition = edition_name(operations, opened.work.profiles["chunks"])
        if not opened.changes and self._find_released(opened.version) == edition:
            raise NotFoundError(
                f"the draft of {doc_id} is published as it is; edit it first",
                code="nothing_to_publish",
            )
        return self._launch(opened, operations)

    def start_revert(self, doc_id: str) -> jobs.Started:
        """Launch the job that publishes the document's chunks as they were cut. Raises
        NotFoundError `nothing_to_revert` if no edit is published.
        """
        opened = self.open(doc_id)
        if not opened.published and not self._find_released(opened.version):
            raise NotFoundError(
                f"no edit of {doc_id} is published; `rag drafts discard {doc_id} --namespace"
                f" {self.namespace}` forgets a draft",
                code="nothing_to_revert",
            )
        return self._launch(opened, ())

    def _open_current(self, doc_id: str) -> Opened:
        opened = self.open(doc_id)
        if opened.outdated:
            raise InputError(
                f"the draft of {doc_id} was made over {opened.draft.version_id}, live is"
                f" {opened.version.version_id}; run `rag drafts rebase {doc_id} --namespace"
                f" {self.namespace}` first",
                code="outdated_draft",
            )
        return opened

    def _open_stored(self, doc_id: str) -> Opened:
        opened = self.open(doc_id)
        if not opened.stored:
            raise InputError(
                f"document {doc_id} has no draft; `rag drafts edit {doc_id} CHUNK --text TEXT"
                f" --namespace {self.namespace}` begins one",
                code="no_draft",
            )
        return opened

    def _keep(self, opened: Opened) -> Opened:
        """Store the draft, in state `published` if it equals the published operations; an empty one
        is deleted.
        """
        edited = opened.edited
        if not edited.operations and not edited.problems and not opened.published:
            self.workspace.ledger.drop_draft(self.namespace, opened.document.doc_id)
            return replace(opened, stored=False)
        state = "open" if edited.problems or opened.changes else "published"
        draft = replace(
            opened.draft,
            version_id=opened.version.version_id,
            operations=edited.operations,
            conflicts=conflicts_of(edited.problems),
            state=state,
        )
        self.workspace.ledger.put_draft(draft)
        return replace(opened, draft=draft, stored=True)

    def states(self, drafts: Sequence[Draft]) -> list[str]:
        """The state of each draft as readers see it."""
        released = self._read_editions([draft.version_id for draft in drafts])
        editions = [self.workspace.ledger.version(draft.version_id).edition for draft in drafts]
        return [
            _state_for_readers(draft, released.get(draft.version_id) == edition)
            for draft, edition in zip(drafts, editions, strict=True)
        ]

    def _find_released(self, version: Version) -> str | None:
        """The version's edition in the published release, None if the release lacks the version."""
        return self._read_editions([version.version_id]).get(version.version_id)

    def _read_editions(self, version_ids: Collection[str]) -> dict[str, str]:
        """The editions of versions in the published release, without versions that it lacks."""
        published = releases.current(self.workspace.store, self.namespace)
        if not (version_ids and published):
            return {}
        with releases.open_catalog(self.workspace.store, self.namespace, published) as catalog:
            return {name: it.edition for name, it in catalog.versions(version_ids).items()}

    def _launch(self, opened: Opened, operations: Sequence[Json]) -> jobs.Started:
        version = opened.version
        args = {
            "version_ids": [version.version_id],
            "drafted": {version.version_id: list(operations)},
            "release": True,
        }
        job = self.workspace.ledger.add_job(
            "draft",
            self.namespace,
            args,
            [JobItem(version.source_uri, version.doc_id, version.version_id, "continue")],
        )
        return jobs.launch(job, self.workspace.settings, self.workspace.store)


def _state_for_readers(draft: Draft, released: bool) -> str:
    """The ledger's state, but `unreleased` while no release shows the published edits: one is being
    made, was rejected, or was rolled back.
    """
    return "unreleased" if draft.state == "published" and not released else draft.state


def no_longer_live(job: Job, ledger: Ledger) -> str:
    """Why the draft of a queued job cannot be published any more, or an empty string."""
    for version_id in job.args["version_ids"]:
        version = ledger.version(version_id)
        live = ledger.document(version.namespace, version.doc_id).live_version
        if live != version_id:
            return (
                f"{version_id} is no longer live ({live or 'nothing'} is); look at `rag drafts"
                f" show {version.doc_id} --namespace {version.namespace}` and publish again"
            )
    return ""


# --- editions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edition:
    """A version with operations applied."""

    version: Version
    name: str  # empty for the version as it was cut
    given: tuple[Json, ...]  # all operations, including those that do not apply
    edited: Edited
    before: tuple[Json, ...]  # the operations published before
    warnings: tuple[str, ...] = ()


def base_of(work: VersionBuild) -> Base:
    """The base for drafts of this version, whose stages up to the chunks must be complete."""
    return Base(
        work.version.namespace,
        work.version.doc_id,
        work.chunks,
        work.normalised,
        Places(work.facts, work.normalised),
        work.links,
        work.strategy.cleaning,
    )


def build_edition(
    work: VersionBuild, given: Sequence[Json], before: Sequence[Json] = ()
) -> Edition:
    """Apply the operations to a version, store the resulting chunks and views, and set them in
    `work`. Operations that do not apply become problems.

    With `work.deferred` the files become visible when the caller commits `work.writes`.
    """
    edited = apply(base_of(work), given)
    name = edition_name(edited.operations, work.profiles["chunks"])
    warnings: list[str] = []
    if name:
        chunks = edited.chunks
        path = work.path("views", edition=name)
        if work.force or not path.is_file():
            described = descriptions.describe(
                chunks, work.strategy.views.describe, work.store.descriptions_path
            )
            views = views_of(work, chunks, described)
            work.writes.records(work.path("chunks", edition=name), Chunk, chunks)
            work.writes.records(path, View, views)
            warnings += described.warnings
            if not work.deferred:
                work.writes.commit()
        else:
            views = read_records(path, View)
        work.chunks, work.views = chunks, views
        warnings += beyond_window(chunks, work.strategy)[1]
        warnings += (
            [] if chunks else ["every chunk is disabled: nothing of the document can be found"]
        )
    if edited.problems:
        count = f"{len(edited.problems)} of {pluralise(len(given), 'edit')} by hand"
        warnings.append(
            f"this version no longer has the chunks of {count}; `rag drafts show"
            f" {work.version.doc_id} --namespace {work.version.namespace}` lists them"
        )
    return Edition(work.version, name, tuple(given), edited, tuple(before), tuple(warnings))


# --- drafts and editions in the ledger ----------------------------------------------------------


def draft_of(ledger: Ledger, namespace: str, doc_id: str) -> Draft | None:
    """The stored draft of a document, or None."""
    return next(iter(ledger.drafts(namespace, doc_id)), None)


def published_operations(ledger: Ledger, document: Document) -> tuple[Json, ...]:
    """The operations of a document's live version or, without one, of the version that its draft
    was made for.
    """
    draft = draft_of(ledger, document.namespace, document.doc_id)
    version_id = document.live_version or (draft.version_id if draft else None)
    edition = ledger.version(version_id).edition if version_id else ""
    return ledger.operations(version_id, edition) if version_id and edition else ()


def operations_to_carry(ledger: Ledger, document: Document) -> tuple[Json, ...]:
    """The operations to apply to a new build of the document: the published ones, and those that
    conflicted with an earlier build.
    """
    published = published_operations(ledger, document)
    draft = draft_of(ledger, document.namespace, document.doc_id)
    return (
        all_operations(draft) if draft is not None and draft.operations == published else published
    )


def all_operations(draft: Draft) -> tuple[Json, ...]:
    """All operations of a draft, including its conflicts, in the order they were made."""
    found = list(draft.operations)
    for conflict in sorted(draft.conflicts, key=lambda conflict: int(conflict["index"])):
        found.insert(int(conflict["index"]), conflict["operation"])
    return tuple(found)


def conflicts_of(problems: Sequence[Problem]) -> tuple[Json, ...]:
    """Problems in the form stored with a draft."""
    return tuple(
        {"index": p.index, "operation": p.operation, "code": p.code, "reason": p.reason}
        for p in problems
    )


def record(edition: Edition, root: DataRoot) -> None:
    """Record a version's edition. If the version is or becomes live, also record its draft as
    published, with the operations that did not apply as conflicts.

    A draft with unpublished edits is left as it is. Call this before the version is completed, so
    that it is repeated after a crash.
    """
    ledger, version, edited = root.ledger, edition.version, edition.edited
    with root.store.drafting(version.namespace):
        ledger.put_edition(version.version_id, edition.name, edited.operations)
        document = ledger.document(version.namespace, version.doc_id)
        follows = (
            not document.pinned
            and document.status != "deleted"
            and document.wanted_version == version.version_id
        )
        if document.live_version != version.version_id and not follows:
            return
        draft = draft_of(ledger, version.namespace, version.doc_id)
        if draft is not None and draft.operations not in (edition.given, edition.before):
            return
        if not edition.given:
            ledger.drop_draft(version.namespace, version.doc_id)
            return
        conflicts = conflicts_of(edited.problems)
        state = "open" if conflicts else "published"
        ledger.put_draft(
            replace(
                draft or Draft(version.namespace, version.doc_id, version.version_id),
                version_id=version.version_id,
                operations=edited.operations,
                conflicts=conflicts,
                state=state,
            )
        )
