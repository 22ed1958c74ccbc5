"""Definition metadata of assets for Dagster's catalog: owners, kinds, config, columns, storage
paths and code references.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict

import dagster as dg

from rag_platform.assets.partitions import strategies_in_use
from rag_platform.config.settings import Settings, Strategy
from rag_platform.documents import versions
from rag_platform.evaluation.results import CaseResult
from rag_platform.evaluation.strategies import compare_strategies, run_strategy
from rag_platform.indexes.embedding import embed_texts
from rag_platform.ir import Block, Chunk, MediaLink, Section, View
from rag_platform.releases.publishing import build_candidate, publish_candidate

# asset: the function that makes it
_MAKERS: dict[str, Callable[..., Any]] = {
    **{stage: function for stage, (_, _, function) in versions.STAGES.items()},
    "embeddings": embed_texts,
    "catalog": build_candidate,
    "lexical_index": build_candidate,
    "dense_index": build_candidate,
    "published_release": publish_candidate,
    "evaluation_run": run_strategy,
    "strategy_comparison": compare_strategies,
}
# asset: the record type of its rows
_RECORDS: dict[str, type[Any]] = {
    "facts": Block,
    "media": MediaLink,
    "sections": Section,
    "chunks": Chunk,
    "views": View,
    "evaluation_run": CaseResult,
}
# asset: its path under the data root
_PLACES = {
    "raw_document": "raw/<sha[:2]>/<sha256>",
    "facts": "facts/<sha[:2]>/<sha256>/<profile>-<loader>/",
    "media": "versions/<namespace>/<doc_id>/<sha12>/media/<profile>.parquet, media/<asset_id>/",
    "sections": "versions/<namespace>/<doc_id>/<sha12>/sections/<profile>.parquet",
    "chunks": "versions/<namespace>/<doc_id>/<sha12>/chunks/<profile>.parquet",
    "views": "versions/<namespace>/<doc_id>/<sha12>/views/<profile>.parquet",
    "embeddings": "cache/embeddings.sqlite",
    "catalog": "releases/<namespace>/<release_id>/catalog.sqlite",
    "lexical_index": "releases/<namespace>/<release_id>/lexical/",
    "dense_index": "releases/<namespace>/<release_id>/dense/",
    "published_release": "releases/<namespace>/CURRENT",
    "evaluation_run": "evaluations.sqlite, evaluations/<run_id>/",
}
# asset: its storage formats; engines are added from the strategies in use
_KINDS = {
    "raw_document": {"file"},
    "facts": {"markdown", "parquet"},
    "media": {"image", "parquet"},
    "sections": {"parquet"},
    "chunks": {"parquet"},
    "views": {"parquet"},
    "embeddings": {"sqlite"},
    "catalog": {"sqlite"},
    "published_release": {"file"},
    "evaluation_run": {"parquet", "sqlite"},
    "strategy_comparison": {"table"},
}
_LAYERS = {
    "raw_document": "bytes",
    "facts": "facts",
    "catalog": "index",
    "lexical_index": "index",
    "dense_index": "index",
    "published_release": "release",
    "evaluation_run": "evaluation",
    "strategy_comparison": "evaluation",
}
# asset: the sections of a strategy that determine its content
_SECTIONS = {
    "facts": ("loading",),
    "media": ("media", "media_texts"),
    "sections": ("cleaning", "sectioner"),
    "chunks": ("chunker",),
    "views": ("views",),
    "embeddings": ("embedding", "encoding"),
    "catalog": ("encoding",),
    "lexical_index": ("lexical",),
    "dense_index": ("dense",),
}
_ENGINES = {"embeddings": "embedding", "lexical_index": "lexical", "dense_index": "dense"}


class AssetArguments(TypedDict):
    """Keyword arguments of an asset's definition."""

    owners: list[str]
    kinds: set[str]
    tags: dict[str, str]
    metadata: dict[str, Any]


def define_asset(name: str, settings: Settings) -> AssetArguments:
    """The arguments of an asset's definition besides its description."""
    strategies = strategies_in_use(settings)
    metadata: dict[str, Any] = {"dagster/code_references": _code_references(_MAKERS[name])}
    if name in _PLACES:
        metadata["stored_in"] = dg.MetadataValue.path(_PLACES[name])
    if name in _RECORDS:
        metadata["dagster/column_schema"] = _column_schema(_RECORDS[name])
    if name in _SECTIONS:
        metadata["config"] = dg.MetadataValue.json(_config(strategies, _SECTIONS[name]))
    return {
        "owners": list(settings.asset_owners),
        "kinds": _KINDS.get(name, set()) | _engines(name, strategies),
        "tags": {"rag/layer": _LAYERS.get(name, "derived")},
        "metadata": metadata,
    }


def _code_references(function: Callable[..., Any]) -> dg.CodeReferencesMetadataValue:
    function = inspect.unwrap(function)
    with warnings.catch_warnings():  # a beta feature, hence the pinned minor version
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(
            file_path=inspect.getfile(function),
            line_number=function.__code__.co_firstlineno,
            label=f"{function.__module__}.{function.__name__}",
        )
        return dg.CodeReferencesMetadataValue(code_references=[reference])


def _column_schema(record: type[Any]) -> dg.TableSchema:
    return dg.TableSchema(
        [
            dg.TableColumn(
                field.name,
                str(field.type).removesuffix(" | None"),
                constraints=dg.TableColumnConstraints(nullable=str(field.type).endswith(" | None")),
            )
            for field in fields(record)
        ]
    )


def _config(
    strategies: Sequence[Strategy], sections: Sequence[str]
) -> Mapping[str, Mapping[str, Any]]:
    """Strategy name to these sections of it."""
    return {
        strategy.name: strategy.model_dump(mode="json", include=set(sections))
        for strategy in strategies
    }


def _engines(name: str, strategies: Sequence[Strategy]) -> set[str]:
    """Up to two providers of an asset, without user-defined ones, as dotted paths are not valid
    kinds.
    """
    if name not in _ENGINES:
        return set()
    configs = [getattr(strategy, _ENGINES[name]) for strategy in strategies]
    names = {
        str(part["provider"])
        for config in configs
        for part in config.options.get("parts") or [{"provider": config.provider}]
    }
    return {provider for provider in sorted(names)[:2] if provider.isidentifier()}
