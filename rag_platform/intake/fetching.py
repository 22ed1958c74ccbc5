"""Downloads under limits; everything that is fetched from the network goes through here. The
content of a URL that is an input is stored like a file's.

A host is resolved once, every address is checked, and the connection goes to a checked address, so
that a later DNS answer (rebinding) changes nothing. A redirect is checked like a new URL. No
cookies, no proxies from the environment, no credentials.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.message import Message
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from rag_platform.config.settings import FetchLimits, Settings
from rag_platform.errors import FetchError
from rag_platform.loaders.decoding import is_pdf
from rag_platform.loaders.markup.html import START, SUFFIXES
from rag_platform.storage.records import CACHE_REMEDY, SCHEMA_VERSION, from_json, to_json
from rag_platform.storage.store import Store, read_json, write_json

if TYPE_CHECKING:
    import httpcore
    import httpx

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Sequence[str]]

PORTS = {"http": 80, "https": 443}
_REDIRECTS = (301, 302, 303, 307, 308)
_READ_BYTES = 1 << 16
_MAX_URL = 8192
_HOST = re.compile(rb"[\w.-]+|[0-9A-Fa-f:.]+")
# Metadata services of clouds, which hand out credentials. Those not listed are link-local or
# private.
_METADATA_SERVICES = frozenset(
    map(
        ipaddress.ip_address,
        ("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254"),
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# local translation, discard-only, obsolete
_RESERVED = tuple(map(ipaddress.ip_network, ("64:ff9b:1::/48", "100::/64", "fec0::/10", "::/96")))


@dataclass(frozen=True, slots=True)
class Fetched:
    """A downloaded body and what the server declared. The content type is the server's claim;
    callers judge by content.
    """

    url: str
    final_url: str
    data: bytes
    content_type: str = ""  # lower case, without parameters
    charset: str = ""  # of the content type, lower case
    # from Content-Disposition, else the last part of the final URL; may be empty, never holds a
    # slash
    filename: str = ""
    etag: str = ""
    last_modified: str = ""
    unchanged: bool = False  # the server answered 304 to the given etag or date, without a body


@dataclass(slots=True)
class Download:
    """An open response; `read` returns decoded bytes up to the size limit."""

    head: Fetched
    _blocks: Iterator[bytes]
    _rest: bytes = b""

    def read(self, size: int) -> bytes:
        """Up to `size` decoded bytes, empty at the end. Raises FetchError `too_large`, `timeout`,
        `broken_response`.
        """
        while not self._rest:
            if (block := next(self._blocks, None)) is None:
                return b""
            self._rest = block
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


def fetch(
    url: str,
    limits: FetchLimits,
    *,
    resolve: Resolver | None = None,
    max_bytes: int | None = None,
) -> Fetched:
    """The body at the URL, after redirects.

    Raises FetchError: `bad_url`, `scheme_not_allowed`, `credentials_in_url`, `port_not_allowed`,
    `address_refused`, `unresolved`, `connect_failed`, `timeout`, `too_large`, `too_many_redirects`,
    `http_status`, `http_refused` where a retry is pointless (details: status), `broken_response`.
    """
    with download(url, limits, resolve=resolve, max_bytes=max_bytes) as opened:
        data = b"".join(iter(lambda: opened.read(_READ_BYTES), b""))
        head = opened.head
    return replace(head, data=data)


@contextmanager
def download(
    url: str,
    limits: FetchLimits,
    *,
    etag: str = "",
    last_modified: str = "",
    resolve: Resolver | None = None,
    max_bytes: int | None = None,
) -> Generator[Download, None, None]:
    """The open response of `fetch`, to be read as a stream. Empty and `unchanged` when the server
    still has the content that `etag` or `last_modified` identify.
    """
    import httpcore

    deadline = time.monotonic() + limits.seconds
    request_headers = {
        "User-Agent": "rag-platform",
        "Accept": "*/*",
        "Accept-Encoding": "gzip, deflate",
    }
    if etag:
        request_headers["If-None-Match"] = etag
    if last_modified:
        request_headers["If-Modified-Since"] = last_modified
    backend = _GuardedBackend(limits, resolve or addresses, deadline)
    target = check_url(url, limits)
    with (
        httpcore.ConnectionPool(
            network_backend=cast(Any, backend), max_keepalive_connections=0
        ) as pool,
        _wrap_errors(url, limits),
    ):
        for _ in range(limits.redirects + 1):
            with pool.stream(
                "GET",
                str(target),
                headers=[("Host", target.netloc.decode("ascii")), *request_headers.items()],
            ) as response:
                headers = {
                    key.decode("latin-1").lower(): value.decode("latin-1")
                    for key, value in response.headers
                }
                if response.status in _REDIRECTS and "location" in headers:
                    target = _follow_redirect(target, headers["location"], limits)
                    continue
                head = _head(
                    url,
                    str(target),
                    headers,
                    unchanged=response.status == 304 and bool(etag or last_modified),
                )
                if response.status != 200 and not head.unchanged:
                    raise _status_error(url, response.status)
                limit = limits.max_bytes if max_bytes is None else min(max_bytes, limits.max_bytes)
                yield Download(
                    head, iter(()) if head.unchanged else _body(response, headers, limit)
                )
                return
    raise FetchError(
        f"{url}: more than {limits.redirects} redirects; give the final address",
        code="too_many_redirects",
    )


def check_url(url: str, limits: FetchLimits) -> httpx.URL:
    """The parsed URL, its host in ASCII. Raises FetchError for URLs refused before resolving."""
    import httpx

    try:
        parsed = httpx.URL(url.strip()).copy_with(fragment=None)
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise FetchError(f"{printable_url(url)!r} is no URL", code="bad_url") from error
    if parsed.scheme not in PORTS:
        raise FetchError(
            f"{printable_url(url)}: only http and https are fetched, not"
            f" {parsed.scheme or 'a relative address'!r}",
            code="scheme_not_allowed",
        )
    if not _HOST.fullmatch(parsed.raw_host) or len(str(parsed)) > _MAX_URL:
        raise FetchError(
            f"{printable_url(url)!r} has no proper host, or more than {_MAX_URL} characters",
            code="bad_url",
        )
    if parsed.userinfo:
        raise FetchError(
            f"a URL of host {parsed.host} holds a user name or password; these are never sent",
            code="credentials_in_url",
        )
    port = parsed.port or PORTS[parsed.scheme]
    if port not in PORTS.values() and not _is_allowed(parsed.host, port, limits):
        raise FetchError(
            f"{printable_url(url)}: port {port} is not fetched from; to allow it, add"
            f" '{parsed.host}:{port}' to fetching.allow in settings.yaml",
            code="port_not_allowed",
        )
    return parsed


def printable_url(url: str) -> str:
    """A URL for messages: without credentials and fragment, truncated."""
    return re.sub(r"//[^/?#]*@", "//", url.strip().split("#")[0])[:200]


def refusal(address: Address, *, private_allowed: bool = False) -> str:
    """Why nothing is fetched from this address, or ""; with `private_allowed`, private and loopback
    addresses pass.

    An IPv6 address that embeds an IPv4 one (mapped, NAT64, 6to4, Teredo) is checked as that.
    """
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            return "it is link-local"
        if embedded := _embedded_ipv4(address):
            return refusal(embedded, private_allowed=private_allowed)
    if address in _METADATA_SERVICES:
        return "it is a cloud's metadata service"
    if address.is_unspecified or address.is_multicast or address.is_link_local:
        return "it is unspecified, multicast or link-local"
    if private_allowed and (address.is_loopback or address.is_private):
        return ""
    if any(address.version == network.version and address in network for network in _RESERVED):
        return "it is reserved"
    is_public = address.is_global and not address.is_reserved
    return "" if is_public else "it is private, loopback or reserved"


def _embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return (
        address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    )


def addresses(host: str, port: int) -> list[str]:
    """The addresses of a host, in the order to try them; numeric hosts in any notation."""
    return list(
        dict.fromkeys(
            str(item[4][0]) for item in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    )


def _is_allowed(host: str, port: int, limits: FetchLimits) -> bool:
    return f"{host.rstrip('.').lower()}:{port}" in {entry.lower() for entry in limits.allow}


def _follow_redirect(target: httpx.URL, location: str, limits: FetchLimits) -> httpx.URL:
    import httpx

    try:
        joined = target.join(location)
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise FetchError(
            f"{target} redirects to {printable_url(location)!r}, which is no URL", code="bad_url"
        ) from error
    return check_url(str(joined), limits)


def _status_error(url: str, status: int) -> FetchError:
    retryable = status in (408, 425, 429) or status >= 500
    remedy = "try again later" if retryable else "check the address, and whether it needs a login"
    return FetchError(
        f"{url}: the server answered {status}; {remedy}",
        code="http_status" if retryable else "http_refused",
        status=status,
        retryable=retryable,
    )


def _head(url: str, final_url: str, headers: Mapping[str, str], *, unchanged: bool) -> Fetched:
    fields = Message()
    fields["Content-Type"] = headers.get("content-type", "")
    fields["Content-Disposition"] = headers.get("content-disposition", "")
    name = fields.get_filename() or unquote(
        final_url.split("?")[0].split("#")[0].split("://", 1)[1].partition("/")[2]
    )
    name = "".join(
        char for char in PurePosixPath(name.replace("\\", "/")).name if char.isprintable()
    )[:200]
    declared = headers.get("content-type", "").split(";")[0].strip().lower()
    return Fetched(
        url,
        final_url,
        b"",
        declared,
        fields.get_content_charset("")[:40],
        name,
        headers.get("etag", ""),
        headers.get("last-modified", ""),
        unchanged=unchanged,
    )


# --- the body -----------------------------------------------------------------------------------


def _body(response: httpcore.Response, headers: Mapping[str, str], limit: int) -> Iterator[bytes]:
    """Decoded blocks. Decoded bytes are counted, so a decompression bomb stops at the limit and is
    never in memory as a whole.
    """
    length = headers.get("content-length", "")
    encoding = headers.get("content-encoding", "").strip().lower()
    too_large = FetchError(
        f"the body is larger than {limit} bytes; raise fetching.max_bytes in settings.yaml",
        code="too_large",
    )
    if not encoding and length.isdecimal() and int(length) > limit:
        raise too_large
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise FetchError(
            f"the server sent the encoding {encoding!r} that was not asked for",
            code="broken_response",
        )
    received: Iterator[bytes] = response.iter_stream()
    count = 0
    for block in received if encoding in ("", "identity") else _inflate(received, encoding):
        count += len(block)
        if count > limit:
            raise too_large
        yield block


def _inflate(received: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = zlib.decompressobj(47)  # gzip or zlib
    first, complete = True, True
    try:
        for data in received:
            while data:
                if decoder.eof:  # another gzip member follows
                    decoder = zlib.decompressobj(47)
                try:
                    block = decoder.decompress(data, _READ_BYTES)
                except zlib.error:
                    if not first or encoding != "deflate":
                        raise
                    decoder = zlib.decompressobj(-15)  # some servers send raw deflate
                    block = decoder.decompress(data, _READ_BYTES)
                first, complete = False, decoder.eof
                data = decoder.unconsumed_tail or decoder.unused_data
                if block:
                    yield block
        while block := decoder.decompress(decoder.unconsumed_tail, _READ_BYTES):
            yield block
    except zlib.error as error:
        raise FetchError(
            f"the compressed body is damaged: {error}", code="broken_response", retryable=True
        ) from error
    if not (complete or decoder.eof):
        raise FetchError(
            "the compressed body ends too early", code="broken_response", retryable=True
        )


# --- the connection -----------------------------------------------------------------------------


class _GuardedBackend:
    """An httpcore network backend with a deadline that connects to checked addresses only."""

    def __init__(self, limits: FetchLimits, resolve: Resolver, deadline: float) -> None:
        self.limits, self.resolve, self.deadline = limits, resolve, deadline

    def connect_tcp(self, host: str, port: int, **options: Any) -> _GuardedStream:
        """A connection to the first address that answers. Raises FetchError when any address of the
        host is refused.
        """
        import httpcore

        private_allowed = _is_allowed(host, port, self.limits)
        checked = [
            _parse_address(found, host)
            for found in _resolve_within(self.deadline, self.resolve, host, port)
        ]
        if not checked:
            raise FetchError(f"{host} has no address", code="unresolved", retryable=True)
        for address in checked:
            if why := refusal(address, private_allowed=private_allowed):
                remedy = (
                    f"; for a server of your own network add '{host}:{port}' to fetching.allow in"
                    " settings.yaml"
                )
                raise FetchError(
                    f"{host} is not fetched from: {address} is refused,"
                    f" {why}{'' if refusal(address, private_allowed=True) else remedy}",
                    code="address_refused",
                )
        for position, address in enumerate(checked):
            try:
                stream = httpcore.SyncBackend().connect_tcp(
                    str(address), port, **{**options, "timeout": _count_seconds_left(self.deadline)}
                )
                return _GuardedStream(stream, self.deadline)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if position == len(checked) - 1:
                    raise
        raise AssertionError("unreachable")


class _GuardedStream:
    """A connection with one deadline for all steps together, so that slow answers cannot add up."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Received bytes."""
        return self._stream.read(max_bytes, _count_seconds_left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of the buffer."""
        self._stream.write(buffer, _count_seconds_left(self._deadline))

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> _GuardedStream:
        """The same connection, encrypted; the certificate must match the host's name."""
        left = _count_seconds_left(self._deadline)
        encrypted = self._stream.start_tls(ssl_context, server_hostname, left)
        return _GuardedStream(encrypted, self._deadline)

    def close(self) -> None:
        """End the connection."""
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        """Details of the socket for httpcore."""
        return self._stream.get_extra_info(info)


def _parse_address(found: str, host: str) -> Address:
    try:
        return ipaddress.ip_address(found)
    except ValueError as error:
        raise FetchError(
            f"{host} resolves to {found!r}, which is no address", code="unresolved"
        ) from error


def _count_seconds_left(deadline: float) -> float:
    """Seconds until the deadline. Raises httpcore.ReadTimeout when there are none."""
    import httpcore

    if (left := deadline - time.monotonic()) <= 0:
        raise httpcore.ReadTimeout("the time is over")
    return left


def _resolve_within(deadline: float, resolve: Resolver, host: str, port: int) -> Sequence[str]:
    """The resolver's answer. It runs in a thread, because system resolvers have no time limit."""
    answers: list[Sequence[str] | Exception] = []

    def ask() -> None:
        try:
            answers.append(resolve(host, port))
        except (OSError, ValueError) as error:  # unknown or impossible host name
            answers.append(error)

    thread = threading.Thread(target=ask, name="resolve", daemon=True)
    thread.start()
    thread.join(_count_seconds_left(deadline))
    if not answers:
        raise FetchError(f"{host} was not resolved in time", code="timeout", retryable=True)
    if isinstance(answers[0], Exception):
        raise FetchError(
            f"{host} is not known: {answers[0]}", code="unresolved", retryable=True
        ) from answers[0]
    return answers[0]


@contextmanager
def _wrap_errors(url: str, limits: FetchLimits) -> Iterator[None]:
    """Turn network errors into FetchError with a code."""
    import httpcore

    try:
        yield
    except (httpcore.TimeoutException, TimeoutError) as error:
        raise FetchError(
            f"{url}: not done within {limits.seconds:g} seconds; raise fetching.seconds in"
            " settings.yaml",
            code="timeout",
            retryable=True,
        ) from error
    except httpcore.ConnectError as error:
        raise FetchError(
            f"{url}: no connection: {error}", code="connect_failed", retryable=True
        ) from error
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise FetchError(
            f"{url}: the answer broke off: {error}", code="broken_response", retryable=True
        ) from error


# --- URLs as input ------------------------------------------------------------------------------

# declared type to the suffixes of such files; a name with another suffix gets the first one
_SUFFIXES_OF: dict[str, tuple[str, ...]] = {
    "text/html": tuple(sorted(SUFFIXES)),
    "application/xhtml+xml": (".xhtml", ".html", ".xht"),
    "application/pdf": (".pdf",),
    "text/markdown": (".md", ".markdown", ".mdx", ".mdown", ".mkd"),
    "text/csv": (".csv",),
    "text/tab-separated-values": (".tsv",),
    "application/json": (".json", ".ipynb"),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": (".docx",),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": (".xlsx",),
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": (".pptx",),
    "application/epub+zip": (".epub",),
    "application/x-ipynb+json": (".ipynb",),
    "message/rfc822": (".eml", ".mhtml", ".mht"),
}


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The content of a URL when last fetched; its bytes are in the store."""

    url: str
    final_url: str
    filename: str
    file_sha256: str
    size: int
    etag: str = ""
    last_modified: str = ""
    charset: str = ""  # as the server declared it


def is_url(text: str) -> bool:
    """True for an http or https URL."""
    return text.strip().lower().startswith(("http://", "https://"))


def normal_url(url: str, settings: Settings) -> str:
    """The canonical URL: without fragment, its host in lower-case ASCII. Raises FetchError."""
    return str(check_url(url, settings.fetching))


def download_url(url: str, settings: Settings, store: Store) -> Downloaded:
    """The content of the URL now, stored under its hash. Sends the ETag and date of the last
    download if its bytes are still stored.

    Raises FetchError as `fetch`; IntegrityError above limits.max_bytes.
    """
    earlier = _earlier(url, store)
    etag, last_modified = (earlier.etag, earlier.last_modified) if earlier else ("", "")
    with download(
        url,
        settings.fetching,
        etag=etag,
        last_modified=last_modified,
        max_bytes=settings.limits.max_bytes,
    ) as opened:
        if earlier and opened.head.unchanged:
            return earlier
        file_sha256, size = store.spool(
            opened, settings.limits.read_chunk_size_bytes, settings.limits.max_bytes
        )
        head = opened.head
    with open(store.raw_path(file_sha256), "rb") as stored:
        filename = name_with_suffix(head.filename, head.content_type, stored.read(4096))
    found = Downloaded(
        url,
        head.final_url,
        filename,
        file_sha256,
        size,
        head.etag,
        head.last_modified,
        head.charset,
    )
    write_json(store.download_path(url), {"schema_version": SCHEMA_VERSION, **to_json(found)})
    return found


def _earlier(url: str, store: Store) -> Downloaded | None:
    """The last download of the URL by this program version, if its bytes are still stored."""
    path = store.download_path(url)
    data = read_json(path, CACHE_REMEDY) if path.is_file() else {}
    if data.pop("schema_version", None) != SCHEMA_VERSION:
        return None
    earlier = from_json(Downloaded, data)
    return earlier if store.raw_path(earlier.file_sha256).is_file() else None


def name_with_suffix(filename: str, declared: str, head: bytes) -> str:
    """A file name with the suffix of its type: by content for HTML and PDF, else as declared."""
    filename = filename or "index"
    suffix = PurePosixPath(filename).suffix.lower()
    kind = "text/html" if START.match(head) else declared
    if is_pdf(head):
        kind = "application/pdf"
    known = _SUFFIXES_OF.get(kind, ())
    if kind == "text/html" and suffix not in SUFFIXES:
        return filename + ".html"
    return filename if not known or suffix in known else filename + known[0]
