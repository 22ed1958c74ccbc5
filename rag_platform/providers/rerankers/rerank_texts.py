"""What a reranking model gets to read of a hit."""

from __future__ import annotations

from rag_platform.ir import Hit


def passage(hit: Hit, max_chars: int) -> str:
    """Title and headings on one line, then the chunk's text, or what was read in its picture; at
    most `max_chars` characters, never blank.

    A heading that the text begins with anyway is not said twice.
    """
    body = (hit.chunk_text or hit.picture_text).strip()
    opening = body[:300].lower()
    head = " > ".join(
        part
        for part in dict.fromkeys((hit.doc_title.strip(), hit.section_path.strip()))
        if part and part.lower() not in opening
    )
    return f"{head}\n{body}".strip()[:max_chars] or hit.filename or hit.chunk_id
