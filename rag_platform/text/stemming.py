"""The stems of English words, by Snowball's English stemmer (Porter 2), as the word index stores them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

_IRREGULAR = {"die": "d", "lie": "l", "tie": "t", "sky": "sk"}  # dying, lying, tying, skies


def folded(terms: Iterable[str]) -> list[str]:
    """The terms, none with white space inside, without accents."""
    found: list[str] = _analyzer(stems=False).analyze(" ".join(terms))
    return found


def stemmed(terms: Iterable[str]) -> list[str]:
    """The stems of lower-case terms, none with white space inside, without accents; what is no English word stays as it is."""
    found: list[str] = _analyzer(stems=True).analyze(" ".join(terms))
    return found


@functools.lru_cache(maxsize=16_384)
def stem(term: str) -> str:
    """The stem of a lower-case word of ASCII letters and apostrophes; identifiers and other terms as they are.

    >>> stem("policies"), stem("company's"), stem("max_retries")
    ('polici', 'compani', 'max_retries')
    """
    return "".join(stemmed([term])) if term.isascii() and term.replace("'", "").isalpha() else term


def beginning(stem: str) -> str:
    """What all words of that stem begin with; empty where that is nothing.

    >>> beginning("polici"), beginning("stabl"), beginning("hope")
    ('polic', 'stab', 'hop')
    """
    if stem in _IRREGULAR:
        return _IRREGULAR[stem]
    bare = stem.removesuffix("e")
    return bare.removesuffix("l") if bare.endswith("bl") else bare.removesuffix("i")


@functools.cache
def _analyzer(*, stems: bool) -> Any:
    import tantivy

    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).filter(tantivy.Filter.ascii_fold())
    return (builder.filter(tantivy.Filter.stemmer("english")) if stems else builder).build()
