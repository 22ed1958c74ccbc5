"""Language models behind any endpoint that speaks OpenAI's chat completions: OpenAI, Azure, DeepSeek, Qwen, Gemini, Ollama, vLLM."""

from __future__ import annotations

import base64
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import Json
from rag_platform.observability import tracing
from rag_platform.protocols import Completion, Message

_ONLINE_RETRIES = 1  # somebody is waiting
_MAX_WAIT = 30.0
_CODES = {400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "model_not_found", 408: "timeout", 409: "conflict",
          413: "too_large", 422: "bad_request", 429: "rate_limited"}  # fmt: skip


@dataclass(frozen=True)
class OpenAIChat:
    """A chat model by `model` and `base_url` (empty: OpenAI's own); on Azure by `endpoint`, `deployment_name` and `api_version`.

    The key is read from the environment variable that `api_key_env` names; empty means an endpoint without keys. Rate limits, server
    errors, lost connections and timeouts are tried again up to `retries` times with growing waits, at most once where mode is online;
    nothing else is. `json_format` is how a schema is asked for; endpoints that refuse it are asked for plain JSON, then for text.
    `price_input` and `price_output` are per million tokens.
    """

    model: str = ""
    base_url: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    endpoint: str = ""
    deployment_name: str = ""
    api_version: str = ""
    timeout_ms: int = 60_000
    retries: int = 4
    backoff_ms: int = 500
    temperature: float | None = 0.0
    max_tokens: int | None = None
    json_format: str = "schema"  # schema | object | text
    price_input: float | None = None
    price_output: float | None = None
    extra: Json = field(default_factory=dict)  # more fields of the request body, as the endpoint knows them

    NAME: ClassVar[str] = "openai"
    VERSION: ClassVar[str] = "1"

    _learnt: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.json_format not in _FORMATS:
            raise ConfigError(f"llm 'openai': json_format {self.json_format!r} is none of {', '.join(_FORMATS)}")
        if self.endpoint and not (self.deployment_name and self.api_version):
            raise ConfigError("llm 'openai': an Azure endpoint needs deployment_name and api_version too")

    def generate(
        self, messages: Sequence[Message], *, mode: str = "online", max_tokens: int | None = None, json_schema: Json | None = None
    ) -> Completion:
        """The completion; with a schema its text should be JSON, which the caller checks.

        Raises ProviderError with code missing_key, unauthorized, forbidden, model_not_found, bad_request, too_large, content_filtered,
        empty_reply, broken_reply, or, retryable, rate_limited, timeout, connection_failed, server_error.
        """
        started = time.perf_counter()
        body: Json = {"model": self.deployment_name or self.model, "messages": [_wire(message) for message in messages], **self.extra}
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if (most := max_tokens or self.max_tokens) is not None:
            body["max_tokens"] = most
        reply, tries = self._asked(body, json_schema, self.retries if mode == "offline" else min(self.retries, _ONLINE_RETRIES))
        text, usage = self._read(reply)
        completion = Completion(
            text=text,
            provider=self.NAME,
            model=self.deployment_name or self.model,
            model_version=str(getattr(reply, "model", "") or ""),
            mode=mode,
            usage=usage,
            cost=self._cost(usage),
            retries=tries,
            seconds=time.perf_counter() - started,
        )
        figures = {"model_version": completion.model_version, "mode": mode, "usage": usage, "cost": completion.cost, "retries": tries}
        tracing.event("model.call", {"provider": self.NAME, "model": completion.model, **figures})
        return completion

    # --- the call ------------------------------------------------------------------------------------------------------

    def _asked(self, body: Json, schema: Json | None, retries: int) -> tuple[Any, int]:
        """(reply, how many tries failed before it); a parameter that the endpoint refuses is replaced once and remembered."""
        import openai

        client = self._client()
        tries = 0
        while True:
            try:
                return client.chat.completions.create(**self._adapted(body, schema)), tries
            except openai.BadRequestError as error:
                if not self._learns_from(error, schema is not None):
                    self._refused(error, tries)
            except ValueError as error:  # the body of a good status is no JSON
                raise ProviderError(f"the reply of {body['model']!r} is not readable: {str(error)[:200]}", code="broken_reply") from error
            except openai.APIError as error:
                if tries >= retries or not _retryable(error):
                    self._refused(error, tries)
                time.sleep(self._wait(error, tries))
                tries += 1

    def _adapted(self, body: Json, schema: Json | None) -> Json:
        body = {key: value for key, value in body.items() if key not in self._learnt.get("refused", ())}
        if "max_tokens" in body and self._learnt.get("completion_tokens"):
            body["max_completion_tokens"] = body.pop("max_tokens")
        if schema is not None and (wanted := _FORMATS[self._learnt.get("format", self.json_format)](schema)):
            body["response_format"] = wanted
        return body

    def _learns_from(self, error: Any, asked_json: bool) -> bool:
        """True when the refusal names a parameter that can be asked for in another way."""
        said = f"{getattr(error, 'param', '') or ''} {error}".lower()
        current = self._learnt.get("format", self.json_format)
        if (
            asked_json
            and current != "text"
            and any(word in said for word in ("response_format", "json_schema", "json_object", "json mode"))
        ):
            self._learnt["format"] = "object" if current == "schema" else "text"
            return True
        if "max_completion_tokens" in said and not self._learnt.get("completion_tokens"):
            self._learnt["completion_tokens"] = True
            return True
        if "temperature" in said and "temperature" not in self._learnt.get("refused", ()):
            self._learnt["refused"] = ("temperature",)
            return True
        return False

    def _client(self) -> Any:
        if "client" not in self._learnt:
            import openai

            if not (self.model or self.deployment_name):
                raise ProviderError("llm 'openai' has no model; set its option `model`, or `deployment_name` on Azure", code="no_model")
            key = os.environ.get(self.api_key_env, "") if self.api_key_env else "none"
            if not key:
                raise ProviderError(f"llm 'openai' needs a key in the environment variable {self.api_key_env}", code="missing_key")
            common: Json = {"api_key": key, "timeout": self.timeout_ms / 1000, "max_retries": 0}
            if self.endpoint:
                self._learnt["client"] = openai.AzureOpenAI(azure_endpoint=self.endpoint, azure_deployment=self.deployment_name,
                                                            api_version=self.api_version, **common)  # fmt: skip
            else:
                self._learnt["client"] = openai.OpenAI(base_url=self.base_url or None, **common)
        return self._learnt["client"]

    def _wait(self, error: Any, tries: int) -> float:
        """Seconds as the endpoint asks for them, else doubled from try to try, with a quarter of chance."""
        response = getattr(error, "response", None)
        asked = response.headers.get("retry-after", "") if response is not None else ""
        if asked.replace(".", "", 1).isdigit():
            return min(_MAX_WAIT, float(asked))
        return float(min(_MAX_WAIT, self.backoff_ms / 1000 * 2**tries) * random.uniform(0.75, 1.25))

    def _refused(self, error: Any, tries: int) -> NoReturn:
        code = _code_of(error)
        place = self.endpoint or self.base_url or "api.openai.com"
        name = self.deployment_name or self.model
        raise ProviderError(
            f"the model {name!r} at {place} did not answer ({code}, after {tries + 1} tries): {str(error)[:300]}",
            code=code,
            retryable=_retryable(error),
            retries=tries,
            status=getattr(error, "status_code", None),
        ) from error

    # --- the reply -----------------------------------------------------------------------------------------------------

    def _read(self, reply: Any) -> tuple[str, Json]:
        choices = getattr(reply, "choices", None)
        if not isinstance(choices, list) or not choices or getattr(choices[0], "message", None) is None:
            raise ProviderError(f"the reply of {self.model!r} holds no choice: {str(reply)[:200]}", code="broken_reply")
        choice = choices[0]
        if getattr(choice, "finish_reason", "") == "content_filter" or getattr(choice.message, "refusal", None):
            said = getattr(choice.message, "refusal", None) or "content filter"
            raise ProviderError(f"the model {self.model!r} refused: {str(said)[:200]}", code="content_filtered")
        text = choice.message.content
        if not isinstance(text, str) or not text.strip():
            reason = getattr(choice, "finish_reason", "")
            raise ProviderError(f"the model {self.model!r} answered nothing (finish_reason {reason!r})", code="empty_reply")
        counted = getattr(reply, "usage", None)
        usage: Json = {}
        if counted is not None:
            usage = {"input_tokens": int(getattr(counted, "prompt_tokens", 0) or 0),
                     "output_tokens": int(getattr(counted, "completion_tokens", 0) or 0)}  # fmt: skip
        return text, usage

    def _cost(self, usage: Json) -> float | None:
        if not usage or self.price_input is None or self.price_output is None:
            return None
        return float(usage["input_tokens"] * self.price_input + usage["output_tokens"] * self.price_output) / 1_000_000


_FORMATS: dict[str, Any] = {
    "schema": lambda schema: {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    "object": lambda schema: {"type": "json_object"},
    "text": lambda schema: None,
}


def _wire(message: Message) -> Json:
    """The message as the endpoint reads it; pictures travel as data URLs behind the text."""
    if not message.pictures:
        return {"role": message.role, "content": message.text}
    parts: list[Json] = [{"type": "text", "text": message.text}]
    for picture in message.pictures:
        data = base64.b64encode(picture.data).decode("ascii")
        parts.append({"type": "image_url", "image_url": {"url": f"data:{picture.mime};base64,{data}"}})
    return {"role": message.role, "content": parts}


def _code_of(error: Any) -> str:
    import openai

    if isinstance(error, openai.APITimeoutError):
        return "timeout"
    if isinstance(error, openai.APIConnectionError):
        return "connection_failed"
    status = getattr(error, "status_code", None)
    if status is None or isinstance(error, openai.APIResponseValidationError):
        return "broken_reply"
    if status == 400 and "content_filter" in str(error):
        return "content_filtered"
    return _CODES.get(status, "server_error" if status >= 500 else "bad_request")


def _retryable(error: Any) -> bool:
    return _code_of(error) in ("timeout", "connection_failed", "rate_limited", "server_error")


@dataclass(frozen=True)
class NoModel:
    """No language model: whoever asks is told that none is configured."""

    NAME: ClassVar[str] = "none"
    VERSION: ClassVar[str] = "1"

    def generate(
        self, messages: Sequence[Message], *, mode: str = "online", max_tokens: int | None = None, json_schema: Json | None = None
    ) -> Completion:
        """Raises ProviderError `no_model`."""
        raise ProviderError("no language model is configured; name one, for example provider `openai` with its model", code="no_model")
