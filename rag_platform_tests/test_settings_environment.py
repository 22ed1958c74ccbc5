"""Every key of the settings can be told by the environment, as the type that it has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from rag_platform import access
from rag_platform.cli.doctor import examine
from rag_platform.cli.main import main
from rag_platform.config.folders import SHIPPED
from rag_platform.config.settings import (
    Section,
    Settings,
    find_unknown_variables,
    load_settings,
    variables,
)
from rag_platform.errors import ConfigError

GIVEN = {
    "RAG_HOME": "/tmp/elsewhere",
    "RAG_STRATEGIES_DIR": "/tmp/strategies",
    "RAG_SERVER__NAME": "7",
    "RAG_SERVER__PROCESSES": "2",
    "RAG_SERVER__UNDERSCORE_TOOL_NAMES": "false",
    "RAG_LIMITS__MAX_BYTES": "1000",
    "RAG_JOBS__LOCK_SECONDS": "1.5",
    "RAG_FETCHING__ALLOW": '["intranet:8080"]',
    "RAG_NIGHTLY_CRON": "0 4 * * *",
    "RAG_DEFAULT_NAMESPACE": "123",
}


@pytest.fixture(autouse=True)
def clean(config_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("RAG_") and name not in ("RAG_CONFIG", "RAG_TEST_DATA"):
            monkeypatch.delenv(name)


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().jobs.lock_seconds == 0.2  # of the file
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    found = load_settings()
    assert (found.home, found.strategies_dir) == (
        Path("/tmp/elsewhere").resolve(),
        Path("/tmp/strategies").resolve(),
    )
    assert (found.server.name, found.server.processes, found.server.underscore_tool_names) == (
        "7",
        2,
        False,
    )
    assert (found.limits.max_bytes, found.jobs.lock_seconds, found.jobs.backoff_seconds) == (
        1000,
        1.5,
        0.01,
    )
    assert (found.fetching.allow, found.nightly_cron, found.default_namespace) == (
        ("intranet:8080",),
        "0 4 * * *",
        "123",
    )
    assert load_settings({"default_namespace": "said"}).default_namespace == "said"


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("RAG_SERVER__PROCESSES", "many", "server.processes"),
        ("RAG_LIMITS__MAX_BYTES", "[", "is no YAML"),
        ("RAG_JOBS__MAX_ATTEMPTS", "0", "jobs"),
        ("RAG_SCHEDULE_TIMEZONE", "Shanghai", "'Shanghai' is no time zone"),
    ],
)
def test_a_wrong_value_is_told_with_its_variable(
    name: str, value: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert caught.value.message.removeprefix("the environment variable ").startswith(name)
    assert key in caught.value.message


def test_a_variable_that_names_no_setting_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ("RAG_PASSWORD", "RAG_API_KEY", "RAG_BROKER")  # of a provider or a deployment
    for name in ("RAG_SERVER__PROCESSES", "RAG_HOME", "RAG_LANG", "RAG_EMPTY__KEY", *own):
        monkeypatch.setenv(name, "" if name == "RAG_EMPTY__KEY" else "1")
    monkeypatch.setenv("RAG_SERVER_PORT", "tcp://10.0.0.7:8765")  # by Kubernetes, for a service
    assert find_unknown_variables() == {}
    monkeypatch.setenv("RAG_SERVER__PROCESES", "7")
    monkeypatch.setenv("RAG_FOO__BAR", "1")
    found = find_unknown_variables()
    assert list(found) == ["RAG_FOO__BAR", "RAG_SERVER__PROCESES"]
    assert found["RAG_SERVER__PROCESES"] == (
        "the environment variable RAG_SERVER__PROCESES names no setting and is ignored; did you"
        " mean 'RAG_SERVER__PROCESSES'?"
    )
    warned = [it for it in examine(load_settings()) if it.subject == "environment"]
    assert [(it.level, it.message) for it in warned] == [
        ("warning", message) for message in found.values()
    ]
    monkeypatch.setenv("RAG_HOEM", "/srv/rag")
    monkeypatch.setenv("RAG_RETENTION_DAYS", "5")
    meant = [message.rpartition(" ")[2] for message in find_unknown_variables().values()]
    assert meant[1:3] == ["'RAG_HOME'?", "'RAG_RETENTION__DAYS'?"]
    # every command says so, whatever becomes of it
    for words in (["status"], ["query", "x", "--namespace", "none"]):
        said = CliRunner().invoke(main, words)
        assert "names no setting and is ignored; did you mean 'RAG_HOME'?" in said.stderr
    # a server says so when it starts
    monkeypatch.setenv("RAG_LANG", "zh")
    said = CliRunner().invoke(main, ["serve", "--allow", "nothing"]).stderr
    assert "警告：环境变量 RAG_SERVER__PROCESES 不是任何设置，已被忽略" in said


def test_a_user_without_name_and_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME", "RAG_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)  # as in a container of any user
    assert access.current().name == "54321"
    said = CliRunner().invoke(main, ["status"])
    assert (said.exit_code, said.stderr.count("\n")) == (1, 1)
    assert "this user has no home folder; set HOME to one" in said.stderr


def test_every_key_of_the_shipped_file_has_a_variable() -> None:
    shipped: Any = yaml.safe_load((SHIPPED / "settings.yaml").read_text(encoding="utf-8"))

    def keys(values: Mapping[str, Any], above: str = "") -> set[str]:
        return {
            key
            for name, value in values.items()
            for key in (
                keys(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}"}
            )
        }

    assert keys(shipped) <= set(variables())
    assert (
        isinstance(Settings(), Section)
        and variables()["server.processes"] == "RAG_SERVER__PROCESSES"
    )
