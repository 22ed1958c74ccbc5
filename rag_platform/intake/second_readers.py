"""Reads the words of a file a second time, with code that shares nothing with its loader, and
compares them with the loader's blocks in order.

PDFs are read by the other engine, HTML by `html.parser`, Word files and workbooks from their XML
with ElementTree, CSV as lines of text.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
import zipfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from rag_platform.ir import Block
from rag_platform.loaders.word_comparison import (
    Likeness,
    Line,
    cells,
    compare_words,
    describe_problem,
)

# loader to the engine of the child that is its second reader; formats whose blocks have byte ranges
# are compared byte by byte and need none
ENGINES = {
    "pdf": "pdfium",
    "pdfium": "pymupdf",
    "html": "other",
    "docx": "other",
    "xlsx": "other",
    "csv": "other",
}

Reasons = dict[int, str]


def why_missing(loader: str) -> str:
    """Why a loader has no second reader; "" when it has one."""
    if loader not in ENGINES:
        return f"there is no second reader for loader {loader!r}"
    if loader == "pdfium" and importlib.util.find_spec("pymupdf") is None:
        return "PyMuPDF is not installed, the second reader of what PDFium read"
    return ""


def reread(path: Path, loader: str, text: str, blocks: Sequence[Block]) -> tuple[Reasons, Reasons]:
    """({ordinal: reason} of the blocks that the second reader reads differently, {ordinal: reason}
    of those that it cannot read); for PDFs whole pages.

    Raises DocumentError, or the reader's own errors for a file that it cannot open.
    """
    if loader in ("pdf", "pdfium"):
        from rag_platform.loaders.pdf import second_reading

        return second_reading.reread(path, loader, text, blocks)
    read = {"html": html, "docx": docx, "xlsx": xlsx, "csv": csv}[loader]
    return read(path, text, blocks)


# Markdown that loaders write around the words of a file
_PICTURE = re.compile(r"!\[[^\]]*\]\([^()\s]*(?:\([^()\s]*\))?[^()\s]*(?:\s+\"[^\"]*\")?\)")
_TARGET = re.compile(r"\]\(\s*<?[^()\s]*(?:\([^()\s]*\)[^()\s]*)*>?(?:\s+\"[^\"]*\")?\s*\)")
_ITEM = re.compile(
    r"^\s*(?:>\s*)*(?:[-*+]\s+(?:(?:[A-Za-z]|[ivxlcdm]+|[IVXLCDM]+|-\d+)\.\s+)?|\d{1,9}[.)]\s+)"
    r"(?:\[[ xX]\]\s+)?"
)
_NOTE = re.compile(r"\[\^[ec]?\d+\]:?")
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LETTERED = re.compile(r"\A(?:\| [A-Z]{1,3} )+\|\n")  # the header of unnamed columns
# a list number as Word prints it
_NUMBER = (
    r"(?:\d{1,4}|[ivxlcdm]{1,8}|[IVXLCDM]{1,8}|[a-z]{1,2}|[A-Z]{1,2}|[\u2460-\u2473]"
    "|[零一二三四五六七八九十百千甲乙丙丁戊己庚辛壬癸子丑寅卯辰巳午未申酉戌亥]{1,7})"
)
_FENCE = re.compile(r"^\s*(?:`{3,}|~{3,}).*$")
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark q rb ruby s"
    " samp small span strike strong sub sup time tt u var wbr".split()
)
_INVISIBLE = frozenset(("script", "style", "template", "title"))
# a piece of n words is compared with 4 n + this many words of the file around the current position
_WINDOW = 400


def html(path: Path, text: str, blocks: Sequence[Block]) -> tuple[Reasons, Reasons]:
    """A page by html.parser."""
    from rag_platform.loaders.markup.html import decode_page

    parser = _Page()
    parser.feed(decode_page(path.read_bytes()).text)
    parser.close()
    return _compare(text, blocks, Line.of("".join(parser.parts).split()))


class _Page(HTMLParser):
    """The text of a page; a tag that is not inline ends a word."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.invisible_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.invisible_depth += tag in _INVISIBLE
        self._break_word(tag)
        if tag == "textarea":
            self.set_cdata_mode(tag)  # its content has no tags
        if tag == "input":
            attributes = dict(attrs)
            self.parts.append(
                f"{'x' if 'checked' in attributes else attributes.get('value') or ''}\n"
            )

    def handle_endtag(self, tag: str) -> None:
        self.invisible_depth = max(0, self.invisible_depth - (tag in _INVISIBLE))
        self._break_word(tag)

    def _break_word(self, tag: str) -> None:
        if tag not in _INLINE:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.invisible_depth:
            self.parts.append(unescape(data) if self.cdata_elem else data)


def docx(path: Path, text: str, blocks: Sequence[Block]) -> tuple[Reasons, Reasons]:
    """The paragraphs of every part in XML order; each chart and diagram at its anchor."""
    with zipfile.ZipFile(path) as package:
        texts = r"word/(?:document|header|footer|footnotes|endnotes|comments)\w*\.xml"
        names = [name for name in package.namelist() if re.fullmatch(texts, name)]
        names.sort(key=lambda name: (not name.endswith("/document.xml"), name))
        words: list[str] = []
        for name in names:
            targets = _targets(package, name)
            for element in ElementTree.fromstring(package.read(name)).iter():
                if _local(element) == "p":
                    words.append("".join(_visible_text(element)))
                elif _local(element) in ("chart", "relIds"):
                    words += _drawing_texts(
                        package, [targets.get(id_) for id_ in element.attrib.values()]
                    )
        labels = _labels(package)
    return _compare(text, blocks, Line.of(" ".join(words).split()), labels=labels)


def _labels(package: zipfile.ZipFile) -> re.Pattern[str] | None:
    """The labels of numbered paragraphs, `第%1章` or `Article %1`, which Word prints but no
    paragraph contains. Labels without letters are recognised only at the start of a piece.
    """
    if "word/numbering.xml" not in package.namelist():
        return None
    patterns = {
        " ".join(item.get(f"{_WORD}val", "").split())
        for item in ElementTree.fromstring(package.read("word/numbering.xml")).iter()
        if _local(item) == "lvlText"
    }
    labels = sorted((text for text in patterns if re.search(r"%\d", text)), key=len, reverse=True)
    with_letters = [text for text in labels if any(map(str.isalpha, text))]

    def alternatives(texts: Sequence[str]) -> str:
        return "|".join(re.sub(r"%\d", lambda _: _NUMBER, re.escape(text)) for text in texts)

    anywhere = rf"|(?<=\s)(?:{alternatives(with_letters)})(?=\s|$)" if with_letters else ""
    return re.compile(rf"^[\W_]*(?:{alternatives(labels)})(?=\s|$){anywhere}") if labels else None


def _targets(package: zipfile.ZipFile, part: str) -> dict[str, str]:
    """Relationship id to the part of the package that it points to."""
    folder, name = posixpath.split(part)
    relations = f"{folder}/_rels/{name}.rels"
    if relations not in package.namelist():
        return {}
    return {
        item.get("Id", ""): posixpath.normpath(
            posixpath.join("/", folder, item.get("Target", ""))
        ).lstrip("/")
        for item in ElementTree.fromstring(package.read(relations))
    }


def _drawing_texts(package: zipfile.ZipFile, parts: Sequence[str | None]) -> Iterator[str]:
    """The words and figures of charts and diagrams."""
    for part in sorted(set(package.namelist()).intersection(filter(None, parts))):
        try:
            root = ElementTree.fromstring(package.read(part))
        except ElementTree.ParseError:
            continue
        percent = any(
            "%" in (item.get("formatCode") or (_local(item) == "formatCode" and item.text) or "")
            for item in root.iter()
        )
        for item in root.iter():
            if _local(item) in ("t", "v") and (value := (item.text or "").strip()):
                yield from _plain_numbers(value, percent)


def _plain_numbers(value: str, percent: bool) -> Iterator[str]:
    """A number in plain notation, and as percentage if the chart has some; or other text as is."""
    try:
        number = float(value)
    except ValueError:
        yield value
    else:
        yield f"{number:.15g}"
        yield from (f"{round(100 * number, 10):.15g}",) if percent else ()


def _visible_text(element: ElementTree.Element) -> Iterator[str]:
    """The text below an element without nested paragraphs and deletions; ruby after its base."""
    for child in reversed(element) if _local(element) == "ruby" else element:
        name = _local(child)
        if name == "t":
            yield child.text or ""
        elif name in ("tab", "br", "cr"):
            yield " "
        elif name == "noBreakHyphen":
            yield "-"
        elif name == "ddList":
            yield f" {_selected_entry(child)} "
        elif name == "textpath":
            yield f" {child.get('string', '')} "
        elif name == "r" and _is_hidden(child):
            continue
        elif name not in ("p", "delText", "instrText", "txbxContent"):
            yield from _visible_text(child)


def _selected_entry(choices: ElementTree.Element) -> str:
    """The selected entry of a drop-down list."""
    attributes = {_local(item): item.get(f"{_WORD}val", "") for item in choices}
    index = int(attributes.get("result") or attributes.get("default") or 0)
    entries = [item.get(f"{_WORD}val", "") for item in choices if _local(item) == "listEntry"]
    return entries[index] if index < len(entries) else ""


def _is_hidden(run: ElementTree.Element) -> bool:
    mark = run.find(f"{_WORD}rPr/{_WORD}vanish")
    return mark is not None and mark.get(f"{_WORD}val") not in ("0", "false", "off")


def xlsx(path: Path, text: str, blocks: Sequence[Block]) -> tuple[Reasons, Reasons]:
    """The cell texts of a workbook, sheet by sheet. Numbers and dates are left out: only the loader
    applies their formats.
    """
    with zipfile.ZipFile(path) as package:
        shared = _shared_strings(package)
        words: list[str] = []
        for name, part in _sheets(package):
            words += [name, *_cell_texts(package.read(part), shared)]
    return _compare(text, blocks, Line.of(" ".join(words).split()), numbers=False)


def _shared_strings(package: zipfile.ZipFile) -> list[str]:
    name = "xl/sharedStrings.xml"
    if name not in package.namelist():
        return []
    return [
        _rich_text(item)
        for item in ElementTree.fromstring(package.read(name))
        if _local(item) == "si"
    ]


def _rich_text(item: ElementTree.Element) -> str:
    """The text of a string, without phonetic guides."""
    if _local(item) == "t":
        return _unescaped(item.text or "")
    return "".join(_rich_text(child) for child in item if _local(child) != "rPh")


def _unescaped(text: str) -> str:
    """The text with a space for each control character, which a workbook writes as `_x000D_`."""
    return re.sub("_x00[01][0-9A-Fa-f]_", " ", text)


def _sheets(package: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """(name, part) of each sheet in the order of the workbook."""
    targets = _targets(package, "xl/workbook.xml")
    for sheet in ElementTree.fromstring(package.read("xl/workbook.xml")).iter():
        if _local(sheet) == "sheet":
            ids = (value for key, value in sheet.attrib.items() if key.endswith("}id"))
            target = targets.get(next(ids, ""), "")
            if target in package.namelist() and "worksheets" in target:
                yield sheet.get("name", ""), target


def _cell_texts(part: bytes, shared: Sequence[str]) -> Iterator[str]:
    for cell in ElementTree.fromstring(part).iter():
        if _local(cell) == "c":
            kind = cell.get("t", "n")
            value = next((child.text or "" for child in cell if _local(child) == "v"), "")
            if kind == "s" and value.isdigit() and int(value) < len(shared):
                yield shared[int(value)]
            elif kind == "inlineStr":
                yield "".join(_rich_text(child) for child in cell)
            elif kind in ("str", "e"):
                yield _unescaped(value)


def csv(path: Path, text: str, blocks: Sequence[Block]) -> tuple[Reasons, Reasons]:
    """The lines of the file, quotes and delimiters read as spaces; the header is anywhere above."""
    from rag_platform.loaders.decoding import decode

    raw = decode(path.read_bytes()).text
    lines = re.split(r"\r\n|\r|\n", raw)
    all_lines = _fields(raw)
    differing: Reasons = {}
    for block in blocks:
        own_lines = _fields("\n".join(lines[(block.line_start or 1) - 1 : block.line_end]))
        likeness = Likeness()
        for cell in _pieces(block.kind, text[block.start : block.end]):
            likeness += compare_words(cell, [own_lines, all_lines])
        if reason := describe_problem(block.kind, likeness):
            differing[block.ordinal] = reason
    return differing, {}


def _fields(text: str) -> Line:
    return Line.of(re.split(r"[\s,;|\"]+", text))


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


# --- comparing ----------------------------------------------------------------------------------


def _compare(
    text: str,
    blocks: Sequence[Block],
    source: Line,
    *,
    numbers: bool = True,
    labels: re.Pattern[str] | None = None,
) -> tuple[Reasons, Reasons]:
    """The blocks whose words do not occur in the file in order. Each block is searched after the
    previous one first, then anywhere; a piece that is not found is searched again without its
    `labels`.
    """
    differing: Reasons = {}
    position = 0
    for block in blocks:
        likeness = Likeness()
        block_text = text[block.start : block.end]
        for part in _parts(block.kind, block_text if numbers else _LETTERED.sub("", block_text)):
            piece = Line.of(part.split())
            found = _find(piece, source, position)
            if labels and found < 0:
                piece = Line.of(labels.sub(" ", part).split())
                found = _find(piece, source, position)
            if not piece.letters:
                continue
            if found >= 0:
                likeness += compare_words(piece, [source.part(found, found + len(piece.letters))])
                position = found
            elif numbers or not (
                any(map(str.isdigit, piece.letters)) or piece.letters in ("true", "false")
            ):
                likeness += compare_words(
                    piece, [_surroundings(source, position, len(piece.starts))]
                )
        if reason := describe_problem(block.kind, likeness):
            differing[block.ordinal] = reason
    return differing, {}


def _find(piece: Line, source: Line, start: int) -> int:
    """The position of a piece in the file, from `start` on or else anywhere; -1 for none."""
    found = source.letters.find(piece.letters, start)
    return found if found >= 0 else source.letters.find(piece.letters)


def _surroundings(source: Line, position: int, count: int) -> Line:
    first = max(0, bisect_right(source.starts, position) - 1 - _WINDOW // 2)
    bounds = (*source.starts, len(source.letters))
    last = min(len(bounds) - 1, first + 4 * count + _WINDOW)
    return source.part(bounds[first], bounds[last])


def _parts(kind: str, text: str) -> list[str]:
    """The runs of words in a block, without the Markdown around them: cells, lines of code, or
    lines and the text between pictures.
    """
    if kind == "table":  # the header rows of a sheet are joined by a slash
        parts = [half for cell in cells(text) for half in cell.split(" / ")]
    elif kind == "code":
        parts = [line for line in text.split("\n") if not _FENCE.match(line)]
    else:
        parts = [_ITEM.sub("", line) for line in text.split("\n")]
    if kind != "code":
        return [
            _NOTE.sub(" ", _TARGET.sub("]", piece))
            for part in parts
            for piece in _PICTURE.split(part)
        ]
    return parts


def _pieces(kind: str, text: str) -> list[Line]:
    found = (Line.of(part.split()) for part in _parts(kind, text))
    return [line for line in found if line.letters]
