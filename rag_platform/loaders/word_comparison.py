"""Words compared in their order with those that another reader finds: torn, reversed, swapped and
foreign words show, spelling does not.

Two readers may differ in spaces, hyphens, ligatures and invisible characters, so letters and digits
are compared, then where words begin.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from rag_platform.text.scripts import letters

# scripts that set no spaces between words: each of their letters is a word, so that cuts between
# them are none
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])"
)
_FRAGMENT = 3.2  # letters that the parts of torn words have on the mean, at most
# the same glyph, to which fonts give one code or the other, and what stretches an Arabic word; a
# hamza or another letter changes the word
_ALIKE = str.maketrans("ىیک٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹", "ييك01234567890123456789", "\u0640")
_BETWEEN = 2  # letters that a font of signs adds in a row: hindexihlabeli
_PIPE = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"^\s*\|?(?:\s*:?-+:?\s*\|)+\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Line:
    """Words in order as one string of letters and digits, and where in it words begin."""

    letters: str
    starts: tuple[int, ...]

    @staticmethod
    def of(words: Iterable[str]) -> Line:
        """The line of these words; what holds neither letter nor digit leaves no trace."""
        parts = [
            part
            for word in words
            for item in _UNSPACED.split(word)
            if (part := letters(item).casefold().translate(_ALIKE))
        ]
        starts, at = [], 0
        for part in parts:
            starts.append(at)
            at += len(part)
        return Line("".join(parts), tuple(starts))

    def words(self) -> list[str]:
        """The words again."""
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
        """Where words begin behind `start` and before `end`, counted from `start`."""
        return {
            at - start
            for at in self.starts[
                bisect_left(self.starts, start + 1) : bisect_left(self.starts, end)
            ]
        }


@dataclass(frozen=True, slots=True)
class Likeness:
    """How far a reading agrees with another: its words, and how many are torn or elsewhere."""

    words: int = 0
    torn: int = 0
    missing: int = 0
    misplaced: int = 0
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
    """The runs of words that any reader must find side by side: table cells, or the block."""
    found = (Line.of(part.split()) for part in (cells(text) if kind == "table" else [text]))
    return [line for line in found if line.letters]


def compare_words(said: Line, readings: Sequence[Line], elsewhere: Line | None = None) -> Likeness:
    """How far words agree with the nearest reading, or with `elsewhere` if all lack them."""
    for reading in [*readings, *([elsewhere] if elsewhere else ())]:
        at = -1
        best: Likeness | None = None
        while (at := reading.letters.find(said.letters, at + 1)) >= 0:
            found = _find_torn(said, reading, at)
            if best is None or found.torn < best.torn:
                best = found
            if not best.torn or len(said.letters) > 20:
                break
        if best is not None:
            return best
    found = min(
        (_align(said, reading) for reading in readings),
        key=lambda found: found.missing + found.misplaced,
    )
    return (
        _align(said, elsewhere)
        if elsewhere and found.missing > max(_FEW_MISSING, _MISSING * found.words)
        else found
    )


def _find_torn(said: Line, reading: Line, at: int) -> Likeness:
    """The cuts between fragments of words; a reader that sets no spaces shows nothing."""
    own = said.inner_starts(0, len(said.letters))
    other = reading.inner_starts(at, at + len(said.letters))
    if not (cuts := sorted(own - other)):
        return Likeness(len(said.starts))
    lengths = {
        end: (end - start, after - end)
        for (start, end), (_, after) in pairwise(pairwise((*said.starts, len(said.letters))))
    }
    fragments = [length for cut in cuts for length in lengths[cut]]
    if sum(fragments) > _FRAGMENT * len(fragments):
        return Likeness(len(said.starts))
    examples = tuple(
        f"{said.letters[max(0, cut - 8) : cut]} {said.letters[cut : cut + 8]}" for cut in cuts[:2]
    )
    return Likeness(len(said.starts), len(cuts), examples=examples)


def _align(said: Line, reading: Line) -> Likeness:
    """The words that the other lacks, and those of both that stand elsewhere.

    Single letters have no place, and in a text that says everything twice only unique words count.
    """
    own, other = said.words(), reading.words()
    lost = Counter(own) - Counter(other)
    left, right = (
        [word for word in words if len(word) > 1 or _UNSPACED.match(word)] for words in (own, other)
    )
    counts = Counter(left)
    if 2 * sum(count == 1 for count in counts.values()) < len(left):
        left, right = ([word for word in words if counts[word] == 1] for words in (left, right))
    there = (Counter(left) & Counter(right)).total()
    matched = sum(
        size
        for _, _, size in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    )
    return Likeness(len(own), 0, lost.total(), there - matched, tuple(lost)[:3])


def has_all_letters(said: Line, reading: Line) -> bool:
    """True where the other reader finds the same letters in order, with at most two of its own
    behind each: of a font of signs it makes letters, `hindexi` of ⟨index⟩.
    """
    reached = {at for at, letter in enumerate(reading.letters) if said.letters[:1] == letter}
    for letter in said.letters[1:]:
        near = {at + step for at in reached for step in range(1, _BETWEEN + 2)}
        reached = {at for at in near if reading.letters[at : at + 1] == letter}
    return bool(reached)


def is_unmapped(text: str) -> bool:
    """True for text of a font that does not say which letters it draws: no reader can know them."""
    return any(char == "\ufffd" or "\ue000" <= char <= "\uf8ff" for char in text)


# --- judgement ----------------------------------------------------------------------------------

# Chosen on 250 real PDFs. What is printed over images has no one order, and of formulas engines
# read what they like.
_FREE_ORDER, _FREE = ("picture",), ("formula",)
_RUNNING = 6  # words of a text that has an order; fewer may be the labels of a chart
_TORN, _MISSING = 0.1, 0.35
_FEW_TORN, _FEW_MISSING, _FEW_MISPLACED = 2, 2, 3


def problem(kind: str, found: Likeness) -> str:
    """Why a block is not what the other reader reads, "" for tolerable differences."""
    shown = ", ".join(map(repr, found.examples))
    if kind in _FREE:
        return ""
    if found.torn > max(_FEW_TORN, _TORN * found.words):
        return f"{found.torn} words are cut where another reader cuts none: {shown}"
    if found.missing > max(_FEW_MISSING, _MISSING * found.words):
        return f"another reader does not read {found.missing} of {found.words} words: {shown}"
    few = max(_FEW_MISPLACED, _MISSING * found.words) if found.missing else 0
    ordered = kind in ("table", "heading") or (found.words >= _RUNNING and kind not in _FREE_ORDER)
    if found.misplaced > few and ordered:
        return (
            f"{found.misplaced} of {found.words} words stand in another order than another reader"
            " reads"
        )
    return ""
