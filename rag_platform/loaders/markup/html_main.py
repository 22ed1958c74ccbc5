"""Which blocks of a page are its main content."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

from rag_platform.loaders.markup.html_blocks import Page, Piece
from rag_platform.text.scripts import letters

if TYPE_CHECKING:
    from lxml.etree import _Element

MIN_MAIN = 100  # letters that the main content must have
MIN_MAIN_SHARE = 0.1  # of the page's letters that it must have; with less the whole page is taken
MIN_PROSE = 20  # letters of prose from which a block counts as running text
MIN_CORE_SHARE = 0.5  # of the page's prose that the main element must have
LINK_SHARE = 0.7  # of a block's letters; with more in links it is navigation
# of the page's letters that are boilerplate outside the main element: with less, any prose outside
# of it is content too; with more, an element needs MIN_PROSE letters of prose
MIN_BOILERPLATE_SHARE = 0.05
PROSE_SHARE = 0.5  # of an element's letters that are prose; with less its children are checked
# words in the ids, classes and roles of boilerplate, which surrounds the content; gathered by hand
_BOILERPLATE_WORDS = set(
    "ad ads advert advertisement advertising complementary consent contentinfo cookie cookies"
    " docnav feedback footer gdpr login modal nav navbar navfooter navheader newsletter overlay"
    " popular popup promo recommended related share sharing sidebar signup social sponsor sponsored"
    " subscribe teaser teasers trending".split()
)
_NAME_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_CONTENTS = re.compile("(?<![a-z])(?:toc|list-of-(?:figures|tables|examples|equations))(?![a-z])")


def main_pieces(page: Page, title: str) -> Sequence[int]:
    """Indexes of the pieces of the main content, of all pieces where it is unclear; without a table
    of contents, unless the page has no other text than titles and links.
    """
    found, contents = _find_main(page, title), _find_contents(page)
    kept = [number for number in found if number not in contents]
    has_text = any(
        page.pieces[number].kind != "table" and _count_prose(page, number) >= MIN_PROSE
        for number in kept
    )
    return kept if has_text else found


def _find_contents(page: Page) -> set[int]:
    """Indexes of the pieces of tables of contents and lists of figures: links in an element that is
    named as such. A heading can be named after its entry, and what is around the title after the
    table of contents that it has.
    """
    named = {
        item
        for item in page.root.iter("*")
        if _CONTENTS.search(f"{item.get('id', '')} {item.get('class', '')}".lower())
        and not item.xpath("descendant-or-self::h1 | self::h2 | self::h3 | self::h4 | self::h5")
    }
    below: dict[Any, list[int]] = defaultdict(list)
    for number, piece in enumerate(page.pieces):
        for element in named.intersection([piece.element, *piece.element.iterancestors()]):
            below[element].append(number)
    return {
        number
        for inside in below.values()
        if 2 * sum(_count_prose(page, n) for n in inside)
        < sum(len(page.letters[n]) for n in inside)
        for number in inside
    }


def _find_main(page: Page, title: str) -> Sequence[int]:
    """Indexes of the pieces of the main content; of all pieces where it is unclear.

    They are the pieces of the element with most of the prose, and other content outside that
    element, which may be only one of several articles or answers.
    """
    pieces, sizes = page.pieces, list(map(len, page.letters))
    boilerplate = _find_boilerplate(page, _find_core(page, frozenset())[0])
    main = _choose_main(page, boilerplate)
    if main is None:
        return range(len(pieces))
    inside = [number for number, piece in enumerate(pieces) if _contains(main, piece)]
    if sum(sizes[number] for number in inside) < _min_main_letters(page):
        return range(len(pieces))
    # boilerplate is dropped at the edges of the main element only
    content = [number for number in inside if number not in boilerplate]
    first, last = (content[0], content[-1]) if content and not _is_main(main) else (0, len(pieces))
    kept = [number for number in inside if first <= number <= last]
    # the headline and an introduction below it are often above the element with the text; a single
    # heading of level 1 is a headline too, whatever the page's title is
    above = [number for number in range(kept[0]) if _is_headline(pieces[number], title)]
    introduction = [
        number
        for number in range(above[-1] if above else kept[0], kept[0])
        if not _is_navigation(page, number)
    ]
    first_level = [
        number
        for number, piece in enumerate(pieces)
        if piece.level == 1
        and number not in boilerplate
        and page.linked[piece.element] <= LINK_SHARE * sizes[number]
    ]
    headline = first_level if len(first_level) == 1 else []
    found = {*introduction, *headline, *kept, *_find_other_content(page, main, boilerplate)}
    # a heading belongs to what is below it
    for number in range(len(pieces) - 2, min(found), -1):
        if (
            number + 1 in found
            and pieces[number].level
            and number not in boilerplate
            and not 0 < pieces[number + 1].level <= pieces[number].level
        ):
            found.add(number)
    return sorted(found)


def _choose_main(page: Page, boilerplate: set[int]) -> _Element | None:
    """The core of the page, or the `main` element around it. If the core has little prose, the only
    `main` or `article`; None if there are several or none.
    """
    core, prose = _find_core(page, boilerplate)
    if prose < _min_main_letters(page):
        named = [item for item in page.root.iter("*") if _is_main(item)]
        named = named or page.root.findall(".//article")
        return named[0] if len(named) == 1 else None
    return next((above for above in core.iterancestors() if _is_main(above)), core)


def _find_core(page: Page, boilerplate: Set[int]) -> tuple[_Element, int]:
    """(the innermost element with more than half of the page's prose, the letters of its prose);
    the `boilerplate` is left out.

    An element with a single block of prose is never the core, because the text around that block
    would be lost.
    """
    prose: dict[Any, int] = defaultdict(int)
    blocks: dict[Any, int] = defaultdict(int)
    for number, piece in enumerate(page.pieces):
        size = 0 if number in boilerplate else _count_prose(page, number)
        if size >= MIN_PROSE:
            for element in (piece.element, *piece.element.iterancestors()):
                prose[element] += size
                blocks[element] += 1
    core, least = page.root, MIN_CORE_SHARE * prose[page.root]
    while (
        child := next((item for item in core if prose.get(item, 0) > least), None)
    ) is not None and blocks[child] > 1:
        core = child
    return core, prose[core]


def _min_main_letters(page: Page) -> float:
    """The number of letters that the main content of a page must have."""
    return max(MIN_MAIN, MIN_MAIN_SHARE * sum(map(len, page.letters)))


def _find_boilerplate(page: Page, main: _Element) -> set[int]:
    """Indexes of the pieces that are navigation, or in an element named as boilerplate."""
    around = {main, *main.iterancestors()}
    text_parents = {
        piece.element.getparent()
        for number, piece in enumerate(page.pieces)
        if piece.kind == "paragraph" and _count_prose(page, number) >= MIN_PROSE
    }
    named = {
        item
        for item in page.root.iter("*")
        if item not in around and _is_boilerplate(item, item.getparent() in text_parents)
    }
    return {
        number
        for number, piece in enumerate(page.pieces)
        if _is_navigation(page, number)
        or not named.isdisjoint([piece.element, *piece.element.iterancestors()])
    }


def _find_other_content(page: Page, main: _Element, boilerplate: set[int]) -> set[int]:
    """Indexes of the pieces outside the main element that are content too: other articles and
    answers, and other prose.
    """
    around = [] if _is_main(main) else list(main.iterancestors())
    total = sum(map(len, page.letters))
    outside = sum(len(page.letters[n]) for n in boilerplate if not _contains(main, page.pieces[n]))
    enough = MIN_PROSE if outside >= MIN_BOILERPLATE_SHARE * total else 1
    below: dict[Any, list[int]] = defaultdict(list)
    prose: dict[Any, int] = defaultdict(int)
    for number, piece in enumerate(page.pieces):
        elements = [piece.element, *piece.element.iterancestors()]
        if main in elements:
            continue
        size = 0 if number in boilerplate else _count_prose(page, number)
        # an element around the main one counts only with its own text
        for element in [item for item in elements if item not in around] or elements[:1]:
            below[element].append(number)
            prose[element] += size
    remaining = [(element, enough) for element in around]
    for inner, above in zip([main, *around], around, strict=False):
        others = [item for item in above if item is not inner]
        remaining += [(item, 1 if _is_peer(item, inner) else enough) for item in others]
    found: set[int] = set()
    while remaining:
        element, least = remaining.pop()
        if prose.get(element, 0) < least:
            continue
        size = sum(len(page.letters[number]) for number in below[element])
        if prose[element] >= PROSE_SHARE * size:
            found.update(below[element])
        elif element not in around:
            remaining += [(child, least) for child in element]
    return found - boilerplate


def _count_prose(page: Page, number: int) -> int:
    """Letters of a piece outside its links, of code also in them; none of a heading."""
    piece, size = page.pieces[number], len(page.letters[number])
    if piece.kind == "heading":
        return 0
    return size if piece.kind == "code" else max(0, size - page.linked[piece.element])


def _is_peer(element: _Element, other: _Element) -> bool:
    """True for two articles, and for two elements of one class."""
    if element.tag != other.tag:
        return False
    return element.tag == "article" or bool(
        (name := element.get("class")) and name == other.get("class")
    )


def _is_boilerplate(element: _Element, among_text: bool) -> bool:
    """True if the id, class or role of an element names boilerplate; a sidebar among paragraphs is
    part of the text.
    """
    if element.tag == "article":
        return False
    words = _NAME_WORD.findall(" ".join(element.get(name, "") for name in ("id", "class", "role")))
    return any(
        word in _BOILERPLATE_WORDS and not (among_text and word == "sidebar")
        for word in map(str.lower, words)
    )


def begins_title(piece: Piece, title: str) -> bool:
    """True if the page's title starts with the heading; without a title, for any heading."""
    start = letters(piece.title) if title else ""
    return bool(piece.title) and letters(title).casefold().startswith(start.casefold())


def _is_headline(piece: Piece, title: str) -> bool:
    """True for a heading that is the page's title, perhaps after a number, or its beginning; on a
    page without a title, for a heading of level 1.
    """
    if not letters(title):
        return piece.level == 1 and bool(piece.title)
    return begins_title(piece, title) or (
        bool(piece.title) and letters(piece.title).lstrip("0123456789") == letters(title)
    )


def _is_main(element: _Element) -> bool:
    return "main" in (element.tag, element.get("role"))


def _is_navigation(page: Page, number: int) -> bool:
    """True for a block that is nearly all links."""
    piece, size = page.pieces[number], len(page.letters[number])
    is_text = piece.kind not in ("heading", "code")
    return is_text and page.linked[piece.element] > LINK_SHARE * size


def _contains(element: _Element, piece: Piece) -> bool:
    return element is piece.element or element in piece.element.iterancestors()
