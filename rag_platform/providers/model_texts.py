"""The texts that models get for embedding and for reranking."""

from __future__ import annotations

from collections.abc import Sequence

from rag_platform.errors import ProviderError
from rag_platform.ir import Hit
from rag_platform.text.encoding import encodable


def clean_texts(texts: Sequence[str], max_chars: int | None = None) -> list[str]:
    """The texts in encodable characters, each cut to `max_chars`. Raises ProviderError `blank_text`
    with the position of a blank one.
    """
    cleaned = [encodable(text)[:max_chars] for text in texts]
    for position, text in enumerate(cleaned):
        if not text.strip():
            raise ProviderError(
                f"text {position} of {len(texts)} holds nothing to embed",
                code="blank_text",
                position=position,
            )
    return cleaned


def passage(hit: Hit, max_chars: int) -> str:
    """Title and headings on one line, then the chunk's text, or what was read in its picture; at
    most `max_chars` characters, never blank.

    A heading that the text begins with is not repeated.
    """
    body = (hit.chunk_text or hit.picture_text).strip()
    opening = body[:300].lower()
    head = " > ".join(
        part
        for part in dict.fromkeys((hit.doc_title.strip(), hit.section_path.strip()))
        if part and part.lower() not in opening
    )
    return f"{head}\n{body}".strip()[:max_chars] or hit.filename or hit.chunk_id
