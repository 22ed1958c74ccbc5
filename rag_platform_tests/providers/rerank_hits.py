"""Hits and a question for tests of rerankers."""

from __future__ import annotations

from pathlib import Path

from rag_platform.config.settings import Limits
from rag_platform.ir import Hit, QueryIR
from rag_platform.query.analysis import prepare
from rag_platform_tests.conftest import save_bert


def question(text: str = "What is the upload limit?") -> QueryIR:
    """A question as the engine hands it over."""
    return prepare(text, Limits())


def hits_of(*texts: str) -> list[Hit]:
    """Hits c1, c2, ... with these texts in one section `Limits` of a document `Guide`."""
    return [
        Hit(n, f"c{n}", 1 / n, "hybrid", "d", "v", "s/d.md", "d.md", "Guide", "Limits", n, text)
        for n, text in enumerate(texts, 1)
    ]


def tiny_cross_encoder(folder: Path, labels: int = 1) -> Path:
    """The folder with a tiny BERT that classifies pairs."""
    from transformers import BertForSequenceClassification

    return save_bert(folder, BertForSequenceClassification, "上传限制是多少？", num_labels=labels)
