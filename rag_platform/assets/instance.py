"""The Dagster instance of a data root: its dagster.yaml, and Dagster's own commands for it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml

from rag_platform.config.folders import environment
from rag_platform.config.settings import JobPolicy, Settings, load_settings
from rag_platform.errors import RagError, read_only
from rag_platform.storage.locks import hold_lock
from rag_platform.storage.sqlite_files import REFUSED
from rag_platform.storage.store import Store, write_text

# Dagster runs at a time with `jobs.launcher: dagster`: eight jobs and the runs that they execute;
# the number of workers is independent of it
MAX_RUNS = 16
_WRITTEN = "# Written by rag_platform where absent; yours to change."
_PROGRAMS = {"webserver": ["dagster-webserver"], "daemon": ["dagster-daemon", "run"]}
# `dagster dev` recommends a tool that is not installed here on every start
_NO_ADVICE = "ignore:Function `dev_command` is superseded"
STOPPED = 128 + signal.SIGTERM  # the exit code after a signal to stop
STOP_SECONDS = 30.0  # for Dagster's processes and their runs to end
_POLL_SECONDS = 0.1
_CODE_SECONDS = 30.0  # between two looks at the code servers
_LOCATIONS = """{workspaceOrError
{... on Workspace {locationEntries {name locationOrLoadError {__typename}}}}}"""
_RELOAD = """mutation ($name: String!)
{reloadRepositoryLocation(repositoryLocationName: $name) {__typename}}"""
_DEV_LOCK_SECONDS = 5.0  # for an earlier `dagster dev` of the same data root to end
# kills the command's processes when this process dies and its end of the pipe closes
_REAPER = "import os, signal, sys; sys.stdin.read(); os.killpg(int(sys.argv[1]), signal.SIGKILL)"


def prepare(store: Store) -> Path:
    """Set and return DAGSTER_HOME, creating it and its dagster.yaml if missing. In a moved or
    copied data root our dagster.yaml is updated to the storages there.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or store.dagster_dir)
    store.create()
    path = home / "dagster.yaml"
    if not path.is_file():
        config = yaml.safe_dump(_config(home, load_settings().jobs), sort_keys=False)
        write_text(path, f"{_WRITTEN}\n{config}")
    elif config := _relocate_config(path):
        write_text(path, config)
    os.environ["DAGSTER_HOME"] = str(home)
    # stores the planned events of a run in few transactions
    os.environ.setdefault("DAGSTER_EVENT_BATCH_SIZE", "500")
    return home


def _relocate_config(path: Path) -> str:
    """The text of our dagster.yaml with storages in its own folder; empty if it is right already or
    was customised.

    The data root was moved or copied if the storages that it names lie in another folder, and here
    are folders of the same names.
    """
    text = path.read_text(encoding="utf-8")
    if not text.startswith(_WRITTEN):
        return ""
    config, here = yaml.safe_load(text), path.parent
    named = [options for options in map(_options, config.values()) if "base_dir" in options]
    folders = [Path(str(options["base_dir"])).resolve() for options in named]
    parents = [folder.parent for folder in folders]
    if not parents or (home := Path(os.path.commonpath(parents))) == here.resolve():
        return ""
    moved = [here / folder.relative_to(home) for folder in folders]
    if not all(folder.is_dir() for folder in moved):
        return ""
    for options, folder in zip(named, moved, strict=True):
        options["base_dir"] = str(folder)
    return f"{_WRITTEN}\n{yaml.safe_dump(config, sort_keys=False)}"


def _options(section: object) -> dict[str, object]:
    options = section.get("config") if isinstance(section, dict) else None
    return options if isinstance(options, dict) else {}


def _config(home: Path, policy: JobPolicy) -> dict[str, object]:
    # imported late: it loads Dagster, which running its commands does not need
    from rag_platform.assets.dagster_private import storages

    named = storages(("rag_platform.assets.event_storage", "OpenSqliteEventLog"))
    return {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        **{
            section: {"module": module, "class": name, "config": {"base_dir": str(home / folder)}}
            for section, (module, name, folder) in named.items()
        },
        "concurrency": {"runs": _limits(policy)},
    }


def _limits(policy: JobPolicy) -> dict[str, object]:
    from rag_platform.assets.partitions import NAMESPACE_TAG
    from rag_platform.assets.runs import WRITER_TAG

    if policy.launcher == "child":
        # One writer: ingest and release runs of a namespace never overlap.
        return {"max_concurrent_runs": 1}
    limits = {WRITER_TAG: 1, NAMESPACE_TAG: policy.ranges_at_once}
    return {
        # a job counts twice: the run that its launcher starts, and the one that this executes
        "max_concurrent_runs": MAX_RUNS,
        "tag_concurrency_limits": [
            {"key": key, "value": {"applyLimitPerUniqueValue": True}, "limit": limit}
            for key, limit in limits.items()
        ],
    }


def main() -> None:
    """Run `dagster ARGUMENTS` for the data root, e.g. `dev` or `definitions validate`, or one of
    its programs `webserver` and `daemon`, and exit with its code.
    """
    try:
        sys.exit(run(load_settings(), sys.argv[1:] or ["--help"]))
    except RagError as error:
        sys.exit(error.message)


def run(settings: Settings, words: Sequence[str]) -> int:
    """Run one of Dagster's commands for a data root; return its exit code.

    Raises BusyError if `dev` already runs for it, as two daemons would launch everything twice;
    StorageError if Dagster's home cannot be written.
    """
    try:
        home = prepare(Store.of(settings))
        (home / ".dev").touch()
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        raise read_only(settings.home) from error
    # a file in the current folder must not shadow a Python module
    os.environ |= {**environment(settings.home), "PYTHONSAFEPATH": "1"}
    command = [*_program(*words), "-m", "rag_platform.definitions", "-d", str(home)]
    if words[0] != "dev":
        return run_supervised(command, folder=home)
    port = int(words[words.index("--port") + 1]) if "--port" in words else 3000
    ended = threading.Event()
    with _only_one(home):
        threading.Thread(target=keep_code_loaded, args=(port, ended), daemon=True).start()
        try:
            return run_supervised(command, folder=home)
        finally:
            ended.set()


def keep_code_loaded(port: int, ended: threading.Event, seconds: float = _CODE_SECONDS) -> None:
    """Reload code locations that cannot be loaded, until `ended`: Dagster does not replace a code
    server that was killed, and without one its daemon passes for healthy, but nothing ticks any
    more.
    """
    while not ended.wait(seconds):
        # it may be starting or stopping
        with suppress(OSError, HTTPException, ValueError, LookupError, TypeError):
            for entry in _ask_webserver(port, _LOCATIONS)["workspaceOrError"]["locationEntries"]:
                if entry["locationOrLoadError"]["__typename"] == "PythonError":
                    _ask_webserver(port, _RELOAD, name=entry["name"])


def _ask_webserver(port: int, query: str, **variables: str) -> Any:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"}
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=_CODE_SECONDS) as reply:
        return json.load(reply)["data"]


def _program(name: str, *arguments: str) -> list[str]:
    if (words := _PROGRAMS.get(name)) is None:
        return [sys.executable, "-W", _NO_ADVICE, "-m", "dagster", name, *arguments]
    return [str(Path(sys.executable).with_name(words[0])), *words[1:], *arguments]


def _only_one(home: Path) -> AbstractContextManager[None]:
    return hold_lock(
        home / ".dev",
        "`dagster dev`",
        f"Dagster's daemon is run over {home}",
        wait=_DEV_LOCK_SECONDS,
    )


def run_supervised(
    command: Sequence[str], seconds: float = STOP_SECONDS, *, folder: Path | None = None
) -> int:
    """Run a command in a folder so that none of its processes outlives this one, even if this one
    is killed; return its exit code.

    Signals to stop are passed on as an interrupt, the only one on which `dagster dev` ends its web
    server, daemon and code servers; processes left after `seconds` are killed.
    """
    stopped_at: list[float] = []

    def stop(_number: int, _frame: object) -> None:
        stopped_at.append(time.monotonic())

    # first, so that none is missed, and because the command would inherit a signal that is ignored,
    # as a shell script's background processes ignore SIGINT
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    process = subprocess.Popen(command, start_new_session=True, cwd=folder)
    reaper = subprocess.Popen(
        [sys.executable, "-IS", "-c", _REAPER, str(process.pid)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    interrupted = False
    try:
        while process.poll() is None and not (
            stopped_at and time.monotonic() - stopped_at[0] > seconds
        ):
            if stopped_at and not interrupted:  # a second interrupt would abort its shutdown
                process.send_signal(signal.SIGINT)
                interrupted = True
            time.sleep(_POLL_SECONDS)
    finally:
        reaper.kill()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        reaper.wait()
    return STOPPED if stopped_at else process.wait()


if __name__ == "__main__":
    main()
