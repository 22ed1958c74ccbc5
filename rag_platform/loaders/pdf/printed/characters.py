"""The characters of a PDF page as MuPDF reads them, in runs, corrected to what a reader sees."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rag_platform.ir import HiddenText
from rag_platform.loaders.pdf.opening import load_pymupdf, unrotate
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.accents import place_accents
from rag_platform.loaders.pdf.printed.bitmap_fonts import (
    correct_dot_fonts,
    flag_monospaced,
    read_bitmap_fonts,
)
from rag_platform.loaders.pdf.printed.forms import write_fields, write_marks
from rag_platform.loaders.pdf.printed.hidden_text import split_hidden
from rag_platform.loaders.pdf.printed.lines import (
    BULLETS,
    is_cjk,
    line_text,
    mark_bullets,
    order_lines,
)
from rag_platform.loaders.pdf.printed.runs import FAR, Char, Run, clamp_box
from rag_platform.loaders.pdf.printed.textpages import TextPage
from rag_platform.text.scripts import HAN, REORDERED_CHAR, unify_radicals

# names of monospaced fonts, which not every file flags as such
MONOSPACED = re.compile(
    r"mono(?!type)|nimbusmon|courier|consol|typewriter|cmtt|lmtt|sftt|menlo|monaco|fira ?code"
    r"|source ?code|cascadia ?code",
    re.IGNORECASE,
)
# begins a comment or string, in which code may have Chinese, set in a font of its own
_COMMENT = re.compile(r"#|(?<!:)//(?![A-Za-z\d-]+\.[A-Za-z\d])|/\*|<!--|--\s|;|%|[\"'“‘]")
# letters of scripts with spaces; MuPDF inserts no space after them, as after any above U+0700
_GAPPED = re.compile(r"[\u0700-\u0dff\u0f00-\u0fff\u10a0-\u177f\u1800-\u1fff\ua640-\ud7ff]")
# the same before a Latin letter, where MuPDF inserts no space after Chinese either
_MAY_GAP = re.compile(rf"{_GAPPED.pattern}|[{HAN}]")
_NUMBER_SIZE = 0.8  # font size of a line number to that of its line of code, at most
_SPACE_GAP = 0.15  # ems; MuPDF takes a wider gap for a space
_TOUCHING = 0.02  # ems; letters with a smaller gap touch
_MIN_TRACKED = 3  # gaps in a line with wide tracking, at least
# words typed letter by letter: `S U M M A R Y`, and titles, `合 同 书`
_SPACED = re.compile(
    rf"(?<!\S)(?:[^\W_]{{1,2}} +){{4,}}[^\W_]{{1,2}}(?=\s|[.:!]|$)|^ *[{HAN}](?: +[{HAN}]){{2,}} *$"
)
_VOWELS = frozenset("AEIOUYÄÖÜÉАЕИОУЫЭЮЯ")
_MAX_GAP = 2.5  # ems between two letters of such a word
_OVERPRINT = 0.12  # ems by which a line that is printed twice may be shifted
_MAX_SHIFT = 8.0  # points; the same for large letters
_VECTOR = 3  # type of a block that is a line or an area
UNKNOWN = "\ufffd"  # a glyph without a Unicode meaning in its font
# the glyphs a0 to a206 of the font ZapfDingbats, whose numbers MuPDF takes for Unicode
_DINGBATS = (
    "\0✁✂✄☎✆✝✞✟✠✡☛☞✌✍✎✏✑✒✓✔✕✖✗✘✙✚✛✜✢✣✤✥✦✧★✩✪✫✬✭✮✯✰✱✲✳✴✵✶✷✓✔✺✻✼✘✾✿❀❁❂❃❄❅❆❇❈❉❊❋●❍■❏❑▲▼◆❖\0◗❘❙❚❯❱❲❳❨❩❬❭❪❫❴❵❛"
    "❜❝❞❡❢❣❤✐❥❦●♠♥♦♣\0\0\0\0✉✈✇①②③④⑤⑥⑦⑧⑨⑩❶❷❸❹❺❻❼❽❾❿➀➁➂➃➄➅➆➇➈➉➊➋➌➍➎➏➐➑➒➓➔→➣↔↕➙➛➜➝➞➟➠➡➢➤➥➦➧➨➩➫➭➯➲➳➵➸➺➻➼➽➾➚➪➶➹➘"
    "➴➷➬➮➱✃❐❒❮❰"
)
_UPRIGHT = str.maketrans(
    "︐︑︒︓︔︕︖︗︘︙︱︵︶︷︸︹︺︻︼︽︾︿﹀﹁﹂﹃﹄﹇﹈",
    "，、。：；！？〖〗…—（）｛｝〔〕【】《》〈〉「」『』［］",
)
# vowel signs and other marks of these scripts, none of which is written twice
_SIGN = re.compile(
    "[\u0900-\u0903\u093a-\u094f\u0981-\u0983\u09be-\u09cd\u0a01-\u0a03\u0a3e-\u0a4d\u0a81-\u0a83"
    "\u0abe-\u0acd\u0b01-\u0b03\u0b3e-\u0b4d\u0b82\u0bbe-\u0bcd\u0c00-\u0c03\u0c3e-\u0c4d\u0c81-\u0c83"
    "\u0cbe-\u0ccd\u0d00-\u0d03\u0d3e-\u0d4d\u0dca-\u0ddf\u102b-\u103e\u17b6-\u17d3]"
)


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


def read_page_text(page: Any) -> tuple[list[Run], list[HiddenText]]:
    """(visible text lines, hidden text) of a page without rotation, in content order."""
    blocks, flags = _read_blocks(page)
    visible, hidden = split_hidden(page, blocks, flags)
    read_bitmap_fonts(page, visible)
    runs = _correct(page, make_runs(visible, has_widths=_has_widths(flags)))
    return write_marks(page, runs, blocks), hidden


def read_logical_text(page: Any) -> str:
    """The text lines of a page, hidden ones included, in logical order."""
    text = str(_read(page)[0].text())
    if not bidi.has_rtl(text):
        return text
    unrotate(page)
    return "\n".join(map(line_text, order_lines(all_runs(page))))


def all_runs(page: Any) -> list[Run]:
    """The text lines of a page without rotation, hidden ones included, in content order."""
    blocks, flags = _read_blocks(page)
    read_bitmap_fonts(page, blocks)
    return _correct(page, make_runs(blocks, has_widths=_has_widths(flags)))


def _read(page: Any) -> tuple[TextPage, int]:
    """(the text of a page, the flags it was extracted with): with the page's ActualText if it has a
    script whose glyphs are drawn in another order than they are typed.
    """
    flags = text_flags()
    read = TextPage(page, flags)
    if not REORDERED_CHAR.search(read.text()):
        return read, flags
    actual_flags = flags & ~load_pymupdf().TEXT_IGNORE_ACTUALTEXT
    actual = TextPage(page, actual_flags)
    return (read, flags) if actual.text() == read.text() else (actual, actual_flags)


def _has_widths(flags: int) -> bool:
    """False for text from ActualText: its characters lack the widths of the glyphs, so that words
    have gaps.
    """
    return bool(flags & load_pymupdf().TEXT_IGNORE_ACTUALTEXT)


def _correct(page: Any, runs: list[Run]) -> list[Run]:
    """The runs, with form fields rewritten, vowel signs that MuPDF reads twice, in the syllable and
    alone, reduced to one, and unknown glyphs replaced by the page's ActualText.
    """
    runs = [
        run._replace(
            chars=tuple(
                char
                for before, char in zip([None, *run.chars], run.chars, strict=False)
                if before is None or char.text != before.text or not _SIGN.match(char.text)
            )
        )
        if REORDERED_CHAR.search(run.text)
        else run
        for run in write_fields(page, runs)
    ]
    if not any(UNKNOWN in run.text for run in runs):
        return runs
    flags = text_flags() & ~load_pymupdf().TEXT_IGNORE_ACTUALTEXT
    by_box = {
        char[1:]: char
        for block in TextPage(page, flags).blocks()
        for line in block.get("lines", ())
        for span in line["spans"]
        for char in _chars(span)
    }
    # a glyph without width is a mark, for which the ActualText is that of its base letter
    return [
        run._replace(
            chars=tuple(
                by_box.get(char[1:], char) if char.text == UNKNOWN and char.x0 < char.x1 else char
                for char in run.chars
            )
        )
        for run in runs
    ]


def _read_blocks(page: Any) -> tuple[list[dict[str, Any]], int]:
    pymupdf = load_pymupdf()
    read, flags = _read(page)
    blocks = read.blocks()
    empty = [
        (block, at)
        for block in blocks
        for at, line in enumerate(block.get("lines", ()))
        if not line["spans"]
    ]
    if empty and _lacks_characters(read.text(), blocks):
        again = TextPage(page, flags & ~pymupdf.TEXT_ACCURATE_BBOXES).blocks()
        by_number = {block["number"]: block for block in again}
        for block, at in empty:
            block["lines"][at] = by_number[block["number"]]["lines"][at]
    correct_dot_fonts(page, blocks)
    flag_monospaced(blocks)
    return list(blocks), flags


def _lacks_characters(text: str, blocks: Sequence[dict[str, Any]]) -> bool:
    """True if the blocks lack characters of the text: glyphs that the font does not draw."""
    extracted = sum(
        not char["c"].isspace()
        for block in blocks
        for line in block.get("lines", ())
        for span in line["spans"]
        for char in span["chars"]
    )
    return sum(not char.isspace() for char in text) > extracted


def make_runs(raw_blocks: Sequence[dict[str, Any]], *, has_widths: bool = True) -> list[Run]:
    """The lines of extractRAWDICT()["blocks"] with a visible character, in content order; with
    `has_widths` also with the spaces in gaps between words that MuPDF leaves out.
    """
    pymupdf = load_pymupdf()
    found: list[Run] = []
    for number, block in enumerate(raw_blocks):
        for at, line in enumerate(block.get("lines", ())):
            chars: list[Char] = []
            inserted: list[bool] = []  # whether MuPDF inserted a character
            size, may_gap = 0.0, False
            weights: list[tuple[bool, bool, int]] = []  # bold, monospaced, characters
            spans: list[tuple[str, bool, float]] = []  # text, monospaced, size
            for span in line["spans"]:
                here = _chars(span)
                inserted += [item.get("synthetic", False) for item in span["chars"]]
                text = "".join([char[0] for char in here])
                if text and not text.isspace():
                    size = max(size, span["size"])
                    may_gap = may_gap or (has_widths and _MAY_GAP.search(text) is not None)
                    flagged = span["flags"] & pymupdf.TEXT_FONT_MONOSPACED
                    mono = bool(flagged or MONOSPACED.search(span["font"]))
                    spans.append((text, mono, span["size"]))
                    bold = bool(span["flags"] & pymupdf.TEXT_FONT_BOLD)
                    weights.append((bold, mono, len(text)))
                chars += here
            if size:
                if may_gap:
                    chars, inserted = _insert_spaces(chars, inserted, size)
                if any(bidi.has_rtl(text) for text, _, _ in spans):
                    chars, inserted = bidi.place_marks(chars, inserted)
                chars = _drop_flat_spaces(_join_tracked(chars, inserted, size), size)
                chars = _join_spaced(chars, size)
                if at == 0 and found and number and "bbox" in raw_blocks[number - 1]:
                    drawn = _drawn_underscore(found[-1], raw_blocks[number - 1], chars[0])
                    chars = [*drawn, *chars]
                level = abs(line["dir"][0] - 1) < 0.01
                bold = _is_bold(weights)
                found.append(Run(tuple(chars), number, size, _is_code(spans), bold, level))
    placed = place_accents(_drop_overprints(found))
    return bidi.mark_rtl(bidi.join_columns(mark_bullets(placed)))


def _drawn_underscore(before: Run, block: dict[str, Any], after: Char) -> list[Char]:
    """The underscore that TeX draws as a short line, with which MuPDF ends a block in a word."""
    x0, y0, x1, y1 = block["bbox"]
    near, last = 0.15 * before.size, before.chars[-1]
    is_drawn = (
        block["type"] == _VECTOR
        and y1 - y0 < near
        and 0.2 * before.size < x1 - x0 < 0.7 * before.size
        and abs(x0 - last.x1) < near > abs(after.x0 - x1)
        and y0 < min(last.y1, after.y1) < y1 + near  # an underline is lower
        and all(char.text.isascii() and char.text.isalnum() for char in (last, after))
    )
    return [Char("_", last.x1, after.y0, after.x0, after.y1)] if is_drawn else []


def is_line_number(text: str, size: float, line: float) -> bool:
    """True for a number in much smaller print than the line of font size `line` it precedes."""
    return text.strip().isdigit() and size < _NUMBER_SIZE * line


def _is_code(spans: Sequence[tuple[str, bool, float]]) -> bool:
    """True for a monospaced line. It may begin with its line number or begin and end with symbols
    in another font, for example where it was wrapped, and have Chinese in a comment, a string or
    braces.
    """
    (first, mono, size), *rest = spans
    if not mono and first.strip()[0] in BULLETS:
        return False
    if rest and is_line_number(first, size, max(size for _, _, size in rest)):
        spans = rest
    before, has_text = "", False
    for text, mono, _ in spans:
        if any(map(str.isalnum, text)):
            has_text = True
            quoted = _COMMENT.search(before) or before.count("{") > before.count("}")
            if not (mono or (is_cjk(text.strip()[0]) and quoted)):
                return False
        before += text
    return has_text or spans[0][1]


def _is_bold(weights: Sequence[tuple[bool, bool, int]]) -> bool:
    """True for a bold line, in which there may be some code in a plain font."""
    plain = [(mono, count) for bold, mono, count in weights if not bold]
    text = sum(count for bold, mono, count in weights if bold and not mono)
    return all(mono for mono, _ in plain) and sum(count for _, count in plain) <= text


def _insert_spaces(
    chars: Sequence[Char], inserted: Sequence[bool], size: float
) -> tuple[list[Char], list[bool]]:
    """(characters, inserted flags) of a line, with the spaces between words that MuPDF omits."""
    spaced: list[Char] = []
    flags: list[bool] = []
    reached = 0.0  # right edge of the word; its last mark may stand above an earlier letter
    for char, is_inserted in zip(chars, inserted, strict=True):
        before = spaced[-1] if spaced else char
        latin = char.text.isascii() and char.text.isalnum()
        after = _MAY_GAP if latin else _GAPPED
        if char.x0 - reached > _SPACE_GAP * size and after.match(before.text) and char.text != " ":
            spaced.append(Char(" ", reached, before.y0, char.x0, before.y1))
            flags.append(True)
        reached = char.x1 if spaced and spaced[-1].text == " " else max(reached, char.x1)
        spaced.append(char)
        flags.append(is_inserted)
    return spaced, flags


def _drop_flat_spaces(chars: list[Char], size: float) -> list[Char]:
    """The characters of a line without spaces of no width between two letters, which browsers write
    where a word may be broken.
    """
    return [
        char
        for at, char in enumerate(chars)
        if char.text != " "
        or not 0 < at < len(chars) - 1
        or abs(chars[at + 1].x0 - chars[at - 1].x1) >= _TOUCHING * size
        or not (chars[at - 1].text.isalpha() and chars[at + 1].text.isalpha())
    ]


def _join_tracked(chars: list[Char], inserted: Sequence[bool], size: float) -> list[Char]:
    """The characters of a line without the spaces that MuPDF inserts into widely tracked words.

    A line is tracked if nearly all of its letters have similar gaps; wider gaps separate words.
    """
    if sum(inserted) < _MIN_TRACKED:
        return chars
    gaps: dict[int, float] = {}
    joined = 0
    for at in range(1, len(chars) - 1):
        if inserted[at]:
            if chars[at - 1].text.isalpha() and chars[at + 1].text.isalpha():
                gaps[at] = chars[at + 1].x0 - chars[at - 1].x1
        elif chars[at].text.isalpha() and chars[at + 1].text.isalpha():
            joined += 1
    if len(gaps) < _MIN_TRACKED or len(gaps) < 4 * joined:
        return chars
    widest = min(0.5 * size, 1.4 * sorted(gaps.values())[len(gaps) // 2])
    return [char for at, char in enumerate(chars) if gaps.get(at, size) > widest]


def _join_spaced(chars: list[Char], size: float) -> list[Char]:
    """The characters of a line without the spaces in Chinese titles and words in capitals that were
    typed letter by letter. Letters in alphabetical order or up to H are answers or columns.
    """
    text = "".join([char[0] for char in chars])
    closed: set[int] = set()
    for spaced in _SPACED.finditer(text) if len(text) == len(chars) else ():
        places = [at for at in range(*spaced.span()) if text[at] != " "]
        spelled = [text[at] for at in places if not text[at].isdigit()]
        latin = (
            not _VOWELS.isdisjoint(spelled) and max(spelled) > "H" and spelled != sorted(spelled)
        )
        if latin or (spelled and all(map(is_cjk, spelled))):
            gaps = [chars[other].x0 - chars[one].x1 for one, other in pairwise(places)]
            if min(gaps) < _SPACE_GAP * size:
                continue
            widest = min(1.4 * sorted(gaps)[len(gaps) // 2], _MAX_GAP * size)
            for (one, other), gap in zip(pairwise(places), gaps, strict=True):
                closed |= set(range(one + 1, other)) if gap < widest else set()
    return [char for at, char in enumerate(chars) if at not in closed]


def _drop_overprints(runs: Sequence[Run]) -> list[Run]:
    """The runs without those printed again over the same text, which some writers do for bold."""
    kept: list[Run] = []
    # by text and height: a table may have the same number thousands of times
    seen: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        row = int(run.box[1] // _MAX_SHIFT)
        others = (seen.get((run.text, near), ()) for near in (row - 1, row, row + 1))
        if not any(_is_overprint(run, other) for near in others for other in near):
            kept.append(run)
            seen.setdefault((run.text, row), []).append(run)
    return kept


def _is_overprint(run: Run, other: Run) -> bool:
    near = min(_OVERPRINT * run.size, _MAX_SHIFT)
    return all(abs(a - b) <= near for a, b in zip(run.box, other.box, strict=True))


def _chars(span: dict[str, Any]) -> list[Char]:
    # the constructor of the named tuple would double the cost of a page's thousands of characters
    new = tuple.__new__
    clean = _decode_dingbat if span["font"].endswith("ZapfDingbats") else clean_char
    if all(-FAR < value < FAR for value in span["bbox"]):
        return [new(Char, (clean(item["c"]), *item["bbox"])) for item in span["chars"]]
    return [Char(clean(item["c"]), *clamp_box(item["bbox"])) for item in span["chars"]]


def _decode_dingbat(text: str) -> str:
    """The character of a glyph number in the font ZapfDingbats."""
    named = _DINGBATS[ord(text)] if len(text) == 1 and ord(text) < len(_DINGBATS) else "\0"
    return clean_char(text if named == "\0" else named)


@functools.lru_cache(maxsize=65536)
def clean_char(text: str) -> str:
    """A character that can be stored as UTF-8: a space for a control character, U+FFFD for a
    surrogate, the ideograph for a radical, ordinary punctuation for that of vertical text.
    """
    kind = unicodedata.category(text) if len(text) == 1 else ""
    if kind == "Cc" or text == "\u00a0" or not text:
        return " "
    return "\ufffd" if kind == "Cs" else unify_radicals(text).translate(_UPRIGHT)
