"""Cited passages in their documents: places, proofs and passages."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from rag_platform.api import passages
from rag_platform.api.places import MAX_SPANS, Span, find_place, first_page, read_source
from rag_platform.contract.traces import PlaceData, ProvedData, SourceData
from rag_platform.errors import InputError
from rag_platform.web.dependencies import LibraryOf, PathView
from rag_platform.web.rendering import link

api = APIRouter(tags=["sources"])
pages = APIRouter(prefix="/source")
ChunkId = Annotated[str, Path(max_length=100, description="chk_ and 20 hex digits.")]
Namespace = Annotated[
    str | None, Query(max_length=63, description="The library; default: the first that has it.")
]
Release = Annotated[
    str | None, Query(max_length=40, description="A kept release; default: the newest with it.")
]
Spans = Annotated[
    list[Annotated[str, Query(max_length=30)]],
    Query(max_length=MAX_SPANS, description="START-END in the chunk's text; default: all of it."),
]
Page = Annotated[int | None, Query(ge=1, le=100_000, description="A page; default: its own.")]
_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in ("image/png", "image/jpeg", "image/webp")
        }
    }
}
_SPAN = re.compile(r"(\d{1,9})-(\d{1,9})")


def read_spans(texts: list[str]) -> list[Span]:
    """Parse spans START-END. Raises InputError `bad_span`."""
    found = []
    for text in texts:
        if (match := _SPAN.fullmatch(text)) is None:
            raise InputError(f"span {text[:40]!r} is not START-END", code="bad_span")
        found.append((int(match[1]), int(match[2])))
    return found


@api.get("/chunks/{chunk_id}")
def get_chunk(
    library: LibraryOf, chunk_id: ChunkId, namespace: Namespace = None, release: Release = None
) -> SourceData:
    """A cited chunk with its document, the document's versions, and the chunk's images."""
    return read_source(library, chunk_id, namespace, release)


@api.get("/chunks/{chunk_id}/place")
def get_place(
    library: LibraryOf,
    chunk_id: ChunkId,
    namespace: Namespace = None,
    release: Release = None,
    span: Spans = [],  # noqa: B006 (FastAPI copies it)
    page: Page = None,
) -> PlaceData:
    """The place of a chunk in its file: rectangles on pages, lines, or rows of a sheet."""
    return find_place(library, chunk_id, namespace, release, spans=read_spans(span), page=page)


@api.get("/chunks/{chunk_id}/proof")
def get_proof(library: LibraryOf, chunk_id: ChunkId, namespace: Namespace = None) -> ProvedData:
    """The proof of a chunk from the bytes of its file."""
    from rag_platform.api.proofs import prove_chunk

    return prove_chunk(library, chunk_id, namespace)


@api.get("/pages/{namespace}/{version_id}/{page}.png", response_class=Response, responses=_PICTURE)
def get_page(
    library: LibraryOf,
    namespace: Annotated[str, Path(max_length=63)],
    version_id: Annotated[str, Path(max_length=300)],
    page: Annotated[int, Path(ge=1, le=100_000)],
    release: Release = None,
) -> Response:
    """A page of a document as a picture."""
    found = passages.page_picture(library, namespace, version_id, page, release)
    return Response(found, media_type=passages.media_type(found))


@api.get("/assets/{asset_id}", response_class=Response, responses=_PICTURE)
def get_image(
    library: LibraryOf, asset_id: Annotated[str, Path(max_length=64, description="A sha256.")]
) -> Response:
    """An image of a published document, redrawn."""
    found = passages.image_picture(library, asset_id)
    return Response(found, media_type=passages.media_type(found))


# --- pages --------------------------------------------------------------------------------------


@pages.get("/{namespace}/{chunk_id}")
def show(
    view: PathView,
    chunk_id: ChunkId,
    release: Release = None,
    span: Spans = [],  # noqa: B006 (FastAPI copies it)
    page: Page = None,
) -> Response:
    """The document around a passage, with the cited words marked."""
    source = get_chunk(view.library, chunk_id, view.namespace, release)
    place = get_place(view.library, chunk_id, view.namespace, release, span, page)
    sheet = first_page(place)

    def at(number: int | None) -> str:
        return link(f"/source/{view.namespace}/{chunk_id}", release=release, span=span, page=number)

    values: dict[str, Any] = {
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
    return view.render_part("asking/source_view.html", "asking/source.html", **values)


@pages.get("/{namespace}/{chunk_id}/proof")
def prove(view: PathView, chunk_id: ChunkId) -> Response:
    """The proof that the passage is in the stored file."""
    proof = get_proof(view.library, chunk_id, view.namespace)
    return view.render_part("asking/proof.html", "asking/proof_page.html", proof=proof)
