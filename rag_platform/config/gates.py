"""Quality gates that a release must pass before it is published: `gates.yaml` in the config folder.

notes:                      # a namespace
  - dataset: golden         # a name of config/datasets, or a path relative to this folder
    floors: {retrieval.hit_rate@10: 0.9}
    max_seconds: 60
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from rag_platform.config.folders import config_file
from rag_platform.config.query import Section
from rag_platform.config.yaml_files import invalid_value, place_of, read_mapping
from rag_platform.errors import ConfigError, did_you_mean

FILENAME = "gates.yaml"


def _require_reachable(floor: float) -> float:
    if not 0 <= floor <= 1:
        raise ValueError("every metric is a mean from 0 to 1; write 0.7 for 70 %")
    return floor


Floor = Annotated[float, AfterValidator(_require_reachable)]


class GateConfig(Section):
    """One dataset by which a namespace's releases are judged."""

    dataset: str = Field(min_length=1)
    # metric to its minimum mean
    floors: dict[str, Floor] = Field(default_factory=dict)
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
