"""Checks of a published release that only warn: its canaries, and drift."""

from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from rag_platform.assets.dagster_private import log_checks
from rag_platform.assets.partitions import NAMESPACE_TAG, define_check, namespaces
from rag_platform.assets.resources import Platform
from rag_platform.evaluation.monitoring.canaries import ask_canaries, canaries_markdown
from rag_platform.evaluation.monitoring.drift import drift_markdown, measure_drift
from rag_platform.evaluation.runs import open_library
from rag_platform.observability import faults
from rag_platform.releases.release_store import current, find_parent, require_current
from rag_platform.workspace import DataRoot

_ASSET = "published_release"


Found = tuple[bool, dict[str, Any]]  # whether a check passed, and its metadata


def _check_canaries(namespace: str, root: DataRoot) -> Found:
    config = root.settings.canaries
    parent = find_parent(root.store, namespace, require_current(root.store, namespace))
    if not config.seconds or parent is None:
        why = "there is no release before this one" if config.seconds else "canaries.seconds is 0"
        return True, {"details": f"{why}: none asked"}
    with open_library(root.settings, root.store) as library:
        report = ask_canaries(library, namespace, config)
    return not report.alarms, {
        "report": dg.MetadataValue.md(canaries_markdown(report)),
        "asked": report.run.cases if report.run is not None else 0,
        "lost": len(report.lost),
        "seconds": report.seconds,
    }


def _check_drift(namespace: str, root: DataRoot) -> Found:
    report = measure_drift(root.store.logs_dir, namespace, root.settings.drift)
    return not report.drifted, {
        "report": dg.MetadataValue.md(drift_markdown(report)),
        "questions": report.current.questions,
        **{signal.name: signal.distance for signal in report.signals},
    }


_CHECKS: dict[str, tuple[Callable[[str, DataRoot], Found], str]] = {
    "canaries": (
        _check_canaries,
        "Questions made of the release before are still answered; warns.",
    ),
    "drift": (_check_drift, "What users ask and get is as in the last stable window; warns."),
}


def check_signal(name: str, namespace: str, root: DataRoot) -> dg.AssetCheckEvaluation:
    """A check of a namespace as an event: a run of only checks has no partition, and a planned
    check of canaries would show as failed whenever a candidate is not published. Any error becomes
    a warning, as the release is published already.
    """
    try:
        passed, metadata = _CHECKS[name][0](namespace, root)
    except Exception as error:  # noqa: BLE001 (a check that only warns must not fail a release)
        faults.report(error, "check", logs_dir=root.store.logs_dir)
        passed, metadata = False, {"details": f"could not be checked: {faults.describe(error)}"}
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(_ASSET),
        check_name=name,
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata,
        partition=namespace,
    )


@dg.multi_asset_check(
    name="signals",
    specs=[define_check(name, _ASSET, namespaces, text) for name, (_, text) in _CHECKS.items()],
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
    found = [check_signal(check, name, platform.root) for check in chosen for name in names]
    log_checks(context.op_execution_context, found)
    # no result: Dagster accepts none of a partitioned check from a run without a partition
    yield from ()
