"""The relational half of a release: every document, version, section, chunk and image of the library, in one SQLite file.

The vector store and the word index hold only chunk ids; whatever a filter, a citation or a page wants to know stands here. Tables derive
from the records of `ir`; a release is immutable once built, so readers open it with `immutable=1` and need no locks.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import threading
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

from rag_platform.errors import IntegrityError, NotFoundError, SchemaVersionError
from rag_platform.ir import Chunk, Document, MediaLink, Section, Version

SCHEMA_VERSION = 1
_IN_CLAUSE = 500
RecordT = TypeVar("RecordT")


@dataclasses.dataclass(frozen=True, slots=True)
class FilterField:
    """A field that a filter may name: an SQL expression over `c` (chunks), `d` (documents) and `v` (versions), and how to compare it."""

    sql: str
    kind: str  # text | number | flag | list; the members of a list are those of json_each(sql)


# The whitelist of filter fields; retrieval.filters compiles conditions from it and `select_ids` runs them.
FILTERABLE: Mapping[str, FilterField] = {
    "chunk_id": FilterField("c.chunk_id", "text"),
    "doc_id": FilterField("d.doc_id", "text"),
    "version_id": FilterField("v.version_id", "text"),
    "section_id": FilterField("c.section_id", "text"),
    "section_path": FilterField("c.section_path", "text"),
    "title": FilterField("c.title", "text"),
    "h1_title": FilterField("c.h1_title", "text"),
    "h2_title": FilterField("c.h2_title", "text"),
    "chunk_type": FilterField("c.chunk_type", "text"),
    "chunk_index": FilterField("c.chunk_index", "number"),
    "text_len": FilterField("c.text_len", "number"),
    "too_short": FilterField("c.too_short", "flag"),
    "status": FilterField("c.status", "text"),
    "lang": FilterField("c.lang", "text"),
    "media_type": FilterField("c.media_type", "text"),
    "page_start": FilterField("c.page_start", "number"),
    "page_end": FilterField("c.page_end", "number"),
    "line_start": FilterField("c.line_start", "number"),
    "line_end": FilterField("c.line_end", "number"),
    "asset_ids": FilterField("c.asset_ids", "list"),
    "keyphrases": FilterField("c.keyphrases", "list"),
    "quality_score": FilterField("c.quality_score", "number"),
    "doc_title": FilterField("d.title", "text"),
    "source": FilterField("d.source", "text"),
    "source_uri": FilterField("d.source_uri", "text"),
    "filename": FilterField("d.filename", "text"),
    "tags": FilterField("d.tags", "list"),
    "categories": FilterField("d.categories", "list"),
    "content_type": FilterField("v.mime", "text"),
    "created_at": FilterField("v.received_at", "text"),
    "updated_at": FilterField("d.updated_at", "text"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A chunk with what the indexes hold of it; the hashes tell the next release what changed."""

    chunk: Chunk
    content_hash: str  # of the dense text, empty when there is none
    sparse_hash: str  # of the sparse text and headings, empty when there is none
    status: str  # ready | failed_embed | no_text
    keyphrases: tuple[str, ...] = ()
    quality_score: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk joined with its document and version, as hits, citations and filters see it."""

    chunk: Chunk
    doc_title: str
    source: str
    source_uri: str
    filename: str
    tags: tuple[str, ...]
    content_type: str
    created_at: str
    status: str


# --- tables from records -----------------------------------------------------------------------------------------------

_EXTRA_COLUMNS: dict[str, str] = {
    "chunks": ", content_hash TEXT NOT NULL, sparse_hash TEXT NOT NULL, status TEXT NOT NULL,"
    " keyphrases TEXT NOT NULL DEFAULT '[]', quality_score REAL",
    "sections": ", doc_id TEXT NOT NULL, version_id TEXT NOT NULL, position INTEGER NOT NULL",
    "asset_anchor": ", doc_id TEXT NOT NULL, version_id TEXT NOT NULL",
}
_RECORDS: dict[str, type[Any]] = {
    "documents": Document, "versions": Version, "sections": Section, "chunks": Chunk, "asset_anchor": MediaLink,
}  # fmt: skip
_INDEXES = (
    "CREATE UNIQUE INDEX documents_id ON documents(doc_id)",
    "CREATE UNIQUE INDEX versions_id ON versions(version_id)",
    "CREATE INDEX versions_document ON versions(doc_id)",
    "CREATE INDEX sections_version ON sections(version_id, position)",
    "CREATE UNIQUE INDEX chunks_id ON chunks(chunk_id)",
    "CREATE INDEX chunks_document ON chunks(doc_id, chunk_id)",
    "CREATE INDEX chunks_version ON chunks(version_id, chunk_index)",
    "CREATE INDEX anchors_version ON asset_anchor(version_id)",
    "CREATE INDEX anchors_asset ON asset_anchor(asset_id)",
)


def _types(record: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_FIELDS[record]
    return {field.name: hints[field.name] for field in dataclasses.fields(record)}


def _decoders(types: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Positions whose stored form differs from the field: tuples and mappings are JSON text, flags are integers."""
    kinds: list[tuple[int, str]] = []
    for position, hint in enumerate(types.values()):
        options = [item for item in typing.get_args(hint) if item is not type(None)] if type(None) in typing.get_args(hint) else [hint]
        origin = typing.get_origin(options[0])
        if origin in (tuple, dict) or hint is bool:
            kinds.append((position, "flag" if hint is bool else "tuple" if origin is tuple else "mapping"))
    return kinds


_FIELDS = {record: _types(record) for record in _RECORDS.values()}
_DECODERS = {record: _decoders(types) for record, types in _FIELDS.items()}


def _stored(value: Any) -> Any:
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return int(value) if isinstance(value, bool) else value


def _restored(record: type[RecordT], row: Sequence[Any]) -> RecordT:
    values = list(row[: len(_FIELDS[record])])
    for position, kind in _DECODERS[record]:
        value = values[position]
        if value is None:
            continue
        if kind == "flag":
            values[position] = bool(value)
        else:
            values[position] = () if value == "[]" else tuple(json.loads(value)) if kind == "tuple" else json.loads(value)
    return record(*values)


def _columns(record: type[Any], alias: str = "") -> str:
    prefix = f"{alias}." if alias else ""
    return ", ".join(f'{prefix}"{name}"' for name in _FIELDS[record])


def _insert(table: str, extra: int = 0) -> str:
    record = _RECORDS[table]
    extras = [part.split()[0] for part in _EXTRA_COLUMNS.get(table, "").split(",") if part.strip()]
    marks = ", ".join("?" * (len(_FIELDS[record]) + extra))
    return f"INSERT INTO {table} ({', '.join([_columns(record), *extras[:extra]])}) VALUES ({marks})"


def _values(record: Any) -> list[Any]:
    return [_stored(getattr(record, name)) for name in _FIELDS[type(record)]]


# --- writing -------------------------------------------------------------------------------------------------------------


class CatalogWriter:
    """One transaction over a catalog that is being built; leaving the block well commits it, leaving it with an error does not."""

    def __init__(self, path: Path) -> None:
        fresh = not path.exists()
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=MEMORY")  # a crash discards the whole candidate, so no journal file may stay behind
        self._db.execute("PRAGMA synchronous=OFF")  # the builder syncs the finished file once
        if not fresh:
            _check_schema(self._db, path)
        self._db.execute("BEGIN")
        if fresh:
            self._create()

    def __enter__(self) -> CatalogWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._db.execute("ROLLBACK" if kind else "COMMIT")
        self._db.close()

    def _create(self) -> None:
        self._db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        self._db.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
        for table, record in _RECORDS.items():
            self._db.execute(f"CREATE TABLE {table} ({_columns(record)}{_EXTRA_COLUMNS.get(table, '')})")
        self._db.execute("CREATE TABLE asset (asset_id TEXT PRIMARY KEY, mime TEXT, width INTEGER, height INTEGER, size INTEGER)")
        for statement in _INDEXES:
            self._db.execute(statement)

    def replace_documents(self, documents: Iterable[Document]) -> None:
        """Make the table of documents hold exactly these; a changed title or tag reaches filters without touching a chunk."""
        self._db.execute("DELETE FROM documents")
        self._db.executemany(_insert("documents"), (_values(item) for item in documents))

    def drop_versions(self, version_ids: Collection[str]) -> None:
        """Remove the rows of these versions from every table; images that no version shows any more go with them."""
        for table in ("versions", "sections", "chunks", "asset_anchor"):
            self._db.executemany(f"DELETE FROM {table} WHERE version_id = ?", ((item,) for item in version_ids))
        self._db.execute("DELETE FROM asset WHERE asset_id NOT IN (SELECT asset_id FROM asset_anchor)")

    def add_version(self, version: Version, sections: Sequence[Section], entries: Sequence[Entry], links: Sequence[MediaLink]) -> None:
        """Add one live version with its sections, chunks and images. Raises IntegrityError when a chunk id is already taken."""
        version_id, doc_id = version.version_id, version.doc_id
        self._db.execute(_insert("versions"), _values(version))
        self._db.executemany(_insert("sections", 3), ([*_values(s), doc_id, version_id, n] for n, s in enumerate(sections)))
        try:
            self._db.executemany(
                _insert("chunks", 5),
                ([*_values(e.chunk), e.content_hash, e.sparse_hash, e.status, _stored(e.keyphrases), e.quality_score] for e in entries),
            )
        except sqlite3.IntegrityError as error:
            raise IntegrityError(
                f"version {version_id} brings a chunk id that is already in the catalog ({error}); "
                "its chunks were cut from another document or twice: rebuild its stages with `rag ingest --policy new_version`"
            ) from error
        self._db.executemany(_insert("asset_anchor", 2), ([*_values(link), doc_id, version_id] for link in links))
        self._db.executemany(
            "INSERT OR IGNORE INTO asset VALUES (?, ?, ?, ?, ?)",
            ((link.asset_id, link.mime, link.width, link.height, link.size) for link in links if link.asset_id),
        )


# --- reading -------------------------------------------------------------------------------------------------------------


class CatalogReader:
    """Read access to a finished catalog from any number of threads; each thread gets its own connection."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise NotFoundError(f"no catalog at {path.name}; rebuild the release with `rag release`", code="no_catalog")
        self._uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        _check_schema(self._db(), path)

    def close(self) -> None:
        """Close every thread's connection; the reader is unusable afterwards."""
        with self._lock:
            while self._open:
                self._open.pop().close()

    def _db(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            # Autocommit and shared closing: close() may run in another thread than the queries did.
            db = sqlite3.connect(self._uri, uri=True, check_same_thread=False, isolation_level=None)
            self._local.db = db
            with self._lock:
                self._open.append(db)
        return db

    def _in(self, sql: str, values: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        items = list(values)
        for start in range(0, len(items), _IN_CLAUSE):
            part = items[start : start + _IN_CLAUSE]
            yield from self._db().execute(sql.replace("(?)", f"({','.join('?' * len(part))})"), part)

    # chunks

    def chunks(self, chunk_ids: Iterable[str]) -> dict[str, Chunk]:
        """Chunks by id; ids that are not in the release are absent."""
        found = self._in(f"SELECT {_columns(Chunk)} FROM chunks WHERE chunk_id IN (?)", chunk_ids)
        return {chunk.chunk_id: chunk for chunk in (_restored(Chunk, row) for row in found)}

    def rows(self, chunk_ids: Iterable[str]) -> dict[str, ChunkRow]:
        """Chunks joined with document and version, by id; ids that are not in the release are absent."""
        sql = (
            f"SELECT {_columns(Chunk, 'c')}, d.title, d.source, d.source_uri, d.filename, d.tags, v.mime, v.received_at, c.status"
            " FROM chunks c JOIN documents d ON d.doc_id = c.doc_id JOIN versions v ON v.version_id = c.version_id WHERE c.chunk_id IN (?)"
        )
        width = len(_FIELDS[Chunk])
        found: dict[str, ChunkRow] = {}
        for row in self._in(sql, chunk_ids):
            title, source, source_uri, filename, tags, mime, created_at, status = row[width:]
            chunk = _restored(Chunk, row)
            found[chunk.chunk_id] = ChunkRow(
                chunk, title, source, source_uri, filename, tuple(json.loads(tags)), mime, created_at, status
            )  # fmt: skip
        return found

    def chunks_of_version(self, version_id: str) -> list[Chunk]:
        """The chunks of a version in reading order."""
        rows = self._db().execute(f"SELECT {_columns(Chunk)} FROM chunks WHERE version_id = ? ORDER BY chunk_index, rowid", (version_id,))
        return [_restored(Chunk, row) for row in rows]

    def entries_of_version(self, version_id: str) -> list[Entry]:
        """The chunks of a version with their index hashes, in reading order."""
        sql = (
            f"SELECT {_columns(Chunk)}, content_hash, sparse_hash, status, keyphrases, quality_score"
            " FROM chunks WHERE version_id = ? ORDER BY chunk_index, rowid"
        )
        width = len(_FIELDS[Chunk])
        return [
            Entry(_restored(Chunk, row), row[width], row[width + 1], row[width + 2], tuple(json.loads(row[width + 3])), row[width + 4])
            for row in self._db().execute(sql, (version_id,))
        ]

    def neighbours(self, chunk_id: str, before: int = 1, after: int = 1) -> list[Chunk]:
        """The chunk with those around it in its version, in reading order. Raises NotFoundError for an unknown id."""
        chunk = self.chunks([chunk_id]).get(chunk_id)
        if chunk is None:
            raise NotFoundError(f"unknown chunk {chunk_id!r} in this release", code="unknown_chunk")
        sql = f"SELECT {_columns(Chunk)} FROM chunks WHERE version_id = ? AND chunk_index BETWEEN ? AND ? ORDER BY chunk_index, rowid"
        bounds = (chunk.version_id, chunk.chunk_index - before, chunk.chunk_index + after)
        return [_restored(Chunk, row) for row in self._db().execute(sql, bounds)]

    def select_ids(self, where: str, params: Sequence[Any] = ()) -> set[str]:
        """Ids of the chunks that satisfy an SQL condition over `c`, `d` and `v` (see FILTERABLE)."""
        # CROSS JOIN fixes the loop order: conditions on documents are tested once per document, not once per chunk.
        sql = (
            "SELECT c.chunk_id FROM documents d CROSS JOIN versions v ON v.doc_id = d.doc_id"
            f" CROSS JOIN chunks c ON c.version_id = v.version_id WHERE {where}"
        )
        return {row[0] for row in self._db().execute(sql, params)}

    def chunk_ids(self, where: str = "1", params: Sequence[Any] = ()) -> list[str]:
        """Ids of chunks in ascending order, restricted by an SQL condition on the table of chunks alone."""
        return [row[0] for row in self._db().execute(f"SELECT chunk_id FROM chunks WHERE {where} ORDER BY chunk_id", params)]

    # documents, versions, sections, images

    def document(self, doc_id: str) -> Document | None:
        """A document by id, None when it is not in the release."""
        row = self._db().execute(f"SELECT {_columns(Document)} FROM documents WHERE doc_id = ?", (doc_id,)).fetchone()
        return None if row is None else _restored(Document, row)

    def documents(
        self, *, source: str | None = None, tag: str | None = None, after: str = "", limit: int | None = None
    ) -> list[Document]:  # fmt: skip
        """Documents ordered by id, those above the id `after` (the cursor), at most `limit`."""
        where, params = ["doc_id > ?"], [after]
        if source is not None:
            where.append("source = ?")
            params.append(source)
        if tag is not None:
            where.append("EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)")
            params.append(tag)
        sql = f"SELECT {_columns(Document)} FROM documents WHERE {' AND '.join(where)} ORDER BY doc_id LIMIT ?"
        return [_restored(Document, row) for row in self._db().execute(sql, [*params, -1 if limit is None else limit])]

    def versions(self) -> dict[str, Version]:
        """Every live version of the release by id."""
        rows = self._db().execute(f"SELECT {_columns(Version)} FROM versions ORDER BY version_id")
        return {version.version_id: version for version in (_restored(Version, row) for row in rows)}

    def version(self, version_id: str) -> Version | None:
        """A version by id, None when it is not in the release."""
        row = self._db().execute(f"SELECT {_columns(Version)} FROM versions WHERE version_id = ?", (version_id,)).fetchone()
        return None if row is None else _restored(Version, row)

    def sections(self, doc_id: str) -> list[Section]:
        """The sections of a document's live version in order."""
        rows = self._db().execute(
            f"SELECT {_columns(Section)} FROM sections WHERE version_id IN (SELECT version_id FROM versions WHERE doc_id = ?)"
            " ORDER BY position", (doc_id,)
        )  # fmt: skip
        return [_restored(Section, row) for row in rows]

    def media(self, doc_id: str) -> list[MediaLink]:
        """The images of a document's live version in order, missing ones included."""
        rows = self._db().execute(
            f"SELECT {_columns(MediaLink)} FROM asset_anchor WHERE version_id IN (SELECT version_id FROM versions WHERE doc_id = ?)"
            ' ORDER BY "order", rowid', (doc_id,)
        )  # fmt: skip
        return [_restored(MediaLink, row) for row in rows]

    def documents_showing(self, asset_id: str) -> list[str]:
        """Ids of the documents whose live version shows an image."""
        rows = self._db().execute("SELECT DISTINCT doc_id FROM asset_anchor WHERE asset_id = ? ORDER BY doc_id", (asset_id,))
        return [row[0] for row in rows]

    # counts

    def counts(self) -> dict[str, int]:
        """Rows by table, and chunks by what the indexes must hold of them: `lexical`, `dense`, `failed_embed`, `no_text`."""
        tables = ("documents", "versions", "sections", "chunks", "asset")
        found = {table: int(self._db().execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in tables}
        sql = (
            "SELECT count(*) FILTER (WHERE sparse_hash != ''), count(*) FILTER (WHERE status = 'ready' AND content_hash != ''),"
            " count(*) FILTER (WHERE status = 'failed_embed'), count(*) FILTER (WHERE status = 'no_text') FROM chunks"
        )
        names = ("lexical", "dense", "failed_embed", "no_text")
        return found | dict(zip(names, self._db().execute(sql).fetchone(), strict=True))

    def chunk_counts(self) -> dict[str, int]:
        """Number of chunks of every live version, zero included."""
        rows = self._db().execute(
            "SELECT v.version_id, count(c.chunk_id) FROM versions v LEFT JOIN chunks c ON c.version_id = v.version_id"
            " GROUP BY v.version_id ORDER BY v.version_id"
        )
        return dict(rows.fetchall())


def _check_schema(db: sqlite3.Connection, path: Path) -> None:
    try:
        row = db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    except sqlite3.DatabaseError as error:
        raise SchemaVersionError(f"{path.name} is not a catalog ({error}); rebuild the release with `rag release`") from error
    if row is None or row[0] != str(SCHEMA_VERSION):
        raise SchemaVersionError(
            f"{path.name} has schema {row[0] if row else 'none'}, this program reads {SCHEMA_VERSION}; "
            "upgrade rag-platform, or rebuild the release with `rag rebuild`"
        )
