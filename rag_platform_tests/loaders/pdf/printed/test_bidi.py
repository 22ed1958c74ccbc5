"""Text written from right to left: typed order whatever order the file stores, words and cells
whole, proved again.
"""

from __future__ import annotations

import pymupdf
import pytest

from rag_platform.documents.kept_text import tokens
from rag_platform.loaders.pdf import mupdf, pdfium, tables
from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.pdfium import PdfiumLoader, read_words
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.lines import line_text, visual_lines
from rag_platform.loaders.pdf.printed.runs import Char, Run
from rag_platform.loaders.pdf.regions import Region, matches_print, region_letters
from rag_platform.loaders.pdf.second_reading import reread
from rag_platform.text.scripts import letters
from rag_platform_tests.glyphs import seen, write_glyphs


def run(text: str, x: float = 0.0, y: float = 0.0, *, rtl: bool = True) -> Run:
    """A line of 10-point text as it is seen, from left to right."""
    chars = tuple(Char(char, x + i * 5, y, x + (i + 1) * 5, y + 10) for i, char in enumerate(text))
    return Run(chars, 0, 10, False, False, True, rtl)


def typed(text: str, *, rtl: bool = True) -> str:
    return line_text(visual_lines([run(text, rtl=rtl)])[0])


# --- a line -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        ("םלוע םולש", "שלום עולם"),
        ("2024 תנשב", "בשנת 2024"),
        ("םע 12.5% לש רועישב", "בשיעור של 12.5% עם"),
        ("ملاع يف %12.5 ةبسنب", "بنسبة 12.5% في عالم"),
        # UAX 9 sets the parts of a date with hyphens leftwards in Arabic,
        ("12-05-2024 خيراتب", "بتاريخ 2024-05-12"),
        ("2024-05-12 ךיראתב", "בתאריך 2024-05-12"),  # but not in Hebrew
        ("10 20 םירפסמ", "מספרים 20 10"),
        ("٢٠٢٤ ماع Python ةغل", "لغة Python عام ٢٠٢٤"),
        ("םויה Python 3.11 ךותב", "בתוך Python 3.11 היום"),
        ("Python (CPython) תפש", "שפת Python (CPython)"),
        (".(רחא) info@example.com ראוד", "דואר info@example.com (אחר)."),
        ("!םולש", "שלום!"),
        # the space of the Latin word drawn on its other side
        ("ןמPython ו R הפש", "שפה R ו Python מן"),
    ],
)
def test_a_line_reads_as_it_is_typed(drawn, expected):
    assert typed(drawn) == expected


def test_brackets_named_as_they_are_drawn_or_as_they_are_typed_open_alike():
    assert typed("(דחא) (םייתש) הנה") == typed(")דחא( )םייתש( הנה") == "הנה (שתיים) (אחד)"
    assert typed("ד(3) ג(2)ב") == "ב(2)ג (3)ד"
    # spaces on both sides of every bracket show nothing: the way that makes a pair counts
    assert typed("( דחא ) הנה") == typed(") דחא ( הנה") == "הנה ( אחד )"


def test_words_of_the_other_direction_keep_their_place_in_a_paragraph():
    assert (
        typed("The word םולש, which means peace", rtl=False) == "The word שלום, which means peace"
    )
    assert typed("says 2024 תנשב םולש and more", rtl=False) == "says 2024 שלום בשנת and more"
    assert (
        typed("machine learning in a long English line with הלימ", rtl=True)
        == "machine learning in a long English line with מילה"
    )


def test_a_line_of_latin_words_in_a_paragraph_written_leftwards_keeps_its_end_mark():
    lines = visual_lines([run("בותכל רשפא", 0, 0), run(".Python 3", 5, 14)])
    assert [line_text(line) for line in lines] == ["אפשר לכתוב", "Python 3."]


def test_a_line_of_latin_words_at_the_left_edge_is_read_rightwards():
    leftward = "הלימ רחא הלימ תבתכנ ןאכ לארשיב יתנשה חודה לש ןושארה ףיעסב"
    english = "The word םולש is one of this line of words."
    lines = visual_lines([run(leftward, 0, 0), run(leftward, 0, 14), run(english, 0, 28)])
    assert line_text(lines[2]) == "The word שלום is one of this line of words."


def test_text_of_one_direction_stays_as_it_is():
    plain = run("f(x) = [1, 2] ++C", rtl=False)
    assert visual_lines([plain]) == [[plain]]


# --- a file -------------------------------------------------------------------------------------


ARABIC = "محمد في البيت"


def test_both_orders_of_storing_a_line_read_alike_though_no_font_draws_it(tmp_path):
    drawn = seen(ARABIC[::-1])
    for order in (drawn, drawn[::-1]):
        path = write_glyphs(tmp_path / "x.pdf", order)
        facts = PdfLoader(profile="fast").load(path, "x.pdf")
        assert facts.text == ARABIC
        assert PdfLoader().verify_blocks(path, facts.text, facts.blocks) == {}


def test_drawn_forms_are_letters_and_ligatures_keep_their_order(tmp_path):
    # lam and alef as one glyph, once as the form U+FEFC, once as two characters of the font's
    # table; seen from left to right: سلام عالم
    form = [("\ufee1", 100, 6), ("\ufefc", 106, 7), ("\ufeb3", 113, 8)]
    letters = [("م", 200, 6), ("لا", 206, 7), ("س", 213, 8)]
    for order in ([*form, *letters], [*letters[::-1], *form[::-1]]):
        path = write_glyphs(tmp_path / "x.pdf", order)
        facts = PdfLoader(profile="fast").load(path, "x.pdf")
        assert facts.text.split() == ["سلام", "سلام"]
        assert PdfLoader().verify_blocks(path, facts.text, facts.blocks) == {}


def test_marks_follow_their_letter(tmp_path):
    # "בָּא" shaped from left to right: the marks are drawn without width before the letter that
    # they belong to
    path = write_glyphs(
        tmp_path / "x.pdf",
        [("א", 100, 6), ("\u05b8", 106, 0.01), ("ב", 106, 6), (" ", 112, 4), *seen("םולש", 116)],
    )
    assert PdfLoader(profile="fast").load(path, "x.pdf").text == "שלום בָא"


def test_marks_at_the_ends_of_words_stay_in_their_word(tmp_path):
    # MuPDF puts a mark that is drawn before the last letter of a word behind the next space, and
    # that of a line before its first letter; seen from left to right: "אבָ עגִ"
    left = [("\u05b4", 91, 0.01), ("ג", 90, 6), ("ע", 96, 6)]
    right = [("\u05b8", 107, 0.01), ("ב", 106, 6), ("א", 112, 6)]
    path = write_glyphs(tmp_path / "x.pdf", [*left, *right], simple=True)
    assert PdfLoader(profile="fast").load(path, "x.pdf").text == "אבָ עגִ"


def test_an_alef_without_width_stands_behind_its_lam(tmp_path):
    # fonts that draw the ligature as two glyphs place the second one where the first one begins,
    # which is also where the next letter ends; seen from left to right: سلام للأمل
    path = write_glyphs(
        tmp_path / "x.pdf",
        [("ل", 60, 6), ("م", 66, 6), ("أ", 72, 0.01), ("ل", 72, 7), ("ل", 79, 6)],
        [("م", 100, 6), ("ا", 106, 0.01), ("ل", 106, 7), ("س", 113, 8)],
    )
    assert PdfLoader(profile="fast").load(path, "x.pdf").text.split() == ["للأمل", "سلام"]


def test_a_mark_that_is_set_far_away_does_not_move_its_letter(tmp_path):
    # the mark at 130 belongs to the last letter of ضمان, seen from left to right
    path = write_glyphs(
        tmp_path / "x.pdf",
        [("\u064b", 130, 0.01), ("ن", 100, 6), ("ا", 106, 3), ("م", 109, 6), ("ض", 115, 9)],
    )
    assert letters(PdfLoader(profile="fast").load(path, "x.pdf").text) == "ضمان"


def test_digits_of_two_kinds_are_one_number():
    # some fonts say ٦ for ۶: European and Arabic digits to UAX 9, which are set alike
    assert typed("۸۸۷۷٦٦۵۵ نفلت") == "تلفن ۸۸۷۷٦٦۵۵"


def test_the_words_of_a_leftward_line_are_compared_from_the_right_on(tmp_path):
    # the second reader stores the words of a line in an order of its own
    words = ["الجهاز", "يعمل", "على", "منفذ", "رقم", "ثمانية", "دائما"]
    path = tmp_path / "x.pdf"
    glyphs, x = [], 80.0
    for word in reversed(words):
        glyphs.append(seen(word[::-1], x))
        x += 6 * len(word) + 4
    stored = [glyph for at in (2, 0, 4, 1, 6, 3, 5) for glyph in glyphs[at]]
    write_glyphs(path, stored, simple=True)
    facts = PdfLoader(profile="fast").load(path, "x.pdf")
    assert facts.text == " ".join(words)
    assert reread(path, "pdf", facts.text, facts.blocks) == ({}, {})
    for forged in ([*words[3:], *words[:3]], words[::-1]):
        otherwise, _ = reread(path, "pdf", " ".join(forged), facts.blocks)
        assert "a different order" in otherwise[0]


PARAGRAPHS = (
    (
        "המכירות עלו בשנת 2024 בשיעור של 12.5% לעומת השנה הקודמת (לאחר מס) והגיעו לסכום של"
        " 1,250,000 שקלים בכל הארץ."
    ),
    (
        "שפת התכנות Python היא כלי חזק, ואפשר להשתמש בספרייה pandas עם Python 3.11 לניתוח נתונים"
        " (ראו נספח ב)."
    ),
)


@pytest.mark.parametrize("profile", ["layout", "fast"])
def test_shaped_paragraphs_come_out_as_they_were_typed(tmp_path, profile):
    path = tmp_path / "x.pdf"
    with pymupdf.open() as document:
        document.new_page().insert_htmlbox(
            (60, 60, 530, 700), "".join(f'<p dir="rtl">{text}</p>' for text in PARAGRAPHS)
        )
        document.save(path)
    loader = PdfLoader(profile=profile)
    facts = loader.load(path, "x.pdf")
    assert facts.text.split() == " ".join(PARAGRAPHS).split()
    assert PdfLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    with pdfium.open_pdf(path) as document:
        words = [word.text for word in read_words(document, 1)]
    assert sorted(filter(str.isalpha, words)) == sorted(
        word for word in " ".join(PARAGRAPHS).split() if word.isalpha()
    )
    assert letters(PdfiumLoader().load(path, "x.pdf").text) == letters(" ".join(PARAGRAPHS))


@pytest.mark.parametrize("page_texts", [pdfium.page_texts, mupdf.page_texts])
def test_the_second_reading_of_a_page_is_as_it_was_typed(tmp_path, page_texts):
    path = tmp_path / "x.pdf"
    with pymupdf.open() as document:
        document.new_page().insert_htmlbox(
            (60, 60, 530, 700), "".join(f'<p dir="rtl">{text}</p>' for text in PARAGRAPHS)
        )
        document.save(path)
    ((page, text),) = page_texts(path, 0, 1)
    assert page == 1
    assert list(tokens(text)) == list(tokens(" ".join(PARAGRAPHS)))


@pytest.mark.parametrize("backwards", [False, True])
def test_engines_agree_on_a_ligature_in_whatever_order_it_is_stored(tmp_path, backwards):
    # one glyph that means lam and alef, typed خلال قال
    typed_order = [
        ("خ", 130, 6),
        ("لا", 123, 7),
        ("ل", 117, 6),
        (" ", 113, 4),
        ("ق", 107, 6),
        ("ا", 101, 6),
        ("ل", 95, 6),
    ]
    path = write_glyphs(
        tmp_path / "x.pdf", typed_order[::-1] if backwards else typed_order, simple=True
    )
    for name, loader in (("pdf", PdfLoader(profile="fast")), ("pdfium", PdfiumLoader())):
        facts = loader.load(path, "x.pdf")
        assert facts.text == "خلال قال"
        assert reread(path, name, facts.text, facts.blocks) == ({}, {})
    assert [
        list(tokens(text))
        for engine in (mupdf, pdfium)
        for _, text in engine.page_texts(path, 0, 1)
    ] == [["خلال", "قال"]] * 2


def test_each_column_of_a_page_in_two_directions_is_read_again_in_its_own(tmp_path):
    path = tmp_path / "x.pdf"
    english = (
        "Sales of 1,250,000 dollars (after tax) in 2024, up 12.5% over the year before; see"
        " appendix B for C++ and Python. " * 4
    )
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_htmlbox((50, 80, 285, 700), f"<p>{english}</p>")
        page.insert_htmlbox((310, 80, 545, 700), f'<p dir="rtl">{" ".join(PARAGRAPHS)}</p>')
        document.save(path)
    for name, loader in (("pdf", PdfLoader(profile="fast")), ("pdfium", PdfiumLoader())):
        facts = loader.load(path, "x.pdf")
        assert reread(path, name, facts.text, facts.blocks) == ({}, {})


# --- tables and columns -------------------------------------------------------------------------


def test_cells_stay_whole_and_the_first_column_is_the_rightmost():
    rows = [
        ("סכום כולל", "עיר מגורים", "שם מלא"),
        ("1,250", "תל אביב", "משה כהן"),
        ("980", "באר שבע", "שרה לוי"),
    ]
    runs = [
        run(cell[::-1] if not cell[0].isdigit() else cell, 100.0 * column, 20.0 * number)
        for number, row in enumerate(rows)
        for column, cell in enumerate(row)
    ]
    reversed_words = [
        piece._replace(chars=piece.chars[::-1]) if not piece.text[0].isdigit() else piece
        for piece in runs
    ]
    for stored in (
        runs,
        reversed_words,
        [runs[0]._replace(chars=tuple(c for piece in runs[:3] for c in piece.chars)), *runs[3:]],
    ):
        text = tables.table_text(
            stored, Region((0, 0, 400, 60), "table", ((80.0, 180.0), (15.0, 35.0))), frozenset()
        )
        assert text.splitlines() == [
            "| שם מלא | עיר מגורים | סכום כולל |",
            "| --- | --- | --- |",
            "| משה כהן | תל אביב | 1,250 |",
            "| שרה לוי | באר שבע | 980 |",
        ]
        assert matches_print("table", text, region_letters(stored))


def test_columns_are_read_from_the_rightmost_on(tmp_path):
    path = tmp_path / "x.pdf"
    right, left = (
        "ראשון בטור הימני כתוב כאן לאורך כמה שורות. " * 9,
        "שני בטור השמאלי כתוב כאן לאורך כמה שורות. " * 9,
    )
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_htmlbox((50, 80, 285, 700), f'<p dir="rtl">{left}</p>')
        page.insert_htmlbox((310, 80, 545, 700), f'<p dir="rtl">{right}</p>')
        document.save(path)
    text = PdfLoader().load(path, "x.pdf").text
    assert text.rindex("הימני") < text.index("השמאלי")


@pytest.mark.parametrize(
    ("words", "garbled"),
    [
        ("كAتب أول مrsحTy عrبTy نRAجT", True),  # an engine that knows no names of glyphs
        ("واجهة الـAPI للنماذج", False),
        ("العالم العربي بالذكرى", False),
        ("one mixedا word among Latin ones", False),
    ],
)
def test_words_that_a_reader_garbled_are_told_from_joined_ones(words: str, garbled: bool) -> None:
    assert bidi.is_garbled(words.split()) == garbled
