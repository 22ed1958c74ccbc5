"""A reranker without a model: the weighted mean of lexical features of a hit and its fused score.

    fused        the fused score, min-max scaled over the hits
    sentence     the share of the question's words in the best sentence
    headings     the share of the question's words in the title and the headings
    titles       1 if the question is the title of the text, where it is of one
    phrases      the share of the quoted phrases in text or headings
    identifiers  1 for an exact identifier (PPR-9087), 0 where the text has only others of its form
                 (PPR-9088 or PPR-90871)

Words are weighted by their rarity among the hits. English words are compared by their stem, Chinese
ones as pairs of characters.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import ClassVar

from rag_platform.ir import Hit, QueryIR
from rag_platform.providers.term_analysis import idf
from rag_platform.query.analysis import subject_of
from rag_platform.retrieval.constants import (
    LOOSE_IDENTIFIER,
    MAX_PLACES,
    MAX_READ_CHARS,
    MAX_TERMS,
    NO_IDENTIFIER,
)
from rag_platform.retrieval.fusion import min_max
from rag_platform.text.entries import is_titled, join_headings
from rag_platform.text.scripts import FIRST_CJK, RUN
from rag_platform.text.sentences import ends_sentence
from rag_platform.text.terms import is_weak_term, stem, stem_prefix
from rag_platform.traits import Traits

_PARTS = re.compile(r"[0-9]+|[a-z]+|[^0-9a-z]")
_YEAR = re.compile(r"[a-z]+(?:19|20)\d\d(?:-\d+)?")


@dataclass(frozen=True)
class Features:
    """The weights of the features; features that do not apply to a question are left out.

    The weights of words were chosen on half of the questions of two sets (Cranfield, RGB); none of
    six sets loses by them.
    """

    fused: float = 1.0
    sentence: float = 0.2
    headings: float = 0.2
    phrases: float = 1.0
    titles: float = 1.0
    # high enough for an exact identifier to outweigh all other features
    identifiers: float = 2.0

    VERSION: ClassVar[str] = "6"
    traits: ClassVar[Traits] = Traits(quick=True)

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0 or sum(astuple(self)) == 0:
            raise ValueError("no weight may be negative, and one must be above 0")

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        """One score for each hit, 0 to 1, comparable only within one call."""
        if not hits:
            return []
        originals = [hit.chunk_text[:MAX_READ_CHARS] for hit in hits]
        texts = [text.lower() for text in originals]
        heads = [
            join_headings(hit.doc_title, hit.section_path, text).lower()
            for hit, text in zip(hits, originals, strict=True)
        ]
        columns = [(self.fused, min_max([hit.score for hit in hits]))]
        if terms := select_terms((query.translated or query.normalised).lower()):
            columns += zip(
                (self.sentence, self.headings),
                _score_words(terms, originals, texts, heads),
                strict=True,
            )
            titles = _find_titled(terms, query, hits, texts)
            if any(titles):
                columns.append((self.titles, titles))
        wholes = [f"{head}\n{text}" for head, text in zip(heads, texts, strict=True)]
        for weight, wanted, match in (
            (self.phrases, query.phrases, _has_phrase),
            (self.identifiers, query.identifiers, _match_identifier),
        ):
            if wanted:
                means = [
                    sum(match(item, whole) for item in wanted) / len(wanted) for whole in wholes
                ]
                columns.append((weight, means))
        total = sum(weight for weight, _ in columns) or 1.0
        return [
            sum([weight * column[i] for weight, column in columns]) / total
            for i in range(len(hits))
        ]


def select_terms(text: str) -> list[str]:
    """The distinct meaningful terms of a lower-case question: common prefixes of English words'
    inflected forms, and pairs of Chinese characters.
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
            found[stem_prefix(found_stem) or word] = None
    return list(found)[:MAX_TERMS]


def _score_words(
    terms: Sequence[str], originals: Sequence[str], texts: Sequence[str], heads: Sequence[str]
) -> tuple[list[float], list[float]]:
    """(sentence, headings) of all texts; `texts` and `heads` are in lower case."""
    by_term = [[_places(text, term) if term in text else [] for text in texts] for term in terms]
    rarity = [idf(len(texts), len(texts) - column.count([])) for column in by_term]
    total = sum(rarity)
    places = list(zip(*by_term, strict=True))
    return (
        [
            _best_sentence(text, found, rarity) / total
            for text, found in zip(originals, places, strict=True)
        ],
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


def _find_titled(
    terms: Sequence[str], query: QueryIR, hits: Sequence[Hit], texts: Sequence[str]
) -> list[float]:
    """1 for each hit with the question as a title, 0 for others."""
    question = subject_of(query)
    return [
        float(
            all(term in text or term in hit.section_path.lower() for term in terms)
            and is_titled(question, hit.section_path, hit.chunk_text[:MAX_READ_CHARS])
        )
        for hit, text in zip(hits, texts, strict=True)
    ]


def _places(text: str, term: str, most: int = MAX_PLACES) -> list[int]:
    """The first `most` positions of words that begin with the term; for Chinese, of the term."""
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
    """The greatest sum of the rarities of the terms in one sentence."""
    matches = sorted([(place, term) for term, found in enumerate(places) for place in found])
    # sets of terms are bit masks
    sentences, current, before = set[int](), 0, 0
    every = sum([1 << term for term, found in enumerate(places) if found])
    for place, term in matches:
        if current and _ends_between(text, before, place):
            sentences.add(current)
            current = 0
        current |= 1 << term
        if current == every:  # no other sentence can have more
            break
        before = place
    return max(
        sum([weight for term, weight in enumerate(rarity) if bits >> term & 1])
        for bits in (*sentences, current)
    )


def _ends_between(text: str, left: int, right: int) -> bool:
    """True where a line or a sentence ends between two words."""
    return text.find("\n", left, right) >= 0 or ends_sentence(text, left, right + 1)


# --- exact matches ------------------------------------------------------------------------------


def _has_phrase(phrase: str, text: str) -> bool:
    return " ".join(phrase.lower().split()) in " ".join(text.split())


def _match_identifier(identifier: str, text: str) -> float:
    """1 for an exact match, 0 where the text only has others of its form, else in between."""
    name = identifier.lower()
    exact, others = _patterns(name)
    if name in text and exact.search(text):
        return 1.0
    if others is None:
        return LOOSE_IDENTIFIER
    return 0.0 if others.search(text) else NO_IDENTIFIER


@functools.lru_cache(maxsize=256)
def _patterns(name: str) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    """Patterns of (the identifier, identifiers of its form), neither as part of a longer one.

    Identifiers of one form differ only in digits or in single letters. The second is None for what
    texts write in several ways (M1, 3rd, EMNLP2022, 24-10).
    """
    coded = (
        sum(map(str.isdigit, name)) > 2
        and any(map(str.isalpha, name))
        and not _YEAR.fullmatch(name)
    )
    has_form = coded or "_" in name
    return _compile_whole(re.escape(name)), (
        _compile_whole("".join(map(_generalise, _PARTS.findall(name)))) if has_form else None
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
