"""All errors shown to users; the subclasses of RagError."""

from __future__ import annotations

import difflib
import errno
import os
import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class RagError(Exception):
    """An error with a machine-readable code and a message that names the value and the remedy."""

    default_code = "internal_error"

    def __init__(self, message: str, *, code: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes errors picklable, for passing them from a child process to its parent."""
        return _rebuild, (type(self), self.message, self.code, self.details)


def _rebuild(kind: type[RagError], message: str, code: str, details: dict[str, Any]) -> RagError:
    return kind(message, code=code, **details)


class InputError(RagError):
    """The caller's argument is wrong: an empty query, an unknown filter key, a missing path."""

    default_code = "invalid_input"


class NotFoundError(InputError):
    """Something that the caller named does not exist: a document, chunk, release, trace."""

    default_code = "not_found"


class ConfigError(RagError):
    """Settings or a strategy cannot be loaded, or name a provider that is not installed."""

    default_code = "invalid_config"


class DocumentError(RagError):
    """One document cannot be processed, and the batch goes on without it. The code says why, such
    as `empty_file` or `encrypted`.
    """

    default_code = "document_failed"


# codes of sources that a sync left as they were, since too much of them is gone
SYNC_STOPPED = ("emptied", "mostly_gone")
# codes of failures caused by a file's bytes, name or URL: a retry would fail again
NEEDS_ANOTHER_FILE = frozenset(
    {
        "address_refused",
        "archive_bomb",
        "bad_name",
        "bad_text",
        "bad_url",
        "binary_content",
        "blank_page",
        "broken_file",
        "broken_image",
        "credentials_in_url",
        "empty_file",
        "encrypted",
        "http_refused",
        "port_not_allowed",
        "scheme_not_allowed",
        "too_deep",
        "too_large",
        "too_many_pages",
        "too_many_redirects",
        "unsupported_type",
    }
)


class FetchError(DocumentError):
    """A URL could not be downloaded, or must not be. The codes are listed by `fetching.fetch`; the
    details are `status` and `retryable`.
    """

    default_code = "fetch_failed"


class SchemaVersionError(RagError):
    """A stored file has a schema version that this program does not know."""

    default_code = "unknown_schema_version"


class IntegrityError(RagError):
    """Stored data contradicts its own hashes or counts."""

    default_code = "integrity_error"


class StorageError(RagError):
    """Something under the data root cannot be written; code `disk_full` when the disk is."""

    default_code = "storage_error"


class LedgerError(RagError):
    """The ledger's database cannot be reached, or denies this program access."""

    default_code = "ledger_unreachable"


class ReleaseError(RagError):
    """A release cannot be built, opened, published or rolled back."""

    default_code = "release_error"


class ProviderError(RagError):
    """An engine or model behind a provider failed."""

    default_code = "provider_error"

    @property
    def retryable(self) -> bool:
        """True when the same call may succeed later (timeouts, rate limits, server errors)."""
        return bool(self.details.get("retryable", False))


class CancelledError(RagError):
    """The caller no longer waits for the result."""

    default_code = "cancelled"


class BusyError(RagError):
    """Another process holds the lock; details `owner`, `pid`, `since` identify it."""

    default_code = "busy"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'notes'?` if a known name is similar, else empty.

    >>> did_you_mean("ntoes", ["notes", "demo"])
    "; did you mean 'notes'?"
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_namespace(name: str, known: Iterable[str]) -> NotFoundError:
    """The error for a namespace that does not exist."""
    names = sorted(known)
    if not names:
        return NotFoundError(
            f"unknown library {name[:80]!r}: nothing is ingested yet; run `rag ingest PATH`",
            code="unknown_namespace",
            namespace=name[:80],
        )
    return NotFoundError(
        f"unknown library {name[:80]!r}; known: {', '.join(names)}{did_you_mean(name, names)}",
        code="unknown_namespace",
        namespace=name[:80],
    )


def unknown_job(job_id: str) -> NotFoundError:
    """The error for a job that does not exist."""
    return NotFoundError(
        f"no job {job_id[:80]!r}; `rag jobs list --all` shows them", code="unknown_job"
    )


def unknown_release(release_id: str, namespace: str) -> NotFoundError:
    """The error for a release that a library does not have."""
    return NotFoundError(
        f"no release {release_id[:80]!r}; see `rag releases list --namespace {namespace}`",
        code="unknown_release",
    )


_REBUILD = "`rag rebuild --full`"
REBUILD = f"rebuild the release with {_REBUILD}"


def name_library(message: str, namespace: str) -> str:
    """A message about a damaged file, whose reader does not know the library, with the library in
    the command that it suggests.
    """
    return message.replace(_REBUILD, f"{_REBUILD[:-1]} --namespace {namespace}`")


def damaged_file(path: Path, reason: object, remedy: str = "put it back from a backup") -> RagError:
    """The error for a file with invalid content; its path is shown relative to the data root."""
    root = next((folder for folder in path.parents if (folder / "releases").is_dir()), None)
    words = "".join(filter(str.isprintable, str(reason))).rstrip(".: ")
    return IntegrityError(
        f"{path.relative_to(root).as_posix() if root else path} is damaged ({words}); {remedy}",
        code="damaged_file",
    )


def read_only(home: Path) -> StorageError:
    """The error for a folder that cannot be written; for a full disk, if that is the cause."""
    if os.access(home, os.W_OK) and is_full(home):
        return full_disk(home)
    return StorageError(
        f"{home} cannot be written by this process (a read-only medium, or files of another user):"
        " it can be asked, listed and verified; for anything else work where it can be written, or"
        " choose another data root with RAG_HOME",
        code="read_only",
    )


# --- a full disk --------------------------------------------------------------------------------

FULL_ERRNO = (errno.ENOSPC, errno.EDQUOT)
# a database in WAL mode whose shared memory file cannot grow says only "disk I/O error"
_FULL_SQLITE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)
# needed to open the databases of a command: SQLite creates 32 KiB and a log for each
_OPENING_BYTES = 256 * 1024
FULL_DISK = "the disk is full:"  # the beginning of all our messages about it
_FULL_WORDS = (
    FULL_DISK,
    "no space left on device",
    "database or disk is full",
    "disk quota exceeded",
)


def is_full(folder: Path, needed: int = _OPENING_BYTES) -> bool:
    """True if the disk of a folder has no free inodes or less than `needed` bytes free; the default
    is needed to open the databases for writing.
    """
    disk = os.statvfs(folder)
    # file systems without counts of blocks or files report a total of 0
    no_blocks = disk.f_blocks and disk.f_bavail * disk.f_frsize < needed
    return bool(no_blocks or (disk.f_files and not disk.f_favail))


def disk_full(error: BaseException, home: Path) -> StorageError | None:
    """The StorageError for an error that a full disk caused, directly or through other libraries;
    None for any other error.
    """
    link: BaseException | None = error
    for _ in range(20):
        if link is None:
            return None
        if isinstance(link, StorageError):
            return link
        if says_disk_full(link) or (_says_read_only(link) and is_full(home)):
            return full_disk(home, getattr(link, "filename", None))
        link = link.__cause__ or link.__context__
    return None


def says_disk_full(error: BaseException) -> bool:
    """True for an error by which the system or a library reports a full disk."""
    if isinstance(error, OSError) and error.errno in FULL_ERRNO:
        return True
    if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) in _FULL_SQLITE:
        return True
    text = "" if isinstance(error, RagError) else str(error).lower()
    return any(words in text for words in _FULL_WORDS)


def _says_read_only(error: BaseException) -> bool:
    """True for the error of writing to an SQLite database that is open read-only."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY


def full_disk(home: Path, path: str | None = None) -> StorageError:
    """The error for a full disk under the data root, with the free space and the remedy."""
    free = shutil.disk_usage(home).free
    where = f" ({path} could not be written)" if path else ""
    return StorageError(
        f"the disk is full: {free / 1e6:.1f} MB are free under {home}{where}; what is published"
        " stays as it is. Free some space (`rag gc` removes what nothing needs)",
        code="disk_full",
    )


def innermost(error: BaseException) -> BaseException:
    """The first error inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
