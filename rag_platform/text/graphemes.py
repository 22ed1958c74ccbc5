"""Where a cut does not split what a reader takes for one character (UAX 29)."""

from __future__ import annotations

import regex

_CLUSTER = regex.compile(r"\X")
_LAST_CLUSTER = regex.compile(r"(?r)\X")  # searched from the end
_LONGEST = 256  # characters of a cluster or a row of flags that are looked at; no writing has more


def is_grapheme_boundary(text: str, index: int) -> bool:
    """True when a cut before text[index] splits no grapheme cluster; always true at both ends."""
    if index <= 0 or index >= len(text):
        return True
    beside = text[index - 1 : index + 1]
    if beside.isascii():
        return beside != "\r\n"
    start = _LAST_CLUSTER.search(text, max(0, index - _LONGEST), index).start()
    found: int = _CLUSTER.match(text, start).end()
    return found == index
