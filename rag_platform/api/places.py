"""Locates a cited chunk in its document (rectangles on pages, lines, rows of a sheet, images) with
the text around it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import unquote

from rag_platform.api.document_views import chunk_part, read_texts
from rag_platform.api.envelopes import fill_shape
from rag_platform.caching import Cache
from rag_platform.contract.traces import (
    PlaceData,
    PlaceLine,
    PlacePage,
    PlaceRow,
    PlaceTable,
    SourceData,
    SourceImage,
    VersionPart,
)
from rag_platform.errors import DocumentError, InputError, NotFoundError
from rag_platform.indexes.catalog import ChunkRow
from rag_platform.ir import Block, Chunk, Facts, Version
from rag_platform.releases.release_store import list_heads
from rag_platform.retrieval.hydration import list_media_texts
from rag_platform.retrieval.library import Lease, Library
from rag_platform.retrieval.namespaces import find_in_namespaces
from rag_platform.storage.store import Store

if TYPE_CHECKING:
    from rag_platform.normalisation.edits import Normalised

Span = tuple[int, int]
MAX_SPANS = 50
_AROUND_LINES = 15
_AROUND_ROWS = 8
_MAX_LINES = 400  # of text, or rows of a sheet
_LINE_CHARS = 2000  # a longer line is cut to the part around the passage
_ENGINES = ("pymupdf", "pdfium")
_ROWS = re.compile(
    r"(?:sheet=(?P<sheet>[^;]*);)?(?:columns=(?P<columns>[^;]*);)?rows=(?P<first>\d+)"
)


class LeasedChunk(NamedTuple):
    """A chunk with the lease of the release that it is read from."""

    lease: Lease
    row: ChunkRow
    state: Literal["current", "changed"]

    @property
    def version(self) -> Version:
        """The version that the chunk belongs to."""
        found = self.lease.release.catalog.version(self.row.chunk.version_id)
        assert found is not None  # the catalog has no chunk without its version
        return found


@contextmanager
def lease_chunk(
    library: Library,
    chunk_id: str,
    names: str | Sequence[str] | None = None,
    release_id: str | None = None,
) -> Iterator[LeasedChunk]:
    """A chunk of the given release, else of the published one, else of the newest kept one that has
    it; `names` are the namespaces to look in, by default all. Raises NotFoundError `unknown_chunk`.
    """

    def find_in(name: str) -> ExitStack | None:
        library.require_visible(name)
        for release, state in _releases(library, name, release_id):
            with ExitStack() as stack:
                lease = stack.enter_context(library.lease(name, release))
                row = lease.release.catalog.rows([chunk_id]).get(chunk_id)
                if row is not None and chunk_id not in library.hidden_chunks(lease):
                    found.append(LeasedChunk(lease, row, state))
                    return stack.pop_all()
        return None

    found: list[LeasedChunk] = []
    names = [names] if isinstance(names, str) else names or library.namespaces()
    if (opened := find_in_namespaces(names, find_in)) is not None:
        with opened:
            yield found[0]
        return
    reason = "its document was deleted, or no release that is kept holds it; ask the question again"
    if not chunk_id.startswith("chk_"):
        reason = "the id of a passage begins with chk_, as in the links of results"
    raise NotFoundError(f"no chunk {chunk_id[:80]!r}: {reason}", code="unknown_chunk")


def _releases(
    library: Library, namespace: str, release_id: str | None
) -> Iterator[tuple[str, Literal["current", "changed"]]]:
    current = library.current(namespace)
    if release_id:
        yield release_id, "current" if release_id == current else "changed"
        return
    yield current, "current"
    for manifest in list_heads(library.store, namespace):
        if manifest.release_id != current and not manifest.failures:
            yield manifest.release_id, "changed"


def read_source(
    library: Library, chunk_id: str, namespace: str | None = None, release_id: str | None = None
) -> SourceData:
    """A chunk with its document, the document's versions, and the chunk's images. Raises
    NotFoundError.
    """
    with lease_chunk(library, chunk_id, namespace, release_id) as leased:
        chunk, lease = leased.row.chunk, leased.lease
        document = lease.release.catalog.document(chunk.doc_id)
        return fill_shape(
            SourceData,
            leased.row,
            chunk=chunk_part(chunk, chunk.chunk_text),
            namespace=lease.namespace,
            release_id=lease.release_id,
            state=leased.state,
            doc_id=chunk.doc_id,
            version_id=chunk.version_id,
            title=leased.row.doc_title,
            tags=list(document.tags) if document else [],
            history=_history(library, lease.namespace, chunk.doc_id),
            images=[
                fill_shape(SourceImage, text)
                for text in list_media_texts(chunk, lease.release.catalog)
            ],
        )


def _history(library: Library, namespace: str, doc_id: str) -> list[VersionPart]:
    from rag_platform.ledger.ledger import open_ledger

    with closing(open_ledger(library.store)) as ledger:
        document = ledger.document(namespace, doc_id)
        versions = ledger.versions(namespace, doc_id)
    return [
        fill_shape(
            VersionPart,
            version,
            state="live" if version.version_id == document.live_version else version.status,
        )
        for version in reversed(versions)
    ]


# --- places -------------------------------------------------------------------------------------


def find_place(
    library: Library,
    chunk_id: str,
    namespace: str | None = None,
    release_id: str | None = None,
    *,
    spans: Sequence[Span] = (),
    page: int | None = None,
) -> PlaceData:
    """The place of a chunk, and in it of the spans [start, end) of its text, by default all of it.

    For formats with pages: on each page of the chunk, or only on `page`. Raises NotFoundError,
    InputError `bad_span` and `bad_page`.
    """
    with lease_chunk(library, chunk_id, namespace, release_id) as leased:
        return _PlaceLookup(library, leased, spans, page).data()


def first_page(place: PlaceData) -> PlacePage | None:
    """The first page with a cited span, else the first one."""
    pages = place["pages"]
    return next((page for page in pages if page["cited"]), pages[0] if pages else None)


class _PlaceLookup:
    """Finds the place of one chunk; all spans are offsets into the extracted text."""

    def __init__(
        self, library: Library, leased: LeasedChunk, spans: Sequence[Span], page: int | None
    ) -> None:
        self.library, self.chunk, self.version = library, leased.row.chunk, leased.version
        self.catalog = leased.lease.release.catalog
        self.facts, normalised = _read_texts(
            library.store, self.version, leased.lease.release.manifest.profiles
        )
        self.chunk_span = (self.chunk.fact_start, self.chunk.fact_end)
        self.cited = _to_facts(self.chunk, normalised, spans)
        self.page = page

    def data(self) -> PlaceData:
        """The place, in the form that suits the file format."""
        data: PlaceData = {
            "chunk_id": self.chunk.chunk_id,
            "version_id": self.version.version_id,
            "form": "lines",
            "page_count": self.facts.summary.pages,
            "pages": [],
            "lines": [],
            "tables": [],
            "warnings": [],
        }
        if is_drawn(self.version) and self.chunk.page_start is not None:
            data["form"] = "pages"
            self._add_pages(data)
        elif not self.chunk.chunk_text:
            data["form"] = "images"
        elif _ROWS.match(self.chunk.locator):
            data["form"] = "rows"
            data["tables"] = list(self._tables())
        else:
            data["lines"] = self._lines()
        return data

    def _add_pages(self, data: PlaceData) -> None:
        first = self.chunk.page_start or 1
        last = self.chunk.page_end or first
        numbers = range(first, last + 1) if self.page is None else [self.page]
        for number in numbers:
            if not 1 <= number <= self.facts.summary.pages:
                raise InputError(
                    f"page {number} is not within 1-{self.facts.summary.pages}", code="bad_page"
                )
            try:
                data["pages"].append(self._page(number))
            except DocumentError as error:
                warning = f"page {number}: the passage was not found in the file ({error.message})"
                data["warnings"].append(warning)
                data["pages"].append(
                    {"page": number, "width": 0.0, "height": 0.0, "boxes": [], "cited": []}
                )

    def _page(self, number: int) -> PlacePage:
        from rag_platform.intake.isolation import locate_in_child

        blocks = [block for block in self.facts.blocks if block.page == number]
        found = locate_in_child(
            self.library.store.raw_path(self.version.file_sha256),
            self.version.loader,
            number,
            self.facts.text,
            blocks,
            [self.chunk_span, *self.cited],
            self.library.settings.limits,
        )
        inside, cited = found.boxes[0], [box for group in found.boxes[1:] for box in group]
        pictures = [
            link.bbox
            for link in self.catalog.media(self.chunk.doc_id)
            if link.page == number and link.asset_id in self.chunk.asset_ids and link.bbox
        ]
        if not self.chunk.chunk_text:  # an image: its box, or the whole page if that is the image
            own = number == self.chunk.page_start
            cited = pictures or ([(0.0, 0.0, found.width, found.height)] if own else [])
        return {
            "page": number,
            "width": round(found.width, 2),
            "height": round(found.height, 2),
            "boxes": _round_boxes([*inside, *pictures]),
            "cited": _round_boxes(cited),
        }

    def _lines(self) -> list[PlaceLine]:
        text = self.facts.text
        starts = [0, *(match.end() for match in re.finditer("\n", text))]
        # byte offsets: the text has the lines of the file
        numbered = any(block.byte_start is not None for block in self.facts.blocks)
        first = bisect_right(starts, self.chunk_span[0]) - 1
        last = bisect_right(starts, max(self.chunk_span[0], self.chunk_span[1] - 1)) - 1
        found: list[PlaceLine] = []
        window = range(max(0, first - _AROUND_LINES), min(len(starts), last + _AROUND_LINES + 1))
        for index in window[:_MAX_LINES]:
            begin = starts[index]
            end = starts[index + 1] - 1 if index + 1 < len(starts) else len(text)
            shown, cited = self._cut(begin, end)
            line: PlaceLine = {
                "text": shown,
                "inside": begin < self.chunk_span[1] and self.chunk_span[0] < max(end, begin + 1),
                "cited": cited,
            }
            if numbered:
                line["number"] = index + 1
            found.append(line)
        return found

    def _cut(self, begin: int, end: int) -> tuple[str, list[list[int]]]:
        """(text, cited spans) of a line; a long one is cut to the part around the passage."""
        here = [
            (max(start, begin), min(stop, end))
            for start, stop in self.cited
            if start < end and begin < stop
        ]
        if end - begin > _LINE_CHARS:
            near = here[0][0] if here else max(begin, min(self.chunk_span[0], end))
            begin = max(begin, near - _LINE_CHARS // 4)
            end = min(end, begin + _LINE_CHARS)
        cited = [[start - begin, min(stop, end) - begin] for start, stop in here if start < end]
        return self.facts.text[begin:end], cited

    def _tables(self) -> Iterator[PlaceTable]:
        """Per table of a sheet that the chunk touches: its rows and some around them."""
        touched: dict[tuple[str, str], list[PlaceRow]] = {}
        heads: dict[tuple[str, str], list[str]] = {}
        tables = {
            _table(block)
            for block in self.facts.blocks
            if block.start < self.chunk_span[1] and self.chunk_span[0] < block.end
        }
        for block in self.facts.blocks:
            if (table := _table(block)) in tables and _ROWS.match(block.locator):
                head, rows = self._rows(block)
                heads.setdefault(table, head)
                touched.setdefault(table, []).extend(rows)
        for table, rows in touched.items():
            at = [number for number, row in enumerate(rows) if row["inside"]] or [0]
            first, last = max(0, at[0] - _AROUND_ROWS), at[-1] + _AROUND_ROWS + 1
            shown = rows[first : min(last, first + _MAX_LINES)]
            yield {"sheet": unquote(table[0]), "head": heads.get(table, []), "rows": shown}

    def _rows(self, block: Block) -> tuple[list[str], list[PlaceRow]]:
        """(header cells, rows) of a sheet's block."""
        from rag_platform.text.markdown_blocks import DELIMITER, parse_row

        lines: list[tuple[int, str]] = []
        at = block.start
        for line in self.facts.text[block.start : block.end].split("\n"):
            lines.append((at, line))
            at += len(line) + 1
        is_table = len(lines) > 1 and bool(DELIMITER.fullmatch(lines[1][1]))
        head = parse_row(lines[0][1]) if is_table else []
        named = _ROWS.match(block.locator)
        first = int(named["first"]) if named else 0
        rows: list[PlaceRow] = []
        for number, (start, line) in enumerate(lines[2:] if is_table else lines, first):
            end = start + len(line)
            row: PlaceRow = {
                "number": number,
                "cells": parse_row(line) if is_table else [line],
                "inside": start < self.chunk_span[1] and self.chunk_span[0] < end,
                "cited": any(start < stop and begin < end for begin, stop in self.cited),
            }
            rows.append(row)
        return head, rows


def is_drawn(version: Version) -> bool:
    """True for a file format whose pages can be drawn."""
    from rag_platform.registry import traits

    return traits("loader", version.loader).engine in _ENGINES


def _table(block: Block) -> tuple[str, str]:
    """(the sheet, the columns where tables are side by side) of a block's locator."""
    named = _ROWS.match(block.locator)
    return (named["sheet"] or "", named["columns"] or "") if named else ("", "")


def _to_facts(chunk: Chunk, normalised: Normalised, spans: Sequence[Span]) -> list[Span]:
    """Spans of a chunk's text as offsets into the extracted text; the whole chunk if there are none
    or its text was edited by hand.
    """
    if not spans or chunk.edited_from:
        return [(chunk.fact_start, chunk.fact_end)]
    if len(spans) > MAX_SPANS or any(
        not 0 <= start < end <= len(chunk.chunk_text) for start, end in spans
    ):
        raise InputError(
            f"the spans are not {MAX_SPANS} at most within 0-{len(chunk.chunk_text)}, the text of"
            " the chunk",
            code="bad_span",
        )
    start = chunk.norm_start
    return [normalised.span_to_facts(start + first, start + last) for first, last in spans]


def _round_boxes(boxes: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[round(value, 2) for value in box] for box in boxes]


_texts: Cache[tuple[Facts, Normalised]] = Cache(4)


def _read_texts(
    store: Store, version: Version, profiles: Mapping[str, str]
) -> tuple[Facts, Normalised]:
    """`read_texts`; the latest are cached."""
    edits_path = store.version_path(version, "edits", profiles["sections"])
    key = (store.facts_dir(version, profiles["facts"]), edits_path)
    found = _texts.get(key) or read_texts(store, version, profiles)
    _texts.put(key, found)
    return found
