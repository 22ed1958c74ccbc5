"""Fixtures shared by every test: a data root of its own, settings, stores, and a strategy that
needs no model.
"""

from __future__ import annotations

import base64
import gc
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from click.testing import CliRunner

from rag_platform.cli.main import main
from rag_platform.config.settings import FetchLimits, Settings, Strategy, load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.ledger.ledger import Ledger, open_ledger
from rag_platform.loaders.pdf.opening import load_pymupdf
from rag_platform.processes import jobs
from rag_platform.releases.deletion import StartedDeletion, plan_delete, start_delete
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot, Workspace
from rag_platform_tests.jobs_here import run_here
from rag_platform_tests.postgres_server import PostgresServer, why_none
from rag_platform_tests.s3_server import S3Server
from rag_platform_tests.s3_server import why_none as s3_server_missing

# RAG_THOROUGH=1 tries more examples of every property, and more of what takes long; `make
# test-thorough` sets it.
THOROUGH = "RAG_THOROUGH" in os.environ
# A busy machine must not fail a property: nothing is timed.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=40)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500)
hypothesis.settings.load_profile("thorough" if THOROUGH else "quick")

pytest_plugins = ["rag_platform_tests.published"]

gc.disable()  # until all tests are collected
load_pymupdf()  # `import pymupdf` in a test module would load the layout models

# These files take longest, the first one half a minute of processor time; begun first, none of them
# is left alone on one processor at the end.
SLOWEST = (
    "test_telemetry test_end_to_end test_tools test_main test_automation test_crash_points"
    " test_walk_asking test_deletion test_result_size test_evaluation test_worker_pool test_crashes"
    " test_mupdf test_whole_walk test_loading test_browsing test_scans test_instance test_http"
    " test_lifecycle_machine test_serving_through_updates test_bench_sizes test_dagster_private"
    " test_release test_publishing test_release_store test_verification test_deletion_scan"
    " test_retries test_wheel test_jobs test_shared_ledger test_determinism test_job_start"
    " test_two_machines test_traffic test_tutorial test_bad_input"
).split()

REPOSITORY = Path(__file__).resolve().parent.parent

# An ingest of one document waits for some 350 syncs of the disk: where memory has room, tests keep
# their data there.
MEMORY = Path("/dev/shm")
# Otherwise each of the hundreds of child processes would compile the whole program.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["RAG_LANG"] = "en"  # whatever the locale of who runs them
# A suite that a script leaves in the background is started with interrupts ignored, and so would be
# the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None

TINY = """\
description: for tests; vectors by feature hashing, no model, not even for the layout of pages
loading:
  loaders:
    - {provider: pdf, options: {profile: fast}}
    - provider: markdown
    - provider: text
sectioner:
  provider: markdown_headings
  options: {max_section_level: 2, include_heading: true, doc_preamble_mode: separate, \
min_section_chars: 0}
chunker:
  provider: recursive
  options: {chunk_size: 400, chunk_overlap: 0}
embedding:
  provider: hashing
encoding: hybrid
fusion:
  provider: min_max
  options: {alpha: 0.3}
"""
WITH_LAYOUT = TINY.replace("{profile: fast}", "{profile: layout}")  # PDF pages by their model
MISREADING = TINY.replace(  # 12 in text files is read as 21
    "provider: text", "provider: 'rag_platform_tests.broken_providers:Misreader'"
)


# a PNG of 2 x 2 pixels
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGM8ISfHwMDAxMDAwMDAAAANBAEIfXHKZgAAAABJRU5ErkJggg=="
)


def needs(package: str, extra: str) -> pytest.MarkDecorator:
    """Skips where the extra is not installed. The package, slow to import, is only looked for."""
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None,
        reason=f"needs the extra `{extra}`: pip install 'rag-platform[{extra}]'",
    )


def write_config(folder: Path, **strategies: str) -> Path:
    """A config folder with the shipped logging and prompts, settings whose default strategy is
    `tiny`, and the given strategies.
    """
    (folder / "strategies").mkdir(parents=True)
    lines = (
        "schema_version: 1",
        "default_strategy: tiny",
        f"strategies_dir: {folder / 'strategies'}",  # those alone
        "embedding_processes: 1",
        "inbox_settle_seconds: 0",
        "jobs: {lock_seconds: 0.2, backoff_seconds: 0.01}",
    )
    (folder / "settings.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, text in {"tiny": TINY, **strategies}.items():
        (folder / "strategies" / f"{name}.yaml").write_text(text, encoding="utf-8")
    shutil.copy(REPOSITORY / "rag_platform" / "defaults" / "logging.yaml", folder / "logging.yaml")
    return folder


@pytest.fixture(scope="session", autouse=True)
def migrations_read_once() -> Iterator[None]:
    """Alembic's scripts are read once a process: Dagster's stores read all of theirs again whenever
    a data root or a run is opened.
    """
    from alembic.script import ScriptDirectory

    read: dict[str | None, ScriptDirectory] = {}
    from_config = ScriptDirectory.from_config

    def remembered(config: Any) -> ScriptDirectory:
        place = config.get_main_option("script_location")
        if place not in read:
            read[place] = from_config(config)
        return read[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", remembered)
        yield


@pytest.fixture(scope="session", autouse=True)
def dagster_loaded(request: pytest.FixtureRequest) -> None:
    """Dagster is not imported for tests that do without."""
    if "dagster" in sys.modules:
        request.getfixturevalue("dagster_files_made_once")


@pytest.fixture(scope="session")
def dagster_files_made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each of Dagster's SQLite files is made once a process and copied into every data root: to
    make them takes five times as long as to open them.
    """
    from dagster._core.storage.event_log import SqliteEventLogStorage
    from dagster._core.storage.runs import SqliteRunStorage
    from dagster._core.storage.schedules import SqliteScheduleStorage
    from sqlalchemy import NullPool, create_engine

    templates = tmp_path_factory.mktemp("dagster")
    lock = threading.Lock()

    def copy(path: Path, name: str, make: Callable[[Path], object]) -> None:
        with lock:
            template = templates / name
            if not template.exists():
                make(template)
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(template, mine := path.with_name(f"{name}.{os.getpid()}"))
                with suppress(FileExistsError):  # another process made it
                    os.link(mine, path)
                mine.unlink()

    def copying(kind: Any, name: str) -> Any:
        from_local = kind.from_local

        def opened(base_dir: str, inst_data: Any = None) -> Any:
            copy(Path(base_dir) / name, name, lambda template: from_local(str(template.parent)))
            return from_local(base_dir, inst_data)

        return staticmethod(opened)

    init_db = SqliteEventLogStorage._initdb

    def init_copy(log: Any, engine: Any, for_index_shard: bool = False) -> None:
        def make(template: Path) -> None:
            init_db(
                log, create_engine(f"sqlite:///{template}", poolclass=NullPool), for_index_shard
            )

        copy(Path(engine.url.database), "index.db" if for_index_shard else "run.db", make)
        init_db(log, engine, for_index_shard)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteRunStorage, "from_local", copying(SqliteRunStorage, "runs.db"))
        patch.setattr(
            SqliteScheduleStorage, "from_local", copying(SqliteScheduleStorage, "schedules.db")
        )
        patch.setattr(SqliteEventLogStorage, "_initdb", init_copy)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_grace() -> Iterator[None]:
    """Garbage collection in this process waits for no reader; where there may be one, the tests
    run it in a process of its own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rag_platform.releases.garbage_collection.GRACE_SECONDS", 0)
        yield


@pytest.fixture
def config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config folder of this test, in force: strategy `tiny` is the default."""
    folder = write_config(tmp_path / "config")
    monkeypatch.setenv("RAG_CONFIG", str(folder))
    return folder


@pytest.fixture
def chosen_ledger(request: pytest.FixtureRequest) -> str:
    """Where data roots of this run have their ledgers: RAG_TEST_LEDGER=postgres puts them into a
    database; by default they are files, which is the empty text.
    """
    if os.environ.get("RAG_TEST_LEDGER") != "postgres":
        return ""
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_url()


@pytest.fixture
def ledger_file(chosen_ledger: str) -> None:
    """For tests of what only a ledger in a file does."""
    if chosen_ledger:
        pytest.skip("about a ledger in a file")


@pytest.fixture
def home(
    tmp_path: Path, config_folder: Path, chosen_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """An empty data root, in force as RAG_HOME; it stays until no thread watches a job of it."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("RAG_HOME", str(folder))
    for name in ("RAG_STRATEGY", "RAG_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAG_LEDGER", chosen_ledger)
    yield folder
    for thread in threading.enumerate():
        if thread.name.startswith("watch "):
            thread.join(30)


@pytest.fixture
def settings(home: Path) -> Settings:
    """Settings over `home` and the test's config folder."""
    return load_settings()


@pytest.fixture
def tiny(settings: Settings) -> Strategy:
    """The strategy without a model."""
    return load_strategy(settings, "tiny")


@pytest.fixture
def store(home: Path, chosen_ledger: str) -> Store:
    """The store over `home`."""
    return Store(home, chosen_ledger)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test run."""
    if reason := why_none():
        pytest.skip(reason)
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server of this test run."""
    if reason := s3_server_missing():
        pytest.skip(reason)
    server = S3Server.moto()
    yield server
    server.kill()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an empty bucket, which the environment names from now on."""
    variables = s3_server.variables()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables["RAG_BLOBS__BUCKET"]


@pytest.fixture(params=["sqlite", "postgres"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new ledger is, on each database in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.sqlite"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_url()


@pytest.fixture
def ledger(store: Store) -> Iterator[Ledger]:
    """The ledger of `home`."""
    opened = open_ledger(store)
    yield opened
    opened.close()


@dataclass(frozen=True)
class Shelf:
    """A data root with what writes to it, and the way from files to a published release without
    Dagster.
    """

    settings: Settings
    store: Store
    ledger: Ledger

    @property
    def root(self) -> DataRoot:
        """What most writing functions want."""
        return DataRoot(settings=self.settings, store=self.store, ledger=self.ledger)

    def workspace(self, strategy: str = "tiny") -> Workspace:
        """The same with a strategy."""
        return Workspace(
            settings=self.settings,
            store=self.store,
            ledger=self.ledger,
            strategy=load_strategy(self.settings, strategy),
        )

    def ingest(
        self,
        *paths: Path,
        namespace: str = "default",
        strategy: str = "tiny",
        tags: tuple[str, ...] = (),
        sync: bool = False,
    ) -> str:
        """The release_id published after receiving and processing the paths."""
        from rag_platform.ingestion.batches import ingest_versions
        from rag_platform.intake.receiving import ReceiveOptions, receive
        from rag_platform.releases.publishing import build_candidate, publish_candidate

        workspace = self.workspace(strategy)
        reception = receive(paths, namespace, workspace, ReceiveOptions(tags=tags, sync=sync))
        ingest_versions([self.ledger.version(item) for item in reception.to_process], workspace)
        manifest, checks = build_candidate(namespace, workspace)
        assert all(check.passed for check in checks), checks
        publish_candidate(namespace, manifest.release_id, workspace)
        return manifest.release_id

    def library(self) -> Library:
        """A new read side over this data root."""
        return Library.open(self.settings)


@pytest.fixture
def shelf(settings: Settings, store: Store, ledger: Ledger) -> Shelf:
    """An empty shelf over `home`."""
    return Shelf(settings, store, ledger)


@pytest.fixture
def elsewhere() -> Callable[[Any], Any]:
    """A context manager that enters another one in a thread of its own, e.g. a lock held by
    somebody else.
    """

    @contextmanager
    def entered(context: Any) -> Iterator[None]:
        inside, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with context:
                inside.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        assert inside.wait(60)
        try:
            yield
        finally:
            leave.set()
            thread.join()

    return entered


@dataclass(frozen=True)
class Answer:
    """What a command came to: its exit code and the envelope it printed."""

    exit_code: int
    envelope: Any
    said: str

    @property
    def data(self) -> Any:
        """The data of a command that succeeded at least in part."""
        assert self.envelope["data"], self.said
        return self.envelope["data"]

    @property
    def error(self) -> Any:
        """The error of a command that failed."""
        assert self.envelope["error"], self.said
        return self.envelope["error"]


_ASKS_ALL = """
import gc
gc.disable()  # a third of the time of so short a process
import json, sys
sys.path.append(sys.argv[1])
from click.testing import CliRunner
from rag_platform.cli.main import main
from rag_platform.processes import jobs
from rag_platform.releases.deletion import StartedDeletion, plan_delete, start_delete
from rag_platform_tests.jobs_here import run_here

jobs.launch = run_here
ended = {" ".join(args): CliRunner().invoke(main, [*args, "--json"]) for args in \
json.load(sys.stdin)}
print(json.dumps({name: [each.exit_code, each.stdout, each.stderr] for name, each in \
ended.items()}))
sys.stdout.flush()
gc.freeze()
"""


@dataclass(frozen=True)
class Desk:
    """A user's place: a folder with `docs`, `config` and `home`, the environment that names them,
    and `rag` at hand.

    `rag` and `start` run the program as a child process, `call` runs it in this one; there a job
    runs in this process too.
    """

    folder: Path

    @property
    def docs(self) -> Path:
        """The folder for documents."""
        return self.folder / "docs"

    @property
    def store(self) -> Store:
        """The data root."""
        return Store(self.folder / "home", os.environ.get("RAG_LEDGER", ""))

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return load_settings()

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger, closed afterwards."""
        opened = open_ledger(self.store)
        yield opened
        opened.close()

    def write(self, **texts: str) -> None:
        """Write `docs/<name>.md` for each text."""
        for name, text in texts.items():
            (self.docs / f"{name}.md").write_text(text, encoding="utf-8")

    def publish(self, *paths: Path, namespace: str = "default", tags: tuple[str, ...] = ()) -> str:
        """The release_id published of `docs`, or of the paths: what a test begins with that is not
        about ingestion. `rag ingest` takes ten times the processor time, most of it Dagster's.
        """
        with self.ledger() as ledger:
            shelf = Shelf(self.settings, self.store, ledger)
            return shelf.ingest(*(paths or (self.docs,)), namespace=namespace, tags=tags)

    def rag(self, *args: object) -> Answer:
        """The answer of `rag ARGS --json` in a child process."""
        ended = self.start(*args)
        said, _ = ended.communicate(timeout=120)
        return Answer(ended.returncode, json.loads(said), said)

    def ask_all(self, asked: Sequence[Sequence[str]], *before: str) -> dict[str, Answer]:
        """The answers of several commands in one child process, where their jobs run too, by the
        words of each; `said` is what it told on stderr. `before` stands in front of the child's
        command.
        """
        ended = subprocess.run(
            [*before, sys.executable, "-c", _ASKS_ALL, str(REPOSITORY)],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=self.folder,
            check=True,
            timeout=120,
        )
        return {
            name: Answer(code, json.loads(out), err)
            for name, (code, out, err) in json.loads(ended.stdout).items()
        }

    def start(self, *args: object) -> subprocess.Popen[str]:
        """The started child process of `rag ARGS --json`."""
        command = [sys.executable, "-m", "rag_platform.cli.main", *map(str, args), "--json"]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            cwd=self.folder,
        )

    def call(self, *args: object) -> Answer:
        """The answer of `rag ARGS --json` in this process."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jobs, "launch", run_here)
            ended = CliRunner().invoke(main, [*map(str, args), "--json"], catch_exceptions=False)
        return Answer(ended.exit_code, json.loads(ended.stdout), ended.output)


@contextmanager
def seated(folder: Path, **strategies: str) -> Iterator[Desk]:
    """A desk in `folder`, its environment in force until the end of the block."""
    from dagster._core.execution import compute_logs

    (folder / "docs").mkdir(parents=True)
    (folder / "home").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_CONFIG", str(write_config(folder / "config", **strategies)))
        patch.setenv("RAG_HOME", str(folder / "home"))
        patch.setenv("DAGSTER_HOME", str(folder / "home" / "dagster"))
        for name in ("RAG_STRATEGY", "RAG_NAMESPACE", "RAG_LEDGER"):
            patch.delenv(name, raising=False)
        # what a run prints is kept in its file; to copy it to the terminal as well, Dagster starts
        # four processes a run
        patch.setattr(compute_logs, "tail_to_stream", lambda path, stream: nullcontext())
        yield Desk(folder)


@pytest.fixture
def delete(shelf: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a deletion whose job nobody runs: what readers see is the tombstone's doing alone."""
    ended: Any = SimpleNamespace(poll=lambda: 0, returncode=0)
    monkeypatch.setattr(jobs, "launch", lambda job, settings, store: jobs.Started(job, ended))

    def start(doc: str, version: str | None = None, **options: Any) -> StartedDeletion:
        return start_delete(plan_delete("default", doc, shelf.root, version, **options), shelf.root)

    return start


@pytest.fixture
def desk(tmp_path: Path, chosen_ledger: str, dagster_files_made_once: None) -> Iterator[Desk]:
    """An empty desk of one test."""
    with seated(tmp_path / "desk") as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_LEDGER", chosen_ledger)
        yield made


@pytest.fixture(scope="module")
def shared_desk(
    tmp_path_factory: pytest.TempPathFactory, dagster_files_made_once: None
) -> Iterator[Desk]:
    """An empty desk that the tests of one module share; the environment is its own as long as they
    run.
    """
    with seated(tmp_path_factory.mktemp("shared") / "desk") as made:
        yield made


class Site:
    """A real server on the loopback; `paths` maps a path to what answers it, `asked` notes the
    requests.
    """

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.server, self.port = server, server.server_address[1]
        self.paths: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        """The address of the server's root."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def limits(self) -> FetchLimits:
        """Limits that allow this server."""
        return FetchLimits(seconds=5, allow=(f"127.0.0.1:{self.port}", f"site.test:{self.port}"))

    def serve(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> str:
        """The URL at which this answer is given from now on; `Content_Type` names the header
        Content-Type.
        """

        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                request.send_header(name.replace("_", "-"), value)
            request.end_headers()
            with suppress(OSError):
                request.wfile.write(body)

        self.paths[path] = answer
        return self.url + path


@pytest.fixture
def site() -> Iterator[Site]:
    """A web server of this test."""
    holder: list[Site] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            holder[0].asked.append((self.path, dict(self.headers)))
            holder[0].paths[self.path](self)

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    holder.append(Site(server))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield holder[0]
    server.shutdown()
    thread.join()
    server.server_close()


PORTS = """\
---
title: Port guide
---

# Ports

The gateway listens on port 8080 unless `PORT-9087` is set.

## Limits

| tier | requests per minute |
| --- | --- |
| free | 60 |
| pro | 600 |

![diagram](diagram.png)
"""
HOLIDAYS = """\
# 休假制度

员工每年有十五天带薪年假，须提前三个工作日申请。

## 病假

病假需要医生证明，超过三天的病假由部门经理批准。
"""
NOTES = (
    "Release notes\n\nVersion 2.4.1 fixes the crash on start and adds the option max_retry_count.\n"
)


@pytest.fixture(scope="session")
def read_only_shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """Three small documents (English Markdown with table and picture, Chinese Markdown, plain
    text), published; only for reading.
    """
    root = tmp_path_factory.mktemp("shelf")
    docs = root / "docs"
    docs.mkdir()
    for name, text in (("ports.md", PORTS), ("休假.md", HOLIDAYS), ("notes.txt", NOTES)):
        (docs / name).write_text(text, encoding="utf-8")
    (docs / "diagram.png").write_bytes(PICTURE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_CONFIG", str(write_config(root / "config")))
        patch.setenv("RAG_HOME", str(root / "home"))
        settings = load_settings()
        ledger = open_ledger(Store.of(settings))
        built = Shelf(settings, Store(settings.home), ledger)
        built.ingest(docs / "ports.md", docs / "notes.txt", tags=("ops", "guide"))
        built.ingest(docs / "休假.md", tags=("hr",))
    # the environment is no longer this shelf's: other modules run before the session ends
    yield built
    ledger.close()


@pytest.fixture(scope="session")
def material() -> Path:
    """The folder of real test material: `RAG_TEST_DATA`, or `../shared/data` beside the checkout;
    skips when it is absent.
    """
    folder = Path(os.environ.get("RAG_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no test material: set RAG_TEST_DATA to its folder")
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sentence-transformers model of our own: BERT of 32 numbers and 64 tokens,
    letters as vocabulary, seeded weights.
    """
    pytest.importorskip(
        "sentence_transformers",
        reason="needs the extra `models`: pip install 'rag-platform[models]'",
    )
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import BertModel

    folder = tmp_path_factory.mktemp("models")
    bert = save_bert(folder / "bert", BertModel, "员工每年有十五天带薪假网关端口监听。，？")
    SentenceTransformer(modules=[Transformer(str(bert)), Pooling(32, "mean")], device="cpu").save(
        str(folder / "tiny-bert")
    )
    return folder / "tiny-bert"


def save_bert(folder: Path, kind: Any, letters: str, **config: int) -> Path:
    """The folder with a BERT of 32 numbers and 64 tokens: ASCII and the letters as vocabulary,
    seeded weights; `kind` is a class of transformers.
    """
    import torch
    from transformers import BertConfig, BertTokenizerFast

    known = [*map(chr, range(33, 127)), *letters]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, *known, *(f"##{letter}" for letter in known)]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=64).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    }
    kind(BertConfig(vocab_size=len(vocabulary), **shape, **config)).save_pretrained(folder)
    return folder


def wait_until(holds: Callable[[], object], seconds: float = 180) -> None:
    """Returns as soon as that is so, and fails where it is not in time."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"did not happen within {seconds} s"
        time.sleep(0.02)


def pytest_collection_finish() -> None:
    """What is imported by now stays: a fifteenth of the suite's time went into looking through it
    for cycles of garbage.
    """
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A failed test names the last traces in its folder."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and folder is not None:
        logs = sorted(folder.rglob("logs/*.jsonl"), key=lambda path: path.stat().st_mtime)
        text = "".join(path.read_text("utf-8", "replace") for path in logs)
        if found := list(dict.fromkeys(re.findall("trc_[0-9a-f]{32}", text)))[-5:]:
            report.sections.append((f"last traces below {folder}", "\n".join(found)))
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest files first, everything else as it was found."""
    order = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
