"""The forms in which a document can be read: its text, its sections, its chunks, its outline, each
cut to a budget of text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from rag_platform.contract.markdown_views import (
    chunks_markdown,
    dropped_markdown,
    sections_markdown,
)
from rag_platform.contract.schema import (
    ChunkPart,
    DocumentPart,
    DroppedData,
    DroppedText,
    SectionPart,
)
from rag_platform.ir import Chunk, Document, Edit, PageKept, Version
from rag_platform.retrieval.library import Lease
from rag_platform.storage.store import Store, read_records
from rag_platform.text.tokens import estimate_tokens

if TYPE_CHECKING:
    from rag_platform.normalisation.edits import Normalised

_FRAME_TOKENS = 300  # what ids, names and braces around the text cost
_ROW_TOKENS = 80  # the same for one section or chunk, its path apart


class Found(NamedTuple):
    """A document of a release with its live version and the images it shows."""

    document: Document
    version: Version
    asset_ids: list[str]


def _markdown_form(
    lease: Lease, store: Store, found: Found, max_chars: int | None, max_tokens: int | None
) -> tuple[DocumentPart, str]:
    """The facts with the recorded `asset://` edits, and no other."""
    text = _read_facts(lease, store, found.version, "asset").text
    # the text is both in `markdown` and in `md_text`
    shown = _cut(text, max_chars, None if max_tokens is None else (max_tokens - _FRAME_TOKENS) // 2)
    part = _part(found, "md", len(text), len(shown), len(shown) < len(text))
    part["md_text"] = shown
    return part, shown


def _read_facts(lease: Lease, store: Store, version: Version, rule: str = "") -> Normalised:
    """The facts of a version with its recorded edits, or with those of one rule."""
    from rag_platform.documents.versions import load_facts
    from rag_platform.normalisation.edits import apply_edits

    profiles = lease.release.manifest.profiles
    edits = read_records(store.version_path(version, "edits", profiles["sections"]), Edit)
    facts = load_facts(store, version, profiles["facts"])
    return apply_edits(facts.text, [edit for edit in edits if rule in ("", edit.rule)])


def _outline_form(
    lease: Lease, store: Store, found: Found, max_chars: int | None, max_tokens: int | None
) -> tuple[DocumentPart, str]:
    return _sections(lease, found, None, _Allowance(None, max_tokens))


def _sections_form(
    lease: Lease, store: Store, found: Found, max_chars: int | None, max_tokens: int | None
) -> tuple[DocumentPart, str]:
    text = _read_facts(lease, store, found.version).text
    half = None if max_tokens is None else max_tokens // 2
    return _sections(lease, found, text, _Allowance(max_chars, half))


def _sections(
    lease: Lease, found: Found, text: str | None, left: _Allowance
) -> tuple[DocumentPart, str]:
    """The sections in order, each with its slice of the normalised `text`, or an outline."""
    reader = lease.release.catalog
    sections = reader.sections(found.document.doc_id)
    counts = Counter(
        chunk.section_id for chunk in reader.chunks_of_version(found.version.version_id)
    )
    rows: list[SectionPart] = []
    for section in sections:
        if not left.opens(_ROW_TOKENS + 2 * estimate_tokens(section.section_path)) and rows:
            break
        row: SectionPart = {
            "section_id": section.section_id,
            "section_path": section.section_path,
            "title": section.title,
            "level": section.heading_level,
            "chunks": counts[section.section_id],
        }
        if text is not None:
            row["text"] = left.take(text[section.norm_start : section.norm_end])
        rows.append(row)
    total = sum(section.norm_end - section.norm_start for section in sections)
    form, shown = ("outline", total) if text is None else ("sections", left.shown)
    part = _part(found, form, total, shown, len(rows) < len(sections))
    part["sections"] = rows
    return part, sections_markdown(part, rows)


def _chunks_form(
    lease: Lease, store: Store, found: Found, max_chars: int | None, max_tokens: int | None
) -> tuple[DocumentPart, str]:
    chunks = lease.release.catalog.chunks_of_version(found.version.version_id)
    left = _Allowance(max_chars, None if max_tokens is None else max_tokens // 2)
    rows: list[ChunkPart] = []
    for chunk in chunks:
        opens = left.opens(_ROW_TOKENS + estimate_tokens(chunk.section_path))
        if rows and not (opens and left.holds(chunk.chunk_text)):
            break
        rows.append(chunk_part(chunk, left.take(chunk.chunk_text)))
    total = sum(len(chunk.chunk_text) for chunk in chunks)
    part = _part(found, "chunks", total, left.shown, len(rows) < len(chunks))
    part["chunks"] = rows
    return part, chunks_markdown(part, rows)


def dropped_data(lease: Lease, store: Store, found: Found) -> DroppedData:
    """The text of a document that is in none of the chunks made of it, from what is stored."""
    from rag_platform.documents.kept_text import find_dropped, word_counts
    from rag_platform.documents.versions import load_facts

    profiles, version = lease.release.manifest.profiles, found.version
    facts = load_facts(store, version, profiles["facts"])
    chunks = read_records(store.version_path(version, "chunks", profiles["chunks"]), Chunk)
    items = find_dropped(facts, _read_facts(lease, store, version), chunks)
    rows: list[DroppedText] = []
    for item in items:
        row: DroppedText = {"reason": item.reason, "text": item.text}
        if item.page:
            row["page"] = item.page
        elif item.line:
            row["line"] = item.line
        rows.append(row)
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
        "dropped": rows,
        "words": word_counts(items),
        "text_kept": kept if pages else {},
    }
    data["markdown"] = dropped_markdown(data)
    return data


Form = Callable[[Lease, Store, Found, int | None, int | None], tuple[DocumentPart, str]]
FORMS: dict[str, Form] = {
    "md": _markdown_form,
    "sections": _sections_form,
    "chunks": _chunks_form,
    "outline": _outline_form,
}


def chunk_part(chunk: Chunk, text: str) -> ChunkPart:
    """The public form of a chunk, with as much of its text as given."""
    part: ChunkPart = {
        "chunk_id": chunk.chunk_id,
        "chunk_index": chunk.chunk_index,
        "section_path": chunk.section_path,
        "text": text,
        "asset_ids": list(chunk.asset_ids),
    }
    if chunk.page_start is not None:
        part["page_range"] = [chunk.page_start, chunk.page_end or chunk.page_start]
    if chunk.line_start is not None:
        part["line_range"] = [chunk.line_start, chunk.line_end or chunk.line_start]
    if chunk.locator:
        part["locator"] = chunk.locator
    if chunk.edited_from:
        part["edited_from"] = list(chunk.edited_from)
    return part


def _part(found: Found, form: str, total: int, shown: int, truncated: bool) -> DocumentPart:
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
        "truncated": truncated or shown < total,
    }


class _Allowance:
    """Text is taken until the characters or the tokens are used up; with `max_chars` tokens do not
    count.
    """

    def __init__(self, max_chars: int | None, max_tokens: int | None) -> None:
        bounded = max_chars is None and max_tokens is not None
        self._chars = inf if max_chars is None else max_chars
        self._tokens = (max_tokens or 0) - _FRAME_TOKENS // 2 if bounded else inf
        self.shown = 0

    def opens(self, tokens: int) -> bool:
        """True when another row may begin, whose frame costs `tokens`."""
        self._tokens -= tokens
        return self._tokens > 0 and self._chars > 0

    def holds(self, text: str) -> bool:
        """True when the text would not be cut."""
        return estimate_tokens(text) <= self._tokens and len(text) <= self._chars

    def take(self, text: str) -> str:
        """The beginning of the text that still fits."""
        part = _cut(text, self._chars, self._tokens)
        self.shown += len(part)
        self._chars -= len(part)
        self._tokens -= estimate_tokens(part)
        return part


def _cut(text: str, max_chars: float | None, max_tokens: float | None) -> str:
    """The beginning of the text within `max_chars`, else within `max_tokens`, ended at a line end
    where there is one late enough.
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
