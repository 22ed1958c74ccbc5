"""The state of the installation, and the overview of a library."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from rag_platform.api.overview import disk_use, get_overview
from rag_platform.api.status import list_collections, status
from rag_platform.contract.schema import CollectionsData, StatusData
from rag_platform.contract.upkeep_shapes import DiskData, OverviewData
from rag_platform.evaluation.runs import evaluation_snapshot
from rag_platform.web.dependencies import PageNamespace, SiteOf
from rag_platform.web.rendering import render, render_part

api = APIRouter(tags=["system"])
pages = APIRouter()


@api.get("/status")
def get_status(site: SiteOf) -> StatusData:
    """Every namespace with its release, failures and jobs, and the schema versions."""
    return status(site.library)


@api.get("/collections")
def get_collections(site: SiteOf) -> CollectionsData:
    """The published libraries."""
    return list_collections(site.library)


@api.get("/overview")
def show(site: SiteOf, namespace: PageNamespace) -> OverviewData:
    """The components, contents and health of a library."""
    return get_overview(site.library, namespace, evaluation_snapshot(site.settings))


@api.get("/disk")
def show_disk(site: SiteOf) -> DiskData:
    """The size of the data root, in total and by part."""
    return disk_use(site.settings.home)


# --- pages --------------------------------------------------------------------------------------


@pages.get("/overview")
def show_overview(request: Request, site: SiteOf, namespace: PageNamespace) -> Response:
    """Components, totals, health, problems, jobs."""
    found = get_overview(site.library, namespace, evaluation_snapshot(site.settings))
    return render(request, "overview/overview.html", namespace=namespace, found=found)


@pages.get("/overview/disk")
def show_disk_page(request: Request, site: SiteOf, namespace: PageNamespace) -> Response:
    """Disk use, which takes a while to add up."""
    parts = ("overview/disk.html", "overview/disk_page.html")
    return render_part(request, *parts, namespace=namespace, disk=disk_use(site.settings.home))
