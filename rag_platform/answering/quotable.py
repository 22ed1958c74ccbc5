"""What an answer may quote of a chunk: parts that make sense alone, how they are extended for a
reader, and how they are written.

A part is one unit, or an introduction with the units that it introduces. A quote is a run of units
of one chunk; each unit is a verbatim slice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from rag_platform.answering.citations import escape_marks
from rag_platform.answering.constants import MAX_LIST_CHARS, MAX_QUOTE_CHARS, MIN_QUOTE_CHARS
from rag_platform.text.markdown_blocks import FENCE, HEADING, cells
from rag_platform.text.passages import LINK, Unit, units

INTRODUCES = (":", "：")
# a sentence that cannot be understood without the one before it
_REFERS = re.compile(
    r"[*_]{0,3}(?:(?:this|that|these|those|it|they|he|she|the same|otherwise|instead|then|so|but|"
    r"however|therefore|thus|hence|also|and|or|similarly|likewise|as (?:such|a result)|"
    r"(?:because of|for|in|to (?:do|prevent|avoid|fix|achieve|solve)) (?:this|that|these|those|it)|"
    r"for (?:example|instance)|in such|to do so|if (?:it|so|not|this|that|they))\b|"
    r"这|该|那|它|他们|因此|所以|但|不过|然而|否则|例如|比如|此|为此|于是|然后|同样|并且|而|如果这|"
    r"也就是)",
    re.IGNORECASE,
)
_HEADING_LINE = re.compile(rf"^{HEADING.pattern}", re.MULTILINE)
_BETWEEN_ITEMS = re.compile(r"\s*(?:[-*+•]|\d{1,9}[.)、])?\s*")


@dataclass(frozen=True, slots=True)
class Part:
    """Units `first` to `last` of a chunk, which stand on their own together."""

    first: int
    last: int
    kind: str  # sentence | item | row | code | list
    start: int
    end: int
    context: str
    header: tuple[int, int] | None = None
    asked: tuple[int, int] = (0, 0)  # the span whose words tell what it is about


@dataclass(frozen=True, slots=True)
class Layout:
    """The units of a chunk, the parts that they make, and the part that owns each unit."""

    units: tuple[Unit, ...]
    parts: tuple[Part, ...]
    owners: tuple[Part | None, ...]


@lru_cache(maxsize=512)
def read_layout(text: str) -> Layout:
    """The parts of a chunk in order. A list with its introduction is a part besides its items."""
    read = tuple(units(text))
    parts: list[Part] = []
    owners: list[Part | None] = [None] * len(read)
    at = 0
    while at < len(read):
        last = at
        if _introduces(text, read[at]):
            last = _end_of_introduced(text, read, at)
            if read[last].kind == "item" and last > at:
                short = read[last].end - read[at].start <= MAX_LIST_CHARS
                if short and not all(_only_links(text, it) for it in read[at + 1 : last + 1]):
                    parts.append(_join(read, at, last, "list"))
                last = at
            # without what it introduces, only one that names code says anything
            if last == at and "`" not in text[read[at].start : read[at].end]:
                at += 1
                continue
        if not _is_cut(text, read[at]) and not _only_links(text, read[at]):
            part = _join(read, at, last, read[last].kind)
            owners[at : last + 1] = [part] * (last + 1 - at)
            parts.append(part)
        at = last + 1
    return Layout(read, tuple(parts), tuple(owners))


def _introduces(text: str, unit: Unit) -> bool:
    return unit.kind in ("sentence", "item") and text[unit.end - 1] in INTRODUCES


def _end_of_introduced(text: str, read: Sequence[Unit], at: int) -> int:
    """The last unit of what the unit `at` introduces: a block of code, a whole list or a sentence;
    `at` where that does not follow in its section.
    """
    if at + 1 == len(read) or not _adjoin(text, read[at], read[at + 1]):
        return at
    follows = read[at + 1]
    if follows.kind == "code":
        return at + 1
    if not _BETWEEN_ITEMS.fullmatch(text, read[at].end, follows.start):  # something is left out
        return at
    if follows.kind == "sentence" and not _introduces(text, follows):
        return at + 1
    last = at
    if read[at].kind == "sentence":
        while (
            last + 1 < len(read)
            and read[last + 1].kind == "item"
            and read[last + 1].context == follows.context
        ):
            last += 1
    return last


def _join(read: Sequence[Unit], first: int, last: int, kind: str) -> Part:
    head, tail = read[first], read[last]
    asked = (head.start, head.end if kind == "list" else tail.end)
    return Part(first, last, kind, head.start, tail.end, head.context, tail.header, asked)


def _adjoin(text: str, one: Unit, other: Unit) -> bool:
    """True where no heading stands between two units."""
    return _HEADING_LINE.search(text, one.end, other.start) is None


def _only_links(text: str, unit: Unit) -> bool:
    """True for an item of a navigation, of a list of further reading, or of a choice of languages
    (`English | [简体中文](README_cn.md)`).
    """
    said = text[unit.start : unit.end]
    if "](" not in said:
        return False
    rest = LINK.sub("", said)
    return not any(map(str.isalnum, rest)) or ("|" in rest and len(rest.split()) <= 3)


def _is_cut(text: str, unit: Unit) -> bool:
    """True where the chunk begins in the middle of a link."""
    said = text[unit.start : unit.end]
    close = said.find("](")
    return said.startswith(("(http", "](")) or (close >= 0 and said.find("[", 0, close) < 0)


# --- extending ----------------------------------------------------------------------------------


def extend(text: str, part: Part) -> range:
    """The units that a person would read with a part: with one that refers to the sentence before
    it that sentence, with code the sentence after it, and with a short sentence those around it.
    """
    layout = read_layout(text)
    first, last = part.first, part.last
    while part.kind in ("sentence", "code") and first and not layout.units[first].fence:
        before = _neighbour(text, layout, first, first - 1)
        if (
            before is None
            or not _REFERS.match(text, layout.units[first].start)
            or layout.units[last].end - before.start > MAX_QUOTE_CHARS
        ):
            break
        first = before.first
    if part.kind == "code" and last + 1 < len(layout.units):
        after = _neighbour(text, layout, last, last + 1)
        if (
            after is not None
            and after.kind == "sentence"
            and after.end - layout.units[first].start <= MAX_QUOTE_CHARS
        ):
            last = after.last
    if part.kind == "sentence":
        first, last = _lengthen(text, layout, first, last)
    return range(first, last + 1)


def _lengthen(text: str, layout: Layout, first: int, last: int) -> tuple[int, int]:
    """The first and last unit of a quote, extended within the paragraph while the quote is short:
    by the sentence before it and those after it. A single sentence often lacks its subject or its
    consequence.
    """
    read = layout.units

    def is_short() -> bool:
        return read[last].end - read[first].start < MIN_QUOTE_CHARS

    if first and is_short() and "\n\n" not in text[read[first - 1].end : read[first].start]:
        before = _neighbour(text, layout, first, first - 1)
        if before is not None and _joins_sentence(text, before, read[last].end - before.start):
            first = before.first
    while last + 1 < len(read) and is_short():
        after = _neighbour(text, layout, last, last + 1)
        if after is None or not _joins_sentence(text, after, after.end - read[first].start):
            break
        last = after.last
    return first, last


def _joins_sentence(text: str, other: Part, chars: int) -> bool:
    """False for an introduction of what is left out."""
    whole = other.kind == "sentence" and text[other.end - 1] not in INTRODUCES
    return whole and chars <= MAX_QUOTE_CHARS


def _neighbour(text: str, layout: Layout, number: int, other: int) -> Part | None:
    """The part of the unit before or after a unit in the same section, if that is prose or code."""
    part = layout.owners[other]
    one, two = sorted((number, other))
    prose = part is not None and part.kind in ("sentence", "code")
    return part if prose and _adjoin(text, layout.units[one], layout.units[two]) else None


def joins(text: str, one: Part, known: Collection[int], other: Part, new: Sequence[int]) -> bool:
    """True where the units of two quotes are read as one: rows of one table, or units that overlap
    or follow each other in their section.
    """
    if "row" in (one.kind, other.kind):
        return one.kind == other.kind and one.header == other.header
    if any(number in known for number in new):
        return True
    read = read_layout(text).units
    before, after = new[0] - 1, new[-1] + 1
    return (before in known and _adjoin(text, read[before], read[new[0]])) or (
        after in known and _adjoin(text, read[new[-1]], read[after])
    )


# --- writing ------------------------------------------------------------------------------------


def render_run(text: str, chosen: Collection[int], mark: str) -> str:
    """Units of a chunk as they stand in it, without what stands between them, and the mark."""
    read = read_layout(text).units
    runs = list(_group(sorted(chosen)))
    blocks = [_render_units(text, _join_pieces([read[i] for i in run])) for run in runs]
    last = read[runs[-1][-1]]
    apart = last.kind == "code" or (last.kind == "item" and len(chosen) > 1)
    return "\n\n".join(blocks) + ("\n\n" if apart else " ") + mark


def _group(numbers: Sequence[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    yield run


def _render_units(text: str, run: Sequence[Unit]) -> str:
    shown = "- " if run[0].kind == "item" else ""
    for before, unit in zip([None, *run], run, strict=False):
        if before is not None:
            between = text[before.end : unit.start]
            if _BETWEEN_ITEMS.fullmatch(between):
                shown += between
            else:
                shown += "\n\n- " if unit.kind == "item" else "\n\n"
        quote = text[unit.start : unit.end]
        if unit.fence:
            quote = _fence(text[slice(*unit.fence)], quote)
        shown += quote if unit.kind == "code" else escape_marks(quote)
    return shown


def _join_pieces(run: Sequence[Unit]) -> list[Unit]:
    """The units, those that are pieces of one block of code as one."""
    joined: list[Unit] = []
    for unit in run:
        if unit.fence and joined and joined[-1].fence == unit.fence:
            joined[-1] = replace(joined[-1], end=unit.end)
        else:
            joined.append(unit)
    return joined


def _fence(opening: str, code: str) -> str:
    """Lines of a block of code between its opening line and one that closes it."""
    opened = FENCE.match(opening)
    mark = opened[1] if opened else "```"
    return f"{opening[opened.start(1) if opened else 0 :].rstrip()}\n{code}\n{mark}"


def render_rows(text: str, chosen: Collection[int], mark: str) -> str:
    """Rows of one table under its header, and the mark."""
    read = read_layout(text).units
    rows = [read[i] for i in sorted(chosen)]
    lines = [escape_marks(text[row.start : row.end]) for row in rows]
    if header := rows[0].header:
        head = text[slice(*header)].strip()
        lines = [head, "|" + " --- |" * len(cells(head)), *lines]
    return "\n".join(lines) + f"\n\n{mark}"
