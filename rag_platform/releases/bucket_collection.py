"""Garbage collection in the object store, and a count of what it still holds of a document."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rag_platform.errors import ProviderError
from rag_platform.ir import Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Release
from rag_platform.protocols import Blob
from rag_platform.releases import transfer
from rag_platform.releases.manifest import Manifest
from rag_platform.releases.version_bundles import version_prefix
from rag_platform.storage.blobs import open_blobs, open_for_writing, raw_key
from rag_platform.storage.store import Store

# a publication that lost its lock may still upload files that no manifest names yet
_GRACE = timedelta(hours=1)
_AT_ONCE = 500  # objects removed between two checks of the pointer
_VERSIONED = (
    "the bucket keeps earlier versions of its objects, also of those that were removed, and there"
    " is no AWS_ACCESS_KEY_ID in the environment to remove them with: let a lifecycle rule of the"
    " bucket expire them"
)
_ELSEWHERE = "data roots of machines that only write: run `rag gc --prove` there"


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a collection removed, or would remove, from the bucket."""

    count: int
    bytes: int
    left: tuple[str, ...] = ()  # what could not be removed
    dropped: tuple[str, ...] = ()  # ids of the removed releases


def collect_bucket(
    namespace: str,
    kept: Sequence[Manifest],
    *,
    store: Store,
    ledger: Ledger,
    keep: int,
    hard: bool,
    plan: bool,
) -> Garbage:
    """Remove pushed releases that are not kept, and the files that no remaining release has.

    A release stays when this machine keeps it (`kept`) or, unless something was deleted `hard`,
    when retention keeps it. The caller holds the namespace's write lock. Because that lock can be
    lost, removal stops once the pointer has moved. Recent objects stay, except after a hard
    deletion.
    """
    blobs = open_for_writing(store)
    pointer = transfer.require_pointer(blobs, namespace)
    pushed = transfer.list_pushed(store, namespace)
    local = {manifest.release_id: manifest for manifest in kept}
    retained = {pointer.release_id, *local}
    if not hard:
        retained |= _list_retained(ledger.releases(namespace), keep)
    files = _files_of(namespace, pushed & retained, local, store)
    before = datetime.now(UTC) - (timedelta(0) if hard else _GRACE)
    garbage = [blob for blob in _find_unnamed(namespace, files, store) if blob.modified <= before]
    manifests = sorted(pushed - retained)
    size = sum(blob.size for blob in garbage)
    left: tuple[str, ...] = ()
    if not plan:
        transfer.forget(store, namespace, manifests)
        for start in range(0, len(garbage), _AT_ONCE):
            if transfer.read_pointer(blobs, namespace, pointer.tag) is not None:
                left = (f"another machine published {namespace} meanwhile: run `rag gc` again",)
                break
            blobs.delete([blob.key for blob in garbage[start : start + _AT_ONCE]])
    return Garbage(len(manifests) + len(garbage), size, left, () if plan else tuple(manifests))


def remove_versions(
    namespace: str, store: Store, *, plan: bool = False
) -> tuple[int, tuple[str, ...]]:
    """Remove earlier versions of removed objects from the bucket, after a hard deletion; with
    `plan` only count them. Returns (count, what could not be removed).
    """
    blobs = open_blobs(store)
    if not blobs.keeps_versions(transfer.pointer_key(namespace)):
        return 0, ()
    found = 0
    for prefix in (f"releases/{namespace}/", "versions/", "raw/"):
        try:
            removed = blobs.remove_versions(prefix, plan=plan)
        except ProviderError as error:
            return found, (error.message,)
        if removed is None:
            return found, (_VERSIONED,)
        found += removed
    return found, ()


def _list_retained(rows: Sequence[Release], keep: int) -> set[str]:
    """Ids of the releases that retention keeps: the newest published ones, and pinned ones."""
    public = [row.release_id for row in rows if row.state in ("published", "retired")]
    return {*public[:keep], *(row.release_id for row in rows if row.pinned)}


def _files_of(
    namespace: str,
    release_ids: Collection[str],
    here: Mapping[str, Manifest],
    store: Store,
) -> set[str]:
    found: set[str] = set()
    for release_id in release_ids:
        local = here.get(release_id)
        files = local.files if local else transfer.files_of_pushed(store, namespace, release_id)
        found.update(files.values())
    return found


def _find_unnamed(namespace: str, files: Collection[str], store: Store) -> list[Blob]:
    """The stored files that none of the releases lists."""
    prefix = transfer.file_key(namespace, "")
    listed = open_blobs(store).list(prefix)
    return [blob for blob in listed if blob.key.removeprefix(prefix) not in files]


def collect_versions(
    kept: Collection[Version],
    raw: Collection[str],
    *,
    store: Store,
    mine: Sequence[Version] | None,
    hard: bool,
    plan: bool,
) -> Garbage:
    """Remove bundles and raw bytes of versions that are not kept: all of them, or only those of the
    versions `mine`. `raw` are the sha256 of the raw files to keep. No other process may receive or
    write in the meantime.
    """
    blobs = open_for_writing(store)
    before = datetime.now(UTC) - (timedelta(0) if hard else _GRACE)
    kept_names = {version_prefix(version) for version in kept} | set(map(raw_key, raw))
    found = {(_folder_of(blob), blob) for blob in blobs.list("versions/")}
    found |= {(blob.key, blob) for blob in blobs.list("raw/")}
    if mine is not None:
        own_names = {key for v in mine for key in (version_prefix(v), raw_key(v.file_sha256))}
        found = {(name, blob) for name, blob in found if name in own_names}
    garbage = [blob for name, blob in found if name not in kept_names and blob.modified <= before]
    if not plan:
        blobs.delete([blob.key for blob in garbage])
    return Garbage(len(garbage), sum(blob.size for blob in garbage))


def _folder_of(blob: Blob) -> str:
    return blob.key.rpartition("/")[0] + "/"


def count_in_bucket(
    namespace: str, versions: Sequence[Version], alone: Collection[str], store: Store
) -> tuple[int, list[str]]:
    """(pushed releases, bundles, raw files that only these versions have (`alone`, by sha256) and
    earlier object versions left of these versions; what could not be searched).
    """
    pushed = [
        transfer.read_pushed(store, namespace, release_id)
        for release_id in sorted(transfer.list_pushed(store, namespace))
    ]
    ids, blobs = [version.version_id for version in versions], open_blobs(store)
    holding = sum(not manifest.versions.keys().isdisjoint(ids) for manifest in pushed)
    holding += sum(1 for version in versions for _ in blobs.list(version_prefix(version)))
    holding += sum(blobs.has(raw_key(sha256)) for sha256 in alone)
    files = {sha256 for manifest in pushed for sha256 in manifest.files.values()}
    unseen = [_ELSEWHERE]
    if unnamed := _find_unnamed(namespace, files, store):
        unseen.append(f"{len(unnamed)} files of no release in the bucket: `rag gc` removes them")
    old_versions, unreachable = remove_versions(namespace, store, plan=True)
    return holding + old_versions, [*unseen, *unreachable]
