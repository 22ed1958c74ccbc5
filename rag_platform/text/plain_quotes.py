"""Removes relative links, presentational tags and block quote marks from Markdown that is quoted
outside its page.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import unescape
from urllib.parse import urljoin

from rag_platform.text.markdown_blocks import CODE_SPAN, FENCE, closes
from rag_platform.text.scripts import CJK
from rag_platform.text.sentences import STOPS

# footnote marks; not right after a Latin letter, where `argv[1]` is an index, and not where the
# mark is a word of the sentence: `see [1]`, `[1] and [2]`
FOOTNOTES = (
    rf"(?:(?<=[{CJK}{STOPS}.,;:，；：、”』」）》*])(?:\[\d{{1,3}}\])+(?!\()"
    r"|(?<=[a-z])(?<!\b(?:in|on|of|by|to|or|at|as|is))(?<!\b(?:and|see|for|are|the))"
    r"(?<!\b(?:from|with))[ \t](?:\[[1-9]\d{0,2}\])+(?=[\s.,;:)]|\Z)"
    r"(?!,?\s*(?:(?:and|or|to)\s)?\[))"
)
_WORDS = rf"\[(?P<words>(?:{CODE_SPAN}|!?\[[^\[\]\n]*\]\([^()\s]*\)|\[\]|[^\[\]`])+)\]"
_RELATIVE = r"(?!<?(?:[a-z][a-z0-9+.-]*:|//|www\.))"  # a link within the documents
SHORTCODE = r"\{\{[<%][^{}\n]*[%>]\}\}"
_TARGET = rf"\({_RELATIVE}(?:{SHORTCODE}|[^()\s]|\([^()\s]*\))*(?:[ \t]+\"[^\"\n]*\")?\)"
_IMAGE = rf"!\[(?P<NAME>(?:[^\[\]\\\n]|\\.)*)\]{_TARGET}"
_PRESENTATIONAL = (
    "a|abbr|b|blockquote|center|code|details|dfn|div|em|font|h[1-6]|i|img|kbd|p|small|span|strong"
    "|summary|table|tbody|td|th|thead|tr|u"
)
# components of MDX, but not `<Enter>` and `Vec<T>`
_COMPONENT = (
    r"</(?-i:[A-Z])[\w.]*>|(?<![A-Za-z0-9_])<(?:(?-i:[A-Z])[\w.]*(?:\s+[\w:-]+=[^<>]*|\s*/)"
    r"|(?P<component>(?-i:[A-Z])[\w.]*)(?=>[^<]*</(?P=component)>))>"
)
_ICONS = (":octicons-", ":material-", ":fontawesome-", ":simple-")  # of Material for MkDocs
# code comes first, because it contains no markup
_MARKUP = re.compile(
    rf"(?P<code>{CODE_SPAN})"
    rf"|{FOOTNOTES}"
    rf"|\A(?:{_IMAGE.replace('NAME', 'icon')}[ \t]*)(?=\w)"  # the icon of a note
    rf"|{_IMAGE.replace('NAME', 'alt')}"
    rf"|(?<![A-Za-z0-9_!\]`]){_WORDS}(?:{_TARGET}|\[[^\[\]\n]*\])(?:\{{[^{{}}\n]*\}})?"
    rf"|(?<![\w\]])\[\]\(#?{_RELATIVE}(?P<target>[^()\s]+)\)"  # the documentation tool adds words
    r"|(?<=\))\{[:.#a-z][^{}\n]*\}"  # attributes of a link
    r"|\{\{[<%]\s*(?:/|param\b|[\w-]*(?:\s[^{}\n]*?\btext=)?\s*(?:\"(?P<given>[^\"{}\n]+)\")?)"
    r"[^{}\n]*[%>]\}\}"  # a shortcode, with its words if it has any
    r"|\{(?:[a-z]+:)?[a-z]+\}`(?P<role>[^`<>\n]+?)(?:\s*<[^<>`\n]*>)?`"  # of MyST
    rf"|(?:{'|'.join(_ICONS)})[\w-]+:(?:\{{[^{{}}\n]*\}})?[ \t]?"
    r"|!\[\[[^\[\]\n]*\]\]"  # what a wiki embeds, and its links
    r"|(?<![\w\[])\[\[(?:[^\[\]|\n]*\|)?(?P<page>[^\W\d][^\[\]|\n]*)\]\](?![(\]])"
    r"|(?<![=\w])==(?P<marked>[^\s=](?:[^=\n]*[^\s=])?)==(?![=\w])"
    r"|(?<=\S)\[\^[^\s\[\]]+\]"  # the mark of a footnote
    r"|<su[bp]>(?P<small>[^\W\d][^<>]+)</su[bp]>"  # words, but not the 2 of m<sup>2</sup>
    r"|(?P<table><table\b[^<>]*>)|(?P<cell></t[dh]>)(?=\s*<t[dh]\b)"  # within a cell
    r"|(?P<row></tr>)(?=(?:\s*</?t(?:head|body)>)*\s*<tr\b)"
    rf"|</?(?:{_PRESENTATIONAL})(?:\s[^<>]*)?>"
    r"|[ \t]?(?P<break><br\s*/?>)(?!\s*\Z)|\s?<br\s*/?>"
    rf"|{_COMPONENT}"
    r"|&(?P<entity>#?\w{2,8};)"
    r"|(?<=\n)[ \t]*(?:>[ \t]?)+",
    re.IGNORECASE,
)
_LINK = re.compile(rf"{CODE_SPAN}|(?<!!)\[[^\[\]\n]*\]\((?P<target>{_RELATIVE}[^()\s#][^()\s]*)")
_BEGINS = ("[", "<", ">", "{", "&", "==", *_ICONS)
_COLOURS = re.compile(r"</?(?:font|span|u)(?:\s[^<>]*)?>")
# groups with the words of markup
_KEPT = "code words alt target small given role page marked".split()
_LANGUAGE = re.compile(r"[ \t]*(?:\{code[\w-]*\}[ \t]*)?[^\w+#-]*([\w+#-]+)")
_INDENT = re.compile(r"[ \t]*(?:>[ \t]?)*")


@lru_cache(maxsize=1024)
def strip_markup(quote: str) -> str:
    """The text with relative and reference links reduced to their words, or their targets where
    they have none, and relative images to their descriptions; without footnote marks,
    presentational tags, line break tags, the icon that it begins with, and the `>` of all lines but
    the first.
    """
    if not any(begin in quote for begin in _BEGINS):
        return quote
    return _MARKUP.sub(_keep, quote)


def resolve_links(text: str, source_uri: str) -> list[str]:
    """The documents that the relative links of a document's text lead to, in order.

    >>> resolve_links("See [setup](../setup.md#port), `[x](y)`, ![a](a.png).", "docs/a/start.md")
    ['docs/setup.md#port']
    """
    targets = (match["target"] for match in _LINK.finditer(text))
    return list(dict.fromkeys(urljoin(source_uri, target) for target in targets if target))


def _keep(match: re.Match[str]) -> str:
    if match["break"]:  # two spaces are a hard line break in Markdown
        return "  " if match.string.startswith("\n", match.end()) else " "
    if match["entity"]:  # ASCII signs stay entities, as they could be markup
        sign = unescape(match[0])
        return match[0] if sign.isascii() else " " if sign.isspace() else sign
    if match["table"] or match["row"] or match["cell"]:
        return ": " if match["table"] else "; " if match["row"] else ", "
    return next(filter(None, map(match.group, _KEPT)), "")


def plain_code(block: str) -> str:
    """A code block without indentation, in a fence with only the language in its opening line, and
    without the tags that colour the output of a terminal.
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
        name = _LANGUAGE.match(lines[0], opened.end())
        lines[0] = lines[0][: opened.end()] + (name[1] if name else "")
        if name and name[1] == "console":
            lines = [_COLOURS.sub("", line) for line in lines]
    if is_bare:
        language = "pycon" if lines[0].startswith(">>>") else ""
        lines = [f"```{language}", *lines, "```"]
    return "\n".join(lines)
