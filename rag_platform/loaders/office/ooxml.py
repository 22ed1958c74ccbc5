"""The parts of an Office file, and the way through the XML of a Word document: what Word shows, in
document order.

The container is read with zipfile and lxml: python-docx refuses macro-enabled and strict files and
fails on a relationship without a part.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from rag_platform.errors import DocumentError

Element = Any  # an lxml element

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
D = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_SHOW = re.compile(
    rb"(presentationml|powerpoint)\.(?:slideshow|template)\.(?=(?:macro\w+\.)?main\+xml)"
)
# Wrappers whose content belongs to where they stand.
TRANSPARENT = {"ins", "moveTo", "smartTag", "customXml", "sdtContent", "fldSimple", "dir", "bdo"}
DELETED = {"del", "moveFrom"}


@dataclass(frozen=True, slots=True)
class Relation:
    """Where a relationship points: a part's name, or a URL."""

    kind: str  # image | hyperlink | header | footer | footnotes | ...
    target: str
    external: bool


@dataclass
class Package:
    """An opened file; parts are parsed once."""

    path: Path
    archive: zipfile.ZipFile = field(init=False)
    parsed: dict[str, Element] = field(default_factory=dict)

    def __enter__(self) -> Package:
        self.archive = zipfile.ZipFile(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        self.archive.close()

    def main_part(self) -> str:
        """The name of the document part. Raises DocumentError when there is none."""
        found = self.related_part("", "officeDocument") or "word/document.xml"
        if found not in self.archive.NameToInfo:
            raise DocumentError(
                "the file has no document part; open it in Word or LibreOffice and save it again",
                code="broken_file",
            )
        return found

    def root(self, name: str) -> Element:
        """The root element of a part, None for a missing one. Raises `broken_file`."""
        if name not in self.parsed:
            self.parsed[name] = self._parse(name) if name in self.archive.NameToInfo else None
        return self.parsed[name]

    def _parse(self, name: str) -> Element:
        from lxml import etree

        try:
            return parse_part(self.archive.read(name))
        except (
            etree.XMLSyntaxError,
            zipfile.BadZipFile,
            NotImplementedError,
            OSError,
            EOFError,
            ValueError,
        ) as error:
            raise DocumentError(
                f"its part {name} is damaged ({str(error)[:200]}); open it in Word or LibreOffice"
                " and save it again",
                code="broken_file",
            ) from error

    def relations(self, part: str) -> dict[str, Relation]:
        """Relationship id to target of a part; "" stands for the file itself."""
        folder, _, name = part.rpartition("/")
        root = self.root(posixpath.join(folder, "_rels", f"{name}.rels"))
        found: dict[str, Relation] = {}
        for item in root if root is not None else ():
            target, external = str(item.get("Target", "")), item.get("TargetMode") == "External"
            if not external:
                target = posixpath.normpath(posixpath.join("/" + folder, target)).lstrip("/")
            found[str(item.get("Id", ""))] = Relation(
                str(item.get("Type", "")).rpartition("/")[2], target, external
            )
        return found

    def related_part(self, part: str, kind: str) -> str:
        """The name of the part of that kind to which a part points, "" without one."""
        return next(
            (
                item.target
                for item in self.relations(part).values()
                if item.kind == kind and not item.external
            ),
            "",
        )


def parse_part(data: bytes) -> Element:
    """The root element of a part, with the usual names. Raises lxml's XMLSyntaxError."""
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True
    )
    return etree.fromstring(_as_transitional(data), parser)


def _as_transitional(data: bytes) -> bytes:
    """A part with the names that the usual form of the format has for its elements."""
    strict = b"purl.oclc.org/ooxml" in data[:20_000]
    return _STRICT.sub(rb"http://schemas.openxmlformats.org/\1/2006/", data) if strict else data


def open_plain(path: Path) -> BinaryIO:
    """The opened file, or a copy in memory where openpyxl and python-pptx take it for something
    else: one that Office saved as "Strict Open XML", a slide show, a template of slides.
    """
    with zipfile.ZipFile(path) as archive:
        names = {"_rels/.rels", "[Content_Types].xml"} & archive.NameToInfo.keys()
        heads = [archive.read(name) for name in names]
        if not any(_STRICT.search(head) or _SHOW.search(head) for head in heads):
            return open(path, "rb")
        return copy_parts(archive, lambda name, data: _SHOW.sub(rb"\1.presentation.", data))


def copy_parts(archive: zipfile.ZipFile, change: Callable[[str, bytes], bytes]) -> BinaryIO:
    """A copy of a file in memory, with the usual names and each part of XML changed."""
    copy = io.BytesIO()
    with zipfile.ZipFile(copy, "w") as written:
        for name in archive.NameToInfo:
            data = archive.read(name)
            if name.endswith((".xml", ".rels")):
                data = change(name, _as_transitional(data))
            written.writestr(name, data)
    copy.seek(0)
    return copy


def name_of(element: Element) -> str:
    """The local name of an element; empty for what is none."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: Element, path: str, name: str = "val") -> str | None:
    """An attribute of the element at a path of local names (`pPr/pStyle`), None if missing."""
    for step in path.split("/") if path else ():
        element = element.find(W + step)
        if element is None:
            return None
    value = element.get(W + name)
    return None if value is None else str(value)


def is_on(element: Element, path: str) -> bool:
    """True for an on/off property that is there and not off."""
    for step in path.split("/"):
        element = element.find(W + step)
        if element is None:
            return False
    return element.get(W + "val") not in ("0", "false", "off", "none")


def shown_children(element: Element) -> Iterator[Element]:
    """The children that Word shows: wrappers opened, one of alternatives, no deletions."""
    for child in element:
        name = name_of(child)
        if name in TRANSPARENT:
            yield from shown_children(child)
        elif name == "sdt":
            content = child.find(W + "sdtContent")
            yield from shown_children(content) if content is not None else ()
        elif name == "AlternateContent":
            branches = {name_of(branch): branch for branch in reversed(child)}
            branch = branches.get("Choice", branches.get("Fallback"))
            yield from shown_children(branch) if branch is not None else ()
        elif name not in DELETED and name:
            yield child


def field_instructions(paragraph: Element) -> set[Element]:
    """The texts of a paragraph that belong to the instruction of a field, as the result of one
    that stands in it: of `{ IF { MERGEFIELD sex } = "m" "Sir" "Madam" }` only the outer result is
    shown.
    """
    if next(paragraph.iter(f"{W}fldChar"), None) is None:
        return set()
    found: set[Element] = set()
    waiting: list[list[Element] | None] = []  # None: a field whose result has begun
    for item in _walk_runs(paragraph):
        kind = item.get(f"{W}fldCharType")
        if name_of(item) == "t":
            for texts in waiting:
                if texts is not None:
                    texts.append(item)
        elif kind == "begin":
            waiting.append([])
        elif kind in ("separate", "end") and waiting:
            found.update(waiting.pop() or ())
            if kind == "separate":
                waiting.append(None)
    return found


def _walk_runs(element: Element) -> Iterator[Element]:
    for child in shown_children(element):
        if name_of(child) in ("t", "fldChar"):
            yield child
        elif name_of(child) != "txbxContent":
            yield from _walk_runs(child)


def chosen_entry(field: Element) -> str:
    """What a drop-down list of a form shows, "" for other fields."""
    entries = [str(item.get(f"{W}val", "")) for item in field.iter(f"{W}listEntry")]
    lists = field.find(f"{W}ffData/{W}ddList")
    if lists is None:
        return ""
    chosen = attribute(lists, "result") or attribute(lists, "default") or "0"
    return entries[int(chosen)] if chosen.isdecimal() and int(chosen) < len(entries) else ""


def text_boxes(element: Element) -> Iterator[Element]:
    """The outermost text boxes below an element, in order."""
    for child in shown_children(element):
        if name_of(child) == "txbxContent":
            yield child
        else:
            yield from text_boxes(child)


def paragraphs_below(element: Element) -> Iterator[Element]:
    """Every shown paragraph below an element, also those in tables and text boxes."""
    for child in shown_children(element):
        if name_of(child) == "p":
            yield child
        yield from paragraphs_below(child)


def table_rows(table: Element) -> list[Element]:
    """The rows of a table that are not deleted."""
    return [
        row
        for row in shown_children(table)
        if name_of(row) == "tr" and row.find(f"{W}trPr/{W}del") is None
    ]


def row_cells(row: Element) -> list[tuple[int, int, bool, Element]]:
    """(first column, columns, goes on from the row above, cell) of each cell of a row."""
    column = _number(attribute(row, "trPr/gridBefore"), 0, 0)
    found: list[tuple[int, int, bool, Element]] = []
    for cell in shown_children(row):
        if name_of(cell) != "tc":
            continue
        span = _number(attribute(cell, "tcPr/gridSpan"), 1, 1)
        merge = cell.find(f"{W}tcPr/{W}vMerge")
        found.append((column, span, merge is not None and merge.get(W + "val") != "restart", cell))
        column += span
    return found


def _number(value: str | None, least: int, default: int) -> int:
    return max(least, min(int(value), 1000)) if value and value.isdecimal() else default
