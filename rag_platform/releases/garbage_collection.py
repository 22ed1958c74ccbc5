"""Garbage collection: removes from every store what no document, release or draft needs any more.

What to remove is found by comparing the stores, not taken from a list, so the next collection
finishes an interrupted one. Data is marked as incomplete before it is removed: a folder is renamed
before it is emptied, a version is recorded as purged before its data is touched. Only where the
disk is too full to record anything are files removed first, and recorded by the job that follows.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from rag_platform.documents import descriptions
from rag_platform.errors import StorageError, is_full, read_only
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ir import Json, Version
from rag_platform.ledger.schema import Tombstone, now
from rag_platform.observability import redaction, tracing
from rag_platform.observability.trace_store import erasing
from rag_platform.observability.trace_store.compaction import compact, drop_old
from rag_platform.processes import jobs
from rag_platform.releases import release_store as releases
from rag_platform.releases import retention, transfer
from rag_platform.releases.deletion import Partitions, lingering, names_of, record_deletion
from rag_platform.releases.manifest import Manifest
from rag_platform.releases.retention import record_dropped, retain
from rag_platform.releases.stored_artifacts import (
    Record,
    edition_of,
    of_versions,
    profile_of,
    write_record,
)
from rag_platform.releases.version_history import is_condemned
from rag_platform.storage.evaluation_files import erase_results
from rag_platform.storage.records import CACHE_REMEDY
from rag_platform.storage.store import Store, directory_bytes, read_json
from rag_platform.workspace import DataRoot

OnProgress = Callable[[str, int, int], None]

# an older temporary file belongs to a process that died
_TEMPORARY_SECONDS = 3600
# a query that began before the pointer moved may still open files of the previous release
GRACE_SECONDS = 2.0
_JOB_BYTES = 2 * 1024 * 1024  # what a job and its Dagster run write before anything is removed


class PendingDeletion(NamedTuple):
    """A hard deletion to finish: its versions, and the chunks that no other version has."""

    record: Record
    versions: set[str]
    chunk_ids: frozenset[str]


@dataclass
class CollectionResult:
    """What a collection removed or, as a plan, would remove."""

    plan: bool = False
    removed: dict[str, dict[str, int]] = field(default_factory=dict)  # count and bytes by store
    left: list[str] = field(default_factory=list)  # what could not be removed

    def add(self, name: str, count: int, size: int = 0) -> None:
        if count:
            known = self.removed.setdefault(name, {"count": 0, "bytes": 0})
            self.removed[name] = {"count": known["count"] + count, "bytes": known["bytes"] + size}

    def data(self) -> Json:
        """The `gc` payload of the public contract."""
        rows = sorted(self.removed.items())
        total = sum(item["bytes"] for _, item in rows)
        lines = [f"- {name}: {item['count']:,} ({item['bytes']:,} bytes)" for name, item in rows]
        lines[:0] = ["would be removed:" if self.plan else "removed:"] if rows else []
        return {
            "markdown": "\n".join([*(lines or ["nothing to remove"]), *self.left]),
            "removed": dict(rows),
            "bytes": total,
            "left": self.left,
        }


def start_gc(root: DataRoot) -> jobs.Started:
    """Launch the job that collects the garbage of the whole data root. On a full disk this first
    frees enough space for the job.

    Raises StorageError `read_only`, or `disk_full` where too little can be removed.
    """
    store, ledger = root.store, root.ledger
    args: Json = {}
    if store.home.is_dir() and is_full(store.home, _JOB_BYTES):
        args["removed"] = _make_room(root).removed
    elif ledger.read_only:
        raise read_only(store.home)
    return jobs.launch(ledger.add_job("gc", "", args), root.settings, store)


def _make_room(root: DataRoot) -> CollectionResult:
    """Remove unneeded files to free space for a job; the ledger is written only where it can be."""
    store, ledger = root.store, root.ledger
    with exclude_others(store, ledger.namespaces(), "gc", wait=root.settings.jobs.lock_seconds):
        work = _Collection(root)
        for step in (work.releases, work.versions, work.facts, work.raw, work.media, work.rest):
            step()
    if is_full(store.home, _JOB_BYTES):
        free = shutil.disk_usage(store.home).free
        raise StorageError(
            f"the disk is full: {free / 1e6:.1f} MB are free under {store.home}, now that"
            f" {work.result.data()['bytes'] / 1e6:.1f} MB that nothing needs are removed; what is"
            " published stays as it is. Free some space elsewhere on this disk",
            code="disk_full",
        )
    return work.result


@contextmanager
def exclude_others(
    store: Store, namespaces: Iterable[str], owner: str, *, wait: float
) -> Iterator[None]:
    """Block all other receiving, writing and collecting. Raises BusyError with the holder."""
    with ExitStack() as held:
        held.enter_context(store.collecting(owner, wait=wait))
        for namespace in sorted(namespaces):
            held.enter_context(store.writer(namespace, owner, wait=wait))
        yield


def collect(
    root: DataRoot,
    *,
    partitions: Partitions | None = None,
    scope: Record | None = None,
    force: bool = False,
    plan: bool = False,
    on_progress: OnProgress = lambda step, done, total: None,
) -> CollectionResult:
    """Remove garbage from every store, or with `plan` only find it. Returns what was, or would be,
    removed.

    `scope` limits the collection to what one hard deletion took. Releases that hold hard-deleted
    data are removed too: pinned ones only with `force`, the published one never. The caller is
    inside `exclude_others`. Raises IntegrityError, before anything is touched, when releases hold
    versions that the ledger does not know.
    """
    work = _Collection(root, partitions, scope, force=force, plan=plan)
    work.run(on_progress)
    tracing.event(
        "garbage.collected",
        {"removed": work.result.removed, "plan": plan, "left": len(work.result.left)},
    )
    return work.result


def collect_here(record: Record, root: DataRoot) -> None:
    """Remove from this data root what a hard deletion on another machine took. The caller is inside
    `exclude_others`. Raises as `collect`.
    """
    _Collection(root, scope=record, force=True, here=True).run()


def find_unreleased(root: DataRoot) -> list[Record]:
    """The hard deletions whose data the published release still holds: their jobs stopped before
    they made one without it.
    """
    work, found = _Collection(root, plan=True), []
    for it in work.pending:
        store, namespace = root.store, it.record.namespace
        if (published := releases.current_or_empty(store, namespace)) and work._has_remains(
            releases.manifest_of(store, namespace, published), it
        ):
            found.append(it.record)
    return found


@dataclass
class _Collection:
    """One call of `collect`."""

    root: DataRoot
    partitions: Partitions | None = None
    scope: Record | None = None
    force: bool = False
    plan: bool = False
    here: bool = False  # only this data root: another machine cleans ledger and object store

    def __post_init__(self) -> None:
        self.store, self.ledger = self.root.store, self.root.ledger
        retention.require_known(self.store, self.ledger)
        self.result = CollectionResult(self.plan)
        self.namespaces = sorted(self.ledger.namespaces())
        # a finished deletion is repeated only on request, or when the ledger holds its words again
        self.pending = [
            self._make_pending(record)
            for record in ([self.scope] if self.scope else self._hard_deletions())
            if self.scope or not self._is_purged(record)
        ]
        self.manifests: dict[str, list[Manifest]] = {}

    def _hard_deletions(self) -> list[Record]:
        return [
            record_deletion(tombstone, self.root, write=not self.plan and not self.ledger.read_only)
            for name in self.namespaces
            for tombstone in self.ledger.tombstones(name, since=0)
            if tombstone.mode == "hard"
        ]

    def _is_purged(self, record: Record) -> bool:
        left = self.ledger.count_words(
            record.namespace,
            record.doc_id,
            sorted(self._find_taken(record)),
            whole=self._took_document(record),
        )
        return bool(record.purged_at) and not any(left.values())

    def run(self, on_progress: OnProgress = lambda step, done, total: None) -> None:
        steps: dict[str, Callable[[], None]] = {
            "releases": self.releases,
            "blobs": self.blobs,
            "versions": self.versions,
            "facts": self.facts,
            "raw": self.raw,
            "media": self.media,
            "cache": self.caches,
            "rest": self.rest,
            "deletions": self.deletions,
            "history": self.history,
            "traces": self.traces,
        }
        for number, (name, step) in enumerate(steps.items()):
            on_progress(name, number, len(steps))
            step()
        on_progress("done", len(steps), len(steps))

    # --- the steps, in order ---------------------------------------------------------------------

    def releases(self) -> None:
        """Drop releases that retention does not keep, or that hold what was deleted hard."""
        for namespace in self.namespaces:
            # the release that the object store publishes counts as well
            if not self.plan and not self.ledger.read_only:
                transfer.pull(namespace, self.root)
            rows = self.ledger.releases(namespace)
            pinned = {row.release_id for row in rows if row.pinned}
            found = releases.list_releases(self.store, namespace)
            surplus = releases.surplus(
                self.store, namespace, self.root.settings.releases.keep, pinned, releases=found
            )
            damaged = {path.name for path in releases.list_damaged(self.store, namespace, found)}
            self.result.left += [
                f"release {name} of {namespace} is damaged and goes from this data root"
                for name in sorted(damaged)
            ]
            dropped = {path.name for path in surplus}
            published = releases.current(self.store, namespace)
            self.manifests[namespace] = []
            for manifest in found:
                if manifest.release_id in dropped:
                    continue
                if deleted := self._find_deleted(manifest):
                    if manifest.release_id != published and (
                        self.force or manifest.release_id not in pinned
                    ):
                        surplus.append(self.store.release_dir(namespace, manifest.release_id))
                        continue
                    public = (
                        "published",
                        f"build one without it with `rag rebuild --full --namespace {namespace}`",
                    )
                    state, remedy = (
                        public
                        if manifest.release_id == published
                        else ("pinned", "unpin it, or use --force")
                    )
                    self.result.left.append(
                        f"release {manifest.release_id} of {namespace} is {state} and holds"
                        f" {deleted}: {remedy}"
                    )
                self.manifests[namespace].append(manifest)
            for path in surplus:
                self.result.add("releases", 1, directory_bytes([path]))
            if not self.plan:
                self._drop_releases(namespace, surplus, damaged)
        only = self.scope.version_ids if self.scope else None
        self.kept = retention.survey(self.manifests, self.root, only)

    def _find_deleted(self, manifest: Manifest) -> str:
        """The doc_id of a hard-deleted document whose data the release holds; "" without one."""
        found = (it.record.doc_id for it in self.pending if self._has_remains(manifest, it))
        return next(found, "")

    def _has_remains(self, manifest: Manifest, pending: PendingDeletion) -> bool:
        """True when a release holds what was deleted, or its files still contain it."""
        if manifest.namespace != pending.record.namespace:
            return False
        return bool(
            pending.versions & manifest.versions.keys()
            or lingering(self.store, manifest, pending.chunk_ids)
        )

    def _make_pending(self, record: Record) -> PendingDeletion:
        taken = self._find_taken(record)
        versions = self.ledger.versions(record.namespace, record.doc_id)
        kept = [v for v in versions if v.version_id not in taken and v.status != "purged"]
        return PendingDeletion(
            record, taken, record.belongings.chunk_ids - of_versions(self.store, kept).chunk_ids
        )

    def _find_taken(self, record: Record) -> set[str]:
        """The version_ids that a hard deletion took and that were not ingested again since."""
        tombstone = self._find_tombstone(record)
        document = self.ledger.document(record.namespace, record.doc_id)
        used = {document.live_version, document.wanted_version}
        versions = self.ledger.versions(record.namespace, record.doc_id)
        return {
            version.version_id for version in versions if is_condemned(version, [tombstone], used)
        }

    def _drop_releases(
        self, namespace: str, surplus: Sequence[Path], damaged: Collection[str]
    ) -> None:
        if surplus and (pointer := self.store.current_path(namespace)).is_file():
            time.sleep(
                max(0.0, min(GRACE_SECONDS, pointer.stat().st_mtime + GRACE_SECONDS - time.time()))
            )
        for path in surplus:
            releases.drop(path)
        if self.ledger.read_only:
            return
        # the object store may hold a sound copy of a damaged release: that one is not dropped
        recoverable = damaged if self.store.remote else ()
        dropped = [path.name for path in surplus if path.name not in recoverable]
        record_dropped(namespace, dropped, self.ledger)
        retain(namespace, self.root)

    def blobs(self) -> None:
        """Remove from the object store what no release kept there needs."""
        if self.here:
            return
        deleted = {pending.record.namespace for pending in self.pending}
        namespaces = deleted if self.scope else {*self.namespaces}
        for namespace in sorted(namespaces) if self.store.remote else ():
            found = transfer.collect_bucket(
                namespace,
                self.manifests[namespace],
                store=self.store,
                ledger=self.ledger,
                keep=self.root.settings.releases.keep,
                hard=namespace in deleted,
                plan=self.plan,
            )
            self.result.add("blobs", found.count, found.bytes)
            self.result.left += found.left
            record_dropped(namespace, found.dropped, self.ledger)
        if self.store.remote:
            found = transfer.collect_versions(
                list(self.kept.versions.values()),
                self.kept.belongings.file_sha256s,
                store=self.store,
                mine=self._list_versions() if self.scope else None,
                hard=bool(self.pending),
                plan=self.plan,
            )
            self.result.add("blobs", found.count, found.bytes)
        for namespace in sorted(deleted) if self.store.remote and not self.plan else ():
            count, left = transfer.remove_versions(namespace, self.store)
            self.result.add("blob_versions", count)
            self.result.left += left

    def versions(self) -> None:
        """Purge versions that are not kept, and outputs of kept ones under unused profiles."""
        known = self._list_versions()
        unneeded = [
            version.version_id
            for version in known
            if version.status != "purged" and version.version_id not in self.kept.versions
        ]
        if self.partitions is not None:
            unused = self.partitions.keys() - self.kept.partitions
            keys = {key for key in unused if self._is_in_scope(key)}
            self.result.add("partitions", len(keys))
            if not self.plan:
                self.partitions.drop(keys)
        self.result.add("ledger", len(unneeded))
        if not self.plan and not self.ledger.read_only:
            self.ledger.purge(unneeded)
        kept = {self.store.version_dir(version): version for version in self.kept.versions.values()}
        in_scope = {self.store.version_dir(version) for version in known}
        for folder in sorted(self.store.area("versions").glob("*/*/*")):
            if folder in kept:
                self._remove_old_outputs(folder, self.kept.profiles[kept[folder].namespace])
            elif (
                self.scope is None
                or folder.with_name(folder.name.removeprefix(releases.TRASH)) in in_scope
            ):
                self._remove("versions", folder)

    def _remove_old_outputs(self, folder: Path, profiles: Collection[str]) -> None:
        """Remove unused profiles and editions; edits last, since sections need them."""
        if self.scope is not None:
            return
        for path in sorted(
            folder.glob("*/*.parquet"), key=lambda path: (path.parent.name == "edits", path)
        ):
            edition = edition_of(path)
            if not path.name.startswith(".") and (
                profile_of(path) not in profiles or (edition and edition not in self.kept.editions)
            ):
                self._remove("versions", path)

    def facts(self) -> None:
        """Remove facts of bytes or profiles that nothing uses."""
        for path in sorted(self.store.area("facts").glob("*/*/*")):
            if path not in self.kept.facts and self._scope_has("file_sha256s", path.parent.name):
                self._remove("facts", path)

    def raw(self) -> None:
        """Remove bytes that no kept version has."""
        for path in sorted(self.store.area("raw").glob("*/[!.]*")):
            if path.name not in self.kept.belongings.file_sha256s and self._scope_has(
                "file_sha256s", path.name
            ):
                self._remove("raw", path)

    def media(self) -> None:
        """Remove images that no kept version shows, and captions whose surrounding text is gone."""
        for path in sorted(self.store.area("media").glob("*")):
            if not self._scope_has("asset_ids", path.name.removeprefix(releases.TRASH)):
                continue
            if path.name not in self.kept.belongings.asset_ids:
                self._remove("media", path)
                continue
            for caption in sorted(path.glob("texts/caption-*.json")):
                context = read_json(caption, CACHE_REMEDY).get("context_hash", "")
                if context and context not in self.kept.belongings.context_hashes:
                    self._remove("media_texts", caption)

    def caches(self) -> None:
        """Remove cached vectors, descriptions and download states that no kept version needs."""
        needed = self.kept.belongings
        if self.store.embeddings_path.is_file():
            with EmbeddingCache(self.store.embeddings_path) as cache:
                rows = [
                    (space, content_hash, size)
                    for space, content_hash, size in cache.entries()
                    if (
                        content_hash not in needed.content_hashes
                        or (not self.scope and space not in self.kept.spaces)
                    )
                    and self._scope_has("content_hashes", content_hash)
                ]
                self.result.add("embeddings", len(rows), sum(size for _, _, size in rows))
                if not self.plan:
                    cache.remove([(space, content_hash) for space, content_hash, _ in rows])
        answers = descriptions.list_answers(self.store.descriptions_path)
        unused = [
            key
            for key in answers
            if key not in needed.description_keys and self._scope_has("description_keys", key)
        ]
        self.result.add("descriptions", len(unused), sum(answers[key] for key in unused))
        if not self.plan:
            descriptions.forget(self.store.descriptions_path, unused)
        wanted = {version.source_uri for version in self.kept.versions.values()}
        scope = self.scope
        only = self.ledger.document(scope.namespace, scope.doc_id) if scope else None
        for path in sorted(self.store.downloads_dir.glob("[!.]*.json")):
            url = read_json(path, CACHE_REMEDY).get("url", "")
            if url not in wanted and (only is None or url == only.source_uri):
                self._remove("downloads", path)

    def rest(self) -> None:
        """Remove what crashes left behind, and empty folders."""
        areas = [
            self.store.area(name)
            for name in ("raw", "facts", "versions", "media", "cache", "deletions")
        ]
        # nobody receives or writes now, so temporary files are abandoned; they may hold what a hard
        # deletion took
        before = time.time() - (0 if self.pending else _TEMPORARY_SECONDS)
        unnamed = [path for area in areas for path in area.rglob(".*") if path.is_file()]
        unnamed += self.store.area("releases").glob("*/.CURRENT.*")
        spooled = [path for path in self.store.spool_dir.rglob("*") if path.is_file()]
        for path in sorted({*unnamed, *spooled}) if self.pending or not self.scope else ():
            if path.stat().st_mtime < before:
                self._remove("temporary", path)
        for area in (*areas, self.store.spool_dir) if not self.plan else ():
            for folder, _, _ in os.walk(area, topdown=False):
                if folder != str(area) and not os.listdir(folder):
                    os.rmdir(folder)

    def history(self) -> None:
        """Remove old runs of Dagster, and what it recorded about versions that are gone."""
        if self.partitions is None or self.scope:
            return
        kept = {*self.kept.versions, *self.kept.partitions}
        days = self.root.settings.retention.run_days
        for name, (count, size) in self.partitions.prune(kept, days, plan=self.plan).items():
            self.result.add(name, count, size)

    def traces(self) -> None:
        """Compact the logs into the trace store, and drop traces beyond the configured limits."""
        if self.plan or self.scope or self.here:
            return
        compact(self.store.logs_dir)
        dropped = drop_old(self.store.logs_dir, self.root.settings.observability.traces)
        self.result.add("traces", dropped["rows"], dropped["bytes"])
        self.result.add("log_files", dropped["logs"])

    def deletions(self) -> None:
        """Finish hard deletions: erase their words from ledger, logs and event history. Logs are
        searched for earlier deletions too, since a later question may have named their documents.
        """
        records = {pending.record.sequence: pending.record for pending in self.pending}
        earlier = (
            ()
            if self.scope
            else (record for record in self._hard_deletions() if record.sequence not in records)
        )
        names = [self._names(record) for record in (*records.values(), *earlier)]
        # single documents cannot be erased from a backup
        for path in self.store.ledger_backups() if self.pending else ():
            self._remove("ledger_backups", path)
        if self.plan or not names:
            return
        all_names = redaction.Names(
            [word for words, _, _ in names for word in words],
            frozenset().union(*(ids for _, ids, _ in names)),
            [file for _, _, files in names for file in files],
        )
        self.result.add("logs", erasing.erase(self.store.logs_dir, all_names))
        self.result.add("evaluations", erase_results(self.store.home, all_names.occur_in))
        self.result.left += [
            f"{path.relative_to(self.store.home)} is packed in a way that is not looked into:"
            " remove it by hand if it may quote what was deleted"
            for path in redaction.opaque(self.store.logs_dir)
        ]
        if not self.pending:
            return
        if self.partitions is not None:
            forgotten, unreached = self.partitions.forget(
                set().union(*(pending.versions for pending in self.pending)), all_names
            )
            self.result.add("events", forgotten)
            self.result.left += unreached
        for pending in self.pending if not self.here else ():
            self.ledger.scrub(
                pending.record.namespace,
                pending.record.doc_id,
                sorted(pending.versions),
                whole=self._took_document(pending.record),
            )
        if not self.here and not self.ledger.backend.compact():
            self.result.left.append(
                "the ledger is being read, so its log may still hold the erased text: run `rag gc`"
                " again"
            )
            return
        for pending in self.pending:
            if not any(
                self._has_remains(manifest, pending)
                for manifest in self.manifests[pending.record.namespace]
            ):
                write_record(self.store, replace(pending.record, purged_at=now()))

    def _took_document(self, record: Record) -> bool:
        """True when a deletion took the whole document and it was not ingested again since."""
        tombstone = self._find_tombstone(record)
        return tombstone.version_id is None and not tombstone.lifted_at

    def _find_tombstone(self, record: Record) -> Tombstone:
        tombstones = self.ledger.tombstones(record.namespace, record.doc_id, since=0)
        return next(tombstone for tombstone in tombstones if tombstone.sequence == record.sequence)

    def _names(self, record: Record) -> tuple[list[str], frozenset[str], list[str]]:
        """The names of what a deletion took in log lines, except names still in use."""
        own = record.belongings - self.kept.belongings
        words, files = (
            names_of(self.ledger.document(record.namespace, record.doc_id), self.ledger)
            if self._took_document(record)
            else (sorted(self._find_taken(record)), [])
        )
        return words, own.chunk_ids | own.asset_ids, files

    # --- the parts of a step ---------------------------------------------------------------------

    def _is_in_scope(self, version_id: str) -> bool:
        return self.scope is None or version_id in self.scope.version_ids

    def _list_versions(self) -> list[Version]:
        """The versions of every library that are in scope."""
        known = [v for name in self.namespaces for v in self.ledger.versions(name)]
        return [version for version in known if self._is_in_scope(version.version_id)]

    def _scope_has(self, kind: str, name: str) -> bool:
        return self.scope is None or name in getattr(self.scope.belongings, kind)

    def _remove(self, name: str, path: Path) -> None:
        """Remove a file or a folder; a folder is renamed before it is emptied."""
        is_folder = path.is_dir()
        self.result.add(name, 1, directory_bytes([path]) if is_folder else path.stat().st_size)
        if self.plan:
            return
        if is_folder:
            releases.drop(path)
        else:
            path.unlink()
