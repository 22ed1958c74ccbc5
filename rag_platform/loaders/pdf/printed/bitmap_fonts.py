"""What the PDF does not say about its fonts: which are monospaced, and what the glyphs of TeX's
bitmap fonts mean and how large they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from math import dist
from typing import Any

from rag_platform.loaders.pdf.opening import load_pymupdf
from rag_platform.loaders.pdf.printed.textpages import split_letters
from rag_platform.text.scripts import CJK

# control codes in TeX's encoding T1, those before and those after the accents
_T1 = str.maketrans(
    dict(zip(map(chr, range(0x10, 0x17)), "“”„«»–—", strict=True))
    | dict(
        zip(map(chr, range(0x19, 0x20)), ("ı", "ȷ", "ff", "fi", "fl", "ffi", "ffl"), strict=True)
    )
)
BULLET_CODE = "\x88"  # in TeX's encoding TS1, a font of symbols
_TS1 = str.maketrans(dict(zip(f"{BULLET_CODE}\x84\x85\x87\x89\x97", "•†‡‰℃™", strict=True)))
_OTHER_ENCODING = re.compile("[\x0b-\x0f]")  # ligatures in the encoding OT1, no letters in T1
_WORD = re.compile("[a-z]{4}")  # not in the symbols of a formula
_CJK = re.compile(f"[{CJK}]")
_NARROW = frozenset("ijl")  # letters that in other fonts are half as wide as most
_MIN_LETTERS = 4  # different ones that show the widths of a font, at least
_SAME_WIDTH = 0.02  # ems by which the letters of a monospaced font may differ
TALLEST = 0.7  # ems from the baseline to the top of the tallest letters, such as `b` and `T`
MAX_HEIGHT = 2.0  # font sizes; no glyph of a font with a true size is taller
# their digits are named `1` to `9`, which MuPDF reads as control codes, and the tab as a space
_DIGITS = str.maketrans({chr(code): str(code) for code in range(1, 9)} | {" ": "9"})
# text or figures, but no symbols
_LACKS_DIGITS = re.compile("(?=.*(?:0|[a-z]{4}))[^\x001-9]*", re.S)


def correct_dot_fonts(page: Any, blocks: Sequence[dict[str, Any]]) -> None:
    """Gives fonts measured in dots of the printer (0.24 points for text of 10 points) the size of
    their glyphs.
    """
    if all(span["size"] >= 1 for span in _list_spans(blocks)):
        return  # as on nearly all pages; looking up their fonts takes longer
    for spans in _group_fonts(page, blocks).values():
        if max(span["size"] for span in spans) >= 1:
            continue  # a true size, of which a brace may be a multiple
        height = max(
            (char["origin"][1] - char["bbox"][1]) / span["size"]
            for span in spans
            for char in span["chars"]
        )
        for span in spans if height > MAX_HEIGHT else ():
            span["size"] *= height / TALLEST
            span["in_dots"] = True


def read_bitmap_fonts(page: Any, blocks: Sequence[dict[str, Any]]) -> None:
    """Decodes the ligatures, quotation marks and dashes of the bitmap fonts with words in the
    blocks of `extractRAWDICT`, the bullets and other symbols of those without letters, and the
    digits of those measured in dots.
    """
    for spans in _group_fonts(page, blocks).values():
        text = _text(spans)
        if spans[0].get("in_dots") and _LACKS_DIGITS.fullmatch(text):
            for char in chain.from_iterable(span["chars"] for span in spans):
                if not char.get("synthetic"):
                    char["c"] = char["c"].translate(_DIGITS)
        words = _WORD.search(text) is not None
        if not words and any(map(str.isalpha, text)):
            continue
        encoding = _T1 if words else _TS1
        if text.translate(encoding) != text and not _OTHER_ENCODING.search(text):
            for span in spans:
                split_letters(span, encoding)


def _group_fonts(page: Any, blocks: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Name to spans of each bitmap font."""
    names = {font[3] for font in page.get_fonts(full=True) if font[2] == "Type3"}
    if not names:
        return {}
    fonts: dict[str, list[dict[str, Any]]] = {}
    for span in _list_spans(blocks):
        if span["font"] in names or span["font"].startswith("Type3 ("):
            fonts.setdefault(span["font"], []).append(span)
    return fonts


def _list_spans(blocks: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return chain.from_iterable(line["spans"] for block in blocks for line in block.get("lines", ()))


def _text(spans: Sequence[dict[str, Any]]) -> str:
    return " ".join("".join(char["c"] for char in span["chars"]) for span in spans)


def flag_monospaced(blocks: Sequence[dict[str, Any]]) -> None:
    """Flags the monospaced fonts of the blocks of `extractRAWDICT`, by the steps from each letter
    to the next; many files flag none, and a font may have any name.
    """
    flag = load_pymupdf().TEXT_FONT_MONOSPACED
    fonts: dict[str, list[dict[str, Any]]] = {}
    for span in _list_spans(blocks):
        if not span["flags"] & flag:
            fonts.setdefault(span["font"], []).append(span)
    for spans in fonts.values():
        if _is_monospaced(spans):
            for span in spans:
                span["flags"] |= flag


def _is_monospaced(spans: Sequence[dict[str, Any]]) -> bool:
    """True if all small letters, narrow ones among them, are equally wide; not for a font that also
    prints Chinese, Japanese or Korean, as in many of those all letters are half a character wide.
    """
    if _CJK.search(_text(spans)):
        return False
    widths: dict[str, float] = {}
    for span in spans:
        for char, after in pairwise(span["chars"]):
            if "a" <= (letter := char["c"]) <= "z":
                step = dist(char["origin"], after["origin"]) / (span["size"] or 1.0)
                widths[letter] = min(step, widths.get(letter, step))
    return (
        len(widths) >= _MIN_LETTERS
        and not _NARROW.isdisjoint(widths)
        and 0 < max(widths.values()) < min(widths.values()) + _SAME_WIDTH
    )
