"""The history of a document, and the differences between two of its versions.

Sections and chunks are compared by their ids, which contain no version: a chunk with unchanged text
keeps its id. Of the others, chunks at the same place of the same section count as one changed
chunk.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Strategy
from rag_platform.documents.lookup import find_version
from rag_platform.documents.stored_facts import load_facts
from rag_platform.errors import NotFoundError
from rag_platform.ir import Chunk, Document, Edit, Json, Section, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Tombstone
from rag_platform.normalisation.edits import apply_edits
from rag_platform.releases.release_store import list_heads, open_catalog
from rag_platform.storage.store import Store, read_records
from rag_platform.text.pipe_tables import format_table
from rag_platform.text.plurals import pluralise

_PARTS = ("facts", "sections", "chunks")  # the stages whose outputs are compared
_SHOWN_CHUNKS = 20


# --- history ------------------------------------------------------------------------------------


def history(document: Document, *, store: Store, ledger: Ledger) -> Json:
    """The `history` payload: every version, newest first, with the releases that hold it."""
    namespace = document.namespace
    tombstones = ledger.tombstones(namespace, document.doc_id)
    versions = ledger.versions(namespace, document.doc_id)
    holding = list_holding(namespace, [version.version_id for version in versions], store)
    rows = version_rows(document, versions, tombstones, holding)
    deleted = any(tombstone.version_id is None for tombstone in tombstones)
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
            "releases": sorted(
                (release_id for release_id, held in holding.items() if version.version_id in held),
                reverse=True,
            ),
            "attempts": version.attempts,
            "code": version.code,
            "reason": version.reason,
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
        marks += ["what the source holds"] if row["wanted"] and not row["live"] else []
        marks += ["deleted"] if row["deleted_at"] else []
        marks += [f"edition {row['edition']}"] if row["edition"] else []
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
    lines += format_table(("version", "received", "state", "bytes", "chunks", "releases"), rows)
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
    profiles = _common_profiles((old, new), strategy, store)
    revision = revise(_read_parts(old, profiles, store), _read_parts(new, profiles, store))
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


def require_kept(version: Version, document: Document, ledger: Ledger) -> None:
    """Raise NotFoundError for a version that cannot be read: `version_deleted`, or `outputs_gone`
    where its data was collected.
    """
    for found in ledger.tombstones(document.namespace, document.doc_id):
        if found.version_id in (None, version.version_id):
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
    versions: Sequence[Version], strategy: Strategy, store: Store
) -> Mapping[str, str]:
    """The first profiles with outputs of all versions: the strategy's, or a previous build's."""
    recorded = [
        version.counts["built"] for version in reversed(versions) if "built" in version.counts
    ]
    candidates: list[Mapping[str, str]] = [stage_profiles(strategy), *recorded]
    for profiles in candidates:
        if all(_has_parts(version, profiles, store) for version in versions):
            return profiles
    lacking = next(version for version in versions if not _has_parts(version, candidates[0], store))
    raise NotFoundError(
        f"{lacking.version_id} was not built under the config as it is now, and no other config"
        f" built both; `rag docs live {lacking.doc_id} {lacking.file_sha256[:12]}` builds it again,"
        " and pins it until `--unpin`",
        code="outputs_gone",
    )


def _has_parts(version: Version, profiles: Mapping[str, str], store: Store) -> bool:
    if not set(_PARTS) <= profiles.keys():
        return False
    rows = ((kind, profiles[stage], edition) for kind, stage, edition in _files(version))
    facts = store.facts_dir(version, profiles["facts"]) / "summary.json"
    return facts.is_file() and all(store.version_path(version, *row).is_file() for row in rows)


def _files(version: Version) -> list[tuple[str, str, str]]:
    """(kind, stage, edition) of the compared files, without the facts."""
    return [
        ("edits", "sections", ""),
        ("sections", "sections", ""),
        ("chunks", "chunks", version.edition),
    ]


def _read_parts(version: Version, profiles: Mapping[str, str], store: Store) -> Parts:
    edits, sections, chunks = (
        store.version_path(version, kind, profiles[stage], edition)
        for kind, stage, edition in _files(version)
    )
    facts = load_facts(store, version, profiles["facts"])
    text = apply_edits(facts.text, read_records(edits, Edit)).text
    return Parts(text, read_records(sections, Section), read_records(chunks, Chunk))


_CONTEXT_LINES = 2


@dataclass(frozen=True, slots=True)
class Parts:
    """The compared outputs of a version; sections are slices of the normalised `text`."""

    text: str
    sections: Sequence[Section]
    chunks: Sequence[Chunk]


@dataclass(frozen=True, slots=True)
class Revision:
    """The differences from one version to another, each kind in text order."""

    sections_added: tuple[Section, ...]
    sections_removed: tuple[Section, ...]
    sections_changed: tuple[Section, ...]  # in their new state
    sections_unchanged: int
    chunks_added: tuple[Chunk, ...]
    chunks_removed: tuple[Chunk, ...]
    chunks_changed: tuple[tuple[Chunk, Chunk], ...]  # (before, after)
    chunks_unchanged: int

    def data(self) -> Json:
        """Counts, and every difference with its text."""
        return {
            "sections": {
                "added": [_section_data(section) for section in self.sections_added],
                "removed": [_section_data(section) for section in self.sections_removed],
                "changed": [_section_data(section) for section in self.sections_changed],
                "unchanged": self.sections_unchanged,
            },
            "chunks": {
                "added": [_chunk_data(chunk) for chunk in self.chunks_added],
                "removed": [_chunk_data(chunk) for chunk in self.chunks_removed],
                "changed": [
                    {"before": _chunk_data(before), "after": _chunk_data(after)}
                    for before, after in self.chunks_changed
                ],
                "unchanged": self.chunks_unchanged,
            },
        }

    def markdown(self, shown: int) -> str:
        """Counts, and the first `shown` differing chunks as unified diffs."""
        sections = _counts(
            self.sections_added,
            self.sections_removed,
            self.sections_changed,
            self.sections_unchanged,
        )
        chunks = _counts(
            self.chunks_added, self.chunks_removed, self.chunks_changed, self.chunks_unchanged
        )
        lines = [
            f"- sections: {sections}",
            *(f"  - added: {section.section_path}" for section in self.sections_added),
            *(f"  - removed: {section.section_path}" for section in self.sections_removed),
            *(f"  - changed: {section.section_path}" for section in self.sections_changed),
            f"- chunks: {chunks}",
        ]
        differing = list(self._differing())
        for before, after in differing[:shown]:
            lines += ["", *_diff(before, after)]
        if len(differing) > shown:
            lines += ["", f"{pluralise(len(differing) - shown, 'more chunk')}; --json has them all"]
        return "\n".join(lines)

    def _differing(self) -> Iterator[tuple[Chunk | None, Chunk | None]]:
        yield from self.chunks_changed
        yield from ((None, chunk) for chunk in self.chunks_added)
        yield from ((chunk, None) for chunk in self.chunks_removed)


def revise(before: Parts, after: Parts) -> Revision:
    """The differences from `before` to `after`."""
    old, new = _section_hashes(before), _section_hashes(after)
    old_ids, new_ids = ({chunk.chunk_id for chunk in parts.chunks} for parts in (before, after))
    common = old_ids & new_ids
    removed, added = (_group_by_place(parts.chunks, common) for parts in (before, after))
    pairs = [
        pair
        for place, chunks in added.items()
        for pair in zip(removed.get(place, ()), chunks, strict=False)
    ]
    paired = {chunk.chunk_id for pair in pairs for chunk in pair}
    return Revision(
        sections_added=tuple(s for s in after.sections if s.section_id not in old),
        sections_removed=tuple(s for s in before.sections if s.section_id not in new),
        sections_changed=tuple(
            s for s in after.sections if old.get(s.section_id, "") not in ("", new[s.section_id])
        ),
        sections_unchanged=sum(new.get(section_id) == digest for section_id, digest in old.items()),
        chunks_added=tuple(
            c for c in after.chunks if c.chunk_id not in old_ids and c.chunk_id not in paired
        ),
        chunks_removed=tuple(
            c for c in before.chunks if c.chunk_id not in new_ids and c.chunk_id not in paired
        ),
        chunks_changed=tuple(pairs),
        chunks_unchanged=len(common),
    )


def _section_hashes(parts: Parts) -> dict[str, str]:
    """section_id to the hash of the section's text, stripped of surrounding white space."""
    return {
        s.section_id: (
            hashlib.sha256(parts.text[s.norm_start : s.norm_end].strip().encode()).hexdigest()
        )
        for s in parts.sections
    }


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


def _counts(
    added: Sequence[object], removed: Sequence[object], changed: Sequence[object], unchanged: int
) -> str:
    return (
        f"{len(added)} added, {len(removed)} removed, {len(changed)} changed, {unchanged} unchanged"
    )


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
    fence = "`" * max(
        3, 1 + max((len(run) for line in body for run in re.findall("`+", line)), default=0)
    )
    return [
        f"**{chunk.section_path or 'no section'}**, chunk {chunk.chunk_index}, {what}:",
        "",
        f"{fence}diff",
        *body,
        fence,
    ]
