"""Reads single chunks and images by their ids, which are unique across namespaces, and draws pages
and images for browsers; deleted ones are not found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rag_platform.api.document_views import chunk_part, shown_text
from rag_platform.api.envelopes import fill_shape
from rag_platform.api.places import is_drawn, lease_chunk
from rag_platform.contract.markdown_views import asset_uri, passage_markdown
from rag_platform.contract.schema import AssetPart, AssetsData, ChunkData
from rag_platform.errors import DocumentError, InputError, NotFoundError
from rag_platform.ledger.ledger import open_ledger
from rag_platform.releases.version_bundles import fetch_version
from rag_platform.retrieval.hydration import read_pictures
from rag_platform.retrieval.library import Lease, Library
from rag_platform.retrieval.namespaces import find_in_namespaces
from rag_platform.storage.store import Store, atomic_path

MAX_NEIGHBOURS = 10
MAX_ASSETS = 20
Variant = Literal["thumb", "raw"]
# of all images of one call: the most that clients accept in one message
MAX_BYTES = 5 * 1024 * 1024
_DPI = 120
_PAGE_PIXELS = 3_000_000
_MAX_PIXELS = 50_000_000  # of an image to be redrawn
_MAX_KEPT = 200  # pages of one version; the oldest go first


# --- chunks -------------------------------------------------------------------------------------


def get_chunk(
    library: Library, chunk_id: str, *, before: int = 0, after: int = 0, names: Sequence[str] = ()
) -> ChunkData:
    """A chunk of the published release, else of the newest kept one that has it, with `before` and
    `after` chunks around it, in reading order; `names` are the namespaces to look in, by default
    all.

    Raises NotFoundError `unknown_chunk`, InputError `bad_limit`.
    """
    for name, number in (("before", before), ("after", after)):
        if not 0 <= number <= MAX_NEIGHBOURS:
            raise InputError(f"{name} {number} is not within 0-{MAX_NEIGHBOURS}", code="bad_limit")
    with lease_chunk(library, chunk_id, names) as (lease, row, state):
        catalog = lease.release.catalog
        chunks = catalog.neighbours(chunk_id, before, after)
        hidden = library.hidden_chunks(lease)
        parts = [
            chunk_part(
                it, shown_text(it, catalog), read_pictures(it, catalog) if it.chunk_text else ""
            )
            for it in chunks
            if it.chunk_id not in hidden
        ]
        data = fill_shape(
            ChunkData,
            row.chunk,
            markdown="",
            title=row.doc_title,
            source_uri=row.source_uri,
            namespace=lease.namespace,
            release_id=lease.release_id,
            state=state,
            chunks=parts,
        )
    data["markdown"] = passage_markdown(data)
    return data


def find_document_namespace(library: Library, doc_id: str, names: Sequence[str] = ()) -> str | None:
    """The first of the namespaces (by default all published ones) whose release has the document,
    else the first in whose ledger it is, failed or deleted; None if there is none.
    """
    names = names or library.namespaces()

    def look(namespace: str) -> str | None:
        with library.lease(namespace) as lease:
            return namespace if lease.release.catalog.document(doc_id) is not None else None

    if (found := find_in_namespaces(names, look)) is not None:
        return found
    if not library.store.has_ledger():
        return None
    with closing(open_ledger(library.store)) as ledger:
        return next((name for name in names if ledger.versions(name, doc_id)), None)


# --- images -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picture:
    """An image in a format that clients can show."""

    asset_id: str
    mime: str
    path: Path
    width: int  # of the original, also for a thumbnail
    height: int


def query_assets(
    library: Library,
    asset_ids: Sequence[str],
    *,
    variant: Variant = "thumb",
    max_bytes: int = MAX_BYTES,
    names: Sequence[str] = (),
) -> tuple[AssetsData, list[Picture]]:
    """The images in the given order, up to `max_bytes` in total; those that are not in a published
    document or do not fit are listed in `missing`, with the reason.

    `thumb` is a small WebP, `raw` the image as received, or its PNG or WebP if clients cannot show
    that format. Raises InputError `too_many_assets`.
    """
    ids = list(dict.fromkeys(asset_id.removeprefix("asset://") for asset_id in asset_ids))
    if not 1 <= len(ids) <= MAX_ASSETS:
        raise InputError(
            f"{len(ids)} asset_ids were named; name 1 to {MAX_ASSETS}", code="too_many_assets"
        )
    published = _published_assets(library, ids, names)
    data: AssetsData = {"markdown": "", "assets": [], "missing": []}
    pictures: list[Picture] = []
    left = max_bytes
    for asset_id in ids:
        picture = _picture(library, asset_id, variant) if asset_id in published else None
        size = picture.path.stat().st_size if picture else 0
        if picture is None or size > left:
            reason = f"{size} bytes, of which {left} are left of max_bytes" if picture else ""
            reason = reason or (
                "no published document shows it" if asset_id not in published else "not drawn"
            )
            data["missing"].append({"asset_id": asset_id, "reason": reason})
            continue
        left -= size
        own = {"variant": variant, "bytes": size, "doc_ids": published[asset_id]}
        data["assets"].append(fill_shape(AssetPart, picture, uri=asset_uri(asset_id), **own))
        pictures.append(picture)
    lines = [
        f"- {it['uri']}: {it['width']} × {it['height']}, {it['mime']}, in"
        f" {', '.join(f'`{doc_id}`' for doc_id in it['doc_ids'])}"
        for it in data["assets"]
    ]
    lines += [f"- {it['asset_id'][:80]}: missing, {it['reason']}" for it in data["missing"]]
    data["markdown"] = "\n".join(lines)
    return data, pictures


def read_asset(library: Library, asset_id: str) -> Picture:
    """An image of a published document as `raw`. Raises NotFoundError `unknown_asset`."""
    published = _published_assets(library, [asset_id], ())
    picture = _picture(library, asset_id, "raw") if published else None
    if picture is None:
        raise NotFoundError(
            f"no published document shows an image {asset_id[:80]!r}", code="unknown_asset"
        )
    return picture


def _published_assets(
    library: Library, asset_ids: Sequence[str], names: Sequence[str]
) -> dict[str, list[str]]:
    """asset_id to the ids of the documents that show it, without deleted ones."""
    found: dict[str, list[str]] = {}
    for namespace in names or library.namespaces():
        with library.lease(namespace) as lease:
            hidden = library.hidden_names(lease)
            for asset_id, version_id, doc_id in lease.release.catalog.asset_documents(asset_ids):
                if hidden.isdisjoint((version_id, doc_id)):
                    _fetch_picture(lease, library.store, asset_id, version_id)
                    found.setdefault(asset_id, []).append(doc_id)
    return found


def _fetch_picture(lease: Lease, store: Store, asset_id: str, version_id: str) -> None:
    """Fetch an image from the bucket, with the version that it belongs to, if it is not here."""
    if store.remote is None or (store.media_dir(asset_id) / "meta.json").is_file():
        return
    if (version := lease.release.catalog.version(version_id)) is not None:
        fetch_version(store, version, lease.release.manifest.profiles)


def _picture(library: Library, asset_id: str, variant: Variant) -> Picture | None:
    """The file of a stored image; None if it has no variant that clients can show."""
    from rag_platform.media.store import display_path, read_meta  # read images, with all they need

    folder = library.store.media_dir(asset_id)
    if not (folder / "meta.json").is_file():
        return None
    meta = read_meta(library.store, asset_id)
    thumb = folder / str(meta["thumb"]) if meta["thumb"] and variant == "thumb" else None
    path = thumb or display_path(library.store, asset_id)
    if path is None or not path.is_file():
        return None
    own = {".png": "image/png", ".webp": "image/webp"}
    mime = own.get(path.suffix, str(meta["mime"]))
    return Picture(asset_id, mime, path, meta["width"], meta["height"])


# --- drawn for browsers -------------------------------------------------------------------------
# No byte of an uploaded file reaches a browser: a child process draws the pictures. They are cached
# beside their source, where a deletion removes them; one drawn during a deletion is removed at
# once.


def page_picture(
    library: Library, namespace: str, version_id: str, page: int, release_id: str | None = None
) -> bytes:
    """A page of a document as PNG or JPEG.

    Raises NotFoundError for a version that the release does not show, InputError `no_pages`, and
    DocumentError for a page that cannot be drawn (`blank_page` for an empty one).
    """
    with library.lease(namespace, release_id) as lease:
        version = lease.release.catalog.version(version_id)
        if version is None or _is_hidden(library, lease, version.doc_id, version_id):
            raise NotFoundError(
                f"release {lease.release_id} shows no version {version_id[:120]!r}",
                code="unknown_version",
            )
        if not is_drawn(version):
            raise InputError(
                f"{version.filename} has no pages that could be drawn", code="no_pages"
            )
        fetch_version(library.store, version, lease.release.manifest.profiles)
        raw_path = library.store.raw_path(version.file_sha256)
        path = library.store.page_picture(version, page)
        picture = _load_or_draw(
            path,
            lambda: _draw(library, raw_path, version.loader, page),
            lambda: not _is_hidden(library, lease, version.doc_id, version_id),
        )
        _drop_oldest(path.parent)
        return picture


def _drop_oldest(folder: Path) -> None:
    """Delete the oldest pictures of a folder beyond _MAX_KEPT."""
    with suppress(OSError):  # removed meanwhile, or the disk is not writable
        kept = sorted(folder.glob("*.image"), key=lambda path: path.stat().st_mtime)
        for path in kept[:-_MAX_KEPT]:
            path.unlink(missing_ok=True)


def _is_hidden(library: Library, lease: Lease, doc_id: str, version_id: str) -> bool:
    return not library.hidden_names(lease).isdisjoint((doc_id, version_id))


def _draw(library: Library, raw_path: Path, loader: str, page: int) -> bytes:
    from rag_platform.intake.isolation import extract_images
    from rag_platform.registry import traits

    target = f"pdf:page={page};dpi={_DPI};pixels={_PAGE_PIXELS}"
    with library.store.scratch() as folder:
        found = extract_images(
            raw_path,
            [target],
            folder,
            library.settings.limits,
            engine=traits("loader", loader).engine,
        )[target]
        if isinstance(found, str):
            code = found.partition(":")[0]
            raise DocumentError(f"page {page} cannot be drawn: {found}", code=code)
        return found.read_bytes()


def image_picture(library: Library, asset_id: str) -> bytes:
    """An image of a published document, redrawn as PNG or WebP. Raises NotFoundError, DocumentError
    `not_drawn`.
    """
    shown = read_asset(library, asset_id)

    def is_shown() -> bool:
        with suppress(NotFoundError):
            read_asset(library, asset_id)
            return True
        return False

    return _load_or_draw(
        library.store.media_dir(asset_id) / "redrawn.image",
        lambda: _redraw(library, shown.path),
        is_shown,
    )


def _redraw(library: Library, path: Path) -> bytes:
    from rag_platform.intake.isolation import decode_in_child
    from rag_platform.loaders.images import Missing

    try:
        with library.store.scratch() as folder:
            found = decode_in_child(
                path.read_bytes(), _MAX_PIXELS, library.settings.limits, folder, redraw=True
            )
    except Missing as error:
        raise DocumentError(f"the image cannot be drawn: {error}", code="not_drawn") from error
    return next(data for name, data in found.variants.items() if name.startswith("display."))


def media_type(picture: bytes) -> str:
    """The MIME type of a picture drawn by this module."""
    if picture.startswith(b"\x89PNG"):
        return "image/png"
    return "image/jpeg" if picture.startswith(b"\xff\xd8") else "image/webp"


def _load_or_draw(path: Path, draw: Callable[[], bytes], is_shown: Callable[[], bool]) -> bytes:
    """The cached picture, else a new one, which is cached if the disk is writable."""
    if path.is_file():
        return path.read_bytes()
    picture = draw()
    with suppress(OSError):
        with atomic_path(path) as temporary:
            temporary.write_bytes(picture)
        if not is_shown():
            path.unlink()
            path.parent.rmdir()
    return picture
