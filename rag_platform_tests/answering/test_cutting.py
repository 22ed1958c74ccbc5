from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.answering.context_builder import cut_to_fit
from rag_platform.text.markdown_blocks import open_fence

TABLE = "Prices:\n\n| item | price |\n|---|---|\n| pen | 1 |\n| ink | 2 |\n| pad | 3 |\n"
CODE = "Run this:\n\n```sh\nmake setup\nmake test\n```\n\nThen wait."


def most(characters: int) -> Callable[[str], bool]:
    return lambda text: len(text) <= characters


@pytest.mark.parametrize(
    ("text", "characters", "kept"),
    [
        ("one\ntwo\nthree", 13, "one\ntwo\nthree"),
        ("one\ntwo\nthree", 10, "one\ntwo"),
        ("One is here. Two is there. Three.", 20, "One is here."),
        ("第一句在这里。第二句在那里。", 9, "第一句在这里。"),
        ("alpha beta gamma", 12, "alpha beta"),
        ("汉" * 10, 4, "汉" * 4),
        ("e\u0301" * 4, 3, "e\u0301"),  # a letter and its accent stay together
        (TABLE, len(TABLE) - 1, TABLE[: TABLE.index("| pad")].rstrip()),
        # the header and its first row
        (TABLE, TABLE.index("| ink") + 3, TABLE[: TABLE.index("| ink")].rstrip()),
        (TABLE, TABLE.index("| pen") + 3, "Prices:"),
        (CODE, CODE.index("make test"), "Run this:"),
        (CODE, CODE.index("\n\nThen") + 1, CODE[: CODE.index("\n\nThen")]),
        # nothing but a heading before it: cut at a line end
        ("# Setup\n\n" + CODE[11:], 30, "# Setup\n\n```sh\nmake setup"),
        ("# Setup\n\nText is here.", 9, ""),  # no heading without what stands below it
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", 15, ""),
    ],
)
def test_where_a_text_ends(text: str, characters: int, kept: str) -> None:
    assert cut_to_fit(text, most(characters)) == kept


@given(st.text(alphabet="ab .\n|-`#汉。e\u0301", max_size=80), st.integers(0, 80))
def test_a_beginning_is_verbatim_and_fits(text: str, characters: int) -> None:
    kept = cut_to_fit(text, most(characters))
    assert text.startswith(kept)
    assert len(kept) <= characters


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("```\na", "```"),
        ("```\na\n```", ""),
        ("~~~~\n~~~\n", "~~~~"),
        ("- ```py\n  x\n", "```"),
        ("a", ""),
    ],
)
def test_open_fence(text: str, mark: str) -> None:
    assert open_fence(text) == mark
