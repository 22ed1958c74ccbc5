"""Prunes what Dagster remembers of finished runs, which nothing else ever removes.

Dagster's pages are built from a log of each run and from the events of assets that all runs share.
A run that no page of an asset needs goes with both; of the others only the log goes.
"""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg
from sqlalchemy import func, select

from rag_platform.assets.dagster_private import (
    AssetCheckExecutionsTable,
    SqlEventLogStorage,
    SqlEventLogStorageTable,
)
from rag_platform.assets.event_erasing import drop_partitions
from rag_platform.assets.event_storage import OpenSqliteEventLog
from rag_platform.assets.partitions import NAMESPACE_TAG, namespaces
from rag_platform.assets.runs import DEFINITIONS
from rag_platform.config.profiles import INGESTION_STAGES

_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_OURS = {"dagster/code_location": DEFINITIONS}  # DAGSTER_HOME may hold runs of other projects
# the newest run of each kind tells sensors what was tried, rejected or cancelled last
_KIND_TAGS = (NAMESPACE_TAG, "dagster/partition", "dagster/sensor_name", "dagster/schedule_name")


def prune(
    instance: dg.DagsterInstance, kept: Collection[str], days: float, *, plan: bool
) -> dict[str, tuple[int, int]]:
    """Remove runs that ended more than `days` ago and the events of versions that are not `kept`,
    or with `plan` only count them. Returns (count, bytes) by kind.

    The newest results of each asset, partition and check stay with their runs, and so does the
    newest run of each kind. Storages other than SQL databases are left as they are.
    """
    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        return {}
    log = storage if isinstance(storage, OpenSqliteEventLog) else None
    partitions = {*kept, *instance.get_dynamic_partitions(namespaces.name or "")}
    gone, shown = _find_gone(storage, partitions), _find_shown(storage, partitions)
    runs: dict[str, int] = {}  # bytes by run_id
    logs: dict[str, int] = {}
    for run_id, is_newest in _list_old_runs(instance, days):
        stays = is_newest or run_id in shown
        (logs if stays else runs)[run_id] = log.measure_log(run_id) if log else 0
    freed = 0
    if not plan:
        drop_partitions(storage, gone)  # first, while assets can be told their newest event of all
        for run_id in runs:
            _delete_run(instance, storage, run_id)
        if log:
            for run_id in logs:  # dropping partitions opens those again that were dropped before
                log.drop_log(run_id)
            freed = log.shrink() if runs or gone else 0
    return {
        "runs": (len(runs), sum(runs.values()) + freed),
        "run_logs": (sum(size > 0 for size in logs.values()), sum(logs.values())),
        "event_partitions": (len(gone), 0),
    }


def _list_old_runs(instance: dg.DagsterInstance, days: float) -> Iterator[tuple[str, bool]]:
    """(run_id, whether it is the newest of its kind) of our runs that ended before."""
    before = (datetime.now(UTC) - timedelta(days=days)).timestamp()
    kinds: set[tuple[str | None, ...]] = set()
    for record in instance.get_run_records(dg.RunsFilter(tags=_OURS)):  # newest first
        run = record.dagster_run
        kind = (run.job_name, *map(run.tags.get, _KIND_TAGS))
        if run.status in _ENDED and (record.end_time or 0.0) < before:
            yield run.run_id, kind not in kinds
        kinds.add(kind)


def _find_shown(storage: SqlEventLogStorage, partitions: Collection[str]) -> set[str]:
    """The runs with the newest event of each type of an asset, and the newest result of a check,
    for each of the `partitions` and for those without.
    """
    events, checks = SqlEventLogStorageTable.c, AssetCheckExecutionsTable.c
    kinds = (
        (events, (events.asset_key, events.dagster_event_type, events.partition)),
        (checks, (checks.asset_key, checks.check_name, checks.partition)),
    )
    shown = set()
    with storage.index_connection() as db:
        for table, keys in kinds:
            ids = select(func.max(table.id)).where(table.asset_key.is_not(None)).group_by(*keys)
            rows = db.execute(select(table.run_id, table.partition).where(table.id.in_(ids)))
            shown |= {run_id for run_id, key in rows if key is None or key in partitions}
    return shown


def _delete_run(instance: dg.DagsterInstance, storage: SqlEventLogStorage, run_id: str) -> None:
    """Delete a run with its captured output and with its check results, which Dagster keeps."""
    instance.delete_run(run_id)
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    with storage.index_connection() as db:
        checks = AssetCheckExecutionsTable
        db.execute(checks.delete().where(checks.c.run_id == run_id))


def _find_gone(storage: SqlEventLogStorage, partitions: Collection[str]) -> list[str]:
    """The partitions of document versions that have events but are gone."""
    events = SqlEventLogStorageTable.c
    stages = [dg.AssetKey(name).to_string() for name in INGESTION_STAGES]
    found = select(events.partition).where(events.asset_key.in_(stages)).distinct()
    with storage.index_connection() as db:
        keys = {key for (key,) in db.execute(found) if key is not None}
    return sorted(keys.difference(partitions))
