"""The tables of a catalog, derived from the records of `ir`, and their writers.

    catalog.sqlite            the base; releases share it on disk until the changes outgrow it
    catalog-changes.sqlite    the rows of documents that were added or changed since, and `gone`,
                              the documents whose rows in the base are obsolete; absent while a
                              release consists of a base only, as after every full build

All rows of a document are in one of the two files. Readers see one catalog: views with the names of
the tables leave out the obsolete rows of the base and add those of the changes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sqlite3
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rag_platform.errors import REBUILD, IntegrityError, SchemaVersionError
from rag_platform.ir import Chunk, Document, MediaLink, MediaText, Section, Version
from rag_platform.storage.records import columns, field_types, getter, row_decoders

# 2 added view and image texts, 3 editions and drafts, 4 sections that share chunks; readers fill
# in defaults for columns that an older catalog lacks
CATALOG = "catalog.sqlite"  # in the directory of a release
CHANGES = "catalog-changes.sqlite"  # next to the catalog
SCHEMA_VERSION = 4
READABLE = (1, 2, 3, 4)


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A chunk with its index state; by the hashes the next release finds what changed."""

    chunk: Chunk
    content_hash: str  # of the dense text, empty when there is none
    sparse_hash: str  # of the sparse text and headings, empty when there is none
    status: str  # ready | failed_embed | no_text
    keyphrases: tuple[str, ...] = ()
    quality_score: float | None = None
    view_title: str = ""
    view_summary: str = ""
    view_tags: tuple[str, ...] = ()

    @property
    def indexed(self) -> tuple[bool, bool]:
        """(whether the chunk is in the word index, whether it has a vector)."""
        return bool(self.sparse_hash), self.status == "ready" and bool(self.content_hash)


# a chunk takes 2 kB: pages of 4 kB would be half empty, and every release copies and hashes them
_PAGE_BYTES = 16_384
# chunk keys are inserted in random order, so the pages of their index should stay in memory
_CACHE_KIB = 65_536
VIEW_COLUMNS = ("keyphrases", "quality_score", "view_title", "view_summary", "view_tags")

# --- tables from records -------------------------------------------------------------------------

_EXTRA_COLUMNS: dict[str, str] = {
    "chunks": (
        ", content_hash TEXT NOT NULL, sparse_hash TEXT NOT NULL, status TEXT NOT NULL, keyphrases"
        " TEXT NOT NULL DEFAULT '[]', quality_score REAL, view_title TEXT NOT NULL DEFAULT '',"
        " view_summary TEXT NOT NULL DEFAULT '', view_tags TEXT NOT NULL DEFAULT '[]', in_lexical"
        " INTEGER NOT NULL, in_dense INTEGER NOT NULL"
    ),
    "sections": ", doc_id TEXT NOT NULL, version_id TEXT NOT NULL, position INTEGER NOT NULL",
    "asset_anchor": ", doc_id TEXT NOT NULL, version_id TEXT NOT NULL",
    "media_texts": ", version_id TEXT NOT NULL",
}
_RECORDS: dict[str, type[Any]] = {
    "documents": Document,
    "versions": Version,
    "sections": Section,
    "chunks": Chunk,
    "asset_anchor": MediaLink,
    "media_texts": MediaText,
}
TABLES = (*_RECORDS, "asset")
_VERSION_TABLES = tuple(_RECORDS)[1:]  # with a version_id
_NOT_GONE = "NOT IN (SELECT doc_id FROM main.gone)"  # in a file of changes
_UNIQUE = (
    "CREATE UNIQUE INDEX documents_id ON documents(doc_id)",
    "CREATE UNIQUE INDEX versions_id ON versions(version_id)",
    "CREATE UNIQUE INDEX chunks_id ON chunks(chunk_id)",
)
# created once a new catalog is filled: sorting all rows is faster than inserting each
_INDEXES = (
    "CREATE INDEX versions_document ON versions(doc_id)",
    "CREATE INDEX sections_version ON sections(version_id, position)",
    "CREATE INDEX chunks_document ON chunks(doc_id, chunk_id)",
    "CREATE INDEX chunks_version ON chunks(version_id, chunk_index)",
    # covers counts and checks
    "CREATE INDEX chunks_state ON chunks(status, in_lexical, in_dense, chunk_id)",
    "CREATE INDEX anchors_version ON asset_anchor(version_id)",
    "CREATE INDEX anchors_asset ON asset_anchor(asset_id)",
    "CREATE INDEX media_texts_of ON media_texts(version_id, asset_id)",
)


def _to_column(value: Any) -> Any:
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False) if value else "[]"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, sort_keys=True) if value else "{}"
    return int(value) if isinstance(value, bool) else value


def column_names(table: str) -> list[str]:
    """The columns of a table in the order of their creation."""
    if table == "asset":
        return ["asset_id", "mime", "width", "height", "size"]
    extras = [part.split()[0] for part in _EXTRA_COLUMNS.get(table, "").split(",") if part.strip()]
    record: Any = _RECORDS[table]
    return [*field_types(record), *extras]


def quoted_columns(table: str) -> str:
    return ", ".join(f'"{name}"' for name in column_names(table))


@functools.cache
def insert_statement(table: str) -> str:
    """The statement that adds a row to a table, its values in the order of `column_names`."""
    marks = ", ".join("?" * len(column_names(table)))
    return f"INSERT INTO {table} ({quoted_columns(table)}) VALUES ({marks})"


def _values(record: Any) -> list[Any]:
    kind: Any = type(record)
    values = list(getter(kind)(record))
    for position, _ in row_decoders(kind)[0]:
        values[position] = _to_column(values[position])
    return values


def attach_read_only(db: sqlite3.Connection, path: Path, name: str) -> None:
    """Attach a finished database read-only to a connection that accepts URIs."""
    db.execute(f"ATTACH ? AS {name}", (f"{path.resolve().as_uri()}?mode=ro&immutable=1",))


# --- writing ------------------------------------------------------------------------------------


class CatalogWriter:
    """One transaction over a catalog; committed unless the block raises."""

    def __init__(self, path: Path, beside: Mapping[str, Path] = MappingProxyType({})) -> None:
        """`beside` are finished databases to attach, by their names in statements."""
        fresh = not path.exists()
        self._path = path
        self._db = sqlite3.connect(path.resolve().as_uri(), uri=True, isolation_level=None)
        self._db.execute(f"PRAGMA page_size={_PAGE_BYTES}")  # of a new file
        # a crash discards the whole candidate, so no journal file may stay behind
        self._db.execute("PRAGMA journal_mode=MEMORY")
        self._db.execute("PRAGMA synchronous=OFF")  # the builder syncs the finished file once
        # deleted content must not remain in free pages of the file copied from the parent
        self._db.execute("PRAGMA secure_delete=ON")
        self._db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        self._fresh = fresh
        if not fresh:
            check_schema(self._db, path, (SCHEMA_VERSION,))
        for name, other in beside.items():
            attach_read_only(self._db, other, name)
        self._db.execute("BEGIN")
        if fresh:
            self._create()

    def __enter__(self) -> CatalogWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                if self._fresh:
                    self._index(_INDEXES)
                sys.audit("rag_platform.commit", str(self._path))
            self._db.execute("ROLLBACK" if kind else "COMMIT")
        finally:
            self._db.close()

    def _create(self) -> None:
        self._db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        self._db.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
        for table, record in _RECORDS.items():
            self._db.execute(
                f"CREATE TABLE {table} ({columns(record)}{_EXTRA_COLUMNS.get(table, '')})"
            )
        self._db.execute(
            "CREATE TABLE asset (asset_id TEXT PRIMARY KEY, mime TEXT, width INTEGER, height"
            " INTEGER, size INTEGER)"
        )
        self._index(_UNIQUE)

    def _index(self, statements: Iterable[str]) -> None:
        for statement in statements:
            self._db.execute(statement)

    def replace_documents(
        self, documents: Iterable[Document], dropped: Collection[str] = ()
    ) -> list[str]:
        """Insert or replace the rows of these documents and delete those whose version is
        `dropped`; returns the doc_ids of the rows that were added, changed or deleted.

        A changed title or tag thus reaches filters without touching a chunk.
        """
        wanted = {document.doc_id: row_of_document(document) for document in documents}
        removed = {doc_id for version_id in dropped for doc_id in self._owners(version_id)}
        changed: list[str] = []
        for doc_id in sorted(wanted.keys() | removed):
            differs = self._stored_document(doc_id) != wanted.get(doc_id)
            if not differs and doc_id not in removed:
                continue
            self._prepare_change(doc_id, dropped)
            self._db.execute("DELETE FROM documents WHERE doc_id = ?", (doc_id,))
            if doc_id in wanted:
                self._db.execute(insert_statement("documents"), wanted[doc_id])
            changed += [doc_id] if differs else []
        return changed

    def _owners(self, version_id: str) -> list[str]:
        rows = self._db.execute("SELECT doc_id FROM versions WHERE version_id = ?", (version_id,))
        return [row[0] for row in rows]

    def _stored_document(self, doc_id: str) -> tuple[Any, ...] | None:
        sql = f"SELECT {columns(Document)} FROM documents WHERE doc_id = ?"
        row: tuple[Any, ...] | None = self._db.execute(sql, (doc_id,)).fetchone()
        return row

    def _prepare_change(self, doc_id: str, dropped: Collection[str]) -> None:
        """Called before the rows of a document change; a hook for `ChangesWriter`."""

    def merge(self) -> None:
        """Apply the attached database `changes`, written by a `ChangesWriter`, to this base."""
        gone = self._db.execute("SELECT doc_id, version_id FROM changes.gone").fetchall()
        self._db.executemany(
            "DELETE FROM documents WHERE doc_id = ?", [(doc_id,) for doc_id, _ in gone]
        )
        self.drop_versions([version_id for _, version_id in gone])
        for table in _RECORDS:
            names = quoted_columns(table)
            self._db.execute(
                f"INSERT INTO {table} ({names}) SELECT {names} FROM changes.{table} ORDER BY rowid"
            )
        self._db.execute("INSERT OR IGNORE INTO asset SELECT * FROM changes.asset")

    def drop_versions(self, version_ids: Collection[str]) -> None:
        """Remove the rows of these versions, and images that no version refers to any more."""
        for table in _VERSION_TABLES:
            self._db.executemany(
                f"DELETE FROM {table} WHERE version_id = ?", ((item,) for item in version_ids)
            )
        self._db.execute(
            "DELETE FROM asset WHERE asset_id NOT IN (SELECT asset_id FROM asset_anchor)"
        )

    def add_version(
        self,
        version: Version,
        sections: Sequence[Section],
        entries: Sequence[Entry],
        links: Sequence[MediaLink],
        texts: Sequence[MediaText] = (),
    ) -> None:
        """Add one live version with its sections, chunks, images and their texts. Raises
        IntegrityError when a chunk id is taken.
        """
        rows = rows_of_version(version, sections, entries, links, texts)
        try:
            for table in _VERSION_TABLES:
                self._db.executemany(insert_statement(table), rows[table])
        except sqlite3.IntegrityError as error:
            raise taken_error(version.version_id, error) from error
        self._db.executemany("INSERT OR IGNORE INTO asset VALUES (?, ?, ?, ?, ?)", rows["asset"])
        self._check_added(version.version_id)

    def _check_added(self, version_id: str) -> None:
        """Raise IntegrityError when a chunk of the version exists; for `ChangesWriter`."""


class ChangesWriter(CatalogWriter):
    """One transaction over the changes of a base; committed unless the block raises."""

    def __init__(self, base: Path) -> None:
        super().__init__(base.with_name(CHANGES), {"base": base})
        if self._fresh:
            self._db.execute(
                "CREATE TABLE gone (doc_id TEXT PRIMARY KEY, version_id TEXT NOT NULL)"
            )

    def _owners(self, version_id: str) -> list[str]:
        sql = "SELECT doc_id FROM base.versions WHERE version_id = ?"
        in_base = [row[0] for row in self._db.execute(sql, (version_id,))]
        return [*super()._owners(version_id), *in_base]

    def _stored_document(self, doc_id: str) -> tuple[Any, ...] | None:
        sql = (
            f"SELECT {columns(Document)} FROM base.documents WHERE doc_id = ? AND doc_id"
            f" {_NOT_GONE}"
        )
        return super()._stored_document(doc_id) or self._db.execute(sql, (doc_id,)).fetchone()

    def _prepare_change(self, doc_id: str, dropped: Collection[str]) -> None:
        """Mark a document's rows in the base as gone; copy them here unless they are dropped."""
        found = self._db.execute(
            f"SELECT version_id FROM base.versions WHERE doc_id = ? AND doc_id {_NOT_GONE}",
            (doc_id,),
        ).fetchone()
        if found is None:
            return
        self._db.execute("INSERT INTO gone VALUES (?, ?)", (doc_id, found[0]))
        if found[0] in dropped:
            return
        for table in _VERSION_TABLES:
            names = quoted_columns(table)
            self._db.execute(
                f"INSERT INTO {table} ({names}) SELECT {names} FROM base.{table} WHERE"
                " version_id = ? ORDER BY rowid",
                (found[0],),
            )
        self._db.execute(
            "INSERT OR IGNORE INTO asset SELECT * FROM base.asset WHERE asset_id IN (SELECT"
            " asset_id FROM base.asset_anchor WHERE version_id = ?)",
            (found[0],),
        )

    def _check_added(self, version_id: str) -> None:
        taken = self._db.execute(
            "SELECT b.chunk_id FROM main.chunks c CROSS JOIN base.chunks b ON b.chunk_id ="
            f" c.chunk_id WHERE c.version_id = ? AND b.doc_id {_NOT_GONE}",
            (version_id,),
        ).fetchone()
        if taken is not None:
            raise taken_error(version_id, f"{taken[0]} in the base")


def taken_error(version_id: str, reason: object) -> IntegrityError:
    return IntegrityError(
        f"version {version_id} brings a chunk id that is already in the catalog ({reason}); its"
        " chunks were cut from another document or twice: rebuild its stages with `rag ingest"
        " --policy new_version`"
    )


def rows_of_version(
    version: Version,
    sections: Sequence[Section],
    entries: Sequence[Entry],
    links: Sequence[MediaLink],
    texts: Sequence[MediaText] = (),
) -> dict[str, list[tuple[Any, ...]]]:
    """Table to the rows of a version, in the order of `column_names`; images only once."""
    version_id, doc_id = version.version_id, version.doc_id
    assets = {
        link.asset_id: (link.asset_id, link.mime, link.width, link.height, link.size)
        for link in reversed(links)
        if link.asset_id
    }
    return {
        "versions": [tuple(_values(version))],
        "sections": [
            (*_values(section), doc_id, version_id, number)
            for number, section in enumerate(sections)
        ],
        "chunks": [tuple(_entry_values(entry)) for entry in entries],
        "media_texts": [(*_values(text), version_id) for text in texts],
        "asset_anchor": [(*_values(link), doc_id, version_id) for link in links],
        "asset": list(assets.values())[::-1],
    }


def row_of_document(document: Document) -> tuple[Any, ...]:
    """A document's row, in the order of `column_names`; no path, since machines share releases."""
    return tuple(_values(dataclasses.replace(document, origin="")))


def _entry_values(entry: Entry) -> list[Any]:
    views = [_to_column(getattr(entry, name)) for name in VIEW_COLUMNS]
    return [
        *_values(entry.chunk),
        entry.content_hash,
        entry.sparse_hash,
        entry.status,
        *views,
        *entry.indexed,
    ]


def check_schema(db: sqlite3.Connection, path: Path, known: Collection[int] = READABLE) -> int:
    """The schema version of an open catalog. Raises SchemaVersionError unless it is `known`."""
    try:
        row = db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    except sqlite3.DatabaseError as error:
        raise SchemaVersionError(f"{path.name} is not a catalog ({error}); {REBUILD}") from error
    if row is None or row[0] not in map(str, known):
        raise SchemaVersionError(
            f"{path.name} has schema {row[0] if row else 'none'}, this program reads"
            f" {', '.join(map(str, known))}; upgrade rag-platform, or rebuild the release with `rag"
            " rebuild`"
        )
    return int(row[0])


def show_as_current(db: sqlite3.Connection) -> None:
    """Show an older catalog with all current columns, by temporary views with the names of the
    tables; missing columns have the defaults of their records. The file is unchanged.
    """
    for table in _RECORDS:
        present, missing = stored_columns(db, table)
        if present and missing:
            added = ", ".join(missing)
            db.execute(
                f"CREATE TEMP VIEW {table} AS SELECT rowid AS rowid, *, {added} FROM main.{table}"
            )
        elif missing:
            db.execute(
                f"CREATE TEMP VIEW {table} AS SELECT 0 AS rowid, {', '.join(missing)} WHERE 0"
            )


def stored_columns(db: sqlite3.Connection, table: str) -> tuple[list[str], list[str]]:
    """(the columns of a table in an open catalog, SQL for the current ones that it lacks)."""
    present = [row[1] for row in db.execute(f"PRAGMA main.table_info({table})")]
    defaults = _defaults(_RECORDS[table], table)
    missing = [f'{value} AS "{name}"' for name, value in defaults.items() if name not in present]
    return present, missing


def _defaults(record: type[Any], table: str) -> dict[str, str]:
    """Column to the default of its record's field as an SQL literal, `''` without a default."""
    found: dict[str, str] = {}
    fields = [
        *dataclasses.fields(record),
        *(f for f in dataclasses.fields(Entry) if table == "chunks" and f.name in VIEW_COLUMNS),
    ]
    for item in fields:
        without = "" if item.default_factory is dataclasses.MISSING else {}
        value = without if item.default is dataclasses.MISSING else item.default
        stored = _to_column(value)
        found[item.name] = "NULL" if stored is None else repr(stored)  # texts without quotes
    return found | ({"version_id": "''"} if table == "media_texts" else {})


# --- a base with its changes ---------------------------------------------------------------------


def changes_of(path: Path) -> Path | None:
    """The file of changes of the catalog at `path`, None without changes."""
    changes = path.with_name(CHANGES)
    return changes if changes.is_file() else None


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A database of a catalog: the base `main`, the `changes`, or `Part()` for a whole catalog."""

    name: str = ""

    def __getitem__(self, table: str) -> str:
        return f"{self.name}.{table}" if self.name else table

    def kept(self, column: str, key: str = "doc_id") -> str:
        """The SQL condition that a row with this doc_id, or version_id, is not obsolete."""
        gone = f"{column} NOT IN (SELECT {key} FROM changes.gone)"
        return gone if self.name == "main" else "1"


WHOLE = (Part(),)
BASE_AND_CHANGES = (Part("main"), Part("changes"))


def show_changed(db: sqlite3.Connection, changes: Path) -> None:
    """Create views, named as the tables, of a base with its changes and all current columns."""
    attach_read_only(db, changes, "changes")
    base = BASE_AND_CHANGES[0]
    for table in _RECORDS:
        present, missing = stored_columns(db, table)
        names = ", ".join([*(f'"{name}"' for name in present), *missing])
        key = "version_id" if table == "media_texts" else "doc_id"
        db.execute(
            f"CREATE TEMP VIEW {table} AS SELECT rowid AS rowid, {names} FROM main.{table} WHERE"
            f" {base.kept(key, key)} UNION ALL SELECT rowid, {names} FROM changes.{table}"
        )
    db.execute(
        "CREATE TEMP VIEW asset AS SELECT 0 AS rowid, * FROM main.asset WHERE asset_id IN (SELECT"
        f" asset_id FROM main.asset_anchor WHERE {base.kept('doc_id')}) UNION SELECT 0, * FROM"
        " changes.asset"
    )
