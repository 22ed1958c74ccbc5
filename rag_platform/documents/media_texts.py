"""The texts of images in the views of chunks: what OCR read and what captions say, each bound to its asset_id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rag_platform.ir import Chunk, MediaText
from rag_platform.traits import Traits


@dataclass(frozen=True)
class NoOcr:
    """Reads nothing."""

    NAME: ClassVar[str] = "none"
    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits()

    def read(self, image: bytes) -> tuple[str, float | None]:
        """No text."""
        return "", None


def terms_of(chunk: Chunk, texts: Mapping[str, MediaText]) -> str:
    """The texts of the chunk's images, captions first; empty when none of them has one.

    Each stands behind a marker that names its image (seed 000 §3.6.4), `[image_caption asset_id=...]` or `[image_ocr asset_id=...]`.
    The OCR text of a chunk that is nothing but a picture has no marker: it is the text of the page.
    """
    found = [texts[asset_id] for asset_id in chunk.asset_ids if asset_id in texts]
    captions = [f"[image_caption asset_id={text.asset_id}] {text.caption}" for text in found if text.caption]
    if chunk.chunk_text:
        read = [f"[image_ocr asset_id={text.asset_id}] {text.ocr_text}" for text in found if text.ocr_text]
    else:
        read = [text.ocr_text for text in found if text.ocr_text]
    return "\n".join([*captions, *read] if chunk.chunk_text else [*read, *captions])
