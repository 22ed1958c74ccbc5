"""Separates text of a PDF page that is not visible from visible text: by render mode, opacity, font
size, position, clip, and by rendering the page.

Text in the colour of its background, or under a shape, is only a suspect by its drawing operators;
it counts as hidden if the rendered page has a single colour where its letters should be. The text
layer of a scan is invisible by design and is kept.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from rag_platform.ir import Box, HiddenText
from rag_platform.loaders.pdf.printed.runs import group_while
from rag_platform.loaders.pdf.printed.textpages import LEAST_ALPHA, TextPage, find_masks
from rag_platform.text.scripts import letters

# flags for how a span is painted: MuPDF's FZ_STEXT_FILLED, _STROKED, _CLIPPED
_FILLED, _STROKED, _CLIPPING = 16, 32, 64
_MIN_SIZE = 1.0  # points; a smaller font cannot be read
_LIGHT = 0xD0  # smallest RGB component of a colour that may be invisible on white paper
_SIMILAR = 0x20  # difference of the RGB components of two colours that look alike
_CONTRAST = 10  # of 255; a smaller difference is one colour to a reader
_FAINT = 0x80  # difference of the RGB components of a colour and the edge of a thin letter in it
_MARGIN = 2  # pixels around a letter that are looked at too: an I fills its own rectangle
_IMAGE_KINDS = ("fill-image", "fill-imgmask", "clip-imgmask")
_COVER_KINDS = ("fill-image", "fill-shade")
_MAX_PIXELS = 6_000_000
_MAX_PAIRS = 300_000  # of spans and shapes; on a page with more, all text is a suspect


class _Shape(NamedTuple):
    box: Box
    colour: int
    order: int  # of painting
    covers: bool  # opaque


class _Span(NamedTuple):
    data: dict[str, Any]
    order: int
    box: Box


def split_hidden(
    page: Any, blocks: Sequence[dict[str, Any]], flags: int
) -> tuple[list[dict[str, Any]], list[HiddenText]]:
    """(blocks without hidden characters, the hidden text without its page), in content order.

    `blocks` were extracted with `flags`, which include vectors, from a page without rotation.
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
    rendered = _Rendering(page)
    width, height = float(page.rect.width), float(page.rect.height)
    reasons = _find_unpainted(spans, rendered)
    # if all text lies outside of the page, its box is not what is shown
    if not all(_is_outside(span.box, width, height) for span in spans):
        reasons |= _find_outside(spans, reasons, width, height)
        reasons |= _find_clipped(page, spans, reasons, flags)
        masks = find_masks(page)
        patterns = [box for kind, box in masks if kind == "tile"]
        for span in _find_suspected(spans, blocks, [box for _, box in masks], rendered):
            if id(span.data) not in reasons:
                patterned = _is_masked(span, patterns)
                reasons |= {
                    id(char): "no_contrast"
                    for word in _words(span.data["chars"])
                    if rendered.is_blank(word)
                    or (patterned and rendered.lacks_colour(word, span.data["color"]))
                    for char in word
                }
    if not reasons:
        return list(blocks), []
    return _remove_hidden(blocks, reasons)


def find_off_layers(page: Any) -> list[HiddenText]:
    """The lines on layers that are off in the file, which MuPDF does not read."""
    document = page.parent.this.pdf_document_from_fz_document()
    layers = range(document.pdf_count_layers())
    off = [layer for layer in layers if not document.pdf_layer_is_enabled(layer)]
    if not off:
        return []
    shown = Counter(_identify(char) for line in _read_lines(_read_text(page)) for char in line)
    try:
        for layer in off:
            document.pdf_enable_layer(layer, 1)
        lines = _read_lines(_read_text(page))
    finally:
        for layer in off:
            document.pdf_enable_layer(layer, 0)
    found: list[HiddenText] = []
    for line in lines:
        text = ""
        for char in line:
            if shown[_identify(char)] > 0:
                shown[_identify(char)] -= 1
            else:
                text += char["c"]
        if text := " ".join(text.split()):
            found.append(HiddenText(0, "layer_off", text))
    return found


def find_comments(page: Any) -> list[HiddenText]:
    """The texts of notes, highlights and other annotations that are not drawn on the page."""
    comments = [" ".join(note.info["content"].split()) for note in page.annots() or ()]
    drawn = letters(_read_text(page).text()).casefold() if any(comments) else ""
    return [
        HiddenText(0, "comment", text)
        for text in comments
        if text and letters(text).casefold() not in drawn
    ]


def _read_text(page: Any) -> TextPage:
    import pymupdf

    return TextPage(page, pymupdf.TEXT_ACCURATE_BBOXES | pymupdf.TEXT_IGNORE_ACTUALTEXT)


def _read_lines(read: TextPage) -> list[list[dict[str, Any]]]:
    """The characters of each line."""
    return [
        [char for span in line["spans"] for char in span["chars"]]
        for block in read.blocks()
        for line in block.get("lines", ())
    ]


def _remove_hidden(
    blocks: Sequence[dict[str, Any]], reasons: dict[int, str]
) -> tuple[list[dict[str, Any]], list[HiddenText]]:
    kept: list[dict[str, Any]] = []
    hidden: list[HiddenText] = []
    for block in blocks:
        lines: list[dict[str, Any]] = []
        for line in block.get("lines", ()):
            spans: list[dict[str, Any]] = []
            removed: list[tuple[str, str]] = []  # (reason, character), with the spaces between
            for span in line["spans"]:
                whole = reasons.get(id(span))
                shown = [] if whole else [char for char in span["chars"] if id(char) not in reasons]
                for char in span["chars"]:
                    if (reason := whole or reasons.get(id(char), "")) or char["c"].isspace():
                        removed.append((reason or (removed[-1][0] if removed else ""), char["c"]))
                if len(shown) == len(span["chars"]):
                    spans.append(span)
                elif any(not char["c"].isspace() for char in shown):
                    spans.append({**span, "chars": shown})
            if spans:
                lines.append({**line, "spans": spans})
            hidden += _collect_hidden(removed)
        if lines or "lines" not in block:
            kept.append({**block, "lines": lines} if lines else block)
    return kept, hidden


def _collect_hidden(removed: Sequence[tuple[str, str]]) -> Iterator[HiddenText]:
    for reason in dict.fromkeys(reason for reason, _ in removed if reason):
        if text := " ".join("".join(char for why, char in removed if why == reason).split()):
            yield HiddenText(0, reason, text)


# --- by drawing operators -----------------------------------------------------------------------


def _find_unpainted(spans: Sequence[_Span], rendered: _Rendering) -> dict[int, str]:
    """Id of a span to the reason why it is invisible wherever it stands."""
    found: dict[int, str] = {}
    painted = any(
        span.data["char_flags"] & (_FILLED | _STROKED) and span.data["alpha"] >= LEAST_ALPHA
        for span in spans
    )
    for span in spans:
        data = span.data
        if not data["char_flags"] & (_FILLED | _STROKED | _CLIPPING):
            # on a page without painted text, the shapes below can be the letters themselves
            if not rendered.on_image(span.box) and (
                painted or all(map(rendered.is_blank, _words(data["chars"])))
            ):
                found[id(data)] = "invisible"
        elif data["alpha"] < LEAST_ALPHA and data["char_flags"] & (_FILLED | _STROKED):
            # letters used as a clip show what is drawn through them, such as a gradient
            if not rendered.on_image(span.box) and (
                not data["char_flags"] & _CLIPPING
                or all(map(rendered.is_blank, _words(data["chars"])))
            ):
                found[id(data)] = "transparent"
        elif data["size"] < _MIN_SIZE:
            found[id(data)] = "tiny"
    return found


def _find_outside(
    spans: Sequence[_Span], known: dict[int, str], width: float, height: float
) -> dict[int, str]:
    """Id of each character outside of the page, but not of a line that runs over the edge."""
    found: dict[int, str] = {}
    for span in spans:
        x0, y0, x1, y1 = span.box
        if id(span.data) not in known and (x0 < 0 or y0 < 0 or x1 > width or y1 > height):
            for part in _split_at_gaps(span.data["chars"], 1.5 * span.data["size"]):
                if all(_is_outside(char["bbox"], width, height) for char in part):
                    found |= dict.fromkeys(map(id, part), "outside")
    return found


def _is_outside(box: Box, width: float, height: float) -> bool:
    x0, y0, x1, y1 = box
    return x1 <= 0 or y1 <= 0 or x0 >= width or y0 >= height


def _split_at_gaps(chars: Sequence[dict[str, Any]], gap: float) -> list[list[dict[str, Any]]]:
    """The characters, cut where two consecutive ones lie further apart than `gap` points."""
    return group_while(chars, lambda part, char: _distance(part[-1]["bbox"], char["bbox"]) <= gap)


def _distance(one: Box, other: Box) -> float:
    return max(other[0] - one[2], one[0] - other[2], other[1] - one[3], one[1] - other[3])


def _find_clipped(
    page: Any, spans: Sequence[_Span], known: dict[int, str], flags: int
) -> dict[int, str]:
    """Id of each character wholly outside of the clip it is painted in. A word that the clip cuts
    lengthwise, so that only its tall letters are visible, counts as visible or clipped as a whole.
    """
    import pymupdf

    read = TextPage(page, flags & ~pymupdf.TEXT_COLLECT_VECTORS | pymupdf.TEXT_CLIP)
    if _count_visible(read.text()) == _count_visible(
        "".join(char["c"] for span in spans for char in span.data["chars"])
    ):
        return {}
    left = Counter(_identify(char) for line in _read_lines(read) for char in line)
    found: dict[int, str] = {}
    for span in spans:
        for word in _words(span.data["chars"]):
            visible = []
            for char in word:
                left[_identify(char)] -= 1
                visible.append(left[_identify(char)] >= 0)
            if len(list(groupby(visible))) > 2:
                visible = [2 * sum(visible) >= len(visible)] * len(visible)
            found |= {
                id(char): "clipped"
                for char, is_visible in zip(word, visible, strict=True)
                if not is_visible and id(span.data) not in known and id(char) not in known
            }
    return found


def _count_visible(text: str) -> int:
    return len(text) - sum(map(str.isspace, text))


def _identify(char: dict[str, Any]) -> tuple[str, int, int]:
    x, y = char["origin"]
    return char["c"], round(10 * x), round(10 * y)


def _words(chars: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for blank, word in groupby(chars, lambda char: bool(char["c"].isspace())):
        if not blank:
            yield list(word)


# --- suspects -----------------------------------------------------------------------------------


def _is_masked(span: _Span, boxes: Sequence[Box]) -> bool:
    """True for painted text that overlaps one of the rectangles."""
    painted = span.data["char_flags"] & _FILLED and span.data["alpha"] >= LEAST_ALPHA
    return bool(painted) and any(_do_overlap(box, span.box) for box in boxes)


def _find_suspected(
    spans: Sequence[_Span],
    blocks: Sequence[dict[str, Any]],
    masks: Sequence[Box],
    rendered: _Rendering,
) -> Iterator[_Span]:
    """Spans in a light colour or that of an overlapping shape, and those that a shape, mask, image
    or gradient may cover. The text layer under a scan is not painted, so no suspect.
    """
    shapes = [
        _Shape(tuple(block["bbox"]), block["color"], order, block["alpha"] > 250)
        for order, block in enumerate(blocks)
        if block["type"] == 3 and _is_large(block["bbox"])
    ]
    painted = rendered.painted if rendered.covers else ()
    if (len(shapes) + len(masks) + len(painted)) * len(spans) > _MAX_PAIRS:
        yield from spans
        return
    for span in spans:
        colour = span.data["color"]
        if (
            _min_component(colour) >= _LIGHT
            or _is_masked(span, masks)
            or (painted and span.data["char_flags"] & _FILLED and rendered.covers_start(span))
            or any(
                (_is_similar(shape.colour, colour) or (shape.covers and shape.order > span.order))
                and _do_overlap(shape.box, span.box)
                for shape in shapes
            )
        ):
            yield span


def _is_large(box: Sequence[float]) -> bool:
    return box[2] - box[0] > 2 and box[3] - box[1] > 2


def _do_overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _rgb(colour: int) -> tuple[int, int, int]:
    return colour >> 16 & 255, colour >> 8 & 255, colour & 255


@functools.lru_cache(maxsize=4096)
def _min_component(colour: int) -> int:
    return min(_rgb(colour))


@functools.lru_cache(maxsize=65536)
def _is_similar(one: int, other: int) -> bool:
    return all(abs(a - b) <= _SIMILAR for a, b in zip(_rgb(one), _rgb(other), strict=True))


# --- the rendered page --------------------------------------------------------------------------


class _Rendering:
    """What is painted where on a page, and its pixels, computed on first use."""

    def __init__(self, page: Any) -> None:
        self._page = page

    @functools.cached_property
    def painted(self) -> list[tuple[str, Box]]:
        """(kind, rectangle) of each image, gradient and text in painting order."""
        kinds = (*_IMAGE_KINDS, *_COVER_KINDS, "fill-text", "stroke-text")
        return [(item[0], tuple(item[1])) for item in self._page.get_bboxlog() if item[0] in kinds]

    def _painted_at(self, box: Box) -> list[str]:
        """The kinds of what is painted at the centre of a rectangle, in painting order."""
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        return [kind for kind, (x0, y0, x1, y1) in self.painted if x0 <= x <= x1 and y0 <= y <= y1]

    def on_image(self, box: Box) -> bool:
        """True if an image lies at the centre of a rectangle, below or above other content."""
        return any(kind in _IMAGE_KINDS for kind in self._painted_at(box))

    @functools.cached_property
    def covers(self) -> bool:
        """True if the page has an image or a gradient, which may cover text."""
        return any(kind in _COVER_KINDS for kind, _ in self.painted)

    def covers_start(self, span: _Span) -> bool:
        """True if an image or gradient is painted last at the centre of a span, whose first word is
        not visible.
        """
        kinds = self._painted_at(span.box)[-1:]
        first = next(_words(span.data["chars"]), [])
        return any(kind in _COVER_KINDS for kind in kinds) and self.is_blank(first)

    @functools.cached_property
    def _drawn(self) -> tuple[float, Any]:
        """(pixels per point, the page as uint8 [height, width, 3])."""
        import numpy as np
        import pymupdf

        rect = self._page.rect
        zoom = min(2.0, (_MAX_PIXELS / max(1.0, rect.width * rect.height)) ** 0.5)
        drawn = self._page.get_pixmap(
            matrix=pymupdf.Matrix(zoom, zoom), alpha=False, colorspace=pymupdf.csRGB
        )
        return zoom, np.frombuffer(drawn.samples, np.uint8).reshape(drawn.height, drawn.width, 3)

    def _pixels_at(self, word: Sequence[dict[str, Any]]) -> Iterator[Any]:
        """The pixels around each letter of a word that lies on the page, uint8 [pixels, 3]."""
        zoom, drawn = self._drawn
        for char in word:
            x0, y0, x1, y1 = (round(value * zoom) for value in char["bbox"])
            left, top = max(0, x0 - _MARGIN), max(0, y0 - _MARGIN)
            pixels = drawn[top : max(top, y1 + _MARGIN), left : max(left, x1 + _MARGIN)]
            if pixels.size:
                yield pixels.reshape(-1, 3)

    def is_blank(self, word: Sequence[dict[str, Any]]) -> bool:
        """True if the page has a single colour around most letters of a word."""
        empty = sum(
            int((pixels.max(0) - pixels.min(0)).max()) < _CONTRAST
            for pixels in self._pixels_at(word)
        )
        return empty > 0.5 * len(word)

    def lacks_colour(self, word: Sequence[dict[str, Any]], colour: int) -> bool:
        """True if no pixel around the letters of a word is similar to `colour`."""
        return not any(
            (abs(pixels.astype(int) - _rgb(colour)) < _FAINT).all(1).any()
            for pixels in self._pixels_at(word)
        )
