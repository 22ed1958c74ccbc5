"""Cross-encoders in the format of sentence-transformers: models that read question and passage
together (extra `models`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import Hit, QueryIR
from rag_platform.providers.model_texts import passage
from rag_platform.providers.sentence_transformers import is_hub_name
from rag_platform.registry import require_at_least, require_packages
from rag_platform.text.encoding import encodable
from rag_platform.text.wording import pluralise
from rag_platform.traits import Traits

_lock = threading.Lock()  # for one computation at a time
_models: dict[tuple[str, str, str, int], Any] = {}


@dataclass(frozen=True)
class CrossEncoderReranker:
    """A cross-encoder: the absolute path of a folder, or a hub name whose files are in the local
    Hugging Face cache, such as BAAI/bge-reranker-base. Nothing is downloaded, code that comes with
    a model is never run, weights are read from safetensors.

    Scores are the model's logits, so `score_mode: normalize` with `sigmoid` gives what such models
    call their score. The model must have one output. `max_tokens` shortens its window for question
    and passage together; 0 is its own.
    """

    model: str = ""
    revision: str = ""
    max_tokens: int = 0
    max_chars: int = 4_000  # of a passage: more than such models read
    batch_size: int = 16
    device: str = "cpu"
    threads: int = 1  # of torch, for the whole process

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(pointwise=True)

    def __post_init__(self) -> None:
        require_packages("torch", "sentence_transformers")
        if not self.model:
            raise ValueError(
                "`model` must name a folder or a hub model, such as BAAI/bge-reranker-base"
            )
        require_at_least(self, max_tokens=0, max_chars=1, batch_size=1, threads=1)

    def load(self) -> None:
        """Load the model, which otherwise the first call of `score` does."""
        with _lock:
            self._load_model()

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        """The logit of each pair. Raises ConfigError `model_not_found` or `model_unusable`."""
        if not hits:
            return []
        pairs = [
            (encodable(query.dense_text), encodable(passage(hit, self.max_chars))) for hit in hits
        ]
        with _lock:
            model = self._load_model()
            try:
                scores = model.predict(pairs, batch_size=self.batch_size, show_progress_bar=False)
            # from torch: out of memory, a token without an embedding
            except (RuntimeError, ValueError, IndexError) as error:
                raise ProviderError(
                    f"{self.model!r} failed on {pluralise(len(pairs), 'passage')}: {error}",
                    code="model_failed",
                ) from error
        return [float(score) for score in scores]

    def _load_model(self) -> Any:
        key = (self.model, self.revision, self.device, self.max_tokens)
        if key not in _models:
            import torch
            from sentence_transformers import CrossEncoder

            torch.set_num_threads(self.threads)
            try:
                model = CrossEncoder(
                    self._place(),
                    revision=self.revision or None,
                    device=self.device,
                    trust_remote_code=False,
                    local_files_only=True,
                    max_length=self.max_tokens or None,
                    activation_fn=torch.nn.Identity(),
                    model_kwargs={"use_safetensors": True, "dtype": "float32"},
                )
            except ConfigError:
                raise
            except Exception as error:  # broken files raise anything
                raise ConfigError(
                    f"the model {self.model!r} cannot be loaded on {self.device!r}:"
                    f" {type(error).__name__}: {error}; fetch it once with `hf download"
                    f" {self.model}`, or name a folder that holds it",
                    code="model_unusable",
                ) from error
            if model.num_labels != 1:
                raise ConfigError(
                    f"the model {self.model!r} has {model.num_labels} outputs; a reranker has one",
                    code="model_unusable",
                )
            _models[key] = model
        return _models[key]

    def _place(self) -> str:
        folder = Path(self.model).expanduser()
        if folder.is_dir():
            return str(folder.resolve())
        if is_hub_name(self.model):
            return self.model
        raise ConfigError(
            f"there is no model folder {self.model!r}; give the absolute path of a folder, or the"
            " name of a hub model, such as BAAI/bge-reranker-base",
            code="model_not_found",
        )
