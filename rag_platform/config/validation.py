"""Reads config files, says where in a file a value stands, and checks whether a strategy can be
used: its providers, the types of their options, the extras that they need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rag_platform import registry
from rag_platform.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import ValidationError

    # which checks what it loads by this module
    from rag_platform.config.settings import Strategy

# the same values as by SafeLoader, read in a tenth of the time
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_mapping(path: Path, *, code: str = "invalid_config") -> dict[str, Any]:
    """The mapping that a YAML file holds; an empty file holds an empty one. Raises ConfigError,
    also for a key that is given twice, of which YAML would keep the last.
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
    """Each key that a mapping holds twice, with both lines."""
    waiting, seen = [top], set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))  # an alias stands for the same node
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
            continue
        lines: dict[tuple[str, str], int] = {}
        for key, value in node.value:
            waiting.append(value)
            if isinstance(key, yaml.ScalarNode):
                name, line = (key.tag, key.value), key.start_mark.line + 1
                if name in lines:
                    yield key.value, lines[name], line
                lines[name] = line


def packaged_yaml(path: Path) -> Any:
    """The data of a YAML file that belongs to the package."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=YAML_LOADER)


def invalid_value(
    error: ValidationError, path: Path, keys: Sequence[object] = (), *, code: str = "invalid_config"
) -> ConfigError:
    """The error that names the first value of a file which its model rejects; `keys` lead to the
    part of the file that was validated.
    """
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"])) or "(top)"
    message = first["msg"].removeprefix("Value error, ")
    place = place_of(path, [*keys, *first["loc"]])
    return ConfigError(f"{place}: {key}: {message} (value: {first['input']!r:.200})", code=code)


def place_of(path: Path, keys: Sequence[object]) -> str:
    """`file:line` of the key that the keys lead to, as far as they lead in the file."""
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


# What only ingestion uses: loading the modules of its engines would cost a question half a second.
_INGESTION = frozenset({"loader", "ocr", "sectioner", "chunker", "lexical_index", "dense_index"})
# can be made without a model and without a package that may be missing
_PLAIN = _INGESTION - {"ocr"} | {"fusion"}


@dataclass(frozen=True, slots=True)
class Named:
    """A provider as a strategy names it: the key of its options in the file, its kind, its name and
    the options.
    """

    key: str
    kind: str
    name: str
    options: Mapping[str, Any]


def check(strategy: Strategy, path: Path, *, ingestion: bool = False) -> None:
    """Raise ConfigError for an unknown provider or option, an option of another type, or a missing
    extra. The error names the file with its line, the key and the remedy.

    With `ingestion`, options that only ingestion uses are checked too, and whether the providers
    accept the values.
    """
    for named in providers(strategy):
        if named.kind in _INGESTION and not ingestion:
            continue
        try:
            _check(named)
            if ingestion and named.kind in _PLAIN:
                registry.build(named.kind, named.name, named.options)
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
        # a package that is not installed: who builds the provider says how to get it
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
    """Every provider that the strategy names, those inside the options of another one too."""

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
    """The embedder and, of a joined one, its parts."""
    yield Named(f"{key}.options", "embedder", name, options)
    parts = options.get("parts")
    for number, part in enumerate(parts if isinstance(parts, (list, tuple)) else ()):
        yield from _inside(f"{key}.options.parts.{number}", "embedder", part)


def _inside(key: str, kind: str, value: object) -> Iterator[Named]:
    """The provider that the options of another one name, if they do."""
    if isinstance(value, Mapping) and value.get("provider"):
        yield Named(f"{key}.options", kind, str(value["provider"]), value.get("options") or {})
