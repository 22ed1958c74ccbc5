"""Decodes and reads images in child processes, so that a decoder that crashes, hangs or needs too
much memory affects only one image.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rag_platform.config.settings import Limits
from rag_platform.errors import DocumentError, ProviderError
from rag_platform.intake.isolation import pool
from rag_platform.loaders.image_decoding import DecodedImage, Missing, looks_like_svg
from rag_platform.processes.sandbox import START_SECONDS, ChildLost

OCR_MEMORY_MB = 4000  # address space; an engine with its models takes 0.7 GB of real memory
# images are read one at a time, on all cores: two engines in parallel would need twice the memory
_reading = threading.Lock()


def decode_in_child(
    data: bytes, max_pixels: int, limits: Limits, folder: Path, *, redraw: bool = False
) -> DecodedImage:
    """Run `image_decoding.decode_image` in a child; `folder` holds the exchanged files. Raises
    Missing.
    """
    (folder / "source").write_bytes(data)
    task = {
        "task": "picture",
        "path": str(folder / "source"),
        "folder": str(folder),
        "max_pixels": max_pixels,
        "redraw": redraw,
    }
    try:
        engine = "pymupdf" if looks_like_svg(data) else "other"
        found = _ask(task, engine, limits.page_seconds, limits.parse_memory_mb)["picture"]
    except ChildLost as error:
        raise Missing(
            "broken_image: its decoder took too long"
            if error.hung
            else "broken_image: its decoder failed"
        ) from None
    except DocumentError as error:
        raise Missing(f"broken_image: {error.code}") from None
    if "reason" in found:
        raise Missing(str(found["reason"]))
    variants = {name: (folder / name).read_bytes() for name in found["variants"]}
    original = (folder / "original").read_bytes() if found["original"] else None
    return DecodedImage(**{**found, "variants": variants, "original": original})


def ocr_in_child(
    path: Path, provider: str, options: Mapping[str, Any], seconds: float
) -> tuple[str, float | None]:
    """Run `read` of the named OCR provider in a child: (text, confidence). Raises ProviderError."""
    task = {
        "task": "ocr",
        "path": str(path.absolute()),
        "provider": provider,
        "options": dict(options),
    }
    try:
        with _reading:
            found = _ask(task, "ocr", seconds, OCR_MEMORY_MB)["read"]
    except ChildLost as error:
        if error.hung:
            raise ProviderError(
                f"{provider} did not read the image within {seconds:g} seconds; raise"
                " media_texts.ocr_seconds",
                code="timeout",
            ) from None
        raise ProviderError(f"{provider} failed: {error}", code="ocr_failed") from None
    except DocumentError as error:
        raise ProviderError(error.message, code=error.code) from None
    return str(found["text"]), found["confidence"]


def _ask(task: dict[str, Any], engine: str, seconds: float, memory_mb: int) -> dict[str, Any]:
    """The fields of all messages of a child. Raises ChildLost, DocumentError."""
    task = {**task, "seconds": seconds, "memory_mb": memory_mb}
    found: dict[str, Any] = {}
    with pool().child(engine) as child:
        deadline = time.monotonic() + seconds + (0.0 if child.ready else START_SECONDS)
        for message in child.ask(task, lambda: max(0.01, deadline - time.monotonic())):
            if error := message.get("error"):
                raise DocumentError(
                    str(error["message"]) or "it needs more memory than it may have",
                    code=str(error["code"]),
                )
            found |= message
    return found
