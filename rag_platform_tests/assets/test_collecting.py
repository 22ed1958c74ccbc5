"""What garbage collection leaves of Dagster's history: every asset's newest results, no more."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rag_platform.assets.event_storage import OpenSqliteEventLog
from rag_platform.definitions import defs


@dg.op
def foreign() -> None: ...


@dg.job
def of_another_project() -> None:
    foreign()


def newest_results(instance: dg.DagsterInstance) -> dict[str, Any]:
    """What the pages of assets show: by asset and partition, and by check."""
    wanted = defs.resolve_asset_graph()
    found: dict[str, Any] = {}
    for key in wanted.get_all_asset_keys():
        for record in instance.fetch_materializations(key, limit=1000).records:
            found.setdefault(f"{key} {record.partition_key}", (record.run_id, record.storage_id))
    checks = instance.event_log_storage.get_latest_asset_check_execution_by_key(
        list(wanted.asset_check_keys)
    )
    return found | {str(key): (check.run_id, check.status) for key, check in checks.items()}


def test_runs_go_and_the_newest_results_stay(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    history = desk.store.home / "dagster" / "history" / "runs"
    for hour in (5, 6, 7, 8):
        desk.write(gate=f"# Gate\n\nThe gate opens at {hour}.\n", dock="# Dock\n\nNo trucks.\n")
        assert desk.call("ingest", desk.docs, "--sync").exit_code == 0
    with dg.DagsterInstance.get() as instance:
        for status in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.STARTED):
            instance.create_run_for_job(of_another_project, status=status)
        before = newest_results(instance)
    assert desk.call("gc", "--plan").data["removed"] == {}  # they are younger than 30 days
    assert len(list(history.glob("*.db"))) == 9  # four ingests, four releases, what they share

    monkeypatch.setenv("RAG_RETENTION__RUN_DAYS", "0")
    monkeypatch.setenv("RAG_RETENTION__VERSIONS", "0")
    monkeypatch.setenv("RAG_RETENTION__DAYS", "0")
    monkeypatch.setenv("RAG_RELEASES__KEEP", "2")
    planned = desk.call("gc", "--plan").data["removed"]
    done = desk.call("gc").data["removed"]
    # the runs of the second ingest and of three releases; the first ingest has the dock's results,
    # the third those of a version in a release that is kept
    assert {name: done[name]["count"] for name in ("runs", "run_logs", "event_partitions")} == {
        "runs": 4,
        "run_logs": 4,
        "event_partitions": 2,
    }
    assert {name: planned[name]["count"] for name in planned} == {
        name: done[name]["count"] for name in planned
    }
    assert [path.stem for path in history.glob("*.db")] == ["index"]
    with dg.DagsterInstance.get() as instance:
        after = newest_results(instance)
        assert after.items() < before.items()
        assert len(before) - len(after) == 2 * 7  # the stages of two versions
        left = [run.job_name for run in instance.get_runs()]
        others = ["of_another_project"] * 2
        assert sorted(left) == ["ingest", "ingest", "ingest", *others, "release"]
        assert instance.all_logs(instance.get_runs()[-1].run_id) == []  # its page still opens
    assert desk.call("verify", "--all").data["failed"] == 0


def test_what_is_gone_is_nowhere_the_newest(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DAYS", "VERSIONS", "RUN_DAYS"):
        monkeypatch.setenv(f"RAG_RETENTION__{name}", "0")
    monkeypatch.setenv("RAG_RELEASES__KEEP", "2")
    desk.write(gate="# Gate\n\nOne.\n", yard="# Yard\n\nTwo.\n", pier="# Pier\n\nThree.\n")
    assert desk.call("ingest", desk.docs, "--sync").exit_code == 0
    assert desk.call("gc").data["removed"]["run_logs"]["count"] == 2
    desk.write(dock="# Dock\n\nNo trucks.\n")
    assert desk.call("ingest", desk.docs, "--sync").exit_code == 0
    for name, number in (("dock", 1), ("yard", 2)):  # runs that make nothing of a file
        (desk.docs / f"{name}.md").unlink()
        (desk.docs / f"{number}.pdf").write_bytes(b"%PDF-1.7\nbroken")
        assert desk.call("ingest", desk.docs, "--sync").data["retired"] == 1
    assert desk.call("gc").data["removed"]["event_partitions"]["count"] == 1
    history = desk.store.home / "dagster" / "history" / "runs"
    assert [path.stem for path in history.glob("*.db")] == ["index"]
    with dg.DagsterInstance.get() as instance:
        newest = instance.get_latest_materialization_event(dg.AssetKey("facts"))
        assert newest is not None and instance.get_run_by_id(newest.run_id) is not None


def test_a_log_that_another_process_closes_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = OpenSqliteEventLog(str(tmp_path))
    path = tmp_path / "run.db"
    path.write_bytes(b"log")
    monkeypatch.setattr(Path, "is_file", lambda _: True)  # its WAL was there just now
    assert log.measure_log("run") == 3
    log.drop_log("run")
    assert not path.exists()
    log.dispose()
