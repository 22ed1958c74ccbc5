"""PDF files read with MuPDF: pages, headings, tables and images with their places on the page.

`load` reads a whole file in this process. `describe`, `load_window` and `assemble` do the same in
steps, so that child processes can read windows of pages under limits and the parent can assemble
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts
from rag_platform.loaders.archives import Reading
from rag_platform.loaders.numerals import format_list_number
from rag_platform.loaders.parts import Engine
from rag_platform.loaders.pdf.assembly import (
    PagedLoader,
    PdfInfo,
    assemble,
    require_pages,
    storable,
    storable_items,
    verify_pages,
)
from rag_platform.loaders.pdf.images import find_images
from rag_platform.loaders.pdf.layout import layout_regions
from rag_platform.loaders.pdf.opening import load_pymupdf, open_page, open_pdf, unrotate
from rag_platform.loaders.pdf.pages import PageFacts, page_blocks, page_facts
from rag_platform.loaders.pdf.plain_regions import plain_regions
from rag_platform.loaders.pdf.printed.characters import (
    clean_char,
    read_logical_text,
    read_page_text,
    read_runs,
)
from rag_platform.loaders.pdf.printed.hidden_text import find_comments, find_off_layers
from rag_platform.loaders.pdf.printed.runs import Run
from rag_platform.loaders.pdf.quoting import PageQuote, Span, quote_boxes
from rag_platform.processes.processors import without_collector
from rag_platform.traits import Traits

Profile = Literal["layout", "fast"]

_DAMAGE = re.compile(
    r"zlib|corrupt|premature|truncated|syntax error|cannot (load|find|read|parse|decode)|invalid"
    r" (code|stream|data|distance)",
    re.I,
)


@dataclass(frozen=True)
class PdfLoader(PagedLoader):
    """Reads PDF files, also those with up to 1024 bytes before their magic.

    Profile `layout` uses a layout model (a few pages per second); `fast` uses MuPDF's blocks, sizes
    and weights (some sixty).
    """

    profile: Profile = "layout"
    max_pages: int = 100_000

    NAME: ClassVar[str] = "pdf"
    VERSION: ClassVar[str] = "46"
    traits: ClassVar[Traits] = Traits(engine="pymupdf")

    @property
    def engine(self) -> Engine:
        """MuPDF, with its layout model in profile `layout`."""
        name = "pymupdf+layout" if self.profile == "layout" else "pymupdf"
        return Engine(name, metadata.version("pymupdf"), self.profile)

    def load(self, path: Path, filename: str) -> Facts:
        """The facts, read in this process without limits; `intake.loading` sets those."""
        info = describe(path, self.max_pages)
        return assemble(load_window(path, 0, info.pages, self.profile), info, self)

    def locate(
        self, path: Path, page: int, text: str, blocks: Sequence[Block], spans: Sequence[Span]
    ) -> PageQuote:
        """Where spans of the facts are printed on a page; pass all blocks of the page."""
        with open_pdf(path) as document:
            opened = open_page(document, page - 1)
            unrotate(opened)
            boxes = quote_boxes(read_runs(opened), text, blocks, spans)
            return PageQuote(opened.rect.width, opened.rect.height, boxes)

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block whose text is not what its rectangle prints."""
        with open_pdf(path) as document:

            def read(number: int) -> list[Run]:
                page = open_page(document, number - 1)
                unrotate(page)
                return read_runs(page)

            return verify_pages(text, blocks, int(document.page_count), read)


def describe(path: Path, max_pages: int = 100_000) -> PdfInfo:
    """Pages, metadata and outline. Raises like `open_pdf`, and `too_many_pages`."""
    with open_pdf(path) as document:
        pages = int(document.page_count)
        require_pages(pages, max_pages)
        return PdfInfo(
            pages,
            storable_items((document.metadata or {}).items()),
            _outline(document),
            _attached(document),
            _labels(document, pages),
        )


def _outline(document: Any) -> tuple[tuple[int, str, int], ...]:
    """(level, title, page) of each outline entry; () for a broken outline."""
    try:
        entries = document.get_toc(simple=True)
    except (RuntimeError, ValueError, IndexError, AttributeError, TypeError):
        return ()
    return tuple((int(level), storable(title), int(page)) for level, title, page in entries)


def _attached(document: Any) -> tuple[str, ...]:
    """The names of the attached files; () for a broken list."""
    try:
        return tuple(map(storable, document.embfile_names()))
    except (RuntimeError, ValueError, TypeError):
        return ()


# of a range of page labels: its style, the first number and the text before the numbers
_STYLE = re.compile(r"/S/([DrRaA])")
_FIRST = re.compile(r"/St (\d+)")
_PREFIX = re.compile(r"/P\((.*?)(?<!\\)\)|/P<([0-9A-Fa-f]*)>")
_STYLES = {"r": "lowerRoman", "R": "upperRoman", "a": "lowerLetter", "A": "upperLetter"}


def _labels(document: Any, pages: int) -> tuple[str, ...]:
    """The label of each page; () for a file without labels, and for broken ones."""
    labels = [""] * pages
    try:
        # `get_label` of a page cuts prefixes at a slash and does not decode them
        ranges = sorted(document._get_page_labels())
        for (start, rule), (end, _) in pairwise([*ranges, (pages, "")]):
            style, number, prefix = _STYLE.search(rule), _FIRST.search(rule), _PREFIX.search(rule)
            first = int(number[1]) if number else 1
            before = _decode_prefix(*prefix.groups()) if prefix else ""
            for page in range(max(0, start), min(end, pages)):
                value = first + page - start
                shown = format_list_number(value, _STYLES.get(style[1], "")) if style else ""
                labels[page] = storable(f"{before}{shown}")
    except (RuntimeError, ValueError, TypeError):
        return ()
    return tuple(labels)


def _decode_prefix(literal: str | None, digits: str | None) -> str:
    if literal is not None:
        return re.sub(r"\\(.)", r"\1", literal)
    encoded = bytes.fromhex(digits or "")
    return encoded.decode("utf-16" if encoded[:2] in (b"\xfe\xff", b"\xff\xfe") else "latin-1")


def load_window(
    path: Path,
    first: int,
    last: int,
    profile: Profile = "layout",
    *,
    raw: bool = False,
    on_page: Callable[[PageFacts], None] | None = None,
) -> list[PageFacts]:
    """The pages [first, last), from 0. A page whose layout fails is read as raw text; if that fails
    too, it is marked as failed.

    `raw` skips the layout model. With `on_page` each page is passed to it as soon as it is read,
    and none is returned.
    """
    result: list[PageFacts] = []
    with open_pdf(path) as document:
        for number in range(first, last):
            (on_page or result.append)(_read_page(document, number, "fast" if raw else profile))
    return result


def page_texts(path: Path, first: int, last: int) -> Iterator[tuple[int, str]]:
    """(page, its text in logical order, hidden text included) of [first, last), from 0; "" for a
    broken page.
    """
    with open_pdf(path) as document:
        for number in range(first, min(last, document.page_count)):
            text = ""
            with Reading("stage.loader"):  # loading reports a broken page
                text = read_logical_text(open_page(document, number))
            yield number + 1, text


# --- one page -----------------------------------------------------------------------------------


def _read_page(document: Any, number: int, profile: Profile) -> PageFacts:
    """The page by layout model, else as raw text, else marked as failed."""
    warnings: list[str] = []
    for engine in ("layout", "raw") if profile == "layout" else ("raw",):
        with Reading("stage.loader") as reading, without_collector():
            page = _page_content(document, number, engine)
        if reading.error is None:
            return replace(page, warnings=(*warnings, *page.warnings))
        if isinstance(reading.error, DocumentError):  # no other engine finds more
            warnings.append(f"page {number + 1}: {reading.reason}")
            break
        warnings.append(f"page {number + 1}: {engine} reading failed ({reading.reason})")
    return PageFacts(number + 1, (), (), "failed", tuple(warnings))


def _page_content(document: Any, number: int, engine: str) -> PageFacts:
    pymupdf = load_pymupdf(layout=engine == "layout")
    pymupdf.TOOLS.reset_mupdf_warnings()
    page = open_page(document, number)
    unrotate(page)
    runs, hidden = read_page_text(page)
    regions = layout_regions(page, runs) if engine == "layout" and runs else plain_regions(runs)
    blocks, warnings = page_blocks(number + 1, runs, regions)
    images = find_images(page)
    if damage := [
        line for line in pymupdf.TOOLS.mupdf_warnings().splitlines() if _DAMAGE.search(line)
    ]:
        warnings.append(
            f"page {number + 1}: parts may be missing, the PDF is damaged here ({damage[0][:120]})"
        )
    hidden += find_off_layers(page)
    with Reading("stage.loader"):  # a broken comment does not fail the page
        hidden += find_comments(page)
    texts = [
        replace(item, page=number + 1, text="".join(map(clean_char, item.text))) for item in hidden
    ]
    return page_facts(number + 1, blocks, images, engine, warnings, texts)
