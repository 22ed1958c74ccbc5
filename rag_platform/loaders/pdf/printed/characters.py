"""The characters of a PDF page as MuPDF reads them, in runs, mended where a reader sees others."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rag_platform.loaders.pdf.opening import load_pymupdf, unrotate
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.forms import write_fields, write_marks
from rag_platform.loaders.pdf.printed.hidden_text import Hidden, split_hidden
from rag_platform.loaders.pdf.printed.lines import (
    BULLETS,
    is_cjk,
    line_text,
    mark_bullets,
    order_typed_lines,
)
from rag_platform.loaders.pdf.printed.runs import FAR, Char, Run, clamp_box
from rag_platform.loaders.pdf.printed.textpages import TextPage
from rag_platform.text.scripts import HAN, REORDERED, unify_radicals

# fonts with letters of one width; not every file says it of its fonts
MONOSPACED = re.compile(
    r"mono(?!type)|nimbusmon|courier|consol|typewriter|cmtt|lmtt|sftt|menlo|monaco|fira ?code"
    r"|source ?code|cascadia ?code",
    re.IGNORECASE,
)
# what Chinese may stand behind in code, which is set in a font of its own: a comment or a string
_COMMENT = re.compile(r"#|//|/\*|<!--|--\s|;|%|[\"'“‘]")
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
UNKNOWN = "\ufffd"  # a glyph that its font gives no meaning
# the glyphs a0 to a206 of the font ZapfDingbats: MuPDF takes their numbers for Unicode
_DINGBATS = (
    "\0✁✂✄☎✆✝✞✟✠✡☛☞✌✍✎✏✑✒✓✔✕✖✗✘✙✚✛✜✢✣✤✥✦✧★✩✪✫✬✭✮✯✰✱✲✳✴✵✶✷✓✔✺✻✼✘✾✿❀❁❂❃❄❅❆❇❈❉❊❋●❍■❏❑▲▼◆❖\0◗❘❙❚❯❱❲❳❨❩❬❭❪❫❴❵❛"
    "❜❝❞❡❢❣❤✐❥❦●♠♥♦♣\0\0\0\0✉✈✇①②③④⑤⑥⑦⑧⑨⑩❶❷❸❹❺❻❼❽❾❿➀➁➂➃➄➅➆➇➈➉➊➋➌➍➎➏➐➑➒➓➔→➣↔↕➙➛➜➝➞➟➠➡➢➤➥➦➧➨➩➫➭➯➲➳➵➸➺➻➼➽➾➚➪➶➹➘"
    "➴➷➬➮➱✃❐❒❮❰"
)
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
    return bidi.mark_leftwards(bidi.join_columns(mark_bullets(_print_once(found))))


def is_line_number(text: str, size: float, line: float) -> bool:
    """True for a number in much smaller print than the line that it stands before."""
    return text.strip().isdigit() and size < _NUMBER * line


def _is_code(spans: Sequence[tuple[str, bool, float]]) -> bool:
    """True for a line in letters of one width, which may begin or end in signs of another font, as
    where it was cut, begin with its number, and hold Chinese as a comment or a string.
    """
    (first, one_width, size), *rest = spans
    if not one_width and first.strip()[0] in BULLETS:
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
    if all(-FAR < value < FAR for value in span["bbox"]):
        return [new(Char, (clean(item["c"]), *item["bbox"])) for item in span["chars"]]
    return [Char(clean(item["c"]), *clamp_box(item["bbox"])) for item in span["chars"]]


def _name_dingbat(text: str) -> str:
    """The sign that a number stands for in the font ZapfDingbats."""
    named = _DINGBATS[ord(text)] if len(text) == 1 and ord(text) < len(_DINGBATS) else "\0"
    return clean_char(text if named == "\0" else named)


@functools.lru_cache(maxsize=65536)
def clean_char(text: str) -> str:
    """One character that UTF-8 can hold: controls are spaces, surrogates U+FFFD, radicals the
    characters that they are drawn as, marks of vertical text those that one types.
    """
    kind = unicodedata.category(text) if len(text) == 1 else ""
    if kind == "Cc" or text == "\u00a0" or not text:
        return " "
    return "\ufffd" if kind == "Cs" else unify_radicals(text).translate(_UPRIGHT)
