"""AsciiDoc, Org, Perl's POD, subtitles, the texts of RFCs, and plain texts with numbered headings:
the blocks of a text, and the edits that make it Markdown.

The facts keep the file unchanged, so that a citation leads to its bytes. A markup is a set of
patterns, one for each construct; what none of them matches stays as it is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial

from rag_platform.ir import Block, Edit
from rag_platform.loaders.parts import ticks_around
from rag_platform.loaders.restructured import HIDDEN, REWRITTEN, fill_gaps
from rag_platform.text.dates import read_han
from rag_platform.text.scripts import HAN, HAN_NUMBER

# parse profiles of the facts
ASCIIDOC, ORG, POD, RFC, SUBTITLES = "asciidoc", "org", "pod", "rfc", "subtitles"
NUMBERED = "numbered"
PROFILES = (ASCIIDOC, ORG, POD, RFC, SUBTITLES, NUMBERED)
SUFFIXES = {".adoc": ASCIIDOC, ".asciidoc": ASCIIDOC, ".org": ORG, ".pod": POD} | {
    ".srt": SUBTITLES,
    ".vtt": SUBTITLES,
}
_GENERIC = (".txt", ".text", "")
_ASCIIDOC = re.compile(
    r"^(?!\.\. )\S[^\n]*[^\n:]::[ \t]*\r?\n[ \t]+\S"  # a term above its description
    r"|^(?:include|ifdef|ifndef)::[^\s\[\]]+\[|\blink(?:git)?:[^\s\[\]]{1,500}\["
    r"|^\[source\b[^\]\n]*\][ \t]*\r?\n[-.]{4}"
    r"|^\[(?:verse|NOTE|TIP|WARNING|IMPORTANT|CAUTION|\[[\w-]+\])\b[^\]\n]*\]\s*$",
    re.MULTILINE,
)
_DIRECTIVE = re.compile(r"^\.\. [\w:-]+::", re.MULTILINE)  # of reStructuredText
_RFC = re.compile(r"^(?:Request for Comments|RFC): *(\d+)|^Internet-Draft\b", re.M | re.I)
_HEAD = 1500  # characters in which an RFC says that it is one
# a short line `2.1 Tools` between empty lines, or `第二章 总则` and `二、职责` above others
_NUMBERED = re.compile(
    r"(?:(?:\A|(?<=\n\n)|(?<=\n \n))(?P<digits>\d{1,2}(?:\.\d{1,2}){0,3})\.?[ \t\u3000]{1,4}"
    rf"[A-Z{HAN}][^\n|]{{1,60}}"
    rf"|^[ \t\u3000]*(?:第(?P<han>{HAN_NUMBER})(?P<kind>[编篇章节条])(?=\s|$)"
    rf"|(?P<item>{HAN_NUMBER})、(?=\S))[^\n|]{{0,40}})"
    r"(?<![.。;；,，:：!！?？…\s])[ \t]*$(?(digits)(?=\n[ \t]*\n))",
    re.MULTILINE,
)
_KINDS = "编篇章节条"  # outermost first
_CLAUSE = _KINDS.index("条")
_LEAST_HEADINGS = 3
_UNDERLINES = "=-~^+"  # of AsciiDoc's titles, by level

_APART = r"(?:(?<=\n\n)|(?<=\n \n))"  # below an empty line
_BELOW = r"(?:(?<=\S\n)|(?<=\S \n))"  # below a line that is not empty
_BLANKS = r"(?: *\n)*"
_TIMES = r"\d+:[\d:.,]+ *--> *\d+:[\d:.,]+.*"  # of a subtitle
_SENTENCE_END = re.compile(r"[.!?…。！？][^\w\s<>]*(?:</\w+>)*\Z")
_MAX_UNENDED = 6  # subtitles in a paragraph
_TITLE = r"(?:[^\n\[]|\[(?!\[[^\[\]\n]*\]\] *$))*+"  # before an anchor in brackets
_WITHIN = r"\n(?!\s*\n)"  # a line end within a paragraph
_NESTED = rf"[A-Z]<(?:[^<>\n]|{_WITHIN}|(?<![A-Z])<{{}})*>"
_POD_INLINE = rf"[A-Z]<<+\s(?:.|{_WITHIN}){{0,1000}}?\s>>+|" + _NESTED.format(
    "|" + _NESTED.format("|" + _NESTED.format(""))
)
_PATTERNS = {
    ASCIIDOC: {
        "code": r"(?:^\[.*\] *\n)?^(?P<fence>-{4,}+|\.{4,}+|`{3,}+).*\n",
        "comment": r"^(?P<fence>/{4,}+) *\n",
        "hidden": r"^//(?!/).*$|^:!?[\w-]+!?:(?: .*)?$"
        r"|^(?:ifdef|ifndef|ifeval|endif|include)::.*$|^\+ *$"
        r"|^\[(?:[^\[\]\n]|\[[^\[\]\n]*\])*\] *$"
        r"|^(?:={4,}|\*{4,}|_{4,}|--) *$",
        "heading": rf"(?:\A|(?<=\]\n)|(?<=\] \n)|{_APART})(?P<mark>={{1,6}}) +"
        rf"(?P<words>\S{_TITLE}).*$",
        "underlined": rf"^(?P<words>\w{_TITLE}(?<![.,;:])).*\n"
        r"(?P<mark>={3,}|-{3,}|~{3,}|\^{3,}|\+{3,}) *$",
        "literal": rf"{_APART}(?P<body>(?:[ \t]+(?![-*.]+ |\d+\. )\S.*(?<!::)(?<!;;)(?:\n|\Z))+)",
        "term": r"^[ \t]*(?!::|;;)(?P<words>\S.{0,200}?(?:::+|;;)"
        r"(?: *\n[ \t]*\S.{0,200}?(?:::+|;;))*)(?: *\n\s*| +)",
        "indent": rf"{_BELOW}[ \t]+(?![-*.]+ |\d+\. )(?=\S)",
        "words": r"\blink(?:git)?:(?P<page>[^\s\[\]]{1,500})\[(?P<words>[^\]\n]{0,500})\]"
        r"|<<[^<>,\n]+,\s*(?P<title>[^<>\s][^<>\n]*)>>",
    },
    ORG: {
        "code": r"^[ \t]*#\+begin_(?P<fence>src|example)\b.*\n",
        "comment": r"^[ \t]*(?P<fence>:)(?:PROPERTIES|LOGBOOK): *\n",
        "title": r"^#\+title:[ \t]*(?P<words>\S.*)$",
        "hidden": r"^[ \t]*# .*$"
        r"|^[ \t]*#\+(?!(?:author|date|filetags|caption|description):).*$",
        "heading": r"^(?P<mark>\*+)[ \t]+(?P<words>\S.*)$",
        "term": r"^[ \t]*[-+] +(?P<words>\S.*?)(?<![ \t])[ \t]+::(?: *\n| +)",
        "words": r"\[\[(?:[^\[\]\n]+\]\[|\*)?(?P<words>[^\[\]]+)\]\]",
        "inline": r"(?<![\w=~])(?P<mark>[=~])(?P<words>\S|\S[^\n=~]*\S)(?P=mark)(?![\w=~])"
        r"|\{\{\{\w+\((?P<title>[^()]*)\)\}\}\}",
    },
    POD: {
        "title": r"^=head1 +NAME *\n(?:X<.*\n|\s)*(?P<words>\S.*)$",
        "heading": r"^=head(?P<mark>[1-6]) +(?P<words>\S.*)$",
        "item": r"^=item +(?P<mark>\*|\d+\.?)(?: *\n\s*(?!=)| +(?=\S))",
        "term": r"^=item +(?P<words>\S.*)$",
        "hidden": r"^=(?:over|back|pod|encoding|cut|item)\b.*$|^=for\b.*(?:\n.*\S.*)*"
        r"|^(?:X<[^<>\n]*>\s*)+$",
        "comment": r"^(?P<fence>=)begin\b.*\n",
        "literal": rf"{_APART}(?P<body>(?:[ \t]+\S.*(?:\n(?:[ \t]*\n)*(?=[ \t]+\S)|\n|\Z))+)",
        "pod": _POD_INLINE,
    },
    RFC: {
        "page": rf"(?:^.*\[Page [^\[\]\n]*\]{_BLANKS}(?:\f{_BLANKS}.*)?{_BLANKS})+",
        # older ones indent the headings of subsections
        "heading": rf"{_APART}(?: {{1,8}}(?=\d+(?:\.\d+)+\.? +[A-Z]))?(?P<words>"
        r"(?P<mark>(?:Appendix +[A-Z]|\d+|[A-Z](?=\.))(?:\.\d+)*[.:]?)"
        r" +(?!.*(?:\.{3}|\. \.))\S.*(?:\n +\S.*)?(?<![.,;: ])) *$(?=\n *\n)",
        "plain": rf"{_APART}(?P<words>[A-Z][\w'/& -]{{2,50}}) *$(?=\n{_BLANKS}  )",
        "top": r"\A(?:[^\S\n]*\n)*(?:[^\S\n]*\S.*\n)+\s*\n(?P<words> {4,}\S.*(?:\n {4,}\w.*)*)$",
    },
    SUBTITLES: {
        "hidden": rf"(?:\A\ufeff?WEBVTT|{_APART}(?:NOTE|STYLE|REGION)(?!.*-->))\b(?:.*\S)?"
        r"(?: ?\n.*\S)*",
        # the number and the times of what is said, which goes on with what was said before
        "cue": rf"(?<!\s)\s*+^(?:(?:\A|{_APART})(?!.*-->)\S.*\n)?{_TIMES}"
        rf"(?:\n(?: *\n)++(?:\d+ *\n)?{_TIMES})*+\n?",  # nothing is said in some
        "words": r"<v(?:\.[\w.]+)? +(?P<words>[^<>\n]+)>",
        "tag": r"</?(?:[bciuv]|font|lang|ruby|rt)\b[^<>\n]*>|<[\d:.]+>|\{\\[^{}\n]*\}",
    },
}
_SCANNERS = {
    profile: {
        name: re.compile(pattern, re.MULTILINE | (re.IGNORECASE if profile == ORG else 0))
        for name, pattern in patterns.items()
    }
    for profile, patterns in _PATTERNS.items()
}
# the last lines of code and comments, each with the `fence` of its first line
_ENDS = {
    ASCIIDOC: re.compile(r"^(-{4,}|\.{4,}|`{3,}|/{4,}) *$", re.M),
    ORG: re.compile(r"^[ \t]*(?:#\+end_(src|example)\b.*|(:)END: *)$", re.M | re.I),
    POD: re.compile(r"^(=)end\b.*$", re.M),
}
_ESCAPES = {"lt": "<", "gt": ">", "sol": "/", "verbar": "|"}


def find_markup(text: str, suffix: str) -> str:
    """The parse profile of the markup that the text is in; empty for others."""
    if suffix not in _GENERIC:
        return SUFFIXES.get(suffix, "")
    if _RFC.search(text[:_HEAD]):
        return RFC
    return ASCIIDOC if _ASCIIDOC.search(text) and not _DIRECTIVE.search(text) else ""


def list_numbered(text: str) -> list[tuple[re.Match[str], int]]:
    """The numbered headings of a plain text with their levels from 2 on; none where their numbers
    do not all follow each other, as where a list begins. An entry of a table of contents or of a
    list has no text before the next one.
    """
    lines = _end_lines_alike(text)
    found = [(it, *_read_number(it)) for it in _NUMBERED.finditer(lines)]
    kept = [
        one
        for one, other in zip(found, [*found[1:], None], strict=False)
        if other is None
        or other[1] > one[1]
        or lines[one[0].end() : other[0].start()].strip(" \t\n\u3000")
    ]
    ranks = sorted({rank for _, rank, _ in kept})
    path: dict[int, tuple[int, ...]] = {}
    clause: tuple[int, ...] = (0,)  # clauses are numbered through all chapters
    for _, rank, number in kept:
        outer = {it: path[it] for it in path if it < rank}
        above = outer.get(rank - 1, ())[: len(number) - 1]
        before = path.get(rank, (*above, 0))
        if rank == _CLAUSE and number != (1,):
            before = clause
        if number != (*before[:-1], before[-1] + 1):
            return []
        path = outer | {rank: number}
        clause = number if rank == _CLAUSE else clause
    if len(kept) < _LEAST_HEADINGS:
        return []
    return [(it, 2 + ranks.index(rank)) for it, rank, _ in kept]


def _read_number(heading: re.Match[str]) -> tuple[int, tuple[int, ...]]:
    """(how deep a kind of numbers is, its parts) of a numbered heading."""
    if digits := heading["digits"]:
        parts = tuple(map(int, digits.split(".")))
        return len(_KINDS) + len(parts), parts
    rank = _KINDS.index(heading["kind"]) if heading["kind"] else len(_KINDS)
    number = heading["han"] or heading["item"]
    return rank, (int(number if number.isdecimal() else read_han(number)),)


def _end_lines_alike(text: str) -> str:
    """The text with lines that end with one character, at the same offsets."""
    return text.replace("\r\n", " \n").replace("\r", "\n")


def markup_blocks(text: str, profile: str) -> list[Block]:
    """The headings, code and paragraphs of a text, without byte offsets."""
    return fill_gaps(text, _Reader(text, profile).blocks)


def markup_edits(text: str, profile: str) -> list[Edit]:
    """The edits that turn a text into Markdown, in order and without overlap."""
    return _Reader(text, profile).edits


def _scan(text: str, profile: str) -> Iterator[tuple[str, re.Match[str], int, int]]:
    """(name, match, end of its body, end) of the patterns of a profile, in the order of the text
    and without overlap; the first pattern wins. Code and comments without a last line are none.
    """
    patterns = _SCANNERS[profile]
    lasts: dict[str, list[re.Match[str]]] = {}
    for last in _ENDS[profile].finditer(text) if profile in _ENDS else ():
        lasts.setdefault(last[last.lastindex or 0].lower(), []).append(last)
    ahead = {name: pattern.search(text) for name, pattern in patterns.items()}
    at = 0
    while True:
        for name, found in ahead.items():
            if found and found.start() < at:
                ahead[name] = patterns[name].search(text, at)
        found = min(filter(None, ahead.values()), key=lambda it: it.start(), default=None)
        if found is None:
            return
        name = next(name for name, it in ahead.items() if it is found)
        body_end, end = found.end("body") if name == "literal" else found.end(), found.end()
        if name in ("code", "comment"):
            same = lasts.get(found["fence"].lower(), [])
            number = bisect_left(same, end, key=lambda it: it.start())
            if number == len(same):
                ahead[name] = patterns[name].search(text, end)
                continue
            body_end, end = same[number].span()
        elif (
            name == "underlined"
            and abs(found.start("mark") - found.start() - len(found["mark"]) - 1) > 2
        ):
            ahead[name] = patterns[name].search(text, found.end("words"))
            continue
        yield name, found, body_end, end
        at = max(end, found.start() + 1)


class _Reader:
    """Writes each construct of a text as Markdown."""

    def __init__(self, text: str, profile: str) -> None:
        self.text = text
        self.blocks: list[Block] = []
        self.edits: list[Edit] = []
        self._profile = profile
        self._unended = 0  # subtitles since the last end of a sentence
        if profile == NUMBERED:
            for found, level in list_numbered(text):
                self._add_heading(found.start(), found.end(), level, " ".join(found[0].split()))
            return
        lines = _end_lines_alike(text)
        for name, found, body_end, end in _scan(lines, profile):
            if name in ("title", "top", "heading", "underlined", "plain"):
                self._write_heading(name, found)
            elif name in ("code", "literal"):
                self._write_code(found, body_end, end)
            elif name == "page":
                self._write_page_end(found, lines)
            elif name == "term":
                end = found.start() + len(found[0].rstrip())
                self._edit(found.start(), end, self._write_words(name, found))
                if found.end() > end:
                    self._edit(end, found.end(), "\n\n")
            elif name in ("hidden", "comment"):
                self._hide(found.start(), end, lines)
            else:
                self._edit(found.start(), found.end(), self._write_words(name, found))

    def _write_heading(self, name: str, found: re.Match[str]) -> None:
        if name == "underlined":
            level = _UNDERLINES.index(found["mark"][0]) + 1
        else:
            level = {"title": 1, "top": 1, "plain": 2}.get(name) or self._find_level(found["mark"])
        words = self._format(" ".join(found["words"].split()))
        start, end = found.start("words") if name == "top" else found.start(), found.end()
        if name == "top" and (number := _RFC.search(self.text[:_HEAD])) and number[1]:
            words = f"RFC {number[1]}: {words}"
        self._add_heading(start, end, level, words)

    def _add_heading(self, start: int, end: int, level: int, words: str) -> None:
        level = min(level, 6)
        self._edit(start, end, f"{'#' * level} {words}")
        title = re.sub(r"[`*]", "", words)
        self.blocks.append(Block(0, "heading", start, end, level, title=title))

    def _find_level(self, mark: str) -> int:
        if self._profile == RFC:
            return len(re.findall(r"\d+|\b[A-Z]\b", mark)) + 1
        if self._profile == ASCIIDOC:
            return len(mark)
        return (int(mark) if self._profile == POD else len(mark)) + 1

    def _write_code(self, found: re.Match[str], body_end: int, end: int) -> None:
        start = found.end() if "fence" in found.re.groupindex else found.start("body")
        body = self.text[start:body_end]
        inner = start + len(body) - len(body.lstrip("\r\n")), start + len(body.rstrip())
        if inner[0] >= inner[1]:
            self._edit(found.start(), end, "")
            return
        mark = ticks_around(body)
        end = found.start() + len(self.text[found.start() : end].rstrip())
        last = min(inner[1], end - 1)  # an edit that ends a line ends before its end
        self._edit(found.start(), inner[0] + 1, f"{mark}\n{self.text[inner[0]]}")
        self._edit(last, end, f"{self.text[last : inner[1]]}\n{mark}")
        self.blocks.append(Block(0, "code", found.start(), end))

    def _write_page_end(self, found: re.Match[str], lines: str) -> None:
        # a sentence that goes on below is not divided
        goes_on = re.match(r" +[a-z]+ ?[\w(,]", lines[found.end() : found.end() + 80])
        start = self._end_above(found.start())
        self._edit(start, found.end(), "\n" if goes_on else "\n\n", "repeated_footer")

    def _hide(self, start: int, end: int, lines: str) -> None:
        if not lines[end : end + 2].strip():
            start = self._end_above(start)
        self._edit(start, end, "", HIDDEN)

    def _end_above(self, start: int) -> int:
        """Where the words above an offset, or the edit above it, end."""
        least = max(start - 400, self.edits[-1].end if self.edits else 0)
        return least + len(self.text[least:start].rstrip())

    def _write_joint(self, at: int) -> str:
        """A line end between two subtitles; that of a paragraph below several without the end of a
        sentence, as in captions without punctuation.
        """
        if not at:
            return ""
        is_ended = _SENTENCE_END.search(self.text, max(at - 20, 0), at)
        self._unended = 0 if is_ended else (self._unended + 1) % _MAX_UNENDED
        return "\n" if is_ended or self._unended else "\n\n"

    def _write_words(self, name: str, found: re.Match[str]) -> str:
        if name == "cue":
            return self._write_joint(found.start())
        if name in ("indent", "tag"):
            return ""
        if name == "item":
            return "- " if found["mark"] == "*" else f"{found['mark'].rstrip('.')}. "
        if name == "pod":
            return _write_pod(found[0])
        if name == "term":
            ends = re.split(r"(?:::+|;;)(?:\s*\n\s*|$)", found["words"])
            names = list(filter(None, (self._format(name).strip() for name in ends)))
            if names and names[0][0] == "-":  # the forms of one option
                names = [", ".join(names)]
            return f"**{', '.join(map(_write_name, names))}**" if names else ""
        groups = found.groupdict()
        if name == "words" and self._profile == ASCIIDOC and groups["page"]:
            words, page = groups["words"], groups["page"]
            return f"{page}({words})" if words.isdigit() else words or page
        words = groups["words"] or groups.get("title") or ""
        if self._profile == SUBTITLES:
            return f"{words}: "
        return words if name == "words" else f"`{words}`"

    def _format(self, words: str) -> str:
        """The words of a heading or term without inline markup."""
        scanners = _SCANNERS[self._profile]
        for name in ("words", "inline", "pod"):
            if name in scanners:
                words = scanners[name].sub(partial(self._write_words, name), words)
        return words

    def _edit(self, start: int, end: int, replacement: str, rule: str = REWRITTEN) -> None:
        if self.text[start:end] != replacement:
            self.edits.append(Edit(start, end, replacement, rule))


def _write_name(name: str) -> str:
    """A term as code, unless it has code or is words."""
    return name if "`" in name or (" " in name and name[0] != "-") else f"`{name}`"


def _write_pod(code: str) -> str:
    """A formatting code as Markdown."""
    kind, words = code[0], re.sub(r"^.<+\s?|\s?>+$", "", code) if code[1:3] == "<<" else code[2:-1]
    if kind in "XZ":
        return ""
    if kind == "E":
        return _ESCAPES.get(words, words)
    if kind == "L":
        words = words.split("|")[0].strip('/"')
    if kind != "C" or code[1:3] != "<<":
        words = re.sub(_POD_INLINE, lambda it: _write_pod(it[0]), words)
    if kind in "CF" and "`" not in words:
        return f"`{words}`"
    return f"**{words}**" if kind == "B" else words
