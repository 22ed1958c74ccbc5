"""Text of a PDF page that nobody sees, told from what is printed: by render mode, opacity, size,
place, clip, and by looking at the page.

Text in the colour of what lies below it, or under a shape, is only suspected from what is drawn
where; it counts as hidden when the page, rendered, shows one colour in the place of its letters.
The text layer of a scan is invisible by design and stays.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from rag_platform.ir import Box
from rag_platform.loaders.pdf.printed.textpages import LEAST_ALPHA, TextPage, find_veils
from rag_platform.text.scripts import letters

# how a span is painted: MuPDF's FZ_STEXT_FILLED, _STROKED, _CLIPPED
_FILLED, _STROKED, _CLIPPING = 16, 32, 64
_LEAST_SIZE = 1.0  # points of a font that can be read
_LIGHT = 0xD0  # of a colour's darkest part: what may be lost on white paper
_NEAR = 0x20  # parts of two colours that look alike
_CONTRAST = 10  # of 255: less than that is one colour to a reader
_FAINT = 0x80  # parts of a colour and of the edge of a thin letter in it
_AROUND = 2  # pixels looked at around a letter: an I fills its own rectangle
_IMAGES = ("fill-image", "fill-imgmask", "clip-imgmask")
_COVERS = ("fill-image", "fill-shade")
_MOST_PIXELS = 6_000_000
_MOST_COMPARED = 300_000  # pairs of spans and shapes; beyond that all text of the page is looked at

REASONS = {
    "invisible": "its render mode paints nothing, and no picture lies below it",
    "transparent": "it is painted with no opacity",
    "tiny": "its font is smaller than one point",
    "outside": "it lies outside of the page",
    "clipped": "a clip cuts it away",
    "no_contrast": "it has the colour of what lies below it, or lies under a shape",
    "layer_off": "it belongs to a layer that the file does not show",
    "comment": "it is a comment on the page, which is not printed",
}


class Hidden(NamedTuple):
    """Words of a page that are not shown, and which of REASONS says why."""

    reason: str
    text: str


class _Shape(NamedTuple):
    box: Box
    colour: int
    order: int  # of painting
    covers: bool  # filled, and nothing shows through


class _Span(NamedTuple):
    data: dict[str, Any]
    order: int
    box: Box


def split_hidden(
    page: Any, blocks: Sequence[dict[str, Any]], flags: int
) -> tuple[list[dict[str, Any]], list[Hidden]]:
    """(blocks without hidden characters, the hidden text), both in content order.

    The blocks must have been extracted with `flags`, vectors among them, from a page without
    rotation.
    """
    spans = [
        _Span(span, order, tuple(span["bbox"]))
        for order, block in enumerate(blocks)
        for line in block.get("lines", ())
        for span in line["spans"]
        if span["chars"]
    ]
    if not spans:
        return list(blocks), []
    look = _Look(page)
    width, height = float(page.rect.width), float(page.rect.height)
    # else the page's box is not what is shown of it
    seen = not all(_outside(span.box, width, height) for span in spans)
    reasons = _find_unpainted(spans, look)
    if seen:
        reasons |= _find_outside(spans, reasons, width, height)
        reasons |= _find_clipped(page, spans, reasons, flags)
        veils = find_veils(page)
        patterns = [box for kind, box in veils if kind == "tile"]
        for span in _find_suspected(spans, blocks, [box for _, box in veils], look):
            if id(span.data) not in reasons:
                patterned = _is_under(span, patterns)
                reasons |= {
                    id(char): "no_contrast"
                    for word in _words(span.data["chars"])
                    if look.shows_nothing(word)
                    or (patterned and look.lacks_colour(word, span.data["color"]))
                    for char in word
                }
    if not reasons:
        return list(blocks), []
    return _remove_hidden(blocks, reasons)


def find_off_layers(page: Any) -> list[Hidden]:
    """The lines of layers that the file has and does not show, which MuPDF does not read."""
    from pymupdf import mupdf

    document = mupdf.pdf_document_from_fz_document(page.parent.this)
    layers = range(mupdf.pdf_count_layers(document))
    off = [layer for layer in layers if not mupdf.pdf_layer_is_enabled(document, layer)]
    if not off:
        return []
    shown = Counter(_key(char) for line in _lines(_read_text(page)) for char in line)
    try:
        for layer in off:
            mupdf.pdf_enable_layer(document, layer, 1)
        lines = _lines(_read_text(page))
    finally:
        for layer in off:
            mupdf.pdf_enable_layer(document, layer, 0)
    found: list[Hidden] = []
    for line in lines:
        text = ""
        for char in line:
            if shown[_key(char)] > 0:
                shown[_key(char)] -= 1
            else:
                text += char["c"]
        if text := " ".join(text.split()):
            found.append(Hidden("layer_off", text))
    return found


def find_comments(page: Any) -> list[Hidden]:
    """The texts of notes, highlights and the like, but for those that are drawn on the page."""
    said = [" ".join(note.info["content"].split()) for note in page.annots() or ()]
    drawn = letters(_read_text(page).text()).casefold() if any(said) else ""
    return [
        Hidden("comment", text) for text in said if text and letters(text).casefold() not in drawn
    ]


def _read_text(page: Any) -> TextPage:
    import pymupdf

    return TextPage(page, pymupdf.TEXT_ACCURATE_BBOXES | pymupdf.TEXT_IGNORE_ACTUALTEXT)


def _lines(read: TextPage) -> list[list[dict[str, Any]]]:
    """The characters of each line."""
    return [
        [char for span in line["spans"] for char in span["chars"]]
        for block in read.blocks()
        for line in block.get("lines", ())
    ]


def _remove_hidden(
    blocks: Sequence[dict[str, Any]], reasons: dict[int, str]
) -> tuple[list[dict[str, Any]], list[Hidden]]:
    kept: list[dict[str, Any]] = []
    hidden: list[Hidden] = []
    for block in blocks:
        lines: list[dict[str, Any]] = []
        for line in block.get("lines", ()):
            spans: list[dict[str, Any]] = []
            said: list[tuple[str, str]] = []
            for span in line["spans"]:
                whole = reasons.get(id(span))
                shown = [] if whole else [char for char in span["chars"] if id(char) not in reasons]
                for char in span["chars"]:
                    if (reason := whole or reasons.get(id(char), "")) or char["c"].isspace():
                        said.append((reason or (said[-1][0] if said else ""), char["c"]))
                if len(shown) == len(span["chars"]):
                    spans.append(span)
                elif any(not char["c"].isspace() for char in shown):
                    spans.append({**span, "chars": shown})
            if spans:
                lines.append({**line, "spans": spans})
            hidden += _collect_hidden(said)
        if lines or "lines" not in block:
            kept.append({**block, "lines": lines} if lines else block)
    return kept, hidden


def _collect_hidden(said: Sequence[tuple[str, str]]) -> Iterator[Hidden]:
    for reason in dict.fromkeys(reason for reason, _ in said if reason):
        if text := " ".join("".join(char for why, char in said if why == reason).split()):
            yield Hidden(reason, text)


# --- what the page's operators say --------------------------------------------------------------


def _find_unpainted(spans: Sequence[_Span], look: _Look) -> dict[int, str]:
    """Id of a span to the reason why it cannot be seen wherever it stands."""
    found: dict[int, str] = {}
    painted = any(
        span.data["char_flags"] & (_FILLED | _STROKED) and span.data["alpha"] >= LEAST_ALPHA
        for span in spans
    )
    for span in spans:
        data = span.data
        if not data["char_flags"] & (_FILLED | _STROKED | _CLIPPING):
            # without any printed text the ink below can be the letters themselves, traced as shapes
            if not look.on_image(span.box) and (
                painted or all(map(look.shows_nothing, _words(data["chars"])))
            ):
                found[id(data)] = "invisible"
        elif data["alpha"] < LEAST_ALPHA and data["char_flags"] & (_FILLED | _STROKED):
            # what is drawn through letters shows them, as in a heading that changes its colour
            if not look.on_image(span.box) and (
                not data["char_flags"] & _CLIPPING
                or all(map(look.shows_nothing, _words(data["chars"])))
            ):
                found[id(data)] = "transparent"
        elif data["size"] < _LEAST_SIZE:
            found[id(data)] = "tiny"
    return found


def _find_outside(
    spans: Sequence[_Span], known: dict[int, str], width: float, height: float
) -> dict[int, str]:
    """Characters outside of the page; a line that runs over its edge was meant to be read."""
    found: dict[int, str] = {}
    for span in spans:
        x0, y0, x1, y1 = span.box
        if id(span.data) not in known and (x0 < 0 or y0 < 0 or x1 > width or y1 > height):
            for stretch in _stretches(span.data["chars"], 1.5 * span.data["size"]):
                if all(_outside(char["bbox"], width, height) for char in stretch):
                    found |= dict.fromkeys(map(id, stretch), "outside")
    return found


def _outside(box: Box, width: float, height: float) -> bool:
    x0, y0, x1, y1 = box
    return x1 <= 0 or y1 <= 0 or x0 >= width or y0 >= height


def _stretches(chars: Sequence[dict[str, Any]], gap: float) -> Iterator[list[dict[str, Any]]]:
    """The characters, cut where two that follow each other lie further apart than the gap."""
    stretch: list[dict[str, Any]] = []
    for char in chars:
        if stretch and max(_distance(stretch[-1]["bbox"], char["bbox"])) > gap:
            yield stretch
            stretch = []
        stretch.append(char)
    if stretch:
        yield stretch


def _distance(one: Box, other: Box) -> tuple[float, float]:
    return max(other[0] - one[2], one[0] - other[2]), max(other[1] - one[3], one[1] - other[3])


def _find_clipped(
    page: Any, spans: Sequence[_Span], known: dict[int, str], flags: int
) -> dict[int, str]:
    """Characters that lie wholly outside of the clip they are painted in; of a word that the clip
    cuts along its line, with the tall letters to be seen and the others not, all or none.
    """
    import pymupdf

    read = TextPage(page, flags & ~pymupdf.TEXT_COLLECT_VECTORS | pymupdf.TEXT_CLIP)
    if _letters(read.text()) == _letters(
        "".join(char["c"] for span in spans for char in span.data["chars"])
    ):
        return {}
    left = Counter(_key(char) for line in _lines(read) for char in line)
    found: dict[int, str] = {}
    for span in spans:
        for word in _words(span.data["chars"]):
            seen = []
            for char in word:
                left[_key(char)] -= 1
                seen.append(left[_key(char)] >= 0)
            if len(list(groupby(seen))) > 2:
                seen = [2 * sum(seen) >= len(seen)] * len(seen)
            found |= {
                id(char): "clipped"
                for char, is_seen in zip(word, seen, strict=True)
                if not is_seen and id(span.data) not in known and id(char) not in known
            }
    return found


def _letters(text: str) -> int:
    return len(text) - sum(map(str.isspace, text))


def _key(char: dict[str, Any]) -> tuple[str, int, int]:
    x, y = char["origin"]
    return char["c"], round(10 * x), round(10 * y)


def _words(chars: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for blank, word in groupby(chars, lambda char: bool(char["c"].isspace())):
        if not blank:
            yield list(word)


# --- what may be below or above it --------------------------------------------------------------


def _is_under(span: _Span, boxes: Sequence[Box]) -> bool:
    """True for text with a paint of its own where one of the rectangles is."""
    painted = span.data["char_flags"] & _FILLED and span.data["alpha"] >= LEAST_ALPHA
    return bool(painted) and any(_touch(box, span.box) for box in boxes)


def _find_suspected(
    spans: Sequence[_Span], blocks: Sequence[dict[str, Any]], veils: Sequence[Box], look: _Look
) -> Iterator[_Span]:
    """Spans in the colour of paper or of a shape below, and those that a shape, a veil, an image or
    a gradient may cover; under a scan the letters are its own.
    """
    shapes = [
        _Shape(tuple(block["bbox"]), block["color"], order, block["alpha"] > 250)
        for order, block in enumerate(blocks)
        if block["type"] == 3 and _large(block["bbox"])
    ]
    painted = look.painted if look.covers else ()
    if (len(shapes) + len(veils) + len(painted)) * len(spans) > _MOST_COMPARED:
        yield from spans
        return
    for span in spans:
        colour = span.data["color"]
        if (
            _darkest(colour) >= _LIGHT
            or _is_under(span, veils)
            or (painted and span.data["char_flags"] & _FILLED and look.covers_start(span))
            or any(
                (_alike(shape.colour, colour) or (shape.covers and shape.order > span.order))
                and _touch(shape.box, span.box)
                for shape in shapes
            )
        ):
            yield span


def _large(box: Sequence[float]) -> bool:
    return box[2] - box[0] > 2 and box[3] - box[1] > 2


def _touch(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _parts(colour: int) -> tuple[int, int, int]:
    return colour >> 16 & 255, colour >> 8 & 255, colour & 255


@functools.lru_cache(maxsize=4096)
def _darkest(colour: int) -> int:
    return min(_parts(colour))


@functools.lru_cache(maxsize=65536)
def _alike(one: int, other: int) -> bool:
    return all(abs(a - b) <= _NEAR for a, b in zip(_parts(one), _parts(other), strict=True))


# --- looking ------------------------------------------------------------------------------------


class _Look:
    """The page as it is shown, drawn when first asked."""

    def __init__(self, page: Any) -> None:
        self._page = page

    @functools.cached_property
    def painted(self) -> list[tuple[str, Box]]:
        """The kind and place of each image, gradient and text, the lowest first."""
        kinds = (*_IMAGES, *_COVERS, "fill-text", "stroke-text")
        return [(item[0], tuple(item[1])) for item in self._page.get_bboxlog() if item[0] in kinds]

    def _painted_at(self, box: Box) -> list[str]:
        """The kinds of what is painted in the middle of a rectangle, the lowest first."""
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        return [kind for kind, (x0, y0, x1, y1) in self.painted if x0 <= x <= x1 and y0 <= y <= y1]

    def on_image(self, box: Box) -> bool:
        """True when an image lies below or above the middle of a rectangle."""
        return any(kind in _IMAGES for kind in self._painted_at(box))

    @functools.cached_property
    def covers(self) -> bool:
        """True when the page has an image or a gradient, which may lie on text."""
        return any(kind in _COVERS for kind, _ in self.painted)

    def covers_start(self, span: _Span) -> bool:
        """True when one of these is painted over all text in the middle of a span, and nothing is
        seen of its first word.
        """
        kinds = self._painted_at(span.box)[-1:]
        first = next(_words(span.data["chars"]), [])
        return any(kind in _COVERS for kind in kinds) and self.shows_nothing(first)

    @functools.cached_property
    def _drawn(self) -> tuple[float, Any]:
        import pymupdf

        rect = self._page.rect
        zoom = min(2.0, (_MOST_PIXELS / max(1.0, rect.width * rect.height)) ** 0.5)
        return zoom, self._page.get_pixmap(
            matrix=pymupdf.Matrix(zoom, zoom), alpha=False, colorspace=pymupdf.csRGB
        )

    def _look_at(self, word: Sequence[dict[str, Any]]) -> Iterator[list[bytes]]:
        """The red, green and blue of the pixels at each letter of a word that is on the page."""
        zoom, drawn = self._drawn
        samples, stride = drawn.samples_mv, drawn.stride
        for char in word:
            x0, y0, x1, y1 = (round(value * zoom) for value in char["bbox"])
            x0, y0 = max(0, x0 - _AROUND), max(0, y0 - _AROUND)
            x1, y1 = min(drawn.width, x1 + _AROUND), min(drawn.height, y1 + _AROUND)
            if y1 - y0 < 1 or x1 - x0 < 1:
                continue
            seen = b"".join(
                samples[y * stride + 3 * x0 : y * stride + 3 * x1] for y in range(y0, y1)
            )
            yield [seen[i::3] for i in range(3)]

    def shows_nothing(self, word: Sequence[dict[str, Any]]) -> bool:
        """True when the page has one colour wherever the word has a letter."""
        empty = sum(
            all(max(part) - min(part) < _CONTRAST for part in parts)
            for parts in self._look_at(word)
        )
        return empty > 0.5 * len(word)

    def lacks_colour(self, word: Sequence[dict[str, Any]], colour: int) -> bool:
        """True when nothing on the page is like a colour wherever the word has a letter."""
        wanted = [range(part - _FAINT + 1, part + _FAINT) for part in _parts(colour)]
        return not any(
            red in wanted[0] and green in wanted[1] and blue in wanted[2]
            for parts in self._look_at(word)
            for red, green, blue in zip(*parts, strict=True)
        )
