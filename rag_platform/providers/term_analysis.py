"""The terms of texts and questions, the same for every engine of word indexes."""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_platform.ir import LexicalRow
from rag_platform.processes.worker import Workers, split_into_tasks
from rag_platform.text import segmentation
from rag_platform.text.scripts import has_han
from rag_platform.text.segmentation import Dictionary
from rag_platform.text.terms import (
    SYMBOL,
    find_symbols,
    fold_terms,
    stem_terms,
    symbol_terms,
)

# separates headings from text; equal to no term, so that no phrase spans both
BREAK = "¶"
_K1 = 1.2  # of BM25, in every engine here
_MAX_SEQUENCES = 64  # of one question
_LATIN_NAME_WEIGHT = 2.0
_ROWS_PER_TASK = 256  # of a child process
_ROWS_AT_ONCE = 8_192
_LATIN = re.compile(r"[a-z]{2,}")


def idf(count: int, doc_freq: float) -> float:
    """BM25's idf of a term in `doc_freq` of `count` texts (Robertson & Zaragoza 2009)."""
    return math.log(1.0 + (count - doc_freq + 0.5) / (doc_freq + 0.5))


@dataclass(frozen=True, slots=True)
class IndexedRow:
    """A chunk in a word index: its terms, separated by spaces."""

    chunk_id: str
    doc_id: str
    text: str
    headings: str
    sequence: str  # headings and text with one term per position, for phrases


@dataclass(frozen=True)
class WordIndexOptions:
    """The options that all word indexes have."""

    chinese: segmentation.Chinese = "pairs"
    dictionary: Sequence[str] | str = ()
    headings_boost: float = 0.5  # Cranfield nDCG@10: 0.504 without, 0.526 with 0.5, 0.510 with 1.0
    identifier_boost: float = 2.0

    def analysis(self, dictionary: Dictionary) -> Analysis:
        """The analysis of texts and questions, with the words of a dictionary."""
        return Analysis(self.chinese, dictionary, self.identifier_boost)

    @staticmethod
    def outside(options: Mapping[str, Any]) -> str:
        """The fingerprint of what the options do not contain: the dictionary file; empty without
        one.
        """
        return segmentation.fingerprint_dictionary(options.get("dictionary", ()))


@dataclass(frozen=True)
class Analysis:
    """Converts texts to terms: English stemmed, accents folded, words of the dictionary whole."""

    chinese: segmentation.Chinese = "pairs"
    dictionary: Dictionary = field(default_factory=Dictionary)
    identifier_boost: float = 1.0

    def row(self, row: LexicalRow) -> IndexedRow:
        """The indexed form of a row."""
        text = " ".join([*self.terms(row.text), *symbol_terms(row.text)])
        headings = " ".join(self.terms(row.headings))
        sequence = " ".join([*self.phrase(row.headings), BREAK, *self.phrase(row.text)])
        return IndexedRow(row.chunk_id, row.doc_id, text, headings, sequence)

    def rows(self, rows: Iterable[LexicalRow]) -> Iterator[IndexedRow]:
        """The indexed form of each row; many rows are tokenized in child processes."""
        remaining = iter(rows)
        with Workers() as workers:
            while some := list(itertools.islice(remaining, _ROWS_AT_ONCE)):
                tasks = [(self, share) for share in split_into_tasks(some, _ROWS_PER_TASK)]
                for share in workers.map(_analyse_rows, tasks):
                    yield from share

    def terms(self, text: str) -> list[str]:
        """The terms of a text, repetitions included."""
        found = segmentation.terms(text, self.chinese)
        if self.dictionary.words:
            found += self.dictionary.terms(unicodedata.normalize("NFKC", text))
        return stem_terms(found)

    def known_terms(self, words: str) -> list[str]:
        """The distinct terms of words; the term of a symbol stands for itself."""
        return [words] if words.startswith(SYMBOL) else list(dict.fromkeys(self.terms(words)))

    def phrase(self, text: str) -> list[str]:
        """The terms of a phrase in order, neither stemmed nor split."""
        return fold_terms(segmentation.sequence(text))

    def sequences(
        self, question: str, phrases: Sequence[str], weights: Mapping[str, float]
    ) -> list[tuple[list[str], list[str]]]:
        """(sequence of terms, those of its terms that are in `weights`) of each phrase, identifier
        and dictionary word of a question, each once.

        A text with the sequence must rank above all texts with only its terms.
        """
        found = {tuple(self.phrase(phrase)): phrase for phrase in phrases}
        found |= {
            tuple(fold_terms(name)): " ".join(name) for name in segmentation.exact_names(question)
        }
        if self.dictionary.words:
            words = self.dictionary.find(unicodedata.normalize("NFKC", question))
            found |= {tuple(self.phrase(word)): word for word in words}
        found.pop((), None)
        return [
            (list(sequence), [term for term in self.terms(text) if term in weights])
            for sequence, text in list(found.items())[:_MAX_SEQUENCES]
        ]

    def weights(
        self, question: str, expansions: Sequence[tuple[str, float]] = ()
    ) -> dict[str, float]:
        """The weight of each term of a question and its expansions; a term of several expansions
        has the weight of the heaviest.

        A Latin word in a Chinese question is a name and counts twice, because Chinese words consist
        of several terms each.
        """
        latin_weight = _LATIN_NAME_WEIGHT if has_han(question) else 1.0
        found = {
            term: (
                count * self._importance(term) * (latin_weight if _LATIN.fullmatch(term) else 1.0)
            )
            for term, count in Counter(self.terms(question) + find_symbols(question)).items()
        }
        own = set(found)
        for text, weight in expansions:
            for term in self.terms(text) if weight > 0 else ():
                if term not in own:
                    found[term] = max(found.get(term, 0.0), weight * self._importance(term))
        return found

    def _importance(self, term: str) -> float:
        return self.identifier_boost if segmentation.is_identifier(term) else 1.0


def _analyse_rows(task: tuple[Analysis, Sequence[LexicalRow]]) -> list[IndexedRow]:
    analysis, rows = task
    return [analysis.row(row) for row in rows]


def phrase_bonus(
    terms: Sequence[str], weights: Mapping[str, float], rarity: Callable[[str], float]
) -> float:
    """A score above what the terms of a phrase can add to a BM25 score; `rarity` is the idf of a
    term, summed over the fields.

    A term adds at most weight * idf * (k1 + 1), so a text with the phrase ranks above all texts
    with only its terms.
    """
    return (_K1 + 1) * sum(weights[term] * rarity(term) for term in dict.fromkeys(terms)) + 1.0
