"""A quote of Markdown as a person would read it away from its page: without links that lead nowhere
from there, tags that only dress words, and the marks of a quoted block.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import unescape

from rag_platform.text.markdown_blocks import CODE_SPAN, FENCE, closes
from rag_platform.text.scripts import CJK
from rag_platform.text.sentences import STOPS

# of a page or a PDF; behind a Latin letter it may be an index: `argv[1]`
FOOTNOTES = rf"(?<=[{CJK}{STOPS}.,;:，；：、”』」）》*])(?:\[\d{{1,3}}\])+(?!\()"
_WORDS = (
    rf"\[(?:!\[[^\[\]\n]*\]\[[^\[\]\n]*\][ \t]*)*"  # pictures that are defined elsewhere
    rf"(?P<words>(?:{CODE_SPAN}|!?\[[^\[\]\n]*\]\([^()\s]*\)|[^\[\]`])+)\]"
)
_AWAY = r"(?!<?(?:[a-z][a-z0-9+.-]*:|//|www\.))"  # a link within the documents
_TARGET = rf"\({_AWAY}(?:[^()\s]|\([^()\s]*\))*(?:[ \t]+\"[^\"\n]*\")?\)"
_DRESS = "a|abbr|center|code|details|dfn|div|font|kbd|p|small|span|summary|u"
# of MDX; `<Enter>` and `Vec<T>` are words
_COMPONENT = (
    r"</(?-i:[A-Z])[\w.]*>|(?<![A-Za-z0-9_])<(?:(?-i:[A-Z])[\w.]*(?:\s+[\w:-]+=[^<>]*|\s*/)"
    r"|(?P<component>(?-i:[A-Z])[\w.]*)(?=>[^<]*</(?P=component)>))>"
)
# code first, for nothing in it is markup
_MARKUP = re.compile(
    rf"(?P<code>{CODE_SPAN})"
    rf"|{FOOTNOTES}"
    rf"|(?<![A-Za-z0-9_!\]`]){_WORDS}(?:{_TARGET}|\[[^\[\]\n]*\])(?:\{{[^{{}}\n]*\}})?"
    r"|(?<=\))\{[:.#a-z][^{}\n]*\}"  # attributes of a link
    r"|(?<=\S)\[\^[^\s\[\]]+\]"  # the mark of a footnote
    rf"|</?(?:{_DRESS})(?:\s[^<>]*)?>"
    r"|[ \t]?(?P<break><br\s*/?>)(?!\s*\Z)|\s?<br\s*/?>"
    rf"|{_COMPONENT}"
    r"|&(?P<entity>#?\w{2,8};)"
    r"|(?<=\n)[ \t]*(?:>[ \t]?)+",
    re.IGNORECASE,
)
_BEGINS = ("[", "<", ">", "{", "&")
_LANGUAGE = re.compile(r"[\w+#-]+")
_INDENT = re.compile(r"[ \t]*(?:>[ \t]?)*")


@lru_cache(maxsize=1024)
def plain(quote: str) -> str:
    """The quote, or a whole text, with links within the documents and references as their words,
    and without footnote marks, tags that dress words or break lines, and the `>` of its further
    lines.
    """
    if not any(begin in quote for begin in _BEGINS):
        return quote
    return _MARKUP.sub(_keep, quote)


def _keep(match: re.Match[str]) -> str:
    if match["break"]:  # two blanks end a line of Markdown
        return "  " if match.string.startswith("\n", match.end()) else " "
    if match["entity"]:  # what would be markup stays
        sign = unescape(match[0])
        return match[0] if sign.isascii() else " " if sign.isspace() else sign
    return match["code"] or match["words"] or ""


def plain_code(block: str) -> str:
    """A block of code at the left edge, in a fence, with nothing but the language in its opening
    line.
    """
    lines = block.split("\n")
    is_bare = not FENCE.match(lines[0])
    indent = re.match(r"[ \t]*", lines[0]) if is_bare else _INDENT.match(lines[0])
    width = indent.end() if indent else 0
    prefix = lines[0][:width]
    lines = [
        line[width:] if line.startswith(prefix) else line.lstrip(" \t>") if ">" in prefix else line
        for line in lines
    ]
    if opened := FENCE.match(lines[0]):
        if len(lines) == 1 or not closes(lines[-1], opened[1]):  # its end is in another passage
            lines.append(opened[1])
        said = _LANGUAGE.search(lines[0], opened.end())
        lines[0] = lines[0][: opened.end()] + (said[0] if said else "")
    if is_bare:
        language = "pycon" if lines[0].startswith(">>>") else ""
        lines = [f"```{language}", *lines, "```"]
    return "\n".join(lines)
