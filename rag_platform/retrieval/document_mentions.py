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
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from rag_platform.caching import Cache
from rag_platform.ir import Candidate
from rag_platform.providers.term_analysis import idf
from rag_platform.retrieval.constants import (
    FOREIGN_CHUNKS,
    KEPT_NAMED,
    MAX_MEANT,
    MAX_NAME_CHARS,
    MAX_NAMESAKES,
    MEANT_SHARE,
    MIN_MEANT_CHUNKS,
    MIN_TERMS_LEFT,
    OWN_CHUNKS,
)
from rag_platform.retrieval.lexical_reranker import RUN, select_terms
from rag_platform.text import segmentation
from rag_platform.text.scripts import FIRST_CJK, has_han

# of a run with letters and digits: FY2022 holds 2022, 2024Q2 holds 2024 and q2
_PIECE = re.compile(
    r"\d{3,}|[^\W\d_]{3,}|[^\W\d_]{1,2}\d{1,2}(?!\d)|\d{1,2}[^\W\d_]{1,2}(?![^\W\d_])"
)


class Catalog(Protocol):
    """What is asked of a release's catalog."""

    def names(self) -> Iterable[tuple[str, str, str, int]]:
        """(doc_id, filename, title, number of chunks) of every document."""
        ...

    def chunk_ids(self, where: str = "1", params: Sequence[str] = ()) -> list[str]:
        """Ids of the chunks that satisfy a condition."""
        ...


class Words(Protocol):
    """What is asked of a release's word index."""

    def holding(self, words: str, doc_ids: Collection[str] | None = None) -> int:
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
    """The words by which the documents of a release are known; made once a release, some 10 µs a
    document.
    """

    def __init__(self, catalog: Catalog, index: Words) -> None:
        self._catalog, self._index = catalog, index
        self._documents: list[str] = []
        self._sizes = array("I")
        # names that wait for the first question in Chinese, and its dictionary
        self._chinese: list[tuple[int, str]] = []
        self._plain, self._joined = _Holders(), _Holders()
        for number, (doc_id, filename, title, chunks) in enumerate(catalog.names()):
            self._documents.append(doc_id)
            self._sizes.append(chunks)
            stem = PurePosixPath(filename).stem
            (of_file, file_pairs), (of_title, title_pairs) = (
                name_words(name, chinese=False) for name in (stem, title)
            )
            self._plain.add(number, of_file | of_title)
            self._joined.add(number, {*file_pairs, *title_pairs})
            if has_han(names := f"{stem}\n{title}"):
                self._chinese.append((number, names))
        self._chunks = sum(self._sizes)
        self._telling: dict[tuple[str, int], bool] = {}  # by word and number of its documents
        self._known: Cache[tuple[dict[str, str], frozenset[str]]] = Cache(KEPT_NAMED)

    def find_mentions(self, question: str) -> Mentions | None:
        """The documents that the question names, None for none; well under a millisecond once its
        words have been met.
        """
        if len(self._documents) < 2:
            return None
        if self._chinese and has_han(question):
            self._add_chinese()
        naming, scores = self._score(question)
        best = max(scores.values(), default=0.0)
        meant = sorted(number for number, score in scores.items() if score >= MEANT_SHARE * best)
        chunks = sum(self._sizes[number] for number in meant)
        if not meant or len(meant) > MAX_MEANT or chunks < MIN_MEANT_CHUNKS * len(meant):
            return None
        documents = {self._documents[number]: round(scores[number] / best, 4) for number in meant}
        owner, chunk_ids = self._chunks_of(tuple(documents))
        return Mentions(
            documents,
            {chunk_id: documents[doc_id] for chunk_id, doc_id in owner.items()},
            chunk_ids,
            tuple(word for word, holders in naming.items() if not set(meant).isdisjoint(holders)),
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
            elif len(holders) * 2 <= len(self._documents) and self._tells(written, holders):
                naming[written] = holders
        scores: dict[int, float] = {}
        for holders in naming.values():
            for number in holders:
                scores[number] = scores.get(number, 0.0) + self._rarity(holders)
        for holders in refining:
            for number in scores.keys() & set(holders):
                scores[number] += self._rarity(holders)
        return naming, scores

    def _add_chinese(self) -> None:
        found = _Holders()
        for number, names in self._chinese:
            runs = (run for run in RUN.findall(names) if run[0] >= FIRST_CJK)
            found.add(number, {word for run in runs for word in _chinese_words(run)})
        self._plain, self._chinese = _Holders(self._plain | found), []

    def _find_words(self, question: str) -> dict[str, tuple[str, Sequence[int]]]:
        """Word of names in the question: how the question writes it, and whose names hold it."""
        words, pairs = name_words(question)
        found: dict[str, tuple[str, Sequence[int]]] = {}
        for word in sorted(words):
            plain, joined = self._plain.get(word, ()), self._joined.get(word, ())
            if plain or joined:
                found[word] = word, tuple(sorted({*plain, *joined})) if joined else plain
        # "Best Buy" of BESTBUY.pdf; of two pairs each word counts by itself
        for pair, written in pairs.items():
            if pair not in found and pair in self._plain:
                found[pair] = written, self._plain[pair]
        return found

    def _tells(self, word: str, holders: Sequence[int]) -> bool:
        """Whether the passages with the word are mostly those of the documents with the name."""
        key = word, len(holders)
        if key not in self._telling:
            own = sum(self._sizes[number] for number in holders)
            held, few = self._index.holding(word), (self._chunks - own) // FOREIGN_CHUNKS
            if held - own > max(own // OWN_CHUNKS, few):  # so even if all of their passages held it
                self._telling[key] = False
            else:
                inside = self._index.holding(word, [self._documents[number] for number in holders])
                self._telling[key] = held - inside <= max(inside // OWN_CHUNKS, few)
        return self._telling[key]

    def _rarity(self, holders: Sequence[int]) -> float:
        return idf(len(self._documents), len(holders))

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


class _Holders(dict[str, "array[int]"]):
    """Word to the numbers of the documents in whose names it stands, ascending; some bytes for
    each.
    """

    def add(self, number: int, words: Iterable[str]) -> None:
        """Note the words of a document."""
        for word in words:
            if (holders := self.get(word)) is None:
                self[word] = holders = array("I")
            holders.append(number)


def _chinese_words(run: str) -> list[str]:
    return [word for word in segmentation.dictionary_terms(run) if len(word) > 1]


def name_words(text: str, *, chinese: bool = True) -> tuple[set[str], dict[str, str]]:
    """(the words of a name or a question in lower case, two neighbours as one word: as they are
    written apart).

    Without `chinese` no Chinese word is among them, for which a dictionary would be loaded.

    >>> words, pairs = name_words("Best Buy FY2024Q2")
    >>> sorted(words), pairs["bestbuy"]
    (['2024', 'best', 'buy', 'fy2024q2', 'q2'], 'best buy')
    """
    words: set[str] = set()
    pairs: dict[str, str] = {}
    before = ""
    for run in RUN.findall(text.lower()):
        if run[0] >= FIRST_CJK:
            words.update(_chinese_words(run) if chinese else ())
            before = ""
            continue
        if len(run) > MAX_NAME_CHARS:
            before = ""
            continue
        if run.isalpha():
            if len(run) > 1:
                words.add(run)
        else:
            words.update(_PIECE.findall(run))
            if not run.isdigit():
                words.add(run)
        if before and run.isalpha():
            pairs[before + run] = f"{before} {run}"
        before = run if run.isalpha() else ""
    return words, pairs


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
