"""Finds the documents that a question names, by the words of their file names and titles.

Half of the questions to a library name a document ("the Boeing report of 2022"), but few chunks
repeat the name of their document. A word of a name or title counts as a mention when most passages
with the word belong to the documents that it names. `Boeing` counts; `state` in the title "The
state of packaging" does not, because texts of other documents use it too. A number alone names
nothing, but tells namesakes apart, as the year of a report does. Documents of one or two chunks
gain nothing: their names are in the headings of these chunks and are searched there.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rag_platform.caching import Cache
from rag_platform.indexes.document_names import Name, Names, StoredNames
from rag_platform.ir import Candidate
from rag_platform.providers.term_analysis import idf
from rag_platform.retrieval.constants import (
    FOREIGN_CHUNKS,
    KEPT_NAMED,
    MAX_MEANT,
    MAX_NAMESAKES,
    MEANT_SHARE,
    MIN_MEANT_CHUNKS,
    MIN_TERMS_LEFT,
    OWN_CHUNKS,
)
from rag_platform.retrieval.lexical_reranker import select_terms
from rag_platform.text.names import name_words
from rag_platform.text.scripts import FIRST_CJK, has_han


class Catalog(Protocol):
    """What is asked of a release's catalog."""

    def stored_names(self) -> StoredNames | None:
        """The names of its base as they are stored, None where they are not."""
        ...

    def names(self, *, changed: bool = False) -> Iterable[Name]:
        """Those of every document, or of those that came or changed since the base was written."""
        ...

    def chunk_ids(self, where: str = "1", params: Sequence[str] = ()) -> list[str]:
        """Ids of the chunks that satisfy a condition."""
        ...


class Words(Protocol):
    """What is asked of a release's word index."""

    def doc_freq(self, words: str, doc_ids: Collection[str] | None = None) -> int:
        """How many chunks hold all of these words; those of some documents alone where they are
        given.
        """
        ...


@dataclass(frozen=True, slots=True)
class Mentions:
    """The documents that a question names, 0 to 1 each, and their chunks with the same numbers."""

    documents: Mapping[str, float]
    chunks: Mapping[str, float]
    chunk_ids: frozenset[str]  # the same object for the same documents: readers know it again
    words: tuple[str, ...]  # by which they were known, as the question writes them in lower case


class DocumentNames:
    """The words by which the documents of a release are known; made once a release, some 10 µs for
    each document whose name is not stored.
    """

    def __init__(self, catalog: Catalog, index: Words) -> None:
        self._catalog, self._index = catalog, index
        stored = catalog.stored_names()
        self._names = Names(stored, catalog.names(changed=stored is not None))
        self._telling: dict[tuple[str, int], bool] = {}  # by word and number of its documents
        self._known: Cache[tuple[dict[str, str], frozenset[str]]] = Cache(KEPT_NAMED)

    def find_mentions(self, question: str) -> Mentions | None:
        """The documents that the question names, None for none; well under a millisecond once its
        words have been met.
        """
        if self._names.count < 2:
            return None
        if has_han(question):
            self._names.read_chinese()
        naming, scores = self._score(question)
        best = max(scores.values(), default=0.0)
        meant = {number for number, score in scores.items() if score >= MEANT_SHARE * best}
        if not 0 < len(meant) <= MAX_MEANT:
            return None
        known = self._names.documents(meant)
        if sum(size for _, size in known.values()) < MIN_MEANT_CHUNKS * len(meant):
            return None
        by_id = sorted((doc_id, number) for number, (doc_id, _) in known.items())
        documents = {doc_id: round(scores[number] / best, 4) for doc_id, number in by_id}
        owner, chunk_ids = self._chunks_of(tuple(documents))
        return Mentions(
            documents,
            {chunk_id: documents[doc_id] for chunk_id, doc_id in owner.items()},
            chunk_ids,
            tuple(word for word, holders in naming.items() if not meant.isdisjoint(holders)),
        )

    def _score(self, question: str) -> tuple[dict[str, Sequence[int]], dict[int, float]]:
        """(word that names documents, as it was written: these; document: the rarity of its words).

        Numbers and words of many names count for documents that another word names.
        """
        naming: dict[str, Sequence[int]] = {}
        refining: list[Sequence[int]] = []
        for word, (written, holders) in self._find_words(question).items():
            if word.isdigit() or len(holders) > MAX_NAMESAKES:
                refining.append(holders)
            elif len(holders) * 2 <= self._names.count and self._tells(written, holders):
                naming[written] = holders
        scores: dict[int, float] = {}
        for holders in naming.values():
            for number in holders:
                scores[number] = scores.get(number, 0.0) + self._rarity(holders)
        for holders in refining:
            for number in scores:
                if _holds(holders, number):
                    scores[number] += self._rarity(holders)
        return naming, scores

    def _find_words(self, question: str) -> dict[str, tuple[str, Sequence[int]]]:
        """Word of names in the question: how the question writes it, and whose names hold it."""
        words, pairs = name_words(question)
        held = self._names.holders({*words, *pairs})
        found: dict[str, tuple[str, Sequence[int]]] = {}
        for word in sorted(words & held.keys()):
            plain, joined = held[word]
            found[word] = word, tuple(sorted({*plain, *joined})) if joined else plain
        # "Best Buy" of BESTBUY.pdf; of two pairs each word counts by itself
        for pair, written in pairs.items():
            if pair not in found and pair in held and held[pair][0]:
                found[pair] = written, held[pair][0]
        return found

    def _tells(self, word: str, holders: Sequence[int]) -> bool:
        """Whether the passages with the word are mostly those of the documents with the name."""
        key = word, len(holders)
        if key not in self._telling:
            documents = self._names.documents(holders).values()
            own = sum(size for _, size in documents)
            held, few = self._index.doc_freq(word), (self._names.chunks - own) // FOREIGN_CHUNKS
            if held - own > max(own // OWN_CHUNKS, few):  # so even if all of their passages held it
                self._telling[key] = False
            else:
                inside = self._index.doc_freq(word, [doc_id for doc_id, _ in documents])
                self._telling[key] = held - inside <= max(inside // OWN_CHUNKS, few)
        return self._telling[key]

    def _rarity(self, holders: Sequence[int]) -> float:
        return idf(self._names.count, len(holders))

    def _chunks_of(self, documents: tuple[str, ...]) -> tuple[dict[str, str], frozenset[str]]:
        known = self._known.get(documents)
        if known is None:
            owner = {
                chunk_id: doc_id
                for doc_id in documents
                for chunk_id in self._catalog.chunk_ids("doc_id = ?", (doc_id,))
            }
            known = owner, frozenset(owner)
            self._known.put(documents, known)
        return known


def _holds(numbers: Sequence[int], number: int) -> bool:
    """Whether a number is among ascending ones."""
    place = bisect_left(numbers, number)
    return place < len(numbers) and numbers[place] == number


def without_names(text: str, words: Sequence[str]) -> str:
    """The question without the words that name documents, or unchanged where hardly a word would be
    left.

    The chunks of a report say "we", not the company's name. The vector of the question with the
    name is therefore farther from theirs.

    >>> without_names("What drove Best Buy's sales of home theaters?", ["best buy"])
    'What drove sales of home theaters?'
    """
    forms = [
        re.escape(word) if word[0] >= FIRST_CJK else rf"(?<!\w){re.escape(word)}(?:['’]s)?(?!\w)"
        for word in words
    ]
    rest = (
        " ".join(
            re.sub(
                "|".join(sorted(forms, key=len, reverse=True)), " ", text, flags=re.IGNORECASE
            ).split()
        )
        if forms
        else text
    )
    return rest if len(select_terms(rest.lower())) >= MIN_TERMS_LEFT else text


def prefer_mentioned(
    fused: Sequence[Candidate], mentioned: Mapping[str, float], weight: float
) -> list[Candidate]:
    """The candidates, those of mentioned documents raised by `weight` times the range of the
    scores times how far they are named.
    """
    if not fused:
        return []
    scores = [candidate.score for candidate in fused]
    step = weight * ((max(scores) - min(scores)) or 1.0)
    raised = [
        Candidate(c.chunk_id, round(c.score + step * mentioned.get(c.chunk_id, 0.0), 12), c.source)
        for c in fused
    ]
    return sorted(raised, key=lambda candidate: -candidate.score)  # stable: ties keep their order


def unite(first: Sequence[Candidate], more: Sequence[Candidate]) -> list[Candidate]:
    """The candidates of two searches by one retriever, each once, best first."""
    found = {candidate.chunk_id: candidate for candidate in (*more, *first)}
    return sorted(found.values(), key=lambda candidate: (-candidate.score, candidate.chunk_id))
