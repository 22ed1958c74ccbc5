"""The difference of the next release from its parent, and the copy of the parent's files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rag_platform.documents.outputs import Outputs
from rag_platform.errors import IntegrityError
from rag_platform.indexes import lexical
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CATALOG, CHANGES, Entry
from rag_platform.indexes.document_names import NAMES
from rag_platform.ir import (
    Chunk,
    Document,
    LexicalRow,
    MediaLink,
    MediaText,
    Section,
    Version,
    View,
)
from rag_platform.storage.records import REINGEST_REMEDY
from rag_platform.storage.store import Store, files_below, link_or_copy, read_records


@dataclass(frozen=True, slots=True)
class VersionRows:
    """The stage outputs of one version, from which its catalog and index rows are made."""

    version: Version
    sections: Sequence[Section]
    chunks: Sequence[Chunk]
    views: Mapping[str, View]
    links: Sequence[MediaLink]
    texts: Sequence[MediaText] = ()

    def entries(self, failed: Mapping[str, str]) -> list[Entry]:
        """Catalog entries in reading order; `failed` has the content hashes without a vector."""
        return [
            _entry(chunk, self.views[chunk.chunk_id], self.version.filename, failed)
            for chunk in self.chunks
        ]

    def lexical_rows(self) -> Iterator[LexicalRow]:
        for chunk in self.chunks:
            row = lexical.row_of(chunk, self.views[chunk.chunk_id], self.version.filename)
            if row is not None:
                yield row


class Indexed(NamedTuple):
    """The hashes of a chunk's indexed content; empty where it is not in an index."""

    doc_id: str
    sparse: str
    dense: str

    @classmethod
    def of(cls, entry: Entry) -> Indexed:
        in_dense = entry.indexed[1]
        return cls(entry.chunk.doc_id, entry.sparse_hash, entry.content_hash if in_dense else "")


@dataclass(frozen=True, slots=True)
class Delta:
    """The difference between the live versions and the parent."""

    unchanged: list[Version] = field(default_factory=list)  # live, the same in the parent
    changed: list[Version] = field(default_factory=list)  # live, new or different
    dropped: list[str] = field(default_factory=list)  # version ids to remove from the parent
    old: dict[str, Indexed] = field(default_factory=dict)  # chunks of the dropped versions


def load_version(store: Store, version: Version, profiles: Mapping[str, str]) -> VersionRows:
    """The stage outputs of a version. Raises IntegrityError when one is missing."""

    outputs = Outputs(version, store, profiles)

    def path(kind: str) -> Path:
        found = outputs.path(kind, version.edition if kind in ("chunks", "views") else "")
        if not found.is_file():
            raise IntegrityError(
                f"{version.version_id} has no {kind} for this strategy; {REINGEST_REMEDY}",
                code="stage_missing",
            )
        return found

    chunks = read_records(path("chunks"), Chunk)
    views = {view.chunk_id: view for view in read_records(path("views"), View)}
    if lost := [chunk.chunk_id for chunk in chunks if chunk.chunk_id not in views]:
        raise IntegrityError(
            f"{version.version_id}: {len(lost)} chunks without a view, e.g. {lost[0]};"
            f" {REINGEST_REMEDY}"
        )
    return VersionRows(
        version,
        read_records(path("sections"), Section),
        chunks,
        views,
        read_records(path("media"), MediaLink),
        outputs.media_texts,
    )


def compare(
    live: Sequence[tuple[Document, Version]],
    parent: CatalogReader | None,
    doc_ids: Collection[str] | None = None,
) -> Delta:
    """The difference between the live versions and a parent's catalog; without a parent every
    version is changed. With `doc_ids`, only these documents are compared, and `live` only has their
    versions.
    """
    if parent is None:
        return Delta(changed=[version for _, version in live])
    held = parent.versions(version.version_id for _, version in live)
    retry = parent.unembedded()
    unchanged = [v for _, v in live if held.get(v.version_id) == v and v.version_id not in retry]
    same = {version.version_id for version in unchanged}
    before, _ = parent.version_ids(doc_ids)
    dropped = sorted(before - same)
    old = {
        entry.chunk.chunk_id: Indexed.of(entry)
        for version_id in dropped
        for entry in parent.entries_of_version(version_id)
    }
    return Delta(unchanged, [v for _, v in live if v.version_id not in same], dropped, old)


def link_parent(parent: Path, directory: Path, without: str, copied: Collection[str] = ()) -> None:
    """Hard-link the files of a release, except its manifests, those that are `copied`, the changes
    and stored names of a catalog that is merged into one base, and the folder `without`.

    A file must be replaced by a copy before it is changed.
    """
    excluded = {
        "manifest.json",
        "versions.json",
        "versions-changes.json",
        *copied,
        *([CHANGES] if copied else []),
        *([NAMES] if CATALOG in copied else []),
    }
    for name in files_below(parent):
        if name not in excluded and not (
            name.startswith(f"{without}/") or name.endswith((".lock", "-journal", "-wal", "-shm"))
        ):
            link_or_copy(parent / name, directory / name)


def _entry(chunk: Chunk, view: View, filename: str, failed: Mapping[str, str]) -> Entry:
    row = lexical.row_of(chunk, view, filename)
    content_hash = view.content_hash if view.dense_text.strip() else ""
    status = (
        "failed_embed" if content_hash in failed else "ready" if content_hash or row else "no_text"
    )
    return Entry(
        chunk,
        content_hash,
        lexical.row_hash(row),
        status,
        view.keyphrases,
        view.quality_score,
        view.title,
        view.summary,
        view.tags,
    )
