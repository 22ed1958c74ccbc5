"""Takes versions through the seven ingestion stages. The stages overlap: while one document is
built, the next ones are read, the previous one is flushed to disk, and a batch is embedded.

A failed document is recorded and does not stop the others; live versions stay live. Transient
failures (a network error, a killed child process) are retried after the other documents. A full
disk ends the run at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from rag_platform.config.profiles import INGESTION_STAGES
from rag_platform.documents.versions import Failure, build_stages
from rag_platform.drafts import lifecycle
from rag_platform.errors import ProviderError
from rag_platform.ingestion.committing import Committer
from rag_platform.ingestion.embedding_batches import FIRST_BATCH, BatchEmbedder
from rag_platform.ingestion.reading import Reader
from rag_platform.ingestion.request import Hooks, IngestionTotals, Request, VersionRun
from rag_platform.intake.isolation import pool
from rag_platform.ir import Json, StageOutcome, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.observability import faults, tracing
from rag_platform.retrying import pause
from rag_platform.text.wording import pluralise
from rag_platform.workspace import Workspace


def ingest_versions(
    versions: Sequence[Version],
    workspace: Workspace,
    *,
    forced: Collection[str] = (),
    drafted: Mapping[str, Sequence[Json]] | None = None,
    stages: Sequence[str] = INGESTION_STAGES,
    hooks: Hooks = Hooks(),  # noqa: B008 (frozen)
    decisions: Mapping[str, str] | None = None,
) -> IngestionTotals:
    """Take versions through `stages`, a prefix of the seven. Versions that pass all of them are
    live afterwards; the ledger records why others failed.

    `forced` are version_ids whose stages run again although the bytes are the same. `drafted` maps
    version_ids to the operations of a draft being published; other versions keep their published
    ones. `decisions` maps version_ids to the decision of receiving, for the trace.

    Transient failures are retried up to settings.jobs.max_attempts in all, and only the last one is
    reported. Raises StorageError when the disk is full, ProviderError when the embedder stays
    unavailable.
    """
    totals = IngestionTotals()
    waiting, policy = list(versions), workspace.settings.jobs
    request = Request(
        versions, workspace, set(forced), drafted or {}, stages, hooks, decisions or {}
    )
    for attempt in range(1, policy.max_attempts + 1):
        last = attempt == policy.max_attempts
        current = _Round(waiting, request, totals, last=last)
        try:
            current.run()
        except ProviderError as error:
            if not error.retryable or last:
                raise
        waiting = current.find_unsettled()
        if not waiting:
            break
        seconds = pause(attempt - 1, policy.backoff_seconds, longest=math.inf)
        hooks.on_progress(
            "documents",
            len(versions) - len(waiting),
            len(versions),
            f"{pluralise(len(waiting), 'document')} to try again in {seconds:.2g} s",
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


class _Round:
    """One attempt at all versions that are not settled yet."""

    def __init__(
        self, versions: Sequence[Version], request: Request, totals: IngestionTotals, *, last: bool
    ) -> None:
        self._versions, self._request, self._totals = versions, request, totals
        self._built = len(request.versions) - len(versions)
        self._bytes_ahead = sum(version.text_bytes for version in versions)
        self._reader = Reader(versions, request, self._announce, self._announce_pages)
        self._embedder = BatchEmbedder(request, totals)
        self._committer = Committer(request, totals, last=last)

    def run(self) -> None:
        """Take each version through the stages."""
        try:
            if self._versions:
                self._announce(self._versions[0].source_uri)
            for number, version in enumerate(self._versions):
                self._build(number, version)
            self._add(self._committer.settle())
            if self._versions:  # only now is the number of texts to embed known
                self._announce(self._versions[-1].source_uri)
            # a child that has read PDFs holds 150 MB, which the embedder can use
            if self._embedder.size > FIRST_BATCH:
                pool().end_waiting()
            self._embed(last=True)
        except Exception as error:
            self._committer.raise_if_full(error)
            raise
        except BaseException:  # the run is being stopped: nobody waits for these reads
            pool().close()
            raise
        finally:
            self._reader.close()
            self._embedder.close()
            self._committer.close()

    def find_unsettled(self) -> list[Version]:
        """The versions that are neither live nor failed for good."""
        return [v for v in self._versions if v.version_id not in self._committer.settled]

    def _build(self, number: int, version: Version) -> None:
        if self._committer.is_flushing(
            version.file_sha256
        ):  # versions with equal bytes share facts
            self._add(self._committer.settle())
        run = self._reader.begin(number)
        outcomes, failure = (
            self._build_here(run) if run.work.built is None else self._await_worker(run)
        )
        if failure:
            self._committer.raise_if_full(failure[1])
        self._bytes_ahead -= version.text_bytes
        self._add(self._committer.flush(run, outcomes, failure))
        self._built += 1
        if number + 1 < len(self._versions):
            self._announce(version.source_uri)
        self._embed()

    def _build_here(self, run: VersionRun) -> tuple[list[StageOutcome], Failure | None]:
        """The outcomes of the stages up to the views, and the failure that stopped them."""
        outcomes, failure = build_stages(self._request.stages, run.work)
        if failure is None and outcomes and outcomes[-1].stage == "views":
            # an error in one document's edits must not stop the others
            with faults.about(run.version.version_id), faults.Attempt("stage.views") as attempt:
                self._edit(run)
            if attempt.error is not None:
                failure = "views", attempt.error
        return outcomes, failure

    def _await_worker(self, run: VersionRun) -> tuple[list[StageOutcome], Failure | None]:
        """Like `_build_here`, for a version that a child process builds."""
        work = run.work
        assert work.built is not None
        built = work.built.result()
        tracing.add(built.figures)
        if built.summary is not None:
            work.views, work.summary, work.title = built.views, built.summary, built.title
        return built.outcomes, built.failure

    def _edit(self, run: VersionRun) -> None:
        """Apply manual edits: those of the draft being published, else the published ones."""
        version, ledger = run.version, self._request.workspace.ledger
        if not self._request.is_edited(version):
            return
        document = ledger.document(version.namespace, version.doc_id)
        operations = self._request.drafted.get(version.version_id)
        if operations is None:
            operations = lifecycle.operations_to_carry(ledger, document)
        run.edition = lifecycle.build_edition(
            run.work, operations, lifecycle.published_operations(ledger, document)
        )
        self._totals.warn(version, run.edition.warnings)

    def _add(self, runs: Sequence[VersionRun]) -> None:
        for run in runs:
            self._embedder.add(run)

    def _embed(self, *, last: bool = False) -> None:
        for batch, report in self._embedder.embed(self._bytes_ahead, last=last):
            self._committer.complete(batch, report)

    def _announce(self, message: str) -> None:
        total = len(self._request.versions)
        self._request.hooks.on_progress("documents", self._built, total, message)

    def _announce_pages(self, done: int, total: int, message: str) -> None:
        self._request.hooks.on_progress("pages", done, total, message)


def stale_versions(ledger: Ledger, namespace: str, profile: str) -> Iterator[Version]:
    """Live versions built under another config; every ingest rebuilds them."""
    for _, version in ledger.live(namespace):
        if version.profile != profile:
            yield version
