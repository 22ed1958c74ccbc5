"""All uses of Dagster's private modules, for the minor version that they were checked with.

With another version, or if a name is missing, `ABSENT` says why and only the public API is used:
events are logged one by one, the event log is Dagster's own, failed backfills get no error, and
Dagster's records about deleted documents are reported as unreached. No other module imports from
Dagster's private modules.
"""

import importlib
import sys
import time
import uuid
from collections.abc import Collection, Sequence
from typing import Any

import dagster as dg

from rag_platform.errors import ConfigError

CHECKED_WITH = "1.13"

__all__ = [
    "ASSET_EVENTS",
    "INDEX_SHARD_NAME",
    "AssetCheckExecutionsTable",
    "AssetEventTagsTable",
    "AssetKeyTable",
    "BulkActionStatus",
    "BulkActionsTable",
    "ConfigurableClassData",
    "JobTickTable",
    "LocalComputeLogManager",
    "NoOpComputeLogManager",
    "RunsTable",
    "SerializableErrorInfo",
    "SqlEventLogStorage",
    "SqlEventLogStorageTable",
    "SqlRunStorage",
    "SqlScheduleStorage",
    "SqliteEventLogStorage",
]

ABSENT = ""  # why the private modules are not used
try:
    if not dg.__version__.startswith(f"{CHECKED_WITH}."):
        raise ImportError(
            f"Dagster {dg.__version__} is installed, and only {CHECKED_WITH} was looked into"
        )
    from dagster._core.code_pointer import ModuleCodePointer
    from dagster._core.definitions.asset_checks.asset_check_evaluation import (
        AssetCheckEvaluationTargetMaterializationData,
    )
    from dagster._core.events import ASSET_EVENTS, DagsterEventBatchMetadata
    from dagster._core.execution.backfill import BulkActionStatus
    from dagster._core.origin import RepositoryPythonOrigin, get_python_environment_entry_point
    from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
    from dagster._core.storage.event_log.schema import (
        AssetCheckExecutionsTable,
        AssetEventTagsTable,
        AssetKeyTable,
        SqlEventLogStorageTable,
    )
    from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
    from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
        INDEX_SHARD_NAME,
        SqliteEventLogStorage,
    )
    from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
    from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
    from dagster._core.storage.runs.schema import BulkActionsTable, RunsTable
    from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
    from dagster._core.storage.schedules.schema import JobTickTable
    from dagster._core.storage.schedules.sql_schedule_storage import SqlScheduleStorage
    from dagster._record import replace
    from dagster._serdes import ConfigurableClassData
    from dagster._utils.error import SerializableErrorInfo  # type: ignore[attr-defined]
except ImportError as error:
    ABSENT = str(error)

    class _Absent:
        """Placeholder for a missing class or table, of which nothing is an instance."""

    globals().update(dict.fromkeys(__all__, _Absent))


def log_materializations(
    context: dg.AssetExecutionContext, events: Sequence[dg.AssetMaterialization]
) -> None:
    """Like `context.log_event` for several events, in one transaction if the event log
    supports it.
    """
    if ABSENT:
        for event in events:
            context.log_event(event)
        return
    step, batch_id = context.op_execution_context._step_execution_context, uuid.uuid4().hex
    for number, event in enumerate(events, 1):
        dg.DagsterEvent.asset_materialization(
            step, event, DagsterEventBatchMetadata(batch_id, number == len(events))
        )


def log_checks(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    found: Sequence[dg.AssetCheckEvaluation],
) -> None:
    """Log check results of partitions, each with the materialisation that it refers to, without
    which Dagster counts the check of the partition as missing.
    """
    partitions: dict[dg.AssetKey, set[str]] = {}
    for one in found:
        partitions.setdefault(one.asset_key, set()).add(one.partition or "")
    ids = {
        key: context.instance.get_latest_storage_id_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION, wanted
        )
        for key, wanted in partitions.items()
    }
    for one in found:
        newest = ids[one.asset_key].get(one.partition or "")
        if newest is not None and not ABSENT:
            target = AssetCheckEvaluationTargetMaterializationData(
                storage_id=newest, run_id=context.run.run_id, timestamp=time.time()
            )
            one = replace(one, target_materialization_data=target)
        # accepted like other events, although the annotation of an op's context omits it
        context.log_event(one)  # type: ignore[arg-type]


def explain_backfill(
    instance: dg.DagsterInstance, backfill: Any, message: str, unreadable: Collection[str]
) -> None:
    """Give a backfill that has ended as failed an error, which its page shows under "View error".
    If no partitions but the `unreadable` ones lack an output, it has completed instead.
    """
    if ABSENT:
        return
    data = backfill.asset_backfill_data
    failed = data.failed_and_downstream_subset.partitions_subsets_by_asset_key if data else {}
    left = {key for subset in failed.values() for key in subset.get_partition_keys()}
    if left and left <= {*unreadable}:
        instance.update_backfill(backfill.with_status(BulkActionStatus.COMPLETED_SUCCESS))
    else:
        error: Any = SerializableErrorInfo(message, [], None)
        instance.update_backfill(backfill.with_error(error))


def storages(event_log: tuple[str, str]) -> dict[str, tuple[str, str, str]]:
    """Module, class and folder for each storage section of a dagster.yaml; empty to use Dagster's
    defaults. The folders are Dagster's own, so a DAGSTER_HOME that was used without a dagster.yaml
    keeps its history, and a server that still runs there sees the same runs.
    """
    if ABSENT:
        return {}
    return {
        "event_log_storage": (*event_log, "history/runs"),
        "run_storage": ("dagster._core.storage.runs", "SqliteRunStorage", "history"),
        "schedule_storage": (
            "dagster._core.storage.schedules",
            "SqliteScheduleStorage",
            "schedules",
        ),
    }


def stock_event_log() -> Any:
    """Dagster's own SQLite event log, by its public name in dagster.yaml."""
    return importlib.import_module("dagster._core.storage.event_log").SqliteEventLogStorage


def submit(
    instance: dg.DagsterInstance, job: dg.JobDefinition, module: str, **parts: Any
) -> dg.DagsterRun:
    """Create a run of a job of `module`'s definitions (`parts`: run_config, tags) and submit it to
    the instance, whose daemon or run launcher starts it.

    Raises ConfigError `unknown_dagster` with another version of Dagster.
    """
    if ABSENT:
        raise ConfigError(
            f"jobs.launcher is dagster, and {ABSENT}: install dagster=={CHECKED_WITH}.*, or set it"
            " to child",
            code="unknown_dagster",
        )
    code = RepositoryPythonOrigin(
        sys.executable,
        ModuleCodePointer(module, "defs"),
        entry_point=get_python_environment_entry_point(sys.executable),
    )
    run = instance.create_run_for_job(
        job,
        remote_job_origin=_location(module).get_job_origin(job.name),
        job_code_origin=code.get_job_origin(job.name),
        **parts,
    )
    # not needed: the queue ignores it, and the daemon has its own for the launcher
    workspace: Any = None
    return instance.submit_run(run.run_id, workspace)


def place_runs(instance: dg.DagsterInstance, module: str) -> None:
    """Make later runs of `execute_in_process` belong to the code location of `module`'s
    definitions, as the UI's timeline and job pages show only those.
    """
    if ABSENT:
        return
    create: Any = instance.create_run_for_job
    placed: Any = instance

    def create_placed(job_def: dg.JobDefinition, **parts: Any) -> dg.DagsterRun:
        origin = _location(module).get_job_origin(job_def.name)
        run: dg.DagsterRun = create(job_def, **{"remote_job_origin": origin, **parts})
        return run

    placed.create_run_for_job = create_placed


def _location(module: str) -> Any:
    return RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(module), "__repository__")
