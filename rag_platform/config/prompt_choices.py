"""The active version of each prompt, and running experiments: `prompts/active.yaml` in the config
folder, written by `rag prompts`. A prompt that is not in the file has version 1 and no experiment.
"""

from __future__ import annotations

import hashlib
import os
from datetime import datetime
from pathlib import Path

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from rag_platform.config.folders import config_dir
from rag_platform.config.query import Section
from rag_platform.config.validation import invalid_value, read_mapping
from rag_platform.errors import ConfigError

FILENAME = "active.yaml"


class Chosen(Section):
    """A version that was activated, by whom and when."""

    version: int = Field(default=1, ge=1)
    by: str = ""
    at: datetime | None = None  # None: the initial version


class Experiment(Section):
    """A version that is used instead of the active one for a share of the questions."""

    experiment_id: str
    version: int = Field(ge=1)
    share: float = Field(gt=0, lt=1)
    by: str = ""
    at: datetime

    def arm(self, query_hash: str) -> str:
        """`treatment` or `control`, determined by the question."""
        drawn = hashlib.sha256(f"{self.experiment_id}:{query_hash}".encode()).digest()
        return "treatment" if int.from_bytes(drawn[:8]) < self.share * 2**64 else "control"


class Choice(Section):
    """The active version, the previously active ones, oldest first, and a running experiment."""

    active: Chosen = Chosen()
    before: tuple[Chosen, ...] = ()
    experiment: Experiment | None = None


_FILE = TypeAdapter(dict[str, Choice])


def choices_path() -> Path:
    return config_dir() / "prompts" / FILENAME


def read_choices() -> dict[str, Choice]:
    """Prompt name to choice. Raises ConfigError for an invalid file."""
    path = choices_path()
    if not path.is_file():
        return {}
    try:
        return _FILE.validate_python(read_mapping(path))
    except ValidationError as error:
        raise invalid_value(error, path) from error


def write_choice(name: str, choice: Choice) -> None:
    """Replace the choice of one prompt. Raises ConfigError if the folder cannot be written."""
    path = choices_path()
    data = _FILE.dump_python(
        {**read_choices(), name: choice}, mode="json", exclude_none=True, exclude_defaults=True
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(yaml.safe_dump(data, sort_keys=True), encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error}") from error
