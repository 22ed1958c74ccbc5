"""Raster images of a PDF: where they stand on a page, and their encoded bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rag_platform.errors import DocumentError
from rag_platform.ir import Box
from rag_platform.loaders.pdf_text import rounded_out


@dataclass(frozen=True, slots=True)
class PageImage:
    """A raster image placed on a page; `xref` 0 marks an inline image."""

    xref: int
    bbox: Box


def images_of(page: Any) -> list[PageImage]:
    """The raster images placed on a page, larger than 3 points and 3 pixels each way, in content order; equal placements once."""
    found: dict[tuple[int, Box], PageImage] = {}
    for item in page.get_image_info(xrefs=True):
        bbox = rounded_out(item["bbox"])
        if min(bbox[2] - bbox[0], bbox[3] - bbox[1]) > 3 and min(item["width"], item["height"]) > 3:
            found.setdefault((item["xref"], bbox), PageImage(item["xref"], bbox))
    return list(found.values())


def target_of(image: PageImage, page: int, position: int) -> str:
    """`pdf:xref=N`, or `pdf:inline=PAGE.K` for the K-th image of a page that has no object of its own."""
    return f"pdf:xref={image.xref}" if image.xref else f"pdf:inline={page}.{position}"


def read_image(document: Any, target: str) -> bytes:
    """The encoded bytes behind a target of `target_of`. Raises DocumentError `inline_image_not_found` or `broken_image`."""
    import pymupdf

    kind, _, value = target.removeprefix("pdf:").partition("=")
    if kind == "xref":
        found = document.extract_image(int(value))
        if not found:
            raise DocumentError(f"object {value} of the PDF holds no image", code="broken_image")
        return bytes(found["image"])
    number, position = (int(part) for part in value.split("."))
    page = document[number - 1]
    page.remove_rotation()
    wanted = images_of(page)[position]
    for block in page.get_text("dict", flags=pymupdf.TEXT_PRESERVE_IMAGES | pymupdf.TEXT_MEDIABOX_CLIP)["blocks"]:
        if block["type"] == 1 and max(abs(a - b) for a, b in zip(block["bbox"], wanted.bbox, strict=True)) < 1:
            return bytes(block["image"])
    raise DocumentError(f"page {number} shows no image at {wanted.bbox}", code="inline_image_not_found")
