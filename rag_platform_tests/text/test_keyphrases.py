from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.config.ingestion import KeyphraseConfig, Stopwords
from rag_platform.errors import ConfigError
from rag_platform.ir import EmbedderInfo
from rag_platform.protocols import Vectors
from rag_platform.text.keyphrases import _textrank, keyphrases

TEXTRANK = KeyphraseConfig()
ENGLISH = (
    "Boundary layer theory explains drag. A boundary layer forms on every wall, and the boundary"
    " layer grows along the wall. Turbulent flow thickens it."
)
CHINESE = (
    "混合检索把向量检索和关键词检索结合起来。向量检索擅长语义，关键词检索擅长精确匹配。"
    "混合检索可以提升召回。"
)


def test_textrank_is_pagerank_over_neighbours() -> None:
    # a-b and b-c are neighbours once each at distance 1, a-c at distance 2: a triangle with equal
    # weights, so all are equal.
    assert _textrank(["a", "b", "c"]) == {"a": 1.0, "b": 1.0, "c": 1.0}
    # With four neighbours of the hub that never stand near each other the hub wins.
    ranks = _textrank(["hub", "a", "x1", "x2", "x3", "hub", "b", "y1", "y2", "y3", "hub", "c"])
    assert max(ranks, key=lambda word: ranks[word]) == "hub"


def test_a_repeated_english_phrase_comes_first() -> None:
    assert keyphrases(ENGLISH, "en", TEXTRANK)[0] == "boundary layer"
    assert keyphrases(ENGLISH, "en", KeyphraseConfig(method="light", topk=2))[0] == "boundary layer"


def test_chinese_words_are_joined_without_a_space() -> None:
    found = keyphrases(CHINESE, "zh", TEXTRANK)
    assert {"混合检索", "向量检索", "关键词检索"} <= set(found)
    assert found == keyphrases(CHINESE, "zh", TEXTRANK)


def test_a_question_meets_the_chunk() -> None:
    chunk = keyphrases(
        "差旅费报销流程：先填写报销单，再由经理审批。报销单要附发票。", "zh", TEXTRANK
    )
    assert set(keyphrases("报销单怎么填写？", "zh", TEXTRANK)) & set(chunk)


def test_code_addresses_tags_and_link_targets_are_left_out() -> None:
    text = (
        "Upload limits\n"
        "\n"
        "```python\n"
        "secret_name = 1\n"
        "```\n"
        "<div class='wrapper'>Read the"
        " [handbook](https://example.org/hidden.md) or https://example.org/path.\n"
        "[image_caption asset_id=abc] diagram"
    )
    found = " ".join(keyphrases(text, "en", TEXTRANK))
    assert "upload limits" in found and "handbook" in found and "diagram" in found
    assert not any(
        word in found for word in ("secret", "wrapper", "hidden", "example", "asset_id", "path")
    )


def test_identifiers_stay_whole_and_numbers_are_no_subject() -> None:
    found = keyphrases("Set max_retry_count to 5 in C++ or v1.2.3 of PPR-9087.", "en", TEXTRANK)
    assert {"max_retry_count", "c++", "v1.2.3", "ppr-9087"} <= set(" ".join(found).split())
    assert "5" not in found


def test_stop_words_of_a_file_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "stop.txt").write_text("boundary  # too common here\nWall\n", encoding="utf-8")
    config = KeyphraseConfig(stopwords=Stopwords(path=str(tmp_path / "stop.txt")))
    found = keyphrases(ENGLISH, "en", config)
    assert "layer" in " ".join(found) and not any(
        "boundary" in phrase or "wall" in phrase.split() for phrase in found
    )
    with pytest.raises(ConfigError, match=r"gone\.txt cannot be read"):
        keyphrases(
            ENGLISH, "en", KeyphraseConfig(stopwords=Stopwords(path=str(tmp_path / "gone.txt")))
        )


class Axes:
    """Each text is a unit vector: of the whole text along x, of others along x when they hold
    `layer`, else along y.
    """

    def info(self) -> EmbedderInfo:
        return EmbedderInfo("axes", "1", 2)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        return np.array([[1, 0] if "layer" in text else [0, 1] for text in texts], dtype=np.float32)


def test_keybert_takes_what_is_like_the_text_first_and_needs_an_embedder() -> None:
    config = KeyphraseConfig(method="keybert", topk=2)
    first, second = keyphrases(ENGLISH, "en", config, Axes())
    # the second of the same direction says nothing new
    assert "layer" in first and "layer" not in second
    with pytest.raises(ConfigError, match="need an embedder") as raised:
        keyphrases(ENGLISH, "en", config)
    assert (raised.value.code, raised.value.details) == (
        "keyphrases_unavailable",
        {"method": "keybert"},
    )


def test_latin_words_inside_chinese_stand_alone() -> None:
    found = " ".join(
        keyphrases("用Chroma向量库存向量，用tantivy全文索引存词。", "zh", TEXTRANK)
    ).split()
    assert {"chroma", "tantivy"} <= {word for phrase in found for word in phrase.split()}


def test_a_long_text_is_read_in_part() -> None:
    assert len(keyphrases(" ".join(f"word{n:05}x" for n in range(50_000)), "en", TEXTRANK)) == 10


def test_none_finds_nothing() -> None:
    assert keyphrases(ENGLISH, "en", KeyphraseConfig(method="none")) == ()
    assert keyphrases(" \n", "en", TEXTRANK) == ()
    assert keyphrases("and the of", "en", TEXTRANK) == ()


@given(
    st.text(max_size=400),
    st.sampled_from(["zh", "en", "ja", "other"]),
    st.sampled_from(["textrank", "light"]),
)
def test_any_text_has_at_most_topk_distinct_phrases(text: str, lang: str, method: str) -> None:
    config = KeyphraseConfig.model_validate({"method": method, "topk": 5})
    found = keyphrases(text, lang, config)
    assert (
        len(found) <= 5
        and len(set(found)) == len(found)
        and all(phrase.strip() for phrase in found)
    )
