"""What no kept release needs leaves the object store, and what of a document is left there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Release
from rag_platform.protocols import Blob
from rag_platform.releases import transfer
from rag_platform.releases.manifest import Manifest
from rag_platform.storage.blobs import open_blobs, open_for_writing
from rag_platform.storage.store import Store

# a publication that lost its lock may still put files that no manifest names yet
_GRACE = timedelta(hours=1)
_AT_ONCE = 500  # objects that go between two looks at the pointer
_VERSIONED = (
    "the bucket keeps earlier versions of its objects, also of those that were removed: let a"
    " lifecycle rule of the bucket expire them"
)


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a collection removed from the bucket, or would; `left` says what it could not."""

    count: int
    bytes: int
    left: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()  # ids of the releases that are gone


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
    """Remove pushed releases that neither this machine keeps (`kept`) nor, unless something was
    deleted `hard`, retention, and the files that none of the others has.

    The write lock of the namespace must be held. It may be lost, so nothing goes any more once the
    pointer moved, and what came lately stays, but for a hard deletion.
    """
    blobs = open_for_writing(store)
    pointer = transfer.require_pointer(blobs, namespace)
    pushed = transfer.list_pushed(store, namespace)
    here = {manifest.release_id: manifest for manifest in kept}
    wanted = {pointer.release_id, *here}
    if not hard:
        wanted |= _retained(ledger.releases(namespace), keep)
    files = _files_of(namespace, pushed & wanted, here, store)
    before = datetime.now(UTC) - (timedelta(0) if hard else _GRACE)
    gone = [blob for blob in _unnamed(namespace, files, store) if blob.modified <= before]
    manifests = sorted(pushed - wanted)
    size = sum(blob.size for blob in gone)
    left: tuple[str, ...] = ()
    if not plan:
        transfer.forget(store, namespace, manifests)
        for start in range(0, len(gone), _AT_ONCE):
            if transfer.read_pointer(blobs, namespace, pointer.tag) is not None:
                left = (f"another machine published {namespace} meanwhile: run `rag gc` again",)
                break
            blobs.delete([blob.key for blob in gone[start : start + _AT_ONCE]])
    if hard and blobs.keeps_versions(transfer.pointer_key(namespace)):
        left = (*left, _VERSIONED)
    return Garbage(len(manifests) + len(gone), size, left, () if plan else tuple(manifests))


def _retained(rows: Sequence[Release], keep: int) -> set[str]:
    """Ids of the releases that retention keeps: the newest that were published, and pinned ones."""
    public = [row.release_id for row in rows if row.state in ("published", "retired")]
    return {*public[:keep], *(row.release_id for row in rows if row.pinned)}


def _files_of(
    namespace: str, release_ids: Collection[str], here: Mapping[str, Manifest], store: Store
) -> set[str]:
    """The sha256 of every file that these pushed releases have."""
    found: set[str] = set()
    for release_id in release_ids:
        manifest = here.get(release_id) or transfer.read_pushed(store, namespace, release_id)
        found.update(manifest.files.values())
    return found


def _unnamed(namespace: str, files: Collection[str], store: Store) -> list[Blob]:
    """The stored files of releases that are not among these."""
    prefix = transfer.file_key(namespace, "")
    listed = open_blobs(store).list(prefix)
    return [blob for blob in listed if blob.key.removeprefix(prefix) not in files]


def count_in_bucket(
    namespace: str, version_ids: Collection[str], store: Store
) -> tuple[int, list[str]]:
    """How many pushed releases hold one of the versions, and what cannot be looked into."""
    pushed = [
        transfer.read_pushed(store, namespace, release_id)
        for release_id in sorted(transfer.list_pushed(store, namespace))
    ]
    holding = sum(not manifest.versions.keys().isdisjoint(version_ids) for manifest in pushed)
    files = {sha256 for manifest in pushed for sha256 in manifest.files.values()}
    blind = []
    if unnamed := _unnamed(namespace, files, store):
        blind.append(f"{len(unnamed)} files of no release in the bucket: `rag gc` removes them")
    if open_blobs(store).keeps_versions(transfer.pointer_key(namespace)):
        blind.append(_VERSIONED)
    return holding, blind
