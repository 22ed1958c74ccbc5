"""Finds the documents that a question names, by the words of their folders, file names and titles.

Half of the questions to a library name a document ("the Boeing report of 2022"), but few chunks
repeat the name of their document. A word of a folder, name or title counts as a mention when most
passages with the word belong to the documents that it names. `Boeing` counts; `state` in the title
"The state of packaging" does not, because texts of other documents use it too. A number alone names
no document, but distinguishes documents with the same name, as the year of a report does. After the
word of a series it names one, though others cite it: `RFC 1034` among names that begin with `RFC`
and other numbers. In a question about a flag (`cp -f`) a whole file name does. Documents of one or
two chunks are ignored: their names are in the headings of these chunks and searched there.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from rag_platform.caching import Cache
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.document_names import Names
from rag_platform.ir import Candidate, split_path
from rag_platform.protocols import LexicalReader
from rag_platform.providers.term_analysis import idf
from rag_platform.query.section_numbers import (
    find_asked_releases,
    find_asked_sections,
    has_release,
    is_about_releases,
    is_in_sections,
)
from rag_platform.retrieval.constants import (
    BEGINNING_WEIGHT,
    FOREIGN_CHUNKS,
    KEPT_NAMED,
    MAX_EXPLAINING,
    MAX_MEANT_CHUNKS,
    MAX_NAMESAKES,
    MAX_SECTION_CHUNKS,
    MEANT_SHARE,
    MIN_MEANT_CHUNKS,
    MIN_TERMS_LEFT,
    OWN_CHUNKS,
)
from rag_platform.retrieval.lexical_reranker import select_terms
from rag_platform.storage.sqlite_files import select_in
from rag_platform.text.entries import find_headings, name_thing
from rag_platform.text.names import (
    find_command_words,
    find_numbered,
    is_about,
    is_whole_name,
    name_words,
)
from rag_platform.text.scripts import FIRST_CJK, has_han


@dataclass(frozen=True, slots=True)
class Mentions:
    """The documents that a question names, their chunks, and how clearly each is named."""

    documents: Mapping[str, float]  # doc_id to 0 to 1
    # chunk_id to the same, and more in the section: 1, or BEGINNING_WEIGHT
    chunks: Mapping[str, float]
    chunk_ids: frozenset[str]  # one object for the same documents, by which readers cache
    section: frozenset[str]  # the chunks of a section that the question names by its number
    words: tuple[str, ...]  # that name them, as written in the question, in lower case

    @property
    def meant(self) -> frozenset[str]:
        return self.section or self.chunk_ids


class DocumentNames:
    """Finds mentions of the documents of one release. Building takes some 10 µs for each document
    whose name is not stored.
    """

    def __init__(self, catalog: CatalogReader, index: LexicalReader) -> None:
        self._catalog, self._index = catalog, index
        stored = catalog.stored_names()
        self._names = Names(stored, catalog.names(changed=stored is not None))
        self._distinctive: dict[tuple[str, int], bool] = {}  # by word and number of its documents
        self._chunks: Cache[tuple[dict[str, str], frozenset[str]]] = Cache(KEPT_NAMED)

    def find_mentions(self, question: str) -> Mentions | None:
        """The documents that the question names, None for none. Takes well under a millisecond once
        its words are cached.
        """
        if explained := self._find_explained(question):
            return explained
        documents, words = self._find_named(question)
        asked = find_asked_sections(question)  # `part 2` may also be a document
        numbers = [number for written, number in asked.items() if written.lower() not in words]
        about_releases = not numbers and is_about_releases(question, words)
        releases = find_asked_releases(question).values() if about_releases else ()
        section = self._find_section(numbers, tuple(documents)) or self._find_releases(
            releases, tuple(documents)
        )
        if releases and not documents:  # `requests 2.10` of several packages with a 2.10
            own = self._find_holders(question)
            section = {it: doc_id for it, doc_id in section.items() if doc_id in own} or section
        if not documents and len(owners := set(section.values())) == 1:
            documents = dict.fromkeys(owners, 1.0)  # the only one with such a section
        if not documents:
            return None
        owner, chunk_ids = self._chunks_of(tuple(documents))
        return Mentions(
            documents,
            {it: documents[doc_id] + (it in section) for it, doc_id in owner.items()},
            chunk_ids,
            frozenset(section),
            words,
        )

    def find_all_named(self, name: str) -> list[str]:
        """The ids of the documents with all words of a name; none if there are too many to read."""
        return self._find_with_all(name_words(name)[0])

    def _find_with_all(self, words: Set[str]) -> list[str]:
        if any(map(has_han, words)):
            self._names.read_chinese()
        holders = self._names.holders(words)
        found = [set(holders[it][0]) if it in holders else set() for it in words]
        meant = set.intersection(*found) if found else set()
        known = self._names.documents(meant if len(meant) <= MAX_NAMESAKES else ())
        return [doc_id for doc_id, _ in known.values()]

    def _find_explained(self, question: str) -> Mentions | None:
        """The documents about the thing of which a question asks what it is (`what is cp?`), with
        their beginnings as the section.
        """
        if not (thing := name_thing(question)) or self._names.count < 2:
            return None
        rows = select_in(
            self._catalog.select,
            "SELECT doc_id, filename, title, source_uri FROM documents WHERE doc_id IN (?)",
            self._find_with_all(thing),
        )
        about = sorted(row[0] for row in rows if is_about(thing, *row[1:]))
        if not 0 < len(about) <= MAX_EXPLAINING:
            return None
        owner, chunk_ids = self._chunks_of(tuple(about))
        begins = select_in(
            self._catalog.select,
            "SELECT chunk_id FROM chunks WHERE chunk_index = 0 AND doc_id IN (?)",
            about,
        )
        first = frozenset(chunk_id for (chunk_id,) in begins)
        return Mentions(
            dict.fromkeys(about, 1.0),
            {it: 1.0 + BEGINNING_WEIGHT * (it in first) for it in owner},
            chunk_ids,
            first,
            (),
        )

    def _find_named(self, question: str) -> tuple[dict[str, float], tuple[str, ...]]:
        """(the documents named by words of the question, these words)."""
        if self._names.count < 2:
            return {}, ()
        if has_han(question):
            self._names.read_chinese()
        naming, scores = self._score(question)
        best = max(scores.values(), default=0.0)
        meant = {number for number, score in scores.items() if score >= MEANT_SHARE * best}
        if not 0 < len(meant) <= MAX_NAMESAKES:
            return {}, ()
        known = self._names.documents(meant)
        chunks = sum(size for _, size in known.values())
        if not MIN_MEANT_CHUNKS * len(meant) <= chunks <= MAX_MEANT_CHUNKS:
            return {}, ()
        by_id = sorted((doc_id, number) for number, (doc_id, _) in known.items())
        documents = {doc_id: round(scores[number] / best, 4) for doc_id, number in by_id}
        words = (word for word, holders in naming.items() if not meant.isdisjoint(holders))
        return documents, tuple(words)

    def _score(self, question: str) -> tuple[dict[str, Sequence[int]], dict[int, float]]:
        """(word that names documents, as written, to their numbers; document to its score, the
        summed rarity of its words).

        Numbers and words of many names only raise documents that another word names.
        """
        naming: dict[str, Sequence[int]] = {}
        refining: list[Sequence[int]] = []
        commands = find_command_words(question)
        for word, (written, holders) in self._find_words(question).items():
            if word.isdigit() or len(holders) > MAX_NAMESAKES:
                refining.append(holders)
            elif len(holders) * 2 <= self._names.count and self._is_distinctive(written, holders):
                naming[written] = holders
            elif word in commands and (owners := self._find_whole_names(commands, holders)):
                naming[written] = owners
        naming |= self._find_numbered(question)
        scores: dict[int, float] = {}
        for holders in naming.values():
            for number in holders:
                scores[number] = scores.get(number, 0.0) + self._rarity(holders)
        for holders in refining:
            for number in scores:
                if _contains(holders, number):
                    scores[number] += self._rarity(holders)
        return naming, scores

    def _find_whole_names(self, words: Set[str], holders: Sequence[int]) -> tuple[int, ...]:
        """Those of the documents whose whole file name stands near a flag, though other texts have
        the word: `cp.txt`, not `scp.txt` nor `git-log.html`, for `what does cp -f do`.
        """
        numbers = {doc_id: it for it, (doc_id, _) in self._names.documents(holders).items()}
        sql = "SELECT doc_id, filename FROM documents WHERE doc_id IN (?)"
        rows = select_in(self._catalog.select, sql, numbers)
        return tuple(sorted(numbers[it] for it, filename in rows if is_whole_name(filename, words)))

    def _find_holders(self, question: str) -> set[str]:
        """The ids of the documents of which a word of the question is part of the name."""
        found = (numbers for _, numbers in self._find_words(question).values())
        few = {it for numbers in found if len(numbers) <= MAX_NAMESAKES for it in numbers}
        return {doc_id for doc_id, _ in self._names.documents(few).values()}

    def _find_words(self, question: str) -> dict[str, tuple[str, Sequence[int]]]:
        """Each word of the question that is part of a name: (how the question writes it, the
        numbers of the documents with such a name).
        """
        words, pairs = name_words(question)
        holders = self._names.holders({*words, *pairs})
        found: dict[str, tuple[str, Sequence[int]]] = {}
        for word in sorted(words & holders.keys()):
            plain, joined = holders[word]
            found[word] = word, tuple(sorted({*plain, *joined})) if joined else plain
        # "Best Buy" for BESTBUY.pdf; a pair in the name matches by its single words
        for pair, written in pairs.items():
            if pair not in found and pair in holders and holders[pair][0]:
                found[pair] = written, holders[pair][0]
        return found

    def _find_numbered(self, question: str) -> dict[str, Sequence[int]]:
        """The documents of each number of a series that the question names."""
        asked = find_numbered(question)
        holders = self._names.holders({key for keys in asked.values() for key in keys})
        found: dict[str, Sequence[int]] = {}
        for written, (series, member) in asked.items():
            if member in holders and len(holders[member][0]) * 2 <= len(holders[series][0]):
                found[written] = holders[member][0]
        return found

    def _is_distinctive(self, word: str, holders: Sequence[int]) -> bool:
        """Whether most passages with the word belong to the documents named by it."""
        key = word, len(holders)
        if key not in self._distinctive:
            documents = self._names.documents(holders).values()
            own = sum(size for _, size in documents)
            every, few = self._index.doc_freq(word), (self._names.chunks - own) // FOREIGN_CHUNKS
            # decided without a second look-up even if all of their passages had the word
            if every - own > max(own // OWN_CHUNKS, few):
                self._distinctive[key] = False
            else:
                inside = self._index.doc_freq(word, [doc_id for doc_id, _ in documents])
                self._distinctive[key] = every - inside <= max(inside // OWN_CHUNKS, few)
        return self._distinctive[key]

    def _find_section(self, asked: Sequence[str], documents: Sequence[str]) -> dict[str, str]:
        """The chunks in or with the section of these numbers, with their documents: the given ones,
        or all of a small release.
        """
        if not asked:
            return {}
        # a cheap test first
        mark = asked[-1][-1] if asked[-1][0] == "第" else asked[-1].split()[-1]
        rows = self._find_chunks(mark, documents)
        return {
            chunk_id: doc_id
            for chunk_id, doc_id, path, text in rows
            if is_in_sections((*split_path(path), *find_headings(text)), asked)
        }

    def _find_releases(self, asked: Collection[str], documents: Sequence[str]) -> dict[str, str]:
        """The same for the sections of releases with these versions."""
        return {
            chunk_id: doc_id
            for version in asked
            # headings of 2 have 2.0
            for chunk_id, doc_id, path, text in self._find_chunks(
                version.rstrip("x") if "." in version else f"{version}.", documents
            )
            if has_release(split_path(path), text, asked)
        }

    def _find_chunks(
        self, mark: str, documents: Sequence[str]
    ) -> Iterable[tuple[str, str, str, str]]:
        """(chunk_id, doc_id, section_path, text) of the chunks with `mark` in path or text, of the
        given documents, or all of a small release.
        """
        if not (documents or self._names.chunks <= MAX_SECTION_CHUNKS):
            return ()
        within = f"doc_id IN ({', '.join('?' * len(documents))})" if documents else "1"
        return self._catalog.select(
            "SELECT chunk_id, doc_id, section_path, chunk_text FROM chunks"
            f" WHERE {within} AND (section_path || chunk_text) LIKE ?",
            (*documents, f"%{mark}%"),
        )

    def _rarity(self, holders: Sequence[int]) -> float:
        return idf(self._names.count, len(holders))

    def _chunks_of(self, documents: tuple[str, ...]) -> tuple[dict[str, str], frozenset[str]]:
        """(chunk_id to doc_id, all chunk ids) of the documents."""
        cached = self._chunks.get(documents)
        if cached is None:
            owner = {
                chunk_id: doc_id
                for doc_id in documents
                for chunk_id in self._catalog.chunk_ids("doc_id = ?", (doc_id,))
            }
            cached = owner, frozenset(owner)
            self._chunks.put(documents, cached)
        return cached


def _contains(ascending: Sequence[int], number: int) -> bool:
    place = bisect_left(ascending, number)
    return place < len(ascending) and ascending[place] == number


def without_names(text: str, words: Sequence[str]) -> str:
    """The question without the words that name documents, unchanged where fewer than MIN_TERMS_LEFT
    terms would be left.

    The chunks of a report say "we", not the company's name, so the name moves the question's vector
    away from theirs.

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
    """The candidates reordered, with those of mentioned documents raised by `weight` x the range of
    the scores x how clearly the document is named.
    """
    if not fused:
        return []
    scores = [candidate.score for candidate in fused]
    step = weight * ((max(scores) - min(scores)) or 1.0)
    raised = [
        Candidate(c.chunk_id, round(c.score + step * mentioned.get(c.chunk_id, 0.0), 12), c.source)
        for c in fused
    ]
    return sorted(raised, key=lambda candidate: -candidate.score)  # stable


def unite(first: Sequence[Candidate], more: Sequence[Candidate]) -> list[Candidate]:
    """The candidates of two searches by one retriever, each once, best first."""
    found = {candidate.chunk_id: candidate for candidate in (*more, *first)}
    return sorted(found.values(), key=lambda candidate: (-candidate.score, candidate.chunk_id))
