"""The event log with open connections holds what Dagster's own holds, and runs use its batches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._check import CheckError
from dagster._core.storage.event_log import SqliteEventLogStorage

from rag_platform.assets.event_storage import OpenSqliteEventLog

OURS = ("rag_platform.assets.event_storage", "OpenSqliteEventLog")
STOCK = ("dagster._core.storage.event_log", "SqliteEventLogStorage")
KEYS = ["doc-a", "doc-b", "doc-c"]


@dg.multi_asset(
    specs=[
        dg.AssetSpec(name, skippable=True, partitions_def=dg.StaticPartitionsDefinition(KEYS))
        for name in ("first", "second")
    ],
    can_subset=True,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def both(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
    for key in context.partition_keys:
        for name in ("first", "second"):
            if (key, name) != ("doc-b", "second"):
                tags = {"dagster/data_version": f"{name}-{key}"}
                context.log_event(
                    dg.AssetMaterialization(name, partition=key, metadata={"count": 3}, tags=tags)
                )
    yield from ()
    raise dg.Failure("doc-b failed", allow_retries=False)


def run_twice(home: Path, storage: tuple[str, str]) -> dict[str, Any]:
    """What the event log tells after two runs over all partitions."""
    overrides = {
        "event_log_storage": {
            "module": storage[0],
            "class": storage[1],
            "config": {"base_dir": str(home / "history")},
        }
    }
    with dg.instance_for_test(temp_dir=str(home), overrides=overrides) as instance:
        definitions = dg.Definitions(
            assets=[both], jobs=[dg.define_asset_job("all", selection=[both])]
        )
        for _ in range(2):
            tags = {
                "dagster/asset_partition_range_start": KEYS[0],
                "dagster/asset_partition_range_end": KEYS[-1],
            }
            definitions.resolve_job_def("all").execute_in_process(
                instance=instance, tags=tags, raise_on_error=False
            )
        log = instance.event_log_storage
        told: dict[str, Any] = {"type": type(log).__name__}
        for name in ("first", "second"):
            key = dg.AssetKey(name)
            for kind in (
                dg.DagsterEventType.ASSET_MATERIALIZATION,
                dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
            ):
                newest = log.get_latest_storage_id_by_partition(key, kind)
                told[f"{name} {kind.value}"] = sorted(newest)
            told[f"{name} failed"] = sorted(
                log.get_latest_asset_partition_materialization_attempts_without_materializations(
                    key
                )
            )
            told[f"{name} tags"] = {
                partition: dict(tags)
                for partition, tags in log.get_latest_tags_by_partition(
                    key, dg.DagsterEventType.ASSET_MATERIALIZATION, ["dagster/data_version"]
                ).items()
            }
            told[f"{name} records"] = len(instance.fetch_materializations(key, limit=100).records)
            (record,) = log.get_asset_records([key])
            materialized = record.asset_entry.last_materialization
            assert materialized is not None and materialized.asset_materialization is not None
            told[f"{name} last"] = (
                materialized.asset_materialization.partition,
                record.asset_entry.last_run_id is not None,
            )
        return told


@pytest.mark.integration
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning"
)
@pytest.mark.parametrize("batch", ["0", "500"])
def test_it_tells_what_the_stock_log_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: str
) -> None:
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", batch)
    (tmp_path / "ours").mkdir()
    (tmp_path / "stock").mkdir()
    ours, stock = run_twice(tmp_path / "ours", OURS), run_twice(tmp_path / "stock", STOCK)
    assert (ours.pop("type"), stock.pop("type")) == (
        OpenSqliteEventLog.__name__,
        SqliteEventLogStorage.__name__,
    )
    assert ours == stock
    assert ours["second failed"] == ["doc-b"]


def test_a_batch_that_fails_leaves_nothing_of_itself(tmp_path: Path) -> None:
    storage = OpenSqliteEventLog(str(tmp_path / "history"))
    entry = dg.EventLogEntry(
        error_info=None, level=10, user_message="planned", run_id="run-1", timestamp=1.0
    )
    storage.store_event(entry)
    broken: Any = object()
    with pytest.raises(CheckError):
        storage.store_event_batch([entry, broken])
    with storage._connect("run-1") as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM event_logs").scalar() == 1
    storage.dispose()
