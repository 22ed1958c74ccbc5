"""A chunk's text cut into what an answer may quote: sentences, items, table rows, code blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rag_platform.text.cut_points import inline_units
from rag_platform.text.markdown_blocks import (
    DELIMITER,
    FENCE,
    HEADING,
    ITEM,
    cells,
    closes,
    heading_text,
)
from rag_platform.text.sentences import sentence_ends

_QUOTE = re.compile(r"\s*>\s?")
# what a documentation tool replaces, or draws a box of: its title, if it has one, is group 1
_DIRECTIVE = re.compile(
    r"[ \t>]*(?:"
    r"\[!\w+\][-+]?[ \t]*(?P<alert>.*)"  # > [!NOTE] Title
    r"|:{3,}[ \t]*(?:\{?[\w-]+\}?)?[ \t]*(?P<fenced>.*)"  # ::: tip Title, and :::
    r"|/{3,}[ \t]*(?:[\w-]+)?[ \t]*\|?[ \t]*(?P<slashed>.*)"  # /// note | Title, and ///
    r"|(?:!{3}|\?{3})\+?[ \t]+[\w-]+[ \t]*\"?(?P<marked>[^\"]*)\"?"  # !!! note "Title"
    r"|={3}\+?[ \t]+\"(?P<tab>[^\"]*)\""  # === "Tab"
    r"|\.\.[ \t]+[\w-]+::.*"  # .. note::
    r"|\{(?:[*!%#]|/\*).*\}"  # {* file.py *}, {% include %}, {/* a comment */}
    r"|\[{1,2}_?toc_?\]{1,2}"
    r"|import\s(?:[^\"']*\sfrom\s+)?[\"'][^\"']+[\"'];?"  # of MDX
    r"|export\s+(?:const|default|function)\s.*"
    r")[ \t]*$",
    re.IGNORECASE,
)
_RULE = re.compile(r"\s*([-*_=])(\s*\1){2,}\s*$")
_MARKUP = re.compile(r"\s*(?:<[^>]+>\s*|!\[[^\]]*\]\([^)]*\)\s*|\[[^\]]+\]:\s*\S+\s*)+$")
_COMMENT = re.compile(r"[ \t>]*<!--(?!.*-->)")  # that ends on a later line
# the second line of a heading that is underlined, and of a term above `: what it means`
_MAKES_OF_LINE = re.compile(r" {0,3}(?:(?:-{3,}|={3,})[ \t]*$|:[ \t]+\S)")
_INDENTED = re.compile(r"[ \t]{2,}\S")
MAX_CODE_LINES = 15


@dataclass(frozen=True, slots=True)
class Unit:
    """A span of a chunk's text that stands on its own; `text[start:end]` is its verbatim quote."""

    kind: str  # sentence | item | row | code
    start: int
    end: int
    context: str = ""  # headings and introducing line above it, table header for a row
    header: tuple[int, int] | None = None  # span of the header row of a table row
    whole: tuple[int, int] = (0, 0)  # span of the paragraph, list, table or fence it is part of


class _Block(NamedTuple):
    """A run of lines of one kind: heading, table, code, item, term, paragraph or title."""

    kind: str
    start: int
    end: int


def units(text: str) -> list[Unit]:
    """The units of a chunk in order, without headings, rules, bare markup, separator rows, comments
    and what a documentation tool replaces.
    """
    found: list[Unit] = []
    heading = intro = ""
    blocks = _blocks(text)
    for (kind, start, end), whole in zip(blocks, _wholes(text, blocks), strict=True):
        context = f"{heading} {intro}".strip()
        if kind == "heading":
            heading, intro = heading_text(text[start:end].partition("\n")[0]), ""
        elif kind == "title":
            intro = text[start:end]
        elif kind == "table":
            found += _rows(text, start, end, context)
        elif kind == "code":
            found += _code(text, start, end, context, whole)
        elif kind == "item":
            marker = ITEM.match(text[start:end])
            begin = start + (marker.end() if marker else 0)
            found.append(Unit("item", begin, end, context, whole=whole))
        elif kind == "term":
            found += [
                Unit("sentence", *span, context, whole=whole) for span in _trim(text, start, end)
            ]
        else:
            said = [
                Unit("sentence", *span, heading, whole=whole)
                for span in sentence_spans(text, start, end)
            ]
            found += said
            last = text[said[-1].start : said[-1].end] if said else ""
            intro = last if last.endswith((":", "：")) else ""
    return found


def sentence_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Spans of the sentences of `text[start:end]` without surrounding white space; none ends inside
    of code, a link or a tag.
    """
    inside: list[tuple[int, int]] | None = None
    begin = start
    for stop in sentence_ends(text, start, end):
        if stop < end:
            if inside is None:
                inside = [
                    (start + low, start + high)
                    for low, high in inline_units(text[start:end], lambda low, high: True)
                ]
            if any(low < stop < high for low, high in inside):
                continue
        yield from _trim(text, begin, stop)
        begin = stop
    yield from _trim(text, begin, end)


def _blocks(text: str) -> list[_Block]:
    """The blocks of a text in order."""
    reader = _Reader(text)
    for start, end in _lines(text):
        reader.read(start, end)
    reader.close()
    return reader.found


class _Reader:
    """Finds the blocks of a text line by line."""

    def __init__(self, text: str) -> None:
        self.found: list[_Block] = []
        self._text = text
        self._kind, self._start, self._end = "", 0, 0  # of the open block
        self._until = ""  # the mark that closes a fence or a comment

    def close(self) -> None:
        """End the open block."""
        if self._kind:
            self.found.append(_Block(self._kind, self._start, self._end))
        self._kind = ""

    def read(self, start: int, end: int) -> None:
        """Take the next line."""
        line = self._text[start:end]
        if self._until == "-->":
            self._until = "" if "-->" in line else "-->"
        elif self._until:
            self._end = end
            if closes(line, self._until):
                self.close()
                self._until = ""
        elif fence := FENCE.match(line):
            self._add("code", start, end)
            self._until = fence[1]
        elif self._kind == "paragraph" and self._is_single() and _MAKES_OF_LINE.match(line):
            # a rule below one line makes it a heading, a colon before the next one a term
            self._kind, self._end = "term" if ":" in line else "heading", end
            if self._kind == "heading":
                self.close()
        else:
            self._add(_kind(line), start, end)

    def _is_single(self) -> bool:
        return "\n" not in self._text[self._start : self._end]

    def _add(self, kind: str, start: int, end: int) -> None:
        # a wrapped line belongs to the paragraph or list item above it
        wrapped = kind == "paragraph" and self._kind in ("item", "term")
        if not wrapped and (kind != self._kind or kind in ("heading", "item")):
            self.close()
        if kind == "title":
            line = self._text[start:end]
            self.found += [_Block("title", start + s, start + e) for s, e in _title(line)]
            self._until = "-->" if _COMMENT.match(line) else ""
        elif kind != "blank":
            self._kind, self._start = (self._kind, self._start) if self._kind else (kind, start)
            self._end = end


def _kind(line: str) -> str:
    if not line.strip():
        return "blank"
    if _DIRECTIVE.match(line) or _COMMENT.match(line):
        return "title"
    if _RULE.match(line) or _MARKUP.match(line):
        return "blank"
    if HEADING.match(line):
        return "heading"
    if line.lstrip().startswith("|") or ("|" in line and DELIMITER.match(line)):
        return "table"
    return "item" if ITEM.match(line) else "paragraph"


def _title(line: str) -> list[tuple[int, int]]:
    """The span of the title of a box or tab, if it has one."""
    match = _DIRECTIVE.match(line)
    name = match.lastgroup if match is not None else None
    return [match.span(name)] if match is not None and name is not None and match[name] else []


def _wholes(text: str, blocks: Sequence[_Block]) -> list[tuple[int, int]]:
    """The span of each block; of the blocks of a list, what its items hold included, that of the
    list.
    """
    runs: list[list[_Block]] = []
    for block in blocks:
        last = runs[-1] if runs else []
        if (
            last
            and last[0].kind == "item"
            and (block.kind == "item" or _INDENTED.match(text, block.start))
            and not text[last[-1].end : block.start].strip()
        ):
            last.append(block)
        else:
            runs.append([block])
    return [(run[0].start, run[-1].end) for run in runs for _ in run]


def _rows(text: str, start: int, end: int, context: str) -> Iterator[Unit]:
    """One unit a body row; the row before the separator is the header, if there is one."""
    lines = [(s, e) for s, e in _lines(text, start, end) if text[s:e].strip()]
    separator = next((i for i, (s, e) in enumerate(lines) if DELIMITER.match(text[s:e])), -1)
    header = lines[separator - 1] if separator > 0 else None
    names = " ".join(cells(text[header[0] : header[1]])) if header else ""
    for i, (s, e) in enumerate(lines):
        if i != separator and (s, e) != header:
            yield from (
                Unit("row", *span, f"{context} {names}".strip(), header, (start, end))
                for span in _trim(text, s, e)
            )


def _code(text: str, start: int, end: int, context: str, whole: tuple[int, int]) -> Iterator[Unit]:
    lines = list(_lines(text, start, end))
    if len(lines) <= MAX_CODE_LINES:
        yield Unit("code", start, end, context, whole=whole)
        return
    for s, e in lines:
        if not FENCE.match(text[s:e]):
            yield from (
                Unit("sentence", *span, context, whole=(start, end)) for span in _trim(text, s, e)
            )


def _lines(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    end = len(text) if end is None else end
    while start < end:
        stop = text.find("\n", start, end)
        stop = end if stop < 0 else stop
        yield start, stop
        start = stop + 1


def _trim(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    quote = _QUOTE.match(text, start, end)
    start = quote.end() if quote else start
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if end > start:
        yield start, end
