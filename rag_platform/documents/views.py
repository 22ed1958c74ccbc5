"""Views: the dense and sparse retrieval texts of chunks, including texts of their images, and a
readability score. Citations never show these texts.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from string import Formatter

from rag_platform.config.ingestion import CleaningConfig, QualityConfig, ViewConfig
from rag_platform.config.settings import Strategy, canonical_json
from rag_platform.documents.descriptions import Description
from rag_platform.errors import ConfigError
from rag_platform.ir import Chunk, MediaText, View, format_section
from rag_platform.normalisation.edits import fingerprint_text
from rag_platform.observability import tracing
from rag_platform.protocols import Embedder
from rag_platform.registry import make_provider
from rag_platform.text.keyphrases import keyphrases
from rag_platform.text.language import language
from rag_platform.text.markdown_blocks import cells, table_heads

FIELDS = ("text", "headings", "terms", "keyphrases", "title", "summary", "tags")


def make_views(
    chunks: Sequence[Chunk],
    config: ViewConfig,
    cleaning: CleaningConfig,
    media_texts: Mapping[str, MediaText] | None = None,
    *,
    descriptions: Mapping[str, Description] | None = None,
    embedder: Embedder | None = None,
) -> list[View]:
    """One view per chunk, in order; its texts are empty if there is nothing to index.

    The text of an image chunk is the text read in its images. Other chunks have image texts in the
    field `terms`, together with the header of a table that began in an earlier chunk.
    `content_hash` is the sha256 of the canonical dense text and the key of the embedding cache.
    Raises ConfigError for an unknown template field. The embedder is needed only for keybert
    keyphrases.
    """
    dense, sparse = template_parts(config.dense_template), template_parts(config.sparse_template)
    # parents are not indexed, only their children
    indexed = [chunk for chunk in chunks if chunk.chunk_type != "parent"]
    heads = table_heads(indexed) if any(field == "terms" for _, field in (*dense, *sparse)) else {}
    texts = media_texts or {}
    found: list[View] = []
    for chunk in chunks:
        if chunk.chunk_type == "parent":
            found.append(View(chunk.chunk_id, "", "", fingerprint_text("", cleaning)))
            continue
        image_text = terms_of(chunk, texts)
        text = chunk.chunk_text or image_text
        description = (descriptions or {}).get(chunk.chunk_id, Description())
        lang = chunk.lang if chunk.chunk_text else language(text)
        keys = keyphrases(text, lang, config.keyphrases, embedder)
        terms = " ".join(filter(None, cells(heads.get(chunk.chunk_id, ""))))
        values = {
            "text": text,
            "headings": format_section(chunk.section_path),
            "terms": "\n".join(filter(None, (terms, image_text if chunk.chunk_text else ""))),
            "keyphrases": " ".join(keys),
            "title": description.title,
            "summary": description.summary,
            "tags": " ".join(description.tags),
        }
        dense_text, sparse_text = fill(dense, values), fill(sparse, values)
        if not text and not values["terms"]:
            dense_text = sparse_text = ""
        confidence = None if chunk.chunk_text else _confidence(chunk, texts)
        score = quality_score(text, config.quality, confidence) if text else None
        content_hash = fingerprint_text(dense_text, cleaning)
        found.append(
            View(
                chunk.chunk_id,
                dense_text,
                sparse_text,
                content_hash,
                keys,
                score,
                description.title,
                description.summary,
                description.tags,
            )
        )
    return found


def keyphrase_embedder(strategy: Strategy) -> Embedder | None:
    """The strategy's embedder if its keyphrases need one, else None; cached."""
    if strategy.views.keyphrases.method != "keybert":
        return None
    return _embedder(strategy.embedding.provider, canonical_json(strategy.embedding.options))


@functools.lru_cache(maxsize=1)
def _embedder(provider: str, options: str) -> Embedder:
    found: Embedder = make_provider("embedder", provider, json.loads(options))
    return found


def _confidence(chunk: Chunk, texts: Mapping[str, MediaText]) -> float | None:
    """The mean OCR confidence of a chunk's images, None if none has OCR text."""
    known = [texts[i].ocr_confidence for i in chunk.asset_ids if i in texts and texts[i].ocr_text]
    values = [value for value in known if value is not None]
    return sum(values) / len(values) if values else None


def low_quality(chunks: Sequence[Chunk], found: Sequence[View], config: QualityConfig) -> list[str]:
    """A warning if chunks score below the threshold; a deterministic sample of them is traced."""
    rules = config.observability
    if not rules.enabled:
        return []
    scored = [
        (view.quality_score, chunk)
        for view, chunk in zip(found, chunks, strict=True)
        if view.quality_score is not None
    ]
    low = sorted(
        ((score, chunk) for score, chunk in scored if score < rules.threshold),
        key=lambda item: (item[0], item[1].chunk_index),
    )
    if not low:
        return []
    for score, chunk in low:
        # sampled by fingerprint, so that it is the same chunks every time
        if int(chunk.chunk_fingerprint[:8] or "0", 16) < rules.sample_rate * 0x1_0000_0000:
            payload = {
                "chunk_id": chunk.chunk_id,
                "version_id": chunk.version_id,
                "quality_score": score,
                "text": chunk.chunk_text[:200],
            }
            tracing.event("ingest.low_quality", payload)
    worst, chunk = low[0]
    place = f" (line {chunk.line_start})" if chunk.line_start else ""
    place = f" (page {chunk.page_start})" if chunk.page_start else place
    alert = len(low) > rules.alert_ratio * len(scored)
    many = "; the text may be garbled or badly recognised" if alert else ""
    return [
        f"{len(low)} of {len(scored)} chunks have a quality below {rules.threshold}, the lowest"
        f" {worst} in chunk {chunk.chunk_index}{place}{many}"
    ]


def template_parts(template: str) -> list[tuple[str, str | None]]:
    """(literal, field) pairs of a template. Raises ConfigError naming a field that is not known."""
    try:
        parts = [
            (literal, field) for literal, field, spec, conversion in Formatter().parse(template)
        ]
    except ValueError as error:
        raise ConfigError(f"view template {template!r} is not well formed: {error}") from error
    for _, field in parts:
        if field is not None and field not in FIELDS:
            raise ConfigError(
                f"view template {template!r} names {field!r}; known fields: {', '.join(FIELDS)}"
            )
    return parts


def fill(parts: Iterable[tuple[str, str | None]], values: dict[str, str]) -> str:
    """The filled template, without leading blank lines and trailing white space."""
    text = "".join(
        literal + (values[field] if field is not None else "") for literal, field in parts
    )
    return text.lstrip("\n").rstrip()


_GARBLED_LIMIT = 0.2  # share of unprintable characters at which the garbled score is 0
# letters, digits, and the punctuation of ASCII
_PLAIN = re.compile(r"""[\w!"#$%&'()*+,\-./:;<=>?@[\\\]^`{|}~]+""")


def quality_score(text: str, config: QualityConfig, ocr_confidence: float | None = None) -> float:
    """The weighted mean, rounded to 4 places, of up to four scores between 0 (bad) and 1 (good):

    garbled   1 - u / 0.2, at least 0; u is the share of control, private, unassigned and
              replacement characters among all
    valid     the share of letters, marks, digits and punctuation among the non-space characters
    length    0 below `min_len` characters, 1 from `sat_len` on, (length - min_len) / (sat_len -
              min_len) between
    ocr       the mean OCR confidence, if there is one; the weights are divided by the sum of those
              used

    A blank text has 0.
    """
    stripped = text.strip()
    if not stripped:
        return 0.0
    figures = {
        "garbled": _score_garbled(stripped),
        "valid": _score_valid(stripped),
        "length": _score_length(len(stripped), config),
    }
    if ocr_confidence is not None:
        figures["ocr"] = min(1.0, max(0.0, ocr_confidence))
    weighted = [(getattr(config.weights, name), figure) for name, figure in figures.items()]
    total = sum(weight for weight, _ in weighted)
    return round(sum(weight * figure for weight, figure in weighted) / total, 4) if total else 0.0


def _score_garbled(text: str) -> float:
    if " ".join(text.split()).isprintable() and "\ufffd" not in text:
        return 1.0
    unreadable = sum(
        char == "\ufffd" or (not char.isprintable() and not char.isspace() and not _is_format(char))
        for char in text
    )
    return max(0.0, 1.0 - unreadable / len(text) / _GARBLED_LIMIT)


def _is_format(char: str) -> bool:
    """True for joiners, soft hyphens and direction marks, which occur in well-formed text."""
    return unicodedata.category(char) == "Cf"


def _score_valid(text: str) -> float:
    inked = "".join(text.split())
    # mostly a handful of characters, which are looked up one by one
    rest = _PLAIN.sub("", inked)
    good = len(inked) - len(rest) + sum(unicodedata.category(char)[0] in "PM" for char in rest)
    return good / len(inked)


def _score_length(length: int, config: QualityConfig) -> float:
    if length < config.min_len:
        return 0.0
    if length >= config.sat_len:
        return 1.0
    return (length - config.min_len) / (config.sat_len - config.min_len)


def terms_of(chunk: Chunk, texts: Mapping[str, MediaText]) -> str:
    """The texts of the chunk's images, captions first; empty when none has one.

    Each has a marker `[image_caption asset_id=...]` or `[image_ocr asset_id=...]` before it, except
    the OCR text of an image chunk, which also comes first.
    """
    found = [texts[asset_id] for asset_id in chunk.asset_ids if asset_id in texts]
    captions = [
        f"[image_caption asset_id={text.asset_id}] {text.caption}" for text in found if text.caption
    ]
    if chunk.chunk_text:
        read = [
            f"[image_ocr asset_id={text.asset_id}] {text.ocr_text}"
            for text in found
            if text.ocr_text
        ]
    else:
        read = [text.ocr_text for text in found if text.ocr_text]
    return "\n".join([*captions, *read] if chunk.chunk_text else [*read, *captions])
