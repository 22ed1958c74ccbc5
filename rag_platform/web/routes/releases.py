"""`/api`: releases, their differences, and the published one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from rag_platform.api.upkeep import releases
from rag_platform.contract.upkeep_shapes import ReleaseDiffData, ReleasesData
from rag_platform.web.dependencies import MayAdminister, NamespaceOf, SiteOf

router = APIRouter(tags=["releases"], prefix="/releases")
RELEASE_ID = r"^\w[\w.-]{0,120}$"
ReleaseId = Annotated[str, Path(pattern=RELEASE_ID)]
OtherId = Annotated[str | None, Query(pattern=RELEASE_ID)]


class Target(BaseModel):
    """The release to roll back to; none: the one before the published one."""

    release_id: str | None = Field(default=None, pattern=RELEASE_ID)


class Override(BaseModel):
    """Why a release is published although the quality gate rejected it."""

    reason: str = Field(min_length=1, max_length=1000)


@router.get("")
def list_releases(site: SiteOf, namespace: NamespaceOf) -> ReleasesData:
    """The releases of a library, newest first."""
    return releases.list_releases(site.library, namespace)


@router.get("/diff")
def diff_releases(
    site: SiteOf,
    namespace: NamespaceOf,
    before: OtherId = None,
    after: OtherId = None,
    queries: Annotated[int, Query(ge=0, le=50)] = 10,
) -> ReleaseDiffData:
    """Documents, chunks and answers that differ between two releases; by default the published one
    and its parent.
    """
    return releases.diff_releases(site.library, namespace, before, after, queries)


@router.post("/rollback", dependencies=[MayAdminister])
def roll_back(site: SiteOf, namespace: NamespaceOf, target: Target) -> ReleasesData:
    """Publish an earlier release again."""
    return releases.roll_back(site.settings, namespace, target.release_id)


@router.post("/forward", dependencies=[MayAdminister])
def go_forward(site: SiteOf, namespace: NamespaceOf) -> ReleasesData:
    """Publish the newest release again after going back."""
    return releases.go_forward(site.settings, namespace)


@router.post("/{release_id}/publish", dependencies=[MayAdminister])
def publish_rejected(
    site: SiteOf, namespace: NamespaceOf, release_id: ReleaseId, given: Override
) -> ReleasesData:
    """Publish a release that the quality gate rejected; the reason is recorded."""
    return releases.publish_rejected(site.settings, namespace, release_id, given.reason)


@router.post("/{release_id}/pin", dependencies=[MayAdminister])
def pin(site: SiteOf, namespace: NamespaceOf, release_id: ReleaseId) -> ReleasesData:
    """Keep a release regardless of retention."""
    return releases.pin(site.settings, namespace, release_id, True)


@router.post("/{release_id}/unpin", dependencies=[MayAdminister])
def unpin(site: SiteOf, namespace: NamespaceOf, release_id: ReleaseId) -> ReleasesData:
    """Let retention drop a release again."""
    return releases.pin(site.settings, namespace, release_id, False)
