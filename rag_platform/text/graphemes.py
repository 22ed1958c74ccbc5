"""Where a cut does not split what a reader takes for one character (UAX 29)."""

from __future__ import annotations

from functools import cache
from typing import Any

_LONGEST = 256  # characters of a cluster or a row of flags that are looked at; no writing has more


def is_grapheme_boundary(text: str, index: int) -> bool:
    """True when a cut before text[index] splits no grapheme cluster; always true at both ends."""
    if index <= 0 or index >= len(text):
        return True
    beside = text[index - 1 : index + 1]
    if beside.isascii():
        return beside != "\r\n"
    cluster, last_cluster = _patterns()
    start = last_cluster.search(text, max(0, index - _LONGEST), index).start()
    found: int = cluster.match(text, start).end()
    return found == index


@cache
def _patterns() -> tuple[Any, Any]:
    """A cluster, and the same searched from the end."""
    import regex  # takes longer than all other imports of a question

    return regex.compile(r"\X"), regex.compile(r"(?r)\X")
