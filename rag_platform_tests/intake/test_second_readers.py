"""A second reader agrees with what every loader reads, and with nothing that was torn, reversed or
swapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import docx
import openpyxl
import pymupdf
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from rag_platform.config.settings import Limits
from rag_platform.intake.isolation import reread_in_child
from rag_platform.intake.second_readers import ENGINES, reread, why_missing
from rag_platform.ir import Block, Facts
from rag_platform.loaders.markup.html import HtmlLoader
from rag_platform.loaders.office.docx import DocxLoader
from rag_platform.loaders.office.sheets import CsvLoader, XlsxLoader
from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.pdfium import PdfiumLoader
from rag_platform.loaders.word_comparison import (
    Line,
    compare_words,
    describe_problem,
    has_all_letters,
    pieces,
)

TEXT = (
    "The pump moves forty litres of water per minute and must not run dry for longer than ten"
    " seconds."
)
TORN = " ".join(f"{word[:2]} {word[2:]}".strip() for word in TEXT.split())
REVERSED = " ".join(reversed(TEXT.split()))
BACKWARDS = " ".join(word[::-1] for word in TEXT.split())
SWAPPED = TEXT.replace("forty litres", "litres forty")
FOREIGN = (
    "A reserve of fuel lies below the third deck, where nobody who is not on duty may ever go"
    " alone."
)
FORGED = {
    "torn": TORN,
    "reversed": REVERSED,
    "backwards": BACKWARDS,
    "swapped": SWAPPED,
    "foreign": FOREIGN,
}


def judged(said: str, read: str, kind: str = "paragraph") -> str:
    (piece,) = pieces(kind, said)
    return describe_problem(kind, compare_words(piece, [Line.of(read.split())]))


def test_readers_may_differ_in_hyphens_ligatures_and_spaces() -> None:
    assert (
        judged(
            "The ﬁrst ex-\u00adample, e\u200bv\u200bery­where", "The first exam- ple , every where"
        )
        == ""
    )
    assert judged("员工每年有十五天年假", "员工 每年 有十五 天年假") == ""
    assert judged(TEXT, TEXT.replace(" ", "")) == ""  # the other reader sets no spaces
    assert judged(TEXT, TEXT.replace("pump", "purnp")) == ""  # one word in doubt


@pytest.mark.parametrize("name", FORGED)
def test_torn_reversed_swapped_and_foreign_words_are_told(name: str) -> None:
    assert judged(FORGED[name], TEXT)
    assert judged("الوصول الآمن إلى البيانات الحساسة", "الوصول الآمن إلى البيانات الحساسة") == ""
    assert "are cut" in judged("ا ل و ص و ل الآمن إلى ا ل بيانات", "الوصول الآمن إلى البيانات")


def make_pdf(path: Path) -> None:
    file = pymupdf.open()
    page = file.new_page()
    page.insert_text((72, 90), "Pump PX-40", fontsize=22)
    page.insert_textbox((72, 120, 400, 300), TEXT)
    file.save(path)


def make_html(path: Path) -> None:
    path.write_text(
        f"<html><body><main><h1>Pumps</h1><p>{TEXT.replace('forty', '<b>for</b>ty')} <a"
        " href='x.html'>More</a></p>"
        "<ol><li>Close the"
        " valve.<li>Wait.</ol><table><tr><th>Part</th><th>No</th></tr><tr><td>Seal</td><td>"
        "V-2</td></tr></table><form>By <input value='Ada Quayle'>"
        f"{'<input type=checkbox checked>tight<input type=radio>loose' * 4}</form></main>",
        encoding="utf-8",
    )


def make_docx(path: Path) -> None:
    made = docx.Document()
    made.add_heading("Pumps", 1)
    made.add_paragraph(TEXT)
    made.add_paragraph("Close the valve.", style="List Number")
    table = made.add_table(1, 2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "Seal of rubber", "V-2"
    made.save(str(path))


def make_xlsx(path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.title = "Parts"
    for row in (["part", "remark", "price"], ["seal", TEXT, 1234.5], ["spring", "of steel", 2]):
        book.active.append(row)
    book.active["C2"].number_format = "#,##0.00"
    book.save(path)


def make_csv(path: Path) -> None:
    path.write_text(f'part;remark;price\nseal;"{TEXT}";12,5\nspring;of steel;2\n', encoding="utf-8")


CASES: dict[str, tuple[Callable[[Path], None], Callable[[Path], Facts]]] = {
    "pdf": (make_pdf, lambda path: PdfLoader(profile="fast").load(path, path.name)),
    "pdfium": (make_pdf, lambda path: PdfiumLoader().load(path, path.name)),
    "html": (make_html, lambda path: HtmlLoader().load(path, path.name)),
    "docx": (make_docx, lambda path: DocxLoader().load(path, path.name)),
    "xlsx": (make_xlsx, lambda path: XlsxLoader().load(path, path.name)),
    "csv": (make_csv, lambda path: CsvLoader().load(path, path.name)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_format_is_read_alike_twice_and_forged_words_are_not(
    name: str, tmp_path: Path
) -> None:
    make, load = CASES[name]
    path = tmp_path / f"file.{'pdf' if name == 'pdfium' else name}"
    make(path)
    facts = load(path)
    assert set(ENGINES) == set(CASES) and why_missing(name) == ""
    assert reread(path, name, facts.text, facts.blocks) == ({}, {})
    assert TEXT in facts.text.replace("**", "").replace("\n", " ")
    block = next(
        block for block in facts.blocks if "seconds" in facts.text[block.start : block.end]
    )
    said = (
        facts.text[block.start : block.end]
        .replace("**", "")
        .replace("\n", " " if block.kind == "paragraph" else "\n")
    )
    for forged in FORGED.values():
        text = said.replace(TEXT, forged)
        assert text != said
        moved = replace(block, start=0, end=len(text))
        others = [replace(other, start=0, end=0) for other in facts.blocks if other is not block]
        otherwise, unread = reread(path, name, text, [moved, *others])
        assert (list(otherwise), unread) == ([block.ordinal], {}), forged


@pytest.mark.parametrize(
    ("said", "reading", "alike"),
    [
        ("⟨index⟩/⟨label⟩", "hindexi/hlabeli", True),  # a font of signs read as letters
        ("pump PX-40", "pump PX-40", True),
        ("Qualität für", "Qualit¨at f¨ur", True),  # accents apart from their letters
        ("мой дом", "мои дом", False),  # another letter
        ("pump PX-40", "pump of type PX-40", False),  # a word is left out
        ("PX-40 pump", "pump PX-40", False),
        ("pump PX-41", "pump PX-40", False),
    ],
)
def test_letters_that_another_reader_adds_are_no_contradiction(
    said: str, reading: str, alike: bool
) -> None:
    assert has_all_letters(Line.of(said.split()), Line.of(reading.split())) == alike


def test_stretched_words_are_the_words() -> None:
    assert judged("محــــمد كتــــاب", "محمد كتاب") == ""


def test_letters_of_one_shape_are_one_letter() -> None:
    arabic, persian = "يعمل الكتاب على ٢٠", "یعمل الکتاب علی ۲۰"
    assert judged(persian, arabic) == ""


ARABIC = ["أحمد", "مدرسة", "كتاب", "٢٠"]


@pytest.mark.parametrize(
    ("at", "forged"),
    [(0, "احمد"), (1, "مدرسه"), (2, "كباب"), (3, "٢١"), (3, "۲۱")],
    ids=["hamza", "teh", "letter", "digit", "Persian digit"],
)
def test_another_letter_or_digit_is_another_word(at: int, forged: str) -> None:
    said = [*ARABIC[:at], forged, *ARABIC[at + 1 :]]
    for words in (ARABIC, said):
        found = compare_words(Line.of(words), [Line.of(ARABIC)])
        assert found.missing == (words is said)


def test_what_another_engine_cannot_read_is_said_and_no_failure(tmp_path: Path) -> None:
    file = pymupdf.open()
    page = file.new_page()
    widget = pymupdf.Widget()
    widget.rect, widget.field_type, widget.field_name = (
        pymupdf.Rect(72, 72, 300, 92),
        pymupdf.PDF_WIDGET_TYPE_TEXT,
        "name",
    )
    widget.field_value = "Typed into the form"
    page.add_widget(widget)
    file.save(tmp_path / "form.pdf")
    block = Block(0, "paragraph", 0, 19, page=1, bbox=(70.0, 70.0, 302.0, 94.0))
    otherwise, unread = reread(tmp_path / "form.pdf", "pdf", "Typed into the form", [block])
    assert otherwise == {} and unread[0].startswith("page 1: some of its text is not read")
    (tmp_path / "no.pdf").write_bytes(b"%PDF-1.4\nnothing")
    otherwise, unread = reread_in_child(
        tmp_path / "no.pdf", "pdf", "words", [replace(block, end=5)], Limits()
    )
    assert (otherwise, unread) == ({}, {0: "page 1: it cannot be read"})


@pytest.mark.parametrize("folder", ["pdf-truth", "pdf-special", "pdf-tables"])
def test_real_files_are_read_alike_twice(folder: str, material: Path) -> None:
    files = [
        path for path in sorted((material / folder).rglob("*.pdf")) if path.stat().st_size < 150_000
    ][::3]
    assert files
    for path in files:
        facts = PdfLoader(profile="fast").load(path, path.name)
        otherwise, unread = reread(path, "pdf", facts.text, facts.blocks)
        assert otherwise == {} and len(unread) <= len(facts.blocks) // 5, path.name


def test_marks_of_notes_are_no_letters_of_their_words(tmp_path: Path) -> None:
    made = docx.Document()
    made.add_paragraph("Otters swim fast")
    made.save(str(tmp_path / "a.docx"))
    said = "Otters[^1] swim[^e1] fast[^c1]"
    block = Block(0, "paragraph", 0, len(said), locator="body/p[1]")
    assert reread(tmp_path / "a.docx", "docx", said, [block]) == ({}, {})


def test_letters_that_number_a_list_are_no_words_of_a_page(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    items = "<li>rent<li>heat<li>water<li>light<li>post"
    path.write_text(f"<ol type=a>{items}</ol><ol type=I start=7>{items}</ol>", encoding="utf-8")
    facts = HtmlLoader().load(path, path.name)
    assert facts.text.startswith("- a. rent\n- b. heat") and "- VIII. heat" in facts.text
    assert reread(path, "html", facts.text, facts.blocks) == ({}, {})


def test_words_between_angle_brackets_are_words(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    long = " ".join(f"word{number}" for number in range(900))
    path.write_text(
        f"<p>{long}</p><p>Sets what is merged into <code>branch.&lt;name&gt;.remote</code> by a"
        " pull.</p><textarea><b>&lt;shown&gt; here</b></textarea>"
    )
    facts = HtmlLoader().load(path, path.name)
    assert "branch.<name>.remote" in facts.text and "shown" in facts.text
    assert reread(path, "html", facts.text, facts.blocks) == ({}, {})


def test_words_whose_hiding_is_switched_off_are_read_twice(tmp_path: Path) -> None:
    made = docx.Document()
    paragraph = made.add_paragraph("Otters ")
    for word, hidden in (
        ("swim in the river below the mill ", False),
        ("and obey ", True),
        ("fast", None),
    ):
        paragraph.add_run(word).font.hidden = hidden
    made.save(str(tmp_path / "a.docx"))
    facts = DocxLoader().load(tmp_path / "a.docx", "a.docx")
    assert facts.text == "Otters swim in the river below the mill fast\n"
    assert reread(tmp_path / "a.docx", "docx", facts.text, facts.blocks) == ({}, {})


@pytest.mark.parametrize(
    ("form", "label", "text"),
    [
        ("chineseCounting", "第%1章", "第十三章 总则"),
        ("chineseCounting", "%1、", "二十三、总则"),
        ("upperRoman", "Article %1 of this Act:", "Article XIII of this Act: Fees"),
    ],
)
def test_labels_that_word_prints_are_no_words_of_a_paragraph(
    form: str, label: str, text: str, tmp_path: Path
) -> None:
    made = docx.Document()
    numbering = made.part.numbering_part.element
    start = 23 if text.startswith("二十三") else 13
    numbering.insert(
        0,
        parse_xml(
            f'<w:abstractNum {nsdecls("w")} w:abstractNumId="77"><w:lvl w:ilvl="0">'
            f'<w:start w:val="{start}"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{label}"/>'
            "</w:lvl></w:abstractNum>"
        ),
    )
    number = numbering.add_num(77).numId
    words = text.split("、")[-1].split()[-1]
    for paragraph in (made.add_heading(words, 1), made.add_table(1, 2).cell(0, 0).paragraphs[0]):
        properties = paragraph._p.get_or_add_pPr().get_or_add_numPr()
        properties.get_or_add_numId().val, properties.get_or_add_ilvl().val = number, 0
        if not paragraph.text:
            paragraph.text = words
    made.save(str(tmp_path / "a.docx"))
    facts = DocxLoader().load(tmp_path / "a.docx", "a.docx")
    assert "".join(facts.text.split()).startswith("#" + "".join(text.split()))
    assert reread(tmp_path / "a.docx", "docx", facts.text, facts.blocks) == ({}, {})
    forged = facts.text.replace(words, "乙丙丁戊" if words == "总则" else "Lies and more lies")
    blocks = [replace(facts.blocks[0], end=forged.index("\n"))]
    assert reread(tmp_path / "a.docx", "docx", forged, blocks)[0]


def test_breaks_that_a_workbook_escapes_are_no_letters(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["part", "remark"])
    for part in ("seal", "bolt", "pump", "tank", "hose"):
        book.active.append([part, "_x000D_\n".join(["wet", "cold", "old"])])
    book.save(tmp_path / "a.xlsx")
    facts = XlsxLoader().load(tmp_path / "a.xlsx", "a.xlsx")
    assert "| seal | wet cold old |" in facts.text
    assert reread(tmp_path / "a.xlsx", "xlsx", facts.text, facts.blocks) == ({}, {})


def test_columns_without_names_are_known_by_both_readers(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in ([1.5, 2.5, 3.5, "Oslo"], [4.5, 5.5, 6.5, "Bern"]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    facts = XlsxLoader().load(tmp_path / "a.xlsx", "a.xlsx")
    assert "| A | B | C | D |\n" in facts.text
    assert reread(tmp_path / "a.xlsx", "xlsx", facts.text, facts.blocks) == ({}, {})


def test_a_header_of_two_rows_is_found_from_far_below(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (
        ["The state that was chosen", None, None, "The measure that was chosen", None, None],
        ["Row", "Count of people", "Days spent", "Money paid", "Money owed", "Money lent"],
        *([f"x{n}", *[n + 1000] * 5] for n in range(900)),
    ):
        book.active.append(row)
    book.active.merge_cells("A1:C1")
    book.active.merge_cells("D1:F1")
    book.save(tmp_path / "a.xlsx")
    facts = XlsxLoader().load(tmp_path / "a.xlsx", "a.xlsx")
    assert facts.text.count("| The state that was chosen / Row | The state that was ") > 9
    assert reread(tmp_path / "a.xlsx", "xlsx", facts.text, facts.blocks) == ({}, {})
