"""URLs and handed-over content as input: identity, names, unchanged pages, failures, pages that are
gone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Settings, Strategy
from rag_platform.config.strategies import load_strategy
from rag_platform.documents.outputs import Outputs
from rag_platform.documents.provenance import verify_version
from rag_platform.errors import InputError
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.ingestion.request import IngestionTotals
from rag_platform.intake.discovery import Content, inputs_to_sync
from rag_platform.intake.fetching import name_with_suffix
from rag_platform.intake.receiving import Reception
from rag_platform_tests.receiver import Receiver

PAGE = (
    b"<!doctype html><title>Ports - Manual</title><h1>Ports</h1><p>The gateway listens on port"
    b" 8080.</p>"
)


class Library(Receiver):
    """A data root that may fetch from one site."""

    def __init__(self, settings: Settings, strategy: Strategy, site: Any) -> None:
        loaders = strategy.loading.model_validate(
            {"loaders": [{"provider": name} for name in ("pdf", "html", "markdown", "text")]}
        )
        super().__init__(
            settings.model_copy(update={"fetching": site.limits}),
            strategy.model_copy(update={"loading": loaders}),
        )

    def ingest(self, reception: Reception) -> IngestionTotals:
        return ingest_versions(
            [self.ledger.version(item) for item in reception.to_process], self.workspace
        )


@pytest.fixture
def library(settings: Settings, site: Any) -> Library:
    return Library(settings, load_strategy(settings, "tiny"), site)


def outcomes(reception: Reception) -> list[tuple[str, str]]:
    return [(item.decision, item.code) for item in reception.items]


def test_a_page_becomes_a_document_whose_source_uri_is_its_address(
    library: Library, site: Any
) -> None:
    url = site.serve("/manual/ports", PAGE, Content_Type="text/html; charset=utf-8")
    reception = library.receive(f"{url}#limits", tags=("web",))
    [document] = library.ledger.documents("lib")
    assert (document.source_uri, document.source, document.filename, document.origin) == (
        url,
        "urls",
        "ports.html",
        url,
    )
    version = library.ledger.version(reception.to_process[0])
    assert (version.loader, version.mime, version.size) == ("html", "text/html", len(PAGE))
    assert library.store.raw_path(version.file_sha256).read_bytes() == PAGE
    totals = library.ingest(reception)
    assert (totals.documents, totals.failures) == (1, [])
    assert library.ledger.documents("lib")[0].title == "Ports"


def test_an_unchanged_page_is_skipped_by_its_mark_and_a_changed_one_is_a_new_version(
    library: Library, site: Any
) -> None:
    url = site.serve("/page", PAGE, ETag='"1"', Last_Modified="Sun, 22 Nov 2026 00:00:00 GMT")
    library.complete(library.receive(url, source="manual"))
    site.serve("/page", b"", 304)
    assert outcomes(library.receive(url)) == [("skip", "")]
    assert site.asked[1][1]["If-None-Match"] == '"1"'
    site.serve("/page", PAGE, ETag='"2"')  # the server forgot, the bytes are equal
    assert outcomes(library.receive(url)) == [("skip", "")]
    site.serve("/page", PAGE.replace(b"8080", b"9090"), ETag='"3"')
    assert outcomes(library.receive(url)) == [("new_version", "")]
    assert [document.source for document in library.ledger.documents("lib")] == ["manual"]


def test_a_mark_is_not_sent_when_the_bytes_are_gone(library: Library, site: Any) -> None:
    url = site.serve("/page", PAGE, ETag='"1"')
    [version_id] = library.receive(url).to_process
    library.store.raw_path(library.ledger.version(version_id).file_sha256).unlink()
    library.receive(url)
    assert "If-None-Match" not in site.asked[1][1]


def test_a_failed_download_is_a_failed_item_and_the_live_version_stays(
    library: Library, site: Any
) -> None:
    url = site.serve("/page", PAGE)
    first = library.receive(url)
    library.complete(first)
    site.serve("/page", b"sorry", 503)
    reception = library.receive(url, "http://10.0.0.1/", "ftp://host/x", "http://user:secret@host/")
    assert outcomes(reception)[:-1] == [
        ("refused", "scheme_not_allowed"),
        ("refused", "credentials_in_url"),
        ("refused", "http_status"),
    ]
    assert outcomes(reception)[-1] == ("refused", "address_refused")
    assert "secret" not in str(reception.items)
    [document] = library.ledger.documents("lib")
    assert (document.live_version, document.status) == (first.to_process[0], "active")


def test_sync_fetches_every_known_page_and_retires_those_that_are_gone(
    library: Library, site: Any
) -> None:
    urls = [site.serve(path, PAGE + path.encode()) for path in ("/a", "/b", "/c")]
    library.complete(library.receive(*urls, source="manual"))
    site.serve("/a", PAGE, 410)
    site.serve("/b", PAGE, 403)
    known = inputs_to_sync(library.ledger, "lib", "manual")
    assert sorted(map(str, known)) == urls
    without = library.receive(*known)
    assert ([item.code for item in without.items if item.code], without.retired) == (
        ["http_refused", "http_refused"],
        (),
    )
    reception = library.receive(*known, sync=True)
    # forbidden is a failure, gone is not
    assert [item.source_uri for item in reception.items if item.code] == [urls[1]]
    assert [d.source_uri for d in library.ledger.documents("lib", status="retired")] == [urls[0]]
    assert len(inputs_to_sync(library.ledger, "lib")) == 2
    with pytest.raises(InputError, match="no source 'other' to sync"):
        inputs_to_sync(library.ledger, "lib", "other")


def test_a_sync_of_a_list_whose_pages_vanish_at_once_retires_nothing_unasked(
    library: Library, site: Any
) -> None:
    urls = [site.serve(f"/{number}", PAGE + b"%d" % number) for number in range(8)]
    library.complete(library.receive(*urls, source="manual"))
    for number in range(6):
        site.serve(f"/{number}", PAGE, 404)
    reception = library.receive(*urls, sync=True)
    [refused] = [item for item in reception.items if item.code]
    assert (refused.source_uri, refused.code, reception.retired) == ("manual", "mostly_gone", ())
    assert "6 of 8 documents" in refused.reason
    assert len(library.receive(*urls, sync=True, retire_all=True).retired) == 6


def test_the_address_after_redirects_is_where_relative_links_start(
    library: Library, site: Any
) -> None:
    site.serve("/new/page.html", PAGE)
    url = site.serve("/old", status=301, Location="/new/page.html")
    library.receive(url)
    [document] = library.ledger.documents("lib")
    assert (document.source_uri, document.origin, document.filename) == (
        url,
        f"{site.url}/new/page.html",
        "page.html",
    )


def test_a_list_of_urls_takes_no_name_of_another_kind(
    library: Library, site: Any, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\ntext", encoding="utf-8")
    library.receive(tmp_path / "docs")
    with pytest.raises(InputError, match="'docs' is no list of URLs"):
        library.receive(site.serve("/page", PAGE), source="docs")


def test_a_download_above_the_limit_of_documents_is_refused(library: Library, site: Any) -> None:
    settings = library.settings
    library.settings = settings.model_copy(
        update={"limits": settings.limits.model_copy(update={"max_bytes": 50})}
    )
    assert outcomes(library.receive(site.serve("/page", PAGE))) == [("refused", "too_large")]
    assert not any(library.store.spool_dir.iterdir())


def test_content_is_a_document_of_the_source_inline(library: Library) -> None:
    first = library.receive(Content("notes/../../Plan A.md", b"# Plan\n\nfirst"))
    library.complete(first)
    [document] = library.ledger.documents("lib")
    assert (document.source, document.source_uri, document.origin) == (
        "inline",
        "inline/Plan A.md",
        "",
    )
    assert library.ingest(first).failures == []
    assert outcomes(library.receive(Content("Plan A.md", b"# Plan\n\nsecond"))) == [
        ("new_version", "")
    ]
    assert outcomes(
        library.receive(Content("x.md", b""), Content("y.exe", b"MZ\x90\x00" + bytes(50)))
    ) == [
        ("new", ""),
        ("refused", "unsupported_type"),
    ]


@pytest.mark.parametrize(
    ("filename", "declared", "head", "name"),
    [
        ("", "text/html", b"<!doctype html>", "index.html"),
        ("page.php", "text/html", b"<!doctype html>", "page.php.html"),
        ("page.php", "text/html", b"<h1>no doctype", "page.php.html"),
        ("page.htm", "text/html", b"<html>", "page.htm"),
        ("report", "application/octet-stream", b"%PDF-1.7", "report.pdf"),
        ("view.aspx", "application/pdf", b"%PDF-1.4", "view.aspx.pdf"),
        ("README", "text/markdown", b"# Title", "README.md"),
        ("main.py", "text/plain", b"import os", "main.py"),
        ("README", "text/plain", b"# Title", "README"),
        ("export", "text/csv", b"a,b", "export.csv"),
        ("page.md", "text/plain", b"<!DOCTYPE HTML><html>", "page.md.html"),
    ],
)
def test_the_name_of_a_download_tells_its_type(
    filename: str, declared: str, head: bytes, name: str
) -> None:
    assert name_with_suffix(filename, declared, head) == name


POLISH = (
    "Zażółć gęślą jaźń. Łódź, Kraków i Świnoujście leżą w Polsce, a ich mieszkańcy mówią po polsku."
)


@pytest.mark.parametrize(
    ("path", "kind", "body", "declared", "said"),
    [
        ("/a.html", "text/html", f"<p>{POLISH}</p>", "iso-8859-2", POLISH),
        # the server goes before the page
        ("/b.html", "text/html", f"<meta charset=iso-8859-1><p>{POLISH}</p>", "ISO-8859-2", POLISH),
        ("/c.txt", "text/plain", POLISH, "iso-8859-2", POLISH),
        ("/d.md", "text/markdown", f"# T\n\n{POLISH}", "iso-8859-2", POLISH),
        ("/e.html", "text/html", "<p>Ta strona ma ¼ i Å, czyli ź i Ĺ</p>", "no-such", ""),
    ],
)
def test_the_charset_that_a_server_declares_is_that_of_the_text(
    library: Library, site: Any, path: str, kind: str, body: str, declared: str, said: str
) -> None:
    raw = body.encode("iso-8859-2" if said else "latin-1", "replace")
    reception = library.receive(site.serve(path, raw, Content_Type=f"{kind}; charset={declared}"))
    version = library.ledger.version(reception.to_process[0])
    library.ingest(reception)
    profiles = stage_profiles(library.strategy)
    outputs = Outputs(version, library.store, profiles)
    assert said in outputs.facts.text and version.content_type == kind
    assert library.store.raw_path(version.file_sha256).read_bytes() == raw
    chunks = outputs.chunks
    assert chunks and verify_version(library.store, version, profiles, chunks) == []


def test_utf8_and_a_byte_order_mark_go_before_what_the_server_declares(
    library: Library, site: Any
) -> None:
    for path, kind, raw in (
        ("/a.html", "text/html", f"<p>{POLISH}</p>".encode()),
        ("/b.txt", "text/plain", POLISH.encode("utf-16")),
    ):
        reception = library.receive(
            site.serve(path, raw, Content_Type=f"{kind}; charset=iso-8859-2")
        )
        library.ingest(reception)
        version = library.ledger.version(reception.to_process[0])
        outputs = Outputs(version, library.store, stage_profiles(library.strategy))
        assert POLISH in outputs.facts.text


def test_where_an_address_led_is_shown(library: Library, site: Any) -> None:
    site.serve("/new/page.html", PAGE)
    library.ingest(library.receive(site.serve("/old", status=301, Location="/new/page.html")))
    library.ingest(library.receive(site.serve("/plain.html", PAGE + b"<p>More.</p>")))
    found = {
        document.source_uri: library.ledger.version(document.live_version).counts
        for document in library.ledger.documents("lib")
    }
    assert found[f"{site.url}/old"]["metadata"].get("final_url") == f"{site.url}/new/page.html"
    assert "final_url" not in found[f"{site.url}/plain.html"]["metadata"]
