"""What of a passage may be quoted, and how far a quote reaches: a sentence with its paragraph, an
item with its list, code with the sentences around it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rag_platform.answering import constants
from rag_platform.text.markdown_blocks import FENCE, HEADING
from rag_platform.text.passages import Unit, units

# nothing but links, in whatever is between them
_LINKS_ONLY = re.compile(
    r"(?:[\W_]*!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\([^)]*\)(?:\{[^}]*\})?)+[\W_]*$"
)
# the headings of lists that lead elsewhere
_ELSEWHERE = re.compile(
    r"(?:see also|further reading|related(?: \w+)?|next steps?|learn more|additional resources"
    r"|more (?:info|information|resources)|external links|references?"
    r"|另请参阅|参见|参考资料|参考链接|相关链接|相关资料|延伸阅读|下一步|更多信息)"
    r"[\s:：]*(?:\{[^}]*\})?$",
    re.IGNORECASE,
)
# the end of a link, or of a sentence, that begins in another chunk
_CUT_START = re.compile(
    r"[^\[\s]*\]\(|\((?:https?:|\.{0,2}/)\S*\)|[，。、；：！？）】》,;)\]]|[a-z]"
)
_HEADING_LINE = re.compile(HEADING.pattern, re.MULTILINE)
_STEP = re.compile(r"\s*(?:\d|[一二三四五六七八九十]+、)")
_CUT_END = re.compile(r"\[[^\[\]]*(?:\]\([^()]*)?$")


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Quotable:
    """A unit that may answer; code together with the sentence that introduces it."""

    unit: Unit
    intro: Unit | None = None

    @property
    def start(self) -> int:
        """Where it begins, with its introduction."""
        return self.unit.start if self.intro is None else self.intro.start

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.unit.end


@lru_cache(maxsize=512)
def find_quotable(text: str) -> tuple[Quotable, ...]:
    """What of a chunk may answer: no navigation, no line of a long code block, and nothing that the
    chunk's edges cut.
    """
    found: list[Quotable] = []
    for unit in units(text):
        if not _may_answer(text, unit):
            continue
        last = found[-1].unit if found else None
        if unit.kind == "code" and last is not None and _introduces(text, last, unit):
            found[-1] = Quotable(unit, last)
        else:
            found.append(Quotable(unit))
    return tuple(found)


def _may_answer(text: str, unit: Unit) -> bool:
    if unit.kind in ("code", "row"):
        return True
    own = text[unit.start : unit.end]
    if FENCE.match(text[unit.whole[0] : unit.start].partition("\n")[0]):  # a line of code
        return False
    if _LINKS_ONLY.match(own) or _ELSEWHERE.search(unit.context):
        return False
    if not text[: unit.start].strip() and _CUT_START.match(own):
        return False
    return not (_CUT_END.search(own) and not text[unit.end :].strip())


def _introduces(text: str, unit: Unit, following: Unit) -> bool:
    """True for a sentence that ends in a colon, before something under the same heading."""
    return (
        unit.kind in ("sentence", "item")
        and text[unit.end - 1] in ":："
        and _HEADING_LINE.search(text, unit.end, following.start) is None
    )


def find_spans(
    text: str, found: Sequence[Quotable], at: int, *, complete: bool = False
) -> list[Span]:
    """The spans of the quote of found[at]: with what introduces it, what it introduces and, unless
    it is complete, what stands beside it in its paragraph, as far as that is short. What a
    documentation tool replaces lies between them.
    """
    unit, intro = found[at].unit, found[at].intro
    if unit.kind == "item":
        start, end = unit.whole
        if _STEP.match(text, start) and end - start <= constants.STEPS_CHARS:
            before = found[at_first - 1].unit if (at_first := _first_within(found, at)) else None
            lead = [] if before is None or not _introduces(text, before, unit) else [before]
            return [*((item.start, item.end) for item in lead), (start, end)]
        return [(unit.start, unit.end)]
    if unit.kind == "code":
        spans = [(intro.start, intro.end)] if intro is not None else []
        spans.append((unit.start, unit.end))
        after = _beside(text, found, at + 1, unit.end)
        if after is not None and after.end - after.start <= constants.QUOTE_CHARS:
            spans.append((after.start, after.end))
        return spans
    if unit.kind == "row":
        return [(unit.start, unit.end)]
    return _extend_sentence(text, found, at, complete)


def _first_within(found: Sequence[Quotable], at: int) -> int:
    """The first of those that are part of the same list."""
    start = found[at].unit.whole[0]
    while at and found[at - 1].start >= start:
        at -= 1
    return at


def _beside(text: str, found: Sequence[Quotable], at: int, end: int) -> Unit | None:
    """The sentence found[at] where nothing lies between it and what ends there."""
    unit = found[at].unit if at < len(found) else None
    if unit is None or unit.kind != "sentence" or text[unit.end - 1] in ":：":
        return None
    return unit if not text[end : unit.start].strip(" \t\n>") else None


def _extend_sentence(text: str, found: Sequence[Quotable], at: int, complete: bool) -> list[Span]:
    """A sentence with others of its paragraph, those after it first, and what it introduces."""
    unit = found[at].unit
    start, end = unit.start, unit.end
    following = found[at + 1].unit if at + 1 < len(found) else None
    if following is not None and _introduces(text, unit, following):
        steps = _STEP.match(text, following.whole[0])
        most = constants.STEPS_CHARS if steps else constants.LIST_CHARS
        low, high = (
            following.whole if following.kind != "code" else (following.start, following.end)
        )
        return [(start, end), (low, high)] if high - start <= most else [(start, end)]
    if complete:
        return [(start, end)]
    last = at
    while (
        last + 1 < len(found)
        and found[last + 1].unit.whole == unit.whole
        and found[last + 1].intro is None
        and found[last + 1].end - start <= constants.QUOTE_CHARS
    ):
        last += 1
        end = found[last].end
    first = at
    while (
        first
        and found[first - 1].unit.whole == unit.whole
        and end - found[first - 1].start <= constants.QUOTE_CHARS
    ):
        first -= 1
        start = found[first].start
    return [(start, end)]
