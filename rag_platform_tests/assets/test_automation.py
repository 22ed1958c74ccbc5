"""What runs without being asked, tick by tick: the inbox, the release after a run, the night."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.assets.graph.asset_graph_subset import AssetGraphSubset
from dagster._core.definitions.partitions.subset import DefaultPartitionsSubset
from dagster._core.execution.asset_backfill import AssetBackfillData
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from rag_platform.assets import automation, launch
from rag_platform.assets.instance import prepare
from rag_platform.assets.launch import run_job
from rag_platform.assets.partitions import (
    RANGE_END,
    RANGE_START,
    document_versions,
    namespaces,
)
from rag_platform.assets.resources import DataRootOpener
from rag_platform.assets.runs import end_orphans
from rag_platform.config.profiles import INGESTION_STAGES
from rag_platform.config.settings import JobPolicy, Settings
from rag_platform.definitions import defs
from rag_platform.evaluation.expectations import add_expectation, expectation, remove_expectation
from rag_platform.ledger.schema import Job, JobItem, Source
from rag_platform.processes import jobs, launchers
from rag_platform.processes.jobs import JOB_TAG
from rag_platform.storage.store import Store
from rag_platform_tests.chat_server import chat_server, refused, said

pytestmark = pytest.mark.integration

GATE = "# Gate\n\nThe gate opens at 05:30.\n"
DOCK = "# Dock\n\nThe dock holds 12 trucks.\n"


@pytest.fixture
def instance(desk: Any) -> Iterator[dg.DagsterInstance]:
    """The Dagster instance of the desk."""
    prepare(desk.store)
    with dg.DagsterInstance.get() as made:
        yield made


class Ticks:
    """Evaluates a sensor as the daemon does: cursor kept, partitions added, requested runs executed
    when asked.
    """

    def __init__(self, name: str, instance: dg.DagsterInstance) -> None:
        self.sensor = defs.resolve_sensor_def(name)
        self.instance = instance
        self.cursor: str | None = None

    def __call__(self) -> Any:
        with dg.build_sensor_context(
            instance_ref=self.instance.get_ref(),
            cursor=self.cursor,
            repository_def=defs.get_repository_def(),
            sensor_name=self.sensor.name,
            resources={"platform": DataRootOpener()},
        ) as context:
            data = self.sensor.evaluate_tick(context)
        self.cursor = data.cursor
        for request in data.dynamic_partitions_requests or []:
            self.instance.add_dynamic_partitions(
                request.partitions_def_name, list(request.partition_keys)
            )
        return data


def execute(instance: dg.DagsterInstance, request: Any, job_name: str) -> Any:
    """The result of a requested run."""
    assert request.job_name in (None, job_name)
    job = defs.resolve_job_def(job_name)
    partition = {"partition_key": request.partition_key} if request.partition_key else {}
    return job.execute_in_process(
        instance=instance, tags=dict(request.tags), raise_on_error=False, **partition
    )


def covered(instance: dg.DagsterInstance, requests: Any) -> list[str]:
    """The partition keys that range requests cover."""
    keys = list(instance.get_dynamic_partitions(document_versions.name or ""))
    return [
        key
        for r in requests
        for key in keys[keys.index(r.tags[RANGE_START]) : keys.index(r.tags[RANGE_END]) + 1]
    ]


def put(desk: Any, namespace: str = "yard", **texts: str) -> Path:
    """The inbox folder of a library, with `<name>.md` for each text."""
    folder: Path = desk.store.inbox_dir / namespace
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


def live(desk: Any, namespace: str) -> list[str]:
    with desk.ledger() as ledger:
        return sorted(version.version_id for _, version in ledger.live(namespace))


# --- inbox --------------------------------------------------------------------------------------


def test_the_inbox_asks_for_exactly_the_new_versions(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    tick, after = Ticks("inbox", instance), Ticks("release_when_quiet", instance)
    assert "nothing changed" in tick().skip_message

    folder = put(desk, gate=GATE, dock=DOCK)
    (desk.store.inbox_dir / ".hidden").mkdir()
    asked = tick()
    assert len(asked.run_requests) == 1 and len(covered(instance, asked.run_requests)) == 2
    assert instance.has_dynamic_partition(namespaces.name or "", "yard")
    assert execute(instance, asked.run_requests[0], "ingest").success
    assert not tick().run_requests and "nothing changed" in tick().skip_message
    assert live(desk, "yard") == sorted(covered(instance, asked.run_requests))
    (release,) = after().run_requests
    assert release.partition_key == "yard" and execute(instance, release, "release").success
    assert (
        "12 trucks"
        in desk.call("query", "How many trucks?", "--namespace", "yard", "--mode", "sparse").data[
            "answer_markdown"
        ]
    )
    assert not after().run_requests

    # a changed file beside an unchanged one: only that
    put(desk, dock=DOCK.replace("12", "14"))
    (changed,) = tick().run_requests
    (key,) = covered(instance, [changed])
    assert key.startswith("yard.dock-yard-")
    assert execute(instance, changed, "ingest").success
    (release,) = after().run_requests
    assert execute(instance, release, "release").success

    # a file that is gone retires its document: no ingest, and one release, not one of each sensor
    (folder / "gate.md").unlink()
    told = tick()
    assert not told.run_requests and "`release_when_quiet` publishes" in told.skip_message
    (removed,) = after().run_requests
    assert execute(instance, removed, "release").success
    listed = desk.call("docs", "list", "--namespace", "yard").data
    assert [d["filename"] for d in listed["groups"][0]["documents"]] == ["dock.md"]


def test_a_folder_with_a_bad_name_does_not_stop_the_others(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    tick = Ticks("inbox", instance)
    for name in ("A folder", "yard"):
        put(desk, name, gate=GATE)
    (request,) = tick().run_requests
    assert request.tags["rag/namespace"] == "yard"
    assert execute(instance, request, "ingest").success
    again = tick()
    assert not again.run_requests and "A folder: bad library" in again.skip_message


def test_a_broken_file_is_asked_for_again_only_when_it_changes(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    tick = Ticks("inbox", instance)
    put(desk, bad="", gate=GATE)
    (request,) = tick().run_requests
    assert execute(instance, request, "ingest").success
    put(desk, dock=DOCK)
    (request,) = tick().run_requests
    (key,) = covered(instance, [request])
    assert key.startswith("yard.dock-yard-")
    assert execute(instance, request, "ingest").success
    put(desk, bad="# Bad\n\nMended.\n")
    (key,) = covered(instance, tick().run_requests)
    assert key.startswith("yard.bad-yard-")


# --- release after a run ------------------------------------------------------------------------


def ingest_run(desk: Any, instance: dg.DagsterInstance, *keys: str, **tags: str) -> Any:
    """The result of an ingest run from the UI over neighbouring keys."""
    return defs.resolve_job_def("ingest").execute_in_process(
        instance=instance,
        tags={RANGE_START: keys[0], RANGE_END: keys[-1], **tags},
        raise_on_error=False,
    )


@pytest.fixture
def received(desk: Any, instance: dg.DagsterInstance) -> list[str]:
    """Two received versions, the second of which cannot be read."""
    tick = Ticks("inbox", instance)
    put(desk, a=GATE, b="")
    return covered(instance, tick().run_requests)


def test_the_good_documents_beside_one_that_cannot_be_read_are_released(
    desk: Any, instance: dg.DagsterInstance, received: list[str]
) -> None:
    after = Ticks("release_when_quiet", instance)
    assert ingest_run(desk, instance, *received).success
    (request,) = after().run_requests
    assert request.partition_key == "yard" and request.tags["rag/namespace"] == "yard"
    assert execute(instance, request, "release").success
    with desk.ledger() as ledger:
        assert [row.state for row in ledger.releases("yard")] == ["published"]
        assert [(job.kind, job.state) for job in ledger.jobs("yard")] == [
            ("release", "done"),
            ("ingest", "partly"),
        ]
    # the same document fails again: there is nothing to release
    assert ingest_run(desk, instance, received[1]).success
    assert not after().run_requests and not after().run_requests
    assert "nothing was written" in after().skip_message


def implicit_job() -> dg.JobDefinition:
    """The job that Dagster itself makes of the ingestion assets."""
    keys = {dg.AssetKey(stage) for stage in INGESTION_STAGES}
    return (
        defs.get_repository_def()
        .get_job("__ASSET_JOB")
        .get_subset(asset_selection=keys, asset_check_selection=set())
    )


def backfill(instance: dg.DagsterInstance, *keys: str) -> Any:
    """The result of a run as the UI's backfills launch it: of Dagster's own job over the assets."""
    job = implicit_job()
    assert job.name == "__ASSET_JOB"
    return job.execute_in_process(
        instance=instance, tags={RANGE_START: keys[0], RANGE_END: keys[-1]}, raise_on_error=False
    )


def test_a_backfill_from_the_ui_leads_to_one_release(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    put(desk, gate=GATE, dock=DOCK)
    keys = covered(instance, Ticks("inbox", instance)().run_requests)
    after = Ticks("release_when_quiet", instance)
    assert backfill(instance, keys[0]).success
    with running(instance, "__ASSET_JOB"):  # the next run of the backfill
        assert not after().run_requests
    assert backfill(instance, keys[1]).success
    (request,) = after().run_requests
    assert execute(instance, request, "release").success
    assert not after().run_requests
    with desk.ledger() as ledger:
        assert len(ledger.releases("yard")) == 1

    # the same versions under another config: their outputs change, and nothing else does
    strategy = desk.folder / "config" / "strategies" / "tiny.yaml"
    strategy.write_text(
        strategy.read_text(encoding="utf-8").replace("chunk_size: 400", "chunk_size: 300"),
        encoding="utf-8",
    )
    assert backfill(instance, keys[0]).success
    assert not after().run_requests  # one version is still as it was
    assert backfill(instance, keys[1]).success
    (request,) = after().run_requests
    assert execute(instance, request, "release").success
    assert not after().run_requests
    with desk.ledger() as ledger:
        assert len(ledger.releases("yard")) == 2


def test_a_backfill_holds_a_release_back_only_while_it_moves(
    desk: Any, instance: dg.DagsterInstance, received: list[str]
) -> None:
    after = Ticks("release_when_quiet", instance)
    assert backfill(instance, received[0]).success
    begun = datetime.now(UTC).timestamp()
    opened = PartitionBackfill("opened", BulkActionStatus.REQUESTED, False, {}, begun)
    instance.add_backfill(opened)
    assert not after().run_requests
    # as one whose daemon never goes on with it
    instance.update_backfill(opened._replace(backfill_timestamp=begun - 601))
    assert [request.partition_key for request in after().run_requests] == ["yard"]
    job = implicit_job()
    tags = {RANGE_START: received[0], RANGE_END: received[0], "dagster/backfill": "opened"}
    assert job.execute_in_process(instance=instance, tags=tags, raise_on_error=False).success
    assert not after().run_requests  # it has just had a run


def test_a_run_from_the_ui_is_tagged_with_its_library(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    for name in ("ramp", "yard"):
        put(desk, name, gate=GATE)
    keys = covered(instance, Ticks("inbox", instance)().run_requests)
    runs = [backfill(instance, keys[0]), backfill(instance, *keys)]  # the second of both
    release = defs.resolve_job_def("release")
    runs.append(release.execute_in_process(instance=instance, partition_key="ramp"))
    found = [instance.get_run_by_id(made.run_id) for made in runs]
    assert [run and run.tags.get("rag/namespace") for run in found] == ["ramp", None, "ramp"]


def test_the_newest_result_of_a_check_is_that_of_the_document_that_failed(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    """In a run from the UI, which plans the checks of every document."""
    put(desk, a=GATE, b="", c=DOCK)
    keys = covered(instance, Ticks("inbox", instance)().run_requests)
    job = defs.get_repository_def().get_job("__ASSET_JOB")
    job = job.get_subset(asset_selection={dg.AssetKey(stage) for stage in INGESTION_STAGES})
    tags = {RANGE_START: keys[0], RANGE_END: keys[-1]}
    assert job.execute_in_process(instance=instance, tags=tags).success
    processed = dg.AssetCheckKey(dg.AssetKey("raw_document"), "processed")
    history = instance.event_log_storage.get_asset_check_execution_history(processed, limit=9)
    assert [(record.partition, record.status.value) for record in history] == [(keys[1], "FAILED")]
    assert "the file is empty" in history[0].evaluation.metadata["reason"].value


def test_a_backfill_that_dagster_calls_failed_says_which_documents_and_why(
    desk: Any, instance: dg.DagsterInstance, received: list[str]
) -> None:
    """Its run is green, and Dagster itself gives no reason."""
    after = Ticks("release_when_quiet", instance)
    begun = datetime.now(UTC).timestamp()
    opened = PartitionBackfill("red", BulkActionStatus.REQUESTED, False, {}, begun)
    instance.add_backfill(opened)
    tags = {RANGE_START: received[0], RANGE_END: received[-1], "dagster/backfill": "red"}
    assert implicit_job().execute_in_process(instance=instance, tags=tags).success
    ended = opened.with_status(BulkActionStatus.COMPLETED_FAILED).with_end_timestamp(begun)
    instance.add_backfill(ended._replace(backfill_id="of other runs"))

    after()
    assert [found.error for found in instance.get_backfills()] == [None, None]  # it is still open
    instance.update_backfill(ended)
    after()
    found = instance.get_backfill("red")
    assert found is not None and found.error is not None
    summary, why = found.error.message.splitlines()
    with desk.ledger() as ledger:
        (job,) = ledger.jobs("yard")
    assert summary == f"job {job.job_id} is partly: {job.reason}" and "1 document" in summary
    assert why.startswith("- yard/b.md: [empty_file] ")
    assert why.endswith(f"(partition {received[1]})")
    other = instance.get_backfill("of other runs")
    assert other is not None and other.error is None


@pytest.mark.parametrize(
    ("left", "status"), [([1], "COMPLETED_SUCCESS"), ([0, 1], "COMPLETED_FAILED")]
)
def test_a_backfill_that_only_unreadable_files_are_left_of_has_completed(
    desk: Any, instance: dg.DagsterInstance, received: list[str], left: list[int], status: str
) -> None:
    begun = datetime.now(UTC).timestamp()
    opened = PartitionBackfill("red", BulkActionStatus.REQUESTED, False, {}, begun)
    tags = {RANGE_START: received[0], RANGE_END: received[-1], "dagster/backfill": "red"}
    assert implicit_job().execute_in_process(instance=instance, tags=tags).success
    missing = DefaultPartitionsSubset({received[place] for place in left})
    failed = AssetGraphSubset(partitions_subsets_by_asset_key={dg.AssetKey("facts"): missing})
    data = AssetBackfillData.empty(failed, begun, instance)
    data = data.with_failed_and_downstream_subset(failed)
    ended = opened.with_status(BulkActionStatus.COMPLETED_FAILED).with_end_timestamp(begun)
    instance.add_backfill(ended._replace(asset_backfill_data=data))
    Ticks("release_when_quiet", instance)()
    found = instance.get_backfill("red")
    assert found is not None and found.status.value == status
    assert (found.error is None) == (status == "COMPLETED_SUCCESS")


@contextmanager
def running(instance: dg.DagsterInstance, job_name: str, **tags: str) -> Iterator[dg.DagsterRun]:
    """A run that Dagster counts as running; it is over afterwards, if it is not yet."""
    run = instance.create_run_for_job(
        implicit_job() if job_name == "__ASSET_JOB" else defs.resolve_job_def(job_name),
        status=dg.DagsterRunStatus.STARTED,
        tags=tags,
    )
    yield run
    left = instance.get_run_by_id(run.run_id)
    assert left is not None
    if not left.is_finished:
        instance.report_run_failed(left)


def test_runs_that_a_job_started_are_left_to_it(
    desk: Any, instance: dg.DagsterInstance, received: list[str]
) -> None:
    after = Ticks("release_when_quiet", instance)
    with desk.ledger() as ledger:
        job = ledger.add_job("ingest", "yard", {"version_ids": received[:1]})
        ledger.update_job(job.job_id, state="running", **launchers.of_process(os.getpid()))
        assert ingest_run(desk, instance, received[0], **{JOB_TAG: job.job_id}).success
        assert not after().run_requests
        ledger.update_job(job.job_id, state="failed")  # before it released anything
    assert [request.partition_key for request in after().run_requests] == ["yard"]


# --- runs that were killed ----------------------------------------------------------------------


def dead_pid() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return process.pid


def test_a_killed_run_frees_its_slot_and_tells_its_job(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    after = Ticks("release_when_quiet", instance)
    with (
        desk.ledger() as ledger,
        running(instance, "__ASSET_JOB") as killed,
        running(instance, "__ASSET_JOB") as lives,
    ):
        for run, pid in ((killed, dead_pid()), (lives, os.getpid())):
            job = ledger.add_job(
                "ingest",
                "yard",
                {"run_id": run.run_id},
                [JobItem("yard/a.md", "a", "yard.a@1", "continue")],
            )
            ledger.update_job(job.job_id, state="running", **launchers.of_process(pid))
            instance.add_run_tags(run.run_id, {JOB_TAG: job.job_id})
        after()
        assert [status(instance, run) for run in (killed, lives)] == ["FAILURE", "STARTED"]
        told = {job.args["run_id"]: (job.state, job.reason) for job in ledger.jobs("yard")}
        assert (
            told[killed.run_id][0] == "failed"
            and "is gone" in told[killed.run_id][1]
            and told[lives.run_id][0] == "running"
        )


INTERRUPTED = """
import signal
from typing import ClassVar

from rag_platform.providers.hashing import Hashing


class Interrupted(Hashing):
    NAME: ClassVar[str] = "interrupted"

    def embed(self, texts, *, query=False):
        INTERRUPT
        return super().embed(texts, query=query)
"""


@pytest.mark.parametrize("signalled", [True, False])
def test_a_run_that_is_terminated_in_dagster_says_so(
    desk: Any,
    instance: dg.DagsterInstance,
    received: list[str],
    monkeypatch: pytest.MonkeyPatch,
    signalled: bool,
) -> None:
    """Also if its process loses the signal that a termination in the UI sends."""
    if signalled:
        interrupt = "signal.raise_signal(signal.SIGINT)"
    else:
        interrupt = """import dagster as dg
        with dg.DagsterInstance.get() as instance:
            (run,) = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
            instance.report_run_canceling(run)"""
    text = INTERRUPTED.replace("INTERRUPT", interrupt)
    (desk.folder / "interrupted_embedder.py").write_text(text, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "interrupted_embedder", raising=False)
    monkeypatch.syspath_prepend(str(desk.folder))
    strategy = desk.folder / "config" / "strategies" / "tiny.yaml"
    strategy.write_text(
        strategy.read_text(encoding="utf-8").replace("hashing", "interrupted_embedder:Interrupted"),
        encoding="utf-8",
    )
    ingest_run(desk, instance, received[0])
    with desk.ledger() as ledger:
        (job,) = ledger.jobs("yard")
        assert (job.state, job.reason) == (
            "cancelled",
            f"cancelled; `rag jobs retry {job.job_id}` does the rest",
        )
        assert job.trace_id.startswith("trc_")
        assert [(item.state, item.code) for item in ledger.job_items(job.job_id)] == [
            ("cancelled", "cancelled")
        ]


def test_a_run_that_is_executed_again_has_a_job_of_its_own(
    desk: Any, instance: dg.DagsterInstance, received: list[str]
) -> None:
    """Dagster gives it the tags of the first run, the job's among them, which has ended."""
    after = Ticks("release_when_quiet", instance)
    assert ingest_run(desk, instance, received[0]).success
    with desk.ledger() as ledger:
        (first,) = ledger.jobs("yard")
        ledger.update_job(first.job_id, ended_at="2026-01-01T00:00:00Z")
        with running(instance, "__ASSET_JOB", **{JOB_TAG: first.job_id}) as run:
            after()
            assert status(instance, run) == "STARTED"
        assert ingest_run(desk, instance, received[0], **{JOB_TAG: first.job_id}).success
        assert [(job.state, job.job_id == first.job_id) for job in ledger.jobs("yard")] == [
            ("done", False),
            ("done", True),
        ]


def test_a_run_that_died_before_it_began_its_work_frees_its_slot(
    desk: Any, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(instance, "__ASSET_JOB") as run:
        Ticks("release_when_quiet", instance)()
        assert status(instance, run) == "STARTED"  # it may still load its code
        monkeypatch.setattr(launchers, "LAUNCH_SECONDS", -1.0)
        Ticks("release_when_quiet", instance)()
        assert status(instance, run) == "FAILURE"


def test_the_time_that_a_run_waited_in_the_queue_does_not_count_as_its_start(
    desk: Any, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = instance.create_run_for_job(implicit_job())
    with instance.run_storage.connect() as db:
        long_ago = "UPDATE runs SET create_timestamp = '2020-01-01 00:00:00'"
        assert db.exec_driver_sql(long_ago).rowcount == 1
    assert instance.get_run_records()[0].create_timestamp.year == 2020
    instance.report_dagster_event(
        dg.DagsterEvent(event_type_value="PIPELINE_STARTING", job_name=run.job_name), run.run_id
    )
    with desk.ledger() as ledger:
        end_orphans(instance, ledger, JobPolicy())
        assert status(instance, run) == "STARTING"
        monkeypatch.setattr(launchers, "LAUNCH_SECONDS", -1.0)
        end_orphans(instance, ledger, JobPolicy())
        assert status(instance, run) == "FAILURE"


def test_a_run_that_was_made_and_never_started_is_closed_with_its_job(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    """A job killed between the making of its run and its start; the run of a job that is still at
    it stays.
    """
    with desk.ledger() as ledger:
        runs = []
        for state in ("failed", "running"):
            job = ledger.add_job("ingest", "yard", {"version_ids": ["yard.a@1"]})
            ledger.update_job(job.job_id, state=state, **launchers.of_process(os.getpid()))
            runs.append(
                instance.create_run_for_job(
                    defs.resolve_job_def("release"), tags={JOB_TAG: job.job_id}
                )
            )
        assert [status(instance, run) for run in runs] == ["NOT_STARTED", "NOT_STARTED"]
        end_orphans(instance, ledger, JobPolicy())
        assert [status(instance, run) for run in runs] == ["FAILURE", "NOT_STARTED"]


def test_a_killed_release_is_asked_for_again_and_not_for_ever(
    desk: Any, instance: dg.DagsterInstance, received: list[str]
) -> None:
    after = Ticks("release_when_quiet", instance)
    assert ingest_run(desk, instance, received[0]).success
    keys = []
    for _ in range(4):
        (request,) = after().run_requests
        keys.append(request.run_key)
        with (
            desk.ledger() as ledger,
            running(
                instance, "release", **request.tags, **{"dagster/run_key": request.run_key}
            ) as run,
        ):
            job = ledger.add_job("release", "yard", {"run_id": run.run_id})
            ledger.update_job(job.job_id, state="running", **launchers.of_process(dead_pid()))
            instance.add_run_tags(run.run_id, {JOB_TAG: job.job_id})
    # Dagster launches no second run of a key
    assert [keys.index(key) for key in keys] == [0, 1, 2, 2]


def test_a_rejected_release_is_asked_for_again_only_after_a_change(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    """Its questions may cost money; so it is after another failed run, whosever it was."""
    after, yard = Ticks("release_when_quiet", instance), ("--namespace", "yard")
    folder = put(desk, gate=GATE, dock=DOCK)
    desk.call("ingest", folder, *yard)
    case = expectation("When does the gate open?", file="gate.md", text="opens at 05:30")
    add_expectation(desk.store, "yard", case)
    put(desk, gate=GATE.replace("05:30", "06:30"))
    assert desk.call("ingest", folder, *yard).exit_code == 1
    for _ in range(2):
        told = after()
        assert not told.run_requests and told.skip_message == "rejected, unchanged since: yard"
        with running(instance, "__ASSET_JOB"):
            pass  # it fails

    # another expectation: no document changes, and nothing in the ledger
    added = expectation("How many trucks?", file="dock.md")
    add_expectation(desk.store, "yard", added)
    (request,) = after().run_requests
    assert not execute(instance, request, "release").success
    assert not after().run_requests
    gates = desk.folder / "config" / "gates.yaml"
    keys = [request.run_key]
    for dataset in ("nowhere", "golden"):  # the first cannot be read
        gates.write_text(f"yard: [{{dataset: {dataset}}}]\n", encoding="utf-8")
        keys += [request.run_key for request in after().run_requests]
    gates.unlink()
    assert not after().run_requests  # as it was when it was rejected
    strategy = desk.folder / "config" / "strategies" / "tiny.yaml"
    config = strategy.read_text(encoding="utf-8")
    strategy.write_text(config.replace("alpha: 0.3", "alpha: 0.5"), encoding="utf-8")
    keys += [request.run_key for request in after().run_requests]
    assert len({*keys}) == 4
    strategy.write_text(config, encoding="utf-8")

    # as it was before that: the first rejection is told, not the newest
    remove_expectation(desk.store, "yard", added.case_id)
    assert desk.call("ingest", folder, *yard).exit_code == 1
    with desk.ledger() as ledger:
        [*_, first] = [row for row in ledger.releases("yard") if row.state == "rejected"]
        assert f"release {first.release_id} was not" in ledger.jobs("yard", limit=1)[0].reason

    put(desk, gate=f"{GATE}It closes at 22:00.\n")
    (request,) = Ticks("inbox", instance)().run_requests
    assert execute(instance, request, "ingest").success
    (request,) = after().run_requests
    assert execute(instance, request, "release").success
    assert after().skip_message == "no release is due"


def test_a_release_whose_judge_is_away_is_asked_for_again_until_it_is_back(
    desk: Any, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    after, folder = Ticks("release_when_quiet", instance), put(desk, gate=GATE)
    dataset = desk.folder / "asked.yaml"
    dataset.write_text(
        "- query: When does the gate open?\n  expected_text: opens at 05:30\n", encoding="utf-8"
    )
    gate = f"{{dataset: {dataset}, judge: llm, floors: {{generation.faithfulness: 0.9}}}}"
    (desk.folder / "config" / "gates.yaml").write_text(f"yard: [{gate}]\n", encoding="utf-8")
    replies = [refused(503, "away"), said('{"reason": "", "score": 0.5}')]
    with chat_server(lambda body, number: replies[min(number, 2) // 2]) as server:
        model = {"model": "m", "base_url": server.url, "api_key_env": "", "retries": 0}
        monkeypatch.setenv("RAG_JUDGE__PROVIDER", "openai")
        monkeypatch.setenv("RAG_JUDGE__OPTIONS", json.dumps(model))
        assert desk.call("ingest", folder, "--namespace", "yard").exit_code == 1
        with desk.ledger() as ledger:
            (job,) = ledger.jobs("yard")
        assert "quality_gate: could not be judged: " in job.reason and "503" in job.reason
        assert "release_when_quiet" in job.reason and "mend the documents" not in job.reason

        (request,) = after().run_requests  # at once, for the run was not the sensor's own
        keyed = {**request.tags, "dagster/run_key": request.run_key}
        assert not execute(instance, request.with_replaced_attrs(tags=keyed), "release").success
        told = after()
        assert not told.run_requests
        assert told.skip_message == "failed for now, tried again later: yard"
        monkeypatch.setattr(automation, "_PASSING_SECONDS", 0.0)
        (again,) = after().run_requests
        assert again.run_key != request.run_key  # Dagster launches no second run of a key

        # it is back, and judges: that is a rejection
        assert not execute(instance, again, "release").success
        assert after().skip_message == "rejected, unchanged since: yard"
        asked = len(server.requests)
        told = desk.call("ingest", folder, "--namespace", "yard")
        assert told.exit_code == 1 and len(server.requests) == asked
        with desk.ledger() as ledger:
            reason = ledger.jobs("yard", limit=1)[0].reason
        assert "generation.faithfulness is 0.500 over 1 question, the floor is 0.9" in reason
        assert "nothing has changed since, so it was not asked again" in reason
        assert desk.call("rebuild", "--full", "--namespace", "yard").exit_code == 1
        with desk.ledger() as ledger:
            assert "was not asked again" not in ledger.jobs("yard", limit=1)[0].reason


def test_a_release_that_found_its_library_locked_is_asked_for_again(
    desk: Any, instance: dg.DagsterInstance, elsewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_JOBS__LOCK_SECONDS", "0")
    after = Ticks("release_when_quiet", instance)
    put(desk, gate=GATE)
    (request,) = Ticks("inbox", instance)().run_requests
    assert execute(instance, request, "ingest").success
    (request,) = after().run_requests
    keyed = {**request.tags, "dagster/run_key": request.run_key}
    with elsewhere(desk.store.writer("yard", "a job of `rag`")):
        assert not execute(instance, request.with_replaced_attrs(tags=keyed), "release").success
    assert after().skip_message == "failed for now, tried again later: yard"
    monkeypatch.setattr(automation, "_PASSING_SECONDS", 0.0)
    (again,) = after().run_requests
    assert again.run_key != request.run_key and execute(instance, again, "release").success


def status(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status.value


# --- the night ----------------------------------------------------------------------------------


@pytest.fixture
def night(
    desk: Any, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Any]:
    """Runs what the schedule of the night asks for, its jobs in this process, and gives the
    result.
    """

    def launch(job: Job, settings: Settings, store: Store) -> Any:
        code = run_job(job.job_id)
        process: Any = SimpleNamespace(poll=lambda: code, returncode=code)
        return jobs.Started(job, process)

    monkeypatch.setattr(jobs, "launch", launch)

    def run(name: str = "nightly") -> Any:
        schedule = defs.resolve_schedule_def(name)
        with dg.build_schedule_context(
            instance_ref=instance.get_ref(), repository_def=defs.get_repository_def()
        ) as context:
            (request,) = schedule.evaluate_tick(context).run_requests or []
        return defs.resolve_job_def(schedule.job_name).execute_in_process(
            instance=instance, tags=dict(request.tags), raise_on_error=False
        )

    return run


def worked(desk: Any) -> list[tuple[str, list[str]]]:
    """(state, source_uris that were processed) of every ingest of the ledger but the first, oldest
    first.
    """
    with desk.ledger() as ledger:
        rows = [job for job in reversed(ledger.jobs()) if job.kind == "ingest"][1:]
        return [
            (
                job.state,
                [
                    i.source_uri
                    for i in ledger.job_items(job.job_id)
                    if i.version_id in job.args["version_ids"]
                ],
            )
            for job in rows
        ]


def test_the_night_syncs_rebuilds_what_is_stale_and_releases(
    desk: Any, night: Callable[[], Any]
) -> None:
    desk.write(gate=GATE, dock=DOCK)
    desk.call("ingest", desk.docs)
    assert night().success and worked(desk) == [("done", [])]

    desk.write(dock=DOCK.replace("12", "14"))
    desk.write(ramp="# Ramp\n\nThe ramp carries 8 tons.\n")
    assert night().success
    assert worked(desk)[1:] == [("done", ["docs/dock.md", "docs/ramp.md"])]
    assert (
        "14 trucks"
        in desk.call("query", "How many trucks?", "--mode", "sparse").data["answer_markdown"]
    )

    # another config: every live version is stale
    strategy = desk.folder / "config" / "strategies" / "tiny.yaml"
    strategy.write_text(
        strategy.read_text(encoding="utf-8").replace("chunk_size: 400", "chunk_size: 300"),
        encoding="utf-8",
    )
    assert night().success
    assert worked(desk)[2:] == [("done", ["docs/dock.md", "docs/gate.md", "docs/ramp.md"])]


def test_the_night_retires_what_is_gone_but_not_a_folder_that_is_away(
    desk: Any, night: Callable[[], Any]
) -> None:
    desk.write(gate=GATE, dock=DOCK)
    desk.call("ingest", desk.docs, "--source", "yard")
    (desk.docs / "dock.md").unlink()
    assert night().success and len(live(desk, "default")) == 1
    assert [d["filename"] for d in desk.call("docs", "list").data["groups"][0]["documents"]] == [
        "gate.md"
    ]
    away = desk.docs.rename(desk.folder / "unplugged")
    assert not night().success and len(live(desk, "default")) == 1
    (problem, *_) = desk.call("status").data["problems"]
    assert problem.startswith(
        "default: yard could not be brought up to date, so what was read before still answers:"
        " [missing_path] no f"
    )
    assert "`rag ingest FOLDER --source yard --moved --sync`" in problem
    away.rename(desk.docs)
    assert night().success and desk.call("status").data["problems"] == []
    shutil.rmtree(desk.docs)
    assert desk.call("docs", "delete", "gate", "--yes").exit_code == 0
    assert night().success  # it has nothing left that could be out of date


def test_the_night_fails_over_a_folder_of_which_most_is_gone(
    desk: Any, night: Callable[[], Any]
) -> None:
    desk.write(**{f"part{number}": f"# Part {number}" for number in range(7)})
    desk.call("ingest", desk.docs)
    for number in range(6):
        (desk.docs / f"part{number}.md").unlink()
    result = night()
    (failure,) = [
        event.step_failure_data.user_failure_data
        for event in result.all_events
        if event.is_step_failure
    ]
    assert "docs/: [mostly_gone] 6 of 7 documents" in failure.description
    assert len(live(desk, "default")) == 7
    problems = desk.call("status").data["problems"]
    assert problems[0].startswith(
        "default: docs/ could not be brought up to date, so what was read before still answers:"
        " [mostly_gone]"
    )
    # a retry would read what stands there now
    job_id = desk.call("jobs", "list").data["jobs"][0]["job_id"]
    assert desk.call("jobs", "retry", job_id).error["code"] == "nothing_to_retry"


def test_the_night_removes_what_the_settings_no_longer_keep(
    desk: Any, night: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in (5, 6, 7):
        desk.write(gate=f"# Gate\n\nThe gate opens at {hour}.\n")
        desk.call("ingest", desk.docs)
    monkeypatch.setenv("RAG_RELEASES__KEEP", "2")
    assert night("nightly_gc").success
    states = [row["state"] for row in desk.call("releases", "list").data["releases"]]
    assert states == ["published", "retired", "dropped"]
    newest = desk.call("jobs", "list", "--all").data["jobs"][0]
    assert (newest["kind"], newest["namespace"], newest["state"]) == ("gc", "", "done")
    with desk.ledger() as ledger:
        assert ledger.job(newest["job_id"]).result["removed"]["releases"]["count"] == 1


def test_the_night_finishes_a_stopped_deletion_which_others_see_at_work(
    desk: Any, night: Callable[..., Any], elsewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write(gate=GATE, dock=DOCK)
    desk.call("ingest", desk.docs)
    with monkeypatch.context() as patch, elsewhere(desk.store.writer("default", "another")):
        patch.setenv("RAG_JOBS__LOCK_SECONDS", "0.1")
        desk.call("docs", "delete", "gate.md", "--mode", "hard", "--yes")
    ended: list[str] = []
    release = launch.release

    def look(work: Any) -> str:
        """End the jobs that another process finds dead, then release."""
        code = (
            "from rag_platform.config.settings import load_settings\n"
            "from rag_platform.processes import jobs\n"
            "from rag_platform.workspace import DataRoot\n"
            "print(*jobs.end_orphans(DataRoot.open(load_settings()).ledger))"
        )
        ended.extend(subprocess.check_output([sys.executable, "-c", code], text=True).split())
        return release(work)

    monkeypatch.setattr(launch, "release", look)
    assert night("nightly_gc").success and ended == []
    states = [
        (job["kind"], job["state"]) for job in desk.call("jobs", "list", "--all").data["jobs"]
    ]
    assert states[:3] == [("delete", "done"), ("gc", "done"), ("delete", "failed")]


def test_a_file_that_cannot_be_read_leaves_the_night_green(
    desk: Any, night: Callable[[], Any]
) -> None:
    desk.write(gate=GATE)
    (desk.docs / "empty.md").write_bytes(b"")
    desk.call("ingest", desk.docs)
    for _ in range(2):
        assert night().success
    # told once and not tried again; before that, the ingest told nobody who syncs
    assert worked(desk) == [("partly", []), ("done", [])]


def test_the_night_goes_on_after_a_source_it_cannot_read(
    desk: Any, night: Callable[[], Any]
) -> None:
    desk.write(gate=GATE)
    desk.call("ingest", desk.docs)
    with desk.ledger() as ledger:
        ledger.bind_strategy("broken", "gone", "scfg_0")
        ledger.put_source(Source("broken", "docs", "folder", str(desk.docs)))
    desk.write(dock=DOCK)
    result = night()
    (failure,) = [
        event.step_failure_data.user_failure_data
        for event in result.all_events
        if event.is_step_failure
    ]
    assert "broken: [unknown_strategy]" in failure.description
    assert len(live(desk, "default")) == 2


def test_a_file_that_is_still_written_waits_for_a_later_tick(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    settings = desk.folder / "config" / "settings.yaml"
    settled = settings.read_text(encoding="utf-8")
    settings.write_text(
        settled.replace("inbox_settle_seconds: 0", "inbox_settle_seconds: 3600"), encoding="utf-8"
    )
    put(desk, gate=GATE)
    tick = Ticks("inbox", instance)
    assert tick().skip_message == "yard: 1 file may still be written, e.g. yard/gate.md"
    settings.write_text(settled, encoding="utf-8")
    asked = tick()
    assert len(covered(instance, asked.run_requests)) == 1
    assert execute(instance, asked.run_requests[0], "ingest").success
    assert "nothing changed" in tick().skip_message


def test_what_a_killed_run_left_in_the_inbox_is_asked_for_again_and_not_for_ever(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    put(desk, gate=GATE, dock=DOCK)
    tick = Ticks("inbox", instance)

    def kill(request: Any) -> None:
        key = {"dagster/run_key": request.run_key} if request.run_key else {}
        with running(instance, "ingest", **request.tags, **key):
            assert not tick().run_requests  # it is at work

    asked = tick()
    assert execute(instance, asked.run_requests[0], "ingest").success
    (release,) = Ticks("release_when_quiet", instance)().run_requests
    assert execute(instance, release, "release").success
    put(desk, dock=DOCK.replace("12", "14"))
    (request,) = tick().run_requests
    kill(request)
    keys = []
    for _ in range(3):  # settings.jobs.max_attempts
        (again,) = tick().run_requests
        assert covered(instance, [again]) == covered(instance, [request])
        assert [row["pending"] for row in desk.call("status").data["namespaces"]] == [1]
        keys.append(again.run_key)
        kill(again)
    assert len({*keys}) == 3 and "nothing changed" in tick().skip_message


def test_what_somebody_cancelled_waits_until_its_folder_changes(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    put(desk, gate=GATE)
    tick = Ticks("inbox", instance)
    (request,) = tick().run_requests
    with running(instance, "ingest", **request.tags) as run:
        instance.report_run_canceled(run)
    desk.write(aside=DOCK)
    # a run of the command line is one of the library's, and brings back nothing that was cancelled
    desk.call("ingest", desk.docs, "--namespace", "yard")
    found = instance.get_runs(dg.RunsFilter(tags={"rag/namespace": "yard"}))
    assert [run.job_name for run in found] == ["release", "ingest", "ingest"]
    assert "nothing changed" in tick().skip_message
    put(desk, dock=DOCK)
    assert len(covered(instance, tick().run_requests)) == 2


def test_a_file_beside_the_folders_of_the_inbox_is_named(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    desk.store.inbox_dir.mkdir(parents=True, exist_ok=True)
    (desk.store.inbox_dir / "loose.md").write_text(GATE, encoding="utf-8")
    assert Ticks("inbox", instance)().skip_message == (
        "loose.md lies outside the folders of the inbox, each of which is a library"
    )


def test_the_cursor_holds_no_paths(desk: Any, instance: dg.DagsterInstance) -> None:
    put(desk, gate=GATE)
    tick = Ticks("inbox", instance)
    tick()
    assert list(json.loads(tick.cursor or "{}")) == ["yard"] and str(desk.folder) not in (
        tick.cursor or ""
    )


def test_the_inbox_goes_on_in_a_data_root_that_moved(
    desk: Any, instance: dg.DagsterInstance
) -> None:
    for name in ("yard", "own"):
        put(desk, name, gate=GATE)
    with desk.ledger() as ledger:
        ledger.put_source(Source("yard", "yard", "folder", "/mnt/old/inbox/yard"))
        ledger.put_source(Source("own", "own", "folder", "/mnt/elsewhere/own"))
    data = Ticks("inbox", instance)()
    [key] = covered(instance, data.run_requests)
    assert key.startswith("yard.gate-")
    with desk.ledger() as ledger:
        roots = {
            source.name: source.root for name in ("yard", "own") for source in ledger.sources(name)
        }
    assert roots == {"yard": str(desk.store.inbox_dir / "yard"), "own": "/mnt/elsewhere/own"}
