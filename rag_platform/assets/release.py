"""The release assets, partitioned by namespace: the candidate's three stores, their checks, and the
published release.

The candidate is built and checked in one step, because its three stores share a directory.
`published_release` moves one pointer, only if every check of the candidate passed (which
`publish_candidate` verifies again, for callers outside Dagster).
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any

import dagster as dg

from rag_platform.assets.collecting import PartitionKeys
from rag_platform.assets.dagster_private import log_checks
from rag_platform.assets.metadata import check_processed, define_asset, failure
from rag_platform.assets.partitions import (
    CODE_VERSION,
    define_check,
    namespaces,
    release_code_versions,
    require_partition,
    unread_inputs,
)
from rag_platform.assets.resources import Platform
from rag_platform.assets.runs import (
    PASSING_TAG,
    explain_rejection,
    is_built_anyway,
    run_of_job,
    tag_library,
)
from rag_platform.assets.signals import check_signal
from rag_platform.config.profiles import stage_profiles, strategy_config_id
from rag_platform.config.settings import fingerprint, load_settings
from rag_platform.errors import DocumentError
from rag_platform.evaluation.gating import apply_gates, gates_fingerprint, why_not_judged
from rag_platform.evaluation.reporting.reports import gate_markdown
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Job, Release
from rag_platform.observability import tracing
from rag_platform.processes.jobs import Progress
from rag_platform.releases.checks import CHECKS
from rag_platform.releases.manifest import QUALITY_GATE, CheckResult, Manifest, read_head
from rag_platform.releases.publishing import (
    NOT_PROVED,
    build_candidate,
    description_of,
    find_equal,
    newest_candidate,
    publish_candidate,
)
from rag_platform.releases.release_store import current
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

RELEASE_JOB = "release"
REJECTED_TAG = "rag/rejected"  # `release_inputs` of a run whose candidate was rejected
CANDIDATE_TAG = "rag/candidate"  # that candidate
_SHOWN_FAILURES = 20
_WARN, _ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
_ALL = dg.AllPartitionMapping()
_GATE = "The questions of config/gates.yaml and the library's expectations are answered as before."
_SETTINGS = load_settings()
_CODE_VERSIONS = release_code_versions(_SETTINGS)
_STORES = {
    "catalog": ("chunks", "Documents, sections and chunks with their provenance, in SQLite."),
    "lexical_index": ("views", "The word index over the sparse views."),
    "dense_index": (
        "embeddings",
        (
            "The vectors: a memory-mapped matrix, and an approximate index where a question may ask"
            " one."
        ),
    ),
}


@dg.multi_asset(
    name="candidate",
    specs=[
        dg.AssetSpec(
            name,
            deps=[dg.AssetDep(upstream, partition_mapping=_ALL)],
            description=description,
            group_name="release",
            partitions_def=namespaces,
            code_version=_CODE_VERSIONS[name],
            **define_asset(name, _SETTINGS),
        )
        for name, (upstream, description) in _STORES.items()
    ],
    check_specs=[
        define_check(check, "catalog", namespaces, description, blocking=True)
        for check, description in {**CHECKS, QUALITY_GATE: _GATE}.items()
    ],
)
def candidate(
    context: dg.AssetExecutionContext, platform: Platform
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    """Build the namespace's next release from its live versions, by delta from the published one,
    and check it.
    """
    namespace = _library_of(context, platform)
    tag_library(context, [namespace])
    workspace = platform.root.workspace(namespace)
    store, ledger = workspace.store, workspace.ledger
    with (
        run_of_job(context, workspace, "release", namespace) as record,
        tracing.watching(_make_step_reporter(ledger, record.job)),
    ):
        before, terms = ledger.sequence(namespace), read_terms(namespace, workspace)
        manifest = _manifest_if_unchanged(record.job, namespace, workspace)
        if manifest is not None:
            message = f"nothing changed: release {manifest.release_id} holds what is live"
            context.log.info(message)
            results = list(manifest.checks)
        else:
            deletes = record.job.kind == "delete"
            manifest, _ = build_candidate(
                namespace,
                workspace,
                full=bool(record.job.args.get("full")),
                # the purge reports what a deletion drops
                deletes=deletes,
            )
            _report_given_up(context, manifest, before, ledger, record.job)
            manifest = apply_gates(manifest, workspace, deletes=deletes)
            results = list(manifest.checks)
            message = (
                f"release {manifest.release_id} is built and checked; this run publishes nothing"
            )
        record.continues = not manifest.failures and _will_publish(context)
        if not (manifest.failures or record.continues):
            record.reason = message
            Progress(ledger, record.job.job_id)("release", 1, 1, message)
        if manifest.failures:
            failed = "; ".join(f"{check.name}: {check.details}" for check in manifest.failures)
            record.state = "failed"
            record.reason = explain_rejection(namespace, manifest.release_id, failed)
            context.log.error(record.reason)
            if record.job.kind != "delete":  # whose candidate does not hold what is live
                tags = {}
                if manifest.may_pass_later:
                    tags = {PASSING_TAG: QUALITY_GATE}
                elif ledger.sequence(namespace) == ledger.release_sequence(
                    namespace, manifest.release_id
                ):  # nothing came in meanwhile
                    inputs = release_inputs(namespace, workspace, terms)
                    tags = {REJECTED_TAG: inputs, CANDIDATE_TAG: manifest.release_id}
                context.instance.add_run_tags(context.run.run_id, tags)
    now = release_code_versions(workspace.settings)
    for name, (upstream, _) in _STORES.items():
        # the inputs of one namespace are among those of all
        tags = {CODE_VERSION: now[name], **unread_inputs([upstream])}
        yield dg.MaterializeResult(
            asset_key=name,
            metadata=_store_metadata(name, manifest, store),
            data_version=dg.DataVersion(manifest.release_id),
            tags=tags,
        )
    gate_result = None
    if not manifest.is_judged:
        why = why_not_judged(manifest, store)
        gate_result = CheckResult(QUALITY_GATE, not why, why or "the library has no gate")
        results.append(gate_result)
    for result in results:
        yield dg.AssetCheckResult(
            asset_key="catalog",
            check_name=result.name,
            passed=result.passed and not result.is_overruled,
            # what does not hold the release back only warns: a gate that was not asked or that is
            # published over
            severity=_WARN if result is gate_result or result.is_overruled else _ERROR,
            **_describe(result, manifest),
        )


def _library_of(context: dg.AssetExecutionContext, platform: Platform) -> str:
    """The library of a run. The UI adds any key that is typed into it as a partition, which must
    neither make a library nor name a folder.
    """
    require_partition(context)
    namespace: str = context.partition_key
    if namespace not in platform.root.ledger.namespaces():
        raise dg.Failure(
            f"no library {namespace!r} in the ledger; delete this partition", allow_retries=False
        )
    return namespace


def find_rejection(
    instance: dg.DagsterInstance, namespace: str, workspace: Workspace
) -> Release | None:
    """The newest release of what the next one would be made of that a check rejected; None if its
    files are gone.
    """
    ledger, published = workspace.ledger, current(workspace.store, namespace)
    newer = takewhile(lambda row: row.release_id != published, ledger.releases(namespace))
    if not any(row.state == "rejected" for row in newer):  # saves reading all live versions
        return None
    inputs = release_inputs(namespace, workspace)
    runs = instance.get_runs(dg.RunsFilter(tags={REJECTED_TAG: inputs}), limit=1)
    found = [ledger.release(namespace, run.tags.get(CANDIDATE_TAG, "")) for run in runs]
    return next((row for row in found if row and row.state == "rejected"), None)


def release_inputs(namespace: str, workspace: Workspace, terms: str = "") -> str:
    """The namespace with a fingerprint of what its next release and the verdict on it depend on:
    the live documents, and the `terms` of an earlier `read_terms`, by default those of now.
    """
    live = [
        (
            *(version.version_id, version.edition, version.counts.get("metadata")),
            *description_of(document),
        )
        for document, version in workspace.ledger.live(namespace)
    ]
    return f"{namespace}:{fingerprint(sorted(live), terms or read_terms(namespace, workspace))}"


def read_terms(namespace: str, workspace: Workspace) -> str:
    """A fingerprint of what a release depends on beside its documents: the strategy, the release
    that it follows, the gates.
    """
    gates = gates_fingerprint(namespace, workspace.settings, workspace.store)
    published, strategy = current(workspace.store, namespace), workspace.strategy
    return fingerprint(strategy_config_id(strategy), stage_profiles(strategy), published, gates)


# span of the release's trace to the message while it runs
_STEPS = {
    "stage.upsert.catalog": "writing the chunks and the word index",
    "stage.upsert.dense": "writing the vectors",
    "stage.upsert.check": "checking the release and proving every new chunk",
    "stage.upsert.hash": "hashing the files",
}


def _make_step_reporter(ledger: Ledger, job: Job) -> Callable[[str], None]:
    """A callback that records the current step in the job's progress."""
    record = Progress(ledger, job.job_id)

    def report(span: str) -> None:
        if span in _STEPS:
            record("release", 0, 1, _STEPS[span])

    return report


# asset: (its part of the release's folder, the name of its row count)
_PARTS = {
    "catalog": ("catalog.sqlite", "chunks"),
    "lexical_index": ("lexical", "lexical"),
    "dense_index": ("dense", "dense"),
}


def _store_metadata(name: str, manifest: Manifest, store: Store) -> dict[str, Any]:
    """Path, size, build time and counts of one store of a release."""
    part, rows = _PARTS[name]
    directory = store.release_dir(manifest.namespace, manifest.release_id)
    files = [directory / file for file in manifest.files if file.partition("/")[0] == part]
    return {
        "release_id": manifest.release_id,
        "parent": manifest.parent or "",
        "index_profile": manifest.index_profile,
        "path": dg.MetadataValue.path((directory / part).relative_to(store.home).as_posix()),
        "dagster/row_count": int(manifest.counts.get(rows, 0)),
        "bytes": sum(file.stat().st_size for file in files),
        "seconds": float(manifest.delta.get("seconds", {}).get(part.partition(".")[0], 0.0)),
        **_figures(manifest.counts),
        **_figures(manifest.delta),
    }


def _figures(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if isinstance(value, (int, float, str))}


def _describe(result: CheckResult, manifest: Manifest) -> dict[str, Any]:
    """The description and metadata of a check's result: the details as metadata; the gate's report,
    of a rejected release with what to do, as a description in Markdown, which its page shows first,
    with its lines as paragraphs.
    """
    metadata = {"release_id": manifest.release_id, **result.figures}
    if result.name != QUALITY_GATE:
        return {"metadata": {"details": result.details, **metadata}}
    report = result.details
    if result in manifest.failures:
        failed = f"{result.name}: {report}"
        report = explain_rejection(manifest.namespace, manifest.release_id, failed)
    return {"description": gate_markdown(report), "metadata": metadata}


def _manifest_if_unchanged(job: Job, namespace: str, workspace: Workspace) -> Manifest | None:
    """The manifest of the published release if a new one would be equal, unless the job forces a
    build.
    """
    if is_built_anyway(job):
        return None
    same = find_equal(namespace, workspace.strategy, workspace)
    return read_head(workspace.store.release_dir(namespace, same)) if same else None


def _will_publish(context: dg.AssetExecutionContext) -> bool:
    """True if the run publishes the candidate in its next step."""
    chosen = context.run.asset_selection
    return not chosen or dg.AssetKey("published_release") in chosen


@dg.asset(
    deps=list(_STORES),
    group_name="release",
    partitions_def=namespaces,
    code_version=_CODE_VERSIONS["published_release"],
    **define_asset("published_release", _SETTINGS),
    description=(
        "The release that readers see: one atomic pointer. Never moves to a candidate with a failed"
        " check."
    ),
)
def published_release(
    context: dg.AssetExecutionContext, platform: Platform
) -> Iterator[dg.MaterializeResult[None]]:
    """Publish the namespace's newest candidate, unless the published release has the same content.
    In the release job its canaries are asked afterwards.
    """
    namespace = _library_of(context, platform)
    tag_library(context, [namespace])
    workspace = platform.root.workspace(namespace)
    store, ledger = workspace.store, workspace.ledger
    before = current(store, namespace)
    with run_of_job(context, workspace, "release", namespace) as record:
        manifest = _manifest_if_unchanged(record.job, namespace, workspace)
        if manifest is None:
            release_id = newest_candidate(namespace, ledger)
            publish_candidate(namespace, release_id, workspace)
            manifest = read_head(store.release_dir(namespace, release_id))
            since = ledger.release_sequence(namespace, before or "") or 0
            PartitionKeys(context.instance).follow(namespace, ledger, since)
        report = Progress(ledger, record.job.job_id)
        if own := "run_id" in record.job.args:  # the job is the record of this run
            report("release", 1, 1, "published")
    metadata = {
        "release_id": manifest.release_id,
        "previous": before or "",
        "dagster/row_count": int(manifest.counts.get("chunks", 0)),
        "path": dg.MetadataValue.path(
            store.current_path(namespace).relative_to(store.home).as_posix()
        ),
        **_figures(manifest.counts),
        **_failed_documents(namespace, ledger),
    }
    tags = {CODE_VERSION: release_code_versions(workspace.settings)["published_release"]}
    yield dg.MaterializeResult(
        metadata=metadata, data_version=dg.DataVersion(manifest.release_id), tags=tags
    )
    if context.run.job_name == RELEASE_JOB:
        if not own:  # an own job has ended above
            report("release", 0, 1, "published; asking it questions made of the release before")
        log_checks(context, [check_signal("canaries", namespace, platform.root)])


def _report_given_up(
    context: dg.AssetExecutionContext, manifest: Manifest, before: int, ledger: Ledger, job: Job
) -> None:
    """Fail the check `processed` of the documents that the build of a candidate gave up, by which
    the ledger's sequence rose above the one `before`.
    """
    if (ledger.release_sequence(manifest.namespace, manifest.release_id) or 0) <= before:
        return
    checks = []
    for version in ledger.find_wanted(manifest.namespace, "dead"):
        if version.code == NOT_PROVED:
            context.log.warning(f"{version.source_uri}: {version.reason}")
            error = DocumentError(version.reason, code=version.code)
            why = failure(version, "release", error, job.job_id)
            checks.append(check_processed(version, error, why))
    log_checks(context, checks)


def _failed_documents(namespace: str, ledger: Ledger) -> dict[str, Any]:
    """The number and a table of the failed documents, which the release lacks."""
    failed = ledger.find_wanted(namespace, "failed", "dead")
    rows = [
        dg.TableRecord({"file": version.source_uri, "code": version.code, "reason": version.reason})
        for version in failed[:_SHOWN_FAILURES]
    ]
    return {
        "documents_failed": len(failed),
        **({"failed": dg.MetadataValue.table(rows)} if rows else {}),
    }
