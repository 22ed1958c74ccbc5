"""Checks of a published release that warn and hold nothing back: its canaries, and drift."""

import warnings
from collections.abc import Callable

import dagster as dg

from rag_platform.assets.partitions import namespaces
from rag_platform.assets.resources import Platform
from rag_platform.evaluation.monitoring.canaries import ask_canaries, canaries_markdown
from rag_platform.evaluation.monitoring.drift import drift_markdown, measure_drift
from rag_platform.evaluation.runs import open_library
from rag_platform.observability import faults
from rag_platform.releases.release_store import current, find_parent, require_current

_WARN = dg.AssetCheckSeverity.WARN
_ASSET = dg.AssetKey("published_release")


def _check_canaries(namespace: str, platform: Platform) -> dg.AssetCheckResult:
    root = platform.root
    config = root.settings.canaries
    if not config.seconds:
        return dg.AssetCheckResult(
            passed=True, severity=_WARN, metadata={"details": "canaries.seconds is 0: none asked"}
        )
    release_id = require_current(root.store, namespace)
    parent = find_parent(root.store, namespace, release_id)
    with open_library(root.settings, root.store) as library:
        report = ask_canaries(library, namespace, release_id, parent, config)
    return dg.AssetCheckResult(
        passed=not report.alarms,
        severity=_WARN,
        metadata={
            "report": dg.MetadataValue.md(canaries_markdown(report)),
            "asked": report.run.cases if report.run is not None else 0,
            "lost": len(report.lost),
            "seconds": report.seconds,
        },
    )


def _check_drift(namespace: str, platform: Platform) -> dg.AssetCheckResult:
    root = platform.root
    report = measure_drift(root.store.logs_dir, namespace, root.settings.drift)
    return dg.AssetCheckResult(
        passed=not report.drifted,
        severity=_WARN,
        metadata={
            "report": dg.MetadataValue.md(drift_markdown(report)),
            "questions": report.current.questions,
            **{signal.name: signal.distance for signal in report.signals},
        },
    )


def canaries_evaluation(namespace: str, platform: Platform) -> dg.AssetCheckEvaluation:
    """The check `canaries` of a namespace as an event: planned by a run, it would show as failed
    whenever a candidate is not published.
    """
    return _evaluation("canaries", namespace, _guard(_check_canaries, namespace, platform))


def drift_evaluation(namespace: str, platform: Platform) -> dg.AssetCheckEvaluation:
    """The check `drift` of a namespace as an event: a run of checks alone has no partition."""
    return _evaluation("drift", namespace, _guard(_check_drift, namespace, platform))


def _check_each(
    context: dg.AssetCheckExecutionContext,
    name: str,
    check: Callable[[str, Platform], dg.AssetCheckResult],
    platform: Platform,
) -> dg.AssetCheckResult:
    """The result for the run's library; without a partition, which is how Dagster executes checks
    alone, that for all published ones, each logged as its own too.
    """
    if context.has_partition_key:
        return _guard(check, context.partition_key, platform)
    store, failed = platform.root.store, []
    names = [n for n in platform.root.ledger.namespaces() if current(store, n)]
    for namespace in names:
        found = _evaluation(name, namespace, _guard(check, namespace, platform))
        context.op_execution_context.log_event(found)  # type: ignore[arg-type]
        failed += [] if found.passed else [namespace]
    details = f"checked: {', '.join(names) or 'none'}; warnings: {', '.join(failed) or 'none'}"
    return dg.AssetCheckResult(passed=not failed, severity=_WARN, metadata={"details": details})


def _evaluation(name: str, namespace: str, found: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=_ASSET,
        check_name=name,
        passed=found.passed,
        severity=_WARN,
        metadata=found.metadata,
        partition=namespace,
    )


def _guard(
    check: Callable[[str, Platform], dg.AssetCheckResult], namespace: str, platform: Platform
) -> dg.AssetCheckResult:
    """The result of a check, or a warning when it cannot be made: the release is published
    already.
    """
    try:
        return check(namespace, platform)
    except Exception as error:  # noqa: BLE001 (a check that only warns must not fail a release)
        faults.report(error, "check", logs_dir=platform.root.store.logs_dir)
        details = f"could not be checked: {faults.describe(error)}"
        return dg.AssetCheckResult(passed=False, severity=_WARN, metadata={"details": details})


with warnings.catch_warnings():  # partitioned checks are a preview, as those of the candidate are
    warnings.simplefilter("ignore", dg.PreviewWarning)

    @dg.asset_check(
        asset=_ASSET,
        partitions_def=namespaces,
        description="Questions made of the release before are still answered; warns.",
    )
    def canaries(context: dg.AssetCheckExecutionContext, platform: Platform) -> dg.AssetCheckResult:
        """Ask the published release the canaries of its parent."""
        return _check_each(context, "canaries", _check_canaries, platform)

    @dg.asset_check(
        asset=_ASSET,
        partitions_def=namespaces,
        description="What users ask and get is as in the last stable window; warns.",
    )
    def drift(context: dg.AssetCheckExecutionContext, platform: Platform) -> dg.AssetCheckResult:
        """Compare the signals of real questions with those of the last stable window."""
        return _check_each(context, "drift", _check_drift, platform)
