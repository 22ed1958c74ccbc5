"""Strategies: found by name, read, and validated with their providers, the types of options, and
required extras.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_platform import registry
from rag_platform.config.folders import config_file, config_folders
from rag_platform.config.settings import SHORT, Settings, Strategy, validate
from rag_platform.config.yaml_files import place_of, read_mapping
from rag_platform.errors import ConfigError, NotFoundError, did_you_mean


def load_strategy(
    settings: Settings, name: str | None = None, *, ingestion: bool = False
) -> Strategy:
    """The strategy of that name, or the default one. Raises NotFoundError with the known ones,
    ConfigError for an invalid file.

    With `ingestion`, the options that only ingestion uses are also checked, which loads the modules
    of its providers.
    """
    name = name or settings.default_strategy
    known = strategy_names(settings)
    if name not in known:
        where = f"{_default_place()}: " if name == settings.default_strategy else ""
        raise NotFoundError(
            f"{where}unknown strategy {name!r}; known: {', '.join(known)}"
            f"{did_you_mean(name, known)}",
            code="unknown_strategy",
        )
    path = strategy_path(settings, name)
    strategy = validate(Strategy, {"name": name, **read_mapping(path)}, path)
    _check_all(strategy, path, ingestion=ingestion)
    return strategy


def _default_place() -> str:
    """The variable or the place in the file that sets the default strategy."""
    given = ("RAG_DEFAULT_STRATEGY", SHORT["default_strategy"])
    variable = next((name for name in given if name in os.environ), "")
    return variable or place_of(config_file("settings.yaml"), ["default_strategy"])


def strategy_names(settings: Settings) -> list[str]:
    """Names of the strategy files, sorted."""
    return sorted({path.stem for place in _folders(settings) for path in place.glob("*.yaml")})


def has_strategy(settings: Settings, name: str) -> bool:
    """True if the strategy has a file; cheap, as it is called for every question."""
    return strategy_path(settings, name).is_file()


def strategy_path(settings: Settings, name: str) -> Path:
    """The file of a strategy, by precedence the user's, then the shipped one; it may not exist."""
    for folder in _folders(settings):
        if (path := folder / f"{name}.yaml").is_file():
            break
    return path


def _folders(settings: Settings) -> tuple[Path, ...]:
    """The folders of strategies: the configured one, else those of the config."""
    own = settings.strategies_dir
    return (own,) if own else config_folders("strategies")


def require_usable(
    settings: Settings, names: Iterable[str] = (), *, ingestion: bool = False
) -> None:
    """Raise ConfigError if the current file of the default strategy or of a named one is invalid,
    `ingestion` as in `load_strategy`; named ones without a file are skipped, as queries use their
    recorded config.
    """
    for name in dict.fromkeys((settings.default_strategy, *names)):
        if name == settings.default_strategy or has_strategy(settings, name):
            load_strategy(settings, name, ingestion=ingestion)


# --- providers ----------------------------------------------------------------------------------

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


def _check_all(strategy: Strategy, path: Path, *, ingestion: bool = False) -> None:
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
