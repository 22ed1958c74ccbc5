"""Builds checked candidates, from the parent release and the differences or from stage outputs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rag_platform.config.ingestion import EmbeddingConfig
from rag_platform.config.profiles import (
    index_profile,
    stage_profiles,
    strategy_config_id,
    text_norm_profile_id,
)
from rag_platform.config.settings import Limits, Settings, Strategy
from rag_platform.documents.metadata import with_file_metadata
from rag_platform.errors import ReleaseError, StorageError, disk_full
from rag_platform.indexes import delta as deltas
from rag_platform.indexes import dense, dense_files, lexical
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import (
    CATALOG,
    CHANGES,
    CatalogWriter,
    ChangesWriter,
    changes_of,
)
from rag_platform.indexes.document_names import write_names
from rag_platform.indexes.embedding import dense_texts, embed_texts
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ir import Document, Json, LexicalRow, Version
from rag_platform.observability import tracing
from rag_platform.processes.worker import Workers, split_into_tasks
from rag_platform.protocols import Vectors
from rag_platform.releases.checks import (
    Candidate,
    IndexChanges,
    count_rows,
    hash_files,
    release_files,
)
from rag_platform.releases.manifest import (
    VERSION_CHANGES,
    VERSION_FIELDS,
    VERSIONS,
    CheckResult,
    Manifest,
    VersionChanges,
    VersionEntries,
    embedder_info,
    read_head,
    read_manifest,
    read_version_changes,
    write_manifest,
    write_versions,
)
from rag_platform.releases.proofs.catalog_proof import given_fingerprints
from rag_platform.releases.release_store import full_build_reason, list_heads
from rag_platform.releases.version_bundles import fetch_version, output_fingerprint
from rag_platform.storage.store import (
    Store,
    copy_file,
    directory_bytes,
    flush_directory,
    flush_file,
    link_or_copy,
)

_BUILDING = ".building-"
_CHUNKS_AT_ONCE = 5_000  # whose rows a build keeps in memory: some 100 MB
_NOT_INDEXED = deltas.Indexed("", "", "")
RESERVE = 32 * 1024 * 1024  # bytes for what the ledger, logs and Dagster write meanwhile
# compressed stage outputs grow by this factor as rows, index entries and stored terms
_EXPANSION = 4
# the vectors' matrix, and the approximate index, which holds them again with its graph
_VECTOR_COPIES = 2.5


@dataclass(frozen=True, slots=True)
class LiveVersions:
    """The live versions at one moment, according to the ledger."""

    pairs: Sequence[tuple[Document, Version]]
    # doc_ids that `pairs` are limited to, of which the parent may hold another state; None for all
    changed: Collection[str] | None = None
    deletions: int = 0  # sequence of the newest deletion before that moment
    purged: bool = False  # the parent's files hold data that was purged since


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a release comes from: its parent and the differences, or with `full` the stage outputs.
    One that `replaces` a release with the same content takes over that release's parent.
    """

    parent: str | None = None
    full: bool = False
    replaces: str | None = None


def build(
    store: Store,
    namespace: str,
    strategy: Strategy,
    live: LiveVersions,
    *,
    release_id: str,
    lineage: Lineage,
    cache: EmbeddingCache,
    settings: Settings,
) -> tuple[Manifest, dict[str, str]]:
    """The manifest of a checked candidate that holds exactly the live versions, and the versions
    whose provenance could not be proved, with the first reason.

    A parent with the same index profile is copied and the differences applied. Vectors come from
    the cache; missing ones are computed. A failed check does not stop the build: it is recorded in
    `manifest.checks`, and `publish` refuses the release. Raises StorageError `disk_full`; what is
    published is not affected.
    """
    final = store.release_dir(namespace, release_id)
    if final.exists():
        raise ReleaseError(
            f"release {release_id!r} exists already; build under another id", code="release_exists"
        )
    parent, origin = lineage.parent, None
    if parent and not lineage.full and not full_build_reason(store, namespace, strategy, parent):
        origin = read_head(store.release_dir(namespace, parent))
    processes = settings.embedding_processes
    with _candidate_directory(store, final) as directory, Workers(processes) as workers:
        work = _Build(
            store, strategy, live, directory, origin, cache, settings.limits, processes, workers
        )
        work.run()
        checks, unproved = work.check(parent)
        work.write_versions()
        manifest = Manifest(
            release_id=release_id,
            namespace=namespace,
            parent=parent,
            created_at=_next_moment(store, namespace).isoformat(timespec="microseconds"),
            strategy=strategy.name,
            strategy_config_id=strategy_config_id(strategy),
            strategy_config=strategy.model_dump(mode="json"),
            index_profile=index_profile(strategy),
            profiles=work.profiles,
            encoding=strategy.encoding,
            embedder=work.info,
            counts=work.counts,
            files=dict(sorted(work.hashes.items())),
            delta={
                **work.summary,
                "seconds": work.seconds,
                **({"replaces": lineage.replaces} if lineage.replaces else {}),
            },
            checks=tuple(checks),
            deletions=live.deletions,
        )
        write_manifest(directory, manifest)
        _flush(directory)
        os.replace(directory, final)
        flush_directory(final.parent)
    return manifest, unproved


def _next_moment(store: Store, namespace: str) -> datetime:
    """Now, or just after the newest release if the clock went back: they are ordered by time."""
    others = (datetime.fromisoformat(head.created_at) for head in list_heads(store, namespace))
    return max([datetime.now(UTC), *(other + timedelta(microseconds=1) for other in others)])


@contextmanager
def _candidate_directory(store: Store, final: Path) -> Iterator[Path]:
    """An empty directory for a candidate, removed on any error. Raises `disk_full`."""
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
            flush_file(path)


@dataclass
class _Build:
    """One candidate in the making."""

    store: Store
    strategy: Strategy
    live: LiveVersions
    directory: Path
    origin: Manifest | None  # the parent's, when its files are reused
    cache: EmbeddingCache
    limits: Limits
    processes: int
    workers: Workers

    def run(self) -> None:
        """Fill the directory."""
        self.seconds: dict[str, float] = {}
        self.version_entries: VersionEntries = {name: {} for name in VERSION_FIELDS}
        self.chunks_added = self.chunks_removed = 0
        self._shares_catalog = False
        self.profiles = stage_profiles(self.strategy)
        self.info = embedder_info(self.strategy)
        self.parent_directory = (
            self.store.release_dir(self.origin.namespace, self.origin.release_id)
            if self.origin
            else None
        )
        parent = self.parent_directory
        with closing(CatalogReader(parent / CATALOG)) if parent else nullcontext() as reader:
            self.delta = deltas.compare(self.live.pairs, reader, self.live.changed)
            self.rows_changed = reader.count_changes() if reader else 0  # since the parent's base
        require_space(self.store.home, self._estimate_bytes())
        self.words, self.vectors = IndexChanges(), IndexChanges()  # against the parent
        # engines, SQLite and the disk work outside the interpreter lock
        with ExitStack() as opened:
            pool = opened.enter_context(ThreadPoolExecutor(max_workers=2))
            with self._step("link"):
                copied = self._take_over()
            with self._step("copy"):
                if copied is not None:
                    copy_file(copied, self.directory / copied.name)
            words = lexical.Feed(pool, tracing.carry(self._write_lexical))
            opened.callback(words.end)
            vectors = dense_files.Spool(
                self.directory / ".vectors", self.info.dim if self.info else 0
            )
            opened.callback(vectors.close)
            with self._step("catalog"):
                with self._open_catalog() as catalog:
                    self._write_catalog(catalog, words, vectors)
                write_names(self.directory / CATALOG)
            self.seconds["catalog"] = round(self.seconds["catalog"] - self.seconds["read"], 3)
            # final now: flush and hash it while the rest is written
            written = CHANGES if self._shares_catalog else CATALOG
            hashing = pool.submit(hash_files, self.directory, [written])
            words.end()
            with self._step("dense"):
                self._write_dense(vectors)
            self._summarise()
            words.result()
            self.hashes = hashing.result()

    def _write_catalog(
        self, catalog: CatalogWriter, words: lexical.Feed[LexicalRow], vectors: dense_files.Spool
    ) -> None:
        documents = (with_file_metadata(document, version) for document, version in self.live.pairs)
        self._changed_documents = set(catalog.replace_documents(documents, self.delta.dropped))
        catalog.drop_versions(self.delta.dropped)
        for versions in self._batches():
            self._add(versions, catalog, words, vectors)

    def check(self, parent: str | None) -> tuple[list[CheckResult], dict[str, str]]:
        """The outcome of every check, and version_id to reason of what could not be proved.
        Completes `hashes` with those of all files.
        """
        carried, fresh = release_files(
            self.directory, self.parent_directory, self.origin.files if self.origin else {}
        )
        candidate = Candidate(
            directory=self.directory,
            store=self.store,
            strategy=self.strategy,
            profiles=self.profiles,
            limits=self.limits,
            live={version.version_id for _, version in self.live.pairs},
            changed=self.live.changed,
            versions=self._count_versions(),
            to_prove=self.delta.changed,
            files=[*carried, *fresh],
            parent=parent,
            carried=carried,
            ann_recall=self.counts.get("ann_recall"),
            index_changes=(self.words, self.vectors) if self.origin else None,
        )
        left = [name for name in fresh if name not in self.hashes]
        with ThreadPoolExecutor(max_workers=1) as pool:
            hashing = pool.submit(hash_files, self.directory, left)
            with self._step("check"):
                found = candidate.results(self.workers)
            with self._step("hash"):
                self.hashes = {**carried, **self.hashes, **hashing.result()}
        return found

    def _count_versions(self) -> int:
        """How many versions the release must hold."""
        if self.origin is None or self.live.changed is None:
            return len(self.live.pairs)
        before = int(self.origin.counts["versions"])
        return before - len(self.delta.dropped) + len(self.delta.changed)

    def write_versions(self) -> None:
        """Write per-version entries, if possible as changes to the parent's. Adds to `hashes`."""
        changed = {version.version_id for version in self.delta.changed}
        changes = VersionChanges(self.version_entries, frozenset(self.delta.dropped) | changed)
        parent = self.parent_directory
        if self.origin is None or parent is None:
            self.hashes[VERSIONS] = write_versions(self.directory / VERSIONS, self.version_entries)
            return
        together = read_version_changes(parent).then(changes)
        if not dense_files.outgrows(len(together), int(self.origin.counts["versions"])):
            link_or_copy(parent / VERSIONS, self.directory / VERSIONS)
            self.hashes[VERSIONS] = self.origin.files[VERSIONS]
            self.hashes[VERSION_CHANGES] = write_versions(
                self.directory / VERSION_CHANGES, together.entries, together.removed
            )
            return
        before = read_manifest(parent)
        entries = changes.apply_to({name: dict(getattr(before, name)) for name in VERSION_FIELDS})
        self.hashes[VERSIONS] = write_versions(self.directory / VERSIONS, entries)

    def _estimate_bytes(self) -> int:
        """An upper estimate of the bytes that the release will write: rows and vectors of its new
        versions, the copy of its parent's catalog and, at worst, the whole word index.
        """
        changed, parent = self.delta.changed, self.parent_directory
        files = [
            self.store.version_path(version, kind, self.profiles[kind])
            for version in changed
            for kind in ("chunks", "views", "sections")
        ]
        needed = RESERVE + _EXPANSION * sum(path.stat().st_size for path in files if path.is_file())
        if self.info:
            chunks = sum(int(version.counts.get("chunks", 0)) for version in changed)
            needed += int(_VECTOR_COPIES * 4 * self.info.dim * chunks)
        if parent is not None:
            needed += sum(file.stat().st_size for file in parent.glob("catalog*.sqlite"))
            needed += directory_bytes([parent / "lexical"])
        return needed

    def _take_over(self) -> Path | None:
        """Link the parent's files, except an approximate index that no question would use.

        Returns the part of its catalog that will change, which must be copied; None without one.
        """
        if self.origin is None or self.parent_directory is None:
            return None
        info, rows = self.origin.embedder, int(self.origin.counts.get("dense", 0))
        uses_ann = info is not None and dense.needs_ann(rows, info.dim, self.strategy.retrieval)
        parent = self.parent_directory / CATALOG
        changed = len(self.delta.old) + sum(
            int(version.counts.get("chunks", 0)) for version in self.delta.changed
        )
        changes = changes_of(parent)
        # rows of edited or removed documents stay in the shared base until they are purged
        self._shares_catalog = not self.live.purged and not dense_files.outgrows(
            self.rows_changed + changed, int(self.origin.counts["chunks"])
        )
        copied = changes if self._shares_catalog else parent
        deltas.link_parent(
            self.parent_directory,
            self.directory,
            without="" if uses_ann else f"dense/{dense.ANN_DIRECTORY}",
            copied=() if copied is None else (copied.name,),
        )
        return copied

    def _open_catalog(self) -> CatalogWriter:
        """The writer of the differences from the parent's base, or of a base of its own."""
        path = self.directory / CATALOG
        if self._shares_catalog:
            return ChangesWriter(path)
        changes = self.parent_directory and changes_of(self.parent_directory / CATALOG)
        if self.origin is None or not changes:
            return CatalogWriter(path)
        writer = CatalogWriter(path, {"changes": changes})
        writer.merge()
        return writer

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Trace a step as a span, and add its duration to `seconds`, summed over repetitions."""
        started = time.perf_counter()
        with tracing.span(
            f"stage.upsert.{name}",
            provider_type="release",
            provider_id=self.strategy.encoding,
            profile_id=index_profile(self.strategy),
        ):
            yield
        took = self.seconds.get(name, 0.0) + time.perf_counter() - started
        self.seconds[name] = round(took, 3)

    def _batches(self) -> Iterator[Sequence[Version]]:
        """The changed versions in batches of some thousand chunks; all in one batch where the
        parent had chunks of them, since only all new chunks together determine which old ones to
        remove.
        """
        waiting: list[Version] = []
        chunks = 0
        for version in self.delta.changed:
            waiting.append(version)
            chunks += int(version.counts.get("chunks", 0))
            if chunks >= _CHUNKS_AT_ONCE and not self.delta.old:
                yield waiting
                waiting, chunks = [], 0
        yield waiting

    def _add(
        self,
        versions: Sequence[Version],
        catalog: CatalogWriter,
        words: lexical.Feed[LexicalRow],
        spool: dense_files.Spool,
    ) -> None:
        """Write changed versions into the catalog, and pass their rows on to the indexes."""
        with self._step("read"):
            rows = self._read_rows(versions)
            vectors, failed = self._embed(rows)
        lexical_rows: list[LexicalRow] = []
        new_vectors: dict[str, str] = {}  # chunk id to content hash
        kept: dict[str, deltas.Indexed] = {}
        for version in rows.values():
            entries = version.entries(failed)
            catalog.add_version(
                version.version, version.sections, entries, version.links, version.texts
            )
            self.version_entries["versions"][version.version.version_id] = len(entries)
            now = {entry.chunk.chunk_id: deltas.Indexed.of(entry) for entry in entries}
            before = {key: self.delta.old.get(key, _NOT_INDEXED) for key in now}
            kept |= {key: indexed for key, indexed in now.items() if key in self.delta.old}
            self.chunks_added += sum(previous is _NOT_INDEXED for previous in before.values())
            new_vectors |= {
                key: indexed.dense
                for key, indexed in now.items()
                if indexed.dense and indexed.dense != before[key].dense
            }
            lexical_rows += [
                row
                for row in version.lexical_rows()
                if now[row.chunk_id].sparse != before[row.chunk_id].sparse
            ]
        self.chunks_removed = len(self.delta.old) - len(kept)
        removed = [
            {
                key
                for key, previous in self.delta.old.items()
                if previous[place] and kept.get(key, _NOT_INDEXED)[place] != previous[place]
            }
            for place in (1, 2)
        ]
        if self.origin is not None:
            self.words.removed.update(removed[0])
            self.words.added.update(row.chunk_id for row in lexical_rows)
            self.vectors.removed.update(removed[1])
            self.vectors.added.update(new_vectors)
        if self.strategy.builds_lexical and (self.origin is None or lexical_rows or removed[0]):
            words.put(lexical_rows)
        if self.info is not None:
            spool.add([*new_vectors], [vectors[indexed] for indexed in new_vectors.values()])

    def _read_rows(self, versions: Sequence[Version]) -> dict[str, deltas.VersionRows]:
        """The stage outputs of changed versions by version_id; records their fingerprints."""
        found: dict[str, deltas.VersionRows] = {}
        tasks = [(self.store, self.profiles, share) for share in split_into_tasks(versions)]
        for answers in self.workers.map(_load, tasks):
            for rows, output in answers:
                found[rows.version.version_id] = rows
                self.version_entries["outputs"][rows.version.version_id] = output
        return found

    def _embed(
        self, rows: Mapping[str, deltas.VersionRows]
    ) -> tuple[dict[str, Vectors], Mapping[str, str]]:
        """(content hash to vector of the changed chunks, content hash to reason of failed ones)."""
        if self.info is None:
            return {}, {}
        views = (view for version in rows.values() for view in version.views.values())
        texts = dense_texts(views, self.strategy.cleaning)
        if not texts:
            return {}, {}
        profile = text_norm_profile_id(self.strategy.cleaning)
        embedding: EmbeddingConfig = self.strategy.embedding
        report = embed_texts(
            texts, embedding, self.cache, text_norm_profile=profile, processes=self.processes
        )
        return self.cache.get(texts, self.info, profile), report.failed

    def _write_lexical(self, rows: Iterable[LexicalRow]) -> None:
        with self._step("lexical"):
            gone = {key: self.delta.old[key].doc_id for key in self.words.removed}
            lexical.update(
                self.strategy.lexical, self.directory / "lexical", removed=gone, rows=rows
            )

    def _write_dense(self, spool: dense_files.Spool) -> None:
        """Update the vectors, if the strategy builds any."""
        removed = self.vectors.removed
        if self.info is not None and (self.origin is None or removed or spool.ids):
            dense.update(
                self.strategy.dense,
                self.directory / "dense",
                dim=self.info.dim,
                removed=removed,
                ids=spool.ids,
                vectors=spool.rows(),
                retrieval=self.strategy.retrieval,
            )

    def _ann_recall(self) -> float | None:
        """The share of the nearest vectors that the approximate index finds, as measured for the
        parent when its index is reused; None without such an index.
        """
        directory, name = self.directory / "dense", dense_files.BASE
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

    def _summarise(self) -> None:
        to_fingerprint = {version.version_id for version in self.delta.changed} | {
            version.version_id
            for version in self.delta.unchanged
            if version.doc_id in self._changed_documents
        }
        with closing(CatalogReader(self.directory / CATALOG)) as catalog:
            counts = count_rows(catalog, self.strategy)
            self.version_entries["given"] = given_fingerprints(catalog, to_fingerprint)
        self.version_entries["editions"] = {
            version.version_id: version.edition for version in self.delta.changed if version.edition
        }
        self.counts: Json = dict(counts)
        if (recall := self._ann_recall()) is not None:
            self.counts["ann_recall"] = recall
        self.summary: Json = {
            "full_build": self.origin is None,
            "versions_added": len(self.delta.changed),
            "versions_removed": len(self.delta.dropped),
            "versions_unchanged": counts["versions"] - len(self.delta.changed),
            "chunks_added": self.chunks_added,
            "chunks_removed": self.chunks_removed,
            "chunks_kept": counts["chunks"] - self.chunks_added,
        }


def _load(
    task: tuple[Store, Mapping[str, str], Sequence[Version]],
) -> list[tuple[deltas.VersionRows, str]]:
    """(stage outputs, their fingerprint) of some versions; a task for `Workers`."""
    store, profiles, versions = task
    for version in versions:
        fetch_version(store, version, profiles)
    return [
        (
            deltas.load_version(store, version, profiles),
            output_fingerprint(store, version, profiles),
        )
        for version in versions
    ]


def require_space(home: Path, needed: int) -> None:
    """Raises StorageError `disk_full` when less than `needed` bytes are free at the data root."""
    free = shutil.disk_usage(home).free
    if free < needed:
        raise StorageError(
            f"the disk is full: {free / 1e6:.1f} MB are free under {home}, and the next release"
            f" needs {needed / 1e6:.1f} MB: it may take {(needed - RESERVE) / 1e6:.1f} MB, and"
            f" {RESERVE / 1e6:.1f} MB are kept free for the ledger, logs and Dagster; what is"
            " published stays as it is. Free some space (`rag gc` removes what nothing needs)",
            code="disk_full",
            needed=needed,
            free=free,
        )
