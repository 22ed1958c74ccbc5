"""Collects versions into batches and embeds the batches in threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from rag_platform.config.profiles import text_norm_profile_id
from rag_platform.indexes.embedding import EmbeddingReport, dense_texts, embed_texts
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.indexes.embedding_pool import take_pool
from rag_platform.ingestion.request import IngestionTotals, Request, VersionRun
from rag_platform.observability import tracing
from rag_platform.registry import provider_version
from rag_platform.releases.manifest import embedder_info

BATCH_TEXTS = 512
FIRST_BATCH = 64  # small, so that the embedder's processes load while the next documents are read
_BATCHES_AT_ONCE = 2  # so that no process idles while another finishes its batch


@dataclass
class Batch:
    """Versions that are embedded together; `report` is set when the batch is submitted."""

    runs: list[VersionRun] = field(default_factory=list)
    hashes: set[str] = field(default_factory=set)  # of the texts that it looks up or embeds
    started: float = 0.0
    begun: bool = False  # True once the number of its texts without a vector is known
    report: Future[EmbeddingReport] | None = None

    @property
    def size(self) -> int:
        """Number of texts."""
        return sum(len(run.work.views) for run in self.runs)


class BatchEmbedder:
    """Embeds batches that grow from FIRST_BATCH to BATCH_TEXTS texts, two at a time."""

    def __init__(self, request: Request, totals: IngestionTotals) -> None:
        self._request, self._totals = request, totals
        self._batch = Batch()
        self._embedding: deque[Batch] = deque()
        self._largest = FIRST_BATCH
        self._embedded_texts, self._to_embed, self._lock = 0, 0, threading.Lock()
        embedding = request.workspace.strategy.embedding
        self._cache = EmbeddingCache(request.workspace.store.embeddings_path)
        self._pool = take_pool(embedding, self._cache.path.parent)
        self._threads = ThreadPoolExecutor(_BATCHES_AT_ONCE, thread_name_prefix="embed")

    @property
    def size(self) -> int:
        """Number of texts waiting or being embedded."""
        return self._batch.size + sum(batch.size for batch in self._embedding)

    def add(self, run: VersionRun) -> None:
        """Add a version to the next batch."""
        self._batch.runs.append(run)

    def embed(self, ahead: int, *, last: bool = False) -> Iterator[tuple[Batch, EmbeddingReport]]:
        """Start the current batch if it is full, and yield finished batches in order; with `last`,
        start it anyway and yield all. `ahead` is the estimated number of bytes of text still to
        come, which decides how many processes are started.
        """
        if self._batch.runs and (last or self._batch.size >= self._largest):
            self._start(0 if last else max(0, ahead))
        while self._embedding:
            report = self._embedding[0].report
            assert report is not None
            if not (last or report.done() or len(self._embedding) > _BATCHES_AT_ONCE):
                return
            yield self._embedding.popleft(), report.result()

    def close(self) -> None:
        """Kill the child processes, and drop batches that have not begun."""
        self._pool.close()
        self._threads.shutdown(cancel_futures=True)
        self._cache.close()

    def _start(self, expected: int) -> None:
        with self._lock:
            batch, self._batch = self._batch, Batch()
            self._embedding.append(batch)
        batch.started = time.perf_counter()
        strategy = self._request.workspace.strategy
        views = [view for run in batch.runs for view in run.work.views]
        texts = dense_texts(views, strategy.cleaning) if strategy.builds_dense else {}
        # leave out texts that another batch is embedding at this moment
        batch.hashes = texts.keys() - set().union(*(other.hashes for other in self._embedding))
        self._totals.embeddings_reused += len(texts) - len(batch.hashes)
        missing = {key: text for key, text in texts.items() if key in batch.hashes}
        batch.report = self._threads.submit(tracing.carry(self._embed), batch, missing, expected)
        self._largest = min(2 * self._largest, BATCH_TEXTS)

    def _embed(self, batch: Batch, texts: Mapping[str, str], expected: int) -> EmbeddingReport:
        workspace = self._request.workspace
        strategy = workspace.strategy
        with tracing.span(
            "stage.embedding",
            provider_type="embedder",
            provider_id=strategy.embedding.provider if strategy.builds_dense else "none",
            provider_version=(
                provider_version("embedder", strategy.embedding.provider)
                if strategy.builds_dense
                else ""
            ),
            profile_id=self._request.profiles["embeddings"],
        ) as span:
            report = EmbeddingReport()
            if strategy.builds_dense:
                on_progress = self._batch_progress(batch)
                report = embed_texts(
                    texts,
                    strategy.embedding,
                    self._cache,
                    text_norm_profile=text_norm_profile_id(strategy.cleaning),
                    processes=workspace.settings.embedding_processes,
                    pool=self._pool,
                    expected=expected,
                    on_progress=on_progress,
                )
                if not batch.begun and self._to_embed:  # every text was cached
                    on_progress(0, 0)
            info = embedder_info(strategy)
            span.set(embedder_id=info.embedder_id if info else "none", **report.figures())
            tracing.count(
                cache_hit=report.hits,
                cache_miss=report.misses,
                embedding_failures=len(report.failed),
                failed_chunks=len(report.failed),
            )
            figures = {
                "batches": report.calls,
                "hit": report.hits,
                "miss": report.misses,
                "failed": list(report.failed)[:50],
            }
            tracing.event("ingest.embedding_batch", figures)
        return report

    def _batch_progress(self, batch: Batch) -> Callable[[int, int], None]:
        """A callback that adds the progress of one batch to the overall progress, since batches run
        concurrently. Batches that have not begun count in full, so that the total stops growing
        once all documents are read.
        """
        known: int | None = None

        def on_progress(done: int, total: int) -> None:
            nonlocal known
            with self._lock:
                self._to_embed += total if known is None else 0
                self._embedded_texts += done - (known or 0)
                known, batch.begun = done, True
                waiting = [self._batch, *self._embedding]
                total = self._to_embed + sum(other.size for other in waiting if not other.begun)
                self._request.hooks.on_progress("embeddings", self._embedded_texts, total, "")

        return on_progress
