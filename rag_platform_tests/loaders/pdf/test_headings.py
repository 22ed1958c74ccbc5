"""Headings of PDFs and their levels, judged over the whole document; what pages say together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pymupdf
import pytest

from rag_platform.loaders.pdf.assembly import PdfInfo, assemble
from rag_platform.loaders.pdf.headings import heading_levels, join_bare, number_depth
from rag_platform.loaders.pdf.images import PageImage
from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.pages import PageBlock, PageFacts, page_blocks
from rag_platform.loaders.pdf.plain_regions import plain_regions
from rag_platform.loaders.pdf.printed.runs import Char, Run

BODY = PageBlock(
    "paragraph",
    "Plain words of the body that say something. " * 4,
    (0, 100, 400, 160),
    10,
    False,
    4,
)


def heading(
    text: str, size: float = 10, bold: bool = True, kind: str = "heading", **more: object
) -> PageBlock:
    return PageBlock(kind, text, (0, 0, 9, 9), size, bold, 1, **more)


def page(*blocks: PageBlock, number: int = 1, engine: str = "raw", images: int = 0) -> PageFacts:
    return PageFacts(
        number, blocks, tuple(PageImage(7, (0, 0, 50, 50)) for _ in range(images)), engine
    )


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("2 Methods", 1),
        ("2.1.4 Setup", 3),
        ("2. Methods", 1),
        ("A.1 Proofs", 2),
        ("IV. Results", 1),
        ("Chapter 3", 1),
        ("第一章 总则", 1),
        ("第二节 范围", 2),
        ("第三条 定义", 3),
        ("第三条 本办法自公布之日起施行。", 0),
        ("三、结论", 4),
        ("（四）其他", 5),
        ("1、概述", 6),
        ("2018 年", 0),
        ("3.5 %", 0),
        ("Methods", 0),
    ],
)
def test_a_number_says_how_deep_a_heading_stands(text, depth):
    assert number_depth(text) == depth


def test_the_outline_names_headings_with_its_levels_though_number_and_page_differ():
    outline = ((1, "1. Introduction", 1), (2, "Aims", 1), (1, "Results", 3))
    first = page(heading("Introduction"), BODY, heading("Aims", kind="paragraph", bold=False), BODY)
    second = page(heading("4 Results"), BODY, number=2)
    found = heading_levels([first, second, page(BODY, number=3)], outline)
    assert found == {(1, 0): 1, (1, 2): 2, (2, 0): 1}


@pytest.mark.parametrize(
    ("entry", "printed", "kind"),
    [
        ("1 简介", "第一章 简介", "paragraph"),
        ("例子", "2 例子", "paragraph"),
        ("附录 B 集合", "B 集合", "header"),
        ("全局选项", "3 全局选项(GLOBAL OPTIONS)", "heading"),
        ("R packages", "4.3 R packages", "heading"),
        ("64-bit types", "1.3 64-bit types", "heading"),
    ],
)
def test_the_outline_names_a_heading_whatever_its_number_and_what_it_goes_on_with(
    entry: str, printed: str, kind: str
):
    pages = [page(heading(printed, kind=kind), BODY)]
    assert heading_levels(pages, ((3, entry, 1),)) == {(1, 0): 3}


@pytest.mark.parametrize("engine", ["raw", "layout"])
def test_an_entry_that_a_heading_below_repeats_is_not_the_one_of_the_outline(engine: str):
    entry, repeated = heading("symbolic names;"), heading("2.1 Symbolic names")
    listed = heading("- Numbers", kind="list", bold=False)
    pages = [page(entry, listed, repeated, BODY, heading("2.2 Numbers"), BODY, engine=engine)]
    found = heading_levels(pages, ((2, "Symbolic names", 1), (2, "Numbers", 1)))
    assert found == {(1, 2): 2, (1, 4): 2}


def test_a_page_header_is_no_heading_where_the_heading_stands_below_it():
    above, below = heading("4 操作", kind="header"), heading("4 操作(ACTIONS)")
    assert heading_levels([page(above, below, BODY)], ((1, "操作", 1),)) == {(1, 1): 1}


def test_what_a_whole_outline_leaves_out_stands_below_the_part_that_it_is_in():
    names = ["1 Rivers", "2 Lakes", "3 Wells", "4 Pumps", "5 Pipes"]
    pages = [page(heading(name), BODY, number=n) for n, name in enumerate(names, 1)]
    pages[1] = page(heading(names[1]), BODY, heading("7. Depth"), BODY, number=2)
    outline = tuple((1, name, n) for n, name in enumerate(names, 1))
    assert heading_levels(pages, outline)[2, 2] == 2
    assert heading_levels(pages)[2, 2] == 1
    # a numbered line in the style of the text is an entry of a list
    entry = heading("7. Depth", bold=False)
    pages[1] = page(heading(names[1]), BODY, entry, BODY, number=2, engine="layout")
    assert (2, 2) not in heading_levels(pages, outline) and (2, 2) in heading_levels(pages)


def test_numbers_give_levels_below_an_unnumbered_title():
    found = heading_levels(
        [
            page(
                heading("A title", 20),
                heading("1 One", 14),
                heading("1.1 Part", 12),
                BODY,
                heading("2 Two", 14),
                BODY,
            )
        ]
    )
    assert found == {(1, 0): 1, (1, 1): 2, (1, 2): 3, (1, 4): 2}


def test_chinese_marks_rank_by_what_the_document_uses():
    found = heading_levels(
        [
            page(
                heading("一、概况", 12),
                BODY,
                heading("（一）范围", 12),
                BODY,
                heading("二、结论", 12),
                BODY,
            )
        ]
    )
    assert found == {(1, 0): 1, (1, 2): 2, (1, 4): 1}


def test_short_lines_with_a_mark_above_text_are_headings_though_set_like_it():
    first, second, listed = "一、总则", "二、附则", ["1、纸张", "2、墨水", "3、信封"]
    contents = [heading(f"{name} ...... 3", bold=False, kind="list") for name in (first, second)]
    parts = [heading(name, bold=False, kind="list") for name in (first, second)]
    items = [heading(name, bold=False, kind="list") for name in listed]
    pages = [page(*contents), page(parts[0], BODY, parts[1], *items, BODY, number=2)]
    assert heading_levels(pages) == {(2, 0): 1, (2, 2): 1}


def test_a_part_of_a_line_of_its_own_gives_its_title_the_level_but_not_its_style():
    parts = [
        page(
            heading(f"Part {number}", 14),
            heading(name, 20),
            BODY,
            heading("Aims", 14),
            BODY,
            heading("Means", 14),
            BODY,
            number=number + 1,
        )
        for number, name in ((1, "Rivers"), (2, "Lakes"))
    ]
    found = heading_levels([page(heading("Waters", 30), BODY), *parts])
    assert [found[n, at] for n in (2, 3) for at in (0, 1, 3, 5)] == [2, 2, 3, 3] * 2


def test_a_number_on_a_line_of_its_own_and_the_title_below_it_are_one_heading():
    def join(*lines: str, engine: str = "raw") -> list[str]:
        """Headings one below the other, 30 points apart."""
        blocks = [
            replace(heading(line, 14), bbox=(0, 30 * at, 99, 30 * at + 9))
            for at, line in enumerate(lines)
        ]
        joined = join_bare(replace(page(*blocks), engine=engine))
        return [block.text for block in joined.blocks]

    assert join("第一章", "总则", "二、", "职责") == ["第一章 总则", "二、职责"]
    assert join("第一章", "总则", engine="layout") == ["第一章", "总则"]
    assert join("Part 1", "Rivers", "CHAPTER", "TWO", "Lakes") == [
        "Part 1 Rivers",
        "CHAPTER TWO Lakes",
    ]
    apart = ["PART I", "Item 1. Business", "Annex A", "Table 2: Rain", "第二章", "第一节 范围"]
    assert join(*apart) == apart


def test_entries_of_a_table_of_contents_are_no_headings_without_the_layout_model():
    contents = [heading(text) for text in ("CONTENTS", "Setup ..... 3", "2 Phase 2", "v")]
    chapters = [heading("1 SETUP", 14), BODY, heading("2 Phase 2", 14), BODY]
    pages = [page(*contents[:2], BODY, *contents[2:]), page(*chapters, number=2)]

    def find(engine: str) -> list[tuple[int, int]]:
        return sorted(heading_levels([replace(item, engine=engine) for item in pages]))

    assert find("raw") == [(1, 0), (1, 3), (1, 4), (2, 0), (2, 2)]
    assert (1, 1) in find("layout")


def test_a_title_that_the_layout_model_takes_for_a_page_header_is_a_heading():
    top = heading("Middleware", 16, kind="header")
    pages = [page(top, BODY, heading("USE", 11), BODY, heading("MORE", 11), BODY, engine="layout")]
    assert heading_levels(pages) == {(1, 0): 1, (1, 2): 2, (1, 4): 2}


def test_equal_styles_get_equal_levels_and_a_cover_opens_none():
    cover = page(heading("Big name", 30), heading("Second line", 26), heading("Third line", 24))
    rest = [
        page(heading(f"Part {n}", 14), BODY, heading(f"Piece {n}", 12), BODY, number=n)
        for n in (2, 3)
    ]
    found = heading_levels([cover, *rest])
    assert [found[n, position] for n in (2, 3) for position in (0, 2)] == [2, 3, 2, 3]


def test_what_opens_the_document_is_its_title_also_when_it_is_smaller_than_its_sections():
    first = page(heading("How words are processed", 12), BODY, heading("Early days", 13.5), BODY)
    assert heading_levels([first, page(heading("Today", 13.5), BODY, number=2)]) == {
        (1, 0): 1,
        (1, 2): 2,
        (2, 0): 2,
    }
    behind = page(
        BODY, heading("An aside", 12), heading("Early days", 13.5), heading("Today", 13.5)
    )
    assert heading_levels([behind]) == {(1, 1): 2, (1, 2): 1, (1, 3): 1}


def test_an_outline_without_the_title_stands_below_it():
    blocks = [
        heading("The whole paper", 20),
        BODY,
        heading("Aims", 14),
        BODY,
        heading("Means", 14),
        BODY,
        heading("Ends", 14),
        BODY,
    ]
    assert heading_levels([page(*blocks)], ((1, "Aims", 1), (1, "Means", 1))) == {
        (1, 0): 1,
        (1, 2): 2,
        (1, 4): 2,
        (1, 6): 2,
    }
    assert heading_levels([page(*blocks)], ((1, "The whole paper", 1), (2, "Aims", 1))) == {
        (1, 0): 1,
        (1, 2): 2,
        (1, 4): 2,
        (1, 6): 2,
    }


def test_headings_in_capitals_stand_above_others_set_alike_but_a_name_in_capitals_does_not():
    rows = ["INTRODUCTION AND AIMS", "Why", "How", "RELATED WORK", "Tables", "NVIDIA"]
    blocks = [block for text in rows for block in (heading(text, 12), BODY)]
    assert list(heading_levels([page(*blocks)]).values()) == [1, 2, 2, 1, 2, 1]
    alone = [
        block for text in ("Drivers", "NVIDIA", "Others") for block in (heading(text, 12), BODY)
    ]
    assert list(heading_levels([page(*alone)]).values()) == [1, 1, 1]


def test_parts_without_a_number_stand_beside_the_numbered_chapters():
    rows = [
        ("A paper", 20),
        ("Abstract", 12),
        ("1 Aims", 14),
        ("1.1 Scope", 12),
        ("2 Means", 14),
        ("References", 12),
    ]
    blocks = [block for text, size in rows for block in (heading(text, size), BODY)]
    assert list(heading_levels([page(*blocks)]).values()) == [1, 2, 2, 3, 2, 2]


def test_steps_that_begin_anew_in_each_part_are_no_chapters():
    rows = [
        ("Setting up", 16),
        ("1. Unpack it", 12),
        ("2. Plug it in", 12),
        ("Daily use", 16),
        ("1. Switch it on", 12),
        ("2. Wait", 12),
    ]
    rows += [("Care", 16), ("1. Unplug it", 12), ("2. Wipe it", 12)]
    blocks = [block for text, size in rows for block in (heading(text, size), BODY)]
    assert list(heading_levels([page(*blocks)]).values()) == [1, 2, 2, 1, 2, 2, 1, 2, 2]


@pytest.mark.parametrize(
    "text",
    [
        "Table 3: what was measured",
        "Table A-1: more",
        "□是 √否",
        "Figure 2. A view",
        "图 4：结构",
        "a2 + 8 = 12",
        "3.14",
        "This line is bold and ends as a sentence does.",
    ],
)
def test_what_reads_as_a_caption_a_formula_or_a_sentence_is_no_heading(text):
    assert heading_levels([page(heading(text), BODY)]) == {}


def test_words_of_body_size_and_weight_are_no_heading_and_many_bold_lines_are_a_form():
    assert heading_levels([page(heading("Plain", bold=False), BODY)]) == {}
    assert heading_levels([page(*(heading(f"Field {letter}") for letter in "abcd"), BODY)]) == {}
    assert len(heading_levels([page(*(heading(f"Field {letter}") for letter in "abc"), BODY)])) == 3


def test_values_below_their_labels_are_no_headings_but_a_line_may_stand_above_a_heading():
    def set_lines(step: int, *texts: str) -> list[PageBlock]:
        """Small lines and bold ones below them by turns."""
        return [
            PageBlock("heading", text, (60, y, 200, y + 10), 12, True)
            if at % 2
            else PageBlock("paragraph", text, (60, y, 200, y + 8), 8)
            for at, text in enumerate(texts)
            for y in [step * (at // 2) + 14 * (at % 2)]
        ]

    fields = set_lines(40, "Invoice no.", "INV-2041", "合同编号", "HT-0417", "Due", "2 May 2023")
    assert heading_levels([page(*fields)]) == {}
    small, strategy, other, finance = set_lines(100, "Strategy", "New markets", "Finance", "Profit")
    text = [replace(BODY, bbox=(60, y, 400, y + 50)) for y in (30, 130)]
    sections = page(small, strategy, text[0], other, finance, text[1])
    assert heading_levels([sections]) == {(1, 1): 1, (1, 4): 1}


# --- the written document -----------------------------------------------------------------------


def entry(text: str, x: float, y: float) -> PageBlock:
    return PageBlock("list", text, (x, y, x + 100, y + 10), 10)


def test_entries_further_right_stand_under_their_parents_until_the_next_column():
    pages = [
        page(
            entry("- a", 50, 100),
            entry("- b", 70, 112),
            entry("1. c", 90, 124),
            entry("- d", 110, 136),
            entry("- e", 50, 148),
            entry("- f", 300, 100),
        )
    ]
    facts = assemble(pages, PdfInfo(1), PdfLoader(profile="fast"))
    assert facts.text == "- a\n  - b\n    1. c\n       - d\n- e\n- f"


def test_pages_that_yield_nothing_are_named():
    pages = [
        page(BODY),
        page(number=2, images=1),
        page(number=3, images=2),
        page(number=4),
        PageFacts(5, (), (), "failed", ("page 5: why",)),
    ]
    summary = assemble(pages, PdfInfo(5), PdfLoader(profile="fast")).summary
    assert summary.warnings == (
        "page 5: nothing could be read",
        "page 5: why",
        (
            "pages 2-3: no text but pictures: scanned; what they say is found with OCR"
            " (media_texts.ocr in the strategy)"
        ),
        "page 4: neither text nor pictures",
    )
    assert summary.pages_without_text == (2, 3, 4, 5)


def test_pages_with_characters_without_a_meaning_are_named():
    torn = PageBlock("paragraph", "The \ufffdow is set.", (0, 100, 400, 160), 10)
    pages = [page(BODY), page(torn, number=2), page(BODY, number=3)]
    summary = assemble(pages, PdfInfo(3), PdfLoader(profile="fast")).summary
    assert summary.warnings == (
        "page 2: characters that its fonts give no meaning are U+FFFD in the text",
    )


# --- regions without a model --------------------------------------------------------------------


def line(
    text: str,
    y: float,
    *,
    x: float = 50,
    size: float = 10,
    bold: bool = False,
    mono: bool = False,
    block: int = 0,
) -> Run:
    chars = tuple(Char(char, x + 5 * i, y, x + 5 * i + 5, y + size) for i, char in enumerate(text))
    return Run(chars, block, size, mono, bold, True)


def test_a_block_is_cut_where_style_or_a_list_begins():
    runs = [
        line("A heading", 0, size=14, bold=True),
        line("over two lines", 16, size=14, bold=True, block=1),
        line("Body text that goes on", 40, block=2),
        line("for a second line.", 52, block=2),
        line("• one", 64, block=2),
        line("more of one", 76, x=60, block=2),
        line("• two", 88, block=2),
        line("x = 1", 120, mono=True, block=3),
        line("Name        ", 140, bold=True, block=4),
        line("Value", 140, x=300, bold=True, block=4),
    ]
    regions = plain_regions(runs)
    assert [(region.label, region.bbox[1], region.bbox[3]) for region in regions] == [
        ("section-header", 0, 30),
        ("text", 40, 62),
        ("list-item", 64, 86),
        ("list-item", 88, 98),
        ("text", 120, 130),
        ("text", 140, 150),
    ]


def test_the_fast_profile_reads_headings_lists_and_code_from_a_file(tmp_path):
    path = tmp_path / "x.pdf"
    with pymupdf.open() as document:
        for number in range(1, 4):
            sheet = document.new_page()
            sheet.insert_text((72, 30), "Handbook of pumps", fontsize=8)
            sheet.insert_text(
                (72, 100), f"{number} Chapter on valves", fontsize=16, fontname="hebo"
            )
            sheet.insert_textbox(
                (72, 120, 500, 180), "Valves close when the pressure falls. " * 6, fontsize=10
            )
            sheet.insert_text((72, 200), "• first step", fontsize=10)
            sheet.insert_text(
                (72, 230 + 20 * number),
                "open(valve)\n    close(valve)",
                fontsize=10,
                fontname="cour",
            )
            sheet.insert_text((72, 800), f"page {number}", fontsize=8)
        document.save(path)
    facts = PdfLoader(profile="fast").load(path, "x.pdf")
    kinds = [block.kind for block in facts.blocks if block.page == 2]
    assert kinds[0] == "header" and kinds[-1] == "footer" and "heading" in kinds and "code" in kinds
    assert [block.title for block in facts.blocks if block.kind == "heading"] == [
        f"{n} Chapter on valves" for n in (1, 2, 3)
    ]
    assert "```\nopen(valve)\n    close(valve)\n```" in facts.text
    assert PdfLoader().verify_blocks(path, facts.text, facts.blocks) == {}


@pytest.mark.parametrize("degrees", [45, -30, 90])
def test_words_across_a_page_are_no_heading_but_turned_by_a_right_angle_they_are(tmp_path, degrees):
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 72), "Pumps and valves", fontsize=18)
        for number in range(8):
            page.insert_text((72, 110 + 16 * number), "A line of the body that says something.")
        mark = pymupdf.TextWriter(page.rect)
        mark.append((150, 500), "INTERNAL DRAFT", fontsize=40)
        mark.write_text(page, morph=(pymupdf.Point(300, 500), pymupdf.Matrix(degrees)))
        document.save(tmp_path / "mark.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "mark.pdf", "mark.pdf")
    headings = [
        facts.text[b.start : b.end].strip("# ") for b in facts.blocks if b.kind == "heading"
    ]
    turned = ["INTERNAL DRAFT"] if degrees == 90 else []
    assert headings == ["Pumps and valves", *turned]
    assert "INTERNAL DRAFT" in facts.text
    assert PdfLoader().verify_blocks(tmp_path / "mark.pdf", facts.text, facts.blocks) == {}


def test_labels_of_boxes_and_commands_are_no_headings() -> None:
    blocks = [heading("1 Setup"), BODY, heading("Note"), BODY, heading("注意：")]
    blocks += [heading("# apt-get update"), BODY, heading("2 Notes"), BODY]
    blocks += [heading("% make check"), BODY, heading("> set.seed(4711)"), BODY]
    for engine in ("raw", "layout"):
        assert set(heading_levels([page(*blocks, engine=engine)])) == {(1, 0), (1, 7)}
    assert heading_levels([page(*blocks)], [(1, "Note", 1)])[1, 2]


def test_a_letter_begins_and_ends_without_a_heading() -> None:
    ends = ("Kind regards", "Yours sincerely,", "Mit freundlichen Grüßen", "此致")
    blocks = [heading("Dear Mr Olsen", bold=False), BODY, heading("Dear shareholders", 14), BODY]
    blocks += [*map(heading, ends), heading("Colin Marsh"), heading("各有关单位：", bold=False)]
    assert set(heading_levels([page(*blocks, engine="layout")])) == {(1, 2)}


def test_the_number_of_a_chapter_stands_as_high_as_its_title() -> None:
    blocks = [heading("Chapter 2", 8), heading("Ports", 20), BODY, heading("2.1 Open", 14), BODY]
    levels = heading_levels([page(BODY), page(*blocks, number=2)], [(1, "Ports", 2)])
    assert levels == {(2, 0): 1, (2, 1): 1, (2, 3): 2}


def test_a_title_that_the_outline_names_beside_its_chapters_stands_above_them() -> None:
    cover = [heading("Hierarchy Standard", 25), heading("The Working Group", 17, title=True)]
    blocks = [heading("Chapter 1. Aims", 12), BODY, heading("Chapter 2. Terms", 12), BODY]
    outline = [(1, "Hierarchy Standard", 1), (1, "Chapter 1. Aims", 2), (1, "Chapter 2. Terms", 2)]
    levels = heading_levels([page(*cover), page(*blocks, number=2)], outline)
    assert levels == {(1, 0): 1, (1, 1): 2, (2, 0): 2, (2, 2): 2}


def test_a_text_begins_below_a_chinese_line_with_a_mark_that_has_room_for_more():
    full = "一、本办法所称的工作人员是指与本单位签订劳动合同的全部人员"
    runs = [
        line("二、附则", 0),
        line("本办法由办公室负责解释，自发布之日起施行，原有的规定同时废止", 12),
        line(full, 24),
        line("和其他人员。", 36),
    ]
    blocks, _ = page_blocks(1, runs, plain_regions(runs))
    assert [block.text.split("\n")[0][:8] for block in blocks] == [
        "二、附则",
        "本办法由办公室负",
        "一、本办法所称的",
    ]


def test_code_in_a_bold_heading_leaves_it_a_heading(tmp_path: Path) -> None:
    lines = (
        (("hebo", "2.1. Coercion to and from "), ("cour", "zoo")),
        (("helv", "The function is the inverse of the other one."),),
        (("hebo", "Use: "), ("cour", "plot.zoo(x, log = y)")),
        (("helv", "The second is an entry of a list of options."),),
    )
    with pymupdf.open() as document:
        drawn = document.new_page()
        for at, parts in enumerate(lines):
            x = 72.0
            for font, text in parts:
                drawn.insert_text((x, 72 + 40 * at), text, fontname=font, fontsize=11)
                x += pymupdf.get_text_length(text, font, 11)
        document.save(path := tmp_path / "code.pdf")
    facts = PdfLoader(profile="fast").load(path, "code.pdf")
    assert [b.title for b in facts.blocks if b.kind == "heading"] == [
        "2.1. Coercion to and from zoo"
    ]
