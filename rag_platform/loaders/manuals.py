"""Manual pages as `man` prints them: the blocks of a text, and the edits that make it Markdown.

The facts keep the file unchanged, so that a citation leads to its bytes; sections, chunks and
quotes use the Markdown. There sections are headings, an option stands in bold above its
description, and paragraphs lack the spaces and line ends that fill the width of the page.
"""

from __future__ import annotations

import re
from dataclasses import replace

from rag_platform.ir import Block, Edit
from rag_platform.loaders.parts import ticks_around
from rag_platform.loaders.restructured import REWRITTEN, Line, pad_wide, read_lines
from rag_platform.text.scripts import HAN

MANUAL = "manual_page"  # parse profile of the facts
# the first line: `LS(1)   User Commands   LS(1)`
_TITLE = re.compile(
    r"\s*(?P<name>[^\s()]{1,100}\(\w{1,8}\)(?:\(\w+\))?)(?P<rest>.*(?P=name))[ \t]*\r?$",
    re.MULTILINE,
)
_GAP = re.compile(r" {2,}|(?<=^-.{5}) (?=\S)")  # also one space after a name that just fits
_SPACES = re.compile(" {2,}")
_BULLET = re.compile(r"[-*+•·o]|\(?\w{1,2}[.)]")
_NUMBER = re.compile(r"\d{1,2}[.)]")
# ends a sentence, an introduction or a line of code, but no name
_NO_NAME = re.compile(r"[.。,，:：;；!！?？{(\\]$")
_SOFT_HYPHEN = "\u2010"  # divides a word at the end of a line
_WIDE = re.compile(rf"[{HAN}\u3001-\u303f\uff01-\uff65]")
_SUBSECTION = 3  # the indentation of its heading
_LONGEST_NAME = 60  # columns of a name above its description
_HANGS = (7, 8)  # columns from a short name to a description of one line


def is_manual(text: str) -> bool:
    """True for a text that begins with the title line of a manual page."""
    return _TITLE.match(text) is not None


def manual_blocks(text: str) -> list[Block]:
    """The headings, code and paragraphs of a manual page, without byte offsets."""
    return _Reader(text).blocks


def manual_edits(text: str) -> list[Edit]:
    """The edits that turn a manual page into Markdown, in order and without overlap."""
    return _Reader(text).edits


class _Reader:
    """Reads a page line by line. Descriptions that are open are kept with their column and the
    indentation of their Markdown.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.blocks: list[Block] = []
        self.edits: list[Edit] = []
        self._open: list[tuple[int, int]] = []
        self._rule = ""  # separates the last entry from the text below
        self._names = 0, 0  # the lines of names that were read last
        self._entries = 0  # the column of the names in a section, 0 before the first
        title = _TITLE.match(text)
        self._width = len(pad_wide(title[0].strip())) if title else 0
        # an end is that of the words
        self._lines = [replace(it, end=it.begin + len(it.text)) for it in read_lines(text)]
        at = 0
        while at < len(self._lines):
            line = self._lines[at]
            if not line.text:
                at += 1
            elif title and not self.blocks:
                self._head(line, 1, title["name"])
                self._edit(title.start("rest"), title.end("rest"), "")
                at += 1
            elif line.column in (0, _SUBSECTION) and self._column(at + 1) > line.column:
                self._open, self._entries = [], 0
                self._head(line, 3 if line.column else 2, " ".join(line.text.split()))
                self._squeeze(line)
                at += 1
            else:
                at = self._read_body(at)

    def _column(self, at: int) -> int:
        """The column of the text of a line, -1 for a blank one."""
        return self._lines[at].column if at < len(self._lines) and self._lines[at].text else -1

    def _head(self, line: Line, level: int, name: str) -> None:
        self._edit(line.start, line.begin, "#" * level + " ")
        self._add("heading", line.start, line.end, level, name)

    def _read_body(self, at: int) -> int:
        """Read the name of an entry, or a paragraph, from line `at`; returns the next line."""
        line = self._lines[at]
        is_open = bool(self._open)
        while self._open and line.column < self._open[-1][0]:
            self._open.pop()
        out = self._open[-1][1] if self._open else 0
        below = self._find_description(at)
        self._rule = "---\n\n" if is_open and not self._open and not below else ""
        if below:
            return self._open_entry(at, below, out)
        end = at + 1
        while self._column(end) >= line.column and (
            self._wraps(end) or not self._find_description(end)
        ):
            end += 1
        filled = sum(map(self._wraps, range(at + 1, end)))
        if 2 * filled < end - at - 1:
            self._write_code(at, end, out)
            return end
        end = next((n for n in range(at, end) if self._column(n) != line.column), end)
        self._write_prose(at, end, out)
        return end

    def _find_description(self, at: int) -> Line | None:
        """The first line of the description whose name begins line `at`: the line below, if that is
        indented more, or the rest of the line.
        """
        line, below = self._lines[at], self._column(at + 1)
        end = column = 0
        for gap in _GAP.finditer(line.text):
            column += len(pad_wide(line.text[end : gap.end()]))
            end = gap.end()
            shown = below == line.column + column and (gap[0] != " " or self._is_full(at))
            # the gaps of a line that fills the width are no columns
            alone = below <= line.column and column in _HANGS and not self._wraps(at + 1)
            if not shown and not alone:
                continue
            name = line.text[: gap.start()]
            if _BULLET.fullmatch(name) or not _NO_NAME.search(name):
                begin = line.begin + gap.end()
                text = line.text[gap.end() :]
                return Line(begin, begin, line.end, line.column + column, text)
        # the names of one option may be in several lines
        further = self._find_end_of_names(at) if line.text[0] == "-" else at + 1
        is_name = not _NO_NAME.search(line.text) and len(pad_wide(line.text)) <= _LONGEST_NAME
        return self._lines[further] if is_name and self._column(further) > line.column else None

    def _find_end_of_names(self, at: int) -> int:
        """The line after those that begin with a dash below line `at`, in the same column."""
        begin, end = self._names
        if not begin <= at < end:
            end = at + 1
            while self._column(end) == self._lines[at].column and self._lines[end].text[0] == "-":
                end += 1
            self._names = at, end
        return end

    def _open_entry(self, at: int, below: Line, out: int) -> int:
        """Write the name of an entry, in bold or as a list item inside of another; returns the line
        of its description.
        """
        line = self._lines[at]
        name_end = line.begin + len(self.text[line.begin : below.begin].rstrip())
        name = self.text[line.begin : name_end]
        self._entries = self._entries or line.column
        bullet = _BULLET.fullmatch(name)
        if bullet:
            mark = name if _NUMBER.fullmatch(name) else "-" if len(name) == 1 else f"- {name}"
            self._edit(line.start, below.begin, f"{self._gap(line, out)}{mark} ")
        elif line.column > self._entries:
            self._edit(line.start, line.begin, f"{self._gap(line, out)}- ")
            self._edit(name_end, below.begin, ": ")
        else:
            # an option is code, so that it is searched for with its dashes
            code = "`" if name[0] == "-" and "`" not in name else ""
            self._edit(line.start, line.begin, f"{self._gap(line, out)}**{code}")
            for found in re.finditer(r"\s*[\r\n]\s*", name):
                self._edit(line.begin + found.start(), line.begin + found.end(), ", ")
            self._edit(name_end, below.begin, f"{code}**\n\n")
        self._add("paragraph", line.start, name_end)
        nested = bullet or line.column > self._entries
        self._open.append((below.column, out + 2 if nested else out))
        while self._lines[at].end < below.begin:
            at += 1
        self._lines[at] = replace(below, start=below.begin)
        self._names = 0, 0
        return at

    def _gap(self, line: Line, out: int) -> str:
        """What separates a block from the line above it: its indentation, after an empty line."""
        if self.text[line.start - 1 : line.start] not in ("\n", "\r"):
            return ""  # the line begins within a line of the file
        before = self.text[max(line.start - 4, 0) : line.start]
        tight = before[len(before.rstrip("\r\n")) :].count("\n") < 2
        return "\n" * tight + self._rule + " " * out

    def _wraps(self, at: int) -> bool:
        """True if line `at` continues the one above, because its first word did not fit there."""
        return self._column(at) == self._lines[at - 1].column and self._is_full(at - 1)

    def _is_full(self, at: int) -> bool:
        """True if the first word of the next line would not fit into line `at`."""
        line = self._lines[at]
        words = f"{line.text} {self._lines[at + 1].text.split()[0]}"
        full = line.column + len(pad_wide(words)) > self._width
        return full or line.text.endswith(_SOFT_HYPHEN)

    def _write_prose(self, at: int, end: int, out: int) -> None:
        first = self._lines[at]
        self._edit(first.start, first.begin, self._gap(first, out))
        self._squeeze(first)
        for number in range(at + 1, end):
            above, line = self._lines[number - 1], self._lines[number]
            hyphen = above.text.endswith(_SOFT_HYPHEN)
            wide = _WIDE.match(above.text[-1]) and _WIDE.match(line.text[0])
            space = "" if hyphen or wide else " "
            self._edit(above.end - hyphen, line.begin, space)
            self._squeeze(line)
        self._add("paragraph", first.start, self._lines[end - 1].end)

    def _squeeze(self, line: Line) -> None:
        """Leave one space where the line has several."""
        for gap in _SPACES.finditer(self.text, line.begin, line.end):
            self._edit(gap.start(), gap.end(), " ")

    def _write_code(self, at: int, end: int, out: int) -> None:
        first, last = self._lines[at], self._lines[end - 1]
        mark = ticks_around(self.text[first.start : last.end])
        pad = " " * out
        self._edit(first.start, first.begin, f"{self._gap(first, out)}{mark}\n{pad}")
        for line in self._lines[at + 1 : end]:
            self._edit(line.start, line.begin, pad + " " * (line.column - first.column))
        self._edit(last.end - 1, last.end, f"{self.text[last.end - 1]}\n{pad}{mark}")
        self._add("code", first.start, last.end)

    def _add(self, kind: str, start: int, end: int, level: int = 0, title: str = "") -> None:
        self.blocks.append(Block(len(self.blocks), kind, start, end, level, title=title))

    def _edit(self, start: int, end: int, replacement: str) -> None:
        if start == end and replacement:  # a place in the text needs a character of the file
            end += 1
            replacement += self.text[start:end]
        if self.text[start:end] != replacement:
            self.edits.append(Edit(start, end, replacement, REWRITTEN))
