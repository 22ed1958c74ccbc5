"""PDF files read by MuPDF: pages, headings, tables and pictures with their place on the page.

`load` reads a whole file in this process. `describe`, `load_window` and `assemble` are the same
work in parts, so that a child process can read a window of pages under limits and the parent can
put the parts together.
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Literal

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts, HiddenText
from rag_platform.loaders.archives import Reading
from rag_platform.loaders.pdf import assembly, characters
from rag_platform.loaders.pdf import layout as pdf_layout
from rag_platform.loaders.pdf.assembly import PdfInfo, Reader
from rag_platform.loaders.pdf.images import images_of
from rag_platform.loaders.pdf.pages import PageFacts, page_blocks
from rag_platform.loaders.pdf.plain_regions import plain_regions
from rag_platform.traits import Traits

NAME = "pdf"
VERSION = "4"
Profile = Literal["layout", "fast"]

_DAMAGE = re.compile(
    r"zlib|corrupt|premature|truncated|syntax error|cannot (load|find|read|parse|decode)|invalid"
    r" (code|stream|data|distance)",
    re.I,
)
MAX_IMAGES_PER_PAGE = 200


@dataclass(frozen=True)
class PdfLoader:
    """Reads PDF files, also those with up to 1024 bytes before their magic.

    Profile `layout` uses a model (some pages a second), `fast` MuPDF's blocks, sizes and weights
    (some sixty).
    """

    profile: Profile = "layout"
    max_pages: int = 100_000

    VERSION: ClassVar[str] = VERSION
    traits: ClassVar[Traits] = Traits(engine="pymupdf")

    def claims(self, filename: str, head: bytes) -> bool:
        """True when the PDF magic stands in the first 1024 bytes, whatever the file is called."""
        return b"%PDF-" in head[:1024] or (filename.lower().endswith(".pdf") and not head)

    def load(self, path: Path, filename: str) -> Facts:
        """The facts, read in this process without limits; `intake.loading` sets those."""
        info = describe(path, self.max_pages)
        return self.assemble(load_window(path, 0, info.pages, self.profile), info)

    def assemble(
        self, pages: Sequence[PageFacts], info: PdfInfo, warnings: Sequence[str] = ()
    ) -> Facts:
        """The facts of all pages in order; raises as `pdf_document.assemble`."""
        engine = "pymupdf+layout" if self.profile == "layout" else "pymupdf"
        return assembly.assemble(
            pages,
            info,
            Reader(NAME, VERSION, engine, metadata.version("pymupdf"), self.profile),
            warnings,
        )

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block that the PDF does not prove; see `verify_blocks`."""
        return verify_blocks(path, text, blocks)


def page_count(path: Path) -> int:
    """The number of pages. Raises DocumentError as `describe` does."""
    return describe(path).pages


def describe(path: Path, max_pages: int = 100_000) -> PdfInfo:
    """Pages, metadata and outline. Raises as `opened`, and `too_many_pages`."""
    with characters.opened(path) as document:
        pages = int(document.page_count)
        if pages > max_pages:
            raise DocumentError(
                f"the PDF has {pages} pages, more than max_pages = {max_pages}; split it or raise"
                " limits.max_pages in settings.yaml",
                code="too_many_pages",
            )
        values = {
            str(key): _storable(value) for key, value in (document.metadata or {}).items() if value
        }
        return PdfInfo(
            pages, {key: value for key, value in values.items() if value}, _outline(document)
        )


def _storable(value: object) -> str:
    return str(value).replace("\x00", "").strip().encode("utf-8", "replace").decode()


def _outline(document: Any) -> tuple[tuple[int, str, int], ...]:
    """(level, title, page) of each entry of the outline; a broken one names nothing."""
    try:
        entries = document.get_toc(simple=True)
    except (RuntimeError, ValueError, IndexError, AttributeError, TypeError):
        return ()
    return tuple((int(level), _storable(title), int(page)) for level, title, page in entries)


def load_window(
    path: Path,
    first: int,
    last: int,
    profile: Profile = "layout",
    *,
    raw: bool = False,
    on_page: Callable[[PageFacts], None] | None = None,
) -> list[PageFacts]:
    """The pages [first, last), from 0; a page that fails is read as raw text, else marked.

    `raw` skips the layout model. With `on_page` each page is handed over as it is done, and none is
    returned.
    """
    result: list[PageFacts] = []
    with characters.opened(path) as document:
        for number in range(first, last):
            (on_page or result.append)(_read_page(document, number, "fast" if raw else profile))
    return result


def page_texts(path: Path, first: int, last: int) -> Iterator[tuple[int, str]]:
    """(page, all its words as typed, also hidden ones) of [first, last), from 0; "" if broken."""
    with characters.opened(path) as document:
        for number in range(first, min(last, document.page_count)):
            text = ""
            with Reading("stage.loader"):  # loading names a broken page
                text = characters.typed_text(document[number])
            yield number + 1, text


# --- one page -----------------------------------------------------------------------------------


def _read_page(document: Any, number: int, profile: Profile) -> PageFacts:
    """The page by layout, else as raw text, else marked as failed."""
    warnings: list[str] = []
    for engine in ("layout", "raw") if profile == "layout" else ("raw",):
        with Reading("stage.loader") as reading, _without_collection():
            page = _page_content(document, number, engine)
        if reading.error is None:
            return replace(page, warnings=(*warnings, *page.warnings))
        warnings.append(f"page {number + 1}: {engine} reading failed ({reading.reason})")
    return PageFacts(number + 1, (), (), "failed", tuple(warnings))


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage collection meanwhile: a page's thousands of characters all live."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _page_content(document: Any, number: int, engine: str) -> PageFacts:
    pymupdf = characters.engine(layout=engine == "layout")
    pymupdf.TOOLS.reset_mupdf_warnings()
    page = document[number]
    page.remove_rotation()
    runs, unseen = characters.page_text(page)
    if engine == "layout" and runs:  # a page without text has nothing to lay out
        textpage = page.get_textpage(
            flags=characters.text_flags(images=True), clip=pymupdf.INFINITE_RECT()
        )
        regions = pdf_layout.layout_regions(page, textpage, runs)
    else:
        regions = plain_regions(runs)
    blocks, warnings = page_blocks(number + 1, runs, regions)
    images = images_of(page)
    if damage := [
        line for line in pymupdf.TOOLS.mupdf_warnings().splitlines() if _DAMAGE.search(line)
    ]:
        warnings.append(
            f"page {number + 1}: parts may be missing, the PDF is damaged here ({damage[0][:120]})"
        )
    if len(images) > MAX_IMAGES_PER_PAGE:
        warnings.append(
            f"page {number + 1}: only the first {MAX_IMAGES_PER_PAGE} of {len(images)} images are"
            " recorded"
        )
    hidden = tuple(
        HiddenText(number + 1, reason, "".join(map(characters.clean, text)))
        for reason, text in unseen
    )
    return PageFacts(
        number + 1,
        tuple(blocks),
        tuple(images[:MAX_IMAGES_PER_PAGE]),
        engine,
        tuple(warnings),
        hidden,
    )


# --- proof --------------------------------------------------------------------------------------


def verify_blocks(path: Path, facts_text: str, blocks: Sequence[Block]) -> dict[int, str]:
    """Ordinal to reason for each block that its rectangle does not print.

    Give all blocks of a page together: a character belongs to the smallest rectangle around it.
    """
    failures, by_page = assembly.by_page(blocks)
    with characters.opened(path) as document:
        for number, group in by_page.items():
            if not 1 <= number <= document.page_count:
                failures.update(
                    {
                        block.ordinal: (
                            f"page {number} does not exist; the PDF has {document.page_count}"
                        )
                        for block in group
                    }
                )
                continue
            page = document[number - 1]
            page.remove_rotation()
            failures.update(
                characters.unproved(number, characters.page_runs(page), facts_text, group)
            )
    return failures
