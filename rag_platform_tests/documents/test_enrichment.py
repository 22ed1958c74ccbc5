from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from rag_platform.config import CleaningConfig, ViewConfig
from rag_platform.documents.enrichment import NoEnrichment, views
from rag_platform.errors import ConfigError
from rag_platform.ir import Chunk

CLEANING = CleaningConfig()


def chunk(text: str, path: str = "A / B") -> Chunk:
    return Chunk("c", "s", "d", "v", 0, text, "", 0, len(text), 0, len(text), path)


class Words:
    def terms(self, chunk: Chunk) -> list[str]:
        return ["extra", "words"]


def test_texts_are_the_chunk_text_by_default() -> None:
    (view,) = views([chunk("text {text} ％")], ViewConfig(), CLEANING, NoEnrichment())
    assert (view.chunk_id, view.dense_text, view.sparse_text) == ("c", "text {text} ％", "text {text} ％")
    assert view.content_hash == hashlib.sha256(b"text {text} %").hexdigest()


def test_templates_place_headings_and_terms() -> None:
    config = ViewConfig(dense_template="{headings}\n{text}", sparse_template="{text}\n{terms}\n{headings}")
    first, second = views([chunk("x"), chunk("y", "__preamble__")], config, CLEANING, Words())
    assert (first.dense_text, first.sparse_text) == ("A / B\nx", "x\nextra words\nA / B")
    assert (second.dense_text, second.sparse_text) == ("y", "y\nextra words")


def test_a_chunk_without_text_has_an_empty_view_until_there_are_terms() -> None:
    (empty,) = views([chunk("")], ViewConfig(sparse_template="{headings}\n{text}"), CLEANING, NoEnrichment())
    assert (empty.dense_text, empty.sparse_text) == ("", "")
    (named,) = views([chunk("")], ViewConfig(), CLEANING, Words())
    assert named.sparse_text == "extra words"


@pytest.mark.parametrize("template", ["{unknown}", "{text.__class__}", "{text", "{0}"])
def test_unknown_fields_are_refused(template: str) -> None:
    with pytest.raises(ConfigError):
        views([], ViewConfig(dense_template=template), CLEANING, NoEnrichment())


def test_a_table_that_goes_on_lends_its_head_to_the_sparse_text() -> None:
    texts = ["intro\n\n| Name | Port |\n|---|---|\n| a | 1 |", "| b | 2 |\n| c | 3 |", "| d | 4 |\n\nafter", "| no table |"]
    chunks = [replace(chunk(text), chunk_id=f"c{i}", chunk_index=i) for i, text in enumerate(texts)]
    found = views(chunks, ViewConfig(), CLEANING, NoEnrichment())
    assert [view.dense_text for view in found] == texts
    assert [view.sparse_text for view in found] == [texts[0], texts[1] + "\nName Port", texts[2] + "\nName Port", texts[3]]
