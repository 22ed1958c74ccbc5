"""Builds candidates: from the parent and the difference, or from the stage outputs; checked."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rag_platform.config.ingestion import EmbeddingConfig
from rag_platform.config.profiles import (
    index_profile,
    stage_profiles,
    strategy_config_id,
    text_norm_profile_id,
)
from rag_platform.config.settings import Strategy
from rag_platform.documents.metadata import with_file_metadata
from rag_platform.errors import ReleaseError, StorageError, disk_full
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
from rag_platform.releases.catalog_proof import given_fingerprints
from rag_platform.releases.checks import Candidate, IndexChanges, hash_files, release_files
from rag_platform.releases.manifest import (
    CheckResult,
    Manifest,
    embedder_info,
    write_manifest,
)
from rag_platform.releases.release_store import usable_parent
from rag_platform.releases.version_bundles import bring_version, output_fingerprint
from rag_platform.storage.store import Store, copy_file, directory_bytes, flush_directory

_BUILDING = ".building-"


@dataclass(frozen=True, slots=True)
class Live:
    """What the ledger calls live at one moment.

    `rows` are the fingerprints by which it knows all live versions; `pairs` may leave out what the
    parent holds as it is (`release_store.known_rows`). `deletions` is the sequence of the newest
    deletion before.
    """

    pairs: Sequence[tuple[Document, Version]]
    rows: Mapping[str, str] = field(default_factory=dict)
    deletions: int = 0


@dataclass(frozen=True, slots=True)
class Descent:
    """Where a release comes from: by difference from its parent, or `full` from the stage outputs.

    One that only `replaces` another, with the same content, takes its place after that one's
    parent.
    """

    parent: str | None = None
    full: bool = False
    replaces: str | None = None


def build(
    store: Store,
    namespace: str,
    strategy: Strategy,
    live: Live,
    *,
    release_id: str,
    descent: Descent,
    cache: EmbeddingCache,
    processes: int = 0,
) -> Manifest:
    """The manifest of a checked candidate that holds exactly the live versions.

    A parent with the same index profile is copied and the difference applied. Vectors come from the
    cache; those it lacks are computed. A check that fails does not stop the build: it stands in
    `manifest.checks`, and `publish` refuses. Raises StorageError `disk_full` when there is no room
    for it, or not any more; what is published stays as it is.
    """
    final = store.release_dir(namespace, release_id)
    if final.exists():
        raise ReleaseError(
            f"release {release_id!r} exists already; build under another id", code="release_exists"
        )
    origin = None if descent.full else usable_parent(store, namespace, strategy, descent.parent)[0]
    with _candidate_directory(store, final) as directory, Workers(processes) as workers:
        work = _Build(store, strategy, live, directory, origin, cache, processes, workers)
        work.run()
        checks = work.check(descent.parent)
        manifest = Manifest(
            release_id=release_id,
            namespace=namespace,
            parent=descent.parent,
            created_at=datetime.now(UTC).isoformat(timespec="microseconds"),
            strategy=strategy.name,
            strategy_config_id=strategy_config_id(strategy),
            strategy_config=strategy.model_dump(mode="json"),
            index_profile=index_profile(strategy),
            profiles=work.profiles,
            encoding=strategy.encoding,
            embedder=work.info,
            versions=work.chunk_counts,
            counts=work.counts,
            files=dict(sorted(work.hashes.items())),
            delta={
                **work.summary,
                "seconds": work.seconds,
                **({"replaces": descent.replaces} if descent.replaces else {}),
            },
            checks=tuple(checks),
            outputs=work.outputs,
            given=work.given,
            editions=work.editions,
            rows=live.rows,
            deletions=live.deletions,
        )
        write_manifest(directory, manifest)
        _flush(directory)
        os.replace(directory, final)
        flush_directory(final.parent)
    return manifest


@contextmanager
def _candidate_directory(store: Store, final: Path) -> Iterator[Path]:
    """An empty directory for a candidate, removed with an error. Raises `disk_full`."""
    directory = final.with_name(_BUILDING + final.name)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        yield directory
    except BaseException as error:
        shutil.rmtree(directory, ignore_errors=True)
        if full := disk_full(error, store.home):
            raise full from error
        raise


def _flush(directory: Path) -> None:
    """Flush every file of a new release to disk before its name appears."""
    for path in [*directory.rglob("*"), directory]:
        if path.is_dir():
            flush_directory(path)
        elif path.stat().st_nlink == 1:  # linked files were flushed with the parent
            with open(path, "rb") as handle:
                os.fsync(handle.fileno())


@dataclass
class _Build:
    """One candidate in the making."""

    store: Store
    strategy: Strategy
    live: Live
    directory: Path
    origin: Manifest | None  # of the parent whose stores are taken over
    cache: EmbeddingCache
    processes: int
    workers: Workers

    def run(self) -> None:
        """Fill the directory."""
        self.seconds: dict[str, float] = {}
        self.profiles = stage_profiles(self.strategy)
        self.info = embedder_info(self.strategy)
        # ids of the live versions that the parent holds as they are
        self.kept = self.live.rows.keys() - {v.version_id for _, v in self.live.pairs}
        self.parent_directory = (
            self.store.release_dir(self.origin.namespace, self.origin.release_id)
            if self.origin
            else None
        )
        with ExitStack() as opened:
            reader = None
            if self.parent_directory is not None:
                reader = CatalogReader(self.parent_directory / CATALOG)
                opened.callback(reader.close)
            self.delta = deltas.compare(self.live.pairs, reader, self.kept)
        self._require_space()
        # engines, SQLite and the disk work outside the interpreter lock
        with ThreadPoolExecutor(max_workers=2) as pool:
            with self._step("link"):
                copied = self._take_over(pool)
            with self._step("read"):
                rows = self._read_rows()
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
            with self._step("copy"):
                if copied is not None:
                    copied.result()
            with self._step("catalog"):
                self._write_catalog(rows, failed)
            # flushed and hashed while the rest is written; nothing changes it any more
            hashing = pool.submit(hash_files, self.directory, [CATALOG])
            with self._step("dense"):
                self._write_dense(vectors, new)
            self._summarise(new)
            words.result()
            self.hashes = hashing.result()

    def check(self, parent: str | None) -> list[CheckResult]:
        """The outcome of every check; `hashes` are then those of all files."""
        carried, fresh = release_files(
            self.directory, self.parent_directory, self.origin.files if self.origin else {}
        )
        candidate = Candidate(
            directory=self.directory,
            store=self.store,
            strategy=self.strategy,
            profiles=self.profiles,
            live={*self.kept, *(version.version_id for _, version in self.live.pairs)},
            to_prove=self.delta.changed,
            files=[*carried, *fresh],
            parent=parent,
            carried=carried,
            ann_recall=self.counts.get("ann_recall"),
            changes=self.changes if self.origin else None,
        )
        left = [name for name in fresh if name not in self.hashes]
        with ThreadPoolExecutor(max_workers=1) as pool:
            hashing = pool.submit(hash_files, self.directory, left)
            with self._step("check"):
                checks = candidate.results(self.workers)
            with self._step("hash"):
                self.hashes = {**carried, **self.hashes, **hashing.result()}
        return checks

    def _require_space(self) -> None:
        kinds = ("chunks", "views", "sections")
        files = [
            self.store.version_path(v, kind, self.profiles[kind])
            for v in self.delta.changed
            for kind in kinds
        ]
        needed = estimate_bytes(files, self.delta.changed, self.info, self.parent_directory)
        require_space(self.store.home, needed)

    def _take_over(self, pool: ThreadPoolExecutor) -> Future[None] | None:
        """Link the parent's files, but no index that nobody asks; the copy of its catalog."""
        if self.origin is None or self.parent_directory is None:
            return None
        info, rows = self.origin.embedder, int(self.origin.counts.get("dense", 0))
        asked = info is not None and dense.needs_ann(rows, info.dim, self.strategy.retrieval)
        deltas.link_parent(
            self.parent_directory,
            self.directory,
            without="" if asked else f"dense/{dense.ANN_DIRECTORY}",
        )
        return pool.submit(copy_file, self.parent_directory / CATALOG, self.directory / CATALOG)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Note how long the block took."""
        started = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - started, 3)

    def _read_rows(self) -> dict[str, deltas.VersionRows]:
        """The stage outputs of every changed version; `self.outputs` gets their fingerprints."""
        found: dict[str, deltas.VersionRows] = {}
        self.outputs: dict[str, str] = {}
        tasks = [
            (self.store, self.profiles, share) for share in split_into_tasks(self.delta.changed)
        ]
        for answers in self.workers.map(_load, tasks):
            for rows, output in answers:
                found[rows.version.version_id], self.outputs[rows.version.version_id] = rows, output
        return found

    def _vectors(
        self, rows: Mapping[str, deltas.VersionRows]
    ) -> tuple[dict[str, Vectors], Mapping[str, str]]:
        """Vectors of what changed by content hash; reasons by content hash of those without."""
        if self.info is None:
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
        return self.cache.get(texts, self.info, profile), report.failed

    def _write_catalog(
        self, rows: Mapping[str, deltas.VersionRows], failed: Mapping[str, str]
    ) -> None:
        with CatalogWriter(self.directory / CATALOG) as catalog:
            documents = (
                with_file_metadata(document, version) for document, version in self.live.pairs
            )
            self._changed_documents = set(catalog.replace_documents(documents, self.kept))
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
            with self._step("lexical"):
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

    def _write_dense(self, vectors: Mapping[str, Vectors], new: Mapping[str, Entry]) -> None:
        """Bring the vectors up to date, if the strategy builds any."""
        removed, added = self.changes.dense
        if self.info is not None and (self.origin is None or removed or added):
            dense.update(
                self.strategy.dense,
                self.directory / "dense",
                dim=self.info.dim,
                removed=removed,
                added={chunk_id: vectors[new[chunk_id].content_hash] for chunk_id in added},
                retrieval=self.strategy.retrieval,
            )

    def _ann_recall(self) -> float | None:
        """What the approximate index finds of the nearest vectors, None without one; as measured
        for the parent while it is the parent's.
        """
        directory, name = self.directory / "dense", dense.BASE
        if not dense.has_ann(directory):
            return None
        if (
            self.origin is not None
            and self.parent_directory is not None
            and (directory / name).samefile(self.parent_directory / "dense" / name)
            and (known := self.origin.counts.get("ann_recall")) is not None
        ):
            return float(known)
        return dense.measure_recall(self.strategy.dense, directory)

    def _summarise(self, new: Mapping[str, Entry]) -> None:
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
            version.version_id: version.edition for _, version in self.live.pairs if version.edition
        }
        if not self.strategy.builds_lexical:
            counts["lexical"] = 0
        if not self.strategy.builds_dense:
            counts["dense"] = 0
        self.counts: Json = dict(counts)
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
    for version in versions:
        bring_version(store, version, profiles)
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


def estimate_bytes(
    stage_files: Sequence[Path],
    versions: Sequence[Version],
    embedder: EmbedderInfo | None,
    parent: Path | None,
) -> int:
    """A rough upper figure of what a release will write: rows and vectors of its new versions, the
    copy of its parent's catalog and, at worst, all words anew.
    """
    rows = _UNPACKED * sum(path.stat().st_size for path in stage_files if path.is_file())
    chunks = sum(int(version.counts.get("chunks", 0)) for version in versions)
    vectors = int(_VECTORS * 4 * embedder.dim * chunks) if embedder else 0
    copied = 0
    if parent is not None:
        copied = (parent / CATALOG).stat().st_size + directory_bytes([parent / "lexical"])
    return rows + vectors + copied + RESERVE


def require_space(home: Path, needed: int) -> None:
    """Raises StorageError `disk_full` when less than `needed` bytes are free at the data root."""
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
