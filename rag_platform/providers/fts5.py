"""A word index in one SQLite file (FTS5), with the same terms as tantivy's and no engine besides
Python's own.

    words.sqlite    chunks(row, chunk_id, doc_id); words(text, headings) and sequences(terms), both
                    FTS5; settings(key, value)

It is slower than tantivy, because FTS5 scores every chunk with any word of the question. After a
change, scores equal those of an index built from scratch, because FTS5 only counts present rows.
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
from rag_platform.providers.term_analysis import (
    WordIndexOptions,
    phrase_bonus,
)
from rag_platform.storage.sqlite_files import LastingFile
from rag_platform.text import segmentation
from rag_platform.traits import Traits

_FILE = "words.sqlite"
_VERSION = 1
# terms are separated by single spaces; all other characters belong to terms
_TOKENIZER = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'"
_TERMS_AT_ONCE = 100  # in one expression; SQLite joins at most 500 selects
_AMONG = "WHERE chunk_id IN (SELECT value FROM json_each(?))"
_SCORE_DIGITS = 9  # equal chunks tie in spite of rounding


@dataclass(frozen=True)
class Fts5(WordIndexOptions):
    """BM25 (k1 = 1.2, b = 0.75, as FTS5 counts it) over text and headings."""

    VERSION: ClassVar[str] = "9"  # changes with the terms of `segmentation`, rows and tables
    traits: ClassVar[Traits] = Traits()

    def update(
        self, directory: Path, *, removed: Mapping[str, str], rows: Iterable[LexicalRow]
    ) -> None:
        """See protocols.LexicalIndex; in one commit."""
        directory.mkdir(parents=True, exist_ok=True)
        analysis = self.analysis(segmentation.load_dictionary(self.dictionary))
        new = list(analysis.rows(rows))
        path = directory / _FILE
        first = not path.is_file()
        with closing(sqlite3.connect(path, isolation_level=None)) as db, _engine_errors(path):
            db.execute("PRAGMA secure_delete=ON")
            db.execute("BEGIN IMMEDIATE")
            if first:
                _create(db, self.chinese, analysis.dictionary.words)
            _require(db, self.chinese, analysis.dictionary.words)
            old = [(chunk_id,) for chunk_id in sorted({*removed, *(row.chunk_id for row in new)})]
            selected = "(SELECT row FROM chunks WHERE chunk_id = ?)"
            for table in ("words", "sequences"):
                db.executemany(f"DELETE FROM {table} WHERE rowid = {selected}", old)
            dropped = db.executemany("DELETE FROM chunks WHERE chunk_id = ?", old).rowcount
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
        """A reader of a finished directory. Raises ProviderError `no_lexical_index`."""
        return Fts5Reader(directory, self)


class Fts5Reader:
    """A protocols.LexicalReader; thread-safe. Questions are tokenized like the index."""

    def __init__(self, directory: Path, options: Fts5) -> None:
        self._path = directory / _FILE
        if not self._path.is_file():
            raise ProviderError(
                f"no word index in {directory.name}; {REBUILD}", code="no_lexical_index"
            )
        self._options = options
        with _engine_errors(self._path):
            self._file = LastingFile(self._path, _create_term_tables)
            words = _settings(self._file)["dictionary"]
            _require(self._file, options.chinese, tuple(words))
            self._count = int(self._file.execute("SELECT count(*) FROM chunks").fetchone()[0])
        self._analysis = options.analysis(segmentation.Dictionary(tuple(words)))

    def count(self) -> int:
        return self._count

    def ids(self, among: Collection[str] | None = None) -> set[str]:
        with _engine_errors(self._path):
            if among is None:
                return {row[0] for row in self._file.execute("SELECT chunk_id FROM chunks")}
            found = self._file.execute(
                f"SELECT chunk_id FROM chunks {_AMONG}", [json.dumps(list(among))]
            )
            return {row[0] for row in found}

    def search(
        self,
        query: str,
        k: int,
        *,
        expansions: Sequence[tuple[str, float]] = (),
        phrases: Sequence[str] = (),
        chunk_ids: Collection[str] | None = None,
    ) -> list[Candidate]:
        weights = self._analysis.weights(query, expansions)
        with _engine_errors(self._path):
            parts = [*self._select_words(weights), *self._select_sequences(query, phrases, weights)]
            if not parts or k <= 0:
                return []
            among = "" if chunk_ids is None else _AMONG
            sql = (
                "WITH found (row, score) AS MATERIALIZED"
                f" ({' UNION ALL '.join(sql for sql, _ in parts)}) SELECT chunk_id,"
                f" round(sum(score), {_SCORE_DIGITS}) AS total FROM found JOIN chunks USING (row)"
                f" {among} GROUP BY row ORDER BY total DESC, chunk_id LIMIT ?"
            )
            values = [value for _, own in parts for value in own]
            values += [k] if chunk_ids is None else [json.dumps(list(chunk_ids)), k]
            return [
                Candidate(chunk_id, float(score), "sparse")
                for chunk_id, score in self._file.execute(sql, values)
            ]

    def _select_words(self, weights: Mapping[str, float]) -> Iterator[tuple[str, list[Any]]]:
        """SELECTs of (row, score) with their values, one for each weight, because FTS5 gives all
        words of a query the same weight.
        """
        by_weight: defaultdict[float, list[str]] = defaultdict(list)
        for term, weight in weights.items():
            by_weight[weight].append(_quote([term]))
        for weight, terms in by_weight.items():
            for start in range(0, len(terms), _TERMS_AT_ONCE):
                expression = " OR ".join(terms[start : start + _TERMS_AT_ONCE])
                sql = "SELECT rowid, -bm25(words, 1.0, ?) * ? FROM words WHERE words MATCH ?"
                yield sql, [self._options.headings_boost, weight, expression]

    def _select_sequences(
        self, query: str, phrases: Sequence[str], weights: Mapping[str, float]
    ) -> Iterator[tuple[str, list[Any]]]:
        for sequence, terms in self._analysis.sequences(query, phrases, weights):
            bonus = phrase_bonus(terms, weights, self._rarity)
            sql = "SELECT rowid, ? FROM sequences WHERE sequences MATCH ?"
            yield sql, [bonus, _quote(sequence)]

    def full_match_score(self, query: str) -> float:
        weights = self._analysis.weights(query)
        with _engine_errors(self._path):
            return sum(weight * self._rarity(term) for term, weight in weights.items())

    def doc_freq(self, words: str, doc_ids: Collection[str] | None = None) -> int:
        terms = self._analysis.known_terms(words)
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
        sql = "SELECT term, doc FROM whole WHERE term >= ? AND term < ?"
        with _engine_errors(self._path):
            return list(self._file.execute(sql, (beginning, f"{beginning}\U0010ffff")))

    def _rarity(self, term: str) -> float:
        """The term's idf by FTS5's formula."""
        row = self._file.execute("SELECT doc FROM terms WHERE term = ?", (term,)).fetchone()
        doc_freq = int(row[0]) if row else 0
        return max(1e-6, math.log((self._count - doc_freq + 0.5) / (doc_freq + 0.5)))


def _create_term_tables(db: sqlite3.Connection) -> None:
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
    settings = _settings(db)
    if settings["chinese"] != chinese:
        raise ProviderError(
            "the word index's schema does not match: its Chinese was cut as"
            f" {settings['chinese']}, not {chinese}; {REBUILD}"
        )
    if tuple(settings["dictionary"]) != words:
        raise ProviderError(
            f"the word index was cut by another dictionary and takes no changes; {REBUILD}"
        )


def _settings(db: sqlite3.Connection | LastingFile) -> dict[str, Any]:
    return {key: json.loads(value) for key, value in db.execute("SELECT key, value FROM settings")}


def _quote(terms: Sequence[str]) -> str:
    """An FTS5 string, in which no character is an operator."""
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
