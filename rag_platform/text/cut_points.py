"""Where a text may be cut: never inside a grapheme cluster, fence, table row, heading, link, code
span, tag or URL, and in Chinese between words.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rag_platform.text.markdown_blocks import CODE_SPAN, HEADING, Guarded, structure
from rag_platform.text.scripts import HAN, KANA
from rag_platform.text.segmentation import chinese_dictionary
from rag_platform.text.sentences import CLOSERS, STOPS, sentence_ends

Ends = Callable[[str, int, int], Iterable[int]]  # where in text[start:end] a separator ends
_CLAUSE = re.compile(rf"(?:[，、：；]|……|——)+[{CLOSERS}]*|(?<=[^\s,:;])[,:;][{CLOSERS}]*(?=\s)")
_BLANKS = re.compile(r"[ \t\u3000]+")
# what a sentence goes on with on the next line: no digit, list item, heading, row or quote
_BREAKS = re.compile("\n+")
_GOES_ON = re.compile(r"[ \t]*(?:[^\W\d_]|[\"'“‘(\[*_`](?=[^\W_]))")
_STOPS = frozenset(f".!?{STOPS}:：;；|…")
_LOOKED_BACK = 400  # characters before a place, for what stands behind white space
_MARKS = 4  # characters: a colon and the marks of bold or slanting text behind it
_WRAPPED_COLUMNS = 60  # of the lines of wrapped prose, at least; wide characters are two
# characters of a cluster or a row of flags that are looked at; no writing has more
_LONGEST_CLUSTER = 256


def is_grapheme_boundary(text: str, index: int) -> bool:
    """True when a cut before text[index] splits no grapheme cluster, which a reader takes for one
    character (UAX 29); always true at both ends.
    """
    if index <= 0 or index >= len(text):
        return True
    beside = text[index - 1 : index + 1]
    if beside.isascii():
        return beside != "\r\n"
    cluster, last_cluster = _cluster_patterns()
    start = last_cluster.search(text, max(0, index - _LONGEST_CLUSTER), index).start()
    found: int = cluster.match(text, start).end()
    return found == index


@cache
def _cluster_patterns() -> tuple[Any, Any]:
    """A cluster, and the same searched from the end."""
    import regex  # takes longer than all other imports of a question

    return regex.compile(r"\X"), regex.compile(r"(?r)\X")


def clause_ends(text: str, start: int, end: int) -> Iterable[int]:
    """The offsets behind commas, colons, semicolons and dashes."""
    return (match.end() for match in _CLAUSE.finditer(text, start, end))


def blank_ends(text: str, start: int, end: int) -> Iterable[int]:
    """The offsets behind runs of blanks."""
    return (match.end() for match in _BLANKS.finditer(text, start, end))


def line_starts(text: str, start: int, end: int) -> Iterable[int]:
    """The offsets behind line breaks, but for those within a sentence: the next line goes on with
    it in lower case, or the line is as wide as wrapped prose is.
    """
    for match in _BREAKS.finditer(text, start, end):
        if match.end() - match.start() > 1 or not _is_wrapped(text, match.start()):
            yield match.end()


def _is_wrapped(text: str, line_break: int) -> bool:
    following = _GOES_ON.match(text, line_break + 1)
    line = text[text.rfind("\n", 0, line_break) + 1 : line_break]
    if following is None or not line or line.rstrip(f" \t{CLOSERS}")[-1:] in _STOPS:
        return False
    columns = len(line) + len(CHARACTER.findall(line))
    return text[following.end() - 1].islower() or columns >= _WRAPPED_COLUMNS


def _ends_of(pattern: str) -> Ends:
    compiled = re.compile(pattern)
    return lambda text, start, end: (match.end() for match in compiled.finditer(text, start, end))


def separator_ends(separator: str) -> Ends:
    """A function that finds the ends of a separator; of line breaks, as many or more."""
    if separator.strip("\n") == "":
        return _ends_of(f"\n{{{len(separator)},}}")
    return blank_ends if separator == " " else _ends_of(re.escape(separator))


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The legal cuts of one text; asked for a window at a time."""

    text: str
    separators: Sequence[Ends]  # the best first
    guarded: Sequence[Guarded]  # runs that are never cut
    starts: Sequence[int]
    opened: Sequence[Guarded]  # fences far too long to stay whole: cut at line ends only
    opened_starts: Sequence[int]
    units: Sequence[tuple[int, int]]  # headings, links, code spans and the like that are never cut
    unit_starts: Sequence[int]

    @property
    def sentence_ranks(self) -> range:
        """The separators behind which a sentence begins, headings apart."""
        return range(1, self.separators.index(sentence_ends) + 1)

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
        return (
            self.units[index]
            if index >= 0 and self.units[index][0] < position < self.units[index][1]
            else None
        )

    def inside_opened(self, position: int) -> bool:
        """True inside a fence that may be cut, but only at its line ends."""
        return _holding(self.opened, self.opened_starts, position) is not None

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
        """Legal cuts behind separator number `rank` in [low, high]."""
        found = self.separators[rank](self.text, max(0, low - 1), high)
        return [position for position in found if low <= position <= high and self.legal(position)]

    def words(self, low: int, high: int) -> list[int]:
        """Legal cuts in [low, high] between words of scripts that write no blanks."""
        return [position for position in word_ends(self.text, low, high) if self.legal(position)]

    def edges(self, low: int, high: int) -> list[int]:
        """Legal cuts in [low, high] before and behind links, code spans and the like."""
        near = self.units[
            max(0, bisect_right(self.unit_starts, low) - 1) : bisect_right(self.unit_starts, high)
        ]
        return [edge for unit in near for edge in unit if low <= edge <= high and self.legal(edge)]

    def legal(self, position: int) -> bool:
        """True when a cut splits no run, unit, cluster or line of code, and leaves no heading
        behind.
        """
        if self.inside(position) is not None or not is_grapheme_boundary(self.text, position):
            return False
        if self.inside_opened(position):
            return self.text[position - 1] == "\n"
        if self.inside_unit(position) is not None:
            return False
        return not _after_heading(self.text, position)


def leaves_introduction(text: str, position: int) -> bool:
    """True when the text before the position ends in a colon and introduces what follows, which is
    no heading.
    """
    start = max(0, position - _LOOKED_BACK)
    said = text[start:position].rstrip()[-_MARKS:].rstrip("*_")
    return said.endswith((":", "：")) and HEADING.match(text, position) is None


def _holding(runs: Sequence[Guarded], starts: Sequence[int], position: int) -> Guarded | None:
    index = bisect_right(starts, position) - 1
    return runs[index] if index >= 0 and runs[index].start < position < runs[index].end else None


def _after_heading(text: str, position: int) -> bool:
    """True when the line before the position, or the one that ends there, is a heading."""
    end = position
    while end > max(0, position - _LOOKED_BACK) and text[end - 1].isspace():
        end -= 1
    return (
        "\n" in text[end : position + 1]
        and HEADING.match(text, text.rfind("\n", 0, end) + 1) is not None
    )


def boundaries(
    text: str,
    separators: Sequence[str],
    fits: Callable[[int, int], bool],
    keeps: Callable[[int, int], bool] | None = None,
) -> Boundaries:
    """The legal cuts of a text. `fits(start, end)` says whether a run can be one chunk, `keeps`
    whether a longer fence or row stays whole nevertheless. Other fences are cut at line ends, other
    rows like text.
    """
    guarded: list[Guarded] = []
    opened: list[Guarded] = []
    for run in structure(text):
        if fits(run.start, run.end) or (keeps is not None and keeps(run.start, run.end)):
            guarded.append(run)
        elif run.kind == "fence":
            opened.append(run)
    ends = [
        _ends_of(rf"\n(?={HEADING.pattern})"),
        *(separator_ends(item) for item in separators if item),
    ]
    given = [item for item in separators if item]
    lines = 1 + given.index("\n") if "\n" in given else len(ends)
    # a line of wrapped prose ends anywhere in a sentence
    ends[lines : lines + 1] = [line_starts, sentence_ends, *ends[lines : lines + 1], clause_ends]
    units = inline_units(text, fits)
    starts, opened_starts = [run.start for run in guarded], [run.start for run in opened]
    return Boundaries(
        text, ends, guarded, starts, opened, opened_starts, units, [start for start, _ in units]
    )


# Possessive, so that no text makes them try again; a code span or a link reaches over no blank
# line.
HEADING_LINE = r"^#{1,6}[ \t]+\S[^\n]*"
LINK = (
    r"!?\[(?:[^\[\]\n]|\n(?!\s*\n)|!?\[[^\[\]\n]*+\](?:\([^()\s]*+\))?)*+\]"
    r"\((?:<[^<>\n]*+>|(?:[^()\s]|\([^()\s]*+\))*+)(?:[ \t]+(?:\"[^\"\n]*+\"|'[^'\n]*+'))?[ \t]*\)"
)
TAG = r"</?[A-Za-z][^<>\n]*+>|<https?://[^<>\s]++>"
URL = r"\bhttps?://[^\s<>\"'）】」』，。；、！？]++"
UNIT = re.compile(
    rf"(?P<heading>{HEADING_LINE})|(?P<code>{CODE_SPAN})|(?P<link>{LINK})|{TAG}|{URL}", re.MULTILINE
)
_BEGIN = re.compile(r"#|`|!\[|\[|<|http")  # of every unit; looked for first, for prose has few
HEADING_BEGIN = re.compile(r"#{1,6}[ \t]+\S{1,40}")
CHARACTER = re.compile(f"[{HAN}{KANA}]")
NO_START, NO_END = (
    set("，。、；：！？）】》」』〉”’…—·％,.;:!?)]}%ー々"),
    set("（【《「『〈“‘([{#$¥￥"),
)
CONTEXT = 40  # characters around a window that the dictionary sees; no word is longer


def inline_units(text: str, fits: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """The spans, in order and apart, that no cut may split; `fits(start, end)` says whether one can
    stand in a chunk at all.

    Of a heading that does not fit, the marker stays with the first word; of a link, its inner units
    remain.
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
        elif match["heading"] is not None and (begin := HEADING_BEGIN.match(text, start)):
            found.append(begin.span())
            position = begin.end()
        elif match["link"] is not None:
            position = start + 1
    return found


def word_ends(text: str, low: int, high: int) -> Iterator[int]:
    """The places in [low, high] between two words of Chinese or Japanese where a line may end."""
    if CHARACTER.search(text, max(0, low - 1), high + 1) is None:
        return
    place = max(0, low - CONTEXT)
    for word in chinese_dictionary().cut(text[place : high + CONTEXT]):
        place += len(word)
        beside = text[place - 1 : place + 1]
        if (
            low <= place <= high
            and len(beside) == 2
            and beside[0] not in NO_END
            and beside[1] not in NO_START
            and CHARACTER.search(beside)
        ):
            yield place
