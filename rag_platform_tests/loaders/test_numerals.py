"""Numbers as the formats of lists print them."""

from __future__ import annotations

import pytest

from rag_platform.loaders.numerals import number_text


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (28, "lowerLetter", "bb"),
        (14, "upperRoman", "XIV"),
        (110, "chineseCounting", "一百一十"),
        (12, "chineseCounting", "十二"),
        (1005, "chineseCountingThousand", "一千零五"),
        (3, "decimalEnclosedCircle", "③"),
        (3, "ideographTraditional", "丙"),
        (7, "unknown", "7"),
    ],
)
def test_numbers_are_printed_as_their_format_says(value: int, form: str, text: str) -> None:
    assert number_text(value, form) == text
