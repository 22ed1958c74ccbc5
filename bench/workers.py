"""One library, two Celery workers: an ingest that they share, and workers killed at random moments.

    python bench/workers.py [--documents 200] [--range-size 25] [--kills 10] [--seed 1] [--keep]

Starts PostgreSQL (ledger and Dagster's storage), Redis, Dagster's daemon and two Celery workers,
really, and says what it started; ends with code 2 and the reason where one of them is not to be
had. `redis-server` is looked for on PATH, or named by RAG_REDIS_SERVER. Then `rag ingest` runs with
`jobs.launcher: dagster`, and its release is compared with that of the same documents in a data root
of its own, ingested in one process: ids, texts, vectors, answers and proofs. After that, each trial
changes every document, kills one worker with SIGKILL at a random moment of the ingest, starts
another one, retries what failed, and compares again; no release may have two successors, and no job
may be called dead whose process lives. Exit code 1 when anything differs.
"""

from __future__ import annotations

import argparse
import importlib.util
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
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import yaml

from bench.small_library import NAMESPACE, Place, State, state_of, write_config
from rag_platform.config.settings import load_settings
from rag_platform.errors import RagError
from rag_platform.ledger.ledger import open_ledger
from rag_platform.ledger.schema import Job
from rag_platform.processes import jobs
from rag_platform.storage.store import Store
from rag_platform_tests.postgres_server import PostgresServer, why_none

PATIENCE = 240.0  # for one job
RETRIES = 5
CELERY = """\
broker_url = "{broker}"
result_backend = "{broker}"
worker_prefetch_multiplier = 1
task_acks_late = True
"""


class Missing(Exception):
    """A service that is not to be had here, and how to get it."""


# --- services -----------------------------------------------------------------------------------


@dataclass
class Services:
    """What was started, and the environment of whoever uses it."""

    folder: Path
    environment: dict[str, str]
    others: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)  # process ids

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """A program in a session of its own, its words in a log."""
        program = Path(command[0])
        if not program.is_file():
            raise Missing(f"{name}: there is no {program}")
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
        print(f"started {name}: process {process.pid}", flush=True)
        return process

    def check(self) -> None:
        """Raise RuntimeError with the last words of a service that has ended."""
        for name, process in {**self.others, **self.workers}.items():
            if process.poll() is not None:
                words = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"{name} has ended: {words[-1000:]}")

    def end(self) -> None:
        """End everything."""
        for process in [*self.workers.values(), *self.others.values()]:
            pids = children(process.pid) if process.poll() is None else set()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for pid in pids:  # the daemon's own session
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            process.wait()

    def start_worker(self, name: str) -> None:
        """A Celery worker for one run at a time."""
        self.workers[name] = self.start(
            name, sys.executable, "-m", "celery", "-A", "dagster_celery.app", "worker",
            "-Q", "dagster", "--concurrency", "1", "-n", f"{name}@%h", "--loglevel", "info",
        )  # fmt: skip

    def kill_worker(self, name: str) -> None:
        """SIGKILL for a worker and its child processes."""
        process = self.workers.pop(name)
        self.killed |= {process.pid, *children(process.pid)}
        os.killpg(process.pid, signal.SIGKILL)
        for pid in self.killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def children(pid: int) -> set[int]:
    """Process ids of the children of a process."""
    found = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found |= {int(child) for child in path.read_text(encoding="utf-8").split()}
    return found


def redis_server() -> str:
    """The path of redis-server. Raises Missing."""
    found = os.environ.get("RAG_REDIS_SERVER") or shutil.which("redis-server")
    if not found:
        raise Missing("no redis-server: apt-get install redis-server, or set RAG_REDIS_SERVER")
    return found


@contextmanager
def started(folder: Path, range_size: int) -> Iterator[Services]:
    """Every service, until the block ends. Raises Missing."""
    if reason := why_none():
        raise Missing(reason)
    for package in ("dagster_celery", "dagster_postgres", "redis"):
        if importlib.util.find_spec(package) is None:
            raise Missing(f"{package} is not installed: pip install 'rag-platform[celery]'")
    redis = redis_server()
    with ExitStack() as stack:
        postgres = PostgresServer()
        stack.callback(postgres.close)
        print(f"started PostgreSQL: process {postgres.process and postgres.process.pid}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        broker = f"redis://127.0.0.1:{port}/0"
        (folder / "python").mkdir()
        (folder / "python" / "dagster_celery_config.py").write_text(CELERY.format(broker=broker))
        write_config(folder / "config")
        home = folder / "home"
        environment = {
            **os.environ,
            "PYTHONPATH": f"{folder / 'python'}:{Path(__file__).resolve().parent.parent}",
            "RAG_HOME": str(home),
            "RAG_CONFIG": str(folder / "config"),
            "RAG_LEDGER": postgres.new_url(),
            "RAG_JOBS__LAUNCHER": "dagster",
            "RAG_JOBS__RANGE_SIZE": str(range_size),
            "RAG_JOBS__LOCK_SECONDS": "60",
            "DAGSTER_HOME": str(home / "dagster"),
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }
        services = Services(folder, environment)
        configure_dagster(services, postgres, broker)

        stack.callback(services.end)
        services.others["redis"] = services.start(
            "redis", redis, "--port", str(port), "--bind", "127.0.0.1", "--save", "",
            "--dir", str(folder),
        )  # fmt: skip
        services.others["daemon"] = services.start(
            "daemon", sys.executable, "-m", "rag_platform.assets.instance", "daemon"
        )
        for name in ("w1", "w2"):
            services.start_worker(name)
        yield services


def configure_dagster(services: Services, postgres: PostgresServer, broker: str) -> None:
    """The dagster.yaml that rag writes, with PostgreSQL as the storage and Celery as the run
    launcher.
    """
    prepare = "from rag_platform.assets.instance import prepare; from rag_platform.storage.store\
 import Store; from rag_platform.config.settings import load_settings; prepare(Store.of(\
load_settings()))"
    subprocess.run([sys.executable, "-c", prepare], env=services.environment, check=True)
    path = Path(services.environment["DAGSTER_HOME"]) / "dagster.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    for section in ("event_log_storage", "run_storage", "schedule_storage"):
        config.pop(section, None)
    url = postgres.new_url().replace("postgresql://", "postgresql+psycopg2://")
    config["storage"] = {"postgres": {"postgres_url": url}}
    config["run_launcher"] = {
        "module": "dagster_celery.launcher",
        "class": "CeleryRunLauncher",
        "config": {"broker": broker, "backend": broker},
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


# --- two data roots -----------------------------------------------------------------------------


class SharedPlace(Place):
    """The data root of the workers, whose ledger is a database."""

    @property
    def store(self) -> Store:
        """The data root."""
        return Store.of(load_settings())


def seen(place: Place, environment: dict[str, str]) -> State:
    """What readers see of a data root."""
    with environ(environment):
        return state_of(place)


@contextmanager
def environ(values: dict[str, str]) -> Iterator[None]:
    """The environment of a block."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def write_documents(folder: Path, count: int, round_: int) -> None:
    """Small documents, all with other words in each round."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        text = (
            f"# Page {number}\n\nRound {round_} of page {number}: the gateway of site {number}"
            f" listens on port {7000 + number + round_}.\n\n## Limits\n\n"
            + f"Line {number} of the list of round {round_}.\n"
            * 12
        )
        (folder / f"page{number:04d}.md").write_text(text, encoding="utf-8")


def ingest_alone(folder: Path, environment: dict[str, str]) -> State:
    """The release of the documents as they are, by one undisturbed process."""
    values = {key: value for key, value in environment.items() if not key.startswith("RAG_")}
    values |= {"RAG_HOME": str(folder / "alone"), "RAG_CONFIG": environment["RAG_CONFIG"]}
    with environ(values):
        place = Place(folder, folder / "alone")
        place.update(place.docs)
        return state_of(place)


def rag(services: Services, *arguments: str) -> subprocess.Popen[str]:
    """A command of the command line under way."""
    return subprocess.Popen(
        [sys.executable, "-m", "rag_platform.cli.main", *arguments, "--json"],
        env=services.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer_of(services: Services, process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a command printed: its data, or its error."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            out, err = process.communicate(timeout=5)
            break
        except subprocess.TimeoutExpired:
            services.check()
            if time.monotonic() > until:
                process.kill()
                raise RuntimeError(f"no end after {PATIENCE:.0f} s") from None
    try:
        envelope = json.loads(out)
    except ValueError:
        raise RuntimeError(f"no JSON: {out[-2000:]}{err[-2000:]}") from None
    error = envelope.get("error") or {}
    return {**(envelope.get("data") or {}), **error, **error.get("details", {})}


# --- what is shown ------------------------------------------------------------------------------


def share(services: Services, job: Job) -> Counter[str]:
    """Documents of a job that each worker processed."""
    with environ(services.environment), closing(open_ledger(Store.of(load_settings()))) as ledger:
        ranges = ledger.ranges(job.job_id)
    by_child = {
        child: name for name, worker in services.workers.items() for child in children(worker.pid)
    }
    found: Counter[str] = Counter()
    for one in ranges:
        found[by_child.get(one.pid, f"process {one.pid}")] += int(one.result["documents"])
    return found


def check_ledger(services: Services) -> list[str]:
    """What must never be in a ledger, and is."""
    with environ(services.environment), closing(open_ledger(Store.of(load_settings()))) as ledger:
        successors = Counter(
            release.parent for release in ledger.releases(NAMESPACE) if release.published_at
        )
        all_jobs = [
            one for job in ledger.jobs(limit=10_000) for one in (job, *ledger.ranges(job.job_id))
        ]
    wrong = [f"{parent} has {n} successors" for parent, n in successors.items() if n > 1]
    wrong += [
        f"{job.job_id} was called dead, and its process {job.pid} was not killed"
        for job in all_jobs
        if jobs.GONE in job.reason and job.pid and job.pid not in services.killed
    ]
    return wrong + [f"{job.job_id} is {job.state}" for job in all_jobs if not job.ended_at]


def ingest_shared(services: Services, folder: Path) -> tuple[float, Job]:
    """The seconds of an undisturbed ingest by the workers, and its job."""
    begun = time.monotonic()
    data = answer_of(services, rag(services, "ingest", str(folder / "docs")))
    seconds = time.monotonic() - begun
    with environ(services.environment), closing(open_ledger(Store.of(load_settings()))) as ledger:
        job = ledger.job(data["job_id"])
    if job.state != "done":
        raise RuntimeError(f"the ingest is {job.state}: {job.reason}")
    return seconds, job


def try_kill(services: Services, folder: Path, delay: float, name: str) -> str:
    """Kill a worker after some seconds of an ingest, and retry until it is done; says how it
    went.
    """
    command = rag(services, "ingest", str(folder / "docs"))
    time.sleep(delay)
    services.kill_worker(name)
    services.start_worker(name)
    data = answer_of(services, command)
    retries = 0
    while data.get("code") and retries < RETRIES:
        retries += 1
        data = answer_of(services, rag(services, "jobs", "retry", data["job_id"]))
    if data.get("code") not in (None, "nothing_to_retry"):
        raise RuntimeError(f"not done after {retries} retries: {data}")
    return f"killed {name} after {delay:.1f} s, {retries} retries"


def run(options: argparse.Namespace, folder: Path) -> int:
    """The number of checks that failed."""
    failed = 0
    rng = random.Random(options.seed)
    with started(folder, options.range_size) as services:
        shared = SharedPlace(folder, folder / "home")
        write_documents(folder / "docs", options.documents, 0)
        alone = ingest_alone(folder, services.environment)
        seconds, job = ingest_shared(services, folder)
        parts = share(services, job)
        total = sum(parts.values())
        print(f"{total} documents in {seconds:.0f} s: " + ", ".join(
            f"{name} {count} ({100 * count / total:.0f} %)" for name, count in sorted(parts.items())
        ))  # fmt: skip
        same = seen(shared, services.environment).content() == alone.content()
        print(f"release equal to that of one machine: {same} ({len(alone.chunks)} chunks)")
        failed += not same
        for number in range(1, options.kills + 1):
            write_documents(folder / "docs", options.documents, number)
            alone = ingest_alone(folder, services.environment)
            delay, name = rng.uniform(0.5, seconds), rng.choice(("w1", "w2"))
            try:
                how = try_kill(services, folder, delay, name)
                wrong = check_ledger(services)
                if seen(shared, services.environment).content() != alone.content():
                    wrong.append("the release differs from that of one machine")
            except (RuntimeError, AssertionError, RagError) as error:
                how, wrong = f"killed {name} after {delay:.1f} s", [str(error)]
            failed += bool(wrong)
            print(f"{number:3} {how}: {'; '.join(wrong) or 'the same library'}", flush=True)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--range-size", type=int, default=25)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the folder with its logs")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="rag-workers-"))
    print(f"in {folder}")
    try:
        failed = run(options, folder)
    except Missing as missing:
        print(f"not run: {missing}")
        return 2
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{failed} checks failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
