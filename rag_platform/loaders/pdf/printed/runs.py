"""The characters of a PDF page as an engine reads them, in runs of one printed line."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from rag_platform.ir import Box

T = TypeVar("T")
FAR = 1e6  # points; broken files place glyphs at infinity


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
    rtl: bool = False  # most words of its page are written from right to left


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

    def words(self) -> list[Run]:
        """The run cut at white space, without it."""
        groups = groupby(self.chars, lambda char: char.text.isspace())
        return [self._replace(chars=tuple(word)) for blank, word in groups if not blank]

    @property
    def slanted(self) -> bool:
        """True for text at an oblique angle, such as a watermark: its last character lies more than
        an em beside the first, and more than an em above or below it.
        """
        if self.horizontal:
            return False
        first, *_, last = [char for char in self.chars if not char[0].isspace()] * 2
        return min(abs(last.x0 - first.x0), abs(last.y1 - first.y1)) > self.size


def group_while(items: Iterable[T], belongs: Callable[[list[T], T], bool]) -> list[list[T]]:
    """The items in groups: each joins the group before it if `belongs(group, item)`."""
    groups: list[list[T]] = []
    for item in items:
        if groups and belongs(groups[-1], item):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def usual_size(sizes: Iterable[tuple[float, int]]) -> float:
    """The font size of most characters, from (size, characters) pairs; 0 without any."""
    counts: Counter[float] = Counter()
    for size, count in sizes:
        counts[size] += count
    return max(counts, key=lambda size: (counts[size], size), default=0.0)


def clamp_box(bbox: Sequence[float]) -> Box:
    """The rectangle with all coordinates finite, within +-FAR."""
    x0, y0, x1, y1 = (min(max(value, -FAR), FAR) if value == value else 0.0 for value in bbox)
    return x0, y0, x1, y1


def round_out(bbox: Sequence[float]) -> Box:
    """The rectangle rounded outwards to hundredths of a point, as it is stored."""
    x0, y0, x1, y1 = (float(value) for value in bbox)
    return (
        math.floor(x0 * 100) / 100,
        math.floor(y0 * 100) / 100,
        math.ceil(x1 * 100) / 100,
        math.ceil(y1 * 100) / 100,
    )


def union(boxes: Sequence[Sequence[float]]) -> Box:
    """The smallest rectangle around all boxes."""
    return (
        min(b[0] for b in boxes),
        min(b[1] for b in boxes),
        max(b[2] for b in boxes),
        max(b[3] for b in boxes),
    )


def bounding_box(runs: Iterable[Run]) -> Box:
    """The smallest rectangle around the visible characters of all runs."""
    return union([run.box for run in runs])


def area(bbox: Sequence[float]) -> float:
    """The area of a rectangle in square points; 0 if it is inverted."""
    return max(0.0, bbox[2] - bbox[0]) * max(0.0, bbox[3] - bbox[1])


def contains(outer: Box, inner: Box) -> bool:
    """True where the inner box lies inside the outer one, edges included."""
    return (
        outer[0] <= inner[0]
        and outer[2] >= inner[2]
        and outer[1] <= inner[1]
        and outer[3] >= inner[3]
    )
