"""Short texts for people: numbers with their nouns, and texts cut to one line."""

from __future__ import annotations

from unicodedata import east_asian_width


def pluralise(number: float, noun: str) -> str:
    """`1 document`, `2 documents`.

    >>> pluralise(1, "chunk"), pluralise(0, "new version")
    ('1 chunk', '0 new versions')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shorten(text: str, most: int) -> str:
    """The text on one line of at most `most` characters, with an ellipsis where it is cut: between
    words, unless the last one takes more than half of the line.

    >>> shorten("alpha beta\\ngamma delta", 18), shorten("图 表面温度不应超过六十度", 8)
    ('alpha beta gamma…', '图 表面温度不…')
    """
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    shown, edge = line[: most - 1], line[max(0, most - 2) : most]
    # Chinese and Japanese may be cut anywhere
    if " " not in edge and not any(east_asian_width(char) in "WF" for char in edge):
        word_end = shown.rfind(" ", most // 2)
        shown = shown[:word_end] if word_end > 0 else shown
    return shown.rstrip() + "…"
