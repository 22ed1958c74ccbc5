"""Locates chunks in their source (pages, lines, bytes or native locators, from the loader's
blocks), and assigns images to them.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rag_platform.ir import PREAMBLE, Block, Chunk, Facts, MediaLink, Section, Version
from rag_platform.loaders.decoding import byte_map_of_blocks
from rag_platform.loaders.text import escape_locator, format_range, line_starts
from rag_platform.media.store import BLANK, is_page_image
from rag_platform.normalisation.edits import Normalised
from rag_platform.sectioners.sections import hashed_id, section_fields, section_id


class Places:
    """Maps spans of one document's facts to locations in its source."""

    def __init__(self, facts: Facts, normalised: Normalised) -> None:
        self.normalised = normalised
        self.blocks = facts.blocks
        self.labels = facts.summary.page_labels
        self.starts = [block.start for block in facts.blocks]
        self.bytes_of = byte_map_of_blocks(
            facts.text, facts.summary.encoding or "utf-8", facts.blocks
        )
        # text formats: the lines of the facts are the lines of the file
        self.lines = line_starts(facts.text) if self.bytes_of is not None else []

    def of(self, start: int, end: int, norm_start: int | None = None) -> dict[str, Any]:
        """The page, line, byte and locator fields of a chunk of facts text[start:end], whose text
        may begin inside what an edit writes there.
        """
        touched = self.blocks[slice(*block_range(self.blocks, self.starts, start, end))]
        pages = [block.page for block in touched if block.page is not None]
        locators = [it.locator for it in touched if not it.locator.startswith("bytes=")]
        first, last = (
            self.bytes_of.span(start, end)
            if self.bytes_of is not None and end > start
            else (None, None)
        )
        lines = (
            (bisect_right(self.lines, start), bisect_right(self.lines, max(start, end - 1)))
            if self.lines
            else _lines(touched)
        )
        return {
            "page_start": min(pages, default=None),
            "page_end": max(pages, default=None),
            "line_start": lines[0],
            "line_end": lines[1],
            "byte_start": first,
            "byte_end": last,
            "locator": self._pages_in(touched, start)
            or self._lines_in(start, end, norm_start)
            or merge_locators(locators),
        }

    def _pages_in(self, touched: Sequence[Block], start: int) -> str:
        """The character of the chunk at which each page after the first begins, as
        `page=8;char=1240`, and the number printed on each page, as `page=7;char=0;printed=iii`.
        """
        begins: dict[int, int] = {}
        for block in touched:
            if block.page is not None:
                begins.setdefault(block.page, block.start)
        origin = self.normalised.to_norm(start)
        return ", ".join(
            _locate_page(page, max(0, self.normalised.to_norm(at) - origin), label)
            for page, at in begins.items()
            if (label := _find_label(self.labels, page)) or page != touched[0].page
        )

    def _lines_in(self, start: int, end: int, norm_start: int | None) -> str:
        """The character of the chunk at which each later line of the file begins, as
        `lines=14:53,17:98`, where its text has other lines; empty for formats without lines.
        """
        to_norm, lines = self.normalised.to_norm, self.lines
        first, last = bisect_right(lines, start), bisect_right(lines, max(start, end - 1))
        origin, stop = to_norm(start) if norm_start is None else norm_start, to_norm(end)
        if last - first == self.normalised.text.count("\n", origin, stop):
            return ""
        # of the lines that begin at one character, those before the last have no text
        begins = {max(0, to_norm(lines[line]) - origin): line + 1 for line in range(first, last)}
        pairs = ",".join(f"{line}:{char}" for char, line in begins.items())
        return f"lines={pairs}" if pairs else ""


def _find_label(labels: Sequence[str], page: int) -> str:
    """The printed number of a page, if it differs from its position."""
    label = labels[page - 1] if labels else ""
    return "" if label == str(page) else label


def _locate_page(page: int, char: int, label: str) -> str:
    printed = f";printed={escape_locator(label)}" if label else ""
    return f"page={page};char={char}{printed}"


def _lines(blocks: Sequence[Block]) -> tuple[int | None, int | None]:
    """The first and last line of the blocks; both None for formats without lines."""
    first = [block.line_start for block in blocks if block.line_start is not None]
    last = [block.line_end for block in blocks if block.line_end is not None]
    return min(first, default=None), max(last, default=None)


_RANGES = (
    (
        re.compile(
            r"((?:sheet=[^;]*;)?(?:columns=[^;]*;)?rows=)(\d+)(?:-(\d+))?()(?:;head=[\d-]+)?"
        ),
        ", ",
    ),
    (re.compile(r"(.*\[)(\d+)(?:-(\d+))?(\])"), ""),
)
_MAX_SHEETS = 4


def merge_locators(locators: Sequence[str]) -> str:
    """One native locator for the blocks of a chunk, in order.

    Rows of a sheet and siblings in an element become a range, such as `sheet=Q1;rows=3-20` or
    `body/tbl[2]/tr[3-9]`; up to four sheets are listed. Other locators are merged to the first and
    the last: `body/p[3] to body/tbl[1]/tr[2]`.
    """
    found = list(dict.fromkeys(locator for locator in locators if locator))
    with_rows = {locator.partition(";")[0] for locator in found if ";rows=" in locator}
    found = [locator for locator in found if locator not in with_rows]
    for pattern, separator in _RANGES:
        matches = [match for locator in found if (match := pattern.fullmatch(locator))]
        ranges: dict[tuple[str, str], list[int]] = {}
        for match in matches:
            ranges.setdefault((match[1], match[4]), []).extend(
                (int(match[2]), int(match[3] or match[2]))
            )
        if (
            matches
            and len(matches) == len(found)
            and len(ranges) <= (_MAX_SHEETS if separator else 1)
        ):
            return separator.join(
                f"{before}{format_range(min(ends), max(ends))}{after}"
                for (before, after), ends in ranges.items()
            )
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}" if found else ""


def block_range(
    blocks: Sequence[Block], starts: Sequence[int], start: int, end: int
) -> tuple[int, int]:
    """The half-open index range of the blocks that overlap [start, end); `starts` are the starts of
    all blocks.
    """
    first = max(0, bisect_right(starts, start) - 1)
    if first < len(blocks) and blocks[first].end <= start:
        first += 1
    return first, max(first, bisect_left(starts, end))


def attach_images(
    chunks: Sequence[Chunk], links: Sequence[MediaLink], blocks: Sequence[Block]
) -> list[Chunk]:
    """The chunks with their images.

    An image without a position in the text goes to the chunk of its page nearest to its box, else
    to the first chunk of its page, else to the last chunk of an earlier page.
    """
    images_of: dict[int, list[str]] = {}
    starts = [block.start for block in blocks]
    for link in sorted(links, key=lambda link: link.order):
        if not link.asset_id:
            continue
        if link.start is not None and link.end is not None:
            owners = [
                i
                for i, chunk in enumerate(chunks)
                if chunk.fact_start < link.end and link.start < chunk.fact_end
            ]
        else:
            owners = _nearest(chunks, link, blocks, starts)
        for index in owners:
            images_of.setdefault(index, []).append(link.asset_id)
    return [
        replace(chunk, asset_ids=tuple(dict.fromkeys(images_of[i]))) if i in images_of else chunk
        for i, chunk in enumerate(chunks)
    ]


def _nearest(
    chunks: Sequence[Chunk], link: MediaLink, blocks: Sequence[Block], starts: Sequence[int]
) -> list[int]:
    if link.page is None:
        return []
    page = link.page
    same = [
        i
        for i, chunk in enumerate(chunks)
        if chunk.page_start is not None and chunk.page_start <= page <= (chunk.page_end or 0)
    ]
    if same and link.bbox is not None:
        return [min(same, key=lambda i: (_distance(chunks[i], link, blocks, starts), i))]
    if same:
        return same[:1]
    earlier = [
        i for i, chunk in enumerate(chunks) if chunk.page_end is not None and chunk.page_end < page
    ]
    return earlier[-1:]


def _distance(
    chunk: Chunk, link: MediaLink, blocks: Sequence[Block], starts: Sequence[int]
) -> float:
    """The vertical distance in points from an image to the chunk's nearest block on its page."""
    first, last = block_range(blocks, starts, chunk.fact_start, chunk.fact_end)
    boxes = [
        block.bbox
        for block in blocks[first:last]
        if block.page == link.page and block.bbox is not None
    ]
    if link.bbox is None or not boxes:
        return float("inf")
    top, bottom = link.bbox[1], link.bbox[3]
    return min(max(0.0, box[1] - bottom, top - box[3]) for box in boxes)


def media_chunks(
    version: Version,
    facts: Facts,
    chunks: Sequence[Chunk],
    sections: Sequence[Section],
    links: Sequence[MediaLink],
) -> list[Chunk]:
    """One chunk without text for each page that has an image but no text; its view gets the text
    read in the image. Its id is a hash of the section and the first asset_id.
    """
    found: list[Chunk] = []
    seen: Counter[tuple[str, str]] = Counter()
    for page in facts.summary.pages_without_text:
        if any(link.page == page and link.reason == BLANK for link in links):
            continue
        here = [link for link in links if link.page == page and link.asset_id]
        # the page image shows all others, which may be mere strips of it
        whole = [link for link in here if is_page_image(link)]
        images = whole or sorted(here, key=lambda link: (-link.width * link.height, link.order))
        if not images:
            continue
        section = _section_before(version.doc_id, page, chunks, sections)
        key = section.section_id, images[0].asset_id
        nth = [str(seen[key])] if seen[key] else []
        seen[key] += 1
        place = next(
            (block.start for block in facts.blocks if block.page is not None and block.page > page),
            len(facts.text),
        )
        label = _find_label(facts.summary.page_labels, page)
        found.append(
            Chunk(
                chunk_id=hashed_id("chk", *key, *nth),
                chunk_index=len(chunks) + len(found),
                chunk_text="",
                chunk_fingerprint=hashlib.sha256(b"").hexdigest(),
                norm_start=section.norm_end,
                norm_end=section.norm_end,
                fact_start=place,
                fact_end=place,
                too_short=True,
                lang="other",
                media_type="image",
                page_start=page,
                page_end=page,
                locator=_locate_page(page, 0, label) if label else "",
                asset_ids=tuple(dict.fromkeys(image.asset_id for image in images)),
                **section_fields(section, version),
            )
        )
    return found


def _section_before(
    doc_id: str, page: int, chunks: Sequence[Chunk], sections: Sequence[Section]
) -> Section:
    """The section of the last text before the page, else the first section, else a preamble."""
    before = [
        chunk.section_id for chunk in chunks if chunk.page_end is not None and chunk.page_end < page
    ]
    by_id = {section.section_id: section for section in sections}
    if before:
        return by_id[before[-1]]
    return (
        sections[0] if sections else Section(section_id(doc_id, PREAMBLE, 0), PREAMBLE, 0, 0, 0, 0)
    )
