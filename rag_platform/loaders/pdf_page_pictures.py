"""Whole pages of a PDF as pictures, for pages whose text is no text but an image."""

from __future__ import annotations

import io
from typing import Any

from rag_platform.errors import DocumentError

PREFIX = "pdf:page="
_PNG_BYTES = 0.3  # a pixel: what takes more is a photograph, a fifth as large as JPEG


def asked_page(target: str) -> tuple[int, int, int]:
    """(page, dpi, most pixels) of a target `pdf:page=N;dpi=150;pixels=4000000`."""
    number, dpi, pixels = (int(part.rpartition("=")[2]) for part in target.split(";"))
    return number, dpi, pixels


def zoom_of(width: float, height: float, dpi: int, pixels: int) -> float:
    """Pixels a point at which a page of width x height points is drawn with at most so many pixels."""
    return float(min(dpi / 72, (pixels / max(1.0, width * height)) ** 0.5))


def drawn_by_mupdf(document: Any, target: str) -> bytes:
    """The page as it is shown, as PNG, or as JPEG where that is large; equal bytes for equal versions of MuPDF.

    Raises DocumentError `blank_page` for a page of one colour.
    """
    import numpy as np
    import pymupdf

    number, dpi, pixels = asked_page(target)
    page = document[number - 1]
    zoom = zoom_of(page.rect.width, page.rect.height, dpi, pixels)
    drawn = page.get_pixmap(matrix=pymupdf.Matrix(zoom, zoom), alpha=False)
    colours = np.frombuffer(drawn.samples_mv, dtype=np.uint8).reshape(drawn.height, drawn.width, drawn.n)
    return encoded(colours, number)


def encoded(colours: Any, number: int) -> bytes:
    """The picture of page `number` as a file; `colours` is uint8 [height, width, channels]. Raises DocumentError `blank_page`."""
    from PIL import Image

    if (colours == colours[0, 0]).all():
        raise DocumentError(f"page {number} shows nothing", code="blank_page")
    grey = colours.shape[2] < 3 or bool((colours[..., 0] == colours[..., 1]).all() and (colours[..., 1] == colours[..., 2]).all())
    picture = Image.fromarray(colours[..., 0]) if grey else Image.fromarray(colours)
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    if stream.tell() > _PNG_BYTES * picture.width * picture.height:
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=85)
    return stream.getvalue()
