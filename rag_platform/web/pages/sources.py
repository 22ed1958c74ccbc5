"""Pages that show a cited passage in its document, and its proof."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from rag_platform.api.places import find_place, read_source
from rag_platform.contract.source_shapes import PlaceData, PlacePage
from rag_platform.web.dependencies import SiteOf
from rag_platform.web.rendering import is_fragment, link, render
from rag_platform.web.routes.sources import ChunkId, Page, Release, Spans, read_spans

router = APIRouter(prefix="/source")


@router.get("/{namespace}/{chunk_id}")
def show(
    request: Request,
    site: SiteOf,
    namespace: str,
    chunk_id: ChunkId,
    release: Release = None,
    span: Spans = [],  # noqa: B006 (FastAPI copies it)
    page: Page = None,
) -> Response:
    """The document around a passage, with the cited words marked."""
    source = read_source(site.library, chunk_id, namespace, release)
    place = find_place(
        site.library, chunk_id, namespace, release, spans=read_spans(span), page=page
    )
    sheet = _first_page(place)

    def at(number: int | None) -> str:
        return link(f"/source/{namespace}/{chunk_id}", release=release, span=span, page=number)

    values: dict[str, Any] = {
        "namespace": namespace,
        "source": source,
        "place": place,
        "sheet": sheet,
        "address": at(page),
        "before": at(sheet["page"] - 1) if sheet and sheet["page"] > 1 else "",
        "after": at(sheet["page"] + 1) if sheet and sheet["page"] < place["page_count"] else "",
        "own_page": at(None) if page is not None else "",
        # a passage of an older release is not in the published one
        "release": source["release_id"] if source["state"] == "changed" else None,
    }
    template = "asking/source_view.html" if is_fragment(request) else "asking/source.html"
    return render(request, template, **values)


def _first_page(place: PlaceData) -> PlacePage | None:
    """The first page with a cited span, else the first one."""
    pages = place["pages"]
    return next((page for page in pages if page["cited"]), pages[0] if pages else None)


@router.get("/{namespace}/{chunk_id}/proof")
def prove(request: Request, site: SiteOf, namespace: str, chunk_id: ChunkId) -> Response:
    """The proof that the passage is in the stored file."""
    from rag_platform.api.proofs import prove_chunk

    proof = prove_chunk(site.library, chunk_id, namespace)
    template = "asking/proof.html" if is_fragment(request) else "asking/proof_page.html"
    return render(request, template, namespace=namespace, proof=proof)
