"""Paragraphs found without a layout model."""

from __future__ import annotations

from pathlib import Path

import pymupdf

from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.plain_regions import plain_regions
from rag_platform.loaders.pdf.printed.runs import Char, Run
from rag_platform.loaders.pdf.regions import assign_runs

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


def read_regions(*runs: Run) -> list[str]:
    """The text of each region of a page."""
    pieces = assign_runs(runs, [region.bbox for region in plain_regions(runs)])[0]
    return [" ".join(run.text for run in piece) for piece in pieces]


def test_the_page_number_far_from_the_words_of_a_header_is_a_region_of_its_own() -> None:
    assert read_regions(
        line("Pump manual", 72, 40, 1),
        line("11 / 40", 400, 40, 1),
        line("Pressure at hall 3 in bar", 72, 100, 2),
        line("17", 400, 100, 2),
        line("Pressure at hall 4 in bar", 72, 116, 3),
        line("19", 400, 116, 3),
    ) == [
        "Pump manual",
        "11 / 40",
        "Pressure at hall 3 in bar 17 Pressure at hall 4 in bar 19",
    ]


def test_the_axis_of_a_chart_and_a_numbered_equation_stay_whole() -> None:
    for first, second in (("1990", "2000"), ("a = b", "(21)")):
        pieces = (line(first, 72, 40, 1), line(second, 400, 40, 1))
        assert read_regions(*pieces, line("Text of the page", 72, 100, 2))[0] == f"{first} {second}"


def test_the_date_of_a_letter_is_no_entry_of_a_list() -> None:
    def label(text: str) -> str:
        return plain_regions([line(text, 72, 100)])[0].label

    assert [label(text) for text in ("16. Februar 2018", "3. März 2004", "2. Windows")] == [
        "text",
        "text",
        "list-item",
    ]


def test_a_bold_or_large_line_with_a_bullet_is_an_entry() -> None:
    def bold(text: str, x: float, y: float) -> Run:
        return line(text, x, y)._replace(bold=True)

    regions = plain_regions(
        [
            bold("Updates in version 2", 72, 100),
            bold("• Nodules that have been seen to grow", 82, 112),
            bold("are looked at twice a year.", 92, 124),
            bold("Medullary carcinoma", 72, 136),
            bold("• One treatment was added.", 82, 148),
            line("Text in the usual weight, which is the longest on this page.", 72, 200, 1),
        ]
    )
    assert [(region.label, region.bbox[1], region.bbox[3]) for region in regions] == [
        ("section-header", 100, 112),
        ("list-item", 112, 136),
        ("section-header", 136, 148),
        ("list-item", 148, 160),
        ("text", 200, 212),
    ]


def test_an_entry_goes_on_in_indented_lines() -> None:
    text = [
        ("Zeileis A. Structural change tests based on an esti-", 72),
        ("mation of scores of the linear regression models, V", 92),
        ("Hornik K. A tool set whose entry is as long as these", 72),
        ("Inference Framework for partitions of all kinds, V.", 92),
        ("- a configuration wizard that writes what the ma-", 82),
        ("chine in hall four needs.", 92),
        ("Contents of the second chapter with a page number 12", 72),
        ("of another chapter", 92),
        ("Description. What the part is for, in a text that fills", 72),
        ("more than two lines, the first of them with the name of", 92),
        ("the part and the others indented.", 92),
    ]
    runs = [line(words, x, 84 + 16 * at, at) for at, (words, x) in enumerate(text)]
    assert read_regions(*runs) == [
        f"{text[0][0]} {text[1][0]}",
        f"{text[2][0]} {text[3][0]}",
        f"{text[4][0]} {text[5][0]}",
        text[6][0],
        text[7][0],
        f"{text[8][0]} {text[9][0]} {text[10][0]}",
    ]


def test_an_entry_goes_on_in_each_of_its_lines() -> None:
    text = [
        ("• The terms of this contract apply to all deliveries to ho-", 72),
        ("tels, to schools, to hospitals and to the other buildings;", 82),
        ("and to the services that belong to them, as listed below.", 82),
        ("Text below the entry begins a paragraph of its own, which", 82),
        ("• 用户可以使用编辑器提供的按钮来编译，方式在下表中列出，也可以用", 72),
        ("“排版”按钮，它在编辑器的工具栏里，其差别在后面的章节里说明，可以参见", 77),
        ("第七节的表格。", 82),
    ]
    runs = [line(words, x, 84 + 16 * at, at) for at, (words, x) in enumerate(text)]
    said = [words for words, _ in text]
    assert read_regions(*runs) == [" ".join(said[:3]), said[3], " ".join(said[4:])]


def test_a_line_within_a_sentence_begins_no_entry() -> None:
    texts = (
        ("The first reports of the machine are in News 3 / 1990,", "S. 65. Others followed."),
        ("The hall of the new machine was opened by its owner on", "3. Mai with a speech."),
        ("The interval is found by means of parametric bootstraps", "– that is, by simulation."),
        ("The reports of the first year are in News 2 of the year 2016", "(28. Jg.), S. 27."),
        (
            "The machine was built, as is said in the old manual, by",
            "A. Meyer, who wrote the manual of the machine, and by",
            "B. Brown.",
        ),
    )
    for lines in texts:
        for step in (0, 1):  # all lines in one of the engine's blocks, or a block for each
            runs = [line(text, 72, 84 + 16 * at, step * at) for at, text in enumerate(lines)]
            assert read_regions(*runs) == [" ".join(lines)]


def test_an_entry_below_a_full_line_begins_with_its_number_or_dash() -> None:
    pairs = (
        ("the seller delivers all goods to the buyer on time; and", "B. the buyer pays them."),
        ("The machine is delivered with all that is listed below.", "1. Two keys of the door"),
        ("A. Two keys of the doors of all halls of the buyers", "B. Two keys of the gate"),
        ("Each machine is delivered to the hall of the buyers and", "• two keys of its door"),
        ("• Each machine is delivered to the hall of the buyer with", "– two keys of its door"),
        ("本公司向客户提供的各种产品和与此有关的全部服务包括下列内容以及其他", "1. 价格与期限"),
    )
    for above, below in pairs:
        left = 82 if below[0] == "–" else 72  # nested
        for block in (0, 1):
            runs = line(above, 72, 84, 0), line(below, left, 100, block)
            assert read_regions(*runs) == [above, below]


def test_an_underlined_word_does_not_cut_its_line(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        for number in range(3):
            y = 84 + 14 * number
            page.insert_text((72, y), "The steps are in", fontsize=11)
            x = 72 + pymupdf.get_text_length("The steps are in ", fontsize=11)
            page.insert_text((x, y), "chapter four", fontsize=11)
            end = x + pymupdf.get_text_length("chapter four", fontsize=11)
            page.draw_line((x, y + 1.5), (end, y + 1.5), width=0.6)
            page.insert_text((end, y), " of this manual.", fontsize=11)
        document.save(tmp_path / "links.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "links.pdf", "links.pdf")
    assert facts.text == " ".join(["The steps are in chapter four of this manual."] * 3)


def test_a_paragraph_goes_on_where_kana_are_set_smaller_than_latin_letters() -> None:
    # as in Japanese TeX, whose kana have 0.92 of the size; a block per line, as MuPDF cuts them
    def line(text: str, block: int, size: float) -> Run:
        top = 100.0 + 15 * block
        chars = (Char(c, 50 + at * 10, top, 60 + at * 10, top + 10) for at, c in enumerate(text))
        return Run(tuple(chars), block, size, False, False, True)

    first = "TEX のドキュメントは、次のコマンドで検索することができ、"
    second = "パッケージの名前を与えるとその説明を表示します。"
    for size, count in ((9.21, 1), (7.97, 2)):  # the smaller is that of a footnote
        found = plain_regions([line(first, 0, 9.96), line(second, 1, size)])
        assert len(found) == count


def test_code_at_the_end_of_a_sentence_stays_in_its_paragraph(tmp_path: Path) -> None:
    line = "The number of the bank that is locked is a value shown by"
    with pymupdf.open() as document:
        page = document.new_page()
        for top, end, below in ((72, "flash", "banks."), (200, "flash.", "banks -a")):
            page.insert_text((72, top), line, fontsize=11)
            right = 72 + pymupdf.get_text_length(f"{line} ", fontsize=11)
            page.insert_text((right, top), end, fontname="cour", fontsize=11)
            page.insert_text((72, top + 20), below, fontname="cour", fontsize=11)
        document.save(tmp_path / "manual.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "manual.pdf", "manual.pdf")
    assert [facts.text[block.start : block.end] for block in facts.blocks] == [
        f"{line} flash banks.",
        f"{line} flash.",
        "```\nbanks -a\n```",
    ]
