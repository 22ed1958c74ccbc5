"""PowerPoint presentations: the titles, texts, tables, images and notes of each slide, in reading
order.

Locators are `slide=3;shape=5` (slides count from 1, shapes have their ids in the file, `5.2` is the
second shape with the id 5), `slide=3` for the heading of a slide without a title, and
`slide=3;notes` or `slide=3;comments`. The proof reads the slide's XML without python-pptx.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts
from rag_platform.loaders.archives import ZipLoader, reject_damaged
from rag_platform.loaders.numerals import format_list_number
from rag_platform.loaders.office import drawings
from rag_platform.loaders.office.docx_text import M, math_text
from rag_platform.loaders.office.ooxml import A, C, D, Package, R, open_plain, parse_part
from rag_platform.loaders.parts import Engine, Image, Part, join_parts, joined_facts, list_mark
from rag_platform.text.markdown_blocks import LINK_TARGET
from rag_platform.text.scripts import letters
from rag_platform.traits import Traits

_PROPERTIES = "title author subject keywords created modified".split()
MAX_SLIDES = 5_000
MAX_DEPTH = 16  # of nested groups
_RUNNING = {"SLIDE_NUMBER", "DATE", "FOOTER", "HEADER"}
_LISTS = {"BODY", "OBJECT", "VERTICAL_BODY", "VERTICAL_OBJECT"}
_LINE_SPECIAL = re.compile(r"#{1,6}(?=\s|$)|`{3}|~{3}|>")
P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_CONTAINERS = {f"{P}spTree", f"{P}grpSp", f"{A}p"}  # of shapes and of text
_FORMULA = "{http://schemas.microsoft.com/office/drawing/2010/main}m"
_CHART_OF_2016 = "http://schemas.microsoft.com/office/drawing/2014/chartex"
# the format of an automatic number by the start of its type, the punctuation by the end
_NUMBERS = {
    "arabic": "decimal",
    "alphaLc": "lowerLetter",
    "alphaUc": "upperLetter",
    "romanLc": "lowerRoman",
    "romanUc": "upperRoman",
    "circleNum": "decimalEnclosedCircle",
    "ea1": "chineseCounting",
}
_MARKS = {"ParenBoth": ("(", ")"), "ParenR": ("", ")"), "Period": ("", "."), "Minus": ("-", "-")}
_INSETS = 91_440, 45_720  # default lIns and tIns of a text, in EMU: ECMA-376 21.1.2.1.1
_TRUE = ("1", "true")
_IMAGE = re.compile(r"!\[((?:[^\[\]\\]|\\.)*)\]\([^)]*\)")


@dataclass(frozen=True)
class SlidesLoader(ZipLoader):
    """Reads presentations, also their hidden slides, with a warning; macros are never run."""

    SUFFIXES: ClassVar[tuple[str, ...]] = (".pptx", ".pptm", ".potx", ".ppsx")
    NAME: ClassVar[str] = "pptx"
    VERSION: ClassVar[str] = "11"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def load(self, path: Path, filename: str) -> Facts:
        """Raises `broken_file`, `encrypted`, `archive_bomb`, `too_large`, `empty_file`."""
        self.require(path, ".pptx")
        import pptx

        reading = _Reading()
        with reject_damaged("the presentation cannot be read", "open and save it again"):
            with Package(path) as package, open_plain(path) as opened:
                presentation = pptx.Presentation(opened)
                metadata = package.properties(_PROPERTIES)
            joined = join_parts(
                reading.parts(presentation), "no slide holds text or a picture; nothing to index"
            )
        title = joined.choose_title(str(metadata.pop("title", "")), filename)
        metadata["slides"] = len(presentation.slides)
        engine = Engine("python-pptx", pptx.__version__, "slides")
        return joined_facts(self, engine, joined, title, metadata, reading.warnings())

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block whose letters differ from its slide's XML."""
        self.require(path, ".pptx")
        bad: dict[int, str] = {}
        with Package(path) as package:
            source = _Source(package)
            for block in blocks:
                printed = source.text_at(block.locator, numbered=block.kind != "heading")
                facts = _without_targets(_IMAGE.sub(r"\1", text[block.start : block.end]))
                if printed is None:
                    bad[block.ordinal] = f"the file has nothing at {block.locator}"
                elif letters(facts) != letters(printed):
                    bad[block.ordinal] = f"the file has different text at {block.locator}"
        return bad


def _without_targets(text: str) -> str:
    """The text without link targets and images."""
    return LINK_TARGET.sub("]", _IMAGE.sub("", text))


# --- reading ------------------------------------------------------------------------------------


@dataclass
class _Reading:
    """Makes the parts of a presentation, and counts what it leaves out."""

    hidden: list[int] = field(default_factory=list)  # numbers of hidden slides
    hidden_shapes: int = 0
    charts: int = 0
    added: int = 0  # letters in the parts of a slide that its XML does not have, or has only once
    left_out: dict[int, int] = field(default_factory=dict)  # slide number to unread letters
    names: dict[Any, str] = field(default_factory=dict)  # shape to its id, for one slide

    def warnings(self) -> list[str]:
        """What was left out, and which hidden slides were read."""
        found = [f"charts that were not read: {self.charts}"] if self.charts else []
        found += [
            f"slide {number}: letters in formulas or other objects that were not read: {count}"
            for number, count in self.left_out.items()
        ]
        if self.hidden_shapes:
            found.append(f"hidden shapes left out: {self.hidden_shapes}")
        if self.hidden:
            found.append(f"hidden slides were read too: {', '.join(map(str, self.hidden))}")
        return found

    def parts(self, presentation: Any) -> Iterator[Part]:
        """The parts of all slides in order."""
        if len(presentation.slides) > MAX_SLIDES:
            raise DocumentError(
                f"{len(presentation.slides)} slides, above {MAX_SLIDES}; split the presentation",
                code="too_large",
            )
        for number, slide in enumerate(presentation.slides, 1):
            if slide._element.get("show") in ("0", "false"):
                self.hidden.append(number)
            yield from self._read_slide(slide, number)

    def _read_slide(self, slide: Any, number: int) -> Iterator[Part]:
        _open_alternatives(slide._element)
        title = slide.shapes.title
        if title is not None and not title.has_text_frame:  # it is a picture
            title = None
        hidden = [item for item in slide._element.iter() if _is_hidden(item)]
        self.hidden_shapes += len(hidden)
        self.added = 0
        self.names = dict(_name_shapes(slide._element))
        lines = title.text_frame.paragraphs if title is not None else ()
        heading = " ".join(filter(None, (_read_line(line, linked=False) for line in lines)))
        parts = self._read_shapes(slide.shapes, number, title, 0)
        if heading and title is not None:
            place = f"slide={number};shape={self.names[title._element]}"
            yield Part("heading", f"# {heading}", place, 1, heading)
        elif parts:
            yield Part("heading", f"# Slide {number}", f"slide={number}", 1, f"Slide {number}")
        yield from parts
        unread = self.added + len(letters(_raw_text(slide._element))) - len(letters(heading))
        unread -= sum(len(letters(_raw_text(shape))) for shape in hidden)
        unread -= sum(len(letters(_without_targets(part.text))) for part in parts)
        if unread > 0:
            self.left_out[number] = unread
        notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        if lines := [
            line
            for paragraph in (notes.paragraphs if notes is not None else ())
            for line in "".join(_read_pieces(paragraph, linked=False)).splitlines()
            if line.strip()
        ]:
            quoted = "\n".join(f"> {line.strip()}" for line in lines)
            yield Part("paragraph", quoted, f"slide={number};notes")
        for relation in slide.part.rels.values():
            if relation.reltype.endswith("/comments"):
                comments = read_comments(parse_part(relation.target_part.blob))
                text = "\n".join(f"> {line}" for line in comments)
                yield from [Part("paragraph", text, f"slide={number};comments")] if text else []

    def _read_shapes(self, shapes: Any, number: int, title: Any, depth: int) -> list[Part]:
        """The parts of a slide's or group's shapes in reading order, headers and footers last."""
        found = [(shape, list(self._read_shape(shape, number, title, depth))) for shape in shapes]
        found = [(shape, parts) for shape, parts in found if parts]
        boxes = [_Box.of(shape, parts) for shape, parts in found if not _is_running(shape)]
        if _reads_leftwards(shapes):
            boxes = [replace(box, left=-box.right, right=-box.left) for box in boxes]
        last = [part for shape, parts in found if _is_running(shape) for part in parts]
        return [part for box in _sort_by_reading(boxes) for part in box.parts] + last

    def _read_shape(self, shape: Any, number: int, title: Any, depth: int) -> Iterator[Part]:
        if (title is not None and shape._element is title._element) or _is_hidden(shape._element):
            return
        place = f"slide={number};shape={self.names.get(shape._element, '')}"
        if hasattr(shape, "shapes"):
            if depth < MAX_DEPTH:
                yield from self._read_shapes(shape.shapes, number, title, depth + 1)
        elif getattr(shape, "has_table", False):
            rows, repeated = _read_table(shape.table)
            self.added += repeated
            yield from _make_table(rows, place)
        elif getattr(shape, "has_chart", False):
            rows = drawings.read_chart(shape.chart._chartSpace)
            self.charts += not rows
            self.added += sum(len(letters(words)) for row in rows for words in row)
            yield from _make_table(rows, place)
        elif (diagram := next(shape._element.iter(f"{D}relIds"), None)) is not None:
            relation = shape.part.rels.get(diagram.get(f"{R}dm"))
            model = parse_part(relation.target_part.blob) if relation else None
            lines = drawings.read_diagram(model) if model is not None else []
            self.added += sum(len(letters(words)) for _, words in lines)
            yield from [Part("list", drawings.format_lines(lines), place)] if lines else []
        elif shape._element.tag == f"{P}pic":
            yield from _read_image(shape, place)
        elif shape.has_text_frame:
            yield from self._read_paragraphs(shape, place)
        elif next(shape._element.iter(f"{A}graphicData"), shape._element).get("uri", "") == (
            _CHART_OF_2016
        ):
            self.charts += 1

    def _read_paragraphs(self, shape: Any, place: str) -> Iterator[Part]:
        """The paragraphs of a shape as one part: a list if its placeholder is one, or if paragraphs
        are indented or numbered.
        """
        kind = _placeholder(shape)
        paragraphs = shape.text_frame.paragraphs
        numbers = _number_paragraphs(shape._element)
        lines = [
            (paragraph.level, numbers.get(paragraph._p, ""), words)
            for paragraph in paragraphs
            if (words := _read_line(paragraph))
        ]
        self.added += sum(len(letters(number)) for _, number, _ in lines)
        listed = any(level or number for level, number, _ in lines)
        if not lines:
            return
        if (len(lines) > 1 and kind in _LISTS) or (listed and (len(lines) > 1 or lines[0][1])):
            text = "\n".join(
                f"{'    ' * level}{list_mark(number)} {words}" for level, number, words in lines
            )
            yield Part("list", text, place)
            return
        texts = [f"\\{words}" if _LINE_SPECIAL.match(words) else words for _, _, words in lines]
        yield Part("footer" if kind in _RUNNING else "paragraph", "\n\n".join(texts), place)


# --- reading order ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Box:
    """The area of a shape's text in EMU: the shape without its insets, so that shapes of which only
    the insets overlap are separate. A shape without a position covers the whole slide.
    """

    left: float
    top: float
    right: float
    bottom: float
    parts: list[Part]

    @classmethod
    def of(cls, shape: Any, parts: list[Part]) -> _Box:
        from pptx.exc import InvalidXmlError

        try:
            left, top, width, height = shape.left, shape.top, shape.width, shape.height
        except InvalidXmlError:  # a graphic without a position
            left = top = width = height = None
        if None in (left, top, width, height):
            return cls(-math.inf, -math.inf, math.inf, math.inf, parts)
        x, y = min(_INSETS[0], width / 2), min(_INSETS[1], height / 2)
        return cls(left + x, top + y, left + width - x, top + height - y, parts)

    def precedes(self, other: _Box) -> bool:
        """True for a box above the other and not right of it, and for a box left of the other that
        begins above its middle. Of two overlapping boxes neither precedes the other.
        """
        return (self.bottom <= other.top and self.left < other.right) or (
            self.right <= other.left and self.top * 2 < other.top + other.bottom
        )


def _sort_by_reading(boxes: list[_Box]) -> list[_Box]:
    """The boxes in the order in which they are drawn, but each of them after the boxes that precede
    it by their position.
    """
    before = {
        at: {other for other, found in enumerate(boxes) if found.precedes(box)}
        for at, box in enumerate(boxes)
    }
    ordered = []
    while before:
        at = next((at for at, others in before.items() if not others), next(iter(before)))
        del before[at]
        for others in before.values():
            others.discard(at)
        ordered.append(boxes[at])
    return ordered


def _is_running(shape: Any) -> bool:
    return _placeholder(shape) in _RUNNING


def _reads_leftwards(shapes: Any) -> bool:
    """True if most paragraphs with text are set from right to left."""
    lines = [line for line in shapes._element.iter(f"{A}p") if _raw_text(line).strip()]
    return sum(line.find(f"{A}pPr[@rtl='1']") is not None for line in lines) * 2 > len(lines)


def read_comments(root: Any) -> list[str]:
    """The text of each comment on a slide and of each reply to it, on one line; the format may be
    that of PowerPoint 365 or the older one.
    """
    paths = ("{*}text", "{*}txBody", "{*}replyLst/{*}reply/{*}txBody")
    bodies = [body for item in root.iter("{*}cm") for path in paths for body in item.iterfind(path)]
    lines = (" ".join("".join(line.itertext()) for line in list(body) or [body]) for body in bodies)
    return [words for line in lines if (words := " ".join(line.split()))]


def _open_alternatives(slide: Any) -> None:
    """Replace alternatives by the one that PowerPoint shows, such as a shape with a formula and not
    its picture for older programs. Alternatives inside a picture are only ways to draw it.
    """
    for item in list(slide.iter(f"{_MC}AlternateContent")):
        branch = item.find(f"{_MC}Choice")
        branch = item.find(f"{_MC}Fallback") if branch is None else branch
        if branch is not None and item.getparent().tag in _CONTAINERS:
            for child in list(branch):
                item.addprevious(child)
            item.getparent().remove(item)


def _number_paragraphs(shape: Any) -> dict[Any, str]:
    """The automatic number of each numbered paragraph with text.

    Numbering continues over deeper levels, and restarts after an unnumbered paragraph of its level.
    """
    found: dict[Any, str] = {}
    counts: dict[int, tuple[str, int]] = {}  # level to the kind and the last number
    for paragraph in shape.iter(f"{A}p"):
        if not _raw_text(paragraph).strip():
            continue
        properties = paragraph.find(f"{A}pPr")
        numbering = None if properties is None else properties.find(f"{A}buAutoNum")
        level = 0 if properties is None else int(properties.get("lvl", "0"))
        counts = {at: count for at, count in counts.items() if at <= level}
        if numbering is None:
            counts.pop(level, None)
            continue
        kind = str(numbering.get("type", "arabicPeriod"))
        first = int(numbering.get("startAt", "1"))
        before, last = counts.get(level, ("", 0))
        number = last + 1 if before == kind else first
        counts[level] = kind, number
        form = next((form for name, form in _NUMBERS.items() if kind.startswith(name)), "decimal")
        left, right = next((m for name, m in _MARKS.items() if kind.endswith(name)), ("", ""))
        found[paragraph] = f"{left}{format_list_number(number, form)}{right}"
    return found


def _is_hidden(element: Any) -> bool:
    """True for a shape, picture, table or group that was hidden in the selection pane."""
    return any(item.get("hidden") in ("1", "true") for item in element.iterfind(f"*/{P}cNvPr"))


def _placeholder(shape: Any) -> str:
    if not shape.is_placeholder:
        return ""
    return str(shape.placeholder_format.type).split(" ")[0].rpartition(".")[2]


def _read_line(paragraph: Any, *, linked: bool = True) -> str:
    """The text of a paragraph on one line, with its links unless not `linked`."""
    return " ".join("".join(_read_pieces(paragraph, linked=linked)).split())


def _read_pieces(paragraph: Any, *, linked: bool) -> Iterator[str]:
    """The runs, breaks and formulas of a paragraph."""
    for item in paragraph._p:
        if item.tag == f"{A}br":
            yield "\n"
        elif item.tag == _FORMULA:
            yield math_text(item)
        elif item.tag in (f"{A}r", f"{A}fld"):
            text = item.findtext(f"{A}t") or ""
            link = item.find(f"{A}rPr/{A}hlinkClick") if linked else None
            relation = paragraph.part.rels.get(link.get(f"{R}id")) if link is not None else None
            address = relation.target_ref if relation is not None and relation.is_external else ""
            usable = text.strip() and address and not re.search(r"[\s()]", address)
            yield f"[{text}]({address})" if usable else text


def _read_table(table: Any) -> tuple[list[list[str]], int]:
    """(the rows, a merged cell's text in each cell it covers; the number of repeated letters)."""
    rows: list[list[str]] = []
    repeated = 0
    for row in table.rows:
        rows.append([])
        for cell in row.cells:
            if cell._tc.hMerge:
                words = rows[-1][-1] if rows[-1] else ""
            elif cell._tc.vMerge:
                words = rows[-2][len(rows[-1])] if len(rows) > 1 else ""
            else:
                words = " ".join(filter(None, map(_read_line, cell.text_frame.paragraphs)))
            repeated += len(letters(words)) if cell.is_spanned else 0
            rows[-1].append(words)
    return rows, repeated


def _make_table(rows: Sequence[Sequence[str]], place: str) -> Iterator[Part]:
    if text := drawings.format_table(rows):
        yield Part("table", text, place)


def _read_image(shape: Any, place: str) -> Iterator[Part]:
    """An image in the file with its alternative text, which is never the name of the shape. If
    PowerPoint for Mac stored a PDF and a picture of it, the picture.
    """
    blips = shape._element.findall(f".//{P}blipFill/{A}blip")
    relation = shape.part.rels.get(blips[-1].get(f"{R}embed")) if blips else None
    if relation is None or relation.is_external:
        return
    target = f"part:{str(relation.target_part.partname).lstrip('/')}"
    alt = " ".join((shape._element._nvXxPr.cNvPr.get("descr") or "").split())
    label = re.sub(r"([\[\]\\])", r"\\\1", alt)
    text = f"![{label}]({target})"
    yield Part("paragraph", text, place, images=(Image(0, len(text), target, alt),))


# --- proof --------------------------------------------------------------------------------------


class _Source:
    """Reads the slides of a presentation for the proof, without python-pptx."""

    def __init__(self, package: Package) -> None:
        self._package = package
        main = package.related_part("", "officeDocument") or "ppt/presentation.xml"
        related = package.relations(main)
        ids = [item.get(f"{R}id") for item in package.root(main).iter(f"{P}sldId")]
        self._slides = [related[name].target for name in ids if name in related]

    def text_at(self, locator: str, *, numbered: bool) -> str | None:
        """The text in the XML at a locator, with list numbers if `numbered`; None if there is
        nothing.
        """
        match = re.fullmatch(r"slide=(\d+)(?:;shape=(\d+(?:\.\d+)?)|;(notes|comments))?", locator)
        if match is None or not 1 <= int(match[1]) <= len(self._slides):
            return None
        slide = self._slides[int(match[1]) - 1]
        if match[3] == "comments":
            comments = self._package.root(self._package.related_part(slide, "comments"))
            return None if comments is None else " ".join(read_comments(comments))
        if match[3]:
            notes = self._package.root(self._package.related_part(slide, "notesSlide"))
            for item in notes.iter(f"{P}sp") if notes is not None else ():
                if (ph := item.find(f".//{P}ph")) is not None and ph.get("type") == "body":
                    return _shape_text(item)
            return None
        if not match[2]:
            return f"Slide {match[1]}"
        root = self._package.root(slide)
        _open_alternatives(root)
        for item, name in _name_shapes(root):
            if name == match[2]:
                drawing = next(item.iter(f"{C}chart", f"{D}relIds"), None)
                if drawing is None:
                    return _shape_text(item, numbered=numbered)
                drawn = drawings.find_root(self._package, slide, drawing)
                return "" if drawn is None else drawings.words_of(drawn)
        return None


def _name_shapes(slide: Any) -> Iterator[tuple[Any, str]]:
    """The shapes of a slide with their ids: `6`, and `6.2` for the second one with the id 6."""
    seen: Counter[str] = Counter()
    for item in slide.iter(f"{P}sp", f"{P}graphicFrame", f"{P}pic"):
        if (properties := next(item.iter(f"{P}cNvPr"), None)) is not None:
            name = properties.get("id", "")
            seen[name] += 1
            yield item, f"{name}.{seen[name]}" if seen[name] > 1 else name


def _shape_text(item: Any, *, numbered: bool = False) -> str:
    """The text of a shape, with a merged cell's text in each cell it covers, or an image's
    description.
    """
    if item.tag == f"{P}pic":
        return next(item.iter(f"{P}cNvPr")).get("descr") or ""
    if (table := next(item.iter(f"{A}tbl"), None)) is None:
        numbers = _number_paragraphs(item) if numbered else {}
        return " ".join(f"{numbers.get(line, '')} {_raw_text(line)}" for line in item.iter(f"{A}p"))
    above: list[str] = []
    cells: list[str] = []
    for row in table.iter(f"{A}tr"):
        texts: list[str] = []
        for at, cell in enumerate(row.iter(f"{A}tc")):
            if cell.get("hMerge") in _TRUE:
                texts.append(texts[-1] if texts else "")
            elif cell.get("vMerge") in _TRUE:
                texts.append(above[at] if at < len(above) else "")
            else:
                texts.append(_raw_text(cell))
        cells += texts
        above = texts
    return " ".join(cells)


def _raw_text(item: Any) -> str:
    return " ".join(text.text or "" for text in item.iter(f"{A}t", f"{M}t"))
