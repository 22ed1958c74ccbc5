"""Compares two releases of a namespace: documents, chunks, and hits of the latest questions."""

from __future__ import annotations

import dataclasses

from rag_platform.answering.engine import answer
from rag_platform.api.asking import rank_both
from rag_platform.contract.upkeep_shapes import ReleaseDiffData
from rag_platform.errors import RagError, ReleaseError
from rag_platform.ir import Json, QueryRequest
from rag_platform.observability.trace_reader import list_questions
from rag_platform.releases.manifest import Manifest
from rag_platform.releases.release_store import find_parent, list_heads, manifest_of
from rag_platform.retrieval.library import Lease, Library
from rag_platform.text.wording import pluralise

TOP_K = 10
_SHOWN = 20
_OVERRIDDEN = {"namespace", "namespaces", "top_k", "release_id", "answer"}
_REQUEST_FIELDS = frozenset(field.name for field in dataclasses.fields(QueryRequest)) - _OVERRIDDEN


def compare(
    library: Library,
    namespace: str,
    before: str | None = None,
    after: str | None = None,
    *,
    queries: int = 20,
) -> ReleaseDiffData:
    """The difference between two kept releases, by default the published one and its parent;
    deleted documents are counted, not shown.

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
                f"the release that {after} was made from was dropped, by a hard deletion or"
                f" because it was old; `rag releases diff BEFORE AFTER --namespace {namespace}`"
                f" compares two of those that are kept: {there}",
                code="parent_dropped",
            )
        raise ReleaseError(
            f"release {after} has no parent; name two: `rag releases diff BEFORE AFTER --namespace"
            f" {namespace}` (kept: {there})",
            code="no_parent",
        )
    with library.lease(namespace, before) as old, library.lease(namespace, after) as new:
        documents, unchanged, hidden, kept = _documents(library, old, new)
    questions, wordless = (
        list_questions(library.store.logs_dir, namespace, queries) if queries else ([], 0)
    )
    data: ReleaseDiffData = {
        "markdown": "",
        "namespace": namespace,
        "before": before,
        "after": after,
        "documents": documents,
        "unchanged": unchanged,
        "hidden": hidden,
        "chunks": {
            "added": sum(change["chunks_added"] for change in documents),
            "removed": sum(change["chunks_removed"] for change in documents),
            "kept": kept + sum(change["chunks_kept"] for change in documents),
        },
        "queries": [_query(library, namespace, it, before, after) for it in questions],
        "wordless": wordless,  # questions left out because their traces do not store the text
    }
    data["markdown"] = _markdown(data)
    return data


def _documents(library: Library, old: Lease, new: Lease) -> tuple[list[Json], int, int, int]:
    """(changed documents, whose chunks are compared by id; number of unchanged ones; number of
    hidden ones; chunks of the unchanged ones).
    """
    hidden = library.hidden_names(old) | library.hidden_names(new)
    left, right = (lease.release.catalog.live_versions() for lease in (old, new))
    made_old, made_new = (
        manifest_of(library.store, lease.namespace, lease.release_id, ("outputs", "editions"))
        for lease in (old, new)
    )
    changes: list[Json] = []
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
        changes.append(
            {
                "doc_id": doc_id,
                "source_uri": newer_uri or uri,
                "change": "added" if not before else "removed" if not after else "changed",
                "before": before,  # version_id, empty if the document is not in the release
                "after": after,
                "chunks_added": len(other - one),
                "chunks_removed": len(one - other),
                "chunks_kept": len(one & other),
            }
        )
    return changes, unchanged, gone, kept


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


def _query(library: Library, namespace: str, question: Json, before: str, after: str) -> Json:
    """How the first hits of one question differ, or in `problem` why they cannot be compared."""
    request = QueryRequest(
        **{key: value for key, value in question.items() if key in _REQUEST_FIELDS},
        namespace=namespace,
        top_k=TOP_K,
        answer=False,
    )
    problem, moved = "", list[Json]()
    try:
        old, new = (
            answer(library, dataclasses.replace(request, release_id=release_id)).hits
            for release_id in (before, after)
        )
        hits = {hit.chunk_id: hit for hit in (*new, *old)}
        for row in rank_both([hit.chunk_id for hit in old], [hit.chunk_id for hit in new]):
            hit = hits[row["chunk_id"]]
            if row["before"] != row["after"]:
                place = {"source_uri": hit.source_uri, "section_path": hit.section_path}
                moved.append({**row, **place})
    except RagError as error:
        problem = error.message
    return {
        "text": request.text,
        "entered": [it for it in moved if it["before"] is None],
        "left": [it for it in moved if it["after"] is None],
        "moved": [it for it in moved if None not in (it["before"], it["after"])],
        "problem": problem,
        "same": not (moved or problem),
    }


def _markdown(diff: ReleaseDiffData) -> str:
    kinds = ("added", "removed", "changed")
    changes = [change["change"] for change in diff["documents"]]
    counts = [f"{changes.count(kind)} {kind}" for kind in kinds]
    deleted = f", {diff['hidden']} deleted ones not shown" if diff["hidden"] else ""
    lines = [
        f"{diff['before']} → {diff['after']}",
        f"Documents: {', '.join(counts)}, {diff['unchanged']} unchanged{deleted}.",
        f"Chunks: {', '.join(f'{count} {kind}' for kind, count in diff['chunks'].items())}.",
    ]
    lines += [
        f"- {it['change']} {it['source_uri']}: {pluralise(it['chunks_added'], 'chunk')} added,"
        f" {it['chunks_removed']} removed, {it['chunks_kept']} kept"
        for it in diff["documents"][:_SHOWN]
    ]
    if len(changes) > _SHOWN:
        lines.append(f"- and {len(changes) - _SHOWN} more; --json lists them all")
    changed = [query for query in diff["queries"] if not query["same"]]
    lines.append(
        f"Questions asked lately: {len(diff['queries'])}, of which {len(changed)} have other hits"
        f" among the first {TOP_K}."
    )
    for query in changed:
        lines.append(f"- {query['text']}" + (f": {query['problem']}" if query["problem"] else ""))
        lines += [f"    + {it['after']}. {_where(it)}" for it in query["entered"]]
        lines += [f"    - {it['before']}. {_where(it)}" for it in query["left"]]
        lines += [f"      {it['before']}. → {it['after']}. {_where(it)}" for it in query["moved"]]
    if diff["wordless"]:
        lines.append(
            f"{diff['wordless']} traces of questions do not hold their words and were left out."
        )
    return "\n".join(lines)


def _where(place: Json) -> str:
    return f"{place['source_uri']} {place['section_path']}".strip()
