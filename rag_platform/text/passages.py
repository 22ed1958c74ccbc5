"""Splits a chunk's text into the units that an answer may quote: sentences, items, table rows, code
blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from rag_platform.text.boxes import Box, find_boxes
from rag_platform.text.cut_points import TAG
from rag_platform.text.entries import RELEASE
from rag_platform.text.markdown_blocks import (
    CODE_SPAN,
    DELIMITER,
    FENCE,
    HEADING,
    ITEM,
    NUMBERED,
    UNDERLINE,
    cells,
    closes,
    data_runs,
    heading_level,
    heading_text,
    html_headings,
    is_box_label,
    line_spans,
    numbered_headings,
    opens_fence,
    structure,
)
from rag_platform.text.plain_quotes import FOOTNOTES, SHORTCODE
from rag_platform.text.scripts import HAN, HAN_DIGIT, HAN_NUMBER
from rag_platform.text.sentences import sentences

_QUOTE = re.compile(r"\s*>\s?")
_NO_QUOTE = re.compile(r"[\s>]*>\s*$")  # a line between the paragraphs of a quoted block
_RULE = re.compile(r"\s*([-*_=])(\s*\1){2,}\s*$")
_IMAGE = r"!\[(?:[^\]\\]|\\.)*\](?:\([^)]*\)(?:\{[^{}]*\})?|\[[^\]]*\])"
# tags, shortcodes, blanks, images, badges (images that are links) and the targets of links
_MARKUP = re.compile(
    rf"\s*(?:<[^>]+>\s*|{SHORTCODE}\s*|&nbsp;\s*|{_IMAGE}\s*"
    rf"|\[{_IMAGE}\s*\](?:\([^)]*\)|\[[^\]]*\])\s*"
    r"|\[[^\]]+\]:\s*(?:\S+\s*|$))+$"
)
# a link definition whose target is on the next line
_DEFINES = re.compile(r" {0,3}\[[^\]]+\]:\s*$")
_ADDRESS = re.compile(r"\s+\S+\s*$")
# the start or end of an admonition or tab (`:::tip`, `!!! note`, `??? tip`, `=== "Tab"`,
# `/// note | Title`), or a directive of a documentation tool (`{* file.py *}`, `{% include %}`,
# `{/* comment */}`, `{: .class}`, `[[toc]]`)
_DIRECTIVE = re.compile(
    r"[\s>]*(?::{3,}|/{3,}|!{3}(?!\S*!)|\?{3}\+?\s|={3}[+!]?\s+\""
    r"|(?:\{/?[*!%#].*[*!%#]/?\}|\{:[^{}]*\}|\[{1,2}_?toc_?\]{1,2})\s*$)",
    re.IGNORECASE,
)
# a file that a documentation tool inserts: `{* file.py hl[3] *}`, `{!> file.py !}`,
# `--8<-- "file.py"`, `<<< @/file.js{2}`, `:::code source="file.py":::`,
# `{{% sample file="file.py" %}}`
INCLUDE = re.compile(
    r"[ \t>]*(?:\{[*!]>?[ \t]*|-+8<-+[ \t]+[\"']|<<<[ \t]*"
    r"|(?:\{[{%]|:::code\b)[^\n]{0,200}?\b(?:include|file|source)[ \t=][\"']?)"
    r"(?:[@~.]{0,2}/)*(?P<file>\w[\w./-]*\.\w+)(?![\w/])[^\n]*$",
    re.MULTILINE,
)
_DIAGRAM = re.compile(r"[ \t]*(?:mermaid|plantuml|puml|dot|graphviz|d2)\b", re.IGNORECASE)
# MDX: JavaScript between the paragraphs
_SCRIPT = re.compile(r"import\s(?:[^'\"]*\sfrom\s+)?['\"][^'\"]+['\"];?\s*$")
# the same over several lines, up to a blank one
_SCRIPT_BEGINS = re.compile(
    r"import\s*\{[^}'\"]*$|export\s+(?:(?:const|let|var|async|function|class)\s+[\w$*{\[]"
    r"|default\s+(?:async|function|class|\(|\{|[\w$]+;?\s*$))"
)
# a tag whose attributes continue on the next lines, and its end
_TAG_BEGINS = re.compile(r"[\s>]*<[A-Za-z][\w.-]*(?:\s[^<>`]*)?$")
_TAG_END = re.compile(r"(?<!=)>[ \t]*$")
_EMPTY_LINE = re.compile(r"\n[ \t]*(?=\n)")
_PROMPT = re.compile(r"[ \t]*>>>(?:\s|$)")  # of a Python session, which a blank line ends
_HIDDEN = re.compile(r"[\s>]*(<!--|<script\b|<style\b|\{/\*)", re.IGNORECASE)
_HIDDEN_END = {"<!--": "-->", "<script": "</script>", "<style": "</style>", "{/*": r"\*/\}"}
LINK = re.compile(r"\[[^\]\n]{0,500}\]\([^()\s]*\)")
_ATOM = re.compile(rf"{CODE_SPAN}|{LINK.pattern}|{TAG}")
# the line of a definition list that explains the term above it
_EXPLAINS = re.compile(r" {0,3}:[ \t]+\S")
_PROSE_LINE = re.compile(r"\s*[A-Z].*[.!?:]$|.*[。！？：]$")
# a line of bold words alone, or the title of a folded box, which label what follows
_LABEL = re.compile(
    r"[\s>]*(?:(\*\*|__)(?=\S)(?P<bold>`[^`\n]+`|(?:(?!\1)[^\n])+?)[:：]?\1[:：]?"
    r"|(?:<details\b[^>]*>\s*)?<summary>(?P<title>[^\n]+)</summary>(?:<br\s*/?>)?)\s*$"
)
_NO_TEXT = (_NO_QUOTE, _RULE, _MARKUP, _DIRECTIVE, INCLUDE, _SCRIPT)
_NOTES = re.compile(FOOTNOTES)
_DASHES = ("-", "`-", "``-")  # begin the name of an option
LABEL_LEVEL = 7  # of a line of bold words, below all headings
BOX_LEVEL = 99  # of the title of a tab or another box but an admonition, below all others
# an option of a command with its description, in columns
_OPTION = re.compile(r"[ \t]*--?[A-Za-z0-9](?:\S| \S)*(?: {2,}|\t)[ \t]*\S")
_LEAST_OPTIONS = 3
CLAUSE_LEVEL = LABEL_LEVEL + NUMBERED.groups
# the number of a clause, after `1.1` with its name
_CLAUSE = re.compile(
    rf"\s*(第{HAN_NUMBER}条(?:之{HAN_DIGIT}{{1,2}})?"
    rf"|\d{{1,2}}(?:\.\d{{1,2}}){{1,3}}[ \t\u3000]+(?=.{{0,12}}[{HAN}])[^，。：；:,\n]{{1,20}})"
)
_TARGET = re.compile(r"\s(?:href|link|to|url):")  # of an entry of a navigation
# a line with a word or value of an object, not with what opens or closes it
_VALUE = re.compile(r"[ \t]*(?![{}\[\]()]+,?$)[^<\s].*[^\s{\[(]$")
_INDENTED = "\u3000\u3000"  # of the first line of a Chinese paragraph
MAX_CODE_LINES = 25  # of a block that is quoted whole; of 746 in documentation, 96 of 100


# an entry of a table of contents or an index: dots that lead to page numbers; anchored at the first
# dot of a row, so that each row is tried once
_LEADERS = re.compile(
    r"(?:(?<![.·])(?<![.·]\s)(?<![.·]\|\s)(?<![.·]\s\|\s)(?:[.·]\s?(?:\|\s)?){5,}+|(?<!…)…{2,}+)"
    r"[\s|]*+(\d{1,4}|[ivxlc]{1,6})(?:,\s*\d{1,4})*"
    r"(?![\d.,]|[ \t]*\|[ \t]*[$(\d])"
)
_LEAST_ENTRIES = 4
# an item with only a link to a heading
_LINKED_ENTRY = re.compile(
    r"[ \t]*(?:[-*+]|\d+[.)])?[ \t]*\**\[[^\]\n]*\]\([^()\s]*#[^()\s]*\)\**[ \t]*"
)
_NAME_WORD = re.compile(r"[^\W\d_]\w*")
_IN_ORDER = 0.8  # share of entries whose page or first letter is not before the previous one's


Headings = tuple[tuple[int, str], ...]
_Block = tuple[str, int, int]  # kind, start, end


@dataclass(slots=True)  # not frozen: one for every sentence, created three times as fast
class Unit:
    """A span of a chunk's text that can be quoted; `text[start:end]` is its verbatim quote."""

    kind: str  # sentence | item | row | code
    start: int
    end: int
    context: str = ""  # the heading and introducing line above it; for a row also its header
    header: tuple[int, int] | None = None  # span of the header of a table row
    fence: tuple[int, int] | None = None  # for a piece of a code block: span of its opening line
    headings: Headings = ()  # (level, words) of those above it in the chunk, and of its tabs
    box: str = ""  # the title or kind of the admonition that it is in


def units(text: str) -> list[Unit]:
    """The units of a chunk in order, without headings, rules, bare markup, comments, box markers
    and separator rows; empty for a table of contents.
    """
    if is_contents(text):
        return []
    found: list[Unit] = []
    heading = intro = ""
    above: Headings = ()
    done = 0
    boxes = find_boxes(text)
    named = [box for box in boxes if box.name]
    for kind, start, end in _add_shown(text, boxes, list(_blocks(text, boxes))):
        block, count = text[start:end], len(found)
        above, heading = _end_labels(text[done:start], above, heading)
        done = end - 1
        around = [it for it in named if it.start <= start < it.end]
        context = f"{heading} {intro}".strip()
        if titled := _read_heading(kind, block):
            heading, intro = _join_options(found, above, titled[1]), ""
            directly = bool(above) and not (found and found[-1].headings == above)
            above = _add_heading(above, titled[0], heading, directly=directly)
        elif kind == "table":
            found += _rows(text, start, end, context)
        elif kind in ("code", "data", "shown"):
            found += (_entries if kind == "data" else _code)(text, start, end, context)
        elif kind == "item":
            marker = ITEM.match(block)
            begin = start + (marker.end() if marker else 0)
            found += [Unit("item", begin, end, context)]
        elif kind == "term":
            found += [Unit("sentence", *span, heading) for span in _trim(text, start, end)]
        else:
            if clause := _CLAUSE.match(block):
                above = _add_heading(above, CLAUSE_LEVEL, clause[1].strip())
            spans = list(sentence_spans(text, start, end))
            found += [Unit("sentence", *span, heading) for span in spans]
            last = text[slice(*spans[-1])] if spans else ""
            intro = last if last.endswith((":", "：")) else ""
        tabs = [(BOX_LEVEL, it.name) for it in around if not it.kind]
        box = next((it.name for it in reversed(around) if it.kind), "")
        for unit in found[count:]:
            unit.headings, unit.box = (*above, *tabs), box
    return found


def _end_labels(gap: str, above: Headings, heading: str) -> tuple[Headings, str]:
    """The headings in force after the gap between two blocks: a rule ends what labels explain."""
    if "\n---\n" not in gap:
        return above, heading
    above = tuple(item for item in above if item[0] < LABEL_LEVEL)
    return above, above[-1][1] if above else ""


def _join_options(found: Sequence[Unit], above: Headings, name: str) -> str:
    """The name of a heading, after that of an option right above it: `-u, --user`."""
    before = above[-1][1] if above and not (found and found[-1].headings == above) else ""
    joins = before.startswith(_DASHES) and name.startswith(_DASHES)
    return f"{before}, {name}" if joins else name


def _add_heading(above: Headings, level: int, name: str, *, directly: bool = False) -> Headings:
    """The headings in force below a new heading, which stands `directly` below the last one.

    Change logs have `### Fixed` right below `### 1.2.3`, also `# Title` below `## 1.2.3`: it and
    its siblings are then part of that release.
    """
    at = max((n for n, it in enumerate(above) if RELEASE.search(it[1])), default=None)
    if at is not None:
        outer, below = above[at][0], above[at + 1 :]
        if RELEASE.search(name):
            above = above[:at] if level <= outer else above
        elif below[0][0] <= min(level, outer) if below else directly and level <= outer:
            return (*above[: at + 1], *(it for it in below if it[0] < level), (level, name))
    return (*(item for item in above if item[0] < level), (level, name))


def _read_heading(kind: str, block: str) -> tuple[int, str] | None:
    """(level, words) of a heading or label; None for any other block."""
    if kind == "heading":
        return _level(block), heading_text(block)
    line = block.strip()
    if kind == "label" and (mark := NUMBERED.match(line)):
        return LABEL_LEVEL - 1 + (mark.lastindex or 0), line
    label = _read_label(block) if kind == "paragraph" else ""
    return (LABEL_LEVEL, label) if label else None


def _level(block: str) -> int:
    """The level of a heading, marked or underlined."""
    if marked := HEADING.match(block):
        return heading_level(marked)
    return 1 + "=-~^\"`'*+".index(block.rstrip()[-1])


def _read_label(block: str) -> str:
    """The words of a line that labels what follows, empty for any other block, as a bold sentence:
    in Chinese, clauses with or without a full stop. A question labels its answer.
    """
    label = _LABEL.match(block)
    words = (label["title"] or label["bold"]) if label else ""
    is_clauses = "，" in words and not words.endswith(("?", "？"))
    return (
        "" if is_clauses or is_box_label(words) or words.endswith((".", "!", "。", "！")) else words
    )


def is_contents(text: str) -> bool:
    """True for a part of a table of contents or an index: links to headings alone, or entries with
    dots that lead to pages, in the order of the pages or of the alphabet. The items of a financial
    statement have no such order.
    """
    if text.count("](") >= _LEAST_ENTRIES:
        lines = [line for line in text.split("\n") if line.strip() and not HEADING.match(line)]
        if len(lines) >= _LEAST_ENTRIES and all(map(_LINKED_ENTRY.fullmatch, lines)):
            return True
    # a cheap test first: each entry has at least five dots or two ellipses
    if (text.count(".") + text.count("·")) // 5 + text.count("…") // 2 < _LEAST_ENTRIES:
        return False
    found = list(_LEADERS.finditer(text))
    if len(found) < _LEAST_ENTRIES:
        return False
    starts = [0, *(match.end() for match in found)]
    names = [
        _NAME_WORD.search(text, start, match.start())
        for start, match in zip(starts, found, strict=False)
    ]
    pages = [int(match[1]) for match in found if match[1].isdigit()]
    return _ascends(pages) or _ascends([name[0][0].lower() for name in names if name])


def _ascends(values: Sequence[Any]) -> bool:
    """True for values in ascending order, in one column or in two interleaved ones."""
    return any(
        pairs and sum(one <= two for one, two in pairs) >= _IN_ORDER * len(pairs)
        for pairs in (list(zip(values, values[lag:], strict=False)) for lag in (1, 2))
    )


def sentence_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Spans of the sentences of `text[start:end]` without surrounding white space. No sentence ends
    inside inline code, links and tags. The opening mark of bold text belongs to the sentence that
    it begins, footnote marks to the sentence before them. The label of a box is no sentence.
    """
    if is_box_label(text[start:end].strip("*_> \t\n")):
        return
    block = start, end
    atoms = [match.span() for match in _ATOM.finditer(text, start, end)]
    for _, stop in sentences(text, start, end):
        if _opens_bold(text, block[0], stop):
            stop -= 2
        elif notes := _NOTES.match(text, stop, end):
            stop = notes.end()
        if any(low < stop < high for low, high in atoms):
            continue
        yield from (_trim_emphasis(text, *span, block) for span in _trim(text, start, stop))
        start = stop


def _blocks(text: str, boxes: Sequence[Box]) -> Iterator[_Block]:
    """(kind, start, end) of the blocks of a text; kind is heading, label, table, code, data, item,
    term (with its explanation) or paragraph.
    """
    kind, start, end = "", 0, 0
    for line_kind, begins, line_start, line_end in _read_lines(text, boxes):
        line = text[line_start:line_end]
        if kind == "paragraph" and text.find("\n", start, end) < 0:
            if UNDERLINE.match(line):
                yield "heading", start, line_end
                kind = ""
                continue
            kind = "term" if _EXPLAINS.match(line) else kind
        # a wrapped line belongs to the list item or explanation above it
        wrapped = line_kind == "paragraph" and (
            kind == "item" or (kind == "term" and line[:1] in " \t:")
        )
        if kind and (begins or (line_kind != kind and not wrapped)):
            yield kind, start, end
            kind = ""
        if line_kind == "blank":
            continue
        if not kind:
            kind, start = line_kind, line_start
        end = line_end
    if kind:
        yield kind, start, end


def _add_shown(text: str, boxes: Sequence[Box], blocks: Sequence[_Block]) -> Sequence[_Block]:
    """The blocks with those of code that components and shortcodes show, which are in no other."""
    spans = [span for box in boxes if box.is_code for span in _trim(text, box.start, box.end)]
    if not spans:
        return blocks
    kept = [it for it in blocks if not any(low <= it[1] < high for low, high in spans)]
    apart = [it for it in spans if not any(low < it[1] and it[0] < high for _, low, high in kept)]
    return sorted([*kept, *(("shown", *span) for span in apart)], key=itemgetter(1))


def _read_lines(text: str, boxes: Sequence[Box]) -> Iterator[tuple[str, bool, int, int]]:
    """(kind, whether it begins a block, start, end) of each line; lines that are not rendered, as
    comments, are blank.
    """
    fence = ""
    hidden = 0  # the end of a comment, script or tag
    in_doctest = False
    rows = _table_lines(text)
    known = _html_headings(text)
    known |= {edge: ("blank", False) for box in boxes for edge in box.edges}
    known |= {line: ("code", begins) for line, begins in _indented_code(text).items()}
    tags = _long_tags(text)
    labels = numbered_headings(text)
    data = {s for run in data_runs(text) for s, _ in line_spans(text, run.start, run.end)}
    above = ""  # the previous line
    for start, end in line_spans(text):
        line, before = text[start:end], above
        above = line
        if fence:
            yield "code", False, start, end
            fence = "" if closes(line, fence) else fence
            continue
        if start in data:
            yield "data", False, start, end
            continue
        if start >= hidden:
            hidden = _end_of_hidden(text, start, end, tags)
        if start < hidden:
            yield "blank", False, start, end
            continue
        if line.strip() and (in_doctest or (">>>" in line and _PROMPT.match(line))):
            yield "code", not in_doctest, start, end
            in_doctest = True
            continue
        in_doctest = False
        if _DEFINES.match(before) and _ADDRESS.match(line):
            yield "blank", False, start, end
            continue
        if start in known:
            yield *known[start], start, end
            continue
        marked = "```" in line or "~~~" in line
        if marked and (found := opens_fence(line, before)):
            fence = found[1]
        kind = "code" if fence else "table" if start in rows else ""
        kind = kind or ("label" if start in labels else _kind(line))
        begins = bool(fence) or kind in ("heading", "item", "label") or line.startswith(_INDENTED)
        yield kind, begins, start, end


def _end_of_hidden(text: str, start: int, end: int, tags: Mapping[int, int]) -> int:
    """The end of the comment, script or multi-line tag that begins on the line; `start` without
    one.
    """
    line = text[start:end]
    if ("<" in line or "{/*" in line) and (opened := _HIDDEN.match(line)):
        closing = re.compile(_HIDDEN_END[opened[1].lower()], re.IGNORECASE).search(text, start)
        return closing.start() + 1 if closing else len(text)
    if start in tags:
        return tags[start]
    if line.startswith(("import", "export")) and _SCRIPT_BEGINS.match(line):
        return _paragraph_end(text, end)
    return start


def _html_headings(text: str) -> dict[int, tuple[str, bool]]:
    """The starts of the lines of headings of HTML, each with its kind, blank without words, and
    whether it is the first of its heading.
    """
    found: dict[int, tuple[str, bool]] = {}
    for match, words in html_headings(text):
        kind = "heading" if words else "blank"
        lines = line_spans(text, *match.span())
        found |= {start: (kind, start == match.start()) for start, _ in lines}
    return found


def _long_tags(text: str) -> dict[int, int]:
    """The start of each line that begins a tag with attributes on the next lines of its paragraph,
    with the end of the tag.
    """
    found: dict[int, int] = {}
    opened: list[int] = []
    for start, end in line_spans(text) if "<" in text else ():
        if opened and _TAG_END.search(text, start, end):
            found |= dict.fromkeys(opened, end)
            opened = []
        line = text[start:end]
        if "<" in line and _TAG_BEGINS.match(line):
            opened.append(start)
        elif opened and not line.strip():
            opened = []
    return found


def _paragraph_end(text: str, start: int) -> int:
    """The start of the next blank line."""
    found = _EMPTY_LINE.search(text, start)
    return found.start() if found else len(text)


def _indented_code(text: str) -> dict[int, bool]:
    """The starts of the lines of indented code blocks, each with whether it is the first of its
    block. Indented text in a list or a box is no code.
    """
    found: dict[int, bool] = {}
    if "\n    " not in text and "\n\t" not in text:
        return found
    least = 0  # the indentation of the block, 0 outside
    above = fence = ""  # the last line that is not blank; the mark of an open fence
    blanks: list[int] = []
    for start, end in line_spans(text):
        line = text[start:end].expandtabs(4)
        if not line.strip():
            blanks.append(start)
            continue
        indent = len(line) - len(line.lstrip())
        if fence:
            fence = "" if closes(line, fence) else fence
        elif least and indent >= least:
            found |= dict.fromkeys(blanks, False) | {start: False}
            blanks = []
            continue
        elif opened := opens_fence(line, "" if blanks else above):
            fence = opened[1]
        elif (
            _is_code_below(above, line, indent) and (blanks or HEADING.match(above))
            if above
            else _OPTION.match(line)  # the chunk begins within a block
        ):
            found[start], least, blanks = True, indent or 4, []
            continue
        least, above, blanks = 0, line, []
    return found


def _is_code_below(above: str, line: str, indent: int) -> bool:
    """True for an indented line that can begin a code block below the line `above`."""
    return (
        indent >= 4
        and not above[0].isspace()
        and not ITEM.match(line)
        and not above.startswith((":", "[^"))
        and _kind(above) in ("paragraph", "heading")
        and not _PROSE_LINE.match(line)
    )


def _table_lines(text: str) -> set[int]:
    """The starts of the lines of tables, whose rows need not begin with a bar."""
    runs = [run for run in structure(text) if run.kind == "row"] if "|" in text else []
    return {start for run in runs for start, _ in line_spans(text, run.start, run.end)}


def _kind(line: str) -> str:
    first = line.lstrip()[:1]
    if first.isalnum() and first not in "ie":  # most lines; i and e: import and export in MDX
        return "item" if ITEM.match(line) else "paragraph"
    if not first or any(mark.match(line) for mark in _NO_TEXT):
        return "blank"
    if HEADING.match(line):
        return "heading"
    if line.lstrip().startswith("|") or ("|" in line and DELIMITER.match(line)):
        return "table"
    return "item" if ITEM.match(line) else "paragraph"


def _rows(text: str, start: int, end: int, context: str) -> Iterator[Unit]:
    """One unit for each body row; the row before the separator, if there is one, is the header."""
    lines = [(s, e) for s, e in line_spans(text, start, end) if text[s:e].strip()]
    separator = next((i for i, (s, e) in enumerate(lines) if DELIMITER.match(text[s:e])), -1)
    header = lines[separator - 1] if separator > 0 else None
    names = " ".join(cells(text[header[0] : header[1]])) if header else ""
    for i, (s, e) in enumerate(lines):
        if i != separator and (s, e) != header:
            yield from (
                Unit("row", *span, f"{context} {names}".strip(), header)
                for span in _trim(text, s, e)
            )


def _code(text: str, start: int, end: int, context: str) -> Iterator[Unit]:
    """One unit for a code block; several for a long one, split at blank lines where possible, and
    for a list of command options, split at each option. None for one that only includes files
    or describes a diagram.
    """
    lines = whole = list(line_spans(text, start, end))
    fence = None
    if mark := FENCE.match(text[slice(*lines[0])]):
        fence = lines[0]
        lines = lines[1 : -1 if closes(text[slice(*lines[-1])], mark[1]) else None]
        includes = all(INCLUDE.match(text[slice(*line)]) for line in lines)
        if includes or _DIAGRAM.match(text, fence[0] + mark.end()):
            return
    option = [_OPTION.match(text, *line) is not None for line in lines]
    listed = sum(option) >= _LEAST_OPTIONS
    if len(whole) <= MAX_CODE_LINES and not listed:
        yield Unit("code", start, end, context)
        return
    blank = [not text[s:e].strip() for s, e in lines]
    at = 0
    while at < len(lines):
        if blank[at]:
            at += 1
            continue
        cut = min(at + MAX_CODE_LINES, len(lines))
        if listed:  # the title of a group of options stays with the first of them
            ends = (i for i in range(at + 1, cut) if blank[i] or (option[i] and any(option[at:i])))
            cut = next(ends, cut)
        elif cut < len(lines):
            cut = next((i for i in range(cut, at, -1) if blank[i]), cut)
        piece = text[lines[at][0] : lines[cut - 1][1]].rstrip()
        if any(map(str.isalnum, piece)):
            yield Unit("code", lines[at][0], lines[at][0] + len(piece), context, fence=fence)
        at = cut


def _entries(text: str, start: int, end: int, context: str) -> Iterator[Unit]:
    """One unit of code for each object of an MDX component: its lines between brackets. None for
    the objects of a navigation.
    """
    first = last = count = 0
    for low, high in [*line_spans(text, start, end), (end, end)]:
        if low < end and _VALUE.match(text, low, high):
            first, last, count = (first if count else low), high, count + 1
            continue
        if count > 1 and not _TARGET.search(text, first, last):
            yield Unit("code", first, last, context)
        count = 0


def _opens_bold(text: str, start: int, stop: int) -> bool:
    """True where `text[start:stop]` ends with an opening mark of bold text, as in Chinese, where no
    space precedes it.
    """
    return (
        text.endswith("**", start, stop)
        and text[stop : stop + 1].strip() != ""
        and _ATOM.sub("", text[start : stop - 2]).count("**") % 2 == 0
    )


def _trim_emphasis(text: str, start: int, end: int, block: tuple[int, int]) -> tuple[int, int]:
    """The span of a sentence without an unpaired mark of bold or italic text at its start or end
    whose counterpart is in another sentence of the block.
    """
    sentence = text[start:end]
    bare = _ATOM.sub("", sentence) if "*" in sentence else ""
    bold = bare.count("**")
    for mark, count in (("**", bold), ("*", bare.count("*") - 2 * bold)):
        width = len(mark)
        if count % 2 and sentence.startswith(mark) and text.find(mark, end, block[1]) >= 0:
            return start + width, end
        if count % 2 and sentence.endswith(mark) and text.find(mark, block[0], start) >= 0:
            return start, end - width
    return start, end


def _trim(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The span without quote mark and surrounding blanks; nothing without a letter or digit."""
    if quote := _QUOTE.match(text, start, end):
        start = quote.end()
    span = text[start:end]
    start, end = end - len(span.lstrip()), start + len(span.rstrip())
    if any(map(str.isalnum, text[start:end])):
        yield start, end
