"""PageFacts to JSON data and back, for the pipe between a parsing child process and its parent."""

from __future__ import annotations

import dataclasses
from typing import Any

from rag_platform.ir import HiddenText
from rag_platform.loaders.pdf.assembly import PdfInfo
from rag_platform.loaders.pdf.images import PageImage
from rag_platform.loaders.pdf.pages import PageBlock, PageFacts


def page_to_json(page: PageFacts) -> dict[str, Any]:
    """The page as JSON data."""
    return dataclasses.asdict(page)


def page_from_json(data: dict[str, Any]) -> PageFacts:
    """The inverse of `page_to_json`. Raises KeyError, TypeError or ValueError."""
    return PageFacts(
        page=int(data["page"]),
        blocks=tuple(_block(item) for item in data["blocks"]),
        images=tuple(
            PageImage(int(image["xref"]), _box(image["bbox"])) for image in data["images"]
        ),
        engine=str(data["engine"]),
        warnings=tuple(str(warning) for warning in data["warnings"]),
        hidden=tuple(
            HiddenText(int(item["page"]), str(item["reason"]), str(item["text"]))
            for item in data["hidden"]
        ),
    )


def info_from_json(data: dict[str, Any]) -> PdfInfo:
    """The PdfInfo in `data`. Raises KeyError, TypeError or ValueError."""
    return PdfInfo(
        pages=int(data["pages"]),
        metadata={str(key): str(value) for key, value in data["metadata"].items()},
        outline=tuple(
            (int(level), str(title), int(page)) for level, title, page in data["outline"]
        ),
        attached=tuple(str(name) for name in data["attached"]),
    )


def _block(data: dict[str, Any]) -> PageBlock:
    return PageBlock(
        kind=str(data["kind"]),
        text=str(data["text"]),
        bbox=_box(data["bbox"]),
        size=float(data["size"]),
        bold=bool(data["bold"]),
        lines=int(data["lines"]),
        title=bool(data["title"]),
    )


def _box(values: Any) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = (float(value) for value in values)
    return x0, y0, x1, y1
