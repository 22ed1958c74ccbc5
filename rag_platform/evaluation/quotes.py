"""Whether a text holds a quote: the comparison behind expected texts."""

from __future__ import annotations

import re
import unicodedata

_MARKS = re.compile(r"[*_`\\]")
_SPACE = re.compile(r"\s+")


def fold(text: str) -> str:
    """NFKC, without Markdown's marks of emphasis and code, one space for any white space."""
    return _SPACE.sub(" ", _MARKS.sub("", unicodedata.normalize("NFKC", text))).strip()


def holds(folded: str, quote: str) -> bool:
    """True where a folded text holds the quote; of a table row, where it holds every cell."""
    if fold(quote) in folded:
        return True
    cells = [cell for part in quote.split("|") if (cell := fold(part))]
    return "|" in quote and bool(cells) and all(cell in folded for cell in cells)


def is_of_file(source_uri: str, file: str) -> bool:
    """True where a document's address ends with the file, whole path segments compared."""
    wanted = file.strip("/").split("/")
    return source_uri.split("/")[-len(wanted) :] == wanted
