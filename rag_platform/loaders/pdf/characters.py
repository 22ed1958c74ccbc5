"""Characters of a PDF page, which region owns each of them, and how a region reads as text.

A page is cut into regions (rectangles with a kind). Every visible character belongs to exactly one
region: the smallest one that holds its centre. A region's text is written from the characters it
owns, so nothing is lost, nothing stands twice, and the same rule run again on the stored rectangles
proves every block.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
import sys
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Box
from rag_platform.loaders.archives import say_fault
from rag_platform.loaders.pdf import bidi
from rag_platform.loaders.pdf.forms import write_fields, write_marks
from rag_platform.loaders.pdf.hidden_text import Hidden, split_hidden
from rag_platform.loaders.pdf.layers import prepare_layers
from rag_platform.loaders.pdf.runs import Char, Run, usual_size
from rag_platform.loaders.pdf.textpages import TextPage
from rag_platform.text.scripts import HAN, REORDERED, letters, unify_radicals

_FORMULA = re.compile("[=≈≠≤≥∝∫∑∏√∇∂±×÷−]")
MAX_PART = 12  # characters above or below the bar of a fraction


def line_boxes(runs: Sequence[Run]) -> list[tuple[Box, Run]]:
    """Runs with the rectangle that says which line they are of.

    Flat signs count as half a line, raised and lowered ones as the sign they stand at, behind which
    a run is cut.
    """
    usual = usual_size((run.size, len(run.chars)) for run in runs)
    scripts = [run for run in runs if run.size <= 0.8 * usual]
    found: list[tuple[Box, Run]] = []
    for run in runs:
        if run.size > 0.8 * usual:
            pieces, scripts = (
                _cut_at_scripts(run, scripts)
                if scripts and run.size < 1.25 * usual
                else ([(_half_line(run), run)], scripts)
            )
            found += pieces
    return [*found, *((_half_line(run), run) for run in scripts)]


def _cut_at_scripts(run: Run, scripts: list[Run]) -> tuple[list[tuple[Box, Run]], list[Run]]:
    """(a run in pieces, each followed by its scripts; the scripts that stand elsewhere)."""
    x0, y0, x1, y1 = run.box
    reach = 0.2 * run.size
    near = [s for s in scripts if s.box[1] < y1 and s.box[3] > y0 and x0 < s.box[0] < x1 + reach]
    found: list[tuple[Box, Run]] = []
    start = 0
    for at, char in enumerate(run.chars) if near else ():
        held = [
            s
            for s in near
            if abs(s.box[0] - char.x1) < reach
            and s.box[1] < char.y1
            and s.box[3] > char.y0
            and not char[0].isspace()
        ]
        if held:
            piece = run._replace(chars=run.chars[start : at + 1])
            found += [(_half_line(piece), item) for item in (piece, *held)]
            near = [s for s in near if s not in held]
            scripts = [s for s in scripts if s not in held]
            start = at + 1
    rest = run._replace(chars=run.chars[start:]) if start else run
    return ([*found, (_half_line(rest), rest)] if rest.text.strip() else found), scripts


def _half_line(run: Run) -> Box:
    x0, y0, x1, y1 = run.box
    middle, half = (y0 + y1) / 2, max(y1 - y0, 0.5 * run.size) / 2
    return x0, middle - half, x1, middle + half


def place_fractions(lines: Sequence[list[Run]]) -> list[list[Run]]:
    """The lines; parts above and below a gap of a formula are read in that gap.

    The upper part comes first; limits of an integral or a sum run from the lower to the upper.
    """
    result = list(lines)
    at = 1
    while at < len(result) - 1:
        above, line, below = result[at - 1 : at + 2]
        slot = (
            _slot(above, line, below)
            if _FORMULA.search("".join(run.text for run in line))
            else None
        )
        if slot is None:
            at += 1
            continue
        limits = max(run.size for run in (*above, *below)) <= 0.8 * max(run.size for run in line)
        result[at - 1 : at + 2] = [
            [
                *line[:slot],
                *(below if limits else above),
                *(above if limits else below),
                *line[slot:],
            ]
        ]
    return result


def _slot(above: Sequence[Run], line: Sequence[Run], below: Sequence[Run]) -> int | None:
    """The place among a line's runs that one part stands over and the other under, or None."""
    top, bottom = min(run.box[1] for run in line), max(run.box[3] for run in line)
    reach = 0.8 * max(run.size for run in line)
    places = set()
    for part in (above, below):
        left, right = min(run.box[0] for run in part), max(run.box[2] for run in part)
        if sum(len(run.text.strip()) for run in part) > MAX_PART or any(
            run.box[0] < right - 1 and run.box[2] > left + 1 for run in line
        ):
            return None
        places.add(sum(run.box[2] <= left + 1 for run in line))
    close = (
        top - max(run.box[3] for run in above) < reach
        and min(run.box[1] for run in below) - bottom < reach
    )
    left = min(run.box[0] for run in (*above, *below))
    right = max(run.box[2] for run in (*above, *below))
    beside = min(max(run.box[0] - right, left - run.box[2]) for run in line) < reach
    return places.pop() if close and beside and len(places) == 1 else None


# MuPDF keeps global state: one thread at a time may use it.
MUPDF_LOCK = threading.RLock()

_BULLETS = "•◦▪▫●○■□‣⁃–—-*·∙\uf0b7\uf0a7\uf0d8\uf0a8\uf076\uf0fc➢➤✓✔❖◆◇►▶"
_NUMBERED = re.compile(
    r"^(?:\(?\d{1,3}[.)]|\(?[a-zA-Z][.)]|[ivxIVX]{1,5}[.)]|[一二三四五六七八九十]+、"
    r"|（[一二三四五六七八九十\d]+）)(?:\s|$|(?<=[、）]))"
)


LIST_MARKER = re.compile(r"(?:[-*+]|\d{1,9}[.)]) ")
# their hyphen is part of the word
_HYPHENATED = frozenset(("self", "well", "half", "cross", "quasi", "non", "semi"))
# fonts with letters of one width; not every file says it of its fonts
MONOSPACED = re.compile(
    r"mono(?!type)|nimbusmon|courier|consol|typewriter|cmtt|lmtt|sftt|menlo|monaco|fira ?code"
    r"|source ?code|cascadia ?code",
    re.IGNORECASE,
)
# what Chinese may stand behind in code, which is set in a font of its own: a comment or a string
_COMMENT = re.compile(r"#|//|/\*|<!--|--\s|;|%|[\"'“‘]")
# not behind many: that is the rule above the name of who signs
_CUT_NAME = re.compile(r"(?:[^\W_]_{1,2}|\bwww\.)$")
_LONGEST_WORD = 2000  # characters that are looked at; addresses are no longer in practice
MAX_HEADER_ROWS = 6  # of a table
# letters of scripts with blanks behind which MuPDF sets no space, as behind all above U+0700
_GAPPED = re.compile(r"[\u0700-\u0dff\u0f00-\u0fff\u10a0-\u177f\u1800-\u1fff\ua640-\ud7ff]")
# and those before Latin letters: behind these MuPDF sets a space before Chinese
_MAY_GAP = re.compile(rf"{_GAPPED.pattern}|[{HAN}]")
_NUMBER = 0.8  # of the size of a line of code, above which a number before it is a part of it
_GAP = 0.15  # of its size from which MuPDF takes a gap for a space
_NO_ROOM = 0.02  # of its size, below which two letters touch
_TRACKED = 3  # gaps in a line with wide tracking, at least
# words that are set letter by letter: `S U M M A R Y`, and a title, 合 同 书
_SPACED = re.compile(
    rf"(?<!\S)(?:[^\W_]{{1,2}} +){{4,}}[^\W_]{{1,2}}(?=\s|[.:!]|$)|^ *[{HAN}](?: +[{HAN}]){{2,}} *$"
)
_VOWELS = frozenset("AEIOUYÄÖÜÉАЕИОУЫЭЮЯ")
_WIDEST = 2.5  # of their size, between two letters of a word
_OVERPRINT = 0.12  # of its size by which a line that is printed twice may be shifted
_MAX_SHIFT = 8.0  # points; likewise, of large letters
# points; of 3,765 text blocks of 150 PDFs the largest such excess is 27. On one side it may
# be more: a line of a paragraph can belong to a block that lies in it
_STRETCH = 36.0
_LOOSE = 5.0  # points; every one of 7,084 blocks of 215 PDFs touches its text on some side
_ACROSS = 2.0  # of the size of most letters, above which a line may be printed across others
_MOST_ACROSS = 200
_FAR = 1e6  # broken files place glyphs at infinity
UNKNOWN = "\ufffd"  # a glyph that its font gives no meaning
# the glyphs a0 to a206 of the font ZapfDingbats: MuPDF takes their numbers for Unicode
_DINGBATS = (
    "\0✁✂✄☎✆✝✞✟✠✡☛☞✌✍✎✏✑✒✓✔✕✖✗✘✙✚✛✜✢✣✤✥✦✧★✩✪✫✬✭✮✯✰✱✲✳✴✵✶✷✓✔✺✻✼✘✾✿❀❁❂❃❄❅❆❇❈❉❊❋●❍■❏❑▲▼◆❖\0◗❘❙❚❯❱❲❳❨❩❬❭❪❫❴❵❛"
    "❜❝❞❡❢❣❤✐❥❦●♠♥♦♣\0\0\0\0✉✈✇①②③④⑤⑥⑦⑧⑨⑩❶❷❸❹❺❻❼❽❾❿➀➁➂➃➄➅➆➇➈➉➊➋➌➍➎➏➐➑➒➓➔→➣↔↕➙➛➜➝➞➟➠➡➢➤➥➦➧➨➩➫➭➯➲➳➵➸➺➻➼➽➾➚➪➶➹➘"
    "➴➷➬➮➱✃❐❒❮❰"
)
_INITIAL = 1.8  # of the size of the lines beside it
_UPRIGHT = str.maketrans(
    "︐︑︒︓︔︕︖︗︘︙︱︵︶︷︸︹︺︻︼︽︾︿﹀﹁﹂﹃﹄﹇﹈",
    "，、。：；！？〖〗…—（）｛｝〔〕【】《》〈〉「」『』［］",
)
_REORDERED = re.compile(f"[{REORDERED}]")
# vowel signs and other marks of these scripts, none of which is written twice
_SIGN = re.compile(
    "[\u0900-\u0903\u093a-\u094f\u0981-\u0983\u09be-\u09cd\u0a01-\u0a03\u0a3e-\u0a4d\u0a81-\u0a83"
    "\u0abe-\u0acd\u0b01-\u0b03\u0b3e-\u0b4d\u0b82\u0bbe-\u0bcd\u0c00-\u0c03\u0c3e-\u0c4d\u0c81-\u0c83"
    "\u0cbe-\u0ccd\u0d00-\u0d03\u0d3e-\u0d4d\u0dca-\u0ddf\u102b-\u103e\u17b6-\u17d3]"
)


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of a page and its class; `grid` has the inner borders of a table, `rules` the
    vertical lines drawn in it: x, top, bottom, `lines` those drawn through the whole of it.
    """

    bbox: Box
    label: str
    grid: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    rules: tuple[tuple[float, float, float], ...] = ()
    lines: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())


# --- opening ------------------------------------------------------------------------------------


def load_pymupdf(*, layout: bool = False) -> Any:
    """The module pymupdf; its layout models (0.5 s, 100 MB) are loaded only on request."""
    if "pymupdf" not in sys.modules and not layout:
        sys.modules["pymupdf.layout"] = None  # type: ignore[assignment]  # the import of pymupdf would load the models with it
        try:
            import pymupdf
        finally:
            del sys.modules["pymupdf.layout"]
    import pymupdf

    if layout:
        importlib.import_module("pymupdf.layout")
    return pymupdf


@contextmanager
def open_pdf(path: Path) -> Iterator[Any]:
    """The opened PDF, locked to this thread. Raises `empty_file`, `broken_file`, `encrypted`."""
    pymupdf = load_pymupdf()
    require_bytes(path)
    with MUPDF_LOCK:
        pymupdf.TOOLS.mupdf_display_errors(False)
        pymupdf.TOOLS.mupdf_display_warnings(False)
        # the layout engine sets this too: one meaning of rectangles everywhere
        pymupdf.TOOLS.unset_quad_corrections(True)
        try:
            document = pymupdf.open(path, filetype="pdf")
        except (RuntimeError, ValueError, TypeError) as error:
            raise broken_pdf(error, path) from error
        with document:
            if document.needs_pass and not document.authenticate(""):
                raise encrypted_pdf()
            prepare_layers(document)  # first: MuPDF may have to repair the file for it
            try:
                pages = int(document.page_count)
            except (RuntimeError, ValueError) as error:
                raise broken_pdf(error, path) from error
            if pages < 1:
                raise broken_pdf("it has no pages")
            yield document


def require_bytes(path: Path) -> None:
    """Raise DocumentError `empty_file` for a file without a byte."""
    if path.stat().st_size == 0:
        raise DocumentError(
            f"{path.name}: the file is empty (0 bytes); export it again from its source",
            code="empty_file",
        )


def encrypted_pdf() -> DocumentError:
    """The refusal of a PDF with a password."""
    return DocumentError(
        "the PDF is encrypted and needs a password; remove the protection (for example"
        " `qpdf --decrypt --password=...`) and ingest the result",
        code="encrypted",
    )


def broken_pdf(reason: str | Exception, path: Path | None = None) -> DocumentError:
    """The refusal of a PDF that cannot be read, with what an engine said of it at `path`."""
    text = reason if isinstance(reason, str) else say_fault(reason).replace(str(path), "the file")
    if re.search("Failed to (open|load)", text):
        text = "no PDF structure in it"
    return DocumentError(
        f"the PDF cannot be read ({text}); repair it (for example `qpdf in.pdf out.pdf`) or export"
        " it again",
        code="broken_file",
    )


def unrotate(page: Any) -> None:
    """Turn a page upright for reading. MuPDF's way alone would show again what is cropped."""
    if not page.rotation:
        return
    pymupdf = load_pymupdf()
    crop, media = page.cropbox, page.mediabox
    shown = pymupdf.Rect(crop.x0, media.y1 - crop.y1, crop.x1, media.y1 - crop.y0)
    back = page.remove_rotation()
    if crop != media:
        page.set_mediabox(shown * ~back)


def text_flags(*, images: bool = False) -> int:
    """The extraction flags that parsing and verification share."""
    pymupdf = load_pymupdf()
    flags = (
        pymupdf.TEXT_COLLECT_VECTORS | pymupdf.TEXT_ACCURATE_BBOXES | pymupdf.TEXT_IGNORE_ACTUALTEXT
    )
    return int(flags | pymupdf.TEXT_PRESERVE_IMAGES if images else flags)


def read_runs(page: Any) -> list[Run]:
    """The visible text lines of a page without rotation, in content order."""
    return read_page_text(page)[0]


def read_page_text(page: Any) -> tuple[list[Run], list[Hidden]]:
    """(visible text lines, hidden text) of a page without rotation, in content order."""
    blocks, flags = _raw_blocks(page)
    visible, hidden = split_hidden(page, blocks, flags)
    runs = _make_clear(page, make_runs(visible, gapped=_has_gaps(flags)))
    return write_marks(page, runs, blocks), hidden


def read_typed_text(page: Any) -> str:
    """The text lines of a page, shown or not, as one types them, whichever way they are written."""
    text = str(_read(page)[0].text())
    if not bidi.has_leftwards(text):
        return text
    unrotate(page)
    return "\n".join(map(line_text, order_typed_lines(all_runs(page))))


def all_runs(page: Any) -> list[Run]:
    """The text lines of a page without rotation, shown or not, in content order."""
    blocks, flags = _raw_blocks(page)
    return _make_clear(page, make_runs(blocks, gapped=_has_gaps(flags)))


def _read(page: Any) -> tuple[TextPage, int]:
    """The text of a page, and the flags that it was extracted with: with what the page says beside
    its glyphs, where these are drawn in another order than they are typed.
    """
    flags = text_flags()
    read = TextPage(page, flags)
    if not _REORDERED.search(read.text()):
        return read, flags
    told_flags = flags & ~load_pymupdf().TEXT_IGNORE_ACTUALTEXT
    told = TextPage(page, told_flags)
    return (read, flags) if told.text() == read.text() else (told, told_flags)


def _has_gaps(flags: int) -> bool:
    """False where letters come without the widths of their glyphs, which leave gaps in words."""
    return bool(flags & load_pymupdf().TEXT_IGNORE_ACTUALTEXT)


def _make_clear(page: Any, runs: list[Run]) -> list[Run]:
    """The runs; glyphs without a meaning in their font are what the page says beside them, a sign
    of a syllable that MuPDF reads twice, in the syllable and by itself, is one, and form fields
    are read as they are meant.
    """
    runs = [
        run._replace(
            chars=tuple(
                char
                for before, char in zip([None, *run.chars], run.chars, strict=False)
                if before is None or char.text != before.text or not _SIGN.match(char.text)
            )
        )
        if _REORDERED.search(run.text)
        else run
        for run in write_fields(page, runs)
    ]
    if not any(UNKNOWN in run.text for run in runs):
        return runs
    flags = text_flags() & ~load_pymupdf().TEXT_IGNORE_ACTUALTEXT
    named = {
        char[1:]: char
        for block in TextPage(page, flags).blocks()
        for line in block.get("lines", ())
        for span in line["spans"]
        for char in _chars(span)
    }
    # one without width is a mark, beside which the page says the letter that bears it
    return [
        run._replace(
            chars=tuple(
                named.get(char[1:], char) if char.text == UNKNOWN and char.x0 < char.x1 else char
                for char in run.chars
            )
        )
        for run in runs
    ]


def _raw_blocks(page: Any) -> tuple[list[dict[str, Any]], int]:
    pymupdf = load_pymupdf()
    read, flags = _read(page)
    blocks = read.blocks()
    empty = [
        (block, at)
        for block in blocks
        for at, line in enumerate(block.get("lines", ()))
        if not line["spans"]
    ]
    if empty and _has_undrawn(read.text(), blocks):
        again = TextPage(page, flags & ~pymupdf.TEXT_ACCURATE_BBOXES).blocks()
        by_number = {block["number"]: block for block in again}
        for block, at in empty:
            block["lines"][at] = by_number[block["number"]]["lines"][at]
    return list(blocks), flags


def _has_undrawn(text: str, blocks: Sequence[dict[str, Any]]) -> bool:
    """True for a text with more signs than its lines: glyphs that no font draws are missing."""
    held = sum(
        not char["c"].isspace()
        for block in blocks
        for line in block.get("lines", ())
        for span in line["spans"]
        for char in span["chars"]
    )
    return sum(not char.isspace() for char in text) > held


def make_runs(raw_blocks: Sequence[dict[str, Any]], *, gapped: bool = True) -> list[Run]:
    """The lines of extractRAWDICT()["blocks"] with a visible character, in content order; with
    spaces for the gaps between words that MuPDF leaves out, where `gapped`.
    """
    pymupdf = load_pymupdf()
    found: list[Run] = []
    for number, block in enumerate(raw_blocks):
        for line in block.get("lines", ()):
            chars: list[Char] = []
            made: list[bool] = []  # characters that MuPDF set between others
            size, bold, open_gaps = 0.0, True, False
            written: list[tuple[str, bool, float]] = []  # text, in letters of one width, size
            for span in line["spans"]:
                here = _chars(span)
                made += [item.get("synthetic", False) for item in span["chars"]]
                text = "".join([char[0] for char in here])
                if text and not text.isspace():
                    size = max(size, span["size"])
                    open_gaps = open_gaps or (gapped and _MAY_GAP.search(text) is not None)
                    flagged = span["flags"] & pymupdf.TEXT_FONT_MONOSPACED
                    mono = bool(flagged or MONOSPACED.search(span["font"]))
                    written.append((text, mono, span["size"]))
                    bold = bold and bool(span["flags"] & pymupdf.TEXT_FONT_BOLD)
                chars += here
            if size:
                if open_gaps:
                    chars, made = _open_gaps(chars, made, size)
                chars, made = _close_words(chars, made, size)
                chars = _close_spaced(_close_letters(chars, made, size), size)
                level = abs(line["dir"][0] - 1) < 0.01
                found.append(Run(tuple(chars), number, size, _is_code(written), bold, level))
    return bidi.mark_leftwards(bidi.join_columns(_print_once(found)))


def is_line_number(text: str, size: float, line: float) -> bool:
    """True for a number in much smaller print than the line that it stands before."""
    return text.strip().isdigit() and size < _NUMBER * line


def _is_code(spans: Sequence[tuple[str, bool, float]]) -> bool:
    """True for a line in letters of one width, which may begin or end in signs of another font, as
    where it was cut, begin with its number, and hold Chinese as a comment or a string.
    """
    (first, one_width, size), *rest = spans
    if not one_width and first.strip()[0] in _BULLETS:
        return False
    if rest and is_line_number(first, size, max(size for _, _, size in rest)):
        spans = rest
    before, said = "", False
    for text, one_width, _ in spans:
        if any(map(str.isalnum, text)):
            said = True
            if not (one_width or (is_cjk(text.strip()[0]) and _COMMENT.search(before))):
                return False
        before += text
    return said or spans[0][1]


def _open_gaps(
    chars: Sequence[Char], made: Sequence[bool], size: float
) -> tuple[list[Char], list[bool]]:
    """The characters of a line with a space for each gap between words that MuPDF leaves out."""
    opened: list[Char] = []
    flags: list[bool] = []
    reached = 0.0  # the right edge of a word, whose last mark may stand above an earlier letter
    for char, synthetic in zip(chars, made, strict=True):
        before = opened[-1] if opened else char
        latin = char.text.isascii() and char.text.isalnum()
        after = _MAY_GAP if latin else _GAPPED
        if char.x0 - reached > _GAP * size and after.match(before.text) and char.text != " ":
            opened.append(Char(" ", reached, before.y0, char.x0, before.y1))
            flags.append(True)
        reached = char.x1 if opened and opened[-1].text == " " else max(reached, char.x1)
        opened.append(char)
        flags.append(synthetic)
    return opened, flags


def _close_words(chars: list[Char], made: list[bool], size: float) -> tuple[list[Char], list[bool]]:
    """The characters of a line without the spaces that have no room between two letters, as
    browsers write where a word may be cut.
    """
    flat = {
        at
        for at in range(1, len(chars) - 1)
        if chars[at].text == " "
        and abs(chars[at + 1].x0 - chars[at - 1].x1) < _NO_ROOM * size
        and chars[at - 1].text.isalpha()
        and chars[at + 1].text.isalpha()
    }
    if not flat:
        return chars, made
    kept = [at for at in range(len(chars)) if at not in flat]
    return [chars[at] for at in kept], [made[at] for at in kept]


def _close_letters(chars: list[Char], made: Sequence[bool], size: float) -> list[Char]:
    """The characters of a line without the spaces that MuPDF sets into words with wide tracking.

    Tracked is a line whose letters nearly all stand apart by about the same; wider gaps end words.
    """
    if sum(made) < _TRACKED:
        return chars
    gaps: dict[int, float] = {}
    joined = 0
    for at in range(1, len(chars) - 1):
        if made[at]:
            if chars[at - 1].text.isalpha() and chars[at + 1].text.isalpha():
                gaps[at] = chars[at + 1].x0 - chars[at - 1].x1
        elif chars[at].text.isalpha() and chars[at + 1].text.isalpha():
            joined += 1
    if len(gaps) < _TRACKED or len(gaps) < 4 * joined:
        return chars
    widest = min(0.5 * size, 1.4 * sorted(gaps.values())[len(gaps) // 2])
    return [char for at, char in enumerate(chars) if gaps.get(at, size) > widest]


def _close_spaced(chars: list[Char], size: float) -> list[Char]:
    """The characters of a line without the spaces within Chinese titles and words in capitals that
    are set letter by letter; answers and columns in the order of the alphabet are no such words.
    """
    text = "".join([char[0] for char in chars])
    closed: set[int] = set()
    for spaced in _SPACED.finditer(text) if len(text) == len(chars) else ():
        places = [at for at in range(*spaced.span()) if text[at] != " "]
        said = [text[at] for at in places if not text[at].isdigit()]
        latin = not _VOWELS.isdisjoint(said) and max(said) > "H" and said != sorted(said)
        if latin or (said and all(map(is_cjk, said))):
            gaps = [chars[other].x0 - chars[one].x1 for one, other in pairwise(places)]
            if min(gaps) < _GAP * size:
                continue
            widest = min(1.4 * sorted(gaps)[len(gaps) // 2], _WIDEST * size)
            for (one, other), gap in zip(pairwise(places), gaps, strict=True):
                closed |= set(range(one + 1, other)) if gap < widest else set()
    return [char for at, char in enumerate(chars) if at not in closed]


def _print_once(runs: Sequence[Run]) -> list[Run]:
    """The runs without those printed again over the same words, which is how some make bold."""
    kept: list[Run] = []
    # by height as well: a table may hold the same number thousands of times
    seen: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        row = int(run.box[1] // _MAX_SHIFT)
        others = (seen.get((run.text, near), ()) for near in (row - 1, row, row + 1))
        if not any(_lies_on(run, other) for held in others for other in held):
            kept.append(run)
            seen.setdefault((run.text, row), []).append(run)
    return kept


def _lies_on(run: Run, other: Run) -> bool:
    near = min(_OVERPRINT * run.size, _MAX_SHIFT)
    return all(abs(a - b) <= near for a, b in zip(run.box, other.box, strict=True))


def _chars(span: dict[str, Any]) -> list[Char]:
    # a page holds thousands of characters: the constructor of the named tuple would double their
    # cost
    new = tuple.__new__
    clean = _name_dingbat if span["font"].endswith("ZapfDingbats") else clean_char
    if all(-_FAR < value < _FAR for value in span["bbox"]):
        return [new(Char, (clean(item["c"]), *item["bbox"])) for item in span["chars"]]
    return [Char(clean(item["c"]), *clamp_box(item["bbox"])) for item in span["chars"]]


def _name_dingbat(text: str) -> str:
    """The sign that a number stands for in the font ZapfDingbats."""
    named = _DINGBATS[ord(text)] if len(text) == 1 and ord(text) < len(_DINGBATS) else "\0"
    return clean_char(text if named == "\0" else named)


def clamp_box(bbox: Sequence[float]) -> Box:
    """The rectangle with every coordinate a number that can be stored and compared."""
    x0, y0, x1, y1 = (min(max(value, -_FAR), _FAR) if value == value else 0.0 for value in bbox)
    return x0, y0, x1, y1


@functools.lru_cache(maxsize=65536)
def clean_char(text: str) -> str:
    """One character that UTF-8 can hold: controls are spaces, surrogates U+FFFD, radicals the
    characters that they are drawn as, marks of vertical text those that one types.
    """
    kind = unicodedata.category(text) if len(text) == 1 else ""
    if kind == "Cc" or text == "\u00a0" or not text:
        return " "
    return "\ufffd" if kind == "Cs" else unify_radicals(text).translate(_UPRIGHT)


# --- ownership ----------------------------------------------------------------------------------


def round_out(bbox: Sequence[float]) -> Box:
    """The rectangle rounded outwards to hundredths of a point, as it is stored."""
    x0, y0, x1, y1 = (float(value) for value in bbox)
    return (
        math.floor(x0 * 100) / 100,
        math.floor(y0 * 100) / 100,
        math.ceil(x1 * 100) / 100,
        math.ceil(y1 * 100) / 100,
    )


def union(boxes: Sequence[Sequence[float]]) -> Box:
    """The smallest rectangle around the given ones."""
    return (
        min(b[0] for b in boxes),
        min(b[1] for b in boxes),
        max(b[2] for b in boxes),
        max(b[3] for b in boxes),
    )


def area(bbox: Sequence[float]) -> float:
    """Square points of a rectangle."""
    return max(0.0, bbox[2] - bbox[0]) * max(0.0, bbox[3] - bbox[1])


def owner_order(boxes: Sequence[Box]) -> list[int]:
    """Positions of the rectangles in the order in which they claim characters."""
    return sorted(range(len(boxes)), key=lambda i: (area(boxes[i]), i))


def owner_of(
    char: Char, boxes: Sequence[Box], order: Sequence[int], level: float | None = None
) -> int:
    """The position of the rectangle that owns a character, -1 when none holds its centre.

    Where one does at the `level` of its line, that one owns it: where rectangles overlap, the tall
    letters of a word would else belong to the upper and the low ones to the lower of them.
    """
    x, middle = (char.x0 + char.x1) / 2, (char.y0 + char.y1) / 2
    for y in (middle,) if level is None else (level, middle):
        for i in order:
            x0, y0, x1, y1 = boxes[i]
            if x0 <= x <= x1 and y0 <= y <= y1:
                return i
    return -1


def _level_of(run: Run) -> float | None:
    """The height at which most letters of a level line stand, None for turned text."""
    middles = sorted((char.y0 + char.y1) / 2 for char in run.chars if not char.text.isspace())
    return middles[len(middles) // 2] if run.horizontal else None


def near_boxes(box: Box, boxes: Sequence[Box], order: Iterable[int]) -> list[int]:
    """The places, in `order`, of the boxes that touch or overlap one."""
    x0, y0, x1, y1 = box
    return [
        i
        for i in order
        if boxes[i][0] <= x1 and boxes[i][2] >= x0 and boxes[i][1] <= y1 and boxes[i][3] >= y0
    ]


def contains(outer: Box, inner: Box) -> bool:
    """True where the inner box lies inside the outer one, edges included."""
    return (
        outer[0] <= inner[0]
        and outer[2] >= inner[2]
        and outer[1] <= inner[1]
        and outer[3] >= inner[3]
    )


def find_across(runs: Sequence[Run]) -> list[Run]:
    """The lines printed across others, as a watermark is: slanted or in far larger letters, with
    the middle of a letter of another line in their rectangle. None on a page of many, as a map is.
    """
    usual = usual_size((run.size, len(run.chars)) for run in runs)
    large = [run for run in runs if run.slanted or run.size > _ACROSS * usual]
    if not 0 < len(large) <= _MOST_ACROSS:
        return []
    found = {id(run) for run in large}
    others = [run for run in runs if id(run) not in found]
    boxes = [run.box for run in others]
    return [
        run
        for run in large
        if any(
            owner_of(char, [run.box], [0]) == 0 and not char.text.isspace()
            for near in near_boxes(run.box, boxes, range(len(boxes)))
            for char in others[near].chars
        )
    ]


def assign_runs(runs: Sequence[Run], boxes: Sequence[Box]) -> tuple[list[list[Run]], list[Run]]:
    """(the pieces of lines that each rectangle owns, those that none owns), in content order.

    The rectangle of a line that stands across others owns that line alone.
    """
    order = owner_order(boxes)
    pieces: list[list[Run]] = [[] for _ in boxes]
    orphans: list[Run] = []
    places = {box: place for place, box in enumerate(boxes)}
    across = {
        id(run): places[box] for run in find_across(runs) if (box := round_out(run.box)) in places
    }
    order = [place for place in order if place not in across.values()]
    for run in runs:
        if id(run) in across:
            pieces[across[id(run)]].append(run)
            continue
        near = near_boxes(run.box, boxes, order)
        if near and contains(boxes[near[0]], run.box):
            pieces[near[0]].append(run)  # it holds the whole line: no need to ask each character
            continue
        current: int | None = None
        piece: list[Char] = []
        level = _level_of(run)
        for char in run.chars:
            owner = (
                current
                if char.text.isspace() and current is not None
                else owner_of(char, boxes, near, level)
            )
            if owner != current:
                if current is not None and piece:
                    (orphans if current < 0 else pieces[current]).append(
                        run._replace(chars=tuple(piece))
                    )
                current, piece = owner, []
            piece.append(char)
        if piece and current is not None:
            (orphans if current < 0 else pieces[current]).append(run._replace(chars=tuple(piece)))
    return [[run for run in group if _visible(run)] for group in pieces], [
        run for run in orphans if _visible(run)
    ]


def _visible(run: Run) -> bool:
    return any(not char.text.isspace() for char in run.chars)


# --- reading ------------------------------------------------------------------------------------


def visual_lines(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs in printed lines, top to bottom in reading direction, turned text last."""
    level = _raise_initials(line_boxes([run for run in runs if run.horizontal]))
    level.sort(key=lambda item: ((item[0][1] + item[0][3]) / 2, item[0][0]))
    # the box is the flattest piece's: a drop cap must not swallow a second line
    lines: list[tuple[Box, list[tuple[Box, Run]]]] = []
    for box, run in level:
        if lines:
            core = lines[-1][0]
            overlap = min(core[3], box[3]) - max(core[1], box[1])
            if overlap >= 0.5 * min(core[3] - core[1], box[3] - box[1]):
                flattest = min(core, box, key=lambda item: item[3] - item[1])
                lines[-1] = (flattest, [*lines[-1][1], (box, run)])
                continue
        lines.append((box, [(box, run)]))
    ordered = [[run for _, run in sorted(items, key=lambda item: item[0][0])] for _, items in lines]
    if any(bidi.has_leftwards(run.text) for _, run in level):
        ordered = bidi.order_as_typed(ordered, bidi.is_leftwards(runs))
    return place_fractions(ordered) + [
        [run] for run in bidi.order_columns([run for run in runs if not run.horizontal])
    ]


def _raise_initials(level: list[tuple[Box, Run]]) -> list[tuple[Box, Run]]:
    """The runs with their rectangles; a letter as tall as lines beside it stands in their first."""
    found: list[tuple[Box, Run]] = []
    least = min((run.size for _, run in level), default=0.0)
    for box, run in level:
        x0, y0, x1, y1 = box
        text = run.text.strip() if _INITIAL * least < run.size else ""
        if len(text) == 1 and text.isalpha():
            beside = [
                other
                for other, line in level
                if _INITIAL * line.size < run.size
                and x0 < other[0] < x1 + line.size
                and y0 - line.size < other[1] < y1
            ]
            if len(beside) > 1:
                top = min(beside, key=lambda other: other[1])
                box = (x0, top[1], x1, top[3])
        found.append((box, run))
    return found


def order_typed_lines(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """The lines of a page as typed, block by block: each block has its own direction."""
    for _, block in groupby(runs, lambda run: run.block):
        yield from visual_lines(list(block))


def line_text(line: Sequence[Run]) -> str:
    """One printed line; pieces with a gap between them are set apart by a space."""
    text, right, initial = "", 0.0, 0.0
    for run in line:
        piece = run.text
        box = run.box
        apart = not run.horizontal or (
            abs(box[0] - right) > 0.1 * run.size and initial < _INITIAL * run.size
        )
        if text and not text[-1].isspace() and not piece[:1].isspace() and apart:
            text += " "
        text = text + piece
        right = box[2]
        initial = run.size if len(piece.strip()) == 1 and piece.strip().isalpha() else 0.0
    return re.sub(r"[ \n\r]+", " ", text).strip()


def is_cjk(char: str) -> bool:
    """True for ideographs, kana and full-width punctuation, written without spaces."""
    code = ord(char)
    return (
        0x2E80 <= code <= 0x312F
        or 0x31A0 <= code <= 0x4DBF
        or 0x4E00 <= code <= 0x9FFF
        or 0xF900 <= code <= 0xFAFF
        or 0xFE30 <= code <= 0xFE4F
        or 0xFF00 <= code <= 0xFF65
        or 0x20000 <= code <= 0x3FFFF
    )


def flow_lines(lines: Sequence[str], words: frozenset[str] = frozenset()) -> str:
    """Printed lines as running text, words, names of code and addresses cut at a line end joined
    again.

    A hyphen stays before a capital or a digit, and where `words`, the compounds of the page, has
    it.
    """
    text = ""
    for line in lines:
        if not line:
            continue
        if not text:
            text = line
        elif text[-1] == "\u00ad" or (
            text[-1] in "-\u2010" and text[-2:-1].isalpha() and line[0].islower()
        ):
            first, second = _last_word(text)[:-1], re.split(r"\s", line)[0]
            compound = text[-1] != "\u00ad" and (
                first.lower() in _HYPHENATED or f"{first}-{second.rstrip('.,;:)')}" in words
            )
            text = (text if compound else text[:-1]) + line
        elif (
            text[-1] in "-\u2010"
            and text[-2:-1].isalpha()
            and line[0].isalnum()
            and not line[0].islower()
            and not is_cjk(line[0])
        ):
            # the hyphen of a compound or a name: a dash would stand apart from the word
            text += line
        elif (is_cjk(text[-1]) and is_cjk(line[0])) or (
            line[0].isalnum() and _ends_unfinished(text)
        ):
            text += line
        else:
            text += f" {line}"
    return text


def _ends_unfinished(text: str) -> bool:
    """True where only the next line ends the last word: a name cut behind its underscore, or an
    address that has only begun.
    """
    if text[-1] not in "_.=&?":
        return False
    word = _last_word(text)
    return _CUT_NAME.search(word) is not None or ("://" in word and word[-1] in "=&?")


def _last_word(text: str) -> str:
    # not of the whole text: it is asked of every line that a paragraph grows by
    return text[-_LONGEST_WORD:].rsplit(maxsplit=1)[-1]


def page_words(runs: Sequence[Run]) -> frozenset[str]:
    """Every hyphenated compound of a page, to tell a compound from a word cut at a line end."""
    return frozenset(
        word.strip(".,;:()") for run in runs for word in run.text.split() if "-" in word[1:-1]
    )


def code_text(lines: Sequence[Sequence[Run]]) -> str:
    """Printed lines with their indentation, counted in the width of a character."""
    boxes = [union([run.box for run in line]) for line in lines]
    left = min(box[0] for box in boxes)
    widths = sorted(
        char.x1 - char.x0
        for line in lines
        for run in line
        for char in run.chars
        if char.x1 > char.x0
    )
    size = max(run.size for line in lines for run in line)
    advance = max(0.6 * size, widths[len(widths) // 2]) if widths else size
    return "\n".join(
        " " * min(80, round((box[0] - left) / advance)) + line_text(line)
        for box, line in zip(boxes, lines, strict=True)
    )


def opens_item(line: str) -> bool:
    """True for a line that begins with a bullet or an entry's number."""
    return _opens_bullet(line) or bool(_NUMBERED.match(line))


def _opens_bullet(line: str) -> bool:
    return (
        line[:1] in _BULLETS
        and line != ""
        and (len(line) == 1 or line[1] == " " or line[0] not in "-–—*·")
    )


def list_text(printed: Sequence[Sequence[Run]], lines: Sequence[str], words: frozenset[str]) -> str:
    """List entries, one a line: bullets become `- `, entries further right are indented."""
    entries: list[tuple[float, str, list[str]]] = []  # left edge, marker, lines
    for line, runs in zip(lines, printed, strict=True):
        if _opens_bullet(line):
            entries.append((min(run.box[0] for run in runs), "- ", [line[1:].strip()]))
        elif _NUMBERED.match(line) or not entries:
            entries.append(
                (min(run.box[0] for run in runs), "" if _NUMBERED.match(line) else "- ", [line])
            )
        else:
            entries[-1][2].append(line)
    least = 0.6 * max(run.size for runs in printed for run in runs)
    above: list[tuple[float, int]] = []  # left edge and indentation of the entries around
    written = []
    for left, marker, texts in entries:
        above = [item for item in above if item[0] + least < left]
        text = marker + flow_lines([item for item in texts if item] or [""], words)
        indent = above[-1][1] if above else 0
        written.append(" " * indent + text.rstrip())
        above.append((left, indent + (len(match[0]) if (match := LIST_MARKER.match(text)) else 2)))
    return "\n".join(written)


# --- proof --------------------------------------------------------------------------------------


def region_letters(runs: Sequence[Run]) -> str:
    """Letters and digits of a region in reading order, as the page prints them."""
    return letters("\n".join(line_text(line) for line in visual_lines(runs)))


def proves(kind: str, text: str, printed: str) -> bool:
    """True when a block says the printed letters in order; in tables and code in any order.

    A header cell equal to the one to its left may be that cell, repeated over another column.
    """
    said = letters(text)
    if said == printed or kind not in ("table", "code"):
        return said == printed
    surplus = Counter(said)
    surplus.subtract(printed)
    if kind == "table" and any(surplus.values()):
        for line in text.split("\n")[: MAX_HEADER_ROWS + 1]:
            for left, cell in pairwise(re.split(r"(?<!\\)\|", line)):
                repeated = Counter(letters(cell)) if cell == left else Counter[str]()
                if all(surplus[char] >= count for char, count in repeated.items()):
                    surplus.subtract(repeated)
    return not any(surplus.values())


def is_stretched(kind: str, box: Box, runs: Sequence[Run]) -> bool:
    """True for a rectangle larger than its text by more than _STRETCH on two sides, or _LOOSE on
    all; that of a picture or a formula is not that of its text.
    """
    x0, y0, x1, y1 = union([run.box for run in runs])
    beyond = sorted((x0 - box[0], y0 - box[1], box[2] - x1, box[3] - y1))
    return kind not in ("picture", "formula") and (beyond[-2] > _STRETCH or beyond[0] > _LOOSE)


def find_unproved(
    page: int, runs: Sequence[Run], facts_text: str, blocks: Sequence[Block]
) -> dict[int, str]:
    """Ordinal to reason for each block of a page that its rectangle does not print.

    Tables and code are compared as multisets of letters and digits, all else in reading order. A
    rectangle that reaches far beyond its text on two sides, or beyond it on all, is not that of its
    text.
    """
    failures: dict[int, str] = {}
    pieces, _ = assign_runs(runs, [block.bbox for block in blocks if block.bbox])
    for block, found in zip(blocks, pieces, strict=True):
        said, printed = letters(facts_text[block.start : block.end]), region_letters(found)
        if not proves(block.kind, facts_text[block.start : block.end], printed):
            failures[block.ordinal] = (
                f"page {page} prints {printed[:60]!r} in the rectangle, the facts say {said[:60]!r}"
            )
        elif found and block.bbox and is_stretched(block.kind, block.bbox, found):
            failures[block.ordinal] = (
                f"page {page}: the rectangle reaches beyond the text that is printed in it"
            )
    return failures
