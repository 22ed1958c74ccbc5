"""When one text adds nothing to another, and an order in which each text adds something to those before it."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from rag_platform.text.scripts import HANGUL, UNSPACED

# Words of scripts with blanks, single characters of those without.
_WORD = re.compile(rf"[^\W{UNSPACED}{HANGUL}]+|[{UNSPACED}{HANGUL}]")
_DIGITS = re.compile("[0-9][0-9]*")  # scanned faster than with `+`
_NEGATIONS = frozenset("no not never none without cannot nor 不 没 无 未 非 勿 别 否".split())


@functools.lru_cache(maxsize=512)
def normalized(text: str) -> str:
    """The text with one blank between words; equal ones are one text."""
    return " ".join(text.split())


def adds_nothing(later: str, earlier: str, threshold: float) -> bool:
    """True when the earlier text holds at least that share of the later one's word pairs, and says no less.

    The share is the later text's own, so a long text is never taken for the short one that it contains. Texts that differ in a number, an
    identifier or a negation differ, however alike they are otherwise.
    """
    if not _digits(later) <= _digits(earlier):  # most texts that differ are told apart by their numbers or words
        return False
    (words, distinct), (_, others) = _words(later), _words(earlier)
    if len(distinct - others) - 1 > (1 - threshold) * len(words):  # each but the last word begins a pair of its own
        return False
    new = shingles(later)
    return bool(new) and len(new & shingles(earlier)) >= threshold * len(new) and says_no_less(later, earlier)


def says_no_less(later: str, earlier: str) -> bool:
    """True when the earlier text has every number and identifier of the later one, and negates with the same words."""
    (numbers, negations), (known, others) = _telling(later), _telling(earlier)
    return numbers <= known and negations == others


def likeness(left: str, right: str) -> float:
    """The Jaccard index of the word pairs, 0 to 1."""
    one, other = shingles(left), shingles(right)
    shared = len(one & other)
    union = len(one) + len(other) - shared
    return shared / union if union else 0.0


@functools.lru_cache(maxsize=2048)
def shingles(text: str) -> frozenset[tuple[str, str]]:
    """The pairs of neighbouring words of a text (Broder, SEQUENCES 1997); a text of one word has that word paired with nothing."""
    words, _ = _words(text)
    return frozenset(itertools.pairwise(words)) or frozenset((word, "") for word in words)


@functools.lru_cache(maxsize=2048)
def _words(text: str) -> tuple[list[str], frozenset[str]]:
    words = _WORD.findall(text.lower())
    return words, frozenset(words)


@functools.lru_cache(maxsize=2048)
def _digits(text: str) -> frozenset[str]:
    return frozenset(_DIGITS.findall(text))


@functools.lru_cache(maxsize=2048)
def _telling(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """(words with a digit or an underscore: numbers, versions, identifiers; negations): a change of one changes what a text says."""
    _, distinct = _words(text)
    return frozenset(word for word in distinct if "_" in word or any(map(str.isdigit, word))), _NEGATIONS & distinct


def diversified(relevance: Sequence[float], alike: Callable[[int, int], float], weight: float) -> Iterator[int]:
    """Positions by maximal marginal relevance: weight x relevance - (1 - weight) x the likeness to the most alike one before it.

    Carbonell & Goldstein, SIGIR 1998. `relevance` should lie between 0 and 1 as likeness does; ties keep the given order.
    """
    left = list(range(len(relevance)))
    nearest = [0.0] * len(relevance)
    while left:
        best = max(left, key=lambda i: (round(weight * relevance[i] - (1 - weight) * nearest[i], 12), -i))
        left.remove(best)
        yield best
        for i in left:
            nearest[i] = max(nearest[i], alike(i, best))
