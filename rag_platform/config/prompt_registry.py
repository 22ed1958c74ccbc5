"""The versions of prompts: lists them, activates one, and runs experiments.

Every change is recorded in `prompts/active.yaml` with author and time, and nothing is deleted, so
every change can be rolled back.
"""

from __future__ import annotations

import difflib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rag_platform import registry
from rag_platform.config import prompts
from rag_platform.config.prompts import (
    Choice,
    Chosen,
    Experiment,
    read_choices,
    write_choice,
)
from rag_platform.config.settings import Strategy
from rag_platform.errors import InputError

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
    wanted = [name] if name else prompts.names()
    return [
        _describe(each, version, path, choice)
        for each in wanted
        for choice in [read_choice(each)]
        for version, path in prompts.versions(each).items()
    ]


def read_choice(name: str) -> Choice:
    """The current choice among a prompt's versions. Raises ConfigError for an unknown prompt."""
    prompts.placeholders(name, 1)
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
        name, version = prompts.parse_reference(reference)
        prompts.placeholders(name, version)
        texts.append(prompts.versions(name)[version].read_text(encoding="utf-8").splitlines())
    return "\n".join(difflib.unified_diff(texts[0], texts[1], before, after, lineterm=""))


def activate(reference: str, by: str) -> Choice:
    """Make a version the active one; an experiment with it ends. Raises InputError `same_version`,
    `other_placeholders`.
    """
    name, version, choice = _read_candidate(reference)
    tried = choice.experiment
    return _keep(
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
            f"prompt {name!r} has had no other version than {choice.active.version}",
            code="no_version_before",
        )
    *earlier, last = choice.before
    active = last.model_copy(update={"by": by, "at": datetime.now(UTC)})
    return _keep(name, Choice(active=active, before=tuple(earlier)))


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
    return _keep(name, choice.model_copy(update={"experiment": experiment}))


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
    return _keep(name, read_choice(name).model_copy(update={"experiment": None}))


def use_prompt(strategy: Strategy, reference: str) -> Strategy:
    """The strategy with a fixed version of a prompt. Raises InputError `prompt_unused` if the
    strategy does not use that prompt.
    """
    name, version = prompts.parse_reference(reference)
    prompts.placeholders(name, version)
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
    name, version = prompts.parse_reference(reference)
    choice = read_choice(name)
    if version == choice.active.version:
        raise InputError(f"{reference} is the active version already", code="same_version")
    expected, given = prompts.placeholders(name, 1), prompts.placeholders(name, version)
    if given != expected:
        raise InputError(
            f"{reference} has the placeholders {', '.join(sorted(given)) or 'none'}; the program"
            f" fills {', '.join(sorted(expected))}",
            code="other_placeholders",
        )
    return name, version, choice


def _keep(name: str, choice: Choice) -> Choice:
    write_choice(name, choice)
    return choice
