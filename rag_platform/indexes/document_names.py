"""An index of the words in the folders, file names and titles of a release's documents.

    names.sqlite    the names of the base, catalog.sqlite; written and shared with it, absent for a
                    small base. Without it a process would take 2.5 s and 40 MB to read the names of
                    200,000 documents after every publication

Documents are numbered in the order of their doc_ids: first those of the base, then those added or
changed since, whose names are read from the catalog.
"""

from __future__ import annotations

import re
import sqlite3
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from posixpath import dirname, splitext

import numpy as np

from rag_platform.errors import IntegrityError
from rag_platform.indexes.dense_files import is_among
from rag_platform.storage.sqlite_files import LastingFile, Rows, select_in
from rag_platform.storage.store import atomic_path
from rag_platform.text.names import chinese_words, find_series, name_words
from rag_platform.text.scripts import has_han

NAMES = "names.sqlite"  # next to the catalog
STORED = 2_000  # minimum documents of a base; the names of fewer are read in 20 ms
# characters; a longer title is not a name, but the first line of a text, cut at 200
_MAX_TITLE = 180
_VERSION = 5  # of the words of `text.names` and of the tables; files of other versions are ignored
_SCHEME = re.compile(r"\w+://(?:www\.)?")  # of a web page, which no question means
_TABLES = """
CREATE TABLE words (word TEXT PRIMARY KEY, plain BLOB NOT NULL, joined BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (number INTEGER PRIMARY KEY, doc_id TEXT NOT NULL, chunks INTEGER NOT NULL);
"""
_NAMES_OF_BASE = (
    "SELECT d.doc_id, d.source_uri, d.filename, d.title, (SELECT count(*) FROM chunks c WHERE"
    " c.doc_id = d.doc_id) FROM documents d ORDER BY d.doc_id"
)

Name = tuple[str, str, str, str, int]  # doc_id, source_uri, filename, title, number of chunks
# ascending numbers of the documents with a word, and of those with it as two separate words
Holders = tuple[Sequence[int], Sequence[int]]


class ReadNames:
    """Names in memory: some 200 bytes and 10 µs for each."""

    def __init__(self, names: Iterable[Name], first: int = 0) -> None:
        """`first` is the number of the first document."""
        self._first = first
        self.doc_ids: list[str] = []
        self.sizes = array("I")
        # names to be segmented when the first Chinese question loads the dictionary
        self._chinese: list[tuple[int, str]] = []
        self.plain, self.joined = _Numbers(), _Numbers()
        for number, (doc_id, source_uri, filename, title, chunks) in enumerate(names, first):
            title = title if len(title) <= _MAX_TITLE else ""
            self.doc_ids.append(doc_id)
            self.sizes.append(chunks)
            folders = dirname(_SCHEME.sub("", source_uri, count=1))
            path = f"{folders}/{splitext(filename)[0]}"
            (of_path, path_pairs), (of_title, title_pairs) = (
                name_words(name, chinese=False) for name in (path, title)
            )
            numbered = {*find_series(filename), *find_series(title)}
            self.plain.add(number, of_path | of_title | numbered)
            self.joined.add(number, {*path_pairs, *title_pairs})
            if has_han(both := f"{path}\n{title}"):
                self._chinese.append((number, both))

    def read_chinese(self) -> None:
        if not self._chinese:
            return
        found = _Numbers()
        for number, names in self._chinese:
            found.add(number, chinese_words(names))
        self.plain, self._chinese = _Numbers(self.plain | found), []

    def holders(self, words: Iterable[str]) -> dict[str, Holders]:
        """The documents of each word that is in some name."""
        found = {word: (self.plain.get(word, ()), self.joined.get(word, ())) for word in words}
        return {word: holders for word, holders in found.items() if any(holders)}

    def documents(self, numbers: Iterable[int]) -> dict[int, tuple[str, int]]:
        """Number to (doc_id, number of chunks)."""
        places = ((number, number - self._first) for number in numbers)
        return {number: (self.doc_ids[place], self.sizes[place]) for number, place in places}


class _Numbers(dict[str, "array[int]"]):
    """Word to the ascending numbers of documents."""

    def add(self, number: int, words: Iterable[str]) -> None:
        for word in words:
            if (numbers := self.get(word)) is None:
                self[word] = numbers = array("I")
            numbers.append(number)


def write_names(catalog: Path) -> None:
    """Write the names of a finished base next to it, unless they are few or already stored."""
    path = catalog.with_name(NAMES)
    if path.is_file():
        return
    uri = f"{catalog.resolve().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as base:
        if base.execute("SELECT count(*) FROM documents").fetchone()[0] < STORED:
            return
        names = ReadNames(base.execute(_NAMES_OF_BASE))
    names.read_chinese()
    with atomic_path(path) as temporary, closing(sqlite3.connect(temporary)) as db:
        db.executescript(f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; {_TABLES}")
        db.executemany(
            "INSERT INTO words VALUES (?, ?, ?)",
            (
                (word, *(_to_blob(held.get(word, ())) for held in (names.plain, names.joined)))
                for word in sorted(names.plain.keys() | names.joined.keys())
            ),
        )
        db.executemany(
            "INSERT INTO documents VALUES (?, ?, ?)",
            zip(range(len(names.doc_ids)), names.doc_ids, names.sizes, strict=True),
        )
        db.execute("CREATE UNIQUE INDEX documents_id ON documents(doc_id)")
        db.execute(f"PRAGMA user_version={_VERSION}")
        db.commit()


def _to_blob(numbers: Sequence[int]) -> bytes:
    return np.asarray(numbers, dtype="<u4").tobytes()


class StoredNames:
    """The stored names of a base, without those of gone documents; safe between threads."""

    def __init__(self, file: LastingFile, gone: Collection[str]) -> None:
        self._file = file
        found = self._select_in("SELECT number, chunks FROM documents WHERE doc_id IN (?)", gone)
        lost = dict(found)
        self._gone = np.sort(np.array(list(lost), dtype="<u4"))
        ((self.rows, chunks),) = self._file.execute("SELECT count(*), sum(chunks) FROM documents")
        self.count, self.chunks = self.rows - len(lost), chunks - sum(lost.values())

    @classmethod
    def open(cls, catalog: Path, gone: Collection[str]) -> StoredNames | None:
        """The names stored next to a catalog; None when there are none, or of another version."""
        path = catalog.with_name(NAMES)
        if not path.is_file():
            return None
        versions: list[int] = []
        try:
            file = LastingFile(
                path,
                lambda db: versions.append(*db.execute("PRAGMA user_version").fetchone()),
                _damaged_error,
            )
        except sqlite3.DatabaseError as error:
            raise _damaged_error(error) from error
        names = None
        try:
            names = cls(file, gone) if versions[0] == _VERSION else None
        finally:
            if names is None:
                file.close()
        return names

    def close(self) -> None:
        self._file.close()

    def holders(self, words: Iterable[str]) -> dict[str, Holders]:
        rows = self._select_in("SELECT word, plain, joined FROM words WHERE word IN (?)", words)
        found = {
            word: (self._read_numbers(plain), self._read_numbers(joined))
            for word, plain, joined in rows
        }
        return {word: holders for word, holders in found.items() if any(holders)}

    def _read_numbers(self, blob: bytes) -> array[int]:
        """The numbers in a blob, without gone documents."""
        numbers = np.frombuffer(blob, dtype="<u4")
        if self._gone.size and numbers.size:
            numbers = numbers[~is_among(numbers, self._gone)]
        return array("I", numbers.astype(np.uintc).tobytes())

    def documents(self, numbers: Iterable[int]) -> dict[int, tuple[str, int]]:
        sql = "SELECT number, doc_id, chunks FROM documents WHERE number IN (?)"
        return {number: (doc_id, size) for number, doc_id, size in self._select_in(sql, numbers)}

    def _select_in(self, sql: str, values: Iterable[str | int]) -> Rows:
        return Rows(select_in(self._file.execute, sql, values))


def _damaged_error(error: sqlite3.DatabaseError) -> IntegrityError:
    return IntegrityError(
        f"the document names in {NAMES} cannot be read ({error}); build another release with"
        " `rag rebuild --full`",
        code="names_damaged",
    )


class Names:
    """The names of every document of a release: the stored ones, and `read` with the others."""

    def __init__(self, stored: StoredNames | None, read: Iterable[Name]) -> None:
        self._stored = stored
        self._read = ReadNames(read, first=self._stored.rows if self._stored else 0)
        self.count = len(self._read.doc_ids) + (stored.count if stored else 0)
        self.chunks = sum(self._read.sizes) + (stored.chunks if stored else 0)

    def read_chinese(self) -> None:
        """Add the Chinese words of names that are not stored."""
        self._read.read_chinese()

    def holders(self, words: Collection[str]) -> Mapping[str, Holders]:
        read = self._read.holders(words)
        if self._stored is None:
            return read
        found = self._stored.holders(words)
        for word, late in read.items():
            early = found.get(word, ((), ()))
            found[word] = ([*early[0], *late[0]], [*early[1], *late[1]])
        return found

    def documents(self, numbers: Iterable[int]) -> dict[int, tuple[str, int]]:
        if self._stored is None:
            return self._read.documents(numbers)
        wanted, rows = list(numbers), self._stored.rows
        return self._stored.documents(
            number for number in wanted if number < rows
        ) | self._read.documents(number for number in wanted if number >= rows)
