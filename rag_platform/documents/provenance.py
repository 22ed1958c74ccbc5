"""Proof that a quote stands in the file: chunk, edits, facts and raw bytes are compared again, each once per version."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_platform.config import Limits
from rag_platform.documents.cleaning import Normalised, apply_edits
from rag_platform.documents.isolation import verify_in_child
from rag_platform.documents.places import block_range
from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Chunk, Edit, Json, ParseSummary, VerifyFailure, Version
from rag_platform.registry import PROVIDERS, build, provider_class
from rag_platform.store import Store, from_json, read_json, read_records, read_text, sha256_file


def verify_version(
    store: Store, version: Version, profiles: Mapping[str, str], chunks: Sequence[Chunk], limits: Limits | None = None
) -> list[VerifyFailure]:
    """The chunks whose text could not be proved to stand in the stored file, each with the first reason; empty when all are proved.

    A chunk edited by hand is no quote: what is proved are the version's own chunks that it was edited from. `profiles` maps stage to
    profile. Reasons start with a code: raw_missing, raw_changed, facts_missing, facts_changed, edits_missing, chunk_text, fact_span,
    block_bytes, chunk_bytes, block_boxes, block_locator, no_block, uncovered, origin_missing, origin_span. Formats without bytes are
    read again by their loader, in a child process under `limits` where parsing them is.
    """

    def failed(pairs: Mapping[str, str]) -> list[VerifyFailure]:
        return [VerifyFailure(x.chunk_id, version.version_id, version.source_uri, pairs[x.chunk_id]) for x in chunks if x.chunk_id in pairs]

    reason, found = _read(store, version, profiles)
    if found is None:
        return failed(dict.fromkeys((chunk.chunk_id for chunk in chunks), reason))
    reasons: dict[str, str] = {}
    edited = [chunk for chunk in chunks if chunk.edited_from]
    origins = _origins(store, version, profiles, edited)
    quotes = [*(chunk for chunk in chunks if not chunk.edited_from), *origins.values()]
    bad_blocks = _bad_blocks(found, version.loader, _touched(found, quotes), limits or Limits())
    for chunk in chunks:
        problem = _edited_problem(found, chunk, origins, bad_blocks) if chunk.edited_from else _problem(found, chunk, bad_blocks)
        if problem:
            reasons.setdefault(chunk.chunk_id, problem)
    return failed(reasons)


def edited_count(chunks: Sequence[Chunk]) -> int:
    """How many of the chunks say something else than their source, because they were edited by hand."""
    return sum(bool(chunk.edited_from) for chunk in chunks)


def locate(store: Store, version: Version, profiles: Mapping[str, str], chunk: Chunk) -> Json:
    """Where a chunk stands in its source, for display: file, hash, loader, pages, lines, bytes, and the place of each block it touches."""
    folder = store.facts_dir(version, profiles["facts"])
    blocks = read_records(folder / "blocks.parquet", Block)
    summary = from_json(ParseSummary, read_json(folder / "summary.json"))
    first, last = block_range(blocks, [block.start for block in blocks], chunk.fact_start, chunk.fact_end)
    return {
        "source_uri": version.source_uri,
        "filename": version.filename,
        "file_sha256": version.file_sha256,
        "loader": f"{summary.loader_name} {summary.loader_version}",
        "encoding": summary.encoding,
        "page_range": _pair(chunk.page_start, chunk.page_end),
        "line_range": _pair(chunk.line_start, chunk.line_end),
        "byte_range": _pair(chunk.byte_start, chunk.byte_end),
        "blocks": [
            {
                "kind": block.kind,
                "page": block.page,
                "bbox": list(block.bbox) if block.bbox else None,
                "line_range": _pair(block.line_start, block.line_end),
                "byte_range": _pair(block.byte_start, block.byte_end),
                "locator": block.locator,
            }
            for block in blocks[first:last]
        ],
    }


def _pair(first: int | None, last: int | None) -> list[int] | None:
    return None if first is None or last is None else [first, last]


@dataclass(frozen=True, slots=True)
class _Stored:
    """Everything the proof reads, read once."""

    raw_path: Path
    raw: bytes | None  # of text formats
    text: str
    blocks: Sequence[Block]
    starts: Sequence[int]
    summary: ParseSummary
    normalised: Normalised


def _read(store: Store, version: Version, profiles: Mapping[str, str]) -> tuple[str, _Stored | None]:
    """(reason, None) when something stored is missing or changed, else ("", what was stored)."""
    raw_path = store.raw_path(version.file_sha256)
    if not raw_path.is_file():
        return "raw_missing: the stored bytes are gone; ingest the file again", None
    folder = store.facts_dir(version, profiles["facts"])
    if not (folder / "summary.json").is_file() or not (folder / "facts.md").is_file() or not (folder / "blocks.parquet").is_file():
        return f"facts_missing: no facts with profile {profiles['facts']}; run the stage `facts`", None
    edits_path = store.version_path(version, "edits", profiles["sections"])
    if not edits_path.is_file():
        return f"edits_missing: no edits with profile {profiles['sections']}; run the stage `sections`", None
    summary = from_json(ParseSummary, read_json(folder / "summary.json"))
    text = read_text(folder / "facts.md")
    if (found := hashlib.sha256(text.encode()).hexdigest()) != summary.md_sha256:
        return f"facts_changed: facts.md has hash {found[:12]}, recorded {summary.md_sha256[:12]}; parse the file again", None
    blocks = read_records(folder / "blocks.parquet", Block)
    raw = raw_path.read_bytes() if any(block.byte_start is not None for block in blocks) else None
    found = hashlib.sha256(raw).hexdigest() if raw is not None else sha256_file(raw_path)
    if found != version.file_sha256:
        return f"raw_changed: the stored bytes have hash {found[:12]}, recorded {version.file_sha256[:12]}; ingest the file again", None
    normalised = apply_edits(text, read_records(edits_path, Edit))
    return "", _Stored(raw_path, raw, text, blocks, [block.start for block in blocks], summary, normalised)


def _touched(found: _Stored, chunks: Sequence[Chunk]) -> list[Block]:
    """The blocks under any of the chunks."""
    numbers: set[int] = set()
    for chunk in chunks:
        numbers.update(range(*block_range(found.blocks, found.starts, chunk.fact_start, chunk.fact_end)))
    return [found.blocks[number] for number in sorted(numbers)]


def _bad_blocks(found: _Stored, loader_name: str, touched: Sequence[Block], limits: Limits) -> dict[int, str]:
    """Block ordinal to the reason why its source does not say what the facts say."""
    bad: dict[int, str] = {}
    for block in touched:
        if block.byte_start is None or block.byte_end is None:
            continue
        if _decoded(found, block.byte_start, block.byte_end) != found.text[block.start : block.end]:
            bad[block.ordinal] = f"block_bytes: bytes {block.byte_start}-{block.byte_end} do not read as the facts of block {block.ordinal}"
    pages = {block.page for block in touched if block.page is not None and block.byte_start is None}
    paged = [block for block in found.blocks if block.page in pages]  # a character may belong to a block beside the touched one
    placed = [block for block in touched if block.page is None and block.byte_start is None]
    name = found.summary.loader_name if found.summary.loader_name in PROVIDERS["loader"] else loader_name
    for code, group in (("block_boxes", paged), ("block_locator", placed)):
        if group:
            bad.update({number: f"{code}: {reason}" for number, reason in _replayed(found, name, group, limits).items()})
    return bad


def _replayed(found: _Stored, loader_name: str, blocks: Sequence[Block], limits: Limits) -> dict[int, str]:
    """What the loader says of blocks that only it can find again: ordinal to reason."""
    cls = provider_class("loader", loader_name)
    if not hasattr(cls, "verify_blocks"):
        return {block.ordinal: f"loader {loader_name!r} cannot read the place of a block again" for block in blocks}
    try:
        if getattr(cls, "ISOLATED", False) or hasattr(cls, "ENGINE"):
            return verify_in_child(found.raw_path, loader_name, {}, found.text, blocks, limits)
        return dict(build("loader", loader_name).verify_blocks(found.raw_path, found.text, blocks))
    except DocumentError as error:
        return {block.ordinal: f"the file cannot be read again ({error.code}: {error.message})" for block in blocks}


def _decoded(found: _Stored, start: int, end: int) -> str | None:
    if found.raw is None:
        return None
    try:
        return found.raw[start:end].decode(found.summary.encoding, "replace" if found.summary.lossy else "strict")
    except UnicodeDecodeError:
        return None


def _uncovered(found: _Stored, start: int, end: int, blocks: Sequence[Block]) -> str:
    """The first text of facts [start, end) that stands in none of the blocks; white space needs none."""
    at = start
    for block in blocks:
        if gap := found.text[at : max(at, block.start)].strip():
            return gap
        at = max(at, block.end)
    return found.text[at:end].strip()


def _origins(store: Store, version: Version, profiles: Mapping[str, str], edited: Sequence[Chunk]) -> dict[str, Chunk]:
    """The version's own chunks that the edited ones came from, by id."""
    wanted = {chunk_id for chunk in edited for chunk_id in chunk.edited_from}
    path = store.version_path(version, "chunks", profiles["chunks"]) if wanted else None
    return {chunk.chunk_id: chunk for chunk in read_records(path, Chunk) if chunk.chunk_id in wanted} if path and path.is_file() else {}


def _edited_problem(found: _Stored, chunk: Chunk, origins: Mapping[str, Chunk], bad_blocks: Mapping[int, str]) -> str:
    """Why the chunks that an edited one came from are not proved, or an empty string."""
    known = [origins[chunk_id] for chunk_id in chunk.edited_from if chunk_id in origins]
    if len(known) < len(chunk.edited_from):
        lost = next(chunk_id for chunk_id in chunk.edited_from if chunk_id not in origins)
        return f"origin_missing: chunk {lost}, which it was edited from, is none of the version's own; run `rag rebuild`"
    for origin in known:
        if reason := _problem(found, origin, bad_blocks):
            return f"{reason} (of {origin.chunk_id}, which it was edited from)"
    start, end = min(origin.norm_start for origin in known), max(origin.norm_end for origin in known)
    if not start <= chunk.norm_start <= chunk.norm_end <= end:
        return f"origin_span: it claims characters {chunk.norm_start}-{chunk.norm_end}, what it was edited from are {start}-{end}"
    return ""


def _problem(found: _Stored, chunk: Chunk, bad_blocks: Mapping[int, str]) -> str:
    """Why the chunk is not proved, or an empty string."""
    if not chunk.chunk_text:  # a picture: its bytes are proved by their own hash
        return ""
    if found.normalised.text[chunk.norm_start : chunk.norm_end] != chunk.chunk_text:
        return f"chunk_text: characters {chunk.norm_start}-{chunk.norm_end} of the normalised text are not the chunk's text"
    if found.normalised.span_to_facts(chunk.norm_start, chunk.norm_end) != (chunk.fact_start, chunk.fact_end):
        return f"fact_span: the edits do not map the chunk to facts {chunk.fact_start}-{chunk.fact_end}"
    first, last = block_range(found.blocks, found.starts, chunk.fact_start, chunk.fact_end)
    if first == last:
        return f"no_block: no block covers facts {chunk.fact_start}-{chunk.fact_end}"
    for block in found.blocks[first:last]:
        if reason := bad_blocks.get(block.ordinal):
            return reason
    if gap := _uncovered(found, chunk.fact_start, chunk.fact_end, found.blocks[first:last]):
        return f"uncovered: no block holds {gap[:60]!r} of facts {chunk.fact_start}-{chunk.fact_end}"
    if found.raw is None:
        return ""
    if chunk.byte_start is None or chunk.byte_end is None:
        return "chunk_bytes: the chunk has no byte range"
    if _decoded(found, chunk.byte_start, chunk.byte_end) != found.text[chunk.fact_start : chunk.fact_end]:
        return f"chunk_bytes: bytes {chunk.byte_start}-{chunk.byte_end} do not read as the chunk's facts"
    return ""
