"""The visible text of an HTML tree as Markdown pieces, each with its element: headings,
paragraphs, lists, tables, code.

Scripts, forms, comments and invisible elements are left out; what is main content is decided in
`html_main`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rag_platform.ir import HiddenText
from rag_platform.loaders.markup.html_inline import (
    HEADINGS,
    SKIPPED,
    Inline,
    hidden_reason,
    is_skipped,
    spans,
    unread_reason,
    visible,
)
from rag_platform.loaders.markup.html_references import SIGNATURES, find_signed_name, is_fields
from rag_platform.loaders.numerals import format_list_number
from rag_platform.loaders.parts import Image, Part, fence
from rag_platform.text import markdown_blocks
from rag_platform.text.entries import find_signed
from rag_platform.text.markdown_blocks import is_box_label
from rag_platform.text.scripts import letters

if TYPE_CHECKING:
    from lxml.etree import _Element

PARAGRAPHS = {"p", "dt", "summary", "figcaption", "caption", "address", "legend"}
PREFORMATTED = {"pre", "xmp", "listing", "plaintext"}
LISTS = {"ul", "ol", "menu", "dir"}
BLOCKS = (
    HEADINGS
    | PARAGRAPHS
    | PREFORMATTED
    | LISTS
    | set(
        "article aside blockquote body center dd details div dl fieldset figure footer form header"
        " hgroup hr li main nav search section table tbody td tfoot th thead tr".split()
    )
)
_PARTS = {
    "table": {"caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr"},
    "tr": {"td", "th"},
}
MAX_DEPTH = 120  # of nested elements; deeper ones are read as running text
MAX_INNER_LETTERS = 2_000  # of a cell with a table; with more, the outer table is only page layout
MAX_REPEATS = 20_000  # places in one table in which merged cells are repeated
_NUMBER_FORMS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language|lang|highlight|highlight-source|brush:)[- ]([A-Za-z0-9+#]{1,20})(?=\s|$)"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """One block of the page: its Markdown and its element."""

    kind: str  # as ir.Block.kind
    text: str
    element: _Element
    # first and last child node, from 1, of a piece that is only a part of the element
    nodes: tuple[int, int] | None = None
    level: int = 0
    title: str = ""
    images: tuple[Image, ...] = ()


@dataclass(eq=False)
class Page:
    """A parsed page; `pieces` are its blocks in order."""

    root: _Element
    notes: list[str] = field(default_factory=list)

    @classmethod
    def with_title(cls, root: _Element) -> Page:
        """A page of its own, not a part of a book or mail: its title is of level 1, if it has a
        single outermost heading. What is hidden, or navigation, has none.
        """
        page = cls(root)
        levels = [piece.level for piece in page.pieces if piece.level]
        outermost = min(levels, default=1)
        if outermost > 1 and levels.count(outermost) == 1 < len(levels):
            by = outermost - 1
            page.pieces = [
                replace(piece, text=piece.text[by:], level=piece.level - by)
                if piece.level
                else piece
                for piece in page.pieces
            ]
        return page

    @cached_property
    def pieces(self) -> list[Piece]:
        """Every block of the body in document order; each visible character is in exactly one."""
        body = self.root if self.root.tag == "body" else self.root.find("body")
        return [] if body is None else list(self._read_flow(body, 0))

    @cached_property
    def hidden(self) -> tuple[HiddenText, ...]:
        """Invisible text, and visible text that is not content, in document order."""
        found: list[HiddenText] = []
        remaining = [self.root]
        while remaining:
            element = remaining.pop()
            if not isinstance(element.tag, str):
                continue
            hidden = "" if element.tag in SKIPPED else hidden_reason(element)
            reason = hidden or unread_reason(element)
            if reason and (text := " ".join(visible(element).split())):
                found.append(HiddenText(0, reason, text))
            if not hidden and element.tag not in SKIPPED:
                remaining.extend(reversed(element))
        return tuple(found)

    @cached_property
    def source_texts(self) -> list[str]:
        """For each piece its visible text, read from the tree without making Markdown."""
        siblings: dict[_Element, list[_Element | str]] = {}
        texts: list[str] = []
        for piece in self.pieces:
            if piece.nodes is None:
                texts.append(visible(piece.element, preformatted=piece.kind == "code"))
                continue
            if piece.element not in siblings:
                siblings[piece.element] = list(nodes_of(piece.element))
            first, last = piece.nodes
            taken = siblings[piece.element][first - 1 : last]
            texts.append("".join(map(_read_node, taken)))
        return texts

    @cached_property
    def letters(self) -> list[str]:
        """For each piece its letters and digits, read from the tree."""
        return list(map(letters, self.source_texts))

    @cached_property
    def linked(self) -> dict[_Element, int]:
        """Element of a piece to the number of its letters in links."""
        return {
            element: sum(
                len(letters(visible(link))) for link in element.iter("a") if link.get("href")
            )
            for element in {piece.element for piece in self.pieces}
        }

    @cached_property
    def _kinds_below(self) -> dict[_Element, set[str]]:
        """Element to the kinds of blocks below it: `block` for any, `heading`, `pre`, `table`."""
        below: dict[_Element, set[str]] = {}
        for element in reversed(list(self.root.iter())):
            tag, parent = element.tag, element.getparent()
            if parent is None or is_skipped(element):
                continue
            kinds = set(below.get(element, ()))
            if tag in BLOCKS:
                kinds.add("block")
            if tag in HEADINGS:
                kinds.add("heading")
            if tag in PREFORMATTED:
                kinds.add("pre")
            if tag == "table":
                kinds.add("table")
            if kinds:
                below.setdefault(parent, set()).update(kinds)
        return below

    @cached_property
    def _numbers(self) -> dict[_Element, str]:
        """Element to its step in an XPath, with a number if its parent has several of its name."""
        steps: dict[_Element, str] = {}
        for parent in self.root.iter():
            groups: dict[Any, list[_Element]] = {}
            for child in parent:
                groups.setdefault(child.tag, []).append(child)
            for tag, group in groups.items():
                if isinstance(tag, str):
                    for number, child in enumerate(group, 1):
                        steps[child] = tag if len(group) == 1 else f"{tag}[{number}]"
        return steps

    def path(self, element: _Element) -> str:
        """The XPath of an element, as browsers and lxml write it."""
        steps = [
            self._numbers[item]
            for item in [element, *element.iterancestors()]
            if item is not self.root
        ]
        return "/".join(["", str(self.root.tag), *reversed(steps)])

    def locator(self, piece: Piece) -> str:
        """`xpath=/html/body/p[3]`, with `;nodes=2-4` for some child nodes of the element."""
        nodes = f";nodes={piece.nodes[0]}-{piece.nodes[1]}" if piece.nodes else ""
        return f"xpath={self.path(piece.element)}{nodes}"

    def by_locator(self, place: str) -> dict[str, tuple[Piece, str]]:
        """Locator, preceded by `place`, to each piece and its letters."""
        both = zip(self.pieces, self.letters, strict=True)
        return {place + self.locator(piece): (piece, source) for piece, source in both}

    def parts(
        self, pieces: Iterable[Piece], place: str = "", find: Callable[[str], str] = str
    ) -> Iterator[Part]:
        """The pieces as parts of facts; `place` precedes the XPath, `find` maps image addresses."""
        for piece in pieces:
            images = [replace(image, target=find(image.target)) for image in piece.images]
            locator = f"{place};{self.locator(piece)}" if place else self.locator(piece)
            yield Part(piece.kind, piece.text, locator, piece.level, piece.title, images)

    # --- walking ---------------------------------------------------------------------------------

    def _read_flow(self, element: _Element, depth: int) -> Iterator[Piece]:
        """The pieces of a container: its blocks, and the runs of text between them."""
        run, first, last = Inline(), 0, 0
        number = 0

        def end_run() -> Iterator[Piece]:
            if text := run.text():
                whole = "block" not in self._kinds_below.get(element, ())
                yield Piece(
                    "paragraph",
                    text,
                    element,
                    None if whole else (first, last),
                    images=tuple(run.images),
                )

        for node in nodes_of(element):
            number += 1
            if (
                not isinstance(node, str)
                and not is_skipped(node)
                and (node.tag in BLOCKS or "block" in self._kinds_below.get(node, ()))
            ):
                yield from end_run()
                run, first = Inline(), 0
                yield from self._read_block(node, depth + 1)
                continue
            before = run.size
            run.add(node)
            if run.size > before:
                first, last = first or number, number
        yield from end_run()

    def _read_block(self, element: _Element, depth: int) -> Iterator[Piece]:
        tag, below = str(element.tag), self._kinds_below.get(element, set())
        if depth > MAX_DEPTH:
            self.note("elements nested deeper than 120 are read as running text")
            yield from self._read_inline("paragraph", element)
        elif tag in HEADINGS:
            level = 0 if is_box_label(visible(element)) else int(tag[1])
            yield from self._read_inline("heading" if level else "paragraph", element, level)
        elif pieces := self._read_generated(element, depth):
            yield from pieces
        elif tag in PREFORMATTED:
            yield from _read_code(element)
        elif tag in LISTS and "heading" not in below:
            yield from self._read_list(element, depth)
        elif tag == "blockquote":
            yield from self._compose(
                "paragraph", element, list(self._read_flow(element, depth)), "> ", "> "
            )
        elif tag == "table":
            yield from self._read_table(element, depth)
        elif tag in PARAGRAPHS and "block" not in below:
            yield from self._read_inline(
                "caption" if tag in ("figcaption", "caption") else "paragraph", element
            )
        elif tag != "hr":
            yield from self._read_flow(element, depth)

    def _read_generated(self, element: _Element, depth: int) -> list[Piece]:
        """A signature as Doxygen, TypeDoc and Sphinx write it, fields of Sphinx, or the title of a
        page of Doxygen; empty for other elements. The title is often the only place where a page
        names its class or file.
        """
        names, above = (element.get("class") or "").split(), element.getparent()
        if element.tag == "dl" and (is_fields(element) or is_fields(above)):
            read = self._read_fields if is_fields(element) else self._read_definitions
            return list(read(element, depth))
        if find_signed_name(element) is not None:
            run = Inline(one_line=True)
            run.open("**")
            run.write_code(" ".join(visible(element).split()))
            run.close("**", "**")
            return [Piece("paragraph", run.text(), element)]
        if not SIGNATURES.isdisjoint(names):
            by_line = visible(element, preformatted=True).replace("\xa0", " ")
            one_line = " ".join(visible(element).split())
            signature = one_line if element.find(".//br") is None else by_line.strip()
            return [Piece("code", fence(signature), element)]
        words = " ".join((element.text or "").split())
        if names != ["title"] or above is None or above.get("class") != "headertitle" or not words:
            return []
        title, *rest = self._read_flow(element, depth)
        text = f"# {title.text}"
        return [replace(title, kind="heading", text=text, level=1, title=words), *rest]

    def _read_fields(self, fields: _Element, depth: int) -> Iterator[Piece]:
        """The fields below a signature: `Returns: text`, or `Parameters:` above a list."""
        term, begins = Piece("paragraph", "", fields), 0
        for number, node in enumerate(nodes_of(fields), 1):
            if isinstance(node, str) or is_skipped(node):
                continue
            if node.tag == "dt":
                name = " ".join(visible(node).split()).removesuffix(":")
                term, begins = Piece("paragraph", f"{name}:", node), number
                continue
            content = list(self._read_flow(node, depth + 1))
            if [piece.kind for piece in content] == ["paragraph"]:
                field = _join(term, " ", content[0])
                yield replace(field, element=fields, nodes=(begins, number))
            else:
                yield from [term, *content]

    def _read_definitions(self, element: _Element, depth: int) -> Iterator[Piece]:
        """One list for the terms of a definition list and what explains them."""
        items: list[list[Piece]] = []
        for node in element:
            content = [] if is_skipped(node) else list(self._read_flow(node, depth + 1))
            if node.tag == "dt" or not items:
                items.append(content)
            elif content and items[-1] and content[0].kind == "paragraph":
                items[-1][-1:] = [_join(items[-1][-1], " – ", content[0]), *content[1:]]
            else:
                items[-1] += content
        yield from self._join_items(element, ((content, "- ") for content in items))

    def _read_inline(self, kind: str, element: _Element, level: int = 0) -> Iterator[Piece]:
        strong = not level and element.tag in ("dt", "summary", *HEADINGS)
        run = Inline(one_line=strong or kind == "heading", italics=not strong)
        words = " ".join(visible(element).split()) if level else ""
        if level:
            run.write("#" * level + " ")
        if find_signed(words):
            run.write_code(words)
            yield Piece(kind, run.text(), element, level=level, title=words)
            return
        if strong:
            run.open("**")
        for node in nodes_of(element):
            run.add(node)
        if strong:
            run.close("**", "**")
        if run.written:
            yield Piece(
                kind,
                run.text(),
                element,
                level=level,
                title=words,
                images=tuple(run.images),
            )

    def _read_list(self, element: _Element, depth: int) -> Iterator[Piece]:
        """One piece for a list with everything nested in it."""
        items: list[tuple[list[Piece], str]] = []
        for node, marker in _mark_items(element):
            if isinstance(node, str):
                words = " ".join(node.split())
                content = [Piece("paragraph", words, element)] if words else []
            elif node.tag in LISTS:
                content = list(self._read_block(node, depth + 1))
            else:
                content = list(self._read_flow(node, depth + 1))
            items.append((content, marker))
        yield from self._join_items(element, items)

    def _join_items(
        self, element: _Element, items: Iterable[tuple[Sequence[Piece], str]]
    ) -> Iterator[Piece]:
        """One piece for the items of a list, each with its marker."""
        text, images = "", []
        for content, marker in items:
            for item in self._compose("list", element, content, marker, " " * len(marker)):
                text += "\n" if text else ""
                images += [image.move(len(text)) for image in item.images]
                text += item.text
        if text:
            yield Piece("list", text, element, images=tuple(images))

    def _compose(
        self, kind: str, element: _Element, parts: Sequence[Piece], first: str, rest: str
    ) -> Iterator[Piece]:
        """The pieces joined to one; its first line gets the prefix `first`, the others `rest`."""
        text, images = "", []
        for part in parts:
            text += "" if not text else "\n" if part.kind == "list" else "\n\n"
            images += [image.move(len(text)) for image in part.images]
            text += part.text
        if text:
            lines = text.split("\n")
            prefixed = [
                first + lines[0],
                *(rest + line if line else rest.rstrip() for line in lines[1:]),
            ]
            added = [0]
            for before, after in zip(lines, prefixed, strict=True):
                added.append(added[-1] + len(after) - len(before))
            moved = [image.move(added[text.count("\n", 0, image.start) + 1]) for image in images]
            yield Piece(kind, "\n".join(prefixed), element, images=tuple(moved))

    def _read_table(self, element: _Element, depth: int) -> Iterator[Piece]:
        """A table of data; what is in the cells of a note, and of a table for layout."""
        if cells := _find_box_cells(element):
            for cell in cells:
                yield from self._read_flow(cell, depth + 1)
        elif _is_data_table(element, self._kinds_below.get(element, set())):
            yield from self._read_rows(element, depth)
        else:
            yield from self._read_flow(element, depth)

    def _read_rows(self, element: _Element, depth: int) -> Iterator[Piece]:
        """The caption, then the rows as a pipe table; merged cells are repeated in their spans."""
        for caption in element.findall("caption"):
            yield from self._read_block(caption, depth + 1)
        rows = [
            [cell for cell in row if cell.tag in ("td", "th") and not is_skipped(cell)]
            for row in _find_rows(element)
        ]
        grid, repeated = _build_grid(rows)
        if not repeated:
            self.note(
                f"a table's merged cells would stand in more than {MAX_REPEATS} further places;"
                " they are not spelled out"
            )
        text, images = "", []
        written: dict[_Element, Inline] = {}
        for number, row in enumerate(grid):
            text += "\n" if text else ""
            for place in row:
                text += "| "
                if place is not None:
                    cell, is_repeat = place
                    run = written.get(cell) or _write_cell(cell)
                    written[cell] = run
                    if not (is_repeat and run.images):  # an image is shown once
                        images += [image.move(len(text)) for image in run.images]
                        text += run.text()
                text += " "
            text += "|"
            if number == 0:
                text += "\n" + markdown_blocks.format_rule(len(row))
        if re.search(r"[^|\s-]", text):
            yield Piece("table", text, element, images=tuple(images))

    def note(self, note: str) -> None:
        """Add a warning, unless it was added before."""
        if note not in self.notes:
            self.notes.append(note)


def _join(piece: Piece, gap: str, other: Piece) -> Piece:
    """Two pieces in one line."""
    text = f"{piece.text}{gap}"
    images = (*piece.images, *(image.move(len(text)) for image in other.images))
    return replace(piece, text=text + other.text, images=images)


def _mark_items(element: _Element) -> Iterator[tuple[_Element | str, str]]:
    """Each child node of a list with its bullet or number, counted as in the HTML standard (4.4.5);
    a list directly in a list is only indented.
    """
    ordered, down = element.tag == "ol", element.get("reversed") is not None
    items = sum(child.tag not in LISTS and not is_skipped(child) for child in element)
    number = _whole_number(element.get("start"), items if down else 1)
    form = _NUMBER_FORMS.get(element.get("type") or "", "decimal")
    for node in nodes_of(element):
        if not isinstance(node, str) and is_skipped(node):
            continue
        if not isinstance(node, str) and node.tag in LISTS:
            yield node, "   " if ordered else "  "
            continue
        if not isinstance(node, str):
            number = _whole_number(node.get("value"), number)
        if not ordered:
            yield node, "- "
        else:
            # Markdown has only numbers in digits, from 0
            plain = form == "decimal" and number >= 0
            yield node, f"{number}. " if plain else f"- {format_list_number(number, form)}. "
        if not isinstance(node, str):
            number += -1 if down else 1


def _whole_number(value: str | None, default: int) -> int:
    """The integer value of an attribute, of at most eight digits."""
    found = re.fullmatch(r"\s*([-+]?\d{1,8})\s*", value or "", re.ASCII)
    return int(found[1]) if found else default


def _read_node(node: _Element | str) -> str:
    return node if isinstance(node, str) else "" if is_skipped(node) else visible(node)


def nodes_of(element: _Element) -> Iterator[_Element | str]:
    """The child nodes as XPath counts them: texts, elements and comments."""
    if element.text:
        yield element.text
    for child in element:
        yield child
        if child.tail:
            yield child.tail


def _read_code(element: _Element) -> Iterator[Piece]:
    content = visible(element, preformatted=True).rstrip()
    content = content.removeprefix("\n") if content.startswith("\n") else content
    if not content.strip():
        return
    names = " ".join(
        str(item.get("class", ""))
        for item in (element.getparent(), element, *element.findall("code"))
        if item is not None
    )
    language = found.group(1) if (found := _LANGUAGE.search(names)) else ""
    yield Piece("code", fence(content, language), element)


def _find_box_cells(table: _Element) -> list[_Element]:
    """The cells of a note that is drawn as a table: its title and its text, without the icon beside
    them; [] for any other table.
    """
    rows = [[cell for cell in row if cell.tag in ("td", "th")] for row in _find_rows(table)]
    icon, *cells = [cell for row in rows for cell in row] or [table]
    parts = [table, *table.iterchildren("thead", "tbody", "tfoot"), *_find_rows(table)]
    has_more = table.find("caption") is not None or any(map(_has_strays, parts))
    if has_more or [len(row) for row in rows] != [2, *[1] * (len(rows) - 1)]:
        return []
    if "icon" in icon.get("class", "").split():  # its words are the title where it has no picture
        return [icon, *cells]
    is_icon = icon.find(".//img") is not None and not letters(visible(icon))
    return cells if is_icon and spans(icon)[1] == len(rows) > 1 else []


def _is_data_table(table: _Element, below: set[str]) -> bool:
    """False for a table that is only page layout: it contains headings, code or unrelated tables,
    has one column, or has text outside its cells.
    """
    if (
        table.get("role") in ("presentation", "none")
        or below & {"heading", "pre"}
        or ("table" in below and not _keeps_tables(table))
    ):
        return False
    if any(_has_strays(part) for part in table.iter("table", "thead", "tbody", "tfoot", "tr")):
        return False
    widths = [sum(cell.tag in ("td", "th") for cell in row) for row in _find_rows(table)]
    return max(widths, default=0) > 1


def _keeps_tables(table: _Element) -> bool:
    """True for a data table with small tables in its cells: its columns or rows have names."""
    rows = [[cell for cell in row if cell.tag in ("td", "th")] for row in _find_rows(table)]
    cells = [cell for row in rows for cell in row]
    nesting = {cell for cell in cells if cell.find(".//table") is not None}
    if any(len(letters(visible(cell))) > MAX_INNER_LETTERS for cell in nesting):
        return False
    if table.find("caption") is not None or any(cell.tag == "th" for cell in cells):
        return True
    named = all(row and row[0] not in nesting and visible(row[0]).strip() for row in rows)
    return named and len(rows) > 1 and len({len(row) for row in rows}) == 1


def _has_strays(part: _Element) -> bool:
    """True if a part of a table has text outside its cells, or a child that no table has."""
    texts = [part.text, *(child.tail for child in part)]
    known = _PARTS.get(str(part.tag), {"tr"})
    return any(text and text.strip() for text in texts) or any(
        child.tag not in known and not is_skipped(child) for child in part
    )


def _find_rows(table: _Element) -> Iterator[_Element]:
    for child in table:
        if child.tag == "tr":
            yield child
        elif child.tag in ("thead", "tbody", "tfoot") and not is_skipped(child):
            yield from (row for row in child if row.tag == "tr")


Place = tuple[Any, bool] | None  # (cell, True if it begins in another row or column)


def _write_cell(cell: _Element) -> Inline:
    run = Inline(one_line=True, cell=True)
    for node in nodes_of(cell):
        run.add(node)
    return run


def _build_grid(rows: Sequence[Sequence[_Element]]) -> tuple[list[list[Place]], bool]:
    """(the cell at each row and column, False if merged cells are too many to be repeated).

    Columns in which no cell starts are left out. The first row is as wide as the table, the others
    end with their last cell.
    """
    filled: list[dict[int, tuple[Any, bool]]] = [{} for _ in rows]
    width, repeats, repeated = 0, 0, True
    for number, row in enumerate(rows):
        column = 0
        for cell in row:
            while column in filled[number]:
                column += 1
            width = max(width, column + 1)
            across, down = spans(cell)
            down = min(down or len(rows), len(rows) - number)
            if repeats + across * down - 1 > MAX_REPEATS:
                across, down, repeated = 1, 1, False
            repeats += across * down - 1
            for y in range(number, number + down):
                for x in range(column, column + across):
                    filled[y].setdefault(x, (cell, x > column or y > number))
            column += across
    lines = []
    for places in filled:
        columns = range(min(width, max(places, default=-1) + 1))
        if line := [places.get(column) for column in columns]:
            lines.append(line)
    if lines:
        lines[0] += [None] * (width - len(lines[0]))
    return lines, repeated
