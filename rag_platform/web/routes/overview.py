"""The state of the installation, and the overview of a library."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import Response

from rag_platform import access
from rag_platform.api.envelopes import fill_shape
from rag_platform.api.status import list_collections, status
from rag_platform.api.traces import trace_stats
from rag_platform.config.profiles import providers_snapshot, strategy_config_id
from rag_platform.config.settings import Settings, Strategy
from rag_platform.config.strategies import load_strategy
from rag_platform.contract.schema import CollectionsData, StatusData
from rag_platform.contract.upkeep_shapes import (
    ComponentPart,
    DiskData,
    DiskPart,
    OverviewData,
    TotalPart,
)
from rag_platform.errors import RagError
from rag_platform.evaluation.runs import evaluation_snapshot
from rag_platform.observability.trace_store.queries import TraceFilter
from rag_platform.observability.tracing import complete_providers
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import require_known
from rag_platform.storage.store import directory_bytes
from rag_platform.web.dependencies import LibraryOf, PageView, SettingsOf

api = APIRouter(tags=["system"])
pages = APIRouter()
DAYS = 7  # over which health is measured
_DISK_SECONDS = 300  # how long a measured size is cached
# module to the key of a strategy that configures it
_PARTS = {
    "loader": "loading",
    "sectioner": "sectioner",
    "chunker": "chunker",
    "embedder": "embedding",
    "vector_index": "dense",
    "sparse_index": "lexical",
    "retriever": "retrieval",
    "fusion": "fusion",
    "reranker": "reranker",
    "llm": "llm",
    "generator": "answerer",
}
_SHOWN_PROBLEMS = 20


@api.get("/status")
def get_status(library: LibraryOf) -> StatusData:
    """Every namespace with its release, failures and jobs, and the schema versions."""
    return status(library)


@api.get("/collections")
def get_collections(library: LibraryOf) -> CollectionsData:
    """The published libraries."""
    return list_collections(library)


@api.get("/overview")
def show(view: PageView) -> OverviewData:
    """The components, contents and health of a library."""
    library, namespace = view.library, view.namespace
    require_known(library, namespace)
    installation = status(library)
    rows = {row["namespace"]: row for row in installation["namespaces"]}
    row = rows.get(namespace)
    since = datetime.now(UTC) - timedelta(days=DAYS)
    stats = trace_stats(
        library.store, TraceFilter(namespace=namespace, since=since, published=True)
    )
    strategy, problem = _strategy(library, namespace)
    others = [name for name in rows if name != namespace]
    problems = [(text.partition(": ")[0], text) for text in installation["problems"]]
    own = [text for name, text in problems if name not in others]
    # a namespace with a problem is already among the installation's problems
    if problem and not (row and row["problem"]):
        own.insert(0, problem)
    return {
        "namespace": namespace,
        "namespaces": list(rows),
        "release_id": (row["release_id"] or "") if row else "",
        "published_at": row["published_at"] if row else "",
        "strategy": strategy.name if strategy else "",
        "strategy_config_id": strategy_config_id(strategy) if strategy else "",
        "components": _components(strategy, view.settings) if strategy else [],
        "totals": _totals(library, namespace),
        "pending": row["pending"] if row else 0,
        "failed": row["failed"] if row else 0,
        "days": DAYS,
        "health": stats["kinds"],
        "last_24h": stats["last_24h"]["counts"],
        "failed_24h": stats["last_24h"]["failed"],
        "caches": stats["caches"],
        "process_caches": installation.get("caches", {}),
        "model_calls": stats["model_calls"],
        "problems": own[:_SHOWN_PROBLEMS],
        "troubled": [name for name in others if name in dict(problems)],
        "jobs": [job for job in installation["jobs"] if job["namespace"] == namespace],
        "app_version": installation["app_version"],
        "uptime_seconds": installation["uptime_seconds"],
    }


def _strategy(library: Library, namespace: str) -> tuple[Strategy | None, str]:
    """(the strategy of queries or None, then why there is none)."""
    try:
        if library.store.current_path(namespace).is_file():
            with library.lease(namespace) as lease:
                return library.query_strategy(lease), ""
        return load_strategy(library.settings), ""
    except RagError as error:
        return None, f"{namespace}: {error.message}"


def _components(strategy: Strategy, settings: Settings) -> list[ComponentPart]:
    try:
        providers = providers_snapshot(strategy, evaluation_snapshot(settings))
    except RagError:  # a package is missing; the stage that needs it reports that
        return []
    config = strategy.model_dump(mode="json")
    return [
        fill_shape(
            ComponentPart,
            provider,
            module=module,
            options=part if isinstance(part := config.get(_PARTS.get(module, "")), dict) else {},
        )
        for module, provider in complete_providers(strategy_config_id(strategy), providers).items()
    ]


def _totals(library: Library, namespace: str) -> list[TotalPart]:
    """Documents, chunks and images of the published release, in total and from the last day."""
    total = new = (0, 0, 0)
    if library.store.current_path(namespace).is_file():
        day_ago = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
        try:
            with library.lease(namespace) as lease:
                catalog, counts = lease.release.catalog, lease.release.manifest.counts
                recent = catalog.versions_since(day_ago)
                total = counts["documents"], counts["chunks"], catalog.count_images()
                chunks = catalog.chunk_counts(recent) if recent else {}
                new = len(recent), sum(chunks.values()), catalog.count_images(day_ago)
        except RagError:  # shown among the problems
            pass
    return [
        {"name": name, "total": total[place], "last_24h": new[place]}
        for place, name in enumerate(("documents", "chunks", "images"))
    ]


@api.get("/disk")
def show_disk(settings: SettingsOf) -> DiskData:
    """The size of the data root, in total and by part; figures may be five minutes old."""
    parts = _measure(settings.home, int(time.monotonic() // _DISK_SECONDS))
    return {
        "total": sum(part["bytes"] for part in parts),
        "free": shutil.disk_usage(settings.home).free if settings.home.is_dir() else 0,
        "parts": list(parts) if access.current().namespaces is None else [],
    }


@lru_cache(maxsize=4)
def _measure(home: Path, _moment: int) -> tuple[DiskPart, ...]:
    found: list[DiskPart] = []
    for path in home.iterdir() if home.is_dir() else ():
        size = directory_bytes([path]) if path.is_dir() else path.stat().st_size
        found.append({"name": path.name, "bytes": size})
    return tuple(sorted(found, key=lambda part: (-part["bytes"], part["name"])))


# --- pages --------------------------------------------------------------------------------------


@pages.get("/overview")
def show_overview(view: PageView) -> Response:
    """Components, totals, health, problems, jobs."""
    return view.render("overview/overview.html", found=show(view))


@pages.get("/overview/disk")
def show_disk_page(view: PageView) -> Response:
    """Disk use, which takes a while to add up."""
    disk = show_disk(view.settings)
    return view.render_part("overview/disk.html", "overview/disk_page.html", disk=disk)
