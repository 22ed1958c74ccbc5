"""What an embedding model gets to read of texts."""

from __future__ import annotations

from collections.abc import Sequence

from rag_platform.errors import ProviderError
from rag_platform.text.encoding import encodable


def clean_texts(texts: Sequence[str], max_chars: int | None = None) -> list[str]:
    """The texts as an engine can take them, at most `max_chars` characters of each. Raises
    ProviderError `blank_text` with the position of one that holds nothing.
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
