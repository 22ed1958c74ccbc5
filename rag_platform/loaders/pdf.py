"""PDF files: pages, headings, tables and pictures with their place on the page.

`load` reads a whole file in this process. `describe`, `load_window` and `assemble` are the same work in parts, so that a child process
can read a window of pages under limits and the parent can put the parts together.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Literal

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Box, Facts, MediaRef, ParseSummary
from rag_platform.loaders import pdf_layout, pdf_text
from rag_platform.loaders.pdf_images import PageImage, images_of, target_of
from rag_platform.loaders.pdf_text import Region, Run

NAME = "pdf"
VERSION = "1"
Profile = Literal["layout", "fast"]

_KINDS = {"title": "heading", "section-header": "heading", "page-header": "header", "page-footer": "footer", "caption": "caption",
          "list-item": "list", "table": "table", "formula": "formula", "picture": "picture"}  # fmt: skip
_NOT_A_TITLE = re.compile(r"^(microsoft word|untitled|powerpoint|slide 1$)|\.(docx?|indd|tex|pdf|dvi|qxd|rtf|pptx?|xlsx?|p65|fm)$", re.I)
_DAMAGE = re.compile(
    r"zlib|corrupt|premature|truncated|syntax error|cannot (load|find|read|parse|decode)|invalid (code|stream|data|distance)", re.I
)
MAX_IMAGES_PER_PAGE = 200


@dataclass(frozen=True, slots=True)
class PageBlock:
    """A block of one page before it has its place in the facts; headings come without their `#`."""

    kind: str
    text: str
    bbox: Box
    size: int = 0  # largest font size of a heading, in points
    level: int = 0  # from the outline, 0 when it does not name this heading


@dataclass(frozen=True, slots=True)
class PageFacts:
    """What one page says. `engine` is layout, raw, or failed when nothing could be read."""

    page: int
    blocks: tuple[PageBlock, ...]
    images: tuple[PageImage, ...]
    engine: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PdfInfo:
    """What the file says of itself."""

    pages: int
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PdfLoader:
    """Reads PDF files; profile `layout` finds structure with a model (some pages a second), `fast` takes MuPDF's blocks as they come."""

    profile: Profile = "layout"
    max_pages: int = 100_000

    VERSION: ClassVar[str] = VERSION
    ISOLATED: ClassVar[bool] = True
    ENGINE: ClassVar[str] = "pymupdf"

    def claims(self, filename: str, head: bytes) -> bool:
        """True when the PDF magic stands in the first 1024 bytes, whatever the file is called."""
        return b"%PDF-" in head[:1024] or (filename.lower().endswith(".pdf") and not head)

    def load(self, path: Path, filename: str) -> Facts:
        """The facts of a PDF, read in this process without limits on time and memory; see `documents.loading` for those."""
        info = describe(path, self.max_pages)
        return assemble(load_window(path, 0, info.pages, self.profile), info, self.profile)

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block that the PDF does not prove; see `verify_blocks`."""
        return verify_blocks(path, text, blocks)


def page_count(path: Path) -> int:
    """The number of pages. Raises DocumentError as `describe` does."""
    return describe(path).pages


def describe(path: Path, max_pages: int = 100_000) -> PdfInfo:
    """Page count and metadata. Raises DocumentError `empty_file`, `broken_file`, `encrypted` or `too_many_pages`."""
    with pdf_text.opened(path) as document:
        pages = int(document.page_count)
        if pages > max_pages:
            raise DocumentError(
                f"the PDF has {pages} pages, more than max_pages = {max_pages}; split it or raise limits.max_pages in settings.yaml",
                code="too_many_pages",
            )
        values = {str(key): str(value).replace("\x00", "").strip() for key, value in (document.metadata or {}).items() if value}
    return PdfInfo(pages, {key: value.encode("utf-8", "replace").decode() for key, value in values.items() if value})


def load_window(
    path: Path, first: int, last: int, profile: Profile = "layout", *, raw: bool = False, on_page: Callable[[PageFacts], None] | None = None
) -> list[PageFacts]:
    """One PageFacts for each page of [first, last), counted from 0; a page that fails is retried as raw text, then reported as failed.

    `raw` skips the layout model. `on_page` is called with each page as it is done.
    """
    result = []
    with pdf_text.opened(path) as document:
        outline = _outline(document)
        for number in range(first, last):
            facts = _read_page(document, number, outline.get(number + 1, {}), "fast" if raw else profile)
            result.append(facts)
            if on_page:
                on_page(facts)
    return result


def _outline(document: Any) -> dict[int, dict[str, int]]:
    """Page number to {letters of a title: level}; a broken outline names nothing."""
    found: dict[int, dict[str, int]] = {}
    try:
        entries = document.get_toc(simple=True)
    except (RuntimeError, ValueError, IndexError, AttributeError, TypeError):
        return found
    for level, title, page in entries:
        if key := pdf_text.letters(str(title)):
            found.setdefault(int(page), {}).setdefault(key, min(6, int(level)))
    return found


# --- one page ------------------------------------------------------------------------------------------------------------


def _read_page(document: Any, number: int, outline: dict[str, int], profile: Profile) -> PageFacts:
    """The page by layout, else by raw text, else marked as failed; engines raise whatever they like on a broken page."""
    warnings: list[str] = []
    for engine in ("layout", "raw") if profile == "layout" else ("raw",):
        try:
            blocks, images = _page_content(document, number, outline, engine, warnings)
            return PageFacts(number + 1, tuple(blocks), tuple(images), engine, tuple(warnings))
        except Exception as error:  # the page is retried, then named in a warning: never dropped in silence
            warnings.append(f"page {number + 1}: {engine} reading failed ({_first_line(error)})")
    return PageFacts(number + 1, (), (), "failed", tuple(warnings))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__


def _page_content(
    document: Any, number: int, outline: dict[str, int], engine: str, warnings: list[str]
) -> tuple[list[PageBlock], list[PageImage]]:
    import pymupdf

    pymupdf.TOOLS.reset_mupdf_warnings()
    page = document[number]
    page.remove_rotation()
    textpage = page.get_textpage(flags=pdf_text.text_flags(), clip=pymupdf.INFINITE_RECT())
    runs = pdf_text.runs_of(textpage.extractRAWDICT()["blocks"])
    regions = pdf_layout.layout_regions(page, textpage, runs) if engine == "layout" else pdf_layout.plain_regions(runs)
    words = pdf_text.page_words(runs)
    blocks: list[PageBlock] = []
    differing = 0
    for region, owned in zip(regions, pdf_layout.owned_by(regions, runs), strict=True):
        if not owned:
            continue
        block = _block(region, owned, outline, words)
        if Counter(pdf_text.letters(block.text)) != Counter(pdf_text.region_letters(owned)):
            differing += 1
            block = PageBlock("paragraph", "\n".join(pdf_text.line_text(line) for line in pdf_text.visual_lines(owned)), region.bbox)
        blocks.append(block)
    if differing:
        warnings.append(f"page {number + 1}: {differing} blocks hold raw text because their structure would have changed it")
    unknown = sum(char.text == "\ufffd" or "\ue000" <= char.text <= "\uf8ff" for run in runs for char in run.chars)
    if unknown > 0.1 * sum(len(run.chars) for run in runs):
        warnings.append(f"page {number + 1}: {unknown} characters have no Unicode meaning in the PDF's fonts; the text needs OCR")
    images = images_of(page)
    if damage := [line for line in pymupdf.TOOLS.mupdf_warnings().splitlines() if _DAMAGE.search(line)]:
        warnings.append(f"page {number + 1}: parts may be missing, the PDF is damaged here ({damage[0][:120]})")
    if len(images) > MAX_IMAGES_PER_PAGE:
        warnings.append(f"page {number + 1}: only the first {MAX_IMAGES_PER_PAGE} of {len(images)} images are recorded")
    return blocks, images[:MAX_IMAGES_PER_PAGE]


def _block(region: Region, runs: Sequence[Run], outline: dict[str, int], words: frozenset[str]) -> PageBlock:
    kind = _KINDS.get(region.label, "paragraph")
    printed = pdf_text.visual_lines(runs)
    lines = [pdf_text.line_text(line) for line in printed]
    key = pdf_text.letters("".join(lines))
    level = outline.get(key, 0)
    if level and kind in ("paragraph", "list", "caption"):
        kind = "heading"
    if kind == "paragraph" and all(run.mono and run.horizontal for run in runs):
        return PageBlock("code", f"```\n{pdf_text.code_text(printed)}\n```", region.bbox)
    if kind == "heading" and key:
        return PageBlock("heading", pdf_text.flowed(lines, words), region.bbox, round(max(run.size for run in runs)), level)
    if kind == "list":
        return PageBlock("list", "\n".join(pdf_text.list_items(lines, words)), region.bbox)
    if kind == "table":
        rows = pdf_text.table_rows(runs, region, words)
        if len(rows) > 1 and len(rows[0]) > 1:
            return PageBlock("table", pdf_text.pipe_table(rows), region.bbox)
    if kind in ("table", "picture", "formula"):
        return PageBlock("paragraph" if kind == "table" else kind, "\n".join(lines), region.bbox)
    return PageBlock("paragraph" if kind == "heading" else kind, pdf_text.flowed(lines, words), region.bbox)


# --- the whole document -----------------------------------------------------------------------------------------------------


def assemble(pages: Sequence[PageFacts], info: PdfInfo, profile: Profile = "layout", warnings: Sequence[str] = ()) -> Facts:
    """The facts of all pages in order. Raises DocumentError when pages are missing, `broken_file` when every page failed."""
    if [page.page for page in pages] != list(range(1, info.pages + 1)):
        raise DocumentError(f"{len(pages)} pages were read of {info.pages}; ingest the file again", code="pages_missing")
    failed = [page for page in pages if page.engine == "failed"]
    if len(failed) == len(pages):
        raise DocumentError(f"none of the {len(pages)} pages can be read; {failed[0].warnings[-1]}", code="broken_file")
    level_of = _heading_levels(block for page in pages for block in page.blocks if block.kind == "heading")
    furniture = _repeated_edges(pages)
    parts: list[str] = []
    blocks: list[Block] = []
    offset = 0
    for page in pages:
        for position, block in enumerate(page.blocks):
            kind, text, level = block.kind, block.text, 0
            if kind == "heading":
                level = block.level or level_of[block.size]
                text = f"{'#' * level} {text}"
            elif (page.page, position) in furniture:
                kind = furniture[page.page, position]
            gap = "" if not blocks else "\n" if kind == "list" == blocks[-1].kind and blocks[-1].page == page.page else "\n\n"
            start = offset + len(gap)
            parts += [gap, text]
            offset = start + len(text)
            blocks.append(Block(len(blocks), kind, start, offset, level, page=page.page, bbox=block.bbox))
    text = "".join(parts)
    media = _media(pages, text, blocks)
    title = info.metadata.get("title", "")
    if len(title) < 3 or _NOT_A_TITLE.search(title):
        first = next((b for b in blocks if b.kind == "heading"), None) or next((b for b in blocks if b.kind == "paragraph"), None)
        title = text[first.start : first.end].lstrip("# ").replace("\n", " ")[:120] if first else ""
    raw_pages = [page.page for page in pages if page.engine == "raw"] if profile == "layout" else []
    notes = [*warnings, *(f"raw text without layout on pages {_ranges(raw_pages)}" for _ in raw_pages[:1]),
             *(f"nothing could be read on pages {_ranges([p.page for p in failed])}" for _ in failed[:1]),
             *(note for page in pages for note in page.warnings)]  # fmt: skip
    return Facts(
        text,
        tuple(blocks),
        media,
        ParseSummary(
            loader_name=NAME,
            loader_version=VERSION,
            parser_engine="pymupdf+layout" if profile == "layout" else "pymupdf",
            engine_version=metadata.version("pymupdf"),
            parse_profile=profile,
            md_sha256=hashlib.sha256(text.encode()).hexdigest(),
            text_chars=len(text),
            paragraphs=sum(block.kind == "paragraph" for block in blocks),
            images=len(media),
            pages=info.pages,
            pages_without_text=tuple(page.page for page in pages if not page.blocks),
            title=title,
            metadata=dict(info.metadata),
            warnings=tuple(notes),
            errors=tuple(page.warnings[-1] for page in failed),
        ),
    )


def _heading_levels(headings: Iterable[PageBlock]) -> dict[int, int]:
    """Font size to heading level: as the outline says where it knows a size, else by rank of the sizes, the largest being 1."""
    votes: dict[int, Counter[int]] = {}
    for heading in headings:
        votes.setdefault(heading.size, Counter())[heading.level] += 1
    known = {
        size: max((n, -level) for level, n in counts.items() if level)[1] * -1 for size, counts in votes.items() if any(counts.keys() - {0})
    }
    levels: dict[int, int] = {}
    current = 0
    for size in sorted(votes, reverse=True):
        current = max(current + 1, 1) if size not in known else known[size]
        levels[size] = min(current, 6)
    return levels


def _repeated_edges(pages: Sequence[PageFacts]) -> dict[tuple[int, int], str]:
    """(page, position) to header or footer: a page's first or last block whose words, digits apart, open or close three raw pages."""
    seen: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for page in pages:
        if page.engine == "raw" and len(page.blocks) > 2:
            tops = sorted(range(len(page.blocks)), key=lambda i: page.blocks[i].bbox[1])
            for kind, position in (("header", tops[0]), ("footer", tops[-1])):
                words = re.sub(r"[\d\s]+", "", page.blocks[position].text)
                if len(words) < 120 and page.blocks[position].kind == "paragraph":
                    seen.setdefault((kind, words), []).append((page.page, position))
    return {place: kind for (kind, _), places in seen.items() if len(places) >= 3 for place in places}


def _media(pages: Sequence[PageFacts], text: str, blocks: Sequence[Block]) -> tuple[MediaRef, ...]:
    """Picture references in page order, each with the headings above it and the text nearest to it."""
    refs: list[MediaRef] = []
    path: list[tuple[int, str]] = []
    position = 0
    for page in pages:
        here = [block for block in blocks if block.page == page.page] if page.images else []
        while position < len(blocks) and (blocks[position].page or 0) < page.page:
            path = _deeper(path, blocks[position], text)
            position += 1
        for number, image in enumerate(page.images):
            above = path
            for block in here:
                if block.bbox and block.bbox[1] <= image.bbox[1]:
                    above = _deeper(above, block, text)
            captions = [b for b in here if b.kind == "caption"] or [b for b in here if b.kind == "paragraph"]
            near = min(captions, key=lambda block: _distance(image.bbox, block.bbox or image.bbox), default=None)
            refs.append(
                MediaRef(
                    ref_id=f"img-{len(refs) + 1:04d}",
                    source_type="pdf",
                    origin_ref=target_of(image, page.page, number),
                    page=page.page,
                    bbox=image.bbox,
                    order=len(refs),
                    heading_path=" > ".join(title for _, title in above),
                    context_hint=text[near.start : near.end][:300] if near else "",
                )
            )
    return tuple(refs)


def _deeper(path: list[tuple[int, str]], block: Block, text: str) -> list[tuple[int, str]]:
    if block.kind != "heading":
        return path
    return [item for item in path if item[0] < block.level] + [(block.level, text[block.start : block.end].lstrip("# "))]


def _distance(one: Box, other: Box) -> float:
    across = max(0.0, other[0] - one[2], one[0] - other[2])
    along = max(0.0, other[1] - one[3], one[1] - other[3])
    return across + along


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers as `1-3, 7`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


# --- proof -----------------------------------------------------------------------------------------------------------------


def verify_blocks(path: Path, facts_text: str, blocks: Sequence[Block]) -> dict[int, str]:
    """Ordinal to reason for each block whose letters and digits are not the ones printed in its rectangle; empty when all are proved.

    The PDF is opened again and the characters of each page are shared out among its rectangles. Tables and code are compared as
    multisets, everything else in reading order.
    """
    import pymupdf

    failures: dict[int, str] = {}
    by_page: dict[int, list[Block]] = {}
    for block in blocks:
        if block.page is None or block.bbox is None:
            failures[block.ordinal] = "the block names no page or rectangle"
        else:
            by_page.setdefault(block.page, []).append(block)
    with pdf_text.opened(path) as document:
        for number, group in by_page.items():
            if not 1 <= number <= document.page_count:
                failures.update({block.ordinal: f"page {number} does not exist; the PDF has {document.page_count}" for block in group})
                continue
            page = document[number - 1]
            page.remove_rotation()
            textpage = page.get_textpage(flags=pdf_text.text_flags(), clip=pymupdf.INFINITE_RECT())
            runs = pdf_text.runs_of(textpage.extractRAWDICT()["blocks"])
            pieces, _ = pdf_text.owned(runs, [block.bbox for block in group if block.bbox])
            for block, owned in zip(group, pieces, strict=True):
                said, printed = pdf_text.letters(facts_text[block.start : block.end]), pdf_text.region_letters(owned)
                same = Counter(said) == Counter(printed) if block.kind in ("table", "code") else said == printed
                if not same:
                    failures[block.ordinal] = f"page {number} prints {printed[:60]!r} in the rectangle, the facts say {said[:60]!r}"
    return failures
