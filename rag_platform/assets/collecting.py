"""Collects garbage for jobs, and keeps the partition keys of document versions in step with the
ledger.
"""

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import dagster as dg

from rag_platform.assets import history
from rag_platform.assets.event_erasing import Events
from rag_platform.assets.instance import prepare
from rag_platform.assets.partitions import document_versions
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
        """As `history.prune`."""
        return history.prune(self.instance, kept, days, plan=plan)


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
