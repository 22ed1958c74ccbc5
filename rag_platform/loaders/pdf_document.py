"""The facts of a whole PDF put together from its pages: headings, running headers and footers, nested lists, pictures, warnings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Box, Facts, MediaRef, ParseSummary
from rag_platform.loaders.pdf_edges import running_edges
from rag_platform.loaders.pdf_headings import heading_levels
from rag_platform.loaders.pdf_images import target_of
from rag_platform.loaders.pdf_pages import PageBlock, PageFacts
from rag_platform.loaders.pdf_text import LIST_MARKER
from rag_platform.loaders.text import reads_as_title
from rag_platform.traits import Traits

_NOT_A_TITLE = re.compile(r"^(microsoft word|untitled|powerpoint|slide 1$)|\.(docx?|indd|tex|pdf|dvi|qxd|rtf|pptx?|xlsx?|p65|fm)$", re.I)
_TEXT_KINDS = ("paragraph", "list", "header", "footer")


@dataclass(frozen=True, slots=True)
class PdfInfo:
    """What the file says of itself."""

    pages: int
    metadata: dict[str, str] = field(default_factory=dict)
    outline: tuple[tuple[int, str, int], ...] = ()  # level, title, page


@dataclass(frozen=True, slots=True)
class Reader:
    """Who read the pages, as the summary records it."""

    loader_name: str
    loader_version: str
    parser_engine: str
    engine_version: str
    parse_profile: str


class PagedLoader(Protocol):
    """A loader whose pages are read by children in windows: `traits.engine` names the library, which a child speaks alone."""

    traits: ClassVar[Traits]

    @property
    def profile(self) -> str:
        """layout or fast."""
        ...

    def assemble(self, pages: Sequence[PageFacts], info: PdfInfo, warnings: Sequence[str] = ()) -> Facts:
        """The facts of all pages in order."""
        ...


def assemble(pages: Sequence[PageFacts], info: PdfInfo, reader: Reader, warnings: Sequence[str] = ()) -> Facts:
    """The facts of all pages in order. Raises DocumentError when pages are missing, `broken_file` when every page failed."""
    if [page.page for page in pages] != list(range(1, info.pages + 1)):
        raise DocumentError(f"{len(pages)} pages were read of {info.pages}; ingest the file again", code="pages_missing")
    failed = [page for page in pages if page.engine == "failed"]
    if len(failed) == len(pages):
        raise DocumentError(f"none of the {len(pages)} pages can be read; {failed[0].warnings[-1]}", code="broken_file")
    text, blocks = _written(pages, heading_levels(pages, info.outline), running_edges(pages))
    media = _media(pages, text, blocks)
    title = info.metadata.get("title", "")
    if len(title) < 3 or _NOT_A_TITLE.search(title):
        said = (b.title or text[b.start : b.end].replace("\n", " ")[:120] for kinds in (("heading",), _TEXT_KINDS) for b in blocks
                if b.kind in kinds and not b.repeated)  # fmt: skip
        title = next(filter(reads_as_title, said), "")
    return Facts(
        text,
        tuple(blocks),
        media,
        ParseSummary(
            loader_name=reader.loader_name,
            loader_version=reader.loader_version,
            parser_engine=reader.parser_engine,
            engine_version=reader.engine_version,
            parse_profile=reader.parse_profile,
            md_sha256=hashlib.sha256(text.encode()).hexdigest(),
            text_chars=len(text),
            paragraphs=sum(block.kind == "paragraph" for block in blocks),
            images=len(media),
            pages=info.pages,
            pages_without_text=tuple(page.page for page in pages if not page.blocks),
            title=title,
            metadata=dict(info.metadata),
            warnings=(*warnings, *_notes(pages, reader.parse_profile), *(note for page in pages for note in page.warnings)),
            errors=tuple(page.warnings[-1] for page in failed),
            hidden=tuple(text for page in pages for text in page.hidden),
        ),
    )


def _notes(pages: Sequence[PageFacts], profile: str) -> list[str]:
    """What a reader of the facts must know of whole pages; each page that yields nothing is named."""
    failed = [page.page for page in pages if page.engine == "failed"]
    raw = [page.page for page in pages if page.engine == "raw"] if profile == "layout" else []
    scanned = [page.page for page in pages if not page.blocks and page.images and page.engine != "failed"]
    blank = [page.page for page in pages if not page.blocks and not page.images and page.engine != "failed"]
    said = (
        (raw, "read as raw text, without layout"),
        (failed, "nothing could be read"),
        (scanned, "no text but pictures: scanned; what they say is found with OCR (media_texts.ocr in the strategy)"),
        (blank, "neither text nor pictures"),
    )
    return [f"page{'s' if len(numbers) > 1 else ''} {ranges(numbers)}: {text}" for numbers, text in said if numbers]


def _written(
    pages: Sequence[PageFacts], levels: dict[tuple[int, int], int], running: dict[tuple[int, int], str]
) -> tuple[str, list[Block]]:
    parts: list[str] = []
    blocks: list[Block] = []
    offset = 0
    for page in pages:
        before: PageBlock | None = None
        parents: list[PageBlock] = []  # the list entries that the next one may stand under
        for position, block in enumerate(page.blocks):
            kind, text, title = block.kind, block.text, ""
            repeated = (page.page, position) in running
            level = 0 if repeated else levels.get((page.page, position), 0)
            if level:
                kind, title = "heading", " ".join(text.removeprefix("- ").split())
                text = f"{'#' * level} {title}"
            elif repeated:
                kind = running[page.page, position]
            elif kind == "heading":
                kind = "paragraph"
            if kind == "list":
                parents = _parents(parents, block)
                indent = " " * sum(len(match[0]) for parent in parents if (match := LIST_MARKER.match(parent.text)))
                text = "\n".join(indent + line for line in text.split("\n"))
                parents = [*parents, block]
            elif kind not in ("header", "footer"):
                parents = []
            gap = "" if not blocks else "\n" if kind == "list" == blocks[-1].kind and before is not None else "\n\n"
            start = offset + len(gap)
            parts += [gap, text]
            offset = start + len(text)
            blocks.append(Block(len(blocks), kind, start, offset, level, page=page.page, bbox=block.bbox, title=title, repeated=repeated))
            before = block
    return "".join(parts), blocks


def _parents(parents: Sequence[PageBlock], block: PageBlock) -> list[PageBlock]:
    """The entries that stand further left than this one; an entry above the last one opens a new column."""
    if parents and block.bbox[1] < parents[-1].bbox[1]:
        return []
    least = 0.6 * (block.size or 10.0)
    return [parent for parent in parents if parent.bbox[0] + least < block.bbox[0]]


def _media(pages: Sequence[PageFacts], text: str, blocks: Sequence[Block]) -> tuple[MediaRef, ...]:
    """Picture references in page order, each with the headings above it and the text nearest to it."""
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
                    heading_path=" > ".join(block.title for block in above),
                    context_hint=text[near.start : near.end][:300] if near else "",
                )
            )
        for block in here:
            path = _deeper(path, block)
    return tuple(refs)


def _deeper(path: list[Block], block: Block) -> list[Block]:
    return [item for item in path if item.level < block.level] + [block] if block.kind == "heading" else path


def _distance(one: Box, other: Box) -> float:
    across = max(0.0, other[0] - one[2], one[0] - other[2])
    along = max(0.0, other[1] - one[3], one[1] - other[3])
    return across + along


def ranges(numbers: Sequence[int]) -> str:
    """Numbers as `1-3, 7`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def by_page(blocks: Sequence[Block]) -> tuple[dict[int, str], dict[int, list[Block]]]:
    """(ordinal to reason for each block without a page or rectangle, page to its blocks): how a proof begins."""
    failures: dict[int, str] = {}
    pages: dict[int, list[Block]] = {}
    for block in blocks:
        if block.page is None or block.bbox is None:
            failures[block.ordinal] = "the block names no page or rectangle"
        else:
            pages.setdefault(block.page, []).append(block)
    return failures, pages
