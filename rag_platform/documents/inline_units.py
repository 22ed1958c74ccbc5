"""What wants to stay whole within a line: headings, links, code spans, tags, URLs; and where the words of Chinese end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rag_platform.text.keyphrases import dictionary
from rag_platform.text.markdown_blocks import CODE_SPAN
from rag_platform.text.scripts import HAN, KANA

# Possessive, so that no text makes them try again; a code span or a link reaches over no blank line.
HEADING_LINE = r"^#{1,6}[ \t]+\S[^\n]*"
LINK = (
    r"!?\[(?:[^\[\]\n]|\n(?!\s*\n)|!?\[[^\[\]\n]*+\](?:\([^()\s]*+\))?)*+\]"
    r"\((?:<[^<>\n]*+>|(?:[^()\s]|\([^()\s]*+\))*+)(?:[ \t]+(?:\"[^\"\n]*+\"|'[^'\n]*+'))?[ \t]*\)"
)
TAG = r"</?[A-Za-z][^<>\n]*+>|<https?://[^<>\s]++>"
URL = r"\bhttps?://[^\s<>\"'）】」』，。；、！？]++"
UNIT = re.compile(rf"(?P<heading>{HEADING_LINE})|(?P<code>{CODE_SPAN})|(?P<link>{LINK})|{TAG}|{URL}", re.MULTILINE)
_BEGIN = re.compile(r"#|`|!\[|\[|<|http")  # of every unit; looked for first, for prose has few
HEADING_BEGIN = re.compile(r"#{1,6}[ \t]+\S{1,40}")
CHARACTER = re.compile(f"[{HAN}{KANA}]")
NO_START, NO_END = set("，。、；：！？）】》」』〉”’…—·％,.;:!?)]}%ー々"), set("（【《「『〈“‘([{#$¥￥")
CONTEXT = 40  # characters around a window that the dictionary sees; no word is longer


def inline_units(text: str, fits: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """The spans, in order and apart, that no cut may split; `fits(start, end)` says whether one can stand in a chunk at all.

    Of a heading that does not fit, the marker stays with the first word; of a link, what stands in it.
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
    """The places in [low, high] between two words of Chinese or Japanese, none before a closing mark or behind an opening one."""
    if CHARACTER.search(text, max(0, low - 1), high + 1) is None:
        return
    place = max(0, low - CONTEXT)
    for word in dictionary().cut(text[place : high + CONTEXT]):
        place += len(word)
        beside = text[place - 1 : place + 1]
        if low <= place <= high and len(beside) == 2 and beside[0] not in NO_END and beside[1] not in NO_START and CHARACTER.search(beside):
            yield place
