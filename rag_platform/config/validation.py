"""Reads config files, locates values in them, and validates strategies: their providers, the types
of options, required extras.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import yaml

from rag_platform import registry
from rag_platform.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    # it imports this module
    from rag_platform.config.settings import Strategy

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
    key = ".".join(map(str, first["loc"])) or "(top)"
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


# Used only by ingestion; loading these engines would delay a question by half a second.
_INGESTION = frozenset({"loader", "ocr", "sectioner", "chunker", "lexical_index", "dense_index"})
# can be built without a model and without optional packages
_PLAIN = _INGESTION - {"ocr"} | {"fusion"}


@dataclass(frozen=True, slots=True)
class Named:
    """A provider in a strategy; `key` is the path of its options in the file."""

    key: str
    kind: str
    name: str
    options: Mapping[str, Any]


def check(strategy: Strategy, path: Path, *, ingestion: bool = False) -> None:
    """Raise ConfigError, with file, line, key and remedy, for an unknown provider or option, an
    option of a wrong type, or a missing extra. With `ingestion`, also check options that only
    ingestion uses, and whether their providers accept the values.
    """
    for named in providers(strategy):
        if named.kind in _INGESTION and not ingestion:
            continue
        try:
            _check(named)
            if ingestion and named.kind in _PLAIN:
                registry.make_provider(named.kind, named.name, named.options)
        except ConfigError as error:
            *above, _ = named.key.split(".")
            about = error.details.get("about", "options")
            keys = [*above, about, error.details.get("option", "")]
            raise ConfigError(
                f"{place_of(path, keys)}: {'.'.join([*above, about])}: {error.message}",
                code=error.code,
            ) from error


def _check(named: Named) -> None:
    registry.require_name(named.kind, named.name)
    registry.require_extra(named.kind, named.name)
    if not named.options:
        return
    try:
        cls = registry.provider_class(named.kind, named.name)
    except ConfigError as error:
        # a package is not installed, which building the provider reports
        if isinstance(error.__cause__, ImportError):
            return
        raise
    registry.require_options(named.kind, named.name, cls, named.options)


_KINDS = {
    "sectioner": "sectioner",
    "chunker": "chunker",
    "lexical": "lexical_index",
    "dense": "dense_index",
    "fusion": "fusion",
    "reranker": "reranker",
    "answerer": "answerer",
    "llm": "llm",
}


def providers(strategy: Strategy) -> Iterator[Named]:
    """All providers in the strategy, including those in the options of others."""

    def named(key: str, kind: str, config: Any) -> Named:
        return Named(f"{key}.options", kind, config.provider, config.options)

    for number, loader in enumerate(strategy.loading.loaders):
        yield named(f"loading.loaders.{number}", "loader", loader)
    captions = strategy.media_texts.captions
    preset = captions.preset and captions.provider == "none"
    yield named("media_texts.ocr", "ocr", strategy.media_texts.ocr)
    yield Named(
        "media_texts.captions.options",
        "llm",
        "openai" if preset else captions.provider,
        captions.options,
    )
    yield named("views.describe", "llm", strategy.views.describe)
    for key, kind in _KINDS.items():
        yield named(key, kind, getattr(strategy, key))
    for key, own in (
        ("query.rewrite.llm", strategy.query.rewrite.llm),
        ("answerer.llm", strategy.answerer.llm),
        ("summary.llm", strategy.summary.llm),
    ):
        if own is not None:
            yield named(key, "llm", own)
    yield from _inside("reranker.options.llm", "llm", strategy.reranker.options.get("llm"))
    yield from _embedders("embedding", strategy.embedding.provider, strategy.embedding.options)
    options = strategy.chunker.options
    if options.get("embedder"):
        yield from _embedders(
            "chunker.options.embedder",
            str(options["embedder"]),
            options.get("embedder_options") or {},
        )


def _embedders(key: str, name: str, options: Mapping[str, Any]) -> Iterator[Named]:
    """The embedder, and the parts of a joined one."""
    yield Named(f"{key}.options", "embedder", name, options)
    parts = options.get("parts")
    for number, part in enumerate(parts if isinstance(parts, (list, tuple)) else ()):
        yield from _inside(f"{key}.options.parts.{number}", "embedder", part)


def _inside(key: str, kind: str, value: object) -> Iterator[Named]:
    """The provider in the options of another one, if there is one."""
    if isinstance(value, Mapping) and value.get("provider"):
        yield Named(f"{key}.options", kind, str(value["provider"]), value.get("options") or {})
