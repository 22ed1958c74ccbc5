"""The second reading of PDF blocks: the words that another engine finds in their rectangles, in the
order in which they are printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rag_platform.errors import DocumentError
from rag_platform.ir import Block
from rag_platform.loaders.archives import Reading
from rag_platform.loaders.pdf import assembly
from rag_platform.loaders.pdf.opening import open_pdf, unrotate
from rag_platform.loaders.pdf.pdfium import Word, read_words, split_words
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.characters import all_runs
from rag_platform.loaders.pdf.printed.layers import open_page
from rag_platform.loaders.pdf.printed.lines import order_typed_lines
from rag_platform.loaders.pdf.printed.runs import area
from rag_platform.loaders.word_comparison import (
    Likeness,
    Line,
    compare_words,
    has_all_letters,
    is_unmapped,
    pieces,
    problem,
)

_HARDLY = 0.25  # share of letters below which a reader does not read a place
_STRAY = 0.1  # share of words that may be those of a neighbour
_MARGIN = 1.0  # points by which engines measure the same character apart


def reread(
    path: Path, loader: str, text: str, blocks: Sequence[Block]
) -> tuple[dict[int, str], dict[int, str]]:
    """(ordinal to reason of blocks that another engine reads otherwise, of those it cannot read).

    PDFium reads again what MuPDF read, MuPDF what PDFium read; give whole pages of blocks. Raises
    DocumentError as opening the file does.
    """
    _, pages = assembly.group_by_page(blocks)
    otherwise: dict[int, str] = {}
    unread: dict[int, str] = {}
    for number, found in (_by_pdfium if loader == "pdf" else _by_mupdf)(path, pages):
        if isinstance(found, str):
            unread.update({block.ordinal: f"page {number}: {found}" for block in pages[number]})
            continue
        for block, inside, alike in compare_blocks(text, pages[number], found):
            said = text[block.start : block.end]
            if not (reason := problem(block.kind, alike)):
                continue
            line = Line.of(said.split())
            only_missing = not alike.torn and not alike.misplaced
            if only_missing and has_all_letters(line, inside):
                continue
            if is_unmapped(said) or _knows_no_font(found):
                unread[block.ordinal] = f"page {number}: a font does not say which letters it draws"
            elif _says_less(inside, line):
                unread[block.ordinal] = (
                    f"page {number}: some of its text is not read, such as form fields or what is"
                    " printed twice"
                )
            else:
                otherwise[block.ordinal] = f"page {number}: {reason}"
    return otherwise, unread


def _knows_no_font(words: Sequence[Word]) -> bool:
    texts = [word.text for word in words]
    return is_unmapped("".join(texts)) or bidi.is_garbled(texts)


def _says_less(inside: Line, said: Line) -> bool:
    """True when a reader finds hardly a letter, or fewer words and hardly a new one."""
    own, other = Counter(said.words()), Counter(inside.words())
    if len(inside.letters) < _HARDLY * len(said.letters):
        return True
    return other.total() < own.total() and (other - own).total() <= _STRAY * other.total()


def _by_pdfium(
    path: Path, pages: Mapping[int, Sequence[Block]]
) -> Iterator[tuple[int, list[Word] | str]]:
    """(page, its words or why there are none) as PDFium reads them."""
    for number in pages:
        with Reading("stage.second_reading") as reading:
            yield from list(read_words(path, [number]))
        if reading.error is not None:
            yield number, _say_unreadable(reading)


def _by_mupdf(
    path: Path, pages: Mapping[int, Sequence[Block]]
) -> Iterator[tuple[int, list[Word] | str]]:
    with open_pdf(path) as document:
        for number in pages:
            with Reading("stage.second_reading") as reading:
                page = open_page(document, number - 1)
                unrotate(page)
                words = [
                    Word(word, (x0, y0, x1, y1))
                    for x0, y0, x1, y1, word, *_ in page.get_text("words")
                ]
                if any(bidi.has_leftwards(word.text) for word in words):
                    words = [
                        word
                        for line in order_typed_lines(all_runs(page))
                        for run in line
                        for word in split_words(run)
                    ]
                yield number, words
            if reading.error is not None:
                yield number, _say_unreadable(reading)


def _say_unreadable(reading: Reading) -> str:
    # a refusal of the whole file is a sentence of its own, with a remedy for whoever ingests it
    why = "" if isinstance(reading.error, DocumentError) else f" ({reading.reason})"
    return f"it cannot be read{why}"


def compare_blocks(
    text: str, blocks: Sequence[Block], words: Sequence[Word]
) -> Iterator[tuple[Block, Line, Likeness]]:
    """Each block with the words in its rectangle and how far they agree; give whole pages."""
    whole = Line.of(word.text for word in words)
    for block, inside in zip(blocks, _assign_words(words, text, blocks), strict=True):
        # mostly one and the same
        orders = {
            tuple(word.text for word in order): None
            for order in (inside, _by_lines(inside), _by_lines(inside, margins=True))
        }
        readings = [Line.of(order) for order in orders]
        alike = Likeness()
        for piece in pieces(block.kind, text[block.start : block.end]):
            alike += compare_words(piece, readings, whole)
        yield block, readings[0], alike


def _assign_words(words: Sequence[Word], text: str, blocks: Sequence[Block]) -> list[list[Word]]:
    """The words whose middle lies in each block's rectangle; of several the smallest that says it
    has it, else the smallest: the rectangle of a watermark lies on other text.
    """
    order = sorted(
        (area(block.bbox), number, block.bbox)
        for number, block in enumerate(blocks)
        if block.bbox is not None
    )
    said = [text[block.start : block.end] for block in blocks]
    owned: list[list[Word]] = [[] for _ in blocks]
    for word in words:
        x, y = (word.box[0] + word.box[2]) / 2, (word.box[1] + word.box[3]) / 2
        around = [
            number
            for _, number, box in order
            if box[0] - _MARGIN <= x <= box[2] + _MARGIN
            and box[1] - _MARGIN <= y <= box[3] + _MARGIN
        ]
        if len(around) > 1:
            around.sort(key=lambda number: word.text not in said[number].split())
        if around:
            owned[around[0]].append(word)
    return owned


def _by_lines(words: Sequence[Word], *, margins: bool = False) -> list[Word]:
    """The words line by line; a word is of a line whose first word it stands beside, with `margins`
    also where that one stands beside it, as small print in a margin does.
    """
    lines: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.box[1] + word.box[3]):
        first = lines[-1][0] if lines else word
        if lines and (_stands_beside(word, first) or (margins and _stands_beside(first, word))):
            lines[-1].append(word)
        else:
            lines.append([word])
    leftwards = bidi.is_leftward_text(" ".join(word.text for word in words))
    return [
        word
        for line in lines
        for word in sorted(line, key=lambda word: word.box[0], reverse=leftwards)
    ]


def _stands_beside(word: Word, other: Word) -> bool:
    return other.box[1] <= (word.box[1] + word.box[3]) / 2 <= other.box[3]
