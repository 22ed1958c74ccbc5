"""Commands are imported when they are used, and every place that the program names is there."""

from __future__ import annotations

import click
import pytest

from rag_platform.cli.main import Commands, main


def test_a_command_is_imported_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(
        "rag_platform.cli.main.importlib.import_module", lambda name: imported.append(name)
    )
    commands = Commands({"query": "reading:query", "serve": "serving:serve"})
    assert (list(commands), len(commands)) == (["query", "serve"], 2)
    assert imported == []
    with pytest.raises(AttributeError):  # of what is imported here
        commands["serve"]
    assert imported == ["rag_platform.cli.serving"]
    assert "ask" not in commands


def test_every_place_holds_the_command_of_its_name() -> None:
    assert isinstance(main.commands, Commands)
    for name, command in main.commands.items():
        assert isinstance(command, click.Command)
        assert command.name == name


def test_groups_have_the_commands_of_all_their_modules() -> None:
    evaluation, trace = main.commands["eval"], main.commands["trace"]
    assert isinstance(evaluation, click.Group)
    assert {"run", "promote", "canaries", "drift", "sample", "gaps"} <= set(evaluation.commands)
    assert isinstance(trace, click.Group)
    assert "replay" in trace.commands
