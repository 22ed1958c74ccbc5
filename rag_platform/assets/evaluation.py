"""Evaluation as assets: a run per dataset and strategy, and a comparison of a dataset's strategies,
with their metrics as metadata, which Dagster plots over time.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import dagster as dg

from rag_platform.assets.automation import make_schedule
from rag_platform.assets.dagster_private import log_checks
from rag_platform.assets.metadata import define_asset
from rag_platform.assets.partitions import CODE_VERSION, NAMESPACE_TAG, unread_inputs
from rag_platform.assets.resources import Platform
from rag_platform.assets.runs import record_job
from rag_platform.assets.signals import check_signal
from rag_platform.config.settings import load_settings
from rag_platform.errors import InputError, NotFoundError, RagError
from rag_platform.evaluation.cases import Dataset
from rag_platform.evaluation.reporting.reports import (
    LEADING,
    comparison_markdown,
    comparison_table,
    run_markdown,
)
from rag_platform.evaluation.reporting.run_files import write_run_files
from rag_platform.evaluation.results import EvalRun, ResultStore
from rag_platform.evaluation.runs import RunOptions, open_library
from rag_platform.evaluation.sources import open_dataset
from rag_platform.evaluation.strategies import (
    QUERY_VARIANTS,
    comparable_names,
    compare_strategies,
    evaluation_targets,
    run_strategy,
)
from rag_platform.releases.release_store import current
from rag_platform.retrieval.library import Library

_SETTINGS = load_settings()
_RELEASE_UNREAD = unread_inputs(["published_release"])  # may be of another library
_NONE = "no dataset"  # a partitions definition needs at least one key

Metadata = dict[str, str | int | float | dg.MarkdownMetadataValue | dg.PathMetadataValue]
Context = dg.OpExecutionContext | dg.AssetExecutionContext

datasets = dg.StaticPartitionsDefinition(list(evaluation_targets(_SETTINGS)) or [_NONE])
dataset_strategies = dg.MultiPartitionsDefinition(
    {
        "dataset": datasets,
        "strategy": dg.StaticPartitionsDefinition(comparable_names(_SETTINGS)),
    }
)


@dg.asset(
    group_name="evaluation",
    partitions_def=dataset_strategies,
    deps=[dg.AssetDep("published_release", partition_mapping=dg.AllPartitionMapping())],
    **define_asset("evaluation_run", _SETTINGS),
    description=(
        "One dataset asked of its library, that of gates.yaml or the default one, under one"
        " strategy; results that depend on nothing that changed are taken over."
    ),
)
def evaluation_run(
    context: dg.AssetExecutionContext, platform: Platform
) -> dg.MaterializeResult[None]:
    """Evaluate the published release on one dataset under one strategy."""
    key = context.partition_key
    assert isinstance(key, dg.MultiPartitionKey)
    target, strategy = key.keys_by_dimension["dataset"], key.keys_by_dimension["strategy"]
    root = platform.root
    dataset, namespace = _open(target, platform)
    with (
        _evaluating(context, platform) as store,
        open_library(root.settings, root.store) as library,
    ):
        metadata = _evaluate(platform, library, dataset, strategy, store, namespace)
    return dg.MaterializeResult(metadata=metadata, tags=_RELEASE_UNREAD)


@dg.asset(
    group_name="evaluation",
    partitions_def=datasets,
    **define_asset("strategy_comparison", _SETTINGS),
    # partitions are mapped by the name of the dimension `dataset`
    deps=[evaluation_run],
    description="The newest runs of a dataset beside each other, one for each strategy.",
)
def strategy_comparison(
    context: dg.AssetExecutionContext, platform: Platform
) -> dg.MaterializeResult[None]:
    """Compare the newest run of every strategy with that of the namespace's own strategy."""
    with _evaluating(context, platform) as store:
        metadata = _compare(context, platform, context.partition_key, store)
    return dg.MaterializeResult(metadata=metadata)


@dg.op(
    description=(
        "Asks every dataset under its library's strategy and the four ways to ask, compares them,"
        " and looks for drift; each is logged as the asset's partition."
    )
)
def evaluate_all(context: dg.OpExecutionContext, platform: Platform) -> None:
    """Run all evaluations in one process; fails at the end if any of them failed."""
    root = platform.root
    bound = root.ledger.namespaces()
    problems: list[str] = []
    with (
        _evaluating(context, platform) as store,
        open_library(root.settings, root.store) as library,
    ):
        for target, (name, namespace) in evaluation_targets(root.settings).items():
            if current(root.store, namespace) is None:
                context.log.warning(
                    f"{target} was not asked: of library {namespace!r} nothing is published"
                )
                continue
            try:
                dataset = open_dataset(name)
                for strategy in dict.fromkeys([bound[namespace], *QUERY_VARIANTS]):
                    metadata = _evaluate(platform, library, dataset, strategy, store, namespace)
                    partition = dg.MultiPartitionKey({"dataset": target, "strategy": strategy})
                    _log(context, evaluation_run.key, partition, metadata, "published_release")
                metadata = _compare(context, platform, target, store)
                _log(context, strategy_comparison.key, target, metadata, "evaluation_run")
            except RagError as error:  # one dataset must not stop the others
                message = f"{target}: [{error.code}] {error.message}"
                if error.code == "other_namespace":  # normal for datasets of the config folder
                    context.log.warning(message)
                else:
                    problems.append(message)
        log_checks(context, [check_signal("drift", namespace, root) for namespace in bound])
    if problems:
        raise dg.Failure("\n".join(problems), allow_retries=False)


def _log(
    context: dg.OpExecutionContext,
    key: dg.AssetKey,
    partition: str,
    metadata: Metadata,
    upstream: str,
) -> None:
    # without these, each missing or newer partition of the upstream asset would make it stale
    tags = {CODE_VERSION: context.run_id, **unread_inputs([upstream])}
    event = dg.AssetMaterialization(key, partition=partition, metadata=metadata, tags=tags)
    context.log_event(event)


@dg.job(name="evaluation", description="Evaluates every dataset and compares the strategies.")
def evaluation_job() -> None:
    evaluate_all()


nightly_evaluation = make_schedule(
    "nightly_evaluation",
    evaluation_job,
    _SETTINGS.evaluation_cron,
    "Asks every dataset and compares the strategies.",
)


@contextmanager
def _evaluating(context: Context, platform: Platform) -> Iterator[ResultStore]:
    """The result store, within a job without a namespace, so that nothing waits for it."""
    context.instance.add_run_tags(context.run.run_id, {NAMESPACE_TAG: ""})
    root = platform.root
    with (
        record_job(context, root.ledger, "evaluate", ""),
        closing(ResultStore(root.store.home)) as store,
    ):
        yield store


def _open(target: str, platform: Platform) -> tuple[Dataset, str]:
    targets = evaluation_targets(platform.root.settings)
    if target not in targets:
        raise NotFoundError(
            f"{target!r} names no dataset of a library any more; reload the definitions",
            code="unknown_dataset",
        )
    name, namespace = targets[target]
    return open_dataset(name), namespace


def _evaluate(
    platform: Platform,
    library: Library,
    dataset: Dataset,
    strategy: str,
    store: ResultStore,
    namespace: str,
) -> Metadata:
    """Run an evaluation; returns its metrics and report as metadata."""
    own = "" if dataset.load_documents is not None else namespace
    options = RunOptions(namespace=own, strategy=strategy)
    run = run_strategy(platform.root, library, dataset, options, store)
    home = platform.root.store.home
    folder = write_run_files(home, run, store)
    return {
        "run_id": run.run_id,
        "files": dg.MetadataValue.path(folder.relative_to(home).as_posix()),
        "dagster/row_count": run.cases,
        "release_id": run.release_id,
        "cases": run.cases,
        "reused": run.reused,
        "failed": run.failed,
        "seconds": float(run.figures.get("seconds", 0.0)),
        "report": dg.MetadataValue.md(run_markdown(run)),
        **{name: float(item["value"]) for name, item in run.aggregates.items()},
    }


def _compare(context: Context, platform: Platform, target: str, store: ResultStore) -> Metadata:
    """Compare the newest runs with that of the namespace's strategy, without those of an earlier
    release or of other cases; returns tables and figures as metadata.
    """
    dataset, namespace = _open(target, platform)
    own = platform.root.ledger.namespaces().get(namespace, "")
    runs = {
        name: run
        for name, run in _newest_runs(context, target, store)
        if run.dataset_fingerprint == dataset.fingerprint
        and run.release_id == current(platform.root.store, run.namespace)
    }
    ordered = {name: runs[name] for name in sorted(runs, key=lambda name: (name != own, name))}
    if len(ordered) < 2:
        raise InputError(
            f"{len(ordered)} strategies were evaluated on {target} as it is now, over what is"
            " published now; materialise evaluation_run for at least two",
            code="nothing_to_compare",
        )
    found = compare_strategies(ordered, store)
    return {
        "compared_with": next(iter(ordered)),
        "table": dg.MetadataValue.md(comparison_table(found)),
        "report": dg.MetadataValue.md(comparison_markdown(found)),
        **{
            f"{metric} of {name}": float(run.aggregates[metric]["value"])
            for metric in LEADING
            for name, run in ordered.items()
            if metric in run.aggregates
        },
    }


def _newest_runs(
    context: Context, target: str, store: ResultStore
) -> Iterator[tuple[str, EvalRun]]:
    """(strategy, its newest run) according to the events of `evaluation_run`."""
    for strategy in comparable_names(load_settings()):
        key = dg.MultiPartitionKey({"dataset": target, "strategy": strategy})
        wanted = dg.AssetRecordsFilter(asset_key=evaluation_run.key, asset_partitions=[key])
        for record in context.instance.fetch_materializations(wanted, limit=1).records:
            if (event := record.asset_materialization) is not None:
                run = store.run(str(event.metadata["run_id"].value))
                yield strategy, run
