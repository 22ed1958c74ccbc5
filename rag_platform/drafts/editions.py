"""Editions: the chunks and views of a version as a published draft makes them, stored beside the
version's own.

When a version is built anew or a newer one comes, the operations of the published draft are applied
to its chunks. Those whose chunks are gone are kept as conflicts of the draft.
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
    """A version with operations applied: what it is called, what was given, and what the document's
    readers had before.
    """

    version: Version
    name: str  # empty for the version as it was cut
    given: tuple[Json, ...]
    edited: Edited
    before: tuple[Json, ...]
    warnings: tuple[str, ...] = ()


def base_of(work: VersionBuild) -> Base:
    """What a draft of this version is made over; its stages up to chunks must be there."""
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
    """The edition that the operations make of a version, its chunks and views stored; from now on
    the build has these.

    With `work.deferred` the files become visible when the caller commits `work.writes`. Operations
    that do not apply are its problems.
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
        warnings += beyond_window(chunks, work.strategy).warnings
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
    """The draft of a document, None without one."""
    return next(iter(ledger.drafts(namespace, doc_id)), None)


def published_operations(ledger: Ledger, document: Document) -> tuple[Json, ...]:
    """The operations in which a document is read now or, where nothing of it is live, was when it
    was edited last.
    """
    draft = draft_of(ledger, document.namespace, document.doc_id)
    version_id = document.live_version or (draft.version_id if draft else None)
    edition = ledger.version(version_id).edition if version_id else ""
    return ledger.operations(version_id, edition) if version_id and edition else ()


def operations_to_carry(ledger: Ledger, document: Document) -> tuple[Json, ...]:
    """The operations that another build of the document gets: the published ones, and those that
    conflicted with an earlier build.
    """
    published = published_operations(ledger, document)
    draft = draft_of(ledger, document.namespace, document.doc_id)
    return (
        all_operations(draft) if draft is not None and draft.operations == published else published
    )


def all_operations(draft: Draft) -> tuple[Json, ...]:
    """All operations of a draft in the order they were made, its conflicts among them."""
    found = list(draft.operations)
    for conflict in sorted(draft.conflicts, key=lambda conflict: int(conflict["index"])):
        found.insert(int(conflict["index"]), conflict["operation"])
    return tuple(found)


def conflicts_of(problems: Sequence[Problem]) -> tuple[Json, ...]:
    """Problems as a draft keeps them."""
    return tuple(
        {"index": p.index, "operation": p.operation, "code": p.code, "reason": p.reason}
        for p in problems
    )


def record(edition: Edition, root: DataRoot) -> None:
    """Record a version's edition and, where the version is or goes live, that its draft is
    published, with what could not be carried over.

    A draft with edits beyond the published ones is left as it is. To be called before the version
    is completed: a crash between repeats it.
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
        settled = draft or Draft(version.namespace, version.doc_id, version.version_id)
        conflicts = conflicts_of(edited.problems)
        state = "open" if conflicts else "published"
        ledger.put_draft(
            replace(
                settled,
                version_id=version.version_id,
                operations=edited.operations,
                conflicts=conflicts,
                state=state,
            )
        )
