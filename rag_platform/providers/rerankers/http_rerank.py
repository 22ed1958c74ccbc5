"""Reranking models behind an endpoint that speaks the JSON of Cohere (v2/rerank) and Jina
(v1/rerank), as vLLM and others do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import Hit, Json, QueryIR
from rag_platform.providers.model_calls import Endpoint, ask, key_of, record_call
from rag_platform.providers.model_replies import is_number
from rag_platform.providers.model_texts import passage
from rag_platform.registry import require_at_least
from rag_platform.text.encoding import encodable
from rag_platform.traits import Traits

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True)
class HttpReranker:
    """A rerank endpoint by its full `url`; it gets {model, query, documents, top_n} and must return
    results[{index, relevance_score}].

    The key is read from the environment variable that `api_key_env` names; empty means an endpoint
    without keys. Rate limits, server errors, lost connections and timeouts are retried up to
    `retries` times within `timeout_ms`, which limits all tries together.
    """

    url: str = ""
    model: str = ""
    api_key_env: str = "RERANK_API_KEY"
    timeout_ms: int = 800
    retries: int = 1
    backoff_ms: int = 100
    max_chars: int = 4_000  # of a passage

    NAME: ClassVar[str] = "http"
    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(remote=True)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(
                "`url` must be the whole address, such as https://api.cohere.com/v2/rerank, not"
                f" {self.url!r}"
            )
        require_at_least(self, timeout_ms=1, retries=0, backoff_ms=0, max_chars=1)

    def load(self) -> None:
        """Import the client."""
        import httpx  # noqa: F401

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        """The endpoint's relevance of each hit.

        Raises ProviderError with code missing_key, unauthorized, forbidden, model_not_found,
        bad_request, too_large, bad_output, or, retryable, rate_limited, timeout, connection_failed,
        server_error.
        """
        import httpx

        if not hits:
            return []
        documents = [encodable(passage(hit, self.max_chars)) for hit in hits]
        body: Json = {
            "model": self.model,
            "query": encodable(query.dense_text),
            "documents": documents,
            "top_n": len(documents),
        }
        endpoint = Endpoint(
            self.NAME, self.model or "rerank", self.url, self.retries, self.backoff_ms
        )
        ends = time.monotonic() + self.timeout_ms / 1000
        with (
            record_call(endpoint, operation="rerank") as record,
            httpx.Client(trust_env=False, headers=self._headers()) as client,
        ):
            reply, record["retries"] = ask(
                endpoint, lambda: self._post(client, body, ends), ends=ends
            )
            record["usage"] = _usage(reply)
            return self._read(reply, len(hits))

    def _post(self, client: httpx.Client, body: Json, ends: float) -> Any:
        import httpx

        try:
            response = client.post(self.url, json=body, timeout=max(0.001, ends - time.monotonic()))
            return response.raise_for_status().json()
        except (ValueError, httpx.DecodingError) as error:
            raise self._bad(f"no JSON ({error})") from error

    def _headers(self) -> dict[str, str]:
        if not self.api_key_env:
            return {}
        key = key_of(self.NAME, self.api_key_env, kind="reranker")
        if not key.isascii() or not key.isprintable():
            raise ConfigError(
                f"the key in {self.api_key_env} holds characters that no header may have"
            )
        return {"Authorization": f"Bearer {key}"}

    def _read(self, reply: Any, count: int) -> list[float]:
        """One finite score for each of the documents, every index once."""
        results = reply.get("results") if isinstance(reply, dict) else None
        if not isinstance(results, list):
            raise self._bad("no list of results")
        scores: dict[int, float] = {}
        for item in results:
            fields = item if isinstance(item, dict) else {}
            index, score = fields.get("index"), fields.get("relevance_score")
            if type(index) is not int or index not in range(count) or index in scores:
                raise self._bad(f"the index {index!r}, of {count} documents")
            if not is_number(score):
                raise self._bad(f"the relevance_score {score!r}")
            scores[index] = float(score)
        if len(scores) != count:
            raise self._bad(f"{len(scores)} results for {count} documents")
        return [scores[index] for index in range(count)]

    def _bad(self, what: str) -> ProviderError:
        return ProviderError(
            f"the rerank endpoint {self.url} answered with {what}", code="bad_output"
        )


def _usage(reply: Any) -> Json:
    """The billed usage, which Jina returns in `usage`, Cohere in `meta`."""
    if not isinstance(reply, dict):
        return {}
    meta = reply.get("meta")
    found = reply.get("usage") or (meta.get("billed_units") if isinstance(meta, dict) else None)
    return dict(found) if isinstance(found, dict) else {}
