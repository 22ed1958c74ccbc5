"""reStructuredText: the blocks of a text, and the edits that turn it into Markdown.

The facts keep the file unchanged, so that a citation leads to its bytes; sections, chunks and
quotes use the Markdown. docutils locates blocks only by line, and takes five megabytes.
"""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

from rag_platform.ir import Block, Edit
from rag_platform.loaders.parts import ticks_around
from rag_platform.text.markdown_blocks import format_row, format_rule

RESTRUCTURED = "restructuredtext"  # parse profile of the facts
REWRITTEN = "markup"  # rule of the edits that keep the words
HIDDEN = "hidden_text: not_displayed"
# markup that no other format has: a directive, target, substitution, code after two colons, a link,
# a role
_DISTINCTIVE = re.compile(
    r"^\.\. (?:[\w:-]+::(?:\s|$)|_[^:\n]+:(?:\s|$)|\|[^|\n]+\| [\w-]+::)"
    r"|^[^\n]*::[ \t]*\r?\n[ \t]*\r?\n[ \t]+\S|`[^`\n<]+ <[a-z]+:[^`<>\s]+>`__?(?!\w)"
    r"|(?<![\w:]):(?:[a-z]+:)?[a-z]+:`[^`\n]+`",
    re.MULTILINE,
)
_LINE = re.compile(r"([^\r\n]*)(?:\r\n?|\n|\Z)")
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*$")
_DIRECTIVE = re.compile(r"\.\.\s+(?:[\w.+-]+:)*(?P<name>[\w.+-]+) ?::(?:\s+(?P<text>.*))?$")
_SUBSTITUTES = re.compile(r"^\.\.[ ]+\|([^|\n]+)\|[ ]+replace::[ ]+(\S.*?)\s*$", re.MULTILINE)
_TARGETS = re.compile(r"^\.\.[ ]+_`?([^:`\n]+)`?:", re.MULTILINE)
_FIELD = re.compile(r":(?!\s)(?P<name>(?:\\.|[^:\\`])+)(?<!\s):(?:\s+|$)")
_ITEM = re.compile(r"(?P<mark>[-*+•]|\(?(?:\d{1,9}|#|[A-Za-z])[.)])(?:\s+|$)")
_CELL = re.compile(r"([*+-]\s+)?[*+-](?:\s+|$)")  # of a list-table
_FOOTNOTE = re.compile(r"\.\.\s+(?=\[[^\]\s]+\](?:\s|$))")
_GRID_BORDER = re.compile(r"\+(?:[-=]+\+)+$")
_CORNER = re.compile(r"\+(?=[-=])|(?<=[-=])\+")
_SIMPLE_BORDER = re.compile(r"=+(?:\s+=+)+$")
_CODE = frozenset(
    "code code-block sourcecode parsed-literal doctest testcode testoutput prompt ipython math"
    " console productionlist".split()
)
_HIDDEN_DIRECTIVES = frozenset(
    "toctree index autosummary raw meta graphviz mermaid uml testsetup testcleanup".split()
)
# directives that show their argument, an object's signature, even without a body
_OBJECTS = frozenset(
    "function class method attribute data exception property staticmethod classmethod decorator"
    " macro type member var enum enumerator struct union option cmdoption envvar confval describe"
    " object".split()
)
# admonition to the text that replaces its name; its content may begin on the same line
_ADMONITIONS = dict.fromkeys(
    "note warning tip important caution danger attention hint error seealso todo".split(), ""
) | {
    "versionadded": "Added in version ",
    "versionchanged": "Changed in version ",
    "deprecated": "Deprecated since version ",
    "versionremoved": "Removed in version ",
}
# directives whose arguments are not shown, and those whose argument is a title
_CONTAINERS = frozenset(
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
    r"|(?<![\w:]):(?P<role>[A-Za-z][\w:+.-]*):`(?P<text>[^`]+)`"
    r"|(?<![`\w])`(?P<name>[^`<]*[^`<\s])?(?:\s*<(?P<url>[^<>`]+)>)?`__?(?!\w)"
    r"|(?<![`\w])`[^`]+`"
    r"|[ ]?\[(?P<note>\d+|\#[\w.-]*|\*)\]_(?!\w)"
    r"|(?P<cited>\[[A-Za-z][\w.-]*\])_(?!\w)"
    r"|(?<![\w|])\|(?P<substitution>[^\s|][^|\n]*?)\|_{0,2}(?![\w|])"
    r"|(?<![\w`.])(?P<word>[A-Za-z](?:[\w.-]*[A-Za-z0-9])?)__?(?![\w`])"
    r"|\\(?P<blank>\s)|(?<=`)(?P<joint>\\)(?=\w)"  # `\ ` and `Name`\s join what is beside them
)
_EXTERNAL = re.compile(r"(?:https?|ftp|mailto):", re.IGNORECASE)
_MAX_LEVEL = 6  # of a heading in Markdown
_MAX_DEPTH = 24  # of nested bodies; deeper ones stay unchanged


def is_restructured(text: str, suffix: str) -> bool:
    """True for reStructuredText by suffix, or by typical markup in a file with a generic suffix."""
    return suffix in (".rst", ".rest") or (
        suffix in (".txt", ".text", "") and _DISTINCTIVE.search(text) is not None
    )


def restructured_blocks(text: str) -> list[Block]:
    """The headings, code, tables and paragraphs of a text, without byte offsets."""
    return fill_gaps(text, _Reader(text).blocks)


def fill_gaps(text: str, found: Sequence[Block]) -> list[Block]:
    """The blocks found in a text, in order, with paragraphs for what is between them."""
    blocks: list[Block] = []
    at = 0
    for block in [*found, Block(0, "", len(text), len(text))]:
        between = text[at : block.start]
        if between.strip():
            start = block.start - len(between.lstrip())
            blocks.append(Block(len(blocks), "paragraph", start, at + len(between.rstrip())))
        if block.kind:
            blocks.append(replace(block, ordinal=len(blocks)))
        at = block.end
    return blocks


def markdown_edits(text: str) -> list[Edit]:
    """The edits that turn reStructuredText into Markdown, in order and without overlap."""
    kept: list[Edit] = []
    for edit in sorted(
        _Reader(text).edits, key=lambda edit: (edit.start, edit.end > edit.start, -edit.end)
    ):
        if not kept or edit.start >= kept[-1].end:
            kept.append(edit)
    return kept


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a text, by its offsets."""

    start: int
    begin: int  # after the indentation
    end: int
    column: int  # of `begin`, with tabs expanded
    text: str  # without the indentation and trailing white space


def read_lines(text: str) -> list[Line]:
    """The lines of a text, with any line ends; the last is empty after a final line end."""
    lines: list[Line] = []
    for match in _LINE.finditer(text):
        line = match[1].rstrip()
        blanks = len(line) - len(line.lstrip())
        column = len(line[:blanks].expandtabs(8))
        begin = match.start() + blanks
        lines.append(Line(match.start(), begin, match.end(1), column, line[blanks:]))
    return lines


_Row = tuple[int, int, list[str]]  # first line, last line, cells


class _Reader:
    """Reads a text line by line, finding nested bodies by their indentation, and collects the edits
    and the blocks that are not paragraphs.

    In its methods `at`, `end` and `last` are line numbers (the end is exclusive), and `out` is the
    column at which the text is to be written.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.edits: list[Edit] = []
        self.blocks: list[Block] = []
        self._styles: list[str] = []  # adornments of titles, the outermost first
        self._level = self._depth = 0
        self._substitutions = dict(_SUBSTITUTES.findall(text))
        self._targets = {name.lower() for name in _TARGETS.findall(text)}
        self._lines = read_lines(text)
        self._ends: list[int] = []  # for each line, the line after its paragraph
        for number in reversed(range(len(self._lines))):
            within = self._lines[number].text and self._ends
            self._ends.append(self._ends[-1] if within else number + bool(self._lines[number].text))
        self._ends.reverse()
        self._read_lines(0, len(self._lines), 0)

    # --- blocks

    def _read_lines(self, at: int, last: int, out: int) -> None:
        """Read the blocks in lines [at, last)."""
        column = min((line.column for line in self._lines[at:last] if line.text), default=0)
        self._depth += 1
        while at < last and self._depth < _MAX_DEPTH:
            quoted = self._end_of_body(at, last, column + 1)
            if not self._lines[at].text:
                at += 1
            elif quoted > at:
                self._read_lines(at, quoted, out)
                at = quoted
            else:
                at = self._read_block(at, last, out)
        self._depth -= 1

    def _read_block(self, at: int, last: int, out: int) -> int:
        """Read a block; returns the line after it."""
        line = self._lines[at]
        end = min(self._ends[at], last)
        if titled := self._read_title(at, end):
            return titled
        if line.text.split()[0] in ("..", "__"):
            return self._read_explicit(at, end, last, out)
        if _SIMPLE_BORDER.match(line.text):
            return self._read_simple(at, last, out)
        if _GRID_BORDER.match(line.text):
            self._read_grid(at, end, out)
        elif line.text.startswith(">>>"):
            self._fence(line, at, end, "pycon", out)
        elif line.text.startswith("| "):  # a line block
            for line in self._lines[at:end]:
                self._edit(line.start, line.end - len(line.text.lstrip("| ")), _pad(line, out))
            self._read_inline(at, end, out)
        elif end == at + 1 and len(line.text) >= 4 and _ADORNMENT.match(line.text):
            self._edit(line.start, line.end, "")
        else:
            return self._read_text(at, end, last, out)
        return end

    def _read_text(self, at: int, end: int, last: int, out: int) -> int:
        """Read a list item, field, term with definition, or paragraph; returns the next line."""
        line = self._lines[at]
        body = max(at + 1, self._end_of_body(at + 1, last, line.column + 1))
        continues = end > at + 1 and body == at + 1  # in the same column
        item, named = _ITEM.match(line.text), _FIELD.match(line.text)
        if item and not (continues and _ITEM.match(self._lines[at + 1].text) is None):
            mark = item["mark"].replace("#", "1") + " "
            column = line.column + item.end()
            self._open_body(at, body, line.begin + item.end(), mark, out, len(mark), column)
        elif named and at == 0 and self._depth == 1 and named.end() == len(line.text):
            self._edit(line.start, line.end, "", HIDDEN)  # `:orphan:`
        elif named:
            mark = "- " + named["name"].replace("\\", "") + ": "
            self._open_body(at, body, line.begin + named.end(), mark, out, 2)
        elif end > at + 1 and not continues and not line.text.endswith("::"):  # a term
            below = self._lines[at + 1]
            self._read_inline(at, at + 1, out)
            self._edit(line.begin, line.begin, "- ")
            colon = ":" if line.text[-1].isalnum() or line.text[-1] in "`*)" else ""
            self._edit(line.begin + len(line.text), below.begin, f"{colon}\n{' ' * (out + 2)}")
            self._lines[at + 1] = replace(below, start=below.begin)
            self._read_lines(at + 1, body, out + 2)
        else:
            return self._read_paragraph(at, end if continues else min(end, at + 1), last, out)
        return body

    def _open_body(
        self, at: int, end: int, begin: int, mark: str, out: int, hang: int = 0, own: int = 99
    ) -> None:
        """Replace line `at` up to offset `begin` (column `own`) with a mark, and read the body that
        begins there; its further lines are written `hang` columns further right.
        """
        line = self._lines[at]
        text = self.text[begin : line.end].rstrip()
        self._edit(line.start, begin, _pad(line, out) + (mark if text else mark.rstrip()))
        column = min([own, *(line.column for line in self._lines[at + 1 : end] if line.text)])
        self._lines[at] = Line(begin, begin, line.end, column, text)
        self._read_lines(at, end, out + hang)

    def _read_paragraph(self, at: int, end: int, last: int, out: int) -> int:
        """Read a paragraph, and the code below a final `::`; returns the next line."""
        ending = self._lines[end - 1]
        code = next((n for n in range(end, last) if self._lines[n].text), last)
        stop = self._end_of_body(code, last, self._lines[at].column + 1)
        self._read_inline(at, end, out)
        if stop == code:  # nothing is indented below it
            return end
        if end == at + 1 and re.fullmatch("``[^`]+``", ending.text):
            self._edit(ending.start, ending.end, f"{_pad(ending, out)}**{ending.text}**")
        if not ending.text.endswith("::"):
            return end
        bare = ending.text[:-2].rstrip()
        colon = ":" if ending.text[-3:-2].strip() else ""
        self._edit(ending.begin + len(bare), ending.begin + len(ending.text), colon)
        self._fence(self._lines[code], code, stop, "", out)
        return stop

    def _read_title(self, at: int, last: int) -> int:
        """Read a title; returns the line after it, or 0 if there is none."""
        over = _ADORNMENT.match(self._lines[at].text)
        under = at + 1 + bool(over)
        if under >= last:
            return 0
        title, rule = self._lines[under - 1], self._lines[under]
        long = len(rule.text) >= min(4, len(pad_wide(title.text)))
        same = over is None or (rule.text[0] == over[1] and len(over[0]) == len(rule.text))
        if not (_ADORNMENT.match(rule.text) and long and same) or (
            title.column != rule.column and not over
        ):
            return 0
        style = rule.text[0] * (1 + bool(over))
        if style not in self._styles:
            self._styles.append(style)
        self._level = min(self._styles.index(style) + 1, _MAX_LEVEL)
        words = _INLINE.sub(self._to_markdown, title.text)
        self._edit(self._lines[at].start, title.end, f"{'#' * self._level} {words}")
        self._edit(rule.start, rule.end, "")
        name = re.sub(r"[`*]", "", words)
        start = self._lines[at].start
        self.blocks.append(Block(0, "heading", start, rule.end, level=self._level, title=name))
        return under + 1

    def _read_explicit(self, at: int, end: int, last: int, out: int) -> int:
        """Read explicit markup: a directive, footnote, target or comment; returns the next line."""
        line = self._lines[at]
        body = max(at + 1, self._end_of_body(at + 1, last, line.column + 1))
        if line.text == ".." and end == at + 1:  # it has no body
            self._remove(at, end)
            return end
        if note := _FOOTNOTE.match(line.text):
            self._open_body(at, body, line.begin + note.end(), "", out)
        elif (found := _DIRECTIVE.match(line.text)) is None:
            defines = line.text.startswith((".. _", ".. |", "__ "))
            self._remove(at, body, HIDDEN if defines else "hidden_text: comment")
        elif (name := found["name"].lower()) in _ADMONITIONS:
            text = found["text"] or ""
            version = text.split()[0] if _ADMONITIONS[name] and text else ""
            rest = text[len(version) :].lstrip()
            mark = f"{_ADMONITIONS[name]}{version}" + (": " if rest or body > at + 1 else ".")
            begin = line.begin + len(line.text) - len(rest)
            self._open_body(at, body, begin, mark if version else "", out)
        else:
            self._read_directive(at, body, name, found["text"] or "", out)
        return body

    def _read_directive(self, at: int, end: int, name: str, text: str, out: int) -> None:
        line, after = self._lines[at], at + 1
        while after < end and (begun := self._lines[after].text) and (text or begun[0] == ":"):
            after += 1  # skip options and further lines of the arguments
        body = next((n for n in range(after, end) if self._lines[n].text), end)
        if name == "math" and text:  # the formula may begin on the same line
            self._read_formula(at, end, text, out)
        elif name.rpartition("-")[2] in _OBJECTS and text and body == end:
            more = [it.text for it in self._lines[at + 1 : after] if not it.text.startswith(":")]
            shown = f"\n{' ' * out}".join(f"**`{signature}`**" for signature in (text, *more))
            self._edit(line.start, self._lines[end - 1].end, _pad(line, out) + shown)
        elif name in _HIDDEN_DIRECTIVES or (body == end and name != "rubric"):
            self._remove(at, end)
        elif name in _CODE:
            self._fence(line, body, end, text.split()[0] if text else "", out)
        elif name == "list-table":
            self._read_list(self._read_caption(at, text, out), body, end, out)
        elif name == "csv-table":
            self._read_csv(self._read_caption(at, text, out), body, end, out)
        else:
            label = ""
            if name in _TITLED or "`" in text:
                label = self._bold(text) if text else ""
            elif text and name not in _CONTAINERS:
                label = f"{'#' * min(self._level + 1, _MAX_LEVEL)} `{text}`"
            self._edit(line.start, self._lines[after - 1].end, _pad(line, out) + label)
            self._read_lines(body, end, out)

    def _read_formula(self, at: int, end: int, text: str, out: int) -> None:
        for number in range(at + 1, end):
            option = self._lines[number]
            if _FIELD.match(option.text):
                self._remove(number, number + 1)
                self._lines[number] = replace(option, text="")
        line = self._lines[at]
        begin = line.begin + len(line.text) - len(text)
        self._lines[at] = replace(line, start=begin, begin=begin, column=99, text=text)
        self._fence(line, at, end, "", out)

    # --- tables

    def _read_caption(self, at: int, text: str, out: int) -> int:
        """Read the caption of a table; returns the line where the table begins."""
        if not text:
            return at
        line = self._lines[at]
        self._edit(line.start, line.end, f"{_pad(line, out)}{self._bold(text)}\n")
        return at + 1

    def _bold(self, text: str) -> str:
        return f"**{_INLINE.sub(self._to_markdown, text)}**"

    def _read_list(self, at: int, first: int, end: int, out: int) -> None:
        rows: list[_Row] = []
        for number in range(first, end):
            line = self._lines[number]
            inner = line.column > self._lines[first].column + 3  # a list in a cell
            cell = None if inner else _CELL.match(line.text)
            if cell and cell[1]:
                rows.append((number, number, []))
            if rows and (cell or rows[-1][2]):
                more = [""] * (len(rows[-1][2]) - (cell is None))
                _extend_row(rows, number, [*more, line.text[cell.end() if cell else 0 :]])
        head = any(line.text.startswith(":header-rows:") for line in self._lines[at:first])
        self._write_table(at, end, rows, out, head=head)

    def _read_csv(self, at: int, first: int, end: int, out: int) -> None:
        """Read the rows of a csv-table, the `:header:` first."""
        options = {
            named["name"]: (number, text[named.end() :])
            for number, text in enumerate((line.text for line in self._lines[at:first]), at)
            if (named := _FIELD.match(text))
        }
        option = options.get("delim", (at, ","))[1].strip('"')
        delimiter = {"tab": "\t", "space": " ", "": ","}.get(option, option[:1])
        number, header = options.get("header", (first, ""))
        lines = [f"{line.text}\n" for line in self._lines[first:end]]
        rows: list[_Row] = []
        try:
            for begin, source in ((number, [header]), (first, lines)):
                reader = csv.reader(source, delimiter=delimiter, skipinitialspace=True)
                for cells in reader:
                    last = begin + reader.line_num - 1
                    words = [" ".join(cell.split()) for cell in cells]
                    rows += [(last, last, words)] if cells else []
        except csv.Error:  # an unclosed quote
            self._fence(self._lines[at], first, end, "", out)
            return
        head = bool(header) or "header-rows" in options
        self._write_table(at, end, rows, out, head=head)

    def _read_grid(self, at: int, end: int, out: int) -> None:
        """Read a grid table; a cell over several columns or rows is repeated in each."""
        lines = [pad_wide(line.text) for line in self._lines[at:end]]
        edges = sorted({match.start() for text in lines for match in _CORNER.finditer(text)})
        drawn: list[tuple[int, int, list[list[str]]]] = []
        head = False
        for number, text in enumerate(lines, at):
            if len(text) != len(lines[0]) or text[0] not in "+|" or text[-1] not in "+|":
                self._fence(self._lines[at], at, end, "", out)
                return
            ruled = [set(text[a : b + 1]) <= set("+-=") for a, b in pairwise(edges)]
            if all(ruled):
                head = head or "=" in text
                drawn.append((number, number, [[] for _ in ruled]))
                continue
            first, cells = drawn[-1][0], drawn[-1][2]
            if any(ruled):  # a border below some cells; the others continue
                first = number
                cells = [[] if rule else cell for rule, cell in zip(ruled, cells, strict=True)]
                drawn.append((number, number, cells))
            begin = 0
            for column, edge in enumerate(edges[1:], 1):
                if text[edge] not in "|+":
                    cells[column] = cells[begin]
                    continue
                if not ruled[begin]:
                    cells[begin].append(text[edges[begin] + 1 : edge].strip())
                begin = column
            drawn[-1] = first, number, cells
        rows: list[_Row] = [
            (first, last, [" ".join(filter(None, cell)) for cell in cells])
            for first, last, cells in drawn
            if any(cells)
        ]
        self._write_table(at, end, rows, out, head=head)

    def _read_simple(self, at: int, last: int, out: int) -> int:
        """Read a simple table, whose borders are `===`; returns the next line."""
        borders = [at]
        for number in range(at + 1, last):
            if _SIMPLE_BORDER.match(self._lines[number].text):
                borders.append(number)
                if number + 1 == last or not self._lines[number + 1].text:
                    break
        end, head = borders[-1] + 1, len(borders) > 2
        starts = [match.start() for match in re.finditer("=+", self._lines[at].text)]
        rows: list[_Row] = []
        for number in range(at + 1, end - 1):
            line = self._lines[number]
            if not line.text.strip("=- "):  # a rule between rows
                head = head or (line.text[:1] == "-" and len(rows) == 1)
                continue
            text = pad_wide(" " * (line.column - self._lines[at].column) + line.text)
            cells = [text[a:b].strip() for a, b in pairwise([*starts, None])]
            if not rows or (cells[0] and not number < borders[1] < end - 1):
                rows.append((number, number, []))
            _extend_row(rows, number, cells)
        self._write_table(at, end, rows, out, head=head)
        return end

    def _write_table(self, at: int, end: int, rows: list[_Row], out: int, *, head: bool) -> None:
        """Replace lines [at, end) with the rows as a Markdown table."""
        width = max((len(cells) for _, _, cells in rows), default=0)
        if not any(any(cells) for _, _, cells in rows):
            self._remove(at, end)
            return
        rows = rows if head else [(at, at, []), *rows]
        edges = [*(self._lines[last].end for _, last, _ in rows[:-1]), self._lines[end - 1].end]
        begin, rule = self._lines[at].start, f"\n{' ' * out}{format_rule(width)}"
        pad = _pad(self._lines[at], out)
        self.blocks.append(Block(0, "table", begin, edges[-1]))
        for (_, _, cells), edge in zip(rows, edges, strict=True):
            shown = [_INLINE.sub(self._to_markdown, cell).replace("\0", "") for cell in cells]
            row = pad + format_row(shown + [""] * (width - len(cells)))
            self._edit(begin, edge, row + rule if rule else f"\n{row}")
            begin, rule, pad = edge, "", " " * out

    # --- lines and edits

    def _end_of_body(self, at: int, last: int, column: int) -> int:
        """The line after the body that begins at line `at` and is indented to at least `column`."""
        end = at
        while at < last and (not self._lines[at].text or self._lines[at].column >= column):
            at += 1
            end = at if self._lines[at - 1].text else end
        return end

    def _edit(self, start: int, end: int, replacement: str, rule: str = REWRITTEN) -> None:
        if self.text[start:end] != replacement:
            self.edits.append(Edit(start, end, replacement, rule))

    def _remove(self, at: int, end: int, rule: str = HIDDEN) -> None:
        self._edit(self._lines[at].start, self._lines[end - 1].end, "", rule)

    def _fence(self, opening: Line, code: int, end: int, language: str, out: int) -> None:
        """Put lines [code, end) into a fenced code block that begins at a line before them."""
        lines = [line for line in self._lines[code:end] if line.text]
        # a line right after a list mark has no indentation, but a column
        width = min(line.begin - line.start or line.column for line in lines)
        inside = self.text[lines[0].start : lines[-1].end]
        mark = ticks_around(inside)
        for line in lines[1:]:
            self._edit(line.start, line.start + width, " " * out)
        first, last = min(lines[0].start + width, lines[0].begin), lines[-1].end
        pad = " " * out
        self._edit(opening.start, first, f"{_pad(opening, out)}{mark}{language}\n{pad}")
        self._edit(last - 1, last, f"{self.text[last - 1]}\n{pad}{mark}")
        self.blocks.append(Block(0, "code", lines[0].start, last))

    def _read_inline(self, at: int, end: int, out: int) -> None:
        """Collect the edits within the lines of a paragraph."""
        for line in self._lines[at:end]:
            if line.begin > line.start:  # not right after a list mark
                self._edit(line.start, line.begin, " " * out)
        for match in _INLINE.finditer(self.text, self._lines[at].begin, self._lines[end - 1].end):
            words = re.sub(r"\s*\n\s*", "\n" + " " * out, self._to_markdown(match))
            self._edit(match.start(), match.end(), words)

    def _to_markdown(self, match: re.Match[str]) -> str:
        """Inline markup as Markdown."""
        if role := match["role"]:
            titled = re.fullmatch(r"(.*\S)\s*<[^<>]*>", match["text"], re.DOTALL)
            text = match["text"].lstrip("~!")
            if titled:
                return str(titled[1])
            if role in ("pep", "rfc"):
                return f"{role.upper()} {text}"
            text = text.rpartition(".")[2] if match["text"].startswith("~") else text
            # right after other code, marks would join both to longer ones
            beside = match.start() > 0 and match.string[match.start() - 1] == "`"
            return text if beside or role.rpartition(":")[2] not in _CODE_ROLES else f"`{text}`"
        if name := match["name"] or match["url"]:
            return f"[{name}]({match['url']})" if _EXTERNAL.match(match["url"] or "") else str(name)
        if name := match["substitution"]:
            return str(self._substitutions.get(name, name))
        if match["word"] and match["word"].lower() in self._targets:
            return str(match["word"])
        dropped = match["blank"] or match["note"] or match["joint"]
        return str(match["cited"] or ("" if dropped else match[0]))


def _pad(line: Line, out: int) -> str:
    """The indentation of a block that begins on a line; none right after a list mark."""
    return " " * out if line.begin > line.start else ""


def _extend_row(rows: list[_Row], number: int, cells: Sequence[str]) -> None:
    """Add the cells of a line to the last row."""
    first, _, before = rows[-1]
    both = zip_longest(before, cells, fillvalue="")
    rows[-1] = first, number, [f"{one} {more}".strip() for one, more in both]


def pad_wide(text: str) -> str:
    """A line with a NUL after each character that takes two columns."""
    wide = (char + "\0" * (unicodedata.east_asian_width(char) in "WF") for char in text)
    return text if text.isascii() else "".join(wide)
