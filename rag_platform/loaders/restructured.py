"""reStructuredText: the blocks of a text, and the edits by which it reads as Markdown.

The facts stay the file, word for word, so that a citation leads to its bytes; sections, chunks and
quotes are made of the Markdown. docutils knows the lines of blocks only, and is five megabytes.
"""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

from rag_platform.ir import Block, Edit
from rag_platform.text.pipe_tables import format_row, format_rule

PROFILE = "restructuredtext"  # of the facts of such a text
REWRITTEN = "markup"  # the rule of edits that keep the words
_HIDDEN = "hidden_text: not_displayed"
# what no other text has: a directive, a target, a substitution, code behind two colons, or a link
_TELLS = re.compile(
    r"^\.\. (?:[\w:-]+::(?:\s|$)|_[^:\n]+:(?:\s|$)|\|[^|\n]+\| [\w-]+::)"
    r"|^[^\n]*::[ \t]*\r?\n[ \t]*\r?\n[ \t]+\S|`[^`\n<]+ <[a-z]+:[^`<>\s]+>`__?(?!\w)",
    re.MULTILINE,
)
_LINE = re.compile(r"([^\r\n]*)(?:\r\n?|\n|\Z)")
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*$")
_DIRECTIVE = re.compile(r"\.\.\s+(?:[\w.+-]+:)*(?P<name>[\w.+-]+) ?::(?:\s+(?P<said>.*))?$")
_SUBSTITUTES = re.compile(r"^\.\.[ ]+\|([^|\n]+)\|[ ]+replace::[ ]+(\S.*?)\s*$", re.MULTILINE)
_TARGETS = re.compile(r"^\.\.[ ]+_`?([^:`\n]+)`?:", re.MULTILINE)
_FIELD = re.compile(r":(?!\s)(?P<name>(?:\\.|[^:\\`])+)(?<!\s):(?:\s+|$)")
_ITEM = re.compile(r"(?P<mark>[-*+•]|\(?(?:\d{1,9}|#|[A-Za-z])[.)])(?:\s+|$)")
_CELL = re.compile(r"([*+-]\s+)?[*+-](?:\s+|$)")  # of a table that is a list
_FOOTNOTE = re.compile(r"\.\.\s+(?=\[[^\]\s]+\](?:\s|$))")
_GRID = re.compile(r"\+(?:[-=]+\+)+$")
_CORNER = re.compile(r"\+(?=[-=])|(?<=[-=])\+")
_SIMPLE = re.compile(r"=+(?:\s+=+)+$")
_CODE = frozenset(
    "code code-block sourcecode parsed-literal doctest testcode testoutput prompt ipython math"
    " console productionlist".split()
)
_NOT_SHOWN = frozenset(
    "toctree index autosummary raw meta graphviz mermaid uml testsetup testcleanup".split()
)
# boxes, whose words may stand behind their names, with what is said for a name
_BOXES = dict.fromkeys(
    "note warning tip important caution danger attention hint error seealso todo".split(), ""
) | {
    "versionadded": "Added in version ",
    "versionchanged": "Changed in version ",
    "deprecated": "Deprecated since version ",
    "versionremoved": "Removed in version ",
}
# what stands behind their names is not shown
_AROUND = frozenset(
    "figure epigraph pull-quote highlights compound container only ifconfig hlist glossary"
    " rst-class".split()
)
_TITLED = frozenset("rubric admonition topic sidebar tab tab-item dropdown details table".split())
_CODE_ROLES = frozenset(
    "class func meth mod attr data exc obj const file envvar option setting command program samp"
    " kbd code literal makevar macro type member signal confval".split()
)
_INLINE = re.compile(
    r"``(?:[^`]|`(?!``?(?:\W|$)))+``"
    r"|(?<![\w:]):(?P<role>[A-Za-z][\w:+.-]*):`(?P<said>[^`]+)`"
    r"|(?<![`\w])`(?P<name>[^`<]*[^`<\s])?(?:\s*<(?P<url>[^<>`]+)>)?`__?(?!\w)"
    r"|(?<![`\w])`[^`]+`"
    r"|[ ]?\[(?P<note>\d+|\#[\w.-]*|\*)\]_(?!\w)"
    r"|(?P<cited>\[[A-Za-z][\w.-]*\])_(?!\w)"
    r"|(?<![\w|])\|(?P<stands>[^\s|][^|\n]*?)\|_{0,2}(?![\w|])"
    r"|(?<![\w`.])(?P<word>[A-Za-z](?:[\w.-]*[A-Za-z0-9])?)__?(?![\w`])"
    r"|\\(?P<blank>\s)"
)
_AWAY = re.compile(r"(?:https?|ftp|mailto):", re.IGNORECASE)
_MAX_LEVEL = 6  # of a heading in Markdown
_MAX_DEPTH = 24  # of bodies in one another; what is deeper stays as it is


def is_restructured(text: str, suffix: str) -> bool:
    """True for reStructuredText, by its suffix, or by its marks in a text that says no other."""
    return suffix in (".rst", ".rest") or (
        suffix in (".txt", ".text", "") and _TELLS.search(text) is not None
    )


def restructured_blocks(text: str) -> list[Block]:
    """The headings, the code and the tables of a text, and what is between them, without bytes."""
    blocks: list[Block] = []
    at = 0
    for mark in [*_Reader(text).marks, Block(0, "", len(text), len(text))]:
        between = text[at : mark.start]
        if between.strip():
            start = mark.start - len(between.lstrip())
            blocks.append(Block(len(blocks), "paragraph", start, at + len(between.rstrip())))
        if mark.kind:
            blocks.append(replace(mark, ordinal=len(blocks)))
        at = mark.end
    return blocks


def markdown_edits(text: str) -> list[Edit]:
    """The edits that make Markdown of reStructuredText, in order and apart."""
    kept: list[Edit] = []
    for edit in sorted(
        _Reader(text).edits, key=lambda edit: (edit.start, edit.end > edit.start, -edit.end)
    ):
        if not kept or edit.start >= kept[-1].end:
            kept.append(edit)
    return kept


@dataclass(frozen=True, slots=True)
class _Line:
    """text[start:end], whose words are `said` from `begin` on, in a column that counts tabs."""

    start: int
    begin: int
    end: int
    column: int
    said: str


_Row = tuple[int, int, list[str]]  # first line, last line, cells


class _Reader:
    """Reads a text line by line, each body with its indentation, and notes what to change."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.edits: list[Edit] = []
        self.marks: list[Block] = []
        self._styles: list[str] = []  # of titles, the outermost first
        self._level = self._depth = 0
        self._stands = dict(_SUBSTITUTES.findall(text))
        self._targets = {name.lower() for name in _TARGETS.findall(text)}
        self._lines: list[_Line] = []
        for match in _LINE.finditer(text):
            line = match[1].rstrip()
            blanks = len(line) - len(line.lstrip())
            column = len(line[:blanks].expandtabs(8))
            begin = match.start() + blanks
            self._lines.append(_Line(match.start(), begin, match.end(1), column, line[blanks:]))
        self._ends: list[int] = []  # of the paragraphs that lines stand in
        for number in reversed(range(len(self._lines))):
            within = self._lines[number].said and self._ends
            self._ends.append(self._ends[-1] if within else number + bool(self._lines[number].said))
        self._ends.reverse()
        self._read_body(0, len(self._lines), 0)

    # --- blocks

    def _read_body(self, at: int, last: int, out: int) -> None:
        """Read lines [at, last), whose text is to begin in the column `out`."""
        column = min((line.column for line in self._lines[at:last] if line.said), default=0)
        self._depth += 1
        while at < last and self._depth < _MAX_DEPTH:
            quoted = self._end_of_body(at, last, column + 1)
            if not self._lines[at].said:
                at += 1
            elif quoted > at:
                self._read_body(at, quoted, out)
                at = quoted
            else:
                at = self._read_block(at, last, out)
        self._depth -= 1

    def _read_block(self, at: int, last: int, out: int) -> int:
        """Read a block, and give the line behind it."""
        line = self._lines[at]
        end = min(self._ends[at], last)
        if titled := self._read_title(at, end):
            return titled
        if line.said.split()[0] in ("..", "__"):
            return self._read_explicit(at, end, last, out)
        if _SIMPLE.match(line.said):
            return self._read_simple(at, last, out)
        if _GRID.match(line.said):
            self._read_grid(at, end, out)
        elif line.said.startswith(">>>"):
            self._fence(line.start, at, end, "pycon", out)
        elif line.said.startswith("| "):  # lines that stay lines
            for it in self._lines[at:end]:
                self._edit(it.start, it.end - len(it.said.lstrip("| ")), " " * out)
            self._read_inline(at, end, out)
        elif end == at + 1 and len(line.said) >= 4 and _ADORNMENT.match(line.said):
            self._edit(line.start, line.end, "")
        else:
            return self._read_text(at, end, last, out)
        return end

    def _read_text(self, at: int, end: int, last: int, out: int) -> int:
        """Read an item, a field, a term with what explains it, or a paragraph."""
        line = self._lines[at]
        body = max(at + 1, self._end_of_body(at + 1, last, line.column + 1))
        goes_on = end > at + 1 and body == at + 1  # in the same column
        item, named = _ITEM.match(line.said), _FIELD.match(line.said)
        if item and not (goes_on and _ITEM.match(self._lines[at + 1].said) is None):
            mark = item["mark"].replace("#", "1") + " "
            column = line.column + item.end()
            self._open(at, body, line.begin + item.end(), mark, out, len(mark), column)
        elif named and at == 0 and self._depth == 1 and named.end() == len(line.said):
            self._edit(line.start, line.end, "", _HIDDEN)  # `:orphan:`
        elif named:
            mark = "- " + named["name"].replace("\\", "") + ": "
            self._open(at, body, line.begin + named.end(), mark, out, 2)
        elif end > at + 1 and not goes_on and not line.said.endswith("::"):  # a term
            below = self._lines[at + 1]
            self._read_inline(at, at + 1, out)
            self._edit(line.begin, line.begin, "- ")
            colon = ":" if line.said[-1].isalnum() or line.said[-1] in "`*)" else ""
            self._edit(line.begin + len(line.said), below.begin, f"{colon}\n{' ' * (out + 2)}")
            self._lines[at + 1] = replace(below, start=below.begin)
            self._read_body(at + 1, body, out + 2)
        else:
            return self._read_paragraph(at, end if goes_on else min(end, at + 1), last, out)
        return body

    def _open(
        self, at: int, end: int, begin: int, mark: str, out: int, hang: int = 0, own: int = 99
    ) -> None:
        """Put a mark before a line that begins a body, in place of what stands up to `begin`."""
        line = self._lines[at]
        said = self.text[begin : line.end].rstrip()
        self._edit(line.start, begin, " " * out + (mark if said else mark.rstrip()))
        column = min([own, *(it.column for it in self._lines[at + 1 : end] if it.said)])
        self._lines[at] = _Line(begin, begin, line.end, column, said)
        self._read_body(at, end, out + hang)

    def _read_paragraph(self, at: int, end: int, last: int, out: int) -> int:
        """Read a paragraph with the code that it introduces by two colons."""
        ending = self._lines[end - 1]
        code = next((n for n in range(end, last) if self._lines[n].said), last)
        stop = self._end_of_body(code, last, self._lines[at].column + 1)
        self._read_inline(at, end, out)
        if stop == code:  # nothing is indented below it
            return end
        if end == at + 1 and re.fullmatch("``[^`]+``", ending.said):
            self._edit(ending.start, ending.end, f"{' ' * out}**{ending.said}**")
        if not ending.said.endswith("::"):
            return end
        bare = ending.said[:-2].rstrip()
        colon = ":" if ending.said[-3:-2].strip() else ""
        self._edit(ending.begin + len(bare), ending.begin + len(ending.said), colon)
        self._fence(self._lines[code].start, code, stop, "", out)
        return stop

    def _read_title(self, at: int, last: int) -> int:
        """Read a title, and give the line behind it; 0 where there is none."""
        over = _ADORNMENT.match(self._lines[at].said)
        under = at + 1 + bool(over)
        if under >= last:
            return 0
        title, rule = self._lines[under - 1], self._lines[under]
        long = len(rule.said) >= min(4, len(_widen(title.said)))
        same = over is None or (rule.said[0] == over[1] and len(over[0]) == len(rule.said))
        if not (_ADORNMENT.match(rule.said) and long and same) or (
            title.column != rule.column and not over
        ):
            return 0
        style = rule.said[0] * (1 + bool(over))
        if style not in self._styles:
            self._styles.append(style)
        self._level = min(self._styles.index(style) + 1, _MAX_LEVEL)
        words = _INLINE.sub(self._say, title.said)
        self._edit(self._lines[at].start, title.end, f"{'#' * self._level} {words}")
        self._edit(rule.start, rule.end, "")
        name = re.sub(r"[`*]", "", words)
        start = self._lines[at].start
        self.marks.append(Block(0, "heading", start, rule.end, level=self._level, title=name))
        return under + 1

    def _read_explicit(self, at: int, end: int, last: int, out: int) -> int:
        """Read what begins with two dots: a directive, a footnote, a target or a comment."""
        line = self._lines[at]
        body = max(at + 1, self._end_of_body(at + 1, last, line.column + 1))
        if line.said == ".." and end == at + 1:  # it has no body
            self._hide(at, end)
            return end
        if note := _FOOTNOTE.match(line.said):
            self._open(at, body, line.begin + note.end(), "", out)
        elif (found := _DIRECTIVE.match(line.said)) is None:
            aims = line.said.startswith((".. _", ".. |", "__ "))
            self._hide(at, body, _HIDDEN if aims else "hidden_text: comment")
        elif (name := found["name"].lower()) in _BOXES:
            said = found["said"] or ""
            version = said.split()[0] if _BOXES[name] and said else ""
            rest = said[len(version) :].lstrip()
            mark = f"{_BOXES[name]}{version}" + (": " if rest or body > at + 1 else ".")
            begin = line.begin + len(line.said) - len(rest)
            self._open(at, body, begin, mark if version else "", out)
        else:
            self._read_directive(at, body, name, found["said"] or "", out)
        return body

    def _read_directive(self, at: int, end: int, name: str, said: str, out: int) -> None:
        line, told = self._lines[at], at + 1
        while told < end and (begun := self._lines[told].said) and (said or begun[0] == ":"):
            told += 1  # its options, and the lines of its signatures
        body = next((n for n in range(told, end) if self._lines[n].said), end)
        if name in _NOT_SHOWN or (body == end and name != "rubric"):
            self._hide(at, end)
        elif name in _CODE:
            self._fence(line.start, body, end, said.split()[0] if said else "", out)
        elif name == "list-table":
            self._read_list(self._read_caption(at, said, out), body, end, out)
        elif name == "csv-table":
            self._read_csv(self._read_caption(at, said, out), body, end, out)
        else:
            label = ""
            if name in _TITLED or "`" in said:
                label = self._bold(said) if said else ""
            elif said and name not in _AROUND:
                label = f"{'#' * min(self._level + 1, _MAX_LEVEL)} `{said}`"
            self._edit(line.start, self._lines[told - 1].end, " " * out + label)
            self._read_body(body, end, out)

    # --- tables

    def _read_caption(self, at: int, said: str, out: int) -> int:
        """Read what a table is called, and give the line where it begins."""
        if not said:
            return at
        label = f"{' ' * out}{self._bold(said)}\n"
        self._edit(self._lines[at].start, self._lines[at].end, label)
        return at + 1

    def _bold(self, said: str) -> str:
        return f"**{_INLINE.sub(self._say, said)}**"

    def _read_list(self, at: int, first: int, end: int, out: int) -> None:
        rows: list[_Row] = []
        for number in range(first, end):
            line = self._lines[number]
            inner = line.column > self._lines[first].column + 3  # a list in a cell
            cell = None if inner else _CELL.match(line.said)
            if cell and cell[1]:
                rows.append((number, number, []))
            if rows and (cell or rows[-1][2]):
                more = [""] * (len(rows[-1][2]) - (cell is None))
                _grow(rows, number, [*more, line.said[cell.end() if cell else 0 :]])
        head = any(it.said.startswith(":header-rows:") for it in self._lines[at:first])
        self._write_table(at, end, rows, out, head=head)

    def _read_csv(self, at: int, first: int, end: int, out: int) -> None:
        """Read rows of values between commas; those of `:header:` come first."""
        options = {
            named["name"]: (number, said[named.end() :])
            for number, said in enumerate((it.said for it in self._lines[at:first]), at)
            if (named := _FIELD.match(said))
        }
        given = options.get("delim", (at, ","))[1].strip('"')
        between = {"tab": "\t", "space": " ", "": ","}.get(given, given[:1])
        number, header = options.get("header", (first, ""))
        lines = [f"{it.said}\n" for it in self._lines[first:end]]
        rows: list[_Row] = []
        try:
            for begin, said in ((number, [header]), (first, lines)):
                reader = csv.reader(said, delimiter=between, skipinitialspace=True)
                for cells in reader:
                    last = begin + reader.line_num - 1
                    rows += [(last, last, [" ".join(it.split()) for it in cells])] if cells else []
        except csv.Error:  # a value that never ends
            self._fence(self._lines[at].start, first, end, "", out)
            return
        head = bool(header) or "header-rows" in options
        self._write_table(at, end, rows, out, head=head)

    def _read_grid(self, at: int, end: int, out: int) -> None:
        """Read a table that is drawn; a cell of several columns or rows stands in each of them."""
        lines = [_widen(it.said) for it in self._lines[at:end]]
        edges = sorted({match.start() for said in lines for match in _CORNER.finditer(said)})
        drawn: list[tuple[int, int, list[list[str]]]] = []
        head = False
        for number, said in enumerate(lines, at):
            if len(said) != len(lines[0]) or said[0] not in "+|" or said[-1] not in "+|":
                self._fence(self._lines[at].start, at, end, "", out)
                return
            ruled = [set(said[a : b + 1]) <= set("+-=") for a, b in pairwise(edges)]
            if all(ruled):
                head = head or "=" in said
                drawn.append((number, number, [[] for _ in ruled]))
                continue
            first, cells = drawn[-1][0], drawn[-1][2]
            if any(ruled):  # the others go on below it
                first = number
                cells = [[] if rule else cell for rule, cell in zip(ruled, cells, strict=True)]
                drawn.append((number, number, cells))
            begin = 0
            for column, edge in enumerate(edges[1:], 1):
                if said[edge] not in "|+":
                    cells[column] = cells[begin]
                    continue
                if not ruled[begin]:
                    cells[begin].append(said[edges[begin] + 1 : edge].strip())
                begin = column
            drawn[-1] = first, number, cells
        rows: list[_Row] = [
            (first, last, [" ".join(filter(None, cell)) for cell in cells])
            for first, last, cells in drawn
            if any(cells)
        ]
        self._write_table(at, end, rows, out, head=head)

    def _read_simple(self, at: int, last: int, out: int) -> int:
        borders = [at]
        for number in range(at + 1, last):
            if _SIMPLE.match(self._lines[number].said):
                borders.append(number)
                if number + 1 == last or not self._lines[number + 1].said:
                    break
        end, head = borders[-1] + 1, len(borders) > 2
        starts = [match.start() for match in re.finditer("=+", self._lines[at].said)]
        rows: list[_Row] = []
        for number in range(at + 1, end - 1):
            line = self._lines[number]
            if not line.said.strip("=- "):  # between rows
                head = head or (line.said[:1] == "-" and len(rows) == 1)
                continue
            said = _widen(" " * (line.column - self._lines[at].column) + line.said)
            cells = [said[a:b].strip() for a, b in pairwise([*starts, None])]
            if not rows or (cells[0] and not number < borders[1] < end - 1):
                rows.append((number, number, []))
            _grow(rows, number, cells)
        self._write_table(at, end, rows, out, head=head)
        return end

    def _write_table(self, at: int, end: int, rows: list[_Row], out: int, *, head: bool) -> None:
        """Write rows as a table of Markdown in place of lines [at, end)."""
        width = max((len(cells) for _, _, cells in rows), default=0)
        if not any(any(cells) for _, _, cells in rows):
            self._hide(at, end)
            return
        rows = rows if head else [(at, at, []), *rows]
        edges = [*(self._lines[last].end for _, last, _ in rows[:-1]), self._lines[end - 1].end]
        begin, rule = self._lines[at].start, f"\n{' ' * out}{format_rule(width)}"
        self.marks.append(Block(0, "table", begin, edges[-1]))
        for (_, _, cells), edge in zip(rows, edges, strict=True):
            shown = [_INLINE.sub(self._say, cell).replace("\0", "") for cell in cells]
            row = " " * out + format_row(shown + [""] * (width - len(cells)))
            self._edit(begin, edge, row + rule if rule else f"\n{row}")
            begin, rule = edge, ""

    # --- lines and edits

    def _end_of_body(self, at: int, last: int, column: int) -> int:
        """The line behind the last that is indented to a column, or blank between such ones."""
        end = at
        while at < last and (not self._lines[at].said or self._lines[at].column >= column):
            at += 1
            end = at if self._lines[at - 1].said else end
        return end

    def _edit(self, start: int, end: int, replacement: str, rule: str = REWRITTEN) -> None:
        if self.text[start:end] != replacement:
            self.edits.append(Edit(start, end, replacement, rule))

    def _hide(self, at: int, end: int, rule: str = _HIDDEN) -> None:
        self._edit(self._lines[at].start, self._lines[end - 1].end, "", rule)

    def _fence(self, start: int, code: int, end: int, language: str, out: int) -> None:
        """Put lines of code into a fence that begins at `start`."""
        lines = [it for it in self._lines[code:end] if it.said]
        width = min(it.begin - it.start for it in lines)
        inside = self.text[lines[0].start : lines[-1].end]
        mark = "`" * max(3, 1 + max(map(len, re.findall("`+", inside)), default=0))
        for line in lines[1:]:
            self._edit(line.start, line.start + width, " " * out)
        first, last = lines[0].start + width, lines[-1].end
        pad = " " * out
        self._edit(start, first, f"{pad}{mark}{language}\n{pad}")
        self._edit(last - 1, last, f"{self.text[last - 1]}\n{pad}{mark}")
        self.marks.append(Block(0, "code", lines[0].start, last))

    def _read_inline(self, at: int, end: int, out: int) -> None:
        """Note what to change within the lines of a paragraph."""
        for line in self._lines[at:end]:
            if line.begin > line.start:  # not behind a mark
                self._edit(line.start, line.begin, " " * out)
        for match in _INLINE.finditer(self.text, self._lines[at].begin, self._lines[end - 1].end):
            words = re.sub(r"\s*\n\s*", "\n" + " " * out, self._say(match))
            self._edit(match.start(), match.end(), words)

    def _say(self, match: re.Match[str]) -> str:
        """What inline markup says in Markdown."""
        if role := match["role"]:
            titled = re.fullmatch(r"(.*\S)\s*<[^<>]*>", match["said"], re.DOTALL)
            said = match["said"].lstrip("~!")
            if titled:
                return str(titled[1])
            if role in ("pep", "rfc"):
                return f"{role.upper()} {said}"
            said = said.rpartition(".")[2] if match["said"].startswith("~") else said
            return f"`{said}`" if role.rpartition(":")[2] in _CODE_ROLES else said
        if name := match["name"] or match["url"]:
            return f"[{name}]({match['url']})" if _AWAY.match(match["url"] or "") else str(name)
        if match["stands"]:
            return str(self._stands.get(match["stands"], match["stands"]))
        if match["word"] and match["word"].lower() in self._targets:
            return str(match["word"])
        gone = match["blank"] or match["note"]
        return str(match["cited"] or ("" if gone else match[0]))


def _grow(rows: list[_Row], number: int, cells: Sequence[str]) -> None:
    """Add the cells of a line to the last row."""
    first, _, before = rows[-1]
    both = zip_longest(before, cells, fillvalue="")
    rows[-1] = first, number, [f"{one} {more}".strip() for one, more in both]


def _widen(said: str) -> str:
    """A line with a NUL behind each character that takes two columns."""
    wide = (char + "\0" * (unicodedata.east_asian_width(char) in "WF") for char in said)
    return said if said.isascii() else "".join(wide)
