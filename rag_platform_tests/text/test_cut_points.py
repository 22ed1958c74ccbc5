from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.text.cut_points import is_grapheme_boundary


@pytest.mark.parametrize(
    "clusters",
    [
        ["a", "b"],
        ["\r\n", "\n", "\r"],  # GB3 to GB5
        ["\u1100\u1161\u11a8", "\uac00\u11a8", "\uac01"],  # Hangul syllables, GB6 to GB8
        ["\u11a8", "\u1160"],
        ["e\u0301\u0300", "x"],  # marks, GB9
        ["\u0e01\u0e33", "\u0e02"],  # GB9a
        ["\u0600a", "b"],  # GB9b
        ["\u0915\u094d\u0937", "\u0915"],  # a conjunct, GB9c
        ["\U0001f469\u200d\U0001f4bb", "\U0001f44d\U0001f3fd", "a\u200d", "\U0001f1e6"],  # GB11
        ["\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7", "\U0001f1ef"],  # flags, GB12
        ["中", "文\u0301", "。"],
        ["\ud800", "x"],
    ],
)
def test_a_cluster_is_not_cut(clusters: list[str]) -> None:
    text = "".join(clusters)
    ends = {len("".join(clusters[:n])) for n in range(len(clusters) + 1)}
    assert {index for index in range(len(text) + 1) if is_grapheme_boundary(text, index)} == ends


def test_the_cases_of_the_unicode_consortium(material: Path) -> None:
    wrong, checked = [], 0
    for line in (
        (material / "unicode" / "GraphemeBreakTest.txt").read_text(encoding="utf-8").splitlines()
    ):
        marks = line.split("#")[0].split()
        text = "".join(chr(int(mark, 16)) for mark in marks[1::2])
        checked += bool(marks)
        if any(
            is_grapheme_boundary(text, index) != (mark == "÷")
            for index, mark in enumerate(marks[2:-1:2], start=1)
        ):
            wrong.append(text)
    assert checked > 500
    assert wrong in ([], ["\u2701\u200d\u2701"])  # a dingbat that older tables take for an emoji


@given(
    st.text(alphabet="a\u0301\u200d\U0001f469\U0001f1e6\uac00\u11a8\u0915\u094d\r\n中", max_size=30)
)
def test_the_ends_are_boundaries_and_a_mark_never_begins_anything(text: str) -> None:
    assert is_grapheme_boundary(text, 0) and is_grapheme_boundary(text, len(text))
    for index in range(1, len(text)):
        if text[index] == "\u0301" and text[index - 1] not in "\r\n":
            assert not is_grapheme_boundary(text, index)


def test_a_mark_after_any_number_of_marks_begins_nothing() -> None:
    text = "a" + "\u0301" * 5000
    assert not any(is_grapheme_boundary(text, index) for index in range(4000, 5000))
