"""Quality gates that a release must pass before it is published: `gates.yaml` in the config folder.

notes:                      # a namespace
  - dataset: golden         # a name of config/datasets, or a path relative to this folder
    floors: {retrieval.hit_rate@10: 0.9}
    max_seconds: 60
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, Strict, ValidationError, model_validator

from rag_platform.config.folders import config_dir, config_file, config_files
from rag_platform.config.query import Section
from rag_platform.config.yaml_files import invalid_value, place_of, read_mapping
from rag_platform.errors import ConfigError, did_you_mean

FILENAME = "gates.yaml"
# suffix of a dataset's file to the provider that reads it
DATASET_PROVIDERS = {
    ".jsonl": "jsonl",
    ".yaml": "yaml",
    ".yml": "yaml",
    **dict.fromkeys((".csv", ".tsv", ".xlsx"), "spreadsheet"),
    ".json": "knowledge_json",
}
# what a gate can measure: at the cutoff of a floor's name (`retrieval.mrr@10`), and whole
_RANKED = tuple(f"retrieval.{name}" for name in ("hit_rate", "recall", "mrr", "ndcg"))
_WHOLE = (
    "retrieval.coverage",
    "refusal.right",
    "answer.evidence",
    *(f"citation.{name}" for name in ("precision", "provenance", "coverage", "recall")),
    *(f"generation.{name}" for name in ("faithfulness", "answer_relevancy", "answer_correctness")),
)
_MOST_RANKS = 100  # chosen by hand


def _require_reachable(floor: float) -> float:
    if not 0 <= floor <= 1:
        raise ValueError("every metric is a mean from 0 to 1; write 0.7 for 70 %")
    return floor


def _require_measurable(metric: str) -> str:
    name, _, cutoff = metric.partition("@")
    ranked = name in _RANKED and cutoff.isdecimal() and 1 <= int(cutoff) <= _MOST_RANKS
    if not (ranked or metric in _WHOLE):
        known = [*(f"{name}@K" for name in _RANKED), *_WHOLE]
        near = did_you_mean(metric, [*(f"{name}@{cutoff or 10}" for name in _RANKED), *_WHOLE])
        raise ValueError(
            f"no gate measures {metric}; known: {', '.join(known)}, with K from 1 to"
            f" {_MOST_RANKS}{near}"
        )
    return metric


Metric = Annotated[str, AfterValidator(_require_measurable)]
Floor = Annotated[float, Strict(), AfterValidator(_require_reachable)]


class GateConfig(Section):
    """One dataset by which a namespace's releases are judged."""

    dataset: str = Field(min_length=1)
    # metric to its minimum mean
    floors: dict[Metric, Floor] = Field(default_factory=dict)
    # the share of the questions with something to find that must be about this library
    least_measured: float = Field(default=0.5, ge=0, le=1)
    # whether it must not be significantly worse than the published release, question by question
    not_worse: bool = True
    # of answers, for floors of `generation.*`: rules, llm or a dotted path
    judge: str | None = None
    # time for the questions; a larger dataset is sampled deterministically
    max_seconds: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _name_a_judge(self) -> Self:
        judged = [name for name in self.floors if name.startswith("generation.")]
        if judged and not self.judge:
            raise ValueError(f"the floor of {judged[0]} needs `judge`: rules or llm")
        return self


def read_gates() -> dict[str, tuple[GateConfig, ...]]:
    """Gates by namespace; the shipped file has none. Raises ConfigError naming file and key."""
    path = config_file(FILENAME)
    data = read_mapping(path, code="invalid_gates")
    for name, items in data.items():
        if not isinstance(items, list):
            raise ConfigError(
                f"{place_of(path, [name])}: {name}: must be a library with a list of gates",
                code="invalid_gates",
            )
    gates: dict[str, tuple[GateConfig, ...]] = {}
    for namespace, items in data.items():
        for number, item in enumerate(items):
            try:
                gate = GateConfig.model_validate(item)
            except ValidationError as error:
                raise invalid_value(
                    error, path, [namespace, number], model=GateConfig, code="invalid_gates"
                ) from error
            gates[str(namespace)] = (*gates.get(str(namespace), ()), gate)
    return gates


def dataset_names() -> dict[str, Path]:
    """The datasets of the config folders by name; the user's take precedence."""
    found = [path for path in config_files("datasets") if path.suffix.lower() in DATASET_PROVIDERS]
    return {path.stem: path for path in reversed(found)}


def dataset_path(name: str) -> Path:
    """Where a gate's dataset is, if it exists: whatever the current folder holds, the one of that
    name in config/datasets, or a path from the config folder on.
    """
    return dataset_names().get(name, config_dir() / Path(name).expanduser())


def find_gate_problems(libraries: Callable[[], Iterable[str]] | None = None) -> list[str]:
    """What is wrong with gates.yaml, or a warning for each library in it that is not among
    the existing ones, which `libraries` returns; None checks the file alone.
    """
    try:
        gates = read_gates()
    except ConfigError as error:
        return [
            f"{error.message}; until this is mended, no release is published but by deletions and"
            " rollbacks"
        ]
    if libraries is None or not gates:
        return []
    known, path = set(libraries()), config_file(FILENAME)
    return [
        f"{place_of(path, [name])}: there is no library {name!r}, so its gates judge nothing; mend"
        f" the name, or ingest into it{did_you_mean(name, known)}"
        for name in gates
        if name not in known
    ]
