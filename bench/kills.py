"""Kills processes with SIGKILL at random moments of their work; nothing may stay "running", and the
next request must publish.

    python bench/kills.py [--kind cli ui daemon] [--count 20] [--documents 30] [--seed 1]

`cli` kills the process of a job that `rag ingest` launched. `ui` kills the process of a run that
the web page launches, a backfill's in one of four trials, or of the release that follows. `daemon`
kills everything that `make ui` starts, and starts it again. After each kill work is asked for
again, under another config where the web page asks, and must be published; then no job is open in
the ledger, no run or backfill under way in Dagster, and CURRENT holds every document's newest words
under the config as it is. Prints where each process was when it was killed. Exit code 1 when one
trial failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"

import dagster as dg
from dagster._core.execution.backfill import (
    BULK_ACTION_TERMINAL_STATUSES,
    BulkActionsFilter,
    BulkActionStatus,
    PartitionBackfill,
)

from rag_platform.assets.partitions import RANGE_END, RANGE_START, document_versions
from rag_platform.config.folders import SHIPPED
from rag_platform.config.profiles import INGESTION_STAGES, stage_profiles
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.ledger.ledger import open_ledger
from rag_platform.processes import jobs
from rag_platform.processes.launchers import seconds_between
from rag_platform.releases import release_store as releases
from rag_platform.storage.store import Store

STRATEGY = """\
description: no model, so that the moments between the stages weigh
loading: {loaders: [{provider: markdown}]}
sectioner:
  provider: markdown_headings
  options: {max_section_level: 2, include_heading: true, doc_preamble_mode: separate, \
min_section_chars: 0}
chunker: {provider: recursive, options: {chunk_size: SIZE, chunk_overlap: 0}}
embedding: {provider: hashing}
encoding: hybrid
fusion: {provider: min_max, options: {alpha: 0.3}}
"""
BACKFILL = """
mutation Launch($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }
"""
ONE_RUN = """
mutation Launch($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } ... on \
InvalidSubsetError { message } } }
"""
CONFIG = SHIPPED
OPEN_RUNS = ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")
PATIENCE = 240.0


class Place:
    """A data root with documents whose words change from round to round, and what works on it."""

    def __init__(self, folder: Path, documents: int) -> None:
        self.folder, self.documents, self.round = folder, documents, 0
        self.docs = folder / "docs"
        self.docs.mkdir(parents=True)
        shutil.copytree(CONFIG, folder / "config")
        settings = folder / "config" / "settings.yaml"
        settings.write_text(
            settings.read_text(encoding="utf-8").replace(
                "default_strategy: default", "default_strategy: killed"
            ),
            encoding="utf-8",
        )
        os.environ |= {
            "RAG_HOME": str(folder / "home"),
            "RAG_CONFIG": str(folder / "config"),
            "DAGSTER_HOME": str(folder / "home" / "dagster"),
        }
        self.change_config()
        self.store, self.settings = Store(load_settings().home), load_settings()

    def change_config(self) -> None:
        """Another size of chunks: every output from the chunks on is stale."""
        self.round += 1
        text = STRATEGY.replace("SIZE", str(400 + self.round))
        (self.folder / "config" / "strategies" / "killed.yaml").write_text(text, encoding="utf-8")

    def write(self) -> None:
        """Other words in every document."""
        for number in range(self.documents):
            text = (
                f"# Page {number}\n\nRound {self.round} of page {number}. "
                + f"Line {number} of the list.\n" * 40
            )
            (self.docs / f"page{number}.md").write_text(text, encoding="utf-8")

    def ingest(self) -> subprocess.Popen[str]:
        """`rag ingest` under way."""
        command = [
            sys.executable,
            "-m",
            "rag_platform.cli.main",
            "ingest",
            str(self.docs),
            "--wait",
            "60",
            "--json",
        ]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def problems(self) -> list[str]:
        """What is not as it should be when all work is done."""
        found: list[str] = []
        with closing(open_ledger(self.store)) as ledger:
            found += [
                f"job {job.job_id} ({job.kind}) is {job.state}"
                for state in jobs.OPEN_STATES
                for job in ledger.jobs(state=state)
            ]
            live = {version.version_id: version for _, version in ledger.live("default")}
        with dg.DagsterInstance.get() as instance:
            statuses = [dg.DagsterRunStatus(status) for status in OPEN_RUNS]
            found += [
                f"run {run.run_id} ({run.job_name}) is {run.status.value}"
                for run in instance.get_runs(dg.RunsFilter(statuses=statuses))
            ]
            found += [
                f"backfill {backfill.backfill_id} is {backfill.status.value}"
                for backfill in open_backfills(instance)
            ]
        current = releases.current(self.store, "default")
        if current is None:
            return [*found, "nothing is published"]
        manifest = releases.manifest_of(self.store, "default", current)
        if set(manifest.versions) != set(live) or len(live) != self.documents:
            found.append(
                f"release {current} holds {len(manifest.versions)} versions, {len(live)} are live,"
                f" {self.documents} were written"
            )
        if (
            manifest.profiles["embeddings"]
            != stage_profiles(load_strategy(self.settings, "killed"))["embeddings"]
        ):
            found.append(f"release {current} holds what an earlier config made")
        for version in live.values():
            if (
                self.store.raw_path(version.file_sha256).read_bytes()
                != (self.docs / version.filename).read_bytes()
            ):
                found.append(f"{version.filename} is live with earlier words")
        return found


# --- the command line ---------------------------------------------------------------------------


def cli(place: Place, chance: random.Random, took: float) -> str:
    """One trial: the process of a job is killed, and the same ingest is asked for again."""
    place.round += 1
    place.write()
    started = place.ingest()
    until = time.monotonic() + PATIENCE
    with closing(open_ledger(place.store)) as ledger:
        while not (
            found := [
                job
                for state in ("queued", "running")
                for job in ledger.jobs("default", state=state)
                if job.pid
            ]
        ):
            assert time.monotonic() < until and started.poll() is None, "no job was launched"
            time.sleep(0.01)
        job = found[0]
        time.sleep(chance.uniform(0, took))
        place_of_death = (
            ledger.job(job.job_id).progress.get("stage") or ledger.job(job.job_id).state
        )
        kill(job.pid)
    started.communicate(timeout=PATIENCE)
    again = place.ingest()
    said, _ = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, said
    assert not (found_wrong := place.problems()), found_wrong
    return place_of_death


def undisturbed(place: Place) -> float:
    """Seconds from the launch of an ingest's process to the end of its job."""
    place.write()
    ended = place.ingest()
    said, _ = ended.communicate(timeout=PATIENCE)
    assert ended.returncode == 0, said
    with closing(open_ledger(place.store)) as ledger:
        job = ledger.jobs("default")[0]
        return seconds_between(job.created_at, job.ended_at)


# --- the web page and the daemon ----------------------------------------------------------------


class Site:
    """What `make ui` starts, over a place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()
        self.run_seconds, self.request_seconds = self.undisturbed()

    def start(self) -> None:
        """Everything, until the web page answers."""
        command = [
            sys.executable,
            "-m",
            "rag_platform.assets.instance",
            "dev",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        with open(self.place.folder / "dagster.log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, cwd=self.place.folder
            )
        awaited(lambda: self.answers(), "the web page to answer")
        # the door's own session, and that of Dagster's command with all that it starts
        self.sessions = {
            self.process.pid,
            *(pid for pid in processes() if parent(pid) == self.process.pid),
        }

    def answers(self) -> bool:
        """True when the web page knows the code."""
        try:
            found = self.ask(
                "{ repositoriesOrError { ... on RepositoryConnection { nodes { name location { name"
                " } } } } }",
                {},
            )
        except OSError:
            return False
        for node in found["repositoriesOrError"].get("nodes", ()):
            self.code = {
                "repositoryName": node["name"],
                "repositoryLocationName": node["location"]["name"],
            }
            return True
        return False

    def ask(self, query: str, variables: Any) -> Any:
        """The data of a GraphQL query."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["data"]

    def request(self, backfill: bool) -> None:
        """Every stage of every live version again, launched as the page does it: a backfill, or the
        range passed to a single run.
        """
        assets = [{"path": [stage]} for stage in INGESTION_STAGES]
        with dg.DagsterInstance.get() as instance:
            names = list(instance.get_dynamic_partitions(document_versions.name or ""))
        if backfill:
            params: Any = {
                "assetSelection": assets,
                "partitionNames": names,
                "fromFailure": False,
                "tags": [],
            }
            told = self.ask(BACKFILL, {"params": params})["launchPartitionBackfill"]
        else:
            range_tags = [
                {"key": RANGE_START, "value": names[0]},
                {"key": RANGE_END, "value": names[-1]},
            ]
            selector = {
                **self.code,
                "jobName": "__ASSET_JOB",
                "assetSelection": assets,
                "assetCheckSelection": [],
            }
            params = {
                "selector": selector,
                "mode": "default",
                "runConfigData": "{}",
                "executionMetadata": {"tags": range_tags},
            }
            told = self.ask(ONE_RUN, {"params": params})["launchPipelineExecution"]
        assert told["__typename"].endswith("Success"), told

    def undisturbed(self) -> tuple[float, float]:
        """Seconds that the process of a run lives, and that a request takes to its release."""
        self.place.change_config()
        asked = time.monotonic()
        self.request(backfill=False)
        awaited(lambda: bool(self.workers()), "a run's process")
        began, first = time.monotonic(), self.workers()
        awaited(lambda: not first & self.workers(), "the end of a run's process")
        lived = time.monotonic() - began
        awaited(lambda: not self.place.problems(), "a release", self.place.problems)
        return lived, time.monotonic() - asked

    def workers(self) -> set[int]:
        """The process of each run that is under way."""
        return {pid for pid, told in self.tree() if "spawn_main" in told}

    def tree(self) -> list[tuple[int, str]]:
        """(pid, command) of every process of this site."""
        return [(pid, command(pid)) for pid in processes() if session(pid) in self.sessions]

    def end(self) -> None:
        """Kill all of it, as a machine that goes down."""
        while left := [pid for pid, told in self.tree() if told]:
            for pid in left:
                kill(pid)
            self.process.poll()
            time.sleep(0.05)
        self.process.wait()


def ui(site: Site, chance: random.Random) -> str:
    """One trial: the process of the requested run is killed, or of the release that follows."""
    request(site, chance)
    spared: set[int] = set()  # the runs' processes, where the release's is the one to die
    if chance.random() < 0.5:
        awaited(lambda: bool(site.workers()), "a run's process")
        spared = site.workers()
    while True:
        awaited(
            lambda: bool(site.workers() - spared) or not site.place.problems(),
            "a run's process or its release",
            site.place.problems,
        )
        time.sleep(chance.uniform(0, site.run_seconds))
        where, killed = _where(site), site.workers() - spared
        for pid in killed:
            kill(pid)
        if killed:
            break
        if not site.place.problems():  # published before
            request(site, chance)
    _published_at_last(site)
    return where


def daemon(site: Site, chance: random.Random) -> str:
    """One trial: everything is killed and started again."""
    backfill = request(site, chance)
    time.sleep(chance.uniform(0, (2 if backfill else 1) * site.request_seconds))
    where = _where(site)
    site.end()
    site.start()
    _published_at_last(site)
    return where


def request(site: Site, chance: random.Random) -> bool:
    """Ask for everything again under another config, by a backfill in one of four trials: the
    daemon looks at those every 30 s only.
    """
    site.place.change_config()
    backfill = chance.random() < 0.25
    site.request(backfill)
    return backfill


def _published_at_last(site: Site) -> None:
    """Nothing runs any more by itself, and the next request is published."""
    awaited(
        lambda: (
            not [
                told
                for told in site.place.problems()
                if " is " in told and told.startswith(("run", "job", "backfill"))
            ]
        ),
        "what was killed to be told",
        site.place.problems,
    )
    site.place.change_config()
    site.request(backfill=False)
    awaited(
        lambda: not site.place.problems(), "the next request to be published", site.place.problems
    )


def _where(site: Site) -> str:
    with dg.DagsterInstance.get() as instance:
        open_runs = instance.get_runs(
            dg.RunsFilter(statuses=[dg.DagsterRunStatus(status) for status in OPEN_RUNS])
        )
        asked = ["backfill"] if open_backfills(instance) else []
    return (
        ", ".join([*asked, *(f"{run.job_name} {run.status.value.lower()}" for run in open_runs)])
        or "between runs"
    )


def open_backfills(instance: dg.DagsterInstance) -> Sequence[PartitionBackfill]:
    """The backfills that have not ended."""
    statuses = [
        status for status in BulkActionStatus if status not in BULK_ACTION_TERMINAL_STATUSES
    ]
    return instance.get_backfills(filters=BulkActionsFilter(statuses=statuses))


# --- processes ----------------------------------------------------------------------------------


def awaited(condition: Callable[[], bool], what: str, tell: Callable[[], Any] = str) -> None:
    """Wait until something is so."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"waited {PATIENCE:.0f} s for {what}: {tell()}"
        time.sleep(0.4)


def processes() -> list[int]:
    """The id of every process."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def parent(pid: int) -> int:
    """The parent of a process, -1 when it is gone."""
    try:
        return int(
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[1]
        )
    except OSError:
        return -1


def kill(pid: int) -> None:
    """SIGKILL, also to who is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def session(pid: int) -> int:
    """The session of a process, -1 when it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def command(pid: int) -> str:
    """The command line of a process, empty when it is gone."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
        )
    except OSError:
        return ""


@contextmanager
def placed(documents: int) -> Iterator[Place]:
    """A place in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        yield Place(Path(folder), documents)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kind", nargs="*", default=["cli", "ui", "daemon"], choices=["cli", "ui", "daemon"]
    )
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--documents", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = 0
    for kind in given.kind:
        chance, where, began = (
            random.Random(f"{given.seed} {kind}"),
            Counter[str](),
            time.monotonic(),
        )
        with placed(given.documents) as place:
            took = undisturbed(place)
            site = None if kind == "cli" else Site(place)
            try:
                for number in range(given.count):
                    trial_began = time.monotonic()
                    try:
                        killed_in = (
                            cli(place, chance, took)
                            if site is None
                            else (ui if kind == "ui" else daemon)(site, chance)
                        )
                        where[killed_in] += 1
                        print(
                            f"{kind} {number}: killed in {killed_in};"
                            f" {time.monotonic() - trial_began:.0f} s",
                            flush=True,
                        )
                    except Exception as error:
                        failed += 1
                        print(f"{kind} {number}: FAILED: {error}", flush=True)
                        traceback.print_exc()
            finally:
                if site is not None:
                    site.end()
        told = (
            f"{kind}: {given.count} kills, {failed} failures so far,"
            f" {time.monotonic() - began:.0f} s"
        )
        print(f"{told}; killed in {dict(where.most_common())}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
