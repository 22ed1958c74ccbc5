"""Image files as documents; and decoding of images, whose type and size are checked before their
pixels are read, with smaller or safer variants for display. Of an SVG only known drawing elements
are kept: nothing that is executed or fetched.
"""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from rag_platform.errors import DocumentError
from rag_platform.ir import Facts, MediaRef
from rag_platform.loaders.archives import describe_damage, reject_damaged
from rag_platform.loaders.decoding import Decoded, sniff_binary
from rag_platform.loaders.parts import Engine, make_facts
from rag_platform.observability import faults
from rag_platform.traits import Traits

THUMB_PIXELS = 320
DISPLAY_PIXELS = 2000  # longest side of a variant made for display
SHOWN_EVERYWHERE = ("PNG", "JPEG", "GIF", "WEBP")
TYPES = {  # Pillow's name: (extension, media type)
    "PNG": ("png", "image/png"),
    "JPEG": ("jpg", "image/jpeg"),
    "GIF": ("gif", "image/gif"),
    "WEBP": ("webp", "image/webp"),
    "BMP": ("bmp", "image/bmp"),
    "TIFF": ("tif", "image/tiff"),
    "JPEG2000": ("jp2", "image/jp2"),
    "ICO": ("ico", "image/x-icon"),
    "AVIF": ("avif", "image/avif"),
    "PPM": ("ppm", "image/x-portable-pixmap"),
}
# first bytes and names of types that are not read
_UNREAD_TYPES = (
    (b"DDS ", "dds"),
    (b"BLP1", "blp"),
    (b"BLP2", "blp"),
    (b"\x01\xda", "sgi"),
    (b"8BPS", "psd"),
    (b"\xd7\xcd\xc6\x9a", "wmf"),
    (b"\x01\x00\x00\x00", "emf"),
    (b"%!PS", "eps"),
    (b"gimp xcf", "xcf"),
    (b"\x1f\x8b", "gzip"),
)
# mean difference (of 255) in 8 x 8 pixels that another version of a graphics library may cause
_NOISE, _SQUARE = 16, 8
_PNG_MODES = ("1", "L", "P", "LA", "PA")  # drawings and scans, which stay sharp as PNG

_LOADED_KINDS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")


@dataclass(frozen=True)
class ImageLoader:
    """Reads an image file as a document of one page without text.

    Enable it only if images are documents: it also claims the images of Markdown files.
    """

    NAME: ClassVar[str] = "image"
    VERSION: ClassVar[str] = "2"
    traits: ClassVar[Traits] = Traits(isolated=True)  # decoders of images have crashed before

    def claims(self, filename: str, head: bytes) -> bool:
        """True for the content of PNG, JPEG, GIF, WebP, TIFF and BMP, whatever the filename."""
        return sniff_binary(head)[0].upper() in _LOADED_KINDS

    def load(self, path: Path, filename: str) -> Facts:
        """Facts without text, with the image `file:`. Raises `broken_file`, `too_large`."""
        from PIL import Image

        with (
            reject_damaged(f"{filename} cannot be read as an image", "save it again"),
            # warnings about metadata; the size is checked when the image is decoded
            warnings.catch_warnings(action="ignore"),
        ):
            try:
                with Image.open(path, formats=_LOADED_KINDS) as opened:
                    frames = int(getattr(opened, "n_frames", 1)) if opened.format == "TIFF" else 1
            except Image.DecompressionBombError as error:
                raise DocumentError(
                    f"{filename} has more pixels than can be decoded; make it smaller",
                    code="too_large",
                ) from error
        notes = [
            "the image holds no text of its own; OCR (media_texts.ocr) or captions"
            " (media_texts.captions) make it findable"
        ]
        if frames > 1:
            notes.append(
                f"only the first of {frames} pages is taken; save the file as PDF to have all"
            )
        media = MediaRef("img-0001", "image", "file:", page=1)
        engine = Engine("pillow", metadata.version("pillow"), "picture")
        title = PurePosixPath(filename.replace("\\", "/")).stem
        facts = make_facts(self, engine, Decoded("", ""), (), (media,), title, {}, notes)
        summary = replace(facts.summary, pages=1, pages_without_text=(1,))
        return replace(facts, summary=summary)


class Missing(Exception):
    """Why an image has no stored bytes: a short code, kept in MediaLink.reason."""


_REASONS = {
    "outside_root": "outside the folder that was ingested",
    "not_found": "not found",
    "no_base_folder": "relative to a folder that is not known",
    "remote_not_fetched": "on the web, and media.fetch_remote is off",
    "scheme_not_allowed": "addresses of this kind are not read",
    "fetch_failed": "the download failed",
    "too_large": "above media.max_bytes",
    "too_many_pixels": "more pixels than media.max_pixels",
    "type_not_read": "images of this type are not read",
    "not_an_image": "not an image",
    "empty_file": "an empty file",
}


def explain(reason: str) -> str:
    """The reason of a Missing in words; an unknown reason is returned unchanged."""
    return _REASONS.get(reason.partition(": ")[0], reason)


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """A decoded image. `variants` are files to store with it: thumb.webp, and display.* if needed.

    `original` replaces the received bytes if those are not safe to show.
    """

    extension: str
    mime: str
    width: int  # after its EXIF orientation is applied
    height: int
    variants: dict[str, bytes] = field(default_factory=dict)
    original: bytes | None = None


def has_simple_decoder(data: bytes) -> bool:
    """True for types with small, proven decoders; the others are decoded in a child process."""
    return sniff_binary(data)[0].upper() in SHOWN_EVERYWHERE


def looks_alike(one: bytes, other: bytes) -> bool:
    """True for images of the same size and look; bytes may differ between graphics libraries."""
    if one == other:
        return True
    from PIL import Image, ImageChops

    try:
        with (
            Image.open(io.BytesIO(one), formats=("PNG", "WEBP")) as left,
            Image.open(io.BytesIO(other)) as right,
        ):
            if left.size != right.size:
                return False
            difference = ImageChops.difference(left.convert("RGBA"), right.convert("RGBA"))
    except (OSError, ValueError, Image.DecompressionBombError):
        return False
    squares = [band.reduce(_SQUARE) for band in difference.split()]
    return max(max(band.tobytes()) for band in squares) <= _NOISE


def decode_image(data: bytes, max_pixels: int, *, redraw: bool = False) -> DecodedImage:
    """Decode an image: its type by content, its size by header, its first frame as thumbnail. A
    `display.*` is made if some clients cannot show the original, and always with `redraw`.

    Raises Missing: `too_many_pixels`, `not_an_image`, `type_not_read: NAME`, `broken_image:
    REASON`, `broken_svg`.
    """
    if looks_like_svg(data):
        try:
            safe, width, height = sanitise(data)
        except ValueError as error:
            raise Missing(f"broken_svg: {error}") from None
        return DecodedImage(
            "svg", "image/svg+xml", width, height, _draw_svg(safe, max_pixels), safe
        )
    return _decode_raster(data, max_pixels, redraw)


def _decode_raster(data: bytes, max_pixels: int, redraw: bool) -> DecodedImage:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with (
            # warnings are about large images, which are limited below, and about metadata
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(data), formats=tuple(TYPES)) as image,
        ):
            kind, (width, height) = str(image.format), image.size
            if width * height > max_pixels:
                raise Missing("too_many_pixels")
            if width < 1 or height < 1:
                raise Missing("broken_image: no pixels")
            shown_everywhere = kind in SHOWN_EVERYWHERE and image.mode != "CMYK" and not redraw
            if shown_everywhere:
                image.draft("RGB", (THUMB_PIXELS, THUMB_PIXELS))
            image.load()
            frame: Any = ImageOps.exif_transpose(image) or image
            if (image.width > image.height) != (frame.width > frame.height):
                width, height = height, width
            variants = {} if shown_everywhere else _encode_display(_to_eight_bit(frame))
            variants["thumb.webp"] = thumbnail(_to_eight_bit(frame))
            extension, mime = TYPES[kind]
            return DecodedImage(extension, mime, width, height, variants)
    except Missing:
        raise
    except Image.DecompressionBombError:
        raise Missing("too_many_pixels") from None
    except UnidentifiedImageError:
        name = next((name for magic, name in _UNREAD_TYPES if data.startswith(magic)), "")
        raise Missing(f"type_not_read: {name}" if name else "not_an_image") from None
    # Pillow's decoders raise many types on broken files; the document is read without the image
    except Exception as error:
        faults.report_own(error, "stage.asset_normalize")
        raise Missing(f"broken_image: {describe_damage(error)}") from error


def _to_eight_bit(frame: Any) -> Any:
    """The frame with 8 bits per channel: the upper 8 of 16."""
    if frame.mode.startswith("I"):
        return frame.convert("I").point(lambda value: value / 256).convert("L")
    if frame.mode == "F":
        return frame.convert("L")
    return frame


def thumbnail(frame: Any) -> bytes:
    """A WebP of at most THUMB_PIXELS in each dimension."""
    transparent = frame.mode in ("RGBA", "LA", "PA", "RGBa") or "transparency" in frame.info
    small = frame.convert("RGBA" if transparent else "RGB")
    small.thumbnail((THUMB_PIXELS, THUMB_PIXELS))
    return _encode(small, "WEBP", quality=80)


def _encode_display(frame: Any) -> dict[str, bytes]:
    """The frame as PNG if it has few colours, else as WebP; at most DISPLAY_PIXELS in each
    dimension.
    """
    if frame.mode in _PNG_MODES:
        grey = frame.mode == "1" and max(frame.size) > DISPLAY_PIXELS
        small = frame.convert("L") if grey else frame.copy()
        small.thumbnail((DISPLAY_PIXELS, DISPLAY_PIXELS))
        return {"display.png": _encode(small, "PNG", optimize=True)}
    small = frame.convert("RGBA" if frame.mode in ("RGBA", "RGBa") else "RGB")
    small.thumbnail((DISPLAY_PIXELS, DISPLAY_PIXELS))
    return {"display.webp": _encode(small, "WEBP", quality=90)}


def _encode(frame: Any, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    frame.save(stream, kind, **options)
    return stream.getvalue()


def _draw_svg(safe: bytes, max_pixels: int) -> dict[str, bytes]:
    """display.png and thumb.webp of a sanitised SVG, rendered by MuPDF; {} if that fails."""
    import pymupdf
    from PIL import Image

    pymupdf.TOOLS.mupdf_display_errors(False)
    pymupdf.TOOLS.mupdf_display_warnings(False)
    try:
        with pymupdf.open(stream=safe, filetype="svg") as document:
            page = document[0]
            width, height = max(1.0, page.rect.width), max(1.0, page.rect.height)
            zoom = min(
                2.0,
                DISPLAY_PIXELS / 2 / max(width, height),
                (min(max_pixels, 4_000_000) / (width * height)) ** 0.5,
            )
            drawn = page.get_pixmap(matrix=pymupdf.Matrix(zoom, zoom), alpha=False).tobytes("png")
        with Image.open(io.BytesIO(drawn)) as image:
            return {"display.png": drawn, "thumb.webp": thumbnail(image)}
    except (RuntimeError, ValueError, TypeError, OSError):
        return {}  # the sanitised original has no preview


SVG = "http://www.w3.org/2000/svg"
_XLINK_HREF = "{http://www.w3.org/1999/xlink}href"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_ELEMENTS = frozenset(
    """svg g defs symbol use title desc switch a style path rect circle ellipse line polyline
    polygon text tspan textPath image linearGradient radialGradient stop pattern clipPath mask
    marker filter feBlend feColorMatrix feComponentTransfer feComposite feConvolveMatrix
    feDiffuseLighting feDisplacementMap feDistantLight feDropShadow feFlood feFuncA feFuncB feFuncG
    feFuncR feGaussianBlur feMerge feMergeNode feMorphology feOffset fePointLight
    feSpecularLighting feSpotLight feTile feTurbulence""".split()
)
_DATA_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*\Z")
_UNSAFE_STYLE = re.compile(
    r"@import|expression|behaviou?r|-moz-binding|javascript:|url\((?!\s*['\"]?#)|\\|<!", re.I
)
_LENGTH = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(px|pt|pc|mm|cm|in)?\s*\Z", re.I)
_PIXELS = {
    "": 1.0,
    "px": 1.0,
    "pt": 4 / 3,
    "pc": 16.0,
    "mm": 96 / 25.4,
    "cm": 96 / 2.54,
    "in": 96.0,
}


def looks_like_svg(data: bytes) -> bool:
    """True for data that begins like XML and has an svg element near the start."""
    start = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return (
        start.startswith((b"<svg", b"<?xml", b"<!doctype svg", b"<!--"))
        and b"<svg" in data[:65536].lower()
    )


def sanitise(data: bytes) -> tuple[bytes, int, int]:
    """(safe SVG, width, height in pixels). Raises ValueError with the reason."""
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise ValueError(str(error)[:120]) from None
    if root.tag not in (f"{{{SVG}}}svg", "svg"):
        raise ValueError(f"its root is {str(root.tag)[:60]}")
    clean = etree.Element(
        f"{{{SVG}}}svg", nsmap={None: SVG, "xlink": "http://www.w3.org/1999/xlink"}
    )
    _copy_safe(root, clean, etree)
    width, height = _read_size(clean)
    return etree.tostring(clean, encoding="utf-8", xml_declaration=True), width, height


def _copy_safe(source: Any, target: Any, etree: Any) -> None:
    """Copy the elements and attributes known to be safe; libxml2 limits the depth to 256."""
    for name, value in source.attrib.items():
        if (kept := _safe_value(source, str(name), value)) is not None:
            target.set(name, kept)
    target.text = source.text
    last: Any = None
    for child in source:
        tail = child.tail or ""
        local = child.tag.removeprefix(f"{{{SVG}}}") if isinstance(child.tag, str) else ""
        if local in _ELEMENTS and not (
            local == "style" and _UNSAFE_STYLE.search("".join(child.itertext()))
        ):
            last = etree.SubElement(target, f"{{{SVG}}}{local}")
            _copy_safe(child, last, etree)
            last.tail = tail
        elif last is not None:
            last.tail = (last.tail or "") + tail
        else:
            target.text = (target.text or "") + tail


def _safe_value(element: Any, name: str, value: str) -> str | None:
    """The value of a safe attribute; None for an attribute to be removed."""
    if name in ("href", _XLINK_HREF):
        embedded = str(element.tag).endswith("image") and _DATA_IMAGE.match(value.strip())
        return value if value.strip().startswith("#") or embedded else None
    if name != _SPACE and name.startswith("{"):
        return None
    if name.lower().startswith("on") or _UNSAFE_STYLE.search(value):
        return None
    return value


def _read_size(root: Any) -> tuple[int, int]:
    """Width and height from its attributes, else from its viewBox, else the 300 x 150 of CSS."""
    numbers = re.findall(r"[-+]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?", root.get("viewBox", ""))
    box = list(map(float, numbers[:4]))
    fallback = (box[2], box[3]) if len(box) == 4 and box[2] > 0 and box[3] > 0 else (300.0, 150.0)
    sizes = []
    for name, other in zip(("width", "height"), fallback, strict=True):
        found = _LENGTH.match(root.get(name, ""))
        value = float(found.group(1)) * _PIXELS[(found.group(2) or "").lower()] if found else other
        sizes.append(max(1, min(100_000, round(value))))
    return sizes[0], sizes[1]
