"""What a release must reach before it is published: `gates.yaml` in the config folder.

notes:                      # a namespace
  - dataset: golden         # a name of config/datasets, or a path
    floors: {retrieval.hit_rate@10: 0.9}
    max_seconds: 60
"""

from __future__ import annotations

from typing import Any, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from rag_platform.config.folders import config_file
from rag_platform.config.query import Section
from rag_platform.config.validation import place_of
from rag_platform.errors import ConfigError

FILENAME = "gates.yaml"


class GateConfig(Section):
    """One dataset that a namespace's releases are judged by."""

    dataset: str = Field(min_length=1)
    # least mean by metric
    floors: dict[str, float] = Field(default_factory=dict)
    # whether it must not be significantly worse than the published release, question by question
    not_worse: bool = True
    # of answers, for floors of `generation.*`: rules, llm or a dotted path
    judge: str | None = None
    # of the questions' own time; a larger dataset is sampled, always alike
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
    keys: list[Any] = []  # of the gate that is read
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        if not isinstance(data, dict) or not all(isinstance(v, list) for v in data.values()):
            raise ConfigError(
                f"{path} must name namespaces, each with a list of gates", code="invalid_gates"
            )
        gates: dict[str, list[GateConfig]] = {}
        for namespace, items in data.items():
            for number, item in enumerate(items):
                keys = [namespace, number]
                gates.setdefault(str(namespace), []).append(GateConfig.model_validate(item))
        return {namespace: tuple(items) for namespace, items in gates.items()}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}", code="invalid_gates") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        place = place_of(path, [*keys, *first["loc"]])
        raise ConfigError(f"{place}: {key}: {first['msg']}", code="invalid_gates") from error
