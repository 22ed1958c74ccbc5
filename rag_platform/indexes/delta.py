"""What the next release changes against its parent, and the copy that is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rag_platform.errors import IntegrityError
from rag_platform.indexes import lexical
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_changes import CHANGES
from rag_platform.indexes.catalog_tables import CATALOG, Entry
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
from rag_platform.storage.records import ANEW
from rag_platform.storage.store import Store, files_below, link_or_copy, read_records


@dataclass(frozen=True, slots=True)
class VersionRows:
    """The stage outputs of one version that a release holds."""

    version: Version
    sections: Sequence[Section]
    chunks: Sequence[Chunk]
    views: Mapping[str, View]
    links: Sequence[MediaLink]
    texts: Sequence[MediaText] = ()

    def entries(self, failed: Mapping[str, str]) -> list[Entry]:
        """Catalog entries in reading order; `failed` holds the content hashes without a vector."""
        return [
            _entry(chunk, self.views[chunk.chunk_id], self.version.filename, failed)
            for chunk in self.chunks
        ]

    def lexical_rows(self) -> Iterator[LexicalRow]:
        """What the word index holds of the version."""
        for chunk in self.chunks:
            row = lexical.row_of(chunk, self.views[chunk.chunk_id], self.version.filename)
            if row is not None:
                yield row


class Indexed(NamedTuple):
    """What the indexes hold of a chunk, by hash; empty where they hold nothing."""

    doc_id: str
    sparse: str
    dense: str

    @classmethod
    def of(cls, entry: Entry) -> Indexed:
        """That of an entry of the catalog."""
        in_dense = entry.indexed[1]
        return cls(entry.chunk.doc_id, entry.sparse_hash, entry.content_hash if in_dense else "")


@dataclass(frozen=True, slots=True)
class Delta:
    """Live versions that the parent holds as they are, other live ones, and what it must lose."""

    unchanged: list[Version] = field(default_factory=list)
    changed: list[Version] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    old: dict[str, Indexed] = field(default_factory=dict)  # chunks of the dropped versions


def load_version(store: Store, version: Version, profiles: Mapping[str, str]) -> VersionRows:
    """The stage outputs of a version. Raises IntegrityError when one is missing."""

    def path(kind: str) -> Path:
        found = store.version_path(
            version, kind, profiles[kind], version.edition if kind in ("chunks", "views") else ""
        )
        if not found.is_file():
            raise IntegrityError(
                f"{version.version_id} has no {kind} for this strategy; {ANEW}",
                code="stage_missing",
            )
        return found

    chunks = read_records(path("chunks"), Chunk)
    views = {view.chunk_id: view for view in read_records(path("views"), View)}
    if lost := [chunk.chunk_id for chunk in chunks if chunk.chunk_id not in views]:
        raise IntegrityError(
            f"{version.version_id}: {len(lost)} chunks without a view, e.g. {lost[0]}; {ANEW}"
        )
    # there where the strategy has images read
    texts = store.version_path(version, "media_texts", profiles["media_texts"])
    return VersionRows(
        version,
        read_records(path("sections"), Section),
        chunks,
        views,
        read_records(path("media"), MediaLink),
        read_records(texts, MediaText) if texts.is_file() else (),
    )


def compare(
    live: Sequence[tuple[Document, Version]],
    parent: CatalogReader | None,
    asked: Collection[str] | None = None,
) -> Delta:
    """The difference between the live versions and a parent's catalog; without a parent every
    version is changed. `live` are those of the documents `asked` for: the others stand in the
    parent as they are.
    """
    if parent is None:
        return Delta(changed=[version for _, version in live])
    held, retry = (
        parent.versions(version.version_id for _, version in live),
        parent.versions_with("failed_embed"),
    )
    unchanged = [v for _, v in live if held.get(v.version_id) == v and v.version_id not in retry]
    same = {version.version_id for version in unchanged}
    before, _ = parent.version_ids(asked)
    dropped = sorted(before - same)
    old = {
        entry.chunk.chunk_id: Indexed.of(entry)
        for version_id in dropped
        for entry in parent.entries_of_version(version_id)
    }
    return Delta(unchanged, [v for _, v in live if v.version_id not in same], dropped, old)


def link_parent(parent: Path, directory: Path, without: str, copied: Collection[str] = ()) -> None:
    """Take over a release's files but for what it says of itself, those that are `copied`, the
    changes and stored names of a catalog that becomes one base, and the folder `without`.

    They are linked: whoever changes one gives it bytes of its own first.
    """
    left = {
        "manifest.json",
        "versions.json",
        "versions-changes.json",
        *copied,
        *([CHANGES] if copied else []),
        *([NAMES] if CATALOG in copied else []),
    }
    for name in files_below(parent):
        if name not in left and not (
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
