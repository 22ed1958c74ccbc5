"""Compares two releases of a namespace: documents, chunks, and hits of the latest questions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag_platform.answering.engine import answer
from rag_platform.errors import RagError, ReleaseError
from rag_platform.ir import Hit, Json, QueryRequest
from rag_platform.observability.trace_reader import list_questions
from rag_platform.releases.manifest import Manifest
from rag_platform.releases.release_store import find_parent, list_heads, manifest_of
from rag_platform.retrieval.library import Lease, Library
from rag_platform.storage.records import to_json
from rag_platform.text.plurals import pluralise

TOP_K = 10
_SHOWN = 20
_OVERRIDDEN = {"namespace", "namespaces", "top_k", "release_id", "answer"}
_REQUEST_FIELDS = frozenset(field.name for field in dataclasses.fields(QueryRequest)) - _OVERRIDDEN


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """How one document differs; its chunks are compared by id."""

    doc_id: str
    source_uri: str
    change: str  # added | removed | changed
    before: str  # version_id, empty if the document is not in the release
    after: str
    chunks_added: int
    chunks_removed: int
    chunks_kept: int


@dataclass(frozen=True, slots=True)
class Place:
    """A chunk's ranks among the hits of a question, from 1; None if it is not a hit."""

    chunk_id: str
    source_uri: str
    section_path: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class QueryChange:
    """How the first hits of one question differ, or in `problem` why they cannot be compared."""

    text: str
    entered: tuple[Place, ...] = ()
    left: tuple[Place, ...] = ()
    moved: tuple[Place, ...] = ()
    problem: str = ""

    @property
    def same(self) -> bool:
        """True if both releases give the same chunks in the same order."""
        return not (self.entered or self.left or self.moved or self.problem)


@dataclass(frozen=True, slots=True)
class ReleaseDiff:
    """How release `after` differs from `before`; deleted documents are counted, not shown."""

    namespace: str
    before: str
    after: str
    documents: tuple[DocumentChange, ...]
    unchanged: int
    hidden: int
    chunks: Mapping[str, int]  # added, removed, kept
    queries: tuple[QueryChange, ...]
    wordless: int  # questions left out because their traces do not store the text

    def data(self) -> Json:
        """The difference as JSON data, with `markdown`."""
        queries = [{**to_json(query), "same": query.same} for query in self.queries]
        return {"markdown": _markdown(self), **to_json(self), "queries": queries}


def compare(
    library: Library,
    namespace: str,
    before: str | None = None,
    after: str | None = None,
    *,
    queries: int = 20,
) -> ReleaseDiff:
    """The difference between two kept releases, by default the published one and its parent.

    At most `queries` of the latest questions are run on both. Raises NotFoundError for a release
    that is not kept, ReleaseError `no_parent` or `parent_dropped`.
    """
    after = after or library.current(namespace)
    if before is None:
        before = find_parent(library.store, namespace, after)
    if before is None:
        there = ", ".join(head.release_id for head in list_heads(library.store, namespace))
        if manifest_of(library.store, namespace, after, ()).parent:
            raise ReleaseError(
                f"the release that {after} was made from was dropped, by a hard deletion or because"
                f" it was old; `rag releases diff BEFORE AFTER` compares two of those that are"
                f" kept: {there}",
                code="parent_dropped",
            )
        raise ReleaseError(
            f"release {after} has no parent; name two: `rag releases diff BEFORE AFTER` (kept:"
            f" {there})",
            code="no_parent",
        )
    with library.lease(namespace, before) as old, library.lease(namespace, after) as new:
        documents, unchanged, hidden, kept = _documents(library, old, new)
    questions, wordless = (
        list_questions(library.store.logs_dir, namespace, queries) if queries else ([], 0)
    )
    chunks = {
        "added": sum(change.chunks_added for change in documents),
        "removed": sum(change.chunks_removed for change in documents),
        "kept": kept + sum(change.chunks_kept for change in documents),
    }
    compared = tuple(_query(library, namespace, request, before, after) for request in questions)
    return ReleaseDiff(
        namespace, before, after, documents, unchanged, hidden, chunks, compared, wordless
    )


def _documents(
    library: Library, old: Lease, new: Lease
) -> tuple[tuple[DocumentChange, ...], int, int, int]:
    """(changed documents, number of unchanged ones, number of hidden ones, chunks of the unchanged
    ones).
    """
    hidden = library.hidden_names(old) | library.hidden_names(new)
    left, right = (lease.release.catalog.live_versions() for lease in (old, new))
    made_old, made_new = (
        manifest_of(library.store, lease.namespace, lease.release_id, ("outputs", "editions"))
        for lease in (old, new)
    )
    changes: list[DocumentChange] = []
    unchanged = gone = kept = 0
    for doc_id in sorted(left.keys() | right.keys()):
        (before, uri), (after, newer_uri) = left.get(doc_id, _ABSENT), right.get(doc_id, _ABSENT)
        if not hidden.isdisjoint((doc_id, before, after)):
            gone += 1
            continue
        if before == after and _same_outputs(made_old, made_new, after):
            unchanged, kept = unchanged + 1, kept + new.release.versions[after]
            continue
        one, other = _chunk_ids(old, before), _chunk_ids(new, after)
        if before == after and one == other:
            unchanged, kept = unchanged + 1, kept + len(one)
            continue
        change = "added" if not before else "removed" if not after else "changed"
        counts = len(other - one), len(one - other), len(one & other)
        changes.append(DocumentChange(doc_id, newer_uri or uri, change, before, after, *counts))
    return tuple(changes), unchanged, gone, kept


_ABSENT = ("", "")  # version_id and source_uri of a document that is not in the release


def _same_outputs(one: Manifest, other: Manifest, version_id: str) -> bool:
    """True if both releases were built from the same stored outputs of a version."""
    known = one.outputs.get(version_id)
    return (
        known is not None
        and known == other.outputs.get(version_id)
        and one.editions.get(version_id) == other.editions.get(version_id)
    )


def _chunk_ids(lease: Lease, version_id: str) -> set[str]:
    if not version_id:
        return set()
    return set(lease.release.catalog.chunk_ids("version_id = ?", (version_id,)))


def _query(
    library: Library, namespace: str, question: Json, before: str, after: str
) -> QueryChange:
    """How the hits of one question differ."""
    request = QueryRequest(
        **{key: value for key, value in question.items() if key in _REQUEST_FIELDS},
        namespace=namespace,
        top_k=TOP_K,
        answer=False,
    )
    try:
        one, other = (
            answer(library, dataclasses.replace(request, release_id=release_id)).hits
            for release_id in (before, after)
        )
    except RagError as error:
        return QueryChange(request.text, problem=error.message)
    places = _places(one, other)
    return QueryChange(
        request.text,
        entered=tuple(place for place in places if place.before is None),
        left=tuple(place for place in places if place.after is None),
        moved=tuple(
            place
            for place in places
            if None not in (place.before, place.after) and place.before != place.after
        ),
    )


def _places(one: Sequence[Hit], other: Sequence[Hit]) -> list[Place]:
    """Every chunk of both lists with its ranks: those of the new list in order, then the others."""
    ranks, now = {hit.chunk_id: hit.rank for hit in one}, {hit.chunk_id: hit.rank for hit in other}
    hits = {hit.chunk_id: hit for hit in (*other, *one)}
    return [
        Place(i, hit.source_uri, hit.section_path, ranks.get(i), now.get(i))
        for i, hit in hits.items()
    ]


def _markdown(diff: ReleaseDiff) -> str:
    kinds = ("added", "removed", "changed")
    counts = [f"{sum(change.change == kind for change in diff.documents)} {kind}" for kind in kinds]
    deleted = f", {diff.hidden} deleted ones not shown" if diff.hidden else ""
    lines = [
        f"{diff.before} → {diff.after}",
        f"Documents: {', '.join(counts)}, {diff.unchanged} unchanged{deleted}.",
        f"Chunks: {', '.join(f'{count} {kind}' for kind, count in diff.chunks.items())}.",
    ]
    lines += [
        f"- {it.change} {it.source_uri}: {pluralise(it.chunks_added, 'chunk')} added,"
        f" {it.chunks_removed} removed, {it.chunks_kept} kept"
        for it in diff.documents[:_SHOWN]
    ]
    if len(diff.documents) > _SHOWN:
        lines.append(f"- and {len(diff.documents) - _SHOWN} more; --json lists them all")
    changed = [query for query in diff.queries if not query.same]
    lines.append(
        f"Questions asked lately: {len(diff.queries)}, of which {len(changed)} have other hits"
        f" among the first {TOP_K}."
    )
    for query in changed:
        lines.append(f"- {query.text}" + (f": {query.problem}" if query.problem else ""))
        lines += [f"    + {place.after}. {_where(place)}" for place in query.entered]
        lines += [f"    - {place.before}. {_where(place)}" for place in query.left]
        lines += [
            f"      {place.before}. → {place.after}. {_where(place)}" for place in query.moved
        ]
    if diff.wordless:
        lines.append(
            f"{diff.wordless} traces of questions do not hold their words and were left out."
        )
    return "\n".join(lines)


def _where(place: Place) -> str:
    return f"{place.source_uri} {place.section_path}".strip()
