"""Markdown as it stands in a text, read by lines: fences, tables, headings and list items; nothing
is rendered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)*(`{3,}(?=[^`]*$)|~{3,})")
# the rule below a table's header
DELIMITER = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+([^\n]*)")
BULLET = (
    r"(?:[-*+•][ \t]+|\d{1,9}(?:[.)][ \t]+|、[ \t]*)|[(（]?[一二三四五六七八九十]{1,3}[)）、]["
    r" \t]*)"
)
# possessive, so that no text makes it try again
CODE_SPAN = r"(?<!`)(?:`(?:[^`\n]|\n(?!\s))++`|``(?:[^`\n]|`(?!`))++``)(?!`)"
_CODE_SPAN = re.compile(CODE_SPAN)
ITEM = re.compile(rf"\s*{BULLET}(?=\S)")


@dataclass(frozen=True, slots=True)
class Guarded:
    """A run of lines that wants to stay whole."""

    start: int
    end: int
    kind: str  # fence | row


def structure(text: str) -> list[Guarded]:
    """Fences (one run each) and table rows (one run each; the header and its rule belong to the
    first row), in order.
    """
    found: list[Guarded] = []
    fence: tuple[str, int] | None = None
    head: int | None = None  # where the table's pending header starts
    in_table = False
    previous: tuple[int, str] = (0, "")
    position = 0
    for line in _lines(text):
        start, position = position, position + len(line)
        body = line.rstrip("\n")
        if fence is not None:
            if closes(body, fence[0]):
                found.append(Guarded(fence[1], position, "fence"))
                fence = None
            previous = (start, "")
            continue
        opening = FENCE.match(body)
        if opening:
            if head is not None:  # a table of a head alone ends here
                found.append(Guarded(head, start, "row"))
            fence, in_table, head = (opening.group(1), start), False, None
        elif in_table:
            if not body.strip(" \t>") or HEADING.match(body):
                in_table = False
                if head is not None:
                    found.append(Guarded(head, start, "row"))
                    head = None
            else:
                found.append(Guarded(start if head is None else head, position, "row"))
                head = None
        elif "-" in body and "|" in previous[1] and "|" in body and DELIMITER.match(body):
            in_table, head = True, previous[0]
        previous = (start, body)
    if fence is not None:
        found.append(Guarded(fence[1], len(text), "fence"))
    elif head is not None:
        found.append(Guarded(head, len(text), "row"))
    return found


def _lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines


def only_headings(text: str, start: int, end: int) -> bool:
    """True when the span holds headings and nothing else but white space."""
    lines = [line for line in text[start:end].split("\n") if line.strip()]
    return bool(lines) and all(map(HEADING.match, lines))


def heading_text(line: str) -> str:
    """The words of a heading; a line that is none as it is."""
    match = HEADING.match(line)
    if match is None:
        return line
    words = match[2].rstrip()
    bare = words.rstrip("#")
    return bare.rstrip() if not bare or bare[-1].isspace() else words


def open_fence(text: str) -> str:
    """The mark of the code fence that a text leaves open, empty when it leaves none."""
    mark = ""
    for line in text.splitlines():
        if mark:
            if closes(line, mark):
                mark = ""
        elif found := FENCE.match(line):
            mark = found[1]
    return mark


def cells(row: str) -> list[str]:
    """The cells of a table row."""
    inner = row.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", inner)]


def code_spans(text: str) -> list[tuple[int, int]]:
    """The spans of fences and of code within lines, in order and apart."""
    fences = [(run.start, run.end) for run in structure(text) if run.kind == "fence"]
    found: list[tuple[int, int]] = []
    start = 0
    for low, high in [*fences, (len(text), len(text))]:
        found += [match.span() for match in _CODE_SPAN.finditer(text, start, low)]
        found += [(low, high)] if high > low else []
        start = high
    return found


def closes(line: str, mark: str) -> bool:
    """True for a line that closes the fence which that mark opened."""
    bare = line.strip(" \t\r>")
    return bare.startswith(mark) and not bare.strip(mark[0])
