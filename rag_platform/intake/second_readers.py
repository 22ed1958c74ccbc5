"""Reads the words of a file a second time, with code that its loader does not share, and compares
them with the loader's blocks in order.

PDFs are read by the other engine, HTML by `html.parser`, Word files and workbooks from their XML
with ElementTree, CSV as lines of text.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
import zipfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from rag_platform.ir import Block
from rag_platform.loaders.word_comparison import Likeness, Line, cells, compare_words, problem

# loader: the child process that reads for the second time; formats with bytes are compared byte by
# byte and need none
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
    """The reason why a loader has no second reader; empty when it has one."""
    if loader not in ENGINES:
        return f"there is no second reader for loader {loader!r}"
    if loader == "pdfium" and importlib.util.find_spec("pymupdf") is None:
        return "PyMuPDF is not installed, the second reader of what PDFium read"
    return ""


def reread(path: Path, loader: str, text: str, blocks: Sequence[Block]) -> tuple[Reasons, Reasons]:
    """(ordinal to reason of the blocks that the second reader reads otherwise, of those that it
    cannot read); of PDFs whole pages.

    Raises DocumentError, or what the reader raises of a file that it cannot open.
    """
    return _reader(loader)(path, text, blocks)


def _reader(loader: str) -> Callable[[Path, str, Sequence[Block]], tuple[Reasons, Reasons]]:
    if loader in ("pdf", "pdfium"):
        from rag_platform.loaders.pdf import second_reading

        return lambda path, text, blocks: second_reading.reread(path, loader, text, blocks)

    return {"html": html, "docx": docx, "xlsx": xlsx, "csv": csv}[loader]


# Markdown that loaders write around the words of a file
_PICTURE = re.compile(r"!\[[^\]]*\]\([^()\s]*(?:\([^()\s]*\))?[^()\s]*(?:\s+\"[^\"]*\")?\)")
_TARGET = re.compile(r"\]\(\s*<?[^()\s]*(?:\([^()\s]*\)[^()\s]*)*>?(?:\s+\"[^\"]*\")?\s*\)")
_ITEM = re.compile(
    r"^\s*(?:>\s*)*(?:[-*+]\s+(?:(?:[A-Za-z]|[ivxlcdm]+|[IVXLCDM]+|-\d+)\.\s+)?|\d{1,9}[.)]\s+)"
    r"(?:\[[ xX]\]\s+)?"
)
_NOTE = re.compile(r"\[\^[ec]?\d+\]:?")
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_LETTERED = re.compile(r"\A(?:\| [A-Z]{1,3} )+\|\n")  # the head of columns without names
# a number as Word prints it
_NUMBER = (
    r"(?:\d{1,4}|[ivxlcdm]{1,8}|[IVXLCDM]{1,8}|[a-z]{1,2}|[A-Z]{1,2}|[\u2460-\u2473]"
    "|[零一二三四五六七八九十百千甲乙丙丁戊己庚辛壬癸子丑寅卯辰巳午未申酉戌亥]{1,7})"
)
_FENCE = re.compile(r"^\s*(?:`{3,}|~{3,}).*$")
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark q rb ruby s"
    " samp small span strike strong sub sup time tt u var wbr".split()
)
_UNSHOWN = frozenset(("script", "style", "template", "title"))
# words of the file among which those of a piece are looked for, beside four times their number
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
        self.unshown = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.unshown += tag in _UNSHOWN
        self._mark(tag)
        if tag == "textarea":
            self.set_cdata_mode(tag)  # it holds no tags
        if tag == "input":
            given = dict(attrs)
            self.parts.append(f"{'x' if 'checked' in given else given.get('value') or ''}\n")

    def handle_endtag(self, tag: str) -> None:
        self.unshown = max(0, self.unshown - (tag in _UNSHOWN))
        self._mark(tag)

    def _mark(self, tag: str) -> None:
        if tag not in _INLINE:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.unshown:
            self.parts.append(unescape(data) if self.cdata_elem else data)


def docx(path: Path, text: str, blocks: Sequence[Block]) -> tuple[Reasons, Reasons]:
    """The paragraphs of every part of a Word file, in the order of its XML, each chart and diagram
    where it is drawn.
    """
    with zipfile.ZipFile(path) as package:
        names = [
            name
            for name in package.namelist()
            if re.fullmatch(
                r"word/(?:document|header|footer|footnotes|endnotes|comments)\w*\.xml", name
            )
        ]
        names.sort(key=lambda name: (not name.endswith("/document.xml"), name))
        words: list[str] = []
        for name in names:
            targets = _targets(package, name)
            for element in ElementTree.fromstring(package.read(name)).iter():
                if _local(element) == "p":
                    words.append("".join(_runs(element)))
                elif _local(element) in ("chart", "relIds"):
                    words += _drawn(package, [targets.get(id_) for id_ in element.attrib.values()])
        labels = _labels(package)
    return _compare(text, blocks, Line.of(" ".join(words).split()), labels=labels)


def _labels(package: zipfile.ZipFile) -> re.Pattern[str] | None:
    """The labels that Word prints before numbered paragraphs, `第%1章` or `Article %1`: they stand
    in no paragraph. Those without letters are told from words only where a piece begins.
    """
    if "word/numbering.xml" not in package.namelist():
        return None
    written = {
        " ".join(item.get(f"{_WORD}val", "").split())
        for item in ElementTree.fromstring(package.read("word/numbering.xml")).iter()
        if _local(item) == "lvlText"
    }
    forms = sorted((text for text in written if re.search(r"%\d", text)), key=len, reverse=True)
    named = [text for text in forms if any(map(str.isalpha, text))]

    def alternatives(texts: Sequence[str]) -> str:
        return "|".join(re.sub(r"%\d", lambda _: _NUMBER, re.escape(text)) for text in texts)

    anywhere = rf"|(?<=\s)(?:{alternatives(named)})(?=\s|$)" if named else ""
    return re.compile(rf"^[\W_]*(?:{alternatives(forms)})(?=\s|$){anywhere}") if forms else None


def _targets(package: zipfile.ZipFile, part: str) -> dict[str, str]:
    """Relationship id to the name of the part of the file to which a part points by it."""
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


def _drawn(package: zipfile.ZipFile, parts: Sequence[str | None]) -> Iterator[str]:
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
            if _local(item) in ("t", "v") and (said := (item.text or "").strip()):
                yield from _plain_numbers(said, percent)


def _plain_numbers(said: str, percent: bool) -> Iterator[str]:
    """A number as any reader writes it, also as percent where some of the chart's are; or words."""
    try:
        number = float(said)
    except ValueError:
        yield said
    else:
        yield f"{number:.15g}"
        yield from (f"{round(100 * number, 10):.15g}",) if percent else ()


def _runs(element: ElementTree.Element) -> Iterator[str]:
    """The text below an element, without paragraphs inside it and what was deleted; a reading aloud
    behind what is read.
    """
    for child in reversed(element) if _local(element) == "ruby" else element:
        name = _local(child)
        if name == "t":
            yield child.text or ""
        elif name in ("tab", "br", "cr"):
            yield " "
        elif name == "noBreakHyphen":
            yield "-"
        elif name == "ddList":
            yield f" {_chosen(child)} "
        elif name == "textpath":
            yield f" {child.get('string', '')} "
        elif name == "r" and _is_hidden(child):
            continue
        elif name not in ("p", "delText", "instrText", "txbxContent"):
            yield from _runs(child)


def _chosen(choices: ElementTree.Element) -> str:
    """The entry of a drop-down list that is shown."""
    given = {_local(item): item.get(f"{_WORD}val", "") for item in choices}
    at = int(given.get("result") or given.get("default") or 0)
    entries = [item.get(f"{_WORD}val", "") for item in choices if _local(item) == "listEntry"]
    return entries[at] if at < len(entries) else ""


def _is_hidden(run: ElementTree.Element) -> bool:
    mark = run.find(f"{_WORD}rPr/{_WORD}vanish")
    return mark is not None and mark.get(f"{_WORD}val") not in ("0", "false", "off")


def xlsx(path: Path, text: str, blocks: Sequence[Block]) -> tuple[Reasons, Reasons]:
    """The texts of a workbook's cells, sheet by sheet; numbers and dates read as their formats say,
    which the loader alone knows.
    """
    with zipfile.ZipFile(path) as package:
        shared = _strings(package)
        words: list[str] = []
        for name, part in _sheets(package):
            words += [name, *_cell_texts(package.read(part), shared)]
    return _compare(text, blocks, Line.of(" ".join(words).split()), numbers=False)


def _strings(package: zipfile.ZipFile) -> list[str]:
    name = "xl/sharedStrings.xml"
    if name not in package.namelist():
        return []
    return [
        _rich(item) for item in ElementTree.fromstring(package.read(name)) if _local(item) == "si"
    ]


def _rich(item: ElementTree.Element) -> str:
    """The text of a string without its readings aloud."""
    if _local(item) == "t":
        return _unescaped(item.text or "")
    return "".join(_rich(child) for child in item if _local(child) != "rPh")


def _unescaped(text: str) -> str:
    """The text with a space for each control character, which a workbook writes as `_x000D_`."""
    return re.sub("_x00[01][0-9A-Fa-f]_", " ", text)


def _sheets(package: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """(name, part) of each sheet in the order of the workbook."""
    targets = _targets(package, "xl/workbook.xml")
    for sheet in ElementTree.fromstring(package.read("xl/workbook.xml")).iter():
        if _local(sheet) == "sheet":
            target = next(
                (
                    targets.get(value, "")
                    for key, value in sheet.attrib.items()
                    if key.endswith("}id")
                ),
                "",
            )
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
                yield "".join(_rich(child) for child in cell)
            elif kind in ("str", "e"):
                yield _unescaped(value)


def csv(path: Path, text: str, blocks: Sequence[Block]) -> tuple[Reasons, Reasons]:
    """The lines of the file as they are, quotes and delimiters taken for spaces; the header may
    stand anywhere above.
    """
    from rag_platform.loaders.decoding import decode

    raw = decode(path.read_bytes()).text
    lines = re.split(r"\r\n|\r|\n", raw)
    whole = _fields(raw)
    otherwise: Reasons = {}
    for block in blocks:
        here = _fields("\n".join(lines[(block.line_start or 1) - 1 : block.line_end]))
        alike = Likeness()
        for cell in _pieces(block.kind, text[block.start : block.end]):
            alike += compare_words(cell, [here, whole])
        if reason := problem(block.kind, alike):
            otherwise[block.ordinal] = reason
    return otherwise, {}


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
    """The blocks whose words do not occur in the file in order. Each block is looked for behind the
    one before it first, then anywhere; a piece that is not there, without its `labels`.
    """
    otherwise: Reasons = {}
    at = 0
    for block in blocks:
        alike = Likeness()
        said = text[block.start : block.end]
        for part in _parts(block.kind, said if numbers else _LETTERED.sub("", said)):
            piece = Line.of(part.split())
            found = _find(piece, source, at)
            if labels and found < 0:
                piece = Line.of(labels.sub(" ", part).split())
                found = _find(piece, source, at)
            if not piece.letters:
                continue
            if found >= 0:
                alike += compare_words(piece, [source.part(found, found + len(piece.letters))])
                at = found
            elif numbers or not (
                any(map(str.isdigit, piece.letters)) or piece.letters in ("true", "false")
            ):
                alike += compare_words(piece, [_near(source, at, len(piece.starts))])
        if reason := problem(block.kind, alike):
            otherwise[block.ordinal] = reason
    return otherwise, {}


def _find(piece: Line, source: Line, at: int) -> int:
    """Where a piece stands in the file from `at` on, else anywhere; -1 where it does not."""
    found = source.letters.find(piece.letters, at)
    return found if found >= 0 else source.letters.find(piece.letters)


def _near(source: Line, at: int, count: int) -> Line:
    first = max(0, bisect_right(source.starts, at) - 1 - _WINDOW // 2)
    bounds = (*source.starts, len(source.letters))
    last = min(len(bounds) - 1, first + 4 * count + _WINDOW)
    return source.part(bounds[first], bounds[last])


def _parts(kind: str, text: str) -> list[str]:
    """The runs of words of a block without the Markdown around them: cells, lines of code, lines
    and what stands between pictures.
    """
    if kind == "table":  # two rows of a sheet's header are joined by a stroke
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
