"""Metadata for Dagster: of the assets' definitions (owners, kinds, config, columns, storage paths,
code references), and of the events of one stage of one document.
"""

import base64
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict

import dagster as dg

from rag_platform.assets.partitions import stage_tags, strategies_in_use
from rag_platform.config.settings import Settings, Strategy
from rag_platform.documents import versions
from rag_platform.errors import DocumentError, RagError
from rag_platform.evaluation.results import CaseResult
from rag_platform.evaluation.strategies import compare_strategies, run_strategy
from rag_platform.indexes.embedding import embed_texts
from rag_platform.ir import Block, Chunk, Json, MediaLink, Section, StageOutcome, Version, View
from rag_platform.loaders.parts import fence
from rag_platform.processes.jobs import describe_remedy
from rag_platform.releases.checks import PROCESSED, is_severe
from rag_platform.releases.manifest import CheckResult
from rag_platform.releases.publishing import build_candidate, publish_candidate
from rag_platform.storage.store import Store

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


# --- events ---------------------------------------------------------------------------------------


_PICTURE_BYTES = 40_000  # per embedded picture; Dagster stores events twice


def materialization(
    version: Version, outcome: StageOutcome, code_version: str, trace_id: str, store: Store
) -> dg.AssetMaterialization:
    """The event for one stage of one version: counts, path, timing, hash and a preview as metadata,
    the profile as data version.
    """
    metadata: dict[str, Any] = {
        "source_uri": version.source_uri,
        **_preview(outcome.preview, store),
        "file_sha256": version.file_sha256,
        "profile": outcome.profile,
        "seconds": round(outcome.seconds, 4),
        "reused": outcome.reused,
        "path": dg.MetadataValue.path(outcome.path),
        "trace_id": trace_id,
        **{
            key: value
            for key, value in outcome.counts.items()
            if isinstance(value, (str, int, float))
        },
    }
    if outcome.sha256:
        metadata["output_sha256"] = outcome.sha256
    if outcome.warnings:
        metadata["warnings"] = dg.MetadataValue.md(fence("\n".join(outcome.warnings[:50])))
    tags = stage_tags(outcome.stage, version, outcome.profile, code_version)
    return dg.AssetMaterialization(
        outcome.stage, partition=version.version_id, metadata=metadata, tags=tags
    )


def evaluation(
    version: Version, outcome: StageOutcome, result: CheckResult
) -> dg.AssetCheckEvaluation:
    """The event for one check of one document; a failed check only warns, as the readable part of
    the document is live, and is an error if that is less than half.
    """
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(outcome.stage),
        check_name=result.name,
        passed=result.passed,
        metadata={
            "details": result.details,
            "source_uri": version.source_uri,
            **result.figures,
        },
        severity=(
            dg.AssetCheckSeverity.ERROR
            if is_severe(outcome, result)
            else dg.AssetCheckSeverity.WARN
        ),
        partition=version.version_id,
    )


def failure(version: Version, stage: str, error: RagError, job_id: str) -> dict[str, Any]:
    """The reason and the remedy of a document's failure, as metadata."""
    return {
        "reason": error.message,
        "code": error.code,
        "failed_stage": stage,
        "source_uri": version.source_uri,
        "remedy": describe_remedy(error.code, job_id),
    }


def check_processed(
    version: Version, error: RagError | None = None, why: Json | None = None
) -> dg.AssetCheckEvaluation:
    """The event for the check `processed`; a failure only warns if the document itself
    causes it.
    """
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey("raw_document"),
        check_name=PROCESSED,
        passed=error is None,
        metadata=why or {"source_uri": version.source_uri},
        severity=(
            dg.AssetCheckSeverity.WARN
            if isinstance(error, DocumentError)
            else dg.AssetCheckSeverity.ERROR
        ),
        partition=version.version_id,
    )


def _preview(preview: Json, store: Store) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rows := preview.get("rows"):
        found["preview"] = dg.MetadataValue.table([dg.TableRecord(row) for row in rows])
    if text := preview.get("text"):
        # rendered, it would make the viewer's browser fetch its links and pictures
        found["preview"] = dg.MetadataValue.md(fence(text))
    if len(page := preview.get("page", b"")) in range(1, _PICTURE_BYTES):
        found["page_1"] = dg.MetadataValue.md(_embed_picture(page, "page 1"))
    if pictures := _pictures(preview.get("pictures", ()), store):
        found["pictures"] = dg.MetadataValue.md(pictures)
    if "row_count" in preview:
        found["dagster/row_count"] = preview["row_count"]
    return found


def _pictures(asset_ids: Sequence[str], store: Store) -> str:
    """The thumbnails of stored images, embedded in Markdown."""
    paths = {asset_id: store.media_dir(asset_id) / "thumb.webp" for asset_id in asset_ids}
    return " ".join(
        _embed_picture(path.read_bytes(), asset_id[:12], "webp")
        for asset_id, path in paths.items()
        if path.is_file() and path.stat().st_size < _PICTURE_BYTES
    )


def _embed_picture(picture: bytes, title: str, kind: str = "png") -> str:
    """The picture as a Markdown image with a data URI."""
    return f"![{title}](data:image/{kind};base64,{base64.b64encode(picture).decode()})"
