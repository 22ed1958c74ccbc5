"""Dagster's SQLite event log with its connections kept open.

The stock storage builds an engine and a connection for each event, and queries the schema again
(35-90 ms on two cores); here one connection per shard stays open, commits without an fsync of the
WAL, and the planned events of a run are written in one transaction. A power cut can lose the last
events, but not corrupt the log; the ledger, not the event log, is the system of record. Figures:
docs/performance.md.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from dagster import AssetKey, DagsterEventType, EventLogEntry
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.pool import StaticPool

from rag_platform.assets.dagster_private import (
    ABSENT,
    ASSET_EVENTS,
    INDEX_SHARD_NAME,
    AssetKeyTable,
    ConfigurableClassData,
    SqlEventLogStorageTable,
    SqliteEventLogStorage,
    stock_event_log,
)
from rag_platform.assets.event_erasing import drop_partitions
from rag_platform.config.profiles import INGESTION_STAGES
from rag_platform.storage import sqlite_files

_MAX_OPEN_RUNS = 8
_BUSY_SECONDS = 30


class OpenSqliteEventLog(SqliteEventLogStorage):
    """The SQLite event log with one open connection per shard; every use holds the
    storage's lock.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        """Open or create the log below `base_dir`."""
        self._engines: OrderedDict[str, Engine] = OrderedDict()
        # shard to connection during a batch
        self._batch_connections: dict[str, Connection] = {}
        self._tables: set[str] = set()
        super().__init__(base_dir, inst_data)
        self._db_lock = threading.RLock()  # type: ignore[assignment]  # a batch holds it around its events

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Any
    ) -> "OpenSqliteEventLog":
        return cls(inst_data=inst_data, **config_value)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._db_lock:
            if shard in self._batch_connections:
                yield self._batch_connections[shard]
                return
            with self._engine(shard).connect() as connection, connection.begin():
                yield connection

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store events of one run in one transaction per shard, asset events with one statement per
        table.
        """
        with (
            self._db_lock,
            self._connect(events[0].run_id) as run,
            self._connect(INDEX_SHARD_NAME) as index,
        ):
            self._batch_connections = {events[0].run_id: run, INDEX_SHARD_NAME: index}
            try:
                asset_events = []
                for entry in events:
                    if (
                        isinstance(entry, EventLogEntry)
                        and entry.is_dagster_event
                        and entry.dagster_event_type in ASSET_EVENTS
                    ):
                        asset_events.append(entry)
                    else:
                        self.store_event(entry)
                if asset_events:
                    self._store_asset_events(asset_events, run, index)
            finally:
                self._batch_connections = {}

    def _store_asset_events(
        self, events: Sequence[EventLogEntry], run: Connection, index: Connection
    ) -> None:
        """What the stock code does for one event, in bulk: each event is serialised once, and an
        asset's row is only written for its last event.
        """
        rows = [self._event_to_row(entry) for entry in events]
        run.execute(SqlEventLogStorageTable.insert(), rows)
        returning = SqlEventLogStorageTable.insert().returning(
            SqlEventLogStorageTable.c.id, sort_by_parameter_order=True
        )
        ids = list(index.execute(returning, rows).scalars())
        self._store_asset_event_tags(index, events, ids)
        newest = {row["asset_key"]: number for number, row in enumerate(rows)}
        for number in newest.values():
            self._store_asset_event(index, events[number], ids[number])

    def has_table(self, table_name: str) -> bool:
        """True if the table exists; a positive result is cached."""
        if table_name not in self._tables and super().has_table(table_name):
            self._tables.add(table_name)
        return table_name in self._tables

    def _store_asset_event(self, conn: Connection, event: EventLogEntry, event_id: int) -> None:
        """Upsert the asset's row with its newest event; the stock code tries an insert first, which
        fails for all but the first event.
        """
        if not (event.dagster_event and event.dagster_event.asset_key):
            return
        values = self._get_asset_entry_values(
            event, event_id, self._has_asset_key_index_cols_on_connection(conn)
        )
        if values:
            statement = insert(AssetKeyTable).values(
                asset_key=event.dagster_event.asset_key.to_string(), **values
            )
            conn.execute(statement.on_conflict_do_update(index_elements=["asset_key"], set_=values))

    def store_asset_check_event(self, event: EventLogEntry, event_id: int | None) -> None:
        """As the stock code, but plan no results of document checks: only documents with something
        to report get one, and those planned for the others would be shown as newer, and as skipped.
        """
        if event.dagster_event_type == DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED:
            planned = cast(Any, event.dagster_event).event_specific_data
            if planned.asset_key.to_user_string() in INGESTION_STAGES:
                return
        super().store_asset_check_event(event, event_id)

    def wipe_asset_partitions(self, asset_key: AssetKey, partition_keys: Sequence[str]) -> None:
        """Delete all events and checks of some partitions of an asset, which Dagster's own SQLite
        storage does not implement.
        """
        drop_partitions(self, partition_keys, asset_key.to_string())

    def delete_events(self, run_id: str) -> None:
        """As the stock code, but remove the run's file too, which it leaves empty (200 KB)."""
        super().delete_events(run_id)
        self.drop_log(run_id)

    def drop_log(self, run_id: str) -> None:
        """Remove the log of a run; the events of assets stay, in the shard that all runs share."""
        with self._db_lock:
            if engine := self._engines.pop(run_id, None):
                engine.dispose()
            self._initialized_dbs.discard(run_id)
            for path in self._list_files(run_id):
                path.unlink(missing_ok=True)  # whoever closes it last removes its WAL

    def measure_log(self, run_id: str) -> int:
        """The bytes of a run's log."""
        size = 0
        for path in self._list_files(run_id):
            with suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    def shrink(self) -> int:
        """Give the space of deleted events of assets back to the disk; returns the bytes. Returns 0
        if others use the file too long, or the disk is too full for the copy that this takes.
        """
        path = Path(self.path_for_shard(INDEX_SHARD_NAME))
        before = self.measure_log(INDEX_SHARD_NAME)
        with (
            self._db_lock,
            suppress(sqlite3.OperationalError),
            closing(sqlite_files.connect_shared(path)) as db,
        ):
            sqlite_files.shrink(db, path)
        return before - self.measure_log(INDEX_SHARD_NAME)

    def _list_files(self, shard: str) -> list[Path]:
        """The existing files of a shard: the database, its WAL and shared memory."""
        path = self.path_for_shard(shard)
        files = [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")]
        return [each for each in files if each.is_file()]

    def dispose(self) -> None:
        """Close every connection."""
        with self._db_lock:
            while self._engines:
                self._engines.popitem()[1].dispose()
        super().dispose()

    def _engine(self, shard: str) -> Engine:
        engine = self._engines.get(shard)
        if engine is None:
            arguments = {"timeout": _BUSY_SECONDS, "check_same_thread": False}
            engine = create_engine(
                self.conn_string_for_shard(shard), poolclass=StaticPool, connect_args=arguments
            )
            event.listen(engine, "connect", _set_pragmas)
            # another process may have removed the file
            if shard not in self._initialized_dbs or not self._list_files(shard):
                self._initdb(engine, for_index_shard=shard == INDEX_SHARD_NAME)
                self._initialized_dbs.add(shard)
            self._engines[shard] = engine
            runs = [name for name in self._engines if name != INDEX_SHARD_NAME]
            for name in runs[: max(0, len(runs) - _MAX_OPEN_RUNS)]:
                self._engines.pop(name).dispose()
        self._engines.move_to_end(shard)
        return engine


if ABSENT:  # a dagster.yaml that names our class still works
    OpenSqliteEventLog = stock_event_log()  # type: ignore[misc]


def _set_pragmas(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA secure_delete=ON")
