"""Reading makes nothing: no folder, no file, neither where it runs nor in HOME."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from rag_platform.cli.main import main

# commands that write, start another process, or take a lock to do so, before they look at data
WRITES = {
    ("demo",),
    ("init",),
    ("ingest",),
    ("gc",),  # without --plan
    ("token", "create"),
    ("token", "revoke"),
    ("mcp", "doctor"),  # starts the installed server
    ("serve",),  # reads its input until it ends
    ("ui",),
    ("dagster",),
    ("expect", "add"),
    ("eval", "import"),
    *(("releases", name) for name in ("publish", "rollback", "forward", "pin", "unpin")),
}


def commands(
    group: click.Group, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))
        else:
            yield (*above, name), command


def words(command: click.Command) -> list[str]:
    """Something for everything that the command must be given."""
    found: list[str] = []
    for wanted in command.params:
        if wanted.required:
            name = [wanted.opts[0]] if isinstance(wanted, click.Option) else []
            found += [*name, "1" if isinstance(wanted.type, click.types.IntParamType) else "x"]
    return found


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in and an empty HOME, both below it; no variable names another."""
    for name in ("RAG_HOME", "RAG_CONFIG", "RAG_STRATEGY", "RAG_NAMESPACE", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("work", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def test_reading_in_an_empty_folder_leaves_it_empty(nowhere: Path) -> None:
    for path, command in commands(main):
        if path in WRITES:
            continue
        CliRunner().invoke(main, [*path, *words(command)])
        assert sorted(p.name for p in nowhere.rglob("*")) == ["home", "work"], path
    CliRunner().invoke(main, ["gc", "--plan"])
    CliRunner().invoke(main, ["gc", "--prove", "x"])
    assert sorted(p.name for p in nowhere.rglob("*")) == ["home", "work"]


def test_the_first_mistakes_are_answered_with_what_to_do(nowhere: Path) -> None:
    """In an empty library: a question, a proof, a file that is not there, and a group's help."""
    for words_given in (["query", "x", "--namespace", "notes"], ["verify", "--all"]):
        ended = CliRunner().invoke(main, words_given)
        assert ended.exit_code == 1 and "run `rag ingest" in ended.output
    (nowhere / "work" / "report.pdf").touch()
    ended = CliRunner().invoke(main, ["preview", "reprot.pdf"])
    assert ended.exit_code == 2
    assert "no file or folder at reprot.pdf; did you mean 'report.pdf'?" in ended.output
    assert "..." not in CliRunner().invoke(main, ["docs", "--help"]).output.partition("Commands")[2]


def test_dagsters_pages_need_a_free_port(nowhere: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = CliRunner().invoke(main, ["dagster", "--port", str(taken.getsockname()[1])])
    assert ended.exit_code == 1 and "error [cannot_listen]: port" in ended.output
    assert sorted(path.name for path in nowhere.rglob("*")) == ["home", "work"]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ((), "home/.local/share/rag-platform"),
        (("data/notes.csv",), "home/.local/share/rag-platform"),  # somebody else's data
        (("data/",), "work/data"),
        (("data/ledger.sqlite",), "work/data"),
        (("data/configs/scfg_1.json",), "work/data"),  # its ledger is a database
    ],
)
def test_the_data_root_without_a_setting(
    nowhere: Path, made: tuple[str, ...], expected: str
) -> None:
    from rag_platform.config.settings import load_settings

    for name in made:
        path = nowhere / "work" / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True)
        if not name.endswith("/"):
            path.touch()
    assert load_settings().home == nowhere / expected


def test_a_config_of_ones_own_wins_file_by_file(nowhere: Path) -> None:
    from rag_platform.config.folders import SHIPPED
    from rag_platform.config.settings import load_settings
    from rag_platform.config.strategies import load_strategy, strategy_names

    own = nowhere / "home" / ".config" / "rag-platform"
    ended = CliRunner().invoke(main, ["init"])
    assert ended.exit_code == 0 and str(own) in ended.output
    assert (own / "settings.yaml").read_bytes() == (SHIPPED / "settings.yaml").read_bytes()
    (own / "settings.yaml").write_text("default_strategy: mine\n", encoding="utf-8")
    text = (own / "strategies" / "fast.yaml").read_text(encoding="utf-8")
    (own / "strategies" / "mine.yaml").write_text(
        text.replace("feedback_hits: 3", "feedback_hits: 2"), encoding="utf-8"
    )
    (own / "strategies" / "duo.yaml").unlink()
    settings = load_settings()
    assert strategy_names(settings) == ["default", "duo", "fast", "mine", "scans"]
    assert load_strategy(settings).retrieval.feedback_hits == 2
    kept = CliRunner().invoke(main, ["init", "--json"])
    assert '"strategies/duo.yaml"' in kept.stdout.partition('"kept"')[0]
    assert load_settings().default_strategy == "mine"


def test_a_config_folder_that_is_not_there_is_named(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_CONFIG", str(nowhere / "typo"))
    ended = CliRunner().invoke(main, ["status"])
    assert ended.exit_code == 1 and f"RAG_CONFIG names {nowhere / 'typo'}" in ended.output


def test_doctor_names_a_default_strategy_that_does_not_exist(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nowhere / "settings.yaml").write_text("default_strategy: fats\n", encoding="utf-8")
    monkeypatch.setenv("RAG_CONFIG", str(nowhere))
    ended = CliRunner().invoke(main, ["doctor"])
    assert ended.exit_code == 1 and "did you mean 'fast'?" in ended.output
    assert f"{nowhere / 'settings.yaml'}:1: unknown strategy 'fats'" in ended.output
    monkeypatch.setenv("RAG_STRATEGY", "fsat")
    ended = CliRunner().invoke(main, ["doctor"])
    assert "RAG_STRATEGY: unknown strategy 'fsat'" in ended.output


def test_the_shell_is_offered_what_there_is(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of libraries, strategies and documents; where there is no library yet, none."""
    (nowhere / "home" / "releases" / "notes").mkdir(parents=True)
    (nowhere / "home" / "releases" / "notes" / "CURRENT").write_text("x", encoding="utf-8")
    monkeypatch.setenv("RAG_HOME", str(nowhere / "home"))

    def offered(*words: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", " ".join(("rag", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        monkeypatch.setenv("_RAG_COMPLETE", "bash_complete")
        with pytest.raises(SystemExit):
            main(prog_name="rag")
        return capsys.readouterr().out.split()

    assert offered("query", "--namespace", "n") == ["plain,notes"]
    assert offered("ingest", "--strategy", "s") == ["plain,scans"]
    assert offered("docs", "show", "--namespace", "notes", "k") == []
    assert offered("ingest", "pap") == ["file,pap"]


def test_windows_is_refused_at_the_start(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rag_platform.storage import locks

    monkeypatch.setattr(locks, "os", SimpleNamespace(name="nt"))
    ended = CliRunner().invoke(main, ["status"])
    assert ended.exit_code == 1 and "WSL2" in ended.output
