"""Downloads: what is refused before a byte is asked for, what ends a download, what comes back."""

from __future__ import annotations

import contextlib
import gzip
import ipaddress
import socket
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from rag_platform.config.settings import FetchLimits
from rag_platform.errors import FetchError
from rag_platform.intake.fetching import check_url, download, fetch, refusal


def code_of(url: str, limits: FetchLimits, **options: object) -> str:
    with pytest.raises(FetchError) as caught:
        fetch(url, limits, **options)  # type: ignore[arg-type]
    return caught.value.code


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0x7f000001",
        "localhost",
        "LOCALHOST",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "0.0.0.0",
        "0",
        "[::]",
        "10.0.0.1",
        "172.16.3.4",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "224.0.0.1",
        "[ff02::1]",
        "240.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "198.18.0.1",
        "[fec0::1]",
        "[100::1]",
        "[2001:db8::1]",
        "[64:ff9b:1::a9fe:a9fe]",
    ],
)
def test_addresses_that_are_not_public_are_refused(host: str) -> None:
    assert code_of(f"http://{host}/", FetchLimits(seconds=5)) == "address_refused"


@pytest.mark.parametrize("host", ["0177.0.0.1", "LOCALHOST.", "①②⑦.⓪.⓪.①", "0x7f.1"])
def test_odd_spellings_of_loopback_reach_nobody(host: str) -> None:
    # as the resolver reads it
    assert code_of(f"http://{host}/", FetchLimits(seconds=5)) in (
        "address_refused",
        "unresolved",
        "bad_url",
    )


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::5db8:d822", True),
        ("10.1.2.3", False),
    ],
)
def test_public_addresses_pass(address: str, public: bool) -> None:
    assert (refusal(ipaddress.ip_address(address)) == "") is public


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "168.63.129.16",
        "fe80::1%eth0",
        "0.0.0.0",
        "224.0.0.1",
        "::ffff:169.254.169.254",
    ],
)
def test_an_allowed_host_is_still_never_link_local_or_metadata(address: str) -> None:
    assert refusal(ipaddress.ip_address(address), private_allowed=True)
    assert refusal(ipaddress.ip_address("192.168.1.9"), private_allowed=True) == ""


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("file:///etc/passwd", "scheme_not_allowed"),
        ("gopher://127.0.0.1:11211/_stats", "scheme_not_allowed"),
        ("//127.0.0.1/x.png", "scheme_not_allowed"),
        ("../../etc/passwd", "scheme_not_allowed"),
        ("javascript:alert(1)", "scheme_not_allowed"),
        ("http://", "bad_url"),
        ("http://a b/", "bad_url"),
        ("http://host/\x00", "bad_url"),
        ("http://example.org/" + "a" * 9000, "bad_url"),
        ("http://user:secret@example.org/", "credentials_in_url"),
        ("http://example.org:6379/", "port_not_allowed"),
    ],
)
def test_urls_that_are_refused_before_a_name_is_resolved(url: str, code: str) -> None:
    def never(host: str, port: int) -> list[str]:
        raise AssertionError(f"{host} was resolved")

    assert code_of(url, FetchLimits(seconds=5), resolve=never) == code


def test_a_password_is_not_repeated_in_the_message() -> None:
    with pytest.raises(FetchError) as caught:
        fetch("http://user:secret@example.org/", FetchLimits())
    assert "secret" not in caught.value.message


def test_an_international_name_is_asked_for_in_ascii() -> None:
    assert (
        check_url("http://bücher.example/ä?q=ö#part", FetchLimits()).raw_host
        == b"xn--bcher-kva.example"
    )


def test_a_name_with_one_private_address_among_public_ones_is_refused() -> None:
    assert (
        code_of(
            "http://mixed.test/",
            FetchLimits(seconds=5),
            resolve=lambda host, port: ["93.184.216.34", "10.0.0.1"],
        )
        == "address_refused"
    )


def test_a_name_is_resolved_once_so_a_second_answer_changes_nothing(site: Any) -> None:
    site.serve("/page", b"first")
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])
    found = fetch(
        f"http://site.test:{site.port}/page", site.limits, resolve=lambda host, port: next(answers)
    )
    assert found.data == b"first"
    assert next(answers) == ["169.254.169.254"]  # nobody asked again
    assert site.asked[0][1]["Host"] == f"site.test:{site.port}"


def test_each_redirect_is_resolved_and_judged_again(site: Any) -> None:
    site.serve("/page", status=302, Location=f"http://site.test:{site.port}/other")
    site.serve("/other", b"never")
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])
    assert (
        code_of(
            f"http://site.test:{site.port}/page",
            site.limits,
            resolve=lambda host, port: next(answers),
        )
        == "address_refused"
    )


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://169.254.169.254/latest/meta-data/", "address_refused"),
        ("http://localhost/", "address_refused"),
        ("http://[::ffff:127.0.0.1]/", "address_refused"),
        ("http://2130706433/", "address_refused"),
        ("http://127.0.0.1:1/", "port_not_allowed"),
        ("file:///etc/passwd", "scheme_not_allowed"),
        ("//user@example.org/", "credentials_in_url"),
    ],
)
def test_a_redirect_to_a_refused_place_ends_there(site: Any, location: str, code: str) -> None:
    assert code_of(site.serve("/away", status=302, Location=location), site.limits) == code


# --- what ends a download -----------------------------------------------------------------------


def test_redirects_are_counted(site: Any) -> None:
    for number in range(6):
        site.serve(f"/{number}", status=301, Location=f"/{number + 1}")
    site.serve("/6", b"end")
    assert code_of(f"{site.url}/0", site.limits) == "too_many_redirects"
    assert fetch(f"{site.url}/1", site.limits).final_url == f"{site.url}/6"


def test_a_declared_length_above_the_limit_is_refused(site: Any) -> None:
    assert code_of(site.serve("/big", b"x" * 2000), site.limits, max_bytes=1999) == "too_large"
    assert len(fetch(f"{site.url}/big", site.limits, max_bytes=2000).data) == 2000


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compression_bomb_ends_at_the_limit(site: Any, encoding: str) -> None:
    bomb = (gzip.compress if encoding == "gzip" else zlib.compress)(bytes(200_000_000), 9)
    site.serve("/bomb", bomb, Content_Encoding=encoding)
    read = 0
    with (
        pytest.raises(FetchError, match="larger than 1000000 bytes"),
        download(f"{site.url}/bomb", site.limits, max_bytes=10**6) as opened,
    ):
        while block := opened.read(1 << 16):
            read += len(block)
    assert read <= 10**6


def test_a_body_without_a_length_is_counted_as_it_streams(site: Any) -> None:
    def endless(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        with contextlib.suppress(OSError):
            while True:
                request.wfile.write(bytes(1 << 16))

    site.paths["/endless"] = endless
    assert code_of(f"{site.url}/endless", site.limits, max_bytes=10**6) == "too_large"


@pytest.mark.parametrize("part", ["head", "body"])
def test_the_time_is_that_of_the_whole_download(site: Any, part: str) -> None:
    def slow(request: BaseHTTPRequestHandler) -> None:
        line = b"HTTP/1.0 200 OK\r\n" + (b"X-Long: " if part == "head" else b"\r\n")
        with contextlib.suppress(OSError):
            request.wfile.write(line)
            for _ in range(100):  # a byte each 50 ms: every single read is quick
                request.wfile.write(b"x")
                request.wfile.flush()
                time.sleep(0.05)

    site.paths["/slow"] = slow
    assert code_of(f"{site.url}/slow", site.limits.model_copy(update={"seconds": 0.4})) == "timeout"


def test_a_resolver_that_hangs_ends_with_the_time() -> None:
    def hangs(host: str, port: int) -> list[str]:
        time.sleep(1)
        return []

    assert code_of("http://slow.test/", FetchLimits(seconds=0.2), resolve=hangs) == "timeout"


def test_unknown_names_and_closed_ports_are_told_apart() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror("name not known")

    assert code_of("http://nowhere.test/", FetchLimits(seconds=5), resolve=unknown) == "unresolved"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    assert (
        code_of(f"http://127.0.0.1:{port}/", FetchLimits(seconds=5, allow=(f"127.0.0.1:{port}",)))
        == "connect_failed"
    )


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(404, False), (403, False), (410, False), (429, True), (503, True), (206, False)],
)
def test_another_status_is_an_error_that_says_if_waiting_may_help(
    site: Any, status: int, retryable: bool
) -> None:
    site.serve("/odd", b"body", status)
    with pytest.raises(FetchError) as caught:
        fetch(f"{site.url}/odd", site.limits)
    assert (
        caught.value.code,
        caught.value.details["status"],
        caught.value.details["retryable"],
    ) == ("http_status" if retryable else "http_refused", status, retryable)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (gzip.compress(b"some text that is long enough")[:-12], {"Content_Encoding": "gzip"}),
        (b"no gzip at all", {"Content_Encoding": "gzip"}),
        (b"zzz", {"Content_Encoding": "br"}),
        (b"short", {"Content_Length": "500"}),
    ],
    ids=["cut gzip", "no gzip", "unknown encoding", "too short"],
)
def test_a_damaged_body_is_an_error_never_a_short_document(
    site: Any, body: bytes, headers: dict[str, str]
) -> None:
    assert code_of(site.serve("/damaged", body, **headers), site.limits) == "broken_response"


# --- what comes back ----------------------------------------------------------------------------


def test_what_the_server_said_comes_with_the_body(site: Any) -> None:
    site.serve(
        "/docs/a%20page.html?x=1",
        b"<p>text",
        Content_Type="Text/HTML; charset=gbk",
        ETag='"v1"',
        Last_Modified="Sun, 22 Nov 2026 00:00:00 GMT",
    )
    found = fetch(f"{site.url}/docs/a%20page.html?x=1#part", site.limits)
    assert (found.data, found.content_type, found.filename) == (
        b"<p>text",
        "text/html",
        "a page.html",
    )
    assert (found.etag, found.last_modified) == ('"v1"', "Sun, 22 Nov 2026 00:00:00 GMT")
    assert found.final_url == f"{site.url}/docs/a%20page.html?x=1"
    assert {"Cookie", "Authorization"}.isdisjoint(site.asked[0][1])


def test_cookies_are_neither_kept_nor_sent(site: Any) -> None:
    site.serve("/set", status=302, Location="/next", Set_Cookie="session=1")
    site.serve("/next", b"done")
    assert fetch(f"{site.url}/set", site.limits).data == b"done"
    assert "Cookie" not in site.asked[1][1]


def test_proxies_of_the_environment_are_not_asked(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert fetch(site.serve("/direct", b"direct"), site.limits).data == b"direct"


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('attachment; filename="../../etc/passwd"', "passwd"),
        ("attachment; filename*=UTF-8''%E6%89%8B%E5%86%8C.pdf", "手册.pdf"),
        ("inline", "page"),
    ],
)
def test_a_file_name_never_holds_a_path(site: Any, disposition: str, name: str) -> None:
    assert (
        fetch(site.serve("/page", b"x", Content_Disposition=disposition), site.limits).filename
        == name
    )


@pytest.mark.parametrize(
    "encode",
    [
        gzip.compress,
        zlib.compress,
        lambda data: zlib.compress(data)[2:-4],
        lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
    ],
)
def test_compressed_bodies_come_back_whole(site: Any, encode: Callable[[bytes], bytes]) -> None:
    text = b"".join(b"line %d\n" % number for number in range(50_000))
    packed = encode(text)
    site.serve(
        "/packed", packed, Content_Encoding="gzip" if packed[:2] == b"\x1f\x8b" else "deflate"
    )
    assert fetch(f"{site.url}/packed", site.limits).data == text


def test_an_unchanged_page_costs_no_body(site: Any) -> None:
    site.serve("/page", status=304, ETag='"v1"')
    with download(
        f"{site.url}/page", site.limits, etag='"v1"', last_modified="Sun, 22 Nov 2026 00:00:00 GMT"
    ) as opened:
        assert (opened.head.unchanged, opened.read(1)) == (True, b"")
    assert site.asked[0][1]["If-None-Match"] == '"v1"'
    assert site.asked[0][1]["If-Modified-Since"] == "Sun, 22 Nov 2026 00:00:00 GMT"
    # nobody asked whether it changed
    assert code_of(f"{site.url}/page", site.limits) == "http_refused"


def test_nothing_of_the_fault_list_is_fetched(material: Path) -> None:
    import re

    text = (material / "faults" / "links" / "ssrf-and-traversal.md").read_text(encoding="utf-8")
    targets = [*re.findall(r"!\[\w+\]\(([^)]+)\)", text), *re.findall(r'src="([^"]+)"', text)]
    assert len(targets) == 20
    codes = {code_of(target, FetchLimits(seconds=5)) for target in targets}
    assert codes <= {"address_refused", "scheme_not_allowed", "port_not_allowed", "bad_url"}
