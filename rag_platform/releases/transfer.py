"""Moves releases between machines through the object store that they share, and removes there what
no machine needs.

    releases/<namespace>/files/<sha256>        files of releases, each once
    releases/<namespace>/<release_id>.json     the manifest, as in the release's directory
    releases/<namespace>/CURRENT               the pointer: the published release, and its number

That pointer is authoritative. A publication replaces it only if it is still the one that the
candidate was checked against; CURRENT of every machine follows.
"""

from __future__ import annotations

import json
import os
import re
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from rag_platform.errors import (
    ConfigError,
    IntegrityError,
    NotFoundError,
    ProviderError,
    ReleaseError,
)
from rag_platform.ir import Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.releases import release_store as releases
from rag_platform.releases.manifest import (
    FILENAME,
    VERSION_CHANGES,
    VERSIONS,
    Manifest,
    new_outputs,
    read_head,
    read_manifest,
)
from rag_platform.releases.version_bundles import push_versions, version_prefix
from rag_platform.storage.blobs import (
    fetch,
    forged_error,
    open_blobs,
    open_for_writing,
    raw_key,
    transfer_each,
)
from rag_platform.storage.locks import hold_lock
from rag_platform.storage.records import parse_json
from rag_platform.storage.store import (
    RELEASE_ID,
    Store,
    files_below,
    flush_directory,
    link_or_copy,
    sha256_file,
)
from rag_platform.workspace import DataRoot

if typing.TYPE_CHECKING:  # its module loads numpy
    from rag_platform.protocols import Blob, Blobs

_PULL_SECONDS = 60.0  # how long to wait for another process of this machine that is pulling
# a publication that lost its lock may still upload files that no manifest names yet
_GRACE = timedelta(hours=1)
_AT_ONCE = 500  # objects removed between two checks of the pointer
_VERSIONED = (
    "the bucket keeps earlier versions of its objects, also of those that were removed, and there"
    " is no AWS_ACCESS_KEY_ID in the environment to remove them with: let a lifecycle rule of the"
    " bucket expire them"
)


@dataclass(frozen=True, slots=True)
class Pointer:
    """What a namespace publishes in the object store; empty for nothing."""

    release_id: str = ""
    manifest_sha256: str = ""
    number: int = 0  # how many publications there were
    tag: str = ""  # of the object; changes with each replacement


@dataclass(frozen=True, slots=True)
class PullResult:
    """The files and bytes that were fetched for a release, and the files that were here already."""

    release_id: str
    files: int = 0
    bytes: int = 0
    linked: int = 0


def require_remote(store: Store) -> None:
    """Raise ConfigError where the data root has no object store."""
    if store.remote is None:
        raise ConfigError(
            "no object store is configured: set `blobs` in settings.yaml (RAG_BLOBS__PROVIDER=s3,"
            " RAG_BLOBS__BUCKET)",
            code="no_blobs",
        )


def _folder(namespace: str) -> str:
    return f"releases/{namespace}"


def file_key(namespace: str, sha256: str) -> str:
    return f"{_folder(namespace)}/files/{sha256}"


def _manifest_key(namespace: str, release_id: str) -> str:
    return f"{_folder(namespace)}/{release_id}.json"


def pointer_key(namespace: str) -> str:
    return f"{_folder(namespace)}/CURRENT"


def read_pointer(blobs: Blobs, namespace: str, known: str = "") -> Pointer | None:
    """The pointer in the object store; None if its tag is `known`. Raises `forged_blob`."""
    found = blobs.read_pointer(pointer_key(namespace), known)
    if found is None:
        return None
    data, tag = found
    if not data:
        return Pointer()
    try:
        value = parse_json(data)
        pointer = Pointer(
            str(value["release_id"]), str(value["manifest_sha256"]), int(value["number"]), tag
        )
    except (ValueError, KeyError, TypeError) as error:
        raise forged_error(pointer_key(namespace)) from error
    if not RELEASE_ID.fullmatch(pointer.release_id):
        raise forged_error(pointer_key(namespace))
    return pointer


# --- push ---------------------------------------------------------------------------------------


def push(store: Store, manifest: Manifest) -> Pointer:
    """Upload a release's files and manifest. Returns the pointer as it was before. Raises
    IntegrityError for a file that differs from the manifest, ReleaseError `outdated_candidate` when
    another machine published in between.
    """
    namespace = manifest.namespace
    blobs = open_for_writing(store)
    before = require_pointer(blobs, namespace)
    if before.release_id and before.release_id != releases.current(store, namespace):
        raise _outdated_error(manifest, before)
    directory = store.release_dir(namespace, manifest.release_id)
    is_repeated = before.release_id == manifest.release_id  # then upload lost files again
    stored: set[str] = set()
    if before.release_id and not is_repeated:
        stored.update(read_head(store.release_dir(namespace, before.release_id)).files.values())
    missing = {sha256: name for name, sha256 in manifest.files.items() if sha256 not in stored}

    def send(item: tuple[str, str]) -> None:
        sha256, name = item
        if sha256_file(directory / name) != sha256:
            raise IntegrityError(
                f"{name} of release {manifest.release_id} has another sha256 than its manifest"
                " says, and is not handed on; build another release with `rag rebuild --full"
                f" --namespace {namespace}`",
                code="file_changed",
            )
        blobs.put_new(file_key(namespace, sha256), directory / name)

    transfer_each(send, missing.items())
    _push_versions(store, manifest, "" if is_repeated else before.release_id)
    _put_manifest(blobs, store, manifest)
    return before


def _push_versions(store: Store, manifest: Manifest, parent: str) -> None:
    """Upload the versions that a release does not share with the published one."""
    folder = store.release_dir(manifest.namespace, manifest.release_id)
    before = store.release_dir(manifest.namespace, parent) if parent else None
    with releases.open_catalog(store, manifest.namespace, manifest.release_id) as catalog:
        found = map(catalog.version, new_outputs(folder, before))
        versions = [version for version in found if version is not None]
    push_versions(store, versions, manifest.profiles)


def require_pointer(blobs: Blobs, namespace: str) -> Pointer:
    """The pointer in the object store now."""
    pointer = read_pointer(blobs, namespace)
    assert pointer is not None  # without a known tag there is always an answer
    return pointer


def _put_manifest(blobs: Blobs, store: Store, manifest: Manifest) -> None:
    """Upload the manifest of a release after its files; an earlier upload must be equal."""
    key = _manifest_key(manifest.namespace, manifest.release_id)
    path = store.release_dir(manifest.namespace, manifest.release_id) / FILENAME
    if blobs.put_new(key, path):
        return
    with store.scratch() as folder:
        blobs.get(key, stored := folder / FILENAME)
        if sha256_file(stored) != sha256_file(path):
            raise ReleaseError(
                f"the object store holds another release under the id {manifest.release_id}; build"
                f" this one anew with `rag rebuild --full --namespace {manifest.namespace}`",
                code="release_exists",
            )


def swap(store: Store, manifest: Manifest, before: Pointer) -> None:
    """Publish a pushed release on every machine. Raises ReleaseError `outdated_candidate` when
    another one was published since `before` was read.
    """
    directory = store.release_dir(manifest.namespace, manifest.release_id)
    data = {
        "release_id": manifest.release_id,
        "manifest_sha256": sha256_file(directory / FILENAME),
        "number": before.number + 1,
    }
    blobs = open_for_writing(store)
    text = json.dumps(data, indent=1).encode() + b"\n"
    if not blobs.swap_pointer(pointer_key(manifest.namespace), text, before.tag):
        raise _outdated_error(manifest, require_pointer(blobs, manifest.namespace))


def _outdated_error(manifest: Manifest, found: Pointer) -> ReleaseError:
    return ReleaseError(
        f"release {manifest.release_id} is not published: {found.release_id or 'nothing'} was"
        " published meanwhile by another machine; build another with `rag rebuild --namespace"
        f" {manifest.namespace}`",
        code="outdated_candidate",
    )


def list_pushed(store: Store, namespace: str) -> set[str]:
    if store.remote is None:
        return set()
    prefix = f"{_folder(namespace)}/"
    names = (blob.key.removeprefix(prefix) for blob in open_blobs(store).list(prefix))
    return {name.removesuffix(".json") for name in names if "/" not in name and ".json" in name}


def read_pushed(store: Store, namespace: str, release_id: str) -> Manifest:
    """The manifest of a pushed release. Raises NotFoundError `no_blob`."""
    with store.scratch() as folder:
        blobs = open_blobs(store)
        files = _fetch_manifest(blobs, namespace, release_id, folder / FILENAME)
        for name in files.keys() & {VERSIONS, VERSION_CHANGES}:
            fetch(blobs, file_key(namespace, files[name]), folder / name, files[name])
        return read_manifest(folder)


def forget(store: Store, namespace: str, release_ids: list[str]) -> None:
    """Remove releases from the object store; their files are removed by `rag gc`."""
    if store.remote is not None and release_ids:
        keys = [_manifest_key(namespace, release_id) for release_id in release_ids]
        open_for_writing(store).delete(keys)


# --- pull ---------------------------------------------------------------------------------------


def pull(namespace: str, root: DataRoot, *, known: str = "") -> tuple[PullResult, str]:
    """Fetch the release that the object store publishes, and point this machine at it. Returns what
    was fetched and the pointer's tag. Does nothing while the tag is still `known`.

    Raises IntegrityError `forged_blob` for an object that does not match its hash, ReleaseError
    `foreign_release` where the ledger does not know the release, BusyError.
    """
    store, ledger = root.store, root.ledger
    nothing = PullResult(releases.current_or_empty(store, namespace))
    if store.remote is None:
        return nothing, ""
    blobs = open_blobs(store)
    while True:
        pointer = read_pointer(blobs, namespace, known)
        if pointer is None or not pointer.release_id:
            return nothing, known
        _require_known(pointer.release_id, namespace, ledger)
        pulled = fetch_release(store, namespace, pointer.release_id, pointer.manifest_sha256)
        with store.pointing(namespace):
            if read_pointer(blobs, namespace, pointer.tag) is not None:
                continue  # replaced while its files were fetched
            if releases.current_or_empty(store, namespace) != pointer.release_id:
                releases.point_at(store, namespace, pointer.release_id)
                _remove_dropped(namespace, store, ledger)
        return pulled, pointer.tag


def _require_known(release_id: str, namespace: str, ledger: Ledger) -> None:
    if ledger.release(namespace, release_id) is not None:
        return
    raise ReleaseError(
        f"the object store publishes release {release_id} of library {namespace!r}, which the"
        f" ledger at {ledger.name} does not know: they belong to different libraries. Correct"
        " `ledger` or `blobs` in settings.yaml",
        code="foreign_release",
    )


def fetch_release(
    store: Store, namespace: str, release_id: str, manifest_sha256: str = ""
) -> PullResult:
    """Fetch what this machine lacks of a pushed release. Every file is checked against its hash,
    and the release appears only when it is complete. An interrupted pull is continued.
    """
    final = store.release_dir(namespace, release_id)
    stage = store.spool_dir / f"pull-{namespace}-{release_id}"
    with hold_lock(
        store.releases_dir(namespace) / ".puller",
        "a pull",
        f"a release of library {namespace!r} is being pulled",
        wait=_PULL_SECONDS,
    ):
        if _is_whole(final, manifest_sha256):
            return PullResult(release_id)
        blobs = open_blobs(store)
        pending = stage.with_name(f"{stage.name}.json")
        files = _fetch_manifest(blobs, namespace, release_id, pending, manifest_sha256)
        pulled = _fetch_files(store, namespace, stage, files)
        os.replace(pending, stage / FILENAME)
        for folder, _, _ in os.walk(stage):
            flush_directory(Path(folder))
        if final.exists():  # incomplete, or another release
            releases.drop(final)
        os.replace(stage, final)
        flush_directory(final.parent)
        return PullResult(release_id, pulled.files, pulled.bytes, pulled.linked)


def _is_whole(directory: Path, manifest_sha256: str) -> bool:
    path = directory / FILENAME
    if not path.is_file() or (manifest_sha256 and sha256_file(path) != manifest_sha256):
        return False
    return all((directory / name).is_file() for name in read_head(directory).files)


def _fetch_manifest(
    blobs: Blobs, namespace: str, release_id: str, path: Path, sha256: str = ""
) -> Mapping[str, str]:
    """Fetch a manifest, checked against its hash if that is known. Returns the files that it lists,
    with their sha256. Raises IntegrityError for the manifest of another release, and for paths
    outside of its folder.
    """
    key = _manifest_key(namespace, release_id)
    fetch(blobs, key, path, sha256)
    try:
        value: Any = parse_json(path.read_bytes())
        files: dict[str, str] = dict(value["files"])
        same = (value["namespace"], value["release_id"]) == (namespace, release_id)
    except (ValueError, KeyError, TypeError) as error:
        raise forged_error(key) from error
    if not same:
        raise forged_error(key)
    for name, sha256 in files.items():
        parts = PurePosixPath(name).parts
        if ".." in parts or name.startswith("/") or not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise forged_error(key)
    return files


def _fetch_files(store: Store, namespace: str, stage: Path, files: Mapping[str, str]) -> PullResult:
    """Fill the folder with exactly the files of a release."""
    blobs, local = open_blobs(store), _local_files(store, namespace)
    for name in files_below(stage) if stage.is_dir() else ():
        if files.get(name) != sha256_file(stage / name):  # truncated, or of another attempt
            (stage / name).unlink()
    left = {name: sha for name, sha in files.items() if not (stage / name).is_file()}
    linked = {name: local[sha] for name, sha in left.items() if sha in local}
    for name, source in linked.items():
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(source, stage / name)
    wanted = {name: sha for name, sha in left.items() if name not in linked}
    stage.mkdir(parents=True, exist_ok=True)
    transfer_each(
        lambda item: fetch(blobs, file_key(namespace, item[1]), stage / item[0], item[1]),
        wanted.items(),
    )
    size = sum((stage / name).stat().st_size for name in wanted)
    return PullResult("", len(wanted), size, len(linked))


def _local_files(store: Store, namespace: str) -> dict[str, Path]:
    """sha256 to path of the files of this machine's current release, all checked before."""
    release_id = releases.current(store, namespace)
    directory = store.release_dir(namespace, release_id or "-")
    try:
        held = read_head(directory).files
    except NotFoundError:
        return {}
    return {sha: path for name, sha in held.items() if (path := directory / name).is_file()}


def _remove_dropped(namespace: str, store: Store, ledger: Ledger) -> None:
    """Remove this machine's copies of releases that the ledger records as dropped."""
    for row in ledger.releases(namespace):
        path = store.release_dir(namespace, row.release_id)
        if row.state == "dropped" and path.is_dir():
            releases.drop(path)


# --- garbage ------------------------------------------------------------------------------------


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
    pointer = require_pointer(blobs, namespace)
    pushed = list_pushed(store, namespace)
    local = {manifest.release_id: manifest for manifest in kept}
    retained = {pointer.release_id, *local}
    if not hard:
        rows = ledger.releases(namespace)
        public = [row.release_id for row in rows if row.state in ("published", "retired")]
        retained.update(public[:keep], (row.release_id for row in rows if row.pinned))
    files = _files_of(namespace, pushed & retained, local, store)
    before = datetime.now(UTC) - (timedelta(0) if hard else _GRACE)
    garbage = [blob for blob in _find_unnamed(namespace, files, store) if blob.modified <= before]
    manifests = sorted(pushed - retained)
    size = sum(blob.size for blob in garbage)
    left: tuple[str, ...] = ()
    if not plan:
        forget(store, namespace, manifests)
        for start in range(0, len(garbage), _AT_ONCE):
            if read_pointer(blobs, namespace, pointer.tag) is not None:
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
    if not blobs.keeps_versions(pointer_key(namespace)):
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


def _files_of(
    namespace: str, release_ids: Collection[str], here: Mapping[str, Manifest], store: Store
) -> set[str]:
    """The sha256 of the files of pushed releases, whose manifests are fetched if not `here`."""
    blobs, found = open_blobs(store), set[str]()
    with store.scratch() as folder:
        for release_id in release_ids:
            local = here.get(release_id)
            path = folder / FILENAME
            files = local.files if local else _fetch_manifest(blobs, namespace, release_id, path)
            found.update(files.values())
    return found


def _find_unnamed(namespace: str, files: Collection[str], store: Store) -> list[Blob]:
    """The stored files that none of the releases lists."""
    prefix = file_key(namespace, "")
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
    found = {(f"{blob.key.rpartition('/')[0]}/", blob) for blob in blobs.list("versions/")}
    found |= {(blob.key, blob) for blob in blobs.list("raw/")}
    if mine is not None:
        own_names = {key for v in mine for key in (version_prefix(v), raw_key(v.file_sha256))}
        found = {(name, blob) for name, blob in found if name in own_names}
    garbage = [blob for name, blob in found if name not in kept_names and blob.modified <= before]
    if not plan:
        blobs.delete([blob.key for blob in garbage])
    return Garbage(len(garbage), sum(blob.size for blob in garbage))


def count_in_bucket(
    namespace: str, versions: Sequence[Version], alone: Collection[str], store: Store
) -> tuple[int, list[str]]:
    """(pushed releases, bundles, raw files that only these versions have (`alone`, by sha256) and
    earlier object versions left of these versions; what could not be searched).
    """
    pushed = [
        read_pushed(store, namespace, release_id)
        for release_id in sorted(list_pushed(store, namespace))
    ]
    ids, blobs = [version.version_id for version in versions], open_blobs(store)
    holding = sum(not manifest.versions.keys().isdisjoint(ids) for manifest in pushed)
    holding += sum(1 for version in versions for _ in blobs.list(version_prefix(version)))
    holding += sum(blobs.has(raw_key(sha256)) for sha256 in alone)
    files = {sha256 for manifest in pushed for sha256 in manifest.files.values()}
    command = f"`rag gc --prove DOC --namespace {namespace}`"
    unseen = [f"data roots of machines that only write: run {command} there"]
    if unnamed := _find_unnamed(namespace, files, store):
        unseen.append(f"{len(unnamed)} files of no release in the bucket: `rag gc` removes them")
    old_versions, unreachable = remove_versions(namespace, store, plan=True)
    return holding + old_versions, [*unseen, *unreachable]
