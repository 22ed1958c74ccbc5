"""Jobs as anybody finds them again: states, reasons, progress, the ends that nobody reported, and
ends that somebody asked for.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from rag_platform.assets.launch import run_job
from rag_platform.errors import NotFoundError, RagError, StorageError, disk_full
from rag_platform.ledger.schema import Job, JobItem
from rag_platform.processes import jobs, launchers
from rag_platform.processes.jobs import JOB_TAG, Started
from rag_platform_tests.at_work import SLEEP, working

GATE = "# Gate\n\nThe gate opens at 05:30.\n"
DOCK = "# Dock\n\nThe dock holds 12 trucks.\n"
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def process(code: str, *args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *args])


# --- waiting, and jobs that nobody waits for ----------------------------------------------------


def test_a_job_that_ends_in_a_final_state_is_returned_as_it_is(store: Any, ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    ledger.update_job(job.job_id, state="partly", reason="1 documents failed")
    seen: list[Job] = []
    ended = jobs.wait(Started(job, process("pass")), ledger, store, seen.append)
    assert (ended.state, ended.reason) == ("partly", "1 documents failed") and seen


def test_a_job_that_another_one_carries_out_lives_in_its_process(ledger: Any) -> None:
    job = ledger.add_job("delete", "default", {})
    with process("import time; time.sleep(60)", "job_that_collects") as made:
        columns = launchers.of_process(made.pid)
        columns["process"]["within"] = "job_that_collects"
        ledger.update_job(job.job_id, state="running", **columns)
        assert jobs.end_orphans(ledger) == []
        made.kill()
    assert jobs.end_orphans(ledger) == [job.job_id]


def test_a_process_that_dies_leaves_its_last_words(store: Any, ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    path = launchers.log_path(store, job.job_id)
    path.parent.mkdir(parents=True)
    path.write_text("starting\nMemoryError: no memory left\n\n", encoding="utf-8")
    ended = jobs.wait(Started(job, process("raise SystemExit(7)")), ledger, store)
    assert ended.state == "failed" and ended.ended_at
    assert (
        "code 7" in ended.reason
        and "MemoryError: no memory left" in ended.reason
        and path.name in ended.reason
    )
    assert f"rag jobs retry {job.job_id}" in ended.reason


def test_a_killed_process_is_said_to_be_killed(store: Any, ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    path = launchers.log_path(store, job.job_id)
    path.parent.mkdir(parents=True)
    path.write_text("2026-11-24 dagster - DEBUG - STEP_OUTPUT - Yielded", encoding="utf-8")
    ended = jobs.wait(Started(job, process("import os; os.kill(os.getpid(), 9)")), ledger, store)
    assert ended.reason == (
        "the job's process was killed before it finished, by a person or because the machine ran"
        f" out of memory; its log is logs/jobs/{job.job_id}.log; `rag jobs retry {job.job_id}` does"
        " the rest"
    )


@pytest.mark.usefixtures("ledger_file")
def test_a_process_that_could_not_say_that_the_disk_is_full(store: Any, ledger: Any) -> None:
    """Its log lies on the full disk too: the exit status alone tells, and what the ledger cannot
    take is still returned.
    """
    job = ledger.add_job("ingest", "default", {})
    code = f"raise SystemExit({jobs.DISK_FULL_EXIT})"
    full(ledger)
    ended = jobs.wait(Started(job, process(code)), ledger, store)
    assert (
        ended.state == "failed"
        and "MB are free" in ended.reason
        and str(store.home) in ended.reason
    )
    assert ledger.job(job.job_id).state == "queued"


def full(ledger: Any) -> None:
    """Let this thread's connection find that its disk is full: no page can be added, and in those
    there are no row finds place to grow.
    """
    db = ledger._db()
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    for size in (500, 50, 1):
        with pytest.raises(sqlite3.OperationalError, match="full"):
            while True:
                ledger.add_job("filler", "elsewhere", {"text": "x" * size})


def test_running_jobs_of_dead_processes_are_ended(ledger: Any) -> None:
    gone = process("pass")
    gone.wait()
    zombie = process("pass")
    dead, undead, reused, mine, queued, done = (
        ledger.add_job("ingest", "default", {}).job_id for _ in range(6)
    )
    ledger.update_job(dead, state="running", pid=gone.pid)
    ledger.update_job(undead, state="running", pid=zombie.pid)
    ledger.update_job(mine, state="running", pid=os.getpid())
    ledger.update_job(done, state="done", pid=gone.pid)
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # ended, not waited for
    with working(SLEEP, "job_other") as (stranger, _):
        # the machine went down, and the number is another process now
        ledger.update_job(reused, state="running", pid=stranger.pid)
        assert sorted(jobs.end_orphans(ledger)) == sorted([dead, undead, reused])
        states = {job.job_id: job.state for job in ledger.jobs("default")}
        assert states == {
            dead: "failed",
            undead: "failed",
            reused: "failed",
            mine: "running",
            queued: "queued",
            done: "done",
        }
        assert (
            f"rag jobs retry {dead}" in ledger.job(dead).reason and jobs.end_orphans(ledger) == []
        )
        assert stranger.poll() is None
    zombie.wait()


def test_a_job_at_work_is_left_alone(ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    with working(SLEEP, job.job_id) as (process, _):
        ledger.update_job(job.job_id, state="running", pid=process.pid)
        assert jobs.end_orphans(ledger) == [] and ledger.job(job.job_id).state == "running"


def test_jobs_that_were_never_started_are_ended_after_a_minute(ledger: Any) -> None:
    young, old = (ledger.add_job("ingest", "default", {}).job_id for _ in range(2))
    ledger.update_job(old, created_at="2026-01-01T00:00:00Z")
    assert jobs.end_orphans(ledger) == [old]
    assert "never started" in ledger.job(old).reason and ledger.job(young).state == "queued"


def test_a_cancelled_job_whose_canceller_died_too_is_cancelled(ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {}, [JobItem("docs/a.md", "a", "default.a@1", "new")])
    ledger.update_job(job.job_id, state="cancelling", pid=2**22 - 1)
    assert jobs.end_orphans(ledger) == [job.job_id]
    assert ledger.job(job.job_id).state == "cancelled" and [
        item.state for item in ledger.job_items(job.job_id)
    ] == ["cancelled"]


@pytest.mark.parametrize("kind", ["sync", "evaluate"])
def test_what_no_retry_repeats_is_not_said_to_be_retried(ledger: Any, kind: str) -> None:
    for state in ("running", "cancelling"):
        job = ledger.add_job(kind, "", {"run_id": "r"})
        ledger.update_job(job.job_id, state=state, pid=2**22 - 1)
        assert jobs.end_orphans(ledger) == [job.job_id]
        reason = ledger.job(job.job_id).reason
        assert reason.endswith("; start it again where it was started") and "retry" not in reason


# --- cancelling ---------------------------------------------------------------------------------


def test_a_queued_job_is_cancelled_without_a_process_and_never_run(home: Path, ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {"version_ids": []})
    assert jobs.cancel(job.job_id, ledger).state == "cancelled"
    assert run_job(job.job_id) == 1  # its process comes up late
    assert ledger.job(job.job_id).state == "cancelled"
    with pytest.raises(NotFoundError, match="ended already") as raised:
        jobs.cancel(job.job_id, ledger)
    assert raised.value.code == "nothing_to_cancel"


def test_what_is_done_stays_done(ledger: Any) -> None:
    items = [
        JobItem(f"docs/{name}.md", name, f"default.{name}@1", "new") for name in ("a", "b", "c")
    ]
    job = ledger.add_job("ingest", "default", {}, items)
    ledger.update_job_item(job.job_id, "default.a@1", "done")
    ledger.update_job_item(job.job_id, "default.b@1", "failed", "encrypted", "needs a password")
    with working(SLEEP, job.job_id) as (process, _):
        ledger.update_job(job.job_id, state="running", pid=process.pid)
        ended = jobs.cancel(job.job_id, ledger)
        assert process.wait(180) == -signal.SIGTERM
    assert (
        ended.state == "cancelled"
        and f"rag jobs retry {job.job_id}" in ended.reason
        and ended.ended_at
    )
    assert [item.state for item in ledger.job_items(job.job_id)] == ["done", "failed", "cancelled"]


def test_a_process_that_does_not_listen_is_killed_with_its_children(ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    with working(STUBBORN, job.job_id) as (process, said):
        child = int(said)
        ledger.update_job(job.job_id, state="running", pid=process.pid)
        assert jobs.cancel(job.job_id, ledger, seconds=0.2).state == "cancelled"
        assert process.wait(180) == -signal.SIGKILL
        until = time.monotonic() + 180
        while (stat := Path(f"/proc/{child}/stat")).exists() and stat.read_text().rpartition(")")[
            2
        ].split()[0] != "Z":
            assert time.monotonic() < until
            time.sleep(0.01)


def test_a_stranger_with_the_number_of_a_job_is_not_killed(ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    with working(SLEEP, "job_other") as (stranger, _):
        ledger.update_job(job.job_id, state="cancelling", pid=stranger.pid)
        jobs.end_orphans(ledger)
        assert ledger.job(job.job_id).state == "cancelled" and stranger.poll() is None


def test_a_dagster_run_is_ended_in_dagster(ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {"run_id": "4711"})
    ledger.update_job(job.job_id, state="running", pid=os.getpid())
    with pytest.raises(RagError, match="Dagster run 4711"):
        jobs.cancel(job.job_id, ledger)
    assert (
        ledger.job(job.job_id).state == "running"
        and jobs.summary(ledger.job(job.job_id))["run_id"] == "4711"
    )


# --- progress -----------------------------------------------------------------------------------


def test_progress_is_written_some_times_a_second_and_at_the_end(ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    tell = jobs.Progress(ledger, job.job_id)
    for number in range(1, 1001):
        tell("documents", number, 1000, f"docs/{number}.md")
        if number == 500:
            assert ledger.job(job.job_id).progress["done"] < 500
    told = ledger.job(job.job_id).progress
    assert (told["stage"], told["done"], told["total"], told["message"]) == (
        "documents",
        1000,
        1000,
        "docs/1000.md",
    )
    assert told["since"] <= told["at"] and told["stages"] == {
        "documents": {key: told[key] for key in ("done", "total", "since", "at")}
    }


def stage(done: int, total: int, began: str = "12:00:00", at: str = "12:00:10") -> dict[str, Any]:
    return {
        "done": done,
        "total": total,
        "since": f"2026-11-21T{began}.000+00:00",
        "at": f"2026-11-21T{at}.000+00:00",
    }


def test_rate_and_time_left() -> None:
    """40 documents in 10 s are 4 a second, 20 left take 5 s; 100 texts in 5 s are 20 a second, 500
    of 600 are left: 25 s.
    """
    stages = {
        "documents": stage(40, 60),
        "embeddings": stage(100, 400, "12:00:05"),
        "release": stage(0, 1),
    }
    job = Job(
        "job_1",
        "ingest",
        "default",
        state="running",
        progress={**stage(100, 400, "12:00:05"), "stages": stages},
    )
    assert jobs.rate(stages["documents"]) == 4.0 and jobs.rate(stages["release"]) is None
    assert jobs.rate(job.progress) == 20.0 and jobs.seconds_left(job) == 25.0
    stages["documents"] = stage(1, 2000)
    assert jobs.seconds_left(job) is None  # not 5 and a half hours
    assert (
        jobs.rate({}) is None
        and jobs.seconds_left(
            Job("job_2", "ingest", "default", state="done", progress=job.progress)
        )
        is None
    )


def test_a_stage_that_begins_anew_has_a_new_clock(ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    tell = jobs.Progress(ledger, job.job_id)
    tell("documents", 3, 3)
    first = ledger.job(job.job_id).progress["since"]
    time.sleep(0.01)
    tell("documents", 1, 1)
    assert ledger.job(job.job_id).progress["since"] > first


def test_a_report_tells_all_but_paths(store: Any, ledger: Any) -> None:
    items = [
        JobItem("docs/a.md", "a", "default.a@1", "new", "done"),
        JobItem("docs/b.md", "b", "default.b@1", "new", "failed", "encrypted", "needs a password"),
        JobItem("docs/c.md", "c", "default.c@1", "dead", "dead", "broken_file", "no PDF"),
        JobItem("docs/d.md", "d", "default.d@1", "new"),
        JobItem("docs/e.png", "", "", "ignored", "skipped", "ignored", "no loader"),
    ]
    job = ledger.add_job(
        "ingest", "default", {"places": {"x": "/secret"}, "retry_of": "job_0"}, items
    )
    ledger.update_job(
        job.job_id,
        state="partly",
        started_at="2026-11-21T12:00:00Z",
        ended_at="2026-11-21T12:00:20Z",
        pid=4711,
        trace_id="trc_1",
        result={"documents": 1, "embeddings_computed": 2, "warnings": ["w"]},
        reason="2 documents failed",
        progress={"stage": "documents", **stage(2, 4), "stages": {"documents": stage(2, 4)}},
    )
    told = jobs.report(ledger.job(job.job_id), ledger.job_items(job.job_id), store)
    assert told["log"] == "" and "log none" in told["markdown"]
    log = launchers.log_path(store, job.job_id)
    log.parent.mkdir(parents=True)
    log.write_text("began", encoding="utf-8")
    told = jobs.report(ledger.job(job.job_id), ledger.job_items(job.job_id), store)
    assert (told["rate_per_s"], told["seconds_left"], told["seconds"], told["retry_of"]) == (
        0.2,
        None,
        20.0,
        "job_0",
    )
    assert (
        told["counts"] == {"done": 1, "failed": 2, "ignored": 1, "unprocessed": 1}
        and len(told["items"]) == 5
    )
    assert (
        told["log"] == f"logs/jobs/{job.job_id}.log"
        and "args" not in told
        and "/secret" not in str(told)
    )
    for part in (
        "partly",
        "a retry of job_0",
        "2 documents failed",
        "process 4711",
        "trc_1",
        "documents: 2 of 4, 12.0 a minute",
        "failed: docs/b.md: [encrypted] needs a password",
        "failed: docs/c.md",
        f"log {log}",
        "1 unprocessed",  # nothing waits in a job that has ended
        "Result: 1 document, 2 embeddings computed.",
    ):
        assert part in told["markdown"], part


# --- a full disk --------------------------------------------------------------------------------


def test_a_full_disk_is_known_through_any_library(tmp_path: Path) -> None:
    """/dev/full answers every write as a full disk does; SQLite says it in its own way, others
    quote the system.
    """
    with (
        pytest.raises(OSError, match="No space") as written,
        open("/dev/full", "wb", buffering=0) as device,
    ):
        device.write(b"x")
    db = sqlite3.connect(tmp_path / "small.sqlite")
    db.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as refused:
        for number in range(100):
            db.execute(f"CREATE TABLE t{number} (x)")
    db.close()
    wrapped = RuntimeError("the engine failed")
    wrapped.__cause__ = written.value
    for error in (
        written.value,
        refused.value,
        wrapped,
        ValueError("IO error: No space left on device (os error 28)"),
    ):
        found = disk_full(error, tmp_path)
        assert found is not None and found.code == "disk_full" and "MB are free" in found.message
    for other in (
        PermissionError(13, "denied"),
        ValueError("a full disc"),
        NotFoundError("no space left on device"),
    ):
        assert disk_full(other, tmp_path) is None
    kept = StorageError("x", code="disk_full")
    assert disk_full(kept, tmp_path) is kept


@pytest.mark.usefixtures("ledger_file")
def test_a_ledger_on_a_full_disk_works_again_when_there_is_room(ledger: Any) -> None:
    job = ledger.add_job("ingest", "default", {})
    full(ledger)
    ledger._db().execute("PRAGMA max_page_count = 1000000")
    assert ledger.update_job(job.job_id, state="done") and ledger.job(job.job_id).state == "done"


# --- jobs of the command line -------------------------------------------------------------------


@pytest.mark.integration
def test_a_job_tells_its_documents_and_its_figures(desk: Any) -> None:
    desk.write(gate=GATE)
    (desk.docs / "empty.md").write_bytes(b"")
    told = desk.call("ingest", desk.docs).data
    with desk.ledger() as ledger:
        (job,) = ledger.jobs("default")
        assert (job.job_id, job.kind, job.state) == (told["job_id"], "ingest", "partly")
        assert job.reason.startswith(
            "1 document failed, and trying again changes nothing: mend or replace the file"
        )
        assert (
            job.pid == os.getpid()
            and job.started_at <= job.ended_at
            and job.trace_id.startswith("trc_")
        )
        assert (job.result["documents"], job.result["chunks"]) == (1, 1)
        items = {
            item.source_uri: (item.decision, item.state, item.code)
            for item in ledger.job_items(job.job_id)
        }
        assert items == {
            "docs/gate.md": ("new", "done", ""),
            "docs/empty.md": ("new", "failed", "empty_file"),
        }
    shown = desk.call("jobs", "show", job.job_id).data
    assert (
        shown["counts"] == {"done": 1, "failed": 1}
        and shown["progress"]["stages"]["documents"]["done"] == 2
    )
    assert [
        row["job_id"] for row in desk.call("jobs", "list", "--state", "partly").data["jobs"]
    ] == [job.job_id]
    assert desk.call("jobs", "list", "--state", "running").data["jobs"] == []
    assert desk.call("jobs", "list", "--namespace", "other").error["code"] == "unknown_namespace"
    assert len(desk.call("jobs", "list", "--all").data["jobs"]) == 1


@pytest.mark.integration
def test_who_writes_a_namespace_is_told_before_anything_is_received(
    desk: Any, elsewhere: Any
) -> None:
    desk.write(gate=GATE)
    with elsewhere(desk.store.writer("default", "run 4711")):
        held = desk.call("ingest", desk.docs)
        assert (held.exit_code, held.error["code"]) == (
            1,
            "busy",
        ) and "being written by run 4711 (process" in held.error["message"]
        with desk.ledger() as ledger:
            assert ledger.jobs() == [] and ledger.documents("default") == []
        began = time.monotonic()
        assert (
            desk.call("ingest", desk.docs, "--wait", "0.4").error["code"] == "busy"
            and time.monotonic() - began >= 0.4
        )
        assert desk.call("rebuild").error["code"] == "unknown_namespace"
    assert desk.call("query", "gate").error["code"] == "no_release"
    again = desk.call("ingest", desk.docs)
    assert again.exit_code == 0 and again.data["embeddings_computed"] == 1
    with elsewhere(desk.store.writer("default", "run 4712")):
        assert desk.call("rebuild", "--full").error["code"] == "busy"
    assert (
        "05:30"
        in desk.call("query", "When does the gate open?", "--mode", "sparse").data[
            "answer_markdown"
        ]
    )


@pytest.mark.integration
def test_a_launched_job_that_finds_the_namespace_taken_can_be_tried_again(
    desk: Any, elsewhere: Any
) -> None:
    """Somebody was quicker between receiving and the job's start: the job says who, and its retry
    does the work.
    """
    desk.write(gate=GATE)
    desk.call("ingest", desk.docs)
    with desk.ledger() as ledger:
        job = ledger.add_job(
            "rebuild", "default", {"version_ids": [], "release": True, "full": True}
        )
        with elsewhere(desk.store.writer("default", "run 4711")):
            assert run_job(job.job_id) == 1
        assert (
            "run 4711" in ledger.job(job.job_id).reason
            and f"rag jobs retry {job.job_id}" in ledger.job(job.job_id).reason
        )
        retried = desk.call("jobs", "retry", job.job_id)
        assert (
            retried.exit_code == 0
            and ledger.job(retried.data["job_id"]).args["retry_of"] == job.job_id
        )


@pytest.mark.integration
def test_a_launched_job_waits_for_another_job_however_long_that_takes(
    desk: Any, elsewhere: Any
) -> None:
    """As of two deletions, one after the other: that of a large library takes minutes."""
    desk.write(gate=GATE)
    desk.call("ingest", desk.docs)
    args = {"version_ids": [], "release": True, "full": True}
    with desk.ledger() as ledger:
        first, second = (ledger.add_job("rebuild", "default", args) for _ in range(2))
        lock = desk.store.writer("default", f"rebuild {first.job_id}")
        with working(SLEEP, first.job_id) as (made, _), ThreadPoolExecutor() as pool:
            process = launchers.of_process(made.pid)
            ledger.update_job(first.job_id, state="running", **process)
            with elsewhere(lock):
                code = pool.submit(run_job, second.job_id)
                time.sleep(1.0)  # five times lock_seconds
                assert not code.done()
                progress = ledger.job(second.job_id).progress
                assert progress["stage"] == "waiting"
                assert f"by rebuild {first.job_id}" in progress["message"]
            assert code.result() == 0
        assert ledger.job(second.job_id).state == "done"


@pytest.mark.integration
def test_the_same_job_twice_does_nothing_twice(desk: Any) -> None:
    """A stage's output is found by (version, stage, profile): run again, every stage is reused and
    no text is embedded.
    """
    desk.write(gate=GATE, dock=DOCK)
    job_id = desk.call("ingest", desk.docs).data["job_id"]
    files = {path: path.stat().st_mtime_ns for path in desk.store.home.rglob("*.parquet")}
    with desk.ledger() as ledger:
        assert ledger.job(job_id).result["embeddings_computed"] == 2
        ledger.update_job(job_id, state="queued", started_at="", ended_at="")
        assert run_job(job_id) == 0
        again = ledger.job(job_id)
        assert again.state == "done" and again.result["documents"] == 2
        assert (again.result["embeddings_computed"], again.result["embeddings_reused"]) == (0, 2)
    with dg.DagsterInstance.get() as instance:  # without a place the timeline shows no run
        places = {run.tags.get("dagster/code_location") for run in instance.get_runs()}
    assert places == {"rag_platform.definitions"}
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert {p for p in desk.store.home.rglob("*.parquet") if "versions" in p.parts} == {
        p for p in files if "versions" in p.parts
    }


WAITING = """
import dataclasses
import time
from pathlib import Path
from typing import ClassVar

from rag_platform.providers.hashing import Hashing
from rag_platform.traits import Traits


class Waiting(Hashing):
    NAME: ClassVar[str] = "waiting"
    traits: ClassVar[Traits] = dataclasses.replace(Hashing.traits, bytes_per_second=10.0)  # so \
slow that child processes embed

    def embed(self, texts, *, query=False):
        until = time.monotonic() + 180
        while Path(__file__).with_name("wait").exists() and any("note" in text for text in texts) \
and time.monotonic() < until:
            time.sleep(0.05)
        return super().embed(texts, query=query)
"""


@pytest.fixture
def held(desk: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file during whose presence notes of the desk are not embedded."""
    (desk.folder / "waiting_embedder.py").write_text(WAITING, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(desk.folder), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(desk.folder))
    for path, old, new in (
        ("settings.yaml", "processes: 1", "processes: 2"),
        ("strategies/tiny.yaml", "hashing", "waiting_embedder:Waiting"),
    ):
        text = (desk.folder / "config" / path).read_text(encoding="utf-8")
        (desk.folder / "config" / path).write_text(text.replace(old, new), encoding="utf-8")
    return Path(desk.folder / "wait")


@pytest.mark.e2e
def test_a_running_ingest_is_cancelled_and_its_rest_done_by_a_retry(desk: Any, held: Path) -> None:
    """One document is done, the others wait for their embedder when the job is cancelled; the retry
    does those alone.
    """
    desk.write(gate=GATE)
    first = desk.call("ingest", desk.docs)
    desk.write(
        **{
            f"note{number}": f"# Note {number}\n\nThis note is number {number}.\n"
            for number in range(6)
        }
    )
    held.touch()
    started = desk.start("ingest", desk.docs)
    with desk.ledger() as ledger:
        until = time.monotonic() + 180
        while (
            not (found := ledger.jobs("default", state="running"))
            or found[0].progress.get("done") != 6
        ):
            assert time.monotonic() < until and started.poll() is None, found
            time.sleep(0.01)
        job_id = found[0].job_id
        cancelled = desk.call("jobs", "cancel", job_id)
        said, _ = started.communicate(timeout=180)
        assert cancelled.exit_code == 0 and cancelled.data["state"] == "cancelled"
        assert cancelled.data["counts"] == {"cancelled": 6, "skipped": 1}
        assert started.returncode == 1 and '"ingest_cancelled"' in said
        assert not launchers.alive(found[0].pid, job_id) and len(ledger.live("default")) == 1
        assert (
            desk.call("releases", "show").data["manifest"]["release_id"] == first.data["release_id"]
        )
        held.unlink()
        retried = desk.call("jobs", "retry", job_id)
        # the run itself said so, or the next job did in its stead
        with dg.DagsterInstance.get() as instance:
            assert [
                run.status.value for run in instance.get_runs(dg.RunsFilter(tags={JOB_TAG: job_id}))
            ] == ["CANCELED"]
        assert (
            retried.exit_code == 0
            and retried.data["continued"] == retried.data["embeddings_computed"] == 6
        )
        assert len(ledger.live("default")) == 7
    nothing = desk.call("jobs", "retry", job_id)
    assert (nothing.exit_code, nothing.error["code"]) == (1, "nothing_to_retry")
    assert desk.call("jobs", "cancel", job_id).error["code"] == "nothing_to_cancel"


@pytest.mark.e2e
def test_who_leaves_lets_the_job_go_on(desk: Any, held: Path) -> None:
    desk.write(note="# Note\n\nThis note waits for its reader to leave.\n")
    held.touch()
    started = desk.start("ingest", desk.docs)
    with desk.ledger() as ledger:
        until = time.monotonic() + 180
        while not ledger.jobs("default", state="running"):
            assert time.monotonic() < until and started.poll() is None
            time.sleep(0.01)
        started.send_signal(signal.SIGINT)
        said, _ = started.communicate(timeout=180)
        (job,) = ledger.jobs("default")
        assert (
            started.returncode == 1
            and '"interrupted"' in said
            and f"rag jobs cancel {job.job_id}" in said
        )
        held.unlink()
        while ledger.job(job.job_id).state == "running":
            assert time.monotonic() < until
            time.sleep(0.05)
        assert ledger.job(job.job_id).state == "done" and len(ledger.live("default")) == 1
