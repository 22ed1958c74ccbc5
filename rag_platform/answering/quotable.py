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
from itertools import takewhile

from rag_platform.answering.citations import LEFT_OUT, escape_marks
from rag_platform.answering.constants import (
    MAX_ABOVE_CHARS,
    MAX_LIST_CHARS,
    MAX_QUOTE_CHARS,
    MIN_QUOTE_CHARS,
)
from rag_platform.text.markdown_blocks import ASKS, FENCE, HAN_DIGIT, MARK, cells
from rag_platform.text.passages import LINK, Unit, units
from rag_platform.text.plain_quotes import plain, plain_code
from rag_platform.text.scripts import HAN, HANGUL, is_wide
from rag_platform.text.sentences import CLOSERS, STOPS
from rag_platform.text.term_overlap import POINTS

INTRODUCES = (":", "：")
# a sentence that cannot be understood without the one before it
_REFERS = re.compile(
    r"[*_]{0,3}(?:(?:this|that|these|those|it|they|he|she|the same|otherwise|instead|then|so|but|"
    r"however|therefore|thus|hence|now|also|and|or|similarly|likewise|as (?:such|a result)|"
    r"(?:because of|for|in|to (?:do|prevent|avoid|fix|achieve|solve)) (?:this|that|these|those|it)|"
    r"for (?:example|instance)|in such|to do so|if (?:it|so|not|this|that|they))\b|"
    r"这|该|那|它|他们|因此|所以|但|不过|然而|否则|例如|比如|此|为此|于是|然后|同样|并且|而|如果这|"
    r"也就是)",
    re.IGNORECASE,
)
# the end of a whole sentence, and what belongs to it behind its mark
_ENDED = re.compile(rf"[.!?…;；{STOPS}][{CLOSERS}»`]*\Z")
_NEXT_QUESTION = ("?**", "？**")  # the end of a bold question, which begins another answer
SECTION_LEVELS = 2  # of headings that begin sections
_DATED = re.compile(r"\d+\.\d+\.\d+|\d{4}-\d{2}-\d{2}")
_SECTION_NUMBER = re.compile(rf"(?<![^,，])\s*\d+(?:\.\d+)+\s+(?=[A-Z{HAN}])")  # no version
_ASKED = re.compile(rf"^{ASKS}\s*")
_ANCHOR = re.compile(r"\s*\{[^{}]*\}\s*$")  # `{#name}` behind a heading
# of `5.2.1. Tools`: within a line it would end a sentence
_NUMBER_END = re.compile(r"(?<=\d)\.(?=\s)")
_HANGUL = re.compile(f"[{HANGUL}]")  # Korean has the punctuation of English
# a heading of code alone, or of one name with a mark or a capital inside
_IDENTIFIER = re.compile(r"`[^`\s]+`|(?!v?[\d.]+$)(?=\w+[_.(]|[a-z]+[A-Z])[\w.]+(?:\([^()\s]*\))?")
_BETWEEN_ITEMS = re.compile(rf"\s*{MARK}?\s*")
# Chinese marks nest without an indentation: 一、（一）1.（1）①; any other stands where `1.` does
_RANKED = re.compile(f"({HAN_DIGIT})|([(（]{HAN_DIGIT})|([(（])|([①-⑳])")
_RANKS = {1: 0, 2: 1, None: 2, 3: 3, 4: 4}
_RANK_INDENT = 3
_NUMBER = re.compile(r"\d{1,9}[.)]")  # of an item in Markdown


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
    question: str = ""  # the heading above, if it is one that the part answers


@dataclass(frozen=True, slots=True)
class Layout:
    """The units of a chunk, the parts that they make, and the part that owns each unit."""

    units: tuple[Unit, ...]
    parts: tuple[Part, ...]
    owners: tuple[Part | None, ...]


@lru_cache(maxsize=512)
def read_layout(text: str) -> Layout:
    """The parts of a chunk in order. A list with its introduction, or right below a heading, is a
    part besides its items.
    """
    read = tuple(units(text))
    parts: list[Part] = []
    owners: list[Part | None] = [None] * len(read)
    at = 0
    while at < len(read):
        last = at
        if (listed := _read_section_list(text, read, at)) is not None:
            parts.append(listed)
        if _introduces(text, read, at):
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
        links = _only_links(text, read[at]) and not _is_alone(read, at)
        if not _is_cut(text, read[at]) and not links:
            part = _join(read, at, last, read[last].kind)
            owners[at : last + 1] = [part] * (last + 1 - at)
            parts.append(part)
        at = last + 1
    return Layout(read, tuple(parts), tuple(owners))


def _introduces(text: str, read: Sequence[Unit], at: int) -> bool:
    """True for what ends with a colon, and for a sentence that code goes on with."""
    unit = read[at]
    return _ends_with_colon(text, unit) or (
        unit.kind == "sentence"
        and at + 1 < len(read)
        and read[at + 1].kind == "code"
        and _adjoin(unit, read[at + 1])
        and not _ENDED.search(text, unit.start, unit.end)
    )


def _read_section_list(text: str, read: Sequence[Unit], at: int) -> Part | None:
    """The list that begins right below a heading, which tells what it is about; None for another
    unit, and for a list that is too long, has one item or only links.
    """
    own = read[at].headings
    if read[at].kind != "item" or not own or (at and read[at - 1].headings == own):
        return None
    items = list(takewhile(lambda it: it.kind == "item" and it.headings == own, read[at:]))
    begin = text.rfind(own[-1][1], 0, items[0].start)
    short = items[-1].end - items[0].start <= MAX_LIST_CHARS
    if len(items) == 1 or not short or begin < 0 or all(_only_links(text, it) for it in items):
        return None
    asked = (begin, begin + len(own[-1][1]))
    return replace(_join(read, at, at + len(items) - 1, "list"), asked=asked)


def _ends_with_colon(text: str, unit: Unit) -> bool:
    return unit.kind in ("sentence", "item") and text[unit.end - 1] in INTRODUCES


def _end_of_introduced(text: str, read: Sequence[Unit], at: int) -> int:
    """The last unit of what the unit `at` introduces: a block of code, a whole list or a sentence;
    `at` where that does not follow in its section.
    """
    if at + 1 == len(read) or not _adjoin(read[at], read[at + 1]):
        return at
    follows = read[at + 1]
    if follows.kind == "code":
        return at + 1
    if not _BETWEEN_ITEMS.fullmatch(text, read[at].end, follows.start):  # something is left out
        return at
    if follows.kind == "sentence" and not _introduces(text, read, at + 1):
        return at + 1
    if read[at].kind == "item":
        return _end_of_nested(text, read, at)
    items = takewhile(
        lambda unit: unit.kind == "item" and unit.context == follows.context, read[at + 1 :]
    )
    return at + sum(1 for _ in items)


def _end_of_nested(text: str, read: Sequence[Unit], at: int) -> int:
    """The last of the items that are nested in the item `at`; `at` where there are none."""
    item, indent = read[at], _indent(text, read[at])
    nested = takewhile(
        lambda unit: (
            unit.kind == "item"
            and unit.context == item.context
            and _adjoin(item, unit)
            and _indent(text, unit) > indent
        ),
        read[at + 1 :],
    )
    return at + sum(1 for _ in nested)


def _join(read: Sequence[Unit], first: int, last: int, kind: str) -> Part:
    head, tail = read[first], read[last]
    asked = (head.start, head.end if kind == "list" else tail.end)
    question = "" if first and _adjoin(read[first - 1], head) else _find_question(head)
    return Part(first, last, kind, head.start, tail.end, head.context, tail.header, asked, question)


def _find_question(unit: Unit) -> str:
    """The heading above a unit where it is a question of more than one word, else ""."""
    name = _ANCHOR.sub("", unit.headings[-1][1]) if unit.headings else ""
    return name if name.endswith(("?", "？")) and (is_wide(name) or " " in name) else ""


def _adjoin(one: Unit, other: Unit) -> bool:
    """True where no heading stands between two units."""
    return one.headings == other.headings


def _only_links(text: str, unit: Unit) -> bool:
    """True for an item of a navigation, of a list of further reading, or of a choice of languages
    (`English | [简体中文](README_cn.md)`).
    """
    said = text[unit.start : unit.end]
    if "](" not in said:
        return False
    rest = LINK.sub("", said)
    named = unit.kind != "row" and "|" in rest and len(rest.split()) <= 3
    return named or not any(map(str.isalnum, rest))


def _is_alone(read: Sequence[Unit], at: int) -> bool:
    """True for a sentence that is all that stands below its heading: `[MIT](LICENSE)`."""
    own = read[at].headings
    beside = [*read[max(0, at - 1) : at], *read[at + 1 : at + 2]]
    return read[at].kind == "sentence" and own not in [(), *(unit.headings for unit in beside)]


def _is_cut(text: str, unit: Unit) -> bool:
    """True where the chunk begins in the middle of a link."""
    said = text[unit.start : unit.end]
    close = said.find("](")
    return said.startswith(("(http", "](")) or (close >= 0 and said.find("[", 0, close) < 0)


# --- extending ----------------------------------------------------------------------------------


def extend(text: str, part: Part) -> Sequence[int]:
    """The units that a person would read with a part: with one that refers to the sentence before
    it that sentence, with code the sentence after it, with an item what introduces its list and
    those that are nested beside or in it, and with a short sentence those around it.
    """
    layout = read_layout(text)
    first, last = part.first, part.last
    if part.kind == "item":
        above = _find_above(text, layout.units, first)
        if above and (whole := _find_nested(text, layout.units, above[0])):
            return whole
        return [*above, *(_find_nested(text, layout.units, first) or range(first, last + 1))]
    while part.kind in ("sentence", "code") and first and not layout.units[first].fence:
        before = _neighbour(text, layout, first, first - 1)
        if (
            before is None
            or not _REFERS.match(text, layout.units[first].start)
            or POINTS.search(text[before.start : before.end])
            or layout.units[last].end - before.start > MAX_QUOTE_CHARS
        ):
            break
        first = before.first
    if part.kind == "code" and last + 1 < len(layout.units):
        after = _neighbour(text, layout, last, last + 1)
        if after is not None and _joins_sentence(
            text, after, after.end - layout.units[first].start
        ):
            last = after.last
    if part.kind == "sentence":
        first = _take_code(text, layout, first, last)
        first, last = _lengthen(text, layout, first, last)
        last = _end_of_shown(text, layout, first, last)
    return range(first, last + 1)


def list_rows(text: str, part: Part) -> list[int]:
    """The rows of the table of a row from that on, as many as a list may have."""
    rows, left = [part.first], MAX_LIST_CHARS
    for number, unit in enumerate(read_layout(text).units):
        left -= unit.end - unit.start if unit.header == part.header else 0
        if number > part.first and unit.kind == "row" and unit.header == part.header and left >= 0:
            rows.append(number)
    return rows


def _find_above(text: str, read: Sequence[Unit], number: int) -> list[int]:
    """The item above a nested one, or the sentence that introduces the list of an item."""
    item, indent = read[number], _indent(text, read[number])
    at = number - 1
    while at >= 0 and read[at].kind == "item" and read[at].context == item.context:
        if not _adjoin(read[at], item):
            return []
        if _indent(text, read[at]) < indent:
            break
        at -= 1
    if at < 0 or read[at].end - read[at].start > MAX_ABOVE_CHARS:
        return []
    # where the chunk begins with an item, how far that is indented is not known
    is_above = (read[at].kind == "item" and "\n" in text[: read[at].start]) or (
        _introduces(text, read, at) and _end_of_introduced(text, read, at) >= number
    )
    return [at] if is_above and read[at].context in item.context else []


def _find_nested(text: str, read: Sequence[Unit], number: int) -> range:
    """An item with all that are nested in it; empty where that is too long, there are none, or the
    chunk begins with the item, so that how far that is indented is not known.
    """
    if read[number].kind != "item" or "\n" not in text[: read[number].start]:
        return range(0)
    last = _end_of_nested(text, read, number)
    short = read[last].end - read[number].start <= MAX_LIST_CHARS
    return range(number, last + 1) if last > number and short else range(0)


def _indent(text: str, unit: Unit) -> int:
    """How deep an item is nested, by where its line begins and by what its marker is."""
    line = text[text.rfind("\n", 0, unit.start) + 1 : unit.start].lstrip(">")
    marker = line.lstrip()
    ranked = _RANKED.match(marker)
    rank = _RANKS[ranked.lastindex if ranked else None]
    return len(line) - len(marker) + _RANK_INDENT * rank


def _take_code(text: str, layout: Layout, first: int, last: int) -> int:
    """The first unit of a quote of sentences, with the block of code before it that no sentence
    introduces: what follows such a block explains it.
    """
    code = layout.owners[first - 1] if first else None
    if (
        code is None
        or code.kind != "code"
        or code.first != code.last
        or layout.units[code.first].fence
        or not _adjoin(layout.units[code.first], layout.units[first])
        or layout.units[last].end - code.start > MAX_QUOTE_CHARS
    ):
        return first
    before = layout.units[code.first - 1] if code.first else None
    follows = before is not None and _adjoin(before, layout.units[code.first])
    return first if follows else code.first


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
        if (
            after is None
            or text.startswith(_NEXT_QUESTION, after.end - 3)
            or not _joins_sentence(text, after, after.end - read[first].start)
        ):
            break
        last = after.last
    return first, last


def _end_of_shown(text: str, layout: Layout, first: int, last: int) -> int:
    """The last unit of a quote of sentences, with the code right behind a last paragraph of one
    sentence, which it shows, where both are short.
    """
    code = layout.owners[last + 1] if last + 1 < len(layout.units) else None
    if code is None or code.kind != "code" or layout.units[code.first].fence:
        return last
    follows = _adjoin(layout.units[last], layout.units[code.first])
    alone = text[: layout.units[last].start][-2:] in ("", "\n\n")
    short = code.end - layout.units[first].start <= MAX_QUOTE_CHARS
    return code.last if follows and alone and short else last


def _joins_sentence(text: str, other: Part, chars: int) -> bool:
    """False for an introduction of what is left out, and for one that only points elsewhere."""
    whole = other.kind == "sentence" and text[other.end - 1] not in INTRODUCES
    points = POINTS.search(text[other.start : other.end])
    return whole and not points and chars <= MAX_QUOTE_CHARS


def _neighbour(text: str, layout: Layout, number: int, other: int) -> Part | None:
    """The part of the unit before or after a unit in the same section, if that is prose or code."""
    part = layout.owners[other]
    one, two = sorted((number, other))
    prose = part is not None and part.kind in ("sentence", "code")
    return part if prose and _adjoin(layout.units[one], layout.units[two]) else None


def joins(text: str, one: Part, known: Collection[int], other: Part, new: Sequence[int]) -> bool:
    """True where the units of two quotes are read as one: rows of one table, or units that overlap
    or follow each other in their section.
    """
    if "row" in (one.kind, other.kind):
        return one.kind == other.kind and one.header == other.header
    if any(number in known for number in new):
        return True
    read = read_layout(text).units
    if one.kind == other.kind == "item" and read[one.first].context == read[other.first].context:
        return read[one.first].headings == read[other.first].headings
    before, after = new[0] - 1, new[-1] + 1
    return (before in known and _adjoin(read[before], read[new[0]])) or (
        after in known and _adjoin(read[new[-1]], read[after])
    )


# --- writing ------------------------------------------------------------------------------------


def name_run(text: str, chosen: Collection[int], section: str) -> str:
    """The line above units of a chunk: the name of their section where they are items or code that
    nothing introduces, where it is a version or a date, and where it is the name of a setting, a
    function or the like that they speak of without naming it, else "".
    """
    read = read_layout(text).units
    first = read[min(chosen)]
    name = _name_place(section, first)
    dated = _DATED.search(_SECTION_NUMBER.sub("", name))
    if first.kind in ("item", "code") or dated or _find_question(first):
        return name
    own = _ANCHOR.sub("", first.headings[-1][1] if first.headings else section).strip()
    said = text[first.start : read[max(chosen)].end]
    return name if _IDENTIFIER.fullmatch(own) and own.strip("`") not in said else ""


def render_run(text: str, chosen: Collection[int], mark: str, name: str = "") -> str:
    """Units of a chunk as they stand in it, without what stands between them, below a name, and the
    mark.
    """
    read = read_layout(text).units
    runs = [_join_pieces([read[i] for i in run]) for run in _group(sorted(chosen))]
    last = runs[-1][-1]
    items = [unit for run in runs for unit in run if unit.kind == "item"]
    shown = f"{name}\n\n" if name else ""
    for before, run in zip([None, *runs], runs, strict=False):
        if before is not None:
            shown += "\n" if before[-1].kind == run[0].kind == "item" else "\n\n"
        shown += _render_units(text, run, items)
    if _introduces(text, read, max(chosen)):
        shown += LEFT_OUT
    elif _is_part_of_list(read, chosen):
        shown += f"\n-{LEFT_OUT}"
    apart = last.kind == "code" or (last.kind == "item" and (len(chosen) > 1 or bool(name)))
    return shown + ("\n\n" if apart else " ") + mark


def _is_part_of_list(read: Sequence[Unit], chosen: Collection[int]) -> bool:
    """True where the last list is quoted with the sentence that introduces it, and not whole."""
    first = end = max(chosen)
    if read[end].kind != "item":
        return False

    def belongs(number: int) -> bool:
        return read[number].kind == "item" and read[number].context == read[end].context

    while first and belongs(first - 1):
        first -= 1
    while end + 1 < len(read) and belongs(end + 1):
        end += 1
    return first - 1 in chosen and any(number not in chosen for number in range(first, end + 1))


def _name_place(section: str, unit: Unit) -> str:
    """The last two of the headings above a unit, as a line that introduces. What a chunk holds of
    the levels of sections is a section of its own, too short to be a chunk.
    """
    inside = unit.headings
    names = [text for _, text in inside]
    if not inside or inside[0][0] > SECTION_LEVELS:
        names = [section, *names]
    return introduce(names[-2:])


def introduce(names: Sequence[str]) -> str:
    """The names as a line that introduces what follows; empty without a word."""
    shown = [_ASKED.sub("", _ANCHOR.sub("", plain(name))).strip(" #*:：?？.。") for name in names]
    shown = [_NUMBER_END.sub("", name) for name in shown]
    if not any(shown):
        return ""
    wide = is_wide(" ".join(shown)) and not _HANGUL.search(" ".join(shown))
    return escape_marks(("，" if wide else ", ").join(filter(None, shown))) + (
        "：" if wide else ":"
    )


def _group(numbers: Sequence[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    yield run


def _render_units(text: str, run: Sequence[Unit], items: Sequence[Unit]) -> str:
    """Units without anything quotable between them, one of the runs that have those items."""
    least = min((_indent(text, unit) for unit in items), default=0)
    shown = ""
    for before, unit in zip([None, *run], run, strict=False):
        quote = text[unit.start : unit.end]
        if unit.kind == "code":
            quote = plain_code(_fence(text[slice(*unit.fence)], quote) if unit.fence else quote)
        else:
            quote = escape_marks(plain(quote))
        if unit.kind == "item":
            indent = " " * (_indent(text, unit) - least)
            marker = _marker(text, unit, alone=len(items) == 1)
            quote = f"{indent}{marker}{'' if marker[-1] in '）、' else ' '}{quote}"
        shown += _read_gap(text, before, unit) + quote
    return shown


def _marker(text: str, item: Unit, *, alone: bool) -> str:
    """The number of an item as Markdown has it; a dash for any other and for one that is alone."""
    line = text[text.rfind("\n", 0, item.start) + 1 : item.start]
    marker = line.strip(" \t\u3000>")
    if alone or not marker or marker in "-*+•":
        return "-"
    return marker if _NUMBER.fullmatch(marker) else f"- {marker}"


def _read_gap(text: str, before: Unit | None, unit: Unit) -> str:
    """What stands between two units of a quote: as much white space as there is in their text."""
    if before is None:
        return ""
    between = text[before.end : unit.start]
    if not _BETWEEN_ITEMS.fullmatch(between):
        left_out = unit.kind != "code" and _ends_with_colon(text, before)
        return f"{LEFT_OUT}\n\n" if left_out else "\n\n"
    if unit.kind == "item":
        return "\n" * max(1, between.count("\n"))
    return between


def _join_pieces(run: Sequence[Unit]) -> list[Unit]:
    """The units, those that are pieces of one block of code as one."""
    joined: list[Unit] = []
    for unit in run:
        before = joined[-1] if joined else None
        if (
            before is not None
            and (before.kind, before.fence) == ("code", unit.fence)
            and (unit.fence or (unit.kind == "code" and unit.start == before.end + 1))
        ):
            joined[-1] = replace(joined[-1], end=unit.end)
        else:
            joined.append(unit)
    return joined


def _fence(opening: str, code: str) -> str:
    """Lines of a block of code between its opening line and one that closes it."""
    opened = FENCE.match(opening)
    at, mark = (opened.start(1), opened[1]) if opened else (0, "```")
    quoted = opening[:at] if ">" in opening[:at] else ""
    return f"{quoted}{opening[at:].rstrip()}\n{code}\n{quoted}{mark}"


def render_rows(
    text: str,
    chosen: Collection[int],
    mark: str,
    name: str = "",
    head: str = "",
    *,
    listed: bool = False,
    goes_on: bool = False,
) -> str:
    """Rows of one table under its header, below a name, and the mark. Where they are to list what
    the table has, a sign stands for those that it has besides, also in other passages.
    """
    read = read_layout(text).units
    rows = [read[i] for i in sorted(chosen)]
    lines = [escape_marks(plain(text[row.start : row.end])) for row in rows]
    header = rows[0].header
    columns = len(cells(head or lines[0]))
    every = sum(unit.kind == "row" and unit.header == header for unit in read)
    last = goes_on and (read[-1].kind, read[-1].header) == ("row", header)
    cut = every > len(rows) or last or header is None
    sign = f"\n\n{LEFT_OUT.strip()}" if listed and cut else ""
    table = "\n".join(
        [plain(head.strip()) or "|" + "  |" * columns, "|" + " --- |" * columns, *lines]
    )
    return (f"{name}\n\n" if name else "") + f"{table}{sign}\n\n{mark}"
