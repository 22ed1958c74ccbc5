"""Paragraphs found without a layout model."""

from __future__ import annotations

from pathlib import Path

import pymupdf

from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.plain_regions import plain_regions
from rag_platform.loaders.pdf.printed.runs import Char, Run

SAMPLE = Path(__file__).resolve().parents[3] / "rag_platform" / "samples" / "datasheet.pdf"


def test_chinese_lines_with_wide_leading_are_one_paragraph_without_spaces() -> None:
    facts = PdfLoader(profile="fast").load(SAMPLE, "datasheet.pdf")
    paragraphs = [
        facts.text[b.start : b.end] for b in facts.blocks if b.page == 4 and b.kind == "paragraph"
    ]
    assert [(text[:5], text[-6:]) for text in paragraphs] == [
        ("PX-40", "不需要拨码。"),
        ("安装冷库套", "得小于两度。"),
    ]
    assert "35 千克的包裹。每个模块" in paragraphs[0]
    assert PdfLoader().verify_blocks(SAMPLE, facts.text, facts.blocks) == {}


def test_short_lines_below_each_other_stay_apart(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        for number, line in enumerate(("12 Mill Road", "Northport", "AB1 2CD")):
            page.insert_text((72, 72 + 20 * number), line, fontsize=11)
        for number in range(3):
            page.insert_text(
                (72, 200 + 20 * number),
                "a full line of a paragraph that is set with a leading as wide as this",
                fontsize=11,
            )
        document.save(tmp_path / "address.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "address.pdf", "address.pdf")
    words = [len(facts.text[b.start : b.end].split()) for b in facts.blocks]
    assert words == [3, 1, 2, 3 * 16]


def test_a_typewritten_page_is_prose_but_for_its_code(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        typed = document.new_page()
        typed.insert_text(
            (72, 72),
            "This report was written on a machine with one width.",
            fontname="cour",
            fontsize=11,
        )
        typed.insert_text(
            (72, 140), "for (i = 0; i < 3; i++) { x[i] = 1; }", fontname="cour", fontsize=11
        )
        printed = document.new_page()
        printed.insert_textbox(
            (72, 72, 500, 200),
            "A page in a printed face with a command below it. " * 4,
            fontsize=11,
        )
        printed.insert_text((72, 300), "pip install something", fontname="cour", fontsize=11)
        document.save(tmp_path / "typed.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "typed.pdf", "typed.pdf")
    assert [(block.page, block.kind) for block in facts.blocks] == [
        (1, "paragraph"),
        (1, "code"),
        (2, "paragraph"),
        (2, "code"),
    ]


def test_lines_without_height_are_regions_too() -> None:
    runs = [
        Run(
            tuple(
                Char(char, 72 + 9 * at, y, 81 + 9 * at, y)
                for at, char in enumerate("A line of a broken font")
            ),
            block,
            9.0,
            False,
            False,
            True,
        )
        for block, y in enumerate((100.0, 110.0, 120.0))
    ]
    assert [region.label for region in plain_regions(runs)] == ["text"] * 3


def test_a_large_letter_is_part_of_the_paragraph_that_it_begins(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 100), "O", fontsize=40)
        for number, (x, line) in enumerate(
            [(106, "nce upon a time there was"), (106, "a king who ruled over a"), (72, "country.")]
        ):
            page.insert_text((x, 84 + 14 * number), line, fontsize=11)
        document.save(tmp_path / "tale.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "tale.pdf", "tale.pdf")
    assert facts.text == "Once upon a time there was a king who ruled over a country."
    assert facts.summary.title == facts.text
    assert PdfLoader().verify_blocks(tmp_path / "tale.pdf", facts.text, facts.blocks) == {}


def line(text: str, x: float, y: float, block: int = 0) -> Run:
    """A line of 12-point text whose characters are 6 points wide."""
    chars = tuple(Char(char, x + 6 * at, y, x + 6 * at + 6, y + 12) for at, char in enumerate(text))
    return Run(chars, block, 12, False, False, True)


PLEADING = (
    "The supplier delivers all parts of the pump and",
    "installs them before the end of the month of",
    "next quarter. The buyer pays within thirty days",
    "of the invoice and tells the other side of all",
    "faults in writing and without any delay.",
)


def test_the_numbers_of_lines_stand_apart_from_lines_far_from_each_other() -> None:
    numbers = [line(str(at + 1), 60, 100 + 26 * at, at) for at in range(5)]
    texts = [line(text, 90, 100 + 26 * at, at) for at, text in enumerate(PLEADING)]
    mixed = [run for pair in zip(numbers, texts, strict=True) for run in pair]
    assert [(region.bbox, region.label) for region in plain_regions(mixed)] == [
        ((90, 100, 372, 216), "text"),
        ((60, 100, 66, 216), "page-footer"),
    ]


def test_the_numbers_of_the_rows_of_a_table_are_its_own() -> None:
    rows = ("valve", "gasket", "bearing", "spindle", "pump")
    cells = [
        line(text, x, 100 + 26 * at, at)
        for at, row in enumerate(rows)
        for text, x in ((row, 90), (str(at + 1), 300))
    ]
    assert "page-footer" not in {region.label for region in plain_regions(cells)}


def test_an_article_of_a_contract_begins_a_paragraph() -> None:
    texts = ("第一条 密码长度不得少于十二位，九十天更换一次。", "第二条 账号不得转借他人使用，")
    runs = [line(text, 90, 100 + 16 * at) for at, text in enumerate(texts)]
    assert len(plain_regions(runs)) == 2
    assert (
        len(
            plain_regions(
                [line("员工应当遵守本办法的规定，并且同时遵守公司章程的", 90, 84), runs[1]]
            )
        )
        == 1
    )
