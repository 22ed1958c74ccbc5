"""Builds whole versions in child processes, so that many small documents use all cores.

Only versions that need nothing but processor time are built there: no formats that are read in
sandboxed children, no models, no edits by hand.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_platform.config.chunk_token_limits import embedder_dependencies
from rag_platform.config.settings import Settings, Strategy
from rag_platform.documents.versions import (
    STAGES,
    Failure,
    VersionBuild,
    build_stages,
    read_in_child,
)
from rag_platform.errors import DocumentError
from rag_platform.ir import ParseSummary, StageOutcome, Version, View
from rag_platform.media import image_reading
from rag_platform.observability import faults, logs, otlp, tracing
from rag_platform.storage.store import Store

_MIN_VERSIONS = 128  # two children take as long to start as about 40 documents take to build


@dataclass(frozen=True, slots=True)
class Plan:
    """What all versions of a run share; pickled once, because each task carries it."""

    store: Store
    settings: Settings
    strategy: Strategy
    profiles: dict[str, str]
    stages: Sequence[str]

    def pack(self) -> bytes:
        """The pickled plan."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)


@dataclass(frozen=True, slots=True)
class Task:
    """One version for a child; the fields are those of `VersionBuild`."""

    plan: bytes
    version: Version
    origin: Path | None
    root: Path | None
    force: bool
    base_url: str
    decision: str
    trace: tracing.Link | None


@dataclass(frozen=True, slots=True)
class Built:
    """The result for a version whose files are committed; with a `failure` it holds only the
    outcomes before it.
    """

    outcomes: list[StageOutcome]
    failure: Failure | None
    views: list[View]
    summary: ParseSummary | None
    title: str
    figures: tracing.Figures | None


def are_worthwhile(strategy: Strategy, versions: Sequence[Version]) -> bool:
    """True when enough versions need nothing but processor time to justify the child processes."""
    views = strategy.views
    alone = (
        views.keyphrases.method != "keybert"
        and views.describe.provider == "none"
        and not image_reading.is_wanted(strategy.media_texts)
    )
    if not alone or any(
        owed[0] in ("embedder", "window") for owed in embedder_dependencies(strategy)
    ):
        return False
    return sum(not read_in_child(version) for version in versions) >= _MIN_VERSIONS


def build_apart(task: Task) -> Built:
    """Build one version up to its views; runs in a child of `worker.Workers`."""
    plan = _plan(task.plan)
    work = VersionBuild(
        task.version,
        plan.strategy,
        plan.settings,
        plan.store,
        task.origin,
        task.root,
        task.force,
        deferred=True,
        base_url=task.base_url,
        decision=task.decision,
        profiles=plan.profiles,
    )
    with tracing.join(task.trace) as joined:
        outcomes, failure = build_stages(plan.stages, work)
        work.writes.commit()
    done = failure is None and len(outcomes) == len(STAGES)
    return Built(
        outcomes,
        (failure[0], _sendable(failure[1])) if failure is not None else None,
        work.views if done else [],
        work.summary if done else None,
        work.title if done else "",
        joined.figures() if joined is not None else None,
    )


def _sendable(error: Exception) -> Exception:
    """The error if it is one of ours, else a DocumentError with its text, because errors of
    libraries may not survive pickling.
    """
    if faults.is_expected(error):
        return error
    message = f"{type(error).__name__}: {error}"
    return DocumentError(message, code="internal_error", retryable=isinstance(error, MemoryError))


@functools.lru_cache(maxsize=1)
def _plan(packed: bytes) -> Plan:
    plan: Plan = pickle.loads(packed)
    logs.setup_logging(plan.store.logs_dir)
    otlp.setup(plan.settings.observability.otlp)
    return plan
