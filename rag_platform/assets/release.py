"""The release assets, partitioned by namespace: the candidate's three stores, their checks, and the publication.

The candidate is built and checked in one step, because its three stores are one directory; `published_release` flips one pointer, and only
if every check of the candidate passed (`publish` looks again, so no path around Dagster can publish a failed one).
"""

import warnings
from collections.abc import Iterator

import dagster as dg

from rag_platform.assets.code_versions import CODE_VERSION, release_code_versions, unread_inputs
from rag_platform.assets.partitions import JOB_TAG, namespaces
from rag_platform.assets.resources import Platform
from rag_platform.config import load_settings
from rag_platform.indexes.checks import CHECKS
from rag_platform.indexes.release import current
from rag_platform.indexes.updating import build_candidate, newest_candidate, publish_candidate
from rag_platform.observability import tracing
from rag_platform.profiles import strategy_config_id

_ALL = dg.AllPartitionMapping()
_CODE_VERSIONS = release_code_versions(load_settings())
_STORES = {
    "catalog": ("chunks", "Documents, sections and chunks with their provenance, in SQLite."),
    "lexical_index": ("views", "The word index over the sparse views."),
    "dense_index": ("embeddings", "The vectors: an approximate index and a memory-mapped matrix."),
}


def _check_specs() -> list[dg.AssetCheckSpec]:
    with warnings.catch_warnings():  # partitioned checks are a preview; the pinned minor version is our answer to that
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(check, asset="catalog", description=description, blocking=True, partitions_def=namespaces)
            for check, description in CHECKS.items()
        ]


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
            kinds={"sqlite"} if name == "catalog" else {"python"},
        )
        for name, (upstream, description) in _STORES.items()
    ],
    check_specs=_check_specs(),
)
def candidate(context: dg.AssetExecutionContext, platform: Platform) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    """Build the namespace's next release from its live versions, by delta from the published one, and check it."""
    namespace = context.partition_key
    job_id = context.run.tags.get(JOB_TAG)
    job = platform.ledger.job(job_id) if job_id else None
    strategy = platform.strategy(namespace)
    with (
        platform.store.writer(namespace, f"release run {context.run.run_id}", wait=platform.settings.jobs.lock_seconds),
        tracing.trace(
            "ingestion",
            logs_dir=platform.store.logs_dir,
            namespace=namespace,
            strategy_config_id=strategy_config_id(strategy),
            job_id=job_id,
        ),
    ):
        manifest, results = build_candidate(
            namespace,
            settings=platform.settings,
            strategy=strategy,
            store=platform.store,
            ledger=platform.ledger,
            full=job is not None and bool(job.args.get("full")),
        )
    counts = {key: value for key, value in manifest.counts.items() if isinstance(value, (int, float, str))}
    shared = {"release_id": manifest.release_id, "parent": manifest.parent or "", "index_profile": manifest.index_profile, **counts}
    now = release_code_versions(platform.settings)
    for name, (upstream, _) in _STORES.items():
        tags = {CODE_VERSION: now[name], **unread_inputs([upstream])}  # the inputs of one namespace are among those of all
        yield dg.MaterializeResult(asset_key=name, metadata=shared, data_version=dg.DataVersion(manifest.release_id), tags=tags)
    for result in results:
        yield dg.AssetCheckResult(
            asset_key="catalog",
            check_name=result.name,
            passed=result.passed,
            metadata={"details": result.details, "release_id": manifest.release_id},
        )


@dg.asset(
    deps=list(_STORES),
    group_name="release",
    partitions_def=namespaces,
    code_version=_CODE_VERSIONS["published_release"],
    description="The release that readers see: one atomic pointer. Never moves to a candidate with a failed check.",
)
def published_release(context: dg.AssetExecutionContext, platform: Platform) -> dg.MaterializeResult[None]:
    """Publish the namespace's newest candidate."""
    namespace = context.partition_key
    before = current(platform.store, namespace)
    with platform.store.writer(namespace, f"release run {context.run.run_id}", wait=platform.settings.jobs.lock_seconds):
        release = publish_candidate(namespace, newest_candidate(namespace, platform.ledger), settings=platform.settings,
                                    store=platform.store, ledger=platform.ledger)  # fmt: skip
    metadata = {"release_id": release.release_id, "previous": before or "", **release.counts}
    tags = {CODE_VERSION: release_code_versions(platform.settings)["published_release"]}
    return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(release.release_id), tags=tags)
