"""Where quotes are printed: the rectangles of exactly their words, by either engine."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from rag_platform.ir import Facts
from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.pdfium import PdfiumLoader
from rag_platform.loaders.pdf.quoting import PageQuote, rotate

TEXT = (
    "The belt stops at once when the hatch opens. The console then names the hatch that is open."
    " Nobody may climb over a belt that has stopped, for it starts again by itself."
)
SECOND = "The console then names the hatch that is open."


def write_page(path: Path, rotation: int = 0) -> Path:
    """A page with a heading, a paragraph of three lines and a table whose cells have two lines."""
    with pymupdf.open() as document:
        page = document.new_page(width=400, height=500)
        page.insert_text((40, 60), "Safety of belts", fontsize=18)
        page.insert_textbox((40, 90, 360, 160), TEXT, fontsize=11)
        for row, cells in enumerate((("Part", "Limit"), ("hatch", "7 cm"), ("belt", "9 cm"))):
            for column, cell in enumerate(cells):
                page.insert_text((40 + 150 * column, 220 + 20 * row), cell, fontsize=11)
        page.set_rotation(rotation)
        document.save(path)
    return path


def locate(path: Path, facts: Facts, quote: str, loader: PdfLoader | PdfiumLoader) -> PageQuote:
    """The rectangles of a quote."""
    start = facts.text.index(quote)
    return loader.locate(path, 1, facts.text, facts.blocks, [(start, start + len(quote))])


def words_inside(path: Path, found: PageQuote) -> str:
    """The words of the page, as it is shown, whose centre lies in a rectangle."""
    with pymupdf.open(path) as document:
        page = document[0]
        page.remove_rotation()
        assert (page.rect.width, page.rect.height) == (found.width, found.height)
        return " ".join(
            text
            for x0, y0, x1, y1, text, *_ in page.get_text("words")
            if any(
                left <= (x0 + x1) / 2 <= right and top <= (y0 + y1) / 2 <= bottom
                for left, top, right, bottom in found.boxes[0]
            )
        )


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("loader", [PdfLoader(profile="fast"), PdfiumLoader()])
def test_the_rectangles_of_a_sentence_hold_its_words_and_no_others(
    tmp_path: Path, loader: PdfLoader | PdfiumLoader, rotation: int
) -> None:
    path = write_page(tmp_path / "belts.pdf", rotation)
    facts = loader.load(path, path.name)
    # the lines of a turned page may be read in another order
    quote = "stops at once when" if rotation else SECOND
    found = words_inside(path, locate(path, facts, quote, loader))
    assert sorted(found.split()) == sorted(quote.split())


def test_a_quote_over_two_lines_has_a_rectangle_for_each(tmp_path: Path) -> None:
    path = write_page(tmp_path / "belts.pdf")
    facts = PdfLoader(profile="fast").load(path, path.name)
    found = locate(path, facts, SECOND, PdfLoader(profile="fast"))
    assert len(found.boxes[0]) == 2
    (_, top, _, _), (_, below, _, _) = found.boxes[0]
    assert below > top


def test_a_word_that_stands_twice_is_the_one_that_is_quoted(tmp_path: Path) -> None:
    path = write_page(tmp_path / "belts.pdf")
    loader = PdfLoader(profile="fast")
    facts = loader.load(path, path.name)
    first = facts.text.index("hatch")
    second = facts.text.index("hatch", first + 1)
    spans = [(first, first + 5), (second, second + 5)]
    boxes = loader.locate(path, 1, facts.text, facts.blocks, spans).boxes
    assert boxes[0] != boxes[1] and len(boxes[0]) == len(boxes[1]) == 1


def test_what_is_not_on_the_page_has_no_rectangle(tmp_path: Path) -> None:
    path = write_page(tmp_path / "belts.pdf")
    loader = PdfLoader(profile="fast")
    facts = loader.load(path, path.name)
    end = len(facts.text)
    assert loader.locate(path, 1, facts.text, facts.blocks, [(end, end)]).boxes == ((),)


def test_rectangles_turn_with_their_page() -> None:
    quote = PageQuote(100, 200, (((10, 20, 30, 40),),))
    assert rotate(quote, 0) is quote
    assert rotate(quote, 90) == PageQuote(200, 100, (((160, 10, 180, 30),),))
    assert rotate(quote, 180) == PageQuote(100, 200, (((70, 160, 90, 180),),))
    assert rotate(quote, 270) == PageQuote(200, 100, (((20, 70, 40, 90),),))
