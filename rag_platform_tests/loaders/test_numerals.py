"""Numbers as the formats of lists print them."""

from __future__ import annotations

import pytest

from rag_platform.loaders.numerals import format_list_number, without_page_number


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (28, "lowerLetter", "bb"),
        (2_000_000_000, "lowerLetter", "2000000000"),
        (14, "upperRoman", "XIV"),
        (110, "chineseCounting", "一百一十"),
        (12, "chineseCounting", "十二"),
        (1005, "chineseCountingThousand", "一千零五"),
        (3, "decimalEnclosedCircle", "③"),
        (3, "ideographTraditional", "丙"),
        (3, "ideographZodiac", "寅"),
        (15, "ideographDigital", "一五"),
        (7, "decimalZero", "07"),
        (7, "unknown", "7"),
    ],
)
def test_numbers_are_printed_as_their_format_says(value: int, form: str, text: str) -> None:
    assert format_list_number(value, form) == text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("Page 1 of 3", ""),
        ("1 | P a g e", ""),
        ("第 2 页 共 9 页", ""),
        ("- iv -", ""),
        ("Document QM-042", "documentqm042"),
        ("Acme Pumps Page \0 of 3", "acmepumps"),
    ],
)
def test_a_running_line_without_its_page_number(words: str, said: str) -> None:
    assert without_page_number(words) == said
