"""The facts of a whole PDF put together from its pages: headings, running headers and footers,
nested lists, images, warnings.

Running headers and footers stand at the same edge of page after page with the same words. A page
number is the one part that may differ: a number, in digits or Roman, that grows with the page,
alone or with a word for page. With other words alone it is one only where the layout model takes
the line for a header or footer too: `Record 7` may say something of its page. Where another number
differs as well, the line is text whatever the model says.

Where the words of such a line stand nowhere else, its first occurrence stays text: six certificates
keep their title, letters the sender's address.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Box, Facts, MediaRef, ParseSummary
from rag_platform.loaders.numerals import NUMBER, PAGE_WORDS, without_page_number
from rag_platform.loaders.parts import Engine
from rag_platform.loaders.pdf.headings import heading_levels, number_depth
from rag_platform.loaders.pdf.images import target_of
from rag_platform.loaders.pdf.opening import broken_pdf
from rag_platform.loaders.pdf.pages import PageBlock, PageFacts
from rag_platform.loaders.pdf.printed.characters import UNKNOWN
from rag_platform.loaders.pdf.printed.lines import LIST_MARKER
from rag_platform.loaders.pdf.printed.runs import Run
from rag_platform.loaders.pdf.regions import find_unproved
from rag_platform.loaders.text import reads_as_title
from rag_platform.text.scripts import letters
from rag_platform.traits import Traits

_NOT_A_TITLE = re.compile(
    r"^(microsoft word|untitled|\(anonymous\)$|powerpoint|slide"
    r" 1$)|\.(docx?|indd|tex|pdf|dvi|qxd|rtf|pptx?|xlsx?|p65|fm|html?|xml|txt)$"
    r"|^\S*\d{4}\S*$",  # a number of its publisher's: 0000909832-21-000014
    re.I,
)
_MOST_NAMED = 10  # attached files
_TEXT_KINDS = ("paragraph", "list", "header", "footer")


@dataclass(frozen=True, slots=True)
class PdfInfo:
    """What the file says of itself."""

    pages: int
    metadata: dict[str, str] = field(default_factory=dict)
    outline: tuple[tuple[int, str, int], ...] = ()  # level, title, page
    attached: tuple[str, ...] = ()  # names of the files in it


class PagedLoader:
    """A loader whose pages children read in windows; `traits.engine` names the library."""

    NAME: ClassVar[str]
    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    @property
    def engine(self) -> Engine:
        """The library and the profile, as the summary records them."""
        raise NotImplementedError

    def claims(self, filename: str, head: bytes) -> bool:
        """True when the PDF magic stands in the first 1024 bytes, whatever the file is called."""
        return b"%PDF-" in head[:1024] or (filename.lower().endswith(".pdf") and not head)

    def assemble(
        self, pages: Sequence[PageFacts], info: PdfInfo, warnings: Sequence[str] = ()
    ) -> Facts:
        """The facts of all pages in order; raises as `assemble`."""
        return assemble(pages, info, self, warnings)


def assemble(
    pages: Sequence[PageFacts], info: PdfInfo, loader: PagedLoader, warnings: Sequence[str] = ()
) -> Facts:
    """The facts of all pages in order. Raises `pages_missing`; `broken_file` if all failed."""
    if [page.page for page in pages] != list(range(1, info.pages + 1)):
        raise DocumentError(
            f"{len(pages)} pages were read of {info.pages}; ingest the file again",
            code="pages_missing",
        )
    failed = [page for page in pages if page.engine == "failed"]
    if len(failed) == len(pages):
        raise broken_pdf(failed[0].warnings[-1])
    edges = find_running_edges(pages)
    text, blocks = _write(pages, heading_levels(pages, info.outline), edges)
    media = _media(pages, text, blocks)
    title = info.metadata.get("title", "")
    if len(title) < 3 or _NOT_A_TITLE.search(title):
        places = [(page.page, at) for page in pages for at in range(len(page.blocks))]
        said = (
            b.title or text[b.start : b.end].replace("\n", " ")[:120]
            for kinds in (("heading",), _TEXT_KINDS)
            for place, b in zip(places, blocks, strict=True)
            if b.kind in kinds and place not in edges
        )
        title = next(filter(reads_as_title, said), "")
    return Facts(
        text,
        tuple(blocks),
        media,
        ParseSummary(
            loader_name=loader.NAME,
            loader_version=loader.VERSION,
            parser_engine=loader.engine.name,
            engine_version=loader.engine.version,
            parse_profile=loader.engine.profile,
            md_sha256=hashlib.sha256(text.encode()).hexdigest(),
            text_chars=len(text),
            paragraphs=sum(block.kind == "paragraph" for block in blocks),
            images=len(media),
            pages=info.pages,
            pages_without_text=tuple(page.page for page in pages if not page.blocks),
            title=title,
            metadata=dict(info.metadata),
            warnings=(
                *warnings,
                *_name_attached(info.attached),
                *_notes(pages, loader.engine.profile),
                *(note for page in pages for note in page.warnings),
            ),
            errors=tuple(page.warnings[-1] for page in failed),
            hidden=tuple(text for page in pages for text in page.hidden),
        ),
    )


def _name_attached(names: Sequence[str]) -> list[str]:
    more = ", ..." if len(names) > _MOST_NAMED else ""
    said = f"{', '.join(names[:_MOST_NAMED])}{more}"
    return [f"attached files were not read; save and ingest them: {said}"] if names else []


def _notes(pages: Sequence[PageFacts], profile: str) -> list[str]:
    """What a reader must know of whole pages; each page that yields nothing is named."""
    failed = [page.page for page in pages if page.engine == "failed"]
    raw = [page.page for page in pages if page.engine == "raw"] if profile == "layout" else []
    scanned = [
        page.page for page in pages if not page.blocks and page.images and page.engine != "failed"
    ]
    blank = [
        page.page
        for page in pages
        if not page.blocks and not page.images and page.engine != "failed"
    ]
    unknown = [page.page for page in pages if any(UNKNOWN in block.text for block in page.blocks)]
    said = (
        (unknown, "characters that its fonts give no meaning are U+FFFD in the text"),
        (raw, "read as raw text, without layout"),
        (failed, "nothing could be read"),
        (
            scanned,
            (
                "no text but pictures: scanned; what they say is found with OCR (media_texts.ocr in"
                " the strategy)"
            ),
        ),
        (blank, "neither text nor pictures"),
    )
    return [
        f"page{'s' if len(numbers) > 1 else ''} {format_ranges(numbers)}: {text}"
        for numbers, text in said
        if numbers
    ]


def _write(
    pages: Sequence[PageFacts],
    levels: dict[tuple[int, int], int],
    edges: dict[tuple[int, int], Edge],
) -> tuple[str, list[Block]]:
    parts: list[str] = []
    blocks: list[Block] = []
    offset = 0
    for page in pages:
        before: PageBlock | None = None
        parents: list[PageBlock] = []  # the list entries that the next one may stand under
        for position, block in enumerate(page.blocks):
            kind, text, title = block.kind, block.text, ""
            edge = edges.get((page.page, position))
            level = 0 if edge else levels.get((page.page, position), 0)
            if level:
                kind, title = "heading", " ".join(text.removeprefix("- ").split())
                text = f"{'#' * level} {title}"
            elif edge:
                kind = edge.kind
            elif kind == "heading":
                kind = "paragraph"
            if kind == "list":
                parents = _parents(parents, block)
                indent = " " * sum(
                    len(match[0]) for parent in parents if (match := LIST_MARKER.match(parent.text))
                )
                text = "\n".join(indent + line for line in text.split("\n"))
                parents = [*parents, block]
            elif kind not in ("header", "footer"):
                parents = []
            gap = (
                ""
                if not blocks
                else "\n"
                if kind == "list" == blocks[-1].kind and before is not None
                else "\n\n"
            )
            start = offset + len(gap)
            parts += [gap, text]
            offset = start + len(text)
            blocks.append(
                Block(
                    len(blocks),
                    kind,
                    start,
                    offset,
                    level,
                    page=page.page,
                    bbox=block.bbox,
                    title=title,
                    repeated=edge is not None and edge.repeated,
                )
            )
            before = block
    return "".join(parts), blocks


def _parents(parents: Sequence[PageBlock], block: PageBlock) -> list[PageBlock]:
    """The entries that stand further left; an entry above the last opens a new column."""
    if parents and block.bbox[1] < parents[-1].bbox[1]:
        return []
    least = 0.6 * (block.size or 10.0)
    return [parent for parent in parents if parent.bbox[0] + least < block.bbox[0]]


def _media(pages: Sequence[PageFacts], text: str, blocks: Sequence[Block]) -> tuple[MediaRef, ...]:
    """Image references in page order, each with its headings and the nearest text."""
    by_page: dict[int, list[Block]] = {}
    for block in blocks:
        by_page.setdefault(block.page or 0, []).append(block)
    refs: list[MediaRef] = []
    path: list[Block] = []
    for page in pages:
        here = by_page.get(page.page, [])
        for number, image in enumerate(page.images):
            above = path
            for block in here:
                if block.bbox and block.bbox[1] <= image.bbox[1]:
                    above = _deeper(above, block)
            captions = [b for b in here if b.kind == "caption"] or [
                b for b in here if b.kind == "paragraph"
            ]
            near = min(
                captions,
                key=lambda block: _distance(image.bbox, block.bbox or image.bbox),
                default=None,
            )
            refs.append(
                MediaRef(
                    ref_id=f"img-{len(refs) + 1:04d}",
                    source_type="pdf",
                    origin_ref=target_of(image, page.page, number),
                    page=page.page,
                    bbox=image.bbox,
                    order=len(refs),
                    heading_path=" > ".join(block.title for block in above),
                    context_hint=text[near.start : near.end][:300] if near else "",
                )
            )
        for block in here:
            path = _deeper(path, block)
    return tuple(refs)


def _deeper(path: list[Block], block: Block) -> list[Block]:
    return (
        [item for item in path if item.level < block.level] + [block]
        if block.kind == "heading"
        else path
    )


def _distance(one: Box, other: Box) -> float:
    across = max(0.0, other[0] - one[2], one[0] - other[2])
    along = max(0.0, other[1] - one[3], one[1] - other[3])
    return across + along


def format_ranges(numbers: Sequence[int]) -> str:
    """Numbers as `1-3, 7`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def group_by_page(blocks: Sequence[Block]) -> tuple[dict[int, str], dict[int, list[Block]]]:
    """(ordinal to reason for each block without page or rectangle, page to its blocks)."""
    failures: dict[int, str] = {}
    pages: dict[int, list[Block]] = {}
    for block in blocks:
        if block.page is None or block.bbox is None:
            failures[block.ordinal] = "the block names no page or rectangle"
        else:
            pages.setdefault(block.page, []).append(block)
    return failures, pages


def verify_pages(
    text: str, blocks: Sequence[Block], pages: int, read: Callable[[int], Sequence[Run]]
) -> dict[int, str]:
    """Ordinal to reason for each block that its rectangle does not print; `read` reads a page.

    Give all blocks of a page together: a character belongs to the smallest rectangle around it.
    """
    failures, numbered = group_by_page(blocks)
    for number, group in numbered.items():
        if 1 <= number <= pages:
            failures.update(find_unproved(number, read(number), text, group))
        else:
            reason = f"page {number} does not exist; the PDF has {pages}"
            failures.update({block.ordinal: reason for block in group})
    return failures


def require_pages(pages: int, most: int) -> None:
    """Raise DocumentError `too_many_pages` for more pages than are read of one file."""
    if pages > most:
        raise DocumentError(
            f"the PDF has {pages} pages, more than max_pages = {most}; split it or raise"
            " limits.max_pages in settings.yaml",
            code="too_many_pages",
        )


def storable(value: object) -> str:
    """The text of a metadata value, as UTF-8 can hold it."""
    return str(value).replace("\x00", "").strip().encode("utf-8", "replace").decode()


def storable_items(items: Iterable[tuple[Any, object]]) -> dict[str, str]:
    """The metadata values that hold text."""
    return {str(key): text for key, value in items if value and (text := storable(value))}


Place = tuple[int, int]  # page from 1, position of the block on its page

_EDGE_ROWS = 2  # printed rows at each end of a page that may be running ones
_MOST_CHARS, _MOST_LINES = 200, 3
_LEAST_PAGES = 3
# pages from one occurrence to the next: left and right pages differ, and one may have none
_FURTHEST = 4
_APART = 2.0  # of its size, between a running line and the text
_LEAST_SENTENCE = 12  # letters and digits
_SAME_HEIGHT = 8.0  # points by which equal lines may lie apart
# what calls the number before it or behind it that of a page
_NAMES_PAGE = re.compile(
    r"\b(?:page|seite|página|pagina|strona|страница|صفحة)\W{0,3}\0|第\W?\0\W?[页頁ページ]", re.I
)
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}


class Edge(NamedTuple):
    """A running line; `repeated` unless it is the only place of the document with its words."""

    kind: str  # header | footer
    repeated: bool = True


class _Line(NamedTuple):
    place: Place
    height: float  # of its upper edge


def find_running_edges(pages: Sequence[PageFacts]) -> dict[Place, Edge]:
    """Place to edge for blocks repeated on 3 pages and for headers that say what a heading says;
    never a page's only text.
    """
    found: dict[Place, str] = {}
    words: dict[Place, str] = {}
    headings = {
        letters(block.text) for page in pages for block in page.blocks if block.kind == "heading"
    }
    by_number = {page.page: page for page in pages}
    candidates = {kind: _candidates(pages, kind) for kind in ("header", "footer")}
    for kind, rows_by_page in candidates.items():
        outer = (row for rows in rows_by_page.values() for row in rows[:_EDGE_ROWS])
        places = [place for row in outer for place in row]
        repeated = _find_repeated(pages, places)
        repeated |= {
            (number, at): block.text
            for number, at in places
            if (block := by_number[number].blocks[at]).kind == kind == "header"
            and number_depth(block.text.lstrip("§ "))
            and letters(block.text) in headings
        }
        words |= repeated
        for number, rows in rows_by_page.items():
            # from the edge inwards: what stands behind text of the page is text as well
            running: list[list[Place]] = []
            for row in rows[:_EDGE_ROWS]:
                running.append([place for place in row if place in repeated])
                if running[-1] != row:
                    break
            while running and _goes_with(by_number[number], running[-1], rows[len(running) :]):
                running.pop()
            found |= {place: kind for row in running for place in row}
    for page in pages:
        here = [(page.page, position) for position in range(len(page.blocks))]
        if not any(
            place not in found and _says_something(page.blocks[place[1]].text) for place in here
        ):
            for place in here:
                found.pop(place, None)
    only = _find_only(pages, {place: words[place] for place in sorted(found)})
    return {place: Edge(kind, place not in only) for place, kind in found.items()}


def _find_only(pages: Sequence[PageFacts], running: Mapping[Place, str]) -> set[Place]:
    """The first place of each running line whose words stand nowhere else, whatever its number."""
    said = "\n".join(
        letters(block.text).casefold()
        for page in pages
        for at, block in enumerate(page.blocks)
        if (page.page, at) not in running
    )
    first: dict[str, Place] = {}
    for place, words in running.items():
        first.setdefault(without_page_number(words), place)
    return {place for line, place in first.items() if line and line not in said}


def _says_something(text: str) -> bool:
    return any(char.isalnum() for char in text)


def _goes_with(page: PageFacts, row: Sequence[Place], inner: Sequence[Sequence[Place]]) -> bool:
    """True for a row with a heading or sentence that stands no further from the row behind it than
    text does, with which its page begins or ends, and for an empty row.
    """
    boxes = [page.blocks[at].bbox for places in inner[:1] for _, at in places]
    return not row or any(
        max(min(box[1] for box in boxes) - bottom, top - max(box[3] for box in boxes))
        < _APART * block.size
        for block in (page.blocks[at] for _, at in row)
        for _, top, _, bottom in [block.bbox]
        if boxes and (block.kind == "heading" or _is_sentence(block))
    )


def _is_sentence(block: PageBlock) -> bool:
    text = block.text.rstrip()
    return (
        block.kind in ("paragraph", "list")
        and text.endswith((".", "!", "?", "。", "！", "？"))
        and len(letters(text)) > _LEAST_SENTENCE
    )


def _candidates(pages: Iterable[PageFacts], kind: str) -> dict[int, list[list[Place]]]:
    """Page to its outermost rows and the one behind them, the outer one first."""
    return {
        page.page: list(_rows(page, from_below=kind == "footer"))[: _EDGE_ROWS + 1]
        for page in pages
        if page.blocks
    }


def _rows(page: PageFacts, *, from_below: bool) -> Iterator[list[Place]]:
    """The blocks of a page by printed row from one end; blocks beside each other are one row."""
    row: list[int] = []
    edge = 0.0
    order = sorted(
        range(len(page.blocks)),
        key=lambda at: -page.blocks[at].bbox[3] if from_below else page.blocks[at].bbox[1],
    )
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


def _find_repeated(pages: Sequence[PageFacts], places: Iterable[Place]) -> dict[Place, str]:
    """Place to the words that repeat there, \\0 for their page number."""
    by_number = {page.page: page for page in pages}
    groups: dict[tuple[str, int | None], list[_Line]] = {}
    for place in places:
        block = by_number[place[0]].blocks[place[1]]
        if (
            block.kind in ("header", "footer", "heading", "paragraph", "list")
            and len(block.text) <= _MOST_CHARS
            and block.lines <= _MOST_LINES
        ):
            for key in _keys(block, place[0]):
                groups.setdefault(key, []).append(_Line(place, block.bbox[1]))
    return {
        line.place: words
        for (words, _), lines in groups.items()
        for run in _runs(lines)
        for line in run
    }


def _keys(block: PageBlock, page: int) -> Iterator[tuple[str, int | None]]:
    """The line as it is, and with each possible page number left open: (words, number - page).

    A heading stands for itself: chapters are counted too. A list entry is text, unless all of it is
    a page number: `- 7 -`.
    """
    words = " ".join(block.text.split())
    if block.kind != "list":
        yield words, None
    for match in NUMBER.finditer(words) if block.kind != "heading" else ():
        others = f"{words[: match.start()]}\0{words[match.end() :]}"
        if (
            block.kind in ("header", "footer")
            or PAGE_WORDS.fullmatch(others)
            or (block.kind != "list" and _NAMES_PAGE.search(others))
        ):
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
