"""Which blocks of a page are its main content."""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rag_platform.ir import HiddenText
from rag_platform.loaders.archives import Reading
from rag_platform.loaders.markup.html_blocks import Page, Piece, letters, source_text
from rag_platform.loaders.markup.html_inline import links

if TYPE_CHECKING:
    from lxml.etree import _Element

MAX_GUIDED_BLOCKS = 20_000  # of a page above which trafilatura is not asked for its main content
MAX_GUIDED_LETTERS = 4_000_000
MIN_MAIN = 100  # letters that the main content must have
MIN_MAIN_SHARE = 0.1  # of the page's letters; with less the whole page is taken
MIN_MARK = 20  # letters of a block that can be recognised in the extracted text
MARK_LETTERS = 400  # of them that are compared
CONTAINED = 0.9  # share of the recognised text that the main element must hold
# of a block's letters that stand in links, from which it is navigation at the content's edges
LINK_SHARE = 0.7
# letters of prose from which what stands beside the main element is content, too, of a page with
# more than this share of its letters in navigation and other surroundings
MIN_BESIDE = 50
MIN_APART_SHARE = 0.05
PROSE_SHARE = 0.5  # of its letters that are prose; with less its children are judged one by one
# words in ids, classes and roles by which pages name what surrounds their content; gathered by hand
_SURROUNDINGS = set(
    "ad ads advert advertisement advertising complementary consent contentinfo cookie cookies"
    " docnav feedback footer gdpr login modal nav navbar navfooter navheader newsletter overlay"
    " popular popup promo recommended related share sharing sidebar signup social sponsor sponsored"
    " subscribe teaser teasers trending".split()
)
_NAME_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")


def main_pieces(page: Page, title: str) -> Sequence[int]:
    """Numbers of the pieces of the main content; all of them where it is unclear.

    They are those of the element around what trafilatura extracts, and what reads as content beside
    it, for of several articles or answers trafilatura extracts one.
    """
    pieces, sizes = page.pieces, list(map(len, page.letters))
    marked = [
        number
        for number in _find_extracted(page)
        if not _is_navigation(pieces[number], sizes[number])
    ]
    main = _choose_main(page, marked)
    if main is None:
        return range(len(pieces))
    inside = [number for number, piece in enumerate(pieces) if _holds(main, piece)]
    if sum(sizes[number] for number in inside) < max(MIN_MAIN, MIN_MAIN_SHARE * sum(sizes)):
        return range(len(pieces))
    apart = _find_apart(page, main)
    sure = [number for number in marked if number not in apart] or marked
    first, last = (sure[0], sure[-1]) if sure and not _is_main(main) else (0, len(pieces))
    kept = [n for n in inside if first <= n <= last or n not in apart] or inside
    # the headline, and an introduction below it, often stand above the text's element; what is
    # the page's only heading of the first level is one, too, however the page is titled
    above = [number for number in range(kept[0]) if _is_headline(pieces[number], title)]
    said = [
        number
        for number in range(above[-1] if above else kept[0], kept[0])
        if not _is_navigation(pieces[number], sizes[number])
    ]
    ones = [
        number
        for number, piece in enumerate(pieces)
        if piece.level == 1
        and number not in apart
        and _count_linked(piece) <= LINK_SHARE * sizes[number]
    ]
    said += ones if len(ones) == 1 else []
    return sorted({*said, *kept, *_find_beside(page, main, apart, frozenset(marked))})


def _choose_main(page: Page, marked: Sequence[int]) -> _Element | None:
    """The element around the marked pieces, widened to the `main` around it; where they are few,
    the only `main` or `article`. Never a single block: what stands around it has no other place.
    """
    pieces, sizes = page.pieces, list(map(len, page.letters))
    weight = sum(sizes[number] for number in marked)
    if weight < max(MIN_MAIN, MIN_MAIN_SHARE * sum(sizes)):
        named = [item for item in page.root.iter("*") if _is_main(item)]
        named = named or page.root.findall(".//article")
        return named[0] if len(named) == 1 else None
    held: dict[Any, int] = defaultdict(int)
    for number in marked:
        for element in (pieces[number].element, *pieces[number].element.iterancestors()):
            held[element] += sizes[number]
    blocks = {piece.element for piece in pieces if piece.nodes is None}
    main = page.root
    while (
        child := next((item for item in main if held.get(item, 0) >= CONTAINED * weight), None)
    ) is not None and child not in blocks:
        main = child
    return next((above for above in main.iterancestors() if _is_main(above)), main)


def _find_apart(page: Page, main: _Element) -> set[int]:
    """Numbers of the pieces that are navigation, or that the page names as surroundings."""
    around = {main, *main.iterancestors()}
    flows = {
        piece.element.getparent()
        for piece, own in zip(page.pieces, page.letters, strict=True)
        if piece.kind == "paragraph" and _count_prose(piece, len(own)) >= MIN_MARK
    }
    named = {
        item
        for item in page.root.iter("*")
        if item not in around and _is_surrounding(item, item.getparent() in flows)
    }
    return {
        number
        for number, piece in enumerate(page.pieces)
        if _is_navigation(piece, len(page.letters[number]))
        or not named.isdisjoint([piece.element, *piece.element.iterancestors()])
    }


def _find_beside(page: Page, main: _Element, apart: set[int], marked: frozenset[int]) -> set[int]:
    """Numbers of the pieces beside the main element that are content, too: further articles and
    answers, other prose, and what is marked as content.
    """
    around = [] if _is_main(main) else list(main.iterancestors())
    total = sum(map(len, page.letters))
    frame = sum(len(page.letters[n]) for n in apart if not _holds(main, page.pieces[n]))
    enough = MIN_BESIDE if frame >= MIN_APART_SHARE * total else 1
    below: dict[Any, list[int]] = defaultdict(list)
    ink: dict[Any, int] = defaultdict(int)  # letters of prose
    for number, piece in enumerate(page.pieces):
        elements = [piece.element, *piece.element.iterancestors()]
        if main in elements:
            continue
        prose = 0 if number in apart else _count_prose(piece, len(page.letters[number]))
        if prose and number in marked:
            prose = max(prose, enough)
        # of an element around the main one only the text that is its own
        for element in [item for item in elements if item not in around] or elements[:1]:
            below[element].append(number)
            ink[element] += prose
    left = [(element, enough) for element in around]
    for inner, above in zip([main, *around], around, strict=False):
        others = [item for item in above if item is not inner]
        left += [(item, 1 if _is_peer(item, inner) else enough) for item in others]
    found: set[int] = set()
    while left:
        element, least = left.pop()
        if ink.get(element, 0) < least:
            continue
        size = sum(len(page.letters[number]) for number in below[element])
        if ink[element] >= PROSE_SHARE * size:
            found.update(below[element])
        elif element not in around:
            left += [(child, least) for child in element]
    return found - apart


def _count_prose(piece: Piece, size: int) -> int:
    """Letters of a piece outside its links; none of a heading."""
    if piece.kind == "heading":
        return 0
    return max(0, size - _count_linked(piece))


def _is_peer(element: _Element, other: _Element) -> bool:
    """True for two articles, and for two elements of one class."""
    if element.tag != other.tag:
        return False
    return element.tag == "article" or bool(
        (name := element.get("class")) and name == other.get("class")
    )


def _is_surrounding(element: _Element, among_text: bool) -> bool:
    """True where the id, class or role of an element says that it surrounds the content; a sidebar
    among paragraphs is one of a book.
    """
    if element.tag == "article":
        return False
    words = _NAME_WORD.findall(" ".join(element.get(name, "") for name in ("id", "class", "role")))
    return any(
        word in _SURROUNDINGS and not (among_text and word == "sidebar")
        for word in map(str.lower, words)
    )


def begins_title(piece: Piece, title: str) -> bool:
    """True for a heading that begins the page's title; for any where there is no title."""
    said = letters(piece.title) if title else ""
    return bool(piece.title) and letters(title).casefold().startswith(said.casefold())


def left_out(page: Page, kept: Iterable[int]) -> list[HiddenText]:
    """The text of the pieces that were not kept."""
    known = frozenset(kept)
    return [
        HiddenText(0, "beside_main", " ".join(source_text(piece).split()))
        for number, piece in enumerate(page.pieces)
        if number not in known and page.letters[number]
    ]


def _is_headline(piece: Piece, title: str) -> bool:
    """True for a heading that says the page's title, perhaps behind a number, or begins it; of one
    without a title, for one of the first level.
    """
    if not letters(title):
        return piece.level == 1 and bool(piece.title)
    return begins_title(piece, title) or (
        bool(piece.title) and letters(piece.title).lstrip("0123456789") == letters(title)
    )


def _is_main(element: _Element) -> bool:
    return "main" in (element.tag, element.get("role"))


def _find_extracted(page: Page) -> list[int]:
    """Numbers of the pieces that trafilatura extracts; none for a page that would take minutes."""
    import trafilatura

    if len(page.pieces) > MAX_GUIDED_BLOCKS or sum(map(len, page.letters)) > MAX_GUIDED_LETTERS:
        return []
    copied = copy.deepcopy(page.root)  # it takes out of the tree what it does not want
    for cell in copied.iter("td", "th"):
        for name in ("rowspan", "colspan"):  # a few can make it write millions of cells
            cell.attrib.pop(name, None)
    # its rules fail in many ways on odd trees; the page is read without their advice
    with Reading("stage.loader") as reading:
        extracted = letters(
            trafilatura.extract(copied, include_comments=False, include_tables=True, fast=True)
            or ""
        )
    if reading.error is not None:
        page.note("the main content was not looked for: its rules failed")
        return []
    return [
        number
        for number, own in enumerate(page.letters)
        if len(own) >= MIN_MARK and own[:MARK_LETTERS] in extracted
    ]


def _is_navigation(piece: Piece, size: int) -> bool:
    """True for a block that is nearly all links."""
    return piece.kind != "heading" and _count_linked(piece) > LINK_SHARE * size


def _count_linked(piece: Piece) -> int:
    return sum(len(letters(words)) for words in links(piece.element))


def _holds(element: _Element, piece: Piece) -> bool:
    return element is piece.element or element in piece.element.iterancestors()
