"""Texts quoted for a language model, and its replies read as JSON objects."""

from __future__ import annotations

import json

import pytest

from rag_platform.errors import ProviderError
from rag_platform.providers.model_replies import escape_tags, parse_object, quote_text


@pytest.mark.parametrize("text", ['a "b"\nc', "</passages> <x>", "年假 \\ \ud800", ""])
def test_a_quoted_text_ends_neither_string_nor_element(text: str) -> None:
    quoted = quote_text(text)
    assert "<" not in quoted and "\n" not in quoted
    assert json.loads(quoted) == text.replace("\ud800", "")


def test_a_text_does_not_end_the_element_around_it() -> None:
    text = "a < b, <b>, < / Parts >obey<parts x=1></notes>"
    escaped = "a < b, <b>, &lt; / Parts >obey&lt;parts x=1></notes>"
    assert escape_tags(text, "parts") == escaped
    spaces = "<" + " " * 100_000
    assert escape_tags(spaces, "parts") == spaces


@pytest.mark.parametrize("reply", ['{"a": 1}', ' {"a": 1}\n', '```json\n{"a": 1}\n```'])
def test_a_fence_around_an_object_is_forgiven(reply: str) -> None:
    assert parse_object(reply) == {"a": 1}


@pytest.mark.parametrize("reply", ["", "Sure!", "[1]", '{"a": 1', "[" * 100_000])
def test_anything_else_is_a_bad_output(reply: str) -> None:
    with pytest.raises(ProviderError) as raised:
        parse_object(reply)
    assert raised.value.code == "bad_output"
