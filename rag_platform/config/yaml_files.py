"""Reads YAML files, and names the file and the line of a value that is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import yaml

from rag_platform.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

# equivalent to SafeLoader, ten times as fast
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_mapping(path: Path, *, code: str = "invalid_config") -> dict[str, Any]:
    """The mapping in a YAML file, empty for an empty file. Raises ConfigError, also for a repeated
    key, of which YAML would keep the last.
    """
    try:
        loader = YAML_LOADER(path.read_text(encoding="utf-8-sig"))
        node = loader.get_single_node()
        for key, first, second in _repeated_keys(node):
            raise ConfigError(
                f"{path}:{second}: {key!r} is given twice, first in line {first}; keep one of them",
                code=code,
            )
        loaded = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ConfigError(f"{place}: this is no YAML: {error.problem}", code=code) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path}:{line}: this is no UTF-8; save it as UTF-8", code=code
        ) from error
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {error}", code=code) from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path} must hold a mapping, not {type(loaded).__name__}", code=code)
    return loaded


def _repeated_keys(top: yaml.Node | None) -> Iterator[tuple[str, int, int]]:
    """(key, first line, second line) of each repeated key."""
    pending, seen = [top], set()
    while pending:
        node = pending.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))  # an alias is the same node
        if isinstance(node, yaml.SequenceNode):
            pending += node.value
            continue
        lines: dict[tuple[str, str], int] = {}
        for key, value in node.value:
            pending.append(value)
            if isinstance(key, yaml.ScalarNode):
                name, line = (key.tag, key.value), key.start_mark.line + 1
                if name in lines:
                    yield key.value, lines[name], line
                lines[name] = line


def packaged_yaml(path: Path) -> Any:
    """The data of a YAML file of the package."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=YAML_LOADER)


def invalid_value(
    error: ValidationError,
    path: Path,
    keys: Sequence[object] = (),
    *,
    model: type[BaseModel] | None = None,
    variables: Mapping[str, str] | None = None,
    code: str = "invalid_config",
) -> ConfigError:
    """The error for the first value of a file that its model rejects; `keys` is the path of the
    validated part of the file, `variables` has the keys that were set by the environment.
    """
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"])).removesuffix(".[key]") or "(top)"
    message = first["msg"].removeprefix("Value error, ")
    set_by = (var for name, var in (variables or {}).items() if f"{key}.".startswith(f"{name}."))
    place = next(set_by, "") or place_of(path, [*keys, *first["loc"]])
    if first["type"] == "extra_forbidden" and (known := sorted(_fields(model, first["loc"][:-1]))):
        hint = did_you_mean(key.rpartition(".")[2], known)
        message = f"{key}: no such setting; known: {', '.join(known)}{hint}"
    # a message about several settings names them
    elif first["loc"] or first["type"] != "value_error":
        message = f"{key}: {message} (value: {first['input']!r:.200})"
    return ConfigError(f"{place}: {message}", code=code)


def _fields(model: Any, keys: Sequence[object]) -> Iterable[str]:
    """The names of the settings below a key, if they are known."""
    for key in keys:
        kind = model if isinstance(key, int) else model.model_fields[key].annotation
        parts = (kind, *get_args(kind))  # of a list or an optional section
        model = next((part for part in parts if hasattr(part, "model_fields")), None)
        if model is None:
            return ()
    return getattr(model, "model_fields", ())


def place_of(path: Path, keys: Sequence[object]) -> str:
    """`file:line` of the key at the path `keys`, or of its deepest existing parent."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=YAML_LOADER)
    except (OSError, yaml.YAMLError):
        return str(path)
    line = 0
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == str(key)), None)
        elif isinstance(node, yaml.SequenceNode) and str(key).isdecimal():
            items = node.value[int(str(key)) : int(str(key)) + 1]
            found = (items[0], items[0]) if items else None
        else:
            found = None
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return f"{path}:{line}" if line else str(path)
