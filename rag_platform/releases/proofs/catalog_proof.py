"""Proves a catalog column by column.

- Sections, chunks and images are rebuilt from the stored outputs of each version, whose fingerprint
  is in the manifest. `documents.provenance` proves those outputs against the raw bytes.
- Ids and addresses must agree with the ledger and the manifest.
- What users, files or the ledger state (titles, tags, times) is compared with its fingerprint in
  the manifest, and with the ledger as long as that did not change.
- Rows are counted against the manifest and the indexes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_platform.config.profiles import config_id_of, edition_name
from rag_platform.config.settings import fingerprint
from rag_platform.documents.metadata import with_file_metadata
from rag_platform.errors import NotFoundError, RagError
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import (
    TABLES,
    column_names,
    row_of_document,
    rows_of_version,
)
from rag_platform.indexes.delta import load_version
from rag_platform.intake.receiving import version_id as version_name
from rag_platform.ir import VerifyFailure, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.releases.manifest import FILENAME, Manifest
from rag_platform.releases.release_store import current
from rag_platform.releases.version_bundles import output_fingerprint
from rag_platform.storage.records import REINGEST_REMEDY
from rag_platform.storage.store import Store, sha256_file

_OF_VERSIONS = ("sections", "chunks", "asset_anchor", "media_texts")
# columns that the ledger never changes
_IMMUTABLE = {
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
# columns that the ledger changes without a new release
_VOLATILE = {
    # `origin`: releases of older programs record where the file was
    "documents": ("live_version", "origin", "pinned", "status", "updated_at", "wanted_version"),
    "versions": ("status", "code", "reason", "attempts"),
}
_SHOWN = 5
_SECONDS = len("2026-01-31T12:00:00")  # the prefix of a timestamp without fractions

Row = dict[str, Any]


# --- fingerprints for the manifest --------------------------------------------------------------


def given_fingerprint(document: Sequence[Any], version: Sequence[Any]) -> str:
    """16 hex digits over the rows of a document and of its version, in column order."""
    return fingerprint(list(document), list(version))


def given_fingerprints(catalog: CatalogReader, version_ids: Iterable[str]) -> dict[str, str]:
    """version_id to the fingerprint of its row and its document's in a finished catalog."""
    documents, versions = (column_names(table) for table in ("documents", "versions"))
    names, width = f"{_quote(documents, 'd')}, {_quote(versions, 'v')}", len(documents)
    return {
        row[width]: given_fingerprint(row[:width], row[width:])
        for row in catalog.join_documents(names, version_ids)
    }


def _quote(names: Iterable[str], alias: str = "") -> str:
    return ", ".join(f'{alias}."{name}"' if alias else f'"{name}"' for name in names)


# --- the proof ----------------------------------------------------------------------------------


@dataclass
class CatalogProof:
    """The proof of one release's catalog. `warnings` name what an older release did not record."""

    store: Store
    manifest: Manifest
    catalog: CatalogReader
    ledger: Ledger
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory = self.catalog.path.parent
        stored = {table: self.catalog.stored_columns(table) for table in TABLES}
        self.columns = {
            table: [name for name in column_names(table) if name in stored[table]]
            for table in TABLES
        }
        if self.manifest.versions and not self.manifest.outputs:
            self.warnings.append(
                "the release was built before fingerprints were recorded: later changes of titles"
                " and tags cannot be detected; `rag rebuild --full --namespace"
                f" {self.manifest.namespace}`"
            )

    def _rows(
        self, table: str, where: str = "1", values: Sequence[Any] = (), order: str = "rowid"
    ) -> list[Row]:
        names = self.columns[table]
        if not names:
            return []
        sql = f"SELECT {_quote(names)} FROM {table} WHERE {where} ORDER BY {order}"
        return [dict(zip(names, row, strict=True)) for row in self.catalog.select(sql, values)]

    def version_ids(self) -> list[str]:
        """Every version that the catalog holds or has chunks of."""
        return [
            str(row[0])
            for row in self.catalog.select(
                "SELECT version_id FROM versions UNION SELECT version_id FROM chunks"
            )
        ]

    def version_of(self, chunk_id: str) -> str | None:
        """The version_id in a chunk's row, None for an unknown chunk."""
        row = self.catalog.select(
            "SELECT version_id FROM chunks WHERE chunk_id = ?", (chunk_id,)
        ).fetchone()
        return None if row is None else str(row[0])

    def content_hashes(self) -> dict[str, str]:
        """chunk_id to the hash of the text that its vector was computed from."""
        sql = "SELECT chunk_id, content_hash FROM chunks WHERE content_hash != ''"
        return {str(row[0]): str(row[1]) for row in self.catalog.select(sql)}

    # one version

    def of_version(self, version: Version) -> list[VerifyFailure]:
        """Each difference between a version's rows and what its outputs, the ledger and the
        manifest imply: one failure a row, with its chunk_id for chunks.
        """
        return [
            VerifyFailure(chunk_id, version.version_id, version.source_uri, reason)
            for chunk_id, reason in self._of_version(version)
        ]

    def _of_version(self, version: Version) -> Iterator[tuple[str, str]]:
        """(chunk_id or "", reason) of each difference."""
        version_id = version.version_id
        documents = self._rows("documents", "doc_id = ?", [version.doc_id])
        versions = self._rows("versions", "version_id = ?", [version_id])
        if len(documents) != 1 or len(versions) != 1:
            yield (
                "",
                f"rows: {len(documents)} documents and {len(versions)} versions have these ids,"
                " there must be one of each",
            )
            return
        for reason in self._owner_problems(version, documents[0], versions[0]):
            yield "", reason
        recorded = self.manifest.outputs.get(version_id)
        if (
            recorded is not None
            and (found := output_fingerprint(self.store, version, self.manifest.profiles))
            != recorded
        ):
            yield (
                "",
                f"outputs_changed: the stored outputs of {version_id} have fingerprint {found},"
                f" recorded {recorded}; {REINGEST_REMEDY}",
            )
        try:
            stored = load_version(self.store, version, self.manifest.profiles)
        except (RagError, OSError, ValueError, TypeError, KeyError) as error:
            yield "", f"outputs_unreadable: {getattr(error, 'message', error)}; {REINGEST_REMEDY}"
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
                held = self._rows(table, "version_id = ?", [version_id])
                yield from self._differences(table, wanted[table], held)
        for row in wanted["asset"]:
            count = len(self._rows("asset", "asset_id = ?", [row["asset_id"]]))
            if count != 1:
                yield ("", f"rows: {count} images have the id {row['asset_id']}, there must be one")

    def _differences(
        self, table: str, wanted: Sequence[Row], held: Sequence[Row], key: str = ""
    ) -> Iterator[tuple[str, str]]:
        """(chunk_id or "", reason) of wrong rows; rows without a key are matched by position."""
        wanted_rows, found_rows = (
            [(row[key] if key else number, row) for number, row in enumerate(rows)]
            for rows in (wanted, held)
        )
        unmatched = dict(found_rows)

        def problem(name: Any, reason: str) -> tuple[str, str]:
            return (str(name) if table == "chunks" else ""), reason

        if len(unmatched) < len(held):
            twice = next(
                name for name, count in Counter(n for n, _ in found_rows).items() if count > 1
            )
            yield problem(twice, f"row_twice: {table} holds {twice!r} twice")
        for name, row in wanted_rows:
            other = unmatched.pop(name, None)
            if other is None:
                yield problem(
                    name, f"row_missing: {table} lacks row {name!r}, which the stored outputs have"
                )
            elif wrong := self._first_difference(table, other, row):
                yield problem(
                    name,
                    f"column: {table}.{wrong} is {_short(other[wrong])}, the stored outputs say"
                    f" {_short(row[wrong])}",
                )
        for name in unmatched:
            yield problem(
                name, f"row_unknown: {table} holds row {name!r}, which the stored outputs lack"
            )

    def _first_difference(
        self, table: str, held: Row, wanted: Row, without: Collection[str] = ()
    ) -> str:
        """The first column with another value; "" when all are equal."""
        names = (name for name in self.columns[table] if name not in without)
        return next((name for name in names if held[name] != wanted[name]), "")

    def _owner_problems(self, version: Version, document: Row, row: Row) -> Iterator[str]:
        """How a version's row and its document's differ from the manifest and the ledger."""
        version_id = version.version_id
        if version_id != version_name(version.namespace, version.doc_id, version.file_sha256):
            yield (
                f"identity: {version.doc_id!r} with the bytes {version.file_sha256[:12]} is not"
                f" version {version_id}"
            )
        known = {
            "live_version": version_id,
            "namespace": version.namespace,
            "doc_id": version.doc_id,
            "source_uri": version.source_uri,
        }
        for name, value in known.items():
            if document[name] != value:
                yield (
                    f"identity: documents.{name} is {_short(document[name])}, its version says"
                    f" {_short(value)}"
                )
        if version.namespace != self.manifest.namespace:
            yield (
                f"identity: the version is of library {version.namespace!r}, the release of"
                f" {self.manifest.namespace!r}"
            )
        if version.edition != (wanted := self.manifest.editions.get(version_id, "")):
            yield f"identity: versions.edition is {version.edition!r}, the manifest says {wanted!r}"
        raw = self.store.raw_path(version.file_sha256)
        if raw.is_file() and (size := raw.stat().st_size) != version.size:
            yield f"identity: versions.size is {version.size}, the stored file has {size} bytes"
        recorded = self.manifest.given.get(version_id)
        names = {table: column_names(table) for table in ("documents", "versions")}
        if recorded is not None and all(
            len(self.columns[table]) == len(columns) for table, columns in names.items()
        ):
            found = given_fingerprint(
                [document[name] for name in names["documents"]],
                [row[name] for name in names["versions"]],
            )
            if found != recorded:
                yield (
                    "given: the details of the document and its version have fingerprint"
                    f" {found}, recorded {recorded}"
                )
        yield from self._ledger_problems(version, document, row)

    def _ledger_problems(self, version: Version, document: Row, row: Row) -> Iterator[str]:
        try:
            known = self.ledger.version(version.version_id)
            owner = self.ledger.document(version.namespace, version.doc_id)
            edits = version.edition and self.ledger.operations(version.version_id, version.edition)
        except NotFoundError as error:
            yield f"ledger: {error.message}"
            return
        wanted_version = owner.wanted_version or version.version_id
        if (owner.status, owner.live_version) == ("active", None) and (
            self.ledger.version(wanted_version).status == "ready"  # where processing makes it live
        ):
            yield (
                "ledger: no version of the document is live, the next release would be without"
                f" it; `rag docs live {version.doc_id} {wanted_version} --namespace"
                f" {version.namespace}` puts it back"
            )
        chunks_profile = self.manifest.profiles.get("chunks", "")
        if version.edition and edition_name(edits, chunks_profile) != version.edition:
            yield f"ledger: the edits by hand are not those of edition {version.edition}"
        same_document = owner.updated_at == document["updated_at"]
        # the others too: a rerun within a second leaves `completed_at` as it was, and so does an
        # edition, which is not that of this release after a rollback or where a gate refused it
        same_version = all(
            getattr(known, name) == row[name] for name in ("completed_at", "revision", "edition")
        )
        for table, held, wanted, is_same in (
            (
                "documents",
                document,
                row_of_document(with_file_metadata(owner, known)),
                same_document,
            ),
            ("versions", row, rows_of_version(known, (), (), ())["versions"][0], same_version),
        ):
            names = column_names(table)
            ignored = _VOLATILE[table] if is_same else set(names) - set(_IMMUTABLE[table])
            expected = dict(zip(names, wanted, strict=True))
            if wrong := self._first_difference(table, held, expected, ignored):
                yield (
                    f"ledger: {table}.{wrong} is {_short(held[wrong])}, the ledger says"
                    f" {_short(expected[wrong])}"
                )

    # the release

    def asset_ids(self, version_id: str) -> list[str]:
        sql = "SELECT DISTINCT asset_id FROM asset_anchor WHERE version_id = ? AND asset_id != ''"
        return [str(row[0]) for row in self.catalog.select(sql, (version_id,))]

    def of_release(self, counts: Mapping[str, int]) -> Iterator[str]:
        """How the release and its catalog's `counts` differ from the manifest and the ledger."""
        manifest = self.manifest
        yield from self._record_problems()
        yield from self._deletion_problems()
        if self.directory.name != manifest.release_id:
            yield (
                f"manifest: it is of release {manifest.release_id}, the folder is"
                f" {self.directory.name}"
            )
        meta = [row[0] for row in self.catalog.select("SELECT key FROM meta ORDER BY key")]
        if meta != ["schema_version"]:
            yield f"rows: meta holds {meta}, it must hold schema_version alone"
        held = Counter(row[0] for row in self.catalog.select("SELECT version_id FROM versions"))
        live = Counter(
            str(row[0]) for row in self.catalog.select("SELECT live_version FROM documents")
        )
        for what, found in (("versions", held), ("documents", live)):
            yield from _name_rows(what, "lacks", manifest.versions.keys() - found.keys())
            yield from _name_rows(
                what, "holds beside the manifest", found.keys() - manifest.versions.keys()
            )
            yield from _name_rows(
                what, "holds twice", [name for name, count in found.items() if count > 1]
            )
        for table in _OF_VERSIONS:
            if self.columns[table]:
                counted = dict(
                    self.catalog.select(
                        f"SELECT version_id, count(*) FROM {table} GROUP BY version_id"
                    )
                )
                yield from _name_rows(
                    table, "has rows of unknown versions", set(counted) - set(held)
                )
                if table == "chunks":
                    wrong = [
                        f"{v} ({counted.get(v, 0)} of {n})"
                        for v, n in manifest.versions.items()
                        if counted.get(v, 0) != n
                    ]
                    yield from _name_rows(
                        table, "has another number of rows than the manifest", wrong
                    )
        for name, count in counts.items():
            if manifest.counts.get(name, count) != count:
                yield f"counts: {name} has {count} rows, the manifest says {manifest.counts[name]}"
        yield from self._asset_problems()

    def _record_problems(self) -> Iterator[str]:
        """How the manifest differs from what the ledger recorded of the release."""
        manifest = self.manifest
        namespace, release_id = manifest.namespace, manifest.release_id
        row = self.ledger.release(namespace, release_id)
        if row is None:
            yield (
                f"ledger: it knows no release {release_id}; `rag rebuild --full --namespace"
                f" {namespace}` builds one that it knows"
            )
            return
        for name in ("parent", "strategy", "strategy_config_id", "created_at", "counts"):
            if (stated := getattr(manifest, name)) != (known := getattr(row, name)):
                yield (
                    f"ledger: {name} of the release is {_short(stated)}, the ledger says"
                    f" {_short(known)}"
                )
        if row.sequence is not None:
            touched = self.ledger.find_changed_documents(namespace, row.sequence)
            live = {
                version.version_id
                for document, version in self.ledger.live(namespace)
                if document.doc_id not in touched  # since the release was made
            }
            yield from _name_rows(
                "versions", "lacks of what is live", live - set(manifest.versions)
            )
        held = sha256_file(self.directory / FILENAME)
        if row.manifest_sha256 and row.manifest_sha256 != held:
            yield (
                f"ledger: the sha256 of {FILENAME} is {held[:12]}, it was"
                f" {row.manifest_sha256[:12]} when the release was published; `rag rebuild --full"
                f" --namespace {namespace}` builds another"
            )
        if config_id_of(manifest.strategy_config) != manifest.strategy_config_id:
            yield (
                "manifest: strategy_config is another strategy than"
                f" {manifest.strategy_config_id}, which the release was built with"
            )
        recorded = self.ledger.read_published(namespace)
        # another machine, or a concurrent job, may have published
        here = self.store.remote is None and current(self.store, namespace) == release_id
        if here and recorded != {release_id}:
            self.warnings.append(
                f"CURRENT names release {release_id}, the ledger recorded"
                f" {', '.join(sorted(recorded)) or 'none'} as the published one: a job was killed,"
                f" or somebody changed CURRENT; `rag releases rollback --namespace {namespace}`"
                " publishes the right one"
            )

    def _deletion_problems(self) -> Iterator[str]:
        """Deletions that the manifest wrongly claims to know, and deleted documents it holds."""
        manifest = self.manifest
        namespace = manifest.namespace
        if manifest.deletions > (newest := self.ledger.deletion_sequence(namespace)):
            yield (
                f"deletions: the manifest claims to know of deletion {manifest.deletions}, the"
                f" newest is {newest}"
            )
        created_at = manifest.created_at[:_SECONDS]
        for deletion in self.ledger.tombstones(namespace, since=0):
            lifted = bool(deletion.lifted_at) and deletion.lifted_at[:_SECONDS] <= created_at
            if deletion.sequence <= manifest.deletions and not lifted:
                column = "version_id" if deletion.version_id else "doc_id"
                if self._rows("versions", f"{column} = ?", [deletion.target]):
                    yield (
                        f"deletions: {deletion.target} was deleted on {deletion.created_at} before"
                        " the release was built, which holds it all the same"
                    )

    def _asset_problems(self) -> Iterator[str]:
        names = ("asset_id", "mime", "width", "height", "size")
        anchors: dict[Any, set[tuple[Any, ...]]] = {}
        of_anchors = f"SELECT {', '.join(names)} FROM asset_anchor WHERE asset_id != ''"
        for row in self.catalog.select(of_anchors):
            anchors.setdefault(row[0], set()).add(row)
        held = {row[0]: row for row in self.catalog.select(f"SELECT {', '.join(names)} FROM asset")}
        yield from _name_rows("asset", "lacks", anchors.keys() - held.keys())
        yield from _name_rows("asset", "holds what nothing shows:", held.keys() - anchors.keys())
        yield from _name_rows(
            "asset",
            "says otherwise than the references to",
            [k for k, row in held.items() if row not in anchors.get(k, {row})],
        )


def _name_rows(table: str, what: str, names: Iterable[object]) -> list[str]:
    found = sorted(map(str, names))
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return [f"rows: {table} {what} {', '.join(found[:_SHOWN])}{more}"] if found else []


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
