"""The facts of a whole PDF assembled from its pages: headings, running headers and footers, nested
lists, images, warnings.

A running header or footer repeats the same words at the same edge of page after page. Only a page
number may differ: a decimal or Roman number that grows with the page, alone or with a word for
page. With other words, as in `Record 7`, it counts as a page number only if the layout model also
classifies the line as a header or footer. A line in which another number differs as well is text.

If the words of such a line occur nowhere else in the document, its first occurrence stays text:
certificates keep their title, and letters the sender's address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from rag_platform.errors import DocumentError
from rag_platform.ir import JOINT, Block, Box, Facts, MediaRef
from rag_platform.loaders.decoding import Decoded, is_pdf
from rag_platform.loaders.numerals import NUMBER, PAGE_WORDS, without_page_number
from rag_platform.loaders.parts import PLACEHOLDER, Engine, make_facts
from rag_platform.loaders.pdf.headings import (
    Place,
    heading_levels,
    join_bare,
    number_depth,
    title_keys,
)
from rag_platform.loaders.pdf.images import target_of
from rag_platform.loaders.pdf.opening import broken_pdf
from rag_platform.loaders.pdf.pages import PageBlock, PageFacts
from rag_platform.loaders.pdf.printed.characters import UNKNOWN
from rag_platform.loaders.pdf.printed.lines import LIST_MARKER
from rag_platform.loaders.pdf.printed.runs import Run, group_while
from rag_platform.loaders.pdf.regions import find_mismatched
from rag_platform.loaders.text import reads_as_title
from rag_platform.text.scripts import letters
from rag_platform.traits import Traits

_NOT_A_TITLE = re.compile(
    r"^(microsoft word|untitled|\(anonymous\)$|powerpoint)"
    r"|\.(docx?|indd|tex|pdf|dvi|qxd|rtf|pptx?|xlsx?|p65|fm|html?|xml|txt)$"
    r"|^\S*\d{4}\S*$",  # a publisher's number: 0000909832-21-000014
    re.I,
)
_MAX_NAMED = 10  # attached files
_MAX_LABEL = 20  # characters; longer page labels are names of files
_TEXT_KINDS = ("paragraph", "list", "header", "footer")


@dataclass(frozen=True, slots=True)
class PdfInfo:
    """What the file says about itself."""

    pages: int
    metadata: dict[str, str] = field(default_factory=dict)
    outline: tuple[tuple[int, str, int], ...] = ()  # level, title, page
    attached: tuple[str, ...] = ()  # names of the files in it
    labels: tuple[str, ...] = ()  # of each page, as viewers show it


class PagedLoader:
    """A loader whose pages are read in windows by child processes; `traits.engine` names the
    library.
    """

    NAME: ClassVar[str]
    VERSION: ClassVar[str]
    traits: ClassVar[Traits]

    @property
    def engine(self) -> Engine:
        """The library and the profile, as the summary records them."""
        raise NotImplementedError

    def claims(self, filename: str, head: bytes) -> bool:
        """True if the first 1024 bytes contain the PDF magic, and for an empty file named .pdf."""
        return is_pdf(head) or (filename.lower().endswith(".pdf") and not head)


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
    pages = [join_bare(page) for page in pages]
    edges = find_running_edges(pages)
    text, blocks = _write(pages, heading_levels(pages, info.outline), edges)
    media = _media(pages, text, blocks)
    title = info.metadata.get("title", "")
    if len(title) < 3 or PLACEHOLDER.fullmatch(title) or _NOT_A_TITLE.search(title):
        places = [(page.page, at) for page in pages for at in range(len(page.blocks))]
        candidates = (
            b.title or text[b.start : b.end].replace("\n", " ")[:120]
            for kinds in (("heading",), _TEXT_KINDS)
            for place, b in zip(places, blocks, strict=True)
            if b.kind in kinds and place not in edges
        )
        title = next(filter(reads_as_title, candidates), "")
    warnings = [
        *warnings,
        *_warn_of_attached(info.attached),
        *_page_warnings(pages, loader.engine.profile),
        *(note for page in pages if page.engine != "failed" for note in page.warnings),
    ]
    metadata = dict[str, object](info.metadata)
    facts = make_facts(
        loader, loader.engine, Decoded(text, ""), blocks, media, title, metadata, warnings
    )
    summary = replace(
        facts.summary,
        paragraphs=sum(block.kind == "paragraph" for block in blocks),
        pages=info.pages,
        pages_without_text=tuple(page.page for page in pages if not page.blocks),
        page_labels=_page_labels(info, edges),
        errors=tuple(page.warnings[-1] for page in failed),
        hidden=tuple(text for page in pages for text in page.hidden),
    )
    return replace(facts, summary=summary)


def _page_labels(info: PdfInfo, edges: Mapping[Place, Edge]) -> tuple[str, ...]:
    """The labels of the file, else the page numbers in its running headers and footers that count
    otherwise than its pages; () if none differs from its page's position.
    """
    printed = {
        page: edge.number
        for (page, _), edge in edges.items()
        if edge.number and _parse_number(edge.number) != page
    }
    running = [printed.get(page, "") for page in range(1, info.pages + 1)]
    for labels in (info.labels, running):
        usable = tuple(
            label if len(label) <= _MAX_LABEL and label.isprintable() else "" for label in labels
        )
        if any(label not in ("", str(page)) for page, label in enumerate(usable, 1)):
            return usable
    return ()


def _warn_of_attached(names: Sequence[str]) -> list[str]:
    more = ", ..." if len(names) > _MAX_NAMED else ""
    listed = f"{', '.join(names[:_MAX_NAMED])}{more}"
    return [f"attached files were not read; save and ingest them: {listed}"] if names else []


def _page_warnings(pages: Sequence[PageFacts], profile: str) -> list[str]:
    """Warnings about whole pages; each page without text is named in one."""
    failed = [page.page for page in pages if page.engine == "failed"]
    raw = [page.page for page in pages if page.engine == "raw"] if profile == "layout" else []
    empty = [page for page in pages if not page.blocks and page.engine != "failed"]
    scanned = [page.page for page in empty if page.images]
    blank = [page.page for page in empty if not page.images]
    unknown = [page.page for page in pages if any(UNKNOWN in block.text for block in page.blocks)]
    reasons: dict[str, list[int]] = {}
    for page in pages:
        for note in page.warnings if page.engine == "failed" else ():
            reasons.setdefault(note.removeprefix(f"page {page.page}: "), []).append(page.page)
    notes = (
        (unknown, "characters that its fonts give no meaning are U+FFFD in the text"),
        (raw, "read as raw text, without layout"),
        (failed, "nothing could be read"),
        *((numbers, reason) for reason, numbers in reasons.items()),
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
        for numbers, text in notes
        if numbers
    ]


def _write(
    pages: Sequence[PageFacts],
    levels: dict[Place, int],
    edges: dict[Place, Edge],
) -> tuple[str, list[Block]]:
    parts: list[str] = []
    blocks: list[Block] = []
    offset = 0
    for page in pages:
        before: PageBlock | None = None
        parents: list[PageBlock] = []  # the list entries that the next one may be nested in
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
    """The list entries to the left of a block; [] if it is above the last one, in a new column."""
    if parents and block.bbox[1] < parents[-1].bbox[1]:
        return []
    least = 0.6 * (block.size or 10.0)
    return [parent for parent in parents if parent.bbox[0] + least < block.bbox[0]]


def _media(pages: Sequence[PageFacts], text: str, blocks: Sequence[Block]) -> tuple[MediaRef, ...]:
    """Image references in page order, each with its heading path and the nearest text."""
    by_page: dict[int, list[Block]] = {}
    for block in blocks:
        by_page.setdefault(block.page or 0, []).append(block)
    refs: list[MediaRef] = []
    path: list[Block] = []
    for page in pages:
        here = by_page.get(page.page, [])
        for number, image in enumerate(page.images):
            headings = path
            for block in here:
                if block.bbox and block.bbox[1] <= image.bbox[1]:
                    headings = _enter(headings, block)
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
                    heading_path=JOINT.join(block.title for block in headings),
                    context_hint=text[near.start : near.end][:300] if near else "",
                )
            )
        for block in here:
            path = _enter(path, block)
    return tuple(refs)


def _enter(path: list[Block], block: Block) -> list[Block]:
    """The heading path after a block."""
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
    """Ascending numbers as `1-3, 7`."""
    spans = group_while(numbers, lambda span, number: number == span[-1] + 1)
    return ", ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def group_by_page(blocks: Sequence[Block]) -> tuple[dict[int, str], dict[int, list[Block]]]:
    """(ordinal to reason for each block without a page or rectangle, page to its other blocks)."""
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
    """Ordinal to reason for each block whose text is not what its rectangle prints.

    Pass all blocks of a page: a character belongs to the smallest rectangle around it. `read`
    returns the runs of a page, counted from 1.
    """
    failures, numbered = group_by_page(blocks)
    for number, group in numbered.items():
        if 1 <= number <= pages:
            failures.update(find_mismatched(number, read(number), text, group))
        else:
            reason = f"page {number} does not exist; the PDF has {pages}"
            failures.update({block.ordinal: reason for block in group})
    return failures


def require_pages(pages: int, max_pages: int) -> None:
    """Raise DocumentError `too_many_pages` for a file of more than `max_pages` pages."""
    if pages > max_pages:
        raise DocumentError(
            f"the PDF has {pages} pages, more than max_pages = {max_pages}; split it or raise"
            " limits.max_pages in settings.yaml",
            code="too_many_pages",
        )


def storable(value: object) -> str:
    """A metadata value as text that can be stored as UTF-8, without NUL."""
    return str(value).replace("\x00", "").strip().encode("utf-8", "replace").decode()


def storable_items(items: Iterable[tuple[Any, object]]) -> dict[str, str]:
    """The metadata items with text in their value."""
    return {str(key): text for key, value in items if value and (text := storable(value))}


_EDGE_ROWS = 2  # printed rows at each end of a page that may be running headers or footers
_MAX_CHARS, _MAX_LINES = 200, 3
_MIN_PAGES = 3
# from one occurrence to the next: left and right pages differ, and one of them may have none
_MAX_PAGES_APART = 4
_MIN_GAP = 2.0  # ems between a running line and the text
_SAME_HEIGHT = 8.0  # points by which the heights of equal lines may differ
# words for page before or after the page number, which is written as \0
_NAMES_PAGE = re.compile(
    r"\b(?:page|seite|página|pagina|strona|страница|صفحة)\W{0,3}\0|第\W?\0\W?[页頁ページ]", re.I
)
# what typesetting programs print where code or a table is cut at a page's end
_BREAK_NOTE = re.compile(
    r"\(?continue[sd] (?:(?P<next>on (?:the )?next)|from (?:the )?previous) page\)?", re.I
)
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}


class Edge(NamedTuple):
    """A running header or footer; not `repeated` if its words occur only here in the document."""

    kind: str  # header | footer
    repeated: bool = True
    number: str = ""  # the page number in it


class _Line(NamedTuple):
    place: Place
    height: float  # of its upper edge


def find_running_edges(pages: Sequence[PageFacts]) -> dict[Place, Edge]:
    """Place to edge for blocks repeated on 3 pages, for page headers and footers that repeat a
    heading, and for notes of a page break; never for the only text of a page.
    """
    found: dict[Place, str] = {}
    words: dict[Place, str] = {}
    headings = {
        letters(block.text) for page in pages for block in page.blocks if block.kind == "heading"
    }
    by_number = {page.page: page for page in pages}
    for kind in ("header", "footer"):
        # the outermost rows of each page, which may be running lines, and the next one inwards
        rows_by_page = {
            page.page: list(_group_rows(page, from_below=kind == "footer"))[: _EDGE_ROWS + 1]
            for page in pages
            if page.blocks
        }
        outer = (row for rows in rows_by_page.values() for row in rows[:_EDGE_ROWS])
        places = [place for row in outer for place in row]
        repeated = _find_repeated(pages, places)
        repeated |= {
            (number, at): block.text
            for number, at in places
            if (block := by_number[number].blocks[at]).kind == kind
            and number_depth(block.text.lstrip("§ "))
            and letters(block.text) in headings
        }
        repeated |= _find_titled(by_number, [rows[0] for rows in rows_by_page.values()])
        words |= repeated
        for number, rows in rows_by_page.items():
            # from the edge inwards: what follows a row of text is text as well
            running: list[list[Place]] = []
            for row in rows[:_EDGE_ROWS]:
                running.append([place for place in row if place in repeated])
                if running[-1] != row:
                    break
            while running and _is_text_row(by_number[number], running[-1], rows[len(running) :]):
                running.pop()
            found |= {place: kind for row in running for place in row}
    notes = _find_break_notes(pages)
    found |= notes
    words |= dict.fromkeys(notes, "")
    for page in pages:
        here = [(page.page, position) for position in range(len(page.blocks))]
        if not any(
            place not in found and any(map(str.isalnum, page.blocks[place[1]].text))
            for place in here
        ):
            for place in here:
                found.pop(place, None)
    unique = _find_unique(pages, {place: words[place] for place in sorted(found)})
    return {
        place: Edge(
            kind,
            place not in unique,
            _page_number(by_number[place[0]].blocks[place[1]].text, words[place]),
        )
        for place, kind in found.items()
    }


def _page_number(text: str, words: str) -> str:
    """The number for which \\0 stands in the words of a line; "" without one."""
    text = " ".join(text.split())
    before, _, after = words.partition("\0")
    number = text[len(before) : len(text) - len(after)]
    return number if f"{before}{number}{after}" == text and NUMBER.fullmatch(number) else ""


def _find_titled(
    pages: Mapping[int, PageFacts], outermost: Sequence[Sequence[Place]]
) -> dict[Place, str]:
    """Place to words for rows that say what a heading says: with the page number, as in `6 Things
    You Need to Know`, or in the style of the text at the same height of 3 nearby pages.
    """
    rows: dict[Place, list[PageBlock]] = {}
    for places in outermost:
        blocks = sorted((pages[page].blocks[at] for page, at in places), key=lambda b: b.bbox[0])
        if all(block.kind in (*_TEXT_KINDS, "heading") and block.lines == 1 for block in blocks):
            rows[places[0]] = blocks
    lines = {place: _Line(place, blocks[0].bbox[1]) for place, blocks in rows.items()}
    texts = {place: " ".join(block.text for block in blocks) for place, blocks in rows.items()}
    counted: dict[int, dict[Place, str]] = {}  # number - page to the words beside the number
    for place, text in texts.items():
        for number in NUMBER.finditer(text):
            if number.start() == 0 or number.end() == len(text):
                rest = text[: number.start()] + text[number.end() :]
                counted.setdefault(_parse_number(number[0]) - place[0], {})[place] = rest.strip()
    numbered = {
        line.place: beside[line.place]
        for beside in counted.values()
        for series in _find_series(lines[place] for place in beside)
        for line in series
    }
    titles = {
        key
        for page in pages.values()
        for at, block in enumerate(page.blocks)
        if block.kind == "heading" and (page.page, at) not in numbered
        for key in title_keys(block.text)
        if len(key) > 1
    }
    named = {
        place: title
        for place, blocks in rows.items()
        if place in numbered or not any(block.kind == "heading" for block in blocks)
        if (title := _named_title(numbered.get(place, texts[place]), titles))
    }
    plain = _find_series(lines[place] for place in named if place not in numbered)
    found = {*numbered, *(line.place for series in plain for line in series)} & named.keys()
    return {place: f"{named[row[0]]}\0" for row in outermost if row[0] in found for place in row}


def _named_title(words: str, titles: set[str]) -> str:
    """The title that words consist of, or the first of two: a chapter's and a section's."""
    whole, bare = title_keys(words)
    pairs = ((whole[:at], whole[at:]) for at in range(1, len(whole)))
    readings = ((whole,), (bare,), *pairs)
    return next((parts[0] for parts in readings if titles.issuperset(parts)), "")


def _find_break_notes(pages: Iterable[PageFacts]) -> dict[Place, str]:
    """Place to kind of notes such as `(continues on next page)`."""
    return {
        (page.page, at): "footer" if note["next"] else "header"
        for page in pages
        for at, block in enumerate(page.blocks)
        if (note := _BREAK_NOTE.fullmatch(block.text.strip()))
    }


def _find_unique(pages: Sequence[PageFacts], running: Mapping[Place, str]) -> set[Place]:
    """The first place of each running line whose words, without page number, occur in no text."""
    body = "\n".join(
        letters(block.text).casefold()
        for page in pages
        for at, block in enumerate(page.blocks)
        if (page.page, at) not in running
    )
    first: dict[str, Place] = {}
    for place, words in running.items():
        first.setdefault(without_page_number(words), place)
    return {place for line, place in first.items() if line and line not in body}


def _is_text_row(page: PageFacts, row: Sequence[Place], inner: Sequence[Sequence[Place]]) -> bool:
    """True for an empty row, and for a row with a heading so close to the next row inwards
    that the text of the page begins or ends with it.
    """
    boxes = [page.blocks[at].bbox for places in inner[:1] for _, at in places]
    return not row or any(
        max(min(box[1] for box in boxes) - bottom, top - max(box[3] for box in boxes))
        < _MIN_GAP * block.size
        for block in (page.blocks[at] for _, at in row)
        for _, top, _, bottom in [block.bbox]
        if boxes and block.kind == "heading"
    )


def _group_rows(page: PageFacts, *, from_below: bool) -> Iterator[list[Place]]:
    """The blocks of a page by printed row, from the top or the bottom."""
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
    """Place to the words repeated there, with \\0 for their page number."""
    by_number = {page.page: page for page in pages}
    groups: dict[tuple[str, int | None], list[_Line]] = {}
    for place in places:
        block = by_number[place[0]].blocks[place[1]]
        if (
            block.kind in ("header", "footer", "heading", "paragraph", "list")
            and len(block.text) <= _MAX_CHARS
            and block.lines <= _MAX_LINES
        ):
            for key in _line_keys(block, place[0]):
                groups.setdefault(key, []).append(_Line(place, block.bbox[1]))
    return {
        line.place: words
        for (words, _), lines in groups.items()
        for series in _find_series(lines)
        for line in series
    }


def _line_keys(block: PageBlock, page: int) -> Iterator[tuple[str, int | None]]:
    """(words, None) of the line as it is, and (words with \\0, number - page) for each number in it
    that may be a page number.

    The number of a heading may be a chapter's, so it stays unless it stands before or after another
    number, as in `6 Chapter 2. Setup`. A list entry is text, unless all of it is a page number:
    `- 7 -`.
    """
    words = " ".join(block.text.split())
    if block.kind != "list":
        yield words, None
    for match in NUMBER.finditer(words):
        others = f"{words[: match.start()]}\0{words[match.end() :]}"
        if block.kind == "heading":
            rest = others.strip("\0")
            counted = rest != others and number_depth(rest.strip()) > 0
        else:
            counted = (
                block.kind in ("header", "footer")
                or PAGE_WORDS.fullmatch(others) is not None
                or (block.kind != "list" and _NAMES_PAGE.search(others) is not None)
            )
        if counted:
            yield others, _parse_number(match[0]) - page


def _parse_number(number: str) -> int:
    if number.isdigit():
        return int(number)
    values = [_ROMAN[letter] for letter in number.lower()]
    return sum(-value if value < max(values[at:]) else value for at, value in enumerate(values))


def _find_series(lines: Iterable[_Line]) -> Iterator[list[_Line]]:
    """The series of equal lines at one height on at least _MIN_PAGES nearby pages."""
    for level in group_while(
        sorted(lines, key=lambda line: line.height),
        lambda level, line: line.height - level[0].height <= _SAME_HEIGHT,
    ):
        for series in group_while(
            sorted(level),
            lambda series, line: line.place[0] - series[-1].place[0] <= _MAX_PAGES_APART,
        ):
            if len({line.place[0] for line in series}) >= _MIN_PAGES:
                yield series
