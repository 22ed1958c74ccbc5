"""Which documents a question names: words of file names and titles that are theirs, as the texts
show.

Half of what is asked of a library names what it is asked of ("the Boeing report of 2022"), while
few chunks of a document say whose they are. A word names the documents in whose names it stands
when its passages are mostly theirs: `Boeing` does, `state` of a title "The state of packaging" does
not, because everybody's texts say it. Numbers name nothing by themselves and tell namesakes apart:
the year of a report. Documents of one or two chunks gain nothing: their names stand with the
headings of these chunks, and are searched there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from rag_platform.ir import Candidate
from rag_platform.providers.term_analysis import idf
from rag_platform.retrieval.lexical_reranker import RUN, terms_of
from rag_platform.text import segmentation
from rag_platform.text.scripts import FIRST_CJK, has_han

# of a run with letters and digits: FY2022 holds 2022, 2024Q2 holds 2024 and q2
_PIECE = re.compile(
    r"\d{3,}|[^\W\d_]{3,}|[^\W\d_]{1,2}\d{1,2}(?!\d)|\d{1,2}[^\W\d_]{1,2}(?![^\W\d_])"
)
_LONGEST = 40  # characters of a word
_SHARE = 0.6  # of the best document's score that another one needs to be meant, too
_CHUNKS = 3  # that the documents meant have on average
# names with a word that names; one that more of them hold only tells namesakes apart
_HOLDERS = 256
_MOST = 32  # documents that one question may mean; more of them are no choice
_MOSTLY = 3  # chunks of its documents hold a word for one of another document that does
# one in so many chunks of other documents may hold a word that the texts hardly use, and which
# names all the same
_ELSEWHERE = 500
_LEFT = 2  # words with a meaning that a question without its names needs
_REMEMBERED = 64  # sets of documents whose chunks are known


class Catalog(Protocol):
    """What is asked of a release's catalog."""

    def names(self) -> Sequence[tuple[str, str, str, int]]:
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
class Named:
    """The documents that a question names, 0 to 1 each, and their chunks with the same numbers."""

    documents: Mapping[str, float]
    chunks: Mapping[str, float]
    chunk_ids: frozenset[str]  # the same object for the same documents: readers know it again
    words: tuple[str, ...]  # by which they were known, as the question writes them in lower case


class Names:
    """The words by which the documents of a release are known; made once a release, some 10 µs a
    document.
    """

    def __init__(self, catalog: Catalog, index: Words) -> None:
        self._catalog, self._index = catalog, index
        self._documents: list[str] = []
        self._sizes: list[int] = []
        # names that wait for the first question in Chinese, and its dictionary
        self._chinese: list[tuple[int, str]] = []
        words: list[tuple[int, Iterable[str]]] = []
        pairs: list[tuple[int, Iterable[str]]] = []
        for number, (doc_id, filename, title, chunks) in enumerate(catalog.names()):
            self._documents.append(doc_id)
            self._sizes.append(chunks)
            stem = PurePosixPath(filename).stem
            (of_file, file_pairs), (of_title, title_pairs) = (
                said(name, chinese=False) for name in (stem, title)
            )
            words.append((number, of_file | of_title))
            pairs.append((number, {*file_pairs, *title_pairs}))
            if has_han(names := f"{stem}\n{title}"):
                self._chinese.append((number, names))
        self._plain, self._joined = _holders(words), _holders(pairs)
        self._chunks = sum(self._sizes)
        self._telling: dict[tuple[str, tuple[int, ...]], bool] = {}
        self._known: dict[tuple[str, ...], tuple[dict[str, str], frozenset[str]]] = {}

    def named(self, question: str) -> Named | None:
        """What the question names, None for nothing; well under a millisecond once its words have
        been met.
        """
        if len(self._documents) < 2:
            return None
        if self._chinese and has_han(question):
            self._add_chinese()
        meant: dict[int, float] = {}
        told: dict[str, tuple[int, ...]] = {}
        refining: list[tuple[int, ...]] = []
        for word, (asked, holders) in self._found(question).items():
            if word.isdigit() or len(holders) > _HOLDERS:
                refining.append(holders)
            elif len(holders) * 2 <= len(self._documents) and self._tells(asked, holders):
                told[asked] = holders
                for number in holders:
                    meant[number] = meant.get(number, 0.0) + self._rarity(holders)
        for holders in refining if meant else ():
            for number in holders:
                if number in meant:
                    meant[number] += self._rarity(holders)
        best = max(meant.values(), default=0.0)
        kept = sorted(number for number, score in meant.items() if score >= _SHARE * best)
        if (
            not kept
            or len(kept) > _MOST
            or sum(self._sizes[number] for number in kept) < _CHUNKS * len(kept)
        ):
            return None
        scores = {self._documents[number]: round(meant[number] / best, 4) for number in kept}
        owner, chunk_ids = self._inside(tuple(scores))
        words = tuple(word for word, holders in told.items() if not set(kept).isdisjoint(holders))
        return Named(
            scores,
            {chunk_id: scores[doc_id] for chunk_id, doc_id in owner.items()},
            chunk_ids,
            words,
        )

    def _add_chinese(self) -> None:
        words = (
            (
                number,
                {
                    word
                    for run in RUN.findall(names)
                    if run[0] >= FIRST_CJK
                    for word in _chinese_words(run)
                },
            )
            for number, names in self._chinese
        )
        self._plain, self._chinese = self._plain | _holders(words), []

    def _found(self, question: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Word of names in the question: how the question writes it, and whose names hold it."""
        words, pairs = said(question)
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        for word in sorted(words):
            plain, joined = self._plain.get(word, ()), self._joined.get(word, ())
            if plain or joined:
                found[word] = word, tuple(sorted({*plain, *joined})) if joined else plain
        # "Best Buy" of BESTBUY.pdf; of two pairs each word counts by itself
        for pair, written in pairs.items():
            if pair not in found and pair in self._plain:
                found[pair] = written, self._plain[pair]
        return found

    def _tells(self, asked: str, holders: tuple[int, ...]) -> bool:
        """Whether the passages with the word are mostly those of the documents with the name."""
        key = asked, holders
        if key not in self._telling:
            own = sum(self._sizes[number] for number in holders)
            held, few = self._index.holding(asked), (self._chunks - own) // _ELSEWHERE
            if held - own > max(own // _MOSTLY, few):  # so even if all of their passages held it
                self._telling[key] = False
            else:
                inside = self._index.holding(asked, [self._documents[number] for number in holders])
                self._telling[key] = held - inside <= max(inside // _MOSTLY, few)
        return self._telling[key]

    def _rarity(self, holders: Sequence[int]) -> float:
        return idf(len(self._documents), len(holders))

    def _inside(self, documents: tuple[str, ...]) -> tuple[dict[str, str], frozenset[str]]:
        known = self._known.get(documents)
        if known is None:
            owner = {
                chunk_id: doc_id
                for doc_id in documents
                for chunk_id in self._catalog.chunk_ids("doc_id = ?", (doc_id,))
            }
            known = owner, frozenset(owner)
            self._known = {**dict(list(self._known.items())[1 - _REMEMBERED :]), documents: known}
        return known


def _holders(words: Iterable[tuple[int, Iterable[str]]]) -> dict[str, tuple[int, ...]]:
    """Word to the numbers that come with it, in their order."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for number, some in words:
        for word in some:
            found[word].append(number)
    return {word: tuple(numbers) for word, numbers in found.items()}


def _chinese_words(run: str) -> list[str]:
    return [word for word in segmentation.dictionary_terms(run) if len(word) > 1]


def said(text: str, *, chinese: bool = True) -> tuple[set[str], dict[str, str]]:
    """(the words of a name or a question in lower case, two neighbours as one word: as they are
    written apart).

    Without `chinese` no Chinese word is among them, for which a dictionary would be loaded.

    >>> words, pairs = said("Best Buy FY2024Q2")
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
        if len(run) > _LONGEST:
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
    """The question without the words that name documents; as it is where hardly anything would be
    left.

    The chunks of a report say "we" and not the company's name, so its vector is farther from theirs
    than that of the bare question.

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
    return rest if len(terms_of(rest.lower())) >= _LEFT else text


def preferred(
    fused: Sequence[Candidate], named: Mapping[str, float], weight: float
) -> list[Candidate]:
    """The candidates, those of named documents raised by `weight` times the range of the scores
    times how far they are named.
    """
    if not fused:
        return []
    scores = [candidate.score for candidate in fused]
    step = weight * ((max(scores) - min(scores)) or 1.0)
    raised = [
        Candidate(c.chunk_id, round(c.score + step * named.get(c.chunk_id, 0.0), 12), c.source)
        for c in fused
    ]
    return sorted(raised, key=lambda candidate: -candidate.score)  # stable: ties keep their order


def united(first: Sequence[Candidate], more: Sequence[Candidate]) -> list[Candidate]:
    """The candidates of two searches of one leg, each once, best first; their scores are of one
    kind.
    """
    found = {candidate.chunk_id: candidate for candidate in (*more, *first)}
    return sorted(found.values(), key=lambda candidate: (-candidate.score, candidate.chunk_id))
