"""The history of a document, and the differences between two of its versions.

Sections and chunks are compared by their ids, which contain no version: a chunk with unchanged text
keeps its id. Of the others, chunks at the same place of the same section count as one changed
chunk.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Strategy
from rag_platform.documents.lookup import find_version
from rag_platform.documents.outputs import Outputs
from rag_platform.errors import NotFoundError
from rag_platform.ir import Chunk, Document, Json, Section, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Tombstone
from rag_platform.loaders.parts import fence
from rag_platform.releases.release_store import current_or_empty, list_heads, open_catalog
from rag_platform.storage.store import Store, read_records
from rag_platform.text.markdown_blocks import format_table
from rag_platform.text.wording import pluralise

_PARTS = ("facts", "sections", "chunks")  # the stages whose outputs are compared
_SHOWN_CHUNKS = 20
UNSEEN = "unseen"  # in the counts of a dropped candidate: the versions that no reader saw
# the columns of the ledger that the history shows
_OF_DOCUMENT = "namespace doc_id source_uri title pinned live_version wanted_version".split()
_OF_VERSION = (
    "version_id received_at completed_at status size edition revision attempts code reason".split()
)
ItemT = TypeVar("ItemT")


# --- history ------------------------------------------------------------------------------------


def history(document: Document, *, store: Store, ledger: Ledger) -> Json:
    """The `history` payload: every version, newest first, with the releases that hold it, of which
    candidates that were never published do not count.
    """
    namespace = document.namespace
    tombstones = ledger.tombstones(namespace, document.doc_id)
    versions = ledger.versions(namespace, document.doc_id)
    holding, _ = _split_holding(versions, namespace, store, ledger)
    rows = version_rows(document, versions, tombstones, holding)
    deleted = any(tombstone.version_id is None for tombstone in tombstones)
    data: Json = {
        **{name: getattr(document, name) for name in _OF_DOCUMENT},
        "status": "deleted" if deleted else document.status,
        "versions": rows,
    }
    return {"markdown": _history_markdown(data), **data}


def list_holding(
    namespace: str, version_ids: Sequence[str], store: Store
) -> dict[str, Collection[str]]:
    """release_id to those of the versions that the release holds. Read from the catalogs, which for
    a few versions is much faster than reading whole manifests.
    """
    found: dict[str, Collection[str]] = {}
    for head in list_heads(store, namespace):
        with (
            suppress(NotFoundError),  # another process is removing it
            open_catalog(store, namespace, head.release_id) as catalog,
        ):
            found[head.release_id] = catalog.versions(version_ids).keys()
    return found


def _split_holding(
    versions: Sequence[Version], namespace: str, store: Store, ledger: Ledger
) -> tuple[dict[str, Collection[str]], dict[str, Collection[str]]]:
    """`list_holding` of the releases that were published, and of the others, also of dropped ones.
    The pointer decides: after a crash the ledger may not know of the publication yet.
    """
    found = list_holding(namespace, [version.version_id for version in versions], store)
    rows = ledger.releases(namespace)
    states = {row.release_id: row.state for row in rows}
    states[current_or_empty(store, namespace)] = "published"
    others = [it for it in found if states.get(it) in ("candidate", "rejected")]
    unpublished = {release_id: found.pop(release_id) for release_id in others}
    unpublished |= {row.release_id: row.counts[UNSEEN] for row in rows if UNSEEN in row.counts}
    return found, unpublished


def version_rows(
    document: Document,
    versions: Sequence[Version],
    tombstones: Iterable[Tombstone],
    holding: Mapping[str, Iterable[str]],
) -> list[Json]:
    """A row for each version, newest first; `holding` maps release_id to version_ids."""
    deleted = {tombstone.version_id: tombstone.created_at for tombstone in tombstones}
    return [
        {
            **{name: getattr(version, name) for name in _OF_VERSION},
            "live": version.version_id == document.live_version,
            "pinned": document.pinned and version.version_id == document.live_version,
            "wanted": version.version_id == document.wanted_version,
            "deleted_at": deleted.get(version.version_id) or deleted.get(None) or "",
            "chunks": version.counts.get("chunks"),
            "releases": sorted(
                (release_id for release_id, held in holding.items() if version.version_id in held),
                reverse=True,
            ),
            "drift": version.counts.get("drift"),
        }
        for version in reversed(versions)
    ]


def _history_markdown(data: Json) -> str:
    pinned = ", pinned" if data["pinned"] else ""
    lines = [
        (
            f"**{data['title'] or data['doc_id']}** (`{data['doc_id']}`, {data['source_uri']}):"
            f" {data['status']}{pinned}"
        ),
        "",
    ]
    rows: list[tuple[object, ...]] = []
    notes: list[str] = []
    for row in data["versions"]:
        short = row["version_id"].rpartition("@")[2]
        marks = [mark for mark in ("live", "pinned") if row[mark]]
        marks += ["not yet published"] if row["live"] and not row["releases"] else []
        marks += ["what the source holds"] if row["wanted"] and not row["live"] else []
        marks += ["deleted"] if row["deleted_at"] else []
        marks += [f"edition {row['edition']}"] if row["edition"] else []
        marks += [f"revision {row['revision']}"] if row["revision"] > 1 else []
        state = ", ".join([row["status"], *marks])
        releases = len(row["releases"])
        rows.append((short, row["received_at"], state, row["size"], row["chunks"], releases))
        if row["code"]:
            notes.append(
                f"- {short}: [{row['code']}] {row['reason']} (failed"
                f" {pluralise(row['attempts'], 'time')})"
            )
        if row["drift"]:
            notes.append(
                f"- {short}: drift {row['drift']['kind']} against"
                f" {row['drift']['against'].rpartition('@')[2]}: {row['drift']['details']}"
            )
    lines += format_table(("version", "received at", "state", "bytes", "chunks", "releases"), rows)
    return "\n".join([*lines, *([""] if notes else []), *notes])


# --- differences --------------------------------------------------------------------------------


def difference(
    document: Document,
    before: str | None,
    after: str | None,
    *,
    strategy: Strategy,
    store: Store,
    ledger: Ledger,
) -> Json:
    """The `diff` payload for two versions of a document, named as for `find_version`; by default
    the live version and the one before it.

    Both are read under the strategy's profiles or, where outputs are missing, under those of the
    last build of either. Raises NotFoundError: `unknown_version`, `version_deleted`,
    `outputs_gone`.
    """
    versions = ledger.versions(document.namespace, document.doc_id)
    new = find_version(
        document,
        versions,
        after or document.live_version or (versions[-1].version_id if versions else ""),
    )
    old = find_version(document, versions, before) if before else _before(document, new, versions)
    for version in (old, new):
        require_kept(version, document, ledger)
    profiles, revision = compare_versions(old, new, stage_profiles(strategy), store)
    data: Json = {
        "doc_id": document.doc_id,
        "source_uri": document.source_uri,
        "before": old.version_id,
        "after": new.version_id,
        "profiles": {stage: profiles[stage] for stage in _PARTS},
        **revision.data(),
    }
    head = (
        f"**{document.title or document.doc_id}** (`{document.doc_id}`): {old.file_sha256[:12]} →"
        f" {new.file_sha256[:12]}"
    )
    return {"markdown": f"{head}\n\n{revision.markdown(_SHOWN_CHUNKS)}", **data}


def list_readable(document: Document, store: Store, ledger: Ledger) -> list[Version]:
    """The versions that are built and not deleted, newest first, without those that only a
    candidate holds: no reader has seen them.
    """
    deletions = ledger.tombstones(document.namespace, document.doc_id, since=0)
    versions = ledger.versions(document.namespace, document.doc_id)
    published, others = _split_holding(versions, document.namespace, store, ledger)
    unseen = set[str]().union(*others.values()).difference(*published.values())
    return [
        version
        for version in reversed(versions)
        if version.status == "ready"
        and version.version_id not in unseen
        and not _find_deletion(version, document, deletions)
    ]


def compare_versions(
    before: Version, after: Version, wanted: Mapping[str, str], store: Store
) -> tuple[Mapping[str, str], Revision]:
    """(the profiles that both are read under: those wanted, or of a previous build; what changed).

    Raises NotFoundError `outputs_gone`.
    """
    profiles = _common_profiles((before, after), wanted, store)
    return profiles, revise(*(_read_parts(it, profiles, store) for it in (before, after)))


def require_kept(version: Version, document: Document, ledger: Ledger) -> None:
    """Raise NotFoundError `version_deleted`, or `outputs_gone` where the data was collected."""
    deletions = ledger.tombstones(document.namespace, document.doc_id, since=0)
    if found := _find_deletion(version, document, deletions):
        raise NotFoundError(
            f"{version.version_id} was deleted on {found.created_at[:10]}; ingest its file by"
            " name to have it again",
            code="version_deleted",
        )
    if version.status == "purged":
        raise NotFoundError(
            f"the data of {version.version_id} was collected; ingest that file again to have it",
            code="outputs_gone",
        )


def _find_deletion(
    version: Version, document: Document, deletions: Iterable[Tombstone]
) -> Tombstone | None:
    """The deletion that took a version: one in force, or a hard one, from which ingesting another
    version of the document does not bring it back.
    """
    used = (document.live_version, document.wanted_version)
    for found in deletions:
        in_force = not found.lifted_at and found.version_id in (None, version.version_id)
        if in_force or is_condemned(version, [found], used):
            return found
    return None


def is_condemned(
    version: Version, tombstones: Iterable[Tombstone], used: Collection[str | None] = ()
) -> bool:
    """True when a hard deletion took the version's data. When the document is ingested again, only
    the version in use (`used`) is kept, no older one.
    """
    return any(
        tombstone.mode == "hard"
        and tombstone.doc_id == version.doc_id
        and tombstone.version_id in (None, version.version_id)
        and (
            not tombstone.lifted_at
            or (version.version_id not in used and version.received_at <= tombstone.created_at)
        )
        for tombstone in tombstones
    )


def _before(document: Document, new: Version, versions: Sequence[Version]) -> Version:
    """The version received before `new`; for the first one, the version after it."""
    others = [version for version in versions if version.version_id != new.version_id]
    if not others:
        raise NotFoundError(
            f"{document.doc_id} has one version only, {new.version_id}: there is nothing to compare"
            " it with",
            code="unknown_version",
        )
    position = [version.version_id for version in versions].index(new.version_id)
    return others[max(0, position - 1)]


def _common_profiles(
    versions: Sequence[Version], wanted: Mapping[str, str], store: Store
) -> Mapping[str, str]:
    """The first profiles with outputs of all versions: those wanted, or a previous build's."""
    recorded = [
        version.counts["built"] for version in reversed(versions) if "built" in version.counts
    ]
    candidates: list[Mapping[str, str]] = [wanted, *recorded]
    for profiles in candidates:
        if all(_has_parts(version, profiles, store) for version in versions):
            return profiles
    lacking = next(version for version in versions if not _has_parts(version, candidates[0], store))
    raise NotFoundError(
        f"{lacking.version_id} was not built under the config as it is now, and no other config"
        f" built both; `rag docs live {lacking.doc_id} {lacking.file_sha256[:12]} --namespace"
        f" {lacking.namespace}` builds it again, and pins it until `--unpin`",
        code="outputs_gone",
    )


def _has_parts(version: Version, profiles: Mapping[str, str], store: Store) -> bool:
    if not set(_PARTS) <= profiles.keys():
        return False
    outputs = Outputs(version, store, profiles)
    paths = [
        outputs.summary_path,
        *map(outputs.path, ("edits", "sections")),
        outputs.path("chunks", version.edition),
    ]
    return all(path.is_file() for path in paths)


def _read_parts(version: Version, profiles: Mapping[str, str], store: Store) -> Parts:
    outputs = Outputs(version, store, profiles)
    chunks = read_records(outputs.path("chunks", version.edition), Chunk)
    return Parts(outputs.normalised.text, outputs.sections, chunks)


_CONTEXT_LINES = 2


@dataclass(frozen=True, slots=True)
class Parts:
    """The compared outputs of a version; sections are slices of the normalised `text`."""

    text: str
    sections: Sequence[Section]
    chunks: Sequence[Chunk]

    def text_of(self, section: Section) -> str:
        """The text of a section without surrounding white space."""
        return self.text[section.norm_start : section.norm_end].strip()


@dataclass(frozen=True, slots=True)
class Changes(Generic[ItemT]):
    """What was added, removed and changed, in text order; changed items as (before, after)."""

    added: list[ItemT]
    removed: list[ItemT]
    changed: list[tuple[ItemT, ItemT]]
    unchanged: int

    def __str__(self) -> str:
        return (
            f"{len(self.added)} added, {len(self.removed)} removed, {len(self.changed)} changed,"
            f" {self.unchanged} unchanged"
        )


@dataclass(frozen=True, slots=True)
class Revision:
    """The differences from one version to another."""

    sections: Changes[Section]
    chunks: Changes[Chunk]

    def data(self) -> Json:
        """Counts, and every difference with its text."""
        return {
            "sections": {
                "added": [_section_data(section) for section in self.sections.added],
                "removed": [_section_data(section) for section in self.sections.removed],
                "changed": [_section_data(section) for _, section in self.sections.changed],
                "unchanged": self.sections.unchanged,
            },
            "chunks": {
                "added": [_chunk_data(chunk) for chunk in self.chunks.added],
                "removed": [_chunk_data(chunk) for chunk in self.chunks.removed],
                "changed": [
                    {"before": _chunk_data(before), "after": _chunk_data(after)}
                    for before, after in self.chunks.changed
                ],
                "unchanged": self.chunks.unchanged,
            },
        }

    def markdown(self, shown: int | None = None) -> str:
        """Counts, and the differing chunks, at most the first `shown`, as unified diffs."""
        sections, chunks = self.sections, self.chunks
        lines = [
            f"- sections: {sections}",
            *(f"  - added: {section.section_path}" for section in sections.added),
            *(f"  - removed: {section.section_path}" for section in sections.removed),
            *(f"  - changed: {section.section_path}" for _, section in sections.changed),
            f"- chunks: {chunks}",
        ]
        differing: list[tuple[Chunk | None, Chunk | None]] = [
            *chunks.changed,
            *((None, chunk) for chunk in chunks.added),
            *((chunk, None) for chunk in chunks.removed),
        ]
        for before, after in differing[:shown]:
            lines += ["", *_diff(before, after)]
        if shown is not None and len(differing) > shown:
            lines += ["", f"{pluralise(len(differing) - shown, 'more chunk')}; --json has them all"]
        return "\n".join(lines)


def revise(before: Parts, after: Parts) -> Revision:
    old, new = ({s.section_id: s for s in parts.sections} for parts in (before, after))
    common = [section for section in after.sections if section.section_id in old]
    changed = [
        (old[section.section_id], section)
        for section in common
        if before.text_of(old[section.section_id]) != after.text_of(section)
    ]
    sections = Changes(
        [section for section in after.sections if section.section_id not in old],
        [section for section in before.sections if section.section_id not in new],
        changed,
        len(common) - len(changed),
    )
    old_ids, new_ids = ({chunk.chunk_id for chunk in parts.chunks} for parts in (before, after))
    kept = old_ids & new_ids
    removed, added = (_group_by_place(parts.chunks, kept) for parts in (before, after))
    pairs = [
        pair
        for place, chunks in added.items()
        for pair in zip(removed.get(place, ()), chunks, strict=False)
    ]
    paired = kept.union(chunk.chunk_id for pair in pairs for chunk in pair)
    return Revision(
        sections,
        Changes(
            [chunk for chunk in after.chunks if chunk.chunk_id not in paired],
            [chunk for chunk in before.chunks if chunk.chunk_id not in paired],
            pairs,
            len(kept),
        ),
    )


def _group_by_place(
    chunks: Sequence[Chunk], common: set[str]
) -> dict[tuple[str, str, str], list[Chunk]]:
    """The chunks that only one version has, by section, type, and the common chunk before them."""
    found: dict[tuple[str, str, str], list[Chunk]] = defaultdict(list)
    last: dict[tuple[str, str], str] = {}
    for chunk in chunks:
        group = (chunk.section_id, chunk.chunk_type)
        if chunk.chunk_id in common:
            last[group] = chunk.chunk_id
        else:
            found[*group, last.get(group, "")].append(chunk)
    return found


def _section_data(section: Section) -> Json:
    return {"section_id": section.section_id, "section_path": section.section_path}


def _chunk_data(chunk: Chunk) -> Json:
    return {
        "chunk_id": chunk.chunk_id,
        "section_path": chunk.section_path,
        "chunk_index": chunk.chunk_index,
        "chunk_type": chunk.chunk_type,
        "text": chunk.chunk_text,
    }


def _diff(before: Chunk | None, after: Chunk | None) -> list[str]:
    chunk = after or before
    assert chunk is not None
    what = "changed" if before and after else "added" if after else "removed"
    old, new = (one.chunk_text.splitlines() if one else [] for one in (before, after))
    body = [
        line
        for line in difflib.unified_diff(old, new, n=_CONTEXT_LINES, lineterm="")
        if not line.startswith(("--- ", "+++ ", "@@"))
    ]
    return [
        f"**{chunk.section_path or 'no section'}**, chunk {chunk.chunk_index}, {what}:",
        "",
        fence("\n".join(body), "diff"),
    ]
