"""The seven ingestion assets, in one batched multi-asset over `document_versions`.

A run takes any number of versions and logs one materialisation per successful (version, stage). A
document that cannot be read leaves its partition unmaterialised, and the check `processed` of
`raw_document` warns with the reason; the run succeeds. Any other failure (a bug, damaged data, a
model) fails the run at its end: the UI then shows exactly the failed partitions, and retrying them
clears them. One run per partition would cost seconds each.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from rag_platform.assets.dagster_private import log_checks, log_materializations
from rag_platform.assets.metadata import (
    check_processed,
    define_asset,
    evaluation,
    failure,
    materialization,
)
from rag_platform.assets.partitions import (
    define_check,
    document_versions,
    require_partition,
    stage_code_versions,
)
from rag_platform.assets.resources import Platform
from rag_platform.assets.runs import raise_if_cancelled, run_of_job, tag_library
from rag_platform.config.profiles import INGESTION_STAGES
from rag_platform.config.settings import load_settings
from rag_platform.errors import DocumentError, NotFoundError, RagError
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.ingestion.request import Hooks, IngestionTotals
from rag_platform.ir import StageOutcome, Version
from rag_platform.ledger.ledger import MAX_WARNINGS, Ledger
from rag_platform.ledger.schema import Job, JobItem
from rag_platform.observability import tracing
from rag_platform.processes.jobs import Progress, describe_failures
from rag_platform.releases.checks import DOCUMENT_CHECKS, document_checks
from rag_platform.text.wording import pluralise
from rag_platform.workspace import Workspace

_EVENTS_AT_ONCE = 128
_SHOWN_AFTER_SECONDS = 2.0
_MAX_SHOWN = 20  # versions, in a warning

DESCRIPTIONS = {
    "raw_document": "The bytes as received, hashed again.",
    "facts": (
        "The structured Markdown a loader made of the bytes, with blocks that point into them."
        " Faithful, never cleaned."
    ),
    "media": "Images found in the document, stored once by their sha256.",
    "sections": "Normalisation as recorded edits, and the structural units of the normalised text.",
    "chunks": "Retrieval units inside one section, each provable back to the bytes.",
    "views": "Dense and sparse retrieval texts; citations never show them.",
    "embeddings": "Vectors of the dense texts in the content-addressed cache.",
}


def specs() -> Sequence[dg.AssetSpec]:
    """One spec per stage, each depending on the previous one."""
    settings = load_settings()
    versions = stage_code_versions(settings)
    upstream: dict[str, list[str]] = {
        stage: list(INGESTION_STAGES[max(0, i - 1) : i]) for i, stage in enumerate(INGESTION_STAGES)
    }
    return [
        dg.AssetSpec(
            stage,
            deps=upstream[stage],
            description=DESCRIPTIONS[stage],
            group_name="ingestion",
            skippable=True,
            partitions_def=document_versions,
            code_version=versions[stage],
            **define_asset(stage, settings),
        )
        for stage in INGESTION_STAGES
    ]


@dg.multi_asset(
    name="ingestion",
    specs=specs(),
    check_specs=[
        define_check(name, stage, document_versions, description)
        for name, (stage, description) in DOCUMENT_CHECKS.items()
    ],
    can_subset=True,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def ingestion(
    context: dg.AssetExecutionContext, platform: Platform
) -> Iterator[dg.MaterializeResult[None]]:
    """Materialise the selected stages of the run's versions, document by document."""
    if not context.selected_asset_keys:  # "Execute all" on the page of an asset's checks
        context.log.warning(
            "nothing was checked: these checks come with the materialization of a document; choose"
            " its partition there"
        )
        return
    require_partition(context)
    found, failures = _by_namespace(context.partition_keys, platform.root.ledger)
    tag_library(context, found)
    for namespace, versions in found.items():
        failures += _ingest(context, platform.root.workspace(namespace), namespace, versions)
    # no result: it would mark every partition of the run as done, including failed ones
    yield from ()
    if failures:
        listed = "\n".join(failures[:200])
        raise dg.Failure(
            f"{len(failures)} of {pluralise(len(context.partition_keys), 'document')} failed:\n"
            f"{listed}",
            allow_retries=False,
        )


def _ingest(
    context: dg.AssetExecutionContext,
    workspace: Workspace,
    namespace: str,
    versions: Sequence[Version],
) -> list[str]:
    """Ingest the versions of one namespace; returns the failures except unreadable documents."""
    ledger = workspace.ledger
    items = [JobItem(v.source_uri, v.doc_id, v.version_id, "continue") for v in versions]
    args = {"version_ids": [version.version_id for version in versions]}
    with run_of_job(context, workspace, "ingest", namespace, args, items) as record:
        job = record.job
        if old := [version.version_id for version in versions if not _is_wanted(version, ledger)]:
            context.log.warning(
                "replaced or deleted since, so what is made of these is in no release:"
                f" {', '.join(old[:_MAX_SHOWN])}; `rag gc` drops such partitions"
            )
        events = IngestionEvents(context, workspace, job, record.trace_id)
        progress = _DocumentProgress(ledger, job)
        context.log.info(
            f"{pluralise(len(versions), 'document')} of library {namespace!r}; `rag jobs show"
            f" {job.job_id}` says how far they are"
        )
        with tracing.watching(progress.report_stage):
            totals = ingest_versions(
                versions,
                workspace,
                forced=job.args.get("forced", ()),
                drafted=job.args.get("drafted"),
                stages=events.stages,
                hooks=Hooks(
                    events.on_outcome, events.on_failure, events.on_embedded, progress.report
                ),
                decisions={item.version_id: item.decision for item in ledger.job_items(job.job_id)},
            )
        events.end()
        result = add_totals(ledger.job(job.job_id).result, totals)
        ledger.update_job(job.job_id, trace_id=record.trace_id, result=result)
        if "run_id" in job.args:  # the job is the record of this run
            # documents of a run without the stage `embeddings`
            ledger.settle_job_items(job.job_id, "done", "", "")
            if failed := ledger.failed_job_items(job.job_id):
                record.state, record.reason = "partly", describe_failures(failed, job.job_id)
    return events.faults


def _is_wanted(version: Version, ledger: Ledger) -> bool:
    document = ledger.document(version.namespace, version.doc_id)
    return version.version_id in (document.live_version, document.wanted_version)


class IngestionEvents:
    """Reports the selected stages of a run to Dagster and to the run's job.

    Materialisations are stored in batches, as each would cost two transactions. A batch is stored
    before the ledger marks its versions as ready, so that after a kill no live document is missing
    in the UI.
    """

    def __init__(
        self, context: dg.AssetExecutionContext, workspace: Workspace, job: Job, trace_id: str
    ) -> None:
        self._context, self._ledger, self._job = context, workspace.ledger, job
        self._store, self._trace_id = workspace.store, trace_id
        self._selected = {key.to_user_string() for key in context.selected_asset_keys}
        last = max(INGESTION_STAGES.index(stage) for stage in self._selected)
        self.stages = INGESTION_STAGES[: last + 1]
        # of the current config files: a server may have loaded older ones
        self._code_versions = stage_code_versions(workspace.settings)
        self._pending: list[dg.AssetMaterialization] = []
        self._checks: list[dg.AssetCheckEvaluation] = []
        self._since = time.monotonic()
        self._seconds: dict[str, float] = defaultdict(float)
        self._failed = 0
        self._newest: Version | None = None  # the last one that passed every stage
        self.faults: list[str] = []  # failures not caused by a document

    def on_outcome(self, version: Version, outcome: StageOutcome) -> None:
        """Buffer the event of a selected stage and its checks; store them when the buffer is full
        or old enough.
        """
        self._seconds[outcome.stage] += outcome.seconds
        if outcome.stage not in self._selected:
            return
        self._checks += [evaluation(version, outcome, r) for r in document_checks(outcome)]
        self._since = self._since if self._pending else time.monotonic()
        code_version = self._code_versions[outcome.stage]
        self._pending.append(
            materialization(version, outcome, code_version, self._trace_id, self._store)
        )
        if (
            len(self._pending) >= _EVENTS_AT_ONCE
            or time.monotonic() - self._since > _SHOWN_AFTER_SECONDS
        ):
            self.log()

    def on_embedded(self, versions: Sequence[Version]) -> None:
        """Store the buffered events, and mark the documents as done."""
        self._checks += [check_processed(version) for version in versions if version.attempts]
        self.log()
        for version in versions:
            self._newest = version
            self._ledger.update_job_item(self._job.job_id, version.version_id, "done")

    def on_failure(self, version: Version, stage: str, error: RagError) -> None:
        """Store the buffered events and the reason of the failure, and mark the document as failed,
        or dead if it will not be retried.
        """
        dead = self._ledger.version(version.version_id).status == "dead"
        message = f"{version.source_uri}: {stage} failed: [{error.code}] {error.message}"
        why = failure(version, stage, error, self._job.job_id)
        self._checks.append(check_processed(version, error, why))
        self.log()
        # after the materialisation, so that the partition's page shows the failure above it; stages
        # that were not reached would have no event at all
        missing = INGESTION_STAGES[INGESTION_STAGES.index(stage) :]
        for name in dict.fromkeys(("raw_document", *missing)):
            self._context.log_event(
                dg.AssetObservation(name, partition=version.version_id, metadata=why)
            )
        self._failed += 1
        if isinstance(error, DocumentError):
            self._context.log.warning(f"{message}{' (given up)' * dead}")
        else:
            self._context.log.error(f"{message}{' (given up)' * dead}")
            self.faults.append(message)
        self._ledger.update_job_item(
            self._job.job_id,
            version.version_id,
            "dead" if dead else "failed",
            error.code,
            error.message,
        )

    def end(self) -> None:
        """Store the remaining events, and log how long each stage took."""
        if self._newest is not None and not self._failed:
            # clears the warning of an earlier run
            self._checks.append(check_processed(self._newest))
        self.log()
        took = "\n".join(f"{stage:<14}{seconds:8.2f} s" for stage, seconds in self._seconds.items())
        self._context.log.info(
            f"time by stage, of all documents together:\n{took}\n`rag trace show {self._trace_id}`"
        )

    def log(self) -> None:
        """Store the buffered events, then their checks, which would otherwise look outdated; ends a
        cancelled run.
        """
        pending, self._pending = self._pending, []
        log_materializations(self._context, pending)
        checks, self._checks = self._checks, []
        log_checks(self._context, checks)
        raise_if_cancelled(self._context)


def add_totals(result: dict[str, Any], totals: IngestionTotals) -> dict[str, Any]:
    """A job's result with the figures of another batch added."""
    added = {
        "documents": totals.documents,
        "chunks": totals.chunks,
        "embeddings_computed": totals.embeddings_computed,
        "embeddings_reused": totals.embeddings_reused,
    }
    sums = {key: result.get(key, 0) + value for key, value in added.items()}
    return {
        **result,
        **sums,
        "warnings": [*result.get("warnings", []), *totals.warnings][:MAX_WARNINGS],
    }


def _by_namespace(
    keys: Sequence[str], ledger: Ledger
) -> tuple[dict[str, list[Version]], list[str]]:
    """The versions of the keys by namespace, and a failure for each key that names none: one typed
    into the UI, or of a version that was deleted meanwhile. It must not stop the others.
    """
    found: dict[str, list[Version]] = defaultdict(list)
    unknown: list[str] = []
    for key in keys:
        try:
            version = ledger.version(key)
        except NotFoundError as error:
            unknown.append(f"{key}: [{error.code}] {error.message}; delete this partition")
            continue
        found[version.namespace].append(version)
    return found, unknown


# span of a document's trace to the message while it runs; pages and embeddings have counts instead
_SPAN_MESSAGES = {
    "stage.asset_normalize": "collecting the pictures of {}",
    "stage.chunker": "cutting {} into chunks",
    "stage.transform_post": "preparing the chunks of {}",
}


class _DocumentProgress:
    """Records a job's progress; documents are counted over all of its runs (one per range of
    partitions).
    """

    def __init__(self, ledger: Ledger, job: Job) -> None:
        self._record = Progress(ledger, job.job_id)
        self._wanted = job.args.get("version_ids", ())
        self._before = sum(
            item.state != "queued"
            for item in ledger.job_items(job.job_id)
            if item.version_id in self._wanted
        )
        self._documents = (0, 0, "")

    def report(self, stage: str, done: int, total: int, message: str) -> None:
        if stage == "documents":
            done, total = done + self._before, max(done + self._before, len(self._wanted))
            self._documents = (done, total, message)
        self._record(stage, done, total, message)

    def report_stage(self, span: str) -> None:
        """Report the stage that the current document is in."""
        done, total, source_uri = self._documents
        if span in _SPAN_MESSAGES and total:
            self._record("documents", done, total, _SPAN_MESSAGES[span].format(source_uri))
