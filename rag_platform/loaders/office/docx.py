"""DOCX to facts: headings, paragraphs, lists with their numbers, tables, images, notes and text
boxes, in document order; and the proof of these facts, which reads the file again by other code.

A block is one paragraph, one table row, or one run of code. Its locator is its place in the file:
`body/p[12]`, `body/tbl[2]/tr[3]`, `body/p[4]/txbx[1]/p[1]`, `body/p[5]/drawing[1]` (a chart or
diagram), `footnotes/2`, `header1/p[1]`. Elements of a kind are counted from 1 within their parent.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts, HiddenText
from rag_platform.loaders.archives import ZipLoader
from rag_platform.loaders.numerals import without_page_number
from rag_platform.loaders.office import drawings
from rag_platform.loaders.office.docx_styles import Label, Styles, find_labels, read_styles
from rag_platform.loaders.office.docx_text import (
    NOTES,
    Piece,
    Reader,
    find_drawings,
    join_pieces,
    symbol,
    without_marks,
)
from rag_platform.loaders.office.ooxml import (
    Element,
    Package,
    R,
    W,
    chosen_entry,
    field_instructions,
    is_on,
    name_of,
    paragraphs_below,
    row_cells,
    shown_children,
    table_rows,
    text_boxes,
)
from rag_platform.loaders.parts import Engine, Image, Part, join_parts, joined_facts, list_mark
from rag_platform.loaders.text import first_line, format_range
from rag_platform.text import markdown_blocks
from rag_platform.text.markdown_blocks import escape_cell, parse_row
from rag_platform.text.scripts import letters
from rag_platform.traits import Traits

_RUNNING = ("header", "footer")
_PROPERTIES = "title author subject keywords description created modified category language".split()
MAX_DEPTH = 8  # of nested text boxes and tables
# a short line that is neither a sentence, nor a form field (`Name: Ann`, `甲方：…`) or row of form
# fields, nor entirely in parentheses
_HEADING_LINE = re.compile(
    r"(?![^\W\d_]{1,8}[:：]\s*\S.*(?<![?？])$)(?![(（][^()（）]*[)）]$)(?!.*\s{2})(?=.*[^\W\d_])"
    r"[^\n\t]{1,80}(?<![.。!！;；,，、])"
)


@dataclass(frozen=True)
class DocxLoader(ZipLoader):
    """Reads Word documents; macros are never run."""

    SUFFIXES: ClassVar[tuple[str, ...]] = (".docx", ".docm", ".dotx", ".dotm")
    NAME: ClassVar[str] = "docx"
    VERSION: ClassVar[str] = "12"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def load(self, path: Path, filename: str) -> Facts:
        """Raises `broken_file`, `encrypted`, `archive_bomb`, `empty_file`."""
        self.require(path, ".docx")
        with Package(path) as package:
            return self._make_facts(package)

    def _make_facts(self, package: Package) -> Facts:
        from lxml import etree

        main, body, styles, numbered = read_structure(package)
        reader = Reader(package.relations(main), styles)
        flow = _Flow(package, main, reader, numbered)
        flow.write_running(body, "header")
        flow.write_blocks(body, "body")
        flow.write_running(body, "footer")
        empty = "the document holds no text and no picture; nothing to index"
        joined = join_parts(flow.parts, empty)
        joined = joined._replace(blocks=_mark_repeated(joined.text, joined.blocks))
        own = [block for block in joined.blocks if block.kind not in _RUNNING]
        if not own:
            raise DocumentError(empty, code="empty_file")
        metadata = package.properties(_PROPERTIES)
        title = joined.choose_title(str(metadata.pop("title", "")), "")
        title = title or first_line(without_marks(joined.text[own[0].start : own[0].end]))
        engine = Engine("lxml", etree.__version__, "structure")
        hidden = [HiddenText(0, "vanish", words) for words in reader.hidden]
        warnings = _list_warnings(package, reader)
        return joined_facts(self, engine, joined, title, metadata, warnings, hidden=hidden)

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block whose letters differ from those at its locator."""
        self.require(path, ".docx")
        with Package(path) as package:
            return find_mismatched(package, text, blocks)


def read_structure(package: Package) -> tuple[str, Element, Styles, dict[Element, Label]]:
    """(name of the document part, its body, the styles, labels of numbered paragraphs)."""
    main = package.main_part()
    root = package.root(main)
    body = root.find(W + "body") if root is not None else None
    if body is None:
        raise DocumentError(
            "the document part has no body; open it in Word or LibreOffice and save it again",
            code="broken_file",
        )
    styles = read_styles(package.root(package.related_part(main, "styles")))
    numbering = package.root(package.related_part(main, "numbering"))
    return main, body, styles, find_labels(paragraphs_below(body), numbering, styles)


def _list_warnings(package: Package, reader: Reader) -> list[str]:
    counts = reader.counts
    left_out = [
        (counts["deleted"], "tracked deletions left out, insertions kept"),
        (len(reader.hidden), "runs of hidden text left out"),
        (counts["charts and diagrams"], "charts and diagrams that were not read"),
        (counts["embedded objects"], "embedded objects that were not read"),
        (counts["images without a part"], "pictures without data in the file"),
        (counts["embedded documents"], "embedded documents that were not read"),
        (counts["too deep"], "tables and text boxes nested too deeply to be read"),
    ]
    found = [f"{what}: {count}" for count, what in left_out if count]
    if any(name.endswith("vbaProject.bin") for name in package.archive.namelist()):
        found.append("the macros were ignored")
    return found


def related_parts(package: Package, main: str, body: Element, kind: str) -> list[str]:
    """The parts with the headers or footers (`kind`) that any page shows, in order, each once."""
    relations = package.relations(main)
    settings = package.root(package.related_part(main, "settings"))
    has_even = settings is not None and is_on(settings, "evenAndOddHeaders")
    found: dict[str, None] = {}
    for item in body.iter(f"{W}{kind}Reference"):
        pages = item.get(f"{W}type", "default")
        if (pages == "even" and not has_even) or (
            pages == "first" and not is_on(item.getparent(), "titlePg")
        ):
            continue
        relation = relations.get(str(item.get(f"{R}id")))
        if relation is not None and not relation.external:
            found[relation.target] = None
    return list(found)


def _mark_repeated(text: str, blocks: Sequence[Block]) -> list[Block]:
    """The blocks; a header or footer is marked as repeated if an earlier block has its words."""
    texts = [without_marks(text[block.start : block.end]) for block in blocks]
    own = [words for words, block in zip(texts, blocks, strict=True) if block.kind not in _RUNNING]
    known = "\n".join(letters(words).casefold() for words in own)
    marked = []
    for words, block in zip(texts, blocks, strict=True):
        repeated = False
        if block.kind in _RUNNING:
            # Word computes page numbers: the file has `Page of`, so one is assumed after a word
            numbered = re.sub(r"\A(\W*\w+)(?![\s\S]*\d)", "\\1 \0", words)
            line = without_page_number(numbered) and without_page_number(words)
            repeated = line in known
            known += f"\n{line}"
        marked.append(replace(block, repeated=repeated))
    return marked


# --- writing ------------------------------------------------------------------------------------


@dataclass
class _Flow:
    """Writes one flow of blocks (body, header, text box) to the parts of the document; notes follow
    the section that cites them.
    """

    package: Package
    part: str
    reader: Reader
    labels: dict[Element, Label]
    parts: list[Part] = field(default_factory=list)
    kind: str = ""  # header | footer, the kind of all blocks of such a flow
    styled_level: int = 1  # of the last heading that has a heading style
    notes_written: int = 0

    def write_running(self, body: Element, kind: str) -> None:
        """Write the blocks of the headers or footers."""
        for part in related_parts(self.package, self.part, body, kind):
            if (root := self.package.root(part)) is not None:
                own = replace(self.reader, relations=self.package.relations(part), notes={})
                path = posixpath.splitext(posixpath.basename(part))[0]
                replace(self, part=part, reader=own, kind=kind).write_blocks(root, path)

    def write_blocks(self, container: Element, path: str, depth: int = 0) -> None:
        """Write the blocks of a body, a header, a cell or a text box."""
        paragraphs = tables = 0
        code: list[tuple[int, str]] = []
        for child in shown_children(container):
            name = name_of(child)
            if name == "p":
                paragraphs += 1
                if self.reader.styles.is_code(child) and not self.kind:
                    code.append((paragraphs, self._read_code(child)))
                    continue
            code = self._write_code_block(code, path)
            if name == "p":
                self._write_paragraph(child, f"{path}/p[{paragraphs}]", depth)
            elif name == "tbl":
                tables += 1
                self._write_table(child, f"{path}/tbl[{tables}]", depth)
            elif name == "altChunk":
                self.reader.counts["embedded documents"] += 1
        self._write_code_block(code, path)
        if depth == 0:
            self._write_notes()

    def _write_paragraph(self, element: Element, locator: str, depth: int) -> None:
        styles = self.reader.styles
        level = 0 if self.kind or depth else styles.heading_level(element)
        self.styled_level = level or self.styled_level
        label = self.labels.get(element) if not self.kind else None
        pieces = self.reader.read_paragraph(element)
        if not (level or self.kind or depth) and self._is_bold_heading(element, pieces):
            deeper = self.styled_level + 1 + (label.level if label else 0)
            level = min(deeper, 6) if self.parts else 1
        if label is not None and not level:
            hanging = "\n" + " " * (4 * label.level + 2)
            pieces = [p.replace("\n", hanging) if isinstance(p, str) else p for p in pieces]
        text, images = join_pieces(pieces, flat=level > 0)
        if text:
            kind, title, tight = self.kind or "paragraph", "", False
            if level:
                self._write_notes()
                kind = "heading"
                prefix = "#" * level + " " + (f"{label.text} " if label and label.text else "")
                title = " ".join(f"{label.text if label else ''} {without_marks(text)}".split())
            elif label is not None:
                kind, prefix = "list", f"{'    ' * label.level}{list_mark(label.text)} "
                tight = bool(self.parts) and self.parts[-1].kind == "list"
            else:
                if not self.kind and styles.has_name(element, "caption", "题注"):
                    kind = "caption"
                prefix = "\\" if text.startswith(("```", "~~~")) else ""
            images = [image.move(len(prefix)) for image in images]
            self.parts.append(Part(kind, prefix + text, locator, level, title, images, tight))
        for number, drawing in enumerate(find_drawings(element), 1):
            self._write_drawing(drawing, f"{locator}/drawing[{number}]")
        for number, box in enumerate(text_boxes(element), 1):
            self._write_nested(box, f"{locator}/txbx[{number}]", depth)

    def _is_bold_heading(self, element: Element, pieces: Sequence[Piece]) -> bool:
        """True for a bold line that reads as a heading, whatever its style."""
        below, label = element.getnext(), self.labels.get(element)
        item = self.labels.get(below)
        text = "".join(piece if isinstance(piece, str) else "\n" for piece in pieces).strip()
        return (
            below is not None
            and name_of(below) in ("p", "tbl")
            and (label is None or (bool(label.text) and (not item or item.level > label.level)))
            and _HEADING_LINE.fullmatch(text) is not None
            and self.reader.styles.is_bold(element)
        )

    def _write_drawing(self, drawing: Element, locator: str) -> None:
        """Write a chart as a table and a diagram as a list, if the file contains their words."""
        kind, text = drawings.read_drawing(self.package, self.part, drawing)
        if text:
            self.reader.counts["charts and diagrams"] -= 1
            self.parts.append(Part(self.kind or kind, text, locator))

    def _write_nested(self, container: Element, path: str, depth: int) -> None:
        if depth >= MAX_DEPTH:
            self.reader.counts["too deep"] += 1
            return
        self.write_blocks(container, path, depth + 1)

    def _read_code(self, element: Element) -> str:
        text = "".join(
            piece if isinstance(piece, str) else piece.text
            for piece in self.reader.read_paragraph(element)
        )
        return text.rstrip().replace("```", "``\u200b`")

    def _write_code_block(self, code: list[tuple[int, str]], path: str) -> list[tuple[int, str]]:
        """Write the collected lines of code as one block. Returns a new, empty collection."""
        if any(text.strip() for _, text in code):
            place = f"{path}/p[{format_range(code[0][0], code[-1][0])}]"
            fenced = "```\n" + "\n".join(text for _, text in code) + "\n```"
            self.parts.append(Part("code", fenced, place))
        return []

    def _write_table(self, table: Element, locator: str, depth: int) -> None:
        rows = table_rows(table)
        grid = [row_cells(row) for row in rows]
        if len(grid) == 1 and len(grid[0]) == 1:  # a frame around text
            self._write_nested(grid[0][0][3], f"{locator}/tr[1]/tc[1]", depth)
            return
        if self.kind:
            for number, cells in enumerate(grid, 1):
                texts = [self._read_cell(cell, depth) for _, _, merged, cell in cells if not merged]
                text, images = join_pieces([piece for cell in texts for piece in (*cell, " ")])
                if text:
                    place = f"{locator}/tr[{number}]"
                    self.parts.append(Part(self.kind, text, place, images=images))
            return
        width = max((first + span for cells in grid for first, span, _, _ in cells), default=0)
        above: list[list[Piece]] = [[] for _ in range(width)]
        for number, cells in enumerate(grid, 1):
            line: list[list[Piece]] = [[] for _ in range(width)]
            for first, span, merged, cell in cells:
                pieces = above[first] if merged else self._read_cell(cell, depth)
                line[first : first + span] = [pieces] * span
            above = line
            text, images = _format_row(line)
            if number == 1:
                text += "\n" + markdown_blocks.format_rule(width)
            place = f"{locator}/tr[{number}]"
            row = Part("table", text, place, images=images, tight=number > 1)
            self.parts.append(row)

    def _read_cell(self, cell: Element, depth: int) -> list[Piece]:
        """The text of a cell on one line; tables in it become `a, b; c, d`."""
        found: list[Piece] = []
        if depth >= MAX_DEPTH:
            self.reader.counts["too deep"] += 1
            return found
        for child in shown_children(cell):
            if name_of(child) == "p":
                label = self.labels.get(child)
                found += [
                    " ",
                    f"{label.text} " if label and label.text else "",
                    *self.reader.read_paragraph(child),
                ]
                for box in text_boxes(child):
                    found += [" ", *self._read_cell(box, depth + 1)]
            elif name_of(child) == "tbl":
                found += self._read_inner_table(child, depth + 1)
        return found

    def _read_inner_table(self, table: Element, depth: int) -> list[Piece]:
        found: list[Piece] = []
        for row in table_rows(table):
            cells = [
                self._read_cell(cell, depth) for _, _, merged, cell in row_cells(row) if not merged
            ]
            filled = [cell for cell in cells if join_pieces(cell)[0]]
            for number, cell in enumerate(filled):
                found += [" " if number == 0 else ", ", *cell[1:]]
            found += [";"] if filled else []
        return found[:-1] if found else found

    def _write_notes(self) -> None:
        """Write the notes referenced since the last call."""
        waiting = list(self.reader.notes.items())[self.notes_written :] if not self.kind else []
        for (name, note_id), number in waiting:
            self.notes_written += 1
            kind, mark = NOTES[name]
            part = self.package.related_part(self.part, kind)
            note = find_note(self.package, part, note_id) if part else None
            if note is None:
                continue
            reader = replace(self.reader, relations=self.package.relations(part))
            pieces: list[Piece] = [f"[^{mark}{number}]: "]
            author = note.get(W + "author")
            pieces += [f"{author}: "] if author else []
            for paragraph in paragraphs_below(note):
                pieces += [*reader.read_paragraph(paragraph), "\n"]
            text, images = join_pieces(pieces, flat=True)
            self.parts.append(Part("paragraph", text, f"{kind}/{note_id}", images=images))


def find_note(package: Package, part: str, note_id: str) -> Element | None:
    """The note with that id in a notes part."""
    root = package.root(part)
    notes = root if root is not None else ()
    return next((note for note in notes if note.get(W + "id") == note_id), None)


def _format_row(cells: Sequence[Sequence[Piece]]) -> tuple[str, list[Image]]:
    """(row of a pipe table, the images in it)."""
    text = "|"
    images: list[Image] = []
    for cell in cells:
        escaped = [escape_cell(piece) if isinstance(piece, str) else piece for piece in cell]
        words, found = join_pieces(escaped, flat=True)
        images += [image.move(len(text) + 1) for image in found]
        text += f" {words} |"
    return text, images


_LAST_STEP = re.compile(r"(.+)/(p|tbl|tr|tc|txbx|drawing)\[(\d+)(?:-(\d+))?\]")
# elements whose text is not read in their place: properties, field instructions, deletions, boxes
SILENT = ("txbxContent", "instrText", "delText", "pPr", "rPr", "sectPr", "tcPr", "tblPr")


def find_mismatched(package: Package, text: str, blocks: Sequence[Block]) -> dict[int, str]:
    """Ordinal to reason for each block whose text is not at its locator."""
    source = _Source(package)
    bad: dict[int, str] = {}
    for block in blocks:
        try:
            reason = source.find_problem(text[block.start : block.end], block)
        except (LookupError, ValueError) as error:
            reason = f"the file has nothing at {block.locator!r} ({error})"
        if reason:
            bad[block.ordinal] = reason
    return bad


class _Source:
    """Reads the file for the proof, element by element."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.main, body, self.styles, self.labels = read_structure(package)
        self.instructions: set[Element] = set()  # texts in field instructions
        self.parts = {"body": self.main}  # first step of a locator to the part
        self.roots = {"body": body}
        for kind in _RUNNING:
            for part in related_parts(package, self.main, body, kind):
                name = posixpath.splitext(posixpath.basename(part))[0]
                self.parts[name], self.roots[name] = part, package.root(part)
        # (locator of the parent, kind) to the elements of that kind in it
        self.children: dict[tuple[str, str], list[Element]] = {}

    def find_problem(self, facts: str, block: Block) -> str:
        """How the facts of a block differ from the text at its locator, or ""."""
        root, _, rest = block.locator.partition("/")
        if root in ("footnotes", "endnotes", "comments"):
            note = find_note(self.package, self.package.related_part(self.main, root), rest)
            if note is None:
                raise LookupError("no such note")
            return _compare(facts, (str(note.get(W + "author", "")) + self.text_of(note)))
        above, kind, first, here = self.find(block.locator)
        if kind == "drawing":
            drawn = drawings.find_root(self.package, self.parts[root], here[0])
            return _compare(facts, "" if drawn is None else drawings.words_of(drawn))
        if kind == "tr" and block.kind == "table":
            return self.find_row_problem(facts, self.find_children(above, "tr"), first)
        if block.kind == "code":
            facts = facts.removeprefix("```\n").removesuffix("\n```")
        labelled = block.kind in ("list", "heading")
        texts = (
            (self.label(item) if labelled else "") + self.text_of(item, boxes=kind != "p")
            for item in here
        )
        return _compare(facts, "".join(texts))

    def find(self, locator: str) -> tuple[str, str, int, list[Element]]:
        """(locator of the parent, kind, number, elements) of a locator; `p[3-5]` gives the number 3
        and three elements. Raises LookupError, ValueError.
        """
        step = _LAST_STEP.fullmatch(locator)
        if step is None:
            raise ValueError("not a locator")
        first, last = int(step[3]), int(step[4] or step[3])
        found = self.find_children(step[1], step[2])[first - 1 : last]
        if len(found) != last - first + 1:
            raise LookupError("too few elements")
        return step[1], step[2], first, found

    def find_children(self, path: str, kind: str) -> list[Element]:
        """The elements of one kind, in the order of their numbers, in the element at `path`."""
        if (path, kind) not in self.children:
            parent = self.roots[path] if path in self.roots else self.find(path)[3][0]
            match kind:
                case "tr":
                    found = table_rows(parent)
                case "tc":
                    found = [cell for _, _, _, cell in row_cells(parent)]
                case "txbx":
                    found = list(text_boxes(parent))
                case "drawing":
                    found = list(find_drawings(parent))
                case _:
                    found = [child for child in shown_children(parent) if name_of(child) == kind]
            self.children[path, kind] = found
        return self.children[path, kind]

    def find_row_problem(self, facts: str, rows: Sequence[Element], number: int) -> str:
        """How a table line differs from its row, with merged cells repeated, or ""."""
        line, *rest = facts.split("\n")
        if rest and (number > 1 or len(rest) > 1 or set(rest[0]) - set("|- ")):
            return "the row has more than one line"
        cells = parse_row(line)
        for first, span, merged, cell in row_cells(rows[number - 1]):
            source = (
                self.text_above(rows, number, first)
                if merged
                else self.text_of(cell, labelled=True)
            )
            for column in range(first, first + span):
                if reason := _compare(cells[column], source):
                    return f"column {column + 1}: {reason}"
        return ""

    def text_above(self, rows: Sequence[Element], number: int, column: int) -> str:
        """The text of the first of the vertically merged cells in a column."""
        for row in reversed(rows[: number - 1]):
            covering = [
                (merged, cell)
                for first, span, merged, cell in row_cells(row)
                if first <= column < first + span
            ]
            if not covering:
                return ""
            if not covering[0][0]:
                return self.text_of(covering[0][1], labelled=True)
        return ""

    def label(self, paragraph: Element) -> str:
        """The printed number of a list item."""
        label: Label | None = self.labels.get(paragraph)
        return label.text if label else ""

    def text_of(self, element: Element, *, boxes: bool = True, labelled: bool = False) -> str:
        """All text that Word shows below an element."""
        return "".join(self._texts(element, boxes, labelled))

    def _texts(self, element: Element, boxes: bool, labelled: bool) -> Iterator[str]:
        paragraph = name_of(element) == "p"
        if labelled and paragraph:
            yield self.label(element)
        if paragraph:
            self.instructions |= field_instructions(element)
        children = list(shown_children(element))
        if name_of(element) == "ruby":  # the facts have the reading after its base
            children.reverse()
        for child in children:
            name = name_of(child)
            if name == "t":
                yield "" if child in self.instructions else child.text or ""
            elif name == "sym":
                yield symbol(child)
            elif name in ("fldChar", "textpath"):
                yield chosen_entry(child) + child.get("string", "")
            elif name not in SILENT and not (name == "r" and self.styles.hides(child)):
                yield from self._texts(child, boxes and not paragraph, labelled)
        # the text boxes of a paragraph follow it
        for box in text_boxes(element) if boxes and paragraph else ():
            yield from self._texts(box, True, labelled)


def _compare(facts: str, source: str) -> str:
    found, wanted = letters(without_marks(facts)), letters(without_marks(source))
    if found == wanted:
        return ""
    at = next(
        (i for i, (left, right) in enumerate(zip(found, wanted, strict=False)) if left != right),
        min(len(found), len(wanted)),
    )
    return (
        f"the facts say {found[max(0, at - 10) : at + 30]!r}, the file"
        f" {wanted[max(0, at - 10) : at + 30]!r}"
    )
