"""The only module that knows paths under RAG_HOME; every write is atomic."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import typing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from rag_platform.config.folders import LEDGER
from rag_platform.errors import FULL_ERRNO, InputError, IntegrityError, damaged_file
from rag_platform.ir import Version
from rag_platform.storage.locks import SharedLock, hold_lock
from rag_platform.storage.postgres import mask_url
from rag_platform.storage.records import (
    REINGEST_REMEDY,
    from_json,
    parquet_bytes,
    parquet_columns,
    parquet_records,
    parse_json,
    to_json,
)

if typing.TYPE_CHECKING:
    from rag_platform.config.services import BlobSettings
    from rag_platform.config.settings import Settings

RecordT = TypeVar("RecordT")
# names that become parts of paths: of a library, of a release
NAMESPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
RELEASE_ID = re.compile(r"\w[\w.-]{0,120}", re.ASCII)


class Readable(typing.Protocol):
    """A stream of bytes that can be read once."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end."""
        ...


@dataclasses.dataclass(frozen=True)
class Store:
    """The paths and locks of a data root; a value object without open resources."""

    home: Path
    database: str = dataclasses.field(default="", repr=False)  # a URL that may hold a password
    remote: BlobSettings | None = None  # the object store that machines share, if there is one

    @classmethod
    def of(cls, settings: Settings) -> Store:
        """The store of the settings' data root, with its ledger database and object store."""
        blobs = settings.blobs if settings.blobs.provider != "local" else None
        return cls(settings.home, settings.ledger.get_secret_value(), blobs)

    def create(self) -> None:
        """Make the data root, which others may not read, if there is none. A folder that is there
        keeps its mode; where none can be made, the write that follows says why.
        """
        with suppress(OSError):
            self.home.mkdir(0o700, parents=True, exist_ok=True)

    # --- paths -----------------------------------------------------------------------------------

    @property
    def ledger_url(self) -> str:
        """The URL of the ledger: the configured database, else the file."""
        return self.database or f"sqlite:///{self.ledger_path}"

    @property
    def ledger_name(self) -> str:
        """The location of the ledger for messages, without its password."""
        return mask_url(self.database) if self.database else str(self.ledger_path)

    def has_ledger(self) -> bool:
        """True when there is a ledger to open: the file, or a configured database."""
        return bool(self.database) or self.ledger_path.is_file()

    def ledger_file(self) -> tuple[int, int]:
        """(device, inode) of the ledger's file, new when it is replaced; zeros for a database."""
        if self.database:
            return (0, 0)
        found = self.ledger_path.stat()
        return found.st_dev, found.st_ino

    def has_releases(self) -> bool:
        """True when some namespace has a published release."""
        return any(self.home.glob("releases/*/CURRENT"))

    @property
    def ledger_path(self) -> Path:
        return self.home / LEDGER

    @property
    def traffic_path(self) -> Path:
        """The leases of calls to model endpoints, if the ledger is a file."""
        return self.home / "cache" / "traffic.sqlite"

    def ledger_backups(self) -> list[Path]:
        """Copies of the ledger next to it, made by a migration or by hand."""
        own = {
            self.ledger_path.name,
            *(self.ledger_path.name + end for end in ("-wal", "-shm", "-journal")),
        }
        return sorted(
            path for path in self.home.glob("*ledger*") if path.is_file() and path.name not in own
        )

    def config_path(self, strategy_config_id: str) -> Path:
        """The canonical JSON of a strategy as it was, even if its file has changed since."""
        return self.home / "configs" / f"{strategy_config_id}.json"

    @property
    def embeddings_path(self) -> Path:
        return self.home / "cache" / "embeddings.sqlite"

    @property
    def descriptions_path(self) -> Path:
        """The cache of chunk descriptions by language models."""
        return self.home / "cache" / "descriptions.sqlite"

    @property
    def judgements_path(self) -> Path:
        """The cache of scores that a language model gave answers; it contains no texts."""
        return self.home / "cache" / "judgements.sqlite"

    @property
    def logs_dir(self) -> Path:
        """Structured logs and traces, one JSONL file per process and day."""
        return self.home / "logs"

    @property
    def tokens_path(self) -> Path:
        return self.home / "tokens.json"

    @property
    def spool_dir(self) -> Path:
        """Unfinished downloads and copies; may be emptied when no job runs."""
        return self.home / "spool"

    def pages_path(self, version: Version, profile: str) -> Path:
        """Where the pages of a file are kept until all are read."""
        return self.spool_dir / f"pages-{version.file_sha256[:16]}-{profile}.jsonl"

    @property
    def inbox_dir(self) -> Path:
        """The folder watched by the sensor, with a subfolder per namespace."""
        return self.home / "inbox"

    @property
    def dagster_dir(self) -> Path:
        """DAGSTER_HOME by default."""
        return self.home / "dagster"

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A temporary folder in `spool_dir`, where leftovers of killed processes are cleaned up."""
        self.create()
        self.spool_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.spool_dir) as folder:
            yield Path(folder)

    def raw_path(self, file_sha256: str) -> Path:
        return self.home / "raw" / file_sha256[:2] / file_sha256

    def facts_dir(self, version: Version, profile: str) -> Path:
        """The folder with facts.md, blocks.parquet, media.parquet and summary.json. Equal bytes
        have another folder for another loader or server-declared encoding.
        """
        loader = re.sub(r"\W+", "_", f"{version.loader} {version.charset}".strip())
        return self.home.joinpath(
            "facts", version.file_sha256[:2], version.file_sha256, f"{profile}-{loader}"
        )

    def version_path(self, version: Version, stage: str, profile: str, edition: str = "") -> Path:
        """The Parquet file of one stage of one version, or of an edition of it."""
        return self.version_dir(version).joinpath(
            stage, f"{profile}{f'-{edition}' if edition else ''}.parquet"
        )

    def version_dir(self, version: Version) -> Path:
        """The outputs of every stage of one version."""
        return self.home.joinpath(
            "versions", version.namespace, version.doc_id, version.file_sha256[:12]
        )

    def page_picture(self, version: Version, page: int) -> Path:
        """A page of a version as an image; it is deleted with the version's outputs."""
        return self.version_dir(version) / "pages" / f"{page}.image"

    def media_dir(self, asset_id: str) -> Path:
        """The folder with original.<ext>, thumb.webp and meta.json of one image."""
        return self.home / "media" / asset_id

    def media_text_path(self, asset_id: str, profile: str) -> Path:
        return self.media_dir(asset_id) / "texts" / f"{profile}.json"

    def download_path(self, url: str) -> Path:
        return self.downloads_dir / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"

    def area(self, name: str) -> Path:
        """The folder of one kind of data: raw, facts, versions, media, releases or deletions."""
        return self.home / name

    @property
    def downloads_dir(self) -> Path:
        return self.home / "cache" / "downloads"

    def deletion_path(self, namespace: str, sequence: int) -> Path:
        """The hashes and ids of everything that a deletion removes; written before it is purged."""
        return self.home / "deletions" / namespace / f"{sequence}.json"

    def releases_dir(self, namespace: str) -> Path:
        """All release directories of a namespace, and CURRENT."""
        return self.home / "releases" / namespace

    def release_dir(self, namespace: str, release_id: str) -> Path:
        return self.releases_dir(namespace) / release_id

    def current_path(self, namespace: str) -> Path:
        return self.releases_dir(namespace) / "CURRENT"

    # --- locks -----------------------------------------------------------------------------------

    def writer(
        self, namespace: str, owner: str, *, shared: bool = False, wait: float = 0.0
    ) -> AbstractContextManager[None]:
        """The namespace's write lock, exclusive or `shared` with others that only add stage
        outputs. It is reentrant for a thread, and released when its process ends.

        Raises BusyError with the holder after `wait` seconds.
        """
        lock = self._lock(self.releases_dir(namespace) / ".writer")
        what = f"library {namespace!r} is being written"
        return hold_lock(lock, owner, what, shared=shared, wait=wait)

    def drafting(self, namespace: str, *, wait: float = 10.0) -> AbstractContextManager[None]:
        """The lock for changing the namespace's drafts. Raises BusyError."""
        lock = self._lock(self.releases_dir(namespace) / ".drafts")
        what = f"a draft of library {namespace!r} is being changed"
        return hold_lock(lock, "a draft", what, wait=wait)

    def expecting(self, namespace: str) -> AbstractContextManager[None]:
        """This machine's lock for changing the namespace's expectations. Raises BusyError."""
        path = self.home / "expectations" / f".{namespace}"
        what = f"the expectations of library {namespace!r} are being changed"
        return hold_lock(path, "an expectation", what, wait=10.0)

    def pointing(self, namespace: str) -> AbstractContextManager[None]:
        """This machine's lock for changing CURRENT. Raises BusyError."""
        path = self.releases_dir(namespace) / ".pointer"
        what = f"the published release of library {namespace!r} is being changed"
        return hold_lock(path, "a publication", what, wait=10.0)

    def receiving(self, *, wait: float = 60.0) -> AbstractContextManager[None]:
        """Keep the collector away from bytes without a ledger row. Raises BusyError."""
        lock, what = self._lock(self.home / ".collector"), "garbage is being collected"
        return hold_lock(lock, "receiving", what, shared=True, wait=wait)

    def collecting(self, owner: str, *, wait: float = 0.0) -> AbstractContextManager[None]:
        """The garbage collector's lock, which excludes receiving. Raises BusyError."""
        lock = self._lock(self.home / ".collector")
        what = "files are being received, or garbage collected,"
        return hold_lock(lock, owner, what, wait=wait)

    def _lock(self, path: Path) -> Path | SharedLock:
        """The lock file, or the database lock of the same name if the ledger is a database."""
        if not self.database:
            self.create()
            return path
        return SharedLock(self.database, path.relative_to(self.home).as_posix())

    # --- receiving -------------------------------------------------------------------------------

    def spool(self, source: Readable, chunk_size: int, max_bytes: int) -> tuple[str, int]:
        """Store a stream under raw/: (file_sha256, size). Raises IntegrityError `too_large`."""
        self.create()
        self.spool_dir.mkdir(parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        handle, temporary = tempfile.mkstemp(dir=self.spool_dir)
        try:
            with os.fdopen(handle, "wb") as target:
                while block := source.read(chunk_size):
                    size += len(block)
                    if size > max_bytes:
                        raise IntegrityError(
                            f"larger than max_bytes = {max_bytes}; raise limits.max_bytes in"
                            " settings.yaml",
                            code="too_large",
                        )
                    digest.update(block)
                    target.write(block)
                target.flush()
                os.fsync(target.fileno())
            path = self.raw_path(digest.hexdigest())
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                os.replace(temporary, path)
            return digest.hexdigest(), size
        finally:
            Path(temporary).unlink(missing_ok=True)


# --- atomic files -------------------------------------------------------------------------------


@contextmanager
def atomic_path(path: Path, mode: int = 0o644) -> Iterator[Path]:
    """A temporary path next to `path`, renamed to it unless the block raises."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        flush_file(temporary)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def require_folder(path: Path) -> None:
    """Raises InputError if the folder of a file to write does not exist: it may be a slip."""
    if not path.parent.is_dir():
        raise InputError(
            f"there is no folder {str(path.parent)!r}; make it first", code="missing_path"
        )


def keep_config(store: Store, strategy_config_id: str, config: Any) -> None:
    """Keep the configuration behind an id used in traces and releases, because its file may be
    changed. A data root that cannot be written is ignored, because questions do not need the copy.
    """
    path = store.config_path(strategy_config_id)
    if not path.is_file():
        with suppress(OSError):
            write_json(path, config)


_flushers = ThreadPoolExecutor(8, thread_name_prefix="flush")  # starts threads when needed


class Writes:
    """Files that are written under temporary names and renamed together, in order, by `commit`.

    Flushing them in parallel takes less than half of the time of flushing them one by one, and can
    overlap with reading the next document.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[str, str]] = []  # (temporary, final)

    def add(self, path: Path, data: bytes) -> str:
        """Write bytes for `path`; returns their sha256."""
        final = os.fspath(path)
        folder, name = os.path.split(final)
        temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            handle = os.open(temporary, flags, 0o644)
        except FileNotFoundError:
            Path(folder).mkdir(parents=True, exist_ok=True)
            handle = os.open(temporary, flags, 0o644)
        self._pending.append((temporary, final))
        with open(handle, "wb", buffering=0) as target:
            left = memoryview(data)
            while left:
                left = left[target.write(left) :]
            os.fchmod(handle, 0o644)
        return hashlib.sha256(data).hexdigest()

    def text(self, path: Path, text: str) -> str:
        """Write UTF-8 text without translating newlines."""
        return self.add(path, text.encode("utf-8"))

    def json(self, path: Path, value: Any) -> str:
        """Write indented JSON; dataclasses become objects."""
        return self.add(path, _json_bytes(value))

    def records(self, path: Path, record: type[Any], rows: Sequence[Any]) -> str:
        return self.add(path, parquet_bytes(record, rows))

    def commit(self) -> None:
        """Flush all files to disk, then rename them in the order they were added."""
        pending, self._pending = self._pending, []
        list(_flushers.map(flush_file, [temporary for temporary, _ in pending]))
        for temporary, path in pending:
            os.replace(temporary, path)

    def __len__(self) -> int:
        return len(self._pending)

    def discard(self, keep: int = 0) -> None:
        """Remove uncommitted files, except the `keep` oldest ones."""
        self._pending, dropped = self._pending[:keep], self._pending[keep:]
        for temporary, _ in dropped:
            Path(temporary).unlink(missing_ok=True)


def flush_file(path: Path | str) -> None:
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def flush_directory(path: Path) -> None:
    """Flush a folder's entries to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file atomically."""
    with atomic_path(path, mode) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, without translating newlines."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    """Write indented JSON atomically; dataclasses become objects."""
    write_bytes(path, _json_bytes(value), mode)


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(to_json(value), ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode(
        "utf-8"
    )


def read_json(path: Path, *remedy: str) -> Any:
    """The value of a JSON file. Raises IntegrityError `damaged_file` with the `remedy`."""
    try:
        return parse_json(path.read_bytes())
    except ValueError as error:
        raise damaged_file(path, error, *remedy) from error


def read_record(path: Path, record: type[RecordT], remedy: str = REINGEST_REMEDY) -> RecordT:
    """The record in a JSON file. Raises IntegrityError `damaged_file` with the `remedy`."""
    data = read_json(path, remedy)
    try:
        return from_json(record, data)
    except (AttributeError, KeyError, TypeError) as error:
        raise damaged_file(path, repr(error), remedy) from error


def sha256_file(path: Path, chunk_size: int = 8 * 1024 * 1024) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as source:
        while block := source.read(chunk_size):
            digest.update(block)
    return digest.hexdigest()


# --- records <-> Parquet and JSON ---------------------------------------------------------------


def write_records(path: Path, record: type[Any], rows: Sequence[Any]) -> str:
    """Write records of one type to Parquet atomically; returns the file's sha256."""
    data = parquet_bytes(record, rows)
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def read_records(path: Path, record: type[RecordT], remedy: str = REINGEST_REMEDY) -> list[RecordT]:
    """The records of a Parquet file. Raises SchemaVersionError for another type or schema version,
    IntegrityError `damaged_file` with the `remedy`.
    """
    return parquet_records(path.read_bytes(), record, path, remedy)


def read_columns(path: Path, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of some columns of a Parquet file. Raises IntegrityError `damaged_file`."""
    return parquet_columns(path.read_bytes(), names, path)


def files_below(directory: Path) -> list[str]:
    """The sorted relative paths of all files below a folder, with `/`."""
    return sorted(
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir()
    )


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` a hard link to the file, or a copy if the file system has no hard links."""
    with suppress(OSError):
        return os.link(source, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        copy_file(source, target)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file inside the kernel, which may share blocks until they change."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(source, "rb") as reading, open(target, "wb") as writing:
        try:
            while os.copy_file_range(reading.fileno(), writing.fileno(), 1 << 30):
                pass
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno in FULL_ERRNO:
                raise
            reading.seek(0)
            writing.seek(0)
            shutil.copyfileobj(reading, writing, 8 * 1024 * 1024)


def own_copies(directory: Path) -> None:
    """Replace every hard-linked file below the folder by a copy."""
    for path in [directory / name for name in files_below(directory)]:
        if path.stat().st_nlink > 1:
            with atomic_path(path) as temporary:
                copy_file(path, temporary)


def directory_bytes(paths: Iterable[Path]) -> int:
    """The total size of the files below the given folders. Symlinks count by their own size, and
    files that disappear meanwhile not at all.
    """
    total, waiting = 0, [os.fspath(path) for path in paths]
    while waiting:
        with suppress(FileNotFoundError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total
