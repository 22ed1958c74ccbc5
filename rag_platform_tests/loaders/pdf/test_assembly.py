"""Running headers and footers: what repeats over pages is set aside, what is said once stays, and
so do the first of lines whose words stand nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pymupdf
import pytest

from rag_platform.config.ingestion import CleaningConfig
from rag_platform.loaders.pdf.assembly import Edge, find_running_edges
from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.pages import PageBlock, PageFacts
from rag_platform.loaders.pdf.pdfium import PdfiumLoader
from rag_platform.normalisation.edits import normalise


def page(number: int, *blocks: tuple[float, str], kind: str = "paragraph") -> PageFacts:
    """A page with one-line blocks at the given heights."""
    return PageFacts(
        number, tuple(PageBlock(kind, text, (72, y, 400, y + 10)) for y, text in blocks), (), "raw"
    )


def running(pages: Sequence[PageFacts]) -> list[str]:
    """The texts of running headers and footers, in order, those that stay among them."""
    return [pages[number - 1].blocks[at].text for number, at in sorted(find_running_edges(pages))]


def staying(pages: Sequence[PageFacts]) -> list[str]:
    """Those of them that stay text."""
    found = find_running_edges(pages)
    return [
        pages[number - 1].blocks[at].text
        for number, at in sorted(found)
        if not found[number, at].repeated
    ]


def test_words_with_the_page_number_repeat():
    pages = [
        page(n, (40, "Annual report"), (100, f"text {n}"), (800, f"Page {n + 2} of 9"))
        for n in (1, 2, 3)
    ]
    assert find_running_edges(pages) == {
        (1, 0): Edge("header", repeated=False),  # nothing else says it
        (1, 2): Edge("footer", number="3"),
        (2, 0): Edge("header"),
        (2, 2): Edge("footer", number="4"),
        (3, 0): Edge("header"),
        (3, 2): Edge("footer", number="5"),
    }


@pytest.mark.parametrize(
    "numbers",
    [
        ("i", "ii", "iii", "iv"),
        ("XI", "XII", "XIII", "XIV"),
        ("9", "10", "11", "12"),
        ("A-1", "A-2", "A-3", "A-4"),
    ],
)
def test_a_page_number_alone_is_one_in_digits_and_roman(numbers):
    assert running(
        [page(n, (100, f"text of {n}"), (800, number)) for n, number in enumerate(numbers, 1)]
    ) == list(numbers)


@pytest.mark.parametrize("loader", [PdfLoader("fast"), PdfiumLoader()])
@pytest.mark.parametrize(
    ("rules", "footers", "labels"),
    [
        (
            "0<</S/r/St 3>>2<</P<FEFF9644002F>>>3<</S/D/P(A\\(1/)>>4<</S/D/St 5>>",
            "12345",
            ("iii", "iv", "附/", "A(1/1", "5"),
        ),
        ("0<</S/D>>", ("", "", "1", "2", "3"), ("", "", "1", "2", "3")),
        ("", ("", "- i -", "- ii -", "- iii -", ""), ("", "i", "ii", "iii", "")),
        ("", "12345", ()),
        ("", ("1", "2", "III", "4", "5"), ()),
        ("0<</P(the name of the picture.eps)>>", [""] * 5, ()),
        ("0<</P<FEFF202E0041>>>2<</S/D>>", [""] * 5, ("", "", "1", "2", "3")),
    ],
)
def test_pages_keep_the_labels_of_the_file_or_else_the_numbers_printed_on_them(
    tmp_path: Path, loader: PdfLoader | PdfiumLoader, rules, footers, labels
) -> None:
    with pymupdf.open() as made:
        for number, footer in enumerate(footers, 1):
            sheet = made.new_page(width=300, height=300)
            sheet.insert_text((50, 100), f"{'abcdef'[number]} is written here.")
            sheet.insert_text((140, 280), footer)
        if rules:
            made.xref_set_key(made.pdf_catalog(), "PageLabels", f"<</Nums[{rules}]>>")
        made.save(tmp_path / "book.pdf")
    facts = loader.load(tmp_path / "book.pdf", "book.pdf")
    assert facts.summary.page_labels == labels


def test_left_and_right_pages_and_a_page_without_one():
    heads = {
        1: "Chapter one",
        2: "The book",
        3: "Chapter one",
        4: "The book",
        5: "Chapter one",
        7: "Chapter one",
        8: "The book",
    }
    pages = [
        page(n, *([(40, heads[n])] if n in heads else []), (300, f"text {n}")) for n in range(1, 9)
    ]
    assert running(pages) == [heads[n] for n in sorted(heads)]


@pytest.mark.parametrize(
    "line",
    [
        # more differs than the number of the page
        "Slide {n}: the budget for unit U{n:02d} is {m} EUR",
        "Invoice 2024-{n:04d}",  # no page number has zeros in front
        "Total {n}.50 EUR",
        "Item U{n}",
        "Record {n}",
    ],
)
def test_a_line_of_one_form_with_facts_in_it_stays(line):
    assert (
        running(
            [page(n, (40, line.format(n=n, m=n * 1000)), (300, f"text {n}")) for n in range(1, 8)]
        )
        == []
    )


def test_other_words_with_a_page_number_repeat_where_the_model_says_so_too():
    pages = [page(n, (40, f"{n} ANNUAL REPORT"), kind="header") for n in (1, 2, 3)]
    pages = [
        PageFacts(
            p.page, (*p.blocks, *page(p.page, (300, f"text of {p.page}")).blocks), (), "layout"
        )
        for p in pages
    ]
    assert running(pages) == ["1 ANNUAL REPORT", "2 ANNUAL REPORT", "3 ANNUAL REPORT"]


@pytest.mark.parametrize(
    "line",
    [
        "Page {n} of 9",
        "- {n} -",
        "[{n}]",
        "p. {n}",
        "{n}/12",
        "第 {n} 页 共 9 页",
        "Seite {n} von 9",
        "Стр. {n}",
    ],
)
def test_page_numbers_have_these_shapes(line):
    pages = [page(n, (300, "abc"[n - 1]), (800, line.format(n=n))) for n in (1, 2, 3)]
    assert running(pages) == [line.format(n=n) for n in (1, 2, 3)]


def test_numbers_that_do_not_grow_with_the_page_stay():
    assert (
        running(
            [
                page(n, (40, f"Dose {dose}"), (300, f"text {n}"))
                for n, dose in enumerate((7, 3, 9, 4), 1)
            ]
        )
        == []
    )


def test_twice_is_no_habit_and_neither_are_pages_far_apart():
    assert running([page(n, (40, "Same words"), (300, f"text {n}")) for n in (1, 2)]) == []
    far = [
        page(n, *([(40, "None.")] if n % 10 == 0 else []), (300, f"text {n}")) for n in range(1, 41)
    ]
    assert running(far) == []


def test_another_height_is_another_place():
    assert (
        running([page(n, (40 + 30 * n, "Same words"), (700, f"text {n}")) for n in (1, 2, 3)]) == []
    )


def test_chapters_are_counted_like_pages_and_stay():
    pages = [page(n, (40, f"Chapter {n}"), kind="heading") for n in range(1, 5)]
    assert running(pages) == []


def test_a_chapter_with_the_page_number_repeats_also_in_bold():
    pages = [
        page(n, (40, f"{n} Chapter 2. Setup"), (100, f"text {n}"), kind="heading")
        for n in (1, 2, 3)
    ]
    assert running(pages) == [f"{n} Chapter 2. Setup" for n in (1, 2, 3)]


def test_a_repeated_line_behind_text_of_the_page_stays():
    pages = [
        page(n, (40, f"facts of {n}"), (60, "Terms apply"), (300, "body " * n)) for n in (1, 2, 3)
    ]
    assert running(pages) == []


def test_the_only_text_of_a_page_stays_although_it_repeats():
    pages = [
        page(n, (40, "Annual report"), *([(300, f"text of {n}")] if n != 2 else []), (800, str(n)))
        for n in range(1, 5)
    ]
    assert running(pages) == ["Annual report", "1", "Annual report", "3", "Annual report", "4"]


def test_footnotes_and_a_contact_between_text_and_page_number_stay():
    pages = [
        page(n, (300, f"text {n}"), (760, f"{n}) Source: survey {n * 7}."), (800, f"- {n} -"))
        for n in (1, 2, 3)
    ]
    assert running(pages) == ["- 1 -", "- 2 -", "- 3 -"]


def test_a_line_that_says_what_the_text_says_too_stays_out_everywhere() -> None:
    pages = [page(n, (40, "ANNUAL REPORT"), (300, f"The annual\nreport, {n}")) for n in (1, 2, 3)]
    assert running(pages) == ["ANNUAL REPORT"] * 3
    assert staying(pages) == []


def test_a_line_with_its_page_number_stays_once_whatever_the_number() -> None:
    pages = [page(n, (90, f"text {n}"), (800, f"Order 4711, page {n} of 3")) for n in (1, 2, 3)]
    assert staying(pages) == ["Order 4711, page 1 of 3"]
    pages = [
        page(n, (90, f"of order 4711: {n}"), (800, f"Order 4711, page {n} of 3")) for n in (1, 2, 3)
    ]
    assert staying(pages) == []


@pytest.mark.parametrize(
    "line", ["Page {} of 3", "- {} -", "{}", "第 {} 页 共 3 页", "Page 1 of 1"]
)
def test_a_line_that_is_but_a_page_number_stays_nowhere(line: str) -> None:
    pages = [page(n, (90, f"text {'abc'[n - 1]}"), (800, line.format(n))) for n in (1, 2, 3)]
    assert len(running(pages)) == 3
    assert staying(pages) == []


# --- whole files, with the layout model, whose labels are hints ---------------------------------


def kept_text(path: Path, profile: str) -> str:
    facts = PdfLoader(profile=profile).load(path, path.name)
    return normalise(facts, (), CleaningConfig()).text


@pytest.mark.parametrize("profile", ["layout", "fast"])
@pytest.mark.parametrize("height", [72, 770])
def test_one_line_at_the_edge_of_the_only_page_is_kept(tmp_path, profile, height):
    with pymupdf.open() as document:
        document.new_page().insert_text((72, height), "The only line of this letter.")
        document.save(path := tmp_path / "line.pdf")
    assert kept_text(path, profile) == "The only line of this letter."


@pytest.mark.parametrize("profile", ["layout", "fast"])
def test_slides_of_one_form_are_kept_each(tmp_path, profile):
    with pymupdf.open() as document:
        for i in range(1, 6):
            document.new_page().insert_text(
                (72, 200), f"Slide {i}: the budget for unit U{i:02d} is {i * 1000} EUR", fontsize=28
            )
        document.save(path := tmp_path / "slides.pdf")
    facts = PdfLoader(profile=profile).load(path, path.name)
    said = [f"Slide {i}: the budget for unit U{i:02d} is {i * 1000} EUR" for i in range(1, 6)]
    assert [
        line.lstrip("# ")
        for line in normalise(facts, (), CleaningConfig()).text.splitlines()
        if line
    ] == said
    assert facts.summary.title == said[0]
    assert [block.page for block in facts.blocks] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("loader", [PdfLoader(), PdfLoader(profile="fast"), PdfiumLoader()])
def test_what_only_running_lines_say_is_said_once_and_as_text(
    tmp_path: Path, loader: PdfLoader | PdfiumLoader
) -> None:
    with pymupdf.open() as document:
        for number, name in enumerate(("Ada Lovelace", "Grace Hopper", "Alan Turing"), 1):
            sheet = document.new_page(width=842, height=595)
            sheet.insert_text((200, 80), "CERTIFICATE OF COMPLETION", fontsize=28)
            sheet.insert_text((300, 250), name, fontsize=24)
            sheet.insert_text((220, 300), f"has finished course number {number + 6}.")
            sheet.insert_text((220, 540), "Springfield Institute of Technology", fontsize=10)
            sheet.insert_text((400, 570), f"Page {number} of 3", fontsize=8)
        document.save(path := tmp_path / "certificates.pdf")
    facts = loader.load(path, path.name)
    kept = normalise(facts, (), CleaningConfig()).text
    assert [line.lstrip("# ") for line in kept.splitlines() if line] == [
        "CERTIFICATE OF COMPLETION",
        "Ada Lovelace",
        "has finished course number 7.",
        "Springfield Institute of Technology",
        "Grace Hopper",
        "has finished course number 8.",
        "Alan Turing",
        "has finished course number 9.",
    ]
    assert facts.blocks[0].kind == "header"  # a heading would stand over all pages
    assert facts.summary.title == "Ada Lovelace"


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ("(anonymous)", "Annual report"),
        ("0000909832-21-000014", "Annual report"),
        ("f10k2021_final.htm", "Annual report"),
        ("a20230415doc", "Annual report"),
        ("Report of the year 2021", "Report of the year 2021"),
        ("GPT-4", "GPT-4"),
    ],
)
def test_a_publishers_number_is_no_title(tmp_path: Path, given: str, title: str):
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 90), "Annual report", fontsize=24)
        page.insert_text((72, 140), "We sold more of everything than in the year before.")
        document.set_metadata({"title": given})
        document.save(path := tmp_path / "report.pdf")
    assert PdfLoader().load(path, "report.pdf").summary.title == title


def test_an_edge_that_says_what_a_numbered_heading_says_is_a_running_one() -> None:
    def block(kind: str, text: str, top: float) -> PageBlock:
        return PageBlock(kind, text, (50, top, 300, top + 10), 10)

    pages = [
        PageFacts(
            1,
            (
                block("header", "§4.8 Theorems", 30),
                block("heading", "4.8 Theorems", 90),
                block("paragraph", "Each has a name.", 120),
                block("footer", "4.8. Theorems", 800),
            ),
            (),
            "layout",
        ),
        PageFacts(
            2,
            (
                block("header", "Theorems", 30),
                block("heading", "Theorems", 90),
                block("paragraph", "Each is proved.", 120),
            ),
            (),
            "layout",
        ),
    ]
    assert find_running_edges(pages) == {(1, 0): Edge("header"), (1, 3): Edge("footer")}


def head(number: int, *words: str, kind: str = "paragraph", title: str = "") -> PageFacts:
    """A page whose first row has these words beside each other, above a heading or a text."""
    row = [PageBlock(kind, text, (72 + 200 * at, 40, 90, 50)) for at, text in enumerate(words)]
    below = PageBlock("heading", title, (72, 90, 200, 110)) if title else None
    text = PageBlock("paragraph", f"text {'abcdef'[number % 6]}", (72, 200, 400, 210))
    return PageFacts(number, (*row, *([below] if below else []), text), (), "raw")


def test_a_title_beside_the_page_number_is_a_header_whatever_the_chapter() -> None:
    pages = [
        head(1, title="1 Pumps"),
        head(2, "12 Pumps", kind="heading"),
        head(3, "1.1 Valves of steel 13", title="1.1 Valves of steel"),
        head(4, "14", "Chapter 1: Pumps"),
        head(5, "15", "Any words"),
    ]
    assert running(pages) == ["12 Pumps", "1.1 Valves of steel 13", "14", "Chapter 1: Pumps"]
    assert staying(pages) == []


def test_titles_in_the_style_of_the_text_at_one_height_are_headers() -> None:
    pages = [
        head(1, title="1 Pumps"),
        head(2, "1 PUMPS"),
        head(3, "1 PUMPS 1.1 VALVES", title="1.1 Valves"),
        head(4, "1.1 VALVES", title="2 Hoses"),
    ]
    assert running(pages) == ["1 PUMPS", "1 PUMPS 1.1 VALVES", "1.1 VALVES"]
    assert staying(pages) == []
    assert running(pages[:3]) == []


def test_numbered_headings_on_pages_of_the_same_number_stay() -> None:
    titles = ("1 Pumps", "2 Valves", "3 Hoses")
    assert running([head(n, title, kind="heading") for n, title in enumerate(titles, 1)]) == []


def test_a_note_of_a_page_break_is_no_text() -> None:
    pages = [
        page(1, (90, "print(1)"), (700, "(continues on next page)")),
        page(2, (90, "(continued from previous page)"), (120, "The fee is continued on page 7.")),
    ]
    assert running(pages) == ["(continues on next page)", "(continued from previous page)"]


def test_a_page_number_between_dashes_is_a_footer_and_other_entries_stay() -> None:
    pages = [page(n, (90, f"text {n}"), (800, f"- {n} -"), kind="list") for n in (1, 2, 3)]
    assert running(pages) == ["- 1 -", "- 2 -", "- 3 -"]
    pages = [page(n, (90, f"text {n}"), (800, "- see the index"), kind="list") for n in (1, 2, 3)]
    assert running(pages) == []


def test_files_in_a_pdf_are_named_in_a_warning(tmp_path: Path) -> None:
    with pymupdf.open() as document:
        document.new_page().insert_text((72, 72), "Cover")
        document.embfile_add("prices.csv", b"1,2")
        document.save(tmp_path / "cover.pdf")
    said = "attached files were not read; save and ingest them: prices.csv"
    for loader in (PdfLoader(profile="fast"), PdfiumLoader()):
        assert loader.load(tmp_path / "cover.pdf", "cover.pdf").summary.warnings == (said,)


@pytest.mark.parametrize(
    "line",
    ["ACME Ltd, confidential Page {} of 9", "Handbuch, Seite {}", "内部资料 第 {} 页 共 9 页"],
)
def test_a_number_behind_a_word_for_page_is_a_page_number_among_other_words(line: str) -> None:
    pages = [page(n, (90, f"text {n}"), (800, line.format(n))) for n in (1, 2, 3)]
    assert running(pages) == [line.format(n) for n in (1, 2, 3)]
