"""Checks of a published release that only warn: its canaries, and drift."""

import warnings
from collections.abc import Callable, Iterator

import dagster as dg

from rag_platform.assets.dagster_private import log_checks
from rag_platform.assets.partitions import NAMESPACE_TAG, namespaces
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
    release_id = require_current(root.store, namespace)
    parent = find_parent(root.store, namespace, release_id)
    if not config.seconds or parent is None:
        why = "there is no release before this one" if config.seconds else "canaries.seconds is 0"
        return dg.AssetCheckResult(
            passed=True, severity=_WARN, metadata={"details": f"{why}: none asked"}
        )
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
    """The check `canaries` of a namespace as an event; if a run planned it, it would show as failed
    whenever a candidate is not published.
    """
    return _evaluation("canaries", namespace, _run_guarded(_check_canaries, namespace, platform))


def drift_evaluation(namespace: str, platform: Platform) -> dg.AssetCheckEvaluation:
    """The check `drift` of a namespace as an event, as a run of only checks has no partition."""
    return _evaluation("drift", namespace, _run_guarded(_check_drift, namespace, platform))


def _evaluation(name: str, namespace: str, found: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=_ASSET,
        check_name=name,
        passed=found.passed,
        severity=_WARN,
        metadata=found.metadata,
        partition=namespace,
    )


def _run_guarded(
    check: Callable[[str, Platform], dg.AssetCheckResult], namespace: str, platform: Platform
) -> dg.AssetCheckResult:
    """The result of a check; any error becomes a warning, as the release is published already."""
    try:
        return check(namespace, platform)
    except Exception as error:  # noqa: BLE001 (a check that only warns must not fail a release)
        faults.report(error, "check", logs_dir=platform.root.store.logs_dir)
        details = f"could not be checked: {faults.describe(error)}"
        return dg.AssetCheckResult(passed=False, severity=_WARN, metadata={"details": details})


_SIGNALS = {
    "canaries": (
        canaries_evaluation,
        "Questions made of the release before are still answered; warns.",
    ),
    "drift": (
        drift_evaluation,
        "What users ask and get is as in the last stable window; warns.",
    ),
}

with warnings.catch_warnings():  # partitioned checks are a preview feature
    warnings.simplefilter("ignore", dg.PreviewWarning)

    @dg.multi_asset_check(
        name="signals",
        specs=[
            dg.AssetCheckSpec(name, asset=_ASSET, partitions_def=namespaces, description=text)
            for name, (_, text) in _SIGNALS.items()
        ],
        can_subset=True,
    )
    def signals(
        context: dg.AssetCheckExecutionContext, platform: Platform
    ) -> Iterator[dg.AssetCheckResult]:
        """Check the library of the run's partition; without one ("Execute all" on the page of
        checks) every published library.
        """
        store, ledger = platform.root.store, platform.root.ledger
        if context.has_partition_key:
            names = [context.partition_key]
        else:  # changes no library, so no release needs to wait for it
            context.instance.add_run_tags(context.run.run_id, {NAMESPACE_TAG: ""})
            names = [name for name in ledger.namespaces() if current(store, name)]
        chosen = sorted(key.name for key in context.selected_asset_check_keys)
        found = [_SIGNALS[check][0](name, platform) for check in chosen for name in names]
        log_checks(context.op_execution_context, found)
        # no result: Dagster accepts none of a partitioned check from a run without a partition
        yield from ()
