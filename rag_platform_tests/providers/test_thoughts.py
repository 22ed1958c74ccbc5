"""Thoughts in front of an answer are no part of it, whole or in any parts that a stream comes
in.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.providers.model_calls import ThoughtFilter, strip_thoughts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A lamp.", "A lamp."),
        ("  A lamp.\n", "  A lamp.\n"),
        ("<think>It shines [1].</think>\n\nA lamp. [1]\n", "A lamp. [1]\n"),
        ("\n<think>\n\n</think>\n\nNOT_IN_PASSAGES", "NOT_IN_PASSAGES"),
        ("<think>One.</think> <think>Two.</think> A lamp.", "A lamp."),
        ("<think>It never comes to an end", ""),
        (
            "The mark `<think>` opens thoughts, `</think>` ends them.",
            "The mark `<think>` opens thoughts, `</think>` ends them.",
        ),
        ("<thinking> is another mark.", "<thinking> is another mark."),
        ("", ""),
    ],
)
def test_only_thoughts_at_the_beginning_are_left_out(text: str, said: str) -> None:
    assert strip_thoughts(text) == said


def heard(parts: list[str]) -> list[str]:
    found: list[str] = []
    answer = ThoughtFilter(found.append)
    for part in parts:
        answer.add(part)
    answer.finish()
    return found


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (["A ", "lamp"], ["A ", "lamp"]),
        (["<th", "ink>It sh", "ines.</thi", "nk>", "\n\n", "A ", "lamp"], ["A ", "lamp"]),
        (["<think>It shines.</think> A lamp", "."], ["A lamp", "."]),
        (["<th"], ["<th"]),
        (["<think>It never", " ends"], []),
        ([" ", "\n"], []),
        (["<", "b>A lamp</b>"], ["<b>A lamp</b>"]),
    ],
)
def test_a_stream_is_heard_from_where_its_thoughts_end(parts: list[str], said: list[str]) -> None:
    assert heard(parts) == said


PIECES = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "think>", "</thi", "nk>", " ", "\n", "A", "。"]),
    max_size=12,
)


@given(PIECES, st.lists(st.integers(0, 60), max_size=6))
def test_the_parts_of_a_stream_add_up_to_what_is_left_of_the_whole(
    pieces: list[str], cuts: list[int]
) -> None:
    text = "".join(pieces)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    parts = [text[start:end] for start, end in pairwise(places)]
    whole = strip_thoughts(text)
    assert "".join(heard(parts)) == (whole if whole.strip() else "")
