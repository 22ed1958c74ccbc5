"""Takes versions through the seven ingestion stages, in batches that share one embedding run.

The caller hears of every outcome through callbacks: Dagster assets log them as materialisations,
benchmarks only count them. One document's failure is recorded and the batch goes on; what was live
stays live. What may pass (a network, a killed child) is tried again when the other documents are
done; a full disk ends the run at once.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rag_platform.config.profiles import INGESTION_STAGES, stage_profiles, text_norm_profile_id
from rag_platform.config.settings import CleaningConfig, Settings, Strategy
from rag_platform.documents.drift import measure_drift
from rag_platform.documents.metadata import file_metadata
from rag_platform.documents.versions import (
    Failure,
    VersionBuild,
    build_stages,
    read_facts,
    read_in_child,
)
from rag_platform.drafts import editions
from rag_platform.errors import DocumentError, ProviderError, RagError, disk_full
from rag_platform.indexes.embedding import EmbeddingPool, EmbeddingReport, embed_texts
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ingestion import version_workers
from rag_platform.ingestion.rebuild_plan import text_bytes
from rag_platform.intake.isolation import pool
from rag_platform.ir import Json, StageOutcome, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.normalisation.edits import canonical
from rag_platform.observability import faults, tracing
from rag_platform.processes.worker import Workers
from rag_platform.retrying import pause
from rag_platform.storage.store import Store

_BATCH_TEXTS = 512
_FIRST_BATCH = 64  # small, so that the embedder's processes load while the next documents are read
_BATCHES_AT_ONCE = 2  # no process waits for the slowest one of its batch

OnOutcome = Callable[[Version, StageOutcome], None]
OnFailure = Callable[[Version, str, str, str], None]  # version, stage, code, reason
# all their outcomes were told; next the ledger calls them ready
OnEmbedded = Callable[[Sequence[Version]], None]
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
    """Versions that are embedded together; `report` is there once their run was started."""

    works: list[VersionBuild] = field(default_factory=list)
    hashes: set[str] = field(default_factory=set)  # what its run embeds or finds
    started: float = 0.0
    report: Future[EmbeddingReport] | None = None

    @property
    def size(self) -> int:
        """Number of texts."""
        return sum(len(work.views) for work in self.works)

    def texts(self, cleaning: CleaningConfig) -> dict[str, str]:
        """content_hash to the canonical text it is the hash of: what the cache is keyed by is what
        is embedded.
        """
        views = (view for work in self.works for view in work.views if view.dense_text.strip())
        return {view.content_hash: canonical(view.dense_text, cleaning) for view in views}


def ingest_versions(
    versions: Sequence[Version],
    *,
    settings: Settings,
    strategy: Strategy,
    store: Store,
    ledger: Ledger,
    forced: Collection[str] = (),
    drafted: Mapping[str, Sequence[Json]] | None = None,
    stages: Sequence[str] = INGESTION_STAGES,
    on_outcome: OnOutcome = lambda version, outcome: None,
    on_failure: OnFailure = lambda version, stage, code, reason: None,
    on_embedded: OnEmbedded = lambda versions: None,
    on_progress: OnProgress = lambda stage, done, total, message: None,
) -> IngestionTotals:
    """Totals after every version went through `stages` (a prefix of the seven); ready versions are
    live, failed ones have their reason.

    `drafted` maps version_ids to the operations of a draft that is being published; other versions
    carry the published ones on.

    Documents of formats that are read in child processes are read ahead, one a core. While a batch
    is embedded the next one is read, and while a document's outputs are flushed to disk the next
    document is built. Every callback but `on_progress` comes from the calling thread. Documents
    that failed for a reason that may pass are tried again, settings.jobs.max_attempts times in all;
    only their last failure is told. Raises StorageError when the disk is full, ProviderError when
    the embedder stays away.
    """
    totals = IngestionTotals()
    waiting, policy = list(versions), settings.jobs
    for attempt in range(1, policy.max_attempts + 1):
        run = _Run(
            waiting,
            settings,
            strategy,
            store,
            ledger,
            set(forced),
            drafted or {},
            stages,
            on_outcome,
            on_failure,
            on_embedded,
            on_progress,
            totals=totals,
            before=len(versions) - len(waiting),
            last=attempt == policy.max_attempts,
        )
        try:
            run.carry_out()
        except ProviderError as error:
            if not error.retryable or attempt == policy.max_attempts:
                raise
        waiting = run.unsettled()
        if not waiting:
            break
        seconds = pause(attempt - 1, policy.backoff_seconds, longest=math.inf)
        on_progress(
            "documents",
            len(versions) - len(waiting),
            len(versions),
            f"{len(waiting)} documents are tried again in {seconds:.2g} s",
        )
        time.sleep(seconds)
    tracing.count(
        documents=totals.documents,
        documents_failed=len(totals.failures),
        chunks=totals.chunks,
        embeddings_computed=totals.embeddings_computed,
        embeddings_reused=totals.embeddings_reused,
    )
    return totals


def transient(error: Exception) -> bool:
    """True for a failure that may be gone when the document is tried again: our errors say so
    themselves, others by their kind.
    """
    return (
        bool(error.details.get("retryable"))
        if isinstance(error, RagError)
        else isinstance(error, (OSError, MemoryError))
    )


class _Run:
    """One round of `ingest_versions`: what is under way, and what it came to."""

    def __init__(
        self,
        versions: Sequence[Version],
        settings: Settings,
        strategy: Strategy,
        store: Store,
        ledger: Ledger,
        forced: Collection[str],
        drafted: Mapping[str, Sequence[Json]],
        stages: Sequence[str],
        on_outcome: OnOutcome,
        on_failure: OnFailure,
        on_embedded: OnEmbedded,
        on_progress: OnProgress,
        *,
        totals: IngestionTotals,
        before: int,
        last: bool,
    ) -> None:
        self.versions, self.settings, self.strategy, self.store, self.ledger = (
            versions,
            settings,
            strategy,
            store,
            ledger,
        )
        self.forced, self.drafted, self.stages = forced, drafted, stages
        self.on_outcome, self.on_failure, self.on_embedded, self.on_progress = (
            on_outcome,
            on_failure,
            on_embedded,
            on_progress,
        )
        self.totals, self._last = totals, last
        self._settled: set[str] = set()  # version_ids that are done, or failed for good
        self._built, self._count = before, before + len(versions)  # of all rounds
        self._with_drafts = {
            draft.doc_id
            for name in {v.namespace for v in versions}
            for draft in ledger.drafts(name)
        }
        self._editions: dict[str, editions.Edition] = {}
        self._roots: dict[str, dict[str, str]] = {}
        self._profiles = stage_profiles(strategy)
        self._profile = self._profiles["embeddings"]
        # version_id: the version that was live when its build began
        self._replaced: dict[str, Version] = {}
        # version_id: what its build came to, and how that differs from the one before
        self._builds: dict[str, Json] = {}
        self._works: dict[int, VersionBuild] = {}  # of the versions whose facts are being read
        self._over = threading.Event()
        # the document that is being flushed
        self._waiting: tuple[VersionBuild, list[StageOutcome], Future[None]] | None = None
        self._batch = _Batch()
        self._embedding: deque[_Batch] = deque()
        self._unembedded: dict[str, str] = {}  # content_hash: reason
        self._embedded_texts, self._to_embed, self._lock = 0, 0, threading.Lock()
        self._largest = _FIRST_BATCH
        self._ahead = sum(map(text_bytes, versions))
        self._cache = EmbeddingCache(store.embeddings_path)
        self._pool = EmbeddingPool(strategy.embedding.provider, strategy.embedding.options)
        self._workers = Workers(settings.embedding_processes)
        self._plan: bytes | None = None  # for child processes, where they are worth their start
        if self._workers.count > 1 and version_workers.may_go(strategy, versions):
            self._plan = version_workers.Plan(
                store, settings, strategy, self._profiles, stages
            ).packed()
        self._flusher = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._readers = ThreadPoolExecutor(pool().size, thread_name_prefix="read")
        self._embedder = ThreadPoolExecutor(_BATCHES_AT_ONCE, thread_name_prefix="embed")

    def carry_out(self) -> None:
        """Take every version through the stages."""
        try:
            for number in range(len(self.versions)):
                self.build(number)
            self.settle()
            self.spare()
            self.embed(last=True)
        except Exception as error:
            self._raise_full(error)
            raise
        except BaseException:  # told to stop: nobody waits for what is being read
            pool().close()
            raise
        finally:
            self._close()

    def unsettled(self) -> list[Version]:
        """The versions that are neither done nor failed for good."""
        return [version for version in self.versions if version.version_id not in self._settled]

    def _close(self) -> None:
        # first: a run that is given up must not wait for what its processes are reading and
        # computing
        self._over.set()
        self._pool.close()
        self._workers.close()
        self._readers.shutdown(cancel_futures=True)
        self._embedder.shutdown(cancel_futures=True)
        self._flusher.shutdown()
        self._cache.close()

    def build(self, number: int) -> None:
        """Take one version through the stages before embedding; its outputs are flushed while the
        next one is built.
        """
        version = self.versions[number]
        if self._waiting and self._waiting[0].version.file_sha256 == version.file_sha256:
            self.settle()  # equal bytes share their facts
        work = self._begun(number)
        outcomes, failure = (
            self._built_apart(work) if work.built is not None else self._built_here(work)
        )
        if failure:
            self._raise_full(failure[1])
        self._ahead -= text_bytes(version)
        flushed = self._flusher.submit(work.writes.commit)
        self.settle()
        self._waiting = work, outcomes, flushed
        if failure:
            self.settle(failure)
        self._built += 1
        self.on_progress("documents", self._built, self._count, version.source_uri)
        self.embed()

    def _built_here(self, work: VersionBuild) -> tuple[list[StageOutcome], Failure | None]:
        """The outcomes of the stages up to the views, and in which one the version failed."""
        outcomes, failure = build_stages(self.stages, work)
        if failure is None and outcomes and outcomes[-1].stage == "views":
            # one document must never cost the batch
            with faults.about(work.version.version_id), faults.Attempt("stage.views") as attempt:
                self._edit(work)
            if attempt.error is not None:
                failure = "views", attempt.error
        return outcomes, failure

    def _built_apart(self, work: VersionBuild) -> tuple[list[StageOutcome], Failure | None]:
        """As `_built_here`, of a version that a child process builds."""
        assert work.built is not None
        built = work.built.result()
        tracing.add(built.figures)
        if built.summary is not None:
            work.views, work.summary, work.title = built.views, built.summary, built.title
        return built.outcomes, built.failure

    def _raise_full(self, error: Exception) -> None:
        """Raise StorageError when the disk is full: every other document would fail with the
        same.
        """
        if full := disk_full(error, self.store.home):
            raise full from error

    def _edit(self, work: VersionBuild) -> None:
        """Apply what was edited by hand: the draft that is being published, else the published one
        of the document.
        """
        version = work.version
        if (
            version.version_id not in self.drafted
            and version.doc_id not in self._with_drafts
            and not version.edition
        ):
            return
        document = self.ledger.document(version.namespace, version.doc_id)
        given = self.drafted.get(version.version_id)
        carried = editions.to_carry(self.ledger, document) if given is None else given
        edition = editions.build_edition(
            work, carried, editions.published_operations(self.ledger, document)
        )
        self._editions[version.version_id] = edition
        self.totals.warnings += [f"{version.source_uri}: {warning}" for warning in edition.warnings]

    def settle(self, failure: Failure | None = None) -> None:
        """Report the document whose outputs were flushed last, and put it into the batch unless it
        failed.
        """
        if self._waiting is None:
            return
        (work, outcomes, flushed), self._waiting = self._waiting, None
        try:
            flushed.result()
        except OSError as error:
            self._raise_full(error)
            outcomes, failure = [], ("raw_document", error)
        version_id = work.version.version_id
        outcomes, self._builds[version_id] = measure_drift(
            work.version, self._replaced.pop(version_id, None), outcomes
        )
        for outcome in outcomes:
            self.totals.warnings += [
                f"{work.version.source_uri}: {warning}" for warning in outcome.warnings
            ]
            self.on_outcome(work.version, outcome)
        if failure:
            self._failed(work.version, *failure)
        elif "embeddings" in self.stages:
            self._batch.works.append(work)
        else:
            self._settled.add(version_id)

    def spare(self) -> None:
        """End the children that have nothing left to read when much is still to embed: one that has
        read PDFs holds 150 MB.
        """
        if self._batch.size + sum(batch.size for batch in self._embedding) > _FIRST_BATCH:
            pool().end_waiting()

    def embed(self, last: bool = False) -> None:
        """Start embedding a batch that is full, and complete those that are embedded; with `last`
        all of them, in order.
        """
        if self._batch.works and (last or self._batch.size >= self._largest):
            batch, self._batch = self._batch, _Batch()
            batch.started = time.perf_counter()
            texts = batch.texts(self.strategy.cleaning) if self.strategy.builds_dense else {}
            # never computed twice side by side
            batch.hashes = texts.keys() - set().union(*(other.hashes for other in self._embedding))
            self.totals.embeddings_reused += len(texts) - len(batch.hashes)
            missing = {key: text for key, text in texts.items() if key in batch.hashes}
            batch.report = self._embedder.submit(
                tracing.carry(self._embedded), missing, 0 if last else max(0, self._ahead)
            )
            self._embedding.append(batch)
            self._largest = min(2 * self._largest, _BATCH_TEXTS)
        while self._embedding:
            report = self._embedding[0].report
            assert report is not None
            if not (last or report.done() or len(self._embedding) > _BATCHES_AT_ONCE):
                return
            self._complete(self._embedding.popleft(), report.result())

    def _begun(self, number: int) -> VersionBuild:
        """The build of one version, which was begun ahead where that is safe and of use, as that of
        the next ones is.

        Other threads have the facts read by child processes, or whole versions built by them.
        """
        for later in range(
            number,
            (
                min(number + 2 * self._workers.count + 1, len(self.versions))
                if "facts" in self.stages
                else number
            ),
        ):
            version = self.versions[later]
            if later in self._works or any(
                version.file_sha256 == work.version.file_sha256 for work in self._works.values()
            ):
                continue
            if self._plan is not None and self._goes_apart(version):
                work = self._works[later] = self._work(version)
                task = version_workers.Task(
                    self._plan,
                    version,
                    work.origin,
                    work.root,
                    work.force,
                    work.base_url,
                    tracing.link(),
                )
                work.built = self._workers.submit(version_workers.build_apart, task)
            elif later <= number + pool().size and self._is_read_ahead(version):
                work = self._works[later] = self._work(version)
                work.reading = self._readers.submit(tracing.carry(read_facts), work)
        return self._works.pop(number, None) or self._work(self.versions[number])

    def _goes_apart(self, version: Version) -> bool:
        """True for a version that nothing ties to this process: child processes of its format,
        edits by hand.
        """
        edited = (
            version.edition
            or version.version_id in self.drafted
            or version.doc_id in self._with_drafts
        )
        return not edited and not read_in_child(version)

    def _is_read_ahead(self, version: Version) -> bool:
        known = (self.store.facts_dir(version, self._profiles["facts"]) / "summary.json").is_file()
        return read_in_child(version) and not (known and version.version_id not in self.forced)

    def _work(self, version: Version) -> VersionBuild:
        document = self.ledger.document(version.namespace, version.doc_id)
        if document.live_version not in (None, version.version_id):
            self._replaced[version.version_id] = self.ledger.version(document.live_version)
        if version.namespace not in self._roots:
            self._roots[version.namespace] = {
                source.name: source.root for source in self.ledger.sources(version.namespace)
            }
        root = self._roots[version.namespace].get(document.source)
        on_web = document.origin.startswith(("http:", "https:"))

        def say(what: str) -> None:
            if self._over.is_set():
                raise DocumentError(
                    "the run was ended before the document was read; ingest it again",
                    code="cancelled",
                )
            self.on_progress("documents", self._built, self._count, f"{version.source_uri}: {what}")

        work = VersionBuild(
            version,
            self.strategy,
            self.settings,
            self.store,
            Path(document.origin) if document.origin and not on_web else None,
            Path(root) if root else None,
            version.version_id in self.forced,
            lambda page, pages: say(f"page {page} of {pages}"),
            lambda doing, image, images: say(f"{doing} image {image} of {images}"),
            deferred=True,
            base_url=document.origin if on_web else "",
        )
        work.profiles = self._profiles
        return work

    def _embedded(self, texts: Mapping[str, str], expected: int) -> EmbeddingReport:
        """The report of embedding what a batch needs; runs in a thread of its own."""
        strategy = self.strategy
        with tracing.span(
            "stage.embedding",
            provider_type="embedder",
            provider_id=strategy.embedding.provider if strategy.builds_dense else "none",
            profile_id=self._profile,
        ) as span:
            report = EmbeddingReport()
            if strategy.builds_dense:
                report = embed_texts(
                    texts,
                    strategy.embedding,
                    self._cache,
                    text_norm_profile=text_norm_profile_id(strategy.cleaning),
                    processes=self.settings.embedding_processes,
                    pool=self._pool,
                    expected=expected,
                    on_progress=self._counted(),
                )
            span.set(**report.figures())
            batch = {
                "batches": report.calls,
                "hit": report.hits,
                "miss": report.misses,
                "failed": list(report.failed)[:50],
            }
            tracing.event("ingest.embedding_batch", batch)
        return report

    def _counted(self) -> Callable[[int, int], None]:
        """Tells how far embedding is over all batches of the round, of which two may be under
        way.
        """
        known = 0

        def tell(done: int, total: int) -> None:
            nonlocal known
            with self._lock:
                self._to_embed += total if known == 0 else 0
                self._embedded_texts += done - known
                known = done
                self.on_progress("embeddings", self._embedded_texts, self._to_embed, "embedding")

        return tell

    def _complete(self, batch: _Batch, report: EmbeddingReport) -> None:
        """Make the versions of an embedded batch live, but for those with a text that could not be
        embedded.
        """
        self.totals.embeddings_computed += report.misses - len(report.failed)
        self.totals.embeddings_reused += report.hits
        self._unembedded.update(report.failed)
        seconds = (time.perf_counter() - batch.started) / len(batch.works)
        path = self.store.embeddings_path.relative_to(self.store.home).as_posix()
        ready = []
        for work in batch.works:
            views = work.views
            bad = [view for view in views if view.content_hash in self._unembedded]
            if bad:
                reason = self._unembedded[bad[0].content_hash]
                error = DocumentError(
                    f"{len(bad)} of {len(views)} chunks could not be embedded; the first: {reason}",
                    code="failed_embed",
                    retryable=any(view.content_hash in report.passing for view in bad),
                )
                self._failed(work.version, "embeddings", error)
                continue
            embedded = (
                sum(bool(view.dense_text.strip()) for view in views)
                if self.strategy.builds_dense
                else 0
            )
            counts: Json = {
                "chunks": len(views),
                "embedded": embedded,
                "batch_computed": report.misses,
                "batch_reused": report.hits,
            }
            outcome = StageOutcome(
                "embeddings", self._profile, report.misses == 0, seconds, path, "", counts
            )
            ready.append((work, outcome))
        for work, outcome in ready:
            self.on_outcome(work.version, outcome)
        self.on_embedded([work.version for work, _ in ready])
        for work, _ in ready:
            if edition := self._editions.pop(work.version.version_id, None):
                editions.record(edition, store=self.store, ledger=self.ledger)
            summary = work.summary
            figures = {
                "profile": self._profile,
                "chunks": len(work.views),
                "pages": summary.pages,
                "text_chars": summary.text_chars,
            }
            figures |= self._builds.pop(work.version.version_id, {})
            led_to = (
                {"final_url": work.base_url}
                if work.base_url not in ("", work.version.source_uri)
                else {}
            )
            metadata = file_metadata({**led_to, **summary.metadata}, _modified(work.origin))
            self.ledger.complete(
                work.version.version_id,
                title=work.title,
                counts={**figures, "warnings": list(summary.warnings), "metadata": metadata},
            )
            self._settled.add(work.version.version_id)
            self.totals.documents += 1
            self.totals.chunks += len(work.views)

    def _failed(self, version: Version, stage: str, error: Exception) -> None:
        code = error.code if isinstance(error, RagError) else "internal_error"
        reason = (
            error.message if isinstance(error, RagError) else f"{type(error).__name__}: {error}"
        )
        with faults.about(version.version_id):
            faults.report(error, f"stage.{stage}")
        again = transient(error) and not self._last
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
        # what is published of it stays good when a draft of it fails
        if version.version_id not in self.drafted:
            self.ledger.fail(
                version.version_id,
                code,
                reason,
                max_attempts=self.settings.jobs.max_attempts,
                profile=self._profile,
            )
        self._settled.add(version.version_id)
        self.totals.failures.append((version.source_uri, code, reason))
        self.on_failure(version, stage, code, reason)


def _modified(origin: Path | None) -> float | None:
    """The time stamp of the file that was read, None where it is gone or came without a path."""
    try:
        return origin.stat().st_mtime if origin is not None else None
    except OSError:
        return None


def stale_versions(ledger: Ledger, namespace: str, profile: str) -> Iterator[Version]:
    """Live versions whose outputs were built under another config; an ingest run takes them
    along.
    """
    for _, version in ledger.live(namespace):
        if version.counts.get("profile") != profile:
            yield version
