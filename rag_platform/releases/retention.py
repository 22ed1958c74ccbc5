"""Decides what is kept: releases, versions, and everything that belongs to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path

from rag_platform.config.profiles import stage_profiles, text_norm_profile_id
from rag_platform.config.settings import Retention, Strategy
from rag_platform.errors import IntegrityError, RagError
from rag_platform.indexes.embedding_cache import Space, parts_of
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Tombstone
from rag_platform.releases import release_store as releases
from rag_platform.releases import transfer
from rag_platform.releases.deletion import strategies_of
from rag_platform.releases.manifest import Manifest, embedder_info
from rag_platform.releases.stored_artifacts import Belongings, of_versions
from rag_platform.releases.version_history import UNSEEN, is_condemned
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot


def kept_versions(
    documents: Iterable[Document],
    versions: Sequence[Version],
    tombstones: Sequence[Tombstone],
    *,
    needed: Collection[str],
    retention: Retention,
    now: datetime,
) -> set[str]:
    """Ids of the versions of one namespace whose data is kept.

    Kept are versions that are live or wanted by their source, that a kept release or a draft has
    (`needed`), and of each document the newest `retention.versions` complete ones and any younger
    than `retention.days`. Softly deleted or retired documents keep theirs for
    `retention.days`; hard-deleted ones keep nothing. `tombstones` are all of the namespace, lifted
    ones included; `versions` come oldest first.
    """
    by_id = {document.doc_id: document for document in documents}
    by_document: defaultdict[str, list[Version]] = defaultdict(list)
    for version in versions:
        if version.status != "purged":
            by_document[version.doc_id].append(version)
    tombstones_of: defaultdict[str, list[Tombstone]] = defaultdict(list)
    for tombstone in tombstones:
        tombstones_of[tombstone.doc_id].append(tombstone)
    kept: set[str] = set()
    for doc_id, own_versions in by_document.items():
        document = by_id.get(doc_id)
        used = {document.live_version, document.wanted_version} if document else set()
        ready = [version.version_id for version in own_versions if version.status == "ready"]
        newest = ready[-retention.versions :] if retention.versions else []
        for version in own_versions:
            version_id = version.version_id
            recent = version_id in newest or _days(version.received_at, now) < retention.days
            expired = _has_expired(document, version, tombstones_of[doc_id], retention, now)
            stays = version_id in used or version_id in needed or (recent and not expired)
            if stays and not is_condemned(version, tombstones_of[doc_id], used):
                kept.add(version_id)
    return kept


def _has_expired(
    document: Document | None,
    version: Version,
    tombstones: Iterable[Tombstone],
    retention: Retention,
    now: datetime,
) -> bool:
    """True when the version left the library longer ago than retention allows."""
    if document is None:
        return True
    left_at = [
        tombstone.created_at
        for tombstone in tombstones
        if not tombstone.lifted_at and tombstone.version_id in (None, version.version_id)
    ]
    if document.status != "active":
        left_at.append(document.updated_at)
    return bool(left_at) and _days(min(left_at), now) >= retention.days


def _days(since: str, now: datetime) -> float:
    return (now - datetime.fromisoformat(since)).total_seconds() / 86_400


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept, of one namespace or of all."""

    versions: Mapping[str, Version] = field(default_factory=dict)
    # by namespace: of its strategy and of its kept releases
    profiles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    editions: frozenset[str] = frozenset()
    belongings: Belongings = field(default_factory=Belongings)
    facts: frozenset[Path] = frozenset()
    spaces: frozenset[Space] = frozenset()
    partitions: frozenset[str] = frozenset()  # keys of live and wanted versions

    def __or__(self, other: Kept) -> Kept:
        return Kept(*(getattr(self, f.name) | getattr(other, f.name) for f in fields(self)))


def survey(
    manifests: Mapping[str, Sequence[Manifest]],
    root: DataRoot,
    only: Collection[str] | None = None,
) -> Kept:
    """What is kept of every namespace with these releases; versions outside `only` are kept too."""
    kept = Kept()
    for namespace, releases_of in manifests.items():
        kept |= _of_namespace(namespace, releases_of, root, only)
    return kept


def require_known(store: Store, ledger: Ledger) -> None:
    """Raise IntegrityError when releases hold versions that the ledger does not know."""
    for path in sorted(store.area("releases").glob("*/CURRENT")):
        namespace = path.parent.name
        known = {version.version_id for version in ledger.versions(namespace)}
        unknown = sorted(
            {v for manifest in releases.list_releases(store, namespace) for v in manifest.versions}
            - known
        )
        if unknown:
            raise IntegrityError(
                f"releases of library {namespace!r} hold {len(unknown)} versions that the ledger"
                f" does not know, e.g. {unknown[0]}; nothing is removed: put back the ledger that"
                " belongs to this data root",
                code="unknown_versions",
            )


def _of_namespace(
    namespace: str,
    manifests: Sequence[Manifest],
    root: DataRoot,
    only: Collection[str] | None,
) -> Kept:
    store, ledger = root.store, root.ledger
    strategies = strategies_of(namespace, root.settings, ledger, manifests)
    used = [stage_profiles(strategies[0]), *(manifest.profiles for manifest in manifests)]
    profiles = frozenset(profile for each in used for profile in each.values())
    documents = ledger.documents(namespace)
    versions = ledger.versions(namespace)
    ids = kept_versions(
        documents,
        versions,
        ledger.tombstones(namespace, since=0),
        needed={draft.version_id for draft in ledger.drafts(namespace)}.union(
            *(manifest.versions for manifest in manifests)
        ),
        retention=root.settings.retention,
        now=datetime.now(UTC),
    )
    if only is not None:
        ids |= {
            version.version_id
            for version in versions
            if version.status != "purged" and version.version_id not in only
        }
    kept = {version.version_id: version for version in versions if version.version_id in ids}
    editions = [
        *(version.edition for version in kept.values()),
        *(edition for manifest in manifests for edition in manifest.editions.values()),
    ]
    return Kept(
        kept,
        {namespace: profiles},
        frozenset(edition for edition in editions if edition),
        of_versions(store, kept.values(), profiles if only is None else None, strategies),
        frozenset(
            store.facts_dir(version, each["facts"])
            for version in kept.values()
            for each in used
            if "facts" in each
        ),
        _spaces(strategies[0], manifests),
        frozenset(
            key
            for document in documents
            for key in (document.live_version, document.wanted_version)
            if key
        ),
    )


def _spaces(strategy: Strategy, manifests: Sequence[Manifest]) -> frozenset[Space]:
    built = [
        (Strategy.model_validate(manifest.strategy_config), manifest.embedder)
        for manifest in manifests
    ]
    pairs = [(strategy, embedder_info(strategy)), *built]
    return frozenset(
        (part.embedder_id, part.version, text_norm_profile_id(each.cleaning))
        for each, info in pairs
        if info is not None
        for part in parts_of(info)
    )


# --- releases -----------------------------------------------------------------------------------


def retain(namespace: str, root: DataRoot) -> None:
    """Remove unfinished releases and those beyond retention."""
    store, ledger = root.store, root.ledger
    rows = ledger.releases(namespace)
    public = {row.release_id for row in rows if row.published_at}
    heads = releases.list_heads(store, namespace)
    on_disk = {
        manifest.release_id for manifest in heads
    }  # also those that a crash left without a row in the ledger
    pinned = {row.release_id for row in rows if row.pinned}
    surplus = releases.surplus(
        store, namespace, root.settings.releases.keep, pinned, on_disk - public, heads
    )
    unseen = _list_unseen(namespace, on_disk & public, on_disk - public, root)
    for path in surplus:
        releases.drop(path)
    removed = [path.name for path in surplus]
    # a damaged release is left in the object store, which may hold a sound copy
    finished = [release_id for release_id in removed if release_id in on_disk]
    transfer.forget(store, namespace, finished)
    kept = on_disk.difference(removed)
    # with an object store, a release that is not here may be on another machine
    dropped = finished if store.remote else [r.release_id for r in rows if r.release_id not in kept]
    record_dropped(namespace, dropped, ledger, unseen)


def _list_unseen(
    namespace: str, public: Collection[str], candidates: Collection[str], root: DataRoot
) -> dict[str, list[str]]:
    """Candidate to those of its versions that are neither live nor in a release that was public."""
    if not candidates:
        return {}

    def read(release_id: str) -> Collection[str]:
        with suppress(RagError):  # damaged, or another process is removing it
            return releases.manifest_of(root.store, namespace, release_id, ("versions",)).versions
        return ()

    seen = {version.version_id for _, version in root.ledger.live(namespace)}
    seen = seen.union(*map(read, public))
    return {it: unseen for it in candidates if (unseen := sorted(set(read(it)) - seen))}


def record_dropped(
    namespace: str,
    release_ids: Collection[str],
    ledger: Ledger,
    unseen: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Mark these releases as dropped in the ledger: no machine has them any more. `unseen` are the
    versions that only they held and no reader saw, by release_id.
    """
    for row in ledger.releases(namespace):
        if row.release_id in release_ids and row.state in ("candidate", "rejected", "retired"):
            changes: Json = {"state": "dropped"}
            if unseen and row.release_id in unseen:
                changes["counts"] = {**row.counts, UNSEEN: unseen[row.release_id]}
            ledger.update_release(namespace, row.release_id, **changes)
