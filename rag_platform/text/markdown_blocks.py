"""Reads the structure of Markdown source by lines (fences, tables, headings and list items), and
writes its tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rag_platform.ir import Chunk
from rag_platform.text.scripts import HAN, HAN_DIGIT, HAN_NUMBER

FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)*(`{3,}(?=[^`]*$)|~{3,})")
# the rule below a table's header
DELIMITER = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
# a heading: marked, or as HTML on lines of its own without a blank one
HEADING = re.compile(
    r" {0,3}(?P<marks>#{1,6})[ \t]+(?P<words>[^\n]*)"
    r"|[ \t]*<[hH](?P<level>[1-6])\b[^<>]*>(?P<html>(?:(?!</?[hH](?P=level)\b|\n[ \t]*\n)[\s\S])*)"
    r"</[hH](?P=level)[ \t]*>[ \t]*(?=\n|\Z)"
)
_HTML_HEADING = re.compile(rf"^(?=[ \t]*<)(?:{HEADING.pattern})", re.MULTILINE)
LINK_TARGET = re.compile(r"\]\([^()\s]*\)")  # with the end of the words
_LINK_TAG = re.compile(r"<a\s", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_ALT = re.compile(r"<img\b[^<>]*?\salt=[\"']([^\"'<>]+)", re.IGNORECASE)
# an underline, which makes the line above it a heading
UNDERLINE = re.compile(r" {0,3}(?:-{3,}|={3,}|([~^\"`'*+])\1{3,})[ \t]*$")
# list markers; Chinese ones need no space after them (GB/T 9704: 一、（一）1.（1）)
MARK = rf"(?:[-*+•]|\d{{1,9}}[.．)、]|[(（]?{HAN_DIGIT}{{1,3}}[)）、]|[(（]\d{{1,2}}[)）]|[①-⑳])"
BULLET = (
    r"(?:[-*+•][ \t]+|\d{1,9}(?:[.．)][ \t\u3000]+|、[ \t\u3000]*)"
    rf"|[(（]?{HAN_DIGIT}{{1,3}}[)）、][ \t\u3000]*"
    rf"|(?:\d{{1,2}}[.．]|[(（]\d{{1,2}}[)）]|[①-⑳])[ \t\u3000]*(?=[《“{HAN}]))"
)
# words before questions and answers
ASKING, ANSWERING = "(?:问题?|問題?|提问|Q(?:uestion)?)", "(?:答案?|回答|解答|A(?:nswer)?)"
# the prefix of a question with an answer below, which may be bold
ASKS = rf"(?:\*\*)?{ASKING} ?\d{{0,3}}(?:\*\*)?[:：](?:\*\*)?"
_ANSWERS = rf"(?:\*\*)?{ANSWERING} ?\d{{0,3}}(?:\*\*)?[:：]"
# a line with a question, by its mark or that of the answer below it
QUESTION = rf"{ASKS}[^\n]*(?:[?？][ \t]*(?=\n|\Z)|(?=\n\s*+{_ANSWERS}))"
_ASKS = re.compile(ASKS)
_QUESTION = re.compile(rf"^[ \t]*{QUESTION}", re.MULTILINE)
# unmarked Chinese headings by their number, each group a level, and questions with answers
NUMBERED = re.compile(
    rf"(第{HAN_NUMBER}[编篇章])|(第{HAN_NUMBER}节)|({HAN_DIGIT}{{1,3}}、)"
    rf"|([(（]{HAN_DIGIT}{{1,3}}[)）]|{ASKS})"
)
MAX_NUMBERED_CHARS = 40  # of such a heading; chosen by hand
_NO_HEADING = tuple("。；;，,：:！!、|")
# possessive quantifiers prevent backtracking; a span in an item continues on an indented line
CODE_SPAN = (
    r"(?<!`)(?:`(?:[^`\n]|\n(?!\s*(?:\n|[-*+>#|`]|\d+[.)]\s)))++`|``(?:[^`\n]|`(?!`))++``)(?!`)"
)
CODE_SPANS = re.compile(CODE_SPAN)
ITEM = re.compile(rf"\s*{BULLET}(?=\S)")
# lines of objects that a component of MDX is given: the start of the component and of an attribute,
# brackets, keys with their values, wrapped values
_DATA_BEGINS = re.compile(r"[ \t]*<[A-Z][\w.]*$|[ \t]*(?:<[A-Z][\w.]* )?[\w$]+=\{\[?[{(]*$")
_DATA_LINE = re.compile(
    r"[ \t]*/?>$|[ \t]+(?:(?P<bracket>[{}\[\]()]+,?)"
    r"|(?P<key>[\w$'\"-]+\??:)(?:.*[,\[{(])?|['\"`].*)$"
)
_DATA_ENDS = re.compile(r"[ \t]*[\])}]*/?>$")
DATA_ENTRY = re.compile(r"[ \t]+\{$", re.MULTILINE)
_BOX_LABELS = frozenset(
    (
        "note tip hint warning caution important attention danger"
        " 注 注意 注记 注記 提示 小提示 小贴士 技巧 警告 小心 重要 危险 危險 备注 備註"
        " ヒント ティップ 重要事項 참고 주의 경고 팁"
        " hinweis warnung achtung tipp anmerkung wichtig"
        " remarque astuce avertissement attention nota aviso advertencia consejo sugerencia"
        " importante suggerimento avvertimento attenzione cuidado dica"
        " примечание замечание внимание предупреждение подсказка важно"
        " uwaga wskazówka ostrzeżenie"
    ).split()
)


@dataclass(frozen=True, slots=True)
class Guarded:
    """A run of lines that should not be split."""

    start: int
    end: int
    kind: str  # fence | row | data


def structure(text: str) -> list[Guarded]:
    """Fences (one run each) and table rows (one run each; the header and its rule belong to the
    first row), in order.
    """
    rows = _TableRows()
    found = rows.found
    fence: tuple[str, int] | None = None  # mark and start
    position = 0
    body = ""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    for line in lines:
        start, position = position, position + len(line)
        above, body = body, line.rstrip("\n")
        if fence is None:
            if opening := opens_fence(body, above):
                rows.close(start)  # ends a table without rows
                fence = opening.group(1), start
            else:
                rows.read(start, position, body)
        elif closes(body, fence[0]):
            found.append(Guarded(fence[1], position, "fence"))
            fence = None
    if fence is not None:
        found.append(Guarded(fence[1], len(text), "fence"))
    rows.close(len(text))
    return found


def data_runs(text: str) -> list[Guarded]:
    """The objects that components of MDX are given, as in `<Table rows={[`, with the lines of the
    component; a text may begin or end within them.
    """
    found: list[Guarded] = []
    fence, above, start = "", "", 0
    seen = {""}  # the groups of the lines of the run; empty outside
    is_open = False  # until the component ends, its lines may have any form
    lines = list(line_spans(text)) if "{" in text or "}" in text else []
    for low, high in [*lines, (len(text), len(text))]:
        line, before = text[low:high], above
        above = line
        if fence:
            fence = "" if closes(line, fence) else fence
            continue
        begins = _DATA_BEGINS.match(line)
        indented = line if low else f" {line}"  # the first line of a chunk is stripped
        matched = _DATA_LINE.match(indented) or (begins if seen == {""} else None)
        if seen and (matched or (is_open and line.strip())):
            seen.add(matched.lastgroup or "" if matched else "")
            is_open = bool(is_open or begins) and not _DATA_ENDS.match(line)
            continue
        if seen >= {"bracket", "key"}:
            found.append(Guarded(start, low, "data"))
        start, seen, is_open = low, {""} if begins else set(), bool(begins)
        if opened := opens_fence(line, before):
            fence = opened[1]
    return found


class _TableRows:
    """Finds the rows of tables line by line."""

    def __init__(self) -> None:
        self.found: list[Guarded] = []
        self._inside = False
        self._head: int | None = None  # start of a header whose first row is yet to come
        self._previous = 0, ""

    def read(self, start: int, end: int, body: str) -> None:
        """Read the next line."""
        above, header = self._previous
        if self._inside and ("|" not in body or HEADING.match(body)):
            self.close(start)
        elif self._inside:
            self.found.append(Guarded(start if self._head is None else self._head, end, "row"))
            self._head = None
        elif "-" in body and "|" in header and "|" in body and DELIMITER.match(body):
            self._inside, self._head = True, above
        self._previous = start, body

    def close(self, end: int) -> None:
        """End the table, if there is one."""
        if self._head is not None:
            self.found.append(Guarded(self._head, end, "row"))
        self._inside, self._head, self._previous = False, None, (end, "")


def line_spans(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """The spans of the lines of text[start:end], without their line feeds."""
    end = len(text) if end is None else end
    while start < end:
        stop = text.find("\n", start, end)
        stop = end if stop < 0 else stop
        yield start, stop
        start = stop + 1


def only_headings(text: str, start: int, end: int) -> bool:
    """True when the span has headings and otherwise only white space."""
    lines = [line for line in text[start:end].split("\n") if line.strip()]
    return bool(lines) and all(map(HEADING.match, lines))


def numbered_headings(text: str) -> set[int]:
    """The starts of lines that are headings by their number alone: short lines that end no
    sentence, with other lines between them.
    """
    asked = {it.start() for it in _QUESTION.finditer(text)}
    lines, start = [], 0
    for line in text.split("\n"):
        if stripped := line.strip():
            lines.append((start, stripped))
        start += len(line) + 1
    found = [NUMBERED.match(line) for _, line in lines]
    marks = [
        mark.lastindex if mark and (start in asked or not _ASKS.match(line)) else 0
        for mark, (start, line) in zip(found, lines, strict=True)
    ]
    return {
        start
        for (start, line), before, mark, after in zip(
            lines, [0, *marks], marks, marks[1:], strict=False
        )
        if mark
        and mark not in (before, after)
        and (start in asked or (len(line) <= MAX_NUMBERED_CHARS and line[-1] not in _NO_HEADING))
    }


def heading_level(heading: re.Match[str]) -> int:
    """The level of a match of HEADING."""
    return len(heading["marks"] or "") or int(heading["level"])


def heading_text(block: str) -> str:
    """The words of a heading, without the tags of HTML; the first line of any other block."""
    match = HEADING.match(block)
    if match is None:
        return block.partition("\n")[0]
    if match["html"] is not None:
        words = " ".join(_TAG.sub("", match["html"]).split())
        return words or " ".join(_ALT.findall(match["html"]))
    words = match["words"].rstrip()
    bare = words.rstrip("#")
    return bare.rstrip() if not bare or bare[-1].isspace() else words


def html_headings(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """The match of HEADING for each heading of HTML, with its words; "" for a row of links, or of
    pictures without a description.
    """
    for match in _HTML_HEADING.finditer(text) if "</h" in text.lower() else ():
        words = heading_text(match[0]) if len(_LINK_TAG.findall(match[0])) < 2 else ""
        yield match, words if any(map(str.isalnum, words)) else ""


def open_fence(text: str) -> str:
    """The mark of the code fence that a text leaves open, empty without one."""
    mark = above = ""
    for line in text.splitlines():
        if mark:
            if closes(line, mark):
                mark = ""
        elif found := opens_fence(line, above):
            mark = found[1]
        above = line
    return mark


def cells(row: str) -> list[str]:
    """The cells of a table row."""
    inner = row.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", inner)]


def code_spans(text: str) -> list[tuple[int, int]]:
    """The disjoint spans of fences and inline code, in order."""
    fences = [(run.start, run.end) for run in structure(text) if run.kind == "fence"]
    found: list[tuple[int, int]] = []
    start = 0
    for low, high in [*fences, (len(text), len(text))]:
        found += [match.span() for match in CODE_SPANS.finditer(text, start, low)]
        found += [(low, high)] if high > low else []
        start = high
    return found


def fence_body(block: str) -> str:
    """The lines of a code block between its opening and closing lines."""
    lines = block.split("\n")
    if opened := FENCE.match(lines[0]):
        lines = lines[1 : -1 if len(lines) > 1 and closes(lines[-1], opened[1]) else None]
    return "\n".join(lines)


def opens_fence(line: str, above: str) -> re.Match[str] | None:
    """The match of FENCE in a line that opens a fence; None for tildes or backticks that underline
    a heading, as in reStructuredText.
    """
    found = FENCE.match(line)
    if found is None or UNDERLINE.match(line) is None:
        return found
    return None if len(line.rstrip()) >= len(above.rstrip()) > 3 else found


def closes(line: str, mark: str) -> bool:
    """True for a line that closes a fence opened by `mark`."""
    bare = line.strip(" \t\r>")
    return bare.startswith(mark) and not bare.strip(mark[0])


def is_box_label(text: str) -> bool:
    """True for the label of a box in a book or manual, which looks like a heading but begins no
    section.

    >>> is_box_label("Note:"), is_box_label("注意"), is_box_label("Notes on hardware")
    (True, True, False)
    """
    return text.strip().rstrip(":：!！").rstrip().lower() in _BOX_LABELS


def escape_cell(cell: str) -> str:
    """A cell's text with its pipes escaped."""
    return cell.replace("|", "\\|")


def format_row(texts: Sequence[str]) -> str:
    """One row; the texts of its cells must not have line breaks."""
    return "| " + " | ".join(map(escape_cell, texts)) + " |"


def format_rule(columns: int) -> str:
    """The separator line below the header."""
    return "|" + " --- |" * columns


def format_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table of a report; None is an empty cell."""
    texts = (["" if cell is None else str(cell) for cell in row] for row in rows)
    return [format_row(head), f"|{'---|' * len(head)}", *map(format_row, texts)]


def parse_row(line: str) -> list[str]:
    """The cells of a row written by `format_row`."""
    return [cell.replace("\\|", "|") for cell in cells(line)]


def table_heads(chunks: Iterable[Chunk]) -> dict[str, str]:
    """Chunk id to the header row of the table within which the chunk begins."""
    found: dict[str, str] = {}
    head = section_id = ""
    for chunk in chunks:
        lines = chunk.chunk_text.split("\n")
        begins = "|" in lines[0] and not any(map(DELIMITER.fullmatch, lines[:2]))
        head = head if begins and chunk.section_id == section_id else ""
        if head:
            found[chunk.chunk_id] = head
        head, section_id = _open_head(lines, head), chunk.section_id
    return found


def _open_head(lines: Sequence[str], before: str) -> str:
    """The header row of the table in which the lines end, empty without one; `before` if all lines
    are rows.
    """
    for index in range(len(lines) - 1, -1, -1):
        if "|" not in lines[index]:
            return ""
        if index and DELIMITER.fullmatch(lines[index]):
            return lines[index - 1]
    return before
