"""Releases: the list, differences, and changes of the published one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Form, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from rag_platform.api.envelopes import fill_shape, without_paths
from rag_platform.api.release_diff import compare
from rag_platform.api.writing import open_root
from rag_platform.contract.upkeep_shapes import ReleaseDiffData, ReleaseRow, ReleasesData
from rag_platform.errors import InputError, NotFoundError
from rag_platform.ir import Json
from rag_platform.releases.manifest import Manifest
from rag_platform.retrieval.namespaces import require_known
from rag_platform.storage.store import RELEASE_ID
from rag_platform.web.dependencies import ApiView, FormView, MayAdminister, PageView, View
from rag_platform.web.rendering import link
from rag_platform.workspace import DataRoot

api = APIRouter(tags=["releases"], prefix="/releases")
pages = APIRouter()
_PATTERN = f"^{RELEASE_ID.pattern}$"
ReleaseId = Annotated[str, Path(pattern=_PATTERN)]
OtherId = Annotated[str | None, Query(pattern=_PATTERN)]


class Target(BaseModel, extra="forbid"):
    """The release to roll back to; none: the one before the published one."""

    release_id: str | None = Field(default=None, pattern=_PATTERN)


class Override(BaseModel, extra="forbid"):
    """Why a release is published although the quality gate rejected it."""

    reason: str = Field(min_length=1, max_length=1000)


@api.get("")
def list_releases(view: ApiView) -> ReleasesData:
    """The releases of a library, newest first."""
    require_known(view.library, view.namespace)
    with open_root(view.settings) as root:
        return _read_releases(root, view.namespace)


@api.get("/diff")
def diff_releases(
    view: ApiView,
    before: OtherId = None,
    after: OtherId = None,
    queries: Annotated[int, Query(ge=0, le=50)] = 10,
) -> ReleaseDiffData:
    """Documents, chunks and answers that differ between two releases; by default the published one
    and its parent.
    """
    return compare(view.library, view.namespace, before, after, queries=queries)


@api.post("/rollback", dependencies=[MayAdminister])
def roll_back(view: ApiView, target: Target) -> ReleasesData:
    """Publish an earlier release again."""
    return _change(view, "rollback", target.release_id)


@api.post("/forward", dependencies=[MayAdminister])
def go_forward(view: ApiView) -> ReleasesData:
    """Publish the newest release again after going back."""
    return _change(view, "forward")


@api.post("/{release_id}/publish", dependencies=[MayAdminister])
def publish_rejected(view: ApiView, release_id: ReleaseId, given: Override) -> ReleasesData:
    """Publish a release that the quality gate rejected; the reason is recorded."""
    return _change(view, "publish", release_id, given.reason)


@api.post("/{release_id}/pin", dependencies=[MayAdminister])
def pin(view: ApiView, release_id: ReleaseId) -> ReleasesData:
    """Keep a release regardless of retention."""
    return _change(view, "pin", release_id)


@api.post("/{release_id}/unpin", dependencies=[MayAdminister])
def unpin(view: ApiView, release_id: ReleaseId) -> ReleasesData:
    """Let retention drop a release again."""
    return _change(view, "unpin", release_id)


def _change(
    view: View, change: str, release_id: str | None = None, reason: str = ""
) -> ReleasesData:
    """The releases after a change. Raises NotFoundError for an unknown change and for pin, unpin
    and publish without a release, InputError without a reason to publish, and ReleaseError.
    """
    from rag_platform.releases import publishing

    namespace = view.namespace
    with open_root(view.settings) as root:
        if change == "rollback":
            publishing.roll_back(namespace, release_id, root)
        elif change == "forward":
            publishing.go_forward(namespace, root)
        elif change in ("pin", "unpin") and release_id:
            pinned = change == "pin"
            publishing.pin_release(namespace, release_id, pinned, root)
        elif change == "publish" and release_id:
            if not reason.strip():
                raise InputError("say why it is published all the same", code="no_reason")
            publishing.publish_candidate(namespace, release_id, root, override=reason.strip())
        else:
            raise NotFoundError(f"nothing is done to releases by {change[:40]!r}", code="not_found")
        return _read_releases(root, namespace)


def _read_releases(root: DataRoot, namespace: str) -> ReleasesData:
    from rag_platform.releases.publishing import history
    from rag_platform.releases.release_store import current, list_heads

    heads = {head.release_id: head for head in list_heads(root.store, namespace)}
    rows = [_release_row(row, heads.get(row["release_id"])) for row in history(namespace, root)]
    published = current(root.store, namespace)
    newer = [row for row in rows if row["published_at"] and row["kept"]]
    return {
        "namespace": namespace,
        "keep": root.settings.releases.keep,
        "can_roll_back": published in heads and heads[published].parent in heads,
        "can_go_forward": bool(newer) and newer[0]["release_id"] != published,
        "releases": rows,
    }


def _release_row(row: Json, head: Manifest | None) -> ReleaseRow:
    checks = head.checks if head else ()
    return fill_shape(
        ReleaseRow,
        without_paths(row),
        kept=head is not None,
        checks=[
            {
                "name": it.name,
                "passed": it.passed,
                "overruled": it.is_overruled,
                "details": without_paths(it.details),
            }
            for it in checks
        ],
    )


# --- pages --------------------------------------------------------------------------------------


_ReleaseId = Annotated[str | None, Form(pattern=_PATTERN)]


@pages.get("/releases")
def show(view: PageView) -> Response:
    """The releases of a library."""
    data = list_releases(view)
    kept = [row for row in data["releases"] if row["kept"]]
    chosen = _choose_compared(kept)
    return view.render("browsing/releases.html", data=data, kept=kept, chosen=chosen)


def _choose_compared(kept: Sequence[ReleaseRow]) -> list[str]:
    """The two releases to compare by default, the later first, of `kept` ones, newest first. In
    this order: the newest if it was never published, the published one, earlier published ones.
    """
    waiting = [row for row in kept[:1] if not row["published_at"]]
    published = [row for row in kept if row["state"] == "published"]
    earlier = [row for row in kept if row["published_at"]]
    found = [*waiting, *published, *earlier, *kept]
    return list(dict.fromkeys(row["release_id"] for row in found))[:2]


@pages.get("/releases/diff")
def show_difference(
    view: PageView,
    before: OtherId = None,
    after: OtherId = None,
    queries: Annotated[int, Query(ge=0, le=50)] = 5,
) -> Response:
    """What differs between two releases."""
    data = diff_releases(view, before, after, queries)
    return view.render("browsing/release_diff.html", data=data)


@pages.post("/releases/{change}", dependencies=[MayAdminister])
def change_releases(
    view: FormView,
    change: str,
    release_id: _ReleaseId = None,
    reason: Annotated[str, Form(max_length=1000)] = "",
) -> Response:
    """Roll back, go forward, pin, unpin, or publish a release that the gate rejected."""
    _change(view, change, release_id, reason)
    return RedirectResponse(link("/releases", namespace=view.namespace), 303)
