"""The state of the installation, and the overview of a library."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from rag_platform.api.overview import disk_use, get_overview
from rag_platform.api.status import list_collections, status
from rag_platform.contract.schema import CollectionsData, StatusData
from rag_platform.contract.upkeep_shapes import DiskData, OverviewData
from rag_platform.evaluation.runs import evaluation_snapshot
from rag_platform.web.dependencies import LibraryOf, SettingsOf, Shown

api = APIRouter(tags=["system"])
pages = APIRouter()


@api.get("/status")
def get_status(library: LibraryOf) -> StatusData:
    """Every namespace with its release, failures and jobs, and the schema versions."""
    return status(library)


@api.get("/collections")
def get_collections(library: LibraryOf) -> CollectionsData:
    """The published libraries."""
    return list_collections(library)


@api.get("/overview")
def show(view: Shown) -> OverviewData:
    """The components, contents and health of a library."""
    return get_overview(view.library, view.namespace, evaluation_snapshot(view.settings))


@api.get("/disk")
def show_disk(settings: SettingsOf) -> DiskData:
    """The size of the data root, in total and by part."""
    return disk_use(settings.home)


# --- pages --------------------------------------------------------------------------------------


@pages.get("/overview")
def show_overview(view: Shown) -> Response:
    """Components, totals, health, problems, jobs."""
    return view.render("overview/overview.html", found=show(view))


@pages.get("/overview/disk")
def show_disk_page(view: Shown) -> Response:
    """Disk use, which takes a while to add up."""
    disk = show_disk(view.settings)
    return view.render_part("overview/disk.html", "overview/disk_page.html", disk=disk)
