"""Chinese and Japanese in columns: read downwards from the right, and the page is named."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.printed.characters import clean_char

COLUMNS = (
    "国境の長いトンネルを抜けると雪国であった。",
    "夜の底が白くなった。信号所に汽車が止まった。",
    "向側の座席から娘が立って来て、窓を落した。",
)

CONTRACT = (
    "春の契約書",
    "本契約は署名の日から三年間有効とする。期間満了の前に通知する。",
    "第二条では費用の負担を定める。甲は乙に二百万円を支払う。",
)


def signs_one_by_one(page: pymupdf.Page, columns: list[tuple[int, str]]) -> None:
    for number, text in columns:
        for row, sign in enumerate(text):
            page.insert_text(
                (480 - 28 * number, 100 + 15 * row), sign, fontsize=14, fontname="japan"
            )


def in_a_vertical_font(
    page: pymupdf.Page, columns: list[tuple[int, str]], step: int = 28, first: int = 14
) -> None:
    """The columns `step` points apart, the first in a size of its own."""
    page.insert_text((10, 10), "x", fontname="japan")
    page.parent.xref_set_key(page.get_fonts()[0][0], "Encoding", "/UniJIS-UTF16-V")
    shown = [
        f"BT /japan {14 if number else first} Tf 1 0 0 1 {480 - step * number} 740 Tm"
        f" <{text.encode('utf-16-be').hex()}> Tj ET"
        for number, text in columns
    ]
    page.parent.update_stream(page.get_contents()[0], " ".join(shown).encode())


@pytest.mark.parametrize("profile", ["layout", "fast"])
@pytest.mark.parametrize("write", [signs_one_by_one, in_a_vertical_font])
def test_columns_are_read_downwards_from_the_right_in_whichever_order_they_are_stored(
    tmp_path: Path, write, profile
):
    path = tmp_path / "x.pdf"
    for columns in (list(enumerate(COLUMNS)), list(enumerate(COLUMNS))[::-1]):
        with pymupdf.open() as document:
            write(document.new_page(), columns)
            document.save(path)
        facts = PdfLoader(profile=profile).load(path, "x.pdf")
        assert "".join(facts.text.split()) == "".join(COLUMNS)
        assert [
            note
            for note in facts.summary.warnings
            if note.startswith("page 1: its text is set in columns")
        ]
        assert PdfLoader().verify_blocks(path, facts.text, facts.blocks) == {}


def test_a_heading_beside_columns_makes_no_table_of_them(tmp_path: Path):
    path = tmp_path / "x.pdf"
    with pymupdf.open() as document:
        in_a_vertical_font(document.new_page(), list(enumerate(CONTRACT)), step=36, first=24)
        document.save(path)
    facts = PdfLoader().load(path, "x.pdf")
    assert "table" not in {block.kind for block in facts.blocks}
    assert "".join(facts.text.split()) == "".join(CONTRACT)


def test_marks_of_vertical_text_are_those_that_one_types():
    assert "".join(map(clean_char, "︒︐︑﹁︵︙")) == "。，、「（…"


def test_level_text_and_short_piles_of_signs_are_no_columns(tmp_path: Path):
    path = tmp_path / "x.pdf"
    with pymupdf.open() as document:
        page = document.new_page()
        for row, text in enumerate(
            ("国境の長いトンネルを抜けると", "雪国であった。夜の底が", "白くなった。信号所に")
        ):
            page.insert_text((72, 100 + 20 * row), text, fontsize=14, fontname="japan")
        for row, sign in enumerate("一二三"):
            page.insert_text((72, 200 + 15 * row), sign, fontsize=14, fontname="japan")
        document.save(path)
    facts = PdfLoader(profile="fast").load(path, "x.pdf")
    assert facts.text.startswith("国境の長いトンネルを抜けると") and facts.summary.warnings == ()
