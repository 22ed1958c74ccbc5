"""Which blocks of a PDF are headings, and their levels: from the outline, from numbering, and from
font sizes and weights over the whole document.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rag_platform.loaders.pdf.pages import PageBlock, PageFacts
from rag_platform.loaders.pdf.printed.runs import union, usual_size
from rag_platform.text.markdown_blocks import is_box_label
from rag_platform.text.scripts import HAN, HAN_DIGIT, letters

Place = tuple[int, int]  # page from 1, position of the block on its page
Outline = Sequence[tuple[int, str, int]]  # level, title, page

_CAPTION = re.compile(
    r"^(?:fig(?:ure|\.)?|tab(?:le|\.)?|listing|algorithm|exhibit|scheme|plate|图|圖|表|算法)\s*(?:[A-Z][-–.]?)?[\dIVX]+(?:[.\-–][\d]+)*\s*[.:：|\s–—-]",
    re.I,
)
_NUMBER = re.compile(
    r"^(?:(\d{1,3}(?:\.\d{1,3})*)[.)、"
    r"．]?\s+|([A-Z](?:\.\d{1,3})+)[.)]?\s+|([IVX]{1,5})[.)]\s+)(?=\S*[^\W\d])"
)
_NTH = r"第\s*[一二三四五六七八九十百零〇\d]+\s*"
_PART = re.compile(
    r"^(?:(?:chapter|part|appendix|annex|book)\s+(?:\d+|[IVXLC]+|[A-Z])\b"
    rf"|{_NTH}[章编篇部]|附录\s*[A-Z一二三四\d]?)",
    re.I,
)
_BARE = re.compile(  # a number whose title stands on the next line
    r"(?:chapter\s+(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
    rf"|{_PART.pattern[1:]}|{_NTH}[节節]|{HAN_DIGIT}{{1,3}}\s*[、．.])\s*[.:：]?",
    re.I,
)
_NO_TITLE = re.compile(  # what stands below a part without being its title
    rf"(?:item|section|article|clause)\s+\d|{_CAPTION.pattern[1:]}", re.I
)
_TITLE_EMS = 4  # between a bare number and its title, at most
_MARKS = (  # Chinese numbering, from the highest level to the lowest
    re.compile(f"^{_NTH}[章编篇部回]"),
    re.compile(f"^{_NTH}[节節]"),
    re.compile(f"^{_NTH}[条條](?!.*[，。；]$)", re.DOTALL),
    re.compile(rf"^{HAN_DIGIT}{{1,3}}\s*[、．.]"),
    re.compile(rf"^[（(]{HAN_DIGIT}{{1,3}}[)）]"),
    re.compile(r"^\d{1,2}[、．]"),
    re.compile(rf"^[（(]\d{{1,2}}[)）](?=\s*[{HAN}])"),
)
_UNNUMBERED = re.compile(  # chapters without a number in a document that numbers the others
    r"(?:abstract|summary|preface|foreword|acknowledge?ments?|(?:table of"
    r" )?contents|references|bibliography|glossary|index"
    r"|摘\s*要|前\s*言|目\s*[录錄]|致\s*[谢謝]|[参參]考文[献獻])[.:：]?",
    re.I,
)
_ENTRY = re.compile(r"(.*[^\d\s.·…])[\s.·…]+(?:\d{1,4}|[ivxl]{1,6})", re.DOTALL)  # of a contents
_LEADING = re.compile(
    rf"^(?:{_NTH}[章节節编篇部回]|{HAN_DIGIT}{{1,3}}(?=[、．.\s])"
    r"|附录|(?:chapter|part|section|appendix)?)"
    r"\s*(?:\d+(?:\.\d+)*|[IVXLC]+(?=[.\s])|[A-Z](?=[.\s]))?[.:)、．\s]*",
    re.I,
)
# how a letter begins and ends
_SALUTATION = re.compile(r"(?:dear|sehr geehrte[rs]?|ch[eè]re?s?|estimad[oa]s?)\b|尊敬的", re.I)
_CLOSING = re.compile(
    r"(?:(?:with )?(?:(?:kind|best|warm)(?:est)? )?(?:regards|wishes)|(?:yours )?(?:very )?"
    r"(?:sincerely|faithfully|truly|respectfully)(?: yours)?|(?:mit )?(?:freundliche|viele|beste)n?"
    r" gr(?:ü|ue)(?:ß|ss)en?|(?:bien )?cordialement|atentamente|(?:cordiali|distinti) saluti"
    r"|met vriendelijke groet(?:en)?|с уважением|此致|敬礼)[,.!，！]?",
    re.I,
)
_PROMPT = re.compile(r"[$#%>] [a-z./]")  # of a shell or R
_BOXES = "□☐☑☒✓✔√✗✘■▢"  # check boxes of a form
_CROWD = 4
_TITLE_SIZE = 1.25  # font size of a title to that of all other headings
_MIN_OUTLINED = 5  # headings named by an outline that covers the whole document
_SENTENCE_ENDS = tuple(".;,。；，、")
_ITEM_ENDS = (";", "；")  # of an entry in a list, which a heading below may repeat
_MAX_LABEL = 40  # characters of the label above a value of a form
_LABEL_EMS = 1.0  # between a label and the value below it, at most
_HEADED_EMS = 1.5  # between a heading and its text, at most
_MAX_MARKED = 40  # characters of a numbered line that may be a heading in the style of the text


class Style(NamedTuple):
    """The typography of a heading."""

    size: float  # in half points
    bold: bool
    capitals: bool = False  # all in capitals


def heading_levels(pages: Sequence[PageFacts], outline: Outline = ()) -> dict[Place, int]:
    """Place to level, 1 to 6, for each block that is a heading of the document."""
    body = body_size(pages)
    known = _find_outlined(pages, outline)
    unstyled = _find_marked(pages) | _find_top(pages)
    found: dict[Place, PageBlock] = {}
    for page in pages:
        values = _find_values(page) if page.engine == "raw" else set()
        crowd: list[Place] = []  # candidates of one style with nothing between them
        for position, block in enumerate(page.blocks):
            place = (page.page, position)
            if position in values and place not in known:
                continue
            if position and _CLOSING.fullmatch(page.blocks[position - 1].text):
                continue  # the signer's name
            if (
                place in known
                or place in unstyled
                or (block.kind == "heading" and not is_false_heading(block, body, page.engine))
            ):
                found[place] = block
            plain = (
                block.kind == "heading"
                and place not in known
                and page.engine == "raw"
                and not number_depth(block.text)
            )
            if not plain or (crowd and style_of(block) != style_of(page.blocks[crowd[-1][1]])):
                _drop_crowd(found, crowd)
                crowd = []
            if plain:
                crowd.append(place)
        _drop_crowd(found, crowd)
    if all(page.engine == "raw" for page in pages):
        found = _without_entries(found, known)
    if _is_complete(known, len(pages)):
        found = {
            place: block
            for place, block in found.items()
            if place in known or place in unstyled or block.bold or block.size > body
        }
    levels = _assign_levels(found, known, _find_title(pages, found, known), len(pages))
    levels.update(
        {place: levels[below] for place, below in _find_bare(found).items() if place not in known}
    )
    return levels


def join_bare(page: PageFacts) -> PageFacts:
    """The page, with each heading that is only a number, such as `第一章` or `Chapter 2`, joined to
    its title below. The layout model's headings stay as they are.
    """
    if page.engine != "raw":
        return page
    blocks: list[PageBlock] = []
    for block in page.blocks:
        if blocks and _is_titled(blocks[-1], block):
            bare = blocks.pop()
            gap = "" if bare.text.endswith(("、", "．")) else " "
            box = union([bare.bbox, block.bbox])
            blocks.append(replace(block, text=f"{bare.text}{gap}{block.text}", bbox=box))
        else:
            blocks.append(block)
    return replace(page, blocks=tuple(blocks))


def _is_titled(bare: PageBlock, below: PageBlock) -> bool:
    """True for a bare number, or the first word of one, above the rest of its heading."""
    text, size = below.text.strip(), max(bare.size, below.size)
    return (
        bare.kind == below.kind == "heading"
        and (
            not (number_depth(text) or _NO_TITLE.match(text) or text.endswith(_SENTENCE_ENDS))
            if _BARE.fullmatch(bare.text.strip())
            else _BARE.fullmatch(f"{bare.text.strip()} {text}") is not None
        )
        and bare.bbox[1] < below.bbox[1] < bare.bbox[3] + _TITLE_EMS * size
        and bare.bbox[0] < below.bbox[2]
        and below.bbox[0] < bare.bbox[2]
    )


def _without_entries(
    found: Mapping[Place, PageBlock], known: Mapping[Place, int]
) -> dict[Place, PageBlock]:
    """The headings without the entries of a table of contents: a heading and its page number, in a
    style that other headings may share.
    """
    entries = {
        place: match[1]
        for place, block in found.items()
        if place not in known and (match := _ENTRY.fullmatch(block.text.strip()))
    }
    last: dict[str, int] = {}  # key of a title to its last page
    for (page, _), block in found.items() if entries else ():
        last[title_keys(block.text)[1]] = page
    last.pop("", None)
    return {
        place: block
        for place, block in found.items()
        if place not in entries or last.get(title_keys(entries[place])[1], 0) <= place[0]
    }


def _drop_crowd(found: dict[Place, PageBlock], crowd: Sequence[Place]) -> None:
    """Drop a long row of bold lines: they are a form or code, not headings without text."""
    if len(crowd) >= _CROWD:
        for place in crowd:
            found.pop(place, None)


def _find_values(page: PageFacts) -> set[int]:
    """The positions of values that look like headings below their labels, such as a bold `INV-2041`
    below `Invoice number`: several on a page have labels in one style and no text of their own.
    """
    values: dict[Style, list[int]] = {}
    headless: Counter[Style] = Counter()
    for at, block in enumerate(page.blocks):
        if block.kind != "heading" or block.lines > 1:
            continue
        above, below = _neighbours(page.blocks, block)
        if above is None or not _is_label(above, block):
            continue
        style = style_of(above)
        values.setdefault(style, []).append(at)
        headless[style] += not above.text.endswith(_SENTENCE_ENDS) and (
            below is None
            or below.kind == "heading"
            or (_is_short_line(below) and style_of(below) == style)
            or below.bbox[1] - block.bbox[3] > _HEADED_EMS * block.size
        )
    return {at for style, found in values.items() if headless[style] > 1 for at in found}


def _neighbours(
    blocks: Sequence[PageBlock], block: PageBlock
) -> tuple[PageBlock | None, PageBlock | None]:
    """The nearest blocks above and below a block that overlap it horizontally."""
    left, top, right, bottom = block.bbox
    column = [item for item in blocks if item.bbox[0] < right and left < item.bbox[2]]
    middle = (top + bottom) / 2
    above = [item for item in column if item.bbox[3] <= middle and item is not block]
    below = [item for item in column if item.bbox[1] >= middle and item is not block]
    return (
        max(above, key=lambda item: item.bbox[3], default=None),
        min(below, key=lambda item: item.bbox[1], default=None),
    )


def _is_label(above: PageBlock, value: PageBlock) -> bool:
    """True for a short line directly above a value, less prominent and aligned with it."""
    return (
        _is_short_line(above)
        and (above.size, above.bold) < (value.size, value.bold)
        and value.bbox[1] - above.bbox[3] < _LABEL_EMS * value.size
        and abs(value.bbox[0] - above.bbox[0]) < value.size / 2
    )


def _is_short_line(block: PageBlock) -> bool:
    return block.kind == "paragraph" and block.lines == 1 and len(block.text) <= _MAX_LABEL


def body_size(pages: Iterable[PageFacts]) -> float:
    """The usual font size of paragraphs and lists in half points; 0 without any."""
    return usual_size(
        (block.size, len(block.text))
        for page in pages
        for block in page.blocks
        if block.kind in ("paragraph", "list")
    )


# --- the outline --------------------------------------------------------------------------------


def _find_outlined(pages: Sequence[PageFacts], outline: Outline) -> dict[Place, int]:
    """Place to outline level of each block with the title of an entry, on its page or an adjacent
    one.
    """
    by_page = {page.page: page for page in pages}
    known: dict[Place, int] = {}
    for level, title, number in outline:
        wanted = title_keys(title)
        ranks = {
            (near, at): 4 * rank + 2 * (block.kind == "heading") + (near == number)
            for near in (number, number + 1, number - 1)
            for at, block in enumerate(by_page[near].blocks if near in by_page else ())
            if block.kind in ("heading", "paragraph", "list", "caption", "header")
            and len(block.text) < 300
            and not block.text.endswith(_ITEM_ENDS)
            and (near, at) not in known
            and (rank := _rank(wanted, title_keys(block.text.removeprefix("- ")), block.kind))
        }
        if ranks:
            known[max(ranks, key=lambda place: ranks[place])] = min(6, max(1, level))
    return known


def title_keys(title: str) -> tuple[str, str]:
    """The lower-cased letters of a title, with and without its number."""
    return letters(title).lower(), letters(_LEADING.sub("", title)).lower()


def _rank(wanted: tuple[str, str], found: tuple[str, str], kind: str) -> int:
    """How well a block matches a title: 4 for the title's letters, with or without a number before
    them (`R code` is the title of `3.1 R code`), 3 for equal letters apart from both numbers, 2 for
    a heading that only begins with the title (`Options (GLOBAL OPTIONS)`), 1 for a line taken for a
    page header, 0 for no match.
    """
    least = 3 if wanted[1].isascii() else 2
    whole = bool(wanted[0]) and wanted[0] in found
    rest = len(wanted[1]) >= least and wanted[1] == found[1]
    if kind == "header":
        return int(whole or rest)
    longer = kind == "heading" and len(wanted[1]) >= least and found[1].startswith(wanted[1])
    return 4 if whole else 3 if rest else 2 * int(longer)


# --- marks ---------------------------------------------------------------------------------------


def _find_marked(pages: Sequence[PageFacts]) -> set[Place]:
    """Headings in the style of the text, as in Chinese papers: short numbered lines such as
    `一、总则` above text, if most lines numbered in this way are short. A table of contents, whose
    lines end in a number, does not count.
    """
    blocks = [
        ((page.page, at), block.text.strip(), block.lines)
        for page in pages
        for at, block in enumerate(page.blocks)
        if block.kind in ("paragraph", "list", "heading", "table")
    ]
    marks = [_mark_level(text) for _, text, _ in blocks]
    marked: dict[int, list[tuple[Place, bool]]] = {}
    for (place, text, lines), mark, below in zip(blocks, marks, [*marks, 0][1:], strict=True):
        if 0 < mark < len(_MARKS) and not text[-1].isdigit():  # `(1)` opens an entry of a list
            short = lines == 1 and len(text) <= _MAX_MARKED
            alone = short and below != mark and not text.endswith((*_SENTENCE_ENDS, "：", ":"))
            marked.setdefault(mark, []).append((place, alone))
    return {
        place
        for lines in marked.values()
        if 2 * sum(alone for _, alone in lines) > len(lines)
        for place, alone in lines
        if alone
    }


def _find_top(pages: Sequence[PageFacts]) -> set[Place]:
    """The first line of page 1 if it is far larger than all headings: the layout model sometimes
    takes a title for a page header.
    """
    largest = max((b.size for page in pages for b in page.blocks if b.kind == "heading"), default=0)
    top = pages[0].blocks[:1] if pages else ()
    return {(1, 0) for b in top if b.kind == "header" and b.size > _TITLE_SIZE * largest > 0}


# --- false headings -----------------------------------------------------------------------------


def is_false_heading(block: PageBlock, body: float, engine: str) -> bool:
    """True for a heading candidate that is a caption, formula, label, command or plain text."""
    text = block.text.strip()
    words = re.findall(r"[^\W\d_]{2,}", text)
    if _CAPTION.match(text) or not (
        re.search(r"[^\W\d_]", text) or (text.isdigit() and block.size > 1.4 * body)
    ):
        return True
    if re.search(r"[=≤≥≈∑∫]", text) and max(map(len, words), default=0) < 4:
        return True
    if text[0] in _BOXES or is_box_label(text) or _PROMPT.match(text) or _CLOSING.fullmatch(text):
        return True
    if text.endswith(_ITEM_ENDS):
        return True
    if engine == "layout":
        return _is_plain(block, body) and (
            text.endswith((*_SENTENCE_ENDS, "："))  # the addressee of a notice: 各有关单位：
            or _SALUTATION.match(text) is not None
            or len(text) > 100
            or len(re.findall(f"[{HAN}]", text)) > 30
        )
    if text.endswith(_SENTENCE_ENDS) and number_depth(text) == 0:
        return True
    if len(text) > 160 or block.lines > 3:
        return True
    return not (
        block.size > 1.1 * body or (block.bold and (block.size >= body or number_depth(text) > 0))
    )


def _is_plain(block: PageBlock, body: float) -> bool:
    """True for a block with the text's size and weight and without a number."""
    return not block.bold and block.size <= body and not number_depth(block.text.strip())


def number_depth(text: str) -> int:
    """The depth of a heading's number: 1 for `2 Methods`, 3 for `2.1.4 Setup`, 0 without one."""
    if _PART.match(text):
        return 1
    if mark := _mark_level(text):
        return mark
    if match := _NUMBER.match(text):
        return (match[1] or match[2] or "1").count(".") + 1
    return 0


def _find_bare(found: Mapping[Place, PageBlock]) -> dict[Place, Place]:
    """The place of each bare `Chapter 2` to the place of its title, the heading below it."""
    return {
        (page, at): (page, at + 1)
        for (page, at), block in found.items()
        if _PART.fullmatch(block.text.strip())
        and (title := found.get((page, at + 1)))
        and not number_depth(title.text)
    }


def _mark_level(text: str) -> int:
    """The level, from 1, of the Chinese numbering that a text begins with; 0 for none."""
    return next((i for i, pattern in enumerate(_MARKS, start=1) if pattern.match(text)), 0)


# --- levels -------------------------------------------------------------------------------------


def _assign_levels(
    found: Mapping[Place, PageBlock],
    outlined: Mapping[Place, int],
    title: Place | None,
    pages: int,
) -> dict[Place, int]:
    # the outlined headings come below a title that the outline does not name
    shift = int(title is not None and list(outlined.values()).count(1) > 1)
    known = {place: min(6, level + shift) for place, level in outlined.items()}
    bare = _find_bare(found)
    depths = _number_depths(found, known, bare)
    offsets = Counter(level - depths[place] for place, level in known.items() if depths[place])
    offset = (
        min(offsets, key=lambda item: (-offsets[item], item)) if offsets else int(title is not None)
    )
    levels = dict(known)
    for place in found:
        if place not in levels and depths[place]:
            levels[place] = min(6, max(1, depths[place] + offset))
    if title is not None:
        levels[title] = 1
    styles = _styles(found)
    votes: dict[Style, Counter[int]] = {}
    for place, level in levels.items():
        if place != title and (place in known or place not in bare):
            votes.setdefault(styles[place], Counter())[level] += 1
    by_style = {
        style: min(counts, key=lambda level: (-counts[level], level))
        for style, counts in votes.items()
    }
    rest = Counter(styles[place] for place in found if place not in levels)
    recurring = [style.size for style in (*by_style, *rest) if style in by_style or rest[style] > 1]
    current = int(title is not None)
    ranked: dict[Style, int] = {}
    for style in sorted(
        {*rest, *by_style}, key=lambda item: (-item.size, not item.bold, not item.capitals)
    ):
        if style in by_style:
            current = by_style[style]
        elif rest[style] > 1 or not ranked or style.size <= max(recurring, default=0.0):
            # not for a size used once that exceeds all recurring ones: a line of the cover
            current += 1
        ranked[style] = min(6, max(1, current))
    given = {place: levels.get(place) or ranked[styles[place]] for place in found}
    return _keep_below(given, known, title) if _is_complete(outlined, pages) else given


def _is_complete(outlined: Mapping[Place, int], pages: int) -> bool:
    """True for an outline that reaches into the last third of the document."""
    return len(outlined) >= _MIN_OUTLINED and max(outlined)[0] > 2 * pages / 3


def _keep_below(
    levels: Mapping[Place, int], parts: Mapping[Place, int], title: Place | None
) -> dict[Place, int]:
    """The levels, with each heading that is not among the outlined `parts` placed below the part it
    is in: a bold `3. Separator` in a section begins no chapter.
    """
    kept: dict[Place, int] = {}
    part = 0
    for place, level in sorted(levels.items()):
        part = parts.get(place, part)
        fixed = place in parts or place == title
        kept[place] = level if fixed else min(6, max(level, part + 1))
    return kept


def style_of(block: PageBlock) -> Style:
    """The style of a block, whatever its capitals."""
    return Style(block.size, block.bold)


def _styles(found: Mapping[Place, PageBlock]) -> dict[Place, Style]:
    """Place to style; capitals are a style of their own if several headings of more than one word
    are set in them.
    """
    capitals = {
        place: words for place, block in found.items() if (words := _capital_words(block.text))
    }
    usual = {style_of(found[place]) for place, words in capitals.items() if words > 1}
    several = {
        style for style in usual if sum(style_of(found[place]) == style for place in capitals) > 1
    }
    styles = {place: style_of(block) for place, block in found.items()}
    return {
        place: style._replace(capitals=style in several and place in capitals)
        for place, style in styles.items()
    }


def _capital_words(text: str) -> int:
    """The number of words of more than 3 letters in a text all in capitals; 0 for other texts."""
    words = [word for word in re.findall(r"[^\W\d_]+", text) if len(word) > 3]
    return len(words) if all(word.isupper() for word in words) else 0


def _number_depths(
    found: Mapping[Place, PageBlock], known: Mapping[Place, int], bare: Mapping[Place, Place]
) -> dict[Place, int]:
    """Place to the depth of its number; 0 for numbered steps, which repeatedly restart at 1."""
    marks = {place: _mark_level(block.text) for place, block in found.items()}
    used = sorted({*marks.values()} - {0})
    depths = {  # a paper whose highest mark is 一、 starts at level 1 there
        place: used.index(mark) + 1 if (mark := marks[place]) else number_depth(block.text)
        for place, block in found.items()
    }
    depths.update({below: depths[place] for place, below in bare.items()})
    single = {
        place: match[1]
        for place, block in found.items()
        if place not in known
        and (match := _NUMBER.match(block.text))
        and match[1]
        and "." not in match[1]
    }
    distinct = len(set(single.values()))
    if 2 * (len(single) - distinct) > distinct:
        depths.update(dict.fromkeys(single, 0))
    if 1 in depths.values():
        chapters = (
            place for place, block in found.items() if _UNNUMBERED.fullmatch(block.text.strip())
        )
        depths.update(dict.fromkeys(chapters, 1))
    return depths


def _find_title(
    pages: Sequence[PageFacts], found: Mapping[Place, PageBlock], known: Mapping[Place, int]
) -> Place | None:
    """The document's title: a heading of page 1 without a number, in a style of its own.

    It is the one that the layout model chose, unless a larger one stands above it; else the largest
    heading of the document; else the heading that opens it. A heading that the outline names
    qualifies only if it is by far the largest.
    """
    styles = _styles(found)
    usual = Counter(styles.values())
    *_, second, largest = sorted([0.0, 0.0, *(block.size for block in found.values())])
    first = {
        place: block
        for place, block in found.items()
        if place[0] == 1
        and not number_depth(block.text)
        and (place not in known or block.size == largest > _TITLE_SIZE * second)
    }
    if not first:
        return None
    place = max(first, key=lambda item: (first[item].title, first[item].size, -item[1]))
    place = max((at for at in first if at <= place), key=lambda at: (first[at].size, at))
    if first[place].title or (
        first[place].size == largest and usual[styles[place]] == 1 and len(found) > 1
    ):
        return place
    opening = next(
        (
            (1, at)
            for at, block in enumerate(pages[0].blocks)
            if block.kind not in ("header", "footer", "picture")
        ),
        None,
    )
    return opening if opening in first and usual[styles[opening]] == 1 and len(found) > 2 else None
