"""Reads the catalog of a release: a SQLite database of every document, version, section, chunk and
image of the library.

The vectors and the word index only have chunk ids; everything that filters, citations and pages
show comes from here. Tables derive from the records of `ir`; a release is immutable once built, so
readers open it with `immutable=1` and need no locks.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rag_platform.errors import REBUILD, IntegrityError, NotFoundError
from rag_platform.indexes.catalog_tables import (
    BASE_AND_CHANGES,
    SCHEMA_VERSION,
    VIEW_COLUMNS,
    WHOLE,
    Entry,
    Part,
    changes_of,
    check_schema,
    show_as_current,
    show_changed,
)
from rag_platform.ir import Chunk, Document, MediaLink, MediaText, Section, Version
from rag_platform.storage.records import columns, from_row, read_tuple
from rag_platform.storage.sqlite_files import LastingFile, select_in

if TYPE_CHECKING:  # only questions ask for names by their words
    from rag_platform.indexes.document_names import Name, StoredNames

RecordT = TypeVar("RecordT")
_PAGE = 5_000
# conditions of chunks that are not in both indexes; unlike `!=`, each is a range of the index
# `chunks_state`
_NOT_IN_BOTH = (
    "status < 'ready'",
    "status > 'ready'",
    "status = 'ready' AND in_lexical = 0",
    "status = 'ready' AND in_lexical = 1 AND in_dense = 0",
)

# the chunk `c` has text of the section `s` of the same version, which shares chunks with others
IN_JOINED = "c.section_id = s.joined_to AND c.norm_start < s.norm_end AND s.norm_start < c.norm_end"
_CHUNKS_OF = "CROSS JOIN {0[chunks]} c ON c.doc_id = d.doc_id"
_JOINED_OF = "CROSS JOIN {0[sections]} s ON s.doc_id = d.doc_id AND s.joined_to != ''"


@dataclasses.dataclass(frozen=True, slots=True)
class FilterField:
    """A filterable field: SQL over `c` (chunks), `d` (documents), `v` (versions)."""

    sql: str
    # text | number | flag | list | span; the members of a list are those of json_each(sql)
    kind: str
    end: str = ""  # the last number of a span, whose first is `sql`
    joined: str = ""  # the field for a section `s` that shares chunks with others

    def of_joined(self, condition: str) -> str:
        """The condition on chunks that have text of a section with the given condition."""
        return (
            "c.chunk_id IN (SELECT c.chunk_id FROM sections s JOIN chunks c ON c.version_id ="
            f" s.version_id AND {IN_JOINED} WHERE s.joined_to != '' AND {condition})"
        )


def _of_images(column: str) -> str:
    """SQL for the joined values of a column of `media_texts` for a chunk's images, or NULL."""
    return (
        f"(SELECT group_concat(m.{column}, ' ') FROM json_each(c.asset_ids) j JOIN media_texts m ON"
        f" m.version_id = c.version_id AND m.asset_id = j.value WHERE m.{column} != '')"
    )


# the allowed filter fields; `query.filters` compiles conditions from them and `select_ids` runs
# these
FILTERABLE: Mapping[str, FilterField] = {
    "chunk_id": FilterField("c.chunk_id", "text"),
    "doc_id": FilterField("d.doc_id", "text"),
    "version_id": FilterField("v.version_id", "text"),
    "section_id": FilterField("c.section_id", "text", joined="s.section_id"),
    "section_path": FilterField("c.section_path", "text", joined="s.section_path"),
    "title": FilterField("c.title", "text", joined="s.title"),
    "h1_title": FilterField("c.h1_title", "text"),
    "h2_title": FilterField("c.h2_title", "text", joined="s.h2_title"),
    "chunk_type": FilterField("c.chunk_type", "text"),
    "parent_id": FilterField("c.parent_id", "text"),
    "chunk_index": FilterField("c.chunk_index", "number"),
    "token_count": FilterField("c.token_count", "number"),
    "content_hash": FilterField("c.content_hash", "text"),
    "text_len": FilterField("c.text_len", "number"),
    "too_short": FilterField("c.too_short", "flag"),
    "status": FilterField("c.status", "text"),
    "lang": FilterField("c.lang", "text"),
    "media_type": FilterField("c.media_type", "text"),
    "page_start": FilterField("c.page_start", "number"),
    "page_end": FilterField("c.page_end", "number"),
    "line_start": FilterField("c.line_start", "number"),
    "line_end": FilterField("c.line_end", "number"),
    "page_range": FilterField("c.page_start", "span", "c.page_end"),
    "line_range": FilterField("c.line_start", "span", "c.line_end"),
    "locator": FilterField("c.locator", "text"),
    "asset_ids": FilterField("c.asset_ids", "list"),
    "has_image": FilterField("(c.asset_ids != '[]')", "flag"),
    "image_caption": FilterField(_of_images("caption"), "text"),
    "ocr_text": FilterField(_of_images("ocr_text"), "text"),
    "keyphrases": FilterField("c.keyphrases", "list"),
    "quality_score": FilterField("c.quality_score", "number"),
    "view_title": FilterField("c.view_title", "text"),
    "view_summary": FilterField("c.view_summary", "text"),
    "view_tags": FilterField("c.view_tags", "list"),
    "doc_title": FilterField("d.title", "text"),
    "source": FilterField("d.source", "text"),
    "source_uri": FilterField("d.source_uri", "text"),
    "filename": FilterField("d.filename", "text"),
    "tags": FilterField("d.tags", "list"),
    "categories": FilterField("d.categories", "list"),
    "content_type": FilterField("substr(v.mime, 1, instr(v.mime || ';', ';') - 1)", "text"),
    "created": FilterField("json_extract(d.metadata, '$.created')", "text"),
    "modified": FilterField("json_extract(d.metadata, '$.modified')", "text"),
    "created_at": FilterField("v.received_at", "text"),
    "updated_at": FilterField("d.updated_at", "text"),
    # when the document was created, else last changed, else received
    "doc_date": FilterField(
        "coalesce(json_extract(d.metadata, '$.created'), json_extract(d.metadata, '$.modified'),"
        " v.received_at)",
        "text",
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk joined with its document and version."""

    chunk: Chunk
    doc_title: str
    source: str
    source_uri: str
    filename: str
    tags: tuple[str, ...]
    content_type: str
    created_at: str
    status: str


class HitRow(NamedTuple):
    """The columns that hits and preferences need of a chunk; lists are JSON text."""

    chunk_id: str
    doc_id: str
    version_id: str
    source_uri: str
    filename: str
    doc_title: str
    section_path: str
    chunk_index: int
    chunk_text: str
    page_start: int | None
    page_end: int | None
    line_start: int | None
    line_end: int | None
    asset_ids: str
    locator: str
    edited_from: str
    parent_id: str
    source: str
    tags: str
    doc_date: str


_OF_OTHER_TABLES = {
    "source_uri": "d.source_uri",
    "filename": "d.filename",
    "doc_title": "d.title",
    "source": "d.source",
    "tags": "d.tags",
    "doc_date": FILTERABLE["doc_date"].sql,
}
_HIT_COLUMNS = ", ".join(_OF_OTHER_TABLES.get(name, f"c.{name}") for name in HitRow._fields)


# --- reading ------------------------------------------------------------------------------------


class CatalogReader:
    """Reads a finished catalog; safe between threads, and usable after the release was removed."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise NotFoundError(f"no catalog at {path.name}; {REBUILD}", code="no_catalog")
        self.path = path
        self._changes = changes_of(path)
        self._parts = BASE_AND_CHANGES if self._changes else WHOLE
        self._stored_names: StoredNames | None = None
        try:
            self._file = LastingFile(path, self._prepare, self._damaged)
            self.select = self._file.execute  # raises IntegrityError `catalog_damaged`
        # the release may have been removed since the check above
        except sqlite3.OperationalError as error:
            raise NotFoundError(
                f"{path.name} cannot be opened ({error}); {REBUILD}", code="no_catalog"
            ) from error

    def close(self) -> None:
        self._file.close()
        if self._stored_names is not None:
            self._stored_names.close()

    def _prepare(self, db: sqlite3.Connection) -> None:
        self.schema_version = check_schema(db, self.path)
        if self._changes is not None:
            show_changed(db, self._changes)
        elif self.schema_version < SCHEMA_VERSION:
            show_as_current(db)

    def _damaged(self, error: sqlite3.DatabaseError) -> IntegrityError:
        return IntegrityError(
            f"the catalog {self.path} cannot be read ({error}); build another release with `rag"
            " rebuild --full`",
            code="catalog_damaged",
        )

    def stored_columns(self, table: str) -> set[str]:
        """The columns of a table of the base, without those that an older catalog lacks."""
        return {row[1] for row in self.select(f"PRAGMA main.table_info({table})")}

    def _records(
        self, record: type[RecordT], rest: str, values: Sequence[Any] = ()
    ) -> list[RecordT]:
        """The records selected by the `rest` of a statement, which begins with FROM."""
        rows = self.select(f"SELECT {columns(record)} {rest}", values)
        return [from_row(record, row) for row in rows]

    def _records_in(self, record: type[RecordT], rest: str, values: Iterable[Any]) -> list[RecordT]:
        """As `_records`, for a statement with `IN (?)`."""
        rows = self._select_in(f"SELECT {columns(record)} {rest}", values)
        return [from_row(record, row) for row in rows]

    def _select_in(self, sql: str, values: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        return select_in(self.select, sql, values)

    def _select_each(
        self, statement: Callable[[Part], str], values: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of each part in turn; joins and counts over the views would scan all rows."""
        for part in self._parts:
            yield from self.select(statement(part), values)

    # chunks

    def chunks(self, chunk_ids: Iterable[str]) -> dict[str, Chunk]:
        """Chunks by id; ids that are not in the release are absent."""
        found = self._records_in(Chunk, "FROM chunks WHERE chunk_id IN (?)", chunk_ids)
        return {chunk.chunk_id: chunk for chunk in found}

    def rows(self, chunk_ids: Iterable[str]) -> dict[str, ChunkRow]:
        """Chunks joined with document and version, by id; unknown ids are absent."""
        sql = f"SELECT {columns(Chunk)}, status FROM chunks WHERE chunk_id IN (?)"
        chunks = [(from_row(Chunk, row), row[-1]) for row in self._select_in(sql, chunk_ids)]
        # no SQL join, which would read and convert a document once for each of its chunks
        found = self.join_documents(
            "v.version_id, d.title, d.source, d.source_uri, d.filename, d.tags, v.mime,"
            " v.received_at",
            {chunk.version_id for chunk, _ in chunks},
        )
        owners = {
            version: (title, source, uri, name, read_tuple(tags), mime.split(";")[0], created_at)
            for version, title, source, uri, name, tags, mime, created_at in found
        }
        return {
            chunk.chunk_id: ChunkRow(chunk, *owners[chunk.version_id], status)
            for chunk, status in chunks
            if chunk.version_id in owners
        }

    def join_documents(self, columns: str, version_ids: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        """SQL `columns` of versions `v`, joined with their documents `d`."""
        wanted = list(version_ids)
        for part in self._parts:
            sql = (
                f"SELECT {columns} FROM {part['versions']} v JOIN {part['documents']} d ON"
                f" d.doc_id = v.doc_id WHERE v.version_id IN (?) AND {part.kept('v.doc_id')}"
            )
            yield from self._select_in(sql, wanted)

    def hit_rows(self, chunk_ids: Collection[str]) -> dict[str, HitRow]:
        """The `HitRow` of chunks by id; unknown ids are absent. Half the cost of `rows`."""
        found: dict[str, HitRow] = {}
        for part in self._parts:
            sql = (
                f"SELECT {_HIT_COLUMNS} FROM {part['chunks']} c CROSS JOIN {part['versions']} v ON"
                f" v.version_id = c.version_id CROSS JOIN {part['documents']} d ON d.doc_id ="
                f" v.doc_id WHERE c.chunk_id IN (?) AND {part.kept('c.doc_id')}"
            )
            found |= {row[0]: HitRow._make(row) for row in self._select_in(sql, chunk_ids)}
        return found

    def chunks_of_version(self, version_id: str) -> list[Chunk]:
        """The chunks of a version in reading order."""
        rest = "FROM chunks WHERE version_id = ? ORDER BY chunk_index, rowid"
        return self._records(Chunk, rest, (version_id,))

    def chunk_page(self, version_id: str, section_id: str, begin: int, limit: int) -> list[Chunk]:
        """At most `limit` chunks of a version in reading order from position `begin` on; with a
        section_id only those with text of that section.
        """
        rest = (
            "FROM chunks c WHERE version_id = ? AND (? IN ('', c.section_id) OR EXISTS (SELECT 1"
            " FROM sections s WHERE s.version_id = c.version_id AND s.section_id = ? AND"
            f" {IN_JOINED})) ORDER BY c.chunk_index, c.rowid LIMIT ? OFFSET ?"
        )
        return self._records(Chunk, rest, (version_id, section_id, section_id, limit, begin))

    def section_counts(self, version_id: str) -> dict[str, int]:
        """section_id to the number of chunks with text of it; a chunk may have several."""
        sql = (
            "SELECT section_id, count(*) FROM chunks WHERE version_id = ? GROUP BY 1 UNION ALL"
            " SELECT s.section_id, count(*) FROM sections s JOIN chunks c ON c.version_id ="
            f" s.version_id AND {IN_JOINED} WHERE s.version_id = ? AND s.joined_to != '' GROUP BY 1"
        )
        return dict(self.select(sql, (version_id, version_id)))

    def entries_of_version(self, version_id: str) -> list[Entry]:
        """The chunks of a version with their index hashes, in reading order."""
        sql = (
            f"SELECT {columns(Chunk)}, content_hash, sparse_hash, status, {', '.join(VIEW_COLUMNS)}"
            " FROM chunks WHERE version_id = ? ORDER BY chunk_index, rowid"
        )
        found: list[Entry] = []
        for row in self.select(sql, (version_id,)):
            *hashes, keyphrases, score, title, summary, tags = row[len(dataclasses.fields(Chunk)) :]
            views: Any = (read_tuple(keyphrases), score, title, summary, read_tuple(tags))
            found.append(Entry(from_row(Chunk, row), *hashes, *views))
        return found

    def neighbours(self, chunk_id: str, before: int = 1, after: int = 1) -> list[Chunk]:
        """The chunk and its neighbours in reading order. Raises NotFoundError `unknown_chunk`."""
        chunk = self.chunks([chunk_id]).get(chunk_id)
        if chunk is None:
            raise NotFoundError(f"unknown chunk {chunk_id!r} in this release", code="unknown_chunk")
        rest = (
            "FROM chunks WHERE version_id = ? AND chunk_index BETWEEN ? AND ? ORDER BY chunk_index,"
            " rowid"
        )
        bounds = (chunk.version_id, chunk.chunk_index - before, chunk.chunk_index + after)
        return self._records(Chunk, rest, bounds)

    def select_ids(self, where: str, params: Sequence[Any] = ()) -> set[str]:
        """Ids of the chunks that satisfy SQL over `c`, `d` and `v` (see FILTERABLE)."""
        # CROSS JOIN fixes the loop order: conditions on documents are tested once per document, not
        # once per chunk. A release has one version of a document, so chunks can be joined by
        # doc_id, which an index covers.
        found = self._select_each(
            lambda part: (
                f"SELECT c.chunk_id FROM {part['documents']} d CROSS JOIN {part['versions']} v ON"
                f" v.doc_id = d.doc_id CROSS JOIN {part['chunks']} c ON c.doc_id = d.doc_id WHERE"
                f" ({where}) AND {part.kept('d.doc_id')}"
            ),
            params,
        )
        return {row[0] for row in found}

    def field_values(self, field: FilterField, hidden: Collection[str], limit: int) -> list[str]:
        """At most `limit` distinct values of a text field, or members of a list field, in no order,
        without those of the documents and versions in `hidden`.
        """
        sources = [(field.sql, _CHUNKS_OF if "c." in field.sql else "")]
        if field.kind == "list":
            sources = [("m.value", f"{sources[0][1]}, json_each({field.sql}) m")]
        if field.joined and self.schema_version == SCHEMA_VERSION:
            sources.append((field.joined, _JOINED_OF))
        shown = (json.dumps(sorted(hidden)), limit)
        found = dict[str, None]()
        for source in sources:
            rows = self._select_each(partial(_select_values, *source), shown)
            found |= dict.fromkeys(str(row[0]) for row in rows if row[0])
        return list(found)[:limit]

    def chunk_ids(self, where: str = "1", params: Sequence[Any] = ()) -> list[str]:
        """Ascending ids of the chunks that satisfy an SQL condition on the table chunks."""
        sql = f"SELECT chunk_id FROM chunks WHERE {where} ORDER BY chunk_id"
        return [row[0] for row in self.select(sql, params)]

    def stored_ids(self, chunk_ids: Iterable[str], version_ids: Iterable[str] = ()) -> set[str]:
        """The given chunks, and those of the given versions, that are still stored in some file,
        even if they are no longer part of the release.
        """
        wanted, found = {"chunk_id": list(chunk_ids), "version_id": list(version_ids)}, set[str]()
        for part in self._parts:
            for column, values in wanted.items():
                sql = f"SELECT chunk_id FROM {part['chunks']} WHERE {column} IN (?)"
                found |= {row[0] for row in self._select_in(sql, values)}
        return found

    def gone(self) -> dict[str, str]:
        """version_id to doc_id of the rows in the base that are no longer part of the release."""
        if self._changes is None:
            return {}
        return dict(self.select("SELECT version_id, doc_id FROM changes.gone"))

    def count_changes(self) -> int:
        """The number of chunks added to or removed from the base."""
        if self._changes is None:
            return 0
        sql = (
            "SELECT (SELECT count(*) FROM changes.chunks) + (SELECT count(*) FROM changes.gone g"
            " CROSS JOIN main.chunks c ON c.doc_id = g.doc_id)"
        )
        return int(self.select(sql)[0][0])

    def indexed_ids(self) -> tuple[set[str], set[str]]:
        """(ids of the chunks in the word index, ids of those with a vector)."""
        rows = list(
            self._select_each(
                lambda part: (
                    "SELECT chunk_id, in_lexical, in_dense FROM"
                    f" {part.name or 'main'}.chunks WHERE {part.kept('doc_id')}"
                )
            )
        )
        return {row[0] for row in rows if row[1]}, {row[0] for row in rows if row[2]}

    # documents, versions, sections, images

    def document(self, doc_id: str) -> Document | None:
        """A document by id, None when it is not in the release."""
        return next(iter(self.documents_of([doc_id])), None)

    def documents(
        self, *, tag: str | None = None, after: str = "", limit: int | None = None
    ) -> list[Document]:
        """At most `limit` documents ordered by id, after the id `after` (the cursor)."""
        where, params = "doc_id > ?", [after]
        if tag is not None:
            where += " AND EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)"
            params.append(tag)
        rest = f"FROM documents WHERE {where} ORDER BY doc_id LIMIT ?"
        return self._records(Document, rest, [*params, -1 if limit is None else limit])

    def documents_of(self, doc_ids: Iterable[str]) -> list[Document]:
        """The given documents; unknown ids are absent."""
        return self._records_in(Document, "FROM documents WHERE doc_id IN (?)", doc_ids)

    def heads(self, doc_ids: Iterable[str]) -> dict[str, str]:
        """doc_id to the text of its first chunk."""
        sql = "SELECT doc_id, chunk_text FROM chunks WHERE doc_id IN (?) AND chunk_index = 0"
        return dict(self._select_in(sql, doc_ids))

    def names(self, *, changed: bool = False) -> Iterator[Name]:
        """The names of all documents, or of those changed since the base, by doc_id."""
        return heapq.merge(*map(self._names_in, self._parts[1:] if changed else self._parts))

    def paths(self) -> list[tuple[str, str]]:
        """(doc_id, source_uri) of every document."""
        return self.select("SELECT doc_id, source_uri FROM documents")

    def stored_names(self) -> StoredNames | None:
        """The stored index of the names of the base, None where there is none."""
        if self._stored_names is None:
            from rag_platform.indexes.document_names import StoredNames

            self._stored_names = StoredNames.open(self.path, self.gone().values())
        return self._stored_names

    def _names_in(self, part: Part) -> Iterator[Name]:
        """The names of one part, in pages, since a large library has too many for memory."""
        sql = (
            "SELECT d.doc_id, d.source_uri, d.filename, d.title, (SELECT count(*) FROM"
            f" {part.name or 'main'}.chunks c WHERE c.doc_id = d.doc_id) FROM {part['documents']} d"
            f" WHERE d.doc_id > ? AND {part.kept('d.doc_id')} ORDER BY d.doc_id LIMIT {_PAGE}"
        )
        after = ""
        while page := self.select(sql, (after,)):
            yield from page
            after = page[-1][0]

    def live_versions(self) -> dict[str, tuple[str, str]]:
        """doc_id to (version_id, source_uri) of every document."""
        sql = "SELECT doc_id, coalesce(live_version, ''), source_uri FROM documents"
        return {doc_id: (version_id, uri) for doc_id, version_id, uri in self.select(sql)}

    def languages(self, sample: int = 500) -> dict[str, float]:
        """The share of each language among about `sample` chunks; `""` in older catalogs."""
        found: Counter[str] = Counter()
        for part in self._parts:
            (rows,) = self.select(
                f"SELECT coalesce(max(rowid), 0) FROM {part['chunks']}"
            ).fetchone()
            numbers = range(1, rows + 1, max(1, rows // sample))
            sql = f"SELECT lang FROM {part['chunks']} WHERE rowid IN (?) AND {part.kept('doc_id')}"
            found.update(lang for (lang,) in self._select_in(sql, numbers))
        return {lang: count / found.total() for lang, count in found.items()}

    def versions(self, version_ids: Iterable[str] | None = None) -> dict[str, Version]:
        """Live versions by id: all, or the given ones; unknown ids are absent."""
        found = (
            self._records(Version, "FROM versions ORDER BY version_id")
            if version_ids is None
            else self._records_in(Version, "FROM versions WHERE version_id IN (?)", version_ids)
        )
        return {version.version_id: version for version in found}

    def version_ids(self, doc_ids: Iterable[str] | None = None) -> tuple[set[str], set[str]]:
        """(ids of stored versions, ids of documents' live versions), of all documents or these."""
        wanted = None if doc_ids is None else list(doc_ids)
        stored, live = (
            self.select(sql)
            if wanted is None
            else self._select_in(f"{sql} WHERE doc_id IN (?)", wanted)
            for sql in ("SELECT version_id FROM versions", "SELECT live_version FROM documents")
        )
        return {row[0] for row in stored}, {str(row[0]) for row in live}

    def unembedded(self) -> dict[str, str]:
        """version_id to doc_id of the versions with a chunk whose embedding failed."""
        sql = "SELECT DISTINCT version_id, doc_id FROM chunks WHERE status = 'failed_embed'"
        return dict(self.select(sql))

    def version(self, version_id: str) -> Version | None:
        """A version by id, None when it is not in the release."""
        return self.versions([version_id]).get(version_id)

    def sections(self, doc_id: str) -> list[Section]:
        """The sections of a document's live version in order."""
        return self._of_document(
            Section, "FROM sections WHERE version_id = ? ORDER BY position", doc_id
        )

    def _of_document(self, record: type[RecordT], rest: str, doc_id: str) -> list[RecordT]:
        """As `_records`, for the version of a document in the release."""
        versions = self.select("SELECT version_id FROM versions WHERE doc_id = ?", (doc_id,))
        return [found for version in versions for found in self._records(record, rest, version)]

    def media(self, doc_id: str) -> list[MediaLink]:
        """The images of a document's live version in order, missing ones included."""
        rest = 'FROM asset_anchor WHERE version_id = ? ORDER BY "order", rowid'
        return self._of_document(MediaLink, rest, doc_id)

    def asset_documents(self, asset_ids: Iterable[str]) -> list[tuple[str, str, str]]:
        """(asset_id, version_id, doc_id) for every document with one of the images."""
        wanted = list(asset_ids)
        found: list[tuple[Any, ...]] = []
        for part in self._parts:
            sql = (
                f"SELECT DISTINCT a.asset_id, v.version_id, v.doc_id FROM {part['asset_anchor']} a"
                f" JOIN {part['versions']} v ON v.version_id = a.version_id WHERE a.asset_id IN (?)"
                f" AND {part.kept('v.doc_id')}"
            )
            found += self._select_in(sql, wanted)
        return sorted(found)

    def media_texts(
        self, version_id: str, asset_ids: Sequence[str] | None = None
    ) -> list[MediaText]:
        """The recognised texts and captions of the images of a live version, by asset_id, or only
        those of these images.
        """
        values, only = [version_id], ""
        if asset_ids is not None:
            values.append(json.dumps(asset_ids))
            only = " AND asset_id IN (SELECT value FROM json_each(?))"
        rest = f"FROM media_texts WHERE version_id = ?{only} ORDER BY asset_id"
        return self._records(MediaText, rest, values)

    # counts

    def counts(self) -> dict[str, int]:
        """Rows by table, and chunks by `lexical`, `dense`, `failed_embed`, `no_text`."""
        found = {
            table: self._count(table) for table in ("documents", "versions", "sections", "chunks")
        }
        found["asset"] = self.count_images()
        states = self._count_not_in_both()
        return found | {
            "lexical": found["chunks"] - sum(n for (_, has, _), n in states.items() if not has),
            "dense": found["chunks"] - sum(n for (_, _, has), n in states.items() if not has),
            "failed_embed": sum(n for key, n in states.items() if key[0] == "failed_embed"),
            "no_text": sum(n for key, n in states.items() if key[0] == "no_text"),
        }

    def _count(self, table: str) -> int:
        """The rows of the base and the changes, less the gone ones. Counting these separately lets
        SQLite answer for the base from an index alone.
        """
        counted = [self.select(f"SELECT count(*) FROM {part[table]}") for part in self._parts]
        found = sum(int(rows[0][0]) for rows in counted)
        if self._changes is None:
            return found
        key = "version_id" if table == "sections" else "doc_id"
        gone = self.select(
            f"SELECT count(*) FROM changes.gone g CROSS JOIN main.{table} t ON t.{key} = g.{key}"
        )
        return found - int(gone[0][0])

    def _count_not_in_both(self) -> Counter[tuple[str, int, int]]:
        """The number of chunks that are not in both indexes, by (status, in_lexical, in_dense)."""
        found: Counter[tuple[str, int, int]] = Counter()
        state = "status, in_lexical, in_dense"
        for part in self._parts:
            for condition in _NOT_IN_BOTH:
                rows = self.select(
                    f"SELECT {state}, count(*) FROM {part['chunks']} WHERE {condition} AND"
                    f" {part.kept('doc_id')} GROUP BY {state}"
                )
                found.update({(status, *rest): count for status, *rest, count in rows})
        return found

    def versions_since(self, time: str) -> list[str]:
        found = self.select("SELECT version_id FROM versions WHERE received_at >= ?", (time,))
        return [version_id for (version_id,) in found]

    def count_images(self, since: str = "") -> int:
        """The number of images, of all versions or of those received since an ISO time."""
        if not since:
            return int(self.select("SELECT count(*) FROM asset").fetchone()[0])
        # CROSS JOIN fixes the join order: most releases have few images
        found = self._select_each(
            lambda part: (
                f"SELECT DISTINCT asset_id FROM {part['asset_anchor']} a CROSS JOIN"
                f" {part['versions']} v WHERE v.version_id = a.version_id AND v.received_at >= ?"
                f" AND a.asset_id != '' AND {part.kept('v.doc_id')}"
            ),
            (since,),
        )
        return len({row[0] for row in found})

    def chunk_counts(self, version_ids: Iterable[str] | None = None) -> dict[str, int]:
        """Number of chunks of every live version, or of the given ones, zero included."""
        if version_ids is not None:
            sql = "SELECT version_id, count(*) FROM chunks WHERE version_id IN (?) GROUP BY 1"
            wanted = list(version_ids)
            return dict.fromkeys(wanted, 0) | dict(self._select_in(sql, wanted))
        found = dict(self.select("SELECT version_id, 0 FROM versions ORDER BY version_id"))
        for part in self._parts:  # the tables, not their views, so that an index answers alone
            sql = (
                f"SELECT version_id, count(*) FROM {part.name or 'main'}.chunks WHERE"
                f" {part.kept('version_id', 'version_id')} GROUP BY version_id"
            )
            found |= dict(self.select(sql))
        return found


def _select_values(value: str, tables: str, part: Part) -> str:
    return (
        f"SELECT DISTINCT {value} FROM {part['documents']} d CROSS JOIN {part['versions']} v ON"
        f" v.doc_id = d.doc_id {tables.format(part)} WHERE {part.kept('d.doc_id')} AND NOT EXISTS"
        " (SELECT 1 FROM json_each(?) WHERE value IN (d.doc_id, v.version_id)) LIMIT ?"
    )
