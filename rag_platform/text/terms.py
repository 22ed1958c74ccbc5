"""The terms by which texts are compared: those of the word index, stemmed, and which of them carry meaning."""

from __future__ import annotations

import functools
import itertools

from rag_platform.text import segmentation
from rag_platform.text.segmentation import is_identifier
from rag_platform.text.stemming import stem
from rag_platform.text.stop_words import CHINESE_FUNCTION_CHARACTER, CHINESE_FUNCTION_WORDS, WEAK_WORDS

IDENTIFIER_WEIGHT = 3.0
_KEPT_CHARS = 2000  # longer texts are not remembered


def terms(text: str) -> tuple[str, ...]:
    """The stemmed terms in order; single Chinese characters are left out, they say too little to tell sentences apart."""
    return _cached_terms(text) if len(text) <= _KEPT_CHARS else stemmed_terms(text)


@functools.lru_cache(maxsize=4096)
def _cached_terms(text: str) -> tuple[str, ...]:
    return stemmed_terms(text)


def stemmed_terms(text: str) -> tuple[str, ...]:
    """The same for a text that is not seen twice."""
    if text.isascii():
        return tuple(itertools.chain.from_iterable(map(stemmed_word, segmentation.ascii_words(text))))
    return tuple([stem(term) for term in segmentation.terms(text) if len(term) > 1 or term.isascii()])


@functools.lru_cache(maxsize=8192)
def stemmed_word(word: str) -> tuple[str, ...]:
    """The terms of a word or an identifier: the whole, then its parts."""
    return tuple(map(stem, segmentation.word_terms(word)))


def is_weak_term(term: str) -> bool:
    """True for the term of a word that says little, and for a pair of Chinese characters with one in it: it crosses a word boundary."""
    if term.isascii():
        return term in _weak_stems()
    return term in CHINESE_FUNCTION_WORDS or CHINESE_FUNCTION_CHARACTER.search(term) is not None


@functools.cache
def _weak_stems() -> frozenset[str]:
    return WEAK_WORDS.union(map(stem, WEAK_WORDS))


def meaning(text: str) -> set[str]:
    """The terms of a text that carry meaning; those that say little are left out, so it may be empty."""
    return {term for term in terms(text) if not is_weak_term(term)}


def kind_weight(term: str) -> float:
    """How much a term counts in a comparison: identifiers three times as much as words."""
    return IDENTIFIER_WEIGHT if is_identifier(term) else 1.0
