"""Exports a published release with everything that proves it into one file, and imports it on a
machine that shares nothing with this one.

    export.json     the content: every member with its sha256
    export.sig      the HMAC-SHA256 of export.json under RAG_EXPORT_KEY, where that is set
    release/...     the files of the release
    raw/... facts/... versions/... media/...    as below a data root
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rag_platform.config.settings import Strategy
from rag_platform.errors import ConfigError, InputError, IntegrityError, ReleaseError
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CATALOG
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.releases import release_store as releases
from rag_platform.releases.manifest import FILENAME, Manifest, read_manifest, write_manifest
from rag_platform.releases.publishing import publish_candidate, record_candidate
from rag_platform.releases.version_bundles import (
    AREAS,
    add_member,
    bundled_paths,
    fetch_version,
    unpack_member,
)
from rag_platform.storage.records import parse_json
from rag_platform.storage.store import (
    Store,
    atomic_path,
    require_folder,
    sha256_file,
)
from rag_platform.workspace import DataRoot

SCHEMA_VERSION = 1
KEY = "RAG_EXPORT_KEY"
_SHORTEST_KEY = 16  # characters; 32 random ones are as strong as the hash
_HEAD, _SIGNATURE, _RELEASE = "export.json", "export.sig", "release/"
_LARGEST_HEAD = 1 << 30
_NAME = re.compile(r"\w[\w.-]*")  # of a library, a release, a document: one part of a path


@dataclass(frozen=True, slots=True)
class ExchangeResult:
    """What was exported or imported."""

    namespace: str
    release_id: str
    documents: int
    files: int
    bytes: int
    deletions: int  # documents and versions that stay deleted where it is imported
    signed: bool  # on export: written with a signature; on import: the signature was checked


def _read_key() -> bytes:
    key = os.environ.get(KEY, "")
    if key and len(key) < _SHORTEST_KEY:
        raise ConfigError(
            f"{KEY} has {len(key)} characters: take {_SHORTEST_KEY} random ones or more, the same"
            " where the file is written and where it is read"
        )
    return key.encode()


# --- export -------------------------------------------------------------------------------------


def export_release(namespace: str, path: Path, *, store: Store, ledger: Ledger) -> ExchangeResult:
    """Write the published release, and everything that proves it, into one file.

    Raises InputError `missing_path` if its folder does not exist, ReleaseError `holds_deleted`
    when the release holds data that was deleted since, IntegrityError for missing files.
    """
    import tarfile

    require_folder(path)
    release_id = releases.require_current(store, namespace)
    directory = store.release_dir(namespace, release_id)
    manifest = read_manifest(directory)
    if tombstones := ledger.tombstones(namespace, since=manifest.deletions):
        raise ReleaseError(
            f"release {release_id} of {namespace!r} still holds what was deleted since, e.g."
            f" {tombstones[0].doc_id}: publish one without it with `rag rebuild --namespace"
            f" {namespace}`, then export that",
            code="holds_deleted",
        )
    tombstones = ledger.tombstones(namespace)
    members = {f"{_RELEASE}{name}": directory / name for name in (*manifest.files, FILENAME)}
    pairs = _read_pairs(directory)
    for _, version in pairs:
        fetch_version(store, version, manifest.profiles)
    for name in _list_members(store, pairs, manifest.profiles):
        members[name] = store.home / name
    head: Json = {
        "schema_version": SCHEMA_VERSION,
        "namespace": namespace,
        "release_id": release_id,
        "files": {name: sha256_file(file) for name, file in sorted(members.items())},
        "operations": {
            version.version_id: ledger.operations(version.version_id, version.edition)
            for _, version in pairs
            if version.edition
        },
        # otherwise an ingest of the same files would restore there what was deleted here
        "deletions": [
            {name: getattr(tombstone, name) for name in ("doc_id", "version_id", "created_at")}
            for tombstone in tombstones
        ],
    }
    text, key = json.dumps(head, ensure_ascii=False, sort_keys=True).encode(), _read_key()
    with atomic_path(path, 0o600) as temporary, tarfile.open(temporary, "w") as target:
        add_member(target, _HEAD, io.BytesIO(text))
        if key:
            signature = hmac.new(key, text, hashlib.sha256).hexdigest().encode()
            add_member(target, _SIGNATURE, io.BytesIO(signature))
        for name, file in sorted(members.items()):
            with open(file, "rb") as source:
                add_member(target, name, source)
    size = path.stat().st_size
    return ExchangeResult(
        namespace, release_id, len(pairs), len(members), size, len(tombstones), bool(key)
    )


def _read_pairs(directory: Path) -> list[tuple[Document, Version]]:
    """The documents of a release with their versions."""
    with closing(CatalogReader(directory / CATALOG)) as catalog:
        versions = catalog.versions()
        return [(owner, versions[str(owner.live_version)]) for owner in catalog.documents()]


def _list_members(
    store: Store, pairs: list[tuple[Document, Version]], profiles: Mapping[str, str]
) -> set[str]:
    """The paths, below the data root, of all that proves the documents."""
    return {
        file.relative_to(store.home).as_posix()
        for _, version in pairs
        for file in bundled_paths(store, version, profiles)
    }


# --- import -------------------------------------------------------------------------------------


def import_release(path: Path, root: DataRoot) -> ExchangeResult:
    """Publish the release in a file as a new library of this data root.

    Every file is checked against its hash before it is moved into place. Raises IntegrityError
    `bad_export` for a file that is damaged or signed with another key, InputError
    `namespace_exists`.
    """
    store, ledger = root.store, root.ledger
    with store.scratch() as folder:
        head, signed = _unpack(path, folder)
        namespace, release_id = str(head["namespace"]), str(head["release_id"])
        with store.writer(namespace, "import", wait=1.0), store.receiving():
            if ledger.read_published(namespace) or releases.current(store, namespace):
                raise InputError(
                    f"there is a library {namespace!r} here already; import it under another data"
                    " root (RAG_HOME) and ask it there",
                    code="namespace_exists",
                )
            try:
                manifest = _checked_manifest(folder / _RELEASE, head)
                pairs = _read_pairs(folder / _RELEASE)
                deletions = _check_documents(path, head, manifest, pairs)
                members = _list_members(Store(folder), pairs, manifest.profiles)
            except (sqlite3.Error, ValueError, KeyError, TypeError, AttributeError) as error:
                raise _bad(path, f"its records cannot be read: {error!r}") from error
            for name in members & set(head["files"]):
                if not (store.home / name).is_file():
                    (store.home / name).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(folder / name, store.home / name)
            _record(pairs, manifest, head["operations"], ledger)
            _record_deletions(namespace, deletions, ledger)
            _place(folder / _RELEASE, manifest, store, ledger)
            publish_candidate(namespace, release_id, root)
    files, size = len(head["files"]), path.stat().st_size
    return ExchangeResult(namespace, release_id, len(pairs), files, size, len(deletions), signed)


def _unpack(path: Path, folder: Path) -> tuple[Json, bool]:
    """(the content of export.json, whether the signature was checked), after every member was
    unpacked into the folder and checked against its hash.
    """
    import tarfile

    key = _read_key()
    try:
        with tarfile.open(path, "r:") as source:  # compressed, it could fill the disk
            members = iter(source)
            head = _read_head(path, source, members, key)
            left: dict[str, str] = dict(head["files"])
            for member in members:
                if member.name == _SIGNATURE:
                    continue  # no key is set here to check it with
                if member.name not in left:
                    raise ValueError(f"{member.name} is not what it should hold")
                unpacked = unpack_member(source, member, folder, (*AREAS, "release"))
                if sha256_file(unpacked) != left.pop(member.name):
                    raise _bad(path, f"{member.name} has another sha256")
    except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        # a ReadError lists what each decompressor says
        whole = not isinstance(error, tarfile.ReadError)
        raise _bad(path, str(error) if whole else "it is no whole tar file") from error
    if left:
        raise _bad(path, f"{min(left)} is missing")
    return head, bool(key)


def _read_head(path: Path, source: Any, members: Iterator[Any], key: bytes) -> Json:
    """The content of export.json, after its signature was checked if there is a key."""
    text = _read_small(source, next(members, None), _HEAD)
    head: Json = parse_json(text)
    if head["schema_version"] != SCHEMA_VERSION:
        raise _bad(path, f"it has schema {head['schema_version']}")
    for name in (head["namespace"], head["release_id"]):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name")
    if key:
        signature = _read_small(source, next(members, None), _SIGNATURE)
        wanted = hmac.new(key, text, hashlib.sha256).hexdigest().encode()
        if not hmac.compare_digest(wanted, signature):
            raise _bad(path, f"its signature was not made with {KEY}")
    return head


def _read_small(source: Any, member: Any, name: str) -> bytes:
    if member is None or member.name != name or not member.isfile() or member.size > _LARGEST_HEAD:
        raise ValueError(f"no {name} where it should be")
    data: bytes = source.extractfile(member).read()
    return data


def _bad(path: Path, why: str) -> IntegrityError:
    return IntegrityError(
        f"{path} is no export that can be trusted ({why}); nothing of it is used: export it again",
        code="bad_export",
    )


def _checked_manifest(directory: Path, head: Json) -> Manifest:
    """The manifest, checked to name the exported release and exactly the exported files."""
    manifest = read_manifest(directory)
    same = (manifest.namespace, manifest.release_id) == (head["namespace"], head["release_id"])
    files = {name: head["files"].get(f"{_RELEASE}{name}") for name in manifest.files}
    if not same or files != dict(manifest.files):
        raise _bad(directory, "its manifest names other files")
    return manifest


def _check_documents(
    path: Path, head: Json, manifest: Manifest, pairs: list[tuple[Document, Version]]
) -> list[Json]:
    """The deletions.

    Raises ValueError for records with values of other types, IntegrityError for documents whose
    folders would lie elsewhere, and for bytes under the hash of others: a later ingest of those
    would take them.
    """
    from pydantic import TypeAdapter

    fields: dict[str, Any] = {"doc_id": str, "version_id": str | None, "created_at": str}
    # none in the files of earlier programs
    deletions = [{name: item[name] for name in fields} for item in head.get("deletions", ())]
    records: list[tuple[Any, Any]] = [
        (Manifest, asdict(manifest)),
        (Strategy, manifest.strategy_config),
        (list[tuple[Document, Version]], [(asdict(one), asdict(other)) for one, other in pairs]),
        (dict[str, list[Json]], head["operations"]),
        *((fields[name], value) for item in deletions for name, value in item.items()),
    ]
    for kind, value in records:
        TypeAdapter(kind).validate_python(value)
    for owner, version in pairs:
        of_library = owner.namespace == version.namespace == head["namespace"]
        if not (of_library and _NAME.fullmatch(version.doc_id)):
            raise _bad(path, f"{version.version_id} is no document of {head['namespace']!r}")
        sha256 = version.file_sha256
        if head["files"].get(f"raw/{sha256[:2]}/{sha256}") != sha256:
            raise _bad(path, f"the bytes of {version.version_id} are others")
        if version.edition and version.version_id not in head["operations"]:
            raise _bad(path, f"the edits of {version.version_id} are missing")
    return deletions


def _record(
    pairs: list[tuple[Document, Version]],
    manifest: Manifest,
    operations: Mapping[str, Any],
    ledger: Ledger,
) -> None:
    """Record the documents and versions of a release in the ledger."""
    ledger.bind_strategy(manifest.namespace, manifest.strategy, manifest.strategy_config_id)
    ledger.receive(
        (owner, replace(version, status="received", edition="")) for owner, version in pairs
    )
    for owner, version in pairs:
        if version.edition:
            name = version.version_id
            ledger.put_edition(name, version.edition, operations[name])
        ledger.complete(version.version_id, title=owner.title, counts=version.counts)


def _record_deletions(namespace: str, deletions: Iterable[Json], ledger: Ledger) -> None:
    """Record the deletions of the exporting library, as soft ones: their data was not exported."""
    known = {(it.doc_id, it.version_id) for it in ledger.tombstones(namespace)}
    for item in deletions:
        doc_id, version_id = item["doc_id"], item["version_id"]
        if (doc_id, version_id) not in known:  # an interrupted import may have recorded some
            ledger.delete(namespace, doc_id, version_id, "soft", created_at=item["created_at"])


def _place(source: Path, manifest: Manifest, store: Store, ledger: Ledger) -> None:
    """Move a release into place and record it as the first one of its library."""
    sequence = ledger.deletion_sequence(manifest.namespace)
    manifest = replace(manifest, parent=None, deletions=sequence)
    write_manifest(source, manifest)
    final = store.release_dir(manifest.namespace, manifest.release_id)
    if final.exists():  # left by an interrupted import
        releases.drop(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    os.replace(source, final)
    record_candidate(manifest, None, ledger)
