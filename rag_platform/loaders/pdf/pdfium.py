"""PDF files read with PDFium, for users who cannot accept MuPDF's licence: the same blocks with the
same places, made of text alone.

This module never imports pymupdf. There is no layout model: headings come from the outline, sizes
and weights, and tables stay lines of text. `read_words` is the independent reading against which
blocks read by MuPDF are checked.
"""

from __future__ import annotations

import ctypes
import io
import itertools
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Literal

import pypdfium2
from pypdfium2 import raw

from rag_platform.ir import Block, Box, Facts
from rag_platform.loaders.archives import Reading
from rag_platform.loaders.parts import Engine
from rag_platform.loaders.pdf.assembly import (
    PagedLoader,
    PdfInfo,
    assemble,
    require_pages,
    storable,
    storable_items,
    verify_pages,
)
from rag_platform.loaders.pdf.images import (
    PAGE_PREFIX,
    PLACED,
    PageImage,
    encode_page,
    parse_page_target,
    read_each,
    zoom_of,
)
from rag_platform.loaders.pdf.opening import broken_pdf, encrypted_pdf, require_bytes
from rag_platform.loaders.pdf.pages import PageFacts, page_blocks, page_facts
from rag_platform.loaders.pdf.plain_regions import plain_regions
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.accents import place_accents
from rag_platform.loaders.pdf.printed.bitmap_fonts import BULLET_CODE, MAX_HEIGHT, TALLEST
from rag_platform.loaders.pdf.printed.characters import MONOSPACED, UNKNOWN, clean_char
from rag_platform.loaders.pdf.printed.lines import line_text, mark_bullets, order_lines
from rag_platform.loaders.pdf.printed.runs import Char, Run, clamp_box, round_out, union
from rag_platform.loaders.pdf.quoting import PageQuote, Span, quote_boxes, rotate
from rag_platform.traits import Traits

_LOCK = threading.RLock()  # PDFium serves one thread at a time
_ENCRYPTED = (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY)
_FIXED_PITCH, _FORCE_BOLD = 1, 1 << 18  # font descriptor flags, ISO 32000-1 table 123
_MIN_SINE = 0.9  # of the angle of a line that runs up or down the page
_LINE_END_HYPHEN = 2  # PDFium's code for a hyphen that it takes for hyphenation


@dataclass(frozen=True)
class PdfiumLoader(PagedLoader):
    """Reads PDF files with PDFium, also those with up to 1024 bytes before their magic."""

    max_pages: int = 100_000
    profile: Literal["fast"] = "fast"

    NAME: ClassVar[str] = "pdfium"
    VERSION: ClassVar[str] = "37"
    traits: ClassVar[Traits] = Traits(engine="pdfium")

    @property
    def engine(self) -> Engine:
        """PDFium."""
        return Engine("pdfium", metadata.version("pypdfium2"), self.profile)

    def load(self, path: Path, filename: str) -> Facts:
        """The facts, read in this process without limits; `intake.loading` sets those."""
        info = describe(path, self.max_pages)
        return assemble(load_window(path, 0, info.pages), info, self)

    def locate(
        self, path: Path, page: int, text: str, blocks: Sequence[Block], spans: Sequence[Span]
    ) -> PageQuote:
        """Where spans of the facts are printed on a page; pass all blocks of the page."""
        with open_pdf(path) as document, closing(document[page - 1]) as opened:
            left, bottom, right, top = opened.get_bbox()
            boxes = quote_boxes(read_runs(opened), text, blocks, spans)
            return rotate(PageQuote(right - left, top - bottom, boxes), opened.get_rotation())

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block whose text is not what its rectangle prints."""
        with open_pdf(path) as document:

            def read(number: int) -> list[Run]:
                with closing(document[number - 1]) as page:
                    return read_runs(page)

            return verify_pages(text, blocks, len(document), read)


@contextmanager
def open_pdf(path: Path) -> Iterator[Any]:
    """The opened PDF, locked to this thread. Raises `empty_file`, `broken_file`, `encrypted`."""
    require_bytes(path)
    with _LOCK:
        try:
            document = pypdfium2.PdfDocument(path)
        except pypdfium2.PdfiumError as error:
            if getattr(error, "err_code", None) in _ENCRYPTED:
                raise encrypted_pdf() from error
            raise broken_pdf(error, path) from error
        with closing(document):
            yield document


def describe(path: Path, max_pages: int = 100_000) -> PdfInfo:
    """Pages, metadata and outline. Raises like `open_pdf`, and `too_many_pages`."""
    with open_pdf(path) as document:
        require_pages(len(document), max_pages)
        items = document.get_metadata_dict(skip_empty=True).items()
        values = storable_items((str(key).lower(), value) for key, value in items)
        return PdfInfo(
            len(document), values, _outline(document), _attached(document), _labels(document)
        )


def _outline(document: Any) -> tuple[tuple[int, str, int], ...]:
    """(level, title, page) of each outline entry; () for a broken outline."""
    entries: list[tuple[int, str, int]] = []
    try:
        for mark in document.get_toc():
            target = mark.get_dest()
            page = target.get_index() if target else None
            if page is not None:
                entries.append((mark.level + 1, storable(mark.get_title()), page + 1))
    except (pypdfium2.PdfiumError, UnicodeDecodeError, ValueError):
        return ()
    return tuple(entries)


def _attached(document: Any) -> tuple[str, ...]:
    """The names of the attached files; () for a broken list."""
    try:
        found = [document.get_attachment(at) for at in range(document.count_attachments())]
        return tuple(storable(item.get_name()) for item in found)
    except (pypdfium2.PdfiumError, UnicodeDecodeError):
        return ()


def _labels(document: Any) -> tuple[str, ...]:
    """The label of each page; () for broken labels."""
    try:
        return tuple(storable(document.get_page_label(at)) for at in range(len(document)))
    except (pypdfium2.PdfiumError, UnicodeDecodeError):
        return ()


def load_window(
    path: Path, first: int, last: int, on_page: Callable[[PageFacts], None] | None = None
) -> list[PageFacts]:
    """The pages [first, last), from 0; a page that cannot be read is marked as failed.

    With `on_page` each page is passed to it as soon as it is read, and none is returned.
    """
    result: list[PageFacts] = []
    with open_pdf(path) as document:
        for number in range(first, last):
            (on_page or result.append)(_read_page(document, number))
    return result


def _read_page(document: Any, number: int) -> PageFacts:
    with Reading("stage.loader") as reading, closing(document[number]) as page:
        runs = read_runs(page)
        blocks, warnings = page_blocks(number + 1, runs, plain_regions(runs))
        images = [PageImage(PLACED, bbox) for _, bbox in _find_images(page)]
    if reading.error is not None:
        warning = f"page {number + 1}: raw reading failed ({reading.reason})"
        return PageFacts(number + 1, (), (), "failed", (warning,))
    return page_facts(number + 1, blocks, images, "raw", warnings)


# --- characters ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Font:
    size: float = 0.0
    mono: bool = True
    bold: bool = True


def read_runs(page: Any) -> list[Run]:
    """The text lines of a page in content order; lines close together share a block number."""
    left, _, _, top = page.get_bbox()
    with closing(page.get_textpage()) as textpage:
        found = mark_bullets(place_accents(list(_read_runs(textpage, left, top))))
    return bidi.mark_rtl(bidi.join_columns(found))


@dataclass(frozen=True, slots=True)
class Word:
    """A printed word and its rectangle in points from the top left of the unrotated page."""

    text: str
    box: Box


def read_words(document: Any, number: int) -> list[Word]:
    """The words of a page, from 1: in logical order on a page with RTL text, else in content order.
    Raises PdfiumError for a broken page.
    """
    with closing(document[number - 1]) as page:
        left, _, _, top = page.get_bbox()
        with closing(page.get_textpage()) as textpage:
            if not bidi.has_rtl(textpage.get_text_range()):
                return list(_read_words(textpage, left, top))
        return list(order_words(read_runs(page)))


def order_words(runs: Sequence[Run]) -> Iterator[Word]:
    """The words of a page in logical order."""
    for run in itertools.chain(*order_lines(runs)):
        yield from (Word(word.text, word.box) for word in run.words())


def _read_words(textpage: Any, left: float, top: float) -> Iterator[Word]:
    """The words between white space; only their first and last character are measured, as measuring
    is slow.
    """
    word: list[str] = []
    first = 0
    for i, code in itertools.chain(_read_codes(textpage), [(textpage.count_chars(), 32)]):
        hyphen = code == _LINE_END_HYPHEN
        printable = 32 < code < 127 or 160 < code < 0x110000
        char = "-" if hyphen else chr(code) if printable else " "
        if not char.isspace():
            first = first if word else i
            word.append(char)
        elif word:
            yield Word(
                "".join(word),
                union([_box(textpage, first, left, top), _box(textpage, i - 1, left, top)]),
            )
            word = []


def _read_codes(textpage: Any) -> Iterator[tuple[int, int]]:
    """(index, code point) of each character; of a surrogate pair the index of the second half."""
    high = 0
    for i in range(textpage.count_chars()):
        code = raw.FPDFText_GetUnicode(textpage, i)
        if 0xD800 <= code < 0xDC00:
            high = code
            continue
        if 0xDC00 <= code < 0xE000:
            code = 0x10000 + ((high - 0xD800) << 10) + code - 0xDC00 if high else 0xFFFD
        high = 0
        yield i, code


def page_texts(path: Path, first: int, last: int) -> Iterator[tuple[int, str]]:
    """(page, its text in logical order, hidden text included) of [first, last), from 0; "" for a
    broken page.
    """
    with open_pdf(path) as document:
        for number in range(first, min(last, len(document))):
            found = ""
            # loading reports a broken page
            with Reading("stage.loader"), closing(document[number]) as page:
                with closing(page.get_textpage()) as textpage:
                    text = str(textpage.get_text_range())
                if bidi.has_rtl(text):
                    text = "\n".join(map(line_text, order_lines(read_runs(page))))
                found = text
            yield number + 1, found


def _read_runs(textpage: Any, left: float, top: float) -> Iterator[Run]:
    block, before = -1, None
    for chars, font, horizontal in _read_lines(textpage, left, top):
        if all(char.text.isspace() for char in chars):
            continue
        run = Run(tuple(chars), 0, font.size, font.mono, font.bold, horizontal)
        if before is None or _opens_block(before, run):
            block += 1
        before = run
        yield run._replace(block=block)


def _opens_block(before: Run, run: Run) -> bool:
    one, other = before.box, run.box
    gap = other[1] - one[3]
    beside = (
        min(one[3], other[3]) - max(one[1], other[1]) > 0.5 * (other[3] - other[1])
        and other[0] - one[2] < 2 * run.size
    )
    below = (
        -0.6 * run.size < gap < 0.55 * run.size
        and other[0] < one[2]
        and one[0] < other[2]
        and other[1] > one[1]
    )
    return (
        not (beside or below)
        or abs(before.size - run.size) > 0.15 * max(before.size, run.size)
        or before.mono != run.mono
    )


def _read_lines(textpage: Any, left: float, top: float) -> Iterator[tuple[list[Char], _Font, bool]]:
    """(characters, font, horizontal) of each printed line; a wide gap ends a line."""
    chars: list[Char] = []
    font, angle = _Font(), 0.0
    begins_word = True
    for i, code in _read_codes(textpage):
        if code in (10, 13):
            yield chars, font, abs(angle) < 0.1
            chars, font, begins_word = [], _Font(), True
            continue
        known = code < 0x110000 and raw.FPDFText_HasUnicodeMapError(textpage, i) != 1
        text = clean_char("-" if code == _LINE_END_HYPHEN else chr(code) if known else UNKNOWN)
        if not chars and code == ord(BULLET_CODE):
            text = "•"
        box = _box(textpage, i, left, top)
        size = _font_size(textpage, i)
        if size < 1 and (height := _baseline(textpage, i, top) - box[1]) > MAX_HEIGHT * size:
            size = max(font.size, height / TALLEST)  # a font measured in dots of the printer
        if chars and not text.isspace() and _starts_line(chars, box, size, angle):
            yield chars, font, abs(angle) < 0.1
            chars, font, begins_word = [], _Font(), True
        chars.append(Char(text, *box))
        if text.isspace():
            begins_word = True
            continue
        font.size = max(font.size, size)
        if begins_word:
            mono, bold = _font_style(textpage, i)
            font.mono, font.bold = font.mono and mono, font.bold and bold
            angle = raw.FPDFText_GetCharAngle(textpage, i) if len(chars) == 1 else angle
            begins_word = False
    yield chars, font, abs(angle) < 0.1


def _starts_line(chars: Sequence[Char], box: Box, size: float, angle: float) -> bool:
    """True if the character in `box` does not belong to the line of `chars`."""
    last = next((char for char in reversed(chars) if not char.text.isspace()), None)
    if last is None:
        return False
    (_, x0, y0, x1, y1), (left, top, right, bottom) = last, box
    vertical = abs(math.sin(angle)) > _MIN_SINE
    if vertical:  # swap the axes
        x0, y0, x1, y1, left, top, right, bottom = y0, x0, y1, x1, top, left, bottom, right
    same_line = min(y1, bottom) - max(y0, top) > 0.2 * min(y1 - y0, bottom - top)
    either_way = vertical or bidi.has_rtl(last.text)
    gap = max(left - x1, x0 - right) if either_way else left - x1
    return not same_line or gap > 1.8 * size


def _box(textpage: Any, i: int, left: float, top: float) -> Box:
    rect = raw.FS_RECTF()
    if not raw.FPDFText_GetLooseCharBox(textpage, i, rect):
        return (0.0, 0.0, 0.0, 0.0)
    x0, x1 = sorted((rect.left - left, rect.right - left))
    y0, y1 = sorted((top - rect.top, top - rect.bottom))
    return clamp_box((x0, y0, x1, y1))


def _baseline(textpage: Any, i: int, top: float) -> float:
    x, y = ctypes.c_double(), ctypes.c_double()
    raw.FPDFText_GetCharOrigin(textpage, i, x, y)
    return top - y.value


def _font_size(textpage: Any, i: int) -> float:
    """The printed font size: the nominal size scaled by the character's matrix."""
    matrix = raw.FS_MATRIX()
    size = float(raw.FPDFText_GetFontSize(textpage, i))
    if raw.FPDFText_GetMatrix(textpage, i, matrix):
        scale = abs(matrix.a * matrix.d - matrix.b * matrix.c) ** 0.5
        size *= scale or 1.0
    return min(max(size, 0.1), 10_000.0)


def _font_style(textpage: Any, i: int) -> tuple[bool, bool]:
    """(monospaced, bold) of a character's font, by its flags, weight and name."""
    flags = ctypes.c_int()
    buffer = ctypes.create_string_buffer(128)
    raw.FPDFText_GetFontInfo(textpage, i, buffer, 128, flags)
    name = buffer.value.decode("utf-8", "replace")
    bold = bool(flags.value & _FORCE_BOLD) or raw.FPDFText_GetFontWeight(textpage, i) >= 600
    mono = bool(flags.value & _FIXED_PITCH or MONOSPACED.search(name))
    return mono, bold or bool(re.search(r"bold|black|heavy", name, re.I))


# --- images -------------------------------------------------------------------------------------


def _find_images(page: Any) -> list[tuple[Any, Box]]:
    """(image object, rectangle) of images over 3 points and 3 pixels each way, in content order."""
    left, _, _, top = page.get_bbox()
    found = []
    for item in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE]):
        x0, y0, x1, y1 = item.get_bounds()
        if min(x1 - x0, y1 - y0) > 3 and min(item.get_px_size()) > 3:
            box = clamp_box((x0 - left, top - y1, x1 - left, top - y0))
            found.append((item, round_out(box)))
    return found


def read_images(path: Path, targets: Sequence[str]) -> Iterator[tuple[str, bytes | str]]:
    """(target, its bytes or the reason why there are none), in order."""
    with open_pdf(path) as document:
        yield from read_each(
            targets,
            lambda target: (_draw_page if target.startswith(PAGE_PREFIX) else _read_placed)(
                document, target
            ),
        )


def _read_placed(document: Any, target: str) -> bytes:
    number, position = (int(part) for part in target.removeprefix("pdf:placed=").split("."))
    with closing(document[number - 1]) as page:
        found = io.BytesIO()
        _find_images(page)[position][0].extract(found)
        return found.getvalue()


def _draw_page(document: Any, target: str) -> bytes:
    """The rendered page. Raises DocumentError `blank_page` for a page of one colour."""
    number, dpi, pixels = parse_page_target(target)
    with closing(document[number - 1]) as page:
        width, height = page.get_size()
        drawn = page.render(scale=zoom_of(width, height, dpi, pixels), rev_byteorder=True)
        return encode_page(drawn.to_numpy()[..., :3], number)
