"""The door to Dagster's own commands: what it starts ends with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import pytest

from rag_platform.assets import instance
from rag_platform.storage.store import Store
from rag_platform_tests.chat_server import Reply, chat_server
from rag_platform_tests.conftest import wait_until

# starts a child that ignores what interrupts its parent, as a server of a server does
PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGINT, \
signal.SIG_IGN); time.sleep(600)"])
try:
    print("up", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
SUPERVISOR = f"""
import sys
from rag_platform.assets.instance import run_supervised
sys.exit(run_supervised([sys.executable, "-c", {PARENT!r}], seconds=20))
"""


def left(session: int) -> list[int]:
    """Processes of a session that are not dead."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


def children(pid: int) -> list[int]:
    """The two children of a process, first started first; the second may come a moment after the
    first one's word.
    """
    until = time.monotonic() + 60
    while (
        len(found := Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split())
        < 2
    ):
        assert time.monotonic() < until, found
        time.sleep(0.01)
    return [int(child) for child in found]


def gone(session: int) -> None:
    """Wait until nothing of a session is left."""
    until = time.monotonic() + 60
    while left(session):
        assert time.monotonic() < until, left(session)
        time.sleep(0.05)


@pytest.mark.integration
@pytest.mark.skipif(
    not Path("/proc/self/stat").is_file(), reason="the processes of a session are found in /proc"
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_the_door(number: signal.Signals) -> None:
    """Also where a script leaves it in the background, which interrupts do not reach."""

    def ignore_interrupts() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR],
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=ignore_interrupts if number == signal.SIGTERM else None,
    ) as door:
        assert door.stdout is not None and door.stdout.readline() == b"up\n"
        started, keeper = children(door.pid)
        assert len(left(started)) == 2
        os.kill(door.pid, number)
        assert door.wait(120) == 128 + signal.SIGTERM
        assert door.stdout.read() == b"interrupted\n"
    gone(started)
    gone(keeper)


@pytest.mark.integration
@pytest.mark.skipif(
    not Path("/proc/self/stat").is_file(), reason="the processes of a session are found in /proc"
)
def test_no_process_outlives_a_door_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR], stdout=subprocess.PIPE, start_new_session=True
    ) as door:
        assert door.stdout is not None and door.stdout.readline() == b"up\n"
        started, keeper = children(door.pid)
        assert len(left(started)) == 2
        os.kill(door.pid, signal.SIGKILL)
    gone(started)
    gone(keeper)


def test_a_file_of_the_current_folder_stands_for_no_module_or_variable(desk: Any) -> None:
    """Neither for Dagster, which reads a `.env`, nor for the process of a job."""
    (desk.folder / ".env").write_text("RAG_STRATEGY=of-another-program\n")
    (desk.folder / "json.py").write_text("raise SystemExit('a script of the user')")
    desk.write(ports="# Ports\n\nThe gateway listens on port 8080.\n")
    for module, *words in (
        ("rag_platform.assets.instance", "definitions", "validate"),
        ("rag_platform.cli.main", "ingest", desk.docs),
    ):
        command = [sys.executable, "-P", "-m", module, *map(str, words)]
        ended = subprocess.run(
            command, cwd=desk.folder, capture_output=True, text=True, check=False
        )
        assert (ended.returncode, "of the user" in ended.stderr) == (0, False), ended.stderr


def test_dagster_is_run_over_a_data_root_once(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "_DEV_LOCK_SECONDS", 0.1)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # which the command sets, for this test alone
    monkeypatch.setattr(sys, "argv", ["instance", "dev", "--help"])
    held = (
        "import sys; from pathlib import Path; from rag_platform.assets.instance import _only_one\n"
    )
    held += "with _only_one(Path(sys.argv[1])):\n    print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", held, os.environ["DAGSTER_HOME"]]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as first:
        assert first.stdout is not None and first.stdout.readline() == b"\n"
        with pytest.raises(SystemExit) as refused:
            instance.main()
        said = str(refused.value)
        assert said.startswith(
            f"Dagster's daemon is run over {os.environ['DAGSTER_HOME']} by `dagster dev` (process"
            f" {first.pid}, for "
        )
        assert said.endswith(" s); try again when it has ended")
        first.communicate()


@pytest.mark.parametrize("how", ["moved", "copied"])
def test_a_data_root_in_another_place_keeps_its_own_storages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Else a deletion there would erase the words of the old place, and prove that."""
    monkeypatch.setenv("RAG_HOME", str(tmp_path))
    first, second = Store(tmp_path / "first"), Store(tmp_path / "second")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    instance.prepare(first)
    with dg.DagsterInstance.get() as opened:
        opened.add_dynamic_partitions("versions", ["one"])
    before = (first.dagster_dir / "dagster.yaml").read_text(encoding="utf-8")
    if how == "moved":
        first.home.rename(second.home)
    else:
        shutil.copytree(first.home, second.home)
    monkeypatch.delenv("DAGSTER_HOME")
    instance.prepare(second)
    with dg.DagsterInstance.get() as opened:
        assert opened.get_dynamic_partitions("versions") == ["one"]
        opened.add_dynamic_partitions("versions", ["two"])
    after = (second.dagster_dir / "dagster.yaml").read_text(encoding="utf-8")
    assert after == before.replace(str(first.home), str(second.home))
    assert first.home.exists() == (how == "copied")
    if how == "copied":
        monkeypatch.delenv("DAGSTER_HOME")
        instance.prepare(first)
        with dg.DagsterInstance.get() as opened:
            assert opened.get_dynamic_partitions("versions") == ["one"]


def test_storages_of_somebodys_choice_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_HOME", str(tmp_path))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    store = Store(tmp_path / "home")
    path = instance.prepare(store) / "dagster.yaml"
    written = path.read_text(encoding="utf-8")
    for chosen in (
        written.replace(str(store.dagster_dir), str(tmp_path / "events")),  # none lie beside it
        written.partition("\n")[2],
        written.partition("\n")[0] + "\nstorage: {sqlite: {base_dir: x}}\n",
    ):
        path.write_text(chosen, encoding="utf-8")
        instance.prepare(store)
        assert path.read_text(encoding="utf-8") == chosen


def test_a_dagster_home_in_use_keeps_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no dagster.yaml yet; a server that was started before that reads the same storages."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with dg.DagsterInstance.get() as server:
        first = server.create_run_for_job(dg.JobDefinition(graph_def=dg.GraphDefinition("first")))
        instance.prepare(Store(tmp_path / "home"))
        with dg.DagsterInstance.get() as ours:
            second = ours.create_run_for_job(
                dg.JobDefinition(graph_def=dg.GraphDefinition("second"))
            )
            ours.report_run_canceled(second)
            assert [run.run_id for run in ours.get_runs()] == [second.run_id, first.run_id]
        assert [event.message for event in server.all_logs(second.run_id)] == [
            "This run has been marked as canceled from outside the execution context."
        ]


def test_a_code_server_that_was_lost_is_replaced() -> None:
    """As Dagster's web server tells it of one that was killed beside one that works."""

    def tell(body: dict[str, Any], number: int) -> Reply:
        kinds = {"lost": "PythonError", "works": "RepositoryLocation"}
        entries = [
            {"name": name, "locationOrLoadError": {"__typename": kind}}
            for name, kind in kinds.items()
        ]
        # at first it stops within its reply
        cut = {} if number else {"cut": "9"}
        return 200, {"data": {"workspaceOrError": {"locationEntries": entries}}}, cut

    with chat_server(tell) as server:
        port = urlsplit(server.url).port
        ended = threading.Event()
        keeper = threading.Thread(target=instance.keep_code_loaded, args=(port, ended, 0.05))
        keeper.start()
        wait_until(lambda: len(server.requests) >= 4)
        ended.set()
        keeper.join()
    reloads = [body for body in server.requests if "mutation" in body["query"]]
    assert reloads[0]["variables"] == {"name": "lost"}
    assert {body["variables"]["name"] for body in reloads} == {"lost"}
