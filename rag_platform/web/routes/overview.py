"""`/api/overview`: one library at a glance."""

from __future__ import annotations

from fastapi import APIRouter

from rag_platform.api.overview import disk_use, get_overview
from rag_platform.contract.overview import DiskData, OverviewData
from rag_platform.evaluation.runs import evaluation_snapshot
from rag_platform.web.dependencies import PageNamespace, SiteOf

router = APIRouter(tags=["system"])


@router.get("/overview")
def show(site: SiteOf, namespace: PageNamespace) -> OverviewData:
    """What does the work of a library, what it holds, and how it does."""
    return get_overview(site.library, namespace, evaluation_snapshot(site.settings))


@router.get("/disk")
def show_disk(site: SiteOf) -> DiskData:
    """How large the data root is."""
    return disk_use(site.settings.home)
