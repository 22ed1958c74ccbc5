"""The second reading of PDF blocks: comparison with the words that another engine finds in their
rectangles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rag_platform.errors import DocumentError
from rag_platform.ir import Block
from rag_platform.loaders.archives import Reading
from rag_platform.loaders.pdf import pdfium
from rag_platform.loaders.pdf.assembly import group_by_page
from rag_platform.loaders.pdf.opening import open_page, open_pdf, unrotate
from rag_platform.loaders.pdf.pdfium import Word
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.characters import all_runs
from rag_platform.loaders.pdf.printed.runs import area, group_while
from rag_platform.loaders.word_comparison import (
    Likeness,
    Line,
    compare_words,
    describe_problem,
    has_all_letters,
    is_unmapped,
    pieces,
)

_MIN_READ = 0.25  # share of a block's letters below which an engine cannot read the place
_MAX_STRAY = 0.1  # share of words that may belong to a neighbouring block
_MARGIN = 1.0  # points by which engines may differ in the rectangle of a character


def reread(
    path: Path, loader: str, text: str, blocks: Sequence[Block]
) -> tuple[dict[int, str], dict[int, str]]:
    """(ordinal to reason of blocks that another engine reads differently, of those it cannot read).

    PDFium rereads what MuPDF read, and vice versa. Pass all blocks of a page. Raises DocumentError
    if MuPDF cannot open the file; what PDFium cannot open is unread.
    """
    _, pages = group_by_page(blocks)
    otherwise: dict[int, str] = {}
    unread: dict[int, str] = {}
    read = pdfium.read_words if loader == "pdf" else _read_words
    with ExitStack() as files:
        document = files.enter_context(open_pdf(path)) if loader == "pdfium" else None
        for number, group in pages.items():
            words: list[Word] = []
            with Reading("stage.second_reading") as reading:
                if document is None:
                    document = files.enter_context(pdfium.open_pdf(path))
                words = read(document, number)
            if reading.error is not None:
                # a DocumentError is a sentence of its own, with a remedy for whoever ingests
                detail = "" if isinstance(reading.error, DocumentError) else f" ({reading.reason})"
                why = f"page {number}: it cannot be read{detail}"
                unread.update({block.ordinal: why for block in group})
                continue
            for block, inside, likeness in compare_blocks(text, group, words):
                block_text = text[block.start : block.end]
                if not (reason := describe_problem(block.kind, likeness)):
                    continue
                line = Line.of(block_text.split())
                only_missing = not likeness.torn and not likeness.misplaced
                if only_missing and has_all_letters(line, inside):
                    continue
                if is_unmapped(block_text) or _has_unmapped_font(words):
                    why = f"page {number}: a font does not say which letters it draws"
                    unread[block.ordinal] = why
                elif _is_incomplete(inside, line):
                    unread[block.ordinal] = (
                        f"page {number}: some of its text is not read, such as form fields or what"
                        " is printed twice"
                    )
                else:
                    otherwise[block.ordinal] = f"page {number}: {reason}"
    return otherwise, unread


def _has_unmapped_font(words: Sequence[Word]) -> bool:
    texts = [word.text for word in words]
    return is_unmapped("".join(texts)) or bidi.is_garbled(texts)


def _is_incomplete(inside: Line, block: Line) -> bool:
    """True if an engine finds hardly a letter of a block, or fewer words and hardly any other."""
    own, other = Counter(block.words()), Counter(inside.words())
    if len(inside.letters) < _MIN_READ * len(block.letters):
        return True
    return other.total() < own.total() and (other - own).total() <= _MAX_STRAY * other.total()


def _read_words(document: Any, number: int) -> list[Word]:
    """The words of a page, from 1, as MuPDF reads them."""
    page = open_page(document, number - 1)
    unrotate(page)
    words = [Word(word, (x0, y0, x1, y1)) for x0, y0, x1, y1, word, *_ in page.get_text("words")]
    if any(bidi.has_rtl(word.text) for word in words):
        return list(pdfium.order_words(all_runs(page)))
    return words


def compare_blocks(
    text: str, blocks: Sequence[Block], words: Sequence[Word]
) -> Iterator[tuple[Block, Line, Likeness]]:
    """(block, the words in its rectangle, how far they agree); pass all blocks of a page."""
    whole = Line.of(word.text for word in words)
    for block, inside in zip(blocks, _assign_words(words, text, blocks), strict=True):
        orders = {  # most often all three are the same
            tuple(word.text for word in order): None
            for order in (inside, _by_lines(inside), _by_lines(inside, margins=True))
        }
        readings = [Line.of(order) for order in orders]
        likeness = Likeness()
        for piece in pieces(block.kind, text[block.start : block.end]):
            likeness += compare_words(piece, readings, whole)
        yield block, readings[0], likeness


def _assign_words(words: Sequence[Word], text: str, blocks: Sequence[Block]) -> list[list[Word]]:
    """The words whose centre lies in each block's rectangle. Of several rectangles, the smallest
    whose block has the word gets it, else the smallest: that of a watermark lies on other text.
    """
    order = sorted(
        (area(block.bbox), number, block.bbox)
        for number, block in enumerate(blocks)
        if block.bbox is not None
    )
    block_words = [set(text[block.start : block.end].split()) for block in blocks]
    owned: list[list[Word]] = [[] for _ in blocks]
    for word in words:
        x, y = (word.box[0] + word.box[2]) / 2, (word.box[1] + word.box[3]) / 2
        candidates = [
            number
            for _, number, box in order
            if box[0] - _MARGIN <= x <= box[2] + _MARGIN
            and box[1] - _MARGIN <= y <= box[3] + _MARGIN
        ]
        if candidates:
            owner = min(candidates, key=lambda number: word.text not in block_words[number])
            owned[owner].append(word)
    return owned


def _by_lines(words: Sequence[Word], *, margins: bool = False) -> list[Word]:
    """The words line by line. A word belongs to a line if its middle is at the height of the first
    word, and with `margins` also if the reverse holds, as for small print in a margin.
    """
    lines = group_while(
        sorted(words, key=lambda word: word.box[1] + word.box[3]),
        lambda line, word: _is_beside(word, line[0]) or (margins and _is_beside(line[0], word)),
    )
    rtl = bidi.is_rtl_text(" ".join(word.text for word in words))
    return [
        word for line in lines for word in sorted(line, key=lambda word: word.box[0], reverse=rtl)
    ]


def _is_beside(word: Word, other: Word) -> bool:
    return other.box[1] <= (word.box[1] + word.box[3]) / 2 <= other.box[3]
