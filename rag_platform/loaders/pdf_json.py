"""PageFacts as plain JSON data and back, for the pipe between a parsing child and its parent."""

from __future__ import annotations

import dataclasses
from typing import Any

from rag_platform.loaders.pdf import PageBlock, PageFacts
from rag_platform.loaders.pdf_images import PageImage


def page_to_json(page: PageFacts) -> dict[str, Any]:
    """The page as lists, numbers and texts."""
    return dataclasses.asdict(page)


def page_from_json(data: dict[str, Any]) -> PageFacts:
    """The page that `page_to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    return PageFacts(
        page=int(data["page"]),
        blocks=tuple(PageBlock(str(b["kind"]), str(b["text"]), _box(b["bbox"]), int(b["size"]), int(b["level"])) for b in data["blocks"]),
        images=tuple(PageImage(int(image["xref"]), _box(image["bbox"])) for image in data["images"]),
        engine=str(data["engine"]),
        warnings=tuple(str(warning) for warning in data["warnings"]),
    )


def _box(values: Any) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = (float(value) for value in values)
    return x0, y0, x1, y1
