"""Numbers with their nouns."""

from __future__ import annotations


def pluralise(number: int, noun: str) -> str:
    """`1 document`, `2 documents`.

    >>> pluralise(1, "chunk"), pluralise(0, "new version")
    ('1 chunk', '0 new versions')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
