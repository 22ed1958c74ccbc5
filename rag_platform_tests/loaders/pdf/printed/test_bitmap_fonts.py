"""Bitmap fonts, as TeX embeds them where it has no outlines."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.pdfium import PdfiumLoader
from rag_platform.loaders.pdf.printed.bitmap_fonts import correct_dot_fonts


def write_bitmap_font(
    path: Path, lines: list[bytes], narrow: int, wide: int, *, in_dots: bool = False
) -> Path:
    """A page in a Type 3 font without Unicode; i and l are `narrow`, all else is `wide`, and | is
    taller than two lines.

    `in_dots` measures the font in dots of a printer and names each glyph by its character.
    """
    unit, size, leading = (1, 0.24, 24) if in_dots else (0.01, 10, 12)
    codes = sorted(set(b"".join(lines)))
    with pymupdf.open() as document:
        page = document.new_page()
        procedures, font, content = (document.get_new_xref() for _ in range(3))
        drawn = []
        for code in codes:
            width = narrow if chr(code) in "il" else wide
            drawn.append(document.get_new_xref())
            document.update_object(drawn[-1], "<<>>")
            box = b"0 0 40 %d" % (250 if chr(code) == "|" else 70)
            document.update_stream(drawn[-1], b"%d 0 %b d1 %b re f" % (width, box, box))
        glyphs = {code: f"/{chr(code) if in_dots else f'a{code}'}" for code in codes}
        named = " ".join(
            f"{glyphs[code]} {xref} 0 R" for code, xref in zip(codes, drawn, strict=True)
        )
        document.update_object(procedures, f"<<{named}>>")
        names = " ".join(f"{code}{glyphs[code]}" for code in codes)
        each = " ".join(str(narrow if chr(code) in "il" else wide) for code in range(256))
        document.update_object(
            font,
            f"<</Type/Font/Subtype/Type3/Name/F25/FontBBox[0 0 100 100]"
            f"/FontMatrix[{unit} 0 0 {unit} 0 0]/CharProcs {procedures} 0 R"
            f"/Encoding<</Type/Encoding/Differences[{names}]>>"
            f"/FirstChar 0/LastChar 255/Widths[{each}]>>",
        )
        shown = " T* ".join(f"<{line.hex()}> Tj" for line in lines)
        document.update_object(content, "<<>>")
        document.update_stream(
            content, f"BT /F25 {size} Tf {leading} TL 72 700 Td {shown} ET".encode()
        )
        document.xref_set_key(page.xref, "Contents", f"{content} 0 R")
        document.xref_set_key(page.xref, "Resources", f"<</Font<</F25 {font} 0 R>>>>")
        document.save(path)
    return path


def test_ligatures_quotes_and_dashes_of_a_bitmap_font_are_read(tmp_path: Path) -> None:
    line = b"The \x1crst \x10o\x1ecial\x11 e\x1bect\x15with an o\x1fine in\x1duence."
    path = write_bitmap_font(tmp_path / "paper.pdf", [line], 30, 60)
    facts = PdfLoader(profile="fast").load(path, "paper.pdf")
    assert facts.text == "The first “official” effect–with an offline influence."
    assert PdfLoader(profile="fast").verify_blocks(path, facts.text, facts.blocks) == {}


def test_bullets_of_a_bitmap_font_of_symbols_are_read(tmp_path: Path) -> None:
    path = write_bitmap_font(tmp_path / "list.pdf", [b"\x88 1.", b"\x88 2."], 30, 60)
    assert PdfLoader(profile="fast").load(path, "list.pdf").text == "- 1.\n- 2."
    # PDFium does not know what other codes of this font mean
    assert (
        PdfiumLoader().load(path, "list.pdf").text == "- \ufffd\ufffd\ufffd\n- \ufffd\ufffd\ufffd"
    )


def test_a_letter_of_another_bitmap_font_is_no_bullet(tmp_path: Path) -> None:
    path = write_bitmap_font(tmp_path / "other.pdf", [b"\x88 \xe0\xe1\x88"], 30, 60)
    assert PdfLoader(profile="fast").load(path, "other.pdf").text == "àá"


def test_another_encoding_stays_as_it_is(tmp_path: Path) -> None:
    path = write_bitmap_font(tmp_path / "old.pdf", [b"Other \x0c words \x10 here"], 30, 60)
    assert PdfLoader(profile="fast").load(path, "old.pdf").text == "Other words here"


def test_a_bitmap_font_whose_letters_are_equally_wide_is_code(tmp_path: Path) -> None:
    lines = [b"while (low) {", b"    mail = 1"]
    for widths, kind in (((60, 60), "code"), ((30, 60), "paragraph")):
        path = write_bitmap_font(tmp_path / "code.pdf", lines, *widths)
        assert [b.kind for b in PdfLoader(profile="fast").load(path, "c.pdf").blocks] == [kind]


def test_an_outline_font_whose_letters_are_equally_wide_is_code_whatever_its_name(
    tmp_path: Path,
) -> None:
    for narrow, kind in ((600, "code"), (250, "paragraph")):
        with pymupdf.open() as document:
            page = document.new_page()
            page.insert_text((72, 72), "while (low) {", fontname="helv", fontsize=10)
            page.insert_text((72, 84), "    mail = 1", fontname="helv", fontsize=10)
            font = page.get_fonts()[0][0]
            widths = [narrow if chr(code) in "fijlrt" else 600 for code in range(32, 127)]
            for key, value in (
                ("BaseFont", "/ABCDEF+Iosevka"),
                ("FirstChar", "32"),
                ("LastChar", "126"),
                ("Widths", f"[{' '.join(map(str, widths))}]"),
            ):
                document.xref_set_key(font, key, value)
            document.save(tmp_path / "a.pdf")
        facts = PdfLoader(profile="fast").load(tmp_path / "a.pdf", "a.pdf")
        assert {block.kind for block in facts.blocks} == {kind}


@pytest.mark.parametrize(
    ("font", "lines", "text"),
    [
        (
            "china-s",
            (
                "各部门应当在六月三十日前完成 metadata 登记，并将本部门已有的 finance 数据与",
                "结果提交给 Data Office 审核，审核的期限为五个工作日。",
            ),
            "finance 数据与结果提交给 Data Office",
        ),
        (
            "korea",
            (
                "모든 부서는 유월 말까지 metadata 등록을 마치고 부서의 finance 자료와 그 결과를",
                "Data Office 심사에 제출해야 하며, 심사 기간은 닷새이다.",
            ),
            "그 결과를 Data Office 심사에",
        ),
    ],
)
def test_a_font_of_chinese_or_korean_with_letters_of_one_width_is_not_one_of_code(
    tmp_path: Path, font: str, lines: tuple[str, str], text: str
) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        for number, line in enumerate(lines):
            page.insert_text((60, 80 + 16 * number), line, fontname=font, fontsize=10)
        document.save(tmp_path / "a.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "a.pdf", "a.pdf")
    assert [block.kind for block in facts.blocks] == ["paragraph"]
    assert text in facts.text


def test_a_font_measured_in_dots_is_read_with_its_digits(tmp_path: Path) -> None:
    path = write_bitmap_font(tmp_path / "dots.pdf", [b"updated", b"1998"], 30, 60, in_dots=True)
    facts = PdfLoader(profile="fast").load(path, "dots.pdf")
    assert facts.text == "updated\n\n1998"
    assert facts.summary.hidden == ()
    # PDFium does not know the letters, but keeps them together
    assert PdfiumLoader().load(path, "dots.pdf").text == 7 * "\ufffd" + " " + 4 * "\ufffd"


def test_a_tall_glyph_does_not_make_a_font_of_true_size_larger(tmp_path: Path) -> None:
    path = write_bitmap_font(tmp_path / "tall.pdf", [b"updated", b"|"], 30, 60)
    with pymupdf.open(path) as document:
        flags = pymupdf.TEXT_ACCURATE_BBOXES
        blocks = document[0].get_text("rawdict", flags=flags)["blocks"]
        correct_dot_fonts(document[0], blocks)
    spans = [span for block in blocks for line in block["lines"] for span in line["spans"]]
    assert {span["size"] for span in spans} == {10.0}
