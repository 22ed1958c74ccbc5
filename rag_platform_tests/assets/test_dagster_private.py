"""What is not public in Dagster is asked for in one module, which has a public way where it is gone
or Dagster is another version.
"""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqliteEventLogStorage

from rag_platform.assets import dagster_private
from rag_platform.assets.event_storage import OpenSqliteEventLog
from rag_platform.config.profiles import INGESTION_STAGES

PACKAGE = Path(dagster_private.__file__).parent.parent

# Every Python process that has this on its path imports Dagster so for our adapter, and for nobody
# else.
WITHOUT = """
import builtins, types
real = builtins.__import__
def changed(name, globals=None, locals=None, fromlist=(), level=0):
    found = real(name, globals, locals, fromlist, level)
    if globals and globals.get("__name__") == "rag_platform.assets.dagster_private":
        {change}
    return found
builtins.__import__ = changed
"""
CHANGES = {
    "a name is gone": (
        """if "DagsterEventBatchMetadata" in (fromlist or ()):
            raise ImportError("cannot import name 'DagsterEventBatchMetadata'")"""
    ),
    "another version": (
        """if name == "dagster":
            found = types.SimpleNamespace(**{**vars(found), "__version__": "1.14.0"})"""
    ),
}
REASONS = {
    "a name is gone": "cannot import name 'DagsterEventBatchMetadata'",
    "another version": "Dagster 1.14.0 is installed, and only 1.13 was looked into",
}
GATE = "# Gate\n\nThe north gate opens at 05:30.\n"
DOCK = "# Dock\n\nThe south dock holds 12 trucks.\n"


def test_no_other_module_imports_what_is_private() -> None:
    found = {
        path.name
        for path in PACKAGE.rglob("*.py")
        if re.search(r"dagster[a-z_]*\._|_step_execution_context", path.read_text(encoding="utf-8"))
    }
    assert found == {"dagster_private.py"}


def test_the_installed_version_is_the_one_that_was_looked_into() -> None:
    assert dagster_private.ABSENT == ""


def test_what_the_event_log_overrides_is_there_with_the_same_parameters() -> None:
    own = {
        name: value for name, value in vars(OpenSqliteEventLog).items() if inspect.isfunction(value)
    }
    overridden = {name for name in own if hasattr(SqliteEventLogStorage, name)}
    added = {"_engine", "_list_files", "_store_asset_events", "drop_log", "measure_log", "shrink"}
    assert overridden == own.keys() - added
    for name in overridden - {"__init__"}:
        theirs = inspect.signature(inspect.unwrap(getattr(SqliteEventLogStorage, name)))
        assert list(inspect.signature(inspect.unwrap(own[name])).parameters) == list(
            theirs.parameters
        ), name


def materialised() -> dict[str, int]:
    """How many partitions each stage has."""
    with dg.DagsterInstance.get() as instance:
        return {
            stage: len(instance.get_materialized_partitions(dg.AssetKey(stage)))
            for stage in INGESTION_STAGES
        }


def without(folder: Path, change: str) -> str:
    """A path for Python on which the adapter finds Dagster so changed."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        WITHOUT.replace("{change}", CHANGES[change]), encoding="utf-8"
    )
    return f"{folder}:{PACKAGE.parent}"


@pytest.mark.parametrize("change", CHANGES)
def test_it_says_why_the_private_way_is_not_taken(tmp_path: Path, change: str) -> None:
    code = (
        "from rag_platform.assets import dagster_private as found;"
        "print(found.ABSENT, found.storages(('module', 'Class')))"
    )
    environment = {**os.environ, "PYTHONPATH": without(tmp_path / "path", change)}
    said = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert said == f"{REASONS[change]} {{}}\n"


@pytest.mark.integration
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning"
)
def test_ingestion_works_the_public_way(
    desk: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    desk.write(gate=GATE)
    assert desk.call("ingest", desk.docs).exit_code == 0  # the private way
    monkeypatch.setenv("PYTHONPATH", without(tmp_path / "path", "a name is gone"))
    desk.write(dock=DOCK)
    ingested, proved = desk.ask_all(
        [["ingest", str(desk.docs)], ["gc", "--prove", "gate.md"]]
    ).values()
    assert ingested.exit_code == 0, ingested.said
    assert materialised() == dict.fromkeys(INGESTION_STAGES, 2)
    not_looked_into = proved.data["not_looked_into"]
    assert [REASONS["a name is gone"] in line for line in not_looked_into] == [True] * 4
