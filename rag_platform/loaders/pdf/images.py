"""Raster images of a PDF: their places on a page and encoded bytes; and whole pages rendered as
images, for pages without readable text.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rag_platform.errors import DocumentError
from rag_platform.ir import Box
from rag_platform.loaders.archives import Reading, describe_damage
from rag_platform.loaders.pdf.opening import load_pymupdf, open_page, open_pdf, unrotate
from rag_platform.loaders.pdf.printed.runs import round_out
from rag_platform.loaders.pdf.printed.textpages import open_textpage

PLACED = -1  # xref of an image that is identified by its place on the page


@dataclass(frozen=True, slots=True)
class PageImage:
    """A raster image on a page; `xref` is 0 for an inline image, PLACED for PDFium."""

    xref: int
    bbox: Box


def find_images(page: Any) -> list[PageImage]:
    """The distinct raster images of a page, over 3 points and 3 pixels each way, in content order.

    An image whose size in pixels is unique on the page is identified by that size; images are
    decoded and compared only if sizes are shared.
    """
    pymupdf = load_pymupdf()
    flags = pymupdf.TEXT_PRESERVE_IMAGES | pymupdf.TEXT_MEDIABOX_CLIP
    placed = [item for item in open_textpage(page, flags).extractIMGINFO() if _is_large(item)]
    if not placed:
        return []
    # without inline images and soft masks
    objects = {item[0]: (item[2], item[3]) for item in page.get_images()}
    sizes = Counter(objects.values())
    by_size = {size: xref for xref, size in objects.items() if sizes[size] == 1}
    if any(sizes[item["width"], item["height"]] > 1 for item in placed):
        placed = [item for item in page.get_image_info(xrefs=True) if _is_large(item)]
    found: dict[tuple[int, Box], PageImage] = {}
    for item in placed:
        xref = by_size.get((item["width"], item["height"]), item.get("xref", 0))
        bbox = round_out(item["bbox"])
        found.setdefault((xref, bbox), PageImage(xref, bbox))
    return list(found.values())


def _is_large(item: dict[str, Any]) -> bool:
    x0, y0, x1, y1 = item["bbox"]
    return bool(min(x1 - x0, y1 - y0) > 3 and min(item["width"], item["height"]) > 3)


def target_of(image: PageImage, page: int, position: int) -> str:
    """`pdf:xref=N`, `pdf:inline=PAGE.K` for an inline image, `pdf:placed=PAGE.K` for PDFium."""
    if image.xref == PLACED:
        return f"pdf:placed={page}.{position}"
    return f"pdf:xref={image.xref}" if image.xref else f"pdf:inline={page}.{position}"


def read_images(path: Path, targets: Sequence[str]) -> Iterator[tuple[str, bytes | str]]:
    """(target, its bytes or the reason why there are none), in order."""
    with open_pdf(path) as document:
        yield from read_each(targets, partial(read_image, document))


def read_each(
    targets: Sequence[str], read: Callable[[str], bytes]
) -> Iterator[tuple[str, bytes | str]]:
    """(target, its bytes from `read` or the reason why that failed), in order."""
    for target in targets:
        with Reading("stage.asset_normalize") as reading:
            found: bytes | str = read(target)
        if (error := reading.error) is not None:
            found = (
                error.code
                if isinstance(error, DocumentError)
                else f"broken_image: {describe_damage(error)}"
            )
        yield target, found


def read_image(document: Any, target: str) -> bytes:
    """The bytes of an image or rendered page. Raises `inline_image_not_found`, `broken_image`."""
    pymupdf = load_pymupdf()
    if target.startswith(PAGE_PREFIX):
        return draw_page(document, target)
    kind, _, value = target.removeprefix("pdf:").partition("=")
    if kind == "xref":
        found = document.extract_image(int(value))
        if not found:
            raise DocumentError(f"object {value} of the PDF holds no image", code="broken_image")
        return bytes(found["image"])
    number, position = (int(part) for part in value.split("."))
    page = open_page(document, number - 1)
    unrotate(page)
    wanted = find_images(page)[position]
    for block in page.get_text(
        "dict", flags=pymupdf.TEXT_PRESERVE_IMAGES | pymupdf.TEXT_MEDIABOX_CLIP
    )["blocks"]:
        if (
            block["type"] == 1
            and max(abs(a - b) for a, b in zip(block["bbox"], wanted.bbox, strict=True)) < 1
        ):
            return bytes(block["image"])
    raise DocumentError(
        f"page {number} shows no image at {wanted.bbox}", code="inline_image_not_found"
    )


PAGE_PREFIX = "pdf:page="
_PNG_BYTES = 0.3  # per pixel; a larger PNG is a photograph, a fifth as large as JPEG


def parse_page_target(target: str) -> tuple[int, int, int]:
    """(page, dpi, maximum of pixels) of a target `pdf:page=N;dpi=150;pixels=4000000`."""
    number, dpi, pixels = (int(part.rpartition("=")[2]) for part in target.split(";"))
    return number, dpi, pixels


def zoom_of(width: float, height: float, dpi: int, pixels: int) -> float:
    """Pixels per point at `dpi`, less if a page would have more than `pixels` pixels."""
    return float(min(dpi / 72, (pixels / max(1.0, width * height)) ** 0.5))


def draw_page(document: Any, target: str) -> bytes:
    """The rendered page as PNG, or as JPEG if the PNG is large. Raises `blank_page`."""
    import numpy as np
    import pymupdf

    number, dpi, pixels = parse_page_target(target)
    page = open_page(document, number - 1)
    zoom = zoom_of(page.rect.width, page.rect.height, dpi, pixels)
    drawn = page.get_pixmap(matrix=pymupdf.Matrix(zoom, zoom), alpha=False)
    colours = np.frombuffer(drawn.samples_mv, dtype=np.uint8).reshape(
        drawn.height, drawn.width, drawn.n
    )
    return encode_page(colours, number)


def encode_page(colours: Any, number: int) -> bytes:
    """The image of page `number` from uint8 [height, width, channels]. Raises `blank_page`."""
    from PIL import Image

    if (colours == colours[0, 0]).all():
        raise DocumentError(f"page {number} shows nothing", code="blank_page")
    grey = colours.shape[2] < 3 or bool(
        (colours[..., 0] == colours[..., 1]).all() and (colours[..., 1] == colours[..., 2]).all()
    )
    image = Image.fromarray(colours[..., 0]) if grey else Image.fromarray(colours)
    stream = io.BytesIO()
    image.save(stream, "PNG")
    if stream.tell() > _PNG_BYTES * image.width * image.height:
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=85)
    return stream.getvalue()
