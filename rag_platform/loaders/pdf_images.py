"""Raster images of a PDF: where they stand on a page, and their encoded bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rag_platform.errors import DocumentError
from rag_platform.ir import Box
from rag_platform.loaders import pdf_page_pictures, pdf_text
from rag_platform.loaders.damage import Reading, damage

PLACED = -1


@dataclass(frozen=True, slots=True)
class PageImage:
    """A raster image placed on a page; `xref` 0 marks one without an object of its own, PLACED one known by its place alone."""

    xref: int
    bbox: Box


def images_of(page: Any) -> list[PageImage]:
    """The raster images placed on a page, larger than 3 points and 3 pixels each way, in content order; equal placements once.

    An image whose size in pixels no other image of the page has is known by it; only the others are decoded and compared.
    """
    pymupdf = pdf_text.engine()
    shown = page.get_textpage(
        flags=pymupdf.TEXT_PRESERVE_IMAGES | pymupdf.TEXT_MEDIABOX_CLIP, clip=pymupdf.INFINITE_RECT()
    ).extractIMGINFO()
    placed = [item for item in shown if _is_large(item)]
    if not placed:
        return []
    objects = {item[0]: (item[2], item[3]) for item in page.get_images()}  # inline images and those of a soft mask are not among them
    alike = Counter(objects.values())
    by_size = {size: xref for xref, size in objects.items() if alike[size] == 1}
    if any(alike[item["width"], item["height"]] > 1 for item in placed):
        placed = [item for item in page.get_image_info(xrefs=True) if _is_large(item)]
    found: dict[tuple[int, Box], PageImage] = {}
    for item in placed:
        xref = by_size.get((item["width"], item["height"]), item.get("xref", 0))
        bbox = pdf_text.rounded_out(item["bbox"])
        found.setdefault((xref, bbox), PageImage(xref, bbox))
    return list(found.values())


def _is_large(item: dict[str, Any]) -> bool:
    x0, y0, x1, y1 = item["bbox"]
    return bool(min(x1 - x0, y1 - y0) > 3 and min(item["width"], item["height"]) > 3)


def target_of(image: PageImage, page: int, position: int) -> str:
    """`pdf:xref=N`, or `pdf:inline=PAGE.K` for the K-th image of a page that has no object of its own; PDFium's are `pdf:placed=PAGE.K`."""
    if image.xref == PLACED:
        return f"pdf:placed={page}.{position}"
    return f"pdf:xref={image.xref}" if image.xref else f"pdf:inline={page}.{position}"


def read_images(path: Path, targets: Sequence[str]) -> Iterator[tuple[str, bytes | str]]:
    """(target, its encoded bytes or the reason why there are none), in order; a broken image does not stop the others."""
    with pdf_text.opened(path) as document:
        yield from read_each(targets, partial(read_image, document))


def read_each(targets: Sequence[str], read: Callable[[str], bytes]) -> Iterator[tuple[str, bytes | str]]:
    """(target, what `read` makes of it or the reason why it fails), in order."""
    for target in targets:
        with Reading("stage.asset_normalize") as reading:
            found: bytes | str = read(target)
        if (error := reading.error) is not None:
            found = error.code if isinstance(error, DocumentError) else f"broken_image: {damage(error)}"
        yield target, found


def read_image(document: Any, target: str) -> bytes:
    """The encoded bytes behind a target of `target_of`, or of a whole page; DocumentError `inline_image_not_found`, `broken_image`."""
    pymupdf = pdf_text.engine()
    if target.startswith(pdf_page_pictures.PREFIX):
        return pdf_page_pictures.drawn_by_mupdf(document, target)
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
