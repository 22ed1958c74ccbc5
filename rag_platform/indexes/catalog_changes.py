"""What a catalog differs from the one it was made of.

    catalog.sqlite            the base; releases share it on disk until the differences outgrow it
    catalog-changes.sqlite    the rows of documents that came or changed since it was written, and
                              `gone`: the documents of which nothing in the base holds any more;
                              absent while a release is one base, as every full build is

A document's rows stand together in one of the two files. Readers see one catalog: views under the
names of the tables leave out of the base what is gone, and add what came.
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
    column_names,
    columns,
    stored_columns,
    taken_error,
)
from rag_platform.ir import Document

CHANGES = "catalog-changes.sqlite"  # beside the catalog
_TABLES = ("documents", "versions", "sections", "chunks", "asset_anchor", "media_texts")
_HELD = "NOT IN (SELECT {0} FROM {1}gone)"


def changes_of(path: Path) -> Path | None:
    """The file of what differs from the catalog at `path`, None where it is whole."""
    changes = path.with_name(CHANGES)
    return changes if changes.is_file() else None


@dataclass(frozen=True, slots=True)
class Part:
    """Where a statement finds rows: `Part()` is a whole catalog."""

    name: str = ""

    def __getitem__(self, table: str) -> str:
        return f"{self.name}.{table}" if self.name else table

    def held(self, column: str) -> str:
        """The condition that a row, by its doc_id, still holds."""
        return f"{column} {_HELD.format('doc_id', 'changes.')}" if self.name == "main" else "1"

    def held_version(self, column: str) -> str:
        """The same by its version_id."""
        return f"{column} {_HELD.format('version_id', 'changes.')}" if self.name == "main" else "1"


WHOLE = (Part(),)
BASE_AND_CHANGES = (Part("main"), Part("changes"))


def show_changed(db: sqlite3.Connection, changes: Path) -> None:
    """Give a connection to a base views with the names of the tables, which show the base with its
    changes, and every column of today.
    """
    attach_read_only(db, changes, "changes")
    base = BASE_AND_CHANGES[0]
    for table in _TABLES:
        present, missing = stored_columns(db, table)
        names = ", ".join([*(f'"{name}"' for name in present), *missing])
        held = base.held_version("version_id") if table == "media_texts" else base.held("doc_id")
        db.execute(
            f"CREATE TEMP VIEW {table} AS SELECT rowid AS rowid, {names} FROM main.{table} WHERE"
            f" {held} UNION ALL SELECT rowid, {names} FROM changes.{table}"
        )
    db.execute(
        "CREATE TEMP VIEW asset AS SELECT 0 AS rowid, * FROM main.asset WHERE asset_id IN (SELECT"
        f" asset_id FROM main.asset_anchor WHERE {base.held('doc_id')}) UNION SELECT 0, * FROM"
        " changes.asset"
    )


class ChangesWriter(CatalogWriter):
    """One transaction over what differs from a base; committed unless the block raises."""

    def __init__(self, base: Path) -> None:
        super().__init__(base.with_name(CHANGES), {"base": base})
        if self._fresh:
            self._db.execute(
                "CREATE TABLE gone (doc_id TEXT PRIMARY KEY, version_id TEXT NOT NULL)"
            )

    def _owners(self, version_id: str) -> list[str]:
        sql = "SELECT doc_id FROM base.versions WHERE version_id = ?"
        based = [row[0] for row in self._db.execute(sql, (version_id,))]
        return [*super()._owners(version_id), *based]

    def _held_document(self, doc_id: str) -> tuple[Any, ...] | None:
        sql = (
            f"SELECT {columns(Document)} FROM base.documents WHERE doc_id = ? AND doc_id"
            f" {_HELD.format('doc_id', 'main.')}"
        )
        return super()._held_document(doc_id) or self._db.execute(sql, (doc_id,)).fetchone()

    def _take_over(self, doc_id: str, dropped: Collection[str]) -> None:
        """Remove every row of a document from the base; rows that are not dropped move here."""
        found = self._db.execute(
            "SELECT version_id FROM base.versions WHERE doc_id = ? AND doc_id"
            f" {_HELD.format('doc_id', 'main.')}",
            (doc_id,),
        ).fetchone()
        if found is None:
            return
        self._db.execute("INSERT INTO gone VALUES (?, ?)", (doc_id, found[0]))
        if found[0] in dropped:
            return
        for table in _TABLES[1:]:
            names = ", ".join(f'"{name}"' for name in column_names(table))
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
            f" c.chunk_id WHERE c.version_id = ? AND b.doc_id {_HELD.format('doc_id', 'main.')}",
            (version_id,),
        ).fetchone()
        if taken is not None:
            raise taken_error(version_id, f"{taken[0]} in the base")


def count_changes(path: Path) -> int:
    """How many chunks differ from the base of the catalog at `path`: added or removed ones."""
    changes = changes_of(path)
    if changes is None:
        return 0
    db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        attach_read_only(db, changes, "changes")
        (count,) = db.execute(
            "SELECT (SELECT count(*) FROM changes.chunks) + (SELECT count(*) FROM changes.gone g"
            " CROSS JOIN main.chunks c ON c.doc_id = g.doc_id)"
        ).fetchone()
        return int(count)
    finally:
        db.close()
