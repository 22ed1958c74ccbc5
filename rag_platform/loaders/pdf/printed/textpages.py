"""The text that MuPDF reads on a page and outside of its box, as blocks of lines, spans and
characters; and where patterns, groups and clips may hide text.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Mapping
from typing import Any

from rag_platform.ir import Box
from rag_platform.loaders.archives import Reading

LEAST_ALPHA = 13  # of 255; with less opacity nothing is visible
Blocks = list[dict[str, Any]]
_LATIN_LIGATURES = {
    code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)
}


class TextPage:
    """A page read with the given flags."""

    def __init__(self, page: Any, flags: int) -> None:
        self._page, self._flags = page, flags
        self._read = open_textpage(page, flags)

    def text(self) -> str:
        """The result of `extractText`."""
        return str(self._read.extractText())

    def blocks(self, *, characters: bool = True) -> Blocks:
        """The blocks of `extractRAWDICT`, or of `extractDICT` without `characters`.

        MuPDF 2.0 splits ligatures by a table that has no letters for 121 characters between U+FB07
        and U+FE75, among them ﴾ ﴿ and ﷽, and then fails for the whole page. Such a page is read
        again with ligatures preserved, also in the text, and those of Latin letters are split here.
        """
        import pymupdf

        try:
            return _extract(self._read, characters)
        except SystemError:  # raised by the extension for an invalid character code
            self._read = open_textpage(self._page, self._flags | pymupdf.TEXT_PRESERVE_LIGATURES)
        blocks = _extract(self._read, characters)
        for block in blocks:
            for line in block.get("lines", ()):
                for span in line["spans"] if characters else ():
                    split_letters(span, _LATIN_LIGATURES)
        return blocks


def open_textpage(page: Any, flags: int) -> Any:
    """MuPDF's text page of a page, including what lies outside of its box.

    If images are extracted, MuPDF refuses an unbounded gradient, as an image of infinite size; then
    only what lies in the box is read.
    """
    import pymupdf

    try:
        return page.get_textpage(flags=flags, clip=pymupdf.INFINITE_RECT())
    except RuntimeError:
        return page.get_textpage(flags=flags, clip=page.rect)


def _extract(textpage: Any, characters: bool) -> Blocks:
    found = textpage.extractRAWDICT() if characters else textpage.extractDICT()
    blocks: Blocks = found["blocks"]
    return blocks


def split_letters(span: dict[str, Any], letters: Mapping[int, str]) -> None:
    """Replaces characters of a span by their `letters`; as where MuPDF splits ligatures, all but
    the first have no width.
    """
    span["chars"] = [
        {**char, "c": letter, "bbox": (x1 if at else x0, y0, x1, y1)}
        for char in span["chars"]
        for x0, y0, x1, y1 in [char["bbox"]]
        for at, letter in enumerate(char["c"].translate(letters))
    ]


def find_masks(page: Any) -> list[tuple[str, Box]]:
    """(kind, bounding rectangle) of what may hide text of a page: a pattern (`tile`), a transparent
    `group`, and a `clip` that is not a rectangle.
    """
    from pymupdf import mupdf

    device = _mask_device()()
    with Reading("stage.loader"):  # a broken page is read as far as it goes
        mupdf.fz_run_page(page.this, device, mupdf.FzMatrix(), mupdf.FzCookie())
    mupdf.fz_close_device(device)
    return [(kind, (box.x0, box.y0, box.x1, box.y1)) for kind, box in device.found]


@functools.cache
def _mask_device() -> Any:
    from pymupdf import mupdf

    class MaskDevice(mupdf.FzDevice2):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.found: list[tuple[str, Any]] = []
            for name in ("clip_path", "begin_group", "begin_tile"):
                getattr(self, f"use_virtual_{name}")()

        def clip_path(self, _: Any, path: Any, even_odd: int, ctm: Any, scissor: Any) -> None:
            if not mupdf.ll_fz_path_is_rect(path, ctm):
                self.found.append(("clip", mupdf.FzRect(scissor)))

        def begin_group(self, _: Any, area: Any, *how: Any) -> None:
            if how[-1] * 255 < LEAST_ALPHA:
                self.found.append(("group", mupdf.FzRect(area)))

        def begin_tile(self, _: Any, area: Any, *how: Any) -> int:
            self.found.append(("tile", mupdf.ll_fz_transform_rect(area, how[3])))
            return 0

    return MaskDevice
