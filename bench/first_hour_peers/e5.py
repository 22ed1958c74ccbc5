"""E5 of our package, on every core, for the programs that `bench/first_hour.py` compares with."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rag_platform.providers.e5.e5_onnx import E5Onnx

MODEL = E5Onnx(cache_folder=os.environ["E5_CACHE"], threads=os.cpu_count() or 1)


def embed(texts: Sequence[str], *, query: bool = False) -> list[list[float]]:
    """A vector for each text."""
    rows: list[list[float]] = MODEL.embed(texts, query=query).tolist()
    return rows
