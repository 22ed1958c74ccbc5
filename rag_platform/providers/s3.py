"""Objects in a bucket of S3, or of a server with its protocol, through obstore."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit
from xml.sax.saxutils import escape

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
        if not _can_sign():
            return None
        below = f"{self.prefix}/{prefix}" if self.prefix else prefix
        found = _list_versions_of_deleted(self.bucket, below)
        for start in range(0, len(found) if not plan else 0, _KEYS_PER_REQUEST):
            _remove_versions(self.bucket, found[start : start + _KEYS_PER_REQUEST])
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


# --- earlier versions of objects ------------------------------------------------------------------

# obstore neither lists nor removes them. These requests are signed with the key in the environment
# (AWS Signature Version 4).
# https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectVersions.html
_NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class _Version:
    """A version of a key: an object, or the marker of its deletion."""

    key: str
    version_id: str
    latest: bool
    deletion: bool


def _can_sign() -> bool:
    """True if the environment has credentials; only obstore can use the role of a machine."""
    return {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= os.environ.keys()


def _list_versions_of_deleted(bucket: str, prefix: str) -> list[_Version]:
    """All versions and deletion markers of the deleted keys with a prefix. Raises ProviderError
    `blobs_unreachable`.
    """
    found = list(_list_versions(bucket, prefix))
    deleted = {version.key for version in found if version.latest and version.deletion}
    return [version for version in found if version.key in deleted]


def _list_versions(bucket: str, prefix: str) -> Iterator[_Version]:
    after: dict[str, str] = {}
    while True:
        page = _parse(_request("GET", bucket, {"versions": "", "prefix": prefix, **after}))
        for entry in page:
            if entry.tag in (f"{_NAMESPACE}Version", f"{_NAMESPACE}DeleteMarker"):
                yield _Version(
                    _text(entry, "Key"),
                    _text(entry, "VersionId"),
                    _text(entry, "IsLatest") == "true",
                    entry.tag.endswith("DeleteMarker"),
                )
        if _text(page, "IsTruncated") != "true":
            return
        after = {
            "key-marker": _text(page, "NextKeyMarker"),
            "version-id-marker": _text(page, "NextVersionIdMarker"),
        }


def _remove_versions(bucket: str, versions: Sequence[_Version]) -> None:
    """Remove at most a thousand versions. Raises ProviderError `blobs_unreachable`."""
    rows = "".join(
        f"<Object><Key>{escape(it.key)}</Key><VersionId>{escape(it.version_id)}</VersionId></Object>"
        for it in versions
    )
    body = f"<Delete><Quiet>true</Quiet>{rows}</Delete>".encode()
    digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    answer = _parse(_request("POST", bucket, {"delete": ""}, body, {"content-md5": digest}))
    for error in answer.iter(f"{_NAMESPACE}Error"):
        raise _refused_error(bucket, f"{_text(error, 'Key')}: {_text(error, 'Message')}")


def _parse(data: bytes) -> Any:
    from lxml import etree

    return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))


def _text(entry: Any, name: str) -> str:
    return entry.findtext(f"{_NAMESPACE}{name}") or ""


def _request(
    method: str,
    bucket: str,
    query: Mapping[str, str],
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    import httpx

    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or f"https://s3.{region}.amazonaws.com"
    url = f"{endpoint.rstrip('/')}/{quote(bucket)}"
    asked = urlencode(sorted(query.items()), quote_via=quote)
    signed = _sign(method, url, asked, body, dict(headers or {}), region)
    try:
        answer = httpx.request(
            method, f"{url}?{asked}", content=body, headers=signed, timeout=_TIMEOUT_SECONDS
        )
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise _refused_error(bucket, str(error).partition("\n")[0]) from error
    return answer.content


def _sign(
    method: str, url: str, query: str, body: bytes, headers: dict[str, str], region: str
) -> dict[str, str]:
    """The headers with a signature over the request.
    https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    """
    parts, time = urlsplit(url), f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    content = hashlib.sha256(body).hexdigest()
    headers |= {"host": parts.netloc, "x-amz-content-sha256": content, "x-amz-date": time}
    if token := os.environ.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = "\n".join((method, quote(parts.path), query, lines, names, content))
    scope = f"{time[:8]}/{region}/s3/aws4_request"
    text = "\n".join(
        ("AWS4-HMAC-SHA256", time, scope, hashlib.sha256(canonical.encode()).hexdigest())
    )
    key = f"AWS4{os.environ['AWS_SECRET_ACCESS_KEY']}".encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    owner = f"{os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    return headers | {
        "authorization": f"AWS4-HMAC-SHA256 Credential={owner}, SignedHeaders={names},"
        f" Signature={signature}"
    }


def _refused_error(bucket: str, reason: str) -> ProviderError:
    return ProviderError(
        f"earlier versions of objects in the bucket {bucket!r} cannot be removed ({reason}); the"
        " role needs s3:ListBucketVersions and s3:DeleteObjectVersion",
        code="blobs_unreachable",
        retryable=True,
    )
