"""Proof of a catalog, column by column: its rows are made anew from the stored outputs of each
version, and counted against the manifest.

`PROVED` says of every column how it is proved. What the outputs say is in turn proved against the
raw bytes by `documents.provenance`.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rag_platform.config.settings import fingerprint
from rag_platform.documents.metadata import with_file_metadata
from rag_platform.errors import NotFoundError, RagError
from rag_platform.indexes.catalog_tables import column_names, row_of_document, rows_of_version
from rag_platform.indexes.delta import load_version
from rag_platform.intake.receiving import version_id as version_name
from rag_platform.ir import Document, VerifyFailure, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.releases.manifest import Manifest
from rag_platform.storage.store import Store

# How each column is proved:
#   raw       computed anew from the raw bytes, through facts, edits and sections; then as `output`
# output made anew from the stored outputs of the version, which the manifest knows by their
# fingerprint identity equal to the ledger, to the ids made of it and to the manifest given by
# users, by the file or by the ledger: the manifest knows it by its fingerprint, the ledger as long
# as nothing changed there counted against the manifest and the indexes
PROVED: Mapping[str, Mapping[str, str]] = {
    "meta": {"key": "counted", "value": "counted"},
    "documents": {
        "namespace": "identity",
        "doc_id": "identity",
        "source": "given",
        "source_uri": "identity",
        "filename": "given",
        "title": "given",
        "tags": "given",
        "categories": "given",
        "metadata": "given",
        "live_version": "identity",
        "pinned": "given",
        "status": "given",
        "origin": "given",
        "created_at": "given",
        "updated_at": "given",
        "wanted_version": "given",
    },
    "versions": {
        "version_id": "identity",
        "namespace": "identity",
        "doc_id": "identity",
        "source_uri": "identity",
        "filename": "given",
        "file_sha256": "raw",
        "size": "raw",
        "mime": "given",
        "loader": "given",
        "strategy": "given",
        "revision": "given",
        "status": "given",
        "code": "given",
        "reason": "given",
        "received_at": "given",
        "completed_at": "given",
        "counts": "given",
        "edition": "identity",
        "attempts": "given",
    },
    "sections": {
        "section_id": "raw",
        "section_path": "raw",
        "heading_level": "raw",
        "ordinal": "raw",
        "norm_start": "raw",
        "norm_end": "raw",
        "title": "raw",
        "h1_title": "raw",
        "h2_title": "raw",
        "doc_id": "identity",
        "version_id": "identity",
        "position": "output",
    },
    "chunks": {
        "chunk_id": "raw",
        "section_id": "raw",
        "doc_id": "identity",
        "version_id": "identity",
        "chunk_index": "output",
        "chunk_text": "raw",
        "chunk_fingerprint": "raw",
        "norm_start": "raw",
        "norm_end": "raw",
        "fact_start": "raw",
        "fact_end": "raw",
        "section_path": "raw",
        "title": "raw",
        "h1_title": "raw",
        "h2_title": "raw",
        "token_count": "output",
        "text_len": "output",
        "too_short": "output",
        "chunk_type": "output",
        "parent_id": "output",
        "lang": "output",
        "media_type": "output",
        "page_start": "raw",
        "page_end": "raw",
        "line_start": "raw",
        "line_end": "raw",
        "byte_start": "raw",
        "byte_end": "raw",
        "asset_ids": "output",
        "locator": "raw",
        "edited_from": "output",
        "content_hash": "output",
        "sparse_hash": "output",
        "status": "output",
        "keyphrases": "output",
        "quality_score": "output",
        "view_title": "output",
        "view_summary": "output",
        "view_tags": "output",
        "in_lexical": "counted",
        "in_dense": "counted",
    },
    "asset_anchor": {
        "ref_id": "output",
        "asset_id": "output",
        "origin_ref": "output",
        "mime": "output",
        "width": "output",
        "height": "output",
        "size": "output",
        "start": "output",
        "end": "output",
        "page": "output",
        "bbox": "output",
        "order": "output",
        "heading_path": "output",
        "reason": "output",
        "doc_id": "identity",
        "version_id": "identity",
    },
    "media_texts": {
        "asset_id": "output",
        "ocr_text": "output",
        "ocr_confidence": "output",
        "caption": "output",
        "caption_json": "output",
        "ocr_profile_id": "output",
        "caption_profile_id": "output",
        "context_hash": "output",
        "warnings": "output",
        "version_id": "identity",
    },
    "asset": {
        "asset_id": "output",
        "mime": "output",
        "width": "output",
        "height": "output",
        "size": "output",
    },
}

_OF_VERSIONS = ("sections", "chunks", "asset_anchor", "media_texts")
# what the ledger never changes of a document and of a version, and what it says anew without the
# catalog being behind
_LASTING = {
    "documents": ("namespace", "doc_id", "source_uri", "created_at"),
    "versions": (
        "version_id",
        "namespace",
        "doc_id",
        "source_uri",
        "file_sha256",
        "size",
        "received_at",
    ),
}
_PASSING = {
    "documents": ("live_version", "pinned", "status", "updated_at", "wanted_version"),
    "versions": ("status", "code", "reason", "attempts"),
}
_SHOWN = 5

Row = dict[str, Any]


# --- fingerprints for the manifest --------------------------------------------------------------


def output_fingerprint(store: Store, version: Version, profiles: Mapping[str, str]) -> str:
    """16 hex digits over every stored output that the rows of a version are made of; those it has
    none of count as such.
    """
    folder = store.facts_dir(version, profiles["facts"])
    paths = [
        folder / name for name in ("facts.md", "blocks.parquet", "media.parquet", "summary.json")
    ]
    paths += [store.version_path(version, "edits", profiles["sections"])]
    paths += [
        store.version_path(version, kind, profiles[kind])
        for kind in ("media", "media_texts", "sections", "chunks", "views")
    ]
    if version.edition:
        paths += [
            store.version_path(version, kind, profiles[kind], version.edition)
            for kind in ("chunks", "views")
        ]
    return fingerprint(
        [hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "" for path in paths]
    )


def given_fingerprint(document: Sequence[Any], version: Sequence[Any]) -> str:
    """16 hex digits over the rows of a document and of its version, in the order of their
    columns.
    """
    return fingerprint(list(document), list(version))


def given_fingerprints(path: Path, version_ids: Iterable[str]) -> dict[str, str]:
    """version_id to the fingerprint of what a finished catalog holds of it and its document."""
    documents, versions = (column_names(table) for table in ("documents", "versions"))
    names, count = f"{_quoted(documents, 'd')}, {_quoted(versions, 'v')}", len(documents)
    sql = (
        f"SELECT v.version_id, {names} FROM versions v JOIN documents d ON d.doc_id = v.doc_id"
        " WHERE v.version_id = ?"
    )
    with closing(_opened(path)) as db:
        rows = (db.execute(sql, (name,)).fetchone() for name in version_ids)
        return {row[0]: given_fingerprint(row[1 : count + 1], row[count + 1 :]) for row in rows}


def _quoted(names: Iterable[str], alias: str = "") -> str:
    return ", ".join(f'{alias}."{name}"' if alias else f'"{name}"' for name in names)


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)


# --- the proof ----------------------------------------------------------------------------------


@dataclass
class CatalogProof:
    """The proof of one release's catalog; older releases are proved with what they recorded,
    `warnings` says what that is not.
    """

    store: Store
    manifest: Manifest
    path: Path
    ledger: Ledger
    warnings: list[str] = field(default_factory=list)

    def __enter__(self) -> CatalogProof:
        self._db = _opened(self.path)
        tables = {
            row[0]
            for row in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        present = {
            table: [row[1] for row in self._db.execute(f"PRAGMA table_info({table})")]
            for table in tables & PROVED.keys()
        }
        self.columns = {
            table: [name for name in PROVED[table] if name in present.get(table, ())]
            for table in PROVED
        }
        if self.manifest.versions and not self.manifest.outputs:
            self.warnings.append(
                "the release was built before fingerprints were recorded: titles and tags changed"
                " since are not told; `rag rebuild --full`"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def _rows(
        self, table: str, where: str = "1", values: Sequence[Any] = (), order: str = "rowid"
    ) -> list[Row]:
        names = self.columns[table]
        if not names:
            return []
        sql = f"SELECT {_quoted(names)} FROM {table} WHERE {where} ORDER BY {order}"
        return [dict(zip(names, row, strict=True)) for row in self._db.execute(sql, values)]

    def version_ids(self) -> list[str]:
        """Every version that the catalog holds or has chunks of."""
        return [
            str(row[0])
            for row in self._db.execute(
                "SELECT version_id FROM versions UNION SELECT version_id FROM chunks"
            )
        ]

    def version_of(self, chunk_id: str) -> str | None:
        """The version that a chunk says it is of, None for an unknown chunk."""
        row = self._db.execute(
            "SELECT version_id FROM chunks WHERE chunk_id = ?", (chunk_id,)
        ).fetchone()
        return None if row is None else str(row[0])

    # one version

    def of_version(self, version: Version) -> list[VerifyFailure]:
        """What of a version's rows is not what its outputs, the ledger and the manifest make them;
        one failure a row, of chunks by id.
        """
        return [
            VerifyFailure(chunk_id, version.version_id, version.source_uri, reason)
            for chunk_id, reason in self._of_version(version)
        ]

    def _of_version(self, version: Version) -> Iterator[tuple[str, str]]:
        version_id = version.version_id
        documents = self._rows("documents", "doc_id = ?", [version.doc_id])
        versions = self._rows("versions", "version_id = ?", [version_id])
        if len(documents) != 1 or len(versions) != 1:
            yield (
                "",
                (
                    f"rows: {len(documents)} documents and {len(versions)} versions have these ids,"
                    " there must be one of each"
                ),
            )
            return
        yield from self._owner_problems(version, documents[0], versions[0])
        recorded = self.manifest.outputs.get(version_id)
        if (
            recorded is not None
            and (found := output_fingerprint(self.store, version, self.manifest.profiles))
            != recorded
        ):
            yield (
                "",
                (
                    f"outputs_changed: the stored outputs of {version_id} have fingerprint {found},"
                    f" recorded {recorded}; run `rag rebuild`"
                ),
            )
        try:
            stored = load_version(self.store, version, self.manifest.profiles)
        except (RagError, OSError, ValueError, TypeError, KeyError) as error:
            yield "", f"outputs_unreadable: {getattr(error, 'message', error)}; run `rag rebuild`"
            return
        chunks = self._rows("chunks", "version_id = ?", [version_id], "chunk_index, rowid")
        failed = {row["content_hash"]: "" for row in chunks if row.get("status") == "failed_embed"}
        wanted = {
            table: [dict(zip(column_names(table), row, strict=True)) for row in rows]
            for table, rows in rows_of_version(
                version, stored.sections, stored.entries(failed), stored.links, stored.texts
            ).items()
        }
        yield from self._differences("chunks", wanted["chunks"], chunks, "chunk_id")
        sections = self._rows("sections", "version_id = ?", [version_id], "position, rowid")
        yield from self._differences("sections", wanted["sections"], sections, "section_id")
        for table in ("asset_anchor", "media_texts"):
            if self.columns[table]:
                yield from self._differences(
                    table, wanted[table], self._rows(table, "version_id = ?", [version_id]), ""
                )
        for row in wanted["asset"]:
            held = self._rows("asset", "asset_id = ?", [row["asset_id"]])
            if len(held) != 1:
                yield (
                    "",
                    f"rows: {len(held)} images have the id {row['asset_id']}, there must be one",
                )

    def _differences(
        self, table: str, wanted: Sequence[Row], held: Sequence[Row], key: str
    ) -> Iterator[tuple[str, str]]:
        """(chunk id or nothing, reason) of the rows that are missing, too many or otherwise;
        without a key rows are told by their place.
        """

        def chunk_of(row: Row) -> str:
            return str(row["chunk_id"]) if table == "chunks" else ""

        names = self.columns[table]
        left = [(row[key] if key else number, row) for number, row in enumerate(wanted)]
        right = dict((row[key] if key else number, row) for number, row in enumerate(held))
        if len(right) < len(held):
            twice = [name for name, count in Counter(row[key] for row in held).items() if count > 1]
            yield (
                (str(twice[0]) if table == "chunks" else ""),
                f"row_twice: {table} holds {twice[0]!r} twice",
            )
        for name, row in left:
            other = right.pop(name, None)
            if other is None:
                yield (
                    chunk_of(row),
                    f"row_missing: {table} lacks row {name!r}, which the stored outputs have",
                )
            elif wrong := next((column for column in names if other[column] != row[column]), None):
                yield (
                    chunk_of(row),
                    (
                        f"column: {table}.{wrong} is {_short(other[wrong])}, the stored outputs say"
                        f" {_short(row[wrong])}"
                    ),
                )
        for name, row in right.items():
            yield (
                chunk_of(row),
                f"row_unknown: {table} holds row {name!r}, which the stored outputs lack",
            )

    def _owner_problems(
        self, version: Version, document: Row, row: Row
    ) -> Iterator[tuple[str, str]]:
        """Why document and version are not those that the manifest and the ledger know."""
        version_id = version.version_id
        if version_id != version_name(version.namespace, version.doc_id, version.file_sha256):
            yield (
                "",
                (
                    f"identity: {version.doc_id!r} with the bytes {version.file_sha256[:12]} is not"
                    f" version {version_id}"
                ),
            )
        told = {
            "live_version": version_id,
            "namespace": version.namespace,
            "doc_id": version.doc_id,
            "source_uri": version.source_uri,
        }
        for name, value in told.items():
            if document[name] != value:
                yield (
                    "",
                    (
                        f"identity: documents.{name} is {_short(document[name])}, its version says"
                        f" {_short(value)}"
                    ),
                )
        if version.namespace != self.manifest.namespace:
            yield (
                "",
                (
                    f"identity: the version is of namespace {version.namespace!r}, the release of"
                    f" {self.manifest.namespace!r}"
                ),
            )
        if version.edition != (wanted := self.manifest.editions.get(version_id, "")):
            yield (
                "",
                f"identity: versions.edition is {version.edition!r}, the manifest says {wanted!r}",
            )
        raw = self.store.raw_path(version.file_sha256)
        if raw.is_file() and raw.stat().st_size != version.size:
            yield (
                "",
                (
                    f"identity: versions.size is {version.size}, the stored file has"
                    f" {raw.stat().st_size} bytes"
                ),
            )
        recorded = self.manifest.given.get(version_id)
        complete = all(
            len(self.columns[table]) == len(column_names(table))
            for table in ("documents", "versions")
        )
        if recorded is not None and complete:
            found = given_fingerprint(
                [document[x] for x in column_names("documents")],
                [row[x] for x in column_names("versions")],
            )
            if found != recorded:
                yield (
                    "",
                    (
                        f"given: what is told of document and version has fingerprint {found},"
                        f" recorded {recorded}"
                    ),
                )
        yield from self._ledger_problems(version, document, row)

    def _ledger_problems(
        self, version: Version, document: Row, row: Row
    ) -> Iterator[tuple[str, str]]:
        try:
            known, known_document = (
                self.ledger.version(version.version_id),
                self.ledger.document(version.namespace, version.doc_id),
            )
        except NotFoundError as error:
            yield "", f"ledger: {error.message}"
            return
        for table, held, record, unchanged in (
            (
                "documents",
                document,
                with_file_metadata(known_document, known),
                known_document.updated_at == document["updated_at"],
            ),
            ("versions", row, known, known.completed_at == row["completed_at"]),
        ):
            wanted = _as_row(table, record)
            names = (
                [name for name in self.columns[table] if name not in _PASSING[table]]
                if unchanged
                else _LASTING[table]
            )
            if wrong := next((name for name in names if held[name] != wanted[name]), None):
                yield (
                    "",
                    (
                        f"ledger: {table}.{wrong} is {_short(held[wrong])}, the ledger says"
                        f" {_short(wanted[wrong])}"
                    ),
                )

    # the release

    def of_release(self) -> Iterator[str]:
        """Why the rows of the catalog are not as many as the manifest counts, of these versions and
        no other.
        """
        manifest = self.manifest
        if self.path.parent.name != manifest.release_id:
            yield (
                f"manifest: it is of release {manifest.release_id}, the folder is"
                f" {self.path.parent.name}"
            )
        marks = {row["key"]: row["value"] for row in self._rows("meta", order="key")}
        if set(marks) != {"schema_version"}:
            yield f"rows: meta holds {sorted(marks)}, it must hold schema_version alone"
        held = Counter(row[0] for row in self._db.execute("SELECT version_id FROM versions"))
        named = Counter(
            str(row[0]) for row in self._db.execute("SELECT live_version FROM documents")
        )
        for what, found in (("versions", held), ("documents", named)):
            yield from _told(what, "lacks", manifest.versions.keys() - found.keys())
            yield from _told(
                what, "holds beside the manifest", found.keys() - manifest.versions.keys()
            )
            yield from _told(
                what, "holds twice", [name for name, count in found.items() if count > 1]
            )
        for table in _OF_VERSIONS:
            if self.columns[table]:
                counted = dict(
                    self._db.execute(
                        f"SELECT version_id, count(*) FROM {table} GROUP BY version_id"
                    )
                )
                yield from _told(table, "has rows of unknown versions", set(counted) - set(held))
                if table == "chunks":
                    wrong = [
                        f"{v} ({counted.get(v, 0)} of {n})"
                        for v, n in manifest.versions.items()
                        if counted.get(v, 0) != n
                    ]
                    yield from _told(table, "has another number of rows than the manifest", wrong)
        for table in ("documents", "versions", "sections", "chunks", "asset"):
            (count,) = self._db.execute(f"SELECT count(*) FROM {table}").fetchone()
            if manifest.counts.get(table, count) != count:
                yield (
                    f"counts: {table} has {count} rows, the manifest says {manifest.counts[table]}"
                )
        yield from self._asset_problems()

    def _asset_problems(self) -> Iterator[str]:
        """Images are shown by the references to them: each has a row, which says what the first
        reference says.
        """
        names = ("asset_id", "mime", "width", "height", "size")
        anchors: dict[Any, set[tuple[Any, ...]]] = {}
        for row in self._db.execute(
            f"SELECT {', '.join(names)} FROM asset_anchor WHERE asset_id != ''"
        ):
            anchors.setdefault(row[0], set()).add(tuple(row))
        held = {
            row[0]: tuple(row) for row in self._db.execute(f"SELECT {', '.join(names)} FROM asset")
        }
        yield from _told("asset", "lacks", anchors.keys() - held.keys())
        yield from _told("asset", "holds what nothing shows:", held.keys() - anchors.keys())
        yield from _told(
            "asset",
            "says otherwise than the references to",
            [k for k, row in held.items() if row not in anchors.get(k, {row})],
        )


def _as_row(table: str, record: Document | Version) -> Row:
    values = (
        row_of_document(record)
        if isinstance(record, Document)
        else rows_of_version(record, (), (), ())["versions"][0]
    )
    return dict(zip(column_names(table), values, strict=True))


def _told(table: str, what: str, names: Iterable[object]) -> list[str]:
    found = sorted(map(str, names))
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return [f"rows: {table} {what} {', '.join(found[:_SHOWN])}{more}"] if found else []


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
