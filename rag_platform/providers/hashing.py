"""Feature hashing: deterministic vectors without a model, for tests and trials."""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rag_platform.errors import ProviderError
from rag_platform.ir import EmbedderInfo
from rag_platform.protocols import Vectors
from rag_platform.traits import Traits

_WINDOW = 1_000_000  # tokens: no limit


@dataclass(frozen=True)
class Hashing:
    """Signed feature hashing of words and character trigrams (Weinberger et al. 2009,
    arXiv:0902.2206); no sense of meaning.
    """

    dim: int = 256

    NAME: ClassVar[str] = "hashing"
    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(
        bytes_per_second=400_000.0, load_seconds=0.0, window=_WINDOW, quick=True
    )

    def __post_init__(self) -> None:
        if self.dim < 8:
            raise ValueError(f"dim must be at least 8, not {self.dim}")

    def info(self) -> EmbedderInfo:
        """The fingerprint, with the dimension in the id: each dimension is a space of its own."""
        return EmbedderInfo(f"{self.NAME}-{self.dim}", self.VERSION, self.dim, max_tokens=_WINDOW)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """float32 [len(texts), dim] of unit rows. Raises ProviderError `blank_text`."""
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in enumerate(texts):
            for feature in _features(text):
                code = zlib.crc32(feature.encode("utf-8", "replace"))
                vectors[row, code % self.dim] += 1.0 if code & 0x8000_0000 else -1.0
            norm = float(np.linalg.norm(vectors[row]))
            if norm == 0.0:
                raise ProviderError(
                    f"text {row} of {len(texts)} holds nothing to embed",
                    code="blank_text",
                    position=row,
                )
            vectors[row] /= norm
        return vectors


def _features(text: str) -> Iterator[str]:
    for word in unicodedata.normalize("NFKC", text.replace("\0", " ")).lower().split():
        yield word
        padded = f"<{word}>"
        for start in range(len(padded) - 2):
            yield padded[start : start + 3]
