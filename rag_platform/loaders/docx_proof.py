"""Proof of DOCX facts: the letters of each block are compared with those that stand at its locator, read again in a way of its own."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from rag_platform.ir import Block
from rag_platform.loaders.docx import find_note, related_parts, structure
from rag_platform.loaders.docx_package import Element, Package, W, name_of, row_cells, shown, table_rows, text_boxes
from rag_platform.loaders.docx_styles import Label
from rag_platform.loaders.docx_text import symbol, without_marks
from rag_platform.loaders.pipe_tables import cells_of
from rag_platform.text.scripts import letters

STEP = re.compile(r"(p|tbl|tr|tc|txbx)\[(\d+)(?:-(\d+))?\]")

SILENT = ("txbxContent", "instrText", "delText", "pPr", "rPr", "sectPr", "tcPr", "tblPr")


def disproved(package: Package, text: str, blocks: Sequence[Block]) -> dict[int, str]:
    """Ordinal to reason for each block that the file does not prove; empty when it proves all."""
    source = _Source(package)
    bad: dict[int, str] = {}
    for block in blocks:
        try:
            reason = source.problem(text[block.start : block.end], block)
        except (LookupError, ValueError) as error:
            reason = f"nothing stands at {block.locator!r} ({error})"
        if reason:
            bad[block.ordinal] = reason
    return bad


class _Source:
    """The file, element by element."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.main, self.body, _, self.labels = structure(package)
        self.roots = {"body": self.body}
        for kind in ("header", "footer"):
            for part in related_parts(package, self.main, self.body, kind):
                self.roots[posixpath.splitext(posixpath.basename(part))[0]] = package.root(part)
        self.places: dict[str, list[Element]] = {}

    def problem(self, facts: str, block: Block) -> str:
        """Why the facts of a block are not what stands at its locator."""
        root, *steps = block.locator.split("/")
        if root in ("footnotes", "endnotes", "comments"):
            note = find_note(self.package, self.package.related(self.main, root), steps[0])
            if note is None:
                raise LookupError("no such note")
            return _compared(facts, (str(note.get(W + "author", "")) + self.said(note)))
        parent = self.container(root, steps[:-1])
        found = STEP.fullmatch(steps[-1])
        if found is None:
            raise ValueError("not a locator")
        kind, first, last = found[1], int(found[2]), int(found[3] or found[2])
        here = self.children(parent, kind, "/".join((root, *steps[:-1])))[first - 1 : last]
        if len(here) != last - first + 1:
            raise LookupError("too few elements")
        if kind == "tr" and block.kind == "table":
            return self.row_problem(facts, self.children(parent, "tr", "/".join((root, *steps[:-1]))), first)
        if block.kind == "code":
            facts = facts.removeprefix("```\n").removesuffix("\n```")
        labelled = block.kind in ("list", "heading")
        return _compared(facts, "".join((self.label(item) if labelled else "") + self.said(item, boxes=kind != "p") for item in here))

    def container(self, root: str, steps: Sequence[str]) -> Element:
        """The element that a path of steps leads to."""
        element, path = self.roots[root], root
        for step in steps:
            found = STEP.fullmatch(step)
            if found is None or found[3]:
                raise ValueError("not a locator")
            element = self.children(element, found[1], path)[int(found[2]) - 1]
            path = f"{path}/{step}"
        return element

    def children(self, element: Element, kind: str, path: str) -> list[Element]:
        """The elements of one kind in an element, counted as locators do; kept, because a long body is asked often."""
        key = f"{path}/{kind}"
        if key not in self.places:
            if kind == "tr":
                self.places[key] = table_rows(element)
            elif kind == "tc":
                self.places[key] = [cell for _, _, _, cell in row_cells(element)]
            elif kind == "txbx":
                self.places[key] = list(text_boxes(element))
            else:
                self.places[key] = [child for child in shown(element) if name_of(child) == kind]
        return self.places[key]

    def row_problem(self, facts: str, rows: Sequence[Element], number: int) -> str:
        """Why a line of a table does not read as the row of that number, cell by cell, merged cells repeated."""
        line, *rest = facts.split("\n")
        if rest and (number > 1 or len(rest) > 1 or set(rest[0]) - set("|- ")):
            return "the row has more than one line"
        cells = cells_of(line)
        for first, span, goes_on, cell in row_cells(rows[number - 1]):
            said = self.above(rows, number, first) if goes_on else self.said(cell, labelled=True)
            for column in range(first, first + span):
                if reason := _compared(cells[column], said):
                    return f"column {column + 1}: {reason}"
        return ""

    def above(self, rows: Sequence[Element], number: int, column: int) -> str:
        """What the first cell of a vertically merged column says."""
        for row in reversed(rows[: number - 1]):
            covering = [(goes_on, cell) for first, span, goes_on, cell in row_cells(row) if first <= column < first + span]
            if not covering:
                return ""
            if not covering[0][0]:
                return self.said(covering[0][1], labelled=True)
        return ""

    def label(self, paragraph: Element) -> str:
        """The printed number of a list item."""
        label: Label | None = self.labels.get(paragraph)
        return label.text if label else ""

    def said(self, element: Element, *, boxes: bool = True, labelled: bool = False) -> str:
        """Everything shown below an element, letter by letter."""
        return "".join(self._said(element, boxes, labelled))

    def _said(self, element: Element, boxes: bool, labelled: bool) -> Iterator[str]:
        paragraph = name_of(element) == "p"
        if labelled and paragraph:
            yield self.label(element)
        for child in shown(element):
            name = name_of(child)
            if name == "t":
                yield child.text or ""
            elif name == "sym":
                yield symbol(child)
            elif name not in SILENT:
                yield from self._said(child, boxes and not paragraph, labelled)
        for box in text_boxes(element) if boxes and paragraph else ():  # the text boxes of a paragraph follow it
            yield from self._said(box, True, labelled)


def _compared(facts: str, source: str) -> str:
    found, wanted = letters(without_marks(facts)), letters(without_marks(source))
    if found == wanted:
        return ""
    at = next((i for i, (left, right) in enumerate(zip(found, wanted, strict=False)) if left != right), min(len(found), len(wanted)))
    return f"the facts say {found[max(0, at - 10) : at + 30]!r}, the file {wanted[max(0, at - 10) : at + 30]!r}"
