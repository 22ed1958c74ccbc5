"""`/api`: what the installation holds and how it is set up."""

from __future__ import annotations

from fastapi import APIRouter

from rag_platform.api.status import list_collections, status
from rag_platform.contract.schema import CollectionsData, StatusData
from rag_platform.web.dependencies import SiteOf

router = APIRouter(tags=["system"])


@router.get("/status")
def get_status(site: SiteOf) -> StatusData:
    """Every namespace with its release, failures and jobs, and the versions of what is stored."""
    return status(site.library)


@router.get("/collections")
def get_collections(site: SiteOf) -> CollectionsData:
    """The published libraries."""
    return list_collections(site.library)
