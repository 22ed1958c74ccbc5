"""The formats in which a document can be read (text, sections, chunks, outline), each cut to a text
budget.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple, cast

from rag_platform.api.envelopes import optional_fields
from rag_platform.contract.markdown_views import (
    dropped_markdown,
    find_printed_pages,
    part_markdown,
    show_picture,
)
from rag_platform.contract.schema import (
    ChunkPart,
    DocumentPart,
    DroppedData,
    DroppedText,
    SectionPart,
)
from rag_platform.errors import InputError, NotFoundError
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.ir import Chunk, Document, Facts, PageKept, Section, Version
from rag_platform.ledger.ledger import open_ledger
from rag_platform.releases.version_bundles import fetch_version
from rag_platform.retrieval.hydration import read_pictures
from rag_platform.retrieval.library import Lease
from rag_platform.storage.store import Store, read_records
from rag_platform.text.tokens import estimate_tokens

if TYPE_CHECKING:
    from rag_platform.normalisation.edits import Normalised

_FRAME_TOKENS = 300  # of the ids, names and braces around the text
_ROW_TOKENS = 80  # the same for one section or chunk, without its path


class PublishedDocument(NamedTuple):
    """A document of a release with its live version and the ids of its images."""

    document: Document
    version: Version
    asset_ids: list[str]


class Window(NamedTuple):
    """Which part of a document is shown, and how much of it.

    `row` is the index of the first section or chunk, `offset` that of the first character in it (in
    the whole text for format `md`). `pages` and `lines` are inclusive ranges, for chunks only.
    """

    max_chars: int | None = None
    max_tokens: int | None = None
    row: int = 0
    offset: int = 0
    pages: tuple[int, int] | None = None
    lines: tuple[int, int] | None = None


class RenderedPart(NamedTuple):
    """A part of a document, its Markdown, and the (row, offset) of the next part, if any."""

    part: DocumentPart
    markdown: str
    next: tuple[int, int] | None = None


def _markdown_form(
    lease: Lease, store: Store, found: PublishedDocument, window: Window
) -> RenderedPart:
    """The extracted text with only the recorded `asset://` edits applied."""
    _, edited = read_texts(store, found.version, lease.release.manifest.profiles, "asset")
    return _text_part(found, "md", edited.text, window)


def _text_part(found: PublishedDocument, form: str, text: str, window: Window) -> RenderedPart:
    """What the window shows of a text, which is both in `markdown` and in `md_text`."""
    tokens = window.max_tokens
    half = None if tokens is None else (tokens - _FRAME_TOKENS) // 2
    shown = _cut(text[window.offset :], window.max_chars, half)
    end = window.offset + len(shown)
    part = _part(found, form, len(text), len(shown), end < len(text))
    part["md_text"] = shown
    return RenderedPart(part, shown, (0, end) if end < len(text) else None)


def read_texts(
    store: Store, version: Version, profiles: Mapping[str, str], rule: str = ""
) -> tuple[Facts, Normalised]:
    """What was extracted from a version, and its text with the recorded edits applied, or only
    those of `rule`.
    """
    from rag_platform.documents.outputs import Outputs
    from rag_platform.normalisation.edits import apply_edits

    fetch_version(store, version, profiles)
    outputs = Outputs(version, store, profiles)
    edits = [edit for edit in outputs.edits if rule in ("", edit.rule)]
    return outputs.facts, apply_edits(outputs.facts.text, edits)


def _changes_form(
    lease: Lease, store: Store, found: PublishedDocument, window: Window
) -> RenderedPart:
    """The kept versions, newest first, and what the shown one changed since the one before it."""
    from rag_platform.releases.version_history import compare_versions, list_readable

    with closing(open_ledger(store)) as ledger:
        versions = list_readable(found.document, store, ledger)
    lines = ["Versions, newest first:", ""]
    for it in versions:
        mark = ", this one" if it.version_id == found.version.version_id else ""
        lines.append(f"- `{it.version_id}`, received {it.received_at}{mark}")
    profiles = lease.release.manifest.profiles
    for shown, before in pairwise(versions):
        if shown.version_id != found.version.version_id:
            continue
        for version in (before, shown):
            fetch_version(store, version, profiles)
        try:
            changes = compare_versions(before, shown, profiles, store)[1].markdown()
            lines += ["", "What this one changed since the one before it:", "", changes]
        except NotFoundError as error:
            lines += ["", f"What this one changed cannot be shown: {error.message}"]
    return _text_part(found, "changes", "\n".join(lines), window)


def _outline_form(
    lease: Lease, store: Store, found: PublishedDocument, window: Window
) -> RenderedPart:
    return _sections(lease, found, None, window, _TextBudget(None, window.max_tokens))


def _sections_form(
    lease: Lease, store: Store, found: PublishedDocument, window: Window
) -> RenderedPart:
    _, normalised = read_texts(store, found.version, lease.release.manifest.profiles)
    return _sections(lease, found, normalised.text, window, _TextBudget.of(window))


def _sections(
    lease: Lease, found: PublishedDocument, text: str | None, window: Window, left: _TextBudget
) -> RenderedPart:
    """The sections in order, each with its slice of the normalised `text`; an outline without."""
    reader = lease.release.catalog
    sections = reader.sections(found.document.doc_id)
    counts = reader.section_counts(found.version.version_id)
    rows: list[SectionPart] = []
    following, offset = None, window.offset
    for number, section in enumerate(sections[window.row :], window.row):
        if not left.charge_row(_ROW_TOKENS + 2 * estimate_tokens(section.section_path)) and rows:
            following = (number, 0)
            break
        row = section_part(section, counts)
        rows.append(row)
        if text is not None:
            whole = text[section.norm_start : section.norm_end]
            row["text"] = left.take(whole[offset:])
            if (offset := offset + len(row["text"])) < len(whole):
                following = (number, offset)
                break
            offset = 0
    total = sum(section.norm_end - section.norm_start for section in sections)
    form, shown = ("outline", total) if text is None else ("sections", left.shown)
    part = _part(found, form, total, shown, following is not None)
    part["sections"] = rows
    return RenderedPart(part, part_markdown(part), following)


def _chunks_form(
    lease: Lease, store: Store, found: PublishedDocument, window: Window
) -> RenderedPart:
    every = lease.release.catalog.chunks_of_version(found.version.version_id)
    chunks = [
        chunk
        for chunk in every
        if _touches(window.pages, chunk.page_start, chunk.page_end)
        and _touches(window.lines, chunk.line_start, chunk.line_end)
    ]
    if not chunks and (window.pages or window.lines):
        raise _empty_range(every, window)
    left = _TextBudget.of(window)
    rows: list[ChunkPart] = []
    following, offset = None, window.offset
    texts = [shown_text(chunk, lease.release.catalog) for chunk in chunks]
    for number, chunk in enumerate(chunks[window.row :], window.row):
        text = texts[number][offset:]
        has_room = left.charge_row(_ROW_TOKENS + estimate_tokens(chunk.section_path))
        if rows and not (has_room and left.fits(text)):
            following = (number, 0)
            break
        rows.append(chunk_part(chunk, left.take(text)))
        if len(rows[-1]["text"]) < len(text):
            following = (number, offset + len(rows[-1]["text"]))
            break
        offset = 0
    part = _part(found, "chunks", sum(map(len, texts)), left.shown, following is not None)
    part["chunks"] = rows
    return RenderedPart(part, part_markdown(part), following)


def _empty_range(chunks: Sequence[Chunk], window: Window) -> InputError:
    """The error for a range of pages or lines without chunks, with the ranges that have some."""
    ranges = {"pages": window.pages, "lines": window.lines}
    requested = [f"{name} {it[0]}-{it[1]}" for name, it in ranges.items() if it]
    available = []
    for name, numbers in (
        ("pages", [n for it in chunks for n in (it.page_start, it.page_end) if n is not None]),
        ("lines", [n for it in chunks for n in (it.line_start, it.line_end) if n is not None]),
    ):
        available.append(f"{name} {min(numbers)}-{max(numbers)}" if numbers else f"no {name}")
    return InputError(
        f"no passage is on {' and '.join(requested)}; those of the document have"
        f" {', '.join(available)}",
        code="bad_range",
    )


def _touches(bounds: tuple[int, int] | None, first: int | None, last: int | None) -> bool:
    """True if a span of pages or lines overlaps the bounds, or there are no bounds."""
    if bounds is None:
        return True
    return first is not None and first <= bounds[1] and (last or first) >= bounds[0]


def dropped_data(lease: Lease, store: Store, found: PublishedDocument) -> DroppedData:
    """The text of a document that is in none of its chunks."""
    from rag_platform.documents.kept_text import find_dropped, word_counts

    profiles, version = lease.release.manifest.profiles, found.version
    facts, normalised = read_texts(store, version, profiles)
    chunks = read_records(store.version_path(version, "chunks", profiles["chunks"]), Chunk)
    items = find_dropped(facts, normalised, chunks)
    rows = [
        {
            "reason": item.reason,
            "text": item.text,
            **optional_fields(page=item.page, line=0 if item.page else item.line),
        }
        for item in items
    ]
    kept_path = store.version_path(version, "kept", profiles["chunks"])
    pages = read_records(kept_path, PageKept) if kept_path.is_file() else []
    kept = {
        "words": sum(page.words for page in pages),
        "found": sum(page.found for page in pages),
        "short_pages": {str(p.page): round(p.share, 3) for p in pages if p.found < p.words},
    }
    data: DroppedData = {
        "markdown": "",
        "doc_id": found.document.doc_id,
        "version_id": version.version_id,
        "dropped": cast(list[DroppedText], rows),
        "words": word_counts(items),
        "text_kept": kept if pages else {},
    }
    data["markdown"] = dropped_markdown(data)
    return data


Form = Callable[[Lease, Store, PublishedDocument, Window], RenderedPart]
FORMS: dict[str, Form] = {
    "md": _markdown_form,
    "sections": _sections_form,
    "chunks": _chunks_form,
    "outline": _outline_form,
    "changes": _changes_form,
}


def cut_notice(part: DocumentPart, max_chars: int | None) -> str:
    """The warning that only a part is shown."""
    if part["format"] == "outline":
        return "not all sections are shown; next_cursor continues"
    bound = "the result budget" if max_chars is None else f"max_chars {max_chars}"
    return (
        f"only a part is shown ({part['shown_chars']} of {part['total_chars']} characters): {bound}"
        " is used up; next_cursor continues there"
    )


def section_part(section: Section, counts: Mapping[str, int]) -> SectionPart:
    """The public form of a section without its text; `counts` are chunk counts by section_id."""
    return {
        "section_id": section.section_id,
        "section_path": section.section_path,
        "title": section.title,
        "level": section.heading_level,
        "chunks": counts.get(section.section_id, 0),
    }


def shown_text(chunk: Chunk, catalog: CatalogReader) -> str:
    """The text of a chunk; of a picture alone what models read in it, marked as such."""
    return chunk.chunk_text or show_picture(chunk.asset_ids, read_pictures(chunk, catalog))


def chunk_part(chunk: Chunk, text: str, picture_text: str = "") -> ChunkPart:
    """The public form of a chunk, with `text` as its text, and what was read in its pictures."""
    ranges = ((chunk.page_start, chunk.page_end), (chunk.line_start, chunk.line_end))
    pages, lines = ([first, last or first] if first is not None else [] for first, last in ranges)
    part = {
        "chunk_id": chunk.chunk_id,
        "chunk_index": chunk.chunk_index,
        "section_path": chunk.section_path,
        "text": text,
        "asset_ids": list(chunk.asset_ids),
        **optional_fields(
            picture_text=picture_text,
            page_range=pages,
            printed_pages=find_printed_pages(pages, chunk.locator),
            line_range=lines,
            locator=chunk.locator,
            edited_from=chunk.edited_from,
        ),
    }
    return cast(ChunkPart, part)


def _part(
    found: PublishedDocument, form: str, total: int, shown: int, truncated: bool
) -> DocumentPart:
    document, version = found.document, found.version
    return {
        "doc_id": document.doc_id,
        "version_id": version.version_id,
        "title": document.title,
        "filename": document.filename,
        "source": document.source,
        "source_uri": document.source_uri,
        "tags": list(document.tags),
        "metadata": dict(document.metadata),
        "content_type": version.content_type,
        "updated_at": document.updated_at,
        "asset_ids": found.asset_ids,
        "format": form,
        "total_chars": total,
        "shown_chars": shown,
        "truncated": truncated,
    }


class _TextBudget:
    """How much text may still be shown, in characters if `max_chars` is given, else in tokens."""

    def __init__(self, max_chars: int | None, max_tokens: int | None) -> None:
        bounded = max_chars is None and max_tokens is not None
        self._chars = inf if max_chars is None else max_chars
        self._tokens = (max_tokens or 0) - _FRAME_TOKENS // 2 if bounded else inf
        self.shown = 0

    @classmethod
    def of(cls, window: Window) -> _TextBudget:
        """The budget of a format whose texts are returned twice, in `markdown` and in a row."""
        tokens = window.max_tokens
        return cls(window.max_chars, None if tokens is None else tokens // 2)

    def charge_row(self, tokens: int) -> bool:
        """Deduct the frame of another row; True if any text of the row still fits."""
        self._tokens -= tokens
        return self._tokens > 0 and self._chars > 0

    def fits(self, text: str) -> bool:
        """True if the text would not be cut."""
        return estimate_tokens(text) <= self._tokens and len(text) <= self._chars

    def take(self, text: str) -> str:
        """The beginning of the text that still fits, which is deducted."""
        part = _cut(text, self._chars, self._tokens)
        self.shown += len(part)
        self._chars -= len(part)
        self._tokens -= estimate_tokens(part)
        return part


def _cut(text: str, max_chars: float | None, max_tokens: float | None) -> str:
    """The beginning of the text within `max_chars`, else within `max_tokens`, cut at a line end if
    there is one in its second half.
    """
    end = len(text)
    if max_chars is not None and max_chars < inf:
        end = max(0, min(int(max_chars), end))
    elif max_tokens is not None and estimate_tokens(text) > max_tokens:
        fitting = range(1, len(text) + 1)
        end = bisect_right(fitting, max_tokens, key=lambda n: estimate_tokens(text[:n]))
    if end == len(text):
        return text
    line_end = text.rfind("\n", end // 2, end)
    return text[: line_end + 1] if line_end > 0 else text[:end]
