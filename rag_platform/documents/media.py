"""Images: references of the facts resolved to bytes, each stored once under its sha256."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import io
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from rag_platform.config import Limits, MediaConfig
from rag_platform.documents import isolation
from rag_platform.ir import Facts, MediaLink, MediaRef
from rag_platform.store import SCHEMA_VERSION, Store, atomic_path, read_json, write_json

THUMB_PIXELS = 320
_EXTENSIONS = {"PNG": "png", "JPEG": "jpg", "GIF": "gif", "WEBP": "webp", "BMP": "bmp", "TIFF": "tif", "JPEG2000": "jp2", "ICO": "ico",
               "AVIF": "avif", "PPM": "ppm"}  # fmt: skip
_MIMES = {"png": "image/png", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp", "tif": "image/tiff",
          "jp2": "image/jp2", "ico": "image/x-icon", "avif": "image/avif", "ppm": "image/x-portable-pixmap"}  # fmt: skip


class Missing(Exception):
    """Why an image has no stored bytes: a short code, kept in MediaLink.reason."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An image as it lies in the store."""

    asset_id: str
    mime: str
    width: int
    height: int
    size: int


def resolve(
    facts: Facts,
    raw_path: Path,
    store: Store,
    config: MediaConfig,
    *,
    base_dir: Path | None,
    root: Path | None,
    limits: Limits | None = None,
) -> list[MediaLink]:
    """One link for each reference, in order; equal bytes share one asset_id, and an image that cannot be had carries the reason.

    Relative paths are looked up from `base_dir` and must lie inside `root` after links are followed. Nothing is fetched from the network.
    Images of a PDF are taken out by the parsing children, under `limits`.
    """
    if not facts.media:
        return []
    targets = list(dict.fromkeys(ref.origin_ref for ref in facts.media))
    known: dict[str, Stored | str] = {}
    with tempfile.TemporaryDirectory(prefix="rag-media-") as scratch:
        of_pdf = [target for target in targets if target.startswith("pdf:")]
        extracted = isolation.extract_images(raw_path, of_pdf, Path(scratch), limits or Limits()) if of_pdf else {}
        for target in targets:
            try:
                known[target] = keep(_bytes_of(target, extracted.get(target), config, base_dir, root), store, config)
            except Missing as error:
                known[target] = str(error)
    return [_link(ref, known[ref.origin_ref]) for ref in facts.media]


def _link(ref: MediaRef, found: Stored | str) -> MediaLink:
    stored = found if isinstance(found, Stored) else None
    return MediaLink(
        ref_id=ref.ref_id,
        asset_id=stored.asset_id if stored else "",
        origin_ref=ref.origin_ref,
        mime=stored.mime if stored else "",
        width=stored.width if stored else 0,
        height=stored.height if stored else 0,
        size=stored.size if stored else 0,
        start=ref.start,
        end=ref.end,
        page=ref.page,
        bbox=ref.bbox,
        order=ref.order,
        heading_path=ref.heading_path,
        reason=found if isinstance(found, str) else "",
    )


# --- where the bytes are ---------------------------------------------------------------------------------------------------


def _bytes_of(target: str, extracted: Path | str | None, config: MediaConfig, base_dir: Path | None, root: Path | None) -> bytes:
    if isinstance(extracted, str):
        raise Missing(extracted)
    if extracted is not None:
        return _limited(_read(extracted, config), config)
    target = target.strip()
    lowered = target.lower()
    if lowered.startswith("data:"):
        return _limited(_data_uri(target, config), config)
    if lowered.startswith(("http:", "https:", "//")):
        raise Missing("remote_not_fetched")
    if ":" in target.split("/")[0] and not (len(target) > 1 and target[1] == ":"):
        raise Missing("scheme_not_allowed")
    return _limited(_local(target, config, base_dir, root), config)


def _limited(data: bytes, config: MediaConfig) -> bytes:
    if not data:
        raise Missing("empty_file")
    if len(data) > config.max_bytes:
        raise Missing("too_large")
    return data


def _data_uri(target: str, config: MediaConfig) -> bytes:
    head, comma, body = target[5:].partition(",")
    if not comma:
        raise Missing("broken_data_uri")
    if len(body) > 3 * config.max_bytes:
        raise Missing("too_large")
    raw = unquote_to_bytes(body)
    if not head.lower().endswith(";base64"):
        return raw
    try:
        return base64.b64decode(b"".join(raw.split()), validate=True)
    except (binascii.Error, ValueError):
        raise Missing("broken_data_uri") from None


def _local(target: str, config: MediaConfig, base_dir: Path | None, root: Path | None) -> bytes:
    """The bytes of a file inside the root; every link is followed before the place is judged."""
    if base_dir is None or root is None:
        raise Missing("no_base_folder")
    if "\x00" in target or PurePosixPath(target).is_absolute() or "\\" in target[:2] or (len(target) > 1 and target[1] == ":"):
        raise Missing("outside_root")
    allowed = root.resolve()
    for name in dict.fromkeys((target, unquote(target), unquote(target.split("#")[0].split("?")[0]))):
        try:
            path = (base_dir / name).resolve()
            if not path.is_relative_to(allowed):
                raise Missing("outside_root")
            if path.is_file():
                return _read(path, config)
        except (OSError, ValueError, RuntimeError):
            continue
    raise Missing("not_found")


def _read(path: Path, config: MediaConfig) -> bytes:
    if path.stat().st_size > config.max_bytes:
        raise Missing("too_large")
    return path.read_bytes()


# --- storing -----------------------------------------------------------------------------------------------------------


def keep(data: bytes, store: Store, config: MediaConfig) -> Stored:
    """The stored image of these bytes: original, thumbnail and meta.json under their sha256. Raises Missing with a reason.

    The type comes from the content; size and pixels are judged from the header before a pixel is decoded; an animation shows its first
    frame. meta.json is written last, so a folder that has one is complete.
    """
    asset_id = hashlib.sha256(data).hexdigest()
    folder = store.media_dir(asset_id)
    meta_path = folder / "meta.json"
    if meta_path.is_file():
        meta = read_json(meta_path)
        return Stored(asset_id, meta["mime"], meta["width"], meta["height"], meta["size"])
    extension, width, height, thumb = _decoded(data, config)
    stored = Stored(asset_id, _MIMES.get(extension, "application/octet-stream"), width, height, len(data))
    for path, content in ((folder / f"original.{extension}", data), (folder / "thumb.webp", thumb)):
        with atomic_path(path) as temporary:
            temporary.write_bytes(content)
    meta = {"schema_version": SCHEMA_VERSION, "asset_id": asset_id, "mime": stored.mime, "width": width, "height": height,
            "size": len(data), "original": f"original.{extension}", "thumb": "thumb.webp"}  # fmt: skip
    write_json(meta_path, meta)
    return stored


def _decoded(data: bytes, config: MediaConfig) -> tuple[str, int, int, bytes]:
    """(extension, width, height, thumbnail as WebP)."""
    from PIL import Image, ImageOps

    start = data[:512].lstrip().lower()
    if start.startswith((b"<svg", b"<?xml")) or b"<svg" in start:
        raise Missing("svg_not_rendered")
    try:
        with _quiet(), Image.open(io.BytesIO(data), formats=tuple(_EXTENSIONS)) as image:
            kind, (width, height) = str(image.format), image.size
            if width * height > config.max_pixels:
                raise Missing("too_many_pixels")
            if width < 1 or height < 1:
                raise Missing("broken_image")
            image.draft("RGB", (THUMB_PIXELS, THUMB_PIXELS))
            image.load()
            frame: Any = ImageOps.exif_transpose(image) or image
            if frame.mode.startswith(("I;16", "I", "F")):
                frame = frame.convert("I").point(lambda value: value / 256).convert("L") if frame.mode != "F" else frame.convert("L")
            transparent = frame.mode in ("RGBA", "LA", "PA") or "transparency" in frame.info
            frame = frame.convert("RGBA" if transparent else "RGB")
            frame.thumbnail((THUMB_PIXELS, THUMB_PIXELS))
            thumb = io.BytesIO()
            frame.save(thumb, "WEBP", quality=80)
            return _EXTENSIONS[kind], width, height, thumb.getvalue()
    except Missing:
        raise
    except Image.DecompressionBombError:
        raise Missing("too_many_pixels") from None
    except Exception as error:  # Pillow's decoders raise many types on broken files; the document goes on without the image
        raise Missing(
            "not_an_image" if type(error).__name__ == "UnidentifiedImageError" else f"broken_image: {type(error).__name__}"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Pillow warns of large images and odd metadata; the pixel limit is ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
