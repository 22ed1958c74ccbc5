"""The overview: one library at a glance."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from rag_platform.api.overview import disk_use, get_overview
from rag_platform.evaluation.runs import evaluation_snapshot
from rag_platform.web.dependencies import PageNamespace, SiteOf
from rag_platform.web.rendering import is_fragment, render

router = APIRouter()


@router.get("/overview")
def show(request: Request, site: SiteOf, namespace: PageNamespace) -> Response:
    """Components, totals, health, problems, jobs."""
    found = get_overview(site.library, namespace, evaluation_snapshot(site.settings))
    return render(request, "overview/overview.html", namespace=namespace, found=found)


@router.get("/overview/disk")
def show_disk(request: Request, site: SiteOf, namespace: PageNamespace) -> Response:
    """Disk use, which takes a while to add up."""
    template = "overview/disk.html" if is_fragment(request) else "overview/disk_page.html"
    return render(request, template, namespace=namespace, disk=disk_use(site.settings.home))
