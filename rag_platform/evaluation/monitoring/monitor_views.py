"""Drift, gaps, canaries and prompts as `/api/eval` and the pages show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rag_platform.api.envelopes import fill_shape
from rag_platform.config.prompt_registry import list_versions
from rag_platform.config.settings import Settings
from rag_platform.contract.evaluation_shapes import (
    CanariesData,
    DriftData,
    GapsData,
    PromptPart,
    SignalPart,
)
from rag_platform.evaluation.monitoring.canaries import ask_canaries
from rag_platform.evaluation.monitoring.drift import measure_drift
from rag_platform.evaluation.monitoring.gaps import find_gaps
from rag_platform.observability.trace_reader import list_outcomes
from rag_platform.releases.release_store import find_parent, require_current
from rag_platform.retrieval.library import Library
from rag_platform.storage.records import to_json
from rag_platform.storage.store import Store

_FOUND = "retrieval.hit_rate@10"


def get_drift(settings: Settings, namespace: str) -> DriftData:
    """Drift of the current window against the last stable one."""
    report = measure_drift(Store.of(settings).logs_dir, namespace, settings.drift)
    return {
        "namespace": namespace,
        "questions": report.current.questions,
        "stable_questions": report.stable.questions if report.stable is not None else 0,
        "reason": report.reason,
        "signals": [fill_shape(SignalPart, signal) for signal in report.signals],
    }


def get_gaps(library: Library, namespace: str, days: int) -> GapsData:
    """The gaps of the last days. Raises NotFoundError for a namespace without a release."""
    since = datetime.now(UTC) - timedelta(days=days)
    outcomes = list_outcomes(library.store.logs_dir, namespace, since=since)
    found = find_gaps(library, namespace, outcomes)
    return {
        "namespace": namespace,
        "days": days,
        "asked": len(outcomes),
        "gaps": found,
    }


def get_canaries(library: Library, namespace: str) -> CanariesData:
    """The canary report of the published release. Raises NotFoundError for a namespace without a
    release.
    """
    release_id = require_current(library.store, namespace)
    before = find_parent(library.store, namespace, release_id)
    report = ask_canaries(library, namespace, release_id, before, library.settings.canaries)
    run = report.run
    return {
        "namespace": namespace,
        "release_id": report.release_id,
        "before": report.before,
        "made": report.made,
        "asked": run.cases if run is not None else 0,
        "found": run.aggregates.get(_FOUND, {}).get("value") if run is not None else None,
        "seconds": report.seconds,
        "lost": [to_json(item) for item in report.lost],
    }


def list_prompts() -> list[PromptPart]:
    """Every version of every prompt, and the running experiments."""
    return [
        fill_shape(PromptPart, item, at=item.at.isoformat(timespec="seconds") if item.at else "")
        for item in list_versions()
    ]
