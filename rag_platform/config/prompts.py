"""Prompt files: loaded, their placeholders checked, each with its profile id.

A prompt is `config/prompts/<purpose>/<name>.yaml` with `system`, `user_template` and, if wanted,
`description`. Only the user template has placeholders, written `{name}`; `{{` and `}}` stand for
braces. The system text is sent as it is written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING

import yaml

from rag_platform.config.folders import config_folders
from rag_platform.config.settings import fingerprint
from rag_platform.errors import ConfigError, InputError

if TYPE_CHECKING:  # protocols need numpy, which the server's start does without
    from rag_platform.protocols import Message, Picture

_KEYS = ("system", "user_template")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A checked prompt; `profile_id` is its name and the fingerprint of its texts: another wording
    is another profile.
    """

    name: str
    profile_id: str
    system: str
    user_template: str

    def user(self, **values: str) -> str:
        """The user message with its placeholders filled. Raises InputError naming a placeholder
        without a value.
        """
        try:
            return self.user_template.format_map(values)
        except KeyError as error:
            raise InputError(
                f"prompt {self.name!r} needs a value for {error.args[0]!r}; given:"
                f" {', '.join(sorted(values))}"
            ) from None

    def messages(
        self, pictures: tuple[Picture, ...] = (), **values: str
    ) -> tuple[Message, Message]:
        """The system and the user message of a call, which name this prompt in the trace. Raises as
        `user` does.
        """
        from rag_platform.protocols import Message

        return Message("system", self.system, prompt=self.profile_id), Message(
            "user", self.user(**values), pictures, self.profile_id
        )


def load(name: str, fields: Collection[str]) -> Prompt:
    """The prompt `<purpose>/<name>`; its placeholders must be exactly `fields`. Raises ConfigError
    naming the file and what is wrong.

    A config folder without the file falls back on the shipped prompts.
    """
    path = _path(name)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the prompt {path}: {error}") from error
    if not isinstance(values, dict) or not all(
        isinstance(values.get(key), str) and values[key].strip() for key in _KEYS
    ):
        raise ConfigError(f"{path} must hold the texts {' and '.join(_KEYS)}")
    if unknown := sorted(set(values) - {*_KEYS, "description"}):
        raise ConfigError(
            f"{path}: unknown key {unknown[0]!r}; known: {', '.join(_KEYS)}, description"
        )
    system, template = values["system"].strip(), values["user_template"].strip()
    _check(path, template, set(fields))
    profile_id = f"{name.replace('/', '.')}-{fingerprint(name, system, template, length=10)}"
    return Prompt(name, profile_id, system, template)


def names(purpose: str = "") -> list[str]:
    """The names of the prompts in force, `<purpose>/<name>`, sorted; of one purpose when it is
    named.
    """
    found = {
        path.relative_to(folder).with_suffix("").as_posix()
        for folder in config_folders("prompts")
        for path in folder.rglob("*.yaml")
    }
    return sorted(name for name in found if not purpose or name.startswith(f"{purpose}/"))


def wording(purpose: str = "") -> str:
    """A fingerprint over the files of all prompts in force, or of those of a purpose; a file that
    cannot be read is reported by `load`.
    """

    def text(path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    return fingerprint([[name, text(_path(name))] for name in names(purpose)])


def _path(name: str) -> Path:
    if any(part in ("", ".", "..") for part in name.split("/")) or "\\" in name:
        raise ConfigError(f"{name!r} is no name of a prompt; write <purpose>/<name>")
    for folder in config_folders("prompts"):
        path = folder / f"{name}.yaml"
        if path.is_file():
            return path
    raise ConfigError(
        f"there is no prompt {name!r} in {config_folders('prompts')[0]}; known:"
        f" {', '.join(names())}"
    )


def _check(path: Path, template: str, fields: set[str]) -> None:
    """Raises ConfigError for a placeholder that nobody fills, and for an input that the template
    leaves out.
    """
    try:
        parts = [part for part in Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        raise ConfigError(
            f"{path}: user_template is not well formed: {error}; write a brace as {{{{ or }}}}"
        ) from error
    used = {str(field) for _, field, _, _ in parts}
    if any(spec or conversion for _, _, spec, conversion in parts):
        raise ConfigError(f"{path}: placeholders are plain names, without `:` and `!`")
    if unknown := sorted(used - fields):
        raise ConfigError(
            f"{path}: user_template names {{{unknown[0]}}}; known: {', '.join(sorted(fields))}"
        )
    if missing := sorted(fields - used):
        raise ConfigError(f"{path}: user_template leaves out {{{missing[0]}}}")
