"""Embeddings behind any endpoint that speaks OpenAI's `/embeddings`: OpenAI, Azure, Ollama, vLLM,
Jina, LM Studio, Qwen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from rag_platform.config.settings import fingerprint
from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import EmbedderInfo, Json
from rag_platform.protocols import Vectors
from rag_platform.providers import model_calls as calls
from rag_platform.providers.model_texts import clean_texts
from rag_platform.providers.openai_client import make_client, place_of
from rag_platform.traits import Traits

_NO_FAULT_OF_A_TEXT = ("missing_key", "unauthorized", "forbidden", "model_not_found")
# of a character, so that an estimate rather cuts too much than sends too much
_WIDE_TOKENS, _NARROW_TOKENS = 1.5, 0.5


@dataclass(frozen=True)
class OpenAIEmbeddings:
    """An embedding model by `model` and `base_url` (empty: OpenAI's own); on Azure by `endpoint`,
    `deployment_name` and `api_version`.

    `dim` is the length of its vectors, which every reply is checked for; `send_dim` asks the
    endpoint for that length, where the model can shorten its vectors. The key is read from the
    environment variable that `api_key_env` names; empty means an endpoint without keys. Models of
    E5's kind need `query_prefix` and `passage_prefix`. What a text has beyond `max_tokens`, by a
    careful estimate, is not sent and does not move its vector. A question is asked again up to
    `retries` times after rate limits, server errors, lost connections and timeouts, and nothing
    else; passages are tried again by whoever embeds them.
    """

    model: str = ""
    dim: int = 0
    base_url: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    endpoint: str = ""
    deployment_name: str = ""
    api_version: str = ""
    send_dim: bool = False
    query_prefix: str = ""
    passage_prefix: str = ""
    max_tokens: int = 8_191
    batch_size: int = 64  # texts of one call
    timeout_ms: int = 30_000
    retries: int = 1
    backoff_ms: int = 500
    # of a million tokens; the strategy's `price_per_million_tokens` unless given
    price_input: float | None = None

    NAME: ClassVar[str] = "openai"
    # the service may still change a model under its name: then rename `model`, or purge the cache
    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(remote=True, bytes_per_second=100_000.0)

    _held: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.endpoint and not (self.deployment_name and self.api_version):
            raise ValueError("an Azure endpoint needs deployment_name and api_version too")
        for name in ("max_tokens", "batch_size", "timeout_ms", "backoff_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.dim < 0 or self.retries < 0:
            raise ValueError(f"dim = {self.dim} and retries = {self.retries} must not be negative")

    def info(self) -> EmbedderInfo:
        """The fingerprint, wherever the model runs. Raises ConfigError without model or `dim`."""
        if not self._name or not self.dim:
            raise ConfigError(
                "embedder 'openai' needs the options `model` (on Azure `deployment_name`) and"
                " `dim`, the length of its vectors"
            )
        decides = [self.dim, self.send_dim, self.query_prefix, self.passage_prefix, self.max_tokens]
        return EmbedderInfo(
            f"{self.NAME}:{self._name}",
            f"{self.VERSION}+{fingerprint(decides, length=8)}",
            self.dim,
            self.max_tokens,
        )

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """float32 [len(texts), dim] of unit rows.

        Raises ConfigError where no text is at fault: missing_key, unauthorized, forbidden,
        model_not_found, wrong_dimension; else ProviderError: blank_text and no_vector with the
        position, bad_request, too_large, broken_reply, or, retryable, rate_limited, timeout,
        connection_failed, server_error, with `wait` in its details where the endpoint says how
        long.
        """
        info = self.info()
        prefix = self.query_prefix if query else self.passage_prefix
        inputs = [prefix + _fitting(text, self.max_tokens) for text in clean_texts(texts)]
        rows = np.zeros((len(inputs), info.dim), dtype=np.float32)
        for start in range(0, len(inputs), self.batch_size):
            batch = inputs[start : start + self.batch_size]
            rows[start : start + len(batch)] = self._vectors(batch, start, query)
        return rows

    def _vectors(self, batch: list[str], start: int, query: bool) -> Vectors:
        """Unit rows of one call; `start` is the index of its first text among all texts."""
        started = time.perf_counter()
        body: Json = {"model": self._name, "input": batch, "encoding_format": "float"}
        if self.send_dim:
            body["dimensions"] = self.dim
        retries, mode = (self.retries, "online") if query else (0, "offline")
        endpoint = calls.Endpoint(
            self.NAME, self._name, place_of(self), retries, self.backoff_ms, (self.price_input, 0.0)
        )
        with calls.record_call(
            self.NAME,
            self._name,
            place=endpoint.place,
            mode=mode,
            operation="embeddings",
            texts=len(batch),
        ) as record:
            try:
                client = self._client()
                reply, record["retries"] = calls.ask(
                    endpoint, lambda: client.embeddings.create(**body)
                )
            except ProviderError as error:
                if error.code in _NO_FAULT_OF_A_TEXT:
                    raise ConfigError(
                        f"embedder 'openai': {error.message}", code=error.code
                    ) from error
                cause = error.__cause__
                failure = calls.failure_of(cause) if isinstance(cause, Exception) else None
                if failure is not None and failure.wait is not None:
                    error.details["wait"] = failure.wait
                raise
            counted = getattr(reply, "usage", None)
            usage: Json = {"input_tokens": int(getattr(counted, "prompt_tokens", 0) or 0)}
            if counted is None:
                usage = {
                    "input_tokens": sum(
                        calls.estimate_usage(text, "")["input_tokens"] for text in batch
                    ),
                    "estimated": True,
                }
            record |= {
                "model_version": str(getattr(reply, "model", "") or ""),
                "usage": usage,
                "cost": calls.cost_of({**usage, "output_tokens": 0}, *endpoint.prices),
                "ms": round(1000 * (time.perf_counter() - started), 1),
            }
            return self._read_vectors(reply, len(batch), start)

    def _read_vectors(self, reply: Any, count: int, start: int) -> Vectors:
        data = getattr(reply, "data", None)
        places = (
            sorted(getattr(item, "index", -1) for item in data) if isinstance(data, list) else []
        )
        if not isinstance(data, list) or places != list(range(count)):
            raise ProviderError(
                f"the model {self._name!r} at {place_of(self)} answered {count} texts with vectors"
                f" for {places[:9]}",
                code="broken_reply",
            )
        rows = np.zeros((count, self.dim), dtype=np.float32)
        for item in data:
            try:
                vector = np.asarray(item.embedding, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ProviderError(
                    f"the model {self._name!r} at {place_of(self)} answered with something"
                    f" other than numbers: {error}",
                    code="broken_reply",
                ) from error
            if vector.shape != (self.dim,):
                raise ConfigError(
                    f"the model {self._name!r} at {place_of(self)} gives vectors of {vector.size}"
                    f" numbers, the option `dim` says {self.dim}; set `dim: {vector.size}`, or"
                    " `send_dim: true` where the model can shorten its vectors",
                    code="wrong_dimension",
                )
            norm = float(np.linalg.norm(vector))
            if not (math.isfinite(norm) and norm > 0):
                raise ProviderError(
                    f"the model {self._name!r} gives text {start + item.index} a vector of length"
                    f" {norm}",
                    code="no_vector",
                    position=start + item.index,
                )
            rows[item.index] = vector / norm
        return rows

    def load(self) -> None:
        """Import the client, which takes a second. Raises ProviderError `missing_key`."""
        _ = self._client().embeddings

    def _client(self) -> Any:
        if "client" not in self._held:
            self._held["client"] = make_client(self, kind="embedder")
        return self._held["client"]

    @property
    def _name(self) -> str:
        return self.deployment_name or self.model


def _fitting(text: str, max_tokens: int) -> str:
    """The beginning of a text, of at most `max_tokens` as estimated by character widths."""
    if len(text) * _WIDE_TOKENS <= max_tokens:
        return text
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    tokens = np.cumsum(np.where(codes >= 0x2E80, _WIDE_TOKENS, _NARROW_TOKENS))
    return text[: int(np.searchsorted(tokens, max_tokens, side="right"))]
