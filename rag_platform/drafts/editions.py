"""Editions: the chunks and views of a version after the operations of a draft, stored next to the
version's own.

When a version is rebuilt or replaced by a newer one, the operations of the published draft are
applied to its chunks. Operations whose chunks are gone become conflicts of the draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rag_platform.chunkers.chunks import beyond_window
from rag_platform.chunkers.source_locations import Places
from rag_platform.config.profiles import edition_name
from rag_platform.documents import descriptions
from rag_platform.documents.versions import VersionBuild, views_of
from rag_platform.drafts.operations import Base, Edited, Problem, apply
from rag_platform.ir import Chunk, Document, Json, Version, View
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Draft
from rag_platform.storage.store import read_records
from rag_platform.text.plurals import pluralise
from rag_platform.workspace import DataRoot


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
            f" {work.version.doc_id}` lists them"
        )
    return Edition(work.version, name, tuple(given), edited, tuple(before), tuple(warnings))


# --- the ledger ---------------------------------------------------------------------------------


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
