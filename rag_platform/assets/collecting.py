"""Deletion and garbage collection as jobs, and the partition keys of document versions, which mirror what is live or on its way."""

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import dagster as dg

from rag_platform.assets.instance import prepare
from rag_platform.assets.partitions import document_versions
from rag_platform.config import Settings
from rag_platform.indexes.belongings import read_record
from rag_platform.indexes.collecting import Collected, OnProgress, alone, collect
from rag_platform.ledger import Ledger
from rag_platform.ledger_rows import Job
from rag_platform.observability import tracing
from rag_platform.profiles import INGESTION_STAGES
from rag_platform.store import Store


@dataclass(frozen=True)
class PartitionKeys:
    """The keys of document versions in a Dagster instance."""

    instance: dg.DagsterInstance

    def keys(self) -> set[str]:
        """Every key there is."""
        return set(self.instance.get_dynamic_partitions(document_versions.name or ""))

    def drop(self, keys: Collection[str], *, history: bool) -> None:
        """Remove keys, and with `history` the events about them where the event storage can; those quote warnings and reasons."""
        known = self.keys()
        for key in sorted(set(keys) & known):
            self.instance.delete_dynamic_partition(document_versions.name or "", key)
        if history and keys:
            with contextlib.suppress(NotImplementedError):  # Dagster's own storages cannot
                for stage in INGESTION_STAGES:
                    self.instance.event_log_storage.wipe_asset_partitions(dg.AssetKey(stage), sorted(keys))


def run_collection(
    job: Job, settings: Settings, store: Store, ledger: Ledger, instance: dg.DagsterInstance, on_progress: OnProgress
) -> Collected:
    """What a `gc` job, or the purge of a `delete` job, removed. Raises BusyError naming who writes or receives."""
    scope = read_record(store, job.namespace, job.args["sequence"]) if job.kind == "delete" else None
    with (
        alone(store, ledger.namespaces(), f"{job.kind} {job.job_id}", wait=settings.jobs.lock_seconds),
        tracing.trace("ingestion", logs_dir=store.logs_dir, namespace=job.namespace, job_id=job.job_id),
        tracing.span("stage.gc", provider_type="store", provider_id="gc"),
    ):
        found = collect(
            settings=settings,
            store=store,
            ledger=ledger,
            partitions=PartitionKeys(instance),
            scope=scope,
            force=bool(job.args.get("force")),
            on_progress=on_progress,
        )
    ledger.update_job(job.job_id, result={**ledger.job(job.job_id).result, **found.data()})
    return found


@contextlib.contextmanager
def partition_keys(store: Store) -> Iterator[PartitionKeys]:
    """The partition keys of a data root, for as long as the block lasts."""
    prepare(store)
    with dg.DagsterInstance.get() as instance:
        yield PartitionKeys(instance)
