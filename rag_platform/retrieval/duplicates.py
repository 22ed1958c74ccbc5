"""When one text adds nothing to another, and an order in which each text adds something to those before it."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

# Words of scripts with blanks, single characters of those without.
_WORD = re.compile(r"[^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NEGATIONS = frozenset("no not never none without cannot nor 不 没 无 未 非 勿 别 否".split())


@dataclass(frozen=True, slots=True)
class Shingles:
    """What of a text is compared: its pairs of neighbouring words, and the words that a single change of which changes what it says."""

    pairs: frozenset[tuple[str, str]]
    numbers: frozenset[str]  # words with a digit or an underscore: numbers, versions, identifiers
    negations: frozenset[str]


def normalized(text: str) -> str:
    """The text with one blank between words; equal ones are one text."""
    return " ".join(text.split())


@functools.lru_cache(maxsize=2048)
def shingles(text: str) -> Shingles:
    """The shingles of a text (Broder, SEQUENCES 1997); a text of one word has that word paired with nothing."""
    words = _WORD.findall(text.lower())
    pairs = frozenset(itertools.pairwise(words)) or frozenset((word, "") for word in words)
    telling = frozenset(word for word in words if "_" in word or any(map(str.isdigit, word)))
    return Shingles(pairs, telling, _NEGATIONS.intersection(words))


def adds_nothing(later: str, earlier: str, threshold: float) -> bool:
    """True when the earlier text holds at least that share of the later one's word pairs, and says no less.

    The share is the later text's own, so a long text is never taken for the short one that it contains. Texts that differ in a number, an
    identifier or a negation differ, however alike they are otherwise.
    """
    new, known = shingles(later), shingles(earlier)
    if not new.pairs or not says_no_less(later, earlier):
        return False
    return len(new.pairs & known.pairs) >= threshold * len(new.pairs)


def says_no_less(later: str, earlier: str) -> bool:
    """True when the earlier text has every number and identifier of the later one, and negates with the same words."""
    new, known = shingles(later), shingles(earlier)
    return new.numbers <= known.numbers and new.negations == known.negations


def likeness(left: str, right: str) -> float:
    """The Jaccard index of the word pairs, 0 to 1."""
    one, other = shingles(left).pairs, shingles(right).pairs
    shared = len(one & other)
    union = len(one) + len(other) - shared
    return shared / union if union else 0.0


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
