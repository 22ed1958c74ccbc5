"""Moves document versions between machines through the object store: their bytes, and one bundle
each of stored outputs and pictures, so that another machine can prove, show and rebuild them.

    raw/<sha[:2]>/<sha256>                                              bytes as received
    versions/<namespace>/<doc_id>/<sha12>/<fingerprint>-<sha256>.tar    outputs of that fingerprint

A bundle is uploaded before its version goes live, and fetched when a path is missing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

from rag_platform.config.settings import fingerprint
from rag_platform.documents.outputs import Outputs
from rag_platform.errors import IntegrityError, NotFoundError
from rag_platform.ir import Version
from rag_platform.storage.blobs import (
    fetch,
    forged_error,
    open_blobs,
    open_for_writing,
    put_raw,
    raw_key,
    transfer_each,
)
from rag_platform.storage.store import Store, sha256_file

if typing.TYPE_CHECKING:
    import tarfile

    # its module loads numpy
    from rag_platform.protocols import Blobs

AREAS = ("raw", "facts", "versions", "media")  # of a data root, that hold versions
_REQUIRED = ("edits", "media", "sections", "chunks", "views")


def version_prefix(version: Version) -> str:
    return f"versions/{version.namespace}/{version.doc_id}/{version.file_sha256[:12]}/"


def output_fingerprint(store: Store, version: Version, profiles: Mapping[str, str]) -> str:
    """16 hex digits over every stored output from which a version's catalog rows are made."""
    return fingerprint(
        [
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            for path in _list_paths(Outputs(version, store, profiles))
        ]
    )


def _list_paths(outputs: Outputs) -> list[Path]:
    """The paths of the stored outputs that a version's catalog rows come from; not all exist."""
    names = ("facts.md", "blocks.parquet", "media.parquet", "summary.json")
    kinds = ("edits", "media", "media_texts", "sections", "chunks", "views")
    paths = [*(outputs.facts_folder / name for name in names), *map(outputs.path, kinds)]
    if edition := outputs.version.edition:
        paths += [outputs.path(kind, edition) for kind in ("chunks", "views")]
    return paths


# --- push ---------------------------------------------------------------------------------------


def push_versions(store: Store, versions: Iterable[Version], profiles: Mapping[str, str]) -> None:
    """Upload the versions that the object store lacks, if there is one."""
    if store.remote is not None:
        blobs = open_for_writing(store)
        every = [Outputs(version, store, profiles) for version in versions]
        transfer_each(lambda outputs: _push(blobs, outputs), every)


def _push(blobs: Blobs, outputs: Outputs) -> None:
    if not _is_complete(outputs):
        return  # another machine built and pushed it
    store, version = outputs.store, outputs.version
    name, prefix = output_fingerprint(store, version, outputs.profiles), version_prefix(version)
    if any(blob.key.startswith(f"{prefix}{name}-") for blob in blobs.list(prefix)):
        return
    put_raw(blobs, store, version.file_sha256)
    with store.scratch() as folder:
        _pack(outputs, folder / "bundle")
        sha256 = sha256_file(folder / "bundle")
        blobs.put_new(f"{prefix}{name}-{sha256}.tar", folder / "bundle")


def _is_complete(outputs: Outputs) -> bool:
    """True when this machine has all files of a version."""
    raw = outputs.store.raw_path(outputs.version.file_sha256)
    return all(path.is_file() for path in (raw, *_list_required(outputs)))


def _list_required(outputs: Outputs) -> list[Path]:
    paths = _list_paths(outputs)
    return [path for path in paths if path.parent.name in _REQUIRED or path.suffix == ".json"]


def _pack(outputs: Outputs, target: Path) -> None:
    """Write the bundle; the same outputs give the same bytes."""
    import tarfile

    store, version = outputs.store, outputs.version
    raw = store.raw_path(version.file_sha256)
    with tarfile.open(target, "w") as bundle:
        for path in bundled_paths(store, version, outputs.profiles):
            if path == raw:
                continue  # uploaded on its own, once for all documents with the same bytes
            with open(path, "rb") as source:
                add_member(bundle, path.relative_to(store.home).as_posix(), source)


def add_member(bundle: tarfile.TarFile, name: str, source: typing.BinaryIO) -> None:
    """Add a stream to an archive, without its owner and time."""
    import tarfile

    member = tarfile.TarInfo(name)
    member.size = source.seek(0, os.SEEK_END)
    source.seek(0)
    bundle.addfile(member, source)


def unpack_member(
    bundle: tarfile.TarFile,
    member: tarfile.TarInfo,
    folder: Path,
    areas: Collection[str] = AREAS,
) -> Path:
    """Write a file of an archive below the folder; its path. Raises ValueError for anything but a
    file, sparse ones included, and for a name outside of the areas.
    """
    name = PurePosixPath(member.name)
    in_area = name.parts[:1] and name.parts[0] in areas and ".." not in name.parts
    if not (in_area and member.isfile()) or member.issparse():
        raise ValueError(f"{member.name} is not what it should hold")
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    source = bundle.extractfile(member)
    assert source is not None  # of a file
    with source, open(target, "xb") as written:
        shutil.copyfileobj(source, written)
    return target


def bundled_paths(store: Store, version: Version, profiles: Mapping[str, str]) -> list[Path]:
    """A version's bytes, outputs and pictures. Raises IntegrityError `stage_missing`."""
    outputs = Outputs(version, store, profiles)
    if not _is_complete(outputs):
        raise IntegrityError(
            f"what {version.version_id} was made of is not complete here; `rag verify --all` says"
            " what is missing",
            code="stage_missing",
        )
    folders = {store.media_dir(link.asset_id) for link in outputs.links if link.asset_id}
    paths = [store.raw_path(version.file_sha256), outputs.path("kept"), *_list_paths(outputs)]
    paths += [path for folder in folders for path in folder.rglob("[!.]*")]
    return sorted({path for path in paths if path.is_file()})


# --- fetch --------------------------------------------------------------------------------------


def fetch_version(store: Store, version: Version, profiles: Mapping[str, str]) -> None:
    """Fetch the files of a version that this machine lacks and the object store has. Raises
    IntegrityError `forged_blob` for an object that does not match its hash.
    """
    outputs = Outputs(version, store, profiles)
    if store.remote is None or _is_complete(outputs):
        return
    blobs, sha256 = open_blobs(store), version.file_sha256
    if not (raw := store.raw_path(sha256)).is_file():
        try:
            fetch(blobs, raw_key(sha256), raw, sha256)
        except NotFoundError:
            return  # its reader reports it missing
    bundles = sorted(blobs.list(version_prefix(version)), key=lambda blob: blob.modified)
    for blob in reversed(bundles):
        if _is_complete(outputs):
            return
        _unpack(blobs, outputs, blob.key)


def _unpack(blobs: Blobs, outputs: Outputs, key: str) -> None:
    """Move the files of a bundle into place, if it was built under these profiles."""
    import tarfile

    store, version, profiles = outputs.store, outputs.version, outputs.profiles
    name, _, sha256 = key.rpartition("/")[2].removesuffix(".tar").partition("-")
    with store.scratch() as folder:
        fetch(blobs, key, folder / "bundle", sha256)
        unpacked = Store(folder / "home")
        try:
            with tarfile.open(folder / "bundle", "r:") as bundle:
                for member in bundle:
                    unpack_member(bundle, member, unpacked.home)
        except (tarfile.TarError, OSError, ValueError) as error:
            raise forged_error(key) from error
        if output_fingerprint(unpacked, version, profiles) != name:
            return  # outputs of another strategy
        required = set(_list_required(Outputs(version, unpacked, profiles)))
        files = [path for path in unpacked.home.rglob("*") if path.is_file()]
        # the required files come last, since they mark the version as complete
        for path in sorted(files, key=lambda path: path in required):
            target = store.home / path.relative_to(unpacked.home)
            if not target.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
