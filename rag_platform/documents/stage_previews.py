"""Previews of a stage's output for one document: its first lines and rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rag_platform.config.settings import Limits
from rag_platform.documents.outputs import Outputs
from rag_platform.intake.isolation import extract_images
from rag_platform.ir import Json, format_section
from rag_platform.media.store import PDF_ENGINES, page_target

TEXT_CHARS = 1200
ROWS = 8
CELL_CHARS = 160
PICTURES = 3
PAGE_DPI = 40  # a page of paper is 330 pixels wide
PAGE_PIXELS = 200_000


def preview_stage(stage: str, work: Outputs, limits: Limits, *, fresh: bool) -> Json:
    """The `row_count` of a stage's output and its beginning: `text`, `rows`, asset_ids under
    `pictures`, and for a PDF that was read just now its first page as PNG under `page`.
    """
    make = _PREVIEWS.get(stage)
    found = make(work) if make else {}
    if stage == "facts" and fresh and (page := _first_page(work, limits)):
        found["page"] = page
    return found


def _facts(work: Outputs) -> Json:
    return {"row_count": len(work.facts.blocks), "text": _cut(work.facts.text, TEXT_CHARS)}


def _first_page(work: Outputs, limits: Limits) -> bytes:
    """The first page of a PDF as a small PNG; empty if it cannot be rendered."""
    engine = PDF_ENGINES.get(work.facts.summary.loader_name)
    if engine is None:
        return b""
    target = f"{page_target(1)};dpi={PAGE_DPI};pixels={PAGE_PIXELS}"
    raw_path = work.store.raw_path(work.version.file_sha256)
    with work.store.scratch() as scratch:
        found = extract_images(raw_path, [target], scratch, limits, engine=engine)
        drawn = found[target]
        return drawn.read_bytes() if isinstance(drawn, Path) else b""


def _media(work: Outputs) -> Json:
    links = work.links
    rows = [
        {
            "image": _cut(link.origin_ref),
            "type": link.mime,
            "width": link.width,
            "height": link.height,
            "bytes": link.size,
            "page": link.page or "",
            "missing": link.reason,
        }
        for link in links[:ROWS]
    ]
    pictures = list(dict.fromkeys(link.asset_id for link in links if link.asset_id))[:PICTURES]
    return {**_table(links, rows), "pictures": pictures}


def _sections(work: Outputs) -> Json:
    rows = [
        {
            "section": _cut(format_section(section.section_path)),
            "level": section.heading_level,
            "characters": section.norm_end - section.norm_start,
        }
        for section in work.sections[:ROWS]
    ]
    return _table(work.sections, rows)


def _chunks(work: Outputs) -> Json:
    rows = [
        {
            "chunk": chunk.chunk_index,
            "section": _cut(format_section(chunk.section_path)),
            "page": chunk.page_start or "",
            "line": chunk.line_start or "",
            "tokens": chunk.token_count,
            "text": _cut(chunk.chunk_text),
        }
        for chunk in work.chunks[:ROWS]
    ]
    return _table(work.chunks, rows)


def _views(work: Outputs) -> Json:
    rows = [
        {"keyphrases": _cut(", ".join(view.keyphrases)), "dense_text": _cut(view.dense_text)}
        for view in work.views[:ROWS]
    ]
    return _table(work.views, rows)


def _table(records: Sequence[Any], rows: list[Json]) -> Json:
    return {"row_count": len(records), "rows": rows}


def _cut(text: str, chars: int = CELL_CHARS) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


_PREVIEWS: dict[str, Callable[[Outputs], Json]] = {
    "facts": _facts,
    "media": _media,
    "sections": _sections,
    "chunks": _chunks,
    "views": _views,
}
