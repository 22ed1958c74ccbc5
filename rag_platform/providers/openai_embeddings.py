"""Embeddings behind any endpoint that speaks OpenAI's `/embeddings`: OpenAI, Azure, Ollama, vLLM,
Jina, LM Studio, Qwen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rag_platform.config.settings import fingerprint
from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import EmbedderInfo, Json
from rag_platform.protocols import Vectors
from rag_platform.providers import model_calls as calls
from rag_platform.providers.model_clients import OpenAIModel
from rag_platform.providers.model_texts import clean_texts
from rag_platform.registry import require_at_least
from rag_platform.text.tokens import estimate_tokens
from rag_platform.text.wording import pluralise
from rag_platform.traits import Traits

# codes of failures that are the same for every text
_CONFIGURATION_CODES = ("missing_key", "unauthorized", "forbidden", "model_not_found")
# tokens of a character, estimated too high rather than too low
_WIDE_TOKENS, _NARROW_TOKENS = 1.5, 0.5


@dataclass(frozen=True)
class OpenAIEmbeddings(OpenAIModel):
    """An embedding model with the address options of OpenAIModel.

    `dim` is the length of its vectors, which is checked in every reply; `send_dim` requests that
    length, from models that can shorten their vectors. Models like E5 need `query_prefix` and
    `passage_prefix`. Text beyond `max_tokens`, by a high estimate, is not sent. Questions are
    retried up to `retries` times after rate limits, server errors, lost connections and timeouts;
    passages are retried by the caller.
    """

    dim: int = 0
    send_dim: bool = False
    query_prefix: str = ""
    passage_prefix: str = ""
    max_tokens: int = 8_191
    batch_size: int = 64  # texts of one call
    timeout_ms: int = 30_000
    retries: int = 1
    backoff_ms: int = 500
    # per million tokens; the strategy's `price_per_million_tokens` unless given
    price_input: float | None = None

    KIND: ClassVar[str] = "embedder"
    # if the service changes a model under its name, rename `model`, or purge the cache
    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(remote=True, bytes_per_second=100_000.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, max_tokens=1, batch_size=1, timeout_ms=1, backoff_ms=1)
        require_at_least(self, dim=0, retries=0)

    def info(self) -> EmbedderInfo:
        """The fingerprint, which does not depend on the address. Raises ConfigError without model
        or `dim`.
        """
        if not self.name or not self.dim:
            raise ConfigError(
                "embedder 'openai' needs the options `model` (on Azure `deployment_name`) and"
                " `dim`, the length of its vectors"
            )
        options = [self.dim, self.send_dim, self.query_prefix, self.passage_prefix, self.max_tokens]
        return EmbedderInfo(
            f"{self.NAME}:{self.name}",
            f"{self.VERSION}+{fingerprint(options, length=8)}",
            self.dim,
            self.max_tokens,
        )

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """float32 [len(texts), dim] of unit rows.

        Raises ConfigError for what fails with every text: missing_key, unauthorized, forbidden,
        model_not_found, wrong_dimension; else ProviderError: blank_text and no_vector with the
        position, bad_request, too_large, broken_reply, or, retryable, rate_limited, timeout,
        connection_failed, server_error, with `wait` in its details if the endpoint gives a delay.
        """
        info = self.info()
        prefix = self.query_prefix if query else self.passage_prefix
        inputs = [prefix + _cut_to_tokens(text, self.max_tokens) for text in clean_texts(texts)]
        rows = np.zeros((len(inputs), info.dim), dtype=np.float32)
        for start in range(0, len(inputs), self.batch_size):
            batch = inputs[start : start + self.batch_size]
            rows[start : start + len(batch)] = self._vectors(batch, start, query)
        return rows

    def _vectors(self, batch: list[str], start: int, query: bool) -> Vectors:
        """Unit rows of one call; `start` is the index of its first text among all texts."""
        body: Json = {"model": self.name, "input": batch, "encoding_format": "float"}
        if self.send_dim:
            body["dimensions"] = self.dim
        retries, mode = (self.retries, "online") if query else (0, "offline")
        endpoint = calls.Endpoint(
            self.NAME, self.name, self.place, retries, self.backoff_ms, (self.price_input, 0.0)
        )
        with calls.record_call(
            endpoint, mode=mode, operation="embeddings", texts=len(batch)
        ) as record:
            try:
                client = self.client()
                reply, record["retries"] = calls.ask(
                    endpoint, lambda: client.embeddings.create(**body)
                )
            except ProviderError as error:
                if error.code in _CONFIGURATION_CODES:
                    raise ConfigError(error.message, code=error.code) from error
                cause = error.__cause__
                failure = calls.failure_of(cause) if isinstance(cause, Exception) else None
                if failure is not None and failure.wait is not None:
                    error.details["wait"] = failure.wait
                raise
            counted = getattr(reply, "usage", None)
            usage: Json = {"input_tokens": int(getattr(counted, "prompt_tokens", 0) or 0)}
            if counted is None:
                usage = {"input_tokens": sum(map(estimate_tokens, batch)), "estimated": True}
            record |= {
                "model_version": str(getattr(reply, "model", "") or ""),
                "usage": usage,
                "cost": calls.cost_of({**usage, "output_tokens": 0}, *endpoint.prices),
            }
            return self._read_vectors(reply, len(batch), start)

    def _read_vectors(self, reply: Any, count: int, start: int) -> Vectors:
        data = getattr(reply, "data", None)
        positions = (
            sorted(getattr(item, "index", -1) for item in data) if isinstance(data, list) else []
        )
        if not isinstance(data, list) or positions != list(range(count)):
            raise ProviderError(
                f"the model {self.name!r} at {self.place} answered"
                f" {pluralise(count, 'text')} with vectors for {positions[:9]}",
                code="broken_reply",
            )
        rows = np.zeros((count, self.dim), dtype=np.float32)
        for item in data:
            try:
                vector = np.asarray(item.embedding, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ProviderError(
                    f"the model {self.name!r} at {self.place} answered with something"
                    f" other than numbers: {error}",
                    code="broken_reply",
                ) from error
            if vector.shape != (self.dim,):
                raise ConfigError(
                    f"the model {self.name!r} at {self.place} gives vectors of {vector.size}"
                    f" numbers, the option `dim` says {self.dim}; set `dim: {vector.size}`, or"
                    " `send_dim: true` where the model can shorten its vectors",
                    code="wrong_dimension",
                )
            norm = float(np.linalg.norm(vector))
            if not (math.isfinite(norm) and norm > 0):
                raise ProviderError(
                    f"the model {self.name!r} gives text {start + item.index} a vector of length"
                    f" {norm}",
                    code="no_vector",
                    position=start + item.index,
                )
            rows[item.index] = vector / norm
        return rows

    def load(self) -> None:
        """Import the client, which takes a second. Raises ProviderError `missing_key`."""
        _ = self.client().embeddings


def _cut_to_tokens(text: str, max_tokens: int) -> str:
    """The beginning of a text, of at most `max_tokens` as estimated by character widths."""
    if len(text) * _WIDE_TOKENS <= max_tokens:
        return text
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    tokens = np.cumsum(np.where(codes >= 0x2E80, _WIDE_TOKENS, _NARROW_TOKENS))
    return text[: int(np.searchsorted(tokens, max_tokens, side="right"))]
