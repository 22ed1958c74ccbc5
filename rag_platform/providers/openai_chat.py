"""Language models behind any endpoint with OpenAI's chat completions API: OpenAI, Azure, DeepSeek,
Qwen, Gemini, Ollama, vLLM.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import Json
from rag_platform.protocols import Completion, Message
from rag_platform.providers import model_calls as calls
from rag_platform.providers.openai_client import make_client, place_of


@dataclass(frozen=True)
class OpenAIChat:
    """A chat model by `model` and `base_url` (empty: OpenAI's own); on Azure by `endpoint`,
    `deployment_name` and `api_version`.

    The key is read from the environment variable that `api_key_env` names; empty means an endpoint
    without keys. Rate limits, server errors, lost connections and timeouts are tried again up to
    `retries` times with growing waits, at most once where mode is online; nothing else is.
    `json_format` is how a schema is asked for; endpoints that refuse it are asked for plain JSON,
    then for text. `price_input` and `price_output` are per million tokens.
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
    # further fields of the request body, passed on unchanged
    extra: Json = field(default_factory=dict)

    NAME: ClassVar[str] = "openai"
    VERSION: ClassVar[str] = "1"

    _learnt: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.json_format not in _FORMATS:
            raise ConfigError(
                f"llm 'openai': json_format {self.json_format!r} is none of {', '.join(_FORMATS)}"
            )
        if self.endpoint and not (self.deployment_name and self.api_version):
            raise ConfigError(
                "llm 'openai': an Azure endpoint needs deployment_name and api_version too"
            )

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

        Raises ProviderError with code missing_key, unauthorized, forbidden, model_not_found,
        bad_request, too_large, content_filtered, empty_reply, broken_reply, or, retryable,
        rate_limited, timeout, connection_failed, server_error. For a broken stream,
        `details["text"]` has the text so far. Usage that the endpoint does not report is estimated
        and marked so.
        """
        endpoint = calls.Endpoint(
            self.NAME,
            self.deployment_name or self.model,
            place_of(self),
            self.retries,
            self.backoff_ms,
            (self.price_input, self.price_output),
        )
        body: Json = {
            "model": endpoint.model,
            "messages": [_wire(message) for message in messages],
            **self.extra,
        }
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if (most := max_tokens or self.max_tokens) is not None:
            body["max_tokens"] = most
        if on_text is not None:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        sent: Json = {}

        def call() -> Any:
            nonlocal sent
            sent = self._adapt(body, json_schema)
            return self._reply(endpoint, sent, on_text)

        return calls.complete(
            endpoint,
            call,
            self._read,
            messages,
            mode=mode,
            streamed=on_text is not None,
            learns=lambda error: self._learns_from(error, sent),
        )

    def load(self) -> None:
        """Import the client, which takes a second. Raises ProviderError."""
        _ = self._client().chat.completions

    # --- the call --------------------------------------------------------------------------------

    def _reply(
        self, endpoint: calls.Endpoint, body: Json, on_text: Callable[[str], None] | None
    ) -> Any:
        """The endpoint's reply; a stream is assembled into the form of an unstreamed one."""
        made = self._client().chat.completions.create(**body)
        if on_text is None:
            return made
        last: Json = {"model": "", "usage": None, "finish_reason": None, "refusal": ""}

        def text_of(event: Any) -> str:
            last["model"] = getattr(event, "model", None) or last["model"]
            last["usage"] = getattr(event, "usage", None) or last["usage"]
            choices = getattr(event, "choices", None) or []
            if not choices:
                return ""
            last["finish_reason"] = (
                getattr(choices[0], "finish_reason", None) or last["finish_reason"]
            )
            delta = getattr(choices[0], "delta", None)
            last["refusal"] += getattr(delta, "refusal", None) or ""
            return getattr(delta, "content", None) or ""

        with made:
            text = calls.read_stream(endpoint, made, text_of, on_text)
        if last["finish_reason"] is None and text:
            raise calls.cut_stream_error(endpoint, text)
        message = SimpleNamespace(content=text, refusal=last["refusal"] or None)
        choice = SimpleNamespace(message=message, finish_reason=last["finish_reason"])
        return SimpleNamespace(choices=[choice], model=last["model"], usage=last["usage"])

    def _adapt(self, body: Json, schema: Json | None) -> Json:
        body = {
            key: value for key, value in body.items() if key not in self._learnt.get("refused", ())
        }
        if "max_tokens" in body and self._learnt.get("completion_tokens"):
            body["max_completion_tokens"] = body.pop("max_tokens")
        if schema is not None and (
            wanted := _FORMATS[self._learnt.get("format", self.json_format)](schema)
        ):
            body["response_format"] = wanted
        return body

    def _learns_from(self, error: Any, sent: Json) -> bool:
        """True if the error names a parameter that later calls will send differently or omit."""
        said = f"{getattr(error, 'param', '') or ''} {error}".lower()
        asked = sent.get("response_format", {}).get("type")
        if asked and any(
            word in said for word in ("response_format", "json_schema", "json_object", "json mode")
        ):
            self._learnt["format"] = "object" if asked == "json_schema" else "text"
            return True
        if "max_completion_tokens" in said and "max_tokens" in sent:
            self._learnt["completion_tokens"] = True
            return True
        for name in ("stream_options", "temperature"):
            if name in said and name in sent:
                self._learnt["refused"] = (*self._learnt.get("refused", ()), name)
                return True
        return False

    def _client(self) -> Any:
        if "client" not in self._learnt:
            if not (self.model or self.deployment_name):
                raise ProviderError(
                    "llm 'openai' has no model; set its option `model`, or `deployment_name` on"
                    " Azure",
                    code="no_model",
                )
            self._learnt["client"] = make_client(self)
        return self._learnt["client"]

    # --- the reply -------------------------------------------------------------------------------

    def _read(self, reply: Any) -> calls.Reply:
        choices = getattr(reply, "choices", None)
        if (
            not isinstance(choices, list)
            or not choices
            or getattr(choices[0], "message", None) is None
        ):
            raise ProviderError(
                f"the reply of {self.model!r} holds no choice: {str(reply)[:200]}",
                code="broken_reply",
            )
        message, finish = choices[0].message, str(getattr(choices[0], "finish_reason", "") or "")
        counted = getattr(reply, "usage", None)
        usage: Json = {}
        if counted is not None:
            usage = {
                "input_tokens": int(getattr(counted, "prompt_tokens", 0) or 0),
                "output_tokens": int(getattr(counted, "completion_tokens", 0) or 0),
            }
        text = message.content if isinstance(message.content, str) else ""
        refusal = str(
            getattr(message, "refusal", None)
            or ("content filter" if finish == "content_filter" else "")
        )
        return calls.Reply(text, usage, str(getattr(reply, "model", "") or ""), finish, refusal)


_FORMATS: dict[str, Any] = {
    "schema": lambda schema: {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema},
    },
    "object": lambda schema: {"type": "json_object"},
    "text": lambda schema: None,
}


def _wire(message: Message) -> Json:
    """The message in the endpoint's format; pictures follow the text as data URLs."""
    if not message.pictures:
        return {"role": message.role, "content": message.text}
    parts: list[Json] = [{"type": "text", "text": message.text}]
    for picture in message.pictures:
        data = base64.b64encode(picture.data).decode("ascii")
        parts.append(
            {"type": "image_url", "image_url": {"url": f"data:{picture.mime};base64,{data}"}}
        )
    return {"role": message.role, "content": parts}


@dataclass(frozen=True)
class NoModel:
    """No language model: whoever asks is told that none is configured."""

    NAME: ClassVar[str] = "none"
    VERSION: ClassVar[str] = "1"

    def generate(
        self,
        messages: Sequence[Message],
        *,
        mode: str = "online",
        max_tokens: int | None = None,
        json_schema: Json | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Raises ProviderError `no_model`."""
        raise ProviderError(
            "no language model is configured; name one, for example provider `openai` with its"
            " model",
            code="no_model",
        )
