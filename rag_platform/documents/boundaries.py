"""Where a text may be cut: never inside a cluster, a fence, a table row, a heading, a link; and how many tokens a span costs."""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_platform.documents.inline_units import inline_units, word_ends
from rag_platform.text.graphemes import is_grapheme_boundary

FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)*(`{3,}(?=[^`]*$)|~{3,})")
DELIMITER = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
HEADING = re.compile(r"#{1,6}[ \t]")

# Tokens a character costs, by kind, in hundredths; fitted to the sentencepiece vocabulary of multilingual-e5 so that the sum is rarely
# below the true count. Words of Latin letters are cheap, everything else about one token a character or less.
TOKEN_WEIGHTS = {"lower": 32, "upper": 70, "digit": 85, "space": 8, "punctuation": 80, "latin": 60, "letter": 60, "han": 85, "other": 130}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A run of lines that wants to stay whole."""

    start: int
    end: int
    kind: str  # fence | row


def structure(text: str) -> list[Guarded]:
    """Fences (one run each) and table rows (one run each; the header and its rule belong to the first row), in order."""
    found: list[Guarded] = []
    fence: tuple[str, int] | None = None
    head: int | None = None  # where the table's pending header starts
    in_table = False
    previous: tuple[int, str] = (0, "")
    position = 0
    for line in _lines(text):
        start, position = position, position + len(line)
        body = line.rstrip("\n")
        if fence is not None:
            mark = body.strip(" \t>")
            if mark.startswith(fence[0]) and not mark.strip(fence[0][0]):
                found.append(Guarded(fence[1], position, "fence"))
                fence = None
            previous = (start, "")
            continue
        opening = FENCE.match(body)
        if opening:
            if head is not None:  # a table of a head alone ends here
                found.append(Guarded(head, start, "row"))
            fence, in_table, head = (opening.group(1), start), False, None
        elif in_table:
            if not body.strip(" \t>") or HEADING.match(body):
                in_table = False
                if head is not None:
                    found.append(Guarded(head, start, "row"))
                    head = None
            else:
                found.append(Guarded(start if head is None else head, position, "row"))
                head = None
        elif "-" in body and "|" in previous[1] and "|" in body and DELIMITER.match(body):
            in_table, head = True, previous[0]
        previous = (start, body)
    if fence is not None:
        found.append(Guarded(fence[1], len(text), "fence"))
    elif head is not None:
        found.append(Guarded(head, len(text), "row"))
    return found


def _lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines


# --- tokens -----------------------------------------------------------------------------------------------------------------


def token_sums(text: str) -> NDArray[np.int64]:
    """Running cost in hundredths of a token: the span [a, b) costs sums[b] - sums[a]."""
    codes = np.frombuffer(text.encode("utf-32-le", "replace"), dtype=np.uint32)
    weights = np.where(codes < 0x3000, _low_weights()[np.minimum(codes, 0x2FFF)], TOKEN_WEIGHTS["other"])
    han = ((codes >= 0x3000) & (codes <= 0x9FFF)) | ((codes >= 0xFF00) & (codes <= 0xFFEF))
    weights = np.where(han | ((codes >= 0xAC00) & (codes <= 0xD7A3)), TOKEN_WEIGHTS["han"], weights)
    sums = np.zeros(len(codes) + 1, dtype=np.int64)
    np.cumsum(weights, out=sums[1:])
    return sums


def estimated_tokens(text: str) -> int:
    """About how many tokens an embedder's vocabulary needs for the text; rather too many than too few."""
    return -(-int(token_sums(text)[-1]) // 100)


@functools.cache
def _low_weights() -> NDArray[np.int64]:
    table = np.full(0x3000, TOKEN_WEIGHTS["other"], dtype=np.int64)
    for code in range(0x3000):
        char = chr(code)
        kind = "other"
        if char.isspace():
            kind = "space"
        elif code < 0x80:
            kind = "lower" if char.islower() else "upper" if char.isupper() else "digit" if char.isdigit() else "punctuation"
        elif code < 0x250:
            kind = "latin"
        elif char.isalpha() or unicodedata.category(char).startswith("M"):
            kind = "letter"
        table[code] = TOKEN_WEIGHTS[kind]
    return table


# --- legal cuts -----------------------------------------------------------------------------------------------------------------

SENTENCE = re.compile(r"[。！？；]+[”’」』）】]*|(?<=[^\s.])[.!?;]+[\"')\]*_]*(?=\s)")
CLAUSE = re.compile(r"(?:[，、：]|……|——)+[”’」』）】]*|(?<=[^\s,:])[,:][\"')\]*_]*(?=\s)")
BLANKS = re.compile(r"[ \t\u3000]+")


def separator_pattern(separator: str) -> re.Pattern[str]:
    """What to look for; a cut lies behind the match."""
    if separator.strip("\n") == "":
        return re.compile(f"\n{{{len(separator)},}}")
    return BLANKS if separator == " " else re.compile(re.escape(separator))


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The legal cuts of one text; asked for a window at a time."""

    text: str
    patterns: Sequence[re.Pattern[str]]
    guarded: Sequence[Guarded]  # runs that are never cut
    starts: Sequence[int]
    opened: Sequence[Guarded]  # fences far too long to stay whole: cut at line ends only
    opened_starts: Sequence[int]
    units: Sequence[tuple[int, int]]  # headings, links, code spans and the like that are never cut
    unit_starts: Sequence[int]

    def inside(self, position: int) -> Guarded | None:
        """The run that a cut at the position would split."""
        return _holding(self.guarded, self.starts, position)

    def holds_run(self, start: int, end: int) -> bool:
        """True when a fence or row that is never cut lies in [start, end), at least in part."""
        index = bisect_right(self.starts, start) - 1
        if index >= 0 and self.guarded[index].end > start:
            return True
        return index + 1 < len(self.guarded) and self.guarded[index + 1].start < end

    def inside_unit(self, position: int) -> tuple[int, int] | None:
        """The heading, link, code span, tag or URL that a cut at the position would split."""
        index = bisect_right(self.unit_starts, position) - 1
        return self.units[index] if index >= 0 and self.units[index][0] < position < self.units[index][1] else None

    def inside_opened(self, position: int) -> bool:
        """True inside a fence that may be cut, but only at its line ends."""
        return _holding(self.opened, self.opened_starts, position) is not None

    def beside_row(self, position: int) -> bool:
        """True between two rows of a table."""
        index = bisect_right(self.starts, position) - 1
        here = self.guarded[index] if index >= 0 else None
        before = self.guarded[index - 1] if index >= 1 else None
        return bool(here and before and here.kind == before.kind == "row" and here.start == before.end == position)

    def cuts(self, rank: int, low: int, high: int) -> list[int]:
        """Legal cuts behind separator number `rank` in [low, high]."""
        found = (match.end() for match in self.patterns[rank].finditer(self.text, max(0, low - 1), high))
        return [position for position in found if low <= position <= high and self.legal(position)]

    def words(self, low: int, high: int) -> list[int]:
        """Legal cuts in [low, high] between words of scripts that write no blanks."""
        return [position for position in word_ends(self.text, low, high) if self.legal(position)]

    def edges(self, low: int, high: int) -> list[int]:
        """Legal cuts in [low, high] before and behind links, code spans and the like."""
        near = self.units[max(0, bisect_right(self.unit_starts, low) - 1) : bisect_right(self.unit_starts, high)]
        return [edge for unit in near for edge in unit if low <= edge <= high and self.legal(edge)]

    def legal(self, position: int) -> bool:
        """True when a cut splits no run, no unit, no cluster, no line of code, and does not leave a heading behind."""
        if self.inside(position) is not None or not is_grapheme_boundary(self.text, position):
            return False
        if self.inside_opened(position):
            return self.text[position - 1] == "\n"
        if self.inside_unit(position) is not None:
            return False
        return not _after_heading(self.text, position)


def _holding(runs: Sequence[Guarded], starts: Sequence[int], position: int) -> Guarded | None:
    index = bisect_right(starts, position) - 1
    return runs[index] if index >= 0 and runs[index].start < position < runs[index].end else None


def _after_heading(text: str, position: int) -> bool:
    """True when the line before the position, or the one that ends there, is a heading."""
    end = position
    while end > max(0, position - 400) and text[end - 1].isspace():
        end -= 1
    return "\n" in text[end : position + 1] and HEADING.match(text, text.rfind("\n", 0, end) + 1) is not None


def only_headings(text: str, start: int, end: int) -> bool:
    """True when the span holds headings and nothing else but white space."""
    lines = [line for line in text[start:end].split("\n") if line.strip()]
    return bool(lines) and all(map(HEADING.match, lines))


def boundaries(
    text: str, separators: Sequence[str], fits: Callable[[int, int], bool], keeps: Callable[[int, int], bool] | None = None
) -> Boundaries:
    """The legal cuts of a text; `fits(start, end)` says whether a run can be one chunk, `keeps` whether a fence or row too long for that
    stays whole nevertheless. Of what stays not, a fence is cut at its line ends and a row like text."""
    guarded: list[Guarded] = []
    opened: list[Guarded] = []
    for run in structure(text):
        if fits(run.start, run.end) or (keeps is not None and keeps(run.start, run.end)):
            guarded.append(run)
        elif run.kind == "fence":
            opened.append(run)
    patterns = [re.compile(r"\n(?=#{1,6}[ \t])"), *(separator_pattern(item) for item in separators if item)]
    lines = next((i for i, item in enumerate(separators) if item == "\n"), len(patterns) - 2)
    patterns[lines + 2 : lines + 2] = [SENTENCE, CLAUSE]
    units = inline_units(text, fits)
    starts, opened_starts = [run.start for run in guarded], [run.start for run in opened]
    return Boundaries(text, patterns, guarded, starts, opened, opened_starts, units, [start for start, _ in units])
