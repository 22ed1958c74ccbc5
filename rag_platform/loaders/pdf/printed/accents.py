"""Accents that a font draws as signs of their own, put on their letters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from rag_platform.loaders.pdf.printed.runs import Char, Run, union

_MARKS = {  # the sign to the mark that Unicode writes after the letter
    "`": "\u0300",
    "´": "\u0301",
    "ˆ": "\u0302",
    "˜": "\u0303",
    "¯": "\u0304",
    "˘": "\u0306",
    "˙": "\u0307",
    "¨": "\u0308",
    "˚": "\u030a",
    "˝": "\u030b",
    "ˇ": "\u030c",
    "¸": "\u0327",
    "˛": "\u0328",
}
_SIGN = re.compile(f"[{''.join(_MARKS)}]")
_DOTLESS = str.maketrans("ıȷ", "ij")
_TOUCHING = 0.1  # ems; a smaller gap parts no words
_SAME_LINE = 0.2  # share of their height by which the tops of a sign and its letter differ
_REACH = 2  # runs after its letter's own in which a sign may stand


def place_accents(runs: Sequence[Run]) -> list[Run]:
    """The runs, with each accent that is drawn over or under a letter joined to it: `f¨ur` becomes
    `für`. A sign beside letters stays, and one for which Unicode has no letter, as in formulas.
    """
    signed = [at for at, run in enumerate(runs) if run.horizontal and _SIGN.search(run.text)]
    lines = [list(run.chars) for run in runs] if signed else []
    changed: set[int] = set()
    for number in signed:
        run = runs[number]
        for sign in [char for char in run.chars if char.text in _MARKS]:
            # PDFium moves some signs to the end of their line, which may be a run of its own
            for other in range(number, max(-1, number - _REACH - 1), -1):
                if _join(sign, lines[other], level=other != number):
                    _remove(sign, lines[number], run.size)
                    changed |= {number, other}
                    break
    placed = {number: tuple(lines[number]) for number in changed}
    return [
        run._replace(chars=placed[number]) if number in placed else run
        for number, run in enumerate(runs)
        if placed.get(number, run.chars)
    ]


def _join(sign: Char, chars: list[Char], *, level: bool) -> bool:
    """True if a letter of a line is under the sign, which is joined to it; with `level` only if
    PDFium's rectangles, all as high as the font, show both in one printed line.
    """
    x = (sign.x0 + sign.x1) / 2
    for at, char in enumerate(chars):
        if char.x0 < x < char.x1 and not (
            level and abs(sign.y0 - char.y0) > _SAME_LINE * (char.y1 - char.y0)
        ):
            text = unicodedata.normalize("NFC", char.text.translate(_DOTLESS) + _MARKS[sign.text])
            if len(text) == 1 and text.isalpha():
                chars[at] = Char(text, *union([char[1:], sign[1:]]))
                return True
    return False


def _remove(sign: Char, chars: list[Char], size: float) -> None:
    """Remove a sign, and the spaces beside it that only the way to and from it made."""
    at = chars.index(sign)
    before, after = chars[:at], chars[at + 1 :]
    while before and before[-1].text.isspace():
        before.pop()
    while after and after[0].text.isspace():
        after.pop(0)
    if before and after and after[0].x0 - before[-1].x1 > _TOUCHING * size:
        del chars[at]
    else:
        chars[:] = before + after
