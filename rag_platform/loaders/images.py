"""Image files: documents without text and with one image, found by its OCR text or caption."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import ClassVar

from rag_platform.errors import DocumentError
from rag_platform.ir import Facts, MediaRef
from rag_platform.loaders.archives import reject_damaged
from rag_platform.loaders.decoding import Decoded
from rag_platform.loaders.parts import Engine, make_facts
from rag_platform.traits import Traits

_KINDS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")
_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*")


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
        bitmap = head[:2] == b"BM" and b"\x00" in head[:14] and len(head) > 14
        return head.startswith(_MAGIC) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP") or bitmap

    def load(self, path: Path, filename: str) -> Facts:
        """Facts without text, with the image `file:`. Raises `broken_file`, `too_large`."""
        from PIL import Image

        with (
            reject_damaged(f"{filename} cannot be read as an image", "save it again"),
            # about odd metadata; the size is checked when the image is decoded
            warnings.catch_warnings(action="ignore"),
        ):
            try:
                with Image.open(path, formats=_KINDS) as opened:
                    frames = int(getattr(opened, "n_frames", 1)) if opened.format == "TIFF" else 1
            except Image.DecompressionBombError as error:
                raise DocumentError(
                    f"{filename} has more pixels than any image is decoded with; make it smaller",
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
