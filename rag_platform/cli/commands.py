"""Commands that are imported when they are used, so that the program starts fast."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping

import click


class Commands(MutableMapping[str, click.Command]):
    """Commands by name, each imported at first access from its `module:function` in this
    package.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._commands: dict[str, click.Command | str] = dict(places)

    def __getitem__(self, name: str) -> click.Command:
        found = self._commands[name]
        if isinstance(found, str):
            module, _, function = found.partition(":")
            made = getattr(importlib.import_module(f"rag_platform.cli.{module}"), function)
            found = self._commands[name] = made
        return found

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)
