"""Retrieval texts: what the embedder and the word index read of a chunk; citations never show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import ClassVar

from rag_platform.config import CleaningConfig, ViewConfig
from rag_platform.documents.boundaries import DELIMITER
from rag_platform.documents.cleaning import fingerprint_text
from rag_platform.errors import ConfigError
from rag_platform.ir import Chunk, MediaText, View
from rag_platform.protocols import Enricher

FIELDS = ("text", "headings", "terms")


@dataclass(frozen=True)
class NoEnrichment:
    """Adds nothing."""

    NAME: ClassVar[str] = "none"
    VERSION: ClassVar[str] = "1"

    def terms(self, chunk: Chunk) -> list[str]:
        """No words."""
        return []


def views(
    chunks: Sequence[Chunk],
    config: ViewConfig,
    cleaning: CleaningConfig,
    enricher: Enricher,
    media_texts: Mapping[str, MediaText] | None = None,
) -> list[View]:
    """One view per chunk, in order; a chunk without text and terms has empty texts and is not to be indexed.

    A chunk that goes on with a table gets the table's head among its terms, so that its rows are found by their columns.
    `content_hash` is the sha256 of the canonical dense text: the embedding cache key. Raises ConfigError for an unknown template field.
    """
    dense, sparse = template_parts(config.dense_template), template_parts(config.sparse_template)
    needs_terms = any(field == "terms" for _, field in (*dense, *sparse))
    found: list[View] = []
    heads = table_heads(chunks) if needs_terms else {}
    for chunk in chunks:
        values = {
            "text": chunk.chunk_text,
            "headings": "" if chunk.section_path.startswith("__") else chunk.section_path,
            "terms": " ".join([*enricher.terms(chunk), *heads.get(chunk.chunk_id, ())]) if needs_terms else "",
        }
        dense_text, sparse_text = filled(dense, values), filled(sparse, values)
        if not chunk.chunk_text and not values["terms"]:
            dense_text = sparse_text = ""
        found.append(View(chunk.chunk_id, dense_text, sparse_text, fingerprint_text(dense_text, cleaning)))
    return found


def table_heads(chunks: Sequence[Chunk]) -> dict[str, tuple[str, ...]]:
    """The head row of the table, by chunk_id, for every chunk that starts inside one begun in a chunk before it."""
    found: dict[str, tuple[str, ...]] = {}
    head: tuple[str, ...] = ()
    section_id = ""
    for chunk in chunks:
        lines = chunk.chunk_text.split("\n")
        rule = next((i for i, line in enumerate(lines[:2]) if DELIMITER.fullmatch(line)), None)
        goes_on = bool(head) and chunk.section_id == section_id and "|" in lines[0] and rule is None
        if goes_on:
            found[chunk.chunk_id] = head
        head, section_id = _open_head(lines, head if goes_on else ()), chunk.section_id
    return found


def _open_head(lines: Sequence[str], before: tuple[str, ...]) -> tuple[str, ...]:
    """The cells of the head of the table in which the lines end; that of the table before them when they hold nothing but rows."""
    for index in range(len(lines) - 1, -1, -1):
        if "|" not in lines[index]:
            return ()
        if index and DELIMITER.fullmatch(lines[index]):
            return tuple(cell.strip() for cell in lines[index - 1].strip().strip("|").split("|") if cell.strip())
    return before


def template_parts(template: str) -> list[tuple[str, str | None]]:
    """(literal, field) pairs of a template. Raises ConfigError naming a field that is not known."""
    try:
        parts = [(literal, field) for literal, field, spec, conversion in Formatter().parse(template)]
    except ValueError as error:
        raise ConfigError(f"view template {template!r} is not well formed: {error}") from error
    for _, field in parts:
        if field is not None and field not in FIELDS:
            raise ConfigError(f"view template {template!r} names {field!r}; known fields: {', '.join(FIELDS)}")
    return parts


def filled(parts: Iterable[tuple[str, str | None]], values: dict[str, str]) -> str:
    """The template with its fields, trimmed at the end, without the blank lines that empty fields leave at its start."""
    text = "".join(literal + (values[field] if field is not None else "") for literal, field in parts)
    return re.sub(r"^\n+|\s+$", "", text)
