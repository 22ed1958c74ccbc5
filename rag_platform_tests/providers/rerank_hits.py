"""Hits and a question for tests of rerankers."""

from __future__ import annotations

from pathlib import Path

from rag_platform.config.settings import Limits
from rag_platform.ir import Hit, QueryIR
from rag_platform.query.analysis import prepare


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
    """A BERT of 32 numbers that classifies pairs; letters are its vocabulary, its weights are
    seeded.
    """
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    letters = [*map(chr, range(33, 127)), *"上传限制是多少？"]
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    }
    BertForSequenceClassification(
        BertConfig(vocab_size=len(vocabulary), num_labels=labels, **shape)
    ).save_pretrained(folder)
    return folder
