"""Running headers and footers of a PDF: what stands at the same edge of page after page with the same words.

A page number is the one part that may differ: a number, in digits or Roman, that grows with the page, alone or with a word for page. With
other words it is one only where the layout model takes the line for a header or footer too: `Record 7` may say something of its page. Where
another number differs as well, the line is text whatever the model says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rag_platform.loaders.pdf_pages import PageBlock, PageFacts

Place = tuple[int, int]  # page from 1, position of the block on its page

_EDGE_ROWS = 2  # printed rows at each end of a page that may be running ones
_MOST_CHARS, _MOST_LINES = 200, 3
_LEAST_PAGES = 3
_FURTHEST = 4  # pages from one occurrence to the next: left and right pages differ, and one may have none
_SAME_HEIGHT = 8.0  # points by which equal lines may lie apart
_NUMBER = re.compile(r"(?<![\w.,])(?:[1-9]\d{0,3}|0|[ivxlc]{1,7}|[IVXLC]{1,7})(?![\w]|[.,]\d)")
_PAGE_WORDS = re.compile(
    r"[\W_]*(?:(?:page|pages|pg|p|slide|sheet|seite|s|folie|blatt|página|pagina|pág|pag|strona|str|sida|side|стр|страница|صفحة|第|共)[\W_]*)?"
    r"(?:[A-Z]-)?\0[\W_]*(?:(?:of|from|von|de|di|sur|van|z|av|af|из|من|页|頁|ページ|共|第)[\W_]*)*(?:\d{1,4}[\W_]*(?:页|頁|ページ|pages|seiten)?)?[\W_]*",
    re.I,
)
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}


class _Line(NamedTuple):
    place: Place
    height: float  # of its upper edge


def running_edges(pages: Sequence[PageFacts]) -> dict[Place, str]:
    """Place to header or footer for each block that repeats at an edge over at least three pages; a page's only text is never one."""
    found: dict[Place, str] = {}
    candidates = {kind: _candidates(pages, kind) for kind in ("header", "footer")}
    for kind, rows_by_page in candidates.items():
        repeated = _repeated(pages, [place for rows in rows_by_page.values() for row in rows for place in row])
        for rows in rows_by_page.values():
            for row in rows:  # from the edge inwards: what stands behind text of the page is text as well
                found.update({place: kind for place in row if place in repeated})
                if not all(place in repeated for place in row):
                    break
    for page in pages:
        here = [(page.page, position) for position in range(len(page.blocks))]
        if not any(place not in found and _says_something(page.blocks[place[1]].text) for place in here):
            for place in here:
                found.pop(place, None)
    return found


def _says_something(text: str) -> bool:
    return any(char.isalnum() for char in text)


def _candidates(pages: Iterable[PageFacts], kind: str) -> dict[int, list[list[Place]]]:
    """Page to its outermost rows, the outer one first."""
    return {page.page: list(_rows(page, from_below=kind == "footer"))[:_EDGE_ROWS] for page in pages if page.blocks}


def _rows(page: PageFacts, *, from_below: bool) -> Iterator[list[Place]]:
    """The blocks of a page by printed row from one end; blocks beside each other are one row."""
    row: list[int] = []
    edge = 0.0
    order = sorted(range(len(page.blocks)), key=lambda at: -page.blocks[at].bbox[3] if from_below else page.blocks[at].bbox[1])
    for at in order:
        _, top, _, bottom = page.blocks[at].bbox
        if row and (bottom < edge if from_below else top > edge):
            yield [(page.page, item) for item in row]
            row = []
        middle = (top + bottom) / 2
        edge = middle if not row else (max if from_below else min)(edge, middle)
        row.append(at)
    if row:
        yield [(page.page, item) for item in row]


def _repeated(pages: Sequence[PageFacts], places: Iterable[Place]) -> set[Place]:
    by_number = {page.page: page for page in pages}
    groups: dict[tuple[str, int | None], list[_Line]] = {}
    for place in places:
        block = by_number[place[0]].blocks[place[1]]
        if block.kind in ("header", "footer", "heading", "paragraph") and len(block.text) <= _MOST_CHARS and block.lines <= _MOST_LINES:
            for key in _keys(block, place[0]):
                groups.setdefault(key, []).append(_Line(place, block.bbox[1]))
    return {line.place for lines in groups.values() for run in _runs(lines) for line in run}


def _keys(block: PageBlock, page: int) -> Iterator[tuple[str, int | None]]:
    """The line as it is, and with each number that may be the page's left open: (words, number minus page).

    A possible heading stands for itself: chapters are counted too.
    """
    words = " ".join(block.text.split())
    yield words, None
    for match in _NUMBER.finditer(words) if block.kind != "heading" else ():
        others = f"{words[: match.start()]}\0{words[match.end() :]}"
        if block.kind in ("header", "footer") or _PAGE_WORDS.fullmatch(others):
            yield others, _value(match[0]) - page


def _value(number: str) -> int:
    if number.isdigit():
        return int(number)
    values = [_ROMAN[letter] for letter in number.lower()]
    return sum(-value if value < max(values[at:]) else value for at, value in enumerate(values))


def _runs(lines: Iterable[_Line]) -> Iterator[list[_Line]]:
    """Lines of one group at one height on enough pages that follow each other."""
    levels: list[list[_Line]] = []
    for line in sorted(lines, key=lambda item: item.height):
        if levels and line.height - levels[-1][0].height <= _SAME_HEIGHT:
            levels[-1].append(line)
        else:
            levels.append([line])
    for level in levels:
        run: list[_Line] = []
        for line in sorted(level):
            if run and line.place[0] - run[-1].place[0] > _FURTHEST:
                if _enough(run):
                    yield run
                run = []
            run.append(line)
        if _enough(run):
            yield run


def _enough(run: Sequence[_Line]) -> bool:
    return len({line.place[0] for line in run}) >= _LEAST_PAGES
