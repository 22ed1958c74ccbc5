"""The changes of a catalog since its base.

    catalog.sqlite            the base; releases share it on disk until the changes outgrow it
    catalog-changes.sqlite    the rows of documents that were added or changed since, and `gone`,
                              the documents whose rows in the base are obsolete; absent while a
                              release consists of a base only, as after every full build

All rows of a document are in one of the two files. Readers see one catalog: views with the names of
the tables leave out the obsolete rows of the base and add those of the changes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_platform.indexes.catalog_tables import (
    CatalogWriter,
    attach_read_only,
    quoted_columns,
    stored_columns,
    taken_error,
)
from rag_platform.ir import Document
from rag_platform.storage.records import columns

CHANGES = "catalog-changes.sqlite"  # next to the catalog
_TABLES = ("documents", "versions", "sections", "chunks", "asset_anchor", "media_texts")
_NOT_GONE = "NOT IN (SELECT doc_id FROM main.gone)"  # in a file of changes


def changes_of(path: Path) -> Path | None:
    """The file of changes of the catalog at `path`, None without changes."""
    changes = path.with_name(CHANGES)
    return changes if changes.is_file() else None


@dataclass(frozen=True, slots=True)
class Part:
    """A database of a catalog: the base `main`, the `changes`, or `Part()` for a whole catalog."""

    name: str = ""

    def __getitem__(self, table: str) -> str:
        return f"{self.name}.{table}" if self.name else table

    def held(self, column: str, key: str = "doc_id") -> str:
        """The SQL condition that a row with this doc_id, or version_id, is not obsolete."""
        gone = f"{column} NOT IN (SELECT {key} FROM changes.gone)"
        return gone if self.name == "main" else "1"


WHOLE = (Part(),)
BASE_AND_CHANGES = (Part("main"), Part("changes"))


def show_changed(db: sqlite3.Connection, changes: Path) -> None:
    """Create temporary views with the names of the tables, which show a base with its changes and
    all current columns.
    """
    attach_read_only(db, changes, "changes")
    base = BASE_AND_CHANGES[0]
    for table in _TABLES:
        present, missing = stored_columns(db, table)
        names = ", ".join([*(f'"{name}"' for name in present), *missing])
        key = "version_id" if table == "media_texts" else "doc_id"
        db.execute(
            f"CREATE TEMP VIEW {table} AS SELECT rowid AS rowid, {names} FROM main.{table} WHERE"
            f" {base.held(key, key)} UNION ALL SELECT rowid, {names} FROM changes.{table}"
        )
    db.execute(
        "CREATE TEMP VIEW asset AS SELECT 0 AS rowid, * FROM main.asset WHERE asset_id IN (SELECT"
        f" asset_id FROM main.asset_anchor WHERE {base.held('doc_id')}) UNION SELECT 0, * FROM"
        " changes.asset"
    )


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
        for table in _TABLES[1:]:
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
