"""Erases documents from what Dagster keeps in SQL databases and in files: events, runs, backfills,
ticks, captured output.

The tables are those of Dagster's own storages, so SQLite, PostgreSQL and MySQL are alike; storages
of another kind are named.
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

# Where events hold free text, besides the keys of our own logs: of errors, of metadata.
_TEXT_KEYS = redaction.TEXT_KEYS | {"user_message", "stack", "md_str", "description", "label"}
_BATCH = 500
Connect = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class _Place:
    """A column of a table that may quote documents."""

    connect: Connect
    table: Table
    column: Column[Any]


@dataclass(frozen=True)
class Events:
    """What a Dagster instance keeps about document versions."""

    instance: dg.DagsterInstance

    def forget(self, keys: Collection[str], names: redaction.Names) -> int:
        """Drop what was recorded under partition keys, and erase the words of whatever else names
        the documents. Returns the number of records.
        """
        changed = 0
        for place in self._places(names):
            rewritten = list(_quoting(place, names))
            if rewritten:
                with _overwriting(place.connect) as db:
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
        """How many records are left that `forget` would drop or change."""
        left = sum(1 for place in self._places(names) for _ in _quoting(place, names))
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
        """The folder of what runs printed, None where there is none."""
        manager = self.instance.compute_log_manager
        if not isinstance(manager, LocalComputeLogManager):
            return None
        folder = Path(manager.get_captured_local_path(["any"], "out")).parent
        return folder if folder.is_dir() else None

    def _places(self, names: redaction.Names) -> Iterator[_Place]:
        events, storage = SqlEventLogStorageTable, self.instance.event_log_storage
        assets, checks = AssetKeyTable, AssetCheckExecutionsTable
        if isinstance(storage, SqlEventLogStorage):
            connect = storage.index_connection
            yield _Place(connect, events, events.c.event)
            yield _Place(connect, assets, assets.c.last_materialization)
            yield _Place(connect, checks, checks.c.evaluation_event)
        if isinstance(storage, SqliteEventLogStorage):  # a database for each run
            for run_id in _runs_that_name(storage, names):
                yield _Place(partial(storage.run_connection, run_id), events, events.c.event)
        if isinstance(runs := self.instance.run_storage, SqlRunStorage):
            yield _Place(runs.connect, RunsTable, RunsTable.c.run_body)
            yield _Place(runs.connect, BulkActionsTable, BulkActionsTable.c.body)
        if isinstance(schedules := self.instance.schedule_storage, SqlScheduleStorage):
            yield _Place(schedules.connect, JobTickTable, JobTickTable.c.tick_body)


def _runs_that_name(storage: SqliteEventLogStorage, names: redaction.Names) -> Iterator[str]:
    """Runs whose databases name a document; opened directly, for Dagster's own way is slow."""
    for run_id in storage.get_all_run_ids():
        with closing(sqlite3.connect(storage.path_for_shard(run_id), timeout=30)) as db:
            # it is, with the first event
            made = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'event_logs'").fetchone()
            if made and any(
                names.stand_in(text.encode("utf-8", "surrogatepass"))
                for (text,) in db.execute("SELECT event FROM event_logs")
            ):
                yield run_id


@contextmanager
def _overwriting(connect: Connect) -> Iterator[Connection]:
    """A transaction after which nothing of what it dropped is left in the file of an SQLite
    database, nor beside it.
    """
    with connect() as db:
        lite = db.dialect.name == "sqlite"
        if lite:
            db.exec_driver_sql("PRAGMA secure_delete = ON")
        yield db
    if lite:
        with connect() as db:
            db.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def _quoting(place: _Place, names: redaction.Names) -> Iterator[tuple[int, str]]:
    """(id, what it becomes) of each record that names a document and holds words."""
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
            if text and names.stand_in(text.encode("utf-8", "surrogatepass")):
                value = json.loads(text)
                if (made := redaction.without_words(value, _TEXT_KEYS)) != value:
                    yield record_id, json.dumps(made)
        if len(rows) < _BATCH:
            return


def drop_partitions(
    storage: SqlEventLogStorage, keys: Sequence[str], asset: str | None = None
) -> int:
    """Forget every event and check about some partitions, of one asset or of all. Returns the
    number of events.
    """
    events, checks, tags = SqlEventLogStorageTable, AssetCheckExecutionsTable, AssetEventTagsTable
    made, dropped, runs, assets = dg.DagsterEventType.ASSET_MATERIALIZATION.value, 0, set(), set()

    def rows_of(table: Table, part: Sequence[str]) -> ColumnElement[bool]:
        among = table.c.partition.in_(part)
        return among if asset is None else among & (table.c.asset_key == asset)

    with _overwriting(storage.index_connection) as index:
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
        with _overwriting(partial(storage.run_connection, run_id)) as run:
            for part in _slices(keys):
                run.execute(events.delete().where(rows_of(events, part)))
    return dropped


def _slices(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _BATCH):
        yield values[start : start + _BATCH]
