"""Finds the positions at which a text may be cut: never inside a grapheme cluster, fence, table
row, heading, link, code span, tag or URL, and in Chinese only between words.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rag_platform.text.entries import BOLD_LINE
from rag_platform.text.markdown_blocks import (
    CODE_SPAN,
    DATA_ENTRY,
    HEADING,
    Guarded,
    data_runs,
    structure,
)
from rag_platform.text.scripts import HAN, KANA
from rag_platform.text.segmentation import chinese_dictionary
from rag_platform.text.sentences import CLOSERS, STOPS, sentence_ends

Ends = Callable[[str, int, int], Iterable[int]]  # the ends of a separator in text[start:end]
_BREAKS = re.compile("\n+")
# a line that may continue a sentence: not a digit, list item, heading, row or quote
_CONTINUATION = re.compile(r"[ \t]*(?:[^\W\d_]|[\"'“‘(\[*_`](?=[^\W_]))")
_STOPS = frozenset(f".!?{STOPS}:：;；|…")
NAME_RANKS = 2  # the first separators: before headings, and before lines of bold words
WHOLE_CHARS = 6400  # length up to which a fence or table row is kept whole
_MAX_LOOKBACK = 400  # characters before a position that are searched past white space
_MAX_MARKS = 4  # characters: a colon and the marks of bold or italic text after it
_WRAPPED_COLUMNS = 60  # minimum width of lines of wrapped prose; wide characters count two
_LONGEST_CLUSTER = 256  # maximum characters of a grapheme cluster or a run of flags


def is_grapheme_boundary(text: str, index: int) -> bool:
    """True when a cut before text[index] splits no grapheme cluster (user-perceived character, UAX
    29); always True at both ends.
    """
    if index <= 0 or index >= len(text):
        return True
    pair = text[index - 1 : index + 1]
    if pair.isascii():
        return pair != "\r\n"
    cluster, last_cluster = _cluster_patterns()
    start = last_cluster.search(text, max(0, index - _LONGEST_CLUSTER), index).start()
    found: int = cluster.match(text, start, index + 1).end()  # a cluster may be very long
    return found == index


@cache
def _cluster_patterns() -> tuple[Any, Any]:
    """Patterns of (a cluster, the last cluster)."""
    import regex  # slower than all other imports of a question

    return regex.compile(r"\X"), regex.compile(r"(?r)\X")


def _ends_of(pattern: str) -> Ends:
    compiled = re.compile(pattern)
    return lambda text, start, end: (match.end() for match in compiled.finditer(text, start, end))


# after commas, colons, semicolons and dashes
clause_ends = _ends_of(rf"(?:[，、：；]|……|——)+[{CLOSERS}]*|(?<=[^\s,:;])[,:;][{CLOSERS}]*(?=\s)")
blank_ends = _ends_of(r"[ \t\u3000]+")


def line_starts(text: str, start: int, end: int) -> Iterable[int]:
    """The offsets after line breaks, except those inside a sentence: where the next line continues
    in lower case, or the line is as wide as wrapped prose.
    """
    for match in _BREAKS.finditer(text, start, end):
        if match.end() - match.start() > 1 or not _is_wrapped(text, match.start()):
            yield match.end()


def _is_wrapped(text: str, line_break: int) -> bool:
    following = _CONTINUATION.match(text, line_break + 1)
    line = text[text.rfind("\n", 0, line_break) + 1 : line_break]
    if following is None or not line or line.rstrip(f" \t{CLOSERS}")[-1:] in _STOPS:
        return False
    columns = len(line) + len(CHARACTER.findall(line))
    return text[following.end() - 1].islower() or columns >= _WRAPPED_COLUMNS


def separator_ends(separator: str) -> Ends:
    """A function that finds the ends of a separator; n line breaks also match more than n."""
    if separator.strip("\n") == "":
        return _ends_of(f"\n{{{len(separator)},}}")
    return blank_ends if separator == " " else _ends_of(re.escape(separator))


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The legal cuts of one text, found one window at a time."""

    text: str
    separators: Sequence[Ends]  # best first
    guarded: Sequence[Guarded]  # runs that are never cut
    starts: Sequence[int]  # of `guarded`
    opened: Sequence[Guarded]  # fences too long to stay whole and data: cut at line ends only
    opened_starts: Sequence[int]
    units: Sequence[tuple[int, int]]  # headings, links, code spans etc., which are never cut
    unit_starts: Sequence[int]

    @property
    def sentence_ranks(self) -> range:
        """The ranks of the separators after which a sentence begins, without those before names."""
        return range(NAME_RANKS, self.separators.index(sentence_ends) + 1)

    def inside(self, position: int) -> Guarded | None:
        """The run that a cut at the position would split."""
        return _find_run(self.guarded, self.starts, position)

    def holds_run(self, start: int, end: int) -> bool:
        """True when a fence or row that is never cut overlaps [start, end)."""
        index = bisect_right(self.starts, start) - 1
        if index >= 0 and self.guarded[index].end > start:
            return True
        return index + 1 < len(self.guarded) and self.guarded[index + 1].start < end

    def inside_unit(self, position: int) -> tuple[int, int] | None:
        """The heading, link, code span, tag or URL that a cut at the position would split."""
        index = bisect_right(self.unit_starts, position) - 1
        return (
            self.units[index]
            if index >= 0 and self.units[index][0] < position < self.units[index][1]
            else None
        )

    def inside_opened(self, position: int) -> bool:
        """True inside a fence or data that may be cut at line ends."""
        return _find_run(self.opened, self.opened_starts, position) is not None

    def beside_row(self, position: int) -> bool:
        """True between two rows of a table."""
        index = bisect_right(self.starts, position) - 1
        here = self.guarded[index] if index >= 0 else None
        before = self.guarded[index - 1] if index >= 1 else None
        return bool(
            here
            and before
            and here.kind == before.kind == "row"
            and here.start == before.end == position
        )

    def cuts(self, rank: int, low: int, high: int) -> list[int]:
        """Legal cuts after separator number `rank` in [low, high]."""
        found = self.separators[rank](self.text, max(0, low - 1), high)
        return [position for position in found if low <= position <= high and self.legal(position)]

    def words(self, low: int, high: int) -> list[int]:
        """Legal cuts in [low, high] between words of scripts without spaces."""
        return [position for position in word_ends(self.text, low, high) if self.legal(position)]

    def legal(self, position: int) -> bool:
        """True when a cut splits no run, unit, cluster or line of code, and does not separate a
        heading or a line of bold words from its text.
        """
        if self.inside(position) is not None or not is_grapheme_boundary(self.text, position):
            return False
        if (opened := _find_run(self.opened, self.opened_starts, position)) is not None:
            begins = opened.kind != "data" or DATA_ENTRY.match(self.text, position)
            return self.text[position - 1] == "\n" and bool(begins)
        if self.inside_unit(position) is not None:
            return False
        return not _after_heading(self.text, position)


def leaves_introduction(text: str, position: int) -> bool:
    """True when the text before the position ends with a colon and introduces what follows, unless
    that is a heading.
    """
    start = max(0, position - _MAX_LOOKBACK)
    tail = text[start:position].rstrip()[-_MAX_MARKS:].rstrip("*_")
    return tail.endswith((":", "：")) and HEADING.match(text, position) is None


def _find_run(runs: Sequence[Guarded], starts: Sequence[int], position: int) -> Guarded | None:
    """The run that the position is strictly inside of."""
    index = bisect_right(starts, position) - 1
    return runs[index] if index >= 0 and runs[index].start < position < runs[index].end else None


def _after_heading(text: str, position: int) -> bool:
    """True when the line before the position, or the one that ends there, is a heading or bold."""
    end = position
    while end > max(0, position - _MAX_LOOKBACK) and text[end - 1].isspace():
        end -= 1
    if "\n" not in text[end : position + 1]:
        return False
    line = text.rfind("\n", 0, end) + 1
    return bool(HEADING.match(text, line) or BOLD_LINE.match(text, line))


def boundaries(
    text: str, separators: Sequence[str], fits: Callable[[int, int], bool]
) -> Boundaries:
    """The legal cuts of a text. `fits(start, end)` says whether a run fits into one chunk. Fences
    and table rows up to WHOLE_CHARS stay whole anyway; longer fences are cut at line ends, the data
    of MDX components before an object, longer rows like text.
    """
    guarded: list[Guarded] = []
    opened = data_runs(text)
    for run in structure(text):
        if run.end - run.start <= WHOLE_CHARS or fits(run.start, run.end):
            guarded.append(run)
        elif run.kind == "fence":
            opened.append(run)
    ends = [
        _ends_of(rf"\n(?={HEADING.pattern})"),
        _ends_of(rf"\n(?={BOLD_LINE.pattern})"),
        *(separator_ends(item) for item in separators if item),
    ]
    given = [item for item in separators if item]
    lines = NAME_RANKS + given.index("\n") if "\n" in given else len(ends)
    # wrapped lines end anywhere in a sentence, so sentence ends come before plain line ends
    ends[lines : lines + 1] = [line_starts, sentence_ends, *ends[lines : lines + 1], clause_ends]
    units = inline_units(text, fits)
    opened.sort(key=lambda run: run.start)
    starts, opened_starts = [run.start for run in guarded], [run.start for run in opened]
    return Boundaries(
        text, ends, guarded, starts, opened, opened_starts, units, [start for start, _ in units]
    )


# possessive quantifiers prevent backtracking; no code span or link extends over a blank line
HEADING_LINE = r"^#{1,6}[ \t]+\S[^\n]*"
LINK = (
    r"!?\[(?:[^\[\]\n]|\n(?!\s*\n)|!?\[[^\[\]\n]*+\](?:\([^()\s]*+\))?)*+\]"
    r"\((?:<[^<>\n]*+>|(?:[^()\s]|\([^()\s]*+\))*+)(?:[ \t]+(?:\"[^\"\n]*+\"|'[^'\n]*+'))?[ \t]*\)"
)
TAG = r"</?[A-Za-z][^<>\n]*+>|<https?://[^<>\s]++>"
URL = r"\bhttps?://[^\s<>\"'）】」』，。；、！？]++"
UNIT = re.compile(
    rf"{HEADING_LINE}|^{BOLD_LINE.pattern}|{CODE_SPAN}|{LINK}|{TAG}|{URL}", re.MULTILINE
)
_BEGIN = re.compile(r"#|\*\*|`|!\[|\[|<|http")  # starts every UNIT; tried first, since it is rare
CHARACTER = re.compile(f"[{HAN}{KANA}]")
NO_START, NO_END = (
    set("，。、；：！？）】》」』〉”’…—·％,.;:!?)]}%ー々"),
    set("（【《「『〈“‘([{#$¥￥"),
)
CONTEXT = 40  # characters around a window that are segmented with it; no word is longer


def inline_units(text: str, fits: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """The disjoint spans, in order, that no cut may split; `fits(start, end)` says whether one fits
    into a chunk.
    """
    found: list[tuple[int, int]] = []
    position = 0
    while begun := _BEGIN.search(text, position):
        match = UNIT.match(text, begun.start())
        if match is None:
            position = begun.start() + 1
            continue
        start, position = match.span()
        if fits(start, position):
            found.append((start, position))
    return found


def word_ends(text: str, low: int, high: int) -> Iterator[int]:
    """The positions in [low, high] between Chinese or Japanese words at which a line may end."""
    if CHARACTER.search(text, max(0, low - 1), high + 1) is None:
        return
    place = max(0, low - CONTEXT)
    for word in chinese_dictionary().cut(text[place : high + CONTEXT]):
        place += len(word)
        pair = text[place - 1 : place + 1]
        if (
            low <= place <= high
            and len(pair) == 2
            and pair[0] not in NO_END
            and pair[1] not in NO_START
            and CHARACTER.search(pair)
        ):
            yield place
