"""The history of a document, and what differs between two of its versions; read from the ledger, the manifests and the stage files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rag_platform.config import Strategy
from rag_platform.documents.cleaning import apply_edits
from rag_platform.documents.naming import named_version
from rag_platform.documents.revisions import Parts, revise
from rag_platform.documents.versions import load_facts
from rag_platform.errors import NotFoundError
from rag_platform.indexes.release import list_releases
from rag_platform.ir import Chunk, Document, Edit, Json, Section, Version
from rag_platform.ledger import Ledger
from rag_platform.ledger_rows import Tombstone
from rag_platform.profiles import stage_profiles
from rag_platform.store import Store, read_records

_PARTS = ("facts", "sections", "chunks")  # stages whose outputs a difference is read from
_SHOWN_CHUNKS = 20


# --- history -------------------------------------------------------------------------------------------------------------


def history(document: Document, *, store: Store, ledger: Ledger) -> Json:
    """Every version of a document, newest first, with what became of it and the kept releases that hold it."""
    namespace = document.namespace
    stones = [stone for stone in ledger.tombstones(namespace) if stone.doc_id == document.doc_id]
    holding = {manifest.release_id: manifest.versions for manifest in list_releases(store, namespace)}
    rows = version_rows(document, ledger.versions(namespace, document.doc_id), stones, holding)
    deleted = any(stone.version_id is None for stone in stones)
    data: Json = {
        "namespace": namespace,
        "doc_id": document.doc_id,
        "source_uri": document.source_uri,
        "title": document.title,
        "status": "deleted" if deleted else document.status,
        "pinned": document.pinned,
        "live_version": document.live_version,
        "wanted_version": document.wanted_version,
        "versions": rows,
    }
    return {"markdown": _history_markdown(data), **data}


def version_rows(
    document: Document, versions: Sequence[Version], stones: Iterable[Tombstone], holding: Mapping[str, Iterable[str]]
) -> list[Json]:
    """One row a version, newest first; `stones` are the document's deletions in force, `holding` maps release_id to version_ids."""
    deleted = {stone.version_id: stone.created_at for stone in stones}
    return [
        {
            "version_id": version.version_id,
            "received_at": version.received_at,
            "completed_at": version.completed_at,
            "status": version.status,
            "live": version.version_id == document.live_version,
            "pinned": document.pinned and version.version_id == document.live_version,
            "wanted": version.version_id == document.wanted_version,
            "deleted_at": deleted.get(version.version_id) or deleted.get(None) or "",
            "size": version.size,
            "chunks": version.counts.get("chunks"),
            "edition": version.edition,
            "revision": version.revision,
            "releases": sorted((release_id for release_id, held in holding.items() if version.version_id in held), reverse=True),
            "attempts": version.attempts,
            "code": version.code,
            "reason": version.reason,
            "drift": version.counts.get("drift"),
        }
        for version in reversed(versions)
    ]


def _history_markdown(data: Json) -> str:
    pinned = ", pinned" if data["pinned"] else ""
    lines = [f"**{data['title'] or data['doc_id']}** (`{data['doc_id']}`, {data['source_uri']}): {data['status']}{pinned}", ""]
    lines += ["| version | received | state | bytes | chunks | releases |", "|---|---|---|---|---|---|"]
    notes: list[str] = []
    for row in data["versions"]:
        short = row["version_id"].rpartition("@")[2]
        marks = [mark for mark in ("live", "pinned") if row[mark]]
        marks += ["what the source holds"] if row["wanted"] and not row["live"] else []
        marks += ["deleted"] if row["deleted_at"] else []
        marks += [f"edition {row['edition']}"] if row["edition"] else []
        chunks = "" if row["chunks"] is None else row["chunks"]
        lines.append(f"| {short} | {row['received_at']} | {', '.join([row['status'], *marks])} | {row['size']} | {chunks} | "
                     f"{len(row['releases'])} |")  # fmt: skip
        if row["code"]:
            notes.append(f"- {short}: [{row['code']}] {row['reason']} (failed {row['attempts']} times)")
        if row["drift"]:
            notes.append(f"- {short}: drift {row['drift']['kind']} against {row['drift']['against'].rpartition('@')[2]}: "
                         f"{row['drift']['details']}")  # fmt: skip
    return "\n".join([*lines, *([""] if notes else []), *notes])


# --- differences -----------------------------------------------------------------------------------------------------------


def difference(document: Document, before: str | None, after: str | None, *, strategy: Strategy, store: Store, ledger: Ledger) -> Json:
    """What differs between two versions of a document, named as `named_version` takes them.

    Without names: the version before the live one against the live one. Both are read under the strategy's profiles or, where one has no
    such outputs, under those of the last build of either. Raises NotFoundError: `unknown_version`, `version_deleted`, `outputs_gone`.
    """
    versions = ledger.versions(document.namespace, document.doc_id)
    new = named_version(document, versions, after or document.live_version or (versions[-1].version_id if versions else ""))
    old = named_version(document, versions, before) if before else _before(document, new, versions)
    for version in (old, new):
        require_kept(version, document, ledger)
    profiles = _common_profiles((old, new), strategy, store)
    revision = revise(_parts(old, profiles, store), _parts(new, profiles, store))
    data: Json = {
        "doc_id": document.doc_id,
        "source_uri": document.source_uri,
        "before": old.version_id,
        "after": new.version_id,
        "profiles": {stage: profiles[stage] for stage in _PARTS},
        **revision.data(),
    }
    head = f"**{document.title or document.doc_id}** (`{document.doc_id}`): {old.file_sha256[:12]} → {new.file_sha256[:12]}"
    return {"markdown": f"{head}\n\n{revision.markdown(_SHOWN_CHUNKS)}", **data}


def require_kept(version: Version, document: Document, ledger: Ledger) -> None:
    """Nothing for a version that may be read. Raises NotFoundError: `version_deleted`, or `outputs_gone` where its data was collected."""
    for stone in ledger.tombstones(document.namespace):
        if stone.doc_id == document.doc_id and stone.version_id in (None, version.version_id):
            raise NotFoundError(f"{version.version_id} was deleted on {stone.created_at[:10]}; ingest its file by name to have it again",
                                code="version_deleted")  # fmt: skip
    if version.status == "purged":
        raise NotFoundError(f"the data of {version.version_id} was collected; ingest that file again to have it", code="outputs_gone")


def _before(document: Document, new: Version, versions: Sequence[Version]) -> Version:
    """The version received before `new`, else the one after it."""
    others = [version for version in versions if version.version_id != new.version_id]
    if not others:
        raise NotFoundError(f"{document.doc_id} has one version only, {new.version_id}: there is nothing to compare it with",
                            code="unknown_version")  # fmt: skip
    place = [version.version_id for version in versions].index(new.version_id)
    return others[max(0, place - 1)]


def _common_profiles(versions: Sequence[Version], strategy: Strategy, store: Store) -> Mapping[str, str]:
    """The first profiles under which all versions have outputs: of the strategy as it is, else of a version's last build."""
    recorded = [version.counts["built"] for version in reversed(versions) if "built" in version.counts]
    offers: list[Mapping[str, str]] = [stage_profiles(strategy), *recorded]
    for profiles in offers:
        if all(_has_parts(version, profiles, store) for version in versions):
            return profiles
    lacking = next(version for version in versions if not _has_parts(version, offers[0], store))
    raise NotFoundError(
        f"{lacking.version_id} was not built under the config as it is now, and no other config built both; "
        f"`rag docs live {lacking.doc_id} {lacking.file_sha256[:12]}` builds it again, and pins it until `--unpin`",
        code="outputs_gone",
    )


def _has_parts(version: Version, profiles: Mapping[str, str], store: Store) -> bool:
    if not set(_PARTS) <= profiles.keys():
        return False
    rows = ((kind, profiles[stage], edition) for kind, stage, edition in _files(version))
    facts = store.facts_dir(version, profiles["facts"]) / "summary.json"
    return facts.is_file() and all(store.version_path(version, *row).is_file() for row in rows)


def _files(version: Version) -> list[tuple[str, str, str]]:
    """(kind, stage, edition) of the files that a difference is read from, the facts apart."""
    return [("edits", "sections", ""), ("sections", "sections", ""), ("chunks", "chunks", version.edition)]


def _parts(version: Version, profiles: Mapping[str, str], store: Store) -> Parts:
    edits, sections, chunks = (store.version_path(version, kind, profiles[stage], edition) for kind, stage, edition in _files(version))
    facts = load_facts(store, version, profiles["facts"])
    text = apply_edits(facts.text, read_records(edits, Edit)).text
    return Parts(text, read_records(sections, Section), read_records(chunks, Chunk))
