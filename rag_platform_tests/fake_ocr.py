"""OCR without a model: answers by the size of the image, so that a test says with its picture what
is read.
"""

from __future__ import annotations

import io
import os
import time
from dataclasses import dataclass
from typing import ClassVar

from rag_platform.errors import ProviderError


@dataclass(frozen=True)
class SizeOcr:
    """Reads `width x height`; a width of 666 fails, of 667 hangs, of 668 ends the process."""

    prefix: str = "size"

    NAME: ClassVar[str] = "size"
    VERSION: ClassVar[str] = "1"

    def read(self, image: bytes) -> tuple[str, float | None]:
        """The size in pixels."""
        from PIL import Image

        with Image.open(io.BytesIO(image)) as opened:
            width, height = opened.size
        if width == 666:
            raise ProviderError("cannot read 666", code="ocr_failed")
        if width == 667:
            time.sleep(60)
        if width == 668:
            os._exit(9)
        return f"{self.prefix} {width} x {height}\nsecond line", 0.5
