"""A word index in one SQLite file (FTS5): the same terms as every word index here, no engine but
Python's own.

    words.sqlite    chunks(row, chunk_id, doc_id); words(text, headings) and sequences(terms), both
                    FTS5; settings(key, value)

Slower than tantivy: FTS5 scores every chunk that holds any word of the question. Nothing but that
is different: it takes the same questions, and a change leaves the scores of an index built from
nothing, because FTS5 counts present rows only.
"""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.errors import REBUILD, ProviderError
from rag_platform.ir import Candidate, LexicalRow
from rag_platform.providers.engine_errors import engine_errors
from rag_platform.providers.term_analysis import Analysis, WordOptions, phrase_bonus
from rag_platform.storage.sqlite_files import LastingFile
from rag_platform.text import segmentation
from rag_platform.traits import Traits

_FILE = "words.sqlite"
_VERSION = 1
# Terms stand between single spaces, so everything that is no space belongs to a term.
_TOKENIZER = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'"
_TERMS_AT_ONCE = 100  # in one expression; SQLite joins at most 500 selects
_SCORE_DIGITS = 9  # equal chunks tie in spite of rounding


@dataclass(frozen=True)
class Fts5(WordOptions):
    """BM25 (k1 = 1.2, b = 0.75, as FTS5 counts it) over text and headings."""

    NAME: ClassVar[str] = "fts5"
    VERSION: ClassVar[str] = "4"  # changes with the terms of `segmentation` and the tables
    traits: ClassVar[Traits] = Traits()

    def update(
        self, directory: Path, *, removed: Mapping[str, str], rows: Iterable[LexicalRow]
    ) -> None:
        """Delete `removed` (chunk id: doc id), then add `rows`, in one commit."""
        directory.mkdir(parents=True, exist_ok=True)
        analysis = Analysis(self.chinese, segmentation.load_dictionary(self.dictionary))
        new = list(analysis.rows(rows))
        path = directory / _FILE
        first = not path.is_file()
        with closing(sqlite3.connect(path, isolation_level=None)) as db, _engine_errors(path):
            db.execute("PRAGMA secure_delete=ON")
            db.execute("BEGIN IMMEDIATE")
            if first:
                _create(db, self.chinese, analysis.dictionary.words)
            _require(db, self.chinese, analysis.dictionary.words)
            gone = [(chunk_id,) for chunk_id in sorted({*removed, *(row.chunk_id for row in new)})]
            inside = "(SELECT row FROM chunks WHERE chunk_id = ?)"
            for table in ("words", "sequences"):
                db.executemany(f"DELETE FROM {table} WHERE rowid = {inside}", gone)
            dropped = db.executemany("DELETE FROM chunks WHERE chunk_id = ?", gone).rowcount
            for row in sorted(new, key=lambda row: row.chunk_id):
                added = (row.chunk_id, row.doc_id)
                number = db.execute("INSERT INTO chunks VALUES (NULL, ?, ?)", added).lastrowid
                words = (number, row.text, row.headings)
                db.execute("INSERT INTO words (rowid, text, headings) VALUES (?, ?, ?)", words)
                sequence = (number, row.sequence)
                db.execute("INSERT INTO sequences (rowid, terms) VALUES (?, ?)", sequence)
            # FTS5 marks terms as deleted and keeps them until their segment is merged
            if first or dropped > 0:
                for table in ("words", "sequences"):
                    db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
            sys.audit("rag_platform.commit", str(path))
            db.execute("COMMIT")

    def open(self, directory: Path) -> Fts5Reader:
        """A reader of a finished directory. Raises ProviderError when there is no index."""
        return Fts5Reader(directory, self)


class Fts5Reader:
    """An opened word index; thread-safe. It tokenizes questions as the index was tokenized."""

    def __init__(self, directory: Path, options: Fts5) -> None:
        self._path = directory / _FILE
        if not self._path.is_file():
            raise ProviderError(
                f"no word index in {directory.name}; {REBUILD}", code="no_lexical_index"
            )
        self._options = options
        with _engine_errors(self._path):
            self._file = LastingFile(self._path, _name_terms)
            words = _settings(self._file)["dictionary"]
            _require(self._file, options.chinese, tuple(words))
            self._count = int(self._file.execute("SELECT count(*) FROM chunks").fetchone()[0])
        self._analysis = Analysis(options.chinese, segmentation.Dictionary(tuple(words)))

    def count(self) -> int:
        """Number of chunks in the index."""
        return self._count

    def ids(self, among: Collection[str] | None = None) -> set[str]:
        """All chunk ids of the index, or those of the given ones that it has."""
        with _engine_errors(self._path):
            if among is None:
                return {row[0] for row in self._file.execute("SELECT chunk_id FROM chunks")}
            sql = "SELECT chunk_id FROM chunks WHERE chunk_id IN (SELECT value FROM json_each(?))"
            return {row[0] for row in self._file.execute(sql, [json.dumps(list(among))])}

    def search(
        self,
        query: str,
        k: int,
        *,
        expansions: Sequence[tuple[str, float]] = (),
        phrases: Sequence[str] = (),
        chunk_ids: Collection[str] | None = None,
        doc_ids: Collection[str] | None = None,
    ) -> list[Candidate]:
        """At most k candidates by BM25 score, equal scores by chunk_id; the id sets restrict what
        may match.

        Chunks with a phrase rank above chunks with only its words.
        """
        weights = self._analysis.weights(
            query, expansions, identifier_boost=self._options.identifier_boost
        )
        with _engine_errors(self._path):
            parts = [*self._by_words(weights), *self._by_order(query, phrases, weights)]
            if (
                k <= 0
                or not parts
                or (chunk_ids is not None and not chunk_ids)
                or (doc_ids is not None and not doc_ids)
            ):
                return []
            wanted = {"chunk_id": chunk_ids, "doc_id": doc_ids}
            filters = [
                (f" AND {column} IN (SELECT value FROM json_each(?))", json.dumps(list(ids)))
                for column, ids in wanted.items()
                if ids is not None
            ]
            sql = (
                "WITH found (row, score) AS MATERIALIZED"
                f" ({' UNION ALL '.join(sql for sql, _ in parts)}) SELECT chunk_id,"
                f" round(sum(score), {_SCORE_DIGITS}) AS total FROM found JOIN chunks USING (row)"
                f" WHERE true{''.join(sql for sql, _ in filters)} GROUP BY row ORDER BY total DESC,"
                " chunk_id LIMIT ?"
            )
            values = [
                *(value for _, own in parts for value in own),
                *(value for _, value in filters),
                k,
            ]
            return [
                Candidate(chunk_id, float(score), "sparse")
                for chunk_id, score in self._file.execute(sql, values)
            ]

    def _by_words(self, weights: Mapping[str, float]) -> Iterator[tuple[str, list[Any]]]:
        """Selects of (row, score), one for each weight: FTS5 weighs all words alike."""
        by_weight: defaultdict[float, list[str]] = defaultdict(list)
        for term, weight in weights.items():
            by_weight[weight].append(_quote([term]))
        for weight, terms in by_weight.items():
            for start in range(0, len(terms), _TERMS_AT_ONCE):
                expression = " OR ".join(terms[start : start + _TERMS_AT_ONCE])
                sql = "SELECT rowid, -bm25(words, 1.0, ?) * ? FROM words WHERE words MATCH ?"
                yield sql, [self._options.headings_boost, weight, expression]

    def _by_order(
        self, query: str, phrases: Sequence[str], weights: Mapping[str, float]
    ) -> Iterator[tuple[str, list[Any]]]:
        for sequence, own in self._analysis.in_order(query, phrases, weights):
            bonus = phrase_bonus(own, weights, self._rarity)
            sql = "SELECT rowid, ? FROM sequences WHERE sequences MATCH ?"
            yield sql, [bonus, _quote(sequence)]

    def full_match_score(self, query: str) -> float:
        """The score of a text of average length that holds every word of the question once."""
        weights = self._analysis.weights(query, identifier_boost=self._options.identifier_boost)
        with _engine_errors(self._path):
            return sum(weight * self._rarity(term) for term, weight in weights.items())

    def doc_freq(self, words: str, doc_ids: Collection[str] | None = None) -> int:
        """The number of chunks, of the given documents if any, whose text without headings contains
        all of these words.
        """
        terms = list(dict.fromkeys(self._analysis.terms(words)))
        if not terms:
            return 0
        expression = f"text : ({' AND '.join(_quote([term]) for term in terms)})"
        sql, values = "SELECT count(*) FROM words WHERE words MATCH ?", [expression]
        if doc_ids is not None:
            sql += (
                " AND rowid IN (SELECT row FROM chunks WHERE doc_id IN (SELECT value FROM"
                " json_each(?)))"
            )
            values.append(json.dumps(list(doc_ids)))
        with _engine_errors(self._path):
            return int(self._file.execute(sql, values).fetchone()[0])

    def terms_with_prefix(self, beginning: str) -> list[tuple[str, int]]:
        """(word, number of chunks with it) for the words of texts and headings with this prefix."""
        sql = "SELECT term, doc FROM whole WHERE term >= ? AND term < ?"
        with _engine_errors(self._path):
            return list(self._file.execute(sql, (beginning, f"{beginning}\U0010ffff")))

    def _rarity(self, term: str) -> float:
        """The term's idf by FTS5's formula."""
        row = self._file.execute("SELECT doc FROM terms WHERE term = ?", (term,)).fetchone()
        holding = int(row[0]) if row else 0
        return max(1e-6, math.log((self._count - holding + 0.5) / (holding + 0.5)))


def _name_terms(db: sqlite3.Connection) -> None:
    db.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, words, row)")
    db.execute("CREATE VIRTUAL TABLE temp.whole USING fts5vocab(main, sequences, row)")


def _create(db: sqlite3.Connection, chinese: str, words: Sequence[str]) -> None:
    db.execute(f"PRAGMA user_version={_VERSION}")
    db.execute("CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    db.executemany(
        "INSERT INTO settings VALUES (?, ?)",
        [("chinese", json.dumps(chinese)), ("dictionary", json.dumps(words))],
    )
    db.execute(
        "CREATE TABLE chunks (row INTEGER PRIMARY KEY, chunk_id TEXT NOT NULL UNIQUE, doc_id TEXT"
        " NOT NULL)"
    )
    db.execute(f'CREATE VIRTUAL TABLE words USING fts5(text, headings, tokenize="{_TOKENIZER}")')
    db.execute(
        f'CREATE VIRTUAL TABLE sequences USING fts5(terms, columnsize=0, tokenize="{_TOKENIZER}")'
    )


def _require(db: sqlite3.Connection | LastingFile, chinese: str, words: tuple[str, ...]) -> None:
    """Raises ProviderError for an index with another schema or tokenizer."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != _VERSION:
        raise ProviderError(
            f"the word index has schema {version}, this program reads {_VERSION}; {REBUILD}"
        )
    held = _settings(db)
    if held["chinese"] != chinese:
        raise ProviderError(
            f"the word index's schema does not match: its Chinese was cut as {held['chinese']}, not"
            f" {chinese}; {REBUILD}"
        )
    if tuple(held["dictionary"]) != words:
        raise ProviderError(
            f"the word index was cut by another dictionary and takes no changes; {REBUILD}"
        )


def _settings(db: sqlite3.Connection | LastingFile) -> dict[str, Any]:
    return {key: json.loads(value) for key, value in db.execute("SELECT key, value FROM settings")}


def _quote(terms: Sequence[str]) -> str:
    """An FTS5 string: no character in it is an operator."""
    joined = " ".join(terms).replace('"', '""')
    return f'"{joined}"'


@contextmanager
def _engine_errors(path: Path) -> Iterator[None]:
    name = f"the word index {path.parent.name}/{path.name}"
    with engine_errors(f"{name} failed", kinds=(sqlite3.DatabaseError,)):
        try:
            yield
        except sqlite3.OperationalError as error:
            if "no such module: fts5" not in str(error):
                raise
            raise ProviderError(
                "Python's SQLite was built without FTS5; use the word index `tantivy`",
                code="no_fts5",
            ) from error
