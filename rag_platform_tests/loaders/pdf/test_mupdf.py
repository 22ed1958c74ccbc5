"""PDF facts: structure, provable blocks, honest failures."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.errors import DocumentError
from rag_platform.intake.second_readers import reread
from rag_platform.loaders.pdf.assembly import PdfInfo, assemble
from rag_platform.loaders.pdf.mupdf import PdfLoader, describe, load_window
from rag_platform.loaders.pdf.opening import open_pdf
from rag_platform.loaders.pdf.pages import PageBlock, PageFacts, page_blocks
from rag_platform.loaders.pdf.printed.characters import read_runs
from rag_platform.loaders.pdf.printed.lines import flow_lines, line_text, list_text, visual_lines
from rag_platform.loaders.pdf.printed.runs import Char, Run
from rag_platform.loaders.pdf.regions import Region, assign_runs
from rag_platform.storage.records import from_json
from rag_platform_tests.conftest import THOROUGH

REPOSITORY = Path(__file__).resolve().parents[3]
DATASHEET = REPOSITORY / "rag_platform" / "samples" / "datasheet.pdf"


@pytest.fixture(scope="module")
def datasheet():
    return PdfLoader().load(DATASHEET, "datasheet.pdf")


def write_pdf(path: Path, *pages: str, **options: object) -> Path:
    with pymupdf.open() as document:
        for text in pages:
            document.new_page().insert_text((72, 72), text)
        document.save(path, **options)
    return path


def run(
    text: str, x: float, y: float, *, height: float = 10, size: float = 10, width: float = 5
) -> Run:
    chars = tuple(
        Char(c, x + i * width, y, x + (i + 1) * width, y + height) for i, c in enumerate(text)
    )
    return Run(chars, 0, size, False, False, True)


# --- the sample ---------------------------------------------------------------------------------


def test_headings_carry_the_outline_levels(datasheet):
    headings = [
        (b.level, datasheet.text[b.start : b.end]) for b in datasheet.blocks if b.kind == "heading"
    ]
    assert headings == [
        (1, "# Pegasus PX series data sheet"),
        (2, "## 1 Overview"),
        (2, "## 2 Technical data"),
        (3, "### 2.1 Ratings"),
        (3, "### 2.2 Spare parts"),
        (2, "## 3 Use in cold stores"),
        (2, "## 4 中文摘要"),
    ]
    assert datasheet.summary.title == "Pegasus PX series data sheet"


def test_a_ruled_table_becomes_a_pipe_table(datasheet):
    tables = [datasheet.text[b.start : b.end] for b in datasheet.blocks if b.kind == "table"]
    assert len(tables) == 2
    assert tables[0].splitlines()[:3] == [
        "| Property | PX-20 | PX-40 | PX-60 |",
        "| --- | --- | --- | --- |",
        "| Maximum throughput | 6,200 parcels/h | 11,400 parcels/h | 15,800 parcels/h |",
    ]


def test_cells_a_space_apart_are_kept_apart_by_borders_with_slanted_ends(tmp_path: Path) -> None:
    rows = ["Room Type Litres Due", "C-114 Foam 9 May", "C-220 Powder 6 July", "C-310 Water 5 June"]
    sides = (60, 90, 128, 156, 178)
    with pymupdf.open() as document:
        page = document.new_page()
        for top, row in zip(range(100, 160, 15), rows, strict=True):
            for left, right, text in zip(sides, sides[1:], row.split(), strict=False):
                page.insert_text((left + 2, top + 10), text, fontsize=10)
                for x in (left, right - 1):
                    corners = [(x, top), (x + 1, top + 1), (x + 1, top + 13), (x, top + 14)]
                    page.draw_polyline(corners, color=None, fill=(0.3,) * 3, closePath=True)
                for y in (top, top + 13):
                    page.draw_rect((left, y, right, y + 1), color=None, fill=(0.3,) * 3)
        document.save(tmp_path / "plan.pdf")
    facts = PdfLoader().load(tmp_path / "plan.pdf", "plan.pdf")
    assert facts.text.split("\n") == [
        "| Room | Type | Litres | Due |",
        "| --- | --- | --- | --- |",
        "| C-114 | Foam | 9 | May |",
        "| C-220 | Powder | 6 | July |",
        "| C-310 | Water | 5 | June |",
    ]


def test_running_headers_stay_in_the_text_but_are_marked(datasheet):
    headers = [datasheet.text[b.start : b.end] for b in datasheet.blocks if b.kind == "header"]
    footers = [datasheet.text[b.start : b.end] for b in datasheet.blocks if b.kind == "footer"]
    assert headers == ["Pegasus PX series - data sheet DS-7714, revision C"] * 4
    assert footers == [f"Page {n} of 4" for n in (1, 2, 3, 4)]


def test_chinese_lines_are_joined_without_a_space(datasheet):
    assert (
        "每个模块都有独立的驱动器、控制器和两个光电传感器，相邻模块通过背板自动识别，不需要拨码。"
        in datasheet.text
    )


def test_pictures_are_references_with_their_place_and_caption(datasheet):
    assert [(m.page, m.heading_path.split(" / ")[-1], m.context_hint) for m in datasheet.media] == [
        (1, "1 Overview", "Figure 1: modules of a line, from infeed to chute"),
        (3, "3 Use in cold stores", "Figure 2: power drawn by a PX-40 at four loads"),
    ]
    assert all(m.origin_ref.startswith("pdf:xref=") and m.start is None for m in datasheet.media)


@pytest.mark.parametrize("profile", ["layout", "fast"])
def test_every_block_is_proved_and_blocks_tile_the_text(datasheet, profile):
    facts = (
        datasheet
        if profile == "layout"
        else PdfLoader(profile="fast").load(DATASHEET, "datasheet.pdf")
    )
    assert PdfLoader().verify_blocks(DATASHEET, facts.text, facts.blocks) == {}
    cursor = 0
    for block in facts.blocks:
        assert facts.text[cursor : block.start].strip() == ""
        cursor = block.end
    assert cursor == len(facts.text)


def test_a_changed_word_and_a_moved_rectangle_are_noticed(datasheet):
    wrong = datasheet.text.replace("11,400 parcels/h", "11,500 parcels/h")
    table = next(b for b in datasheet.blocks if b.kind == "table")
    assert list(PdfLoader().verify_blocks(DATASHEET, wrong, datasheet.blocks)) == [table.ordinal]
    moved = replace(table, bbox=(0.0, 700.0, 10.0, 710.0))
    assert (
        PdfLoader()
        .verify_blocks(DATASHEET, datasheet.text, [moved])[table.ordinal]
        .startswith("page 2 prints ''")
    )
    assert (
        "does not exist"
        in PdfLoader().verify_blocks(DATASHEET, datasheet.text, [replace(table, page=9)])[
            table.ordinal
        ]
    )


def test_windows_put_together_equal_the_whole_every_time(datasheet):
    info = describe(DATASHEET)
    pages = load_window(DATASHEET, 0, 2) + load_window(DATASHEET, 2, 4)
    sent = [from_json(PageFacts, json.loads(json.dumps(asdict(page)))) for page in pages]
    assert assemble(sent, info, PdfLoader()) == datasheet


# --- failures -----------------------------------------------------------------------------------


def test_encrypted_files_say_that_a_password_is_needed(tmp_path):
    locked = write_pdf(
        tmp_path / "locked.pdf",
        "secret",
        encryption=pymupdf.PDF_ENCRYPT_AES_256,
        user_pw="u",
        owner_pw="o",
    )
    with pytest.raises(DocumentError, match="password") as caught:
        PdfLoader().load(locked, "locked.pdf")
    assert caught.value.code == "encrypted"


def test_an_empty_user_password_opens_the_file(tmp_path):
    path = write_pdf(
        tmp_path / "owner.pdf",
        "readable",
        encryption=pymupdf.PDF_ENCRYPT_AES_128,
        user_pw="",
        owner_pw="o",
    )
    assert PdfLoader(profile="fast").load(path, "owner.pdf").text == "readable"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_file"),
        (b"%PDF-1.7\n", "broken_file"),
        (b"%PDF-1.4\nnothing here", "broken_file"),
    ],
)
def test_broken_files_are_refused(tmp_path, content, code):
    path = tmp_path / "x.pdf"
    path.write_bytes(content)
    with pytest.raises(DocumentError) as caught:
        PdfLoader().load(path, "x.pdf")
    assert caught.value.code == code
    assert str(tmp_path) not in caught.value.message


def test_too_many_pages_are_refused_before_parsing(tmp_path):
    with pytest.raises(DocumentError, match="3 pages, more than max_pages = 2") as caught:
        PdfLoader(max_pages=2).load(write_pdf(tmp_path / "x.pdf", "a", "b", "c"), "x.pdf")
    assert caught.value.code == "too_many_pages"


def test_pages_without_text_are_listed(tmp_path):
    facts = PdfLoader(profile="fast").load(
        write_pdf(tmp_path / "x.pdf", "one", "", "three"), "x.pdf"
    )
    assert (facts.text, facts.summary.pages, facts.summary.pages_without_text) == (
        "one\n\nthree",
        3,
        (2,),
    )
    assert [b.page for b in facts.blocks] == [1, 3]


def test_a_failed_page_is_a_warning_and_missing_pages_are_an_error():
    good = PageFacts(1, (PageBlock("paragraph", "text", (0, 0, 9, 9)),), (), "layout")
    bad = PageFacts(2, (), (), "failed", ("page 2: raw reading failed (why)",))
    facts = assemble([good, bad], PdfInfo(2), PdfLoader())
    assert "page 2: nothing could be read" in facts.summary.warnings
    assert facts.summary.errors == ("page 2: raw reading failed (why)",)
    with pytest.raises(DocumentError) as caught:
        assemble([good], PdfInfo(2), PdfLoader())
    assert caught.value.code == "pages_missing"
    with pytest.raises(DocumentError) as caught:
        assemble([replace(bad, page=1)], PdfInfo(1), PdfLoader())
    assert caught.value.code == "broken_file"
    assert caught.value.message.startswith(
        "the PDF cannot be read (page 2: raw reading failed (why)); repair it"
    )


@pytest.mark.parametrize("missing", ["page", "content"])
def test_what_a_cut_off_file_lacks_is_no_blank_page(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "cut.pdf"
    with pymupdf.open(write_pdf(tmp_path / "x.pdf", "one", "two", "")) as document:
        xref = document.page_xref(1) if missing == "page" else document[1].get_contents()[0]
        document.update_object(xref, "null")
        document.save(path)
    summary = PdfLoader(profile="fast").load(path, "cut.pdf").summary
    assert "page 2: nothing could be read" in summary.warnings
    assert "page 3: neither text nor pictures" in summary.warnings
    assert summary.errors == ("page 2: its content is missing from the file",)


@pytest.mark.parametrize(
    ("kids", "count", "reason"),
    [
        ("4 0 R 5 0 R 6 0 R", 3, "Invalid number of pages"),
        ("2 0 R", 1, "page 1: raw reading failed (cycle in page tree)"),
        ("", 0, "it has no pages"),
    ],
)
def test_a_broken_page_tree_is_told_in_words_alone(
    tmp_path: Path, kids: str, count: int, reason: str
) -> None:
    path = tmp_path / "x.pdf"
    path.write_text(
        "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        f"2 0 obj<</Type/Pages/Kids[{kids}]/Count {count}>>endobj\ntrailer<</Root 1 0 R>>\n"
    )
    with pytest.raises(DocumentError) as caught:
        PdfLoader(profile="fast").load(path, "x.pdf")
    assert caught.value.message.startswith(f"the PDF cannot be read ({reason}); repair it")


def test_it_claims_by_content_not_by_name():
    loader = PdfLoader()
    assert loader.claims("notes.md", b"junk\n%PDF-1.5 ...")
    assert not loader.claims("x.pdf", b"<html>")
    assert not loader.claims("x.pdf", b"." * 1024 + b"%PDF-1.5")


# --- rules --------------------------------------------------------------------------------------


def test_heading_levels_without_an_outline_follow_the_font_size():
    def heading(text: str, size: int) -> PageBlock:
        return PageBlock("heading", text, (0, 0, 9, 9), size)

    blocks = (heading("a", 20), heading("b", 14), heading("c", 12), heading("d", 14))
    facts = assemble([PageFacts(1, blocks, (), "layout")], PdfInfo(1), PdfLoader())
    assert [b.level for b in facts.blocks] == [1, 2, 3, 2]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a word cut at the li-", "ne end"], "a word cut at the line end"),
        (["a state-of-the-", "Art machine"], "a state-of-the-Art machine"),
        (["soft\u00ad", "ware"], "software"),
        (["for self-", "service"], "for self-service"),
        (["see re-", "entry"], "see re-entry"),
        (["中文换", "行。"], "中文换行。"),
        (["中文", "English"], "中文 English"),
        (["한국어", "문장"], "한국어 문장"),
        (["", "one", "", "two"], "one two"),
    ],
)
def test_lines_become_running_text(lines, expected):
    assert flow_lines(lines, frozenset({"re-entry"})) == expected


def test_a_drop_cap_belongs_to_the_first_line_only():
    runs = [
        run("O", 0, 0, height=24, size=24, width=10),
        run("nce upon", 12, 1),
        run("a time", 12, 13),
    ]
    assert [line_text(line) for line in visual_lines(runs)] == [
        "Once upon",
        "a time",
    ]


def test_pieces_of_a_line_are_set_apart_only_by_a_gap():
    assert line_text([run("ab", 0, 0), run("cd", 10, 0), run("ef", 40, 0)]) == "abcd ef"


def test_list_entries_keep_their_numbers_lose_their_bullets_and_stand_under_their_parents():
    printed = [
        ("• first", 0),
        ("continued", 10),
        ("– inner", 12),
        ("• second", 0),
        ("3. third", 0),
        ("-5 degrees", 12),
    ]
    lines = [[run(text, x, 12 * row)] for row, (text, x) in enumerate(printed)]
    texts = [line_text(line) for line in lines]
    assert list_text(lines, texts, frozenset()).split("\n") == [
        "- first continued",
        "  - inner",
        "- second",
        "3. third -5 degrees",
    ]
    assert list_text([[run("✓", 0, 0)]], ["✓"], frozenset()) == "✓"  # of a form, not of a list


boxes = st.tuples(*[st.integers(0, 80)] * 2, *[st.integers(1, 60)] * 2).map(
    lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3])
)


@given(
    st.lists(boxes, max_size=6),
    st.lists(
        st.tuples(st.text("abc d", min_size=1, max_size=8), st.integers(0, 90), st.integers(0, 90)),
        max_size=8,
    ),
)
def test_every_character_has_exactly_one_owner(rectangles, texts):
    runs = [run(text, x, y) for text, x, y in texts if text.strip()]
    pieces, orphans = assign_runs(runs, rectangles)
    shared = sorted(
        c for group in [*pieces, orphans] for r in group for c in r.chars if c.text != " "
    )
    assert shared == sorted(c for r in runs for c in r.chars if c.text != " ")


# --- real files ---------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize(
    "name",
    [
        "docling-2305.03393v1-pg9",
        "docling-code_and_formula",
        "docling-right_to_left_01",
        "olmocr-multi_column_miss",
    ],
)
def test_real_pages_are_proved(name, material):
    path = material / "pdf-truth" / f"{name}.pdf"
    facts = PdfLoader().load(path, path.name)
    assert facts.blocks
    assert PdfLoader().verify_blocks(path, facts.text, facts.blocks) == {}


@pytest.mark.parametrize(
    "name", ["pymupdf__chinese-tables.pdf", "pdfplumber__issue-67-example.pdf"]
)
def test_line_joins_put_no_space_between_han_characters(material, name, tmp_path):
    path = tmp_path / name
    with pymupdf.open(material / "pdf-special" / name) as whole, pymupdf.open() as first:
        first.insert_pdf(whole, to_page=-1 if THOROUGH else 5)
        first.save(path)
    facts = PdfLoader().load(path, name)
    assert [block for block in facts.blocks if block.kind == "heading"]
    with pymupdf.open(path) as document:
        printed = [page.get_text("words") for page in document]
    for block in facts.blocks:
        for found in re.finditer(
            "([\u4e00-\u9fff]) +(?=([\u4e00-\u9fff]))", facts.text[block.start : block.end]
        ):
            words = printed[block.page - 1]
            left = [word for word in words if word[4].endswith(found[1])]
            right = [word for word in words if word[4].startswith(found[2])]
            # the gap stands in a printed line
            assert any(min(a[3], b[3]) > max(a[1], b[1]) for a in left for b in right), found


def drawn(folder: Path, *operators: str) -> Path:
    """A page with one font that these operators paint."""
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 72), "x")
        document.update_stream(page.get_contents()[0], "\n".join(operators).encode())
        document.save(folder / "drawn.pdf")
    return folder / "drawn.pdf"


@pytest.mark.parametrize(
    ("operators", "text"),
    [
        ("3 Tc (Rules of the House) Tj", "Rules of the House"),
        ("4 Tc (RULES) Tj 0 Tc", "RULES"),
        # without a sign for the space between words
        ("[(R)-300(U)-300(L)-300(E)-800(O)-300(N)-300(E)] TJ", "RULE ONE"),
        ("[(No)-300(sign)-300(for)-300(spaces)] TJ", "No sign for spaces"),
        ("[(A)-300(fox)-300(I)-300(saw)] TJ", "A fox I saw"),
        ("[(7)-300(5)-300(3)-300(1)-300(9)] TJ", "7 5 3 1 9"),
        ("(S U M M A R Y) Tj", "SUMMARY"),
        ("(A N N U A L   R E P O R T) Tj", "ANNUAL REPORT"),
        ("9 Tc (SUMMARY) Tj 0 Tc", "SUMMARY"),
        ("(UK US DE FR IT PL) Tj", "UK US DE FR IT PL"),
        ("(A B C D E F G H I) Tj", "A B C D E F G H I"),
        ("(B A D C A) Tj", "B A D C A"),
        ("(M T W T F S S) Tj", "M T W T F S S"),
    ],
)
def test_letters_that_are_tracked_are_words(tmp_path: Path, operators: str, text: str) -> None:
    path = drawn(tmp_path, f"BT /helv 12 Tf 72 700 Td {operators} ET")
    facts = PdfLoader(profile="fast").load(path, "drawn.pdf")
    assert facts.text.removeprefix("# ") == text
    assert PdfLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    assert reread(path, "pdf", facts.text, facts.blocks) == ({}, {})


def test_a_chinese_title_that_is_set_letter_by_letter_is_a_word(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        document.new_page().insert_text((72, 72), "劳  动  合  同  书", fontname="china-s")
        document.save(tmp_path / "title.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "title.pdf", "title.pdf")
    assert facts.text == "劳动合同书"


def test_what_is_printed_twice_to_look_bold_is_read_once(tmp_path: Path) -> None:
    twice = [f"BT /helv 18 Tf {72 + shift} 700 Td (Rules) Tj ET" for shift in (0, 0.4, 0.8)]
    path = drawn(tmp_path, *twice, "BT /helv 18 Tf 72 660 Td (Rules) Tj ET")
    facts = PdfLoader(profile="fast").load(path, "drawn.pdf")
    assert facts.text.replace("# ", "").split() == ["Rules", "Rules"]
    assert PdfLoader().verify_blocks(path, facts.text, facts.blocks) == {}


@pytest.mark.parametrize(
    ("font", "words", "text"),
    [
        ("korea", ("나는", "여름", "방학이", "되어"), "나는 여름 방학이 되어"),
        ("china-s", ("夏天", "放假", "回家"), "夏天放假回家"),
    ],
)
def test_a_gap_ends_a_word_only_where_words_are_set_apart(
    tmp_path: Path, font: str, words: tuple[str, ...], text: str
) -> None:
    document, at = pymupdf.open(), 72.0
    page = document.new_page()
    for word in words:  # as TeX sets them, without a space
        page.insert_text((at, 72), word, fontsize=10, fontname=font)
        at += 10 * len(word) + 3
    document.save(tmp_path / "a.pdf")
    assert PdfLoader(profile="fast").load(tmp_path / "a.pdf", "a.pdf").text == text


def test_code_with_comments_in_chinese_and_marks_of_cut_lines_keeps_its_lines(
    tmp_path: Path,
) -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((50, 60), "The job is started by a timer. Its file reads as follows:")
    lines = [
        [("cour", "[Timer]")],
        [("cour", "OnCalendar=daily   # "), ("china-s", "每天执行一次")],
        [("cour", "ExecStart=/usr/bin/rag ingest "), ("symb", "\xac")],
        [("symb", "\xae"), ("cour", "   /srv/docs --namespace docs")],
    ]
    for number, pieces in enumerate(lines):
        x = 50.0
        for font, text in pieces:
            page.insert_text((x, 90 + 12 * number), text, fontname=font, fontsize=9)
            x += pymupdf.get_text_length(text, fontname=font, fontsize=9)
    for number, text in enumerate(("It runs once a day, and after each", "start of the machine.")):
        page.insert_text((50, 160 + 14 * number), text)
    document.save(tmp_path / "a.pdf")
    facts = PdfLoader().load(tmp_path / "a.pdf", "a.pdf")
    (code,) = (facts.text[b.start : b.end] for b in facts.blocks if b.kind == "code")
    shown = code.split("\n")
    assert shown[1] == "[Timer]" and shown[2].endswith("# 每天执行一次")
    assert shown[3].startswith("ExecStart=/usr/bin/rag ingest")
    assert shown[4].endswith("/srv/docs --namespace docs")
    assert PdfLoader().verify_blocks(tmp_path / "a.pdf", facts.text, facts.blocks) == {}


def test_chinese_in_braces_is_code_and_beside_a_url_cut_in_its_line_it_is_not(
    tmp_path: Path,
) -> None:
    document = pymupdf.open()
    page = document.new_page()
    lines = [
        [("cour", "\\setup{"), ("china-s", "")],
        [("cour", "title={"), ("china-s", "论动体的电动力学"), ("cour", "},")],
        [("cour", "author={Einstein} }"), ("china-s", "")],
        [],
        [("china-s", "更多资料请参见官方网站的说明，网址是 https:"), ("cour", "")],
        [("cour", "//tug.org/texlive/acquire.html"), ("china-s", "里面有获得软件的方法。")],
        [],
        [("cour", "draw(p); //"), ("china-s", "方法"), ("cour", "1 of 2: "), ("china-s", "隐藏")],
    ]
    for number, pieces in enumerate(lines):
        x = 50.0
        for font, text in pieces:
            page.insert_text((x, 90 + 12 * number), text, fontname=font, fontsize=9)
            x += pymupdf.get_text_length(text, fontname=font, fontsize=9)
    document.save(tmp_path / "a.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "a.pdf", "a.pdf")
    assert [block.kind for block in facts.blocks] == ["code", "paragraph", "code"]
    assert "title={论动体的电动力学},\n" in facts.text
    assert "https://tug.org/texlive/acquire.html" in facts.text


def test_a_comment_that_begins_right_behind_its_slashes_is_code(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    lines = (("x := 1 //set ", "计数器"), ("x += step //add ", "累加"), ("//TODO: ", "检查溢出"))
    for number, (code, comment) in enumerate(lines):
        y, x = 90 + 12 * number, 50 + pymupdf.get_text_length(code, fontname="cour", fontsize=9)
        page.insert_text((50, y), code, fontname="cour", fontsize=9)
        page.insert_text((x, y), comment, fontname="china-s", fontsize=9)
    document.save(tmp_path / "a.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "a.pdf", "a.pdf")
    assert facts.text == "```\nx := 1 //set 计数器\nx += step //add 累加\n//TODO: 检查溢出\n```"


def test_latin_letters_among_chinese_stand_a_space_apart_on_both_sides(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    for x, font, text in (
        (50, "china-s", "重新启动"),
        (92.5, "tiro", "GNOME"),
        (131, "china-s", "桌面。"),
    ):
        page.insert_text((x, 90), text, fontname=font, fontsize=10)
    page.insert_text((50, 110), "第", fontname="china-s", fontsize=10)
    page.insert_text((60.5, 110), "3", fontname="tiro", fontsize=10)
    document.save(tmp_path / "a.pdf")
    text = PdfLoader().load(tmp_path / "a.pdf", "a.pdf").text
    assert "重新启动 GNOME 桌面。" in text and "第3" in text


def test_a_list_of_names_in_letters_of_one_width_is_a_list(tmp_path: Path) -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((50, 60), "These packages come with the system and are always there:")
    for number, name in enumerate(("apt-listchanges", "dpkg-dev", "reportbug")):
        page.insert_text((60, 90 + 16 * number), "\u2022", fontname="helv")
        page.insert_text((75, 90 + 16 * number), name, fontname="cour")
    page.insert_text((50, 150), "All others are installed by hand, each with what it needs.")
    document.save(tmp_path / "a.pdf")
    facts = PdfLoader().load(tmp_path / "a.pdf", "a.pdf")
    assert "code" not in {block.kind for block in facts.blocks}
    assert "- apt-listchanges" in facts.text and "- reportbug" in facts.text


def test_regions_of_code_below_each_other_are_one_block() -> None:
    def line(text: str, y: float) -> Run:
        chars = (Char(c, 10 + 5 * i, y, 15 + 5 * i, y + 8) for i, c in enumerate(text))
        return Run(tuple(chars), 0, 9, True, False, True)

    prose = Run(line("Then start it once more.", 90).chars, 0, 9, False, False, True)
    runs = [line("$ cd /srv", 10), line("$ rag init", 20), prose, line("$ rag demo", 102)]
    places = ((8, 9, 200, 19), (8, 19, 200, 29), (8, 88, 200, 99), (8, 101, 200, 111))
    regions = [Region(place, "text") for place in places]
    blocks, warnings = page_blocks(1, runs, regions)
    assert [block.kind for block in blocks] == ["code", "paragraph", "code"] and not warnings
    assert blocks[0].text == "```\n$ cd /srv\n$ rag init\n```"
    assert blocks[0].bbox == (8, 9, 200, 29)
    # the layout model takes a part of a signature for a heading
    regions[1:3] = [Region(places[1], "section-header"), Region(places[2], "section-header")]
    blocks, _ = page_blocks(1, runs, regions)
    assert [block.kind for block in blocks] == ["code", "heading", "code"]
    # a blank line sets a heading off
    heading, place = line("init(name)", 38), Region((8, 37, 200, 47), "section-header")
    blocks, _ = page_blocks(1, [*runs[:2], heading, prose], [*regions[:2], place, regions[2]])
    assert [block.kind for block in blocks] == ["code", "heading", "heading"]


def test_a_monospaced_term_and_the_explanation_below_it_are_one_text() -> None:
    def line(text: str, x: float, y: float, *, mono: bool = False) -> Run:
        chars = (Char(c, x + 5 * i, y, x + 5 + 5 * i, y + 8) for i, c in enumerate(text))
        return Run(tuple(chars), 0, 9, mono, False, True)

    def texts(left: float, top: float, label: str) -> list[str]:
        term = line("-l logfile", 10, 10, mono=True)
        below = line("Use it rather than stderr for all messages.", left, top)
        places = ((8, 9, 80, 19), (left - 1, top - 1, 260, top + 9))
        regions = [Region(places[0], label), Region(places[1], "text")]
        return [block.text for block in page_blocks(1, [term, below], regions)[0]]

    joined = ["-l logfile Use it rather than stderr for all messages."]
    assert texts(40, 20, "text") == texts(40, 20, "section-header") == joined
    # far below it, or at its left edge, is another text
    assert len(texts(40, 28, "text")) == len(texts(10, 20, "text")) == 2


def test_rows_of_cells_that_the_model_takes_for_an_entry_of_a_list_are_a_table() -> None:
    def line(text: str, x: float, y: float) -> Run:
        chars = (Char(c, x + 5 * i, y, x + 5 + 5 * i, y + 8) for i, c in enumerate(text))
        return Run(tuple(chars), 0, 9, False, False, True)

    rows = (("bfseries", "bold"), ("itshape", "italic"), ("scshape", "small"))
    runs = [
        line(text, 10 + 100 * column, 10 + 12 * row)
        for row, cells in enumerate(rows)
        for column, text in enumerate(cells)
    ]
    (block,), _ = page_blocks(1, runs, [Region((8, 8, 200, 44), "list-item")])
    assert block.kind == "table"
    assert block.text.endswith("| itshape | italic |\n| scshape | small |")
    marked = [line(f"{1 + row}.", 2, 10 + 12 * row) for row in range(3)]
    (block,), _ = page_blocks(1, [*marked, *runs], [Region((0, 8, 200, 44), "list-item")])
    assert block.kind == "list"


def test_a_blank_line_keeps_code_one_block_with_its_indentation() -> None:
    def line(text: str, x: float, y: float) -> Run:
        chars = (Char(c, x + 5 * i, y, x + 5 + 5 * i, y + 8) for i, c in enumerate(text))
        return Run(tuple(chars), 0, 9, True, False, True)

    prose = line("It waits until the port is free again.", 10, 80)._replace(mono=False)
    runs = [line("def start(port):", 10, 10), line("return port", 31, 22), line("raise", 31, 46)]
    places = ((8, 9, 200, 31), (30, 45, 200, 55), (8, 79, 250, 89))
    blocks, _ = page_blocks(1, [*runs, prose], [Region(place, "text") for place in places])
    code = "```\ndef start(port):\n    return port\n    raise\n```"
    assert [block.text for block in blocks] == [code, prose.text]


def test_code_within_a_paragraph_is_a_block_of_its_own() -> None:
    def line(text: str, y: float, *, mono: bool = False) -> Run:
        chars = (Char(c, 10 + 5 * i, y, 15 + 5 * i, y + 8) for i, c in enumerate(text))
        return Run(tuple(chars), 0, 9, mono, False, True)

    texts = (
        ("The beep of the console is turned off with this line:", False),
        ("$ echo set bell-style none >> ~/.inputrc", True),
        ("Nothing has to be started again, for the name of the file", False),
        ("/home/somebody/.config/a-name-that-fills-a-line/inputrc.d", True),
        ("is read by each shell.", False),
    )
    runs = [line(text, 10 + 10 * at, mono=mono) for at, (text, mono) in enumerate(texts)]
    blocks, _ = page_blocks(1, runs, [Region((8, 8, 300, 60), "text")])
    assert [block.kind for block in blocks] == ["paragraph", "code", "paragraph"]
    assert blocks[1].text == "```\n$ echo set bell-style none >> ~/.inputrc\n```"
    assert blocks[2].text.endswith("inputrc.d is read by each shell.")


def test_indented_code_stands_apart_from_sentences_around_it() -> None:
    def line(text: str, x: float, y: float, *, mono: bool = False) -> Run:
        chars = (Char(c, x + 5 * i, y, x + 5 + 5 * i, y + 8) for i, c in enumerate(text))
        return Run(tuple(chars), 0, 9, mono, False, True)

    def kinds(*runs: Run) -> list[str]:
        blocks, _ = page_blocks(1, list(runs), [Region((8, 8, 300, 60), "text")])
        return [block.kind for block in blocks]

    above = line("Some care is needed with quotes. Three useful forms are", 10, 10)
    below = line("which is what the other program expects to find there", 10, 30)
    code = line("> write.table(df)", 30, 20, mono=True)
    assert kinds(above, code) == ["paragraph", "code"]
    assert kinds(code, below) == ["code", "paragraph"]
    assert kinds(above, line("read.table", 10, 20, mono=True), below) == ["paragraph"]
    signature = line("node find_node (const node from, int depth, const char *", 10, 10)
    assert kinds(signature, line("name)", 60, 20, mono=True)) == ["paragraph"]
    assert kinds(above, line(",", 60, 20, mono=True)) == ["paragraph"]
    # in the column of explanations beside terms
    entry = (line("size", 10, 10, mono=True), line("A number, often called", 60, 10))
    filled = line("the default is that", 175, 10)
    assert kinds(*entry, filled, line("precision", 60, 20, mono=True)) == ["paragraph"]


def test_markdown_named_as_a_pdf_is_none(tmp_path: Path) -> None:
    (tmp_path / "notes.pdf").write_text("# Lamp\n\nThe lamp burns.\n", encoding="utf-8")
    with pytest.raises(DocumentError, match="no PDF structure"), open_pdf(tmp_path / "notes.pdf"):
        pass


def test_signs_of_the_font_zapfdingbats_are_read_as_what_they_show(tmp_path: Path) -> None:
    # as a form's marks are: a font without an encoding
    with pymupdf.open() as document:
        page = document.new_page()
        font = document.get_new_xref()
        document.update_object(font, "<</Type/Font/Subtype/Type1/BaseFont/ZapfDingbats>>")
        document.xref_set_key(page.xref, "Resources", f"<</Font<</Za {font} 0 R>>>>")
        page.insert_text((72, 72), " ")
        stream = b"BT /Za 12 Tf 72 700 Td 30 TL (4) Tj T* (8) Tj T* (u) Tj T* (n) Tj T* (H) Tj ET"
        document.update_stream(page.get_contents()[0], stream)
        document.save(tmp_path / "signs.pdf")
    with open_pdf(tmp_path / "signs.pdf") as document:
        assert [run.text for run in read_runs(document[0])] == list("✔✘◆■★")


def test_a_space_without_room_ends_no_word(tmp_path: Path) -> None:
    # as browsers write where a word may be cut
    operators = "BT /helv 12 Tf 72 700 Td [(soft hy) 0 ( ) 278 (phens and words)] TJ ET"
    path = drawn(tmp_path, operators)
    facts = PdfLoader(profile="fast").load(path, "drawn.pdf")
    assert facts.text == "soft hyphens and words"
    assert PdfLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    assert reread(path, "pdf", facts.text, facts.blocks) == ({}, {})
