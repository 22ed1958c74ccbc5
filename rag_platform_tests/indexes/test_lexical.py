"""What goes into the word index, and when it is built anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.indexes.lexical import analyse, needs_full_build, row_hash, row_of
from rag_platform.ir import Chunk, LexicalRow, View
from rag_platform.providers.segmentation import MAX_TERM_CHARS, is_identifier, terms

CHUNK = Chunk("c", "s", "d", "v", 0, "text", "f", 0, 4, 0, 4, "Guide / Part")


def test_row_holds_the_sparse_text_and_the_section_path() -> None:
    assert row_of(CHUNK, View("c", "dense", "sparse", "h")) == LexicalRow("c", "d", "sparse", "Guide / Part")
    assert row_of(CHUNK, View("c", "dense", " \n", "h")) is None


def test_row_hash_changes_with_text_and_headings_only() -> None:
    row = LexicalRow("c", "d", "text", "Guide")
    assert row_hash(None) == ""
    assert row_hash(row) == row_hash(LexicalRow("other", "d2", "text", "Guide"))
    assert len({row_hash(row), row_hash(LexicalRow("c", "d", "text!", "Guide")), row_hash(LexicalRow("c", "d", "text", "Guide!"))}) == 3


@pytest.mark.parametrize(("rows", "stale", "full"), [(300, 0, True), (301, 0, False), (50_000, 5_000, False), (50_000, 5_001, True)])
def test_full_build_when_small_or_when_a_tenth_is_stale(rows: int, stale: int, full: bool) -> None:
    assert needs_full_build(rows, stale) is full


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Widget's", ["the", "widget's"]),
        ("PPR-9087", ["ppr-9087", "ppr", "9087"]),
        ("foo_bar", ["foo_bar", "foo", "bar"]),
        ("getHTTPResponse", ["gethttpresponse", "get", "http", "response"]),
        ("v1.2.3", ["v1.2.3", "1.2.3", "v1", "1", "2", "3"]),
        ("src/app/main.py", ["src/app/main.py", "src", "app", "main", "py"]),
        ("C++, C# and .NET", ["c++", "c#", "and", ".net", "net"]),
        ("user@example.com", ["user@example.com", "user", "example", "com"]),
        ("年假制度", ["年", "假", "制", "度", "年假", "假制", "制度"]),
        ("API网关v2", ["api", "网", "关", "网关", "v2", "2"]),
        ("タワー", ["タ", "ワ", "ー", "タワ", "ワー"]),
        ("ＡＢＣ　１２", ["abc", "12"]),
        ("end.Next ... (a) -x", ["end.next", "end", "next", "a", "x"]),
        ("？！…", []),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected
    assert analyse(text) == expected


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("ppr-9087", True),
        ("foo_bar", True),
        ("v1", True),
        ("a/b", True),
        ("boundary-layer", False),
        ("word", False),
        ("42", False),
        ("年假", False),
    ],
)
def test_is_identifier(term: str, expected: bool) -> None:
    assert is_identifier(term) is expected


@given(st.text(max_size=200))
def test_terms_hold_no_white_space_and_are_short(text: str) -> None:
    for term in terms(text):
        assert term and term.split() == [term] and len(term) <= MAX_TERM_CHARS


@given(st.text(alphabet="abcXYZ09._-/年假 ", max_size=60))
def test_every_letter_and_digit_is_found_in_some_term(text: str) -> None:
    together = "".join(terms(text))
    assert all(character.lower() in together for character in text if character.isalnum())
