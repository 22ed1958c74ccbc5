"""PDFs without MuPDF: the same blocks, proved by the same characters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pymupdf
import pytest

from rag_platform.config.settings import Limits
from rag_platform.errors import DocumentError
from rag_platform.intake import isolation
from rag_platform.intake import isolation as child_pool
from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.pdfium import PdfiumLoader, open_pdf, read_images, read_words
from rag_platform.text.scripts import letters
from rag_platform_tests.glyphs import write_glyphs

REPOSITORY = Path(__file__).resolve().parents[3]
DATASHEET = REPOSITORY / "rag_platform" / "samples" / "datasheet.pdf"


@pytest.fixture(scope="module")
def facts():
    return PdfiumLoader().load(DATASHEET, "datasheet.pdf")


def test_headings_carry_the_outline_levels(facts):
    assert [(b.level, b.title) for b in facts.blocks if b.kind == "heading"] == [
        (1, "Pegasus PX series data sheet"),
        (2, "1 Overview"),
        (2, "2 Technical data"),
        (3, "2.1 Ratings"),
        (3, "2.2 Spare parts"),
        (2, "3 Use in cold stores"),
        (2, "4 中文摘要"),
    ]
    assert (facts.summary.loader_name, facts.summary.parser_engine, facts.summary.pages) == (
        "pdfium",
        "pdfium",
        4,
    )


def test_it_reads_the_letters_that_mupdf_reads_where_mupdf_sees_them(facts):
    theirs = PdfLoader(profile="fast").load(DATASHEET, "datasheet.pdf")
    assert sorted(letters(facts.text)) == sorted(letters(theirs.text))
    ours = {b.title: (b.page, b.bbox) for b in facts.blocks if b.kind == "heading"}
    for block in theirs.blocks:
        if block.kind == "heading":
            page, box = ours[block.title]
            assert page == block.page
            assert max(abs(a - b) for a, b in zip(box, block.bbox, strict=True)) < 12


def test_every_block_is_proved_and_a_changed_word_is_noticed(facts):
    assert PdfiumLoader().verify_blocks(DATASHEET, facts.text, facts.blocks) == {}
    wrong = facts.text.replace("backplane", "backplate")
    assert len(PdfiumLoader().verify_blocks(DATASHEET, wrong, facts.blocks)) == 1


def test_running_headers_are_marked(facts):
    footers = [facts.text[b.start : b.end] for b in facts.blocks if b.kind == "footer"]
    assert footers == [] or footers == [f"Page {n} of 4" for n in (1, 2, 3, 4)]
    marked = [facts.text[b.start : b.end] for b in facts.blocks if b.kind in ("header", "footer")]
    assert marked.count("Pegasus PX series - data sheet DS-7714, revision C") == 4


def test_images_and_whole_pages_are_taken_out(facts):
    targets = [m.origin_ref for m in facts.media]
    assert targets == ["pdf:placed=1.0", "pdf:placed=3.0"]
    found = dict(
        read_images(DATASHEET, [*targets, "pdf:placed=2.0", "pdf:page=1;dpi=50;pixels=1000000"])
    )
    assert found["pdf:placed=1.0"].startswith(b"\x89PNG") and found[
        "pdf:page=1;dpi=50;pixels=1000000"
    ].startswith(b"\x89PNG")
    assert found["pdf:placed=2.0"] == "broken_image: its content is damaged"


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "empty_file"), (b"%PDF-1.7\n", "broken_file"), (b"no pdf", "broken_file")],
)
def test_broken_files_are_refused(tmp_path, content, code):
    path = tmp_path / "x.pdf"
    path.write_bytes(content)
    with pytest.raises(DocumentError) as caught:
        PdfiumLoader().load(path, "x.pdf")
    assert caught.value.code == code
    assert str(tmp_path) not in caught.value.message


def test_encrypted_files_say_so_and_leading_bytes_are_passed_over(tmp_path):
    with pymupdf.open() as document:
        document.new_page().insert_text((72, 72), "secret")
        document.save(
            tmp_path / "locked.pdf",
            encryption=pymupdf.PDF_ENCRYPT_AES_256,
            user_pw="u",
            owner_pw="o",
        )
        document.save(tmp_path / "plain.pdf")
    with pytest.raises(DocumentError, match="password") as caught:
        PdfiumLoader().load(tmp_path / "locked.pdf", "locked.pdf")
    assert caught.value.code == "encrypted"
    (tmp_path / "late.pdf").write_bytes(
        b"mail header\r\n" * 70 + (tmp_path / "plain.pdf").read_bytes()
    )
    assert PdfiumLoader().load(tmp_path / "late.pdf", "late.pdf").text == "secret"
    assert PdfLoader(profile="fast").load(tmp_path / "late.pdf", "late.pdf").text == "secret"


@pytest.mark.integration
def test_its_children_never_hold_mupdf(facts):
    try:
        assert (
            isolation.load_isolated(DATASHEET, PdfiumLoader(), Limits(pdf_window_pages=1)) == facts
        )
        assert (
            isolation.verify_in_child(DATASHEET, "pdfium", {}, facts.text, facts.blocks, Limits())
            == {}
        )
        # other tests may have left others
        children = [child for child in child_pool.pool().all if child.engine == "pdfium"]
        assert children
        for child in children:
            assert "mupdf" not in Path(f"/proc/{child.process.pid}/maps").read_text()
    finally:
        child_pool.pool().close()
    script = (
        "import sys, rag_platform.loaders.pdf.pdfium, rag_platform.intake.isolation;"
        " sys.exit('pymupdf' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_words_of_a_page_have_the_places_where_they_are_printed(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        page = document.new_page(width=200, height=300)
        page.insert_text((72, 200), "Slide one", fontsize=20)
        document.save(tmp_path / "slide.pdf")
    with open_pdf(tmp_path / "slide.pdf") as document:
        words = read_words(document, 1)
    assert [word.text for word in words] == ["Slide", "one"]
    assert 70 < words[0].box[0] < 76 and 175 < words[0].box[1] < 200 < words[0].box[3] < 210


def test_letters_without_a_meaning_are_told_and_those_of_two_halves_are_one(tmp_path: Path) -> None:
    line = [(text, 72.0 + 8 * at, 8.0) for at, text in enumerate("86𝜇Jy")]
    known = write_glyphs(tmp_path / "known.pdf", line, simple=True)
    assert PdfiumLoader().load(known, "known.pdf").text == "86𝜇Jy"
    with pymupdf.open(write_glyphs(tmp_path / "wide.pdf", line)) as document:
        for xref in range(1, document.xref_length()):
            document.xref_set_key(xref, "ToUnicode", "null")
        document.save(tmp_path / "unknown.pdf")
    facts = PdfiumLoader().load(tmp_path / "unknown.pdf", "unknown.pdf")
    assert facts.text == "\ufffd" * 5
    assert any("no meaning" in note for note in facts.summary.warnings)


@pytest.mark.parametrize("turn", [90, 270])
def test_words_of_text_that_runs_up_or_down_the_page_are_whole(tmp_path: Path, turn: int):
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((200, 400), "Stock on hand", fontsize=11, rotate=turn)
        document.save(tmp_path / "turned.pdf")
    facts = PdfiumLoader().load(tmp_path / "turned.pdf", "turned.pdf")
    assert facts.text.removeprefix("# ") == "Stock on hand"
