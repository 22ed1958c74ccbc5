"""Images in a Markdown text (`![alt](target)`, `![alt][label]`, `<img src=...>`), and invisible
HTML.
"""

from __future__ import annotations

import functools
import html
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rag_platform.loaders.markup.html_styles import hidden_by
from rag_platform.loaders.parts import Image
from rag_platform.loaders.text import LINE_END

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

# limits of a paragraph whose images are parsed; real paragraphs are shorter
MAX_INLINE = 50_000
MAX_BRACKETS = 2_000
IMG_TAG = re.compile(
    r"<!--.*?(?:-->|\Z)|<img\b(?:[^<>\"']|\"[^\"]{0,4000}\"|'[^']{0,4000}'){0,4000}>",
    re.DOTALL | re.IGNORECASE,
)
SRC, ALT, _STYLE = (
    re.compile(rf"""\b{name}\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
    for name in ("src", "alt", "style")
)
_HIDDEN = re.compile(r"\shidden(?=\s|=[\"']|\Z)", re.IGNORECASE)
_VOID = set("area base br col embed hr img input link meta source track wbr".split())
# content that browsers never show, a comment or the name of a block in Obsidian, or any other tag
_HTML = (
    r"(?P<invisible><!--(?:(?!<!--|-->).)*-->"
    r"|<(?P<raw>script|style)\b[^<>]*>(?:(?!</?(?P=raw)\b).)*</(?P=raw)\s*>"
    r"|(?<![^\n])%%(?:(?!%%).)+%%(?![^\r\n])"
    r"|(?<!\S)\^(?=[\d-]*[a-z])(?=[a-z-]*\d)[a-z0-9-]{3,}(?![^\r\n]))"
    r"|<(?P<end>/?)(?P<name>[a-z][\w-]*)"
    r"(?P<attributes>(?:[^<>\"']|\"[^\"]{0,4000}\"|'[^']{0,4000}'){0,4000})>"
)
_COMMENT_MARK = re.compile(r"(?<![^\n])%%[ \t]*(?![^\r\n])")  # of Obsidian, on a line of its own
_IN_BLOCK = re.compile(_HTML, re.DOTALL | re.IGNORECASE)
# in inline text, where backslash escapes and code spans take precedence
_IN_TEXT = re.compile(
    rf"\\.|(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|{_HTML}", re.DOTALL | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Lines:
    """Maps line numbers of the parsed body to spans of the whole text."""

    text: str
    starts: Sequence[int]
    offset: int  # lines before the body

    def start(self, line: int) -> int:
        """The offset of a line of the body."""
        index = line + self.offset
        return self.starts[index] if index < len(self.starts) else len(self.text)

    def span(self, first: int, last: int) -> tuple[int, int] | None:
        """The span of lines [first, last) without blank lines around it; None if all are blank."""
        part = self.text[self.start(first) : self.start(last)]
        end = self.start(first) + len(part.rstrip())
        # trailing blanks belong to the last line
        stop = LINE_END.search(self.text, end)
        end = min(stop.start() if stop else len(self.text), self.start(last))
        lead = len(part) - len(part.lstrip())
        begin = max(
            (match.end() for match in LINE_END.finditer(part, 0, lead)), default=0
        ) + self.start(first)
        return (begin, end) if part.strip() else None

    def count(self) -> int:
        """The number of lines of the body."""
        return len(self.starts) - self.offset


def find_images(
    text: str, tokens: Sequence[Token], lines: Lines, references: dict[str, Any]
) -> tuple[list[Image], list[str]]:
    """(images in order, warnings); spans cover all of the markup, targets are as written."""
    warnings: list[str] = []
    found: list[Image] = []
    for token in tokens:
        if token.map is None:
            continue
        if token.type == "html_block":
            begin, end = lines.start(token.map[0]), lines.start(token.map[1])
            found += [image.move(begin) for image in html_images(text[begin:end])]
        elif token.type == "inline" and ("![" in token.content or "<img" in token.content.lower()):
            if len(token.content) > MAX_INLINE or token.content.count("[") > MAX_BRACKETS:
                warnings.append(
                    f"line {token.map[0] + 1}: too long or too many brackets, its images are not"
                    " read"
                )
                continue
            found += _inline_images(text, token, lines, references, found[-1].end if found else 0)
    return sorted(found, key=lambda image: image.start), warnings


def hidden_spans(text: str, tokens: Sequence[Token], lines: Lines) -> Iterator[tuple[int, int]]:
    """The spans of comments, scripts, style sheets and hidden elements, each including the space
    before it if white space or nothing follows.
    """
    depth = hidden_start = 0
    name = ""  # of the hidden element that is open
    opened: re.Match[str] | None = None  # the mark of a comment over several paragraphs
    for inline, at, stop in _find_parts(tokens, lines):
        if opened:
            closed = _COMMENT_MARK.search(text, at, stop) if inline else None
            if closed is None:
                continue
            yield opened.start(), closed.end()
            at = closed.end()
        done = at
        for match in (_IN_TEXT if inline else _IN_BLOCK).finditer(text, at, stop):
            tag, attributes = (match["name"] or "").lower(), match["attributes"] or ""
            start, end = match.span()
            done = end
            if depth:
                depth += (-1 if match["end"] else 1) if tag == name else 0
                if not depth:
                    yield _extend_to_space(text, hidden_start, end)
            elif match["invisible"]:
                yield _extend_to_space(text, start, end)
            elif tag and not match["end"] and tag not in _VOID and not attributes.endswith("/"):
                style = _STYLE.search(attributes)
                if _HIDDEN.search(attributes) or (style and hidden_by(_unescape(style))):
                    name, hidden_start, depth = tag, start, 1
        opened = _open_comment(text, done, stop) if inline and not depth else None


def _open_comment(text: str, start: int, stop: int) -> re.Match[str] | None:
    """The mark in a part that begins a comment, if another one ends it."""
    mark = _COMMENT_MARK.search(text, start, stop)
    return mark if mark and _COMMENT_MARK.search(text, mark.end()) else None


def _find_parts(tokens: Sequence[Token], lines: Lines) -> Iterator[tuple[bool, int, int]]:
    """(whether it is inline text, start, end) of each part that may hold HTML."""
    stop = 0
    for token in tokens:
        if token.map is None or token.type not in ("html_block", "inline"):
            continue
        at, stop = (max(stop, lines.start(line)) for line in token.map)
        inline = token.type == "inline"
        if not inline or len(token.content) <= MAX_INLINE:
            yield inline, at, stop


def _extend_to_space(text: str, start: int, end: int) -> tuple[int, int]:
    spaced = text[start - 1 : start] in (" ", "\t") and not text[end : end + 1].strip()
    return start - spaced, end


def html_images(part: str) -> Iterator[Image]:
    """Every <img> with a src outside comments."""
    for match in IMG_TAG.finditer(part):
        if not match.group().startswith("<!--") and (src := SRC.search(match.group())):
            alt = ALT.search(match.group())
            yield Image(*match.span(), _unescape(src), _unescape(alt) if alt else "")


def _unescape(match: re.Match[str]) -> str:
    return html.unescape(next(group for group in match.groups() if group is not None))


def _inline_images(
    text: str, token: Token, lines: Lines, references: dict[str, Any], cursor: int
) -> Iterator[Image]:
    env: dict[str, Any] = {"references": references, "images": []}
    inline_parser().parseInline(token.content, env)
    if not env["images"] or token.map is None:
        return
    first, last = token.map
    offsets = _map_offsets(text, token.content, lines, first, last)
    for image in env["images"]:
        construct = token.content[image.start : image.end]
        at = offsets(image.start)
        if at is None or not text.startswith(construct.split("\n", 1)[0], at):
            # in a table cell, or after tabs that the parser expanded: search for the markup itself
            at = text.find(construct, max(cursor, lines.start(first)), lines.start(last))
        if at is None or at < 0:
            continue
        stop = at + len(construct) if "\n" not in construct else offsets(image.end - 1)
        if stop is None:
            continue
        cursor = stop if "\n" not in construct else stop + 1
        yield Image(at, cursor, image.target, image.alt)


def _map_offsets(text: str, content: str, lines: Lines, first: int, last: int) -> Any:
    """A function that maps offsets in the inline content to offsets in the text, or to None."""
    bases: list[tuple[int, int | None]] = []
    position = 0
    for index, part in enumerate(content.split("\n")):
        begin = lines.start(min(first + index, last))
        source = text[begin : lines.start(min(first + index + 1, last))].rstrip("\r\n")
        column = source.rfind(part.rstrip()) if part.strip() else 0
        bases.append((position, begin + column if column >= 0 else None))
        position += len(part) + 1

    def offset(at: int) -> int | None:
        base, place = bases[bisect_right(bases, at, key=lambda pair: pair[0]) - 1]
        return None if place is None else place + at - base

    return offset


@functools.cache
def inline_parser() -> MarkdownIt:
    """An inline parser that adds each Image to env["images"]."""
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import html_inline, image

    parser = MarkdownIt("commonmark")
    # Targets are kept as written, whatever their scheme: which of them may be read is decided when
    # the bytes are fetched.
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    nesting = [0]  # of images in the alternative text of others

    def note_image(state: StateInline, silent: bool) -> bool:
        start = state.pos
        nesting[0] += 1
        try:
            matched = image(state, silent)
        finally:
            nesting[0] -= 1
        if matched and not silent and nesting[0] == 0 and "images" in state.env:
            token = state.tokens[-1]
            target = str(token.attrGet("src") or "")
            state.env["images"].append(Image(start, state.pos, target, token.content))
        return matched

    def note_html(state: StateInline, silent: bool) -> bool:
        start = state.pos
        matched = html_inline(state, silent)
        if matched and not silent and nesting[0] == 0 and "images" in state.env:
            found = html_images(state.src[start : state.pos])
            state.env["images"] += [image.move(start) for image in found]
        return matched

    parser.inline.ruler.at("image", note_image)
    parser.inline.ruler.at("html_inline", note_html)
    return parser
