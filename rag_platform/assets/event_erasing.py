"""Erases documents from Dagster's SQL databases and files: events, runs, backfills, ticks, captured
output.

This works on the tables of Dagster's own storages (SQLite, PostgreSQL, MySQL); storages of another
kind are reported as unreached.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from sqlalchemy import Column, ColumnElement, Connection, Table, select

from rag_platform.assets.dagster_private import (
    ABSENT,
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    AssetKeyTable,
    BulkActionsTable,
    JobTickTable,
    LocalComputeLogManager,
    NoOpComputeLogManager,
    RunsTable,
    SqlEventLogStorage,
    SqlEventLogStorageTable,
    SqliteEventLogStorage,
    SqlRunStorage,
    SqlScheduleStorage,
)
from rag_platform.observability import redaction

# JSON keys with free text in events (errors, metadata), besides those of our own logs.
_TEXT_KEYS = redaction.TEXT_KEYS | {"user_message", "stack", "md_str", "description", "label"}
_BATCH = 500
Connect = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class _TextColumn:
    """A column of a table that may quote documents."""

    connect: Connect
    table: Table
    column: Column[Any]


@dataclass(frozen=True)
class Events:
    """The records of a Dagster instance about document versions."""

    instance: dg.DagsterInstance

    def forget(self, keys: Collection[str], names: redaction.Names) -> int:
        """Delete the records under partition keys, and erase the text of all other records that
        name the documents. Returns the number of records.
        """
        changed = 0
        for place in self._find_columns(names):
            rewritten = list(_find_rewrites(place, names))
            if rewritten:
                with _erasing_transaction(place.connect) as db:
                    for record_id, text in rewritten:
                        change = place.table.update().where(place.table.c.id == record_id)
                        db.execute(change.values({place.column.name: text}))
            changed += len(rewritten)
        if isinstance(storage := self.instance.event_log_storage, SqlEventLogStorage):
            changed += drop_partitions(storage, sorted(keys))
        if (folder := self._output_folder()) is not None:
            changed += redaction.erase(folder, names)
        return changed

    def count(self, keys: Collection[str], names: redaction.Names) -> int:
        """The number of records that `forget` would delete or change."""
        left = sum(1 for place in self._find_columns(names) for _ in _find_rewrites(place, names))
        if isinstance(storage := self.instance.event_log_storage, SqlEventLogStorage):
            with storage.index_connection() as db:
                for part in _slices(sorted(keys)):
                    for table in (SqlEventLogStorageTable, AssetCheckExecutionsTable):
                        found = select(table.c.id).where(table.c.partition.in_(part))
                        left += len(db.execute(found).all())
        if (folder := self._output_folder()) is not None:
            left += redaction.quoting(folder, names)
        return left

    def list_unreached(self) -> list[str]:
        """Storages that cannot be searched or changed here, each with the reason."""
        instance, output = self.instance, (LocalComputeLogManager, NoOpComputeLogManager)
        kinds: Sequence[tuple[str, Any, Any]] = (
            ("events", instance.event_log_storage, SqlEventLogStorage),
            ("runs and backfills", instance.run_storage, SqlRunStorage),
            ("ticks", instance.schedule_storage, SqlScheduleStorage),
            ("captured output", instance.compute_log_manager, output),
        )
        reason = (
            f"which is opened no more: {ABSENT}"
            if ABSENT
            else "which is no SQL database and no folder of this machine"
        )
        found = [
            f"Dagster's {what}: kept by {type(storage).__name__}, {reason}; look there, and remove"
            " by hand what quotes the document"
            for what, storage, known in kinds
            if storage is not None and not isinstance(storage, known)
        ]
        if (folder := self._output_folder()) is not None:
            found += [
                f"{path.name} of Dagster's captured output is packed in a way that is not read"
                for path in redaction.opaque(folder)
            ]
        return found

    def _output_folder(self) -> Path | None:
        """The folder with the captured output of runs; None if there is none."""
        manager = self.instance.compute_log_manager
        if not isinstance(manager, LocalComputeLogManager):
            return None
        folder = Path(manager.get_captured_local_path(["any"], "out")).parent
        return folder if folder.is_dir() else None

    def _find_columns(self, names: redaction.Names) -> Iterator[_TextColumn]:
        events, storage = SqlEventLogStorageTable, self.instance.event_log_storage
        assets, checks = AssetKeyTable, AssetCheckExecutionsTable
        if isinstance(storage, SqlEventLogStorage):
            connect = storage.index_connection
            yield _TextColumn(connect, events, events.c.event)
            yield _TextColumn(connect, assets, assets.c.last_materialization)
            yield _TextColumn(connect, checks, checks.c.evaluation_event)
        if isinstance(storage, SqliteEventLogStorage):  # a database for each run
            for run_id in _find_runs_naming(storage, names):
                yield _TextColumn(partial(storage.run_connection, run_id), events, events.c.event)
        if isinstance(runs := self.instance.run_storage, SqlRunStorage):
            yield _TextColumn(runs.connect, RunsTable, RunsTable.c.run_body)
            yield _TextColumn(runs.connect, BulkActionsTable, BulkActionsTable.c.body)
        if isinstance(schedules := self.instance.schedule_storage, SqlScheduleStorage):
            yield _TextColumn(schedules.connect, JobTickTable, JobTickTable.c.tick_body)


def _find_runs_naming(storage: SqliteEventLogStorage, names: redaction.Names) -> Iterator[str]:
    """Runs whose databases name a document; opened directly, as Dagster's own API is slow."""
    for run_id in storage.get_all_run_ids():
        with closing(sqlite3.connect(storage.path_for_shard(run_id), timeout=30)) as db:
            # the table is created with the first event
            has_events = db.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'event_logs'"
            ).fetchone()
            if has_events and any(
                names.occur_in(text.encode("utf-8", "surrogatepass"))
                for (text,) in db.execute("SELECT event FROM event_logs")
            ):
                yield run_id


@contextmanager
def _erasing_transaction(connect: Connect) -> Iterator[Connection]:
    """A transaction whose deleted data is also overwritten in an SQLite file and its WAL."""
    with connect() as db:
        is_sqlite = db.dialect.name == "sqlite"
        if is_sqlite:
            db.exec_driver_sql("PRAGMA secure_delete = ON")
        yield db
    if is_sqlite:
        with connect() as db:
            db.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def _find_rewrites(place: _TextColumn, names: redaction.Names) -> Iterator[tuple[int, str]]:
    """(id, text without free text) of each record that names a document and has free text."""
    after = 0
    while True:
        with place.connect() as db:
            query = (
                select(place.table.c.id, place.column)
                .where(place.table.c.id > after)
                .order_by(place.table.c.id)
                .limit(_BATCH)
            )
            rows = db.execute(query).all()
        for record_id, text in rows:
            after = record_id
            if text and names.occur_in(text.encode("utf-8", "surrogatepass")):
                value = json.loads(text)
                if (made := redaction.without_words(value, _TEXT_KEYS)) != value:
                    yield record_id, json.dumps(made)
        if len(rows) < _BATCH:
            return


def drop_partitions(
    storage: SqlEventLogStorage, keys: Sequence[str], asset: str | None = None
) -> int:
    """Delete all events and checks of some partitions, of one asset or of all. Returns the number
    of events.
    """
    events, checks, tags = SqlEventLogStorageTable, AssetCheckExecutionsTable, AssetEventTagsTable
    made, dropped, runs, assets = dg.DagsterEventType.ASSET_MATERIALIZATION.value, 0, set(), set()

    def rows_of(table: Table, part: Sequence[str]) -> ColumnElement[bool]:
        among = table.c.partition.in_(part)
        return among if asset is None else among & (table.c.asset_key == asset)

    with _erasing_transaction(storage.index_connection) as index:
        for part in _slices(keys):
            rows = index.execute(
                select(events.c.id, events.c.run_id, events.c.asset_key).where(
                    rows_of(events, part)
                )
            ).all()
            for ids in _slices([row.id for row in rows]):
                index.execute(tags.delete().where(tags.c.event_id.in_(ids)))
            index.execute(checks.delete().where(rows_of(checks, part)))
            index.execute(events.delete().where(rows_of(events, part)))
            dropped += len(rows)
            runs |= {row.run_id for row in rows}
            assets |= {row.asset_key for row in rows if row.asset_key}
        for name in sorted(assets):
            newest = index.execute(
                select(events.c.event)
                .where((events.c.asset_key == name) & (events.c.dagster_event_type == made))
                .order_by(events.c.id.desc())
                .limit(1)
            ).scalar()
            values = {"last_materialization": newest, "cached_status_data": None}
            index.execute(
                AssetKeyTable.update().where(AssetKeyTable.c.asset_key == name).values(values)
            )
    for run_id in sorted(runs) if storage.is_run_sharded else ():
        with _erasing_transaction(partial(storage.run_connection, run_id)) as run:
            for part in _slices(keys):
                run.execute(events.delete().where(rows_of(events, part)))
    return dropped


def _slices(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _BATCH):
        yield values[start : start + _BATCH]
