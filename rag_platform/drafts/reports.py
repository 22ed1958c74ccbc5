"""Reports about drafts for the command line: the list, one draft with its chunks, the preview of a
publication, and its outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from rag_platform.chunkers.chunks import beyond_window
from rag_platform.config.profiles import text_norm_profile_id
from rag_platform.documents import descriptions
from rag_platform.documents.versions import views_of
from rag_platform.drafts.lifecycle import Drafts, Opened
from rag_platform.drafts.operations import Edited, Piece, apply
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ir import Chunk, Json, format_section
from rag_platform.ledger.schema import Job
from rag_platform.normalisation.edits import canonical
from rag_platform.processes import jobs
from rag_platform.releases import release_store as releases
from rag_platform.releases.manifest import embedder_info, read_manifest
from rag_platform.text.wording import pluralise, shorten
from rag_platform.workspace import DataRoot

_SNIPPET = 70
_STATES = {
    "none": "no draft",
    "open": "open",
    "published": "published",
    "unreleased": "not yet published",
}


def list_data(drafts: Drafts) -> Json:
    """The drafts of a namespace with their state and conflicts."""
    found = drafts.workspace.ledger.drafts(drafts.namespace)
    live = {
        draft.doc_id: drafts.workspace.ledger.document(drafts.namespace, draft.doc_id).live_version
        for draft in found
    }
    rows: list[Json] = [
        {
            "doc_id": draft.doc_id,
            "state": state,
            "operations": len(draft.operations),
            "conflicts": len(draft.conflicts),
            "version_id": draft.version_id,
            "outdated": draft.version_id != live.get(draft.doc_id),
            "updated_at": draft.updated_at,
        }
        for draft, state in zip(found, drafts.states(found), strict=True)
    ]
    lines = [
        f"{row['doc_id']}: {_STATES[row['state']]}, {pluralise(row['operations'], 'operation')}"
        + (f", {pluralise(row['conflicts'], 'conflict')}" if row["conflicts"] else "")
        + (", made over an older version" if row["outdated"] else "")
        for row in rows
    ]
    return {
        "markdown": "\n".join(lines) or f"no drafts in library {drafts.namespace!r}",
        "drafts": rows,
    }


def show_data(opened: Opened, *, with_chunks: bool = True) -> Json:
    """One draft: its operations, its conflicts with the live version, and its chunks, including
    disabled ones.
    """
    edited, name = opened.edited, opened.document.doc_id
    chunks = [_piece(piece) for piece in edited.pieces] if with_chunks else []
    conflicts: list[Json] = [
        {"operation": p.operation, "code": p.code, "reason": p.reason} for p in edited.problems
    ]
    lines = [f"{name}: {_state(opened)}"]
    lines += [
        f"{number}. {operation_line(operation)}"
        for number, operation in enumerate(edited.operations, 1)
    ]
    lines += [f"conflict: {operation_line(c['operation'])}: {c['reason']}" for c in conflicts]
    lines += ["", *map(chunk_line, chunks)] if chunks else []
    return {
        "markdown": "\n".join(lines),
        "doc_id": name,
        "version_id": opened.draft.version_id,
        "live_version": opened.version.version_id,
        "state": opened.state,
        "operations": list(edited.operations),
        "conflicts": conflicts,
        "chunks": chunks,
    }


def preview_data(opened: Opened) -> Json:
    """What publishing a draft would change, compared with the chunks as they were cut and with the
    published ones; nothing is stored.
    """
    base, edited = opened.base, opened.edited
    own = [chunk.chunk_id for chunk in base.chunks]
    after = [piece.chunk.chunk_id for piece in edited.pieces]
    chunks, now = edited.chunks, apply(base, opened.published).chunks
    ids, published = ({chunk.chunk_id for chunk in listed} for listed in (chunks, now))
    added, removed = len(ids - published), len(published - ids)
    embeddings = _embeddings(opened, chunks)
    lines = [f"{opened.document.doc_id}: {_state(opened)}", "", *_diff(base.chunks, edited), ""]
    lines.append(
        f"publishing adds {pluralise(added, 'chunk')}, removes {removed}, keeps"
        f" {len(chunks) - added}; {pluralise(embeddings, 'embedding')} to compute"
    )
    lines += [f"conflict: {operation_line(p.operation)}: {p.reason}" for p in edited.problems]
    return {
        "markdown": "\n".join(lines),
        "doc_id": opened.document.doc_id,
        "version_id": opened.version.version_id,
        "operations": len(edited.operations),
        "conflicts": len(edited.problems),
        "changed": [i for i in after if i not in own],
        "gone": [i for i in own if i not in after],
        "moved": _find_moved(own, after),
        "disabled": [piece.chunk.chunk_id for piece in edited.pieces if not piece.enabled],
        "chunks": len(chunks),
        "chunks_added": added,
        "chunks_removed": removed,
        "embeddings_to_compute": embeddings,
        "warnings": list(beyond_window(chunks, opened.work.strategy)[1]),
    }


def published_data(job: Job, root: DataRoot, seconds: float) -> Json:
    """The outcome of a publishing job; only its state while it is running."""
    version = root.ledger.version(job.args["version_ids"][0])
    release_id = releases.current(root.store, job.namespace)
    delta: Json = {}
    failed_gates = ""
    if release_id and job.state == "done":
        manifest = read_manifest(root.store.release_dir(job.namespace, release_id))
        # an older release was left: it holds the edition already
        if manifest.created_at[:19] >= job.created_at[:19]:
            delta, failed_gates = manifest.delta, manifest.failed_gates
    data: Json = {
        "job_id": job.job_id,
        "state": job.state,
        "doc_id": version.doc_id,
        "version_id": version.version_id,
        "edition": version.edition,
        "release_id": release_id,
        "chunks_added": delta.get("chunks_added", 0),
        "chunks_removed": delta.get("chunks_removed", 0),
        "embeddings_computed": job.result.get("embeddings_computed", 0),
        "embeddings_reused": job.result.get("embeddings_reused", 0),
        "warnings": [*job.result.get("warnings", []), *filter(None, [failed_gates])],
        "seconds": round(seconds, 3),
    }
    if job.state not in jobs.FINAL_STATES:
        return {**data, "markdown": f"job {job.job_id} is {job.state}"}
    edition = f"edition {version.edition} of " if version.edition else ""
    markdown = (
        f"{edition}{version.doc_id}{'' if edition else ' as it was cut'} is published in release"
        f" {release_id}: {pluralise(data['chunks_added'], 'chunk')} added,"
        f" {data['chunks_removed']} removed,"
        f" {pluralise(data['embeddings_computed'], 'embedding')} computed, in"
        f" {data['seconds']:.1f} s."
    )
    return {**data, "markdown": markdown}


# --- lines --------------------------------------------------------------------------------------


def operation_line(operation: Json) -> str:
    """An operation on one line."""
    rest = [
        f"{key} {shorten(str(value), _SNIPPET)}"
        for key, value in operation.items()
        if key not in ("op", "chunk_id")
    ]
    return " ".join([str(operation.get("op")), str(operation.get("chunk_id")), *rest])


def chunk_line(row: Json, *, whole: bool = False) -> str:
    """A chunk of a draft on one line, with the beginning of its text, or with all of it."""
    marks = [name for name in ("edited", "disabled", "parent") if row[name]]
    place = f" [{', '.join(marks)}]" if marks else ""
    text = " ".join(row["text"].split())
    section = format_section(row["section_path"])
    head = " ".join(filter(None, [f"{row['chunk_id']}{place}", section]))
    return f"{head}: {text if whole else shorten(text, _SNIPPET)}"


def _piece(piece: Piece) -> Json:
    chunk = piece.chunk
    return {
        "chunk_id": chunk.chunk_id,
        "section_path": chunk.section_path,
        "text": chunk.chunk_text,
        "edited": bool(chunk.edited_from),
        "edited_from": list(chunk.edited_from),
        "disabled": not piece.enabled,
        "parent": chunk.chunk_type == "parent",
        "parent_id": chunk.parent_id,
    }


def _state(opened: Opened) -> str:
    edited = opened.edited
    state = _STATES[opened.state]
    if not opened.stored:
        return state
    state += f", {pluralise(len(edited.operations), 'operation')} over {opened.draft.version_id}"
    if edited.problems:
        state += f", {pluralise(len(edited.problems), 'conflict')}"
    if opened.outdated:
        live, document = opened.version.version_id, opened.document
        rebase = f"rag drafts rebase {document.doc_id} --namespace {document.namespace}"
        state += f"; live is {live}: `{rebase}`"
    return state


def _diff(own: Sequence[Chunk], edited: Edited) -> list[str]:
    """A diff from the chunks as they were cut to those of a draft: `-` removed, `+` added, and the
    number of unchanged chunks.
    """
    left = [chunk_line(_piece(Piece(chunk, (chunk.chunk_id,))), whole=True) for chunk in own]
    right = [chunk_line(_piece(piece), whole=True) for piece in edited.pieces]
    lines: list[str] = []
    for kind, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if kind == "equal":
            lines.append(f"  {b - a} unchanged")
        else:
            lines += [*(f"- {line}" for line in left[a:b]), *(f"+ {line}" for line in right[c:d])]
    return lines


def _find_moved(own: Sequence[str], after: Sequence[str]) -> list[str]:
    """The ids of remaining chunks whose order among each other changed."""
    common = set(own) & set(after)
    old, new = [i for i in own if i in common], [i for i in after if i in common]
    in_order = {
        i
        for a, _, size in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        for i in old[a : a + size]
    }
    return [i for i in new if i not in in_order]


def _embeddings(opened: Opened, chunks: Sequence[Chunk]) -> int:
    """The number of chunk texts without a vector, not counting descriptions that a model would add
    to new chunks.
    """
    strategy = opened.work.strategy
    info = embedder_info(strategy)
    if info is None:
        return 0
    known: Mapping[str, str] = {view.chunk_id: view.content_hash for view in opened.work.views}
    new = [chunk for chunk in chunks if chunk.chunk_id not in known]
    views = views_of(opened.work, new, descriptions.Descriptions())
    hashes = {view.content_hash for view in views if canonical(view.dense_text, strategy.cleaning)}
    with EmbeddingCache(opened.work.store.embeddings_path) as cache:
        return len(hashes - cache.hits(hashes, info, text_norm_profile_id(strategy.cleaning)))
