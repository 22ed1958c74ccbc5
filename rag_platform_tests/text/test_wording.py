from __future__ import annotations

import pytest

from rag_platform.text.wording import shorten


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("one\n two", 20, "one two"),
        ("alpha beta gamma delta", 18, "alpha beta gamma…"),
        ("alpha beta gamma delta", 17, "alpha beta gamma…"),  # ends with a word
        ("alpha beta gamma delta", 12, "alpha beta…"),
        ("привет дорогой мир", 12, "привет…"),
        ("中文" * 20, 10, "中文中文中文中文中…"),
        # a space in a Chinese text is no better place than any other
        ("按下启动键 然后等待指示灯变绿再开门", 12, "按下启动键 然后等待指…"),
        ("设定温度 PX-40 的上限", 9, "设定温度…"),
        # one long word is cut rather than left out
        ("see https://example.org/a/very/long/address", 20, "see https://example…"),
        ("", 5, ""),
    ],
)
def test_a_text_is_shortened_to_one_line_between_words(text: str, most: int, shown: str) -> None:
    assert shorten(text, most) == shown
    assert len(shown) <= most
