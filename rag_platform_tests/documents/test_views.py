from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from rag_platform.config.ingestion import (
    CleaningConfig,
    QualityConfig,
    QualityObservability,
    ViewConfig,
)
from rag_platform.documents.descriptions import Description
from rag_platform.documents.views import low_quality, make_views
from rag_platform.errors import ConfigError
from rag_platform.ir import Chunk, MediaText

CLEANING = CleaningConfig()


def chunk(text: str, path: str = "A / B") -> Chunk:
    return Chunk("c", "s", "d", "v", 0, text, "", 0, len(text), 0, len(text), path)


def test_texts_are_the_chunk_text_by_default() -> None:
    (view,) = make_views([chunk("text {text} ％")], ViewConfig(), CLEANING)
    assert (view.chunk_id, view.dense_text, view.sparse_text) == (
        "c",
        "text {text} ％",
        "text {text} ％",
    )
    assert view.content_hash == hashlib.sha256(b"text {text} %").hexdigest()


def test_templates_place_headings_and_terms() -> None:
    config = ViewConfig(
        dense_template="{headings}\n{text}", sparse_template="{text}\n{terms}\n{headings}"
    )
    chunks = [chunk("x"), chunk("y", "__preamble__"), chunk("z", "__init__ / Use")]
    first, second, third = make_views(chunks, config, CLEANING)
    assert (first.dense_text, first.sparse_text) == ("A / B\nx", "x\n\nA / B")
    assert (second.dense_text, second.sparse_text) == ("y", "y")
    assert third.dense_text == "__init__ / Use\nz"


def test_a_chunk_without_text_has_an_empty_view() -> None:
    (empty,) = make_views([chunk("")], ViewConfig(sparse_template="{headings}\n{text}"), CLEANING)
    assert (empty.dense_text, empty.sparse_text) == ("", "")


@pytest.mark.parametrize("template", ["{unknown}", "{text.__class__}", "{text", "{0}"])
def test_unknown_fields_are_refused(template: str) -> None:
    with pytest.raises(ConfigError):
        make_views([], ViewConfig(dense_template=template), CLEANING)


def test_what_was_found_out_stands_in_the_view_and_in_templates_that_ask_for_it() -> None:
    config = ViewConfig(sparse_template="{title}\n{text}\n{keyphrases} {summary} {tags}")
    said = {"c": Description("Ports", "Where they listen.", ("network", "ports"))}
    (view,) = make_views(
        [chunk("The server port is open. The server port is 80.")],
        config,
        CLEANING,
        descriptions=said,
    )
    assert view.dense_text == "The server port is open. The server port is 80."
    assert (
        view.sparse_text
        == "Ports\nThe server port is open. The server port is 80.\nserver port open Where they"
        " listen. network ports"
    )
    assert (view.keyphrases, view.title, view.summary, view.tags) == (
        ("server port", "open"),
        "Ports",
        *_rest(said["c"]),
    )
    assert view.quality_score == pytest.approx((0.4 + 0.2 + 0.2 * (47 - 20) / 180) / 0.8, abs=1e-4)


def _rest(said: Description) -> tuple[str, tuple[str, ...]]:
    return said.summary, said.tags


def test_a_picture_is_read_as_its_texts_and_other_chunks_have_them_among_their_terms() -> None:
    texts = {"a": MediaText("a", "scanned invoice words", 0.5, "a stamp"), "b": MediaText("b")}
    alone = replace(chunk(""), asset_ids=("a", "b"), media_type="image")
    beside = replace(chunk("see the picture"), asset_ids=("a",))
    page, other = make_views([alone, beside], ViewConfig(), CLEANING, texts)
    assert (
        page.dense_text
        == page.sparse_text
        == "scanned invoice words\n[image_caption asset_id=a] a stamp"
    )
    assert "invoice" in " ".join(page.keyphrases) and "asset_id" not in " ".join(page.keyphrases)
    assert page.quality_score == pytest.approx(
        0.4 + 0.2 + 0.2 * (len(page.dense_text) - 20) / 180 + 0.2 * 0.5, abs=1e-4
    )
    assert other.dense_text == "see the picture"
    assert other.sparse_text.startswith("see the picture\n[image_caption asset_id=a] a stamp")
    (silent,) = make_views([alone], ViewConfig(), CLEANING)
    assert (silent.dense_text, silent.sparse_text, silent.keyphrases, silent.quality_score) == (
        "",
        "",
        (),
        None,
    )


def test_low_quality_is_counted_and_the_worst_named() -> None:
    rows = [
        replace(chunk(text), chunk_index=i, line_start=i + 1)
        for i, text in enumerate(["good words " * 30, "\ufffd" * 50, "\ue000" * 300])
    ]
    found = make_views(rows, ViewConfig(), CLEANING)
    config = QualityConfig()
    assert [view.quality_score for view in found] == [1.0, 0.0417, 0.25]
    assert low_quality(rows, found, config) == [
        "2 of 3 chunks have a quality below 0.6, the lowest 0.0417 in chunk 1 (line 2); the text"
        " may be garbled or badly recognised"
    ]
    assert low_quality(rows[:1], found[:1], config) == []
    assert (
        low_quality(rows, found, QualityConfig(observability=QualityObservability(enabled=False)))
        == []
    )


def test_a_table_that_goes_on_lends_its_head_to_the_sparse_text() -> None:
    texts = [
        "intro\n\n| Name | Port |\n|---|---|\n| a | 1 |",
        "| b | 2 |\n| c | 3 |",
        "| d | 4 |\n\nafter",
        "| no table |",
    ]
    chunks = [replace(chunk(text), chunk_id=f"c{i}", chunk_index=i) for i, text in enumerate(texts)]
    found = make_views(chunks, ViewConfig(), CLEANING)
    assert [view.dense_text for view in found] == texts
    assert [view.sparse_text for view in found] == [
        texts[0],
        texts[1] + "\nName Port",
        texts[2] + "\nName Port",
        texts[3],
    ]
