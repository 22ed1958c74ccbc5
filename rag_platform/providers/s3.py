"""Objects in a bucket of S3, or of a server with its protocol, through obstore."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.errors import NotFoundError, ProviderError
from rag_platform.protocols import Blob
from rag_platform.traits import Traits

# a larger file is sent in parts and fetched in ranges, so that neither memory nor the time of one
# request bounds it
_BLOCK = 32 * 1024 * 1024
_AT_ONCE = 1000  # keys that one request of S3 deletes
_SECONDS = "300 seconds"  # of one request; a block passes at 110 kB/s
_RETRYING = timedelta(seconds=20)


@dataclass(frozen=True)
class S3Blobs:
    """A bucket. Endpoint, region and credentials come from the environment, as for every program
    that uses S3: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or the
    role of the machine.
    """

    bucket: str
    prefix: str = ""
    _store: Any = field(init=False, repr=False, compare=False)

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(remote=True)

    def __post_init__(self) -> None:
        from obstore.store import S3Store

        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        client = {"timeout": _SECONDS, "connect_timeout": "5 seconds"}
        if endpoint.startswith("http://"):  # who names such an address means it
            client["allow_http"] = "true"
        store = S3Store(
            self.bucket,
            prefix=self.prefix or None,
            client_options=client,
            retry_config={"max_retries": 5, "retry_timeout": _RETRYING},
        )
        object.__setattr__(self, "_store", store)

    def put_new(self, key: str, path: Path) -> bool:
        """Store a file under a key; False if the key exists, whose object is kept."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._errors():
            try:
                if path.stat().st_size <= _BLOCK:
                    obstore.put(self._store, key, path.read_bytes(), mode="create")
                    return True
                # S3 takes no condition for a file in parts: two that come at once hold the same
                if self._head(key) is not None:
                    return False
                obstore.put(self._store, key, path)
                return True
            except AlreadyExistsError:
                return False

    def _head(self, key: str) -> Any:
        import obstore

        try:
            return obstore.head(self._store, key)
        except FileNotFoundError:
            return None

    def has(self, key: str) -> bool:
        """True if there is an object with this key."""
        with self._errors():
            return self._head(key) is not None

    def keeps_versions(self, key: str) -> bool:
        """True if the bucket keeps earlier versions of objects, as seen at this one."""
        with self._errors():
            found = self._head(key)
        return found is not None and found["version"] not in (None, "null")

    def remove_versions(self, prefix: str, *, plan: bool = False) -> int | None:
        """Remove the kept versions of deleted objects below the prefix, or with `plan` only count
        them; None without credentials for it.
        """
        from rag_platform.providers import s3_versions

        if not s3_versions.can_sign():
            return None
        below = f"{self.prefix}/{prefix}" if self.prefix else prefix
        found = s3_versions.list_versions_of_gone(self.bucket, below)
        if not plan:
            s3_versions.remove_versions(self.bucket, found)
        return len(found)

    def get(self, key: str, path: Path) -> None:
        """Write an object into a file. Raises NotFoundError `no_blob`."""
        import obstore

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
        """The objects whose keys begin with the prefix, which ends with `/`."""
        import obstore

        with self._errors():
            for page in obstore.list(self._store, prefix):
                for entry in page:
                    yield Blob(entry["path"], entry["size"], entry["last_modified"])

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error."""
        import obstore

        with self._errors():
            for start in range(0, len(keys), _AT_ONCE):
                obstore.delete(self._store, list(keys[start : start + _AT_ONCE]))

    def read_pointer(self, key: str, known: str = "") -> tuple[bytes, str] | None:
        """(content, tag) of a pointer, both empty if there is none; None if its tag is `known`."""
        import obstore
        from obstore.exceptions import NotModifiedError

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
        """Replace a pointer if its tag still is `expected`; empty means that there was none."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._errors():
            try:
                obstore.put(
                    self._store, key, data, mode={"e_tag": expected} if expected else "create"
                )
                return True
            except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
                if "NoSuchBucket" in str(error):
                    raise
                # the answer to an attempt that counted may have been lost, and the next be refused
                found = self.read_pointer(key)
                return found is not None and found[0] == data

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns the library's errors into NotFoundError or ProviderError."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            if error.errno is not None:  # a file of this machine
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
