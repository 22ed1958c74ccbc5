"""What the providers for OpenAI's protocol have in common: the address and the client of a model,
Azure's included.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from rag_platform.errors import ConfigError
from rag_platform.ir import Json
from rag_platform.providers.model_calls import close_with, key_of

OPENAI = "api.openai.com"


@dataclass(frozen=True)
class OpenAIModel:
    """A model by `model` and `base_url` (empty: OpenAI's own); on Azure by `endpoint`,
    `deployment_name` and `api_version`.

    The key is read from the environment variable that `api_key_env` names; empty means an endpoint
    without keys.
    """

    model: str = ""
    base_url: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    endpoint: str = ""
    deployment_name: str = ""
    api_version: str = ""
    timeout_ms: int = 60_000

    KIND: ClassVar[str] = "llm"
    NAME: ClassVar[str] = "openai"

    # the client, and what was learnt from the endpoint's errors
    _state: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

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
        """The address of the model, for messages."""
        return self.endpoint or self.base_url or OPENAI

    def client(self) -> Any:
        """The SDK's client, closed when this object is garbage-collected. Raises ProviderError
        `missing_key`.
        """
        if "client" in self._state:
            return self._state["client"]
        import openai

        key = key_of(self.NAME, self.api_key_env, kind=self.KIND)
        common: Json = {"api_key": key, "timeout": self.timeout_ms / 1000, "max_retries": 0}
        if self.endpoint:
            made: Any = openai.AzureOpenAI(
                azure_endpoint=self.endpoint,
                azure_deployment=self.deployment_name,
                api_version=self.api_version,
                **common,
            )
        else:
            made = openai.OpenAI(base_url=self.base_url or None, **common)
        self._state["client"] = close_with(self, made)
        return made
