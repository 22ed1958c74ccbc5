"""Takes versions through the seven ingestion stages, in batches that share one embedding run.

The caller hears of every outcome through callbacks: Dagster assets log them as materialisations, benchmarks only count them. One document's
failure is recorded and the batch goes on; what was live stays live.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rag_platform.config import INGESTION_STAGES, CleaningConfig, Settings, Strategy, text_norm_profile_id
from rag_platform.documents.cleaning import canonical
from rag_platform.documents.versions import STAGES, VersionBuild, build_stage, load_views
from rag_platform.errors import DocumentError, RagError
from rag_platform.indexes.embedding import EmbeddingCache, EmbeddingReport, embed_texts
from rag_platform.ir import Json, StageOutcome, Version, View
from rag_platform.ledger import Ledger
from rag_platform.observability import tracing
from rag_platform.store import Store

_BATCH_TEXTS = 2048

OnOutcome = Callable[[Version, StageOutcome], None]
OnFailure = Callable[[Version, str, str, str], None]  # version, stage, code, reason
OnProgress = Callable[[str, int, int, str], None]  # stage, done, total, message


@dataclass
class IngestionTotals:
    """What a batch came to; `failures` holds (source_uri, code, reason)."""

    documents: int = 0
    chunks: int = 0
    embeddings_computed: int = 0
    embeddings_reused: int = 0
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass
class _Batch:
    works: list[VersionBuild] = field(default_factory=list)
    views: dict[str, list[View]] = field(default_factory=dict)

    def texts(self, cleaning: CleaningConfig) -> dict[str, str]:
        """content_hash to the canonical text it is the hash of: what the cache is keyed by is what is embedded."""
        views = (view for views in self.views.values() for view in views if view.dense_text.strip())
        return {view.content_hash: canonical(view.dense_text, cleaning) for view in views}


def ingest_versions(
    versions: Sequence[Version],
    *,
    settings: Settings,
    strategy: Strategy,
    store: Store,
    ledger: Ledger,
    forced: Collection[str] = (),
    stages: Sequence[str] = INGESTION_STAGES,
    on_outcome: OnOutcome = lambda version, outcome: None,
    on_failure: OnFailure = lambda version, stage, code, reason: None,
    on_progress: OnProgress = lambda stage, done, total, message: None,
) -> IngestionTotals:
    """Totals after every version went through `stages` (a prefix of the seven); ready versions are live, failed ones have their reason."""
    totals = IngestionTotals()
    cache = EmbeddingCache(store.embeddings_path)
    try:
        batch = _Batch()
        for number, version in enumerate(versions, 1):
            work = _work(version, settings, strategy, store, ledger, version.version_id in forced, on_progress, number, len(versions))
            if not _built(work, stages, ledger, totals, on_outcome, on_failure):
                continue
            batch.works.append(work)
            if "embeddings" in stages:
                batch.views[version.version_id] = load_views(work)
            if sum(map(len, batch.views.values())) >= _BATCH_TEXTS:
                _finish(batch, stages, cache, ledger, totals, on_outcome, on_failure, on_progress)
                batch = _Batch()
            on_progress("documents", number, len(versions), version.source_uri)
        _finish(batch, stages, cache, ledger, totals, on_outcome, on_failure, on_progress)
    finally:
        cache.close()
    return totals


def _work(
    version: Version,
    settings: Settings,
    strategy: Strategy,
    store: Store,
    ledger: Ledger,
    force: bool,
    on_progress: OnProgress,
    number: int,
    total: int,
) -> VersionBuild:
    document = ledger.document(version.namespace, version.doc_id)
    roots = {source.name: source.root for source in ledger.sources(version.namespace)}
    root = roots.get(document.source) or ""

    def on_page(page: int, pages: int) -> None:
        on_progress("documents", number - 1, total, f"{version.source_uri}: page {page} of {pages}")

    origin = Path(document.origin) if document.origin else None
    return VersionBuild(version, strategy, settings, store, origin, Path(root) if root else None, force, on_page)


def _built(
    work: VersionBuild, stages: Sequence[str], ledger: Ledger, totals: IngestionTotals, on_outcome: OnOutcome, on_failure: OnFailure
) -> bool:
    """True when the stages before embedding are done; otherwise the failure is recorded."""
    for stage in (s for s in stages if s in STAGES):
        try:
            outcome = build_stage(stage, work)
        except Exception as error:  # one document must never cost the batch
            _failed(work.version, stage, error, ledger, totals, on_failure)
            return False
        totals.warnings += [f"{work.version.source_uri}: {warning}" for warning in outcome.warnings]
        on_outcome(work.version, outcome)
    return True


def _finish(
    batch: _Batch,
    stages: Sequence[str],
    cache: EmbeddingCache,
    ledger: Ledger,
    totals: IngestionTotals,
    on_outcome: OnOutcome,
    on_failure: OnFailure,
    on_progress: OnProgress,
) -> None:
    """Embed what the batch needs, then complete each of its versions."""
    if not batch.works or "embeddings" not in stages:
        return
    strategy = batch.works[0].strategy
    started = time.perf_counter()
    profile = batch.works[0].profiles["embeddings"]
    with tracing.span(
        "stage.embedding",
        provider_type="embedder",
        provider_id=strategy.embedding.provider if strategy.builds_dense else "none",
        profile_id=profile,
    ) as span:
        report = EmbeddingReport()
        if strategy.builds_dense:
            report = embed_texts(
                batch.texts(strategy.cleaning),
                strategy.embedding,
                cache,
                text_norm_profile=text_norm_profile_id(strategy.cleaning),
                processes=batch.works[0].settings.embedding_processes,
                on_progress=lambda done, total: on_progress("embeddings", done, total, "embedding"),
            )
        span.set(cache_hit=report.hits, cache_miss=report.misses, embed_calls=report.calls, embed_failures=len(report.failed))
        tracing.event(
            "ingest.embedding_batch",
            {"batches": report.calls, "hit": report.hits, "miss": report.misses, "failed": list(report.failed)[:50]},
        )
    totals.embeddings_computed += report.misses - len(report.failed)
    totals.embeddings_reused += report.hits
    seconds = (time.perf_counter() - started) / len(batch.works)
    for work in batch.works:
        views = batch.views[work.version.version_id]
        bad = [view for view in views if view.content_hash in report.failed]
        if bad:
            reason = report.failed[bad[0].content_hash]
            error = DocumentError(f"{len(bad)} of {len(views)} chunks could not be embedded; the first: {reason}", code="failed_embed")
            _failed(work.version, "embeddings", error, ledger, totals, on_failure)
            continue
        counts: Json = {"chunks": len(views), "embedded": sum(bool(v.dense_text.strip()) for v in views) if strategy.builds_dense else 0,
                        "batch_computed": report.misses, "batch_reused": report.hits}  # fmt: skip
        path = work.store.embeddings_path.relative_to(work.store.home).as_posix()
        on_outcome(work.version, StageOutcome("embeddings", profile, report.misses == 0, seconds, path, "", counts))
        title = work.facts.summary.title or work.version.filename
        ledger.complete(work.version.version_id, title=title, counts={"profile": profile, **_summary(work, views)})
        totals.documents += 1
        totals.chunks += len(views)


def _summary(work: VersionBuild, views: Sequence[View]) -> Json:
    summary = work.facts.summary
    return {"chunks": len(views), "pages": summary.pages, "text_chars": summary.text_chars, "warnings": list(summary.warnings)}


def _failed(version: Version, stage: str, error: Exception, ledger: Ledger, totals: IngestionTotals, on_failure: OnFailure) -> None:
    code = error.code if isinstance(error, RagError) else "internal_error"
    reason = error.message if isinstance(error, RagError) else f"{type(error).__name__}: {error}"
    ledger.fail(version.version_id, code, reason)
    totals.failures.append((version.source_uri, code, reason))
    tracing.event("ingest.document_failed", {"version_id": version.version_id, "stage": stage, "code": code, "reason": reason})
    on_failure(version, stage, code, reason)


def stale_versions(ledger: Ledger, namespace: str, profile: str) -> Iterator[Version]:
    """Live versions whose outputs were built under another config; an ingest run takes them along."""
    for _, version in ledger.live(namespace):
        if version.counts.get("profile") != profile:
            yield version
