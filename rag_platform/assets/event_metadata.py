"""Dagster events of one stage of one document: materialisation with figures and preview, and
checks.
"""

import re
from collections.abc import Sequence
from typing import Any

import dagster as dg

from rag_platform.assets.partitions import stage_tags
from rag_platform.errors import DocumentError, RagError
from rag_platform.evaluation.reporting.reports import embed_picture
from rag_platform.ir import Json, StageOutcome, Version
from rag_platform.processes.jobs import describe_remedy
from rag_platform.releases.checks import PROCESSED, is_severe
from rag_platform.releases.manifest import CheckResult
from rag_platform.storage.store import Store

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
        metadata["warnings"] = dg.MetadataValue.md(_quote("\n".join(outcome.warnings[:50])))
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
        found["preview"] = dg.MetadataValue.md(_quote(text))
    if len(page := preview.get("page", b"")) in range(1, _PICTURE_BYTES):
        found["page_1"] = dg.MetadataValue.md(embed_picture(page, "page 1"))
    if pictures := _pictures(preview.get("pictures", ()), store):
        found["pictures"] = dg.MetadataValue.md(pictures)
    if "row_count" in preview:
        found["dagster/row_count"] = preview["row_count"]
    return found


def _quote(text: str) -> str:
    """A document's text as a code block: if it were rendered, the viewer's browser would fetch its
    links and pictures.
    """
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _pictures(asset_ids: Sequence[str], store: Store) -> str:
    """The thumbnails of stored images, embedded in Markdown."""
    paths = {asset_id: store.media_dir(asset_id) / "thumb.webp" for asset_id in asset_ids}
    return " ".join(
        embed_picture(path.read_bytes(), asset_id[:12], "webp")
        for asset_id, path in paths.items()
        if path.is_file() and path.stat().st_size < _PICTURE_BYTES
    )
