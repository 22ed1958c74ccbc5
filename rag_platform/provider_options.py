"""Are the options of a strategy's providers known? Asked when the strategy is loaded, before anything is built with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_platform import registry
from rag_platform.errors import ConfigError

if TYPE_CHECKING:
    from rag_platform.config import Strategy

# What only ingestion uses: loading the modules of its engines would cost a question half a second.
_INGESTION = frozenset({"loader", "ocr", "sectioner", "chunker", "lexical_index", "dense_index"})
_PLAIN = _INGESTION - {"ocr"} | {"fusion"}  # can be made without a model and without a package that may be missing


@dataclass(frozen=True, slots=True)
class Named:
    """A provider as a strategy names it: where in the file, of which kind, by which name, with which options."""

    key: str
    kind: str
    name: str
    options: Mapping[str, Any]


def check(strategy: Strategy, path: Path, *, ingestion: bool = False) -> None:
    """Raise ConfigError naming the file, the key and the known ones for a provider or an option that does not exist.

    With `ingestion` also the options that only ingestion uses, and whether their values are accepted.
    """
    for named in providers(strategy):
        if named.kind in _INGESTION and not ingestion:
            continue
        try:
            _check(named)
            if ingestion and named.kind in _PLAIN:
                registry.build(named.kind, named.name, named.options)
        except ConfigError as error:
            raise ConfigError(f"{path}: {named.key}: {error.message}", code=error.code) from error


def _check(named: Named) -> None:
    registry.require_name(named.kind, named.name)
    if not named.options:
        return
    try:
        cls = registry.provider_class(named.kind, named.name)
    except ConfigError as error:
        if isinstance(error.__cause__, ImportError):  # a package that is not installed: who builds the provider says how to get it
            return
        raise
    registry.require_options(named.kind, named.name, cls, named.options)


def providers(strategy: Strategy) -> Iterator[Named]:
    """Every provider that the strategy names, those inside the options of another one too."""
    for number, loader in enumerate(strategy.loading.loaders):
        yield Named(f"loading.loaders.{number}.options", "loader", loader.provider, loader.options)
    captions = strategy.media_texts.captions
    yield Named("media_texts.ocr.options", "ocr", strategy.media_texts.ocr.provider, strategy.media_texts.ocr.options)
    yield Named("media_texts.captions.options", "llm", _captioning(captions.provider, captions.preset), captions.options)
    yield Named("views.describe.options", "llm", strategy.views.describe.provider, strategy.views.describe.options)
    for key, kind in (("sectioner", "sectioner"), ("chunker", "chunker"), ("lexical", "lexical_index"), ("dense", "dense_index"),
                      ("fusion", "fusion"), ("reranker", "reranker"), ("answerer", "answerer"), ("llm", "llm")):  # fmt: skip
        config = getattr(strategy, key)
        yield Named(f"{key}.options", kind, config.provider, config.options)
    for key, own in (("query.rewrite.llm", strategy.query.rewrite.llm), ("answerer.llm", strategy.answerer.llm),
                     ("summary.llm", strategy.summary.llm)):  # fmt: skip
        if own is not None:
            yield Named(f"{key}.options", "llm", own.provider, own.options)
    yield from _nested("reranker.options.llm", "llm", strategy.reranker.options.get("llm"))
    yield from _embedders("embedding", strategy.embedding.provider, strategy.embedding.options)
    chosen = strategy.chunker.options
    if chosen.get("embedder"):
        yield from _embedders("chunker.options.embedder", str(chosen["embedder"]), chosen.get("embedder_options") or {})


def _captioning(provider: str, preset: str) -> str:
    return "openai" if preset and provider == "none" else provider


def _embedders(key: str, name: str, options: Mapping[str, Any]) -> Iterator[Named]:
    """The embedder and, of a joined one, its parts."""
    yield Named(f"{key}.options", "embedder", name, options)
    parts = options.get("parts")
    for number, part in enumerate(parts if isinstance(parts, (list, tuple)) else ()):
        yield from _nested(f"{key}.options.parts.{number}", "embedder", part)


def _nested(key: str, kind: str, value: object) -> Iterator[Named]:
    if isinstance(value, Mapping) and value.get("provider"):
        yield Named(f"{key}.options", kind, str(value["provider"]), value.get("options") or {})
