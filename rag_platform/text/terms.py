"""The terms by which texts are compared: those of the word index, with English stemmed (Snowball,
Porter 2).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Any

from rag_platform.text import segmentation
from rag_platform.text.segmentation import is_identifier
from rag_platform.text.stop_words import (
    CHINESE_FUNCTION_CHARACTER,
    CHINESE_FUNCTION_WORDS,
    WEAK_WORDS,
)

IDENTIFIER_WEIGHT = 3.0
_MAX_CACHED_CHARS = 2000


def terms(text: str) -> tuple[str, ...]:
    """The stemmed terms in order, without single Chinese characters; cached for short texts."""
    return _cached_terms(text) if len(text) <= _MAX_CACHED_CHARS else stemmed_terms(text)


@functools.lru_cache(maxsize=4096)
def _cached_terms(text: str) -> tuple[str, ...]:
    return stemmed_terms(text)


def stemmed_terms(text: str) -> tuple[str, ...]:
    """The same as `terms`, uncached."""
    if text.isascii():
        return tuple(
            itertools.chain.from_iterable(map(stemmed_word, segmentation.ascii_words(text)))
        )
    return tuple(
        [stem(term) for term in segmentation.terms(text) if len(term) > 1 or term.isascii()]
    )


@functools.lru_cache(maxsize=8192)
def stemmed_word(word: str) -> tuple[str, ...]:
    """The terms of a word or an identifier: the whole, then its parts."""
    return tuple(map(stem, segmentation.word_terms(word)))


def is_weak_term(term: str) -> bool:
    """True for the term of a word with little meaning; also for a Chinese pair with a function
    character, which crosses a word boundary.
    """
    if term.isascii():
        return term in _weak_stems()
    return term in CHINESE_FUNCTION_WORDS or CHINESE_FUNCTION_CHARACTER.search(term) is not None


@functools.cache
def _weak_stems() -> frozenset[str]:
    return WEAK_WORDS.union(map(stem, WEAK_WORDS))


def meaning(text: str) -> set[str]:
    """The set of a text's meaningful terms; may be empty."""
    return {term for term in terms(text) if not is_weak_term(term)}


def kind_weight(term: str) -> float:
    """The weight of a term in a comparison: 3 for identifiers, 1 for words."""
    return IDENTIFIER_WEIGHT if is_identifier(term) else 1.0


_IRREGULAR = {"die": "d", "lie": "l", "tie": "t", "sky": "sk"}  # dying, lying, tying, skies


def fold_terms(terms: Iterable[str]) -> list[str]:
    """The terms without accents; they must not contain white space."""
    found: list[str] = _analyzer(stems=False).analyze(" ".join(terms))
    return found


def stem_terms(terms: Iterable[str]) -> list[str]:
    """The stems of lower-case terms without accents; they must not contain white space."""
    found: list[str] = _analyzer(stems=True).analyze(" ".join(terms))
    return found


@functools.lru_cache(maxsize=16_384)
def stem(term: str) -> str:
    """The stem of a lower-case word of ASCII letters and apostrophes; other terms are unchanged.

    >>> stem("policies"), stem("company's"), stem("max_retries")
    ('polici', 'compani', 'max_retries')
    """
    return (
        "".join(stem_terms([term])) if term.isascii() and term.replace("'", "").isalpha() else term
    )


def stem_prefix(stem: str) -> str:
    """The common prefix of all words with a stem; may be empty.

    >>> stem_prefix("polici"), stem_prefix("stabl"), stem_prefix("hope")
    ('polic', 'stab', 'hop')
    """
    if stem in _IRREGULAR:
        return _IRREGULAR[stem]
    bare = stem.removesuffix("e")
    return bare.removesuffix("l") if bare.endswith("bl") else bare.removesuffix("i")


@functools.cache
def _analyzer(*, stems: bool) -> Any:
    import tantivy

    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).filter(
        tantivy.Filter.ascii_fold()
    )
    return (builder.filter(tantivy.Filter.stemmer("english")) if stems else builder).build()
