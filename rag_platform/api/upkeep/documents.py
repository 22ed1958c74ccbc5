"""Full details of one document and one chunk, for the web pages."""

from __future__ import annotations

from typing import cast

from rag_platform.api.cursors import make_cursor, read_cursor
from rag_platform.api.document_views import chunk_part, section_part
from rag_platform.api.documents import open_with_published
from rag_platform.api.envelopes import fill_shape, without_paths
from rag_platform.api.places import image_texts
from rag_platform.api.writing import open_root
from rag_platform.config.settings import Settings, load_strategy
from rag_platform.contract.schema import SectionPart
from rag_platform.contract.source_shapes import SourceImage
from rag_platform.contract.upkeep_shapes import (
    ChunkDetail,
    ChunksData,
    DocumentDetail,
    VersionDiff,
)
from rag_platform.documents.metadata import with_file_metadata
from rag_platform.errors import InputError, NotFoundError
from rag_platform.ir import Document, Version, View
from rag_platform.retrieval.library import Lease, Library
from rag_platform.storage.store import Store, read_records


def describe_document(library: Library, namespace: str, doc_id: str) -> DocumentDetail:
    """A document with its versions and the outline of its published one. Raises NotFoundError."""
    from rag_platform.releases.version_history import history

    with open_with_published(library, namespace) as (ledger, published):
        document = ledger.document(namespace, doc_id)
        row = ledger.document_row(namespace, doc_id, published)
        recorded = history(document, store=library.store, ledger=ledger)
        live = ledger.version(document.live_version) if document.live_version else None
    shown = with_file_metadata(document, live) if live else document
    data = fill_shape(
        DocumentDetail,
        shown,
        status=row.status if row else "",
        problem=without_paths(row.problem) if row else "",
        versions=without_paths(recorded["versions"]),
        release_id="",
        sections=[],
        chunks=0,
        unread="",
    )
    try:
        with library.lease(namespace) as lease:
            _, version = _require_published(library, lease, doc_id)
            data["release_id"] = lease.release_id
            data["sections"] = _outline(lease, doc_id, version)
            data["chunks"] = lease.release.catalog.chunk_counts([version.version_id])[
                version.version_id
            ]
    except NotFoundError as error:
        data["unread"] = error.message
    return data


def compare_versions(
    settings: Settings, namespace: str, doc_id: str, before: str | None, after: str | None
) -> VersionDiff:
    """The sections and chunks that differ between two versions of a document, by default the live
    one and its predecessor. Raises NotFoundError, see `version_history.difference`.
    """
    from rag_platform.releases.version_history import difference

    with open_root(settings) as root:
        document = root.ledger.document(namespace, doc_id)
        strategy = load_strategy(settings, root.bound_strategy(namespace))
        found = difference(
            document, before, after, strategy=strategy, store=root.store, ledger=root.ledger
        )
    return cast(VersionDiff, found)


def _require_published(library: Library, lease: Lease, doc_id: str) -> tuple[Document, Version]:
    """The document and its version in a release. Raises NotFoundError."""
    catalog, hidden = lease.release.catalog, library.hidden_names(lease)
    document = catalog.document(doc_id)
    version = catalog.version(document.live_version or "") if document else None
    if document is None or version is None or hidden & {doc_id, version.version_id}:
        raise NotFoundError(
            f"release {lease.release_id} shows no document {doc_id[:80]!r}: it failed, waits for a"
            " release, or was deleted",
            code="not_published",
        )
    return document, version


def _outline(lease: Lease, doc_id: str, version: Version) -> list[SectionPart]:
    catalog = lease.release.catalog
    counts = catalog.section_counts(version.version_id)
    return [section_part(section, counts) for section in catalog.sections(doc_id)]


def list_chunks(
    library: Library,
    namespace: str,
    doc_id: str,
    *,
    section_id: str = "",
    limit: int = 50,
    cursor: str | None = None,
) -> ChunksData:
    """One page of a published document's chunks, or of those of a section. Raises NotFoundError,
    InputError.
    """
    with library.lease(namespace) as lease:
        _, version = _require_published(library, lease, doc_id)
        begin = 0
        if cursor is not None:
            version_id, begin = read_cursor(cursor, (str, int))
            if version_id != version.version_id or not 0 <= begin < 2**31:
                raise InputError(
                    f"the cursor belongs to version {version_id[:80]}; begin again without it",
                    code="bad_cursor",
                )
        catalog = lease.release.catalog
        if section_id:
            total = catalog.section_counts(version.version_id).get(section_id, 0)
        else:
            total = catalog.chunk_counts([version.version_id])[version.version_id]
        chunks = catalog.chunk_page(version.version_id, section_id, begin, limit)
        end = begin + len(chunks)
        return {
            "namespace": namespace,
            "doc_id": doc_id,
            "version_id": version.version_id,
            "release_id": lease.release_id,
            "chunks": [chunk_part(chunk, chunk.chunk_text) for chunk in chunks],
            "total": total,
            "next_cursor": make_cursor(version.version_id, end) if end < total else None,
        }


def describe_chunk(library: Library, namespace: str, chunk_id: str) -> ChunkDetail:
    """A published chunk with its place and its retrieval texts. Raises NotFoundError."""
    with library.lease(namespace) as lease:
        catalog = lease.release.catalog
        row = catalog.rows([chunk_id]).get(chunk_id)
        if row is None or chunk_id in library.hidden_chunks(lease):
            raise NotFoundError(
                f"no chunk {chunk_id[:80]!r} in release {lease.release_id} of {namespace!r}; its"
                " document may have changed since",
                code="unknown_chunk",
            )
        chunk = row.chunk
        version = catalog.version(chunk.version_id)
        view = _view(lease, library.store, version, chunk_id) if version else None
        around = [it.chunk_id for it in catalog.neighbours(chunk_id, 1, 1)]
        place = around.index(chunk_id)
        return fill_shape(
            ChunkDetail,
            chunk,
            namespace=namespace,
            release_id=lease.release_id,
            doc_title=row.doc_title,
            source_uri=row.source_uri,
            content_type=row.content_type,
            status=row.status,
            chunk=chunk_part(chunk, chunk.chunk_text),
            before=around[place - 1] if place else "",
            after=around[place + 1] if place + 1 < len(around) else "",
            dense_text=view.dense_text if view else "",
            sparse_text=view.sparse_text if view else "",
            keyphrases=list(view.keyphrases) if view else [],
            quality_score=view.quality_score if view else None,
            view_title=view.title if view else "",
            view_summary=view.summary if view else "",
            view_tags=list(view.tags) if view else [],
            images=[fill_shape(SourceImage, text) for text in image_texts(lease, chunk)],
        )


def _view(lease: Lease, store: Store, version: Version, chunk_id: str) -> View | None:
    """The chunk's texts for the retrievers; None if their file was garbage collected."""
    manifest = lease.release.manifest
    path = store.version_path(version, "views", manifest.profiles["views"], version.edition)
    if not path.is_file():
        return None
    return next((view for view in read_records(path, View) if view.chunk_id == chunk_id), None)
