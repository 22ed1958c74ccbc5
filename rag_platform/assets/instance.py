"""The Dagster instance of a data root: its dagster.yaml, and the door to Dagster's own commands over it."""

import os
import sys
from pathlib import Path

import yaml

from rag_platform.config import config_dir, load_settings
from rag_platform.store import Store, write_text


def prepare(store: Store) -> Path:
    """DAGSTER_HOME with a dagster.yaml of ours in it; both are created where absent, and the variable is set for this process."""
    home = Path(os.environ.get("DAGSTER_HOME") or store.dagster_dir)
    path = home / "dagster.yaml"
    text = "# Written by rag_platform where absent; yours to change.\n" + yaml.safe_dump(_config(home), sort_keys=False)
    if not path.is_file():
        write_text(path, text)
    os.environ["DAGSTER_HOME"] = str(home)
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
    os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "500")  # what a run plans is stored in few transactions
    return home


def _config(home: Path) -> dict[str, object]:
    def storage(module: str, name: str, folder: str) -> dict[str, object]:
        return {"module": module, "class": name, "config": {"base_dir": str(home / folder)}}

    return {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        "event_log_storage": storage("rag_platform.assets.event_storage", "OpenSqliteEventLog", "history"),
        "run_storage": storage("dagster._core.storage.runs", "SqliteRunStorage", "runs"),
        "schedule_storage": storage("dagster._core.storage.schedules", "SqliteScheduleStorage", "schedules"),
        # One writer: ingest and release runs of a namespace never overlap.
        "concurrency": {"runs": {"max_concurrent_runs": 1}},
    }


def main() -> None:
    """Replace this process by `dagster ARGUMENTS` over the data root, e.g. `dev` or `definitions validate`."""
    settings = load_settings()
    prepare(Store(settings.home))
    os.environ["RAG_HOME"] = str(settings.home)
    os.environ["RAG_CONFIG"] = str(config_dir().resolve())
    os.execv(sys.executable, [sys.executable, "-m", "dagster", *sys.argv[1:], "-m", "rag_platform.definitions"])


if __name__ == "__main__":
    main()
