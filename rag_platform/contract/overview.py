"""The shape of the overview: what a library is made of, holds, and how it does."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from rag_platform.contract.schema import JobStatus
from rag_platform.contract.traces import CacheFigures, KindFigures, ModelFigures


class ComponentPart(TypedDict):
    """What does the work of a module."""

    module: str
    provider_id: str
    version: str
    profile_id: str
    options: dict[str, Any]


class TotalPart(TypedDict):
    """How many there are, and how many came in within the last 24 hours."""

    name: str  # documents | chunks | images
    total: int
    last_24h: int


class OverviewData(TypedDict):
    """One library. `health` is measured over the traces of the last `days`, `caches` beside them
    are those of this process.
    """

    namespace: str
    namespaces: list[str]
    release_id: str
    published_at: str
    strategy: str
    strategy_config_id: str
    components: list[ComponentPart]
    totals: list[TotalPart]
    pending: int
    failed: int
    days: int
    health: list[KindFigures]
    last_24h: dict[str, int]
    failed_24h: dict[str, int]
    caches: list[CacheFigures]
    process_caches: dict[str, Any]
    model_calls: list[ModelFigures]
    problems: list[str]
    jobs: list[JobStatus]
    app_version: str
    uptime_seconds: float


class DiskPart(TypedDict):
    """One part of the data root and how large it is."""

    name: str
    bytes: int


class DiskData(TypedDict):
    """Disk use, the largest part first; `free` is left on the file system."""

    total: int
    free: int
    parts: list[DiskPart]
