"""Opens the object store that machines share, and checks it before the first write."""

from __future__ import annotations

import functools
import secrets
import typing
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rag_platform.errors import IntegrityError, ProviderError
from rag_platform.registry import make_provider
from rag_platform.storage.store import Store, atomic_path, sha256_file

if typing.TYPE_CHECKING:  # loads numpy
    from rag_platform.config.services import BlobSettings
    from rag_platform.protocols import Blobs

_MAX_TRANSFERS = 8  # concurrent ones; most files of a library are small


def open_blobs(store: Store) -> Blobs:
    """The object store of a data root. Raises ConfigError if its package is missing."""
    assert store.remote is not None
    return _open(store.remote)


@functools.cache
def _open(settings: BlobSettings) -> Blobs:
    options = {"bucket": settings.bucket, "prefix": settings.prefix}
    return typing.cast("Blobs", make_provider("blobs", settings.provider, options))


def open_for_writing(store: Store) -> Blobs:
    """`open_blobs`, after checking that the store supports conditional writes. Raises ProviderError
    `unconditional_writes` if it does not.
    """
    assert store.remote is not None
    _probe(store.remote)
    return open_blobs(store)


@functools.cache
def _probe(settings: BlobSettings) -> None:
    """Create an object twice, and replace an outdated state of it: the store must refuse both."""
    blobs, key = _open(settings), f"probe/{secrets.token_hex(8)}"
    try:
        is_conditional = (
            blobs.swap_pointer(key, b"1", "")
            and not blobs.swap_pointer(key, b"2", "")
            and (first := blobs.read_pointer(key)) is not None
            and blobs.swap_pointer(key, b"3", first[1])
            and not blobs.swap_pointer(key, b"4", first[1])
        )
    finally:
        blobs.delete([key])
    if not is_conditional:
        raise ProviderError(
            f"the object store of bucket {settings.bucket!r} ignores the conditions of a write"
            " (If-None-Match, If-Match): two machines would publish over each other without"
            " notice. Use one that heeds them, as S3 does",
            code="unconditional_writes",
        )


def fetch(blobs: Blobs, key: str, path: Path, sha256: str) -> None:
    """Download an object into a file, atomically, and check its hash, unless that is "". Raises
    IntegrityError `forged_blob`, NotFoundError `no_blob`.
    """
    with atomic_path(path) as temporary:
        blobs.get(key, temporary)
        if sha256 and (found := sha256_file(temporary)) != sha256:
            raise IntegrityError(
                f"the object {key} has sha256 {found[:12]} instead of {sha256[:12]}: it was damaged"
                " or replaced, and is not used",
                code="forged_blob",
            )


def forged_error(key: str) -> IntegrityError:
    """The error for an object whose bytes do not match its hash."""
    return IntegrityError(
        f"the object {key} is not what a publication puts there: it was damaged or replaced, and is"
        " not used",
        code="forged_blob",
    )


# --- bytes of documents -------------------------------------------------------------------------


def raw_key(file_sha256: str) -> str:
    return f"raw/{file_sha256[:2]}/{file_sha256}"


def push_raw(store: Store, file_sha256s: Iterable[str]) -> None:
    """Upload the bytes of files that the object store lacks, if there is one."""
    if store.remote is None:
        return
    blobs = open_for_writing(store)
    transfer_each(lambda file_sha256: put_raw(blobs, store, file_sha256), set(file_sha256s))


def put_raw(blobs: Blobs, store: Store, file_sha256: str) -> None:
    """Upload the bytes of a file unless the object store has them."""
    if not blobs.has(key := raw_key(file_sha256)):
        blobs.put_new(key, store.raw_path(file_sha256))


def transfer_each(work: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Call `work` for each item, several at once; the first error cancels the rest."""
    with ThreadPoolExecutor(_MAX_TRANSFERS, thread_name_prefix="transfer") as pool:
        try:
            for _ in pool.map(work, list(items)):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
