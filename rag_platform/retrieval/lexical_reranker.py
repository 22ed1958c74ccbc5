"""A reranker without a model: what the words of a question say about a hit, beside the score that
the fusion gave it.

    fused        the score that the hit came with, min-max over the hits
    sentence     the share of the question's words in the best sentence
    proximity    the share of neighbouring words of the question that stand close to each other
    headings     the share of the question's words in the title and the headings
    phrases      the share of the quoted phrases in text or headings
    identifiers  whether the identifiers stand there exactly: PPR-9087, and least of all only
                 PPR-9088 or PPR-90871

A word weighs by how few of the hits hold it. English words are compared by their stem, Chinese ones
as pairs of characters.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import ClassVar

from rag_platform.ir import Hit, QueryIR
from rag_platform.providers.term_analysis import idf
from rag_platform.retrieval.constants import (
    BESIDE_CHARS,
    LOOSE_IDENTIFIER,
    MAX_PLACES,
    MAX_READ_CHARS,
    MAX_TERMS,
    NEAR_CHARS,
    NEAR_WORTH,
    NO_IDENTIFIER,
)
from rag_platform.retrieval.fusion import min_max
from rag_platform.text.scripts import FIRST_CJK, RUN
from rag_platform.text.sentences import ends_sentence
from rag_platform.text.terms import beginning, is_weak_term, stem
from rag_platform.traits import Traits

_PARTS = re.compile(r"[0-9]+|[a-z]+|[^0-9a-z]")
_YEAR = re.compile(r"[a-z]+(?:19|20)\d\d(?:-\d+)?")


@dataclass(frozen=True)
class Features:
    """The weighted mean of the features that the question has, 0 to 1; a weight of 0 leaves one
    out.

    The weights of words were chosen on half of the questions of two sets (Cranfield, RGB); none of
    six sets loses by them.
    """

    fused: float = 1.0
    sentence: float = 0.2
    proximity: float = 0.2
    headings: float = 0.2
    phrases: float = 1.0
    # an exact one beats another of its kind, whatever else speaks for that one
    identifiers: float = 2.0

    VERSION: ClassVar[str] = "2"
    traits: ClassVar[Traits] = Traits(quick=True)

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0 or sum(astuple(self)) == 0:
            raise ValueError("no weight may be negative, and one must be above 0")

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        """One score a hit, 0 to 1; only those of one call compare, because they depend on each
        other.
        """
        if not hits:
            return []
        written = [hit.chunk_text[:MAX_READ_CHARS] for hit in hits]
        texts = [text.lower() for text in written]
        heads = [f"{hit.doc_title}\n{hit.section_path}".lower() for hit in hits]
        columns = [(self.fused, min_max([hit.score for hit in hits]))]
        if terms := select_terms(query.normalised.lower()):
            columns += zip(
                (self.sentence, self.proximity, self.headings),
                _score_words(terms, written, texts, heads),
                strict=True,
            )
        for weight, wanted, held in (
            (self.phrases, query.phrases, _has_phrase),
            (self.identifiers, query.identifiers, _match_identifier),
        ):
            if wanted:
                columns.append(
                    (
                        weight,
                        [
                            _share(wanted, f"{head}\n{text}", held)
                            for head, text in zip(heads, texts, strict=True)
                        ],
                    )
                )
        total = sum(weight for weight, _ in columns) or 1.0
        return [
            sum([weight * column[i] for weight, column in columns]) / total
            for i in range(len(hits))
        ]


def select_terms(text: str) -> list[str]:
    """The distinct meaningful words of a lower-case question: the beginnings of their forms, and
    pairs of Chinese characters.
    """
    found: dict[str, None] = {}
    for word in RUN.findall(text):
        if word[0] >= FIRST_CJK:
            found.update(
                (word[i : i + 2], None)
                for i in range(len(word) - 1)
                if not is_weak_term(word[i : i + 2])
            )
        elif not is_weak_term(found_stem := stem(word)):
            found[beginning(found_stem) or word] = None
    return list(found)[:MAX_TERMS]


def _score_words(
    terms: Sequence[str], written: Sequence[str], texts: Sequence[str], heads: Sequence[str]
) -> tuple[list[float], list[float], list[float]]:
    """(sentence, proximity, headings) of every text."""
    by_term = [[_places(text, term) if term in text else [] for text in texts] for term in terms]
    rarity = [idf(len(texts), len(texts) - column.count([])) for column in by_term]
    total = sum(rarity)
    beside = [min(pair) for pair in itertools.pairwise(rarity)]
    places = list(zip(*by_term, strict=True))
    return (
        [
            _best_sentence(text, found, rarity) / total
            for text, found in zip(written, places, strict=True)
        ],
        [_closeness(terms, found, beside) / sum(beside) if beside else 0.0 for found in places],
        [
            sum(
                [
                    weight
                    for term, weight in zip(terms, rarity, strict=True)
                    if term in head and _places(head, term, 1)
                ]
            )
            / total
            for head in heads
        ],
    )


def _places(text: str, term: str, most: int = MAX_PLACES) -> list[int]:
    """Where a word begins with the term; anywhere for Chinese."""
    found: list[int] = []
    anywhere = term[0] >= FIRST_CJK
    at = text.find(term)
    while at >= 0:
        if anywhere or at == 0 or not (before := text[at - 1]).isalnum() or before >= FIRST_CJK:
            found.append(at)
            if len(found) == most:
                break
        at = text.find(term, at + 1)
    return found


def _best_sentence(text: str, places: Sequence[Sequence[int]], rarity: Sequence[float]) -> float:
    met = sorted([(place, term) for term, found in enumerate(places) for place in found])
    # a set of terms is a number with a bit for each
    each, held, before = set[int](), 0, 0
    every = sum([1 << term for term, found in enumerate(places) if found])
    for place, term in met:
        if held and _ends_between(text, before, place):
            each.add(held)
            held = 0
        held |= 1 << term
        if held == every:  # no other can have more
            break
        before = place
    return max(
        sum([weight for term, weight in enumerate(rarity) if bits >> term & 1])
        for bits in (*each, held)
    )


def _ends_between(text: str, left: int, right: int) -> bool:
    """True where a line or a sentence ends between two words."""
    return text.find("\n", left, right) >= 0 or ends_sentence(text, left, right + 1)


def _closeness(
    terms: Sequence[str], places: Sequence[Sequence[int]], beside: Sequence[float]
) -> float:
    close = 0.0
    for i, weight in enumerate(beside):
        if places[i] and places[i + 1]:
            gap = min([abs(right - left) for left in places[i] for right in places[i + 1]])
            close += weight * (
                1.0
                if gap <= len(terms[i]) + BESIDE_CHARS
                else NEAR_WORTH
                if gap <= NEAR_CHARS
                else 0.0
            )
    return close


# --- what must stand there as it is written -----------------------------------------------------


def _share(wanted: Sequence[str], text: str, held: Callable[[str, str], float]) -> float:
    return sum(held(item, text) for item in wanted) / len(wanted)


def _has_phrase(phrase: str, text: str) -> bool:
    return " ".join(phrase.lower().split()) in " ".join(text.split())


def _match_identifier(identifier: str, text: str) -> float:
    """1 for an exact match, less without one, and 0 where others of its kind stand instead."""
    name = identifier.lower()
    exact, others = _patterns(name)
    if name in text and exact.search(text):
        return 1.0
    if others is None:
        return LOOSE_IDENTIFIER
    return 0.0 if others.search(text) else NO_IDENTIFIER


@functools.lru_cache(maxsize=256)
def _patterns(name: str) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    """(the identifier, the identifiers of its kind), neither as a part of a longer one.

    Of its kind is what has other digits, or other single letters, in the same places. What names
    many things (M1, 3rd, EMNLP2022, 24-10) has no kind: texts write it in several ways and mean the
    same.
    """
    coded = (
        sum(map(str.isdigit, name)) > 2
        and any(map(str.isalpha, name))
        and not _YEAR.fullmatch(name)
    )
    one_thing = coded or "_" in name
    return _compile_whole(re.escape(name)), (
        _compile_whole("".join(map(_generalise, _PARTS.findall(name)))) if one_thing else None
    )


def _generalise(part: str) -> str:
    return (
        "[0-9]+"
        if part[0].isdigit()
        else "[a-z]"
        if len(part) == 1 and part.isalpha()
        else re.escape(part)
    )


def _compile_whole(pattern: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?<![a-z0-9_])(?<![a-z0-9_][.\-/\\:@]){pattern}(?![a-z0-9_])(?![.\-/\\:@][a-z0-9_])"
    )
