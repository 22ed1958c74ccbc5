"""What the providers of models behind an endpoint have in common: the address and the client, and
for language models the sequence of a call.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import Json
from rag_platform.protocols import Completion, Message
from rag_platform.providers import model_calls as calls
from rag_platform.providers.model_replies import strip_fence


@dataclass(frozen=True)
class ModelClient(ABC):
    """A model by `model` at `base_url` (empty: the provider's own address).

    The key is read from the environment variable that `api_key_env` names; empty means an endpoint
    without keys.
    """

    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    timeout_ms: int = 60_000

    KIND: ClassVar[str] = "llm"
    NAME: ClassVar[str]
    URL: ClassVar[str]  # the provider's own address

    # the client, and what was learnt from the endpoint's errors
    _state: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The name of the model in requests."""
        return self.model

    @property
    def place(self) -> str:
        """The address of the model, for messages."""
        return self.base_url or self.URL

    def client(self) -> Any:
        """The SDK's client, closed when the model is garbage-collected. Raises ProviderError
        `missing_key`.
        """
        if "client" not in self._state:
            key = calls.key_of(self.NAME, self.api_key_env, kind=self.KIND)
            self._state["client"] = client = self._connect(key)
            weakref.finalize(self, client.close)  # the SDK may do so after its sockets were found
        return self._state["client"]

    @abstractmethod
    def _connect(self, key: str) -> Any:
        """A new client of the SDK."""


@dataclass(frozen=True)
class OpenAIModel(ModelClient):
    """A model behind OpenAI's protocol by `model` and `base_url`, or on Azure by `endpoint`,
    `deployment_name` and `api_version`.
    """

    api_key_env: str = "OPENAI_API_KEY"
    endpoint: str = ""
    deployment_name: str = ""
    api_version: str = ""

    NAME: ClassVar[str] = "openai"
    URL: ClassVar[str] = "api.openai.com"

    def __post_init__(self) -> None:
        if self.endpoint and not (self.deployment_name and self.api_version):
            raise ConfigError(
                f"{self.KIND} 'openai': an Azure endpoint needs deployment_name and api_version too"
            )

    @property
    def name(self) -> str:
        """The name of the model, which on Azure is that of its deployment."""
        return self.deployment_name or self.model

    @property
    def place(self) -> str:
        return self.endpoint or super().place

    def _connect(self, key: str) -> Any:
        import openai

        common: Json = {"api_key": key, "timeout": self.timeout_ms / 1000, "max_retries": 0}
        if not self.endpoint:
            return openai.OpenAI(base_url=self.base_url or None, **common)
        return openai.AzureOpenAI(
            azure_endpoint=self.endpoint,
            azure_deployment=self.deployment_name,
            api_version=self.api_version,
            **common,
        )


@dataclass(frozen=True)
class ChatModel(ModelClient):
    """A protocols.LLM behind an endpoint. A subclass implements the protocol of the endpoint: the
    request body, the call and the reading of the reply.

    Rate limits, server errors, lost connections and timeouts are retried up to `retries` times with
    growing waits, at most once in the mode online; nothing else is. `price_input` and
    `price_output` are per million tokens.
    """

    retries: int = 4
    backoff_ms: int = 500
    temperature: float | None = 0.0
    max_tokens: int | None = None
    price_input: float | None = None
    price_output: float | None = None
    extra: Json = field(default_factory=dict)  # further fields of the request body

    NO_MODEL: ClassVar[str]  # the message for a missing option

    def generate(
        self,
        messages: Sequence[Message],
        *,
        mode: str = "online",
        max_tokens: int | None = None,
        json_schema: Json | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """The completion, streamed if `on_text` is given; with a schema its text should be JSON,
        which the caller checks.

        Raises ProviderError with code no_model, missing_key, unauthorized, forbidden,
        model_not_found, bad_request, too_large, content_filtered, empty_reply, broken_reply, or,
        retryable, rate_limited, timeout, connection_failed, server_error. For a broken stream,
        `details["text"]` has the text so far. Usage that the endpoint does not report is estimated
        and marked so.
        """
        if not self.name:
            raise ProviderError(self.NO_MODEL, code="no_model")
        prices = self.price_input, self.price_output
        endpoint = calls.Endpoint(
            self.NAME, self.name, self.place, self.retries, self.backoff_ms, prices
        )
        sent: Json = {}

        def call() -> Any:
            nonlocal sent
            body = self._body(messages, max_tokens or self.max_tokens, json_schema)
            if self.temperature is not None:
                body["temperature"] = self.temperature
            sent = {name: value for name, value in body.items() if name not in self._refused}
            return self._send(endpoint, sent, on_text)

        completion = calls.complete(
            endpoint,
            call,
            self._read,
            messages,
            mode=mode,
            streamed=on_text is not None,
            learns=lambda error: self._learns_from(error, sent),
        )
        if json_schema is None:
            return completion
        return replace(completion, text=strip_fence(completion.text))

    @property
    def _refused(self) -> tuple[str, ...]:
        """The parameters that the endpoint does not accept."""
        return tuple(self._state.get("refused", ()))

    def _learns_from(self, error: Exception, sent: Json) -> bool:
        """True if the error names a parameter that later calls omit or send differently."""
        message = f"{getattr(error, 'param', '') or ''} {error}".lower()
        for name in ("stream_options", "temperature"):
            if name in message and name in sent:
                self._state["refused"] = (*self._refused, name)
                return True
        return False

    @abstractmethod
    def _body(self, messages: Sequence[Message], most: int | None, schema: Json | None) -> Json:
        """The request body, for at most so many tokens of output."""

    @abstractmethod
    def _send(
        self, endpoint: calls.Endpoint, body: Json, on_text: Callable[[str], None] | None
    ) -> Any:
        """The endpoint's reply; a stream is assembled into the form of an unstreamed one. May add
        to the body.
        """

    @abstractmethod
    def _read(self, reply: Any) -> calls.Reply:
        """The parts of a reply. Raises ProviderError `broken_reply`."""
