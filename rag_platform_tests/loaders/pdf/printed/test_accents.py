"""Accents drawn as signs of their own, as TeX's older fonts do."""

from __future__ import annotations

import pytest

from rag_platform.loaders.pdf.printed.accents import place_accents
from rag_platform.loaders.pdf.printed.runs import Char, Run


def _run(*glyphs: tuple[str, float, float], top: float = 0.0) -> Run:
    """A run of glyphs, each with its left and right edge."""
    chars = tuple(Char(text, left, top, right, top + 10) for text, left, right in glyphs)
    return Run(chars, 0, 10.0, False, False, True)


@pytest.mark.parametrize(
    ("glyphs", "text"),
    [
        ([("f", 0, 3), ("¨", 3.3, 8.7), ("u", 3, 9), ("r", 9, 13)], "für"),
        # the sign is wider than the dotless i
        ([("s", 0, 4), ("´", 4, 9), ("ı", 5, 8)], "sí"),
        ([("c", 0, 5), ("¸", 1, 4), ("a", 5, 9)], "ça"),
        # the engine took the way back to the letter for a space
        ([("f", 0, 3), (" ", 4, 4), ("¨", 4, 8), ("u", 3, 9)], "fü"),
        # a space between words
        ([("m", 0, 8), (" ", 8, 11), ("`", 11, 16), ("e", 11, 16), (" ", 16, 19)], "m è "),
        # moved to the end of the line
        ([("L", 0, 6), ("u", 6, 12), ("c", 12, 17), (" ", 17, 17), ("¨", 6.3, 11.7)], "Lüc"),
        ([("¨", 3.3, 8.7), ("u", 9, 14)], "¨u"),  # beside a letter
        ([("ˆ", 0, 8), ("Ψ", 0, 8)], "ˆΨ"),  # of a formula: Unicode has no such letter
    ],
)
def test_a_sign_drawn_over_a_letter_is_its_accent(
    glyphs: list[tuple[str, float, float]], text: str
) -> None:
    assert [run.text for run in place_accents([_run(*glyphs)])] == [text]


def test_a_sign_in_a_run_of_its_own_is_joined_to_the_letter_of_its_line() -> None:
    word = _run(("f", 0, 3), ("u", 3, 9), ("r", 9, 13))
    sign = ("¨", 3.3, 8.7)
    assert [run.text for run in place_accents([word, _run(sign)])] == ["für"]
    assert [run.text for run in place_accents([word, _run(sign, top=12.0)])] == ["fur", "¨"]
