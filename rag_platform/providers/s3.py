"""Objects in a bucket of S3, or of a server with its protocol, through obstore."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotModifiedError,
    PreconditionError,
)
from obstore.store import S3Store

from rag_platform.errors import NotFoundError, ProviderError
from rag_platform.protocols import Blob
from rag_platform.traits import Traits

# larger files are sent in parts and fetched in ranges, so that neither memory nor the timeout of a
# request limits their size
_BLOCK = 32 * 1024 * 1024
_KEYS_PER_REQUEST = 1000  # S3's limit for deletions
_TIMEOUT = "300 seconds"  # of a request: a block at 110 kB/s
_RETRYING = timedelta(seconds=20)


@dataclass(frozen=True)
class S3Blobs:
    """A bucket as protocols.Blobs. Endpoint, region and credentials come from the environment, as
    for every program that uses S3: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, or the role of the machine.
    """

    bucket: str
    prefix: str = ""
    _store: Any = field(init=False, repr=False, compare=False)

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(remote=True)

    def __post_init__(self) -> None:
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        client = {"timeout": _TIMEOUT, "connect_timeout": "5 seconds"}
        if endpoint.startswith("http://"):  # configured on purpose
            client["allow_http"] = "true"
        store = S3Store(
            self.bucket,
            prefix=self.prefix or None,
            client_options=client,
            retry_config={"max_retries": 5, "retry_timeout": _RETRYING},
        )
        object.__setattr__(self, "_store", store)

    def put_new(self, key: str, path: Path) -> bool:
        with self._errors():
            try:
                if path.stat().st_size <= _BLOCK:
                    obstore.put(self._store, key, path.read_bytes(), mode="create")
                    return True
                # S3 has no conditional upload in parts, but concurrent uploads are equal
                if self._head(key) is not None:
                    return False
                obstore.put(self._store, key, path)
                return True
            except AlreadyExistsError:
                return False

    def _head(self, key: str) -> Any:
        try:
            return obstore.head(self._store, key)
        except FileNotFoundError:
            return None

    def has(self, key: str) -> bool:
        with self._errors():
            return self._head(key) is not None

    def keeps_versions(self, key: str) -> bool:
        with self._errors():
            found = self._head(key)
        return found is not None and found["version"] not in (None, "null")

    def remove_versions(self, prefix: str, *, plan: bool = False) -> int | None:
        """None without credentials in the environment, which these requests need."""
        from rag_platform.providers import s3_versions

        if not s3_versions.can_sign():
            return None
        below = f"{self.prefix}/{prefix}" if self.prefix else prefix
        found = s3_versions.list_versions_of_deleted(self.bucket, below)
        if not plan:
            s3_versions.remove_versions(self.bucket, found)
        return len(found)

    def get(self, key: str, path: Path) -> None:
        with self._errors(), open(path, "wb") as target:
            found = obstore.get(self._store, key)
            size = found.meta["size"]
            if size <= _BLOCK:
                target.write(found.bytes())
                return
            for start in range(0, size, _BLOCK):
                end = min(start + _BLOCK, size)
                target.write(obstore.get_range(self._store, key, start=start, end=end))

    def list(self, prefix: str) -> Iterator[Blob]:
        with self._errors():
            for page in obstore.list(self._store, prefix):
                for entry in page:
                    yield Blob(entry["path"], entry["size"], entry["last_modified"])

    def delete(self, keys: Sequence[str]) -> None:
        with self._errors():
            for start in range(0, len(keys), _KEYS_PER_REQUEST):
                obstore.delete(self._store, list(keys[start : start + _KEYS_PER_REQUEST]))

    def read_pointer(self, key: str, known: str = "") -> tuple[bytes, str] | None:
        options: Any = {"if_none_match": known} if known else None
        with self._errors():
            try:
                found = obstore.get(self._store, key, options=options)
                return bytes(found.bytes()), str(found.meta["e_tag"])
            except NotModifiedError:
                return None
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return b"", ""

    def swap_pointer(self, key: str, data: bytes, expected: str) -> bool:
        with self._errors():
            try:
                obstore.put(
                    self._store, key, data, mode={"e_tag": expected} if expected else "create"
                )
                return True
            except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
                if "NoSuchBucket" in str(error):
                    raise
                # an attempt may have succeeded although its response was lost, so that its retry
                # fails
                found = self.read_pointer(key)
                return found is not None and found[0] == data

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns the library's errors into NotFoundError or ProviderError."""
        try:
            yield
        except FileNotFoundError as error:
            if error.errno is not None:  # a local file
                raise
            if "NoSuchBucket" in str(error):
                raise ProviderError(
                    f"there is no bucket {self.bucket!r} at the object store; make it, or correct"
                    " blobs.bucket in settings.yaml (RAG_BLOBS__BUCKET)",
                    code="no_bucket",
                ) from error
            raise NotFoundError(
                f"the object store does not hold {_first_line(error)}", code="no_blob"
            ) from error
        except BaseError as error:
            raise ProviderError(
                f"the bucket {self.bucket!r} cannot be used ({_first_line(error)}); check that"
                " the object store runs, and AWS_ENDPOINT_URL, AWS_REGION and the credentials in"
                " the environment",
                code="blobs_unreachable",
                retryable=True,
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
