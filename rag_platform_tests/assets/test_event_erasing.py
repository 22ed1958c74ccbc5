"""What Dagster keeps about a deleted document goes from every storage that is an SQL database, and
what cannot be reached is named.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._utils.error import SerializableErrorInfo

from rag_platform_tests.scanning import words_found

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning",
        "ignore::dagster.BetaWarning",
        "ignore::dagster.PreviewWarning",
    ),
]
SECRET = "Zülwiebelturm"
GATE = f"# {SECRET}\n\nThe {SECRET} opens at 05:30.\n\n![{SECRET}]({SECRET}.png)\n"
DOCK = "# Dock\n\nThe south dock holds 12 trucks.\n\n![crane](crane.png)\n"


@dg.job
def told() -> None:
    pass


def stored_by(home: Path, module: str, name: str, **config: Any) -> None:
    """Make Dagster keep its events in another storage than ours."""
    folder = home / "dagster"
    folder.mkdir()
    storage = {
        "module": module,
        "class": name,
        "config": config or {"base_dir": str(folder / "history")},
    }
    quiet = {"telemetry": {"enabled": False}, "nux": {"enabled": False}}
    (folder / "dagster.yaml").write_text(
        yaml.safe_dump({**quiet, "event_log_storage": storage}), encoding="utf-8"
    )


def deleted_hard(desk: Any) -> Any:
    """The proof after a document whose missing picture is named in warnings was deleted, and
    another one stayed.
    """
    desk.write(gate=GATE, dock=DOCK)
    assert desk.call("ingest", desk.docs).exit_code == 0
    with dg.DagsterInstance.get() as instance:  # as a run of the daemon logs what went wrong
        error = SerializableErrorInfo(f"ValueError: {SECRET}\n", [f"in {SECRET}\n"], "ValueError")
        keys = json.dumps(instance.get_dynamic_partitions("document_versions"))
        failed = BulkActionStatus.FAILED
        facts = [dg.AssetKey("facts")]
        backfill = PartitionBackfill(
            "odd", failed, False, {}, 1.0, error, facts, SECRET, serialized_asset_backfill_data=keys
        )
        instance.add_backfill(backfill)
        run = instance.create_run_for_job(told)
        instance.report_engine_event(
            f"docs/gate.md: facts failed: [broken_file] {SECRET} is odd", dagster_run=run
        )
    before = desk.call("gc", "--prove", "gate.md").data["remaining"]
    assert before["events"] > 7 and before["partitions"] == 1
    assert desk.call("docs", "delete", "gate.md", "--mode", "hard", "--yes").exit_code == 0
    with dg.DagsterInstance.get() as instance:
        # the dock's
        assert len(instance.fetch_materializations(dg.AssetKey("facts"), limit=10).records) == 1
        (entry,) = instance.all_logs(run.run_id)
        assert entry.run_id == run.run_id and "odd" not in str(entry)
        (backfill,) = instance.get_backfills()
        assert (backfill.backfill_id, backfill.error.cls_name) == (
            "odd",
            "ValueError",
        ) and SECRET not in str(backfill)
    return desk.call("gc", "--prove", "gate.md").data


@pytest.mark.parametrize("name", ["SqliteEventLogStorage", "ConsolidatedSqliteEventLogStorage"])
def test_dagsters_own_storages(desk: Any, name: str) -> None:
    stored_by(desk.store.home, "dagster._core.storage.event_log", name)
    proof = deleted_hard(desk)
    assert (proof["total"], proof["not_looked_into"]) == (0, [])
    assert words_found(desk.store.home, "Zülw") == {}


def test_ours_and_what_runs_printed(desk: Any) -> None:
    folder = desk.store.home / "dagster" / "storage" / "some-run" / "compute_logs"
    folder.mkdir(parents=True)
    (folder / "ingestion.err").write_text(
        f"docs/gate.md: odd\n"
        f"  near {SECRET}\n"
        f"Traceback (most recent call last):\n"
        f"  docs/gate.md\n"
        f"ValueError: {SECRET}\n"
        f"docs/dock.md: fine\n",
        encoding="utf-8",
    )
    proof = deleted_hard(desk)
    assert (proof["total"], proof["not_looked_into"]) == (0, [])
    assert words_found(desk.store.home, "Zülw") == {}
    assert (folder / "ingestion.err").read_text(encoding="utf-8").endswith("docs/dock.md: fine\n")


def test_a_storage_that_is_away_is_named(desk: Any) -> None:
    desk.write(gate=GATE)
    assert desk.call("ingest", desk.docs).exit_code == 0
    (desk.store.home / "dagster" / "dagster.yaml").write_text(
        "event_log_storage: {module: rag_platform_tests.assets.test_event_erasing, class: Away,"
        " config: {}}\n",
        encoding="utf-8",
    )
    proof = desk.call("gc", "--prove", "gate.md").data
    assert proof["remaining"]["raw"] == 1
    assert len(proof["not_looked_into"]) == 1 and "cannot be opened" in proof["not_looked_into"][0]


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a private server, run as the user postgres where this one is root; skips where
    none can be had.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin")) or [
        Path(tool).parent for tool in [shutil.which("initdb")] if tool
    ]
    if not found:
        pytest.skip("no PostgreSQL server is installed")
    # short: a socket's path is
    with tempfile.TemporaryDirectory(prefix="rag-pg-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o777)
        user = (
            ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
            if os.geteuid() == 0
            else []
        )

        def run(tool: str, *args: str) -> subprocess.CompletedProcess[bytes]:
            asked = [*user, str(found[-1] / tool), "-D", f"{folder}/data", *args]
            return subprocess.run(asked, capture_output=True, cwd="/", check=False)

        made = run("initdb", "-U", "rag", "-A", "trust", "--no-sync")
        if made.returncode:
            pytest.skip(f"no PostgreSQL cluster can be made: {made.stderr.decode()[:200]}")
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        assert run("pg_ctl", "-w", "-l", f"{folder}/log", "-o", options, "start").returncode == 0
        try:
            yield f"postgresql+psycopg2://rag@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")


def test_postgresql(desk: Any) -> None:
    pytest.importorskip("dagster_postgres", reason="needs dagster-postgres and psycopg2-binary")
    with postgres() as url:
        stored_by(
            desk.store.home,
            "dagster_postgres.event_log",
            "PostgresEventLogStorage",
            postgres_url=url,
        )
        proof = deleted_hard(desk)
        assert (proof["total"], proof["not_looked_into"]) == (0, [])
    assert words_found(desk.store.home, "Zülw") == {}
