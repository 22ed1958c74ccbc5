"""Collects garbage for jobs: keeps the partition keys of document versions in step with the ledger,
and prunes what Dagster remembers of finished runs, which nothing else ever removes.

Dagster's pages are built from a log of each run and from the events of assets that all runs share.
A run that no page of an asset needs goes with both; of the others only the log goes.
"""

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg
from sqlalchemy import func, select

from rag_platform.assets.dagster_private import (
    AssetCheckExecutionsTable,
    SqlEventLogStorage,
    SqlEventLogStorageTable,
)
from rag_platform.assets.event_erasing import Events, drop_partitions
from rag_platform.assets.event_storage import OpenSqliteEventLog
from rag_platform.assets.instance import prepare
from rag_platform.assets.partitions import NAMESPACE_TAG, document_versions, namespaces
from rag_platform.assets.runs import DEFINITIONS
from rag_platform.config.profiles import INGESTION_STAGES
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Job
from rag_platform.observability import tracing
from rag_platform.observability.redaction import Names
from rag_platform.releases import servers
from rag_platform.releases.garbage_collection import (
    CollectionResult,
    OnProgress,
    collect,
    exclude_others,
)
from rag_platform.releases.stored_artifacts import read_record
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot

_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_OURS = {"dagster/code_location": DEFINITIONS}  # DAGSTER_HOME may hold runs of other projects
# the newest run of each kind tells sensors what was tried, rejected or cancelled last
_KIND_TAGS = (NAMESPACE_TAG, "dagster/partition", "dagster/sensor_name", "dagster/schedule_name")


@dataclass(frozen=True)
class PartitionKeys:
    """The partition keys of document versions in a Dagster instance."""

    instance: dg.DagsterInstance

    def keys(self) -> set[str]:
        return set(self.instance.get_dynamic_partitions(document_versions.name or ""))

    def drop(self, keys: Collection[str]) -> None:
        self._delete(set(keys) & self.keys())

    def follow(self, namespace: str, ledger: Ledger, since: int) -> None:
        """Update the keys of the documents changed after the ledger sequence `since` to their live
        and wanted versions.
        """
        documents = ledger.changed_documents(namespace, since)
        wanted = {
            key for each in documents for key in (each.live_version, each.wanted_version) if key
        }
        touched = {f"{namespace}.{each.doc_id}" for each in documents}
        self.instance.add_dynamic_partitions(document_versions.name or "", sorted(wanted))
        self._delete({key for key in self.keys() - wanted if key.rpartition("@")[0] in touched})

    def _delete(self, keys: Collection[str]) -> None:
        for key in sorted(keys):
            self.instance.delete_dynamic_partition(document_versions.name or "", key)

    def forget(self, keys: Collection[str], names: Names) -> tuple[int, list[str]]:
        """Erase the records under these keys and all text that names the documents. Returns the
        number of records, and the storages that could not be reached.
        """
        self.drop(keys)
        events = Events(self.instance)
        return events.forget(keys, names), events.list_unreached()

    def count_records(self, keys: Collection[str], names: Names) -> tuple[int, list[str]]:
        """(number of records that `forget` would erase, storages that could not be searched)."""
        events = Events(self.instance)
        return events.count(keys, names), events.list_unreached()

    def prune(
        self, kept: Collection[str], days: float, *, plan: bool
    ) -> dict[str, tuple[int, int]]:
        """Remove runs that ended more than `days` ago and the events of versions that are not
        `kept`, or with `plan` only count them. Returns (count, bytes) by kind.

        The newest results of each asset, partition and check stay with their runs, and so does the
        newest run of each kind. Storages other than SQL databases are left as they are.
        """
        storage = self.instance.event_log_storage
        if not isinstance(storage, SqlEventLogStorage):
            return {}
        log = storage if isinstance(storage, OpenSqliteEventLog) else None
        partitions = {*kept, *self.instance.get_dynamic_partitions(namespaces.name or "")}
        gone, shown = _find_gone(storage, partitions), _find_shown(storage, partitions)
        runs: dict[str, int] = {}  # bytes by run_id
        logs: dict[str, int] = {}
        for run_id, is_newest in _list_old_runs(self.instance, days):
            stays = is_newest or run_id in shown
            (logs if stays else runs)[run_id] = log.measure_log(run_id) if log else 0
        freed = 0
        if not plan:
            # first, while assets can be told their newest event of all
            drop_partitions(storage, gone)
            for run_id in runs:
                _delete_run(self.instance, storage, run_id)
            if log:
                # dropping partitions opens those again that were dropped before
                for run_id in logs:
                    log.drop_log(run_id)
                freed = log.shrink() if runs or gone else 0
        return {
            "runs": (len(runs), sum(runs.values()) + freed),
            "run_logs": (sum(size > 0 for size in logs.values()), sum(logs.values())),
            "event_partitions": (len(gone), 0),
        }


def run_collection(
    job: Job, root: DataRoot, instance: dg.DagsterInstance, on_progress: OnProgress
) -> CollectionResult:
    """Collect garbage for a `gc` job, or purge for a `delete` job. Raises BusyError naming who is
    writing or receiving.
    """
    settings, store, ledger = root.settings, root.store, root.ledger
    scope = (
        read_record(store, job.namespace, job.args["sequence"]) if job.kind == "delete" else None
    )
    with (
        exclude_others(
            store, ledger.namespaces(), f"{job.kind} {job.job_id}", wait=settings.jobs.lock_seconds
        ),
        tracing.trace(
            "ingestion", logs_dir=store.logs_dir, namespace=job.namespace, job_id=job.job_id
        ),
        tracing.span("stage.gc", provider_type="store", provider_id="gc"),
    ):
        found = collect(
            root,
            partitions=PartitionKeys(instance),
            scope=scope,
            force=bool(job.args.get("force")),
            on_progress=on_progress,
        )
    for name, item in job.args.get("removed", {}).items():  # removed before the job could start
        found.add(name, item["count"], item["bytes"])
    servers.acknowledge(store, ledger)
    ledger.update_job(job.job_id, result={**ledger.job(job.job_id).result, **found.data()})
    return found


@contextlib.contextmanager
def partition_keys(store: Store) -> Iterator[PartitionKeys]:
    """The partition keys of a data root; its Dagster instance is closed on exit."""
    prepare(store)
    with dg.DagsterInstance.get() as instance:
        yield PartitionKeys(instance)


# --- the history of runs ------------------------------------------------------------------------


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
