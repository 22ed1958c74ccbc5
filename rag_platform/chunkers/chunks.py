"""Cuts sections into chunks: spans of the normalised text with their locations in the source."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rag_platform import registry
from rag_platform.chunkers.sizes import Span
from rag_platform.chunkers.source_locations import Places, attach_images, media_chunks
from rag_platform.config.chunk_token_limits import (
    chunk_tokens,
    chunking_embedder,
    embedder_window,
    tokens_seen,
)
from rag_platform.config.settings import Strategy
from rag_platform.ir import Chunk, Facts, MediaLink, Section, Version
from rag_platform.normalisation.edits import Normalised, fingerprint_text
from rag_platform.protocols import Chunker
from rag_platform.sectioners.sections import (
    extend_path,
    find_path_marks,
    hashed_id,
    join_sections,
    section_fields,
)
from rag_platform.text.language import language
from rag_platform.text.tokens import estimate_tokens
from rag_platform.text.wording import pluralise

TOO_SHORT = 20


def chunker_of(strategy: Strategy) -> Chunker:
    """The chunker of a strategy, with the strategy's embedder if it has that option. Its chunks fit
    the embedder's window, except fences and table rows.
    """
    provider, options = strategy.chunker.provider, dict(strategy.chunker.options)
    name, embedder_options = chunking_embedder(strategy)
    if registry.takes("chunker", provider, "embedder"):
        options |= {"embedder": name, "embedder_options": embedder_options}
    if (max_tokens := chunk_tokens(strategy)) is not None:
        options["max_tokens"] = max_tokens
    chunker: Chunker = registry.make_provider("chunker", provider, options)
    return chunker


# --- chunks -------------------------------------------------------------------------------------


def beyond_window(chunks: Sequence[Chunk], strategy: Strategy) -> tuple[int, tuple[str, ...]]:
    """(the number of chunks longer than the embedder's window, warnings): fences and table rows
    kept whole.

    They are not cut, because the word index reads all of them, and some embedders average over
    several windows.
    """
    lengths = [chunk.token_count for chunk in chunks if chunk.chunk_type != "parent"]
    longest = max(lengths, default=0)
    if (
        not strategy.builds_dense
        or longest == 0
        or longest <= (window := embedder_window(strategy))
    ):
        return 0, ()
    count = sum(length > window for length in lengths)
    seen = tokens_seen(strategy)
    if seen is None or not (truncated := sum(length > seen for length in lengths)):
        return count, ()
    warning = (
        f"{pluralise(truncated, 'chunk')} longer than the embedder's {seen} tokens: of code and"
        " table rows kept whole, vectors see only a part"
    )
    return count, (warning,)


def cut(
    version: Version,
    facts: Facts,
    normalised: Normalised,
    sections: Sequence[Section],
    chunker: Chunker,
    strategy: Strategy,
    links: Sequence[MediaLink],
) -> list[Chunk]:
    """The chunks of a version in order, with locations and images; chunks for pages without text
    are last. The path of a chunk names all headings above its start, and the function or class
    whose description it continues.

    A chunker with `families` yields parents before their children; only the children are indexed.
    """
    places = Places(facts, normalised)
    identify = _make_identifier(strategy)
    chunks: list[Chunk] = []
    marks = find_path_marks(facts, normalised)

    def add(section: Section, span: Span, chunk_type: str = "child", parent_id: str = "") -> str:
        norm = section.norm_start + span[0], section.norm_start + span[1]
        fingerprint, chunk_id = identify(
            section.section_id, normalised.text[norm[0] : norm[1]], chunk_type
        )
        chunks.append(
            Chunk(
                chunk_id=chunk_id,
                chunk_index=len(chunks),
                chunk_fingerprint=fingerprint,
                chunk_type=chunk_type,
                parent_id=parent_id,
                **section_fields(section, version)
                | {"section_path": extend_path(section, marks, norm[0])},
                **slice_fields(normalised, places, *norm),
            )
        )
        return chunk_id

    joined = join_sections(sections)
    for section in joined:
        body = normalised.text[section.norm_start : section.norm_end]
        for parent, children in _families(chunker, body):
            parent_id = add(section, parent, "parent") if parent is not None else ""
            for span in children:
                add(section, span, parent_id=parent_id)
    textless = set(facts.summary.pages_without_text)
    chunks = _with_images(chunks, [link for link in links if link.page not in textless], facts)
    return [*chunks, *media_chunks(version, facts, chunks, joined, links)]


def slice_fields(normalised: Normalised, places: Places, start: int, end: int) -> dict[str, Any]:
    """The text and location fields of a chunk of normalised text[start:end]."""
    fact = normalised.span_to_facts(start, end)
    span = {"norm_start": start, "norm_end": end, "fact_start": fact[0], "fact_end": fact[1]}
    return {**text_fields(normalised.text[start:end]), **span, **places.of(*fact, start)}


def text_fields(text: str) -> dict[str, Any]:
    """The fields of a chunk that depend only on its text."""
    return {
        "chunk_text": text,
        "token_count": estimate_tokens(text),
        "text_len": len(text),
        "too_short": len(text) < TOO_SHORT,
        "lang": language(text),
    }


def _families(chunker: Chunker, text: str) -> list[tuple[Span | None, list[Span]]]:
    """(parent, children) in order; a chunker without parents gives one family without a parent."""
    families: Callable[[str], list[tuple[Span | None, list[Span]]]] | None = getattr(
        chunker, "families", None
    )
    return families(text) if families is not None else [(None, chunker.spans(text))]


def _with_images(chunks: Sequence[Chunk], links: Sequence[MediaLink], facts: Facts) -> list[Chunk]:
    """The chunks with their images; a parent has the images of its children."""
    children = attach_images(
        [chunk for chunk in chunks if chunk.chunk_type != "parent"], links, facts.blocks
    )
    by_parent: dict[str, list[str]] = {}
    for child in children:
        by_parent.setdefault(child.parent_id, []).extend(child.asset_ids)
    by_id = {child.chunk_id: child for child in children}
    return [
        by_id.get(chunk.chunk_id)
        or replace(chunk, asset_ids=tuple(dict.fromkeys(by_parent.get(chunk.chunk_id, ()))))
        for chunk in chunks
    ]


def chunk_hash(chunks: Sequence[Chunk]) -> str:
    """sha256 over the ids in order. A change with an equal section_hash is length drift."""
    return hashlib.sha256("\n".join(chunk.chunk_id for chunk in chunks).encode()).hexdigest()


def _make_identifier(strategy: Strategy) -> Callable[[str, str, str], tuple[str, str]]:
    """A function from (section_id, text, chunk type) to (fingerprint, chunk_id). The type is part
    of the id, because a parent may have the same text as a child.
    """
    seen: Counter[tuple[str, str, str]] = Counter()

    def identify(section_id: str, text: str, chunk_type: str) -> tuple[str, str]:
        fingerprint = fingerprint_text(text, strategy.cleaning)
        key = section_id, fingerprint, chunk_type
        seen[key] += 1
        return fingerprint, chunk_name(section_id, fingerprint, seen[key] - 1, chunk_type)

    return identify


def chunk_name(section_id: str, fingerprint: str, nth: int, chunk_type: str) -> str:
    """The chunk_id of the nth chunk in a section with this fingerprint."""
    kind = ["parent"] if chunk_type == "parent" else []
    return hashed_id("chk", section_id, fingerprint, str(nth), *kind)
