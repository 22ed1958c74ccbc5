"""The text of a DOCX paragraph: runs, links, fields, notes, images, formulas, tracked changes."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from rag_platform.loaders.office.docx_styles import Styles
from rag_platform.loaders.office.ooxml import (
    DELETED,
    Element,
    R,
    Relation,
    W,
    chosen_entry,
    field_instructions,
    name_of,
    shown_children,
    walk_shown,
)
from rag_platform.loaders.parts import Image
from rag_platform.text.markdown_blocks import LINK_TARGET

M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
NOTES = {  # kind of reference to (part with the notes, mark before their numbers)
    "footnoteReference": ("footnotes", ""),
    "endnoteReference": ("endnotes", "e"),
    "commentReference": ("comments", "c"),
}
_BREAKS = {
    "br": "\n",
    "cr": "\n",
    "tab": "\t",
    "ptab": "\t",
    "noBreakHyphen": "\u2011",
    "softHyphen": "\u00ad",
}
_WINGDINGS = dict(zip(b"\x6f\x71\xa8\xfb\xfc\xfd\xfe\xa7\x6c\xd8\xe0", "□❑☐✗✓☒☑▪●➢→", strict=True))
_SUPERSCRIPTS = str.maketrans("0123456789+-=()n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿ")
_SUBSCRIPTS = str.maketrans("0123456789+-=()", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎")
_HYPERLINK = re.compile(r'\s*HYPERLINK\s+"([^"]+)"', re.IGNORECASE)
LINK_SCHEMES = ("http://", "https://", "mailto:", "ftp://")


@dataclass(frozen=True, slots=True)
class InlineImage:
    """An image in the text of a paragraph."""

    target: str  # docx:word/media/image1.png, or the URL of a linked one
    alt: str

    @property
    def text(self) -> str:
        """The placeholder in the facts."""
        return f"![{self.alt}]({_escape_target(self.target)})"


Piece = str | InlineImage


@dataclass
class Reader:
    """Reads the paragraphs of one part, numbers its notes, and counts what it leaves out."""

    relations: Mapping[str, Relation]
    styles: Styles = field(default_factory=Styles)
    # (kind, id) to the number shown
    notes: dict[tuple[str, str], int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    hidden: list[str] = field(default_factory=list)  # texts of hidden runs
    # open fields: instruction, and the index of the piece where the result begins
    fields: list[list[str | int]] = field(default_factory=list)
    instructions: set[Element] = field(default_factory=set)  # texts in field instructions

    def read_paragraph(self, element: Element) -> list[Piece]:
        """The pieces of a paragraph in order, without text boxes."""
        self.fields = []
        self.instructions = field_instructions(element)
        out: list[Piece] = []
        self._read_children(element, out)
        self.counts["deleted"] += sum(
            1 for item in element.iter(W + "del", W + "moveFrom") if len(item)
        )
        return out

    def _read_children(self, element: Element, out: list[Piece]) -> None:
        for child in shown_children(element):
            match name_of(child):
                case "r":
                    self._read_run(child, out)
                case "hyperlink":
                    start = len(out)
                    self._read_children(child, out)
                    relation = self.relations.get(str(child.get(R + "id", "")))
                    if relation is not None and relation.external:
                        _make_link(out, start, relation.target)
                case "oMath" | "oMathPara":
                    out.append(math_text(child))
                case "pPr" | "rPr" | "txbxContent":
                    pass
                case name if name not in DELETED:
                    self._read_children(child, out)

    def _read_run(self, run: Element, out: list[Piece]) -> None:
        raised = next((item.get(W + "val") for item in run.iterfind(f"{W}rPr/{W}vertAlign")), "")
        hidden = self.styles.hides(run)
        for child in shown_children(run):
            name = name_of(child)
            if child in self.instructions:
                continue
            if hidden and name not in ("fldChar", "instrText"):
                if name == "t" and (child.text or "").strip():
                    self.hidden.append(child.text.strip())
            elif name == "t":
                out.append(_shift_digits(child.text or "", str(raised)))
            elif name in _BREAKS:
                out.append(_BREAKS[name])
            elif name == "sym":
                out.append(symbol(child))
            elif name in NOTES:
                out.append(self._number_note(name, str(child.get(W + "id", ""))))
            elif name in ("drawing", "pict", "object"):
                out.extend(self._read_images(child))
            else:
                self._read_field_or_ruby(child, name, out)

    def _read_field_or_ruby(self, child: Element, name: str, out: list[Piece]) -> None:
        if name == "fldChar":
            out += [entry] if (entry := chosen_entry(child)) else []
            self._track_field(str(child.get(W + "fldCharType", "")), out)
        elif name == "instrText" and self.fields:
            self.fields[-1][0] = str(self.fields[-1][0]) + (child.text or "")
        elif name == "ruby":
            self._read_ruby(child, out)

    def _number_note(self, name: str, note_id: str) -> str:
        number = self.notes.setdefault(
            (name, note_id), 1 + sum(kind == name for kind, _ in self.notes)
        )
        return f"[^{NOTES[name][1]}{number}]"

    def _track_field(self, kind: str, out: list[Piece]) -> None:
        if kind == "begin":
            self.fields.append(["", len(out)])
        elif kind == "separate" and self.fields:
            self.fields[-1][1] = len(out)
        elif kind == "end" and self.fields:
            instruction, start = self.fields.pop()
            if match := _HYPERLINK.match(str(instruction)):
                _make_link(out, int(start), match[1])

    def _read_ruby(self, ruby: Element, out: list[Piece]) -> None:
        """The base text, then its reading in parentheses."""
        for name, before, after in (("rubyBase", "", ""), ("rt", "(", ")")):
            part = ruby.find(W + name)
            if part is not None:
                out.append(before)
                self._read_children(part, out)
                out.append(after)

    def _read_images(self, drawing: Element) -> Iterator[Piece]:
        """The images and WordArt of a drawing or embedded object; charts are counted."""
        alt = ""
        for item in walk_shown(drawing):
            match name_of(item):
                case "docPr" | "cNvPr" | "shape":
                    alt = str(item.get("descr") or item.get("alt") or alt)
                case "blip" | "imagedata":
                    key = item.get(R + "embed") or item.get(R + "id") or item.get(R + "link")
                    if (relation := self.relations.get(str(key))) is None:
                        self.counts["images without a part"] += 1
                        continue
                    target = relation.target if relation.external else f"docx:{relation.target}"
                    yield InlineImage(target, " ".join(re.sub(r"[\[\]\\]", " ", alt).split())[:300])
                case "textpath":
                    yield f" {item.get('string', '')} "
                case "chart" | "relIds":
                    self.counts["charts and diagrams"] += 1
                case "OLEObject":
                    self.counts["embedded objects"] += 1


def find_drawings(paragraph: Element) -> Iterator[Element]:
    """The references to charts and diagrams of a paragraph, without those in its text boxes."""
    return (item for item in walk_shown(paragraph) if name_of(item) in ("chart", "relIds"))


def _escape_target(target: str) -> str:
    return quote(
        target, safe="/:@!$&'*+,;=-._~%?#" + "".join(char for char in target if ord(char) > 0x9F)
    )


def _make_link(out: list[Piece], start: int, target: str) -> None:
    """Make a Markdown link of the pieces from `start` on, unless its target has another scheme than
    those of LINK_SCHEMES or equals its text.
    """
    words = "".join(piece if isinstance(piece, str) else piece.text for piece in out[start:])
    if (
        not words.strip()
        or not target.lower().startswith(LINK_SCHEMES)
        or target.rstrip("/") in (words.strip().rstrip("/"), f"mailto:{words.strip()}")
    ):
        return
    before = "".join(piece for piece in out[max(0, start - 1) : start] if isinstance(piece, str))
    if before.endswith("!"):
        out[start - 1] = before[:-1] + "\\!"  # otherwise the link would become an image
    out.insert(start, "[")
    out.append(f"]({_escape_target(target)})")


def _shift_digits(text: str, place: str) -> str:
    """Superscript and subscript digits as Unicode characters, which NFKC turns back to digits."""
    table = {"superscript": _SUPERSCRIPTS, "subscript": _SUBSCRIPTS}.get(place)
    is_number = all(char in "0123456789+-=() " for char in text)
    return text.translate(table) if table and is_number else text


def symbol(element: Element) -> str:
    """The character of a `sym` element, given by font and code; `•` if it is not known."""
    try:
        code = int(str(element.get(W + "char", "")), 16)
    except ValueError:
        return ""
    if "wingdings" in str(element.get(W + "font", "")).lower():
        return _WINGDINGS.get(code & 0xFF, "•")
    char = chr(code & 0xFFFF)
    return char if unicodedata.category(char) not in ("Co", "Cs", "Cc", "Cn") else "•"


# --- formulas -----------------------------------------------------------------------------------


def math_text(element: Element) -> str:
    """A formula on one line: `(a+b)/c`, `x^2`, `√(y)`; letters keep their order in the file."""
    return "".join(map(_math_item, element))


def _math_item(item: Element) -> str:
    match name_of(item):
        case "r":
            return "".join(child.text or "" for child in item if name_of(child) == "t")
        case "f":
            return f"{_group(_math_part(item, 'num'))}/{_group(_math_part(item, 'den'))}"
        case "sSup" | "sSub" | "sSubSup":
            return _group(_math_part(item, "e")) + _math_scripts(item)
        case "rad":
            return f"{_math_part(item, 'deg')}√({_math_part(item, 'e')})"
        case "nary":
            marks = item.iterfind(f"{M}naryPr/{M}chr")  # not those of a sum inside an integral
            sign = next((str(mark.get(M + "val", "")) for mark in marks), "∫")
            return f"{sign}{_math_scripts(item)} {_math_part(item, 'e')}"
        case "d":
            left, right = (
                next((str(mark.get(M + "val", "")) for mark in item.iterfind(path)), usual)
                for path, usual in ((f"{M}dPr/{M}begChr", "("), (f"{M}dPr/{M}endChr", ")"))
            )
            return f"{left}{', '.join(_math_parts(item, 'e'))}{right}"
        case "eqArr":
            return "; ".join(_math_parts(item, "e"))
        case "m":
            rows = ("; ".join(_math_parts(row, "e")) for row in item if name_of(row) == "mr")
            return f"[{' | '.join(rows)}]"
        case name:
            return "" if name.endswith("Pr") else math_text(item)


def _math_parts(owner: Element, name: str) -> Iterator[str]:
    return (math_text(child) for child in owner if name_of(child) == name)


def _math_part(owner: Element, name: str) -> str:
    return next(_math_parts(owner, name), "")


def _math_scripts(item: Element) -> str:
    """Subscript and superscript: `_i^2`."""
    marked = (("_", _math_part(item, "sub")), ("^", _math_part(item, "sup")))
    return "".join(f"{mark}{_group(text)}" for mark, text in marked if text)


def _group(text: str) -> str:
    return f"({text})" if len(text) > 1 and not text.isalnum() else text


# --- pieces and marks ---------------------------------------------------------------------------

IMAGE = re.compile(r"(?<!\\)!\[[^\[\]]*\]\([^()\s]*\)")
NOTE = re.compile(r"\[\^[ec]?\d+\]:?")


def without_marks(text: str) -> str:
    """The text without image placeholders, link targets and note references."""
    return NOTE.sub("", LINK_TARGET.sub("]", IMAGE.sub("", text)))


def join_pieces(pieces: Sequence[Piece], *, flat: bool = False) -> tuple[str, list[Image]]:
    """(trimmed text, the images in it); flat text has no line ends."""
    text = ""
    images: list[Image] = []
    for piece in pieces:
        if isinstance(piece, InlineImage):
            if text and not text[-1].isspace():
                text += " "
            images.append(Image(len(text), len(text) + len(piece.text), piece.target, piece.alt))
            text += piece.text + " "
        else:
            text += re.sub(r"\s*[\n\t]\s*", " ", piece) if flat else piece
    lead = len(text) - len(text.lstrip())
    return text.strip(), [image.move(-lead) for image in images]
