"""Pages of releases: the list, differences, and changes of the published one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from rag_platform.api.upkeep import releases
from rag_platform.contract.upkeep_shapes import ReleaseRow
from rag_platform.errors import NotFoundError
from rag_platform.web.dependencies import MayAdminister, PageNamespace, SiteOf
from rag_platform.web.rendering import link, render
from rag_platform.web.routes.releases import RELEASE_ID, OtherId

router = APIRouter()
_Namespace = Annotated[str, Form(max_length=63)]
_ReleaseId = Annotated[str | None, Form(pattern=RELEASE_ID)]


@router.get("/releases")
def show(request: Request, site: SiteOf, namespace: PageNamespace) -> Response:
    """The releases of a library."""
    data = releases.list_releases(site.library, namespace)
    kept = [row for row in data["releases"] if row["kept"]]
    chosen = _choose_compared(kept)
    return render(
        request,
        "browsing/releases.html",
        namespace=namespace,
        data=data,
        kept=kept,
        chosen=chosen,
    )


def _choose_compared(kept: Sequence[ReleaseRow]) -> list[str]:
    """The two releases to compare by default, the later first, of `kept` ones, newest first. In
    this order: the newest if it was never published, the published one, earlier published ones.
    """
    waiting = [row for row in kept[:1] if not row["published_at"]]
    published = [row for row in kept if row["state"] == "published"]
    earlier = [row for row in kept if row["published_at"]]
    found = [*waiting, *published, *earlier, *kept]
    return list(dict.fromkeys(row["release_id"] for row in found))[:2]


@router.get("/releases/diff")
def show_difference(
    request: Request,
    site: SiteOf,
    namespace: PageNamespace,
    before: OtherId = None,
    after: OtherId = None,
    queries: Annotated[int, Query(ge=0, le=50)] = 5,
) -> Response:
    """What differs between two releases."""
    data = releases.diff_releases(site.library, namespace, before, after, queries)
    return render(request, "browsing/release_diff.html", namespace=namespace, data=data)


@router.post("/releases/{change}", dependencies=[MayAdminister])
def change_releases(
    site: SiteOf,
    change: str,
    namespace: _Namespace,
    release_id: _ReleaseId = None,
    reason: Annotated[str, Form(max_length=1000)] = "",
) -> Response:
    """Roll back, go forward, pin, unpin, or publish a release that the gate rejected."""
    site.library.require_visible(namespace)
    settings = site.settings
    if change == "rollback":
        releases.roll_back(settings, namespace, release_id)
    elif change == "forward":
        releases.go_forward(settings, namespace)
    elif change in ("pin", "unpin") and release_id:
        releases.pin(settings, namespace, release_id, change == "pin")
    elif change == "publish" and release_id:
        releases.publish_rejected(settings, namespace, release_id, reason)
    else:
        raise NotFoundError(f"nothing is done to releases by {change[:40]!r}", code="http_error")
    return RedirectResponse(link("/releases", namespace=namespace), 303)
