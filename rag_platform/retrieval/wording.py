"""The words of questions, answers and passages, weighed alike wherever texts are compared: the terms of the word index, stemmed.

Chinese is segmented and identifiers count whole and in parts. Identifiers weigh most, function words nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rag_platform.providers import segmentation
from rag_platform.providers.segmentation import is_identifier

_STOP_WORDS = """
a about all also an and any are as at be been but by can could did do does for from had has have how i if in into is it its may me my
no not of on or our please shall should so tell than that the their them then there these they this those to under us use used using
was we were what what's when where which while who whom whose why will with would you your
什么 怎么 如何 怎样 多少 为何 可以 能够 需要 应该 没有 告诉 一个 时候 有没 为什
"""
_STOP = frozenset(_STOP_WORDS.split())
# Terms of Chinese are pairs of characters: one with a function word in it crosses a word boundary.
_FUNCTION = re.compile("[的了是在和与及或就都而也着把被让给向从到对为于之其这那哪个些吗呢吧啊呀么怎请问我你他她它们由谁几所]")
ASKS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|large|big|often|far|old|high|fast)\b|\b(?:max|min)(?:imum)?\b|\b(?:limit|size|port|version)\b"
    r"|多少|几|多大|多长|多久|多高|上限|最大|最小|端口"
    r"|\bwhen\b|\bwhat (?:year|date|day|time)\b|何时|什么时候|哪一?年|哪天|日期"
)
DIGIT = re.compile(r"\d|[一二三四五六七八九十百千万两]+[个次年月日号天小时分秒元人名种]")
_ORDER_SUFFIXES = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))
IDENTIFIER_WEIGHT = 3.0


def query_terms(query: str) -> list[str]:
    """The distinct words of a question that carry meaning; all of its words when it has no others."""
    found = list(dict.fromkeys(_stemmed(query)))
    return [term for term in found if term not in _STOP and not _FUNCTION.search(term)] or found


def coverage(query: str, texts: Sequence[str]) -> float:
    """The share of the question's words, by weight, that stand in the texts; 0 without texts."""
    asked = query_terms(query)
    have = {term for text in texts for term in terms(text)}
    total = sum(map(kind_weight, asked))
    return sum(kind_weight(term) for term in asked if term in have) / total if total else 0.0


def terms(text: str) -> tuple[str, ...]:
    """The terms of the word index in order, English ones without their common endings, single Chinese characters left out."""
    return _cached_terms(text) if len(text) <= 2000 else _stemmed(text)


@lru_cache(maxsize=4096)
def _cached_terms(text: str) -> tuple[str, ...]:
    return _stemmed(text)


def _stemmed(text: str) -> tuple[str, ...]:
    # single characters of Chinese say too little to tell sentences apart
    return tuple(_stem(term) for term in segmentation.terms(text) if len(term) > 1 or term.isascii())


@lru_cache(maxsize=16_384)
def _stem(term: str) -> str:
    """An English word without its most common endings; other terms as they are."""
    if len(term) > 3 and term.isascii() and term.isalpha():
        for suffix, instead in _ORDER_SUFFIXES:
            if term.endswith(suffix) and len(term) - len(suffix) >= 3 and not term.endswith(("ss", "us", "is")):
                return term[: -len(suffix)] + instead
    return term


def meaning(text: str) -> set[str]:
    """The terms of a text that carry meaning; function words of English and Chinese are left out, so it may be empty."""
    return {term for term in terms(text) if term not in _STOP and not _FUNCTION.search(term)}


def kind_weight(term: str) -> float:
    """How much a term counts in a comparison: identifiers three times as much as words."""
    return IDENTIFIER_WEIGHT if is_identifier(term) else 1.0
