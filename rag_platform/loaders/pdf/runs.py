"""The characters of a PDF page as engines give them: runs of one printed line, each character with
its rectangle.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rag_platform.ir import Box


class Char(NamedTuple):
    """One character with the rectangle of its glyph."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float


class _RunFields(NamedTuple):
    chars: tuple[Char, ...]
    block: int
    size: float
    mono: bool
    bold: bool
    horizontal: bool
    leftwards: bool = False  # most letters of its page are written from right to left


class Run(_RunFields):
    """Consecutive characters of one text line, as the engine found it."""

    @functools.cached_property
    def text(self) -> str:
        """The characters as text."""
        return "".join([char[0] for char in self.chars])

    @functools.cached_property
    def box(self) -> Box:
        """The rectangle around the visible characters."""
        _, x0, y0, x1, y1 = zip(
            *[char for char in self.chars if not char[0].isspace()], strict=True
        )
        return min(x0), min(y0), max(x1), max(y1)

    @property
    def slanted(self) -> bool:
        """True for text that neither stands upright nor is turned by a right angle: its last
        character is more than a letter beside and above or below the first, as in a watermark.
        """
        if self.horizontal:
            return False
        first, *_, last = [char for char in self.chars if not char[0].isspace()] * 2
        return min(abs(last.x0 - first.x0), abs(last.y1 - first.y1)) > self.size


def usual_size(sizes: Iterable[tuple[float, int]]) -> float:
    """The size of most characters, given as (size, characters); the larger of two, else 0."""
    counts: Counter[float] = Counter()
    for size, count in sizes:
        counts[size] += count
    return max(counts, key=lambda size: (counts[size], size), default=0.0)
