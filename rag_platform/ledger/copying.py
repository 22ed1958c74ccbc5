"""Copies a ledger into another database, row by row, and compares the two."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from rag_platform.errors import BusyError, InputError, IntegrityError
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import OPEN_STATES
from rag_platform.ledger.tables import tables


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table whose rows are equal in both ledgers."""

    table: str
    rows: int
    sha256: str  # of the rows in order


def copy_ledger(source: Ledger, target: Ledger) -> list[CopiedTable]:
    """Copy a ledger into an empty one, in one transaction that blocks writers of the source.
    Returns the copied tables.

    Raises InputError `ledger_empty` when there is nothing to copy, `ledger_not_empty` when the
    target has rows; BusyError while a job is open; IntegrityError `copy_differs` when the copy is
    not equal, which is then rolled back.
    """
    if not any(_rows(source, table) for table in tables()):
        raise InputError(
            f"{source.name} is empty or not there: there is nothing to copy", code="ledger_empty"
        )
    if full := [table for table in tables() if _rows(target, table)]:
        raise InputError(
            f"{target.name} is not empty ({', '.join(full)}); name a database or a file that"
            " holds no ledger",
            code="ledger_not_empty",
        )
    with (
        nullcontext() if source.read_only else source.backend.write(),
        target.backend.write() as db,
    ):
        if jobs := [job for state in OPEN_STATES for job in source.jobs(state=state)]:
            raise BusyError(
                f"{jobs[0].job_id} is {jobs[0].state} and would go on in {source.name}: wait for"
                f" its end, or cancel it with `rag jobs cancel {jobs[0].job_id}`"
            )
        copied = [_copy(table, source, target, db) for table in tables()]
        target.backend.advance_sequence()
    return copied


def _copy(table: str, source: Ledger, target: Ledger, db: Any) -> CopiedTable:
    rows = _rows(source, table)
    names = tables()[table]
    db.execute(f"DELETE FROM {table}")  # rows that triggers wrote while other tables were copied
    db.executemany(
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", rows
    )
    expected, found = _digest(rows), _digest(copied := _rows(target, table))
    if (len(rows), expected) != (len(copied), found):
        raise IntegrityError(
            f"{table} in {target.name} has {len(copied)} rows of digest {found[:12]}, in"
            f" {source.name} {len(rows)} of {expected[:12]}: nothing was copied",
            code="copy_differs",
        )
    return CopiedTable(table, len(rows), expected)


def _rows(ledger: Ledger, table: str) -> list[tuple[Any, ...]]:
    sql = f"SELECT {', '.join(tables()[table])} FROM {table} ORDER BY rowid"
    rows: list[tuple[Any, ...]] = ledger.backend.db().execute(sql).fetchall()
    return rows


def _digest(rows: Iterable[tuple[Any, ...]]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row).encode())
    return digest.hexdigest()
