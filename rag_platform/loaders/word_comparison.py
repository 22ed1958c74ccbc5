"""Comparison of the words of a block with those that another engine reads in the same place. It
detects torn, reversed, swapped and foreign words, but not misspellings.

Engines may differ in spaces, hyphens, ligatures and invisible characters, so letters and digits are
compared first, then where words begin.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate, pairwise

from rag_platform.text.scripts import fold_accents, letters

# scripts without spaces between words; each of their letters counts as a word
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])"
)
_MAX_FRAGMENT = 3.2  # mean number of letters of the fragments of torn words
# letters with the same glyph, which fonts confuse; the tatweel, which stretches Arabic words, is
# dropped. Letters that differ even by a hamza are kept apart, because the word would be another.
_SAME_GLYPHS = str.maketrans("ىیک٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹", "ييك01234567890123456789", "\u0640")
_MAX_INSERTED = 2  # adjacent letters that an engine may read from a symbol font: hindexihlabeli
_PIPE = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"^\s*\|?(?:\s*:?-+:?\s*\|)+\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Line:
    """Words as one string of letters and digits, and the offsets at which the words begin."""

    letters: str
    starts: tuple[int, ...]

    @staticmethod
    def of(words: Iterable[str]) -> Line:
        """The line of these words, without those that have no letter or digit."""
        parts = [
            part
            for word in words
            for item in _UNSPACED.split(word)
            if (part := fold_accents(letters(item)).casefold().translate(_SAME_GLYPHS))
        ]
        *starts, _ = accumulate(map(len, parts), initial=0)
        return Line("".join(parts), tuple(starts))

    def words(self) -> list[str]:
        """The words of the line."""
        return [
            self.letters[start:end] for start, end in pairwise((*self.starts, len(self.letters)))
        ]

    def part(self, start: int, end: int) -> Line:
        """The line of the letters from `start` to `end`."""
        begins = self.starts[bisect_left(self.starts, start) : bisect_left(self.starts, end)]
        return Line(
            self.letters[start:end], tuple(dict.fromkeys((0, *(at - start for at in begins))))
        )

    def inner_starts(self, start: int, end: int) -> set[int]:
        """The starts of words after `start` and before `end`, relative to `start`."""
        first, last = bisect_left(self.starts, start + 1), bisect_left(self.starts, end)
        return {at - start for at in self.starts[first:last]}


@dataclass(frozen=True, slots=True)
class Likeness:
    """How far two readings agree: the number of words, and how many of them differ."""

    words: int = 0
    torn: int = 0  # cut where the other reading has no space
    missing: int = 0  # not in the other reading
    misplaced: int = 0  # in another order
    examples: tuple[str, ...] = ()

    def __add__(self, other: Likeness) -> Likeness:
        return Likeness(
            self.words + other.words,
            self.torn + other.torn,
            self.missing + other.missing,
            self.misplaced + other.misplaced,
            (self.examples + other.examples)[:3],
        )


def cells(text: str) -> list[str]:
    """The cells of a pipe table, row by row."""
    return [cell for row in _RULE.sub("", text).split("\n") for cell in _PIPE.split(row)]


def pieces(kind: str, text: str) -> list[Line]:
    """The parts of a block whose words must be adjacent in every reading: table cells, or all."""
    found = (Line.of(part.split()) for part in (cells(text) if kind == "table" else [text]))
    return [line for line in found if line.letters]


def compare_words(block: Line, readings: Sequence[Line], elsewhere: Line | None = None) -> Likeness:
    """How far a block agrees with the closest reading, or with `elsewhere` if all lack many."""
    for reading in [*readings, *([elsewhere] if elsewhere else ())]:
        at = -1
        best: Likeness | None = None
        while (at := reading.letters.find(block.letters, at + 1)) >= 0:
            found = _find_torn(block, reading, at)
            if best is None or found.torn < best.torn:
                best = found
            if not best.torn or len(block.letters) > 20:
                break
        if best is not None:
            return best
    found = min(
        (_align(block, reading) for reading in readings),
        key=lambda found: found.missing + found.misplaced,
    )
    many = found.missing > max(_FEW_MISSING, _MAX_MISSING * found.words)
    return _align(block, elsewhere) if elsewhere and many else found


def _find_torn(block: Line, reading: Line, at: int) -> Likeness:
    """The cuts within words that only the block has. They count only if their fragments are short:
    after long ones, the other engine may just have read no spaces.
    """
    own = block.inner_starts(0, len(block.letters))
    other = reading.inner_starts(at, at + len(block.letters))
    if not (cuts := sorted(own - other)):
        return Likeness(len(block.starts))
    lengths = {
        end: (end - start, after - end)
        for (start, end), (_, after) in pairwise(pairwise((*block.starts, len(block.letters))))
    }
    fragments = [length for cut in cuts for length in lengths[cut]]
    if sum(fragments) > _MAX_FRAGMENT * len(fragments):
        return Likeness(len(block.starts))
    examples = tuple(
        f"{block.letters[max(0, cut - 8) : cut]} {block.letters[cut : cut + 8]}" for cut in cuts[:2]
    )
    return Likeness(len(block.starts), len(cuts), examples=examples)


def _align(block: Line, reading: Line) -> Likeness:
    """The words that the reading lacks, and the common words that are in another order.

    Single letters are not checked for order, and in a repetitive text only unique words are.
    """
    own, other = block.words(), reading.words()
    lost = Counter(own) - Counter(other)
    left, right = (
        [word for word in words if len(word) > 1 or _UNSPACED.match(word)] for words in (own, other)
    )
    counts = Counter(left)
    if 2 * sum(count == 1 for count in counts.values()) < len(left):
        left, right = ([word for word in words if counts[word] == 1] for words in (left, right))
    common = (Counter(left) & Counter(right)).total()
    matched = sum(
        size
        for _, _, size in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    )
    return Likeness(len(own), 0, lost.total(), common - matched, tuple(lost)[:3])


def has_all_letters(block: Line, reading: Line) -> bool:
    """True if the reading has the same letters in order, with at most two others between any two of
    them: some engines read the characters of a symbol font as letters, ⟨index⟩ as `hindexi`.
    """
    reached = {at for at, letter in enumerate(reading.letters) if block.letters[:1] == letter}
    for letter in block.letters[1:]:
        near = {at + step for at in reached for step in range(1, _MAX_INSERTED + 2)}
        reached = {at for at in near if reading.letters[at : at + 1] == letter}
    return bool(reached)


def is_unmapped(text: str) -> bool:
    """True for text in a font without a mapping to Unicode, which no engine can read."""
    return any(char == "\ufffd" or "\ue000" <= char <= "\uf8ff" for char in text)


# --- judgement ----------------------------------------------------------------------------------

# chosen on 250 real PDFs; text over images has no definite order, and engines differ on formulas
_UNORDERED, _UNCHECKED = ("picture",), ("formula",)
_MIN_ORDERED = 6  # words of a text with a definite order; fewer may be the labels of a chart
_MAX_TORN, _MAX_MISSING = 0.1, 0.35
_FEW_TORN, _FEW_MISSING, _FEW_MISPLACED = 2, 2, 3


def describe_problem(kind: str, found: Likeness) -> str:
    """How a block differs from what the other engine reads; "" for tolerable differences."""
    shown = ", ".join(map(repr, found.examples))
    if kind in _UNCHECKED:
        return ""
    if found.torn > max(_FEW_TORN, _MAX_TORN * found.words):
        return f"{found.torn} words are cut where another reader cuts none: {shown}"
    if found.missing > max(_FEW_MISSING, _MAX_MISSING * found.words):
        return f"another reader does not read {found.missing} of {found.words} words: {shown}"
    few = max(_FEW_MISPLACED, _MAX_MISSING * found.words) if found.missing else 0
    many = found.words >= _MIN_ORDERED and kind not in _UNORDERED
    if found.misplaced > few and (many or kind in ("table", "heading")):
        return (
            f"{found.misplaced} of {found.words} words are in a different order than another reader"
            " reads them"
        )
    return ""
