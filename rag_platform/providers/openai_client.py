"""The client of endpoints that speak OpenAI's protocol, Azure's included."""

from __future__ import annotations

from typing import Any, Protocol

from rag_platform.ir import Json
from rag_platform.providers.model_calls import close_with, key_of

OPENAI = "api.openai.com"


class OpenAIOptions(Protocol):
    """The address of a model; on Azure `endpoint`, `deployment_name` and `api_version`."""

    @property
    def base_url(self) -> str: ...
    @property
    def api_key_env(self) -> str: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def deployment_name(self) -> str: ...
    @property
    def api_version(self) -> str: ...
    @property
    def timeout_ms(self) -> int: ...


def place_of(options: OpenAIOptions) -> str:
    """The address of the model, for messages."""
    return options.endpoint or options.base_url or OPENAI


def make_client(options: OpenAIOptions, *, kind: str = "llm") -> Any:
    """A client, closed when `options` are garbage-collected. Raises ProviderError `missing_key`."""
    import openai

    key = key_of("openai", options.api_key_env, kind=kind)
    common: Json = {"api_key": key, "timeout": options.timeout_ms / 1000, "max_retries": 0}
    if options.endpoint:
        client: Any = openai.AzureOpenAI(
            azure_endpoint=options.endpoint,
            azure_deployment=options.deployment_name,
            api_version=options.api_version,
            **common,
        )
    else:
        client = openai.OpenAI(base_url=options.base_url or None, **common)
    return close_with(options, client)
