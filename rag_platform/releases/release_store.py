"""Releases: immutable directories of one namespace, and the pointer to the published one.

    releases/<namespace>/<release_id>/   manifest.json  versions.json  catalog.sqlite  names.sqlite
                                         lexical/  dense/
    releases/<namespace>/CURRENT         the published release_id

A candidate is written in `.building-<release_id>` and renamed once its manifest is complete;
publishing replaces CURRENT. A crash at any point leaves the old release live, and `surplus` finds
what is unfinished.
"""

from __future__ import annotations

import functools
import os
import shutil
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from rag_platform.config.profiles import index_profile, stage_profiles
from rag_platform.config.settings import Strategy
from rag_platform.errors import (
    REBUILD,
    ConfigError,
    IntegrityError,
    NotFoundError,
    ProviderError,
    RagError,
    ReleaseError,
    SchemaVersionError,
    name_library,
    unknown_namespace,
)
from rag_platform.indexes import lexical
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CATALOG, SCHEMA_VERSION
from rag_platform.ir import EmbedderInfo
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Release
from rag_platform.protocols import LexicalReader
from rag_platform.releases.manifest import (
    FILENAME,
    QUALITY_GATE,
    VERSION_FIELDS,
    Manifest,
    embedder_info,
    read_head,
    read_manifest,
)
from rag_platform.storage.store import (
    RELEASE_ID,
    Store,
    flush_directory,
    sha256_file,
    write_text,
)

if TYPE_CHECKING:
    from rag_platform.indexes.dense import DenseVectors

TRASH = ".trash-"


@dataclass(frozen=True)
class OpenRelease:
    """The readers of one release; safe between threads."""

    manifest: Manifest  # without per-version fields
    catalog: CatalogReader
    lexical: LexicalReader | None
    dense: DenseVectors | None

    @functools.cached_property
    def versions(self) -> Mapping[str, int]:
        """version_id to the number of chunks."""
        return self.catalog.chunk_counts()

    def close(self) -> None:
        self.catalog.close()
        if self.dense is not None:
            self.dense.close()


def full_build_reason(store: Store, namespace: str, strategy: Strategy, parent: str | None) -> str:
    """Why the next release cannot be built from its parent and the differences; "" when it can."""
    if parent is None:
        return "nothing is published yet"
    if reason := other_build_reason(store, namespace, strategy, parent):
        return reason
    directory = store.release_dir(namespace, parent)
    if changed := _find_changed(directory, read_head(directory)):
        return f"files of release {parent} are damaged, first {changed[0]}"
    return ""


def other_build_reason(store: Store, namespace: str, strategy: Strategy, parent: str) -> str:
    """Why a release was built in another way than the next one would be; "" when it was not."""
    directory = store.release_dir(namespace, parent)
    try:
        manifest = read_head(directory)
        with open_catalog(store, namespace, parent) as catalog:
            schema = catalog.schema_version
    except NotFoundError:
        return f"release {parent} is gone from disk"
    except SchemaVersionError:
        return f"release {parent} was written by another version of the program"
    except IntegrityError:
        return f"files of release {parent} are damaged"
    if schema != SCHEMA_VERSION:
        return f"release {parent} has a catalog of an older schema"
    if manifest.failures:
        return f"checks of release {parent} failed"
    if manifest.embedder != (embedder := embedder_info(strategy)):
        now, before = _name_distinctly(embedder, manifest.embedder)
        return f"the embedder is {now}, release {parent} holds vectors of {before}"
    if manifest.index_profile == index_profile(strategy):
        return ""
    profiles = stage_profiles(strategy).items()
    if changed := [name for name, profile in profiles if manifest.profiles.get(name) != profile]:
        reason = f"the config or the program of {', '.join(changed)} changed"
        return f"{reason} since release {parent}"
    reason = "the encoding, the word index or the vector index is configured differently"
    return f"{reason} than in release {parent}"


def _name_distinctly(*embedders: EmbedderInfo | None) -> list[str]:
    """The names of embedders, with version and dimension where the names are the same."""
    names = [info.embedder_id if info else "none" for info in embedders]
    if len(set(names)) == len(names):
        return names
    return [
        f"{info.embedder_id} {info.version} (dim {info.dim})" if info else "none"
        for info in embedders
    ]


# --- publishing ---------------------------------------------------------------------------------


def current(store: Store, namespace: str) -> str | None:
    """The published release_id, None before the first. Raises ReleaseError `pointer_damaged`."""
    path = store.current_path(namespace)
    if not path.is_file():
        return None
    written = path.read_bytes()
    release_id = written.decode("utf-8", "replace").strip()
    if not RELEASE_ID.fullmatch(release_id):
        raise ReleaseError(
            f"{path.relative_to(store.home).as_posix()} is damaged: it holds {written[:40]!r} where"
            " the id of a release must stand; `rag releases forward --namespace"
            f" {namespace}` makes it name the release that was published last, `rag releases"
            f" rollback RELEASE_ID --namespace {namespace}` another kept one (kept, the newest"
            f" first: {_list_ids(store, namespace)})",
            code="pointer_damaged",
        )
    return release_id


def current_or_empty(store: Store, namespace: str) -> str:
    """The published release_id; "" without one or with a damaged pointer."""
    with suppress(ReleaseError):
        return current(store, namespace) or ""
    return ""


def mend_pointer(store: Store, namespace: str, recorded: Collection[str]) -> None:
    """Restore a damaged pointer from the releases that the ledger `recorded` as published; remove
    it where there are none. The caller holds the write lock.
    """
    try:
        current(store, namespace)
    except ReleaseError:
        if recorded:
            point_at(store, namespace, max(recorded))
        else:
            store.current_path(namespace).unlink()


def point_at(store: Store, namespace: str, release_id: str) -> None:
    """Point this machine's CURRENT at a release, flushed to disk."""
    write_text(store.current_path(namespace), release_id + "\n")
    flush_directory(store.releases_dir(namespace))


def require_publishable(
    store: Store, namespace: str, release_id: str, *, override: bool = False
) -> Manifest:
    """The manifest of a release that may be published; `override` skips a failed quality gate and
    nothing else. Raises ReleaseError for failed checks and lost files, NotFoundError.
    """
    directory = store.release_dir(namespace, release_id)
    manifest = read_head(directory)
    failures = [
        check for check in manifest.failures if not (override and check.name == QUALITY_GATE)
    ]
    if failures:
        reasons = "; ".join(f"{failure.name}: {failure.details}" for failure in failures)
        raise ReleaseError(
            f"release {release_id} is not published: {reasons}",
            code="checks_failed",
            failed=[failure.name for failure in failures],
        )
    if missing := missing_files(store, manifest):
        raise ReleaseError(
            f"release {release_id} has lost {missing[0]}; build another with `rag rebuild"
            f" --namespace {manifest.namespace}`",
            code="files_missing",
        )
    return manifest


def _find_changed(directory: Path, manifest: Manifest) -> list[str]:
    """The files that are gone or are no longer what the manifest says, of which the next release
    would take over some. Only what was written after the manifest is hashed.
    """
    changed = []
    written = (directory / FILENAME).stat().st_mtime_ns
    for name, expected in manifest.files.items():
        path = directory / name
        with suppress(FileNotFoundError):
            at = path.stat().st_mtime_ns
            if at <= written or _sha256_at(path, at) == expected:
                continue
        changed.append(name)
    return changed


@functools.lru_cache(maxsize=64)
def _sha256_at(path: Path, _modified: int) -> str:
    return sha256_file(path)


def missing_files(store: Store, manifest: Manifest) -> list[str]:
    directory = store.release_dir(manifest.namespace, manifest.release_id)
    return [name for name in manifest.files if not (directory / name).is_file()]


def before_current(store: Store, namespace: str) -> str:
    """The parent of the published release. Raises ReleaseError when it is gone."""
    latest = require_current(store, namespace)
    parent = manifest_of(store, namespace, latest, ()).parent
    if parent is None or not (store.release_dir(namespace, parent) / "manifest.json").is_file():
        others = [
            head.release_id for head in list_heads(store, namespace) if head.release_id != latest
        ]
        if not others:
            raise ReleaseError(
                f"there is no earlier release to go back to: {latest}, which is published, is the"
                f" only one of library {namespace!r}",
                code="nothing_to_roll_back",
            )
        raise ReleaseError(
            f"no release before {latest} is kept; name one: `rag releases rollback RELEASE_ID"
            f" --namespace {namespace}` (kept: {', '.join(others)})",
            code="nothing_to_roll_back",
        )
    return parent


def find_parent(store: Store, namespace: str, release_id: str) -> str | None:
    """The release that this one was built from; None when its files are gone."""
    parent = manifest_of(store, namespace, release_id, ()).parent
    kept = {manifest.release_id for manifest in list_heads(store, namespace)}
    return parent if parent in kept else None


def manifest_of(
    store: Store, namespace: str, release_id: str, fields: Collection[str] = VERSION_FIELDS
) -> Manifest:
    """The manifest of a release, with only these per-version `fields`. Raises ReleaseError
    `release_lost` when it is the published one and gone from disk, else NotFoundError.
    """
    try:
        return read_manifest(store.release_dir(namespace, release_id), fields)
    except NotFoundError:
        if current(store, namespace) != release_id:
            raise
        raise ReleaseError(
            f"the published release {release_id} of library {namespace!r} is gone from disk;"
            " publish a kept one with `rag releases rollback RELEASE_ID --namespace"
            f" {namespace}` (kept:"
            f" {_list_ids(store, namespace)}), or build it anew with `rag rebuild --namespace"
            f" {namespace}`",
            code="release_lost",
        ) from None


def sizes(store: Store, namespace: str, release_id: str) -> tuple[int, int]:
    """(bytes of a release's files, bytes of those that no other release shares)."""
    try:
        files = [
            found
            for path in store.release_dir(namespace, release_id).rglob("*")
            if stat.S_ISREG((found := path.lstat()).st_mode)
        ]
    except FileNotFoundError:  # another process is removing it
        return 0, 0
    unshared = [file for file in files if file.st_nlink == 1]
    return sum(file.st_size for file in files), sum(file.st_size for file in unshared)


def open_catalog(store: Store, namespace: str, release_id: str) -> closing[CatalogReader]:
    """The catalog of a release, as a context manager that closes it."""
    return closing(CatalogReader(store.release_dir(namespace, release_id) / CATALOG))


def _list_ids(store: Store, namespace: str) -> str:
    return ", ".join(manifest.release_id for manifest in list_heads(store, namespace)) or "none"


def list_releases(store: Store, namespace: str) -> list[Manifest]:
    """Every readable manifest, newest first. Raises IntegrityError if the published one is not."""
    found = _read_manifests(store, namespace, lambda path: read_manifest(path.parent))
    published = current_or_empty(store, namespace)
    if published not in {"", *(manifest.release_id for manifest in found)}:
        with suppress(NotFoundError):
            read_manifest(store.release_dir(namespace, published))
    return found


def list_heads(store: Store, namespace: str) -> list[Manifest]:
    """Like `list_releases`, but cached, without per-version fields, and skipping damaged ones."""
    return _read_manifests(store, namespace, _cached_head)


def list_newer(
    namespace: str, published: str | None, store: Store, ledger: Ledger
) -> list[Release]:
    """The kept releases that were public and are newer than the published one, newest first."""
    newer = takewhile(lambda row: row.release_id != published, ledger.releases(namespace))
    kept = {manifest.release_id for manifest in list_heads(store, namespace)}
    return [row for row in newer if row.published_at and row.release_id in kept]


def list_damaged(store: Store, namespace: str, readable: Collection[Manifest]) -> list[Path]:
    """Finished but unreadable releases, except the published one; `readable` are the others."""
    known = {manifest.release_id for manifest in readable} | {current_or_empty(store, namespace)}
    return [
        path.parent
        for path in sorted(store.releases_dir(namespace).glob("[!.]*/manifest.json"))
        if path.parent.name not in known and _is_damaged(path.parent)
    ]


def _read_manifests(
    store: Store, namespace: str, read: Callable[[Path], Manifest]
) -> list[Manifest]:
    found: list[Manifest] = []
    for path in store.releases_dir(namespace).glob("[!.]*/manifest.json"):
        with suppress(NotFoundError, FileNotFoundError, IntegrityError):
            found.append(read(path))
    return sorted(
        found, key=lambda manifest: (manifest.created_at, manifest.release_id), reverse=True
    )


def _cached_head(path: Path) -> Manifest:
    status = path.stat()
    return _head(path.parent, status.st_ino, status.st_mtime_ns)


@functools.lru_cache(64)
def _head(directory: Path, _inode: int, _modified: int) -> Manifest:
    return replace(read_head(directory), files={})


def surplus(
    store: Store,
    namespace: str,
    keep: int,
    pinned: Collection[str] = (),
    unpublished: Collection[str] = (),
    releases: Sequence[Manifest] | None = None,
) -> list[Path]:
    """Unfinished directories, damaged releases, and releases beyond the newest `keep`.

    Always kept are the published release, its parent and pinned ones, so that a rollback stays
    possible, and the newest rejected one. Releases that were never public (`unpublished`) do not
    count towards `keep`: the newest is kept while nothing was published after it. A release that a
    public one `replaces` is not kept. `releases` are all of them, newest first, if already read.
    """
    folder = store.releases_dir(namespace)
    if not folder.is_dir():
        return []
    directories = sorted(path for path in folder.iterdir() if path.is_dir())
    published = current(store, namespace)
    unfinished = [
        path
        for path in directories
        if not (path / "manifest.json").is_file() or path.name.startswith(".")
    ]
    releases = list_heads(store, namespace) if releases is None else releases
    rejected = [manifest.release_id for manifest in releases if manifest.failures]
    public = [m for m in releases if not m.failures and m.release_id not in unpublished]
    replaced = {m.delta.get("replaces") for m in public}
    eligible = [m.release_id for m in public if m.release_id not in replaced]
    published_at = next(
        (manifest.created_at for manifest in releases if manifest.release_id == published), ""
    )
    waiting = [
        m.release_id
        for m in releases
        if not m.failures and m.release_id in unpublished and m.created_at > published_at
    ]
    parents = {manifest.parent for manifest in releases if manifest.release_id == published}
    kept = {*eligible[:keep], *waiting[:1], *rejected[:1], published, *parents, *pinned}
    return [
        *unfinished,
        *list_damaged(store, namespace, releases),
        *(store.release_dir(namespace, m.release_id) for m in releases if m.release_id not in kept),
    ]


def _is_damaged(directory: Path) -> bool:
    try:
        read_manifest(directory)
    except IntegrityError:
        return True
    except NotFoundError:  # a file is missing, or the whole release
        return (directory / "manifest.json").is_file()
    except SchemaVersionError:
        pass
    return False


def drop(path: Path) -> None:
    """Remove a folder, such as a release; a crash meanwhile leaves nothing under its name."""
    if not path.name.startswith(TRASH):
        trash = path.with_name(TRASH + path.name)
        os.replace(path, trash)
        path = trash
    shutil.rmtree(path)


# --- opening ------------------------------------------------------------------------------------


def open_release(
    store: Store, namespace: str, strategy: Strategy | None = None, release_id: str | None = None
) -> OpenRelease:
    """The readers of a release, by default of the published one.

    An index whose files or embedder cannot be used raises the reason at each search, and the other
    index answers. Raises NotFoundError `unknown_namespace`, `no_release` or `unknown_release`;
    ReleaseError `release_lost`, or `embedder_mismatch` when `strategy` has another embedder than
    the release was built with; SchemaVersionError for a release of another program version.
    """
    release_id = release_id or require_current(store, namespace)
    directory = store.release_dir(namespace, release_id)
    manifest = manifest_of(store, namespace, release_id, ())
    built_with = Strategy.model_validate(manifest.strategy_config)
    missing_embedder: ConfigError | None = None
    try:
        _require_embedder(manifest, strategy or built_with)
    # its package is not installed here; the word index can still be searched
    except ConfigError as error:
        missing_embedder = error

    def vectors() -> DenseVectors:
        if missing_embedder is not None:
            raise missing_embedder
        from rag_platform.indexes.dense import DenseVectors  # loads numpy

        return DenseVectors(directory / "dense", built_with.dense)

    return OpenRelease(
        manifest=manifest,
        catalog=CatalogReader(directory / CATALOG),
        lexical=(
            _open_index(
                lambda: lexical.open_reader(built_with.lexical, directory / "lexical"), namespace
            )
            if built_with.builds_lexical
            else None
        ),
        dense=_open_index(vectors, namespace) if built_with.builds_dense else None,
    )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands in for an index that cannot be opened: each search raises the reason."""

    reason: str
    has_ann: ClassVar[bool] = False

    def search(self, *_arguments: Any, **_options: Any) -> NoReturn:
        """Raises ProviderError, always."""
        raise ProviderError(self.reason, code="index_unreadable")

    def prepare(self) -> None:
        """Do nothing; searches raise the reason."""

    def close(self) -> None:
        """Do nothing."""


def _open_index(opener: Callable[[], Any], namespace: str) -> Any:
    try:
        return opener()
    except RagError as error:
        reason = error.message
    except OSError as error:
        reason = f"{Path(str(error.filename)).name} cannot be opened ({error.strerror}); {REBUILD}"
    except ValueError as error:
        reason = f"the index is damaged ({error}); {REBUILD}"
    return Unreadable(name_library(reason, namespace))


def _require_embedder(manifest: Manifest, strategy: Strategy) -> None:
    wanted = embedder_info(strategy)
    if manifest.embedder is None or wanted is None or wanted == manifest.embedder:
        return
    held, other = _name_distinctly(manifest.embedder, wanted)
    raise ReleaseError(
        f"release {manifest.release_id} of {manifest.namespace!r} holds vectors of {held}, strategy"
        f" {strategy.name!r} asks with {other}; "
        + (
            f"use strategy {manifest.strategy!r}, or rebuild with `rag rebuild --strategy"
            f" {strategy.name} --namespace {manifest.namespace}`"
            if strategy.name != manifest.strategy
            else f"rebuild with `rag rebuild --namespace {manifest.namespace}`"
        ),
        code="embedder_mismatch",
    )


def require_current(store: Store, namespace: str) -> str:
    """The published release_id. Raises `unknown_namespace`, `no_release`, `pointer_damaged`."""
    if not store.releases_dir(namespace).is_dir():
        known = store.area("releases").glob("*/")
        raise unknown_namespace(namespace, [folder.name for folder in known])
    release_id = current(store, namespace)
    if release_id is None:
        raise NotFoundError(
            f"library {namespace!r} has no published release; run `rag ingest PATH --namespace"
            f" {namespace}`",
            code="no_release",
        )
    return release_id
