"""What an image file holds, judged before a pixel is decoded, and the smaller or safer forms in which it is shown."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rag_platform.documents import media_svg
from rag_platform.loaders.damage import damage
from rag_platform.observability import faults

THUMB_PIXELS = 320
DISPLAY_PIXELS = 2000  # longest side of a form made for showing
SHOWN_EVERYWHERE = ("PNG", "JPEG", "GIF", "WEBP")
TYPES = {  # Pillow's name: (extension, media type)
    "PNG": ("png", "image/png"), "JPEG": ("jpg", "image/jpeg"), "GIF": ("gif", "image/gif"), "WEBP": ("webp", "image/webp"),
    "BMP": ("bmp", "image/bmp"), "TIFF": ("tif", "image/tiff"), "JPEG2000": ("jp2", "image/jp2"), "ICO": ("ico", "image/x-icon"),
    "AVIF": ("avif", "image/avif"), "PPM": ("ppm", "image/x-portable-pixmap"),
}  # fmt: skip
_OTHERS = ((b"DDS ", "dds"), (b"BLP1", "blp"), (b"BLP2", "blp"), (b"\x01\xda", "sgi"), (b"8BPS", "psd"), (b"\xd7\xcd\xc6\x9a", "wmf"),
           (b"\x01\x00\x00\x00", "emf"), (b"%!PS", "eps"), (b"gimp xcf", "xcf"), (b"\x1f\x8b", "gzip"))  # fmt: skip
_PLAIN = ("1", "L", "P", "LA", "PA")  # drawings and scans: they stay sharp as PNG


class Missing(Exception):
    """Why an image has no stored bytes: a short code, kept in MediaLink.reason."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An image judged and drawn. `variants` are files beside the original: thumb.webp, and display.* where the original is not shown
    by every client; `original` is given where other bytes than the received ones are to be kept under that name."""

    extension: str
    mime: str
    width: int  # as it is shown: after its EXIF orientation
    height: int
    variants: dict[str, bytes] = field(default_factory=dict)
    original: bytes | None = None


def simple(data: bytes) -> bool:
    """True for types whose decoders are small and well worn; the others are better decoded in a child process."""
    return data.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8")) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP")


def shown(data: bytes, max_pixels: int) -> Shown:
    """The image of these bytes: its type by content, its size by its header, the first frame of an animation as thumbnail.

    Raises Missing: `too_many_pixels`, `not_an_image`, `type_not_read: NAME`, `broken_image: REASON`, `broken_svg`.
    """
    if media_svg.looks_like_svg(data):
        try:
            safe, width, height = media_svg.sanitised(data)
        except ValueError as error:
            raise Missing(f"broken_svg: {error}") from None
        return Shown("svg", "image/svg+xml", width, height, _drawn_svg(safe, max_pixels), safe)
    return _raster(data, max_pixels)


def _raster(data: bytes, max_pixels: int) -> Shown:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with _quiet(), Image.open(io.BytesIO(data), formats=tuple(TYPES)) as image:
            kind, (width, height) = str(image.format), image.size
            if width * height > max_pixels:
                raise Missing("too_many_pixels")
            if width < 1 or height < 1:
                raise Missing("broken_image: no pixels")
            shown_everywhere = kind in SHOWN_EVERYWHERE and image.mode != "CMYK"
            if shown_everywhere:
                image.draft("RGB", (THUMB_PIXELS, THUMB_PIXELS))
            image.load()
            frame: Any = ImageOps.exif_transpose(image) or image
            if (image.width > image.height) != (frame.width > frame.height):
                width, height = height, width
            variants = {} if shown_everywhere else _display(_eight_bit(frame))
            variants["thumb.webp"] = thumbnail(_eight_bit(frame))
            extension, mime = TYPES[kind]
            return Shown(extension, mime, width, height, variants)
    except Missing:
        raise
    except Image.DecompressionBombError:
        raise Missing("too_many_pixels") from None
    except UnidentifiedImageError:
        name = next((name for magic, name in _OTHERS if data.startswith(magic)), "")
        raise Missing(f"type_not_read: {name}" if name else "not_an_image") from None
    except Exception as error:  # Pillow's decoders raise many types on broken files; the document goes on without the image
        faults.seen_ours(error, "stage.asset_normalize")
        raise Missing(f"broken_image: {damage(error)}") from error


def _eight_bit(frame: Any) -> Any:
    """The frame with eight bits a channel; 16 bits keep their upper half."""
    if frame.mode.startswith("I"):
        return frame.convert("I").point(lambda value: value / 256).convert("L")
    if frame.mode == "F":
        return frame.convert("L")
    return frame


def thumbnail(frame: Any) -> bytes:
    """A WebP of at most THUMB_PIXELS each way."""
    transparent = frame.mode in ("RGBA", "LA", "PA", "RGBa") or "transparency" in frame.info
    small = frame.convert("RGBA" if transparent else "RGB")
    small.thumbnail((THUMB_PIXELS, THUMB_PIXELS))
    return _encoded(small, "WEBP", quality=80)


def _display(frame: Any) -> dict[str, bytes]:
    """The frame as PNG where it has few colours, else as WebP, at most DISPLAY_PIXELS each way."""
    if frame.mode in _PLAIN:
        small = frame.convert("L") if frame.mode == "1" and max(frame.size) > DISPLAY_PIXELS else frame.copy()
        small.thumbnail((DISPLAY_PIXELS, DISPLAY_PIXELS))
        return {"display.png": _encoded(small, "PNG", optimize=True)}
    small = frame.convert("RGBA" if frame.mode in ("RGBA", "RGBa") else "RGB")
    small.thumbnail((DISPLAY_PIXELS, DISPLAY_PIXELS))
    return {"display.webp": _encoded(small, "WEBP", quality=90)}


def _encoded(frame: Any, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    frame.save(stream, kind, **options)
    return stream.getvalue()


def _drawn_svg(safe: bytes, max_pixels: int) -> dict[str, bytes]:
    """display.png and thumb.webp of a sanitised SVG as MuPDF draws it; none where it cannot."""
    import pymupdf
    from PIL import Image

    pymupdf.TOOLS.mupdf_display_errors(False)
    pymupdf.TOOLS.mupdf_display_warnings(False)
    try:
        with pymupdf.open(stream=safe, filetype="svg") as document:
            page = document[0]
            width, height = max(1.0, page.rect.width), max(1.0, page.rect.height)
            zoom = min(2.0, DISPLAY_PIXELS / 2 / max(width, height), (min(max_pixels, 4_000_000) / (width * height)) ** 0.5)
            drawn = page.get_pixmap(matrix=pymupdf.Matrix(zoom, zoom), alpha=False).tobytes("png")
        with Image.open(io.BytesIO(drawn)) as image:
            return {"display.png": drawn, "thumb.webp": thumbnail(image)}
    except (RuntimeError, ValueError, TypeError, OSError):  # the safe original is kept without a preview
        return {}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Pillow warns of large images and odd metadata; the pixel limit is ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
