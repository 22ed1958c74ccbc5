"""What a text must be before it leaves for a tokenizer, an engine written in C or another
machine.
"""

from __future__ import annotations


def encodable(text: str) -> str:
    """The text as UTF-8 can hold it: halves of surrogate pairs are dropped, and NUL, which ends a C
    string, is a space.
    """
    return text.replace("\0", " ").encode("utf-8", "ignore").decode("utf-8")
