"""Builds whole versions in child processes, so that many small documents use every core.

Only versions that need nothing but processor time go there: no format that has child processes of
its own, no model, no edits by hand.
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

_WORTH = 128  # documents; two children are at work after the time of about 40


@dataclass(frozen=True, slots=True)
class Plan:
    """What all versions of a run share. Pickled once, because it is sent along with each
    version.
    """

    store: Store
    settings: Settings
    strategy: Strategy
    profiles: dict[str, str]
    stages: Sequence[str]

    def pack(self) -> bytes:
        """The plan as a child reads it."""
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
    """The result of a version whose files are flushed and in place; after a `failure` it holds only
    the outcomes before that.
    """

    outcomes: list[StageOutcome]
    failure: Failure | None
    views: list[View]
    summary: ParseSummary | None
    title: str
    figures: tracing.Figures | None


def are_worthwhile(strategy: Strategy, versions: Sequence[Version]) -> bool:
    """True when enough versions need nothing but processor time to justify starting child
    processes.
    """
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
    return sum(not read_in_child(version) for version in versions) >= _WORTH


def build_apart(task: Task) -> Built:
    """Take one version through its stages up to the views; a task for `worker.Workers`."""
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
    )
    work.profiles = plan.profiles
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
    """The error, after logging it here. Errors of libraries may not survive pickling and are
    replaced by a DocumentError.
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
