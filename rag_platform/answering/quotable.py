"""What an answer may quote of a chunk: the parts that make sense alone, how they are extended for a
reader, and how they are rendered.

A part is one unit, or an introduction with the units that it introduces. A quote is a run of units
of one chunk; each unit is a verbatim slice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile

from rag_platform.answering.citations import INCLUDES, LEFT_OUT, escape_marks
from rag_platform.answering.constants import (
    MAX_ABOVE_CHARS,
    MAX_LIST_CHARS,
    MAX_QUOTE_CHARS,
    MIN_QUOTE_CHARS,
)
from rag_platform.text.boxes import KINDS
from rag_platform.text.entries import find_described, find_signed
from rag_platform.text.markdown_blocks import ASKS, FENCE, MARK, cells
from rag_platform.text.passages import BOX_LEVEL, INCLUDE, LABEL_LEVEL, LINK, Unit, units
from rag_platform.text.plain_quotes import plain_code, strip_markup
from rag_platform.text.scripts import HAN, HAN_DIGIT, HANGUL, is_wide
from rag_platform.text.sentences import CLOSERS, STOPS, field_label, sentences
from rag_platform.text.term_overlap import POINTS

INTRODUCES = (":", "：")
# a sentence that cannot be understood without the one before it
_BACK_REFERENCE = re.compile(
    r"[*_]{0,3}(?:(?:this|that|these|those|it|they|he|she|the same|otherwise|instead|then|so|but|"
    r"however|therefore|thus|hence|now|also|and|or|similarly|likewise|as (?:such|a result)|"
    r"(?:because of|for|in|to (?:do|prevent|avoid|fix|achieve|solve)) (?:this|that|these|those|it)|"
    r"for (?:example|instance)|in such|to do so|if (?:it|so|not|this|that|they))\b|"
    r"这|该|那|它|他们|因此|所以|但|不过|然而|否则|例如|比如|此|为此|于是|然后|同样|并且|而|如果这|"
    r"也就是)",
    re.IGNORECASE,
)
# a sentence with a full stop that says what is below it, not that something is below 5 or 18岁以下
_ANNOUNCES = re.compile(
    r"下[面列]|(?<!\d)(?<!\d.)[如以]下"
    r"|\b(?:following|below(?! \d)|as follows|like (?:this|so))\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(rf"[.!?…;；{STOPS}][{CLOSERS}»`]*\Z")
_NEXT_QUESTION = ("?**", "？**")  # the end of a bold question, which begins another answer
SECTION_LEVELS = 2  # heading levels that begin sections
# what documentation tools write before the text: since when something exists, in Sphinx also where
# it comes from and fields, in rustdoc that it is no part of a release
_FORMALITY = re.compile(
    r"(?:Added|New|Changed|Deprecated) (?:in|since) version \d[\w.]*\.?"
    r"|[在自](?:版本)? ?\d[\w.]* ?(?:版本)?(?:加入|新增|发生变更|弃用|移除)[.。]?"
    r"|\*inherited from the\* .*|(?:Bases|Return type|基类|返回类型)[:：] ?.*"
    r"|(?:Parameters|Raises|参数|抛出|引发)[:：]"
    r"|🔬 This is a nightly-only experimental API\.|\(`\w+` \[#\d+\]\(\S+\)\)",
    re.IGNORECASE,
)
_VERSION_OR_DATE = re.compile(
    r"\d+\.\d+\.\d+|\d{4}-\d{2}-\d{2}|(?:\bversion |\bv|版本 ?)\d+\.\d+", re.IGNORECASE
)
_SECTION_NUMBER = re.compile(rf"(?<![^,，])\s*\d+(?:\.\d+)+\s+(?=[A-Z{HAN}])")
_QUESTION_PREFIX = re.compile(rf"^{ASKS}\s*")
ANCHOR = re.compile(r"\s*\{[^{}]*\}\s*$")  # `{#name}` after a heading
_ASKS_IN_CHINESE = re.compile(
    "怎[么麼样樣]|如何|[为為](?:[什甚][么麼]|何)|什[么麼]|(?<![很许最])多[久少长大]|能不能|吗$"
)
_EMPHASIS = re.compile(r"</?(?:b|em|i)>")
# the last full stop of `5.2.1. Tools`, which would read as the end of a sentence
_NUMBER_END = re.compile(r"(?<=\d)\.(?=\s)")
_HANGUL = re.compile(f"[{HANGUL}]")  # Korean uses Western punctuation
# the file that is included after an introduction, as text or in a code block
_INCLUDED = re.compile(rf"\s*(?:[`~]{{3,}}[^\n]*\n)?{INCLUDE.pattern}", re.MULTILINE)
_BETWEEN_ITEMS = re.compile(rf"\s*{MARK}?\s*")
# Chinese markers nest without indentation: 一、（一）1.（1）①; any other marker ranks as `1.`
_MARKER = re.compile(f"({HAN_DIGIT})|([(（]{HAN_DIGIT})|([(（])|([①-⑳])")
_MARKER_RANKS = {1: 0, 2: 1, None: 2, 3: 3, 4: 4}  # by group of _MARKER
_RANK_INDENT = 3
_ITEM_NUMBER = re.compile(r"\d{1,9}[.)]")  # in Markdown


@dataclass(frozen=True, slots=True)
class Part:
    """Units `first` to `last` of a chunk, which make sense without the rest of it."""

    first: int
    last: int
    kind: str  # sentence | item | row | code | list
    start: int
    end: int
    context: str
    header: tuple[int, int] | None = None
    topic: tuple[int, int] = (0, 0)  # the span whose words are compared with the question's
    # the heading right above it, if that is a question or an identifier, and the boxes around it
    asked: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """The units of a chunk, its parts, and for each unit the part that it belongs to."""

    units: tuple[Unit, ...]
    parts: tuple[Part, ...]
    owners: tuple[Part | None, ...]


@lru_cache(maxsize=512)
def read_layout(text: str) -> Layout:
    """The parts of a chunk in order. A list with its introduction, or right below a heading, is a
    part of its own in addition to its items.
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
                if short and not all(_is_only_links(text, it) for it in read[at + 1 : last + 1]):
                    parts.append(_make_part(text, read, at, last, "list"))
                last = at
            # an introduction with a colon alone says nothing, unless it names code
            own = text[read[at].start : read[at].end]
            if last == at and own.endswith(INTRODUCES) and "`" not in own:
                at += 1
                continue
        links = _is_only_links(text, read[at]) and not _is_alone(read, at)
        if not links:
            part = _make_part(text, read, at, last, read[last].kind)
            owners[at : last + 1] = [part] * (last + 1 - at)
            parts.append(part)
        at = last + 1
    return Layout(read, tuple(parts), tuple(owners))


def _introduces(text: str, read: Sequence[Unit], at: int) -> bool:
    """True for a unit that ends with a colon, and for a sentence that continues in the code block
    below it, or announces that or the list below it.
    """
    unit, below = read[at], read[at + 1] if at + 1 < len(read) else None
    if _ends_with_colon(text, unit) or below is None or not _in_same_section(unit, below):
        return _ends_with_colon(text, unit)
    announces = below.kind in ("code", "item") and _ANNOUNCES.search(text, unit.start, unit.end)
    goes_on = below.kind == "code" and not _SENTENCE_END.search(text, unit.start, unit.end)
    return unit.kind == "sentence" and bool(goes_on or announces)


def _read_section_list(text: str, read: Sequence[Unit], at: int) -> Part | None:
    """The list that begins with unit `at` right below a heading, which becomes its topic, with the
    versions and dates above that: `Fixed` below `2.1.0` says what was fixed in 2.1.0. None for any
    other unit, and for a list that is too long, has only links, or one item and no version.
    """
    own = read[at].headings
    if read[at].kind != "item" or not own or (at and read[at - 1].headings == own):
        return None
    items = list(takewhile(lambda it: it.kind == "item" and it.headings == own, read[at:]))
    begin = text.rfind(own[-1][1], 0, items[0].start)
    short = items[-1].end - items[0].start <= MAX_LIST_CHARS
    versions = [words for _, words in own if _VERSION_OR_DATE.search(words)]
    alone = len(items) == 1 and not versions
    if alone or not short or begin < 0 or all(_is_only_links(text, it) for it in items):
        return None
    topic = (begin, begin + len(own[-1][1]))
    part = _make_part(text, read, at, at + len(items) - 1, "list")
    return replace(part, topic=topic, asked="\n".join(versions))


def _ends_with_colon(text: str, unit: Unit) -> bool:
    return unit.kind in ("sentence", "item") and text[unit.end - 1] in INTRODUCES


def _end_of_introduced(text: str, read: Sequence[Unit], at: int) -> int:
    """The last unit of the code block, list or sentence that the unit `at` introduces; `at` where
    none follows in its section.
    """
    if at + 1 == len(read) or not _in_same_section(read[at], read[at + 1]):
        return at
    follows = read[at + 1]
    if follows.kind == "code":
        return at + 1
    if not _BETWEEN_ITEMS.fullmatch(text, read[at].end, follows.start):  # there is other text
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
    """The last of the items nested in the item `at`; `at` where there are none."""
    item, indent = read[at], _indent(text, read[at])
    nested = takewhile(
        lambda unit: (
            unit.kind == "item"
            and unit.context == item.context
            and _in_same_section(item, unit)
            and _indent(text, unit) > indent
        ),
        read[at + 1 :],
    )
    return at + sum(1 for _ in nested)


def _make_part(text: str, read: Sequence[Unit], first: int, last: int, kind: str) -> Part:
    head, tail = read[first], read[last]
    topic = (head.start, head.end if kind == "list" else tail.end)
    name = _name_heading(head)
    is_first = not first or not _in_same_section(read[first - 1], head)
    is_asked = (
        is_first if _is_question(name) else find_described(name) and _explains(text, read, first)
    )
    boxes = [words for level, words in head.headings if level == BOX_LEVEL]
    boxes += [head.box, KINDS.get(head.box.lower(), "")]
    asked = "\n".join(filter(None, [name if is_asked else "", *boxes]))
    return Part(first, last, kind, head.start, tail.end, head.context, tail.header, topic, asked)


def _explains(text: str, read: Sequence[Unit], at: int) -> bool:
    """True for the first sentence below a heading, or for the first unit where there is none.
    Sentences that do not say what it is, as since when it exists, do not count.
    """
    if _FORMALITY.fullmatch(text, read[at].start, read[at].end):
        return False
    own = read[at].headings
    above = takewhile(lambda it: it.headings == own, reversed(read[:at]))
    before = [it for it in above if not _FORMALITY.fullmatch(text, it.start, it.end)]
    if read[at].kind == "sentence":
        return all(it.kind != "sentence" for it in before)
    below = takewhile(lambda it: it.headings == own, read[at:])
    return not before and all(it.kind != "sentence" for it in below)


def _name_heading(unit: Unit) -> str:
    """The heading right above a unit without its anchor, else ""."""
    return ANCHOR.sub("", unit.headings[-1][1]) if unit.headings else ""


def _is_question(name: str) -> bool:
    """True for a heading that is a question of more than one word, in Chinese also without a mark:
    数据倾斜怎么办.
    """
    marked = name.endswith(("?", "？")) and (is_wide(name) or " " in name)
    return marked or _ASKS_IN_CHINESE.search(name) is not None


def _in_same_section(one: Unit, other: Unit) -> bool:
    return one.headings == other.headings


def _is_only_links(text: str, unit: Unit) -> bool:
    """True for an entry of a navigation, of a list of further reading, or of a language switch
    (`English | [简体中文](README_cn.md)`).
    """
    own = text[unit.start : unit.end]
    if "](" not in own:
        return False
    rest = LINK.sub("", own)
    is_switch = unit.kind != "row" and "|" in rest and len(rest.replace("|", " ").split()) <= 2
    return is_switch or not any(map(str.isalnum, rest))


def _is_alone(read: Sequence[Unit], at: int) -> bool:
    """True for a sentence that is the whole text below its heading: `[MIT](LICENSE)`."""
    own = read[at].headings
    neighbours = [*read[max(0, at - 1) : at], *read[at + 1 : at + 2]]
    return read[at].kind == "sentence" and own not in [(), *(unit.headings for unit in neighbours)]


# --- extending ----------------------------------------------------------------------------------


def extend(text: str, part: Part) -> Sequence[int]:
    """The units to quote so that a part is understood: for a sentence that refers back also the one
    before it, for code the sentence after it, for a step its list, for another item the
    introduction of its list and the nested items, and for a short sentence its neighbours.
    """
    layout = read_layout(text)
    first, last = part.first, part.last
    if steps := _find_steps(text, layout.units, first):
        return steps
    if part.kind == "item":
        above = _find_above(text, layout.units, first)
        if above and (whole := _find_nested(text, layout.units, above[0])):
            return whole
        return [*above, *(_find_nested(text, layout.units, first) or range(first, last + 1))]
    while part.kind in ("sentence", "code") and first and not layout.units[first].fence:
        before = _neighbour(layout, first, first - 1)
        if (
            before is None
            or not _BACK_REFERENCE.match(text, layout.units[first].start)
            or POINTS.search(text[before.start : before.end])
            or layout.units[last].end - before.start > MAX_QUOTE_CHARS
        ):
            break
        first = before.first
    if part.kind == "code" and last + 1 < len(layout.units):
        after = _neighbour(layout, last, last + 1)
        if after is not None and _may_append(text, after, after.end - layout.units[first].start):
            last = after.last
    if part.kind == "sentence":
        first = _extend_to_code_before(layout, first, last)
        first, last = _extend_short(text, layout, first, last)
        last = _extend_to_code_after(text, layout, first, last)
    return range(_extend_to_fields(text, layout, first), last + 1)


def list_rows(text: str, part: Part) -> list[int]:
    """The row and those after it in its table, while they are short enough for a list."""
    rows, left = [part.first], MAX_LIST_CHARS
    for number, unit in enumerate(read_layout(text).units):
        left -= unit.end - unit.start if unit.header == part.header else 0
        if number > part.first and unit.kind == "row" and unit.header == part.header and left >= 0:
            rows.append(number)
    return rows


def _find_above(text: str, read: Sequence[Unit], number: int) -> list[int]:
    """[the number of the parent item of a nested one, or of the sentence that introduces the list];
    empty without.
    """
    item, indent = read[number], _indent(text, read[number])
    at = number - 1
    while at >= 0 and read[at].kind == "item" and read[at].context == item.context:
        if not _in_same_section(read[at], item):
            return []
        if _indent(text, read[at]) < indent:
            break
        at -= 1
    if at < 0 or read[at].end - read[at].start > MAX_ABOVE_CHARS:
        return []
    # the indentation of an item that begins the chunk is unknown
    is_above = (read[at].kind == "item" and "\n" in text[: read[at].start]) or (
        _introduces(text, read, at) and _end_of_introduced(text, read, at) >= number
    )
    return [at] if is_above and read[at].context in item.context else []


def _find_steps(text: str, read: Sequence[Unit], number: int) -> range:
    """The numbered list that a numbered item is in, with code between its items and the sentence
    that introduces it; empty for any other unit, and where the list is too long or begins the
    chunk.
    """
    if read[number].kind != "item" or not _is_numbered(text, read[number]):
        return range(0)
    listed = [at for at in _find_list(read, number, {"item", "code"}) if read[at].kind == "item"]
    first, last = listed[0], listed[-1]
    if "\n" not in text[: read[first].start] or not _is_numbered(text, read[first]):
        return range(0)
    last = _end_of_introduced(text, read, last) if _introduces(text, read, last) else last
    if first and _introduces(text, read, first - 1):
        first -= 1
    short = read[last].end - read[first].start <= MAX_LIST_CHARS
    return range(first, last + 1) if short else range(0)


def _find_list(read: Sequence[Unit], number: int, kinds: Collection[str] = ("item",)) -> range:
    """The consecutive units of these kinds in the list that an item is in."""
    item = read[number]

    def belongs(at: int) -> bool:
        other = read[at]
        return (
            other.kind in kinds and other.context == item.context and _in_same_section(other, item)
        )

    first = last = number
    while first and belongs(first - 1):
        first -= 1
    while last + 1 < len(read) and belongs(last + 1):
        last += 1
    return range(first, last + 1)


def _is_numbered(text: str, item: Unit) -> bool:
    return _ITEM_NUMBER.fullmatch(_lead_of(text, item).strip(" \t>")) is not None


def _lead_of(text: str, unit: Unit) -> str:
    """What is before a unit on its line: an item's indentation and marker."""
    return text[text.rfind("\n", 0, unit.start) + 1 : unit.start]


def _find_nested(text: str, read: Sequence[Unit], number: int) -> range:
    """An item with the items nested in it; empty where there are none, they are too long, or the
    item begins the chunk, so that its indentation is unknown.
    """
    if read[number].kind != "item" or "\n" not in text[: read[number].start]:
        return range(0)
    last = _end_of_nested(text, read, number)
    short = read[last].end - read[number].start <= MAX_LIST_CHARS
    return range(number, last + 1) if last > number and short else range(0)


def _indent(text: str, unit: Unit) -> int:
    """How deep an item is nested, in characters, by its indentation and its marker."""
    line = _lead_of(text, unit).lstrip(">")
    marker = line.lstrip()
    ranked = _MARKER.match(marker)
    rank = _MARKER_RANKS[ranked.lastindex if ranked else None]
    return len(line) - len(marker) + _RANK_INDENT * rank


def _extend_to_code_before(layout: Layout, first: int, last: int) -> int:
    """The first unit of a quote of sentences, extended to the code block before it where no
    sentence introduces that: the sentences then explain it.
    """
    code = layout.owners[first - 1] if first else None
    if (
        code is None
        or code.kind != "code"
        or code.first != code.last
        or layout.units[code.first].fence
        or not _in_same_section(layout.units[code.first], layout.units[first])
        or layout.units[last].end - code.start > MAX_QUOTE_CHARS
    ):
        return first
    before = layout.units[code.first - 1] if code.first else None
    follows = before is not None and _in_same_section(before, layout.units[code.first])
    return first if follows else code.first


def _extend_short(text: str, layout: Layout, first: int, last: int) -> tuple[int, int]:
    """The first and last unit of a quote, extended while it is short: by the sentence before it in
    the paragraph and by those after it. A single sentence often lacks its subject or consequence;
    a labelled line (`Terms: 30 days net`) lacks neither.
    """
    read = layout.units
    if _is_field(text, read[first].start, read[last].end):
        return first, last

    def is_short() -> bool:
        return read[last].end - read[first].start < MIN_QUOTE_CHARS

    if first and is_short() and "\n\n" not in text[read[first - 1].end : read[first].start]:
        before = _neighbour(layout, first, first - 1)
        if before is not None and _may_append(text, before, read[last].end - before.start):
            first = before.first
    while last + 1 < len(read) and is_short():
        after = _neighbour(layout, last, last + 1)
        if (
            after is None
            or read[after.first].box not in ("", read[last].box)  # a remark of its own
            or text.startswith(_NEXT_QUESTION, after.end - 3)
            or not _may_append(text, after, after.end - read[first].start)
        ):
            break
        last = after.last
    return first, last


def _extend_to_fields(text: str, layout: Layout, first: int) -> int:
    """The first unit of a quote, extended to the fields (`Default: 16`) that are all that stands
    between it and the heading that names what it describes.
    """
    read, at = layout.units, first
    while at and _in_same_section(read[at - 1], read[first]):
        at -= 1
        line = text[read[at].start : read[at].end]
        if not (field_label(line) or _FORMALITY.fullmatch(line)):
            return first
    short = read[first].start - read[at].start <= MAX_ABOVE_CHARS
    return at if short and find_described(_name_heading(read[first])) else first


def _is_field(text: str, start: int, end: int) -> bool:
    """True for a paragraph of one line that begins with a label, says more and asks nothing."""
    line = text[start:end]
    alone = text[:start][-2:] in ("", "\n\n") and text[end : end + 2] in ("", "\n\n")
    label = field_label(line)
    return alone and "\n" not in line and label not in ("", line) and line[-1] not in "?？"


def _extend_to_code_after(text: str, layout: Layout, first: int, last: int) -> int:
    """The last unit of a quote of sentences, extended to the code right after it where its last
    paragraph is one sentence and the whole is short: the code then illustrates it.
    """
    code = layout.owners[last + 1] if last + 1 < len(layout.units) else None
    if code is None or code.kind != "code" or layout.units[code.first].fence:
        return last
    follows = _in_same_section(layout.units[last], layout.units[code.first])
    alone = text[: layout.units[last].start][-2:] in ("", "\n\n")
    short = code.end - layout.units[first].start <= MAX_QUOTE_CHARS
    return code.last if follows and alone and short else last


def _may_append(text: str, other: Part, chars: int) -> bool:
    """True for a sentence that may extend a quote to so many `chars`: no introduction of something
    left out, and no pointer elsewhere.
    """
    whole = other.kind == "sentence" and text[other.end - 1] not in INTRODUCES
    points = POINTS.search(text[other.start : other.end])
    return whole and not points and chars <= MAX_QUOTE_CHARS


def _neighbour(layout: Layout, number: int, other: int) -> Part | None:
    """The part of unit `other`, next to unit `number`, if it is prose or code of its section."""
    part = layout.owners[other]
    prose = part is not None and part.kind in ("sentence", "code")
    return part if prose and _in_same_section(layout.units[number], layout.units[other]) else None


def is_adjacent(
    text: str, part: Part, quoted: Collection[int], other: Part, new: Sequence[int]
) -> bool:
    """True where the units `new` of a part belong to a quote with the units `quoted`: rows of one
    table, items of one list, or units that overlap or follow each other in their section.
    """
    if "row" in (part.kind, other.kind):
        return part.kind == other.kind and part.header == other.header
    if any(number in quoted for number in new):
        return True
    read = read_layout(text).units
    one, two = read[part.first], read[other.first]
    if part.kind == other.kind == "item" and one.context == two.context:
        return _in_same_section(one, two)
    before, after = new[0] - 1, new[-1] + 1
    return (before in quoted and _in_same_section(read[before], read[new[0]])) or (
        after in quoted and _in_same_section(read[new[-1]], read[after])
    )


# --- writing ------------------------------------------------------------------------------------


def label_units(text: str, chosen: Collection[int], path: Sequence[str]) -> str:
    """The label above quoted units, made of their headings. It is needed where they are items or
    code without an introduction, where it has a version, a date, a question or a signature, and
    where it is an identifier that the units describe without naming it; sentences in a tab or card
    have its title; else "".
    """
    read = read_layout(text).units
    first = read[min(chosen)]
    boxes = [words for level, words in first.headings if level == BOX_LEVEL]
    if boxes and first.kind == "sentence":
        return format_label(boxes[-2:])
    label = _label_headings(path, first)
    dated = _VERSION_OR_DATE.search(_SECTION_NUMBER.sub("", label))
    name, at = _name_heading(first), min(chosen)
    # below 什么是容器 also stands what does not answer that
    answers = name.endswith(("?", "？")) or not at or not _in_same_section(read[at - 1], first)
    if first.kind in ("item", "code") or dated or (answers and _is_question(name)):
        return label
    heading = name if first.headings else "".join(path[-1:])
    described, quoted = find_described(heading), text[first.start : read[max(chosen)].end]
    return label if find_signed(heading) or (described and described not in quoted) else ""


def render_units(text: str, chosen: Collection[int], mark: str, label: str = "") -> str:
    """The label, the chosen units of a chunk verbatim, without other text, and the mark."""
    read = read_layout(text).units
    runs = [[read[i] for i in run] for run in _group_consecutive(sorted(chosen))]
    last = runs[-1][-1]
    items = [unit for run in runs for unit in run if unit.kind == "item"]
    shown = f"{label}\n\n" if label else ""
    for before, run in zip([None, *runs], runs, strict=False):
        if before is not None:
            shown += "\n" if before[-1].kind == run[0].kind == "item" else "\n\n"
        shown += _render_run(text, run, items)
    if _introduces(text, read, max(chosen)):
        shown += _name_left_out(text, read[max(chosen)])
    elif _find_rest_of_list(read, chosen):
        shown += f"\n-{LEFT_OUT}"
    apart = last.kind == "code" or (last.kind == "item" and (len(chosen) > 1 or bool(label)))
    return shown + ("\n\n" if apart else " ") + mark


def complete_list(text: str, chosen: set[int]) -> set[int]:
    """The chosen units, with the rest of their last list where the whole is short enough."""
    read = read_layout(text).units
    whole = chosen | _find_rest_of_list(read, chosen)
    listed = _find_list(read, max(whole))
    short = read[listed[-1]].end - read[listed[0]].start <= MAX_LIST_CHARS
    return whole if short else chosen


def _find_rest_of_list(read: Sequence[Unit], chosen: Collection[int]) -> set[int]:
    """The items of the last chosen list that are not chosen, if its introduction is."""
    if read[max(chosen)].kind != "item":
        return set()
    listed = _find_list(read, max(chosen))
    return set(listed).difference(chosen) if listed[0] - 1 in chosen else set()


def _label_headings(path: Sequence[str], unit: Unit) -> str:
    """The last two headings above a unit as a label. A heading inside the chunk of a level that
    begins sections is a section of its own, too short to be a chunk, so `path` is left out. Of a
    passage within a section only the section's name is needed, unless it is the same in each
    release.
    """
    names = [text for _, text in unit.headings]
    level = unit.headings[0][0] if names else LABEL_LEVEL
    if level >= LABEL_LEVEL:  # no heading
        # a signature is not below the one whose description ends in the passage
        signed = any(find_signed(name) for name in names) and find_described("".join(path[-1:]))
        released = not names and len(path) > 1 and _VERSION_OR_DATE.search(path[-2])
        names = [*(path[:-1] if signed else path)[-2 if released else -1 :], *names]
    elif level > SECTION_LEVELS:
        names = [*find_path(path, unit.headings[:1])[-2:-1], *names]
    return format_label(names[-2:])


def find_path(own: Sequence[str], headings: Sequence[tuple[int, str]]) -> list[str]:
    """The path of headings of a unit, outermost first. `own` is the path of its passage, `headings`
    are the headings inside the passage above the unit, with their levels.

    A section inside a passage was too short to be a passage itself; it is a sibling of the
    passage's section, or a child where it is a level below.
    """
    above = [(level, words) for level, words in headings if level < LABEL_LEVEL]
    if not above:
        return list(own)
    from rag_platform.loaders.markdown import heading_title  # not for an answer of one section

    level, names = above[0][0], [heading_title(words) for _, words in above]
    if names[0] in own:
        return [*own[: own.index(names[0])], *names]
    if own and level == 1:  # no second title, but a comment in code
        return list(own)
    # a path of one heading may be a section of a document without a title: then a sibling
    return names if (len(own), level) == (1, 2) else [*own[: level - 1], *names]


def format_label(names: Sequence[str]) -> str:
    """The names as one sentence that ends with a colon; empty without any."""
    names = [_EMPHASIS.sub("", ANCHOR.sub("", strip_markup(name))) for name in names]
    names = [name[start:end] for name in names for start, end in sentences(name)]
    names = [_QUESTION_PREFIX.sub("", name) for name in names]
    names = [_NUMBER_END.sub("", name.strip(" #*:：?？.。!！")) for name in names]
    if not any(names):
        return ""
    wide = is_wide(" ".join(names)) and not _HANGUL.search(" ".join(names))
    separator, colon = ("，", "：") if wide else (", ", ":")
    return escape_marks(separator.join(filter(None, names))) + colon


def _group_consecutive(numbers: Sequence[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    yield run


def _render_run(text: str, run: Sequence[Unit], items: Sequence[Unit]) -> str:
    """Consecutive units; `items` are those of the whole quote, which share their indentation."""
    least = min((_indent(text, unit) for unit in items), default=0)
    shown = ""
    for before, unit in zip([None, *run], run, strict=False):
        quote = text[unit.start : unit.end]
        if unit.kind == "code":
            quote = plain_code(_fence(text[slice(*unit.fence)], quote) if unit.fence else quote)
        else:
            quote = escape_marks(strip_markup(quote))
        if unit.kind == "item":
            indent = " " * (_indent(text, unit) - least)
            marker = _format_marker(text, unit, alone=len(items) == 1)
            quote = f"{indent}{marker}{'' if marker[-1] in '）、' else ' '}{quote}"
        if unit.box and (before is None or before.box != unit.box):
            quote = f"{format_label([unit.box])}\n\n{quote}"
            shown += "\n\n" if before else ""
        else:
            shown += _format_gap(text, before, unit)
        shown += quote
    return shown


def _format_marker(text: str, item: Unit, *, alone: bool) -> str:
    """The Markdown marker of an item: its number; after a dash, if Markdown has no such number; a
    dash for a bullet and for a single item.
    """
    marker = _lead_of(text, item).strip(" \t\u3000>")
    if alone or not marker or marker in "-*+•":
        return "-"
    return marker if _ITEM_NUMBER.fullmatch(marker) else f"- {marker}"


def _format_gap(text: str, before: Unit | None, unit: Unit) -> str:
    """The white space between two units of a quote, as in their text."""
    if before is None:
        return ""
    between = text[before.end : unit.start]
    if not _BETWEEN_ITEMS.fullmatch(between):
        left_out = unit.kind != "code" and _ends_with_colon(text, before)
        return f"{_name_left_out(text, before) if left_out else ''}\n\n"
    if unit.kind == "item":
        return "\n" * max(1, between.count("\n"))
    return between


def _name_left_out(text: str, introduction: Unit) -> str:
    """What a quote shows after an introduction without its continuation: the name of the file that
    is included there, or an ellipsis.
    """
    included = _INCLUDED.match(text, introduction.end)
    return f"{INCLUDES} `{included['file']}`" if included else LEFT_OUT


def _fence(opening: str, code: str) -> str:
    """Lines of a code block between its opening line and a closing one."""
    opened = FENCE.match(opening)
    at, mark = (opened.start(1), opened[1]) if opened else (0, "```")
    prefix = opening[:at] if ">" in opening[:at] else ""  # of a block quote
    return f"{prefix}{opening[at:].rstrip()}\n{code}\n{prefix}{mark}"


def render_rows(
    text: str,
    chosen: Collection[int],
    mark: str,
    label: str = "",
    head: str = "",
    *,
    listed: bool = False,
    goes_on: bool = False,
) -> str:
    """The label, rows of one table under its header `head`, and the mark. Rows that are `listed` to
    enumerate the table end with an ellipsis if it has more; `goes_on` says that it continues in
    the next passage.
    """
    read = read_layout(text).units
    rows = [read[i] for i in sorted(chosen)]
    lines = [escape_marks(strip_markup(text[row.start : row.end])) for row in rows]
    header = rows[0].header
    columns = len(cells(head or lines[0]))
    count = sum(unit.kind == "row" and unit.header == header for unit in read)
    continues = goes_on and (read[-1].kind, read[-1].header) == ("row", header)
    cut = count > len(rows) or continues or header is None
    ellipsis = f"\n\n{LEFT_OUT.strip()}" if listed and cut else ""
    table = "\n".join(
        [strip_markup(head.strip()) or "|" + "  |" * columns, "|" + " --- |" * columns, *lines]
    )
    return (f"{label}\n\n" if label else "") + f"{table}{ellipsis}\n\n{mark}"
