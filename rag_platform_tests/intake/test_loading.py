"""Choosing a loader, and reading PDFs in children that may die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import pymupdf
import pytest

from rag_platform.config.ingestion import LoadingConfig
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import Limits, Strategy, load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import ConfigError, DocumentError
from rag_platform.intake import isolation as child_pool
from rag_platform.intake.loading import choose, load, options_with_limits, sniff
from rag_platform.loaders.pdf.mupdf import PdfLoader

REPOSITORY = Path(__file__).resolve().parents[2]
DATASHEET = REPOSITORY / "rag_platform" / "samples" / "datasheet.pdf"


@pytest.fixture(scope="module")
def strategy() -> Strategy:
    return load_strategy(load_settings(), "default")


@pytest.fixture(scope="module")
def fast(strategy) -> Strategy:
    loaders = (ProviderConfig(provider="pdf", options={"profile": "fast"}),)
    return strategy.model_copy(update={"loading": LoadingConfig(loaders=loaders)})


@pytest.fixture(autouse=True, scope="module")
def _end_children():
    yield
    child_pool.pool().close()


def archive(path: Path, parts: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, text in parts.items():
            made.writestr(name, text)
    return path


def write_pages(path: Path, count: int) -> Path:
    with pymupdf.open() as document:
        for number in range(count):
            document.new_page().insert_text((72, 72), f"page {number + 1}")
        document.save(path)
    return path


@pytest.mark.parametrize(
    ("filename", "head", "mime"),
    [
        ("a.md", b"# x", "text/markdown"),
        ("a.md", b"%PDF-1.7", "application/pdf"),
        ("a.pdf", b"\x89PNG\r\n\x1a\n...", "image/png"),
        ("a.txt", b"MZ is a prefix of text too", "text/plain"),
        ("a", b"  <!DOCTYPE html><p>", "text/html"),
        ("a.pdf", b"PK\x03\x04....other", "application/zip"),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
        ("a.txt", b"\xff\xfeh\x00i\x00", "text/plain"),
        ("a.bin", b"\x01\x00\x02", "application/octet-stream"),
        ("a.md", b"", "inode/x-empty"),
    ],
)
def test_content_decides_binary_types_and_suffix_decides_texts(tmp_path, filename, head, mime):
    assert sniff(written(tmp_path, head), filename) == mime


def written(folder: Path, data: bytes) -> Path:
    (folder / "stored").write_bytes(data)
    return folder / "stored"


def test_the_first_loader_that_claims_a_file_reads_it(strategy, tmp_path):
    for name, head, found in (
        ("x.md", b"# Title\n", ("markdown", "text/markdown")),
        ("x.md", b"%PDF-1.4\n", ("pdf", "application/pdf")),
        ("x.txt", b"words", ("text", "text/plain")),
        ("x.js", b'open("lid");\n' * 400, ("text", "text/plain")),
        ("README.Debian", b"Read the notes of the package first.\n", ("text", "text/plain")),
        ("site.conf.example", b"# port of the gateway\nlisten = 8080\n", ("text", "text/plain")),
        ("会议.2024", "网关的端口是 8080。".encode(), ("text", "text/plain")),
    ):
        assert choose(written(tmp_path, head), name, strategy) == found


@pytest.mark.parametrize(
    ("filename", "head", "said"),
    [
        ("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "soffice"),
        ("deck.ppt", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "save it as PDF"),
        ("合同.wps", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "save it as .docx"),
        ("inbox.mbox", b"From ann Tue Mar  5 09:30:00 2024\n", "save its mails as .eml files"),
        ("photo.png", b"\x89PNG\r\n\x1a\n", "image/png"),
        ("letter.rtf", rb"{\rtf1\ansi Dear reader, the gate opens}", "soffice"),
        ("notes.md.bak", b"The gate opens at six.\n", "true suffix"),
        ("notes.md~", b"The gate opens at six.\n", "text/plain"),
        ("logo.svg", b"<svg><title>the gate of the harbour</title></svg>", "image/svg"),
        ("root.crt", b"-----BEGIN-----\nMIIFVzCCAz+gAwIBAgINAgPlk28xsBNJiGuiFzAN\n", "text/plain"),
        ("searchindex.js", b'Search.setIndex({"open": 1})' * 200, "text/plain, minified"),
        ("run.dat", b"1 0.5321\n2 0.5187\n3 4.1200e-5\n", "text/plain"),
    ],
)
def test_what_no_loader_reads_is_refused_with_the_remedy(strategy, tmp_path, filename, head, said):
    with pytest.raises(DocumentError, match=said) as caught:
        choose(written(tmp_path, head), filename, strategy)
    assert caught.value.code == "unsupported_type"
    assert "markdown: .md" in caught.value.message


@pytest.mark.parametrize(
    ("filename", "parts", "chosen"),
    [
        ("letter.zip", {"[Content_Types].xml": "", "word/document.xml": ""}, "docx"),
        ("letter.pdf", {"[Content_Types].xml": "", "word/document.xml": ""}, "docx"),
        ("letter.docx", {"[Content_Types].xml": "", "xl/workbook.xml": ""}, "xlsx"),
        ("letter.docm", {"[Content_Types].xml": "", "word/document.xml": ""}, "docx"),
        (
            "letter",
            {"[Content_Types].xml": "", "docProps/app.xml": "x" * 9000, "xl/workbook.xml": ""},
            "xlsx",
        ),
    ],
)
def test_an_office_document_is_known_by_its_content(strategy, tmp_path, filename, parts, chosen):
    loader, mime = choose(archive(tmp_path / "a", parts), filename, strategy)
    kind = {"docx": "wordprocessingml.document", "xlsx": "spreadsheetml.sheet"}[chosen]
    assert (loader, mime) == (chosen, f"application/vnd.openxmlformats-officedocument.{kind}")


@pytest.mark.parametrize(
    ("filename", "parts", "said"),
    [
        ("a.zip", {"notes.md": "# x"}, "unpack it and ingest the folder"),
        ("a.zip", {"mimetype": "application/vnd.oasis.opendocument.text"}, "convert-to docx"),
    ],
)
def test_other_archives_are_refused_with_the_remedy(strategy, tmp_path, filename, parts, said):
    path = archive(tmp_path / "a", parts)
    with pytest.raises(DocumentError, match=said):
        choose(path, filename, strategy)


def test_a_format_that_only_other_strategies_read_names_its_loader(strategy, tmp_path):
    loaders = strategy.loading.model_validate(
        {"loaders": [{"provider": "markdown"}, {"provider": "text"}]}
    )
    few = strategy.model_copy(update={"loading": loaders})
    slides = archive(tmp_path / "slides", {"[Content_Types].xml": "", "ppt/presentation.xml": ""})
    for name, path, loader in (
        ("a.pptx", slides, "pptx"),
        ("a.ipynb", written(tmp_path, b"{}"), "ipynb"),
    ):
        with pytest.raises(DocumentError, match=f"add the loader `{loader}` to the strategy"):
            choose(path, name, few)
        assert choose(path, name, strategy)[0] == loader


def test_a_name_asks_for_a_loader_that_the_strategy_has(strategy, tmp_path):
    page = written(tmp_path, b"<html><body>404</body></html>")
    names = ("a.PDF", "a.docm", "a.xlsx")
    assert [choose(page, name, strategy)[0] for name in names] == ["pdf", "docx", "xlsx"]
    only = strategy.model_copy(
        update={"loading": LoadingConfig(loaders=(ProviderConfig(provider="text"),))}
    )
    with pytest.raises(DocumentError, match="its name says PDF; give it its true suffix"):
        choose(page, "a.pdf", only)


def test_limits_are_options_of_the_loaders_that_know_them():
    limits = Limits(max_cells=7, max_archive_ratio=3.0)
    assert options_with_limits(ProviderConfig(provider="csv"), limits) == {"max_cells": 7}
    assert options_with_limits(ProviderConfig(provider="docx"), limits) == {
        "max_archive_ratio": 3.0,
        "max_unpacked_bytes": 1024**3,
    }
    assert (
        options_with_limits(ProviderConfig(provider="xlsx", options={"max_cells": 9}), limits)[
            "max_cells"
        ]
        == 9
    )
    assert options_with_limits(ProviderConfig(provider="text"), limits) == {}


def test_an_empty_pdf_is_called_empty(strategy, tmp_path):
    (tmp_path / "x.pdf").touch()
    with pytest.raises(DocumentError) as caught:
        loader, _ = choose(tmp_path / "x.pdf", "x.pdf", strategy)
        load(tmp_path / "x.pdf", "x.pdf", loader, strategy, Limits())
    assert caught.value.code == "empty_file"


def test_texts_are_read_here_and_limits_hold(strategy, tmp_path):
    path = tmp_path / "stored"
    path.write_text("# Title\n\nBody.\n", encoding="utf-8")
    assert load(path, "a.md", "markdown", strategy, Limits()).text == "# Title\n\nBody.\n"
    with pytest.raises(DocumentError, match="max_bytes = 4") as caught:
        load(path, "a.md", "markdown", strategy, Limits(max_bytes=4))
    assert caught.value.code == "too_large"
    with pytest.raises(ConfigError, match="no loader 'pages'"):
        load(path, "a.md", "pages", strategy, Limits())


@pytest.mark.integration
def test_children_read_what_this_process_would_read(strategy):
    seen: list[tuple[int, int]] = []
    facts = load(
        DATASHEET,
        "d.pdf",
        "pdf",
        strategy,
        Limits(pdf_window_pages=2),
        lambda done, total: seen.append((done, total)),
    )
    assert facts == PdfLoader().load(DATASHEET, "d.pdf")
    assert sorted(seen) == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.integration
def test_pages_keep_their_order_over_windows_and_a_child_stays_warm(fast, tmp_path):
    path = write_pages(tmp_path / "x.pdf", 23)
    first = load(path, "x.pdf", "pdf", fast, Limits(pdf_window_pages=4))
    assert first.text == "\n\n".join(f"page {n}" for n in range(1, 24))
    children = {child.process.pid for child in child_pool.pool().free}
    load(path, "x.pdf", "pdf", fast, Limits(pdf_window_pages=4))
    assert children and {child.process.pid for child in child_pool.pool().free} == children


@pytest.mark.integration
@pytest.mark.parametrize("failures", [child_pool.MAX_LAYOUT_FAILURES, 0])  # 0: all is read raw
def test_a_child_that_is_killed_costs_its_pages_nothing_but_a_warning(
    fast, tmp_path, monkeypatch, failures
):
    monkeypatch.setattr(child_pool, "MAX_LAYOUT_FAILURES", failures)
    path = write_pages(tmp_path / "x.pdf", 4)
    load(path, "x.pdf", "pdf", fast, Limits())
    killed: list[int] = []

    def kill_once(done: int, total: int) -> None:
        pool = child_pool.pool()
        if done == 1:  # other tests may have left children that wait
            killed.append(next(child.process.pid for child in pool.all if child not in pool.free))
            os.kill(killed[0], signal.SIGKILL)

    big = write_pages(tmp_path / "big.pdf", 1000)
    facts = load(big, "big.pdf", "pdf", fast, Limits(pdf_window_pages=1000), kill_once)
    assert killed
    assert facts.text == "\n\n".join(f"page {n}" for n in range(1, 1001))
    assert any("ended by signal 9" in warning for warning in facts.summary.warnings)


@pytest.mark.integration
def test_errors_of_the_file_come_through_and_the_child_lives_on(fast, tmp_path):
    broken = tmp_path / "x.pdf"
    broken.write_bytes(b"%PDF-1.7 nothing")
    with pytest.raises(DocumentError) as caught:
        load(broken, "x.pdf", "pdf", fast, Limits())
    assert caught.value.code == "broken_file"
    with pytest.raises(DocumentError) as caught:
        load(write_pages(tmp_path / "y.pdf", 3), "y.pdf", "pdf", fast, Limits(max_pages=2))
    assert caught.value.code == "too_many_pages"


@pytest.mark.integration
def test_the_file_deadline_ends_the_reading(fast, tmp_path):
    path = write_pages(tmp_path / "x.pdf", 3)
    with pytest.raises(DocumentError, match="file_seconds = 1e-06") as caught:
        load(path, "x.pdf", "pdf", fast, Limits(file_seconds=1e-6))
    assert caught.value.code == "timeout"


@pytest.mark.integration
def test_a_bomb_ends_in_a_page_without_text_not_in_a_dead_parent(fast, material):
    bomb = material / "faults" / "pdf" / "flate-bomb-double.pdf"
    try:
        facts = load(bomb, bomb.name, "pdf", fast, Limits(page_seconds=0.5, pdf_memory_mb=200))
        assert facts.summary.pages_without_text == (1,)
    except DocumentError as error:
        assert error.code == "broken_file"


@pytest.mark.integration
def test_a_page_that_hangs_is_read_once_more_for_a_short_time(fast, tmp_path, monkeypatch):
    monkeypatch.setattr(child_pool, "MAX_LAYOUT_FAILURES", 1)
    path = write_pages(tmp_path / "bomb.pdf", 3)
    with pymupdf.open(path) as pdf:
        xref = pdf.get_new_xref()
        pdf.update_object(xref, "<<>>")
        content = zlib.compress(zlib.compress(b"BT ET " * 20_000_000, 1))
        pdf.update_stream(xref, content, compress=False)
        pdf.xref_set_key(xref, "Filter", "[/FlateDecode/FlateDecode]")
        for page in pdf.pages(0, 2):
            page.set_contents(xref)
        pdf.saveIncr()
    facts = load(path, path.name, "pdf", fast, Limits(page_seconds=1.0))
    assert facts.text == "page 3"
    assert facts.summary.errors == (
        "page 1: raw reading failed too (no answer within 0.1 seconds)",
        "page 2: raw reading failed (no answer within 1 seconds)",
    )


@pytest.mark.integration
def test_it_works_from_a_thread_prints_nothing_and_leaves_no_child(tmp_path):
    path = write_pages(tmp_path / "x.pdf", 3)
    script = (
        "import threading\n"
        "from pathlib import Path\n"
        "from rag_platform.config.settings import Limits\n"
        "from rag_platform.intake import isolation\n"
        "from rag_platform.loaders.pdf.mupdf import PdfLoader\n"
        "def work():\n"
        f"    isolation.load_isolated(Path({str(path)!r}), PdfLoader(profile='fast'), Limits())\n"
        f"    Path({str(tmp_path / 'pids')!r}).write_text(' '.join(str(c.process.pid) for c in"
        " isolation.pool().free))\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    pids = (tmp_path / "pids").read_text().split()
    assert pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.integration
def test_two_threads_share_the_children(fast, tmp_path):
    paths = [write_pages(tmp_path / f"{n}.pdf", 9) for n in range(4)]
    texts: dict[int, str] = {}

    def work(number: int) -> None:
        texts[number] = load(paths[number], "x.pdf", "pdf", fast, Limits(pdf_window_pages=4)).text

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(texts.values()) == {"\n\n".join(f"page {n}" for n in range(1, 10))}
    # MuPDF reads, PDFium proves: each has children of its own
    waiting = Counter(child.engine for child in child_pool.pool().free)
    assert max(waiting.values()) <= child_pool.pool().size


@pytest.mark.integration
def test_a_reading_that_is_cut_off_goes_on_where_it_was(fast, tmp_path):
    path, kept = write_pages(tmp_path / "x.pdf", 12), tmp_path / "kept"
    limits = Limits(pdf_window_pages=4)
    whole = load(path, "x.pdf", "pdf", fast, limits, kept=kept)
    assert not kept.exists()

    def cut_off(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(path, "x.pdf", "pdf", fast, limits, cut_off, kept=kept)
    kept.write_bytes(kept.read_bytes() + b'\n{"page": 12, "blo')  # a process killed while it wrote
    read: list[tuple[int, int]] = []
    again = load(path, "x.pdf", "pdf", fast, limits, lambda *far: read.append(far), kept=kept)
    assert again == whole
    assert read[-1][0] == read[-1][1] <= 12 - 3
    assert not kept.exists()
