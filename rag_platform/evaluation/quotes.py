"""Compares expected texts with the texts of chunks and answers."""

from __future__ import annotations

import re
import unicodedata

_MARKS = re.compile(r"[*_`\\]")
_SPACE = re.compile(r"\s+")


def fold(text: str) -> str:
    """The text in NFKC without Markdown emphasis and code marks, white space collapsed."""
    return _SPACE.sub(" ", _MARKS.sub("", unicodedata.normalize("NFKC", text))).strip()


def contains_quote(folded: str, quote: str) -> bool:
    """True if a folded text contains the quote, or if that is a table row, every cell of it."""
    if fold(quote) in folded:
        return True
    cells = [cell for part in quote.split("|") if (cell := fold(part))]
    return "|" in quote and bool(cells) and all(cell in folded for cell in cells)


def is_of_file(source_uri: str, file: str) -> bool:
    """True if `file` is the end of a document's source_uri, compared by path segments."""
    wanted = file.strip("/").split("/")
    return source_uri.split("/")[-len(wanted) :] == wanted
