"""Lines printed across others tear no text, and are whole themselves."""

from __future__ import annotations

import math
from pathlib import Path

import pymupdf
import pytest

from rag_platform.intake.second_readers import reread
from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.pdfium import PdfiumLoader
from rag_platform.loaders.pdf.printed.runs import Char, Run
from rag_platform.loaders.pdf.regions import find_watermarks

LINES = [f"Line {number} of the report says something of its own." for number in range(24)]


def drawn(path: Path, mark: str, size: int, degrees: int, pages: int = 1) -> Path:
    """A page of lines with a mark across them."""
    turn = pymupdf.Matrix(degrees)
    with pymupdf.open() as document:
        for _ in range(pages):
            page = document.new_page()
            reach = len(mark) * size / 4
            point = pymupdf.Point(
                300 - reach * math.cos(math.radians(degrees)),
                280 + reach * math.sin(math.radians(degrees)),
            )
            page.insert_text(point, mark, fontsize=size, color=(0.8,) * 3, morph=(point, turn))
            for number, line in enumerate(LINES):
                page.insert_text((72, 90 + 15 * number), line, fontsize=11)
        document.save(path / "marked.pdf")
    return path / "marked.pdf"


@pytest.mark.parametrize("profile", ["fast", "layout"])
@pytest.mark.parametrize(
    ("mark", "size", "degrees"),
    [("CONFIDENTIAL", 70, 45), ("DRAFT", 110, 0), ("Licensed to one reader", 14, 30)],
)
def test_a_watermark_tears_no_line_and_is_not_torn(
    tmp_path: Path, mark: str, size: int, degrees: int, profile: str
) -> None:
    path = drawn(tmp_path, mark, size, degrees)
    loader = PdfLoader(profile=profile)
    facts = loader.load(path, "marked.pdf")
    texts = [facts.text[block.start : block.end] for block in facts.blocks]
    assert [" ".join(text.split()) for text in texts if text != mark] == [" ".join(LINES)]
    assert mark in texts
    assert loader.verify_blocks(path, facts.text, facts.blocks) == {}
    assert reread(path, "pdf", facts.text, facts.blocks) == ({}, {})


def test_pdfium_reads_lines_below_a_watermark_whole(tmp_path: Path) -> None:
    path = drawn(tmp_path, "CONFIDENTIAL", 70, 45)
    facts = PdfiumLoader().load(path, "marked.pdf")
    assert facts.text.split("\n\n") == [" ".join(LINES), "CONFIDENTIAL"]
    assert PdfiumLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    assert reread(path, "pdfium", facts.text, facts.blocks) == ({}, {})


def test_large_letters_beside_others_stand_where_they_are_printed(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 100), "Large", fontsize=40)
        page.insert_text((72, 130), "Small print below it", fontsize=10)
        document.save(tmp_path / "large.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "large.pdf", "large.pdf")
    assert facts.text == "# Large\n\nSmall print below it"


def test_a_page_of_many_slanted_lines_is_no_page_of_watermarks() -> None:
    level = Run(
        tuple(Char("a", x, 100, x + 6, 110) for x in range(0, 600, 6)), 0, 10.0, False, False, True
    )
    slanted = [
        Run(
            tuple(Char("b", x + 9 * i, 90 + 9 * i, x + 9 * i + 6, 100 + 9 * i) for i in range(4)),
            number,
            10.0,
            False,
            False,
            False,
        )
        for number, x in enumerate(range(0, 500, 2))
    ]
    assert find_watermarks([level, *slanted[:3]]) == slanted[:3]
    assert find_watermarks([level, *slanted]) == []
