"""Jobs that Dagster's run launcher starts, and ranges of one job: who lives, who is stopped, and
when the last one has ended.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import (
    QueuedRunCoordinatorDaemon,
)

from rag_platform.assets import dagster_private
from rag_platform.assets.instance import prepare
from rag_platform.assets.launch import run_job
from rag_platform.assets.runs import WORK_JOB, end_orphans
from rag_platform.assets.submission import submit_job
from rag_platform.cli.main import main
from rag_platform.config.settings import JobPolicy
from rag_platform.errors import BusyError, ConfigError
from rag_platform.ledger.schema import Job, JobItem
from rag_platform.processes import jobs, launchers
from rag_platform.processes.launchers import SUBMITTED

NAMES = ("a", "b", "c", "d", "e")
LONG_AGO = "2026-01-01T00:00:00Z"
# Dagster's launchers that carry a run out in this process, and that never begin it
HERE = ("dagster._core.launcher.sync_in_memory_run_launcher", "SyncInMemoryRunLauncher")
NOWHERE = ("dagster._core.test_utils", "MockedRunLauncher")


def ago(seconds: float) -> str:
    """A time of the ledger."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def add_job(ledger: Any, count: int = 5, namespace: str = "default") -> Job:
    """A queued ingest of so many documents."""
    items = [
        JobItem(f"docs/{name}.md", name, f"{namespace}.{name}@1", "new") for name in NAMES[:count]
    ]
    args = {"version_ids": [item.version_id for item in items], "release": True}
    added: Job = ledger.add_job("ingest", namespace, args, items)
    ledger.update_job(added.job_id, process=SUBMITTED)
    return ledger.job(added.job_id)  # type: ignore[no-any-return]


def cut(ledger: Any) -> tuple[Job, list[Job]]:
    """A job of five documents in ranges of two, two and one."""
    job = add_job(ledger)
    ledger.split_job(job, 2)
    return ledger.job(job.job_id), ledger.ranges(job.job_id)


def end(ledger: Any, one: Job, state: str = "done") -> None:
    """What the process of a range records at its end."""
    for item in ledger.job_items(one.job_id):
        ledger.update_job_item(one.job_id, item.version_id, "done")
    result = {"documents": len(one.args["version_ids"]), "warnings": [one.job_id]}
    ledger.update_job(one.job_id, state=state, result=result, ended_at="2026-11-24T00:00:00Z")


def run_by(ledger: Any, job_id: str, pid: int, **columns: Any) -> None:
    """Record that a process of this machine carries out a job that Dagster started."""
    found = launchers.of_process(pid)
    found["process"] |= {**SUBMITTED, "run_id": "r1"}
    ledger.update_job(job_id, state="running", **{**found, **columns})


# --- who lives ----------------------------------------------------------------------------------


def test_the_heartbeat_judges_what_dagster_started(ledger: Any) -> None:
    """A worker's process may outlive the run, and Celery calls a dead one running: a living process
    here is not enough, and a dead one is.
    """
    queued, lives, silent, gone = (add_job(ledger, 1).job_id for _ in range(4))
    ledger.update_job(queued, process={**SUBMITTED, "run_id": "r0"}, created_at=LONG_AGO)
    run_by(ledger, lives, os.getpid())
    run_by(ledger, silent, os.getpid(), heartbeat_at=LONG_AGO)
    run_by(ledger, gone, 2**22 - 1)
    ledger.update_job(gone, process={**ledger.job(gone).process, "started": "1"})
    assert sorted(jobs.end_orphans(ledger)) == sorted([silent, gone])
    assert [ledger.job(one).state for one in (queued, lives)] == ["queued", "running"]


def test_what_was_never_submitted_is_over_after_a_minute(ledger: Any) -> None:
    job = add_job(ledger, 1)
    assert jobs.end_orphans(ledger) == []
    ledger.update_job(job.job_id, created_at=LONG_AGO)
    assert jobs.end_orphans(ledger) == [job.job_id]


def test_what_waits_in_a_queue_is_over_once_nothing_goes_on(ledger: Any) -> None:
    waits, other = add_job(ledger, 1).job_id, add_job(ledger, 1, "yard").job_id
    ledger.update_job(waits, process={**SUBMITTED, "run_id": "r1"}, created_at=LONG_AGO)
    run_by(ledger, other, os.getpid())
    assert jobs.end_orphans(ledger) == []
    ledger.update_job(other, state="done", heartbeat_at=ago(890))
    assert jobs.end_orphans(ledger) == []
    ledger.update_job(other, heartbeat_at=ago(910))
    assert jobs.end_orphans(ledger) == [waits]
    assert "no other one went on, for 900 s" in ledger.job(waits).reason
    ledger.update_job(waits, state="queued", created_at=ago(890))
    assert jobs.end_orphans(ledger) == []
    assert jobs.end_orphans(ledger, JobPolicy(start_seconds=880)) == [waits]


def test_only_a_job_of_which_nothing_is_carried_out_has_not_begun(ledger: Any) -> None:
    job, ranges = cut(ledger)
    assert not jobs.has_not_begun(job, ledger)  # it is being submitted
    for one in ranges:
        ledger.update_job(one.job_id, process={**SUBMITTED, "run_id": "r1"})
    assert jobs.has_not_begun(job, ledger) and jobs.has_not_begun(
        ledger.job(ranges[0].job_id), ledger
    )
    end(ledger, ranges[0])
    assert jobs.has_not_begun(job, ledger)
    run_by(ledger, ranges[1].job_id, os.getpid())
    assert not jobs.has_not_begun(job, ledger)
    end(ledger, ranges[1])
    end(ledger, ranges[2])
    assert not jobs.has_not_begun(job, ledger)  # its release comes


def test_a_worker_is_told_and_never_killed(ledger: Any) -> None:
    queued, running = add_job(ledger, 1).job_id, add_job(ledger, 1).job_id
    run_by(ledger, running, os.getpid())
    assert jobs.cancel(queued, ledger).state == "cancelled"
    assert jobs.cancel(running, ledger).state == "cancelling"


# --- ranges -------------------------------------------------------------------------------------


def test_a_job_is_cut_into_ranges_that_take_its_documents(ledger: Any) -> None:
    job, ranges = cut(ledger)
    assert [one.job_id for one in ranges] == [f"{job.job_id}.{number}" for number in (1, 2, 3)]
    assert [one.args["version_ids"] for one in ranges] == [
        ["default.a@1", "default.b@1"],
        ["default.c@1", "default.d@1"],
        ["default.e@1"],
    ]
    assert [item.doc_id for item in ledger.job_items(ranges[1].job_id)] == ["c", "d"]
    assert (job.state, job.pid, job.args["ranges"]) == ("running", 0, 3)
    assert [one.job_id for one in ledger.jobs("default")] == [job.job_id]  # lists show the job
    ledger.split_job(job, 2)  # it runs already
    assert len(ledger.ranges(job.job_id)) == 3
    whole = add_job(ledger, 2)
    ledger.split_job(whole, 2)
    assert ledger.job(whole.job_id).state == "queued" and ledger.ranges(whole.job_id) == []


def test_the_last_range_brings_its_job_to_its_release_once(ledger: Any) -> None:
    """Whoever was killed between its range's end and this: another one does it, and eight at a time
    do it once.
    """
    job, ranges = cut(ledger)
    for one in ranges[:2]:
        end(ledger, one)
    jobs.fan_in(job, ledger)
    assert ledger.job(job.job_id).state == "running"
    end(ledger, ranges[2], "partly")

    threads = [threading.Thread(target=lambda: jobs.end_orphans(ledger)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queued = ledger.job(job.job_id)
    assert (queued.state, queued.process) == ("queued", SUBMITTED)
    assert queued.result == {"documents": 5, "warnings": [one.job_id for one in ranges]}
    assert ledger.job_item_counts(job.job_id) == [("done", "new", 5)]
    # the one that was to release it was killed too
    assert jobs.end_orphans(ledger) == []
    ledger.update_job(job.job_id, heartbeat_at=LONG_AGO)
    assert jobs.end_orphans(ledger) == [job.job_id]
    assert f"rag jobs retry {job.job_id}" in ledger.job(job.job_id).reason


def test_a_lost_range_ends_its_job_when_the_others_have_ended(ledger: Any) -> None:
    job, ranges = cut(ledger)
    end(ledger, ranges[0])
    run_by(ledger, ranges[1].job_id, os.getpid())
    run_by(ledger, ranges[2].job_id, os.getpid(), heartbeat_at=LONG_AGO)
    assert jobs.end_orphans(ledger) == [ranges[2].job_id]
    assert ledger.job(job.job_id).state == "running"  # one still lives
    end(ledger, ranges[1])
    assert jobs.end_orphans(ledger) == [job.job_id]
    failed = ledger.job(job.job_id)
    assert failed.state == "failed" and failed.reason.startswith("1 of 3 ranges did not end well")
    assert ledger.job_item_counts(job.job_id) == [("done", "new", 4), ("queued", "new", 1)]
    end(ledger, ranges[2])  # it lived after all; its outputs are good, a retry finds them
    assert jobs.end_orphans(ledger) == [] and ledger.job(job.job_id).state == "failed"


def test_ranges_wait_while_their_submission_lives(ledger: Any) -> None:
    job, ranges = cut(ledger)
    for one in ranges:
        ledger.update_job(one.job_id, created_at=LONG_AGO)
    assert jobs.end_orphans(ledger) == []  # the submission's last sign of life is a moment old
    ledger.update_job(ranges[0].job_id, process={**SUBMITTED, "run_id": "r1"})
    ledger.update_job(job.job_id, heartbeat_at=ago(61))
    assert sorted(jobs.end_orphans(ledger)) == [ranges[1].job_id, ranges[2].job_id]
    assert ledger.job(ranges[0].job_id).state == "queued"  # Dagster has it


def test_a_cancelled_job_takes_its_ranges_with_it(ledger: Any) -> None:
    job, ranges = cut(ledger)
    end(ledger, ranges[0])
    run_by(ledger, ranges[1].job_id, os.getpid())
    assert jobs.cancel(job.job_id, ledger).state == "cancelling"
    assert [one.state for one in ledger.ranges(job.job_id)] == ["done", "cancelling", "cancelled"]
    jobs.record_cancelled(ranges[1].job_id, ledger)  # its process, at its next heartbeat
    jobs.end_orphans(ledger)
    assert ledger.job(job.job_id).state == "cancelled"
    assert ledger.job_item_counts(job.job_id) == [("cancelled", "new", 3), ("done", "new", 2)]


def test_a_job_is_as_far_as_its_ranges(ledger: Any) -> None:
    job, ranges = cut(ledger)
    jobs.Progress(ledger, ranges[0].job_id)("documents", 2, 2)
    jobs.Progress(ledger, ranges[2].job_id)("documents", 1, 1)
    progress = ledger.job(job.job_id).progress
    assert (progress["stage"], progress["done"], progress["total"]) == ("documents", 3, 5)


def test_ranges_write_side_by_side_and_nobody_else_beside_them(store: Any) -> None:
    with store.writer("default", "range 1", shared=True):
        caught: list[Exception] = []

        def others() -> None:
            with store.writer("default", "range 2", shared=True):
                pass
            try:
                with store.writer("default", "a release"):
                    pass
            except BusyError as error:
                caught.append(error)

        thread = threading.Thread(target=others)
        thread.start()
        thread.join()
    assert len(caught) == 1


# --- Dagster ------------------------------------------------------------------------------------


@pytest.fixture
def submitting(desk: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A desk whose jobs are submitted to Dagster by this process, in ranges of two versions."""
    monkeypatch.setenv("RAG_JOBS__LAUNCHER", "dagster")
    monkeypatch.setenv("RAG_JOBS__RANGE_SIZE", "2")
    monkeypatch.setenv("RAG_JOBS__RANGES_AT_ONCE", "2")
    yield desk


@pytest.fixture
def instance(submitting: Any) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance by the dagster.yaml that is written, with its queue."""
    prepare(submitting.store)
    with dg.DagsterInstance.get() as opened:
        yield opened


@pytest.mark.integration
def test_a_job_in_ranges_comes_to_one_release(
    submitting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Dagster's own launcher that runs what is submitted in this process."""
    launch_by(submitting.store, HERE)
    monkeypatch.setattr(launchers, "_start", submit_here)
    submitting.write(**{name: f"# Gate {name}\n\nGate {name} opens.\n" for name in NAMES})
    ended = CliRunner().invoke(main, ["ingest", str(submitting.docs), "--json"])
    assert ended.exit_code == 0, ended.output

    with submitting.ledger() as ledger:
        (job,) = ledger.jobs("default")
        assert (job.state, job.result["documents"]) == ("done", 5)
        ranges = ledger.ranges(job.job_id)
        assert [(one.state, one.result["documents"]) for one in ranges] == [
            ("done", 2),
            ("done", 2),
            ("done", 1),
        ]
        # released by the run of the last range
        assert job.process["run_id"] == ranges[2].process["run_id"]
        assert [(one.state, one.parent) for one in ledger.releases("default")] == [
            ("published", None)
        ]
    with dg.DagsterInstance.get() as opened:
        runs = [(run.job_name, run.status.value) for run in opened.get_runs()]
        assert sorted(runs) == sorted(
            [("work", "SUCCESS")] * 3 + [("ingest", "SUCCESS")] * 3 + [("release", "SUCCESS")]
        )
        # the tag that `ranges_at_once` counts
        tagged = opened.get_runs(dg.RunsFilter(tags={"rag/namespace": "default"}))
        assert [run.job_name for run in tagged] == ["work"] * 3
    assert submitting.call("verify", "--all").exit_code == 0
    retried = submitting.call("jobs", "retry", f"{job.job_id}.2")  # a part of what is done
    assert retried.error["code"] == "nothing_to_retry" and job.job_id in retried.error["message"]
    shown = submitting.call("jobs", "show", job.job_id).data["markdown"]
    assert f"Started by Dagster run {job.process['run_id']}." in shown
    assert f"In 3 ranges, from {job.job_id}.1 on." in shown


@pytest.mark.integration
@pytest.mark.parametrize("waited", [True, False])
def test_a_job_that_its_queue_lost_is_retried(
    submitting: Any, monkeypatch: pytest.MonkeyPatch, waited: bool
) -> None:
    """After its end, or at once by who does not wait for that; what the queue finds again after all
    is left alone.
    """
    launch_by(submitting.store, NOWHERE)
    monkeypatch.setattr(jobs, "_SWEEP_SECONDS", 0.0)

    def submit_and_lose(module: str, job: Job, *_: Any) -> Any:
        submission = submit_here(module, job)
        with submitting.ledger() as ledger:
            for one in (job, *ledger.ranges(job.job_id)) if waited else ():
                ledger.update_job(one.job_id, created_at=LONG_AGO, heartbeat_at="")
        return submission if waited else Interrupted()

    monkeypatch.setattr(launchers, "_start", submit_and_lose)
    submitting.write(**{name: f"# Gate {name}\n\nGate {name} opens.\n" for name in NAMES})
    lost = CliRunner().invoke(main, ["ingest", str(submitting.docs), "--json"])
    assert lost.exit_code == 1
    assert ("3 of 3 ranges did not end well" if waited else "goes on") in lost.output

    launch_by(submitting.store, HERE)
    monkeypatch.setattr(launchers, "_start", submit_here)
    job_id = json.loads(lost.output)["error"]["details"]["job_id"]
    retried = CliRunner().invoke(main, ["jobs", "retry", job_id])
    assert retried.exit_code == 0, retried.output
    assert [run_job(f"{job_id}.{number}") for number in (1, 2, 3)] == [1, 1, 1]
    with submitting.ledger() as ledger, dg.DagsterInstance.get() as opened:
        state = "failed" if waited else "cancelled"
        assert [one.state for one in ledger.ranges(job_id)] == [state] * 3
        assert [one.parent for one in ledger.releases("default")] == [None]
        assert not opened.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTING]))


class Interrupted:
    """A submission, and who waits for it presses Ctrl-C."""

    def poll(self) -> int:
        raise KeyboardInterrupt


def launch_by(store: Any, launcher: tuple[str, str]) -> None:
    """Have Dagster hand each run to a launcher (module, class) at once, without its queue."""
    path = prepare(store) / "dagster.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    config.pop("concurrency", None)
    for section, (module, name) in (
        ("run_coordinator", ("dagster._core.run_coordinator", "DefaultRunCoordinator")),
        ("run_launcher", launcher),
    ):
        config[section] = {"module": module, "class": name}
    path.write_text(yaml.safe_dump(config), encoding="utf-8")


def submit_here(module: str, job: Job, *_: Any) -> Any:
    """The submission of a job in this process; what a child process returns at its end."""
    assert module == "rag_platform.assets.submission"
    submit_job(job.job_id)

    class Ended:
        returncode = 0

        def poll(self) -> int:
            return 0

    return Ended()


def next_runs(instance: dg.DagsterInstance) -> list[str]:
    """The jobs whose runs Dagster's daemon would start now."""
    daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)
    runs = daemon._get_runs_to_dequeue(instance, instance.get_concurrency_config(), None)
    return sorted(run.tags[jobs.JOB_TAG] for run in runs)


@pytest.mark.integration
def test_dagster_starts_one_writer_and_two_ranges_of_a_namespace(
    submitting: Any, instance: dg.DagsterInstance
) -> None:
    with submitting.ledger() as ledger:
        ranged, _ = cut(ledger)
        first, second = add_job(ledger, 1, "yard"), add_job(ledger, 1, "yard")
        for job in (ranged, first, second):
            submit_job(job.job_id)
        queued = ledger.job(first.job_id)
        assert queued.state == "queued" and queued.process["run_id"]
        assert next_runs(instance) == sorted(
            [f"{ranged.job_id}.1", f"{ranged.job_id}.2", first.job_id]
        )
        # a job that has ended leaves the queue
        jobs.cancel(first.job_id, ledger)
        end_orphans(instance, ledger, JobPolicy())
        assert second.job_id in next_runs(instance)
        # and one whose run somebody ended in the web page has failed
        instance.report_run_canceled(
            instance.get_runs(dg.RunsFilter(tags={jobs.JOB_TAG: second.job_id}))[0]
        )
        end_orphans(instance, ledger, JobPolicy())
        assert "did not begin the job's work" in ledger.job(second.job_id).reason
        statuses = {
            run.tags[jobs.JOB_TAG]: run.status.value
            for run in instance.get_runs(dg.RunsFilter(job_name=WORK_JOB))
        }
        assert statuses[first.job_id] == "CANCELED"
        assert statuses[f"{ranged.job_id}.3"] == "QUEUED"


def test_another_dagster_is_refused(
    submitting: Any, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dagster_private, "ABSENT", "Dagster 2.0.0 is installed")
    with submitting.ledger() as ledger:
        job = add_job(ledger, 1)
        with pytest.raises(ConfigError, match=r"Dagster 2\.0\.0"):
            submit_job(job.job_id)


def test_the_launcher_of_the_shipped_settings_is_a_child(home: Path) -> None:
    assert JobPolicy().launcher == "child"
    assert "tag_concurrency_limits" not in prepare_text(home)


def prepare_text(home: Path) -> str:
    """The dagster.yaml that is written into a data root."""
    from rag_platform.storage.store import Store

    return (prepare(Store(home)) / "dagster.yaml").read_text(encoding="utf-8")
