"""Fills a candidate's directory: the parent's stores copied and changed, or everything from the
stage outputs.

Whether there is room on disk for a release, before it is begun.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rag_platform.config.profiles import stage_profiles, text_norm_profile_id
from rag_platform.config.settings import EmbeddingConfig, Strategy
from rag_platform.documents.metadata import effective
from rag_platform.errors import StorageError
from rag_platform.indexes import delta as deltas
from rag_platform.indexes import dense, lexical
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CATALOG, CatalogWriter, Entry
from rag_platform.indexes.embedding import embed_texts
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ir import Document, EmbedderInfo, Json, Version
from rag_platform.normalisation.edits import canonical
from rag_platform.processes.worker import Workers, split_into_tasks
from rag_platform.protocols import Vectors
from rag_platform.releases.catalog_proof import given_fingerprints, output_fingerprint
from rag_platform.releases.checks import IndexChanges, hash_files
from rag_platform.releases.manifest import Manifest, embedder_info
from rag_platform.storage.store import Store, directory_bytes

OnProgress = Callable[[str, int, int], None]  # step, done, total


@dataclass
class Building:
    """One candidate in the making."""

    store: Store
    strategy: Strategy
    live: Sequence[tuple[Document, Version]]
    # ids of the live versions that the parent holds as they are and that `live` may leave out
    kept: Collection[str]
    directory: Path
    origin: Manifest | None
    cache: EmbeddingCache
    processes: int
    workers: Workers
    on_progress: OnProgress | None

    def run(self) -> None:
        """Fill the directory."""
        self.seconds: dict[str, float] = {}
        self.profiles = stage_profiles(self.strategy)
        self.parent_directory = (
            self.store.release_dir(self.origin.namespace, self.origin.release_id)
            if self.origin
            else None
        )
        reader = CatalogReader(self.parent_directory / CATALOG) if self.parent_directory else None
        try:
            self.delta = deltas.compare(self.live, reader, self.kept)
        finally:
            if reader is not None:
                reader.close()
        self._require_space()
        # engines, SQLite and the disk work outside the interpreter lock
        with ThreadPoolExecutor(max_workers=2) as pool:
            with self.step("link"):
                own = dense.rewritten_on_open(self.strategy.dense)
                left = (
                    deltas.link_parent(self.parent_directory, self.directory, own, self._given_up())
                    if self.parent_directory
                    else []
                )
            copied = pool.submit(deltas.copy_files, left)
            with self.step("read"):
                rows = self._loaded()
                vectors, failed = self._vectors(rows)
                new = {
                    entry.chunk.chunk_id: entry
                    for version in rows.values()
                    for entry in version.entries(failed)
                }
            self.changes = IndexChanges(
                deltas.lexical_change(self.delta.old, new), deltas.dense_change(self.delta.old, new)
            )
            words = pool.submit(self._write_lexical, rows)
            with self.step("copy"):
                copied.result()
            with self.step("catalog"):
                self._write_catalog(rows, failed)
            # flushed and hashed while the rest is written; nothing changes it any more
            hashing = pool.submit(hash_files, self.directory, [CATALOG])
            with self.step("dense"):
                stale = self._write_dense(vectors, new)
            self._summarise(new, stale)
            words.result()
            self.hashes = hashing.result()

    def _require_space(self) -> None:
        kinds = ("chunks", "views", "sections")
        files = [
            self.store.version_path(v, kind, self.profiles[kind])
            for v in self.delta.changed
            for kind in kinds
        ]
        needed = needed_bytes(
            files, self.delta.changed, embedder_info(self.strategy), self.parent_directory
        )
        require(self.store.home, needed)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Report a step and note how long the block took."""
        self._report(name, 0)
        started = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - started, 3)

    def _loaded(self) -> dict[str, deltas.VersionRows]:
        """The stage outputs of every changed version; `self.outputs` gets their fingerprints."""
        found: dict[str, deltas.VersionRows] = {}
        self.outputs: dict[str, str] = {}
        tasks = [
            (self.store, self.profiles, share) for share in split_into_tasks(self.delta.changed)
        ]
        for answers in self.workers.map(_load, tasks):
            for rows, output in answers:
                found[rows.version.version_id], self.outputs[rows.version.version_id] = rows, output
            self._report("read", len(found))
        return found

    def _report(self, step: str, done: int) -> None:
        if self.on_progress is not None:
            self.on_progress(step, done, len(self.delta.changed))

    def _vectors(
        self, rows: Mapping[str, deltas.VersionRows]
    ) -> tuple[dict[str, Vectors], Mapping[str, str]]:
        """Vectors by content hash for everything that changed, and the reasons of those that have
        none.
        """
        if not self.strategy.builds_dense:
            return {}, {}
        views = [
            view
            for version in rows.values()
            for view in version.views.values()
            if view.dense_text.strip()
        ]
        texts = {
            view.content_hash: canonical(view.dense_text, self.strategy.cleaning) for view in views
        }
        if not texts:
            return {}, {}
        profile = text_norm_profile_id(self.strategy.cleaning)
        embedding: EmbeddingConfig = self.strategy.embedding
        report = embed_texts(
            texts, embedding, self.cache, text_norm_profile=profile, processes=self.processes
        )
        info = embedder_info(self.strategy)
        assert info is not None
        return self.cache.get(texts, info, profile), report.failed

    def _write_catalog(
        self, rows: Mapping[str, deltas.VersionRows], failed: Mapping[str, str]
    ) -> None:
        with CatalogWriter(self.directory / CATALOG) as catalog:
            self._changed_documents = set(
                catalog.replace_documents(
                    (effective(document, version) for document, version in self.live), self.kept
                )
            )
            catalog.drop_versions(self.delta.dropped)
            for version in rows.values():
                catalog.add_version(
                    version.version,
                    version.sections,
                    version.entries(failed),
                    version.links,
                    version.texts,
                )

    def _write_lexical(self, rows: Mapping[str, deltas.VersionRows]) -> None:
        """Bring the word index up to date, if the strategy builds one."""
        if not self.strategy.builds_lexical:
            return
        removed, added = self.changes.lexical
        if self.origin is None or removed or added:
            with self.step("lexical"):
                wanted = (
                    row
                    for version in rows.values()
                    for row in version.lexical_rows()
                    if row.chunk_id in added
                )
                gone = {chunk_id: self.delta.old[chunk_id].chunk.doc_id for chunk_id in removed}
                lexical.update(
                    self.strategy.lexical, self.directory / "lexical", removed=gone, rows=wanted
                )

    def _write_dense(self, vectors: Mapping[str, Vectors], new: Mapping[str, Entry]) -> int:
        """Bring the vectors up to date, if the strategy builds any; returns how many deleted rows
        the approximate index still carries.
        """
        if not self.strategy.builds_dense:
            return 0
        removed, added = self.changes.dense
        stale = self._count("dense_stale") if dense.has_ann(self.directory / "dense") else 0
        info = embedder_info(self.strategy)
        assert info is not None
        if self.origin is None or removed or added:
            rows = {chunk_id: vectors[new[chunk_id].content_hash] for chunk_id in added}
            return dense.update(
                self.strategy.dense,
                self.directory / "dense",
                dim=info.dim,
                removed=removed,
                added=rows,
                stale=stale,
                retrieval=self.strategy.retrieval,
            )
        return stale

    def _given_up(self) -> Collection[str]:
        """What the release no longer takes over: an approximate index that no question would
        ask.
        """
        info = embedder_info(self.strategy)
        asked = info is not None and dense.needs_ann(
            self._count("dense"), info.dim, self.strategy.retrieval
        )
        return () if asked else (f"dense/{dense.ANN_DIRECTORY}",)

    def _ann_recall(self) -> float | None:
        """What the approximate index finds of the nearest vectors; as measured for the parent while
        its base is that of the parent.
        """
        if not self.strategy.builds_dense:
            return None
        name = f"dense/{dense.BASE}"
        if not dense.has_ann(self.directory / "dense"):
            return None
        if (
            self.origin is not None
            and self.parent_directory is not None
            and (self.directory / name).samefile(self.parent_directory / name)
        ):
            return self.origin.counts.get("ann_recall")
        return dense.measured_recall(self.strategy.dense, self.directory / "dense")

    def _count(self, key: str) -> int:
        return int(self.origin.counts.get(key, 0)) if self.origin is not None else 0

    def _summarise(self, new: Mapping[str, Entry], stale: int) -> None:
        catalog = CatalogReader(self.directory / CATALOG)
        try:
            counts = catalog.counts()
            self.chunk_counts = catalog.chunk_counts()
        finally:
            catalog.close()
        outputs, given, editions = (
            (self.origin.outputs, self.origin.given, self.origin.editions)
            if self.origin is not None
            else ({}, {}, {})
        )
        self.outputs |= {version_id: outputs[version_id] for version_id in self.kept}
        for version in self.delta.unchanged:
            name = version.version_id
            self.outputs[name] = outputs.get(name) or output_fingerprint(
                self.store, version, self.profiles
            )
        same = {
            *self.kept,
            *(
                v.version_id
                for v in self.delta.unchanged
                if v.doc_id not in self._changed_documents
            ),
        }
        self.given = {name: given[name] for name in same & given.keys()}
        self.given |= given_fingerprints(
            self.directory / CATALOG, self.chunk_counts.keys() - self.given.keys()
        )
        self.editions = {name: edition for name, edition in editions.items() if name in self.kept}
        self.editions |= {
            version.version_id: version.edition for _, version in self.live if version.edition
        }
        if not self.strategy.builds_lexical:
            counts["lexical"] = 0
        if not self.strategy.builds_dense:
            counts["dense"] = 0
        self.counts: Json = {**counts, "dense_stale": stale}
        if (recall := self._ann_recall()) is not None:
            self.counts["ann_recall"] = recall
        old = self.delta.old
        self.summary: Json = {
            "full_build": self.origin is None,
            "versions_added": len(self.delta.changed),
            "versions_removed": len(self.delta.dropped),
            "versions_unchanged": len(
                {*self.kept, *(version.version_id for version in self.delta.unchanged)}
            ),
            "chunks_added": sum(chunk_id not in old for chunk_id in new),
            "chunks_removed": sum(chunk_id not in new for chunk_id in old),
            "chunks_kept": counts["chunks"] - sum(chunk_id not in old for chunk_id in new),
        }


def _load(
    task: tuple[Store, Mapping[str, str], Sequence[Version]],
) -> list[tuple[deltas.VersionRows, str]]:
    """(stage outputs, their fingerprint) of some versions; a task for `Workers`."""
    store, profiles, versions = task
    return [
        (
            deltas.load_version(store, version, profiles),
            output_fingerprint(store, version, profiles),
        )
        for version in versions
    ]


RESERVE = 32 * 1024 * 1024  # what the ledger, logs and Dagster write meanwhile
# stage outputs are compressed; as rows, index entries and stored terms they take so many times
# their size
_UNPACKED = 4
_VECTORS = 2.5  # the matrix, and the approximate index with the same numbers and its graph


def needed_bytes(
    stage_files: Sequence[Path],
    versions: Sequence[Version],
    embedder: EmbedderInfo | None,
    taken_over: Path | None,
) -> int:
    """A rough upper figure of what a release will write: its new versions' rows and vectors, and
    copies of what cannot be linked.
    """
    rows = _UNPACKED * sum(path.stat().st_size for path in stage_files if path.is_file())
    chunks = sum(int(version.counts.get("chunks", 0)) for version in versions)
    vectors = int(_VECTORS * 4 * embedder.dim * chunks) if embedder else 0
    copied = (
        []
        if taken_over is None
        else [taken_over / CATALOG, *taken_over.glob("dense/ann/*.sqlite3")]
    )
    # at worst all of it is written anew
    words = 0 if taken_over is None else directory_bytes([taken_over / "lexical"])
    return (
        rows
        + vectors
        + sum(path.stat().st_size for path in copied if path.is_file())
        + words
        + RESERVE
    )


def require(home: Path, needed: int) -> None:
    """Raises StorageError `disk_full` when less than `needed` bytes are free under the data
    root.
    """
    free = shutil.disk_usage(home).free
    if free < needed:
        raise StorageError(
            f"the disk is full: {free / 1e6:.1f} MB are free under {home}, and the next release"
            f" needs {needed / 1e6:.1f} MB: it may take {(needed - RESERVE) / 1e6:.1f} MB, and"
            f" {RESERVE / 1e6:.1f} MB are kept free for the ledger, logs and Dagster; what is"
            " published stays as it is. Free some space (`rag gc` removes what nothing needs),"
            " then do it again",
            code="disk_full",
            needed=needed,
            free=free,
        )
