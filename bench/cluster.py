"""Two machines and two Celery workers: an ingest that the workers share, what the other machine
pulls of it, and workers and Redis killed at random moments.

    python bench/cluster.py [--documents 200] [--range-size 25] [--trials 10] [--kills 1]
        [--killed worker redis] [--seed 1] [--keep]

Starts PostgreSQL (ledger and Dagster's storage), an S3 server, Redis, Dagster's daemon and two
Celery workers, really, and says what it started; ends with code 2 and the reason where one of them
is not to be had. `redis-server` is looked for on PATH, or named by RAG_REDIS_SERVER. Then `rag
ingest` runs on machine A with `jobs.launcher: dagster`, and its release is compared with that of
the same documents in a data root of its own, ingested in one process: ids, texts, vectors, answers
and proofs. Machine B, a data root that shares the ledger and the bucket, pulls it: it must be that
of A file for file, `rag verify --all` must prove it there, and nothing of B may name a path of A.

After that, each trial changes every document, kills workers and Redis with SIGKILL at random
moments of the ingest and its retries, starts others, retries what failed, and compares again at A
and at B. Redis keeps nothing: a job that waited in it ends by itself some time later, and is
retried. Before a retry readers must see the release of before or the new one, whole; no release may
have two successors, and no job may be called dead whose process lives. Exit code 1 when anything
differs.
"""

from __future__ import annotations

import argparse
import importlib
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
import threading
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
from bench.two_machines import published
from rag_platform.config.settings import load_settings
from rag_platform.errors import RagError
from rag_platform.ledger.ledger import open_ledger, open_url
from rag_platform.ledger.schema import Job
from rag_platform.processes import jobs
from rag_platform.processes.launchers import seconds_between
from rag_platform.releases.transfer import pull
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot
from rag_platform_tests.postgres_server import PostgresServer, why_none
from rag_platform_tests.s3_server import S3Server
from rag_platform_tests.s3_server import why_none as s3_server_missing

PATIENCE = 900.0  # for one job
START_SECONDS = 40  # a job that Redis lost is over when nothing went on for so long
RETRIES = 10
KILLED = ("worker", "redis")
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
    redis: tuple[str, ...] = ()
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
        pids = children(process.pid)
        self.killed |= {process.pid, *pids}
        os.killpg(process.pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def start_redis(self) -> None:
        """Redis, which keeps nothing on disk."""
        self.others["redis"] = self.start("redis", *self.redis)

    def kill_redis(self) -> None:
        """SIGKILL for Redis, which comes back at its port with nothing."""
        process = self.others.pop("redis")
        process.kill()
        process.wait()
        self.start_redis()

    def runs_in_redis(self) -> int:
        """How many runs wait in Redis, or are carried out and still lie there."""
        redis = importlib.import_module("redis")
        with closing(redis.Redis(port=int(self.redis[self.redis.index("--port") + 1]))) as client:
            waiting = [key for key in client.scan_iter("dagster*") if client.type(key) == b"list"]
            return int(client.hlen("unacked") + sum(client.llen(key) for key in waiting))

    def kill(self, name: str) -> None:
        """Kill a service at once, and start it again."""
        if name == "redis":
            self.kill_redis()
        else:
            self.kill_worker(name)
            self.start_worker(name)


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
    if reason := why_none() or s3_server_missing():
        raise Missing(reason)
    for package in ("dagster_celery", "dagster_postgres", "redis"):
        if importlib.util.find_spec(package) is None:
            raise Missing(f"{package} is not installed: pip install 'rag-platform[celery]'")
    redis = redis_server()
    with ExitStack() as stack:
        postgres = PostgresServer()
        stack.callback(postgres.close)
        print(f"started PostgreSQL: process {postgres.process and postgres.process.pid}")
        bucket = S3Server.moto()
        stack.callback(bucket.kill)
        print(f"started the S3 server: process {bucket.process.pid}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        broker = f"redis://127.0.0.1:{port}/0"
        (folder / "python").mkdir()
        (folder / "python" / "dagster_celery_config.py").write_text(CELERY.format(broker=broker))
        write_config(folder / "config")
        home = folder / "home"
        environment = {
            **os.environ,
            **bucket.variables(),
            "PYTHONPATH": f"{folder / 'python'}:{Path(__file__).resolve().parent.parent}",
            "RAG_HOME": str(home),
            "RAG_CONFIG": str(folder / "config"),
            "RAG_LEDGER": postgres.new_url(),
            "RAG_JOBS__LAUNCHER": "dagster",
            "RAG_JOBS__RANGE_SIZE": str(range_size),
            "RAG_JOBS__LOCK_SECONDS": "60",
            "RAG_JOBS__START_SECONDS": str(START_SECONDS),
            "DAGSTER_HOME": str(home / "dagster"),
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }
        services = Services(folder, environment)
        configure_dagster(services, postgres, broker)

        stack.callback(services.end)
        services.redis = (
            redis, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder),
        )  # fmt: skip
        services.start_redis()
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


class Other:
    """Machine B: a data root of its own that shares the ledger and the bucket."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.home = folder / "other" / "home"
        away = ("RAG_JOBS__", "DAGSTER_HOME")
        self.environment = {k: v for k, v in environment.items() if not k.startswith(away)}
        self.environment["RAG_HOME"] = str(self.home)

    def pull(self) -> None:
        """Bring the published release here."""
        with environ(self.environment):
            root = DataRoot.open(load_settings())
            with closing(root.ledger):
                pull(NAMESPACE, root)

    def wrong(self, other: Path, paths: Sequence[Path]) -> list[str]:
        """What is not as it must be after the first pull of what another data root published."""
        found = []
        self.pull()
        if published(self.home) != published(other):
            found.append("the release of B is not that of A")
        proved = subprocess.run(
            [sys.executable, "-m", "rag_platform.cli.main", "verify", "--all", "--json"],
            env=self.environment, capture_output=True, text=True,
        )  # fmt: skip
        data = json.loads(proved.stdout).get("data") or {}
        print(f"B: {len(published(self.home))} files, {data.get('checked')} chunks proved there,"
              f" {data.get('failed')} failed")  # fmt: skip
        if proved.returncode or data.get("failed") or not data.get("checked"):
            found.append(f"verify ended with {proved.returncode}: {proved.stdout[-500:]}")
        for path in filter(Path.is_file, self.home.rglob("*")):
            content = path.read_bytes()
            found += [f"{path} names {one}" for one in paths if str(one).encode() in content]
        return found


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


def working_seconds(services: Services, job: Job) -> float:
    """How long a job's ranges and its release took, from the first range's start on."""
    with environ(services.environment), closing(open_ledger(Store.of(load_settings()))) as ledger:
        begun = min(one.started_at for one in ledger.ranges(job.job_id))
    return seconds_between(begun, job.ended_at)


def wait_for_range(services: Services) -> None:
    """Until a range runs. Raises RuntimeError when none does."""
    until = time.monotonic() + PATIENCE
    with environ(services.environment), closing(open_ledger(Store.of(load_settings()))) as ledger:
        while not any(one.kind == "range" and one.pid for one in ledger.open_jobs()):
            services.check()
            if time.monotonic() > until:
                raise RuntimeError("no range was begun")
            time.sleep(0.1)


@dataclass(frozen=True)
class Machines:
    """The services, machine A that asks for jobs, and machine B that pulls."""

    services: Services
    folder: Path
    shared: SharedPlace
    other: Other
    # kills while a job was under way; of a worker while it carried out a run, of Redis while a run
    # was in it
    hits: Counter[str] = field(default_factory=Counter)

    def trial(self, number: int, documents: int, kills: list[tuple[float, str]]) -> list[str]:
        """Kill services some seconds after the first range of an ingest began, and retry until it
        is done; what is wrong.
        """
        services, before = self.services, seen(self.shared, self.services.environment)
        write_documents(self.folder / "docs", documents, number)
        alone = ingest_alone(self.folder, services.environment)
        command = rag(services, "ingest", str(self.folder / "docs"))
        wait_for_range(services)
        over = threading.Event()
        killer = threading.Thread(target=self.kill, args=(kills, over))
        killer.start()
        wrong: list[str] = []
        retries = 0
        try:
            data = answer_of(services, command)
            while (code := data.get("code")) not in (None, "nothing_to_retry"):
                if seen(self.shared, services.environment).content() not in (
                    before.content(),
                    alone.content(),
                ):
                    wrong.append("readers see neither the old release nor the new one")
                retries += 1
                if retries > RETRIES:
                    raise RuntimeError(f"not done after {RETRIES} retries: {code} {data}")
                data = answer_of(services, rag(services, "jobs", "retry", data["job_id"]))
        finally:
            over.set()
            killer.join()
        wrong += check_ledger(services)
        if seen(self.shared, services.environment).content() != alone.content():
            wrong.append("the release differs from that of one machine")
        self.other.pull()
        if published(self.other.home) != published(self.shared.home):
            wrong.append("what B pulls differs from the release of A")
        print(f"    {retries} retries", flush=True)
        return wrong

    def kill(self, kills: list[tuple[float, str]], over: threading.Event) -> None:
        """Kill each service at its time, until the work is over."""
        begun = time.monotonic()
        for after, name in sorted(kills):
            if over.wait(max(0.0, begun + after - time.monotonic())):
                return
            kind = "redis" if name == "redis" else "worker"
            busy = self.services.runs_in_redis() if kind == "redis" else self.is_at_work(name)
            self.services.kill(name)
            self.hits[kind] += 1
            self.hits[f"{kind} at work"] += bool(busy)
            after = time.monotonic() - begun
            print(f"    killed {name} after {after:.1f} s, at work: {int(busy)}", flush=True)

    def is_at_work(self, name: str) -> bool:
        """True while a worker carries out a job."""
        pids = children(self.services.workers[name].pid)
        with closing(open_url(self.services.environment["RAG_LEDGER"])) as ledger:
            return any(job.pid in pids for job in ledger.open_jobs())


def run(options: argparse.Namespace, folder: Path) -> int:
    """The number of checks that failed."""
    failed = 0
    rng = random.Random(options.seed)
    with started(folder, options.range_size) as services:
        machines = Machines(
            services, folder, SharedPlace(folder, folder / "home"),
            Other(folder, services.environment),
        )  # fmt: skip
        write_documents(folder / "docs", options.documents, 0)
        alone = ingest_alone(folder, services.environment)
        seconds, job = ingest_shared(services, folder)
        parts = share(services, job)
        total = sum(parts.values())
        print(f"{total} documents in {seconds:.0f} s: " + ", ".join(
            f"{name} {count} ({100 * count / total:.0f} %)" for name, count in sorted(parts.items())
        ))  # fmt: skip
        same = seen(machines.shared, services.environment).content() == alone.content()
        print(f"release equal to that of one machine: {same} ({len(alone.chunks)} chunks)")
        there = machines.other.wrong(folder / "home", (folder / "home", folder / "docs"))
        print(f"machine B: {'; '.join(there) or 'file for file, proved, no path of A'}")
        failed += (not same) + bool(there)
        working = working_seconds(services, job)
        for number in range(1, options.trials + 1):
            names = ["redis"] * options.kills if "redis" in options.killed else []
            if "worker" in options.killed:
                names += rng.choices(("w1", "w2"), k=options.kills)
            try:
                wrong = machines.trial(
                    number, options.documents, [(rng.uniform(0, working), name) for name in names]
                )
            except (RuntimeError, AssertionError, RagError) as error:
                wrong = [str(error)]
            failed += bool(wrong)
            print(f"{number:3} {'; '.join(wrong) or 'the same library'}", flush=True)
            print(f"    killed at work so far: {dict(machines.hits)}", flush=True)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--range-size", type=int, default=25)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--kills", type=int, default=1, help="of each of --killed, in a trial")
    parser.add_argument("--killed", nargs="+", default=KILLED, choices=KILLED)
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
