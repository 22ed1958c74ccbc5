"""Lists and removes earlier versions of objects in a bucket of S3, which obstore cannot.

The requests are signed with the key in the environment (AWS Signature Version 4).
https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectVersions.html
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from xml.sax.saxutils import escape

import httpx

from rag_platform.errors import ProviderError

_NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
_VERSIONS_PER_REQUEST = 1000  # S3's limit for deletions
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Version:
    """A version of a key: an object, or the marker of its deletion."""

    key: str
    version_id: str
    latest: bool
    deletion: bool


def can_sign() -> bool:
    """True if the environment has credentials; only obstore can use the role of a machine."""
    return {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= os.environ.keys()


def list_versions_of_deleted(bucket: str, prefix: str) -> list[Version]:
    """All versions and deletion markers of the deleted keys with a prefix. Raises ProviderError
    `blobs_unreachable`.
    """
    found = list(_list(bucket, prefix))
    deleted = {version.key for version in found if version.latest and version.deletion}
    return [version for version in found if version.key in deleted]


def remove_versions(bucket: str, versions: Sequence[Version]) -> None:
    """Remove the versions. Raises ProviderError `blobs_unreachable`."""
    for start in range(0, len(versions), _VERSIONS_PER_REQUEST):
        _delete(bucket, versions[start : start + _VERSIONS_PER_REQUEST])


def _list(bucket: str, prefix: str) -> Iterator[Version]:
    after: dict[str, str] = {}
    while True:
        page = _parse(_request("GET", bucket, {"versions": "", "prefix": prefix, **after}))
        for entry in page:
            if entry.tag in (f"{_NAMESPACE}Version", f"{_NAMESPACE}DeleteMarker"):
                yield Version(
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


def _delete(bucket: str, versions: Sequence[Version]) -> None:
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
