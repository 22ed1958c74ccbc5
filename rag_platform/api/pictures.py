"""Draws pages and redraws images, so that no byte of an uploaded file reaches a browser.

A child process draws the pictures. They are cached beside their source, where a deletion removes
them; one drawn during a deletion is removed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rag_platform.api.passages import read_asset
from rag_platform.api.places import is_drawn
from rag_platform.errors import DocumentError, InputError, NotFoundError
from rag_platform.releases.version_bundles import fetch_version
from rag_platform.retrieval.library import Lease, Library
from rag_platform.storage.store import atomic_path

_DPI = 120
_PAGE_PIXELS = 3_000_000
_MAX_PIXELS = 50_000_000  # of an image to be redrawn
_MAX_KEPT = 200  # pages of one version; the oldest go first


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
    from rag_platform.loaders.image_decoding import Missing
    from rag_platform.media.sandbox import decode_in_child

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
