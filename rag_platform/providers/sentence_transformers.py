"""Embedding models in the format of sentence-transformers, from a folder on this machine; torch, so
an extra (`models`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rag_platform.config.settings import fingerprint
from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import EmbedderInfo
from rag_platform.processes.limits import check_awaited
from rag_platform.protocols import Vectors
from rag_platform.providers.model_texts import clean_texts
from rag_platform.registry import require_at_least, require_packages
from rag_platform.text.wording import pluralise
from rag_platform.traits import Traits

_NO_LIMIT = 1_000_000  # tokens; tokenizers write 1e30
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# the last pattern is for small modules after the transformer
_MODEL_FILES = ["*.json", "*.txt", "*.model", "*.safetensors", "*/pytorch_model.bin"]
_OTHER_BACKENDS = ["onnx/*", "openvino/*"]
# names of the prompts for queries and for passages, in the order of the package
_PROMPT_NAMES = (("query",), ("document", "passage", "corpus"))

_lock = threading.Lock()  # for one computation at a time; truncation is a state of the tokenizer
# version and model by folder, device and window
_models: dict[tuple[Path, str, int], tuple[str, Any]] = {}


@dataclass(frozen=True)
class SentenceTransformers:
    """A sentence-transformers model: the absolute path of a folder, or a hub name whose files are
    in the local Hugging Face cache.

    Nothing is downloaded unless `allow_download` is set, and then only data: code that comes with a
    model is never run, and the weights are read from safetensors. The default prefixes are the
    model's own prompts, which few models have: E5 models need `query_prefix: "query: "` and
    `passage_prefix: "passage: "`. `dim` truncates the vectors of a Matryoshka model, `max_tokens`
    the model's window, beyond which text is ignored; 0 is the model's own value.

    `device: cuda` computes on a GPU, with the same vectors to six digits, in one process, which is
    restarted when a text makes the GPU fail.
    """

    model: str = ""
    revision: str | None = None
    query_prefix: str | None = None
    passage_prefix: str | None = None
    dim: int = 0
    max_tokens: int = 0
    batch_size: int = 32
    device: str = "cpu"
    threads: int = 1  # of torch, for the whole process; ingestion on `cpu` has a process per core
    max_chars: int = 32_000  # of a text, which limits the cost of a broken chunk
    allow_download: bool = False

    NAME: ClassVar[str] = "sentence_transformers"
    VERSION: ClassVar[str] = "1"  # each instance's fingerprint covers the files of its model
    traits: ClassVar[Traits] = Traits(
        bytes_per_second=12_000.0,  # all-MiniLM-L6-v2 on one core, until the model is measured
        load_seconds=7.0,
        large=True,
    )

    def __post_init__(self) -> None:
        require_packages("torch", "sentence_transformers")
        if not self.model:
            raise ValueError(
                "`model` must name a folder or a hub model, such as intfloat/multilingual-e5-small"
            )
        require_at_least(self, dim=0, max_tokens=0, batch_size=1, threads=1, max_chars=1)

    def info(self) -> EmbedderInfo:
        """The fingerprint, read from the model's files without torch; its version changes with
        every byte of them and with the prefixes.

        Hashing runs at 0.7 GB a second, once per process. Raises ConfigError `model_not_found` or
        `model_unusable` with the remedy.
        """
        folder = self._folder()
        dim, window = _dimension(folder, self.model), _window(folder)
        dim = min(self.dim, dim) if self.dim and dim else self.dim or dim
        window = min(self.max_tokens, window) if self.max_tokens else window
        if not dim:
            raise ConfigError(
                f"the files of {self.model!r} do not tell its dimension; set the option `dim`",
                code="model_unusable",
            )
        name = self.model if is_hub_name(self.model) else folder.name
        options = fingerprint([*self._prefixes(folder), dim, window, self.max_chars], length=8)
        version = f"{_digest(folder)[:12]}+{options}"
        return EmbedderInfo(f"{self.NAME}:{name}", version, dim, window)

    def load(self) -> None:
        """Load the model, which otherwise the first call of `embed` does."""
        with _lock:
            self._load_model(self._folder(), self.info())

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """float32 unit rows [n, dim]. Raises ProviderError `blank_text`, `no_vector`,
        `model_failed`, and `device_lost` if this process can no longer use the GPU; CancelledError
        as `check_awaited`.
        """
        cleaned = clean_texts(texts, self.max_chars)
        info, folder = self.info(), self._folder()
        if not cleaned:
            return np.zeros((0, info.dim), dtype=np.float32)
        with _lock:
            check_awaited("embedding")
            model = self._load_model(folder, info)
            encode = model.encode_query if query else model.encode_document
            try:
                raw = encode(
                    cleaned,
                    prompt=self._prefixes(folder)[0 if query else 1],
                    batch_size=self.batch_size,
                    show_progress_bar=False,
                    truncate_dim=self.dim or None,
                )
            # from torch: out of memory, a token without an embedding
            except (RuntimeError, ValueError, IndexError) as error:
                if type(error).__name__ == "AcceleratorError":  # torch is not imported here
                    raise ProviderError(
                        f"{self.model!r} lost {self.device!r} on {pluralise(len(cleaned), 'text')},"
                        f" until its process is started again: {error}",
                        code="device_lost",
                    ) from error
                raise ProviderError(
                    f"{self.model!r} failed on {pluralise(len(cleaned), 'text')}: {error}",
                    code="model_failed",
                ) from error
        return _unit_rows(np.asarray(raw, dtype=np.float32), info.dim, self.model)

    def _folder(self) -> Path:
        folder = Path(self.model).expanduser()
        if not folder.is_dir():
            if not is_hub_name(self.model):
                raise ConfigError(
                    f"there is no model folder {self.model!r}; give the absolute path of a folder"
                    " that holds modules.json, or the name of a hub model, such as"
                    " intfloat/multilingual-e5-small",
                    code="model_not_found",
                )
            folder = _snapshot(self.model, self.revision, self.allow_download)
        if problem := _find_problem(folder):
            raise ConfigError(
                f"the model {self.model!r} {problem}; save it with"
                " `SentenceTransformer(...).save(folder)` and name that folder",
                code="model_unusable",
            )
        return folder.resolve()

    def _prefixes(self, folder: Path) -> tuple[str, str]:
        """(query prefix, passage prefix) as configured, else the model's own."""
        prompts = _json(folder / "config_sentence_transformers.json").get("prompts") or {}
        query, passage = (
            next((str(prompts[name]) for name in names if prompts.get(name)), "")
            for names in _PROMPT_NAMES
        )
        return query if self.query_prefix is None else self.query_prefix, (
            passage if self.passage_prefix is None else self.passage_prefix
        )

    def _load_model(self, folder: Path, info: EmbedderInfo) -> Any:
        key = (folder, self.device, info.max_tokens)
        loaded = _models.get(key)
        # the version differs if the files were replaced while the process runs
        if loaded is None or loaded[0] != info.version:
            import torch
            from sentence_transformers import SentenceTransformer

            torch.set_num_threads(self.threads)
            try:
                with _no_progress_bars():
                    model = SentenceTransformer(
                        str(folder),
                        device=self.device,
                        trust_remote_code=False,
                        local_files_only=True,
                        model_kwargs={"use_safetensors": True, "dtype": "float32"},
                    )
            except Exception as error:  # broken files raise anything
                raise ConfigError(
                    f"the model {self.model!r} cannot be loaded on {self.device!r}:"
                    f" {type(error).__name__}: {error}; get its files again, or name another"
                    " `device`",
                    code="model_unusable",
                ) from error
            if self.max_tokens:
                model.max_seq_length = info.max_tokens
            loaded = _models[key] = (info.version, model)
        return loaded[1]


def is_hub_name(model: str) -> bool:
    """True for `owner/name`, unless that is a folder here."""
    return _HUB_NAME.fullmatch(model) is not None and not Path(model).is_dir()


def _unit_rows(raw: Vectors, dim: int, model: str) -> Vectors:
    if raw.shape[1] != dim:
        raise ConfigError(
            f"{model!r} gives {raw.shape[1]} numbers, its files say {dim}; set the option `dim`",
            code="model_unusable",
        )
    norms = np.linalg.norm(raw, axis=1, keepdims=True)
    for position in np.flatnonzero(~(np.isfinite(norms[:, 0]) & (norms[:, 0] > 0))):
        raise ProviderError(
            f"{model!r} gives text {position} of {len(raw)} a vector of length"
            f" {norms[position, 0]}; it knows none of its words",
            code="no_vector",
            position=int(position),
        )
    vectors: Vectors = raw / norms
    return vectors


# --- the files of a model -----------------------------------------------------------------------


@functools.cache
def _snapshot(name: str, revision: str | None, allow_download: bool) -> Path:
    """The folder of a hub model in the local cache, downloaded if that is allowed. Raises
    ConfigError `model_not_found`.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    with suppress(LocalEntryNotFoundError):
        found = Path(
            snapshot_download(
                name, revision=revision, local_files_only=True, allow_patterns=["modules.json"]
            )
        )
        if not _find_problem(found):
            return found
    if not allow_download:
        at = f"{name} --revision {revision}" if revision else name
        raise ConfigError(
            f"the model {name!r} is neither a folder nor complete in the local Hugging Face cache;"
            f" fetch it once with `hf download {at}`, or set allow_download: true",
            code="model_not_found",
        )
    try:
        return Path(
            snapshot_download(
                name,
                revision=revision,
                allow_patterns=_MODEL_FILES,
                ignore_patterns=_OTHER_BACKENDS,
            )
        )
    except Exception as error:  # of any network library
        raise ConfigError(
            f"the model {name!r} cannot be fetched: {error}; fetch it where there is a network and"
            " name its folder",
            code="model_not_found",
        ) from error


def _json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no file."""
    return dict(_read_json(path)) if path.is_file() else {}


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(
            f"{path.name} of the model {path.parent.name!r} is no JSON ({error}); get the model"
            " again",
            code="model_unusable",
        ) from error


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """(class name, folder) of each module, in order."""
    return [
        (entry["type"].rpartition(".")[2], folder / entry["path"])
        for entry in _read_json(folder / "modules.json")
    ]


def _find_problem(folder: Path) -> str:
    """The reason why a folder cannot be used; empty if it can."""
    if not (folder / "modules.json").is_file():
        return "has no modules.json, so how it pools its tokens is unknown"
    if not any(folder.rglob("*.safetensors")):
        return "has no weights as safetensors"
    return ""


def _dimension(folder: Path, model: str) -> int:
    """The length of the vectors by the last module that defines it, 0 if none does."""
    for kind, place in reversed(_modules(folder)):
        settings = _json(place / "config.json")
        if kind == "Dense":
            return int(settings["out_features"])
        if kind == "Pooling":
            modes = settings.get("pooling_mode", "mean")
            legacy = sum(
                bool(value) for key, value in settings.items() if key.startswith("pooling_mode_")
            )
            count = len(modes) if isinstance(modes, list) else legacy or 1
            return count * int(
                settings.get("embedding_dimension") or settings["word_embedding_dimension"]
            )
        if kind == "StaticEmbedding":
            return _columns(place / "model.safetensors", "embedding.weight")
    return 0


def _columns(path: Path, tensor: str) -> int:
    """The second dimension of a tensor from the header of its safetensors file; 0 if unknown."""
    if not path.is_file():
        return 0
    with open(path, "rb") as source:
        (length,) = struct.unpack("<Q", source.read(8))
        header: Mapping[str, Any] = json.loads(source.read(length))
    return int(header[tensor]["shape"][1]) if tensor in header else 0


def _window(folder: Path) -> int:
    """The model's window in tokens: its configured one, else the smaller of the tokenizer's and the
    number of positions.
    """
    kind, place = _modules(folder)[0]
    if kind == "StaticEmbedding":
        return _NO_LIMIT
    configured = [
        _json(path).get("max_seq_length") for path in sorted(place.glob("sentence_*_config.json"))
    ]
    limits = list(filter(None, configured)) or [
        _json(place / "tokenizer_config.json").get("model_max_length"),
        _json(place / "config.json").get("max_position_embeddings"),
    ]
    return int(min([limit for limit in limits if limit and limit > 0] or [_NO_LIMIT]))


def _digest(folder: Path) -> str:
    """sha256 over the names and bytes of all files that affect a vector."""
    paths = {path for pattern in _MODEL_FILES for path in folder.rglob(pattern) if path.is_file()}
    names = sorted((path.relative_to(folder).as_posix(), path.stat()) for path in paths)
    return _digest_of(folder, tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in names))


@functools.lru_cache(maxsize=8)
def _digest_of(folder: Path, files: tuple[tuple[str, int, int], ...]) -> str:
    """The digest, cached until a size or modification time changes."""
    digest = hashlib.sha256()
    for name, size, _ in files:
        digest.update(f"{name}\0{size}\0".encode())
        with open(folder / name, "rb") as source:
            while block := source.read(8 * 1024 * 1024):
                digest.update(block)
    return digest.hexdigest()


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """No progress bar on standard error, which belongs to the log."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
