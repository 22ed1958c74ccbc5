"""Writes outputs to disk, reports them, and marks versions live or failed in the ledger."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rag_platform.documents.drift import measure_drift
from rag_platform.documents.metadata import file_metadata
from rag_platform.documents.versions import Failure, reading_warnings
from rag_platform.drafts import lifecycle
from rag_platform.errors import DocumentError, RagError, disk_full
from rag_platform.indexes.embedding import EmbeddingReport
from rag_platform.ingestion.embedding_batches import Batch
from rag_platform.ingestion.request import IngestionTotals, Request, VersionRun
from rag_platform.intake.receiving import failure_profile
from rag_platform.ir import Json, StageOutcome, Version
from rag_platform.observability import faults, tracing
from rag_platform.releases.version_bundles import push_versions


def is_transient(error: Exception) -> bool:
    """True for a failure that a retry may cure: our own errors carry a flag, others are judged by
    their type.
    """
    if isinstance(error, RagError):
        return bool(error.details.get("retryable"))
    return isinstance(error, (OSError, MemoryError))


class Committer:
    """Flushes one version while the next one is built; `settled` holds the version_ids that are
    live or have failed for good.
    """

    def __init__(self, request: Request, totals: IngestionTotals, *, last: bool) -> None:
        self._request, self._totals, self._last = request, totals, last
        self._profile = request.profiles["embeddings"]
        self.settled: set[str] = set()
        # the version that is being flushed
        self._flushing: tuple[VersionRun, list[StageOutcome], Failure | None, Future[None]] | None
        self._flushing = None
        self._unembedded: dict[str, str] = {}  # content_hash: reason
        self._flusher = ThreadPoolExecutor(1, thread_name_prefix="commit")

    def is_flushing(self, file_sha256: str) -> bool:
        """True while the outputs of these bytes are being flushed."""
        return self._flushing is not None and self._flushing[0].version.file_sha256 == file_sha256

    def flush(
        self, run: VersionRun, outcomes: list[StageOutcome], failure: Failure | None
    ) -> list[VersionRun]:
        """Start flushing a version's outputs, and settle the previous version; a failed version is
        settled at once. Returns the runs that are ready to be embedded.
        """
        flushed = self._flusher.submit(run.work.writes.commit)
        ready = self.settle()
        self._flushing = run, outcomes, failure, flushed
        return [*ready, *self.settle()] if failure else ready

    def settle(self) -> list[VersionRun]:
        """Wait for the version being flushed, and report it. Returns its run if it is to be
        embedded.
        """
        if self._flushing is None:
            return []
        (run, outcomes, failure, flushed), self._flushing = self._flushing, None
        try:
            flushed.result()
        except OSError as error:
            self.raise_if_full(error)
            outcomes, failure = [], ("raw_document", error)
        outcomes, run.drift = measure_drift(run.version, run.replaced, outcomes)
        for outcome in outcomes:
            self._totals.warn(run.version, outcome.warnings)
            self._request.hooks.on_outcome(run.version, outcome)
        if failure:
            self.fail(run.version, *failure)
        elif "embeddings" in self._request.stages:
            return [run]
        else:
            self.settled.add(run.version.version_id)
        return []

    def complete(self, batch: Batch, report: EmbeddingReport) -> None:
        """Mark the versions of an embedded batch live, except those with a text that could not be
        embedded.
        """
        self._totals.embeddings_computed += report.misses - len(report.failed)
        self._totals.embeddings_reused += report.hits
        self._unembedded.update(report.failed)
        seconds = (time.perf_counter() - batch.started) / len(batch.runs)
        ready = []
        for run in batch.runs:
            if error := self._embedding_error(run, report):
                self.fail(run.version, "embeddings", error)
            else:
                ready.append((run, self._embedding_outcome(run, report, seconds)))
        for run, outcome in ready:
            self._request.hooks.on_outcome(run.version, outcome)
        self._request.hooks.on_embedded([run.version for run, _ in ready])
        # before they become live
        push_versions(
            self._request.workspace.store,
            [
                replace(run.version, edition=run.edition.name) if run.edition else run.version
                for run, _ in ready
            ],
            self._request.profiles,
        )
        for run, _ in ready:
            self._make_live(run)

    def fail(self, version: Version, stage: str, error: Exception) -> None:
        """Record a failure; a transient one is left to the next round."""
        if isinstance(error, RagError):
            failure = error
        else:
            failure = RagError(f"{type(error).__name__}: {error}")
        code, reason = failure.code, failure.message
        with faults.about(version.version_id):
            faults.report(error, f"stage.{stage}")
        again = is_transient(error) and not self._last
        payload = {
            "version_id": version.version_id,
            "stage": stage,
            "code": code,
            "reason": reason,
            "tried_again": again,
        }
        tracing.event("ingest.document_failed", payload)
        if again:
            return
        # a draft that fails leaves the published version valid
        if version.version_id not in self._request.drafted:
            self._request.workspace.ledger.fail(
                version.version_id,
                code,
                reason,
                max_attempts=self._request.workspace.settings.jobs.max_attempts,
                profile=failure_profile(self._request.workspace),
            )
        self.settled.add(version.version_id)
        self._totals.failures.append((version.source_uri, code, reason))
        self._request.hooks.on_failure(version, stage, failure)

    def raise_if_full(self, error: Exception) -> None:
        """Raise StorageError when the disk is full: every other document would fail too."""
        if full := disk_full(error, self._request.workspace.store.home):
            raise full from error

    def close(self) -> None:
        """Wait until the last outputs are flushed."""
        self._flusher.shutdown()

    def _embedding_error(self, run: VersionRun, report: EmbeddingReport) -> DocumentError | None:
        views = run.work.views
        bad = [view.content_hash for view in views if view.content_hash in self._unembedded]
        if not bad:
            return None
        return DocumentError(
            f"{len(bad)} of {len(views)} chunks could not be embedded; the first:"
            f" {self._unembedded[bad[0]]}",
            code="failed_embed",
            retryable=any(content_hash in report.passing for content_hash in bad),
        )

    def _embedding_outcome(
        self, run: VersionRun, report: EmbeddingReport, seconds: float
    ) -> StageOutcome:
        store, views = self._request.workspace.store, run.work.views
        dense = self._request.workspace.strategy.builds_dense
        counts: Json = {
            "chunks": len(views),
            "embedded": sum(bool(view.dense_text.strip()) for view in views) if dense else 0,
            "batch_computed": report.misses,
            "batch_reused": report.hits,
        }
        path = store.embeddings_path.relative_to(store.home).as_posix()
        return StageOutcome(
            "embeddings", self._profile, report.misses == 0, seconds, path, "", counts
        )

    def _make_live(self, run: VersionRun) -> None:
        work, ledger = run.work, self._request.workspace.ledger
        if run.edition:
            lifecycle.record(run.edition, self._request.workspace)
        summary = work.summary
        moved = work.base_url not in ("", work.version.source_uri)
        metadata = {"final_url": work.base_url} if moved else {}
        ledger.complete(
            work.version.version_id,
            title=work.title,
            counts={
                "profile": self._profile,
                "chunks": len(work.views),
                "pages": summary.pages,
                "text_chars": summary.text_chars,
                **run.drift,
                "warnings": list(reading_warnings(work)),
                "metadata": file_metadata({**metadata, **summary.metadata}, _mtime(work.origin)),
            },
        )
        self.settled.add(work.version.version_id)
        self._totals.documents += 1
        self._totals.chunks += len(work.views)


def _mtime(origin: Path | None) -> float | None:
    """The mtime of the source file, None if it is gone or was not a file."""
    try:
        return origin.stat().st_mtime if origin is not None else None
    except OSError:
        return None
