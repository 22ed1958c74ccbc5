"""Loads prompt files, checks their placeholders, gives each a profile id, and chooses versions.

A prompt is `config/prompts/<purpose>/<name>.yaml` with `system`, `user_template` and optionally
`description`; its later versions are `<purpose>/<name>/v2.yaml` and so on. Only the user template
has placeholders, written `{name}`; `{{` and `}}` are literal braces. The system text is sent
verbatim.

The active version of each prompt and running experiments are in `prompts/active.yaml`, written by
`rag prompts` with author and time; earlier choices stay there, so every change can be rolled back.
A prompt that is not in the file has version 1 and no experiment.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from rag_platform import registry
from rag_platform.config.folders import config_dir, config_folders
from rag_platform.config.query import Section
from rag_platform.config.settings import Strategy, fingerprint
from rag_platform.config.yaml_files import invalid_value, read_mapping
from rag_platform.errors import ConfigError, InputError

if TYPE_CHECKING:  # protocols need numpy, which the server's start does without
    from rag_platform.protocols import Message, Picture

FILENAME = "active.yaml"
_KEYS = ("system", "user_template")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A validated prompt; `profile_id` consists of its name and the fingerprint of its texts."""

    name: str
    profile_id: str
    system: str
    user_template: str
    version: int = 1
    # if an experiment chose it: its id, and `treatment` or `control`
    experiment_id: str = ""
    arm: str = ""

    def user(self, **values: str) -> str:
        """The user message with its placeholders filled. Raises InputError for a missing value."""
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
        """The system and the user message of a call, marked with this prompt for the trace. Raises
        what `user` raises.
        """
        from rag_platform.protocols import Message

        return Message("system", self.system, prompt=self.profile_id), Message(
            "user", self.user(**values), pictures, self.profile_id
        )


def load(name: str, fields: Collection[str], query_hash: str = "") -> Prompt:
    """The prompt `<purpose>/<name>` or `<purpose>/<name>@<version>`, from the user's config folder
    or the shipped one; its placeholders must be exactly `fields`. Without a version it is the
    active one, or during an experiment the one that the hash of the question selects. Raises
    ConfigError.
    """
    name, version, experiment_id, arm = _choose(name, query_hash)
    path = _path(name, version)
    system, template = _read(path)
    _check(path, template, set(fields))
    profile_id = f"{name.replace('/', '.')}-{fingerprint(name, system, template, length=10)}"
    return Prompt(name, profile_id, system, template, version, experiment_id, arm)


def _read(path: Path) -> tuple[str, str]:
    """The system text and the user template of a file."""
    values = read_mapping(path)
    if not all(isinstance(values.get(key), str) and values[key].strip() for key in _KEYS):
        raise ConfigError(f"{path} must hold the texts {' and '.join(_KEYS)}")
    if unknown := sorted(set(values) - {*_KEYS, "description"}):
        raise ConfigError(
            f"{path}: unknown key {unknown[0]!r}; known: {', '.join(_KEYS)}, description"
        )
    return values["system"].strip(), values["user_template"].strip()


def parse_reference(reference: str) -> tuple[str, int]:
    """(name, version) of `<purpose>/<name>@<version>`. Raises ConfigError."""
    name, _, version = reference.partition("@")
    if not version.isdecimal() or int(version) < 1:
        raise ConfigError(f"{reference!r} names no version of a prompt, as in {name}@2")
    return name, int(version)


def _choose(name: str, query_hash: str) -> tuple[str, int, str, str]:
    """(name, version, id and arm of the experiment that chose it, empty without one)."""
    if "@" in name:
        return *parse_reference(name), "", ""
    choice = read_choices().get(name, Choice())
    if choice.experiment is None or not query_hash:
        return name, choice.active.version, "", ""
    arm = choice.experiment.arm(query_hash)
    tried = choice.experiment if arm == "treatment" else choice.active
    return name, tried.version, choice.experiment.experiment_id, arm


def names(purpose: str = "") -> list[str]:
    """The sorted names of the prompts, `<purpose>/<name>`, of all or of one purpose."""
    found = {
        path.relative_to(folder).with_suffix("").as_posix()
        for folder in config_folders("prompts")
        for path in folder.glob("*/*.yaml")
    }
    return sorted(name for name in found if not purpose or name.startswith(f"{purpose}/"))


def versions(name: str) -> dict[int, Path]:
    """Version to file of a prompt, in order; empty for an unknown prompt."""
    found: dict[int, Path] = {}
    for folder in reversed(config_folders("prompts")):
        if (path := folder / f"{name}.yaml").is_file():
            found[1] = path
        for path in (folder / name).glob("v*.yaml"):
            if path.stem[1:].isdecimal() and int(path.stem[1:]) > 1:
                found[int(path.stem[1:])] = path
    return dict(sorted(found.items()))


def wording(purpose: str = "") -> str:
    """A fingerprint of the active versions of all prompts, or of those of a purpose. Unreadable
    files are ignored, as `load` reports them.
    """
    choices = read_choices()
    return fingerprint(
        [
            [name, _text(_path(name, choices.get(name, Choice()).active.version))]
            for name in names(purpose)
        ]
    )


def fingerprint_all() -> str:
    """A fingerprint of all versions of all prompts, and of the choices among them."""
    choices = {name: item.model_dump(mode="json") for name, item in read_choices().items()}
    texts = [[name, n, _text(path)] for name in names() for n, path in versions(name).items()]
    return fingerprint(choices, texts)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _path(name: str, version: int) -> Path:
    if any(part in ("", ".", "..") for part in name.split("/")) or "\\" in name:
        raise ConfigError(f"{name!r} is no name of a prompt; write <purpose>/<name>")
    found, (own, _) = versions(name), config_folders("prompts")
    if not found:
        raise ConfigError(f"there is no prompt {name!r} in {own}; known: {', '.join(names())}")
    if version not in found:
        raise ConfigError(
            f"prompt {name!r} has no version {version}; known:"
            f" {', '.join(map(str, found))}. Write {own / name / f'v{version}.yaml'}"
        )
    return found[version]


def placeholders(name: str, version: int) -> set[str]:
    """The placeholders of a version's user template. Raises ConfigError as `load` does."""
    path = _path(name, version)
    _, template = _read(path)
    return _placeholders(path, template)


def _check(path: Path, template: str, fields: set[str]) -> None:
    """Raises ConfigError unless the placeholders are exactly `fields`."""
    used = _placeholders(path, template)
    if unknown := sorted(used - fields):
        raise ConfigError(
            f"{path}: user_template names {{{unknown[0]}}}; known: {', '.join(sorted(fields))}"
        )
    if missing := sorted(fields - used):
        raise ConfigError(f"{path}: user_template leaves out {{{missing[0]}}}")


def _placeholders(path: Path, template: str) -> set[str]:
    try:
        parts = [part for part in Formatter().parse(template) if part[1] is not None]
    except ValueError as error:
        raise ConfigError(
            f"{path}: user_template is not well formed: {error}; write a brace as {{{{ or }}}}"
        ) from error
    used = {str(field) for _, field, _, _ in parts}
    if any(spec or conversion for _, _, spec, conversion in parts):
        raise ConfigError(f"{path}: placeholders are plain names, without `:` and `!`")
    return used


# --- versions in use ----------------------------------------------------------------------------


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


def write_choice(name: str, choice: Choice) -> Choice:
    """Replace a prompt's choice and return it. Raises ConfigError if the folder is not writable."""
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
    return choice


# --- choosing versions ----------------------------------------------------------------------------


# purposes of prompts that belong to a single question, so that questions can be split between them
QUESTION_PURPOSES = ("query", "rerank", "retrieval")


@dataclass(frozen=True, slots=True)
class PromptVersion:
    """One version; `status` is active, trial, retired (active once) or draft."""

    name: str
    version: int
    status: str
    path: Path
    by: str = ""
    at: datetime | None = None
    share: float | None = None  # of the questions, if it is on trial


def list_versions(name: str = "") -> list[PromptVersion]:
    """All versions of a prompt, or of all prompts. Raises ConfigError for an unknown prompt."""
    wanted = [name] if name else names()
    return [
        _describe(each, version, path, choice)
        for each in wanted
        for choice in [read_choice(each)]
        for version, path in versions(each).items()
    ]


def read_choice(name: str) -> Choice:
    """The current choice among a prompt's versions. Raises ConfigError for an unknown prompt."""
    placeholders(name, 1)
    return read_choices().get(name, Choice())


def _describe(name: str, version: int, path: Path, choice: Choice) -> PromptVersion:
    if version == choice.active.version:
        return PromptVersion(name, version, "active", path, choice.active.by, choice.active.at)
    if (trial := choice.experiment) is not None and trial.version == version:
        return PromptVersion(name, version, "trial", path, trial.by, trial.at, trial.share)
    earlier = [item for item in choice.before if item.version == version]
    if earlier:
        return PromptVersion(name, version, "retired", path, earlier[-1].by, earlier[-1].at)
    return PromptVersion(name, version, "draft", path)


def diff_versions(before: str, after: str) -> str:
    """What changed between two versions, as a unified diff of their files."""
    texts = []
    for reference in (before, after):
        name, version = parse_reference(reference)
        placeholders(name, version)
        texts.append(versions(name)[version].read_text(encoding="utf-8").splitlines())
    return "\n".join(difflib.unified_diff(texts[0], texts[1], before, after, lineterm=""))


def activate(reference: str, by: str) -> Choice:
    """Make a version the active one; an experiment with it ends. Raises InputError `same_version`,
    `other_placeholders`.
    """
    name, version, choice = _read_candidate(reference)
    tried = choice.experiment
    return write_choice(
        name,
        Choice(
            active=Chosen(version=version, by=by, at=datetime.now(UTC)),
            before=(*choice.before, choice.active),
            experiment=None if tried is not None and tried.version == version else tried,
        ),
    )


def rollback(name: str, by: str) -> Choice:
    """Activate the previously active version, and end the experiment. Raises InputError
    `no_version_before`.
    """
    choice = read_choice(name)
    if not choice.before:
        raise InputError(
            f"no other version of prompt {name!r} was active before {choice.active.version}",
            code="no_version_before",
        )
    *earlier, last = choice.before
    active = last.model_copy(update={"by": by, "at": datetime.now(UTC)})
    return write_choice(name, Choice(active=active, before=tuple(earlier)))


def start_experiment(reference: str, share: float, by: str) -> Choice:
    """Use a version for a share of the questions; replaces a running experiment. Raises InputError
    `not_of_questions`, and what `activate` raises.
    """
    name, version, choice = _read_candidate(reference)
    if name.partition("/")[0] not in QUESTION_PURPOSES:
        raise InputError(
            f"prompt {name!r} belongs to no single question, so questions cannot be shared between"
            f" its versions; those of {', '.join(QUESTION_PURPOSES)} can",
            code="not_of_questions",
        )
    experiment = Experiment(
        experiment_id=f"exp_{uuid.uuid4().hex[:12]}",
        version=version,
        share=share,
        by=by,
        at=datetime.now(UTC),
    )
    return write_choice(name, choice.model_copy(update={"experiment": experiment}))


def require_experiment(name: str) -> Experiment:
    """The running experiment of a prompt. Raises InputError `no_experiment`."""
    found = read_choice(name).experiment
    if found is None:
        raise InputError(
            f"no experiment runs with prompt {name!r}; `rag prompts split {name}@VERSION` starts"
            " one",
            code="no_experiment",
        )
    return found


def end_experiment(name: str) -> Choice:
    """End the experiment of a prompt. Raises InputError `no_experiment`."""
    require_experiment(name)
    return write_choice(name, read_choice(name).model_copy(update={"experiment": None}))


def use_prompt(strategy: Strategy, reference: str) -> Strategy:
    """The strategy with a fixed version of a prompt. Raises InputError `prompt_unused` if the
    strategy does not use that prompt.
    """
    name, version = parse_reference(reference)
    placeholders(name, version)
    parts = {"retrieval": "answerer", "rerank": "reranker"}
    purpose = name.partition("/")[0]
    if name == "query/rewrite":
        rewrite = strategy.query.rewrite.model_copy(update={"prompt": reference})
        query = strategy.query.model_copy(update={"rewrite": rewrite})
        return strategy.model_copy(update={"query": query})
    part = parts.get(purpose, "")
    config = getattr(strategy, part, None)
    if config is None or not registry.traits(part, config.provider).uses_llm:
        raise InputError(
            f"strategy {strategy.name!r} sends no prompt {name!r}; set"
            f" {part or purpose}.provider: llm in it",
            code="prompt_unused",
        )
    own = {"prompt": reference}
    update = own if part == "answerer" else {"options": {**config.options, **own}}
    return strategy.model_copy(update={part: config.model_copy(update=update)})


def _read_candidate(reference: str) -> tuple[str, int, Choice]:
    name, version = parse_reference(reference)
    choice = read_choice(name)
    if version == choice.active.version:
        raise InputError(f"{reference} is the active version already", code="same_version")
    expected, given = placeholders(name, 1), placeholders(name, version)
    if given != expected:
        raise InputError(
            f"{reference} has the placeholders {', '.join(sorted(given)) or 'none'}; the program"
            f" fills {', '.join(sorted(expected))}",
            code="other_placeholders",
        )
    return name, version, choice
