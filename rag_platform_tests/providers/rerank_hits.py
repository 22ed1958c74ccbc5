"""Hits and a question for tests of rerankers."""

from __future__ import annotations

from rag_platform.config import Limits
from rag_platform.ir import Hit, QueryIR
from rag_platform.retrieval.queries import prepare


def question(text: str = "What is the upload limit?") -> QueryIR:
    """A question as the engine hands it over."""
    return prepare(text, Limits())


def hits_of(*texts: str) -> list[Hit]:
    """Hits c1, c2, ... with these texts in one section `Limits` of a document `Guide`."""
    return [Hit(n, f"c{n}", 1 / n, "hybrid", "d", "v", "s/d.md", "d.md", "Guide", "Limits", n, text) for n, text in enumerate(texts, 1)]
