"""The signals of one search from which the probability of an answer is estimated."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

from rag_platform.ir import Candidate, Hit, QueryIR, split_path
from rag_platform.protocols import LexicalReader
from rag_platform.providers.term_analysis import idf
from rag_platform.query.analysis import subject_of
from rag_platform.query.section_numbers import (
    find_asked_releases,
    find_release_words,
    has_release,
    is_about_releases,
)
from rag_platform.retrieval.constants import MARGIN_RANK, MIN_POOL, OTHER_TEXTS
from rag_platform.retrieval.editions import find_named_edition, name_document, read_edition
from rag_platform.retrieval.fusion import z_score
from rag_platform.retrieval.retrievers import Retrieved
from rag_platform.text import segmentation
from rag_platform.text.entries import join_headings
from rag_platform.text.scripts import is_wide
from rag_platform.text.term_overlap import QuestionTerms, Word, question_terms, question_words
from rag_platform.text.terms import stem, stemmed_terms, stop_terms

_SITE = re.compile(r"\]\(\w+://[^()\s]*\)")
# words that ask for a comparison, which the texts about the compared things seldom have
_COMPARING = "difference between differ compare comparison versus vs 区别 差别 差异 不同".split()


@dataclass(frozen=True, slots=True)
class WeighedWord:
    """A word of a search, weighted by its rarity in the library."""

    word: Word
    weight: float
    absent: bool | None  # from all texts of the library; None where not known


@dataclass(frozen=True, slots=True)
class SearchSignals:
    """The signals of one search, of the question or of a phrasing; None for one that could not be
    measured.
    """

    # score of the best sparse candidate / sum of the rarities of all words
    sparse_reach: float | None
    # (score of the best sparse candidate - score of the tenth) / score of the best
    sparse_margin: float | None
    # standard score of the best dense candidate
    dense_standing: float | None
    words: tuple[WeighedWord, ...]
    terms: QuestionTerms
    wide: bool  # in Chinese, Japanese or Korean

    def without(self, words: Collection[str]) -> SearchSignals:
        """The same without some words, unless there are no others."""
        rest = tuple(item for item in self.words if item.word.text not in words)
        return replace(self, words=rest or self.words)

    @property
    def words_absent(self) -> float | None:
        """The share of the words, weighted by rarity, that are in no text of the library."""
        total = sum(item.weight for item in self.words if item.absent is not None)
        return sum(item.weight for item in self.words if item.absent) / total if total else None

    def words_found(self, texts: Sequence[str]) -> float | None:
        """The share of the words, weighted by rarity, in the text that has most of them."""
        total = sum(item.weight for item in self.words)
        if not total:
            return None
        present = [self.terms.find_in(text) for text in texts]
        found = [sum(w.weight * w.word.share_in(terms) for w in self.words) for terms in present]
        return max(found, default=0.0) / total


def measure_signals(index: LexicalReader | None, query: QueryIR, found: Retrieved) -> SearchSignals:
    """The signals of a search. Without a word index all words have equal weight."""
    subject = subject_of(query)
    if query.translated:
        subject = f"{query.translated} {query.untranslated}"
    reach = margin = None
    if index is not None and "sparse" in found.ran:
        words = _weigh_words(index, subject)
        total = sum(item.weight for item in words)
        if not found.sparse:
            reach = margin = 0.0
        elif index.count() >= MIN_POOL:
            best = found.sparse[0].score
            reach = best / total if total else None
            if len(found.sparse) > 1:
                margin = (best - found.sparse[:MARGIN_RANK][-1].score) / best
    else:
        words = tuple(WeighedWord(word, 1.0, None) for word in _list_words(subject))
    wide = is_wide(query.translated or subject)
    return SearchSignals(
        reach, margin, _standing(found.dense), words, question_terms(subject), wide
    )


def find_choosing(question: str, hits: Sequence[Hit]) -> frozenset[str]:
    """The words of a question that name the release or edition that the first hit is from, or, if
    it is about that release as a whole, any of the hits: their texts seldom repeat these words.
    """
    chosen = list[str]()
    for hit in hits[:1]:
        named = " ".join(name_document(hit.source_uri, hit.doc_title))
        asked = find_named_edition(question, named)
        if asked and asked.fits(read_edition(hit.source_uri, hit.doc_title)):
            chosen = [asked.written, "version edition release 年版 版本"]
    releases = find_asked_releases(question)
    read = () if not releases else hits if is_about_releases(question) else hits[:1]
    if any(
        has_release(split_path(it.section_path), it.chunk_text, releases.values()) for it in read
    ):
        chosen = [*releases]
    return frozenset(word.text for word in question_words(" ".join(chosen)))


def _weigh_words(index: LexicalReader, text: str) -> tuple[WeighedWord, ...]:
    """The words with their rarity in the library, smoothed by OTHER_TEXTS virtual texts, since few
    texts say little about which words are rare.
    """
    count = index.count() + OTHER_TEXTS
    # unstemmed, because the index stems its input, and a stem may be stemmed again: licens, licen
    unstemmed = {stem(term): term for term in segmentation.terms(text)}
    weighed = []
    for word in _list_words(text):
        frequency = min(index.doc_freq(unstemmed.get(part, part)) for part in word.parts)
        others = OTHER_TEXTS / 2 if word.text in stop_terms() else 0
        weighed.append(WeighedWord(word, idf(count, frequency + others), frequency == 0))
    return tuple(weighed)


def _list_words(text: str) -> tuple[Word, ...]:
    """The meaningful words of a search without those that ask for a comparison, or for what changed
    in a release or when it was published.
    """
    words, asking = question_words(text), _comparing()
    if is_about_releases(text):
        asking |= {word.text for word in question_words(" ".join(find_release_words(text)))}
    return tuple(word for word in words if word.text not in asking) or words


@cache
def _comparing() -> frozenset[str]:
    """The words that ask for a comparison as terms of the word index."""
    return frozenset(term for word in _COMPARING for term in (word, *stemmed_terms(word)))


def _standing(dense: Sequence[Candidate]) -> float | None:
    scores = [candidate.score for candidate in dense]
    if len(scores) < MIN_POOL or min(scores) == max(scores):
        return None
    return z_score(scores)[0]


def with_headings(hit: Hit) -> str:
    """The text of a passage below its title, its headings and the names of what it describes,
    without the addresses of other sites in its links, which no reader sees.
    """
    above = join_headings(hit.doc_title, hit.section_path, hit.chunk_text)
    return f"{above}\n{_SITE.sub(']', hit.chunk_text)}"


def name_place(hit: Hit) -> str:
    """The title, the headings and the address of a passage."""
    return f"{hit.doc_title}\n{hit.section_path}\n{hit.source_uri}"


def with_place(hit: Hit) -> str:
    """The text of a passage below its title, its headings and its address."""
    return f"{name_place(hit)}\n{hit.chunk_text}"
